// Compilation and execution of value code; each operation means what nestor::evaluate means by it.
#include "autotune/oracle/code/value_code.h"

#include "poly/algebra/values/polynomial.h"
#include "poly/nest/scalar_semantics.h"
#include "poly/nest/scalar_share.h"

#include <algorithm>

namespace nestor {
namespace {

/// Applies `f` to every point of the chunk.
template <class F>
void each(double* out, int count, F&& f) {
  for (int k = 0; k < count; ++k) out[k] = f(k);
}

/// Whether semantics::cast_value leaves every value as it is: to a wider float.
bool keeps_values(ElementType to, ElementType from) { return to == ElementType::f32 && is_float(from); }

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
      instruction.number = semantics::constant_value(expr.type(), expr.number());
      break;
    case ScalarOp::scalar: {
      const auto value = scalars.find(expr.name());
      if (value == scalars.end()) user_error("scalar argument '{}' has no value", expr.name());
      instruction.op = ScalarOp::constant;
      instruction.number = semantics::constant_value(expr.type(), value->second);
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
      case ScalarOp::cast:
        if (keeps_values(i.type, i.operand_type)) {
          std::copy_n(a, n, out);
          break;
        }
        each(out, n, [&](int k) { return semantics::cast_value(i.type, i.operand_type, a[k]); });
        break;
      case ScalarOp::select:
        each(out, n, [&](int k) { return a[k] != 0 ? b[k] : c[k]; });
        break;
      default:
        if (i.b < 0) {
          semantics::with_unary(i.op, i.operand_type, [&](auto f) { each(out, n, [&](int k) { return f(a[k]); }); });
        } else {
          semantics::with_binary(i.op, i.operand_type, [&](auto f) { each(out, n, [&](int k) { return f(a[k], b[k]); }); });
        }
    }
  }
  return memory + (code_.size() - 1) * kChunk;
}

}  // namespace nestor
