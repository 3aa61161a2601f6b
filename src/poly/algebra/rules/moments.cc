// Rule "moments": a mean and the sum of squares around it become one reduction.
//
// Pattern    m_i = sum_j u x_ij;  r_i = sum_j k (x_ij - w m_i)^2 with u w = 1 / N, N the number of points j; u, w, k do not depend on j.
//            (The division by N may stand in either place, or in an elementwise statement between the two.)
// Rewrite    such a statement is inlined; (m, r) is declared a composite: view(m) = m N / n after n points, correction
//            r + k w^2 n_old (m_old - m_new)^2.
// Conditions the points of m are all combinations of dense ranges, one a reduced dim (so that n is a product of counts); each r takes
//            every point of one m once and reads the same x; m starts from 0.
// Proof      Let mu be the mean of n points (= w view(m), as w u sum x = (n / N) mu). For any other mu':
//            sum (x - mu')^2 = sum (x - mu)^2 + n (mu - mu')^2, as sum (x - mu) = 0 (the parallel axis theorem). T. Chan, G. Golub,
//            R. LeVeque, "Algorithms for computing the sample variance", The American Statistician 37(3), 1983. In the words of
//            docs/algebra.md the correction acts on (n, m, r) and composes: two moves make the same r as one.
// Infinity   An infinite x makes the mean infinite or NaN, and its own square NaN; so are all later corrections, as in the definition.
// Rounding   Chan et al. show a relative error of r of O(n u) without the factor that a difference of raw moments has; each tile adds
//            a positive term, so nothing cancels.
#include "poly/algebra/rules/moments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "poly/algebra/analysis/dense_points.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"

namespace nestor {
namespace {

isl::map as_map(const isl::pw_aff& function) { return isl::manage(isl_map_from_pw_aff(function.copy())); }

/// A product split into what depends on the point (reads) and what does not (numbers, scalars, sizes).
struct SplitProduct {
  Monomial constant;
  Monomial point;
};

bool is_size_like(const ScalarExpr& expr) {
  bool reads = false;
  expr.visit([&](const ScalarExpr& node) { reads = reads || node.op() == ScalarOp::read; });
  return !reads;
}

SplitProduct split_product(const Monomial& monomial) {
  SplitProduct parts{Monomial{monomial.coefficient, {}}, Monomial{}};
  for (const auto& factor : monomial.factors) {
    (is_size_like(factor.first) ? parts.constant : parts.point).factors.push_back(factor);
  }
  return parts;
}

/// scale * base, where the scale does not depend on the point and is the same for all terms; nullopt when it is not.
struct ScaledPolynomial {
  Monomial scale;
  Polynomial base;
};

std::optional<ScaledPolynomial> take_scale(const Polynomial& polynomial) {
  if (polynomial.empty()) return std::nullopt;
  ScaledPolynomial result{split_product(polynomial[0]).constant, {}};
  for (const Monomial& term : polynomial) {
    const Monomial ratio = multiply(term, power(result.scale, -1));
    result.base.push_back(ratio);
  }
  return result;
}

class MomentsAnalysis {
 public:
  MomentsAnalysis(const Nest& nest, const Statement& lead) : nest_(nest), lead_(lead) {}

  std::optional<MomentsPlan> run(std::string* why) {
    std::string reason = prepare();
    if (reason.empty()) {
      for (const Statement& statement : nest_.statements) try_follower(statement);
      if (plan_->followers.empty()) reason = reason_.empty() ? "no sum of squares around its mean follows it" : reason_;
    }
    if (reason.empty()) return plan_;
    if (why != nullptr) *why = reason;
    return std::nullopt;
  }

 private:
  std::string prepare() {
    if (lead_.reduction != ReductionOp::add) return "it is no sum";
    if (!starts_from(nest_, lead_, 0)) return "it does not start from 0, or has several reductions";
    const auto scaled = take_scale(polynomial_of(build::as_f32(lead_.value)));
    if (!scaled) return "it sums nothing";
    if (!reads_anything(scaled->base)) return "its terms read nothing";
    if (reads_tensor(lead_, lead_.value, lead_.write.tensor)) return "its terms read its own result";
    std::vector<isl::pw_aff> counts = dense_counts(nest_, lead_);
    if (counts.empty()) return "it does not run over all combinations of dense ranges, so its points cannot be counted";
    plan_.emplace(MomentsPlan{lead_.name, lead_.write.tensor, scaled->scale, scaled->base, std::move(counts), {}});
    return "";
  }

