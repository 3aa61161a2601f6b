// Scalar expressions: construction, traversal, text.
#include "poly/nest/scalar_expr.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "support/error.h"

namespace nestor {
namespace {

struct OpInfo {
  ScalarOp op;
  std::string_view name;
  int arity;
};

constexpr std::array kOps{
    OpInfo{ScalarOp::constant, "constant", 0},
    OpInfo{ScalarOp::index, "index", 0},
    OpInfo{ScalarOp::scalar, "scalar", 0},
    OpInfo{ScalarOp::read, "read", 0},
    OpInfo{ScalarOp::add, "add", 2},
    OpInfo{ScalarOp::sub, "sub", 2},
    OpInfo{ScalarOp::mul, "mul", 2},
    OpInfo{ScalarOp::div, "div", 2},
    OpInfo{ScalarOp::min, "min", 2},
    OpInfo{ScalarOp::max, "max", 2},
    OpInfo{ScalarOp::pow, "pow", 2},
    OpInfo{ScalarOp::neg, "neg", 1},
    OpInfo{ScalarOp::abs, "abs", 1},
    OpInfo{ScalarOp::exp, "exp", 1},
    OpInfo{ScalarOp::exp2, "exp2", 1},
    OpInfo{ScalarOp::log, "log", 1},
    OpInfo{ScalarOp::sqrt, "sqrt", 1},
    OpInfo{ScalarOp::rsqrt, "rsqrt", 1},
    OpInfo{ScalarOp::tanh, "tanh", 1},
    OpInfo{ScalarOp::erf, "erf", 1},
    OpInfo{ScalarOp::sin, "sin", 1},
    OpInfo{ScalarOp::cos, "cos", 1},
    OpInfo{ScalarOp::log1p, "log1p", 1},
    OpInfo{ScalarOp::expm1, "expm1", 1},
    OpInfo{ScalarOp::atan, "atan", 1},
    OpInfo{ScalarOp::floor, "floor", 1},
    OpInfo{ScalarOp::cast, "cast", 1},
    OpInfo{ScalarOp::select, "select", 3},
    OpInfo{ScalarOp::lt, "lt", 2},
    OpInfo{ScalarOp::le, "le", 2},
    OpInfo{ScalarOp::eq, "eq", 2},
    OpInfo{ScalarOp::logical_and, "and", 2},
    OpInfo{ScalarOp::logical_or, "or", 2},
    OpInfo{ScalarOp::logical_not, "not", 1},
    OpInfo{ScalarOp::bit_and, "bit_and", 2},
    OpInfo{ScalarOp::bit_or, "bit_or", 2},
    OpInfo{ScalarOp::bit_xor, "bit_xor", 2},
    OpInfo{ScalarOp::shift_left, "shift_left", 2},
    OpInfo{ScalarOp::shift_right_logical, "shift_right_logical", 2},
    OpInfo{ScalarOp::mul_high_unsigned, "mul_high_unsigned", 2},
};

const OpInfo& info_of(ScalarOp op) { return kOps.at(static_cast<std::size_t>(op)); }

ElementType result_type(ScalarOp op, const std::vector<ScalarExpr>& args) {
  switch (op) {
    case ScalarOp::lt:
    case ScalarOp::le:
    case ScalarOp::eq:
    case ScalarOp::logical_and:
    case ScalarOp::logical_or:
    case ScalarOp::logical_not:
      return ElementType::boolean;
    case ScalarOp::select:
      return args[1].type();
    default:
      return args[0].type();
  }
}

std::string_view infix_symbol(ScalarOp op) {
  switch (op) {
    case ScalarOp::add:
      return "+";
    case ScalarOp::sub:
      return "-";
    case ScalarOp::mul:
      return "*";
    case ScalarOp::div:
      return "/";
    case ScalarOp::lt:
      return "<";
    case ScalarOp::le:
      return "<=";
    case ScalarOp::eq:
      return "==";
    case ScalarOp::logical_and:
      return "&&";
    case ScalarOp::logical_or:
      return "||";
    case ScalarOp::bit_and:
      return "&";
    case ScalarOp::bit_or:
      return "|";
    case ScalarOp::bit_xor:
      return "^";
    case ScalarOp::shift_left:
      return "<<";
    case ScalarOp::shift_right_logical:
      return ">>";
    default:
      return "";
  }
}

std::string number_text(double number) {
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return fmt::format("{}", number);
}

}  // namespace

std::string_view to_string(ScalarOp op) { return info_of(op).name; }

ScalarOp scalar_op_from(std::string_view name) {
  for (const OpInfo& info : kOps) {
    if (info.name == name) return info.op;
  }
  user_error("\"{}\" is no scalar operation", name);
}

int arity(ScalarOp op) { return info_of(op).arity; }

ScalarExpr ScalarExpr::constant(double number, ElementType type) {
  return ScalarExpr(Node{ScalarOp::constant, type, number, -1, {}, {}});
}

ScalarExpr ScalarExpr::index(int ordinal) { return ScalarExpr(Node{ScalarOp::index, ElementType::i32, 0, ordinal, {}, {}}); }

ScalarExpr ScalarExpr::scalar(std::string name, ElementType type) {
  return ScalarExpr(Node{ScalarOp::scalar, type, 0, -1, std::move(name), {}});
}

ScalarExpr ScalarExpr::read(int ordinal, ElementType type) { return ScalarExpr(Node{ScalarOp::read, type, 0, ordinal, {}, {}}); }

ScalarExpr ScalarExpr::cast(ElementType type, ScalarExpr value) {
  if (!value.defined()) internal_error("cast of an undefined expression");
  return ScalarExpr(Node{ScalarOp::cast, type, 0, -1, {}, {std::move(value)}});
}

ScalarExpr ScalarExpr::make(ScalarOp op, std::vector<ScalarExpr> args) {
  const OpInfo& info = info_of(op);
  if (info.arity == 0 || op == ScalarOp::cast) internal_error("{} has its own factory", info.name);
  if (static_cast<int>(args.size()) != info.arity) {
    internal_error("{} takes {} arguments, not {}", info.name, info.arity, args.size());
  }
  for (const ScalarExpr& arg : args) {
    if (!arg.defined()) internal_error("{} of an undefined expression", info.name);
  }
  const ElementType type = result_type(op, args);
  return ScalarExpr(Node{op, type, 0, -1, {}, std::move(args)});
}

namespace {

/// Compares two expressions. Pairs of parts are compared once: without that, ones that use each part twice would take for ever.
class Comparison {
 public:
  bool same(const ScalarExpr& a, const ScalarExpr& b) {
    if (!a.defined() || !b.defined()) return a.defined() == b.defined();
    if (&a.args() == &b.args()) return true;  // one node
    const bool same_number = a.number() == b.number() || (std::isnan(a.number()) && std::isnan(b.number()));
    if (a.op() != b.op() || a.type() != b.type() || !same_number || std::signbit(a.number()) != std::signbit(b.number()) ||
        a.ordinal() != b.ordinal() || a.name() != b.name() || a.args().size() != b.args().size()) {
      return false;
    }
    // A pair that was met before is equal, or the comparison has ended. Few nodes are compared sooner than looked up.
    if (++compared_ > kFew && !met_.emplace(&a.args(), &b.args()).second) return true;
    for (std::size_t k = 0; k < a.args().size(); ++k) {
      if (!same(a.args()[k], b.args()[k])) return false;
    }
    return true;
  }

