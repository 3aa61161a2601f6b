// TileProgram: what one kernel does, as loops around operations on whole tiles. The same program serves every target.
#pragma once

#include "codegen/tile/contraction.h"
#include "poly/nest/composite.h"
#include "poly/schedule/schedule.h"
#include "support/int_expr.h"
#include "support/launch_recipe.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// Where a buffer lives. argument: a tensor of the caller. workspace: memory that all tasks share for one launch, allocated
/// by the launcher. scratch: private to one iteration of the parallel loop around it (host: a thread's scratch area; GPU:
/// shared memory or registers of one block).
enum class Memory : std::uint8_t { argument, workspace, scratch };
std::string_view to_string(Memory memory);

/// A buffer, indexed outermost first. Arguments have strides given at launch (in elements; the last index is dense);
/// others are dense, row-major over `extents`, the last extent rounded up to a multiple of `pad` elements.
struct Buffer {
  std::string name;    ///< unique; an argument's is its tensor's
  std::string tensor;  ///< the tensor whose values it holds
  ElementType type;
  Memory memory;
  TensorRole role = TensorRole::temporary;
  std::vector<IntExpr> extents;  ///< over size parameters only; constant for scratch unless a size is left dynamic
  int pad = 1;
  int stages = 1;          ///< staged copies only: how many iterations' copies the schedule wants in flight at once
  bool streaming = false;  ///< argument that is touched once, by request of the schedule: accesses may bypass caches
  /// Claim: element [.., J] is the least J' >= J whose own element is J', or kNoBlock where there is none (tells_next_blocks(), poly/algebra).
  bool next_blocks = false;
  /// Claims (see OpClaim): one copy exists for each iteration of the loops with these variables, and its first place holds the
  /// tensor's element `origin` (over those variables and size parameters; empty: the element with all indices 0).
  std::vector<std::string> scope;
  std::vector<IntExpr> origin;
};

/// Access to one element: `index` over loop variables, op dims and size parameters.
struct TileAccess {
  int buffer = -1;
  std::vector<IntExpr> index;
};

/// A dimension of an op's iteration box: lower <= var < upper.
struct OpDim {
  std::string var;
  IntExpr lower;  ///< over outer loop variables and parameters (usually 0)
  IntExpr upper;
  std::optional<std::int64_t> max_extent;  ///< constant bound of upper - lower, if one is known
  bool parallel = false;                   ///< no dependence (a reduction's own apart) is carried by it, given equal outer dims
  bool reduced = false;                    ///< a reduction runs over it (it does not index the write)
  LoopKind kind = LoopKind::serial;        ///< vectorize, unroll, gpu_lane: a request of the schedule
  std::int64_t factor = 0;                 ///< its vector width or unroll factor; 0: free choice
};

/// copy: value is one read, unchanged or cast. map: elementwise. reduce: accumulates over reduced dims. contract: a
/// Contraction whose reads both follow its reduced dims, and a kept dim that one of them alone follows.
/// points: anything else; executed point by point in lexicographic order of dims.
enum class OpKind : std::uint8_t { copy, map, reduce, contract, points };
std::string_view to_string(OpKind kind);

/// statement: runs instances of a statement. stage: copies a part of a tensor. save, hold, correct: the steps of a composite around
/// its lead (docs/algebra.md): the leading value is kept, may stay where it was, and a follower is corrected.
enum class OpRole : std::uint8_t { statement, stage, save, hold, correct };

/// What an op says it runs. Back ends do not read it: src/codegen/proof proves it against the nest, and trusts none of it.
struct OpClaim {
  OpRole role = OpRole::statement;
  std::string statement;          ///< whose instances run, or the follower that is corrected
  std::string lead;               ///< save, hold, correct: the statement that leads the composite
  std::vector<IntExpr> instance;  ///< role statement: its dims over loop variables, op dims and size parameters
  std::string start;              ///< with TileOp::initialize: the statement whose instances that runs
  std::vector<IntExpr> started;   ///< its dims, over loop variables and dims that are not reduced
};

