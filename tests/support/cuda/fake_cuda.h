// A CUDA driver for tests without a GPU: device memory is host memory, launches are noted, errors come when asked for.
// Built as a shared library; a test points $NESTOR_LIBCUDA at it before the driver is first used (use_fake_cuda()).
//
// Modules are PTX texts of which the fake reads `.version` (8.0 at most), `.target` (sm_90 at most) and the `.entry` kernels
// with their parameters. A text without `.version` fails to compile, with a log.
#pragma once

#include "support/cuda/fake_tensor_map.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace nestor::testing {

struct FakeLaunch {
  std::string kernel;
  std::array<unsigned, 3> grid{}, block{}, cluster{1, 1, 1};
  unsigned shared_bytes = 0;
  bool programmatic = false;  ///< may start before the kernel before it has ended
  void* stream = nullptr;
  int device = 0;
  std::vector<std::uint64_t> params;         ///< each zero-extended; 0 for a tensor map
  std::map<int, FakeTensorMap> tensor_maps;  ///< by the parameter's number
};

struct FakeMemory {
  std::size_t bytes = 0;
  int device = 0;
};

/// The fake's state; what it answers can be changed at any time.
struct FakeCuda {
  // What it answers; first read from $FAKE_CUDA_VERSION, $FAKE_CUDA_DEVICES, $FAKE_CUDA_FAIL ("cuInit=999,cuMemAlloc_v2=2").
  int version = 12040;
  int devices = 2;
  std::size_t device_bytes = std::size_t{141} << 30;  ///< bytes of a device; at first $FAKE_CUDA_MEMORY
  std::size_t in_use = std::size_t{1} << 30;          ///< of them, by others; at first $FAKE_CUDA_IN_USE
  std::map<std::string, int, std::less<>> fail;       ///< entry point -> error it returns
  /// Runs when a kernel of that name is launched (or its graph is); memory can be used through its addresses.
  std::map<std::string, std::function<void(const FakeLaunch&)>, std::less<>> kernels;
  bool note_launches = true;  ///< false: launches allocate nothing

  // What happened.
  std::vector<FakeLaunch> launches;
  std::map<std::uint64_t, FakeMemory> memory;                       ///< not yet freed
  std::map<std::string, std::map<int, int>> function_attributes;    ///< set, by kernel
  int modules = 0, streams = 0, events = 0, graphs = 0, pools = 0;  ///< not yet destroyed
  int contexts = 0;                                                 ///< retained and not released
  int captures = 0;                                                 ///< streams being captured now
  int encoded_maps = 0;                                             ///< tensor maps made
  std::mutex mutex;

  /// Forgets failures, kernels and launches.
  void reset() {
    const std::lock_guard lock(mutex);
    version = 12040;
    device_bytes = std::size_t{141} << 30;
    in_use = std::size_t{1} << 30;
    devices = 2;
    fail.clear();
    kernels.clear();
    launches.clear();
    function_attributes.clear();
    note_launches = true;
    encoded_maps = 0;
  }
};

}  // namespace nestor::testing
