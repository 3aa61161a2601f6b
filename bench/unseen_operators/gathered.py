"""What people write in other fields: gradients of attention, bases and tensor products, filters with memory, images channels first."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .attention import softmax
from .problem import Operator, around_one, divided, widened

batch, heads, length, dim = Size("batch", 2), Size("heads", 16), Size("length", 2048), Size("head_dim", 128, fixed=True)
b, h, i, j, d, e = indices(b=batch, h=heads, i=length, j=length, d=dim, e=dim)
SCALE = 128**-0.5


@nestor.nest
def value_gradient(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], grad: bf16[batch, heads, length, dim],
                   reach: f32[batch, heads, length]):
    """Attention's way back to its values: weights are computed again from the log-sum-exp of each query."""
    score = nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e) * SCALE
    weight = define("weight", (b, h, i, j), nestor.exp(score - reach[b, h, i]))
    return define("out", (b, h, j, d), nestor.sum(weight[b, h, i, j] * grad[b, h, i, d], over=i), type=bf16)


def _value_gradient(q, k, grad, reach):
    weight = torch.exp(widened(q @ k.transpose(-1, -2)) * SCALE - reach[..., None])
    return weight.to(q.dtype).transpose(-1, -2) @ grad


@nestor.nest
def key_gradient(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                 grad: bf16[batch, heads, length, dim], reach: f32[batch, heads, length], inner: f32[batch, heads, length]):
    """Attention's way back to its keys; `inner` is each query's sum of gradients times results."""
    at = (b, h, i, j)
    score = nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e) * SCALE
    towards = nestor.sum(grad[b, h, i, d] * v[b, h, j, d], over=d)
    slope = define("slope", at, nestor.exp(score - reach[b, h, i]) * (towards - inner[b, h, i]))
    return define("out", (b, h, j, d), nestor.sum(slope[at] * q[b, h, i, d], over=i) * SCALE, type=bf16)


def _key_gradient(q, k, v, grad, reach, inner):
    weight = torch.exp(widened(q @ k.transpose(-1, -2)) * SCALE - reach[..., None])
    slope = weight * (widened(grad @ v.transpose(-1, -2)) - inner[..., None])
    return ((slope.to(q.dtype).transpose(-1, -2) @ q) * SCALE).to(q.dtype)


@nestor.nest
def strided_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
    """The last 128 keys, and every 64th."""
    row, seen = (b, h, i), j <= i
    dot = nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE
    score = define("score", (*row, j), nestor.select((j > i - 128) | (j % 64 == 63), dot, -1e30), where=seen)
    power, total = softmax(score, row, seen, key=j)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j, where=seen) / total[row], type=bf16)


def _strided(q, k, v):
    at = torch.arange(q.shape[-2], device=q.device)
    back = at[:, None] - at
    return F.scaled_dot_product_attention(q, k, v, (back >= 0) & ((back < 128) | (at % 64 == 63)), scale=SCALE)


prefix = Size("prefix", 512)


@nestor.nest(require=[prefix <= length])
def prefix_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
    """A prefix that all tokens see; causal beyond it."""
    row, seen = (b, h, i), (j <= i) | (j < prefix)
    score = define("score", (*row, j), nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE, where=seen)
    power, total = softmax(score, row, seen, key=j)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j, where=seen) / total[row], type=bf16)


def _prefix(q, k, v, prefix):
    at = torch.arange(q.shape[-2], device=q.device)
    return F.scaled_dot_product_attention(q, k, v, (at <= at[:, None]) | (at < prefix), scale=SCALE)


@nestor.nest
def efficient_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
    """Softmax over tokens of each key's channel, then over channels of each query."""
    top = define("top", (b, h, e), nestor.max(k[b, h, j, e], over=j))
    power = define("power", (b, h, j, e), nestor.exp(k[b, h, j, e] - top[b, h, e]))
    total = define("total", (b, h, e), nestor.sum(power[b, h, j, e], over=j))
    context = define("context", (b, h, e, d), nestor.sum(power[b, h, j, e] * v[b, h, j, d], over=j) / total[b, h, e], type=bf16)
    peak = define("peak", (b, h, i), nestor.max(q[b, h, i, e], over=e))
    near = define("near", (b, h, i, e), nestor.exp(q[b, h, i, e] - peak[b, h, i]))
    whole = define("whole", (b, h, i), nestor.sum(near[b, h, i, e], over=e))
    found = nestor.sum(near[b, h, i, e] * context[b, h, e, d], over=e)
    return define("out", (b, h, i, d), found / whole[b, h, i], type=bf16)


def _efficient(q, k, v):
    context = torch.softmax(widened(k), -2).to(k.dtype).transpose(-1, -2) @ v
    return torch.softmax(widened(q), -1).to(q.dtype) @ context


