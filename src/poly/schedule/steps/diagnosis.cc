// What an illegal step breaks, in numbers.
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/point.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>

#include "poly/schedule/steps/editor.h"
#include "support/error.h"

namespace nestor {
namespace {

constexpr std::uint64_t kSmallestPointBudget = 500'000;

/// A concrete pair of instances that a schedule breaks.
struct Witness {
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  std::vector<std::int64_t> source_loops;
  std::vector<std::int64_t> sink_loops;
};

std::int64_t coordinate(const isl::point& point, int at) {
  isl_val* value = isl_point_get_coordinate_val(point.get(), isl_dim_set, at);
  const std::int64_t number = isl_val_get_num_si(value);
  isl_val_free(value);
  return number;
}

/// The smallest point (sizes first), or any if finding the smallest takes too long.
isl::point smallest_point(const isl::set& set) {
  try {
    const IslBudget budget(kSmallestPointBudget);
    return isl::manage(isl_set_sample_point(isl_set_lexmin(set.copy())));
  } catch (const isl::exception&) {
    isl_ctx_reset_error(set.ctx().get());
    return isl::manage(isl_set_sample_point(set.copy()));
  }
}

Witness witness_of(const isl::map& pairs, std::size_t source_loops) {
  isl_set* flat = isl_set_flatten(isl_map_wrap(pairs.copy()));
  const unsigned params = static_cast<unsigned>(isl_set_dim(flat, isl_dim_param));
  Witness witness;
  for (unsigned k = 0; k < params; ++k) witness.sizes.emplace_back(isl_set_get_dim_name(flat, isl_dim_param, k), 0);
  const unsigned dims = static_cast<unsigned>(isl_set_dim(flat, isl_dim_set));
  const isl::point point = smallest_point(isl::manage(isl_set_move_dims(flat, isl_dim_set, 0, isl_dim_param, 0, params)));
  for (unsigned k = 0; k < params; ++k) witness.sizes[k].second = coordinate(point, static_cast<int>(k));
  for (unsigned k = 0; k < dims; ++k) {
    (k < source_loops ? witness.source_loops : witness.sink_loops).push_back(coordinate(point, static_cast<int>(params + k)));
  }
  return witness;
}

std::int64_t value_of(const LinearForm& form, const std::vector<std::string>& loops, const std::vector<std::int64_t>& values) {
  std::int64_t sum = form.constant;
  for (std::size_t k = 0; k < loops.size(); ++k) sum += form.coefficient(loops[k]) * values[k];
  return sum;
}

std::string instance_text(const ScheduleData& data, const std::string& statement, const std::vector<std::string>& loops,
                          const std::vector<std::int64_t>& values) {
  const LoopForm& form = data.forms.at(statement);
  const std::vector<std::string>& dims = data.facts->nest.statement(statement).dims;
  std::string text = statement + "[";
  for (std::size_t k = 0; k < dims.size(); ++k) {
    text += fmt::format("{}{}={}", k > 0 ? ", " : "", dims[k], value_of(form.dims[k], loops, values));
  }
  return text + "]";
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

}  // namespace

std::string explain_violation(const ScheduleData& before, const ScheduleData& after, const Step& step,
                              const Violation& violation) {
  const Dependence& dependence = after.facts->dependences()[violation.dependence];
  const TreeIndex index(after.tree);
  const std::vector<std::string> source_loops = index.loop_names(dependence.source);
  const std::vector<std::string> sink_loops = index.loop_names(dependence.sink);
  const Witness witness = witness_of(violation.pairs, source_loops.size());
  std::string text = fmt::format("step `{}` is illegal: {} must come before {} ({} through {}{}), but {}{}.", describe(step),
                                 instance_text(after, dependence.source, source_loops, witness.source_loops),
                                 instance_text(after, dependence.sink, sink_loops, witness.sink_loops),
                                 to_string(dependence.kind), dependence.tensor, dependence.reduction ? ", a reduction" : "",
                                 what_goes_wrong(violation), sizes_text(witness));
  if (!violation.note.empty()) text += " Note: " + violation.note + ".";
  const std::string remedy = find_remedy(before, step, violation);
  if (!remedy.empty()) text += " Remedy: " + remedy + ".";
  return text;
}

}  // namespace nestor
