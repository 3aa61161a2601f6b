// Rows and columns found in the indices of products.
#include "autotune/space/gpu/axes/tensor_axes.h"

#include "autotune/space/gpu/axes/product_axes.h"
#include "autotune/space/gpu/axes/tensor_operands.h"
#include "autotune/space/structure/axes.h"
#include "codegen/gpu/target/tensor_block.h"
#include "codegen/tile/analysis/op_shape.h"
#include "codegen/tile/contraction.h"
#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"
#include "support/rounding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace nestor {
namespace {

constexpr std::int64_t kMostKeptTerms = 512;  ///< of rows of operands that stay in a block

/// Elements of an access beside the loops that all loop groups share and the streamed one.
std::int64_t width_of(const NestStructure& structure, const FusionGroup& group, const TensorAxes& tiled,
                      const std::vector<int>& axes) {
  std::int64_t width = 1;
  for (const int axis : axes) {
    if (axis >= 0 && axis != tiled.reduction_axis && !has(group.axes, axis))
      width *= structure.axes[static_cast<std::size_t>(axis)].extent;
  }
  return width;
}

/// Notes the 16-bit results of the fusion group that rows of its tiles are written to.
void add_results(const Nest& nest, const NestStructure& structure, const FusionGroup& group, TensorAxes& result) {
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[u];
    for (const std::string& name : loop_group.statements) {
      const Access& write = nest.statement(name).write;
      const Tensor& tensor = nest.tensor(write.tensor);
      const std::vector<int> axes = followed_axes(loop_group, write);
      if (!leaves(nest, structure, group, write.tensor) || !is_half(tensor.type) || !has(axes, result.row) ||
          axes.back() == result.row)
        continue;
      const bool of_tile = result.column >= 0 || has(axes, result.reduction_axis);
      result.results.push_back(of_tile ? 0 : width_of(structure, group, result, axes));
    }
  }
}

/// Does the group compute nothing but tiles of rows and columns, and values of a row?
bool has_whole_rows(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const TensorAxes& axes) {
  return std::all_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const LoopGroup& loop_group = structure.loop_groups[u];
    const bool multiplied = std::any_of(loop_group.statements.begin(), loop_group.statements.end(),
                                        [&](const std::string& name) { return multiplies_matrices(nest.statement(name)); });
    for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
      const int axis = loop_group.axes[k];
      if (axis != axes.column && !has(group.axes, axis) && !(multiplied && loop_group.reduced[k])) return false;
    }
    return has(loop_group.axes, axes.row);
  });
}

/// The extents of reduced dims beside the one that is cut into tiles, outermost first.
std::vector<std::int64_t> taps_of(const LoopGroup& loop_group, int reduction_axis) {
  std::vector<std::int64_t> taps;
  for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
    if (loop_group.reduced[k] && loop_group.axes[k] != reduction_axis) taps.push_back(loop_group.extents[k]);
  }
  return taps;
}

/// Where a sum has terms, whatever the value of the dim on `reduction_axis`.
isl::set places_of_taps(const Statement& sum, const LoopGroup& loop_group, int reduction_axis) {
  isl_set* places = isl_set_reset_tuple_id(sum.domain.copy());
  if (const int dim = loop_group.position_of(reduction_axis); dim >= 0)
    places = isl_set_project_out(places, isl_dim_set, static_cast<unsigned>(dim), 1);
  for (unsigned k = 0; k < static_cast<unsigned>(isl_set_dim(places, isl_dim_set)); ++k)
    places = isl_set_set_dim_name(places, isl_dim_set, k, ("d" + std::to_string(k)).c_str());
  return isl::manage(places);
}

