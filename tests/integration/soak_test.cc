// soak: what it draws is valid, what is wrong is found, and every way to fail is told apart.
#include "soak/draw_sizes.h"
#include "soak/group.h"
#include "soak/random_schedule.h"
#include "soak/shrink.h"
#include "soak/source.h"
#include "soak/tally.h"

#include "autotune/trial/trial_steps.h"
#include "integration/run_nestor.h"
#include "poly/nest/nest_json.h"
#include "support/element_codec.h"
#include "support/error.h"
#include "support/nests/random_nests.h"
#include "support/nests/random_operators.h"
#include "support/nests/tensor_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <filesystem>

#include <unistd.h>
#include <atomic>
#include <csignal>

namespace nestor::soak {
namespace {

using ::testing::HasSubstr;

/// y = factor x, at n elements.
Nest scale(double factor) {
  using namespace samples;
  return NestBuilder("scale", {{"n", 64}})
      .tensor("x", TensorRole::input, {"n"})
      .tensor("y", TensorRole::output, {"n"})
      .statement("S[i] : 0 <= i < n", "y[i]", {"x[i]"}, read(0) * number(factor))
      .build();
}

std::vector<PreparedRun> runs_of(const Nest& nest, const std::string& data = "ordinary") {
  const Run run{{{"n", 37}}, data, 5};
  return {{run, std::make_shared<const ProblemData>(make_problem_data(nest, run, kReferenceLimit))}};
}

Outcome try_scale(double meant, double computed, Engine engine = Engine::host, int sm = 0) {
  const Nest nest = scale(meant);
  return try_case(nest, engine, sm, [&] { return Schedule(scale(computed)); }, runs_of(nest), {});
}

TEST(SoakVerdict, ARightCandidateIsRight) {
  const Outcome outcome = try_scale(3, 3);
  EXPECT_EQ(outcome.verdict, Verdict::right) << outcome.detail;
  EXPECT_EQ(outcome.runs, 1);
}

TEST(SoakVerdict, AWrongCandidateIsWrong) {
  EXPECT_EQ(try_scale(3, 3.001).verdict, Verdict::wrong);
  EXPECT_THAT(try_scale(3, 4).detail, AllOf(HasSubstr("y["), HasSubstr("n = 37")));
}

TEST(SoakVerdict, AWrongCandidateIsWrongInTheEmulatorToo) {
  EXPECT_EQ(try_scale(3, 3, Engine::emulator, 90).verdict, Verdict::right);
  EXPECT_EQ(try_scale(3, 4, Engine::emulator, 90).verdict, Verdict::wrong);
}

TEST(SoakVerdict, SpecialValuesMustBeWhereTheDefinitionHasThem) {
  const Nest nest = scale(2);
  const ProblemData data = make_problem_data(nest, {{{"n", 37}}, "nan", 5}, kReferenceLimit);
  HostTensors results;
  results.emplace("y", data.tensors.at("y"));
  for (const OracleSample& sample : data.expected) results.at("y").set(sample.linear, sample.value);
  EXPECT_EQ(difference(nest, data, results), "");
  for (const OracleSample& sample : data.expected) {
    HostTensors changed = results;
    changed.at("y").set(sample.linear, std::isnan(sample.value) ? 1 : std::nan(""));
    EXPECT_NE(difference(nest, data, changed), "") << sample.linear;
  }
}

/// Causal attention in host code multiplies whole tiles: NaN among the values shows beside rows that do not see it, which its certificate
/// says. So the soak puts none there; where all rows see a value, it stays NaN, and results must be.
TEST(SoakVerdict, MaskedPlacesStayFiniteWhereTheCertificateSaysSo) {
  const Nest nest =
      nestor::testing::attention_nest({.seen = nestor::testing::Seen::causal, .type = ElementType::f32, .depth = 8});
  const Schedule schedule(nest);
  const TileProgram program = build_tile_program(schedule);
  int masked = 0, seen = 0;
  for (std::uint64_t seed = 1; seed < 12; ++seed) {
    const soak::Run run{{{"H", 2}, {"Q", 5}, {"K", 9}}, "nan", seed};
    const auto data = std::make_shared<const ProblemData>(make_problem_data(nest, run, kReferenceLimit));
    const ElementLists places =
        masked_places(schedule, finite_tensors(schedule, prove_program(program, schedule), {}), run.sizes);
    ASSERT_EQ(places.size(), 1U);
    const ProblemData finite = make_problem_data(nest, run, kReferenceLimit, places);
    EXPECT_FALSE(has_special(finite, places));
    masked += has_special(*data, places) ? 1 : 0;
    const HostTensor& values = finite.tensors.at("v");
    for (std::int64_t k = 0; k < values.elements(); ++k) seen += std::isnan(values.get(k)) ? 1 : 0;
    const Outcome outcome = try_case(nest, Engine::host, 0, [&] { return schedule; }, {{run, data}}, {});
    EXPECT_EQ(outcome.verdict, Verdict::right) << outcome.detail;
  }
  EXPECT_GT(masked, 0);
  EXPECT_GT(seen, 0);
}

TEST(SoakVerdict, AnElementThatIsLeftOutIsFound) {
  const Nest nest = scale(2);
  const ProblemData data = make_problem_data(nest, {{{"n", 37}}, "ordinary", 5}, kReferenceLimit);
  HostTensors results;
  results.emplace("y", data.tensors.at("y"));  // poison
  for (const OracleSample& sample : data.expected) {
    if (sample.linear != 36) results.at("y").set(sample.linear, sample.value);
  }
  EXPECT_THAT(difference(nest, data, results), HasSubstr("y[36]"));
}

// ---- children

void spin() {
  std::atomic<std::int64_t> turns{0};
  while (turns >= 0) ++turns;
}

Limits short_limits() {
  Limits limits;
  limits.generate_s = 1;
  limits.run_s = 1;
  limits.memory = std::int64_t{1} << 28;
  return limits;
}

/// A group whose problem is drawn by `nest`.
Report only_report(const std::function<Nest(std::uint64_t)>& nest, const Limits& limits = {}) {
  const Source source{"test", 1, false, nest};
  GroupSpec spec;
  spec.candidates = 1;
  std::vector<Report> reports;
  run_group(spec, source, limits, {}, [&](const Report& report) { reports.push_back(report); });
  EXPECT_EQ(reports.size(), 1u);
  return reports.at(0);
}

TEST(SoakGroup, TellsOfEachCandidate) {
  const Report report = only_report([](std::uint64_t) { return scale(3); });
  EXPECT_LE(report.outcome.verdict, Verdict::refused) << report.outcome.detail;
  EXPECT_TRUE(report.found.is_null());
}

TEST(SoakGroup, ACaseTriedAgainGivesTheSameVerdict) {
  const Nest nest = scale(3);
  Case tried{"test", Engine::host, 0, nest_to_json(nest), trial_steps_json(nest, {}, {}), {{{{"n", 9}}, "ordinary", 1}}};
  EXPECT_EQ(try_apart(tried, {}, {}).verdict, Verdict::right);
  const Case again = case_from_json(nlohmann::json::parse(case_to_json(tried).dump()));
  EXPECT_EQ(case_to_json(again), case_to_json(tried));
  EXPECT_EQ(try_apart(again, {}, {}).verdict, Verdict::right);
  tried.steps["steps"] = nlohmann::json::array({step_to_json({"vectorize", {"no_such_loop"}})});
  const Outcome refused = try_apart(tried, {}, {});
  EXPECT_EQ(refused.verdict, Verdict::refused);
  EXPECT_THAT(refused.detail, HasSubstr("no_such_loop"));
}

TEST(SoakGroup, TimeAndMemoryAreLimited) {
  const auto child = [](const std::function<void()>& work) {
    return apart(short_limits(), [&](const std::function<void()>& generated) {
      (void)generated;
      work();
    });
  };
  EXPECT_EQ(child([] { spin(); }).verdict, Verdict::slow);
  EXPECT_EQ(child([] { std::raise(SIGSEGV); }).verdict, Verdict::crash);
  EXPECT_EQ(child([] { std::vector<char> much(std::size_t{1} << 30, 'a'); }).verdict, Verdict::memory);
  const Outcome stuck = apart(short_limits(), [](const std::function<void()>& generated) {
    generated();
    spin();
  });
  EXPECT_EQ(stuck.verdict, Verdict::stuck);
}

// ---- what is drawn

TEST(SoakDraws, RandomOperatorsAreValid) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Nest nest = samples::RandomOperator(seed).draw();
    EXPECT_NO_THROW(validate(nest)) << seed << "\n" << describe(nest);
  }
}

