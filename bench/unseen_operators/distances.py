"""Distances, kernels and clusters of points, and sums of exponentials or maxima in place of products."""

import torch

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, divided, widened

queries, points, inner = Size("queries", 4096), Size("points", 4096), Size("inner", 128, fixed=True)
q, p, d, d2 = indices(q=queries, p=points, d=inner, d2=inner)


@nestor.nest
def poincare_distance(x: bf16[queries, inner], y: bf16[points, inner]):
    """Distances in the ball: arcosh of a ratio."""
    left = define("left", q, nestor.sum(x[q, d] * x[q, d], over=d))
    right = define("right", p, nestor.sum(y[p, d] * y[p, d], over=d))
    apart = left[q] + right[p] - 2 * nestor.sum(x[q, d] * y[p, d], over=d)
    more = nestor.maximum(2 * apart / ((1 - left[q]) * (1 - right[p])), 1e-6)
    return define("out", (q, p), nestor.log(1 + more + nestor.sqrt(more * (more + 2))))


def _poincare(x, y):
    left, right = widened(x).square().sum(-1)[:, None], widened(y).square().sum(-1)
    apart = left + right - 2 * widened(x @ y.T)
    return torch.acosh(1 + torch.clamp(2 * apart / ((1 - left) * (1 - right)), min=1e-6))


@nestor.nest
def mahalanobis(x: f16[queries, inner], centre: f32[inner], precision: f16[inner, inner]):
    apart = define("apart", (q, d), x[q, d] - centre[d], type=f16)
    turned = nestor.sum(precision[d, d2] * apart[q, d2], over=d2)
    turned = define("turned", (q, d), turned)
    return define("out", q, nestor.sum(turned[q, d] * apart[q, d], over=d))


def _mahalanobis(x, centre, precision):
    apart = (widened(x) - centre).to(x.dtype)
    return (widened(apart @ precision.T) * widened(apart)).sum(-1)


clouds, near, far = Size("clouds", 32), Size("near", 2048), Size("far", 2048)
n, i, j = indices(n=clouds, i=near, j=far)


@nestor.nest
def chamfer_distance(x: f32[clouds, near, 3], y: f16[clouds, far, 3]):
    """From each point of one cloud to the nearest of the other, and back; means."""
    (c,) = indices(c=3)
    gap = x[n, i, c] - y[n, j, c]
    apart = define("apart", (n, i, j), nestor.sum(gap * gap, over=c))
    to = define("to", (n, i), nestor.min(apart[n, i, j], over=j))
    back = define("back", (n, j), nestor.min(apart[n, i, j], over=i))
    return define("loss", n, nestor.sum(to[n, i], over=i) / near + nestor.sum(back[n, j], over=j) / far)


def _chamfer(x, y):
    apart = (x[:, :, None] - y.to(x.dtype)[:, None]).square().sum(-1)
    return apart.amin(2).mean(1) + apart.amin(1).mean(1)


@nestor.nest
def gaussian_mixture(x: bf16[queries, inner], scaled: bf16[points, inner], inverse: bf16[points, inner], offset: f32[points]):
    """Log likelihood of a mixture of Gaussians with diagonal covariances."""
    square = define("square", (q, d), x[q, d] * x[q, d], type=bf16)
    score = define("score", (q, p), nestor.sum(x[q, d] * scaled[p, d], over=d) - nestor.sum(square[q, d] * inverse[p, d], over=d) / 2
                   + offset[p])
    top = define("top", q, nestor.max(score[q, p], over=p))
    return define("out", q, top[q] + nestor.log(nestor.sum(nestor.exp(score[q, p] - top[q]), over=p)))


def _mixture(x, scaled, inverse, offset):
    score = widened(x @ scaled.T) - widened(x.square() @ inverse.T) / 2 + offset
    return torch.logsumexp(score, 1)


sentences, words, clusters = Size("sentences", 64), Size("words", 1024), Size("clusters", 64, fixed=True)
s, w, k = indices(s=sentences, w=words, k=clusters)


@nestor.nest
def netvlad(x: f16[sentences, words, inner], weight: f16[clusters, inner], centre: f32[clusters, inner]):
    """Residuals to cluster centres, weighted by a softmax over the clusters."""
    score = define("score", (s, w, k), nestor.sum(x[s, w, d] * weight[k, d], over=d))
    top = define("top", (s, w), nestor.max(score[s, w, k], over=k))
    power = define("power", (s, w, k), nestor.exp(score[s, w, k] - top[s, w]))
    total = define("total", (s, w), nestor.sum(power[s, w, k], over=k))
    share = define("share", (s, w, k), power[s, w, k] / total[s, w], type=f16)
    mass = define("mass", (s, k), nestor.sum(share[s, w, k], over=w))
    return define("out", (s, k, d), nestor.sum(share[s, w, k] * x[s, w, d], over=w) - mass[s, k] * centre[k, d], type=f16)


