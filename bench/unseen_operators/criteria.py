"""Losses over labels, pairs and statistics of whole batches."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f32, i32, indices

from .problem import Operator, divided, widened
from .rows import sigmoid

tokens, words = Size("tokens", 4096), Size("words", 32768)
t, w, w2 = indices(t=tokens, w=words, w2=words)


@nestor.nest
def softcapped_cross_entropy(logits: bf16[tokens, words], label: i32[tokens]):
    """Gemma 2: logits between -30 and 30."""
    capped = define("capped", (t, w), 30 * nestor.tanh(logits[t, w] / 30))
    top = define("top", (t, ), nestor.max(capped[t, w2], over=w2))
    total = define("total", (t, ), nestor.sum(nestor.exp(capped[t, w2] - top[t]), over=w2))
    own = nestor.sum(nestor.select(label[t] == w2, capped[t, w2], 0.0), over=w2)
    return define("out", (t, ), top[t] + nestor.log(total[t]) - own)


def _softcapped(logits, label):
    return F.cross_entropy(30 * torch.tanh(widened(logits) / 30), label.long(), reduction="none")


@nestor.nest
def jensen_shannon_loss(student: bf16[tokens, words], teacher: bf16[tokens, words]):
    """Distillation: both divergences from the mean of two softmaxes."""
    def logarithm(name, x):
        top = define(f"{name}_top", (t, ), nestor.max(x[t, w2], over=w2))
        total = define(f"{name}_total", (t, ), nestor.sum(nestor.exp(x[t, w2] - top[t]), over=w2))
        return define(f"{name}_log", (t, w), x[t, w] - top[t] - nestor.log(total[t]))
    p, q = logarithm("p", student), logarithm("q", teacher)
    mean = nestor.log(0.5 * nestor.exp(p[t, w]) + 0.5 * nestor.exp(q[t, w]))
    each = 0.5 * nestor.exp(p[t, w]) * (p[t, w] - mean) + 0.5 * nestor.exp(q[t, w]) * (q[t, w] - mean)
    return define("out", (t, ), nestor.sum(each, over=w))


def _jensen_shannon(student, teacher):
    p, q = torch.log_softmax(widened(student), -1), torch.log_softmax(widened(teacher), -1)
    mean = (0.5 * p.exp() + 0.5 * q.exp()).log()
    return (0.5 * p.exp() * (p - mean) + 0.5 * q.exp() * (q - mean)).sum(-1)


pairs, code = Size("pairs", 2048), Size("code", 256)
i, j, c, c2 = indices(i=pairs, j=pairs, c=code, c2=code)


@nestor.nest
def supervised_contrastive_loss(x: bf16[pairs, code], label: i32[pairs]):
    """The mean logarithm of the softmax over others, of those of one's own label."""
    other = nestor.select(j != i, 1.0, 0.0)
    score = define("score", (i, j), nestor.sum(x[i, c] * x[j, c], over=c) * 10)
    top = define("top", (i, ), nestor.max(score[i, j], over=j))
    total = define("total", (i, ), nestor.sum(other * nestor.exp(score[i, j] - top[i]), over=j))
    alike = nestor.select((label[i] == label[j]) & (j != i), 1.0, 0.0)
    count = define("count", (i, ), nestor.sum(alike, over=j))
    near = define("near", (i, ), nestor.sum(alike * score[i, j], over=j))
    return define("out", (i, ), top[i] + nestor.log(total[i]) - near[i] / nestor.maximum(count[i], 1.0))


def _supervised(x, label):
    score = widened(x @ x.T) * 10
    same = torch.eye(x.shape[0], dtype=torch.bool, device=x.device)
    alike = ((label[:, None] == label) & ~same).to(score.dtype)
    return torch.logsumexp(score.masked_fill(same, float("-inf")), 1) - (alike * score).sum(1) / alike.sum(1).clamp(min=1)


views, wide = Size("views", 4096), Size("wide", 1024)
n, a, a2 = indices(n=views, a=wide, a2=wide)


