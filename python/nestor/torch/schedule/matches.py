"""What find found: places in the graphs of modules, as names, so that they outlive copies of the graphs."""

import re

from torch import fx, nn

from ...errors import UserError
from .derived import generated_of
from .graphs import is_compute, node_named, operands, ordered, results, source_line, submodule
from .modes import is_bookkeeping
from .ops import Op, is_op, name_of, words_of
from .patterns import Pattern


class Match:
    """One place. path: the module whose graph it is in; nodes: names of its nodes, in order; inputs: names of the nodes (or
    constants) that the pattern's arguments are; outputs: names of what it returns; named: {name in the pattern: name of a
    node}."""

    def __init__(self, path, graph, nodes, inputs, outputs, named=None):
        self.path = path
        self.nodes = [node.name for node in ordered(nodes)]
        self.inputs = [_named(each) for each in inputs]
        self.outputs = [node.name for node in outputs]
        self.named = {name: _named(node).name for name, node in (named or {}).items() if isinstance(node, fx.Node)}
        self._told = {node.name: _told(node) for node in nodes}
        self.source = next((line for line in map(source_line, reversed(ordered(nodes))) if line), None)

    def here(self, graph):
        """(nodes, inputs, outputs) in a graph of the module. Raises UserError if the graph is another by now."""
        for name, told in self._told.items():
            node = node_named(graph, name)
            if node is None or _told(node) != told:
                raise UserError(f"{self.path or 'the model'} has changed since {', '.join(self.nodes)} were found ({name} is "
                                f"{'gone' if node is None else 'another'}): find them again")
        inputs = [
            fx.node.map_aggregate(each, lambda value: node_named(graph, value.name) if isinstance(value, Name) else value)
            for each in self.inputs
        ]
        return ([node_named(graph, name) for name in self.nodes], inputs, [node_named(graph, name) for name in self.outputs])

    def __getitem__(self, name):
        """The node that has this name in the pattern."""
        if name not in self.named:
            raise UserError(f"the pattern names no {name!r}; it names {', '.join(self.named) or 'nothing'}")
        return self.named[name]

    def __repr__(self):
        place = f"  {self.source[0]}:{self.source[1]}  {self.source[2]}" if self.source else ""
        return f"{self.path or 'the model'}: {', '.join(self.nodes)}{place}"


class Name:
    """A node by its name, beside constants."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


def _named(value):
    return fx.node.map_arg(value, lambda node: Name(node.name))


def _told(node):
    """What a node is, as text that a copy of it has too."""
    return f"{node.op} {node.target} {node.args} {node.kwargs}"


class Found:
    """Matches in the order of the model, as a sequence. what: what was looked for, in words; near: why near matches are
    none."""

    def __init__(self, what, matches, near):
        self.what, self.matches, self.near = what, matches, near

    def __len__(self):
        return len(self.matches)

    def __iter__(self):
        return iter(self.matches)

    def __getitem__(self, number):
        return Found(self.what, self.matches[number], self.near) if isinstance(number, slice) else self.matches[number]

    @property
    def one(self):
        """The only match. Raises UserError if there are none or several."""
        self.some()
        if len(self) > 1:
            raise UserError(
                f"{self.what} was found {len(self)} times where one is wanted: {'; '.join(map(repr, self.matches[:4]))}"
                f"{' ...' if len(self) > 4 else ''}")
        return self.matches[0]

    def some(self):
        """The matches. Raises UserError if there are none, with the reason against the nearest."""
        if not self.matches:
            near = "; ".join(dict.fromkeys(self.near))
            raise UserError(f"{self.what} was not found" + (f": {near}" if near else ""))
        return self.matches

    def __repr__(self):
        modules = len({match.path for match in self.matches})
        head = (f"{self.what}: {len(self)} match{'' if len(self) == 1 else 'es'}" +
                (f" in {modules} modules" if modules > 1 else "")) if self.matches else f"{self.what}: no match"
        return "\n".join(
            [head, *(f"  {match!r}" for match in self.matches), *(f"  not: {each}" for each in dict.fromkeys(self.near))])


def find(module, path, what):
    """(matches, reasons against near ones) of what find takes, in a traced module. Raises UserError if it is not traced."""
    generated = generated_of(module)
    if generated is None or generated.graph is None:
        raise UserError(f"{path or 'the model'} ({type(module).__name__}) is not traced: call .trace() on it first")
    graph = generated.graph
    if isinstance(what, Pattern):
        matches, near = what.find(graph, module)
        return [_of_pattern(path, graph, each) for each in matches], [f"{path or 'the model'}: {reason}" for reason in near]
    wanted = _predicate(what)
    return [
        Match(path, graph, [node], operands(node), [node]) for node in graph.nodes
        if is_compute(node) and not is_bookkeeping(node) and wanted(node, module)
    ], []


def as_pattern(what):
    """What find looks for: a function or a module becomes a Pattern. Raises UserError for what cannot be looked for."""
    if isinstance(what, nn.Module):
        return Pattern(what)
    if isinstance(what, (str, re.Pattern)):
        try:
            return re.compile(what)
        except re.error as error:
            raise UserError(f"{what!r} is no regular expression: {error}") from error
    if isinstance(what, type) and issubclass(what, nn.Module):
        return what
    if callable(what) and not isinstance(what, type):
        return what if is_op(what) else Pattern(what)
    raise UserError(
        "find takes a function of PyTorch, a module's class, a regular expression, or a pattern: a Python function or a "
        f"module; not {what!r}")


def also_as_call(what, graphs):
    """The function itself, where one of the graphs calls it, or else a Pattern of it."""
    if callable(what) and not isinstance(what, (type, nn.Module)) and any(node.op == "call_function" and node.target is what
                                                                          for graph in graphs for node in graph.nodes):
        return what
    return as_pattern(what)


def words(what):
    return what.name if isinstance(what, Pattern) else words_of(what)


def _predicate(what):
    if isinstance(what, type):
        return lambda node, owner: node.op == "call_module" and isinstance(submodule(owner, node.target), what)
    if isinstance(what, re.Pattern):
        return lambda node, owner: any(what.fullmatch(name) for name in _names(node, owner))
    name = name_of(what)
    return lambda node, owner: Op(node, owner).name == name


def _names(node, owner):
    """The names that a regular expression may match: of the node, its op, its module's path and class."""
    name = Op(node, owner).name
    yield node.name
    yield name if isinstance(name, str) else name.__name__
    if node.op == "call_module":
        yield node.target
        yield node.target.rpartition(".")[2]
        yield type(submodule(owner, node.target)).__name__
    else:
        yield node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _of_pattern(path, graph, found):
    nodes = [node for pn, node in found.nodes_map.items() if is_compute(pn)]
    return Match(path, graph, nodes, found.placeholder_nodes, found.returning_nodes, found.name_node_map)


def external(nodes):
    """(inputs, results) of nodes as they lie in their graph."""
    inside = set(nodes)
    inputs = {}
    for node in nodes:
        for each in operands(node):
            if each not in inside:
                inputs.setdefault(each)
    return list(inputs), results(nodes)
