// The table of knobs: from step to value of a loop, to parameter of the search, to member of a plan.
#include "support/knobs.h"

#include "support/error.h"

#include <fmt/format.h>

#include <algorithm>

namespace nestor {
namespace {

using Shape = GridShape;
constexpr int kHopper =
    90;  ///< first compute capability with clusters, tensor copies and products that run while their warpgroup goes on

std::vector<KnobStep> make_table() {
  return {
      {.name = "gpu_threads",
       .knobs = {{.name = "threads",
                  .member = &Shape::threads,
                  .otherwise = 0,
                  .argument = "count",
                  .least = 32,
                  .most = 1024,
                  .values = Knob::Values::multiples_of_32,
                  .text = "{} threads",
                  .searched = {32, 64, 128, 256, 512, 1024}}},
       .help = "threads of a block of this grid"},
      {.name = "tensor_cores",
       .knobs = {{.name = "warpgroups",
                  .member = &Shape::warpgroups,
                  .otherwise = 0,
                  .argument = "warpgroups",
                  .least = 1,
                  .most = 3,  // 512 threads with the producer: what registers allow
                  .text = "{} warpgroups on tensor cores",
                  .searched = {0, 1, 2, 3},
                  .searched_mma = {0, 1, 2, 3},
                  .formerly = {"groups"}},
                 {.name = "stages",
                  .member = &Shape::stages,
                  .otherwise = 2,
                  .argument = "stages",
                  .optional = true,
                  .without = 2,
                  .least = 1,
                  .most = 16,
                  .text = "{} stages",
                  .searched = {2, 3, 4},
                  .searched_mma = {1, 2, 3},
                  .formerly = {"slots"}}},
       .help =
           "products on tensor cores, operands rounded to 16 bits: consumer warpgroups, stages of each operand's circular buffer",
       .missing = "the grid of {} does not use tensor cores",
       .remedy = "tensor_cores({}, 2)"},
      {.name = "intra_warpgroup_overlap",
       .formerly = {"overlap"},
       .knobs = {{.name = "intra_warpgroup_overlap",
                  .member = &Shape::intra_warpgroup_overlap,
                  .otherwise = 0,
                  .argument = "in_flight",
                  .optional = true,
                  .least = 1,
                  .most = 2,  // one more chain would need registers for another tile of sums
                  .offset = 1,
                  .least_sm = kHopper,
                  .needing = 2,
                  .text = "intra-warpgroup overlap chain by chain, {} in flight",
                  .text_without = "intra-warpgroup overlap",
                  .searched = {0, 1, 2, 3},
                  .searched_mma = {0, 1},
                  .formerly = {"overlap"}}},
       .needs = {"tensor_cores"},
       .help = "products that only the next iteration needs run beside its first ones; with in_flight: independent chains of "
               "products "
               "one by one, the first products of so many in flight"},
      {.name = "ping_pong",
       .formerly = {"turns"},
       .knobs = {{.name = "ping_pong",
                  .member = &Shape::ping_pong,
                  .otherwise = 0,
                  .least_sm = kHopper,
                  .text = "ping-pong",
                  .searched = {0, 1},
                  .formerly = {"turns"}}},
       .needs = {"tensor_cores"},
       .help = "warpgroups issue their products in turn, so that one computes while another multiplies"},
      {.name = "a_from_registers",
       .formerly = {"hold"},
       .knobs = {{.name = "a_from_registers",
                  .member = &Shape::a_from_registers,
                  .otherwise = 0,
                  .text = "A operand from registers",
                  .searched = {0, 1},
                  .searched_mma = {0, 1},
                  .formerly = {"hold"}}},
       .needs = {"tensor_cores"},
       .help = "a first operand that stays for the whole iteration is read into registers once"},
      {.name = "early_release",
       .formerly = {"stagger"},
       .knobs = {{.name = "early_release",
                  .member = &Shape::early_release,
                  .otherwise = 0,
                  .text = "early release",
                  .searched = {0, 1},
                  .formerly = {"stagger"}}},
       .needs = {"tensor_cores"},
       .help = "stages are released in the middle of the exponentials behind their product"},
      {.name = "exp2_polynomial",
       .formerly = {"polynomial"},
       .knobs = {{.name = "exp2_polynomial",
                  .member = &Shape::exp2_polynomial,
                  .otherwise = 0,
                  .argument = "sixteenths",
                  .most = 16,
                  .text = "{}/16 of exponentials by polynomial",
                  .searched = {0, 1, 2, 4, 6, 8, 10, 12},
                  .formerly = {"polynomial"}}},
       .needs = {"tensor_cores"},
       .help = "so many sixteenths of a tile's exponentials are computed by a polynomial on the FMA units"},
      {.name = "operand_halves",
       .knobs = {{.name = "operand_halves",
                  .member = &Shape::operand_halves,
                  .otherwise = 0,
                  .text = "computed operands in two halves",
                  .searched = {0, 1},
                  .searched_mma = {0, 1}}},
       .needs = {"tensor_cores"},
       .help = "first operands that are computed in f32 are multiplied as sums of two 16-bit numbers, not rounded to one"},
      {.name = "swap_ab",
       .knobs = {{.name = "swap_ab", .member = &Shape::swap_ab, .otherwise = 0, .text = "operands swapped", .searched = {0, 1}}},
       .needs = {"tensor_cores"},
       .help =
           "products are transposed: the second operand's columns are their rows, of which an instruction has 64, and few rows "
           "of the first one their columns"},
      {.name = "persistent",
       .knobs = {{.name = "persistent",
                  .member = &Shape::persistent,
                  .otherwise = 0,
                  .argument = "blocks",
                  .least = 1,
                  .most = 32,
                  .text = "{} persistent blocks a multiprocessor",
                  .searched = {0, 1, 2, 3, 4, 6, 8, 12, 16}}},
       .help = "so many GPU blocks a multiprocessor, each taking iterations in turn (static tile scheduler)",
       .missing = "the blocks of {} do not stay for several iterations",
       .remedy = "persistent({}, 1)"},
      {.name = "ping_pong_tiles",
       .knobs = {{.name = "ping_pong_tiles",
                  .member = &Shape::ping_pong_tiles,
                  .otherwise = 0,
                  .least_sm = kHopper,
                  .text = "ping-pong by tiles",
                  .searched = {0, 1}}},
       .needs = {"persistent", "tensor_cores"},
       .help = "each warpgroup takes iterations of its own, in turn, so that one computes what is left of its tile beside the "
               "products of another"},
      {.name = "min_blocks",
       .formerly = {"residents"},
       .knobs = {{.name = "min_blocks",
                  .member = &Shape::min_blocks,
                  .otherwise = 0,
                  .argument = "blocks",
                  .least = 1,
                  .most = 32,
                  .text = "at least {} blocks a multiprocessor",
                  .searched = {1, 2, 3, 4},
                  .formerly = {"residents"}}},
       .help = "so many blocks of this grid shall fit a multiprocessor at once, which bounds their registers and shared memory"},
      {.name = "cluster",
       .knobs = {{.name = "cluster",
                  .member = &Shape::cluster,
                  .otherwise = 1,
                  .argument = "blocks",
                  .least = 1,
                  .most = 16,
                  .values = Knob::Values::powers_of_two,
                  .least_sm = kHopper,
                  .needing = 2,
                  .text = "clusters of {} blocks",
                  .searched = {1, 2, 4, 8, 16}}},
       .help = "so many GPU blocks take one iteration together; on tensor cores they multicast the tiles that all of them read"},
      {.name = "raster_group",
       .knobs = {{.name = "raster_group",
                  .member = &Shape::raster_group,
                  .otherwise = 1,
                  .argument = "iterations",
                  .least = 1,
                  .most = 1024,
                  .text = "raster groups of {}",
                  .searched = {1, 4, 8, 16},
                  .searched_mma = {1, 4, 8, 16}}},
       .needs = {"tensor_cores"},
       .help =
           "blocks take so many iterations of the grid's last loop but one with all of the last one before they go on, so that "
           "those at work share operands in the cache"},
      {.name = "dynamic_scheduler",
       .formerly = {"claims"},
       .knobs = {{.name = "dynamic_scheduler",
                  .member = &Shape::dynamic_scheduler,
                  .otherwise = 0,
                  .least_sm = kHopper,
                  .text = "dynamic tile scheduler",
                  .searched = {0, 1},
                  .formerly = {"claims"}}},
       .needs = {"persistent", "tensor_cores"},
       .help = "persistent blocks draw their next iteration from a counter instead of going round"},
      {.name = "scatter",
       .knobs = {{.name = "scatter", .member = &Shape::scatter, .otherwise = 0, .text = "scattered terms"}},
       .help = "where data says to which of many sums a term belongs, each thread goes through the terms once and takes those of "
               "its own sums"},
      {.name = "programmatic_launch",
       .knobs = {{.name = "programmatic_launch",
                  .member = &Shape::programmatic_launch,
                  .otherwise = 0,
                  .least_sm = kHopper,
                  .text = "programmatic launch"}},
       .help = "blocks of a kernel take their places while the kernel before it ends; they wait at their start until it is done"},
  };
}

/// Value of the knob on a loop.
std::int64_t value_on(const Knob& knob, const LoopKnobs& knobs) {
  const auto found = knobs.find(knob.name);
  return found == knobs.end() ? knob.otherwise : found->second;
}

}  // namespace

const std::vector<KnobStep>& knob_steps() {
  static const std::vector<KnobStep> table = make_table();
  return table;
}

const KnobStep* find_knob_step(std::string_view name) {
  const auto found =
      std::find_if(knob_steps().begin(), knob_steps().end(), [&](const KnobStep& step) { return step.name == name; });
  return found == knob_steps().end() ? nullptr : &*found;
}

const Knob& knob_named(std::string_view name) {
  for (const KnobStep& step : knob_steps()) {
    for (const Knob& knob : step.knobs) {
      if (knob.name == name) return knob;
    }
  }
  internal_error("there is no knob {}", name);
}

std::string arguments_of(const KnobStep& step) {
  std::string text = "loop";
  for (const Knob& knob : step.knobs) {
    if (*knob.argument != '\0') text += fmt::format(fmt::runtime(knob.optional ? "[, {}]" : ", {}"), knob.argument);
  }
  return text;
}

bool is_set(const KnobStep& step, const LoopKnobs& knobs) {
  return value_on(step.knobs.front(), knobs) != step.knobs.front().otherwise;
}

std::string describe(const LoopKnobs& knobs) {
  std::string text;
  for (const KnobStep& step : knob_steps()) {
    if (!is_set(step, knobs)) continue;
    for (const Knob& knob : step.knobs) {
      const std::int64_t value = value_on(knob, knobs);
      const bool plain = value == knob.without && *knob.text_without != '\0';
      text +=
          (text.empty() ? "" : ", ") + fmt::format(fmt::runtime(plain ? knob.text_without : knob.text), knob.argument_for(value));
    }
  }
  return text;
}

GridShape grid_shape(const LoopKnobs& knobs) {
  GridShape shape;
  for (const auto& [name, value] : knobs) shape.*knob_named(name).member = static_cast<int>(value);
  return shape;
}

LoopKnobs loop_knobs(const GridShape& shape) {
  LoopKnobs knobs;
  for (const KnobStep& step : knob_steps()) {
    for (const Knob& knob : step.knobs) {
      if (shape.*knob.member != knob.otherwise) knobs.emplace(knob.name, shape.*knob.member);
    }
  }
  return knobs;
}

void check_compute_capability(const GridShape& shape, const std::string& kernel, int sm) {
  for (const KnobStep& step : knob_steps()) {
    for (const Knob& knob : step.knobs) {
      if (shape.*knob.member < knob.needing || sm >= knob.least_sm) continue;
      const std::string how = knob.optional ? fmt::format(" with `{}`", knob.argument) : "";
      user_error("Kernel '{}': step `{}`{} needs compute capability {}.{} or newer, not {}.{}: leave {} out.", kernel, step.name,
                 how, knob.least_sm / 10, knob.least_sm % 10, sm / 10, sm % 10, knob.optional ? "the argument" : "the step");
    }
  }
}

}  // namespace nestor
