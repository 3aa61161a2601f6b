// What every lowering of the host back end works with: the module under construction, one function of it, loops and memory.
#pragma once

#include "codegen/host/emit/host_math.h"
#include "codegen/host/target/host_target.h"
#include "codegen/llvm/int_emit.h"
#include "codegen/llvm/scalar_emit.h"
#include "codegen/tile/tile_program.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace nestor {

/// What the target can do, as lowerings need it.
struct HostShape {
  unsigned width = 8;  ///< f32 lanes of one vector register
  unsigned registers = 16;
  bool masked = true;     ///< 32-bit masked loads and stores are instructions
  bool masked16 = false;  ///< 16-bit ones too
};

/// Everything shared by the functions of one kernel.
struct HostModule {
  const TileProgram& program;
  HostShape shape;
  const MathEmitter& math;
  llvm::Module& module;
  std::vector<llvm::MDNode*> scope;                ///< alias scope list of each buffer; two more for packing scratch
  std::vector<llvm::MDNode*> no_alias;             ///< all other scopes
  std::map<std::string, llvm::Function*> helpers;  ///< microkernels and packers, by name
  int functions = 0;                               ///< numbers the outlined bodies

  HostModule(const TileProgram& program, const HostShape& shape, const MathEmitter& math, llvm::Module& module);
  llvm::LLVMContext& context() const { return module.getContext(); }
  /// Adds the attributes that every generated function carries.
  void finish(llvm::Function& function, const HostTarget& target) const;
};

/// A buffer inside a function: its base address and strides in elements (the last is the constant 1).
struct BufferView {
  llvm::Value* base = nullptr;
  std::vector<llvm::Value*> strides;
};

/// One function under construction.
struct Frame {
  HostModule& host;
  llvm::Function* function;
  llvm::IRBuilder<> b;
  std::map<std::string, llvm::Value*> variables;  ///< loops, op dims and sizes, i64
  std::map<int, BufferView> buffers;              ///< those that the function uses
  llvm::Value* pointers = nullptr;
  llvm::Value* strides = nullptr;
  llvm::Value* sizes = nullptr;
  llvm::Value* scalars = nullptr;
  llvm::Value* workspace = nullptr;
  llvm::Value* services = nullptr;
  llvm::Value* temporary = nullptr;                      ///< packing scratch, 64-byte aligned
  std::int64_t temporary_bytes = 0;                      ///< most that any op of the function asked for
  bool streamed = false;                                 ///< it holds non-temporal stores
  std::string next_var;                                  ///< the loop that a task runs through; "" outside tasks
  std::int64_t next_step = 0;                            ///< its step
  std::set<std::pair<const TileOp*, int>> last_readers;  ///< in its body, of inputs read several times: op and buffer

  Frame(HostModule& host, llvm::Function* function);

  IntLookup lookup() const;
  llvm::Value* integer(const IntExpr& expr) { return emit_int(b, expr, lookup()); }
  llvm::Constant* i64(std::int64_t value) { return b.getInt64(static_cast<std::uint64_t>(value)); }
  /// Memory in the function's entry block.
  llvm::AllocaInst* entry_alloca(llvm::Type* type, std::int64_t count = 1, unsigned alignment = 64);
  llvm::BasicBlock* block(const char* name);

  /// for (iv = lower; iv < upper; iv += step) body(iv). Constant bounds that allow no iteration emit nothing.
  void loop(llvm::Value* lower, llvm::Value* upper, std::int64_t step, const std::function<void(llvm::Value*)>& body,
            std::int64_t unroll = 1);
  /// if (condition) then; else otherwise. Constant conditions emit one side only.
  void branch(llvm::Value* condition, const std::function<void()>& then, const std::function<void()>& otherwise = {});

  llvm::Value* minimum(llvm::Value* a, llvm::Value* c);
  llvm::Value* maximum(llvm::Value* a, llvm::Value* c);

  /// Marks a load or store as touching only `buffer`.
  void tag(llvm::Instruction* access, int buffer) const;
  /// A load that no store of the kernel changes.
  llvm::Value* invariant_load(llvm::Type* type, llvm::Value* address);
};

/// IR type of an element in memory: 16-bit floats are i16, booleans i8.
llvm::Type* memory_type(llvm::LLVMContext& context, ElementType type);

/// Between memory and register form of an element or vector.
llvm::Value* to_register(llvm::IRBuilderBase& b, llvm::Value* value, ElementType type);
llvm::Value* to_memory(llvm::IRBuilderBase& b, llvm::Value* value, ElementType type);

/// <width x i1>: lane < count (i64).
llvm::Value* first_lanes(llvm::IRBuilderBase& b, llvm::Value* count, unsigned width);

std::optional<std::int64_t> constant_of(llvm::Value* value);

}  // namespace nestor
