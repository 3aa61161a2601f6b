"""What products of a region load: operands that are put together from several tensors first are better in memory."""

from ..importer.graph import factors_of, is_product, kind_of

_ROOTS = ("reduction", "product", "definition")


def composed_operands(region):
    """The pointwise nodes of a region that make an operand of a product of two or more tensors, as rotary embedding does. A
    product reads each element of an operand many times, and would make it anew each time; tensor cores read memory alone."""
    inputs = {port.node for port in region.inputs}
    members = set(region.nodes)
    found = set()
    for node in region.nodes:
        if is_product(node):
            for operand in factors_of(node):
                made, sources = _made_of(operand, inputs, members)
                if len(sources) > 1:
                    found |= made
    return found


def _made_of(operand, inputs, members):
    """(pointwise members, inputs of the region) that an operand is made of; neither where a reduction or product is among
    them."""
    made, sources, seen, waiting = set(), set(), set(), [operand]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in inputs:
            sources.add(node)
            continue
        if kind_of(node) in _ROOTS:
            return set(), set()
        if node in members and kind_of(node) == "pointwise":
            made.add(node)
        waiting += node.all_input_nodes
    return made, sources
