// Rule "exp2_scale": exp becomes exp2, and its factor log2(e) joins a multiplication that is there already.
//
// Pattern    exp(x). If x is a combination of elements of temporaries such as s - m, where s = scale * (...) is elementwise and m an
//            extremum of s, and all their readers are such exponents, the factor goes into `scale`; else into a constant factor of x, else it is a
//            product of its own.
// Rewrite    exp2(x * log2(e)), with the factor moved as far back as that.
// Conditions to move it back: the temporaries are read by exponents of exp, linearly and without other terms, by an extremum that is
//            itself of this kind, or, extrema, by statements over no more than their elements, which divide the factor out (a row's
//            log-sum-exp); exponents may keep an extremum finite by a number far out, which is scaled, too; others may compare them with
//            infinities; each is written by products, sums of which one term takes the factor in (the others are multiplied, which the
//            exponents no longer are), selects of such and infinite constants, or the extremum, of several, too; they hold f32.
// Proof      exp(x) = 2^(x log2 e). For c > 0: max(c s) = c max(s), c s - c m = c (s - m), c (a + b) = c a + c b, c * (+-inf) = +-inf. The same folding is in
//            T. Dao, 2023, arXiv:2307.08691.
// Rounding   log2(e) is rounded once: |x| 2^-24 relative error of the result, which exp itself has when it is computed by exp2. An extremum
//            that is read otherwise has been rounded twice more: 2^-23 relative.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "poly/algebra/analysis/finite_lead.h"
#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"

namespace nestor {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr double kLargest = std::numeric_limits<float>::max();

bool has_exp(const ScalarExpr& expr) {
  bool found = false;
  expr.visit([&](const ScalarExpr& node) { found = found || node.op() == ScalarOp::exp; });
  return found;
}

/// True for a factor that is the same for all points of the statement's last loop, so that scaling it costs nothing there.
bool is_shared_factor(const Statement& statement, const ScalarExpr& expr) {
  const int last = static_cast<int>(statement.dims.size()) - 1;
  return expr.type() == ElementType::f32 && last >= 0 && !varies_along(statement, expr, last);
}

/// Is it the larger or smaller one of elements?
bool is_meeting(const Statement& statement) {
  const ScalarOp op = statement.value.op();
  const std::function<bool(const ScalarExpr&)> is_met = [&](const ScalarExpr& value) {
    return value.op() == ScalarOp::read || (value.op() == op && is_met(value.args()[0]) && is_met(value.args()[1]));
  };
  return !statement.reduction && (op == ScalarOp::max || op == ScalarOp::min) && is_met(statement.value);
}

/// A value and the number far out that keeps it finite (finite_lead.h).
struct LimitedValue {
  ScalarExpr value, limit;
};

std::optional<LimitedValue> limited_value(const ScalarExpr& expr) {
  if (expr.op() != ScalarOp::max && expr.op() != ScalarOp::min) return std::nullopt;
  const auto inside = inside_finite_lead(expr.op() == ScalarOp::max ? ReductionOp::max : ReductionOp::min, expr);
  if (!inside || expr.args()[1].op() != ScalarOp::constant) return std::nullopt;
  return LimitedValue{*inside, expr.args()[1]};
}

/// log2 e times the number; the largest number stays what it is, as infinities do.
ScalarExpr scaled_constant(double number) {
  return ScalarExpr::constant(std::isinf(number) ? number : std::clamp(number * kLog2E, -kLargest, kLargest));
}

bool is_number(double value) { return std::fabs(value) <= kLargest && std::fabs(value) >= std::numeric_limits<float>::min(); }

/// Multiplies values of one statement by log2 e.
class Absorber {
 public:
  Absorber(const Nest& nest, const Statement& statement) : nest_(nest), statement_(statement) {}

