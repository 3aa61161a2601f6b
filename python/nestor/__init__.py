"""Tuned kernels from Nestor, and operators of one's own written in Python.

    import nestor
    kernel = nestor.Library().query("rmsnorm", "f32", {"rows": 64, "width": 1024})
    kernel(x, weight, out, eps=1e-6)      # numpy arrays, PyTorch tensors, anything with DLPack or an array interface

    @nestor.nest
    def scaled(x: nestor.f32[rows, width], factor=2.0):
        return nestor.define("out", (i, c), x[i, c] * factor)
    nestor.tune(scaled, {"rows": 64}, time=5)(x, out)

Launching needs libnestor_runtime.so.0 and nothing else, tuning the nestor program; `import nestor.torch` adds operators for
PyTorch.
"""

from .errors import DeviceError, Error, InternalError, NotFound, UserError
from .library import Kernel, Library
from .nests.affine import NotAffine
from .nests.author import nest
from .nests.definitions import Index, Scalar, Size, Tensor, bf16, boolean, define, f16, f32, i32, i64, indices
from .nests.evaluate import evaluate
from .nests.functions import (atan2, ceil, clamp, gelu, pow, relu, round, shift_right_logical, sign, silu, softplus, tan)
from .nests.model import Nest
from .nests.other_names import instead_of as _instead_of
from .nests.reductions import argmax, argmin, max, mean, min, prod, sum
from .nests.steps import steps
from .nests.values import (absolute, atan, cast, cos, erf, exp, exp2, expm1, floor, log, log1p, maximum, minimum,
                           mul_high_unsigned, rsqrt, select, sigmoid, sin, sqrt, tanh)
from .tuning import Measurement, Tuning, Verification, bench, kernel, show, tune, verify

where = select

__all__ = [
    "DeviceError", "Error", "Index", "InternalError", "Kernel", "Library", "Measurement", "Nest", "NotAffine", "NotFound",
    "Scalar", "Size", "Tensor", "Tuning", "UserError", "Verification", "bench", "bf16", "boolean", "define", "evaluate", "f16",
    "f32", "i32", "i64", "indices", "kernel", "nest", "show", "steps", "tune", "verify"
]
__version__ = "0.1.0"


def __getattr__(name):
    remedy = "" if name.startswith("_") else f": {_instead_of(name)}"
    raise AttributeError(f"module 'nestor' has no attribute '{name}'{remedy}")
