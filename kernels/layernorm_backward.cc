// Gradients of layernorm, from the gradient dy of its result, its input, weight, and the statistics that it returned.
// `nobias`: no dbias; `plain`: there is no weight, and dx is all.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition layernorm_backward(const std::string& variant) {
  using nestor::kernels::has_option;
  using nestor::kernels::wide;
  const Type type = nestor::kernels::element_of(variant), weight_type = nestor::kernels::weight_type_of(variant);
  const nestor::kernels::RowSizes s;
  ImageParam dy(type, 2, "dy"), x(type, 2, "x"), weight(weight_type, 1, "weight"), mean(Float(32), 1, "mean"),
      rstd(Float(32), 1, "rstd");
  Var c("c"), i("i");
  RDom k(0, s.width, "k"), row(0, s.rows, "row");
  const bool plain = has_option(variant, "plain");
  const auto normal = [&](const Expr& column, const Expr& at) { return (wide(x(column, at)) - mean(at)) * rstd(at); };
  const auto scaled = [&](const Expr& column) {
    return plain ? wide(dy(column, i)) : wide(dy(column, i)) * wide(weight(column));
  };
  Func sum("sum"), product("product"), means("means"), dx("dx");
  sum(i) = 0.0f;
  sum(i) += scaled(k);
  product(i) = 0.0f;
  product(i) += scaled(k) * normal(k, i);
  means(i) = Tuple(s.over_width(sum(i)), s.over_width(product(i)));
  dx(c, i) = cast(type, rstd(i) * (scaled(c) - means(i)[0] - normal(c, i) * means(i)[1]));
  nestor::HalideDefinition definition{.outputs = {{dx, s.matrix()}},
                                      .inputs = {{dy, s.matrix()}, {x, s.matrix()}},
                                      .sizes = s.sizes(),
                                      .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
  if (!plain) definition.inputs.push_back({weight, s.row()});
  definition.inputs.push_back({mean, s.column()});
  definition.inputs.push_back({rstd, s.column()});
  if (plain) return definition;
  definition.outputs.push_back(nestor::kernels::column_sum("dweight", wide(dy(c, row)) * normal(c, row), c, weight_type, s));
  if (!has_option(variant, "nobias")) {
    definition.outputs.push_back(nestor::kernels::column_sum("dbias", wide(dy(c, row)), c, weight_type, s));
  }
  return definition;
}

NESTOR_OPERATOR(layernorm_backward, layernorm_backward,
                nestor::kernels::variants({"", "f32weight", "nobias", "nobias.f32weight", "plain"}));
}  // namespace
