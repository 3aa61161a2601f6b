// Parts of reductions.
#include "autotune/space/structure/part_axes.h"

#include <isl/constraint.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>

namespace nestor {
namespace {

/// factor*p + constant <= j (`below` false) or j <= factor*p + constant.
isl_constraint* bound(isl_set* domain, int p, int j, std::int64_t factor, std::int64_t constant, bool below) {
  isl_constraint* c = isl_constraint_alloc_inequality(isl_local_space_from_space(isl_set_get_space(domain)));
  const int sign = below ? -1 : 1;
  c = isl_constraint_set_coefficient_si(c, isl_dim_set, j, sign);
  c = isl_constraint_set_coefficient_si(c, isl_dim_set, p, static_cast<int>(-sign * factor));
  return isl_constraint_set_constant_si(c, static_cast<int>(-sign * constant));
}

/// Points of j that every p has (fewer at the end) when j runs through them in order; 1 when that is not so.
std::int64_t part_size(const isl::set& domain, int p, int j) {
  // One part alone would be the whole.
  if (isl::manage(isl_set_lower_bound_si(domain.copy(), isl_dim_set, static_cast<unsigned>(p), 1)).is_empty()) return 1;
  isl_set* first = isl_set_fix_si(domain.copy(), isl_dim_set, static_cast<unsigned>(p), 0);
  if (isl_set_is_empty(first) != isl_bool_false) {
    isl_set_free(first);
    return 1;
  }
  isl_val* last = isl_set_dim_max_val(first, j);
  const std::int64_t size = isl_val_is_int(last) == isl_bool_true ? isl_val_get_num_si(last) + 1 : 1;
  isl_val_free(last);
  if (size < 2 || size > INT32_MAX / 2) return 1;
  isl_set* parts = isl_set_universe(isl_set_get_space(domain.get()));
  parts = isl_set_add_constraint(parts, bound(domain.get(), p, j, size, 0, false));
  parts = isl_set_add_constraint(parts, bound(domain.get(), p, j, size, size - 1, true));
  const bool covered = isl_set_is_subset(domain.get(), parts) == isl_bool_true;
  isl_set_free(parts);
  return covered ? size : 1;
}

void rename_axis(NestStructure& structure, int from, int to) {
  for (LoopGroup& loop_group : structure.loop_groups) {
    for (int& axis : loop_group.axes) axis = axis == from ? to : axis;
  }
  for (PartAxis& part : structure.parts) part.axis = part.axis == from ? to : part.axis;
}

/// No two loops of a loop group may run along one axis.
bool share_a_loop_group(const NestStructure& structure, int a, int b) {
  return std::any_of(structure.loop_groups.begin(), structure.loop_groups.end(), [&](const LoopGroup& loop_group) {
    return loop_group.position_of(a) >= 0 && loop_group.position_of(b) >= 0;
  });
}

void add_part(NestStructure& structure, const PartAxis& part) {
  for (const PartAxis& known : structure.parts) {
    if (known.whole != part.whole || known.size != part.size) continue;
    if (known.axis != part.axis && !share_a_loop_group(structure, known.axis, part.axis))
      rename_axis(structure, part.axis, known.axis);
    return;
  }
  structure.parts.push_back(part);
}

}  // namespace

void find_part_axes(const Nest& nest, NestStructure& structure) {
  for (std::size_t u = 0; u < structure.loop_groups.size(); ++u) {
    const LoopGroup loop_group = structure.loop_groups[u];
    const Statement& statement = nest.statement(loop_group.first);
    for (int p = 0; p < static_cast<int>(loop_group.axes.size()); ++p) {
      for (int j = 0; j < static_cast<int>(loop_group.axes.size()); ++j) {
        if (p == j || !loop_group.reduced[static_cast<std::size_t>(j)]) continue;
        const std::int64_t size = part_size(statement.domain, p, j);
        const std::vector<int>& axes = structure.loop_groups[u].axes;
        if (size > 1) add_part(structure, {axes[static_cast<std::size_t>(p)], axes[static_cast<std::size_t>(j)], size});
      }
    }
  }
}

}  // namespace nestor
