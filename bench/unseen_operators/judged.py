"""Losses that judge all pairs, lists, teachers and edges."""

import math

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, widened
from .rows import sigmoid

tokens, words = Size("tokens", 2048), Size("words", 32000)
t, w = indices(t=tokens, w=words)


@nestor.nest
def distillation_loss(student: bf16[tokens, words], teacher: bf16[tokens, words], target: i32[tokens]):
    """Half of it is what the teacher says at temperature 2, half the label; the loss of each token."""
    def lse(name, logit, cold):
        top = define(f"top_{name}", t, nestor.max(logit[t, w], over=w))
        return define(name, t, nestor.log(nestor.sum(nestor.exp((logit[t, w] - top[t]) * cold), over=w)) + top[t] * cold)
    hard, soft, taught = lse("hard", student, 1.0), lse("soft", student, 0.5), lse("taught", teacher, 0.5)
    chance = nestor.exp(0.5 * teacher[t, w] - taught[t])
    apart = nestor.sum(chance * (0.5 * teacher[t, w] - taught[t] - 0.5 * student[t, w] + soft[t]), over=w)
    hit = nestor.sum(nestor.select(target[t] == w, student[t, w], 0.0), over=w)
    return define("out", t, 2 * apart + 0.5 * (hard[t] - hit))


def _distillation(student, teacher, target):
    student, teacher = widened(student), widened(teacher)
    soft, taught = torch.log_softmax(student / 2, -1), torch.log_softmax(teacher / 2, -1)
    hard = F.cross_entropy(student, target.long(), reduction="none")
    return 2 * (taught.exp() * (taught - soft)).sum(-1) + 0.5 * hard


samples, width = Size("samples", 4096), Size("width", 512)
i, j, k = indices(i=samples, j=samples, k=width)


@nestor.nest
def multi_similarity_loss(x0: f16[samples, width], label: i32[samples]):
    """All samples of the same label pull and all others push, each by how near they are."""
    length = define("length", i, nestor.rsqrt(nestor.sum(x0[i, k] * x0[i, k], over=k)))
    unit = define("unit", (i, k), x0[i, k] * length[i], type=f16)
    near = define("near", (i, j), nestor.sum(unit[i, k] * unit[j, k], over=k))
    same = label[i] == label[j]
    pull = nestor.sum(nestor.select(same, nestor.exp(-2 * (near[i, j] - 0.5)), 0.0), over=j, where=i != j)
    push = nestor.sum(nestor.select(same, 0.0, nestor.exp(40 * (near[i, j] - 0.5))), over=j)
    each = define("each", i, nestor.log1p(pull) / 2 + nestor.log1p(push) / 40)
    return define("out", (), nestor.sum(each[i], over=i) / samples)


def _multi_similarity(x, label):
    unit = (widened(x) * widened(x).square().sum(-1, keepdim=True).rsqrt()).to(x.dtype)
    near, same = widened(unit @ unit.T) - 0.5, label[:, None] == label
    own = torch.eye(len(x), dtype=torch.bool, device=x.device)
    pull = torch.where(same & ~own, torch.exp(-2 * near), 0.0).sum(-1)
    push = torch.where(same, 0.0, torch.exp(40 * near)).sum(-1)
    return (torch.log1p(pull) / 2 + torch.log1p(push) / 40).mean()


patients = Size("patients", 16384)
p, q = indices(p=patients, q=patients)


@nestor.nest
def cox_loss(risk: f32[patients], time: f32[patients], died: f32[patients]):
    """Survival: who died, against all who lived at least as long."""
    total = define("total", p, nestor.sum(nestor.select(time[q] >= time[p], nestor.exp(risk[q]), 0.0), over=q))
    count = define("count", (), nestor.maximum(nestor.sum(died[p], over=p), 1.0))
    return define("out", (), nestor.sum(died[p] * (nestor.log(total[p]) - risk[p]), over=p) / count.value)


def _cox(risk, time, died):
    total = torch.where(time >= time[:, None], risk.exp(), 0.0).sum(1)
    return (died * (total.log() - risk)).sum() / died.sum().clamp(min=1)


lists, items = Size("lists", 512), Size("items", 500)
n, a, b = indices(n=lists, a=items, b=items)


@nestor.nest
def soft_rank_loss(score: f32[lists, items], gain: f32[lists, items], best: f32[lists]):
    """ApproxNDCG: an item's place is a sum of sigmoids over all others of its list."""
    before = nestor.sum(sigmoid(10 * (score[n, b] - score[n, a])), over=b)
    place = define("place", (n, a), before + 0.5)
    return define("out", n, 1 - nestor.sum(gain[n, a] / nestor.log(1 + place[n, a]), over=a) * math.log(2) / best[n])


def _soft_rank(score, gain, best):
    place = torch.sigmoid(10 * (score[:, None] - score[..., None])).sum(-1) + 0.5
    return 1 - (gain / torch.log2(1 + place)).sum(1) / best


views, high, across = Size("views", 32), Size("high", 256), Size("across", 832)
v, y, x, y2, x2, c = indices(v=views, y=high, x=across, y2=high - 1, x2=across - 1, c=3)


@nestor.nest(require=[high >= 2, across >= 2])
def edge_smoothness_loss(depth: f32[views, high, across], image: f32[views, 3, high, across]):
    """Depth over its mean may change where the picture does; the loss of each view."""
    mean = define("mean", v, nestor.sum(depth[v, y, x], over=(y, x)) / high / across + 1e-7)
    down = nestor.sum(nestor.absolute(image[v, c, y2 + 1, x] - image[v, c, y2, x]), over=c) / 3
    aside = nestor.sum(nestor.absolute(image[v, c, y, x2 + 1] - image[v, c, y, x2]), over=c) / 3
    tall = nestor.sum(nestor.absolute(depth[v, y2 + 1, x] - depth[v, y2, x]) * nestor.exp(-down), over=(y2, x))
    wide = nestor.sum(nestor.absolute(depth[v, y, x2 + 1] - depth[v, y, x2]) * nestor.exp(-aside), over=(y, x2))
    return define("out", v, (tall / (high - 1) / across + wide / high / (across - 1)) / mean[v])


def _smoothness(depth, image):
    def part(dim):
        bent, edge = depth.diff(dim=dim - 1).abs(), image.diff(dim=dim).abs().mean(1)
        return (bent * torch.exp(-edge)).mean((1, 2))
    return (part(2) + part(3)) / (depth.mean((1, 2)) + 1e-7)


OPERATORS = [
    Operator(distillation_loss, _distillation, "G. Hinton et al., arXiv:1503.02531", {"tokens": 5, "words": 11},
             draw={"target": lambda x, s: (x.abs() * 1e4).long() % s["words"]}),
    Operator(multi_similarity_loss, _multi_similarity, "X. Wang et al., arXiv:1904.06627", {"samples": 7, "width": 6},
             draw={"label": lambda x, _: (x.abs() * 3).long()}),
    Operator(cox_loss, _cox, "D. Cox, 1972; J. Katzman et al., arXiv:1606.00931", {"patients": 7}, draw={"died": lambda x, _: (x > 0).float()}),
    Operator(soft_rank_loss, _soft_rank, "T. Qin et al., ApproxNDCG, 2010", {"lists": 3, "items": 5},
             draw={"gain": lambda x, _: x.abs(), "best": lambda x, _: 5 + x.abs()}),
    Operator(edge_smoothness_loss, _smoothness, "C. Godard et al., arXiv:1609.03677", {"views": 2, "high": 4, "across": 5},
             draw={"depth": lambda x, _: 0.5 + x.abs()}),
]
