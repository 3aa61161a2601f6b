"""What a nest computes, evaluated as it is written: in float64, without rounding to the types of its tensors. Casts to 16 bits within
values round. Needs numpy.

It is meant for looking at a definition and for tests: it takes every point of every domain, and is slow.
"""

import math
from collections.abc import Mapping

from .. import capi
from ..errors import UserError
from ..extents import Extent, disagreement, sizes_told
from ..tensors import refuse_mask
from .affine import TRUE, Affine, Compare, Joined, conjuncts
from .definitions import number_of
from .hints import with_remedy
from .isl_text import pieces
from .model import Nest, number_from_json

_MOST_POINTS = 1 << 26  # of one statement


def evaluate(nest, tensors, sizes=None, scalars=None):
    """The outputs of a nest as {name: float64 array, int64 for i32, bool for bool}.

    tensors: {name: array} of its inputs, of the shapes that the nest declares. sizes: where they do not follow from shapes.
    scalars: where they are not the default. Elements of outputs that no statement writes are 0. Raises UserError for what is
    missing or of another shape, has too many points, or reads elements that were not written before or lie outside their tensor.
    """
    import numpy

    if not isinstance(nest, Nest):
        raise UserError(f"nestor.evaluate takes a nestor.Nest, not a {type(nest).__name__}")
    try:
        return _Evaluation(numpy, nest, tensors, {} if sizes is None else sizes, {} if scalars is None else scalars).run()
    except UserError as error:
        raise UserError(with_remedy(nest, str(error))) from None


def sizes_of(nest, shapes, given=None):
    """The sizes that follow from shapes {tensor: extents}, and those that are given. Raises UserError for one that is
    missing."""
    said = [each for shape in _said(nest, shapes).values() for each in shape]
    found = sizes_told([extent for extent, _, _ in said], [value for _, _, value in said], given or {})
    for size in nest.sizes:
        if size.name not in found:
            raise UserError(f"{nest.op}: no shape says what the size {size.name} is: give it, as "
                            f"sizes={{\"{size.name}\": ...}}")
    return {size.name: int(found[size.name]) for size in nest.sizes}


def _said(nest, shapes):
    """{tensor: [(its Extent or None, the text of that, what shapes {tensor: extents} have there)]}"""
    found = {}
    for tensor in nest.tensors:
        for value, text in zip(shapes.get(tensor.name, ()), tensor.shape):
            forms = [form for piece in pieces(text) for form in piece.functions]
            plain = len(forms) == 1 and all(isinstance(atom, str) for atom, _ in forms[0].terms)
            extent = Extent(dict(forms[0].terms), forms[0].constant) if plain else None
            found.setdefault(tensor.name, []).append((extent, forms[0].text(), value))
    return found


