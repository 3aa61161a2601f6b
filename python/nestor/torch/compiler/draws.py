"""The random numbers of compiled code in PyTorch's own ops: what a region's kernel is compared with, and what replaces it.

Called eagerly, Inductor's op draws from PyTorch's generator instead, so that a mask which another graph has kept would not fit.
"""

import torch
import torch._inductor.inductor_prims  # noqa: F401  it registers the op

from ...errors import UserError
from ..importer.draws import FACTORS, ROUNDS, SCALE, STEPS
from ..importer.graph import kind_of

_WORD = 0xFFFFFFFF
_COMPARISONS = "eq", "ne", "lt", "le", "gt", "ge"
_CASTS = "convert_element_type", "_to_copy"
_BLOCK = 1 << 22  # numbers that are drawn at once: eight bytes for each of some words


def uniform(size, seed, mode="rand"):
    """What compiled prims.inductor_random gives on the seed's device: f32 from 0 to below 1."""
    if mode != "rand":
        raise UserError(f'random numbers of the kind "{mode}" are not drawn here')
    found = torch.empty(size, dtype=torch.float32, device=seed.device)
    if seed.device.type == "meta":
        return found
    on_cpu = seed.device.type == "cpu"
    key = [seed & _WORD, torch.zeros_like(seed) if on_cpu else seed >> 32 & _WORD]
    flat = found.view(-1)
    for start in range(0, flat.numel(), _BLOCK):
        part = flat[start:start + _BLOCK]
        bits = philox(torch.arange(start, start + part.numel(), device=seed.device) & _WORD, key)
        bits = bits & 0x7FFFFFFF if on_cpu else torch.where(bits >> 31 > 0, bits ^ _WORD, bits)
        part.copy_(bits.to(torch.float32) * SCALE)
    return found


def philox(place, key):
    """The first of the four words for the counters (place, 0, 0, 0): words are int64 from 0 to below 2^32."""
    zero = torch.zeros_like(place)
    counter = [place, zero, zero, zero]
    for number in range(ROUNDS):
        first, second, third, fourth = counter
        keys = [each + number * step & _WORD for each, step in zip(key, STEPS)]
        low, high = first * FACTORS[0], third * FACTORS[1]  # modulo 2^64: all bits of both words are right
        counter = [(high >> 32 & _WORD) ^ second ^ keys[0], high & _WORD, (low >> 32 & _WORD) ^ fourth ^ keys[1], low & _WORD]
    return counter[0]


def compare_unrounded(graph):
    """Makes comparisons in a graph see what was drawn as compiled code does: there casts between floats do not round."""
    drawn = {}  # what a node is before it was rounded
    for node in list(graph.nodes):
        first = node.args[0] if node.args and isinstance(node.args[0], torch.fx.Node) else None
        if node.target is uniform:
            drawn[node] = node
        elif _op_of(node) in _COMPARISONS:
            node.args = torch.fx.map_arg(node.args, lambda each: drawn.get(each, each))
        elif first in drawn and _op_of(node) in _CASTS and _type_of(node).is_floating_point:
            drawn[node] = drawn[first]
        elif first in drawn and kind_of(node) == "view":
            with graph.inserting_after(node):
                drawn[node] = graph.call_function(node.target, (drawn[first], *node.args[1:]), node.kwargs)
    if drawn:
        graph.eliminate_dead_code()


def _op_of(node):
    return getattr(node.target, "_opname", None)


def _type_of(cast):
    return cast.kwargs["dtype"] if cast.kwargs.get("dtype") is not None else (*cast.args[1:], torch.bool)[0]


COMPILED_DRAWS = {"prims.inductor_random.default": uniform}