  static bool reads_anything(const Polynomial& polynomial) {
    return std::any_of(polynomial.begin(), polynomial.end(),
                       [](const Monomial& m) { return !split_product(m).point.factors.empty(); });
  }

  void refuse(const Statement& statement, const std::string& reason) {
    if (reason_.empty()) reason_ = fmt::format("in {}, {}", statement.name, reason);
  }

  void try_follower(const Statement& statement) {
    if (statement.group <= lead_.group || statement.reduction != ReductionOp::add) return;
    if (!reads_tensor(statement, statement.value, lead_.write.tensor)) return;
    const Monomial product = product_of(build::as_f32(statement.value));
    Monomial rest{product.coefficient, {}};
    ScalarExpr difference;
    for (const auto& [expr, exponent] : product.factors) {
      if (reads_tensor(statement, expr, lead_.write.tensor)) {
        if (exponent != 2 || difference.defined())
          return refuse(statement, "the term is not the square of a difference to the mean");
        difference = expr;
      } else if (is_size_like(expr)) {
        rest.factors.emplace_back(expr, exponent);
      } else {
        return refuse(statement, "the squared difference is weighted by something that may differ from point to point");
      }
    }
    if (!difference.defined()) return refuse(statement, "the term is not the square of a difference to the mean");
    if (initialisers_of(nest_, statement).empty()) return refuse(statement, "its result has several reductions");
    check_difference(statement, difference, rest);
  }

  /// A difference w m - x split into its parts: x, w and the ordinal of the read of m.
  struct Difference {
    Polynomial x;
    Monomial weight;
    int lead_read;
  };

  std::optional<Difference> take_apart(const Statement& statement, const ScalarExpr& expr) const {
    Difference parts{{}, {}, -1};
    for (const Monomial& term : polynomial_of(expr)) {
      Monomial others{term.coefficient, {}};
      std::optional<int> read;
      for (const auto& [factor, exponent] : term.factors) {
        const auto plain = plain_read_of(statement, factor, lead_.write.tensor);
        if (plain && exponent == 1) {
          read = plain;
        } else {
          others.factors.emplace_back(factor, exponent);
        }
      }
      if (!read) {
        parts.x.push_back(term);
        continue;
      }
      if (parts.lead_read >= 0 || !split_product(others).point.factors.empty()) return std::nullopt;
      parts.weight = others;
      parts.lead_read = *read;
    }
    return parts.lead_read >= 0 ? std::optional(parts) : std::nullopt;
  }

  /// The term is rest * expr^2 with expr = alpha (x - share m).
  void check_difference(const Statement& statement, const ScalarExpr& expr, const Monomial& rest) {
    const auto parts = take_apart(statement, expr);
    if (!parts) return refuse(statement, "the term is not the square of a difference to the mean");
    const auto scaled = take_scale(parts->x);
    const auto instances = scaled ? matching_points(statement, scaled->base, parts->lead_read) : std::nullopt;
    if (!instances) return refuse(statement, "the square is not taken over the same points that the mean sums");
    const Monomial share = multiply(multiply(parts->weight, Monomial{-1, {}}), power(scaled->scale, -1));
    if (!is_mean(statement, share)) {
      return refuse(statement, "what is subtracted is not the mean: the sum is not divided by its number of points");
    }
    const Monomial factor = multiply(rest, multiply(scaled->scale, scaled->scale));
    const auto squares = over_scalars(statement, multiply(factor, multiply(share, share)));
    if (!squares) return refuse(statement, "a factor of the squares depends on sizes in a way that a correction cannot express");
    const ScalarExpr moved = build::sub(build::named("m_old"), build::named("m_new"));
    const ScalarExpr gained = build::mul(build::mul(build::mul(moved, moved), build::named("n_old")), *squares);
    const ScalarExpr none_yet = ScalarExpr::make(ScalarOp::le, {build::named("n_old"), build::number(0)});
    const ScalarExpr correction = build::select(none_yet, build::named("r"), build::add(build::named("r"), gained));
    plan_->followers.push_back({statement.name, factor, share, scaled->base, parts->lead_read, *instances, correction});
  }

