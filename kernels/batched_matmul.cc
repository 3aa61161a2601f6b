// out[b, m, n] = sum over k of a[b, m, k] b[b, k, n], accumulated in f32. With `at` a is stored as [b, k, m], with `bt` b as [b, n, k].
#include "operator.h"

namespace {
using namespace Halide;
using nestor::kernels::wide;

nestor::HalideDefinition batched_matmul(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  const bool at = nestor::kernels::has_option(variant, "at"), bt = nestor::kernels::has_option(variant, "bt");
  Param<int> batch("batch"), m("m"), n("n"), k("k");
  ImageParam a(type, 3, "a"), b(type, 3, "b");
  Var i("i"), j("j"), h("h");
  RDom r(0, k, "r");
  Func product("product"), out("out");
  product(j, i, h) = 0.0f;
  product(j, i, h) += wide(at ? a(i, r, h) : a(r, i, h)) * wide(bt ? b(r, j, h) : b(j, r, h));
  out(j, i, h) = cast(type, product(j, i, h));
  const Func& result = type.bits() == 32 ? product : out;
  return {.outputs = {{result, {n, m, batch}}},
          .inputs = {{a, at ? std::vector<Expr>{m, k, batch} : std::vector<Expr>{k, m, batch}},
                     {b, bt ? std::vector<Expr>{k, n, batch} : std::vector<Expr>{n, k, batch}}},
          .sizes = {{batch, 16}, {m, 256}, {n, 256}, {k, 256}},
          .tolerance = nestor::kernels::tolerance_for(variant, 2e-4)};
}

NESTOR_OPERATOR(batched_matmul, batched_matmul, nestor::kernels::variants({"", "bt", "at", "at.bt"}));
}  // namespace
