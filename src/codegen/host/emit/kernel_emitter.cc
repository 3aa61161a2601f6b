// Walks the tile tree: loops, conditions, ops, and parallel loops outlined into tasks.
#include "codegen/host/emit/kernel_emitter.h"

#include "codegen/host/emit/op_lowering.h"
#include "support/error.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

namespace nestor {
namespace {

using llvm::Value;

constexpr std::int64_t kMostTasks = 512;  ///< of one parallel loop: enough to balance, few enough to cost nothing

/// Loops of one parallel chain, outermost first, with their ranges in the function that starts the tasks.
struct TaskRange {
  std::vector<const TileNode*> loops;
  std::vector<Value*> lower, count;
};

class KernelEmitter {
 public:
  explicit KernelEmitter(HostModule& host) : host_(host), layout_(lay_out_memory(host.program)) {}

  IntExpr emit() {
    llvm::Type* pointer = llvm::PointerType::getUnqual(host_.context());
    llvm::FunctionType* type =
        llvm::FunctionType::get(llvm::Type::getVoidTy(host_.context()), std::vector<llvm::Type*>(6, pointer), false);
    llvm::Function* function = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, host_.program.name, host_.module);
    Frame f(host_, function);
    f.pointers = function->getArg(0);
    f.strides = function->getArg(1);
    f.sizes = function->getArg(2);
    f.scalars = function->getArg(3);
    f.workspace = function->getArg(4);
    f.services = function->getArg(5);
    bind_sizes(f);
    bind_buffers(f, nullptr, nullptr);
    f.temporary = bytes_at(f, f.workspace, layout_.workspace_bytes);
    if (host_.program.root) emit_node(f, *host_.program.root, false);
    finish(f);
    return layout_.workspace_bytes + IntExpr(f.temporary_bytes);
  }

 private:
  static Value* bytes_at(Frame& f, Value* base, const IntExpr& offset) {
    return f.b.CreateInBoundsGEP(f.b.getInt8Ty(), base, f.integer(offset));
  }

  static void finish(Frame& f) {
    // Weakly ordered stores must be visible before the task counts as done.
    if (f.streamed) f.b.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
    f.b.CreateRetVoid();
  }

  void bind_sizes(Frame& f) {
    const TileProgram& program = host_.program;
    for (std::size_t k = 0; k < program.sizes.size(); ++k) {
      const auto fixed = program.fixed_sizes.find(program.sizes[k]);
      f.variables[program.sizes[k]] =
          fixed != program.fixed_sizes.end()
              ? static_cast<Value*>(f.i64(fixed->second))
              : f.invariant_load(f.b.getInt64Ty(), f.b.CreateConstInBoundsGEP1_64(f.b.getInt64Ty(), f.sizes, k));
    }
  }

  /// Base addresses and strides of the buffers that `region` uses (null: the entry function).
  void bind_buffers(Frame& f, const TileNode* region, Value* scratch) {
    for (const int k : layout_.used.at(region)) {
      const BufferPlace& place = layout_.places[k];
      const Buffer& buffer = host_.program.buffers[k];
      BufferView view;
      if (place.where == BufferPlace::Where::argument) {
        view = argument_view(f, buffer, place);
      } else {
        for (const IntExpr& stride : place.strides) view.strides.push_back(f.integer(stride));
        view.base = place.where == BufferPlace::Where::stack       ? stack_memory(f, buffer, place)
                    : place.where == BufferPlace::Where::workspace ? bytes_at(f, f.workspace, place.offset)
                                                                   : bytes_at(f, scratch, place.offset);
      }
      f.buffers[k] = std::move(view);
    }
  }

  BufferView argument_view(Frame& f, const Buffer& buffer, const BufferPlace& place) {
    BufferView view;
    const auto slot = [&](llvm::Type* type, Value* array, int index) {
      return f.invariant_load(type, f.b.CreateConstInBoundsGEP1_64(type, array, static_cast<std::uint64_t>(index)));
    };
    view.base = slot(f.b.getPtrTy(), f.pointers, place.argument);
    for (std::size_t k = 0; k < buffer.extents.size(); ++k) {
      const bool last = k + 1 == buffer.extents.size();
      view.strides.push_back(last ? static_cast<Value*>(f.i64(1))
                                  : slot(f.b.getInt64Ty(), f.strides, place.first_stride + static_cast<int>(k)));
    }
    return view;
  }

