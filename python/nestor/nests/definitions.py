"""What authors write nests with: sizes, indices and tensors (reductions.py has what is summed up over indices). `assemble` makes a
Nest of them.

    rows, width = nestor.Size("rows", 4096), nestor.Size("width", 1024, fixed=True)
    i, c, k = nestor.indices(i=rows, c=width, k=width)
    mean = nestor.define("mean", i, nestor.sum(x[i, k], over=k) / width)

A tensor is defined at every point of its indices' ranges, or of those where `where` holds. Statements run in the order in which
they are written.
"""

import itertools
import math
import operator
import re
from typing import NamedTuple, Optional, Tuple, Union

from .. import capi
from ..errors import UserError
from .affine import TRUE, Affine, Condition, NotAffine, affine, both
from .model import REDUCTIONS, TYPES
from .other_names import instead_of, types_for
from .symbolic import Symbolic, Valued, forward
from .value_text import nodes_within, why_no_condition
from .values import Value, as_type, as_value, cast, from_affine, round_f32, type_name

_numbers = itertools.count()  # orders indices as they are made
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_RESERVED = {
    "and", "or", "not", "exists", "implies", "mod", "floor", "floord", "ceil", "ceild", "min", "max", "rat", "true", "false",
    "infty", "infinity", "nan", "int", "le", "ge", "lt", "gt"
}  # words of isl's notation


def check_name(name, what):
    """Raises UserError unless the nest format and isl's notation take the name."""
    _check_identifier(name, what)
    if name.lower() in _RESERVED:
        raise UserError(f"{name!r} cannot name a {what}: it is a word of isl's notation")
    return name


def _check_identifier(name, what):
    if not isinstance(name, str) or not _NAME.match(name):
        raise UserError(f"{name!r} does not name a {what}: use letters, digits and _")


def number_of(value, kind, what):
    """The value, a number that an f32 or i32 holds. Raises UserError for another one, or what is none."""
    number = _python_number(value)
    if number is None:
        raise UserError(f"{what} must be a number, not {capi.shown(value)}")
    whole = kind == "i32"
    if math.isnan(number) or (whole and not (abs(number) < 2**31 and number == int(number))):
        raise UserError(f"{what} must be a number of {kind}, not {capi.shown(value)}")
    if not whole and math.isfinite(number) and math.isinf(round_f32(number)):
        raise UserError(f"{what} must be a number of f32, not {capi.shown(value)}")
    return number


def _python_number(value):
    """An int or a float of what is one, of numpy too; None of others, and of an int that no float holds."""
    if isinstance(value, (str, bool, Symbolic)):
        return None
    for convert in (operator.index, float):
        try:
            number = convert(value)
            float(number)
            return number
        except (TypeError, ValueError, OverflowError):
            pass
    return None


def _integer_of(value, what):
    """The value, an integer of 64 bits. Raises UserError for another one, or what is none."""
    if isinstance(value, Symbolic):
        raise UserError(f"{what} must be an integer, not {value!r}, which has no number while the nest is written")
    return capi.integer(value, what)


def checked_tolerance(value, what):
    """A tolerance that is given. Raises UserError for what is none."""
    number = _python_number(value)
    if number is None or not 0 <= number < math.inf:
        raise UserError(f"the tolerance of {what} must be a finite number that is not negative, not {capi.shown(value)}")
    return float(number)


class _Integer(Valued):
    """An integer that is affine by itself; arithmetic makes Values of it."""

    affine: Affine

    @property
    def value(self):
        return from_affine(self.affine)


forward(_Integer, "eq", "ne", "bool")
_Integer.__hash__ = object.__hash__


class Variable(str):
    """The name of an Index or a Size inside an Affine; `owner` is that Index or Size."""

    __slots__ = ("owner",)


def _variable(owner):
    name = Variable(owner.name)
    name.owner = owner
    return Affine.variable(name)


class Size(_Integer):
    """A size of the nest, named as in `tune(nest, {"rows": 4096})`.

    default: what tuning takes when none is given. fixed: set when a kernel is compiled (a head size), else given at launch (a
    batch). min, max: limits of what callers may give; max None: none.
    """

    def __init__(self, name, default=1024, *, fixed=False, min=1, max=None):
        self.name, self.fixed = check_name(name, "size"), fixed
        if not isinstance(fixed, bool):
            raise UserError(f"size {name}: fixed must be True or False, not {fixed!r:.100}")
        self.default, self.min = _integer_of(default, f"size {name}: its default"), _integer_of(min, f"size {name}: its min")
        self.max = None if max is None else _integer_of(max, f"size {name}: its max")
        if max is not None and self.max < self.min:
            raise UserError(f"size {name}: its max must be at least its min, {self.min}, not {self.max}")
        self.affine = _variable(self)

    def __repr__(self):
        return self.name


class Index(_Integer):
    """An index from 0 up to an extent, an Affine of sizes. One loop of every statement that uses it."""

    def __init__(self, name, extent):
        self.name, self.extent, self.number = check_name(name, "index"), affine(extent), next(_numbers)
        self.affine = _variable(self)

    @property
    def range(self):
        """The condition that the index is within its extent."""
        return both(self.affine >= 0, self.affine < self.extent)

    def __repr__(self):
        return f"{self.name} < {self.extent}"


