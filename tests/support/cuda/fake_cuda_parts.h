// The inside of the fake driver: its objects, and what several entry points share. Included by fake_cuda.cc alone.
#pragma once

#include "device/driver_api.h"
#include "support/cuda/fake_cuda.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <regex>
#include <sstream>
#include <utility>

namespace nestor::testing {

using namespace nestor::cuda;

inline constexpr unsigned long long kLegacyStreamId = 1;
enum : int { kInvalidValue = 1, kInvalidContext = 201, kNotFound = 500, kIllegalCapture = 900 };

struct FakeContext {
  int device;
};
struct FakeFunction {
  std::string name;
  std::vector<std::size_t> params;  // bytes each
};
struct FakeModule {
  std::map<std::string, FakeFunction, std::less<>> functions;
};
struct FakeEvent {
  double time = 0;
};
struct FakePool {
  int device;
};
struct FakeLink {
  std::string image;
  std::vector<int> options;
  std::vector<void*> values;
};

inline FakeCuda& state() {
  static FakeCuda& fake = [&]() -> FakeCuda& {
    static FakeCuda made;
    if (const char* version = std::getenv("FAKE_CUDA_VERSION")) made.version = std::atoi(version);
    if (const char* devices = std::getenv("FAKE_CUDA_DEVICES")) made.devices = std::atoi(devices);
    if (const char* memory = std::getenv("FAKE_CUDA_MEMORY")) made.device_bytes = std::strtoull(memory, nullptr, 10);
    if (const char* in_use = std::getenv("FAKE_CUDA_IN_USE")) made.in_use = std::strtoull(in_use, nullptr, 10);
    std::istringstream failures(std::getenv("FAKE_CUDA_FAIL") != nullptr ? std::getenv("FAKE_CUDA_FAIL") : "");
    for (std::string item; std::getline(failures, item, ',');) {
      const auto at = item.find('=');
      made.fail[item.substr(0, at)] = std::atoi(item.c_str() + at + 1);
    }
    return made;
  }();
  return fake;
}

inline constexpr int kMostDevices = 8;
inline FakeContext contexts[kMostDevices] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
inline thread_local std::vector<FakeContext*> current;

inline FakeContext* context() { return current.empty() ? nullptr : current.back(); }

/// Holds the lock during a call; `failed` is what the call is told to return instead of working.
struct Call {
  explicit Call(const char* name) : lock(state().mutex) {
    const auto found = state().fail.find(name);
    if (found != state().fail.end()) failed = found->second;
  }
  std::lock_guard<std::mutex> lock;
  int failed = 0;
};

inline Result allocate(Address* address, std::size_t bytes, int device) {
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory == nullptr) return kOutOfMemory;
  std::memset(memory, 0xcb, bytes);
  *address = reinterpret_cast<Address>(memory);
  state().memory[*address] = FakeMemory{bytes, device};
  return kSuccess;
}

inline Result release(Address address) {
  if (state().memory.erase(address) == 0) return kInvalidValue;
  std::free(reinterpret_cast<void*>(address));
  return kSuccess;
}

struct FakeGraphMemory {
  std::vector<Address> blocks;
  ~FakeGraphMemory() { std::for_each(blocks.begin(), blocks.end(), release); }
};
struct FakeGraph {
  std::vector<std::function<void(Stream)>> nodes;
  std::shared_ptr<FakeGraphMemory> memory = std::make_shared<FakeGraphMemory>();  // lives as long as what was made of it
};
struct FakeStream {
  int device = 0;
  unsigned long long id = 0;            // never used again
  std::unique_ptr<FakeGraph> captured;  // while being captured
};

inline std::vector<std::unique_ptr<FakeStream>> destroyed_streams;  // whose handles come again, as the driver's may

/// The graph that a stream is captured into, or nullptr.
inline FakeGraph* capture_of(Stream stream) {
  return stream == nullptr ? nullptr : static_cast<FakeStream*>(stream)->captured.get();
}

/// Does `work` now, or when the graph that is being captured is launched.
template <class Work>
void do_in(Stream stream, Work&& work) {
  if (FakeGraph* graph = capture_of(stream); graph != nullptr) {
    graph->nodes.emplace_back(std::forward<Work>(work));
  } else {
    work(stream);
  }
}

inline const std::pair<const std::uint64_t, FakeMemory>* memory_at(Address address) {
  auto found = state().memory.upper_bound(address);
  if (found == state().memory.begin()) return nullptr;
  --found;
  return address < found->first + found->second.bytes ? &*found : nullptr;
}

inline bool inside(Address address, std::size_t bytes) {
  const auto* memory = memory_at(address);
  return memory != nullptr && address + bytes <= memory->first + memory->second.bytes;
}

