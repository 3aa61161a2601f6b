"""Whether a kernel's results are as good as PyTorch's: both are compared with the same ops in float64."""

import torch

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_GRANTED = 1.5  # times PyTorch's own error
_ATTENTION = ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
              "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention_for_cpu",
              "_scaled_dot_product_fused_attention_overrideable")


def check(module, inputs, results):
    """(why results are not accepted or None, PyTorch's own results). module: computes the same in PyTorch's ops.

    A result is accepted when its largest error against float64 is at most 1.5 times PyTorch's own plus one unit in the last place
    of the largest value, and NaN and infinities are where PyTorch has them. Where there is no memory for float64, PyTorch's
    results take its place.
    """
    with torch.no_grad():
        expected = module(*inputs)
        try:
            exact = Wide(module).run(*inputs)
        except torch.OutOfMemoryError:
            exact = expected
        for number, (result, own, ideal) in enumerate(zip(results, expected, exact)):
            reason = _difference(result, own, ideal)
            if reason is not None:
                return f"result {number} {reason}", expected
    return None, expected


def _difference(result, own, ideal):
    if not result.is_floating_point():
        return None if torch.equal(result, own) else "has other integers"
    for name, marks in (("NaN", torch.isnan), ("infinity", torch.isinf)):
        here, there = marks(result), marks(own)
        if not torch.equal(here, there):
            return f"has {name} at {int((here & ~there).sum())} places where PyTorch has none, and none at {int((there & ~here).sum())}"
    finite = torch.isfinite(own) & torch.isfinite(ideal)
    ideal = torch.where(finite, ideal.double(), 0.0)
    error, granted = (float(torch.where(finite, (each.double() - ideal).abs(), 0.0).max()) for each in (result, own))
    limit = _GRANTED * granted + torch.finfo(result.dtype).eps * float(ideal.abs().max())
    if error <= limit:
        return None
    return f"is off by {error:.3g} from float64, PyTorch by {granted:.3g}; {limit:.3g} is accepted"


def wide(found):
    """Floats as float64, wherever they are."""
    if isinstance(found, torch.Tensor):
        return found.double() if found.dtype in _FLOATS else found
    if isinstance(found, (list, tuple)):
        return type(found)(wide(each) for each in found)
    return torch.float64 if found in _FLOATS else found


class Wide(torch.fx.Interpreter):
    """Runs a graph in float64."""

    def run(self, *inputs):
        return super().run(*map(wide, inputs))

    def call_function(self, target, args, kwargs):
        args, kwargs = wide(tuple(args)), {key: wide(value) for key, value in kwargs.items()}
        if getattr(target, "_opname", None) in _ATTENTION:
            return _attention(target, args, kwargs)
        return wide(super().call_function(target, args, kwargs))


def _attention(target, args, kwargs):
    """The definition: the fused ops take no float64 on a GPU."""
    names = [argument.name for argument in target._schema.arguments]
    given = {**dict(zip(names, args)), **kwargs}
    query, key, value = given["query"], given["key"], given["value"]
    if key.shape[-3] != query.shape[-3]:
        key, value = (each.repeat_interleave(query.shape[-3] // key.shape[-3], -3) for each in (key, value))
    scale = given.get("scale")
    scores = query @ key.mT * (query.shape[-1]**-0.5 if scale is None else scale)
    if given.get("is_causal"):
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    mask = given.get("attn_mask") if given.get("attn_mask") is not None else given.get("attn_bias")
    if mask is not None:
        scores = scores + mask
    total = scores.logsumexp(-1, keepdim=True)
    weights = torch.where(torch.isneginf(total), 0.0, torch.exp(scores - total))
    return (weights @ value, total.squeeze(-1), *(None for _ in target._schema.returns[2:]))