  Value* stack_memory(Frame& f, const Buffer& buffer, const BufferPlace& place) {
    const auto elements = place.elements.as_constant();
    if (!elements) internal_error("buffer {} on the stack has no constant size", buffer.name);
    return f.entry_alloca(memory_type(host_.context(), buffer.type), std::max<std::int64_t>(*elements, 1));
  }

  void emit_children(Frame& f, const TileNode& node, bool in_task) {
    for (const TileTree& child : node.children) emit_node(f, *child, in_task);
  }

  void emit_node(Frame& f, const TileNode& node, bool in_task) {
    switch (node.kind) {
      case TileNode::Kind::sequence:
        return emit_children(f, node, in_task);
      case TileNode::Kind::condition:
        return f.branch(emit_condition(f.b, node.condition, f.lookup()), [&] { emit_children(f, node, in_task); });
      case TileNode::Kind::loop:
        return !in_task && is_parallel_loop(node) ? emit_parallel(f, node) : emit_loop(f, node, in_task);
      case TileNode::Kind::op:
        return emit_op(f, node.op);
    }
  }

  /// Repeating more than one simple op would cost more in code than it gains.
  static bool small_body(const TileNode& node) {
    if (node.kind == TileNode::Kind::op) return node.op.kind != OpKind::contract;
    return node.children.size() == 1 && small_body(*node.children[0]);
  }

  void emit_loop(Frame& f, const TileNode& node, bool in_task) {
    const std::int64_t unroll = node.loop_kind == LoopKind::unroll && small_body(node) ? 4 : 1;
    f.loop(
        f.integer(node.lower), f.integer(node.upper), node.step,
        [&](Value* iv) {
          f.variables[node.var] = iv;
          emit_children(f, node, in_task);
          f.variables.erase(node.var);
        },
        unroll);
  }

  /// Sets the accumulators of a reduction to the neutral element.
  static TileOp neutral_op(const TileOp& op) {
    TileOp out;
    out.kind = OpKind::map;
    out.name = op.name;
    for (const OpDim& dim : op.dims) {
      if (!dim.reduced) out.dims.push_back(dim);
    }
    out.write = op.write;
    out.value = ScalarExpr::constant(neutral_element(*op.reduction, op.value.type()), op.value.type());
    return out;
  }

  static void emit_op(Frame& f, const TileOp& op) {
    // Accumulators start where the guard lets nothing through, too; and points has no place for a start of its own.
    if (op.initialize && (op.guard.defined() || op.kind == OpKind::points)) {
      TileOp accumulate = op;
      accumulate.initialize = false;
      lower_map(f, neutral_op(op));
      return emit_op(f, accumulate);
    }
    switch (op.kind) {
      case OpKind::copy:
      case OpKind::map:
      case OpKind::points:
        return lower_map(f, op);
      case OpKind::reduce:
        return lower_reduce(f, op);
      case OpKind::contract:
        return lower_contract(f, op);
    }
  }

  /// Parallel loops directly inside one another whose bounds do not depend on each other form one range of tasks.
  TaskRange task_range(Frame& f, const TileNode& node) {
    TaskRange range;
    const TileNode* next = &node;
    while (next != nullptr) {
      range.loops.push_back(next);
      Value* lower = f.integer(next->lower);
      Value* length = f.b.CreateNSWSub(f.integer(next->upper), lower);
      Value* rounded =
          next->step == 1 ? length : f.b.CreateSDiv(f.b.CreateNSWAdd(length, f.i64(next->step - 1)), f.i64(next->step));
      range.lower.push_back(lower);
      range.count.push_back(f.maximum(rounded, f.i64(0)));
      const TileNode* child = next;
      do {
        child = child->children.size() == 1 ? child->children[0].get() : nullptr;
      } while (child != nullptr && child->kind == TileNode::Kind::sequence);
      next = child != nullptr && is_parallel_loop(*child) && independent(*child, range.loops) ? child : nullptr;
    }
    return range;
  }

