"""Whether a kernel's results are as good as PyTorch's: both are compared with the same ops in float64."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..importer.definitions import CUDNN_HIDES

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_GRANTED = 1.5  # times PyTorch's own error
_PART_GRANTED = 64  # times PyTorch's largest error as a part of an element: there chance has more to say
_LEAST_PART = 2.0**-7
_SMALLEST = 2.0**-100  # elements below may be lost to underflow on the way
COMPILED = 64  # times what is accepted of kernels: what PyTorch's compiled code does may be off by, where it is not wrong
_MOST_BYTES = 4 << 30  # of values in float64 that are alive together
_BLOCK = 1 << 24  # scores of attention that are computed at once
_CUDNN = "_scaled_dot_product_cudnn_attention"
_ATTENTION = ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
              _CUDNN, "_scaled_dot_product_flash_attention_for_cpu",
              "_scaled_dot_product_fused_attention_overrideable")


def check(module, inputs, results, slack=1):
    """(why results are not accepted or None, PyTorch's own results). module: computes the same in PyTorch's ops; slack: a factor of
    the error that is accepted.

    A result is accepted when its largest error against float64 is at most 1.5 times PyTorch's own plus one unit in the last
    place of the largest value; when no element is off by a larger part of itself than 64 times the largest such part of
    PyTorch's, and 2^-7; and when NaN and infinities are where PyTorch has them. Where float64 would take more than 4 GiB,
    results are only compared for these; where PyTorch's ops themselves have no memory, they are not compared. Rows of attention
    that see nothing are left out where cuDNN computed PyTorch's: it gives their values' mean, PyTorch's other ways 0.
    """
    with torch.no_grad():
        try:
            expected = module(*inputs)
        except torch.OutOfMemoryError:
            return None, results
        exact = Wide(module).run(*inputs) if bytes_of(module, inputs) <= _MOST_BYTES else results
        for number, (result, own, ideal) in enumerate(zip(results, expected, exact)):
            reason = _difference(result, own, ideal, slack)
            if reason is not None:
                return f"result {number} {reason}", expected
    return None, expected


def _difference(result, own, ideal, slack):
    if not result.is_floating_point():
        return None if torch.equal(result, own) else "has other integers"
    for name, marks in (("NaN", torch.isnan), ("infinity", torch.isposinf), ("-infinity", torch.isneginf)):
        here, there = marks(result), marks(own)
        if not torch.equal(here, there):
            return (f"has {name} at {int((here & ~there).sum())} places where PyTorch has none, and none at "
                    f"{int((there & ~here).sum())} where it has")
    finite = torch.isfinite(own) & torch.isfinite(ideal)
    if not finite.any() and torch.isfinite(own).any():
        return "cannot be compared: float64 has no numbers"
    ideal = torch.where(finite, ideal.double(), 0.0)
    error, granted = (float(torch.where(finite, (each.double() - ideal).abs(), 0.0).max()) for each in (result, own))
    limit = slack * (_GRANTED * granted + torch.finfo(result.dtype).eps * float(ideal.abs().max()))
    if error > limit:
        return f"is off by {error:.3g} from float64, PyTorch by {granted:.3g}; {limit:.3g} is accepted"
    info = torch.finfo(result.dtype)
    large = finite & (ideal.abs() >= max(info.tiny, _SMALLEST))
    part, granted = (float(torch.where(large, (each.double() - ideal).abs() / ideal.abs(), 0.0).max())
                     for each in (result, own))
    limit = slack * max(_PART_GRANTED * granted, _LEAST_PART + 4 * info.eps)
    if part <= limit:
        return None
    return f"has an element that is off by {part:.3g} of itself, PyTorch by {granted:.3g}; {limit:.3g} is accepted"


def is_telling(results):
    """Whether a comparison with these results of PyTorch tells something: not all of them are 0, NaN or infinite."""
    return any(bool((torch.isfinite(each) & (each != 0)).any()) for each in results)


class _Bytes(TorchDispatchMode):
    """Counts the bytes of results that are alive together; views have none of their own."""

    def __init__(self):
        super().__init__()
        self._sizes = {}  # of live storages
        self.most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for each in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(each, torch.Tensor):
                storage = each.untyped_storage()
                if storage._cdata not in self._sizes:
                    self._sizes[storage._cdata] = storage.nbytes()
                    weakref.finalize(each, self._sizes.pop, storage._cdata, None)
        self.most = max(self.most, sum(self._sizes.values()))
        return found


def bytes_of(module, inputs):
    """What float64 takes, found with tensors without data."""
    shapes = [torch.empty_like(tensor, device="meta") for tensor in inputs]
    with _Bytes() as counted:
        Wide(module, "meta").run(*shapes)
    return counted.most


def wide(found):
    """Floats as float64, wherever they are."""
    if isinstance(found, torch.Tensor):
        return found.double() if found.dtype in _FLOATS else found
    if isinstance(found, (list, tuple)):
        return type(found)(wide(each) for each in found)
    return torch.float64 if found in _FLOATS else found


class Wide(torch.fx.Interpreter):
    """Runs a graph in float64; device: another one than the graph names."""

    def __init__(self, module, device=None):
        super().__init__(module)
        self._device = device

    def run(self, *inputs):
        return super().run(*map(wide, inputs))

    def call_function(self, target, args, kwargs):
        args, kwargs = wide(tuple(args)), {key: wide(value) for key, value in kwargs.items()}
        if self._device is not None and kwargs.get("device") is not None:
            kwargs["device"] = self._device
        if getattr(target, "_opname", None) in _ATTENTION:
            return _attention(target, args, kwargs)
        return wide(super().call_function(target, args, kwargs))


def _attention(target, args, kwargs):
    """The definition, some rows at a time: the fused ops take no float64 on a GPU. Rows that see nothing are 0; NaN, which is not
    compared, where -65504 in cuDNN's masks stands for -inf."""
    names = [argument.name for argument in target._schema.arguments]
    given = {**dict(zip(names, args)), **kwargs}
    query, key, value = given["query"], given["key"], given["value"]
    if key.shape[-3] != query.shape[-3]:
        key, value = (each.repeat_interleave(query.shape[-3] // key.shape[-3], -3) for each in (key, value))
    mask = given.get("attn_mask") if given.get("attn_mask") is not None else given.get("attn_bias")
    mask = mask if mask is None else mask.expand(*query.shape[:-1], key.shape[-2])
    stands = mask is not None and target._opname == _CUDNN
    scale = query.shape[-1]**-0.5 if given.get("scale") is None else given["scale"]
    rows = max(1, _BLOCK // max(1, query.shape[:-2].numel() * key.shape[-2]))
    parts = []
    for start in range(0, query.shape[-2], rows):
        scores = query[..., start:start + rows, :] @ key.mT * scale
        if given.get("is_causal"):
            place = torch.arange(start, start + scores.shape[-2], device=scores.device)
            seen = torch.arange(key.shape[-2], device=scores.device) <= place[:, None]
            scores = torch.where(seen, scores, float("-inf"))
        if mask is not None:
            added = mask[..., start:start + rows, :]
            scores = scores + (torch.where(added > CUDNN_HIDES, added, float("-inf")) if stands else added)
        total = scores.logsumexp(-1, keepdim=True)
        unseen, of_unseen = torch.isneginf(total), float("nan") if stands else 0.0
        weights = torch.where(unseen, of_unseen, torch.exp(scores - total))
        parts.append((weights @ value, torch.where(unseen, of_unseen, total).squeeze(-1)))
    out, total = (torch.cat(each, dim) for each, dim in zip(zip(*parts), (-2, -1)))
    return (out, total, *(None for _ in target._schema.returns[2:]))
