// The isl objects of a schedule: maps from loops to statement instances and back.
#pragma once

#include <isl/cpp.h>

#include <string>
#include <vector>

#include "poly/nest/nest.h"
#include "poly/schedule/order/loop_form.h"

namespace nestor {

/// Linear form over `loops` as `{ [loops] -> [value] }`, on the given loop space (which brings the parameters).
isl::aff affine_of(const LinearForm& form, const std::vector<std::string>& loops, const isl::space& loop_space);

/// A statement's loops in isl's terms, ready to move relations between instances into loop space.
class LoopSpace {
 public:
  LoopSpace(const Statement& statement, const LoopForm& form, std::vector<std::string> loops);

  const std::vector<std::string>& loops() const { return loops_; }
  /// { [loops] -> Statement[dims] }, affine and total.
  const isl::multi_aff& instances() const { return instances_; }
  /// { [loops] : the form's constraints }.
  const isl::set& constraints() const { return constraints_; }

 private:
  std::vector<std::string> loops_;
  isl::multi_aff instances_;
  isl::set constraints_;
};

/// { Source[dims] -> Sink[dims] } as { [source loops] -> [sink loops] }.
isl::map in_loop_space(const isl::map& relation, const LoopSpace& source, const LoopSpace& sink);

/// { Statement[dims] -> [loops] } on the statement's domain.
isl::map loop_relation_of(const Statement& statement, const LoopSpace& space);

}  // namespace nestor
