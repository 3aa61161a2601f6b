// Stored steps and parameters in today's words: records keep the spelling of the program that wrote them.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace nestor {

/// TrialRecord::steps as this program would write it: steps and parameters by their names of today. What is no such object, or has a step
/// that cannot be read, stays as it is.
nlohmann::json current_trial_steps(nlohmann::json stored);

/// One text for all spellings of the same steps on the same nest and sizes: parameters left out, steps that set knobs in the order of the
/// table. Two trials with one key are the same candidate.
std::string trial_key(nlohmann::json stored);

}  // namespace nestor
