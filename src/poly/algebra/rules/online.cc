// Rule "online": sums of exponentials relative to an extremum become one reduction together with the extremum.
//
// Pattern    m_i = max_j a_ij;  p_ij = exp(c (a_ij - m_i)), c > 0, possibly times factors free of m;  r_ik = sum_j p_ij g_ijk.
//            (c may have factors that are scalars with a positive range; min with c < 0 alike; exp2 alike; p may stand inside the sum's term.)
// Rewrite    Nothing is computed differently: mediators p become private to the composite, and (m, r) is declared a
//            composite with the correction r * exp(c (m_old - m_new)).
// Conditions m is reduced over one dimension and has no other reduction; the exponent is a positive multiple of (the lead's own term at an
//            instance it has seen) - m; terms are homogeneous in p; a sum starts from 0; one accumulator depends on one m.
// Proof      Let phi(a, m) = exp(c (a - m)) and C(m, m') = exp(c (m - m')). Then phi(a, m') = C(m, m') phi(a, m), C(m, m) = 1 and
//            C(m', m'') C(m, m') = C(m, m''), which is what the composite theorem (docs/algebra.md) asks for. Homogeneous terms of
//            degree d have correction C^d. M. Milakov, N. Gimelshein, 2018, arXiv:1805.02867;
//            T. Dao et al., 2022, arXiv:2205.14135; fusion of such cascades in general: RedFuser, 2026.
// Infinity   a = -inf (a mask, an input, log 0) with a running m = -inf would give inf - inf. The correction is 1 where m does not move, and
//            unless terms are proved finite, mediators see max(m, the lowest number whose multiple is finite), for which
//            exp(-inf - m) = 0. A row of nothing
//            but -inf then has sums of 0, where the definition has NaN: statements for which 0 / 0 does not make up for that get NaN from
//            m - m. +inf and NaN make m +inf or NaN, and by correction and terms all sums NaN, as in the definition.
// Threshold  With a second argument t, m moves only where the extremum has grown so far that terms relative to m would exceed 2^t:
//            rarely after the first tiles, and where no row moves, the corrections are by 1 and may be left out. m is then a reference
//            within t doublings of the extremum, and all results must be the same for any reference (free_reference.h). Terms are at
//            most 2^t instead of 1. Source: conditional rescaling in FlashAttention-4 (T. Dao et al., 2025).
// Rounding   Each move of m multiplies r by a factor <= 1 with relative error about 2 ulp; over T tiles the relative error grows
//            by at most 2 T ulp (in practice by the few moves of m that really occur). No cancellation is added.
#include "poly/algebra/rules/online.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <charconv>
#include <numbers>

#include "poly/algebra/analysis/finite_lead.h"
#include "poly/algebra/analysis/free_reference.h"
#include "poly/algebra/analysis/infinite_rows.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"

namespace nestor {
namespace {

/// Of terms: their 16-bit form, if they get one, holds 2^14 times as much as 1.
constexpr int kMostDoublings = 14;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// The topmost exponentials (with their guards) of `expr` that read the lead's tensor.
void collect_phis(const Statement& statement, const ScalarExpr& expr, const std::string& lead_tensor,
                  std::vector<ScalarExpr>& phis) {
  const bool guard = expr.op() == ScalarOp::select && reads_tensor(statement, expr.args()[0], lead_tensor);
  const bool exponential = expr.op() == ScalarOp::exp || expr.op() == ScalarOp::exp2;
  if ((guard || exponential) && reads_tensor(statement, expr, lead_tensor)) {
    phis.push_back(expr);
    return;
  }
  for (const ScalarExpr& arg : expr.args()) collect_phis(statement, arg, lead_tensor, phis);
}

std::vector<bool> dims_used_by(const Statement& statement, const ScalarExpr& expr) {
  std::vector<bool> used(statement.dims.size(), false);
  const auto mark = [&](const isl::map& relation) {
    for (const isl::pw_aff& function : functions_of(relation)) {
      for (std::size_t k = 0; k < used.size(); ++k) {
        if (isl_pw_aff_involves_dims(function.get(), isl_dim_in, static_cast<unsigned>(k), 1) == isl_bool_true) used[k] = true;
      }
    }
  };
  expr.visit([&](const ScalarExpr& node) {
    const auto ordinal = static_cast<std::size_t>(node.ordinal());
    if (node.op() == ScalarOp::read) mark(statement.reads.at(ordinal).relation);
    if (node.op() == ScalarOp::index) mark(isl::manage(isl_map_from_pw_aff(statement.indices.at(ordinal).copy())));
  });
  return used;
}

/// Moves an exponential of a follower into a statement of its own over the dims that it uses.
class Outliner {
 public:
  Outliner(Nest& nest, const std::string& follower) : nest_(nest), follower_(nest.statement(follower)) {}

