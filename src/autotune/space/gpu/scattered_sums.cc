// Equations between an index of a sum's results and data.
#include "autotune/space/gpu/scattered_sums.h"

#include "autotune/space/structure/axes.h"
#include "codegen/tile/analysis/conditions.h"
#include "poly/algebra/values/nest_edit.h"
#include "support/rounding.h"

#include <isl/aff.h>

#include <algorithm>
#include <vector>

namespace nestor {
namespace {

bool follows(const isl::pw_aff& index, int dim) {
  return isl_pw_aff_involves_dims(index.get(), isl_dim_in, static_cast<unsigned>(dim), 1) == isl_bool_true;
}

/// The only dim that the index follows; -1: there is none, or more.
int dim_of(const Statement& statement, const isl::pw_aff& index) {
  int found = -1;
  for (int d = 0; d < static_cast<int>(statement.dims.size()); ++d) {
    if (!follows(index, d)) continue;
    if (found >= 0) return -1;
    found = d;
  }
  return found;
}

}  // namespace

int scattered_dim(const Statement& statement) {
  if (!statement.reduction) return -1;
  const std::vector<int> reduced = reduced_dims(statement);
  for (const ScalarExpr& condition : conditions_of_term(statement.value, *statement.reduction)) {
    if (condition.op() != ScalarOp::eq) continue;
    for (const int side : {0, 1}) {
      const ScalarExpr &index = condition.args()[static_cast<std::size_t>(side)],
                       &place = condition.args()[static_cast<std::size_t>(1 - side)];
      if (index.op() != ScalarOp::index) continue;
      const int dim = dim_of(statement, statement.indices[static_cast<std::size_t>(index.ordinal())]);
      if (dim >= 0 && std::find(reduced.begin(), reduced.end(), dim) == reduced.end() && !varies_along(statement, place, dim))
        return dim;
    }
  }
  return -1;
}

bool scatters_terms(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const std::vector<std::string>& statements = structure.loop_groups[static_cast<std::size_t>(u)].statements;
    return std::any_of(statements.begin(), statements.end(),
                       [&](const std::string& name) { return scattered_dim(nest.statement(name)) >= 0; });
  });
}

NamedValues values_of_scattered(const Nest& nest, const NestStructure& structure, const FusionGroup& group,
                                const ScatteredBlocks& blocks) {
  constexpr std::int64_t kSumsOfThread = 4, kFewestSums = 16;
  const LoopGroup& heavy = structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  for (const std::string& name : heavy.statements) {
    const Statement& statement = nest.statement(name);
    const int dim = scattered_dim(statement);
    if (dim < 0) continue;
    const int chosen = heavy.axes[static_cast<std::size_t>(dim)];
    const std::vector<int> written = followed_axes(heavy, statement.write);
    const int along_memory = written.empty() ? -1 : written.back();
    const auto is_common = [&](int axis) { return std::find(group.axes.begin(), group.axes.end(), axis) != group.axes.end(); };
    if (!is_common(chosen) || !is_common(along_memory)) return {};
    const auto extent = [&](int axis) { return structure.axes[static_cast<std::size_t>(axis)].extent; };
    // Lanes take neighbours along memory, and a thread many sums along the dim.
    const std::int64_t threads = chosen == along_memory ? nvptx::kWarpThreads : blocks.threads;
    std::int64_t columns = chosen == along_memory ? 1 : std::min(4 * threads, extent(along_memory));
    while (columns > threads && extent(along_memory) % columns != 0) columns /= 2;  // no ragged ends where fewer will do
    const std::int64_t alike =
        chosen == along_memory ? threads : std::max<std::int64_t>(4 * threads / columns, 1);  // with sums along the dim
    if (extent(chosen) < kFewestSums * alike) return {};
    std::int64_t tiles = chosen == along_memory ? 1 : ceil_div(extent(along_memory), columns);
    for (const int axis : group.axes) tiles *= axis == chosen || axis == along_memory ? 1 : extent(axis);
    std::int64_t sums = kSumsOfThread * alike;
    while (sums < extent(chosen) && 2 * sums <= blocks.most / columns &&
           tiles * ceil_div(extent(chosen), 2 * sums) >= blocks.fewest)
      sums *= 2;
    NamedValues values{{kScatterParameter, 1}, {"threads", threads}, {"cluster", 1}, {"reduction_axis", -1}};
    for (const int axis : group.axes) {
      const std::int64_t tile = axis == chosen ? sums : axis == along_memory ? columns : 1;
      values["tile." + structure.axes[static_cast<std::size_t>(axis)].name] = tile >= extent(axis) ? 0 : tile;
    }
    return values;
  }
  return {};
}

}  // namespace nestor
