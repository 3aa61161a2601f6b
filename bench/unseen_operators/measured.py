"""What sciences measure and solve, unlike what the other modules hold: costs of matching, pitch, gradients of what rays see, elastic waves, angles between
neighbours, distances in bulk, triples of orbitals, variances of processes, exponentials of matrices, folded strands, uneven Fourier sums, sources apart."""

import torch

import nestor
from nestor import Size, define, f16, f32, i32, indices

from .problem import Operator, divided, widened

batch, queries, targets, kinds = Size("batch", 16), Size("queries", 900), Size("targets", 120), Size("kinds", 91)
b, q, t, c = indices(b=batch, q=queries, t=targets, c=kinds)


@nestor.nest
def matching_cost(logit: f16[batch, queries, kinds], box: f32[batch, queries, 4], label: i32[batch, targets], goal: f32[batch, targets, 4]):
    """DETR: what it costs to take each prediction for each thing: of its kind, of its corners, and of how little both boxes share."""
    top = define("top", (b, q), nestor.max(logit[b, q, c], over=c))
    total = define("total", (b, q), nestor.sum(nestor.exp(logit[b, q, c] - top[b, q]), over=c))
    chosen = nestor.sum(nestor.select(nestor.cast(i32, c) == label[b, t], nestor.exp(logit[b, q, c] - top[b, q]), 0.0), over=c)
    one, two = [box[b, q, n] for n in range(4)], [goal[b, t, n] for n in range(4)]
    apart = sum(nestor.absolute(first - second) for first, second in zip(one, two))

    def corners(at):
        return at[0] - at[2] / 2, at[1] - at[3] / 2, at[0] + at[2] / 2, at[1] + at[3] / 2
    (l1, u1, r1, d1), (l2, u2, r2, d2) = corners(one), corners(two)
    shared = nestor.maximum(nestor.minimum(r1, r2) - nestor.maximum(l1, l2), 0.0) * nestor.maximum(nestor.minimum(d1, d2) - nestor.maximum(u1, u2), 0.0)
    union = one[2] * one[3] + two[2] * two[3] - shared
    around = (nestor.maximum(r1, r2) - nestor.minimum(l1, l2)) * (nestor.maximum(d1, d2) - nestor.minimum(u1, u2))
    alike = shared / union - (around - union) / around
    return define("out", (b, q, t), 5 * apart - chosen / total[b, q] - 2 * alike)


def _matching(logit, box, label, goal):
    share = torch.softmax(widened(logit), 2)
    chosen = torch.gather(share, 2, label.long()[:, None].expand(-1, share.shape[1], -1))
    one, two = box[:, :, None], goal[:, None]
    (l1, l2), (h1, h2) = ([x[..., :2] + side * x[..., 2:] / 2 for x in (one, two)] for side in (-1, 1))
    shared = (torch.minimum(h1, h2) - torch.maximum(l1, l2)).clamp(min=0).prod(-1)
    union = one[..., 2] * one[..., 3] + two[..., 2] * two[..., 3] - shared
    around = (torch.maximum(h1, h2) - torch.minimum(l1, l2)).prod(-1)
    return 5 * (one - two).abs().sum(-1) - chosen - 2 * (shared / union - (around - union) / around)


frames, window, lags = Size("frames", 2048), Size("window", 1024), Size("lags", 512)
f, n, g, g2 = indices(f=frames, n=window, g=lags, g2=lags)


@nestor.nest
def yin_pitch(sound: f32[256 * frames + window + lags]):
    """YIN: how much each window differs from itself later, relative to the mean over shorter lags. The lag of entry g is g + 1."""
    step = sound[256 * f + n] - sound[256 * f + n + g + 1]
    apart = define("apart", (f, g), nestor.sum(step * step, over=n))
    so_far = nestor.sum(apart[f, g2], over=g2, where=g2 <= g)
    return define("out", (f, g), apart[f, g] * nestor.cast(f32, g + 1) / (so_far + 1e-6))


def _yin(sound, frames, window, lags):
    pieces = sound.unfold(0, window + lags, 256)[:frames]
    squares = torch.cat([torch.zeros_like(pieces[:, :1]), pieces.square()], 1).cumsum(1)
    energy = squares[:, window:] - squares[:, :lags + 1]
    size = 2 * (window + lags)
    both = torch.fft.irfft(torch.fft.rfft(pieces, size) * torch.fft.rfft(pieces[:, :window], size).conj(), size)[:, 1:lags + 1]
    apart = energy[:, :1] + energy[:, 1:] - 2 * both
    return apart * torch.arange(1, lags + 1, device=sound.device) / (apart.cumsum(1) + 1e-6)


