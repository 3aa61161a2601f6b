"""Images, signals, fluids and tensors: windows compared with windows, several filters of one map, products of three factors."""

import math

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, divided, widened
from .products import gelu
from .rows import sigmoid

tall, broad = Size("tall", 512), Size("broad", 512)
y, x, v, u, dy, dx = indices(y=tall, x=broad, v=5, u=5, dy=7, dx=7)


@nestor.nest
def non_local_means(image: f32[tall + 10, broad + 10]):
    """Each pixel is a mean of 7 x 7 around it, weighed by how alike the 5 x 5 around both are."""
    apart = image[y + 3 + v, x + 3 + u] - image[y + dy + v, x + dx + u]
    far = define("far", (y, x, dy, dx), nestor.sum(apart * apart, over=(v, u)))
    weight = define("weight", (y, x, dy, dx), nestor.exp(-far[y, x, dy, dx] / 10))
    total = nestor.sum(weight[y, x, dy, dx], over=(dy, dx))
    return define("out", (y, x), nestor.sum(weight[y, x, dy, dx] * image[y + dy + 2, x + dx + 2], over=(dy, dx)) / total)


def _non_local(image):
    tall, broad = image.shape[0] - 10, image.shape[1] - 10
    moved = F.unfold(image[None, None], (tall + 4, broad + 4))[0].T.reshape(49, tall + 4, broad + 4)
    far = F.avg_pool2d((image[3:-3, 3:-3] - moved).square()[:, None], 5, 1)[:, 0] * 25
    weight = (-far / 10).exp()
    return (weight * moved[:, 2:-2, 2:-2]).sum(0) / weight.sum(0)


pictures, side = Size("pictures", 16), Size("side", 1024)
m, a, b, p, q = indices(m=pictures, a=side, b=side, p=5, q=5)


@nestor.nest
def opened_image(image: f16[pictures, side + 8, side + 8]):
    """The largest of the smallest: what is thinner than 5 pixels goes."""
    a4, b4 = indices(a4=side + 4, b4=side + 4)
    low = define("low", (m, a4, b4), nestor.min(image[m, a4 + p, b4 + q], over=(p, q)), type=f16)
    return define("out", (m, a, b), nestor.max(low[m, a + p, b + q], over=(p, q)), type=f16)


def _opened(image):
    low = -F.max_pool2d(-image[:, None], 5, 1)
    return F.max_pool2d(low, 5, 1)[:, 0]


high, across = Size("high", 2048), Size("across", 2048)
r, c = indices(r=high, c=across)


@nestor.nest
def optical_flow_step(slope_x: f32[high, across], slope_y: f32[high, across], slope_t: f32[high, across],
                      flow_x: f32[high + 2, across + 2], flow_y: f32[high + 2, across + 2]):
    """Horn and Schunck: means of the flow around a pixel, and a step towards what the slopes ask for."""
    def around(flow):
        near = flow[r, c + 1] + flow[r + 2, c + 1] + flow[r + 1, c] + flow[r + 1, c + 2]
        corners = flow[r, c] + flow[r, c + 2] + flow[r + 2, c] + flow[r + 2, c + 2]
        return near / 6 + corners / 12
    mean_x, mean_y = around(flow_x), around(flow_y)
    gx, gy = slope_x[r, c], slope_y[r, c]
    share = (gx * mean_x + gy * mean_y + slope_t[r, c]) / (0.1 + gx * gx + gy * gy)
    return define("next_x", (r, c), mean_x - gx * share), define("next_y", (r, c), mean_y - gy * share)


def _optical_flow(slope_x, slope_y, slope_t, flow_x, flow_y):
    weight = torch.tensor([[1, 2, 1], [2, 0, 2], [1, 2, 1]], dtype=flow_x.dtype, device=flow_x.device) / 12
    mean_x, mean_y = F.conv2d(torch.stack([flow_x, flow_y])[:, None], weight[None, None])[:, 0]
    share = (slope_x * mean_x + slope_y * mean_y + slope_t) / (0.1 + slope_x.square() + slope_y.square())
    return mean_x - slope_x * share, mean_y - slope_y * share


