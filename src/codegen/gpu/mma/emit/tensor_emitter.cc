// Control flow, roles and barriers of a tensor kernel.
#include "codegen/gpu/mma/emit/tensor_emitter.h"

#include "codegen/gpu/mma/pipeline/tensor_chains.h"
#include "codegen/gpu/mma/pipeline/tensor_roles.h"
#include "support/error.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

namespace nestor::nvptx {
std::vector<llvm::Value**> TensorEmitter::State::all() {
  std::vector<Value**> stages;
  for (auto* warpgroup : {&tiles, &operands, &held}) {
    for (auto& [key, values] : *warpgroup) {
      for (Value*& value : values) stages.push_back(&value);
    }
  }
  for (auto& [var, tiles_of_loop] : visits) {
    for (Value*& tile : tiles_of_loop) stages.push_back(&tile);
  }
  for (auto* circular_buffers : {&positions, &fills}) {
    for (auto& [ring, position] : *circular_buffers) {
      stages.push_back(&position.first);
      stages.push_back(&position.second);
    }
  }
  return stages;
}

TensorEmitter::TensorEmitter(llvm::IRBuilder<>& b, llvm::Function& function, KernelArguments arguments, Values maps)
    : b_(b), function_(function), arguments_(std::move(arguments)), maps_(std::move(maps)), ptx_(b) {}

void TensorEmitter::emit(const TensorPlan& plan) {
  plan_ = &plan;
  environment_ = arguments_.integers;
  // Weights of a product are rounded to 2^-9 there: a function of scores need not be finer than 2^-11. Beside f16 they may be parts, which are
  // finer (rule bf16x3).
  const auto rounds = [](const TensorOp& op) {
    return op.halves == 1 && (op.kind != TensorOp::Kind::product || op.product_type == ElementType::bf16);
  };
  const bool rounded = has_half_arguments(*plan.program);
  math_ = NvptxMath(!rounded);
  const bool f16 = std::any_of(plan.program->buffers.begin(), plan.program->buffers.end(), [](const Buffer& buffer) {
    return buffer.memory == Memory::argument && buffer.type == ElementType::f16;
  });
  math_.coarse_tanh = rounded && !f16 && std::all_of(plan.ops.begin(), plan.ops.end(), rounds);
  name_threads();
  roles();
}

void WgmmaEmitter::roles() {
  init_barriers();
  auto* copies = llvm::BasicBlock::Create(b_.getContext(), "copies", &function_);
  auto* computes = llvm::BasicBlock::Create(b_.getContext(), "computes", &function_);
  auto* done = llvm::BasicBlock::Create(b_.getContext(), "done", &function_);
  b_.CreateCondBr(b_.CreateICmpEQ(warpgroup_, constant(plan_->warpgroups)), copies, computes);
  b_.SetInsertPoint(copies);
  producer();
  b_.CreateBr(done);
  b_.SetInsertPoint(computes);
  consumers();
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

void TensorEmitter::name_threads() {
  thread_ = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {}, {});
  lane_ = b_.CreateAnd(thread_, constant(kWarpThreads - 1));
  warp_ = b_.CreateAnd(b_.CreateLShr(thread_, 5), constant(3));
  // The same in all lanes, and said so: ptxas then keeps it in a uniform register.
  Value* number = b_.CreateLShr(thread_, 7);
  number = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_idx_i32, {}, {constant(-1), number, constant(0), constant(31)});
  warpgroup_ = number;
  sharer_ = plan_->ping_pong_tiles() ? constant(0) : number;
  leads_warp_ = b_.CreateICmpEQ(lane_, constant(0));
  Value* row = b_.CreateAdd(b_.CreateShl(warp_, 4), b_.CreateLShr(lane_, 2));
  first_row_ = own_rows(b_.CreateAdd(b_.CreateMul(sharer_, constant(plan_->row_tiles * kWarpgroupRows)), row));
  first_column_ = b_.CreateShl(b_.CreateAnd(lane_, constant(3)), 1);
  auto* memory = new llvm::GlobalVariable(*function_.getParent(), llvm::ArrayType::get(b_.getInt8Ty(), 0), false,
                                          llvm::GlobalValue::ExternalLinkage, nullptr, function_.getName() + "_tiles", nullptr,
                                          llvm::GlobalValue::NotThreadLocal, 3);
  memory->setAlignment(llvm::Align(1024));
  shared_ = b_.CreateTrunc(b_.CreatePtrToInt(memory, b_.getInt64Ty()), b_.getInt32Ty());
}