/// An operation on a tile: for every point of the box where `guard` holds: write = value, or write = write (+) value.
/// All kinds have this meaning; the kind says which structure the op is known to have. For kinds other than points the
/// order of points does not matter (reductions may be reassociated).
struct TileOp {
  OpKind kind = OpKind::points;
  std::string name;         ///< statement, or what the op was made for ("correct", "pack")
  std::vector<OpDim> dims;  ///< outermost first; empty: one scalar assignment
  IntExpr guard;            ///< undefined: all points
  TileAccess write;
  std::vector<TileAccess> reads;
  std::vector<IntExpr> indices;  ///< integers used as values: ScalarExpr index nodes refer to these
  ScalarExpr value;
  std::optional<ReductionOp> reduction;
  std::optional<Contraction> contraction;  ///< of an op of kind contract, and of no other
  /// Reduction only: the accumulator starts here from the neutral element (its initialising statement was folded in).
  bool initialize = false;
  /// value = write * factor where the factor is expected to be 1 almost always: a test may pay.
  bool seldom = false;
  /// With a guard and no reduction: points of the box outside the guard are written with this value.
  std::optional<double> fill;
  OpClaim claim;
};

struct TileNode;
using TileTree = std::shared_ptr<const TileNode>;

struct TileNode {
  enum class Kind : std::uint8_t { sequence, loop, condition, op };
  Kind kind = Kind::sequence;
  // loop: for (var = lower; var < upper; var += step)
  std::string var;
  IntExpr lower, upper;
  std::int64_t step = 1;
  LoopKind loop_kind = LoopKind::serial;  ///< serial, unroll, parallel or gpu_block; nested parallel loops form one grid
  std::int64_t factor = 0;                ///< of unroll: iterations a round; 0: free choice
  LoopKnobs knobs;                        ///< of a gpu_block loop
  std::vector<std::string> merged;        ///< loops that this one stands for, outermost first; empty: no others
  IntExpr condition;                      ///< condition: children run when it is not 0
  std::vector<TileTree> children;
  TileOp op;
};

struct TileProgram {
  std::string name;                                 ///< symbol of the kernel, a C identifier
  std::vector<std::string> sizes;                   ///< size parameters in argument order
  std::map<std::string, std::int64_t> fixed_sizes;  ///< those the program was specialised for
  std::vector<ScalarParam> scalars;
  std::vector<Buffer> buffers;  ///< arguments first, in the order of the nest's tensors
  TileTree root;
  std::vector<SizeConstraint> valid;  ///< conjunction
  /// Composites that the order of the ops does not need, by the names of their ops: a back end may still combine partial results
  /// of lead and followers as one.
  std::vector<Composite> composites;
};

/// Derives the program from a proved schedule: loops and guards by isl, temporaries as buffers of the smallest scope that
/// their dependences allow, ops classified, corrections of active composites inserted, full tiles freed of guards.
/// Throws UserError when a temporary cannot be bounded or the isl budget is exceeded.
TileProgram build_tile_program(const Schedule& schedule);

/// Has an argument 16 bits? Else nothing is rounded to fewer bits than it is computed with.
inline bool has_half_arguments(const TileProgram& program) {
  return std::any_of(program.buffers.begin(), program.buffers.end(),
                     [](const Buffer& buffer) { return buffer.memory == Memory::argument && size_in_bytes(buffer.type) == 2; });
}

/// The program as readable code.
std::string describe(const TileProgram& program);
/// One op on one line: kind, dims, what it writes and how.
std::string describe(const TileOp& op, const std::vector<Buffer>& buffers);
/// A value over the op's reads and indices.
std::string describe(const ScalarExpr& value, const TileOp& op, const std::vector<Buffer>& buffers);

/// Runs the program in double, point by point, on buffers supplied by name: the meaning that every back end must have.
/// `memory` maps each argument's name to dense row-major data (converted to double); outputs are rounded to their type.
void interpret(const TileProgram& program, const Sizes& sizes, const std::map<std::string, double>& scalars,
               std::map<std::string, std::vector<double>>& memory);

}  // namespace nestor
