// From slots of time to runs: the points of each op, and which of them are instances of its statement.
#include "codegen/proof/model/program_model.h"

#include "codegen/proof/model/outcome.h"
#include "poly/isl/isl_tools.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <set>

namespace nestor::proof {
namespace {

std::string list(const std::vector<IntExpr>& exprs) {
  std::string text;
  for (const IntExpr& expr : exprs) text += expr.str() + ";";
  return text;
}

std::vector<std::string> variables_of(const std::vector<TimeLoop>& loops, const TileOp& op) {
  std::vector<std::string> names;
  names.reserve(loops.size() + op.dims.size());
  for (const TimeLoop& loop : loops) names.push_back(loop.var);
  for (const OpDim& dim : op.dims) names.push_back(dim.var);
  return names;
}

isl::set lifted(const isl::set& around, std::size_t dims) {
  return isl::manage(isl_set_add_dims(around.copy(), isl_dim_set, static_cast<unsigned>(dims)));
}

/// All points of the op's box; with `start`, reduced dims stay at their lower bound, even in an empty box.
isl::set box_of(const IntSpace& space, const TileOp& op, const isl::set& around, bool start) {
  isl::set box = lifted(around, op.dims.size());
  for (const OpDim& dim : op.dims) {
    const IntExpr v = IntExpr::variable(dim.var);
    box = box.intersect(space.at_least(v, dim.lower));
    const IntExpr upper = start && dim.reduced ? dim.lower + IntExpr(1) : dim.upper;
    box = box.intersect(space.at_least(upper, v + IntExpr(1)));
  }
  return box.coalesce();
}

/// { [loops, dims] -> Statement[dims] }
isl::multi_aff instance_map(const IntSpace& space, const Statement& statement, const std::vector<IntExpr>& dims) {
  if (dims.size() != statement.dims.size())
    throw BrokenObligation(
        fmt::format("an op of {} names {} of its {} dims", statement.name, dims.size(), statement.dims.size()));
  isl_aff_list* list = isl_aff_list_alloc(isl_context().get(), static_cast<int>(dims.size()));
  for (const IntExpr& dim : dims) {
    const isl::pw_aff value = space.value(dim);
    if (isl_pw_aff_n_piece(value.get()) != 1) {
      isl_aff_list_free(list);
      throw OpenObligation(fmt::format("dim '{}' of {} is not affine", dim.str(), statement.name));
    }
    isl_aff* piece = nullptr;
    isl_pw_aff_foreach_piece(
        value.get(),
        [](isl_set* set, isl_aff* aff, void* user) {
          isl_set_free(set);
          *static_cast<isl_aff**>(user) = aff;
          return isl_stat_ok;
        },
        &piece);
    list = isl_aff_list_add(list, piece);
  }
  isl_space* domain = isl_set_get_space(space.universe().get());
  isl_space* range = isl_space_set_from_params(isl_space_params(isl_space_copy(domain)));
  range = isl_space_add_dims(range, isl_dim_set, static_cast<unsigned>(dims.size()));
  range = isl_space_set_tuple_name(range, isl_dim_set, statement.name.c_str());
  return isl::manage(isl_multi_aff_from_aff_list(isl_space_map_from_domain_and_range(domain, range), list));
}

OpMember member_of(std::shared_ptr<const IntSpace> space, const TileOp& op, const isl::set& executed) {
  return {std::move(space), &op, executed, executed, executed};
}

/// Reads the slots of one program.
class RunReader {
 public:
  RunReader(const TileProgram& program, const Nest& nest, const ProgramModel& model)
      : program_(program), nest_(nest), context_(model.context()), model_(model) {}

  std::vector<Run> run() {
    for (const TimeSlot& slot : read_time(program_.root, context_)) {
      for (const PlacedOp& placed : slot.ops) read(slot, placed);
    }
    for (Run& run : runs_) {
      for (const OpMember& member : run.members) {
        run.executed = run.executed.unite(member.executed);
        run.instances = run.instances.unite(member.instances);
        run.extra = run.extra.unite(member.extra);
      }
      for (isl::set* set : {&run.executed, &run.instances, &run.extra}) *set = set->coalesce();
    }
    return std::move(runs_);
  }

