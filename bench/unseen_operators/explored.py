"""Quantum circuits, shocks, proteins, charges, particles that follow scores, correlated electrons, triangles of graphs, alignments with long gaps,
systems with triangular matrices, updates without a schedule, ranks of rows."""

import itertools

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, define, f16, f32, i32, indices

from .problem import Operator

upper, middle, lower = Size("upper", 512), Size("middle", 16), Size("lower", 256)
u, m, l = indices(u=upper, m=middle, l=lower)
a, b, a2, b2 = indices(a=2, b=2, a2=2, b2=2)


@nestor.nest
def two_qubit_gate(real: f32[upper, 2, middle, 2, lower], imaginary: f32[upper, 2, middle, 2, lower], gate: f32[2, 2, 2, 2], phase: f32[2, 2, 2, 2]):
    """A gate on two of a register's qubits."""
    one, two = real[u, a2, m, b2, l], imaginary[u, a2, m, b2, l]
    new = nestor.sum(gate[a, b, a2, b2] * one - phase[a, b, a2, b2] * two, over=(a2, b2))
    other = nestor.sum(gate[a, b, a2, b2] * two + phase[a, b, a2, b2] * one, over=(a2, b2))
    return define("new", (u, a, m, b, l), new), define("other", (u, a, m, b, l), other)


def _gate(real, imaginary, gate, phase):
    def applied(matrix, state):
        return torch.einsum("abcd,ucmdl->uambl", matrix, state)
    return applied(gate, real) - applied(phase, imaginary), applied(gate, imaginary) + applied(phase, real)


tubes, cells = Size("tubes", 2048), Size("cells", 4096)
t, c, f = indices(t=tubes, c=cells, f=cells + 1)


def _weighted(find):
    """WENO5's value at a face, from the five cells find(0) to find(4) along the wind."""
    def squares(one, two):
        return 13 / 12 * one * one + 0.25 * two * two
    v = [find(place) for place in range(5)]
    rough = [squares(v[0] - 2 * v[1] + v[2], v[0] - 4 * v[1] + 3 * v[2]), squares(v[1] - 2 * v[2] + v[3], v[1] - v[3]),
             squares(v[2] - 2 * v[3] + v[4], 3 * v[2] - 4 * v[3] + v[4])]
    weight = [share / ((1e-6 + each) * (1e-6 + each)) for share, each in zip((0.1, 0.6, 0.3), rough)]
    side = [(2 * v[0] - 7 * v[1] + 11 * v[2]) / 6, (-v[1] + 5 * v[2] + 2 * v[3]) / 6, (2 * v[2] + 5 * v[3] - v[4]) / 6]
    return (weight[0] * side[0] + weight[1] * side[1] + weight[2] * side[2]) / (weight[0] + weight[1] + weight[2])


@nestor.nest
def shock_flux(x: f32[tubes, cells + 6]):
    """A step of Burgers' equation by WENO5 with a flux split for either wind. Tubes have three cells of margin."""
    right = define("right", (t, f), _weighted(lambda at: 0.5 * (0.5 * x[t, f + at] * x[t, f + at] + 2 * x[t, f + at])))
    left = define("left", (t, f), _weighted(lambda at: 0.5 * (0.5 * x[t, f + 5 - at] * x[t, f + 5 - at] - 2 * x[t, f + 5 - at])))
    flux = define("flux", (t, f), right[t, f] + left[t, f])
    return define("out", (t, c), x[t, c + 3] - 0.2 * (flux[t, c + 1] - flux[t, c]))


def _shock(x):
    ahead, back = 0.5 * (0.5 * x * x + 2 * x), 0.5 * (0.5 * x * x - 2 * x)
    faces = x.shape[1] - 5
    flux = _weighted(lambda at: ahead[:, at:at + faces]) + _weighted(lambda at: back[:, 5 - at:5 - at + faces])
    return x[:, 3:-3] - 0.2 * (flux[:, 1:] - flux[:, :-1])


grids, tall, broad = Size("grids", 4), Size("tall", 1024), Size("broad", 1024)
g, y, x_ = indices(g=grids, y=tall, x_=broad)


