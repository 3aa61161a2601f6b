"""What crowds, species, pictures and markets compute: maps that keep neighbours, oscillators, modes, messages, ranks, forecasts, votes for lines,
colours of sensors, motion, haze, chances of alignments and of trees, vortices, inverses of many small matrices, bands, prices."""

import math

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, define, f16, f32, i32, indices

from .problem import Operator, divided, widened

samples = Size("samples", 4096)
i, j, j2, k = indices(i=samples, j=samples, j2=samples, k=samples)


@nestor.nest
def tsne_gradient(place: f32[samples, 2], near: f32[samples, samples]):
    """t-SNE: points that are near are pulled together, all are pushed apart by a heavy tail."""
    apart = sum((place[i, axis] - place[j, axis]) * (place[i, axis] - place[j, axis]) for axis in range(2))
    tail = define("tail", (i, j), 1 / (1 + apart))
    total = define("total", (), nestor.sum(tail[i, j], over=(i, j), where=i != j))
    (axis,) = indices(axis=2)
    pull = (near[i, j] - tail[i, j] / total[()]) * tail[i, j]
    return define("out", (i, axis), 4 * nestor.sum(pull * (place[i, axis] - place[j, axis]), over=j, where=i != j))


def _tsne(place, near):
    apart = place[:, None] - place
    tail = 1 / (1 + apart.square().sum(-1))
    other = 1 - torch.eye(len(place), dtype=place.dtype, device=place.device)
    pull = (near - tail / (tail * other).sum()) * tail * other
    return 4 * (pull[..., None] * apart).sum(1)


@nestor.nest
def kuramoto_step(phase: f32[samples], own: f32[samples], couple: f32[samples, samples]):
    """Oscillators that pull each other into step."""
    pull = nestor.sum(couple[i, j] * nestor.sin(phase[j] - phase[i]), over=j)
    return define("out", i, phase[i] + 0.01 * (own[i] + pull / samples))


def _kuramoto(phase, own, couple):
    return phase + 0.01 * (own + (couple * torch.sin(phase - phase[:, None])).sum(1) / len(phase))


axes = Size("axes", 16)
a, a2 = indices(a=axes, a2=axes)


@nestor.nest
def mean_shift(point: f32[samples, axes]):
    """Each point moves to the weighted mean of its neighbourhood."""
    apart = nestor.sum((point[i, a] - point[j, a]) * (point[i, a] - point[j, a]), over=a)
    weight = define("weight", (i, j), nestor.exp(-apart / 8))
    total = define("total", i, nestor.sum(weight[i, j], over=j))
    return define("out", (i, a2), nestor.sum(weight[i, j] * point[j, a2], over=j) / total[i])


def _mean_shift(point):
    weight = torch.exp(-torch.cdist(point, point, compute_mode="donot_use_mm_for_euclid_dist").square() / 8)
    return weight @ point / weight.sum(1, keepdim=True)


members = Size("members", 2048)
m, n, n2, o = indices(m=members, n=members, n2=members, o=members)


@nestor.nest
def affinity_messages(alike: f32[members, members], available: f32[members, members]):
    """Affinity propagation: how well each would represent each, against the best other that it could have; then how available each is."""
    other = nestor.max(alike[m, n2] + available[m, n2], over=n2, where=n2 != n)
    heard = define("heard", (m, n), alike[m, n] - other)
    support = define("support", n, nestor.sum(nestor.maximum(heard[o, n], 0.0), over=o, where=o != n))
    mine = nestor.select(nestor.cast(i32, m) == nestor.cast(i32, n), 0.0, nestor.maximum(heard[m, n], 0.0))
    all_ = heard[n, n] + support[n] - mine
    return heard, define("free", (m, n), nestor.select(nestor.cast(i32, m) == nestor.cast(i32, n), support[n], nestor.minimum(all_, 0.0)))


def _affinity(alike, available):
    both = alike + available
    best = both.topk(2, 1)
    at = torch.arange(len(alike), device=alike.device)
    other = torch.where(best.indices[:, :1] == at, best.values[:, 1:], best.values[:, :1])
    heard = alike - other
    positive = torch.relu(heard)
    support = positive.sum(0) - positive.diagonal()
    eye = torch.eye(len(alike), dtype=torch.bool, device=alike.device)
    free = (heard.diagonal() + support - positive).clamp(max=0)
    return heard, torch.where(eye, support, free)


