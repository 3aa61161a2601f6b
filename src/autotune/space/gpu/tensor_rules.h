// Tensor rules: which rules make products of a nest ones that tensor cores take.
#pragma once

#include "autotune/space/space_limits.h"
#include "autotune/space/structure/rule_variants.h"

#include <set>
#include <string>
#include <vector>

namespace nestor {

/// The usual rules, with those that are for products where these have no place else, or without one that makes something else of a sum of
/// products.
std::set<std::string> rules_for_tensor_cores(RuleVariants& variants, const std::set<std::string>& usual,
                                             const std::set<std::string>& for_products, const GpuLimits& limits);

/// The rules, and others with which sums fill twice as much of a tile (longer runs of terms, or more rows); the better guess first. Copies
/// that this takes may cost more than it brings.
std::vector<std::set<std::string>> rules_for_fuller_tiles(RuleVariants& variants, const std::set<std::string>& rules,
                                                          const std::set<std::string>& for_products, const GpuLimits& limits);

/// The choices, and where the first one copies operands so that sums meet in one kernel, what is chosen without that rule, if products have
/// a place then, too: before it, where the copies move more bytes than the sums that they keep from memory.
std::vector<std::set<std::string>> rules_with_fewer_copies(RuleVariants& variants, std::vector<std::set<std::string>> choices,
                                                           const std::set<std::string>& usual, std::set<std::string> for_products,
                                                           const GpuLimits& limits);

/// All of these: choices of rules with which products get tensor cores, the best guess first, and at last one without. Products of f32, large
/// enough, are those of their operands' parts. `across`: a product may be computed once for each direction in which it is summed up; so it is
/// where that takes less than half as long as what goes through memory, or stays on lanes, without it.
std::vector<std::set<std::string>> rules_for_products(RuleVariants& variants, std::set<std::string> usual,
                                                      const std::set<std::string>& for_products, bool across,
                                                      const GpuLimits& limits);

/// The choices, and first the first one with values computed where they are read, if products have their places and less goes through memory
/// between kernels.
std::vector<std::set<std::string>> rules_with_fewer_maps(RuleVariants& variants, std::vector<std::set<std::string>> choices,
                                                         const GpuLimits& limits);

/// Do the rules store parts of f32 operands whose elements are multiplied so seldom that lanes may be as fast?
bool parts_may_cost_more(RuleVariants& variants, const std::set<std::string>& rules, const GpuLimits& limits);

}  // namespace nestor
