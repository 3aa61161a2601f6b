// Rule "integer_product": a product of matrices of integers is added up as one of bf16, where its factors are small.
//
// Pattern    r_e = sum over k of a_p b_q in i32, from 0 into a temporary; a and b are values of i32, each follows a dim of the result that the
//            other does not, and both the reduced one, which has a known number of values K.
// Rewrite    a' = |a| <= A ? a : inf in bf16, b' alike with B; P = sum over k of a' b' in f32. Where P is finite, L = P and H = 0. Else the terms
//            themselves are added up in two halves, in f32: H = sum of (a b) >> 16, L = sum of (a b) & 65535. Readers compute
//            r = (i32(H) << 16) + i32(L). Where ranges say that |a| <= A and |b| <= B, readers compute r = i32(P), and there is no more.
//            Where such sums are too long, k = C u + t: P_u = sum over t of a' b', H = sum over u of floor(P_u / 4096), L = sum over u of the
//            rest, and r = (i32(H) << 12) + i32(L).
// Conditions A and B are what ranges say, else the most that leaves A B K <= 2^22, 256 at most and 127 at least; K is 256 at most unless ranges
//            tell both; both sums stand alone in their loops; nobody reads r before it is complete; the points of each side are a box; elements
//            have all K terms. C is the largest power of two, 128 at most and 64 at least, with A B C <= 2^22, and K is 4096 C at most.
// Proof      Integers up to 256 are numbers of bf16. Partial sums of P are integers up to 2^22, which f32 and tensor cores add up exactly. An
//            infinity among a' or b' makes P infinite or NaN, also beside 0, so a finite P has no other factors. H and L are sums of K integers
//            from 0 to 65535, below 2^24: exact as well. 65536 H + L is the sum of a b modulo 2^32, as that of i32 is. Of chunks, H adds up at
//            most 4096 integers up to 2^10, and L as many below 2^12.
// Rounding   none.
// Source     IEEE 754 (integers are exact up to 2^24); M. Fasi et al., Numerical behavior of NVIDIA tensor cores, 2021.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/direct_sums.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "integer_product";
constexpr ElementType kHalf = ElementType::bf16;
constexpr double kExact = 0x1p22;     ///< of partial sums
constexpr double kMostFactor = 256;   ///< that bf16 has exactly
constexpr double kLeastFactor = 127;  ///< integers of 8 bits
constexpr std::int64_t kMostOfChunk = 128, kLeastOfChunk = 64;
constexpr double kMostChunks = 4096;
constexpr double kPart = 4096;      ///< what the high part of a chunk counts
constexpr double kMostTerms = 256;  ///< whose halves of 16 bits f32 adds up exactly

ScalarExpr integer(int value) { return ScalarExpr::constant(value, ElementType::i32); }

/// A side of the product.
struct IntegerFactor {
  std::vector<int> dims;  ///< that it follows, in the order in which its copy has them
  double most = 0;        ///< in magnitude, of those that bf16 shall have
  bool known = false;     ///< ranges say that there are no others
};

struct IntegerProduct {
  int reduced = -1;
  std::array<IntegerFactor, 2> factors;
  std::int64_t chunk = 0;  ///< terms of one sum; 0: all
  bool known() const { return factors[0].known && factors[1].known; }
};

/// The dims that a value follows.
std::set<int> dims_of(const Statement& sum, const ScalarExpr& value) {
  std::set<int> dims;
  for (int dim = 0; dim < static_cast<int>(sum.dims.size()); ++dim) {
    if (varies_along(sum, value, dim)) dims.insert(dim);
  }
  return dims;
}

/// The dims in the order of the tensor's indices where the value is an element with these dims for indices; else in their own.
std::vector<int> memory_order(const Statement& sum, const ScalarExpr& value, const std::set<int>& dims) {
  std::vector<int> order;
  if (value.op() == ScalarOp::read) {
    for (const std::string& name : names_of_indices(sum, sum.reads[static_cast<std::size_t>(value.ordinal())])) {
      const auto found = std::find(sum.dims.begin(), sum.dims.end(), name);
      if (found != sum.dims.end()) order.push_back(static_cast<int>(found - sum.dims.begin()));
    }
  }
  const bool whole = std::set<int>(order.begin(), order.end()) == dims && order.size() == dims.size();
  return whole ? order : std::vector<int>(dims.begin(), dims.end());
}

bool multiplies_integers(const Statement& sum) {
  return sum.reduction == ReductionOp::add && sum.value.op() == ScalarOp::mul && sum.value.type() == ElementType::i32;
}

