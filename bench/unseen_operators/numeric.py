"""Kernels of PolyBench and of simulations: products with a triangle, matrices read once for two products, stencils of volumes and steps of
grids."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, divided, widened

side = Size("side", 2048)
i, j, k = indices(i=side, j=side, k=side)


@nestor.nest
def triangular_product(a: f16[side, side], b: f16[side, side]):
    """trmm: what is above the diagonal counts as 0."""
    return define("out", (i, j), nestor.sum(a[i, k] * b[k, j], over=k, where=k <= i), type=f16)


def _triangular(a, b):
    return a.tril() @ b


@nestor.nest
def symmetric_update(a: f16[side, side], b: f16[side, side], c: f32[side, side]):
    """syr2k, all of the result."""
    found = nestor.sum(a[i, k] * b[j, k] + b[i, k] * a[j, k], over=k)
    return define("out", (i, j), 1.5 * found + 0.5 * c[i, j])


def _symmetric(a, b, c):
    return 1.5 * widened(a @ b.T + b @ a.T) + 0.5 * c


wide = Size("wide", 8192)
p, q, q2 = indices(p=wide, q=wide, q2=wide)


@nestor.nest
def normal_equations(a: f32[wide, wide], x: f32[wide]):
    """atax: A^T (A x)."""
    at = define("at", p, nestor.sum(a[p, q] * x[q], over=q))
    return define("out", q2, nestor.sum(a[p, q2] * at[p], over=p))


def _normal(a, x):
    return a.T @ (a @ x)


@nestor.nest
def two_matrix_vector(a: f32[wide, wide], b: f32[wide, wide], x: f32[wide]):
    """gesummv."""
    left = define("left", p, nestor.sum(a[p, q] * x[q], over=q))
    return define("out", p, 1.5 * left[p] + 1.2 * nestor.sum(b[p, q2] * x[q2], over=q2))


def _two_matrices(a, b, x):
    return 1.5 * (a @ x) + 1.2 * (b @ x)


samples, features = Size("samples", 4096), Size("features", 1024)
n, n2, f, f2 = indices(n=samples, n2=samples, f=features, f2=features)


@nestor.nest
def correlation_matrix(x: f16[samples, features]):
    """Centred and scaled columns, then a product of them."""
    mean = define("mean", f, nestor.sum(x[n2, f], over=n2) / samples)
    apart = x[n2, f] - mean[f]
    spread = define("spread", f, nestor.rsqrt(nestor.sum(apart * apart, over=n2) + 1e-6))
    scaled = define("scaled", (n, f), (x[n, f] - mean[f]) * spread[f], type=f16)
    return define("out", (f, f2), nestor.sum(scaled[n, f] * scaled[n, f2], over=n))


def _correlation(x):
    apart = widened(x) - widened(x).mean(0)
    scaled = (apart * torch.rsqrt(apart.square().sum(0) + 1e-6)).to(x.dtype)
    return widened(scaled.T @ scaled)


groups, rows, states = Size("groups", 128), Size("rows", 128), Size("states", 160)
g, r, s, t = indices(g=groups, r=rows, s=states, t=states)


@nestor.nest
def multiresolution(a: f16[groups, rows, states], c: f16[states, states]):
    """doitgen."""
    return define("out", (g, r, t), nestor.sum(a[g, r, s] * c[s, t], over=s), type=f16)


def _multiresolution(a, c):
    return a @ c


depth = Size("depth", 256)
z, y, x = indices(z=depth, y=depth, x=depth)


@nestor.nest
def heat_volume(a: f32[depth + 2, depth + 2, depth + 2]):
    """heat-3d: a step of a volume."""
    def bend(low, mid, high):
        return low - 2 * mid + high
    mid = a[z + 1, y + 1, x + 1]
    change = (bend(a[z, y + 1, x + 1], mid, a[z + 2, y + 1, x + 1]) + bend(a[z + 1, y, x + 1], mid, a[z + 1, y + 2, x + 1]) +
              bend(a[z + 1, y + 1, x], mid, a[z + 1, y + 1, x + 2]))
    return define("out", (z, y, x), mid + 0.125 * change)


def _heat_volume(a):
    mid = a[1:-1, 1:-1, 1:-1]
    change = (a[:-2, 1:-1, 1:-1] + a[2:, 1:-1, 1:-1] + a[1:-1, :-2, 1:-1] + a[1:-1, 2:, 1:-1] + a[1:-1, 1:-1, :-2] + a[1:-1, 1:-1, 2:])
    return mid + 0.125 * (change - 6 * mid)


plane = Size("plane", 4096)
u, v = indices(u=plane, v=plane)


@nestor.nest
def reaction_step(first: f32[plane + 2, plane + 2], second: f32[plane + 2, plane + 2]):
    """Gray-Scott: two substances that spread and react."""
    def spread(a):
        return a[u, v + 1] + a[u + 2, v + 1] + a[u + 1, v] + a[u + 1, v + 2] - 4 * a[u + 1, v + 1]
    a, b = first[u + 1, v + 1], second[u + 1, v + 1]
    meet = a * b * b
    return (define("first2", (u, v), a + 0.16 * spread(first) - meet + 0.06 * (1 - a)),
            define("second2", (u, v), b + 0.08 * spread(second) + meet - 0.122 * b))


def _reaction(first, second):
    def spread(a):
        return a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] - 4 * a[1:-1, 1:-1]
    a, b = first[1:-1, 1:-1], second[1:-1, 1:-1]
    meet = a * b * b
    return a + 0.16 * spread(first) - meet + 0.06 * (1 - a), b + 0.08 * spread(second) + meet - 0.122 * b


@nestor.nest
def field_step(e: f32[plane + 1, plane + 1], hx: f32[plane + 1, plane + 1], hy: f32[plane + 1, plane + 1]):
    """fdtd-2d: the magnetic field, then the electric one from it."""
    right = hy[u + 1, v + 1] + 0.5 * (e[u + 1, v + 1] - e[u, v + 1])
    left = hy[u, v + 1] + 0.5 * (e[u, v + 1] - e[u, v])
    up = hx[u + 1, v + 1] - 0.5 * (e[u + 1, v + 1] - e[u + 1, v])
    down = hx[u + 1, v] - 0.5 * (e[u + 1, v] - e[u, v])
    return define("out", (u, v), e[u, v] + 0.7 * ((right - left) - (up - down)))


def _field(e, hx, hy):
    right = hy[1:, 1:] + 0.5 * (e[1:, 1:] - e[:-1, 1:])
    left = hy[:-1, 1:] + 0.5 * (e[:-1, 1:] - e[:-1, :-1])
    up = hx[1:, 1:] - 0.5 * (e[1:, 1:] - e[1:, :-1])
    down = hx[1:, :-1] - 0.5 * (e[1:, :-1] - e[:-1, :-1])
    return e[:-1, :-1] + 0.7 * ((right - left) - (up - down))


modes, steps, channels = Size("modes", 64), Size("steps", 4096), Size("channels", 256)
m, w, h = indices(m=modes, w=steps, h=channels)


@nestor.nest
def state_space_kernel(real: f32[channels, modes], turn: f32[channels, modes], weight: f32[channels, modes]):
    """S4D: a convolution's kernel as a sum of damped waves."""
    wave = nestor.exp(-real[h, m] * w) * nestor.cos(turn[h, m] * w)
    return define("out", (h, w), 2 * nestor.sum(weight[h, m] * wave, over=m))


