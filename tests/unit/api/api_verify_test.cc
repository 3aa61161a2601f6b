// Verification finds what is wrong with a trial: its steps, its nest, its kernel's bytes.
#include "api/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "api/operators.h"
#include "autotune/measure_schedules.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
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
      if (!finding.passed) checks.push_back(finding.check);
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
  EXPECT_EQ(verification.findings.size(), 7U);
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
    if (certificate.kernels.stages.empty()) continue;
    EXPECT_THAT(certificate.kernels.stages, testing::Contains(testing::HasSubstr("is read only after it has arrived")));
    EXPECT_THAT(certificate.kernels.stages, testing::Contains(testing::HasSubstr("no deadlock")));
    EXPECT_THAT(describe(certificate), testing::HasSubstr("stages: " + certificate.kernels.stages.front()));
    EXPECT_EQ(certificate_to_json(certificate).at("stages").size(), certificate.kernels.stages.size());
    return;
  }
  FAIL() << "no default candidate of attention uses tensor cores";
}

}  // namespace
}  // namespace nestor
