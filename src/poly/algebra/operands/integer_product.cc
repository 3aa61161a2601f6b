// Rule "integer_product": a product of matrices of integers is added up as one of bf16, where its factors are small.
//
// Pattern    r_e = sum over k of a_p b_q in i32, from 0 into a temporary; a and b are read from tensors of i32, each follows a dim of the result
//            that the other does not, and both the reduced one, which has a known number of values K.
// Rewrite    a' = |a| <= M ? a : inf in bf16, b' alike; P = sum over k of a' b' in f32. Where P is finite, L = P and H = 0. Else the terms
//            themselves are added up in two halves, in f32: H = sum of (a b) >> 16, L = sum of (a b) & 65535. Readers compute
//            r = (i32(H) << 16) + i32(L).
// Conditions M = min(256, sqrt(2^22 / K)) is 127 at least, and K at most 256; both sums stand alone in their loops; nobody reads r before it is
//            complete; the points of each side are a box.
// Proof      Integers up to 256 are numbers of bf16. Partial sums of P are integers below 2^22, which f32 and tensor cores add up exactly. An
//            infinity among a' or b' makes P infinite or NaN, also beside 0, so a finite P has no other factors. H and L are sums of K integers
//            from 0 to 65535, below 2^24: exact as well. 65536 H + L is the sum of a b modulo 2^32, as that of i32 is.
// Rounding   none.
// Source     IEEE 754 (integers are exact up to 2^24); M. Fasi et al., Numerical behavior of NVIDIA tensor cores, 2021.
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/operands/whole_dims.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/dims_view.h"
#include "poly/algebra/values/direct_sums.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

namespace nestor {
namespace {

constexpr const char* kName = "integer_product";
constexpr ElementType kHalf = ElementType::bf16;
constexpr double kExact = 0x1p22;         ///< of partial sums
constexpr double kMostFactor = 256;       ///< that bf16 has exactly
constexpr double kLeastFactor = 127;      ///< integers of 8 bits
constexpr std::int64_t kMostTerms = 256;  ///< whose halves of 16 bits f32 adds up exactly

ScalarExpr integer(int value) { return ScalarExpr::constant(value, ElementType::i32); }

struct IntegerProduct {
  int reduced = -1;
  double most = 0;  ///< of factors in bf16
};

/// The dims that a read follows.
std::set<int> dims_of(const Statement& sum, std::size_t read) {
  std::set<int> dims;
  for (int dim = 0; dim < static_cast<int>(sum.dims.size()); ++dim) {
    if (depends_on_dim(sum.reads[read].relation, dim)) dims.insert(dim);
  }
  return dims;
}

bool multiplies_integers(const Statement& sum) {
  const ScalarExpr& value = sum.value;
  const auto is_read = [&](std::size_t k) {
    return value.args()[k].op() == ScalarOp::read && value.args()[k].type() == ElementType::i32;
  };
  return sum.reduction == ReductionOp::add && value.op() == ScalarOp::mul && value.type() == ElementType::i32 && is_read(0) &&
         is_read(1) && value.args()[0].ordinal() != value.args()[1].ordinal() && sum.reads.size() == 2;
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
  why = "its factors are not those of a product of matrices with a known number of terms, up to 256";
  const std::vector<int> reduced = reduced_dims(sum);
  if (reduced.size() != 1 || !follows_own_dim(sum, 0, 1) || !follows_own_dim(sum, 1, 0)) return std::nullopt;
  const std::set<int> first = dims_of(sum, 0), second = dims_of(sum, 1);
  const auto terms = known_value(nest, extent_of(nest, sum.domain, reduced.front()));
  if (!first.contains(reduced.front()) || !second.contains(reduced.front()) || !terms || *terms > kMostTerms) return std::nullopt;
  const double most = std::min(kMostFactor, std::floor(std::sqrt(kExact / static_cast<double>(*terms))));
  why = "elements have other terms each, or the points of a side are no box";
  std::set<int> all = first;
  all.insert(second.begin(), second.end());
  if (most < kLeastFactor || !is_box_along(nest, sum, all)) return std::nullopt;
  why = "";
  return IntegerProduct{reduced.front(), most};
}

/// The dims in the order of the tensor's indices where these are the dims; else in their own.
std::vector<int> memory_order(const Statement& sum, std::size_t read) {
  const std::set<int> dims = dims_of(sum, read);
  std::vector<int> order;
  for (const std::string& name : names_of_indices(sum, sum.reads[read])) {
    const auto found = std::find(sum.dims.begin(), sum.dims.end(), name);
    if (found != sum.dims.end()) order.push_back(static_cast<int>(found - sum.dims.begin()));
  }
  const bool whole = std::set<int>(order.begin(), order.end()) == dims && order.size() == dims.size();
  return whole ? order : std::vector<int>(dims.begin(), dims.end());
}

class IntegerRewrite {
 public:
  IntegerRewrite(const Nest& nest, const std::string& name, const IntegerProduct& found)
      : result_(nest), sum_(nest.statement(name)), found_(found), results_(sum_, dims_of_results()) {}

