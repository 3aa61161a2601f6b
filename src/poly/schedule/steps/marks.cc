// How loops are executed (parallel, vector lanes, GPU grid), and directives that change no order.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>

#include "poly/schedule/steps/editor.h"
#include "support/error.h"

namespace nestor {
namespace {

constexpr std::array<const char*, 3> kMemories{"scratch", "shared", "registers"};
constexpr std::int64_t kMostSlots = 16;
constexpr std::int64_t kMostClusterBlocks = 16;
constexpr std::int64_t kMostResidentBlocks = 32;
constexpr std::int64_t kSixteenths = 16;
/// Of products under way in a group: one more would need registers for another tile of sums.
constexpr std::int64_t kMostChains = 2;
constexpr std::int64_t kMostGroups = 3;  ///< 512 threads with the one that copies: what registers allow

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

void ScheduleEditor::shape_grid(std::int64_t lowest, std::int64_t highest, int GridShape::* member) {
  args_.expect(2, 2);
  const Tree loop = grid_argument();
  TreeNode shaped = *loop;
  shaped.grid.*member = static_cast<int>(args_.integer(1, lowest, highest));
  data_.tree = replace_node(data_.tree, loop.get(), with_body(shaped, loop->children.front()));
}

void ScheduleEditor::tensor_cores() {
  args_.expect(2, 3);
  const Tree loop = grid_argument();
  TreeNode shaped = *loop;
  shaped.grid.groups = static_cast<int>(args_.integer(1, 1, kMostGroups));
  if (args_.count() > 2) shaped.grid.slots = static_cast<int>(args_.integer(2, 1, kMostSlots));
  data_.tree = replace_node(data_.tree, loop.get(), with_body(shaped, loop->children.front()));
}

Tree ScheduleEditor::tensor_grid_argument() const {
  Tree loop = grid_argument();
  if (loop->grid.groups == 0) {
    user_error("{}the grid of {} does not use tensor cores; apply tensor_cores({}, 2) first", where(), loop->name, loop->name);
  }
  return loop;
}

void ScheduleEditor::tensor_option(int GridShape::* member) {
  args_.expect(1, 1);
  const Tree loop = tensor_grid_argument();
  TreeNode shaped = *loop;
  shaped.grid.*member = 1;
  data_.tree = replace_node(data_.tree, loop.get(), with_body(shaped, loop->children.front()));
}

void ScheduleEditor::gpu_threads() {
  shape_grid(32, 1024, &GridShape::threads);
  const std::int64_t count = args_.integer(1, 32, 1024);
  if (count % 32 != 0) user_error("{}a block has whole warps: {} is no multiple of 32", where(), count);
}

void ScheduleEditor::cluster() {
  shape_grid(1, kMostClusterBlocks, &GridShape::cluster);
  const std::int64_t blocks = args_.integer(1, 1, kMostClusterBlocks);
  if (!std::has_single_bit(static_cast<std::uint64_t>(blocks))) {
    user_error("{}a cluster has 1, 2, 4, 8 or {} blocks, not {}", where(), kMostClusterBlocks, blocks);
  }
}

void ScheduleEditor::persistent() { shape_grid(1, kMostResidentBlocks, &GridShape::persistent); }

void ScheduleEditor::residents() { shape_grid(1, kMostResidentBlocks, &GridShape::residents); }

void ScheduleEditor::polynomial() {
  args_.expect(2, 2);
  tensor_grid_argument();
  shape_grid(0, kSixteenths, &GridShape::polynomial);
}

void ScheduleEditor::overlap() {
  args_.expect(1, 2);
  const Tree loop = tensor_grid_argument();
  TreeNode shaped = *loop;
  shaped.grid.overlap = 1 + (args_.count() > 1 ? static_cast<int>(args_.integer(1, 1, kMostChains)) : 0);
  data_.tree = replace_node(data_.tree, loop.get(), with_body(shaped, loop->children.front()));
}

void ScheduleEditor::claims() {
  const Tree loop = grid_argument();
  if (loop->grid.persistent == 0) {
    user_error("{}the blocks of {} do not stay for several iterations; apply persistent({}, 1) first", where(), loop->name,
               loop->name);
  }
  tensor_option(&GridShape::claims);
}

void ScheduleEditor::stage() {
  args_.expect(3, 4);
  StageDirective directive;
  directive.tensor = tensor_named(data_.facts->nest, args_.text(0), where()).name;
  directive.loop = loop_argument(1)->name;
  directive.memory = args_.text(2);
  if (args_.count() > 3) directive.slots = static_cast<int>(args_.integer(3, 1, kMostSlots));
  if (std::find(kMemories.begin(), kMemories.end(), directive.memory) == kMemories.end()) {
    user_error("{}`{}` is no memory; choose {}", where(), directive.memory, fmt::join(kMemories, ", "));
  }
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
