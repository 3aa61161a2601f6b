"""Recurrences whose steps have sums in them: layers over time, iterations of solvers, of transport, of fields and of beliefs."""

import torch

import nestor
from nestor import Size, define, f32, indices

from .problem import Operator, divided

batch, times, cells = Size("batch", 64), Size("times", 48), Size("cells", 256)
b, s, j = indices(b=batch, s=cells, j=cells)
(t,) = indices(t=times)
(past,) = indices(past=times - 1)


@nestor.nest
def lstm_layer(x: f32[times, batch, 4, cells], weight: f32[4, cells, cells]):
    """The recurrent half of a layer: what comes in is projected already."""
    hidden = define("hidden", (t, b, s), 0.0, where=t == 0)
    cell = define("cell", (t, b, s), 0.0, where=t == 0)

    def gate(number):
        return nestor.sum(hidden[past, b, j] * weight[number, s, j], over=j) + x[past, b, number, s]

    with nestor.steps(past):
        kept = nestor.sigmoid(gate(1)) * cell[past, b, s] + nestor.sigmoid(gate(0)) * nestor.tanh(gate(2))
        cell.write((past, b, s), (past + 1, b, s), kept)
        hidden.write((past, b, s), (past + 1, b, s), nestor.sigmoid(gate(3)) * nestor.tanh(cell[past + 1, b, s]))
    return hidden, cell


def _lstm(x, weight):
    hidden = [torch.zeros_like(x[0, :, 0])]
    cell = [hidden[0]]
    for now in x[:-1]:
        into, forget, new, out = (hidden[-1] @ weight[k].T + now[:, k] for k in range(4))
        cell.append(torch.sigmoid(forget) * cell[-1] + torch.sigmoid(into) * torch.tanh(new))
        hidden.append(torch.sigmoid(out) * torch.tanh(cell[-1]))
    return torch.stack(hidden), torch.stack(cell)


@nestor.nest
def gru_layer(x: f32[times, batch, 3, cells], weight: f32[3, cells, cells]):
    """PyTorch's form: the gate multiplies what the sum gives."""
    hidden = define("out", (t, b, s), 0.0, where=t == 0)

    def came(number):
        return nestor.sum(hidden[past, b, j] * weight[number, s, j], over=j)

    with nestor.steps(past):
        reset, keep = nestor.sigmoid(came(0) + x[past, b, 0, s]), nestor.sigmoid(came(1) + x[past, b, 1, s])
        new = nestor.tanh(came(2) * reset + x[past, b, 2, s])
        hidden.write((past, b, s), (past + 1, b, s), keep * hidden[past, b, s] + (1 - keep) * new)
    return hidden


def _gru(x, weight):
    hidden = [torch.zeros_like(x[0, :, 0])]
    for now in x[:-1]:
        reset, keep, new = (hidden[-1] @ weight[k].T for k in range(3))
        reset, keep = torch.sigmoid(reset + now[:, 0]), torch.sigmoid(keep + now[:, 1])
        hidden.append(keep * hidden[-1] + (1 - keep) * torch.tanh(new * reset + now[:, 2]))
    return torch.stack(hidden)


plans, here, there, turns = Size("plans", 16), Size("here", 512), Size("there", 384), Size("turns", 21)
p, h, w = indices(p=plans, h=here, w=there)
u, turn = indices(u=turns, turn=turns - 1)


@nestor.nest
def sinkhorn_iterations(kernel: f32[plans, here, there], amount: f32[plans, here], wanted: f32[plans, there]):
    """Entropic transport: rows and columns are scaled in turn."""
    column = define("column", (p, u, w), 1.0, where=u == 0)
    row = nestor.Tensor("row", f32, (plans, turns - 1, here))
    with nestor.steps(turn):
        row.write((turn, p, h), (p, turn, h), amount[p, h] / nestor.sum(kernel[p, h, w] * column[p, turn, w], over=w))
        column.write((turn, p, w), (p, turn + 1, w), wanted[p, w] / nestor.sum(kernel[p, h, w] * row[p, turn, h], over=h))
    return column, row


def _sinkhorn(kernel, amount, wanted, turns):
    column, row = [torch.ones_like(wanted)], []
    for _ in range(turns - 1):
        row.append(amount / (kernel @ column[-1][..., None])[..., 0])
        column.append(wanted / (row[-1][:, None] @ kernel)[:, 0])
    return torch.stack(column, 1), torch.stack(row, 1)


points, labels, rounds = Size("points", 1536), Size("labels", 12), Size("rounds", 17)
n, m, c = indices(n=points, m=points, c=labels)
r, before = indices(r=rounds, before=rounds - 1)


