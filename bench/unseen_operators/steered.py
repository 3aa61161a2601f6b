"""Signals and systems: templates found in pictures, radar, filters and compressors of sound, coils, equalised and denoised pictures, contours, sorting,
energies of pairs of electrons, populations, neurons, spins, grammars, alignments, integers, prices, widest paths, hidden states."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, define, f16, f32, i32, indices

from .problem import Operator, divided, widened

pictures, tall, broad, side = Size("pictures", 8), Size("tall", 512), Size("broad", 512), Size("side", 8)
g, y, x_, a, b = indices(g=pictures, y=tall - side + 1, x=broad - side + 1, a=side, b=side)


@nestor.nest(require=(tall >= side) & (broad >= side))
def normalised_correlation(picture: f32[pictures, tall, broad], template: f32[side, side]):
    """Where a template is, whatever the light: its correlation with each window, by the window's mean and spread."""
    area = side * side
    mean = define("mean", (g, y, x_), nestor.sum(picture[g, y + a, x_ + b], over=(a, b)) / area)
    middle = define("middle", (), nestor.sum(template[a, b], over=(a, b)) / area)
    gap, wanted = picture[g, y + a, x_ + b] - mean[g, y, x_], template[a, b] - middle[()]
    both = define("both", (g, y, x_), nestor.sum(gap * wanted, over=(a, b)))
    spread = define("spread", (g, y, x_), nestor.sum(gap * gap, over=(a, b)))
    own = define("own", (), nestor.sum(wanted * wanted, over=(a, b)))
    return define("out", (g, y, x_), both[g, y, x_] * nestor.rsqrt(spread[g, y, x_] * own[()] + 1e-6))


def _correlation(picture, template):
    side, wanted = template.shape[0], template - template.mean()
    x = picture[:, None]
    mean = F.avg_pool2d(x, side, 1)
    both = F.conv2d(x, wanted[None, None])
    spread = (F.avg_pool2d(x * x, side, 1) - mean * mean) * side * side
    return (both * torch.rsqrt(spread * wanted.square().sum() + 1e-6))[:, 0]


beams, cells = Size("beams", 4096), Size("cells", 2048)
be, ce, w = indices(be=beams, ce=cells, w=17)


@nestor.nest
def cell_detector(x: f32[beams, cells]):
    """Radar's constant rate of false alarms: a cell against the larger mean of those before and behind it, with guards between."""
    before = nestor.sum(x[be, ce - 3 - w], over=w, where=ce - 3 - w >= 0) / 17
    behind = nestor.sum(x[be, ce + 3 + w], over=w, where=ce + 3 + w < cells) / 17
    level = define("level", (be, ce), nestor.maximum(before, behind))
    return define("out", (be, ce), nestor.select(x[be, ce] > 4 * level[be, ce], x[be, ce] / (level[be, ce] + 1e-6), 0.0))


def _cells(x):
    means = F.avg_pool1d(F.pad(x, (19, 19))[:, None], 17, 1)[:, 0]
    level = torch.maximum(means[:, :-22], means[:, 22:])
    return torch.where(x > 4 * level, x / (level + 1e-6), 0.0)


sounds, times, sections = Size("sounds", 4096), Size("times", 256), Size("sections", 4, fixed=True)
s, t, k = indices(s=sounds, t=times, k=sections)


@nestor.nest
def biquad_cascade(x: f32[sounds, times], gain: f32[sections, 5]):
    """An equaliser: filters of second order, one behind another."""
    past = nestor.Tensor("past", f32, (sections + 1, sounds, times + 2))
    t2, s2, k2 = indices(t2=2, s2=sounds, k2=sections + 1)
    past.write((k2, s2, t2), (k2, s2, t2), 0.0)
    past.write((s, t), (0, s, t + 2), x[s, t])
    found = gain[k, 0] * past[k, s, t + 2] + gain[k, 1] * past[k, s, t + 1] + gain[k, 2] * past[k, s, t]
    past.write((t, k, s), (k + 1, s, t + 2), found - gain[k, 3] * past[k + 1, s, t + 1] - gain[k, 4] * past[k + 1, s, t])
    return define("out", (s, t), past[sections, s, t + 2])


