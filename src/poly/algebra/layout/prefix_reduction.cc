// Rule "prefix_reduction": a recurrence that only adds up is a reduction of all points before.
//
// Pattern    s_et = s_e,t-1 + f_et (or a difference, a product, an extremum; or s_e,t+1 in place of s_e,t-1), behind definitions of s that give
//            each e a first element. f may read the definitions' own s_et: a sum in place.
// Rewrite    a_et starts from the neutral element and takes f_ek for all k <= t; s_et = a_et where the first element is what f is there, else
//            s_et is the first one and a_et. What the definitions have written is a temporary.
// Conditions f32 or i32; the recurrence is alone in its loops, writes each element once, the last of all that write s, and runs along t; each e
//            has one first element, and all behind it are the recurrence's.
// Proof      induction along t; addition, multiplication, maximum and minimum are associative and commutative, and i32 wraps around.
// Rounding   as reassociate.
#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/space.h>

#include <algorithm>
#include <optional>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/isl/whole_function.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "prefix_reduction";

struct Plan {
  const Statement* step = nullptr;
  ReductionOp op = ReductionOp::add;
  ScalarExpr term;         ///< f, as the step has it
  int along = 0;           ///< the index of s that is t
  bool backward = false;   ///< s_e,t+1
  isl::set first, behind;  ///< elements of s: those that definitions give, those of the recurrence
};

std::optional<ReductionOp> operator_of(ScalarOp op) {
  if (op == ScalarOp::add || op == ScalarOp::sub) return ReductionOp::add;
  if (op == ScalarOp::mul) return ReductionOp::mul;
  if (op == ScalarOp::max) return ReductionOp::max;
  if (op == ScalarOp::min) return ReductionOp::min;
  return std::nullopt;
}

/// { Element of s -> what the step does with it }.
isl::map from_element(const Nest& nest, const Statement& step, const isl::map& relation) {
  return step.write.relation.intersect_domain(domain_in(nest, step)).reverse().apply_range(relation);
}

/// { s[e, t] -> s[e, t + by] }, of all elements of that space.
isl::map shifted(const isl::map& like, int along, int by) {
  isl_map* map = isl_map_universe(isl_map_get_space(like.get()));
  const int count = static_cast<int>(isl_map_dim(map, isl_dim_in));
  for (int k = 0; k < count; ++k) {
    if (k != along) map = isl_map_equate(map, isl_dim_in, k, isl_dim_out, k);
  }
  isl_constraint* equal = isl_constraint_alloc_equality(isl_local_space_from_space(isl_map_get_space(map)));
  equal = isl_constraint_set_coefficient_si(equal, isl_dim_in, along, 1);
  equal = isl_constraint_set_coefficient_si(equal, isl_dim_out, along, -1);
  equal = isl_constraint_set_constant_si(equal, by);
  return isl::manage(isl_map_add_constraint(map, equal));
}

/// Takes the operand that is the element before out of a chain of one operator; what is left is f. Sets `before` to its read.
std::optional<ScalarExpr> without_state(const Statement& step, const ScalarExpr& value, const std::vector<int>& states,
                                        std::optional<int>& before) {
  if (operator_of(value.op()) != operator_of(step.value.op())) return std::nullopt;
  for (const int side : {0, 1}) {
    const ScalarExpr &arg = value.args()[side], &other = value.args()[1 - side];
    if (value.op() == ScalarOp::sub && side == 1) continue;
    const auto rest_with = [&](const ScalarExpr& rest) {
      return value.with_args(side == 0 ? std::vector{rest, other} : std::vector{other, rest});
    };
    if (arg.op() == ScalarOp::read && std::find(states.begin(), states.end(), arg.ordinal()) != states.end()) {
      before = arg.ordinal();
      return value.op() == ScalarOp::sub ? build::unary(ScalarOp::neg, other) : other;
    }
    if (const auto rest = without_state(step, arg, states, before)) return rest_with(*rest);
  }
  return std::nullopt;
}

