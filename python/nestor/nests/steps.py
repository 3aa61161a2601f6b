"""Statements that share loops: time steps of several tensors, and reductions of what their own loops write.

A statement that alone reads and writes one tensor needs nothing of that. If a reduction in it reads what it writes, that belongs
inside its loops: at the outermost place where nothing that it reads is still written before the statement itself.
"""

import contextvars
from typing import NamedTuple, Set, Tuple

from ..errors import UserError
from .affine import TRUE, Affine, Compare, both, conjuncts
from .definitions import Index, Variable, free_indices, indices_of, is_among, variables
from .guards import chosen_side, conditions_apart, in_place, is_choice, lift_guarded, sides_of
from .loops import Loop, flattened, loops_around
from .model import REDUCTIONS
from .ranges import least_of
from .statements import add, choice_table, lift_reductions, part_about, reduction_drafts
from .statements import write as write_alone
from .values import nodes_of

_open = contextvars.ContextVar("_open", default=None)  # (indices, drafts) of the steps that this thread is writing


class steps:  # as a function's name: with nestor.steps(t):
    """Statements that are written inside run together, one iteration of these indices after the other: with nestor.steps(t): ...

    Each of them has these indices as its first ones. In an iteration they run one after the other, each with all of its other
    indices. Raises UserError for steps inside steps.
    """

    def __init__(self, *over):
        self._over, self._drafts, self._before = indices_of(over), [], None
        if not over:
            raise UserError("nestor.steps takes the indices of the loops that its statements share, as nestor.steps(t)")

    def __enter__(self):
        if _open.get() is not None:
            raise UserError("nestor.steps inside nestor.steps: give the outer ones all indices, as nestor.steps(t, u)")
        self._before = _open.set((self._over, self._drafts))

    def __exit__(self, kind, *_):
        _open.reset(self._before)
        if kind is None:
            _Group(self._over, self._drafts).write()

    def __iter__(self):
        raise UserError("the steps of a nest are no loop of Python's: with nestor.steps(t): ..., and t is the index inside")


def write(draft):
    """Adds a Draft's statements: now, or at the end of the steps that it stands in."""
    if _open.get() is None:
        draft = _as_reduction(draft)
        group = _Group((), [draft])
        group.write() if group.is_needed() else write_alone(draft)
        return
    over, drafts = _open.get()
    if len(draft.dims) < len(over) or any(one is not other for one, other in zip(draft.dims, over)):
        raise UserError(f"{draft.tensor.name}: in nestor.steps({_names(over)}) the first indices of a statement are "
                        f"{_names(over)}, not {_names(draft.dims) or 'none'}")
    drafts.append(draft)


def _as_reduction(draft):
    """The Draft of t[at] = t[at] + v, or of such a product or extremum, as a reduction that combines t[at] with v. v does not read t, and
    several points have one `at`. Others as they are."""
    value, tensor = draft.value, draft.tensor
    kept = set().union(*(index.names() for index in draft.at))
    if draft.reduction or value.op not in REDUCTIONS or value.type != tensor.type or all(dim.name in kept for dim in draft.dims):
        return draft

    def is_own(node):
        return node.op == "read" and node.payload[0] is tensor
    for own, other in (value.args, value.args[::-1]):
        if is_own(own) and not own.args and own.payload[1] == draft.at and not any(map(is_own, nodes_of(other, True))):
            return draft._replace(value=other, reduction=value.op)
    return draft


class _Group:
    """Drafts that share their first loops, and what is read in them that they write."""

    def __init__(self, shared, drafts):
        self.shared, self.drafts = shared, drafts
        self.written = {id(draft.tensor) for draft in drafts}
        self._reads = {}

    def is_needed(self):
        """Whether the one draft has a reduction or a choice of what it writes."""
        value = self.drafts[0].value
        return self.reads(value) and any(
            (node.op == "reduce" or is_choice(node)) and self.reads(node) for node in nodes_of(value))

    def reads(self, value):
        """Whether a value reads what the group writes, in its reductions too."""
        if id(value) not in self._reads:
            found = any(node.op == "read" and id(node.payload[0]) in self.written for node in nodes_of(value, True))
            self._reads[id(value)] = found, value  # which keeps the value, and its identity, alive
        return self._reads[id(value)][0]

    def write(self):
        body, group = [], object()
        for draft in self.drafts:
            body += _Statement(self, draft).body()
        for (draft, value), loops in flattened(loops_around(self.shared, body)) if body else ():
            _check_names(draft, loops)
            add(draft, value, group, loops)


