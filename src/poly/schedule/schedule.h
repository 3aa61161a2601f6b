// Schedule: a nest plus a list of proved steps. Persistent: every step returns a new Schedule, so undo costs nothing.
#pragma once

#include "poly/isl/linear_form.h"
#include "poly/nest/composite.h"
#include "poly/nest/dependences.h"
#include "poly/nest/nest.h"

#include <nlohmann/json.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace nestor {

/// How the iterations of a loop are executed. gpu_block: one block an iteration; gpu_warp, gpu_lane: spread over the
/// warps of a block, the lanes of a warp.
enum class LoopKind : std::uint8_t { serial, parallel, vectorize, unroll, gpu_block, gpu_warp, gpu_lane };
std::string_view to_string(LoopKind kind);

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
/// Name, argument list and one-line help of every step, for `explore` and error messages.
struct StepHelp {
  std::string name;
  std::string arguments;
  std::string help;
};
const std::vector<StepHelp>& step_help();

/// How the iterations of a gpu_block loop are given to blocks of threads. Changes no order: iterations are independent.
struct GridShape {
  int threads = 0;     ///< of a block, a multiple of 32; 0: left to the back end
  int cluster = 1;     ///< blocks that take one iteration together, a power of two
  int persistent = 0;  ///< blocks started for each multiprocessor, each taking iterations in turn; 0: one block an iteration
  int groups = 0;      ///< of four warps, which compute products on tensor cores with operands rounded to 16 bits; 0: none
  int slots = 2;       ///< tiles of an operand in shared memory at once, with groups
  int overlap = 0;     ///< 1: products that only the next iteration needs run beside its first ones; more: 1 + chains under way
  int turns = 0;       ///< 1: groups issue their products in turn, so that one computes while another multiplies
  int hold = 0;        ///< 1: a first operand that stays for the whole iteration is held in registers
  int residents = 0;   ///< blocks that a multiprocessor shall hold at once, which bounds their registers; 0: left to the back end
  int claims = 0;      ///< 1: resident blocks claim their next iteration from a counter instead of going round
  int stagger =
      0;  ///< 1: a slot is given back in the middle of the exponentials behind its product, so that waits stay behind them
  int polynomial = 0;  ///< sixteenths of the exponentials of a tile that are computed by a polynomial beside the function unit
  bool operator==(const GridShape& other) const = default;
  std::string str() const;  ///< "256 threads, clusters of 4 blocks"; empty when all is left to the back end
};

/// Node of the loop tree. Children of a sequence run in order; a loop has one child; a leaf is one statement.
struct TreeNode {
  enum class Kind : std::uint8_t { sequence, loop, leaf };
  Kind kind;
  std::string name;  ///< loop: its unique name; leaf: the statement
  LoopKind loop_kind = LoopKind::serial;
  std::int64_t factor = 0;  ///< vector width or unroll factor; 0: left to the back end
  bool specialized = false;
  GridShape grid;  ///< of a gpu_block loop
  std::vector<std::shared_ptr<const TreeNode>> children;
};
using Tree = std::shared_ptr<const TreeNode>;

/// Where a statement's dims come from: dims[k] as a form over the loops around it, and `constraints` (each >= 0) that the
/// loops satisfy besides those of the domain (0 <= inner < factor after a split). The correspondence is one to one.
struct LoopForm {
  std::vector<LinearForm> dims;
  std::vector<LinearForm> constraints;
};

struct StageDirective {
  std::string tensor;
  std::string loop;
  std::string memory;  ///< "scratch", "shared" or "registers"
  int slots = 1;
};

/// A legal schedule. Construction and `apply` either give a schedule whose every dependence is respected, or throw.
class Schedule {
 public:
  /// The original order: a sequence with one loop chain per group; loops are named `<statement>.<dim>`.
  explicit Schedule(Nest nest);

  /// A new schedule with the step applied. Throws UserError: unknown loop or argument, a step that does not fit the tree,
  /// or an order that breaks a dependence. In the last case the message contains " is illegal: " and names the step, both
  /// statement instances with their numbers, the dependence, and a remedy if a simple one exists (a skew factor, a rule,
  /// fission first).
  Schedule apply(const Step& step) const;
  Schedule apply_all(const std::vector<Step>& steps) const;

  const Nest& nest() const;           ///< after the algebra steps
  const Nest& original_nest() const;  ///< as defined
  const std::vector<Dependence>& dependences() const;
  const std::vector<Composite>& composites() const;
  /// Composites whose relaxation this order really needs (lead and mediators share a reduction loop).
  std::vector<Composite> active_composites() const;
  /// Reductions may be regrouped (rule "reassociate" applied).
  bool reassociation_allowed() const;
  const Tree& tree() const;
  const LoopForm& form(const std::string& statement) const;
  const std::vector<Step>& steps() const;
  const std::vector<StageDirective>& stages() const;
  const std::vector<std::string>& streaming_tensors() const;

  /// Names of the loops around a statement, outermost first.
  std::vector<std::string> loops_of(const std::string& statement) const;
  /// { Statement[dims] -> [loops of the statement, outermost first] }, one to one on the domain.
  isl::map loop_relation(const std::string& statement) const;
  /// The isl schedule tree of the current order: context, sequences of filters, and for each loop a band of one member under
  /// a mark with the loop's name (and kind, unless serial). Loops that run concurrently are marked coincident.
  isl::schedule isl_tree() const;
  /// Loop nest as readable code, one line a loop, with kinds.
  std::string str() const;

 private:
  struct State;
  explicit Schedule(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  friend class ScheduleEditor;
  std::shared_ptr<const State> state_;
};

/// {"op": name, "nest": digest of the original nest, "steps": [...]}
nlohmann::json schedule_to_json(const Schedule& schedule);
/// Replays onto `nest`. Throws UserError when the file is for another nest, or a step fails.
Schedule schedule_from_json(const Nest& nest, const nlohmann::json& json);

}  // namespace nestor
