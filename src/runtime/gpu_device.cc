// A GPU: kernels as modules of its driver, launched in the caller's streams.
#include "db/devices/cuda_identity.h"
#include "device/recipe_launcher.h"
#include "runtime/device.h"
#include "support/architecture.h"
#include "support/error.h"

#include <mutex>
#include <optional>

namespace nestor {
namespace {

/// What all kernels of one GPU share. The pool is made with the first kernel that needs a workspace, not in a launch.
class GpuResources {
 public:
  explicit GpuResources(CudaDevicePtr device) : device_(std::move(device)) {}
  const CudaDevicePtr& device() const { return device_; }
  const StreamMemoryPool& workspaces() {
    std::call_once(made_, [&] { pool_.emplace(device_); });
    return *pool_;
  }

 private:
  CudaDevicePtr device_;
  std::once_flag made_;
  std::optional<StreamMemoryPool> pool_;
};

class GpuKernel : public LoadedKernel {
 public:
  GpuKernel(std::shared_ptr<GpuResources> resources, std::shared_ptr<const CudaModule> module, const LaunchRecipe& recipe)
      : resources_(std::move(resources)), launcher_(std::move(module), recipe) {
    if (!recipe.workspace_bytes.is_constant(0)) workspaces_ = &resources_->workspaces();
  }

  void launch(const PreparedLaunch& launch, const LaunchOptions& options, const LaunchPlan& plan) const override {
    const CudaDevice& device = *resources_->device();
    const ContextScope scope(device);
    if (options.check_memory) check_places(launch, options, plan);
    std::optional<StreamMemoryPool::Lease> workspace;
    if (workspaces_ != nullptr) workspace.emplace(*workspaces_, static_cast<std::size_t>(launch.workspace_bytes), options.stream);
    LaunchValues values;
    values.pointers = launch.pointers;
    values.strides = launch.strides;
    values.sizes = std::span(launch.sizes).first(launcher_.size_names().size());
    values.scalars = launch.scalars;
    if (workspace) values.workspace = workspace->data();
    launcher_.launch(values, options.stream);
  }

 private:
  void check_places(const PreparedLaunch& launch, const LaunchOptions& options, const LaunchPlan& plan) const {
    const CudaDevice& device = *resources_->device();
    for (std::size_t k = 0; k < plan.tensor_count(); ++k) check_tensor(launch.pointers[k], launch.bytes[k], plan, k);
    if (options.stream == nullptr) return;
    cuda::Context context = nullptr;
    device.driver().check(device.api().stream_get_ctx(options.stream, &context), "cuStreamGetCtx");
    if (context != device.context())
      user_error("{}: the stream belongs to another device or context than cuda:{}", plan.title(), device.ordinal());
  }

  // One allocation as a rule; memory that is mapped piece by piece is followed from one piece to the next.
  void check_tensor(const void* data, std::uint64_t bytes, const LaunchPlan& plan, std::size_t k) const {
    const CudaDevice& device = *resources_->device();
    const auto begin = reinterpret_cast<cuda::Address>(data);
    for (cuda::Address at = begin; at < begin + bytes;) {
      const PointerPlace place = place_of(device, at);
      if (!place.on_device && at == begin)
        user_error("{}: tensor \"{}\" is not in the memory of a GPU", plan.title(), plan.tensor_name(k));
      if (!place.on_device)
        user_error("{}: tensor \"{}\" takes {} bytes, but its memory ends after {}", plan.title(), plan.tensor_name(k), bytes,
                   at - begin);
      if (place.ordinal != device.ordinal())
        user_error("{}: tensor \"{}\" is in the memory of cuda:{}, the kernel runs on cuda:{}", plan.title(), plan.tensor_name(k),
                   place.ordinal, device.ordinal());
      if (place.bytes == 0 || place.begin + place.bytes <= at) return;
      at = place.begin + place.bytes;
    }
  }

  std::shared_ptr<GpuResources> resources_;
  RecipeLauncher launcher_;
  const StreamMemoryPool* workspaces_ = nullptr;
};

class GpuDevice : public Device {
 public:
  explicit GpuDevice(int ordinal)
      : resources_(std::make_shared<GpuResources>(CudaDevice::open(ordinal))),
        identity_(cuda_device_identity(resources_->device()->identity())) {}

  const DeviceIdentity& identity() const override { return identity_; }
  std::string name() const override { return fmt::format("cuda:{}", resources_->device()->ordinal()); }

  std::shared_ptr<const LoadedKernel> load(const KernelRecord& kernel, const LaunchRecipe& recipe) const override {
    std::string why;
    if (recipe.target != "nvptx") user_error("the kernel {} is for target \"{}\", not for a GPU", kernel.hash, recipe.target);
    if (!can_run(kernel.architecture, identity_.kind, identity_.arch, &why))
      user_error("the kernel {} cannot run on {}: {}", kernel.hash, identity_.name, why);
    return std::make_shared<GpuKernel>(resources_, load_module(kernel), recipe);
  }

 private:
  std::shared_ptr<const CudaModule> load_module(const KernelRecord& kernel) const {
    try {
      return CudaModule::load(resources_->device(), kernel.code);
    } catch (const CudaError& error) {
      if (error.code() != cuda::kUnsupportedPtxVersion) throw;
      const int version = resources_->device()->driver().version();
      user_error("the CUDA driver ({}.{}) is too old for the kernel {}: {}", version / 1000, version % 1000 / 10, kernel.hash,
                 error.what());
    }
  }

  std::shared_ptr<GpuResources> resources_;
  DeviceIdentity identity_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(int ordinal) { return std::make_unique<GpuDevice>(ordinal); }

}  // namespace nestor