TEST(SoakDraws, RandomNestsCompute) {
  const std::vector<Source> sources =
      make_sources({.operators = {}, .files = {}, .records = {}, .builtin = false, .random = true});
  const Source& nests = sources.back();
  ASSERT_EQ(nests.name, "random nests");
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Nest nest = nests.nest(seed);
    const soak::Run run{complete_sizes(nest, {}), "ordinary", 1};
    EXPECT_FALSE(make_problem_data(nest, run, kReferenceLimit).expected.empty()) << seed;
  }
}

TEST(SoakDraws, EqualSeedsDrawEqualSchedules) {
  const Nest nest = samples::matmul();
  std::set<std::string> drawn;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const auto text = [&] { return schedule_to_json(random_schedule(Schedule(nest), seed, 90, true)).dump(); };
    EXPECT_EQ(text(), text());
    drawn.insert(text());
  }
  EXPECT_GT(drawn.size(), 5u);
}

TEST(SoakDraws, SizesKeepWhatIsFixedAndCostLittle) {
  Nest nest = samples::matmul(300, 300, 300);
  nest.sizes[2].specialized = true;
  CounterRandom random(1);
  for (int k = 0; k < 20; ++k) {
    const Sizes tuned = draw_tuned_sizes(nest, Engine::emulator, random);
    const std::vector<PreparedRun> runs = draw_runs(nest, tuned, Engine::emulator, true, random);
    ASSERT_FALSE(runs.empty());
    for (const PreparedRun& run : runs) EXPECT_EQ(run.run.sizes.at("K"), tuned.at("K"));
  }
}