 private:
  void read(const TimeSlot& slot, const PlacedOp& placed) {
    const TileOp& op = *placed.op;
    const std::vector<std::string> names = variables_of(slot.loops, op);
    if (std::set<std::string>(names.begin(), names.end()).size() != names.size())
      throw BrokenObligation(fmt::format("two loops or dims around the points of {} have one name", op.name));
    const auto space = std::make_shared<const IntSpace>(names, context_);
    if (op.initialize && !op.reduction) throw BrokenObligation(op.name + " starts from a neutral element and reduces nothing");
    if (op.initialize) {
      add(slot, OpPart::start, op.claim.start, op.claim.started, member_of(space, op, box_of(*space, op, placed.around, true)));
    }
    const isl::set box = box_of(*space, op, placed.around, false);
    const isl::set guarded = op.guard.defined() ? box.intersect(space->where(op.guard)).coalesce() : box;
    if (op.guard.defined() && op.fill) add(slot, OpPart::fill, "", {}, member_of(space, op, box.subtract(guarded)));
    const std::string statement = op.claim.role == OpRole::statement ? op.claim.statement : "";
    add(slot, OpPart::points, statement, op.claim.instance, member_of(space, op, guarded));
  }

  void add(const TimeSlot& slot, OpPart part, const std::string& statement, const std::vector<IntExpr>& instance,
           OpMember member) {
    const Statement* runs = nullptr;
    if (part == OpPart::start || (part == OpPart::points && member.op->claim.role == OpRole::statement)) {
      runs = nest_.find_statement(statement);
      if (runs == nullptr) throw BrokenObligation(fmt::format("op {} names no statement of the nest", member.op->name));
    }
    Run& run = run_for(slot, part, member, runs, instance);
    separate(run, member);
    run.members.push_back(std::move(member));
  }

  /// What of the executed points the op should run.
  void separate(const Run& run, OpMember& member) const {
    if (run.part == OpPart::fill) {
      member.instances = member.executed.subtract(member.executed);
    } else if (run.statement != nullptr) {
      const isl::set domain = run.statement->domain.intersect_params(context_);
      member.instances = member.executed.intersect(isl::manage(isl_set_preimage_multi_aff(domain.copy(), run.instance.copy())));
    } else {
      member.instances = served(member);
    }
    const bool none = member.executed.is_subset(member.instances);
    if (none) member.instances = member.executed;
    member.extra = none ? member.executed.subtract(member.executed) : member.executed.subtract(member.instances);
  }

  /// Points of an op of a composite whose elements its statement writes; all points of a copy.
  isl::set served(const OpMember& member) const {
    const OpClaim& claim = member.op->claim;
    if (claim.role == OpRole::stage) return member.executed;
    const std::string& name = claim.role == OpRole::correct ? claim.statement : claim.lead;
    const Statement* statement = nest_.find_statement(name);
    if (statement == nullptr) throw BrokenObligation(fmt::format("op {} names no statement of the nest", member.op->name));
    const isl::set written = statement->domain.intersect_params(context_).apply(statement->write.relation);
    const isl::map element = model_.element(member, member.op->write);
    return member.executed.intersect(element.intersect_range(written).domain());
  }

  Run& run_for(const TimeSlot& slot, OpPart part, const OpMember& member, const Statement* statement,
               const std::vector<IntExpr>& instance) {
    std::string key = fmt::format("{}|{}|{}", static_cast<int>(part), list(instance), slot.key);
    for (const int position : slot.positions) key += fmt::format("|{}", position);
    for (const TimeLoop& loop : slot.loops) key += fmt::format("|{}", loop.id);
    for (const OpDim& dim : member.op->dims) key += "|" + dim.var;
    const auto [at, fresh] = index_.try_emplace(key, runs_.size());
    if (!fresh) return runs_[at->second];
    const isl::set none = member.executed.subtract(member.executed);
    const isl::multi_aff map =
        statement != nullptr ? instance_map(*member.space, *statement, instance) : isl::multi_aff(isl_context(), "{ [] -> [] }");
    runs_.push_back({part, member.op->name, slot.loops, slot.positions, {}, statement, map, none, none, none});
    return runs_.back();
  }

