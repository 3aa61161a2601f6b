// Opens the driver library and words its errors.
#include "device/cuda.h"
#include "support/error.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

namespace nestor {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// "CUDA_ERROR_INVALID_VALUE (invalid argument)".
std::string error_text(const cuda::Api& api, cuda::Result result) {
  const char *name = nullptr, *text = nullptr;
  if (api.get_error_name(result, &name) != cuda::kSuccess || name == nullptr) return fmt::format("CUDA error {}", result);
  if (api.get_error_string(result, &text) != cuda::kSuccess || text == nullptr) return name;
  return fmt::format("{} ({})", name, text);
}

template <class F>
void bind(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(::dlsym(library, name));
}

// The name of the first entry point that is missing and that every driver must have, or nullptr.
const char* bind_all(void* library, cuda::Api& api) {
#define NESTOR_CUDA_BIND(member, entry, parameters) \
  bind(library, #entry, api.member);                \
  if (api.member == nullptr) return #entry;
  NESTOR_CUDA_ENTRY_POINTS(NESTOR_CUDA_BIND)
#undef NESTOR_CUDA_BIND
#define NESTOR_CUDA_BIND(member, entry, parameters) bind(library, #entry, api.member);
  NESTOR_CUDA_OPTIONAL_ENTRY_POINTS(NESTOR_CUDA_BIND)
#undef NESTOR_CUDA_BIND
  return nullptr;
}

}  // namespace

bool CudaError::context_lost() const {
  // ECC and NVLink faults, and what the reference says leaves the process in an inconsistent state.
  constexpr std::array kLost{214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719};
  return std::find(kLost.begin(), kLost.end(), code_) != kLost.end();
}

std::unique_ptr<const CudaDriver> CudaDriver::load(std::string& why) {
  const char* given = std::getenv("NESTOR_LIBCUDA");
  std::unique_ptr<CudaDriver> driver(new CudaDriver);
  why = driver->open(given != nullptr && *given != '\0' ? given : kLibrary);
  return why.empty() ? std::move(driver) : nullptr;
}

std::string CudaDriver::open(const char* file) {
  process_ = ::getpid();
  void* library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);  // never closed: the driver keeps threads of its own
  if (library == nullptr) return fmt::format("the CUDA driver cannot be loaded: {}", ::dlerror());
  bind(library, "cuDriverGetVersion", api_.driver_get_version);
  if (api_.driver_get_version == nullptr || api_.driver_get_version(&version_) != cuda::kSuccess)
    return fmt::format("{} is no CUDA driver: it does not tell its version", file);
  if (version_ < kOldestVersion)
    return fmt::format("the CUDA driver is too old: it has CUDA {}, Nestor needs {} or newer", version_text(version_),
                       version_text(kOldestVersion));
  if (const char* missing = bind_all(library, api_); missing != nullptr)
    return fmt::format("{} lacks the entry point {}", file, missing);
  auto result = api_.init(0);
  if (result != cuda::kSuccess && result != cuda::kNoDevice) return fmt::format("cuInit failed: {}", error_text(api_, result));
  if (result == cuda::kSuccess) result = api_.device_get_count(&devices_);
  if (result != cuda::kSuccess && result != cuda::kNoDevice)
    return fmt::format("cuDeviceGetCount failed: {}", error_text(api_, result));
  return devices_ > 0 ? "" : "the CUDA driver sees no device";
}

const CudaDriver* CudaDriver::find(std::string* why) {
  static std::mutex mutex;
  static const CudaDriver* loaded = nullptr;  // for ever: devices refer to it until the process ends
  const std::lock_guard lock(mutex);
  std::string reason;
  if (loaded == nullptr) loaded = load(reason).release();
  if (loaded != nullptr && loaded->process_ == ::getpid()) return loaded;
  if (loaded != nullptr) reason = "the CUDA driver was first used before this process was forked, and cannot be used after that";
  if (why != nullptr) *why = reason;
  return nullptr;
}

const CudaDriver& CudaDriver::get() {
  std::string why;
  const CudaDriver* driver = find(&why);
  if (driver == nullptr) user_error("no CUDA device here: {}", why);
  return *driver;
}

void CudaDriver::fail(cuda::Result result, const char* call, std::string_view kernel, std::string_view details) const {
  std::string message = fmt::format("{} failed", call);
  if (!kernel.empty()) message += fmt::format(" for kernel \"{}\"", kernel);
  message += ": " + error_text(api_, result);
  if (!details.empty()) message += fmt::format("\n{}", details);
  throw CudaError(message, result);
}

}  // namespace nestor
