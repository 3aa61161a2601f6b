"""What statistics and learning estimate: how far two heads are apart, layers with noise, mixtures of logistics, matches that a second best does not
reach, triangles, clusters and maps, factors without negative parts, events that bring on others, rankings, splits of trees, steps without a rate."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, divided, widened

rows, width, vocabulary = Size("rows", 1024), Size("width", 1024), Size("vocabulary", 32000)
n, c, v = indices(n=rows, c=width, v=vocabulary)


@nestor.nest
def linear_divergence(x: bf16[rows, width], weight: bf16[vocabulary, width], taught: bf16[rows, width], teacher: bf16[vocabulary, width]):
    """Distillation from hidden states: Kullback and Leibler's divergence between a teacher's head and a student's."""
    ours = define("ours", (n, v), nestor.sum(x[n, c] * weight[v, c], over=c))
    theirs = define("theirs", (n, v), nestor.sum(taught[n, c] * teacher[v, c], over=c))
    top = define("top", n, nestor.max(ours[n, v], over=v))
    top2 = define("top2", n, nestor.max(theirs[n, v], over=v))
    total = define("total", n, nestor.log(nestor.sum(nestor.exp(ours[n, v] - top[n]), over=v)) + top[n])
    power = define("power", (n, v), nestor.exp(theirs[n, v] - top2[n]))
    total2 = define("total2", n, nestor.sum(power[n, v], over=v))
    gap = nestor.sum(power[n, v] * (theirs[n, v] - ours[n, v]), over=v) / total2[n]
    return define("out", n, gap - top2[n] - nestor.log(total2[n]) + total[n])


def _divergence(x, weight, taught, teacher):
    ours, theirs = torch.log_softmax(widened(x @ weight.T), 1), torch.log_softmax(widened(taught @ teacher.T), 1)
    return (theirs.exp() * (theirs - ours)).sum(1)


tokens, units = Size("tokens", 4096), Size("units", 2048)
t, u, i = indices(t=tokens, u=units, i=width)


@nestor.nest
def noisy_linear(x: bf16[tokens, width], mean: bf16[units, width], spread: bf16[units, width], noise: f32[width], out_noise: f32[units], bias: f32[units]):
    """NoisyNet's layer: weights with noise that factors into one for inputs and one for outputs."""
    weight = mean[u, i] + spread[u, i] * (noise[i] * out_noise[u])
    return define("out", (t, u), nestor.sum(x[t, i] * weight, over=i) + bias[u], type=bf16)


def _noisy(x, mean, spread, noise, out_noise, bias):
    weight = (widened(mean) + widened(spread) * torch.outer(out_noise, noise)).to(x.dtype)
    return (widened(x @ weight.T) + bias).to(x.dtype)


pixels, many = Size("pixels", 262144), Size("many", 10)
p, m = indices(p=pixels, m=many)


@nestor.nest
def logistic_mixture(x: f32[pixels], chance: f32[many, pixels], place: f32[many, pixels], narrow: f32[many, pixels]):
    """PixelCNN++: how likely a level of 256 is by a mixture of logistics; the outermost levels take all beyond them."""
    top = define("top", p, nestor.max(chance[m, p], over=m))
    total = define("total", p, nestor.log(nestor.sum(nestor.exp(chance[m, p] - top[p]), over=m)) + top[p])
    upper = nestor.select(x[p] > 0.999, 1.0, nestor.sigmoid((x[p] + 1 / 255 - place[m, p]) * nestor.exp(narrow[m, p])))
    lower = nestor.select(x[p] < -0.999, 0.0, nestor.sigmoid((x[p] - 1 / 255 - place[m, p]) * nestor.exp(narrow[m, p])))
    likely = define("likely", (m, p), chance[m, p] - total[p] + nestor.log(nestor.maximum(upper - lower, 1e-12)))
    best = define("best", p, nestor.max(likely[m, p], over=m))
    return define("out", p, nestor.log(nestor.sum(nestor.exp(likely[m, p] - best[p]), over=m)) + best[p])


