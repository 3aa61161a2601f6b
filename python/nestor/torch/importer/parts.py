"""What a graph is parted into."""

from typing import Dict, List, NamedTuple, Tuple

import torch

from ...nests.model import Nest


class Port(NamedTuple):
    """A tensor that enters or leaves a region. name: in the nest; node: of the graph; extents: of the nest tensor's indices, as
    sympy expressions: the node's tensor reshaped to them is the argument. words: an integer of 64 bits is read as its two words,
    the low one first, and these are the argument."""
    name: str
    node: torch.fx.Node
    extents: Tuple
    words: bool = False

    def shape(self, symbols):
        """The extents at values of the graph's symbols, by name."""
        return tuple(int(extent.subs({symbol: symbols[str(symbol)] for symbol in extent.free_symbols})) for extent in self.extents)


class Region(NamedTuple):
    """Nodes that one nest computes."""
    nest: Nest
    nodes: List[torch.fx.Node]
    inputs: List[Port]
    outputs: List[Port]


class Origin(NamedTuple):
    """What a member was computed from inside its region: whether by products, or by reductions too; the largest number of
    elements of what the region reads for it."""
    product: bool
    root: bool
    elements: int


class Partition(NamedTuple):
    """What became of a graph's nodes. left: why the others were left to PyTorch."""
    regions: List[Region]
    left: Dict[torch.fx.Node, str]
