// The rules, one function a file, and what their files share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "poly/algebra/rules/rule.h"

namespace nestor {

const Rule& reassociate_rule();
const Rule& online_rule();
const Rule& moments_rule();
const Rule& defer_factor_rule();
const Rule& neutral_terms_rule();
const Rule& finite_masks_rule();
const Rule& skip_neutral_rule();
const Rule& start_extremum_rule();
const Rule& local_extremum_rule();
const Rule& prefix_reduction_rule();
const Rule& leave_out_rule();
const Rule& early_definitions_rule();
const Rule& scalars_first_rule();
const Rule& dense_terms_rule();
const Rule& reroll_sums_rule();
const Rule& reroll_terms_rule();
const Rule& unskew_dims_rule();
const Rule& gather_sums_rule();
const Rule& flatten_sums_rule();
const Rule& exp2_scale_rule();
const Rule& simplify_rule();
const Rule& log_quotient_rule();
const Rule& split_reduction_rule();
const Rule& reciprocal_rule();
const Rule& keep_result_rule();
const Rule& fold_storage_rule();
const Rule& recompute_rule();
const Rule& materialize_factor_rule();
const Rule& late_definitions_rule();
const Rule& zero_terms_rule();
const Rule& skip_zeros_rule();
const Rule& narrow_copies_rule();
const Rule& round_operand_rule();
const Rule& gather_rows_rule();
const Rule& gather_terms_rule();
const Rule& batch_first_rule();
const Rule& terms_last_rule();
const Rule& columns_last_rule();
const Rule& copy_rows_rule();
const Rule& join_rows_rule();
const Rule& join_short_rows_rule();
const Rule& join_sums_rule();
const Rule& join_results_rule();
const Rule& keep_sums_rule();
const Rule& product_again_rule();
const Rule& product_across_rule();
const Rule& slice_product_rule();
const Rule& slice_results_rule();
const Rule& split_terms_rule();
const Rule& nest_products_rule();
const Rule& nest_sums_rule();
const Rule& nest_extrema_rule();
const Rule& nest_operands_rule();
const Rule& chain_order_rule();
const Rule& row_reduction_rule();
const Rule& expand_squares_rule();
const Rule& masked_product_rule();
const Rule& skip_blocks_rule();
const Rule& bf16x6_rule();
const Rule& bf16x3_rule();
const Rule& join_dims_rule();
const Rule& split_dims_rule();
const Rule& forward_pieces_rule();
const Rule& repeat_elements_rule();
const Rule& factor_exponential_rule();
const Rule& integer_product_rule();
const Rule& separate_sums_rule();
const Rule& repeat_product_rule();
const Rule& factor_extremum_rule();
const Rule& fixed_extremum_rule();

/// target[0] as the name of a statement; throws UserError when there is none, or when target has not `count` entries.
std::string statement_argument(const Nest& nest, const std::string& rule, const std::vector<std::string>& target,
                               std::size_t count);
void expect_arguments(const std::string& rule, const std::vector<std::string>& target, std::size_t count);
/// A match for each statement where the rule brings something: `gain` says what, "" where the rule does not apply.
std::vector<RuleMatch> matching_statements(const Nest& nest, const std::string& rule,
                                           const std::function<std::string(const Statement&)>& gain);
/// Throws the UserError for a target that is no match.
[[noreturn]] void refuse_rule(const std::string& rule, const std::string& target, const std::string& reason);

/// What `find` (nest, statement, why: an optional) has for the rule's only argument, a statement. Throws UserError, with its `why` where it has
/// nothing.
template <class Find>
auto required_match(const Nest& nest, const std::string& rule, const std::vector<std::string>& target, const Find& find) {
  const std::string name = statement_argument(nest, rule, target, 1);
  std::string why;
  auto found = find(nest, nest.statement(name), why);
  if (!found) refuse_rule(rule, name, why);
  return *std::move(found);
}

}  // namespace nestor
