"""Chemistry, tensor networks, spheres, kernels, arrays of microphones, resampling, multigrid, shocks; styles, proxies and weights of 4 bits."""

import math

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, define, f16, f32, i32, indices

from .problem import Operator, divided, widened

filled, empty, fitting = Size("filled", 24), Size("empty", 96), Size("fitting", 320)
i, j, a, b, p = indices(i=filled, j=filled, a=empty, b=empty, p=fitting)


@nestor.nest
def pair_energy(fit: f32[filled, empty, fitting], low: f32[filled], high: f32[empty]):
    """MP2 with density fitting: integrals of four orbitals are products; the energy of each pair needs them turned as well."""
    whole = define("whole", (i, j, a, b), nestor.sum(fit[i, a, p] * fit[j, b, p], over=p))
    gap = low[i] + low[j] - high[a] - high[b]
    return define("out", (i, j), nestor.sum(whole[i, j, a, b] * (2 * whole[i, j, a, b] - whole[i, j, b, a]) / gap, over=(a, b)))


def _pair_energy(fit, low, high):
    whole = torch.einsum("iap,jbp->ijab", fit, fit)
    gap = low[:, None, None, None] + low[:, None, None] - high[:, None] - high
    return (whole * (2 * whole - whole.transpose(-1, -2)) / gap).sum((-2, -1))


basis, orbitals = Size("basis", 96), Size("orbitals", 64)
m, n, r, s, u, v = indices(m=basis, n=basis, r=basis, s=basis, u=orbitals, v=orbitals)


@nestor.nest
def half_transform(integral: f32[basis, basis, basis, basis], orbital: f32[basis, orbitals]):
    """Two of four indices go from a basis to orbitals."""
    once = define("once", (m, v, r, s), nestor.sum(integral[m, n, r, s] * orbital[n, v], over=n))
    return define("out", (u, v, r, s), nestor.sum(once[m, v, r, s] * orbital[m, u], over=m))


def _half(integral, orbital):
    return torch.einsum("mvrs,mu->uvrs", torch.einsum("mnrs,nv->mvrs", integral, orbital), orbital)


bond, spins, links = Size("bond", 256), Size("spins", 2), Size("links", 5)
l, l2, e, e2, t, t2, x, x2, y, y2 = indices(l=bond, l2=bond, e=bond, e2=bond, t=spins, t2=spins, x=links, x2=links, y=spins, y2=spins)
(x3,) = indices(x3=links)


@nestor.nest
def effective_hamiltonian(left: f32[bond, links, bond], first: f32[links, links, spins, spins], second: f32[links, links, spins, spins],
                          right: f32[bond, links, bond], state: f32[bond, spins, spins, bond]):
    """DMRG's matrix times a state of two sites: five tensors, contracted one after the other."""
    one = define("one", (l, x, y, y2, e), nestor.sum(left[l, x, l2] * state[l2, y, y2, e], over=l2))
    two = define("two", (l, x2, t, y2, e), nestor.sum(one[l, x, y, y2, e] * first[x, x2, t, y], over=(x, y)))
    three = define("three", (l, x3, t, t2, e), nestor.sum(two[l, x2, t, y2, e] * second[x2, x3, t2, y2], over=(x2, y2)))
    return define("out", (l, t, t2, e2), nestor.sum(three[l, x3, t, t2, e] * right[e2, x3, e], over=(x3, e)))


def _hamiltonian(left, first, second, right, state):
    one = torch.einsum("lxk,kabe->lxabe", left, state)
    two = torch.einsum("lxabe,xyta->lytbe", one, first)
    three = torch.einsum("lytbe,yzub->lztue", two, second)
    return torch.einsum("lztue,fze->ltuf", three, right)


fields, north, east, waves, degrees = Size("fields", 64), Size("north", 181), Size("east", 360), Size("waves", 128), Size("degrees", 128)
k, la, lo, w, d = indices(k=fields, la=north, lo=east, w=waves, d=degrees)


