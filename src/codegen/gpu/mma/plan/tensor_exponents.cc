// Bounds of exponents: intervals through fragments, and differences from a row's maximum.
#include "codegen/gpu/mma/plan/tensor_exponents.h"

#include "poly/algebra/values/polynomial.h"
#include "support/substitution.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <set>

namespace nestor::nvptx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMost = 126;  ///< of an exponent's magnitude: a power of two in f32's normal range

/// Of all values but NaN, infinities included.
struct Range {
  double low = -kInfinity, high = kInfinity;
};

Range hull(const Range& a, const Range& b) { return {std::min(a.low, b.low), std::max(a.high, b.high)}; }

/// Of products that are no NaN: 0 times an infinite end stands for values on the way there.
Range product(const Range& a, const Range& b) {
  const auto of = [](double x, double y) { return x == 0 || y == 0 ? 0 : x * y; };
  const auto [low, high] = std::minmax({of(a.low, b.low), of(a.low, b.high), of(a.high, b.low), of(a.high, b.high)});
  return {low, high};
}

class Intervals {
 public:
  Intervals(const TensorPlan& plan, bool masked) : plan_(plan), masked_(masked) {}

  Range of(std::size_t k, const ScalarExpr& expr) const {
    const auto arg = [&](std::size_t n) { return of(k, expr.args()[n]); };
    switch (expr.op()) {
      case ScalarOp::constant:
        return {expr.number(), expr.number()};
      case ScalarOp::scalar:
        return of_scalar(expr.name());
      case ScalarOp::read:
        return of_read(k, expr.ordinal());
      case ScalarOp::neg: {
        const Range x = arg(0);
        return {-x.high, -x.low};
      }
      case ScalarOp::add:
      case ScalarOp::sub: {
        const double sign = expr.op() == ScalarOp::add ? 1 : -1;
        const Range x = arg(0), y = product(arg(1), {sign, sign});
        const Range sum{x.low + y.low, x.high + y.high};
        return std::isnan(sum.low) || std::isnan(sum.high) ? Range{} : sum;
      }
      case ScalarOp::mul:
        return product(arg(0), arg(1));
      case ScalarOp::min:
      case ScalarOp::max: {
        const Range x = arg(0), y = arg(1);
        if (expr.op() == ScalarOp::min) return {std::min(x.low, y.low), std::min(x.high, y.high)};
        return {std::max(x.low, y.low), std::max(x.high, y.high)};
      }
      case ScalarOp::tanh:
      case ScalarOp::sin:
      case ScalarOp::cos:
        return {-1, 1};
      case ScalarOp::select:
        return hull(arg(1), arg(2));
      default:
        return {};
    }
  }

 private:
  Range of_scalar(const std::string& name) const {
    for (const ScalarParam& scalar : plan_.program->scalars) {
      if (scalar.name == name) return {scalar.minimum, scalar.maximum};
    }
    return {};
  }

  /// What fragments hold outside of points as well: there an op's own value stands, or the one that the plan has chosen.
  Range of_read(std::size_t k, int ordinal) const {
    const int buffer = plan_.ops[k].op.reads[static_cast<std::size_t>(ordinal)].buffer;
    if (plan_.fragments.count(buffer) == 0) return {};
    std::optional<Range> result;
    for (std::size_t j = 0; j < plan_.ops.size(); ++j) {
      const TensorOp& op = plan_.ops[j];
      if (op.op.write.buffer != buffer) continue;
      if (j >= k || op.kind != TensorOp::Kind::map) return {};
      Range value = of(j, op.op.value);
      if (masked_ && op.outside) value = hull(value, {*op.outside, *op.outside});
      result = result ? hull(*result, value) : value;
    }
    return result.value_or(Range{});
  }

  const TensorPlan& plan_;
  bool masked_;
};

/// The access over the dims of another op with the same row, column and place in its pack.
IntExpr renamed(IntExpr index, const TensorOp& from, const TensorOp& to) {
  std::map<std::string, IntExpr> dims;
  for (const auto& [d, target] :
       {std::pair(from.row, to.row), std::pair(from.column, to.column), std::pair(from.pack, to.pack)}) {
    if (d < 0 || target < 0) continue;
    dims.emplace(from.op.dims[static_cast<std::size_t>(d)].var,
                 IntExpr::variable(to.op.dims[static_cast<std::size_t>(target)].var));
  }
  return substitute_all(index, dims);
}