series, judges = Size("series", 64), Size("judges", 1024)
s, q, q2 = indices(s=series, q=judges, q2=judges)


@nestor.nest
def kendall_rank(one: f32[series, judges], two: f32[series, judges]):
    """Kendall's tau: pairs that both order alike, less those that they do not."""
    def sign(x):
        return nestor.select(x > 0, 1.0, nestor.select(x < 0, -1.0, 0.0))
    agree = sign(one[s, q] - one[s, q2]) * sign(two[s, q] - two[s, q2])
    return define("out", s, nestor.sum(agree, over=(q, q2)) / nestor.cast(f32, judges * (judges - 1)))


def _kendall(one, two):
    agree = torch.sign(one[:, :, None] - one[:, None]) * torch.sign(two[:, :, None] - two[:, None])
    return agree.sum((1, 2)) / (one.shape[1] * (one.shape[1] - 1))


places, forecasts = Size("places", 65536), Size("forecasts", 50)
p, f, f2 = indices(p=places, f=forecasts, f2=forecasts)


@nestor.nest
def ensemble_score(forecast: f32[forecasts, places], seen: f32[places]):
    """CRPS of an ensemble: how far its members are from what came, less how far they are from each other."""
    miss = nestor.sum(nestor.absolute(forecast[f, p] - seen[p]), over=f) / forecasts
    spread = nestor.sum(nestor.absolute(forecast[f, p] - forecast[f2, p]), over=(f, f2))
    return define("out", p, miss - spread / nestor.cast(f32, 2 * forecasts * forecasts))


def _ensemble(forecast, seen):
    count = len(forecast)
    ranked = forecast.sort(0).values
    weight = 2 * torch.arange(count, device=seen.device, dtype=seen.dtype) - count + 1
    spread = 2 * (weight[:, None] * ranked).sum(0)
    return (forecast - seen).abs().mean(0) - spread / (2 * count * count)


edges, angles, offsets = Size("edges", 4096), Size("angles", 180), Size("offsets", 256)
e, g, h = indices(e=edges, g=angles, h=offsets)


@nestor.nest
def line_votes(x: f32[edges], y: f32[edges], strength: f32[edges], cosine: f32[angles], sine: f32[angles]):
    """Hough: each edge votes for all lines through it, by angle and distance."""
    bin = define("bin", (g, e), nestor.cast(i32, nestor.floor(x[e] * cosine[g] + y[e] * sine[g] + 128)))
    return define("out", (g, h), nestor.sum(nestor.select(bin[g, e] == nestor.cast(i32, h), strength[e], 0.0), over=e))


def _votes(x, y, strength, cosine, sine, offsets):
    bin = torch.floor(x * cosine[:, None] + y * sine[:, None] + 128).long()
    inside = (bin >= 0) & (bin < offsets)
    out = torch.zeros(len(cosine), offsets, dtype=x.dtype, device=x.device)
    return out.scatter_add(1, bin.clamp(0, offsets - 1), strength * inside)


photos, high, across = Size("photos", 8), Size("high", 512), Size("across", 512)
b, r, c, u, v = indices(b=photos, r=high, c=across, u=2, v=2)


@nestor.nest
def sensor_colours(raw: f32[photos, 2 * high + 2, 2 * across + 2]):
    """A Bayer sensor's red, green and blue at each pixel, bilinear. Rows and columns begin with one of margin."""
    def at(y, x):
        return raw[b, 2 * r + u + 1 + y, 2 * c + v + 1 + x]
    cross = (at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1)) / 4
    corners = (at(-1, -1) + at(-1, 1) + at(1, -1) + at(1, 1)) / 4
    beside, above = (at(0, -1) + at(0, 1)) / 2, (at(-1, 0) + at(1, 0)) / 2
    row, col = nestor.cast(i32, u) == 0, nestor.cast(i32, v) == 0
    red = nestor.select(row, nestor.select(col, at(0, 0), beside), nestor.select(col, above, corners))
    green = nestor.select(row, nestor.select(col, cross, at(0, 0)), nestor.select(col, at(0, 0), cross))
    blue = nestor.select(row, nestor.select(col, corners, above), nestor.select(col, beside, at(0, 0)))
    return tuple(define(name, (b, r, u, c, v), value) for name, value in (("red", red), ("green", green), ("blue", blue)))


