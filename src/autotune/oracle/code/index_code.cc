// Translation of isl's AST into index code.
#include "autotune/oracle/code/index_code.h"

#include "support/error.h"

#include <isl/id.h>
#include <isl/val.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>

namespace nestor {
namespace {

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}

std::string name_of(__isl_take isl_id* id) {
  std::string name = isl_id_get_name(id);
  isl_id_free(id);
  return name;
}

std::string identifier(__isl_take isl_ast_expr* expr) {
  std::string name = name_of(isl_ast_expr_get_id(expr));
  isl_ast_expr_free(expr);
  return name;
}

}  // namespace

IndexExpr::IndexExpr(std::int64_t constant) { root_ = add_node({Op::constant, constant}); }

IndexExpr::IndexExpr(__isl_keep isl_ast_expr* expr, const SlotMap& slots) { root_ = compile(expr, slots); }

IndexExpr::IndexExpr(std::int64_t constant, const std::vector<std::pair<int, std::int64_t>>& factors) {
  int sum = -1;
  for (const auto& [slot, factor] : factors) {
    int term = add_node({Op::slot, slot});
    if (factor != 1) term = add_node({Op::mul, 0, add_node({Op::constant, factor}), term});
    sum = sum < 0 ? term : add_node({Op::add, 0, sum, term});
  }
  if (sum < 0 || constant != 0) {
    const int number = add_node({Op::constant, constant});
    sum = sum < 0 ? number : add_node({Op::add, 0, sum, number});
  }
  root_ = sum;
}

int IndexExpr::add_node(Node node) {
  nodes_.push_back(node);
  return static_cast<int>(nodes_.size()) - 1;
}

int IndexExpr::compile(__isl_keep isl_ast_expr* expr, const SlotMap& slots) {
  switch (isl_ast_expr_get_type(expr)) {
    case isl_ast_expr_int: {
      isl_val* value = isl_ast_expr_get_val(expr);
      const std::int64_t number = isl_val_get_num_si(value);
      isl_val_free(value);
      return add_node({Op::constant, number});
    }
    case isl_ast_expr_id: {
      const std::string name = name_of(isl_ast_expr_get_id(expr));
      const auto slot = slots.find(name);
      if (slot == slots.end()) internal_error("index code: variable '{}' has no slot", name);
      return add_node({Op::slot, slot->second});
    }
    default:
      break;
  }
  const auto argument = [&](int k) {
    isl_ast_expr* child = isl_ast_expr_get_op_arg(expr, k);
    const int node = compile(child, slots);
    isl_ast_expr_free(child);
    return node;
  };
  const auto fold = [&](Op op) {
    int node = argument(0);
    const int count = static_cast<int>(isl_ast_expr_get_op_n_arg(expr));
    for (int k = 1; k < count; ++k) node = add_node({op, 0, node, argument(k)});
    return node;
  };
  const auto binary = [&](Op op) {
    const int a = argument(0);
    const int b = argument(1);
    return add_node({op, 0, a, b});
  };
  switch (isl_ast_expr_get_op_type(expr)) {
    case isl_ast_op_and:
    case isl_ast_op_and_then:
      return fold(Op::both);
    case isl_ast_op_or:
    case isl_ast_op_or_else:
      return fold(Op::either);
    case isl_ast_op_max:
      return fold(Op::max);
    case isl_ast_op_min:
      return fold(Op::min);
    case isl_ast_op_minus:
      return add_node({Op::neg, 0, argument(0)});
    case isl_ast_op_add:
      return binary(Op::add);
    case isl_ast_op_sub:
      return binary(Op::sub);
    case isl_ast_op_mul:
      return binary(Op::mul);
    case isl_ast_op_div:
    case isl_ast_op_fdiv_q:
    case isl_ast_op_pdiv_q:
      return binary(Op::floor_div);
    case isl_ast_op_pdiv_r:
    case isl_ast_op_zdiv_r:
      return binary(Op::mod);
    case isl_ast_op_cond:
    case isl_ast_op_select: {
      const int a = argument(0);
      const int b = argument(1);
      return add_node({Op::select, 0, a, b, argument(2)});
    }
    case isl_ast_op_eq:
      return binary(Op::eq);
    case isl_ast_op_le:
      return binary(Op::le);
    case isl_ast_op_lt:
      return binary(Op::lt);
    case isl_ast_op_ge:
      return binary(Op::ge);
    case isl_ast_op_gt:
      return binary(Op::gt);
    default:
      internal_error("index code: isl operation {} is not known", static_cast<int>(isl_ast_expr_get_op_type(expr)));
  }
}

