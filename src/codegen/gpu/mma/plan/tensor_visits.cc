// Loops that go past tiles which data hides: a table tells the next block of columns that has points, for each block of the work tile's rows.
#include "codegen/gpu/mma/plan/op_places.h"
#include "codegen/gpu/mma/plan/plan_passes.h"
#include "codegen/gpu/mma/values/hidden_iterations.h"
#include "support/debug.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace nestor::nvptx {
namespace {

/// By how much an expression that never falls with the variable may rise from 0 to `most`; nothing where it may fall, or another form has.
std::optional<std::int64_t> rise_of(const IntExpr& expr, const std::string& var, std::int64_t most) {
  if (!expr.uses(var)) return 0;
  if (expr.op() == IntOp::variable) return most;
  const auto of = [&](std::size_t k) { return rise_of(expr.args()[k], var, most); };
  switch (expr.op()) {
    case IntOp::add: {
      const auto a = of(0), b = of(1);
      return a && b ? std::optional(*a + *b) : std::nullopt;
    }
    case IntOp::sub:
      return expr.args()[1].uses(var) ? std::nullopt : of(0);
    case IntOp::mul:
      for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
        const auto factor = expr.args()[k].as_constant(), other = factor && *factor >= 0 ? of(1 - k) : std::nullopt;
        if (other) return *factor * *other;
      }
      return std::nullopt;
    case IntOp::floor_div: {
      const auto divisor = expr.args()[1].as_constant(), dividend = divisor && *divisor > 0 ? of(0) : std::nullopt;
      if (!dividend) return std::nullopt;
      // Whole multiples of the divisor before the variable change nothing.
      const Affine base = affine_of(expr.args()[0].substitute(var, IntExpr(0)));
      const bool whole =
          base.constant % *divisor == 0 &&
          std::all_of(base.terms.begin(), base.terms.end(), [&](const auto& term) { return term.second % *divisor == 0; });
      return *dividend / *divisor + (whole ? 0 : 1);
    }
    default:
      return std::nullopt;
  }
}

/// Sets in which block tiles of columns start: their columns lie side by side, from 0 on.
bool find_columns(const TileOp& op, const IntExpr& block, const std::string& var, VisitedLoop& found) {
  const OpDim* column = nullptr;
  for (const OpDim& dim : op.dims) {
    if (!block.uses(dim.var)) continue;
    if (column != nullptr) return false;
    column = &dim;
  }
  const IntExpr first = column == nullptr ? block : block.substitute(column->var, IntExpr(0));
  const auto multiple_of_tile = [&](const IntExpr& expr) -> std::int64_t {
    const Affine form = affine_of(expr);
    const auto slope = expr.coefficient(var);
    return form.constant == 0 && form.terms.size() == 1 && slope && *slope > 0 ? *slope : 0;
  };
  const auto end = column == nullptr ? std::optional<std::int64_t>(1) : end_bound(*column);
  if (!end || *end < 1 || (column != nullptr && !never_negative(*column))) return false;
  if (const std::int64_t blocks = multiple_of_tile(first)) {
    // Blocks of one tile end before those of the next.
    const auto rise = column == nullptr ? std::optional<std::int64_t>(0) : rise_of(block, column->var, *end - 1);
    found.blocks = blocks;
    found.tiles = 1;
    return rise && *rise < blocks;
  }
  if (block.op() != IntOp::floor_div || column == nullptr) return false;
  const auto points = block.args()[1].as_constant();
  const std::int64_t stride = multiple_of_tile(first.op() == IntOp::floor_div ? first.args()[0] : IntExpr(0));
  found.blocks = stride;
  found.tiles = points.value_or(0);
  return stride > 0 && points && *points > 0 && *end <= stride && block.args()[0].coefficient(column->var) == 1 &&
         first.args()[1].as_constant() == points;
}

