"""From tensors with their statements to a Nest: collects what outputs need, chooses names, writes isl's text and value
trees."""

from ..errors import UserError
from .affine import TRUE, Affine, both
from .condition_values import condition_value
from .definitions import Once, Size, checked_tolerance, variables
from .model import Access, Nest, ScalarEntry, SizeEntry, Statement, TensorEntry, number_to_json
from .values import nodes_of

_SMALLEST_SHARED = 16  # nodes; smaller parts that are used twice are written twice, as the nestor program does


# What rounding may be granted with ordinary data (docs/results.md), by element type.
TOLERANCES = {"f32": 1e-4, "f16": 2e-3, "bf16": 1.6e-2}
_TOLERANCE = 1e-4  # of other types


def tolerance_of(*types):
    """The tolerance of a nest, or an output, that has values of these types: that of the coarsest."""
    return max((TOLERANCES.get(kind, _TOLERANCE) for kind in types), default=_TOLERANCE)


def assemble(op, variant, outputs, *, arguments=(), sizes=(), require=(), tolerance=None):
    """The Nest of `outputs`, a sequence of Tensors with statements.

    arguments: tensors in the order of a call, those that nothing reads are added as inputs too. sizes: in this order, before
    others that are found. require: conditions on sizes for which the definition holds. tolerance: None for that of the coarsest
    type of arguments and outputs (TOLERANCES). Raises UserError for names that clash.
    """
    for what, name in (("op", op), ("variant", variant)):
        if not isinstance(name, str) or not name or not name.isprintable() or "/" in name:
            raise UserError(f"{name!r:.100} cannot be the {what} of a nest: use text that can be printed, without /")
    if tolerance is None:
        tolerance = tolerance_of(*(tensor.type for tensor in (*arguments, *outputs)))
    tolerance = checked_tolerance(tolerance, f"the nest {op}")
    return _Assembly(outputs, arguments, sizes, require).nest(op, variant, tolerance)


