"""Pictures, sound, fields and lists: norms after convolutions, grids, matching, filter banks, solvers, sweeps, losses over all pairs."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, define, f16, f32, indices

from .problem import Operator, around_one, divided, widened
from .rows import sigmoid

images, side, maps, groups, share = Size("images", 16), Size("side", 32), Size("maps", 256), Size("groups", 32), Size("share", 8)
n, y, x, c, g, s, y2, x2, s2, dy, dx = indices(n=images, y=side, x=side, c=maps, g=groups, s=share, y2=side, x2=side, s2=share, dy=3, dx=3)


@nestor.nest
def conv_norm_silu(x0: f16[images, side, side, maps], weight: f16[groups, share, 3, 3, maps], gain: f16[groups, share], bias: f16[groups, share]):
    """A convolution, a group norm of what it gives, a SiLU."""
    row, column = y + dy - 1, x + dx - 1
    inside = (row >= 0) & (row < side) & (column >= 0) & (column < side)
    pixel = nestor.select(inside, x0[n, row, column, c], 0.0)
    line = define("line", (n, y, x, g, s), nestor.sum(pixel * weight[g, s, dy, dx, c], over=(dy, dx, c)))
    count = side * side * share
    mean = define("mean", (n, g), nestor.sum(line[n, y2, x2, g, s2], over=(y2, x2, s2)) / side / side / share)
    apart = line[n, y2, x2, g, s2] - mean[n, g]
    spread = define("spread", (n, g), nestor.rsqrt(nestor.sum(apart * apart, over=(y2, x2, s2)) / side / side / share + 1e-5))
    normed = (line[n, y, x, g, s] - mean[n, g]) * spread[n, g] * gain[g, s] + bias[g, s]
    return define("out", (n, y, x, g, s), normed * sigmoid(normed), type=f16)


def _conv_norm(x, weight, gain, bias):
    line = F.conv2d(x.permute(0, 3, 1, 2), weight.flatten(0, 1).permute(0, 3, 1, 2), padding=1)
    normed = F.group_norm(line, weight.shape[0], gain.flatten(), bias.flatten(), 1e-5)
    return F.silu(normed).permute(0, 2, 3, 1).unflatten(3, weight.shape[:2])


pictures, layers, high, across = Size("pictures", 32), Size("layers", 256), Size("high", 56), Size("across", 56)
p, l, l2, v, u, ty, tx = indices(p=pictures, l=layers, l2=layers, v=high, u=across, ty=7, tx=7)


@nestor.nest
def spatial_gate(x0: f16[pictures, layers, high, across], weight: f16[2, 7, 7]):
    """CBAM: a gate for each place, by a 7 x 7 convolution of the mean and the maximum over the channels."""
    mean = define("mean", (p, v, u), nestor.sum(x0[p, l2, v, u], over=l2) / layers)
    top = define("top", (p, v, u), nestor.max(x0[p, l2, v, u], over=l2))
    row, column = v + ty - 3, u + tx - 3
    inside = (row >= 0) & (row < high) & (column >= 0) & (column < across)
    both = mean[p, row, column] * weight[0, ty, tx] + top[p, row, column] * weight[1, ty, tx]
    gate = define("gate", (p, v, u), sigmoid(nestor.sum(nestor.select(inside, both, 0.0), over=(ty, tx))))
    return define("out", (p, l, v, u), x0[p, l, v, u] * gate[p, v, u], type=f16)


def _spatial_gate(x, weight):
    both = torch.stack([x.mean(1), x.amax(1)], 1)
    return x * torch.sigmoid(F.conv2d(both, weight[None], padding=3))


photos, cells = Size("photos", 4), Size("cells", 16)
ph, py, px, o, i, z, ay, ax = indices(ph=photos, py=64 * cells, px=64 * cells, o=3, i=3, z=8, ay=2, ax=2)


@nestor.nest
def bilateral_slice(image: f32[photos, 3, 64 * cells, 64 * cells], guide: f32[photos, 64 * cells, 64 * cells],
                    grid: f32[photos, 3, 3, 8, cells + 1, cells + 1]):
    """HDRnet: a small grid over places and brightness holds a colour matrix; each pixel interpolates its own and applies it."""
    depth = nestor.maximum(1 - nestor.absolute(7 * guide[ph, py, px] - nestor.cast(f32, z)), 0.0)

    def near(step, at):
        return nestor.select(step == 0, 1 - nestor.cast(f32, at % 64) / 64, nestor.cast(f32, at % 64) / 64)
    cell = grid[ph, o, i, z, py // 64 + ay, px // 64 + ax]
    matrix = define("matrix", (ph, o, i, py, px), nestor.sum(cell * depth * near(ay, py) * near(ax, px), over=(z, ay, ax)))
    return define("out", (ph, o, py, px), nestor.sum(matrix[ph, o, i, py, px] * image[ph, i, py, px], over=i))


def _bilateral_slice(image, guide, grid):
    at = torch.arange(image.shape[-1], device=image.device)
    low, part = at // 64, (at % 64).to(image.dtype) / 64
    depth = (1 - (7 * guide[:, None] - torch.arange(8, device=image.device).view(1, 8, 1, 1)).abs()).clamp(min=0)
    matrix = 0.0
    for level in range(8):
        grid_ = grid[:, :, :, level]
        tall = grid_[..., low, :] * (1 - part)[:, None] + grid_[..., low + 1, :] * part[:, None]
        full = tall[..., low] * (1 - part) + tall[..., low + 1] * part
        matrix = matrix + full * depth[:, None, None, level]
    return (matrix * image[:, None]).sum(2)


grey, tall, broad = Size("grey", 32), Size("tall", 512), Size("broad", 512)
gr, r, q, r2, q2, wy, wx = indices(gr=grey, r=tall, q=broad, r2=tall, q2=broad, wy=9, wx=9)


@nestor.nest
def local_contrast_norm(x0: f32[grey, tall, broad], window: f32[9, 9]):
    """A picture less its local mean, over its local deviation or, where that is less, the deviation's mean."""
    row, column = r + wy - 4, q + wx - 4
    inside = (row >= 0) & (row < tall) & (column >= 0) & (column < broad)
    mean = nestor.sum(nestor.select(inside, x0[gr, row, column], 0.0) * window[wy, wx], over=(wy, wx))
    apart = define("apart", (gr, r, q), x0[gr, r, q] - mean)
    square = nestor.select(inside, apart[gr, row, column] * apart[gr, row, column], 0.0)
    spread = define("spread", (gr, r, q), nestor.sqrt(nestor.sum(square * window[wy, wx], over=(wy, wx))))
    usual = define("usual", gr, nestor.sum(spread[gr, r2, q2], over=(r2, q2)) / tall / broad)
    return define("out", (gr, r, q), apart[gr, r, q] / nestor.maximum(spread[gr, r, q], usual[gr]))