/// Those of all products of the fusion group, which must be the same ones.
std::optional<TensorAxes> axes_of_sums(const Nest& nest, const NestStructure& structure, const FusionGroup& group, bool packs) {
  std::optional<TensorAxes> common;
  std::map<std::string, TensorOperand> rows, columns;  // by the elements that tiles of rows and of columns come from
  std::set<std::string> row_tensors, column_inputs;
  int stream = 0;                               // a sum that is read ends the loop that streams its terms
  std::set<std::pair<int, std::string>> tiles;  // of sums
  bool same_packs = true, same_taps = true, sums_parts = false;
  std::vector<std::int64_t> taps;
  std::optional<isl::set> tap_places;
  std::set<std::string> summed;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[u];
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      const auto product = unscaled_contraction_of(statement);
      const auto is_summed = [&](const Access& read) { return summed.contains(read.tensor); };
      const bool reads_sums = std::any_of(statement.reads.begin(), statement.reads.end(), is_summed);
      if (reads_sums) {
        ++stream;
        summed.clear();
      }
      // The sum of a row times another one is left to the threads that hold the row, and so is one of chunks that have a scale each.
      const bool of_chunks = reads_sums && common && common->chunk_axis >= 0;
      if (!product || (!multiplies_matrices(statement) && (group.tile_is_part || of_chunks || (common && common->whole_rows))))
        continue;
      summed.insert(statement.write.tensor);
      const auto axes = axes_of_sum(nest, structure, loop_group, statement, group, packs);
      if (!axes) return std::nullopt;
      if (common && (axes->row != common->row || axes->column != common->column || axes->chunk_axis != common->chunk_axis))
        return std::nullopt;
      // The longest sum is cut into tiles; others have to be one.
      const bool same = !common || axes->reduction_axis == common->reduction_axis;
      if (!same && std::min(axes->inner, common->inner) > kShortSum) return std::nullopt;
      same_packs = same_packs && (!common || axes->pack == common->pack);
      const std::vector<std::int64_t> own_taps = taps_of(loop_group, axes->reduction_axis);
      same_taps = same_taps && (!common || own_taps == taps);
      taps = own_taps;
      // Nor do sums of other lengths share a loop, which would end for one of them within its tiles.
      if (same && common && common->fixed_inner && axes->fixed_inner && common->inner != axes->inner) same_taps = false;
      // Loops over taps that several products share have one test of what lies around an image: others have loops of their own.
      if (!taps.empty()) {
        const isl::set places = places_of_taps(statement, loop_group, axes->reduction_axis);
        same_taps = same_taps && (!tap_places || places.is_equal(*tap_places));
        tap_places = places;
      }
      if (!common || axes->inner > common->inner) common = axes;
      tiles.emplace(stream, statement.write.tensor);
      const auto products = unscaled_contractions_of(statement);
      sums_parts = sums_parts || products.size() > 1;
      for (const int ordinal : operands_of(products)) {
        const Access& read = statement.reads[static_cast<std::size_t>(ordinal)];
        const bool of_rows = has(moved_axes(loop_group, read, Moves::strided), axes->row);
        const std::string elements = std::to_string(stream) + isl_text(read.relation.set_domain_tuple("point"));
        (of_rows ? rows : columns)[elements] = {1, followed_axes(loop_group, read).back() == axes->reduction_axis};
        if (of_rows) row_tensors.insert(read.tensor);
        if (!of_rows && nest.tensor(read.tensor).role == TensorRole::input) column_inputs.insert(read.tensor);
      }
    }
  }
  if (!common || (group.tile_is_part && common->column != group.part->whole)) return std::nullopt;
  if (common->whole_rows && !has_whole_rows(nest, structure, group, *common)) return std::nullopt;
  // What adds up chunks, or parts, has a tile of its own; so has what is told of a chunk's elements while few of them are added up in memory.
  const bool seldom = std::any_of(group.loop_groups.begin(), group.loop_groups.end(),
                                  [&](int u) { return structure.loop_groups[static_cast<std::size_t>(u)].seldom; });
  common->first_products = static_cast<int>(tiles.size()) * (common->chunk_axis >= 0 || sums_parts ? 2 : 1) +
                           (common->chunk_axis >= 0 && seldom ? 1 : 0);
  common->sums_parts = sums_parts;
  common->same_taps = same_taps;
  if (!same_packs) return std::nullopt;
  for (const auto& [tensor, operand] : rows) common->row_operands.push_back(operand);
  for (const auto& [tensor, operand] : columns) common->streamed_operands.push_back(operand);
  std::set_difference(column_inputs.begin(), column_inputs.end(), row_tensors.begin(), row_tensors.end(),
                      std::inserter(common->streamed_inputs, common->streamed_inputs.end()));
  add_results(nest, structure, group, *common);
  return common;
}

