// Rule "finite_masks": what a mask of a large negative number hides leaves sums and maxima.
//
// Pattern    s_ij = select(c, x, L) in a temporary, with a condition c on indices and one number L (-1e9, the lowest of a type), which only
//            reductions over j read, also through elementwise definitions: a softmax over masked scores.
// Rewrite    all reductions leave out the n_i points where s is L. A maximum starts from L if n_i > 0. A sum of terms that are w_i g there, with w
//            free of j, becomes s + w z, where z adds up (w = 0 ? 0 : g) over what was left out: nothing where w has vanished, as exp(L - m) does
//            where the row's maximum m is 104 above L. Without g it is s + n w. Where ranges say that all scores are above L, and w is 0 for them, and
//            every row sees some, nothing is added, and a maximum starts as it did.
// Conditions s is f32; each reduction runs over one dim into a temporary of f32, stands alone in its loops and is read when it is complete;
//            all its elements have points; of its value where s is L, one factor at least is free of j; n is a sum of lengths of intervals.
// Proof      A fold may be cut in two, and L is one term of a maximum however often it is there. sum_j w g = w sum_j g. For w = 0 all terms are
//            0, for a finite g. A w of NaN makes the sum NaN, as it does each of its terms.
// Rounding   as reassociate, and one product.
// Source     masks as large numbers instead of -inf are folklore of Transformers; with -inf there is nothing to guard (neutral_terms).
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "poly/algebra/analysis/known_values.h"
#include "poly/algebra/analysis/needed_points.h"
#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/guarded/row_points.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/condition.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/direct_sums.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/scalar_share.h"

namespace nestor {
namespace {

constexpr const char* kName = "finite_masks";
/// Numbers above it are hardly meant as masks: weights would not vanish beside them.
constexpr double kHighest = -1000;
/// What f32 rounds to 0 (docs/values.md, range).
constexpr double kVanishing = 0x1p-150;

ScalarExpr truth(bool value) { return ScalarExpr::constant(value ? 1 : 0, ElementType::boolean); }
ScalarExpr opposite(const ScalarExpr& condition) { return build::unary(ScalarOp::logical_not, condition); }

/// condition ? yes : no
ScalarExpr either(const ScalarExpr& condition, const ScalarExpr& yes, const ScalarExpr& no) {
  if (yes.is_constant(1) && no.is_constant(0)) return condition;
  if (yes.is_constant(0) && no.is_constant(1)) return opposite(condition);
  if (yes.equals(no)) return yes;
  const auto both = [](const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::logical_and, {a, b}); };
  if (yes.is_constant(0)) return both(opposite(condition), no);
  if (no.is_constant(0)) return both(condition, yes);
  return ScalarExpr::make(ScalarOp::logical_or, {both(condition, yes), both(opposite(condition), no)});
}

/// A number that conditions on indices put in place of a value, and where.
class Mask {
 public:
  Mask(const Nest& nest, const Statement& statement) : nest_(nest), statement_(statement) { condition_ = where(statement.value); }

  bool found() const { return numbers_.size() == 1 && !condition_.is_constant(0) && !condition_.is_constant(1); }
  const ScalarExpr& condition() const { return condition_; }
  double number() const { return *numbers_.begin(); }

 private:
  ScalarExpr where(const ScalarExpr& value) {
    if (value.op() == ScalarOp::constant && std::isfinite(value.number()) && value.number() <= kHighest) {
      numbers_.insert(value.number());
      return truth(true);
    }
    const bool chooses = value.op() == ScalarOp::select && condition_set(nest_, statement_, value.args()[0]);
    return chooses ? either(value.args()[0], where(value.args()[1]), where(value.args()[2])) : truth(false);
  }

