// Looks among the loaded libraries.
#include "support/system/openmp_runtime.h"

#include "support/system/fork_count.h"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <string_view>

namespace nestor {
namespace {

constexpr std::array<std::string_view, 3> kNames{"libgomp", "libomp", "libiomp5"};

/// libgomp.so.1, libgomp-a34b3233.so.1
bool is_openmp(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const std::string_view known : kNames) {
    if (name.starts_with(known) && (name.substr(known.size()).starts_with(".so") || name.substr(known.size()).starts_with("-")))
      return true;
  }
  return false;
}

/// How many libraries have been loaded since the process began.
unsigned long long libraries_loaded() {
  unsigned long long count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        *static_cast<unsigned long long*>(data) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

std::string first_openmp_library() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        if (info->dlpi_name == nullptr || !is_openmp(info->dlpi_name)) return 0;
        *static_cast<std::string*>(data) = info->dlpi_name;
        return 1;
      },
      &path);
  return path;
}

/// Null unless the library has all that is needed. The handle is kept: the functions stay.
const OpenMpRuntime* load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  static OpenMpRuntime runtime;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  const bool whole = find("GOMP_parallel", runtime.parallel) && find("omp_get_thread_num", runtime.thread_number) &&
                     find("omp_get_max_threads", runtime.max_threads);
  return whole ? &runtime : nullptr;
}

}  // namespace

const OpenMpRuntime* openmp_runtime() {
  static std::atomic<const OpenMpRuntime*> found{nullptr};
  static std::atomic<unsigned long long> searched{0};
  static std::mutex searching;
  if (fork_count() > 0) return nullptr;
  if (const OpenMpRuntime* known = found.load(std::memory_order_acquire); known != nullptr) return known;
  const unsigned long long loaded = libraries_loaded();
  if (searched.load(std::memory_order_acquire) == loaded) return nullptr;
  const std::lock_guard lock(searching);
  if (found == nullptr) {
    if (const std::string path = first_openmp_library(); !path.empty()) found = load(path);
    searched = loaded;
  }
  return found;
}

}  // namespace nestor
