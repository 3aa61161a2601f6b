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
///   gpu_blocks(loop...), gpu_warps(loop), gpu_lanes(loop)
///   gpu_threads(loop, count)                         threads of a block of this grid
///   cluster(loop, blocks)                            so many blocks take one iteration together
///   persistent(loop, blocks)                         so many blocks a multiprocessor, each taking iterations in turn
///   tensor_cores(loop, groups[, slots])              products on tensor cores: groups of four warps, slots for each operand's tiles
///   overlap(loop[, chains]), turns(loop), hold(loop), stagger(loop), polynomial(loop, sixteenths)   how those groups work: see GridShape
///   residents(loop, blocks), claims(loop)            blocks of a multiprocessor, and how resident ones take iterations
///   stage(tensor, loop, memory[, slots])             a copy of the part of `tensor` that one iteration of `loop` reads
///   specialize(loop)                                 full tiles apart from partial ones; empty ones are never visited
///   streaming(tensor)                                an input or output that is touched once: accesses bypass the caches
struct Step {
  std::string name;
  std::vector<nlohmann::json> args;
};

std::string describe(const Step& step);
nlohmann::json step_to_json(const Step& step);
/// Throws UserError.
Step step_from_json(const nlohmann::json& json);
/// Parses "split(i, 32, io, ii)" or "split i 32 io ii". Throws UserError.
Step parse_step(const std::string& text);
}  // namespace nestor