llvm::Value* TensorEmitter::own_rows(Value* row) {
  if (plan_->cluster() == 1) return row;
  return b_.CreateAdd(row, b_.CreateMul(arguments_.cluster_rank, constant(plan_->rows())));
}

llvm::Value* WgmmaEmitter::full_barrier(int ring, Value* stage) {
  int first = 0;
  for (int r = 0; r < ring; ++r) first += 2 * this->ring(r).stages;
  Value* base = b_.CreateAdd(shared_, constant(static_cast<int>(plan_->barriers_offset) + first * kBarrierBytes));
  return b_.CreateAdd(base, b_.CreateMul(stage, constant(kBarrierBytes)));
}

llvm::Value* WgmmaEmitter::empty_barrier(int ring, Value* stage) {
  return b_.CreateAdd(full_barrier(ring, stage), constant(this->ring(ring).stages * kBarrierBytes));
}

llvm::Value* TensorEmitter::stage_address(int ring, Value* stage) {
  const CircularBuffer& info = this->ring(ring);
  Value* base = b_.CreateAdd(shared_, constant(static_cast<int>(info.offset)));
  return b_.CreateAdd(base, b_.CreateMul(stage, constant(static_cast<int>(info.stage_bytes()))));
}

void WgmmaEmitter::init_barriers() {
  when(b_.CreateICmpEQ(thread_, constant(0)), [&] {
    for (Value* map : maps_) ptx_.prefetch_map(map);
    for (int r = 0; r < static_cast<int>(plan_->circular_buffers.size()); ++r) {
      for (int stage = 0; stage < ring(r).stages; ++stage) {
        ptx_.mbarrier_init(full_barrier(r, constant(stage)), 1);
        ptx_.mbarrier_init(empty_barrier(r, constant(stage)), ring(r).readers * kWarpgroupThreads / kWarpThreads);
      }
    }
    ptx_.fence_mbarrier_init();
  });
  if (plan_->cluster_start) return ptx_.cluster_barrier();
  ptx_.block_barrier();
}

void WgmmaEmitter::producer() {
  if (plan_->moves_registers()) ptx_.set_max_registers(moved_registers(block_of(*plan_)).first, false);
  state_ = {};
  for (int r = 0; r < static_cast<int>(plan_->circular_buffers.size()); ++r) state_.positions[r] = {constant(0), constant(0)};
  Value* first = b_.CreateICmpEQ(thread_, constant(plan_->warpgroups * kWarpgroupThreads));
  copying_ = true;
  when(first, [&] {
    work_tiles([&] { run_children(plan_->producer, true); });
    if (plan_->drains) drain();
  });
  copying_ = false;
}

/// Other blocks of the cluster release tiles here: this one's shared memory must live until they have.
void WgmmaEmitter::drain() {
  for (int r = 0; r < static_cast<int>(plan_->circular_buffers.size()); ++r) {
    for (int stage = 0; ring(r).blocks > 1 && stage < ring(r).stages; ++stage) {
      synchronise({.kind = Event::Kind::wait_empty, .ring = r});
      advance(r);
    }
  }
}

