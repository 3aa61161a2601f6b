// Plan: for each statement of a schedule, which loops become program loops and which become dims of its tile op.
#pragma once

#include "codegen/tile/places/isl_convert.h"
#include "codegen/tile/tile_program.h"

#include <map>
#include <string>
#include <vector>

namespace nestor {

struct ProgramPlan;

/// The program's name of a loop: its name with every character that is not alphanumeric replaced.
std::string program_variable(const std::string& loop);

/// A loop of the schedule around a statement.
struct PlannedLoop {
  std::string name;
  LoopKind kind = LoopKind::serial;
  std::int64_t factor = 0;
  bool specialized = false;
};

/// One statement: outer loops run as loops of the program, inner ones are the box of the op.
struct StatementPlan {
  const Statement* statement = nullptr;
  std::vector<PlannedLoop> outer;
  std::vector<PlannedLoop> inner;
  isl::map points;          ///< { [outer] -> [inner] }: the instances of the statement
  isl::multi_aff instance;  ///< { [outer, inner] -> Statement[dims] }
  isl::map loops;           ///< { Statement[dims] -> [outer, inner] } on the domain

  std::vector<std::string> loop_names() const;
  std::vector<std::string> outer_names() const;
  DimNames outer_dim_names(const ProgramPlan& plan) const;  ///< program variables of the outer loops
  DimNames all_names(const ProgramPlan& plan) const;        ///< and of the inner ones
  bool inside_parallel(std::size_t depth) const;            ///< one of the first `depth` outer loops is parallel or gpu_block
};

/// Everything about a schedule that building needs, computed once.
struct ProgramPlan {
  const Schedule* schedule = nullptr;
  Tree tree;         ///< the schedule's, with one grid around a task: further loops over tasks in it are serial
  isl::set context;  ///< sizes that shapes are derived for, with all that the program is valid for (shape_context)
  std::map<std::string, std::int64_t> fixed;  ///< sizes with one possible value
  std::vector<StatementPlan> statements;      ///< in tree order (the order of execution at equal outer loops)
  std::map<std::string, std::size_t> index;   ///< by statement name
  bool tensor_cores = false;                  ///< some loop has the step: conditions and bounds are as simple as can be shown

  const StatementPlan& plan(const std::string& statement) const;
  DimNames names(std::vector<std::string> inputs) const { return {std::move(inputs), &fixed}; }
};

bool is_task_loop(LoopKind kind);

ProgramPlan make_plan(const Schedule& schedule);

/// Number of outer loops that two statements share in the tree.
std::size_t shared_outer_loops(const StatementPlan& a, const StatementPlan& b);

/// { [first `depth` outer loops] -> Tensor[index] } touched by `access` of the statement.
isl::map footprint(const StatementPlan& plan, const Access& access, std::size_t depth);

}  // namespace nestor
