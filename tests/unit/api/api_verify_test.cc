// Verification finds what is wrong with a trial: its steps, its nest, its kernel's bytes.
#include "api/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "api/operators.h"
#include "autotune/measure_schedules.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "poly/algebra/all_rules.h"
#include "support/error.h"
#include "support/temporary_folder.h"

namespace nestor {
namespace {

class VerifyTest : public testing::Test {
 protected:
  VerifyTest() : nest_(load_operator("rmsnorm")), sizes_(complete_sizes(nest_, {{"rows", 6}, {"width", 16}})) {
    options_.threads = 2;
    schedule_ = std::make_unique<Schedule>(nest_for_tuning(nest_, sizes_));
    record_ = measure_schedule(*schedule_, nest_, sizes_, options_);
    record_.steps = trial_steps_json(nest_, specialized_sizes(nest_, sizes_), {}).dump();
  }

  Verification store_and_verify() {
    Database database = Database::open(folder_.file("verify.db"));
    const std::int64_t id = database.add_trial(device_identity_host(2), problem_key(nest_, sizes_), nest_to_text(nest_), record_);
    return verify_trial(database, id, options_);
  }

  static std::vector<std::string> failed(const Verification& verification) {
    std::vector<std::string> checks;
    for (const Finding& finding : verification.findings) {
      if (finding.failed()) checks.emplace_back(to_string(finding.check));
    }
    return checks;
  }

