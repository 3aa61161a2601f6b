// What each operand of a sum changes along.
#include "autotune/space/pair_sums.h"

#include "autotune/space/structure/axes.h"
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

}  // namespace

int axis_of_pairs(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  const LoopGroup& heavy = structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  for (const std::string& name : heavy.statements) {
    const Statement& statement = nest.statement(name);
    if (!statement.reduction) continue;
    const int axis = axis_of(heavy, statement);
    if (std::find(group.axes.begin(), group.axes.end(), axis) != group.axes.end()) return axis;
  }
  return -1;
}

NamedValues values_of_pairs(const NestStructure& structure, const FusionGroup& group, int axis, std::int64_t elements) {
  constexpr std::int64_t kThreads = 256;
  NamedValues values{{"threads", kThreads}, {"cluster", 1}, {"reduction_axis", -1}};
  for (const int other : group.axes) {
    const Axis& cut = structure.axes[static_cast<std::size_t>(other)];
    std::int64_t tile = other == axis ? elements : 1;
    while (tile > 1 && tile >= cut.extent) tile /= 2;  // a whole axis may be longer in another launch
    values["tile." + cut.name] = tile;
  }
  return values;
}

}  // namespace nestor
