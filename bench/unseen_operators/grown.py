"""More layers, games and sciences: softmaxes that are mixed, layers of several pieces, maps that attend in space, filters that see half, shifted
channels, Fourier layers, differential equations of networks, ranks of pages, centres, energies of metals, skins, light, rays, values, cells, fractals."""

import math

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, divided, widened

words, vocabulary, deep = Size("words", 1024), Size("vocabulary", 10240), Size("deep", 512)
w, v, v2, e, m = indices(w=words, v=vocabulary, v2=vocabulary, e=deep, m=4)


@nestor.nest
def softmax_mixture(x: bf16[4, words, deep], head: bf16[vocabulary, deep], share: f32[words, 4]):
    """Mixture of softmaxes: four contexts a word, each with a softmax of its own over all words."""
    logit = define("logit", (m, w, v), nestor.sum(x[m, w, e] * head[v, e], over=e))
    top = define("top", (m, w), nestor.max(logit[m, w, v], over=v))
    total = define("total", (m, w), nestor.sum(nestor.exp(logit[m, w, v] - top[m, w]), over=v))
    mixed = nestor.sum(share[w, m] * nestor.exp(logit[m, w, v2] - top[m, w]) / total[m, w], over=m)
    return define("out", (w, v2), nestor.log(mixed + 1e-8), type=bf16)


def _mixture(x, head, share):
    chance = torch.softmax(widened(x @ head.T), -1)
    return torch.log((share.T[..., None] * chance).sum(0) + 1e-8).to(x.dtype)


tokens, width, units = Size("tokens", 4096), Size("width", 1024), Size("units", 1024)
p, c, u, k = indices(p=tokens, c=width, u=units, k=4)


@nestor.nest
def maxout_layer(x: f16[tokens, width], weight: f16[units, 4, width], bias: f32[units, 4]):
    """Maxout: the largest of four linear pieces a unit."""
    piece = define("piece", (p, u, k), nestor.sum(x[p, c] * weight[u, k, c], over=c) + bias[u, k])
    return define("out", (p, u), nestor.max(piece[p, u, k], over=k), type=f16)


def _maxout(x, weight, bias):
    return (widened(x @ weight.flatten(0, 1).T).unflatten(1, bias.shape) + bias).amax(2).to(x.dtype)


@nestor.nest
def highway_layer(x: f16[tokens, width], gate: f16[width, width], weight: f16[width, width], bias: f32[width], shift: f32[width]):
    """Highway networks: a gate between what a layer makes and what it was given."""
    (c2,) = indices(c2=width)
    opened = define("opened", (p, c2), nestor.sigmoid(nestor.sum(x[p, c] * gate[c2, c], over=c) + bias[c2]))
    made = nestor.maximum(nestor.sum(x[p, c] * weight[c2, c], over=c) + shift[c2], 0.0)
    return define("out", (p, c2), opened[p, c2] * made + (1 - opened[p, c2]) * x[p, c2], type=f16)


def _highway(x, gate, weight, bias, shift):
    opened = torch.sigmoid(widened(x @ gate.T) + bias)
    return (opened * torch.relu(widened(x @ weight.T) + shift) + (1 - opened) * x).to(x.dtype)


pictures, maps, high, broad = Size("pictures", 32), Size("maps", 256), Size("high", 56), Size("broad", 56)
b, f, f2, y, x_, dy, dx = indices(b=pictures, f=maps, f2=maps, y=high, x_=broad, dy=7, dx=7)


@nestor.nest
def spatial_attention(x: f16[pictures, maps, high, broad], weight: f32[2, 7, 7]):
    """CBAM: where to look, by a filter over the mean and the largest of all channels."""
    mean = define("mean", (b, y, x_), nestor.sum(x[b, f2, y, x_], over=f2) / maps)
    most = define("most", (b, y, x_), nestor.max(x[b, f2, y, x_], over=f2))
    inside = (y + dy >= 3) & (y + dy < high + 3) & (x_ + dx >= 3) & (x_ + dx < broad + 3)
    found = mean[b, y + dy - 3, x_ + dx - 3] * weight[0, dy, dx] + most[b, y + dy - 3, x_ + dx - 3] * weight[1, dy, dx]
    gate = define("gate", (b, y, x_), nestor.sigmoid(nestor.sum(found, over=(dy, dx), where=inside)))
    return define("out", (b, f, y, x_), x[b, f, y, x_] * gate[b, y, x_], type=f16)


