"""What training computes: losses over odd vocabularies and pairs of answers, gradients with several outputs, factored optimizers, recurrences over labels."""

import math

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, around_one, divided, widened
from .rows import sigmoid

tokens, words = Size("tokens", 2048), Size("words", 50257)
t, w = indices(t=tokens, w=words)


@nestor.nest
def z_loss_cross_entropy(logit: bf16[tokens, words], target: i32[tokens]):
    """Smoothed labels, a price for large sums, and tokens that do not count; the loss of each token, and its sum's logarithm."""
    top = define("top", t, nestor.max(logit[t, w], over=w))
    lse = define("lse", t, nestor.log(nestor.sum(nestor.exp(logit[t, w] - top[t]), over=w)) + top[t])
    mean = nestor.sum(logit[t, w], over=w) / words
    hit = nestor.sum(nestor.select(target[t] == w, logit[t, w], 0.0), over=w)
    loss = lse[t] - 0.9 * hit - 0.1 * mean + 1e-4 * lse[t] * lse[t]
    return define("loss", t, nestor.select(target[t] < 0, 0.0, loss)), lse


def _z_loss(logit, target):
    logit, safe = widened(logit), target.clamp(min=0).long()
    lse = torch.logsumexp(logit, -1)
    hit = logit.gather(-1, safe[:, None])[:, 0]
    loss = lse - 0.9 * hit - 0.1 * logit.mean(-1) + 1e-4 * lse.square()
    return torch.where(target < 0, torch.zeros_like(loss), loss), lse


images, classes, spots = Size("images", 8), Size("classes", 21), Size("spots", 65 * 1025)
n, c, p = indices(n=images, c=classes, p=spots)


@nestor.nest
def focal_tversky_loss(logit: f16[images, classes, spots], truth: f16[images, classes, spots]):
    """Missed pixels weigh more than wrong ones, and classes that are found badly more than others."""
    share = define("share", (n, c, p), sigmoid(logit[n, c, p]))
    both = define("both", (n, c), nestor.sum(share[n, c, p] * truth[n, c, p], over=p))
    wrong = define("wrong", (n, c), nestor.sum(share[n, c, p] * (1 - truth[n, c, p]), over=p))
    missed = define("missed", (n, c), nestor.sum((1 - share[n, c, p]) * truth[n, c, p], over=p))
    index = (both[n, c] + 1) / (both[n, c] + 0.3 * wrong[n, c] + 0.7 * missed[n, c] + 1)
    power = nestor.exp(0.75 * nestor.log(nestor.maximum(1 - index, 1e-6)))
    return define("out", (), nestor.sum(power, over=(n, c)) / (images * classes))


def _tversky(logit, truth):
    share, truth = torch.sigmoid(widened(logit)), widened(truth)
    both, wrong, missed = (share * truth).sum(2), (share * (1 - truth)).sum(2), ((1 - share) * truth).sum(2)
    return (1 - (both + 1) / (both + 0.3 * wrong + 0.7 * missed + 1)).clamp(min=1e-6).pow(0.75).mean()


pairs, span = Size("pairs", 2048), Size("span", 1000)
q, s = indices(q=pairs, s=span)


@nestor.nest
def preference_loss(won: f32[pairs, span], lost: f32[pairs, span], won_before: f32[pairs, span], lost_before: f32[pairs, span],
                    won_ends: i32[pairs], lost_ends: i32[pairs]):
    """DPO: the better of two answers shall gain more on the reference than the other; the loss, and both rewards."""
    def reward(name, now, before, ends):
        return define(name, q, 0.1 * nestor.sum(nestor.select(ends[q] > s, now[q, s] - before[q, s], 0.0), over=s))
    good, bad = reward("good", won, won_before, won_ends), reward("bad", lost, lost_before, lost_ends)
    margin = good[q] - bad[q]
    loss = nestor.log1p(nestor.exp(-nestor.absolute(margin))) + nestor.maximum(-margin, 0.0)
    return define("out", (), nestor.sum(loss, over=q) / pairs), good, bad


