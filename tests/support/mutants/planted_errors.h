// Results that are wrong in a known way, for tests of the check of results.
#pragma once

#include "autotune/oracle/oracle.h"
#include "autotune/oracle/rounding_model.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest.h"
#include "support/element_codec.h"

#include <isl/set.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace nestor::testing {

/// Results of a nest and what is done to them; `other` are those of other inputs.
struct PlantedError {
  std::string name;
  std::function<void(HostTensor& result, const HostTensor& other, std::mt19937& random)> plant;
};

inline void each_element(HostTensor& tensor, const std::function<double(double)>& change) {
  for (std::int64_t k = 0; k < tensor.elements(); ++k) tensor.set(k, change(tensor.get(k)));
}

/// Root of the mean square.
inline double typical_size(const HostTensor& tensor) {
  double sum = 0;
  for (std::int64_t k = 0; k < tensor.elements(); ++k) sum += tensor.get(k) * tensor.get(k);
  return std::sqrt(sum / static_cast<double>(std::max<std::int64_t>(tensor.elements(), 1)));
}

/// One element in 10,000, at least one, has the value of another one that is not like it.
inline void misplace_elements(HostTensor& tensor, std::mt19937& random) {
  const std::int64_t count = tensor.elements();
  const double unlike = 0.05 * typical_size(tensor);
  for (std::int64_t wrong = 0; wrong < std::max<std::int64_t>(1, count / 10000);) {
    const auto to = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
    const auto from = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
    if (std::fabs(tensor.get(to) - tensor.get(from)) <= unlike) continue;
    tensor.set(to, tensor.get(from));
    ++wrong;
  }
}

/// The last `rows` rows, or columns, are those of another launch.
inline void leave_out(HostTensor& tensor, const HostTensor& other, std::int64_t rows, std::int64_t columns) {
  const std::int64_t width = tensor.shape.back(), height = tensor.elements() / width;
  for (std::int64_t k = 0; k < tensor.elements(); ++k) {
    if (k / width >= height - rows || k % width >= width - columns) tensor.set(k, other.get(k));
  }
}

inline std::vector<PlantedError> planted_errors() {
  return {
      {"zeros", [](HostTensor& r, const HostTensor&, std::mt19937&) { each_element(r, [](double) { return 0.0; }); }},
      {"twice", [](HostTensor& r, const HostTensor&, std::mt19937&) { each_element(r, [](double x) { return 2 * x; }); }},
      {"half", [](HostTensor& r, const HostTensor&, std::mt19937&) { each_element(r, [](double x) { return x / 2; }); }},
      {"other sign", [](HostTensor& r, const HostTensor&, std::mt19937&) { each_element(r, [](double x) { return -x; }); }},
      {"shuffled",
       [](HostTensor& r, const HostTensor&, std::mt19937& random) {
         for (std::int64_t k = r.elements() - 1; k > 0; --k) {
           const auto other = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(k + 1));
           const double mine = r.get(k);
           r.set(k, r.get(other));
           r.set(other, mine);
         }
       }},
      {"off by one column",
       [](HostTensor& r, const HostTensor&, std::mt19937&) {
         const std::int64_t width = r.shape.back();
         for (std::int64_t k = 0; k < r.elements(); ++k) {
           if (k % width + 1 < width) r.set(k, r.get(k + 1));
         }
       }},
      {"one wrong element in 10,000",
       [](HostTensor& r, const HostTensor&, std::mt19937& random) { misplace_elements(r, random); }},
      {"the result of another launch", [](HostTensor& r, const HostTensor& other, std::mt19937&) { r.bytes = other.bytes; }},
      {"without its last row", [](HostTensor& r, const HostTensor& other, std::mt19937&) { leave_out(r, other, 1, 0); }},
      {"without its last column", [](HostTensor& r, const HostTensor& other, std::mt19937&) { leave_out(r, other, 0, 1); }},
      {"without its last tile", [](HostTensor& r, const HostTensor& other, std::mt19937&) { leave_out(r, other, 0, 16); }},
      {"not written", [](HostTensor& r, const HostTensor&, std::mt19937&) { fill_poison(r); }},
  };
}

/// Dims of a reduction that the written element does not depend on.
inline std::vector<int> reduced_dims(const Statement& statement) {
  std::vector<int> dims;
  for (int k = 0; k < static_cast<int>(statement.dims.size()); ++k) {
    if (isl_map_involves_dims(statement.write.relation.get(), isl_dim_in, static_cast<unsigned>(k), 1) != isl_bool_true)
      dims.push_back(k);
  }
  return dims;
}

/// The nest without the last `count` places of every sum over `extent` of them: the last keys of an attention, the last columns of a norm.
/// Unchanged where no sum has that extent.
inline Nest without_last(Nest nest, const Sizes& sizes, std::int64_t extent, std::int64_t count) {
  for (Statement& statement : nest.statements) {
    if (statement.reduction != ReductionOp::add) continue;
    for (const int dim : reduced_dims(statement)) {
      const auto [low, high] = dim_range(at_sizes(statement.domain, sizes), dim);
      if (high - low + 1 != extent) continue;
      statement.domain = isl::manage(isl_set_upper_bound_si(statement.domain.copy(), isl_dim_set, static_cast<unsigned>(dim),
                                                            static_cast<int>(high - count)));
    }
  }
  return nest;
}

/// Extents of the sums of a nest, each once.
inline std::vector<std::int64_t> sum_extents(const Nest& nest, const Sizes& sizes) {
  std::vector<std::int64_t> extents;
  for (const Statement& statement : nest.statements) {
    if (statement.reduction != ReductionOp::add) continue;
    for (const int dim : reduced_dims(statement)) {
      const auto [low, high] = dim_range(at_sizes(statement.domain, sizes), dim);
      if (std::find(extents.begin(), extents.end(), high - low + 1) == extents.end()) extents.push_back(high - low + 1);
    }
  }
  return extents;
}

/// The nest with computed operands of matrix products rounded to 16 bits, as kernels on tensor cores have them.
inline Nest with_narrow_operands(Nest nest) {
  const RoundingModel model = rounding_model(nest);
  for (std::size_t s = 0; s < nest.statements.size(); ++s) {
    const RoundingModel::Product& product = model.statements[s];
    if (!product.narrow || product.narrow_read < 0) continue;
    const auto is_other = [&](const ScalarExpr& expr) {
      const ScalarExpr& core = expr.op() == ScalarOp::cast ? expr.args()[0] : expr;
      return core.op() == ScalarOp::read && core.ordinal() == product.narrow_read;
    };
    const auto narrowed = [&](const ScalarExpr& expr) {
      return ScalarExpr::cast(ElementType::f32, ScalarExpr::cast(*product.narrow, expr));
    };
    nest.statements[s].value = nest.statements[s].value.rewrite([&](const ScalarExpr& expr) {
      if (expr.op() != ScalarOp::mul) return expr;
      if (is_other(expr.args()[0])) return expr.with_args({expr.args()[0], narrowed(expr.args()[1])});
      if (is_other(expr.args()[1])) return expr.with_args({narrowed(expr.args()[0]), expr.args()[1]});
      return expr;
    });
  }
  return nest;
}

}  // namespace nestor::testing
