// Forms that copies share until one of them changes.
#include "poly/schedule/order/loop_form.h"

#include "support/error.h"

#include <utility>

namespace nestor {

StatementForms::StatementForms(const std::map<std::string, LoopForm>& forms) {
  auto places = std::make_shared<std::map<std::string, std::size_t>>();
  for (const auto& [statement, form] : forms) {
    places->emplace(statement, forms_.size());
    forms_.push_back(std::make_shared<const LoopForm>(form));
  }
  places_ = std::move(places);
}

LoopForm& StatementForms::change(const std::string& statement) {
  auto own = std::make_shared<LoopForm>(at(statement));
  LoopForm& changed = *own;
  forms_[place_of(statement)] = std::move(own);
  return changed;
}

std::size_t StatementForms::place_of(const std::string& statement) const {
  if (places_) {
    if (const auto found = places_->find(statement); found != places_->end()) return found->second;
  }
  internal_error("the schedule has no statement {}", statement);
}

}  // namespace nestor
