// Messages between the tuner and its worker processes.
#pragma once

#include "autotune/workers/trial_stages.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace nestor {

/// What a worker is asked: a job, with its code once that is there.
struct TrialRequest {
  TrialJob job;
  std::optional<CompiledTrial> compiled{};
};

/// The worker can take jobs.
struct WorkerReady {};

/// The worker cannot start: the device's fault (DeviceError), that of what was asked for (UserError), or this machine lacks something (LackOfResources).
struct WorkerRefusal {
  enum class Fault : std::uint8_t { device, user, resources };
  std::string reason;
  Fault fault = Fault::device;
};

/// A trial that ended in this stage.
struct TrialEnd {
  TrialOutcome outcome;  ///< without its kernel, which the other side has
  bool lost = false;     ///< the worker must be replaced
};

/// What a worker says: WorkerReady or WorkerRefusal at first; then one of the others for each request.
using WorkerAnswer = std::variant<WorkerReady, WorkerRefusal, TrialEnd, CompiledTrial>;

nlohmann::json request_to_json(const TrialRequest& request);
TrialRequest request_from_json(const nlohmann::json& json);
nlohmann::json answer_to_json(const WorkerAnswer& answer);
/// Throws nlohmann::json::exception or InternalError for what is no answer.
WorkerAnswer answer_from_json(const nlohmann::json& json);

}  // namespace nestor