rays, samples = Size("rays", 32768), Size("samples", 192)
r, s, s2, rgb = indices(r=rays, s=samples, s2=samples, rgb=3)


@nestor.nest
def rendering_gradient(density: f32[rays, samples], reach: f32[rays, samples], colour: f32[rays, samples, 3], grad: f32[rays, 3]):
    """NeRF backward: of densities, through what each sample shows and what it hides behind it, and of colours."""
    before = define("before", (r, s), nestor.sum(density[r, s2] * reach[r, s2], over=s2, where=s2 < s))
    clear = define("clear", (r, s), nestor.exp(-before[r, s]))
    weight = define("weight", (r, s), clear[r, s] * (1 - nestor.exp(-density[r, s] * reach[r, s])))
    worth = define("worth", (r, s), sum(grad[r, n] * colour[r, s, n] for n in range(3)))
    behind = define("behind", (r, s), nestor.sum(weight[r, s2] * worth[r, s2], over=s2, where=s2 > s))
    return (define("d_density", (r, s), reach[r, s] * ((clear[r, s] - weight[r, s]) * worth[r, s] - behind[r, s])),
            define("d_colour", (r, s, rgb), weight[r, s] * grad[r, rgb]))


def _rendering(density, reach, colour, grad):
    depth = density * reach
    before = depth.cumsum(1) - depth
    clear = torch.exp(-before)
    weight = clear * (1 - torch.exp(-depth))
    worth = (colour * grad[:, None]).sum(2)
    shown = weight * worth
    behind = shown.sum(1, keepdim=True) - shown.cumsum(1)
    return reach * ((clear - weight) * worth - behind), weight[..., None] * grad[:, None]


deep, tall, broad = Size("deep", 180), Size("tall", 200), Size("broad", 208)
z, y, x = indices(z=deep, y=tall, x=broad)


@nestor.nest
def elastic_step(speed: f32[3, deep, tall, broad], stress: f32[6, deep + 4, tall + 4, broad + 4], light: f32[deep, tall, broad], step=0.1):
    """Elastic waves: speeds move by how stresses change, on grids that stand half a step apart, with differences of fourth order."""
    def slope(part, axis, ahead):
        def at(far):
            place = [z + 2, y + 2, x + 2]
            place[axis] = place[axis] + far
            return stress[(part, *place)]
        return 1.125 * (at(ahead) - at(ahead - 1)) - (at(ahead + 1) - at(ahead - 2)) / 24
    forces = (slope(0, 2, 1) + slope(3, 1, 0) + slope(4, 0, 0), slope(3, 2, 0) + slope(1, 1, 1) + slope(5, 0, 0),
              slope(4, 2, 0) + slope(5, 1, 0) + slope(2, 0, 1))
    return tuple(define(f"speed_{n}", (z, y, x), speed[n, z, y, x] + step * light[z, y, x] * force) for n, force in enumerate(forces))


def _elastic(speed, stress, light):
    def slope(part, axis, ahead):
        inner = [slice(2, -2)] * 3

        def at(far):
            inner[axis] = slice(2 + far, stress.shape[axis + 1] - 2 + far)
            return stress[(part, *inner)]
        return 1.125 * (at(ahead) - at(ahead - 1)) - (at(ahead + 1) - at(ahead - 2)) / 24
    forces = (slope(0, 2, 1) + slope(3, 1, 0) + slope(4, 0, 0), slope(3, 2, 0) + slope(1, 1, 1) + slope(5, 0, 0),
              slope(4, 2, 0) + slope(5, 1, 0) + slope(2, 0, 1))
    return tuple(one + 0.1 * light * force for one, force in zip(speed, forces))


atoms, near, shapes = Size("atoms", 8192), Size("near", 32), Size("shapes", 8)
a, j, k, m = indices(a=atoms, j=near, k=near, m=shapes)


@nestor.nest
def angular_symmetry(way: f32[atoms, near, 3], sharp: f32[shapes], wide: f32[shapes], sign: f32[shapes], reach=6.0):
    """Behler and Parrinello: each atom's surroundings by the angles and sides of all triangles with two of its neighbours."""
    square = define("square", (a, j), sum(way[a, j, n] * way[a, j, n] for n in range(3)))
    far = define("far", (a, j), nestor.sqrt(square[a, j]))
    cut = define("cut", (a, j), nestor.select(far[a, j] < reach, 0.5 * nestor.cos(3.14159265 * far[a, j] / reach) + 0.5, 0.0))
    dot = sum(way[a, j, n] * way[a, k, n] for n in range(3))
    cosine = dot / (far[a, j] * far[a, k])
    third = nestor.maximum(square[a, j] + square[a, k] - 2 * dot, 1e-6)
    close = nestor.select(third < reach * reach, 0.5 * nestor.cos(3.14159265 * nestor.sqrt(third) / reach) + 0.5, 0.0)
    angle = nestor.maximum(1 + sign[m] * cosine, 1e-6) / 2
    term = nestor.exp(sharp[m] * nestor.log(angle) - wide[m] * (square[a, j] + square[a, k] + third))
    return define("out", (a, m), 2 * nestor.sum(term * cut[a, j] * cut[a, k] * close, over=(j, k), where=j < k))


