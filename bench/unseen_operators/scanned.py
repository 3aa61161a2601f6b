"""Layers and searches that go step by step: gates that need no state, exponential gates, two updates a token, chunks, scanlines, paths, factors."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f32, indices

from .problem import Operator, divided, widened

talks, times, wide, deep = Size("talks", 64), Size("times", 256), Size("wide", 1024), Size("deep", 1024)
b, t, w, e = indices(b=talks, t=times, w=wide, e=deep)
(past,) = indices(past=times - 1)


@nestor.nest
def min_gru_layer(x: bf16[talks, times, deep], gate: bf16[wide, deep], candidate: bf16[wide, deep]):
    """Gates and candidates come from the inputs alone, so that the state is a weighted sum from step to step."""
    keep = define("keep", (b, t, w), nestor.sigmoid(nestor.sum(x[b, t, e] * gate[w, e], over=e)))
    new = define("new", (b, t, w), nestor.sum(x[b, t, e] * candidate[w, e], over=e))
    state = define("state", (b, t, w), keep[b, t, w] * new[b, t, w], where=t == 0)
    state.write((b, past, w), (b, past + 1, w),
                (1 - keep[b, past + 1, w]) * state[b, past, w] + keep[b, past + 1, w] * new[b, past + 1, w])
    return define("out", (b, t, w), state[b, t, w], type=bf16)


def _min_gru(x, gate, candidate):
    keep, new = torch.sigmoid(widened(x @ gate.T)), widened(x @ candidate.T)
    state, found = torch.zeros_like(new[:, 0]), []
    for step in range(x.shape[1]):
        state = (1 - keep[:, step]) * state + keep[:, step] * new[:, step]
        found.append(state)
    return torch.stack(found, 1).to(x.dtype)


batch, heads, steps, cells = Size("batch", 32), Size("heads", 4), Size("steps", 48), Size("cells", 128)
n, h, s, c, c2 = indices(n=batch, h=heads, s=steps, c=cells, c2=cells)
(last,) = indices(last=steps - 1)


@nestor.nest
def slstm_layer(x: f32[steps, batch, 4, heads, cells], weight: f32[4, heads, cells, cells]):
    """xLSTM's scalar memory: exponential gates beside their largest logarithm, and a state for each head."""
    hidden = define("hidden", (s, n, h, c), 0.0, where=s == 0)
    cell = define("cell", (s, n, h, c), 0.0, where=s == 0)
    norm = define("norm", (s, n, h, c), 0.0, where=s == 0)
    high = define("high", (s, n, h, c), 0.0, where=s == 0)

    def came(number):
        return nestor.sum(hidden[last, n, h, c2] * weight[number, h, c, c2], over=c2) + x[last, n, number, h, c]
    at, was, now = (last, n, h, c), (last, n, h, c), (last + 1, n, h, c)
    with nestor.steps(last):
        into, forget = define("into", at, came(0)), define("forget", at, came(1))
        held = define("held", at, forget[at] + high[was])
        high.write(at, now, nestor.maximum(held[at], into[at]))
        kept, added = nestor.exp(held[at] - high[now]), nestor.exp(into[at] - high[now])
        cell.write(at, now, kept * cell[was] + added * nestor.tanh(came(2)))
        norm.write(at, now, kept * norm[was] + added)
        hidden.write(at, now, nestor.sigmoid(came(3)) * cell[now] / norm[now])
    return hidden


def _slstm(x, weight):
    hidden = [torch.zeros_like(x[0, :, 0])]
    cell, norm, high = hidden * 3
    for now in x[:-1]:
        into, forget, new, out = (torch.einsum("nhd,hcd->nhc", hidden[-1], weight[k]) + now[:, k] for k in range(4))
        held, high = forget + high, torch.maximum(forget + high, into)
        kept, added = torch.exp(held - high), torch.exp(into - high)
        cell, norm = kept * cell + added * torch.tanh(new), kept * norm + added
        hidden.append(torch.sigmoid(out) * cell / norm)
    return torch.stack(hidden)


many, tokens, keys, values = Size("many", 64), Size("tokens", 49), Size("keys", 64), Size("values", 64)
z, o, k, d, k2 = indices(z=many, o=tokens, k=keys, d=values, k2=keys)
(before,) = indices(before=tokens - 1)


