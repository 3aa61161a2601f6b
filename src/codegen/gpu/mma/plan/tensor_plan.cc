// The passes of a tensor plan in order, and the small ones of them.
#include "codegen/gpu/mma/plan/tensor_plan.h"

#include "codegen/gpu/mma/pipeline/tensor_flight.h"
#include "codegen/gpu/mma/plan/tensor_registers.h"
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "codegen/llvm/int_emit.h"
#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/mask_clauses.h"
#include "support/error.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

constexpr std::int64_t kSharedAlignment = 1024;  ///< of swizzled tiles
constexpr std::int64_t kBarrierBytes = 512;

void mark_loop_ops(const TileTree& tree, bool inside, std::vector<bool>& in_loop) {
  if (tree->kind == TileNode::Kind::op) in_loop.push_back(inside);
  for (const TileTree& child : tree->children) mark_loop_ops(child, inside || tree->kind == TileNode::Kind::loop, in_loop);
}

}  // namespace

int runs_along(const std::vector<IntExpr>& index, const std::string& var) {
  int found = -1;
  for (int p = 0; p < static_cast<int>(index.size()); ++p) {
    if (!index[static_cast<std::size_t>(p)].uses(var)) continue;
    if (found >= 0 || index[static_cast<std::size_t>(p)].coefficient(var) != 1) return -1;
    found = p;
  }
  return found;
}

std::vector<int> copied_order(std::size_t rank, int row_index, int pack_index) {
  std::vector<int> order;
  if (pack_index < 0) return order;
  for (int p = 0; p + 1 < static_cast<int>(rank); ++p) {
    if (p != row_index && p != pack_index) order.push_back(p);
  }
  order.insert(order.end(), {row_index, pack_index, static_cast<int>(rank) - 1});
  return order;
}

bool writes_zero(const TileOp& op) { return op.value.is_constant(0) && !op.reduction; }

bool scales(const TileOp& op, int buffer) {
  if (op.write.buffer != buffer || op.reduction || op.value.op() != ScalarOp::mul) return false;
  const auto is_sum = [&](const ScalarExpr& expr) {
    return expr.op() == ScalarOp::read && op.reads[static_cast<std::size_t>(expr.ordinal())].buffer == buffer;
  };
  const auto uses_sum = [&](const ScalarExpr& expr) {
    bool found = false;
    expr.visit([&](const ScalarExpr& node) { found = found || is_sum(node); });
    return found;
  };
  const ScalarExpr &a = op.value.args()[0], &b = op.value.args()[1];
  return (is_sum(a) && !uses_sum(b)) || (is_sum(b) && !uses_sum(a));
}

namespace {

/// Is the condition on a product's terms no more than the end of an argument, beyond which copies bring zeros? `by_free`: the terms of its
/// operand in `ring` run over rows, not along the dense index.
bool ends_with_argument(const TensorPlan& plan, const Ring& ring, bool by_free, const IntExpr& condition) {
  const auto index = by_free ? static_cast<std::size_t>(ring.row_index) : ring.origin.size() - 1;
  const Affine last =
      affine_of(plan.buffer(ring.buffer).extents[index] - ring.origin[index] - IntExpr(1) - IntExpr::variable(kColumn));
  const std::vector<IntExpr> alternatives = alternatives_of(condition);
  return std::any_of(alternatives.begin(), alternatives.end(), [&](const IntExpr& distance) {
    const Affine beyond = affine_of(distance) - last;
    return beyond.is_constant() && beyond.constant >= 0;
  });
}

}  // namespace

/// Copies bring zeros beyond the end of an argument, and nothing else is left out of a tile: a product with both operands in shared memory
/// adds up whole tiles of what its sum is over. One that goes on over iterations needs no test then.
void require_whole_terms(TensorPlan& plan) {
  for (TensorOp& op : plan.ops) {
    if (op.kind != TensorOp::Kind::product || op.a_ring < 0) continue;
    for (const auto& [number, by_free] : {std::pair(op.a_ring, op.a_by_row), std::pair(op.b_ring, op.b_by_column)}) {
      const Ring& ring = plan.rings[static_cast<std::size_t>(number)];
      for (const IntExpr& condition : op.mask) {
        if (!condition.uses(kColumn) && op.op.initialize) continue;
        if (ends_with_argument(plan, ring, by_free, condition)) continue;
        user_error("Kernel '{}' cannot use tensor cores: {} adds up a part of its tile of {}, and not up to the end of {}: {}.",
                   plan.program->name, op.op.name, plan.buffer(ring.buffer).name, plan.buffer(ring.buffer).name, condition.str());
      }
    }
    if (!op.op.initialize) op.mask.clear();
  }
}