def _local_contrast(x, window):
    apart = x - F.conv2d(x[:, None], window[None, None], padding=4)[:, 0]
    spread = F.conv2d(apart.square()[:, None], window[None, None], padding=4)[:, 0].sqrt()
    return apart / torch.maximum(spread, spread.mean((1, 2), keepdim=True))


lines, columns, shifts = Size("lines", 384), Size("columns", 1216), Size("shifts", 64)
li, co, sh, by, bx = indices(li=lines, co=columns, sh=shifts, by=5, bx=5)


@nestor.nest
def census_matching(left: f32[lines, columns], right: f32[lines, columns]):
    """Stereo: in how many of 24 neighbours two places differ in being brighter than their middle, for 64 shifts."""
    inside = (li >= 2) & (li < lines - 2) & (co >= sh + 2) & (co < columns - 2)
    one = left[li + by - 2, co + bx - 2] > left[li, co]
    other = right[li + by - 2, co - sh + bx - 2] > right[li, co - sh]
    cost = nestor.sum(nestor.select(inside, nestor.select((one & ~other) | (~one & other), 1.0, 0.0), 1.0), over=(by, bx))
    return define("out", (sh, li, co), cost)


def _census(left, right, shifts):
    lines, columns = left.shape
    steps = [(by, bx) for by in range(5) for bx in range(5)]

    def bits(picture):
        return torch.stack([picture[by:lines - 4 + by, bx:columns - 4 + bx] > picture[2:-2, 2:-2] for by, bx in steps])
    one, other = bits(left), bits(right)
    found = [F.pad((one[..., shift:] ^ other[..., :columns - 4 - shift]).sum(0).to(left.dtype), (2 + shift, 2, 2, 2), value=25.0)
             for shift in range(shifts)]
    return torch.stack(found)