/// Functions in an evaluation that few loop groups compute, for which multiplications of others can stand in.
int functions_of(const ScalarExpr& value) {
  static const std::set<ScalarOp> kFunctions{ScalarOp::exp,   ScalarOp::exp2,  ScalarOp::log,  ScalarOp::pow, ScalarOp::sqrt,
                                             ScalarOp::erf,   ScalarOp::rsqrt, ScalarOp::tanh, ScalarOp::sin, ScalarOp::cos,
                                             ScalarOp::log1p, ScalarOp::expm1, ScalarOp::atan};
  int functions = 0;
  value.visit([&](const ScalarExpr& expr) { functions += kFunctions.count(expr.op()) != 0 ? 1 : 0; });
  return functions;
}

/// Notes what the tiles of a product hold.
void add_tiles(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const LoopGroup& loop_group,
               const Statement& statement, std::set<std::string>& seen, TensorAxes& result) {
  // The sum of a row times another one is left to the threads that hold the row.
  const auto product = multiplies_matrices(statement) ? unscaled_contraction_of(statement) : std::nullopt;
  if (!product) {
    if (has(loop_group.axes, result.row) && has(loop_group.axes, result.reduction_axis))
      result.functions += functions_of(statement.value);
    for (const Access& read : statement.reads) {
      const std::vector<int> axes = followed_axes(loop_group, read);
      const Tensor& tensor = nest.tensor(read.tensor);
      if (is_stored(nest, structure, group, read.tensor) && is_half(tensor.type) && !axes.empty() &&
          axes.back() == result.reduction_axis && has(axes, result.row))
        ++result.tile_operands;
    }
    const int reduction_axis = loop_group.position_of(result.reduction_axis);
    const bool sums = statement.reduction && !loop_group.seldom && reduction_axis >= 0 &&
                      loop_group.reduced[static_cast<std::size_t>(reduction_axis)];
    const std::vector<int> written = followed_axes(loop_group, statement.write);
    if (sums && has(written, result.row) && width_of(structure, group, result, written) > 1) result.no_product = statement.name;
    return;
  }
  const auto is_input = [&](int ordinal) {
    return is_stored(nest, structure, group, statement.reads[static_cast<std::size_t>(ordinal)].tensor);
  };
  const bool of_inputs = is_input(product->a) && is_input(product->b);
  int parts = 0;  // operands in registers
  for (const int ordinal : operands_of(unscaled_contractions_of(statement))) {
    const Access& read = statement.reads[static_cast<std::size_t>(ordinal)];
    const std::vector<int> axes = followed_axes(loop_group, read);
    const std::int64_t width = width_of(structure, group, result, axes);
    if (is_input(ordinal) && !is_half(nest.tensor(read.tensor).type)) result.wide_in_memory = statement.name;
    if (!is_input(ordinal)) {
      if (!has(axes, result.reduction_axis)) continue;
      if (++parts == 1) ++result.register_operands;
      result.operand_parts = std::max(result.operand_parts, parts);
      if (nest.tensor(read.tensor).type != ElementType::f32) continue;
      ++result.wide_operands;
      const ValueRange range = range_of(nest, read.tensor);
      result.cancelling = result.cancelling || (range.low < 0 && range.high > 0);
    } else if (has(axes, result.reduction_axis)) {
      if (nest.tensor(read.tensor).role == TensorRole::input) result.streamed_inputs.insert(read.tensor);
      // Products of one kind share the tile that they read at the same indices.
      if (seen.insert(fmt::format("{} {} {}", read.tensor, fmt::join(axes, ","), of_inputs)).second)
        result.streamed_operands.push_back(
            {width, axes.back() != result.reduction_axis, of_inputs ? nvptx::kTerms : nvptx::kSumColumns});
    } else if (seen.insert(read.tensor).second) {
      result.row_operands.push_back({width, axes.back() != result.row});
    }
  }
  const std::vector<int> written = followed_axes(loop_group, statement.write);
  if (has(written, result.reduction_axis)) {
    ++result.first_products;
  } else {
    result.sums.push_back(width_of(structure, group, result, written));
  }
}

/// Do others of the group touch a temporary that this loop group touches? The start of a sum that another kernel adds up stands alone.
bool is_linked(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int loop_group) {
  const auto tensors_of = [&](int u) {
    std::set<std::string> tensors;
    for (const std::string& name : structure.loop_groups[static_cast<std::size_t>(u)].statements) {
      const Statement& statement = nest.statement(name);
      tensors.insert(statement.write.tensor);
      for (const Access& read : statement.reads) {
        if (nest.tensor(read.tensor).role != TensorRole::input) tensors.insert(read.tensor);
      }
    }
    return tensors;
  };
  const std::set<std::string> own = tensors_of(loop_group);
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const std::set<std::string> others = tensors_of(u);
    return u != loop_group && std::any_of(own.begin(), own.end(), [&](const auto& tensor) { return others.contains(tensor); });
  });
}

