// One kernel as an LLVM function.
#include "codegen/gpu/kernel_builder.h"

#include "codegen/gpu/kernel/workspace.h"
#include "codegen/gpu/mma/emit/tensor_emitter.h"
#include "codegen/gpu/ptx/grid_emit.h"
#include "codegen/gpu/ptx/ptx_emit.h"
#include "codegen/gpu/simt/emit/block_emitter.h"
#include "codegen/tile/analysis/tile_rewrite.h"
#include "support/error.h"

#include <fmt/ranges.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>
#include <set>

namespace nestor::nvptx {
namespace {

using llvm::Value;

/// What a kernel's code refers to.
struct Uses {
  std::set<int> arguments, workspaces;  ///< buffers
  std::set<std::string> integers;
  std::map<std::string, ElementType> scalars;
};

void collect_tree(const TileTree& tree, std::set<std::string>& names) {
  if (tree->kind == TileNode::Kind::loop) {
    collect_variables(tree->lower, names);
    collect_variables(tree->upper, names);
  }
  if (tree->kind == TileNode::Kind::condition) collect_variables(tree->condition, names);
  for (const TileTree& child : tree->children) collect_tree(child, names);
}

Uses collect_uses(const KernelPlan& kernel, const TileProgram& program, const std::map<int, IntExpr>& workspace) {
  Uses uses;
  collect_tree(kernel.body, uses.integers);
  for (const GridLoop& loop : kernel.grid) {
    collect_variables(loop.lower, uses.integers);
    collect_variables(loop.count, uses.integers);
  }
  const auto visit_access = [&](const TileAccess& access) {
    const Buffer& buffer = program.buffers[access.buffer];
    for (const IntExpr& index : access.index) collect_variables(index, uses.integers);
    for (const IntExpr& extent : buffer.extents) collect_variables(extent, uses.integers);
    if (buffer.memory == Memory::argument) uses.arguments.insert(access.buffer);
    if (buffer.memory != Memory::workspace) return;
    uses.workspaces.insert(access.buffer);
    collect_variables(workspace.at(access.buffer), uses.integers);
  };
  for_each_op(kernel.body, [&](const TileOp& op, bool) {
    for (const OpDim& dim : op.dims) {
      collect_variables(dim.lower, uses.integers);
      collect_variables(dim.upper, uses.integers);
    }
    collect_variables(op.guard, uses.integers);
    for (const IntExpr& index : op.indices) collect_variables(index, uses.integers);
    visit_access(op.write);
    for (const TileAccess& read : op.reads) visit_access(read);
    op.value.visit([&](const ScalarExpr& node) {
      if (node.op() == ScalarOp::scalar) uses.scalars[node.name()] = node.type();
    });
  });
  return uses;
}

/// Number of an argument buffer among the arguments.
int argument_ordinal(const TileProgram& program, int buffer) {
  return static_cast<int>(std::count_if(program.buffers.begin(), program.buffers.begin() + buffer,
                                        [](const Buffer& b) { return b.memory == Memory::argument; }));
}

class KernelBuilder {
 public:
  KernelBuilder(llvm::Module& module, const KernelPlan& kernel, const TileProgram& program)
      : module_(module), kernel_(kernel), program_(program), b_(module.getContext()) {
    IntExpr total(0);
    arguments_.workspace_offsets = workspace_layout(program, total);
  }

  BuiltKernel emit(const std::vector<BlockPlan>& plans) {
    create_function();
    if (plans.size() > 1) {
      emit_both(plans[0], plans[1]);
    } else {
      emit_body(plans[0]);
      finish(plans[0].threads, plans[0].blocks_per_unit, plans[0].shared_bytes);
    }
    return std::move(built_);
  }

  BuiltKernel emit(const TensorPlan& plan) {
    const bool warpgroups = plan.cores == TensorCores::wgmma;
    bind_workspaces(create_function(warpgroups ? maps_of(plan) : std::vector<KernelParam>{}).workspaces);
    if (warpgroups) {
      WgmmaEmitter(b_, *function_, arguments_, maps_).emit(plan);
    } else {
      MmaEmitter(b_, *function_, arguments_, maps_).emit(plan);
    }
    b_.CreateRetVoid();
    finish(plan.threads(), plan.blocks_per_unit(), plan.shared_bytes);
    return std::move(built_);
  }

