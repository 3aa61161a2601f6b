// Operands in fusion groups, by the indices of their accesses.
#include "autotune/space/gpu/axes/tensor_operands.h"

#include "autotune/space/structure/axes.h"
#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/values/nest_edit.h"

#include <algorithm>
#include <map>

namespace nestor {
namespace {

constexpr std::size_t kMostCopiedDims = 5;  ///< of a tensor map

}  // namespace

namespace {

bool is_of(const NestStructure& structure, const FusionGroup& group, const Statement& statement) {
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const auto& statements = structure.loop_groups[static_cast<std::size_t>(u)].statements;
    return std::find(statements.begin(), statements.end(), statement.name) != statements.end();
  });
}

}  // namespace

bool is_stored(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const std::string& tensor) {
  if (nest.tensor(tensor).role == TensorRole::input) return true;
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  return std::none_of(writers.begin(), writers.end(), [&](const Statement* writer) { return is_of(structure, group, *writer); });
}

bool leaves(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const std::string& tensor) {
  if (nest.tensor(tensor).role == TensorRole::output) return true;
  const std::vector<const Statement*> readers = readers_of(nest, tensor);
  return std::any_of(readers.begin(), readers.end(), [&](const Statement* reader) { return !is_of(structure, group, *reader); });
}

namespace {

/// Do tensor copies bring tiles of it?
bool is_copied(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const std::string& name) {
  const Tensor& tensor = nest.tensor(name);
  return is_stored(nest, structure, group, name) && is_half(tensor.type) && tensor.shape.size() <= kMostCopiedDims &&
         !has_ragged_rows(nest, tensor);
}

}  // namespace

std::set<int> operands_of(const std::vector<Contraction>& products) {
  std::set<int> ordinals;
  for (const Contraction& product : products) ordinals.insert({product.a, product.b});
  return ordinals;
}

bool are_copied(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const Statement& statement,
                const std::vector<Contraction>& products) {
  const auto copied = [&](int ordinal) {
    return is_copied(nest, structure, group, statement.reads[static_cast<std::size_t>(ordinal)].tensor);
  };
  return std::all_of(products.begin(), products.end(), [&](const Contraction& each) { return copied(each.a) && copied(each.b); });
}

std::vector<int> moved_axes(const LoopGroup& loop_group, const Access& access, Moves moves) {
  std::vector<int> axes;
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(access);
  for (std::size_t index = 0; index < moving.size(); ++index) {
    const bool strided = moves == Moves::strided && index + 1 < moving.size();
    for (const auto& [dim, factor] : moving[index]) {
      const bool known = static_cast<std::size_t>(dim) < loop_group.axes.size();
      if (known && (moves == Moves::any || (factor >= 1 && factor <= (strided ? nvptx::kMostStride : 1))))
        axes.push_back(loop_group.axes[static_cast<std::size_t>(dim)]);
    }
  }
  return axes;
}

std::int64_t stride_of(const LoopGroup& loop_group, const Access& access, int axis) {
  for (const std::map<int, std::int64_t>& dims : moving_dims(access)) {
    if (const auto found = dims.find(loop_group.position_of(axis)); found != dims.end()) return found->second;
  }
  return 1;
}

bool is_common(const FusionGroup& group, int axis) {
  return (group.tile_is_part && axis == group.part->whole) ||
         std::find(group.axes.begin(), group.axes.end(), axis) != group.axes.end();
}

bool interleaves_products(const LoopGroup& loop_group, const Access& operand, const Access& other, const Access& write) {
  const std::vector<int> indices = followed_axes(loop_group, operand);
  const int last = indices.empty() ? -1 : indices.back();
  return last >= 0 && has(followed_axes(loop_group, other), last) && has(followed_axes(loop_group, write), last);
}

bool cuts_tiles(const Access& operand, int dim, std::int64_t inner) {
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(operand);
  return !moving.empty() && moving.back().contains(dim) && moving.back().size() > 1 && inner % nvptx::kTerms != 0;
}

bool lies_across_tiles(const LoopGroup& loop_group, const Access& operand, const TensorAxes& axes) {
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(operand);
  const auto is_of_tile = [&](const auto& dim) {
    const bool known = static_cast<std::size_t>(dim.first) < loop_group.axes.size();
    const int axis = known ? loop_group.axes[static_cast<std::size_t>(dim.first)] : -1;
    return !known || axis == axes.reduction_axis || axis == axes.row || axis == axes.column;
  };
  return !moving.empty() && !moving.back().empty() && std::none_of(moving.back().begin(), moving.back().end(), is_of_tile);
}

bool shifts_terms(const LoopGroup& loop_group, const Access& operand, int axis, int terms) {
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(operand);
  if (moving.empty() || !moving.back().contains(loop_group.position_of(terms))) return false;
  const auto shift = moving.back().find(loop_group.position_of(axis));
  return shift != moving.back().end() && shift->second % kAlignedHalves != 0;
}

bool starts_anywhere(const LoopGroup& loop_group, const Access& operand, const TensorAxes& axes) {
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(operand);
  if (moving.empty() || moving.back().size() < 2) return false;
  return std::any_of(moving.back().begin(), moving.back().end(), [&](const auto& dim) {
    const auto at = static_cast<std::size_t>(dim.first);
    if (at >= loop_group.axes.size() || loop_group.extents[at] == 1 || dim.second % kAlignedHalves == 0) return false;
    const int axis = loop_group.axes[at];
    return axis != axes.reduction_axis && axis != axes.row && axis != axes.column;
  });
}

bool overlaps_rows(const LoopGroup& loop_group, const Access& operand, const TensorAxes& axes) {
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(operand);
  return std::any_of(moving.begin(), moving.end(), [&](const std::map<int, std::int64_t>& dims) {
    const auto runs_along = [&](int axis) { return axis >= 0 && dims.contains(loop_group.position_of(axis)); };
    return runs_along(axes.reduction_axis) && (runs_along(axes.row) || runs_along(axes.column) || runs_along(axes.pack));
  });
}

bool several_products(const Nest& nest, const std::string& tensor) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  return std::count_if(writers.begin(), writers.end(), [](const Statement* writer) { return multiplies_matrices(*writer); }) > 1;
}

}  // namespace nestor
