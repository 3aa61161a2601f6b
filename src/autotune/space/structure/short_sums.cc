// Products whose results are summed along an axis of their own.
#include "autotune/space/structure/short_sums.h"

#include "autotune/space/structure/axes.h"
#include "codegen/tile/contraction.h"
#include "poly/algebra/values/nest_edit.h"

#include <isl/aff.h>

#include <algorithm>

namespace nestor {
namespace {

constexpr std::int64_t kMostTerms = 256;

bool is_narrow(ElementType type) { return type == ElementType::f16 || type == ElementType::bf16; }

/// A sum of products of two 16-bit inputs.
bool multiplies_inputs(const Nest& nest, const Statement& statement) {
  const auto product = unscaled_contraction_of(statement);
  if (!product) return false;
  return std::all_of(statement.reads.begin(), statement.reads.end(), [&](const Access& read) {
    const Tensor& tensor = nest.tensor(read.tensor);
    return tensor.role == TensorRole::input && is_narrow(tensor.type);
  });
}

bool is_reduced(const LoopGroup& loop_group, int axis) {
  const int at = loop_group.position_of(axis);
  return at >= 0 && loop_group.reduced[static_cast<std::size_t>(at)];
}

std::ptrdiff_t kept_in_common(const LoopGroup& a, const LoopGroup& b) {
  const auto kept = [](const LoopGroup& loop_group, int axis) {
    return loop_group.position_of(axis) >= 0 && !is_reduced(loop_group, axis);
  };
  return std::count_if(a.axes.begin(), a.axes.end(), [&](int axis) { return kept(a, axis) && kept(b, axis); });
}

/// Do other loops sum along one of the axes that the results of a product have, and keep two, rows and columns?
bool is_summed(const NestStructure& structure, const LoopGroup& of_product) {
  for (std::size_t k = 0; k < of_product.axes.size(); ++k) {
    if (of_product.reduced[k]) continue;
    for (const LoopGroup& other : structure.loop_groups) {
      if (is_reduced(other, of_product.axes[k]) && kept_in_common(of_product, other) >= 2) return true;
    }
  }
  return false;
}

/// Sizes in the number of terms.
std::set<std::string> sizes_in(const Nest& nest, const Statement& statement, int dim) {
  const isl::pw_aff extent = extent_of(nest, statement.domain, dim);
  std::set<std::string> found;
  for (const SizeParam& size : nest.sizes) {
    const int at = isl_pw_aff_find_dim_by_name(extent.get(), isl_dim_param, size.name.c_str());
    const bool used =
        at >= 0 && isl_pw_aff_involves_dims(extent.get(), isl_dim_param, static_cast<unsigned>(at), 1) == isl_bool_true;
    if (used && !size.specialized) found.insert(size.name);
  }
  return found;
}

}  // namespace

std::set<std::string> sizes_of_short_sums(const Nest& nest, const Sizes& sizes) {
  const NestStructure structure = find_axes(nest, sizes);
  std::set<std::string> found;
  for (const LoopGroup& loop_group : structure.loop_groups) {
    if (!is_summed(structure, loop_group)) continue;
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      if (!multiplies_inputs(nest, statement)) continue;
      for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
        if (loop_group.reduced[k] && loop_group.extents[k] <= kMostTerms)
          found.merge(sizes_in(nest, statement, static_cast<int>(k)));
      }
    }
  }
  return found;
}

}  // namespace nestor