  test::TemporaryFolder folder_;
  Nest nest_;
  Sizes sizes_;
  MeasureOptions options_;
  std::unique_ptr<Schedule> schedule_;
  TrialRecord record_;
};

TEST_F(VerifyTest, ASoundTrialPasses) {
  ASSERT_EQ(record_.status, TrialStatus::ok) << record_.reason;
  ASSERT_TRUE(record_.kernel.has_value());
  const Verification verification = store_and_verify();
  EXPECT_THAT(failed(verification), testing::IsEmpty());
  EXPECT_EQ(verification.findings.size(), 8U);
  EXPECT_FALSE(verification.certificate.buffers.empty());
}

TEST_F(VerifyTest, StepsThatCannotBeReplayedAreFound) {
  record_.steps = trial_steps_json(nest_, specialized_sizes(nest_, sizes_), {Step{"parallel", {"no_such_loop"}}}).dump();
  EXPECT_THAT(failed(store_and_verify()), testing::ElementsAre("steps"));
}

TEST_F(VerifyTest, AKernelOfOtherBytesIsFoundEvenWithARightHash) {
  ASSERT_TRUE(record_.kernel.has_value());
  record_.kernel->code[record_.kernel->code.size() / 2] ^= 0x55;
  record_.kernel->code.resize(record_.kernel->code.size() / 2 + 1);
  record_.kernel->hash = kernel_hash(record_.kernel->code, record_.kernel->recipe);
  EXPECT_THAT(failed(store_and_verify()), testing::ElementsAre("stored kernel against the oracle"));
}

std::string detail_of(const Verification& verification, Check check) {
  for (const Finding& finding : verification.findings) {
    if (finding.check == check) return finding.detail;
  }
  return "";
}

TEST_F(VerifyTest, TheCertificateOfCompilingIsStoredAndFoundAgain) {
  ASSERT_FALSE(record_.certificate.text.empty());
  const Verification verification = store_and_verify();
  EXPECT_THAT(detail_of(verification, Check::certificate), testing::HasSubstr("the same as was stored with the kernel"));
  EXPECT_FALSE(verification.stored);
  EXPECT_EQ(code_certificate_to_json(verification.certificate.code).dump(), record_.certificate.text);
}

TEST_F(VerifyTest, AnotherCertificateIsShownBesideTodays) {
  CodeCertificate other = code_certificate_from_json(nlohmann::json::parse(record_.certificate.text));
  other.program.facts = {"in other words"};
  record_.certificate.text = code_certificate_to_json(other).dump();
  const Verification verification = store_and_verify();
  EXPECT_TRUE(verification.passed());
  EXPECT_THAT(detail_of(verification, Check::certificate), testing::HasSubstr("both are printed"));
  ASSERT_TRUE(verification.stored);
  EXPECT_THAT(describe(*verification.stored), testing::HasSubstr("in other words"));
}

TEST_F(VerifyTest, TrialsOfOlderProgramsHaveNoCertificate) {
  record_.certificate = {};
  EXPECT_THAT(detail_of(store_and_verify(), Check::certificate), testing::HasSubstr("none was stored"));
}

TEST_F(VerifyTest, AStoredCertificateThatIsNoneIsFound) {
  record_.certificate.text = R"({"program":{"verdict":"maybe"}})";
  const Verification verification = store_and_verify();
  EXPECT_THAT(failed(verification), testing::ElementsAre("certificate"));
}

TEST_F(VerifyTest, AMissingTrialIsTheUsersError) {
  Database database = Database::open(folder_.file("verify.db"));
  EXPECT_THROW(verify_trial(database, 1, options_), UserError);
}

TEST_F(VerifyTest, TheCertificateNamesRulesWithProofs) {
  const std::vector<RuleMatch> matches = find_matches(schedule_->nest());
  ASSERT_FALSE(matches.empty());
  for (const RuleMatch& match : matches) {
    Step step{"apply_rule", {match.rule}};
    step.args.insert(step.args.end(), match.target.begin(), match.target.end());
    const Schedule rewritten = schedule_->apply(step);
    const Certificate certificate = certify(rewritten, build_tile_program(rewritten));
    ASSERT_EQ(certificate.rules.size(), 1U);
    EXPECT_FALSE(certificate.rules.front().proof.empty()) << match.rule;
    EXPECT_FALSE(certificate.rules.front().rounding.empty()) << match.rule;
    const bool respected = std::all_of(certificate.dependences.begin(), certificate.dependences.end(),
                                       [](const auto& proof) { return proof.verdict == "respected"; });
    EXPECT_TRUE(respected) << "the original order keeps everything in order, rule " << match.rule;
  }
}

TEST(CertificateTest, SaysWhatIsProvedOfKernelsOnTensorCores) {
  const Nest nest = load_operator("attention", "f16");
  const Sizes sizes = complete_sizes(nest, {});
  BaseSchedules base(nest_for_tuning(nest, sizes, false));
  const auto space = make_nest_space(base, sizes, gpu_space_limits(90, 227 << 10, 132));
  for (const Point& point : space->defaults()) {
    const auto candidate = space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    const Schedule schedule = base.replay(candidate.steps);
    const Certificate certificate = certify(schedule, build_tile_program(schedule));
    if (certificate.code.kernels.stages.empty()) continue;
    EXPECT_THAT(certificate.code.kernels.stages, testing::Contains(testing::HasSubstr("is read only after it has arrived")));
    EXPECT_THAT(certificate.code.kernels.stages, testing::Contains(testing::HasSubstr("no deadlock")));
    EXPECT_THAT(describe(certificate), testing::HasSubstr("stages: " + certificate.code.kernels.stages.front()));
    EXPECT_EQ(certificate_to_json(certificate).at("stages").size(), certificate.code.kernels.stages.size());
    return;
  }
  FAIL() << "no default candidate of attention uses tensor cores";
}

/// A candidate of attention on tensor cores as a trial of a GPU whose blocks have that much shared memory.
Verification verify_on_gpu(std::int64_t shared_bytes) {
  const Nest nest = load_operator("attention", "f16");
  const Sizes sizes = complete_sizes(nest, {});
  BaseSchedules base(nest_for_tuning(nest, sizes, false));
  const auto space = make_nest_space(base, sizes, gpu_space_limits(90, 227 << 10, 132));
  for (const Point& point : space->defaults()) {
    const auto candidate = space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    const CompiledNvptx compiled = compile_nvptx(build_tile_program(base.replay(candidate.steps)), {});
    if (compiled.certificate.stages.empty()) continue;
    TrialRecord trial;
    trial.steps = trial_steps_json(nest, specialized_sizes(nest, sizes), candidate.steps).dump();
    trial.median_ms = 1;
    trial.toolchain = "test";
    trial.kernel =
        KernelRecord{compiled.kernel.architecture, compiled.kernel.code, recipe_to_json(compiled.kernel.recipe).dump(), ""};
    const DeviceIdentity device{"cuda", "GPU", "sm_90", 132, fmt::format(R"({{"shared_bytes_per_block":{}}})", shared_bytes)};
    Database database = Database::open(":memory:");
    const std::int64_t id = database.add_trial(device, problem_key(nest, sizes), nest_to_text(nest), trial);
    return verify_trial(database, id);
  }
  ADD_FAILURE() << "no default candidate of attention uses tensor cores";
  return {};
}

TEST(VerifyGpuTest, PlansWithTheSharedMemoryOfTheTrialsDevice) {
  const Verification large = verify_on_gpu(227 << 10);
  EXPECT_TRUE(large.passed());
  EXPECT_EQ(large.findings.back().check, Check::assembled_now);
  EXPECT_EQ(large.findings.back().result, Finding::Result::not_run);
  const Verification small = verify_on_gpu(48 << 10);
  EXPECT_FALSE(small.passed());
  EXPECT_EQ(small.findings.back().check, Check::steps);
  EXPECT_THAT(small.findings.back().detail, testing::HasSubstr("shared memory"));
}

}  // namespace
}  // namespace nestor
