// Parts of a temporary by their writers.
#include "poly/algebra/operands/zero_parts.h"

#include <isl/map.h>
#include <isl/set.h>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

/// What writes the constant and what else is written, if that is all.
struct Writers {
  const Statement* other = nullptr;
  isl::set constant;
};

std::optional<Writers> writers_of_parts(const Nest& nest, const Statement& reduction, const std::string& tensor, double neutral,
                                        const std::function<bool(const Statement&)>& takes) {
  Writers found{nullptr, isl::set::empty(tensor_box(nest.tensor(tensor)).space())};
  for (const Statement* writer : writers_of(nest, tensor)) {
    if (found.other != nullptr || writer->reduction || writer->group >= reduction.group || !alone_in_group(nest, writer->name))
      return std::nullopt;
    const isl::map written = writer->write.relation.intersect_domain(domain_in(nest, *writer));
    const ScalarExpr bare = strip_exact_casts(writer->value);
    if (bare.op() == ScalarOp::constant && bare.number() == neutral) {
      found.constant = found.constant.unite(written.range());
    } else if (takes(*writer) && written.is_injective() && may_recompute(nest, *writer, reduction)) {
      found.other = writer;
    } else {
      return std::nullopt;
    }
  }
  return found.other == nullptr ? std::nullopt : std::optional(found);
}

}  // namespace

std::optional<Statement> without_constant_terms(const Nest& nest, const Statement& reduction, std::size_t ordinal, double neutral,
                                                const std::function<bool(const Statement&)>& takes, std::string& why) {
  const std::string& tensor = reduction.reads[ordinal].tensor;
  const auto writers = writers_of_parts(nest, reduction, tensor, neutral, takes);
  if (!writers) return std::nullopt;
  const isl::set domain = domain_in(nest, reduction);
  const isl::map access = reduction.reads[ordinal].relation.intersect_domain(domain),
                 written = writers->other->write.relation.intersect_domain(domain_in(nest, *writers->other));
  const isl::map to_other = access.apply_range(written.reverse()).coalesce();
  const isl::set kept = to_other.domain().coalesce();
  why = "it has no zeros for any term";
  if (domain.is_subset(kept)) return std::nullopt;
  why = "its temporary has other elements than zeros where it is no copy";
  if (!domain.subtract(kept).apply(access).is_subset(writers->constant)) return std::nullopt;
  why = "what is left of its terms is in several pieces";
  if (isl_set_n_basic_set(kept.get()) != 1) return std::nullopt;
  Statement result = reduction;
  result.domain = isl::manage(isl_set_gist_params(kept.copy(), full_context(nest).release()));
  const ScalarExpr element = import_value(result, *writers->other, to_other, strip_exact_casts(writers->other->value));
  result.value = result.value.rewrite([&](const ScalarExpr& node) {
    const bool is_element = node.op() == ScalarOp::read && node.ordinal() == static_cast<int>(ordinal);
    return !is_element ? node : node.type() == element.type() ? element : ScalarExpr::cast(node.type(), element);
  });
  compact(result);
  why = "";
  return result;
}

std::vector<std::string> finite_beside_zeros(const Nest& nest, FindSkipping find) {
  std::vector<std::string> tensors;
  std::string why;
  for (const Statement& statement : nest.statements) {
    if (const auto skipping = find(nest, statement, why))
      tensors.insert(tensors.end(), skipping->others.begin(), skipping->others.end());
  }
  return tensors;
}

RuleResult skip_terms(const Nest& nest, const std::string& rule, const std::vector<std::string>& target, FindSkipping find) {
  const std::string name = statement_argument(nest, rule, target, 1);
  std::string why;
  const auto skipping = find(nest, nest.statement(name), why);
  if (!skipping) refuse_rule(rule, name, why);
  Nest result = nest;
  replace_statement(result, skipping->reduction);
  drop_unused(result);
  return {std::move(result), {}, false};
}

}  // namespace nestor
