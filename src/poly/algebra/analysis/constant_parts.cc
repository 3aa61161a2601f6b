// Abstract evaluation: constants through selects with affine conditions, and through what stands beside them.
#include "poly/algebra/analysis/constant_parts.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/values/condition.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/scalar_share.h"

namespace nestor {
namespace {

constexpr std::size_t kMostPieces = 16;
constexpr int kMostBasicSets = 24;  ///< of a part's domain: loops go through no more of them

/// Abstract evaluation of a statement's value over its domain.
class PartFinder {
 public:
  PartFinder(const Nest& nest, const Statement& statement, const std::map<std::string, KnownElements>& known)
      : nest_(nest), statement_(statement), known_(known) {}

  ConstantParts parts(const ScalarExpr& expr, const isl::set& domain) const {
    if (domain.is_empty()) return {};
    switch (expr.op()) {
      case ScalarOp::constant:
        return {{domain, expr.number(), false, {}}};
      case ScalarOp::read:
        return parts_of_read(expr, domain);
      case ScalarOp::select:
        return parts_of_select(expr, domain);
      case ScalarOp::cast:
      case ScalarOp::exp:
      case ScalarOp::exp2:
      case ScalarOp::log:
      case ScalarOp::neg:
      case ScalarOp::tanh:
      case ScalarOp::erf:
      case ScalarOp::sin:
      case ScalarOp::cos:
      case ScalarOp::log1p:
      case ScalarOp::expm1:
      case ScalarOp::atan:
        return mapped(expr, domain);
      case ScalarOp::add:
      case ScalarOp::sub:
      case ScalarOp::mul:
      case ScalarOp::div:
        return parts_of_binary(expr, domain);
      default:
        return {unknown(domain)};
    }
  }

 private:
  static ConstantPart unknown(const isl::set& domain, std::string why = {}) {
    return {domain, std::nullopt, false, {}, {}, std::move(why)};
  }

  static double constant_of(const ScalarExpr& expr, const std::vector<double>& args) {
    std::vector<ScalarExpr> constants;
    for (std::size_t k = 0; k < args.size(); ++k) constants.push_back(ScalarExpr::constant(args[k], expr.args()[k].type()));
    return evaluate(
        expr.with_args(std::move(constants)), [](int) { return 0.0; }, [](int) { return 0; },
        [](const std::string&) { return 0.0; });
  }

  ConstantParts mapped(const ScalarExpr& expr, const isl::set& domain) const {
    ConstantParts pieces = parts(expr.args()[0], domain);
    for (ConstantPart& piece : pieces) {
      if (piece.value) piece.value = constant_of(expr, {*piece.value});
    }
    return pieces;
  }

  ConstantParts parts_of_read(const ScalarExpr& expr, const isl::set& domain) const {
    const Access& read = statement_.reads.at(expr.ordinal());
    const auto found = known_.find(read.tensor);
    if (found == known_.end()) return {unknown(domain)};
    const isl::set there = domain.intersect(read.relation.intersect_range(found->second.elements).domain());
    ConstantParts pieces;
    if (!there.is_empty()) {
      ConstantPart piece{there, found->second.value, true, {}, found->second.factors};
      for (const Company& company : found->second.company)
        piece.company.push_back({company.tensor, read.relation.apply_range(company.element), company.infinity});
      pieces.push_back(std::move(piece));
    }
    const isl::set elsewhere = domain.subtract(there);
    if (!elsewhere.is_empty()) pieces.push_back(unknown(elsewhere));
    return pieces;
  }

  ConstantParts parts_of_select(const ScalarExpr& expr, const isl::set& domain) const {
    const ScalarExpr &choice = expr.args()[0], &yes = expr.args()[1], &no = expr.args()[2];
    const auto condition = condition_set(nest_, statement_, choice);
    if (!condition) return parts_beside_data(choice, yes, no, domain);
    // The complements of conditions with quotients, one within the other, have ever more basic sets.
    const isl::set then = domain.intersect(*condition), otherwise = domain.subtract(*condition);
    if (is_scattered(then) || is_scattered(otherwise)) return {unknown(domain)};
    ConstantParts pieces = parts(yes, then);
    for (const ConstantPart& piece : parts(no, otherwise)) pieces.push_back(piece);
    for (ConstantPart& piece : pieces) piece.masked = true;
    return pieces;
  }

