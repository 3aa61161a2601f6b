// The check of results: planted errors of every operator and type are caught, and no correct kernel is refused. How many correct kernels
// are tried can be set: NESTOR_CORRECT_KERNELS=10000.
#include "autotune/check/result_check.h"
#include "autotune/trial/trial_steps.h"

#include "api/operators.h"
#include "autotune/host/host_launch.h"
#include "autotune/oracle/reference.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/base_schedules.h"
#include "codegen/proof/program_proof.h"
#include "db/devices/host_identity.h"
#include "support/error.h"
#include "support/mutants/planted_errors.h"
#include "support/test_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <random>
#include <set>

namespace nestor {
namespace {

/// Sizes that no tile divides, by the roles that names have in kernels/.
Sizes modest_sizes(const Nest& nest) {
  static const Sizes kKnown{{"batch", 1},   {"heads", 2},   {"queries", 19}, {"keys", 70},     {"head_dim", 24},
                            {"window", 33}, {"prefix", 21}, {"group", 2},    {"key_heads", 1}, {"dilation", 2},
                            {"rows", 23},   {"n", 41},      {"width", 150},  {"hidden", 90},   {"value_dim", 40},
                            {"m", 23},      {"k", 77},      {"height", 21},  {"steps", 3}};
  Sizes sizes;
  for (const SizeParam& size : nest.sizes) sizes[size.name] = kKnown.contains(size.name) ? kKnown.at(size.name) : 17;
  return sizes;
}

/// A nest's code for the host, at one point of the space: the starting point, or a random one.
class HostKernel {
 public:
  HostKernel(const Nest& nest, const Sizes& sizes, std::mt19937* random)
      : sizes_(sizes), schedules_(nest_for_tuning(nest, sizes)) {
    const auto space = make_nest_space(schedules_, sizes, host_space_limits(2));
    Point point = space->baseline();
    for (int attempt = 0; random && attempt < 20; ++attempt) {
      Point other = point;
      for (std::size_t k = 0; k < other.size(); ++k)
        other[k] = static_cast<int>((*random)() % space->parameters()[k].choices.size());
      const Candidate candidate = space->candidate(other);
      if (candidate.infeasible.empty() && compiles(candidate.steps)) return;
    }
    if (!compiles(space->candidate(point).steps)) internal_error("the starting point of {} does not compile", nest.op);
  }

  HostTensors run(const HostTensors& inputs) const {
    HostTensors tensors = inputs;
    const CheckRun run = run_guarded(*loaded_, kernel_.recipe, tensors, sizes_, {}, 2);
    EXPECT_EQ(run.damage, "");
    return tensors;
  }
  const std::vector<Step>& steps() const { return steps_; }
  /// The proof of its program finds it wrong: then a refusal is right.
  bool refuted() {
    const Schedule schedule = schedules_.replay(steps_);
    return prove_program(build_tile_program(schedule), schedule).verdict == ProofVerdict::refuted;
  }

 private:
  bool compiles(const std::vector<Step>& steps) {
    try {
      const TileProgram program = build_tile_program(schedules_.replay(steps));
      if (!is_valid_for(program.valid, sizes_)) return false;
      kernel_ = compile_host(program, detect_host()).kernel;
      loaded_ = std::make_unique<LoadedHostKernel>(kernel_);
      steps_ = steps;
      return true;
    } catch (const UserError&) {
      return false;
    }
  }

  Sizes sizes_;
  BaseSchedules schedules_;
  CompiledKernel kernel_;
  std::vector<Step> steps_;
  std::unique_ptr<LoadedHostKernel> loaded_;
};

std::vector<OracleSample> expected_of(const Nest& nest, const Sizes& sizes, const HostTensors& inputs) {
  Reference reference(nest, sizes, {}, inputs);
  reference.evaluate_all(1e9);
  return all_samples(reference, nest, 1 << 30);
}

/// What a nest gives in double, rounded to the types of its outputs.
HostTensors evaluated(const Nest& nest, const Sizes& sizes, const HostTensors& inputs) {
  Reference reference(nest, sizes, {}, inputs);
  reference.evaluate_all(1e9);
  HostTensors results = inputs;
  for (const OracleSample& sample : all_samples(reference, nest, 1 << 30))
    results.at(sample.tensor).set(sample.linear, sample.value);
  return results;
}

std::vector<std::string> outputs_of(const Nest& nest) {
  std::vector<std::string> names;
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role == TensorRole::output) names.push_back(tensor.name);
  }
  return names;
}

/// Plain variants of every operator in each of its types, and some with masks or further results.
std::vector<std::pair<std::string, std::string>> problems() {
  std::vector<std::pair<std::string, std::string>> result;
  for (const OperatorEntry& entry : builtin_operators()) {
    for (const std::string& variant : entry.variants) {
      const bool plain = variant.find('.') == std::string::npos;
      const bool masked =
          entry.op == "attention" && (variant == "causal.bf16" || variant == "lse.f16" || variant == "window.f32");
      if (plain || masked || variant == "stats.bf16") result.emplace_back(entry.op, variant);
    }
  }
  return result;
}