def _netvlad(x, weight, centre):
    share = torch.softmax(widened(x @ weight.T), -1).to(x.dtype)
    mass = widened(share).sum(1)
    return (widened(share.transpose(1, 2) @ x) - mass[..., None] * centre).to(x.dtype)


chains, tags = Size("chains", 4096), Size("tags", 256)
a, t, u = indices(a=chains, t=tags, u=tags)


@nestor.nest
def crf_step(before: f32[chains, tags], change: f16[tags, tags], here: f32[chains, tags]):
    """A step of the forward algorithm of a conditional random field: a product in the logarithms."""
    top = define("top", (a, t), nestor.max(before[a, u] + change[u, t], over=u))
    total = define("total", (a, t), nestor.sum(nestor.exp(before[a, u] + change[u, t] - top[a, t]), over=u))
    return define("out", (a, t), top[a, t] + nestor.log(total[a, t]) + here[a, t])


def _crf(before, change, here):
    return torch.logsumexp(before[:, :, None] + change.to(before.dtype), 1) + here


@nestor.nest
def max_plus_product(x: f16[chains, tags], y: f16[tags, tags]):
    """A product where sums are maxima and products are sums."""
    return define("out", (a, t), nestor.max(x[a, u] + y[u, t], over=u))


def _max_plus(x, y):
    return (widened(x)[:, :, None] + widened(y)).amax(1)


@nestor.nest
def maximum_mean_discrepancy(x: bf16[queries, inner], y: bf16[points, inner], width=0.01):
    """One of the three terms: the mean of a Gaussian kernel for each query."""
    left = define("left", q, nestor.sum(x[q, d] * x[q, d], over=d))
    right = define("right", p, nestor.sum(y[p, d] * y[p, d], over=d))
    apart = left[q] + right[p] - 2 * nestor.sum(x[q, d] * y[p, d], over=d)
    return define("out", q, nestor.sum(nestor.exp(-width * apart), over=p) / points)


def _discrepancy(x, y):
    left, right = widened(x).square().sum(-1)[:, None], widened(y).square().sum(-1)
    return torch.exp(-0.01 * (left + right - 2 * widened(x @ y.T))).mean(1)


lists, items = Size("lists", 512), Size("items", 512)
l, e, f = indices(l=lists, e=items, f=items)


@nestor.nest
def pairwise_rank_loss(score: bf16[lists, items], wanted: bf16[lists, items]):
    """RankNet: every pair whose order is known costs the logarithm of its odds."""
    ahead = wanted[l, e] > wanted[l, f]
    cost = nestor.log(1 + nestor.exp(score[l, f] - score[l, e]))
    return define("loss", l, nestor.sum(nestor.select(ahead, cost, 0.0), over=(e, f)))


def _rank(score, wanted):
    score = widened(score)
    ahead = wanted[:, :, None] > wanted[:, None]
    return torch.where(ahead, torch.log1p(torch.exp(score[:, None] - score[:, :, None])), 0.0).sum((1, 2))


def _ball(x, sizes):
    return x.tanh() * 0.9 / sizes["inner"]**0.5


OPERATORS = [
    Operator(poincare_distance, _poincare, "M. Nickel, D. Kiela, arXiv:1705.08039", {"queries": 5, "points": 7, "inner": 6},
             draw={"x": _ball, "y": _ball}),
    Operator(mahalanobis, _mahalanobis, "P. Mahalanobis, 1936", {"queries": 5, "inner": 7}, draw={"precision": divided("inner")}),
    Operator(chamfer_distance, _chamfer, "H. Fan et al., arXiv:1612.00603", {"clouds": 2, "near": 5, "far": 7}),
    Operator(gaussian_mixture, _mixture, "A. Dempster et al., 1977", {"queries": 5, "points": 7, "inner": 6},
             draw={"scaled": divided("inner"), "inverse": lambda x, sizes: x.abs() / sizes["inner"]}),
    Operator(netvlad, _netvlad, "R. Arandjelovic et al., arXiv:1511.07247", {"sentences": 2, "words": 7, "clusters": 5, "inner": 6},
             draw={"weight": divided("inner")}),
    Operator(crf_step, _crf, "J. Lafferty et al., 2001", {"chains": 5, "tags": 7}),
    Operator(max_plus_product, _max_plus, "I. Simon, 1988", {"chains": 5, "tags": 7}),
    Operator(maximum_mean_discrepancy, _discrepancy, "A. Gretton et al., JMLR 13, 2012", {"queries": 5, "points": 7, "inner": 6}),
    Operator(pairwise_rank_loss, _rank, "C. Burges et al., RankNet, 2005", {"lists": 3, "items": 7},
             draw={"wanted": lambda x, _: (2 * x).round()}),
]
