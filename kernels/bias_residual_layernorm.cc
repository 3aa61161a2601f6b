// x + bias + residual, and its layer normalisation, as they stand between the blocks of a transformer; what is normalised is
// the sum as it is stored.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition bias_residual_layernorm(const std::string& variant) {
  using nestor::kernels::wide;
  const Type type = nestor::kernels::element_of(variant), weight_type = nestor::kernels::weight_type_of(variant);
  const nestor::kernels::RowSizes s;
  Param<float> eps("eps");
  ImageParam x(type, 2, "x"), bias(weight_type, 1, "bias"), residual(type, 2, "residual"), gamma(weight_type, 1, "gamma"),
      beta(weight_type, 1, "beta");
  Var c("c"), i("i");
  RDom k(0, s.width, "k");
  Func summed("summed"), mean("mean"), variance("variance"), rstd("rstd"), out("out");
  summed(c, i) = cast(type, wide(x(c, i)) + wide(bias(c)) + wide(residual(c, i)));
  mean(i) = 0.0f;
  mean(i) += s.over_width(wide(summed(k, i)));
  variance(i) = 0.0f;
  const Expr deviation = wide(summed(k, i)) - mean(i);
  variance(i) += s.over_width(deviation * deviation);
  rstd(i) = 1.0f / sqrt(variance(i) + eps);
  out(c, i) = cast(type, (wide(summed(c, i)) - mean(i)) * rstd(i) * wide(gamma(c)) + wide(beta(c)));
  return {.outputs = {{summed, s.matrix()}, {out, s.matrix()}},
          .inputs = {{x, s.matrix()}, {bias, s.row()}, {residual, s.matrix()}, {gamma, s.row()}, {beta, s.row()}},
          .sizes = s.sizes(),
          .scalars = {{eps, 1e-5}},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
}

NESTOR_OPERATOR(bias_residual_layernorm, bias_residual_layernorm, nestor::kernels::variants({"", "f32weight"}));
}  // namespace
