// Tensor plans, run without a GPU, give what the operator means: for masks, ragged sizes, and every way to order their events.
#include "support/tensor_interpreter.h"
#include "support/tensor_nests.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nestor::testing {
namespace {

constexpr int kHeads = 1, kDepth = 16;
constexpr double kScale = 0.5;

struct Shape {
  std::int64_t queries, keys, window = 0;
  int depth = kDepth;
};

Sizes sizes_of(const Shape& shape) {
  Sizes sizes{{"H", kHeads}, {"Q", shape.queries}, {"K", shape.keys}};
  if (shape.window > 0) sizes["W"] = shape.window;
  return sizes;
}

using Memory = std::map<std::string, std::vector<double>>;

Memory random_memory(const Shape& shape, ElementType type) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Memory memory;
  for (const auto& [name, rows] : {std::pair("q", shape.queries), std::pair("k", shape.keys), std::pair("v", shape.keys)}) {
    for (std::int64_t k = 0; k < kHeads * rows * shape.depth; ++k) {
      char bytes[8] = {};
      write_element(bytes, type, uniform(random));
      memory[name].push_back(read_element(bytes, type));
    }
  }
  memory["out"].assign(static_cast<std::size_t>(kHeads * shape.queries * shape.depth), std::numeric_limits<double>::quiet_NaN());
  return memory;
}

bool sees(const Shape& shape, Seen seen, std::int64_t i, std::int64_t j) {
  const std::int64_t own = i + shape.keys - shape.queries;
  return seen == Seen::all || (j <= own && (seen == Seen::causal || j > own - shape.window));
}

/// The definition, row by row; `softmax` false: scores are the weights.
std::vector<double> definition(const Memory& memory, const Shape& shape, Seen seen, bool softmax) {
  std::vector<double> out;
  const auto at = [&](const char* name, std::int64_t rows, std::int64_t h, std::int64_t row, int d) {
    return memory.at(name)[static_cast<std::size_t>((h * rows + row) * shape.depth + d)];
  };
  for (std::int64_t h = 0; h < kHeads; ++h) {
    for (std::int64_t i = 0; i < shape.queries; ++i) {
      std::vector<double> sums(shape.depth, 0);
      double total = 0;
      for (std::int64_t j = 0; j < shape.keys; ++j) {
        if (!sees(shape, seen, i, j)) continue;
        double score = 0;
        for (int e = 0; e < shape.depth; ++e) score += at("q", shape.queries, h, i, e) * at("k", shape.keys, h, j, e);
        const double weight = softmax ? std::exp(kScale * score) : kScale * score;
        total += weight;
        for (int d = 0; d < shape.depth; ++d) sums[static_cast<std::size_t>(d)] += weight * at("v", shape.keys, h, j, d);
      }
      for (const double sum : sums) out.push_back(softmax ? sum / total : sum);
    }
  }
  return out;
}

/// Largest |difference| / (1 + |expected|); infinite where a value is missing.
double worst(const std::vector<double>& expected, const std::vector<double>& got) {
  double most = 0;
  for (std::size_t k = 0; k < expected.size(); ++k) {
    const double error = std::abs(got.at(k) - expected[k]) / (1 + std::abs(expected[k]));
    most = std::max(most, std::isfinite(error) ? error : std::numeric_limits<double>::infinity());
  }
  return most;
}

struct Case {
  std::string name;
  AttentionForm form;
  TensorSteps steps;
};
std::ostream& operator<<(std::ostream& out, const Case& test) { return out << test.name; }

std::vector<Shape> shapes_for(Seen seen) {
  if (seen == Seen::all) return {{1, 1}, {63, 65}, {64, 64}, {65, 63}, {200, 200}, {70, 1}};
  if (seen == Seen::causal) return {{1, 1}, {63, 63}, {64, 65}, {65, 65}, {200, 200}, {33, 170}};
  return {{1, 1, 1}, {64, 64, 5}, {65, 130, 64}, {200, 200, 1}, {130, 200, 70}, {63, 65, 500}};
}

double run(const TileProgram& program, const Shape& shape, ElementType type, Seen seen, bool softmax, const TensorRun& options) {
  const PlannedTensor planned(program);
  Memory memory = random_memory(shape, type);
  const std::vector<double> expected = definition(memory, shape, seen, softmax);
  TensorInterpreter(planned.plan, sizes_of(shape), {{"scale", kScale}}, memory, options).run();
  return worst(expected, memory.at("out"));
}

