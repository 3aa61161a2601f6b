"""Reads at computed indices: views where the indices are affine, else PyTorch's."""

from ...nests.affine import Affine
from .extents import Unsupported, variable
from .lazy import INTEGERS, aligned
from .table import op


@op("aten.index.Tensor", "aten._unsafe_index.Tensor", kind="view", note="affine indices that lie inside; none from data")
def index(context, x, indices):
    places = [number for number, each in enumerate(indices) if each is not None]
    if not places:
        return x
    for number in places:
        if indices[number].dtype not in INTEGERS:
            raise Unsupported("elements chosen by a mask")
    dims, views = aligned([indices[number] for number in places])
    joined = places == list(range(places[0], places[-1] + 1))  # then their dims stand where the first one was, else in front
    free = [number for number in range(len(x.dims)) if number not in places]
    head = [number for number in free if joined and number < places[0]]
    tail = [number for number in free if number not in head]
    found = (*(x.dims[number] for number in head), *dims, *(x.dims[number] for number in tail))
    forms, count = _Forms(context, x, found), 0
    for number in head:
        count = forms.keep(number, count)
    names = tuple(variable(count + k) for k in range(sum(map(len, dims))))
    for number, view in zip(places, views):
        forms.read(number, _affine_of(view.element(names[:len(view.atoms)]), view.data))
    count += len(names)
    for number in tail:
        count = forms.keep(number, count)
    return x.mapped(found, forms.forms)


def _affine_of(value, data):
    if value.affine is None:
        raise Unsupported("reads at indices from data" if data else "reads at indices that are not affine")
    return value.affine


class _Forms:
    """The index of each atom of x as an Affine of the variables of a view with the dims `found`."""

    def __init__(self, context, x, found):
        self.context, self.x = context, x
        self.ranges = {f"#{k}": extent for k, extent in enumerate(self._extents([atom for dim in found for atom in dim]))}
        self.forms = [None] * len(x.atoms)

    def _extents(self, atoms):
        return self.context.builder.extents(atoms)

    def keep(self, dim, count):
        """The dim is that of the view whose variables begin at `count`. Returns where the next one's do."""
        for place in self.x.flat(dim):
            self.forms[place] = variable(count)
            count += 1
        return count

    def read(self, dim, position):
        """The dim is read at a position, which is an Affine."""
        atoms, extent = self.x.dims[dim], Affine((), 1)
        if len(atoms) > 1 and not all(atom.is_Integer for atom in atoms):
            raise Unsupported("positions in a dim that merges symbols are not affine")
        for each in self._extents(atoms):
            extent = each * extent
        self.context.require_inside(position, extent, self.ranges)
        places = list(self.x.flat(dim))
        for place in reversed(places[1:]):
            size = int(self.x.atoms[place])
            self.forms[place], position = position % size, position // size
        if places:
            self.forms[places[0]] = position
