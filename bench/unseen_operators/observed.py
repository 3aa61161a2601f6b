"""What sciences and pictures bring: losses that rank, filters with holes and their gradients, soft pools, finer volumes, neighbours that attend,
networks of fields, fluids of particles, mixtures that learn, filters of series, vectors at right angles, options, motion, codes of signs."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, around_one, divided, widened

samples, dim = Size("samples", 640), Size("dim", 128, fixed=True)
i, j, k, d = indices(i=samples, j=samples, k=samples, d=dim)


@nestor.nest
def rank_contrast_loss(x: f16[samples, dim], label: f32[samples]):
    """Rank-N-contrast: for each pair, all that are at least as far in what they are labelled with should be less alike."""
    score = define("score", (i, j), nestor.sum(x[i, d] * x[j, d], over=d) / 2)
    far = define("far", (i, j), nestor.absolute(label[i] - label[j]))
    worse = nestor.select((far[i, k] >= far[i, j]) & (nestor.cast(i32, i) != nestor.cast(i32, k)), nestor.exp(score[i, k]), 0.0)
    total = define("total", (i, j), nestor.sum(worse, over=k), where=i != j)
    return define("out", i, nestor.sum(nestor.log(total[i, j]) - score[i, j], over=j, where=i != j) / (samples - 1))


def _rank_contrast(x, label):
    score = widened(x @ x.T) / 2
    far = (label[:, None] - label).abs()
    other = ~torch.eye(len(x), dtype=torch.bool, device=x.device)
    total = ((far[:, None, :] >= far[:, :, None]) * (score.exp() * other)[:, None]).sum(2)
    return ((torch.log(total) - score) * other).sum(1) / (len(x) - 1)


batch, ins, outs, edge = Size("batch", 16), Size("ins", 96), Size("outs", 80), Size("edge", 48)
b, c, o, y, x_, dy, dx = indices(b=batch, c=ins, o=outs, y=edge, x_=edge, dy=3, dx=3)


@nestor.nest
def atrous_filter_gradient(x: bf16[batch, ins, edge + 8, edge + 8], grad: bf16[batch, outs, edge, edge]):
    """The gradient of a convolution's filters that look at every fourth pixel."""
    return define("out", (o, c, dy, dx), nestor.sum(grad[b, o, y, x_] * x[b, c, y + 4 * dy, x_ + 4 * dx], over=(b, y, x_)))


def _atrous(x, grad):
    return widened(torch.ops.aten.convolution_backward(grad, x, x.new_empty(grad.shape[1], x.shape[1], 3, 3), None, [1, 1], [0, 0], [4, 4], False,
                                                       [0, 0], 1, [False, True, False])[1])


pictures, kinds, high, broad = Size("pictures", 16), Size("kinds", 64), Size("high", 56), Size("broad", 56)
p, q, r, s, u, v = indices(p=pictures, q=kinds, r=high, s=broad, u=2, v=2)
u2, v2 = indices(u2=2, v2=2)


@nestor.nest
def soft_pool(x: f16[pictures, kinds, high, 2, broad, 2], grad: f16[pictures, kinds, high, broad]):
    """SoftPool: four neighbours by the softmax of what they are, and the gradient of what they were."""
    top = define("top", (p, q, r, s), nestor.max(x[p, q, r, u, s, v], over=(u, v)))
    power = define("power", (p, q, r, u, s, v), nestor.exp(x[p, q, r, u, s, v] - top[p, q, r, s]))
    total = define("total", (p, q, r, s), nestor.sum(power[p, q, r, u, s, v], over=(u, v)))
    mean = define("mean", (p, q, r, s), nestor.sum(power[p, q, r, u, s, v] * x[p, q, r, u, s, v], over=(u, v)) / total[p, q, r, s])
    slope = power[p, q, r, u2, s, v2] / total[p, q, r, s] * (1 + x[p, q, r, u2, s, v2] - mean[p, q, r, s])
    return (define("out", (p, q, r, s), mean[p, q, r, s], type=f16), define("dx", (p, q, r, u2, s, v2), grad[p, q, r, s] * slope, type=f16))


def _soft_pool(x, grad):
    four = widened(x).permute(0, 1, 2, 4, 3, 5).flatten(4)
    share = torch.softmax(four, -1)
    mean = (share * four).sum(-1)
    dx = widened(grad)[..., None] * share * (1 + four - mean[..., None])
    return mean.to(x.dtype), dx.unflatten(4, (2, 2)).permute(0, 1, 2, 4, 3, 5).to(x.dtype)


