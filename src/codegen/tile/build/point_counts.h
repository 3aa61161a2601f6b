// Point counts: how many points of a composite's leading reduction lie before a tile, up to its end and in all, row by row.
#pragma once

#include "codegen/tile/build/op_builder.h"

#include <map>
#include <string>
#include <vector>

namespace nestor {

/// Counts for one element of the lead's tensor, over the loops of the statement that asks for them: products with a factor for each reduced
/// dim of the lead. Empty where nothing is counted.
struct PointCounts {
  std::vector<IntExpr> before;
  std::vector<IntExpr> through;
  std::vector<IntExpr> total;
};

/// Counts at the tiles of the lead in `lead_box`. A row's points must be a box of intervals, one a reduced dim. Tiles cut it along one dim:
/// between two bounds that are the same for all of a tile's rows, in order. Of other dims a tile has the whole. Throws UserError otherwise.
class PointCounter {
 public:
  /// All must outlive the object.
  PointCounter(const ProgramPlan& plan, const Composite& composite, const OpBox& lead_box);

  /// `row`: { Statement[dims] -> LeadTensor[index] }, the element whose points are counted. `region`: { [outer, inner] } the points at
  /// which the counts are evaluated. `absent`: dims of these that the counts are written without, on which rows must not depend there.
  PointCounts at(const StatementPlan& statement, const isl::map& row, const isl::set& region,
                 const std::vector<std::string>& absent = {}) const;

 private:
  /// One reduced dim of the lead.
  struct Range {
    int dim;
    isl::map rows;            ///< { LeadTensor[index] -> [r] } of each row's points
    isl::pw_aff first, last;  ///< { LeadTensor[index] -> [r] } of rows with points
    isl::pw_aff low, high;    ///< { [outer] -> [r] } of a tile, over all its rows
  };

  void check_rows() const;
  void check_tiles();
  std::size_t moving_range(const isl::map& elements) const;
  [[noreturn]] void refuse(const std::string& reason) const;

  const ProgramPlan& plan_;
  const Composite& composite_;
  const StatementPlan& lead_;
  const OpBox& box_;
  std::vector<int> reduced_;   ///< the lead's dims that the reduction runs over
  isl::map rows_;              ///< { LeadTensor[index] -> [r, ..] } points of each row
  std::vector<Range> ranges_;  ///< one a reduced dim
  std::size_t moving_ = 0;     ///< the range that tiles cut; they have the whole of the others
};

}  // namespace nestor
