// Root-mean-square normalisation over the last dimension, with weight or without (plain). `stats` returns each row's
// 1/sqrt(mean square + eps) as well.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition rmsnorm(const std::string& variant) {
  using nestor::kernels::has_option;
  using nestor::kernels::wide;
  const Type type = nestor::kernels::element_of(variant);
  const nestor::kernels::RowSizes s;
  Param<float> eps("eps");
  ImageParam x(type, 2, "x"), weight(nestor::kernels::weight_type_of(variant), 1, "weight");
  Var c("c"), i("i");
  RDom k(0, s.width, "k");
  Func mean_square("mean_square"), rstd("rstd"), out("out");
  mean_square(i) = 0.0f;
  mean_square(i) += s.over_width(wide(x(k, i)) * wide(x(k, i)));
  rstd(i) = 1.0f / sqrt(mean_square(i) + eps);
  const bool plain = has_option(variant, "plain");
  const Expr normal = wide(x(c, i)) * rstd(i);
  out(c, i) = cast(type, plain ? normal : normal * wide(weight(c)));
  nestor::HalideDefinition definition{.outputs = {{out, s.matrix()}},
                                      .inputs = {{x, s.matrix()}},
                                      .sizes = s.sizes(),
                                      .scalars = {{eps, 1e-5}},
                                      .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
  if (!plain) definition.inputs.push_back({weight, s.row()});
  if (has_option(variant, "stats")) definition.outputs.push_back({rstd, s.column()});
  return definition;
}

NESTOR_OPERATOR(rmsnorm, rmsnorm,
                nestor::kernels::variants({"", "f32weight", "plain", "stats", "stats.f32weight", "stats.plain"}));
}  // namespace
