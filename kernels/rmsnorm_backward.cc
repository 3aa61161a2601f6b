// Gradients of rmsnorm, from the gradient dy of its result, its input, weight, and the statistic that it returned.
// `plain`: there is no weight, and dx is all.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition rmsnorm_backward(const std::string& variant) {
  using nestor::kernels::wide;
  const Type type = nestor::kernels::element_of(variant), weight_type = nestor::kernels::weight_type_of(variant);
  const nestor::kernels::RowSizes s;
  ImageParam dy(type, 2, "dy"), x(type, 2, "x"), weight(weight_type, 1, "weight"), rstd(Float(32), 1, "rstd");
  Var c("c"), i("i");
  RDom k(0, s.width, "k"), row(0, s.rows, "row");
  const bool plain = nestor::kernels::has_option(variant, "plain");
  const auto normal = [&](const Expr& column, const Expr& at) { return wide(x(column, at)) * rstd(at); };
  const auto scaled = [&](const Expr& column) {
    return plain ? wide(dy(column, i)) : wide(dy(column, i)) * wide(weight(column));
  };
  Func product("product"), dx("dx");
  product(i) = 0.0f;
  product(i) += s.over_width(scaled(k) * normal(k, i));
  dx(c, i) = cast(type, rstd(i) * (scaled(c) - normal(c, i) * product(i)));
  nestor::HalideDefinition definition{.outputs = {{dx, s.matrix()}},
                                      .inputs = {{dy, s.matrix()}, {x, s.matrix()}},
                                      .sizes = s.sizes(),
                                      .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
  if (!plain) definition.inputs.push_back({weight, s.row()});
  definition.inputs.push_back({rstd, s.column()});
  if (plain) return definition;
  definition.outputs.push_back(nestor::kernels::column_sum("dweight", wide(dy(c, row)) * normal(c, row), c, weight_type, s));
  return definition;
}

NESTOR_OPERATOR(rmsnorm_backward, rmsnorm_backward, nestor::kernels::variants({"", "f32weight", "plain"}));
}  // namespace