 private:
  static constexpr int kFew = 64;
  int compared_ = 0;
  std::set<std::pair<const void*, const void*>> met_;
};

}  // namespace

bool ScalarExpr::equals(const ScalarExpr& other) const { return Comparison().same(*this, other); }

ScalarExpr ScalarExpr::with_args(std::vector<ScalarExpr> args) const {
  if (args.empty()) return *this;
  return op() == ScalarOp::cast ? cast(type(), std::move(args[0])) : make(op(), std::move(args));
}

void ScalarExpr::visit(const std::function<void(const ScalarExpr&)>& visitor) const {
  std::unordered_set<const Node*> seen;
  const std::function<void(const ScalarExpr&)> walk = [&](const ScalarExpr& expr) {
    if (!seen.insert(expr.node_.get()).second) return;
    visitor(expr);
    for (const ScalarExpr& arg : expr.args()) walk(arg);
  };
  if (defined()) walk(*this);
}

ScalarExpr ScalarExpr::rewrite(const std::function<ScalarExpr(const ScalarExpr&)>& rewriter) const {
  std::unordered_map<const Node*, ScalarExpr> done;
  const std::function<ScalarExpr(const ScalarExpr&)> walk = [&](const ScalarExpr& expr) {
    if (const auto known = done.find(expr.node_.get()); known != done.end()) return known->second;
    std::vector<ScalarExpr> fresh;
    bool changed = false;
    for (const ScalarExpr& arg : expr.args()) {
      fresh.push_back(walk(arg));
      changed = changed || fresh.back().node_ != arg.node_;
    }
    const ScalarExpr result = rewriter(changed ? expr.with_args(std::move(fresh)) : expr);
    done.emplace(expr.node_.get(), result);
    return result;
  };
  return defined() ? walk(*this) : *this;
}

bool ScalarExpr::reads(int ordinal) const {
  bool found = false;
  visit([&](const ScalarExpr& node) { found = found || (node.op() == ScalarOp::read && node.ordinal() == ordinal); });
  return found;
}

namespace {

/// The text of an expression. What is met again and would be long is named: ones that use each part twice would fill the memory.
class Printer {
 public:
  Printer(const std::function<std::string(int)>& read_name, const std::function<std::string(int)>& index_name)
      : read_name_(read_name), index_name_(index_name) {}