/// Why the recurrence does not run along one index from one element to the next.
std::string objection_to_order(const Nest& nest, int before, Plan& plan) {
  const Statement& step = *plan.step;
  const isl::map to_before = from_element(nest, step, step.reads.at(static_cast<std::size_t>(before)).relation);
  bool found = false;
  for (int k = 0; !found && k < static_cast<int>(nest.tensor(step.write.tensor).shape.size()); ++k) {
    for (const bool backward : {false, true}) {
      if (found || !to_before.is_subset(shifted(to_before, k, backward ? 1 : -1))) continue;
      plan.along = k;
      plan.backward = backward;
      found = true;
    }
  }
  if (!found) return "it does not read the element before its own along one index";
  const isl::map made = step.write.relation.intersect_domain(domain_in(nest, step)).reverse();
  const isl::map needs = step.reads.at(static_cast<std::size_t>(before)).relation.apply_range(made);
  const isl::map later = isl::manage(isl_map_lex_gt(isl_set_get_space(step.domain.get())));
  return needs.is_subset(later) ? "" : "it does not run along that index";
}

/// Why definitions do not give one first element to each run of the recurrence's. Sets which these are.
std::string objection_to_elements(const Nest& nest, Plan& plan) {
  const Statement& step = *plan.step;
  const isl::map written = step.write.relation.intersect_domain(domain_in(nest, step));
  plan.behind = written.range();
  isl::set defined = plan.behind.subtract(plan.behind);
  for (const Statement* writer : writers_of(nest, step.write.tensor)) {
    if (writer->name == step.name) continue;
    if (writer->group >= step.group) return "others write its tensor behind it";
    defined = defined.unite(writer->write.relation.intersect_domain(domain_in(nest, *writer)).range());
  }
  const isl::set all = plan.behind.unite(defined);
  const isl::map next = shifted(from_element(nest, step, step.write.relation), plan.along, plan.backward ? -1 : 1);
  plan.first = all.subtract(all.apply(next)).coalesce();
  plan.behind = plan.behind.coalesce();
  isl_map* lines = isl_map_universe(isl_space_map_from_set(isl_set_get_space(plan.first.get())));
  const int count = static_cast<int>(isl_map_dim(lines, isl_dim_in));
  for (int k = 0; k < count; ++k) {
    if (k != plan.along) lines = isl_map_equate(lines, isl_dim_in, k, isl_dim_out, k);
  }
  // Two first elements of one line are one.
  const isl::map pairs = isl::manage(lines).intersect_domain(plan.first).intersect_range(plan.first);
  if (!pairs.is_single_valued()) return "its elements along that index are no single run";
  if (!plan.first.is_subset(defined) || !all.subtract(plan.first).is_equal(plan.behind))
    return "not all elements behind the first ones are its own";
  return "";
}

std::string objection(const Nest& nest, const Statement& step, Plan& plan) {
  plan.step = &step;
  const Tensor& tensor = nest.tensor(step.write.tensor);
  const auto op = operator_of(step.value.op());
  if (step.reduction || !op || step.value.type() != tensor.type ||
      (tensor.type != ElementType::f32 && tensor.type != ElementType::i32))
    return "it is no sum, product or extremum of f32 or i32";
  plan.op = *op;
  const isl::map written = step.write.relation.intersect_domain(domain_in(nest, step));
  if (!alone_in_group(nest, step.name) || !written.is_injective()) return "it shares its loops or writes an element twice";
  std::vector<int> states;
  for (std::size_t k = 0; k < step.reads.size(); ++k) {
    const bool own = step.reads[k].relation.intersect_domain(domain_in(nest, step)).is_subset(written);
    if (step.reads[k].tensor == tensor.name && !own) states.push_back(static_cast<int>(k));
  }
  if (states.size() != 1) return "it does not read one other element of what it writes";
  std::optional<int> before;
  const auto term = without_state(step, step.value, states, before);
  if (!term || term->reads(*before)) return "it does not add to the element before as it is";
  plan.term = *term;
  const std::string why = objection_to_order(nest, *before, plan);
  return why.empty() ? objection_to_elements(nest, plan) : why;
}

/// f as a function of the element that it makes: reads and indices of `value` from elements.
struct ElementTerm {
  ScalarExpr value;
  std::vector<Access> reads;
  std::vector<isl::map> indices;
};