/// Has a statement that is no product more dims than the rows and columns of tiles, as a result along an axis that the group does not share?
/// Nothing says which dims of a statement that stands alone are rows.
bool has_more_dims(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const TensorAxes& tiled) {
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    const auto is_product = [&](const std::string& name) { return unscaled_contraction_of(nest.statement(name)).has_value(); };
    if (loop_group.seldom || std::any_of(loop_group.statements.begin(), loop_group.statements.end(), is_product)) return false;
    const bool linked = is_linked(nest, structure, group, u);
    int columns = 0;
    for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
      const int axis = loop_group.axes[k];
      const bool rows = axis == tiled.row || axis == tiled.pack;
      const bool around = rows ? linked : (axis != tiled.column && has(group.axes, axis)) || axis == tiled.chunk_axis;
      columns += !around && loop_group.extents[k] > 1 ? 1 : 0;
    }
    return columns > 1;
  });
}

/// Do statements read what the group makes at other rows than their own, as sums of all rows up to one's own that columns read, too? Other
/// blocks have those. A statement of one row, as the start of a recurrence, or of one column has no place in a tile of many.
bool reads_other_rows(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const TensorAxes& tiled) {
  std::map<std::string, std::vector<int>> made;  // axes of indices
  const auto has_one = [&](const LoopGroup& loop_group, int axis) {
    const int position = axis < 0 ? -1 : loop_group.position_of(axis);
    return position >= 0 && loop_group.extents[static_cast<std::size_t>(position)] == 1 &&
           structure.axes[static_cast<std::size_t>(axis)].extent > 1;
  };
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    const bool one = has_one(loop_group, tiled.row) || has_one(loop_group, tiled.column) || has_one(loop_group, tiled.pack);
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      for (const Access& read : statement.reads) {
        const auto known = made.find(read.tensor);
        if (known == made.end()) continue;
        if (one) return true;
        const std::vector<int> axes = followed_axes(loop_group, read);
        for (std::size_t k = 0; k < axes.size(); ++k) {
          if (known->second[k] == tiled.row && axes[k] != tiled.row) return true;
        }
      }
      made[statement.write.tensor] = followed_axes(loop_group, statement.write);
    }
  }
  return false;
}

/// Does a statement of the loop group read what one of the chains computes?
bool reads_of_chains(const Nest& nest, const LoopGroup& loop_group, const std::vector<std::set<std::string>>& chains) {
  return std::any_of(loop_group.statements.begin(), loop_group.statements.end(), [&](const std::string& name) {
    const std::vector<Access>& reads = nest.statement(name).reads;
    return std::any_of(reads.begin(), reads.end(), [&](const Access& read) {
      return std::any_of(chains.begin(), chains.end(), [&](const auto& chain) { return chain.contains(read.tensor); });
    });
  });
}

/// Parts of a loop over streamed columns that read nothing of each other; of the loop that has most, where finished results stand between two.
int chains_of(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int streamed) {
  std::vector<std::set<std::string>> chains;  // tensors that are computed
  std::size_t most = 0;
  const auto end_loop = [&] {
    most = std::max(most, chains.size());
    chains.clear();
  };
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    const bool streams = loop_group.position_of(streamed) >= 0;
    if (!streams && reads_of_chains(nest, loop_group, chains)) end_loop();
    for (const std::string& name : streams ? loop_group.statements : std::vector<std::string>{}) {
      const Statement& statement = nest.statement(name);
      std::set<std::string> own{statement.write.tensor};
      for (const Access& read : statement.reads) {
        if (!is_stored(nest, structure, group, read.tensor)) own.insert(read.tensor);
      }
      std::erase_if(chains, [&](const std::set<std::string>& chain) {
        const bool meets = std::any_of(chain.begin(), chain.end(), [&](const auto& tensor) { return own.contains(tensor); });
        if (meets) own.insert(chain.begin(), chain.end());
        return meets;
      });
      chains.push_back(std::move(own));
    }
  }
  end_loop();
  return static_cast<int>(most);
}

