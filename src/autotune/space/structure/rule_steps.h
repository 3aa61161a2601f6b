// Rule steps: the algebra that a candidate begins with.
#pragma once

#include "autotune/space/structure/nest_structure.h"
#include "autotune/trial/base_schedules.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace nestor {

/// Applies each rule in `enabled` wherever it matches, in the order of rules(), until none matches anew. Deterministic.
std::vector<Step> rule_steps(BaseSchedules& schedules, const std::set<std::string>& enabled);

/// Rules that match the nest as it is or after the other rules.
std::vector<std::string> matching_rules(BaseSchedules& schedules);

/// The rule that cuts reductions into parts. It is asked for by axis and number of parts, not with the others.
inline constexpr const char* kSplittingRule = "split_reduction";

/// The rule that reads sources of copies that were made piece by piece, by indices with pieces: tests cost lanes of GPUs little.
inline constexpr const char* kForwardingRule = "forward_pieces";

/// The rule that makes reductions of recurrences. Blocks of GPUs scan those; a processor would add up all points for each element.
inline constexpr const char* kPrefixRule = "prefix_reduction";

/// The rule that makes a prefix and a suffix of a reduction that leaves out a place of its own.
inline constexpr const char* kLeavingRule = "leave_out";

/// The rules that make one sum of sums that differ by constants, and of such terms.
inline constexpr const char* kRerollingRule = "reroll_sums";
inline constexpr const char* kTapsRule = "reroll_terms";

/// The rule that computes cheap values where sums read them. It takes part where sums run over several dims, whose tiles fit no registers.
inline constexpr const char* kRecomputingRule = "recompute";
inline constexpr const char* kFactorRule = "materialize_factor";  ///< stores products of two of three factors
/// Joins short rows of operands, whose tiles would be nearly empty.
inline constexpr const char* kShortRowsRule = "join_short_rows";
inline constexpr const char* kJoinedRule = "join_results";  ///< for what rules that join rows leave
/// Computes a product twice, on tensor cores, rather than storing it.
inline constexpr const char* kAgainRule = "product_again";

/// Makes a product for the slice of it that is needed first, and whole behind it.
inline constexpr const char* kSlicingRule = "slice_product";
inline constexpr const char* kSlicesRule = "slice_results";  ///< gives results that are slices of one product their own
inline constexpr std::int64_t kManyResults = 1 << 20;        ///< of a product that is worth a kernel of its own beside others

/// The rule that gives reductions across the rows of a product one of their own.
inline constexpr const char* kAcrossRule = "product_across";

/// The rule that copies operands whose rows tensor copies cannot read.
inline constexpr const char* kAligningRule = "copy_rows";
inline constexpr const char* kGatheringRule = "gather_rows";  ///< copies of what they cannot step along
inline constexpr const char* kColumnsRule = "columns_last";   ///< copies of operands whose tiles start where tensor copies cannot
inline constexpr const char* kOrderingRule = "terms_last";    ///< copies that are no larger than their operands

/// The rule that keeps a computed operand in the 16 bits of the other one.
inline constexpr const char* kRoundingRule = "round_operand";

/// The rule that leaves out terms of products that are zeros, which other rules would copy.
inline constexpr const char* kSkippingRule = "skip_zeros";

/// Copies operands that are read along quotients, so that tiles have rows of them.
inline constexpr const char* kRepeatingRule = "repeat_elements";

/// Makes one of two sums of products that are added together, over copies of their operands.
inline constexpr const char* kSumJoiningRule = "join_sums";

/// Stores sums of products that meet in one statement, or are results, by statements of their own.
inline constexpr const char* kKeepingRule = "keep_sums";

/// Gives each of a few sums of products that are mixed a tile of its own, in one kernel.
inline constexpr const char* kSeparatingRule = "separate_sums";

/// Makes products of squared differences, with sums of their own where those would cancel.
inline constexpr const char* kExpandingRule = "expand_squares";

/// Makes products with a masked operand of such that data hides, with sums of their own where those are not finite.
inline constexpr const char* kMaskedRule = "masked_product";
/// Says which blocks of scores data leaves, so that kernels go past the others.
inline constexpr const char* kBlocksRule = "skip_blocks";
/// Makes products of f32 operands of products of three parts each, in bf16.
inline constexpr const char* kPartsRule = "bf16x6";
/// Keeps operands of f32 beside such of f16 from being rounded to f16, where small ones would vanish.
inline constexpr const char* kMixedPartsRule = "bf16x3";
/// Makes products of exponentials of sums, with sums of their own where factors have no room.
inline constexpr const char* kFactoringRule = "factor_exponential";
inline constexpr const char* kIntegerRule = "integer_product";
/// Leaves out what masks of large negative numbers hide, with sums of their own for rows that are lower still.
inline constexpr const char* kMaskRule = "finite_masks";

/// Makes a product of matrices of two factors of a sum over several dims.
inline constexpr const char* kNestingRule = "nest_products";
/// Makes an operand of inner sums that results share.
inline constexpr const char* kOperandRule = "nest_operands";
inline constexpr const char* kChainRule = "chain_order";  ///< takes products of products in the order of fewest terms

/// Keeps states of recurrences in place, which blocks whose threads have elements of their own hold in registers.
inline constexpr const char* kFoldingRule = "fold_storage";

/// Makes of reductions over rows and columns of products some along each row, which a kernel of products takes, and others over rows.
inline constexpr const char* kRowsRule = "row_reduction";
inline constexpr const char* kZerosRule = "zero_terms";

/// Axes of `structure`, that of the schedule after `steps`, along which the splitting rule can cut reductions.
std::set<int> splittable_axes(BaseSchedules& schedules, const std::vector<Step>& steps, const NestStructure& structure);

/// `steps`, and then the rule for every reduction along the axes, with about so many parts, each a multiple of so many points. Where some have
/// few results, those with results for all threads stay whole.
std::vector<Step> split_steps(BaseSchedules& schedules, std::vector<Step> steps, const NestStructure& structure,
                              const std::set<int>& axes, std::int64_t parts, std::int64_t multiple);

/// Leads that rule online accumulates in `steps`, which made `nest`, and whose extremum may stay behind.
std::set<std::string> leads_that_may_stay_behind(const Nest& nest, const std::vector<Step>& steps);
/// The steps with rule online leaving the extrema of `leads` behind by so many doublings of terms.
std::vector<Step> with_threshold(std::vector<Step> steps, const std::set<std::string>& leads, int doublings);

/// True for rules that pay off almost everywhere; others (those that add work for more parallelism) start disabled.
bool enabled_by_default(const std::string& rule);

/// True for rules that do more work so that products get tensor cores: of no use without.
bool is_for_products(const std::string& rule);

/// True for those of them that multiply zeros.
bool multiplies_zeros(const std::string& rule);

/// True for rules that trade bits of f32 for speed: not for results that are not rounded to 16 bits.
bool costs_accuracy(const std::string& rule);

/// True for rules that merge several reductions into one composite.
bool makes_composites(const std::string& rule);

}  // namespace nestor
