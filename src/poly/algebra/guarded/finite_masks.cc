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

#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "poly/algebra/analysis/needed_points.h"
#include "poly/algebra/guarded/masked_reductions.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/direct_sums.h"
#include "poly/algebra/values/nest_edit.h"

namespace nestor {
namespace {

constexpr const char* kName = "finite_masks";

/// Rewrites one reduction after the other.
class Edit {
 public:
  explicit Edit(const Nest& nest) : result_(nest) {}

  const Nest& nest() const { return result_; }

  void leave_out(const MaskedReduction& masked) {
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
  static ScalarExpr if_any(const MaskedReduction& masked, const ScalarExpr& value, double other) {
    const ScalarExpr zero = ScalarExpr::constant(0, ElementType::i32);
    return masked.always ? value
                         : build::select(ScalarExpr::make(ScalarOp::lt, {zero, masked.count}), value, build::number(other));
  }

  void start_from(const MaskedReduction& masked) {
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
  void add_hidden(const MaskedReduction& masked) {
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
  std::string add_weight(const MaskedReduction& masked) {
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
  std::string add_terms(const MaskedReduction& masked, const Statement& whole, const std::string& weight) {
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
  MaskedReductions analysis(nest, scores);
  Edit edit(nest);
  const std::vector<std::string> reductions = analysis.names(why);
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
    MaskedReductions analysis(nest, nest.statement(match.target[0]));
    for (const std::string& name : analysis.names(why)) {
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
