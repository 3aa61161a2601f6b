// IllegalStep: the refusal of a step that would break a dependence, with the order that it would have given.
#pragma once

#include "nestor/error.h"
#include "poly/schedule/order/loop_form.h"
#include "poly/schedule/order/tree_node.h"

#include <isl/cpp.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace nestor {

/// What an illegal step would do to the instances of two statements (or of one).
struct OrderConflict {
  /// One end of the dependence, in the order that the step would have given.
  struct End {
    std::string statement;
    std::vector<std::string> dims;   ///< of the statement, outermost first
    std::vector<std::string> loops;  ///< around it, outermost first
    LoopForm form;                   ///< the dims over the loops
    isl::set iterations;             ///< { [loops] }: what the loops run over, symbolic in the sizes
  };
  End source, sink;
  /// { [source loops] -> [sink loops] }: pairs whose source must come first, but would not; not empty.
  isl::map pairs;
  std::string dependence;  ///< "flow dependence mean -> out through mean"
  std::string loop;        ///< that breaks it; empty: the order of bodies within an iteration
  LoopKind loop_kind = LoopKind::serial;
};

/// "mean[i=0, k=1]": the instance that runs in this iteration of the loops.
std::string instance_text(const OrderConflict::End& end, const std::vector<std::int64_t>& iteration);

/// Thrown for a step that breaks a dependence; its text says all of it in words.
class IllegalStep : public UserError {
 public:
  IllegalStep(const std::string& message, OrderConflict conflict) : UserError(message), conflict_(std::move(conflict)) {}
  const OrderConflict& conflict() const { return conflict_; }

 private:
  OrderConflict conflict_;
};

}  // namespace nestor
