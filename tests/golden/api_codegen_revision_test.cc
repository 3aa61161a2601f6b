// Nobody changes emitted code without raising kCodegenRevisions: code of several operators for each kind of device, by recorded schedules, is
// compared with what was recorded for the revision. NESTOR_UPDATE_GOLDEN=1 records both anew, the schedules from today's first guesses,
// unless records of this revision are shipped.
#include "api/operators.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/host/host_backend.h"
#include "codegen/llvm/llvm_version.h"
#include "support/codegen_revision.h"
#include "support/error.h"
#include "support/hash.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace nestor {
namespace {

constexpr int kKernels = 2;  ///< of each problem and target

struct Problem {
  std::string op, variant;
  Sizes sizes;
};

std::vector<Problem> problems() {
  return {{"attention", "causal.f16", {{"batch", 1}, {"heads", 2}, {"queries", 256}, {"keys", 256}, {"head_dim", 64}}},
          {"softmax", "bf16", {{"rows", 64}, {"width", 4096}}},
          {"layernorm", "f32", {{"rows", 64}, {"width", 768}}},
          {"layernorm_backward", "f32", {{"rows", 64}, {"width", 256}}},
          {"matmul", "f16", {{"m", 256}, {"n", 256}, {"k", 128}}},
          {"jacobi2d", "f32", {}}};
}

/// 0: host code for a CPU that is fixed here; else compute capability times ten.
std::string code_for(const TileProgram& program, int sm) {
  if (sm == 0) return compile_host(in_host_order(program), {"x86-64-v3", "+avx2,+fma,+bmi2,+f16c", 32, 16}, {.keep_ir = true}).ir;
  NvptxTarget target;
  target.sm = sm;
  target.keep_ir = false;
  return compile_nvptx(program, target).kernel.code;
}

std::string title(const Problem& problem, int sm) {
  return fmt::format("{} {}", problem.op, sm == 0 ? "host" : fmt::format("sm_{}", sm));
}

/// Hash of the code of each schedule, or of why there is none, and how many there are.
struct Fingerprint {
  Hasher hash;
  int kernels = 0;
  void add(BaseSchedules& schedules, const std::vector<Step>& steps, int sm) {
    try {
      hash.add(code_for(build_tile_program(schedules.replay(steps)), sm));
      ++kernels;
    } catch (const UserError& error) {
      hash.add(error.what());
    }
  }
};

/// The first guesses of today's space, up to so many kernels.
nlohmann::json guesses(const Problem& problem, int sm) {
  const Nest nest = load_operator(problem.op, problem.variant);
  const Sizes sizes = complete_sizes(nest, problem.sizes);
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  SpaceLimits limits;
  limits.threads = 2;
  if (sm > 0) limits = gpu_space_limits(sm, 227 << 10, 132);
  const auto space = make_nest_space(schedules, sizes, limits);
  nlohmann::json found = nlohmann::json::array();
  Fingerprint seen;
  for (const Point& point : space->defaults()) {
    if (seen.kernels == kKernels) break;
    const Candidate candidate = space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    nlohmann::json steps = nlohmann::json::array();
    for (const Step& step : candidate.steps) steps.push_back(describe(step));
    found.push_back(std::move(steps));
    seen.add(schedules, candidate.steps, sm);
  }
  return found;
}

/// One line a problem and target: hash of the code of all its schedules, and what they are of.
std::string fingerprints(const Problem& problem, int sm, const nlohmann::json& recorded) {
  const Nest nest = load_operator(problem.op, problem.variant);
  BaseSchedules schedules(nest_for_tuning(nest, complete_sizes(nest, problem.sizes)));
  Fingerprint found;
  for (const nlohmann::json& steps : recorded.at(title(problem, sm))) {
    std::vector<Step> parsed;
    for (const nlohmann::json& step : steps) parsed.push_back(parse_step(step.get<std::string>()));
    found.add(schedules, parsed, sm);
  }
  return fmt::format("{} {} {} kernels\n", found.hash.hex(), title(problem, sm), found.kernels);
}

std::string golden_path(const std::string& kind, const char* name) {
  return fmt::format("{}/codegen_{}_{}", NESTOR_GOLDEN_FOLDER, kind, name);
}

bool records_of_this_revision_are_shipped(const std::string& kind) {
  for (const auto& entry : std::filesystem::directory_iterator(std::string(NESTOR_GOLDEN_FOLDER) + "/../../tuning_db")) {
    if (entry.path().extension() != ".jsonl") continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      if (!record.contains("device") || record.at("device").at("kind") != kind) continue;
      if (record.value("revision", 0) == kCodegenRevisions.of(kind)) return true;
    }
  }
  return false;
}

class CodegenRevision : public testing::TestWithParam<std::string> {};

TEST_P(CodegenRevision, IsRaisedWhenEmittedCodeChanges) {
  const std::string kind = GetParam();
  const std::vector<int> targets = kind == "host" ? std::vector{0} : std::vector{80, 90};
  const std::string revision = fmt::format("revision {}\n", kCodegenRevisions.of(kind));
  const std::string recorded_path = golden_path(kind, "revision.txt"), schedules_path = golden_path(kind, "schedules.json");
  const std::string recorded = test::read_whole(recorded_path);
  const bool update = std::getenv("NESTOR_UPDATE_GOLDEN") != nullptr;
  if (!update && recorded.find(fmt::format("\nllvm {}\n", llvm_version())) == std::string::npos)
    GTEST_SKIP() << "recorded with another version of LLVM, which writes other code: "
                 << recorded.substr(0, recorded.find('\n', 12));
  const bool record = update && (!recorded.starts_with(revision) || !records_of_this_revision_are_shipped(kind));
  nlohmann::json schedules;
  if (!record) schedules = nlohmann::json::parse(test::read_whole(schedules_path));
  std::string now = fmt::format("{}llvm {}\n", revision, llvm_version());
  for (const Problem& problem : problems()) {
    for (const int sm : targets) {
      if (record) schedules[title(problem, sm)] = guesses(problem, sm);
      now += fingerprints(problem, sm, schedules);
    }
  }
  if (record) {
    test::write_whole(schedules_path, schedules.dump(1) + "\n");
    test::write_whole(recorded_path, now);
    return;
  }
  EXPECT_EQ(now, recorded) << "code for this kind of device (" << kind
                           << ") has changed, so stored kernels are not what their steps give any more: raise its number in "
                              "kCodegenRevisions, src/support/codegen_revision.h, then run this test with NESTOR_UPDATE_GOLDEN=1";
}

INSTANTIATE_TEST_SUITE_P(Kinds, CodegenRevision, testing::Values("host", "cuda"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace nestor
