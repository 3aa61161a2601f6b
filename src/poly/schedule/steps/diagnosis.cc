// What an illegal step breaks, in numbers.
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

#include "poly/isl/sample_point.h"
#include "poly/schedule/steps/editor.h"
#include "support/error.h"

namespace nestor {
namespace {

/// A concrete pair of instances that a schedule breaks.
struct Witness {
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  std::vector<std::int64_t> source_loops;
  std::vector<std::int64_t> sink_loops;
};

Witness witness_of(const isl::map& pairs, std::size_t source_loops) {
  isl_set* flat = isl_set_flatten(isl_map_wrap(pairs.copy()));
  const unsigned params = static_cast<unsigned>(isl_set_dim(flat, isl_dim_param));
  Witness witness;
  for (unsigned k = 0; k < params; ++k) witness.sizes.emplace_back(isl_set_get_dim_name(flat, isl_dim_param, k), 0);
  const std::vector<std::int64_t> point =
      smallest_point(isl::manage(isl_set_move_dims(flat, isl_dim_set, 0, isl_dim_param, 0, params)));
  for (unsigned k = 0; k < params; ++k) witness.sizes[k].second = point[k];
  const auto loops = point.begin() + params;
  const auto between = loops + static_cast<std::ptrdiff_t>(source_loops);
  witness.source_loops.assign(loops, between);
  witness.sink_loops.assign(between, point.end());
  return witness;
}

std::int64_t value_of(const LinearForm& form, const std::vector<std::string>& loops, const std::vector<std::int64_t>& values) {
  std::int64_t sum = form.constant;
  for (std::size_t k = 0; k < loops.size(); ++k) sum += form.coefficient(loops[k]) * values[k];
  return sum;
}

std::string sizes_text(const Witness& witness) {
  if (witness.sizes.empty()) return "";
  std::string text = ", for example at ";
  for (std::size_t k = 0; k < witness.sizes.size(); ++k) {
    text += fmt::format("{}{}={}", k > 0 ? ", " : "", witness.sizes[k].first, witness.sizes[k].second);
  }
  return text;
}

std::string what_goes_wrong(const Violation& violation) {
  if (violation.loop.empty()) return "the new order of bodies runs it later";
  if (violation.loop_kind == LoopKind::serial || violation.loop_kind == LoopKind::unroll) {
    return fmt::format("loop {} would run it later", violation.loop);
  }
  return fmt::format("loop {} would run both at once ({})", violation.loop, to_string(violation.loop_kind));
}

OrderConflict::End end_of(OrderChecker& checker, const std::string& statement) {
  const Statement& definition = checker.data().facts->nest.statement(statement);
  const LoopSpace& space = checker.space(statement);
  return {statement, definition.dims, space.loops(), checker.data().forms.at(statement),
          loop_relation_of(definition, space).range()};
}

}  // namespace

std::string instance_text(const OrderConflict::End& end, const std::vector<std::int64_t>& iteration) {
  std::string text = end.statement + "[";
  for (std::size_t k = 0; k < end.dims.size(); ++k)
    text += fmt::format("{}{}={}", k > 0 ? ", " : "", end.dims[k], value_of(end.form.dims[k], end.loops, iteration));
  return text + "]";
}

OrderConflict conflict_of(OrderChecker& checker, const Violation& violation) {
  const Dependence& dependence = checker.data().facts->dependences()[violation.dependence];
  return {end_of(checker, dependence.source),
          end_of(checker, dependence.sink),
          violation.pairs,
          describe(dependence),
          violation.loop,
          violation.loop_kind};
}

std::string explain_violation(const ScheduleData& before, const Step& step, const Violation& violation,
                              const OrderConflict& conflict, const Dependence& dependence) {
  const Witness witness = witness_of(violation.pairs, conflict.source.loops.size());
  std::string text = fmt::format("step `{}` is illegal: {} must come before {} ({} through {}{}), but {}{}.", describe(step),
                                 instance_text(conflict.source, witness.source_loops),
                                 instance_text(conflict.sink, witness.sink_loops), to_string(dependence.kind), dependence.tensor,
                                 dependence.reduction ? ", a reduction" : "", what_goes_wrong(violation), sizes_text(witness));
  if (!violation.note.empty()) text += " Note: " + violation.note + ".";
  const std::string remedy = find_remedy(before, step, violation);
  if (!remedy.empty()) text += " Remedy: " + remedy + ".";
  return text;
}

}  // namespace nestor