scans, left, right, size = Size("scans", 2), Size("left", 128), Size("right", 64), Size("size", 24)
n, ler, ri, z1, y1, x1, dz, dy1, dx1 = indices(n=scans, ler=left, ri=right, z1=size, y1=size, x1=size, dz=2, dy1=2, dx1=2)


@nestor.nest
def volume_upsampling(x: f16[scans, left, size, size, size], weight: f16[left, right, 2, 2, 2], bias: f32[right],
                      skip: f16[scans, right, size, 2, size, 2, size, 2]):
    """U-Net in three dimensions, on its way up: a transposed convolution of stride two, and what the way down kept."""
    total = nestor.sum(x[n, ler, z1, y1, x1] * weight[ler, ri, dz, dy1, dx1], over=ler)
    at = (n, ri, z1, dz, y1, dy1, x1, dx1)
    return define("out", at, nestor.maximum(total + bias[ri] + skip[at], 0.0), type=f16)


def _volume(x, weight, bias, skip):
    fine = F.conv_transpose3d(x, weight, bias.to(x.dtype), 2)
    return F.relu(fine + skip.reshape(fine.shape)).reshape(skip.shape)


eyes, nodes, wide = Size("eyes", 8), Size("nodes", 1000), Size("wide", 32, fixed=True)
h, a, a2, w, w2 = indices(h=eyes, a=nodes, a2=nodes, w=wide, w2=wide)


@nestor.nest
def dynamic_graph_attention(one: f16[eyes, nodes, wide], other: f16[eyes, nodes, wide], weight: f32[eyes, wide], edges: f32[nodes, nodes]):
    """GATv2: how a node sees a neighbour is a small network of both, then a softmax over its neighbours."""
    both = one[h, a, w] + other[h, a2, w]
    score = define("score", (h, a, a2), nestor.sum(weight[h, w] * nestor.select(both > 0, both, 0.2 * both), over=w))
    seen = define("seen", (h, a, a2), nestor.select(edges[a, a2] > 0, score[h, a, a2], -1e9))
    top = define("top", (h, a), nestor.max(seen[h, a, a2], over=a2))
    power = define("power", (h, a, a2), nestor.exp(seen[h, a, a2] - top[h, a]))
    total = define("total", (h, a), nestor.sum(power[h, a, a2], over=a2))
    return define("out", (h, a, w2), nestor.sum(power[h, a, a2] * other[h, a2, w2], over=a2) / total[h, a], type=f16)


def _graph(one, other, weight, edges):
    score = (F.leaky_relu(widened(one)[:, :, None] + widened(other)[:, None], 0.2) * weight[:, None, None]).sum(-1)
    share = torch.softmax(score.masked_fill(edges <= 0, -1e9), -1)
    return share.to(other.dtype) @ other


rays, deep = Size("rays", 262144), Size("deep", 64, fixed=True)
ry, e0, e1, e2, e3 = indices(ry=rays, e0=32, e1=deep, e2=deep, e3=16)


@nestor.nest
def tiny_network(x: f16[rays, 32], first: f16[deep, 32], second: f16[deep, deep], third: f16[16, deep]):
    """Instant neural graphics: a network of three narrow layers for each sample of a field."""
    one = define("one", (ry, e1), nestor.maximum(nestor.sum(x[ry, e0] * first[e1, e0], over=e0), 0.0), type=f16)
    two = define("two", (ry, e2), nestor.maximum(nestor.sum(one[ry, e1] * second[e2, e1], over=e1), 0.0), type=f16)
    return define("out", (ry, e3), nestor.sum(two[ry, e2] * third[e3, e2], over=e2), type=f16)


def _tiny(x, first, second, third):
    return F.relu(F.relu(x @ first.T) @ second.T) @ third.T


drops = Size("drops", 6000)
g, g2 = indices(g=drops, g2=drops)