  /// A choice that data has a part in: conditions on indices are taken out of it one by one. Where data alone decides, a constant is known
  /// where both sides have it.
  ConstantParts parts_beside_data(const ScalarExpr& choice, const ScalarExpr& yes, const ScalarExpr& no,
                                  const isl::set& domain) const {
    const auto choose = [](const ScalarExpr& condition, const ScalarExpr& then, const ScalarExpr& otherwise) {
      return ScalarExpr::make(ScalarOp::select, {condition, then, otherwise});
    };
    if (choice.op() == ScalarOp::logical_not) return parts(choose(choice.args()[0], no, yes), domain);
    if (choice.op() == ScalarOp::logical_and)
      return parts(choose(choice.args()[0], choose(choice.args()[1], yes, no), no), domain);
    if (choice.op() == ScalarOp::logical_or)
      return parts(choose(choice.args()[0], yes, choose(choice.args()[1], yes, no)), domain);
    ConstantParts pieces;
    for (const ConstantPart& a : parts(yes, domain)) {
      if (!a.value) {
        pieces.push_back(a);
        continue;
      }
      for (const ConstantPart& b : parts(no, a.domain)) {
        ConstantPart piece = both(a, b);
        if (b.value == a.value) piece.value = a.value;
        pieces.push_back(without_company_if_unknown(std::move(piece)));
      }
    }
    if (pieces.size() > kMostPieces) return {unknown(domain)};
    return pieces;
  }

  static bool is_scattered(const isl::set& set) {
    return isl_set_n_basic_set(set.get()) > kMostBasicSets && isl_set_n_basic_set(set.coalesce().get()) > kMostBasicSets;
  }

  ConstantParts parts_of_binary(const ScalarExpr& expr, const isl::set& domain) const {
    ConstantParts pieces;
    for (const ConstantPart& a : parts(expr.args()[0], domain)) {
      if (!a.value && !decides(expr, expr.args()[1])) {
        pieces.push_back(a);
        continue;
      }
      for (const ConstantPart& b : parts(expr.args()[1], a.domain)) pieces.push_back(combined(expr, a, b));
    }
    if (pieces.size() > kMostPieces) return {unknown(domain)};
    return pieces;
  }

  /// May the operand on the right have a constant that makes the result one, whatever stands on the left: 0 under a product, an infinity under a
  /// sum? If not, its parts tell nothing where the left side is not known.
  bool decides(const ScalarExpr& expr, const ScalarExpr& right) const {
    const bool sum = expr.op() == ScalarOp::add || expr.op() == ScalarOp::sub;
    if (!sum) return expr.op() == ScalarOp::mul;
    bool found = false;
    right.visit([&](const ScalarExpr& node) {
      switch (node.op()) {
        case ScalarOp::constant:
          found = found || !std::isfinite(node.number());
          break;
        case ScalarOp::read:
          found = found || known_.contains(statement_.reads.at(node.ordinal()).tensor);
          break;
        case ScalarOp::cast:
          found = found || size_in_bytes(node.type()) < 4;
          break;
        case ScalarOp::div:
        case ScalarOp::log:
        case ScalarOp::log1p:
          found = true;
          break;
        default:
          break;
      }
    });
    return found;
  }

  /// On the domain of `b`, which is a part of that of `a`.
  ConstantPart combined(const ScalarExpr& expr, const ConstantPart& a, const ConstantPart& b) const {
    ConstantPart piece = both(a, b);
    if (a.value && b.value) {
      piece.value = constant_of(expr, {*a.value, *b.value});
    } else if (a.value || b.value) {
      beside_unknown(expr, a.value ? a : b, expr.args()[a.value ? 1 : 0], !a.value, piece);
    }
    return without_company_if_unknown(std::move(piece));
  }

  /// What two parts need together where `b` is, a part of `a`: its value is still open.
  static ConstantPart both(const ConstantPart& a, const ConstantPart& b) {
    ConstantPart piece{b.domain, std::nullopt, a.masked || b.masked, a.company, a.factors, a.why.empty() ? b.why : a.why};
    piece.company.insert(piece.company.end(), b.company.begin(), b.company.end());
    piece.factors.insert(b.factors.begin(), b.factors.end());
    return piece;
  }

  /// What is no constant needs no company.
  static ConstantPart without_company_if_unknown(ConstantPart piece) {
    if (!piece.value) {
      piece.company.clear();
      piece.factors.clear();
    }
    return piece;
  }

