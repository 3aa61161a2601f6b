// x + residual, and its root-mean-square normalisation with weight; what is normalised is the sum as it is stored.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition residual_rmsnorm(const std::string& variant) {
  using nestor::kernels::wide;
  const Type type = nestor::kernels::element_of(variant);
  const nestor::kernels::RowSizes s;
  Param<float> eps("eps");
  ImageParam x(type, 2, "x"), residual(type, 2, "residual"), weight(nestor::kernels::weight_type_of(variant), 1, "weight");
  Var c("c"), i("i");
  RDom k(0, s.width, "k");
  Func summed("summed"), mean_square("mean_square"), rstd("rstd"), out("out");
  summed(c, i) = cast(type, wide(x(c, i)) + wide(residual(c, i)));
  mean_square(i) = 0.0f;
  mean_square(i) += s.over_width(wide(summed(k, i)) * wide(summed(k, i)));
  rstd(i) = 1.0f / sqrt(mean_square(i) + eps);
  out(c, i) = cast(type, wide(summed(c, i)) * rstd(i) * wide(weight(c)));
  return {.outputs = {{summed, s.matrix()}, {out, s.matrix()}},
          .inputs = {{x, s.matrix()}, {residual, s.matrix()}, {weight, s.row()}},
          .sizes = s.sizes(),
          .scalars = {{eps, 1e-5}},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
}

NESTOR_OPERATOR(residual_rmsnorm, residual_rmsnorm, nestor::kernels::variants({"", "f32weight"}));
}  // namespace
