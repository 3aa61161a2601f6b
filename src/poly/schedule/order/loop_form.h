// How a statement's dims follow from the loops around it.
#pragma once

#include "poly/isl/linear_form.h"

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace nestor {

/// Where a statement's dims come from: dims[k] as a form over the loops around it, and `constraints` (each >= 0) that the
/// loops satisfy besides those of the domain (0 <= inner < factor after a split). The correspondence is one to one.
struct LoopForm {
  std::vector<LinearForm> dims;
  std::vector<LinearForm> constraints;
};

/// Loop forms by statement. Copies share what neither has changed: a search tries steps by the thousand, each of few statements.
class StatementForms {
 public:
  StatementForms() = default;
  explicit StatementForms(const std::map<std::string, LoopForm>& forms);
  /// Throws InternalError for a statement that is not there.
  const LoopForm& at(const std::string& statement) const { return *forms_[place_of(statement)]; }
  LoopForm& change(const std::string& statement);

 private:
  std::size_t place_of(const std::string& statement) const;
  std::shared_ptr<const std::map<std::string, std::size_t>> places_;  ///< the same in all copies
  std::vector<std::shared_ptr<const LoopForm>> forms_;
};

}  // namespace nestor
