// Entry points of the CUDA driver that Nestor calls, as the CUDA driver API reference declares them (API 12.0). No CUDA
// header is needed to build, no CUDA library to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace nestor::cuda {

// Handles are opaque; addresses are numbers.
using Result = int;
using Ordinal = int;
using Address = std::uint64_t;
using Context = void*;
using Module = void*;
using Function = void*;
using Stream = void*;
using Event = void*;
using Graph = void*;
using GraphExec = void*;
using LinkState = void*;
using MemoryPool = void*;

/// CUlaunchAttribute with a cluster's dimensions, or a switch; the value is a union of 64 bytes.
struct LaunchAttribute {
  int id = 0;
  char padding[4] = {};
  union {
    char bytes[64];
    unsigned cluster[3];
    int allowed;
  } value = {};
};

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);

/// CUmemPoolProps: device memory of `device`.
struct MemoryPoolProps {
  int allocation_type = 1;  // pinned
  int handle_types = 0;
  int location_type = 1;  // device
  Ordinal device = 0;
  void* security = nullptr;
  std::size_t largest = 0;
  unsigned short usage = 0;
  unsigned char reserved[54] = {};
};
static_assert(sizeof(MemoryPoolProps) == 88);

/// CUtensorMap: opaque; the driver wants it 64-byte aligned.
struct alignas(64) TensorMap {
  std::uint64_t words[16];
};

struct Uuid {
  unsigned char bytes[16];
};

// Values of the driver's enumerations, by the names of the reference.
enum ResultCode : Result {
  kSuccess = 0,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
  kNotReady = 600,
};
enum DeviceAttribute : int {
  kMaxThreadsPerBlock = 1,
  kClockRate = 13,
  kMultiprocessorCount = 16,
  kPciBusId = 33,
  kPciDeviceId = 34,
  kMemoryClockRate = 36,
  kGlobalMemoryBusWidth = 37,
  kL2CacheSize = 38,
  kMaxThreadsPerMultiprocessor = 39,
  kPciDomainId = 50,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kSharedPerMultiprocessor = 81,
  kRegistersPerMultiprocessor = 82,
  kSharedPerBlockOptin = 97,
  kMemoryPools = 115,
  kClusterLaunch = 120,
};
enum FunctionAttribute : int {
  kFunctionMaxThreads = 0,
  kFunctionSharedBytes = 1,
  kFunctionLocalBytes = 3,
  kFunctionRegisters = 4,
  kFunctionMaxDynamicShared = 8,
  kFunctionNonPortableCluster = 14,
};
enum JitOption : int {
  kJitMaxRegisters = 0,
  kJitInfoLog = 3,
  kJitInfoLogBytes = 4,
  kJitErrorLog = 5,
  kJitErrorLogBytes = 6,
  kJitLogVerbose = 12,
};
enum PointerAttribute : int {
  kPointerMemoryType = 2,
  kPointerIsManaged = 8,
  kPointerOrdinal = 9,
  kPointerRangeStart = 11,
  kPointerRangeBytes = 12,
};
inline constexpr unsigned kMemoryTypeDevice = 2;
inline constexpr int kPoolReleaseThreshold = 4;
inline constexpr int kJitInputPtx = 1;
inline constexpr int kLaunchClusterDimension = 4;
inline constexpr int kLaunchProgrammaticSerialization = 6;
inline constexpr unsigned kStreamNonBlocking = 1;
enum TensorMapType : int { kTensorMapF16 = 6, kTensorMapF32 = 7, kTensorMapBf16 = 9 };
inline constexpr int kTensorMapNoInterleave = 0, kTensorMapL2Promotion256 = 3, kTensorMapFillZero = 0;
inline constexpr int kCaptureThreadLocal = 1;

