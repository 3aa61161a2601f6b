// Rows, columns and layouts of the ops of a block.
#include "codegen/gpu/simt/plan/block_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>

namespace nestor::nvptx {
namespace {

/// Stands for an extent that is not known when compiling.
constexpr std::int64_t kLargeExtent = 1 << 16;

/// Points of a sum that are worth dividing among groups of threads, and chunks of columns whose sums a thread then keeps.
constexpr std::int64_t kFewestDivided = 8;
constexpr std::int64_t kMostDividedChunks = 4;

/// Rows of a thread that are taken at once: of pairs; where no operand follows rows, so that a thread has a sum of each alone.
constexpr std::int64_t kMostPairRows = 8, kMostSharedRows = 32;

/// What the loads of a column cost, where a term costs 1: terms of pairs are longer than those that rows share.
constexpr double kPairLoads = 0.5, kSharedLoads = 4;

/// How often each index of each buffer runs along rows of some op.
using RowEvidence = std::set<std::pair<int, std::size_t>>;

void note_rows(const BlockOp& op, RowEvidence& evidence) {
  const auto note = [&](const TileAccess& access) {
    for (std::size_t k = 0; k < access.index.size(); ++k) {
      for (int d : op.rows) {
        if (access.index[k].uses(op.op.dims[d].var)) evidence.insert({access.buffer, k});
      }
    }
  };
  note(op.op.write);
  for (const TileAccess& read : op.op.reads) note(read);
}

bool touches_rows(const BlockOp& op, int dim, const BlockPlan& plan, const RowEvidence& evidence) {
  const auto touches = [&](const TileAccess& access) {
    if (plan.buffer(access.buffer).memory != Memory::scratch) return false;
    for (std::size_t k = 0; k < access.index.size(); ++k) {
      if (access.index[k].uses(op.op.dims[dim].var) && evidence.count({access.buffer, k}) != 0) return true;
    }
    return false;
  };
  return touches(op.op.write) || std::any_of(op.op.reads.begin(), op.op.reads.end(), touches);
}

void assign_roles(BlockOp& op, const std::vector<bool>& spread, int column) {
  op.column = column;
  op.roles.assign(op.op.dims.size(), DimRole::serial);
  op.rows.clear();
  for (int d = 0; d < static_cast<int>(op.op.dims.size()); ++d) {
    if (d == column) {
      op.roles[d] = DimRole::column;
    } else if (spread[d] && !op.op.dims[d].reduced && !single_valued(op.op.dims[d])) {
      op.roles[d] = DimRole::row;
      op.rows.push_back(d);
    }
  }
}

/// A vector's width that lets the narrowest tensor element along the columns fill 16 bytes.
int widest_vector(const BlockPlan& plan, const BlockOp& op) {
  std::size_t narrowest = 16;
  const auto visit = [&](const TileAccess& access) {
    const Buffer& buffer = plan.buffer(access.buffer);
    if (op.column < 0 || buffer.memory == Memory::scratch || !uses_any(access, op.op.dims[op.column].var)) return;
    narrowest = std::min(narrowest, size_in_bytes(buffer.type));
  };
  visit(op.op.write);
  for (const TileAccess& read : op.op.reads) visit(read);
  return static_cast<int>(16 / narrowest);
}

/// The widest vector of which every one of these ops along tensors can make use; 1 without any.
int shared_vector(BlockPlan& plan, const std::vector<int>& ops) {
  for (int width = 8; width > 1; width /= 2) {
    bool useful = false, possible = true;
    for (const int k : ops) {
      BlockOp& op = plan.ops[static_cast<std::size_t>(k)];
      if (op.product || op.op.kind == OpKind::points || widest_vector(plan, op) == 1) continue;
      possible = possible && width <= widest_vector(plan, op) * (widest_vector(plan, op) == 4 ? 2 : 1) &&
                 can_vectorise(plan, op, width, false);
      useful = useful || widest_vector(plan, op) >= width;
    }
    if (useful && possible) return width;
  }
  return 1;
}

std::vector<int> all_ops(const BlockPlan& plan) {
  std::vector<int> all(plan.ops.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Ops that touch columns of one scratch buffer, whose threads must hold the same ones.
std::vector<std::vector<int>> ops_of_same_columns(const BlockPlan& plan) {
  std::vector<std::pair<std::vector<int>, std::set<int>>> sets;  // ops, buffers
  for (const int k : all_ops(plan)) {
    const BlockOp& op = plan.ops[static_cast<std::size_t>(k)];
    std::pair<std::vector<int>, std::set<int>> joined{{k}, {}};
    const auto note = [&](const TileAccess& access) {
      const bool along = op.column >= 0 && uses_any(access, op.op.dims[op.column].var);
      if (along && plan.buffer(access.buffer).memory == Memory::scratch) joined.second.insert(access.buffer);
    };
    note(op.op.write);
    for (const TileAccess& read : op.op.reads) note(read);
    std::erase_if(sets, [&](auto& other) {
      const bool meets =
          std::any_of(other.second.begin(), other.second.end(), [&](int id) { return joined.second.contains(id); });
      if (!meets) return false;
      joined.first.insert(joined.first.end(), other.first.begin(), other.first.end());
      joined.second.merge(other.second);
      return true;
    });
    sets.push_back(std::move(joined));
  }
  std::vector<std::vector<int>> ops;
  for (auto& each : sets) ops.push_back(std::move(each.first));
  return ops;
}

/// Where no vectors suit all ops (rows of 7 weights beside rows of 32 elements), those that suit ops of the same columns, in the lanes of all: no
/// lane is idle for it.
void widen_vectors(BlockPlan& plan) {
  for (const std::vector<int>& ops : ops_of_same_columns(plan)) {
    const auto is_plain = [&](int k) {
      const BlockOp& op = plan.ops[static_cast<std::size_t>(k)];
      return !op.prefix && op.divided < 0 && op.op.kind != OpKind::points && op.column_bound();
    };
    if (!std::all_of(ops.begin(), ops.end(), is_plain)) continue;
    std::int64_t columns = 1;
    for (const int k : ops) columns = std::max(columns, *plan.ops[static_cast<std::size_t>(k)].column_bound());
    const int vector = shared_vector(plan, ops);
    if (vector <= plan.layout.vector || std::int64_t{plan.layout.lanes} * 2 > columns) continue;
    const auto most = std::bit_floor(static_cast<std::uint64_t>(columns / plan.layout.lanes));
    for (const int k : ops)
      plan.ops[static_cast<std::size_t>(k)].layout.vector = std::min(vector, static_cast<int>(std::min<std::uint64_t>(most, 8)));
  }
}

bool has_product(const BlockPlan& plan) {
  return std::any_of(plan.ops.begin(), plan.ops.end(), [](const BlockOp& op) { return op.product.has_value(); });
}

/// Rows that all reductions along columns can take at once; 0: some take them one by one, or there are none.
std::int64_t rows_of_all_at_once(const BlockPlan& plan) {
  std::int64_t least = 0;
  for (const BlockOp& op : plan.ops) {
    if (!op.reduces_columns()) continue;
    const std::int64_t most = most_rows_at_once(op);
    if (most == 0) return 0;
    least = least == 0 ? most : std::min(least, most);
  }
  return least;
}

/// Do neighbouring columns of some operand of a sum lie apart in memory? Then vectors of columns would have a thread load elements that lie
/// further still from its neighbours'.
bool has_strided_columns(const BlockPlan& plan) {
  return std::any_of(plan.ops.begin(), plan.ops.end(), [](const BlockOp& op) {
    return op.reduces_columns() && std::any_of(op.op.reads.begin(), op.op.reads.end(), [&](const TileAccess& read) {
             const std::string& column = op.op.dims[op.column].var;
             if (!uses_any(read, column)) return false;  // as where it has no index at all
             // Words that several columns lie in are nearer still.
             const bool packed = read.index.back().uses(column) && !read.index.back().coefficient(column);
             return read.index.back().coefficient(column) != 1 && !packed;
           });
  });
}

/// Where groups of threads have nothing else to do than to divide sums: the layout that suits the longest of them.
std::optional<Layout> dividing_layout(const BlockPlan& plan, int vector, std::optional<std::int64_t> columns) {
  std::optional<std::int64_t> points = 1;
  for (const BlockOp& op : plan.ops) {
    if (op.product || !op.rows.empty()) return std::nullopt;
    if (op.divided < 0) continue;
    // Blocks of a cluster meet in sums over columns alone.
    if (plan.cluster > 1 && !op.reduces_columns()) return std::nullopt;
    const auto extent = extent_bound(op.op.dims[op.divided]);
    points = points && extent ? std::optional(std::max(*points, *extent)) : std::nullopt;
  }
  if (points == 1) return std::nullopt;
  const Layout layout = best_layout(plan.all_threads(), vector, points, columns, false, false);
  const bool well = std::all_of(plan.ops.begin(), plan.ops.end(),
                                [&](const BlockOp& op) { return op.divided < 0 || divides_well(op, layout); });
  return well ? std::optional(layout) : std::nullopt;
}

/// Threads worth starting: each has at least one vector, or sixteen accumulators of a product, in the largest op.
int useful_threads(const BlockPlan& plan, int vector, int limit) {
  std::int64_t most = 32;
  for (const BlockOp& op : plan.ops) {
    const auto rows = op.divided < 0 ? op.row_bound() : extent_bound(op.op.dims[op.divided]), columns = op.column_bound();
    if (!rows || !columns) return limit;
    const std::int64_t share = op.product ? 16 : vector;
    most = std::max(most, round_up(ceil_div(*rows * *columns, share), 32));
  }
  return static_cast<int>(std::min<std::int64_t>(most, limit));
}

/// Where a row has so many vectors and no power of two: as many of the threads as make whole rows in whole warps. All of them, then, have an
/// element, and neighbours neighbouring ones, beyond the end of a row too.
int threads_of_short_rows(int threads, std::int64_t vectors) {
  if (vectors < 1 || vectors > nvptx::kWarpThreads) return threads;
  const int whole = std::lcm(static_cast<int>(vectors), nvptx::kWarpThreads);
  return whole > threads ? threads : threads / whole * whole;
}

/// The layout of the longest running sums, where ops with other rows and columns would have it between both: a thread takes its share of a row
/// one after the other, and of few rows others would have none.
std::optional<Layout> layout_of_prefixes(const BlockPlan& plan, int vector, std::int64_t most_rows) {
  const BlockOp* longest = nullptr;
  for (const BlockOp& op : plan.ops) {
    if (!op.prefix || !op.row_bound() || !op.column_bound()) continue;
    if (!longest || *op.column_bound() > *longest->column_bound()) longest = &op;
  }
  if (!longest || *longest->row_bound() == most_rows) return std::nullopt;
  return best_layout(plan.threads, vector, longest->row_bound(), longest->column_bound(), true, false);
}

}  // namespace

void choose_roles(BlockPlan& plan) {
  RowEvidence evidence;
  std::vector<std::vector<bool>> spread;
  std::vector<int> undecided;
  for (std::size_t k = 0; k < plan.ops.size(); ++k) {
    BlockOp& op = plan.ops[k];
    spread.push_back(spreadable_dims(op.op));
    const int of_sums = column_of_scattered(plan, op);
    const bool scattered = of_sums >= 0 && spread.back()[static_cast<std::size_t>(of_sums)];
    const int column = op.product  ? op.product->form.column
                       : scattered ? of_sums
                                   : choose_column(op.op, plan.program->buffers, spread.back());
    // What no lanes scan each thread runs through.
    if (op.prefix && column != op.prefix->kept) spread.back()[static_cast<std::size_t>(op.prefix->kept)] = false;
    assign_roles(op, spread.back(), column);
    const bool row_like = !scattered && column >= 0 && op.rows.empty() && !op.prefix && !op.op.dims[column].reduced &&
                          op.op.dims[column].kind != LoopKind::gpu_lane;
    if (row_like) {
      undecided.push_back(static_cast<int>(k));
    } else {
      note_rows(op, evidence);
    }
  }
  // An op over one dim follows the buffers it shares with others: what is a row there is a row here.
  for (bool changed = true; changed;) {
    changed = false;
    for (int& k : undecided) {
      if (k < 0 || !touches_rows(plan.ops[k], plan.ops[k].column, plan, evidence)) continue;
      BlockOp& op = plan.ops[k];
      assign_roles(op, spread[k], -1);
      note_rows(op, evidence);
      k = -1;
      changed = true;
    }
  }
  for (BlockOp& op : plan.ops) divide_sum(op);
}

namespace {

bool follows_rows(const BlockOp& op, const IntExpr& expr) {
  return std::any_of(op.rows.begin(), op.rows.end(), [&](int d) { return expr.uses(op.op.dims[d].var); });
}

bool reads_rows(const BlockOp& op) {
  return std::any_of(op.op.reads.begin(), op.op.reads.end(), [&](const TileAccess& read) { return follows_rows(op, read); });
}

/// Can rows stand inside of the loops over all else?
bool rows_may_stand_inside(const BlockOp& op) {
  for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
    const OpDim& dim = op.op.dims[d];
    const bool runs = op.roles[d] == DimRole::serial && !single_valued(dim);
    if (runs && (!dim.reduced || reads_rows(op))) return false;
    const auto bounds_use = [&](const OpDim& other) { return other.lower.uses(dim.var) || other.upper.uses(dim.var); };
    const bool is_column = static_cast<int>(d) == op.column;
    if (is_column && std::any_of(op.op.dims.begin(), op.op.dims.end(), bounds_use)) return false;
    if (runs && std::any_of(op.rows.begin(), op.rows.end(), [&](int row) { return bounds_use(op.op.dims[row]); })) return false;
    if ((is_column || runs) && (follows_rows(op, dim.lower) || follows_rows(op, dim.upper))) return false;
  }
  return true;
}

}  // namespace

bool follows_rows(const BlockOp& op, const TileAccess& access) {
  return std::any_of(access.index.begin(), access.index.end(), [&](const IntExpr& index) { return follows_rows(op, index); });
}

namespace {

/// Operations of the expression, or of those parts of it that follow no rows, with something along the column.
struct ColumnWork {
  bool rows = false, column = false;
  int operations = 0;
};

ColumnWork column_work(const BlockOp& op, const ScalarExpr& expr) {
  const std::string& column = op.op.dims[static_cast<std::size_t>(op.column)].var;
  if (expr.op() == ScalarOp::read) {
    const TileAccess& access = op.op.reads[static_cast<std::size_t>(expr.ordinal())];
    return {follows_rows(op, access), uses_any(access, column), 0};
  }
  if (expr.op() == ScalarOp::index) {
    const IntExpr& index = op.op.indices[static_cast<std::size_t>(expr.ordinal())];
    return {follows_rows(op, index), index.uses(column), 0};
  }
  ColumnWork all;
  for (const ScalarExpr& arg : expr.args()) {
    const ColumnWork part = column_work(op, arg);
    all.rows = all.rows || part.rows;
    all.column = all.column || part.column;
    all.operations += part.operations;
  }
  all.operations += !all.rows && all.column ? 1 : 0;
  return all;
}

}  // namespace

std::int64_t most_rows_at_once(const BlockOp& op) {
  if (!op.reduces_columns() || op.rows.empty() || op.divided >= 0 || op.ahead > 0 || op.op.kind == OpKind::points) return 0;
  if (!rows_may_stand_inside(op)) return 0;
  bool has_columns = false, has_both = false;
  for (const TileAccess& read : op.op.reads) {
    const bool along = uses_any(read, op.op.dims[op.column].var), row = follows_rows(op, read);
    has_both = has_both || (row && along);
    has_columns = has_columns || (along && !row);
  }
  if (!has_columns || (has_both && column_work(op, op.op.value).operations < kWorthSharing)) return 0;
  return reads_rows(op) ? kMostPairRows : kMostSharedRows;
}

bool shares_terms(const BlockOp& op) { return most_rows_at_once(op) > 0 && !reads_rows(op); }

bool fits_rows_at_once(const BlockOp& op) {
  const auto bound = op.row_bound();
  return bound && *bound > op.layout.groups && ceil_div(*bound, op.layout.groups) <= most_rows_at_once(op);
}

void divide_sum(BlockOp& op) {
  op.divided = -1;
  const bool sums = op.op.kind == OpKind::reduce || op.op.kind == OpKind::contract;
  if (!sums || op.product || op.chosen || op.column < 0 || !op.rows.empty()) return;
  const std::vector<bool> spread = spreadable_dims(op.op);
  std::int64_t longest = kFewestDivided - 1;
  for (int d = 0; d < static_cast<int>(op.op.dims.size()); ++d) {
    if (d == op.column || single_valued(op.op.dims[d])) continue;
    if (!op.op.dims[d].reduced) {
      op.divided = -1;
      return;
    }
    const std::int64_t extent = extent_bound(op.op.dims[d]).value_or(kLargeExtent);
    if (!spread[d] || extent <= longest) continue;
    op.divided = d;
    longest = extent;
  }
}

bool divides_well(const BlockOp& op, const Layout& layout) {
  if (op.reduces_columns()) return true;  // one sum in all
  const auto columns = op.column_bound();
  return columns && ceil_div(*columns, static_cast<std::int64_t>(layout.lanes) * layout.vector) <= kMostDividedChunks;
}

Layout best_layout(int threads, int vector, std::optional<std::int64_t> rows, std::optional<std::int64_t> columns, bool reduces,
                   bool product, bool any_lanes, std::int64_t rows_at_once) {
  const std::int64_t r = std::max<std::int64_t>(rows.value_or(kLargeExtent), 1),
                     c = std::max<std::int64_t>(columns.value_or(kLargeExtent), 1);
  Layout best;
  double best_cost = 0;
  std::set<int> possible;
  for (int lanes = 1; lanes <= threads; lanes = lanes < 32 ? 2 * lanes : lanes + 32) possible.insert(lanes);
  if (any_lanes && c <= std::int64_t{32} * vector) possible.insert(static_cast<int>(ceil_div(c, vector)));
  for (const int lanes : possible) {
    if (threads % lanes != 0) continue;
    const int groups = threads / lanes;
    const double slots = static_cast<double>(ceil_div(r, groups)),
                 chunks = static_cast<double>(ceil_div(c, static_cast<std::int64_t>(lanes) * vector));
    double cost = slots * chunks;
    if (product) cost += 0.01 * (slots + chunks * vector);  // operands read for a register block
    if (reduces) cost += slots * (lanes > 32 ? 1.0 : 0.05 * std::log2(lanes));
    if (!product && lanes * vector < 8) cost += 0.5 * slots * chunks;  // pieces of memory shorter than a sector
    if (!product) cost -= 1e-3 * std::min(lanes, 32) / 32.0;           // neighbours in memory to neighbours in a warp
    // A column is loaded once for all rows of a thread, of which there are so many registers for.
    if (rows_at_once > 0) {
      cost += (rows_at_once > kMostPairRows ? kSharedLoads : kPairLoads) * chunks;
      cost += slots > static_cast<double>(rows_at_once) || lanes > kWarpThreads ? slots * chunks : 0.0;
    }
    if (best_cost == 0 || cost < best_cost) {
      best = {vector, lanes, groups};
      best_cost = cost;
    }
  }
  return best;
}

void choose_layouts(BlockPlan& plan, int most_threads, int exact_threads) {
  const bool product = has_product(plan);
  int vector = product ? 4 : 1;
  if (!product && plan.vector_memory) vector = shared_vector(plan, all_ops(plan));
  std::optional<std::int64_t> rows = 1, columns = 1;
  bool reduces = false, any_lanes = !product && plan.cluster == 1;
  const std::int64_t rows_at_once = !product && plan.cluster == 1 ? rows_of_all_at_once(plan) : 0;
  if (rows_at_once > 0 && has_strided_columns(plan)) vector = 1;
  for (const BlockOp& op : plan.ops) {
    if (product && !op.product) continue;
    const auto op_rows = op.row_bound(), op_columns = op.column_bound();
    rows = rows && op_rows ? std::optional(std::max(*rows, *op_rows)) : std::nullopt;
    columns = columns && op_columns ? std::optional(std::max(*columns, *op_columns)) : std::nullopt;
    reduces = reduces || op.meets_along_columns();
    any_lanes = any_lanes && !op.meets_along_columns() && op.divided < 0;
  }
  plan.threads = exact_threads > 0 ? exact_threads : useful_threads(plan, vector, most_threads);
  if (exact_threads == 0 && plan.cluster > 1) plan.threads = most_threads;
  if (exact_threads == 0 && any_lanes && columns) plan.threads = threads_of_short_rows(plan.threads, ceil_div(*columns, vector));
  if (product && columns && *columns < 32) vector = *columns >= 16 ? 2 : 1;
  plan.layout = plan.cluster > 1 ? Layout{vector, plan.all_threads(), 1}  // what a cluster is for: one row over all blocks
                                 : best_layout(plan.threads, vector, rows, columns, reduces, product, any_lanes, rows_at_once);
  if (!product && plan.cluster == 1 && rows) plan.layout = layout_of_prefixes(plan, vector, *rows).value_or(plan.layout);
  plan.layout = dividing_layout(plan, vector, columns).value_or(plan.layout);
  std::vector<const BlockOp*> all;
  for (const BlockOp& op : plan.ops) all.push_back(&op);
  if (!product) plan.layout = with_windows(plan, all, plan.layout, rows, columns);
  for (BlockOp& op : plan.ops) op.layout = plan.layout;
  if (!product && plan.vector_memory && plan.cluster == 1 && vector == 1 && rows_at_once == 0 && plan.layout.run == 1)
    widen_vectors(plan);
}

std::optional<ThreadMap> thread_map(const BlockOp& op, const TileAccess& access, bool is_write) {
  ThreadMap map;
  map.layout = op.layout;
  const bool column_varies = op.column >= 0 && !(op.op.dims[op.column].reduced && is_write);
  std::size_t rows_used = 0;
  bool column_used = false;
  for (const IntExpr& index : access.index) {
    IntExpr expr = index;
    for (std::size_t k = 0; k < op.rows.size(); ++k) {
      const OpDim& dim = op.op.dims[op.rows[k]];
      if (!expr.uses(dim.var)) continue;
      ++rows_used;
      expr = expr.substitute(dim.var, dim.lower + IntExpr::variable(row_token(k)));
    }
    if (op.column >= 0 && expr.uses(op.op.dims[op.column].var)) {
      const OpDim& dim = op.op.dims[op.column];
      column_used = true;
      expr = expr.substitute(dim.var, dim.lower + IntExpr::variable(kColumnToken));
    }
    map.index.push_back(affine_of(expr));
  }
  if (is_write && rows_used != op.rows.size()) return std::nullopt;
  if (is_write && column_varies != column_used) return std::nullopt;
  if (rows_used != 0 && rows_used != op.rows.size()) return std::nullopt;
  if (rows_used != 0) {
    for (int d : op.rows) {
      const auto extent = extent_bound(op.op.dims[d]);
      if (!extent) return std::nullopt;
      map.row_extents.push_back(*extent);
    }
  }
  if (column_used) {
    const auto extent = op.column_bound();
    if (!extent) return std::nullopt;
    map.column_extent = *extent;
  }
  return map;
}

}  // namespace nestor::nvptx
