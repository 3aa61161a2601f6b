// Rule "simplify": constants are folded and arithmetic identities applied.
//
// Pattern    operations on constants; x*1, x/1, x+0, x-0; x/c with c a power of two; nested casts and casts that change nothing; -(-x);
//            selects with a constant condition or equal branches; max(x, -inf), min(x, inf); !(!c); identity comparisons of constants;
//            the larger or smaller one of an index and a number, where it is always the same one;
//            temporaries that are copies of other tensors, as they are or in f32; temporaries that equal statements define; short
//            values that readers compute with less to read (needless_temporaries.h): terms of one sum, decays of a recurrence, masks.
// Rewrite    the simpler expression; accesses and indices that are no longer used are dropped. What reads a copy reads its source;
//            short values are computed by their readers; of two temporaries that are defined alike, readers have the first.
// Conditions x*0 is left alone (x may be infinite), x/c becomes a product only when 1/c is exact. (x*c)*d becomes x*(cd) where one is a power of
//            two, both are at least 1 or both at most 1, and cd is a normal number: then both forms overflow for the same x. A source is
//            not written again between its copy and the reader.
// Proof      Each identity holds for all values of IEEE 754 arithmetic, NaN included, except that x+0 turns -0 into 0, which compares equal
//            (D. Goldberg, "What every computer scientist should know about floating-point arithmetic", 1991, §2-3).
// Rounding   None for the identities. Constants are folded one operation at a time and rounded to f32, as a kernel would.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/needless_temporaries.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"

