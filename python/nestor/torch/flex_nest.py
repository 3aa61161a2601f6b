"""flex_attention as a nest: the traced score_mod and mask_mod become part of attention's definition.

Affine conditions of the mask are the domain of scores and sums; tests of data stay selects. Captured tensors are arguments whose
extents are sizes of their own; that reads lie inside them becomes a condition on sizes.
"""

import dataclasses
import functools
from typing import NamedTuple, Tuple

import sympy
import torch

from ..nests.affine import FALSE, TRUE, Affine, Condition
from ..nests.assemble import assemble, tolerance_of
from ..nests.definitions import Index, Scalar, Size, Tensor, indices
from ..nests.model import Nest
from ..nests.values import Value, as_type, as_value, cast, constant, from_affine, from_condition, log, select
from .captured_tensors import argument_type
from .importer.bounds import is_never_negative, limits
from .importer.conditions import HIDDEN, known_forms, may_hide, narrowed, seen_part, sees_a_key
from .importer.exponentials import power as power_of
from .importer.extents import Symbols, Unsupported
from .importer.graph import Context
from .importer.lazy import ELEMENTS, INTEGERS, Builder, Lazy
from .importer.table import RULES, name_of

_SMALLEST = 1.1754943508222875e-38


class Shape(NamedTuple):
    """What a nest is made for besides the two functions. element: "f32", "f16" or "bf16"; group: query heads for each key head, 0
    for as many key heads; lse: whether the logarithm of each row's sum is a result; wide: whether values have a head size of
    their own."""
    element: str
    group: int
    lse: bool
    wide: bool


class Flex(NamedTuple):
    """nest; captured: the numbers of the captured tensors that are arguments, in order, as x0, x1, ...; given: {size: number of a
    captured tensor whose value, one less than the size, is given at launch}; conditions: on sizes."""
    nest: Nest
    captured: Tuple[int, ...]
    given: dict
    conditions: Tuple[Condition, ...]

    def holds(self, sizes):
        """Whether the nest says what is meant at these sizes."""
        return all(condition.value(sizes) for condition in self.conditions)


def flex_nest(traced, tensors, shape, sizes):
    """The Flex of a Traced with these captured tensors, for sizes such as those of a call. Raises Unsupported with the reason
    where no nest says it."""
    return _Definition(traced, tensors, shape, sizes).flex()


class _Scalars(Builder):
    """A Builder for values of single elements: nothing is stored. require: what makes a form >= 0 a condition on sizes."""

    def __init__(self, symbols, require):
        super().__init__(symbols)
        self.require = lambda form: require(form, None, f"a place that is there where {form} is not negative alone")

    def stored(self, lazy, name, kind=None):
        return lazy

    cheap = stored

    def sum_of(self, *_, **__):
        raise Unsupported("a reduction inside of score_mod or mask_mod")

    reduced = sum_of


class _Context(Context):
    """What rules are told; that reads lie inside becomes a condition on sizes."""

    def __init__(self, definition, node):
        super().__init__(definition.builder, node)
        self.definition = definition

    def require_inside(self, position, extent, ranges):
        self.definition.require(position, ranges, f"{self.name} at {position}, which may be negative")
        self.definition.require(extent - 1 - position, ranges, f"{self.name} at {position} of a tensor of {extent} elements")