def _preference(won, lost, won_before, lost_before, won_ends, lost_ends):
    at = torch.arange(won.shape[1], device=won.device)
    good = 0.1 * ((won - won_before) * (at < won_ends[:, None])).sum(1)
    bad = 0.1 * ((lost - lost_before) * (at < lost_ends[:, None])).sum(1)
    return -F.logsigmoid(good - bad).mean(), good, bad


side = Size("side", 1024)
a, b, e = indices(a=side, b=side, e=side)


@nestor.nest
def inverse_root_step(root: f32[side, side], power: f32[side, side]):
    """Shampoo: a coupled Newton step towards the inverse fourth root of a matrix."""
    step = define("step", (a, b), nestor.select(a == b, 1.25, 0.0) - 0.25 * power[a, b])
    square = define("square", (a, b), nestor.sum(step[a, e] * step[e, b], over=e))
    fourth = define("fourth", (a, b), nestor.sum(square[a, e] * square[e, b], over=e))
    return (define("next_root", (a, b), nestor.sum(root[a, e] * step[e, b], over=e)),
            define("next_power", (a, b), nestor.sum(fourth[a, e] * power[e, b], over=e)))


def _inverse_root(root, power):
    step = 1.25 * torch.eye(power.shape[0], dtype=power.dtype, device=power.device) - 0.25 * power
    square = step @ step
    return root @ step, square @ square @ power


batch, maps, places, reduced = Size("batch", 64), Size("maps", 512), Size("places", 28 * 28), Size("reduced", 32)
i, i2, m, m2, y, h = indices(i=batch, i2=batch, m=maps, m2=maps, y=places, h=reduced)


@nestor.nest
def squeeze_excite_backward(grad: f16[batch, maps, places], x0: f16[batch, maps, places], pooled: f32[batch, maps], low: f32[batch, reduced],
                            gate: f32[batch, maps], down: f32[reduced, maps], up: f32[maps, reduced]):
    """Gradients of the maps and of both small layers. low: after its ReLU; gate: after its sigmoid."""
    by_gate = nestor.sum(grad[i, m, y] * x0[i, m, y], over=y)
    slope = define("slope", (i, m), by_gate * gate[i, m] * (1 - gate[i, m]))
    back = nestor.sum(slope[i, m2] * up[m2, h], over=m2)
    low_slope = define("low_slope", (i, h), nestor.select(low[i, h] > 0, back, 0.0))
    flat = define("flat", (i, m), nestor.sum(low_slope[i, h] * down[h, m], over=h) / places)
    return (define("out", (i, m, y), grad[i, m, y] * gate[i, m] + flat[i, m], type=f16),
            define("up_grad", (m, h), nestor.sum(slope[i2, m] * low[i2, h], over=i2)),
            define("down_grad", (h, m), nestor.sum(low_slope[i2, h] * pooled[i2, m], over=i2)))


def _excite_backward(grad, x, pooled, low, gate, down, up):
    slope = (widened(grad) * widened(x)).sum(2) * gate * (1 - gate)
    low_slope = (slope @ up) * (low > 0)
    flat = low_slope @ down / grad.shape[2]
    return (widened(grad) * gate[..., None] + flat[..., None]).to(x.dtype), slope.T @ low, low_slope.T @ pooled


many, channels = Size("many", 32 * 56 * 56), Size("channels", 192)
r, r2, ch = indices(r=many, r2=many, ch=channels)


@nestor.nest
def batchnorm_training(x0: f16[many, channels], beside: f16[many, channels], gain: f32[channels], bias: f32[channels], running_mean: f32[channels],
                       running_var: f32[channels]):
    """The end of a residual block in training, channels last: normalised, added, rectified; and new running statistics."""
    mean = define("mean", ch, nestor.sum(x0[r2, ch], over=r2) / many)
    var = define("var", ch, nestor.sum((x0[r2, ch] - mean[ch]) * (x0[r2, ch] - mean[ch]), over=r2) / many)
    line = (x0[r, ch] - mean[ch]) * nestor.rsqrt(var[ch] + 1e-5) * gain[ch] + bias[ch]
    return (define("out", (r, ch), nestor.maximum(line + beside[r, ch], 0.0), type=f16),
            define("next_mean", ch, 0.9 * running_mean[ch] + 0.1 * mean[ch]), define("next_var", ch, 0.9 * running_var[ch] + 0.1 * var[ch]))


