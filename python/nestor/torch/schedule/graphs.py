"""What a schedule asks of torch.fx graphs: copies, arguments, writes, convexity, source lines, and the code that they print."""

import copy
import operator
import os
import re

import torch
from torch import fx

IN_PLACE = ("iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior", "ipow", "irshift", "isub", "itruediv",
            "ixor")
_WRITING = {operator.setitem, operator.delitem, setattr, *(getattr(operator, name) for name in IN_PLACE)}
_FRAME = re.compile(r'  File "([^"]+)", line .*\n(?:(?!  File ").*\n?)*')
_HERE = os.path.dirname(__file__) + os.sep
_OWN = re.compile(r"nestor_torch_schedule_(?:symbols|modes|exporting)_|^torch\.fx\._symbolic_trace\.wrap.*\n", re.M)
_DELETIONS = re.compile(r";  [\w, =]+ = None(?=\n)")


def copied(graph):
    """A copy whose nodes have the same names."""
    made = copy.deepcopy(graph)
    assert [node.name for node in made.nodes] == [node.name for node in graph.nodes]
    return made


def node_named(graph, name):
    """The node of that name, or None."""
    return next((node for node in graph.nodes if node.name == name), None)


def operands(node):
    """The nodes among a node's arguments, in order, each once."""
    found = {}
    fx.node.map_arg((node.args, node.kwargs), lambda each: found.setdefault(each))
    return list(found)


def is_compute(node):
    return node.op in ("call_function", "call_method", "call_module")


def writes(node, owner=None):
    """Whether a node writes into a tensor that it is given, as far as its name, schema or module say."""
    target = node.target
    if node.kwargs.get("inplace") is True or isinstance(node.kwargs.get("out"), fx.Node):
        return True
    if node.op == "call_module":
        return owner is not None and bool(getattr(submodule(owner, target), "inplace", False))
    if node.op == "call_method":
        return target.endswith("_") and not target.endswith("__") and target != "requires_grad_"
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.is_mutable
    name = getattr(target, "__name__", "")
    return node.op == "call_function" and (target in _WRITING or
                                           (name.endswith("_") and not name.startswith("_")
                                            and getattr(target, "__module__", None) in ("torch", "torch.nn.functional", None)))


def submodule(owner, target):
    """The module or value that a call_module or get_attr node names."""
    for part in target.split("."):
        owner = getattr(owner, part)
    return owner


def between(nodes):
    """The first node outside of `nodes` that lies on a way from one of them to another, or None: then they are convex."""
    inside, tainted = set(nodes), set()
    order = list(next(iter(inside)).graph.nodes)
    for node in order:
        if node in inside:
            continue
        if any(each in inside or each in tainted for each in operands(node)):
            tainted.add(node)
    for node in order:
        if node in inside:
            for each in operands(node):
                if each in tainted:
                    return each
    return None


def results(nodes):
    """Those of `nodes` that are read outside, in order."""
    inside = set(nodes)
    return [node for node in nodes if any(user not in inside for user in node.users)]


def ordered(nodes):
    """The same nodes in the order of their graph."""
    chosen = set(nodes)
    return [node for node in next(iter(chosen)).graph.nodes if node in chosen] if chosen else []


def sort(graph):
    """Moves nodes behind what they read, and otherwise keeps their order."""
    placed, last = set(), None
    for node in list(graph.nodes):
        for each in _waiting(node, placed):
            if last is not None and last.next is not each:
                last.append(each)
            last = each
            placed.add(each)


def _waiting(node, placed):
    """The node after all of its operands that are not placed yet."""
    found, stack = [], [(node, False)]
    while stack:
        each, ready = stack.pop()
        if each in placed or each in found:
            continue
        if ready:
            found.append(each)
            continue
        stack.append((each, True))
        stack += [(operand, False) for operand in reversed(operands(each))]
    return found


def source_line(node):
    """(file, line, text) of the line that made a node, or None."""
    from ..explanation import source_of  # it loads sympy

    return source_of(node)


def strip_frames(graph):
    """Takes this package's own lines out of where nodes come from."""
    for node in graph.nodes:
        trace = node.meta.get("stack_trace")
        if trace:
            node.meta["stack_trace"] = _FRAME.sub(lambda frame: "" if frame[1].startswith(_HERE) else frame[0], trace)


def readable(source):
    """Generated code as a person reads it: without what frees values, and without this package's own names for its checks."""
    return _OWN.sub("", without_deletions(source)).lstrip()


def without_deletions(source):
    """Generated code, line by line, without what frees values."""
    return _DELETIONS.sub("", source)
