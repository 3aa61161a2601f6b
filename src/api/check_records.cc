// One process a record: the parent stores what the children find.
#include "api/check_records.h"

#include "autotune/target/measure_options.h"
#include "autotune/target/target.h"
#include "autotune/trial/trial_steps.h"
#include "autotune/workers/worker_process.h"
#include "codegen/gpu/backend.h"
#include "codegen/host/host_backend.h"
#include "db/records/record.h"
#include "poly/nest/nest_json.h"
#include "support/error.h"
#include "support/system/available_memory.h"

#include <algorithm>

namespace nestor {
namespace {

using nlohmann::json;

/// Compiles the steps for the record's device. Throws UserError where they are refused.
CompiledKernel compiled_today(const Database::Origin& origin, const TrialRecord& trial) {
  const Nest nest = nest_from_json(json::parse(origin.nest_json));
  const Schedule schedule = replay_trial_steps(nest, origin.problem.sizes, json::parse(trial.steps));
  const bool is_host = origin.device.kind == "host";
  const TileProgram program = target_program(schedule, !is_host);
  if (is_host) return compile_host(program, detect_host()).kernel;
  return compile_nvptx(program, nvptx_target(origin.device)).kernel;
}

bool gives_stored_code(const Database::Origin& origin, const TrialRecord& trial) {
  try {
    const CompiledKernel today = compiled_today(origin, trial);
    return today.architecture == trial.kernel->architecture && today.code == trial.kernel->code &&
           recipe_to_json(today.recipe) == json::parse(trial.kernel->recipe);
  } catch (const Error&) {
    return false;
  }
}

/// A record whose code is not run, for the reason `why`. The code that its steps give here is, and what that did counts.
void take_fresh_measurement(Verification& verification, const std::string& why, RecordCheck& check) {
  if (!verification.measured || !verification.measured->kernel) {
    check.reason = "there is no such device here, and " + why;
    return;
  }
  check.result = RecordCheck::Result::passed;
  check.same_code = true;
  check.measured = std::move(verification.measured);
  check.device = verification.device;
}

/// What is wrong with the record or its kernel as they are stored; "" for nothing.
std::string damage_of(const Database& database, std::int64_t id, bool with_kernel) {
  try {
    if (!database.trial(id, with_kernel)) return fmt::format("there is no trial {} any more", id);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

RecordCheck damaged_check(std::int64_t trial, const std::string& damage) {
  RecordCheck check;
  check.trial = trial;
  check.result = RecordCheck::Result::damaged;
  check.reason = damage + ": measure it again (nestor tune), or import a sound copy";
  return check;
}

RecordCheck check_one(const std::string& path, std::int64_t id, const MeasureOptions& options) {
  const Database database = Database::open(path, {.read_only = true});
  RecordCheck check;
  check.trial = id;
  // Damage says nothing of what was measured. Without sound steps there is nothing to check; without sound code they give it again.
  if (const std::string damage = damage_of(database, id, false); !damage.empty()) return damaged_check(id, damage);
  const std::string lost_code = damage_of(database, id, true);
  Verification verification = lost_code.empty() ? verify_trial(database, id, options) : verify_steps(database, id, options);
  check.findings = verification.findings;
  const auto failed =
      std::find_if(check.findings.begin(), check.findings.end(), [](const Finding& finding) { return finding.failed(); });
  if (failed != check.findings.end()) {
    check.result = RecordCheck::Result::failed;
    check.status = failed->status;
    check.reason = fmt::format("{}: {}", to_string(failed->check), failed->detail);
    return check;
  }
  if (!lost_code.empty() || !database.trial(id).value().trusted) {
    take_fresh_measurement(verification, lost_code.empty() ? "nobody trusted vouches for its code" : lost_code, check);
    return check;
  }
  const auto stored = std::find_if(check.findings.begin(), check.findings.end(),
                                   [](const Finding& finding) { return finding.check == Check::stored_kernel; });
  const bool ran = stored != check.findings.end() && stored->result == Finding::Result::passed;
  check.result = ran ? RecordCheck::Result::passed : RecordCheck::Result::not_run;
  if (!ran) check.reason = stored == check.findings.end() ? "there is no such device here" : stored->detail;
  check.same_code = gives_stored_code(database.origin(id).value(), database.trial(id).value());
  return check;
}

/// A measurement as one line of an export: only its device and what was measured count.
std::string measured_to_line(const RecordCheck& check) {
  Record record{check.device, {"measured", "", "measured", {}}, "", *check.measured, false};
  normalise(record);
  return record_to_line(record);
}

json check_to_json(const RecordCheck& check) {
  json findings = json::array();
  for (const Finding& finding : check.findings)
    findings.push_back({static_cast<int>(finding.check), static_cast<int>(finding.result), finding.detail});
  return {{"result", static_cast<int>(check.result)},
          {"same_code", check.same_code},
          {"status", to_string(check.status)},
          {"reason", check.reason},
          {"measured", check.measured ? json(measured_to_line(check)) : json()},
          {"findings", findings}};
}

RecordCheck check_from_json(std::int64_t trial, const json& message) {
  RecordCheck check;
  check.trial = trial;
  check.result = static_cast<RecordCheck::Result>(message.at("result").get<int>());
  check.same_code = message.at("same_code");
  check.status = trial_status_from(message.at("status").get<std::string>()).value();
  check.reason = message.at("reason");
  if (message.at("measured").is_string()) {
    Record measured = record_line_from(message.at("measured").get<std::string>()).record.value();
    check.measured = std::move(measured.trial);
    check.device = std::move(measured.device);
  }
  for (const json& finding : message.at("findings")) {
    check.findings.push_back(
        {static_cast<Check>(finding.at(0).get<int>()), static_cast<Finding::Result>(finding.at(1).get<int>()), finding.at(2)});
  }
  return check;
}

RecordCheck failed_check(std::int64_t trial, TrialStatus status, const std::string& reason) {
  RecordCheck check;
  check.trial = trial;
  check.result = RecordCheck::Result::failed;
  check.status = status;
  check.reason = reason;
  return check;
}

/// Nothing is known about the record; it keeps waiting.
RecordCheck unrun_check(std::int64_t trial, const std::string& reason) {
  RecordCheck check;
  check.trial = trial;
  check.reason = reason;
  return check;
}

/// A record that cannot be verified at all: Nestor is at fault.
RecordCheck guarded_check(const std::string& path, std::int64_t id, const MeasureOptions& options) {
  try {
    return check_one(path, id, options);
  } catch (const DeviceError& error) {
    return unrun_check(id, error.what());
  } catch (const LackOfResources& error) {
    return unrun_check(id, error.what());
  } catch (const std::exception& error) {
    return failed_check(id, TrialStatus::compile_error, error.what());
  }
}

struct Running {
  WorkerProcess process;
  std::int64_t trial;
};

class Checker {
 public:
  Checker(const std::string& path, const CheckRecordsOptions& options, const std::function<void(const RecordCheck&)>& told)
      : path_(path), options_(options), told_(told) {
    // Checks that share a device wait for each other: a kernel has no limit below that of its check.
    if (options_.measure.run_timeout_s <= 0) options_.measure.run_timeout_s = options_.timeout_s;
  }

  void run(const std::vector<std::int64_t>& trials) {
    std::size_t next = 0;
    while (!stopped() && (next < trials.size() || !running_.empty())) {
      while (next < trials.size() && static_cast<int>(running_.size()) < std::max(options_.jobs, 1)) start(trials[next++]);
      hear();
    }
    for (Running& running : running_) running.process.end(true);
  }

 private:
  bool stopped() const { return options_.stop && options_.stop->load(); }

  void start(std::int64_t trial) {
    Running running{{}, trial};
    running.process.start(
        0, [&](int socket) { send_message(socket, check_to_json(guarded_check(path_, trial, options_.measure))); });
    running.process.limit(options_.timeout_s);
    running_.push_back(std::move(running));
  }

  void hear() {
    std::vector<const WorkerProcess*> processes;
    for (const Running& running : running_) processes.push_back(&running.process);
    wait_for_any(processes);
    std::vector<Running> left;
    for (Running& running : running_) {
      const Heard heard = running.process.hear();
      if (heard.kind == Heard::Kind::nothing)
        left.push_back(std::move(running));
      else
        settle(check_from(running.trial, heard));
    }
    running_ = std::move(left);
  }

  RecordCheck check_from(std::int64_t trial, const Heard& heard) const {
    if (heard.kind == Heard::Kind::message) return check_from_json(trial, heard.message);
    if (heard.outside) return unrun_check(trial, fmt::format("its check was {}, from outside", heard.death));
    if (heard.kind == Heard::Kind::death) return failed_check(trial, TrialStatus::crash, "its check was " + heard.death);
    return failed_check(trial, TrialStatus::timeout, fmt::format("its check took more than {} s", options_.timeout_s));
  }

  void settle(const RecordCheck& check) {
    if (check.result == RecordCheck::Result::passed || check.result == RecordCheck::Result::failed) {
      Database database = Database::open(path_);
      database.store_check(check.trial, {check.status, check.reason, check.same_code, check.measured, check.device});
    }
    told_(check);
  }

  const std::string& path_;
  CheckRecordsOptions options_;
  const std::function<void(const RecordCheck&)>& told_;
  std::vector<Running> running_;
};

}  // namespace

void check_records(const std::string& path, const std::vector<std::int64_t>& trials, const CheckRecordsOptions& options,
                   const std::function<void(const RecordCheck&)>& told) {
  Checker(path, options, told).run(trials);
}

}  // namespace nestor