def _biquad(x, gain):
    for section in gain:
        held = [torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])]
        before = F.pad(x, (2, 0))
        moved = section[0] * x + section[1] * before[:, 1:-1] + section[2] * before[:, :-2]
        for time in range(x.shape[1]):
            held.append(moved[:, time] - section[3] * held[-1] - section[4] * held[-2])
        x = torch.stack(held[2:], 1)
    return x


@nestor.nest
def level_compressor(x: f32[sounds, times], rise=0.2, fall=0.01, limit=0.5, share=0.75):
    """A compressor: the level follows fast upwards and slowly downwards, and what is above a limit is made smaller."""
    (t1,) = indices(t1=times - 1)
    level = define("level", (t, s), nestor.absolute(x[s, t]), where=t == 0)
    size = nestor.absolute(x[s, t1 + 1])
    rate = nestor.select(size > level[t1, s], rise, fall)
    level.write((t1, s), (t1 + 1, s), level[t1, s] + rate * (size - level[t1, s]))
    above = nestor.maximum(nestor.log(level[t, s] + 1e-6) - nestor.log(limit), 0.0)
    return define("out", (s, t), x[s, t] * nestor.exp(-share * above))


def _compressor(x, rise=0.2, fall=0.01, limit=0.5, share=0.75):
    size = x.abs()
    level = [size[:, 0]]
    for time in range(1, x.shape[1]):
        level.append(level[-1] + torch.where(size[:, time] > level[-1], rise, fall) * (size[:, time] - level[-1]))
    above = ((torch.stack(level, 1) + 1e-6).log() - torch.tensor(limit, dtype=x.dtype).log()).clamp(min=0)
    return x * torch.exp(-share * above)


coils, planes, lines, columns = Size("coils", 16), Size("planes", 8), Size("lines", 512), Size("columns", 512)
c, pl, l, co = indices(c=coils, pl=planes, l=lines, co=columns)


@nestor.nest
def coil_combination(real: f16[planes, coils, lines, columns], imaginary: f16[planes, coils, lines, columns], sense: f16[planes, coils, lines, columns],
                     sense2: f16[planes, coils, lines, columns]):
    """SENSE: a picture from what coils receive, weighted by how well each sees a place."""
    one = nestor.sum(real[pl, c, l, co] * sense[pl, c, l, co] + imaginary[pl, c, l, co] * sense2[pl, c, l, co], over=c)
    two = nestor.sum(imaginary[pl, c, l, co] * sense[pl, c, l, co] - real[pl, c, l, co] * sense2[pl, c, l, co], over=c)
    size = define("size", (pl, l, co), nestor.sum(sense[pl, c, l, co] * sense[pl, c, l, co] + sense2[pl, c, l, co] * sense2[pl, c, l, co], over=c) + 1e-6)
    return define("out", (pl, l, co), nestor.sqrt(one * one + two * two) / size[pl, l, co], type=f16)


def _coils(real, imaginary, sense, sense2):
    real, imaginary, sense, sense2 = (widened(x) for x in (real, imaginary, sense, sense2))
    one, two = (real * sense + imaginary * sense2).sum(1), (imaginary * sense - real * sense2).sum(1)
    return torch.sqrt(one * one + two * two) / ((sense * sense + sense2 * sense2).sum(1) + 1e-6)


levels = 64
lv, lv2 = indices(lv=levels, lv2=levels)


@nestor.nest
def equalised_image(x: i32[planes, lines, columns]):
    """A picture whose levels are all as frequent: how many are below each, by counts."""
    here = nestor.select(x[pl, l, co] == nestor.cast(i32, lv), 1.0, 0.0)
    count = define("count", (pl, lv), nestor.sum(here, over=(l, co)))
    share = define("share", (pl, lv), nestor.sum(count[pl, lv2], over=lv2, where=lv2 <= lv) / (lines * columns))
    found = nestor.sum(nestor.select(x[pl, l, co] == nestor.cast(i32, lv), share[pl, lv], 0.0), over=lv)
    return define("out", (pl, l, co), found)


def _equalised(x):
    count = F.one_hot(x.long().flatten(1), levels).sum(1)
    share = count.cumsum(1).float() / x[0].numel()
    return share.gather(1, x.long().flatten(1)).view(x.shape)


