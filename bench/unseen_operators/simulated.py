"""What people simulate and estimate: phases, spectral elements, three bodies, matrix product states, transport, rays, prices, sound, quantised columns."""

import math

import torch

import nestor
from nestor import Size, define, f16, f32, indices

from .problem import Operator, divided, widened

side = Size("side", 256)
z, y, x, gz, gy, gx = indices(z=side, y=side, x=side, gz=side + 2, gy=side + 2, gx=side + 2)


def _around(field, at):
    """A field's Laplacian."""
    a, b, c = at
    return (field[a - 1, b, c] + field[a + 1, b, c] + field[a, b - 1, c] + field[a, b + 1, c] + field[a, b, c - 1] + field[a, b, c + 1]
            - 6 * field[a, b, c])


@nestor.nest
def phase_field_step(phase: f32[side + 4, side + 4, side + 4]):
    """Cahn and Hilliard: a potential that needs the phase's Laplacian, and a step by the potential's."""
    at = (gz + 1, gy + 1, gx + 1)
    now = phase[at]
    potential = define("potential", (gz, gy, gx), now * now * now - now - 0.5 * _around(phase, at))
    return define("out", (z, y, x), phase[z + 2, y + 2, x + 2] + 0.01 * _around(potential, (z + 1, y + 1, x + 1)))


def _bent(field):
    mid = field[1:-1, 1:-1, 1:-1]
    return (field[:-2, 1:-1, 1:-1] + field[2:, 1:-1, 1:-1] + field[1:-1, :-2, 1:-1] + field[1:-1, 2:, 1:-1] + field[1:-1, 1:-1, :-2]
            + field[1:-1, 1:-1, 2:] - 6 * mid)


def _phase(phase):
    mid = phase[1:-1, 1:-1, 1:-1]
    return phase[2:-2, 2:-2, 2:-2] + 0.01 * _bent(mid**3 - mid - 0.5 * _bent(phase))


elements, points = Size("elements", 8192), Size("points", 8, fixed=True)
e, i, j, k, l = indices(e=elements, i=points, j=points, k=points, l=points)


@nestor.nest
def spectral_elements(field: f32[elements, points, points, points], slope: f32[points, points], metric: f32[6, elements, points, points, points]):
    """Nekbone's product without a matrix: slopes along three axes, a symmetric metric at each point, and the slopes' transposes."""
    at = (e, k, j, i)
    r = define("r", at, nestor.sum(slope[i, l] * field[e, k, j, l], over=l))
    s = define("s", at, nestor.sum(slope[j, l] * field[e, k, l, i], over=l))
    t = define("t", at, nestor.sum(slope[k, l] * field[e, l, j, i], over=l))
    fr = define("fr", at, metric[0, e, k, j, i] * r[at] + metric[1, e, k, j, i] * s[at] + metric[2, e, k, j, i] * t[at])
    fs = define("fs", at, metric[1, e, k, j, i] * r[at] + metric[3, e, k, j, i] * s[at] + metric[4, e, k, j, i] * t[at])
    ft = define("ft", at, metric[2, e, k, j, i] * r[at] + metric[4, e, k, j, i] * s[at] + metric[5, e, k, j, i] * t[at])
    return define("out", at, nestor.sum(slope[l, i] * fr[e, k, j, l], over=l) + nestor.sum(slope[l, j] * fs[e, k, l, i], over=l)
                  + nestor.sum(slope[l, k] * ft[e, l, j, i], over=l))


def _spectral(field, slope, metric):
    r, s, t = field @ slope.T, slope @ field, torch.einsum("kl,elji->ekji", slope, field)
    fr, fs, ft = metric[0] * r + metric[1] * s + metric[2] * t, metric[1] * r + metric[3] * s + metric[4] * t, metric[2] * r + metric[4] * s + metric[5] * t
    return fr @ slope + slope.T @ fs + torch.einsum("lk,elji->ekji", slope, ft)


atoms = Size("atoms", 384)
p, q, o, ax = indices(p=atoms, q=atoms, o=atoms, ax=3)