def _angular(way, sharp, wide, sign):
    square = way.square().sum(2)
    far = square.sqrt()

    def cut(far):
        return torch.where(far < 6, 0.5 * torch.cos(3.14159265 * far / 6) + 0.5, 0.0)
    dot = way @ way.mT
    cosine = dot / (far[:, :, None] * far[:, None])
    sides = square[:, :, None] + square[:, None]
    third = (sides - 2 * dot).clamp(min=1e-6)
    whole = torch.triu(cut(far)[:, :, None] * cut(far)[:, None] * cut(third.sqrt()), 1)
    angle = (1 + sign * cosine[..., None]).clamp(min=1e-6) / 2
    return 2 * (torch.exp(sharp * angle.log() - wide * (sides + third)[..., None]) * whole[..., None]).sum((1, 2))


bodies, bins = Size("bodies", 4096), Size("bins", 64)
p, p2, bi = indices(p=bodies, p2=bodies, bi=bins)


@nestor.nest
def radial_distribution(place: f32[3, bodies]):
    """A fluid's structure: how many pairs of atoms lie how far apart, in a box that repeats."""
    steps = [place[n, p] - place[n, p2] for n in range(3)]
    steps = [step - nestor.floor(step + 0.5) for step in steps]
    far = nestor.sqrt(steps[0] * steps[0] + steps[1] * steps[1] + steps[2] * steps[2])
    bin_ = define("bin", (p, p2), nestor.cast(i32, 2 * bins * far), where=p < p2)
    return define("out", bi, nestor.sum(nestor.select(bin_[p, p2] == nestor.cast(i32, bi), 1, 0), over=(p, p2), where=p < p2))


def _radial(place, bins):
    one, two = torch.triu_indices(place.shape[1], place.shape[1], 1, device=place.device)
    steps = place[:, one] - place[:, two]
    far = (steps - torch.floor(steps + 0.5)).square().sum(0).sqrt()
    return torch.bincount((2 * bins * far).int(), minlength=bins)[:bins].int()


empty = Size("empty", 144)
e1, e2, e3, e4 = indices(e1=empty, e2=empty, e3=empty, e4=empty)


@nestor.nest
def triples_energy(field: f32[3, empty, empty, empty], pair: f32[3, 3, empty, empty], low: f32[3], high: f32[empty]):
    """CCSD(T), the triples of three electrons: six products whose results have their orbitals in all orders, and an energy that reads them so."""
    where = (e1, e2, e3)
    orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    parts = []
    for one, two, three in orders:
        to = (where[one], where[two], where[three])
        parts.append(nestor.sum(field[one, to[0], to[1], e4] * pair[three, two, to[2], e4], over=e4))
    moved = define("moved", where, sum(parts))
    mixed = 4 * moved[e1, e2, e3] + moved[e2, e3, e1] + moved[e3, e1, e2] - 2 * (moved[e3, e2, e1] + moved[e1, e3, e2] + moved[e2, e1, e3])
    gap = low[0] + low[1] + low[2] - high[e1] - high[e2] - high[e3]
    return define("out", (), nestor.sum(moved[e1, e2, e3] * mixed / gap, over=(e1, e2, e3)) / 3)


def _triples(field, pair, low, high):
    moved = 0
    for one, two, three in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        back = [(one, two, three).index(n) for n in range(3)]
        moved = moved + (field[one] @ pair[three, two].T).permute(back)
    mixed = 4 * moved + moved.permute(2, 0, 1) + moved.permute(1, 2, 0) - 2 * (moved.permute(2, 1, 0) + moved.permute(0, 2, 1) + moved.permute(1, 0, 2))
    gap = low.sum() - high[:, None, None] - high[:, None] - high
    return (moved * mixed / gap).sum() / 3


places, anchors, axes = Size("places", 16384), Size("anchors", 512), Size("axes", 8, fixed=True)
pl, an, an2, ax = indices(pl=places, an=anchors, an2=anchors, ax=axes)