def _state_space(real, turn, weight, steps):
    at = torch.arange(steps, device=real.device, dtype=real.dtype)
    wave = torch.exp(-real[..., None] * at) * torch.cos(turn[..., None] * at)
    return 2 * (weight[..., None] * wave).sum(1)


blocks, long = Size("blocks", 65536), Size("long", 8, fixed=True)
o, a1, a2, b1, b2 = indices(o=blocks, a1=long, a2=long, b1=long, b2=long)


@nestor.nest
def cosine_blocks(x: f32[blocks, long, long], basis: f32[long, long]):
    """The cosine transform of JPEG: blocks of 8 x 8, both ways."""
    half = define("half", (o, a1, b2), nestor.sum(basis[a1, b1] * x[o, b1, b2], over=b1))
    return define("out", (o, a1, a2), nestor.sum(half[o, a1, b2] * basis[a2, b2], over=b2))


def _cosine_blocks(x, basis):
    return basis @ x @ basis.T


clusters, items, near = Size("clusters", 8), Size("items", 2048), Size("near", 64, fixed=True)
l, left, right, c, c2 = indices(l=clusters, left=items, right=items, c=near, c2=near)


@nestor.nest
def distance_attention(q: f16[clusters, items, near], k: f16[clusters, items, near], v: f16[clusters, items, near]):
    """L2 attention: weights by distances of queries to keys."""
    gap = q[l, left, c2] - k[l, right, c2]
    score = define("score", (l, left, right), -0.125 * nestor.sum(gap * gap, over=c2))
    top = define("top", (l, left), nestor.max(score[l, left, right], over=right))
    power = nestor.exp(score[l, left, right] - top[l, left])
    total = define("total", (l, left), nestor.sum(power, over=right))
    return define("out", (l, left, c), nestor.sum(power * v[l, right, c], over=right) / total[l, left], type=f16)