@nestor.nest
def fluid_forces(place: f32[3, drops], speed: f32[3, drops], density: f32[drops], pressure: f32[drops], reach=0.3):
    """Smoothed particles: pressure pushes along the gradient of a spiky kernel, viscosity evens speeds out."""
    steps = [place[axis, g] - place[axis, g2] for axis in range(3)]
    far = nestor.sqrt(steps[0] * steps[0] + steps[1] * steps[1] + steps[2] * steps[2] + 1e-6)
    near = nestor.maximum(reach - far, 0.0)
    push = (pressure[g] / (density[g] * density[g]) + pressure[g2] / (density[g2] * density[g2])) * near * near / far
    return tuple(define(f"force_{axis}", g, nestor.sum(push * steps[axis] + 0.1 * near * (speed[axis, g2] - speed[axis, g]) / density[g2], over=g2))
                 for axis in range(3))


def _fluid(place, speed, density, pressure):
    steps = place[:, :, None] - place[:, None]
    far = (steps.square().sum(0) + 1e-6).sqrt()
    near = (0.3 - far).clamp(min=0)
    share = pressure / density.square()
    push = (share[:, None] + share) * near * near / far
    return tuple((push * steps + 0.1 * near * (speed[:, None] - speed[:, :, None]) / density).sum(2))


points, axes, parts = Size("points", 65536), Size("axes", 16, fixed=True), Size("parts", 40)
pt, ax, pa, pa2, pt2 = indices(pt=points, ax=axes, pa=parts, pa2=parts, pt2=points)


@nestor.nest
def mixture_step(x: f32[points, axes], mean: f32[parts, axes], spread: f32[parts, axes], weight: f32[parts]):
    """One round of EM for a mixture of Gaussians with variances along axes: shares, then weights, means and variances anew."""
    far = nestor.sum((x[pt, ax] - mean[pa, ax]) * (x[pt, ax] - mean[pa, ax]) / spread[pa, ax] + nestor.log(spread[pa, ax]), over=ax)
    score = define("score", (pt, pa), nestor.log(weight[pa]) - far / 2)
    top = define("top", pt, nestor.max(score[pt, pa], over=pa))
    total = define("total", pt, nestor.sum(nestor.exp(score[pt, pa] - top[pt]), over=pa))
    share = define("share", (pt, pa2), nestor.exp(score[pt, pa2] - top[pt]) / total[pt])
    mass = define("mass", pa, nestor.sum(share[pt2, pa], over=pt2))
    middle = define("middle", (pa, ax), nestor.sum(share[pt, pa] * x[pt, ax], over=pt) / mass[pa])
    square = nestor.sum(share[pt, pa] * x[pt, ax] * x[pt, ax], over=pt) / mass[pa]
    wide_ = define("wide", (pa, ax), square - middle[pa, ax] * middle[pa, ax] + 1e-6)
    return define("out", pa, mass[pa] / points), middle, wide_


def _mixture(x, mean, spread, weight):
    far = x.square() @ (1 / spread).T - 2 * x @ (mean / spread).T + (mean.square() / spread + spread.log()).sum(1)
    share = torch.softmax(weight.log() - far / 2, 1)
    mass = share.sum(0)
    middle = share.T @ x / mass[:, None]
    return mass / len(x), middle, share.T @ x.square() / mass[:, None] - middle.square() + 1e-6


series, times = Size("series", 4096), Size("times", 128)
se, ti, r1, r2, r3, r4 = indices(se=series, ti=times, r1=4, r2=4, r3=4, r4=4)


@nestor.nest
def kalman_series(seen: f32[times, series], move: f32[4, 4], noise: f32[4, 4], look: f32[4]):
    """Kalman filters of many series: a state of four, one number seen at each time; the states and how surprising each number was."""
    state, spread = nestor.Tensor("state", f32, (times + 1, series, 4)), nestor.Tensor("spread", f32, (times + 1, series, 4, 4))
    state.write((se, r1), (0, se, r1), 0.0)
    spread.write((se, r1, r2), (0, se, r1, r2), nestor.select(r1 == r2, 1.0, 0.0))
    with nestor.steps(ti):
        ahead = define("ahead", (ti, se, r1), nestor.sum(move[r1, r2] * state[ti, se, r2], over=r2))
        half = define("half", (ti, se, r1, r3), nestor.sum(move[r1, r2] * spread[ti, se, r2, r3], over=r2))
        whole = define("whole", (ti, se, r1, r4), nestor.sum(half[ti, se, r1, r3] * move[r4, r3], over=r3) + noise[r1, r4])
        cross = define("cross", (ti, se, r1), nestor.sum(whole[ti, se, r1, r4] * look[r4], over=r4))
        scale = define("scale", (ti, se), nestor.sum(cross[ti, se, r1] * look[r1], over=r1) + 0.5)
        wrong = define("wrong", (ti, se), seen[ti, se] - nestor.sum(look[r1] * ahead[ti, se, r1], over=r1))
        state.write((ti, se, r1), (ti + 1, se, r1), ahead[ti, se, r1] + cross[ti, se, r1] * wrong[ti, se] / scale[ti, se])
        spread.write((ti, se, r1, r2), (ti + 1, se, r1, r2), whole[ti, se, r1, r2] - cross[ti, se, r1] * cross[ti, se, r2] / scale[ti, se])
    return (define("out", (ti, se, r1), state[ti + 1, se, r1]),
            define("surprise", (ti, se), wrong[ti, se] * wrong[ti, se] / scale[ti, se] + nestor.log(scale[ti, se])))