  std::string text(const ScalarExpr& expr) {
    const std::string whole = of(expr);
    if (definitions_.empty()) return whole;
    return fmt::format("{} where {}", whole, fmt::join(definitions_, ", "));
  }

 private:
  static constexpr std::size_t kLongestText = 4096;  ///< of a part that is written once more

  std::string of(const ScalarExpr& expr) {
    const auto known = known_.find(&expr.args());
    if (expr.args().empty() || known == known_.end()) {
      std::string text = new_text(expr);
      if (text.size() > kLongestText) {
        const std::string name = fmt::format("v{}", definitions_.size());
        definitions_.push_back(fmt::format("{} = {}", name, text));
        text = name;
      }
      if (!expr.args().empty()) known_.emplace(&expr.args(), text);
      return text;
    }
    return known->second;
  }

  std::string new_text(const ScalarExpr& expr) {
    switch (expr.op()) {
      case ScalarOp::constant:
        return number_text(expr.number());
      case ScalarOp::index:
        return index_name_(expr.ordinal());
      case ScalarOp::scalar:
        return expr.name();
      case ScalarOp::read:
        return read_name_(expr.ordinal());
      default:
        break;
    }
    std::vector<std::string> parts;
    for (const ScalarExpr& arg : expr.args()) parts.push_back(of(arg));
    const std::string_view symbol = infix_symbol(expr.op());
    if (!symbol.empty()) return fmt::format("({} {} {})", parts[0], symbol, parts[1]);
    if (expr.op() == ScalarOp::neg) return "-" + parts[0];
    if (expr.op() == ScalarOp::logical_not) return "!" + parts[0];
    const std::string_view called = expr.op() == ScalarOp::cast ? to_string(expr.type()) : to_string(expr.op());
    return fmt::format("{}({})", called, fmt::join(parts, ", "));
  }

  const std::function<std::string(int)>& read_name_;
  const std::function<std::string(int)>& index_name_;
  std::map<const void*, std::string> known_;  ///< by the address of a node's arguments, which the expression keeps alive
  std::vector<std::string> definitions_;
};

}  // namespace

std::string ScalarExpr::str(const std::function<std::string(int)>& read_name,
                            const std::function<std::string(int)>& index_name) const {
  return defined() ? Printer(read_name, index_name).text(*this) : "(undefined)";
}

std::string_view to_string(ReductionOp op) {
  switch (op) {
    case ReductionOp::add:
      return "add";
    case ReductionOp::mul:
      return "mul";
    case ReductionOp::min:
      return "min";
    case ReductionOp::max:
      return "max";
  }
  return "add";
}

ReductionOp reduction_op_from(std::string_view name) {
  for (const ReductionOp op : {ReductionOp::add, ReductionOp::mul, ReductionOp::min, ReductionOp::max}) {
    if (to_string(op) == name) return op;
  }
  user_error("\"{}\" is no reduction; the reductions are add, mul, min and max", name);
}

double neutral_element(ReductionOp op, ElementType type) {
  using Integer = std::numeric_limits<std::int32_t>;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool integer = type == ElementType::i32;
  switch (op) {
    case ReductionOp::add:
      return 0;
    case ReductionOp::mul:
      return 1;
    case ReductionOp::min:
      return integer ? Integer::max() : kInfinity;
    case ReductionOp::max:
      return integer ? Integer::min() : -kInfinity;
  }
  return 0;
}

ScalarOp combiner(ReductionOp op) {
  switch (op) {
    case ReductionOp::add:
      return ScalarOp::add;
    case ReductionOp::mul:
      return ScalarOp::mul;
    case ReductionOp::min:
      return ScalarOp::min;
    case ReductionOp::max:
      return ScalarOp::max;
  }
  return ScalarOp::add;
}

}  // namespace nestor
