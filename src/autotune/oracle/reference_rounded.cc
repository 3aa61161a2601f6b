// The definition in f32, one term after the other: what rounding does to a recurrence.
#include "autotune/oracle/reference.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/scalar_semantics.h"

namespace nestor {

void Reference::evaluate_rounded(double cost_limit) {
  rounds_ = true;
  evaluate_all(cost_limit);
}

void Reference::store_rounded(int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count) {
  const CompiledStatement& code = statements_[statement];
  const Chunk chunk = evaluate_chunk(statement, dims, strides, count, true);
  const Store& store = stores_[code.write.tensor];
  LazyDoubles& memory = version_of(code.write.tensor, static_cast<int>(store.writers.size()));
  const auto rounded = [&](double value) { return is_float(code.type) ? static_cast<double>(static_cast<float>(value)) : value; };
  const double neutral = code.reduction ? neutral_element(*code.reduction, code.type) : 0;
  const std::int64_t first = code.write.at(dims, store.strides);
  std::int64_t step = 0;
  for (int d = 0; d < code.dims && count > 1 && code.write.address.linear; ++d)
    step += code.write.address.factors[static_cast<std::size_t>(d)] * strides[static_cast<std::size_t>(d)];
  if (code.reduction && code.write.address.linear && step == 0) {
    double sum = memory.known(first) ? memory.get(first) : neutral;
    if (*code.reduction == ReductionOp::add && is_float(code.type)) {
      auto total = static_cast<float>(sum);
      for (int k = 0; k < count; ++k) total += static_cast<float>(chunk.values[k]);
      return memory.set(first, static_cast<double>(total));
    }
    for (int k = 0; k < count; ++k) sum = rounded(semantics::combine(*code.reduction, code.type, sum, rounded(chunk.values[k])));
    return memory.set(first, sum);
  }
  std::array<std::int64_t, 16> at;
  for (int k = 0; k < count; ++k) {
    std::int64_t address = first + k * step;
    if (!code.write.address.linear && k > 0) {
      for (int d = 0; d < code.dims; ++d) at[d] = dims[d] + k * strides[d];
      address = code.write.at(at.data(), store.strides);
    }
    double value = rounded(chunk.values[k]);
    if (code.reduction) {
      const double before = memory.known(address) ? memory.get(address) : neutral;
      value = rounded(semantics::combine(*code.reduction, code.type, before, value));
    } else {
      value = semantics::stored_value(store.type, code.type, value);
    }
    memory.set(address, value);
  }
}

}  // namespace nestor
