// Statements of a nest while they are built: their pure dims are not bounded yet.
#pragma once

#include <isl/cpp.h>

#include <optional>
#include <string>
#include <vector>

#include "frontend/values/value_translator.h"
#include "poly/nest/scalar_expr.h"

namespace nestor {

/// One component of one definition.
struct StatementDraft {
  StatementDraft(const isl::set& space, const isl::map& access)
      : universe(space), base(space), domain(space), write(access), pure_part(access) {}

  std::string name;
  std::vector<std::string> dims;
  isl::set universe;  ///< { S[dims] }
  isl::set base;      ///< bounds of reduction variables, and `where`
  isl::set domain;    ///< set by bounds inference
  std::string tensor;
  isl::map write;      ///< { S[dims] -> tensor[index] }
  isl::map pure_part;  ///< as `write` in the positions of pure variables, anything in the others
  std::vector<ReadDraft> reads;
  std::vector<isl::pw_aff> indices;
  ScalarExpr value;
  std::optional<ReductionOp> reduction;
  int group = 0;

  /// { S[dims] -> tensor[index] } of a read, for instances that may use it.
  isl::map read_relation(std::size_t k) const;
};

/// A Func with all its statements, in order.
struct FuncDraft {
  std::vector<StatementDraft> statements;
  std::vector<TensorRef> tensors;  ///< the components, then snapshots that simultaneous assignment needs
};

}  // namespace nestor