batch, place, wide = Size("batch", 32), Size("place", 56), Size("wide", 256)
b, h, w, ch, ky, kx = indices(b=batch, h=place, w=place, ch=wide, ky=7, kx=7)


@nestor.nest
def depthwise_filter_gradient(x0: f16[batch, place + 6, place + 6, wide], grad: f16[batch, place, place, wide]):
    """ConvNeXt's backward: a filter of 7 x 7 for each channel, summed over the pictures."""
    return define("out", (ky, kx, ch), nestor.sum(x0[b, h + ky, w + kx, ch] * grad[b, h, w, ch], over=(b, h, w)))


def _depthwise_gradient(x, grad):
    place = grad.shape[1]
    parts = [(widened(x[:, ky:ky + place, kx:kx + place]) * widened(grad)).sum((0, 1, 2)) for ky in range(7) for kx in range(7)]
    return torch.stack(parts).unflatten(0, (7, 7))


clips, frames, bins = Size("clips", 16), Size("frames", 1000), Size("bins", 513)
cl, fr, bi, t = indices(cl=clips, fr=frames, bi=bins, t=1024)


@nestor.nest
def power_spectrogram(wave: f16[clips, 256 * frames + 768], cosine: f16[bins, 1024], sine: f16[bins, 1024]):
    """A short-time Fourier transform as two products over frames that overlap; bases hold the window."""
    real = nestor.sum(wave[cl, 256 * fr + t] * cosine[bi, t], over=t)
    imaginary = nestor.sum(wave[cl, 256 * fr + t] * sine[bi, t], over=t)
    return define("out", (cl, bi, fr), real * real + imaginary * imaginary)


def _spectrogram(wave, cosine, sine):
    parts = F.conv1d(wave[:, None], torch.cat([cosine, sine])[:, None], stride=256)
    real, imaginary = widened(parts).chunk(2, 1)
    return real.square() + imaginary.square()


sounds, spans, ears = Size("sounds", 16), Size("spans", 200), Size("ears", 64)
so, sp, ea, tap, within = indices(so=sounds, sp=spans, ea=ears, tap=512, within=160)


@nestor.nest
def gammatone_energy(wave: f16[sounds, 160 * spans + 511], response: f16[ears, 512]):
    """A cochleagram: 64 filters of 512 samples, and the logarithm of their mean power in 160 samples."""
    heard = define("heard", (so, ea, sp, within), nestor.sum(wave[so, 160 * sp + within + tap] * response[ea, tap], over=tap))
    power = nestor.sum(heard[so, ea, sp, within] * heard[so, ea, sp, within], over=within) / 160
    return define("out", (so, ea, sp), nestor.log(power + 1e-6))


def _gammatone(wave, response):
    heard = widened(F.conv1d(wave[:, None], response[:, None]))
    return (heard.unflatten(2, (-1, 160)).square().mean(3) + 1e-6).log()


deep = Size("deep", 4096)
e, f, e2, f2 = indices(e=deep, f=deep, e2=deep, f2=deep)