@nestor.nest
def vicreg_covariance(x: f32[views, wide]):
    """What VICReg adds for one branch: spreads below 1, and covariances."""
    mean = define("mean", (a, ), nestor.sum(x[n, a], over=n) / views)
    apart = define("apart", (n, a), x[n, a] - mean[a])
    spread = define("spread", (a, ), nestor.sum(apart[n, a] * apart[n, a], over=n) / (views - 1))
    low = define("low", (), nestor.sum(nestor.maximum(1 - nestor.sqrt(spread[a] + 1e-4), 0.0), over=a) / wide)
    both = define("both", (a, a2), nestor.sum(apart[n, a] * apart[n, a2], over=n) / (views - 1))
    square = nestor.select(a != a2, both[a, a2] * both[a, a2], 0.0)
    return low, define("covariance", (), nestor.sum(square, over=(a, a2)) / wide)


def _vicreg(x):
    apart = x - x.mean(0)
    both = apart.T @ apart / (x.shape[0] - 1)
    low = F.relu(1 - (both.diagonal() + 1e-4).sqrt()).mean()
    return low, (both.square().sum() - both.diagonal().square().sum()) / x.shape[1]


images, classes = Size("images", 1024), Size("classes", 65536)
m, k, k2 = indices(m=images, k=classes, k2=classes)


@nestor.nest
def dino_loss(student: bf16[images, classes], teacher: bf16[images, classes], centre: f32[classes]):
    """A sharpened, centred teacher's softmax against the student's logarithm."""
    top = define("top", (m, ), nestor.max((teacher[m, k2] - centre[k2]) * 25, over=k2))
    power = define("power", (m, k), nestor.exp((teacher[m, k] - centre[k]) * 25 - top[m]))
    total = nestor.sum(power[m, k], over=k)
    most = define("most", (m, ), nestor.max(student[m, k2] * 10, over=k2))
    whole = define("whole", (m, ), nestor.log(nestor.sum(nestor.exp(student[m, k2] * 10 - most[m]), over=k2)) + most[m])
    return define("out", (m, ), whole[m] - nestor.sum(power[m, k] * student[m, k] * 10, over=k) / total)


def _dino(student, teacher, centre):
    share = torch.softmax((widened(teacher) - centre) * 25, -1)
    return -(share * torch.log_softmax(widened(student) * 10, -1)).sum(-1)


rows, left, right = Size("rows", 8192), Size("left", 768), Size("right", 512)
r, x_, y_, x2, y2 = indices(r=rows, x=left, y=right, x2=left, y2=right)


@nestor.nest
def kernel_alignment(one: bf16[rows, left], other: bf16[rows, right]):
    """Linear CKA: squares of products between and within two sets of features."""
    def strength(name, a, b, i, j):
        found = define(f"{name}_product", (i, j), nestor.sum(a[r, i] * b[r, j], over=r))
        return define(name, (), nestor.sum(found[i, j] * found[i, j], over=(i, j)))
    between = strength("between", one, other, x_, y_)
    within, beside = strength("within", one, one, x_, x2), strength("beside", other, other, y_, y2)
    return define("out", (), between[()] / nestor.sqrt(within[()] * beside[()]))


def _alignment(one, other):
    def strength(a, b):
        return widened(a.T @ b).square().sum()
    return strength(one, other) / (strength(one, one) * strength(other, other)).sqrt()


samples, bins = Size("samples", 8192), Size("bins", 1024)
s, u, u2 = indices(s=samples, u=bins, u2=bins)


@nestor.nest
def distribution_distance(one: f32[samples, bins], other: f32[samples, bins]):
    """CRPS and the earth mover's distance in one dimension: squares of differences of running sums."""
    running = define("running", (s, u), nestor.sum(one[s, u2] - other[s, u2], over=u2, where=u2 <= u))
    return define("out", (s, ), nestor.sum(running[s, u] * running[s, u], over=u))


def _distribution(one, other):
    return (one - other).cumsum(-1).square().sum(-1)


routed, experts = Size("routed", 65536), Size("experts", 64, fixed=True)
q, g, g2 = indices(q=routed, g=experts, g2=experts)


