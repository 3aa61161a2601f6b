// Streams, events and graphs.
#include "device/cuda.h"

namespace nestor {
namespace {

// Releases a handle whose context may be lost already.
template <class Release>
void release(const CudaDevicePtr& device, Release&& call) noexcept {
  try {
    const ContextScope scope(*device);
    call(device->api());
  } catch (const DeviceError&) {  // the context is lost, and all that it had
  }
}

}  // namespace

CudaStream::CudaStream(CudaDevicePtr device) : device_(std::move(device)) {
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().stream_create(&handle_, cuda::kStreamNonBlocking), "cuStreamCreate");
}

CudaStream::~CudaStream() {
  release(device_, [&](const cuda::Api& api) { api.stream_destroy(handle_); });
}

void CudaStream::synchronise(std::string_view kernel) const {
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().stream_synchronize(handle_), "cuStreamSynchronize", kernel);
}

void CudaStream::copy_to_device(cuda::Address to, const void* from, std::size_t bytes) const {
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().copy_to_device_async(to, from, bytes, handle_), "cuMemcpyHtoDAsync");
}

void CudaStream::copy_to_host(void* to, cuda::Address from, std::size_t bytes) const {
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().copy_to_host_async(to, from, bytes, handle_), "cuMemcpyDtoHAsync");
}

void CudaStream::copy_on_device(cuda::Address to, cuda::Address from, std::size_t bytes) const {
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().copy_on_device_async(to, from, bytes, handle_), "cuMemcpyDtoDAsync");
}

void CudaStream::fill_bytes(cuda::Address at, unsigned char value, std::size_t bytes) const {
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().memset_d8_async(at, value, bytes, handle_), "cuMemsetD8Async");
}

void CudaStream::fill_words(cuda::Address at, std::uint32_t value, std::size_t words) const {
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().memset_d32_async(at, value, words, handle_), "cuMemsetD32Async");
}

void CudaStream::begin_capture() const {
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().stream_begin_capture(handle_, cuda::kCaptureThreadLocal), "cuStreamBeginCapture");
}

void CudaStream::abandon_capture() const noexcept {
  release(device_, [&](const cuda::Api& api) {
    cuda::Graph graph = nullptr;
    if (api.stream_end_capture(handle_, &graph) == cuda::kSuccess && graph != nullptr) api.graph_destroy(graph);
  });
}

CudaGraph CudaStream::end_capture() const {
  const ContextScope scope(*device_);
  cuda::Graph graph = nullptr;
  device_->driver().check(device_->api().stream_end_capture(handle_, &graph), "cuStreamEndCapture");
  return {device_, graph};
}

CudaGraph::CudaGraph(CudaDevicePtr device, cuda::Graph graph) : device_(std::move(device)) {
  const ContextScope scope(*device_);
  const auto result = device_->api().graph_instantiate(&exec_, graph, 0);
  device_->api().graph_destroy(graph);
  device_->driver().check(result, "cuGraphInstantiateWithFlags");
}

CudaGraph::~CudaGraph() {
  if (exec_ != nullptr) release(device_, [&](const cuda::Api& api) { api.graph_exec_destroy(exec_); });
}

void CudaGraph::launch(cuda::Stream stream) const {
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().graph_launch(exec_, stream), "cuGraphLaunch");
}

CudaEvent::CudaEvent(CudaDevicePtr device) : device_(std::move(device)) {
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().event_create(&handle_, 0), "cuEventCreate");
}

CudaEvent::~CudaEvent() {
  if (handle_ != nullptr) release(device_, [&](const cuda::Api& api) { api.event_destroy(handle_); });
}

void CudaEvent::record(cuda::Stream stream) const {
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().event_record(handle_, stream), "cuEventRecord");
}

void CudaEvent::synchronise(std::string_view kernel) const {
  const ContextScope scope(*device_);
  device_->driver().check(device_->api().event_synchronize(handle_), "cuEventSynchronize", kernel);
}

bool CudaEvent::done(std::string_view kernel) const {
  const ContextScope scope(*device_);
  const auto result = device_->api().event_query(handle_);
  if (result == cuda::kNotReady) return false;
  device_->driver().check(result, "cuEventQuery", kernel);
  return true;
}

double CudaEvent::elapsed_ms(const CudaEvent& start, const CudaEvent& end) {
  const ContextScope scope(*end.device_);
  float milliseconds = 0;
  end.device_->driver().check(end.device_->api().event_elapsed_time(&milliseconds, start.handle_, end.handle_),
                              "cuEventElapsedTime");
  return milliseconds;
}

}  // namespace nestor