@nestor.nest
def red_black_sweep(x: f32[grids, tall + 2, broad + 2], source: f32[grids, tall, broad]):
    """Gauss and Seidel on a chessboard: red cells from their neighbours, then black ones; twice, over-relaxed. Borders stay."""
    yy, xx = indices(yy=tall + 2, xx=broad + 2)
    now = x
    for step in range(4):
        inside = (yy >= 1) & (yy <= tall) & (xx >= 1) & (xx <= broad)
        around = now[g, yy - 1, xx] + now[g, yy + 1, xx] + now[g, yy, xx - 1] + now[g, yy, xx + 1]
        fresh = now[g, yy, xx] + 1.5 * (0.25 * (around - source[g, yy - 1, xx - 1]) - now[g, yy, xx])
        now = define(f"sweep_{step}", (g, yy, xx), nestor.select(inside & ((yy + xx) % 2 == step % 2), fresh, now[g, yy, xx]))
    return now


def _red_black(x, source):
    inner = x[:, 1:-1, 1:-1]
    colour = (torch.arange(inner.shape[1], device=x.device)[:, None] + torch.arange(inner.shape[2], device=x.device)) % 2
    for step in range(4):
        around = x[:, :-2, 1:-1] + x[:, 2:, 1:-1] + x[:, 1:-1, :-2] + x[:, 1:-1, 2:]
        inner = x[:, 1:-1, 1:-1]
        fresh = torch.where(colour == step % 2, inner + 1.5 * (0.25 * (around - source) - inner), inner)
        x = x.clone()
        x[:, 1:-1, 1:-1] = fresh
    return x


frames, atoms = Size("frames", 2048), Size("atoms", 8192)
fr, at, at2 = indices(fr=frames, at=atoms, at2=atoms)


@nestor.nest
def frame_aligned_error(turn: f32[frames, 3, 3], origin: f32[frames, 3], place: f32[atoms, 3], true_turn: f32[frames, 3, 3], true_origin: f32[frames, 3],
                        true_place: f32[atoms, 3]):
    """AlphaFold's loss: where each frame sees each atom, and where it should."""
    def seen(turn, origin, place, axis):
        return sum(turn[fr, way, axis] * (place[at, way] - origin[fr, way]) for way in range(3))
    gap = [seen(turn, origin, place, axis) - seen(true_turn, true_origin, true_place, axis) for axis in range(3)]
    far = nestor.sqrt(gap[0] * gap[0] + gap[1] * gap[1] + gap[2] * gap[2] + 1e-4)
    return define("out", fr, nestor.sum(nestor.minimum(far, 10.0), over=at) / atoms)


def _frame_aligned(turn, origin, place, true_turn, true_origin, true_place):
    seen = (place - origin[:, None]) @ turn
    wanted = (true_place - true_origin[:, None]) @ true_turn
    return torch.sqrt((seen - wanted).square().sum(-1) + 1e-4).clamp(max=10).mean(1)


@nestor.nest
def born_energy(place: f32[atoms, 3], charge: f32[atoms], size: f32[atoms]):
    """Charges in water, by generalised Born: how deep each atom is among the others, then what pairs screen of each other."""
    def square(one, two):
        return sum((place[one, axis] - place[two, axis]) * (place[one, axis] - place[two, axis]) for axis in range(3))
    inside = size[at2] * size[at2] * size[at2]
    near = square(at, at2) + size[at] * size[at2]
    hidden = nestor.sum(inside / (near * near), over=at2, where=at2 != at)
    deep = define("deep", at, 1 / (1 / size[at] - nestor.minimum(0.05 * hidden, 0.5 / size[at])))
    both = deep[at] * deep[at2]
    far = square(at, at2)
    pair = charge[at] * charge[at2] * nestor.rsqrt(far + both * nestor.exp(-far / (4 * both)))
    return deep, define("out", at, -0.5 * nestor.sum(pair, over=at2))


