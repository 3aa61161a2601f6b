"""Values: the right-hand sides of statements, as trees that operators and functions build.

A Value has an element type: f32, f16, bf16, i32 or bool. Arithmetic promotes: f16 and bf16 to f32 (there is no arithmetic in 16
bits), i32 to f32 beside it, Python numbers to the other side's type. Integers that are affine in indices stay exact: their
comparisons are conditions that isl understands.
"""

import functools
import math
import struct

from ..errors import UserError
from .affine import FALSE, TRUE, Affine, Condition, both, either
from .model import TYPES
from .other_names import types_for
from .piecewise import comparison
from .symbolic import Symbolic
from .value_text import text_of

NARROW = ("f16", "bf16")
_UNARY = ("neg", "abs", "exp", "exp2", "log", "sqrt", "rsqrt", "tanh", "erf", "floor", "sin", "cos", "log1p", "expm1", "atan")
_INTEGER_UNARY = ("neg", "abs", "floor")


class Value(Symbolic):
    """A node. op: one of docs/nest.md's, or "condition" (payload: a Condition), "index" (an Affine), "read" (a tensor and its
    indices; args: none, or the condition under which alone the element is there), "reduce" (a Reduction, until it has a tensor of
    its own), "constant" (a number), "scalar" (a Scalar)."""

    __slots__ = ("op", "type", "args", "payload", "__weakref__")
    __hash__ = object.__hash__

    def __init__(self, op, kind, args=(), payload=None):
        self.op, self.type, self.args, self.payload = op, kind, tuple(args), payload

    def with_args(self, args):
        """The same of other arguments; itself where they are its own."""
        same = all(one is other for one, other in zip(args, self.args))
        return self if same else Value(self.op, self.type, args, self.payload)

    @property
    def affine(self):
        """The Affine that this integer is; None for others. What `affine()` and indexing understand."""
        if self.op == "index":
            return self.payload
        if self.op == "constant" and self.type == "i32":
            return Affine((), int(self.payload))
        return None

    @property
    def condition(self):
        """The Condition that this is; None where it depends on data."""
        return self.payload if self.op == "condition" else None

    def __add__(self, other):
        return binary("add", self, other)

    def __radd__(self, other):
        return binary("add", other, self)

    def __sub__(self, other):
        return binary("sub", self, other)

    def __rsub__(self, other):
        return binary("sub", other, self)

    def __mul__(self, other):
        return binary("mul", self, other)

    def __rmul__(self, other):
        return binary("mul", other, self)

    def __truediv__(self, other):
        return binary("div", as_type(self, "f32"), as_type(as_value(other), "f32"))

    def __rtruediv__(self, other):
        return as_value(other) / self

    def __floordiv__(self, other):
        return _integer_quotient(self, as_value(other))

    def __rfloordiv__(self, other):
        return _integer_quotient(as_value(other), self)

    def __mod__(self, other):
        other = as_value(other)
        return self - _integer_quotient(self, other) * other

    def __rmod__(self, other):
        return as_value(other) % self

    def __pow__(self, other):
        return binary("pow", as_type(self, "f32"), as_type(as_value(other), "f32"))

    def __rpow__(self, other):
        return as_value(other)**self

    def __pos__(self):
        return self

    def __neg__(self):
        return unary("neg", self)

    def __abs__(self):
        return unary("abs", self)

    def __lt__(self, other):
        return compare("lt", self, other)

    def __le__(self, other):
        return compare("le", self, other)

    def __gt__(self, other):
        return compare("lt", other, self)

    def __ge__(self, other):
        return compare("le", other, self)

    def __eq__(self, other):
        return compare("eq", self, other)

    def __ne__(self, other):
        return ~compare("eq", self, other)

    def __and__(self, other):
        return _logic("and", "bit_and", self, other)

    __rand__ = __and__

    def __or__(self, other):
        return _logic("or", "bit_or", self, other)

    __ror__ = __or__

    def __xor__(self, other):
        other = as_value(other)
        return ~_same(self, other) if self.type == other.type == "bool" else binary("bit_xor", self, other)

    __rxor__ = __xor__

    def __lshift__(self, other):
        return binary("shift_left", self, other)

    def __rlshift__(self, other):
        return binary("shift_left", other, self)

    def __rshift__(self, other):
        from .shifts import shift_right  # which makes values

        return shift_right(self, other)

    def __rrshift__(self, other):
        from .shifts import shift_right

        return shift_right(other, self)

    def __round__(self, digits=None):
        if digits is not None:
            raise UserError("round takes no digits here: nestor.round(x * 100) / 100")
        from .functions import round as rounded

        return rounded(self)

    def __floor__(self):
        return floor(self)

    def __ceil__(self):
        return -floor(-self)

    def __invert__(self):
        if self.type != "bool":
            raise UserError("~ inverts conditions; for the bits of an integer use -x - 1")
        return from_condition(~self.payload) if self.op == "condition" else Value("not", "bool", (self,))

    def __bool__(self):
        raise UserError("a value has no truth value while the nest is written: join conditions with &, | and ~. In place of "
                        "if, max and min of Python: nestor.select(condition, then, otherwise), nestor.maximum(a, b), "
                        "nestor.minimum(a, b)")

    def __getattr__(self, name):
        raise AttributeError(f"a value of a nest has no {name}: functions are Nestor's, as in nestor.exp(x), and casts are "
                             "nestor.cast(nestor.f16, x)")

    def __repr__(self):
        return text_of(self)


