// Steps of trials as they are stored, the nest that they begin with, and the problem that they are stored under.
#pragma once

#include "autotune/trial/trial_problem.h"
#include "db/database.h"
#include "poly/nest/nest.h"
#include "poly/schedule/schedule.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// Problem under which trials of `nest` at `sizes` are stored.
ProblemKey problem_key(const Nest& nest, const Sizes& sizes);

/// The nest whose schedules are searched and compiled: specialised sizes fixed, or all of them.
Nest nest_for_tuning(const Nest& nest, const Sizes& sizes, bool fix_all_sizes = false);

/// TrialRecord::steps: {"nest": digest of the nest as defined, "fixed": sizes fixed before the first step,
/// "steps": [...], "parameters": {...}} ("parameters": the candidate's coordinates in its space, absent for schedules made by hand).
nlohmann::json trial_steps_json(const Nest& nest, const Sizes& fixed, const std::vector<Step>& steps,
                                const std::map<std::string, std::int64_t>& parameters = {});

/// Those of a trial of `problem`.
nlohmann::json trial_steps_json(const TrialProblem& problem, const std::vector<Step>& steps,
                                const std::map<std::string, std::int64_t>& parameters = {});

/// Replays TrialRecord::steps (or a file of schedule_to_json, its nest fixed or not) onto the nest as defined. `sizes`
/// gives the specialised sizes when the JSON does not say which were fixed. Throws UserError when the file is for another
/// nest, or a step fails.
Schedule replay_trial_steps(const Nest& nest, const Sizes& sizes, const nlohmann::json& json);

}  // namespace nestor
