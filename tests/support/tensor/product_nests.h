// Plain products of matrices for tensor cores, whose sums are streamed: nests, schedules, and how far a plan's result is from the definition.
#pragma once

#include "support/nests/tensor_nests.h"
#include "support/tensor/tensor_interpreter.h"
#include "support/tensor/tensor_problem.h"

#include <string>
#include <vector>

namespace nestor::testing {

/// Terms that a product leaves out. triangle: those of k > i. head: those from kHeadTerms on, of tiles that have more.
enum class Terms { all, triangle, head };
inline constexpr int kHeadTerms = 40;

struct ProductForm {
  ElementType type = ElementType::f16;
  ElementType result = ElementType::f16;
  bool transposed = false;  ///< b is [n, k]
  Terms terms = Terms::all;
  bool gated = false;      ///< times the same sum for c in the place of b
  bool read_back = false;  ///< twice[i, j] = sum[i, j] + out[i, j], in the same kernel
};

inline std::vector<std::string> factors_of(const ProductForm& form) {
  return form.gated ? std::vector<std::string>{"b", "c"} : std::vector<std::string>{"b"};
}

/// out[i, j] = sum over k of a[i, k] b[k, j].
inline Nest product_nest(const ProductForm& form = {}) {
  using namespace samples;
  const std::string element = "0 <= i < M and 0 <= j < N";
  std::string point = element + " and 0 <= k < K";
  if (form.terms == Terms::triangle) point += " and k <= i";
  if (form.terms == Terms::head) point = element + " and 0 <= k < " + std::to_string(kHeadTerms);
  const auto wide = [&](int k) { return ScalarExpr::cast(ElementType::f32, read(k, form.type)); };
  const std::vector<std::string> b = form.transposed ? std::vector<std::string>{"N", "K"} : std::vector<std::string>{"K", "N"};
  NestBuilder nest("product", {{"M", 200}, {"N", 200}, {"K", 200}});
  if (form.terms == Terms::triangle) nest.context("K >= M");
  if (form.terms == Terms::head) nest.context("K >= 64");
  nest.tensor("a", TensorRole::input, {"M", "K"}, form.type);
  std::vector<std::string> sums;
  for (const std::string& factor : factors_of(form)) {
    const std::string sum = "sum" + (factor == "b" ? std::string() : "_" + factor);
    nest.tensor(factor, TensorRole::input, b, form.type)
        .tensor(sum, TensorRole::temporary, {"M", "N"})
        .statement(sum + "_init[i, j] : " + element, sum + "[i, j]", {}, number(0))
        .statement(sum + "[i, j, k] : " + point, sum + "[i, j]", {"a[i, k]", factor + (form.transposed ? "[j, k]" : "[k, j]")},
                   wide(0) * wide(1), ReductionOp::add);
    sums.push_back(sum + "[i, j]");
  }
  const ScalarExpr result = form.gated ? read(0) * read(1) : read(0);
  const auto narrow = [&](const ScalarExpr& value) {
    return form.result == ElementType::f32 ? value : ScalarExpr::cast(form.result, value);
  };
  nest.tensor("out", TensorRole::output, {"M", "N"}, form.result)
      .statement("out[i, j] : " + element, "out[i, j]", sums, narrow(result));
  if (form.read_back) {
    nest.tensor("twice", TensorRole::output, {"M", "N"}, form.result)
        .statement("twice[i, j] : " + element, "twice[i, j]", {"sum[i, j]", "out[i, j]"},
                   narrow(read(0) + ScalarExpr::cast(ElementType::f32, read(1, form.result))));
  }
  return nest.build();
}

struct ProductSteps {
  int rows = 128, columns = 64, depth = 32, warpgroups = 2, stages = 2;
  std::vector<std::string> more{};
};

inline TileProgram product_program(const ProductForm& form, const ProductSteps& choice = {}) {
  std::vector<std::string> steps{"apply_rule reassociate"};
  std::vector<std::string> names = form.gated ? std::vector<std::string>{"sum_init", "sum", "sum_c_init", "sum_c", "out"}
                                              : std::vector<std::string>{"sum_init", "sum", "out"};
  if (form.read_back) names.emplace_back("twice");
  for (const std::string& name : names) {
    const bool sum = name == "sum" || name == "sum_c";
    steps.push_back(fmt::format("split({0}.i, {1}, {0}.io, {0}.ii)", name, choice.rows));
    steps.push_back(fmt::format("split({0}.j, {1}, {0}.jo, {0}.ji)", name, choice.columns));
    if (sum) steps.push_back(fmt::format("split({0}.k, {1}, {0}.ko, {0}.ki)", name, choice.depth));
    steps.push_back(fmt::format("reorder({0}.io, {0}.jo, {1}{0}.ii, {0}.ji{2})", name, sum ? name + ".ko, " : "",
                                sum ? ", " + name + ".ki" : ""));
  }
  for (std::size_t k = 0; k + 1 < names.size(); ++k) {
    for (const char* loop : {"io", "jo"})
      steps.push_back(fmt::format("fuse_with({}.{}, {}.{})", names[k], loop, names[k + 1], loop));
  }
  if (form.gated) steps.emplace_back("fuse_with(sum.ko, sum_c.ko)");
  steps.push_back(fmt::format("gpu_blocks({0}.io, {0}.jo)", names.back()));
  steps.push_back(fmt::format("tensor_cores({}.io, {}, {})", names.back(), choice.warpgroups, choice.stages));
  steps.insert(steps.end(), choice.more.begin(), choice.more.end());
  Schedule schedule{product_nest(form)};
  for (const std::string& step : steps) schedule = schedule.apply(parse_step(step));
  return build_tile_program(schedule);
}

struct ProductShape {
  std::int64_t m, n, k;
};

/// Runs the plan of `program` on random operands; the worst error of its result.
inline double product_error(const TileProgram& program, const ProductForm& form, const ProductShape& shape,
                            const TensorRun& options, const NvptxTarget& target = {}) {
  const PlannedTensor planned(program, target);
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  TensorMemory memory;
  for (const auto& [name, count] :
       {std::pair("a", shape.m * shape.k), std::pair("b", shape.k * shape.n), std::pair("c", shape.k * shape.n)}) {
    for (std::int64_t k = 0; k < count; ++k) {
      char bytes[8] = {};
      write_element(bytes, form.type, uniform(random));
      memory[name].push_back(read_element(bytes, form.type));
    }
  }
  memory["out"].assign(static_cast<std::size_t>(shape.m * shape.n), std::numeric_limits<double>::quiet_NaN());
  std::vector<double> expected;
  for (std::int64_t i = 0; i < shape.m; ++i) {
    for (std::int64_t j = 0; j < shape.n; ++j) {
      double result = 1;
      for (const std::string& factor : factors_of(form)) {
        double sum = 0;
        for (std::int64_t k = 0; k < shape.k; ++k) {
          const auto at = static_cast<std::size_t>(form.transposed ? j * shape.k + k : k * shape.n + j);
          sum += memory["a"][static_cast<std::size_t>(i * shape.k + k)] * memory[factor][at];
        }
        result *= sum;
      }
      expected.push_back(result);
    }
  }
  TensorInterpreter(planned.plan, {{"M", shape.m}, {"N", shape.n}, {"K", shape.k}}, {}, memory, options).run();
  return worst(expected, memory.at("out"));
}

}  // namespace nestor::testing