void WgmmaEmitter::consumers() {
  if (plan_->moves_registers()) ptx_.set_max_registers(moved_registers(block_of(*plan_)).second, true);
  state_ = {};
  for (int r = 0; r < static_cast<int>(plan_->circular_buffers.size()); ++r) state_.positions[r] = {constant(0), constant(0)};
  if (plan_->has_turns())
    when(b_.CreateICmpEQ(warpgroup_, constant(0)), [&] { ptx_.named_barrier_arrive(constant(1), 2 * kWarpgroupThreads); });
  plan_->ping_pong_tiles() ? own_work_tiles() : work_tiles([&] { run_children(plan_->consumer, true); });
  // A block's shared memory must live until the last work tile's tiles have been read. Others are waited for where they are stored.
  const auto lasts = [&](const TensorOp& op) { return op.through_shared && plan_->lender(op) < 0; };
  if (plan_->persistent() && std::any_of(plan_->ops.begin(), plan_->ops.end(), lasts)) ptx_.wait_stores_read(0);
}

/// What the body loads, only the body has.
void TensorEmitter::within_branch(const Body& body) {
  const auto elements = shared_elements_;
  const auto words = words_;
  body();
  shared_elements_ = elements;
  words_ = words;
}

void TensorEmitter::when(Value* condition, const Body& body) {
  auto* yes = llvm::BasicBlock::Create(b_.getContext(), "then", &function_);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", &function_);
  b_.CreateCondBr(condition, yes, after);
  b_.SetInsertPoint(yes);
  const State before = state_;
  within_branch(body);
  state_ = before;
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

/// What did not exist before is private to the body that has been emitted since.
void TensorEmitter::forget_private(const State& before) {
  std::erase_if(state_.tiles, [&](const auto& entry) { return before.tiles.count(entry.first) == 0; });
  std::erase_if(state_.operands, [&](const auto& entry) { return before.operands.count(entry.first) == 0; });
}

void TensorEmitter::choose(Value* condition, const Body& body) {
  auto* yes = llvm::BasicBlock::Create(b_.getContext(), "then", &function_);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", &function_);
  llvm::BasicBlock* from = b_.GetInsertBlock();
  State before = state_;
  b_.CreateCondBr(condition, yes, after);
  b_.SetInsertPoint(yes);
  within_branch(body);
  llvm::BasicBlock* end = b_.GetInsertBlock();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  forget_private(before);
  const std::vector<Value**> now = state_.all(), then = before.all();
  if (now.size() != then.size()) internal_error("tensor kernel: a condition changes what is alive");
  for (std::size_t k = 0; k < now.size(); ++k) {
    if (*now[k] == *then[k]) continue;
    llvm::PHINode* phi = b_.CreatePHI((*now[k])->getType(), 2);
    phi->addIncoming(*then[k], from);
    phi->addIncoming(*now[k], end);
    *now[k] = phi;
  }
}

/// for (var = lower; var < upper; var = next(var)) with the state carried through. `next` never falls. Products that are under way at the
/// loop's end have ended behind it: where control flow meets, no sum may be on its way, or ptxas makes one product wait for another.
void TensorEmitter::counted_loop(const std::string& var, Value* lower, Value* upper, const Advance& advance, const Body& body) {
  auto* inside = llvm::BasicBlock::Create(b_.getContext(), "loop", &function_);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", &function_);
  const bool settles = products_under_way();
  llvm::BasicBlock* from = b_.GetInsertBlock();
  llvm::BasicBlock* none = settles ? llvm::BasicBlock::Create(b_.getContext(), "none", &function_) : after;
  b_.CreateCondBr(b_.CreateICmpSLT(lower, upper), inside, none);
  b_.SetInsertPoint(inside);
  State before = state_;
  llvm::PHINode* counter = b_.CreatePHI(lower->getType(), 2, var);
  counter->addIncoming(lower, from);
  std::vector<llvm::PHINode*> phis;
  for (Value** stage : state_.all()) {
    phis.push_back(b_.CreatePHI((*stage)->getType(), 2));
    phis.back()->addIncoming(*stage, from);
    *stage = phis.back();
  }
  environment_[var] = counter;
  body();
  forget_private(before);
  std::vector<Value**> now = state_.all();
  if (now.size() != phis.size()) internal_error("tensor kernel: loop {} changes what is alive", var);
  Value* next = advance(counter);
  llvm::BasicBlock* latch = b_.GetInsertBlock();
  counter->addIncoming(next, latch);
  for (std::size_t k = 0; k < phis.size(); ++k) phis[k]->addIncoming(*now[k], latch);
  llvm::BasicBlock* end = settles ? llvm::BasicBlock::Create(b_.getContext(), "end", &function_) : after;
  b_.CreateCondBr(b_.CreateICmpSLT(next, upper), inside, end);
  const auto settle_at = [&](llvm::BasicBlock* block) {
    b_.SetInsertPoint(block);
    settle_products();
    b_.CreateBr(after);
    return b_.GetInsertBlock();
  };
  if (settles) {
    latch = settle_at(end);
    std::swap(state_, before);
    from = settle_at(none);
    std::swap(state_, before);
    now = state_.all();
  }
  b_.SetInsertPoint(after);
  const std::vector<Value**> then = before.all();
  for (std::size_t k = 0; k < now.size(); ++k) {
    llvm::PHINode* phi = b_.CreatePHI((*now[k])->getType(), 2);
    phi->addIncoming(*then[k], from);
    phi->addIncoming(*now[k], latch);
    *now[k] = phi;
  }
}

/// A loop over tiles counts in 32 bits, as coordinates of tensor copies do. Rounds of several iterations come first, then what is left.
void TensorEmitter::tile_loop(const EventNode& node) {
  if (const VisitedLoop* loop = plan_->visited_loop(node.var)) return visiting_loop(*loop, node);
  const auto narrow = [&](const IntExpr& bound) { return b_.CreateTrunc(integer(bound), b_.getInt32Ty()); };
  Value *lower = narrow(node.lower), *upper = narrow(node.upper);
  const auto rounds = [&](Value* from, Value* to, int iterations) {
    const Advance next = [&](Value* value) { return b_.CreateNSWAdd(value, constant(iterations)); };
    counted_loop(node.var, from, to, next, [&] {
      Value* first = environment_.at(node.var);
      const State before = state_;
      for (int k = 0; k < iterations; ++k) {
        environment_[node.var] = b_.CreateSExt(b_.CreateNSWAdd(first, constant(k)), b_.getInt64Ty());
        run_children(node, node.masked);
        forget_private(before);
      }
    });
  };
  const int unroll = copying_ ? 1 : node.unroll;
  if (unroll > 1) {
    Value* count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b_.CreateNSWSub(upper, lower), constant(0));
    Value* whole = b_.CreateNSWAdd(lower, b_.CreateNSWSub(count, b_.CreateURem(count, constant(unroll))));
    rounds(lower, whole, unroll);
    lower = whole;
  }
  rounds(lower, upper, 1);
}