def _logistic(x, chance, place, narrow):
    steep = narrow.exp()
    upper = torch.where(x > 0.999, 1.0, torch.sigmoid((x + 1 / 255 - place) * steep))
    lower = torch.where(x < -0.999, 0.0, torch.sigmoid((x - 1 / 255 - place) * steep))
    return torch.logsumexp(torch.log_softmax(chance, 0) + (upper - lower).clamp(min=1e-12).log(), 0)


first, second, dim = Size("first", 4096), Size("second", 8192), Size("dim", 128, fixed=True)
a, b, d = indices(a=first, b=second, d=dim)


@nestor.nest
def ratio_test(one: f16[first, dim], other: f16[second, dim]):
    """Lowe's test: each description's nearest of another picture's, which one, and how much nearer it is than the second."""
    square = nestor.sum(one[a, d] * one[a, d], over=d)
    square2 = nestor.sum(other[b, d] * other[b, d], over=d)
    far = define("far", (a, b), square + square2 - 2 * nestor.sum(one[a, d] * other[b, d], over=d))
    best = define("best", a, nestor.min(far[a, b], over=b))
    which = define("which", a, nestor.min(nestor.select(far[a, b] == best[a], nestor.cast(i32, b), 2147483647), over=b))
    next_ = define("next", a, nestor.min(nestor.select(nestor.cast(i32, b) == which[a], float("inf"), far[a, b]), over=b))
    return define("out", a, nestor.maximum(best[a], 0.0) / next_[a])


def _ratio(one, other):
    one, other = widened(one), widened(other)
    far = one.square().sum(1)[:, None] + other.square().sum(1) - 2 * one @ other.T
    near = far.topk(2, 1, largest=False).values
    return near[:, 0].clamp(min=0) / near[:, 1]


graphs, nodes = Size("graphs", 4), Size("nodes", 2048)
g, x_, y_, z_ = indices(g=graphs, x=nodes, y=nodes, z=nodes)


@nestor.nest
def triangle_counts(near: f16[graphs, nodes, nodes]):
    """How many triangles each node is in, and its clustering."""
    ways = define("ways", (g, x_, y_), nestor.sum(near[g, x_, z_] * near[g, z_, y_], over=z_))
    closed = define("closed", (g, x_), nestor.sum(ways[g, x_, y_] * near[g, x_, y_], over=y_) / 2)
    degree = define("degree", (g, x_), nestor.sum(near[g, x_, y_], over=y_))
    return closed, define("clustering", (g, x_), 2 * closed[g, x_] / nestor.maximum(degree[g, x_] * (degree[g, x_] - 1), 1.0))


def _triangles(near):
    closed = (widened(near @ near) * near).sum(-1) / 2
    degree = widened(near).sum(-1)
    return closed, 2 * closed / (degree * (degree - 1)).clamp(min=1)


points, axes, groups = Size("points", 65536), Size("axes", 32), Size("groups", 64)
pt, ax, gr, gr2 = indices(pt=points, ax=axes, gr=groups, gr2=groups)


@nestor.nest
def fuzzy_clusters(x: f32[points, axes], centre: f32[groups, axes]):
    """Fuzzy c-means: how far each point belongs to each group, and the new centres."""
    far = define("far", (pt, gr), nestor.sum((x[pt, ax] - centre[gr, ax]) * (x[pt, ax] - centre[gr, ax]), over=ax) + 1e-6)
    shares = define("shares", pt, nestor.sum(1 / far[pt, gr2], over=gr2))
    weight = define("weight", (pt, gr), 1 / (far[pt, gr] * shares[pt] * far[pt, gr] * shares[pt]))
    mass = define("mass", gr, nestor.sum(weight[pt, gr], over=pt))
    return define("out", (gr, ax), nestor.sum(weight[pt, gr] * x[pt, ax], over=pt) / mass[gr])