def _colours(raw):
    size = raw.shape[1] - 2, raw.shape[2] - 2

    def at(y, x):
        return raw[:, 1 + y:1 + y + size[0], 1 + x:1 + x + size[1]]
    cross = (at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1)) / 4
    corners = (at(-1, -1) + at(-1, 1) + at(1, -1) + at(1, 1)) / 4
    beside, above = (at(0, -1) + at(0, 1)) / 2, (at(-1, 0) + at(1, 0)) / 2
    row = (torch.arange(size[0], device=raw.device) % 2 == 0)[:, None]
    col = torch.arange(size[1], device=raw.device) % 2 == 0
    own = at(0, 0)
    found = (torch.where(row, torch.where(col, own, beside), torch.where(col, above, corners)),
             torch.where(row, torch.where(col, cross, own), torch.where(col, own, cross)),
             torch.where(row, torch.where(col, corners, above), torch.where(col, beside, own)))
    return tuple(each.unflatten(2, (-1, 2)).unflatten(1, (-1, 2)) for each in found)


blocks, wide = Size("blocks", 60), Size("wide", 80)
bl, bw, dy, dx, py, px = indices(bl=blocks, bw=wide, dy=17, dx=17, py=16, px=16)


@nestor.nest
def block_motion(now: f32[16 * blocks, 16 * wide], was: f32[16 * blocks + 16, 16 * wide + 16]):
    """Where each block of a frame came from: the least sum of differences within eight pixels, and which of 289 shifts it is."""
    gap = nestor.sum(nestor.absolute(now[16 * bl + py, 16 * bw + px] - was[16 * bl + py + dy, 16 * bw + px + dx]), over=(py, px))
    cost = define("cost", (bl, bw, dy, dx), gap)
    least = define("least", (bl, bw), nestor.min(cost[bl, bw, dy, dx], over=(dy, dx)))
    code = nestor.cast(i32, 17 * dy + dx)
    shift = nestor.min(nestor.select(cost[bl, bw, dy, dx] <= least[bl, bw], code, 289), over=(dy, dx))
    return least, define("shift", (bl, bw), shift)


def _motion(now, was):
    blocks = now.unflatten(0, (-1, 16)).unflatten(2, (-1, 16)).transpose(1, 2)
    windows = was.unfold(0, 32, 16).unfold(1, 32, 16)
    cost = (blocks[:, :, None, None] - windows.unfold(2, 16, 1).unfold(3, 16, 1)).abs().sum((4, 5)).flatten(2)
    least = cost.min(-1)
    return least.values, least.indices.int()


scenes, tall, broad = Size("scenes", 8), Size("tall", 480), Size("broad", 640)
sc, ty, tx, wy, wx, co = indices(sc=scenes, ty=tall, tx=broad, wy=15, wx=15, co=3)


@nestor.nest
def dark_channel(image: f32[scenes, 3, tall + 14, broad + 14], light: f32[scenes, 3]):
    """Haze: the least of all colours around a pixel, relative to the light of the air."""
    least = nestor.min(image[sc, co, ty + wy, tx + wx] / light[sc, co], over=(co, wy, wx))
    return define("out", (sc, ty, tx), nestor.maximum(1 - 0.95 * least, 0.1))


def _dark(image, light):
    least = (image / light[..., None, None]).amin(1, keepdim=True)
    return (1 + 0.95 * F.max_pool2d(-least, 15, 1)).clamp(min=0.1)[:, 0]


systems = Size("systems", 4096)
(sy,) = indices(sy=systems)


@nestor.nest
def turned_inverse(matrix: f32[systems, 16, 16]):
    """Inverses of many small matrices that rule their diagonals, by Newton and Schulz from their transposes."""
    x, y, z, w = indices(x=16, y=16, z=16, w=16)
    rows_ = define("rows", (sy, x), nestor.sum(nestor.absolute(matrix[sy, x, z]), over=z))
    cols_ = define("cols", (sy, y), nestor.sum(nestor.absolute(matrix[sy, z, y]), over=z))
    bound = define("bound", sy, nestor.max(rows_[sy, x], over=x) * nestor.max(cols_[sy, y], over=y))
    guess = define("guess_0", (sy, x, y), matrix[sy, y, x] / bound[sy])
    for step in range(8):
        found = nestor.sum(matrix[sy, x, z] * guess[sy, z, y], over=z)
        left = define(f"left_{step}", (sy, x, y), nestor.select(nestor.cast(i32, x) == nestor.cast(i32, y), 2.0, 0.0) - found)
        guess = define(f"guess_{step + 1}", (sy, x, y), nestor.sum(guess[sy, x, z] * left[sy, z, y], over=z))
    return guess