  /// { Follower -> Lead } if every accumulator of the follower takes each point of one m exactly once, with the same x.
  std::optional<isl::map> matching_points(const Statement& statement, const Polynomial& x, int lead_read) const {
    InstanceMatch match(lead_, statement);
    if (!match.match(plan_->x, x)) return std::nullopt;
    match.require(lead_.write, statement.reads[lead_read]);
    const isl::set lead_domain = domain_in(nest_, lead_);
    const isl::set domain = domain_in(nest_, statement);
    isl::map to_lead = match.relation(lead_domain, domain).reverse();
    if (!domain.is_subset(to_lead.domain()) || !to_lead.is_single_valued()) return std::nullopt;
    const isl::map write = statement.write.relation.intersect_domain(domain);
    if (!write.range_product(to_lead).is_injective()) return std::nullopt;
    const isl::map points = write.reverse().apply_range(to_lead);
    const isl::map lead_write = lead_.write.relation.intersect_domain(lead_domain);
    const isl::map means = points.apply_range(lead_write);
    if (!means.is_single_valued() || !means.apply_range(lead_write.reverse()).is_subset(points)) return std::nullopt;
    return to_lead;
  }

  /// True when share * scale * N = 1, so that share * m is the mean of x. Sizes that stand on both sides cancel.
  bool is_mean(const Statement& statement, const Monomial& share) const {
    SizeProduct sizes = no_sizes();
    std::map<std::string, int> scalars;
    const auto take = [&](const Statement& owner, const Monomial& monomial) {
      for (const auto& [expr, exponent] : monomial.factors) {
        if (strip_casts(expr).op() == ScalarOp::scalar) {
          scalars[strip_casts(expr).name()] += exponent;
          continue;
        }
        const auto size = size_by_element(owner, expr);
        if (!size) return false;
        sizes.multiply(*size, exponent);
      }
      return true;
    };
    if (!take(statement, share) || !take(lead_, plan_->scale)) return false;
    if (std::any_of(scalars.begin(), scalars.end(), [](const auto& s) { return s.second != 0; })) return false;
    const auto times_count = sizes.over_counts(-1);
    return times_count && std::fabs(share.coefficient * plan_->scale.coefficient * *times_count - 1) < 1e-6;
  }

  /// A product of no sizes yet, by element of the lead.
  SizeProduct no_sizes() const { return {lead_.write.relation.intersect_domain(domain_in(nest_, lead_)).range(), plan_->counts}; }

  /// { element of the lead's tensor -> [integer] } if the expression is (a cast of) an integer that is a function of it.
  std::optional<isl::map> size_by_element(const Statement& owner, const ScalarExpr& expr) const {
    ScalarExpr bare = expr;
    while (bare.op() == ScalarOp::cast) bare = bare.args()[0];
    if (bare.op() != ScalarOp::index) return std::nullopt;
    const isl::map index = as_map(owner.indices.at(bare.ordinal()));
    const isl::map by_element = lead_element(owner).intersect_domain(domain_in(nest_, owner)).reverse().apply_range(index);
    return by_element.is_single_valued() ? std::optional(by_element) : std::nullopt;
  }

  /// d if the expression is (a cast of) the integer N + d at every instance, for points along one dim.
  std::optional<std::int64_t> offset_from_count(const Statement& owner, const ScalarExpr& expr) const {
    const auto size = size_by_element(owner, expr);
    if (!size || plan_->counts.size() != 1) return std::nullopt;
    return only_value(as_map(plan_->counts[0]).intersect_domain(size->domain()).reverse().apply_range(*size).deltas());
  }

  /// { Owner -> element of the lead's tensor } that the owner adds to or reads.
  isl::map lead_element(const Statement& owner) const {
    if (owner.name == lead_.name) return lead_.write.relation;
    for (const Access& read : owner.reads) {
      if (read.tensor == lead_.write.tensor) return read.relation;
    }
    internal_error("{} does not read {}", owner.name, lead_.write.tensor);
  }