@nestor.nest
def active_contour(picture: f32[planes, lines, columns], level: f32[planes, lines + 2, columns + 2], force=0.2):
    """Chan and Vese's contour: means inside and outside, and a curve that moves between them and stays smooth."""
    size = level[pl, l + 1, co + 1]
    inside = define("inside", (pl, l, co), 0.5 + nestor.atan(size) / 3.14159265)
    within = define("within", pl, nestor.sum(inside[pl, l, co] * picture[pl, l, co], over=(l, co)) / nestor.sum(inside[pl, l, co], over=(l, co)))
    beyond = define("beyond", pl, nestor.sum((1 - inside[pl, l, co]) * picture[pl, l, co], over=(l, co)) /
                    nestor.sum(1 - inside[pl, l, co], over=(l, co)))
    dx = 0.5 * (level[pl, l + 1, co + 2] - level[pl, l + 1, co])
    dy = 0.5 * (level[pl, l + 2, co + 1] - level[pl, l, co + 1])
    dxx = level[pl, l + 1, co + 2] - 2 * size + level[pl, l + 1, co]
    dyy = level[pl, l + 2, co + 1] - 2 * size + level[pl, l, co + 1]
    dxy = 0.25 * (level[pl, l + 2, co + 2] - level[pl, l + 2, co] - level[pl, l, co + 2] + level[pl, l, co])
    square = dx * dx + dy * dy + 1e-3
    curve = (dxx * dy * dy - 2 * dx * dy * dxy + dyy * dx * dx) * nestor.rsqrt(square) / square
    gap, gap2 = picture[pl, l, co] - within[pl], picture[pl, l, co] - beyond[pl]
    near = 1 / (3.14159265 * (1 + size * size))
    return define("out", (pl, l, co), size + near * (force * curve - gap * gap + gap2 * gap2))


def _contour(picture, level, force=0.2):
    size = level[:, 1:-1, 1:-1]
    inside = 0.5 + torch.atan(size) / 3.14159265
    within = ((inside * picture).sum((1, 2)) / inside.sum((1, 2)))[:, None, None]
    beyond = (((1 - inside) * picture).sum((1, 2)) / (1 - inside).sum((1, 2)))[:, None, None]
    dx, dy = 0.5 * (level[:, 1:-1, 2:] - level[:, 1:-1, :-2]), 0.5 * (level[:, 2:, 1:-1] - level[:, :-2, 1:-1])
    dxx = level[:, 1:-1, 2:] - 2 * size + level[:, 1:-1, :-2]
    dyy = level[:, 2:, 1:-1] - 2 * size + level[:, :-2, 1:-1]
    dxy = 0.25 * (level[:, 2:, 2:] - level[:, 2:, :-2] - level[:, :-2, 2:] + level[:, :-2, :-2])
    square = dx * dx + dy * dy + 1e-3
    curve = (dxx * dy * dy - 2 * dx * dy * dxy + dyy * dx * dx) * torch.rsqrt(square) / square
    return size + (force * curve - (picture - within).square() + (picture - beyond).square()) / (3.14159265 * (1 + size * size))


@nestor.nest
def dual_denoising(picture: f32[planes, lines, columns], down: f32[planes, lines, columns], along: f32[planes, lines, columns], step=0.2, weight=0.1):
    """Chambolle's step for pictures of little variation: a field on the edges, its divergence, and back within its limits."""
    above = nestor.select(l >= 1, down[pl, l - 1, co], 0.0)
    before = nestor.select(co >= 1, along[pl, l, co - 1], 0.0)
    here = nestor.select(l < lines - 1, down[pl, l, co], 0.0) + nestor.select(co < columns - 1, along[pl, l, co], 0.0)
    rest = define("rest", (pl, l, co), here - above - before - picture[pl, l, co] / weight)
    slope = define("slope", (pl, l, co), nestor.select(l < lines - 1, rest[pl, l + 1, co] - rest[pl, l, co], 0.0))
    slope2 = define("slope2", (pl, l, co), nestor.select(co < columns - 1, rest[pl, l, co + 1] - rest[pl, l, co], 0.0))
    scale = 1 + step * nestor.sqrt(slope[pl, l, co] * slope[pl, l, co] + slope2[pl, l, co] * slope2[pl, l, co])
    return (define("down_out", (pl, l, co), (down[pl, l, co] + step * slope[pl, l, co]) / scale),
            define("along_out", (pl, l, co), (along[pl, l, co] + step * slope2[pl, l, co]) / scale))