  Nest run() {
    const Statement start = *initialisers_of(result_, sum_).front();
    erase_statement(result_, start.name);
    const std::string left = factor(0), right = factor(1);
    const std::string product = add_tensor("_product");
    insert(begin(product, build::number(0)));
    insert(product_sum(left, right, product));
    const std::string high = add_tensor("_high"), low = add_tensor("_low");
    for (const std::string& half : {high, low}) {
      insert(begin_beside(product, half, half == high));
      insert(direct(product, half, half == high));
    }
    replace_by_value(high, low);
    return std::move(result_);
  }

 private:
  std::vector<int> dims_of_results() const {
    std::vector<int> dims;
    for (int d = 0; d < static_cast<int>(sum_.dims.size()); ++d) {
      if (d != found_.reduced) dims.push_back(d);
    }
    return dims;
  }

  void insert(const Statement& statement) { insert_statement(result_, group_begin(result_, sum_.name), statement); }
  std::string add_tensor(const std::string& suffix) { return add_results(result_, sum_, results_, suffix); }

  Statement begin(const std::string& tensor, const ScalarExpr& value) const {
    Statement begin = over_results(result_, results_, tensor + "_init", tensor);
    begin.value = value;
    return begin;
  }

  /// What the halves of terms are added to: the product, where it is a number, in the low one.
  Statement begin_beside(const std::string& product, const std::string& half, bool high) const {
    Statement result = begin(half, {});
    const ScalarExpr seen = read_at(result, product, result.write.relation);
    result.value = build::select(is_finite(seen), high ? build::sub(seen, seen) : seen, build::number(0));
    return result;
  }

  /// A factor in bf16, or an infinity where it is large.
  std::string factor(std::size_t read) {
    const DimsView view(sum_, memory_order(sum_, read));
    Tensor tensor = view.tensor(result_, fresh_name(result_, sum_.write.tensor + (read == 0 ? "_left" : "_right")));
    tensor.type = kHalf;
    result_.tensors.push_back(tensor);
    Statement values = view.over(tensor.name);
    const ScalarExpr whole = import_value(values, sum_, view.to_statement(values), sum_.value.args()[value_of(read)]);
    const ScalarExpr number = build::as_f32(whole);
    values.value = ScalarExpr::cast(
        kHalf, build::select(at_most(number, found_.most), number, build::number(std::numeric_limits<double>::infinity())));
    values.write = {tensor.name, isl::manage(isl_set_identity(values.domain.copy())).set_range_tuple(tensor.name)};
    insert(values);
    return tensor.name;
  }

  /// Which factor of the value the read is.
  std::size_t value_of(std::size_t read) const { return sum_.value.args()[0].ordinal() == static_cast<int>(read) ? 0 : 1; }

  Statement product_sum(const std::string& left, const std::string& right, const std::string& product) const {
    Statement result = renamed(sum_, fresh_name(result_, product + "_sum"));
    const auto element = [&](const std::string& tensor, std::size_t read) {
      return Access{tensor, DimsView(sum_, memory_order(sum_, read)).element(tensor).set_domain_tuple(result.name)};
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

  /// Readers compute the integer.
  void replace_by_value(const std::string& high, const std::string& low) {
    Statement value = results_.over(sum_.name);
    value.group = result_.statement(sum_.name).group;
    value.write = {sum_.write.tensor, results_.seen_by(value, sum_.write.relation)};
    const isl::map place = isl::manage(isl_set_identity(value.domain.copy()));
    const ScalarExpr above = read_at(value, high, place), below = read_at(value, low, place);
    const auto whole = [](const ScalarExpr& number) { return ScalarExpr::cast(ElementType::i32, number); };
    value.value = build::add(ScalarExpr::make(ScalarOp::shift_left, {whole(above), integer(16)}), whole(below));
    replace_statement(result_, value);
    const Nest defined = result_;
    const std::string& tensor = sum_.write.tensor;
    for (Statement& reader : result_.statements) {
      const auto reads_it = [&](const Access& read) { return read.tensor == tensor; };
      for (auto read = std::find_if(reader.reads.begin(), reader.reads.end(), reads_it); read != reader.reads.end();
           read = std::find_if(reader.reads.begin(), reader.reads.end(), reads_it))
        inline_read(defined, reader, static_cast<int>(read - reader.reads.begin()));
    }
    drop_unused(result_);
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
