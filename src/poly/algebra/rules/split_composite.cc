// Splitting whole composites into parts: every part has its own leading value; parts are combined by the correction.
#include "poly/algebra/rules/split_composite.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>

#include <algorithm>

#include "poly/algebra/analysis/dense_points.h"
#include "poly/algebra/analysis/finite_lead.h"
#include "poly/algebra/analysis/infinite_rows.h"
#include "poly/algebra/rules/moments.h"
#include "poly/algebra/rules/online.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"

namespace nestor {
namespace {

isl::map as_map(const isl::pw_aff& function) { return isl::manage(isl_map_from_pw_aff(function.copy())); }

/// What both kinds of composites share while they are split.
class CompositeSplitter {
 public:
  CompositeSplitter(const Nest& nest, const std::string& lead, int dim, const Parts& parts)
      : nest_(nest), lead_(nest.statement(lead)), parts_(parts) {
    lead_parts_ = parts_of_dim(lead_, dim, parts.size);
  }

 protected:
  /// { Statement -> [part] } through the lead's instances that its terms belong to.
  isl::map part_of(const std::string& statement, const isl::map& lead_instances) const {
    const isl::map parts =
        lead_instances.intersect_domain(domain_in(nest_, nest_.statement(statement))).apply_range(lead_parts_).coalesce();
    if (!parts.is_single_valued())
      refuse_rule("split_reduction", lead_.name, fmt::format("a term of {} belongs to several parts", statement));
    return parts;
  }

  void check_alone(const Statement& statement) const {
    if (alone_in_group(nest_, statement.name)) return;
    refuse_rule("split_reduction", lead_.name,
                fmt::format("{} shares its loops with other statements of its definition", statement.name));
  }

  /// An access to one part of the lead's partial results.
  Access part_access(const Statement& statement, const isl::map& element, const isl::map& part) const {
    const isl::map joined =
        isl::manage(isl_map_flatten_range(part.range_product(element).intersect_domain(statement.domain).release()));
    std::vector<isl::pw_aff> index;
    for (const isl::pw_aff& function : functions_of(joined)) index.push_back(function.gist(statement.domain).coalesce());
    return {lead_split_.tensor.name, relation_of(statement.domain, lead_split_.tensor.name, index)};
  }

  void split_lead() {
    lead_split_ = split_into_parts(nest_, lead_, lead_parts_, parts_);
    lead_combine_ = combine_parts(nest_, lead_, lead_split_, parts_);
  }

  /// { Combine[element, part] -> element }: the follower's element.
  static isl::map element_of(const Statement& combine) { return combine.write.relation; }
  isl::map part_of_combine(const Statement& combine) const {
    return as_map(dim_function(combine.domain, static_cast<int>(combine.dims.size()) - 1));
  }

  const Nest& nest_;
  const Statement lead_;
  const Parts parts_;
  isl::map lead_parts_;
  PartReduction lead_split_;
  Statement lead_combine_;
};

class OnlineSplitter : CompositeSplitter {
 public:
  using CompositeSplitter::CompositeSplitter;

  RuleResult run() {
    plan_ = *analyse_online(nest_, lead_.name);
    Nest result = nest_;
    split_lead();
    replace_by_parts(result, lead_, lead_split_, lead_combine_);
    for (const std::string& mediator : plan_.mediators) {
      Statement statement = result.statement(mediator);
      read_part_of_lead(statement, part_of(mediator, plan_.lead_instances.at(mediator)));
      replace_statement(result, statement);
    }
    for (const std::string& follower : plan_.followers) split_follower(result, follower);
    RuleResult rewritten{std::move(result), {}, true};
    for (const std::string& lead : {lead_split_.update.name, lead_combine_.name}) {
      const auto plan = analyse_online(rewritten.nest, lead);
      if (plan && !(plan->masked && infinite_rows_show(rewritten.nest, *plan, true, nullptr)))
        rewritten.composites.push_back(online_composite(rewritten.nest, *plan));
    }
    return rewritten;
  }