def _fuzzy(x, centre):
    far = torch.cdist(x, centre, compute_mode="donot_use_mm_for_euclid_dist").square() + 1e-6
    weight = (1 / far / (1 / far).sum(1, keepdim=True)).square()
    return weight.T @ x / weight.sum(0)[:, None]


tall, broad, rank = Size("tall", 2048), Size("broad", 8192), Size("rank", 64)
ta, br, k, k2 = indices(ta=tall, br=broad, k=rank, k2=rank)


@nestor.nest
def nonnegative_factors(x: f16[tall, broad], left: f16[tall, rank], right: f16[rank, broad]):
    """A step of Lee and Seung's for the right one of two factors without negative parts."""
    above = nestor.sum(left[ta, k] * x[ta, br], over=ta)
    gram = define("gram", (k, k2), nestor.sum(left[ta, k] * left[ta, k2], over=ta), type=f16)
    below = nestor.sum(gram[k, k2] * right[k2, br], over=k2)
    return define("out", (k, br), right[k, br] * above / (below + 1e-6), type=f16)


def _nonnegative(x, left, right):
    above, gram = widened(left.T @ x), (left.T @ left)
    return (widened(right) * above / (widened(gram @ right) + 1e-6)).to(x.dtype)


samples, lattice, felt = Size("samples", 8192), 32, Size("felt", 64)
s, r1, r2, q1, q2, e = indices(s=samples, r1=lattice, r2=lattice, q1=lattice, q2=lattice, e=felt)


@nestor.nest
def map_update(x: f32[samples, felt], unit: f32[lattice, lattice, felt]):
    """Kohonen's map: each sample's nearest unit, and units that follow samples near theirs."""
    far = define("far", (s, r1, r2), nestor.sum((x[s, e] - unit[r1, r2, e]) * (x[s, e] - unit[r1, r2, e]), over=e))
    best = define("best", s, nestor.min(far[s, r1, r2], over=(r1, r2)))
    place = nestor.cast(i32, 32 * r1 + r2)
    which = define("which", s, nestor.min(nestor.select(far[s, r1, r2] == best[s], place, 2147483647), over=(r1, r2)))
    down, along = which[s] // 32, which[s] - which[s] // 32 * 32
    apart = (nestor.cast(i32, q1) - down) * (nestor.cast(i32, q1) - down) + (nestor.cast(i32, q2) - along) * (nestor.cast(i32, q2) - along)
    pull = define("pull", (s, q1, q2), nestor.exp(-nestor.cast(f32, apart) / 8))
    mass = define("mass", (q1, q2), nestor.sum(pull[s, q1, q2], over=s))
    return define("out", (q1, q2, e), nestor.sum(pull[s, q1, q2] * x[s, e], over=s) / mass[q1, q2])