 private:
  /// Buffers in the workspace, like arguments.
  void bind_workspaces(const std::set<int>& buffers) {
    for (const int k : buffers) {
      const Buffer& buffer = program_.buffers[k];
      arguments_.pointers[k] =
          b_.CreateInBoundsGEP(b_.getInt8Ty(), arguments_.workspace, {integer(arguments_.workspace_offsets.at(k))});
      const std::vector<IntExpr> strides = workspace_strides(buffer);
      for (int dim = static_cast<int>(strides.size()) - 1; dim >= 0; --dim) arguments_.strides[{k, dim}] = integer(strides[dim]);
    }
  }

  WorkspaceTensor workspace_tensor(int buffer) const {
    const Buffer& info = program_.buffers[static_cast<std::size_t>(buffer)];
    return {info.type, arguments_.workspace_offsets.at(buffer), info.extents, workspace_strides(info)};
  }

  /// Tensor maps of the circular buffers, then of the stores that need one.
  std::vector<KernelParam> maps_of(const TensorPlan& plan) const {
    std::vector<KernelParam> maps;
    const auto add = [&](int buffer, int row_index, int pack_index, int rows, int pack, int columns = kBlockColumns) {
      const bool held = plan.buffer(buffer).memory == Memory::workspace;
      KernelParam map{KernelParam::Kind::tensor_map, held ? -1 : argument_ordinal(program_, buffer), 0, plan.buffer(buffer).name};
      if (held) map.held = workspace_tensor(buffer);
      map.box.assign(plan.buffer(buffer).extents.size(), 1);
      map.box[row_index] = pack_index < 0 ? rows : rows / pack;
      if (pack_index >= 0) map.box[pack_index] = pack;
      map.order = copied_order(map.box.size(), row_index, pack_index);
      map.box.back() = columns;
      map.swizzle = columns * kSwizzleBytes / kBlockColumns;
      maps.push_back(std::move(map));
    };
    for (const CircularBuffer& ring : plan.circular_buffers) {
      if (ring.scheduler) continue;
      add(ring.buffer, ring.row_index, ring.pack_index, ring.copied_rows(), plan.pack);
      if (ring.row_stride == 1 && ring.pack_stride == 1) continue;
      KernelParam& map = maps.back();
      map.element_strides.assign(map.box.size(), 1);
      map.element_strides[ring.row_index] = ring.row_stride;
      if (ring.pack_index >= 0) map.element_strides[ring.pack_index] = ring.pack_stride;
    }
    for (const TensorOp& op : plan.ops) {
      if (!op.through_shared) continue;
      const CopiedRows copy = copied_rows(plan, op);
      add(op.op.write.buffer, copy.outer, copy.inner, copy.rows, copy.per_outer, op.stage_columns);
    }
    return maps;
  }