namespace nestor {
namespace {

bool is_power_of_two(double value) {
  int exponent = 0;
  return std::isfinite(value) && value != 0 && std::fabs(std::frexp(value, &exponent)) == 0.5 && std::abs(exponent) < 120;
}

bool all_constant(const ScalarExpr& expr) {
  if (expr.args().empty()) return false;
  for (const ScalarExpr& arg : expr.args()) {
    if (arg.op() != ScalarOp::constant) return false;
  }
  return true;
}

ScalarExpr folded(const ScalarExpr& expr) {
  double value = evaluate(expr, [](int) { return 0.0; }, [](int) { return 0; }, [](const std::string&) { return 0.0; });
  if (expr.type() == ElementType::f32) value = static_cast<float>(value);
  return std::isnan(value) ? expr : ScalarExpr::constant(value, expr.type());
}

/// Is (x c) d = x (c d) for all x? One of c and d is a power of two.
bool may_be_one_factor(double c, double d) {
  const double product = std::fabs(c * d);
  const bool same_side = (std::fabs(c) >= 1 && std::fabs(d) >= 1) || (std::fabs(c) <= 1 && std::fabs(d) <= 1);
  return same_side && product >= std::numeric_limits<float>::min() && product <= std::numeric_limits<float>::max();
}

/// Every value of `inner` survives a round trip through `outer`.
bool holds_all_of(ElementType outer, ElementType inner) {
  return outer == inner || (outer == ElementType::f32 && (inner == ElementType::f16 || inner == ElementType::bf16));
}

ScalarExpr simplify_cast(const ScalarExpr& expr) {
  const ScalarExpr& arg = expr.args()[0];
  if (arg.type() == expr.type()) return arg;
  // cast(f16, cast(f32, x of f16)) = x, and cast(T, cast(f32, x of f16)) = cast(T, x).
  if (arg.op() == ScalarOp::cast && is_float(expr.type()) && holds_all_of(arg.type(), arg.args()[0].type()) &&
      is_float(arg.args()[0].type())) {
    const ScalarExpr& inner = arg.args()[0];
    return inner.type() == expr.type() ? inner : ScalarExpr::cast(expr.type(), inner);
  }
  return expr;
}

ScalarExpr simplify_select(const ScalarExpr& expr) {
  const ScalarExpr& condition = expr.args()[0];
  if (condition.op() == ScalarOp::constant) return condition.number() != 0 ? expr.args()[1] : expr.args()[2];
  if (expr.args()[1].equals(expr.args()[2])) return expr.args()[1];
  if (condition.op() == ScalarOp::logical_not) {
    return ScalarExpr::make(ScalarOp::select, {condition.args()[0], expr.args()[2], expr.args()[1]});
  }
  return expr;
}

ScalarExpr simplify_product(const ScalarExpr& expr) {
  const ScalarExpr& a = expr.args()[0];
  const ScalarExpr& b = expr.args()[1];
  if (b.is_constant(1)) return a;
  if (a.is_constant(1)) return b;
  // (x * c) * d = x * (c d) changes the rounding unless one factor is a power of two.
  if (is_float(expr.type()) && b.op() == ScalarOp::constant && a.op() == ScalarOp::mul &&
      a.args()[1].op() == ScalarOp::constant && (is_power_of_two(b.number()) || is_power_of_two(a.args()[1].number())) &&
      may_be_one_factor(a.args()[1].number(), b.number())) {
    return ScalarExpr::make(ScalarOp::mul, {a.args()[0], ScalarExpr::constant(b.number() * a.args()[1].number(), b.type())});
  }
  return expr;
}

ScalarExpr simplify_quotient(const ScalarExpr& expr) {
  const ScalarExpr& b = expr.args()[1];
  if (b.is_constant(1)) return expr.args()[0];
  if (is_float(expr.type()) && b.op() == ScalarOp::constant && is_power_of_two(b.number())) {
    return ScalarExpr::make(ScalarOp::mul, {expr.args()[0], ScalarExpr::constant(1 / b.number(), b.type())});
  }
  return expr;
}

ScalarExpr simplify_extremum(const ScalarExpr& expr) {
  const bool maximum = expr.op() == ScalarOp::max;
  const double neutral = neutral_element(maximum ? ReductionOp::max : ReductionOp::min, expr.type());
  if (expr.args()[0].is_constant(neutral)) return expr.args()[1];
  if (expr.args()[1].is_constant(neutral) || expr.args()[0].equals(expr.args()[1])) return expr.args()[0];
  return expr;
}

ScalarExpr simplify_node(const ScalarExpr& expr) {
  if (all_constant(expr)) return folded(expr);
  switch (expr.op()) {
    case ScalarOp::cast:
      return simplify_cast(expr);
    case ScalarOp::select:
      return simplify_select(expr);
    case ScalarOp::mul:
      return simplify_product(expr);
    case ScalarOp::div:
      return simplify_quotient(expr);
    case ScalarOp::max:
    case ScalarOp::min:
      return simplify_extremum(expr);
    case ScalarOp::add:
      if (expr.args()[1].is_constant(0)) return expr.args()[0];
      return expr.args()[0].is_constant(0) ? expr.args()[1] : expr;
    case ScalarOp::sub:
      if (expr.args()[1].is_constant(0)) return expr.args()[0];
      return expr.args()[0].is_constant(0) ? ScalarExpr::make(ScalarOp::neg, {expr.args()[1]}) : expr;
    case ScalarOp::neg:
    case ScalarOp::logical_not:
      return expr.args()[0].op() == expr.op() ? expr.args()[0].args()[0] : expr;
    default:
      return expr;
  }
}

/// Of the larger or smaller one of an index and a number: the one that it always is; the same expression where that changes.
ScalarExpr known_extremum(const Nest& nest, const Statement& statement, const ScalarExpr& expr) {
  if (expr.op() != ScalarOp::max && expr.op() != ScalarOp::min) return expr;
  for (const std::size_t place : {std::size_t{0}, std::size_t{1}}) {
    const ScalarExpr &index = expr.args()[place], &bound = expr.args()[1 - place];
    if (index.op() != ScalarOp::index || bound.op() != ScalarOp::constant) continue;
    const isl::pw_aff& function = statement.indices[static_cast<std::size_t>(index.ordinal())];
    const isl::pw_aff number = function.sub(function).add_constant(static_cast<long>(bound.number()));
    const isl::set points = domain_in(nest, statement);
    const bool above = points.is_subset(function.ge_set(number)), below = points.is_subset(function.le_set(number));
    if (above || below) return above == (expr.op() == ScalarOp::max) ? index : bound;
  }
  return expr;
}

/// The statement that alone defines the tensor, if all it does is to copy an element, which f32 may hold for 16 bits; else null.
const Statement* copy_of(const Nest& nest, const std::string& tensor) {
  if (!is_elementwise_temporary(nest, tensor)) return nullptr;
  const Statement* copy = sole_definition(nest, tensor);
  const ScalarExpr source = strip_exact_casts(copy->value);
  if (source.op() != ScalarOp::read) return nullptr;
  return copy->reads.at(static_cast<std::size_t>(source.ordinal())).tensor != tensor ? copy : nullptr;
}

/// Reads of copies become reads of what was copied, also where copies were copied. Short values are computed where they are read.
void forward_copies(Nest& nest, std::vector<std::string>& changed) {
  for (std::size_t s = 0; s < nest.statements.size(); ++s) {
    for (std::size_t steps = 0; steps < nest.statements.size(); ++steps) {
      const Nest before = nest;
      Statement& reader = nest.statements[s];
      const auto read = std::find_if(reader.reads.begin(), reader.reads.end(), [&](const Access& access) {
        const Statement* copy = copy_of(before, access.tensor);
        if (copy == nullptr) copy = computed_by_readers(before, access.tensor);
        return copy != nullptr && may_recompute(before, *copy, before.statements[s]);
      });
      if (read == reader.reads.end()) break;
      inline_read(before, reader, static_cast<int>(read - reader.reads.begin()));
      compact(reader);
      changed.push_back(reader.name);
    }
  }
}

Nest simplified(const Nest& nest, std::vector<std::string>& changed) {
  Nest result = nest;
  for (Statement& statement : result.statements) {
    const ScalarExpr before = statement.value;
    statement.value =
        before.rewrite([&](const ScalarExpr& node) { return known_extremum(nest, statement, simplify_node(node)); });
    if (statement.value.equals(before)) continue;
    changed.push_back(statement.name);
    compact(statement);
  }
  forward_copies(result, changed);
  share_equal_definitions(result, changed);
  drop_unused(result);
  return result;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::vector<std::string> changed;
  simplified(nest, changed);
  if (changed.empty()) return {};
  return {{"simplify", {}, fmt::format("{} statements become simpler, {} first", changed.size(), changed[0])}};
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  expect_arguments("simplify", target, 0);
  std::vector<std::string> changed;
  Nest result = simplified(nest, changed);
  if (changed.empty()) refuse_rule("simplify", "", "nothing can be simplified");
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& simplify_rule() {
  static const Rule rule{
      "simplify", "constants are folded and arithmetic identities applied", "identities of IEEE 754 arithmetic", "none", find,
      apply};
  return rule;
}

}  // namespace nestor
