// ZeroParts: temporaries with a constant on some of their elements, beside others that are computed, as images have zeros around them.
#pragma once

#include "poly/nest/nest.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace nestor {

/// The reduction without the terms for which its read of `ordinal`, a temporary, has the constant `neutral`; in place of that read it has the
/// value of the one statement that writes the temporary elsewhere, if `takes` holds for that statement. nullopt: there is no such, and `why`
/// says so. The reduction shares its loops with no other statement.
std::optional<Statement> without_constant_terms(const Nest& nest, const Statement& reduction, std::size_t ordinal, double neutral,
                                                const std::function<bool(const Statement&)>& takes, std::string& why);

}  // namespace nestor