def _inverse(matrix):
    bound = matrix.abs().sum(2).amax(1) * matrix.abs().sum(1).amax(1)
    guess = matrix.transpose(1, 2) / bound[:, None, None]
    two = 2 * torch.eye(16, dtype=matrix.dtype, device=matrix.device)
    for _ in range(8):
        guess = guess @ (two - matrix @ guess)
    return guess


sites = Size("sites", 65536)
si, st, to = indices(si=sites, st=4, to=4)


@nestor.nest
def tree_likelihood(leaf: f32[16, sites, 4], move: f32[30, 4, 4], prior: f32[4]):
    """Felsenstein: chances of what sixteen species have at each site, over all that their ancestors may have had."""
    level, number, found, edge = 16, 0, None, 0
    while level > 1:
        level //= 2
        (node,) = indices(**{f"node{level}": level})

        def child(which, st=st, node=node, found=found, edge=edge):
            value = (lambda at: leaf[2 * node + which, si, at]) if found is None else (lambda at: found[2 * node + which, si, at])
            return nestor.sum(move[edge + 2 * node + which, st, to] * value(to), over=to)
        found = define(f"level_{number}", (node, si, st), child(0) * child(1))
        edge, number = edge + 2 * level, number + 1
    return define("out", si, nestor.log(nestor.sum(prior[to] * found[0, si, to], over=to)))


def _tree(leaf, move, prior):
    found, edge = leaf, 0
    while len(found) > 1:
        carried = found @ move[edge:edge + len(found)].transpose(1, 2)
        edge += len(found)
        found = carried[::2] * carried[1::2]
    return torch.log(found[0] @ prior)


vortices, probes = Size("vortices", 4096), Size("probes", 4096)
vo, pr = indices(vo=vortices, pr=probes)


@nestor.nest
def vortex_velocity(place: f32[vortices, 3], strength: f32[vortices, 3], probe: f32[probes, 3]):
    """Biot and Savart: the flow that vortices with soft cores bring to each place."""
    apart = [probe[pr, axis] - place[vo, axis] for axis in range(3)]
    square = sum(each * each for each in apart) + 0.01
    inverse = define("inverse", (pr, vo), nestor.rsqrt(square))
    cube = inverse[pr, vo] * inverse[pr, vo] * inverse[pr, vo] / (4 * math.pi)

    def turned(one, two):
        return nestor.sum((strength[vo, one] * apart[two] - strength[vo, two] * apart[one]) * cube, over=vo)
    return tuple(define(name, pr, turned(one, two)) for name, one, two in (("x", 1, 2), ("y", 2, 0), ("z", 0, 1)))


def _vortex(place, strength, probe):
    apart = probe[:, None] - place
    cube = torch.rsqrt(apart.square().sum(-1) + 0.01) ** 3 / (4 * math.pi)
    return tuple((torch.linalg.cross(strength.expand_as(apart), apart) * cube[..., None]).sum(1).unbind(-1))


bands, long = Size("bands", 16), Size("long", 65536)
bd, lo, di = indices(bd=bands, lo=long, di=17)


@nestor.nest
def banded_smoothing(matrix: f32[bands, long, 17], x: f32[bands, long + 16], right: f32[bands, long]):
    """A damped Jacobi step of banded systems: nine diagonals on each side of what is solved for."""
    rest = right[bd, lo] - nestor.sum(matrix[bd, lo, di] * x[bd, lo + di], over=di)
    return define("out", (bd, lo), x[bd, lo + 8] + 0.8 * rest / (matrix[bd, lo, 8] + 2.0))


def _banded(matrix, x, right):
    rest = right - (matrix * x.unfold(1, 17, 1)).sum(-1)
    return x[:, 8:-8] + 0.8 * rest / (matrix[..., 8] + 2.0)


options, rates = Size("options", 1048576), Size("rates", 4)
op, ra = indices(op=options, ra=rates)