  static bool independent(const TileNode& inner, const std::vector<const TileNode*>& outer) {
    for (const TileNode* loop : outer) {
      if (inner.lower.uses(loop->var) || inner.upper.uses(loop->var)) return false;
    }
    return true;
  }

  /// The closure of a task: what the entry function was called with, then 64-bit numbers: all iterations, iterations of
  /// one task, lower bound and count of each loop, and the variables around.
  void emit_parallel(Frame& f, const TileNode& node) {
    const TaskRange range = task_range(f, node);
    std::vector<std::string> outer;
    for (const auto& [name, value] : f.variables) {
      if (value != nullptr &&
          std::find(host_.program.sizes.begin(), host_.program.sizes.end(), name) == host_.program.sizes.end())
        outer.push_back(name);
    }
    Value* total = f.i64(1);
    for (Value* count : range.count) total = f.b.CreateNSWMul(total, count);
    Value* chunk = f.maximum(f.b.CreateSDiv(f.b.CreateNSWAdd(total, f.i64(kMostTasks - 1)), f.i64(kMostTasks)), f.i64(1));
    Value* tasks = f.b.CreateSDiv(f.b.CreateNSWAdd(total, f.b.CreateNSWSub(chunk, f.i64(1))), chunk);
    std::vector<Value*> numbers{total, chunk};
    for (std::size_t k = 0; k < range.loops.size(); ++k) {
      numbers.push_back(range.lower[k]);
      numbers.push_back(range.count[k]);
    }
    for (const std::string& name : outer) numbers.push_back(f.variables.at(name));

    llvm::Type* pointer = f.b.getPtrTy();
    const std::vector<Value*> addresses{f.pointers, f.strides, f.sizes, f.scalars, f.workspace, f.services};
    llvm::StructType* closure_type = llvm::StructType::get(
        host_.context(),
        {llvm::ArrayType::get(pointer, addresses.size()), llvm::ArrayType::get(f.b.getInt64Ty(), numbers.size())});
    llvm::AllocaInst* closure = f.entry_alloca(closure_type);
    for (std::size_t k = 0; k < addresses.size(); ++k) f.b.CreateStore(addresses[k], slot(f, closure_type, closure, 0, k));
    for (std::size_t k = 0; k < numbers.size(); ++k) f.b.CreateStore(numbers[k], slot(f, closure_type, closure, 1, k));

    std::int64_t temporary_bytes = 0;
    llvm::Function* task = emit_task(range, outer, closure_type, temporary_bytes);
    const auto private_bytes = layout_.task_bytes.find(&node);
    Value* scratch_bytes =
        f.integer((private_bytes == layout_.task_bytes.end() ? IntExpr(0) : private_bytes->second) + IntExpr(temporary_bytes));
    llvm::StructType* services = llvm::StructType::get(host_.context(), {pointer, pointer});
    Value* context = f.invariant_load(pointer, f.b.CreateStructGEP(services, f.services, 0));
    Value* parallel_for = f.invariant_load(pointer, f.b.CreateStructGEP(services, f.services, 1));
    llvm::FunctionType* type =
        llvm::FunctionType::get(f.b.getVoidTy(), {pointer, f.b.getInt64Ty(), f.b.getInt64Ty(), pointer, pointer}, false);
    f.b.CreateCall(type, parallel_for, {context, tasks, scratch_bytes, task, closure});
  }

  static Value* slot(Frame& f, llvm::StructType* type, Value* closure, unsigned part, std::size_t index) {
    return f.b.CreateInBoundsGEP(type, closure,
                                 {f.b.getInt32(0), f.b.getInt32(part), f.b.getInt32(static_cast<std::uint32_t>(index))});
  }