@nestor.nest
def spherical_transform(field: f32[fields, north, east], cosine: f32[waves, east], sine: f32[waves, east], legendre: f32[waves, degrees, north]):
    """Spherical harmonics: Fourier along circles of latitude, then Legendre's functions of each wave across them."""
    def part(name, wave):
        line = define(f"line_{name}", (k, w, la), nestor.sum(field[k, la, lo] * wave[w, lo], over=lo))
        return define(name, (k, w, d), nestor.sum(line[k, w, la] * legendre[w, d, la], over=la))
    return part("real", cosine), part("imaginary", sine)


def _spherical(field, cosine, sine, legendre):
    return tuple(torch.einsum("kwa,wda->kwd", torch.einsum("kao,wo->kwa", field, wave), legendre) for wave in (cosine, sine))


asked, given, axes = Size("asked", 8192), Size("given", 8192), Size("axes", 8)
q, g, ax = indices(q=asked, g=given, ax=axes)


@nestor.nest
def matern_product(place: f32[asked, axes], other: f32[given, axes], weight: f32[given]):
    """A Gaussian process's prediction: a Matern kernel of all pairs times a vector."""
    square = nestor.sum((place[q, ax] - other[g, ax]) * (place[q, ax] - other[g, ax]), over=ax)
    far = define("far", (q, g), nestor.sqrt(5 * square + 1e-12))
    return define("out", q, nestor.sum((1 + far[q, g] + far[q, g] * far[q, g] / 3) * nestor.exp(-far[q, g]) * weight[g], over=g))


def _matern(place, other, weight):
    far = (5 * (place[:, None] - other).square().sum(-1) + 1e-12).sqrt()
    return ((1 + far + far.square() / 3) * (-far).exp()) @ weight


rooms, tones, frames, ears = Size("rooms", 8), Size("tones", 257), Size("frames", 1000), Size("ears", 8)
ro, to, fr, ea, ea2 = indices(ro=rooms, to=tones, fr=frames, ea=ears, ea2=ears)


@nestor.nest
def spatial_covariance(real: f32[rooms, ears, frames, tones], imaginary: f32[rooms, ears, frames, tones], mask: f32[rooms, frames, tones]):
    """Beam forming with masks: what microphones have in common, tone by tone, over the mask's sum."""
    def both(first, second):
        return nestor.sum(mask[ro, fr, to] * first[ro, ea, fr, to] * second[ro, ea2, fr, to], over=fr)
    total = define("total", (ro, to), nestor.sum(mask[ro, fr, to], over=fr) + 1e-6)
    at = (ro, to, ea, ea2)
    return (define("out_real", at, (both(real, real) + both(imaginary, imaginary)) / total[ro, to]),
            define("out_imaginary", at, (both(imaginary, real) - both(real, imaginary)) / total[ro, to]))


def _covariance(real, imaginary, mask):
    sound = torch.complex(real, imaginary)
    found = torch.einsum("rft,rift,rjft->rtij", mask.to(sound.dtype), sound, sound.conj()) / (mask.sum(1) + 1e-6)[..., None, None]
    return found.real, found.imag


sounds, beats = Size("sounds", 64), Size("beats", 16000)
so, be, ph, ta = indices(so=sounds, be=beats, ph=3, ta=24)