  const Nest& nest_;
  const Statement& statement_;
  std::set<double> numbers_;
  ScalarExpr condition_;
};

/// A reduction, with definitions between it and the mask within its value.
struct Masked {
  Statement whole;        ///< indices of `hidden` and `count` among its own
  ScalarExpr hidden;      ///< where the mask hides its points
  isl::set points;        ///< these
  ScalarExpr count;       ///< how many of them a row has
  bool always = false;    ///< each row has some
  int dim = -1;           ///< that it reduces
  ScalarExpr row, term;   ///< the value there: their product; no term: the row's value alone
  bool vanishes = false;  ///< what is hidden is neutral, by the range of the scores
  /// The row's value, if it is the same number for all rows.
  std::optional<double> number() const;
};

std::optional<double> Masked::number() const {
  bool reads = false;
  row.visit([&](const ScalarExpr& node) {
    reads = reads || node.op() == ScalarOp::read || node.op() == ScalarOp::index || node.op() == ScalarOp::scalar;
  });
  if (reads) return std::nullopt;
  return evaluate(row, [](int) { return 0.0; }, [](int) { return 0; }, [](const std::string&) { return 0.0; });
}

void add_factors(const ScalarExpr& value, std::vector<ScalarExpr>& factors) {
  if (value.op() != ScalarOp::mul) return factors.push_back(value);
  for (const ScalarExpr& arg : value.args()) add_factors(arg, factors);
}

ScalarExpr times(const ScalarExpr& product, const ScalarExpr& factor) {
  return product.defined() ? build::mul(product, factor) : factor;
}

class Analysis {
 public:
  Analysis(const Nest& nest, const Statement& scores) : nest_(nest), scores_(scores), mask_(nest, scores) {}

  /// Reductions that the mask reaches, in order; none, with the reason, if others meet it, too.
  std::vector<std::string> reached(std::string& why) {
    why = "it is no temporary of f32 that one large negative number masks, by a condition on indices";
    const std::string& tensor = scores_.write.tensor;
    if (!is_short(scores_.value) || !is_elementwise_temporary(nest_, tensor) || nest_.tensor(tensor).type != ElementType::f32 ||
        !mask_.found())
      return {};
    std::set<std::string> tensors{tensor};
    std::vector<std::string> reductions;
    for (const Statement& reader : nest_.statements) {
      const bool reads = std::any_of(reader.reads.begin(), reader.reads.end(),
                                     [&](const Access& read) { return tensors.contains(read.tensor); });
      if (!reads) continue;
      if (reader.reduction) {
        reductions.push_back(reader.name);
        continue;
      }
      why = fmt::format("{} needs what is masked, and is no reduction", reader.name);
      if (!is_elementwise_temporary(nest_, reader.write.tensor)) return {};
      tensors.insert(reader.write.tensor);
      between_.insert(reader.write.tensor);
    }
    return reductions;
  }

  /// The reduction as the mask leaves it, in a nest in which earlier ones may have been rewritten.
  std::optional<Masked> of(const Nest& nest, const std::string& reduction, std::string& why) const {
    Masked result;
    result.whole = nest.statement(reduction);
    if (!stands_alone(nest, result.whole, why) || !inline_between(nest, result.whole, why)) return std::nullopt;
    why = fmt::format("{} meets several of the masked values, or none", reduction);
    const auto ordinal = masked_read(result.whole);
    const std::vector<int> reduced = reduced_dims(result.whole);
    if (!ordinal || reduced.size() != 1) return std::nullopt;
    result.dim = reduced.front();
    result.hidden = import_value(result.whole, scores_, producer_relation(result.whole, *ordinal, scores_), mask_.condition());
    why = fmt::format("the number of points of {} that are hidden is none of lengths", reduction);
    const auto hidden = condition_set(nest, result.whole, result.hidden);
    const isl::set domain = domain_in(nest, result.whole);
    const auto row = hidden ? points_of_row(domain.intersect(*hidden), domain, result.dim) : std::nullopt;
    if (!row) return std::nullopt;
    result.points = domain.intersect(*hidden);
    result.always = domain.is_subset(row->some);
    result.count = ScalarExpr::index(add_index(result.whole, row->count));
    take_apart(result, *ordinal);
    why = fmt::format("no factor of {} is free of {} and vanishes where its points are hidden", reduction,
                      result.whole.dims[static_cast<std::size_t>(result.dim)]);
    if (!result.row.defined()) return std::nullopt;
    result.vanishes = vanishes(nest, result);
    if (result.vanishes) return result;
    const auto number = result.number();
    const bool fits = result.whole.reduction == ReductionOp::max ? number.has_value() : !number || *number == 0;
    return fits ? std::optional(result) : std::nullopt;
  }

