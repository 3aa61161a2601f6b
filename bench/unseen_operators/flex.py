"""FlexAttention's forms of attention: functions of a nest's inputs and of a block mask; and mask_mods, of sizes."""

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

CAP, INIT, EPS = 50.0, 0.8, 1e-6


def causal(_):
    return lambda b, h, i, j: j <= i


def window(sizes):
    reach = sizes["window"]
    return lambda b, h, i, j: (j <= i) & (j > i - reach)


def cosine(q, k, v, temperature, bias, mask):
    scale = temperature.clamp(max=4.6051702).exp()
    return flex_attention(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, scale=1.0, block_mask=mask,
                          score_mod=lambda score, b, h, i, j: score * scale[h] + bias[h, i, j])


def sink(q, k, v, sink, mask):
    out, lse = flex_attention(q.flatten(1, 2), k, v, block_mask=mask, enable_gqa=True, return_lse=True, scale=128**-0.5)
    return (out * torch.sigmoid(lse - sink.flatten()[:, None])[..., None]).to(v.dtype).view(q.shape)


def joined(q, q_rope, k, k_rope):
    """Queries and keys of two products as those of one."""
    return torch.cat([q, q_rope], -1), torch.cat([k, k_rope[:, None].expand(*k.shape[:-1], k_rope.shape[-1])], -1)


def mla(q, q_rope, k, k_rope, v, mask):
    return flex_attention(*joined(q, q_rope, k, k_rope), v, block_mask=mask, scale=192**-0.5)


def differential(q1, k1, q2, k2, v, weight, mask):
    first, second = (flex_attention(q, k, v, block_mask=mask, scale=64**-0.5) for q, k in ((q1, k1), (q2, k2)))
    difference = first - weight[:, None, None] * second
    return (F.rms_norm(difference, difference.shape[-1:], None, EPS) * (1 - INIT)).to(v.dtype)


def window_softcap(q, k, v, mask):
    return flex_attention(q, k, v, block_mask=mask, scale=128**-0.5,
                          score_mod=lambda score, b, h, i, j: CAP * torch.tanh(score / CAP))


def gated(q, k, v, gate, mask):
    return flex_attention(q, k, v, block_mask=mask, scale=128**-0.5) * torch.sigmoid(gate)