@nestor.nest
def conjugate_gradient_step(found: f32[deep, deep], rest: f32[deep, deep], way: f32[deep + 2, deep + 2]):
    """A step towards the solution of Poisson's equation on a grid; way has a border of zeros."""
    around = way[e, f + 1] + way[e + 2, f + 1] + way[e + 1, f] + way[e + 1, f + 2]
    bent = define("bent", (e, f), 4 * way[e + 1, f + 1] - around)
    along = define("along", (), nestor.sum(way[e2 + 1, f2 + 1] * bent[e2, f2], over=(e2, f2)))
    before = define("before", (), nestor.sum(rest[e2, f2] * rest[e2, f2], over=(e2, f2)))
    step = before.value / along.value
    left = define("next_rest", (e, f), rest[e, f] - step * bent[e, f])
    after = define("after", (), nestor.sum(left[e2, f2] * left[e2, f2], over=(e2, f2)))
    return (define("next_found", (e, f), found[e, f] + step * way[e + 1, f + 1]), left,
            define("next_way", (e, f), left[e, f] + after.value / before.value * way[e + 1, f + 1]))


def _conjugate(found, rest, way):
    here = way[1:-1, 1:-1]
    bent = 4 * here - way[:-2, 1:-1] - way[2:, 1:-1] - way[1:-1, :-2] - way[1:-1, 2:]
    before = rest.square().sum()
    step = before / (here * bent).sum()
    left = rest - step * bent
    return found + step * here, left, left + left.square().sum() / before * here


systems, unknowns = Size("systems", 16384), Size("unknowns", 128)
sy, un = indices(sy=systems, un=unknowns)


@nestor.nest
def tridiagonal_solver(low: f32[unknowns, systems], middle: f32[unknowns, systems], high: f32[unknowns, systems], right: f32[unknowns, systems]):
    """Thomas: many systems of 128 unknowns, each tied to its neighbours: one way to eliminate, and back."""
    after = indices(after=unknowns - 1)[0]
    ratio = define("ratio", (un, sy), high[un, sy] / middle[un, sy], where=un == 0)
    part = define("part", (un, sy), right[un, sy] / middle[un, sy], where=un == 0)
    with nestor.steps(after):
        pivot = define("pivot", (after, sy), 1 / (middle[after + 1, sy] - low[after + 1, sy] * ratio[after, sy]))
        ratio.write((after, sy), (after + 1, sy), high[after + 1, sy] * pivot[after, sy])
        part.write((after, sy), (after + 1, sy), (right[after + 1, sy] - low[after + 1, sy] * part[after, sy]) * pivot[after, sy])
    solved = define("out", (un, sy), part[un, sy], where=un == unknowns - 1)
    back = unknowns - 2 - after
    return solved.write((after, sy), (back, sy), part[back, sy] - ratio[back, sy] * solved[back + 1, sy])


def _tridiagonal(low, middle, high, right):
    ratio, part = [high[0] / middle[0]], [right[0] / middle[0]]
    for at in range(1, len(low)):
        pivot = 1 / (middle[at] - low[at] * ratio[-1])
        ratio.append(high[at] * pivot)
        part.append((right[at] - low[at] * part[-1]) * pivot)
    found = [part[-1]]
    for at in range(len(low) - 2, -1, -1):
        found.append(part[at] - ratio[at] * found[-1])
    return torch.stack(found[::-1])


cube = Size("cube", 256)
cz, cy, cx = indices(cz=cube, cy=cube, cx=cube)
STAR = (-2.84722222, 1.6, -0.2, 0.02539683, -0.00178571)  # a second derivative of eighth order


@nestor.nest
def seismic_step(now: f32[cube + 8, cube + 8, cube + 8], before: f32[cube, cube, cube], speed: f32[cube, cube, cube], fade: f32[cube]):
    """The acoustic wave equation of eighth order in space; waves fade towards the borders."""
    total = 3 * STAR[0] * now[cz + 4, cy + 4, cx + 4]
    for step in range(1, 5):
        total = total + STAR[step] * (now[cz + 4 + step, cy + 4, cx + 4] + now[cz + 4 - step, cy + 4, cx + 4] + now[cz + 4, cy + 4 + step, cx + 4]
                                      + now[cz + 4, cy + 4 - step, cx + 4] + now[cz + 4, cy + 4, cx + 4 + step] + now[cz + 4, cy + 4, cx + 4 - step])
    moved = 2 * now[cz + 4, cy + 4, cx + 4] - before[cz, cy, cx] + speed[cz, cy, cx] * total
    return define("out", (cz, cy, cx), moved * fade[cz] * fade[cy] * fade[cx])


