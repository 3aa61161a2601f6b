// Rule "factor_exponential": exponentials of sums become products of exponentials, where both factors and their sum have room.
//
// Pattern    r_e = sum over j of exp(a + b) g in f32, or exp2: a follows a dim of the result that b does not, and b one that a does not; both may be
//            differences. Factors g follow the dims of one side. Among what is read are inputs of 16 bits.
// Rewrite    x = a <= 20 ? exp(a) g : inf, also inf where |g| is large, and y of b alike; P = sum over j of x y; v = P where |P| >= 2^-46, else
//            inf. r is v where that is finite, else the direct sum. x and y are two bf16 numbers each, rounded and what is left: P adds up
//            x1 y1 + x1 y2 + x2 y1 along one dim, as one product of matrices. Sums with the same x share it.
// Conditions the sum starts from 0 into a temporary of f32; start and sum are alone in their loops, and nobody reads it before it is complete;
//            every element has the same terms, j from 0 on, and each side's dims have all their values together. Each side adds up two values
//            at most, and has one factor.
// Proof      exp(a + b) = exp(a) exp(b). A finite P has finite x and y: an infinity among them makes every sum it is in infinite or NaN, also
//            beside 0. Else r is the sum of the definition. -inf in a or b is a 0 in x or y, as in exp(a + b).
// Rounding   x1 + x2 is off by 2^-16 x, y alike, and x2 y2 is left out: 3 2^-16 of the sum of |terms|. Let M be 2^16 where one side has factors, and
//            2^8 where both have. x and y are below 2^29 M each with factors, and off by 2^-125 M more where they underflow. So a term is off by
//            2^-79 more at most, all by n 2^-33 of a P that counts: rows that lose their terms to underflow take the direct sum.
//            a and b are sums of at most two values, off by 2^-24 of themselves, as a + b is.
// Source     exponential laws; for the two halves, e.g. G. Henry et al., Leveraging the bfloat16 Artificial Intelligence Datatype, 2019.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/direct_sums.h"
#include "poly/algebra/values/exponential_sides.h"
#include "poly/algebra/values/factor_chain.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "factor_exponential";
/// What each exponent may be, of base e and of base 2.
constexpr double kMostExponent = 20, kMostExponent2 = 28;
/// What factors of one side may be, where the other has none and where it has.
constexpr double kMostFactor = 0x1p16, kMostFactors = 0x1p8;
/// Where terms that underflow no longer matter.
constexpr double kLeast = 0x1p-46;
constexpr ElementType kHalf = ElementType::bf16;
constexpr int kHalves = 3;  ///< products of halves in the sum

/// The box around points whose dims are `dims` of the sum's: of products for all of them, where results are a triangle.
isl::set box_around(const Nest& nest, const Statement& sum, const isl::set& points, const std::vector<int>& dims) {
  std::vector<int> all;
  for (int k = 0; k < static_cast<int>(dims.size()); ++k) all.push_back(k);
  isl::set box = without_dims(points, all);
  for (const int k : all) box = below(box, k, extent_of(nest, sum.domain, dims[static_cast<std::size_t>(k)]));
  return box;
}

