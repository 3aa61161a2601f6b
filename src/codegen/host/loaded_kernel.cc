// LoadedHostKernel: relocatable objects linked into this process by LLVM ORC.
#include "codegen/host/host_backend.h"
#include "codegen/host/target/host_machine.h"
#include "nestor/host_abi.h"
#include "support/error.h"
#include "support/system/available_memory.h"
#include "support/system/fork_count.h"
#include "support/threads/thread_pool.h"

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/MemoryBuffer.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

namespace nestor {
namespace {

/// Pools by their number of threads. They are kept, since starting threads costs more than many kernels, and never destroyed.
struct Pools {
  std::mutex mutex;
  std::map<int, std::unique_ptr<ThreadPool>> by_threads;
};

ThreadPool& pool_of(int threads) {
  static auto& pools = *new PerProcess<Pools>([] { return std::make_unique<Pools>(); });
  Pools& here = pools.get();
  const std::lock_guard<std::mutex> lock(here.mutex);
  std::unique_ptr<ThreadPool>& pool = here.by_threads[threads];
  if (pool == nullptr) pool = std::make_unique<ThreadPool>(threads);
  return *pool;
}

struct Workspace {
  std::unique_ptr<void, decltype(&std::free)> memory{nullptr, &std::free};
  std::int64_t bytes = 0;
};

template <class T>
T checked(llvm::Expected<T> value, const std::string& symbol) {
  if (!value) internal_error("cannot load host kernel {}: {}", symbol, llvm::toString(value.takeError()));
  return std::move(*value);
}

void check(llvm::Error error, const std::string& symbol) {
  if (error) internal_error("cannot load host kernel {}: {}", symbol, llvm::toString(std::move(error)));
}

}  // namespace

struct LoadedHostKernel::Impl {
  LaunchRecipe recipe;
  std::unique_ptr<llvm::orc::LLJIT> jit;
  nestor_host_kernel entry = nullptr;
  mutable std::mutex mutex;
  mutable Workspace workspace;

  void* reserve(std::int64_t bytes) const {
    if (bytes > workspace.bytes || !workspace.memory) {
      // What it has is given back first.
      workspace = {};
      require_memory({bytes}, fmt::format("the workspace of {}", recipe.symbol));
      const std::size_t wanted = (static_cast<std::size_t>(bytes > 0 ? bytes : 0) / 64 + 1) * 64;
      workspace.memory.reset(std::aligned_alloc(64, wanted));
      if (!workspace.memory) throw std::bad_alloc();
      workspace.bytes = static_cast<std::int64_t>(wanted);
    }
    return workspace.memory.get();
  }
};

LoadedHostKernel::LoadedHostKernel(const CompiledKernel& kernel) : impl_(std::make_unique<Impl>()) {
  impl_->recipe = kernel.recipe;
  const std::string& symbol = kernel.recipe.symbol;
  make_host_machine(detect_host());  // registers the target with LLVM
  llvm::orc::LLJITBuilder builder;
  // Kernels need no initialisers, so no platform support code has to be compiled for each.
  builder.setPlatformSetUp(llvm::orc::setUpInactivePlatform);
  builder.setJITTargetMachineBuilder(llvm::orc::JITTargetMachineBuilder(llvm::Triple("x86_64-unknown-linux-gnu")));
  impl_->jit = checked(builder.create(), symbol);
  check(impl_->jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(kernel.code, symbol)), symbol);
  impl_->entry = checked(impl_->jit->lookup(symbol), symbol).toPtr<nestor_host_kernel>();
}

LoadedHostKernel::~LoadedHostKernel() = default;
LoadedHostKernel::LoadedHostKernel(LoadedHostKernel&&) noexcept = default;

void LoadedHostKernel::run(const std::vector<void*>& pointers, const std::vector<std::int64_t>& strides, const Sizes& sizes,
                           const std::vector<double>& scalars, int threads) const {
  const LaunchRecipe& recipe = impl_->recipe;
  std::size_t indices = 0;
  for (const ArgumentSpec& argument : recipe.arguments) indices += argument.shape.size();
  if (pointers.size() != recipe.arguments.size() || strides.size() != indices || scalars.size() != recipe.scalars.size()) {
    user_error("kernel {} takes {} pointers, {} strides and {} scalars, not {}, {} and {}", recipe.symbol,
               recipe.arguments.size(), indices, recipe.scalars.size(), pointers.size(), strides.size(), scalars.size());
  }
  std::vector<std::int64_t> values;
  for (const std::string& name : recipe.sizes) {
    const auto found = sizes.find(name);
    const auto fixed = recipe.fixed_sizes.find(name);
    if (found == sizes.end() && fixed == recipe.fixed_sizes.end())
      user_error("kernel {} needs a value for the size {}", recipe.symbol, name);
    values.push_back(found != sizes.end() ? found->second : fixed->second);
    if (fixed != recipe.fixed_sizes.end() && values.back() != fixed->second) {
      user_error("kernel {} was compiled for {} = {}, not {}", recipe.symbol, name, fixed->second, values.back());
    }
  }
  const auto value_of = [&](const std::string& name) {
    for (std::size_t k = 0; k < recipe.sizes.size(); ++k) {
      if (recipe.sizes[k] == name) return values[k];
    }
    internal_error("the workspace of kernel {} depends on {}, which is no size", recipe.symbol, name);
  };
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  void* workspace = impl_->reserve(recipe.workspace_bytes.evaluate(value_of));
  impl_->entry(pointers.data(), strides.data(), values.data(), scalars.data(), workspace, pool_of(threads).services());
}

}  // namespace nestor
