// contract: cache-blocked loops around microkernels, panels packed into the task's temporary memory.
#include "codegen/host/emit/contract_plan.h"
#include "codegen/host/emit/microkernel.h"
#include "codegen/host/emit/op_lowering.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <algorithm>

namespace nestor {
namespace {

using llvm::Value;

class ContractLowering {
 public:
  ContractLowering(Frame& frame, const TileOp& op)
      : f_(frame), b_(frame.b), op_(op), context_(frame, op), plan_(plan_contract(context_)) {}

  bool possible() const { return plan_.has_value(); }

  void run() {
    reserve();
    guarded(plan_->outer_guards.before, [&] { outer_level(0); });
  }

 private:
  /// Part of a dim: from `start` (relative to the range's lower bound), `count` long.
  struct Block {
    Value* start;
    Value* count;
  };

  void guarded(const std::vector<IntExpr>& parts, const std::function<void()>& then) {
    Value* condition = context_.condition(parts, {});
    f_.branch(condition == nullptr ? b_.getTrue() : condition, then);
  }

  void outer_level(std::size_t level) {
    if (level == plan_->outer.size()) return product();
    const int dim = plan_->outer[level];
    const Range range = range_of(context_, dim, plan_->outer_guards.levels[level].bounds);
    f_.loop(f_.i64(0), range.count, 1, [&](Value* at) {
      context_.open(dim, b_.CreateNSWAdd(range.lower, at));
      guarded(plan_->outer_guards.levels[level].conditions, [&] { outer_level(level + 1); });
      context_.close(dim);
    });
  }

  /// Places of the packed panels and of the product tile in the temporary memory.
  void reserve() {
    std::int64_t end = 0;
    const auto place = [&](bool wanted, std::int64_t elements) {
      const std::int64_t offset = end;
      // Packing may write one vector beyond the last panel.
      if (wanted) end += (elements + 16 + 15) / 16 * 64;
      return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), f_.temporary, static_cast<std::uint64_t>(offset));
    };
    a_panels_ = place(plan_->pack_a, plan_->block_rows * plan_->block_depth);
    b_panels_ = place(plan_->pack_b, plan_->block_columns * plan_->block_depth);
    tile_ = place(!plan_->direct_c, plan_->block_rows * plan_->block_columns);
    f_.temporary_bytes = std::max(f_.temporary_bytes, end);
  }

  void product() {
    rows_ = range_of(context_, plan_->row, plan_->row_bounds);
    columns_ = range_of(context_, plan_->column, plan_->column_bounds);
    depth_ = range_of(context_, plan_->depth, plan_->depth_bounds);
    context_.open(plan_->row, rows_.lower);
    context_.open(plan_->column, columns_.lower);
    context_.open(plan_->depth, depth_.lower);
    for (const int dim : plan_->outer_depth) context_.open(dim, context_.lower(dim));
    a_ = context_.address(plan_->a);
    b_matrix_ = context_.address(plan_->b);
    c_ = context_.address(OpContext::kWrite);
    for (std::size_t k = plan_->outer_depth.size(); k-- > 0;) context_.close(plan_->outer_depth[k]);
    context_.close(plan_->depth);
    context_.close(plan_->column);
    context_.close(plan_->row);
    Value* some = b_.CreateAnd(b_.CreateICmpSGT(rows_.count, f_.i64(0)), b_.CreateICmpSGT(columns_.count, f_.i64(0)));
    f_.branch(some, [&] {
      blocks(columns_.count, plan_->block_columns,
             [&](Block columns) { plan_->direct_c ? in_place(columns) : through_tile(columns); });
    });
  }

  void blocks(Value* count, std::int64_t size, const std::function<void(Block)>& body) {
    f_.loop(f_.i64(0), count, size, [&](Value* at) {
      const auto known = constant_of(count), start = constant_of(at);
      if (known && *known % size == 0) return body({at, f_.i64(size)});
      if (known && start) return body({at, f_.i64(std::min(size, *known - *start))});
      body({at, f_.minimum(f_.i64(size), b_.CreateNSWSub(count, at))});
    });
  }

