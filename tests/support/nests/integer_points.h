// The integer points of a set without isl's scan, which takes a simplex for each: intervals of the dims shrink by the constraints.
#pragma once

#include <isl/aff.h>
#include <isl/cpp.h>
#include <isl/local_space.h>
#include <isl/mat.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace nestor::samples {

/// One convex part of a set: sums of its dims and of its existential variables that are at least 0.
class PartPoints {
 public:
  using Point = std::vector<std::int64_t>;

  /// `params`: values of the parameters, in their order. `part` knows its divs.
  explicit PartPoints(const isl::basic_set& part, const Point& params)
      : dims_(size(isl_basic_set_dim(part.get(), isl_dim_set))), params_(params) {
    count_ = dims_ + size(isl_basic_set_dim(part.get(), isl_dim_div));
    of_variable_.resize(count_);
    take(isl_basic_set_inequalities_matrix(part.get(), isl_dim_cst, isl_dim_param, isl_dim_set, isl_dim_div), false);
    take(isl_basic_set_equalities_matrix(part.get(), isl_dim_cst, isl_dim_param, isl_dim_set, isl_dim_div), true);
    isl_local_space* space = isl_basic_set_get_local_space(part.get());
    for (std::size_t k = dims_; k < count_; ++k) {
      divide(isl::manage(isl_local_space_get_div(space, static_cast<int>(k - dims_))), k);
    }
    isl_local_space_free(space);
  }

  /// Calls `visit` with each point. False, before any call, where intervals alone bound no box.
  bool visit(const std::function<void(const Point&)>& visit) {
    for (std::size_t c = 0; c < constraints_.size(); ++c) {
      for (const auto& [variable, factor] : constraints_[c].terms) of_variable_[variable].push_back(c);
      waiting_.push_back(c);
    }
    waits_.assign(constraints_.size(), true);
    std::vector<Interval> box(count_);
    steps_ = 0;
    if (!shrink(box)) return steps_ <= kMostSteps;
    for (const Interval& interval : box) {
      if (interval.low == -kInfinite || interval.high == kInfinite) return false;
    }
    bounded_ = true;
    Point point(dims_);
    visit_from(0, box, point, visit);
    return true;
  }

 private:
  static constexpr std::int64_t kInfinite = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kMostSteps = 100000;
  struct Interval {
    std::int64_t low = -kInfinite, high = kInfinite;
  };
  struct Constraint {
    std::int64_t constant;
    std::vector<std::pair<std::size_t, std::int64_t>> terms;
  };

  void add(std::int64_t constant, const std::vector<std::int64_t>& factors) {
    Constraint constraint{constant, {}};
    for (std::size_t k = 0; k < count_; ++k) {
      if (factors[k] != 0) constraint.terms.emplace_back(k, factors[k]);
    }
    constraints_.push_back(std::move(constraint));
  }

  static std::int64_t integer(__isl_take isl_val* value) {
    const isl::val owned = isl::manage(value);
    return isl_val_get_num_si(owned.get());
  }

  /// Variable `k` is the quotient, rounded down.
  void divide(const isl::aff& quotient, std::size_t k) {
    const isl::val denominator = isl::manage(isl_aff_get_denominator_val(quotient.get()));
    const isl::aff whole = isl::manage(isl_aff_scale_val(quotient.copy(), denominator.copy()));
    const std::int64_t divisor = integer(denominator.copy());
    std::int64_t constant = integer(isl_aff_get_constant_val(whole.get()));
    for (std::size_t p = 0; p < params_.size(); ++p)
      constant += params_[p] * integer(isl_aff_get_coefficient_val(whole.get(), isl_dim_param, static_cast<int>(p)));
    std::vector<std::int64_t> above, below;
    for (std::size_t n = 0; n < count_; ++n) {
      const bool dim = n < dims_;
      const int position = static_cast<int>(dim ? n : n - dims_);
      above.push_back(integer(isl_aff_get_coefficient_val(whole.get(), dim ? isl_dim_in : isl_dim_div, position)));
      below.push_back(-above.back());
    }
    above[k] -= divisor;
    below[k] += divisor;
    add(constant, above);
    add(divisor - 1 - constant, below);
  }

  static std::size_t size(isl_size count) { return static_cast<std::size_t>(count); }

  void take(__isl_take isl_mat* matrix, bool equal) {
    for (int row = 0; row < static_cast<int>(isl_mat_rows(matrix)); ++row) {
      const auto at = [&](std::size_t column) { return integer(isl_mat_get_element_val(matrix, row, static_cast<int>(column))); };
      std::int64_t constant = at(0);
      for (std::size_t p = 0; p < params_.size(); ++p) constant += params_[p] * at(p + 1);
      std::vector<std::int64_t> factors;
      for (std::size_t k = 0; k < count_; ++k) factors.push_back(at(params_.size() + k + 1));
      add(constant, factors);
      if (!equal) continue;
      for (std::int64_t& factor : factors) factor = -factor;
      add(-constant, factors);
    }
    isl_mat_free(matrix);
  }

