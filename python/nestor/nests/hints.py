"""What a message about a nest says besides, where Python has a word for the remedy."""

import re

_UNWRITTEN = re.compile(r"statement (\w+) reads elements of (\w+) that were not written before")


def with_remedy(nest, text):
    """The text of an error about a nest; where a statement reads what a later one writes, with what makes both one step."""
    found = _UNWRITTEN.search(text)
    reader = next((each for each in nest.statements if found and each.name == found[1]), None)
    later = [each.name for each in nest.statements if reader and each.group > reader.group and each.write.tensor == found[2]]
    if not later:
        return text
    return f"{text}; {later[0]} writes such elements, but runs later: statements that need each other's steps stand in one nestor.steps"
