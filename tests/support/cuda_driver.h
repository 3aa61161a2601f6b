// A minimal loader of the CUDA driver for tests: libcuda.so.1 by dlopen, one context, modules from PTX, plain allocations.
#pragma once

#include "support/error.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace nestor::testing {

/// The driver and its first device. Calls that fail throw DeviceError with the call and the driver's name of the error.
class CudaDriver {
 public:
  /// Null, with the reason in `why`, when there is no driver or no device.
  static std::unique_ptr<CudaDriver> open(std::string& why) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      why = "libcuda.so.1 cannot be loaded";
      return nullptr;
    }
    std::unique_ptr<CudaDriver> driver(new CudaDriver(library));
    int count = 0;
    if (driver->init_(0) != 0 || driver->device_count_(&count) != 0 || count == 0) {
      why = "the CUDA driver sees no device";
      return nullptr;
    }
    driver->check(driver->device_get_(&driver->device_, 0), "cuDeviceGet");
    driver->check(driver->retain_(&driver->context_, driver->device_), "cuDevicePrimaryCtxRetain");
    driver->check(driver->set_current_(driver->context_), "cuCtxSetCurrent");
    return driver;
  }
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  /// Compute capability times ten.
  int sm() const {
    int major = 0, minor = 0;
    check(attribute_(&major, 75, device_), "cuDeviceGetAttribute");
    check(attribute_(&minor, 76, device_), "cuDeviceGetAttribute");
    return 10 * major + minor;
  }

  std::uint64_t allocate(std::size_t bytes) {
    std::uint64_t address = 0;
    check(allocate_(&address, bytes == 0 ? 1 : bytes), "cuMemAlloc");
    return address;
  }
  void release(std::uint64_t address) { check(free_(address), "cuMemFree"); }
  void upload(std::uint64_t address, const void* data, std::size_t bytes) {
    check(upload_(address, data, bytes), "cuMemcpyHtoD");
  }
  void download(void* data, std::uint64_t address, std::size_t bytes) { check(download_(data, address, bytes), "cuMemcpyDtoH"); }
  void synchronise() { check(synchronise_(), "cuCtxSynchronize"); }

  void* load_module(const std::string& ptx) {
    void* module = nullptr;
    check(load_(&module, ptx.c_str()), "cuModuleLoadData");
    return module;
  }
  void unload_module(void* module) { check(unload_(module), "cuModuleUnload"); }

  void launch(void* module, const std::string& symbol, unsigned blocks, unsigned threads, unsigned shared_bytes,
              std::vector<void*>& params) {
    void* function = nullptr;
    check(function_(&function, module, symbol.c_str()), "cuModuleGetFunction");
    constexpr int kMaxDynamicShared = 8;
    if (shared_bytes > 48 * 1024)
      check(set_attribute_(function, kMaxDynamicShared, static_cast<int>(shared_bytes)), "cuFuncSetAttribute");
    check(launch_(function, blocks, 1, 1, threads, 1, 1, shared_bytes, nullptr, params.data(), nullptr), "cuLaunchKernel");
  }

 private:
  explicit CudaDriver(void* library) : library_(library) {
    bind(init_, "cuInit");
    bind(error_name_, "cuGetErrorName");
    bind(device_count_, "cuDeviceGetCount");
    bind(device_get_, "cuDeviceGet");
    bind(attribute_, "cuDeviceGetAttribute");
    bind(retain_, "cuDevicePrimaryCtxRetain");
    bind(set_current_, "cuCtxSetCurrent");
    bind(synchronise_, "cuCtxSynchronize");
    bind(allocate_, "cuMemAlloc_v2");
    bind(free_, "cuMemFree_v2");
    bind(upload_, "cuMemcpyHtoD_v2");
    bind(download_, "cuMemcpyDtoH_v2");
    bind(load_, "cuModuleLoadData");
    bind(unload_, "cuModuleUnload");
    bind(function_, "cuModuleGetFunction");
    bind(set_attribute_, "cuFuncSetAttribute");
    bind(launch_, "cuLaunchKernel");
  }

  template <class F>
  void bind(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(library_, name));
    if (function == nullptr) throw DeviceError(std::string("libcuda.so.1 has no ") + name);
  }

  void check(int code, const char* call) const {
    if (code == 0) return;
    const char* name = nullptr;
    error_name_(code, &name);
    throw DeviceError(std::string(call) + " failed: " + (name != nullptr ? name : std::to_string(code)));
  }

  void* library_;
  int device_ = 0;
  void* context_ = nullptr;
  int (*init_)(unsigned) = nullptr;
  int (*error_name_)(int, const char**) = nullptr;
  int (*device_count_)(int*) = nullptr;
  int (*device_get_)(int*, int) = nullptr;
  int (*attribute_)(int*, int, int) = nullptr;
  int (*retain_)(void**, int) = nullptr;
  int (*set_current_)(void*) = nullptr;
  int (*synchronise_)() = nullptr;
  int (*allocate_)(std::uint64_t*, std::size_t) = nullptr;
  int (*free_)(std::uint64_t) = nullptr;
  int (*upload_)(std::uint64_t, const void*, std::size_t) = nullptr;
  int (*download_)(void*, std::uint64_t, std::size_t) = nullptr;
  int (*load_)(void**, const void*) = nullptr;
  int (*unload_)(void*) = nullptr;
  int (*function_)(void**, void*, const char*) = nullptr;
  int (*set_attribute_)(void*, int, int) = nullptr;
  int (*launch_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**) = nullptr;
};

}  // namespace nestor::testing