maps, inner, outer, rows, columns = Size("maps", 8), Size("inner", 64), Size("outer", 64), Size("rows", 64), Size("columns", 64)
g, i, o, yy, xx, ky, kx = indices(g=maps, i=inner, o=outer, yy=rows, xx=columns, ky=3, kx=3)


def _inside(row, column):
    return (row >= 0) & (row < rows) & (column >= 0) & (column < columns)


@nestor.nest
def gated_conv(x0: f16[maps, inner, rows, columns], weight: f16[outer, inner, 3, 3], gate: f16[outer, inner, 3, 3], bias: f16[outer]):
    """Inpainting: a convolution, and another that says where it counts."""
    row, column = yy + ky - 1, xx + kx - 1
    near = nestor.select(_inside(row, column), x0[g, i, row, column], 0.0)
    found = nestor.sum(near * weight[o, i, ky, kx], over=(i, ky, kx)) + bias[o]
    share = nestor.sum(near * gate[o, i, ky, kx], over=(i, ky, kx))
    return define("out", (g, o, yy, xx), nestor.maximum(found, 0.0) * sigmoid(share), type=f16)


def _gated_conv(x, weight, gate, bias):
    return F.relu(F.conv2d(x, weight, bias, padding=1)) * torch.sigmoid(F.conv2d(x, gate, padding=1))


@nestor.nest
def dilated_pyramid(x0: f16[maps, rows, columns, inner], near: f16[outer, 3, 3, inner], middle: f16[outer, 3, 3, inner],
                    far: f16[outer, 3, 3, inner]):
    """ASPP: three convolutions of one map, with taps 1, 2 and 4 apart, added up."""
    def taps(name, weight, apart):
        row, column = yy + apart * (ky - 1), xx + apart * (kx - 1)
        value = nestor.select(_inside(row, column), x0[g, row, column, i], 0.0)
        return nestor.sum(value * weight[o, ky, kx, i], over=(i, ky, kx), name=name)
    found = taps("first", near, 1) + taps("second", middle, 2) + taps("third", far, 4)
    return define("out", (g, yy, xx, o), nestor.maximum(found, 0.0), type=f16)


def _pyramid(x, near, middle, far):
    x = x.permute(0, 3, 1, 2)
    found = sum(F.conv2d(x, weight.permute(0, 3, 1, 2), padding=apart, dilation=apart)
                for weight, apart in ((near, 1), (middle, 2), (far, 4)))
    return F.relu(found).permute(0, 2, 3, 1)


batch, times, channels = Size("batch", 16), Size("times", 1024), Size("channels", 512)
n, t, ch, tap = indices(n=batch, t=times, ch=channels, tap=31)


@nestor.nest
def conformer_conv(x0: bf16[batch, times, 2 * channels], weight: bf16[31, channels], scale: f32[channels], shift: f32[channels]):
    """A gated linear unit, 31 taps of each channel, a batch norm's line and swish."""
    gated = define("gated", (n, t, ch), x0[n, t, ch] * sigmoid(x0[n, t, ch + channels]), type=bf16)
    at = t + tap - 15
    found = nestor.sum(nestor.select((at >= 0) & (at < times), gated[n, at, ch], 0.0) * weight[tap, ch], over=tap)
    line = found * scale[ch] + shift[ch]
    return define("out", (n, t, ch), line * sigmoid(line), type=bf16)


def _conformer(x, weight, scale, shift):
    found = F.conv1d(F.glu(x, -1).transpose(1, 2), weight.T[:, None], padding=15, groups=weight.shape[1]).transpose(1, 2)
    return F.silu(found * scale + shift).to(x.dtype)


