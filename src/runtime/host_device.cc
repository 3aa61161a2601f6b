// The host device: objects loaded into this process, run on the caller's OpenMP threads where it has some, else on threads of its own.
#include "db/devices/host_identity.h"
#include "nestor/host_abi.h"
#include "runtime/device.h"
#include "runtime/object_loader.h"
#include "runtime/workspace_pool.h"
#include "support/architecture.h"
#include "support/error.h"
#include "support/system/fork_count.h"
#include "support/threads/openmp_loops.h"
#include "support/threads/thread_pool.h"

#include <memory>
#include <mutex>

namespace nestor {
namespace {

// What all kernels of one host device share, in each process. Threads start with the first launch that needs them: many programs only look
// things up, and others have threads.
class HostResources {
 public:
  explicit HostResources(int threads) : threads_(threads), callers_(threads) {}

  /// Throws LackOfResources when the system gives no threads.
  const nestor_host_services* services() {
    if (const nestor_host_services* callers = callers_.services(); callers != nullptr) return callers;
    std::call_once(started_, [this] { pool_ = std::make_unique<ThreadPool>(threads_); });
    return pool_->services();
  }

  WorkspacePool workspaces;

 private:
  int threads_;
  OpenMpLoops callers_;
  std::once_flag started_;
  std::unique_ptr<ThreadPool> pool_;
};
using SharedResources = PerProcess<HostResources>;

class HostKernel : public LoadedKernel {
 public:
  HostKernel(std::shared_ptr<SharedResources> resources, const std::string& code, const std::string& symbol)
      : resources_(std::move(resources)),
        object_(LoadedObject::load(code)),
        entry_(reinterpret_cast<nestor_host_kernel>(object_->function(symbol))) {}

  void launch(const PreparedLaunch& launch, const LaunchOptions& options, const LaunchPlan& plan) const override {
    if (options.stream != nullptr) user_error("{}: a kernel of the host takes no stream", plan.title());
    HostResources& here = resources_->get();
    const WorkspacePool::Lease workspace(here.workspaces, launch.workspace_bytes);
    entry_(launch.pointers.data(), launch.strides.data(), launch.sizes.data(), launch.scalars.data(), workspace.memory(),
           here.services());
  }

 private:
  std::shared_ptr<SharedResources> resources_;
  std::shared_ptr<const LoadedObject> object_;
  nestor_host_kernel entry_;
};

class HostDevice : public Device {
 public:
  explicit HostDevice(int threads)
      : identity_(host_device(threads)), resources_(std::make_shared<SharedResources>([threads = identity_.units] {
          return std::make_unique<HostResources>(threads);
        })) {}

  const DeviceIdentity& identity() const override { return identity_; }
  std::string name() const override { return "host"; }

  std::shared_ptr<const LoadedKernel> load(const KernelRecord& kernel, const LaunchRecipe& recipe) const override {
    std::string why;
    if (recipe.target != "host") user_error("the kernel {} is for target \"{}\", not for the host", recipe.symbol, recipe.target);
    if (!can_run(kernel.architecture, "host", identity_.arch, &why))
      user_error("the kernel {} cannot run here: {}", recipe.symbol, why);
    return std::make_shared<HostKernel>(resources_, kernel.code, recipe.symbol);
  }

 private:
  DeviceIdentity identity_;
  std::shared_ptr<SharedResources> resources_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(int threads) { return std::make_unique<HostDevice>(threads); }

}  // namespace nestor
