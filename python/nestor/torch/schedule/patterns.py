"""Patterns: a Python function or a module as a graph, and the matcher that finds it structurally.

The matcher is torch.fx's SubgraphMatcherWithNameNodeMap with other notions of equality: ops by name however they are written,
modules by type, numbers as wildcards, operands of commutative ops in both orders.
"""

import inspect
import re

import torch
from torch import fx
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.fx.passes.utils.matcher_with_name_node_map_utils import SubgraphMatcherWithNameNodeMap
from torch.utils import _pytree as pytree

from ...errors import UserError
from .graphs import between, is_compute, strip_frames
from .modes import chosen, is_bookkeeping
from .ops import Op, words_of
from .symbols import Written

_MISSING = object()


class _Exactly:
    """A constant of a pattern that has to be equal."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"exactly({self.value!r})"


class _Modules:
    """What call_module matches."""

    def __init__(self, what):
        self.what = what

    def __repr__(self):
        return f"modules({words_of(self.what)!r})"

    def takes(self, node, module):
        if isinstance(self.what, type):
            return isinstance(module, self.what)
        return any(re.fullmatch(self.what, name) for name in (node.target, node.target.rpartition(".")[2]))


def exactly(value):
    """In a pattern: a number that has to be this one. Other numbers of a pattern match any number."""
    return _Exactly(value)


def call_module(what, *inputs, **named):
    """In a pattern: a call of a module of a class, or whose path or name matches a regular expression as a whole."""
    if not isinstance(what, (type, str)):
        raise UserError(f"call_module takes a class or a regular expression over names, not a {type(what).__name__}")
    proxy = next((each for each in (*inputs, *named.values()) if isinstance(each, fx.Proxy)), None)
    if proxy is None:
        raise UserError("call_module is for patterns: one of its inputs has to be a value of the pattern")
    return proxy.tracer.create_proxy("call_function", call_module, (_Modules(what), *inputs), named)


class _Tracer(fx.Tracer):
    record_stack_traces = True

    def is_leaf_module(self, module, name):
        return True

    def proxy(self, node):
        return Written(node, self)

    def create_arg(self, a):
        return a if isinstance(a, (_Exactly, _Modules)) else super().create_arg(a)


def traced_function(function, what):
    """(graph, root) of a plain function or a module whose children stay calls. Raises UserError with the reason."""
    tracer = _Tracer()
    try:
        graph = tracer.trace(function)
    except UserError:
        raise
    except NameError as error:
        raise UserError(
            f"{what} {words_of(function)} calls a module or reads a parameter of its own: make tensors its arguments, and "
            "match modules with schedule.call_module(nn.Linear, x)") from error
    except Exception as error:  # noqa: BLE001  what tracing meets is the user's
        raise UserError(f"{what} {words_of(function)} cannot be traced: {str(error).splitlines()[0]}") from error
    strip_frames(graph)
    free = [node.name for node in graph.nodes if node.op == "get_attr" and not isinstance(function, torch.nn.Module)]
    if free:
        raise UserError(
            f"{what} {words_of(function)} has free variables, {len(free)} tensors from outside: make them its arguments")
    return graph, tracer.root


class Pattern:
    """A function or a module as what is looked for. parameters: its arguments' names; results: how many values it returns."""

    def __init__(self, function):
        self.name = words_of(function) if not isinstance(function, torch.nn.Module) else type(function).__name__
        graph, self.root = traced_function(function, "the pattern")
        self.parameters = [node.target for node in graph.nodes if node.op == "placeholder"]
        self.results, self.names = self._outputs(graph)
        graph.owning_module = self.root
        graph.eliminate_dead_code()
        self._check(graph)
        values, self._spec = pytree.tree_flatten((*self.results, self.names))
        next(node for node in graph.nodes if node.op == "output").args = (list(values), )
        self._graph = graph

    def _outputs(self, graph):
        found = next(node for node in graph.nodes if node.op == "output").args[0]
        names = {}
        if isinstance(found, (tuple, list)) and found and isinstance(found[-1], dict):
            *found, names = found
        found = tuple(found) if isinstance(found, (tuple, list)) else (found, )
        if not found or not all(isinstance(each, fx.Node) and is_compute(each) for each in found):
            raise UserError(
                f"the pattern {self.name} has to return what it computes, a value or a tuple of values (and, as the last, "
                "a dictionary of names)")
        return found, names or {node.name: node for node in graph.nodes if is_compute(node) and node.users}

    def _check(self, graph):
        unused = [node.target for node in graph.nodes if node.op == "placeholder" and not node.users]
        if unused:
            raise UserError(f"the pattern {self.name} does not use its argument {', '.join(unused)}")

    def module(self):
        """The pattern as a matcher of torch.fx wants it; the matcher changes it."""
        graph = fx.Graph()
        graph.output(graph.graph_copy(self._graph, {}))
        graph.set_codegen(
            _PyTreeCodeGen(_PyTreeInfo(self.parameters,
                                       pytree.tree_flatten(tuple(self.parameters))[1], self._spec)))
        return fx.GraphModule(self.root, graph, class_name="Pattern")

    def find(self, graph, owner):
        """(matches of torch.fx, reasons against near ones)."""
        matcher = _Matcher(self, owner)
        return matcher.match(graph), matcher.reasons