/// Sets `why` where the rule does not apply.
std::optional<Exponential> exponential_of(const Nest& nest, const Statement& sum, std::string& why) {
  why =
      "it adds up no exponentials of a sum of two values of which each follows a dim of the result that the other does not, in "
      "f32";
  auto found = exponential_of_sides(sum);
  if (!found) return std::nullopt;
  why = "it reads no input of 16 bits, beside which kernels may round products";
  const bool halves = std::any_of(sum.reads.begin(), sum.reads.end(), [&](const Access& read) {
    const Tensor& tensor = nest.tensor(read.tensor);
    return tensor.role == TensorRole::input && size_in_bytes(tensor.type) == 2;
  });
  if (!halves) return std::nullopt;
  why = "it does not add up to a temporary of f32 from 0 on";
  const Tensor& tensor = nest.tensor(sum.write.tensor);
  if (tensor.role != TensorRole::temporary || tensor.type != ElementType::f32 || !starts_from(nest, sum, 0)) return std::nullopt;
  why = "it shares its loops or its result with other statements";
  const std::vector<const Statement*> starts = initialisers_of(nest, sum), readers = readers_of(nest, tensor.name);
  if (starts.size() != 1 || writers_of(nest, tensor.name).size() != 2 || !alone_in_group(nest, sum.name) ||
      !alone_in_group(nest, starts.front()->name))
    return std::nullopt;
  why = "its result is read before it is complete, or elements have no terms";
  const auto later = [&](const Statement* reader) { return reader->group > sum.group; };
  if (!std::all_of(readers.begin(), readers.end(), later) || !always_has_points(nest, sum)) return std::nullopt;
  why = "elements have other terms each";
  if (!has_all_terms(nest, sum, found->reduced) || !is_box_along(nest, sum, found->left.dims) ||
      !is_box_along(nest, sum, found->right.dims))
    return std::nullopt;
  why = "";
  return found;
}

/// The side's dims as the memory has them where one access follows all, else in their order.
std::vector<int> memory_order(const Statement& sum, const ExponentialSide& side) {
  std::vector<int> order;
  side.exponent.visit([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::read || !order.empty()) return;
    std::vector<int> dims;
    for (const std::string& name : names_of_indices(sum, sum.reads[static_cast<std::size_t>(node.ordinal())]))
      dims.push_back(static_cast<int>(std::find(sum.dims.begin(), sum.dims.end(), name) - sum.dims.begin()));
    if (std::set<int>(dims.begin(), dims.end()) == side.dims && dims.size() == side.dims.size()) order = dims;
  });
  if (!order.empty()) return order;
  return {side.dims.begin(), side.dims.end()};
}

/// Do both write the same values to an element for each of their points?
bool same_values(const Statement& a, const Statement& b) {
  const Statement other = renamed(b, a.name);
  const isl::map place = other.write.relation.set_range_tuple(a.write.tensor);
  return a.value.equals(other.value) && a.reads.size() == other.reads.size() && a.indices.empty() && other.indices.empty() &&
         !a.reduction && a.domain.is_equal(other.domain) &&
         a.write.relation.intersect_domain(a.domain).is_equal(place.intersect_domain(other.domain)) &&
         std::equal(a.reads.begin(), a.reads.end(), other.reads.begin(),
                    [](const Access& x, const Access& y) { return x.tensor == y.tensor && x.relation.is_equal(y.relation); });
}

class Factorization {
 public:
  explicit Factorization(const Nest& nest) : result_(nest) {}

  Nest factor(const std::string& name, const Exponential& found) {
    const Statement sum = result_.statement(name), start = *initialisers_of(result_, sum).front();
    erase_statement(result_, start.name);
    std::vector<int> dims;
    for (int d = 0; d < static_cast<int>(sum.dims.size()); ++d) {
      if (d != found.reduced) dims.push_back(d);
    }
    const DimsView results(sum, dims);
    const bool both = found.left.factor && found.right.factor;
    const std::string left = halves_of(sum, found, true, both), right = halves_of(sum, found, false, both);
    const std::string product = add_results(result_, sum, results, "_product"),
                      value = add_results(result_, sum, results, "_valued");
    Statement begin = over_results(result_, results, product + "_init", product);
    begin.domain = gist_sizes(box_around(result_, sum, begin.domain, dims));
    begin.write.relation = isl::manage(isl_set_identity(begin.domain.copy())).set_range_tuple(product);
    begin.value = build::number(0);
    insert(sum, begin);
    insert(sum, product_of(sum, found, {left, right}, product));
    Statement valued = over_results(result_, results, value, value);
    const ScalarExpr seen = read_at(valued, product, valued.write.relation);
    const ScalarExpr counts = ScalarExpr::make(ScalarOp::le, {build::number(kLeast), build::unary(ScalarOp::abs, seen)});
    valued.value = build::select(counts, seen, build::number(std::numeric_limits<double>::infinity()));
    insert(sum, valued);
    const std::string kept = add_direct_sums(result_, sum, results, value);
    Statement copy = results.over(sum.name);
    copy.write = {sum.write.tensor, results.seen_by(copy, sum.write.relation)};
    copy.value = read_at(copy, kept, isl::manage(isl_set_identity(copy.domain.copy())));
    copy.group = result_.statement(sum.name).group;
    replace_statement(result_, copy);
    return std::move(result_);
  }

