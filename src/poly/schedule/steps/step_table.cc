// The table of all steps: names, arguments, help, and what applies them.
#include "poly/schedule/steps/step_table.h"

#include "poly/schedule/steps/editor.h"

#include <algorithm>

namespace nestor {

const std::vector<ScheduleEditor::Entry>& ScheduleEditor::entries() {
  using E = ScheduleEditor;
  static const std::vector<Entry> table = [] {
    std::vector<Entry> all = {
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
        {"gpu_lanes", "loop", "spread iterations over the lanes of a warp", &E::gpu_lanes},
        {"stage", "tensor, loop[, stages]", "copy what an iteration of loop reads of tensor, stages - 1 iterations ahead",
         &E::stage},
        {"specialize", "loop", "separate full tiles from partial ones", &E::specialize},
        {"streaming", "tensor", "accesses to an input or output touched once bypass the caches", &E::streaming},
    };
    const auto behind = std::find_if(all.begin(), all.end(), [](const Entry& entry) { return entry.name == "stage"; });
    std::vector<Entry> of_knobs;
    for (const KnobStep& step : knob_steps()) of_knobs.push_back({step.name, arguments_of(step), step.help, &E::set_knobs});
    all.insert(behind, of_knobs.begin(), of_knobs.end());
    return all;
  }();
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

std::vector<Step> steps_that_set(const std::string& loop, const LoopKnobs& knobs) {
  std::vector<Step> steps;
  for (const KnobStep& known : knob_steps()) {
    if (!is_set(known, knobs)) continue;
    Step step{known.name, {loop}};
    for (const Knob& knob : known.knobs) {
      const auto found = knobs.find(knob.name);
      const std::int64_t argument = knob.argument_for(found == knobs.end() ? knob.otherwise : found->second);
      if (*knob.argument != '\0' && argument >= knob.least) step.args.emplace_back(argument);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace nestor
