// Tile programs of scheduled nests, for tests of back ends: what rules and steps make, not what a test writes by hand.
#pragma once

#include "codegen/tile/tile_program.h"
#include "poly/schedule/schedule.h"
#include "support/nests/algebra_nests.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace nestor::testing {

/// The biased scores of algebra_nests.h in one pass: a block for every 16 rows, columns in tiles of 32.
inline TileProgram scheduled_scores_program(bool prefix) {
  Schedule schedule(fix_sizes(samples::biased_scores(prefix), {{"D", 12}}));
  const auto step = [&](const std::string& text) { schedule = schedule.apply(parse_step(text)); };
  for (const char* rule : {"exp2_scale", "online, Mx_update", "reassociate"}) step(fmt::format("apply_rule({})", rule));
  const std::vector<std::string> all{"S", "Mx_init", "Mx_update", "E", "L_init", "L_update", "PV_init", "PV_update", "O", "lse"};
  for (const std::string& s : all) step(fmt::format("split({0}.i, 16, {0}.io, {0}.ii)", s));
  for (const char* s : {"S", "Mx_update", "E", "L_update", "PV_update"}) {
    step(fmt::format("split({0}.j, 32, {0}.jo, {0}.ji)", s));
    const std::string inner = s == std::string("PV_update") ? "PV_update.ii, PV_update.d" : fmt::format("{}.ii", s);
    step(fmt::format("reorder({0}.io, {0}.jo, {1}, {0}.ji)", s, inner));
  }
  for (std::size_t k = all.size() - 1; k-- > 0;) step(fmt::format("fuse_with({}.io, lse.io)", all[k]));
  for (const char* s : {"L_update", "E", "Mx_update", "S"}) step(fmt::format("fuse_with({}.jo, PV_update.jo)", s));
  step("gpu_blocks(lse.io)");
  return build_tile_program(schedule);
}

/// y[i, j] = a[i] + 2 x[i, j] by resident blocks, one column of two rows each: what a thread's vector of rows takes of x, which is copied
/// work tiles ahead, lies a row apart.
inline TileProgram strided_copies_program(int stages) {
  using samples::operator+, samples::operator*;
  Schedule schedule(samples::NestBuilder("strided_copies", {{"R", 32}, {"C", 4}})
                        .tensor("a", TensorRole::input, {"R"})
                        .tensor("x", TensorRole::input, {"R", "C"})
                        .tensor("y", TensorRole::output, {"R", "C"})
                        .statement("S[i, j] : 0 <= i < R and 0 <= j < C", "y[i, j]", {"a[i]", "x[i, j]"},
                                   samples::read(0) + samples::number(2) * samples::read(1))
                        .build());
  for (const std::string& text :
       {std::string("split(S.i, 2, S.io, S.ii)"), std::string("reorder(S.io, S.j, S.ii)"), std::string("gpu_blocks(S.io)"),
        std::string("gpu_blocks(S.j)"), std::string("gpu_threads(S.io, 32)"), std::string("persistent(S.io, 12)"),
        fmt::format("stage(x, S.j, {})", stages)})
    schedule = schedule.apply(parse_step(text));
  return build_tile_program(schedule);
}

}  // namespace nestor::testing