class _Matcher(SubgraphMatcherWithNameNodeMap):

    def __init__(self, pattern, owner):
        self._ops, self._owners, self.reasons = {}, (pattern.root, owner), []
        super().__init__(pattern.module())
        self._in_pattern = set(self.pattern.nodes)

    def _op(self, node):
        if node not in self._ops:
            self._ops[node] = Op(node, self._owners[node not in self._in_pattern])
        return self._ops[node]

    def _nodes_are_equal(self, pn, gn, node_name_match=""):
        if pn.op == "placeholder":
            return True
        if not is_compute(pn) or not is_compute(gn) or is_bookkeeping(gn):
            return pn.op == gn.op == "get_attr" and pn.op != "output"
        if pn.target is call_module:
            return gn.op == "call_module" and pn.args[0].takes(gn, self._op(gn).module)
        one, other = self._op(pn), self._op(gn)
        if isinstance(one.name, type) and isinstance(other.name, type):
            return issubclass(other.name, one.name)
        return one.name == other.name

    def _match_nodes(self, pn, gn, match, node_name_match=""):
        found = next(self._ways([(pn, gn)], match.nodes_map), None)
        if found is None:
            return False
        match.nodes_map.clear()
        match.nodes_map.update(found)
        return True

    def _ways(self, pairs, known):
        """All maps that extend `known` so that each pair of a pattern's and a graph's value is equal."""
        if not pairs:
            yield known
            return
        (one, other), *rest = pairs
        if isinstance(one, fx.Node):
            yield from self._node_ways(one, other, rest, known)
        else:
            more = _constants(one, other)
            if more is not None:
                yield from self._ways(more + rest, known)

    def _node_ways(self, pn, value, rest, known):
        if pn in known:
            if known[pn] is value or (not isinstance(value, fx.Node) and known[pn] == value):
                yield from self._ways(rest, known)
            return
        if pn.op == "placeholder":
            yield from self._ways(rest, {**known, pn: value})
            return
        if not isinstance(value, fx.Node) or not self._nodes_are_equal(pn, value):
            return
        if any(each is value for key, each in known.items() if key.op != "placeholder"):
            return
        for arguments in self._orders(pn, value):
            yield from self._ways(arguments + rest, {**known, pn: value})

    def _orders(self, pn, gn):
        """Lists of pairs of arguments, one for each order that means the same."""
        if pn.op == "get_attr":
            return [[]]
        if pn.target is call_module:
            given = dict(enumerate(pn.args[1:])), pn.kwargs
            return [_paired({**given[0], **given[1]}, {**dict(enumerate(gn.args)), **gn.kwargs})]
        return [_paired(self._op(pn).arguments, order) for order in self._op(gn).operands()]

    def _is_contained(self, nodes_map):
        """Whether nothing inside is needed outside, and no way leaves the match and comes back. Keeps the reason."""
        inside = [node for pn, node in nodes_map.items() if is_compute(pn)]
        returned = {nodes_map[each] for each in self.pattern_returning_nodes}
        for node in inside:
            outside = [user.name for user in node.users if user not in inside]
            if outside and node not in returned:
                self.reasons.append(f"{node.name} inside of it is also read by {', '.join(outside)}")
                return False
        way = between(inside)
        if way is not None:
            self.reasons.append(f"it is not convex: {way.name} lies between its nodes, and is not one of them")
            return False
        if any(each in inside for pn, each in nodes_map.items() if pn.op == "placeholder"):
            self.reasons.append("an argument of the pattern would be a value that it computes itself")
            return False
        return True


def _paired(one, other):
    """Pairs of arguments of the same name, but for the mode; what one side lacks is paired with _MISSING."""
    return [(one.get(name, _MISSING), other.get(name, _MISSING)) for name in dict.fromkeys([*one, *other])
            if name != "training" or isinstance(one.get(name), (_Exactly, fx.Node))]


def _constants(one, other):
    """Pairs that have to be equal as well for two arguments that are no nodes of the pattern to be equal, or None."""
    if isinstance(one, _Exactly):
        return [] if not isinstance(other, fx.Node) and other == one.value else None
    if one is _MISSING or other is _MISSING:
        rest = other if one is _MISSING else one
        return [] if rest in (None, False, _MISSING) or _is_number(rest) or rest is True else None
    if isinstance(other, fx.Node):
        return [] if other.target is chosen and (one is None or _is_number(one)) else None
    if isinstance(one, slice) and isinstance(other, slice):
        return [(getattr(one, name), getattr(other, name)) for name in ("start", "stop", "step")]
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return list(zip(one, other)) if len(one) == len(other) else None
    if _is_number(one) and _is_number(other):
        return []
    return [] if type(one) is type(other) and one == other else None


def _is_number(value):
    return isinstance(value, (int, float, complex)) and not isinstance(value, bool)


def arity(function, count):
    """Whether a function can be called with so many positional arguments; True where nobody can know."""
    try:
        inspect.signature(function).bind(*range(count))
    except ValueError:
        return True
    except TypeError:
        return False
    return True
