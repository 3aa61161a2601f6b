// Two products in a row with a stored 16-bit tensor between them, each in a kernel of its own on tensor cores.
#pragma once

#include "support/nests/tensor_nests.h"

#include <algorithm>
#include <string>
#include <vector>

namespace nestor::testing {

/// low = f16(a b), out = f16(low c). `middle`: columns of low, a size or a number.
inline Nest product_chain_nest(const std::string& middle = "P") {
  using namespace samples;
  const ElementType f16 = ElementType::f16;
  const auto wide = [&](int k) { return ScalarExpr::cast(ElementType::f32, read(k, f16)); };
  const auto cell = [](const std::string& columns) { return "0 <= i < M and 0 <= j < " + columns; };
  std::vector<std::pair<std::string, std::int64_t>> sizes{{"M", 200}, {"N", 200}, {"K", 200}};
  if (middle == "P") sizes.emplace_back("P", 200);
  return NestBuilder("chain", sizes)
      .tensor("a", TensorRole::input, {"M", "K"}, f16)
      .tensor("b", TensorRole::input, {"K", middle}, f16)
      .tensor("c", TensorRole::input, {middle, "N"}, f16)
      .tensor("low_sum", TensorRole::temporary, {"M", middle})
      .tensor("low", TensorRole::temporary, {"M", middle}, f16)
      .tensor("sum", TensorRole::temporary, {"M", "N"})
      .tensor("out", TensorRole::output, {"M", "N"}, f16)
      .statement("low_sum_init[i, j] : " + cell(middle), "low_sum[i, j]", {}, number(0))
      .statement("low_sum[i, j, k] : " + cell(middle) + " and 0 <= k < K", "low_sum[i, j]", {"a[i, k]", "b[k, j]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("low[i, j] : " + cell(middle), "low[i, j]", {"low_sum[i, j]"}, ScalarExpr::cast(f16, read(0)))
      .statement("sum_init[i, j] : " + cell("N"), "sum[i, j]", {}, number(0))
      .statement("sum[i, j, k] : " + cell("N") + " and 0 <= k < " + middle, "sum[i, j]", {"low[i, k]", "c[k, j]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("out[i, j] : " + cell("N"), "out[i, j]", {"sum[i, j]"}, ScalarExpr::cast(f16, read(0)))
      .build();
}

/// Steps of a product `sum` whose result `out` stores: tiles of 64 x 32; the sum in tiles of 32 terms, or in one tile.
inline std::vector<std::string> product_steps(const std::string& sum, const std::string& out, bool streamed = true) {
  std::vector<std::string> steps;
  for (const std::string& name : {sum + "_init", sum, out}) {
    const bool tiles = streamed && name == sum;
    steps.push_back(fmt::format("split({0}.i, 64, {0}.io, {0}.ii)", name));
    steps.push_back(fmt::format("split({0}.j, 32, {0}.jo, {0}.ji)", name));
    if (tiles) steps.push_back(fmt::format("split({0}.k, 32, {0}.ko, {0}.ki)", name));
    steps.push_back(fmt::format("reorder({0}.io, {0}.jo, {1}{0}.ii, {0}.ji{2})", name, tiles ? name + ".ko, " : "",
                                tiles         ? ", " + name + ".ki"
                                : name == sum ? ", " + name + ".k"
                                              : ""));
  }
  for (const auto& [name, next] : {std::pair(sum + "_init", sum), std::pair(sum, out)}) {
    for (const char* loop : {"io", "jo"}) steps.push_back(fmt::format("fuse_with({}.{}, {}.{})", name, loop, next, loop));
  }
  steps.push_back(fmt::format("gpu_blocks({0}.io, {0}.jo)", out));
  steps.push_back(fmt::format("tensor_cores({0}.io, 1, 2)", out));
  return steps;
}

/// A kernel for each product. The second sum is one tile where the columns of low are a number.
inline TileProgram product_chain(const Nest& nest, const std::vector<std::string>& more = {}) {
  const bool streamed = std::any_of(nest.sizes.begin(), nest.sizes.end(), [](const SizeParam& size) { return size.name == "P"; });
  std::vector<std::string> steps{"apply_rule reassociate"};
  for (std::string& step : product_steps("low_sum", "low")) steps.push_back(std::move(step));
  for (std::string& step : product_steps("sum", "out", streamed)) steps.push_back(std::move(step));
  steps.insert(steps.end(), more.begin(), more.end());
  Schedule schedule{nest};
  for (const std::string& step : steps) schedule = schedule.apply(parse_step(step));
  return build_tile_program(schedule);
}

}  // namespace nestor::testing
