// Places of axes in units, and axes that units have in common.
#include "autotune/space/structure/nest_structure.h"

#include <algorithm>

namespace nestor {

int Unit::position_of(int axis) const {
  const auto found = std::find(axes.begin(), axes.end(), axis);
  return found == axes.end() ? -1 : static_cast<int>(found - axes.begin());
}

std::vector<int> common_axes(const NestStructure& structure, const std::vector<int>& units, int ordering) {
  const auto free_axes = [&](int unit) {
    const Unit& u = structure.units[static_cast<std::size_t>(unit)];
    std::vector<int> axes;
    for (std::size_t k = 0; k < u.axes.size(); ++k) {
      if (!u.reduced[k]) axes.push_back(u.axes[k]);
    }
    return axes;
  };
  std::vector<int> common = free_axes(ordering);
  for (const int unit : units) {
    const std::vector<int> free = free_axes(unit);
    std::erase_if(common, [&](int axis) { return std::find(free.begin(), free.end(), axis) == free.end(); });
  }
  return common;
}

std::vector<int> wavefront_order(const Cluster& cluster, const ClusterForm& form) {
  std::vector<int> order = cluster.axes;
  if (form.kind != ClusterForm::Kind::wavefront) return order;
  const auto outer = std::find(order.begin(), order.end(), form.skews.front().outer);
  const auto inner = std::find(order.begin(), order.end(), form.skews.front().inner);
  std::rotate(outer, inner, inner + 1);
  return order;
}

}  // namespace nestor