/// Nothing where what it reads cannot be continued to the first element.
std::optional<ElementTerm> continued(const Nest& nest, const Plan& plan, bool to_first) {
  ElementTerm term{plan.term, {}, {}};
  const auto seen = [&](const isl::map& relation) -> std::optional<isl::map> {
    const isl::map of_element = from_element(nest, *plan.step, relation);
    if (!to_first) return of_element;
    const auto function = whole_function(of_element);
    return function ? std::optional(isl::map(isl::manage(isl_map_from_multi_aff(function->copy())))) : std::nullopt;
  };
  const Statement& step = *plan.step;
  for (std::size_t k = 0; k < step.reads.size(); ++k) {
    const auto relation = plan.term.reads(static_cast<int>(k)) ? seen(step.reads[k].relation) : step.reads[k].relation;
    if (!relation) return std::nullopt;
    term.reads.push_back({step.reads[k].tensor, *relation});
  }
  for (const isl::pw_aff& index : step.indices) {
    const auto relation = seen(isl::manage(isl_map_from_pw_aff(index.copy())));
    if (!relation) return std::nullopt;
    term.indices.push_back(*relation);
  }
  return term;
}

/// Statements of the rewritten nest, over elements of s and, for the sum, points of the dim that it runs over.
class PrefixEdit {
 public:
  PrefixEdit(const Nest& nest, const Plan& plan)
      : result_(nest), plan_(plan), step_(*plan.step), tensor_(nest.tensor(step_.write.tensor)) {
    isl::map to_step;
    names_ = element_statement(nest, step_, "names", to_step).dims;
    keep_definitions();
  }

  Nest apply() {
    const auto whole = continued(result_, plan_, true);
    const bool joined = whole && starts_like(*whole);
    const isl::set all = joined ? plan_.first.unite(plan_.behind).coalesce() : plan_.behind;
    const bool in_place = joined && tensor_.role == TensorRole::temporary;
    const std::string sums = in_place ? tensor_.name : add_tensor(tensor_.name + "_prefix");
    Statement start = over(all, fresh_name(result_, sums + "_init"), {sums, identity(all, sums)});
    start.value = ScalarExpr::constant(neutral_element(plan_.op, tensor_.type), tensor_.type);
    insert(start);
    insert(sum_of(all, joined ? *whole : *continued(result_, plan_, false), sums));
    if (!in_place) write_results(all, sums, joined);
    erase_statement(result_, step_.name);
    drop_unused(result_);
    return std::move(result_);
  }

 private:
  /// What was written before is another tensor.
  void keep_definitions() {
    Tensor kept = tensor_;
    kept.role = TensorRole::temporary;
    kept.tolerance = {};
    kept.name = kept_ = fresh_name(result_, tensor_.name + "_first");
    result_.tensors.push_back(kept);
    const int group = step_.group;
    for (Statement& statement : result_.statements) {
      if (statement.group > group) break;
      for (Access& read : statement.reads) {
        if (read.tensor == tensor_.name && statement.name != step_.name) read = {kept_, read.relation.set_range_tuple(kept_)};
      }
      if (statement.write.tensor == tensor_.name && statement.name != step_.name)
        statement.write = {kept_, statement.write.relation.set_range_tuple(kept_)};
    }
  }

  std::string add_tensor(const std::string& base) {
    Tensor sums = tensor_;
    sums.role = TensorRole::temporary;
    sums.tolerance = {};
    sums.name = fresh_name(result_, base);
    result_.tensors.push_back(sums);
    return sums.name;
  }

  void insert(const Statement& statement) { insert_statement(result_, position_of(result_, step_.name), statement); }

  /// { s[e] -> tensor[e] } on these elements.
  static isl::map identity(const isl::set& elements, const std::string& tensor) {
    const isl::map same = isl::manage(isl_set_identity(elements.copy()));
    return same.set_range_tuple(tensor);
  }