class _Evaluation:
    def __init__(self, numpy, nest, tensors, sizes, scalars):
        self.np, self.nest = numpy, nest
        for what, given in (("tensors", tensors), ("sizes", sizes), ("scalars", scalars)):
            if not isinstance(given, Mapping):
                raise UserError(f"{nest.op}: evaluate takes {what} by name, as a dictionary {{name: ...}}, not a "
                                f"{type(given).__name__}")
        inputs = [tensor.name for tensor in nest.tensors if tensor.role == "input"]
        for what, given, known in (("input", tensors, inputs), ("size", sizes, [size.name for size in nest.sizes]),
                                   ("scalar", scalars, [scalar.name for scalar in nest.scalars])):
            unknown = next((name for name in given if name not in known), None)
            if unknown is not None:
                raise UserError(f"{nest.op}: {unknown} is no {what}; the {what}s are {', '.join(known) or 'none'}")
        inputs = {name: self._array(name, tensor) for name, tensor in tensors.items()}
        self.given = {name: capi.integer(value, f"{nest.op}: size {name}") for name, value in sizes.items()}
        self.sizes = sizes_of(nest, {name: tensor.shape for name, tensor in inputs.items()}, self.given)
        self.scalars = {scalar.name: self._scalar(scalar, scalars) for scalar in nest.scalars}
        self.memory = {tensor.name: self._memory(tensor, inputs) for tensor in nest.tensors}
        self.written = {tensor.name: numpy.full(self.memory[tensor.name].shape, tensor.role == "input") for tensor in nest.tensors}

    def _scalar(self, scalar, given):
        if scalar.name not in given:
            return scalar.default
        return number_of(given[scalar.name], scalar.type, f"{self.nest.op}: scalar {scalar.name}")

    def _array(self, name, tensor):
        where = f"{self.nest.op}: the input {name}"
        try:
            refuse_mask(tensor)
            found = self.np.asarray(tensor)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        except Exception as error:  # noqa: BLE001  tensors of others raise what they like, such as bf16 of PyTorch
            raise UserError(f"{self.nest.op}: numpy does not take the input {name} ({error}): give what it takes, as tensor.float() or "
                            "tensor.detach().cpu()") from None
        if found.dtype.kind not in "biufVO":
            raise UserError(f"{where} must have elements that are real numbers, not {found.dtype}")
        return found

    def _memory(self, tensor, inputs):
        shape = tuple(int(self._function(text, self.sizes)) for text in tensor.shape)
        kind = {"i32": self.np.int64, "i64": self.np.int64, "bool": self.np.bool_}.get(tensor.type, self.np.float64)
        if tensor.role != "input":
            return self.np.zeros(shape, kind)
        if tensor.name not in inputs:
            raise UserError(f"{self.nest.op}: the input {tensor.name} is missing")
        found = inputs[tensor.name]
        if found.shape != shape:
            what = f"have the shape {shape}" if shape else "be a single element, of the shape ()"
            why = disagreement(tensor.name, _said(self.nest, {name: each.shape for name, each in inputs.items()}),
                               self.given) if len(found.shape) == len(shape) else ""
            raise UserError(f"{self.nest.op}: {tensor.name} must {what}, not {found.shape or 'a single element'}"
                            f"{': ' if why else ''}{why}")
        if tensor.type == "i64":  # each is the nearest i32
            found = self.np.clip(found, -2**31, 2**31 - 1)
        try:
            return found.astype(kind)
        except (TypeError, ValueError):
            raise UserError(f"{self.nest.op}: the input {tensor.name} must have elements that are real numbers, not {found.dtype}") from None

    def _function(self, text, values):
        """The value of a piecewise function at values of its variables."""
        result = None
        for piece in pieces(text):
            found = piece.functions[0].value(values)
            result = found if result is None else self.np.where(piece.condition.value(values), found, result)
        return result

    def run(self):
        with self.np.errstate(all="ignore"):
            groups = {}
            for statement in self.nest.statements:
                groups.setdefault(statement.group, []).append(statement)
            for group in groups.values():
                self._run_group([_Prepared(statement) for statement in group])
        return {tensor.name: self.memory[tensor.name] for tensor in self.nest.tensors if tensor.role == "output"}

    def _run_group(self, group):
        written = {prepared.statement.write.tensor for prepared in group}
        if len(group) == 1 and not any(read.tensor in written for read in group[0].statement.reads):
            self._execute(group[0], self._points(group[0]))
            return
        rows = []  # one iteration after the other: a statement may read what an earlier one has written
        for order, prepared in enumerate(group):
            values = self._points(prepared)
            mask = self.np.broadcast_to(prepared.condition.value(values), self._shape(prepared, values))
            grids = [self.np.broadcast_to(values[dim], mask.shape)[mask] for dim in prepared.dims]
            rows += [(tuple(int(value) for value in point), order) for point in zip(*grids)] if prepared.dims else [((), order)]
        for point, order in sorted(rows):
            prepared = group[order]
            self._execute(prepared, {**self.sizes, **dict(zip(prepared.dims, point))})

    def _shape(self, prepared, values):
        return self.np.broadcast_shapes(*(self.np.shape(values[dim]) for dim in prepared.dims))

    def _points(self, prepared):
        """The sizes and, for every dim, an array along an axis of its own that spans the domain."""
        values, count = dict(self.sizes), 1
        box = bounds(prepared.condition, prepared.dims, self.sizes)
        for axis, dim in enumerate(prepared.dims):
            low, high = box[dim]
            count *= max(high - low + 1, 0)
            shape = [1] * len(prepared.dims)
            shape[axis] = -1
            values[dim] = self.np.arange(low, high + 1).reshape(shape)
        if count > _MOST_POINTS:
            raise UserError(f"{prepared.statement.name} has {count} points, more than are evaluated here")
        return values

    def _execute(self, prepared, values):
        shape = self._shape(prepared, values)
        statement, np = prepared.statement, self.np
        mask = np.broadcast_to(prepared.condition.value(values), shape)
        if not mask.any():
            return
        result = np.broadcast_to(_Value(self, prepared, values, mask).compute(statement.value), shape)
        name, points = statement.write.tensor, _Points(np, statement, values, mask)
        target, written = self.memory[name], self.written[name]
        at = points.elements(prepared.write, target.shape, name, "writes")
        if statement.reduction is not None:
            points.refuse(~written[at], f"accumulates into elements of {name} that were not initialised")
        at, result = tuple(np.broadcast_to(index, shape)[mask] for index in at), result[mask]
        written[at] = True
        if target.dtype == np.int64:
            result = wrapped(np, result.astype(np.int64))
        if statement.reduction is None:
            target[at] = result if at else result[-1]
        else:
            combine = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[statement.reduction]
            combine.at(target, at, result) if at else target.__setitem__((), combine(target, combine.reduce(result)))
            if target.dtype == np.int64:
                target[...] = wrapped(np, target)