class ResultCheckTest : public ::testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  ResultCheckTest() : nest_(load_operator(GetParam().first, GetParam().second)), sizes_(modest_sizes(nest_)) {}
  HostTensors inputs(std::uint64_t seed) const { return make_arguments(nest_, sizes_, seed); }
  Nest nest_;
  Sizes sizes_;
};

TEST_P(ResultCheckTest, CatchesEveryPlantedError) {
  const HostTensors mine = inputs(1);
  const std::vector<OracleSample> expected = expected_of(nest_, sizes_, mine);
  const HostTensors good = evaluated(testing::with_narrow_operands(nest_), sizes_, mine);
  const HostTensors other = evaluated(nest_, sizes_, inputs(2));
  std::string where;
  ASSERT_LE(worst_error(expected, good, &where), 1) << where;
  std::mt19937 random(1);
  for (const std::string& output : outputs_of(nest_)) {
    for (const testing::PlantedError& error : testing::planted_errors()) {
      HostTensors wrong = good;
      error.plant(wrong.at(output), other.at(output), random);
      EXPECT_GT(worst_error(expected, wrong), 1) << output << ": " << error.name;
    }
  }
}

TEST_P(ResultCheckTest, CatchesSumsWithoutTheirLastTerm) {
  const HostTensors mine = inputs(1);
  const std::vector<OracleSample> expected = expected_of(nest_, sizes_, mine);
  for (const std::int64_t extent : testing::sum_extents(nest_, sizes_)) {
    const HostTensors wrong = evaluated(testing::without_last(nest_, sizes_, extent, 1), sizes_, mine);
    EXPECT_GT(worst_error(expected, wrong), 1) << "without the last of " << extent;
  }
}

TEST_P(ResultCheckTest, AcceptsCorrectKernels) {
  const char* wanted = std::getenv("NESTOR_CORRECT_KERNELS");
  const int all = wanted ? std::atoi(wanted) : 160;
  const int each = std::max(1, all / static_cast<int>(problems().size()));
  constexpr int kRuns = 5;  // of one kernel
  std::mt19937 random(7);
  std::unique_ptr<HostKernel> kernel;
  const Nest narrow = testing::with_narrow_operands(nest_);
  for (int k = 0; k < each; ++k) {
    const bool rounds = k / kRuns % 2 == 0;
    if (k % kRuns == 0) kernel = std::make_unique<HostKernel>(rounds ? narrow : nest_, sizes_, k == 0 ? nullptr : &random);
    const auto seed = static_cast<std::uint64_t>(k + 1);
    const DataKind kinds[] = {DataKind::ordinary, DataKind::large, DataKind::constant, DataKind::zeros, DataKind::ties};
    HostTensors data = make_data(nest_, sizes_, {kinds[k % 5], ""}, seed);
    for (const std::string& output : outputs_of(nest_)) {
      HostTensor& tensor = data.at(output);
      tensor.bytes.resize(static_cast<std::size_t>(tensor.elements()) * size_in_bytes(tensor.type));
      fill_poison(tensor);
    }
    std::string where;
    const double worst = worst_error(expected_of(nest_, sizes_, data), kernel->run(data), &where);
    if (worst > 1 && kernel->refuted()) continue;
    std::string steps;
    for (const Step& step : kernel->steps()) steps += describe(step) + "\n";
    ASSERT_LE(worst, 1) << to_string(kinds[k % 5]) << " " << seed << ": " << where << "\n" << steps;
  }
}

/// What a launch refuses decides which sizes are rounded up; results are compared where it was launched.
TEST(ResultCheckRefusals, LengthsOfRowsAreRoundedUpBeforeOtherSizes) {
  const Nest nest = load_operator("matmul", "f32");
  const CheckSizes sizes{
      .sizes = {{{"m", 3}, {"n", 5}, {"k", 7}}, {{"m", 2}, {"n", 16}, {"k", 9}}}, .varied = 0, .dynamic = {"m", "n", "k"}};
  const auto checked = [&](const std::vector<std::string>& multiples_of_8, double factor) {
    ResultCheck check(nest, {}, 1);
    return check.run(sizes, [&](const Sizes& at, HostTensors& tensors) {
      for (const std::string& name : multiples_of_8) {
        if (at.at(name) % 8 != 0) return CheckRun{.refused = true};
      }
      tensors = evaluated(nest, at, tensors);
      HostTensor& result = tensors.at(outputs_of(nest).front());
      result.set(0, result.get(0) * factor);
      return CheckRun{};
    });
  };
  const auto rows = [](const CheckReport& report) {
    std::set<std::int64_t> found;
    for (const CheckCase& done : report.cases) found.insert(done.sizes.at("m"));
    return found;
  };
  EXPECT_EQ(checked({}, 1).wrong, "");
  const CheckReport lengths = checked({"n", "k"}, 1);
  EXPECT_EQ(lengths.wrong, "");
  EXPECT_EQ(rows(lengths), (std::set<std::int64_t>{2, 3})) << "m is the length of no row";
  const CheckReport all = checked({"m", "n", "k"}, 1);
  EXPECT_EQ(all.wrong, "");
  EXPECT_EQ(rows(all), std::set<std::int64_t>{8});
  EXPECT_NE(checked({"n", "k"}, 1.5).wrong.find("m=3, n=8"), std::string::npos) << checked({"n", "k"}, 1.5).wrong;
  ResultCheck none(nest, {}, 1);
  EXPECT_EQ(none.run(sizes, [](const Sizes&, HostTensors&) { return CheckRun{.refused = true}; }).wrong,
            "it cannot be launched at any of the sizes where it is to be checked");
}