def indices(*unnamed, **extents):
    """Indices by name and extent, in this order: i, c = indices(i=rows, c=width)."""
    if unnamed:
        raise UserError(f"nestor.indices takes extents by name, as (i, ) = nestor.indices(i={unnamed[0]!r:.100})")
    return tuple(Index(name, extent) for name, extent in extents.items())


class ElementType:
    """A type of elements: f32[rows, width] is a tensor's type."""

    def __init__(self, name):
        self.name = name

    def __getitem__(self, shape):
        return TensorType(self.name, tuple(affine(extent) for extent in (shape if isinstance(shape, tuple) else (shape,))))

    def __call__(self, value):
        return cast(self, value)

    def __repr__(self):
        return self.name


class TensorType(NamedTuple):
    """Element type and extents of a tensor argument."""
    type: str
    shape: Tuple[Affine, ...]


f32, f16, bf16, i32, boolean, i64 = (ElementType(name) for name in TYPES)


class Scalar(Valued):
    """A scalar argument. min, max: limits of what callers may give, which rules of algebra rely on. type: f32 or i32."""

    def __init__(self, default=0.0, *, min=None, max=None, type=None, name=None):
        self.type = getattr(type, "name", type) or ("i32" if isinstance(_python_number(default), int) else "f32")
        if self.type not in ("f32", "i32"):
            raise UserError(f"a scalar argument is f32 or i32, not {self.type}")
        self.default, self.min, self.max, self.name = default, min, max, name
        if name is not None:  # under @nestor.nest the argument's: its numbers are checked then
            self._check()

    def _check(self):
        """Raises UserError for a name, a default or limits that the nest format does not take."""
        _check_identifier(self.name, "scalar")
        for what in ("default", "min", "max"):
            if what == "default" or getattr(self, what) is not None:
                setattr(self, what, number_of(getattr(self, what), self.type, f"scalar {self.name}: its {what}"))
        low, high = -math.inf if self.min is None else self.min, math.inf if self.max is None else self.max
        is_limited = math.isfinite(low) or math.isfinite(high)
        if not low <= self.default <= high or (is_limited and not math.isfinite(self.default)):
            raise UserError(f"scalar {self.name}: its default must be {'finite and ' if is_limited else ''}from {low} to {high}, "
                            f"not {self.default}")

    @property
    def value(self):
        return Value("scalar", self.type, payload=self)

    def __str__(self):
        return self.name or "a scalar"


class Draft(NamedTuple):
    """A statement as its author writes it: tensor[at] = value, whose reductions and guarded choices have no tensors yet."""
    tensor: "Tensor"
    dims: Tuple[Index, ...]
    at: Tuple[Affine, ...]
    value: Value
    where: Condition
    reduction: Optional[str] = None
    suffix: str = ""


class Once(NamedTuple):
    """One iteration of a loop that statements share: that of `at`. index: the loop's; None where it only orders statements."""
    at: Affine
    index: Optional[Index] = None


class Update(NamedTuple):
    """A statement: tensor[at] = value at every point of `dims` where `where` holds; with a reduction, tensor[at] (+)= value."""
    number: int
    tensor: "Tensor"
    dims: Tuple[Index, ...]
    where: Condition
    at: Tuple[Affine, ...]
    value: Value
    reduction: Optional[str]
    suffix: str  # of the statement's name
    group: Optional[object] = None  # statements of one group share their loops; None: a group of its own
    loops: Tuple[Union[Index, Once], ...] = ()  # of a group: its loops from outside