one, two, three, rank = Size("one", 256), Size("two", 256), Size("three", 256), Size("rank", 32)
i1, i2, i3, r1, r2, r3 = indices(i1=one, i2=two, i3=three, r1=rank, r2=rank, r3=rank)


@nestor.nest
def tucker_reconstruction(core: f16[rank, rank, rank], first: f16[one, rank], second: f16[two, rank], third: f16[three, rank]):
    """A small core times a matrix along each of its dims."""
    along = define("along", (i1, r2, r3), nestor.sum(core[r1, r2, r3] * first[i1, r1], over=r1), type=f16)
    both = define("both", (i1, i2, r3), nestor.sum(along[i1, r2, r3] * second[i2, r2], over=r2), type=f16)
    return define("out", (i1, i2, i3), nestor.sum(both[i1, i2, r3] * third[i3, r3], over=r3), type=f16)


def _tucker(core, first, second, third):
    along = torch.einsum("abc,ia->ibc", core, first)
    return torch.einsum("ibc,jb->ijc", along, second) @ third.T


@nestor.nest
def shallow_water_step(height: f32[high + 2, across + 2], flow_x: f32[high + 2, across + 2], flow_y: f32[high + 2, across + 2]):
    """Lax and Friedrichs: means of the four neighbours less differences of fluxes, for the height and both momenta."""
    def at(dy, dx):
        h, p, q = (f[r + 1 + dy, c + 1 + dx] for f in (height, flow_x, flow_y))
        pressure = 4.9 * h * h
        return (h, p, q), (p, p * p / h + pressure, p * q / h), (q, p * q / h, q * q / h + pressure)
    west, east, north, south = at(0, -1), at(0, 1), at(-1, 0), at(1, 0)

    def after(k):
        mean = (west[0][k] + east[0][k] + north[0][k] + south[0][k]) / 4
        return mean - 0.05 * (east[1][k] - west[1][k]) - 0.05 * (south[2][k] - north[2][k])
    return tuple(define(name, (r, c), after(k)) for k, name in enumerate(("next_height", "next_x", "next_y")))


def _shallow(height, flow_x, flow_y):
    pressure = 4.9 * height.square()
    state = torch.stack([height, flow_x, flow_y])
    right = torch.stack([flow_x, flow_x.square() / height + pressure, flow_x * flow_y / height])
    down = torch.stack([flow_y, flow_x * flow_y / height, flow_y.square() / height + pressure])
    inner, up, low = slice(1, -1), slice(None, -2), slice(2, None)
    mean = (state[:, inner, up] + state[:, inner, low] + state[:, up, inner] + state[:, low, inner]) / 4
    found = mean - 0.05 * (right[:, inner, low] - right[:, inner, up]) - 0.05 * (down[:, low, inner] - down[:, up, inner])
    return tuple(found)


bodies = Size("bodies", 8192)
k, l, d = indices(k=bodies, l=bodies, d=3)


@nestor.nest
def particle_density(place: f32[bodies, 3], mass: f32[bodies]):
    """Smoothed particles: masses weighed by a bell of finite width."""
    apart = nestor.sum((place[k, d] - place[l, d]) * (place[k, d] - place[l, d]), over=d)
    bell = nestor.maximum(1 - apart, 0.0)
    return define("density", (k, ), nestor.sum(mass[l] * bell * bell * bell, over=l) * (315 / (64 * math.pi)))


def _density(place, mass):
    apart = (place[:, None] - place).square().sum(-1)
    return F.relu(1 - apart).pow(3) @ mass * (315 / (64 * math.pi))


graphs, nodes, wide = Size("graphs", 32), Size("nodes", 128), Size("wide", 128)
gr, s, w, z = indices(gr=graphs, s=nodes, w=nodes, z=wide)


