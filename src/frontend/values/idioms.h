// Functions that Halide expands into polynomials as soon as they are written, recognised again by their shape.
#pragma once

#include <Halide.h>

#include <optional>

#include "poly/nest/scalar_expr.h"

namespace nestor {

struct Idiom {
  ScalarOp op;  ///< erf, exp (Halide's fast_exp) or log (fast_log)
  Halide::Expr argument;
};

/// The function that `expr`, free of Lets, is Halide's expansion of. The nest then holds the exact function: it is at least
/// as accurate as the expansion, and the back ends choose their own approximation.
std::optional<Idiom> recognize_idiom(const Halide::Expr& expr);

}  // namespace nestor
