"""A BERT as Hugging Face writes it, small and in plain PyTorch: what the tests of schedules share."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.heads, self.depth = heads, width // heads
        self.dropout = nn.Dropout(dropout)

    def split(self, x):
        return x.view(x.shape[:-1] + (self.heads, self.depth)).permute(0, 2, 1, 3)

    def forward(self, hidden, mask=None):
        query, key, value = self.split(self.query(hidden)), self.split(self.key(hidden)), self.split(self.value(hidden))
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.depth)
        if mask is not None:
            scores = scores + mask
        weights = self.dropout(F.softmax(scores, dim=-1))
        mixed = torch.matmul(weights, value).permute(0, 2, 1, 3).contiguous()
        return mixed.view(mixed.shape[:-2] + (self.heads * self.depth, ))


class Output(nn.Module):
    """A projection, dropout, the residual and a norm."""

    def __init__(self, inner, width, dropout):
        super().__init__()
        self.dense, self.norm, self.dropout = nn.Linear(inner, width), nn.LayerNorm(width), nn.Dropout(dropout)

    def forward(self, hidden, residual):
        return self.norm(self.dropout(self.dense(hidden)) + residual)


class Attention(nn.Module):

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.self, self.output = SelfAttention(width, heads, dropout), Output(width, width, dropout)

    def forward(self, hidden, mask=None):
        return self.output(self.self(hidden, mask), hidden)


class Intermediate(nn.Module):

    def __init__(self, width, inner):
        super().__init__()
        self.dense, self.activation = nn.Linear(width, inner), F.gelu

    def forward(self, hidden):
        return self.activation(self.dense(hidden))


class Layer(nn.Module):

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.intermediate, self.output = Intermediate(width, 4 * width), Output(4 * width, width, dropout)

    def forward(self, hidden, mask=None):
        hidden = self.attention(hidden, mask)
        return self.output(self.intermediate(hidden), hidden)


class Encoder(nn.Module):

    def __init__(self, width, heads, layers, dropout):
        super().__init__()
        self.layer = nn.ModuleList(Layer(width, heads, dropout) for _ in range(layers))

    def forward(self, hidden, mask=None):
        for layer in self.layer:
            hidden = layer(hidden, mask)
        return hidden


class Bert(nn.Module):
    """Tokens and a padding mask to scores of the next sentence's kind."""

    def __init__(self, width=16, heads=2, layers=2, words=40, places=12, kinds=3, dropout=0.1):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        self.encoder, self.classifier = Encoder(width, heads, layers, dropout), nn.Linear(width, kinds)

    def forward(self, tokens, mask):
        place = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.dropout(self.norm(self.words(tokens) + self.places(place)))
        hidden = self.encoder(hidden, (1.0 - mask[:, None, None, :].to(hidden.dtype)) * -10000.0)
        return self.classifier(hidden[:, 0])


class FeedForward(nn.Module):

    def __init__(self, width=8, inner=16):
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


def batch(size=3, length=10, words=40, kinds=3):
    """(tokens, mask, labels) with sequences of several lengths."""
    mask = (torch.arange(length)[None] < torch.randint(length // 2, length + 1, (size, 1))).long()
    return torch.randint(words, (size, length)), mask, torch.randint(kinds, (size, ))