@nestor.nest
def neighbour_statistics(x0: f32[graphs, nodes, wide], edge: f32[graphs, nodes, nodes]):
    """PNA: mean, spread, largest and smallest of the neighbours' features."""
    count = define("count", (gr, s), nestor.maximum(nestor.sum(edge[gr, s, w], over=w), 1.0))
    mean = define("mean", (gr, s, z), nestor.sum(edge[gr, s, w] * x0[gr, w, z], over=w) / count[gr, s])
    square = nestor.sum(edge[gr, s, w] * x0[gr, w, z] * x0[gr, w, z], over=w) / count[gr, s]
    spread = define("spread", (gr, s, z), nestor.sqrt(nestor.maximum(square - mean[gr, s, z] * mean[gr, s, z], 0.0) + 1e-5))
    there = edge[gr, s, w] > 0.5
    most = define("most", (gr, s, z), nestor.max(nestor.select(there, x0[gr, w, z], -1e30), over=w))
    least = define("least", (gr, s, z), nestor.min(nestor.select(there, x0[gr, w, z], 1e30), over=w))
    return mean, spread, most, least


def _neighbours(x, edge):
    count = edge.sum(-1, keepdim=True).clamp(min=1)
    mean, square = edge @ x / count, edge @ x.square() / count
    there = (edge > 0.5)[..., None]
    most = x[:, None].masked_fill(~there, -1e30).amax(2)
    return mean, (F.relu(square - mean.square()) + 1e-5).sqrt(), most, x[:, None].masked_fill(~there, 1e30).amin(2)


users, fields, hidden, deep = Size("users", 2048), Size("fields", 26), Size("hidden", 64), Size("deep", 16, fixed=True)
us, f1, f2, hi, de = indices(us=users, f1=fields, f2=fields, hi=hidden, de=deep)


@nestor.nest
def compressed_interactions(first: f16[users, fields, deep], last: f16[users, fields, deep], weight: f16[hidden, fields, fields]):
    """xDeepFM: all pairs of fields, weighed, channel by channel."""
    both = first[us, f1, de] * last[us, f2, de]
    return define("out", (us, hi, de), nestor.sum(both * weight[hi, f1, f2], over=(f1, f2)), type=f16)


def _interactions(first, last, weight):
    both = (first[:, :, None] * last[:, None]).flatten(1, 2)
    return torch.einsum("bpd,hp->bhd", both, weight.flatten(1))


frames, bands, kept, lines = Size("frames", 16384), Size("bands", 80), Size("kept", 20), Size("lines", 257)
fr, ba, ke, li = indices(fr=frames, ba=bands, ke=kept, li=lines)


@nestor.nest
def mel_cepstrum(real: f32[frames, lines], imaginary: f32[frames, lines], mel: f32[bands, lines], cosine: f32[kept, bands]):
    """MFCC: the logarithm of powers in mel bands, and its cosine transform."""
    power = real[fr, li] * real[fr, li] + imaginary[fr, li] * imaginary[fr, li]
    band = define("band", (fr, ba), nestor.log(nestor.sum(power * mel[ba, li], over=li) + 1e-6))
    return define("out", (fr, ke), nestor.sum(band[fr, ba] * cosine[ke, ba], over=ba))


def _cepstrum(real, imaginary, mel, cosine):
    return ((real.square() + imaginary.square()) @ mel.T + 1e-6).log() @ cosine.T


series, steps, lags = Size("series", 512), Size("steps", 4096), Size("lags", 64)
se, st, la = indices(se=series, st=steps, la=lags)


@nestor.nest
def autocorrelation(signal: f32[series, steps + lags]):
    """Products of a signal with itself, moved by up to 63 steps, over its power."""
    found = define("found", (se, la), nestor.sum(signal[se, st] * signal[se, st + la], over=st))
    return define("out", (se, la), found[se, la] / (found[se, 0] + 1e-6))


