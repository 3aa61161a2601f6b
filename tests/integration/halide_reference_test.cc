// Every operator of kernels/, at small odd sizes: the extracted nest, run instance by instance, gives what Halide gives.
#include <gtest/gtest.h>

#include "operator.h"
#include "poly/nest/nest_json.h"
#include "support/test_names.h"
#include "unit/frontend/frontend_halide_run.h"

namespace {

using nestor::Nest;
using nestor::Sizes;

/// Small sizes by the roles that size names have in kernels/: odd, all different, the smallest allowed among them.
Sizes small_sizes(const Nest& nest, bool smallest) {
  static const Sizes kKnown{{"rows", 5},   {"width", 7},  {"m", 5},        {"n", 7},         {"k", 3},
                            {"batch", 2},  {"heads", 3},  {"queries", 3},  {"keys", 5},      {"head_dim", 3},
                            {"window", 2}, {"height", 6}, {"steps", 3},    {"value_dim", 2}, {"key_heads", 3},
                            {"group", 2},  {"prefix", 2}, {"dilation", 2}, {"hidden", 4}};
  Sizes sizes;
  for (const nestor::SizeParam& size : nest.sizes) {
    const auto known = kKnown.find(size.name);
    sizes[size.name] = smallest || known == kKnown.end() ? size.min : known->second;
  }
  return sizes;
}

class HalideReference : public ::testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(HalideReference, NestComputesWhatHalideComputes) {
  const nestor::HalideDefinition definition = nestor::kernels::define(GetParam().first, GetParam().second);
  // Through JSON, as programs without Halide get it.
  const Nest nest = nestor::nest_from_json(nestor::nest_to_json(nestor::extract_nest(definition)));
  nestor::testing::HalideRun by_halide(definition);
  for (const bool smallest : {false, true}) {
    const Sizes sizes = nestor::complete_sizes(nest, small_sizes(nest, smallest));
    std::map<std::string, double> scalars;
    for (const nestor::ScalarParam& scalar : nest.scalars) scalars[scalar.name] = scalar.default_value;
    const auto inputs = nestor::testing::make_inputs(nest, sizes);
    nestor::testing::Interpreter interpreter(nest, sizes, scalars, inputs);
    const auto& found = interpreter.run();
    const auto expected = by_halide(nest, sizes, scalars, inputs);
    ASSERT_FALSE(expected.empty());
    for (const auto& [name, tensor] : expected) {
      EXPECT_LE(nestor::testing::distance(found.at(name), tensor), nest.tolerance)
          << name << (smallest ? " at the smallest sizes" : "");
    }
  }
}

std::vector<std::pair<std::string, std::string>> all_variants() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const nestor::kernels::Operator& op : nestor::kernels::operators()) {
    for (const std::string& variant : op.variants) all.emplace_back(op.name, variant);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kernels, HalideReference, ::testing::ValuesIn(all_variants()), nestor::testing::variant_test_name);

}  // namespace
