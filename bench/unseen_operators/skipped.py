"""Attention of which data hides whole blocks: packed documents, chosen blocks, padding, rows of heads that see different keys."""

import math

import torch
from torch.nn.attention.flex_attention import flex_attention

import nestor
from nestor import Size, bf16, boolean, define, i32, indices

from .problem import Operator

BLOCK = 128


def softmax_of(scores, value, batch, heads, length, head):
    """The weighted mean of values under scores, as everybody writes it."""
    b, h, q, k, d = indices(b=batch, h=heads, q=length, k=length, d=head)
    score = define("score", (b, h, q, k), scores(b, h, q, k))
    power = define("power", (b, h, q, k), nestor.exp(score[b, h, q, k] - nestor.max(score[b, h, q, k], over=k)))
    total = nestor.sum(power[b, h, q, k], over=k)
    return define("out", (b, h, q, d), nestor.sum(power[b, h, q, k] * value(b, h, k, d), over=k) / total, type=bf16)


def masked_softmax(query, key, value, seen, scale):
    """Of PyTorch, in the type of its inputs; `seen` as [batch or 1, heads or 1, queries, keys]."""
    scores = query.float() if query.element_size() == 2 else query
    scores = scores @ key.to(scores.dtype).mT * scale
    return (torch.softmax(scores.masked_fill(~seen, -math.inf), -1) @ value.to(scores.dtype)).to(query.dtype)


def wide_flex(query, key, value, *_, mask):
    return flex_attention(query, key, value, block_mask=mask, scale=128**-0.5)


def narrow_flex(query, key, value, *_, mask):
    return flex_attention(query, key, value, block_mask=mask, scale=0.125)


def documents(normal, _):
    """Numbers of documents that lie one after the other, of about a thousand tokens."""
    return (normal > 3.1).int().cumsum(-1)


# ---------------------------------------------------------------------------------------------- training on packed documents

batch, heads, length, head = Size("batch", 1), Size("heads", 16), Size("length", 16384), Size("head", 128, fixed=True)
(e, ) = indices(e=head)


@nestor.nest
def packed_documents_attention(query: bf16[batch, heads, length, head], key: bf16[batch, heads, length, head], value: bf16[batch, heads, length, head],
                               document: i32[batch, length]):
    """Each token sees those before it in its own document."""
    return softmax_of(lambda b, h, q, k: nestor.select((document[b, q] == document[b, k]) & (k <= q),
                                                       nestor.sum(query[b, h, q, e] * key[b, h, k, e], over=e) * 128**-0.5, -math.inf),
                      lambda b, h, k, d: value[b, h, k, d], batch, heads, length, head)


def packed_documents_attention_torch(query, key, value, document):
    places = torch.arange(query.shape[2], device=query.device)
    seen = (document[:, :, None] == document[:, None, :]) & (places <= places[:, None])
    return masked_softmax(query, key, value, seen[:, None], 128**-0.5)


def packed_documents_seen(_, inputs):
    document = inputs[3]
    return lambda b, h, q, k: (document[b, q] == document[b, k]) & (k <= q)


# ---------------------------------------------------------------------------------------------- encoders of packed texts

batch2, heads2, length2, head2 = Size("batch", 4), Size("heads", 12), Size("length", 8192), Size("head", 64, fixed=True)
(e2, ) = indices(e=head2)


@nestor.nest
def packed_encoder_attention(query: bf16[batch2, heads2, length2, head2], key: bf16[batch2, heads2, length2, head2], value: bf16[batch2, heads2, length2, head2],
                             text: i32[batch2, length2]):
    """Texts of an encoder lie side by side in rows; each sees itself."""
    return softmax_of(lambda b, h, q, k: nestor.select(text[b, q] == text[b, k],
                                                       nestor.sum(query[b, h, q, e2] * key[b, h, k, e2], over=e2) * 0.125, -math.inf),
                      lambda b, h, k, d: value[b, h, k, d], batch2, heads2, length2, head2)


def packed_encoder_attention_torch(query, key, value, text):
    return masked_softmax(query, key, value, (text[:, :, None] == text[:, None, :])[:, None], 0.125)


def packed_encoder_seen(_, inputs):
    text = inputs[3]
    return lambda b, h, q, k: text[b, q] == text[b, k]


# ---------------------------------------------------------------------------------------------- blocks that an estimate has chosen