llvm::Value* TensorEmitter::lookup(const std::string& name) {
  const auto found = environment_.find(name);
  return found == environment_.end() ? nullptr : found->second;
}

llvm::Value* TensorEmitter::integer(const IntExpr& expr) {
  return emit_int(b_, expr, [&](const std::string& name) { return lookup(name); });
}

void TensorEmitter::run_children(const EventNode& node, bool masked) {
  for (const EventNode& child : node.children) run(child, masked);
}

void TensorEmitter::run(const EventNode& node, bool masked) {
  switch (node.kind) {
    case EventNode::Kind::event:
      return event(node.event, masked);
    case EventNode::Kind::condition:
      for (const VisitedLoop& loop : plan_->visited) {
        if (node.condition.uses(loop.count)) return visit_if_any(loop, node);
      }
      return choose(emit_condition(b_, node.condition, [&](const std::string& name) { return lookup(name); }),
                    [&] { run_children(node, masked); });
    case EventNode::Kind::loop:
      return tile_loop(node);
    case EventNode::Kind::sequence: {
      if (node.var.empty()) return run_children(node, masked);
      if (const VisitedLoop* loop = plan_->visited_loop(node.var)) return visit(*loop, node);
      Value* value = integer(node.lower);
      Value* around = std::exchange(environment_[node.var], value);
      run_children(node, node.masked);
      environment_[node.var] = around;
      return;
    }
  }
}

