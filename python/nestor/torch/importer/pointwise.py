"""Pointwise ops: a table from op to the value of an element."""

import dataclasses
import functools
import math
import operator

import torch

from ...nests import values as v
from ...nests.functions import gelu
from ...nests.values import (absolute, as_type, atan, cast, constant, cos, erf, exp, exp2, expm1, floor, log, log1p, maximum,
                             minimum, rsqrt, select, sin, sqrt, tanh)
from .exact import HIGH
from .extents import Unsupported
from .lazy import FLOATS, INTEGERS, Lazy, as_number, conform, pointwise
from .table import op


def lift(context, x):
    """An operand as a Lazy: numbers and sizes too."""
    if isinstance(x, Lazy):
        return x
    value = context.value(x)
    return Lazy((), {"bool": torch.bool, "i32": torch.int64}.get(value.type, torch.float32), lambda indices: value, 0, False)


def apply(context, function, *operands, dtype=None):
    return pointwise(function, [lift(context, x) for x in operands], dtype or context.dtype, context.builder, context.name)


def _unary(*names, note=""):
    def register(function):
        @op(*names, kind="pointwise", note=note)
        def convert(context, x, *args, **kwargs):
            return apply(context, lambda value: function(as_number(value), *args, **kwargs), x)
        return function
    return register


def _binary(*names, note=""):
    def register(function):
        @op(*names, kind="pointwise", note=note)
        def convert(context, x, y, **kwargs):
            return apply(context, lambda a, b: function(as_number(a), as_number(b), **kwargs), x, y)
        return function
    return register


def sigmoid(x):
    """1 / (1 + exp(-x))"""
    return 1 / (1 + exp(-real(x)))


def real(x):
    """A number of f32."""
    return as_type(x, "f32")


def softplus(x, beta=1, threshold=20):
    scaled = real(x) * beta
    return select(scaled > threshold, x, log1p(exp(scaled)) / beta)


def _half_exp(x):
    """exp(|x|) / 2, also where exp(|x|) is beyond f32."""
    root = exp(0.5 * absolute(real(x)))
    return (0.5 * root) * root


def sinh(x):
    """Of small numbers by expm1, as exponentials cancel."""
    x = real(x)
    large = select(x < 0, -_half_exp(x), _half_exp(x))
    return select(absolute(x) > _LARGE, large, 0.5 * (expm1(x) - expm1(-x)))


_LARGE = 40  # exp(-40) is less than the last bit of exp(40)

for _name, _function in {
        "abs": absolute,
        "exp": exp,
        "exp2": exp2,
        "log": log,
        "sqrt": sqrt,
        "rsqrt": rsqrt,
        "tanh": tanh,
        "erf": erf,
        "sin": sin,
        "cos": cos,
        "tan": lambda x: sin(x) / cos(x),
        "log1p": log1p,
        "expm1": expm1,
        "atan": atan,
        "neg": lambda x: -x,
        "floor": floor,
        "ceil": lambda x: -floor(-x),
        "sigmoid": sigmoid,
        "reciprocal": lambda x: 1 / real(x),
        "square": lambda x: x * x,
        "relu": lambda x: select(x < 0, 0, x),
        "silu": lambda x: x * sigmoid(x),
        "trunc": lambda x: select(x < 0, -floor(-x), floor(x)),
        "mish": lambda x: x * tanh(softplus(x)),
        "log_sigmoid": lambda x: -softplus(-x),
        "hardsigmoid": lambda x: minimum(maximum(x + 3, 0), 6) / 6,
        "hardswish": lambda x: x * minimum(maximum(x + 3, 0), 6) / 6,
        "sinh": sinh,
        "cosh": lambda x: _half_exp(x) + 0.25 / _half_exp(x),
        "frac": lambda x: x - select(x < 0, -floor(-x), floor(x)),
        "relu6": lambda x: minimum(maximum(x, 0), 6),
        "deg2rad": lambda x: x * (math.pi / 180),
        "sign": lambda x: select(x > 0, 1, select(x < 0, -1, 0)),
        "isnan": lambda x: ~(x == x) if x.type == "f32" else v.as_value(False),
        "isinf": lambda x: absolute(x) == math.inf if x.type == "f32" else v.as_value(False),
}.items():
    _unary(f"aten.{_name}.default")(_function)

_unary("aten.gelu.default")(gelu)
_unary("aten.softplus.default")(softplus)
_unary("aten.leaky_relu.default")(lambda x, slope=0.01: select(x > 0, x, x * slope))
_unary("aten.elu.default")(
    lambda x, alpha=1, scale=1, input_scale=1: select(x > 0, x * scale, expm1(x * input_scale) * (alpha * scale)))