class _Assembly:
    def __init__(self, outputs, arguments, sizes, require):
        self.outputs = list(outputs)
        self.require = require
        self.updates = updates_of(self.outputs)
        self.tensors = self._ordered(arguments)
        self.scalars = self._scalars()
        self.sizes = self._sizes(sizes)
        self.tensor_names = {}
        self.taken, self.order_dims = set(), []
        self._choose_names()

    def _ordered(self, arguments):
        """Inputs, outputs, temporaries."""
        used = {id(tensor): tensor for tensor in (*arguments, *tensors_of(self.outputs))}
        kept = {id(tensor) for tensor in self.outputs}
        inputs = [tensor for tensor in used.values() if not tensor.updates]
        temporaries = [tensor for key, tensor in used.items() if tensor.updates and key not in kept]
        return [(tensor, "input") for tensor in inputs] + [(tensor, "output") for tensor in self.outputs] + [
            (tensor, "temporary") for tensor in temporaries]

    def _scalars(self):
        found = {}
        for update in self.updates:
            for node in nodes_of(update.value):
                if node.op == "scalar":
                    found.setdefault(id(node.payload), node.payload)
        return list(found.values())

    def _sizes(self, first):
        """In the order in which shapes and then statements name them."""
        forms = [extent for tensor, _ in self.tensors for extent in tensor.shape]
        forms += [index.extent for update in self.updates for index in update.dims]
        forms += [update.where for update in self.updates] + list(self.require)
        groups = [sorted(form.names()) for form in forms] + [sorted(variables(update.value)) for update in self.updates]
        found = {size.name: size for size in first}
        for owner in (getattr(name, "owner", None) for names in groups for name in names):
            if isinstance(owner, Size) and found.setdefault(owner.name, owner) is not owner:
                raise UserError(f"two different sizes are named {owner.name}")
        return list(found.values())

    def _claim(self, name):
        """The name, or with a number behind it the first that is free."""
        chosen, number = name, 1
        while chosen in self.taken:
            number += 1
            chosen = f"{name}_{number}"
        self.taken.add(chosen)
        return chosen

    def _choose_names(self):
        fixed = [(size.name, "size") for size in self.sizes] + [(scalar.name, "scalar") for scalar in self.scalars]
        fixed += [(tensor.name, role) for tensor, role in self.tensors if role != "temporary"]
        for name, what in fixed:
            if name is None:
                raise UserError("a scalar has no name: give it one with nestor.Scalar(name=...)")
            if name in self.taken:
                raise UserError(f"{what} {name}: another size, scalar or tensor of the nest has this name")
            self.taken.add(name)
        dims = {index.name for update in self.updates for index in update.dims}
        for name, what in fixed:
            if name in dims:
                raise UserError(f"an index has the name of the {what} {name}: choose another")
        self.taken |= dims
        for tensor, role in self.tensors:
            self.tensor_names[id(tensor)] = tensor.name if role != "temporary" else self._claim(tensor.name)

    def nest(self, op, variant, tolerance):
        params = "".join(f"{', ' if k else ''}{size.name}" for k, size in enumerate(self.sizes))
        prefix = f"[{params}] -> " if params else ""
        conditions = both(*(size.affine >= size.min for size in self.sizes),
                          *(size.affine <= size.max for size in self.sizes if size.max is not None), *self.require)
        statements, names, group = [], set(), -1
        for before, update in zip([None, *self.updates], self.updates):
            group += before is None or update.group is None or update.group is not before.group
            name, dims = self._statement_name(update, names), self._dims(update)
            statements.append(_statement(update, name, dims, group, prefix, self.tensor_names))
        return Nest(op=op,
                    variant=variant,
                    tolerance=tolerance,
                    statements=tuple(statements),
                    context=f"{prefix}{{ : {_text(conditions)} }}".replace(" :  }", " : }"),
                    sizes=tuple(SizeEntry(size.name, size.min, size.max, size.fixed, size.default) for size in self.sizes),
                    scalars=tuple(
                        ScalarEntry(scalar.name, scalar.type, scalar.default, scalar.min, scalar.max)
                        for scalar in self.scalars),
                    tensors=tuple(
                        TensorEntry(self.tensor_names[id(tensor)], tensor.type, role,
                                    tuple(f"{prefix}{{ [({extent.text()})] }}" for extent in tensor.shape),
                                    tensor.tolerance if role == "output" else None)
                        for tensor, role in self.tensors))

    def _dims(self, update):
        """{name: its Index, or the Once that it equals} of a statement's dims: its own, or the loops of its group."""
        loops = update.loops or update.dims
        own = {loop.name for loop in loops if not isinstance(loop, Once)}
        found, orders = {}, iter(range(len(loops)))
        for loop in loops:
            index = loop.index if isinstance(loop, Once) else loop
            known = index is None or index.name in found or (index is not loop and index.name in own)
            found[self._order_dim(next(orders)) if known else index.name] = loop
        return found

    def _order_dim(self, number):
        """The name of a statement's dim that only orders it, counted from 0."""
        if number == len(self.order_dims):
            self.order_dims.append(self._claim("stage"))
        return self.order_dims[number]

    def _statement_name(self, update, names):
        base = self.tensor_names[id(update.tensor)] + update.suffix
        name, number = base, 0
        while name in names:
            number += 1
            name = f"{base}_{number}"
        names.add(name)
        return name


def _text(condition):
    return "" if condition == TRUE else condition.text()


def _statement(update, name, loops, group, prefix, tensor_names):
    dims = ", ".join(loops)
    fixed = (Affine.variable(dim).equals(loop.at) for dim, loop in loops.items() if isinstance(loop, Once))
    domain = both(*(index.range for index in update.dims), *fixed, update.where)

    def relation(tensor, at, where=TRUE):
        written, index = tensor_names[id(tensor)], ", ".join(f"({each.text()})" for each in at)
        condition = "" if where == TRUE else f" : {where.text()}"
        return Access(written, f"{prefix}{{ {name}[{dims}] -> {written}[{index}]{condition} }}")

    writer = _ValueWriter(relation, lambda form: f"{prefix}{{ {name}[{dims}] -> [({form.text()})] }}")
    value = writer.write(update.value)
    condition = f" : {domain.text()}" if domain != TRUE else ""
    return Statement(name=name,
                     dims=tuple(loops),
                     domain=f"{prefix}{{ {name}[{dims}]{condition} }}",
                     write=relation(update.tensor, update.at),
                     reads=tuple(writer.reads),
                     indices=tuple(writer.indices),
                     value=value,
                     group=group,
                     reduction=update.reduction)