  /// A statement over elements, whose accesses are seen from these.
  Statement over(const isl::set& elements, const std::string& name, const Access& write) const {
    isl::set domain = isl::manage(isl_set_gist_params(elements.copy(), full_context(result_).release()));
    domain = isl::manage(isl_set_set_tuple_name(domain.release(), name.c_str()));
    domain = isl::manage(with_dim_names(domain.release(), names_));
    Statement statement;
    statement.name = name;
    statement.dims = names_;
    statement.domain = domain;
    statement.write = {write.tensor, write.relation.set_domain_tuple(name).gist_domain(domain)};
    return statement;
  }

  /// f, as a statement has it: `to_element` is { Statement -> s }.
  void give_term(Statement& statement, const ElementTerm& term, const isl::map& to_element) const {
    std::vector<int> reads;
    for (std::size_t k = 0; k < term.reads.size(); ++k) {
      const Access& read = term.reads[k];
      const std::string& tensor = read.tensor == tensor_.name ? kept_ : read.tensor;
      if (!term.value.reads(static_cast<int>(k))) continue;
      const isl::map seen = to_element.apply_range(read.relation).intersect_domain(statement.domain);
      reads.resize(k + 1, -1);
      reads[k] = add_read(statement, {tensor, seen.gist_domain(statement.domain).coalesce().set_range_tuple(tensor)});
    }
    std::vector<int> indices;
    for (const isl::map& index : term.indices) {
      const isl::map seen = to_element.apply_range(index).intersect_domain(statement.domain);
      isl::pw_aff function = functions_of(seen).front().gist(statement.domain).coalesce();
      indices.push_back(add_index(statement, function));
    }
    statement.value = term.value.rewrite([&](const ScalarExpr& node) {
      if (node.op() == ScalarOp::read) return ScalarExpr::read(reads[static_cast<std::size_t>(node.ordinal())], node.type());
      if (node.op() == ScalarOp::index) return ScalarExpr::index(indices[static_cast<std::size_t>(node.ordinal())]);
      return node;
    });
    give_definitions(statement);
  }

  /// What a definition of s alone has written is computed where it is read.
  void give_definitions(Statement& statement) const {
    const Statement* definition = sole_definition(result_, kept_);
    const bool inlined = definition != nullptr && may_recompute(result_, *definition, step_in_result());
    for (std::size_t k = 0; inlined && k < statement.reads.size();) {
      if (statement.reads[k].tensor == kept_) {
        inline_read(result_, statement, static_cast<int>(k));
        k = 0;
      } else {
        ++k;
      }
    }
    compact(statement);
  }

  const Statement& step_in_result() const { return result_.statement(step_.name); }

  /// Is f, at first elements, what definitions give them?
  bool starts_like(const ElementTerm& term) const {
    const Access nowhere{kept_, identity(plan_.first, kept_)};
    Statement continued = over(plan_.first, "first", nowhere), given = continued;
    give_term(continued, term, identity(plan_.first, tensor_.name).set_domain_tuple("first"));
    given.value = ScalarExpr::read(add_read(given, nowhere_read(given)), tensor_.type);
    give_definitions(given);
    const auto same = [&](const isl::map& a, const isl::map& b) {
      return a.intersect_domain(given.domain)
          .intersect_params(full_context(result_))
          .is_equal(b.intersect_domain(given.domain).intersect_params(full_context(result_)));
    };
    const auto same_read = [&](const Access& a, const Access& b) { return a.tensor == b.tensor && same(a.relation, b.relation); };
    const auto same_index = [&](const isl::pw_aff& a, const isl::pw_aff& b) {
      return same(isl::manage(isl_map_from_pw_aff(a.copy())), isl::manage(isl_map_from_pw_aff(b.copy())));
    };
    return continued.value.equals(given.value) &&
           std::equal(continued.reads.begin(), continued.reads.end(), given.reads.begin(), given.reads.end(), same_read) &&
           std::equal(continued.indices.begin(), continued.indices.end(), given.indices.begin(), given.indices.end(), same_index);
  }

  Access nowhere_read(const Statement& statement) const {
    return {kept_, identity(plan_.first, kept_).set_domain_tuple(statement.name).gist_domain(statement.domain)};
  }