/// Sets which elements of the table the work tile's rows have; the loop's iterations share them.
bool find_rows(const TileOp& op, const TileAccess& element, const std::string& var, VisitedLoop& found) {
  found.next = element;
  found.next.index.pop_back();
  for (int p = 0; p < static_cast<int>(found.next.index.size()); ++p) {
    IntExpr& index = found.next.index[static_cast<std::size_t>(p)];
    if (index.uses(var)) return false;
    for (const OpDim& dim : op.dims) {
      if (!index.uses(dim.var)) continue;
      const auto end = end_bound(dim);
      const auto rise = end && never_negative(dim) ? rise_of(index, dim.var, *end - 1) : std::nullopt;
      if (found.row_index >= 0 || !rise) return false;
      found.row_index = p;
      found.row_blocks = static_cast<int>(*rise) + 1;
      found.last_rows = index.substitute(dim.var, IntExpr(*end - 1));
      index = index.substitute(dim.var, IntExpr(0));
    }
  }
  return true;
}

}  // namespace

bool same_visits(const VisitedLoop& a, const VisitedLoop& b) {
  return a.blocks == b.blocks && a.tiles == b.tiles && a.next.buffer == b.next.buffer && a.row_index == b.row_index &&
         a.row_blocks == b.row_blocks && (a.row_index < 0 || affine_of(a.last_rows) == affine_of(b.last_rows)) &&
         same_element(a.next, b.next);
}

std::optional<VisitedLoop> visited_loop(const TileProgram& program, const OpPlace& loop, const std::vector<TileOp>& ops,
                                        std::size_t begin, std::size_t end, std::string& why) {
  std::optional<VisitedLoop> found;
  for (std::size_t k = begin; k < end; ++k) {
    ops[k].value.visit([&](const ScalarExpr& node) {
      const auto test = block_test(program, ops[k], node);
      if (!test) return;
      VisitedLoop own;
      const TileAccess& element = ops[k].reads[static_cast<std::size_t>(test->read)];
      if (!find_rows(ops[k], element, loop.var, own) || !find_columns(ops[k], test->block, loop.var, own))
        why = fmt::format("{} asks for blocks that do not follow its tiles of rows and columns", ops[k].name);
      if (found && !same_visits(*found, own)) why = "two tables of blocks are asked for in one loop";
      found = own;
    });
  }
  if (!found || !why.empty()) return std::nullopt;
  found->var = loop.var;
  found->count = fmt::format("#visits of {}", loop.var);
  found->lower = loop.lower;
  found->upper = loop.upper;
  const HiddenIteration hidden = hidden_iteration(program, loop.var, ops, begin, end);
  why = hidden.why;
  found->finite = hidden.finite;
  return why.empty() ? found : std::nullopt;
}

void plan_visits(TensorPlan& plan) {
  if (plan.cores != TensorCores::wgmma || plan.cluster() > 1 || plan.ping_pong_tiles()) return;
  const std::vector<OpPlace> places = places_of_ops(plan.kernel->body);
  std::vector<TileOp> ops;
  for (const TensorOp& op : plan.ops) ops.push_back(op.op);
  if (places.size() != ops.size()) return;
  for (std::size_t begin = 0, end = 0; begin < ops.size(); begin = end) {
    const OpPlace& loop = places[begin];
    for (end = begin; end < ops.size() && places[end].loop == loop.loop; ++end) {}
    const bool plain =
        std::none_of(places.begin() + static_cast<std::ptrdiff_t>(begin), places.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const OpPlace& place) { return place.loops.size() != 1 || place.condition.defined(); });
    std::string why;
    auto visited = plain ? visited_loop(*plan.program, loop, ops, begin, end, why) : std::nullopt;
    if (!why.empty()) debug_log(DebugSwitch::plans, fmt::format("{} goes past no tiles: {}", loop.var, why));
    if (!visited) continue;
    plan.visited.push_back(*std::move(visited));
    for (std::size_t k = begin; k < end; ++k) plan.ops[k].op.value = value_by_blocks(*plan.program, ops[k], true);
  }
}

}  // namespace nestor::nvptx
