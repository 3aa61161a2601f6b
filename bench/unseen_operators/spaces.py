"""Space, sound and images: complex products, features of directions, forces with a cutoff, fluids, least squares, blocks of convolutions."""

import math

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, around_one, divided, widened
from .products import gelu

rows, inner, outer = Size("rows", 4096), Size("inner", 1025), Size("outer", 1024)
r, k, o = indices(r=rows, k=inner, o=outer)


@nestor.nest
def complex_linear(real: bf16[rows, inner], imaginary: bf16[rows, inner], weight_real: bf16[outer, inner], weight_imaginary: bf16[outer, inner]):
    """A complex layer over 1,025 frequencies: both parts of a product."""
    def product(x, weight):
        return nestor.sum(x[r, k] * weight[o, k], over=k)
    return (define("out_real", (r, o), product(real, weight_real) - product(imaginary, weight_imaginary), type=bf16),
            define("out_imaginary", (r, o), product(real, weight_imaginary) + product(imaginary, weight_real), type=bf16))


def _complex(real, imaginary, weight_real, weight_imaginary):
    return (widened(real @ weight_real.T) - widened(imaginary @ weight_imaginary.T)).to(real.dtype), \
        (widened(real @ weight_imaginary.T) + widened(imaginary @ weight_real.T)).to(real.dtype)


nodes, edges, basis, channels = Size("nodes", 4096), Size("edges", 30), Size("basis", 8), Size("channels", 96)
n, e, a, c, m = indices(n=nodes, e=edges, a=basis, c=channels, m=9)


@nestor.nest
def harmonic_messages(way: f32[nodes, edges, 3], radial: f32[nodes, edges, basis], sent: f32[nodes, edges, channels], weight: f32[channels, basis]):
    """Spherical harmonics up to degree 2 of each edge's direction, times a layer of its length and the sender's features, summed over the edges."""
    x, y, z = (way[n, e, axis] for axis in range(3))
    parts = (1.0, 1.7320508 * x, 1.7320508 * y, 1.7320508 * z, 3.8729833 * x * y, 3.8729833 * y * z, 1.1180340 * (3 * z * z - 1),
             3.8729833 * x * z, 1.9364917 * (x * x - y * y))
    found = parts[-1]
    for at in range(7, -1, -1):
        found = nestor.select(m == at, parts[at], found)
    harmonic = define("harmonic", (n, e, m), found)
    strength = define("strength", (n, e, c), nestor.sum(radial[n, e, a] * weight[c, a], over=a) * sent[n, e, c])
    return define("out", (n, c, m), nestor.sum(strength[n, e, c] * harmonic[n, e, m], over=e))


def _harmonics(way, radial, sent, weight):
    x, y, z = way.unbind(-1)
    parts = (torch.ones_like(x), 1.7320508 * x, 1.7320508 * y, 1.7320508 * z, 3.8729833 * x * y, 3.8729833 * y * z, 1.1180340 * (3 * z * z - 1),
             3.8729833 * x * z, 1.9364917 * (x * x - y * y))
    return torch.einsum("nec,nem->ncm", radial @ weight.T * sent, torch.stack(parts, -1))


graphs, points, wide = Size("graphs", 16), Size("points", 100), Size("wide", 64)
g, i, j, w, w2 = indices(g=graphs, i=points, j=points, w=wide, w2=wide)


@nestor.nest
def edge_network(x0: f16[graphs, points, wide], edge: f16[graphs, points, points, wide], near: f32[graphs, points, points], own: f16[wide, wide],
                 other: f16[wide, wide], between: f16[wide, wide], bias: f16[wide]):
    """Messages from a layer of both ends and the edge: the edge's new features, and a weighted mean of them for each node."""
    left = define("left", (g, i, w), nestor.sum(x0[g, i, w2] * own[w, w2], over=w2), type=f16)
    right = define("right", (g, j, w), nestor.sum(x0[g, j, w2] * other[w, w2], over=w2), type=f16)
    line = nestor.sum(edge[g, i, j, w2] * between[w, w2], over=w2) + left[g, i, w] + right[g, j, w] + bias[w]
    message = define("message", (g, i, j, w), nestor.maximum(line, 0.0), type=f16)
    count = define("count", (g, i), nestor.maximum(nestor.sum(near[g, i, j], over=j), 1.0))
    return message, define("out", (g, i, w), nestor.sum(near[g, i, j] * message[g, i, j, w], over=j) / count[g, i], type=f16)