def _autocorrelation(signal):
    lags = 64 if signal.shape[1] > 64 else 4
    steps = signal.shape[1] - lags
    found = torch.stack([(signal[:, :steps] * signal[:, lag:lag + steps]).sum(1) for lag in range(lags)], 1)
    return found / (found[:, :1] + 1e-6)


left, right = Size("left", 1024), Size("right", 2048)
lf, lf2, ri, ri2 = indices(lf=left, lf2=left, ri=right, ri2=right)


@nestor.nest
def preconditioner_statistics(row: f32[left, left], column: f32[right, right], gradient: bf16[left, right]):
    """Shampoo: running means of both products of the gradient with itself."""
    by_row = nestor.sum(gradient[lf, ri2] * gradient[lf2, ri2], over=ri2)
    by_column = nestor.sum(gradient[lf2, ri] * gradient[lf2, ri2], over=lf2)
    return (define("next_row", (lf, lf2), 0.95 * row[lf, lf2] + 0.05 * by_row),
            define("next_column", (ri, ri2), 0.95 * column[ri, ri2] + 0.05 * by_column))


def _statistics(row, column, gradient):
    return (0.95 * row + 0.05 * widened(gradient @ gradient.T), 0.95 * column + 0.05 * widened(gradient.T @ gradient))


MAPS = {"maps": 2, "inner": 3, "outer": 4, "rows": 5, "columns": 7}
OPERATORS = [
    Operator(non_local_means, _non_local, "A. Buades et al., 2005", {"tall": 4, "broad": 5}),
    Operator(opened_image, _opened, "J. Serra, 1982", {"pictures": 2, "side": 5}),
    Operator(optical_flow_step, _optical_flow, "B. Horn and B. Schunck, 1981", {"high": 4, "across": 5}),
    Operator(gated_conv, _gated_conv, "J. Yu et al., arXiv:1806.03589", MAPS,
             draw={"weight": lambda x, s: x / (9 * s["inner"])**0.5, "gate": lambda x, s: x / (9 * s["inner"])**0.5}),
    Operator(dilated_pyramid, _pyramid, "L. Chen et al., arXiv:1606.00915", MAPS,
             draw={name: lambda x, s: x / (9 * s["inner"])**0.5 for name in ("near", "middle", "far")}),
    Operator(conformer_conv, _conformer, "A. Gulati et al., arXiv:2005.08100", {"batch": 2, "times": 9, "channels": 5},
             draw={"weight": lambda x, _: x / 5}),
    Operator(tucker_reconstruction, _tucker, "L. Tucker, 1966", {"one": 4, "two": 5, "three": 6, "rank": 3},
             draw={name: divided("rank") for name in ("first", "second", "third")}),
    Operator(shallow_water_step, _shallow, "P. Lax, 1954", {"high": 4, "across": 5},
             draw={"height": lambda x, _: 2 + x.tanh()}),
    Operator(particle_density, _density, "R. Gingold and J. Monaghan, 1977", {"bodies": 9}),
    Operator(neighbour_statistics, _neighbours, "G. Corso et al., arXiv:2004.05718", {"graphs": 2, "nodes": 7, "wide": 5},
             draw={"edge": lambda x, _: (x > 0).float()}),
    Operator(compressed_interactions, _interactions, "J. Lian et al., arXiv:1803.05170", {"users": 3, "fields": 4, "hidden": 5, "deep": 6},
             draw={"weight": lambda x, s: x / s["fields"]}),
    Operator(mel_cepstrum, _cepstrum, "S. Davis and P. Mermelstein, 1980", {"frames": 5, "bands": 6, "kept": 4, "lines": 7},
             draw={"mel": lambda x, _: x.abs() / 10, "cosine": divided("bands")}),
    Operator(autocorrelation, _autocorrelation, "G. Yule, 1927", {"series": 3, "steps": 9, "lags": 4}),
    Operator(preconditioner_statistics, _statistics, "V. Gupta et al., arXiv:1802.09568", {"left": 5, "right": 7}),
]