def _denoising(picture, down, along, step=0.2, weight=0.1):
    one, two = down.clone(), along.clone()
    one[:, -1], two[:, :, -1] = 0, 0
    rest = one + two - F.pad(one[:, :-1], (0, 0, 1, 0)) - F.pad(two[:, :, :-1], (1, 0)) - picture / weight
    slope, slope2 = F.pad(rest.diff(dim=1), (0, 0, 0, 1)), F.pad(rest.diff(dim=2), (0, 1))
    scale = 1 + step * torch.sqrt(slope.square() + slope2.square())
    return (down + step * slope) / scale, (along + step * slope2) / scale


packs, values = Size("packs", 65536), Size("values", 32, fixed=True)
pk, vl, round_ = indices(pk=packs, vl=values, round_=values)


@nestor.nest
def transposition_sort(x: f32[packs, values]):
    """Short rows in order, by exchanges of neighbours."""
    held = define("held", (round_, pk, vl), x[pk, vl], where=round_ == 0)
    (turn,) = indices(turn=values - 1)
    ahead = nestor.select(vl < values - 1, held[turn, pk, vl + 1], held[turn, pk, vl])
    back = nestor.select(vl >= 1, held[turn, pk, vl - 1], held[turn, pk, vl])
    own = held[turn, pk, vl]
    held.write((turn, pk, vl), (turn + 1, pk, vl), nestor.select((turn + vl) % 2 == 0, nestor.minimum(own, ahead), nestor.maximum(own, back)))
    last = nestor.select(vl < values - 1, held[values - 1, pk, vl + 1], held[values - 1, pk, vl])
    first = nestor.select(vl >= 1, held[values - 1, pk, vl - 1], held[values - 1, pk, vl])
    own = held[values - 1, pk, vl]
    return define("out", (pk, vl), nestor.select((values - 1 + vl) % 2 == 0, nestor.minimum(own, last), nestor.maximum(own, first)))


def _sort(x):
    return x.sort(1).values


filled, empty, aux = Size("filled", 32), Size("empty", 128), Size("aux", 512)
i, j, e, e2, q = indices(i=filled, j=filled, e=empty, e2=empty, q=aux)


@nestor.nest
def pair_correlation(b_: f16[filled, empty, aux], low: f32[filled], high: f32[empty]):
    """MP2 with resolved identity: what pairs of electrons gain, from integrals of three centres."""
    both = define("both", (i, j, e, e2), nestor.sum(b_[i, e, q] * b_[j, e2, q], over=q))
    gap = low[i] + low[j] - high[e] - high[e2]
    gain = both[i, j, e, e2] * (2 * both[i, j, e, e2] - both[i, j, e2, e]) / gap
    return define("out", (i, j), nestor.sum(gain, over=(e, e2)))


def _pairs(b_, low, high):
    both = widened(torch.einsum("ieq,jfq->ijef", b_, b_))
    gap = low[:, None, None, None] + low[:, None, None] - high[:, None] - high
    return (both * (2 * both - both.mT) / gap).sum((2, 3))


games, kinds = Size("games", 4096), Size("kinds", 512)
ga, ki, ki2 = indices(ga=games, ki=kinds, ki2=kinds)


@nestor.nest
def replicator_step(share: f16[games, kinds], payoff: f16[kinds, kinds]):
    """Populations at play: kinds that do better than the mean grow."""
    fit = define("fit", (ga, ki), nestor.sum(payoff[ki, ki2] * share[ga, ki2], over=ki2))
    mean = define("mean", ga, nestor.sum(share[ga, ki] * fit[ga, ki], over=ki))
    return define("out", (ga, ki), share[ga, ki] * (1 + 0.1 * (fit[ga, ki] - mean[ga])), type=f16)


def _replicator(share, payoff):
    fit, wide = widened(share @ payoff.T), widened(share)
    return (wide * (1 + 0.1 * (fit - (wide * fit).sum(1, keepdim=True)))).to(share.dtype)


cells_, moments = Size("neurons", 65536), Size("moments", 64)
ne, mo = indices(ne=cells_, mo=moments)