def _edges(x, edge, near, own, other, between, bias):
    line = edge @ between.T + (x @ own.T)[:, :, None] + (x @ other.T)[:, None] + bias
    message = F.relu(line)
    found = (near[..., None] * widened(message)).sum(2) / near.sum(2).clamp(min=1)[..., None]
    return message, found.to(x.dtype)


atoms = Size("atoms", 6000)
p, p2, axis = indices(p=atoms, p2=atoms, axis=3)


@nestor.nest
def ewald_forces(place: f32[atoms, 3], charge: f32[atoms]):
    """The short part of Ewald's sum, within a cutoff of 3: forces, and each atom's energy."""
    square = nestor.sum((place[p, axis] - place[p2, axis]) * (place[p, axis] - place[p2, axis]), over=axis)
    far = define("far", (p, p2), nestor.maximum(square, 1e-4))
    inverse = nestor.rsqrt(far[p, p2])
    length = far[p, p2] * inverse
    fade = 1 - nestor.erf(0.9 * length)
    pair = charge[p] * charge[p2] * inverse
    there = (far[p, p2] < 9.0) & (p != p2)
    energy = nestor.sum(nestor.select(there, pair * fade, 0.0), over=p2) / 2
    slope = (fade * inverse + 1.0155412503859613 * nestor.exp(-0.81 * far[p, p2])) * pair * inverse
    force = nestor.sum(nestor.select(there, slope, 0.0) * (place[p, axis] - place[p2, axis]), over=p2)
    return define("force", (p, axis), force), define("energy", p, energy)


def _ewald(place, charge):
    apart = place[:, None] - place
    far = apart.square().sum(-1).clamp(min=1e-4)
    length = far.sqrt()
    fade = torch.erfc(0.9 * length)
    there = (far < 9) & ~torch.eye(len(place), dtype=torch.bool, device=place.device)
    pair = torch.where(there, charge[:, None] * charge / length, 0)
    slope = (fade / length + 2 * 0.9 / math.sqrt(math.pi) * torch.exp(-0.81 * far)) * pair / length
    return (slope[..., None] * apart).sum(1), (pair * fade).sum(1) / 2


deep, tall, broad = Size("deep", 160), Size("tall", 160), Size("broad", 160)
z, y, x = indices(z=deep, y=tall, x=broad)


@nestor.nest
def burgers_step(flow_x: f32[deep + 4, tall + 4, broad + 4], flow_y: f32[deep + 4, tall + 4, broad + 4], flow_z: f32[deep + 4, tall + 4, broad + 4]):
    """A fluid without pressure in three dims: what it carries along and how it spreads, by differences of fourth order."""
    flows = (flow_x, flow_y, flow_z)

    def at(field, steps, axis):
        place = [z + 2, y + 2, x + 2]
        place[2 - axis] = place[2 - axis] + steps
        return field[tuple(place)]

    def after(field):
        here = at(field, 0, 0)
        carried, spread = 0.0, 0.0
        for axis in range(3):
            near, wide_ = at(field, 1, axis) - at(field, -1, axis), at(field, 2, axis) - at(field, -2, axis)
            carried = carried + at(flows[axis], 0, 0) * (8 * near - wide_) / 12
            both, ends = at(field, 1, axis) + at(field, -1, axis), at(field, 2, axis) + at(field, -2, axis)
            spread = spread + (16 * both - ends - 30 * here) / 12
        return here - 0.05 * carried + 0.02 * spread
    return tuple(define(f"next_{name}", (z, y, x), after(field)) for name, field in zip("xyz", flows))


def _burgers(*flows):
    def at(field, steps, axis):
        place = [slice(2, -2)] * 3
        place[2 - axis] = slice(2 + steps, field.shape[2 - axis] - 2 + steps)
        return field[tuple(place)]
    found = []
    for field in flows:
        value = at(field, 0, 0)
        for axis in range(3):
            near, wide_ = at(field, 1, axis) - at(field, -1, axis), at(field, 2, axis) - at(field, -2, axis)
            both, ends = at(field, 1, axis) + at(field, -1, axis), at(field, 2, axis) + at(field, -2, axis)
            spread = (16 * both - ends - 30 * at(field, 0, 0)) / 12
            value = value - 0.05 * at(flows[axis], 0, 0) * (8 * near - wide_) / 12 + 0.02 * spread
        found.append(value)
    return tuple(found)