 private:
  /// Lets a statement with `part` { Statement -> [part] } see the leading value of its part instead of the whole one.
  void read_part_of_lead(Statement& statement, const isl::map& part) const {
    const isl::map parts = part.gist_domain(statement.domain).coalesce();
    std::vector<int> changed;
    for (std::size_t k = 0; k < statement.reads.size(); ++k) {
      if (statement.reads[k].tensor != plan_.lead_tensor) continue;
      statement.reads[k] = part_access(statement, statement.reads[k].relation, parts);
      changed.push_back(static_cast<int>(k));
    }
    const ElementType stored = lead_split_.tensor.type;
    const ElementType before = nest_.tensor(plan_.lead_tensor).type;
    statement.value = statement.value.rewrite([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::read || std::find(changed.begin(), changed.end(), node.ordinal()) == changed.end()) return node;
      ScalarExpr value = ScalarExpr::read(node.ordinal(), stored);
      if (plan_.infinite_terms) value = finite_lead(plan_, *lead_.reduction, value);
      return before == stored ? value : ScalarExpr::cast(before, value);
    });
  }

  void split_follower(Nest& result, const std::string& name) {
    const Statement follower = result.statement(name);
    check_alone(follower);
    PartReduction split = split_into_parts(result, follower, part_of(name, plan_.lead_instances.at(name)), parts_);
    Statement combine = combine_parts(result, follower, split, parts_);
    read_part_of_lead(split.update, split.part_of);
    const isl::map lead_element =
        element_of(combine).apply_range(plan_.lead_elements.at(name)).gist_domain(combine.domain).coalesce();
    const int old_lead = add_read(combine, part_access(combine, lead_element, part_of_combine(combine)));
    const int new_lead = add_read(combine, {plan_.lead_tensor, lead_element});
    const ScalarExpr m_old = ScalarExpr::read(old_lead, lead_split_.tensor.type);
    const ScalarExpr m_new = build::as_f32(ScalarExpr::read(new_lead, nest_.tensor(plan_.lead_tensor).type));
    const ScalarExpr r = ScalarExpr::read(0, split.tensor.type);
    // m is final here: the sum of a row of nothing but infinite terms is NaN again.
    combine.value = plan_.masked ? build::mul(r, final_factor(plan_, name, m_old, m_new))
                                 : online_correction(plan_.degree.at(name), plan_.base.at(name), r, m_old, m_new);
    replace_by_parts(result, follower, split, combine);
  }

  OnlinePlan plan_;
};

class MomentsSplitter : CompositeSplitter {
 public:
  using CompositeSplitter::CompositeSplitter;

  RuleResult run() {
    plan_ = analyse_moments(nest_, lead_.name);
    check_unexpanded(lead_);
    for (const MomentsFollower& follower : plan_->followers) check_unexpanded(nest_.statement(follower.statement));
    Nest result = nest_;
    split_lead();
    // Parts sum x itself; the scale is applied once a part.
    lead_split_.update.value = import_value(lead_split_.update, lead_, lead_split_.to_old, sum_of(plan_->x));
    compact(lead_split_.update);
    counts_ = dense_counts(with_part_tensor(), lead_split_.update);
    if (counts_.empty()) refuse_rule("split_reduction", lead_.name, "the points of a part cannot be counted");
    lead_combine_.value = times(plan_->scale, ScalarExpr::read(0, ElementType::f32), lead_combine_, lead_split_, lead_);
    replace_by_parts(result, lead_, lead_split_, lead_combine_);
    for (const MomentsFollower& follower : plan_->followers) split_follower(result, follower);
    RuleResult rewritten{std::move(result), {}, true};
    if (const auto plan = analyse_moments(rewritten.nest, lead_split_.update.name))
      rewritten.composites.push_back(moments_composite(*plan));
    return rewritten;
  }

 private:
  /// x is computed anew from its polynomial: (a + b) c may not become a c + b c for a c that may be infinite.
  void check_unexpanded(const Statement& statement) const {
    statement.value.visit([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::mul) return;
      const ScalarExpr &a = node.args()[0], &b = node.args()[1];
      const bool square = a.equals(b);
      const bool sums = polynomial_of(a).size() > 1 || polynomial_of(b).size() > 1;
      if (square || !sums || !has_read(a) || !has_read(b)) return;
      refuse_rule("split_reduction", lead_.name,
                  fmt::format("in {}, a sum is multiplied by what may be infinite", statement.name));
    });
  }
  static bool has_read(const ScalarExpr& expr) {
    bool found = false;
    expr.visit([&](const ScalarExpr& node) { found = found || node.op() == ScalarOp::read; });
    return found;
  }

  static ScalarExpr sum_of(const Polynomial& polynomial) {
    ScalarExpr sum = to_expr(polynomial.at(0));
    for (std::size_t k = 1; k < polynomial.size(); ++k) sum = build::add(sum, to_expr(polynomial[k]));
    return sum;
  }