def _distance_attention(q, k, v):
    size = widened(k).square().sum(-1)
    score = 0.25 * widened(q @ k.transpose(1, 2)) - 0.125 * size[:, None]
    return torch.softmax(score, -1).to(v.dtype) @ v


OPERATORS = [
    Operator(triangular_product, _triangular, "L.-N. Pouchet, PolyBench/C 4.2: trmm", {"side": 7}),
    Operator(symmetric_update, _symmetric, "PolyBench/C 4.2: syr2k", {"side": 7}, draw={"a": divided("side")}),
    Operator(normal_equations, _normal, "PolyBench/C 4.2: atax", {"wide": 7}, draw={"a": divided("wide")}),
    Operator(two_matrix_vector, _two_matrices, "PolyBench/C 4.2: gesummv", {"wide": 7}, draw={"a": divided("wide"), "b": divided("wide")}),
    Operator(correlation_matrix, _correlation, "PolyBench/C 4.2: correlation", {"samples": 9, "features": 5}),
    Operator(multiresolution, _multiresolution, "PolyBench/C 4.2: doitgen", {"groups": 3, "rows": 5, "states": 7},
             draw={"c": divided("states")}),
    Operator(heat_volume, _heat_volume, "PolyBench/C 4.2: heat-3d", {"depth": 5}),
    Operator(reaction_step, _reaction, "J. Pearson, Science 261, 1993", {"plane": 5},
             draw={"first": lambda x, _: torch.sigmoid(x), "second": lambda x, _: torch.sigmoid(x)}),
    Operator(field_step, _field, "K. Yee, 1966; PolyBench/C 4.2: fdtd-2d", {"plane": 5}),
    Operator(state_space_kernel, _state_space, "A. Gu et al., S4D, arXiv:2206.11893", {"modes": 5, "steps": 11, "channels": 3},
             told=("steps",), draw={"real": lambda x, _: 0.01 + 0.01 * x.abs(), "turn": lambda x, _: 0.01 * x}),
    Operator(cosine_blocks, _cosine_blocks, "N. Ahmed et al., IEEE Trans. Computers C-23, 1974", {"blocks": 5, "long": 4}),
    Operator(distance_attention, _distance_attention, "H. Kim et al., The Lipschitz Constant of Self-Attention, arXiv:2006.04710",
             {"clusters": 2, "items": 7, "near": 5}),
]