 private:
  static bool stands_alone(const Nest& nest, const Statement& reduction, std::string& why) {
    const Tensor& tensor = nest.tensor(reduction.write.tensor);
    const std::vector<const Statement*> readers = readers_of(nest, tensor.name);
    const bool later =
        std::all_of(readers.begin(), readers.end(), [&](const Statement* reader) { return reader->group > reduction.group; });
    why = fmt::format("{} is no sum or maximum in f32, alone in its loops and read when it is complete", reduction.name);
    const bool known =
        reduction.reduction == ReductionOp::add ||
        (reduction.reduction == ReductionOp::max && starts_from(nest, reduction, -std::numeric_limits<double>::infinity()));
    return known && later && tensor.type == ElementType::f32 && tensor.role == TensorRole::temporary &&
           alone_in_group(nest, reduction.name) && !initialisers_of(nest, reduction).empty() &&
           always_has_points(nest, reduction);
  }

  bool inline_between(const Nest& nest, Statement& reduction, std::string& why) const {
    const auto next = [&] {
      return std::find_if(reduction.reads.begin(), reduction.reads.end(),
                          [&](const Access& read) { return between_.contains(read.tensor); });
    };
    for (auto read = next(); read != reduction.reads.end(); read = next()) {
      why = fmt::format("{} is overwritten before {} reads it", read->tensor, reduction.name);
      if (!may_recompute(nest, *sole_definition(nest, read->tensor), reduction) || !is_short(reduction.value)) return false;
      inline_read(nest, reduction, static_cast<int>(read - reduction.reads.begin()));
    }
    return true;
  }

  std::optional<int> masked_read(const Statement& reduction) const {
    std::optional<int> found;
    for (std::size_t k = 0; k < reduction.reads.size(); ++k) {
      if (reduction.reads[k].tensor != scores_.write.tensor) continue;
      if (found) return std::nullopt;
      found = static_cast<int>(k);
    }
    return found;
  }

  void take_apart(Masked& masked, int ordinal) const {
    const ScalarExpr number = ScalarExpr::constant(mask_.number());
    const ScalarExpr value = masked.whole.value.rewrite(
        [&](const ScalarExpr& node) { return node.op() == ScalarOp::read && node.ordinal() == ordinal ? number : node; });
    std::vector<ScalarExpr> factors{value};
    if (masked.whole.reduction == ReductionOp::add) {
      factors.clear();
      add_factors(value, factors);
    }
    for (const ScalarExpr& factor : factors) {
      ScalarExpr& product = varies_along(masked.whole, factor, masked.dim) ? masked.term : masked.row;
      product = times(product, factor);
    }
    if (masked.term.defined() && masked.whole.reduction == ReductionOp::max) masked.row = {};
  }

  /// The nest with scores as if the mask hid none. Where ranges say that all of them are above its number, a maximum never is that number, and a sum's
  /// weight may be 0 for all that the maximum may be; a NaN in the row's values is one in the terms that are left.
  bool vanishes(const Nest& nest, const Masked& masked) const {
    const isl::map write = masked.whole.write.relation;
    const isl::set domain = domain_in(nest, masked.whole);
    if (!domain.apply(write).is_subset(domain.subtract(masked.points).apply(write))) return false;
    Nest seen = nest;
    Statement scores = scores_;
    scores.value = scores.value.rewrite([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::select || node.args()[1].equals(node.args()[2])) return node;
      const bool yes = node.args()[1].is_constant(mask_.number()), no = node.args()[2].is_constant(mask_.number());
      return yes ? node.args()[2] : no ? node.args()[1] : node;
    });
    replace_statement(seen, scores);
    const ValueRange range = range_of(seen, scores, scores.value);
    if (range.minus_infinity || range.low < mask_.number()) return false;
    if (masked.whole.reduction == ReductionOp::max) return masked.whole.value.op() == ScalarOp::read;
    start_maxima_from(seen, range.low);
    const Statement& sum = nest.statement(masked.whole.name);
    const auto passes = [&](const Access& read) {
      return !reads_tensor(masked.whole, masked.row, read.tensor) ||
             KnownValues(nest, {{read.tensor, std::numeric_limits<double>::quiet_NaN()}}).is_nan(sum, sum.value);
    };
    const ValueRange weight = range_of(seen, masked.whole, masked.row);
    return weight.low >= 0 && weight.high < kVanishing && !weight.plus_infinity &&
           std::all_of(masked.whole.reads.begin(), masked.whole.reads.end(), passes);
  }