def nodes_of(value, reduced=False):
    """Every node of a value once, parents first. reduced: also those of what its reductions reduce."""
    seen, waiting = {}, [value]
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            waiting += reversed(node.args)
            if reduced and node.op == "reduce":
                waiting.append(node.payload.value)
    return list(seen.values())


def rewritten(value, change):
    """change(value, again), where again(node) is what becomes of a node below it: each node is changed once."""
    done = {}

    def again(node):
        if id(node) not in done:
            done[id(node)] = change(node, again)
        return done[id(node)]

    return again(value)


def constant(number, kind=None):
    """A number as a Value. Of f32, it is rounded to f32, as constants of nests are."""
    if kind is None:
        kind = "bool" if isinstance(number, bool) else "i32" if isinstance(number, int) else "f32"
    if kind == "bool":
        return from_condition(TRUE if number else FALSE)
    if kind == "i32":
        if not -2**31 <= number < 2**31 or int(number) != number:
            raise UserError(f"{number} is no 32-bit integer")
        return Value("constant", kind, payload=int(number))
    return Value("constant", "f32", payload=round_f32(float(number)))


def round_f32(number):
    """The number of f32 nearest to it."""
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def from_affine(form):
    """An Affine as an integer Value."""
    return constant(form.constant, "i32") if form.is_constant and abs(form.constant) < 2**31 else Value(
        "index", "i32", payload=form)


def from_condition(condition):
    return Value("condition", "bool", payload=condition)


def as_value(found):
    """Numbers, Sizes, Affines and Conditions as Values. Raises UserError for anything else."""
    if isinstance(found, Value):
        return found
    if isinstance(found, (bool, int, float)):
        return constant(found)
    if isinstance(found, Condition):
        return from_condition(found)
    if isinstance(found, Affine):
        return from_affine(found)
    converted = getattr(found, "value", None)
    if isinstance(converted, Value):
        return converted
    if hasattr(found, "__float__") and not hasattr(found, "shape"):
        return constant(float(found))
    number = found.item() if hasattr(found, "__array_interface__") and found.shape == () else None  # of numpy
    if isinstance(number, (bool, int, float)):
        return constant(number)
    raise UserError(f"a {type(found).__name__} is no value of a nest; tensors are read element by element, as x[i, j]")


def as_type(value, kind):
    """The value cast to a type, where it has another."""
    if value.type == kind:
        return value
    if value.op == "constant" and kind in ("f32", "i32"):
        return constant(value.payload if kind == "f32" else int(value.payload), kind)
    if value.condition in (TRUE, FALSE):
        return constant(1 if value.condition == TRUE else 0, "i32") if kind == "i32" else constant(
            float(value.condition == TRUE), "f32")
    if kind == "bool":
        return value != 0
    return Value("cast", kind, (value,))


def widened(value):
    """The value in a type that has arithmetic: 16 bits as f32."""
    return as_type(value, "f32") if value.type in NARROW else value


def unify(a, b):
    """Both operands in the type that their arithmetic has."""
    a, b = widened(as_value(a)), widened(as_value(b))
    if "bool" in (a.type, b.type):
        raise UserError("a condition is no number: choose one with nestor.select(condition, 1, 0)")
    if a.type != b.type:
        a, b = as_type(a, "f32"), as_type(b, "f32")
    return a, b


def binary(op, a, b):
    """An operation of two arguments, in their common type. Raises UserError."""
    a, b = unify(a, b)
    if a.type == "i32" and a.affine is not None and b.affine is not None:
        folded = _affine_operation(op, a.affine, b.affine)
        if folded is not None:
            return from_affine(folded)
    if op.startswith(("bit_", "shift_", "mul_high")) and a.type != "i32":
        raise UserError(f"{op} works on i32, not on {a.type}")
    return Value(op, a.type, (a, b))


def _affine_operation(op, a, b):
    if op == "add":
        return a + b
    if op == "sub":
        return a - b
    if op == "mul" and (a.is_constant or b.is_constant):
        return a * b
    if op == "div" and b.is_constant and b.constant > 0:
        return a // b
    return None