namespace {

using Numbers = std::array<std::int64_t, IndexExpr::kMostPoints>;

/// Floors of quotients by one number, as indices have them: a shift, or a division of 32 bits, which takes half the time of one of 64.
void divide(std::int64_t* out, std::int64_t divisor, int count) {
  if (divisor > 0 && (divisor & (divisor - 1)) == 0) {
    const int bits = std::countr_zero(static_cast<std::uint64_t>(divisor));
    for (int k = 0; k < count; ++k) out[k] >>= bits;
    return;
  }
  const auto [low, high] = std::minmax_element(out, out + count);
  if (divisor > 0 && *low >= 0 && *high <= std::numeric_limits<std::uint32_t>::max() &&
      divisor <= std::numeric_limits<std::uint32_t>::max()) {
    const auto short_divisor = static_cast<std::uint32_t>(divisor);
    for (int k = 0; k < count; ++k) out[k] = static_cast<std::uint32_t>(out[k]) / short_divisor;
    return;
  }
  for (int k = 0; k < count; ++k) out[k] = floor_divide(out[k], divisor);
}

}  // namespace

std::int64_t IndexExpr::combine(Op op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case Op::add:
      return a + b;
    case Op::sub:
      return a - b;
    case Op::mul:
      return a * b;
    case Op::floor_div:
      return floor_divide(a, b);
    case Op::mod:
      return a - b * floor_divide(a, b);
    case Op::min:
      return std::min(a, b);
    case Op::max:
      return std::max(a, b);
    case Op::eq:
      return a == b;
    case Op::le:
      return a <= b;
    case Op::lt:
      return a < b;
    case Op::ge:
      return a >= b;
    case Op::gt:
      return a > b;
    case Op::both:
      return a && b;
    case Op::either:
      return a || b;
    case Op::constant:
    case Op::slot:
    case Op::neg:
    case Op::select:
      break;
  }
  return 0;
}

std::int64_t IndexExpr::evaluate_node(int index, const std::int64_t* frame) const {
  const Node& node = nodes_[index];
  if (node.op == Op::constant) return node.value;
  if (node.op == Op::slot) return frame[node.value];
  const std::int64_t a = evaluate_node(node.a, frame);
  if (node.op == Op::neg) return -a;
  if (node.op == Op::select) return evaluate_node(a ? node.b : node.c, frame);
  if ((node.op == Op::both && !a) || (node.op == Op::either && a)) return node.op == Op::either;
  return combine(node.op, a, evaluate_node(node.b, frame));
}

/// All operands at all points, whether they decide or not.
void IndexExpr::evaluate_node(int index, const Points& points, std::int64_t* out) const {
  const Node& node = nodes_[index];
  const int count = points.count;
  if (node.op == Op::constant) {
    std::fill_n(out, count, node.value);
    return;
  }
  if (node.op == Op::slot) {
    const auto slot = static_cast<std::size_t>(node.value);
    const std::int64_t first = points.frame[slot], step = count > 1 && slot < points.along.size() ? points.along[slot] : 0;
    for (int k = 0; k < count; ++k) out[k] = first + k * step;
    return;
  }
  evaluate_node(node.a, points, out);
  if (node.op == Op::neg) {
    std::transform(out, out + count, out, std::negate<>());
    return;
  }
  const Node& second = nodes_[static_cast<std::size_t>(node.b)];
  if (node.op == Op::floor_div && second.op == Op::constant) return divide(out, second.value, count);
  Numbers b;
  evaluate_node(node.b, points, b.data());
  if (node.op == Op::select) {
    Numbers c;
    evaluate_node(node.c, points, c.data());
    for (int k = 0; k < count; ++k) out[k] = out[k] ? b[k] : c[k];
    return;
  }
  if (node.op == Op::mod && second.op == Op::constant) {
    Numbers quotient;
    std::copy_n(out, count, quotient.begin());
    divide(quotient.data(), second.value, count);
    for (int k = 0; k < count; ++k) out[k] -= second.value * quotient[k];
    return;
  }
  const auto each = [&](auto function) { std::transform(out, out + count, b.begin(), out, function); };
  switch (node.op) {
    case Op::add:
      return each(std::plus<>());
    case Op::sub:
      return each(std::minus<>());
    case Op::mul:
      return each(std::multiplies<>());
    case Op::ge:
      return each(std::greater_equal<>());
    case Op::le:
      return each(std::less_equal<>());
    case Op::both:
      return each(std::logical_and<>());
    default:
      return each([&](std::int64_t x, std::int64_t y) { return combine(node.op, x, y); });
  }
}

bool IndexExpr::uses(int index, int slot) const {
  const Node& node = nodes_[index];
  if (node.op == Op::slot) return node.value == slot;
  return (node.a >= 0 && uses(node.a, slot)) || (node.b >= 0 && uses(node.b, slot)) || (node.c >= 0 && uses(node.c, slot));
}

std::optional<std::int64_t> IndexExpr::coefficient_of(int index, int slot) const {
  std::int64_t factor = 0;
  return linear_factor(index, slot, factor) ? std::optional<std::int64_t>(factor) : std::nullopt;
}