  /// log2 e * expr. Without `pay`, only if that costs no further operation for a point of the last loop.
  std::optional<ScalarExpr> absorb(const ScalarExpr& expr, bool pay = false) {
    if (expr.type() != ElementType::f32) return std::nullopt;
    std::optional<ScalarExpr> product = pay ? std::optional(build::mul(expr, build::number(kLog2E))) : std::nullopt;
    switch (expr.op()) {
      case ScalarOp::constant:
        return scaled_constant(expr.number());
      case ScalarOp::scalar:
        return build::mul(expr, build::number(kLog2E));
      case ScalarOp::mul: {
        const auto inside = absorb_product(expr);
        return inside ? inside : product;
      }
      case ScalarOp::div: {
        const ScalarExpr& divisor = expr.args()[1];
        if (divisor.op() == ScalarOp::constant && is_number(kLog2E / divisor.number()))
          return build::mul(expr.args()[0], build::number(kLog2E / divisor.number()));
        const auto inside = absorb_all(expr, {0}, false);
        return inside ? inside : product;
      }
      case ScalarOp::neg:
        return absorb_all(expr, {0}, pay);
      case ScalarOp::add:
      case ScalarOp::sub: {
        // A sum takes the factor in if one side does; the other side pays for the multiplication that the exponents save.
        const bool free = absorb(expr.args()[0]) || absorb(expr.args()[1]);
        return free || pay ? absorb_all(expr, {0, 1}, true) : std::nullopt;
      }
      case ScalarOp::select:
        return absorb_all(expr, {1, 2}, pay);
      default:
        return product;
    }
  }

  /// Is log2 e * expr finite where expr is? By the ranges of what it is made of; sums of products of several tensors, and scalars, are
  /// taken to stay below 2^127 (docs/algebra.md, Range). Largest constants stay what they are: nothing else comes near them.
  bool has_room(const ScalarExpr& expr) {
    if (range_of(nest_, statement_, expr).magnitude() * kLog2E <= kLargest) return true;
    const auto arg = [&](std::size_t k) { return has_room(expr.args()[k]); };
    switch (expr.op()) {
      case ScalarOp::constant:
        return clamped_.empty() || clamped_.contains(expr.number()) ? (clamped_.insert(expr.number()), true) : false;
      case ScalarOp::scalar:
        return true;
      case ScalarOp::read:
        return is_sum_of_products(statement_.reads.at(expr.ordinal()).tensor);
      case ScalarOp::mul: {
        for (const std::size_t k : {std::size_t{1}, std::size_t{0}}) {
          if (expr.args()[k].op() == ScalarOp::constant && !is_number(kLog2E * expr.args()[k].number())) return false;
          if (is_shared_factor(statement_, expr.args()[k]) && is_integer(expr.args()[1 - k])) return true;
        }
        return arg(0) && arg(1);
      }
      case ScalarOp::div:
      case ScalarOp::neg:
        return arg(0);
      case ScalarOp::add:
      case ScalarOp::sub:
        return arg(0) && arg(1);
      case ScalarOp::select:
        return arg(1) && arg(2);
      default:
        return false;
    }
  }

  /// The constants, if any, and whether there are factors, that are not scaled where their product would overflow.
  const std::set<double>& clamped() const { return clamped_; }
  bool keeps_large_factors() const { return keeps_large_factors_; }

 private:
  std::optional<ScalarExpr> absorb_all(const ScalarExpr& expr, const std::vector<std::size_t>& places, bool pay) {
    std::vector<ScalarExpr> args = expr.args();
    for (const std::size_t k : places) {
      const auto inner = absorb(args[k], pay);
      if (!inner) return std::nullopt;
      args[k] = *inner;
    }
    return expr.with_args(args);
  }

