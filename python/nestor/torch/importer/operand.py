"""Operands of a node: what their nodes give in the region in which they are used."""

from typing import Any, NamedTuple

import torch


class Operand(NamedTuple):
    """A node as an operand, converted when the rule is called. words: whether as words of 32 bits (table.Rule)."""
    walk: Any
    node: torch.fx.Node
    depth: int
    words: bool = False


def resolved(found):
    """Arguments of a node, with Operands as what their nodes give."""
    if isinstance(found, Operand):
        return found.walk.operand(found.node, found.depth, found.words)
    if isinstance(found, (list, tuple)):
        return type(found)(resolved(each)
                           for each in found) if type(found) in (list, tuple) else [resolved(each) for each in found]
    if isinstance(found, dict):
        return {key: resolved(each) for key, each in found.items()}
    return found
