// Last indices of what a group reads and writes.
#include "autotune/space/gpu/transposed_rows.h"

#include "autotune/space/structure/axes.h"

#include <algorithm>

namespace nestor {
namespace {

/// Common axes of the group that the indices of an access follow, in their order; -1: none.
std::vector<int> common_axes_of(const FusionGroup& group, const LoopGroup& loop_group, const Access& access) {
  std::vector<int> axes;
  for (const std::optional<int>& dim : followed_dims(access)) {
    const bool known = dim && static_cast<std::size_t>(*dim) < loop_group.axes.size();
    const int axis = known ? loop_group.axes[static_cast<std::size_t>(*dim)] : -1;
    axes.push_back(std::find(group.axes.begin(), group.axes.end(), axis) == group.axes.end() ? -1 : axis);
  }
  return axes;
}

/// Notes what the statement reads across; false: it reads along several other axes, or writes along another one than those before it.
bool add_statement(const FusionGroup& group, const LoopGroup& loop_group, const Statement& statement, TransposedRows& found) {
  const std::vector<int> written = common_axes_of(group, loop_group, statement.write);
  if (written.empty() || written.back() < 0 || (found.written >= 0 && found.written != written.back())) return false;
  found.written = written.back();
  for (const Access& read : statement.reads) {
    const std::vector<int> axes = common_axes_of(group, loop_group, read);
    const bool across = !axes.empty() && axes.back() >= 0 && axes.back() != found.written &&
                        std::find(axes.begin(), axes.end(), found.written) != axes.end();
    if (!across) continue;
    if (found.read >= 0 && found.read != axes.back()) return false;
    found.read = axes.back();
    if (std::find(found.tensors.begin(), found.tensors.end(), read.tensor) == found.tensors.end())
      found.tensors.push_back(read.tensor);
  }
  return true;
}

}  // namespace

std::optional<TransposedRows> transposed_rows(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  TransposedRows found;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      if (statement.reduction || !add_statement(group, loop_group, statement, found)) return std::nullopt;
      // What the group itself writes stays on chip as it is.
      if (std::find(found.tensors.begin(), found.tensors.end(), statement.write.tensor) != found.tensors.end()) return std::nullopt;
    }
  }
  return found.read >= 0 ? std::optional(std::move(found)) : std::nullopt;
}

int axis_of_column_sums(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  int found = -1;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      if (!statement.reduction) continue;
      for (const Access& read : statement.reads) {
        // What has fewer dims than the sum has is read again and again.
        const std::vector<int> axes = common_axes_of(group, loop_group, read);
        if (axes.size() < statement.dims.size()) continue;
        if (axes.back() < 0 || (found >= 0 && found != axes.back())) return -1;
        found = axes.back();
      }
    }
  }
  return found;
}

}  // namespace nestor