_unary("aten.hardtanh.default")(lambda x, low=-1, high=1: minimum(maximum(x, low), high))
_binary("aten.mul.Tensor", "aten.mul.Scalar", note="of 64-bit integers, where affine")(lambda x, y: x * y)
_binary("aten.add.Tensor", "aten.add.Scalar")(lambda x, y, alpha=1: x + (y if alpha == 1 else y * alpha))
_binary("aten.sub.Tensor", "aten.sub.Scalar")(lambda x, y, alpha=1: x - (y if alpha == 1 else y * alpha))
_binary("aten.rsub.Tensor", "aten.rsub.Scalar")(lambda x, y, alpha=1: y - (x if alpha == 1 else x * alpha))
_binary("aten.maximum.default")(maximum)
_binary("aten.minimum.default")(minimum)
_binary("aten.div.Tensor", "aten.div.Scalar")(lambda x, y: real(x) / real(y))


@op("aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.floor_divide.default", "aten.floor_divide.Scalar", kind="pointwise",
    note="of 64-bit integers, of affine ones by positive constants; of floats, not rounded down")
def div_mode(context, x, y, rounding_mode="floor"):
    def divided(a, b):
        a, b = as_number(a), as_number(b)
        if rounding_mode is not None and a.type == b.type == "i32":
            return a // b if rounding_mode == "floor" else _towards_zero(a, b)
        if rounding_mode == "floor":
            raise Unsupported("floats divided and rounded down, of which PyTorch takes the exact quotient")
        quotient = real(a) / real(b)
        return quotient if rounding_mode is None else select(quotient < 0, -floor(-quotient), floor(quotient))
    return apply(context, divided, x, y)


