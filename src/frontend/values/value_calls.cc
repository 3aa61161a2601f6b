// Halide's value expressions -> ScalarExpr: reads, intrinsics and mathematical functions.
#include <limits>

#include "frontend/values/value_translator.h"

namespace nestor {

namespace ir = Halide::Internal;
using Halide::Expr;

namespace {

ScalarExpr one_argument(ScalarOp op, const ScalarExpr& x) { return ScalarExpr::make(op, {x}); }
ScalarExpr two_arguments(ScalarOp op, const ScalarExpr& x, const ScalarExpr& y) { return ScalarExpr::make(op, {x, y}); }
ScalarExpr integer(std::int32_t value) { return ScalarExpr::constant(value, ElementType::i32); }

ScalarExpr ceiling(const ScalarExpr& x) {
  return one_argument(ScalarOp::neg, one_argument(ScalarOp::floor, one_argument(ScalarOp::neg, x)));
}

/// "exp_f32", "exp_f16" and C's "expf" -> "exp".
std::string function_stem(std::string name) {
  for (const char* suffix : {"_f32", "_f16"}) {
    const std::string ending(suffix);
    if (name.size() > ending.size() && name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  static const std::set<std::string> c_functions{"expf",   "exp2f", "logf", "sqrtf",  "tanhf", "erff", "fabsf",
                                                 "floorf", "ceilf", "powf", "truncf", "sinf",  "cosf", "atanf"};
  if (c_functions.count(name) != 0) name.pop_back();
  return name == "fabs" ? "abs" : name;
}

const std::map<std::string, ScalarOp>& simple_functions() {
  static const std::map<std::string, ScalarOp> all{
      {"exp", ScalarOp::exp},   {"exp2", ScalarOp::exp2},   {"log", ScalarOp::log}, {"sqrt", ScalarOp::sqrt},
      {"tanh", ScalarOp::tanh}, {"erf", ScalarOp::erf},     {"sin", ScalarOp::sin}, {"cos", ScalarOp::cos},
      {"atan", ScalarOp::atan}, {"floor", ScalarOp::floor}, {"abs", ScalarOp::abs}, {"fast_inverse_sqrt", ScalarOp::rsqrt}};
  return all;
}

}  // namespace

ScalarExpr ValueTranslator::visit_call(const ir::Call& call) {
  switch (call.call_type) {
    case ir::Call::Halide:
    case ir::Call::Image:
      return visit_read(call);
    case ir::Call::Intrinsic:
    case ir::Call::PureIntrinsic:
      return visit_intrinsic(call);
    case ir::Call::PureExtern:
      return visit_function(call);
    default:
      refuse_value(Expr(&call), "calls an external function, of which Nestor knows nothing");
  }
}

ScalarExpr ValueTranslator::visit_read(const ir::Call& call) {
  const TensorRef tensor = lookup_(call);
  ReadDraft read{tensor.name, indices_of(call.args, tensor.name), guard_};
  std::size_t ordinal = 0;
  const auto same = [&](const ReadDraft& other) {
    if (other.tensor != read.tensor) return false;
    for (std::size_t k = 0; k < read.index.size(); ++k) {
      if (!other.index[k].plain_is_equal(read.index[k])) return false;
    }
    return true;
  };
  while (ordinal < reads_.size() && !same(reads_[ordinal])) ++ordinal;
  if (ordinal == reads_.size()) {
    reads_.push_back(read);
  } else {
    reads_[ordinal].guard = reads_[ordinal].guard.unite(read.guard).coalesce();
  }
  const ScalarExpr value = ScalarExpr::read(static_cast<int>(ordinal), tensor.type);
  if (tensor.boolean) return one_argument(ScalarOp::logical_not, two_arguments(ScalarOp::eq, value, integer(0)));
  const bool narrow = tensor.type == ElementType::f16 || tensor.type == ElementType::bf16;
  return narrow ? ScalarExpr::cast(ElementType::f32, value) : value;
}

ScalarExpr ValueTranslator::visit_intrinsic(const ir::Call& call) {
  const Expr whole(&call);
  const auto& args = call.args;
  if (call.is_intrinsic(ir::Call::abs)) return one_argument(ScalarOp::abs, visit(args[0]));
  if (call.is_intrinsic(ir::Call::absd) && args[0].type().is_float()) {
    return one_argument(ScalarOp::abs, two_arguments(ScalarOp::sub, visit(args[0]), visit(args[1])));
  }
  if (call.is_intrinsic(ir::Call::if_then_else) && args.size() == 3) return visit_select(args[0], args[1], args[2]);
  if (call.is_intrinsic(ir::Call::return_second)) return visit(args[1]);
  if (call.is_intrinsic(ir::Call::lerp) && call.type == Halide::Float(32) && args[2].type() == Halide::Float(32)) {
    const ScalarExpr weight = visit(args[2]);
    const ScalarExpr rest = two_arguments(ScalarOp::sub, ScalarExpr::constant(1), weight);
    return two_arguments(ScalarOp::add, two_arguments(ScalarOp::mul, visit(args[0]), rest),
                         two_arguments(ScalarOp::mul, visit(args[1]), weight));
  }
  if (call.is_intrinsic(ir::Call::undef)) refuse_value(whole, "uses an undefined value within an expression");
  if (call.is_intrinsic(ir::Call::mul_shift_right) && call.type == Halide::UInt(32) && args[0].type() == Halide::UInt(32) &&
      args[1].type() == Halide::UInt(32) && constant_of(args[2]) == 32) {
    return two_arguments(ScalarOp::mul_high_unsigned, visit(args[0]), visit(args[1]));
  }
  const bool word = call.type.is_int_or_uint() && call.type.bits() == 32;
  if (word) return visit_bits(call);
  if (call.type.is_bool() && call.is_intrinsic(ir::Call::bitwise_not)) return one_argument(ScalarOp::logical_not, visit(args[0]));
  if (call.type.is_bool() && call.is_intrinsic(ir::Call::bitwise_and)) {
    return two_arguments(ScalarOp::logical_and, visit(args[0]), visit(args[1]));
  }
  if (call.type.is_bool() && call.is_intrinsic(ir::Call::bitwise_or)) {
    return two_arguments(ScalarOp::logical_or, visit(args[0]), visit(args[1]));
  }
  refuse_value(whole, fmt::format("uses the intrinsic '{}', which Nestor does not translate", call.name));
}

ScalarExpr ValueTranslator::visit_bits(const ir::Call& call) {
  const Expr whole(&call);
  const auto& args = call.args;
  const auto both = [&](ScalarOp op) { return two_arguments(op, visit(args[0]), visit(args[1])); };
  if (call.is_intrinsic(ir::Call::bitwise_and)) return both(ScalarOp::bit_and);
  if (call.is_intrinsic(ir::Call::bitwise_or)) return both(ScalarOp::bit_or);
  if (call.is_intrinsic(ir::Call::bitwise_xor)) return both(ScalarOp::bit_xor);
  if (call.is_intrinsic(ir::Call::bitwise_not)) return two_arguments(ScalarOp::bit_xor, visit(args[0]), integer(-1));
  const bool left = call.is_intrinsic(ir::Call::shift_left);
  if (!left && !call.is_intrinsic(ir::Call::shift_right)) {
    refuse_value(whole, fmt::format("uses the intrinsic '{}', which Nestor does not translate", call.name));
  }
  const std::optional<std::int64_t> amount = constant_of(args[1]);
  // A negative amount of a signed type would shift the other way.
  if (!args[1].type().is_uint() && !(amount && *amount >= 0))
    refuse_value(whole, "shifts by a signed amount that may be negative");
  const ScalarExpr value = visit(args[0]);
  const ScalarExpr by = amount ? integer(static_cast<std::int32_t>(*amount)) : visit(args[1]);
  if (left) return two_arguments(ScalarOp::shift_left, value, by);
  ScalarExpr logical = two_arguments(ScalarOp::shift_right_logical, value, by);
  if (args[0].type().is_uint()) return logical;
  const ScalarExpr flipped = two_arguments(ScalarOp::bit_xor, value, integer(-1));
  const ScalarExpr negative =
      two_arguments(ScalarOp::bit_xor, two_arguments(ScalarOp::shift_right_logical, flipped, by), integer(-1));
  return ScalarExpr::make(ScalarOp::select, {two_arguments(ScalarOp::lt, value, integer(0)), negative, logical});
}

ScalarExpr ValueTranslator::visit_function(const ir::Call& call) {
  const Expr whole(&call);
  const std::string stem = function_stem(call.name);
  std::vector<ScalarExpr> args;
  args.reserve(call.args.size());
  for (const Expr& arg : call.args) args.push_back(visit(arg));
  const auto round_result = [&](const ScalarExpr& value) {
    if (!call.type.is_float() || call.type.bits() == 32) return value;
    return ScalarExpr::cast(ElementType::f32, ScalarExpr::cast(element_type_of(call.type, place_, whole), value));
  };
  if (const auto simple = simple_functions().find(stem); simple != simple_functions().end() && args.size() == 1) {
    return round_result(one_argument(simple->second, args[0]));
  }
  if (stem == "pow" && args.size() == 2) {
    if (args[0].is_constant(2)) return round_result(one_argument(ScalarOp::exp2, args[1]));
    return round_result(two_arguments(ScalarOp::pow, args[0], args[1]));
  }
  if (args.size() == 1) {
    const ScalarExpr& x = args[0];
    const ScalarExpr infinity = ScalarExpr::constant(std::numeric_limits<double>::infinity());
    const ScalarExpr magnitude = one_argument(ScalarOp::abs, x);
    if (stem == "fast_inverse") return two_arguments(ScalarOp::div, ScalarExpr::constant(1), x);
    if (stem == "ceil") return round_result(ceiling(x));
    if (stem == "trunc") {
      const ScalarExpr negative = two_arguments(ScalarOp::lt, x, ScalarExpr::constant(0));
      return round_result(ScalarExpr::make(ScalarOp::select, {negative, ceiling(x), one_argument(ScalarOp::floor, x)}));
    }
    if (stem == "is_nan") return one_argument(ScalarOp::logical_not, two_arguments(ScalarOp::eq, x, x));
    if (stem == "is_inf") return two_arguments(ScalarOp::eq, magnitude, infinity);
    if (stem == "is_finite") return two_arguments(ScalarOp::lt, magnitude, infinity);
  }
  refuse_value(whole,
               fmt::format("calls '{}'; known functions are exp, exp2, log, sqrt, tanh, erf, floor, ceil, trunc, abs, pow, "
                           "fast_inverse and fast_inverse_sqrt",
                           call.name));
}

}  // namespace nestor