def _kalman(seen, move, noise, look):
    state = seen.new_zeros(seen.shape[1], 4)
    spread = torch.eye(4, dtype=seen.dtype, device=seen.device).expand(seen.shape[1], 4, 4)
    states, surprises = [], []
    for number in seen:
        state, spread = state @ move.T, move @ spread @ move.T + noise
        cross = spread @ look
        scale, wrong = cross @ look + 0.5, number - state @ look
        state = state + cross * (wrong / scale)[:, None]
        spread = spread - cross[:, :, None] * cross[:, None] / scale[:, None, None]
        states.append(state)
        surprises.append(wrong.square() / scale + scale.log())
    return torch.stack(states), torch.stack(surprises)


bases, vectors, long = Size("bases", 512), Size("vectors", 24), Size("long", 512, fixed=True)
ba, ve, ve2, l, l2 = indices(ba=bases, ve=vectors, ve2=vectors, l=long, l2=long)


@nestor.nest
def gram_schmidt(x: f32[bases, vectors, long]):
    """Modified Gram and Schmidt: each vector in turn is made of length one, and taken out of all that follow."""
    rest = nestor.Tensor("rest", f32, (vectors + 1, bases, vectors, long))
    rest.write((ba, ve, l), (0, ba, ve, l), x[ba, ve, l])
    (n_,) = indices(n_=vectors)
    with nestor.steps(n_):
        length = define("length", (n_, ba), nestor.sqrt(nestor.sum(rest[n_, ba, n_, l2] * rest[n_, ba, n_, l2], over=l2)))
        unit = define("unit", (n_, ba, l), rest[n_, ba, n_, l] / length[n_, ba])
        dot = define("dot", (n_, ba, ve), nestor.sum(rest[n_, ba, ve, l2] * unit[n_, ba, l2], over=l2), where=ve > n_)
        rest.write((n_, ba, ve, l), (n_ + 1, ba, ve, l), rest[n_, ba, ve, l] - dot[n_, ba, ve] * unit[n_, ba, l], where=ve > n_)
    return define("out", (ba, ve, l), unit[ve, ba, l])


def _schmidt(x):
    found = []
    for _ in range(x.shape[1]):
        unit = x[:, :1] / x[:, :1].norm(dim=2, keepdim=True)
        found.append(unit)
        x = x[:, 1:] - (x[:, 1:] * unit).sum(2, keepdim=True) * unit
    return torch.cat(found, 1)


options, rounds = Size("options", 2048), Size("rounds", 256)
op, lev, t, t0 = indices(op=options, lev=rounds + 1, t=rounds, t0=rounds)


@nestor.nest
def american_option(price: f32[options], strike: f32[options], up: f32[options], odds: f32[options], discount=0.9999):
    """Binomial trees of American options: from the last day back, what is held is worth waiting with or using at once."""
    value = nestor.Tensor("value", f32, (rounds + 1, options, rounds + 1))

    def used(day, at):
        return nestor.maximum(strike[op] - price[op] * nestor.exp(up[op] * nestor.cast(f32, 2 * at - day)), 0.0)
    value.write((op, lev), (0, op, lev), used(rounds, lev))
    value.write((t, op, lev), (t + 1, op, lev),
                nestor.maximum(discount * (odds[op] * value[t, op, lev + 1] + (1 - odds[op]) * value[t, op, lev]), used(rounds - 1 - t, lev)),
                where=lev < rounds - t)
    return define("out", op, value[rounds, op, 0])