def _spatial(x, weight):
    wide = widened(x)
    both = torch.stack([wide.mean(1), wide.amax(1)], 1)
    return (wide * torch.sigmoid(F.conv2d(both, weight[None], padding=3))).to(x.dtype)


shots, frames, ways = Size("shots", 8), Size("frames", 16), Size("ways", 128)
g, t, i, j, o, q = indices(g=shots, t=frames, i=28, j=28, o=ways, q=128)


@nestor.nest
def shifted_channels(x: f16[shots, frames, 28, 28, 128], weight: f16[ways, 128]):
    """Temporal shift: an eighth of the channels comes from the frame before, an eighth from the next; then a linear layer and what was."""
    was = define("moved", (g, t, i, j, q), 0.0, type=f16)
    was.write((g, t, i, j, q), (g, t, i, j, q), nestor.cast(f16, x[g, t - 1, i, j, q]), where=(t >= 1) & (q < 16))
    was.write((g, t, i, j, q), (g, t, i, j, q), nestor.cast(f16, x[g, t + 1, i, j, q]), where=(t < frames - 1) & (q >= 16) & (q < 32))
    was.write((g, t, i, j, q), (g, t, i, j, q), nestor.cast(f16, x[g, t, i, j, q]), where=q >= 32)
    return define("out", (g, t, i, j, o), nestor.sum(was[g, t, i, j, q] * weight[o, q], over=q), type=f16)


def _shifted(x, weight):
    moved = torch.zeros_like(x)
    moved[:, 1:, ..., :16] = x[:, :-1, ..., :16]
    moved[:, :-1, ..., 16:32] = x[:, 1:, ..., 16:32]
    moved[..., 32:] = x[..., 32:]
    return moved @ weight.T


sounds, times, chans = Size("sounds", 8), Size("times", 16384), Size("chans", 128)
s, n, a, a2, a3, d = indices(s=sounds, n=times, a=chans, a2=chans, a3=chans, d=2)


@nestor.nest
def wavenet_block(x: f16[sounds, times + 64, chans], filter: f16[2, chans, chans], gate: f16[2, chans, chans], mix: f16[chans, chans]):
    """WaveNet: two taps 64 samples apart, a gate, a mix of channels and what was. Sounds begin with 64 samples of margin."""
    first = define("first", (s, n, a), nestor.sum(x[s, n + 64 * d, a2] * filter[d, a, a2], over=(d, a2)))
    second = nestor.sum(x[s, n + 64 * d, a2] * gate[d, a, a2], over=(d, a2))
    unit = define("unit", (s, n, a), nestor.tanh(first[s, n, a]) * nestor.sigmoid(second), type=f16)
    return define("out", (s, n, a3), nestor.sum(unit[s, n, a] * mix[a3, a], over=a) + x[s, n + 64, a3], type=f16)


def _wavenet(x, filter, gate, mix):
    before, now = x[:, :-64], x[:, 64:]
    first, second = (before @ each[0].T + now @ each[1].T for each in (filter, gate))
    unit = (torch.tanh(widened(first)) * torch.sigmoid(widened(second))).to(x.dtype)
    return unit @ mix.T + now


sentences, places, hidden = Size("sentences", 16), Size("places", 512), Size("hidden", 768)
l, r, r2, h, h2 = indices(l=sentences, r=places, r2=places, h=hidden, h2=hidden)


