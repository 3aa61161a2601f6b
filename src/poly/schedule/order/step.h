// One step of a schedule: a name and its arguments, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace nestor {

/// One step, as typed, stored and replayed: a name and its arguments in order. Arguments are strings or integers:
///   apply_rule(rule, target...)                      algebra; before any loop step
///   split(loop, factor, outer, inner)                v = factor*outer + inner, 0 <= inner < factor
///   tile(x, y, xo, yo, xi, yi, fx, fy)               split both, then reorder xo, yo, xi, yi
///   reorder(outermost, ..., innermost)               loops of one perfect chain
///   fuse_with(loop, consumer_loop)                   the two loops, children of one sequence, become one (named as the latter)
///   compute_at(statement, loop)                      fuse_with, from the outside in, until inside `loop`
///   fission(loop, statement)                         the body is cut before `statement`; the later part's loop gets "_f" appended
///   skew(x, y, factor)                               y' = y + factor*x; x outside y
///   shift(statement, loop, distance)                 the statement runs `distance` iterations later in `loop`
///   reverse(loop)                                    v' = -v
///   parallel(loop), vectorize(loop[, width]), unroll(loop[, factor]), serial(loop)
///   gpu_blocks(loop...), gpu_lanes(loop)
///   stage(tensor, loop[, stages])                    a copy of the part of `tensor` that one iteration of `loop` reads
///   specialize(loop)                                 full tiles apart from partial ones; empty ones are never visited
///   streaming(tensor)                                an input or output that is touched once: accesses bypass the caches
/// and those of support/knobs.h, name(loop, values...), which say how a loop is given to a machine.
struct Step {
  std::string name;
  std::vector<nlohmann::json> args;
};

std::string describe(const Step& step);
nlohmann::json step_to_json(const Step& step);
/// Old spellings are read as what they are called today, here and in parse_step(). Throws UserError.
Step step_from_json(const nlohmann::json& json);
/// Parses "split(i, 32, io, ii)" or "split i 32 io ii". Throws UserError.
Step parse_step(const std::string& text);
}  // namespace nestor