  /// Maxima of scores that all see some, which are no less, as ranges do not know.
  void start_maxima_from(Nest& seen, double low) const {
    const Nest before = seen;
    for (const Statement* maximum : readers_of(before, scores_.write.tensor)) {
      const bool of_scores = maximum->reduction == ReductionOp::max && maximum->value.op() == ScalarOp::read;
      if (!of_scores || !always_has_points(before, *maximum)) continue;
      for (const Statement* each : initialisers_of(before, *maximum)) {
        Statement start = *each;
        start.value = build::number(low);
        replace_statement(seen, start);
      }
    }
  }

  const Nest& nest_;
  const Statement& scores_;
  Mask mask_;
  std::set<std::string> between_;  ///< temporaries
};

/// Rewrites one reduction after the other.
class Edit {
 public:
  explicit Edit(const Nest& nest) : result_(nest) {}

  const Nest& nest() const { return result_; }

  void leave_out(const Masked& masked) {
    if (masked.vanishes) {
      // nothing stands for it
    } else if (masked.whole.reduction == ReductionOp::max) {
      start_from(masked);
    } else if (!masked.number()) {
      add_hidden(masked);
    }
    Statement rest = result_.statement(masked.whole.name);
    narrow(result_, rest, rest.domain.subtract(masked.points));
    replace_statement(result_, rest);
  }

  Nest finish() {
    shrink_to_need(result_);
    decide_selects(result_);
    drop_unused(result_);
    return std::move(result_);
  }

 private:
  /// `value` where a row has hidden points, else `other`.
  static ScalarExpr if_any(const Masked& masked, const ScalarExpr& value, double other) {
    const ScalarExpr zero = ScalarExpr::constant(0, ElementType::i32);
    return masked.always ? value
                         : build::select(ScalarExpr::make(ScalarOp::lt, {zero, masked.count}), value, build::number(other));
  }

  void start_from(const Masked& masked) {
    const ScalarExpr value = if_any(masked, masked.row, -std::numeric_limits<double>::infinity());
    for (const Statement* each : initialisers_of(result_, masked.whole)) {
      Statement start = *each;
      const isl::map points = masked.whole.write.relation.intersect_domain(masked.whole.domain).reverse();
      start.value = import_value(start, masked.whole, start.write.relation.apply_range(points).lexmin(), value);
      compact(start);
      replace_statement(result_, start);
    }
  }

  /// Adds up what is hidden, behind the sum, for all who read it.
  void add_hidden(const Masked& masked) {
    const std::string summed = masked.whole.write.tensor;
    const std::vector<std::string> readers = names_of(readers_of(result_, summed));
    position_ = group_begin(result_, readers.front());
    isl::map points;
    Statement whole = element_statement(result_, masked.whole, fresh_name(result_, summed + "_whole"), points);
    points = points.lexmin();
    const std::string weight = add_weight(masked);
    const auto read = [&](const std::string& tensor, const isl::map& relation) { return read_at(whole, tensor, relation); };
    const ScalarExpr rest = read(summed, whole.write.relation);
    const ScalarExpr w = read(weight, points.apply_range(weights_));
    const ScalarExpr times = masked.term.defined() ? read(add_terms(masked, whole, weight), whole.write.relation)
                                                   : build::as_f32(import_value(whole, masked.whole, points, masked.count));
    whole.value = build::add(rest, build::mul(w, times));
    result_.tensors.push_back(result_.tensor(summed));
    result_.tensors.back().name = whole.name;
    whole.write = {whole.name, whole.write.relation.set_range_tuple(whole.name)};
    insert(whole);
    for (const std::string& name : readers) redirect(name, summed, whole.name);
  }

