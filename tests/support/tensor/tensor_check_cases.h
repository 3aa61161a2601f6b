// Plans of attention that the checker of tensor plans is tested with, and what goes wrong when one is run.
#pragma once

#include "codegen/gpu/kernel/kernel_split.h"
#include "codegen/gpu/mma/tensor_kernel.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_programs.h"
#include "support/tensor/tensor_plan_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace nestor::testing {

inline GridShape tensor_shape(int groups, int stages) {
  GridShape result;
  result.warpgroups = groups;
  result.stages = stages;
  return result;
}

struct TensorCheckCase {
  std::string name;
  bool causal;
  GridShape shape;
  int sm = 90;
  bool biased = false;
  int maps = 1;
  std::int64_t shared_limit = NvptxTarget{}.shared_limit;
};
inline void PrintTo(const TensorCheckCase& tested, std::ostream* out) { *out << tested.name; }

/// Two maps share their values.
inline TileProgram two_maps(bool causal) {
  const AttentionForm form{.seen = causal ? Seen::causal : Seen::all, .maps = 2};
  return tensor_program(attention_nest(form), {.rules = two_map_rules(), .rows = 64, .warpgroups = 1});
}

/// A plan of attention and what it points to.
struct CheckedAttention {
  nvptx::LaunchPlan launches;
  nvptx::TensorPlan plan;

  explicit CheckedAttention(const TensorCheckCase& tested)
      : launches(nvptx::plan_launches(tested.maps == 2
                                          ? two_maps(tested.causal)
                                          : streaming_attention_program(ElementType::f16, 64, tested.causal, tested.biased),
                                      256)) {
    launches.kernels.at(0).shape = tested.shape;
    NvptxTarget target;
    target.sm = tested.sm;
    target.shared_limit = tested.shared_limit;
    plan = nvptx::plan_tensor(launches.kernels[0], launches.program, target);
  }
};

inline std::vector<TensorCheckCase> tensor_check_cases() {
  GridShape overlap = tensor_shape(1, 2);
  overlap.intra_warpgroup_overlap = 1;
  GridShape all = tensor_shape(2, 2);
  all.intra_warpgroup_overlap = all.ping_pong = all.a_from_registers = all.persistent = all.early_release =
      all.dynamic_scheduler = 1;
  GridShape turns = tensor_shape(2, 1);
  turns.ping_pong = 1;
  std::vector<TensorCheckCase> list;
  for (const bool causal : {false, true}) {
    const std::string kind = causal ? "causal" : "full";
    list.push_back({"base_" + kind, causal, tensor_shape(1, 2)});
    list.push_back({"overlap_" + kind, causal, overlap});
    list.push_back({"all_" + kind, causal, all});
  }
  list.push_back({"turns_one_slot", false, turns});
  GridShape in_turn = tensor_shape(2, 3);
  in_turn.persistent = in_turn.ping_pong_tiles = 1;
  list.push_back({"tiles_in_turn", false, in_turn});
  in_turn.intra_warpgroup_overlap = 1;
  in_turn.cluster = 2;
  list.push_back({"cluster_tiles_in_turn", false, in_turn});
  GridShape resident = tensor_shape(2, 2);
  resident.intra_warpgroup_overlap = resident.a_from_registers = resident.persistent = 1;
  GridShape overlap_one = overlap, overlap_three = overlap;
  overlap_one.stages = 1;
  overlap_three.stages = 3;
  list.push_back({"sm80_one_slot", false, tensor_shape(2, 1), 80});
  list.push_back({"sm80_overlap_one_slot", false, overlap_one, 80});
  list.push_back({"sm80_overlap_three_slots", false, overlap_three, 80});
  list.push_back({"sm80_resident", true, resident, 80});
  GridShape biased = all;
  biased.early_release = biased.dynamic_scheduler = 0;
  list.push_back({"biased_all_causal", true, biased, 90, true});
  list.push_back({"biased_turns", false, turns, 90, true});
  GridShape cluster = tensor_shape(1, 2);
  cluster.cluster = 2;
  list.push_back({"cluster_full", false, cluster});
  cluster = biased;
  cluster.early_release = 1;
  cluster.cluster = 2;
  list.push_back({"cluster_all_causal", true, cluster});
  cluster = tensor_shape(1, 1);
  cluster.cluster = 4;
  list.push_back({"cluster_of_four", false, cluster});
  // Without room for results beside the other tiles.
  GridShape narrow = resident;
  narrow.a_from_registers = 0;
  list.push_back({"resident_without_room", false, narrow, 90, false, 1, 56 << 10});
  narrow.ping_pong = narrow.dynamic_scheduler = narrow.early_release = 1;
  list.push_back({"all_without_room_causal", true, narrow, 90, false, 1, 56 << 10});
  list.push_back({"two_maps_turns", false, turns, 90, false, 2});
  for (const int chains : {1, 2}) {
    GridShape by_chain = tensor_shape(1, 2), all_by_chain = all;
    by_chain.intra_warpgroup_overlap = all_by_chain.intra_warpgroup_overlap = 1 + chains;
    const std::string name = fmt::format("two_maps_{}_chains", chains);
    list.push_back({name, true, by_chain, 90, false, 2});
    list.push_back({name + "_all", false, all_by_chain, 90, false, 2});
  }
  return list;
}

/// The plan's first fault over sizes with no, one and many iterations, several work tiles, and orders of the roles.
inline std::string fault_of(const nvptx::TensorPlan& plan) {
  using Items = std::vector<TensorPlanRunner::Integers>;
  const auto work_tile = [](std::int64_t s, std::int64_t qt) {
    return TensorPlanRunner::Integers{{"heads", 2}, {"s", s}, {"d", 64}, {"h", 1},     {"qt", qt},
                                      {"H", 2},     {"Q", s}, {"K", s},  {"out_h", 1}, {"out_io", qt}};
  };
  std::vector<Items> runs = {{work_tile(0, -1), work_tile(0, -1), work_tile(90, 0)},
                             {work_tile(40, 0)},
                             {work_tile(128, 1), work_tile(128, 0)},
                             {work_tile(150, 2), work_tile(150, 0)},
                             {work_tile(330, 0), work_tile(330, 5), work_tile(330, 1)},
                             {work_tile(512, 7), work_tile(512, 3)}};
  // Nests have no sizes of 0.
  const std::vector<std::string>& sizes = plan.program->sizes;
  if (std::find(sizes.begin(), sizes.end(), "K") != sizes.end())
    runs.front() = {work_tile(1, 0), work_tile(1, 0), work_tile(90, 0)};
  // A block that is not resident has one work tile. Where one role copies it goes on well with more of them all the same.
  if (plan.cores == nvptx::TensorCores::mma && !plan.persistent()) {
    std::vector<Items> single;
    for (const Items& work_tiles : runs) {
      for (const TensorPlanRunner::Integers& one : work_tiles) single.push_back({one});
    }
    runs = std::move(single);
  }
  const unsigned orders = TensorPlanRunner::kOrders + 3 * static_cast<unsigned>(plan.cluster());
  for (const Items& work_tiles : runs) {
    TensorPlanRunner runner(plan, work_tiles);
    for (unsigned seed = 0; seed < orders; ++seed) {
      const std::string fault = runner.run(seed);
      if (!fault.empty()) return fault;
    }
  }
  return "";
}

}  // namespace nestor::testing
