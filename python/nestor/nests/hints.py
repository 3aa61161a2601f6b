"""What a message about a nest says besides, where Python has a word for the remedy."""

import re

from .isl_text import only_piece

_UNWRITTEN = re.compile(r"statement (\w+) reads elements of (\w+) that were not written before")


def with_remedy(nest, text):
    """The text of an error about a nest; where a statement reads what was not written before, with what could be meant."""
    found = _UNWRITTEN.search(text)
    reader = next((each for each in nest.statements if found and each.name == found[1]), None)
    if reader is None:
        return text
    writers = [each for each in nest.statements if each.write.tensor == found[2]]
    later = [each.name for each in writers if each.group > reader.group]
    if later:
        return (f"{text}; {later[0]} writes such elements, but runs later: statements that need each other's steps stand in "
                "one nestor.steps")
    if reader in writers and any(_is_ahead(reader.write, read) for read in reader.reads):
        return (f"{text}; points run in ascending order. For a recurrence from the end, let t count from there: write at "
                "n - 1 - t, and read at n - t what was written before")
    if writers == [reader]:
        return (f"{text}; nothing else writes {found[2]}, and what is written is no input: give it a start with nestor.define")
    return text


def _is_ahead(write, read):
    """Whether a read is of what its own statement writes at a later point: some constant further in one index, the same in
    others."""
    wrote, seen = only_piece(write.relation), only_piece(read.relation)
    if write.tensor != read.tensor or wrote is None or seen is None or wrote.dims != seen.dims:
        return False
    steps = [one - other for one, other in zip(seen.functions, wrote.functions)]
    forward = [dict(form.terms).get(dim, 0) > 0 for form in wrote.functions for dim in wrote.dims if dict(form.terms).get(dim)]
    return (all(step.is_constant and step.constant >= 0 for step in steps) and any(step.constant for step in steps)
            and all(forward))