  const TileProgram& program_;
  const Nest& nest_;
  const isl::set& context_;
  const ProgramModel& model_;
  std::vector<Run> runs_;
  std::map<std::string, std::size_t> index_;
};

}  // namespace

std::size_t Run::task_depth() const {
  std::size_t depth = loops.size();
  while (depth > 0 && !is_task(loops[depth - 1].kind)) --depth;
  return depth;
}

std::string title(const Run& run) {
  const std::string part = run.part == OpPart::start ? "the start of " : run.part == OpPart::fill ? "the filling of " : "";
  return fmt::format("{}op '{}'", part, run.name);
}

isl::set valid_sizes(const TileProgram& program) {
  isl_space* params = isl_space_params_alloc(isl_context().get(), static_cast<unsigned>(program.sizes.size()));
  for (std::size_t k = 0; k < program.sizes.size(); ++k)
    params = isl_space_set_dim_name(params, isl_dim_param, static_cast<unsigned>(k), program.sizes[k].c_str());
  const isl::space space = isl::manage(params);
  const IntSpace sizes({}, isl::manage(isl_set_universe(space.copy())));
  isl_set* all = isl_set_universe(space.copy());
  for (const SizeConstraint& fact : program.valid) {
    IntExpr sum(fact.constant);
    for (const auto& [name, factor] : fact.terms) sum = sum + IntExpr(factor) * IntExpr::variable(name);
    const isl::set holds = fact.modulus > 0 ? sizes.equal(mod(sum, fact.modulus), IntExpr(0))
                           : fact.equality  ? sizes.equal(sum, IntExpr(0))
                                            : sizes.at_least(sum, IntExpr(0));
    all = isl_set_intersect(all, isl_set_params(holds.copy()));
  }
  return isl::manage(all);
}

ProgramModel::ProgramModel(const TileProgram& program, const Nest& nest)
    : program_(program), nest_(nest), context_(valid_sizes(program)) {
  runs_ = RunReader(program, nest, *this).run();
}

const Buffer& ProgramModel::buffer(int number) const {
  if (number < 0 || static_cast<std::size_t>(number) >= program_.buffers.size())
    throw BrokenObligation(fmt::format("buffer {} does not exist", number));
  return program_.buffers[number];
}

std::vector<IntExpr> ProgramModel::element_index(const TileAccess& access) const {
  const Buffer& from = buffer(access.buffer);
  if (access.index.size() != from.extents.size())
    throw BrokenObligation(
        fmt::format("an access to {} has {} indices, not {}", from.name, access.index.size(), from.extents.size()));
  std::vector<IntExpr> index = access.index;
  for (std::size_t k = 0; k < index.size() && k < from.origin.size(); ++k) index[k] = index[k] + from.origin[k];
  return index;
}

namespace {

isl::map function_map(const IntSpace& space, const std::vector<IntExpr>& index, const std::string& tuple) {
  isl_space* domain = isl_set_get_space(space.universe().get());
  isl_pw_aff_list* list = isl_pw_aff_list_alloc(isl_context().get(), static_cast<int>(index.size()));
  for (const IntExpr& part : index) list = isl_pw_aff_list_add(list, space.value(part).release());
  isl_space* range = isl_space_set_from_params(isl_space_params(isl_space_copy(domain)));
  range = isl_space_add_dims(range, isl_dim_set, static_cast<unsigned>(index.size()));
  if (!tuple.empty()) range = isl_space_set_tuple_name(range, isl_dim_set, tuple.c_str());
  isl_multi_pw_aff* functions = isl_multi_pw_aff_from_pw_aff_list(isl_space_map_from_domain_and_range(domain, range), list);
  return isl::manage(isl_map_from_multi_pw_aff(functions));
}

}  // namespace

isl::map ProgramModel::element(const OpMember& member, const TileAccess& access) const {
  return function_map(*member.space, element_index(access), buffer(access.buffer).tensor);
}

isl::map ProgramModel::place(const OpMember& member, const TileAccess& access) const {
  element_index(access);
  return function_map(*member.space, access.index, "");
}

isl::map with_equal_loops(const isl::map& pairs, std::size_t depth) {
  isl_map* equal = pairs.copy();
  for (std::size_t k = 0; k < depth; ++k)
    equal = isl_map_equate(equal, isl_dim_in, static_cast<int>(k), isl_dim_out, static_cast<int>(k));
  return isl::manage(equal);
}

isl::map with_first_dims(const isl::map& relation, std::size_t depth) {
  const auto dims = static_cast<unsigned>(isl_map_dim(relation.get(), isl_dim_in));
  const auto kept = static_cast<unsigned>(depth);
  return isl::manage(isl_map_project_out(relation.copy(), isl_dim_in, kept, dims - kept));
}

isl::set with_first_dims(const isl::set& points, std::size_t depth) {
  const auto dims = static_cast<unsigned>(isl_set_dim(points.get(), isl_dim_set));
  const auto kept = static_cast<unsigned>(depth);
  return isl::manage(isl_set_project_out(points.copy(), isl_dim_set, kept, dims - kept));
}

}  // namespace nestor::proof