/// The value of `from` with the reads of `to`; undefined where that has no such read.
ScalarExpr value_over(const TensorOp& from, const TensorOp& to) {
  bool complete = true;
  const auto same = [&](const TileAccess& a, const TileAccess& b) {
    if (a.buffer != b.buffer || a.index.size() != b.index.size()) return false;
    for (std::size_t p = 0; p < a.index.size(); ++p) {
      if (renamed(a.index[p], from, to).str() != b.index[p].str()) return false;
    }
    return true;
  };
  const ScalarExpr value = from.op.value.rewrite([&](const ScalarExpr& node) {
    complete = complete && node.op() != ScalarOp::index;
    if (node.op() != ScalarOp::read) return node;
    for (std::size_t k = 0; k < to.op.reads.size(); ++k) {
      if (same(from.op.reads[static_cast<std::size_t>(node.ordinal())], to.op.reads[k]))
        return ScalarExpr::read(static_cast<int>(k), node.type());
    }
    complete = false;
    return node;
  });
  return complete ? value : ScalarExpr();
}

bool reads_buffer(const TileOp& op, int buffer) {
  return std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return read.buffer == buffer; });
}

/// A row's maximum as the ops before a map leave it.
struct RowMaximum {
  const TensorOp* reduction = nullptr;
  Monomial rate{0, {}};  ///< it may stay behind as long as 2^(rate (maximum - it)) is at most 2^kMost; 0: it does not
};

/// value = select(rate (new - old) <= t, old, new), the new one from `buffer`: NaN there stays, as no comparison with it holds.
std::optional<Monomial> rate_of_hold(const TileOp& op, int buffer) {
  const ScalarExpr& value = op.value;
  if (value.op() != ScalarOp::select || value.args()[0].op() != ScalarOp::le) return std::nullopt;
  const ScalarExpr &grown = value.args()[0].args()[0], &limit = value.args()[0].args()[1], &now = value.args()[2];
  const bool bounded = limit.op() == ScalarOp::constant && limit.number() <= kMost;
  if (!bounded || now.op() != ScalarOp::read || op.reads[static_cast<std::size_t>(now.ordinal())].buffer != buffer)
    return std::nullopt;
  Polynomial terms = polynomial_of(grown);
  if (terms.size() != 2) return std::nullopt;
  for (const std::size_t t : {std::size_t{0}, std::size_t{1}}) {
    const auto& factors = terms[t].factors;
    const auto found = std::find_if(factors.begin(), factors.end(), [&](const auto& f) { return f.first.equals(now); });
    if (found == factors.end() || found->second != 1) continue;
    Monomial rate = terms[t];
    rate.factors.erase(rate.factors.begin() + (found - factors.begin()));
    const Monomial before = multiply(rate, {-1, {{value.args()[1], 1}}});
    if (same_product(terms[1 - t], before)) return rate;
  }
  return std::nullopt;
}

/// The maximum that is in row value `buffer` when op `k` runs, over values that nothing has changed since.
RowMaximum maximum_before(const TensorPlan& plan, std::size_t k, int buffer) {
  RowMaximum result;
  for (std::size_t j = k; j-- > 0;) {
    const TensorOp& op = plan.ops[j];
    if (op.op.write.buffer != buffer) continue;
    if (op.kind == TensorOp::Kind::map && result.rate.coefficient == 0) {
      const auto rate = rate_of_hold(op.op, buffer);
      if (!rate) return {};
      result.rate = *rate;
      continue;
    }
    if (op.kind != TensorOp::Kind::reduce || op.op.reduction != ReductionOp::max) return {};
    for (std::size_t between = j + 1; between < k; ++between) {
      if (reads_buffer(op.op, plan.ops[between].op.write.buffer)) return {};
    }
    result.reduction = &op;
    return result;
  }
  return {};
}

