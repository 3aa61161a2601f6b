// Matches an expression against Halide's own expansion of a placeholder: no coefficient is written down here.
#include "frontend/values/idioms.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace nestor {
namespace {

namespace ir = Halide::Internal;
using Halide::Expr;

constexpr const char* kPlaceholder = "nestor.placeholder";

/// A node without its children.
struct Shape {
  std::vector<Expr> children;
  std::string payload;
};

template <class Node>
bool binary(const Expr& expr, Shape& shape) {
  const auto* node = expr.as<Node>();
  if (node != nullptr) shape.children = {node->a, node->b};
  return node != nullptr;
}

/// Constants and whatever the expansions do not contain are compared as whole expressions: nullopt.
std::optional<Shape> shape_of(const Expr& expr) {
  Shape shape;
  if (binary<ir::Add>(expr, shape) || binary<ir::Sub>(expr, shape) || binary<ir::Mul>(expr, shape) ||
      binary<ir::Div>(expr, shape) || binary<ir::Min>(expr, shape) || binary<ir::Max>(expr, shape) ||
      binary<ir::LT>(expr, shape) || binary<ir::LE>(expr, shape) || binary<ir::GT>(expr, shape) || binary<ir::GE>(expr, shape) ||
      binary<ir::EQ>(expr, shape) || binary<ir::NE>(expr, shape) || binary<ir::And>(expr, shape) || binary<ir::Or>(expr, shape)) {
    return shape;
  }
  if (const auto* n = expr.as<ir::Cast>()) return Shape{{n->value}, ""};
#ifdef HALIDE_VERSION_MAJOR  // Halide 15 and later: a node of its own; before, an intrinsic
  if (const auto* n = expr.as<ir::Reinterpret>()) return Shape{{n->value}, ""};
#endif
  if (const auto* n = expr.as<ir::Not>()) return Shape{{n->a}, ""};
  if (const auto* n = expr.as<ir::Select>()) return Shape{{n->condition, n->true_value, n->false_value}, ""};
  if (const auto* n = expr.as<ir::Call>()) {
    if (n->call_type != ir::Call::Halide && n->call_type != ir::Call::Image) return Shape{n->args, n->name};
  }
  return std::nullopt;
}

class Matcher {
 public:
  bool match(const Expr& pattern, const Expr& expr) {
    if (const auto* variable = pattern.as<ir::Variable>(); variable != nullptr && variable->name == kPlaceholder) {
      if (!bound_.defined()) bound_ = expr;
      return bound_.same_as(expr) || ir::equal(bound_, expr);
    }
    if (pattern->node_type != expr->node_type || pattern.type() != expr.type()) return false;
    // Shared nodes are met again and again: as trees the expansions have thousands of nodes.
    if (!seen_.insert({pattern.get(), expr.get()}).second) return true;
    const std::optional<Shape> a = shape_of(pattern);
    const std::optional<Shape> b = shape_of(expr);
    if (!a || !b) return !a && !b && ir::equal(pattern, expr);
    if (a->payload != b->payload || a->children.size() != b->children.size()) return false;
    for (std::size_t k = 0; k < a->children.size(); ++k) {
      if (!match(a->children[k], b->children[k])) return false;
    }
    return true;
  }

  const Expr& bound() const { return bound_; }

 private:
  Expr bound_;
  std::set<std::pair<const ir::IRNode*, const ir::IRNode*>> seen_;
};

struct Template {
  ScalarOp op;
  Expr pattern;
};

const std::vector<Template>& templates() {
  static const std::vector<Template> all = [] {
    const Expr x = ir::Variable::make(Halide::Float(32), kPlaceholder);
    const auto expand = [](const Expr& expr) { return ir::substitute_in_all_lets(ir::common_subexpression_elimination(expr)); };
    return std::vector<Template>{{ScalarOp::erf, expand(Halide::erf(x))},
                                 {ScalarOp::exp, expand(Halide::fast_exp(x))},
                                 {ScalarOp::log, expand(Halide::fast_log(x))}};
  }();
  return all;
}

}  // namespace

std::optional<Idiom> recognize_idiom(const Expr& expr) {
  if (expr.type() != Halide::Float(32)) return std::nullopt;
  for (const Template& known : templates()) {
    Matcher matcher;
    if (matcher.match(known.pattern, expr) && matcher.bound().defined()) return Idiom{known.op, matcher.bound()};
  }
  return std::nullopt;
}

}  // namespace nestor