  /// `known` on one side (`second`: on the right), `other` on the other.
  void beside_unknown(const ScalarExpr& expr, const ConstantPart& known, const ScalarExpr& other, bool second,
                      ConstantPart& piece) const {
    const double value = *known.value;
    const bool sum = expr.op() == ScalarOp::add || expr.op() == ScalarOp::sub;
    if (sum && std::isinf(value)) {
      const double result = expr.op() == ScalarOp::sub && second ? -value : value;
      const bool negates = expr.op() == ScalarOp::sub;
      const ValueRange range = range_of(nest_, statement_, other);
      // x - x or -inf + inf: the infinity of `other` that leaves no number.
      const bool plus = (value < 0) != negates;
      const bool clashes = plus ? range.plus_infinity : range.minus_infinity;
      const double infinity = std::numeric_limits<double>::infinity();
      take(result, range.nan, clashes ? std::optional(plus ? infinity : -infinity) : std::nullopt, other, piece);
      // What a mask is added to is needed as little as what it is multiplied by.
      if (piece.value || !known.masked) return;
      const ValueRange made = made_range(nest_, statement_, other);
      if (!made.nan && !(plus ? made.plus_infinity : made.minus_infinity)) {
        piece.value = result;
        piece.why.clear();
        add_reads(other, piece.factors);
      }
    } else if (expr.op() == ScalarOp::mul && value == 0 && known.masked) {
      const ValueRange made = made_range(nest_, statement_, other);
      if (made.nan || made.infinite()) {
        piece.why = fmt::format("in {}, what stands beside 0 may be infinite where its operands are finite", statement_.name);
      } else {
        piece.value = 0;
        const ValueRange range = range_of(nest_, statement_, other);
        if (range.nan || range.infinite()) add_reads(other, piece.factors);
      }
    } else if (expr.op() == ScalarOp::div && value == 0 && !second && known.masked) {
      const ValueRange range = range_of(nest_, statement_, other);
      if (range.has_zero()) {
        piece.why = fmt::format("{} is divided by what may be 0", statement_.name);
      } else {
        take(0, range.nan, std::nullopt, other, piece);
      }
    }
  }

  /// The constant, if `other`, which may be NaN or an infinity, cannot spoil it, or spoils it for whole rows: as an extremum or a sum of them.
  void take(double value, bool nan, std::optional<double> infinity, const ScalarExpr& other, ConstantPart& piece) const {
    const bool spoiled = nan || infinity;
    const ScalarExpr bare = multiplied_value(other);
    const bool is_read = bare.op() == ScalarOp::read;
    const Access* read = is_read ? &statement_.reads.at(bare.ordinal()) : nullptr;
    if (spoiled && (read == nullptr || !is_of_a_row(*read))) {
      piece.why = fmt::format("in {}, what stands beside {} may be {}", statement_.name, value,
                              infinity ? fmt::format("{}{}", *infinity, nan ? " or NaN" : "") : "NaN");
      return;
    }
    piece.value = value;
    if (spoiled) piece.company.push_back({read->tensor, read->relation, infinity});
  }

  /// What a chain of positive factors multiplies, casts aside: infinite or NaN exactly where the product is, with the same sign.
  ScalarExpr multiplied_value(const ScalarExpr& expr) const {
    const ScalarExpr bare = strip_casts(expr);
    if (bare.op() != ScalarOp::mul) return bare;
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
      if (is_positive(nest_.scalars, strip_casts(bare.args()[k]))) return multiplied_value(bare.args()[1 - k]);
    }
    return bare;
  }

  /// A reduction's result, or a value computed from one element by element (a softmax's sum with a sink's term), which several points read.
  bool is_of_a_row(const Access& read) const {
    if (read.relation.intersect_domain(domain_in(nest_, statement_)).is_injective()) return false;
    const std::string& tensor = read.tensor;
    if (is_reduced(tensor)) return true;
    const Statement* definition = is_elementwise_temporary(nest_, tensor) ? sole_definition(nest_, tensor) : nullptr;
    return definition != nullptr && std::any_of(definition->reads.begin(), definition->reads.end(),
                                                [&](const Access& read) { return is_reduced(read.tensor); });
  }

  void add_reads(const ScalarExpr& expr, std::set<std::string>& tensors) const {
    expr.visit([&](const ScalarExpr& part) {
      if (part.op() == ScalarOp::read) tensors.insert(statement_.reads.at(part.ordinal()).tensor);
    });
  }

  bool is_reduced(const std::string& tensor) const {
    const auto writers = writers_of(nest_, tensor);
    return std::any_of(writers.begin(), writers.end(), [](const Statement* writer) { return writer->reduction.has_value(); });
  }

  const Nest& nest_;
  const Statement& statement_;
  const std::map<std::string, KnownElements>& known_;
};

}  // namespace

ConstantParts constant_parts(const Nest& nest, const Statement& statement, const std::map<std::string, KnownElements>& known) {
  if (!is_short(statement.value)) return {{domain_in(nest, statement), std::nullopt, false, {}}};
  return PartFinder(nest, statement, known).parts(statement.value, domain_in(nest, statement));
}

}  // namespace nestor
