// Tensor kernels of compute capability 8.0 that code must get right, emulated and on a device: every way to share the work, ragged sizes,
// rows that start anywhere.
#pragma once

#include "support/nests/tensor_nests.h"
#include "support/simt/simt_cases.h"
#include "support/tensor/product_nests.h"

#include <string>
#include <utility>
#include <vector>

namespace nestor::testing {

inline std::vector<SimtCase> tensor_mma_cases() {
  constexpr ElementType f32 = ElementType::f32, bf16 = ElementType::bf16;
  const CheckOptions half{.tolerance = 3e-3}, bfloat{.tolerance = 2.5e-2};
  const TensorSteps small{.rows = 64, .columns = 32, .warpgroups = 1};
  const auto with = [](TensorSteps steps, int stages, std::vector<std::string> more) {
    steps.stages = stages;
    steps.more = std::move(more);
    return steps;
  };
  std::vector<SimtCase> list;
  const auto add = [&](const std::string& name, const AttentionForm& form, const TensorSteps& steps, Sizes sizes,
                       CheckOptions options) {
    list.push_back({name, [=] { return tensor_program(attention_nest(form), steps); }, std::move(sizes), options});
  };
  const Sizes ragged{{"H", 2}, {"Q", 70}, {"K", 100}};
  add("full", {.depth = 32}, small, ragged, half);
  add("one_slot", {.depth = 32}, with(small, 1, {}), ragged, half);
  add("overlap", {.depth = 16}, with(small, 2, {"intra_warpgroup_overlap(out.io)"}), {{"H", 1}, {"Q", 64}, {"K", 161}}, half);
  add("overlap_one_slot", {.depth = 16}, with(small, 1, {"intra_warpgroup_overlap(out.io)"}), {{"H", 1}, {"Q", 64}, {"K", 161}},
      half);
  add("causal_three_slots", {.seen = Seen::causal, .depth = 16},
      with(small, 3, {"intra_warpgroup_overlap(out.io)", "a_from_registers(out.io)"}), {{"H", 1}, {"Q", 130}, {"K", 150}}, half);
  add("resident", {.seen = Seen::causal, .type = bf16, .result = bf16, .depth = 32},
      with({.rows = 128, .columns = 32, .warpgroups = 2}, 2, {"persistent(out.io, 1)", "a_from_registers(out.io)"}),
      {{"H", 3}, {"Q", 200}, {"K", 200}}, bfloat);
  add("window", {.seen = Seen::window, .result = f32, .depth = 16}, small, {{"H", 1}, {"Q", 100}, {"K", 120}, {"W", 33}}, half);
  add("odd_columns", {.depth = 40}, {.rows = 64, .columns = 40, .warpgroups = 1}, ragged, half);
  // Tiles that the next product's step makes wider than the ops that read the argument.
  add("biased_narrow", {.depth = 16, .biased = true}, {.rows = 64, .columns = 8, .warpgroups = 1},
      {{"H", 3}, {"Q", 24}, {"K", 40}}, half);
  list.push_back({"biased_few_keys",
                  [=] {
                    const Nest nest = attention_nest({.depth = 16, .biased = true});
                    return tensor_program(fix_sizes(nest, {{"Q", 8}, {"K", 8}}), small);
                  },
                  {{"H", 5}},
                  half});
  add("two_row_tiles", {.depth = 72}, {.rows = 128, .columns = 32, .warpgroups = 1}, {{"H", 1}, {"Q", 129}, {"K", 40}}, half);
  const TensorSteps lazy{.rules = lazy_rules(1), .rows = 64, .columns = 16, .warpgroups = 1};
  add("maximum_stays_behind", {.depth = 32}, lazy, ragged, half);
  add("causal_maximum_stays_behind", {.seen = Seen::causal, .depth = 16}, with(lazy, 2, {"intra_warpgroup_overlap(out.io)"}),
      {{"H", 1}, {"Q", 70}, {"K", 150}}, half);
  add("unrolled", {.depth = 16}, with(lazy, 3, {"unroll(total.jo, 3)"}), {{"H", 1}, {"Q", 64}, {"K", 16 * 8 + 5}}, half);
  add("unrolled_overlap", {.seen = Seen::causal, .depth = 16},
      with(lazy, 2, {"intra_warpgroup_overlap(out.io)", "unroll(total.jo)"}), {{"H", 1}, {"Q", 65}, {"K", 200}}, half);
  // Rows that no copy of 16 bytes can start at.
  CheckOptions misaligned = half, padded = half, aligned = half;
  misaligned.misalignment = 1;
  padded.row_padding = 3;
  aligned.row_padding = 8;
  add("misaligned", {.depth = 32}, small, ragged, misaligned);
  add("odd_row_stride", {.depth = 32}, with(small, 1, {}), ragged, padded);
  add("even_row_stride", {.depth = 32}, small, ragged, aligned);
  const auto product = [&](const std::string& name, const ProductForm& form, const ProductSteps& choice, Sizes sizes,
                           CheckOptions options) {
    list.push_back({name, [=] { return product_program(form, choice); }, std::move(sizes), options});
  };
  const ProductSteps narrow{.rows = 64, .columns = 64, .depth = 32, .warpgroups = 1};
  product("product", {}, narrow, {{"M", 70}, {"N", 136}, {"K", 100}}, half);
  product("product_transposed", {.type = bf16, .result = bf16, .transposed = true},
          {.rows = 128, .columns = 32, .depth = 16, .stages = 3}, {{"M", 130}, {"N", 40}, {"K", 50}}, bfloat);
  product("product_odd_rows", {}, narrow, {{"M", 65}, {"N", 99}, {"K", 33}}, half);
  product("product_odd_row_stride", {}, narrow, {{"M", 64}, {"N", 67}, {"K", 40}}, padded);
  product("product_even_row_stride", {}, narrow, {{"M", 64}, {"N", 76}, {"K", 36}}, aligned);
  product("product_gated", {.gated = true}, narrow, {{"M", 70}, {"N", 72}, {"K", 48}}, half);
  product("product_wide_results", {.result = f32}, narrow, {{"M", 30}, {"N", 70}, {"K", 64}}, half);
  list.push_back({"linear",
                  [] { return tensor_program(linear_attention_nest(ElementType::f16, 32), {.rules = {}, .columns = 32}); },
                  ragged, half});
  return list;
}

/// Cases of a size that only a device is fast enough for.
inline std::vector<SimtCase> large_tensor_mma_cases() {
  constexpr ElementType bf16 = ElementType::bf16;
  const CheckOptions half{.tolerance = 3e-3}, bfloat{.tolerance = 2.5e-2};
  const Sizes sizes{{"H", 2}, {"Q", 250}, {"K", 300}};
  std::vector<SimtCase> list;
  const auto add = [&](const std::string& name, const AttentionForm& form, const TensorSteps& steps,
                       const CheckOptions& options) {
    list.push_back({name, [=] { return tensor_program(attention_nest(form), steps); }, sizes, options});
  };
  for (const int stages : {1, 2, 3}) {
    const std::string name = "_" + std::to_string(stages) + "_slots";
    add("full_128" + name, {.depth = 128}, {.columns = 64, .stages = stages}, half);
    add("causal_128_bf16" + name, {Seen::causal, bf16, bf16, 128},
        {.columns = 32, .stages = stages, .more = {"intra_warpgroup_overlap(out.io)"}}, bfloat);
    add("causal_64_two_row_tiles" + name, {.seen = Seen::causal},
        {.columns = 64, .warpgroups = 1, .stages = stages, .more = {"a_from_registers(out.io)"}}, half);
    add("resident_64" + name, {.seen = Seen::causal},
        {.stages = stages, .more = {"intra_warpgroup_overlap(out.io)", "a_from_registers(out.io)", "persistent(out.io, 1)"}},
        half);
  }
  return list;
}

}  // namespace nestor::testing
