"""Loops that several statements share, in sequence and inside each other, as the nest format has them: one row of loops for all.

Where a statement stands before or after a loop, it runs at one iteration of that: before at 0, in front of what the loop holds,
after at the extent, behind all of it. Loops one after the other are iterations of a loop around them.
"""

from typing import Any, List, NamedTuple, Tuple

from .affine import Affine
from .definitions import Index, Once

_FIRST = Affine((), 0)


class Loop(NamedTuple):
    """The loop of an index around what `body` holds in sequence: Loops and anything else, which are statements."""
    index: Index
    body: List[Any]


def loops_around(indices, body):
    """What a row of loops, the first outermost, has around a body: a list, as bodies are."""
    for index in reversed(indices):
        body = [Loop(index, body)]
    return body


def flattened(body):
    """[(statement, loops)] in the order of the text: for each statement the same number of loops, outermost first, each an Index or
    a Once."""
    found = _flattened(body)
    most = max(len(loops) for _, loops in found)
    return [(statement, loops + (Once(_FIRST),) * (most - len(loops))) for statement, loops in found]


def _flattened(body):
    rows = _rows(body)
    found = []
    for number, (before, loop, after) in enumerate(rows):
        around = (Once(Affine((), number)),) if len(rows) > 1 else ()
        found += [(statement, around + ((Once(_FIRST, loop.index),) if loop else ())) for statement in before]
        if loop:
            found += [(statement, (*around, loop.index, *loops)) for statement, loops in _flattened(loop.body)]
            found += [(statement, (*around, Once(loop.index.extent, loop.index))) for statement in after]
    return found


def _rows(body) -> List[Tuple[list, Any, list]]:
    """(statements before, a loop, statements after) for each loop of a sequence; only the last has some after it."""
    rows, before = [], []
    for each in body:
        if isinstance(each, Loop):
            rows.append((before, each, []))
            before = []
        else:
            before.append(each)
    if not rows:
        return [(before, None, [])]
    rows[-1][2].extend(before)
    return rows