  std::optional<ScalarExpr> absorb_product(const ScalarExpr& expr) {
    for (const std::size_t k : {std::size_t{1}, std::size_t{0}}) {
      const ScalarExpr& factor = expr.args()[k];
      const bool number = factor.op() == ScalarOp::constant && is_number(kLog2E * factor.number());
      if (number || factor.op() == ScalarOp::scalar) return absorb_all(expr, {k}, false);
    }
    for (const std::size_t k : {std::size_t{1}, std::size_t{0}}) {
      if (expr.args()[k].op() == ScalarOp::constant) continue;
      if (const auto inside = absorb_all(expr, {k}, false)) return inside;
    }
    for (const std::size_t k : {std::size_t{1}, std::size_t{0}}) {
      const ScalarExpr& factor = expr.args()[k];
      if (!is_shared_factor(statement_, factor) || factor.op() == ScalarOp::constant) continue;
      if (range_of(nest_, statement_, factor).magnitude() * kLog2E <= kLargest) return absorb_all(expr, {k}, true);
      if (is_integer(expr.args()[1 - k])) return with_arg(expr, k, scaled_unless_large(factor));
    }
    return std::nullopt;
  }

  static ScalarExpr with_arg(const ScalarExpr& expr, std::size_t k, const ScalarExpr& arg) {
    std::vector<ScalarExpr> args = expr.args();
    args[k] = arg;
    return expr.with_args(std::move(args));
  }

  /// Beyond 2^90, multiples of the factor by integers are equal or so far apart that exponentials of their differences are 0, whether
  /// scaled or not.
  ScalarExpr scaled_unless_large(const ScalarExpr& factor) {
    keeps_large_factors_ = true;
    const ScalarExpr small = ScalarExpr::make(ScalarOp::le, {build::unary(ScalarOp::abs, factor), build::number(0x1p90)});
    return build::select(small, build::mul(factor, build::number(kLog2E)), factor);
  }

  static bool is_integer(const ScalarExpr& expr) {
    return expr.op() == ScalarOp::cast && expr.type() == ElementType::f32 && expr.args()[0].type() == ElementType::i32;
  }

  bool is_sum_of_products(const std::string& tensor) const {
    for (const Statement* writer : writers_of(nest_, tensor)) {
      if (writer->reduction != ReductionOp::add) continue;
      const Monomial product = product_of(writer->value);
      return std::count_if(product.factors.begin(), product.factors.end(),
                           [](const auto& factor) { return strip_casts(factor.first).op() == ScalarOp::read; }) > 1;
    }
    return false;
  }

  const Nest& nest_;
  const Statement& statement_;
  std::set<double> clamped_;
  bool keeps_large_factors_ = false;
};

/// The temporaries that can be scaled together so that exponents need no factor.
class ScaledFamily {
 public:
  explicit ScaledFamily(const Nest& nest) : nest_(nest) {}

  /// Collects the family around an exponent of `statement`; false when some member has another use.
  bool grow(const Statement& statement, const ScalarExpr& exponent) {
    return add_exponent(statement, exponent) && close() && absorbing_ && (unscaling_.empty() || !unscaled_parts_);
  }
  const std::set<std::string>& tensors() const { return tensors_; }
  /// Statements that read extrema of the family for themselves: they divide the factor out again.
  const std::set<std::string>& unscaling() const { return unscaling_; }

 private:
  bool add_exponent(const Statement& statement, const ScalarExpr& exponent) {
    const Polynomial sum = polynomial_of(exponent);
    for (const Monomial& term : sum) {
      if (term.factors.size() != 1 || term.factors[0].second != 1) return false;
      const auto limited = limited_value(term.factors[0].first);
      const ScalarExpr value = limited ? limited->value : term.factors[0].first;
      if (value.op() != ScalarOp::read) return false;
      // A multiple of the scaled value must not overflow where that of the value does not.
      const double multiple = std::fabs(term.coefficient) * kLog2E;
      const double magnitude = range_of(nest_, statement, value).magnitude();
      if (std::fabs(term.coefficient) > 1 && magnitude * multiple > kLargest) return false;
      add(statement.reads.at(value.ordinal()).tensor);
    }
    return !sum.empty();
  }

