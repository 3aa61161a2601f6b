// The table of all steps: names, arguments, help, and what applies them.
#include "poly/schedule/steps/step_table.h"

#include "poly/schedule/steps/editor.h"

namespace nestor {

const std::vector<ScheduleEditor::Entry>& ScheduleEditor::entries() {
  using E = ScheduleEditor;
  static const std::vector<Entry> table{
      {"apply_rule", "rule, target...", "rewrite the nest by an algebra rule; before any other step", &E::apply_rule},
      {"split", "loop, factor, outer, inner", "loop = factor*outer + inner, 0 <= inner < factor", &E::split},
      {"tile", "x, y, xo, yo, xi, yi, fx, fy", "split x and y, then reorder to xo, yo, xi, yi", &E::tile},
      {"reorder", "outermost, ..., innermost", "permute loops of one perfect chain", &E::reorder},
      {"fuse_with", "loop, consumer_loop", "make two loops of one body one loop, named as the second", &E::fuse_with},
      {"compute_at", "statement, loop", "fuse the statement's loops, from the outside in, until it is inside loop",
       &E::compute_at},
      {"fission", "loop, statement", "cut the loop's body before the statement; the later loop gets \"_f\" appended",
       &E::fission},
      {"skew", "x, y, factor", "y' = y + factor*x, for x outside y", &E::skew},
      {"shift", "statement, loop, distance", "run the statement `distance` iterations later in loop", &E::shift},
      {"reverse", "loop", "run the loop backwards", &E::reverse},
      {"parallel", "loop", "run iterations as parallel tasks", &E::parallel},
      {"vectorize", "loop[, width]", "run iterations in vector lanes", &E::vectorize},
      {"unroll", "loop[, factor]", "unroll the loop", &E::unroll},
      {"serial", "loop", "run iterations one after the other again", &E::serial},
      {"gpu_blocks", "loop, ...", "one GPU block for each iteration", &E::gpu_blocks},
      {"gpu_warps", "loop", "spread iterations over the warps of a block", &E::gpu_warps},
      {"gpu_lanes", "loop", "spread iterations over the lanes of a warp", &E::gpu_lanes},
      {"gpu_threads", "loop, count", "threads of a block of this grid", &E::gpu_threads},
      {"cluster", "loop, blocks", "so many GPU blocks take one iteration together", &E::cluster},
      {"persistent", "loop, blocks", "so many GPU blocks a multiprocessor, each taking iterations in turn", &E::persistent},
      {"tensor_cores", "loop, groups[, slots]",
       "products on tensor cores, operands rounded to 16 bits: groups of four warps, slots for the tiles of each operand",
       &E::tensor_cores},
      {"overlap", "loop[, chains]",
       "products that only the next iteration needs run beside its first ones; independent chains of products one by one, the "
       "first products of so many under way",
       &E::overlap},
      {"turns", "loop", "groups issue their products in turn", &E::turns},
      {"hold", "loop", "a first operand that stays for the whole iteration is held in registers", &E::hold},
      {"residents", "loop, blocks", "so many blocks of this grid shall fit a multiprocessor at once", &E::residents},
      {"claims", "loop", "resident blocks claim their next iteration from a counter instead of going round", &E::claims},
      {"stagger", "loop", "slots are given back in the middle of the exponentials behind their product", &E::stagger},
      {"polynomial", "loop, sixteenths", "so many sixteenths of a tile's exponentials are computed by a polynomial",
       &E::polynomial},
      {"stage", "tensor, loop, memory[, slots]", "copy what an iteration of loop reads of tensor to scratch, shared or registers",
       &E::stage},
      {"specialize", "loop", "separate full tiles from partial ones", &E::specialize},
      {"streaming", "tensor", "accesses to an input or output touched once bypass the caches", &E::streaming},
  };
  return table;
}

const std::vector<StepHelp>& step_help() {
  static const std::vector<StepHelp> help = [] {
    std::vector<StepHelp> list;
    for (const ScheduleEditor::Entry& entry : ScheduleEditor::entries())
      list.push_back({entry.name, entry.arguments, entry.help});
    return list;
  }();
  return help;
}

}  // namespace nestor