/// m x k times k x n in f32, as a kernel would.
void multiply(HostTensors& tensors, const Sizes& at) {
  const std::int64_t m = at.at("m"), n = at.at("n"), k = at.at("k");
  const auto numbers = [&](const std::string& name) { return reinterpret_cast<float*>(tensors.at(name).bytes.data()); };
  const float *a = numbers("a"), *b = numbers("b");
  float* out = numbers("product");
  std::fill(out, out + m * n, 0.0F);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t p = 0; p < k; ++p) {
      for (std::int64_t j = 0; j < n; ++j) out[i * n + j] += a[i * k + p] * b[p * n + j];
    }
  }
}

/// Fixed sizes may be so large that not every element can be evaluated: then some of them are compared.
TEST(ResultCheckAtLargeSizes, SomeElementsAreComparedWhereAllWouldTakeTooLong) {
  const Nest nest = load_operator("matmul", "f32");
  const Sizes large{{"m", 1536}, {"n", 1024}, {"k", 128}};
  const CheckSizes sizes{.sizes = {large}, .varied = 0, .dynamic = {}};
  const auto checked = [&](const std::function<void(float*)>& damage) {
    ResultCheck check(nest, {}, 1);
    return check.run(sizes, [&](const Sizes& at, HostTensors& tensors) {
      multiply(tensors, at);
      damage(reinterpret_cast<float*>(tensors.at("product").bytes.data()));
      return CheckRun{};
    });
  };
  const CheckReport right = checked([](float*) {});
  EXPECT_EQ(right.wrong, "");
  const std::int64_t elements = in_total(right.compared).elements;
  EXPECT_GT(elements, 256);
  EXPECT_LT(elements, static_cast<std::int64_t>(right.cases.size()) * 1536 * 1024);
  EXPECT_NE(checked([](float* out) { std::fill(out + 1535 * 1024, out + 1536 * 1024, 0.0F); }).wrong, "") << "the last row";
  EXPECT_NE(checked([](float* out) { std::fill(out, out + 1536 * 1024 / 8, 0.0F); }).wrong, "") << "one tile in eight";
}

/// Results at the sampled elements of a problem whose definition is too slow to be evaluated in full, by another nest.
HostTensors sampled_results(const Nest& nest, const Sizes& sizes, const HostTensors& inputs,
                            const std::vector<OracleSample>& samples) {
  Reference reference(nest, sizes, {}, inputs);
  HostTensors results = inputs;
  for (const OracleSample& sample : samples)
    results.at(sample.tensor).set(sample.linear, reference.value(sample.tensor, sample.linear, 1e10).value());
  return results;
}

TEST(ResultCheckAtTunedSizes, SamplesSeeTheLastOf4096Keys) {
  for (const char* variant : {"bf16", "causal.f16"}) {
    const Nest nest = load_operator("attention", variant);
    const Sizes sizes{{"batch", 1}, {"heads", 1}, {"queries", 2048}, {"keys", 4096}, {"head_dim", 64}};
    const HostTensors inputs = make_arguments(nest, sizes, 1);
    const std::vector<OracleSample> samples = reference_samples(nest, sizes, {}, inputs, 64, 1);
    EXPECT_LT(static_cast<std::int64_t>(samples.size()), inputs.at("out").elements());
    std::string where;
    EXPECT_LE(worst_error(samples, sampled_results(testing::with_narrow_operands(nest), sizes, inputs, samples), &where), 1)
        << where;
    EXPECT_GT(worst_error(samples, sampled_results(testing::without_last(nest, sizes, 4096, 1), sizes, inputs, samples)), 1)
        << variant;
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, ResultCheckTest, ::testing::ValuesIn(problems()), testing::variant_test_name);

}  // namespace
}  // namespace nestor