@nestor.nest
def fourier_mixing(x: f16[sentences, places, hidden], cosine: f16[hidden, hidden], sine: f16[hidden, hidden], cosine2: f16[places, places],
                   sine2: f16[places, places]):
    """FNet: the real part of Fourier transforms along channels and along words."""
    real = define("real", (l, r, h), nestor.sum(x[l, r, h2] * cosine[h2, h], over=h2), type=f16)
    other = define("other", (l, r, h), nestor.sum(x[l, r, h2] * sine[h2, h], over=h2), type=f16)
    return define("out", (l, r2, h), nestor.sum(cosine2[r2, r] * real[l, r, h], over=r) - nestor.sum(sine2[r2, r] * other[l, r, h], over=r), type=f16)


def _fourier(x, cosine, sine, cosine2, sine2):
    return cosine2 @ (x @ cosine) - sine2 @ (x @ sine)


states, size, inner = Size("states", 8192), Size("size", 128, fixed=True), Size("inner", 256, fixed=True)
z, si, si2, inn = indices(z=states, si=size, si2=size, inn=inner)


@nestor.nest
def runge_kutta_network(x: f16[states, size], up: f16[inner, size], down: f16[size, inner]):
    """A step of a neural differential equation, by Heun's method: a network of two layers, twice."""
    def slope(name, of):
        raised = define(f"{name}_up", (z, inn), nestor.tanh(nestor.sum(of[z, si2] * up[inn, si2], over=si2)), type=f16)
        return define(name, (z, si), nestor.sum(raised[z, inn] * down[si, inn], over=inn))
    first = slope("first", x)
    ahead = define("ahead", (z, si), x[z, si] + 0.1 * first[z, si], type=f16)
    second = slope("second", ahead)
    return define("out", (z, si), x[z, si] + 0.05 * (first[z, si] + second[z, si]), type=f16)


def _runge(x, up, down):
    def slope(at):
        return widened(torch.tanh(at @ up.T) @ down.T)
    first = slope(x)
    ahead = (widened(x) + 0.1 * first).to(x.dtype)
    return (widened(x) + 0.05 * (first + slope(ahead))).to(x.dtype)


nodes, marks = Size("nodes", 2048), Size("marks", 64, fixed=True)
no, no2, ma = indices(no=nodes, no2=nodes, ma=marks)


@nestor.nest
def personal_ranks(edges: f16[nodes, nodes], x: f16[nodes, marks]):
    """APPNP: what nodes say spreads along edges five times, each time mixed with what they said first."""
    now = x
    for step in range(5):
        now = define(f"step_{step}", (no, ma), 0.9 * nestor.sum(edges[no, no2] * now[no2, ma], over=no2) + 0.1 * x[no, ma], type=f16)
    return now


def _personal(edges, x):
    now = x
    for _ in range(5):
        now = (0.9 * widened(edges @ now) + 0.1 * widened(x)).to(x.dtype)
    return now


@nestor.nest
def page_ranks(links: f32[nodes, nodes]):
    """PageRank: eight steps from equal ranks; `links` holds chances to go from its column to its row."""
    now = define("rank_0", no, 1 / nestor.cast(f32, nodes))
    for step in range(8):
        now = define(f"rank_{step + 1}", no, 0.85 * nestor.sum(links[no, no2] * now[no2], over=no2) + 0.15 / nodes)
    return now


def _page(links):
    now = torch.full_like(links[0], 1 / len(links))
    for _ in range(8):
        now = 0.85 * (links @ now) + 0.15 / len(links)
    return now


points, axes, centres = Size("points", 65536), Size("axes", 64, fixed=True), Size("centres", 256)
po, ax, ce, ce2 = indices(po=points, ax=axes, ce=centres, ce2=centres)


@nestor.nest
def centre_update(x: f32[points, axes], centre: f32[centres, axes]):
    """A whole step of k-means: each point's nearest centre, then the means of those that chose a centre."""
    apart = nestor.sum((x[po, ax] - centre[ce, ax]) * (x[po, ax] - centre[ce, ax]), over=ax)
    far = define("far", (po, ce), apart)
    least = define("least", po, nestor.min(far[po, ce], over=ce))
    chosen = define("chosen", po, nestor.min(nestor.select(far[po, ce] <= least[po], nestor.cast(i32, ce), 1 << 30), over=ce))
    mine = define("mine", (ce2, po), nestor.select(chosen[po] == nestor.cast(i32, ce2), 1.0, 0.0))
    count = define("count", ce2, nestor.sum(mine[ce2, po], over=po))
    total = define("sum", (ce2, ax), nestor.sum(mine[ce2, po] * x[po, ax], over=po))
    return chosen, define("out", (ce2, ax), total[ce2, ax] / nestor.maximum(count[ce2], 1.0))