@nestor.nest
def neuron_currents(drive: f32[moments, cells_]):
    """Hodgkin and Huxley's nerve: a voltage and three gates, by Euler's steps."""
    (one,) = indices(one=moments + 1)
    volt = define("volt", (one, ne), -65.0, where=one == 0)
    gate_m = define("gate_m", (one, ne), 0.05, where=one == 0)
    gate_h = define("gate_h", (one, ne), 0.6, where=one == 0)
    gate_n = define("gate_n", (one, ne), 0.32, where=one == 0)

    def moved(gate, rise, fall):
        return gate + 0.01 * (rise * (1 - gate) - fall * gate)
    with nestor.steps(mo):
        v, m, h, n = volt[mo, ne], gate_m[mo, ne], gate_h[mo, ne], gate_n[mo, ne]
        current = drive[mo, ne] - 120 * m * m * m * h * (v - 50) - 36 * n * n * n * n * (v + 77) - 0.3 * (v + 54.4)
        volt.write((mo, ne), (mo + 1, ne), v + 0.01 * current)
        gate_m.write((mo, ne), (mo + 1, ne), moved(m, 0.1 * (v + 40.01) / (1 - nestor.exp(-(v + 40.01) / 10)), 4 * nestor.exp(-(v + 65) / 18)))
        gate_h.write((mo, ne), (mo + 1, ne), moved(h, 0.07 * nestor.exp(-(v + 65) / 20), 1 / (1 + nestor.exp(-(v + 35) / 10))))
        gate_n.write((mo, ne), (mo + 1, ne), moved(n, 0.01 * (v + 55.01) / (1 - nestor.exp(-(v + 55.01) / 10)), 0.125 * nestor.exp(-(v + 65) / 80)))
    return define("out", ne, volt[moments, ne])


def _neurons(drive):
    v, m, h, n = (torch.full_like(drive[0], start) for start in (-65.0, 0.05, 0.6, 0.32))
    for moment in drive:
        current = moment - 120 * m**3 * h * (v - 50) - 36 * n**4 * (v + 77) - 0.3 * (v + 54.4)
        m2 = m + 0.01 * (0.1 * (v + 40.01) / (1 - torch.exp(-(v + 40.01) / 10)) * (1 - m) - 4 * torch.exp(-(v + 65) / 18) * m)
        h2 = h + 0.01 * (0.07 * torch.exp(-(v + 65) / 20) * (1 - h) - h / (1 + torch.exp(-(v + 35) / 10)))
        n = n + 0.01 * (0.01 * (v + 55.01) / (1 - torch.exp(-(v + 55.01) / 10)) * (1 - n) - 0.125 * torch.exp(-(v + 65) / 80) * n)
        v, m, h = v + 0.01 * current, m2, h2
    return v


lattices, deep = Size("lattices", 1024), 64
la, r, u = indices(la=lattices, r=deep, u=deep)


@nestor.nest
def spin_flips(spin: f32[lattices, deep, deep], chance: f32[lattices, deep, deep], cold=0.44):
    """Ising's spins on a torus: a sweep of one colour of the chessboard, then of the other, by Metropolis' rule."""
    now = spin
    for colour in range(2):
        around = now[la, (r + 1) % deep, u] + now[la, (r + deep - 1) % deep, u] + now[la, r, (u + 1) % deep] + now[la, r, (u + deep - 1) % deep]
        flips = nestor.exp(-2 * cold * now[la, r, u] * around) > chance[la, r, u]
        turned = nestor.select(flips, -now[la, r, u], now[la, r, u])
        now = define(f"spin_{colour}", (la, r, u), nestor.select((r + u) % 2 == colour, turned, now[la, r, u]))
    return now


def _spins(spin, chance, cold=0.44):
    colours = (torch.arange(spin.shape[1], device=spin.device)[:, None] + torch.arange(spin.shape[2], device=spin.device)) % 2
    for colour in range(2):
        around = spin.roll(1, 1) + spin.roll(-1, 1) + spin.roll(1, 2) + spin.roll(-1, 2)
        flips = (torch.exp(-2 * cold * spin * around) > chance) & (colours == colour)
        spin = torch.where(flips, -spin, spin)
    return spin


texts, words, signs = Size("texts", 64), Size("words", 24, fixed=True), Size("signs", 16, fixed=True)
tx, sign, sign1, sign2 = indices(tx=texts, sign=signs, sign1=signs, sign2=signs)