  Nest with_part_tensor() const {
    Nest nest = nest_;
    nest.tensors.push_back(lead_split_.tensor);
    return nest;
  }

  /// factor * value in the statement that combines the parts of `old`; the factor is over sizes and scalars of `old`.
  ScalarExpr times(const Monomial& factor, const ScalarExpr& value, Statement& combine, const PartReduction& split,
                   const Statement& old) const {
    const isl::map points =
        combine.reads[0].relation.apply_range(split.update.write.relation.reverse()).apply_range(split.to_old);
    Monomial product{factor.coefficient, {{value, 1}}};
    for (const auto& [expr, exponent] : factor.factors) {
      const ScalarExpr imported = expr.rewrite([&](const ScalarExpr& node) {
        if (node.op() != ScalarOp::index) return node;
        const isl::map index = points.apply_range(as_map(old.indices.at(node.ordinal())));
        if (!index.is_single_valued())
          refuse_rule("split_reduction", lead_.name, "a factor differs between points of one element");
        return ScalarExpr::index(add_index(combine, functions_of(index).at(0).gist(combine.domain).coalesce()));
      });
      product.factors.emplace_back(imported, exponent);
    }
    return to_expr(product);
  }

  /// The number of points of the part that `part` { Statement -> partial lead } reads, as f32.
  ScalarExpr part_count(Statement& statement, const Access& part) const {
    ScalarExpr points;
    for (const isl::pw_aff& each : counts_) {
      const isl::map count = part.relation.intersect_domain(statement.domain).apply_range(as_map(each));
      const isl::pw_aff index = functions_of(count).at(0).gist(statement.domain).coalesce();
      const ScalarExpr values = build::as_f32(ScalarExpr::index(add_index(statement, index)));
      points = points.defined() ? build::mul(points, values) : values;
    }
    return points;
  }

  void split_follower(Nest& result, const MomentsFollower& plan) {
    const Statement follower = result.statement(plan.statement);
    check_alone(follower);
    PartReduction split = split_into_parts(result, follower, part_of(plan.statement, plan.lead_instances), parts_);
    Statement combine = combine_parts(result, follower, split, parts_);
    const isl::map old_lead = follower.reads[plan.lead_read].relation;

    Statement& update = split.update;
    const Access own_part =
        part_access(update, split.to_old.apply_range(old_lead).gist_domain(update.domain).coalesce(), split.part_of);
    const ScalarExpr x = import_value(update, follower, split.to_old, sum_of(plan.x));
    const ScalarExpr own_mean =
        build::div(ScalarExpr::read(add_read(update, own_part), ElementType::f32), part_count(update, own_part));
    const ScalarExpr centred = build::sub(x, own_mean);
    update.value = build::mul(centred, centred);
    compact(update);

    const isl::map to_follower = combine.reads[0].relation.apply_range(update.write.relation.reverse()).apply_range(split.to_old);
    const isl::map element = to_follower.apply_range(old_lead).gist_domain(combine.domain).coalesce();
    const Access part = part_access(combine, element, part_of_combine(combine));
    const ScalarExpr count = part_count(combine, part);
    const ScalarExpr part_mean = build::div(ScalarExpr::read(add_read(combine, part), ElementType::f32), count);
    const ScalarExpr m =
        build::as_f32(ScalarExpr::read(add_read(combine, {plan_->lead_tensor, element}), nest_.tensor(plan_->lead_tensor).type));
    const ScalarExpr mean = times(plan.share, m, combine, split, follower);
    const ScalarExpr moved = build::sub(part_mean, mean);
    const ScalarExpr squares = build::add(ScalarExpr::read(0, ElementType::f32), build::mul(build::mul(moved, moved), count));
    combine.value = times(plan.factor, squares, combine, split, follower);
    replace_by_parts(result, follower, split, combine);
  }

  std::optional<MomentsPlan> plan_;
  std::vector<isl::pw_aff> counts_;  ///< { partial lead -> [values] } of each reduced dim
};

}  // namespace

RuleResult split_online(const Nest& nest, const std::string& lead, int dim, const Parts& parts) {
  return OnlineSplitter(prepare_online(nest, lead), lead, dim, parts).run();
}

RuleResult split_moments(const Nest& nest, const std::string& lead, int dim, const Parts& parts) {
  return MomentsSplitter(nest, lead, dim, parts).run();
}

}  // namespace nestor