def _american(price, strike, up, odds, rounds):
    def used(day):
        place = 2 * torch.arange(day + 1, device=price.device) - day
        return (strike[:, None] - price[:, None] * torch.exp(up[:, None] * place)).clamp(min=0)
    value, odds = used(rounds), odds[:, None]
    for day in range(rounds - 1, -1, -1):
        value = torch.maximum(0.9999 * (odds * value[:, 1:] + (1 - odds) * value[:, :-1]), used(day))
    return value[:, 0]


films, tall, across = Size("films", 8), Size("tall", 480), Size("across", 640)
f, ta, ac, wy, wx = indices(f=films, ta=tall, ac=across, wy=15, wx=15)
ta2, ac2 = indices(ta2=tall + 14, ac2=across + 14)


@nestor.nest
def lucas_kanade(before: f32[films, tall + 16, across + 16], after: f32[films, tall + 16, across + 16]):
    """Motion of pictures: least squares over windows of 15 by 15, two equations at each pixel."""
    at = (f, ta2, ac2)
    right = define("right", at, (before[f, ta2 + 1, ac2 + 2] - before[f, ta2 + 1, ac2]) / 2)
    down = define("down", at, (before[f, ta2 + 2, ac2 + 1] - before[f, ta2, ac2 + 1]) / 2)
    late = define("late", at, after[f, ta2 + 1, ac2 + 1] - before[f, ta2 + 1, ac2 + 1])
    near = (f, ta + wy, ac + wx)

    def window(name, one, other):
        return define(name, (f, ta, ac), nestor.sum(one[near] * other[near], over=(wy, wx)))[f, ta, ac]
    xx, xy, yy = window("xx", right, right), window("xy", right, down), window("yy", down, down)
    xt, yt = window("xt", right, late), window("yt", down, late)
    scale = define("scale", (f, ta, ac), 1 / (xx * yy - xy * xy + 1e-3))[f, ta, ac]
    return define("out_x", (f, ta, ac), (xy * yt - yy * xt) * scale), define("out_y", (f, ta, ac), (xy * xt - xx * yt) * scale)


def _lucas(before, after):
    right = (before[:, 1:-1, 2:] - before[:, 1:-1, :-2]) / 2
    down = (before[:, 2:, 1:-1] - before[:, :-2, 1:-1]) / 2
    late = (after - before)[:, 1:-1, 1:-1]
    xx, xy, yy, xt, yt = (225 * F.avg_pool2d(one * other, 15, 1) for one, other in
                          ((right, right), (right, down), (down, down), (right, late), (down, late)))
    scale = 1 / (xx * yy - xy * xy + 1e-3)
    return (xy * yt - yy * xt) * scale, (xy * xt - xx * yt) * scale


texts, inner, words = Size("texts", 16384), Size("inner", 768), Size("codes", 8)
te, io, wo, bit = indices(te=texts, io=inner, wo=words, bit=31)


@nestor.nest
def sign_codes(x: f16[texts, inner], plane: f16[words, 31, inner], mean: f32[words, 31]):
    """Hashing by random planes: on which sides of them something lies, 31 bits in a word."""
    side = define("side", (te, wo, bit), nestor.sum(x[te, io] * plane[wo, bit, io], over=io) - mean[wo, bit])
    return define("out", (te, wo), nestor.sum(nestor.select(side[te, wo, bit] > 0, 1, 0) << bit, over=bit))


def _signs(x, plane, mean):
    side = widened((x @ plane.flatten(0, 1).T)).unflatten(1, mean.shape) - mean
    return ((side > 0).int() << torch.arange(31, device=x.device, dtype=torch.int32)).sum(2).to(torch.int32)


vectors_, bits = Size("vectors", 8192), Size("bits", 10, fixed=True)
vc, bt, co, vc2 = indices(vc=vectors_, bt=bits, co=1024, vc2=vectors_)


