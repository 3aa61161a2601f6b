"""score_mod and mask_mod functions of attention-gym's kinds, written from their definitions: what bench_flex.py measures.

ALiBi (O. Press et al., 2021), soft caps as in Gemma 2, relative positions (C. Raffel et al., 2019), causal, sliding windows
(Mistral), prefix LM, documents packed into a sequence, dilated windows, neighbourhood attention (A. Hassani et al., 2023), sliding
tiles (P. Zhang et al., 2025), block diffusion (M. Arriola et al., 2025), two modalities (transfusion), padding.
"""

import torch
from torch.nn.attention.flex_attention import and_masks, or_masks


def causal(b, h, q, k):
    return q >= k


def window(size):
    return and_masks(causal, lambda b, h, q, k: q - k <= size)


def both_sides(size):
    return lambda b, h, q, k: (q - k).abs() <= size


def prefix(length):
    return or_masks(causal, lambda b, h, q, k: k < length)


def dilated(size, step):
    return lambda b, h, q, k: ((q - k).abs() <= size) & ((q - k) % step == 0)


def blocks(size):
    return lambda b, h, q, k: q // size == k // size


def documents(ids):
    return and_masks(causal, lambda b, h, q, k: ids[q] == ids[k])


def padding(lengths):
    return lambda b, h, q, k: k < lengths[b]


def neighbourhood(width, height, size):
    """Keys around a query in an image of width columns; the kernel stays inside."""
    def masked(b, h, q, k):
        row, column = (q // width).clamp(size // 2, height - 1 - size // 2), (q % width).clamp(size // 2, width - 1 - size // 2)
        return ((row - k // width).abs() <= size // 2) & ((column - k % width).abs() <= size // 2)
    return masked


def sliding_tiles(width, tile, around):
    """Tiles of an image of width columns see whole tiles around them."""
    def masked(b, h, q, k):
        q_row, q_column, k_row, k_column = (place // tile for place in (q // width, q % width, k // width, k % width))
        return ((q_row - k_row).abs() <= around) & ((q_column - k_column).abs() <= around)
    return masked


def block_diffusion(half, block):
    """Noised blocks see themselves and clean blocks before them; clean ones see clean blocks up to their own."""
    def masked(b, h, q, k):
        q_clean, k_clean = q >= half, k >= half
        q_block = torch.where(q_clean, (q - half) // block, q // block)
        k_block = torch.where(k_clean, (k - half) // block, k // block)
        own = (q_block == k_block) & (q_clean == k_clean)
        before = (q_block > k_block) & k_clean & ~q_clean
        return own | before | ((q_block >= k_block) & k_clean & q_clean)
    return masked


def modalities(start, length):
    """Causal, but for a picture from start on whose parts see each other."""
    def masked(b, h, q, k):
        return (q >= k) | ((q >= start) & (q < start + length) & (k >= start) & (k < start + length))
    return masked


def alibi(heads):
    return lambda score, b, h, q, k: score + torch.exp2(-((h + 1) * 8.0 / heads)) * (k - q)


def softcap(cap):
    return lambda score, b, h, q, k: cap * torch.tanh(score / cap)


def relative(score, b, h, q, k):
    return score + (q - k)


def table(bias):
    return lambda score, b, h, q, k: score + bias[h, q - k + bias.shape[1] // 2]


def full_bias(bias):
    return lambda score, b, h, q, k: score + bias[h, q, k]


def problems(batch, heads, length, device, dtype):
    """{name: (score_mod, mask_mod)} at [batch, heads, length]."""
    def random(*shape):
        return torch.randn(*shape, device=device, dtype=dtype)

    side = int(length ** 0.5)
    ids = torch.arange(length, device=device) // (length // 8)
    lengths = torch.linspace(length // 2, length, batch, device=device).long()
    return {
        "none": (None, None), "causal": (None, causal), "window": (None, window(length // 16)),
        "both_sides": (None, both_sides(length // 16)), "prefix": (None, prefix(length // 8)),
        "dilated": (None, dilated(length // 8, 4)), "blocks": (None, blocks(length // 8)), "documents": (None, documents(ids)),
        "padding": (None, padding(lengths)), "neighbourhood": (None, neighbourhood(side, length // side, min(13, side // 2 * 2 - 1))),
        "sliding_tiles": (None, sliding_tiles(side, max(side // 8, 1), 1)),
        "block_diffusion": (None, block_diffusion(length // 2, max(length // 32, 1))),
        "modalities": (None, modalities(length // 4, length // 8)),
        "alibi": (alibi(heads), causal), "softcap": (softcap(20.0), causal), "relative": (relative, causal),
        "table": (table(random(heads, 2 * length + 1)), causal), "full_bias": (full_bias(random(heads, length, length)), None),
    }