  /// Depth blocks, at least one even when the depth is 0, with `first`: nothing was accumulated before.
  void depth_blocks(const std::function<void(Block, Value* first, Value* a, Value* b)>& body) {
    outer_depth_level(0, b_.getTrue(), a_, b_matrix_, body);
  }

  void outer_depth_level(std::size_t level, Value* first, Value* a, Value* b,
                         const std::function<void(Block, Value*, Value*, Value*)>& body) {
    if (level < plan_->outer_depth.size()) {
      const int dim = plan_->outer_depth[level];
      f_.loop(f_.i64(0), f_.i64(context_.extent(dim).value_or(0)), 1, [&](Value* at) {
        Value* still = b_.CreateAnd(first, b_.CreateICmpEQ(at, f_.i64(0)));
        outer_depth_level(level + 1, still, moved(plan_->a, a, dim, at), moved(plan_->b, b, dim, at), body);
      });
      return;
    }
    blocks(f_.maximum(depth_.count, f_.i64(1)), plan_->block_depth, [&](Block block) {
      block.count = f_.minimum(block.count, b_.CreateNSWSub(depth_.count, block.start));
      Value* start = b_.CreateAnd(first, b_.CreateICmpEQ(block.start, f_.i64(0)));
      body(block, start, moved(plan_->a, a, plan_->depth, block.start), moved(plan_->b, b, plan_->depth, block.start));
    });
  }

  /// `base` moved by `count` along `dim`.
  Value* moved(int access, Value* base, int dim, Value* count) {
    Value* offset = b_.CreateNSWMul(count, context_.stride(access, dim));
    return b_.CreateInBoundsGEP(memory_type(f_.host.context(), context_.type(access)), base, offset);
  }

  void in_place(Block columns) {
    depth_blocks([&](Block depth, Value* first, Value* a, Value* b) {
      b = moved(plan_->b, b, plan_->column, columns.start);
      if (plan_->pack_b)
        pack(b_panels_, plan_->vectors * static_cast<int>(plan_->width), plan_->b, plan_->column, b, columns.count, depth.count);
      Value* accumulate = op_.initialize ? b_.CreateNot(first) : b_.getTrue();
      blocks(rows_.count, plan_->block_rows, [&](Block rows) {
        Value* c = moved(OpContext::kWrite, moved(OpContext::kWrite, c_, plan_->row, rows.start), plan_->column, columns.start);
        row_block(rows, columns, depth, a, b, c, context_.stride(OpContext::kWrite, plan_->row), accumulate);
      });
    });
  }

  /// C cannot take vectors of f32: sums are kept in a tile until they are complete.
  void through_tile(Block columns) {
    blocks(rows_.count, plan_->block_rows, [&](Block rows) {
      depth_blocks([&](Block depth, Value* first, Value* a, Value* b) {
        b = moved(plan_->b, b, plan_->column, columns.start);
        if (plan_->pack_b)
          pack(b_panels_, plan_->vectors * static_cast<int>(plan_->width), plan_->b, plan_->column, b, columns.count,
               depth.count);
        row_block(rows, columns, depth, a, b, tile_, f_.i64(plan_->block_columns), b_.CreateNot(first));
      });
      copy_out(rows, columns);
    });
  }

  void row_block(Block rows, Block columns, Block depth, Value* a, Value* b, Value* c, Value* c_stride, Value* accumulate) {
    a = moved(plan_->a, a, plan_->row, rows.start);
    if (plan_->pack_a) pack(a_panels_, plan_->rows, plan_->a, plan_->row, a, rows.count, depth.count);
    llvm::Function* kernel = microkernel(f_.host, {.rows = plan_->rows,
                                                   .vectors = plan_->vectors,
                                                   .width = plan_->width,
                                                   .packed_a = plan_->pack_a,
                                                   .packed_b = plan_->pack_b,
                                                   .scaled = plan_->scale != 1,
                                                   .fetches_c = plan_->fetch_c});
    llvm::Type* real = b_.getFloatTy();
    const auto panel = [&](Value* base, Value* at) { return b_.CreateInBoundsGEP(real, base, b_.CreateNSWMul(at, depth.count)); };
    f_.loop(f_.i64(0), columns.count, plan_->panel_columns(), [&](Value* j) {
      Value* b_part = plan_->pack_b ? panel(b_panels_, j) : moved(plan_->b, b, plan_->column, j);
      f_.loop(f_.i64(0), rows.count, plan_->rows, [&](Value* i) {
        Value* a_part = plan_->pack_a ? panel(a_panels_, i) : moved(plan_->a, a, plan_->row, i);
        Value* c_part = b_.CreateInBoundsGEP(real, c, b_.CreateNSWAdd(b_.CreateNSWMul(i, c_stride), j));
        b_.CreateCall(kernel, {a_part, context_.stride(plan_->a, plan_->row), b_part, context_.stride(plan_->b, plan_->depth),
                               c_part, c_stride, depth.count, b_.CreateNSWSub(rows.count, i), b_.CreateNSWSub(columns.count, j),
                               llvm::ConstantFP::get(real, plan_->scale), accumulate});
      });
    });
  }

