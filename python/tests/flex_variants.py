"""score_mod and mask_mod functions as people write them: what the tests of flex_attention share."""

import torch
from torch.nn.attention.flex_attention import and_masks, or_masks


def causal(b, h, q, k):
    return q >= k


def window(size):
    def masked(b, h, q, k):
        return (q - k <= size) & (q >= k)
    return masked


def both_sides(size):
    def masked(b, h, q, k):
        return (q - k).abs() <= size
    return masked


def prefix(length):
    def masked(b, h, q, k):
        return (k < length) | (k <= q)
    return masked


def shifted(offset):
    def masked(b, h, q, k):
        return q + offset >= k
    return masked


def dilated(size, step):
    def masked(b, h, q, k):
        distance = q - k
        return (distance >= 0) & (distance <= size) & (distance % step == 0)
    return masked


def blocks(size):
    def masked(b, h, q, k):
        return q // size == k // size
    return masked


def documents(ids):
    def masked(b, h, q, k):
        return ids[q] == ids[k]
    return masked


def documents_of_batches(ids):
    def masked(b, h, q, k):
        return ids[b, q] == ids[b, k]
    return masked


def lengths(counts):
    def masked(b, h, q, k):
        return k < counts[b]
    return masked


def padding(kept):
    def masked(b, h, q, k):
        return kept[b, k]
    return masked


def by_head(b, h, q, k):
    return torch.where(h % 2 == 0, q >= k, q <= k)


def neighbourhood(width, height, size):
    """Keys around a query in an image, of a kernel that stays inside."""
    def masked(b, h, q, k):
        x, y, key_x, key_y = q // width, q % width, k // width, k % width
        x = x.clamp(size // 2, (height - 1) - size // 2)
        y = y.clamp(size // 2, (width - 1) - size // 2)
        return ((x - key_x).abs() <= size // 2) & ((y - key_y).abs() <= size // 2)
    return masked


def tiles(width, tile, around):
    """Sliding tiles: a tile of queries in an image sees whole tiles near it."""
    def masked(b, h, q, k):
        x, y, key_x, key_y = (place // tile for place in (q // width, q % width, k // width, k % width))
        return ((x - key_x).abs() <= around) & ((y - key_y).abs() <= around)
    return masked


def modalities(spans):
    """Causal, but for spans of each batch that see all of themselves."""
    def masked(b, h, q, k):
        seen = q >= k
        for number in range(spans.shape[1]):
            start, length = spans[b, number, 0], spans[b, number, 1]
            seen = seen | ((q >= start) & (q < start + length) & (k >= start) & (k < start + length))
        return seen
    return masked


def nothing_before(row):
    """Rows up to a place see nothing."""
    def masked(b, h, q, k):
        return (q > row) & (k <= q)
    return masked


MASKS = {
    "causal": causal,
    "window": window(7),
    "both_sides": both_sides(5),
    "prefix": prefix(9),
    "shifted": shifted(4),
    "dilated": dilated(12, 3),
    "blocks": blocks(8),
    "by_head": by_head,
    "neighbourhood": neighbourhood(8, 5, 3),
    "tiles": tiles(8, 2, 1),
    "window_or_start": and_masks(causal, or_masks(window(6), lambda b, h, q, k: k < 4)),
    "not_causal": lambda b, h, q, k: ~(q > k),
    "nothing_before": nothing_before(4),
}  #: of indices alone


def block_diffusion(half, block):
    """Noised blocks see themselves and clean ones before them; clean ones see clean blocks up to their own."""
    def masked(b, h, q, k):
        q_block = torch.where(q >= half, (q - half) // block, q // block)
        k_block = torch.where(k >= half, (k - half) // block, k // block)
        own = (q_block == k_block) & ((q >= half) == (k >= half))
        return own | ((q_block > k_block) & (k >= half) & ~(q >= half)) | ((q_block >= k_block) & (k >= half) & (q >= half))
    return masked


def masks_of_data(batch, length):
    """Masks that read tensors at places that are affine."""
    ids = torch.arange(length) // 11
    many = torch.stack([torch.arange(length) // (5 + b) for b in range(batch)])
    kept = torch.arange(length)[None] < torch.tensor([[length - 3 * b] for b in range(batch)])
    return {
        "documents": documents(ids),
        "causal_documents": and_masks(documents(ids), causal),
        "documents_of_batches": and_masks(causal, documents_of_batches(many.int())),
        "lengths": lengths(kept.sum(1)),
        "padding": and_masks(padding(kept), causal),
        "nothing_for_a_batch": padding(kept & (torch.arange(batch)[:, None] > 0)),
    }


def alibi(heads):
    def changed(score, b, h, q, k):
        return score + torch.exp2(-((h + 1) * 8.0 / heads)) * (k - q)
    return changed


def alibi_by(slopes):
    def changed(score, b, h, q, k):
        return score + slopes[h] * (k - q)
    return changed


def softcap(limit):
    def changed(score, b, h, q, k):
        return limit * torch.tanh(score / limit)
    return changed


def relative(score, b, h, q, k):
    return score + (q - k)


def table(bias):
    def changed(score, b, h, q, k):
        return score + bias[h, q - k + bias.shape[1] // 2]
    return changed


def full_bias(bias):
    def changed(score, b, h, q, k):
        return score + bias[b][h][q, k]
    return changed


def checkerboard(score, b, h, q, k):
    return torch.where((k - q).abs() % 2 == 1, score * 0.5, -score * 0.5)


def causal_score(score, b, h, q, k):
    return torch.where(q >= k, score, -float("inf"))


def temperature(value):
    def changed(score, b, h, q, k):
        return score * value
    return changed


def scores(batch, heads, length):
    """Functions of scores."""
    generator = torch.Generator().manual_seed(5)

    def random(*shape):
        return torch.randn(*shape, generator=generator)

    return {
        "alibi": alibi(heads),
        "alibi_by": alibi_by(torch.rand(heads, generator=generator)),
        "softcap": softcap(20.0),
        "relative": relative,
        "table": table(random(heads, 2 * length + 1)),
        "full_bias": full_bias(random(batch, heads, length, length)),
        "checkerboard": checkerboard,
        "causal_score": causal_score,
        "temperature": temperature(torch.tensor(0.75)),
    }