inline void write_log(unsigned count, const int* options, void** values, int which, const std::string& text) {
  for (unsigned k = 0; k < count; ++k) {
    if (options[k] != which) continue;
    for (unsigned n = 0; n < count; ++n) {
      if (options[n] != which + 1) continue;
      std::snprintf(static_cast<char*>(values[k]), reinterpret_cast<std::size_t>(values[n]), "%s", text.c_str());
    }
  }
}

inline std::size_t param_bytes(const std::string& type, const std::string& count) {
  if (!count.empty()) return std::stoul(count);  // an array is of bytes
  return type == "u16" || type == "b16" || type == "f16" ? 2 : type == "u64" || type == "b64" ? 8 : 4;
}

inline Result compile(const char* image, unsigned count, int* options, void** values, FakeModule& module) {
  const std::string text = std::strncmp(image, "\177ELF", 4) == 0 ? image + 4 : image;
  std::smatch match;
  const auto error = [&](Result result, const char* log) {
    write_log(count, options, values, kJitErrorLog, log);
    return result;
  };
  static const std::regex version(R"(\.version (\d+)\.(\d+))"), target(R"(\.target sm_(\d+))");
  static const std::regex entry(R"(\.entry (\w+)\s*\(([^)]*)\))"),
      param(R"(\.param (?:\.align \d+ )?\.(\w+) *\w*(?:\[(\d+)\])?)");
  if (!std::regex_search(text, match, version)) return error(kInvalidPtx, "ptxas fatal: Missing .version directive");
  if (std::stoi(match[1]) > 8) return error(kUnsupportedPtxVersion, "ptxas fatal: Unsupported .version");
  if (!std::regex_search(text, match, target) || std::stoi(match[1]) > 90)
    return error(kNoBinaryForGpu, "ptxas fatal: SM version is not supported by this device");
  for (std::sregex_iterator at(text.begin(), text.end(), entry), end; at != end; ++at) {
    FakeFunction function{(*at)[1], {}};
    const std::string params = (*at)[2];
    for (std::sregex_iterator p(params.begin(), params.end(), param); p != end; ++p)
      function.params.push_back(param_bytes((*p)[1], (*p)[2]));
    module.functions[function.name] = function;
  }
  write_log(count, options, values, kJitInfoLog, "info: Used 32 registers, 0 bytes spill stores");
  return kSuccess;
}

inline void run(const FakeLaunch& launch) {
  const auto kernel = state().kernels.find(launch.kernel);
  if (kernel != state().kernels.end()) kernel->second(launch);
  state().launches.push_back(launch);
}

inline Result launch(const LaunchConfig& config, Function handle, void** params) {
  if (context() == nullptr) return kInvalidContext;
  for (unsigned size : config.grid)
    if (size == 0) return kInvalidValue;
  if (!state().note_launches) return kSuccess;
  const auto& function = *static_cast<FakeFunction*>(handle);
  FakeLaunch noted;
  noted.kernel = function.name;
  std::copy_n(config.grid, 3, noted.grid.begin());
  std::copy_n(config.block, 3, noted.block.begin());
  for (unsigned k = 0; k < config.attribute_count; ++k) {
    if (config.attributes[k].id == kLaunchClusterDimension)
      std::copy_n(config.attributes[k].value.cluster, 3, noted.cluster.begin());
    if (config.attributes[k].id == kLaunchProgrammaticSerialization) noted.programmatic = config.attributes[k].value.allowed != 0;
  }
  noted.shared_bytes = config.shared_bytes;
  noted.stream = config.stream;
  noted.device = context()->device;
  for (std::size_t k = 0; k < function.params.size(); ++k) {
    std::uint64_t bits = 0;
    if (function.params[k] == sizeof(TensorMap)) {
      std::memcpy(&noted.tensor_maps[static_cast<int>(k)], params[k], sizeof(FakeTensorMap));
    } else {
      std::memcpy(&bits, params[k], function.params[k]);
    }
    noted.params.push_back(bits);
  }
  do_in(config.stream, [noted](Stream stream) mutable {
    noted.stream = stream;
    run(noted);
  });
  return kSuccess;
}

inline int attribute_of(int attribute) {
  switch (attribute) {
    case kMaxThreadsPerBlock:
      return 1024;
    case kClockRate:
      return 1980000;
    case kMultiprocessorCount:
      return 132;
    case kMemoryClockRate:
      return 3201000;
    case kGlobalMemoryBusWidth:
      return 6144;
    case kL2CacheSize:
      return 60 << 20;
    case kMaxThreadsPerMultiprocessor:
      return 2048;
    case kCapabilityMajor:
      return 9;
    case kCapabilityMinor:
      return 0;
    case kSharedPerMultiprocessor:
      return 233472;
    case kRegistersPerMultiprocessor:
      return 65536;
    case kSharedPerBlockOptin:
      return 232448;
    case kMemoryPools:
    case kClusterLaunch:
      return 1;
    default:
      return 0;
  }
}

inline double tick() {
  static double now = 0;
  return now += 0.25;
}

}  // namespace nestor::testing