@nestor.nest
def process_variance(place: f32[places, axes], anchor: f32[anchors, axes], inverse: f32[anchors, anchors], weight: f32[anchors]):
    """A sparse Gaussian process predicts: a mean, and how sure it is by the inverse of a triangular factor."""
    far = nestor.sum((place[pl, ax] - anchor[an, ax]) * (place[pl, ax] - anchor[an, ax]), over=ax)
    alike = define("alike", (pl, an), nestor.exp(-far / 2))
    white = define("white", (pl, an), nestor.sum(inverse[an, an2] * alike[pl, an2], over=an2, where=an2 <= an))
    return (define("out", pl, nestor.sum(alike[pl, an] * weight[an], over=an)),
            define("variance", pl, 1 - nestor.sum(white[pl, an] * white[pl, an], over=an)))


def _process(place, anchor, inverse, weight):
    alike = torch.exp(-torch.cdist(place, anchor).square() / 2)
    return alike @ weight, 1 - (alike @ inverse.tril().T).square().sum(1)


many, side = Size("many", 65536), Size("side", 8, fixed=True)
ma, i1, i2, i3 = indices(ma=many, i1=side, i2=side, i3=side)


@nestor.nest
def matrix_exponential(x: f32[many, side, side]):
    """Exponentials of small matrices: a series of six terms of an eighth, squared three times."""
    part = define("series_6", (ma, i1, i2), nestor.select(i1 == i2, 1.0, 0.0) + x[ma, i1, i2] / 48)
    for order in (5, 4, 3, 2, 1):
        total = nestor.sum(x[ma, i1, i3] * part[ma, i3, i2], over=i3) / (8 * order)
        part = define(f"series_{order}", (ma, i1, i2), nestor.select(i1 == i2, 1.0, 0.0) + total)
    for round_ in range(3):
        part = define("out" if round_ == 2 else f"square_{round_}", (ma, i1, i2), nestor.sum(part[ma, i1, i3] * part[ma, i3, i2], over=i3))
    return part


def _exponential(x):
    one = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    part = one + x / 48
    for order in (5, 4, 3, 2, 1):
        part = one + x @ part / (8 * order)
    for _ in range(3):
        part = part @ part
    return part


strands, bases = Size("strands", 256), Size("bases", 96)
sd, at, sp, cu = indices(sd=strands, at=bases, sp=bases - 1, cu=bases)


@nestor.nest
def strand_folding(worth: f32[strands, bases, bases]):
    """Nussinov: how well strands fold, from short pieces to long ones; a piece's ends pair, or it is cut in two."""
    best = nestor.Tensor("best", f32, (bases, strands, bases))  # of a piece's length less one, and its start
    best.write((sd, at), (0, sd, at), 0.0)
    with nestor.steps(sp):
        inside = nestor.select(sp >= 1, best[sp - 1, sd, at + 1], 0.0)
        cut = define("cut", (sp, sd, at), nestor.max(best[cu, sd, at] + best[sp - cu, sd, at + cu + 1], over=cu, where=cu <= sp), where=at < bases - 1 - sp)
        best.write((sp, sd, at), (sp + 1, sd, at), nestor.maximum(cut[sp, sd, at], inside + worth[sd, at, at + sp + 1]), where=at < bases - 1 - sp)
    return define("out", sd, best[bases - 1, sd, 0])


def _folding(worth):
    size = worth.shape[1]
    best = [worth.new_zeros(worth.shape[:2])]
    for span in range(size - 1):
        places = torch.arange(size - 1 - span, device=worth.device)
        cut = torch.stack([best[one][:, :size - 1 - span] + best[span - one][:, one + 1:one + size - span] for one in range(span + 1)]).amax(0)
        inside = best[span - 1][:, 1:size - span] if span else torch.zeros_like(cut)
        best.append(torch.maximum(cut, inside + worth[:, places, places + span + 1]))
    return best[-1][:, 0]


spots, waves = Size("spots", 16000), Size("waves", 4096)
so, wa = indices(so=spots, wa=waves)


@nestor.nest
def uneven_fourier(place: f32[spots, 2], wave: f32[waves, 2], real: f32[spots], imaginary: f32[spots]):
    """Fourier sums at uneven places, as radial scans need them, by their definition."""
    turn = place[so, 0] * wave[wa, 0] + place[so, 1] * wave[wa, 1]
    return (define("out_real", wa, nestor.sum(real[so] * nestor.cos(turn) + imaginary[so] * nestor.sin(turn), over=so)),
            define("out_imaginary", wa, nestor.sum(imaginary[so] * nestor.cos(turn) - real[so] * nestor.sin(turn), over=so)))


