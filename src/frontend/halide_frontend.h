// Halide Funcs -> Nest. The definition alone is read: Halide schedules on the Funcs are ignored.
#pragma once

#include "nestor/halide.h"
#include "poly/nest/nest.h"

namespace nestor {

/// The nest that the definition denotes. Every definition of a Func becomes a statement per tuple component: the pure one
/// `<func>_init` (just `<func>` when there are no updates), a single update `<func>`, further ones `<func>_1`, `<func>_2`, ...
/// Tensors and dims are in outermost-first order, i.e. reversed. `f(x) += e`, `*=`, min and max forms are reductions.
/// Domains are exact: instances whose results nobody needs do not occur (border corners that would complicate loops aside).
/// Throws UserError naming the Func, the expression and the reason: an index, bound or `where` that is not affine or
/// depends on data; extern definitions; unlisted parameters; types other than f32, f16, bf16, i32; reads outside a
/// declared input; an output whose box is missing or not completely written.
Nest extract_nest(const HalideDefinition& definition);

}  // namespace nestor
