// Chains of multiplications, and which factors follow which reduced dims.
#include "poly/algebra/values/factor_chain.h"

#include "poly/algebra/values/builders.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/nest_sets.h"

#include <isl/point.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <string>

namespace nestor {
namespace {

/// Sums over more dims have more nestings than anyone looks at.
constexpr std::size_t kMostReduced = 6;

bool is_product(const ScalarExpr& value) { return value.op() == ScalarOp::mul && value.type() == ElementType::f32; }

/// Is a product of just these factors, in their order, a part of the value?
bool multiplies_first(const ScalarExpr& value, const std::vector<ScalarExpr>& factors) {
  bool found = false;
  value.visit([&](const ScalarExpr& node) {
    if (!is_product(node)) return;
    const std::vector<ScalarExpr> own = factors_of(node);
    found = found || std::equal(own.begin(), own.end(), factors.begin(), factors.end(),
                                [](const ScalarExpr& a, const ScalarExpr& b) { return a.equals(b); });
  });
  return found || factors.size() == 1;
}

bool follows_any(const Statement& sum, const ScalarExpr& factor, const std::vector<int>& dims) {
  return std::any_of(dims.begin(), dims.end(), [&](int dim) { return varies_along(sum, factor, dim); });
}

/// Sizes that the nest is defined for: defaults, unless others are fixed.
Sizes usual_sizes(const Nest& nest) {
  Sizes sizes;
  isl::set context = full_context(nest);
  for (const SizeParam& size : nest.sizes) {
    const int place = isl_set_find_dim_by_name(context.get(), isl_dim_param, size.name.c_str());
    sizes[size.name] = size.default_value;
    if (place < 0) continue;
    const auto at = static_cast<unsigned>(place);
    const isl::set fixed = isl::manage(isl_set_fix_si(context.copy(), isl_dim_param, at, static_cast<int>(size.default_value)));
    if (!fixed.is_empty()) {
      context = fixed;
      continue;
    }
    isl_point* point = isl_set_sample_point(context.copy());
    const isl::val value = isl::manage(isl_point_get_coordinate_val(point, isl_dim_param, place));
    isl_point_free(point);
    sizes[size.name] = isl_val_get_num_si(value.get());
    context = isl::manage(isl_set_fix_val(context.release(), isl_dim_param, at, isl_val_copy(value.get())));
  }
  return sizes;
}

}  // namespace

std::vector<ScalarExpr> factors_of(const ScalarExpr& value) {
  if (!is_product(value)) return {value};
  std::vector<ScalarExpr> factors;
  for (const ScalarExpr& side : value.args()) {
    const std::vector<ScalarExpr> own = factors_of(side);
    factors.insert(factors.end(), own.begin(), own.end());
  }
  return factors;
}

ScalarExpr product_in_order(const std::vector<ScalarExpr>& factors) {
  ScalarExpr product = factors.at(0);
  for (std::size_t k = 1; k < factors.size(); ++k) product = build::mul(product, factors[k]);
  return product;
}

std::vector<SumNesting> nestings_of(const Statement& sum) {
  const std::vector<int> reduced = reduced_dims(sum);
  if (sum.reduction != ReductionOp::add || !is_product(sum.value) || reduced.size() < 2 || reduced.size() > kMostReduced)
    return {};
  const std::vector<ScalarExpr> factors = factors_of(sum.value);
  std::vector<SumNesting> found;
  for (unsigned chosen = 1; chosen + 1 < 1U << reduced.size(); ++chosen) {
    SumNesting nesting;
    std::vector<int> rest;  // reduced dims of the outer sum
    for (int dim = 0, bit = 0; dim < static_cast<int>(sum.dims.size()); ++dim) {
      const bool is_reduced = std::find(reduced.begin(), reduced.end(), dim) != reduced.end();
      const bool inner = is_reduced && (chosen >> bit & 1U) != 0;
      (inner ? nesting.inner : nesting.outer).push_back(dim);
      if (is_reduced && !inner) rest.push_back(dim);
      bit += is_reduced ? 1 : 0;
    }
    for (const ScalarExpr& factor : factors)
      (follows_any(sum, factor, nesting.inner) ? nesting.inside : nesting.outside).push_back(factor);
    const bool all_outside = std::all_of(rest.begin(), rest.end(), [&](int dim) {
      return std::any_of(nesting.outside.begin(), nesting.outside.end(),
                         [&](const ScalarExpr& factor) { return varies_along(sum, factor, dim); });
    });
    if (nesting.inside.empty() || !all_outside) continue;
    nesting.regroups = !multiplies_first(sum.value, nesting.inside);
    found.push_back(std::move(nesting));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const SumNesting& a, const SumNesting& b) { return a.inner.size() < b.inner.size(); });
  return found;
}

double default_points(const Nest& nest, const Statement& statement, const std::vector<int>& dims) {
  const Sizes sizes = usual_sizes(nest);
  double points = 1;
  for (const int dim : dims) points *= static_cast<double>(evaluate_at(extent_of(nest, statement.domain, dim), sizes));
  return points;
}

double default_elements(const Nest& nest, const Tensor& tensor) {
  const std::vector<std::int64_t> shape = shape_at(tensor, usual_sizes(nest));
  return std::accumulate(shape.begin(), shape.end(), 1.0,
                         [](double all, std::int64_t extent) { return all * static_cast<double>(extent); });
}

std::vector<const Statement*> statements_behind(const Nest& nest, std::set<std::string> tensors) {
  std::vector<const Statement*> found;
  std::vector<std::string> rest(tensors.begin(), tensors.end());
  while (!rest.empty()) {
    const std::vector<const Statement*> writers = writers_of(nest, rest.back());
    rest.pop_back();
    found.insert(found.end(), writers.begin(), writers.end());
    for (const Statement* writer : writers) {
      for (const Access& read : writer->reads) {
        if (tensors.insert(read.tensor).second) rest.push_back(read.tensor);
      }
    }
  }
  return found;
}

std::vector<std::string> target_of_dims(const Statement& statement, const std::vector<int>& dims) {
  std::vector<std::string> target{statement.name};
  for (const int dim : dims) target.push_back(statement.dims[static_cast<std::size_t>(dim)]);
  return target;
}

bool are_dims(const Statement& statement, const std::vector<int>& dims, const std::vector<std::string>& target) {
  const std::vector<std::string> names = target_of_dims(statement, dims);
  return std::set<std::string>(names.begin() + 1, names.end()) == std::set<std::string>(target.begin() + 1, target.end());
}

}  // namespace nestor
