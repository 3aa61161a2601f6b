"""flex_attention while torch.compile traces a call: one operator, nestor::flex_attention, whose inputs are all tensors that the
functions captured.

The functions run once among what is traced, on single zeros, and a record is kept of the operations. torch.compile then guards
what the functions depend on, and the tensors that they read are inputs of its graph. What they compute there is unused.
"""

import hashlib
import math

import torch
from torch._higher_order_ops.flex_attention import math_attention
from torch.overrides import TorchFunctionMode

from ..errors import UserError
from .flex_mods import trace
from .operators import LIBRARY

_programs = {}  # by name: (Traced, stand-ins for its tensors)


class Recorder(TorchFunctionMode):
    """Keeps `records`, one (function, arguments, named arguments, number of the result) for each operation; arguments are
    ("tensor", number), ("sequence", arguments) or ("constant", value). seen: tensors by number; captured: numbers of those that
    came from elsewhere. An element read at indices is 0."""

    def __init__(self, seen):
        super().__init__()
        self.seen, self.records, self.captured = seen, [], []

    def reference(self, arg):
        if isinstance(arg, torch.Tensor):
            for number, each in enumerate(self.seen):
                if each is arg:
                    return ("tensor", number)
            self.seen.append(arg)
            self.captured.append(len(self.seen) - 1)
            return ("tensor", len(self.seen) - 1)
        if isinstance(arg, (tuple, list)):
            return ("sequence", tuple([self.reference(part) for part in arg]))
        if isinstance(arg, int) and not isinstance(arg, bool):
            return ("constant", range(arg, arg + 1)[0])  # which makes a symbolic integer a constant
        return ("constant", arg)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        references = tuple([self.reference(arg) for arg in args])
        named = tuple([(key, self.reference(value)) for key, value in (kwargs or {}).items()])
        if func is torch.Tensor.__getitem__:
            rank = len(args[1]) if isinstance(args[1], tuple) else 1
            result = args[0].new_zeros(args[0].shape[rank:])
        else:
            result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.seen.append(result)
            self.records.append((func, references, named, len(self.seen) - 1))
        return result


def record(score_mod, mask_mod, device):
    """(records, (results of score_mod and mask_mod as references, or None), what was captured as (number, type, rank, whether it is
    the host's), those tensors). Constants but for the last."""
    seen = [torch.zeros((), device=device), *[torch.zeros((), dtype=torch.int64, device=device) for _ in range(4)]]
    places = seen[1:]
    recorder = Recorder(seen)
    with recorder:
        score = None if score_mod is None else score_mod(seen[0], *places)
        mask = None if mask_mod is None else mask_mod(*places)
    results = tuple([None if each is None else recorder.reference(each) for each in (score, mask)])
    tensors = [seen[number] for number in recorder.captured]
    kinds = tuple([(number, tensor.dtype, tensor.dim(), tensor.device.type == "cpu")
                   for number, tensor in zip(recorder.captured, tensors)])
    return tuple(recorder.records), results, kinds, tensors


@torch.compiler.assume_constant_result
def program_of(records, results, kinds, device):
    """(name of a recorded program, None), or ("", why there is none)."""
    tensors = [torch.ones((3,) * rank, dtype=dtype, device="cpu" if host else device) for _, dtype, rank, host in kinds]
    captured = {number: tensor for (number, *_), tensor in zip(kinds, tensors)}

    def both(*scalars):
        known = dict(enumerate(scalars)) | captured
        for function, args, named, number in records:
            known[number] = function(*[_value(arg, known) for arg in args], **{key: _value(arg, known) for key, arg in named})
        return [None if each is None else _value(each, known) for each in results]

    found = trace(both, tensors, device)
    if found.reason is not None:
        return "", found.reason
    name = _name_of(found, tensors)
    _programs[name] = found, tensors
    return name, None


def _value(reference, known):
    kind, found = reference
    if kind == "sequence":
        return tuple(_value(part, known) for part in found)
    return known[found] if kind == "tensor" else found


def _name_of(found, tensors):
    """A name that follows from what the functions say: compiled graphs are kept on disk, for other processes."""
    constants = {target: (tensor.dtype, tensor.tolist()) for target, tensor in found.constants.items()}
    kinds = [(tensor.dtype, tensor.dim(), tensor.device.type) for tensor in tensors]
    return hashlib.sha256(f"{found.graph} {found.tensors} {constants} {kinds}".encode()).hexdigest()[:32]


def program(name):
    """(the Traced of a name, stand-ins for the tensors that it captured)"""
    return _programs[name]


class Replayed:
    """score_mod and mask_mod as PyTorch's flex_attention takes them, from a Traced and its tensors."""

    def __init__(self, found, tensors):
        attributes = {target: tensors[number] for target, number in found.tensors.items()} | found.constants
        self._module = torch.fx.GraphModule(attributes, found.graph)

    def score_mod(self, score, b, h, q, k):
        return score if self._module(score, b, h, q, k)[0] is None else self._module(score, b, h, q, k)[0]

    def mask_mod(self, b, h, q, k):
        seen = self._module(torch.zeros((), device=q.device), b, h, q, k)[1]
        return q.new_ones((), dtype=torch.bool) if seen is None else seen


def defined(found, tensors, query, key, value, scale, shown=None):
    """(result, log-sum-exp in f32) as PyTorch defines attention with the functions of a Traced. shown: in place of its mask_mod."""
    mods = Replayed(found, tensors)
    out, logarithm, _ = math_attention(query, key, value, mods.score_mod, (shown or mods.mask_mod,), scale, {})
    return out, (logarithm * math.log(2)).float()


def no_gradient(ctx, *_):
    raise UserError("nestor::flex_attention has no gradient; nestor.torch.flex_attention leaves calls that need one to PyTorch")


LIBRARY.define("flex_attention(Tensor query, Tensor key, Tensor value, Tensor[] captured, str mods, float scale, bool lse,"
               " str tune, float budget_s, Tensor[]? blocks=None, SymInt[]? places=None) -> (Tensor, Tensor)")
torch.library.register_autograd("nestor::flex_attention", no_gradient, lib=LIBRARY)
