// out[m] = sum over k of a[m, k] x[k], accumulated in f32.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition matvec(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  Param<int> m("m"), k("k");
  ImageParam a(type, 2, "a"), x(type, 1, "x");
  Var i("i");
  RDom r(0, k, "r");
  Func product("product"), out("out");
  product(i) = 0.0f;
  product(i) += nestor::kernels::wide(a(r, i)) * nestor::kernels::wide(x(r));
  out(i) = cast(type, product(i));
  const Func& result = type.bits() == 32 ? product : out;
  return {.outputs = {{result, {m}}},
          .inputs = {{a, {k, m}}, {x, {k}}},
          .sizes = {{m, 4096}, {k, 4096}},
          .tolerance = nestor::kernels::tolerance_for(variant, 2e-4)};
}

NESTOR_OPERATOR(matvec, matvec, "f32", "f16", "bf16");
}  // namespace