/// Of two known factors whose sum is too long: the terms that one may have, 0 for too few.
std::int64_t terms_of_chunk(double product, double terms) {
  for (std::int64_t chunk = kMostOfChunk; chunk >= kLeastOfChunk; chunk /= 2) {
    if (product * static_cast<double>(chunk) <= kExact && terms <= kMostChunks * static_cast<double>(chunk)) return chunk;
  }
  return 0;
}

/// Which factors are taken for numbers of bf16, and of how many terms, so that partial sums stay exact. False: too few would be.
bool choose_limits(const Nest& nest, const Statement& sum, double terms, IntegerProduct& found) {
  std::array<IntegerFactor, 2>& factors = found.factors;
  for (std::size_t k = 0; k < factors.size(); ++k) {
    factors[k].most = range_of(nest, sum, sum.value.args()[k]).magnitude();
    factors[k].known = factors[k].most <= kMostFactor;
  }
  auto& [a, b] = factors;
  if (found.known()) {
    const double product = std::max(1.0, a.most) * std::max(1.0, b.most);
    if (product * terms <= kExact) return true;
    found.chunk = terms_of_chunk(product, terms);
    if (found.chunk > 0) return true;
  }
  if (terms > kMostTerms) return false;
  const double both = kExact / terms;
  if (found.known()) a.known = b.known = false;
  if (!a.known && !b.known) a.most = b.most = std::min(kMostFactor, std::floor(std::sqrt(both)));
  for (const auto& [open, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (!open->known && other->known) open->most = std::min(kMostFactor, std::floor(both / std::max(1.0, other->most)));
  }
  return (a.known || a.most >= kLeastFactor) && (b.known || b.most >= kLeastFactor);
}

/// Sets `why` where the rule does not apply.
std::optional<IntegerProduct> product_of(const Nest& nest, const Statement& sum, std::string& why) {
  why = "it adds up no products of two integers that it reads";
  if (!multiplies_integers(sum)) return std::nullopt;
  why = "it does not add up to a temporary of i32 from 0 on, alone in its loops";
  const Tensor& tensor = nest.tensor(sum.write.tensor);
  if (tensor.role != TensorRole::temporary || tensor.type != ElementType::i32 || !starts_from(nest, sum, 0)) return std::nullopt;
  const std::vector<const Statement*> starts = initialisers_of(nest, sum), readers = readers_of(nest, tensor.name);
  if (starts.size() != 1 || writers_of(nest, tensor.name).size() != 2 || !alone_in_group(nest, sum.name) ||
      !alone_in_group(nest, starts.front()->name))
    return std::nullopt;
  why = "its result is read before it is complete, or elements have no terms";
  const auto later = [&](const Statement* reader) { return reader->group > sum.group; };
  if (!std::all_of(readers.begin(), readers.end(), later) || !always_has_points(nest, sum)) return std::nullopt;
  why =
      "its factors are not those of a product of matrices with a known number of terms, up to 256 where ranges do not tell both "
      "factors";
  const std::vector<int> reduced = reduced_dims(sum);
  const std::set<int> first = dims_of(sum, sum.value.args()[0]), second = dims_of(sum, sum.value.args()[1]);
  if (reduced.size() != 1 || !first.contains(reduced.front()) || !second.contains(reduced.front()) ||
      std::includes(second.begin(), second.end(), first.begin(), first.end()) ||
      std::includes(first.begin(), first.end(), second.begin(), second.end()))
    return std::nullopt;
  const auto terms = known_value(nest, extent_of(nest, sum.domain, reduced.front()));
  IntegerProduct found{reduced.front(),
                       {IntegerFactor{memory_order(sum, sum.value.args()[0], first)},
                        IntegerFactor{memory_order(sum, sum.value.args()[1], second)}}};
  if (!terms || !choose_limits(nest, sum, static_cast<double>(*terms), found)) return std::nullopt;
  why = "elements have other terms each, or the points of a side are no box";
  if (!has_all_terms(nest, sum, found.reduced) || !is_box_along(nest, sum, first) || !is_box_along(nest, sum, second))
    return std::nullopt;
  why = "";
  return found;
}

class IntegerRewrite {
 public:
  IntegerRewrite(const Nest& nest, const std::string& name, const IntegerProduct& found)
      : result_(nest), sum_(nest.statement(name)), found_(found), results_(sum_, other_dims(sum_, {found.reduced})) {}

  Nest run() {
    const Statement start = *initialisers_of(result_, sum_).front();
    erase_statement(result_, start.name);
    const std::string left = factor(0), right = factor(1);
    if (found_.chunk > 0) {
      const auto [high, low] = sums_of_chunks(left, right);
      replace_by_value({high, low}, std::countr_zero(static_cast<unsigned>(kPart)));
      return std::move(result_);
    }
    const std::string product = add_tensor("_product");
    insert(begin(product, build::number(0)));
    insert(product_sum(left, right, product));
    replace_by_value(found_.known() ? std::vector<std::string>{product} : halves(product), 16);
    return std::move(result_);
  }

 private:
  void insert(const Statement& statement) { insert_statement(result_, group_begin(result_, sum_.name), statement); }
  std::string add_tensor(const std::string& suffix) { return add_results(result_, sum_, results_, suffix); }

  Statement begin(const std::string& tensor, const ScalarExpr& value) const {
    Statement begin = over_results(result_, results_, tensor + "_init", tensor);
    begin.value = value;
    return begin;
  }

  /// The high and the low parts of all chunks' sums.
  std::pair<std::string, std::string> sums_of_chunks(const std::string& left, const std::string& right) {
    const ChunkedDim chunked{found_.reduced, found_.chunk};
    const Statement points = in_chunks(result_, sum_, chunked, fresh_name(result_, sum_.write.tensor + "_product_sum"));
    const DimsView chunks(points, other_dims(points, {static_cast<int>(points.dims.size()) - 1}));
    const std::string product = add_results(result_, sum_, chunks, "_product");
    Statement start = over_results(result_, chunks, product + "_init", product);
    start.value = build::number(0);
    insert(start);
    Statement terms = product_sum(left, right, product);
    for (Access& read : terms.reads)
      read.relation =
          seen_in_chunks(result_, points, sum_, chunked, read.relation.set_domain_tuple(sum_.name)).set_domain_tuple(points.name);
    terms.name = points.name;
    terms.dims = points.dims;
    terms.domain = points.domain;
    terms.write = {product, chunks.element(product).set_domain_tuple(points.name)};
    insert(terms);
    const auto add_up = [&](const std::string& suffix, const auto& value_of) {
      const std::string tensor = add_tensor(suffix);
      insert(begin(tensor, build::number(0)));
      Statement sum = chunks.over(fresh_name(result_, tensor + "_sum"));
      sum.value = value_of(read_at(sum, product, isl::manage(isl_set_identity(sum.domain.copy()))));
      sum.reduction = ReductionOp::add;
      const DimsView elements(sum, other_dims(sum, {static_cast<int>(sum.dims.size()) - 1}));
      sum.write = {tensor, elements.element(tensor).set_domain_tuple(sum.name)};
      insert(sum);
      return tensor;
    };
    const auto parts_of = [](const ScalarExpr& whole) {
      return build::unary(ScalarOp::floor, build::mul(whole, build::number(1 / kPart)));
    };
    const std::string high = add_up("_high", parts_of);
    return {high, add_up("_low", [&](const ScalarExpr& whole) {
              return build::sub(whole, build::mul(parts_of(whole), build::number(kPart)));
            })};
  }

  /// The sum's two halves.
  std::vector<std::string> halves(const std::string& product) {
    const std::string high = add_tensor("_high"), low = add_tensor("_low");
    for (const std::string& half : {high, low}) {
      insert(begin_beside(product, half, half == high));
      insert(direct(product, half, half == high));
    }
    return {high, low};
  }

  /// What the halves of terms are added to: the product, where it is a number, in the low one.
  Statement begin_beside(const std::string& product, const std::string& half, bool high) const {
    Statement result = begin(half, {});
    const ScalarExpr seen = read_at(result, product, result.write.relation);
    result.value = build::select(is_finite(seen), high ? build::sub(seen, seen) : seen, build::number(0));
    return result;
  }

  /// A factor in bf16, or an infinity where it is large.
  std::string factor(std::size_t side) {
    const IntegerFactor& found = found_.factors[side];
    const DimsView view(sum_, found.dims);
    Tensor tensor = view.tensor(result_, fresh_name(result_, sum_.write.tensor + (side == 0 ? "_left" : "_right")));
    tensor.type = kHalf;
    result_.tensors.push_back(tensor);
    Statement values = view.over(tensor.name);
    const ScalarExpr number = build::as_f32(import_value(values, sum_, view.to_statement(values), sum_.value.args()[side]));
    const ScalarExpr infinite = build::number(std::numeric_limits<double>::infinity());
    values.value = ScalarExpr::cast(kHalf, found.known ? number : build::select(at_most(number, found.most), number, infinite));
    values.write = {tensor.name, isl::manage(isl_set_identity(values.domain.copy())).set_range_tuple(tensor.name)};
    insert(values);
    return tensor.name;
  }

  Statement product_sum(const std::string& left, const std::string& right, const std::string& product) const {
    Statement result = renamed(sum_, fresh_name(result_, product + "_sum"));
    const auto element = [&](const std::string& tensor, std::size_t side) {
      return Access{tensor, DimsView(sum_, found_.factors[side].dims).element(tensor).set_domain_tuple(result.name)};
    };
    result.reads = {element(left, 0), element(right, 1)};
    result.indices.clear();
    result.write = {product, results_.element(product).set_domain_tuple(result.name)};
    result.value = build::mul(build::as_f32(ScalarExpr::read(0, kHalf)), build::as_f32(ScalarExpr::read(1, kHalf)));
    return result;
  }

  /// The sum of all terms' halves, where the product has no number.
  Statement direct(const std::string& product, const std::string& half, bool high) const {
    Statement result = sum_;
    const ScalarExpr seen = read_at(result, product, results_.element(product));
    const ScalarExpr bits = integer(high ? 16 : 65535);
    const ScalarExpr part = ScalarExpr::make(high ? ScalarOp::shift_right_logical : ScalarOp::bit_and, {sum_.value, bits});
    result.value = build::select(is_finite(seen), build::number(0), build::as_f32(part));
    result = renamed(result, fresh_name(result_, half + "_sum"));
    result.write = {half, results_.element(half).set_domain_tuple(result.name)};
    return result;
  }

  /// Readers compute the integer, of the sum or of its high part, which counts 2^bits, and its low one.
  void replace_by_value(const std::vector<std::string>& sums, int bits) {
    Statement value = results_.over(sum_.name);
    value.group = result_.statement(sum_.name).group;
    value.write = {sum_.write.tensor, results_.seen_by(value, sum_.write.relation)};
    const isl::map place = isl::manage(isl_set_identity(value.domain.copy()));
    for (const std::string& sum : sums) {
      const ScalarExpr whole = ScalarExpr::cast(ElementType::i32, read_at(value, sum, place));
      value.value =
          value.value.defined() ? build::add(ScalarExpr::make(ScalarOp::shift_left, {value.value, integer(bits)}), whole) : whole;
    }
    replace_statement(result_, value);
    const Nest defined = result_;
    const std::string& tensor = sum_.write.tensor;
    for (Statement& reader : result_.statements) {
      const auto reads_it = [&](const Access& read) { return read.tensor == tensor; };
      for (auto read = std::find_if(reader.reads.begin(), reader.reads.end(), reads_it); read != reader.reads.end();
           read = std::find_if(reader.reads.begin(), reader.reads.end(), reads_it))
        inline_read(defined, reader, static_cast<int>(read - reader.reads.begin()));
      if (sums.size() == 1) use_as_number(reader, sums.front());
    }
    drop_unused(result_);
  }

  /// The sum is an integer already where its f32 is asked for.
  static void use_as_number(Statement& reader, const std::string& sum) {
    reader.value = reader.value.rewrite([&](const ScalarExpr& node) {
      const bool back = node.op() == ScalarOp::cast && node.type() == ElementType::f32 && node.args()[0].op() == ScalarOp::cast &&
                        node.args()[0].type() == ElementType::i32;
      return back && plain_read_of(reader, node.args()[0].args()[0], sum) ? node.args()[0].args()[0] : node;
    });
  }

  Nest result_;
  const Statement sum_;
  const IntegerProduct found_;
  const DimsView results_;
};

std::vector<RuleMatch> find(const Nest& nest) {
  std::string why;
  return matching_statements(nest, kName, [&](const Statement& statement) {
    return product_of(nest, statement, why) ? statement.name + " adds up products of integers, which may be small" : "";
  });
}

RuleResult apply(const Nest& nest, const std::vector<std::string>& target) {
  const IntegerProduct found = required_match(nest, kName, target, product_of);
  return {IntegerRewrite(nest, target[0], found).run(), {}, false};
}

}  // namespace

const Rule& integer_product_rule() {
  static const Rule rule{kName,
                         "products of small integers are added up in floating point, exactly (argument: statement)",
                         "sums of integers below 2^22 are exact in f32; where a factor is larger, the terms' halves are added up",
                         "none",
                         find,
                         apply};
  return rule;
}

}  // namespace nestor
