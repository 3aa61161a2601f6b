"""Pictures, films, sounds and spikes: filters that see no later frame, samples near their places, layers of butterflies, lifted wavelets,
boxes that suppress others, tones, sources in any order, neurons that fire, gradients of short filters."""

import itertools

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, around_one, divided, widened

films, frames, high, broad, maps = Size("films", 1), Size("frames", 8), Size("high", 60), Size("broad", 104), Size("maps", 128)
fi, fr, y, x_, m, m2 = indices(fi=films, fr=frames, y=high, x_=broad, m=maps, m2=maps)
dt, dy, dx = indices(dt=3, dy=3, dx=3)


@nestor.nest
def causal_film_filter(x: bf16[films, frames, high, broad, maps], gain: f32[maps], weight: bf16[maps, 3, 3, 3, maps], bias: f32[maps]):
    """An encoder of films: a norm of channels, an activation, and a filter over this frame and the two before."""
    square = define("square", (fi, fr, y, x_), nestor.sum(x[fi, fr, y, x_, m] * x[fi, fr, y, x_, m], over=m))
    scaled = define("scaled", (fi, fr, y, x_, m), x[fi, fr, y, x_, m] * nestor.rsqrt(square[fi, fr, y, x_] / maps + 1e-6) * gain[m])
    value = scaled[fi, fr, y, x_, m] * nestor.sigmoid(scaled[fi, fr, y, x_, m])
    given = define("given", (fi, fr, y, x_, m), value, type=bf16)
    inside = (fr + dt >= 2) & (y + dy >= 1) & (y + dy <= high) & (x_ + dx >= 1) & (x_ + dx <= broad)
    term = given[fi, fr + dt - 2, y + dy - 1, x_ + dx - 1, m] * weight[m2, dt, dy, dx, m]
    return define("out", (fi, fr, y, x_, m2), nestor.sum(term, over=(dt, dy, dx, m), where=inside) + bias[m2], type=bf16)


def _film(x, gain, weight, bias):
    wide = widened(x)
    given = F.silu(wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * gain).to(x.dtype)
    found = F.conv3d(F.pad(given.permute(0, 4, 1, 2, 3), (1, 1, 1, 1, 2, 0)), weight.permute(0, 4, 1, 2, 3), bias.to(x.dtype))
    return found.permute(0, 2, 3, 4, 1)


photos, groups, lanes, tall, across = Size("photos", 4), Size("groups", 4), Size("lanes", 16), Size("tall", 64), Size("across", 64)
p, g, l, ty, tx = indices(p=photos, g=groups, l=lanes, ty=tall, tx=across)
ky, kx, u, v = indices(ky=3, kx=3, u=3, v=3)


@nestor.nest
def deformed_filter(x: f32[photos, groups, lanes, tall + 4, across + 4], shift: f32[photos, groups, 3, 3, 2, tall, across],
                    weight: f32[photos, groups, 3, 3, tall, across]):
    """Deformable filters whose taps move by less than a pixel: bilinear samples, each with a weight of its own. Images have two of margin."""
    def hat(axis, step):
        return nestor.maximum(1 - nestor.absolute(nestor.tanh(shift[p, g, ky, kx, axis, ty, tx]) + 1 - nestor.cast(f32, step)), 0.0)
    share = define("share", (p, g, ky, kx, u, v, ty, tx), weight[p, g, ky, kx, ty, tx] * hat(0, u) * hat(1, v))
    term = share[p, g, ky, kx, u, v, ty, tx] * x[p, g, l, ty + ky + u, tx + kx + v]
    return define("out", (p, g, l, ty, tx), nestor.sum(term, over=(ky, kx, u, v)))


def _deformed(x, shift, weight):
    photos, groups, lanes, tall, across = x.shape
    image = x.flatten(0, 1)
    far = torch.tanh(shift.flatten(0, 1))
    row = torch.arange(tall - 4, device=x.device, dtype=x.dtype)[:, None]
    column = torch.arange(across - 4, device=x.device, dtype=x.dtype)
    total = 0
    for one, two in itertools.product(range(3), range(3)):
        at_row, at_column = row + one + 1 + far[:, one, two, 0], column + two + 1 + far[:, one, two, 1]
        grid = torch.stack([2 * at_column / (across - 1) - 1, 2 * at_row / (tall - 1) - 1], -1)
        total = total + weight.flatten(0, 1)[:, None, one, two] * F.grid_sample(image, grid, align_corners=True)
    return total.unflatten(0, (photos, groups))


rows, WIDE = Size("rows", 16384), 1024
r, i = indices(r=rows, i=WIDE)


