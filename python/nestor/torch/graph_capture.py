"""nestor.torch.capture: a model's graph, its regions as nests, and what was left to PyTorch."""

import inspect
import pathlib
import warnings

import torch

from ..errors import UserError
from . import importer  # noqa: F401  registers the rules
from .importer.regions import partition

# Composite ops that have a rule of their own: exporting leaves them as they are, so that no dims are merged for a product of
# matrices.
_KEPT = ("scaled_dot_product_attention.default", "linear.default", "matmul.default", "layer_norm.default", "rms_norm.default",
         "einsum.default")


class Capture:
    """What capture found. regions: a list of Region; left: {node: why} of the nodes that PyTorch computes; graph: as
    exported."""

    def __init__(self, program, cut="memory"):
        self.program, self.graph = program, program.graph
        found = partition(self.graph, hints_of(self.graph), cut)
        self.regions, self.left = found.regions, found.left

    @property
    def nests(self):
        """The distinct nests, by their names."""
        return {region.nest.op: region.nest for region in self.regions}

    def save(self, folder):
        """Writes a .nest.json for each distinct nest. Returns the paths."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, nest in self.nests.items():
            paths.append(folder / f"{name}.nest.json")
            nest.save(paths[-1])
        return paths

    def __repr__(self):
        from .explanation import text_of

        return text_of(self)


def capture(model, inputs, folder=None, *, kwargs=None, dynamic_shapes=None, cut="memory"):
    """Exports a model and finds what nests compute of it. Nothing is tuned or changed.

    model: a torch.nn.Module; inputs: a tuple of example inputs, kwargs: a dictionary of more. dynamic_shapes: as torch.export
    takes them: these extents become sizes of the nests, all others constants. folder: where each distinct nest is written as a
    .nest.json, for `nestor tune`. cut: "memory" cuts between kernels where memory holds a result as well as what it came from,
    "never" does not. Parts that no nest can say stay with PyTorch; `Capture.left` has the reasons.
    Raises UserError where torch.export itself does not take the model.
    """
    if not isinstance(model, torch.nn.Module):
        model = _Function(model)
    inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(model, inputs, kwargs,
                                          dynamic_shapes=dynamic_shapes).run_decompositions(decompositions())
    except Exception as error:  # noqa: BLE001  torch.export raises what it likes
        raise UserError(f"torch.export does not take this model: {error}") from error
    found = Capture(program, cut)
    if folder is not None:
        found.save(folder)
    return found


def decompositions():
    """Core ATen's decompositions, without those of composite ops that have a rule."""
    table = torch.export.default_decompositions()
    for name in _KEPT:
        op, overload = name.split(".")
        found = getattr(getattr(torch.ops.aten, op, None), overload, None)
        if found in table:
            table.pop(found)
    return table


class _Function(torch.nn.Module):
    """A plain function as a module, without a frame of its own in stack traces."""

    def __init__(self, function):
        super().__init__()
        try:
            inspect.signature(function)
            self.forward = function
        except ValueError:  # a function written in C
            self.forward = lambda *inputs: function(*inputs)


def hints_of(graph):
    """A likely value of each symbol, by name."""
    hints = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        for extent in getattr(value, "shape", (value,)) if node.op == "placeholder" else ():
            symbol = getattr(extent, "node", None)
            if symbol is not None and symbol.expr.is_Symbol and symbol.has_hint():
                hints[str(symbol.expr)] = symbol.hint
    return hints
