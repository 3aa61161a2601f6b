// Devices by name, and which there are.
#include "autotune/target/target.h"

#include "autotune/workers/worker_process.h"
#include "codegen/host/host_backend.h"
#include "db/devices/cuda_identity.h"
#include "db/devices/host_identity.h"
#include "support/error.h"
#include "support/system/json_text.h"
#include "support/words/device_words.h"
#include "support/words/nearest_word.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace nestor {
namespace {

/// Long enough for a driver that wakes the devices first.
constexpr double kPatience_s = 60;
/// Newest compute capability that code generation knows; newer devices run its PTX.
constexpr int kNewestSm = 90;
constexpr int kOldestSm = 80;

/// The CUDA devices of this machine; `reason`: why there are none.
struct FoundGpus {
  std::vector<DeviceIdentity> devices;
  std::vector<GpuFacts> facts;
  std::string reason;
};

/// What the driver says, in this process.
nlohmann::json describe_devices() {
  nlohmann::json answer{{"devices", nlohmann::json::array()}, {"reason", ""}};
  std::string why;
  const CudaDriver* driver = CudaDriver::find(&why);
  answer["reason"] = why;
  for (int ordinal = 0; driver != nullptr && ordinal < driver->device_count(); ++ordinal) {
    const CudaIdentity gpu = CudaDevice::identify(ordinal);
    const DeviceIdentity identity = cuda_device_identity(gpu);
    answer["devices"].push_back({{"name", identity.name},
                                 {"arch", identity.arch},
                                 {"units", identity.units},
                                 {"details", identity.details},
                                 {"sm", gpu.sm},
                                 {"shared_limit", gpu.shared_bytes_per_block},
                                 {"memory", gpu.memory_bytes}});
  }
  return answer;
}

FoundGpus ask_driver() {
  WorkerProcess asker;
  asker.start(0, [](int socket) {
    try {
      send_message(socket, describe_devices());
    } catch (const std::exception& error) {
      send_message(socket, {{"devices", nlohmann::json::array()}, {"reason", error.what()}});
    }
  });
  asker.limit(kPatience_s);
  const Heard heard = asker.wait_and_hear();
  if (heard.kind == Heard::Kind::too_late)
    return {{}, {}, fmt::format("the CUDA driver does not answer within {:.0f} s", kPatience_s)};
  if (heard.kind == Heard::Kind::death) return {{}, {}, "asking the CUDA driver failed: the process was " + heard.death};
  FoundGpus found;
  found.reason = heard.message.at("reason");
  for (const auto& gpu : heard.message.at("devices")) {
    found.devices.push_back({"cuda", gpu.at("name"), gpu.at("arch"), gpu.at("units"), gpu.at("details")});
    found.facts.push_back({gpu.at("sm"), gpu.at("units"), gpu.at("shared_limit"), gpu.at("memory")});
  }
  return found;
}

/// All of `text` as a number of at least 0; else -1.
int number_in(std::string_view text) {
  int number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = !text.empty() && failure == std::errc() && end == text.data() + text.size();
  return whole && number >= 0 ? number : -1;
}

/// Asked once.
const FoundGpus& found_gpus() {
  static const FoundGpus found = ask_driver();
  return found;
}

/// What was meant by what is no target: also a GPU of this machine by its name.
std::string meant_target(std::string_view text) {
  const std::vector<std::string> known{"host", "cuda", "auto", "cuda:0", "cuda:1", "cuda/sm_80", "cuda/sm_90"};
  std::string meant = meant_device(text, known);
  if (!meant.empty() && !meant.ends_with("'cuda'?")) return meant;
  const std::vector<DeviceIdentity>& gpus = found_gpus().devices;
  constexpr std::size_t kShortest = 3;
  for (std::size_t k = 0; k < gpus.size() && text.size() >= kShortest; ++k) {
    if (contains_ignoring_case(gpus[k].name, text)) return fmt::format("; did you mean 'cuda:{}', {}?", k, gpus[k].name);
  }
  return meant;
}

}  // namespace

