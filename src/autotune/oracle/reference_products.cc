// Sums of products of two tensors, for elements side by side: what most of the time goes into where one result needs all of a product.
#include "autotune/oracle/reference.h"

#include "autotune/oracle/value_errors.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/scalar_semantics.h"
#include "support/element_codec.h"
#include "support/error.h"

#include <algorithm>
#include <cmath>

namespace nestor {
namespace {

/// Elementary evaluations that a product side by side with others takes.
constexpr double kProduct = 1;

/// The read that an instruction is, widened or not; -1: it is something else.
int read_of(const std::vector<ValueCode::Instruction>& instructions, int position) {
  if (position < 0) return -1;
  const ValueCode::Instruction& i = instructions[static_cast<std::size_t>(position)];
  const bool widens = i.op == ScalarOp::cast && i.type == ElementType::f32 && is_float(i.operand_type);
  if (widens) return read_of(instructions, i.a);
  return i.op == ScalarOp::read && is_float(i.type) ? i.ordinal : -1;
}

}  // namespace

std::optional<Reference::ProductSum> Reference::product_sum_of(const Element& element) const {
  const Store& store = stores_[element.tensor];
  if (element.version != 2 || store.type != ElementType::f32 || store.sums_16_bits || rounds_) return std::nullopt;
  const CompiledStatement &start = statements_[store.writers[0]], &sum = statements_[store.writers[1]];
  const auto& value = sum.value.instructions();
  const bool adds = sum.reduction == ReductionOp::add && sum.type == ElementType::f32 && value.back().op == ScalarOp::mul;
  const bool starts = !start.reduction && start.value.size() == 1 && start.value.instructions().front().op == ScalarOp::constant;
  const RoundingModel::Product& rounding = rounding_.statements[store.writers[1]];
  // Small and large numbers of f16 are changed by more (operand_errors).
  const bool by_size = !rounding.narrow || *rounding.narrow != ElementType::f16;
  if (!adds || !starts || !by_size) return std::nullopt;
  const ProductSum found{store.writers[0], store.writers[1], read_of(value, value.back().a), read_of(value, value.back().b),
                         rounding.narrow ? unit_roundoff(*rounding.narrow) : 0};
  for (const int read : {found.a, found.b}) {
    if (read < 0) return std::nullopt;
    const CompiledAccess& access = sum.reads[static_cast<std::size_t>(read)];
    if (access.guard || !access.address.linear) return std::nullopt;
  }
  return found;
}

double Reference::cost_of_products() const {
  double cost = 0;
  for (int tensor = 0; tensor < static_cast<int>(stores_.size()); ++tensor) {
    const int last = static_cast<int>(stores_[tensor].writers.size());
    const auto product = product_sum_of({tensor, last, 0});
    if (last != 2 || !product) continue;
    const CompiledStatement& sum = statements_[product->sum];
    cost += sum.points * static_cast<double>(1 + sum.value.size());
  }
  return cost;
}

bool Reference::load_factor(int statement, int read, const FactorPoints& points, double* values, double* errors) {
  const CompiledAccess& access = statements_[statement].reads[static_cast<std::size_t>(read)];
  const Store& store = stores_[access.tensor];
  // The loop over what lies side by side is the inner one.
  const bool across = points.step > 1 && points.rows > 1;
  const int outer = across ? points.count : points.rows, inner = across ? points.rows : points.count;
  const auto row_of = [&](int o, int i) { return across ? i : o; };
  const auto address_of = [&](int o, int i) { return points.first[row_of(o, i)] + (across ? o : i) * points.step; };
  const auto place_of = [&](int o, int i) { return row_of(o, i) + points.lanes * (across ? o : i); };
  std::array<std::int64_t, kChunk> address;
  std::array<double, kChunk> loaded, off;
  const int version = version_seen(statement, access.tensor);
  for (int o = 0; o < outer; ++o) {
    for (int i = 0; i < inner; ++i) address[static_cast<std::size_t>(i)] = address_of(o, i);
    if (store.input) {
      load_input(store, address.data(), loaded.data(), inner);
    } else if (!load_computed(access.tensor, version, {address.data(), inner, loaded.data(), off.data()})) {
      return false;
    }
    for (int i = 0; i < inner; ++i) {
      const int place = place_of(o, i);
      values[place] = loaded[static_cast<std::size_t>(i)];
      if (!store.input) errors[place] = off[static_cast<std::size_t>(i)];
    }
  }
  return true;
}

/// Elements that are known; others only where they are made at single points.
bool Reference::load_computed(int tensor, int version, const Row& row) {
  const Store& store = stores_[tensor];
  const LazyDoubles &known = version_of(tensor, version), &off = errors_of(tensor, version);
  for (int k = 0; k < row.count; ++k) {
    const std::int64_t at = row.linear[k];
    if (!known.known(at)) return compute_row(tensor, version, row);
    row.values[k] = store.sums_16_bits ? round_to(store.type, known.get(at)) : known.get(at);
    row.errors[k] = off.get(at);
  }
  return true;
}

bool Reference::load_chunks(int statement, int read, const std::vector<FactorPoints>& chunks, Factor& factor) {
  std::vector<std::int64_t> key{statement, read};
  const int lanes = chunks.front().lanes;
  for (const FactorPoints& points : chunks) {
    key.insert(key.end(), {points.rows, lanes, points.step, points.count});
    key.insert(key.end(), points.first.begin(), points.first.begin() + points.rows);
  }
  if (factor.key == key) return true;
  factor.key.clear();
  factor.chunk = std::size_t{kChunk} * static_cast<std::size_t>(lanes);
  for (std::vector<double>* all : {&factor.values, &factor.errors}) all->assign(factor.chunk * chunks.size(), 0);
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    if (!load_factor(statement, read, chunks[c], &factor.values[factor.chunk * c], &factor.errors[factor.chunk * c]))
      return false;
  }
  factor.key = std::move(key);
  return true;
}

