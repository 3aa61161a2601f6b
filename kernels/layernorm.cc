// Layer normalisation over the last dimension: with weight and bias, with weight alone (nobias) or without either (plain).
// `stats` returns each row's mean and 1/sqrt(variance + eps) as well.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition layernorm(const std::string& variant) {
  using nestor::kernels::has_option;
  using nestor::kernels::wide;
  const Type type = nestor::kernels::element_of(variant), weight_type = nestor::kernels::weight_type_of(variant);
  const nestor::kernels::RowSizes s;
  Param<float> eps("eps");
  ImageParam x(type, 2, "x"), weight(weight_type, 1, "weight"), bias(weight_type, 1, "bias");
  Var c("c"), i("i");
  RDom k(0, s.width, "k");
  Func mean("mean"), variance("variance"), rstd("rstd"), out("out");
  mean(i) = 0.0f;
  mean(i) += s.over_width(wide(x(k, i)));
  variance(i) = 0.0f;
  const Expr deviation = wide(x(k, i)) - mean(i);
  variance(i) += s.over_width(deviation * deviation);
  rstd(i) = 1.0f / sqrt(variance(i) + eps);
  Expr result = (wide(x(c, i)) - mean(i)) * rstd(i);
  const bool plain = has_option(variant, "plain"), biased = !plain && !has_option(variant, "nobias");
  if (!plain) result = result * wide(weight(c));
  if (biased) result = result + wide(bias(c));
  out(c, i) = cast(type, result);
  nestor::HalideDefinition definition{.outputs = {{out, s.matrix()}},
                                      .inputs = {{x, s.matrix()}},
                                      .sizes = s.sizes(),
                                      .scalars = {{eps, 1e-5}},
                                      .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
  if (!plain) definition.inputs.push_back({weight, s.row()});
  if (biased) definition.inputs.push_back({bias, s.row()});
  if (has_option(variant, "stats")) {
    definition.outputs.push_back({mean, s.column()});
    definition.outputs.push_back({rstd, s.column()});
  }
  return definition;
}

NESTOR_OPERATOR(layernorm, layernorm,
                nestor::kernels::variants({"", "f32weight", "nobias", "nobias.f32weight", "plain", "stats", "stats.f32weight",
                                           "stats.nobias", "stats.nobias.f32weight", "stats.plain"}));
}  // namespace
