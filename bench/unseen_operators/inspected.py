"""Pictures, points, fields and samples: gradients of contrast, farthest points, quarks on a lattice, eddies, distances that correlate,
information, time with frequency, diffusion that stops at edges, holes in convolutions, norms of three kinds, streams mixed in balance."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, around_one, divided, widened

pairs, dim = Size("pairs", 1408), Size("dim", 512, fixed=True)
i, j, d, i2 = indices(i=pairs, j=pairs, d=dim, i2=pairs)


@nestor.nest
def clip_gradient(image: f16[pairs, dim], text: f16[pairs, dim]):
    """The gradient of CLIP's loss for the pictures: softmaxes of rows and columns, less the right pairs, times the texts."""
    score = define("score", (i, j), nestor.sum(image[i, d] * text[j, d], over=d) / 16)
    top, across = define("top", i, nestor.max(score[i, j], over=j)), define("across", j, nestor.max(score[i, j], over=i))
    total = define("total", i, nestor.sum(nestor.exp(score[i, j] - top[i]), over=j))
    whole = define("whole", j, nestor.sum(nestor.exp(score[i2, j] - across[j]), over=i2))
    share = nestor.exp(score[i, j] - top[i]) / total[i] + nestor.exp(score[i, j] - across[j]) / whole[j]
    wrong = define("wrong", (i, j), share - nestor.select(i == j, 2.0, 0.0))
    return define("out", (i, d), nestor.sum(wrong[i, j] * text[j, d], over=j) / 32)


def _clip_gradient(image, text):
    score = widened(image @ text.T) / 16
    wrong = torch.softmax(score, 1) + torch.softmax(score, 0) - 2 * torch.eye(len(score), device=score.device)
    return widened(wrong.to(text.dtype) @ text) / 32


clouds, points, picks = Size("clouds", 64), Size("points", 1024, fixed=True), Size("picks", 64)
c, p, p2, p3 = indices(c=clouds, p=points, p2=points, p3=points)
(k,) = indices(k=picks - 1)


@nestor.nest
def farthest_points(place: f32[clouds, 3, points]):
    """PointNet++: points that lie far apart, each the one that is farthest from all picked so far."""
    near = nestor.Tensor("near", f32, (picks, clouds, points))
    first = sum((place[c, axis, p] - place[c, axis, 0]) * (place[c, axis, p] - place[c, axis, 0]) for axis in range(3))
    near.write((c, p), (0, c, p), first)
    with nestor.steps(k):
        most = define("most", (k, c), nestor.max(near[k, c, p2], over=p2))
        at = [define(f"at_{axis}", (k, c), nestor.max(nestor.select(near[k, c, p3] >= most[k, c], place[c, axis, p3], -1e30), over=p3))
              for axis in range(3)]
        far = sum((place[c, axis, p] - at[axis][k, c]) * (place[c, axis, p] - at[axis][k, c]) for axis in range(3))
        near.write((k, c, p), (k + 1, c, p), nestor.minimum(near[k, c, p], far))
    return tuple(at)


def _farthest(place, picks):
    near, found = (place - place[:, :, :1]).square().sum(1), []
    for _ in range(picks - 1):
        at = near.argmax(1)
        found.append(place.gather(2, at[:, None, None].expand(-1, 3, 1)))
        near = torch.minimum(near, (place - found[-1]).square().sum(1))
    return tuple(torch.stack([one[:, axis, 0] for one in found]) for axis in range(3))


times, side = Size("times", 24), Size("side", 20)
t, z, y, x, a, b = indices(t=times, z=side, y=side, x=side, a=3, b=3)


@nestor.nest
def staggered_fermions(link_real: f32[4, times + 1, side + 1, side + 1, side + 1, 3, 3], link_imaginary: f32[4, times + 1, side + 1, side + 1, side + 1, 3, 3],
                       real: f32[times + 2, side + 2, side + 2, side + 2, 3], imaginary: f32[times + 2, side + 2, side + 2, side + 2, 3]):
    """Quarks on a lattice: differences along four axes, carried by complex matrices of three colours, adjoint on the way back."""
    out_real, out_imaginary = 0, 0
    for axis in range(4):
        at = (t, z, y, x)
        ahead = tuple(place + (2 if each == axis else 1) for each, place in enumerate(at))
        behind = tuple(place + (0 if each == axis else 1) for each, place in enumerate(at))
        here, back = tuple(place + 1 for place in at), tuple(place + (0 if each == axis else 1) for each, place in enumerate(at))
        u, v = link_real[axis, *here, a, b], link_imaginary[axis, *here, a, b]
        m, n = link_real[axis, *back, b, a], -link_imaginary[axis, *back, b, a]
        f, g, r, s = real[*ahead, b], imaginary[*ahead, b], real[*behind, b], imaginary[*behind, b]
        out_real = out_real + nestor.sum(u * f - v * g - m * r + n * s, over=b)
        out_imaginary = out_imaginary + nestor.sum(u * g + v * f - m * s - n * r, over=b)
    return define("out_real", (t, z, y, x, a), out_real / 2), define("out_imaginary", (t, z, y, x, a), out_imaginary / 2)