  /// Returns what the code refers to.
  Uses create_function(const std::vector<KernelParam>& maps = {}) {
    Uses uses = collect_uses(kernel_, program_, arguments_.workspace_offsets);
    std::vector<llvm::Type*> types;
    const auto add = [&](KernelParam::Kind kind, int index, int dim, const std::string& name, llvm::Type* type) {
      built_.params.push_back({kind, index, dim, name});
      types.push_back(type);
    };
    llvm::Type* pointer = b_.getPtrTy(1);
    for (int buffer : uses.arguments) {
      const int ordinal = argument_ordinal(program_, buffer);
      add(KernelParam::Kind::pointer, ordinal, 0, program_.buffers[buffer].name, pointer);
      const int rank = static_cast<int>(program_.buffers[buffer].extents.size());
      for (int dim = 0; dim + 1 < rank; ++dim) add(KernelParam::Kind::stride, ordinal, dim, "", b_.getInt64Ty());
    }
    for (const std::string& size : program_.sizes) {
      if (uses.integers.count(size) != 0 && program_.fixed_sizes.count(size) == 0)
        add(KernelParam::Kind::size, 0, 0, size, b_.getInt64Ty());
    }
    for (const LaunchLoop& loop : kernel_.launch_loops) {
      if (uses.integers.count(loop.var) != 0) add(KernelParam::Kind::loop, 0, 0, loop.var, b_.getInt64Ty());
    }
    for (const auto& [name, type] : uses.scalars)
      add(KernelParam::Kind::scalar, 0, 0, name, register_type(module_.getContext(), type));
    if (!uses.workspaces.empty()) add(KernelParam::Kind::workspace, 0, 0, "", pointer);
    if (kernel_.shape.dynamic_scheduler != 0 && kernel_.shape.persistent > 0) add(KernelParam::Kind::counter, 0, 0, "", pointer);
    for (const KernelParam& map : maps) {
      built_.params.push_back(map);
      types.push_back(b_.getPtrTy());
    }
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), types, false);
    function_ = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, kernel_.symbol, module_);
    function_->setCallingConv(llvm::CallingConv::PTX_Kernel);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    describe_maps(maps.size());
    b_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", function_));
    if (kernel_.triggers) PtxEmitter(b_).launch_dependents();
    if (kernel_.waits) PtxEmitter(b_).wait_for_kernel_before();
    bind_arguments(uses);
    decode_block();
    return uses;
  }

  /// The last `count` parameters are tensor maps by value: 128 bytes of constant memory that is never copied.
  void describe_maps(std::size_t count) {
    if (count == 0) return;
    llvm::LLVMContext& context = module_.getContext();
    auto* map = llvm::ArrayType::get(b_.getInt64Ty(), 16);
    std::vector<llvm::Metadata*> numbers;
    for (auto k = static_cast<unsigned>(function_->arg_size() - count); k < function_->arg_size(); ++k) {
      function_->addParamAttr(k, llvm::Attribute::getWithByValType(context, map));
      function_->addParamAttr(k, llvm::Attribute::getWithAlignment(context, llvm::Align(64)));
      function_->addParamAttr(k, llvm::Attribute::ReadOnly);
      numbers.push_back(llvm::ConstantAsMetadata::get(b_.getInt32(k + 1)));
      maps_.push_back(function_->getArg(k));
    }
    llvm::Metadata* parts[] = {llvm::ValueAsMetadata::get(function_), llvm::MDString::get(context, "grid_constant"),
                               llvm::MDNode::get(context, numbers)};
    module_.getOrInsertNamedMetadata("nvvm.annotations")->addOperand(llvm::MDNode::get(context, parts));
  }

  void bind_arguments(const Uses& uses) {
    unsigned next = 0;
    const auto take = [&](const std::string& name) {
      llvm::Argument* argument = function_->getArg(next++);
      argument->setName(name);
      return argument;
    };
    for (int buffer : uses.arguments) {
      const Buffer& info = program_.buffers[buffer];
      arguments_.pointers[buffer] = take(info.name);
      for (int dim = 0; dim + 1 < static_cast<int>(info.extents.size()); ++dim) {
        arguments_.strides[{buffer, dim}] = take(info.name + "_stride" + std::to_string(dim));
      }
    }
    while (next < function_->arg_size() - maps_.size()) {
      const KernelParam& param = built_.params[next];
      const bool unnamed = param.kind == KernelParam::Kind::workspace || param.kind == KernelParam::Kind::counter;
      Value* value = take(!unnamed ? param.name : param.kind == KernelParam::Kind::counter ? "counter" : "workspace");
      if (param.kind == KernelParam::Kind::scalar) arguments_.scalars[param.name] = value;
      if (param.kind == KernelParam::Kind::size || param.kind == KernelParam::Kind::loop) arguments_.integers[param.name] = value;
      if (param.kind == KernelParam::Kind::workspace) arguments_.workspace = value;
      if (param.kind == KernelParam::Kind::counter) arguments_.counter = value;
    }
  }

  Value* integer(const IntExpr& expr) {
    return emit_int(b_, expr, [&](const std::string& name) -> Value* {
      const auto found = arguments_.integers.find(name);
      return found == arguments_.integers.end() ? nullptr : found->second;
    });
  }

  /// blockIdx.x as coordinates of the grid's loops. A grid has fewer than 2^31 blocks, so 32 bits do.
  void decode_block() {
    if (kernel_.grid.empty()) return;
    Value* rest = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, {}, {});
    if (const int cluster = kernel_.shape.cluster; cluster > 1) {
      arguments_.cluster_rank = b_.CreateURem(rest, b_.getInt32(static_cast<std::uint32_t>(cluster)));
      rest = b_.CreateUDiv(rest, b_.getInt32(static_cast<std::uint32_t>(cluster)));
    }
    if (kernel_.shape.persistent > 0) {
      Value* blocks = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_x, {}, {});
      blocks = b_.CreateUDiv(blocks, b_.getInt32(static_cast<std::uint32_t>(kernel_.shape.cluster)));
      arguments_.integers[kBlockNumber] = b_.CreateZExt(rest, b_.getInt64Ty());
      arguments_.integers[kBlockCount] = b_.CreateZExt(blocks, b_.getInt64Ty());
      return;
    }
    std::vector<std::pair<std::string, Value*>> coordinates;
    const auto count = [&](std::size_t k) { return b_.CreateTrunc(integer(kernel_.grid[k].count), b_.getInt32Ty()); };
    const auto take = [&](std::size_t k, Value* index) {
      const GridLoop& loop = kernel_.grid[k];
      Value* wide = b_.CreateNSWMul(b_.CreateZExt(index, b_.getInt64Ty()), b_.getInt64(static_cast<std::uint64_t>(loop.step)));
      coordinates.emplace_back(loop.var, b_.CreateNSWAdd(integer(loop.lower), wide, loop.var));
    };
    decode_grid(b_, rest, {kernel_.grid.size(), count, take}, kernel_.shape.raster_group);
    for (const auto& [name, value] : coordinates) arguments_.integers[name] = value;
  }

  /// All sizes, addresses and strides are such that 16-byte accesses are aligned and end where rows end.
  Value* vector_condition(const BlockPlan& plan) {
    Value* result = nullptr;
    const auto require = [&](Value* condition) { result = result == nullptr ? condition : b_.CreateAnd(result, condition); };
    for (const auto& [size, divisor] : plan.size_divisors) {
      Value* rest = b_.CreateAnd(arguments_.integers.at(size), b_.getInt64(static_cast<std::uint64_t>(divisor - 1)));
      require(b_.CreateICmpEQ(rest, b_.getInt64(0)));
    }
    for (const auto& [buffer, bytes] : plan.alignments) {
      const Buffer& info = program_.buffers[buffer];
      Value* bits = b_.CreatePtrToInt(arguments_.pointers.at(buffer), b_.getInt64Ty());
      for (int dim = 0; dim + 1 < static_cast<int>(info.extents.size()); ++dim) {
        Value* stride = b_.CreateMul(arguments_.strides.at({buffer, dim}), b_.getInt64(size_in_bytes(info.type)));
        bits = b_.CreateOr(bits, stride);
      }
      require(b_.CreateICmpEQ(b_.CreateAnd(bits, b_.getInt64(static_cast<std::uint64_t>(bytes - 1))), b_.getInt64(0)));
    }
    return result;
  }

  void emit_body(const BlockPlan& plan) {
    BlockEmitter(b_, *function_, arguments_).emit(plan);
    b_.CreateRetVoid();
  }

  void emit_both(const BlockPlan& vectors, const BlockPlan& plain) {
    auto* wide = llvm::BasicBlock::Create(module_.getContext(), "vectors", function_);
    auto* narrow = llvm::BasicBlock::Create(module_.getContext(), "elements", function_);
    b_.CreateCondBr(vector_condition(vectors), wide, narrow);
    b_.SetInsertPoint(wide);
    emit_body(vectors);
    b_.SetInsertPoint(narrow);
    emit_body(plain);
    finish(vectors.threads, std::min(vectors.blocks_per_unit, plain.blocks_per_unit),
           std::max(vectors.shared_bytes, plain.shared_bytes));
  }

  void finish(int threads, int blocks_per_unit, std::int64_t shared_bytes) {
    built_.threads = threads;
    built_.shared_bytes = shared_bytes;
    annotate("kernel", 1);
    annotate("maxntidx", threads);
    // Registers can be moved between warpgroups only where ptxas knows how many threads start with.
    if (blocks_per_unit > 1 || kernel_.shape.warpgroups > 0) annotate("minctasm", blocks_per_unit);
  }

  void annotate(const char* key, int value) {
    llvm::LLVMContext& context = module_.getContext();
    llvm::Metadata* parts[] = {llvm::ValueAsMetadata::get(function_), llvm::MDString::get(context, key),
                               llvm::ConstantAsMetadata::get(b_.getInt32(static_cast<std::uint32_t>(value)))};
    module_.getOrInsertNamedMetadata("nvvm.annotations")->addOperand(llvm::MDNode::get(context, parts));
  }

  llvm::Module& module_;
  const KernelPlan& kernel_;
  const TileProgram& program_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;
  KernelArguments arguments_;
  std::vector<Value*> maps_;
  BuiltKernel built_;
};

}  // namespace

BuiltKernel build_kernel(llvm::Module& module, const PlannedKernel& planned, const TileProgram& program) {
  KernelBuilder builder(module, *planned.kernel, program);
  return planned.tensor ? builder.emit(*planned.tensor) : builder.emit(planned.bodies);
}

}  // namespace nestor::nvptx
