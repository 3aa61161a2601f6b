// Factors of a value, its constants and its casts.
#include "codegen/tile/contraction.h"

#include <isl/map.h>

#include <algorithm>
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

/// Do two reads have the same indices, whatever their tensors?
bool at_same_indices(const Access& a, const Access& b) {
  return isl_map_plain_is_equal(a.relation.get(), b.relation.set_range_tuple(a.tensor).get()) == isl_bool_true;
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

std::vector<Contraction> contractions_of(const ScalarExpr& value, std::optional<ReductionOp> reduction) {
  std::vector<const ScalarExpr*> rest{&value};
  std::vector<Contraction> found;
  while (!rest.empty()) {
    const ScalarExpr& addend = *rest.back();
    rest.pop_back();
    if (addend.op() == ScalarOp::add) {
      rest.push_back(&addend.args()[1]);
      rest.push_back(&addend.args()[0]);
    } else if (const auto contraction = contraction_of(addend, reduction)) {
      found.push_back(*contraction);
    } else {
      return {};
    }
  }
  return found;
}

std::vector<Contraction> unscaled_contractions_of(const Statement& statement) {
  std::vector<Contraction> found = contractions_of(statement.value, statement.reduction);
  const auto read = [&](int ordinal) -> const Access& { return statement.reads[static_cast<std::size_t>(ordinal)]; };
  const auto fits = [&](const Contraction& each) {
    return each.scale == 1 && at_same_indices(read(found.front().a), read(each.a)) &&
           at_same_indices(read(found.front().b), read(each.b));
  };
  return std::all_of(found.begin(), found.end(), fits) ? found : std::vector<Contraction>{};
}

std::optional<Contraction> unscaled_contraction_of(const Statement& statement) {
  const std::vector<Contraction> found = unscaled_contractions_of(statement);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

}  // namespace nestor