  void pack(Value* panels, int panel, int access, int dim, Value* from, Value* count, Value* depth) {
    using Motion = OpContext::Motion;
    const Motion across = context_.motion(access, dim), along = context_.motion(access, plan_->depth);
    const auto dense = across == Motion::unit  ? PackShape::Dense::across
                       : along == Motion::unit ? PackShape::Dense::along
                                               : PackShape::Dense::neither;
    llvm::Function* function = packer(f_.host, {panel, plan_->width, context_.type(access), dense});
    b_.CreateCall(function, {panels, from, context_.stride(access, dim), context_.stride(access, plan_->depth), count, depth});
  }

  void copy_out(Block rows, Block columns) {
    VectorChoice choice{plan_->column, plan_->width, 1, false};
    const bool unit = context_.motion(OpContext::kWrite, plan_->column) == OpContext::Motion::unit;
    choice.masked = unit && context_.type(OpContext::kWrite) == ElementType::f32 && f_.host.shape.masked;
    f_.loop(f_.i64(0), rows.count, 1, [&](Value* i) {
      context_.open(plan_->row, b_.CreateNSWAdd(rows_.lower, b_.CreateNSWAdd(rows.start, i)));
      Value* from = b_.CreateInBoundsGEP(b_.getFloatTy(), tile_, b_.CreateNSWMul(i, f_.i64(plan_->block_columns)));
      const Range range{b_.CreateNSWAdd(columns_.lower, columns.start), columns.count};
      vector_loop(context_, choice, range, [&](Value* at, Lanes lanes, unsigned, Value* mask) {
        context_.open(plan_->column, b_.CreateNSWAdd(range.lower, at));
        copy_lanes(b_.CreateInBoundsGEP(b_.getFloatTy(), from, at), lanes, mask);
        context_.close(plan_->column);
      });
      context_.close(plan_->row);
    });
  }

  void copy_lanes(Value* from, Lanes lanes, Value* mask) {
    llvm::Type* type =
        lanes.width == 1 ? b_.getFloatTy() : static_cast<llvm::Type*>(llvm::FixedVectorType::get(b_.getFloatTy(), lanes.width));
    Value* sum = b_.CreateAlignedLoad(type, from, llvm::Align(4));
    const ElementType stored = context_.type(OpContext::kWrite);
    if (!op_.initialize) {
      Value* old = emit_cast(b_, f_.host.math, context_.load(OpContext::kWrite, lanes, mask), stored, ElementType::f32);
      sum = b_.CreateFAdd(splat_to(b_, old, lanes.width), sum);
    }
    context_.store(emit_cast(b_, f_.host.math, sum, ElementType::f32, stored), lanes, mask);
  }

  Frame& f_;
  llvm::IRBuilder<>& b_;
  const TileOp& op_;
  OpContext context_;
  std::optional<ContractPlan> plan_;
  Range rows_, columns_, depth_;
  Value *a_ = nullptr, *b_matrix_ = nullptr, *c_ = nullptr;
  Value *a_panels_ = nullptr, *b_panels_ = nullptr, *tile_ = nullptr;
};

}  // namespace

void lower_contract(Frame& frame, const TileOp& op) {
  ContractLowering lowering(frame, op);
  if (!lowering.possible()) return lower_reduce(frame, op);
  lowering.run();
}

}  // namespace nestor
