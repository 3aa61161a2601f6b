// Tensor kernels whose blocks share tiles within a cluster (compute capability 9.0): every way to share them out, ragged sizes, blocks
// without rows, resident blocks.
#pragma once

#include "support/nests/tensor_nests.h"
#include "support/simt/simt_cases.h"

#include <string>
#include <utility>
#include <vector>

namespace nestor::testing {

inline std::vector<SimtCase> tensor_cluster_cases() {
  constexpr ElementType bf16 = ElementType::bf16;
  const CheckOptions half{.tolerance = 3e-3}, bfloat{.tolerance = 2.5e-2};
  const std::string pair = "cluster(out.io, 2)", resident = "persistent(out.io, 1)";
  std::vector<SimtCase> list;
  const auto add = [&](const std::string& name, const AttentionForm& form, const TensorSteps& steps, Sizes sizes) {
    list.push_back(
        {name, [=] { return tensor_program(attention_nest(form), steps); }, std::move(sizes), form.type == bf16 ? bfloat : half});
  };
  const Sizes ragged{{"H", 1}, {"Q", 270}, {"K", 300}}, second_without_rows{{"H", 3}, {"Q", 40}, {"K", 33}};
  add("rows_of_tiles", {}, {.rows = 128, .columns = 32, .warpgroups = 1, .more = {pair}}, ragged);
  add("second_block_without_rows", {}, {.rows = 256, .columns = 64, .more = {"intra_warpgroup_overlap(out.io)", pair}},
      second_without_rows);
  add("columns_of_tiles", {.depth = 128},
      {.rows = 256,
       .columns = 128,
       .more = {"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)", "early_release(out.io)", pair}},
      ragged);
  add("wide", {.depth = 256},
      {.rows = 256, .columns = 80, .more = {"intra_warpgroup_overlap(out.io)", "early_release(out.io)", pair}}, ragged);
  add("one_slot", {.depth = 128}, {.rows = 256, .columns = 64, .stages = 1, .more = {pair}}, ragged);
  add("four_blocks", {}, {.rows = 256, .columns = 64, .warpgroups = 1, .stages = 3, .more = {"cluster(out.io, 4)"}}, ragged);
  add("biased", {.biased = true}, {.rows = 256, .columns = 64, .more = {pair}}, {{"H", 2}, {"Q", 264}, {"K", 304}});
  add("causal_resident", {.seen = Seen::causal, .type = bf16, .result = bf16, .depth = 16},
      {.rows = 256, .columns = 64, .more = {"intra_warpgroup_overlap(out.io)", "a_from_registers(out.io)", resident, pair}},
      {{"H", 40}, {"Q", 270}, {"K", 270}});
  add("window", {.seen = Seen::window, .result = ElementType::f32}, {.rows = 256, .columns = 64, .more = {pair}},
      {{"H", 2}, {"Q", 300}, {"K", 350}, {"W", 100}});
  return list;
}

}  // namespace nestor::testing