class _Prepared:
    """A statement with its sets and relations read."""

    def __init__(self, statement):
        self.statement = statement
        domain = pieces(statement.domain)
        self.dims = domain[0].dims if domain else statement.dims
        self.condition = domain[0].condition if domain else ~TRUE
        for other in domain[1:]:
            self.condition = self.condition | other.condition.substitute(_renaming(other.dims, self.dims))
        self.write = self.relation(statement.write.relation)[0][0]
        self.reads = [self.relation(read.relation) for read in statement.reads]
        self.indices = [self.relation(index) for index in statement.indices]

    def relation(self, text):
        """[(functions, condition)] over the statement's own dims."""
        found = []
        for piece in pieces(text):
            names = _renaming(piece.dims, self.dims)
            found.append(([form.substitute(names) for form in piece.functions], piece.condition.substitute(names)))
        return found


def _renaming(old, new):
    return {one: Affine.variable(other) for one, other in zip(old, new)}


class _Value:
    """Evaluates the value of one statement at points."""

    def __init__(self, evaluation, prepared, values, mask):
        self.np, self.evaluation, self.prepared, self.values = evaluation.np, evaluation, prepared, values
        self.mask, self.shared = mask, []

    def compute(self, tree):
        if "shared" in tree:
            for part in tree["shared"]:
                self.shared.append(self._typed(part))
            tree = tree["value"]
        if tree["op"] == "cast" and tree["type"] in ("f16", "bf16"):  # to the type of the tensor that is written
            return self.np.asarray(self._typed(tree["args"][0])[0]).astype(self.np.float64)
        return self._typed(tree)[0]

    def _typed(self, node):
        """(array, whether it is an integer)"""
        op, np = node["op"], self.np
        if op == "shared":
            return self.shared[node["ordinal"]]
        if op == "constant":
            return self._number(number_from_json(node["number"]), node["type"])
        if op == "index":
            return self._pieced(self.prepared.indices[node["ordinal"]]), True
        if op == "scalar":
            return self._number(self.evaluation.scalars[node["name"]], node["type"])
        if op == "read":
            return self._read(node["ordinal"]), node["type"] in ("i32", "i64")
        arguments = [self._typed(arg) for arg in node["args"]]
        if op == "cast":
            return self._cast(node["type"], *arguments[0])
        parts = [part for part, _ in arguments]
        if op == "select":
            return np.where(parts[0], parts[1], parts[2]), arguments[1][1]
        integer = arguments[0][1]
        result = _integer(np, op, parts) if integer else _real(np, op, parts)
        return result, integer and op not in ("lt", "le", "eq", "and", "or", "not")

    def _number(self, number, element_type):
        np = self.np
        return (np.int64(number), True) if element_type == "i32" else (np.float64(np.float32(number)), False)

    def _pieced(self, found):
        result = 0
        for functions, condition in found:
            value = functions[0].value(self.values)
            result = value if condition == TRUE else self.np.where(condition.value(self.values), value, result)
        return result

    def _read(self, ordinal):
        np, statement = self.np, self.prepared.statement
        name = statement.reads[ordinal].tensor
        memory, written = self.evaluation.memory[name], self.evaluation.written[name]
        result = np.zeros((), memory.dtype)
        for functions, condition in self.prepared.reads[ordinal]:
            there = condition.value(self.values)
            points = _Points(np, statement, self.values, self.mask & there)
            at = points.elements(functions, memory.shape, name, "reads")
            if 0 in memory.shape:
                continue  # at no point
            if not written.all():
                points.refuse(~written[at], f"reads elements of {name} that were not written before")
            result = memory[at] if condition == TRUE else np.where(there, memory[at], result)
        return result

    def _cast(self, kind, value, integer):
        np = self.np
        if kind == "bool":
            return value != 0, False
        if kind != "i32":
            return _rounded(np, np.asarray(value).astype(np.float64), kind), False
        if integer or np.asarray(value).dtype == bool:
            return np.asarray(value).astype(np.int64), True
        bounded = np.clip(np.nan_to_num(value, nan=0.0, posinf=2.0**31, neginf=-2.0**31), -2.0**31, 2.0**31 - 1)
        return np.trunc(bounded).astype(np.int64), True