tokens, slots, wide = Size("tokens", 8192), Size("slots", 64, fixed=True), Size("width", 1024)
t, s, w, w2 = indices(t=tokens, s=slots, w=wide, w2=wide)


@nestor.nest
def external_attention(x: bf16[tokens, wide], keys: bf16[slots, wide], values: bf16[slots, wide]):
    """Weights of a shared memory: a softmax over tokens, then shares of slots."""
    score = define("score", (t, s), nestor.sum(x[t, w] * keys[s, w], over=w))
    top = define("top", s, nestor.max(score[t, s], over=t))
    power = define("power", (t, s), nestor.exp(score[t, s] - top[s]))
    total = define("total", s, nestor.sum(power[t, s], over=t))
    part = define("part", (t, s), power[t, s] / total[s])
    whole = define("whole", t, nestor.sum(part[t, s], over=s))
    weight = define("weight", (t, s), part[t, s] / (whole[t] + 1e-9), type=bf16)
    return define("out", (t, w), nestor.sum(weight[t, s] * values[s, w], over=s), type=bf16)


def _external(x, keys, values):
    part = torch.softmax(widened(x @ keys.T), 0)
    weight = part / (part.sum(-1, keepdim=True) + 1e-9)
    return weight.to(x.dtype) @ values


inputs, outputs, knots = Size("inputs", 256), Size("outputs", 256), Size("knots", 8, fixed=True)
n, c, o, g = indices(n=tokens, c=inputs, o=outputs, g=knots)


@nestor.nest
def spline_layer(x: f16[tokens, inputs], weight: f16[outputs, inputs, knots]):
    """A Kolmogorov-Arnold layer on Gaussian bumps."""
    apart = x[n, c] * 1.5 - (nestor.cast(f32, g) - 3.5)
    basis = define("basis", (n, c, g), nestor.exp(-apart * apart), type=f16)
    return define("out", (n, o), nestor.sum(basis[n, c, g] * weight[o, c, g], over=(c, g)), type=f16)


def _spline(x, weight):
    at = torch.arange(weight.shape[-1], device=x.device) - 3.5
    basis = torch.exp(-(widened(x)[..., None] * 1.5 - at).square()).to(x.dtype)
    return basis.flatten(1) @ weight.flatten(1).T


blocks, side = Size("blocks", 32), Size("side", 32, fixed=True)
p, p2, a, a2, a3 = indices(p=blocks, p2=blocks, a=side, a2=side, a3=side)


@nestor.nest
def monarch_linear(x: f16[tokens, blocks, side], first: f16[blocks, side, side], second: f16[side, blocks, blocks]):
    """Two block-diagonal products with a transposition between."""
    middle = define("middle", (t, p, a), nestor.sum(x[t, p, a2] * first[p, a, a2], over=a2), type=f16)
    return define("out", (t, p, a), nestor.sum(middle[t, p2, a] * second[a, p, p2], over=p2), type=f16)


def _monarch(x, first, second):
    middle = torch.einsum("tpb,pab->tpa", x, first)
    return torch.einsum("tqa,apq->tpa", middle, second)


points, left, right, into = Size("points", 65536), Size("left", 9, fixed=True), Size("right", 4, fixed=True), Size("into", 9, fixed=True)
channels = Size("channels", 32)
q_, l, r, m, ch = indices(point=points, l=left, r=right, m=into, ch=channels)


@nestor.nest
def tensor_product(x: f32[points, channels, left], y: f32[points, right], mix: f32[left, right, into]):
    """Equivariant networks: coefficients of Clebsch and Gordan couple features with directions."""
    found = nestor.sum(mix[l, r, m] * x[q_, ch, l] * y[q_, r], over=(l, r))
    return define("out", (q_, ch, m), found)


def _tensor_product(x, y, mix):
    return torch.einsum("lrm,ncl,nr->ncm", mix, x, y)


many, few = Size("many", 8192), Size("few", 512)
u, v1, v2 = indices(u=many, v1=few, v2=few)


@nestor.nest
def quadratic_form(x: f16[many, few], matrix: f16[few, few], y: f16[many, few]):
    """x A y for each pair of rows, as one sum."""
    return define("out", u, nestor.sum(x[u, v1] * matrix[v1, v2] * y[u, v2], over=(v1, v2)))


def _quadratic(x, matrix, y):
    return (widened(x @ matrix) * widened(y)).sum(-1)


numbers, bins = Size("numbers", 1 << 20), Size("bins", 64, fixed=True)
z, bin_ = indices(z=numbers, bin=bins)


@nestor.nest
def soft_histogram(x: f32[numbers]):
    """Parzen windows around 64 centres."""
    apart = x[z] * 8 - (nestor.cast(f32, bin_) - 31.5)
    return define("out", bin_, nestor.sum(nestor.exp(-0.5 * apart * apart), over=z))


