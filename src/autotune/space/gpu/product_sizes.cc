// Products of a nest and the sizes in the extents of their operands.
#include "autotune/space/gpu/product_sizes.h"

#include "autotune/space/structure/axes.h"
#include "codegen/tile/contraction.h"

#include <isl/aff.h>

#include <algorithm>
#include <set>
#include <string>

namespace nestor {
namespace {

bool is_half_input(const Nest& nest, const Access& access) {
  const Tensor& tensor = nest.tensor(access.tensor);
  return tensor.role == TensorRole::input && size_in_bytes(tensor.type) == 2;
}

bool follows(const Access& access, int dim) {
  const auto dims = followed_dims(access);
  return std::find(dims.begin(), dims.end(), std::optional(dim)) != dims.end();
}

/// Adds the sizes in the extents of an operand along the dims that `wanted` names.
template <class Wanted>
void add_sizes(const Nest& nest, const Access& operand, const Wanted& wanted, std::set<std::string>& sizes) {
  const Tensor& tensor = nest.tensor(operand.tensor);
  const auto dims = followed_dims(operand);
  for (std::size_t p = 0; p < dims.size(); ++p) {
    if (!dims[p] || !wanted(*dims[p])) continue;
    for (const SizeParam& size : nest.sizes) {
      const int position = isl_pw_aff_find_dim_by_name(tensor.shape[p].get(), isl_dim_param, size.name.c_str());
      if (position >= 0 &&
          isl_pw_aff_involves_dims(tensor.shape[p].get(), isl_dim_param, static_cast<unsigned>(position), 1) == isl_bool_true)
        sizes.insert(size.name);
    }
  }
}

}  // namespace

void specialize_product_sizes(Nest& nest) {
  std::set<std::string> first, second;
  for (const Statement& statement : nest.statements) {
    const auto product = unscaled_contraction_of(statement);
    if (!product) continue;
    const Access &a = statement.reads[static_cast<std::size_t>(product->a)],
                 &b = statement.reads[static_cast<std::size_t>(product->b)];
    const bool half_a = is_half_input(nest, a), half_b = is_half_input(nest, b);
    if (half_a && half_b) {
      const auto reduced = [&](int dim) { return !follows(statement.write, dim); };
      add_sizes(nest, a, reduced, first);
      add_sizes(nest, b, reduced, first);
    } else if (half_a != half_b && nest.tensor((half_a ? b : a).tensor).role == TensorRole::temporary) {
      const Access& rows = half_a ? b : a;
      add_sizes(nest, half_a ? a : b, [&](int dim) { return follows(statement.write, dim) && !follows(rows, dim); }, second);
    }
  }
  if (first.empty() || second.empty()) return;
  for (SizeParam& size : nest.sizes)
    size.specialized = size.specialized || first.contains(size.name) || second.contains(size.name);
}

}  // namespace nestor
