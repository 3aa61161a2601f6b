// Rule "dense_terms": of a sum that takes every P-th value of a dim, the values are counted.
//
// Pattern    r_e = reduction over k of f_ek where k mod P is the same for all terms of an element: t + 4 - k is divisible by 8 in a transposed
//            convolution, whose filter overlaps itself.
// Rewrite    the dim m = floor(k / P) in place of k, so that k = P m + (k mod P), which the element says.
// Conditions the statement is a reduction, alone in its loops; P is 2 at least (the stride of differences of k, by isl).
// Proof      k -> m is one to one for each element, and keeps the order: the same terms in the same order.
// Rounding   none.
// Source     polyphase decomposition; P. P. Vaidyanathan, Multirate digital filters, filter banks, polyphase networks, Proc. IEEE 78(1), 1990.
#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/val.h>

#include <optional>
#include <string>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/conjunction.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "dense_terms";
constexpr long kMostStride = 4096;

struct SparseDim {
  int dim;
  long stride;
};

/// The greatest common divisor of differences of the dim's values, all others being equal; 1 if nothing shows.
long stride_of(const Nest& nest, const Statement& sum, int dim) {
  if (!has_divisions(sum.domain)) return 1;
  const isl::set domain = domain_in(nest, sum);
  const isl::map others =
      isl::manage(isl_map_project_out(isl_set_identity(domain.copy()), isl_dim_out, static_cast<unsigned>(dim), 1));
  const isl::set differences = others.apply_range(others.reverse()).deltas();
  const isl::val stride = isl::manage(isl_set_get_stride(differences.get(), dim));
  return isl_val_is_int(stride.get()) == isl_bool_true && isl_val_cmp_si(stride.get(), kMostStride) <= 0
             ? isl_val_get_num_si(stride.get())
             : 1;
}

std::optional<SparseDim> sparse_dim_of(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no reduction alone in its loops";
  if (!sum.reduction || !alone_in_group(nest, sum.name)) return std::nullopt;
  why = "it takes no dim's every second value, or every P-th";
  for (const int dim : reduced_dims(sum)) {
    const long stride = stride_of(nest, sum, dim);
    if (stride > 1) return SparseDim{dim, stride};
  }
  return std::nullopt;
}

/// { S[.., k, ..] -> S[.., floor(k / P), ..] }
isl::map counted(const Statement& sum, const SparseDim& found) {
  isl_space* space = isl_space_map_from_set(isl_set_get_space(sum.domain.get()));
  isl_multi_aff* same = isl_multi_aff_identity(space);
  isl_aff* value = isl_multi_aff_get_aff(same, found.dim);
  value = isl_aff_floor(isl_aff_scale_down_ui(value, static_cast<unsigned>(found.stride)));
  return isl::manage(isl_map_from_multi_aff(isl_multi_aff_set_aff(same, found.dim, value)));
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    const auto found = sparse_dim_of(nest, statement, why);
    if (!found) return std::string();
    return fmt::format("{} has every value of {} / {}", statement.name, statement.dims[static_cast<std::size_t>(found->dim)],
                       found->stride);
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const SparseDim found = required_match(nest, kName, target, sparse_dim_of);
  const Statement& before = nest.statement(target[0]);
  const isl::map to_new = counted(before, found).intersect_domain(domain_in(nest, before));
  const isl::pw_multi_aff old = isl::manage(isl_pw_multi_aff_from_map(isl_map_reverse(to_new.copy())));
  Statement after = before;
  isl_set* domain = isl_set_coalesce(isl_set_gist_params(to_new.range().release(), full_context(nest).release()));
  after.domain = isl::manage(with_dim_names(domain, before.dims));
  const auto moved = [&](const isl::map& relation) {
    isl_map* from_new = isl_map_preimage_domain_pw_multi_aff(relation.copy(), old.copy());
    return isl::manage(isl_map_coalesce(isl_map_gist_domain(from_new, domain_in(nest, after).release())));
  };
  for (Access& read : after.reads) read.relation = moved(read.relation);
  after.write.relation = moved(before.write.relation);
  for (isl::pw_aff& index : after.indices) {
    isl_pw_aff* from_new = isl_pw_aff_pullback_pw_multi_aff(index.copy(), old.copy());
    index = isl::manage(isl_pw_aff_coalesce(isl_pw_aff_gist(from_new, domain_in(nest, after).release())));
  }
  Nest result = nest;
  replace_statement(result, after);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& dense_terms_rule() {
  static const Rule rule{kName,
                         "every P-th value of a sum's dim is counted (argument: statement)",
                         "values and their numbers correspond one to one, in their order",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
