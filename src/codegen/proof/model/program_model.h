// What a tile program executes, as isl sets, and when: read from its tree and its ops' claims, with nothing else believed.
#pragma once

#include "codegen/proof/model/int_sets.h"
#include "codegen/proof/model/time_tree.h"
#include "codegen/tile/tile_program.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace nestor::proof {

/// What of an op runs: its points; the neutral elements that it starts from; the points outside its guard that it fills.
enum class OpPart : std::uint8_t { start, points, fill };

/// One op of the program, at one place. All sets are { [loops around, dims of the op] }.
struct OpMember {
  std::shared_ptr<const IntSpace> space;
  const TileOp* op = nullptr;
  isl::set executed;   ///< points at which the part runs
  isl::set instances;  ///< those that it should run: instances of its statement
  isl::set extra;      ///< the others
};

/// The same op at the same place of the program's time, in all parts of specialised loops.
struct Run {
  OpPart part = OpPart::points;
  std::string name;  ///< for messages
  std::vector<TimeLoop> loops;
  std::vector<int> positions;  ///< in the sequence before each loop, and of the op in the innermost one
  std::vector<OpMember> members;
  const Statement* statement = nullptr;  ///< whose instances it runs; null: none
  isl::multi_aff instance;               ///< { [loops, dims] -> Statement[dims] }
  isl::set executed, instances, extra;   ///< of all members

  const TileOp& op() const { return *members.front().op; }
  const IntSpace& space() const { return *members.front().space; }
  std::size_t depth() const { return loops.size(); }
  /// Loops around it up to the innermost one over tasks: equal values of these mean the same task.
  std::size_t task_depth() const;
  bool is_role(OpRole role) const { return op().claim.role == role; }
};

/// "mean_update (op 'mean_update')" for messages.
std::string title(const Run& run);

/// The sizes that a launcher accepts for a program, as a parameter set.
isl::set valid_sizes(const TileProgram& program);

class ProgramModel {
 public:
  /// Throws OpenObligation where bounds or conditions are beyond isl, BrokenObligation for claims that make no sense.
  ProgramModel(const TileProgram& program, const Nest& nest);

  const TileProgram& program() const { return program_; }
  const Nest& nest() const { return nest_; }
  const isl::set& context() const { return context_; }
  const std::vector<Run>& runs() const { return runs_; }
  const Buffer& buffer(int number) const;

  /// { [loops, dims] -> [element] } of `access`, as the buffer's origin claims: the tensor's element, in the tuple of its tensor.
  isl::map element(const OpMember& member, const TileAccess& access) const;
  /// { [loops, dims] -> [place] } within the buffer.
  isl::map place(const OpMember& member, const TileAccess& access) const;
  /// The index expressions of the tensor's element.
  std::vector<IntExpr> element_index(const TileAccess& access) const;

 private:
  const TileProgram& program_;
  const Nest& nest_;
  isl::set context_;
  std::vector<Run> runs_;
};

/// Pairs of `pairs`, { [a's loops, dims] -> [b's loops, dims] }, with equal values of the first `depth` loops.
isl::map with_equal_loops(const isl::map& pairs, std::size_t depth);

/// { [first `depth` dims] -> range } of a relation { [dims] -> range }.
isl::map with_first_dims(const isl::map& relation, std::size_t depth);
/// { [first `depth` dims] } of a set { [dims] }.
isl::set with_first_dims(const isl::set& points, std::size_t depth);

}  // namespace nestor::proof
