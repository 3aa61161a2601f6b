// dropout(x + bias) + residual, and its layer normalisation; what is normalised is the sum as it is stored.
// The element of row i and column c is kept if the word c mod 4 of philox(counter = (c / 4, i, offset_low, offset_high),
// key = (seed_low, seed_high)), as a number in [0, 1) of its upper 24 bits, is at least p; it is then multiplied by 1 / (1 - p).
// So a mask is a function of seed, offset, row and column alone, and need not be stored.
#include "operator.h"
#include "random.h"

namespace {
using namespace Halide;

/// 24 random bits as a number in [0, 1).
Expr uniform(const Expr& column, const Expr& row, const nestor::kernels::Words& stream) {
  using nestor::kernels::word;
  const auto [w0, w1, w2, w3] =
      nestor::kernels::philox({word(column / 4), word(row), stream[0], stream[1]}, {stream[2], stream[3]});
  const Expr place = column % 4;
  const Expr bits = select(place == 0, w0, place == 1, w1, place == 2, w2, w3);
  return cast<float>(cast<int>(bits >> 8)) * (1.0f / 16777216.0f);
}

nestor::HalideDefinition bias_dropout_residual_layernorm(const std::string& variant) {
  using nestor::kernels::wide;
  using nestor::kernels::word;
  const Type type = nestor::kernels::element_of(variant), weight_type = nestor::kernels::weight_type_of(variant);
  const nestor::kernels::RowSizes s;
  Param<float> eps("eps"), p("p");
  Param<int> seed_low("seed_low"), seed_high("seed_high"), offset_low("offset_low"), offset_high("offset_high");
  ImageParam x(type, 2, "x"), bias(weight_type, 1, "bias"), residual(type, 2, "residual"), gamma(weight_type, 1, "gamma"),
      beta(weight_type, 1, "beta");
  Var c("c"), i("i");
  RDom k(0, s.width, "k");
  Func summed("summed"), mean("mean"), variance("variance"), rstd("rstd"), out("out");
  const Expr random = uniform(c, i, {word(offset_low), word(offset_high), word(seed_low), word(seed_high)});
  const Expr kept = select(random >= p, (wide(x(c, i)) + wide(bias(c))) / (1.0f - p), 0.0f);
  summed(c, i) = cast(type, kept + wide(residual(c, i)));
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
          .scalars = {{p, 0.1}, {seed_low, 0}, {seed_high, 0}, {offset_low, 0}, {offset_high, 0}, {eps, 1e-5}},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
}

NESTOR_OPERATOR(bias_dropout_residual_layernorm, bias_dropout_residual_layernorm, nestor::kernels::variants({"", "f32weight"}));
}  // namespace