def _towards_zero(a, b):
    """The quotient of integers by a constant, which // rounds down; no step of it leaves 32 bits."""
    divisor = b.affine.constant if b.affine is not None and b.affine.is_constant else 0
    size = abs(divisor)
    if not 0 < size <= HIGH:
        raise Unsupported("integers divided towards zero by what is no constant")
    quotient = select(a < 0, (a + (size - 1)) // size, a // size)
    return -quotient if divisor < 0 else quotient


@op("aten.remainder.Scalar",
    "aten.remainder.Tensor",
    kind="pointwise",
    note="integers; of 64-bit ones, of affine ones by positive constants")
def remainder(context, x, y):
    def rest(a, b):
        a, b = as_number(a), as_number(b)
        if not a.type == b.type == "i32":
            raise Unsupported("remainders of floats, which are exact in PyTorch")
        return a % b
    return apply(context, rest, x, y)


@op("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", kind="pointwise")
def clamp(context, x, low=None, high=None):
    def clamped(value, *limits):
        limits = list(limits)
        value = as_number(value)
        value = maximum(value, limits.pop(0)) if low is not None else value
        return minimum(value, limits.pop(0)) if high is not None else value
    return apply(context, clamped, x, *(limit for limit in (low, high) if limit is not None))


@op("aten.clamp_min.default", "aten.clamp_min.Tensor", kind="pointwise")
def clamp_min(context, x, low):
    return clamp(context, x, low)


@op("aten.clamp_max.default", "aten.clamp_max.Tensor", kind="pointwise")
def clamp_max(context, x, high):
    return clamp(context, x, None, high)


@op("aten.pow.Tensor_Scalar", kind="pointwise", note="of integers, small constant exponents; these by products")
def pow_scalar(context, x, power):
    of = (lambda value: value) if context.dtype in INTEGERS else real
    return apply(context, lambda value: _power(of(as_number(value)), power), x)


@op("aten.pow.Tensor_Tensor", "aten.pow.Scalar", kind="pointwise", note="floats")
def pow_tensor(context, x, y):
    if context.dtype not in FLOATS:
        raise Unsupported("powers of integers")
    return apply(context, lambda a, b: real(as_number(a)) ** real(as_number(b)), x, y)


_MOST_FACTORS = 8  # of a power of integers


def _power(x, power):
    if x.type == "i32":
        if not 0 <= power <= _MOST_FACTORS:
            raise Unsupported("powers of integers with exponents that are negative or large")
        return functools.reduce(operator.mul, [x] * power) if power else constant(1)
    if power == 2 or power == 3:
        return x * x if power == 2 else x * x * x
    if power == 0.5:
        return sqrt(x)
    if power == -0.5:
        return rsqrt(x)
    if power == 1:
        return x
    return 1 / x if power == -1 else x ** float(power)


for _name, _function in {
        "eq": lambda a, b: a == b,
        "ne": lambda a, b: ~(a == b),
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
        "gt": lambda a, b: b < a,
        "ge": lambda a, b: b <= a
}.items():
    _binary(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar", note="affine conditions of indices and sizes")(_function)


def _condition(function):
    def combined(*values):
        return function(*(as_type(value, "bool") for value in values))
    return combined


for _name, _function in {"logical_and": lambda a, b: a & b, "logical_or": lambda a, b: a | b,
                         "logical_xor": lambda a, b: (a & ~b) | (~a & b)}.items():
    op(f"aten.{_name}.default", kind="pointwise", note="conditions stay affine")(
        lambda context, x, y, function=_condition(_function): apply(context, function, x, y))
op("aten.logical_not.default", kind="pointwise", note="conditions stay affine")(
    lambda context, x: apply(context, _condition(lambda a: ~a), x))


def _bits(function):
    def combined(a, b):
        return function(a, b) if a.type == b.type else function(as_number(a), as_number(b))
    return combined


@op("aten.bitwise_not.default", kind="pointwise", note="conditions stay affine")
def bitwise_not(context, x):
    return apply(context, lambda a: ~a if a.type == "bool" else -a - 1, x)


for _name, _function in {"and": lambda a, b: a & b, "or": lambda a, b: a | b,
                         "xor": lambda a, b: (a & ~b) | (~a & b) if a.type == "bool" else a ^ b}.items():
    op(f"aten.bitwise_{_name}.Tensor", f"aten.bitwise_{_name}.Scalar", kind="pointwise", note="conditions stay affine")(
        lambda context, x, y, function=_bits(_function): apply(context, function, x, y))


@op("aten.where.self", "aten.where.Scalar", "aten.where.ScalarSelf", "aten.where.ScalarOther", kind="pointwise",
    note="affine conditions stay conditions")
def where(context, condition, x, y):
    return apply(context, lambda c, a, b: select(c, conform(a, context.dtype), conform(b, context.dtype), False), condition, x, y)


@op("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", kind="pointwise", note="affine conditions stay conditions")
def masked_fill(context, x, mask, value):
    return where(context, mask, value, x)


@op("aten.addcmul.default", kind="pointwise")
def addcmul(context, x, first, second, value=1):
    return apply(context, lambda a, b, c: a + b * c * value, x, first, second)


@op("aten.addcdiv.default", kind="pointwise")
def addcdiv(context, x, first, second, value=1):
    return apply(context, lambda a, b, c: a + real(b) / real(c) * value, x, first, second)


@op("aten.lerp.Scalar", "aten.lerp.Tensor", kind="pointwise")
def lerp(context, x, end, weight):
    return apply(context, lambda a, b, w: a + w * (b - a), x, end, weight)


@op("aten._to_copy.default", "aten.to.dtype", "prims.convert_element_type.default", kind="pointwise",
    note="between floats it does not round inside a nest, as in Inductor; to i32, and to other integers what plainly fits")
def to_copy(context, x, *_, **__):
    if context.dtype == x.dtype or {context.dtype, x.dtype} <= set(FLOATS):
        return dataclasses.replace(x, dtype=context.dtype, leaf=None)
    return Lazy(x.dims, context.dtype, lambda indices: _converted(x.element(indices), context.dtype), x.cost, x.data)


def _converted(value, dtype):
    if value.type == "f32" and dtype not in (torch.bool, *FLOATS):
        value = cast("i32", value)
    return conform(value, dtype)


def backward(context, function, *operands):
    """The gradient of a pointwise function, as one."""
    return apply(context, lambda *values: function(*map(as_number, values)), *operands)


@op("aten.tanh_backward.default", kind="pointwise")
def tanh_backward(context, gradient, y):
    return backward(context, lambda g, a: g * (1 - a * a), gradient, y)


@op("aten.sigmoid_backward.default", kind="pointwise")
def sigmoid_backward(context, gradient, y):
    return backward(context, lambda g, a: g * ((1 - a) * a), gradient, y)


@op("aten.threshold_backward.default", kind="pointwise")
def threshold_backward(context, gradient, x, threshold):
    return backward(context, lambda g, a: select(a <= threshold, 0, g), gradient, x)


@op("aten.silu_backward.default", kind="pointwise")
def silu_backward(context, gradient, x):
    return backward(context, lambda g, a: g * sigmoid(a) * (1 + a * (1 - sigmoid(a))), gradient, x)


@op("aten.gelu_backward.default", kind="pointwise")
def gelu_backward(context, gradient, x, approximate="none"):
    def slope(g, a):
        if approximate == "tanh":
            inner = tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * (a * a * a)))
            growth = (1 - inner * inner) * (math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * (a * a)))
            return g * (0.5 * (1 + inner) + 0.5 * a * growth)
        return g * (0.5 * (1 + erf(a * math.sqrt(0.5))) + a * exp(a * a * -0.5) * (1 / math.sqrt(2 * math.pi)))
    return backward(context, slope, gradient, x)