TEST(SoakDraws, NamesThatAreNoneAreRefused) {
  const auto message = [](const SourceOptions& options) -> std::string {
    try {
      make_sources(options);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({.operators = {"no_such_op"}, .files = {}, .records = {}}), HasSubstr("no operator no_such_op"));
  EXPECT_THAT(message({.operators = {}, .files = {}, .records = {"/no/such/file"}}), HasSubstr("/no/such/file"));
  EXPECT_THAT(message({.operators = {}, .files = {}, .records = {}, .builtin = false, .random = false}),
              HasSubstr("nothing to draw"));
}

// ---- shrinking, counting

TEST(SoakShrink, KeepsOnlyTheStepThatMatters) {
  Case found;
  found.steps = {{"steps", {{{"name", "a"}, {"args", {1}}}, {{"name", "bad"}, {"args", {1}}}, {{"name", "b"}, {"args", {1}}}}}};
  found.runs = {{{{"n", 1}}, "ordinary", 1}, {{{"n", 2}}, "ordinary", 1}};
  const auto attempt = [](const Case& tried) {
    const bool step = tried.steps.dump().find("bad") != std::string::npos;
    const bool run = std::any_of(tried.runs.begin(), tried.runs.end(), [](const soak::Run& r) { return r.sizes.at("n") == 2; });
    return Outcome{step && run ? Verdict::wrong : Verdict::right, ""};
  };
  const Case small = shrunk(found, {Verdict::wrong, ""}, attempt);
  EXPECT_EQ(steps_text(small), "bad(1)\n");
  ASSERT_EQ(small.runs.size(), 1u);
  EXPECT_EQ(small.runs[0].sizes.at("n"), 2);
}

TEST(SoakTally, CountsFindingsApartFromRefusals) {
  Tally tally;
  tally.add({"a", {Verdict::right, ""}, nullptr});
  tally.add({"a", {Verdict::refused, "loop 3 of 4 is none"}, nullptr});
  tally.add({"a", {Verdict::refused, "loop 17 of 5 is none"}, nullptr});
  tally.add({"b", {Verdict::wrong, "y[3] is 7"}, {{"x", 1}}});
  EXPECT_EQ(tally.candidates(), 4);
  EXPECT_EQ(tally.findings(), 1);
  const nlohmann::json json = tally.json();
  EXPECT_EQ(json.at("counts").at("wrong"), 1);
  EXPECT_EQ(json.at("sources").at("a").at("refused"), 2);
  EXPECT_EQ(json.at("refused").at("loop # of # is none"), 2);
}

// ---- the program

test::Outcome soak(const std::vector<std::string>& args) {
  const test::TemporaryFolder folder;
  std::string command = std::string(SOAK_PROGRAM);
  for (const std::string& arg : args) command += " " + test::shell_quoted(arg);
  command += " --findings " + folder.file("findings") + " >" + folder.file("out") + " 2>" + folder.file("err");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, test::read_whole(folder.file("out")),
          test::read_whole(folder.file("err"))};
}

TEST(SoakProgram, DrawsForATimeAndWritesWhatItCounted) {
  const test::TemporaryFolder folder;
  const test::Outcome run =
      soak({"--time", "60", "--candidates", "12", "--per-group", "4", "--jobs", "2", "--target", "host", "--target", "sm_90",
            "--seed", "11", "--no-operators", "--ordinary", "--json", folder.file("soak.json")});
  EXPECT_TRUE(run.code == 0 || run.code == 5) << run.code << "\n" << run.err;
  const nlohmann::json json = nlohmann::json::parse(test::read_whole(folder.file("soak.json")));
  EXPECT_GE(json.at("candidates"), 12);
  EXPECT_EQ(json.at("findings").get<int>() > 0, run.code == 5);
  EXPECT_EQ(json.at("seed"), 11);
  EXPECT_TRUE(json.contains("hardware"));
  EXPECT_GT(json.at("counts").at("right"), 0) << json.dump(1);
}

// What earlier runs found, made small: each was wrong, refuted or an internal error once.
TEST(SoakProgram, WhatItFoundStaysMended) {
  std::vector<std::string> args{"--limit", "60"};
  for (const auto& entry : std::filesystem::directory_iterator(FINDINGS_FOLDER)) {
    if (entry.path().extension() == ".json") args.insert(args.end(), {"--replay", entry.path().string()});
  }
  ASSERT_GE(args.size(), 2u + 2 * 9);
  const test::Outcome run = soak(args);
  EXPECT_EQ(run.code, 0) << run.out << run.err;
}

TEST(SoakProgram, RefusesTargetsAndFilesThatAreNone) {
  const test::Outcome target = soak({"--target", "toaster"});
  EXPECT_EQ(target.code, 1);
  EXPECT_THAT(target.err, HasSubstr("there is no target toaster"));
  const test::Outcome file = soak({"--replay", "/no/such/case.json"});
  EXPECT_EQ(file.code, 1);
  EXPECT_THAT(file.err, HasSubstr("cannot read /no/such/case.json"));
}

}  // namespace
}  // namespace nestor::soak
