"""Which modules of a model a path, a glob or a regular expression names."""

import difflib
import fnmatch
import re

from ...errors import UserError

_REGULAR = re.compile(r"[\\()|+^$]")


def select(model, below, what):
    """Paths of modules below the paths `below` that `what` names, in the model's order. Raises UserError if there is none.

    A path is taken as it is; in a glob, * stands for one name or a part of one and ** for any number of names; text with one of
    \\ ( ) | + ^ $ and a compiled re.Pattern are regular expressions that the whole path has to match.
    """
    inside = {path: name for path in _paths(model) for start in below for name in [_inside(path, start)] if name is not None}
    found = [path for path, name in inside.items() if _names(what, name)]
    if not found:
        raise UserError(_nothing(what, [name for name in inside.values() if name], below))
    return found


def _paths(model):
    return [path for path, _ in model.named_modules(remove_duplicate=False)]


def _inside(path, start):
    if not start:
        return path
    if path == start:
        return ""
    return path[len(start) + 1:] if path.startswith(start + ".") else None


def _names(what, name):
    if isinstance(what, re.Pattern):
        return bool(name) and what.fullmatch(name) is not None
    if not isinstance(what, str):
        raise UserError(f"modules are selected by a path, a glob or a regular expression, not by a {type(what).__name__}")
    if what == name:
        return True
    if not name:
        return False
    if _REGULAR.search(what):
        try:
            return re.fullmatch(what, name) is not None
        except re.error as error:
            raise UserError(f"{what!r} is no regular expression: {error}") from error
    return _glob(what.split("."), name.split("."))


def _glob(what, names):
    if not what:
        return not names
    if what[0] == "**":
        return any(_glob(what[1:], names[skipped:]) for skipped in range(len(names) + 1))
    return bool(names) and fnmatch.fnmatchcase(names[0], what[0]) and _glob(what[1:], names[1:])


def _nothing(what, names, below):
    text = what.pattern if isinstance(what, re.Pattern) else what
    start = f" below {', '.join(map(repr, below[:3]))}{' ...' if len(below) > 3 else ''}" if any(below) else ""
    close = difflib.get_close_matches(text, names, 3, 0.5)
    return (f"no module{start} is named {text!r}" +
            (f"; near to it are {', '.join(close)}" if close else f"; there are {', '.join(names[:8]) or 'none'}"))


def places_of(model, module):
    """All paths of one module: several where it is shared."""
    return [path for path, each in model.named_modules(remove_duplicate=False) if each is module]


def set_module(model, path, module):
    """Puts a module at a path."""
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


def joined(*parts):
    return ".".join(part for part in parts if part)


def hooks_of(module):
    """Names of the kinds of hooks that a module has, and of what else would be lost with its call."""
    kinds = {
        "_forward_hooks": "a forward hook",
        "_forward_pre_hooks": "a forward pre-hook",
        "_backward_hooks": "a backward hook",
        "_backward_pre_hooks": "a backward pre-hook"
    }
    found = [words for name, words in kinds.items() if getattr(module, name, None)]
    if "forward" in vars(module):
        found.append("a forward of its own, set on the object")
    return found


def refuse_hooks(module, path):
    found = hooks_of(module)
    if found:
        raise UserError(
            f"{path or 'the model'} ({type(module).__name__}) has {' and '.join(found)}, which would no longer run; "
            "remove it first, or leave this module as it is")
