// What reductions have of masked values.
#include "poly/algebra/guarded/masked_reductions.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "poly/algebra/analysis/known_values.h"
#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/guarded/row_points.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/condition.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/scalar_share.h"

namespace nestor {
namespace {

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

void add_factors(const ScalarExpr& value, std::vector<ScalarExpr>& factors) {
  if (value.op() != ScalarOp::mul) return factors.push_back(value);
  for (const ScalarExpr& arg : value.args()) add_factors(arg, factors);
}

ScalarExpr times(const ScalarExpr& product, const ScalarExpr& factor) {
  return product.defined() ? build::mul(product, factor) : factor;
}

bool stands_alone(const Nest& nest, const Statement& reduction, std::string& why) {
  const Tensor& tensor = nest.tensor(reduction.write.tensor);
  const std::vector<const Statement*> readers = readers_of(nest, tensor.name);
  const bool later =
      std::all_of(readers.begin(), readers.end(), [&](const Statement* reader) { return reader->group > reduction.group; });
  why = fmt::format("{} is no sum or maximum in f32, alone in its loops and read when it is complete", reduction.name);
  const bool known =
      reduction.reduction == ReductionOp::add ||
      (reduction.reduction == ReductionOp::max && starts_from(nest, reduction, -std::numeric_limits<double>::infinity()));
  return known && later && tensor.type == ElementType::f32 && tensor.role == TensorRole::temporary &&
         alone_in_group(nest, reduction.name) && !initialisers_of(nest, reduction).empty() && always_has_points(nest, reduction);
}

}  // namespace

std::optional<double> MaskedReduction::number() const {
  bool reads = false;
  row.visit([&](const ScalarExpr& node) {
    reads = reads || node.op() == ScalarOp::read || node.op() == ScalarOp::index || node.op() == ScalarOp::scalar;
  });
  if (reads) return std::nullopt;
  return evaluate(row, [](int) { return 0.0; }, [](int) { return 0; }, [](const std::string&) { return 0.0; });
}

ScalarExpr Mask::where(const ScalarExpr& value) {
  if (value.op() == ScalarOp::constant && std::isfinite(value.number()) && value.number() <= kHighest) {
    numbers_.insert(value.number());
    return truth(true);
  }
  const bool chooses = value.op() == ScalarOp::select && condition_set(nest_, statement_, value.args()[0]);
  return chooses ? either(value.args()[0], where(value.args()[1]), where(value.args()[2])) : truth(false);
}

ScalarExpr Mask::seen() const {
  return statement_.value.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::select || node.args()[1].equals(node.args()[2])) return node;
    const bool yes = node.args()[1].is_constant(number()), no = node.args()[2].is_constant(number());
    return yes ? node.args()[2] : no ? node.args()[1] : node;
  });
}

std::vector<std::string> MaskedReductions::names(std::string& why) {
  why = "it is no temporary of f32 that one large negative number masks, by a condition on indices";
  const std::string& tensor = scores_.write.tensor;
  if (!is_short(scores_.value) || !is_elementwise_temporary(nest_, tensor) || nest_.tensor(tensor).type != ElementType::f32 ||
      !mask_.found())
    return {};
  std::set<std::string> tensors{tensor};
  std::vector<std::string> reductions;
  for (const Statement& reader : nest_.statements) {
    const bool reads =
        std::any_of(reader.reads.begin(), reader.reads.end(), [&](const Access& read) { return tensors.contains(read.tensor); });
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

std::optional<MaskedReduction> MaskedReductions::of(const Nest& nest, const std::string& reduction, std::string& why) const {
  MaskedReduction result;
  result.whole = nest.statement(reduction);
  if (!stands_alone(nest, result.whole, why) || !inline_between(nest, result.whole, why)) return std::nullopt;
  why = fmt::format("{} meets several of the masked values, or none", reduction);
  const auto ordinal = masked_read(result.whole);
  const std::vector<int> reduced = reduced_dims(result.whole);
  if (!ordinal || reduced.size() != 1) return std::nullopt;
  result.dim = reduced.front();
  why = fmt::format("the number of points of {} that are hidden is none of lengths", reduction);
  if (!find_hidden(nest, *ordinal, result)) return std::nullopt;
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

bool MaskedReductions::inline_between(const Nest& nest, Statement& reduction, std::string& why) const {
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

std::optional<int> MaskedReductions::masked_read(const Statement& reduction) const {
  std::optional<int> found;
  for (std::size_t k = 0; k < reduction.reads.size(); ++k) {
    if (reduction.reads[k].tensor != scores_.write.tensor) continue;
    if (found) return std::nullopt;
    found = static_cast<int>(k);
  }
  return found;
}

/// Where points are hidden, and how many of each row.
bool MaskedReductions::find_hidden(const Nest& nest, int ordinal, MaskedReduction& masked) const {
  masked.hidden = import_value(masked.whole, scores_, producer_relation(masked.whole, ordinal, scores_), mask_.condition());
  const auto hidden = condition_set(nest, masked.whole, masked.hidden);
  const isl::set domain = domain_in(nest, masked.whole);
  const auto row = hidden ? points_of_row(domain.intersect(*hidden), domain, masked.dim) : std::nullopt;
  if (!row) return false;
  masked.points = domain.intersect(*hidden);
  masked.always = domain.is_subset(row->some);
  masked.count = ScalarExpr::index(add_index(masked.whole, row->count));
  return true;
}

void MaskedReductions::take_apart(MaskedReduction& masked, int ordinal) const {
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
bool MaskedReductions::vanishes(const Nest& nest, const MaskedReduction& masked) const {
  const isl::map write = masked.whole.write.relation;
  const isl::set domain = domain_in(nest, masked.whole);
  if (!domain.apply(write).is_subset(domain.subtract(masked.points).apply(write))) return false;
  Nest seen = nest;
  Statement scores = scores_;
  scores.value = mask_.seen();
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
void MaskedReductions::start_maxima_from(Nest& seen, double low) const {
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

}  // namespace nestor