std::optional<TensorAxes> found_axes(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int sm) {
  for (const int u : group.tile_is_part ? std::vector<int>{} : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[u];
    for (const std::string& name : loop_group.statements) {
      auto axes = axes_of_product(nest, structure, loop_group, nest.statement(name), group);
      if (!axes) continue;
      // Long rows of operands do not stay in a block: their terms are streamed where a tile has all columns.
      const auto sums = axes->inner > kMostKeptTerms ? axes_of_sums(nest, structure, group, false) : std::nullopt;
      if (sums && sums->whole_rows) return sums;
      std::set<std::string> seen;
      for (const int other : group.loop_groups) {
        const LoopGroup& all = structure.loop_groups[other];
        for (const std::string& statement : all.statements)
          add_tiles(nest, structure, group, all, nest.statement(statement), seen, *axes);
      }
      add_results(nest, structure, group, *axes);
      axes->chains = chains_of(nest, structure, group, axes->reduction_axis);
      return axes;
    }
  }
  NvptxTarget target;
  target.sm = sm;
  // Not all products of a group may have such rows.
  const bool packs = nvptx::has_group_products(target);
  auto axes = packs ? axes_of_sums(nest, structure, group, true) : std::nullopt;
  return axes ? axes : axes_of_sums(nest, structure, group, false);
}

}  // namespace

namespace {

/// Has a product other values of one of these axes at some rows than at others, as under a mask? `bounds`: other first or last ones.
bool has_cut_tiles(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int row_axis,
                   const std::vector<int>& along, bool bounds) {
  const isl::set sizes = full_context(nest);
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    const int row = loop_group.position_of(row_axis);
    return std::any_of(loop_group.statements.begin(), loop_group.statements.end(), [&](const std::string& name) {
      const Statement& statement = nest.statement(name);
      if (row < 0 || !multiplies_matrices(statement)) return false;
      isl::set points = statement.domain.intersect_params(sizes);
      if (bounds) points = isl::manage(isl_set_from_basic_set(isl_set_simple_hull(points.release())));
      return std::any_of(loop_group.axes.begin(), loop_group.axes.end(), [&](int axis) {
        const int other = loop_group.position_of(axis);
        return has(along, axis) && other != row && !is_box(points, row, other);
      });
    });
  });
}

/// A few rows of a few terms, as where four streams are mixed for each token: hardly anything of a tile would be theirs.
bool hardly_fills_tiles(const TensorAxes& axes) {
  constexpr std::int64_t kFewRows = 8, kFewTerms = 8;
  return axes.row_extent * axes.pack_extent <= kFewRows && axes.inner * axes.taps <= kFewTerms;
}

}  // namespace

std::optional<TensorAxes> tensor_axes(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int sm) {
  auto axes = found_axes(nest, structure, group, sm);
  if (axes && hardly_fills_tiles(*axes)) return std::nullopt;
  // Steps of a recurrence take what those before them have left in memory, or in tiles at other places.
  if (axes && group.parallel.size() == group.axes.size() && !serial_axes(group).empty()) return std::nullopt;
  if (axes && (has_more_dims(nest, structure, group, *axes) || reads_other_rows(nest, structure, group, *axes)))
    return std::nullopt;
  if (axes) axes->stream_extent = structure.axes[static_cast<std::size_t>(axes->reduction_axis)].extent;
  if (axes && axes->column >= 0) {
    axes->cut_columns = has_cut_tiles(nest, structure, group, axes->row, {axes->column}, true);
    axes->cut_tiles = has_cut_tiles(nest, structure, group, axes->row, {axes->column, axes->reduction_axis}, false);
  }
  return axes;
}

bool rows_follow_stream(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const TensorAxes& axes) {
  const isl::set sizes = full_context(nest);
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[u];
    const int row = loop_group.position_of(axes.row),
              reduction_axis = loop_group.position_of(group.tile_is_part ? group.part->whole : axes.reduction_axis);
    if (row < 0 || reduction_axis < 0 || !loop_group.reduced[static_cast<std::size_t>(reduction_axis)]) continue;
    for (const std::string& name : loop_group.statements) {
      if (!is_box(nest.statement(name).domain.intersect_params(sizes), row, reduction_axis)) return true;
    }
  }
  return false;
}

bool several_chains(const TensorAxes& axes) { return axes.chains > 1 && axes.first_products > 1 && axes.register_operands > 1; }

}  // namespace nestor
