// Points of others first, then the searcher's, then those that were put off.
#include "autotune/proposals.h"

#include "autotune/space/structure/rule_steps.h"
#include "codegen/gpu/target/gpu_target.h"

#include <algorithm>
#include <string>
#include <utility>

namespace nestor {
namespace {

constexpr std::size_t kMostPostponed = 64;

template <class T>
T take_first(std::deque<T>& list) {
  T first = std::move(list.front());
  list.pop_front();
  return first;
}

}  // namespace

OperandRounding::Form OperandRounding::form_of(const NamedValues& values) {
  const std::string halves = "operand_halves", parts = std::string("rule.") + kMixedPartsRule;
  if ((!values.contains(halves) && !values.contains(parts)) || value_or(values, "warpgroups", 0) == 0) return Form::none;
  return value_or(values, halves, 0) != 0 || value_or(values, parts, 0) != 0 ? Form::halves : Form::rounded;
}

bool OperandRounding::explains(const NamedValues& values, double max_error, bool lost_infinity) {
  if (lost_infinity) return value_or(values, "warpgroups", 0) != 0;
  return form_of(values) != Form::none && max_error > 1 && max_error <= kMostOfRounding;
}

void OperandRounding::note(Form form, bool wrong, bool right) {
  if (form == Form::none) return;
  Count& count = form == Form::halves ? halves_ : rounded_;
  count.wrong += wrong ? 1 : 0;
  count.right += right ? 1 : 0;
}

bool OperandRounding::needless(Form form) const {
  const bool halves_fail = halves_.right == 0 && halves_.wrong >= kMostWrong;
  if (form == Form::rounded) return rounded_.wrong >= kMostWrong * (1 + rounded_.right) && !halves_fail;
  return form == Form::halves && rounded_.wrong == 0 && rounded_.right >= kFewestRight;
}

namespace {

/// Worth compiling, with all fused as the point says.
bool is_whole(const Space& space, const Point& point) {
  const Candidate candidate = space.candidate(point);
  return candidate.infeasible.empty() && !candidate.cut;
}

}  // namespace

std::optional<Point> first_whole_guess(const Space& space, const std::vector<Point>& points) {
  const auto first = std::find_if(points.begin(), points.end(), [&](const Point& point) { return is_whole(space, point); });
  return first == points.end() ? std::nullopt : std::optional(*first);
}

bool has_feasible_guess(const Space& space, const std::vector<Point>& points) {
  return first_whole_guess(space, points).has_value();
}

bool starts_whole(const Space& space, const std::vector<Point>& points) {
  return !points.empty() && is_whole(space, points.front());
}

bool lacks_size(const Space& space, const std::vector<Point>& points) {
  if (points.empty()) return false;
  const NamedValues values = named_values(space, points.front());
  const auto takes = [&](const char* rule) { return value_or(values, std::string("rule.") + rule, 0) != 0; };
  const bool worth = value_or(values, "warpgroups", 0) > 0 || takes(kRowsRule) || takes(kFoldingRule);
  return worth && space.candidate(points.front()).infeasible.find(nvptx::kUnknownSize) != std::string::npos;
}

bool starts_on_tensor_cores(const Space& space, const std::vector<Point>& points) {
  return !points.empty() && value_or(named_values(space, points.front()), "warpgroups", 0) > 0 &&
         space.candidate(points.front()).infeasible.empty();
}

void Proposals::try_soon(const Point& point, const char* origin) {
  const bool known = std::any_of(soon_.begin(), soon_.end(), [&](const Proposal& each) { return each.point == point; });
  if (!known) soon_.push_back({point, origin});
}

void Proposals::try_guesses_backwards() {
  for (std::size_t k = guesses().size(); k-- > 0;) try_soon(guesses()[k], "guess");
}

void Proposals::try_other_guesses() {
  const auto on_lanes = [&](const Point& point) {
    return value_or(named_values(space_, point), "warpgroups", 0) == 0 && space_.candidate(point).infeasible.empty();
  };
  const auto first = std::find_if(guesses().begin(), guesses().end(), on_lanes);
  if (first == guesses().end()) return;
  try_soon(*first, "guess");
  try_soon(guesses().back(), "guess");
}

const std::vector<Point>& Proposals::guesses() {
  if (!guesses_) guesses_ = space_.defaults();
  return *guesses_;
}

Point Proposals::first_guess() { return guesses().empty() ? space_.baseline() : guesses().front(); }

std::optional<Proposal> Proposals::next(bool patient) {
  const bool hopeful = any_tried_ || proposed_ <= guesses().size();
  if (!(patient && hopeful) && !postponed_.empty()) return take_first(postponed_);
  if (!soon_.empty()) return take_first(soon_);
  if (auto point = searcher_.propose()) {
    ++proposed_;
    const bool guess = std::find(guesses().begin(), guesses().end(), *point) != guesses().end();
    return Proposal{std::move(*point), guess ? "guess" : "search"};
  }
  if (!postponed_.empty()) return take_first(postponed_);
  return std::nullopt;
}

bool Proposals::put_off(const Proposal& proposal) {
  if (proposal.waited || postponed_.size() >= kMostPostponed) return false;
  postponed_.push_back({proposal.point, proposal.origin, true});
  return true;
}

}  // namespace nestor