 private:
  isl::set gist_sizes(const isl::set& points) const {
    return isl::manage(isl_set_gist_params(points.coalesce().release(), full_context(result_).release()));
  }

  void insert(const Statement& sum, const Statement& statement) {
    insert_statement(result_, group_begin(result_, sum.name), statement);
  }

  /// exp(a) g where a and g are small enough, else an infinity or NaN.
  ScalarExpr value_of(const Statement& sum, const Exponential& found, const ExponentialSide& side, bool both) const {
    const ScalarExpr infinite = build::number(std::numeric_limits<double>::infinity());
    ScalarExpr value = build::unary(found.op, side.exponent);
    if (side.factor) {
      const double most = both ? kMostFactors : kMostFactor;
      value = build::mul(value, *side.factor);
      if (range_of(result_, sum, *side.factor).magnitude() > most)
        value = build::select(at_most(*side.factor, most), value, infinite);
    }
    const double most = found.op == ScalarOp::exp ? kMostExponent : kMostExponent2;
    return build::select(ScalarExpr::make(ScalarOp::le, {side.exponent, build::number(most)}), value, infinite);
  }

  /// { View[dims] -> tensor[dims] }, `part` extents of the reduced dim further on.
  isl::map half_place(const Statement& view, const std::string& tensor, std::size_t reduced, const isl::pw_aff& extent,
                      int part) const {
    std::vector<isl::pw_aff> at;
    for (std::size_t k = 0; k < view.dims.size(); ++k) at.push_back(dim_function(view.domain, static_cast<int>(k)));
    for (int k = 0; k < part; ++k) at[reduced] = at[reduced].add(over_params(extent).insert_domain(view.domain.space()));
    return relation_of(view.domain, tensor, at);
  }

  /// The tensor with the halves of a side.
  std::string halves_of(const Statement& sum, const Exponential& found, bool left, bool both) {
    const ExponentialSide& side = left ? found.left : found.right;
    const std::vector<int> order = memory_order(sum, side);
    const DimsView view(sum, order);
    Tensor halves = view.tensor(result_, fresh_name(result_, sum.write.tensor + (left ? "_left" : "_right")));
    const auto reduced = static_cast<std::size_t>(std::find(order.begin(), order.end(), found.reduced) - order.begin());
    const isl::pw_aff extent = halves.shape[reduced];
    for (int k = 1; k < kHalves; ++k) halves.shape[reduced] = halves.shape[reduced].add(extent);
    halves.type = kHalf;
    std::vector<Statement> parts;
    for (int part = 0; part < kHalves; ++part) {
      Statement half = view.over(fresh_name(result_, halves.name + "_" + std::to_string(part + 1)));
      const ScalarExpr whole = import_value(half, sum, view.to_statement(half), value_of(sum, found, side, both)),
                       first = ScalarExpr::cast(kHalf, whole);
      const bool rest = part == (left ? 2 : 1);
      half.value = rest ? ScalarExpr::cast(kHalf, build::sub(whole, ScalarExpr::cast(ElementType::f32, first))) : first;
      half.write = {halves.name, half_place(half, halves.name, reduced, extent, part)};
      parts.push_back(std::move(half));
    }
    if (const std::string known = tensor_of(parts, sum); !known.empty()) return known;
    result_.tensors.push_back(halves);
    for (const Statement& part : parts) insert(sum, part);
    return halves.name;
  }

