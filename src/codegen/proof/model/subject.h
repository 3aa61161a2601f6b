// What the obligations of a program are shown from.
#pragma once

#include "codegen/proof/model/program_model.h"
#include "poly/nest/dependences.h"

#include <set>
#include <string>
#include <vector>

namespace nestor::proof {

/// What a proof starts from, besides the program: the nest's dependences and what rules of algebra relax.
struct Subject {
  const ProgramModel& model;
  const std::vector<Dependence>& dependences;
  std::vector<Composite> composites;  ///< those that the program follows: it has ops that correct their followers
  bool reassociation = false;
  std::set<std::string>& finite;  ///< collects tensors that extra points multiply by 0
};

}  // namespace nestor::proof
