"""Functions of values that are made of others."""

import math

from ..errors import UserError
from .values import (absolute, as_type, as_value, atan, binary, cos, erf, exp, floor, log1p, maximum, minimum, select, sigmoid,
                     sin, tanh, widened)


def shift_right_logical(value, amount):
    """The 32 bits of an integer, seen as an unsigned word, shifted to the right: zeros come in, where value >> amount has the
    sign. Raises UserError for what is no integer."""
    return binary("shift_right_logical", value, amount)


def pow(value, exponent):
    """value ** exponent, of f32 (docs/values.md)."""
    return as_value(value)**exponent


def clamp(value, low=None, high=None):
    """The value within these limits; NaN if one is, and `high` where it is below `low`. Raises UserError without a limit."""
    if low is None and high is None:
        raise UserError("nestor.clamp takes a limit at least: nestor.clamp(x, low, high)")
    value = value if low is None else maximum(value, low)
    return value if high is None else minimum(value, high)


def ceil(value):
    """The smallest integer that is not below the value, in its type."""
    return -floor(-as_value(value))


def round(value):
    """The nearest integer, in the value's type; of two, the even one. Infinities and NaN stay."""
    value = widened(as_value(value))
    if value.type == "i32":
        return value
    size = absolute(value)
    below = floor(size)
    rest, is_odd = size - below, below - 2 * floor(below * 0.5) == 1
    found = select((rest > 0.5) | ((rest == 0.5) & is_odd), below + 1, below)
    return select(value < 0, -found, found)


def sign(value):
    """1, -1 or 0, in the value's type; 0 of NaN, as PyTorch has it."""
    value = widened(as_value(value))
    return as_type(select(value > 0, 1, select(value < 0, -1, 0)), value.type)


def tan(value):
    """sin(value) / cos(value); NaN at infinities, the sign of a zero is kept."""
    return sin(value) / cos(value)


def atan2(y, x):
    """The angle of the point (x, y), from -pi to pi: as C's atan2 at zeros of either sign and at infinities; NaN if one is."""
    y, x = as_type(as_value(y), "f32"), as_type(as_value(x), "f32")
    high, wide = absolute(y), absolute(x)
    angle = select(high == wide, select(high == 0, 0.0, math.pi / 4), atan(high / wide))
    angle = select(_is_negative(x), math.pi - angle, angle)
    return select(_is_negative(y), -angle, angle)


def _is_negative(value):
    """Whether a value has the sign of -0."""
    return (value < 0) | ((value == 0) & (1 / value < 0))


def relu(value):
    """The value where it is positive, else 0; NaN of NaN."""
    return maximum(value, 0)


def silu(value):
    """value * sigmoid(value), as an f32; NaN at -inf, as PyTorch has it."""
    return as_value(value) * sigmoid(value)


def gelu(value, approximate="none"):
    """value * (1 + erf(value / sqrt(2))) / 2, as an f32; NaN at -inf, as PyTorch has it.

    approximate: as in torch, "tanh" for value * (1 + tanh(sqrt(2 / pi) * (value + 0.044715 * value ** 3))) / 2. Raises
    UserError for others than "none" and "tanh"."""
    value = as_type(as_value(value), "f32")
    if approximate == "none":
        return 0.5 * value * (1 + erf(value * math.sqrt(0.5)))
    if approximate != "tanh":
        raise UserError(f"approximate of nestor.gelu must be \"none\" or \"tanh\", not {approximate!r:.100}")
    return 0.5 * value * (1 + tanh(math.sqrt(2 / math.pi) * (value + 0.044715 * (value * value * value))))


def softplus(value):
    """log(1 + exp(value)), as an f32, without overflow: 0 at -inf, inf at inf."""
    value = as_type(as_value(value), "f32")
    return maximum(value, 0.0) + log1p(exp(-absolute(value)))
