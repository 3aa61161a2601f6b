// Rule "defer_factor": a factor that does not depend on the reduced points leaves the sum.
//
// Pattern    r_e = sum_j f_e g_ej or sum_j g_ej / f_e; f may be hidden in an elementwise statement p_ej = f_e g_ej that the sum reads.
// Rewrite    r'_e = sum_j g_ej;  r_e = f_e r'_e (or r'_e / f_e), computed once after the sum.
// Conditions the reduction is a sum that starts from 0 and is alone in its loops; f is a function of the element e alone and not the
//            number 1; nobody reads r before the sum is complete. f is finite, and within 2^-48 and 2^48 or 0, by ranges. Where that is not
//            proved, the sum keeps f unless it is within 2^-32 and 2^32: sum_j select(f is, 1, f) g_ej, then times select(f is, f, 1). A
//            temporary p in 16 bits must hold all f g without overflow, and becomes f32 if it may not hold g. Constant factors
//            are within 2^-48 and 2^48. Of products of matrices only factors with proved ranges leave the sum: with a select among their
//            factors they would be none any more.
// Proof      Distributive law: sum_j f g_j = f sum_j g_j. Known as deferred normalisation: T. Dao, 2023,
//            arXiv:2307.08691, §3.1.
// Rounding   One product or quotient for each element instead of one for each point: fewer roundings. r' may be larger than r by 1/f,
//            2^48 at most.
#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/scalar_share.h"
#include "support/error.h"

