"""Images and signals through filters and gates, fluids on a grid, and hidden states that are told from what is seen of them."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, around_one, divided
from .products import gelu
from .rows import sigmoid

images, high, across, filters = Size("images", 4), Size("high", 256), Size("across", 256), Size("filters", 16)
n, y, x, f, dy, dx = indices(n=images, y=high, x=across, f=filters, dy=15, dx=15)


@nestor.nest
def gabor_energy(image: f32[images, high + 14, across + 14], even: f32[filters, 15, 15], odd: f32[filters, 15, 15]):
    """How strong each wave is around each pixel, whatever its phase."""
    cosine = nestor.sum(image[n, y + dy, x + dx] * even[f, dy, dx], over=(dy, dx), name="cosine")
    sine = nestor.sum(image[n, y + dy, x + dx] * odd[f, dy, dx], over=(dy, dx), name="sine")
    return define("out", (n, f, y, x), nestor.sqrt(cosine * cosine + sine * sine))


def _gabor(image, even, odd):
    found = F.conv2d(image[:, None], torch.cat([even, odd])[:, None])
    cosine, sine = found.chunk(2, 1)
    return (cosine.square() + sine.square()).sqrt()


tall, broad = Size("tall", 4096), Size("broad", 4096)
r, c = indices(r=tall, c=broad)


@nestor.nest
def thinned_edges(image: f32[tall + 4, broad + 4]):
    """Canny's first steps: Sobel's slopes, then only those as large as both of their neighbours across the edge."""
    r2, c2 = indices(r2=tall + 2, c2=broad + 2)

    def weighed(a, b, c):
        return a + 2 * b + c
    i = [[image[r2 + v, c2 + u] for u in range(3)] for v in range(3)]
    right = weighed(i[0][2], i[1][2], i[2][2]) - weighed(i[0][0], i[1][0], i[2][0])
    down = weighed(*i[2]) - weighed(*i[0])
    gx, gy = define("gx", (r2, c2), right), define("gy", (r2, c2), down)
    size = define("size", (r2, c2), nestor.absolute(gx[r2, c2]) + nestor.absolute(gy[r2, c2]))
    here, gx, gy = size[r + 1, c + 1], gx[r + 1, c + 1], gy[r + 1, c + 1]

    def most(v, u):
        return nestor.maximum(size[r + 1 + v, c + 1 + u], size[r + 1 - v, c + 1 - u])
    slanted = nestor.select(gx * gy > 0.0, most(1, 1), most(1, -1))
    steep = nestor.select(nestor.absolute(gy) > 2.4142135 * nestor.absolute(gx), most(1, 0), slanted)
    beside = nestor.select(nestor.absolute(gy) < 0.41421357 * nestor.absolute(gx), most(0, 1), steep)
    return define("out", (r, c), nestor.select(here >= beside, here, 0.0))


def _thinned(image):
    slope = torch.tensor([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], dtype=image.dtype, device=image.device)
    gx, gy = F.conv2d(image[None, None], torch.stack([slope, slope.T])[:, None])[0]
    size = gx.abs() + gy.abs()
    here, gx, gy = size[1:-1, 1:-1], gx[1:-1, 1:-1], gy[1:-1, 1:-1]
    high, across = here.shape

    def most(v, u):
        return torch.maximum(size[1 + v:1 + v + high, 1 + u:1 + u + across], size[1 - v:1 - v + high, 1 - u:1 - u + across])
    slanted = torch.where(gx * gy > 0, most(1, 1), most(1, -1))
    steep = torch.where(gy.abs() > 2.4142135 * gx.abs(), most(1, 0), slanted)
    beside = torch.where(gy.abs() < 0.41421357 * gx.abs(), most(0, 1), steep)
    return torch.where(here >= beside, here, torch.zeros_like(here))


wide = Size("wide", 2048)
p, q, v, u = indices(p=wide, q=wide, v=9, u=9)


@nestor.nest
def guided_filter(guide: f32[wide + 16, wide + 16], image: f32[wide + 16, wide + 16]):
    """Smooths an image but for the edges of another: lines through windows of 9 x 9, then their means."""
    p8, q8 = indices(p8=wide + 8, q8=wide + 8)

    def mean(name, value):
        return define(name, (p8, q8), nestor.sum(value, over=(v, u)) / 81)[p8, q8]
    g, i = guide[p8 + v, q8 + u], image[p8 + v, q8 + u]
    of_guide, of_image = mean("of_guide", g), mean("of_image", i)
    both, square = mean("both", g * i) - of_guide * of_image, mean("square", g * g) - of_guide * of_guide
    slope = define("slope", (p8, q8), both / (square + 0.01))
    shift = define("shift", (p8, q8), of_image - slope[p8, q8] * of_guide)
    slopes, shifts = nestor.sum(slope[p + v, q + u], over=(v, u)) / 81, nestor.sum(shift[p + v, q + u], over=(v, u)) / 81
    return define("out", (p, q), slopes * guide[p + 8, q + 8] + shifts)


def _guided(guide, image):
    def mean(*each):
        return F.avg_pool2d(torch.stack(each)[:, None], 9, 1)[:, 0]
    of_guide, of_image, both, square = mean(guide, image, guide * image, guide * guide)
    slope = (both - of_guide * of_image) / (square - of_guide * of_guide + 0.01)
    slopes, shifts = mean(slope, of_image - slope * of_guide)
    return slopes * guide[8:-8, 8:-8] + shifts


pictures, side = Size("pictures", 16), Size("side", 1024)
m, a, b = indices(m=pictures, a=side, b=side)


def _median(window, smaller, larger):
    """The fifth of nine, by exchanges; window: 9 values."""
    window = list(window)
    for one, other in ((1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 3), (5, 8), (4, 7), (3, 6), (1, 4),
                       (2, 5), (4, 7), (4, 2), (6, 4), (4, 2)):
        window[one], window[other] = smaller(window[one], window[other]), larger(window[one], window[other])
    return window[4]


@nestor.nest
def median_filter(image: f16[pictures, side + 2, side + 2]):
    """Medians of 3 x 3 by 19 exchanges."""
    window = [image[m, a + v, b + u] for v in range(3) for u in range(3)]
    return define("out", (m, a, b), _median(window, nestor.minimum, nestor.maximum), type=f16)


def _median_filter(image):
    high, across = image.shape[1] - 2, image.shape[2] - 2
    return _median([image[:, v:v + high, u:u + across] for v in range(3) for u in range(3)], torch.minimum, torch.maximum)


lines, cells = Size("lines", 1024), Size("cells", 2048)
l, o, d, d2 = indices(line=lines, cell=cells, d=9, d2=9)


@nestor.nest
def lattice_boltzmann(before: f32[9, lines + 2, cells + 2], share: f32[9]):
    """D2Q9: particles come from nine neighbours, and collisions draw them towards their equilibrium."""
    moved = define("moved", (d, l, o), before[d, l + 2 - d // 3, o + 2 - d % 3])
    density = define("density", (l, o), nestor.sum(moved[d2, l, o], over=d2))

    def speed(along):
        return nestor.sum(moved[d2, l, o] * nestor.cast(f32, along(d2)), over=d2) / density[l, o]
    sideways, upwards = define("sideways", (l, o), speed(lambda d: d % 3 - 1)), define("upwards", (l, o), speed(lambda d: d // 3 - 1))
    along = nestor.cast(f32, d % 3 - 1) * sideways[l, o] + nestor.cast(f32, d // 3 - 1) * upwards[l, o]
    square = sideways[l, o] * sideways[l, o] + upwards[l, o] * upwards[l, o]
    calm = share[d] * density[l, o] * (1 + 3 * along + 4.5 * along * along - 1.5 * square)
    return define("out", (d, l, o), moved[d, l, o] - 0.6 * (moved[d, l, o] - calm))


def _lattice(before, share):
    lines, cells = before.shape[1] - 2, before.shape[2] - 2
    moved = torch.stack([before[d, 2 - d // 3:2 - d // 3 + lines, 2 - d % 3:2 - d % 3 + cells] for d in range(9)])
    at = torch.arange(9, device=before.device)
    cx, cy = ((at % 3 - 1).to(before.dtype), (at // 3 - 1).to(before.dtype))
    density = moved.sum(0)
    sideways, upwards = (cx[:, None, None] * moved).sum(0) / density, (cy[:, None, None] * moved).sum(0) / density
    along = cx[:, None, None] * sideways + cy[:, None, None] * upwards
    calm = share[:, None, None] * density * (1 + 3 * along + 4.5 * along.square() - 1.5 * (sideways.square() + upwards.square()))
    return moved - 0.6 * (moved - calm)


chains, times, states = Size("chains", 2048), Size("times", 64), Size("states", 48, fixed=True)
h, t, s, s2 = indices(h=chains, t=times, s=states, s2=states)


@nestor.nest
def viterbi_scores(seen: f32[chains, times, states], change: f32[states, states]):
    """The best path that ends in each state at each time: a step is a maximum over the states before."""
    score = define("score", (h, t, s), nestor.select(t == 0, seen[h, t, s], -1e30))
    (after,) = indices(after=times - 1)
    come = score[h, after, s2] + change[s2, s] + seen[h, after + 1, s]
    return score.write((h, after, s, s2), (h, after + 1, s), come, reduction="max")


def _viterbi(seen, change):
    found = [seen[:, 0]]
    for now in range(1, seen.shape[1]):
        found.append((found[-1][:, :, None] + change).amax(1) + seen[:, now])
    return torch.stack(found, 1)


tracks, hidden = Size("tracks", 1 << 18), Size("hidden", 6, fixed=True)
k, i, j, i2, j2, e, e2 = indices(track=tracks, i=hidden, j=hidden, i2=hidden, j2=hidden, e=2, e2=2)


@nestor.nest
def kalman_update(state: f32[tracks, hidden], spread: f32[tracks, hidden, hidden], seen: f32[tracks, 2], look: f32[2, hidden],
                  noise: f32[2, 2]):
    """A measurement of two numbers corrects a state of six and its covariance."""
    part = define("part", (k, e, j), nestor.sum(look[e, i2] * spread[k, i2, j], over=i2))
    doubt = define("doubt", (k, e, e2), nestor.sum(part[k, e, j2] * look[e2, j2], over=j2) + noise[e, e2])
    size = define("size", k, doubt[k, 0, 0] * doubt[k, 1, 1] - doubt[k, 0, 1] * doubt[k, 1, 0])
    inverse = define("inverse", (k, e, e2), nestor.select(e == e2, doubt[k, 1 - e, 1 - e2], -doubt[k, e, e2]) / size[k])
    gain = define("gain", (k, i, e), nestor.sum(part[k, e2, i] * inverse[k, e2, e], over=e2))
    gap = define("gap", (k, e), seen[k, e] - nestor.sum(look[e, i2] * state[k, i2], over=i2))
    after = define("after", (k, i), state[k, i] + nestor.sum(gain[k, i, e] * gap[k, e], over=e))
    return after, define("sure", (k, i, j), spread[k, i, j] - nestor.sum(gain[k, i, e] * part[k, e, j], over=e))


def _kalman(state, spread, seen, look, noise):
    part = look @ spread
    gain = torch.linalg.solve(part @ look.T + noise, part).transpose(-1, -2)
    return state + (gain @ (seen - state @ look.T)[..., None])[..., 0], spread - gain @ part


channels, less = Size("channels", 256), Size("less", 16, fixed=True)
maps, rows, columns = Size("maps", 32), Size("rows", 56), Size("columns", 56)
g, ch, ch2, z, yy, xx = indices(g=maps, channel=channels, channel2=channels, z=less, y=rows, x=columns)


@nestor.nest
def coordinate_attention(x0: f16[maps, channels, rows, columns], shrink: f16[less, channels], upright: f16[channels, less],
                         level: f16[channels, less]):
    """Means of rows and of columns go through one small layer, and each place is gated by its row and its column."""
    (place,) = indices(place=rows + columns)
    of_rows = define("of_rows", (g, ch, yy), nestor.sum(x0[g, ch, yy, xx], over=xx) / columns)
    of_columns = define("of_columns", (g, ch, xx), nestor.sum(x0[g, ch, yy, xx], over=yy) / rows)
    means = nestor.select(place < rows, of_rows[g, ch, place], of_columns[g, ch, place - rows])
    means = define("means", (g, ch, place), means, type=f16)
    raw = define("raw", (g, z, place), nestor.sum(shrink[z, ch] * means[g, ch, place], over=ch))[g, z, place]
    swished = raw * nestor.minimum(nestor.maximum(raw + 3, 0.0), 6.0) / 6
    small = define("small", (g, z, place), swished, type=f16)
    by_row = define("by_row", (g, ch, yy), sigmoid(nestor.sum(upright[ch, z] * small[g, z, yy], over=z)))
    by_column = define("by_column", (g, ch, xx), sigmoid(nestor.sum(level[ch, z] * small[g, z, rows + xx], over=z)))
    return define("out", (g, ch, yy, xx), x0[g, ch, yy, xx] * by_row[g, ch, yy] * by_column[g, ch, xx], type=f16)


def _coordinate(x, shrink, upright, level):
    means = torch.cat([x.mean(3), x.mean(2)], -1)
    by_row, by_column = F.hardswish(shrink @ means).split(x.shape[2:], -1)
    return x * torch.sigmoid(upright @ by_row)[..., None] * torch.sigmoid(level @ by_column)[..., None, :]


halves = Size("halves", 64)
w, w2 = indices(w=halves, w2=2 * halves)


@nestor.nest
def ghost_module(x0: f16[maps, channels, rows, columns], weight: f16[halves, channels], cheap: f16[halves, 3, 3]):
    """GhostNet: half of the maps by a product over channels, the other half by a 3 x 3 of each, side by side."""
    v, u = indices(v=3, u=3)
    found = nestor.sum(weight[w, ch] * x0[g, ch, yy, xx], over=ch)
    first = define("first", (g, w, yy, xx), nestor.maximum(found, 0.0), type=f16)
    row, column = yy + v - 1, xx + u - 1
    inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    near = nestor.sum(nestor.select(inside, first[g, w, row, column], 0.0) * cheap[w, v, u], over=(v, u))
    ghost = define("ghost", (g, w, yy, xx), nestor.maximum(near, 0.0), type=f16)
    both = nestor.select(w2 < halves, first[g, w2, yy, xx], ghost[g, w2 - halves, yy, xx])
    return define("out", (g, w2, yy, xx), both, type=f16)


def _ghost(x, weight, cheap):
    first = F.relu(F.conv2d(x, weight[..., None, None]))
    return torch.cat([first, F.relu(F.conv2d(first, cheap[:, None], padding=1, groups=cheap.shape[0]))], 1)


@nestor.nest
def focal_modulation(query: bf16[maps, rows, columns, channels], context: bf16[maps, rows, columns, channels],
                     gates: bf16[maps, rows, columns, 3], near: bf16[3, 3, channels], far: bf16[5, 5, channels],
                     weight: bf16[channels, channels]):
    """Depthwise 3 x 3 and 5 x 5, one after the other, and their mean: three contexts, which gates of each place mix."""
    at = (g, yy, xx, ch)

    def around(name, source, filter, width):
        v, u = indices(v=width, u=width)
        row, column = yy + v - width // 2, xx + u - width // 2
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        return define(name, at, gelu(nestor.sum(source[g, row, column, ch] * filter[v, u, ch], over=(v, u), where=inside)), type=bf16)
    first = around("first", context, near, 3)
    second = around("second", first, far, 5)
    mean = define("mean", (g, ch), nestor.sum(second[at], over=(yy, xx)) / (rows * columns))
    mixed = first[at] * gates[g, yy, xx, 0] + second[at] * gates[g, yy, xx, 1] + gelu(mean[g, ch]) * gates[g, yy, xx, 2]
    mixed = define("mixed", at, mixed, type=bf16)
    found = nestor.sum(mixed[g, yy, xx, ch2] * weight[ch, ch2], over=ch2)
    return define("out", at, query[at] * found, type=bf16)


def _focal(query, context, gates, near, far, weight):
    def around(x, filter):
        return F.gelu(F.conv2d(x, filter.permute(2, 0, 1)[:, None], padding=filter.shape[0] // 2, groups=x.shape[1]))
    first = around(context.permute(0, 3, 1, 2), near)
    second = around(first, far)
    parts = gates.permute(0, 3, 1, 2)[:, :, None].unbind(1)
    mixed = first * parts[0] + second * parts[1] + F.gelu(second.mean((2, 3), keepdim=True)) * parts[2]
    return query * (mixed.permute(0, 2, 3, 1) @ weight.T)


def _covariance(x, _):
    return x @ x.transpose(-1, -2) / x.shape[-1] + torch.eye(x.shape[-1], device=x.device)


MAPS = {"maps": 2, "channels": 6, "rows": 5, "columns": 7}
OPERATORS = [
    Operator(gabor_energy, _gabor, "J. Daugman, 1985", {"images": 2, "high": 4, "across": 5, "filters": 3}),
    Operator(thinned_edges, _thinned, "J. Canny, 1986", {"tall": 5, "broad": 7}, draw={"image": lambda x, _: (x * 64).round()}),
    Operator(guided_filter, _guided, "K. He et al., 2010", {"wide": 5}),
    Operator(median_filter, _median_filter, "J. Tukey, 1977", {"pictures": 2, "side": 5}),
    Operator(lattice_boltzmann, _lattice, "Y. Qian et al., 1992", {"lines": 5, "cells": 7},
             draw={"before": around_one, "share": lambda x, _: 0.05 + 0.1 * x.abs()}),
    Operator(viterbi_scores, _viterbi, "A. Viterbi, 1967", {"chains": 3, "times": 5, "states": 7}),
    Operator(kalman_update, _kalman, "R. Kalman, 1960", {"tracks": 5, "hidden": 6},
             draw={"spread": _covariance, "noise": _covariance, "look": divided("hidden")}),
    Operator(coordinate_attention, _coordinate, "Q. Hou et al., arXiv:2103.02907", MAPS | {"less": 3},
             draw={"shrink": divided("channels"), "upright": divided("less"), "level": divided("less")}),
    Operator(ghost_module, _ghost, "K. Han et al., arXiv:1911.11907", MAPS | {"halves": 5}, draw={"weight": divided("channels")}),
    Operator(focal_modulation, _focal, "J. Yang et al., arXiv:2203.11926", MAPS,
             draw={"near": lambda x, _: x / 3, "far": lambda x, _: x / 5, "weight": divided("channels")}),
]
