// Periods of a tile program's sizes, and combinations of values around them.
#include "autotune/check/check_sizes.h"

#include "autotune/oracle/reference.h"
#include "support/debug.h"
#include "support/error.h"
#include "support/system/json_text.h"

#include <algorithm>
#include <map>
#include <set>

namespace nestor {
namespace {

/// Elementary evaluations of the definition (some nanoseconds each) that one set of sizes, and all of them together, may take.
constexpr double kMostCost = 6e6, kMostTotal = 1.2e7;
constexpr double kMostVaried = 8e5;  ///< of the sizes with which all data sets are taken
constexpr std::int64_t kLargestPeriod = 4096;
constexpr std::int64_t kVector = 16;
constexpr std::size_t kMostSizes = 14;
constexpr std::size_t kMostCombinations = 256;

void visit(const IntExpr& expr, const std::function<void(const IntExpr&)>& visitor) {
  if (!expr.defined()) return;
  visitor(expr);
  for (const IntExpr& arg : expr.args()) visit(arg, visitor);
}

/// Finds what sizes are divided by, compared in steps of, or cut into.
class PeriodFinder {
 public:
  explicit PeriodFinder(const TileProgram& program) : program_(program) {
    examine(*program.root);
    for (const SizeConstraint& constraint : program.valid) {
      for (const auto& term : constraint.terms) note(term.first, constraint.modulus);
    }
  }
  const SizePeriods& periods() const { return periods_; }

 private:
  void note(const std::string& size, std::int64_t period) {
    if (period > 1 && period <= kLargestPeriod) periods_[size].insert(period);
  }

  void note_all(const IntExpr& expr, std::int64_t period) {
    for (const std::string& size : program_.sizes) {
      if (!program_.fixed_sizes.contains(size) && expr.uses(size)) note(size, period);
    }
  }

  void examine(const IntExpr& whole) {
    visit(whole, [&](const IntExpr& expr) {
      const bool divides = expr.op() == IntOp::floor_div || expr.op() == IntOp::mod;
      if (divides && expr.args()[1].as_constant()) note_all(expr.args()[0], *expr.args()[1].as_constant());
      if (expr.op() != IntOp::add && expr.op() != IntOp::sub && expr.op() != IntOp::min && expr.op() != IntOp::max) return;
      // n - 64 io, and min(64, n - 64 io)
      for (const IntExpr& arg : expr.args()) {
        if (arg.as_constant()) note_all(expr, *arg.as_constant());
      }
      for (const std::string& variable : variables_) {
        if (const auto factor = expr.coefficient(variable)) note_all(expr, std::abs(*factor));
      }
    });
  }

  void examine(const TileNode& node) {
    for (const IntExpr& expr : {node.lower, node.upper, node.condition, node.op.guard}) examine(expr);
    for (const OpDim& dim : node.op.dims) {
      examine(dim.lower);
      examine(dim.upper);
    }
    // A back end cuts it into vectors or among threads.
    if (!node.op.dims.empty()) note_all(node.op.dims.back().upper - node.op.dims.back().lower, kVector);
    const bool loop = node.kind == TileNode::Kind::loop;
    if (loop) note_all(node.upper - node.lower, node.step);
    if (loop) variables_.push_back(node.var);
    for (const TileTree& child : node.children) examine(*child);
    if (loop) variables_.pop_back();
  }

  const TileProgram& program_;
  SizePeriods periods_;
  std::vector<std::string> variables_;
};

/// Values of one size, the telling ones first.
std::vector<std::int64_t> values_of(const SizeParam& size, const std::set<std::int64_t>& periods) {
  std::vector<std::int64_t> values;
  if (periods.empty()) {
    values = {2, 1, 3};
  } else {
    const std::int64_t p = *periods.rbegin();
    values = {p + 1, 2 * p + 1, 1, p, 3 * p + 1, p - 1, 2 * p};
    for (auto other = std::next(periods.rbegin()); other != periods.rend(); ++other) {
      values.push_back(*other);
      values.push_back(*other + 1);
    }
  }
  std::vector<std::int64_t> kept;
  for (std::int64_t value : values) {
    value = std::max(value, size.min);
    if (size.max) value = std::min(value, *size.max);
    if (std::find(kept.begin(), kept.end(), value) == kept.end()) kept.push_back(value);
  }
  return kept;
}

class Chooser {
 public:
  Chooser(const CheckedKernel& kernel, const Nest& nest) : kernel_(kernel), cost_(nest) {
    for (const SizeParam& size : nest.sizes) {
      if (kernel.fixed_sizes.contains(size.name)) continue;
      chosen_.dynamic.push_back(size.name);
      const auto found = kernel.periods.find(size.name);
      values_[size.name] = values_of(size, found == kernel.periods.end() ? std::set<std::int64_t>{} : found->second);
      if (found != kernel.periods.end()) largest_[size.name] = *found->second.rbegin();
    }
  }

