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
  std::array<std::int64_t, 16> at;
  for (int k = 0; k < count; ++k) {
    for (int d = 0; d < code.dims; ++d) at[d] = dims[d] + k * (strides.empty() ? 0 : strides[d]);
    const std::int64_t address = code.write.at(at.data(), store.strides);
    double value = rounded(chunk.values[k]);
    if (code.reduction) {
      const double before = memory.known(address) ? memory.get(address) : neutral_element(*code.reduction, code.type);
      value = rounded(semantics::combine(*code.reduction, code.type, before, value));
    } else {
      value = semantics::stored_value(store.type, code.type, value);
    }
    memory.set(address, value);
  }
}

}  // namespace nestor