std::vector<FiniteOperand> finite_operands(const TensorPlan& plan) {
  std::vector<FiniteOperand> needed;
  for (const TensorOp& op : plan.ops) {
    if (op.kind != TensorOp::Kind::product || op.a_ring >= 0) continue;
    const Ring& ring = plan.rings[static_cast<std::size_t>(op.b_ring)];
    std::vector<std::string> cuts;
    for (const IntExpr& condition : op.mask) {
      if (!ends_with_argument(plan, ring, op.b_by_column, condition)) cuts.push_back(condition.str());
    }
    if (!cuts.empty())
      needed.push_back(
          {plan.buffer(ring.buffer).tensor, fmt::format("{} multiplies whole tiles of {} by weights that are 0 where {} fails",
                                                        op.op.name, plan.buffer(ring.buffer).name, fmt::join(cuts, " and "))});
  }
  return needed;
}

/// A sum over columns, one value a row, may stay in four parts while it is only added to and scaled.
void plan_sums(TensorPlan& plan, const TileTree& tree) {
  std::vector<bool> in_loop;
  mark_loop_ops(tree, false, in_loop);
  for (auto& [buffer, fragment] : plan.fragments) {
    if (fragment.columns > 0) continue;
    bool reduced = false, fits = true;
    for (std::size_t k = 0; k < plan.ops.size(); ++k) {
      const TileOp& op = plan.ops[k].op;
      const bool writes = op.write.buffer == buffer;
      const bool reads =
          std::any_of(op.reads.begin(), op.reads.end(), [&, b = buffer](const TileAccess& r) { return r.buffer == b; });
      if (writes && plan.ops[k].kind == TensorOp::Kind::reduce) {
        fits = fits && op.reduction == ReductionOp::add && in_loop[k];
        reduced = true;
      } else if (writes) {
        fits = fits && (writes_zero(op) || scales(op, buffer));
      } else if (reads) {
        fits = fits && !in_loop[k];
      }
    }
    fragment.lane_sums = reduced && fits;
  }
}

/// Does a dim of the store have all values from 0 up to `extent`, but for those beyond the end of the argument along `index`?
bool stops_at_end(const TensorOp& op, const Buffer& buffer, int d, int index, int extent) {
  const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
  if (!dim.lower.is_constant(0)) return false;
  const auto p = static_cast<std::size_t>(index);
  const Affine rest = affine_of(buffer.extents[p] - op.op.write.index[p].substitute(dim.var, IntExpr(0)));
  std::vector<IntExpr> uppers;
  split_terms(dim.upper, IntOp::min, uppers);
  return std::all_of(uppers.begin(), uppers.end(),
                     [&](const IntExpr& upper) { return upper.is_constant(extent) || affine_of(upper) == rest; });
}

/// All columns of the argument, or whole blocks of them up to its end: what a copy of blocks writes.
bool has_whole_blocks(const TensorOp& op, const Buffer& buffer, int dense) {
  const OpDim& column = op.op.dims[static_cast<std::size_t>(op.column)];
  const Affine origin = affine_of(op.op.write.index[static_cast<std::size_t>(dense)]) - affine_of(IntExpr::variable(column.var));
  const Affine columns = affine_of(column.upper) - affine_of(buffer.extents[static_cast<std::size_t>(dense)]);
  if (origin == Affine{} && columns == Affine{} && column.lower.is_constant(0)) return true;
  const auto extent = extent_bound(column);
  return extent && *extent % kBlockColumns == 0 && stops_at_end(op, buffer, op.column, dense, static_cast<int>(*extent));
}