@nestor.nest
def option_prices(spot: f32[options], strike: f32[options], years: f32[options], spread: f32[options], rate: f32[rates]):
    """Black and Scholes: calls, puts and how calls move with what they are on, for each rate."""
    def normal(x):
        return 0.5 * (1 + nestor.erf(x * 0.7071067811865476))
    root = nestor.sqrt(years[op]) * spread[op]
    one = (nestor.log(spot[op] / strike[op]) + (rate[ra] + 0.5 * spread[op] * spread[op]) * years[op]) / root
    kept = strike[op] * nestor.exp(-rate[ra] * years[op])
    call = define("call", (ra, op), spot[op] * normal(one) - kept * normal(one - root))
    return call, define("put", (ra, op), call[ra, op] - spot[op] + kept), define("delta", (ra, op), normal(one))


def _prices(spot, strike, years, spread, rate):
    def normal(x):
        return 0.5 * (1 + torch.erf(x * 0.7071067811865476))
    rate, root = rate[:, None], years.sqrt() * spread
    one = (torch.log(spot / strike) + (rate + 0.5 * spread.square()) * years) / root
    kept = strike * torch.exp(-rate * years)
    call = spot * normal(one) - kept * normal(one - root)
    return call, call - spot + kept, normal(one)


def _positive(x, _):
    """Draws from 0.5 to 1.5."""
    return 0.5 + torch.sigmoid(x)


def _pixels(x, _):
    """Draws whole numbers around 0."""
    return torch.round(50 * x)


def _turned(function, x):
    """The function of one degree after the other, so that a whole number of it is exact in f32."""
    return torch.round(function(torch.arange(len(x), device=x.device) * math.radians(1)) * 1024) / 1024


OPERATORS = [
    Operator(tsne_gradient, _tsne, "L. van der Maaten and G. Hinton, 2008", {"samples": 7}, draw={"near": lambda x, sizes: x * x / sizes["samples"]**2}),
    Operator(kuramoto_step, _kuramoto, "Y. Kuramoto, 1975", {"samples": 9}),
    Operator(mean_shift, _mean_shift, "K. Fukunaga and L. Hostetler, 1975", {"samples": 7, "axes": 5}),
    Operator(affinity_messages, _affinity, "B. Frey and D. Dueck, 2007", {"members": 7}),
    Operator(kendall_rank, _kendall, "M. Kendall, 1938", {"series": 3, "judges": 9}),
    Operator(ensemble_score, _ensemble, "T. Gneiting and A. Raftery, 2007", {"places": 11, "forecasts": 5}),
    Operator(line_votes, _votes, "R. Duda and P. Hart, 1972", {"edges": 17, "angles": 5, "offsets": 256}, told=("offsets",),
             draw={"x": _pixels, "y": _pixels, "cosine": lambda x, _: _turned(torch.cos, x), "sine": lambda x, _: _turned(torch.sin, x)}),
    Operator(sensor_colours, _colours, "B. Bayer, 1976; H. Malvar et al., 2004", {"photos": 2, "high": 3, "across": 5}),
    Operator(block_motion, _motion, "J. Jain and A. Jain, 1981", {"blocks": 2, "wide": 3}),
    Operator(dark_channel, _dark, "K. He et al., 2009", {"scenes": 2, "tall": 5, "broad": 7}, draw={"image": _positive, "light": _positive}),
    Operator(turned_inverse, _inverse, "G. Schulz, 1933", {"systems": 3},
             draw={"matrix": lambda x, _: 0.1 * x + torch.eye(16, device=x.device)}),
    Operator(tree_likelihood, _tree, "J. Felsenstein, 1981", {"sites": 5},
             draw={"leaf": lambda x, _: torch.softmax(x, -1), "move": lambda x, _: torch.softmax(x, -1), "prior": lambda x, _: torch.softmax(x, 0)}),
    Operator(vortex_velocity, _vortex, "A. Chorin, 1973", {"vortices": 7, "probes": 5}),
    Operator(banded_smoothing, _banded, "Y. Saad, 2003", {"bands": 2, "long": 11}, draw={"matrix": lambda x, _: 0.05 * x}),
    Operator(option_prices, _prices, "F. Black and M. Scholes, 1973", {"options": 9, "rates": 3},
             draw={"spot": _positive, "strike": _positive, "years": _positive, "spread": _positive, "rate": lambda x, _: 0.02 + 0.01 * x}),
]