namespace nestor {
namespace {

/// True when the expression, evaluated by `statement`, depends on the written element alone.
bool fixed_by_element(const Nest& nest, const Statement& statement, const ScalarExpr& expr) {
  bool fixed = true;
  expr.visit([&](const ScalarExpr& node) {
    const auto ordinal = static_cast<std::size_t>(node.ordinal());
    if (!fixed) return;
    if (node.op() == ScalarOp::read) fixed = determined_by_write(nest, statement, statement.reads.at(ordinal).relation);
    if (node.op() == ScalarOp::index) {
      fixed = determined_by_write(nest, statement, isl::manage(isl_map_from_pw_aff(statement.indices.at(ordinal).copy())));
    }
  });
  return fixed;
}

/// Doublings within which a factor may be: by its range, and by a test where its range says nothing.
constexpr int kRoom = 48, kTestedRoom = 32;

ScalarExpr is_moderate(const ScalarExpr& factor) {
  const ScalarExpr magnitude = build::unary(ScalarOp::abs, factor);
  return ScalarExpr::make(ScalarOp::logical_and,
                          {ScalarExpr::make(ScalarOp::le, {build::number(std::ldexp(1, -kTestedRoom)), magnitude}),
                           ScalarExpr::make(ScalarOp::le, {magnitude, build::number(std::ldexp(1, kTestedRoom))})});
}

/// What stays in the sum of a factor without a proved range.
ScalarExpr unless_moderate(const ScalarExpr& factor) { return build::select(is_moderate(factor), build::number(1), factor); }

bool stays(const ScalarExpr& factor) {
  return factor.op() == ScalarOp::select && factor.equals(unless_moderate(factor.args()[2]));
}

bool is_moderate_by_range(const Nest& nest, const Statement& statement, const std::pair<ScalarExpr, int>& factor) {
  const ValueRange range = range_of(nest, statement, factor.first);
  const bool defined = factor.second > 0 ? !range.infinite() : !range.has_zero();
  return defined && range.within(kRoom / std::abs(factor.second));
}

/// A number among the factors that another order of factors would let overflow where the definition does not, or the other way.
std::optional<double> extreme_number(const ScalarExpr& product) {
  switch (product.op()) {
    case ScalarOp::constant:
      return std::fabs(std::log2(std::fabs(product.number()))) <= kRoom ? std::nullopt : std::optional(product.number());
    case ScalarOp::mul:
    case ScalarOp::div:
    case ScalarOp::neg:
    case ScalarOp::cast:
      for (const ScalarExpr& factor : product.args()) {
        if (const auto number = extreme_number(factor)) return number;
      }
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::string objection_to(double number) {
  return fmt::format("the factor {:g} is not within 2^-{} and 2^{}: in another order products may overflow", number, kRoom,
                     kRoom);
}

struct Deferred {
  Monomial outside;                ///< f
  Monomial inside;                 ///< g
  std::vector<std::size_t> place;  ///< of each factor of f: how many factors of g stand before it
};

Deferred separate(const Nest& nest, const Statement& statement) {
  const Monomial product = product_of(build::as_f32(statement.value));
  Deferred parts;
  parts.outside.coefficient = product.coefficient;
  for (const auto& factor : product.factors) {
    const bool outside = fixed_by_element(nest, statement, factor.first) && !stays(factor.first);
    if (outside) parts.place.push_back(parts.inside.factors.size());
    (outside ? parts.outside : parts.inside).factors.push_back(factor);
  }
  return parts;
}

/// Of f g, factors of f without a proved range stay in the sum where they are tiny, huge, 0, infinite or NaN. They stay at their
/// place among the factors: a product of the others could overflow before a tiny factor meets it.
Deferred guarded(const Nest& nest, const Statement& statement, const Deferred& parts) {
  Deferred result{{parts.outside.coefficient, {}}, parts.inside, {}};
  Monomial loose;
  std::size_t place = parts.inside.factors.size();
  for (std::size_t k = 0; k < parts.outside.factors.size(); ++k) {
    const auto& factor = parts.outside.factors[k];
    const bool moderate = is_moderate_by_range(nest, statement, factor);
    (moderate ? result.outside : loose).factors.push_back(factor);
    if (!moderate) place = std::min(place, parts.place[k]);
  }
  if (loose.factors.empty()) return result;
  const ScalarExpr f = to_expr(loose);
  result.inside.factors.emplace(result.inside.factors.begin() + static_cast<std::ptrdiff_t>(place), unless_moderate(f), 1);
  result.outside.factors.emplace_back(build::select(is_moderate(f), f, build::number(1)), 1);
  return result;
}

/// Do two factors follow dims of the result that the other one does not, as operands of a product of matrices?
bool multiplies_operands(const Statement& sum, const Monomial& term) {
  const std::vector<int> reduced = reduced_dims(sum);
  std::vector<std::set<int>> dims;
  for (const auto& [factor, exponent] : term.factors) {
    std::set<int>& followed = dims.emplace_back();
    for (int dim = 0; dim < static_cast<int>(sum.dims.size()); ++dim) {
      const bool written = std::find(reduced.begin(), reduced.end(), dim) == reduced.end();
      if (written && varies_along(sum, factor, dim)) followed.insert(dim);
    }
  }
  const auto has_own = [](const std::set<int>& a, const std::set<int>& b) {
    return !std::includes(b.begin(), b.end(), a.begin(), a.end());
  };
  for (const std::set<int>& a : dims) {
    if (std::any_of(dims.begin(), dims.end(), [&](const std::set<int>& b) { return has_own(a, b) && has_own(b, a); }))
      return true;
  }
  return false;
}

bool is_one(const Monomial& monomial) { return monomial.coefficient == 1 && monomial.factors.empty(); }

/// Splits p = f * g, read by `update`, into p' = g and the factor f at the place of the read. Returns false when p has no such f.
class HiddenFactor {
 public:
  HiddenFactor(Nest& nest, const std::string& update) : nest_(nest), update_(nest.statement(update)) {}

  const std::string& why() const { return why_; }

  bool expose() {
    for (const auto& [expr, exponent] : product_of(build::as_f32(update_.value)).factors) {
      const ScalarExpr bare = strip_exact_casts(expr);
      if (bare.op() != ScalarOp::read || exponent != 1) continue;
      const std::string tensor = update_.reads.at(bare.ordinal()).tensor;
      if (!is_elementwise_temporary(nest_, tensor)) continue;
      if (expose_in(*sole_definition(nest_, tensor), bare)) return true;
    }
    return false;
  }

 private:
  bool expose_in(const Statement& producer, const ScalarExpr& read) {
    if (!may_recompute(nest_, producer, update_) || !holds_products(producer)) return false;
    const isl::map relation = producer_relation(update_, read.ordinal(), producer);
    if (const auto number = extreme_number(strip_casts(producer.value))) {
      why_ = objection_to(*number);
      return false;
    }
    const Monomial product = product_of(build::as_f32(strip_casts(producer.value)));
    Deferred parts{Monomial{product.coefficient, {}}, Monomial{}, {}};
    Statement trial = update_;
    for (const auto& factor : product.factors) {
      const ScalarExpr seen = import_value(trial, producer, relation, factor.first);
      const bool outside = fixed_by_element(nest_, trial, seen);
      if (outside) {
        parts.outside.factors.emplace_back(seen, factor.second);
      } else {
        parts.inside.factors.push_back(factor);
      }
    }
    if (is_one(parts.outside) || parts.inside.factors.empty()) return false;
    if (parts.outside.factors.empty() && readers_of(nest_, producer.write.tensor).size() > 1 &&
        strip_casts(to_expr(parts.inside)).op() != ScalarOp::read) {
      why_ = fmt::format("others read {}, and to leave out a number would have a copy of it made", producer.write.tensor);
      return false;
    }
    const ScalarExpr remains = remaining_value(producer, parts.inside, relation, trial);
    const ScalarExpr value = build::mul(build::as_f32(remains), to_expr(parts.outside));
    trial.value = trial.value.rewrite([&](const ScalarExpr& node) {
      if (node.op() == ScalarOp::read && node.ordinal() == read.ordinal()) return read.type() == ElementType::f32 ? value : node;
      const bool cast_of_read = node.op() == ScalarOp::cast && node.type() == ElementType::f32 && node.args()[0].equals(read);
      return cast_of_read ? value : node;
    });
    compact(trial);
    trial.group = nest_.statement(update_.name).group;
    replace_statement(nest_, trial);
    drop_unused(nest_);
    return true;
  }

  /// Does a temporary in 16 bits hold all of its values without overflow? Then they may be computed in f32 as well.
  bool holds_products(const Statement& producer) {
    const ScalarExpr exact = strip_casts(producer.value);
    double largest = largest_of(nest_.tensor(producer.write.tensor).type);
    for (ScalarExpr cast = producer.value; cast.op() == ScalarOp::cast && is_float(cast.args()[0].type()); cast = cast.args()[0])
      largest = std::min(largest, largest_of(cast.type()));
    if (largest == largest_of(ElementType::f32) || range_of(nest_, producer, exact).magnitude() < largest) return true;
    why_ = fmt::format("{} in 16 bits may overflow to infinity where the sum in f32 would not", producer.write.tensor);
    return false;
  }

  /// g as the update sees it: g itself when it is a mere read, else a read of a new temporary that holds it.
  ScalarExpr remaining_value(const Statement& producer, const Monomial& inside, const isl::map& relation, Statement& trial) {
    const ScalarExpr value = to_expr(inside);
    if (strip_casts(value).op() == ScalarOp::read) return import_value(trial, producer, relation, value);
    const std::string tensor = producer.write.tensor;
    const std::string name = fresh_name(nest_, tensor + "_unscaled");
    Tensor storage = nest_.tensor(tensor);
    storage.name = name;
    const bool fits = range_of(nest_, producer, value).magnitude() < largest_of(storage.type);
    if (storage.type != ElementType::f32 && !fits) storage.type = ElementType::f32;
    nest_.tensors.push_back(storage);
    Statement part = renamed(producer, name);
    part.write = {name, part.write.relation.set_range_tuple(name)};
    part.value = storage.type == ElementType::f32 ? value : ScalarExpr::cast(storage.type, value);
    compact(part);
    const isl::map read =
        relation.apply_range(producer.write.relation).set_range_tuple(name).gist_domain(trial.domain).coalesce();
    insert_statement(nest_, group_begin(nest_, producer.name), part);
    return ScalarExpr::read(add_read(trial, {name, read}), storage.type);
  }

  Nest& nest_;
  Statement update_;
  std::string why_;
};

/// Why the rule does not apply to `update`; on success leaves in `nest` a sum whose factor is in plain sight.
std::string expose_factor(Nest& nest, const std::string& update) {
  const Statement& statement = nest.statement(update);
  if (statement.reduction != ReductionOp::add) return "it is no sum";
  if (nest.tensor(statement.write.tensor).type == ElementType::i32) return "it sums integers";
  if (!is_short(statement.value)) return "its terms have too many parts";
  if (const auto number = extreme_number(statement.value)) return objection_to(*number);
  if (!starts_from(nest, statement, 0)) return "it does not start from 0, or has several reductions";
  if (reads_tensor(statement, statement.value, statement.write.tensor)) return "its terms read its own result";
  if (!alone_in_group(nest, update)) return "it shares its loops with other statements of its definition";
  for (const Statement* reader : readers_of(nest, statement.write.tensor)) {
    if (reader->group < statement.group) return fmt::format("{} reads it before it is complete", reader->name);
  }
  std::string hidden;
  for (bool more = true; more && nest.find_statement(update) != nullptr;) {
    HiddenFactor factor(nest, update);
    more = factor.expose();
    hidden = factor.why();
  }
  if (nest.find_statement(update) == nullptr) return "nothing reads its result";  // rewriting drops what nobody reads
  const Deferred parts = separate(nest, nest.statement(update));
  if (is_one(parts.outside))
    return "no factor of its terms is the same for all points of an element" + (hidden.empty() ? "" : ": " + hidden);
  if (parts.inside.factors.empty()) return "its terms are the same for all points";
  const Statement& exposed = nest.statement(update);
  const bool stays_in_part = guarded(nest, exposed, parts).inside.factors.size() != parts.inside.factors.size();
  if (stays_in_part && multiplies_operands(exposed, parts.inside))
    return "its factor has no proved range, and a test of it would leave no product of two operands";
  return "";
}

/// An expression of `sum` that its element determines, as seen from `finish`; `to_sum` is { Finish -> Sum }.
ScalarExpr seen_by_finish(Statement& finish, const Statement& sum, const isl::map& to_sum, const ScalarExpr& expr) {
  return expr.rewrite([&](const ScalarExpr& node) {
    const auto ordinal = static_cast<std::size_t>(node.ordinal());
    if (node.op() == ScalarOp::read) {
      const Access& read = sum.reads.at(ordinal);
      const isl::map relation = to_sum.apply_range(read.relation).gist_domain(finish.domain).coalesce();
      return ScalarExpr::read(add_read(finish, {read.tensor, relation}), node.type());
    }
    if (node.op() == ScalarOp::index) {
      const isl::map index = isl::manage(isl_map_from_pw_aff(sum.indices.at(ordinal).copy()));
      return ScalarExpr::index(add_index(finish, functions_of(to_sum.apply_range(index)).at(0).gist(finish.domain)));
    }
    return node;
  });
}

/// r = f * r', with r' in the tensor `plain`.
Statement finishing_statement(const Nest& nest, const Statement& sum, const Monomial& factor, const std::string& plain) {
  isl::map to_sum;
  Statement finish = element_statement(nest, sum, fresh_name(nest, sum.name + "_scale"), to_sum);
  const int ordinal = add_read(finish, {plain, finish.write.relation.set_range_tuple(plain)});
  Monomial product{factor.coefficient, {{ScalarExpr::read(ordinal, ElementType::f32), 1}}};
  for (const auto& [expr, exponent] : factor.factors) {
    product.factors.emplace_back(seen_by_finish(finish, sum, to_sum, expr), exponent);
  }
  finish.value = to_expr(product);
  const ElementType type = nest.tensor(sum.write.tensor).type;
  if (type != ElementType::f32) finish.value = ScalarExpr::cast(type, finish.value);
  return finish;
}

/// Makes `sum` accumulate into the new tensor `plain`, started where r was; returns the elements of r that were initialised.
isl::set accumulate_elsewhere(Nest& nest, Statement sum, const ScalarExpr& term, const std::string& plain,
                              const std::vector<std::string>& starts) {
  Tensor storage = nest.tensor(sum.write.tensor);
  storage.name = plain;
  storage.role = TensorRole::temporary;
  storage.type = ElementType::f32;
  nest.tensors.push_back(storage);
  isl::set started = isl::set::empty(nest.statement(starts.at(0)).write.relation.range().space());
  for (const std::string& start : starts) {
    const Statement old = nest.statement(start);
    started = started.unite(old.write.relation.intersect_domain(domain_in(nest, old)).range());
    Statement fresh = renamed(old, fresh_name(nest, start + "_sum"));
    fresh.write = {plain, fresh.write.relation.set_range_tuple(plain)};
    fresh.value = build::number(0);
    compact(fresh);
    insert_statement(nest, group_end(nest, start), fresh);
  }
  sum.write = {plain, sum.write.relation.set_range_tuple(plain)};
  sum.value = term;
  compact(sum);
  sum.group = nest.statement(sum.name).group;
  replace_statement(nest, sum);
  return started;
}

/// Definitions of temporaries that `name` reads, and nothing before it, move to just before it, so that loops before them may be fused
/// with loops behind them: a sum's factor often needs another sum over the same points.
void delay_definitions(Nest& nest, const std::string& name) {
  std::set<std::string> tensors;
  for (const Access& read : nest.statement(name).reads) tensors.insert(read.tensor);
  for (const std::string& tensor : tensors) {
    if (!is_elementwise_temporary(nest, tensor)) continue;
    const Statement definition = *sole_definition(nest, tensor);
    const std::size_t place = position_of(nest, name);
    const std::vector<const Statement*> readers = readers_of(nest, tensor);
    const bool later =
        std::all_of(readers.begin(), readers.end(), [&](const Statement* s) { return position_of(nest, s->name) >= place; });
    const bool alone = alone_in_group(nest, definition.name);
    if (!later || !alone || !may_recompute(nest, definition, nest.statement(name))) continue;
    erase_statement(nest, definition.name);
    insert_statement(nest, group_begin(nest, name), definition);
    delay_definitions(nest, definition.name);
  }
}

void move_factor(Nest& nest, const std::string& update) {
  const Statement sum = nest.statement(update);
  const Deferred parts = guarded(nest, sum, separate(nest, sum));
  const std::string plain = fresh_name(nest, sum.write.tensor + "_sum");
  std::vector<std::string> starts;
  for (const Statement* start : initialisers_of(nest, sum)) starts.push_back(start->name);
  const Statement finish = finishing_statement(nest, sum, parts.outside, plain);
  const isl::set started = accumulate_elsewhere(nest, sum, to_expr(parts.inside), plain, starts);
  insert_statement(nest, group_end(nest, update), finish);
  delay_definitions(nest, finish.name);
  // The old initialisation stays only for elements without points.
  const isl::set finished = finish.write.relation.intersect_domain(domain_in(nest, finish)).range();
  if (!started.is_subset(finished)) return;
  for (const std::string& start : starts) erase_statement(nest, start);
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::vector<RuleMatch> matches;
  for (const Statement& statement : nest.statements) {
    if (statement.reduction != ReductionOp::add) continue;
    Nest trial = nest;
    if (!expose_factor(trial, statement.name).empty()) continue;
    const Statement& exposed = trial.statement(statement.name);
    const std::string factor =
        to_expr(separate(trial, exposed).outside)
            .str([&](int k) { return exposed.reads.at(k).tensor; }, [&](int k) { return function_text(exposed.indices.at(k)); });
    matches.push_back(
        {"defer_factor", {statement.name}, fmt::format("{} multiplies by {} once, after its sum", statement.name, factor)});
  }
  return matches;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string update = statement_argument(nest, "defer_factor", target, 1);
  Nest result = nest;
  const std::string why = expose_factor(result, update);
  if (!why.empty()) refuse_rule("defer_factor", update, why);
  move_factor(result, update);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& defer_factor_rule() {
  static const Rule rule{"defer_factor",
                         "a factor common to all terms of a sum is applied once, after the sum",
                         "distributive law: sum_j f g_j = f sum_j g_j",
                         "fewer roundings; the intermediate sum is larger by 1/f, at most 2^48",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
