// Assembling, loading and launching.
#include "device/cuda_module.h"

#include "support/error.h"

#include <array>
#include <vector>

namespace nestor {
namespace {

constexpr int kFreeShared = 48 * 1024;  // bytes of dynamic shared memory that need no opt-in
constexpr int kPortableCluster = 8;     // blocks of a cluster that every device with clusters can run
constexpr std::size_t kLogBytes = 16 << 10;

/// Options of the driver's compiler with a place for its two logs.
class JitSettings {
 public:
  explicit JitSettings(const JitOptions& options) : info_(kLogBytes, '\0'), error_(kLogBytes, '\0') {
    add(cuda::kJitInfoLog, info_.data());
    add(cuda::kJitInfoLogBytes, reinterpret_cast<void*>(kLogBytes));
    add(cuda::kJitErrorLog, error_.data());
    add(cuda::kJitErrorLogBytes, reinterpret_cast<void*>(kLogBytes));
    add(cuda::kJitLogVerbose, reinterpret_cast<void*>(std::uintptr_t{1}));
    if (options.max_registers > 0)
      add(cuda::kJitMaxRegisters, reinterpret_cast<void*>(static_cast<std::uintptr_t>(options.max_registers)));
  }
  unsigned count() const { return count_; }
  int* options() { return options_.data(); }
  void** values() { return values_.data(); }
  std::string info() const { return text_of(info_); }
  /// Both logs, for a message.
  std::string all() const {
    const std::string error = text_of(error_), info = text_of(info_);
    return error + (error.empty() || info.empty() ? "" : "\n") + info;
  }