def _batchnorm_training(x, beside, gain, bias, running_mean, running_var):
    full = widened(x)
    mean, var = full.mean(0), full.var(0, correction=0)
    line = (full - mean) * (var + 1e-5).rsqrt() * gain + bias
    return F.relu(line + widened(beside)).to(x.dtype), torch.lerp(running_mean, mean, 0.1), torch.lerp(running_var, var, 0.1)


high, across = Size("high", 4096), Size("across", 4096)
u, v, u2, v2 = indices(u=high, v=across, u2=high, v2=across)


@nestor.nest
def came_step(weight: f32[high, across], grad: f32[high, across], momentum: f32[high, across], by_row: f32[high], by_column: f32[across],
              trust_row: f32[high], trust_column: f32[across]):
    """CAME: AdaFactor's update, and a second factored mean of how far it strays from its running mean."""
    def factored(name, row, column, square, rate):
        rows = define(f"next_{name}_row", u, rate * row[u] + (1 - rate) * nestor.sum(square(u, v2), over=v2) / across)
        columns = define(f"next_{name}_column", v, rate * column[v] + (1 - rate) * nestor.sum(square(u2, v), over=u2) / high)
        mean = define(f"{name}_mean", (), nestor.sum(rows[u2], over=u2) / high)
        return rows, columns, lambda value, at: value * nestor.rsqrt(rows[at[0]] / mean.value * columns[at[1]])
    rows, columns, scaled = factored("square", by_row, by_column, lambda x, z: grad[x, z] * grad[x, z] + 1e-20, 0.99)
    update = define("update", (u, v), scaled(grad[u, v], (u, v)))
    mean = define("next_momentum", (u, v), 0.9 * momentum[u, v] + 0.1 * update[u, v])

    def strays(x, z):
        apart = update[x, z] - mean[x, z]
        return apart * apart + 1e-16
    trust_rows, trust_columns, trusted = factored("trust", trust_row, trust_column, strays, 0.999)
    return define("out", (u, v), weight[u, v] - 1e-3 * trusted(mean[u, v], (u, v))), mean, rows, columns, trust_rows, trust_columns


def _came(weight, grad, momentum, by_row, by_column, trust_row, trust_column):
    def factored(row, column, square, rate):
        row, column = rate * row + (1 - rate) * square.mean(1), rate * column + (1 - rate) * square.mean(0)
        return row, column, ((row / row.mean())[:, None] * column).rsqrt()
    row, column, scale = factored(by_row, by_column, grad.square() + 1e-20, 0.99)
    update = grad * scale
    mean = 0.9 * momentum + 0.1 * update
    trust_row, trust_column, trusted = factored(trust_row, trust_column, (update - mean).square() + 1e-16, 0.999)
    return weight - 1e-3 * mean * trusted, mean, row, column, trust_row, trust_column


runs, steps, labels = Size("runs", 128), Size("steps", 128), Size("labels", 64)
z, x, l, l2 = indices(z=runs, x=steps, l=labels, l2=labels)


@nestor.nest
def hmm_forward(start: f32[labels], into: f32[labels, labels], seen: f32[runs, steps, labels]):
    """Chances of hidden states given what was seen so far: a product, what was seen, and a sum of one, step by step; and the logarithms of the sums."""
    later = indices(later=steps - 1)[0]
    first = define("first", z, nestor.sum(start[l] * seen[z, 0, l], over=l))
    belief = define("belief", (z, x, l), start[l] * seen[z, 0, l] / first[z], where=x == 0)
    scale = nestor.Tensor("scale", f32, (runs, steps))
    scale.write((z, ), (z, 0), nestor.log(first[z]))
    with nestor.steps(later):
        raw = define("raw", (later, z, l), nestor.sum(belief[z, later, l2] * into[l2, l], over=l2) * seen[z, later + 1, l])
        total = define("total", (later, z), nestor.sum(raw[later, z, l2], over=l2))
        belief.write((later, z, l), (z, later + 1, l), raw[later, z, l] / total[later, z])
    scale.write((later, z), (z, later + 1), nestor.log(total[later, z]))
    return belief, scale


