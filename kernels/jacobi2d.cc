// Five-point Jacobi iteration on a grid with a fixed border; every time step keeps its own plane.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition jacobi2d(const std::string& variant) {
  Param<int> width("width"), height("height"), steps("steps");
  ImageParam start(Float(32), 2, "start");
  Var x("x"), y("y"), t("t");
  RDom later(1, steps, "later");
  RDom inner(1, width - 2, 1, height - 2, 1, steps, "inner");
  Func grid("grid"), out("out");
  grid(x, y, t) = undef<float>();
  grid(x, y, 0) = start(x, y);
  grid(0, y, later) = start(0, y);
  grid(width - 1, y, later) = start(width - 1, y);
  grid(x, 0, later) = start(x, 0);
  grid(x, height - 1, later) = start(x, height - 1);
  const Expr before = inner.z - 1;
  grid(inner.x, inner.y, inner.z) =
      0.2f * (grid(inner.x, inner.y, before) + grid(inner.x - 1, inner.y, before) + grid(inner.x + 1, inner.y, before) +
              grid(inner.x, inner.y - 1, before) + grid(inner.x, inner.y + 1, before));
  out(x, y) = grid(x, y, steps);
  return {.outputs = {{out, {width, height}}},
          .inputs = {{start, {width, height}}},
          .sizes = {{.param = width, .default_value = 1024, .min = 3},
                    {.param = height, .default_value = 1024, .min = 3},
                    {steps, 16}},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-5)};
}

NESTOR_OPERATOR(jacobi2d, jacobi2d, "f32");
}  // namespace