class Tensor(Valued):
    """A tensor: x[i, j] reads an element, of i64 the nearest i32. An argument of a nest is an input, and never written.
    tolerance: of an output, takes the place of the nest's."""

    def __init__(self, name, kind, shape):
        self.name, self.type = check_name(name, "tensor"), type_name(kind)
        if self.type not in TYPES:
            raise UserError(f"tensor {name} has no elements of the type {self.type}: {types_for(self.type)}")
        self.shape = tuple(affine(extent) for extent in (shape if isinstance(shape, (tuple, list)) else (shape, )))
        self.updates, self.tolerance = [], None
        self.is_argument = False  # of a function under @nestor.nest
        self.is_written = False  # also while its statements wait for the end of their steps

    def __getitem__(self, index):
        at = index if isinstance(index, tuple) else (index,)
        if len(at) != len(self.shape):
            raise UserError(f"{self.name} has {len(self.shape)} indices, not {len(at)}")
        element = Value("read", self.type, payload=(self, tuple(affine(each) for each in at)))
        return as_type(element, "i32") if self.type == "i64" else element

    @property
    def value(self):
        """The element of a tensor without indices."""
        if self.shape:
            raise UserError(f"{self.name} is a tensor of {len(self.shape)} indices: read its elements, as {self.name}[i, ...]")
        return self[()]

    def write(self, dims, at, value, *, where=TRUE, reduction=None, suffix=""):
        """A further statement: self[at] = value at every point of `dims` where `where` holds, in lexicographic order of dims;
        with reduction "add", "mul", "min" or "max" self[at] is combined with the value. Elements must be written before they
        are read. The whole value is computed at each point: reductions of this tensor's elements see what is written by then.
        Returns the tensor."""
        dims, at = indices_of(dims), tuple(self._place(each) for each in (at if isinstance(at, tuple) else (at,)))
        if reduction is not None and reduction not in REDUCTIONS:
            raise UserError(f"\"{reduction}\" is no reduction; the reductions are {', '.join(REDUCTIONS)}")
        if len(at) != len(self.shape):
            raise UserError(f"{self.name} has {len(self.shape)} indices, not {len(at)}")
        if self.type == "i64" or (self.type == "bool" and reduction):
            raise UserError(f"{self.name} is of type {self.type}: " +
                            ("only inputs may be, write i32" if self.type == "i64" else "accumulate i32 or f32, and compare it"))
        value = as_value(value)
        if self.is_argument:
            raise UserError(f"{self.name} is an argument, and what is written is no input: no argument is updated in place. "
                            f"Define a copy first, as in y = nestor.define(\"y\", (i, ...), {self.name}[i, ...]), or a tensor of "
                            "its own, as in y = nestor.Tensor(\"y\", nestor.f32, (rows, )), write that, and return it")
        if suffix:
            check_name(f"{self.name}{suffix}", "statement")
        from .steps import write  # which makes tensors of its own

        write(Draft(self, dims, at, value, condition_of(where), reduction, suffix))
        self.is_written = True
        return self

    def _place(self, index):
        """An index of a write. Raises NotAffine: for one that depends on data with the reader that says the same."""
        if any(node.op == "read" for node in nodes_within(index)):
            raise NotAffine(f"{index!r} is no integer that is affine in indices and sizes: no statement writes to a place that "
                            "data says. Each place looks for what is meant for it: "
                            f"nestor.define(\"{self.name}\", i, nestor.sum(nestor.select(at[j] == i, x[j], 0.0), over=j))")
        return affine(index)

    def __getattr__(self, name):
        raise AttributeError(f"a tensor of a nest has no {name}" + ("" if name.startswith("_") else f": {instead_of(name)}"))

    def __iter__(self):
        raise UserError(f"{self.name} is a tensor: read its elements, as {self.name}[i, ...]")

    def __repr__(self):
        return f"{self.type} {self.name}[{', '.join(map(str, self.shape))}]"


def indices_of(found):
    found = found if isinstance(found, tuple) else tuple(found) if isinstance(found, list) else (found,)
    for index in found:
        if not isinstance(index, Index):
            raise UserError(f"{index!r} is no index: make one with nestor.indices(i=extent)")
    if len({index.name for index in found}) != len(found):
        raise UserError(f"two indices of one statement have the same name: {', '.join(index.name for index in found)}")
    return found


def condition_of(found):
    """A condition that is affine. Raises UserError where it depends on data."""
    if isinstance(found, Condition):
        return found
    value = as_value(found)
    if value.condition is None:
        raise UserError(why_no_condition(value))
    return value.condition


def variables(value, found=None, seen=None):
    """Names of the indices and sizes that a value depends on."""
    found, seen = set() if found is None else found, set() if seen is None else seen
    if id(value) in seen:
        return found
    seen.add(id(value))
    if value.op in ("index", "condition"):
        found |= value.payload.names()
    elif value.op == "read":
        for index in value.payload[1]:
            found |= index.names()
    elif value.op == "reduce":
        inner = variables(value.payload.value) | value.payload.where.names()
        found |= inner - {index.name for index in value.payload.over}
    for arg in value.args:
        variables(arg, found, seen)
    return found


def is_among(index, indices):
    """Whether an index is one of these (== makes a condition)."""
    return any(each is index for each in indices)


def free_indices(names, order=()):
    """The Index objects among the names of an Affine or Condition: those of `order` first, then the others in the order in which
    they were made."""
    places = {id(index): place for place, index in enumerate(order)}
    return sorted({name.owner
                   for name in names if isinstance(getattr(name, "owner", None), Index)},
                  key=lambda index: (places.get(id(index), len(places)), index.number))


def define(name, dims, value, *, where=TRUE, type=None, tolerance=None):
    """A tensor with an index for each of `dims` that is `value` where `where` holds (elsewhere it has no elements to read).
    type: of its elements; without, f32, or i32 for integers and conditions. tolerance: of an output, takes the place of the
    nest's. Reductions in the value get tensors of their own."""
    dims = indices_of(dims)
    value = as_value(value)
    kind = type or ("i32" if value.type in ("i32", "bool") else "f32")
    tensor = Tensor(name, kind, [index.extent for index in dims])
    tensor.tolerance = None if tolerance is None else checked_tolerance(tolerance, f"tensor {name}")
    return tensor.write(dims, tuple(index.affine for index in dims), value, where=where)