def _staggered(link_real, link_imaginary, real, imaginary):
    link, field = torch.complex(link_real, link_imaginary), torch.complex(real, imaginary)
    inner, out = slice(1, -1), 0
    for axis in range(4):
        def moved(tensor, low, high, axis=axis):
            return tensor[tuple(slice(low, tensor.shape[each] + high) if each == axis else slice(1, tensor.shape[each] + (-1 if tensor is field else 0)) for each in range(4))]
        ahead, behind = moved(field, 2, 0), moved(field, 0, -2)
        out = out + torch.einsum("tzyxab,tzyxb->tzyxa", link[axis][1:, 1:, 1:, 1:], ahead)
        out = out - torch.einsum("tzyxba,tzyxb->tzyxa", moved(link[axis], 0, -1).conj(), behind)
    return out.real / 2, out.imag / 2


deep, tall, broad = Size("deep", 128), Size("tall", 192), Size("broad", 192)
gz, gy, gx = indices(gz=deep, gy=tall, gx=broad)


@nestor.nest
def eddy_viscosity(wind: f32[3, deep + 2, tall + 2, broad + 2]):
    """Smagorinsky's model of small eddies: how fast a flow is strained, from central differences."""
    axes = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    slope = [[(wind[one, gz + 1 + step[0], gy + 1 + step[1], gx + 1 + step[2]] - wind[one, gz + 1 - step[0], gy + 1 - step[1], gx + 1 - step[2]]) / 2
              for step in axes] for one in range(3)]
    square = sum((slope[one][two] + slope[two][one]) * (slope[one][two] + slope[two][one]) for one in range(3) for two in range(3)) / 2
    return define("out", (gz, gy, gx), 0.0289 * nestor.sqrt(square + 1e-12))


def _eddy(wind):
    slope = torch.stack(torch.gradient(wind, dim=(1, 2, 3)), 1)[:, :, 1:-1, 1:-1, 1:-1]
    return 0.0289 * ((slope + slope.transpose(0, 1)).square().sum((0, 1)) / 2 + 1e-12).sqrt()


samples, left_axes, right_axes = Size("samples", 4096), Size("left_axes", 6), Size("right_axes", 3)
s, s2, s3, la, ra = indices(s=samples, s2=samples, s3=samples, la=left_axes, ra=right_axes)


@nestor.nest
def distance_correlation(one: f32[samples, left_axes], other: f32[samples, right_axes]):
    """Distance covariance and variances: distances of all pairs, less their rows' and columns' means, multiplied."""
    def centred(name, far):
        far = define(f"far_{name}", (s, s2), nestor.sqrt(far + 1e-9))
        row = define(f"row_{name}", s, nestor.sum(far[s, s2], over=s2) / samples)
        whole = define(f"whole_{name}", (), nestor.sum(row[s3], over=s3) / samples)
        return define(f"centred_{name}", (s, s2), far[s, s2] - row[s] - row[s2] + whole[()])
    first = centred("one", nestor.sum((one[s, la] - one[s2, la]) * (one[s, la] - one[s2, la]), over=la))
    second = centred("other", nestor.sum((other[s, ra] - other[s2, ra]) * (other[s, ra] - other[s2, ra]), over=ra))

    def both(name, left, right):
        return define(name, (), nestor.sum(left[s, s2] * right[s, s2], over=(s, s2)) / samples / samples)
    common, mine, yours = both("common", first, second), both("mine", first, first), both("yours", second, second)
    return define("out", (), common[()] * nestor.rsqrt(mine[()] * yours[()]))


def _distance_correlation(one, other):
    def centred(place):
        far = ((place[:, None] - place).square().sum(-1) + 1e-9).sqrt()
        return far - far.mean(0) - far.mean(1, keepdim=True) + far.mean()
    one, other = centred(one), centred(other)
    return (one * other).mean() * torch.rsqrt(one.square().mean() * other.square().mean())