def tensors_of(outputs):
    """Every tensor that outputs need, in the order in which statements read and write them."""
    found = {}
    for update in updates_of(outputs):
        for tensor, _ in [*reads_of(update.value), (update.tensor, None)]:
            found.setdefault(id(tensor), tensor)
    return list(found.values())


def updates_of(outputs):
    """All statements that outputs need, in the order in which they were written."""
    found, waiting = {}, list(outputs)
    while waiting:
        tensor = waiting.pop()
        if id(tensor) not in found:
            found[id(tensor)] = tensor
            waiting += [read for update in tensor.updates for read, _ in reads_of(update.value)]
    return sorted((update for tensor in found.values() for update in tensor.updates), key=lambda update: update.number)


def reads_of(value):
    """(tensor, indices) of every element that a value reads."""
    return [node.payload for node in nodes_of(value) if node.op == "read"]


class _ValueWriter:
    """The JSON of one statement's value, and the reads and indices that it refers to."""

    def __init__(self, relation, function):
        self.relation, self.function = relation, function
        self.reads, self.indices = [], []
        self._nodes = {}  # by what they are: one node for equal parts
        self._known = {}  # by identity of a Value
        self._ordinals = {}
        self._shared = []

    def write(self, value):
        root = self._node(value)
        uses, sizes = {}, {}
        self._measure(root, uses, sizes)
        text = self._json(root, uses, sizes)
        return {"shared": self._shared, "value": text} if self._shared else text

    def _node(self, value):
        """(JSON without args, args) with equal nodes made one."""
        if id(value) in self._known:
            return self._known[id(value)][0]
        node = self._plain(value)
        key = (tuple(sorted((name, str(part)) for name, part in node[0].items())), tuple(id(arg) for arg in node[1]))
        made = self._nodes.setdefault(key, node)
        self._known[id(value)] = made, value  # which keeps the value, and its identity, alive
        return made

    def _plain(self, value):
        if value.op == "condition":
            return self._node(condition_value(value.payload))
        if value.op == "constant":
            return {"op": "constant", "number": number_to_json(value.payload), "type": value.type}, ()
        if value.op == "index":
            return {"op": "index", "ordinal": self._ordinal(self.indices, self.function(value.payload))}, ()
        if value.op == "read":
            where = value.args[0].payload if value.args else TRUE
            ordinal = self._ordinal(self.reads, self.relation(*value.payload, where))
            return {"op": "read", "ordinal": ordinal, "type": value.type}, ()
        if value.op == "scalar":
            return {"op": "scalar", "name": value.payload.name, "type": value.type}, ()
        fields = {"op": value.op, **({"type": value.type} if value.op == "cast" else {})}
        return fields, tuple(self._node(arg) for arg in value.args)

    @staticmethod
    def _ordinal(entries, entry):
        if entry not in entries:
            entries.append(entry)
        return entries.index(entry)

    def _measure(self, node, uses, sizes):
        uses[id(node)] = uses.get(id(node), 0) + 1
        if uses[id(node)] == 1:
            sizes[id(node)] = min(1 + sum(self._measure(arg, uses, sizes) for arg in node[1]), _SMALLEST_SHARED)
        return sizes[id(node)]

    def _json(self, node, uses, sizes):
        if uses[id(node)] == 1 or sizes[id(node)] < _SMALLEST_SHARED:
            return self._spelled(node, uses, sizes)
        if id(node) not in self._ordinals:
            text = self._spelled(node, uses, sizes)
            self._ordinals[id(node)] = len(self._shared)
            self._shared.append(text)
        return {"op": "shared", "ordinal": self._ordinals[id(node)]}

    def _spelled(self, node, uses, sizes):
        args = [self._json(arg, uses, sizes) for arg in node[1]]
        return {**node[0], "args": args} if args else dict(node[0])