@nestor.nest
def delta_product_steps(key: f32[many, tokens, 2, keys], value: f32[many, tokens, 2, values], beta: f32[many, tokens, 2], decay: f32[many, tokens]):
    """Two delta rules for each token, one after the other, and a decay between tokens."""
    state = define("state", (z, o, d, k), 0.0, where=o == 0)
    first = nestor.Tensor("first", f32, (many, tokens - 1, values, keys))
    with nestor.steps(before):
        said = define("said", (before, z, d), nestor.sum(state[z, before, d, k2] * key[z, before, 0, k2], over=k2))
        first.write((before, z, d, k), (z, before, d, k), decay[z, before] * state[z, before, d, k]
                    + beta[z, before, 0] * (value[z, before, 0, d] - decay[z, before] * said[before, z, d]) * key[z, before, 0, k])
        told = define("told", (before, z, d), nestor.sum(first[z, before, d, k2] * key[z, before, 1, k2], over=k2))
        state.write((before, z, d, k), (z, before + 1, d, k), first[z, before, d, k]
                    + beta[z, before, 1] * (value[z, before, 1, d] - told[before, z, d]) * key[z, before, 1, k])
    return state


def _delta_product(key, value, beta, decay):
    state = [torch.zeros_like(value[:, 0, 0, :, None] * key[:, 0, 0, None])]
    for at in range(key.shape[1] - 1):
        now = decay[:, at, None, None] * state[-1]
        for part in range(2):
            row = key[:, at, part]
            apart = value[:, at, part] - (now @ row[..., None])[..., 0]
            now = now + (beta[:, at, part, None] * apart)[..., None] * row[:, None]
        state.append(now)
    return torch.stack(state, 1)


chunks, inside = Size("chunks", 32), Size("inside", 64, fixed=True)
states, lanes = Size("states", 128, fixed=True), Size("lanes", 64, fixed=True)
g, i, st, l = indices(g=chunks, i=inside, st=states, l=lanes)
(done,) = indices(done=chunks - 1)


@nestor.nest
def chunk_states(into: bf16[many, chunks, inside, states], x: bf16[many, chunks, inside, lanes], kept: f32[many, chunks, inside], decay: f32[many, chunks],
                 read: bf16[many, chunks, inside, states]):
    """Mamba-2 between chunks: what each chunk adds to the state, the state at each chunk's start, and what its tokens read of that."""
    scaled = define("scaled", (z, g, i, st), into[z, g, i, st] * kept[z, g, i], type=bf16)
    added = define("added", (z, g, st, l), nestor.sum(scaled[z, g, i, st] * x[z, g, i, l], over=i))
    state = define("state", (z, g, st, l), 0.0, where=g == 0)
    state.write((z, done, st, l), (z, done + 1, st, l), decay[z, done] * state[z, done, st, l] + added[z, done, st, l])
    rounded = define("rounded", (z, g, st, l), state[z, g, st, l], type=bf16)
    return define("out", (z, g, i, l), nestor.sum(read[z, g, i, st] * rounded[z, g, st, l], over=st), type=bf16)


def _chunk_states(into, x, kept, decay, read):
    added = widened((into * kept[..., None]).to(x.dtype).transpose(-1, -2) @ x)
    state = [torch.zeros_like(added[:, 0])]
    for chunk in range(x.shape[1] - 1):
        state.append(decay[:, chunk, None, None] * state[-1] + added[:, chunk])
    return read @ torch.stack(state, 1).to(x.dtype)


tall, broad, shifts = Size("tall", 540), Size("broad", 240), Size("shifts", 64)
y, x_, p, p2 = indices(y=tall, x_=broad, p=shifts, p2=shifts)
(left,) = indices(left=broad - 1)


@nestor.nest
def semiglobal_matching(cost: f32[tall, broad, shifts]):
    """A path of stereo matching: from pixel to pixel, shifts may change by one for a little, and by more for a lot."""
    path = define("out", (y, x_, p), cost[y, x_, p], where=x_ == 0)
    with nestor.steps(left):
        low = define("low", (left, y), nestor.min(path[y, left, p2], over=p2))
        less = nestor.select(p > 0, path[y, left, p - 1], 1e30)
        more = nestor.select(p < shifts - 1, path[y, left, p + 1], 1e30)
        near = nestor.minimum(path[y, left, p], nestor.minimum(less, more) + 0.5)
        best = define("best", (left, y, p), nestor.minimum(near, low[left, y] + 2.0) - low[left, y])
        path.write((left, y, p), (y, left + 1, p), cost[y, left + 1, p] + best[left, y, p])
    return path


