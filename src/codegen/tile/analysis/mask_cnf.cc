// Minima of maxima: the normal form of distances, and with >= 0 that of conditions (conjunctions of disjunctions).
#include "codegen/tile/analysis/mask_cnf.h"

#include "codegen/tile/analysis/conditions.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

/// Far more than masks have: distribution may double what it is given.
constexpr std::size_t kMostClauses = 64;

using Clause = std::vector<IntExpr>;  ///< its largest term
using Clauses = std::vector<Clause>;  ///< the smallest clause

bool has_extrema(const IntExpr& expr) {
  return expr.op() == IntOp::min || expr.op() == IntOp::max || std::any_of(expr.args().begin(), expr.args().end(), has_extrema);
}

class ClauseReader {
 public:
  /// { condition holds } = { the result is >= 0 }; no clause where it always holds. `wanted` false: of its negation.
  Clauses truths(const IntExpr& condition, bool wanted) {
    const auto& args = condition.args();
    const auto of = [&](std::size_t k) { return truths(args[k], wanted); };
    switch (condition.op()) {
      case IntOp::constant:
        return (condition.value() != 0) == wanted ? Clauses{} : Clauses{{IntExpr(-1)}};
      case IntOp::logical_and:
      case IntOp::logical_or:
        return (condition.op() == IntOp::logical_and) == wanted ? both(of(0), of(1)) : either(of(0), of(1));
      case IntOp::logical_not:
        return truths(args[0], !wanted);
      case IntOp::ge:
      case IntOp::gt: {
        const IntExpr distance = comparison_distance(condition);
        return values(wanted ? distance : IntExpr(-1) - distance);
      }
      case IntOp::eq: {
        const IntExpr distance = comparison_distance(condition), back = IntExpr(0) - distance;
        return wanted ? both(values(distance), values(back)) : either(values(distance - IntExpr(1)), values(back - IntExpr(1)));
      }
      default:
        fits_ = false;
        return {};
    }
  }

  bool fits() const { return fits_; }

 private:
  Clauses values(const IntExpr& expr) {
    if (!has_extrema(expr)) return {{expr}};
    const auto& args = expr.args();
    const auto of = [&](std::size_t k) { return values(args[k]); };
    switch (expr.op()) {
      case IntOp::min:
        return both(of(0), of(1));
      case IntOp::max:
        return either(of(0), of(1));
      case IntOp::add:
        return sums(of(0), of(1));
      case IntOp::sub:
        return sums(of(0), negated(of(1)));
      case IntOp::mul:
        for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
          const auto factor = args[side].as_constant();
          if (!factor) continue;
          const Clauses terms = *factor < 0 ? negated(of(1 - side)) : of(1 - side);
          return each(terms, [&](const IntExpr& term) { return IntExpr(*factor < 0 ? -*factor : *factor) * term; });
        }
        break;
      case IntOp::floor_div:
        if (const auto divisor = args[1].as_constant())
          return each(of(0), [&](const IntExpr& term) { return floor_div(term, *divisor); });
        break;
      default:
        break;
    }
    fits_ = false;
    return {};
  }

  template <class Map>
  static Clauses each(Clauses clauses, const Map& map) {
    for (Clause& clause : clauses) std::transform(clause.begin(), clause.end(), clause.begin(), map);
    return clauses;
  }

  static Clauses both(Clauses a, const Clauses& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  /// join(x, y) for every clause x of `a` and y of `b`.
  template <class Join>
  Clauses products(const Clauses& a, const Clauses& b, const Join& join) {
    Clauses result;
    if (a.size() * b.size() > kMostClauses) fits_ = false;
    for (const Clause& x : a) {
      for (const Clause& y : b) {
        if (fits_) result.push_back(join(x, y));
      }
    }
    return result;
  }

  Clauses either(const Clauses& a, const Clauses& b) {
    return products(a, b, [](Clause x, const Clause& y) {
      x.insert(x.end(), y.begin(), y.end());
      return x;
    });
  }

  Clauses sums(const Clauses& a, const Clauses& b) {
    return products(a, b, [](const Clause& x, const Clause& y) {
      Clause all;
      for (const IntExpr& left : x) {
        for (const IntExpr& right : y) all.push_back(left + right);
      }
      return all;
    });
  }

  /// -min(max(a, b), ..) = max(min(-a, -b), ..)
  Clauses negated(const Clauses& clauses) {
    Clauses result;
    for (const Clause& clause : clauses) {
      Clauses terms;
      for (const IntExpr& term : clause) terms.push_back({IntExpr(0) - term});
      result = result.empty() ? terms : either(result, terms);
    }
    return result;
  }

  bool fits_ = true;
};

}  // namespace

std::vector<IntExpr> clauses_of(const IntExpr& condition) {
  if (const IntExpr distance = comparison_distance(condition); distance.defined() && !has_extrema(distance)) return {condition};
  ClauseReader reader;
  const Clauses clauses = reader.truths(condition, true);
  if (!reader.fits()) return {condition};
  std::vector<IntExpr> result;
  for (const Clause& clause : clauses) result.push_back(make_clause(clause));
  return result;
}

int joined_clauses(const std::vector<IntExpr>& clauses) {
  return static_cast<int>(
      std::count_if(clauses.begin(), clauses.end(), [](const IntExpr& clause) { return alternatives_of(clause).size() > 1; }));
}

std::vector<std::vector<IntExpr>> pieces_of(const IntExpr& condition) {
  ClauseReader reader;
  Clauses pieces =
      reader.truths(condition, false);  // one clause of the negation for each piece, all of whose alternatives fail in it
  if (!reader.fits()) return {};
  for (Clause& piece : pieces) {
    for (IntExpr& distance : piece) {
      const bool negated = distance.op() == IntOp::sub && distance.args()[0].is_constant(-1);
      distance = negated ? distance.args()[1] : IntExpr(-1) - distance;
    }
  }
  return pieces;
}

std::vector<IntExpr> alternatives_of(const IntExpr& clause) {
  std::vector<IntExpr> distances;
  if (clause.op() == IntOp::ge || clause.op() == IntOp::gt) split_terms(comparison_distance(clause), IntOp::max, distances);
  return distances;
}

IntExpr make_clause(const std::vector<IntExpr>& distances) {
  IntExpr largest = distances.front();
  for (std::size_t k = 1; k < distances.size(); ++k) largest = max(largest, distances[k]);
  return IntExpr::make(IntOp::ge, {largest, IntExpr(0)});
}

}  // namespace nestor::nvptx
