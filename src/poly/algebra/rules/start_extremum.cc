// Rule "start_extremum": an extremum that meets one more value starts from it.
//
// Pattern    m_e = max_j a_ej, which starts from -inf, and t_e = max(m_e, y_e), elementwise, where nobody else reads m.
// Rewrite    t_e starts from y_e and takes the a_ej: one reduction where there was one and a statement behind it.
// Conditions m is a temporary of one reduction and one start; y is there before the reduction begins; every element that starts meets its
//            y, and no y twice. A minimum likewise.
// Proof      max is associative and commutative and -inf is its neutral element; NaN passes on from every place.
// Rounding   none.
#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"

namespace nestor {
namespace {

constexpr const char* kName = "start_extremum";

struct Plan {
  const Statement* meeting = nullptr;  ///< t = max(m, y)
  int extremum = 0;                    ///< its read of m
  ScalarExpr value;                    ///< y, as the meeting reads it
  const Statement* update = nullptr;
  const Statement* start = nullptr;
  isl::map elements;  ///< { meeting -> m }
};

bool reads_tensor(const Statement& statement, const ScalarExpr& value, const std::string& tensor) {
  bool found = false;
  value.visit([&](const ScalarExpr& node) {
    found = found || (node.op() == ScalarOp::read && statement.reads.at(node.ordinal()).tensor == tensor);
  });
  return found;
}

/// The only reduction that writes the tensor.
const Statement* update_of(const Nest& nest, const std::string& tensor) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  const auto found = std::find_if(writers.begin(), writers.end(), [](const Statement* s) { return s->reduction.has_value(); });
  return found == writers.end() ? nullptr : *found;
}

/// Why m, which argument `place` of the meeting is, is no extremum to start from the other argument.
std::string objection_to_extremum(const Nest& nest, int place, Plan& plan) {
  const Statement& meeting = *plan.meeting;
  const ScalarExpr& argument = meeting.value.args()[place];
  if (argument.op() != ScalarOp::read) return "neither of its values is a reduction's result";
  plan.extremum = argument.ordinal();
  plan.value = meeting.value.args()[1 - place];
  const std::string& tensor = meeting.reads.at(plan.extremum).tensor;
  plan.update = update_of(nest, tensor);
  if (plan.update == nullptr) return "neither of its values is a reduction's result";
  const ReductionOp op = meeting.value.op() == ScalarOp::max ? ReductionOp::max : ReductionOp::min;
  if (plan.update->reduction != op) return tensor + " is no extremum of the same kind";
  if (nest.tensor(tensor).role != TensorRole::temporary) return tensor + " is a result itself";
  if (nest.tensor(tensor).type != nest.tensor(meeting.write.tensor).type) return tensor + " is of another type";
  const std::vector<const Statement*> starts = initialisers_of(nest, *plan.update);
  if (starts.size() != 1 || !starts_from(nest, *plan.update, neutral_element(op, nest.tensor(tensor).type)))
    return tensor + " does not start from its neutral element alone";
  plan.start = starts.front();
  const std::vector<const Statement*> readers = readers_of(nest, tensor);
  const bool alone = std::all_of(readers.begin(), readers.end(), [&](const Statement* reader) {
    return reader->name == meeting.name || reader->name == plan.update->name;
  });
  if (!alone || reads_tensor(meeting, plan.value, tensor)) return tensor + " is read for itself as well";
  return "";
}

/// Why the other value cannot be what each element starts from.
std::string objection_to_value(const Nest& nest, Plan& plan) {
  const Statement& meeting = *plan.meeting;
  const Access& read = meeting.reads.at(plan.extremum);
  plan.elements = read.relation.intersect_domain(domain_in(nest, meeting));
  const isl::set started = plan.start->write.relation.intersect_domain(domain_in(nest, *plan.start)).range();
  if (!plan.elements.is_injective() || !started.is_subset(plan.elements.range()))
    return "its elements are not those of " + read.tensor + ", each once";
  const std::size_t begin = group_begin(nest, plan.start->name);
  for (const Access& other : meeting.reads) {
    if (!reads_tensor(meeting, plan.value, other.tensor)) continue;
    for (const Statement* writer : writers_of(nest, other.tensor)) {
      if (position_of(nest, writer->name) >= begin)
        return fmt::format("{} is not there before {} begins", other.tensor, read.tensor);
    }
  }
  return "";
}

std::string objection(const Nest& nest, const Statement& meeting, Plan& plan) {
  plan.meeting = &meeting;
  const bool extremum = meeting.value.op() == ScalarOp::max || meeting.value.op() == ScalarOp::min;
  if (meeting.reduction || !extremum) return "it is no maximum or minimum of two values";
  if (!is_elementwise_temporary(nest, meeting.write.tensor)) return meeting.write.tensor + " is no temporary of one definition";
  if (!alone_in_group(nest, meeting.name)) return "it shares its loops with other statements";
  std::string why = objection_to_extremum(nest, 0, plan);
  if (!why.empty() && !objection_to_extremum(nest, 1, plan).empty()) return why;
  return objection_to_value(nest, plan);
}

/// Writes the meeting's element where the statement wrote the extremum's.
void write_met(Statement& statement, const Plan& plan) {
  const isl::map met = plan.elements.reverse().apply_range(plan.meeting->write.relation);
  const isl::map written = statement.write.relation.apply_range(met);
  statement.write = {plan.meeting->write.tensor,
                     isl::manage(isl_map_gist_domain(written.copy(), statement.domain.copy())).coalesce()};
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::vector<RuleMatch> matches;
  for (const Statement& statement : nest.statements) {
    Plan plan;
    if (!objection(nest, statement, plan).empty()) continue;
    matches.push_back({kName, {statement.name}, fmt::format("{} starts from what {} adds", plan.update->name, statement.name)});
  }
  return matches;
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const std::string name = statement_argument(nest, kName, target, 1);
  Plan plan;
  const std::string why = objection(nest, nest.statement(name), plan);
  if (!why.empty()) refuse_rule(kName, name, why);
  Statement start = *plan.start, update = *plan.update;
  const isl::map to_meeting = start.write.relation.apply_range(plan.elements.reverse());
  start.value = import_value(start, *plan.meeting, to_meeting, plan.value);
  compact(start);
  write_met(start, plan);
  write_met(update, plan);
  Nest result = nest;
  replace_statement(result, start);
  replace_statement(result, update);
  erase_statement(result, name);
  drop_unused(result);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& start_extremum_rule() {
  static const Rule rule{kName,
                         "an extremum that meets one more value starts from it",
                         "max is associative and commutative, with the neutral element -inf",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