  /// The sum of f over all points up to each element.
  Statement sum_of(const isl::set& all, const ElementTerm& term, const std::string& sums) const {
    const std::string name = fresh_name(result_, sums);
    const auto count = static_cast<int>(names_.size());
    isl_map* at = isl_map_from_domain_and_range(isl_set_universe(isl_set_get_space(all.get())),
                                                isl_set_universe(isl_set_get_space(all.get())));
    at = isl_map_add_dims(at, isl_dim_in, 1);
    at = isl_map_set_tuple_name(at, isl_dim_in, name.c_str());
    isl_map* element = isl_map_copy(at);
    for (int k = 0; k < count; ++k) {
      element = isl_map_equate(element, isl_dim_in, k, isl_dim_out, k);
      at = isl_map_equate(at, isl_dim_in, k == plan_.along ? count : k, isl_dim_out, k);
    }
    const auto [low, high] = plan_.backward ? std::pair(plan_.along, count) : std::pair(count, plan_.along);
    at = isl_map_order_le(at, isl_dim_in, low, isl_dim_in, high);
    const isl::map to_sum = isl::manage(element).intersect_range(all), to_term = isl::manage(at).intersect_range(all);
    Statement sum = over(all, name, {sums, identity(all, sums)});
    sum.dims.push_back(fresh_dim(result_, names_, names_[static_cast<std::size_t>(plan_.along)]));
    sum.domain = isl::manage(
        isl_set_gist_params(to_sum.domain().intersect(to_term.domain()).coalesce().release(), full_context(result_).release()));
    sum.domain = isl::manage(with_dim_names(sum.domain.release(), sum.dims));
    sum.write = {sums, to_sum.intersect_domain(sum.domain).gist_domain(sum.domain).set_range_tuple(sums)};
    sum.reduction = plan_.op;
    give_term(sum, term, to_term);
    return sum;
  }

  /// Elements of s of their sums, and of first elements.
  void write_results(const isl::set& all, const std::string& sums, bool joined) {
    const std::string& name = tensor_.name;
    if (!joined) {
      Statement first = over(plan_.first, fresh_name(result_, name + "_start"), {name, identity(plan_.first, name)});
      first.value = ScalarExpr::read(add_read(first, nowhere_read(first)), tensor_.type);
      give_definitions(first);
      insert(first);
    }
    Statement result = over(all, fresh_name(result_, name), {name, identity(all, name)});
    result.value = ScalarExpr::read(
        add_read(result, {sums, identity(all, sums).set_domain_tuple(result.name).gist_domain(result.domain)}), tensor_.type);
    if (!joined) {
      isl_map* line = isl_map_from_domain_and_range(all.copy(), plan_.first.copy());
      for (int k = 0; k < static_cast<int>(names_.size()); ++k) {
        if (k != plan_.along) line = isl_map_equate(line, isl_dim_in, k, isl_dim_out, k);
      }
      const isl::map to_first = isl::manage(line).set_domain_tuple(result.name).set_range_tuple(kept_).gist_domain(result.domain);
      const ScalarExpr first = ScalarExpr::read(add_read(result, {kept_, to_first}), tensor_.type);
      result.value = ScalarExpr::make(combiner(plan_.op), {first, result.value});
      give_definitions(result);
    }
    insert(result);
  }

  Nest result_;
  const Plan& plan_;
  const Statement& step_;
  const Tensor tensor_;
  std::vector<std::string> names_;
  std::string kept_;
};

std::vector<RuleMatch> find(const Nest& nest) {
  return matching_statements(nest, kName, [&](const Statement& statement) {
    Plan plan;
    // Across memory, threads go through recurrences side by side.
    const int last = static_cast<int>(nest.tensor(statement.write.tensor).shape.size()) - 1;
    return objection(nest, statement, plan).empty() && plan.along == last
               ? statement.name + " is a reduction of all points before"
               : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  Plan plan;
  const std::string why = objection(nest, nest.statement(name), plan);
  if (!why.empty()) refuse_rule(kName, name, why);
  return {PrefixEdit(nest, plan).apply(), {}, true};
}

}  // namespace

const Rule& prefix_reduction_rule() {
  static const Rule rule{kName,
                         "a recurrence that only adds up is a reduction of all points before (argument: statement)",
                         "induction; addition, multiplication and extrema are associative and commutative",
                         "as reassociate",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