def _semiglobal(cost):
    path = [cost[:, 0]]
    for step in range(1, cost.shape[1]):
        was, low = path[-1], path[-1].amin(1, keepdim=True)
        less, more = F.pad(was[:, :-1], (1, 0), value=1e30), F.pad(was[:, 1:], (0, 1), value=1e30)
        near = torch.minimum(was, torch.minimum(less, more) + 0.5)
        path.append(cost[:, step] + torch.minimum(near, low + 2) - low)
    return torch.stack(path, 1)


towns = Size("towns", 192)
a, r, q = indices(a=towns, r=towns, q=towns)
stops, stop = indices(stops=towns + 1, stop=towns)


@nestor.nest
def shortest_paths(length: f32[towns, towns]):
    """Floyd and Warshall: the ways between all pairs, with one more town to go through at each step."""
    way = define("out", (stops, r, q), length[r, q], where=stops == 0)
    return way.write((stop, r, q), (stop + 1, r, q), nestor.minimum(way[stop, r, q], way[stop, r, stop] + way[stop, stop, q]))


def _shortest(length):
    way = [length]
    for stop in range(len(length)):
        way.append(torch.minimum(way[-1], way[-1][:, stop, None] + way[-1][stop]))
    return torch.stack(way)


matrices, side = Size("matrices", 1024), Size("side", 32)
m, row, column, column2 = indices(m=matrices, row=side, column=side, column2=side)


@nestor.nest
def cholesky_factors(matrix: f32[matrices, side, side]):
    """Small positive matrices' triangular roots, column by column."""
    (at,) = indices(at=side)
    root = nestor.Tensor("out", f32, (matrices, side, side))
    with nestor.steps(at):
        rest = define("rest", (at, m, row), matrix[m, row, at]
                      - nestor.sum(root[m, row, column] * root[m, at, column], over=column, where=column < at))
        length = define("length", (at, m), nestor.rsqrt(rest[at, m, at]))
        root.write((at, m, row), (m, row, at), nestor.select(row < at, 0.0, rest[at, m, row] * length[at, m]))
    return root


def _cholesky(matrix):
    return torch.linalg.cholesky(matrix)


def _positive(normal, _):
    return normal @ normal.transpose(-1, -2) / normal.shape[-1] + torch.eye(normal.shape[-1], device=normal.device)


OPERATORS = [
    Operator(min_gru_layer, _min_gru, "L. Feng et al., arXiv:2410.01201", {"talks": 2, "times": 5, "wide": 7, "deep": 6},
             draw={name: divided("deep") for name in ("gate", "candidate")}),
    Operator(slstm_layer, _slstm, "M. Beck et al., xLSTM, arXiv:2405.04517", {"batch": 3, "heads": 2, "steps": 4, "cells": 5},
             draw={"weight": divided("cells")}),
    Operator(delta_product_steps, _delta_product, "J. Siems et al., arXiv:2502.10297", {"many": 2, "tokens": 4, "keys": 5, "values": 3},
             draw={"key": divided("keys"), "beta": lambda x, _: torch.sigmoid(x), "decay": lambda x, _: torch.sigmoid(x + 2)}),
    Operator(chunk_states, _chunk_states, "T. Dao and A. Gu, Mamba-2, arXiv:2405.21060",
             {"many": 2, "chunks": 4, "inside": 5, "states": 6, "lanes": 3},
             draw={"kept": lambda x, _: torch.sigmoid(x), "decay": lambda x, _: torch.sigmoid(x), "read": divided("states")}),
    Operator(semiglobal_matching, _semiglobal, "H. Hirschmüller, 2005", {"tall": 3, "broad": 5, "shifts": 4}, draw={"cost": lambda x, _: x.abs()}),
    Operator(shortest_paths, _shortest, "R. Floyd, 1962", {"towns": 5}, draw={"length": lambda x, _: x.abs()}),
    Operator(cholesky_factors, _cholesky, "A.-L. Cholesky, 1924", {"matrices": 3, "side": 5}, draw={"matrix": _positive}),
]
