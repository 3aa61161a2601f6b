// The ops of one step of a composite, and what its two proofs share.
#pragma once

#include "codegen/proof/model/composite_roles.h"
#include "codegen/proof/obligations.h"

#include <map>
#include <string>
#include <vector>

namespace nestor::proof {

/// One lead op with the ops of its step.
struct StepOps {
  const Run* lead = nullptr;
  const Run* save = nullptr;
  const Run* hold = nullptr;
  std::map<std::string, const Run*> corrects;  ///< by follower
};

/// { [loops, dims] -> range } from { Statement[dims] -> range }, at the run's instances.
isl::map at_instances(const isl::map& relation, const Run& run);

/// Where `a` is not there yet: `b`.
inline isl::map united(const isl::map& a, const isl::map& b) { return a.is_null() ? b : a.unite(b); }

/// Terms: used in the step that made them, seen after their points, and with the right counts.
void prove_terms(const Subject& subject, const Composite& composite, const std::vector<StepOps>& steps);

}  // namespace nestor::proof
