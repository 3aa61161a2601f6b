// Event trees as straight blocks, and numbers of their steps.
#include "codegen/gpu/mma/pipeline/tensor_roles.h"

#include "codegen/tile/analysis/conditions.h"
#include "codegen/tile/analysis/mask_cnf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace nestor::nvptx {
namespace {

class RoleReader {
 public:
  RoleReader(BoundSpace& bounds, std::vector<std::string>& problems) : bounds_(bounds), problems_(problems) {}

  Role read(const EventNode& root) {
    children(root);
    return std::move(role_);
  }

 private:
  void children(const EventNode& node) {
    for (const EventNode& child : node.children) read_node(child);
  }

  void read_node(const EventNode& node) {
    switch (node.kind) {
      case EventNode::Kind::event:
        return add(node.event);
      case EventNode::Kind::sequence:
        return sequence(node);
      case EventNode::Kind::condition:
        if (inside_loop_) problems_.emplace_back("a condition stands in a loop");
        conditions_.push_back(node.condition);
        open_ = false;
        children(node);
        conditions_.pop_back();
        open_ = false;
        return;
      case EventNode::Kind::loop:
        return loop(node);
    }
  }

  void sequence(const EventNode& node) {
    if (node.var.empty()) return children(node);
    const IntExpr value = var_.empty() ? node.lower : node.lower.substitute(var_, value_);
    if (!var_.empty() && var_ != node.var) problems_.push_back(fmt::format("{} is bound where {} is", node.var, var_));
    const auto outer = std::pair(std::exchange(var_, node.var), std::exchange(value_, value));
    children(node);
    std::tie(var_, value_) = outer;
  }

  void loop(const EventNode& node) {
    if (inside_loop_ || !var_.empty()) problems_.push_back(fmt::format("loop {} stands where a variable is bound", node.var));
    RoleBlock block;
    block.conditions = conditions_;
    block.var = node.var;
    block.lower = node.lower;
    block.upper = node.upper;
    block.trips = bounds_.trips(block.lower, block.upper, conditions_);
    role_.push_back(std::move(block));
    open_ = inside_loop_ = true;
    const auto outer = std::pair(std::exchange(var_, node.var), std::exchange(value_, IntExpr::variable(node.var)));
    children(node);
    std::tie(var_, value_) = outer;
    open_ = inside_loop_ = false;
  }

  void add(const Event& event) {
    if (!open_) {
      RoleBlock block;
      block.conditions = conditions_;
      block.trips = bounds_.truth(conditions_);
      role_.push_back(std::move(block));
      open_ = true;
    }
    role_.back().steps.push_back({event, var_, value_});
    if (var_.empty()) return;
    // A copy is for an iteration to come.
    if (event.kind == Event::Kind::load) role_.back().steps.back().value = value_ + IntExpr(event.count);
    const auto slope = value_.coefficient(var_);
    if (slope != 0 && (slope != 1 || !role_.back().loop()))
      problems_.push_back(fmt::format("{} is no distance from its loop's counter", value_.str()));
  }

  BoundSpace& bounds_;
  std::vector<std::string>& problems_;
  Role role_;
  std::vector<IntExpr> conditions_;
  std::string var_;
  IntExpr value_;
  bool open_ = false, inside_loop_ = false;
};

}  // namespace

Role role_of(const EventNode& root, BoundSpace& bounds, std::vector<std::string>& problems) {
  return RoleReader(bounds, problems).read(root);
}

std::string run_of(const RoleBlock& block, const std::string& counter, BoundSpace& bounds) {
  if (!block.loop()) return fmt::format("{} = 0 and {} = 1", counter, block.trips);
  return fmt::format("{} <= {} < {} and {} > 0", bounds.value(block.lower), counter, bounds.value(block.upper), block.trips);
}

std::string value_of(const RoleStep& step, const std::string& counter, BoundSpace& bounds) {
  if (!step.value.uses(step.var)) return bounds.value(step.value);
  return fmt::format("({} + {})", counter, bounds.value(step.value.substitute(step.var, IntExpr(0))));
}

StepCounter::StepCounter(const Role& role, BoundSpace& bounds, std::function<bool(const Event&)> counts)
    : role_(role), bounds_(bounds), counts_(std::move(counts)) {
  std::string start = "0";
  starts_.push_back(start);
  for (const RoleBlock& block : role_) {
    int each = 0;
    for (const RoleStep& step : block.steps) each += counts_(step.event) ? 1 : 0;
    each_.push_back(each);
    if (each > 0) start += fmt::format(" + {}*{}", each, block.trips);
    starts_.push_back(start);
  }
}

