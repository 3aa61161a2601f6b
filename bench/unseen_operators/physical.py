"""Particles, grids and boxes: all pairs, stencils of images and volumes, and rendering along rays."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, define, f16, f32, indices

from .problem import Operator, widened

bodies, sources = Size("bodies", 16384), Size("sources", 16384)
a, b = indices(a=bodies, b=sources)


@nestor.nest
def gravity(place: f32[bodies, 3], source: f32[sources, 3], mass: f16[sources]):
    """Forces of all pairs, softened."""
    gaps = [source[b, axis] - place[a, axis] for axis in range(3)]
    near = nestor.rsqrt(gaps[0] * gaps[0] + gaps[1] * gaps[1] + gaps[2] * gaps[2] + 0.01)
    pull = mass[b] * near * near * near
    return tuple(define(name, a, nestor.sum(pull * gap, over=b)) for name, gap in zip(("fx", "fy", "fz"), gaps))


def _gravity(place, source, mass):
    gaps = source[None] - place[:, None]
    pull = widened(mass) * torch.rsqrt(gaps.square().sum(-1) + 0.01)**3
    return tuple((pull * gaps[..., axis]).sum(1) for axis in range(3))


atoms = Size("atoms", 8192)
i, j = indices(i=atoms, j=atoms)


@nestor.nest
def lennard_jones(place: f32[atoms, 3], depth: f16[atoms]):
    """The energy of each atom in the field of all others."""
    gaps = [place[i, axis] - place[j, axis] for axis in range(3)]
    inverse = 1 / (gaps[0] * gaps[0] + gaps[1] * gaps[1] + gaps[2] * gaps[2] + 0.5)
    sixth = inverse * inverse * inverse
    return define("energy", i, nestor.sum(nestor.select(i == j, 0.0, 4 * depth[j] * (sixth * sixth - sixth)), over=j))


def _lennard_jones(place, depth):
    gaps = (place[:, None] - place[None]).square().sum(-1) + 0.5
    sixth = gaps.reciprocal()**3
    energy = 4 * widened(depth) * (sixth * sixth - sixth)
    return energy.masked_fill(torch.eye(len(place), dtype=torch.bool, device=place.device), 0).sum(1)


frames, anchors, truths = Size("frames", 16), Size("anchors", 8192), Size("truths", 64)
n, p, t = indices(n=frames, p=anchors, t=truths)


@nestor.nest
def box_overlap(guess: f32[frames, anchors, 4], truth: f32[frames, truths, 4]):
    """Intersection over union of all pairs of boxes."""
    def area(box, *at):
        return (box[(*at, 2)] - box[(*at, 0)]) * (box[(*at, 3)] - box[(*at, 1)])
    wide, tall = (nestor.maximum(nestor.minimum(guess[n, p, k + 2], truth[n, t, k + 2]) - nestor.maximum(guess[n, p, k], truth[n, t, k]),
                                 0.0) for k in (0, 1))
    both = wide * tall
    return define("out", (n, p, t), both / (area(guess, n, p) + area(truth, n, t) - both + 1e-6))


def _box_overlap(guess, truth):
    low = torch.maximum(guess[:, :, None, :2], truth[:, None, :, :2])
    high = torch.minimum(guess[:, :, None, 2:], truth[:, None, :, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    area = [(box[..., 2:] - box[..., :2]).prod(-1) for box in (guess, truth)]
    return both / (area[0][:, :, None] + area[1][:, None] - both + 1e-6)


def _boxes(x, _):
    low = x[..., :2]
    return torch.cat([low, low + x[..., 2:].abs() + 0.1], -1)


photos, tall, wide = Size("photos", 16), Size("tall", 512), Size("wide", 512)
m, y, z, u, v = indices(m=photos, y=tall, z=wide, u=5, v=5)


@nestor.nest
def bilateral_filter(x: f16[photos, tall + 4, wide + 4]):
    """Means of 5 x 5 pixels, weighted by how alike they are."""
    here, there = x[m, y + 2, z + 2], x[m, y + u, z + v]
    weight = nestor.exp(-2.0 * (there - here) * (there - here))
    total = nestor.sum(weight, over=(u, v))
    return define("out", (m, y, z), nestor.sum(weight * there, over=(u, v)) / total, type=f16)


def _bilateral(x):
    there = widened(x).unfold(1, 5, 1).unfold(2, 5, 1)
    weight = torch.exp(-2 * (there - there[..., 2:3, 2:3]).square())
    return ((weight * there).sum((-1, -2)) / weight.sum((-1, -2))).to(x.dtype)


@nestor.nest
def harris_corners(x: f16[photos, tall + 4, wide + 4]):
    """Products of slopes, summed over 3 x 3, and the response."""
    y2, z2, u2, v2 = indices(y2=tall + 2, z2=wide + 2, u2=3, v2=3)
    down = define("down", (m, y2, z2), x[m, y2 + 2, z2 + 1] - x[m, y2, z2 + 1])
    across = define("across", (m, y2, z2), x[m, y2 + 1, z2 + 2] - x[m, y2 + 1, z2])

    def window(name, value):
        return define(name, (m, y, z), nestor.sum(value, over=(u2, v2)))[m, y, z]
    at = (m, y + u2, z + v2)
    dd, aa, da = window("dd", down[at] * down[at]), window("aa", across[at] * across[at]), window("da", down[at] * across[at])
    return define("out", (m, y, z), dd * aa - da * da - 0.05 * (dd + aa) * (dd + aa))


def _harris(x):
    x = widened(x)
    down, across = x[:, 2:, 1:-1] - x[:, :-2, 1:-1], x[:, 1:-1, 2:] - x[:, 1:-1, :-2]
    dd, aa, da = (9 * F.avg_pool2d(one[:, None], 3, 1)[:, 0] for one in (down * down, across * across, down * across))
    return dd * aa - da * da - 0.05 * (dd + aa).square()


@nestor.nest
def blur_pool(x: f16[photos, tall, wide]):
    """A binomial filter of 3 x 3 with stride 2, zeros around."""
    s, r = indices(s=(tall + 1) // 2, r=(wide + 1) // 2)
    total = None
    for du, fu in ((-1, 0.25), (0, 0.5), (1, 0.25)):
        for dv, fv in ((-1, 0.25), (0, 0.5), (1, 0.25)):
            row, column = 2 * s + du, 2 * r + dv
            inside = (row >= 0) & (row < tall) & (column >= 0) & (column < wide)
            term = nestor.select(inside, x[m, row, column], 0.0) * (fu * fv)
            total = term if total is None else total + term
    return define("out", (m, s, r), total, type=f16)


def _blur_pool(x):
    filters = torch.tensor([0.25, 0.5, 0.25], device=x.device, dtype=x.dtype)
    return F.conv2d(x[:, None], (filters[:, None] * filters)[None, None], stride=2, padding=1)[:, 0]


volumes, side = Size("volumes", 4), Size("side", 256, fixed=True)
w, d, e, f = indices(w=volumes, d=side, e=side, f=side)


@nestor.nest
def heat_step(x: f32[volumes, side + 2, side + 2, side + 2], speed: f16[volumes]):
    """A step of the heat equation in a volume."""
    at = (w, d + 1, e + 1, f + 1)
    around = (x[w, d, e + 1, f + 1] + x[w, d + 2, e + 1, f + 1] + x[w, d + 1, e, f + 1] + x[w, d + 1, e + 2, f + 1]
              + x[w, d + 1, e + 1, f] + x[w, d + 1, e + 1, f + 2])
    return define("out", (w, d, e, f), x[at] + speed[w] * (around - 6 * x[at]))


def _heat(x, speed):
    c = x[:, 1:-1, 1:-1, 1:-1]
    around = (x[:, :-2, 1:-1, 1:-1] + x[:, 2:, 1:-1, 1:-1] + x[:, 1:-1, :-2, 1:-1] + x[:, 1:-1, 2:, 1:-1] + x[:, 1:-1, 1:-1, :-2]
              + x[:, 1:-1, 1:-1, 2:])
    return c + widened(speed)[:, None, None, None] * (around - 6 * c)


rays, samples = Size("rays", 16384), Size("samples", 128, fixed=True)
r, s, s2, rgb = indices(r=rays, s=samples, s2=samples, rgb=3)


@nestor.nest
def volume_rendering(density: f32[rays, samples], colour: f16[rays, samples, 3]):
    """NeRF: what is seen of each sample, by the density before it."""
    before = define("before", (r, s), nestor.sum(density[r, s2], over=s2, where=s2 < s))
    weight = define("weight", (r, s), nestor.exp(-before[r, s]) * (1 - nestor.exp(-density[r, s])))
    return define("out", (r, rgb), nestor.sum(weight[r, s] * colour[r, s, rgb], over=s))


def _volume_rendering(density, colour):
    before = density.cumsum(-1) - density
    weight = torch.exp(-before) * (1 - torch.exp(-density))
    return (weight[..., None] * widened(colour)).sum(1)


maps, depth, high, broad = Size("maps", 4), Size("depth", 256, fixed=True), Size("high", 46), Size("broad", 62)
g, h, o, h2, o2, c = indices(g=maps, h=high, o=broad, h2=high, o2=broad, c=depth)


@nestor.nest
def correlation_volume(x: f16[maps, depth, high, broad], y: f16[maps, depth, high, broad]):
    """RAFT: products of all pairs of pixels of two maps, channels first."""
    return define("out", (g, h, o, h2, o2), nestor.sum(x[g, c, h, o] * y[g, c, h2, o2], over=c) * 0.0625, type=f16)


def _correlation_volume(x, y):
    found = x.flatten(2).transpose(1, 2) @ y.flatten(2) * 0.0625
    return found.view(len(x), *x.shape[2:], *x.shape[2:])


q, k = indices(q=9, k=9)


@nestor.nest
def cost_volume(x: f16[maps, high, broad, depth], y: f16[maps, high + 8, broad + 8, depth]):
    """FlowNet: products of a pixel with 9 x 9 around it in the other map, channels last."""
    return define("out", (g, h, o, q, k), nestor.sum(x[g, h, o, c] * y[g, h + q, o + k, c], over=c) / depth, type=f16)


def _cost_volume(x, y):
    windows = y.unfold(1, 9, 1).unfold(2, 9, 1)
    return (torch.einsum("ghoc,ghocqk->ghoqk", x, windows) / x.shape[-1]).to(x.dtype)


OPERATORS = [
    Operator(gravity, _gravity, "S. Aarseth, 1963", {"bodies": 7, "sources": 5}),
    Operator(lennard_jones, _lennard_jones, "J. Lennard-Jones, 1924", {"atoms": 7}),
    Operator(box_overlap, _box_overlap, "S. Ren et al., Faster R-CNN, arXiv:1506.01497", {"frames": 2, "anchors": 7, "truths": 5},
             draw={"guess": _boxes, "truth": _boxes}),
    Operator(bilateral_filter, _bilateral, "C. Tomasi and R. Manduchi, ICCV 1998", {"photos": 2, "tall": 7, "wide": 5}),
    Operator(harris_corners, _harris, "C. Harris and M. Stephens, 1988", {"photos": 2, "tall": 7, "wide": 5}),
    Operator(blur_pool, _blur_pool, "R. Zhang, arXiv:1904.11486", {"photos": 2, "tall": 7, "wide": 6}),
    Operator(heat_step, _heat, "J. Fourier, 1822", {"volumes": 2, "side": 5}, draw={"speed": lambda x, _: x.abs() / 20}),
    Operator(volume_rendering, _volume_rendering, "B. Mildenhall et al., NeRF, arXiv:2003.08934", {"rays": 5, "samples": 7},
             draw={"density": lambda x, _: x.abs() / 16}),
    Operator(correlation_volume, _correlation_volume, "Z. Teed and J. Deng, RAFT, arXiv:2003.12039",
             {"maps": 2, "depth": 5, "high": 3, "broad": 4}),
    Operator(cost_volume, _cost_volume, "P. Fischer et al., FlowNet, arXiv:1504.06852",
             {"maps": 2, "depth": 5, "high": 3, "broad": 4}),
]