/// A whole 16-bit tile goes through shared memory, so that one copy writes it in full lines and leaves out what the argument has not.
void plan_stores(TensorPlan& plan) {
  for (TensorOp& op : plan.ops) {
    if (op.kind != TensorOp::Kind::store || op.row < 0 || op.column < 0) continue;
    const Buffer& buffer = plan.buffer(op.op.write.buffer);
    if (buffer.type != ElementType::f16 && buffer.type != ElementType::bf16) continue;
    const OpDim &row = op.op.dims[static_cast<std::size_t>(op.row)], &column = op.op.dims[static_cast<std::size_t>(op.column)];
    const std::vector<IntExpr>& index = op.op.write.index;
    const auto dense = static_cast<int>(index.size()) - 1;
    op.row_index = runs_along(index, row.var);
    op.pack_index = op.pack < 0 ? -1 : runs_along(index, op.op.dims[static_cast<std::size_t>(op.pack)].var);
    if (runs_along(index, column.var) != dense || op.row_index == dense) continue;
    if (plan.pack > 1 && (op.pack_index < 0 || op.pack_index == dense)) continue;
    if (op.row_index < 0 || op.op.guard.defined() || !has_whole_blocks(op, buffer, dense)) continue;
    op.through_shared = stops_at_end(op, buffer, op.row, op.row_index, plan.item_packs()) &&
                        (op.pack < 0 || stops_at_end(op, buffer, op.pack, op.pack_index, plan.pack));
  }
}

/// Bytes of shared memory of a block whose tiles end at `end`.
std::int64_t block_bytes(const TensorPlan& plan, std::int64_t end) {
  return end + (plan.cores == TensorCores::wgmma ? kBarrierBytes : 0) + kSharedAlignment;
}

/// Do all resident blocks find room for so many bytes?
bool have_room(const TensorPlan& plan, const NvptxTarget& target, std::int64_t bytes) {
  return plan.residents() * (bytes + kReservedBytes) <= target.shared_limit + kReservedBytes;
}

/// The event among those that a group takes once an item; the end of these if there is none.
std::vector<EventNode>::iterator find_once(TensorPlan& plan, Event::Kind kind, int ring, int op) {
  std::vector<EventNode>& body = plan.consumer.children;
  return std::find_if(body.begin(), body.end(), [&](const EventNode& node) {
    return node.kind == EventNode::Kind::event && node.event.kind == kind && node.event.ring == ring && node.event.op == op;
  });
}

/// A place for the tile of a store. A group's rows of an operand that stays for the item are read by that group alone: when they are done
/// with, the same place takes its rows of the result. In resident blocks the next item's operand would have to wait until the result has
/// left, so that they have a place of its own where there is room.
std::int64_t place_store(TensorPlan& plan, const TensorOp& op, const NvptxTarget& target, std::int64_t& end) {
  const std::int64_t columns = *extent_bound(op.op.dims[static_cast<std::size_t>(op.column)]);
  const std::int64_t bytes = std::int64_t{plan.rows()} * kSwizzleBytes * ceil_div(columns, kBlockColumns);
  const auto number = static_cast<int>(&op - plan.ops.data());
  const bool may_borrow =
      !plan.persistent() || (plan.cores == TensorCores::wgmma && !have_room(plan, target, block_bytes(plan, end + bytes)) &&
                             find_once(plan, Event::Kind::compute, -1, number) != plan.consumer.children.end());
  for (const Ring& ring : plan.rings) {
    const bool of_group = std::any_of(plan.ops.begin(), plan.ops.end(), [&](const TensorOp& other) {
      return other.a_ring == &ring - plan.rings.data() && !other.a_by_row;
    });
    const bool taken =
        std::any_of(plan.ops.begin(), plan.ops.end(), [&](const TensorOp& other) { return other.stage_offset == ring.offset; });
    const bool stays = !ring.streamed && !(plan.persistent() && ring.in_registers);
    if (may_borrow && stays && of_group && !taken && ring.slot_bytes() >= bytes) return ring.offset;
  }
  const std::int64_t offset = end;
  end += bytes;
  return offset;
}

/// In a resident block, a tile whose place lets a result out is released when that has left.
void release_behind_store(TensorPlan& plan, const TensorOp& store) {
  const int ring = plan.lender(store), op = static_cast<int>(&store - plan.ops.data());
  if (!plan.persistent() || ring < 0) return;
  std::vector<EventNode>& body = plan.consumer.children;
  const auto release = find_once(plan, Event::Kind::release, ring, -1);
  if (release == body.end()) internal_error("kernel '{}': a tile that stays is not released", plan.program->name);
  const EventNode moved = *release;
  body.erase(release);
  const auto stored = find_once(plan, Event::Kind::compute, -1, op);
  body.insert(stored + 1, {event_node(Event::Kind::wait_stores, -1), moved});
}