def _born(place, charge, size):
    far = (place[:, None] - place).square().sum(-1)
    near = far + size[:, None] * size
    term = (size**3 / near.square()).masked_fill(torch.eye(len(size), dtype=torch.bool, device=size.device), 0)
    deep = 1 / (1 / size - torch.minimum(0.05 * term.sum(1), 0.5 / size))
    both = deep[:, None] * deep
    pair = charge[:, None] * charge * torch.rsqrt(far + both * torch.exp(-far / (4 * both)))
    return deep, -0.5 * pair.sum(1)


points, axes = Size("points", 4096), Size("axes", 64)
i, j, d, d2 = indices(i=points, j=points, d=axes, d2=axes)


@nestor.nest
def stein_update(x: f32[points, axes], score: f32[points, axes]):
    """Stein's variational descent: points follow each other's scores, and keep apart."""
    apart = nestor.sum((x[i, d2] - x[j, d2]) * (x[i, d2] - x[j, d2]), over=d2)
    near = define("near", (i, j), nestor.exp(-apart / axes))
    pull = score[j, d] + 2 / axes * (x[i, d] - x[j, d])
    return define("out", (i, d), x[i, d] + 0.1 / points * nestor.sum(near[i, j] * pull, over=j))


def _stein(x, score):
    near = torch.exp(-torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square() / x.shape[1])
    push = x * near.sum(1, keepdim=True) - near @ x
    return x + 0.1 / len(x) * (near @ score + 2 / x.shape[1] * push)


filled, empty, fitted = Size("filled", 24), Size("empty", 128), Size("fitted", 512)
o, o2, e, e2, q = indices(o=filled, o2=filled, e=empty, e2=empty, q=fitted)


@nestor.nest
def perturbed_energy(fit: f32[filled, empty, fitted], low: f32[filled], high: f32[empty]):
    """Møller and Plesset's second order, with fitted densities: energies of pairs of electrons."""
    direct = define("direct", (o, e, o2, e2), nestor.sum(fit[o, e, q] * fit[o2, e2, q], over=q))
    gap = low[o] + low[o2] - high[e] - high[e2]
    term = direct[o, e, o2, e2] * (2 * direct[o, e, o2, e2] - direct[o, e2, o2, e]) / gap
    return define("out", (o, o2), nestor.sum(term, over=(e, e2)))


def _perturbed(fit, low, high):
    flat = fit.flatten(0, 1)
    direct = (flat @ flat.T).reshape(fit.shape[0], fit.shape[1], fit.shape[0], fit.shape[1])
    gap = low[:, None, None, None] + low[:, None] - high[:, None, None] - high
    return (direct * (2 * direct - direct.transpose(1, 3)) / gap).sum((1, 3))


nodes = Size("nodes", 4096)
n, n2, n3 = indices(n=nodes, n2=nodes, n3=nodes)


@nestor.nest
def triangle_shares(edge: f16[nodes, nodes]):
    """How many of a node's neighbours know each other: triangles against pairs. Edges are symmetric."""
    paths = define("paths", (n, n2), nestor.sum(edge[n, n3] * edge[n2, n3], over=n3))
    closed = nestor.sum(paths[n, n2] * edge[n, n2], over=n2)
    degree = define("degree", n, nestor.sum(edge[n, n2], over=n2))
    return define("out", n, closed / nestor.maximum(degree[n] * (degree[n] - 1), 1.0))


def _triangles(edge):
    closed = _closed(edge)
    degree = edge.sum(1, dtype=torch.float64 if edge.dtype == torch.float64 else torch.float32)
    return closed / (degree * (degree - 1)).clamp(min=1)


def _closed(edge):
    """Sums along rows of a matrix's product with its transpose, where it is not 0."""
    kind = torch.float64 if edge.dtype == torch.float64 else torch.float32
    return ((edge @ edge.T).to(kind) * edge).sum(1)


proteins, lefts, rights = Size("proteins", 512), Size("lefts", 64), Size("rights", 64)
pr, lf, ri = indices(pr=proteins, lf=lefts, ri=rights)
below, beside = indices(below=lefts - 1, beside=rights - 1)


