// Rows all of whose terms are infinite, and rows with a NaN.
#include "poly/algebra/analysis/infinite_rows.h"

#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "poly/algebra/analysis/extremum_bounds.h"
#include "poly/algebra/analysis/finite_lead.h"
#include "poly/algebra/analysis/known_values.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"

namespace nestor {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_member(const OnlinePlan& plan, const std::string& statement) {
  return statement == plan.lead || contains(plan.mediators, statement) || contains(plan.followers, statement);
}

/// Values in such a row as a composite has it, with sums of 0; `lead`: the extremum, if it may be read.
KnownValues infinite_row(const Nest& nest, const OnlinePlan& plan, std::optional<double> lead, bool lead_stays = true) {
  std::map<std::string, double> known;
  for (const std::string& follower : plan.followers) known[nest.statement(follower).write.tensor] = 0;
  if (lead) known[plan.lead_tensor] = *lead;
  return {nest, std::move(known), &plan, lead_stays};
}

/// Values in such a row by the definition, where nothing is known of the sums but that this one is NaN.
KnownValues with_nan_in(const Nest& nest, const OnlinePlan& plan, std::optional<double> lead, const std::string& sum) {
  std::map<std::string, double> known{{sum, std::numeric_limits<double>::quiet_NaN()}};
  if (lead) known[plan.lead_tensor] = *lead;
  return {nest, std::move(known), &plan};
}

/// What the extremum is in such a row; not known where its multiple may be infinite alone.
std::optional<double> infinity_of(const Nest& nest, const OnlinePlan& plan) {
  if (std::any_of(plan.lead_factors.begin(), plan.lead_factors.end(), is_multiplied)) return std::nullopt;
  return neutral_element(*nest.statement(plan.lead).reduction, ElementType::f32);
}

/// Does the expression's value come from the tensor in such a row, where what is known decides selects?
bool comes_from(const KnownValues& row, const Statement& statement, const ScalarExpr& expr, const std::string& tensor) {
  if (expr.op() == ScalarOp::read) return statement.reads.at(expr.ordinal()).tensor == tensor;
  std::vector<ScalarExpr> sources = expr.args();
  if (expr.op() == ScalarOp::select) {
    if (const auto condition = row.of(statement, expr.args()[0])) sources = {expr.args()[*condition != 0 ? 1 : 2]};
  }
  return std::any_of(sources.begin(), sources.end(),
                     [&](const ScalarExpr& source) { return comes_from(row, statement, source, tensor); });
}

/// Reads of followers' results by other statements, with the follower.
struct Reading {
  const Statement* reader;
  int ordinal;
  const Statement* follower;
};

std::vector<Reading> readings(const Nest& nest, const OnlinePlan& plan) {
  std::vector<Reading> all;
  for (const std::string& follower : plan.followers) {
    const Statement& sum = nest.statement(follower);
    for (const Statement* reader : readers_of(nest, sum.write.tensor)) {
      for (std::size_t k = 0; k < reader->reads.size(); ++k) {
        if (reader->reads[k].tensor == sum.write.tensor && !is_member(plan, reader->name))
          all.push_back({reader, static_cast<int>(k), &sum});
      }
    }
  }
  return all;
}

bool matters(const KnownValues& row, const Reading& reading) {
  return comes_from(row, *reading.reader, reading.reader->value, reading.follower->write.tensor);
}

/// The term beside the innermost value in f32 arithmetic that the result is a cast of. In a sum of products it is beside the factor that
/// reads `tensor`: the sum stays one of products.
ScalarExpr with_term(const Statement& reader, const ScalarExpr& value, const std::string& tensor, const ScalarExpr& term) {
  const bool cast = value.op() == ScalarOp::cast && value.type() != ElementType::f32;
  const bool product = value.op() == ScalarOp::mul && reader.reduction == ReductionOp::add;
  if (!cast && !product) return build::add(value, term);
  std::vector<ScalarExpr> args = value.args();
  const auto reads = [&](const ScalarExpr& arg) { return reads_tensor(reader, arg, tensor); };
  const auto marked = cast ? args.begin() : std::find_if(args.begin(), args.end(), reads);
  *marked = with_term(reader, *marked, tensor, term);
  return value.with_args(std::move(args));
}

}  // namespace