def _centre(x, centre):
    chosen = torch.cdist(x, centre, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
    total = torch.zeros_like(centre).index_add(0, chosen, x)
    count = torch.zeros_like(centre[:, 0]).index_add(0, chosen, torch.ones_like(x[:, 0]))
    return chosen.int(), total / count.clamp(min=1)[:, None]


bands, steps_ = Size("bands", 4096), Size("steps", 512)
ba, st = indices(ba=bands, st=steps_)
(past,) = indices(past=steps_ - 1)


@nestor.nest
def channel_energy(x: f32[bands, steps_]):
    """PCEN: energies of bands relative to what each has been on average lately, then a root."""
    smooth = define("smooth", (ba, st), x[ba, st], where=st == 0)
    smooth.write((ba, past), (ba, past + 1), 0.975 * smooth[ba, past] + 0.025 * x[ba, past + 1])
    ratio = x[ba, st] * nestor.exp(-0.98 * nestor.log(1e-6 + smooth[ba, st]))
    return define("out", (ba, st), nestor.sqrt(ratio + 2.0) - math.sqrt(2.0))


def _energy(x):
    found = [x[:, 0]]
    for step in range(1, x.shape[1]):
        found.append(0.975 * found[-1] + 0.025 * x[:, step])
    return torch.sqrt(x * torch.exp(-0.98 * torch.log(1e-6 + torch.stack(found, 1))) + 2.0) - math.sqrt(2.0)


atoms = Size("atoms", 4096)
at, at2 = indices(at=atoms, at2=atoms)


@nestor.nest
def embedded_atoms(place: f32[atoms, 3]):
    """Energies of atoms in a metal: pairs, and the root of the density that neighbours leave where an atom is."""
    gap = sum((place[at, axis] - place[at2, axis]) * (place[at, axis] - place[at2, axis]) for axis in range(3))
    far = define("far", (at, at2), nestor.sqrt(gap + 1e-4))
    near = far[at, at2] < 1.5
    density = nestor.sum(nestor.select(near, nestor.exp(-4 * (far[at, at2] - 1)), 0.0), over=at2, where=at2 != at)
    pair = nestor.sum(nestor.select(near, nestor.exp(-8 * (far[at, at2] - 1)), 0.0), over=at2, where=at2 != at)
    return define("out", at, 0.1 * pair - nestor.sqrt(density + 1e-6))


def _atoms(place):
    far = torch.sqrt((place[:, None] - place).square().sum(-1) + 1e-4)
    near = (far < 1.5) & ~torch.eye(len(place), dtype=torch.bool, device=place.device)
    density, pair = (torch.where(near, torch.exp(-rate * (far - 1)), 0.0).sum(1) for rate in (4, 8))
    return 0.1 * pair - torch.sqrt(density + 1e-6)


bodies, corners, bones = Size("bodies", 64), Size("corners", 6890), Size("bones", 24)
bo, co, bn, ro, cl = indices(bo=bodies, co=corners, bn=bones, ro=3, cl=3)


@nestor.nest
def blended_skin(corner: f32[corners, 3], weight: f32[corners, bones], turn: f32[bodies, bones, 3, 4]):
    """Linear blend skinning: corners of a skin move with several bones."""
    blend = define("blend", (bo, co, ro, cl), nestor.sum(weight[co, bn] * turn[bo, bn, ro, cl], over=bn))
    shift = define("shift", (bo, co, ro), nestor.sum(weight[co, bn] * turn[bo, bn, ro, 3], over=bn))
    return define("out", (bo, co, ro), nestor.sum(blend[bo, co, ro, cl] * corner[co, cl], over=cl) + shift[bo, co, ro])


def _skin(corner, weight, turn):
    blend = torch.einsum("cb,nbij->ncij", weight, turn)
    return (blend[..., :3] @ corner[:, :, None])[..., 0] + blend[..., 3]


lights = Size("lights", 4)
screens, rows, cols = Size("screens", 4), Size("rows", 512), Size("cols", 512)
sc, ry, rx, li = indices(sc=screens, ry=rows, rx=cols, li=lights)


@nestor.nest
def shaded_surface(normal: f32[screens, 3, rows, cols], rough: f32[screens, rows, cols], colour: f32[screens, rows, cols], way: f32[lights, 3]):
    """Light from several directions on rough metal: Cook and Torrance with the distribution of Trowbridge and Reitz, seen from above."""
    long = nestor.rsqrt(sum(normal[sc, n, ry, rx] * normal[sc, n, ry, rx] for n in range(3)) + 1e-6)
    face = define("face", (sc, ry, rx), nestor.maximum(normal[sc, 2, ry, rx] * long, 1e-3))
    scale = define("scale", (sc, ry, rx), long)
    alpha = rough[sc, ry, rx] * rough[sc, ry, rx]
    half = nestor.rsqrt(way[li, 0] * way[li, 0] + way[li, 1] * way[li, 1] + (way[li, 2] + 1) * (way[li, 2] + 1) + 1e-6)
    lit = nestor.maximum(sum(normal[sc, n, ry, rx] * way[li, n] for n in range(3)) * scale[sc, ry, rx], 0.0)
    middle = nestor.maximum((sum(normal[sc, n, ry, rx] * way[li, n] for n in range(3)) + normal[sc, 2, ry, rx]) * scale[sc, ry, rx] * half, 0.0)
    spread = middle * middle * (alpha * alpha - 1) + 1
    facing = alpha * alpha / (math.pi * spread * spread + 1e-6)
    k_ = (rough[sc, ry, rx] + 1) * (rough[sc, ry, rx] + 1) / 8
    hides = face[sc, ry, rx] / (face[sc, ry, rx] * (1 - k_) + k_) * lit / (lit * (1 - k_) + k_)
    away = 1 - nestor.minimum((way[li, 2] + 1) * half, 1.0)
    mirror = colour[sc, ry, rx] + (1 - colour[sc, ry, rx]) * away * away * away * away * away
    return define("out", (sc, ry, rx), nestor.sum(facing * hides * mirror / (4 * face[sc, ry, rx] + 1e-3), over=li))


def _shaded(normal, rough, colour, way):
    scale = torch.rsqrt(normal.square().sum(1) + 1e-6)
    face = (normal[:, 2] * scale).clamp(min=1e-3)
    alpha, k_ = rough.square(), (rough + 1).square() / 8
    total = torch.zeros_like(rough)
    for light in way:
        half = torch.rsqrt(light[0].square() + light[1].square() + (light[2] + 1).square() + 1e-6)
        along = (normal * light[:, None, None]).sum(1)
        lit = (along * scale).clamp(min=0)
        middle = ((along + normal[:, 2]) * scale * half).clamp(min=0)
        spread = middle.square() * (alpha.square() - 1) + 1
        facing = alpha.square() / (math.pi * spread.square() + 1e-6)
        hides = face / (face * (1 - k_) + k_) * lit / (lit * (1 - k_) + k_)
        away = 1 - ((light[2] + 1) * half).clamp(max=1)
        total = total + facing * hides * (colour + (1 - colour) * away**5) / (4 * face + 1e-3)
    return total


rays, triangles = Size("rays", 16384), Size("triangles", 1024)
ra, tr = indices(ra=rays, tr=triangles)


@nestor.nest
def nearest_triangle(start: f32[rays, 3], way: f32[rays, 3], corner: f32[triangles, 3], one: f32[triangles, 3], two: f32[triangles, 3]):
    """Möller and Trumbore: how far each ray goes before it meets a triangle, 1e30 where it meets none."""
    def cross(a, b):
        return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]

    def dot(a, b):
        return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
    ray, e1, e2 = ([tensor[at_, n] for n in range(3)] for tensor, at_ in ((way, ra), (one, tr), (two, tr)))
    across = cross(ray, e2)
    size_ = define("size", (ra, tr), dot(e1, across))
    inverse = 1 / nestor.select(nestor.absolute(size_[ra, tr]) < 1e-7, 1.0, size_[ra, tr])
    off = [start[ra, n] - corner[tr, n] for n in range(3)]
    first = define("first", (ra, tr), dot(off, across) * inverse)
    turned = cross(off, e1)
    second = define("second", (ra, tr), dot(ray, turned) * inverse)
    far = define("far", (ra, tr), dot(e2, turned) * inverse)
    meets = ((nestor.absolute(size_[ra, tr]) >= 1e-7) & (first[ra, tr] >= 0.0) & (second[ra, tr] >= 0.0) &
             (first[ra, tr] + second[ra, tr] <= 1.0) & (far[ra, tr] > 1e-4))
    return define("out", ra, nestor.min(nestor.select(meets, far[ra, tr], 1e30), over=tr))


