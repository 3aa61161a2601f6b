// Sums over tensors that stop at the largest number.
#include "autotune/tensors/argument_bytes.h"

#include "support/system/available_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace nestor {

std::int64_t ArgumentBytes::all() const { return saturating_add(inputs, outputs); }

ArgumentBytes argument_bytes(const Nest& nest, const Sizes& sizes) {
  ArgumentBytes total;
  for (const Tensor& tensor : nest.tensors) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape_at(tensor, sizes))
      elements = saturating_multiply(elements, std::max<std::int64_t>(extent, 0));
    if (tensor.role != TensorRole::input) total.computed = saturating_add(total.computed, elements);
    if (tensor.role == TensorRole::temporary) continue;
    const std::int64_t bytes = saturating_multiply(elements, static_cast<std::int64_t>(size_in_bytes(tensor.type)));
    std::int64_t& sum = tensor.role == TensorRole::input ? total.inputs : total.outputs;
    sum = saturating_add(sum, bytes);
    total.largest = std::max(total.largest, bytes);
  }
  return total;
}

std::string problem_text(const Nest& nest, const Sizes& sizes) {
  std::string text;
  for (const auto& [name, value] : sizes) text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, value);
  return fmt::format("{} ({}) at {}", nest.op, nest.variant, text);
}

}  // namespace nestor