@nestor.nest
def lookup_free_entropy(x: bf16[vectors_, bits], book: bf16[1024, bits]):
    """Quantisers without a table: how sure each vector is of its code, and how evenly all codes are used."""
    score = define("score", (vc, co), nestor.sum(x[vc, bt] * book[co, bt], over=bt) * 2)
    top = define("top", vc, nestor.max(score[vc, co], over=co))
    total = define("total", vc, nestor.sum(nestor.exp(score[vc, co] - top[vc]), over=co))
    mean = define("mean", vc, nestor.sum(nestor.exp(score[vc, co] - top[vc]) * (score[vc, co] - top[vc]), over=co))
    sure = define("sure", (), nestor.sum(nestor.log(total[vc2]) - mean[vc2] / total[vc2], over=vc2) / vectors_)
    used = define("used", co, nestor.sum(nestor.exp(score[vc, co] - top[vc]) / total[vc], over=vc) / vectors_)
    return sure, define("spread", (), -nestor.sum(used[co] * nestor.log(used[co] + 1e-8), over=co))


def _lookup_free(x, book):
    share = torch.log_softmax(2 * widened(x @ book.T), 1)
    used = share.exp().mean(0)
    return -(share.exp() * share).sum(1).mean(), -(used * torch.log(used + 1e-8)).sum()


def _positive(x, _):
    """Draws from 0.5 to 1.5."""
    return 0.5 + torch.sigmoid(x)


OPERATORS = [
    Operator(rank_contrast_loss, _rank_contrast, "K. Zha et al., arXiv:2210.01189", {"samples": 7, "dim": 16}, draw={"x": divided("dim")}),
    Operator(atrous_filter_gradient, _atrous, "L.-C. Chen et al., arXiv:1706.05587", {"batch": 2, "ins": 3, "outs": 4, "edge": 5}),
    Operator(soft_pool, _soft_pool, "A. Stergiou et al., arXiv:2101.00440", {"pictures": 2, "kinds": 3, "high": 3, "broad": 5}),
    Operator(volume_upsampling, _volume, "Ö. Çiçek et al., 3D U-Net, arXiv:1606.06650", {"scans": 2, "left": 5, "right": 3, "size": 3},
             draw={"weight": divided("left")}),
    Operator(dynamic_graph_attention, _graph, "S. Brody et al., GATv2, arXiv:2105.14491", {"eyes": 2, "nodes": 7, "wide": 8},
             draw={"edges": lambda x, _: (x > 0.5).float() + torch.eye(len(x), device=x.device)}),
    Operator(tiny_network, _tiny, "T. Müller et al., arXiv:2201.05989", {"rays": 5, "deep": 16},
             draw={"first": lambda x, _: x / 4, "second": divided("deep"), "third": divided("deep")}),
    Operator(fluid_forces, _fluid, "M. Müller et al., 2003", {"drops": 9}, draw={"density": _positive, "pressure": _positive,
                                                                                 "place": lambda x, _: torch.sigmoid(x)}),
    Operator(mixture_step, _mixture, "A. Dempster et al., 1977", {"points": 19, "axes": 4, "parts": 3},
             draw={"spread": _positive, "weight": lambda x, _: torch.softmax(x, 0)}),
    Operator(kalman_series, _kalman, "R. Kalman, 1960", {"series": 3, "times": 4},
             draw={"move": lambda x, _: torch.eye(4, device=x.device) * 0.9 + 0.05 * x, "noise": lambda x, _: torch.eye(4, device=x.device) * 0.1}),
    Operator(gram_schmidt, _schmidt, "Å. Björck, 1967", {"bases": 2, "vectors": 3, "long": 16}),
    Operator(american_option, _american, "J. Cox et al., 1979", {"options": 3, "rounds": 5}, told=("rounds",),
             draw={"price": lambda x, _: 100 * (1 + 0.1 * torch.tanh(x)), "strike": lambda x, _: 100 * (1 + 0.1 * torch.tanh(x)),
                   "up": lambda x, _: 0.01 * _positive(x, _), "odds": lambda x, _: 0.45 + 0.1 * torch.sigmoid(x)}),
    Operator(lucas_kanade, _lucas, "B. Lucas and T. Kanade, 1981", {"films": 2, "tall": 3, "across": 5}),
    Operator(sign_codes, _signs, "M. Charikar, 2002", {"texts": 5, "inner": 16, "codes": 2}, draw={"plane": divided("inner")}),
    Operator(lookup_free_entropy, _lookup_free, "L. Yu et al., MAGVIT-v2, arXiv:2310.05737", {"vectors": 7, "bits": 8},
             draw={"book": lambda x, _: torch.where(x > 0, 1.0, -1.0)}),
]
