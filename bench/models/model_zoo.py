"""Models that the benchmark compiles: Hugging Face's BERT, a Llama-like decoder, and variants of attention in plain PyTorch.

Every function returns (model, inputs): a torch.nn.Module in evaluation mode with random weights, and a dictionary of keyword
arguments. Nothing is downloaded. Random numbers come from the generator that is set before (torch.manual_seed).
"""

import math

import torch

WINDOW, PREFIX, DOCUMENT, CAP, LAMBDA = 1024, 512, 512, 20.0, 0.35  #: of the variants
BERT_CELLS = ((1, 16), (1, 128), (1, 512), (8, 128), (32, 128), (8, 512), (32, 512))
LLAMA_CELLS = ((2, 4096), (1, 16384))
TINY_BERT = {"layers": 2, "hidden": 128}
TINY_LLAMA = {"layers": 1, "hidden": 128, "heads": 4, "key_heads": 2}
TINY_VARIANT = {"batch": 3, "heads": 2, "length": 48, "dim": 16}


def _padding(batch, length, device):
    """A mask [batch, length] of ones and trailing zeros; the first sequence is full, others at least half."""
    lengths = torch.randint(length // 2, length + 1, (batch,), device=device)
    lengths[0] = length
    return (torch.arange(length, device=device)[None] < lengths[:, None]).long()


def bert(batch, length, device="cuda", dtype=torch.float16, layers=12, hidden=768):
    from transformers import BertConfig, BertModel

    config = BertConfig(attn_implementation="sdpa", num_hidden_layers=layers, hidden_size=hidden,
                        num_attention_heads=hidden // 64, intermediate_size=4 * hidden)
    model = BertModel(config).eval().to(device, dtype)
    tokens = torch.randint(0, config.vocab_size, (batch, length), device=device)
    return model, {"input_ids": tokens, "attention_mask": _padding(batch, length, device)}


def llama(batch, length, device="cuda", dtype=torch.bfloat16, layers=2, hidden=4096, heads=32, key_heads=8):
    """A decoder's layers at prefill, on embedded tokens, with padding on the left of short sequences."""
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(attn_implementation="sdpa", num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads,
                         num_key_value_heads=key_heads, intermediate_size=7 * hidden // 2, vocab_size=1000, use_cache=False,
                         max_position_embeddings=length)
    model = LlamaModel(config).eval().to(device, dtype)
    embedded = torch.randn(batch, length, hidden, device=device, dtype=dtype)
    mask = _padding(batch, length, device).flip(1) if batch > 1 else torch.ones(batch, length, device=device, dtype=torch.long)
    return model, {"inputs_embeds": embedded, "attention_mask": mask}


class Plain(torch.nn.Module):
    """Attention written out: a function of scores [b, h, i, j] and of positions i and j between two products."""

    def __init__(self, weights):
        super().__init__()
        self.weights = weights

    def forward(self, query, key, value, **rest):
        rows = torch.arange(query.shape[-2], device=query.device)[:, None]
        columns = torch.arange(key.shape[-2], device=query.device)[None, :]
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        return self.weights(scores, rows, columns, **rest) @ value


def _softmax(scores):
    return torch.softmax(scores.float(), -1).to(scores.dtype)


def causal(scores, i, j):
    return _softmax(scores.masked_fill(j > i, -math.inf))


def alibi(scores, i, j, slopes):
    scores = scores + slopes[:, None, None] * (j - i)
    return _softmax(scores.masked_fill(j > i, -math.inf))


def softcap(scores, i, j):
    return _softmax((CAP * torch.tanh(scores / CAP)).masked_fill(j > i, -math.inf))


def window(scores, i, j):
    return _softmax(scores.masked_fill((j > i) | (j + WINDOW <= i), -math.inf))


def prefix(scores, i, j):
    return _softmax(scores.masked_fill((j > i) & (j >= PREFIX), -math.inf))


def documents(scores, i, j):
    return _softmax(scores.masked_fill((i // DOCUMENT != j // DOCUMENT) | (j > i), -math.inf))


def sigmoid(scores, i, j):
    return torch.sigmoid(scores - math.log(scores.shape[-1]))


def sinks(scores, i, j, sink):
    scores = scores.masked_fill(j > i, -math.inf).float()
    top = torch.maximum(scores.amax(-1, keepdim=True), sink[:, None, None].float())
    terms = torch.exp(scores - top)
    return (terms / (terms.sum(-1, keepdim=True) + torch.exp(sink[:, None, None].float() - top))).to(sink.dtype)


class QueryKeyNorm(Plain):
    """Queries and keys of unit mean square, as in Qwen3 and Gemma 3."""

    def forward(self, query, key, value, **rest):
        def normed(x):
            wide = x.float()
            return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

        return super().forward(normed(query), normed(key), value, **rest)


class Differential(torch.nn.Module):
    def forward(self, query, key, query2, key2, value):
        def weights(q, k):
            return _softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]))

        return (weights(query, key) - LAMBDA * weights(query2, key2)) @ value


class Evoformer(torch.nn.Module):
    """Attention of a row of an alignment with a bias for each pair of residues, and a gate."""

    def forward(self, query, key, value, pair, gate):
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + pair
        return torch.sigmoid(gate) * (_softmax(scores) @ value)


def _tensors(names, shape, device, dtype):
    return {name: torch.randn(shape, device=device, dtype=dtype) for name in names}


def _plain(weights, kind=Plain, **rest):
    def make(batch=4, heads=16, length=4096, dim=64, device="cuda", dtype=torch.bfloat16):
        inputs = _tensors(("query", "key", "value"), (batch, heads, length, dim), device, dtype)
        return kind(weights), inputs | {name: make_one(heads, device, dtype) for name, make_one in rest.items()}
    return make


def differential(batch=4, heads=8, length=4096, dim=64, device="cuda", dtype=torch.bfloat16):
    return Differential(), _tensors(("query", "key", "query2", "key2", "value"), (batch, heads, length, dim), device, dtype)


def evoformer(batch=128, heads=4, length=384, dim=32, device="cuda", dtype=torch.bfloat16):
    inputs = _tensors(("query", "key", "value", "gate"), (batch, heads, length, dim), device, dtype)
    return Evoformer(), inputs | _tensors(("pair",), (heads, length, length), device, dtype)


VARIANTS = {
    "causal": _plain(causal),
    "alibi": _plain(alibi, slopes=lambda heads, device, dtype: torch.tensor(
        [2.0 ** (-8 * (head + 1) / heads) for head in range(heads)], device=device, dtype=dtype)),
    "softcap": _plain(softcap),
    "window": _plain(window),
    "prefix": _plain(prefix),
    "documents": _plain(documents),
    "sigmoid": _plain(sigmoid),
    "sinks": _plain(sinks, sink=lambda heads, device, dtype: torch.randn(heads, device=device, dtype=dtype)),
    "qk_norm": _plain(causal, QueryKeyNorm),
    "differential": differential,
    "evoformer": evoformer,
}