  void outline(const ScalarExpr& phi) {
    const std::vector<bool> used = dims_used_by(follower_, phi);
    if (std::all_of(used.begin(), used.end(), [](bool u) { return u; })) return;
    const std::string name = fresh_name(nest_, follower_.name + "_term");
    const Statement term = term_statement(name, phi, used);
    Tensor tensor{name, phi.type(), TensorRole::temporary, {}};
    for (std::size_t k = 0; k < term.dims.size(); ++k) tensor.shape.push_back(extent_of(nest_, term.domain, static_cast<int>(k)));
    nest_.tensors.push_back(tensor);
    const isl::map read = to_term_.apply_range(term.write.relation);
    const ScalarExpr value = ScalarExpr::read(add_read(follower_, {name, read}), phi.type());
    follower_.value = follower_.value.rewrite([&](const ScalarExpr& node) { return node.equals(phi) ? value : node; });
    compact(follower_);
    insert_statement(nest_, group_begin(nest_, follower_.name), term);
    replace_keeping_group();
  }

 private:
  Statement term_statement(const std::string& name, const ScalarExpr& phi, const std::vector<bool>& used) {
    isl::set domain = follower_.domain;
    std::vector<isl::pw_aff> functions;
    std::vector<std::string> dims;
    for (std::size_t k = 0; k < used.size(); ++k) {
      if (!used[k]) continue;
      functions.push_back(dim_function(follower_.domain, static_cast<int>(k)));
      dims.push_back(follower_.dims[k]);
    }
    to_term_ = relation_of(follower_.domain, name, functions).intersect_domain(follower_.domain);
    Statement term{name, dims, to_term_.range().coalesce(), {name, isl::map()}, {}, {}, {}, std::nullopt, 0};
    term.domain = isl::manage(with_dim_names(term.domain.release(), dims));
    std::vector<isl::pw_aff> identity;
    identity.reserve(dims.size());
    for (std::size_t k = 0; k < dims.size(); ++k) identity.push_back(dim_function(term.domain, static_cast<int>(k)));
    term.write.relation = relation_of(term.domain, name, identity);
    term.value = phi.rewrite([&](const ScalarExpr& node) {
      const auto ordinal = static_cast<std::size_t>(node.ordinal());
      if (node.op() == ScalarOp::read) {
        const Access& read = follower_.reads.at(ordinal);
        return ScalarExpr::read(add_read(term, {read.tensor, to_term_.reverse().apply_range(read.relation)}), node.type());
      }
      if (node.op() == ScalarOp::index) {
        const isl::map index = isl::manage(isl_map_from_pw_aff(follower_.indices.at(ordinal).copy()));
        return ScalarExpr::index(add_index(term, functions_of(to_term_.reverse().apply_range(index)).at(0)));
      }
      return node;
    });
    return term;
  }

  void replace_keeping_group() {
    Statement updated = follower_;
    updated.group = nest_.statement(follower_.name).group;
    replace_statement(nest_, updated);
    follower_ = updated;
  }

