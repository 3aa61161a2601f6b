// Trial columns: all trials of a problem as columns of numbers, so that 10,000 of them are small.
#pragma once

#include "db/database.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace nestor {

/// {"id", "status", "ms", "seconds", "origin", "reason", "error", "compile", "assemble", "check", "measure": columns;
///  "statuses", "origins", "reasons": what their numbers mean; "parameters": {name: column of values, null where a trial has none};
///  "constant": {name: value}; "first": time of the first trial}. Times are milliseconds, `seconds` since the first trial.
/// `baseline_key`: trial_key() of the starting point; "" when it is not known.
nlohmann::json trial_columns(const std::vector<TrialRecord>& trials, const std::string& baseline_key);

/// One trial in full: id, status, reason, samples, steps as text, parameters, the report of its kernels.
nlohmann::json trial_in_full(const TrialRecord& trial);

/// "2025-01-31T12:00:00Z" as seconds since 1970; 0 for anything else.
std::int64_t seconds_of(const std::string& created);

}  // namespace nestor