def _rounded(np, value, kind):
    """To the nearest number of f16 or bf16, the even one of two; of f32 as it is."""
    if kind == "f16":
        return value.astype(np.float16).astype(np.float64)
    if kind != "bf16":
        return value
    unit = np.ldexp(1.0, np.maximum(np.frexp(value)[1], -125) - 8)  # 8 bits; the smallest normal number is 0.5 * 2^-125
    result = np.where(np.isfinite(value), np.rint(value / unit) * unit, value)
    return np.where(np.abs(result) >= 2.0**128, np.copysign(np.inf, result), result)


class _Points:
    """The points of a statement at which a mask holds, for messages about the first that is wrong."""

    def __init__(self, np, statement, values, mask):
        self.np, self.statement, self.values, self.mask = np, statement, values, mask

    def elements(self, functions, shape, tensor, does):
        """The indices of elements, within the tensor's shape at other points too. Raises UserError where one lies outside."""
        at = [form.value(self.values) for form in functions]
        for index, extent in zip(at, shape):
            self.refuse((index < 0) | (index >= extent), f"{does} elements of {tensor} that lie outside the tensor")
        return tuple(self.np.clip(index, 0, max(extent - 1, 0)) for index, extent in zip(at, shape))

    def refuse(self, wrong, what):
        """Raises UserError with the first point at which something is wrong."""
        found = self.np.argwhere(self.mask & wrong)
        if len(found):
            place = ", ".join(f"{dim} = {self.np.broadcast_to(self.values[dim], self.mask.shape)[tuple(found[0])]}"
                              for dim in self.statement.dims)
            raise UserError(f"statement {self.statement.name} {what}, at [{place}]")


def wrapped(np, value):
    """An integer modulo 2^32, as i32 has it."""
    return (value + 2**31) % 2**32 - 2**31