void TensorEmitter::event(const Event& event, bool masked) {
  switch (event.kind) {
    case Event::Kind::product:
      return product(event.op);
    case Event::Kind::compute:
      return compute(event.op, masked);
    case Event::Kind::narrow:
      return narrow(event.op, masked);
    case Event::Kind::read_test:
      return read_test(event.op, masked);
    case Event::Kind::quad_reduction:
      return quad_reduction(event.ring);
    case Event::Kind::take_registers:
      return take_registers(event.ring);
    default:
      return synchronise(event);
  }
}

void WgmmaEmitter::synchronise(const Event& event) {
  const int ring = event.ring;
  switch (event.kind) {
    case Event::Kind::wait_full:
      return ptx_.mbarrier_wait(full_barrier(ring, state_.positions.at(ring).first), state_.positions.at(ring).second);
    case Event::Kind::wait_empty:
      return ptx_.mbarrier_wait(empty_barrier(ring, state_.positions.at(ring).first),
                                b_.CreateXor(state_.positions.at(ring).second, constant(1)));
    case Event::Kind::load:
      return load(event);
    case Event::Kind::release:
      if (event.count > 0) return amid_[event.op].push_back(event);
      return release(event);
    case Event::Kind::next_tile:
      ++behind_[ring];
      return advance(ring);
    case Event::Kind::wait_products:
      return wait_products(event.count);
    case Event::Kind::wait_stores:
      return ptx_.wait_stores_read(0);  // the thread that started them waits; so its warp does not give the stage back
    case Event::Kind::wait_turn:
      return turn(true);
    case Event::Kind::pass_turn:
      return turn(false);
    default:
      internal_error("tensor kernel: {} is no event of wgmma", name_of(event.kind));
  }
}

/// The circular buffer's next tile is one further: phases change when the stages have been gone through.
void TensorEmitter::advance(int ring, std::pair<Value*, Value*>& position) {
  auto& [stage, phase] = position;
  Value* next = b_.CreateAdd(stage, constant(1));
  Value* wraps = b_.CreateICmpEQ(next, constant(this->ring(ring).stages));
  stage = b_.CreateSelect(wraps, constant(0), next);
  phase = b_.CreateXor(phase, b_.CreateZExt(wraps, b_.getInt32Ty()));
}

/// Coordinates of a tensor copy, innermost first, of those by the argument's indices.
TensorEmitter::Values TensorEmitter::copied_at(const Values& index, int row_index, int pack_index) const {
  Values coordinates;
  for (const int p : copied_order(index.size(), row_index, pack_index)) coordinates.push_back(index[static_cast<std::size_t>(p)]);
  if (coordinates.empty()) coordinates = index;
  std::reverse(coordinates.begin(), coordinates.end());
  return coordinates;
}

void WgmmaEmitter::load(const Event& event) {
  const int ring = event.ring;
  const CircularBuffer& info = this->ring(ring);
  if (info.scheduler) return tell_work_tile(ring);
  Value* stage = state_.positions.at(ring).first;
  Value* barrier = full_barrier(ring, stage);
  ptx_.mbarrier_expect(barrier, constant(static_cast<int>(info.stage_bytes())));
  Values origin;
  for (const IntExpr& index : info.origin) origin.push_back(b_.CreateTrunc(integer(index), b_.getInt32Ty()));
  const auto move = [&](int index, int distance) {
    Value*& start = origin[static_cast<std::size_t>(index)];
    start = b_.CreateAdd(start, b_.CreateMul(arguments_.cluster_rank, constant(distance)));
  };
  if (info.own_index >= 0) move(info.own_index, plan_->packs() * info.row_stride);
  Value* address = stage_address(ring, stage);
  if (event.blocks > 1) {
    const bool columns = info.shares_columns();
    const int share = columns ? info.copied_blocks() * info.rows : info.copied_rows();
    columns ? move(static_cast<int>(origin.size()) - 1, info.copied_blocks() * kBlockColumns)
            : move(info.row_index, info.copied_rows() * info.row_stride);
    address = b_.CreateAdd(address, b_.CreateMul(arguments_.cluster_rank, constant(share * kSwizzleBytes)));
  }
  origin = copied_at(origin, info.row_index, info.pack_index);
  Value* first = origin.front();
  for (int block = 0; block < info.copied_blocks(); ++block) {
    origin.front() = b_.CreateAdd(first, constant(block * kBlockColumns));
    ptx_.load_tile(b_.CreateAdd(address, constant(block * info.rows * kSwizzleBytes)), maps_.at(static_cast<std::size_t>(ring)),
                   origin, barrier, event.blocks, plan_->buffer(info.buffer).streaming);
  }
  advance(ring);
}