@nestor.nest
def inside_spans(leaf: f32[texts, words, signs], rule: f32[signs, signs, signs]):
    """The inside algorithm: how likely a grammar makes each span of a text, from its shorter spans."""
    length, start, split = indices(length=words, start=words, split=words)
    (more,) = indices(more=words - 1)
    inside = define("inside", (tx, length, start, sign), leaf[tx, start, sign], where=length == 0)
    with nestor.steps(more):
        first = inside[tx, split, start, sign1]
        rest = inside[tx, more - split, start + split + 1, sign2]
        pair = define("pair", (more, tx, start, sign1, sign2), nestor.sum(first * rest, over=split, where=split <= more), where=start + more + 1 < words)
        inside.write((more, tx, start, sign), (tx, more + 1, start, sign),
                     nestor.sum(rule[sign, sign1, sign2] * pair[more, tx, start, sign1, sign2], over=(sign1, sign2)), where=start + more + 1 < words)
    return define("out", (tx, sign), inside[tx, words - 1, 0, sign])


def _inside(leaf, rule):
    words = leaf.shape[1]
    inside = [leaf]
    for more in range(words - 1):
        count = words - more - 1
        pair = sum(torch.einsum("tsa,tsb->tsab", inside[split][:, :count], inside[more - split][:, split + 1:split + 1 + count]) for split in range(more + 1))
        inside.append(torch.einsum("cab,tsab->tsc", rule, pair))
    return inside[-1][:, 0]


pairs, letters, letters2 = Size("pairs", 2048), Size("letters", 64), Size("letters2", 64)
pr, lr, lr2 = indices(pr=pairs, lr=letters, lr2=letters2)


@nestor.nest
def affine_alignment(alike: f32[pairs, letters, letters2], opened=2.0, longer=0.5):
    """Gotoh's alignment: gaps that cost more to open than to go on with."""
    row, column = indices(row=letters + 1, column=letters2 + 1)
    best = define("best", (pr, row, column), 0.0, where=(row == 0) | (column == 0))
    down = define("down", (pr, row, column), -1e4, where=(row == 0) | (column == 0))
    along = define("along", (pr, row, column), -1e4, where=(row == 0) | (column == 0))
    with nestor.steps(lr, lr2):
        down.write((lr, lr2, pr), (pr, lr + 1, lr2 + 1), nestor.maximum(best[pr, lr, lr2 + 1] - opened, down[pr, lr, lr2 + 1] - longer))
        along.write((lr, lr2, pr), (pr, lr + 1, lr2 + 1), nestor.maximum(best[pr, lr + 1, lr2] - opened, along[pr, lr + 1, lr2] - longer))
        gap = nestor.maximum(down[pr, lr + 1, lr2 + 1], along[pr, lr + 1, lr2 + 1])
        best.write((lr, lr2, pr), (pr, lr + 1, lr2 + 1), nestor.maximum(gap, best[pr, lr, lr2] + alike[pr, lr, lr2]))
    return define("out", pr, best[pr, letters, letters2])


def _affine(alike, opened=2.0, longer=0.5):
    zero = torch.zeros_like(alike[:, 0, 0])
    above, above_down = [zero] * (alike.shape[2] + 1), [zero - 1e4] * (alike.shape[2] + 1)
    for row in range(alike.shape[1]):
        best, down, along = [zero], [zero - 1e4], zero - 1e4
        for column in range(alike.shape[2]):
            lower = torch.maximum(above[column + 1] - opened, above_down[column + 1] - longer)
            along = torch.maximum(best[-1] - opened, along - longer)
            best.append(torch.maximum(torch.maximum(lower, along), above[column] + alike[:, row, column]))
            down.append(lower)
        above, above_down = best, down
    return above[-1]


sums, roots = Size("sums", 4096), Size("roots", 256)
sm, ro, ro2 = indices(sm=sums, ro=roots, ro2=roots)


@nestor.nest
def modular_transform(x: i32[sums, roots], power: i32[roots, roots]):
    """A transform over integers modulo a prime, by its definition."""
    term = x[sm, ro2] * power[ro, ro2] % 7681
    return define("out", (sm, ro), nestor.sum(term, over=ro2) % 7681)


def _modular(x, power):
    return ((x.double() @ power.double().T) % 7681).to(torch.int32)


paths, moves = Size("paths", 262144), Size("moves", 64)
pa, mv = indices(pa=paths, mv=moves)


