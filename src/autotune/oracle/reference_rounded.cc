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
  std::array<std::int64_t, kChunk> addresses;
  code.write.elements(dims, strides, count, store.strides, addresses.data());
  const std::int64_t first = addresses[0];
  if (code.reduction && code.write.address.linear && (count == 1 || addresses[1] == first)) {
    double sum = memory.known(first) ? memory.get(first) : neutral;
    if (*code.reduction == ReductionOp::add && is_float(code.type)) {
      auto total = static_cast<float>(sum);
      for (int k = 0; k < count; ++k) total += static_cast<float>(chunk.values[k]);
      return memory.set(first, static_cast<double>(total));
    }
    for (int k = 0; k < count; ++k) sum = rounded(semantics::combine(*code.reduction, code.type, sum, rounded(chunk.values[k])));
    return memory.set(first, sum);
  }
  for (int k = 0; k < count; ++k) {
    const std::int64_t address = addresses[static_cast<std::size_t>(k)];
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