def _triangle(start, way, corner, one, two):
    ray, e1, e2 = way[:, None].expand(-1, len(one), -1), one.expand(len(way), -1, -1), two.expand(len(way), -1, -1)
    across = torch.linalg.cross(ray, e2)
    size_ = (e1 * across).sum(-1)
    inverse = 1 / torch.where(size_.abs() < 1e-7, 1.0, size_)
    off = start[:, None] - corner
    first = (off * across).sum(-1) * inverse
    turned = torch.linalg.cross(off, e1)
    second, far = (ray * turned).sum(-1) * inverse, (e2 * turned).sum(-1) * inverse
    meets = (size_.abs() >= 1e-7) & (first >= 0) & (second >= 0) & (first + second <= 1) & (far > 1e-4)
    return torch.where(meets, far, 1e30).amin(1)


runs, moves, atoms_ = Size("runs", 4096), Size("moves", 128), Size("support", 51)
ru, mo, sp, sp2 = indices(ru=runs, mo=moves, sp=atoms_, sp2=atoms_)
(back,) = indices(back=moves - 1)


@nestor.nest
def corrected_values(reward: f32[runs, moves], value: f32[runs, moves + 1], ratio: f32[runs, moves]):
    """V-trace: values along a run of another policy, with clipped ratios, from its end."""
    def gain(place):
        kept = nestor.minimum(ratio[ru, place], 1.0)
        return kept * (reward[ru, place] + 0.99 * value[ru, place + 1] - value[ru, place])
    ahead = define("ahead", (ru, mo), gain(mo), where=mo == moves - 1)
    here = moves - 2 - back
    ahead.write((ru, back), (ru, here), gain(here) + 0.99 * nestor.minimum(ratio[ru, here], 1.0) * ahead[ru, here + 1])
    return define("out", (ru, mo), ahead[ru, mo] + value[ru, mo])


