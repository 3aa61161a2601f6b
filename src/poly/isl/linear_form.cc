// Integer linear forms over loop names.
#include "poly/isl/linear_form.h"

#include <fmt/format.h>

namespace nestor {

std::int64_t LinearForm::coefficient(const std::string& name) const {
  const auto found = terms.find(name);
  return found == terms.end() ? 0 : found->second;
}

LinearForm& LinearForm::add(const LinearForm& other, std::int64_t factor) {
  if (factor == 0) return *this;
  if (&other == this) return add(LinearForm(other), factor);
  for (const auto& [name, coefficient] : other.terms) {
    const auto place = terms.try_emplace(name, 0).first;
    place->second += factor * coefficient;
    if (place->second == 0) terms.erase(place);
  }
  constant += factor * other.constant;
  return *this;
}

LinearForm LinearForm::substitute(const std::string& name, const LinearForm& value) const {
  const std::int64_t factor = coefficient(name);
  LinearForm result = *this;
  result.terms.erase(name);
  return result.add(value, factor);
}

std::string LinearForm::str() const {
  std::string text;
  for (const auto& [name, coefficient] : terms) {
    if (!text.empty()) text += " + ";
    text += fmt::format("{}*({})", coefficient, name);
  }
  if (text.empty()) return fmt::format("{}", constant);
  if (constant > 0) text += fmt::format(" + {}", constant);
  if (constant < 0) text += fmt::format(" - {}", -constant);
  return text;
}

}  // namespace nestor