  /// Where a factor's term is the most; nothing to say of it when infinite.
  static std::int64_t end_of(std::int64_t factor, const Interval& interval) { return factor > 0 ? interval.high : interval.low; }

  static std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  }

  void wait_for(std::size_t variable) {
    for (const std::size_t c : of_variable_[variable]) {
      if (!waits_[c]) waiting_.push_back(c);
      waits_[c] = true;
    }
  }

  bool end(bool result) {
    for (const std::size_t c : waiting_) waits_[c] = false;
    waiting_.clear();
    return result;
  }

  /// Leaves out of each interval what no point has by one of the waiting constraints and the other intervals. False: no point is left.
  bool shrink(std::vector<Interval>& box) {
    while (!waiting_.empty()) {
      // Without a box, x > y and y > x raise each other for ever.
      if (++steps_ > kMostSteps && !bounded_) return end(false);
      const Constraint& constraint = constraints_[waiting_.back()];
      waits_[waiting_.back()] = false;
      waiting_.pop_back();
      std::int64_t sum = constraint.constant;
      std::size_t unbounded = 0, unbounded_at = 0;
      for (const auto& [k, factor] : constraint.terms) {
        const std::int64_t end = end_of(factor, box[k]);
        if (end != kInfinite && end != -kInfinite) {
          sum += factor * end;
        } else {
          ++unbounded;
          unbounded_at = k;
        }
      }
      if (unbounded == 0 && sum < 0) return end(false);
      if (unbounded > 1) continue;
      for (const auto& [k, factor] : constraint.terms) {
        if (unbounded == 1 && k != unbounded_at) continue;
        // factor x + rest >= 0
        const std::int64_t rest = unbounded == 1 ? sum : sum - factor * end_of(factor, box[k]);
        if (factor > 0) {
          const std::int64_t low = -floor_quotient(rest, factor);
          if (low <= box[k].low) continue;
          box[k].low = low;
        } else {
          const std::int64_t high = floor_quotient(rest, -factor);
          if (high >= box[k].high) continue;
          box[k].high = high;
        }
        if (box[k].low > box[k].high) return end(false);
        wait_for(k);
      }
    }
    return true;
  }

  /// True when a point was found; existential variables need one value only.
  bool visit_from(std::size_t k, const std::vector<Interval>& box, Point& point, const std::function<void(const Point&)>& visit) {
    if (k == count_) {
      visit(point);
      return true;
    }
    if (box[k].low == box[k].high) {
      if (k < dims_) point[k] = box[k].low;
      return visit_from(k + 1, box, point, visit);
    }
    bool found = false;
    std::vector<Interval> inner;
    for (std::int64_t value = box[k].low; value <= box[k].high; ++value) {
      inner = box;
      inner[k] = {value, value};
      wait_for(k);
      if (!shrink(inner)) continue;
      if (k < dims_) point[k] = value;
      found = visit_from(k + 1, inner, point, visit) || found;
      if (found && k >= dims_) break;
    }
    return found;
  }

  std::size_t dims_ = 0, count_ = 0;
  Point params_;
  std::int64_t steps_ = 0;
  bool bounded_ = false;
  std::vector<Constraint> constraints_;
  std::vector<std::vector<std::size_t>> of_variable_;  ///< constraints with a term of it
  std::vector<std::size_t> waiting_;                   ///< constraints with an interval that has shrunk
  std::vector<bool> waits_;
};

/// The points of a bounded set in lexicographic order, each once. `sizes`: values of all its parameters, by name.
inline std::vector<std::vector<std::int64_t>> integer_points(const isl::set& set,
                                                             const std::map<std::string, std::int64_t>& sizes = {}) {
  std::vector<std::int64_t> params;
  for (int p = 0; p < static_cast<int>(isl_set_dim(set.get(), isl_dim_param)); ++p)
    params.push_back(sizes.at(isl_set_get_dim_name(set.get(), isl_dim_param, static_cast<unsigned>(p))));
  std::vector<std::vector<std::int64_t>> all;
  const auto add = [&](const std::vector<std::int64_t>& point) { all.push_back(point); };
  isl::manage(isl_set_compute_divs(set.copy())).foreach_basic_set([&](const isl::basic_set& part) {
    if (PartPoints(part, params).visit(add)) return;
    isl_set* fixed = isl_set_from_basic_set(part.copy());
    for (std::size_t p = 0; p < params.size(); ++p)
      fixed =
          isl_set_fix_val(fixed, isl_dim_param, static_cast<unsigned>(p), isl_val_int_from_si(isl_set_get_ctx(fixed), params[p]));
    fixed = isl_set_project_out(fixed, isl_dim_param, 0, static_cast<unsigned>(params.size()));
    isl::manage(fixed).foreach_point([&](const isl::point& point) {
      std::vector<std::int64_t> at;
      for (int k = 0; k < static_cast<int>(isl_set_dim(set.get(), isl_dim_set)); ++k)
        at.push_back(isl_val_get_num_si(isl::manage(isl_point_get_coordinate_val(point.get(), isl_dim_set, k)).get()));
      add(at);
    });
  });
  if (!std::is_sorted(all.begin(), all.end())) std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace nestor::samples
