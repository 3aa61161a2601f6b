// The entry points of driver_api.h over host memory. Their signatures are checked against it.
#include "support/cuda/fake_cuda_parts.h"

#include <type_traits>

using namespace nestor::testing;

extern "C" {
#define FAKE(entry)        \
  const Call call(#entry); \
  if (call.failed != 0) return call.failed
#define NOT_IN_CAPTURE \
  if (state().captures > 0) return kIllegalCapture

__attribute__((visibility("default"))) FakeCuda* fake_cuda() { return &state(); }

#pragma GCC visibility push(default)
Result cuInit(unsigned) {
  FAKE(cuInit);
  return kSuccess;
}
Result cuDriverGetVersion(int* version) {
  FAKE(cuDriverGetVersion);
  *version = state().version;
  return kSuccess;
}
Result cuGetErrorName(Result error, const char** name) {
  static const std::map<int, const char*> names{
      {1, "CUDA_ERROR_INVALID_VALUE"},       {2, "CUDA_ERROR_OUT_OF_MEMORY"},     {201, "CUDA_ERROR_INVALID_CONTEXT"},
      {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"}, {218, "CUDA_ERROR_INVALID_PTX"},     {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
      {500, "CUDA_ERROR_NOT_FOUND"},         {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}};
  const auto found = names.find(error);
  *name = found == names.end() ? nullptr : found->second;
  return found == names.end() ? Result{kInvalidValue} : Result{kSuccess};
}
Result cuGetErrorString(Result error, const char** text) {
  *text = error == 700 ? "an illegal memory access was encountered" : "text of the fake driver";
  return kSuccess;
}
Result cuDeviceGetCount(int* count) {
  FAKE(cuDeviceGetCount);
  *count = state().devices;
  return kSuccess;
}
Result cuDeviceGet(Ordinal* device, int ordinal) {
  FAKE(cuDeviceGet);
  *device = ordinal;
  return kSuccess;
}
Result cuDeviceGetName(char* name, int length, Ordinal) {
  FAKE(cuDeviceGetName);
  std::snprintf(name, static_cast<std::size_t>(length), "Fake H200");
  return kSuccess;
}
Result cuDeviceGetAttribute(int* value, int attribute, Ordinal) {
  FAKE(cuDeviceGetAttribute);
  *value = attribute_of(attribute);
  return kSuccess;
}
Result cuDeviceTotalMem_v2(std::size_t* bytes, Ordinal) {
  FAKE(cuDeviceTotalMem_v2);
  *bytes = state().device_bytes;
  return kSuccess;
}
Result cuDeviceGetUuid_v2(Uuid* uuid, Ordinal device) {
  FAKE(cuDeviceGetUuid_v2);
  for (int k = 0; k < 16; ++k) uuid->bytes[k] = static_cast<unsigned char>(16 * device + k);
  return kSuccess;
}
Result cuDevicePrimaryCtxRetain(Context* out, Ordinal device) {
  FAKE(cuDevicePrimaryCtxRetain);
  ++state().contexts;
  *out = &contexts[device];
  return kSuccess;
}
Result cuDevicePrimaryCtxRelease_v2(Ordinal) {
  FAKE(cuDevicePrimaryCtxRelease_v2);
  --state().contexts;
  return kSuccess;
}
Result cuCtxGetCurrent(Context* out) {
  FAKE(cuCtxGetCurrent);
  *out = context();
  return kSuccess;
}
Result cuCtxSetCurrent(Context wanted) {
  FAKE(cuCtxSetCurrent);
  if (!current.empty()) current.pop_back();
  if (wanted != nullptr) current.push_back(static_cast<FakeContext*>(wanted));
  return kSuccess;
}
Result cuCtxPushCurrent_v2(Context wanted) {
  FAKE(cuCtxPushCurrent_v2);
  current.push_back(static_cast<FakeContext*>(wanted));
  return kSuccess;
}
Result cuCtxPopCurrent_v2(Context* out) {
  FAKE(cuCtxPopCurrent_v2);
  if (current.empty()) return kInvalidContext;
  *out = current.back();
  current.pop_back();
  return kSuccess;
}
Result cuCtxSynchronize() {
  FAKE(cuCtxSynchronize);
  NOT_IN_CAPTURE;
  return context() == nullptr ? Result{kInvalidContext} : Result{kSuccess};
}
Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  FAKE(cuMemGetInfo_v2);
  *total = state().device_bytes;
  *free = *total - std::min(*total, state().in_use);
  return kSuccess;
}
Result cuMemAlloc_v2(Address* address, std::size_t bytes) {
  FAKE(cuMemAlloc_v2);
  NOT_IN_CAPTURE;
  if (context() == nullptr) return kInvalidContext;
  return bytes == 0 ? Result{kInvalidValue} : allocate(address, bytes, context()->device);
}
Result cuMemFree_v2(Address address) {
  FAKE(cuMemFree_v2);
  return release(address);
}
Result cuMemPoolCreate(MemoryPool* pool, const MemoryPoolProps* props) {
  FAKE(cuMemPoolCreate);
  ++state().pools;
  *pool = new FakePool{props->device};
  return kSuccess;
}
Result cuMemPoolDestroy(MemoryPool pool) {
  FAKE(cuMemPoolDestroy);
  --state().pools;
  delete static_cast<FakePool*>(pool);
  return kSuccess;
}
Result cuMemPoolSetAttribute(MemoryPool, int attribute, void*) {
  FAKE(cuMemPoolSetAttribute);
  return attribute == kPoolReleaseThreshold ? Result{kSuccess} : Result{kInvalidValue};
}
Result cuMemAllocFromPoolAsync(Address* address, std::size_t bytes, MemoryPool pool, Stream stream) {
  FAKE(cuMemAllocFromPoolAsync);
  const Result result = allocate(address, bytes, static_cast<FakePool*>(pool)->device);
  FakeGraph* graph = capture_of(stream);
  if (result == kSuccess && graph != nullptr) graph->memory->blocks.push_back(*address);
  return result;
}
Result cuMemFreeAsync(Address address, Stream stream) {
  FAKE(cuMemFreeAsync);
  return capture_of(stream) != nullptr ? Result{kSuccess} : release(address);  // a graph keeps its memory
}
Result cuMemAllocHost_v2(void** memory, std::size_t bytes) {
  FAKE(cuMemAllocHost_v2);
  *memory = std::malloc(bytes);
  return kSuccess;
}
Result cuMemFreeHost(void* memory) {
  FAKE(cuMemFreeHost);
  std::free(memory);
  return kSuccess;
}
Result cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) {
  FAKE(cuMemcpyHtoD_v2);
  if (!inside(to, bytes)) return kInvalidValue;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return kSuccess;
}
Result cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) {
  FAKE(cuMemcpyDtoH_v2);
  if (!inside(from, bytes)) return kInvalidValue;
  std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  return kSuccess;
}
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, Stream) { return cuMemcpyHtoD_v2(to, from, bytes); }
Result cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, Stream) { return cuMemcpyDtoH_v2(to, from, bytes); }
Result cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, Stream) {
  return cuMemcpyHtoD_v2(to, reinterpret_cast<void*>(from), bytes);
}
Result cuMemsetD8Async(Address at, unsigned char value, std::size_t count, Stream) {
  FAKE(cuMemsetD8Async);
  if (!inside(at, count)) return kInvalidValue;
  std::memset(reinterpret_cast<void*>(at), value, count);
  return kSuccess;
}
Result cuMemsetD32Async(Address at, unsigned value, std::size_t count, Stream stream) {
  FAKE(cuMemsetD32Async);
  if (!inside(at, 4 * count)) return kInvalidValue;
  do_in(stream, [=](Stream) { std::fill_n(reinterpret_cast<unsigned*>(at), count, value); });
  return kSuccess;
}
Result cuPointerGetAttributes(unsigned count, int* attributes, void** data, Address address) {
  FAKE(cuPointerGetAttributes);
  const auto* memory = memory_at(address);
  for (unsigned k = 0; k < count && memory != nullptr; ++k) {
    if (attributes[k] == kPointerMemoryType) *static_cast<unsigned*>(data[k]) = kMemoryTypeDevice;
    if (attributes[k] == kPointerOrdinal) *static_cast<int*>(data[k]) = memory->second.device;
    if (attributes[k] == kPointerRangeStart) *static_cast<Address*>(data[k]) = memory->first;
    if (attributes[k] == kPointerRangeBytes) *static_cast<std::size_t*>(data[k]) = memory->second.bytes;
  }
  return kSuccess;
}
Result cuStreamCreate(Stream* stream, unsigned) {
  FAKE(cuStreamCreate);
  if (context() == nullptr) return kInvalidContext;
  ++state().streams;
  static unsigned long long id = kLegacyStreamId;
  std::unique_ptr<FakeStream> made;
  if (destroyed_streams.empty()) {
    made = std::make_unique<FakeStream>();
  } else {
    made = std::move(destroyed_streams.back());
    destroyed_streams.pop_back();
  }
  *made = {context()->device, ++id, nullptr};
  *stream = made.release();
  return kSuccess;
}
Result cuStreamDestroy_v2(Stream stream) {
  FAKE(cuStreamDestroy_v2);
  --state().streams;
  destroyed_streams.emplace_back(static_cast<FakeStream*>(stream));
  return kSuccess;
}
Result cuStreamSynchronize(Stream) {
  FAKE(cuStreamSynchronize);
  NOT_IN_CAPTURE;
  return kSuccess;
}
Result cuStreamGetCtx(Stream stream, Context* out) {
  FAKE(cuStreamGetCtx);
  *out = &contexts[static_cast<FakeStream*>(stream)->device];
  return kSuccess;
}
Result cuStreamGetId(Stream stream, unsigned long long* id) {
  FAKE(cuStreamGetId);
  *id = stream == nullptr ? kLegacyStreamId : static_cast<FakeStream*>(stream)->id;
  return kSuccess;
}
Result cuStreamIsCapturing(Stream stream, int* status) {
  FAKE(cuStreamIsCapturing);
  *status = capture_of(stream) != nullptr ? 1 : 0;
  return kSuccess;
}
Result cuStreamWaitEvent(Stream, Event, unsigned) {
  FAKE(cuStreamWaitEvent);
  return kSuccess;
}
Result cuStreamBeginCapture_v2(Stream stream, int) {
  FAKE(cuStreamBeginCapture_v2);
  ++state().captures;
  static_cast<FakeStream*>(stream)->captured = std::make_unique<FakeGraph>();
  return kSuccess;
}
Result cuStreamEndCapture(Stream stream, Graph* graph) {
  FAKE(cuStreamEndCapture);
  --state().captures;
  ++state().graphs;
  *graph = static_cast<FakeStream*>(stream)->captured.release();
  return kSuccess;
}
Result cuGraphInstantiateWithFlags(GraphExec* exec, Graph graph, unsigned long long) {
  FAKE(cuGraphInstantiateWithFlags);
  ++state().graphs;
  *exec = new FakeGraph(*static_cast<FakeGraph*>(graph));
  return kSuccess;
}
Result cuGraphLaunch(GraphExec exec, Stream stream) {
  FAKE(cuGraphLaunch);
  for (const auto& node : static_cast<FakeGraph*>(exec)->nodes) node(stream);
  return kSuccess;
}
Result cuGraphExecDestroy(GraphExec exec) {
  FAKE(cuGraphExecDestroy);
  --state().graphs;
  delete static_cast<FakeGraph*>(exec);
  return kSuccess;
}
Result cuGraphDestroy(Graph graph) {
  FAKE(cuGraphDestroy);
  --state().graphs;
  delete static_cast<FakeGraph*>(graph);
  return kSuccess;
}
Result cuEventCreate(Event* event, unsigned) {
  FAKE(cuEventCreate);
  ++state().events;
  *event = new FakeEvent;
  return kSuccess;
}
Result cuEventDestroy_v2(Event event) {
  FAKE(cuEventDestroy_v2);
  --state().events;
  delete static_cast<FakeEvent*>(event);
  return kSuccess;
}
Result cuEventRecord(Event event, Stream) {
  FAKE(cuEventRecord);
  static_cast<FakeEvent*>(event)->time = tick();
  return kSuccess;
}
Result cuEventQuery(Event) {
  FAKE(cuEventQuery);
  return kSuccess;
}
Result cuEventSynchronize(Event) {
  FAKE(cuEventSynchronize);
  return kSuccess;
}
Result cuEventElapsedTime(float* milliseconds, Event start, Event end) {
  FAKE(cuEventElapsedTime);
  *milliseconds = static_cast<float>(static_cast<FakeEvent*>(end)->time - static_cast<FakeEvent*>(start)->time);
  return kSuccess;
}
Result cuModuleLoadDataEx(Module* module, const void* image, unsigned count, int* options, void** values) {
  FAKE(cuModuleLoadDataEx);
  NOT_IN_CAPTURE;
  if (context() == nullptr) return kInvalidContext;
  auto made = std::make_unique<FakeModule>();
  if (const Result result = compile(static_cast<const char*>(image), count, options, values, *made); result != kSuccess)
    return result;
  ++state().modules;
  *module = made.release();
  return kSuccess;
}
Result cuModuleUnload(Module module) {
  FAKE(cuModuleUnload);
  --state().modules;
  delete static_cast<FakeModule*>(module);
  return kSuccess;
}
Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  FAKE(cuModuleGetFunction);
  auto& functions = static_cast<FakeModule*>(module)->functions;
  const auto found = functions.find(name);
  if (found == functions.end()) return kNotFound;
  *function = &found->second;
  return kSuccess;
}
Result cuLinkCreate_v2(unsigned count, int* options, void** values, LinkState* link) {
  FAKE(cuLinkCreate_v2);
  *link = new FakeLink{"\177ELF", std::vector<int>(options, options + count), std::vector<void*>(values, values + count)};
  return kSuccess;
}
Result cuLinkAddData_v2(LinkState link, int, void* data, std::size_t, const char*, unsigned, int*, void**) {
  FAKE(cuLinkAddData_v2);
  auto& made = *static_cast<FakeLink*>(link);
  made.image += static_cast<const char*>(data);
  FakeModule ignored;
  return compile(made.image.c_str(), static_cast<unsigned>(made.options.size()), made.options.data(), made.values.data(),
                 ignored);
}
Result cuLinkComplete(LinkState link, void** cubin, std::size_t* bytes) {
  FAKE(cuLinkComplete);
  auto& made = *static_cast<FakeLink*>(link);
  *cubin = made.image.data();
  *bytes = made.image.size();
  return kSuccess;
}
Result cuLinkDestroy(LinkState link) {
  FAKE(cuLinkDestroy);
  delete static_cast<FakeLink*>(link);
  return kSuccess;
}
Result cuFuncGetAttribute(int* value, int attribute, Function) {
  FAKE(cuFuncGetAttribute);
  *value = attribute == kFunctionRegisters ? 32 : attribute == kFunctionMaxThreads ? 1024 : 0;
  return kSuccess;
}
Result cuFuncSetAttribute(Function function, int attribute, int value) {
  FAKE(cuFuncSetAttribute);
  state().function_attributes[static_cast<FakeFunction*>(function)->name][attribute] = value;
  return kSuccess;
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function, int threads, std::size_t) {
  FAKE(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  *blocks = 2048 / threads;
  return kSuccess;
}
Result cuOccupancyMaxActiveClusters(int* clusters, Function, const LaunchConfig*) {
  FAKE(cuOccupancyMaxActiveClusters);
  *clusters = 8;
  return kSuccess;
}
Result cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                      unsigned block_z, unsigned shared_bytes, Stream stream, void** params, void**) {
  FAKE(cuLaunchKernel);
  return launch({{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream, nullptr, 0}, function, params);
}
Result cuLaunchKernelEx(const LaunchConfig* config, Function function, void** params, void**) {
  FAKE(cuLaunchKernelEx);
  return launch(*config, function, params);
}
#ifndef FAKE_CUDA_WITHOUT_OPTIONAL_ENTRY_POINTS
Result cuTensorMapEncodeTiled(TensorMap* map, int type, unsigned rank, void* address, const std::uint64_t* extents,
                              const std::uint64_t* byte_strides, const unsigned* box, const unsigned* element_strides,
                              int interleave, int swizzle, int l2_promotion, int fill) {
  FAKE(cuTensorMapEncodeTiled);
  FakeTensorMap made;
  if (reinterpret_cast<std::uintptr_t>(map) % 64 != 0 || interleave != kTensorMapNoInterleave || fill != kTensorMapFillZero ||
      !encode_fake_tensor_map(type, rank, reinterpret_cast<std::uint64_t>(address), extents, byte_strides, box, element_strides,
                              swizzle, l2_promotion, made))
    return kInvalidValue;
  ++state().encoded_maps;
  std::memcpy(map, &made, sizeof(made));
  return kSuccess;
}
#endif
#pragma GCC visibility pop
}  // extern "C"

#define NESTOR_CHECK_SIGNATURE(member, entry, parameters) static_assert(std::is_same_v<decltype(&entry), decltype(Api::member)>);
NESTOR_CUDA_ENTRY_POINTS(NESTOR_CHECK_SIGNATURE)
#ifndef FAKE_CUDA_WITHOUT_OPTIONAL_ENTRY_POINTS
NESTOR_CUDA_OPTIONAL_ENTRY_POINTS(NESTOR_CHECK_SIGNATURE)
#endif