@nestor.nest
def label_propagation(near: f32[points, points], known: f32[points, labels]):
    """Labels go along a graph's edges, some of what is known with each step."""
    score = define("out", (r, n, c), known[n, c], where=r == 0)
    came = nestor.sum(near[n, m] * score[before, m, c], over=m)
    return score.write((before, n, c), (before + 1, n, c), 0.9 * came + 0.1 * known[n, c])


def _propagation(near, known, rounds):
    score = [known]
    for _ in range(rounds - 1):
        score.append(0.9 * near @ score[-1] + 0.1 * known)
    return torch.stack(score)


@nestor.nest
def mean_field(unary: f32[points, labels], near: f32[points, points], apart: f32[labels, labels]):
    """A fully connected random field: messages, what labels dislike each other, and a softmax, step by step."""
    c2 = indices(c2=labels)[0]
    total = define("first", n, nestor.sum(nestor.exp(-unary[n, c]), over=c))
    belief = define("out", (r, n, c), nestor.exp(-unary[n, c]) / total[n], where=r == 0)
    with nestor.steps(before):
        message = define("message", (before, n, c), nestor.sum(near[n, m] * belief[before, m, c], over=m))
        price = define("price", (before, n, c), unary[n, c] + nestor.sum(apart[c, c2] * message[before, n, c2], over=c2))
        low = define("low", (before, n), nestor.min(price[before, n, c], over=c))
        weight = define("weight", (before, n, c), nestor.exp(low[before, n] - price[before, n, c]))
        belief.write((before, n, c), (before + 1, n, c), weight[before, n, c] / nestor.sum(weight[before, n, c2], over=c2))
    return belief


def _mean_field(unary, near, apart, rounds):
    belief = [torch.softmax(-unary, -1)]
    for _ in range(rounds - 1):
        belief.append(torch.softmax(-(unary + near @ belief[-1] @ apart.T), -1))
    return torch.stack(belief)


tall, broad, moments = Size("tall", 512), Size("broad", 512), Size("moments", 33)
y, x = indices(y=tall, x=broad)
(k,) = indices(k=moments)
inner_y, inner_x, moment = indices(inner_y=tall - 2, inner_x=broad - 2, moment=moments - 1)


@nestor.nest(require=[tall >= 3, broad >= 3])
def gray_scott(feed: f32[tall, broad], active: f32[tall, broad]):
    """Two substances that react and spread; the border stays as it is."""
    first = define("first", (k, y, x), feed[y, x], where=k == 0)
    second = define("second", (k, y, x), active[y, x], where=k == 0)
    at, to = (inner_y + 1, inner_x + 1), (moment, inner_y, inner_x)

    def spread(field):
        here = field[(moment, *at)]
        return (field[moment, inner_y, inner_x + 1] + field[moment, inner_y + 2, inner_x + 1] + field[moment, inner_y + 1, inner_x]
                + field[moment, inner_y + 1, inner_x + 2] - 4 * here)
    with nestor.steps(moment):
        for field, start in ((first, feed), (second, active)):
            for edge, where in ((0, y == 0), (1, y == tall - 1), (2, (x == 0) & (y > 0) & (y < tall - 1)),
                                (3, (x == broad - 1) & (y > 0) & (y < tall - 1))):
                field.write((moment, y, x), (moment + 1, y, x), start[y, x], where=where)
        react = define("react", to, first[(moment, *at)] * second[(moment, *at)] * second[(moment, *at)])
        first.write(to, (moment + 1, *at), first[(moment, *at)] + 0.16 * spread(first) - react[to] + 0.035 * (1 - first[(moment, *at)]))
        second.write(to, (moment + 1, *at), second[(moment, *at)] + 0.08 * spread(second) + react[to] - 0.1 * second[(moment, *at)])
    return first, second


def _gray_scott(feed, active, moments):
    first, second = [feed], [active]

    def spread(field):
        return field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:] - 4 * field[1:-1, 1:-1]
    for _ in range(moments - 1):
        one, two = first[-1], second[-1]
        a, i = one[1:-1, 1:-1], two[1:-1, 1:-1]
        react = a * i * i
        new, other = one.clone(), two.clone()
        new[1:-1, 1:-1] = a + 0.16 * spread(one) - react + 0.035 * (1 - a)
        other[1:-1, 1:-1] = i + 0.08 * spread(two) + react - 0.1 * i
        first.append(new)
        second.append(other)
    return torch.stack(first), torch.stack(second)


signals, codes, unrolled = Size("signals", 512), Size("codes", 256), Size("unrolled", 13)
g, e, f = indices(g=signals, e=codes, f=codes)
v, last = indices(v=unrolled, last=unrolled - 1)