 private:
  /// The driver ends what it writes with a zero.
  static std::string text_of(const std::string& log) { return log.substr(0, log.find('\0')); }
  void add(int option, void* value) {
    options_[count_] = option;
    values_[count_++] = value;
  }
  std::string info_, error_;
  std::array<int, 8> options_{};
  std::array<void*, 8> values_{};
  unsigned count_ = 0;
};

/// The linker of one assembly, destroyed at the end.
struct Linker {
  const cuda::Api& api;
  cuda::LinkState state = nullptr;
  ~Linker() {
    if (state != nullptr) api.link_destroy(state);
  }
};

cuda::LaunchAttribute cluster_attribute(const std::array<unsigned, 3>& cluster) {
  cuda::LaunchAttribute attribute;
  attribute.id = cuda::kLaunchClusterDimension;
  for (std::size_t k = 0; k < 3; ++k) attribute.value.cluster[k] = cluster[k];
  return attribute;
}

/// The kernel may start before the one before it in the stream has ended.
cuda::LaunchAttribute programmatic_attribute() {
  cuda::LaunchAttribute attribute;
  attribute.id = cuda::kLaunchProgrammaticSerialization;
  attribute.value.allowed = 1;
  return attribute;
}

bool is_cubin(const std::string& code) { return code.starts_with("\177ELF"); }

}  // namespace

JitOutput assemble_with_driver(const CudaDevice& device, const std::string& ptx, const JitOptions& options) {
  const ContextScope scope(device);
  const cuda::Api& api = device.api();
  JitSettings settings(options);
  const auto check = [&](cuda::Result result, const char* call) {
    if (result != cuda::kSuccess) device.driver().fail(result, call, {}, settings.all());
  };
  Linker linker{api};
  check(api.link_create(settings.count(), settings.options(), settings.values(), &linker.state), "cuLinkCreate");
  check(api.link_add_data(linker.state, cuda::kJitInputPtx, const_cast<char*>(ptx.c_str()), ptx.size() + 1, "kernel.ptx", 0,
                          nullptr, nullptr),
        "cuLinkAddData");
  void* cubin = nullptr;
  std::size_t bytes = 0;
  check(api.link_complete(linker.state, &cubin, &bytes), "cuLinkComplete");
  return {std::string(static_cast<const char*>(cubin), bytes), settings.info()};
}

std::shared_ptr<const CudaModule> CudaModule::load(CudaDevicePtr device, const std::string& code, const JitOptions& options) {
  std::shared_ptr<CudaModule> module(new CudaModule(std::move(device)));
  const ContextScope scope(*module->device_);
  JitSettings settings(options);
  const auto result = module->device_->api().module_load_data_ex(&module->handle_, code.c_str(), settings.count(),
                                                                 settings.options(), settings.values());
  if (result != cuda::kSuccess) {
    module->handle_ = nullptr;
    module->device_->driver().fail(result, "cuModuleLoadDataEx", {}, settings.all());
  }
  if (!is_cubin(code)) module->log_ = settings.info();
  return module;
}

CudaModule::~CudaModule() {
  if (handle_ == nullptr) return;
  try {
    const ContextScope scope(*device_);
    device_->api().module_unload(handle_);
  } catch (const DeviceError&) {  // the context is lost, and the module with it
  }
}

CudaFunction CudaModule::function(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  auto found = functions_.find(name);
  if (found == functions_.end()) {
    const ContextScope scope(*device_);
    cuda::Function handle = nullptr;
    device_->driver().check(device_->api().module_get_function(&handle, handle_, name.c_str()), "cuModuleGetFunction", name);
    found = functions_.emplace(name, handle).first;
  }
  return {*device_, found->second, found->first};
}

FunctionReport CudaFunction::report() const {
  const ContextScope scope(*device_);
  const auto attribute = [&](cuda::FunctionAttribute which) {
    int value = 0;
    device_->driver().check(device_->api().func_get_attribute(&value, which, handle_), "cuFuncGetAttribute", *name_);
    return value;
  };
  return {attribute(cuda::kFunctionRegisters), attribute(cuda::kFunctionLocalBytes), attribute(cuda::kFunctionSharedBytes),
          attribute(cuda::kFunctionMaxThreads)};
}

int CudaFunction::blocks_per_unit(int threads, std::int64_t dynamic_shared_bytes) const {
  const ContextScope scope(*device_);
  int blocks = 0;
  device_->driver().check(
      device_->api().occupancy_blocks(&blocks, handle_, threads, static_cast<std::size_t>(dynamic_shared_bytes)),
      "cuOccupancyMaxActiveBlocksPerMultiprocessor", *name_);
  return blocks;
}

void CudaFunction::prepare(std::int64_t dynamic_shared_bytes, int cluster_blocks) const {
  const CudaIdentity& identity = device_->identity();
  const std::int64_t shared = dynamic_shared_bytes + report().shared_bytes;  // report() loads the code, if not done yet
  if (shared > identity.shared_bytes_per_block)
    user_error("kernel \"{}\" needs {} bytes of shared memory a block; {} ({}) has {}", *name_, shared, identity.name,
               identity.arch(), identity.shared_bytes_per_block);
  if (cluster_blocks > 1 && !identity.clusters)
    user_error("kernel \"{}\" runs in clusters of {} blocks; {} ({}) has no clusters", *name_, cluster_blocks, identity.name,
               identity.arch());
  const ContextScope scope(*device_);
  const auto set = [&](cuda::FunctionAttribute which, int value) {
    device_->driver().check(device_->api().func_set_attribute(handle_, which, value), "cuFuncSetAttribute", *name_);
  };
  if (dynamic_shared_bytes > kFreeShared) set(cuda::kFunctionMaxDynamicShared, static_cast<int>(dynamic_shared_bytes));
  if (cluster_blocks > kPortableCluster) set(cuda::kFunctionNonPortableCluster, 1);
}

int CudaFunction::clusters_at_once(const std::array<unsigned, 3>& block, unsigned cluster_blocks,
                                   unsigned dynamic_shared_bytes) const {
  const ContextScope scope(*device_);
  cuda::LaunchAttribute attribute = cluster_attribute({cluster_blocks, 1, 1});
  const cuda::LaunchConfig config{
      {cluster_blocks, 1, 1}, {block[0], block[1], block[2]}, dynamic_shared_bytes, nullptr, &attribute, 1};
  int clusters = 0;
  device_->driver().check(device_->api().occupancy_clusters(&clusters, handle_, &config), "cuOccupancyMaxActiveClusters", *name_);
  return clusters;
}

void CudaFunction::launch(const std::array<unsigned, 3>& grid, const LaunchForm& form, cuda::Stream stream, void** params) const {
  const cuda::Api& api = device_->api();
  const auto& block = form.block;
  const bool clusters = form.cluster != std::array{1U, 1U, 1U};
  if (!clusters && !form.programmatic) {
    device_->driver().check(api.launch_kernel(handle_, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                              form.dynamic_shared_bytes, stream, params, nullptr),
                            "cuLaunchKernel", *name_);
    return;
  }
  std::array<cuda::LaunchAttribute, 2> attributes;
  unsigned count = 0;
  if (clusters) attributes[count++] = cluster_attribute(form.cluster);
  if (form.programmatic) attributes[count++] = programmatic_attribute();
  const cuda::LaunchConfig config{
      {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, form.dynamic_shared_bytes, stream, attributes.data(), count};
  device_->driver().check(api.launch_kernel_ex(&config, handle_, params, nullptr), "cuLaunchKernelEx", *name_);
}

}  // namespace nestor
