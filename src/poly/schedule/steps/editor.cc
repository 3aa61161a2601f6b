// The editor's frame: arguments, names, and the check after each step.
#include "poly/schedule/steps/editor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "poly/schedule/order/illegal_step.h"
#include "poly/schedule/order/running_values.h"
#include "support/error.h"
#include "support/words/nearest_word.h"

namespace nestor {
namespace {

constexpr std::int64_t kLargestCoefficient = std::int64_t{1} << 40;

const ScheduleEditor::Entry& entry_of(const Step& step) {
  for (const ScheduleEditor::Entry& entry : ScheduleEditor::entries()) {
    if (step.name == entry.name) return entry;
  }
  std::vector<std::string> names;
  for (const ScheduleEditor::Entry& entry : ScheduleEditor::entries()) names.emplace_back(entry.name);
  user_error("there is no step `{}`{}; the steps are {}", step.name, did_you_mean(step.name, names), fmt::join(names, ", "));
}

bool is_name(const std::string& text) {
  const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  const bool starts = !text.empty() && (std::isalpha(static_cast<unsigned char>(text.front())) != 0 || text.front() == '_');
  return starts && std::all_of(text.begin(), text.end(), part);
}

bool ends_in(const std::string& loop, const std::string& dim) {
  return loop.size() > dim.size() + 1 && loop.ends_with(dim) && loop[loop.size() - dim.size() - 1] == '.';
}

}  // namespace

void StepArgs::expect(std::size_t least, std::size_t most) const {
  if (count() >= least && count() <= most) return;
  const ScheduleEditor::Entry& entry = entry_of(step_);
  user_error("step `{}`: {} takes ({}), but {} argument{} given", describe(step_), entry.name, entry.arguments, count(),
             count() == 1 ? " was" : "s were");
}

std::string StepArgs::text(std::size_t index) const {
  const nlohmann::json& value = step_.args.at(index);
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    user_error("step `{}`: argument {} must be a name; {} takes ({})", describe(step_), index + 1, step_.name,
               entry_of(step_).arguments);
  }
  return value.get<std::string>();
}

std::int64_t StepArgs::integer(std::size_t index, std::int64_t least, std::int64_t most) const {
  const nlohmann::json& value = step_.args.at(index);
  if (!value.is_number_integer()) {
    user_error("step `{}`: argument {} must be an integer; {} takes ({})", describe(step_), index + 1, step_.name,
               entry_of(step_).arguments);
  }
  const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  if (huge || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
    user_error("step `{}`: argument {} must be between {} and {}", describe(step_), index + 1, least, most);
  }
  return value.get<std::int64_t>();
}

ScheduleData ScheduleEditor::applied(const ScheduleData& before, const Step& step, bool explain) {
  const Entry& entry = entry_of(step);
  ScheduleEditor editor(before, step);
  (editor.*entry.member)();
  with_isl_budget("the proof of step `" + describe(step) + "`", [&] { editor.check_order(before, explain); });
  editor.check_stages();
  editor.data_.steps.push_back(std::make_shared<const Step>(step));
  return std::move(editor.data_);
}

void ScheduleEditor::check_order(const ScheduleData& before, bool explain) {
  if (scopes_.empty()) return;
  const auto refuse = [&] { throw UserError(where() + "breaks a dependence"); };
  OrderChecker checker(data_);
  std::optional<Violation> violation;
  std::set<std::string> touched;
  for (const OrderScope& scope : scopes_) {
    if (const auto group = violation ? std::nullopt : checker.broken_group(scope)) {
      if (!explain) refuse();
      violation = checker.violation_of(*group, scope);
    }
    for (const auto& [statement, part] : scope.part) touched.insert(statement);
  }
  if (!violation) violation = judge_composites(checker, touched, data_.active);
  if (!violation) return;
  if (!explain) refuse();
  OrderConflict conflict = conflict_of(checker, *violation);
  const Dependence& dependence = data_.facts->dependences()[violation->dependence];
  const std::string message = explain_violation(before, step_, *violation, conflict, dependence);
  throw IllegalStep(message, std::move(conflict));
}

std::string ScheduleEditor::where() const { return "step `" + describe(step_) + "`: "; }

OrderScope ScheduleEditor::scope_below(const Tree& node, std::size_t first_depth, std::size_t last_depth, bool sequence) const {
  OrderScope scope;
  for (const std::string& statement : statements_under(*node)) scope.part[statement] = 0;
  scope.first_depth = first_depth;
  scope.last_depth = last_depth;
  scope.sequence = sequence;
  return scope;
}

Tree ScheduleEditor::resolve_loop(const std::string& name) const {
  if (Tree exact = find_loop(data_.tree, name)) return exact;
  const std::vector<std::string> all = loop_names(data_.tree);
  std::vector<std::string> fitting;
  std::copy_if(all.begin(), all.end(), std::back_inserter(fitting), [&](const std::string& l) { return ends_in(l, name); });
  if (fitting.size() == 1) return find_loop(data_.tree, fitting.front());
  if (!fitting.empty())
    user_error("{}`{}` may mean any of the loops {}; give the full name", where(), name, fmt::join(fitting, ", "));
  if (all.empty()) user_error("{}there is no loop `{}`: the schedule has no loops", where(), name);
  user_error("{}there is no loop `{}`; the loops are {}", where(), name, fmt::join(all, ", "));
}

Tree ScheduleEditor::loop_argument(std::size_t index) const { return resolve_loop(args_.text(index)); }

const Statement& ScheduleEditor::statement_argument(std::size_t index) const {
  const std::string name = args_.text(index);
  if (const Statement* found = data_.facts->nest.find_statement(name)) return *found;
  std::vector<std::string> names;
  for (const Statement& statement : data_.facts->nest.statements) names.push_back(statement.name);
  user_error("{}there is no statement `{}`; the statements are {}", where(), name, fmt::join(names, ", "));
}

void ScheduleEditor::check_new_loop(const std::string& name, const std::string& replaced) const {
  if (!is_name(name)) user_error("{}`{}` cannot name a loop: use letters, digits, '_' and '.'", where(), name);
  if (name != replaced && find_loop(data_.tree, name)) user_error("{}there is a loop `{}` already", where(), name);
  for (const SizeParam& size : data_.facts->nest.sizes) {
    if (size.name == name) user_error("{}`{}` is the name of a size; choose another for the loop", where(), name);
  }
}

void ScheduleEditor::substitute(const std::vector<std::string>& statements, const std::string& loop, const LinearForm& value) {
  const auto small = [](std::int64_t c) { return c >= -kLargestCoefficient && c <= kLargestCoefficient; };
  for (const std::string& statement : statements) {
    LoopForm& form = data_.forms.change(statement);
    for (std::vector<LinearForm>* forms : {&form.dims, &form.constraints}) {
      for (LinearForm& each : *forms) {
        if (each.coefficient(loop) == 0) continue;
        each = each.substitute(loop, value);
        const bool fits = small(each.constant) &&
                          std::all_of(each.terms.begin(), each.terms.end(), [&](const auto& term) { return small(term.second); });
        if (!fits) user_error("{}the factors of all steps together are too large for statement {}", where(), statement);
      }
    }
  }
}

}  // namespace nestor