def _uneven(place, wave, real, imaginary):
    turn = wave[:, :1] * place[:, 0] + wave[:, 1:] * place[:, 1]
    cosine, sine = turn.cos(), turn.sin()
    return (real * cosine + imaginary * sine).sum(1), (imaginary * cosine - real * sine).sum(1)


draws, parts = Size("draws", 131072), Size("parts", 48)
dr, pa, pb, pc = indices(dr=draws, pa=parts, pb=parts, pc=parts)


@nestor.nest
def independent_components(x: f32[draws, parts], weight: f32[parts, parts]):
    """FastICA: each direction moves toward where what it sees is least normal, by a step of Newton's."""
    seen = define("seen", (dr, pa), nestor.tanh(nestor.sum(x[dr, pb] * weight[pa, pb], over=pb)))
    flat = define("flat", pa, nestor.sum(1 - seen[dr, pa] * seen[dr, pa], over=dr) / draws)
    return define("out", (pa, pc), nestor.sum(seen[dr, pa] * x[dr, pc], over=dr) / draws - flat[pa] * weight[pa, pc])


def _components(x, weight):
    seen = torch.tanh(x @ weight.T)
    return seen.T @ x / len(x) - (1 - seen.square()).mean(0)[:, None] * weight


def _unit(x, _):
    """Draws numbers from 0 to 1."""
    return torch.sigmoid(x)


def _shorter(x, _):
    return 1.5 * x


OPERATORS = [
    Operator(matching_cost, _matching, "N. Carion et al., DETR, arXiv:2005.12872", {"batch": 2, "queries": 7, "targets": 3, "kinds": 5},
             draw={"box": lambda x, _: 0.1 + 0.8 * torch.sigmoid(x), "goal": lambda x, _: 0.1 + 0.8 * torch.sigmoid(x),
                   "label": lambda x, sizes: (x.abs() * 30) % sizes["kinds"]}),
    Operator(yin_pitch, _yin, "A. de Cheveigné and H. Kawahara, 2002", {"frames": 3, "window": 11, "lags": 5}, told=("frames", "window", "lags")),
    Operator(rendering_gradient, _rendering, "B. Mildenhall et al., NeRF, arXiv:2003.08934", {"rays": 3, "samples": 7},
             draw={"density": lambda x, _: x.abs(), "reach": lambda x, _: 0.02 + 0.01 * torch.sigmoid(x)}),
    Operator(elastic_step, _elastic, "J. Virieux, 1986; A. Levander, 1988", {"deep": 3, "tall": 4, "broad": 5}, draw={"light": _unit}),
    Operator(angular_symmetry, _angular, "J. Behler and M. Parrinello, 2007", {"atoms": 3, "near": 5, "shapes": 4},
             draw={"way": _shorter, "sharp": lambda x, _: 1 + 4 * torch.sigmoid(x), "wide": lambda x, _: 0.01 * torch.sigmoid(x),
                   "sign": lambda x, _: torch.where(x > 0, 1.0, -1.0)}),
    Operator(radial_distribution, _radial, "M. Allen and D. Tildesley, 1987", {"bodies": 9, "bins": 5}, told=("bins",), draw={"place": _unit}),
    Operator(triples_energy, _triples, "K. Raghavachari et al., 1989; A. Rendell and T. Lee, 1991", {"empty": 5},
             draw={"pair": divided("empty"), "low": lambda x, _: -1 - torch.sigmoid(x), "high": lambda x, _: 1 + torch.sigmoid(x)}),
    Operator(process_variance, _process, "M. Titsias, 2009", {"places": 7, "anchors": 5, "axes": 3},
             draw={"inverse": lambda x, sizes: torch.eye(len(x), device=x.device) * 0.5 + 0.1 * x / len(x)**0.5}),
    Operator(matrix_exponential, _exponential, "C. Moler and C. Van Loan, 1978", {"many": 3, "side": 4}, draw={"x": divided("side")}),
    Operator(strand_folding, _folding, "R. Nussinov and A. Jacobson, 1980", {"strands": 2, "bases": 9},
             draw={"worth": lambda x, _: x.clamp(min=0)}),
    Operator(uneven_fourier, _uneven, "A. Dutt and V. Rokhlin, 1993", {"spots": 11, "waves": 5}, draw={"wave": lambda x, _: 10 * x}),
    Operator(independent_components, _components, "A. Hyvärinen, 1999", {"draws": 13, "parts": 5}, draw={"weight": divided("parts")}),
]