def _hmm(start, into, seen):
    raw, beliefs, scales = start * seen[:, 0], [], []
    for step in range(seen.shape[1]):
        if step:
            raw = beliefs[-1] @ into * seen[:, step]
        scales.append(raw.sum(-1))
        beliefs.append(raw / scales[-1][:, None])
    return torch.stack(beliefs, 1), torch.stack(scales, 1).log()


texts, frames, marks = Size("texts", 256), Size("frames", 96), Size("marks", 65)
tx, fr, ma = indices(tx=texts, fr=frames, ma=marks)


@nestor.nest
def ctc_forward(log_chance: f32[texts, frames, marks], jump: f32[texts, marks]):
    """CTC: logarithms of the chances of all ways to a mark; jump: 0 where the blank between two letters can be left out, else -1e30."""
    after = indices(after=frames - 1)[0]
    start = nestor.select(ma < 2, log_chance[tx, 0, ma], -1e30)
    ways = define("ways", (tx, fr, ma), start, where=fr == 0)
    one = nestor.select(ma >= 1, ways[tx, after, ma - 1], -1e30)
    two = nestor.select(ma >= 2, ways[tx, after, ma - 2] + jump[tx, ma], -1e30)
    stay = ways[tx, after, ma]
    top = nestor.maximum(nestor.maximum(stay, one), two)
    total = nestor.log(nestor.exp(stay - top) + nestor.exp(one - top) + nestor.exp(two - top)) + top
    return ways.write((tx, after, ma), (tx, after + 1, ma), total + log_chance[tx, after + 1, ma])


def _ctc(log_chance, jump):
    at = torch.arange(jump.shape[1], device=jump.device)
    ways = [torch.where(at < 2, log_chance[:, 0], -1e30)]
    for step in range(1, log_chance.shape[1]):
        one, two = (F.pad(ways[-1], (by, 0), value=-1e30)[:, :-by] for by in (1, 2))
        ways.append(torch.logsumexp(torch.stack([ways[-1], one, two + jump]), 0) + log_chance[:, step])
    return torch.stack(ways, 1)


proteins, lefts, rights = Size("proteins", 8192), Size("lefts", 24), Size("rights", 24)
pr, lf, ri = indices(pr=proteins, lf=lefts, ri=rights)


@nestor.nest
def smith_waterman(score: f32[proteins, lefts, rights]):
    """Local alignment: the best of a match, a gap on either side, and a new begin; and the best of each table."""
    below, beside = indices(below=lefts - 1, beside=rights - 1)
    best = define("best", (pr, lf, ri), nestor.maximum(score[pr, lf, ri], 0.0), where=(lf == 0) | (ri == 0))
    found = best[pr, below, beside] + score[pr, below + 1, beside + 1]
    gap = nestor.maximum(best[pr, below, beside + 1], best[pr, below + 1, beside]) - 0.5
    best.write((pr, below, beside), (pr, below + 1, beside + 1), nestor.maximum(nestor.maximum(found, gap), 0.0))
    return best, define("most", pr, nestor.max(best[pr, lf, ri], over=(lf, ri)))


def _smith_waterman(score):
    best = [list(line.unbind(0)) for line in F.relu(score).permute(1, 2, 0).unbind(0)]
    for left in range(1, score.shape[1]):
        for right in range(1, score.shape[2]):
            gap = torch.maximum(best[left - 1][right], best[left][right - 1]) - 0.5
            best[left][right] = F.relu(torch.maximum(best[left - 1][right - 1] + score[:, left, right], gap))
    best = torch.stack([torch.stack(line, 1) for line in best], 1)
    return best, best.amax((1, 2))