def _corrected(reward, value, ratio):
    kept = ratio.clamp(max=1)
    gain = kept * (reward + 0.99 * value[:, 1:] - value[:, :-1])
    found = [gain[:, -1]]
    for step in range(reward.shape[1] - 2, -1, -1):
        found.append(gain[:, step] + 0.99 * kept[:, step] * found[-1])
    return torch.stack(found[::-1], 1) + value[:, :-1]


many = Size("many", 65536)
(my,) = indices(my=many)


@nestor.nest
def projected_returns(logit: f32[many, atoms_], reward: f32[many], on: f32[many]):
    """C51: a distribution of returns, moved by a reward and projected onto its own 51 places from -10 to 10."""
    top = define("top", my, nestor.max(logit[my, sp], over=sp))
    total = define("total", my, nestor.sum(nestor.exp(logit[my, sp] - top[my]), over=sp))
    moved = nestor.maximum(nestor.minimum(reward[my] + 0.99 * on[my] * (0.4 * nestor.cast(f32, sp) - 10), 10.0), -10.0)
    place = define("place", (my, sp), (moved + 10) / 0.4)
    share = nestor.maximum(1 - nestor.absolute(place[my, sp] - nestor.cast(f32, sp2)), 0.0)
    return define("out", (my, sp2), nestor.sum(nestor.exp(logit[my, sp] - top[my]) * share, over=sp) / total[my])


