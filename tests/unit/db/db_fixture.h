// What tests of the database and the runtime share: a folder of their own, and records to store.
#pragma once

#include "db/database.h"
#include "support/error_text.h"
#include "support/launch_recipe.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace nestor::test {

/// Root may write everywhere: as long as this lives, the process is nobody.
class Unprivileged {
 public:
  Unprivileged() : was_root_(geteuid() == 0) {
    if (was_root_ && seteuid(65534) != 0) throw std::runtime_error("seteuid failed");
  }
  ~Unprivileged() {
    if (was_root_ && seteuid(0) != 0) std::abort();
  }

 private:
  bool was_root_;
};

inline DeviceIdentity device(const std::string& arch = "testcpu", int units = 2) {
  return {"host", "Test CPU", arch, units, R"({"clock_mhz":3000})"};
}

inline ProblemKey problem(const Sizes& sizes, const std::string& op = "scale", const std::string& digest = "d1") {
  return {op, "f32", digest, sizes};
}

inline const std::string kNest = R"({"op":"scale"})";

/// A recipe for y[n] = x[n] that holds for `valid`.
inline LaunchRecipe recipe(const std::vector<SizeConstraint>& valid = {}) {
  LaunchRecipe made;
  made.target = "host";
  made.symbol = "kernel";
  made.arguments = {{"x", ElementType::f32, false, {IntExpr::variable("n")}},
                    {"y", ElementType::f32, true, {IntExpr::variable("n")}}};
  made.sizes = {"n"};
  made.valid = valid;
  return made;
}

inline KernelRecord kernel(const std::string& code, const std::vector<SizeConstraint>& valid = {}) {
  return {"x86-64:test:+sse2", code, recipe_to_json(recipe(valid)).dump(), ""};
}

/// A correct trial with a kernel of its own.
inline TrialRecord ok_trial(double median_ms, const std::string& code, const std::vector<SizeConstraint>& valid = {}) {
  TrialRecord trial;
  trial.steps = R"(["tile"])";
  trial.samples_ms = {median_ms * 1.5, median_ms, median_ms * 0.5};
  trial.median_ms = median_ms;
  trial.max_error = 1e-6;
  trial.toolchain = "test";
  trial.created = "2025-01-31T12:00:00Z";
  trial.kernel = kernel(code, valid);
  return trial;
}

/// A line of an export that somebody may alter: signed by nobody.
inline std::string without_signature(const std::string& line) {
  nlohmann::json record = nlohmann::json::parse(line);
  record.erase("signature");
  return record.dump() + "\n";
}

inline TrialRecord failed_trial(TrialStatus status, const std::string& reason) {
  TrialRecord trial;
  trial.steps = R"(["bad"])";
  trial.status = status;
  trial.reason = reason;
  trial.toolchain = "test";
  trial.created = "2025-01-31T11:00:00Z";
  return trial;
}

}  // namespace nestor::test