samples, features = Size("samples", 65536), Size("features", 127)
sa, fe, fe2 = indices(sa=samples, fe=features, fe2=features)


@nestor.nest
def logistic_newton(x0: f32[samples, features], weight: f32[features], label: f32[samples]):
    """Logistic regression: the gradient and the matrix of second derivatives."""
    chance = define("chance", sa, sigmoid(nestor.sum(x0[sa, fe] * weight[fe], over=fe)))
    grad = nestor.sum((chance[sa] - label[sa]) * x0[sa, fe], over=sa) / samples
    bend = nestor.sum(chance[sa] * (1 - chance[sa]) * x0[sa, fe] * x0[sa, fe2], over=sa) / samples
    return define("grad", fe, grad), define("bend", (fe, fe2), bend)


def _logistic(x, weight, label):
    chance = torch.sigmoid(x @ weight)
    return x.T @ (chance - label) / x.shape[0], (x * (chance * (1 - chance))[:, None]).T @ x / x.shape[0]


def _some(x, size):
    """Whole numbers below a size."""
    return (x.abs() * 1e4).long() % size


OPERATORS = [
    Operator(z_loss_cross_entropy, _z_loss, "A. Chowdhery et al., PaLM, arXiv:2204.02311", {"tokens": 5, "words": 11},
             draw={"target": lambda x, s: _some(x, s["words"] + 1) - 1}),
    Operator(focal_tversky_loss, _tversky, "N. Abraham and N. Khan, arXiv:1810.07842", {"images": 2, "classes": 3, "spots": 13},
             draw={"truth": lambda x, _: (x > 1).float()}),
    Operator(preference_loss, _preference, "R. Rafailov et al., arXiv:2305.18290", {"pairs": 5, "span": 9},
             draw={"won_ends": lambda x, s: _some(x, s["span"]) + 1, "lost_ends": lambda x, s: _some(x, s["span"]) + 1}),
    Operator(inverse_root_step, _inverse_root, "R. Anil et al., arXiv:2002.09018", {"side": 7},
             draw={"root": divided("side"), "power": divided("side")}),
    Operator(squeeze_excite_backward, _excite_backward, "J. Hu et al., arXiv:1709.01507", {"batch": 3, "maps": 5, "places": 7, "reduced": 4},
             draw={"gate": lambda x, _: torch.sigmoid(x), "low": lambda x, _: x.clamp(min=0), "down": divided("maps"), "up": divided("reduced"),
                   "grad": lambda x, s: x / math.sqrt(s["places"])}),
    Operator(batchnorm_training, _batchnorm_training, "S. Ioffe and C. Szegedy, arXiv:1502.03167", {"many": 9, "channels": 5},
             draw={"gain": around_one, "running_var": lambda x, _: x.square()}),
    Operator(came_step, _came, "Y. Luo et al., arXiv:2307.02047", {"high": 5, "across": 7},
             draw={name: lambda x, _: 0.5 + x.square() for name in ("by_row", "by_column", "trust_row", "trust_column")}),
    Operator(hmm_forward, _hmm, "L. Rabiner, 1989", {"runs": 3, "steps": 5, "labels": 4},
             draw={"start": lambda x, _: torch.softmax(x, -1), "into": lambda x, _: torch.softmax(x, -1), "seen": lambda x, _: torch.sigmoid(x)}),
    Operator(ctc_forward, _ctc, "A. Graves et al., 2006", {"texts": 3, "frames": 6, "marks": 5},
             draw={"log_chance": lambda x, _: torch.log_softmax(x, -1), "jump": lambda x, _: torch.where(x > 0, 0.0, -1e30)}),
    Operator(smith_waterman, _smith_waterman, "T. Smith and M. Waterman, 1981", {"proteins": 3, "lefts": 5, "rights": 4}),
    Operator(logistic_newton, _logistic, "D. Cox, 1958", {"samples": 9, "features": 5}, draw={"weight": divided("features")}),
]