  /// The tensor that such statements have written before the sum, for another one, and nothing has changed since; empty: there is none.
  std::string tensor_of(const std::vector<Statement>& parts, const Statement& sum) const {
    const std::size_t place = position_of(result_, sum.name);
    const auto same = [&](const Statement* made, const Statement& part) {
      return position_of(result_, made->name) < place && same_values(*made, part) && is_unchanged(*made);
    };
    for (const Tensor& tensor : result_.tensors) {
      const std::vector<const Statement*> writers = writers_of(result_, tensor.name);
      if (tensor.type == kHalf && std::equal(writers.begin(), writers.end(), parts.begin(), parts.end(), same))
        return tensor.name;
    }
    return "";
  }

  /// Does nothing after the statement write what it reads?
  bool is_unchanged(const Statement& values) const {
    const std::size_t from = position_of(result_, values.name);
    return std::all_of(values.reads.begin(), values.reads.end(), [&](const Access& read) {
      const auto writers = writers_of(result_, read.tensor);
      return std::all_of(writers.begin(), writers.end(),
                         [&](const Statement* writer) { return position_of(result_, writer->name) < from; });
    });
  }

  /// The sum of products of halves, over all of them.
  Statement product_of(const Statement& sum, const Exponential& found, const std::pair<std::string, std::string>& operands,
                       const std::string& product) const {
    Statement result;
    result.name = fresh_name(result_, product + "_sum");
    result.dims = sum.dims;
    const auto reduced = static_cast<std::size_t>(found.reduced);
    result.dims[reduced] = fresh_dim(result_, sum.dims, sum.dims[reduced] + "_half");
    const std::vector<int> left = memory_order(sum, found.left), right = memory_order(sum, found.right);
    const auto place = std::find(left.begin(), left.end(), found.reduced) - left.begin();
    const isl::pw_aff terms = result_.tensor(operands.first).shape[static_cast<std::size_t>(place)];
    std::vector<int> dims;
    for (int d = 0; d < static_cast<int>(sum.dims.size()); ++d) dims.push_back(d);
    const isl::set box = box_around(result_, sum, domain_in(result_, sum), dims);
    isl_set* domain = gist_sizes(below(without_dims(box, {found.reduced}), found.reduced, terms)).release();
    domain = isl_set_set_tuple_name(domain, result.name.c_str());
    result.domain = isl::manage(with_dim_names(domain, result.dims));
    const auto access = [&](const std::string& tensor, const std::vector<int>& dims) {
      std::vector<isl::pw_aff> at;
      for (const int dim : dims) at.push_back(dim_function(result.domain, dim));
      return relation_of(result.domain, tensor, at);
    };
    std::vector<int> results;
    for (int d = 0; d < static_cast<int>(sum.dims.size()); ++d) {
      if (d != found.reduced) results.push_back(d);
    }
    result.write = {product, access(product, results)};
    result.reads = {{operands.first, access(operands.first, left)}, {operands.second, access(operands.second, right)}};
    result.value = build::mul(build::as_f32(ScalarExpr::read(0, kHalf)), build::as_f32(ScalarExpr::read(1, kHalf)));
    result.reduction = ReductionOp::add;
    return result;
  }

  Nest result_;
};

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return exponential_of(nest, statement, why) ? statement.name + " adds up products of exponentials" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const auto found = required_match(nest, kName, target, exponential_of);
  return {Factorization(nest).factor(target[0], found), {}, false};
}

}  // namespace

const Rule& factor_exponential_rule() {
  static const Rule rule{
      kName,
      "exponentials of sums become products, where both have room (argument: statement)",
      "exp(a + b) = exp(a) exp(b), where the sum of such products is finite and not tiny; else the direct sum is taken",
      "3 2^-16 of the sum of |terms|",
      find,
      apply};
  return rule;
}

}  // namespace nestor