void place_rings(TensorPlan& plan, const NvptxTarget& target) {
  std::int64_t at = 0;
  for (Ring& ring : plan.rings) {
    if (ring.claims) continue;
    if (plan.cores == TensorCores::wgmma && ring.copied_rows() > kMostCopiedRows)
      user_error("Kernel '{}': a tile of '{}' has {} rows, and a tensor copy moves {} at most: choose smaller tiles.",
                 plan.program->name, plan.buffer(ring.buffer).name, ring.copied_rows(), kMostCopiedRows);
    ring.offset = at;
    at += round_up(ring.slot_bytes(), kSharedAlignment) * ring.slots;
  }
  for (TensorOp& op : plan.ops) {
    if (op.kind != TensorOp::Kind::store || !op.through_shared) continue;
    op.stage_offset = place_store(plan, op, target, at);
    release_behind_store(plan, op);
  }
  plan.barriers_offset = at;
  plan.shared_bytes = block_bytes(plan, at);
  if (plan.claims())
    plan.rings.back().offset = plan.shared_bytes - kSharedAlignment - std::int64_t{plan.rings.back().slots} * kClaimBytes;
  if (!have_room(plan, target, plan.shared_bytes) && plan.shared_bytes <= target.shared_limit)
    user_error(
        "Kernel '{}': {} blocks of {} bytes of shared memory do not fit the {} bytes of a multiprocessor: choose smaller "
        "tiles, fewer slots or fewer blocks.",
        plan.program->name, plan.residents(), plan.shared_bytes + kReservedBytes, target.shared_limit + kReservedBytes);
  if (plan.shared_bytes > target.shared_limit)
    user_error(
        "Kernel '{}' needs {} bytes of shared memory for its operands' tiles; a block has {}: choose smaller tiles or fewer "
        "slots.",
        plan.program->name, plan.shared_bytes, target.shared_limit);
}

namespace {

void check_pack(const TensorPlan& plan, const NvptxTarget& target) {
  if (plan.pack > 1 && plan.cores == TensorCores::mma)
    user_error(
        "Kernel '{}': a tile of rows of two loops, {} of one for each of the other, needs the tensor copies of "
        "compute capability 9.0 or newer, not {}.{}: do not split the outer one of the two.",
        plan.program->name, plan.pack, target.sm / 10, target.sm % 10);
}

void check_cluster(const TensorPlan& plan, const NvptxTarget& target) {
  if (plan.cluster() == 1) return;
  if (plan.cores == TensorCores::mma)
    user_error("Kernel '{}': clusters of blocks need compute capability 9.0 or newer, not {}.{}: leave the step out.",
               plan.program->name, target.sm / 10, target.sm % 10);
  if (plan.claims())
    user_error(
        "Kernel '{}': with claims a block claims items for itself, and here clusters of {} blocks take items together: leave out "
        "claims or cluster.",
        plan.program->name, plan.cluster());
}

}  // namespace

TensorPlan plan_tensor(const KernelPlan& kernel, const TileProgram& program, const NvptxTarget& target) {
  TensorPlan plan;
  plan.program = &program;
  plan.kernel = &kernel;
  plan.cores = target.sm < 90 ? TensorCores::mma : TensorCores::wgmma;
  if (plan.cores == TensorCores::mma && (kernel.shape.turns != 0 || kernel.shape.claims != 0 || kernel.shape.overlap > 1))
    user_error(
        "Kernel '{}': {} for products that run while their group goes on, as those of compute capability 9.0 do, not {}.{}: "
        "leave "
        "the step out.",
        program.name,
        kernel.shape.turns != 0    ? "turns are"
        : kernel.shape.claims != 0 ? "claims are"
                                   : "chains that overlap one by one are",
        target.sm / 10, target.sm % 10);
  check_cluster(plan, target);
  plan.groups = kernel.shape.groups;
  find_tiles(plan, kernel.body);
  check_pack(plan, target);
  plan_masks(plan);
  require_whole_terms(plan);
  plan_sums(plan, kernel.body);
  plan_events(plan, kernel.body);
  plan_sharing(plan);
  if (plan.cores == TensorCores::mma) plan_copies(plan);
  plan_stores(plan);
  place_rings(plan, target);
  const TensorCertificate certificate = check_tensor_plan(plan);
  if (!certificate.violations.empty())
    internal_error("kernel '{}': the plan for tensor cores has no proof: {}", program.name,
                   fmt::join(certificate.violations, "; "));
  return plan;
}

}  // namespace nestor::nvptx