// X(member, entry point, parameters): every one returns a Result.
#define NESTOR_CUDA_ENTRY_POINTS(X)                                                                                              \
  X(init, cuInit, (unsigned flags))                                                                                              \
  X(driver_get_version, cuDriverGetVersion, (int* version))                                                                      \
  X(get_error_name, cuGetErrorName, (Result error, const char** name))                                                           \
  X(get_error_string, cuGetErrorString, (Result error, const char** text))                                                       \
  X(device_get_count, cuDeviceGetCount, (int* count))                                                                            \
  X(device_get, cuDeviceGet, (Ordinal * device, int ordinal))                                                                    \
  X(device_get_name, cuDeviceGetName, (char* name, int length, Ordinal device))                                                  \
  X(device_get_attribute, cuDeviceGetAttribute, (int* value, int attribute, Ordinal device))                                     \
  X(device_total_mem, cuDeviceTotalMem_v2, (std::size_t* bytes, Ordinal device))                                                 \
  X(device_get_uuid, cuDeviceGetUuid_v2, (Uuid * uuid, Ordinal device))                                                          \
  X(primary_retain, cuDevicePrimaryCtxRetain, (Context * context, Ordinal device))                                               \
  X(primary_release, cuDevicePrimaryCtxRelease_v2, (Ordinal device))                                                             \
  X(ctx_get_current, cuCtxGetCurrent, (Context * context))                                                                       \
  X(ctx_set_current, cuCtxSetCurrent, (Context context))                                                                         \
  X(ctx_push, cuCtxPushCurrent_v2, (Context context))                                                                            \
  X(ctx_pop, cuCtxPopCurrent_v2, (Context * context))                                                                            \
  X(ctx_synchronize, cuCtxSynchronize, ())                                                                                       \
  X(mem_get_info, cuMemGetInfo_v2, (std::size_t* free, std::size_t* total))                                                      \
  X(mem_alloc, cuMemAlloc_v2, (Address * address, std::size_t bytes))                                                            \
  X(mem_free, cuMemFree_v2, (Address address))                                                                                   \
  X(mem_alloc_host, cuMemAllocHost_v2, (void** memory, std::size_t bytes))                                                       \
  X(mem_free_host, cuMemFreeHost, (void* memory))                                                                                \
  X(pool_create, cuMemPoolCreate, (MemoryPool * pool, const MemoryPoolProps* props))                                             \
  X(pool_destroy, cuMemPoolDestroy, (MemoryPool pool))                                                                           \
  X(pool_set_attribute, cuMemPoolSetAttribute, (MemoryPool pool, int attribute, void* value))                                    \
  X(pool_alloc_async, cuMemAllocFromPoolAsync, (Address * address, std::size_t bytes, MemoryPool pool, Stream stream))           \
  X(mem_free_async, cuMemFreeAsync, (Address address, Stream stream))                                                            \
  X(copy_to_device, cuMemcpyHtoD_v2, (Address to, const void* from, std::size_t bytes))                                          \
  X(copy_to_host, cuMemcpyDtoH_v2, (void* to, Address from, std::size_t bytes))                                                  \
  X(copy_to_device_async, cuMemcpyHtoDAsync_v2, (Address to, const void* from, std::size_t bytes, Stream stream))                \
  X(copy_to_host_async, cuMemcpyDtoHAsync_v2, (void* to, Address from, std::size_t bytes, Stream stream))                        \
  X(copy_on_device_async, cuMemcpyDtoDAsync_v2, (Address to, Address from, std::size_t bytes, Stream stream))                    \
  X(memset_d8_async, cuMemsetD8Async, (Address at, unsigned char value, std::size_t count, Stream stream))                       \
  X(memset_d32_async, cuMemsetD32Async, (Address at, unsigned value, std::size_t count, Stream stream))                          \
  X(pointer_get_attributes, cuPointerGetAttributes, (unsigned count, int* attributes, void** data, Address address))             \
  X(stream_create, cuStreamCreate, (Stream * stream, unsigned flags))                                                            \
  X(stream_destroy, cuStreamDestroy_v2, (Stream stream))                                                                         \
  X(stream_synchronize, cuStreamSynchronize, (Stream stream))                                                                    \
  X(stream_get_ctx, cuStreamGetCtx, (Stream stream, Context * context))                                                          \
  X(stream_get_id, cuStreamGetId, (Stream stream, unsigned long long* id))                                                       \
  X(stream_is_capturing, cuStreamIsCapturing, (Stream stream, int* status))                                                      \
  X(stream_wait_event, cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))                                          \
  X(stream_begin_capture, cuStreamBeginCapture_v2, (Stream stream, int mode))                                                    \
  X(stream_end_capture, cuStreamEndCapture, (Stream stream, Graph * graph))                                                      \
  X(graph_instantiate, cuGraphInstantiateWithFlags, (GraphExec * exec, Graph graph, unsigned long long flags))                   \
  X(graph_launch, cuGraphLaunch, (GraphExec exec, Stream stream))                                                                \
  X(graph_exec_destroy, cuGraphExecDestroy, (GraphExec exec))                                                                    \
  X(graph_destroy, cuGraphDestroy, (Graph graph))                                                                                \
  X(event_create, cuEventCreate, (Event * event, unsigned flags))                                                                \
  X(event_destroy, cuEventDestroy_v2, (Event event))                                                                             \
  X(event_record, cuEventRecord, (Event event, Stream stream))                                                                   \
  X(event_query, cuEventQuery, (Event event))                                                                                    \
  X(event_synchronize, cuEventSynchronize, (Event event))                                                                        \
  X(event_elapsed_time, cuEventElapsedTime, (float* milliseconds, Event start, Event end))                                       \
  X(module_load_data_ex, cuModuleLoadDataEx, (Module * module, const void* image, unsigned count, int* options, void** values))  \
  X(module_unload, cuModuleUnload, (Module module))                                                                              \
  X(module_get_function, cuModuleGetFunction, (Function * function, Module module, const char* name))                            \
  X(link_create, cuLinkCreate_v2, (unsigned count, int* options, void** values, LinkState* state))                               \
  X(link_add_data, cuLinkAddData_v2,                                                                                             \
    (LinkState state, int type, void* data, std::size_t bytes, const char* name, unsigned count, int* options, void** values))   \
  X(link_complete, cuLinkComplete, (LinkState state, void** cubin, std::size_t* bytes))                                          \
  X(link_destroy, cuLinkDestroy, (LinkState state))                                                                              \
  X(func_get_attribute, cuFuncGetAttribute, (int* value, int attribute, Function function))                                      \
  X(func_set_attribute, cuFuncSetAttribute, (Function function, int attribute, int value))                                       \
  X(occupancy_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                               \
    (int* blocks, Function function, int threads, std::size_t shared_bytes))                                                     \
  X(occupancy_clusters, cuOccupancyMaxActiveClusters, (int* clusters, Function function, const LaunchConfig* config))            \
  X(launch_kernel, cuLaunchKernel,                                                                                               \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, \
     unsigned shared_bytes, Stream stream, void** params, void** extra))                                                         \
  X(launch_kernel_ex, cuLaunchKernelEx, (const LaunchConfig* config, Function function, void** params, void** extra))

// The same for entry points that a driver may lack: nullptr then.
#define NESTOR_CUDA_OPTIONAL_ENTRY_POINTS(X)                                                                                   \
  X(tensor_map_encode_tiled, cuTensorMapEncodeTiled,                                                                           \
    (TensorMap * map, int type, unsigned rank, void* address, const std::uint64_t* extents, const std::uint64_t* byte_strides, \
     const unsigned* box, const unsigned* element_strides, int interleave, int swizzle, int l2_promotion, int fill))

/// The entry points as loaded.
struct Api {
#define NESTOR_CUDA_MEMBER(member, entry, parameters) std::add_pointer_t<Result parameters> member = nullptr;
  NESTOR_CUDA_ENTRY_POINTS(NESTOR_CUDA_MEMBER)
  NESTOR_CUDA_OPTIONAL_ENTRY_POINTS(NESTOR_CUDA_MEMBER)
#undef NESTOR_CUDA_MEMBER
};

}  // namespace nestor::cuda