  Nest& nest_;
  Statement follower_;
  isl::map to_term_;
};

Nest outline_terms(const Nest& nest, const OnlinePlan& plan) {
  Nest result = nest;
  for (const std::string& follower : plan.followers) {
    std::vector<ScalarExpr> phis;
    const Statement statement = result.statement(follower);
    collect_phis(statement, statement.value, plan.lead_tensor, phis);
    Outliner outliner(result, follower);
    if (phis.size() == 1) outliner.outline(phis[0]);
  }
  return result;
}

bool seen_outside(const Nest& nest, const OnlinePlan& plan, const std::string& mediator) {
  const std::string& tensor = nest.statement(mediator).write.tensor;
  if (nest.tensor(tensor).role != TensorRole::temporary) return true;
  for (const Statement* reader : readers_of(nest, tensor)) {
    if (!contains(plan.mediators, reader->name) && !contains(plan.followers, reader->name)) return true;
  }
  return false;
}

/// The composite's own copies of the mediators that others read too: others must see terms of the final m.
Nest copy_shared_mediators(const Nest& nest, const OnlinePlan& plan) {
  Nest result = nest;
  std::map<std::string, std::string> copies;
  const auto redirect = [&](Statement& statement) {
    for (Access& read : statement.reads) {
      const auto copy = copies.find(read.tensor);
      if (copy == copies.end()) continue;
      read = {copy->second, read.relation.set_range_tuple(copy->second)};
    }
  };
  for (const std::string& mediator : plan.mediators) {
    if (!seen_outside(nest, plan, mediator)) continue;
    const std::string tensor = nest.statement(mediator).write.tensor;
    const std::string name = fresh_name(result, mediator + "_running");
    Statement copy = renamed(result.statement(mediator), name);
    redirect(copy);
    copies[tensor] = name;
    copy.write = {name, copy.write.relation.set_range_tuple(name)};
    Tensor storage = nest.tensor(tensor);
    storage.name = name;
    storage.role = TensorRole::temporary;
    result.tensors.push_back(storage);
    insert_statement(result, group_begin(result, mediator), copy);
  }
  for (Statement& statement : result.statements) {
    const bool inside = contains(plan.mediators, statement.name) || contains(plan.followers, statement.name);
    const bool copied = contains(plan.mediators, statement.name) && seen_outside(nest, plan, statement.name);
    if (inside && !copied) redirect(statement);
  }
  return result;
}

/// Copies of mediators and statements of their own do not change who reads the sums.
bool can_mark_rows(const Nest& nest, const OnlinePlan& plan) {
  return !plan.masked || with_marked_rows(nest, plan, nullptr).has_value();
}

/// The nest with definitions that are m, or m kept finite, computed where they are read: exponents may subtract one of these.
/// Nothing where it has none.
std::optional<Nest> with_lead_inside(const Nest& nest, const std::string& lead) {
  const Statement& extremum = nest.statement(lead);
  if (!extremum.reduction) return std::nullopt;
  const auto is_lead = [&](const Statement& definition, const Nest& within) {
    if (definition.reduction || within.tensor(definition.write.tensor).role != TensorRole::temporary ||
        within.tensor(definition.write.tensor).type != ElementType::f32 ||
        sole_definition(within, definition.write.tensor) != &definition)
      return false;
    const auto inside = inside_finite_lead(*extremum.reduction, definition.value);
    return plain_read_of(definition, inside.value_or(definition.value), extremum.write.tensor).has_value();
  };
  Nest result = nest;
  bool inlined = false;
  for (bool again = true; again;) {
    again = false;
    const Nest before = result;
    for (const Statement& definition : before.statements) {
      if (!is_lead(definition, before)) continue;
      for (Statement& reader : result.statements) {
        for (std::size_t k = 0; k < reader.reads.size(); ++k) {
          if (reader.reads[k].tensor != definition.write.tensor || !may_recompute(before, definition, reader)) continue;
          inline_read(before, reader, static_cast<int>(k));
          again = true;
          k = static_cast<std::size_t>(-1);  // reads have other places now
        }
      }
      if (again) break;
    }
    if (again) drop_unused(result);
    inlined = inlined || again;
  }
  return inlined ? std::optional(std::move(result)) : std::nullopt;
}

/// The nest, or with_lead_inside, whichever has exponentials of the lead, and its plan; the nest itself without one where none has.
struct PreparedNest {
  Nest nest;
  std::optional<OnlinePlan> plan;
};

PreparedNest prepared_for(const Nest& nest, const std::string& lead, std::string* why = nullptr) {
  if (auto plan = analyse_online(nest, lead, why)) return {nest, std::move(plan)};
  auto inside = with_lead_inside(nest, lead);
  if (inside && inside->find_statement(lead) != nullptr) {
    if (auto plan = analyse_online(*inside, lead)) return {std::move(*inside), std::move(plan)};
  }
  return {nest, std::nullopt};
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::vector<RuleMatch> matches;
  for (const Statement& statement : nest.statements) {
    if (statement.reduction != ReductionOp::max && statement.reduction != ReductionOp::min) continue;
    const auto [prepared, plan] = prepared_for(nest, statement.name);
    if (!plan || !can_mark_rows(prepared, *plan)) continue;
    matches.push_back({"online",
                       {statement.name},
                       fmt::format("{} and {} accumulate together with {}", statement.name, fmt::join(plan->followers, ", "),
                                   plan->lead_tensor)});
  }
  return matches;
}

/// The second argument, doublings by which terms may exceed 1.
double threshold_argument(const std::vector<std::string>& target) {
  double threshold = 0;
  const std::string& text = target[1];
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threshold);
  if (error != std::errc() || end != text.data() + text.size() || !(threshold >= 1 && threshold <= kMostDoublings)) {
    refuse_rule("online", target[0],
                fmt::format("its second argument is how many times terms may double, 1 to {}, not {}", kMostDoublings, text));
  }
  return threshold;
}

RuleResult apply(const Nest& given, const std::vector<std::string>& target) {
  const std::string lead = statement_argument(given, "online", target, target.size() == 2 ? 2 : 1);
  const double threshold = target.size() == 2 ? threshold_argument(target) : 0;
  std::string why;
  const PreparedNest prepared = prepared_for(given, lead, &why);
  if (!prepared.plan) refuse_rule("online", lead, why);
  Nest result = prepare_online(prepared.nest, lead);
  const auto plan = analyse_online(result, lead, &why);
  if (!plan) internal_error("rule online lost {} while preparing it: {}", lead, why);
  if (threshold > 0) {
    why = objection_to_threshold(result, *plan);
    if (!why.empty()) refuse_rule("online", lead, why);
  }
  Composite composite = online_composite(result, *plan, threshold);
  return {std::move(result), {std::move(composite)}, false};
}

}  // namespace