class Attention : public ::testing::TestWithParam<Case> {};

TEST_P(Attention, without_rounding_the_plan_is_the_definition) {
  const Seen seen = GetParam().form.seen;
  const TileProgram program = tensor_program(attention_nest(GetParam().form), GetParam().steps);
  unsigned seed = 0;
  for (const Shape& shape : shapes_for(seen)) {
    const TensorRun options{.round_operands = false, .blocks = 2, .seed = ++seed};
    EXPECT_LT(run(program, shape, GetParam().form.type, seen, true, options), 1e-9) << shape.queries << " x " << shape.keys;
  }
}

std::vector<Case> cases() {
  std::vector<Case> result;
  const std::vector<std::string> plain{}, overlap{"overlap(out.io)"},
      all{"overlap(out.io)", "turns(out.io)", "hold(out.io)", "persistent(out.io, 1)"};
  for (const auto& [name, seen] :
       {std::pair("full", Seen::all), std::pair("causal", Seen::causal), std::pair("window", Seen::window)}) {
    const AttentionForm form{.seen = seen, .result = ElementType::f32, .depth = kDepth};
    const TensorSteps one{.rows = 64, .columns = 32, .groups = 1}, two{.rows = 128, .columns = 64};
    const auto with = [](TensorSteps steps, std::vector<std::string> more) {
      steps.more = std::move(more);
      return steps;
    };
    const std::string prefix = std::string(name) + "_";
    result.push_back({prefix + "plain", form, with(one, plain)});
    result.push_back({prefix + "overlap", form, with(two, overlap)});
    result.push_back({prefix + "everything", form, with(two, all)});
    result.push_back({prefix + "turns_in_persistent_blocks", form, with(one, {"turns(out.io)", "persistent(out.io, 1)"})});
    result.push_back({prefix + "odd_tiles", form, with({.rows = 96, .columns = 40, .groups = 3, .slots = 3}, overlap)});
    result.push_back({prefix + "two_row_tiles", form, with({.rows = 128, .columns = 24, .groups = 1}, {"hold(out.io)"})});
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Tensor, Attention, ::testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

TEST(TensorRuns, rounded_operands_and_results_stay_within_their_precision) {
  for (const auto& [type, tolerance] : {std::pair(ElementType::f16, 2e-3), std::pair(ElementType::bf16, 1.6e-2)}) {
    for (const Seen seen : {Seen::all, Seen::causal, Seen::window}) {
      const TileProgram program =
          tensor_program(attention_nest({seen, type, type, kDepth}), {.more = {"overlap(out.io)", "persistent(out.io, 1)"}});
      const double error = run(program, {130, 200, 70}, type, seen, true, {});
      EXPECT_LT(error, tolerance);
      EXPECT_GT(error, 0);  // operands were rounded indeed
    }
  }
}

TEST(TensorRuns, rows_that_fill_no_whole_step_or_block) {
  for (const int depth : {40, 72}) {  // products take 16 at a time, copies 64
    const AttentionForm form{.seen = Seen::causal, .result = ElementType::f32, .depth = depth};
    for (const char* more : {"overlap(out.io)", "hold(out.io)"}) {
      const TileProgram program = tensor_program(attention_nest(form), {.rows = 64, .columns = 32, .groups = 1, .more = {more}});
      EXPECT_LT(run(program, {65, 100, 0, depth}, form.type, form.seen, true, {.round_operands = false}), 1e-9) << depth;
    }
  }
}

TEST(TensorRuns, two_products_that_are_no_attention) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"overlap(out.io)"}}) {
    const TileProgram program =
        tensor_program(linear_attention_nest(ElementType::f16, kDepth), {.rules = {}, .columns = 32, .more = more});
    for (const Shape& shape : shapes_for(Seen::causal)) {
      EXPECT_LT(run(program, shape, ElementType::f16, Seen::causal, false, {.round_operands = false}), 1e-9);
      EXPECT_LT(run(program, shape, ElementType::f16, Seen::causal, false, {}), 4e-3);
    }
  }
}

}  // namespace
}  // namespace nestor::testing