@nestor.nest
def learned_shrinkage(drive: f32[signals, codes], inhibit: f32[codes, codes], limit: f32[codes]):
    """LISTA: what codes inhibit each other, and a soft threshold."""
    code = define("out", (v, g, e), 0.0, where=v == 0)
    with nestor.steps(last):
        now = define("now", (last, g, e), drive[g, e] + nestor.sum(inhibit[e, f] * code[last, g, f], over=f))
        shrunk = nestor.maximum(nestor.absolute(now[last, g, e]) - limit[e], 0.0)
        code.write((last, g, e), (last + 1, g, e), nestor.select(now[last, g, e] < 0, -shrunk, shrunk))
    return code


def _shrinkage(drive, inhibit, limit, unrolled):
    code = [torch.zeros_like(drive)]
    for _ in range(unrolled - 1):
        now = drive + code[-1] @ inhibit.T
        shrunk = (now.abs() - limit).clamp(min=0)
        code.append(torch.where(now < 0, -shrunk, shrunk))
    return torch.stack(code)


heads, tokens, keys, values = Size("heads", 64), Size("tokens", 65), Size("keys", 64), Size("values", 64)
z, d, q, l = indices(z=heads, d=values, q=keys, l=keys)
o, earlier = indices(o=tokens, earlier=tokens - 1)


@nestor.nest
def delta_rule_steps(key: f32[heads, tokens, keys], value: f32[heads, tokens, values], beta: f32[heads, tokens]):
    """Fast weights, token by token: what they say of a key goes towards its value."""
    state = define("state", (z, o, d, q), 0.0, where=o == 0)
    with nestor.steps(earlier):
        said = define("said", (earlier, z, d), nestor.sum(state[z, earlier, d, l] * key[z, earlier, l], over=l))
        state.write((earlier, z, d, q), (z, earlier + 1, d, q), state[z, earlier, d, q]
                    + beta[z, earlier] * (value[z, earlier, d] - said[earlier, z, d]) * key[z, earlier, q])
    return state


def _delta_steps(key, value, beta):
    state = [torch.zeros_like(value[:, 0, :, None] * key[:, 0, None])]
    for at in range(key.shape[1] - 1):
        said = (state[-1] @ key[:, at, :, None])[..., 0]
        state.append(state[-1] + (beta[:, at, None] * (value[:, at] - said))[..., None] * key[:, at, None])
    return torch.stack(state, 1)


OPERATORS = [
    Operator(lstm_layer, _lstm, "S. Hochreiter and J. Schmidhuber, 1997", {"batch": 3, "times": 4, "cells": 5}, draw={"weight": divided("cells")}),
    Operator(gru_layer, _gru, "K. Cho et al., arXiv:1406.1078", {"batch": 3, "times": 4, "cells": 5}, draw={"weight": divided("cells")}),
    Operator(sinkhorn_iterations, _sinkhorn, "M. Cuturi, arXiv:1306.0895", {"plans": 2, "here": 5, "there": 4, "turns": 4}, told=("turns",),
             draw={"kernel": lambda x, _: torch.exp(-x.abs()), "amount": lambda x, _: torch.softmax(x, -1), "wanted": lambda x, _: torch.softmax(x, -1)}),
    Operator(label_propagation, _propagation, "D. Zhou et al., 2004", {"points": 7, "labels": 3, "rounds": 4}, told=("rounds",),
             draw={"near": divided("points")}),
    Operator(mean_field, _mean_field, "P. Krähenbühl and V. Koltun, arXiv:1210.5644", {"points": 7, "labels": 3, "rounds": 4}, told=("rounds",),
             draw={"near": lambda x, s: x.abs() / s["points"], "apart": lambda x, _: x.abs()}),
    Operator(gray_scott, _gray_scott, "J. Pearson, 1993", {"tall": 5, "broad": 6, "moments": 4}, told=("moments",),
             draw={"feed": lambda x, _: torch.sigmoid(x), "active": lambda x, _: 0.5 * torch.sigmoid(x)}),
    Operator(learned_shrinkage, _shrinkage, "K. Gregor and Y. LeCun, 2010", {"signals": 3, "codes": 5, "unrolled": 4}, told=("unrolled",),
             draw={"inhibit": lambda x, s: 0.5 * x / s["codes"]**0.5, "limit": lambda x, _: 0.1 * x.abs()}),
    Operator(delta_rule_steps, _delta_steps, "I. Schlag et al., arXiv:2102.11174", {"heads": 2, "tokens": 4, "keys": 5, "values": 3},
             draw={"key": lambda x, s: torch.nn.functional.normalize(x, dim=-1), "beta": lambda x, _: torch.sigmoid(x)}),
]
