// What operators around a product of matrices share: its sizes, and operands stored either way.
#pragma once

#include "operator.h"

namespace nestor::kernels {

/// The sizes and the first operand of a product a[m, k] b[k, n]. With the option `at` a is stored as k x m, with `bt` second operands
/// as n x k, as PyTorch stores the weights of a linear layer.
struct ProductParts {
  explicit ProductParts(const std::string& variant)
      : type(element_of(variant)), at(has_option(variant, "at")), bt(has_option(variant, "bt")), a(type, 2, "a") {}

  Halide::Param<int> m{"m"}, n{"n"}, k{"k"};
  Halide::Type type;
  bool at, bt;
  Halide::ImageParam a;

  /// a[i, r] b[r, j], in f32.
  Halide::Expr term(const Halide::ImageParam& b, const Halide::RDom& r, const Halide::Var& i, const Halide::Var& j) const {
    return wide(at ? a(i, r) : a(r, i)) * wide(bt ? b(r, j) : b(j, r));
  }
  std::vector<Halide::Expr> rows() const { return at ? std::vector<Halide::Expr>{m, k} : std::vector<Halide::Expr>{k, m}; }
  std::vector<Halide::Expr> columns() const { return bt ? std::vector<Halide::Expr>{k, n} : std::vector<Halide::Expr>{n, k}; }
  std::vector<Halide::Expr> result() const { return {n, m}; }
  std::vector<HalideSize> sizes() const { return {{m, 1024}, {n, 1024}, {k, 1024}}; }
};

}  // namespace nestor::kernels
