// Messages between the tuner and its worker processes: length-prefixed CBOR over a socket.
#pragma once

#include "autotune/workers/trial_stages.h"

#include <nlohmann/json.hpp>

#include <optional>

namespace nestor {

nlohmann::json job_to_json(const TrialJob& job);
TrialJob job_from_json(const nlohmann::json& json);
nlohmann::json outcome_to_json(const TrialOutcome& outcome);
TrialOutcome outcome_from_json(const nlohmann::json& json);

nlohmann::json compiled_to_json(const CompiledTrial& compiled);
CompiledTrial compiled_from_json(const nlohmann::json& json);

/// False when the other end is gone.
bool send_message(int socket, const nlohmann::json& message);
/// Blocks until a whole message is there; nothing when the other end is gone or sent what is no message.
std::optional<nlohmann::json> receive_message(int socket);

}  // namespace nestor
