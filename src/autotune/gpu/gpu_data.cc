// Inputs here, reference values in a process; they come back through a file in memory.
#include "autotune/gpu/gpu_data.h"

#include "autotune/tensors/argument_bytes.h"
#include "support/debug.h"
#include "support/error.h"
#include "support/system/available_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

namespace nestor {
namespace {

/// Arguments up to this size are made twice.
constexpr std::int64_t kCheapBytes = 32 << 20;

nlohmann::json to_json(const AffordableSamples& found) {
  const std::vector<OracleSample>& samples = found.samples;
  nlohmann::json json = nlohmann::json::array();
  for (auto first = samples.begin(); first != samples.end();) {
    const auto last =
        std::find_if(first, samples.end(), [&](const OracleSample& other) { return other.tensor != first->tensor; });
    nlohmann::json linear = nlohmann::json::array(), value = linear, bound = linear;
    for (auto sample = first; sample != last; ++sample) {
      linear.push_back(sample->linear);
      value.push_back(sample->value);
      bound.push_back(sample->bound);
    }
    json.push_back({{"tensor", first->tensor}, {"linear", linear}, {"value", value}, {"bound", bound}});
    first = last;
  }
  return {{"samples", json}, {"left_out", found.left_out}};
}

AffordableSamples samples_from(const nlohmann::json& json) {
  AffordableSamples found{{}, json.at("left_out").get<std::vector<std::string>>()};
  for (const nlohmann::json& of_tensor : json.at("samples")) {
    const auto tensor = of_tensor.at("tensor").get<std::string>();
    const nlohmann::json &linear = of_tensor.at("linear"), &value = of_tensor.at("value"), &bound = of_tensor.at("bound");
    for (std::size_t k = 0; k < linear.size(); ++k)
      found.samples.push_back({tensor, linear[k].get<std::int64_t>(), value[k].get<double>(), bound[k].get<double>()});
  }
  return found;
}

/// What went wrong, as a message: its kind and words.
nlohmann::json failure_in(const std::function<void()>& work) {
  try {
    work();
    return nlohmann::json::object();
  } catch (const LackOfResources& error) {
    return {{"lacks", error.what()}};
  } catch (const UserError& error) {
    return {{"refused", error.what()}};
  } catch (const std::exception& error) {
    return {{"failed", error.what()}};
  }
}

}  // namespace

int GpuData::sets_for(std::int64_t argument_bytes) { return argument_bytes <= kCheapBytes ? 2 : 1; }

GpuData::GpuData(const TrialProblem& tried, const MeasureOptions& options) {
  const DebugTimer timer("inputs");
  argument_bytes_ = nestor::argument_bytes(tried.definition, tried.sizes).all();
  for (int set = 0; set < sets_for(argument_bytes_); ++set)
    inputs_.push_back(make_inputs(tried.definition, tried.sizes, options.data_seed + static_cast<std::uint64_t>(set)));
  file_ = memfd_create("nestor-reference-values", MFD_CLOEXEC);
  if (file_ < 0) throw LackOfResources(fmt::format("cannot open a file in memory: {}; see 'ulimit -n'", std::strerror(errno)));
  process_.start(0, [&](int socket) {
    send_message(
        socket, failure_in([&] {
          const DebugTimer timer("reference values");
          nlohmann::json sets = nlohmann::json::array();
          for (std::size_t set = 0; set < inputs_.size(); ++set)
            sets.push_back(to_json(affordable_samples(tried.definition, tried.sizes, options.scalars, inputs_[set],
                                                      options.oracle_samples, options.data_seed + set, options.oracle_seconds)));
          const std::vector<std::uint8_t> bytes = nlohmann::json::to_cbor(sets);
          const auto keep = [&](std::size_t done) { return write(file_, bytes.data() + done, bytes.size() - done); };
          if (!transfer_all(bytes.size(), keep))
            throw LackOfResources(fmt::format("cannot keep reference values: {}", std::strerror(errno)));
        }));
  });
}

GpuData::~GpuData() {
  process_.end(true);
  if (file_ >= 0) close(file_);
}

bool GpuData::complete() {
  if (complete_) return true;
  const Heard heard = process_.hear();
  if (heard.kind == Heard::Kind::nothing) return false;
  if (heard.kind != Heard::Kind::message) {
    const std::string what = "the process that evaluates the definition " + heard.death;
    if (heard.outside) throw LackOfResources(what + ": most likely memory lacks; choose smaller sizes");
    internal_error("{}", what);
  }
  const auto says = [&](const char* kind) { return heard.message.contains(kind); };
  if (says("lacks")) throw LackOfResources(heard.message.at("lacks").get<std::string>());
  if (says("refused")) throw UserError(heard.message.at("refused").get<std::string>());
  if (says("failed")) throw InternalError(heard.message.at("failed").get<std::string>());
  process_.end(false);
  return complete_ = true;
}

const AffordableSamples& GpuData::samples(std::size_t set) const {
  if (samples_.empty()) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(std::max<off_t>(lseek(file_, 0, SEEK_END), 0)));
    const auto take = [&](std::size_t done) {
      return pread(file_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    };
    if (!transfer_all(bytes.size(), take)) internal_error("reference values cannot be read back: {}", std::strerror(errno));
    for (const nlohmann::json& found : nlohmann::json::from_cbor(bytes)) samples_.push_back(samples_from(found));
  }
  return samples_.at(set);
}

}  // namespace nestor
