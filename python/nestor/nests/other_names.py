"""Names that Python, numpy or PyTorch has, and Nestor has otherwise or not at all: what to write instead."""

import difflib

_EIGHT_BITS = "there are no 8-bit types: an i32 holds four bytes, and byte k is (word >> (8 * k)) & 255"
_TYPES = "the types are f32, f16, bf16, i32 and boolean, and i64 of arguments"
_REMAINDER = "x - y * nestor.floor(x / y), or x % y of integers"
_LOGICAL = "conditions are joined by &, | and ~"
_SHAPES = "a nest reads and writes single elements, as in nestor.define(\"out\", (i, j), x[j, i]), so shapes need no functions"

# For names that Python, numpy or PyTorch has, and Nestor has otherwise.
_OTHERWISE = {
    "abs": "nestor.absolute(x), or abs(x)", "fabs": "nestor.absolute(x)", "arctan": "nestor.atan(x)",
    "arctan2": "nestor.atan2(y, x)", "power": "nestor.pow(x, y), or x ** y", "amax": "nestor.max(x[i], over=i)",
    "amin": "nestor.min(x[i], over=i)", "clip": "nestor.clamp(x, low, high)", "rint": "nestor.round(x)",
    "add": "x + y", "sub": "x - y", "mul": "x * y", "div": "x / y", "neg": "-x", "negative": "-x", "square": "x * x",
    "reciprocal": "1 / x", "trunc": "nestor.sign(x) * nestor.floor(nestor.absolute(x))", "mod": _REMAINDER,
    "remainder": _REMAINDER,
    "log2": "nestor.log(x) / math.log(2)", "log10": "nestor.log(x) / math.log(10)",
    "sinh": "(nestor.expm1(x) - nestor.expm1(-x)) / 2", "cosh": "(nestor.exp(x) + nestor.exp(-x)) / 2", "isnan": "x != x",
    "isinf": "nestor.absolute(x) == math.inf",
    "erfc": "1 - nestor.erf(x)", "logical_and": _LOGICAL, "logical_or": _LOGICAL, "logical_not": _LOGICAL,
    "any": "nestor.max(nestor.select(condition, 1, 0), over=i) == 1",
    "all": "nestor.min(nestor.select(condition, 1, 0), over=i) == 1",
    "matmul": "nestor.sum(a[i, k] * b[k, j], over=k)", "dot": "nestor.sum(a[k] * b[k], over=k)",
    "einsum": "nestor.sum(a[i, k] * b[k, j], over=k)", "cumsum": "nestor.sum(x[k], over=k, where=k <= i)",
    "gather": "nestor.sum(nestor.select(at[i] == k, x[k], 0.0), over=k)",
    "scatter": "nestor.sum(nestor.select(at[j] == i, x[j], 0.0), over=j)",
    "cat": "two writes to one nestor.Tensor", "concat": "two writes to one nestor.Tensor",
    "concatenate": "two writes to one nestor.Tensor", "stack": "two writes to one nestor.Tensor",
    "zeros": "nestor.define(\"name\", i, 0.0)", "arange": "the index itself, nestor.cast(nestor.f32, i)",
    "range": "(i,) = nestor.indices(i=n)", "softmax": "exponentials, divided by their nestor.sum",
    "var": "the nestor.mean of squares of differences from nestor.mean", "std": "the root of such a variance",
    "logsumexp": "top + nestor.log(nestor.sum(nestor.exp(x[k] - top), over=k)) with top = nestor.max(x[k], over=k)",
    "T": _SHAPES, "mT": _SHAPES, "reshape": _SHAPES, "transpose": _SHAPES, "permute": _SHAPES, "view": _SHAPES,
    "i8": _EIGHT_BITS, "u8": _EIGHT_BITS, "int8": _EIGHT_BITS, "uint8": _EIGHT_BITS, "f8": _EIGHT_BITS, "f8e4m3": _EIGHT_BITS,
    "f8e5m2": _EIGHT_BITS, "float8": _EIGHT_BITS, "float32": "nestor.f32", "float16": "nestor.f16", "half": "nestor.f16",
    "bfloat16": "nestor.bf16", "int32": "nestor.i32", "int64": "nestor.i64, of arguments", "bool": "nestor.boolean",
    "f64": _TYPES, "float64": _TYPES, "double": _TYPES, "u32": _TYPES, "uint32": _TYPES, "i16": _TYPES, "int16": _TYPES,
    "dtype": "x.type", "torch": "import nestor.torch", "distributed": "import nestor.distributed",
}  # yapf: disable


def instead_of(name):
    """What to write in a nest for a function, type or method of this name."""
    import nestor

    if name in _OTHERWISE:
        return _OTHERWISE[name]
    if not name.startswith("_") and callable(getattr(nestor, name, None) if name in dir(nestor) else None):
        return f"nestor.{name} does"
    near = difflib.get_close_matches(name, [each for each in dir(nestor) if not each.startswith("_")], 1)
    return f"perhaps nestor.{near[0]}; docs/python_nests.md lists all" if near else "docs/python_nests.md lists the functions"


def types_for(name):
    """Why there is no element type of this name, and which there are."""
    return _EIGHT_BITS if _OTHERWISE.get(name) is _EIGHT_BITS else _TYPES