class _Statement:
    """One draft of a group, with the reductions that it needs in front of it, by the number of its loops that are around them."""

    def __init__(self, group, draft):
        self.group, self.draft, self.prefix = group, draft, f"{draft.tensor.name}_"
        self.stages = {depth: {} for depth in range(len(group.shared), len(draft.dims) + 1)}
        self._lifted, self._made = {}, {}

    def body(self):
        """What stands inside the group's shared loops: Loops, and (Draft, Value) for statements."""
        value = self._with_choices(self._lift(self.draft.value, self.draft.where, TRUE, ()), self.draft)
        body = [(self.draft, value)]
        for depth in reversed(self.stages):
            stages = sorted(self.stages[depth].values(), key=lambda stage: stage.level)
            body = [loop for stage in stages for loop in stage.loops()] + body
            if depth > len(self.group.shared):
                body = [Loop(self.draft.dims[depth - 1], body)]
        return body

    def _with_choices(self, value, draft):
        """Choices of what the group writes stay where they are, others become tables before its loops."""
        return lift_guarded(
            conditions_apart(value),
            lambda choice: in_place(choice, draft.where) if self.group.reads(choice) else choice_table(choice, draft))

    def _lift(self, value, where, guard, around):
        """The value with reads of tensors in place of its reductions. guard: the condition under which choices need it; around: the
        indices of the reductions that it stands in."""
        key = (id(value), where, guard, around)
        if key not in self._lifted:
            if not self.group.reads(value):
                found = lift_reductions(value, self.prefix, where, self.draft.dims + around)
            elif value.op == "reduce":
                found = self._read(value, where, guard, around)
            else:
                chosen = chosen_side(value, both(where, guard))
                found = self._lift(chosen, where, guard, around) if chosen is not None else value.with_args(
                    [self._lift(arg, where, both(guard, side), around) for arg, side in zip(value.args, sides_of(value))])
            self._lifted[key] = found, value
        return self._lifted[key][0]

    def _read(self, value, where, guard, around):
        """The read of a tensor that holds a reduction of what the group writes."""
        reduction = value.payload
        free = free_indices(variables(value) | guard.names())
        depth = self._depth(reduction, free, both(where, guard))
        dims = self.draft.dims[:depth] + tuple(index for index in around if is_among(index, free))
        where = part_about(both(where, guard), dims)
        key = (id(reduction), depth, where)
        if key not in self._made:
            tensor, start, terms = reduction_drafts(reduction, dims, self.prefix, where)
            self.group.written.add(id(tensor))
            lifted = self._with_choices(self._lift(reduction.value, terms.where, guard, dims[depth:] + reduction.over), terms)
            stage = self._stage(depth, dims[depth:], reduction.over, lifted)
            stage.tensors.add(id(tensor))
            stage.starts.append((start, start.value))
            stage.terms.append((terms, lifted))
            self._made[key] = tensor
        return self._made[key][tuple(index.affine for index in dims)]

    def _stage(self, depth, inner, over, value):
        """The stage of a reduction with these terms, behind those that they read."""
        tensors = {id(node.payload[0]) for node in nodes_of(value) if node.op == "read"}
        level = 1 + max((stage.level for stage in self.stages[depth].values() if stage.tensors & tensors), default=-1)
        key = (level, tuple(map(id, inner)), tuple(map(id, over)))
        return self.stages[depth].setdefault(key, _Stage(level, inner, over, set(), [], []))

    def _depth(self, reduction, free, where):
        """The number of loops around a reduction: those of its own indices. Raises UserError where what it reads may be written in
        between."""
        dims, least = self.draft.dims, len(self.group.shared)
        least = max([least, *(place + 1 for place, index in enumerate(dims) if is_among(index, free))])
        outer, inner = dims[:least], dims[least:]
        where = both(part_about(where, (*outer, *free)), reduction.where)
        for node in nodes_of(reduction.value) if inner else ():
            if node.op == "read" and node.payload[0] is self.draft.tensor:
                if not _are_apart(self.draft.at, node.payload[1], outer, where):
                    self._refuse(reduction, outer, inner)
        return least

    def _refuse(self, reduction, outer, inner):
        name, place = self.draft.tensor.name, f" inside nestor.steps({_names(outer)})" if outer else ""
        raise UserError(f"{name}: it changes while {_names(inner)} runs, and the reduction ({reduction}) of its elements is the "
                        f"same for every {_names(inner)}: say when it is taken, by a nestor.define of its own in front{place}")


class _Stage(NamedTuple):
    """Reductions over the same indices, at all points of `inner`: they start, and then add their terms together. level: the number
    of stages that must run before; tensors: the ids of those that hold them; starts, terms: (Draft, Value)."""
    level: int
    inner: Tuple[Index, ...]
    over: Tuple[Index, ...]
    tensors: Set[int]
    starts: list
    terms: list

    def loops(self):
        return loops_around(self.inner, self.starts + loops_around(self.over, self.terms))


def _are_apart(written, read, shared, where):
    """Whether no iteration writes an element that another one of the same `shared` indices reads where a condition holds: for some
    place, the index of one is always larger."""
    names = set().union(where.names(), *(form.names() for form in read))
    away = {index.name: _renamed(index) for index in free_indices(names) if not is_among(index, shared)}
    known = [part.form.substitute(away) for part in conjuncts(where) if isinstance(part, Compare)] + [Affine((), 0)]
    for one, other in zip(written, read):
        difference = one - other.substitute(away)
        if any(least_of(each - at_least) > 0 for each in (difference, -difference) for at_least in known):
            return True
    return False


def _renamed(index):
    """An Affine of another index with the same range."""
    name = Variable(f"{index.name}'")
    name.owner = index
    return Affine.variable(name)


def _check_names(draft, loops):
    names = [index.name for index in loops if isinstance(index, Index)]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{draft.tensor.name}: a reduction over {name} stands inside the loop of another index {name}: give "
                            "one of them another name")


def _names(indices):
    return ", ".join(index.name for index in indices)