/// Do lanes read tiles of the circular buffer into registers, and copies overwrite them later? Products read as copies write.
bool WgmmaEmitter::lanes_read(int ring) const {
  const CircularBuffer& info = plan_->circular_buffers[static_cast<std::size_t>(ring)];
  if (info.scheduler) return false;
  const auto reads = [&](const TensorOp& op) {
    return std::any_of(op.read_rings.begin(), op.read_rings.end(), [&](const auto& read) { return read.second == ring; });
  };
  return (info.in_registers && plan_->persistent()) || std::any_of(plan_->ops.begin(), plan_->ops.end(), reads);
}

/// Gives back the oldest tile that is held. `known`: a condition that holds. One lane of each warp tells its own block; of a cluster, lane r
/// tells block r. What lanes read may still be under way when the arrival is seen, and copies go another way (the asynchronous proxy): a
/// fence stands between the two, and all lanes have it behind them.
void WgmmaEmitter::release(const Event& event, Value* known) {
  int& behind = behind_[event.ring];
  Value* stage = state_.positions.at(event.ring).first;
  if (behind > 0) {
    Value* wraps = b_.CreateICmpSLT(stage, constant(behind));
    stage = b_.CreateSub(b_.CreateSelect(wraps, b_.CreateAdd(stage, constant(ring(event.ring).stages)), stage), constant(behind));
  }
  if (lanes_read(event.ring)) {
    ptx_.fence_async_proxy();
    ptx_.warp_barrier();
  }
  Value* barrier = empty_barrier(event.ring, stage);
  Value* tells = event.blocks == 1 ? leads_warp_ : b_.CreateICmpULT(lane_, constant(event.blocks));
  if (known != nullptr) tells = b_.CreateAnd(tells, known);
  event.blocks == 1 ? ptx_.mbarrier_arrive(barrier, tells) : ptx_.mbarrier_arrive_at(barrier, lane_, tells);
  if (behind == 0) return advance(event.ring);
  --behind;
}

/// The comparison is true, but ptxas cannot know: so the arrival, and every wait behind it, stays behind the instructions that made the
/// value.
void WgmmaEmitter::release_amid(int k, int made, int count, Value* value) {
  const auto found = amid_.find(k);
  if (found == amid_.end()) return;
  Value* known = nullptr;
  std::erase_if(found->second, [&](const Event& event) {
    if (made < std::max(count * event.count / kAmidParts, 1)) return false;
    if (known == nullptr) known = b_.CreateFCmpUGE(value, llvm::ConstantFP::get(value->getType(), -1.0));
    release(event, known);
    return true;
  });
  if (found->second.empty()) amid_.erase(found);
}

int WgmmaEmitter::amid_parts(int k) const {
  const auto found = amid_.find(k);
  return found == amid_.end() ? 0 : found->second.back().count;
}

void WgmmaEmitter::turn(bool wait) {
  Value* own = b_.CreateAdd(warpgroup_, constant(1));
  if (wait) return ptx_.named_barrier_sync(own, 2 * kWarpgroupThreads);
  Value* last = b_.CreateICmpEQ(warpgroup_, constant(plan_->warpgroups - 1));
  ptx_.named_barrier_arrive(b_.CreateSelect(last, constant(1), b_.CreateAdd(own, constant(1))), 2 * kWarpgroupThreads);
}

}  // namespace nestor::nvptx