def _integer_quotient(a, b):
    if a.type != "i32" or b.type != "i32":
        raise UserError("// and % are for integers; of f32, use nestor.floor(a / b)")
    return binary("div", a, b)


def unary(op, value):
    """A function of one argument: 16 bits and, but for neg, abs and floor, integers are cast to f32."""
    value = widened(as_value(value))
    if value.type == "bool":
        raise UserError(f"{op} of a condition: choose a number with nestor.select first")
    if value.affine is not None and op == "neg":
        return from_affine(-value.affine)
    return Value(op, value.type, (value,)) if value.type == "f32" or op in _INTEGER_UNARY else unary(op, as_type(value, "f32"))


def compare(op, a, b):
    """lt, le or eq as a Value of type bool: a Condition where both sides are affine. eq is of two conditions, too."""
    a, b = as_value(a), as_value(b)
    if op == "eq" and a.type == b.type == "bool":
        return _same(a, b)
    a, b = unify(a, b)
    if a.affine is not None and b.affine is not None:
        left, right = a.affine, b.affine
        return from_condition(left < right if op == "lt" else left <= right if op == "le" else left.equals(right))
    found = comparison(op, a, b) if a.type == "i32" and not _has_data(a, b) else None
    if found is not None:
        return from_condition(found)
    return Value(op, "bool", (a, b))


def _same(a, b):
    """Whether both conditions hold, or neither."""
    return (a & b) | (~a & ~b)


def _has_data(*values):
    """Whether values depend on more than indices and sizes."""
    return any(node.op in ("read", "scalar", "reduce") for value in values for node in nodes_of(value))


def _logic(op, bits, a, b):
    a, b = as_value(a), as_value(b)
    if a.type != "bool" or b.type != "bool":
        if "bool" in (a.type, b.type):
            raise UserError("& and | join two conditions, or the bits of two integers")
        from .shifts import masked  # which makes values

        return masked(a, b) if op == "and" else binary(bits, a, b)
    absorbing, neutral = (FALSE, TRUE) if op == "and" else (TRUE, FALSE)
    for one, other in ((a, b), (b, a)):
        if one.condition == absorbing or other.condition == neutral:
            return one
    if a.condition is not None and b.condition is not None:
        return from_condition(both(a.condition, b.condition) if op == "and" else either(a.condition, b.condition))
    return Value(op, "bool", (a, b))


def select(condition, then, otherwise, guards=True):
    """`then` where the condition holds, else `otherwise`: the other side is not evaluated. guards: what either side reads need
    not be there where it is not chosen, if the condition is affine; False says that it is, which leaves relations simpler."""
    condition = as_type(as_value(condition), "bool")
    if condition.condition in (TRUE, FALSE):
        return as_value(then if condition.condition == TRUE else otherwise)
    then, otherwise = as_value(then), as_value(otherwise)
    if then.type == otherwise.type == "bool":
        return (condition & then) | (~condition & otherwise)
    then, otherwise = unify(then, otherwise)
    return Value("select", then.type, (condition, then, otherwise), guards)


def cast(kind, value):
    """The value as another element type: to 16 bits it is rounded, to i32 taken towards zero. Raises UserError for other types
    than f32, f16, bf16, i32 and boolean."""
    if isinstance(kind, (Symbolic, int, float)):
        raise UserError("nestor.cast takes the type first: nestor.cast(nestor.i32, x)")
    name = type_name(kind)
    if name not in TYPES or name == "i64":
        raise UserError(f"a cast makes f32, f16, bf16, i32 or boolean, not {name}: {types_for(name)}")
    return as_type(as_value(value), name)


def type_name(kind):
    """What nest files call an element type, which is given as nestor.f32 or by name. Text for what is none."""
    name = str(getattr(kind, "name", kind))
    return "bool" if name == "boolean" else name


def _function(op):
    def function(value):
        return unary(op, value)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"{op} of a value (docs/values.md); 16 bits and integers are cast to f32."
    return function


def sigmoid(value):
    """1 / (1 + exp(-value))."""
    return 1 / (1 + exp(-as_value(value)))


exp, exp2, log, sqrt, rsqrt, tanh, erf, floor, sin, cos, log1p, expm1, atan = (_function(op) for op in _UNARY[2:])


def absolute(value):
    """The magnitude of a value."""
    return unary("abs", value)


def maximum(a, b, *more):
    """The largest of values; NaN if one is."""
    return functools.reduce(lambda x, y: binary("max", x, y), more, binary("max", a, b))


def minimum(a, b, *more):
    """The smallest of values; NaN if one is."""
    return functools.reduce(lambda x, y: binary("min", x, y), more, binary("min", a, b))


def mul_high_unsigned(a, b):
    """The upper half of the 64-bit product of two unsigned 32-bit words."""
    return binary("mul_high_unsigned", a, b)