class _Definition:
    def __init__(self, traced, tensors, shape, sizes):
        self.traced, self.shape, self.sizes = traced, shape, dict(sizes)
        self.tensors, self.captured, self.given = tensors, {}, {}
        self.symbols, self.known_sizes = Symbols(), {}
        self.builder = _Scalars(self.symbols, self.require)
        self.where, self.conditions = TRUE, []
        self._make_indices()

    def _size(self, name, default, **options):
        if name not in self.known_sizes:
            self.known_sizes[name] = Size(name, self.sizes.get(name, default), **options)
        return self.known_sizes[name]

    def _make_indices(self):
        uses_head = any(node.op == "placeholder" and number == 2 and node.users
                        for number, node in enumerate(self.traced.graph.nodes))
        heads = self._size("key_heads" if self.shape.group else "heads", 8)
        extents = {"b": self._size("batch", 2), "h": heads}
        if self.shape.group:  # a head is its key head times the group, so that the group is a constant where heads matter
            extents["g"] = Affine((), self.shape.group) if uses_head else self._size("group", self.shape.group)
        extents["i"], extents["j"] = self._size("queries", 1024), self._size("keys", 1024)
        self.width = self._size("head_dim", 64, fixed=True)
        self.value_width = self._size("value_dim", 64, fixed=True) if self.shape.wide else self.width
        self.places = indices(**extents)
        self.row, self.key = self.places[:-1], self.places[-1]
        self.depth, self.element = indices(e=self.width, d=self.value_width)
        self.head = self.places[1].affine
        if self.shape.group and uses_head:
            self.head = self.head * self.shape.group + self.places[2].affine

    # Captured tensors.

    def _captured(self, number):
        """A captured tensor as a Lazy: an argument, or, of a host's single integer, a size that is given at launch."""
        if number not in self.captured:
            tensor = self.tensors[number]
            if tensor.dim() == 0 and tensor.device.type == "cpu" and tensor.dtype in INTEGERS:
                size = self._size(f"given{number}", int(tensor) + 1)
                self.given[size.name] = number
                self.captured[number] = Lazy((), tensor.dtype, lambda _: from_affine(size.affine - 1), 0, False)
            else:
                self.captured[number] = self._argument(tensor, len(self.captured) - len(self.given))
        return self.captured[number]

    def _argument(self, tensor, place):
        dims = []
        for dim, extent in enumerate(tensor.shape):
            symbol = sympy.Symbol(f"extent{place}_{dim}")
            self.symbols.hints[str(symbol)] = extent
            dims.append((symbol,))
        kind = argument_type(tensor.dtype)
        leaf = Tensor("captured", ELEMENTS[kind], self.builder.extents([extent for dim in dims for extent in dim]))
        return self.builder.of_tensor(leaf, dims, tensor.dtype)

    # The functions.

    def require(self, form, ranges, what):
        """Makes form >= 0 a condition on sizes, given that the mask holds. Raises Unsupported where the call's sizes do not meet
        it."""
        for known in (Affine((), 0), *known_forms(self.where)):
            least = limits(form - known, ranges)[0]
            if is_never_negative(least):
                return
            if least.value({name: name.owner.default for name in least.names()}) >= 0:
                self.conditions.append(least >= 0)
                return
        raise Unsupported(f"reads {what}")

    def _operands(self, score):
        """{node: its Lazy, or a function that makes it}; the result's node holds (score, mask)."""
        places = [from_affine(form) for form in (self.places[0].affine, self.head, self.row[-1].affine, self.key.affine)]
        given = [Lazy((), torch.float32, lambda _: score, 1, True),
                 *(Lazy((), torch.int64, lambda _, value=value: value, 0, False) for value in places)]
        known = {}
        for node in self.traced.graph.nodes:
            if node.op == "placeholder":
                known[node] = given.pop(0)
            elif node.op == "get_attr":
                known[node] = functools.partial(self._attribute, node)
            elif node.op == "call_function":
                known[node] = functools.partial(self._converted, node)
            else:
                self.results = node.args[0]
        return known

    def _attribute(self, node):
        if node.target in self.traced.tensors:
            return self._captured(self.traced.tensors[node.target])
        return _literal(self.traced.constants[node.target])

    def _converted(self, node):
        rule = RULES.get(name_of(node.target))
        if rule is None:
            raise Unsupported(f"no rule for {name_of(node.target)}")
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), _Operand)
        return rule.convert(_Context(self, node), *self._resolved(args), **self._resolved(kwargs))

    def _resolved(self, found):
        if isinstance(found, _Operand):
            return self._lazy(found.node)
        if isinstance(found, (list, tuple)):
            return [self._resolved(each) for each in found]
        if isinstance(found, dict):
            return {key: self._resolved(each) for key, each in found.items()}
        return found

    def _lazy(self, node):
        """The Lazy of a node, converted when it is first needed: the mask is, before what reads under it."""
        if not isinstance(self.known[node], Lazy):
            self.known[node] = self.known[node]()
        return self.known[node]

    def _value(self, node):
        if not isinstance(node, torch.fx.Node):
            return as_value(node)
        found = self._lazy(node)
        if found.dims:
            raise Unsupported("score_mod and mask_mod must give a single number for each score")
        return found.element(())

    # The definition.

    def flex(self):
        score_tensor = Tensor("score", "f32", self._extents(self.places))
        query, key, value = self._arguments()
        dot = Tensor("dot", "f32", self._extents(self.places))
        scale = Scalar(0.125, min=_SMALLEST, name="scale")
        at = _at(self.places)
        self.known = self._operands(dot[at] * scale.value)
        changed, mask = self.results
        tests = self._narrow(mask)
        changed = dot[at] * scale.value if changed is None else self._value(changed)
        seen, final = seen_part(_by_products(as_type(changed, "f32"), {}), HIDDEN)
        self.where, more = narrowed(self.where, from_condition(seen), self.key)
        tests += more
        for test in reversed(tests):
            final = select(test, final, HIDDEN, False)
        if self.where == FALSE:
            raise Unsupported("a mask that hides every key")
        self._products(dot, query, key)
        score_tensor.write(self.places, at, final, where=self.where)
        outputs = self._softmax(score_tensor, value, hidden=may_hide(final))
        return self._assembled(outputs, query, key, value)

    def _extents(self, found):
        return [index.extent for index in found]

    def _arguments(self):
        kind, outer = self.shape.element, [*self.places[:1], self.places[1]]
        batch, heads = (index.extent for index in outer)
        keys = self.key.extent
        return (Tensor("q", kind, [*self._extents(self.row), self.width.affine]),
                Tensor("k", kind, [batch, heads, keys, self.width.affine]),
                Tensor("v", kind, [batch, heads, keys, self.value_width.affine]))

    def _narrow(self, mask):
        """Takes affine conditions of the mask into the domain. Returns its tests of data. A part of the mask may read what
        another one says is there."""
        tests, waiting = [], _parts_of(mask)
        while waiting:
            left, refused = [], None
            for node in waiting:
                try:
                    value = as_type(self._value(node), "bool")
                except Unsupported as error:
                    left.append(node)
                    refused = error
                    continue
                self.where, more = narrowed(self.where, value, self.key)
                tests += more
            if len(left) == len(waiting):
                raise refused
            waiting = left
        return tests

    def _products(self, dot, query, key):
        at, key_at = _at(self.places), (*_at(self.places[:2]), self.key.affine, self.depth.affine)
        product = as_type(query[(*_at(self.row), self.depth.affine)], "f32") * as_type(key[key_at], "f32")
        dot.write(self.places, at, constant(0.0), where=self.where, suffix="_init")
        dot.write((*self.places, self.depth), at, product, where=self.where, reduction="add")

    def _softmax(self, score, value, hidden):
        """[out], or [out, lse]: the weighted sum of values over the keys that are seen, and the logarithm of the sum of
        exponentials. Rows that see nothing are 0, and -inf."""
        row, at = self.row, _at(self.places)
        row_at = _at(row)
        largest, total = (Tensor(name, "f32", self._extents(row)) for name in ("largest", "total"))
        power = Tensor("power", "f32", self._extents(self.places))
        empty = hidden or not self._sees_a_key()
        largest.write(row, row_at, constant(HIDDEN), suffix="_init")
        self._sum(largest, row, "r", lambda seen: score[seen], "max")
        power.write(self.places, at, power_of(score[at], largest[row_at], empty), where=self.where)
        element_at = (*row_at, self.element.affine)
        weighted = Tensor("weighted", "f32", [*self._extents(row), self.element.extent])
        weighted.write((*row, self.element), element_at, constant(0.0), suffix="_init")
        self._sum(weighted, (*row, self.element), "t", lambda seen: power[seen] * as_type(
            value[(*_at(self.places[:2]), seen[-1], self.element.affine)], "f32"))
        total.write(row, row_at, constant(0.0), suffix="_init")
        self._sum(total, row, "s", lambda seen: power[seen])
        quotient = weighted[element_at] / total[row_at]
        if empty:
            quotient = select(total[row_at] == 0.0, 0.0, quotient)
        out = Tensor("out", self.shape.element, weighted.shape)
        out.write((*row, self.element), element_at, cast(self.shape.element, quotient))
        if not self.shape.lse:
            return [out]
        lse = Tensor("lse", "f32", largest.shape)
        lse.write(row, row_at, largest[row_at] + log(total[row_at]))
        return [out, lse]

    def _sum(self, tensor, outer, name, value, reduction="add"):
        """Reduces value(places) over the keys that are seen, whose index gets a name of its own."""
        key = Index(name, self.key.extent)
        own, = self.key.affine.names()
        tensor.write((*outer, key), _at(outer), value((*_at(self.row), key.affine)), reduction=reduction,
                     where=self.where.substitute({own: key.affine}))

    def _sees_a_key(self):
        """Whether every row plainly has a key. With at least as many keys as queries, that may be the one of its own place."""
        if sees_a_key(self.where, self.key):
            return True
        query, fits = self.row[-1].affine, self.row[-1].extent <= self.key.extent
        if fits.value(self.sizes) and sees_a_key(self.where, self.key, [query]):
            self.conditions.append(fits)
            return True
        return False

    def _assembled(self, outputs, query, key, value):
        used = [number for number, lazy in self.captured.items() if number not in self.given.values()]
        leaves = [self.captured[number].leaf for number in used]
        for number, leaf in enumerate(leaves):
            leaf.name = f"x{number}"
        order = [size for name, size in self.known_sizes.items() if name not in self.given]
        element = self.shape.element
        nest = assemble("flex", element, outputs, arguments=[query, key, value, *leaves], sizes=order, require=self.conditions,
                        tolerance=tolerance_of(element))
        return Flex(named(nest), tuple(used), self.given, tuple(self.conditions))


