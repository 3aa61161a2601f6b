// Sums of a few terms, written as one value, and when a reduction may be one.
#pragma once

#include "poly/nest/nest.h"

#include <isl/cpp.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// True when everything else that writes the accumulator of the reduction `update` comes before it, and all that read it come behind its
/// group: none of them sees a part of the reduction, or what it starts from.
bool is_read_when_complete(const Nest& nest, const Statement& update);

constexpr std::int64_t kFewValues = 4;

/// The points of these dims of a domain, in their order; empty where there are more than a few, or how many hangs on a size.
std::vector<std::vector<std::int64_t>> few_values(const isl::set& domain, const std::vector<int>& dims);

/// The nest with one definition of a temporary in place of its start and a sum, maximum or minimum of a few terms: the same operations in the
/// same order. Nothing where `sum` is none such: how many terms it has hangs on a size or an element, or it is not of f32.
std::optional<Nest> with_sum_as_value(const Nest& nest, const std::string& sum);

/// The number that an index of an access is at all points of a domain; nothing where it changes, or there are none.
std::optional<std::int64_t> number_of_index(const isl::set& domain, const Access& access, std::size_t index);

/// The nest with a tensor in place of each part of a temporary, which index `index` tells, and of temporaries that are made of it part by part.
/// Statements over parts are written once for each; sums over them go from part to part. nullopt: no statement needs several of them, how many parts there are hangs on a size, or a
/// statement goes through some of them otherwise, or shares its loops.
std::optional<Nest> with_parts_apart(const Nest& nest, const std::string& tensor, std::size_t index);

}  // namespace nestor
