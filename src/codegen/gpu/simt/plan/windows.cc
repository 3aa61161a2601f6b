// Sums of sliding windows: a thread sums up neighbouring rows together, and loads what several of them read once. Found in how far indices
// move with rows and with what is summed over.
#include "codegen/gpu/simt/plan/block_plan.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

constexpr int kMostRun = 8;                     ///< rows
constexpr std::int64_t kMostTaps = 16;          ///< points of a dim that is written out
constexpr std::int64_t kMostWindowSums = 64;    ///< of a thread
constexpr std::int64_t kMostWrittenOut = 4096;  ///< terms
constexpr double kSharedShare = 0.75;           ///< of loads that are left, at most

/// What one index adds for each step of a dim; nullopt: it is not linear there.
std::optional<std::int64_t> stride_of(const IntExpr& index, const std::string& var) {
  const Affine form = affine_of(index);
  for (const auto& [name, coefficient] : form.terms) {
    if (name != var && name.find(var) != std::string::npos && name[0] == '[') return std::nullopt;
  }
  const auto found = form.terms.find(var);
  return found == form.terms.end() ? 0 : found->second;
}

/// Reduced dims of several values.
std::vector<int> summed_dims(const BlockOp& op) {
  std::vector<int> dims;
  for (int d = 0; d < static_cast<int>(op.op.dims.size()); ++d) {
    if (op.op.dims[d].reduced && !single_valued(op.op.dims[d])) dims.push_back(d);
  }
  return dims;
}

/// Row dims whose positions differ within a run.
std::vector<int> moving_rows(const BlockOp& op, int run) {
  std::vector<int> dims;
  for (std::size_t k = 0; k < op.rows.size(); ++k) {
    bool moves = false;
    for (int row = 1; row < run; ++row) moves = moves || places_in_run(op, row)[k] != 0;
    if (moves) dims.push_back(op.rows[k]);
  }
  return dims;
}

/// The dims to write out for a run: from the first one that moves an index together with its rows. Empty: no window slides.
std::vector<int> window_dims(const BlockOp& op, int run) {
  const std::vector<int> summed = summed_dims(op), rows = moving_rows(op, run);
  const auto moves = [&](const IntExpr& index, int d) { return stride_of(index, op.op.dims[d].var).value_or(0) != 0; };
  const auto slides = [&](int d) {
    return std::any_of(op.op.reads.begin(), op.op.reads.end(), [&](const TileAccess& read) {
      return std::any_of(read.index.begin(), read.index.end(), [&](const IntExpr& index) {
        return moves(index, d) && std::any_of(rows.begin(), rows.end(), [&](int row) { return moves(index, row); });
      });
    });
  };
  const auto first = std::find_if(summed.begin(), summed.end(), slides);
  std::vector<int> dims(first, summed.end());
  const bool short_ones = std::all_of(dims.begin(), dims.end(), [&](int d) {
    return op.roles[d] == DimRole::serial && exact_extent(op.op.dims[d]).value_or(kMostTaps + 1) <= kMostTaps &&
           !bounds_use_other_dims(op.op, op.op.dims[d]);
  });
  return short_ones ? dims : std::vector<int>{};
}

std::int64_t terms_of(const BlockOp& op, const std::vector<int>& dims) {
  std::int64_t count = 1;
  for (const int d : dims) count *= *exact_extent(op.op.dims[d]);
  return count;
}

/// Different elements that a run of rows reads by one access while the dims go through their points.
std::int64_t footprint(const BlockOp& op, const TileAccess& read, int run, const std::vector<int>& dims) {
  std::set<std::vector<std::int64_t>> elements;
  const std::vector<std::vector<std::int64_t>> points = points_of_dims(op, dims);
  std::vector<std::vector<std::int64_t>> row_strides, strides;
  for (const IntExpr& index : read.index) {
    const auto strides_of = [&](const std::vector<int>& of) {
      std::vector<std::int64_t> found;
      for (const int d : of) found.push_back(stride_of(index, op.op.dims[d].var).value_or(1 << 20));
      return found;
    };
    row_strides.push_back(strides_of(op.rows));
    strides.push_back(strides_of(dims));
  }
  for (int row = 0; row < run; ++row) {
    const std::vector<std::int64_t> places = places_in_run(op, row);
    for (const std::vector<std::int64_t>& point : points) {
      std::vector<std::int64_t> element(read.index.size(), 0);
      for (std::size_t i = 0; i < element.size(); ++i) {
        for (std::size_t k = 0; k < point.size(); ++k) element[i] += strides[i][k] * point[k];
        for (std::size_t k = 0; k < places.size(); ++k) element[i] += row_strides[i][k] * places[k];
      }
      elements.insert(std::move(element));
    }
  }
  return static_cast<std::int64_t>(elements.size());
}

/// Loads for each term of a row, of all that the op reads.
double loads_of_term(const BlockOp& op, int run, const std::vector<int>& dims) {
  double loads = 0;
  for (const TileAccess& read : op.op.reads) loads += static_cast<double>(footprint(op, read, run, dims));
  return loads / static_cast<double>(run * terms_of(op, dims));
}

/// Beside numbers in registers: of an argument there is a first element, which may be read where a guard does not hold.
bool reads_arguments(const BlockPlan& plan, const BlockOp& op) {
  return std::all_of(op.op.reads.begin(), op.op.reads.end(), [&](const TileAccess& read) {
    return plan.buffer(read.buffer).memory == Memory::argument && !read.index.empty();
  });
}