  void add(const std::string& tensor) {
    if (tensors_.insert(tensor).second) open_.push_back(tensor);
  }

  bool close() {
    while (!open_.empty()) {
      const std::string tensor = open_.back();
      open_.pop_back();
      const Tensor& storage = nest_.tensor(tensor);
      if (storage.role != TensorRole::temporary || storage.type != ElementType::f32) return false;
      for (const Statement* writer : writers_of(nest_, tensor)) {
        if (!add_writer(*writer)) return false;
      }
      for (const Statement* reader : readers_of(nest_, tensor)) {
        if (!add_reader(*reader, tensor)) return false;
      }
    }
    return true;
  }

  static bool is_extremum(const Statement& statement) {
    return statement.reduction == ReductionOp::max || statement.reduction == ReductionOp::min;
  }

  bool add_writer(const Statement& writer) {
    if (is_meeting(writer)) {
      for (const Access& read : writer.reads) add(read.tensor);
      return true;
    }
    if (is_extremum(writer)) {
      if (writer.value.op() != ScalarOp::read) return false;
      add(writer.reads.at(writer.value.ordinal()).tensor);
      return true;
    }
    Absorber absorber(nest_, writer);
    if (writer.reduction || has_exp(writer.value) || !absorber.absorb(writer.value) || !absorber.has_room(writer.value))
      return false;
    clamped_.insert(absorber.clamped().begin(), absorber.clamped().end());
    if (clamped_.size() > 1) return false;
    unscaled_parts_ = unscaled_parts_ || !clamped_.empty() || absorber.keeps_large_factors();
    if (writer.value.op() != ScalarOp::constant) absorbing_ = true;
    return true;
  }

  bool add_reader(const Statement& reader, const std::string& tensor) {
    if ((is_extremum(reader) && reader.value.op() == ScalarOp::read) || is_meeting(reader)) {
      add(reader.write.tensor);
      return true;
    }
    return only_in_exponents(reader, reader.value, tensor) || add_unscaling(reader, tensor);
  }

  /// An extremum may be read otherwise by statements that run for its elements alone, not for what it is an extremum of.
  bool add_unscaling(const Statement& reader, const std::string& tensor) {
    const std::vector<const Statement*> writers = writers_of(nest_, tensor);
    const bool extremum = std::any_of(writers.begin(), writers.end(), [](const Statement* w) { return is_extremum(*w); });
    if (!extremum || reader.reduction || has_exp(reader.value)) return false;
    if (reader.dims.size() > nest_.tensor(tensor).shape.size()) return false;
    unscaling_.insert(reader.name);
    return true;
  }

  bool only_in_exponents(const Statement& reader, const ScalarExpr& expr, const std::string& tensor) {
    if (expr.op() == ScalarOp::exp) return !reads_tensor(reader, expr, tensor) || add_exponent(reader, expr.args()[0]);
    if (expr.op() == ScalarOp::read) return reader.reads.at(expr.ordinal()).tensor != tensor;
    // What is infinite stays so.
    const bool of_read = expr.op() == ScalarOp::eq && expr.args()[0].op() == ScalarOp::read;
    if (of_read && expr.args()[1].op() == ScalarOp::constant && std::isinf(expr.args()[1].number())) return true;
    return std::all_of(expr.args().begin(), expr.args().end(),
                       [&](const ScalarExpr& arg) { return only_in_exponents(reader, arg, tensor); });
  }

