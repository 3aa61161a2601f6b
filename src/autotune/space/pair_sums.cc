// What each operand of a sum changes along.
#include "autotune/space/pair_sums.h"

#include "autotune/space/structure/axes.h"
#include "codegen/gpu/target/gpu_target.h"
#include "poly/algebra/values/nest_edit.h"

#include <algorithm>

namespace nestor {
namespace {

/// The axis of the last index that the sum writes, where each operand changes along it or along what is summed over, and not along both.
int axis_of(const LoopGroup& loop_group, const Statement& sum) {
  const std::vector<int> written = followed_axes(loop_group, sum.write);
  if (written.empty() || written.back() < 0 || sum.reads.size() < 2) return -1;
  const int last = loop_group.position_of(written.back());
  bool own = false, others = false;
  for (const Access& read : sum.reads) {
    const isl::map relation = read.relation.gist_domain(sum.domain);
    const bool along = depends_on_dim(relation, last);
    bool summed = false;
    for (std::size_t dim = 0; dim < loop_group.reduced.size(); ++dim)
      summed = summed || (loop_group.reduced[dim] && depends_on_dim(relation, static_cast<int>(dim)));
    if (along && summed) return -1;
    own = own || along;
    others = others || summed;
  }
  return own && others ? written.back() : -1;
}

/// The axis of the last index that the sum writes, where no operand changes along it, and some do along what is summed over.
int axis_of_terms(const LoopGroup& loop_group, const Statement& sum) {
  const std::vector<int> written = followed_axes(loop_group, sum.write);
  if (written.empty() || written.back() < 0) return -1;
  const int last = loop_group.position_of(written.back());
  bool summed = false;
  for (const Access& read : sum.reads) {
    const isl::map relation = read.relation.gist_domain(sum.domain);
    if (depends_on_dim(relation, last)) return -1;
    for (std::size_t dim = 0; dim < loop_group.reduced.size(); ++dim)
      summed = summed || (loop_group.reduced[dim] && depends_on_dim(relation, static_cast<int>(dim)));
  }
  return summed ? written.back() : -1;
}

/// What `axis_of_sum` finds for a sum of the group's heaviest loop group; -1: nothing, or no common axis.
template <class AxisOfSum>
int common_axis_of(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const AxisOfSum& axis_of_sum) {
  const LoopGroup& heavy = structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  for (const std::string& name : heavy.statements) {
    const Statement& statement = nest.statement(name);
    if (!statement.reduction) continue;
    const int axis = axis_of_sum(heavy, statement);
    if (std::find(group.axes.begin(), group.axes.end(), axis) != group.axes.end()) return axis;
  }
  return -1;
}

/// Tiles of `elements` of the axis, and of one of the group's others, for blocks of so many threads.
NamedValues values_along(const NestStructure& structure, const FusionGroup& group, int axis, std::int64_t elements,
                         std::int64_t threads) {
  NamedValues values{{"threads", threads}, {"cluster", 1}, {"reduction_axis", -1}};
  for (const int other : group.axes) {
    const Axis& cut = structure.axes[static_cast<std::size_t>(other)];
    std::int64_t tile = other == axis ? elements : 1;
    while (tile > 1 && tile >= cut.extent) tile /= 2;  // a whole axis may be longer in another launch
    values["tile." + cut.name] = tile;
  }
  return values;
}

}  // namespace

int axis_of_pairs(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  return common_axis_of(nest, structure, group, axis_of);
}

NamedValues values_of_pairs(const NestStructure& structure, const FusionGroup& group, int axis, std::int64_t elements) {
  constexpr std::int64_t kThreads = 256;
  return values_along(structure, group, axis, elements, kThreads);
}

int axis_of_shared_terms(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  return common_axis_of(nest, structure, group, axis_of_terms);
}

NamedValues values_of_shared_terms(const NestStructure& structure, const FusionGroup& group, int axis) {
  return values_along(structure, group, axis, kSumsOfThread, nvptx::kWarpThreads);
}

}  // namespace nestor
