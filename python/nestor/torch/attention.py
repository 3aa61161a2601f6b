"""scaled_dot_product_attention by Nestor's attention kernels, and by PyTorch where none is valid.

Which kernel serves a call follows from its arguments: `attention` for plain and causal calls, its `gqa` variants where query
heads share a key head or values have a head size of their own, `attention_bias` for additive masks. Tensors keep their strides.
"""

import re
from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F

from ..errors import NotFound, UserError
from ..library import Kernel
from .kernels import element_of, look_up, missing
from .operators import LIBRARY, implement
from .transforms import needs_gradient, transformed

_NAME = "scaled_dot_product_attention"


class Explanation(NamedTuple):
    """Which kernel serves a call of scaled_dot_product_attention, or else why PyTorch does."""
    kernel: Optional[Kernel]
    reason: Optional[str]


class _Call(NamedTuple):
    """A call in a kernel's terms."""
    op: str
    option: str  # of the operator's variant, such as "causal.gqa"
    sizes: dict
    tensors: dict  # inputs by name


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """softmax(query key^T scale + attn_mask) value as torch.nn.functional.scaled_dot_product_attention has it.

    query: [batch, heads, queries, head_dim], key: [batch, key_heads, keys, head_dim], value: [batch, key_heads, keys,
    value_dim]; f32, f16 or bf16 of any strides whose last is 1. is_causal is aligned top left: query i sees key j if j <= i.
    attn_mask is added to the scores and may broadcast. Where no kernel serves the call, PyTorch's own function does, and a
    warning says why, once (see configure, explain_attention). Gradients are PyTorch's: a call that needs them is made by
    PyTorch altogether.
    """
    reason = gradients_or_transformed(query, key, value, attn_mask)
    if reason is not None:
        _say(reason)
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                                              enable_gqa=enable_gqa)
    return torch.ops.nestor.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def explain_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """The Explanation of a call of scaled_dot_product_attention with these arguments, which is made on the way."""
    _, kernel, reason = _attend(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    return Explanation(kernel, reason)


def gradients_or_transformed(*tensors):
    """Why a call of attention is PyTorch's altogether, whatever is tuned, or None."""
    return "no kernel computes the gradients of attention" if needs_gradient(*tensors) else transformed(*tensors)


@torch.compiler.assume_constant_result
def _say(reason, *kind):
    """Once for each reason and kind of call, whatever its lengths and addresses; also while torch.compile traces a call."""
    missing((_NAME, re.sub(r"0x[0-9a-f]+|\d+", "", reason), *kind), f"{_NAME}: {reason}")


def _refusal(query, key, value, mask, dropout_p, is_causal):
    """Why no kernel could take the call, whatever is tuned; None where one might."""
    if dropout_p:
        return "no kernel has dropout"
    if not query.dim() == key.dim() == value.dim() == 4:
        return "kernels take tensors [batch, heads, rows, head_dim]"
    if not query.dtype == key.dtype == value.dtype or not query.device == key.device == value.device:
        return "query, key and value must be of one type, on one device"
    (batch, heads, _, width), (_, key_heads, keys, _) = query.shape, key.shape
    if key.shape != (batch, key_heads, keys, width) or value.shape[:3] != key.shape[:3] or heads % key_heads:
        return "kernels take keys and values of the query's batch and a number of heads that divides its own"
    if 0 in (*query.shape, *key.shape, *value.shape):
        return "a tensor has no elements"
    for name, tensor in (("query", query), ("key", key), ("value", value), ("attn_mask", mask)):
        if tensor is not None and tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
            return f"{name} must be dense in its last dimension; its stride is {tensor.stride(-1)}"
    if mask is not None and is_causal:
        return "no kernel takes attn_mask beside is_causal"
    if mask is not None and mask.dtype != query.dtype:
        return f"kernels add masks of the query's type, {query.dtype}; attn_mask is {mask.dtype}"
    return None


def _calls(query, key, value, mask, is_causal):
    """The kernels' calls that compute this one, the best first. No _refusal stands against it."""
    (batch, heads, queries, width), (_, key_heads, keys, _) = query.shape, key.shape
    if is_causal and keys > queries:  # aligned top left, the last query sees as many keys as there are queries
        keys = queries
        key, value = key[:, :, :keys], value[:, :, :keys]
    lengths = {"batch": batch, "queries": queries, "keys": keys, "head_dim": width}
    sizes, group = {**lengths, "heads": heads}, heads // key_heads
    plain = heads == key_heads and value.shape[-1] == width
    tensors = {"q": query, "k": key, "v": value}
    if mask is not None:
        bias = mask.expand(batch, heads, queries, keys)
        return [_Call("attention_bias", "", sizes, {**tensors, "bias": bias})] if plain else []
    options = [""] if not is_causal else ["causal", "topleft"] if keys == queries else ["topleft"]
    calls = [_Call("attention", option, sizes, tensors) for option in options] if plain else []
    sizes = {**lengths, "key_heads": key_heads, "group": group, "value_dim": value.shape[-1]}
    tensors = {**tensors, "q": query.unflatten(1, (key_heads, group))}
    return calls + [_Call("attention", f"{option}.gqa".lstrip("."), sizes, tensors) for option in options]


def _attend(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """(result, kernel, None), or (None, None, why no kernel serves the call)."""
    reason = _refusal(query, key, value, attn_mask, dropout_p, is_causal)
    element = element_of(query)
    if reason is None and element is None:
        reason = f"no kernels for {query.dtype} on {query.device.type}"
    if reason is None and query.shape[1] != key.shape[1] and not enable_gqa:
        reason = "query and key have different numbers of heads, without enable_gqa"
    if reason is not None:
        return None, None, reason
    calls = _calls(query, key, value, attn_mask, is_causal)
    reasons = [] if calls else ["no kernel takes attn_mask where query heads share a key head or values have a head size of "
                                "their own"]
    for call in calls:
        variant = f"{call.option}.{element}".lstrip(".")
        try:
            kernel = look_up(call.op, variant, call.sizes, query.device)
            out = result_like(query, value)
            grouped = out if "heads" in call.sizes else out.unflatten(1, (call.sizes["key_heads"], call.sizes["group"]))
            tensors = {**call.tensors, "out": grouped}
            kernel(*[tensors[name] for name in kernel.tensors], scale=query.shape[-1] ** -0.5 if scale is None else scale)
            return out, kernel, None
        except (NotFound, UserError) as error:  # a launch that is refused has written nothing
            reasons.append(str(error))
    return None, None, "; ".join(reasons)


def result_like(query, value):
    """An empty result of attention: its dimensions lie in memory in the order of the query's."""
    if query.shape[-1] == value.shape[-1]:
        return torch.empty_like(query)
    return torch.empty((*query.shape[:-1], value.shape[-1]), dtype=query.dtype, device=query.device)


def _operator(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    out, _, reason = _attend(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if out is None:
        _say(reason, str(query.dtype), query.shape[-1], value.shape[-1])
        found = F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                                               enable_gqa=enable_gqa)
        out = result_like(query, value)
        out = found if found.stride() == out.stride() else out.copy_(found)
    return out


def _no_gradient(ctx, gradient):
    raise UserError("nestor::scaled_dot_product_attention has no gradient; nestor.torch.scaled_dot_product_attention leaves calls "
                    "that need one to PyTorch")


LIBRARY.define(_NAME + "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p, bool is_causal, float? scale,"
                       " bool enable_gqa) -> Tensor")
implement(_NAME, _operator)
torch.library.register_fake(f"nestor::{_NAME}", lambda query, key, value, *_: result_like(query, value), lib=LIBRARY)
torch.library.register_autograd(f"nestor::{_NAME}", _no_gradient, lib=LIBRARY)
