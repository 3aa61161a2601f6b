// Compilation and execution of value code; each operation means what nestor::evaluate means by it.
#include "autotune/measure/value_code.h"

#include "poly/scalar_share.h"
#include "support/element_codec.h"
#include "support/error.h"

#include <algorithm>
#include <cmath>

namespace nestor {
namespace {

std::uint32_t word(double value) { return static_cast<std::uint32_t>(static_cast<std::int64_t>(value)); }
double from_word(std::uint32_t bits) { return static_cast<std::int32_t>(bits); }

/// Applies `f` to every point of the chunk.
template <class F>
void each(double* out, int count, F&& f) {
  for (int k = 0; k < count; ++k) out[k] = f(k);
}

/// 32-bit arithmetic wraps around, as it does in the kernels.
double wrapped(ElementType type, double value) {
  if (type != ElementType::i32) return value;
  return from_word(word(value));
}

}  // namespace

ValueCode::ValueCode(const ScalarExpr& expr, const std::map<std::string, double>& scalars) {
  Known known;
  compile(expr, scalars, known);
}

int ValueCode::compile(const ScalarExpr& expr, const std::map<std::string, double>& scalars, Known& known) {
  if (const auto done = known.find(node_identity(expr)); done != known.end()) return done->second;
  Instruction instruction{expr.op(), expr.type(), expr.type()};
  switch (expr.op()) {
    case ScalarOp::constant:
      instruction.number = expr.number();
      break;
    case ScalarOp::scalar: {
      const auto value = scalars.find(expr.name());
      if (value == scalars.end()) user_error("scalar argument '{}' has no value", expr.name());
      instruction.op = ScalarOp::constant;
      instruction.number = value->second;
      break;
    }
    case ScalarOp::read:
    case ScalarOp::index:
      instruction.ordinal = expr.ordinal();
      for (std::size_t k = 0; k < code_.size(); ++k) {
        if (code_[k].op == expr.op() && code_[k].ordinal == expr.ordinal()) return static_cast<int>(k);
      }
      break;
    default: {
      int* const operands[] = {&instruction.a, &instruction.b, &instruction.c};
      for (std::size_t k = 0; k < expr.args().size(); ++k) *operands[k] = compile(expr.args()[k], scalars, known);
      instruction.operand_type = expr.args().at(0).type();
    }
  }
  code_.push_back(instruction);
  known.emplace(node_identity(expr), static_cast<int>(code_.size()) - 1);
  return static_cast<int>(code_.size()) - 1;
}

const double* ValueCode::run(double* memory, LeafSource& source, int n) const {
  const auto result_of = [memory](int position) { return memory + std::ptrdiff_t{kChunk} * std::max(position, 0); };
  for (std::size_t position = 0; position < code_.size(); ++position) {
    const Instruction& i = code_[position];
    double* out = memory + position * kChunk;
    const double *a = result_of(i.a), *b = result_of(i.b), *c = result_of(i.c);
    const bool integer = i.type == ElementType::i32;
    switch (i.op) {
      case ScalarOp::constant:
        std::fill_n(out, n, i.number);
        break;
      case ScalarOp::scalar:
        break;
      case ScalarOp::read:
        source.read(i.ordinal, out, n);
        break;
      case ScalarOp::index:
        source.index(i.ordinal, out, n);
        break;
      case ScalarOp::add:
        integer ? each(out, n, [&](int k) { return wrapped(i.type, a[k] + b[k]); })
                : each(out, n, [&](int k) { return a[k] + b[k]; });
        break;
      case ScalarOp::sub:
        integer ? each(out, n, [&](int k) { return wrapped(i.type, a[k] - b[k]); })
                : each(out, n, [&](int k) { return a[k] - b[k]; });
        break;
      case ScalarOp::mul:
        integer ? each(out, n, [&](int k) { return from_word(word(a[k]) * word(b[k])); })
                : each(out, n, [&](int k) { return a[k] * b[k]; });
        break;
      case ScalarOp::div:
        integer ? each(out, n, [&](int k) { return b[k] == 0 ? 0.0 : wrapped(i.type, std::floor(a[k] / b[k])); })
                : each(out, n, [&](int k) { return a[k] / b[k]; });
        break;
      case ScalarOp::min:
        each(out, n, [&](int k) { return std::min(a[k], b[k]); });
        break;
      case ScalarOp::max:
        each(out, n, [&](int k) { return std::max(a[k], b[k]); });
        break;
      case ScalarOp::pow:
        each(out, n, [&](int k) { return std::pow(a[k], b[k]); });
        break;
      case ScalarOp::neg:
        each(out, n, [&](int k) { return -a[k]; });
        break;
      case ScalarOp::abs:
        each(out, n, [&](int k) { return std::fabs(a[k]); });
        break;
      case ScalarOp::exp:
        each(out, n, [&](int k) { return std::exp(a[k]); });
        break;
      case ScalarOp::exp2:
        each(out, n, [&](int k) { return std::exp2(a[k]); });
        break;
      case ScalarOp::log:
        each(out, n, [&](int k) { return std::log(a[k]); });
        break;
      case ScalarOp::sqrt:
        each(out, n, [&](int k) { return std::sqrt(a[k]); });
        break;
      case ScalarOp::rsqrt:
        each(out, n, [&](int k) { return 1 / std::sqrt(a[k]); });
        break;
      case ScalarOp::tanh:
        each(out, n, [&](int k) { return std::tanh(a[k]); });
        break;
      case ScalarOp::erf:
        each(out, n, [&](int k) { return std::erf(a[k]); });
        break;
      case ScalarOp::floor:
        each(out, n, [&](int k) { return std::floor(a[k]); });
        break;
      case ScalarOp::cast:
        // f32 values stay double: the oracle's error is far below what the type can hold.
        if (i.type == ElementType::f32)
          each(out, n, [&](int k) { return a[k]; });
        else
          each(out, n, [&](int k) { return round_to(i.type, a[k]); });
        break;
      case ScalarOp::select:
        each(out, n, [&](int k) { return a[k] != 0 ? b[k] : c[k]; });
        break;
      case ScalarOp::lt:
        each(out, n, [&](int k) { return a[k] < b[k]; });
        break;
      case ScalarOp::le:
        each(out, n, [&](int k) { return a[k] <= b[k]; });
        break;
      case ScalarOp::eq:
        each(out, n, [&](int k) { return a[k] == b[k]; });
        break;
      case ScalarOp::logical_and:
        each(out, n, [&](int k) { return a[k] != 0 && b[k] != 0; });
        break;
      case ScalarOp::logical_or:
        each(out, n, [&](int k) { return a[k] != 0 || b[k] != 0; });
        break;
      case ScalarOp::logical_not:
        each(out, n, [&](int k) { return a[k] == 0; });
        break;
      case ScalarOp::bit_and:
        each(out, n, [&](int k) { return from_word(word(a[k]) & word(b[k])); });
        break;
      case ScalarOp::bit_or:
        each(out, n, [&](int k) { return from_word(word(a[k]) | word(b[k])); });
        break;
      case ScalarOp::bit_xor:
        each(out, n, [&](int k) { return from_word(word(a[k]) ^ word(b[k])); });
        break;
      case ScalarOp::shift_left:
        each(out, n, [&](int k) { return from_word(word(a[k]) << (word(b[k]) & 31)); });
        break;
      case ScalarOp::shift_right_logical:
        each(out, n, [&](int k) { return from_word(word(a[k]) >> (word(b[k]) & 31)); });
        break;
      case ScalarOp::mul_high_unsigned:
        each(out, n,
             [&](int k) { return from_word(static_cast<std::uint32_t>((std::uint64_t{word(a[k])} * word(b[k])) >> 32)); });
        break;
    }
  }
  return memory + (code_.size() - 1) * kChunk;
}

}  // namespace nestor