@nestor.nest
def butterfly_layer(x: f32[rows, WIDE], twiddle: f32[10, WIDE // 2, 2, 2]):
    """Butterflies: ten stages, each of which mixes pairs that are twice as far apart."""
    now = x
    for stage in range(10):
        far = 2**stage
        pair, side, first = far * (i // (2 * far)) + i % far, (i // far) % 2, 2 * far * (i // (2 * far)) + i % far
        mixed = twiddle[stage, pair, side, 0] * now[r, first] + twiddle[stage, pair, side, 1] * now[r, first + far]
        now = define(f"stage_{stage}", (r, i), mixed)
    return now


def _butterfly(x, twiddle):
    for stage in range(10):
        far = 2**stage
        pairs = x.unflatten(1, (-1, 2, far))
        factor = twiddle[stage].unflatten(0, (-1, far))
        x = torch.stack([factor[:, :, side, 0] * pairs[:, :, 0] + factor[:, :, side, 1] * pairs[:, :, 1] for side in range(2)], 2).flatten(1)
    return x


signals, halves = Size("signals", 4096), Size("halves", 2048)
s, n = indices(s=signals, n=halves)


@nestor.nest
def lifted_wavelet(x: f32[signals, 2 * halves]):
    """The wavelet of JPEG 2000, 9/7, by lifting: odd samples and even ones change each other in turn, mirrored at both ends."""
    odd = even = None
    for step, factor in enumerate((-1.586134342, -0.05298011854, 0.8829110762, 0.4435068522)):
        def old(at, which, odd=odd, even=even):
            kept = (even, odd)[which]
            return x[s, 2 * at + which] if kept is None else kept[s, at]
        if step % 2 == 0:
            beside = nestor.select(n < halves - 1, old(n + 1, 0), old(n, 0))
            odd = define(f"odd_{step}", (s, n), old(n, 1) + factor * (old(n, 0) + beside))
        else:
            beside = nestor.select(n > 0, old(n - 1, 1), old(n, 1))
            even = define(f"even_{step}", (s, n), old(n, 0) + factor * (old(n, 1) + beside))
    return define("low", (s, n), even[s, n] * 1.149604398), define("high", (s, n), odd[s, n] * 0.8698644523)


def _lifted(x):
    even, odd = x[:, ::2], x[:, 1::2]
    for step, factor in enumerate((-1.586134342, -0.05298011854, 0.8829110762, 0.4435068522)):
        if step % 2 == 0:
            odd = odd + factor * (even + torch.cat([even[:, 1:], even[:, -1:]], 1))
        else:
            even = even + factor * (odd + torch.cat([odd[:, :1], odd[:, :-1]], 1))
    return even * 1.149604398, odd * 0.8698644523


scenes, boxes = Size("scenes", 256), Size("boxes", 128)
sc, bo, bo2 = indices(sc=scenes, bo=boxes, bo2=boxes)


@nestor.nest
def suppressed_boxes(box: f32[scenes, boxes, 4]):
    """Boxes in the order of their scores: one stays unless one that stayed before covers most of it."""
    def size(axis, at):
        return box[sc, at, axis + 2] - box[sc, at, axis]

    def shared(axis):
        return nestor.maximum(nestor.minimum(box[sc, bo, axis + 2], box[sc, bo2, axis + 2]) - nestor.maximum(box[sc, bo, axis], box[sc, bo2, axis]), 0.0)
    both = shared(0) * shared(1)
    covers = define("covers", (sc, bo, bo2), nestor.select(both > 0.5 * (size(0, bo) * size(1, bo) + size(0, bo2) * size(1, bo2) - both), 1.0, 0.0))
    stays = nestor.Tensor("stays", f32, (scenes, boxes))
    with nestor.steps(bo):
        met = define("met", (bo, sc), nestor.sum(covers[sc, bo, bo2] * stays[sc, bo2], over=bo2, where=bo2 < bo))
        stays.write((bo, sc), (sc, bo), nestor.select(met[bo, sc] > 0.5, 0.0, 1.0))
    return stays


def _suppressed(box):
    low = torch.maximum(box[:, :, None, :2], box[:, None, :, :2])
    high = torch.minimum(box[:, :, None, 2:], box[:, None, :, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    area = (box[..., 2:] - box[..., :2]).prod(-1)
    covers = (both > 0.5 * (area[:, :, None] + area[:, None] - both)).to(box.dtype)
    stays = torch.zeros_like(area)
    for now in range(box.shape[1]):
        stays[:, now] = ((covers[:, now] * stays).sum(1) <= 0.5).to(box.dtype)
    return stays


plates, down, right = Size("plates", 8), Size("down", 1024), Size("right", 1024)
pl, dn, rg, co = indices(pl=plates, dn=down, rg=right, co=3)


@nestor.nest
def tone_mapping(image: f32[plates, 3, down, right]):
    """Reinhard: luminance relative to its mean by logarithms, compressed; then the curve of a screen."""
    light = define("light", (pl, dn, rg), 0.2126 * image[pl, 0, dn, rg] + 0.7152 * image[pl, 1, dn, rg] + 0.0722 * image[pl, 2, dn, rg])
    mean = define("mean", pl, nestor.exp(nestor.mean(nestor.log(light[pl, dn, rg] + 1e-4), over=(dn, rg))))
    scaled = define("scaled", (pl, dn, rg), 0.18 * light[pl, dn, rg] / mean[pl])
    shown = scaled[pl, dn, rg] * (1 + scaled[pl, dn, rg] / 16) / (1 + scaled[pl, dn, rg])
    colour = image[pl, co, dn, rg] * shown / (light[pl, dn, rg] + 1e-6)
    return define("out", (pl, co, dn, rg), nestor.exp(nestor.log(nestor.maximum(colour, 1e-6)) / 2.2))


def _tone(image):
    light = 0.2126 * image[:, 0] + 0.7152 * image[:, 1] + 0.0722 * image[:, 2]
    scaled = 0.18 * light / torch.exp(torch.log(light + 1e-4).mean((1, 2), keepdim=True))
    shown = scaled * (1 + scaled / 16) / (1 + scaled)
    return (image * (shown / (light + 1e-6))[:, None]).clamp(min=1e-6) ** (1 / 2.2)


mixes, long = Size("mixes", 32), Size("long", 64000)
mi, lo, a, b = indices(mi=mixes, lo=long, a=3, b=3)


@nestor.nest
def any_order_ratio(found: f32[mixes, 3, long], wanted: f32[mixes, 3, long]):
    """Sources in any order: signal to noise, whatever the scale, by the best of six assignments."""
    found_mean = define("found_mean", (mi, a), nestor.mean(found[mi, a, lo], over=lo))
    wanted_mean = define("wanted_mean", (mi, b), nestor.mean(wanted[mi, b, lo], over=lo))
    one, two = found[mi, a, lo] - found_mean[mi, a], wanted[mi, b, lo] - wanted_mean[mi, b]
    dot = define("dot", (mi, a, b), nestor.sum(one * two, over=lo))
    found_power = define("found_power", (mi, a), nestor.sum(one * one, over=lo))
    wanted_power = define("wanted_power", (mi, b), nestor.sum(two * two, over=lo))
    kept = dot[mi, a, b] * dot[mi, a, b] / wanted_power[mi, b]
    ratio = define("ratio", (mi, a, b), 4.342944819 * nestor.log((kept + 1e-8) / (found_power[mi, a] - kept + 1e-8)))
    orders = [sum(ratio[mi, place, source] for place, source in enumerate(order)) / 3 for order in itertools.permutations(range(3))]
    best = orders[0]
    for order in orders[1:]:
        best = nestor.maximum(best, order)
    return define("out", mi, best)


def _any_order(found, wanted):
    found, wanted = (each - each.mean(-1, keepdim=True) for each in (found, wanted))
    kept = torch.einsum("mal,mbl->mab", found, wanted).square() / wanted.square().sum(-1)[:, None]
    ratio = 4.342944819 * torch.log((kept + 1e-8) / (found.square().sum(-1)[..., None] - kept + 1e-8))
    orders = [sum(ratio[:, place, source] for place, source in enumerate(order)) / 3 for order in itertools.permutations(range(3))]
    return torch.stack(orders).amax(0)


ticks, cells, inputs, neurons = Size("ticks", 32), Size("cells", 512), Size("inputs", 1024), Size("neurons", 1024)
ti, ce, inp, ne = indices(ti=ticks, ce=cells, inp=inputs, ne=neurons)
(past,) = indices(past=ticks - 1)


@nestor.nest
def spiking_layer(x: f16[ticks, cells, inputs], weight: f16[neurons, inputs], bias: f32[neurons]):
    """Neurons that leak, and fall back as they fire; a slope in place of the jump."""
    given = define("given", (ti, ce, ne), nestor.sum(x[ti, ce, inp] * weight[ne, inp], over=inp) + bias[ne])
    level = define("level", (ti, ce, ne), given[ti, ce, ne], where=ti == 0)
    was = level[past, ce, ne]
    level.write((past, ce, ne), (past + 1, ce, ne), 0.9 * was - nestor.sigmoid(4 * (was - 1)) + given[past + 1, ce, ne])
    return define("out", (ti, ce, ne), nestor.sigmoid(4 * (level[ti, ce, ne] - 1)), type=f16)


def _spiking(x, weight, bias):
    given = widened(x @ weight.T) + bias
    level = [given[0]]
    for now in given[1:]:
        level.append(0.9 * level[-1] - torch.sigmoid(4 * (level[-1] - 1)) + now)
    return torch.sigmoid(4 * (torch.stack(level) - 1)).to(x.dtype)


texts, times, wide = Size("texts", 4), Size("times", 4096), Size("wide", 2048)
te, t, c, k, k2 = indices(te=texts, t=times, c=wide, k=4, k2=4)


@nestor.nest
def short_filter_gradient(x: bf16[texts, times, wide], weight: f32[wide, 4], bias: f32[wide], gradient: bf16[texts, times, wide]):
    """Mamba's short causal filter with its activation, backwards: to what went in, to the filter, to the bias."""
    made = nestor.sum(x[te, t + k - 3, c] * weight[c, k], over=k, where=t + k >= 3) + bias[c]
    before = define("before", (te, t, c), made)
    opened = nestor.sigmoid(before[te, t, c])
    back = define("back", (te, t, c), gradient[te, t, c] * opened * (1 + before[te, t, c] * (1 - opened)))
    to_x = define("to_x", (te, t, c), nestor.sum(back[te, t + 3 - k, c] * weight[c, k], over=k, where=t + 3 - k < times), type=bf16)
    to_weight = define("to_weight", (c, k2), nestor.sum(back[te, t, c] * x[te, t + k2 - 3, c], over=(te, t), where=t + k2 >= 3))
    return to_x, to_weight, define("to_bias", c, nestor.sum(back[te, t, c], over=(te, t)))


def _short_filter(x, weight, bias, gradient):
    wide, padded = widened(gradient), F.pad(widened(x), (0, 0, 3, 0))
    before = sum(padded[:, tap:tap + x.shape[1]] * weight[:, tap] for tap in range(4)) + bias
    opened = torch.sigmoid(before)
    back = wide * opened * (1 + before * (1 - opened))
    ahead = F.pad(back, (0, 0, 0, 3))
    to_x = sum(ahead[:, 3 - tap:3 - tap + x.shape[1]] * weight[:, tap] for tap in range(4))
    to_weight = torch.stack([(back * padded[:, tap:tap + x.shape[1]]).sum((0, 1)) for tap in range(4)], 1)
    return to_x.to(x.dtype), to_weight, back.sum((0, 1))


def _positive(x, _):
    """Draws from 0.5 to 1.5."""
    return 0.5 + torch.sigmoid(x)


def _boxes(x, _):
    """Draws corners and sizes, so that some boxes cover others."""
    corner = x[..., :2]
    return torch.cat([corner, corner + 1.2 + 0.4 * torch.tanh(x[..., 2:])], -1)


OPERATORS = [
    Operator(causal_film_filter, _film, "Wan Team, arXiv:2503.20314", {"films": 1, "frames": 4, "high": 3, "broad": 5, "maps": 16},
             draw={"gain": around_one, "weight": lambda x, sizes: x / (27 * sizes["maps"])**0.5}),
    Operator(deformed_filter, _deformed, "Y. Xiong et al., DCNv4, arXiv:2401.06197", {"photos": 2, "groups": 2, "lanes": 3, "tall": 5, "across": 7}),
    Operator(butterfly_layer, _butterfly, "T. Dao et al., arXiv:1903.05895", {"rows": 3}, draw={"twiddle": lambda x, _: x / 1.4}),
    Operator(lifted_wavelet, _lifted, "I. Daubechies and W. Sweldens, 1998", {"signals": 3, "halves": 7}),
    Operator(suppressed_boxes, _suppressed, "J. Redmon et al., arXiv:1506.02640", {"scenes": 2, "boxes": 9}, draw={"box": _boxes}),
    Operator(tone_mapping, _tone, "E. Reinhard et al., 2002", {"plates": 2, "down": 3, "right": 5}, draw={"image": _positive}),
    Operator(any_order_ratio, _any_order, "D. Yu et al., arXiv:1607.00325; J. Le Roux et al., arXiv:1811.02508", {"mixes": 2, "long": 17}),
    Operator(spiking_layer, _spiking, "W. Fang et al., arXiv:2007.05785", {"ticks": 5, "cells": 3, "inputs": 16, "neurons": 7},
             draw={"weight": divided("inputs")}),
    Operator(short_filter_gradient, _short_filter, "A. Gu and T. Dao, arXiv:2312.00752", {"texts": 2, "times": 7, "wide": 5}),
]