  CheckSizes choose(const Sizes& tuned) {
    std::vector<Sizes> wanted = combinations();
    std::vector<std::pair<double, std::size_t>> by_cost;
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      const auto sizes = repaired(wanted[k]);
      if (!sizes) continue;
      wanted[k] = *sizes;
      by_cost.emplace_back(cost_.at(*sizes).value(), k);
    }
    std::sort(by_cost.begin(), by_cost.end());
    take_varied(wanted, by_cost);
    // The cheapest with several values that were not there yet, then with one.
    for (const std::ptrdiff_t fresh : {2, 1}) {
      for (const auto& [cost, k] : by_cost) take(wanted[k], cost, fresh);
    }
    // Fixed sizes may be so large that no others are cheap.
    if (chosen_.sizes.empty()) chosen_.sizes.push_back(by_cost.empty() ? tuned : wanted[by_cost.front().second]);
    return chosen_;
  }

 private:
  /// All pairs of values of two sizes with periods, and each value of the others in turn.
  std::vector<Sizes> combinations() const {
    std::vector<std::string> main;
    for (const auto& [name, values] : values_) {
      if (largest_.contains(name)) main.push_back(name);
    }
    std::stable_sort(main.begin(), main.end(), [&](const auto& a, const auto& b) { return largest_.at(a) > largest_.at(b); });
    const std::vector<std::int64_t> none{0};
    const auto& first = main.empty() ? none : values_.at(main[0]);
    const auto& second = main.size() < 2 ? none : values_.at(main[1]);
    std::size_t longest = 1;
    for (const auto& entry : values_) longest = std::max(longest, entry.second.size());
    std::vector<Sizes> result;
    for (std::size_t row = 0; row < std::min(std::max(longest, first.size() * second.size()), kMostCombinations); ++row) {
      Sizes sizes = kernel_.fixed_sizes;
      std::size_t place = 0;
      for (const auto& [name, values] : values_) sizes[name] = values[(row + 2 * place++) % values.size()];
      if (!main.empty()) sizes[main[0]] = first[row % first.size()];
      if (main.size() > 1) sizes[main[1]] = second[(row / first.size() + row) % second.size()];
      result.push_back(std::move(sizes));
    }
    return result;
  }

  /// The cheapest in which every size with a period exceeds it, or all but one do, and so on.
  void take_varied(const std::vector<Sizes>& wanted, const std::vector<std::pair<double, std::size_t>>& by_cost) {
    std::size_t most = 0;
    const Sizes* best = nullptr;
    double best_cost = 0;
    for (const auto& [cost, k] : by_cost) {
      const auto beyond =
          static_cast<std::size_t>(std::count_if(largest_.begin(), largest_.end(), [&, k = k](const auto& period) {
            return wanted[k].at(period.first) > period.second;
          }));
      if (cost > kMostVaried || (best && beyond <= most)) continue;
      most = beyond;
      best = &wanted[k];
      best_cost = cost;
    }
    if (best) take(*best, best_cost, 0);
  }

  /// `fresh`: how many of its values must not have been there.
  void take(const Sizes& sizes, double cost, std::ptrdiff_t fresh) {
    if (chosen_.sizes.size() >= kMostSizes || cost > kMostCost || (total_ + cost > kMostTotal && !chosen_.sizes.empty())) return;
    const auto is_new = [&](const auto& size) { return !seen_.contains(size); };
    if (std::count_if(sizes.begin(), sizes.end(), is_new) < fresh) return;
    seen_.insert(sizes.begin(), sizes.end());
    total_ += cost;
    chosen_.sizes.push_back(sizes);
  }

  bool valid(const Sizes& sizes) const { return is_valid_for(kernel_.valid, sizes) && cost_.at(sizes); }

  /// The sizes, or with one of them changed where they are not valid; nothing if that does not help.
  std::optional<Sizes> repaired(Sizes sizes) const {
    if (valid(sizes)) return sizes;
    for (const auto& [name, values] : values_) {
      std::vector<std::int64_t> others = values;
      for (const auto& [other, value] : sizes) {
        if (other != name) others.push_back(value);
      }
      for (const SizeConstraint& constraint : kernel_.valid) {
        if (constraint.modulus > 1) others.push_back((sizes.at(name) / constraint.modulus + 1) * constraint.modulus);
      }
      for (const std::int64_t value : others) {
        Sizes changed = sizes;
        changed[name] = value;
        if (valid(changed)) return changed;
      }
    }
    return std::nullopt;
  }

  const CheckedKernel& kernel_;
  DefinitionCost cost_;
  std::map<std::string, std::vector<std::int64_t>> values_;
  std::map<std::string, std::int64_t> largest_;  ///< period of each size that has one
  CheckSizes chosen_;
  std::set<std::pair<std::string, std::int64_t>> seen_;
  double total_ = 0;
};

}  // namespace

SizePeriods size_periods(const TileProgram& program) { return PeriodFinder(program).periods(); }

std::string periods_to_text(const SizePeriods& periods) { return nlohmann::json(periods).dump(); }

SizePeriods periods_from_text(const std::string& text) {
  const nlohmann::json json = json_or_discarded(text);
  if (!json.is_object()) internal_error("'{}' says nothing of a kernel's sizes", text);
  return json.get<SizePeriods>();
}

CheckSizes check_sizes(const CheckedKernel& kernel, const Nest& nest, const Sizes& tuned) {
  const DebugTimer timer("choosing check sizes");
  return Chooser(kernel, nest).choose(tuned);
}

}  // namespace nestor