cameras, seen = Size("cameras", 512), Size("seen", 3000)
ca, se, q, q2, h = indices(ca=cameras, se=seen, q=6, q2=6, h=2)


@nestor.nest
def bundle_equations(slope: f32[cameras, seen, 2, 6], apart: f32[cameras, seen, 2]):
    """Bundle adjustment: every camera's 6 x 6 matrix and right side of least squares, with Huber's weights."""
    size = nestor.sum(apart[ca, se, h] * apart[ca, se, h], over=h)
    weight = define("weight", (ca, se), nestor.minimum(nestor.rsqrt(size + 1e-12), 1.0))
    bend = nestor.sum(slope[ca, se, h, q] * slope[ca, se, h, q2] * weight[ca, se], over=(se, h))
    side = nestor.sum(slope[ca, se, h, q] * apart[ca, se, h] * weight[ca, se], over=(se, h))
    return define("bend", (ca, q, q2), bend), define("side", (ca, q), side)


def _bundle(slope, apart):
    weight = (apart.square().sum(-1) + 1e-12).rsqrt().clamp(max=1)[..., None]
    flat, weighted = slope.flatten(1, 2), (slope * weight[..., None]).flatten(1, 2)
    return weighted.transpose(1, 2) @ flat, (weighted.transpose(1, 2) @ apart.flatten(1)[..., None])[..., 0]


images, side, maps, hidden = Size("images", 32), Size("side", 14), Size("maps", 384), Size("hidden", 1536)
b, v, u, ch, ch2, hi, dy, dx = indices(b=images, v=side, u=side, ch=maps, ch2=maps, hi=hidden, dy=7, dx=7)


@nestor.nest
def convnext_block(x0: f16[images, side, side, maps], weight: f16[7, 7, maps], bias: f16[maps], up: f16[hidden, maps], up_bias: f16[hidden],
                   down: f16[maps, hidden], gain: f16[maps]):
    """7 x 7 of each channel, a layer norm, two layers with a GELU between them, a scale and the way around."""
    row, column = v + dy - 3, u + dx - 3
    inside = (row >= 0) & (row < side) & (column >= 0) & (column < side)
    near = define("near", (b, v, u, ch), nestor.sum(nestor.select(inside, x0[b, row, column, ch], 0.0) * weight[dy, dx, ch], over=(dy, dx)) + bias[ch])
    place = (b, v, u)
    mean = define("mean", place, nestor.sum(near[(*place, ch2)], over=ch2) / maps)
    apart = near[(*place, ch2)] - mean[place]
    spread = define("spread", place, nestor.rsqrt(nestor.sum(apart * apart, over=ch2) / maps + 1e-6))
    normed = define("normed", (*place, ch), (near[(*place, ch)] - mean[place]) * spread[place], type=f16)
    lifted = define("lifted", (*place, hi), gelu(nestor.sum(normed[(*place, ch)] * up[hi, ch], over=ch) + up_bias[hi]), type=f16)
    found = nestor.sum(lifted[(*place, hi)] * down[ch, hi], over=hi)
    return define("out", (*place, ch), x0[(*place, ch)] + gain[ch] * found, type=f16)


def _convnext(x, weight, bias, up, up_bias, down, gain):
    near = F.conv2d(x.permute(0, 3, 1, 2), weight.permute(2, 0, 1)[:, None], bias, padding=3, groups=x.shape[-1]).permute(0, 2, 3, 1)
    normed = F.layer_norm(near, near.shape[-1:], eps=1e-6)
    return x + gain * (F.gelu(F.linear(normed, up, up_bias)) @ down.T)


pictures, small, low, skip, kept = Size("pictures", 8), Size("small", 32), Size("low", 256), Size("skip", 96), Size("kept", 128)
pi, yy, xx, lo, sk, ke, ty, tx = indices(pi=pictures, yy=2 * small, xx=2 * small, lo=low, sk=skip, ke=kept, ty=3, tx=3)