@nestor.nest
def load_balance_loss(logits: f32[routed, experts]):
    """Switch: how often an expert is first times its mean share."""
    top = define("top", (q, ), nestor.max(logits[q, g2], over=g2))
    power = define("power", (q, g), nestor.exp(logits[q, g] - top[q]))
    total = define("total", (q, ), nestor.sum(power[q, g2], over=g2))
    share = define("share", (g, ), nestor.sum(power[q, g] / total[q], over=q) / routed)
    often = define("often", (g, ), nestor.sum(nestor.select(logits[q, g] == top[q], 1.0, 0.0), over=q) / routed)
    return define("out", (), nestor.sum(share[g] * often[g], over=g) * experts)


def _balance(logits):
    often = (logits == logits.amax(-1, keepdim=True)).to(logits.dtype).mean(0)
    return (torch.softmax(logits, -1).mean(0) * often).sum() * logits.shape[-1]


@nestor.nest
def circle_loss(x: bf16[pairs, code], label: i32[pairs]):
    """Pairs weighed by how far they are from where they should be, in two sums of exponentials."""
    near = define("near", (i, j), nestor.sum(x[i, c] * x[j, c], over=c))
    cosine = near[i, j]
    alike = (label[i] == label[j]) & (j != i)
    positive = define("positive", (i, j), nestor.select(alike, -8 * nestor.maximum(1.25 - cosine, 0.0) * (cosine - 0.75), -1e30))
    negative = define("negative", (i, j), nestor.select(label[i] != label[j], 8 * nestor.maximum(cosine + 0.25, 0.0) * (cosine - 0.25), -1e30))

    def together(name, value):
        top = define(f"{name}_top", (i, ), nestor.max(value[i, j], over=j))
        return top[i] + nestor.log(nestor.sum(nestor.exp(value[i, j] - top[i]), over=j))
    both = define("sum_of_both", (i, ), together("p", positive) + together("n", negative))
    return define("out", (i, ), nestor.maximum(both[i], 0.0) + nestor.log(1 + nestor.exp(-nestor.absolute(both[i]))))


def _circle(x, label):
    cosine = widened(x @ x.T)
    same = label[:, None] == label
    alike = same & ~torch.eye(x.shape[0], dtype=torch.bool, device=x.device)
    positive = (-8 * F.relu(1.25 - cosine) * (cosine - 0.75)).masked_fill(~alike, -1e30)
    negative = (8 * F.relu(cosine + 0.25) * (cosine - 0.25)).masked_fill(same, -1e30)
    return F.softplus(torch.logsumexp(positive, 1) + torch.logsumexp(negative, 1))


def _labels(most):
    return lambda x, _: (x.abs() * 1e4).floor() % most


def _unit(x, _):
    return F.normalize(x, dim=-1)


OPERATORS = [
    Operator(softcapped_cross_entropy, _softcapped, "Gemma Team, arXiv:2408.00118", {"tokens": 5, "words": 7}, draw={"label": _labels(7)}),
    Operator(jensen_shannon_loss, _jensen_shannon, "R. Agarwal et al., arXiv:2306.13649", {"tokens": 5, "words": 7}),
    Operator(supervised_contrastive_loss, _supervised, "P. Khosla et al., arXiv:2004.11362", {"pairs": 9, "code": 5},
             draw={"x": _unit, "label": _labels(4)}),
    Operator(vicreg_covariance, _vicreg, "A. Bardes et al., arXiv:2105.04906", {"views": 9, "wide": 5}),
    Operator(dino_loss, _dino, "M. Caron et al., arXiv:2104.14294", {"images": 5, "classes": 7},
             draw={"teacher": lambda x, _: x / 10, "student": lambda x, _: x / 10, "centre": lambda x, _: x / 10}),
    Operator(kernel_alignment, _alignment, "S. Kornblith et al., arXiv:1905.00414", {"rows": 9, "left": 5, "right": 4}),
    Operator(distribution_distance, _distribution, "T. Gneiting and A. Raftery, 2007", {"samples": 5, "bins": 7},
             draw={"one": divided("bins"), "other": divided("bins")}),
    Operator(load_balance_loss, _balance, "W. Fedus et al., arXiv:2101.03961", {"routed": 9, "experts": 5}),
    Operator(circle_loss, _circle, "Y. Sun et al., arXiv:2002.10857", {"pairs": 9, "code": 5}, draw={"x": _unit, "label": _labels(4)}),
]
