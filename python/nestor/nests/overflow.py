"""Products of indices and sizes that 32 bits are too few for: they wrap, and nothing says so when a kernel runs."""

import itertools

from .affine import both
from .assemble import updates_of
from .definitions import Size, free_indices
from .evaluate import bounds

_MOST_CORNERS = 256
_WORDS = ("bit_", "shift_", "mul_high")  # what takes bits may mean to lose some


def index_products_that_wrap(outputs):
    """For each product of indices and sizes alone that leaves i32 at the default sizes, a text that names it and says what to
    write. Only where some point of a statement surely has such a product."""
    found = {}
    for update in updates_of(outputs):
        products = [node for node in _computed(update.value) if node.op == "mul" and node.type == "i32"]
        for node in products:
            largest = _at_corners(node, update)
            if largest is not None and largest >= 2**31:
                one, other = node.args
                found[repr(node)] = (f"{node!r} is {largest} at the default sizes, and wraps around 32 bits: as an f32 it is "
                                     f"nestor.cast(nestor.f32, {one!r}) * {other!r}")
    return list(found.values())


def _computed(value):
    """The nodes of a value that are computed at every point and not for their bits."""
    waiting, seen = [value], {}
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            waiting += () if node.op.startswith(_WORDS) else node.args[:1] if node.op == "select" else node.args
    return seen.values()


def _at_corners(product, update):
    """The largest magnitude of a product at the points of a statement that are corners of its domain; None if it is none of
    indices and sizes."""
    forms = [arg.affine for arg in product.args]
    if None in forms:
        return None
    domain = both(*(index.range for index in update.dims), update.where)
    names = set().union(domain.names(), *(form.names() for form in forms))
    sizes = {name: name.owner.default for name in names if isinstance(name.owner, Size)}
    dims = [index.name for index in free_indices(names, update.dims)]
    box = bounds(domain, dims, sizes)
    ends = [sorted({*box[dim]}, reverse=True) for dim in dims]
    if any(low > high for low, high in box.values()):
        return None
    points = ({**sizes, **dict(zip(dims, point))} for point in itertools.islice(itertools.product(*ends), _MOST_CORNERS))
    return max((abs(forms[0].value(point) * forms[1].value(point)) for point in points if domain.value(point)), default=None)
