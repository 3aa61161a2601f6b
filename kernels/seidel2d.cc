// Nine-point Gauss-Seidel iteration in place, on a grid with a fixed border.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition seidel2d(const std::string& variant) {
  Param<int> width("width"), height("height"), steps("steps");
  ImageParam start(Float(32), 2, "start");
  Var x("x"), y("y");
  RDom r(1, width - 2, 1, height - 2, 0, steps, "r");
  Func out("out");
  out(x, y) = start(x, y);
  const auto row = [&](const Expr& at) { return out(r.x - 1, at) + out(r.x, at) + out(r.x + 1, at); };
  out(r.x, r.y) = (row(r.y - 1) + row(r.y) + row(r.y + 1)) * (1.0f / 9.0f);
  return {.outputs = {{out, {width, height}}},
          .inputs = {{start, {width, height}}},
          .sizes = {{.param = width, .default_value = 1024, .min = 3},
                    {.param = height, .default_value = 1024, .min = 3},
                    {steps, 16}},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-5)};
}

NESTOR_OPERATOR(seidel2d, seidel2d, "f32");
}  // namespace