@nestor.nest
def triple_dipole(place: f32[atoms, 3]):
    """Axilrod and Teller: the energy of all triples of atoms, at each atom, by their three distances."""
    square = define("square", (p, q), nestor.sum((place[p, ax] - place[q, ax]) * (place[p, ax] - place[q, ax]), over=ax) + 1.0)
    one, two, three = square[p, q], square[q, o], square[p, o]
    round_ = 3 * (one + two - three) * (two + three - one) * (three + one - two) / 8
    product = one * two * three
    cube = nestor.rsqrt(product)
    power = cube * cube * cube
    apart = (p < q) & (q < o) | (p > q) & (q > o) | (q < p) & (p < o) | (q > p) & (p > o) | (p < o) & (o < q) | (p > o) & (o > q)
    return define("out", p, nestor.sum(nestor.select(apart, power * (1 + round_ / product), 0.0), over=(q, o)))


def _triple(place):
    square = (place[:, None] - place).square().sum(-1) + 1
    one, two, three = square[:, :, None], square[None], square[:, None]
    product = one * two * three
    found = product**-1.5 * (1 + 3 * (one + two - three) * (two + three - one) * (three + one - two) / (8 * product))
    at = torch.arange(len(place), device=place.device)
    apart = (at[:, None, None] != at[:, None]) & (at[:, None] != at) & (at[:, None, None] != at)
    return torch.where(apart, found, 0).sum((1, 2))


chains, sites, bond = Size("chains", 64), Size("sites", 33), Size("bond", 64)
c, st, u, u2, v, v2 = indices(c=chains, st=sites, u=bond, u2=bond, v=bond, v2=bond)
(done,) = indices(done=sites - 1)


@nestor.nest
def state_overlap(bra: f32[chains, sites - 1, 2, bond, bond], ket: f32[chains, sites - 1, 2, bond, bond]):
    """Matrix product states: what two have in common, from site to site by two products for each of two spins."""
    both = define("both", (st, c, u, v), nestor.select(u == v, 1.0, 0.0), where=st == 0)
    with nestor.steps(done):
        half = [define(f"half_{spin}", (done, c, u, v), nestor.sum(both[done, c, u, v2] * ket[c, done, spin, v2, v], over=v2)) for spin in range(2)]
        both.write((done, c, u, v), (done + 1, c, u, v), sum(nestor.sum(bra[c, done, spin, u2, u] * half[spin][done, c, u2, v], over=u2) for spin in range(2)))
    return define("out", (c, u, v), both[sites - 1, c, u, v])


def _overlap(bra, ket):
    both = torch.eye(bra.shape[-1], dtype=bra.dtype, device=bra.device).expand(len(bra), -1, -1)
    for at in range(bra.shape[1]):
        both = sum(bra[:, at, spin].transpose(1, 2) @ (both @ ket[:, at, spin]) for spin in range(2))
    return both


first, second = Size("first", 1024), Size("second", 1024)
a, a2, b, b2 = indices(a=first, a2=first, b=second, b2=second)


@nestor.nest
def gromov_wasserstein_step(one: f32[first, first], other: f32[second, second], plan: f32[first, second]):
    """Transport between two sets that have only distances within themselves: the cost of moving, from the plan so far."""
    rows = define("rows", a, nestor.sum(plan[a, b], over=b))
    columns = define("columns", b, nestor.sum(plan[a, b], over=a))
    left = define("left", a, nestor.sum(one[a, a2] * one[a, a2] * rows[a2], over=a2))
    right = define("right", b, nestor.sum(other[b, b2] * other[b, b2] * columns[b2], over=b2))
    half = define("half", (a, b), nestor.sum(one[a, a2] * plan[a2, b], over=a2))
    return define("out", (a, b), left[a] + right[b] - 2 * nestor.sum(half[a, b2] * other[b, b2], over=b2))


def _gromov(one, other, plan):
    return (one.square() @ plan.sum(1))[:, None] + other.square() @ plan.sum(0) - 2 * one @ plan @ other.T


rays, balls, marches = Size("rays", 262144), Size("balls", 32), Size("marches", 17)
ra, bl, ma = indices(ra=rays, bl=balls, ma=marches)
(m,) = indices(m=marches - 1)