def _integer(np, op, args):
    words = [np.asarray(arg).astype(np.int64) & 0xFFFFFFFF for arg in args] if op.startswith(
        ("bit_", "shift_", "mul_high")) else args
    a, b = (*words, None)[:2]
    table = {
        "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "neg": lambda: -a, "abs": lambda: np.abs(a),
        "floor": lambda: a, "min": lambda: np.minimum(a, b), "max": lambda: np.maximum(a, b),
        "div": lambda: np.where(np.equal(b, 0), 0, np.floor_divide(a, np.where(np.equal(b, 0), 1, b))),
        "lt": lambda: np.less(a, b), "le": lambda: np.less_equal(a, b), "eq": lambda: np.equal(a, b),
        "bit_and": lambda: a & b, "bit_or": lambda: a | b, "bit_xor": lambda: a ^ b, "shift_left": lambda: (a << (b & 31)),
        "shift_right_logical": lambda: a >> (b & 31),
        "mul_high_unsigned": lambda: ((a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(32)).astype(np.int64),
    }
    if op not in table:
        raise UserError(f"{op} has no integer form")
    result = table[op]()
    return result if op in ("lt", "le", "eq") else wrapped(np, result)


def _real(np, op, args):
    a, b = (*args, None)[:2]
    table = {
        "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "div": lambda: np.divide(a, b),
        "neg": lambda: -a, "abs": lambda: np.abs(a), "min": lambda: np.minimum(a, b), "max": lambda: np.maximum(a, b),
        "pow": lambda: _power(np, a, b), "exp": lambda: np.exp(a), "exp2": lambda: np.exp2(a), "log": lambda: np.log(a),
        "sqrt": lambda: np.sqrt(a), "rsqrt": lambda: np.divide(1.0, np.sqrt(a)), "tanh": lambda: np.tanh(a),
        "erf": lambda: np.frompyfunc(math.erf, 1, 1)(a).astype(np.float64) if np.ndim(a) else np.float64(math.erf(a)),
        "sin": lambda: np.sin(a), "cos": lambda: np.cos(a), "log1p": lambda: np.log1p(a), "expm1": lambda: np.expm1(a),
        "atan": lambda: np.arctan(a), "floor": lambda: np.floor(a), "lt": lambda: np.less(a, b), "le": lambda: np.less_equal(a, b),
        "eq": lambda: np.equal(a, b), "and": lambda: np.logical_and(a, b), "or": lambda: np.logical_or(a, b),
        "not": lambda: np.logical_not(a),
    }
    if op not in table:
        raise UserError(f"\"{op}\" is no operation on f32")
    return table[op]()


def _power(np, base, exponent):
    """C's pow. NumPy takes the square root for an exponent of 0.5, which is NaN at -inf, and -0 at -0."""
    return np.where(np.equal(exponent, 0.5) & (np.isneginf(base) | np.equal(base, 0)), np.abs(base), np.power(base, exponent))


def bounds(condition, dims, sizes):
    """{dim: (low, high)} of a box around the points where a condition holds, at sizes. Raises UserError where it is not
    bounded."""
    alternatives = condition.parts if isinstance(condition, Joined) and not condition.conjunction else (condition,)
    boxes = [_box(alternative, dims, sizes) for alternative in alternatives]
    boxes = [box for box in boxes if all(low <= high for low, high in box.values())] or [{dim: (0, -1) for dim in dims}]
    for dim in dims:
        if any(math.isinf(limit) for box in boxes for limit in box[dim]):
            raise UserError(f"{condition.text()} does not bound {dim}")
    return {dim: (min(box[dim][0] for box in boxes), max(box[dim][1] for box in boxes)) for dim in dims}


def _box(condition, dims, sizes):
    parts = conjuncts(condition)
    forms = []
    for part in parts:
        if isinstance(part, Compare):
            form = part.form.substitute(sizes)
            forms += [form, -form] if part.equality else [form]
        elif part == ~TRUE:
            return {dim: (0, -1) for dim in dims}
    box = {dim: (-math.inf, math.inf) for dim in dims}
    for _ in range(len(dims) + 2):
        for form in forms:
            _tighten(box, form)
    return box


def _tighten(box, form):
    """Narrows the bounds of each variable of form >= 0, given those of the others."""
    ranges = [(atom, factor, _range(box, atom, factor)) for atom, factor in form.terms]
    for atom, factor, (_, own) in ranges:
        if atom not in box:
            continue
        others = form.constant + math.fsum(high for name, _, (_, high) in ranges if name != atom)
        if math.isinf(others) or math.isnan(others):
            continue
        low, high = box[atom]
        if factor > 0:  # factor * x >= -others
            low = max(low, math.ceil(-others / factor))
        else:
            high = min(high, math.floor(others / -factor))
        box[atom] = (low, high)
        if low > high:
            return


def _range(box, atom, factor):
    if isinstance(atom, str):
        low, high = box.get(atom, (-math.inf, math.inf))
    else:
        parts = [_range(box, each, times) for each, times in atom.numerator.terms]
        low = (atom.numerator.constant + sum(part[0] for part in parts)) / atom.denominator
        high = (atom.numerator.constant + sum(part[1] for part in parts)) / atom.denominator
        low, high = (low if math.isinf(low) else math.floor(low)), (high if math.isinf(high) else math.floor(high))
    return (low * factor, high * factor) if factor > 0 else (high * factor, low * factor)
