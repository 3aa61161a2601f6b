// The list of rules.
#include "poly/algebra/all_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "poly/algebra/rules/rule_list.h"
#include "support/error.h"

namespace nestor {

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all{simplify_rule(),
                                     scalars_first_rule(),
                                     log_quotient_rule(),
                                     prefix_reduction_rule(),
                                     leave_out_rule(),
                                     reroll_sums_rule(),
                                     reroll_terms_rule(),
                                     forward_pieces_rule(),
                                     skip_neutral_rule(),
                                     start_extremum_rule(),
                                     neutral_terms_rule(),
                                     dense_terms_rule(),
                                     flatten_sums_rule(),
                                     local_extremum_rule(),
                                     keep_result_rule(),
                                     slice_product_rule(),
                                     slice_results_rule(),
                                     split_dims_rule(),
                                     unskew_dims_rule(),
                                     gather_sums_rule(),
                                     join_dims_rule(),
                                     split_terms_rule(),
                                     nest_operands_rule(),
                                     chain_order_rule(),
                                     nest_sums_rule(),
                                     nest_extrema_rule(),
                                     expand_squares_rule(),
                                     factor_exponential_rule(),
                                     integer_product_rule(),
                                     nest_products_rule(),
                                     recompute_rule(),
                                     defer_factor_rule(),
                                     finite_masks_rule(),
                                     exp2_scale_rule(),
                                     factor_extremum_rule(),
                                     fixed_extremum_rule(),
                                     online_rule(),
                                     moments_rule(),
                                     reassociate_rule(),
                                     row_reduction_rule(),
                                     split_reduction_rule(),
                                     reciprocal_rule(),
                                     masked_product_rule(),
                                     skip_blocks_rule(),
                                     materialize_factor_rule(),
                                     late_definitions_rule(),
                                     early_definitions_rule(),
                                     fold_storage_rule(),
                                     skip_zeros_rule(),
                                     repeat_elements_rule(),
                                     narrow_copies_rule(),
                                     round_operand_rule(),
                                     zero_terms_rule(),
                                     terms_last_rule(),
                                     columns_last_rule(),
                                     gather_terms_rule(),
                                     batch_first_rule(),
                                     repeat_product_rule(),
                                     join_rows_rule(),
                                     join_short_rows_rule(),
                                     join_results_rule(),
                                     join_sums_rule(),
                                     keep_sums_rule(),
                                     copy_rows_rule(),
                                     gather_rows_rule(),
                                     product_across_rule(),
                                     product_again_rule(),
                                     separate_sums_rule(),
                                     bf16x6_rule(),
                                     bf16x3_rule()};
  return all;
}

const Rule& rule(const std::string& name) {
  std::vector<std::string> names;
  for (const Rule& candidate : rules()) {
    if (candidate.name == name) return candidate;
    names.push_back(candidate.name);
  }
  user_error("\"{}\" is no algebra rule; the rules are {}", name, fmt::join(names, ", "));
}

std::vector<RuleMatch> apply_everywhere(const Rule& rule, Nest& nest) {
  std::vector<RuleMatch> applied;
  const std::size_t most = nest.statements.size();
  while (applied.size() < most) {
    std::vector<RuleMatch> matches = rule.find(nest);
    if (matches.empty()) break;
    nest = rule.apply(nest, matches.front().target).nest;
    applied.push_back(std::move(matches.front()));
  }
  return applied;
}

Nest with_rule_everywhere(const std::string& name, Nest nest) {
  apply_everywhere(rule(name), nest);
  return nest;
}

std::vector<Nest> forms_with_fewer_tensors(const Nest& nest) {
  std::vector<Nest> forms{nest};
  if (simplify_rule().find(nest).empty()) return forms;
  Nest simpler = simplify_rule().apply(nest, {}).nest;
  if (simpler.tensors.size() < nest.tensors.size()) forms.push_back(std::move(simpler));
  return forms;
}

std::vector<RuleMatch> find_matches(const Nest& nest) {
  std::vector<RuleMatch> all;
  with_isl_budget("finding algebra rules for " + nest.op, [&] {
    for (const Rule& candidate : rules()) {
      std::vector<RuleMatch> found = candidate.find(nest);
      all.insert(all.end(), found.begin(), found.end());
    }
  });
  return all;
}

}  // namespace nestor
