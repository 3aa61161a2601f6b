// Places of axes in loop groups, and axes that loop groups have in common.
#include "autotune/space/structure/nest_structure.h"

#include <algorithm>

namespace nestor {

int LoopGroup::position_of(int axis) const {
  const auto found = std::find(axes.begin(), axes.end(), axis);
  return found == axes.end() ? -1 : static_cast<int>(found - axes.begin());
}

int LoopGroup::shared_position_of(int axis) const {
  const int position = position_of(axis);
  return seldom && position >= 0 && reduced[static_cast<std::size_t>(position)] ? -1 : position;
}

std::vector<int> common_axes(const NestStructure& structure, const std::vector<int>& loop_groups, int ordering) {
  const auto free_axes = [&](int loop_group) {
    const LoopGroup& u = structure.loop_groups[static_cast<std::size_t>(loop_group)];
    std::vector<int> axes;
    for (std::size_t k = 0; k < u.axes.size(); ++k) {
      if (!u.reduced[k]) axes.push_back(u.axes[k]);
    }
    return axes;
  };
  std::vector<int> common = free_axes(ordering);
  for (const int loop_group : loop_groups) {
    const std::vector<int> free = free_axes(loop_group);
    std::erase_if(common, [&](int axis) { return std::find(free.begin(), free.end(), axis) == free.end(); });
  }
  return common;
}

std::vector<int> serial_axes(const FusionGroup& group) {
  std::vector<int> axes;
  for (std::size_t k = 0; k < group.axes.size(); ++k) {
    if (!group.parallel[k]) axes.push_back(group.axes[k]);
  }
  return axes;
}

std::vector<int> wavefront_order(const FusionGroup& group, const GroupForm& form) {
  if (form.kind == GroupForm::Kind::distributed) return form.outside;
  std::vector<int> order = group.axes;
  if (form.kind == GroupForm::Kind::inside) {
    for (const int serial : serial_axes(group)) std::erase(order, serial);
  }
  if (form.kind != GroupForm::Kind::wavefront) return order;
  const auto outer = std::find(order.begin(), order.end(), form.skews.front().outer);
  const auto inner = std::find(order.begin(), order.end(), form.skews.front().inner);
  std::rotate(outer, inner, inner + 1);
  return order;
}

}  // namespace nestor