/// May row value `buffer` be infinite by what it starts from alone? Then terms relative to it are 0, where those of an infinite value are NaN.
bool may_start_infinite(const TensorPlan& plan, int buffer) {
  return std::any_of(plan.ops.begin(), plan.ops.end(), [&](const TensorOp& op) {
    if (op.op.write.buffer != buffer || op.kind == TensorOp::Kind::reduce || rate_of_hold(op.op, buffer)) return false;
    return op.op.value.op() != ScalarOp::constant || !(op.op.value.number() < kInfinity);
  });
}

/// Has the reduction all points that the map has?
bool covers(const TensorOp& reduction, const TensorOp& map) {
  return std::all_of(reduction.mask.begin(), reduction.mask.end(), [&](const IntExpr& wanted) {
    return std::any_of(map.mask.begin(), map.mask.end(), [&](const IntExpr& has) { return has.str() == wanted.str(); });
  });
}

struct RowRead {
  int ordinal = 0;
  bool bounded_below = false;  ///< the larger one of it and a number is what is meant
};

/// The read of a row value that `factor` is, or is the larger one of with a number.
std::optional<RowRead> row_read(const TensorPlan& plan, const TensorOp& op, const ScalarExpr& factor) {
  if (factor.op() == ScalarOp::max && factor.args()[1].op() == ScalarOp::constant) {
    auto read = row_read(plan, op, factor.args()[0]);
    if (read) read->bounded_below = std::isfinite(factor.args()[1].number());
    return read;
  }
  if (factor.op() != ScalarOp::read) return std::nullopt;
  const auto fragment = plan.fragments.find(op.op.reads[static_cast<std::size_t>(factor.ordinal())].buffer);
  return fragment != plan.fragments.end() && fragment->second.columns == 0 ? std::optional(RowRead{factor.ordinal()})
                                                                           : std::nullopt;
}

bool same_sum(Polynomial a, const Polynomial& b) {
  if (a.size() != b.size()) return false;
  for (const Monomial& term : b) {
    const auto found = std::find_if(a.begin(), a.end(), [&](const Monomial& other) { return same_product(other, term); });
    if (found == a.end()) return false;
    a.erase(found);
  }
  return true;
}

/// If the exponent is c (x - m) with a maximum m over x: the read of m. `scale`: doublings for each unit of the exponent.
std::optional<RowRead> read_of_maximum(const TensorPlan& plan, std::size_t k, const ScalarExpr& exponent, double scale) {
  const TensorOp& op = plan.ops[k];
  Polynomial terms = polynomial_of(exponent);
  for (std::size_t t = 0; t < terms.size(); ++t) {
    for (std::size_t f = 0; f < terms[t].factors.size(); ++f) {
      const auto& [factor, power] = terms[t].factors[f];
      const auto read = power == 1 ? row_read(plan, op, factor) : std::nullopt;
      if (!read) continue;
      const RowMaximum maximum = maximum_before(plan, k, op.op.reads[static_cast<std::size_t>(read->ordinal)].buffer);
      const ScalarExpr taken = maximum.reduction != nullptr ? value_over(*maximum.reduction, op) : ScalarExpr();
      if (!taken.defined() || !covers(*maximum.reduction, op)) continue;
      Monomial rate = terms[t];
      rate.factors.erase(rate.factors.begin() + static_cast<std::ptrdiff_t>(f));
      rate.coefficient = -rate.coefficient;
      if (!is_positive(plan.program->scalars, to_expr(rate))) continue;
      const Monomial doublings = multiply(rate, {scale, {}});
      if (maximum.rate.coefficient != 0 && !same_product(maximum.rate, doublings)) continue;
      Polynomial rest = terms;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(t));
      if (same_sum(scaled(polynomial_of(taken), rate), rest)) return read;
    }
  }
  return std::nullopt;
}

bool is_function(ScalarOp op) {
  switch (op) {
    case ScalarOp::read:
    case ScalarOp::scalar:
    case ScalarOp::constant:
    case ScalarOp::index:
    case ScalarOp::cast:
    case ScalarOp::select:
    case ScalarOp::add:
    case ScalarOp::sub:
    case ScalarOp::mul:
    case ScalarOp::div:
    case ScalarOp::neg:
      return false;
    default:
      return true;
  }
}