bool infinite_rows_show(const Nest& nest, const OnlinePlan& plan, bool lead_stays, std::string* why) {
  const auto say = [&](const std::string& reason) {
    if (why != nullptr) *why = reason;
    return true;
  };
  for (const std::string& follower : plan.followers) {
    const std::string& tensor = nest.statement(follower).write.tensor;
    if (nest.tensor(tensor).role == TensorRole::output)
      return say(
          fmt::format("{} is a result, and would be 0 in place of NaN where all terms of {} are infinite", tensor, plan.lead));
  }
  const KnownValues row = infinite_row(nest, plan, lead_stays ? infinity_of(nest, plan) : std::nullopt, lead_stays);
  for (const Reading& reading : readings(nest, plan)) {
    if (row.is_nan(*reading.reader, reading.reader->value) || !matters(row, reading)) continue;
    return say(fmt::format("{} would see 0 in {} in place of NaN where all terms of {} are infinite", reading.reader->name,
                           reading.follower->write.tensor, plan.lead));
  }
  return false;
}

std::optional<Nest> with_marked_rows(const Nest& nest, const OnlinePlan& plan, std::string* why) {
  const std::optional<double> infinity = infinity_of(nest, plan);
  const KnownValues seen = infinite_row(nest, plan, infinity);
  Nest result = nest;
  std::set<std::string> done;
  for (const Reading& reading : readings(nest, plan)) {
    const Statement& old = *reading.reader;
    if (done.contains(old.name) || seen.is_nan(old, old.value) || !matters(seen, reading)) continue;
    Statement reader = result.statement(old.name);
    const isl::set domain = domain_in(nest, reader);
    const isl::map elements = reader.reads[reading.ordinal].relation.intersect_domain(domain);
    const isl::map summed = reading.follower->write.relation.intersect_domain(domain_in(nest, *reading.follower));
    const isl::map leads = elements.apply_range(plan.lead_elements.at(reading.follower->name)).coalesce();
    const bool all_have_points = elements.range().is_subset(summed.range()) && domain.is_subset(leads.domain());
    // A term that a select hides is no NaN.
    const bool is_nan = all_have_points && seen.is_nan(*reading.follower, reading.follower->value) &&
                        with_nan_in(nest, plan, infinity, reading.follower->write.tensor).is_nan(old, old.value);
    if (!is_nan || !leads.is_single_valued()) break;
    const ScalarExpr m = build::as_f32(ScalarExpr::read(
        add_read(reader, {plan.lead_tensor, leads.gist_domain(domain).coalesce()}), nest.tensor(plan.lead_tensor).type));
    const ScalarExpr multiple = plan.lead_factors.empty() ? m : to_expr(multiply({1, {{m, 1}}}, plan.lead_factors[0]));
    reader.value = with_term(reader, reader.value, reading.follower->write.tensor, build::sub(multiple, multiple));
    replace_statement(result, reader);
    done.insert(old.name);
  }
  if (infinite_rows_show(result, plan, true, why)) return std::nullopt;
  return result;
}

bool sums_pass_nan(const Nest& nest, const OnlinePlan& plan, std::string* why) {
  const KnownValues row = infinite_row(nest, plan, std::nullopt);
  for (const std::string& follower : plan.followers) {
    const Statement& statement = nest.statement(follower);
    const bool covered = covers_lead(nest, statement, nest.statement(plan.lead), plan.lead_instances.at(follower),
                                     plan.lead_elements.at(follower));
    if (covered && row.is_nan(statement, statement.value)) continue;
    if (why != nullptr)
      *why = fmt::format("{} does not take every term of {}, and would miss one that is NaN", follower, plan.lead);
    return false;
  }
  return true;
}

}  // namespace nestor