  /// The factor over the names that a correction may use. Powers of all counts together are one of n_total.
  std::optional<ScalarExpr> over_scalars(const Statement& statement, const Monomial& monomial) const {
    Monomial result{monomial.coefficient, {}};
    const ScalarExpr total = build::named("n_total");
    SizeProduct sizes = no_sizes();
    for (const auto& [expr, exponent] : monomial.factors) {
      if (strip_casts(expr).op() == ScalarOp::scalar && strip_casts(expr).type() == ElementType::f32) {
        result.factors.emplace_back(strip_casts(expr), exponent);
      } else if (const auto offset = offset_from_count(statement, expr)) {
        result.factors.emplace_back(*offset == 0 ? total : build::add(total, build::number(static_cast<double>(*offset))),
                                    exponent);
      } else {
        const auto size = size_by_element(statement, expr);
        if (!size) return std::nullopt;
        sizes.multiply(*size, exponent);
      }
    }
    const int power = sizes.power_of_counts();
    const auto number = sizes.over_counts(power);
    if (!number) return std::nullopt;
    result.coefficient *= *number;
    if (power != 0) result.factors.emplace_back(total, power);
    return to_expr(result);
  }

  const Nest& nest_;
  const Statement& lead_;
  std::optional<MomentsPlan> plan_;
  std::string reason_;
};

std::vector<RuleMatch> find(const Nest& nest) {
  std::vector<RuleMatch> matches;
  for (const Statement& statement : nest.statements) {
    if (statement.reduction != ReductionOp::add) continue;
    const auto plan = analyse_moments(prepare_moments(nest, statement.name), statement.name);
    if (!plan) continue;
    std::vector<std::string> followers;
    for (const MomentsFollower& follower : plan->followers) followers.push_back(follower.statement);
    matches.push_back(
        {"moments",
         {statement.name},
         fmt::format("{} and {} accumulate together with {}", statement.name, fmt::join(followers, ", "), plan->lead_tensor)});
  }
  return matches;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string lead = statement_argument(nest, "moments", target, 1);
  Nest prepared = prepare_moments(nest, lead);
  std::string why;
  const auto plan = analyse_moments(prepared, lead, &why);
  if (!plan) refuse_rule("moments", lead, why);
  return {std::move(prepared), {moments_composite(*plan)}, false};
}

}  // namespace

std::optional<MomentsPlan> analyse_moments(const Nest& nest, const std::string& lead, std::string* why) {
  const Statement* statement = nest.find_statement(lead);
  if (statement == nullptr) {  // preparing drops what nobody reads
    if (why) *why = "nothing reads its result";
    return std::nullopt;
  }
  return MomentsAnalysis(nest, *statement).run(why);
}

Composite moments_composite(const MomentsPlan& plan) {
  Composite composite{"moments", plan.lead, plan.lead_tensor, {}, {}, {}};
  // The quotient first: m itself is no larger than the mean, where m times the total might overflow.
  composite.view = build::mul(build::named("m"), build::div(build::named("n_total"), build::named("n")));
  for (const MomentsFollower& follower : plan.followers) composite.followers.push_back({follower.statement, follower.correction});
  return composite;
}

Nest prepare_moments(const Nest& nest, const std::string& lead) {
  Nest result = nest;
  const std::string& tensor = nest.statement(lead).write.tensor;
  for (Statement& statement : result.statements) {
    if (statement.reduction != ReductionOp::add || reads_tensor(statement, statement.value, tensor)) continue;
    for (std::size_t k = 0; k < statement.reads.size(); ++k) {
      const Statement* between = sole_definition(nest, statement.reads[k].tensor);
      if (between == nullptr || between->reads.size() != 1 || between->reads[0].tensor != tensor) continue;
      if (!may_recompute(nest, *between, statement)) continue;
      inline_read(nest, statement, static_cast<int>(k));
      break;
    }
  }
  drop_unused(result);
  return result;
}

const Rule& moments_rule() {
  static const Rule rule{"moments",
                         "a mean and the sum of squares around it accumulate together",
                         "sum (x-mu')^2 = sum (x-mu)^2 + n (mu-mu')^2; Chan, Golub & LeVeque 1983",
                         "relative error O(n u) as in the two-pass form; no cancellation",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