scans, voxels, bins = Size("scans", 8), Size("voxels", 131072), Size("bins", 32, fixed=True)
sc, vo, u, v = indices(sc=scans, vo=voxels, u=bins, v=bins)


@nestor.nest
def mutual_information(fixed: f32[scans, voxels], moving: f32[scans, voxels]):
    """Registration of scans: soft histograms of two pictures' brightness together, and how much one tells of the other."""
    def share(name, picture, place):
        far = picture[sc, vo] * bins - nestor.cast(f32, place) - 0.5
        return define(name, (sc, vo, place), nestor.maximum(0.0, 1 - nestor.absolute(far) / 2) / 2)
    first, second = share("first", fixed, u), share("second", moving, v)
    joint = define("joint", (sc, u, v), nestor.sum(first[sc, vo, u] * second[sc, vo, v], over=vo) / voxels + 1e-6)
    row = define("row", (sc, u), nestor.sum(joint[sc, u, v], over=v))
    column = define("column", (sc, v), nestor.sum(joint[sc, u, v], over=u))
    return define("out", sc, nestor.sum(joint[sc, u, v] * nestor.log(joint[sc, u, v] / (row[sc, u] * column[sc, v])), over=(u, v)))


def _mutual(fixed, moving, bins):
    place = torch.arange(bins, device=fixed.device) + 0.5
    first, second = ((1 - (picture[..., None] * bins - place).abs() / 2).clamp(min=0) / 2 for picture in (fixed, moving))
    joint = first.transpose(1, 2) @ second / fixed.shape[1] + 1e-6
    return (joint * torch.log(joint / (joint.sum(2, keepdim=True) * joint.sum(1, keepdim=True)))).sum((1, 2))


sounds, ticks, tones = Size("sounds", 8), Size("ticks", 4096), Size("tones", 128)
so, ti, to, la_ = indices(so=sounds, ti=ticks, to=tones, la_=128)


@nestor.nest
def wigner_distribution(sound: f32[sounds, ticks + 256], window: f32[128], cosine: f32[tones, 128]):
    """Time and frequency at once: a sound times itself mirrored about each moment, then waves over the distance."""
    mirrored = window[la_] * sound[so, ti + 128 + la_] * sound[so, ti + 128 - la_]
    return define("out", (so, ti, to), nestor.sum(mirrored * cosine[to, la_], over=la_))


def _wigner(sound, window, cosine):
    ahead = sound[:, 128:].unfold(1, 128, 1)[:, :sound.shape[1] - 256]
    behind = sound[:, 1:].unfold(1, 128, 1)[:, :sound.shape[1] - 256].flip(2)
    return (window * ahead * behind) @ cosine.T


pictures, high, width, rounds = Size("pictures", 8), Size("high", 512), Size("width", 512), Size("rounds", 8)
pi, ro, co = indices(pi=pictures, ro=high, co=width)
ri, ci, n = indices(ri=high - 2, ci=width - 2, n=rounds)


@nestor.nest
def perona_malik(picture: f32[pictures, high, width]):
    """Diffusion that stops at edges, eight steps of it; the border stays."""
    state = nestor.Tensor("state", f32, (rounds + 1, pictures, high, width))
    state.write((pi, ro, co), (0, pi, ro, co), picture[pi, ro, co])
    with nestor.steps(n):
        here = state[n, pi, ri + 1, ci + 1]
        moved = 0
        for up, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            slope = state[n, pi, ri + 1 + up, ci + 1 + right] - here
            moved = moved + slope * nestor.exp(-4 * slope * slope)
        border = (ro == 0) | (ro == high - 1) | (co == 0) | (co == width - 1)
        state.write((n, pi, ri, ci), (n + 1, pi, ri + 1, ci + 1), here + 0.2 * moved)
        state.write((n, pi, ro, co), (n + 1, pi, ro, co), state[n, pi, ro, co], where=border)
    return define("out", (pi, ro, co), state[rounds, pi, ro, co])


def _perona(picture, rounds):
    for _ in range(rounds):
        here = picture[:, 1:-1, 1:-1]
        slopes = (picture[:, :-2, 1:-1] - here, picture[:, 2:, 1:-1] - here, picture[:, 1:-1, :-2] - here, picture[:, 1:-1, 2:] - here)
        moved = sum(slope * torch.exp(-4 * slope * slope) for slope in slopes)
        picture = picture.clone()
        picture[:, 1:-1, 1:-1] = here + 0.2 * moved
    return picture