heads3, blocks3, head3 = Size("heads", 16), Size("blocks", 128), Size("head", 128, fixed=True)
one3 = Size("batch", 1)
(e3, ) = indices(e=head3)


@nestor.nest
def chosen_blocks_attention(query: bf16[one3, heads3, BLOCK * blocks3, head3], key: bf16[one3, heads3, BLOCK * blocks3, head3],
                            value: bf16[one3, heads3, BLOCK * blocks3, head3], chosen: boolean[heads3, blocks3, blocks3]):
    """Prefill that sees the blocks that an estimate has chosen for each head, causally; its own block always."""
    return softmax_of(lambda b, h, q, k: nestor.select((k <= q) & (chosen[h, q // BLOCK, k // BLOCK] | (q // BLOCK == k // BLOCK)),
                                                       nestor.sum(query[b, h, q, e3] * key[b, h, k, e3], over=e3) * 128**-0.5, -math.inf),
                      lambda b, h, k, d: value[b, h, k, d], one3, heads3, BLOCK * blocks3, head3)


def chosen_blocks_attention_torch(query, key, value, chosen):
    blocks = torch.arange(chosen.shape[1], device=query.device)
    seen = (chosen | (blocks == blocks[:, None])).repeat_interleave(BLOCK, 1).repeat_interleave(BLOCK, 2)
    places = torch.arange(query.shape[2], device=query.device)
    return masked_softmax(query, key, value, seen & (places <= places[:, None]), 128**-0.5)


def chosen_blocks_seen(_, inputs):
    chosen = inputs[3]
    return lambda b, h, q, k: (k <= q) & (chosen[h, q // BLOCK, k // BLOCK] | (q // BLOCK == k // BLOCK))


# ---------------------------------------------------------------------------------------------- a batch of texts with padding behind them

batch4, heads4, length4, head4 = Size("batch", 16), Size("heads", 16), Size("length", 2048), Size("head", 64, fixed=True)
(e4, ) = indices(e=head4)


@nestor.nest
def padded_batch_attention(query: bf16[batch4, heads4, length4, head4], key: bf16[batch4, heads4, length4, head4], value: bf16[batch4, heads4, length4, head4],
                           kept: boolean[batch4, length4]):
    """A batch of texts of different lengths, padded to the longest."""
    return softmax_of(lambda b, h, q, k: nestor.select(kept[b, k], nestor.sum(query[b, h, q, e4] * key[b, h, k, e4], over=e4) * 0.125, -math.inf),
                      lambda b, h, k, d: value[b, h, k, d], batch4, heads4, length4, head4)


def padded_batch_attention_torch(query, key, value, kept):
    return masked_softmax(query, key, value, kept[:, None, None, :], 0.125)


def padded_batch_seen(_, inputs):
    kept = inputs[3]
    return lambda b, h, q, k: kept[b, k]


def lengths_kept(normal, _):
    """From an eighth of a row on, all lengths."""
    share = (torch.arange(normal.shape[0], device=normal.device) % 8 + 1) / 8
    return torch.arange(normal.shape[1], device=normal.device) < (share[:, None] * normal.shape[1])


OPERATORS = [
    Operator(packed_documents_attention, packed_documents_attention_torch, "Dong et al., FlexAttention, 2024; Llama team, Llama 3, 2024",
             {"batch": 1, "heads": 1, "length": 301, "head": 3}, draw={"document": documents}, flex=wide_flex, seen_of=packed_documents_seen),
    Operator(packed_encoder_attention, packed_encoder_attention_torch, "Warner et al., ModernBERT, 2024; Krell et al., Efficient sequence packing, 2021",
             {"batch": 2, "heads": 1, "length": 301, "head": 3}, draw={"text": documents}, flex=narrow_flex, seen_of=packed_encoder_seen),
    Operator(chosen_blocks_attention, chosen_blocks_attention_torch, "Jiang et al., MInference, 2024; Xu et al., XAttention, 2025", {"batch": 1, "heads": 2, "blocks": 2, "head": 3},
             draw={"chosen": lambda normal, _: normal > 1.3}, flex=wide_flex, seen_of=chosen_blocks_seen),
    Operator(padded_batch_attention, padded_batch_attention_torch, "Devlin et al., BERT, 2018", {"batch": 3, "heads": 1, "length": 301, "head": 3},
             draw={"kept": lengths_kept}, flex=narrow_flex, seen_of=padded_batch_seen),
]