def _projected(logit, reward, on):
    place = torch.arange(logit.shape[1], device=logit.device, dtype=logit.dtype)
    moved = (reward[:, None] + 0.99 * on[:, None] * (0.4 * place - 10)).clamp(-10, 10)
    at_ = (moved + 10) / 0.4
    share = (1 - (at_[:, :, None] - place).abs()).clamp(min=0)
    return (torch.softmax(logit, 1)[:, :, None] * share).sum(1)


boards, tall, across_ = Size("boards", 64), Size("tall", 512), Size("across", 512)
bd, ty, tx, ny, nx = indices(bd=boards, ty=tall, tx=across_, ny=3, nx=3)


@nestor.nest
def game_of_life(alive: i32[boards, tall + 2, across_ + 2]):
    """Conway: cells live on with two or three neighbours, and are born with three."""
    count = define("count", (bd, ty, tx), nestor.sum(alive[bd, ty + ny, tx + nx], over=(ny, nx)))
    own = alive[bd, ty + 1, tx + 1]
    lives = (count[bd, ty, tx] == 3) | ((count[bd, ty, tx] == 4) & (own == 1))
    return define("out", (bd, ty, tx), nestor.select(lives, 1, 0))


def _life(alive):
    count = sum(alive[:, y:alive.shape[1] - 2 + y, x:alive.shape[2] - 2 + x] for y in range(3) for x in range(3))
    return ((count == 3) | ((count == 4) & (alive[:, 1:-1, 1:-1] == 1))).int()


down, right = Size("down", 1024), Size("right", 1024)
dn, rg = indices(dn=down, rg=right)


@nestor.nest
def escape_times(real: f32[down, right], imaginary: f32[down, right]):
    """Mandelbrot's set: of 32 steps, how many a point stays within 2."""
    x, y, count = (nestor.Tensor(name, f32, (33, down, right)) for name in ("x", "y", "count"))
    for state in (x, y, count):
        state.write((dn, rg), (0, dn, rg), 0.0)
    (now,) = indices(now=32)
    with nestor.steps(now):
        old_x, old_y = x[now, dn, rg], y[now, dn, rg]
        inside = old_x * old_x + old_y * old_y <= 4.0
        x.write((now, dn, rg), (now + 1, dn, rg), nestor.select(inside, old_x * old_x - old_y * old_y + real[dn, rg], old_x))
        y.write((now, dn, rg), (now + 1, dn, rg), nestor.select(inside, 2 * old_x * old_y + imaginary[dn, rg], old_y))
        count.write((now, dn, rg), (now + 1, dn, rg), count[now, dn, rg] + nestor.select(inside, 1.0, 0.0))
    return define("out", (dn, rg), count[32, dn, rg])


def _escape(real, imaginary):
    x, y, count = torch.zeros_like(real), torch.zeros_like(real), torch.zeros_like(real)
    for _ in range(32):
        inside = x * x + y * y <= 4.0
        x, y, count = (torch.where(inside, x * x - y * y + real, x), torch.where(inside, 2 * x * y + imaginary, y), count + inside)
    return count


def _positive(x, _):
    """Draws from 0.5 to 1.5."""
    return 0.5 + torch.sigmoid(x)


def _upwards(x, _):
    """Draws normals that look up."""
    return torch.stack([x[:, 0], x[:, 1], x[:, 2].abs() + 1], 1)