masks, lines, columns = Size("masks", 16), Size("lines", 256), Size("columns", 256)
ma, li, li2, cl, cl2 = indices(ma=masks, li=lines, li2=lines, cl=columns, cl2=columns)


@nestor.nest
def distance_transform(cost: f32[masks, lines, columns]):
    """How far the nearest thing is from each pixel, squared: the least of parabolas, along lines and then across."""
    def square(one, other):
        return nestor.cast(f32, (one - other)) * nestor.cast(f32, (one - other))
    along = define("along", (ma, li, cl), nestor.min(cost[ma, li, cl2] + square(cl, cl2), over=cl2))
    return define("out", (ma, li, cl), nestor.min(along[ma, li2, cl] + square(li, li2), over=li2))


def _transform(cost):
    def squares(extent):
        place = torch.arange(extent, device=cost.device, dtype=cost.dtype)
        return (place[:, None] - place).square()
    along = (cost[:, :, None] + squares(cost.shape[2])).amin(-1)
    return (along.transpose(1, 2)[:, :, None] + squares(cost.shape[1])).amin(-1).transpose(1, 2)


batch, ins, outs, edge = Size("batch", 16), Size("ins", 64), Size("outs", 96), Size("edge", 56)
ba, ic, oc, ey, ex, dy, dx = indices(ba=batch, ic=ins, oc=outs, ey=edge, ex=edge, dy=3, dx=3)


@nestor.nest
def partial_conv(x: f16[batch, ins, edge + 2, edge + 2], mask: f16[batch, edge + 2, edge + 2], weight: f16[outs, ins, 3, 3], bias: f32[outs]):
    """Convolution with holes: only what the mask shows counts, in proportion to how much of it there is."""
    seen = define("seen", (ba, ey, ex), nestor.sum(mask[ba, ey + dy, ex + dx], over=(dy, dx)))
    total = nestor.sum(x[ba, ic, ey + dy, ex + dx] * mask[ba, ey + dy, ex + dx] * weight[oc, ic, dy, dx], over=(ic, dy, dx))
    value = total * (9 / nestor.maximum(seen[ba, ey, ex], 1.0)) + bias[oc]
    return define("out", (ba, oc, ey, ex), nestor.select(seen[ba, ey, ex] > 0, value, 0.0), type=f16)


def _partial(x, mask, weight, bias):
    seen = F.conv2d(widened(mask)[:, None], torch.ones_like(weight[:1, :1]).to(widened(mask).dtype))
    total = widened(F.conv2d(x * mask[:, None], weight))
    return torch.where(seen > 0, total * (9 / seen.clamp(min=1)) + bias[:, None, None], 0.0).to(x.dtype)


many, kinds, long = Size("many", 32), Size("kinds", 128), Size("long", 3136)
m, q, l, m2, q2, l2 = indices(m=many, q=kinds, l=long, m2=many, q2=kinds, l2=long)


@nestor.nest
def switchable_norm(x: f32[many, kinds, long], share: f32[3], deviation: f32[3], gain: f32[kinds], shift: f32[kinds]):
    """A mix of three norms: means and variances of a map, of a picture and of a channel over all pictures, by learned shares."""
    mean = define("mean", (m, q), nestor.sum(x[m, q, l], over=l) / long)
    square = define("square", (m, q), nestor.sum(x[m, q, l] * x[m, q, l], over=l) / long)
    layer, layer_square = define("layer", m, nestor.sum(mean[m, q], over=q) / kinds), define("layer_square", m, nestor.sum(square[m, q], over=q) / kinds)
    batch_mean = define("batch_mean", q, nestor.sum(mean[m, q], over=m) / many)
    batch_square = define("batch_square", q, nestor.sum(square[m, q], over=m) / many)
    middle = define("middle", (m, q), share[0] * mean[m, q] + share[1] * layer[m] + share[2] * batch_mean[q])
    spread = define("spread", (m, q), deviation[0] * (square[m, q] - mean[m, q] * mean[m, q]) + deviation[1] * (layer_square[m] - layer[m] * layer[m])
                    + deviation[2] * (batch_square[q] - batch_mean[q] * batch_mean[q]))
    return define("out", (m, q, l), (x[m, q, l] - middle[m, q]) * nestor.rsqrt(spread[m, q] + 1e-5) * gain[q] + shift[q])


