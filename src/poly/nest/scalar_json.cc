// Scalar expressions <-> JSON. Large subexpressions that are used more than once are written once, in a list before the value.
#include "poly/nest/scalar_json.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "poly/nest/scalar_semantics.h"
#include "poly/nest/scalar_share.h"

namespace nestor {
namespace {

using nlohmann::json;

/// Smaller ones are repeated: the text is then easier to read.
constexpr int kSmallestShared = 16;
constexpr int kDeepestExpression = 400;

class Writer {
 public:
  json write(const ScalarExpr& expr) {
    const ScalarExpr root = share_nodes(expr);
    measure(root);
    json value = node(root);
    return shared_.empty() ? value : json{{"shared", shared_}, {"value", value}};
  }

 private:
  struct Facts {
    int uses = 0;
    int size = 1;  ///< nodes of the tree, as far as it matters
    int ordinal = -1;
  };

  int measure(const ScalarExpr& expr) {
    Facts& facts = facts_[node_identity(expr)];
    if (facts.uses++ > 0) return facts.size;
    int size = 1;
    for (const ScalarExpr& arg : expr.args()) size = std::min(size + measure(arg), kSmallestShared);
    facts_[node_identity(expr)].size = size;
    return size;
  }

  json node(const ScalarExpr& expr) {
    Facts& facts = facts_.at(node_identity(expr));
    const bool shared = facts.uses > 1 && facts.size >= kSmallestShared;
    if (!shared) return spelled_out(expr);
    if (facts.ordinal < 0) {
      json value = spelled_out(expr);
      facts.ordinal = static_cast<int>(shared_.size());
      shared_.push_back(value);
    }
    return {{"op", "shared"}, {"ordinal", facts.ordinal}};
  }

  json spelled_out(const ScalarExpr& expr) {
    json result = {{"op", to_string(expr.op())}};
    switch (expr.op()) {
      case ScalarOp::constant:
        result["number"] = number_to_json(expr.number());
        result["type"] = to_string(expr.type());
        return result;
      case ScalarOp::index:
        result["ordinal"] = expr.ordinal();
        return result;
      case ScalarOp::scalar:
        result["name"] = expr.name();
        result["type"] = to_string(expr.type());
        return result;
      case ScalarOp::read:
        result["ordinal"] = expr.ordinal();
        result["type"] = to_string(expr.type());
        return result;
      case ScalarOp::cast:
        result["type"] = to_string(expr.type());
        break;
      default:
        break;
    }
    json args = json::array();
    for (const ScalarExpr& arg : expr.args()) args.push_back(node(arg));
    result["args"] = args;
    return result;
  }

  std::map<const void*, Facts> facts_;
  json shared_ = json::array();
};

/// A constant that its type has, or rounds to a number.
double number_of_type(const JsonReader& reader, ElementType type) {
  const double number = reader.number();
  if (type == ElementType::i32 && (number != std::trunc(number) || std::abs(number) > 0x1p31 || number == 0x1p31))
    user_error("{}: {} is no 32-bit integer", reader.place(), number);
  if (type == ElementType::f32 && std::isfinite(number) && std::abs(number) >= semantics::kOverflow)
    user_error("{}: {} is beyond the numbers of f32", reader.place(), number);
  return number;
}

ScalarExpr read_node(const JsonReader& reader, const std::vector<ScalarExpr>& shared, int depth) {
  if (depth > kDeepestExpression) user_error("{}: the expression is nested too deeply", reader.place());
  if (reader.at("op").text() == "shared") {
    reader.only({"op", "ordinal"});
    const std::int64_t ordinal = reader.at("ordinal").integer();
    if (ordinal < 0 || ordinal >= static_cast<std::int64_t>(shared.size())) {
      user_error("{}: there are {} shared expressions before it, so none has the ordinal {}", reader.place(), shared.size(),
                 ordinal);
    }
    return shared[ordinal];
  }
  const ScalarOp op = named(reader.at("op"), scalar_op_from);
  switch (op) {
    case ScalarOp::constant:
      reader.only({"op", "number", "type"});
      return ScalarExpr::constant(number_of_type(reader.at("number"), reader.at("type").type()), reader.at("type").type());
    case ScalarOp::index:
      reader.only({"op", "ordinal"});
      return ScalarExpr::index(static_cast<int>(reader.at("ordinal").integer()));
    case ScalarOp::scalar:
      reader.only({"op", "name", "type"});
      return ScalarExpr::scalar(reader.at("name").text(), reader.at("type").type());
    case ScalarOp::read:
      reader.only({"op", "ordinal", "type"});
      return ScalarExpr::read(static_cast<int>(reader.at("ordinal").integer()), reader.at("type").type());
    default:
      break;
  }
  op == ScalarOp::cast ? reader.only({"op", "type", "args"}) : reader.only({"op", "args"});
  std::vector<ScalarExpr> args;
  for (const JsonReader& arg : reader.at("args").list()) args.push_back(read_node(arg, shared, depth + 1));
  if (static_cast<int>(args.size()) != arity(op)) {
    user_error("{}: {} takes {} arguments, not {}", reader.place(), to_string(op), arity(op), args.size());
  }
  return op == ScalarOp::cast ? ScalarExpr::cast(reader.at("type").type(), args[0]) : ScalarExpr::make(op, args);
}

}  // namespace

json scalar_expr_to_json(const ScalarExpr& expr) { return Writer().write(expr); }

ScalarExpr read_scalar_expr(const JsonReader& reader) {
  std::vector<ScalarExpr> shared;
  if (!reader.has("shared")) return share_nodes(read_node(reader, shared, 0));
  reader.only({"shared", "value"});
  for (const JsonReader& expr : reader.at("shared").list()) shared.push_back(share_nodes(read_node(expr, shared, 0)));
  return share_nodes(read_node(reader.at("value"), shared, 0));
}

ScalarExpr scalar_expr_from_json(const json& value) { return read_scalar_expr(JsonReader(value, "expression")); }

}  // namespace nestor
