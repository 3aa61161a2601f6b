// Tile programs of scheduled nests, for tests of back ends: what rules and steps make, not what a test writes by hand.
#pragma once

#include "codegen/tile/tile_program.h"
#include "poly/schedule.h"
#include "support/algebra_nests.h"

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

}  // namespace nestor::testing