bool IndexExpr::linear_factor(int index, int slot, std::int64_t& factor) const {
  const Node& node = nodes_[index];
  factor = 0;
  if (!uses(index, slot)) return true;
  if (node.op == Op::slot) {
    factor = 1;
    return true;
  }
  if (node.op != Op::neg && node.op != Op::add && node.op != Op::sub && node.op != Op::mul) return false;
  std::int64_t a = 0, b = 0;
  if (!linear_factor(node.a, slot, a)) return false;
  if (node.op == Op::neg) {
    factor = -a;
    return true;
  }
  if (!linear_factor(node.b, slot, b)) return false;
  if (node.op == Op::mul) {
    const Node& left = nodes_[node.a];
    const Node& right = nodes_[node.b];
    if (left.op != Op::constant && right.op != Op::constant) return false;
    factor = left.op == Op::constant ? left.value * b : right.value * a;
    return true;
  }
  factor = node.op == Op::add ? a + b : a - b;
  return true;
}

namespace {

LoopCode compile_for(__isl_keep isl_ast_node* node, SlotMap& slots) {
  LoopCode code;
  code.kind = LoopCode::Kind::loop;
  const std::string iterator = identifier(isl_ast_node_for_get_iterator(node));
  code.slot = slots.emplace(iterator, static_cast<int>(slots.size())).first->second;
  isl_ast_expr* init = isl_ast_node_for_get_init(node);
  code.lower = IndexExpr(init, slots);
  isl_ast_expr_free(init);
  if (isl_ast_node_for_is_degenerate(node) == isl_bool_true) {
    code.upper = code.lower;
  } else {
    isl_ast_expr* condition = isl_ast_node_for_get_cond(node);
    const isl_ast_expr_op_type type = isl_ast_expr_get_op_type(condition);
    isl_ast_expr* bound = isl_ast_expr_get_op_arg(condition, 1);
    if (type == isl_ast_op_lt) {
      isl_ctx* ctx = isl_ast_expr_get_ctx(bound);
      bound = isl_ast_expr_sub(bound, isl_ast_expr_from_val(isl_val_one(ctx)));
    } else if (type != isl_ast_op_le) {
      internal_error("index code: loop condition of isl type {}", static_cast<int>(type));
    }
    code.upper = IndexExpr(bound, slots);
    isl_ast_expr_free(bound);
    isl_ast_expr_free(condition);
    isl_ast_expr* increment = isl_ast_node_for_get_inc(node);
    code.step = IndexExpr(increment, slots).evaluate(nullptr);
    isl_ast_expr_free(increment);
  }
  isl_ast_node* body = isl_ast_node_for_get_body(node);
  code.children.push_back(compile_loops(body, slots));
  isl_ast_node_free(body);
  return code;
}

LoopCode compile_if(__isl_keep isl_ast_node* node, SlotMap& slots) {
  LoopCode code;
  code.kind = LoopCode::Kind::condition;
  isl_ast_expr* condition = isl_ast_node_if_get_cond(node);
  code.condition = IndexExpr(condition, slots);
  isl_ast_expr_free(condition);
  isl_ast_node* then_node = isl_ast_node_if_get_then_node(node);
  code.children.push_back(compile_loops(then_node, slots));
  isl_ast_node_free(then_node);
  if (isl_ast_node_if_has_else_node(node) == isl_bool_true) {
    isl_ast_node* else_node = isl_ast_node_if_get_else_node(node);
    code.children.push_back(compile_loops(else_node, slots));
    isl_ast_node_free(else_node);
  }
  return code;
}

LoopCode compile_user(__isl_keep isl_ast_node* node, const SlotMap& slots) {
  LoopCode code;
  code.kind = LoopCode::Kind::statement;
  isl_ast_expr* call = isl_ast_node_user_get_expr(node);
  code.statement = identifier(isl_ast_expr_get_op_arg(call, 0));
  const int count = static_cast<int>(isl_ast_expr_get_op_n_arg(call));
  for (int k = 1; k < count; ++k) {
    isl_ast_expr* argument = isl_ast_expr_get_op_arg(call, k);
    code.arguments.emplace_back(argument, slots);
    isl_ast_expr_free(argument);
  }
  isl_ast_expr_free(call);
  return code;
}

}  // namespace

LoopCode compile_loops(__isl_keep isl_ast_node* node, SlotMap& slots) {
  switch (isl_ast_node_get_type(node)) {
    case isl_ast_node_for:
      return compile_for(node, slots);
    case isl_ast_node_if:
      return compile_if(node, slots);
    case isl_ast_node_user:
      return compile_user(node, slots);
    case isl_ast_node_block: {
      LoopCode code;
      isl_ast_node_list* list = isl_ast_node_block_get_children(node);
      const int count = static_cast<int>(isl_ast_node_list_n_ast_node(list));
      for (int k = 0; k < count; ++k) {
        isl_ast_node* child = isl_ast_node_list_get_ast_node(list, k);
        code.children.push_back(compile_loops(child, slots));
        isl_ast_node_free(child);
      }
      isl_ast_node_list_free(list);
      return code;
    }
    default:
      internal_error("index code: isl AST node of type {}", static_cast<int>(isl_ast_node_get_type(node)));
  }
}

}  // namespace nestor