class _Operand(NamedTuple):
    """A node as an operand, converted when the rule is called."""
    node: torch.fx.Node


def _at(found):
    return tuple(index.affine for index in found)


def _parts_of(mask):
    """The nodes that a mask is the conjunction of."""
    if mask is None:
        return []
    both_of = (torch.ops.aten.bitwise_and.Tensor, torch.ops.aten.logical_and.default)
    if isinstance(mask, torch.fx.Node) and mask.target in both_of and all(
            isinstance(each, torch.fx.Node) and each.meta["val"].dtype == torch.bool for each in mask.args):
        return [part for each in mask.args for part in _parts_of(each)]
    return [mask]


def _by_products(value, known):
    """The value with products in place of quotients by constants, which cost several times as much."""
    if id(value) not in known:
        exact = value.op in ("floor", "lt", "le", "eq") or value.type == "i32"  # the last bit may decide
        args = value.args if exact else [_by_products(arg, known) for arg in value.args]
        number = args[1].payload if value.op == "div" and value.type == "f32" and args[1].op == "constant" else 0
        if 2.0**-100 < abs(number) < 2.0**100:
            found = args[0] * (1.0 / number)
        else:
            same = all(one is other for one, other in zip(args, value.args))
            found = value if same else Value(value.op, value.type, args, value.payload)
        known[id(value)] = found, value  # which keeps its identity
    return known[id(value)][0]


def _literal(tensor):
    """A tensor of one element that was made while tracing, as a constant."""
    if tensor.numel() != 1:
        raise Unsupported("a tensor made inside of score_mod or mask_mod")
    return Lazy(((),) * tensor.dim(), tensor.dtype, lambda _, value=constant(tensor.item()): value, 0, False)


def named(nest):
    """The nest with a name that follows from what it says, so that equal mods share their kernels."""
    return dataclasses.replace(nest, op=f"flex_{nest.fingerprint()[:16]}")