bool holds(const ScalarExpr& expr, const std::function<bool(const ScalarExpr&)>& wanted) {
  bool found = false;
  expr.visit([&](const ScalarExpr& node) { found = found || wanted(node); });
  return found;
}

/// Is some node below a function one that is wanted?
bool holds_in_function(const ScalarExpr& value, const std::function<bool(const ScalarExpr&)>& wanted) {
  return holds(value, [&](const ScalarExpr& node) {
    return is_function(node.op()) &&
           std::any_of(node.args().begin(), node.args().end(), [&](const ScalarExpr& arg) { return holds(arg, wanted); });
  });
}

bool nests_functions(const ScalarExpr& value) {
  return holds_in_function(value,
                           [](const ScalarExpr& node) { return node.op() == ScalarOp::exp || node.op() == ScalarOp::exp2; });
}

/// May what op `k` writes be off by 2^-13 of itself? `seen`: ops that are asked for already.
bool stays_approximate(const TensorPlan& plan, std::size_t k, std::set<int>& seen) {
  if (!seen.insert(static_cast<int>(k)).second) return true;
  const int buffer = plan.ops[k].op.write.buffer;
  for (std::size_t j = 0; j < plan.ops.size(); ++j) {
    const TensorOp& reader = plan.ops[j];
    if (j == k || !reads_buffer(reader.op, buffer)) continue;
    switch (reader.kind) {
      case TensorOp::Kind::product:
        if (reader.halves > 1) return false;
        break;
      case TensorOp::Kind::reduce:
        if (reader.op.reduction != ReductionOp::add) return false;
        break;
      case TensorOp::Kind::seldom:
        return false;
      case TensorOp::Kind::store:
        if (size_in_bytes(plan.buffer(reader.op.write.buffer).type) > 2) return false;
        break;
      case TensorOp::Kind::map: {
        const auto reads = [&](const ScalarExpr& node) {
          return node.op() == ScalarOp::read && reader.op.reads[static_cast<std::size_t>(node.ordinal())].buffer == buffer;
        };
        if (holds_in_function(reader.op.value, reads) || !stays_approximate(plan, j, seen)) return false;
        break;
      }
    }
  }
  return true;
}

}  // namespace

bool may_be_approximate(const TensorPlan& plan, int k) {
  std::set<int> seen;
  return has_half_arguments(*plan.program) && !nests_functions(plan.ops[static_cast<std::size_t>(k)].op.value) &&
         stays_approximate(plan, static_cast<std::size_t>(k), seen);
}

Exponents exponents_of(const TensorPlan& plan, int k, bool masked) {
  const auto number = static_cast<std::size_t>(k);
  const Intervals intervals(plan, masked);
  std::vector<ScalarExpr> exponents;
  bool others = false;
  plan.ops[number].op.value.visit([&](const ScalarExpr& node) {
    if (node.op() == ScalarOp::exp || node.op() == ScalarOp::exp2) exponents.push_back(node);
    others = others || node.op() == ScalarOp::pow || node.op() == ScalarOp::erf;  // made of powers of two
  });
  if (others || exponents.empty()) return {};
  Exponents result{true, true};
  for (const ScalarExpr& node : exponents) {
    const double scale = node.op() == ScalarOp::exp ? std::numbers::log2e : 1;
    const Range range = product(intervals.of(number, node.args()[0]), {scale, scale});
    const auto maximum = read_of_maximum(plan, number, node.args()[0], scale);
    result.least = result.least && range.low >= -kMost;
    result.most = result.most && (range.high <= kMost || maximum.has_value());
    const auto row = [&] { return plan.ops[number].op.reads[static_cast<std::size_t>(maximum->ordinal)].buffer; };
    if (exponents.size() == 1 && maximum && !may_start_infinite(plan, row())) {
      result.taint = maximum->ordinal;
      result.bounded_below = maximum->bounded_below;
    }
  }
  return result;
}

}  // namespace nestor::nvptx