@nestor.nest
def stochastic_volatility(one: f32[moves, paths], two: f32[moves, paths], strike=1.0):
    """Heston's prices: paths whose spread moves by itself, and what a call on their mean is worth."""
    (at,) = indices(at=moves + 1)
    price = define("price", (at, pa), 0.0, where=at == 0)
    spread = define("spread", (at, pa), 0.04, where=at == 0)
    with nestor.steps(mv):
        now = nestor.maximum(spread[mv, pa], 0.0)
        shock = nestor.sqrt(now * 0.015625)
        price.write((mv, pa), (mv + 1, pa), price[mv, pa] - 0.5 * now * 0.015625 + shock * one[mv, pa])
        spread.write((mv, pa), (mv + 1, pa), spread[mv, pa] + 1.5 * (0.04 - now) * 0.015625 + 0.3 * shock * (0.8 * two[mv, pa] - 0.6 * one[mv, pa]))
    mean = define("mean", pa, nestor.sum(nestor.exp(price[mv + 1, pa]), over=mv) / moves)
    return define("out", (), nestor.sum(nestor.maximum(mean[pa] - strike, 0.0), over=pa) / paths)


def _heston(one, two, strike=1.0):
    price, spread, total = torch.zeros_like(one[0]), torch.full_like(one[0], 0.04), 0
    for first, second in zip(one, two):
        now = spread.clamp(min=0)
        shock = torch.sqrt(now * 0.015625)
        price = price - 0.5 * now * 0.015625 + shock * first
        spread = spread + 1.5 * (0.04 - now) * 0.015625 + 0.3 * shock * (0.8 * second - 0.6 * first)
        total = total + price.exp()
    return (total / one.shape[0] - strike).clamp(min=0).mean()


places = Size("places", 1024)
p1, p2, p3 = indices(p1=places, p2=places, p3=places)


@nestor.nest
def widest_paths(width: f32[places, places]):
    """Two ways in a row, each as wide as its narrowest part."""
    return define("out", (p1, p2), nestor.max(nestor.minimum(width[p1, p3], width[p3, p2]), over=p3))


def _widest(width):
    return torch.cat([torch.minimum(part[:, :, None], width).amax(1) for part in width.split(32)])


chains, seen, hidden = Size("chains", 256), Size("seen", 64), Size("hidden", 32, fixed=True)
ch, sn, h1, h2 = indices(ch=chains, sn=seen, h1=hidden, h2=hidden)


@nestor.nest
def state_posteriors(emission: f32[chains, seen, hidden], moving: f32[hidden, hidden]):
    """Baum and Welch: how likely each hidden state is at each time, from before and from behind."""
    (go,) = indices(go=seen - 1)
    ahead = define("ahead", (ch, sn, h1), emission[ch, sn, h1] / hidden, where=sn == 0)
    behind = define("behind", (ch, sn, h1), 1.0, where=sn == seen - 1)
    with nestor.steps(go):
        raw = define("raw", (go, ch, h1), emission[ch, go + 1, h1] * nestor.sum(moving[h2, h1] * ahead[ch, go, h2], over=h2))
        size = define("size", (go, ch), nestor.sum(raw[go, ch, h1], over=h1))
        ahead.write((go, ch, h1), (ch, go + 1, h1), raw[go, ch, h1] / size[go, ch])
    with nestor.steps(go):
        late = define("late", (go, ch, h1), nestor.sum(moving[h1, h2] * emission[ch, seen - 1 - go, h2] * behind[ch, seen - 1 - go, h2], over=h2))
        size2 = define("size2", (go, ch), nestor.sum(late[go, ch, h1], over=h1))
        behind.write((go, ch, h1), (ch, seen - 2 - go, h1), late[go, ch, h1] / size2[go, ch])
    both = define("both", (ch, sn, h1), ahead[ch, sn, h1] * behind[ch, sn, h1])
    total = define("total", (ch, sn), nestor.sum(both[ch, sn, h1], over=h1))
    return define("out", (ch, sn, h1), both[ch, sn, h1] / total[ch, sn])


