// Uploading, poisoning, guarding and comparing the arguments on a device.
#include "autotune/gpu/gpu_memory.h"

#include "support/element_codec.h"
#include "support/error.h"
#include "support/system/available_memory.h"

#include <algorithm>
#include <cstring>

namespace nestor {
namespace {

constexpr std::size_t kZone = 64 << 10;
constexpr unsigned char kZoneByte = 0xa5;
constexpr std::size_t kAlignment = 256;
/// Outputs up to this size are fetched whole.
constexpr std::size_t kFetchWhole = 1 << 20;

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

std::uint32_t poison_word(ElementType type, std::uint32_t generation) {
  const std::uint32_t bits = poison_bits(type, generation);
  return size_in_bytes(type) == 4 ? bits : size_in_bytes(type) == 2 ? bits * 0x00010001u : bits * 0x01010101u;
}

/// Stretches of neighbouring elements of one tensor among the samples: first and one past the last.
std::vector<std::pair<std::int64_t, std::int64_t>> sampled_runs(const std::vector<OracleSample>& samples,
                                                                const std::string& tensor) {
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  for (const OracleSample& sample : samples) {
    if (sample.tensor != tensor) continue;
    if (runs.empty() || runs.back().second != sample.linear) {
      runs.emplace_back(sample.linear, sample.linear + 1);
    } else {
      ++runs.back().second;
    }
  }
  return runs;
}

}  // namespace

void require_workspace(const CudaDevice& device, std::int64_t bytes) {
  const std::string text = fmt::format("the kernel's workspace needs {} of memory on the GPU", bytes_text(bytes));
  const CudaIdentity& gpu = device.identity();
  // Never, or not now.
  if (bytes > gpu.memory_bytes) user_error("{}; {} has {}", text, gpu.name, bytes_text(gpu.memory_bytes));
  const auto free = static_cast<std::int64_t>(device.free_memory());
  if (bytes > free) throw LackOfResources(fmt::format("{}; {} has {} free", text, gpu.name, bytes_text(free)));
}

GuardedDeviceBuffer::GuardedDeviceBuffer(CudaDevicePtr device, std::size_t bytes, const CudaStream& stream)
    : memory_(std::move(device), 2 * kZone + round_up(bytes, kAlignment)), bytes_(bytes) {
  fill_zones(stream);
}

cuda::Address GuardedDeviceBuffer::address() const { return memory_.address() + kZone; }

void GuardedDeviceBuffer::fill_zones(const CudaStream& stream) const {
  stream.fill_bytes(memory_.address(), kZoneByte, kZone);
  stream.fill_bytes(address() + bytes_, kZoneByte, memory_.bytes() - kZone - bytes_);
}

bool GuardedDeviceBuffer::zones_intact(const CudaStream& stream) {
  const std::size_t behind = memory_.bytes() - kZone - bytes_;
  std::vector<unsigned char> zones(kZone + behind);
  stream.copy_to_host(zones.data(), memory_.address(), kZone);
  stream.copy_to_host(zones.data() + kZone, address() + bytes_, behind);
  stream.synchronise();
  const bool intact = std::all_of(zones.begin(), zones.end(), [](unsigned char byte) { return byte == kZoneByte; });
  if (!intact) fill_zones(stream);
  return intact;
}

void GuardedDeviceBuffer::fill(std::uint32_t pattern, const CudaStream& stream) const {
  stream.fill_words(address(), pattern, bytes_ / 4);
  const std::size_t whole = bytes_ / 4 * 4;
  if (whole < bytes_) stream.copy_to_device(address() + whole, &pattern, bytes_ - whole);
}

void GuardedDeviceBuffer::upload(const void* from, const CudaStream& stream) const {
  if (bytes_ > 0) stream.copy_to_device(address(), from, bytes_);
}

void GuardedDeviceBuffer::download(void* to, std::size_t offset, std::size_t bytes, const CudaStream& stream) const {
  stream.copy_to_host(to, address() + offset, bytes);
}

GpuMemory::GpuMemory(const GpuProblem& problem, std::size_t set, CudaDevicePtr device, const CudaStream& stream)
    : problem_(problem), set_(set), device_(std::move(device)), stream_(stream), tools_(device_) {
  std::size_t needed = 0;
  for (std::size_t k = 0; k < problem_.arguments.size(); ++k) needed += size_of(k) + 3 * kZone;
  if (const std::size_t free = device_->free_memory(); needed > free) {
    throw LackOfResources(fmt::format(
        "the arguments need {} of memory on the GPU; {} has {} free: choose smaller sizes, or end "
        "what else runs there",
        bytes_text(static_cast<std::int64_t>(needed)), device_->identity().name, bytes_text(static_cast<std::int64_t>(free))));
  }
  for (std::size_t k = 0; k < problem_.arguments.size(); ++k) {
    const GpuProblem::Argument& argument = problem_.arguments[k];
    buffers_.emplace_back(device_, size_of(k), stream_);
    digests_.push_back(0);
    if (argument.output) {
      HostTensor result{argument.name, tensor(k).type, tensor(k).shape, ByteBuffer(size_of(k))};
      results_.emplace(argument.name, std::move(result));
    } else {
      buffers_.back().upload(tensor(k).bytes.data(), stream_);
      digests_.back() = tools_.digest(buffers_.back().address(), static_cast<std::int64_t>(size_of(k)), stream_);
    }
  }
}

const HostTensor& GpuMemory::tensor(std::size_t argument) const {
  return problem_.data->tensors(set_).at(problem_.arguments[argument].name);
}

std::size_t GpuMemory::size_of(std::size_t argument) const {
  return static_cast<std::size_t>(tensor(argument).elements()) * size_in_bytes(tensor(argument).type);
}

void* GpuMemory::workspace(std::int64_t bytes) {
  if (bytes <= 0) return nullptr;
  const auto needed = static_cast<std::size_t>(bytes);
  if (!workspace_ || workspace_->bytes() != needed) {
    workspace_.reset();
    require_workspace(*device_, bytes);
    workspace_ = std::make_unique<GuardedDeviceBuffer>(device_, needed, stream_);
  }
  workspace_->fill(0xffffffffu, stream_);
  return workspace_->data();
}

void GpuMemory::poison_outputs() {
  ++generation_;
  for (std::size_t k = 0; k < buffers_.size(); ++k) {
    if (problem_.arguments[k].output) buffers_[k].fill(poison_word(tensor(k).type, generation_), stream_);
  }
}

std::string GpuMemory::find_damage() {
  std::string damage;
  for (std::size_t k = 0; k < buffers_.size(); ++k) {
    const GpuProblem::Argument& argument = problem_.arguments[k];
    if (!buffers_[k].zones_intact(stream_)) damage = fmt::format("memory around {} was written", argument.name);
    if (!argument.output) {
      if (tools_.digest(buffers_[k].address(), static_cast<std::int64_t>(size_of(k)), stream_) == digests_[k]) continue;
      damage = fmt::format("the input {} was written", argument.name);
      buffers_[k].upload(tensor(k).bytes.data(), stream_);
    } else if (argument.covered) {
      const ElementType type = tensor(k).type;
      const auto missing = tools_.find(buffers_[k].address(), tensor(k).elements(), static_cast<int>(size_in_bytes(type)),
                                       poison_bits(type, generation_), stream_);
      if (missing) damage = fmt::format("element {} of {} was not written", *missing, argument.name);
    }
  }
  if (workspace_ && !workspace_->zones_intact(stream_)) damage = "memory around the workspace was written";
  return damage;
}

void GpuMemory::fetch_samples() {
  for (std::size_t k = 0; k < buffers_.size(); ++k) {
    if (!problem_.arguments[k].output) continue;
    HostTensor& result = results_.at(problem_.arguments[k].name);
    if (size_of(k) <= kFetchWhole) {
      buffers_[k].download(result.bytes.data(), 0, size_of(k), stream_);
      continue;
    }
    const std::size_t width = size_in_bytes(result.type);
    for (const auto& [first, last] : sampled_runs(problem_.data->samples(set_).samples, result.name)) {
      const std::size_t offset = static_cast<std::size_t>(first) * width;
      buffers_[k].download(result.bytes.data() + offset, offset, static_cast<std::size_t>(last - first) * width, stream_);
    }
  }
  stream_.synchronise();
}

const HostTensors& GpuMemory::fetch(const std::vector<OutputPiece>& pieces) {
  for (std::size_t k = 0; k < buffers_.size(); ++k) {
    if (!problem_.arguments[k].output) continue;
    HostTensor& result = results_.at(problem_.arguments[k].name);
    const std::size_t width = size_in_bytes(result.type);
    for (const OutputPiece& piece : pieces) {
      if (piece.tensor != result.name) continue;
      const std::size_t offset = static_cast<std::size_t>(piece.first) * width;
      buffers_[k].download(result.bytes.data() + offset, offset, static_cast<std::size_t>(piece.count) * width, stream_);
    }
  }
  stream_.synchronise();
  return results_;
}

std::string GpuMemory::compare(double& error) {
  fetch_samples();
  std::string where;
  error = worst_error(problem_.data->samples(set_).samples, results_, &where, generation_);
  return error <= 1 ? "" : where;
}

}  // namespace nestor