def _seismic(now, before, speed, fade):
    cube = before.shape[0]

    def at(axis, step):
        return now[tuple(slice(4 + (step if axis == k else 0), 4 + cube + (step if axis == k else 0)) for k in range(3))]
    total = 3 * STAR[0] * at(0, 0)
    for step in range(1, 5):
        total = total + STAR[step] * sum(at(axis, way * step) for axis in range(3) for way in (1, -1))
    return (2 * at(0, 0) - before + speed * total) * fade[:, None, None] * fade[:, None] * fade


orbitals = Size("orbitals", 84)
oi, oj, ok, ol = indices(oi=orbitals, oj=orbitals, ok=orbitals, ol=orbitals)


@nestor.nest
def fock_matrix(integral: f32[orbitals, orbitals, orbitals, orbitals], density: f32[orbitals, orbitals], core: f32[orbitals, orbitals]):
    """Hartree and Fock: what electrons feel of each other and of their exchange, from integrals of four orbitals."""
    felt = nestor.sum(integral[oi, oj, ok, ol] * density[ok, ol], over=(ok, ol))
    swapped = nestor.sum(integral[oi, ok, oj, ol] * density[ok, ol], over=(ok, ol))
    return define("out", (oi, oj), core[oi, oj] + felt - 0.5 * swapped)


def _fock(integral, density, core):
    return core + torch.einsum("ijkl,kl->ij", integral, density) - 0.5 * torch.einsum("ikjl,kl->ij", integral, density)


lattice = Size("lattice", 4096)
a, d = indices(a=lattice, d=lattice)


@nestor.nest(require=lattice >= 2)
def ising_sweep(spin: f32[lattice, lattice], limit: f32[lattice, lattice]):
    """Metropolis' sweep of a magnet whose sides meet: the white places, then the black ones; limit: what a change may cost, drawn before."""
    def after(now, colour):
        up = nestor.select(a > 0, now[a - 1, d], now[lattice - 1, d])
        down = nestor.select(a < lattice - 1, now[a + 1, d], now[0, d])
        left = nestor.select(d > 0, now[a, d - 1], now[a, lattice - 1])
        right = nestor.select(d < lattice - 1, now[a, d + 1], now[a, 0])
        price = 2 * now[a, d] * (up + down + left + right)
        turned = nestor.select(price < limit[a, d], -now[a, d], now[a, d])
        return nestor.select((a + d) % 2 == colour, turned, now[a, d])
    white = define("white", (a, d), after(spin, 0))
    return define("out", (a, d), after(white, 1))


def _ising(spin, limit):
    at = torch.arange(spin.shape[0], device=spin.device)
    colour = (at[:, None] + at) % 2
    for turn in range(2):
        price = 2 * spin * (spin.roll(1, 0) + spin.roll(-1, 0) + spin.roll(1, 1) + spin.roll(-1, 1))
        spin = torch.where((colour == turn) & (price < limit), -spin, spin)
    return spin


splats = Size("splats", 524288)
sl, term, rgb = indices(sl=splats, term=9, rgb=3)


@nestor.nest
def splat_colours(way: f32[splats, 3], share: f32[splats, 9, 3]):
    """3-D Gaussian splatting: colours that depend on the direction, by spherical harmonics up to degree 2."""
    x_, y_, z_ = (way[sl, axis] for axis in range(3))
    parts = (0.28209479, -0.48860251 * y_, 0.48860251 * z_, -0.48860251 * x_, 1.09254843 * x_ * y_, -1.09254843 * y_ * z_,
             0.31539157 * (2 * z_ * z_ - x_ * x_ - y_ * y_), -1.09254843 * x_ * z_, 0.54627422 * (x_ * x_ - y_ * y_))
    total = 0.5
    for at, part in enumerate(parts):
        total = total + part * share[sl, at, rgb]
    return define("out", (sl, rgb), nestor.maximum(total, 0.0))