def _switchable(x, share, deviation, gain, shift):
    means = [x.mean(axes, keepdim=True) for axes in (2, (1, 2), (0, 2))]
    spreads = [x.var(axes, keepdim=True, unbiased=False) for axes in (2, (1, 2), (0, 2))]
    middle, spread = sum(s * mean for s, mean in zip(share, means)), sum(s * one for s, one in zip(deviation, spreads))
    return (x - middle) * torch.rsqrt(spread + 1e-5) * gain[:, None] + shift[:, None]


tokens, streams, wide = Size("tokens", 4096), Size("streams", 4), Size("wide", 1024)
tk, st, st2, st3, w = indices(tk=tokens, st=streams, st2=streams, st3=streams, w=wide)
(again,) = indices(again=20)


@nestor.nest
def balanced_streams(x: bf16[tokens, streams, wide], mix: f32[tokens, streams, streams]):
    """Hyper-connections on a manifold: how four residual streams mix is made doubly stochastic by twenty rounds of Sinkhorn and Knopp."""
    share = nestor.Tensor("share", f32, (21, tokens, streams, streams))
    share.write((tk, st, st2), (0, tk, st, st2), nestor.exp(mix[tk, st, st2]))
    with nestor.steps(again):
        row = define("row", (again, tk, st), nestor.sum(share[again, tk, st, st3], over=st3))
        column = define("column", (again, tk, st2), nestor.sum(share[again, tk, st3, st2] / row[again, tk, st3], over=st3))
        share.write((again, tk, st, st2), (again + 1, tk, st, st2), share[again, tk, st, st2] / row[again, tk, st] / column[again, tk, st2])
    return define("out", (tk, st, w), nestor.sum(share[20, tk, st, st3] * x[tk, st3, w], over=st3), type=bf16)


def _balanced(x, mix):
    share = torch.exp(mix)
    for _ in range(20):
        share = share / share.sum(2, keepdim=True)
        share = share / share.sum(1, keepdim=True)
    return (share.to(x.dtype) @ x) if x.element_size() == 2 else share @ x


def _brightness(x, _):
    """Draws numbers from 0 to 1."""
    return torch.sigmoid(x)


def _shares(x, _):
    return torch.softmax(x, 0)


OPERATORS = [
    Operator(clip_gradient, _clip_gradient, "A. Radford et al., CLIP, arXiv:2103.00020", {"pairs": 7, "dim": 16}),
    Operator(farthest_points, _farthest, "C. Qi et al., PointNet++, arXiv:1706.02413", {"clouds": 2, "points": 16, "picks": 5}, told=("picks",)),
    Operator(staggered_fermions, _staggered, "J. Kogut and L. Susskind, 1975", {"times": 3, "side": 2}),
    Operator(eddy_viscosity, _eddy, "J. Smagorinsky, 1963", {"deep": 3, "tall": 4, "broad": 5}),
    Operator(distance_correlation, _distance_correlation, "G. Székely et al., 2007", {"samples": 7, "left_axes": 3, "right_axes": 2}),
    Operator(mutual_information, _mutual, "D. Mattes et al., 2003", {"scans": 2, "voxels": 23, "bins": 8}, told=("bins",),
             draw={"fixed": _brightness, "moving": _brightness}),
    Operator(wigner_distribution, _wigner, "E. Wigner, 1932; T. Claasen and W. Mecklenbräuker, 1980", {"sounds": 2, "ticks": 9, "tones": 5},
             draw={"cosine": lambda x, _: torch.tanh(x) / 11}),
    Operator(perona_malik, _perona, "P. Perona and J. Malik, 1990", {"pictures": 2, "high": 6, "width": 7, "rounds": 2}, told=("rounds",)),
    Operator(distance_transform, _transform, "P. Felzenszwalb and D. Huttenlocher, 2012", {"masks": 2, "lines": 7, "columns": 9},
             draw={"cost": lambda x, _: 100 * (x > 0).float()}),
    Operator(partial_conv, _partial, "G. Liu et al., arXiv:1804.07723", {"batch": 2, "ins": 4, "outs": 5, "edge": 5},
             draw={"mask": lambda x, _: (x > -0.5).float(), "weight": lambda x, s: x / (3 * s["ins"]**0.5)}),
    Operator(switchable_norm, _switchable, "P. Luo et al., arXiv:1806.10779", {"many": 3, "kinds": 4, "long": 11},
             draw={"share": _shares, "deviation": _shares, "gain": around_one}),
    Operator(balanced_streams, _balanced, "Z. Xie et al., Manifold-constrained hyper-connections, arXiv:2512.24880", {"tokens": 3, "streams": 4, "wide": 9}),
]