  /// A temporary for the weights of what is hidden, 0 where nothing is. `weights_` receives { Sum -> its element }.
  std::string add_weight(const Masked& masked) {
    const ScalarExpr value = if_any(masked, masked.row, 0);
    std::vector<int> dims;
    for (int dim = 0; dim < static_cast<int>(masked.whole.dims.size()); ++dim) {
      if (dim != masked.dim && varies_along(masked.whole, value, dim)) dims.push_back(dim);
    }
    const DimsView view(masked.whole, dims);
    const std::string name = fresh_name(result_, masked.whole.write.tensor + "_weight");
    Statement weight = view.over(name);
    weight.write = {name, isl::manage(isl_set_identity(weight.domain.copy()))};
    weight.value = import_value(weight, masked.whole, view.to_statement(weight), value);
    weights_ = view.element(name);
    result_.tensors.push_back(view.tensor(result_, name));
    insert(weight);
    return name;
  }

  /// A temporary for the sums of terms that are hidden where their weights are not 0.
  std::string add_terms(const Masked& masked, const Statement& whole, const std::string& weight) {
    const std::string name = fresh_name(result_, masked.whole.write.tensor + "_hidden");
    result_.tensors.push_back(result_.tensor(masked.whole.write.tensor));
    result_.tensors.back().name = name;
    Statement start = renamed(whole, fresh_name(result_, name + "_init"));
    start.write = {name, start.write.relation.set_range_tuple(name)};
    start.reads.clear();
    start.value = build::number(0);
    insert(start);
    Statement sum = masked.whole;
    const ScalarExpr w = read_at(sum, weight, weights_), zero = build::number(0);
    const auto less = [](const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::lt, {a, b}); };
    const ScalarExpr counts = ScalarExpr::make(ScalarOp::logical_or, {less(zero, w), less(w, zero)});  // not where it is NaN
    sum.value = build::select(counts, build::select(masked.hidden, masked.term, zero), zero);
    sum.write = {name, sum.write.relation.set_range_tuple(name)};
    sum = renamed(sum, name);
    compact(sum);
    insert(sum);
    return name;
  }

  static std::vector<std::string> names_of(const std::vector<const Statement*>& statements) {
    std::vector<std::string> names;
    for (const Statement* statement : statements) names.push_back(statement->name);
    return names;
  }

  void insert(const Statement& statement) { insert_statement(result_, position_++, statement); }

  void redirect(const std::string& reader, const std::string& from, const std::string& to) {
    Statement statement = result_.statement(reader);
    for (Access& read : statement.reads) {
      if (read.tensor == from) read = {to, read.relation.set_range_tuple(to)};
    }
    replace_statement(result_, statement);
  }

  Nest result_;
  std::size_t position_ = 0;
  isl::map weights_;
};

/// The nest without what the mask hides; nullopt, with `why`, where the rule does not apply.
std::optional<Nest> without_hidden(const Nest& nest, const Statement& scores, std::string& why) {
  Analysis analysis(nest, scores);
  Edit edit(nest);
  const std::vector<std::string> reductions = analysis.reached(why);
  for (const std::string& name : reductions) {
    const auto masked = analysis.of(edit.nest(), name, why);
    if (!masked) return std::nullopt;
    edit.leave_out(*masked);
  }
  if (reductions.empty()) return std::nullopt;
  return edit.finish();
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return without_hidden(nest, statement, why) ? "what the mask of " + statement.name + " hides is left out" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  return {required_match(nest, kName, target, without_hidden), {}, false};
}

/// Factors of terms that are hidden.
std::vector<std::string> factors_left_out(const Nest& nest) {
  std::set<std::string> factors;
  std::string why;
  for (const RuleMatch& match : find(nest)) {
    Analysis analysis(nest, nest.statement(match.target[0]));
    for (const std::string& name : analysis.reached(why)) {
      const auto masked = analysis.of(nest, name, why);
      if (!masked || !masked->term.defined()) continue;
      masked->term.visit([&](const ScalarExpr& node) {
        if (node.op() == ScalarOp::read) factors.insert(masked->whole.reads.at(static_cast<std::size_t>(node.ordinal())).tensor);
      });
    }
  }
  return {factors.begin(), factors.end()};
}

}  // namespace

const Rule& finite_masks_rule() {
  static const Rule rule{
      kName,
      "what a mask of a large negative number hides leaves sums and maxima (argument: the statement with the mask)",
      "sums and maxima may be cut in two; hidden terms of a row have one weight, which is 0 unless all its scores are low",
      "as reassociate, with finite values in masked places: what has a weight of 0 is not read",
      find,
      apply,
      factors_left_out};
  return rule;
}

}  // namespace nestor