def _map(x, unit):
    side = unit.shape[0]
    which = torch.cdist(x, unit.flatten(0, 1), compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
    place = torch.arange(side, device=x.device)
    pull = (-((place - (which // side)[:, None]).square()[:, :, None] + (place - (which % side)[:, None]).square()[:, None]).to(x.dtype) / 8).exp()
    return torch.einsum("sab,se->abe", pull, x) / pull.sum(0)[..., None]


series, events = Size("series", 64), Size("events", 2048)
se, ev, ev2 = indices(se=series, ev=events, ev2=events)


@nestor.nest
def event_likelihood(when: f32[series, events], base: f32[series], rise: f32[series], fade: f32[series]):
    """Hawkes: how likely events are that bring on others for a while."""
    brought = nestor.sum(nestor.exp(-fade[se] * (when[se, ev] - when[se, ev2])), over=ev2, where=ev2 < ev)
    rate = define("rate", (se, ev), base[se] + rise[se] * fade[se] * brought)
    end = when[se, events - 1]
    made = define("made", (se, ev), 1 - nestor.exp(-fade[se] * (end - when[se, ev])))
    known = nestor.sum(nestor.log(rate[se, ev]), over=ev)
    return define("out", se, known - base[se] * end - rise[se] * nestor.sum(made[se, ev], over=ev))


def _events(when, base, rise, fade):
    gap = when[:, :, None] - when[:, None]
    brought = torch.exp(-fade[:, None, None] * gap).tril(-1).sum(-1)
    rate = base[:, None] + (rise * fade)[:, None] * brought
    end = when[:, -1]
    return rate.log().sum(1) - base * end - rise * (1 - torch.exp(-fade[:, None] * (end[:, None] - when))).sum(1)


lists, items = Size("lists", 4096), Size("items", 512)
li, it, it2 = indices(li=lists, it=items, it2=items)


@nestor.nest
def ranking_likelihood(score: f32[lists, items]):
    """ListMLE: how likely an order is when each place takes one of what is left. Items come in that order."""
    top = define("top", li, nestor.max(score[li, it], over=it))
    power = define("power", (li, it), nestor.exp(score[li, it] - top[li]))
    left = define("left", (li, it), nestor.sum(power[li, it2], over=it2, where=it2 >= it))
    return define("out", li, nestor.sum(nestor.log(left[li, it]) + top[li] - score[li, it], over=it))


def _ranking(score):
    left = score.flip(1).logcumsumexp(1).flip(1)
    return (left - score).sum(1)


@nestor.nest
def lambda_gradients(score: f32[lists, items], worth: f32[lists, items]):
    """LambdaRank: pairs pull by what their exchange would change in the discounted gain."""
    above = nestor.select((score[li, it2] > score[li, it]) | ((score[li, it2] == score[li, it]) & (it2 < it)), 1.0, 0.0)
    place = define("place", (li, it), 2 + nestor.sum(above, over=it2))
    discount = define("discount", (li, it), 0.6931472 / nestor.log(place[li, it]))
    gain = define("gain", (li, it), nestor.exp2(worth[li, it]))
    change = nestor.absolute((gain[li, it] - gain[li, it2]) * (discount[li, it] - discount[li, it2]))
    pull = change * nestor.sigmoid(score[li, it2] - score[li, it])
    push = change * nestor.sigmoid(score[li, it] - score[li, it2])
    term = nestor.select(worth[li, it] > worth[li, it2], pull, nestor.select(worth[li, it] < worth[li, it2], -push, 0.0))
    return define("out", (li, it), nestor.sum(term, over=it2))


def _lambda(score, worth):
    mine, other = score[:, :, None], score[:, None]
    earlier = torch.ones(score.shape[1], score.shape[1], dtype=torch.bool, device=score.device).tril(-1)
    place = 2 + ((other > mine) | ((other == mine) & earlier)).sum(2)
    discount, gain = 0.6931472 / place.to(score.dtype).log(), worth.exp2()
    change = ((gain[:, :, None] - gain[:, None]) * (discount[:, :, None] - discount[:, None])).abs()
    side = (worth[:, :, None] > worth[:, None]).to(score.dtype) - (worth[:, :, None] < worth[:, None]).to(score.dtype)
    return (side * change * torch.sigmoid(-side * (mine - other))).sum(2)


cases, features = Size("cases", 16384), Size("features", 64)
ca, fe, bi, bi2 = indices(ca=cases, fe=features, bi=64, bi2=64)


@nestor.nest
def split_gains(bin_: i32[cases, features], gradient: f32[cases], curve: f32[cases]):
    """A boosted tree's node: sums of gradients by feature and bin, and the best gain of a split by each feature."""
    here = bin_[ca, fe] == nestor.cast(i32, bi)
    slope = define("slope", (fe, bi), nestor.sum(nestor.select(here, gradient[ca], 0.0), over=ca))
    bend = define("bend", (fe, bi), nestor.sum(nestor.select(here, curve[ca], 0.0), over=ca))
    low = define("low", (fe, bi), nestor.sum(slope[fe, bi2], over=bi2, where=bi2 <= bi))
    low_bend = define("low_bend", (fe, bi), nestor.sum(bend[fe, bi2], over=bi2, where=bi2 <= bi))
    high, high_bend = low[fe, 63] - low[fe, bi], low_bend[fe, 63] - low_bend[fe, bi]
    gain = low[fe, bi] * low[fe, bi] / (low_bend[fe, bi] + 1) + high * high / (high_bend + 1) - low[fe, 63] * low[fe, 63] / (low_bend[fe, 63] + 1)
    return define("out", fe, nestor.max(gain, over=bi))


def _splits(bin_, gradient, curve):
    here = F.one_hot(bin_.long(), 64).to(gradient.dtype)
    low, bend = torch.einsum("cfb,c->fb", here, gradient).cumsum(1), torch.einsum("cfb,c->fb", here, curve).cumsum(1)
    high, high_bend = low[:, -1:] - low, bend[:, -1:] - bend
    gain = low.square() / (bend + 1) + high.square() / (high_bend + 1) - low[:, -1:].square() / (bend[:, -1:] + 1)
    return gain.amax(1)


blocks, parameters = Size("blocks", 4096), Size("parameters", 4096)
bl, pa = indices(bl=blocks, pa=parameters)


@nestor.nest
def cautious_step(weight: f32[blocks, parameters], gradient: f32[blocks, parameters], first_: f32[blocks, parameters], second_: f32[blocks, parameters],
                  rate=1e-3):
    """Cautious AdamW: parts that the gradient contradicts stay, and the others go further for it."""
    one = define("first_out", (bl, pa), 0.9 * first_[bl, pa] + 0.1 * gradient[bl, pa])
    two = define("second_out", (bl, pa), 0.95 * second_[bl, pa] + 0.05 * gradient[bl, pa] * gradient[bl, pa])
    agrees = nestor.select(one[bl, pa] * gradient[bl, pa] > 0, 1.0, 0.0)
    share = define("share", (), nestor.sum(agrees, over=(bl, pa)) / (blocks * parameters))
    step = one[bl, pa] / (nestor.sqrt(two[bl, pa]) + 1e-8) * agrees / nestor.maximum(share[()], 1e-3)
    return one, two, define("out", (bl, pa), weight[bl, pa] * (1 - 0.01 * rate) - rate * step)


def _cautious(weight, gradient, first_, second_):
    one, two = 0.9 * first_ + 0.1 * gradient, 0.95 * second_ + 0.05 * gradient.square()
    agrees = (one * gradient > 0).to(weight.dtype)
    step = one / (two.sqrt() + 1e-8) * agrees / agrees.mean().clamp(min=1e-3)
    return one, two, weight * (1 - 0.01 * 1e-3) - 1e-3 * step


states, hidden, actions, atoms = Size("states", 4096), Size("hidden", 512), Size("actions", 18), Size("atoms", 51)
st, h, ac, ac2, at = indices(st=states, h=hidden, ac=actions, ac2=actions, at=atoms)


@nestor.nest
def duelling_values(x: f16[states, hidden], advantage: f16[actions, atoms, hidden], value: f16[atoms, hidden]):
    """Rainbow's head: a value and advantages around their mean, a distribution for each action, and what it expects."""
    better = define("better", (st, ac, at), nestor.sum(x[st, h] * advantage[ac, at, h], over=h))
    base = define("base", (st, at), nestor.sum(x[st, h] * value[at, h], over=h))
    mean = define("mean", (st, at), nestor.sum(better[st, ac2, at], over=ac2) / actions)
    score = define("score", (st, ac, at), base[st, at] + better[st, ac, at] - mean[st, at])
    top = define("top", (st, ac), nestor.max(score[st, ac, at], over=at))
    power = define("power", (st, ac, at), nestor.exp(score[st, ac, at] - top[st, ac]))
    total = define("total", (st, ac), nestor.sum(power[st, ac, at], over=at))
    return define("out", (st, ac), nestor.sum(power[st, ac, at] * (0.4 * nestor.cast(f32, at) - 10), over=at) / total[st, ac])


def _duelling(x, advantage, value):
    better = widened(torch.einsum("sh,ath->sat", x, advantage))
    chance = torch.softmax(widened(x @ value.T)[:, None] + better - better.mean(1, keepdim=True), -1)
    return chance @ (0.4 * torch.arange(value.shape[0], device=x.device, dtype=chance.dtype) - 10)


def _bins(normal, _):
    return ((normal + 2) * 16).floor().clamp(0, 63)


OPERATORS = [
    Operator(linear_divergence, _divergence, "G. Hinton et al., arXiv:1503.02531", {"rows": 3, "width": 16, "vocabulary": 11},
             draw={"weight": divided("width"), "teacher": divided("width")}),
    Operator(noisy_linear, _noisy, "M. Fortunato et al., arXiv:1706.10295", {"tokens": 3, "width": 16, "units": 5},
             draw={"mean": divided("width"), "spread": lambda x, sizes: 0.5 / sizes["width"]**0.5 + 0 * x}),
    Operator(logistic_mixture, _logistic, "T. Salimans et al., arXiv:1701.05517", {"pixels": 7, "many": 3},
             draw={"x": lambda x, _: x.clamp(-1, 1), "narrow": lambda x, _: 2 + 0.5 * x}),
    Operator(ratio_test, _ratio, "D. Lowe, IJCV 2004", {"first": 5, "second": 9, "dim": 8}, draw={"one": divided("dim"), "other": divided("dim")}),
    Operator(triangle_counts, _triangles, "D. Watts and S. Strogatz, Nature 1998", {"graphs": 2, "nodes": 9},
             draw={"near": lambda x, _: ((x + x.mT) > 2).float() * (1 - torch.eye(x.shape[-1], device=x.device))}),
    Operator(fuzzy_clusters, _fuzzy, "J. Bezdek, 1981", {"points": 9, "axes": 3, "groups": 4}),
    Operator(nonnegative_factors, _nonnegative, "D. Lee and S. Seung, NIPS 2000", {"tall": 9, "broad": 7, "rank": 8},
             draw={"x": lambda x, _: x.abs(), "left": lambda x, _: x.abs() / 32, "right": lambda x, _: x.abs()}),
    Operator(map_update, _map, "T. Kohonen, Biol. Cybern. 1982", {"samples": 3, "felt": 2}),
    Operator(event_likelihood, _events, "A. Hawkes, Biometrika 1971", {"series": 3, "events": 9},
             draw={"when": lambda x, _: x.abs().cumsum(-1), "base": lambda x, _: 0.5 + 0.1 * x.abs(), "rise": lambda x, _: 0.5 + 0.1 * x.abs(),
                   "fade": lambda x, _: 1 + x.abs()}),
    Operator(ranking_likelihood, _ranking, "F. Xia et al., ICML 2008", {"lists": 3, "items": 11}),
    Operator(lambda_gradients, _lambda, "C. Burges et al., NIPS 2006", {"lists": 3, "items": 7}, draw={"worth": lambda x, _: (x.abs() * 2).floor()}),
    Operator(split_gains, _splits, "T. Chen and C. Guestrin, arXiv:1603.02754", {"cases": 19, "features": 3}, draw={"bin_": _bins, "curve": lambda x, _: x.abs()}),
    Operator(cautious_step, _cautious, "K. Liang et al., arXiv:2411.16085", {"blocks": 3, "parameters": 11}, draw={"second_": lambda x, _: x.square()}),
    Operator(duelling_values, _duelling, "M. Hessel et al., arXiv:1710.02298", {"states": 3, "hidden": 16, "actions": 4, "atoms": 5},
             draw={"advantage": divided("hidden"), "value": divided("hidden")}),
]
