// Factors of a value, its constants and its casts.
#include "codegen/tile/contraction.h"

#include <vector>

namespace nestor {
namespace {

struct Factors {
  std::vector<int> reads;
  double scale = 1;
};

bool is_16_bits(ElementType type) { return type == ElementType::f16 || type == ElementType::bf16; }

/// Adds the factors of `value`; false: it has others than reads and constants, or it rounds.
bool collect(const ScalarExpr& value, Factors& out) {
  if (value.type() != ElementType::f32) return false;
  switch (value.op()) {
    case ScalarOp::mul:
      return collect(value.args()[0], out) && collect(value.args()[1], out);
    case ScalarOp::neg:
      out.scale = -out.scale;
      return collect(value.args()[0], out);
    case ScalarOp::constant:
      out.scale *= value.number();
      return true;
    case ScalarOp::read:
      out.reads.push_back(value.ordinal());
      return out.reads.size() <= 2;  // a power of very many factors ends here
    case ScalarOp::cast: {
      const ScalarExpr& from = value.args()[0];
      if (!is_16_bits(from.type())) return collect(from, out);
      if (from.op() != ScalarOp::read) return false;
      out.reads.push_back(from.ordinal());
      return out.reads.size() <= 2;
    }
    default:
      return false;
  }
}

}  // namespace

std::optional<Contraction> contraction_of(const ScalarExpr& value, std::optional<ReductionOp> reduction) {
  Factors factors;
  if (reduction != ReductionOp::add || !collect(value, factors)) return std::nullopt;
  if (factors.reads.size() != 2 || factors.reads[0] == factors.reads[1]) return std::nullopt;
  return Contraction{factors.reads[0], factors.reads[1], factors.scale};
}

std::optional<Contraction> contraction_of(const Statement& statement) {
  return contraction_of(statement.value, statement.reduction);
}

std::optional<Contraction> unscaled_contraction_of(const Statement& statement) {
  const auto found = contraction_of(statement);
  return found && found->scale == 1 ? found : std::nullopt;
}

}  // namespace nestor