def _posteriors(emission, moving):
    count = emission.shape[1]
    ahead, behind = [emission[:, 0] / emission.shape[2]], [torch.ones_like(emission[:, 0])]
    for time in range(1, count):
        raw = emission[:, time] * (ahead[-1] @ moving)
        ahead.append(raw / raw.sum(1, keepdim=True))
        late = (emission[:, count - time] * behind[-1]) @ moving.T
        behind.append(late / late.sum(1, keepdim=True))
    both = torch.stack(ahead, 1) * torch.stack(behind[::-1], 1)
    return both / both.sum(2, keepdim=True)


def _positive(normal, _):
    return normal.abs() + 0.1


OPERATORS = [
    Operator(normalised_correlation, _correlation, "J. Lewis, Vision Interface 1995", {"pictures": 2, "tall": 11, "broad": 13, "side": 3}),
    Operator(cell_detector, _cells, "H. Finn and R. Johnson, RCA Review 1968", {"beams": 3, "cells": 45}, draw={"x": lambda x, _: x.square()}),
    Operator(biquad_cascade, _biquad, "R. Bristow-Johnson, Cookbook formulae", {"sounds": 3, "times": 7, "sections": 2},
             draw={"gain": lambda x, _: 0.25 * x.tanh()}),
    Operator(level_compressor, _compressor, "D. Giannoulis et al., JAES 2012", {"sounds": 3, "times": 7}),
    Operator(coil_combination, _coils, "K. Pruessmann et al., MRM 1999", {"coils": 3, "planes": 2, "lines": 5, "columns": 7}),
    Operator(equalised_image, _equalised, "R. Gonzalez and R. Woods, 1992", {"planes": 2, "lines": 5, "columns": 7},
             draw={"x": lambda x, _: ((x + 2) * 16).floor().clamp(0, 63)}),
    Operator(active_contour, _contour, "T. Chan and L. Vese, IEEE TIP 2001", {"planes": 2, "lines": 5, "columns": 7}),
    Operator(dual_denoising, _denoising, "A. Chambolle, JMIV 2004", {"planes": 2, "lines": 5, "columns": 7}, draw={"down": lambda x, _: 0.3 * x.tanh(),
                                                                                                                    "along": lambda x, _: 0.3 * x.tanh()}),
    Operator(transposition_sort, _sort, "D. Knuth, TAOCP 3", {"packs": 3, "values": 6}),
    Operator(pair_correlation, _pairs, "M. Feyereisen et al., Chem. Phys. Lett. 1993", {"filled": 3, "empty": 5, "aux": 8},
             draw={"b_": divided("aux"), "low": lambda x, _: -1 - x.abs(), "high": lambda x, _: 0.5 + x.abs()}),
    Operator(replicator_step, _replicator, "P. Taylor and L. Jonker, 1978", {"games": 3, "kinds": 8},
             draw={"share": lambda x, sizes: x.abs() / sizes["kinds"]}),
    Operator(neuron_currents, _neurons, "A. Hodgkin and A. Huxley, J. Physiol. 1952", {"neurons": 3, "moments": 5}, draw={"drive": lambda x, _: 10 + x}),
    Operator(spin_flips, _spins, "N. Metropolis et al., 1953", {"lattices": 2},
             draw={"spin": lambda x, _: (x > 0) * 2.0 - 1, "chance": lambda x, _: 0.5 * (1 + torch.erf(x / 2**0.5))}),
    Operator(inside_spans, _inside, "J. Baker, 1979", {"texts": 2, "words": 5, "signs": 3},
             draw={"leaf": lambda x, _: x.abs(), "rule": lambda x, _: x.abs() / 128}),
    Operator(affine_alignment, _affine, "O. Gotoh, J. Mol. Biol. 1982", {"pairs": 3, "letters": 4, "letters2": 5}),
    Operator(modular_transform, _modular, "J. Pollard, Math. Comp. 1971", {"sums": 3, "roots": 7},
             draw={"x": lambda x, _: (x.abs() * 900).floor(), "power": lambda x, _: (x.abs() * 900).floor()}),
    Operator(stochastic_volatility, _heston, "S. Heston, Rev. Financ. Stud. 1993", {"paths": 9, "moves": 5}),
    Operator(widest_paths, _widest, "M. Pollack, Oper. Res. 1960", {"places": 9}),
    Operator(state_posteriors, _posteriors, "L. Baum et al., Ann. Math. Stat. 1970", {"chains": 3, "seen": 5, "hidden": 3},
             draw={"emission": _positive, "moving": _positive}),
]