@nestor.nest
def sphere_tracing(start: f32[3, rays], toward: f32[3, rays], ball: f32[balls, 4]):
    """Ray marching: each step goes as far as nothing is near, by the distance to the nearest of some balls."""
    far = define("far", (ma, ra), 0.0, where=ma == 0)

    def apart(axis):
        return start[axis, ra] + far[m, ra] * toward[axis, ra] - ball[bl, axis]
    with nestor.steps(m):
        near = define("near", (m, ra), nestor.min(nestor.sqrt(apart(0) * apart(0) + apart(1) * apart(1) + apart(2) * apart(2) + 1e-6) - ball[bl, 3], over=bl))
        far.write((m, ra), (m + 1, ra), nestor.minimum(far[m, ra] + nestor.maximum(near[m, ra], 0.0), 20.0))
    return define("out", ra, far[marches - 1, ra])


def _tracing(start, toward, ball, marches):
    far = torch.zeros_like(start[0])
    for _ in range(marches - 1):
        place = start + far * toward
        near = ((place.T[:, None] - ball[:, :3]).square().sum(-1) + 1e-6).sqrt() - ball[:, 3]
        far = (far + near.amin(1).clamp(min=0)).clamp(max=20)
    return far


splats = Size("splats", 1048576)
sp, co, ba = indices(sp=splats, co=3, ba=9)


@nestor.nest
def harmonic_colours(toward: f32[splats, 3], share: f32[splats, 9, 3]):
    """Gaussian splatting: colours that depend on where one looks from, by nine spherical harmonics."""
    h, v_, w = toward[sp, 0], toward[sp, 1], toward[sp, 2]
    basis = (0.28209479, -0.48860251 * v_, 0.48860251 * w, -0.48860251 * h, 1.09254843 * h * v_, -1.09254843 * v_ * w,
             0.31539157 * (2 * w * w - h * h - v_ * v_), -1.09254843 * h * w, 0.54627422 * (h * h - v_ * v_))
    return define("out", (sp, co), nestor.maximum(sum(each * share[sp, at, co] for at, each in enumerate(basis)) + 0.5, 0.0))


def _colours(toward, share):
    h, v_, w = toward.unbind(1)
    basis = torch.stack([torch.full_like(h, 0.28209479), -0.48860251 * v_, 0.48860251 * w, -0.48860251 * h, 1.09254843 * h * v_, -1.09254843 * v_ * w,
                         0.31539157 * (2 * w * w - h * h - v_ * v_), -1.09254843 * h * w, 0.54627422 * (h * h - v_ * v_)], 1)
    return ((basis[:, :, None] * share).sum(1) + 0.5).clamp(min=0)


paths, days = Size("paths", 524288), Size("days", 64)
pa, da, da2 = indices(pa=paths, da=days, da2=days)


@nestor.nest
def asian_option(noise: f32[paths, days]):
    """Monte Carlo: the mean over paths of what a price's mean over days exceeds."""
    drift = define("drift", (pa, da), nestor.sum(noise[pa, da2] * 0.025 - 0.0003, over=da2, where=da2 <= da))
    mean = define("mean", pa, nestor.sum(nestor.exp(drift[pa, da]), over=da) / days)
    return define("out", (), nestor.sum(nestor.maximum(mean[pa] - 1.0, 0.0), over=pa) / paths)


def _asian(noise):
    return ((noise * 0.025 - 0.0003).cumsum(1).exp().mean(1) - 1).clamp(min=0).mean()


bodies, kinds, rank = Size("bodies", 4096), Size("kinds", 64), Size("rank", 9, fixed=True)
bo, ki, ra1, ra2, ra3 = indices(bo=bodies, ki=kinds, ra1=rank, ra2=rank, ra3=rank)


@nestor.nest
def cluster_expansion(feature: f32[bodies, kinds, rank], coupling: f32[rank, rank, rank], weight: f32[kinds, rank]):
    """MACE: products of an atom's features with themselves, coupled to features of the same kind."""
    pair = nestor.sum(coupling[ra1, ra2, ra3] * feature[bo, ki, ra2] * feature[bo, ki, ra3], over=(ra2, ra3))
    return define("out", (bo, ki, ra1), feature[bo, ki, ra1] + weight[ki, ra1] * pair)