def _histogram(x):
    at = torch.arange(64, device=x.device) - 31.5
    return torch.exp(-0.5 * (x[:, None] * 8 - at).square()).sum(0)


signals, steps = Size("signals", 16384), Size("steps", 256)
signal, step = indices(signal=signals, step=steps)


@nestor.nest(require=[steps >= 3])
def biquad_filter(x0: f32[steps, signals]):
    """A recursive filter of second order."""
    later = indices(later=steps - 2)[0]
    out = define("out", (step, signal), x0[step, signal], where=step < 2)
    fresh = 0.2 * x0[later + 2, signal] + 0.4 * x0[later + 1, signal] + 0.2 * x0[later, signal]
    out.write((later, signal), (later + 2, signal), fresh + 0.5 * out[later + 1, signal] - 0.3 * out[later, signal])
    return out


def _biquad(x):
    found = [x[0], x[1]]
    for now in range(2, x.shape[0]):
        found.append(0.2 * x[now] + 0.4 * x[now - 1] + 0.2 * x[now - 2] + 0.5 * found[-1] - 0.3 * found[-2])
    return torch.stack(found)


rows, columns = Size("rows", 2048), Size("columns", 2048)
y_, x_, y2, x2 = indices(row=rows, column=columns, row2=rows, column2=columns)


@nestor.nest
def integral_image(image: f32[rows, columns]):
    """Sums of all that is above and to the left."""
    across = define("across", (y_, x_), nestor.sum(image[y_, x2], over=x2, where=x2 <= x_))
    return define("out", (y_, x_), nestor.sum(across[y2, x_], over=y2, where=y2 <= y_))


def _integral(image):
    return image.cumsum(1).cumsum(0)


@nestor.nest
def log_running_sum(x: f32[rows, columns]):
    """Logarithms of prefix sums of exponentials, safe by the row's maximum."""
    top = define("top", y_, nestor.max(x[y_, x2], over=x2))
    total = define("total", (y_, x_), nestor.sum(nestor.exp(x[y_, x2] - top[y_]), over=x2, where=x2 <= x_))
    return define("out", (y_, x_), nestor.log(total[y_, x_]) + top[y_])


def _log_running(x):
    return torch.logcumsumexp(x, -1)


ATTENTION = {"batch": 2, "heads": 3, "length": 7, "head_dim": 6}
BACKWARD = {"reach": lambda x, _: x + 5}
OPERATORS = [
    Operator(value_gradient, _value_gradient, "T. Dao et al., FlashAttention, arXiv:2205.14135", ATTENTION, draw=BACKWARD),
    Operator(key_gradient, _key_gradient, "T. Dao et al., FlashAttention, arXiv:2205.14135", ATTENTION, draw=BACKWARD),
    Operator(strided_attention, _strided, "R. Child et al., Sparse Transformers, arXiv:1904.10509", ATTENTION),
    Operator(prefix_attention, _prefix, "C. Raffel et al., T5, arXiv:1910.10683", ATTENTION | {"prefix": 3}, told=("prefix", )),
    Operator(efficient_attention, _efficient, "Z. Shen et al., arXiv:1812.01243", ATTENTION),
    Operator(external_attention, _external, "M. Guo et al., arXiv:2105.02358", {"tokens": 7, "slots": 5, "width": 6}),
    Operator(spline_layer, _spline, "Z. Liu et al., KAN, arXiv:2404.19756", {"tokens": 7, "inputs": 5, "outputs": 6, "knots": 4},
             draw={"weight": divided("inputs")}),
    Operator(monarch_linear, _monarch, "T. Dao et al., Monarch, arXiv:2204.00595", {"tokens": 5, "blocks": 3, "side": 4},
             draw={"first": divided("side"), "second": divided("blocks")}),
    Operator(tensor_product, _tensor_product, "N. Thomas et al., arXiv:1802.08219", {"points": 5, "channels": 3, "left": 4, "right": 3, "into": 5}),
    Operator(quadratic_form, _quadratic, "C. Rao and S. Mitra, 1971", {"many": 5, "few": 6}, draw={"matrix": divided("few")}),
    Operator(soft_histogram, _histogram, "E. Parzen, 1962", {"numbers": 70, "bins": 64}),
    Operator(biquad_filter, _biquad, "A. Oppenheim and R. Schafer, 1975", {"signals": 5, "steps": 7}),
    Operator(integral_image, _integral, "F. Crow, Summed-Area Tables, 1984", {"rows": 5, "columns": 7}),
    Operator(log_running_sum, _log_running, "C. Elkan, logcumsumexp of PyTorch", {"rows": 5, "columns": 7}),
]