std::string Target::str() const {
  if (!is_gpu()) return "host";
  return fmt::format("cuda:{}{}", ordinal, sm > 0 ? fmt::format("/sm_{}", sm) : "");
}

Target target_from(std::string_view text, int count) {
  Target target;
  target.count = count;
  if (text == "host") return target;
  if (text.empty() || text == "auto") {
    target.kind = found_gpus().devices.empty() ? Target::Kind::host : Target::Kind::cuda;
    return target;
  }
  target.kind = Target::Kind::cuda;
  const std::string_view device = text.substr(0, text.find('/'));
  const int ordinal = device == "cuda" ? 0 : device.starts_with("cuda:") ? number_in(device.substr(5)) : -1;
  int sm = 0;
  if (device.size() < text.size()) {
    const std::string_view taken_for = text.substr(device.size() + 1);
    sm = taken_for.starts_with("sm_") ? number_in(taken_for.substr(3)) : -1;
    if (sm < kOldestSm || sm > kNewestSm) sm = -1;
  }
  if (ordinal < 0 || sm < 0) user_error("'{}' is no device: write host, cuda, cuda:1 or cuda/sm_80{}", text, meant_target(text));
  target.ordinal = ordinal;
  target.sm = sm;
  if (count < 1) user_error("{} devices cannot measure; at least 1 must", count);
  for (int k = 0; k < count; ++k) gpu_facts({Target::Kind::cuda, target.ordinal + k, 1, target.sm});
  return target;
}

DeviceIdentity device_identity(const Target& target, int threads) {
  if (!target.is_gpu()) return host_device(threads);
  const FoundGpus& found = found_gpus();
  if (found.devices.empty()) user_error("there is no CUDA device here: {}", found.reason);
  if (target.ordinal >= static_cast<int>(found.devices.size())) {
    user_error("there is no device {}: this machine has {} ('nestor devices' lists them)", target.str(),
               found.devices.size() == 1 ? "cuda:0 alone" : fmt::format("cuda:0 to cuda:{}", found.devices.size() - 1));
  }
  DeviceIdentity device = found.devices[target.ordinal];
  if (target.sm > 0 && target.sm < found.facts[target.ordinal].sm) device.arch = fmt::format("sm_{}", target.sm);
  return device;
}

NvptxTarget nvptx_target(const DeviceIdentity& device) {
  NvptxTarget target;
  target.keep_ir = false;
  const int sm = device.arch.starts_with("sm_") ? number_in(std::string_view(device.arch).substr(3)) : -1;
  if (sm >= kOldestSm) target.sm = std::min(sm, kNewestSm);
  const nlohmann::json details = json_or_discarded(device.details);
  const auto shared = details.is_object() ? details.find("shared_bytes_per_block") : details.end();
  if (details.is_object() && shared != details.end() && shared->is_number_integer() && *shared > 0) target.shared_limit = *shared;
  return target;
}

DeviceIdentity device_identity_host(int threads) { return host_device(threads); }

GpuFacts gpu_facts(const Target& target) {
  const DeviceIdentity device = device_identity(target);
  GpuFacts facts = found_gpus().facts[target.ordinal];
  if (facts.sm < kOldestSm) {
    user_error("{} has the compute capability {}.{}; GPU kernels need {}.{} or newer", device.name, facts.sm / 10, facts.sm % 10,
               kOldestSm / 10, kOldestSm % 10);
  }
  if (target.sm > facts.sm) {
    user_error("{} has the compute capability {}.{}: it cannot be taken for one of {}.{}", device.name, facts.sm / 10,
               facts.sm % 10, target.sm / 10, target.sm % 10);
  }
  facts.sm = std::min(target.sm > 0 ? target.sm : facts.sm, kNewestSm);
  return facts;
}

TileProgram target_program(const Schedule& schedule, bool is_gpu) {
  TileProgram program = build_tile_program(schedule);
  return is_gpu ? program : in_host_order(std::move(program));
}

}  // namespace nestor
