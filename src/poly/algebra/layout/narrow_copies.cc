// Rule "narrow_copies": a temporary of f32 that holds nothing but values of 16 bits is kept in 16 bits.
//
// Pattern    r_e += t_p b_q, where b is a tensor of 16 bits, and t a temporary of f32. All that is written to t are elements of tensors of
//            the same type as b, zeros, and the larger, the smaller, the opposite or the chosen one of such values (select(c, x, 0)).
// Rewrite    t has the type of b; what is written is rounded to that type, and what is read is widened.
// Conditions no reduction writes t.
// Proof      such values are numbers of 16 bits, so that rounding leaves them as they are. NaN stays NaN.
// Rounding   none.
#include <algorithm>
#include <optional>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"

namespace nestor {
namespace {

constexpr const char* kName = "narrow_copies";

/// Is every value of the expression one of the type of 16 bits?
bool is_exact_in(const ScalarExpr& value, ElementType type) {
  const auto all = [&](std::size_t from) {
    return std::all_of(value.args().begin() + static_cast<std::ptrdiff_t>(from), value.args().end(),
                       [&](const ScalarExpr& arg) { return is_exact_in(arg, type); });
  };
  switch (value.op()) {
    case ScalarOp::constant:
      return value.number() == 0;
    case ScalarOp::read:
      return value.type() == type;
    case ScalarOp::cast:
      return (value.type() == ElementType::f32 || value.type() == type) && all(0);
    case ScalarOp::min:
    case ScalarOp::max:
    case ScalarOp::neg:
    case ScalarOp::abs:
      return value.type() == ElementType::f32 && all(0);
    case ScalarOp::select:
      return value.type() == ElementType::f32 && all(1);
    default:
      return false;
  }
}

bool holds_only(const Nest& nest, const Tensor& tensor, ElementType type) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor.name);
  return !writers.empty() && std::all_of(writers.begin(), writers.end(), [&](const Statement* writer) {
    return !writer->reduction && is_exact_in(writer->value, type);
  });
}

/// The temporary that a sum of products reads, and the type of the other operand. Sets `why` where there is none.
std::optional<std::pair<std::string, ElementType>> narrow_operand(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products of a 16-bit tensor and a temporary of f32";
  for (const auto& [wide, half] : wide_and_half(nest, sum)) {
    const Tensor& tensor = nest.tensor(sum.reads[wide].tensor);
    const ElementType type = nest.tensor(sum.reads[half].tensor).type;
    why = "its temporary of f32 holds other values than those of 16 bits";
    if (holds_only(nest, tensor, type)) return std::pair(tensor.name, type);
  }
  return std::nullopt;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    const auto operand = narrow_operand(nest, statement, why);
    return operand ? operand->first + " is kept in 16 bits: it holds nothing else" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  std::string why;
  const auto operand = narrow_operand(nest, nest.statement(name), why);
  if (!operand) refuse_rule(kName, name, why);
  const auto& [tensor, type] = *operand;
  Nest result = nest;
  for (Tensor& other : result.tensors) {
    if (other.name == tensor) other.type = type;
  }
  for (Statement& statement : result.statements) {
    statement.value = statement.value.rewrite([&, narrow = type, temporary = tensor](const ScalarExpr& node) {
      if (node.op() != ScalarOp::read || statement.reads[static_cast<std::size_t>(node.ordinal())].tensor != temporary)
        return node;
      return ScalarExpr::cast(ElementType::f32, ScalarExpr::read(node.ordinal(), narrow));
    });
    if (statement.write.tensor != tensor) continue;
    const ScalarExpr bare = strip_exact_casts(statement.value);
    statement.value = bare.type() == type ? bare : ScalarExpr::cast(type, statement.value);
  }
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& narrow_copies_rule() {
  static const Rule rule{kName,
                         "a temporary of f32 that holds nothing but values of 16 bits is kept in 16 bits (argument: statement)",
                         "values of 16 bits stay what they are when they are rounded to 16 bits",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
