"""Backward bounds: temporaries are computed only where what reads them needs them."""

from ...nests.affine import TRUE, Affine, Joined, both, either
from ...nests.assemble import reads_of, updates_of


def shrink(outputs):
    """Narrows the statements of temporaries to the elements that are read, where readers say so by conditions on their own
    indices. Readers come after what they read, so that one pass from the last statement to the first is enough."""
    updates = updates_of(outputs)
    readers = {}
    for update in updates:
        for tensor, at in reads_of(update.value):
            readers.setdefault(id(tensor), []).append((update, at))
    kept = {id(tensor) for tensor in outputs}
    last_first = dict.fromkeys(update.tensor for update in reversed(updates))
    for tensor in last_first:
        if id(tensor) not in kept and tensor.updates:
            _narrow(tensor, readers.get(id(tensor), ()))


def _narrow(tensor, readers):
    needed = either(*(_needed(tensor, _current(update), at) for update, at in readers)) if readers else TRUE
    if needed == TRUE:
        return
    if any(_name_of(form) is None for update in tensor.updates for form in update.at):
        return
    for number, update in enumerate(tensor.updates):
        own = needed.substitute({f"#{k}": form for k, form in enumerate(update.at)})
        tensor.updates[number] = update._replace(where=both(update.where, own))


def _current(update):
    """The statement as it is now: it may have been narrowed."""
    return next(each for each in update.tensor.updates if each.number == update.number)


def _needed(tensor, reader, at):
    """The condition on the indices #0, #1, ... of a tensor under which a statement reads an element, as far as it is plain."""
    names = [_name_of(form) for form in at]
    if reader.tensor is tensor or None in names or len(set(names)) < len(names):
        return TRUE
    parts = reader.where.parts if isinstance(reader.where, Joined) and reader.where.conjunction else (reader.where,)
    own = {index.name for index in reader.dims}
    plain = [part for part in parts if part.names() & own <= set(names)]
    return both(*plain).substitute({name: Affine.variable(f"#{k}") for k, name in enumerate(names)})


def _name_of(form):
    """The index that a form is, or None."""
    if len(form.terms) == 1 and not form.constant and form.terms[0][1] == 1 and hasattr(getattr(form.terms[0][0], "owner", None),
                                                                                     "extent"):
        return form.terms[0][0]
    return None