def _cluster(feature, coupling, weight):
    half = (feature @ coupling.flatten(1).unflatten(1, coupling.shape[1:]).flatten(0, 1).T).unflatten(2, coupling.shape[:2])
    return feature + weight * (half * feature[:, :, None]).sum(-1)


voices, hops, tones = Size("voices", 16), Size("hops", 500), Size("tones", 64)
vo, ti, to, ho = indices(vo=voices, ti=128 * hops, to=tones, ho=hops)


@nestor.nest
def harmonic_oscillators(phase: f32[voices, 128 * hops], loud: f32[voices, hops + 1, tones]):
    """DDSP: a voice is a sum of sines at multiples of one phase; how loud each is moves along a line from hop to hop."""
    part = nestor.cast(f32, ti % 128) / 128
    loudness = loud[vo, ti // 128, to] * (1 - part) + loud[vo, ti // 128 + 1, to] * part
    return define("out", (vo, ti), nestor.sum(loudness * nestor.sin(nestor.cast(f32, to + 1) * phase[vo, ti]), over=to))


def _oscillators(phase, loud):
    part = (torch.arange(128, device=phase.device, dtype=phase.dtype) / 128)[:, None]
    loudness = (loud[:, :-1, None] * (1 - part) + loud[:, 1:, None] * part).flatten(1, 2)
    return (loudness * torch.sin(phase[..., None] * torch.arange(1, loud.shape[2] + 1, device=phase.device))).sum(-1)


heard, ticks, words = Size("heard", 128), Size("ticks", 96), Size("words", 32)
he, tk, wo = indices(he=heard, tk=ticks, wo=words)


@nestor.nest
def transducer_forward(blank: f32[heard, ticks, words], emit: f32[heard, ticks, words]):
    """RNN transducers: the likelihood of all ways through a lattice, each step a blank or the next word."""
    below, beside = indices(below=ticks - 1, beside=words - 1)
    way = define("out", (he, tk, wo), 0.0, where=(tk == 0) & (wo == 0))
    way.write((he, beside), (he, 0, beside + 1), way[he, 0, beside] + emit[he, 0, beside])
    way.write((he, below), (he, below + 1, 0), way[he, below, 0] + blank[he, below, 0])
    one, other = way[he, below, beside + 1] + blank[he, below, beside + 1], way[he, below + 1, beside] + emit[he, below + 1, beside]
    high = nestor.maximum(one, other)
    return way.write((he, below, beside), (he, below + 1, beside + 1), high + nestor.log(nestor.exp(one - high) + nestor.exp(other - high)))


def _transducer(blank, emit):
    rows = [torch.nn.functional.pad(emit[:, 0].cumsum(1)[:, :-1], (1, 0))]
    for tick in range(1, blank.shape[1]):
        cells = [rows[-1][:, 0] + blank[:, tick - 1, 0]]
        for word in range(1, blank.shape[2]):
            cells.append(torch.logaddexp(rows[-1][:, word] + blank[:, tick - 1, word], cells[-1] + emit[:, tick, word - 1]))
        rows.append(torch.stack(cells, 1))
    return torch.stack(rows, 1)


speeches, order = Size("speeches", 65536), Size("order", 16, fixed=True)
sc, at_, back = indices(sc=speeches, at_=order + 1, back=order + 1)
(grown,) = indices(grown=order)


@nestor.nest
def linear_prediction(lag: f32[speeches, order + 1]):
    """Levinson and Durbin: a filter that predicts a sound from its autocorrelation, one tap longer at each step."""
    tap = nestor.Tensor("tap", f32, (order + 1, speeches, order + 1))
    tap.write((sc, at_), (0, sc, at_), nestor.select(at_ == 0, 1.0, 0.0))
    error = nestor.Tensor("error", f32, (order + 1, speeches))
    error.write((sc,), (0, sc), lag[sc, 0])
    with nestor.steps(grown):
        apart = define("apart", (grown, sc), nestor.sum(tap[grown, sc, back] * lag[sc, grown + 1 - back], over=back, where=back <= grown))
        turn = define("turn", (grown, sc), -apart[grown, sc] / error[grown, sc])
        other = nestor.select((at_ >= 1) & (at_ <= grown + 1), tap[grown, sc, grown + 1 - at_], 0.0)
        tap.write((grown, sc, at_), (grown + 1, sc, at_), tap[grown, sc, at_] + turn[grown, sc] * other)
        error.write((grown, sc), (grown + 1, sc), error[grown, sc] * (1 - turn[grown, sc] * turn[grown, sc]))
    return define("out", (sc, at_), tap[order, sc, at_])


def _prediction(lag):
    tap = torch.nn.functional.pad(torch.ones_like(lag[:, :1]), (0, lag.shape[1] - 1))
    error = lag[:, 0]
    for grown in range(lag.shape[1] - 1):
        turn = -(tap[:, :grown + 1] * lag[:, 1:grown + 2].flip(1)).sum(1) / error
        other = torch.nn.functional.pad(tap[:, :grown + 1].flip(1), (1, lag.shape[1] - grown - 2))
        tap, error = tap + turn[:, None] * other, error * (1 - turn * turn)
    return tap


def _lags(x, _):
    """Draws autocorrelations of a sound that forgets."""
    return torch.exp(-0.5 * torch.arange(x.shape[1], device=x.device)) * (1 + 0.05 * torch.tanh(x)) + torch.nn.functional.pad(torch.ones_like(x[:, :1]), (0, x.shape[1] - 1))


OPERATORS = [
    Operator(phase_field_step, _phase, "J. Cahn and J. Hilliard, 1958", {"side": 4}),
    Operator(spectral_elements, _spectral, "P. Fischer et al., Nek5000; arXiv:2110.07663", {"elements": 3, "points": 4}, draw={"slope": divided("points")}),
    Operator(triple_dipole, _triple, "B. Axilrod and E. Teller, 1943", {"atoms": 5}, draw={"place": lambda x, _: 3 * x}),
    Operator(state_overlap, _overlap, "U. Schollwöck, arXiv:1008.3477", {"chains": 2, "sites": 4, "bond": 3},
             draw={"bra": lambda x, s: x / (2 * s["bond"])**0.5, "ket": lambda x, s: x / s["bond"]**0.5}),
    Operator(gromov_wasserstein_step, _gromov, "G. Peyré et al., 2016", {"first": 5, "second": 4},
             draw={"one": lambda x, _: x.abs(), "other": lambda x, _: x.abs(), "plan": lambda x, s: x.exp() / s["first"] / s["second"]}),
    Operator(sphere_tracing, _tracing, "J. Hart, 1996", {"rays": 5, "balls": 3, "marches": 4}, told=("marches",),
             draw={"toward": lambda x, _: x / x.norm(dim=0), "ball": lambda x, _: torch.cat([3 * x[:, :3], 0.3 * x[:, 3:].abs()], 1)}),
    Operator(harmonic_colours, _colours, "B. Kerbl et al., arXiv:2308.04079", {"splats": 5}),
    Operator(asian_option, _asian, "P. Glasserman, Monte Carlo methods in financial engineering, 2003", {"paths": 5, "days": 4}),
    Operator(cluster_expansion, _cluster, "I. Batatia et al., MACE, arXiv:2206.07697", {"bodies": 3, "kinds": 4, "rank": 3}),
    Operator(harmonic_oscillators, _oscillators, "J. Engel et al., DDSP, arXiv:2001.04643", {"voices": 2, "hops": 2, "tones": 3},
             draw={"phase": lambda x, _: math.pi * torch.tanh(x)}),
    Operator(transducer_forward, _transducer, "A. Graves, arXiv:1211.3711", {"heard": 2, "ticks": 5, "words": 4},
             draw={"blank": lambda x, _: -x.abs(), "emit": lambda x, _: -x.abs()}),
    Operator(linear_prediction, _prediction, "J. Durbin, 1960", {"speeches": 3, "order": 4}, draw={"lag": _lags}),
]
