// Rule "repeat_elements": an operand of a product of matrices that is read along a quotient is copied with its elements repeated.
//
// Pattern    r_e += a_(.., floor(p / c), ..) b_q, a sum of products of two 16-bit tensors, with a an input, p a sum of dims of the statement and a
//            constant, and c a number (a convolution of an image that is made larger, neighbours for new places). p mod c is not always 0.
// Rewrite    a'_(.., p, ..) = a_(.., floor(p / c), ..) for 0 <= p < c n, where a has n places; r_e += a'_(.., p, ..) b_q. So are all such indices.
// Conditions the sum is alone in its loops.
// Proof      a'_p is the element that the sum reads at p: what it reads lies within a, so that 0 <= p < c n.
// Rounding   none: elements are copied.
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/val.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "repeat_elements";

/// An index that is floor(place / factor).
struct Quotient {
  isl::pw_aff place;
  std::int64_t factor = 1;
};

struct Operand {
  std::size_t read = 0;
  std::map<std::size_t, Quotient> quotients;  ///< by index
};

/// The quotients that the function is made of.
std::vector<int> quotients_in(isl_aff* function) {
  std::vector<int> used;
  for (int d = 0; d < isl_aff_dim(function, isl_dim_div); ++d) {
    const isl::val factor = isl::manage(isl_aff_get_coefficient_val(function, isl_dim_div, d));
    if (isl_val_is_zero(factor.get()) != isl_bool_true) used.push_back(d);
  }
  return used;
}

/// Is the function a sum of different dims, and a constant, without quotients?
bool is_sum_of_dims(isl_aff* function) {
  bool plain = quotients_in(function).empty(), any = false;
  for (int d = 0; d < isl_aff_dim(function, isl_dim_in); ++d) {
    const isl::val factor = isl::manage(isl_aff_get_coefficient_val(function, isl_dim_in, d));
    const bool one = isl_val_is_one(factor.get()) == isl_bool_true;
    plain = plain && (one || isl_val_is_zero(factor.get()) == isl_bool_true);
    any = any || one;
  }
  return plain && any;
}

/// The index as such a quotient; nullopt: it is something else.
std::optional<Quotient> quotient_of(const Nest& nest, const Statement& statement, const isl::pw_aff& index) {
  // Where it is not defined does not matter.
  const isl::pw_aff everywhere = isl::manage(isl_pw_aff_gist(index.copy(), isl_pw_aff_domain(index.copy())));
  if (isl_pw_aff_isa_aff(everywhere.get()) != isl_bool_true) return std::nullopt;
  const isl::aff whole = isl::manage(isl_pw_aff_as_aff(everywhere.copy()));
  const std::vector<int> used = quotients_in(whole.get());
  if (used.size() != 1) return std::nullopt;
  const isl::aff part = isl::manage(isl_aff_get_div(whole.get(), used.front()));  // p / c, but for whole numbers
  const isl::val factor = isl::manage(isl_aff_get_denominator_val(part.get()));
  const isl::aff rest = isl::manage(isl_aff_sub(whole.copy(), isl_aff_floor(part.copy())));
  const isl::aff place = isl::manage(isl_aff_scale_val(isl_aff_add(part.copy(), rest.copy()), factor.copy()));
  if (isl_aff_is_cst(rest.get()) != isl_bool_true || !is_sum_of_dims(place.get())) return std::nullopt;
  const Quotient found{isl::manage(isl_pw_aff_from_aff(place.copy())), isl_val_get_num_si(factor.get())};
  // Where all places are multiples of the factor, elements are not repeated.
  const isl::pw_aff remainder = isl::manage(isl_pw_aff_mod_val(found.place.copy(), factor.copy()));
  const isl::set others = isl::manage(isl_pw_aff_non_zero_set(remainder.copy()));
  const bool repeats = found.factor > 1 && !domain_in(nest, statement).intersect(others).is_empty();
  return repeats ? std::optional(found) : std::nullopt;
}

/// Sets `why` where there is none.
std::optional<Operand> operand_of(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it is no sum of products of two 16-bit tensors in loops of its own";
  const auto halves = half_products(sum);
  if (!halves || !alone_in_group(nest, sum.name)) return std::nullopt;
  why = "it reads no input along a quotient of a sum of dims";
  for (const std::size_t read : {halves->first, halves->second}) {
    if (nest.tensor(sum.reads[read].tensor).role != TensorRole::input) continue;
    Operand operand{read, {}};
    const std::vector<isl::pw_aff> indices = functions_of(sum.reads[read].relation);
    for (std::size_t k = 0; k < indices.size(); ++k) {
      if (auto quotient = quotient_of(nest, sum, indices[k])) operand.quotients.emplace(k, std::move(*quotient));
    }
    if (!operand.quotients.empty()) return operand;
  }
  return std::nullopt;
}

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    const auto operand = operand_of(nest, statement, why);
    return operand ? "elements of " + statement.reads[operand->read].tensor + " are repeated in a copy" : "";
  });
}

isl::val number_like(const isl::pw_aff& function, std::int64_t value) {
  return isl::manage(isl_val_int_from_si(isl_pw_aff_get_ctx(function.get()), static_cast<long>(value)));
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const Operand operand = required_match(nest, kName, target, operand_of);
  Statement sum = nest.statement(target[0]);
  const Access read = sum.reads[operand.read];
  Nest result = nest;
  Tensor large = nest.tensor(read.tensor);
  large.name = fresh_name(nest, read.tensor + "_repeated");
  large.role = TensorRole::temporary;
  large.tolerance.reset();
  for (const auto& [k, quotient] : operand.quotients) {
    isl::pw_aff& extent = large.shape[k];
    extent = isl::manage(isl_pw_aff_scale_val(extent.copy(), number_like(extent, quotient.factor).release()));
  }
  Statement copy = copy_statement(nest, large, sum, read, large.name);
  std::vector<isl::pw_aff> from = functions_of(copy.reads[0].relation), places = functions_of(read.relation);
  for (const auto& [k, quotient] : operand.quotients) {
    const isl::val factor = number_like(from[k], quotient.factor);
    from[k] = isl::manage(isl_pw_aff_floor(isl_pw_aff_scale_down_val(from[k].copy(), factor.copy())));
    places[k] = quotient.place;
  }
  copy.reads = {{read.tensor, relation_of(copy.domain, read.tensor, from)}};
  result.tensors.push_back(large);
  insert_statement(result, begin_with_initialisers(result, sum), copy);
  sum.reads[operand.read] = {large.name, relation_of(sum.domain, large.name, places)};
  sum.group = result.statement(sum.name).group;
  replace_statement(result, sum);
  return {std::move(result), {}, false};
}

}  // namespace

const Rule& repeat_elements_rule() {
  static const Rule rule{
      kName,
      "an operand of a product that is read along a quotient is copied, with its elements repeated (argument: statement)",
      "the copy has at each place the element that the sum reads there",
      "none",
      find,
      apply};
  return rule;
}

}  // namespace nestor