def _splats(way, share):
    x, y, z = way.unbind(-1)
    parts = (torch.full_like(x, 0.28209479), -0.48860251 * y, 0.48860251 * z, -0.48860251 * x, 1.09254843 * x * y, -1.09254843 * y * z,
             0.31539157 * (2 * z * z - x * x - y * y), -1.09254843 * x * z, 0.54627422 * (x * x - y * y))
    return (0.5 + (torch.stack(parts, 1)[..., None] * share).sum(1)).clamp(min=0)


IMAGES = {"images": 2, "side": 4, "maps": 3, "groups": 2, "share": 3}
OPERATORS = [
    Operator(conv_norm_silu, _conv_norm, "R. Rombach et al., arXiv:2112.10752", IMAGES,
             draw={"weight": lambda x, s: x / (9 * s["maps"])**0.5, "gain": around_one, "bias": lambda x, _: 0.1 * x}),
    Operator(spatial_gate, _spatial_gate, "S. Woo et al., CBAM, arXiv:1807.06521", {"pictures": 2, "layers": 3, "high": 5, "across": 4},
             draw={"weight": lambda x, _: x / 7}),
    Operator(bilateral_slice, _bilateral_slice, "M. Gharbi et al., arXiv:1707.02880", {"photos": 1, "cells": 1},
             draw={"guide": lambda x, _: torch.sigmoid(x)}),
    Operator(local_contrast_norm, _local_contrast, "K. Jarrett et al., 2009", {"grey": 2, "tall": 6, "broad": 7},
             draw={"window": lambda x, _: torch.softmax(x.flatten(), 0).view_as(x)}),
    Operator(census_matching, _census, "R. Zabih and J. Woodfill, 1994", {"lines": 7, "columns": 9, "shifts": 3}, told=("shifts", )),
    Operator(depthwise_filter_gradient, _depthwise_gradient, "Z. Liu et al., arXiv:2201.03545", {"batch": 2, "place": 4, "wide": 3},
             draw={"grad": lambda x, s: x / (s["batch"] * s["place"]**2)**0.5}),
    Operator(power_spectrogram, _spectrogram, "J. Allen, 1977", {"clips": 2, "frames": 3, "bins": 5},
             draw={name: lambda x, _: x / 32 for name in ("cosine", "sine")}),
    Operator(gammatone_energy, _gammatone, "R. Patterson et al., 1992", {"sounds": 2, "spans": 2, "ears": 3},
             draw={"response": lambda x, _: x / 512**0.5}),
    Operator(conjugate_gradient_step, _conjugate, "M. Hestenes and E. Stiefel, 1952", {"deep": 6}),
    Operator(tridiagonal_solver, _tridiagonal, "L. Thomas, 1949", {"systems": 5, "unknowns": 6}, draw={"middle": lambda x, _: 4 + x.abs()}),
    Operator(seismic_step, _seismic, "M. Dablain, 1986", {"cube": 4}, draw={"speed": lambda x, _: 0.1 * x.abs(), "fade": around_one}),
    Operator(fock_matrix, _fock, "C. Roothaan, 1951", {"orbitals": 5}, draw={"density": divided("orbitals")}),
    Operator(ising_sweep, _ising, "N. Metropolis et al., 1953", {"lattice": 6},
             draw={"spin": lambda x, _: torch.where(x < 0, -1.0, 1.0), "limit": lambda x, _: -torch.sigmoid(x).log() / 0.44}),
    Operator(splat_colours, _splats, "B. Kerbl et al., arXiv:2308.04079", {"splats": 7}, draw={"way": lambda x, _: F.normalize(x, dim=-1)}),
]
