// Point counts: how many points of a composite's leading reduction lie before a tile, up to its end and in all, row by row.
#pragma once

#include "codegen/tile/build/op_builder.h"

#include <map>
#include <string>

namespace nestor {

/// Counts for one element of the lead's tensor, over the loops of the statement that asks for them.
struct PointCounts {
  IntExpr before;
  IntExpr through;
  IntExpr total;
};

/// Counts at the tiles of the lead in `lead_box`. A row's points must be an interval of one dimension, and every tile must take the
/// part of each of its rows between two bounds that are the same for all of them, in order. Throws UserError otherwise.
class PointCounter {
 public:
  /// All must outlive the object.
  PointCounter(const ProgramPlan& plan, const Composite& composite, const OpBox& lead_box);

  /// `row`: { Statement[dims] -> LeadTensor[index] }, the element whose points are counted. `region`: { [outer, inner] } the points at
  /// which the counts are evaluated. `absent`: dims of these that the counts are written without, on which rows must not depend there.
  PointCounts at(const StatementPlan& statement, const isl::map& row, const isl::set& region,
                 const std::vector<std::string>& absent = {}) const;

 private:
  void check_rows() const;
  void check_tiles() const;
  [[noreturn]] void refuse(const std::string& reason) const;

  const ProgramPlan& plan_;
  const Composite& composite_;
  const StatementPlan& lead_;
  const OpBox& box_;
  int reduced_ = -1;          ///< the lead's dim that the reduction runs over
  isl::map rows_;             ///< { LeadTensor[index] -> [r] } points of each row
  isl::pw_aff first_, last_;  ///< { LeadTensor[index] -> [r] } of rows with points
  isl::pw_aff low_, high_;    ///< { [outer] -> [r] } of a tile, over all its rows
};

}  // namespace nestor
