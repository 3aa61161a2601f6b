// How loops are executed (parallel, vector lanes, GPU grid), and directives that change no order.
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "poly/schedule/steps/editor.h"
#include "support/error.h"

namespace nestor {
namespace {

constexpr std::int64_t kMostStages = 16;

bool reads(const Statement& statement, const std::string& tensor) {
  return std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& read) { return read.tensor == tensor; });
}

const Tensor& tensor_named(const Nest& nest, const std::string& name, const std::string& where) {
  if (const Tensor* found = nest.find_tensor(name)) return *found;
  std::vector<std::string> names;
  names.reserve(nest.tensors.size());
  for (const Tensor& tensor : nest.tensors) names.push_back(tensor.name);
  user_error("{}there is no tensor `{}`; the tensors are {}", where, name, fmt::join(names, ", "));
}

}  // namespace

void ScheduleEditor::mark(LoopKind kind, bool takes_factor) {
  args_.expect(1, takes_factor ? 2 : 1);
  const std::int64_t factor = args_.count() > 1 ? args_.integer(1, 1, 4096) : 0;
  mark_loop(loop_argument(0), kind, factor);
}

void ScheduleEditor::mark_loop(const Tree& loop, LoopKind kind, std::int64_t factor) {
  TreeNode marked = *loop;
  marked.loop_kind = kind;
  marked.factor = factor;
  const std::size_t depth = static_cast<std::size_t>(loop_depth(data_.tree, loop.get()));
  data_.tree = replace_node(data_.tree, loop.get(), with_body(marked, loop->children.front()));
  if (is_concurrent(kind)) scopes_.push_back(scope_below(loop, depth, depth, false));
}

void ScheduleEditor::gpu_blocks() {
  args_.expect(1, SIZE_MAX);
  for (std::size_t k = 0; k < args_.count(); ++k) mark_loop(loop_argument(k), LoopKind::gpu_block, 0);
}

/// The loop of a grid that the first argument names.
Tree ScheduleEditor::grid_argument() const {
  Tree loop = loop_argument(0);
  if (loop->loop_kind != LoopKind::gpu_block) {
    user_error("{}loop {} is not spread over GPU blocks; apply gpu_blocks({}) first", where(), loop->name, loop->name);
  }
  return loop;
}

/// What the argument at `index` gives the knob, or what it has without one.
std::int64_t ScheduleEditor::knob_value(const Knob& knob, std::size_t index) const {
  if (*knob.argument == '\0' || args_.count() <= index) return knob.without;
  const std::int64_t given = args_.integer(index, knob.least, knob.most);
  if (knob.values == Knob::Values::multiples_of_32 && given % 32 != 0)
    user_error("{}{} must be a multiple of 32, not {}", where(), knob.argument, given);
  if (knob.values == Knob::Values::powers_of_two && !std::has_single_bit(static_cast<std::uint64_t>(given)))
    user_error("{}{} must be a power of two, not {}", where(), knob.argument, given);
  return given + knob.offset;
}

void ScheduleEditor::set_knobs() {
  const KnobStep& step = *find_knob_step(step_.name);
  const auto has_argument = [](const Knob& knob) { return *knob.argument != '\0'; };
  const auto is_required = [&](const Knob& knob) { return has_argument(knob) && !knob.optional; };
  args_.expect(1 + static_cast<std::size_t>(std::count_if(step.knobs.begin(), step.knobs.end(), is_required)),
               1 + static_cast<std::size_t>(std::count_if(step.knobs.begin(), step.knobs.end(), has_argument)));
  const Tree loop = grid_argument();
  for (const char* name : step.needs) {
    const KnobStep& needed = *find_knob_step(name);
    if (!is_set(needed, loop->knobs))
      user_error("{}{}; apply {} first", where(), fmt::format(fmt::runtime(needed.missing), loop->name),
                 fmt::format(fmt::runtime(needed.remedy), loop->name));
  }
  TreeNode changed = *loop;
  std::size_t index = 1;
  for (const Knob& knob : step.knobs) {
    const std::int64_t value = knob_value(knob, index++);
    changed.knobs.erase(knob.name);
    if (value != knob.otherwise) changed.knobs.emplace(knob.name, value);
  }
  data_.tree = replace_node(data_.tree, loop.get(), with_body(changed, loop->children.front()));
}

void ScheduleEditor::stage() {
  args_.expect(2, 3);
  StageDirective directive;
  directive.tensor = tensor_named(data_.facts->nest, args_.text(0), where()).name;
  directive.loop = loop_argument(1)->name;
  if (args_.count() > 2) directive.stages = static_cast<int>(args_.integer(2, 1, kMostStages));
  const std::vector<std::string> below = statements_under(*find_loop(data_.tree, directive.loop));
  const bool read = std::any_of(below.begin(), below.end(), [&](const std::string& name) {
    return reads(data_.facts->nest.statement(name), directive.tensor);
  });
  if (!read) user_error("{}nothing in loop {} reads {}", where(), directive.loop, directive.tensor);
  std::erase_if(data_.stages, [&](const StageDirective& s) { return s.tensor == directive.tensor && s.loop == directive.loop; });
  data_.stages.push_back(directive);
}

/// A staged copy is made before an iteration starts: nothing inside may write what it reads.
void ScheduleEditor::check_stages() const {
  for (const StageDirective& stage : data_.stages) {
    const Tree loop = find_loop(data_.tree, stage.loop);
    if (!loop) internal_error("the stage of {} refers to loop {}, which is gone", stage.tensor, stage.loop);
    for (const std::string& name : statements_under(*loop)) {
      if (data_.facts->nest.statement(name).write.tensor != stage.tensor) continue;
      user_error(
          "{}{} is written by {} inside loop {}, so a copy made before the iteration would be stale; stage it at a loop "
          "that {} is not in",
          where(), stage.tensor, name, stage.loop, name);
    }
  }
}

void ScheduleEditor::rename_in_stages(const std::string& from, const std::string& to) {
  for (StageDirective& stage : data_.stages) {
    if (stage.loop == from) stage.loop = to;
  }
}

void ScheduleEditor::drop_idle_stages() {
  std::erase_if(data_.stages, [&](const StageDirective& stage) {
    const std::vector<std::string> below = statements_under(*find_loop(data_.tree, stage.loop));
    return std::none_of(below.begin(), below.end(),
                        [&](const std::string& name) { return reads(data_.facts->nest.statement(name), stage.tensor); });
  });
}

void ScheduleEditor::specialize() {
  args_.expect(1, 1);
  const Tree loop = loop_argument(0);
  TreeNode marked = *loop;
  marked.specialized = true;
  data_.tree = replace_node(data_.tree, loop.get(), with_body(marked, loop->children.front()));
}

void ScheduleEditor::streaming() {
  args_.expect(1, 1);
  const Tensor& tensor = tensor_named(data_.facts->nest, args_.text(0), where());
  if (tensor.role == TensorRole::temporary) {
    user_error("{}{} is a temporary; only accesses to an input or an output may bypass the caches", where(), tensor.name);
  }
  if (std::find(data_.streaming.begin(), data_.streaming.end(), tensor.name) == data_.streaming.end()) {
    data_.streaming.push_back(tensor.name);
  }
}

}  // namespace nestor