@nestor.nest
def long_gap_alignment(score: f32[proteins, lefts, rights]):
    """Gotoh: alignments in which a gap costs more to open than to go on. A table for matches and one for either gap."""
    whole = (proteins, lefts, rights)
    match, up, left = (nestor.Tensor(name, f32, whole) for name in ("match", "up", "left"))
    border = (lf == 0) | (ri == 0)
    match.write((pr, lf, ri), (pr, lf, ri), score[pr, lf, ri], where=border)
    for table in (up, left):
        table.write((pr, lf, ri), (pr, lf, ri), -1e4, where=border)
    with nestor.steps(below, beside):
        up.write((below, beside, pr), (pr, below + 1, beside + 1),
                 nestor.maximum(match[pr, below, beside + 1] - 1.0, up[pr, below, beside + 1] - 0.1))
        left.write((below, beside, pr), (pr, below + 1, beside + 1),
                   nestor.maximum(match[pr, below + 1, beside] - 1.0, left[pr, below + 1, beside] - 0.1))
        best = nestor.maximum(match[pr, below, beside], nestor.maximum(up[pr, below, beside], left[pr, below, beside]))
        match.write((below, beside, pr), (pr, below + 1, beside + 1), best + score[pr, below + 1, beside + 1])
    return define("out", pr, nestor.max(match[pr, lf, ri], over=(lf, ri)))


def _long_gap(score):
    match = [list(line.unbind(0)) for line in score.permute(1, 2, 0).unbind(0)]
    up, left = ([[torch.full_like(score[:, 0, 0], -1e4)] * score.shape[2] for _ in range(score.shape[1])] for _ in range(2))
    for row, column in itertools.product(range(1, score.shape[1]), range(1, score.shape[2])):
        up[row][column] = torch.maximum(match[row - 1][column] - 1.0, up[row - 1][column] - 0.1)
        left[row][column] = torch.maximum(match[row][column - 1] - 1.0, left[row][column - 1] - 0.1)
        before = torch.maximum(match[row - 1][column - 1], torch.maximum(up[row - 1][column - 1], left[row - 1][column - 1]))
        match[row][column] = before + score[:, row, column]
    return torch.stack([torch.stack(line, 1) for line in match], 1).amax((1, 2))


systems, side, given = Size("systems", 1024), Size("side", 64), Size("given", 32)
sy, ro, cl, gi = indices(sy=systems, ro=side, cl=side, gi=given)


@nestor.nest
def forward_substitution(matrix: f32[systems, side, side], right: f32[systems, side, given]):
    """Systems with lower triangular matrices, for several right sides."""
    found = nestor.Tensor("found", f32, (systems, side, given))
    with nestor.steps(ro):
        rest = define("rest", (ro, sy, gi), right[sy, ro, gi] - nestor.sum(matrix[sy, ro, cl] * found[sy, cl, gi], over=cl, where=cl < ro))
        found.write((ro, sy, gi), (sy, ro, gi), rest[ro, sy, gi] / matrix[sy, ro, ro])
    return found


def _forward(matrix, right):
    return torch.linalg.solve_triangular(matrix, right, upper=False)


weights = Size("weights", 16777216)
(w,) = indices(w=weights)


@nestor.nest
def schedule_free_step(averaged: f32[weights], fast: f32[weights], second: f32[weights], gradient: f32[weights], count: f32[()]):
    """AdamW without a schedule: a fast sequence, its average, and squares of gradients."""
    square = define("square", w, 0.999 * second[w] + 0.001 * gradient[w] * gradient[w])
    scale = nestor.rsqrt(square[w] / (1 - nestor.exp(-0.001 * count[()])) + 1e-12)
    middle = 0.1 * fast[w] + 0.9 * averaged[w]
    new = define("new", w, fast[w] - 0.0025 * (gradient[w] * scale + 0.01 * middle))
    return square, new, define("average", w, averaged[w] + (new[w] - averaged[w]) / count[()])