Nest prepare_online(const Nest& nest, const std::string& lead) {
  Nest result = outline_terms(nest, *analyse_online(nest, lead));
  if (const auto plan = analyse_online(result, lead)) result = copy_shared_mediators(result, *plan);
  const auto plan = analyse_online(result, lead);
  if (!plan || !plan->masked) return result;
  std::string why;
  const auto marked = with_marked_rows(result, *plan, &why);
  if (!marked) refuse_rule("online", lead, why);
  return *marked;
}

ScalarExpr online_correction(const Monomial& degree, ScalarOp base, const ScalarExpr& r, const ScalarExpr& m_old,
                             const ScalarExpr& m_new) {
  return build::mul(r, build::select(build::equal(m_old, m_new), build::number(1), online_factor(degree, base, m_old, m_new)));
}

ScalarExpr final_factor(const OnlinePlan& plan, const std::string& follower, const ScalarExpr& m_old, const ScalarExpr& m_new) {
  const Monomial& degree = plan.degree.at(follower);
  const auto lead = std::find_if(plan.lead_factors.begin(), plan.lead_factors.end(), is_multiplied);
  if (lead == plan.lead_factors.end()) return online_factor(degree, plan.base.at(follower), m_old, m_new);
  // The multiples that the terms subtract, so that none overflows that theirs do not; what multiplies their difference comes after.
  const Monomial rest{degree.coefficient / lead->coefficient, {}};
  const bool apart = same_product(multiply(*lead, rest), degree);
  const Monomial& inner = apart ? *lead : degree;
  const auto multiple = [&](const ScalarExpr& m) { return build::mul(m, to_expr(inner)); };
  const ScalarExpr moved = build::sub(multiple(m_old), multiple(m_new));
  return build::unary(plan.base.at(follower), apart && rest.coefficient != 1 ? build::mul(moved, to_expr(rest)) : moved);
}

ScalarExpr online_factor(const Monomial& degree, ScalarOp base, const ScalarExpr& m_old, const ScalarExpr& m_new) {
  ScalarExpr moved = build::sub(m_old, m_new);
  if (degree.coefficient != 1 || !degree.factors.empty()) moved = build::mul(moved, to_expr(degree));
  return build::unary(base, moved);
}

std::string objection_to_threshold(const Nest& nest, const OnlinePlan& plan) {
  if (!common_rate(plan)) return "its terms fall at different rates";
  return objection_to_free_reference(nest, plan);
}

bool may_stay_behind(const Nest& nest, const std::string& lead) {
  const auto plan = analyse_online(nest, lead);
  return plan && objection_to_threshold(nest, *plan).empty();
}

Composite online_composite(const Nest& nest, const OnlinePlan& plan, double threshold) {
  Composite composite{"online", plan.lead, plan.lead_tensor, plan.mediators, {}, build::named("m")};
  if (threshold > 0) {
    // Where the difference is no number, m_new is as good, or m_new is NaN and has to be seen.
    const ScalarExpr grown = build::sub(build::named("m_new"), build::named("m_old"));
    const ScalarExpr doublings = build::mul(grown, to_expr(multiply({std::numbers::log2e, {}}, *common_rate(plan))));
    const ScalarExpr stays = ScalarExpr::make(ScalarOp::le, {doublings, build::number(threshold)});
    composite.threshold = threshold;
    composite.held = build::select(stays, build::named("m_old"), build::named("m_new"));
  }
  if (plan.masked) {
    composite.view = finite_lead(plan, *nest.statement(plan.lead).reduction, build::named("m"));
    composite.reference = build::named("m");
  }
  for (const std::string& follower : plan.followers) {
    composite.followers.push_back({follower, online_correction(plan.degree.at(follower), plan.base.at(follower),
                                                               build::named("r"), build::named("m_old"), build::named("m_new"))});
  }
  return composite;
}

const Rule& online_rule() {
  static const Rule rule{"online",
                         "sums of exponentials relative to a maximum accumulate together with the maximum",
                         "exp(c(a-m')) = exp(c(m-m')) exp(c(a-m)): (m, r) is a composite monoid; Milakov & Gimelshein 2018, Dao "
                         "et al. 2022, RedFuser 2026; with a threshold m is another reference, which no result depends on",
                         "a relative error of about 2 ulp for each move of the maximum",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