  /// void task(closure, index, scratch): one chunk of iterations.
  llvm::Function* emit_task(const TaskRange& range, const std::vector<std::string>& outer, llvm::StructType* closure_type,
                            std::int64_t& temporary_bytes) {
    llvm::Type* pointer = llvm::PointerType::getUnqual(host_.context());
    llvm::FunctionType* type = llvm::FunctionType::get(llvm::Type::getVoidTy(host_.context()),
                                                       {pointer, llvm::Type::getInt64Ty(host_.context()), pointer}, false);
    const std::string name = fmt::format("{}_task{}", host_.program.name, host_.functions++);
    llvm::Function* function = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name, host_.module);
    Frame f(host_, function);
    Value* closure = function->getArg(0);
    const auto address = [&](std::size_t k) { return f.invariant_load(f.b.getPtrTy(), slot(f, closure_type, closure, 0, k)); };
    const auto number = [&](std::size_t k) { return f.invariant_load(f.b.getInt64Ty(), slot(f, closure_type, closure, 1, k)); };
    f.pointers = address(0), f.strides = address(1), f.sizes = address(2);
    f.scalars = address(3), f.workspace = address(4), f.services = address(5);
    bind_sizes(f);
    for (std::size_t k = 0; k < outer.size(); ++k) f.variables[outer[k]] = number(2 + 2 * range.loops.size() + k);
    Value* scratch = function->getArg(2);
    bind_buffers(f, range.loops[0], scratch);
    const auto private_bytes = layout_.task_bytes.find(range.loops[0]);
    f.temporary = bytes_at(f, scratch, private_bytes == layout_.task_bytes.end() ? IntExpr(0) : private_bytes->second);
    Value* start = f.b.CreateNSWMul(function->getArg(1), number(1));
    Value* end = f.minimum(f.b.CreateNSWAdd(start, number(1)), number(0));
    f.loop(start, end, 1, [&](Value* iteration) { emit_iteration(f, range, iteration, number); });
    finish(f);
    temporary_bytes = f.temporary_bytes;
    return function;
  }

  /// Values of the chain's loop variables from the number of the iteration, the innermost running fastest.
  void emit_iteration(Frame& f, const TaskRange& range, Value* iteration, const std::function<Value*(std::size_t)>& number) {
    Value* rest = iteration;
    for (std::size_t k = range.loops.size(); k-- > 0;) {
      Value* index = rest;
      if (k > 0) {
        Value* count = number(3 + 2 * k);
        index = f.b.CreateSRem(rest, count);
        rest = f.b.CreateSDiv(rest, count);
      }
      f.variables[range.loops[k]->var] =
          f.b.CreateNSWAdd(number(2 + 2 * k), f.b.CreateNSWMul(index, f.i64(range.loops[k]->step)));
    }
    f.next_var = range.loops.back()->var;
    f.next_step = range.loops.back()->step;
    std::map<int, std::vector<const TileOp*>> readers;
    find_readers(*range.loops.back(), readers);
    for (const auto& [buffer, ops] : readers) {
      if (ops.size() > 1) f.last_readers.emplace(ops.back(), buffer);
    }
    emit_children(f, *range.loops.back(), true);
  }

  /// The ops that read each input argument.
  void find_readers(const TileNode& node, std::map<int, std::vector<const TileOp*>>& readers) const {
    if (node.kind == TileNode::Kind::op) {
      for (const TileAccess& read : node.op.reads) {
        const Buffer& buffer = host_.program.buffers[read.buffer];
        std::vector<const TileOp*>& known = readers[read.buffer];
        const bool is_input = buffer.memory == Memory::argument && buffer.role == TensorRole::input;
        if (is_input && (known.empty() || known.back() != &node.op)) known.push_back(&node.op);
      }
    }
    for (const TileTree& child : node.children) find_readers(*child, readers);
  }

  HostModule& host_;
  MemoryLayout layout_;
};

}  // namespace

IntExpr emit_kernel(HostModule& host) { return KernelEmitter(host).emit(); }

}  // namespace nestor
