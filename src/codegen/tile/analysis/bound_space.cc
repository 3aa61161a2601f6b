// Integer expressions to isl parameters, and questions about them.
#include "codegen/tile/analysis/bound_space.h"

#include "poly/isl/context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/set.h>

#include <set>
#include <utility>

namespace nestor::nvptx {
namespace {

bool is_truth(IntOp op) {
  return op == IntOp::ge || op == IntOp::gt || op == IntOp::eq || op == IntOp::logical_and || op == IntOp::logical_or ||
         op == IntOp::logical_not;
}

std::string either(const std::string& condition, const std::string& yes, const std::string& no) {
  return fmt::format("(({0} and {1}) or ((not {0}) and {2}))", condition, yes, no);
}

/// The names s0, s1, ... in isl text, each once.
std::set<std::string> symbols_in(const std::string& text) {
  std::set<std::string> names;
  for (std::size_t at = text.find('s'); at != std::string::npos; at = text.find('s', at + 1)) {
    const std::size_t end = text.find_first_not_of("0123456789", at + 1);
    if (end > at + 1) names.insert(text.substr(at, end - at));
  }
  return names;
}

isl::set parse(const std::vector<std::string>& parameters, const std::string& tuple, const std::string& constraints) {
  return isl::set(isl_context(), fmt::format("[{}] -> {{ {} : {} }}", fmt::join(parameters, ", "), tuple, constraints));
}

}  // namespace

BoundSpace::BoundSpace(const std::vector<SizeConstraint>& valid, BoundAnswers& known) : known_(known) {
  for (const SizeConstraint& constraint : valid) {
    Affine form;
    form.terms = constraint.terms;
    form.constant = constraint.constant;
    const std::string text = linear(form);
    state(constraint.modulus > 0 ? fmt::format("{} mod {} = 0", text, constraint.modulus)
                                 : fmt::format("{} {} 0", text, constraint.equality ? "=" : ">="),
          Detail::exact);
  }
}

void BoundSpace::collect_terms(const IntExpr& expr) {
  if (expr.op() == IntOp::constant || expr.op() == IntOp::variable) return;
  if (!collected_.emplace(&expr.args(), expr).second) return;
  terms_["[" + expr.str() + "]"] = expr;
  for (const IntExpr& part : expr.args()) collect_terms(part);
}

Affine BoundSpace::form_of(const IntExpr& expr) {
  collect_terms(expr);
  return affine_of(expr);
}

std::string BoundSpace::linear(const Affine& form) {
  std::string text = "(";
  for (const auto& [term, coefficient] : form.terms) text += fmt::format("{}*{} + ", coefficient, symbol(term));
  return text + fmt::format("{})", form.constant);
}

std::string BoundSpace::symbol(const std::string& term) {
  const auto found = symbols_.find(term);
  if (found != symbols_.end()) return found->second;
  const std::string name = fmt::format("s{}", names_.size());
  names_.push_back(name);
  symbols_[term] = name;
  const auto expr = terms_.find(term);
  if (expr != terms_.end()) define(name, IntExpr(expr->second));
  return name;
}

std::string BoundSpace::condition(const IntExpr& expr) {
  const auto compare = [&](const char* sign) {
    return fmt::format("({} {} {})", operand(expr.args()[0]), sign, operand(expr.args()[1]));
  };
  switch (expr.op()) {
    case IntOp::ge:
      return compare(">=");
    case IntOp::gt:
      return compare(">");
    case IntOp::eq:
      return compare("=");
    case IntOp::logical_and:
      return fmt::format("({} and {})", condition(expr.args()[0]), condition(expr.args()[1]));
    case IntOp::logical_or:
      return fmt::format("({} or {})", condition(expr.args()[0]), condition(expr.args()[1]));
    case IntOp::logical_not:
      return fmt::format("(not {})", condition(expr.args()[0]));
    default:
      return fmt::format("(not ({} = 0))", operand(expr));
  }
}

void BoundSpace::define(const std::string& symbol, const IntExpr& expr) {
  const auto& args = expr.args();
  const auto divisor = args.size() == 2 ? args[1].as_constant() : std::nullopt;
  switch (expr.op()) {
    case IntOp::floor_div:
      if (divisor) state(fmt::format("0 <= {} - {}*{} < {}", operand(args[0]), *divisor, symbol, *divisor), Detail::exact);
      return;
    case IntOp::mod: {
      if (!divisor) return;
      const std::string whole = operand(floor_div(args[0], *divisor));
      state(fmt::format("{} = {} - {}*{}", symbol, operand(args[0]), *divisor, whole), Detail::exact);
      return;
    }
    case IntOp::min:
    case IntOp::max: {
      const std::string a = operand(args[0]), b = operand(args[1]);
      const std::string a_first = fmt::format("({} {} {})", a, expr.op() == IntOp::min ? "<=" : ">=", b);
      state(either(a_first, fmt::format("{} = {}", symbol, a), fmt::format("{} = {}", symbol, b)));
      return;
    }
    case IntOp::select:
      state(either(condition(args[0]), fmt::format("{} = {}", symbol, operand(args[1])),
                   fmt::format("{} = {}", symbol, operand(args[2]))));
      return;
    default:
      if (is_truth(expr.op())) state(either(condition(expr), symbol + " = 1", symbol + " = 0"));
  }
}

std::string BoundSpace::value(const IntExpr& expr) {
  Affine form = form_of(expr);
  const std::int64_t constant = std::exchange(form.constant, 0);
  if (form.is_constant()) return fmt::format("({})", constant);
  const std::string text = linear(form);
  const auto [found, added] = values_.try_emplace(text, fmt::format("b{}", asked_.size()));
  if (added) {
    asked_.push_back(found->second);
    state(fmt::format("{} = {}", found->second, text));
    entry_ = nullptr;
  }
  return fmt::format("({} + {})", found->second, constant);
}

std::string BoundSpace::truth(const std::vector<IntExpr>& conditions) { return trips(IntExpr(0), IntExpr(1), conditions); }

std::string BoundSpace::trips(const IntExpr& lower, const IntExpr& upper, const std::vector<IntExpr>& conditions) {
  const std::string from = value(lower), to = value(upper);
  std::string runs = fmt::format("{} > {}", to, from);
  for (const IntExpr& expr : conditions) {
    const IntExpr holds =
        is_truth(expr.op()) ? expr : IntExpr::make(IntOp::logical_not, {IntExpr::make(IntOp::eq, {expr, IntExpr(0)})});
    runs += fmt::format(" and {} = 1", value(holds));
  }
  if (conditions.empty() && affine_of(upper - lower) == Affine{{}, 1}) return "(1)";
  const auto [found, added] = values_.try_emplace(runs, fmt::format("b{}", asked_.size()));
  if (added) {
    asked_.push_back(found->second);
    counts_.push_back(either("(" + runs + ")", fmt::format("{} = {} - {}", found->second, to, from), found->second + " = 0"));
    entry_ = nullptr;
  }
  return found->second;
}

BoundAnswers::Entry& BoundSpace::entry() {
  if (entry_ != nullptr) return *entry_;
  std::string text = fmt::format("{}\n", fmt::join(asked_, " "));
  for (const Definition& definition : definitions_)
    text += (definition.detail == Detail::exact ? "= " : "~ ") + definition.text + "\n";
  for (const std::string& count : counts_) text += "# " + count + "\n";
  entry_ = &known_.of(text);
  return *entry_;
}

isl::set BoundSpace::relations(Detail detail) const {
  // Terms are projected out behind the last definition that names them.
  std::vector<const Definition*> used;
  std::map<std::string, std::size_t> last;
  for (const Definition& definition : definitions_) {
    if (definition.detail > detail) continue;
    for (const std::string& name : symbols_in(definition.text)) last[name] = used.size();
    used.push_back(&definition);
  }
  isl::set known = parse(asked_, "", "0 = 0");
  for (std::size_t k = 0; k < used.size(); ++k) {
    std::vector<std::string> names = asked_;
    for (const std::string& name : symbols_in(used[k]->text)) names.push_back(name);
    isl_set* both = isl_set_intersect(known.release(), parse(names, "", used[k]->text).release());
    for (const auto& [name, at] : last) {
      const int position = at == k ? isl_set_find_dim_by_name(both, isl_dim_param, name.c_str()) : -1;
      if (position >= 0) both = isl_set_project_out(both, isl_dim_param, static_cast<unsigned>(position), 1);
    }
    known = isl::manage(isl_set_coalesce(both));
  }
  if (detail == Detail::with_divisions) return known;
  return isl::manage(isl_set_coalesce(isl_set_remove_divs(known.release())));
}

const isl::set& BoundSpace::context(Detail detail) {
  std::map<Detail, isl::set>& contexts = entry().contexts;
  const auto found = contexts.find(detail);
  if (found != contexts.end()) return found->second;
  isl::set known = relations(detail);
  for (const std::string& count : counts_)
    known = isl::manage(isl_set_coalesce(isl_set_intersect(known.release(), parse(asked_, "", count).release())));
  return contexts[detail] = known;
}

bool BoundSpace::impossible(const std::string& dims, const std::string& constraints) {
  std::map<std::string, bool>& answers = entry().answers;
  const std::string question = dims + " : " + constraints;
  if (const auto found = answers.find(question); found != answers.end()) return found->second;
  const isl::set points = parse(asked_, "[" + dims + "]", constraints);
  const auto none_in = [&](const isl::set& known) {
    return isl::manage(isl_set_intersect_params(points.copy(), known.copy())).is_empty();
  };
  const auto details = {Detail::quotients_free, Detail::exact, Detail::with_divisions};
  return answers[question] = std::any_of(details.begin(), details.end(), [&](Detail detail) { return none_in(context(detail)); });
}

}  // namespace nestor::nvptx