@nestor.nest
def resampled_sound(sound: f32[sounds, 2 * beats + 24], taps: f32[3, 24]):
    """From 32 to 48 kHz: three filters take turns, and two samples come in for three that go out."""
    return define("out", (so, be, ph), nestor.sum(sound[so, 2 * be + 2 * ph // 3 + ta] * taps[ph, ta], over=ta))


def _resampled(sound, taps):
    parts = [F.conv1d(sound[:, None, 2 * phase // 3:], taps[None, phase, None], stride=2)[:, 0] for phase in range(3)]
    length = (sound.shape[1] - 24) // 2
    return torch.stack([part[:, :length] for part in parts], -1)


deep, tall, broad = Size("deep", 128), Size("tall", 128), Size("broad", 128)
cz, cy, cx, oz, oy, ox = indices(cz=deep, cy=tall, cx=broad, oz=3, oy=3, ox=3)


@nestor.nest
def restricted_residual(guess: f32[2 * deep + 3, 2 * tall + 3, 2 * broad + 3], source: f32[2 * deep + 3, 2 * tall + 3, 2 * broad + 3]):
    """Multigrid on the way down: what Laplace's operator leaves, averaged onto a grid half as fine."""
    fz, fy, fx = indices(fz=2 * deep + 1, fy=2 * tall + 1, fx=2 * broad + 1)
    z, y, x = fz + 1, fy + 1, fx + 1
    around = (guess[z - 1, y, x] + guess[z + 1, y, x] + guess[z, y - 1, x] + guess[z, y + 1, x] + guess[z, y, x - 1] + guess[z, y, x + 1])
    left = define("left", (fz, fy, fx), source[z, y, x] - 6 * guess[z, y, x] + around)

    def share(at):
        return nestor.select(at == 1, 0.5, 0.25)
    return define("out", (cz, cy, cx), nestor.sum(share(oz) * share(oy) * share(ox) * left[2 * cz + oz, 2 * cy + oy, 2 * cx + ox], over=(oz, oy, ox)))


def _restricted(guess, source):
    def part(field, z, y, x):
        return field[1 + z:field.shape[0] - 1 + z, 1 + y:field.shape[1] - 1 + y, 1 + x:field.shape[2] - 1 + x]
    around = sum(part(guess, *at) for at in ((-1, 0, 0), (1, 0, 0), (0, -1, 0), (0, 1, 0), (0, 0, -1), (0, 0, 1)))
    left = part(source, 0, 0, 0) - 6 * part(guess, 0, 0, 0) + around
    line = torch.tensor([0.25, 0.5, 0.25], dtype=guess.dtype, device=guess.device)
    kernel = line[:, None, None] * line[:, None] * line
    return F.conv3d(left[None, None], kernel[None, None], stride=2)[0, 0]


tubes, cells = Size("tubes", 1024), Size("cells", 8192)
tu, ce = indices(tu=tubes, ce=cells)


@nestor.nest
def shock_step(density: f32[tubes, cells + 6]):
    """WENO of fifth order for Burgers' equation: three parabolas at each face, by how smooth they are, and the flux's difference."""
    (fa,) = indices(fa=cells + 1)
    flux = [0.5 * density[tu, fa + at] * density[tu, fa + at] for at in range(5)]
    parts = ((2 * flux[0] - 7 * flux[1] + 11 * flux[2]) / 6, (-flux[1] + 5 * flux[2] + 2 * flux[3]) / 6, (2 * flux[2] + 5 * flux[3] - flux[4]) / 6)
    rough = [13 / 12 * one * one + 0.25 * two * two for one, two in (
        (flux[0] - 2 * flux[1] + flux[2], flux[0] - 4 * flux[1] + 3 * flux[2]), (flux[1] - 2 * flux[2] + flux[3], flux[1] - flux[3]),
        (flux[2] - 2 * flux[3] + flux[4], 3 * flux[2] - 4 * flux[3] + flux[4]))]
    trust = [define(f"trust{at}", (tu, fa), share / ((each + 1e-6) * (each + 1e-6))) for at, (share, each) in enumerate(zip((0.1, 0.6, 0.3), rough))]
    total = trust[0][tu, fa] + trust[1][tu, fa] + trust[2][tu, fa]
    face = define("face", (tu, fa), sum(trust[at][tu, fa] * parts[at] for at in range(3)) / total)
    return define("out", (tu, ce), density[tu, ce + 3] - 0.1 * (face[tu, ce + 1] - face[tu, ce]))


def _shock(density):
    flux = [each * each / 2 for each in (density[:, at:density.shape[1] - 5 + at] for at in range(5))]
    parts = ((2 * flux[0] - 7 * flux[1] + 11 * flux[2]) / 6, (-flux[1] + 5 * flux[2] + 2 * flux[3]) / 6, (2 * flux[2] + 5 * flux[3] - flux[4]) / 6)
    rough = [13 / 12 * one.square() + two.square() / 4 for one, two in (
        (flux[0] - 2 * flux[1] + flux[2], flux[0] - 4 * flux[1] + 3 * flux[2]), (flux[1] - 2 * flux[2] + flux[3], flux[1] - flux[3]),
        (flux[2] - 2 * flux[3] + flux[4], 3 * flux[2] - 4 * flux[3] + flux[4]))]
    trust = [share / (each + 1e-6).square() for share, each in zip((0.1, 0.6, 0.3), rough)]
    face = sum(one * other for one, other in zip(trust, parts)) / sum(trust)
    return density[:, 3:-3] - 0.1 * face.diff(dim=1)


pictures, maps, places = Size("pictures", 16), Size("maps", 256), Size("places", 4096)
pi, ma, ma2, pl = indices(pi=pictures, ma=maps, ma2=maps, pl=places)


@nestor.nest
def style_loss(feature: f16[pictures, maps, places], wanted: f32[maps, maps]):
    """How far features' products with each other are from a style's; one number a picture."""
    gram = define("gram", (pi, ma, ma2), nestor.sum(feature[pi, ma, pl] * feature[pi, ma2, pl], over=pl) / places)
    apart = gram[pi, ma, ma2] - wanted[ma, ma2]
    return define("out", pi, nestor.sum(apart * apart, over=(ma, ma2)) / maps / maps)


def _style(feature, wanted):
    gram = widened(feature @ feature.transpose(1, 2))
    return (gram / feature.shape[2] - wanted).square().mean((1, 2))


samples, width, proxies = Size("samples", 2048), Size("width", 512), Size("proxies", 4096)
sa, wi, wi2, pr = indices(sa=samples, wi=width, wi2=width, pr=proxies)


@nestor.nest
def proxy_anchor_loss(x0: f16[samples, width], proxy: f16[proxies, width], label: i32[samples]):
    """Each class has a proxy, which pulls its samples and pushes all others: sums over samples, proxy by proxy."""
    def unit(name, rows, at):
        length = define(f"length_{name}", at, nestor.rsqrt(nestor.sum(rows[at, wi] * rows[at, wi], over=wi)))
        return define(name, (at, wi2), rows[at, wi2] * length[at], type=f16)
    left, right = unit("left", x0, sa), unit("right", proxy, pr)
    near = define("near", (sa, pr), nestor.sum(left[sa, wi] * right[pr, wi], over=wi))
    own = label[sa] == pr
    pull = define("pull", pr, nestor.sum(nestor.select(own, nestor.exp(-32 * (near[sa, pr] - 0.1)), 0.0), over=sa))
    push = define("push", pr, nestor.sum(nestor.select(own, 0.0, nestor.exp(32 * (near[sa, pr] + 0.1))), over=sa))
    there = define("there", (), nestor.maximum(nestor.sum(nestor.select(pull[pr] > 0, 1.0, 0.0), over=pr), 1.0))
    return define("out", (), nestor.sum(nestor.log(1 + pull[pr]) / there.value + nestor.log(1 + push[pr]) / proxies, over=pr))


def _proxy(x, proxy, label):
    left, right = ((widened(rows) * widened(rows).square().sum(-1, keepdim=True).rsqrt()).to(rows.dtype) for rows in (x, proxy))
    near, own = widened(left @ right.T), label[:, None] == torch.arange(len(proxy), device=x.device)
    pull = torch.where(own, torch.exp(-32 * (near - 0.1)), 0).sum(0)
    push = torch.where(own, 0, torch.exp(32 * (near + 0.1))).sum(0)
    return torch.log1p(pull).sum() / (pull > 0).sum().clamp(min=1) + torch.log1p(push).mean()


rows, outer, blocks, rank = Size("rows", 256), Size("outer", 4096), Size("blocks", 64), Size("rank", 32, fixed=True)
ra, ou, de, co, rk, bl = indices(ra=rows, ou=outer, de=64 * blocks, co=16, rk=rank, bl=blocks)


@nestor.nest
def codebook_linear(x0: f16[rows, 64 * blocks], packed: i32[outer, 8 * blocks], scale: f16[outer, blocks], level: f32[16],
                    down: f16[rank, 64 * blocks], up: f16[outer, rank]):
    """QLoRA: weights are places in a table of 16 numbers, a scale for each 64, and an adapter of rank 32 beside them."""
    place = (packed[ou, de // 8] >> (4 * (de % 8))) & 15
    found = define("found", (ou, de), nestor.sum(nestor.select(place == co, level[co], 0.0), over=co))
    weight = define("weight", (ou, de), found[ou, de] * scale[ou, de // 64], type=f16)
    small = define("small", (ra, rk), nestor.sum(x0[ra, de] * down[rk, de], over=de), type=f16)
    return define("out", (ra, ou), nestor.sum(x0[ra, de] * weight[ou, de], over=de) + nestor.sum(small[ra, rk] * up[ou, rk], over=rk), type=f16)


def _codebook(x, packed, scale, level, down, up):
    shifts = torch.arange(0, 32, 4, device=x.device, dtype=torch.int32)
    place = ((packed[:, :, None] >> shifts) & 15).flatten(1)
    weight = (level[place.long()].unflatten(1, (-1, 64)) * scale[..., None]).flatten(1).to(x.dtype)
    return x @ weight.T + (x @ down.T) @ up.T


def _circles(function):
    return lambda x, _: function(torch.arange(len(x), device=x.device)[:, None] * torch.arange(x.shape[1], device=x.device) * (2 * math.pi / x.shape[1]))


OPERATORS = [
    Operator(pair_energy, _pair_energy, "C. Møller and M. Plesset, 1934; F. Weigend et al., 1998", {"filled": 3, "empty": 4, "fitting": 5},
             draw={"fit": divided("fitting"), "low": lambda x, _: -1 - x.abs(), "high": lambda x, _: 1 + x.abs()}),
    Operator(half_transform, _half, "S. Wilson, Four-index transformations, 1987", {"basis": 4, "orbitals": 3}, draw={"orbital": divided("basis")}),
    Operator(effective_hamiltonian, _hamiltonian, "S. White, 1992; U. Schollwöck, arXiv:1008.3477", {"bond": 4, "spins": 2, "links": 3},
             draw={"left": divided("bond"), "right": divided("bond")}),
    Operator(spherical_transform, _spherical, "B. Bonev et al., arXiv:2306.03838", {"fields": 2, "north": 5, "east": 7, "waves": 3, "degrees": 4},
             draw={"cosine": _circles(torch.cos), "sine": _circles(torch.sin), "legendre": divided("north")}),
    Operator(matern_product, _matern, "B. Matérn, 1960", {"asked": 5, "given": 7, "axes": 3}),
    Operator(spatial_covariance, _covariance, "M. Souden et al., 2010", {"rooms": 2, "tones": 3, "frames": 5, "ears": 3},
             draw={"mask": lambda x, _: torch.sigmoid(x)}),
    Operator(resampled_sound, _resampled, "P. Vaidyanathan, 1990", {"sounds": 2, "beats": 5}),
    Operator(restricted_residual, _restricted, "W. Briggs et al., A multigrid tutorial, 2000", {"deep": 2, "tall": 3, "broad": 4}),
    Operator(shock_step, _shock, "G.-S. Jiang and C.-W. Shu, 1996", {"tubes": 2, "cells": 7}),
    Operator(style_loss, _style, "L. Gatys et al., arXiv:1508.06576", {"pictures": 2, "maps": 3, "places": 5}),
    Operator(proxy_anchor_loss, _proxy, "S. Kim et al., arXiv:2003.13911", {"samples": 5, "width": 6, "proxies": 4},
             draw={"label": lambda x, s: (x.abs() * 1e4).long() % s["proxies"]}),
    Operator(codebook_linear, _codebook, "T. Dettmers et al., QLoRA, arXiv:2305.14314", {"rows": 3, "outer": 5, "blocks": 2, "rank": 3},
             draw={"packed": lambda x, _: (x * 5e8).long(), "scale": lambda x, s: (1 + 0.1 * x) / (64 * s["blocks"])**0.5, "down": lambda x, s: x / (64 * s["blocks"])**0.5,
                   "up": divided("rank")}),
]
