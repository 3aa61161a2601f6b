"""A nest with other sizes."""

import dataclasses

from .isl_text import with_sizes


def resized(nest, sizes, conditions):
    """The nest with these SizeEntries, whose names stand before all of its sets and relations, and a context of these texts."""
    names = [size.name for size in sizes]

    def named(text):
        return with_sizes(names, text)

    def access(found):
        return dataclasses.replace(found, relation=named(found.relation))

    return dataclasses.replace(
        nest, sizes=tuple(sizes), context=named(f"{{ : {' and '.join(conditions)} }}"),
        tensors=tuple(dataclasses.replace(tensor, shape=tuple(map(named, tensor.shape))) for tensor in nest.tensors),
        statements=tuple(dataclasses.replace(each, domain=named(each.domain), write=access(each.write),
                                             reads=tuple(map(access, each.reads)), indices=tuple(map(named, each.indices)))
                         for each in nest.statements))