/// Sums side by side, and where their terms stand.
struct Reference::ProductSums {
  /// Terms of a sum: so many from `dims` on.
  struct Terms {
    std::array<std::int64_t, 16> dims;
    const std::vector<std::int64_t>* strides;  ///< of the code of loops
    int count;
    bool operator==(const Terms& other) const { return count == other.count && *strides == *other.strides; }
  };
  ProductSum product;
  ElementType stored;
  std::vector<std::vector<Terms>> terms;  ///< of each sum, chunk by chunk
  std::array<double, kMostProducts> results{};
  std::array<ErrorSum, kMostProducts> errors{};
  bool exact = false;  ///< both factors are inputs

  std::size_t rows() const { return terms.size(); }
  std::size_t chunks() const { return terms.front().size(); }
};

bool Reference::find_terms(const Element& first, ProductSums& sums) {
  const CompiledStatement& sum = statements_[sums.product.sum];
  for (std::size_t e = 0; e < sums.rows(); ++e) {
    auto frame = coordinates_of(first.linear + static_cast<std::int64_t>(e), stores_[first.tensor].strides);
    const Sink note = [&](int, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int count) {
      spend(kProduct * count);
      std::copy_n(dims, sum.dims, sums.terms[e].emplace_back(ProductSums::Terms{{}, &strides, count}).dims.begin());
    };
    walk(element_loops(sums.product.sum).code, frame.data(), note);
  }
  // All have the same points but for their places, or it is not worth it.
  return std::all_of(sums.terms.begin(), sums.terms.end(), [&](const auto& each) { return each == sums.terms.front(); });
}

std::vector<Reference::FactorPoints> Reference::factor_points(const ProductSums& sums, int read, std::size_t from,
                                                              std::size_t to) const {
  const DimFunction& address = statements_[sums.product.sum].reads[static_cast<std::size_t>(read)].address;
  std::vector<FactorPoints> all;
  for (std::size_t c = from; c < to; ++c) {
    const ProductSums::Terms& any = sums.terms.front()[c];
    FactorPoints& points = all.emplace_back(
        FactorPoints{{}, static_cast<int>(sums.rows()), kMostProducts, address.step(*any.strides, any.count), any.count});
    for (std::size_t row = 0; row < sums.rows(); ++row) points.first[row] = address.at(sums.terms[row][c].dims.data());
  }
  return all;
}

