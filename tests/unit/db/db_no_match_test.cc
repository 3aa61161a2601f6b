// Why there is no kernel: the first thing asked for that no record has.
#include "db/no_match.h"
#include "unit/db/db_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Database::ProblemSummary record(const std::string& op, const std::string& variant, std::int64_t rows,
                                const std::string& kind = "host", std::int64_t ok = 1) {
  Database::ProblemSummary entry;
  entry.problem = {op, variant, "d1", {{"rows", rows}}};
  entry.device.kind = kind;
  entry.device.name = kind == "host" ? "CPU" : "GPU";
  entry.device.arch = kind == "host" ? "znver4" : "sm_90";
  entry.ok = ok;
  entry.trials = 3;
  return entry;
}

DeviceIdentity device(const std::string& kind) { return record("", "", 1, kind).device; }

TEST(NoMatch, NamesWhatFitsNothing) {
  const std::vector<Database::ProblemSummary> records{record("scale", "f32", 8), record("scale", "f16", 64),
                                                      record("shift", "f32", 8)};
  EXPECT_THAT(why_no_match({}, {"scale", "f32", "", {}, {}}), HasSubstr("no records at all"));
  EXPECT_THAT(why_no_match(records, {"scael", "f32", "", {}, {}}),
              AllOf(HasSubstr("operator 'scael'"), HasSubstr("did you mean 'scale'")));
  EXPECT_THAT(why_no_match(records, {"scale", "bf16", "", {}, {}}), AllOf(HasSubstr("variant 'bf16'"), HasSubstr("f32, f16")));
  EXPECT_THAT(why_no_match(records, {"", "", "d2", {}, {}}), HasSubstr("nest d2"));
  EXPECT_THAT(why_no_match(records, {"scale", "f32", "", {{"rows", 8}}, {device("cuda")}}),
              AllOf(HasSubstr("is for GPU (sm_90)"), HasSubstr("there are some for CPU (znver4)")));
  EXPECT_THAT(why_no_match(records, {"scale", "f32", "", {{"rows", 7}}, {device("host")}}),
              AllOf(HasSubstr("measured at rows=8 on CPU"), HasSubstr("none is valid for rows=7")));
  EXPECT_THAT(why_no_match({record("scale", "f32", 8, "host", 0)}, {"scale", "f32", "", {}, {}}),
              HasSubstr("no trial of scale (f32) was correct"));
}

TEST(NoMatch, DamagedRecordsAreCounted) {
  Asked asked{"scale", "f32", "", {{"rows", 8}}, {device("host")}};
  asked.damaged = [] { return 3; };
  EXPECT_THAT(why_no_match({record("scale", "f32", 8)}, asked), HasSubstr("; 3 records are damaged: `nestor db check`"));
}

TEST(NoMatch, NamesOfOthersAreNotObeyedByATerminal) {
  Database::ProblemSummary foreign = record("scale", "f32", 8, "cuda");
  foreign.device.name = "\x1b[31mGPU";
  const std::string why = why_no_match({foreign}, {"scale", "f32", "", {{"rows", 8}}, {device("host")}});
  EXPECT_THAT(why, HasSubstr("\\x1b[31mGPU"));
  EXPECT_THAT(why, testing::Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace nestor