@nestor.nest
def skip_conv(coarse: f16[pictures, small, small, low], fine: f16[pictures, 2 * small, 2 * small, skip], from_coarse: f16[kept, 3, 3, low],
              from_fine: f16[kept, 3, 3, skip], bias: f16[kept]):
    """U-Net's way up: a convolution of a coarse map, made twice as large, and of the map beside it."""
    row, column = yy + ty - 1, xx + tx - 1
    inside = (row >= 0) & (row < 2 * small) & (column >= 0) & (column < 2 * small)
    first = nestor.sum(nestor.select(inside, coarse[pi, row // 2, column // 2, lo], 0.0) * from_coarse[ke, ty, tx, lo], over=(ty, tx, lo))
    second = nestor.sum(nestor.select(inside, fine[pi, row, column, sk], 0.0) * from_fine[ke, ty, tx, sk], over=(ty, tx, sk))
    return define("out", (pi, yy, xx, ke), nestor.maximum(first + second + bias[ke], 0.0), type=f16)


def _skip(coarse, fine, from_coarse, from_fine, bias):
    large = coarse.repeat_interleave(2, 1).repeat_interleave(2, 2)
    joined, weight = torch.cat([large, fine], -1).permute(0, 3, 1, 2), torch.cat([from_coarse, from_fine], -1).permute(0, 3, 1, 2)
    return F.relu(F.conv2d(joined, weight, bias, padding=1)).permute(0, 2, 3, 1)


voices, sounds, steps = Size("voices", 16), Size("sounds", 128), Size("steps", 4096)
vo, so, st, st2, tap, tap2 = indices(vo=voices, so=sounds, st=steps, st2=2 * steps, tap=6, tap2=12)


@nestor.nest
def snake_activation(x0: f16[voices, sounds, steps + 10], up: f32[2, 6], down: f32[12], rate: f32[sounds]):
    """BigVGAN: twice as many samples, x + sin(rate x)^2 / rate, and half as many again, so that nothing folds back."""
    fine = indices(fine=2 * steps + 10)[0]
    near = define("near", (vo, so, fine), 2 * nestor.sum(x0[vo, so, fine // 2 + tap] * up[fine % 2, tap], over=tap))
    wave = nestor.sin(rate[so] * near[vo, so, fine])
    bent = define("bent", (vo, so, fine), near[vo, so, fine] + wave * wave / rate[so], type=f16)
    return define("out", (vo, so, st), nestor.sum(bent[vo, so, 2 * st + tap2] * down[tap2], over=tap2), type=f16)


def _snake(x, up, down, rate):
    steps, full = x.shape[-1] - 10, widened(x).flatten(0, 1)[:, None]
    near = 2 * F.conv1d(full, up[:, None])[..., :steps + 5].transpose(1, 2).flatten(1).view(*x.shape[:2], -1)
    bent = widened((near + torch.sin(rate[:, None] * near).square() / rate[:, None]).to(x.dtype))
    found = F.conv1d(bent.flatten(0, 1)[:, None], down[None, None], stride=2)
    return found.view(*x.shape[:2], -1).to(x.dtype)


clips, frames, hop = Size("clips", 32), Size("frames", 1000), 256
cl, fr, at, back = indices(cl=clips, fr=frames, at=hop, back=4)


@nestor.nest
def overlap_add(frame: f32[clips, frames + 3, 4 * hop], window: f32[4 * hop]):
    """The last step of an inverse short-time transform: windowed frames added up where they overlap, over the windows' squares."""
    found = nestor.sum(frame[cl, fr + 3 - back, back * hop + at] * window[back * hop + at], over=back)
    norm = define("norm", at, nestor.sum(window[back * hop + at] * window[back * hop + at], over=back))
    return define("out", (cl, fr, at), found / (norm[at] + 1e-6))


def _overlap(frame, window):
    frames, hop = frame.shape[1] - 3, window.shape[0] // 4
    parts = (frame * window).unflatten(2, (4, hop))
    found = sum(parts[:, 3 - back:3 - back + frames, back] for back in range(4))
    return found / (window.view(4, hop).square().sum(0) + 1e-6)


spots, lines = Size("spots", 16384), Size("lines", 777)
sp, li, xy = indices(sp=spots, li=lines, xy=3)


@nestor.nest
def segment_distance(spot: f32[spots, 3], begin: f32[lines, 3], along: f32[lines, 3]):
    """The distance of each point to the nearest of many segments."""
    apart = spot[sp, xy] - begin[li, xy]
    length = define("length", li, nestor.sum(along[li, xy] * along[li, xy], over=xy) + 1e-8)
    share = define("share", (sp, li), nestor.minimum(nestor.maximum(nestor.sum(apart * along[li, xy], over=xy) / length[li], 0.0), 1.0))
    left = apart - share[sp, li] * along[li, xy]
    far = define("far", (sp, li), nestor.sum(left * left, over=xy))
    return define("out", sp, nestor.sqrt(nestor.min(far[sp, li], over=li)))


def _segments(spot, begin, along):
    apart = spot[:, None] - begin
    share = ((apart * along).sum(-1) / (along.square().sum(-1) + 1e-8)).clamp(0, 1)
    return (apart - share[..., None] * along).square().sum(-1).amin(1).sqrt()


many = Size("many", 6000)
t, t2, t3, t4, d = indices(t=many, t2=many, t3=many, t4=many, d=2)


@nestor.nest
def embedding_gradient(place: f32[many, 2], alike: f32[many, many]):
    """t-SNE: heavy tails pull what is alike together and push the rest apart."""
    near = define("near", (t, t2), 1 / (1 + nestor.sum((place[t, d] - place[t2, d]) * (place[t, d] - place[t2, d]), over=d)))
    total = define("total", (), nestor.sum(nestor.select(t3 == t4, 0.0, near[t3, t4]), over=(t3, t4)))
    pull = (alike[t, t2] - near[t, t2] / total.value) * near[t, t2]
    return define("out", (t, d), 4 * nestor.sum(pull * (place[t, d] - place[t2, d]), over=t2))


def _embedding(place, alike):
    apart = place[:, None] - place
    near = 1 / (1 + apart.square().sum(-1))
    total = near.sum() - near.diagonal().sum()
    return 4 * (((alike - near / total) * near)[..., None] * apart).sum(1)


OPERATORS = [
    Operator(complex_linear, _complex, "C. Trabelsi et al., arXiv:1705.09792", {"rows": 5, "inner": 7, "outer": 6},
             draw={"weight_real": divided("inner"), "weight_imaginary": divided("inner")}),
    Operator(harmonic_messages, _harmonics, "S. Batzner et al., NequIP, arXiv:2101.03164", {"nodes": 5, "edges": 4, "basis": 3, "channels": 6},
             draw={"way": lambda x, _: F.normalize(x, dim=-1), "weight": divided("basis")}),
    Operator(edge_network, _edges, "J. Gilmer et al., arXiv:1704.01212", {"graphs": 2, "points": 5, "wide": 6},
             draw={"near": lambda x, _: (x > 0).float()} | {name: divided("wide") for name in ("own", "other", "between")}),
    Operator(ewald_forces, _ewald, "P. Ewald, 1921", {"atoms": 7}, draw={"place": lambda x, _: 2 * x}),
    Operator(burgers_step, _burgers, "J. Burgers, 1948", {"deep": 3, "tall": 4, "broad": 5}),
    Operator(bundle_equations, _bundle, "B. Triggs et al., 1999", {"cameras": 3, "seen": 7}),
    Operator(convnext_block, _convnext, "Z. Liu et al., arXiv:2201.03545", {"images": 2, "side": 4, "maps": 5, "hidden": 7},
             draw={"weight": lambda x, _: x / 7, "up": divided("maps"), "down": divided("hidden"), "gain": around_one}),
    Operator(skip_conv, _skip, "O. Ronneberger et al., arXiv:1505.04597", {"pictures": 2, "small": 3, "low": 4, "skip": 5, "kept": 6},
             draw={"from_coarse": lambda x, s: x / (9 * s["low"])**0.5, "from_fine": lambda x, s: x / (9 * s["skip"])**0.5}),
    Operator(snake_activation, _snake, "S. Lee et al., arXiv:2206.04658", {"voices": 2, "sounds": 3, "steps": 7},
             draw={"up": lambda x, _: x / 6, "down": lambda x, _: x / 6, "rate": lambda x, _: 0.5 + x.abs()}),
    Operator(overlap_add, _overlap, "D. Griffin and J. Lim, 1984", {"clips": 2, "frames": 5}),
    Operator(segment_distance, _segments, "J. Bentley, 1977", {"spots": 7, "lines": 5}),
    Operator(embedding_gradient, _embedding, "L. van der Maaten and G. Hinton, 2008", {"many": 7},
             draw={"alike": lambda x, s: torch.softmax(x.flatten(), 0).view_as(x)}),
]