/// Sums that a thread makes by itself, over memory, whose terms and bounds leave the order of rows open.
bool sums_rows(const BlockPlan& plan, const BlockOp& op) {
  const bool sums = op.op.kind == OpKind::reduce || op.op.kind == OpKind::contract;
  if (!sums || op.product || op.prefix || op.rows.empty() || op.column < 0 || op.op.dims[op.column].reduced) return false;
  if (op.op.guard.defined() && !reads_arguments(plan, op)) return false;
  if (op.divided >= 0 || op.chosen || op.scattered || op.ahead > 0) return false;
  return std::none_of(op.op.dims.begin(), op.op.dims.end(), [&](const OpDim& dim) {
    return std::any_of(op.rows.begin(), op.rows.end(), [&](int row) {
      const std::string& var = op.op.dims[row].var;
      return dim.lower.uses(var) || dim.upper.uses(var);
    });
  });
}

}  // namespace

bool run_fits(const BlockOp& op, int run) {
  std::int64_t inner = 1;
  for (std::size_t k = op.rows.size(); k-- > 1;) {
    const auto extent = extent_bound(op.op.dims[op.rows[k]]);
    if (!extent || *extent < 1) return false;
    inner *= *extent;
    if (inner % run != 0 && run % inner != 0) return false;
  }
  return true;
}

std::vector<std::int64_t> places_in_run(const BlockOp& op, int row) {
  std::vector<std::int64_t> places(op.rows.size(), 0);
  std::int64_t rest = row;
  for (std::size_t k = op.rows.size(); k-- > 0;) {
    const std::int64_t extent = k == 0 ? rest + 1 : extent_bound(op.op.dims[op.rows[k]]).value_or(1);
    places[k] = rest % extent;
    rest /= extent;
  }
  return places;
}

std::vector<std::vector<std::int64_t>> points_of_dims(const BlockOp& op, const std::vector<int>& dims) {
  std::vector<std::vector<std::int64_t>> points;
  for (std::int64_t number = 0; number < terms_of(op, dims); ++number) {
    std::vector<std::int64_t> point(dims.size());
    std::int64_t rest = number;
    for (std::size_t k = dims.size(); k-- > 0;) {
      const std::int64_t extent = *exact_extent(op.op.dims[dims[k]]);
      point[k] = rest % extent;
      rest /= extent;
    }
    points.push_back(std::move(point));
  }
  return points;
}

int window_run(const BlockPlan& plan, const BlockOp& op, const Layout& layout) {
  if (plan.cluster > 1 || !sums_rows(plan, op)) return 1;
  const auto bound = op.row_bound();
  for (int run = kMostRun; run > 1; run /= 2) {
    if (std::int64_t{run} * layout.vector > kMostWindowSums || !run_fits(op, run)) continue;
    if (bound && (*bound % run != 0 || *bound < std::int64_t{run} * layout.groups)) continue;
    const std::vector<int> dims = window_dims(op, run);
    if (dims.empty() || terms_of(op, dims) * run * layout.vector > kMostWrittenOut) continue;
    if (loads_of_term(op, run, dims) <= kSharedShare * loads_of_term(op, 1, dims)) return run;
  }
  return 1;
}

/// In the layout with its runs: for each slot and chunk one term, and its loads, each with the conversion of what it brings.
Layout with_windows(const BlockPlan& plan, const std::vector<const BlockOp*>& ops, const Layout& layout,
                    std::optional<std::int64_t> rows, std::optional<std::int64_t> columns) {
  constexpr double kLoadCost = 1.1;
  const auto runs = [&](const Layout& at) {
    Layout result = at;
    for (const BlockOp* op : ops) result.run = std::max(result.run, window_run(plan, *op, at));
    const bool fits =
        std::all_of(ops.begin(), ops.end(), [&](const BlockOp* op) { return op->rows.empty() || run_fits(*op, result.run); });
    return fits ? result : at;
  };
  const auto cost = [&](const Layout& at) {
    double share = 0;
    for (const BlockOp* op : ops) {
      const std::vector<int> dims = sums_rows(plan, *op) ? window_dims(*op, kMostRun) : std::vector<int>{};
      if (!dims.empty()) share = std::max(share, 1 + kLoadCost * loads_of_term(*op, at.run, dims));
    }
    const auto slots = static_cast<double>(at.row_slots(std::max<std::int64_t>(*rows, 1)));
    const auto chunks = static_cast<double>(ceil_div(*columns, std::int64_t{at.lanes} * at.vector));
    const double short_pieces = at.lanes * at.vector < 8 ? 1.5 : 1.0;
    return slots * chunks * share * short_pieces - 1e-3 * std::min(at.lanes, kWarpThreads) / kWarpThreads;
  };
  Layout best = runs(layout);
  if (plan.cluster > 1 || !rows || !columns || *columns < 1) return best;
  for (int lanes = 1; lanes <= layout.threads(); lanes = lanes < kWarpThreads ? 2 * lanes : lanes + kWarpThreads) {
    if (layout.threads() % lanes != 0) continue;
    const Layout other = runs({layout.vector, lanes, layout.threads() / lanes});
    if (other.run > 1 && cost(other) < cost(best)) best = other;
  }
  return best;
}

void choose_windows(BlockPlan& plan) {
  for (BlockOp& op : plan.ops) {
    const bool elements = op.layout.vector > 1 && !op.vectors;  // columns one by one
    if (op.layout.run == 1 || elements || plan.cluster > 1 || !sums_rows(plan, op) || !run_fits(op, op.layout.run)) continue;
    const std::vector<int> dims = window_dims(op, op.layout.run);
    if (!dims.empty() && terms_of(op, dims) * op.layout.run * op.layout.vector <= kMostWrittenOut) op.window = dims;
  }
}

}  // namespace nestor::nvptx