OPERATORS = [
    Operator(softmax_mixture, _mixture, "Z. Yang et al., arXiv:1711.03953", {"words": 3, "vocabulary": 11, "deep": 16},
             draw={"head": divided("deep"), "share": lambda x, _: torch.softmax(x, 1)}),
    Operator(maxout_layer, _maxout, "I. Goodfellow et al., arXiv:1302.4389", {"tokens": 5, "width": 16, "units": 3}, draw={"weight": divided("width")}),
    Operator(highway_layer, _highway, "R. Srivastava et al., arXiv:1505.00387", {"tokens": 5, "width": 16},
             draw={"gate": divided("width"), "weight": divided("width")}),
    Operator(spatial_attention, _spatial, "S. Woo et al., CBAM, arXiv:1807.06521", {"pictures": 2, "maps": 3, "high": 5, "broad": 9},
             draw={"weight": lambda x, _: x / 7}),
    Operator(shifted_channels, _shifted, "J. Lin et al., TSM, arXiv:1811.08383", {"shots": 1, "frames": 3, "ways": 5}, draw={"weight": lambda x, _: x / 11}),
    Operator(wavenet_block, _wavenet, "A. van den Oord et al., arXiv:1609.03499", {"sounds": 2, "times": 5, "chans": 16},
             draw={name: divided("chans") for name in ("filter", "gate", "mix")}),
    Operator(fourier_mixing, _fourier, "J. Lee-Thorp et al., arXiv:2105.03824", {"sentences": 2, "places": 5, "hidden": 16},
             draw={"cosine": divided("hidden"), "sine": divided("hidden"), "cosine2": divided("places"), "sine2": divided("places")}),
    Operator(runge_kutta_network, _runge, "R. Chen et al., arXiv:1806.07366", {"states": 5, "size": 128, "inner": 256},
             draw={"up": divided("size"), "down": divided("inner")}),
    Operator(personal_ranks, _personal, "J. Gasteiger et al., arXiv:1810.05997", {"nodes": 9, "marks": 64},
             draw={"edges": lambda x, sizes: torch.relu(x) / sizes["nodes"]}),
    Operator(page_ranks, _page, "S. Brin and L. Page, 1998", {"nodes": 9}, draw={"links": lambda x, _: torch.softmax(x, 0)}),
    Operator(centre_update, _centre, "S. Lloyd, 1982", {"points": 17, "axes": 64, "centres": 5}),
    Operator(channel_energy, _energy, "Y. Wang et al., arXiv:1607.05666", {"bands": 3, "steps": 7}, draw={"x": lambda x, _: x * x}),
    Operator(embedded_atoms, _atoms, "M. Finnis and J. Sinclair, 1984", {"atoms": 9}, draw={"place": lambda x, sizes: x * (sizes["atoms"] ** (1 / 3) / 2)}),
    Operator(blended_skin, _skin, "M. Loper et al., SMPL, 2015", {"bodies": 2, "corners": 7, "bones": 3}, draw={"weight": lambda x, _: torch.softmax(x, 1)}),
    Operator(shaded_surface, _shaded, "R. Cook and K. Torrance, 1982; B. Walter et al., 2007",
             {"screens": 1, "rows": 3, "cols": 5, "lights": 2}, draw={"rough": _positive, "colour": lambda x, _: torch.sigmoid(x), "normal": _upwards,
                                                                     "way": lambda x, _: F.normalize(torch.stack([x[:, 0], x[:, 1], x[:, 2].abs() + 0.5], 1), dim=1)}),
    Operator(nearest_triangle, _triangle, "T. Möller and B. Trumbore, 1997", {"rays": 7, "triangles": 5}),
    Operator(corrected_values, _corrected, "L. Espeholt et al., IMPALA, arXiv:1802.01561", {"runs": 3, "moves": 5}, draw={"ratio": _positive}),
    Operator(projected_returns, _projected, "M. Bellemare et al., arXiv:1707.06887", {"many": 5, "support": 51}, draw={"on": lambda x, _: (x > -1).float()}),
    Operator(game_of_life, _life, "M. Gardner, 1970", {"boards": 2, "tall": 3, "across": 5}, draw={"alive": lambda x, _: (x > 0.5).float()}),
    Operator(escape_times, _escape, "B. Mandelbrot, 1980", {"down": 3, "right": 5}),
]