std::string StepCounter::before(std::size_t block, std::size_t at, const std::string& counter) const {
  int earlier = 0;
  for (std::size_t s = 0; s < at; ++s) earlier += counts_(role_[block].steps[s].event) ? 1 : 0;
  std::string text = fmt::format("{} + {}", starts_[block], earlier);
  if (role_[block].loop() && each_[block] > 0)
    text += fmt::format(" + {}*({} - {})", each_[block], counter, bounds_.value(role_[block].lower));
  return text;
}

namespace {

/// isl text of a number, with `counter` for the loop's variable; empty where it is no sum of multiples and quotients of that.
std::string number_text(const IntExpr& expr, const std::string& var, const std::string& counter, BoundSpace& bounds) {
  if (!expr.uses(var)) return bounds.value(expr);
  if (expr.op() == IntOp::variable) return counter;
  const auto of = [&](std::size_t k) { return number_text(expr.args()[k], var, counter, bounds); };
  const auto joined = [&](const char* sign) {
    const std::string a = of(0), b = of(1);
    return a.empty() || b.empty() ? std::string() : fmt::format("({} {} {})", a, sign, b);
  };
  switch (expr.op()) {
    case IntOp::add:
      return joined("+");
    case IntOp::sub:
      return joined("-");
    case IntOp::mul:
      for (const std::size_t k : {0, 1}) {
        const auto factor = expr.args()[k].as_constant();
        const std::string other = factor ? of(1 - k) : std::string();
        if (!other.empty()) return fmt::format("{}*({})", *factor, other);
      }
      return "";
    case IntOp::floor_div: {
      const auto divisor = expr.args()[1].as_constant();
      const std::string dividend = divisor && *divisor > 0 ? of(0) : std::string();
      return dividend.empty() ? dividend : fmt::format("floor(({})/{})", dividend, *divisor);
    }
    default:
      return "";
  }
}

/// Where a condition over a loop's variable holds. What has neither its multiples nor quotients of these alone is a problem.
std::string where_text(const IntExpr& condition, const std::string& var, const std::string& counter, BoundSpace& bounds,
                       std::vector<std::string>& problems) {
  if (condition.op() == IntOp::logical_and || condition.op() == IntOp::logical_or) {
    const auto of = [&](std::size_t k) { return where_text(condition.args()[k], var, counter, bounds, problems); };
    return fmt::format("({} {} {})", of(0), condition.op() == IntOp::logical_and ? "and" : "or", of(1));
  }
  const auto term = [&](const IntExpr& distance, std::int64_t slope) {
    return fmt::format("{}*{} + {}", slope, counter, bounds.value(distance.substitute(var, IntExpr(0))));
  };
  if (condition.op() == IntOp::eq) {
    const IntExpr distance = comparison_distance(condition);
    if (const auto slope = distance.coefficient(var)) return fmt::format("({} = 0)", term(distance, *slope));
  }
  std::vector<std::string> all;
  for (const IntExpr& clause : clauses_of(condition)) {
    std::vector<std::string> alternatives;
    for (const IntExpr& distance : alternatives_of(clause)) {
      const auto slope = distance.coefficient(var);
      const std::string text = slope ? term(distance, *slope) : number_text(distance, var, counter, bounds);
      if (text.empty()) {
        alternatives.clear();
        break;
      }
      alternatives.push_back(text + " >= 0");
    }
    if (alternatives.empty())
      problems.push_back(fmt::format("{} is not made of multiples and quotients of {}", clause.str(), var));
    if (!alternatives.empty()) all.push_back(fmt::format("({})", fmt::join(alternatives, " or ")));
  }
  return all.empty() ? "0 = 0" : fmt::format("({})", fmt::join(all, " and "));
}

}  // namespace

std::string iterations_of(const OpPlace& place, const std::string& counter, BoundSpace& bounds,
                          std::vector<std::string>& problems) {
  std::string text = fmt::format("{} <= {} < {}", bounds.value(place.lower), counter, bounds.value(place.upper));
  if (place.condition.defined()) text += " and " + where_text(place.condition, place.var, counter, bounds, problems);
  return text;
}

}  // namespace nestor::nvptx