/// One row after the other: some term is no number of f32, or may be anything.
void Reference::add_special_products(ProductSums& sums, const ErrorsOfFactor& a, bool shared, const ErrorsOfFactor& b,
                                     int count) {
  static constexpr std::array<double, kChunk> kExact{};
  std::array<double, kChunk> of_a, of_b, off_a, off_b, terms, errors, operands;
  for (std::size_t row = 0; row < sums.rows(); ++row) {
    for (int k = 0; k < count; ++k) {
      const std::size_t at = static_cast<std::size_t>(k) * kMostProducts + row, at_a = shared ? static_cast<std::size_t>(k) : at;
      of_a[k] = a.values[at_a];
      of_b[k] = b.values[at];
      off_a[k] = sums.exact ? 0 : a.errors[at_a];
      off_b[k] = sums.exact ? 0 : b.errors[at];
      terms[k] = semantics::in_range(of_a[k] * of_b[k]);
      operands[k] = std::isfinite(terms[k]) ? sums.product.operand * std::fabs(terms[k]) : 0;
    }
    const double* off =
        product_errors({of_a.data(), off_a.data()}, {of_b.data(), off_b.data()}, terms.data(), count, errors.data());
    sums.errors[row].add_all(ReductionOp::add, sums.stored,
                             {statements_[sums.product.sum].type, terms.data(), off == nullptr ? kExact.data() : off,
                              sums.product.operand != 0 ? operands.data() : nullptr, count},
                             sums.results[row]);
  }
}

bool Reference::compute_products(const Element& first, int count, double most) {
  const auto product = product_sum_of(first);
  if (!product || count < 1 || count > kMostProducts) return false;
  ProductSums sums{.product = *product,
                   .stored = stores_[first.tensor].type,
                   .terms = decltype(ProductSums::terms)(static_cast<std::size_t>(count))};
  limit_ = spent_ + most;
  try {
    return find_terms(first, sums) && add_products(first, sums);
  } catch (const UserError&) {  // it takes too long
    depth_ = 0;
    return false;
  }
}

bool Reference::add_products(const Element& first, ProductSums& sums) {
  constexpr std::size_t kTogether = 256;  ///< chunks: what is kept of a factor takes 8 MB
  const ProductSum& product = sums.product;
  const Store& store = stores_[first.tensor];
  const CompiledStatement& sum = statements_[product.sum];
  const auto is_shared = [](const std::vector<FactorPoints>& chunks) {
    return std::all_of(chunks.begin(), chunks.end(), [](const FactorPoints& points) {
      return std::all_of(points.first.begin(), points.first.begin() + points.rows,
                         [&](std::int64_t at) { return at == points.first[0]; });
    });
  };
  const auto is_input = [&](int read) { return stores_[sum.reads[static_cast<std::size_t>(read)].tensor].input != nullptr; };
  sums.exact = is_input(product.a) && is_input(product.b);
  sums.results.fill(semantics::constant_value(store.type, statements_[product.start].value.instructions().front().number));
  for (ErrorSum& each : sums.errors) each.start(sums.results.front(), 0);
  std::array<double, std::size_t{kChunk} * kMostProducts> terms, errors;
  Factor own;
  for (std::size_t from = 0; from < sums.chunks(); from += kTogether) {
    const std::size_t to = std::min(from + kTogether, sums.chunks());
    int a = product.a, b = product.b;
    auto of_a = factor_points(sums, a, from, to), of_b = factor_points(sums, b, from, to);
    if (!is_shared(of_a) && is_shared(of_b)) {
      std::swap(a, b);
      std::swap(of_a, of_b);
    }
    const bool shared = is_shared(of_a);
    if (shared) {
      for (FactorPoints& points : of_a) points.rows = points.lanes = 1;
    }
    if (!load_chunks(product.sum, a, of_a, own) || !load_chunks(product.sum, b, of_b, last_factor_)) return false;
    for (std::size_t c = from; c < to; ++c) {
      const int points = sums.terms.front()[c].count;
      const auto factor = [&](const Factor& of) {
        const std::size_t at = of.chunk * (c - from);
        return ErrorsOfFactor{&of.values[at], sums.exact ? nullptr : &of.errors[at]};
      };
      const ErrorsOfFactor left = factor(own), right = factor(last_factor_);
      const LaneProducts kind = product_lanes(left, shared, right, points, terms.data(), errors.data());
      const ErrorSum::LaneTerms all{terms.data(), kind == LaneProducts::exact ? nullptr : errors.data(), product.operand, points};
      if (kind == LaneProducts::special || !ErrorSum::add_lanes(sums.errors.data(), sums.results.data(), all))
        add_special_products(sums, left, shared, right, points);
    }
  }
  for (std::size_t row = 0; row < sums.rows(); ++row)
    remember(first.tensor, first.version, first.linear + static_cast<std::int64_t>(row), sums.results[row],
             sums.errors[row].error(sums.results[row], store.narrow, store.orders));
  return true;
}

}  // namespace nestor
