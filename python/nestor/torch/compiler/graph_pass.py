"""The pass that Inductor runs over each of its graphs for us, with an identity that its caches understand."""

import hashlib
import pathlib
import traceback

from torch._inductor.custom_graph_pass import CustomGraphPass

from . import races
from .region_op import say_once


class RegionPass(CustomGraphPass):
    """Runs the pass that was in the slot before, then `rewrite(graph)`. Where that fails, which is a bug, the graph stays as it
    was."""

    def __init__(self, rewrite, options, before=None):
        self._rewrite, self._options, self._before = rewrite, options, before

    def __call__(self, graph):
        if self._before is not None:
            self._before(graph)
        try:
            apply = self._rewrite(graph)
        except Exception as error:  # noqa: BLE001  a bug of ours must not take the model with it
            say_once("pass", f"Inductor compiles this without Nestor's regions, as finding them failed: {error!r}\n"
                             f"{traceback.format_exc()}")
            return
        apply()

    def uuid(self):
        """What compiled code depends on besides the graph; None where it must not come from a cache."""
        before = self._before.uuid() if isinstance(self._before, CustomGraphPass) else None
        if self._before is not None and before is None:
            return None
        options = self._options
        database = options.db or races.default_database()
        return (before, _code(), repr(options.tune), repr(options.verify), options.min_gain, options.products, database,
                races.state_of(database), races.state_of(f"{database}-wal"), races.state_of(races.path_of(options.db)))


def _code():
    """A hash over the sources that decide what becomes of a graph."""
    global _hash
    if _hash is None:
        found = hashlib.sha256()
        root = pathlib.Path(__file__).resolve().parents[2]
        for path in sorted([*root.glob("nests/*.py"), *root.glob("torch/importer/*.py"), *root.glob("torch/compiler/*.py")]):
            found.update(path.read_bytes())
        _hash = found.hexdigest()
    return _hash


_hash = None
