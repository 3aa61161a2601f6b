"""Pointwise ops that every reader computes for itself: what is made of little data, such as the mask that all layers of a model
share, made of a padding mask and of indices."""

from ...nests.values import nodes_of
from .graph import kind_of
from .lazy import LIGHT, Lazy

_MOST_OPS = 48  # for an element
_TIMES_LESS = 4  # fewer elements than the result has


def copies_of(walk):
    """Pointwise members that are read more than once, a few operations of arithmetic, and broadcast from tensors with a fourth of
    their elements at most; with the members that they are made of. In memory they would cost more, and would hide conditions."""
    readers, found = walk.readers(), set()
    for node in walk.members:
        own = readers.get(node, ())
        shared = len(own) > 1 or any(walk.depth[reader] != walk.depth[node] for reader in own)
        if shared and node not in found:
            made = _made_of(walk, node)
            if made and _TIMES_LESS * sum(map(walk.elements, _sources(walk, made))) <= walk.elements(node):
                found |= made
    return found


def _made_of(walk, node):
    """The members that a member is made of, itself among them; none where one of them is not light."""
    made, waiting, ops = set(), [node], 0
    while waiting:
        each = waiting.pop()
        if each in made:
            continue
        size = _operations(walk.plain.get(each)) if kind_of(each) == "pointwise" else None
        if size is None or ops + size > _MOST_OPS:
            return set()
        made.add(each)
        ops += size
        waiting += [base for base in walk.sources(each) if base in walk.members]
    return made


def _sources(walk, made):
    """What members are made of besides each other."""
    return {source for node in made for source in walk.sources(node)} - made


def _operations(found):
    """How many operations an element takes; None for what is no arithmetic."""
    if not isinstance(found, Lazy):
        return None
    nodes = nodes_of(found.probe())
    return len(nodes) if all(node.op in LIGHT for node in nodes) else None
