// ZeroParts: temporaries with a constant on some of their elements, beside others that are computed, as images have zeros around them.
#pragma once

#include "poly/nest/nest.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "poly/algebra/rules/rule.h"

namespace nestor {

/// The reduction without the terms for which its read of `ordinal`, a temporary, has the constant `neutral`; in place of that read it has the
/// value of the one statement that writes the temporary elsewhere, if `takes` holds for that statement. nullopt: there is no such, and `why`
/// says so. The reduction shares its loops with no other statement.
std::optional<Statement> without_constant_terms(const Nest& nest, const Statement& reduction, std::size_t ordinal, double neutral,
                                                const std::function<bool(const Statement&)>& takes, std::string& why);

/// A reduction without such terms.
struct Skipping {
  Statement reduction;
  std::vector<std::string> others;  ///< the tensors that zeros were multiplied by
};
/// Finds it for a statement; sets `why` where there is none.
using FindSkipping = std::optional<Skipping> (*)(const Nest& nest, const Statement& statement, std::string& why);

/// Of a rule that skips such terms: what is to be finite, and the rewrite.
std::vector<std::string> finite_beside_zeros(const Nest& nest, FindSkipping find);
RuleResult skip_terms(const Nest& nest, const std::string& rule, const std::vector<std::string>& target, FindSkipping find);

}  // namespace nestor
