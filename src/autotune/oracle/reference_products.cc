// Sums of products of two tensors, for elements side by side: what most of the time goes into where one result needs all of a product.
#include "autotune/oracle/reference.h"

#include "autotune/oracle/value_errors.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/scalar_semantics.h"
#include "support/element_codec.h"
#include "support/error.h"

#include <algorithm>

namespace nestor {
namespace {

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
  if (!adds || !starts || rounding_.statements[store.writers[1]].narrow) return std::nullopt;
  const ProductSum found{store.writers[0], store.writers[1], read_of(value, value.back().a), read_of(value, value.back().b)};
  for (const int read : {found.a, found.b}) {
    if (read < 0) return std::nullopt;
    const CompiledAccess& access = sum.reads[static_cast<std::size_t>(read)];
    if (access.guard || !access.address.linear) return std::nullopt;
  }
  return found;
}

bool Reference::load_factor(int statement, int read, const FactorPoints& points, double* values, double* errors, bool& exact) {
  const CompiledAccess& access = statements_[statement].reads[static_cast<std::size_t>(read)];
  const Store& store = stores_[access.tensor];
  exact = store.input != nullptr;
  // The loop over what lies side by side is the inner one.
  const bool across = points.step > 1 && points.rows > 1;
  const int outer = across ? points.count : points.rows, inner = across ? points.rows : points.count;
  if (!store.input) {
    const int version = version_seen(statement, access.tensor);
    const LazyDoubles &known = version_of(access.tensor, version), &off = errors_of(access.tensor, version);
    for (int o = 0; o < outer; ++o) {
      for (int i = 0; i < inner; ++i) {
        const int row = across ? i : o, k = across ? o : i, place = row * kChunk + k;
        const std::int64_t at = points.first[row] + k * points.step;
        if (!known.known(at)) return false;
        values[place] = store.sums_16_bits ? round_to(store.type, known.get(at)) : known.get(at);
        errors[place] = off.get(at);
      }
    }
    return true;
  }
  std::array<std::int64_t, kChunk> address;
  std::array<double, kChunk> loaded;
  for (int o = 0; o < outer; ++o) {
    for (int i = 0; i < inner; ++i)
      address[static_cast<std::size_t>(i)] = points.first[across ? i : o] + (across ? o : i) * points.step;
    load_input(store, address.data(), across ? loaded.data() : values + std::ptrdiff_t{kChunk} * o, inner);
    for (int i = 0; across && i < inner; ++i) values[kChunk * i + o] = loaded[static_cast<std::size_t>(i)];
  }
  return true;
}

bool Reference::compute_products(const Element& first, int count, double most) {
  auto product = product_sum_of(first);
  if (!product || count > kMostProducts) return false;
  const Store& store = stores_[first.tensor];
  const CompiledStatement& sum = statements_[product->sum];
  const auto rows = static_cast<std::size_t>(count);
  struct Part {
    std::array<std::int64_t, 16> dims;
    std::vector<std::int64_t> strides;
    int points;
    bool operator==(const Part& other) const { return points == other.points && strides == other.strides; }
  };
  std::vector<std::vector<Part>> parts(rows);
  limit_ = spent_ + most;
  try {
    for (std::size_t e = 0; e < rows; ++e) {
      auto frame = coordinates_of(first.linear + static_cast<std::int64_t>(e), store.strides);
      const Sink note = [&](int statement, const std::int64_t* dims, const std::vector<std::int64_t>& strides, int points) {
        spend(statement, points);
        std::copy_n(dims, sum.dims, parts[e].emplace_back(Part{{}, strides, points}).dims.begin());
      };
      walk(element_loops(product->sum).code, frame.data(), note);
    }
  } catch (const UserError&) {  // it takes too long
    return false;
  }
  // All have the same points but for their places, or it is not worth it.
  const auto differs = [&](const std::vector<Part>& each) { return each != parts.front(); };
  if (std::any_of(parts.begin(), parts.end(), differs)) return false;
  const auto at = [&](int read, std::size_t row, std::size_t part) {
    return sum.reads[static_cast<std::size_t>(read)].address.at(parts[row][part].dims.data());
  };
  const auto points_of = [&](int read, std::size_t part, int read_rows) {
    const Part& any = parts.front()[part];
    FactorPoints points{
        {}, read_rows, sum.reads[static_cast<std::size_t>(read)].address.step(any.strides, any.points), any.points};
    for (int row = 0; row < read_rows; ++row)
      points.first[static_cast<std::size_t>(row)] = at(read, static_cast<std::size_t>(row), part);
    return points;
  };
  const std::size_t chunks = parts.front().size();
  const auto is_shared = [&](int read) {
    for (std::size_t c = 0; c < chunks; ++c) {
      for (std::size_t row = 1; row < rows; ++row) {
        if (at(read, row, c) != at(read, 0, c)) return false;
      }
    }
    return true;
  };
  if (is_shared(product->b)) std::swap(product->a, product->b);
  const int rows_of_a = is_shared(product->a) ? 1 : count;
  constexpr std::size_t kPanel = std::size_t{kChunk} * kMostProducts;
  static constexpr std::array<double, kChunk> kExact{};
  std::array<double, kPanel> a, a_errors, b, b_errors, together;
  std::array<double, kChunk> terms, errors;
  const double start = semantics::constant_value(store.type, statements_[product->start].value.instructions().front().number);
  std::array<double, kMostProducts> results;
  std::array<ErrorSum, kMostProducts> sums;
  results.fill(start);
  for (ErrorSum& each : sums) each.start(start, 0);
  together.fill(0);
  for (std::size_t c = 0; c < chunks; ++c) {
    bool a_exact = false, b_exact = false;
    if (!load_factor(product->sum, product->a, points_of(product->a, c, rows_of_a), a.data(), a_errors.data(), a_exact) ||
        !load_factor(product->sum, product->b, points_of(product->b, c, count), b.data(), b_errors.data(), b_exact))
      return false;
    const auto points = static_cast<std::size_t>(parts.front()[c].points);
    const std::size_t next_a = rows_of_a > 1 ? kChunk : 0;
    if (a_exact && b_exact) {
      for (std::size_t e = 0; e < rows; ++e) {
        for (std::size_t k = 0; k < points; ++k) together[kMostProducts * k + e] = a[next_a * e + k] * b[kChunk * e + k];
      }
      const int all = static_cast<int>(points) * kMostProducts;
      if (all_exact(together.data(), all) &&
          ErrorSum::add_exact(sums.data(), results.data(), together.data(), static_cast<int>(points)))
        continue;
    }
    for (std::size_t e = 0; e < rows; ++e) {
      const double *of_a = a.data() + next_a * e, *of_b = b.data() + kChunk * e;
      for (std::size_t k = 0; k < points; ++k) terms[k] = semantics::in_range(of_a[k] * of_b[k]);
      const double* off = product_errors({of_a, a_exact ? nullptr : a_errors.data() + next_a * e},
                                         {of_b, b_exact ? nullptr : b_errors.data() + kChunk * e}, terms.data(),
                                         static_cast<int>(points), errors.data());
      sums[e].add_all(ReductionOp::add, store.type,
                      {sum.type, terms.data(), off == nullptr ? kExact.data() : off, nullptr, static_cast<int>(points)},
                      results[e]);
    }
  }
  for (std::size_t e = 0; e < rows; ++e)
    remember(first.tensor, first.version, first.linear + static_cast<std::int64_t>(e), results[e],
             sums[e].error(results[e], store.narrow, store.orders));
  return true;
}

}  // namespace nestor
