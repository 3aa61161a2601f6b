"""attn_implementation="nestor" of Hugging Face's transformers: masks stay functions, and attention with them is one nest."""

import functools

import torch

from ..errors import UserError
from .attention import gradients_or_transformed
from .flex import attend, say
from .kept_mask import KeptMask
from .nest_calls import check_tune

NAME = "nestor"
masks = sdpa_attention_forward = None  # transformers' own, once register_transformers has imported it


def register_transformers(tune="off", budget_s=20):
    """Makes attn_implementation="nestor" known to transformers: every mask that it makes of a function is kept as that, a padding
    mask [batch, keys] is read as a tensor, and attention is nestor.torch.flex_attention's. tune, budget_s: as there. Where no
    kernel serves a layer it is transformers' own "sdpa" ("eager" with softcap or sinks), with one warning that says why.
    Raises UserError where transformers is not installed or has no interface for masks."""
    global masks, sdpa_attention_forward
    check_tune(tune)
    try:
        import transformers.masking_utils as masks
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.integrations.sdpa_attention import sdpa_attention_forward
    except ImportError as error:
        raise UserError(f"this needs transformers 4.53 or later: {error}") from None
    AttentionMaskInterface.register(NAME, kept_mask)
    AttentionInterface.register(NAME, functools.partial(attention_forward, tune=tune, budget_s=budget_s))


def kept_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None, **options):
    """A mask as transformers asks for it, without making it. Offsets are single integers of the host, so that they are sizes of a
    nest: one serves every step of a generation."""
    mask_function = mask_function or masks.causal_mask_function
    padding = masks.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    shown = mask_function if padding is None else masks.and_masks(mask_function, masks.padding_mask_function(padding))
    if not _is_zero(q_offset) or not _is_zero(kv_offset):
        shown = masks.add_offsets_to_mask_function(shown, _of_host(q_offset), _of_host(kv_offset))
    dense = functools.partial(masks.sdpa_mask, batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
                              kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
                              **{**options, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})
    return KeptMask(shown, (batch_size, 1, q_length, kv_length), dense)


def _is_zero(offset):
    return isinstance(offset, int) and offset == 0


def _of_host(offset):
    if isinstance(offset, torch.Tensor):
        return offset if torch.compiler.is_compiling() else offset.cpu()
    return 0 if _is_zero(offset) else torch.tensor(offset)


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, softcap=None,
                      s_aux=None, position_bias=None, tune="off", budget_s=20, **options):
    """(result [batch, queries, heads, head_dim], None) of a layer of transformers.

    query: [batch, heads, queries, head_dim], key and value: [batch, key_heads, keys, head_dim]. attention_mask: a KeptMask, a
    tensor [batch or 1, heads or 1, queries, keys] of bool or added to the scores, or None. softcap: the scores' limit; s_aux: a
    sink for each head; position_bias: [batch or 1, heads, queries, keys], added to the scores.
    """
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    mask_mod, bias = _mask_of(attention_mask, causal and query.shape[2] > 1, key.shape[2])
    found, reason = None, gradients_or_transformed(query, key, value, bias, position_bias, s_aux)
    if dropout:
        reason = "no kernel has dropout"
    if reason is None:
        score_mod = _score_of(softcap, bias, position_bias)
        found, reason = attend(query, key, value, score_mod, mask_mod, scaling, True, s_aux is not None, tune, budget_s)
    if found is None:
        say(f"attention of transformers: {reason}")
        return _by_transformers(module, query, key, value, attention_mask, dropout, scaling, causal, softcap, s_aux, position_bias,
                                options)
    out, lse = found
    if s_aux is not None:  # exp(lse) / (exp(lse) + exp(sink))
        out = (out * torch.sigmoid(lse - s_aux.view(1, -1, 1))[..., None]).to(query.dtype)
    return out.transpose(1, 2).contiguous(), None


def _mask_of(mask, causal, keys):
    """(mask_mod or a block mask, what is added to scores), either of them None."""
    if isinstance(mask, KeptMask) or (mask is not None and not isinstance(mask, torch.Tensor)):
        return mask, None
    if mask is None:
        return (_causal if causal else None), None
    mask = mask[:, :, :, :keys]
    return (_read(mask), None) if mask.dtype == torch.bool else (None, mask)


def _causal(b, h, q_idx, kv_idx):
    return kv_idx <= q_idx


def _read(mask):
    """mask_mod that reads a tensor, which may broadcast over batches and heads."""
    by_batch, by_head = mask.shape[0] > 1, mask.shape[1] > 1

    def mask_mod(b, h, q_idx, kv_idx):
        return mask[b if by_batch else 0 * b, h if by_head else 0 * h, q_idx, kv_idx]

    return mask_mod


def _score_of(softcap, bias, position_bias):
    """score_mod, or None."""
    added = [_read(tensor) for tensor in (bias, position_bias) if tensor is not None]
    if softcap is None and not added:
        return None

    def score_mod(score, b, h, q_idx, kv_idx):
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        for each in added:
            score = score + each(b, h, q_idx, kv_idx)
        return score

    return score_mod


def _by_transformers(module, query, key, value, mask, dropout, scaling, causal, softcap, s_aux, position_bias, options):
    mask = mask.dense() if isinstance(mask, KeptMask) else mask
    if softcap is None and s_aux is None:
        return sdpa_attention_forward(module, query, key, value, mask, dropout, scaling, causal, position_bias=position_bias,
                                      **options)[0], None
    return _eager(module, query, key, value, mask, dropout, scaling, causal, softcap, s_aux, position_bias), None


def _eager(module, query, key, value, mask, dropout, scaling, causal, softcap, s_aux, position_bias):
    """Attention written out, as transformers' models have it."""
    group = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(group, 1) for tensor in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if position_bias is not None:
        scores = scores + position_bias
    if mask is None and causal and query.shape[2] > 1:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if mask is not None:
        mask = mask[..., :key.shape[2]]
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min) if mask.dtype == torch.bool else scores + mask
    if s_aux is not None:
        scores = torch.cat((scores, s_aux.to(scores.dtype).view(1, -1, 1, 1).expand(*scores.shape[:3], 1)), -1)
    weights = scores.softmax(-1, dtype=torch.float32)[..., :key.shape[2]].to(query.dtype)
    weights = torch.nn.functional.dropout(weights, dropout, module.training)
    return (weights @ value).transpose(1, 2).contiguous()
