"""Models as people write them, small: what the tests of capture share."""

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    """A layer of BERT, with a padding mask of 64-bit integers."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x, mask):
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e4
        scores = self.split(self.query(x)) @ self.split(self.key(x)).transpose(-1,
                                                                               -2) / (x.shape[-1] // self.heads)**0.5 + hidden
        mixed = scores.softmax(-1) @ self.split(self.value(x))
        x = self.first(x + self.out(mixed.transpose(1, 2).reshape(x.shape)))
        return self.second(x + self.down(F.gelu(self.up(x))))


class Decoder(nn.Module):
    """A layer of Llama: norms by hand, rotary embedding, groups of query heads, a dense mask made of indices."""

    def __init__(self, width=32, heads=4, key_heads=2):
        super().__init__()
        self.depth = width // heads
        self.heads, self.key_heads = heads, key_heads
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, key_heads * self.depth, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)
        self.gain = nn.Parameter(torch.rand(width) + 0.5)
        self.register_buffer("frequency", 10000.0 ** (-torch.arange(0, self.depth, 2) / self.depth))

    def norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 2**-17) * self.gain

    def turned(self, x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    def split(self, x, heads):
        return x.view(*x.shape[:2], heads, self.depth).transpose(1, 2)

    def repeated(self, x):
        group = self.heads // self.key_heads
        return x[:, :, None].expand(x.shape[0], self.key_heads, group, *x.shape[2:]).reshape(x.shape[0], self.heads, *x.shape[2:])

    def forward(self, x):
        place = torch.arange(x.shape[1], device=x.device)
        angle = torch.outer(place.float(), self.frequency)
        cos, sin = (torch.cat((each, each), -1).to(x.dtype) for each in (angle.cos(), angle.sin()))
        seen = (place[None, :] <= place[:, None]) & (place[None, :] > place[:, None] - 5)
        y = self.norm(x)
        query = self.turned(self.split(self.query(y), self.heads), cos, sin)
        key = self.turned(self.split(self.key(y), self.key_heads), cos, sin)
        value = self.split(self.value(y), self.key_heads)
        mixed = F.scaled_dot_product_attention(query, self.repeated(key), self.repeated(value), attn_mask=seen[None, None])
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def attention_with(mask):
    """Attention written out, with a mask made of the places of queries and keys."""
    def attend(query, key, value):
        rows = torch.arange(query.shape[-2])[:, None] + key.shape[-2] - query.shape[-2]
        scores = query @ key.mT * 0.25
        scores = scores.masked_fill(~mask(rows, torch.arange(key.shape[-2])[None]), float("-inf"))
        return torch.softmax(scores, -1) @ value
    return attend


MASKS = {
    "causal": lambda row, column: column <= row,
    "window": lambda row, column: (column <= row) & (column > row - 3),
    "prefix": lambda row, column: (column <= row) | (column < 4),
    "documents": lambda row, column: (row // 3 == column // 3) & (column <= row),
    "dilated": lambda row, column: (column <= row) & ((row - column) % 2 == 0),
}


def alibi(query, key, value):
    slopes = 2.0 ** (-8.0 * torch.arange(1, query.shape[1] + 1) / query.shape[1])
    distance = torch.arange(key.shape[2])[None] - torch.arange(query.shape[2])[:, None]
    bias = (slopes[:, None, None] * distance).masked_fill(distance > 0, float("-inf"))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)


def softcap(query, key, value):
    return (torch.tanh(query @ key.mT / 20) * 20).softmax(-1) @ value


def differential(query, key, value):
    seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()

    def weights(scale):
        return (query @ key.mT * scale).masked_fill(~seen, -torch.inf).softmax(-1)
    return (weights(0.3) - 0.5 * weights(0.2)) @ value


def sinks(query, key, value):
    scores = query @ key.mT * 0.5
    sink = torch.full((1, 1, 1, 1), 0.25).expand(*scores.shape[:3], 1)
    return torch.cat((scores, sink), -1).softmax(-1)[..., :-1] @ value


def sigmoid(query, key, value):
    return torch.sigmoid(query @ key.mT * 0.5 - 2) @ value


def gated(query, key, value):
    return torch.sigmoid(query) * ((query @ key.mT * 0.5).softmax(-1) @ value)


VARIANTS = (alibi, softcap, differential, sinks, sigmoid, gated)