  const Nest& nest_;
  std::set<std::string> tensors_;
  std::set<std::string> unscaling_;
  std::vector<std::string> open_;
  std::set<double> clamped_;     ///< constants that stay what they are
  bool absorbing_ = false;       ///< some producer takes the factor in without a further operation
  bool unscaled_parts_ = false;  ///< some values are not scaled, so that nobody can divide the factor out
};

/// Scales the producers of the tensors in `fresh`; exponents that read them are in base 2 then.
void scale_producers(Nest& nest, const std::set<std::string>& fresh) {
  for (Statement& statement : nest.statements) {
    if (!fresh.contains(statement.write.tensor) || statement.reduction || is_meeting(statement)) continue;
    statement.value = *Absorber(nest, Statement(statement)).absorb(statement.value);
  }
}

/// Divides the factor out of what the statement reads of the tensors in `fresh`.
void unscale_reads(Statement& statement, const std::set<std::string>& fresh) {
  statement.value = statement.value.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::read) return node;
    const std::string& tensor = statement.reads.at(node.ordinal()).tensor;
    return fresh.contains(tensor) ? build::mul(node, build::number(1 / kLog2E)) : node;
  });
}

/// A difference stays one and is scaled as a whole: rounding is relative to what is left of it then, not to its terms.
ScalarExpr scaled_exponent(const Nest& nest, const Statement& statement, const ScalarExpr& exponent) {
  const bool sum = exponent.op() == ScalarOp::add || exponent.op() == ScalarOp::sub;
  Absorber absorber(nest, statement);
  auto absorbed = sum ? std::nullopt : absorber.absorb(exponent);
  if (absorber.keeps_large_factors()) absorbed.reset();  // the exponent need not be a difference
  return build::unary(ScalarOp::exp2, absorbed ? *absorbed : build::mul(exponent, build::number(kLog2E)));
}

/// Scales the families of all exponents; returns their tensors.
std::set<std::string> scale_families(const Nest& nest, Nest& result) {
  std::set<std::string> scaled;
  for (const Statement& statement : nest.statements) {
    statement.value.visit([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::exp) return;
      ScaledFamily family(nest);
      if (!family.grow(statement, node.args()[0])) return;
      std::set<std::string> fresh;
      for (const std::string& tensor : family.tensors()) {
        if (scaled.insert(tensor).second) fresh.insert(tensor);
      }
      scale_producers(result, fresh);
      for (Statement& reader : result.statements) {
        if (family.unscaling().contains(reader.name)) unscale_reads(reader, fresh);
      }
    });
  }
  return scaled;
}

/// Values of scaled families are limited by scaled numbers.
ScalarExpr with_scaled_limits(const ScalarExpr& expr) {
  return expr.rewrite([](const ScalarExpr& node) {
    const auto limited = limited_value(node);
    return limited ? node.with_args({limited->value, scaled_constant(limited->limit.number())}) : node;
  });
}

Nest rewritten(const Nest& nest) {
  Nest result = nest;
  const std::set<std::string> scaled = scale_families(nest, result);
  for (Statement& statement : result.statements) {
    statement.value = statement.value.rewrite([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::exp) return node;
      const bool from_family =
          std::any_of(scaled.begin(), scaled.end(), [&](const std::string& t) { return reads_tensor(statement, node, t); });
      return from_family ? build::unary(ScalarOp::exp2, with_scaled_limits(node.args()[0]))
                         : scaled_exponent(nest, statement, node.args()[0]);
    });
  }
  return result;
}

std::vector<RuleMatch> find(const Nest& nest) {
  for (const Statement& statement : nest.statements) {
    if (has_exp(statement.value)) {
      return {{"exp2_scale", {}, fmt::format("exp in {} becomes exp2 with its factor folded in", statement.name)}};
    }
  }
  return {};
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  expect_arguments("exp2_scale", target, 0);
  if (find(nest).empty()) refuse_rule("exp2_scale", "", "the nest has no exp");
  return {rewritten(nest), {}, false};
}

}  // namespace

const Rule& exp2_scale_rule() {
  static const Rule rule{"exp2_scale",
                         "exp becomes exp2, its factor joins a multiplication that is there already",
                         "exp(x) = 2^(x log2 e); max(c s) = c max(s) for c > 0",
                         "|x| 2^-24 relative",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