def _schedule_free(averaged, fast, second, gradient, count):
    square = 0.999 * second + 0.001 * gradient * gradient
    scale = torch.rsqrt(square / (1 - torch.exp(-0.001 * count)) + 1e-12)
    new = fast - 0.0025 * (gradient * scale + 0.01 * (0.1 * fast + 0.9 * averaged))
    return square, new, averaged + (new - averaged) / count


tables, entries = Size("tables", 2048), Size("entries", 512)
tb, en, en2 = indices(tb=tables, en=entries, en2=entries)


@nestor.nest
def row_ranks(x: f32[tables, entries]):
    """Ranks in each row, ties in order, and Spearman's distance of each row from one that rises."""
    less = nestor.select((x[tb, en2] < x[tb, en]) | ((x[tb, en2] == x[tb, en]) & (nestor.cast(i32, en2) < nestor.cast(i32, en))), 1, 0)
    rank = define("rank", (tb, en), nestor.sum(less, over=en2))
    gap = nestor.cast(f32, rank[tb, en] - nestor.cast(i32, en)) / entries
    return rank, define("out", tb, nestor.sum(gap * gap, over=en) / entries)


def _ranks(x):
    rank = x.argsort(dim=1, stable=True).argsort(1)
    gap = (rank - torch.arange(x.shape[1], device=x.device)).to(x.dtype) / x.shape[1]
    return rank.int(), gap.square().mean(1)


def _positive(x, _):
    """Draws from 0.5 to 1.5."""
    return 0.5 + torch.sigmoid(x)


def _edges(x, _):
    """Draws symmetric edges: one of eight pairs has one."""
    return (torch.triu(x, 1) + torch.triu(x, 1).T > 1.15).float()


def _lower(x, _):
    """Draws lower triangles that rule by their diagonals."""
    return torch.tril(x, -1) / x.shape[-1]**0.5 + torch.eye(x.shape[-1], device=x.device)


def _turns(x, _):
    """Draws rotations."""
    return torch.linalg.qr(x)[0]


OPERATORS = [
    Operator(two_qubit_gate, _gate, "T. Häner and D. Steiger, arXiv:1704.01127", {"upper": 2, "middle": 3, "lower": 4}),
    Operator(shock_flux, _shock, "G. Jiang and C. Shu, 1996", {"tubes": 2, "cells": 9}),
    Operator(red_black_sweep, _red_black, "D. Young, 1954", {"grids": 2, "tall": 5, "broad": 7}),
    Operator(frame_aligned_error, _frame_aligned, "J. Jumper et al., AlphaFold, 2021", {"frames": 3, "atoms": 7},
             draw={"turn": _turns, "true_turn": _turns}),
    Operator(born_energy, _born, "W. Still et al., 1990", {"atoms": 7}, draw={"place": lambda x, sizes: x * sizes["atoms"]**(1 / 3), "size": _positive}),
    Operator(stein_update, _stein, "Q. Liu and D. Wang, arXiv:1608.04471", {"points": 7, "axes": 5}),
    Operator(perturbed_energy, _perturbed, "C. Møller and M. Plesset, 1934; M. Feyereisen et al., 1993", {"filled": 2, "empty": 3, "fitted": 5},
             draw={"fit": lambda x, sizes: x / sizes["fitted"]**0.5, "low": lambda x, _: -_positive(x, _), "high": _positive}),
    Operator(triangle_shares, _triangles, "D. Watts and S. Strogatz, 1998", {"nodes": 9}, draw={"edge": _edges}),
    Operator(long_gap_alignment, _long_gap, "O. Gotoh, 1982", {"proteins": 2, "lefts": 5, "rights": 7}),
    Operator(forward_substitution, _forward, "G. Golub and C. Van Loan, 2013", {"systems": 2, "side": 5, "given": 3}, draw={"matrix": _lower}),
    Operator(schedule_free_step, _schedule_free, "A. Defazio et al., arXiv:2405.15682", {"weights": 17},
             draw={"second": lambda x, _: x * x, "count": lambda x, _: 100 + x.abs()}),
    Operator(row_ranks, _ranks, "C. Spearman, 1904", {"tables": 3, "entries": 11}),
]
