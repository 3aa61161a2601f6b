// out[m, n] = sum over k of a[m, k] b[k, n], accumulated in f32. With `at` a is stored as k x m, with `bt` b as n x k.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition matmul(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  Param<int> m("m"), n("n"), k("k");
  ImageParam a(type, 2, "a"), b(type, 2, "b");
  const bool at = nestor::kernels::has_option(variant, "at"), bt = nestor::kernels::has_option(variant, "bt");
  Var i("i"), j("j");
  RDom r(0, k, "r");
  Func product("product"), out("out");
  product(j, i) = 0.0f;
  product(j, i) += nestor::kernels::wide(at ? a(i, r) : a(r, i)) * nestor::kernels::wide(bt ? b(r, j) : b(j, r));
  out(j, i) = cast(type, product(j, i));
  // For f32 the product is the result: a copy would be no part of anybody's definition.
  const Func& result = type.bits() == 32 ? product : out;
  return {.outputs = {{result, {n, m}}},
          .inputs = {{a, at ? std::vector<Expr>{m, k} : std::vector<Expr>{k, m}},
                     {b, bt ? std::vector<Expr>{k, n} : std::vector<Expr>{n, k}}},
          .sizes = {{m, 1024}, {n, 1024}, {k, 1024}},
          .tolerance = nestor::kernels::tolerance_for(variant, 2e-4)};
}

NESTOR_OPERATOR(matmul, matmul, nestor::kernels::variants({"", "bt", "at", "at.bt"}));
}  // namespace
