"""Images as PyTorch keeps them, channels first, and what else lies in memory in another order; steps of optimizers; physics on grids."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .attention import softmax
from .problem import Operator, around_one, divided, widened

images, channels, filters, high, across = (Size("images", 32), Size("channels", 128), Size("filters", 128), Size("high", 28),
                                           Size("across", 28))
n, c, f, y, x, dy, dx = indices(n=images, c=channels, f=filters, y=high, x=across, dy=3, dx=3)


def _inside(row, column):
    return (row >= 0) & (row < high) & (column >= 0) & (column < across)


@nestor.nest
def conv_channels_first(x0: f16[images, channels, high, across], weight: f16[filters, channels, 3, 3], bias: f32[filters]):
    """Conv2d with zeros around, a bias and relu, in PyTorch's layout."""
    row, column = y + dy - 1, x + dx - 1
    pixel = nestor.select(_inside(row, column), x0[n, c, row, column], 0.0)
    found = nestor.sum(pixel * weight[f, c, dy, dx], over=(c, dy, dx))
    return define("out", (n, f, y, x), nestor.maximum(found + bias[f], 0.0), type=f16)


def _conv_channels_first(x, weight, bias):
    return F.relu(F.conv2d(x, weight, bias.to(x.dtype), padding=1))


@nestor.nest
def mobile_block(x0: f16[images, high, across, channels], depth: f16[3, 3, channels], scale: f32[channels], shift: f32[channels],
                 weight: f16[filters, channels]):
    """MobileNetV3: each channel's own 3 x 3, batch norm and hard swish, then a product over channels."""
    row, column = y + dy - 1, x + dx - 1
    pixel = nestor.select(_inside(row, column), x0[n, row, column, c], 0.0)
    own = define("own", (n, y, x, c), nestor.sum(pixel * depth[dy, dx, c], over=(dy, dx)) * scale[c] + shift[c])
    gate = nestor.minimum(nestor.maximum(own[n, y, x, c] + 3.0, 0.0), 6.0) / 6.0
    swished = define("swished", (n, y, x, c), own[n, y, x, c] * gate, type=f16)
    return define("out", (n, y, x, f), nestor.sum(swished[n, y, x, c] * weight[f, c], over=c), type=f16)


def _mobile(x, depth, scale, shift, weight):
    own = F.conv2d(x.permute(0, 3, 1, 2), depth.permute(2, 0, 1)[:, None], padding=1, groups=x.shape[-1])
    own = F.hardswish(widened(own) * scale[:, None, None] + shift[:, None, None]).to(x.dtype)
    return own.permute(0, 2, 3, 1) @ weight.T


@nestor.nest
def layernorm_channels_first(x0: f16[images, channels, high, across], gain: f32[channels], bias: f32[channels]):
    """ConvNeXt's LayerNorm2d."""
    mean = define("mean", (n, y, x), nestor.sum(x0[n, c, y, x], over=c) / channels)
    apart = x0[n, c, y, x] - mean[n, y, x]
    scale = define("scale", (n, y, x), nestor.rsqrt(nestor.sum(apart * apart, over=c) / channels + 1e-6))
    return define("out", (n, c, y, x), (x0[n, c, y, x] - mean[n, y, x]) * scale[n, y, x] * gain[c] + bias[c], type=f16)


def _layernorm_channels_first(x, gain, bias):
    found = F.layer_norm(widened(x).permute(0, 2, 3, 1), gain.shape, gain, bias, 1e-6)
    return found.permute(0, 3, 1, 2).to(x.dtype)


@nestor.nest
def conv_relu_pool(x0: f16[images, 2 * high + 2, 2 * across + 2, channels], weight: f16[filters, 3, 3, channels], bias: f32[filters]):
    """VGG: 3 x 3, relu, then the largest of each 2 x 2."""
    py, px = indices(py=2, px=2)
    yy, xx = indices(yy=2 * high, xx=2 * across)
    found = nestor.sum(x0[n, yy + dy, xx + dx, c] * weight[f, dy, dx, c], over=(dy, dx, c))
    whole = define("whole", (n, yy, xx, f), nestor.maximum(found + bias[f], 0.0), type=f16)
    return define("out", (n, y, x, f), nestor.max(whole[n, 2 * y + py, 2 * x + px, f], over=(py, px)), type=f16)


def _conv_relu_pool(x, weight, bias):
    found = F.relu(F.conv2d(x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2), bias.to(x.dtype)))
    return F.max_pool2d(found, 2).permute(0, 2, 3, 1)


@nestor.nest
def resized_images(x0: f16[images, high + 2, across + 2, channels]):
    """Twice as large, linear between pixels, of images with their edges repeated."""
    yy, xx = indices(yy=2 * high, xx=2 * across)
    top, low, left, right = yy // 2 + 1, (yy + 1) // 2 + (yy + 1) // 2 - yy // 2, xx // 2 + 1, (xx + 1) // 2 + (xx + 1) // 2 - xx // 2
    upper = 0.75 * x0[n, top, left, c] + 0.25 * x0[n, top, right, c]
    lower = 0.75 * x0[n, low, left, c] + 0.25 * x0[n, low, right, c]
    return define("out", (n, yy, xx, c), 0.75 * upper + 0.25 * lower, type=f16)


def _resized(x):
    found = F.interpolate(x.permute(0, 3, 1, 2), scale_factor=2, mode="bilinear", align_corners=False)
    return found[..., 2:-2, 2:-2].permute(0, 2, 3, 1)


@nestor.nest
def transposed_conv(x0: f16[images, high + 2, across + 2, channels], weight: f16[filters, 4, 4, channels]):
    """DCGAN's way up: each result sees 2 x 2 of the inputs, which ones its place tells."""
    yy, xx, ty, tx = indices(yy=2 * high, xx=2 * across, ty=2, tx=2)
    row, column = (yy + 1) // 2 + ty, (xx + 1) // 2 + tx
    tap = weight[f, (yy + 1) % 2 + 2 * (1 - ty), (xx + 1) % 2 + 2 * (1 - tx), c]
    return define("out", (n, yy, xx, f), nestor.sum(x0[n, row, column, c] * tap, over=(ty, tx, c)), type=f16)


def _transposed(x, weight):
    inner = F.conv_transpose2d(x.permute(0, 3, 1, 2), weight.permute(3, 0, 1, 2), stride=2, padding=1)
    return inner[..., 2:-2, 2:-2].permute(0, 2, 3, 1)


batch, heads, length, dim = Size("batch", 2), Size("heads", 16), Size("length", 1024), Size("head_dim", 64, fixed=True)
b, h, i, j, d, e = indices(b=batch, h=heads, i=length, j=length, d=dim, e=dim)


@nestor.nest
def f32_attention(q: f32[batch, heads, length, dim], k: f32[batch, heads, length, dim], v: f32[batch, heads, length, dim]):
    """All in single precision."""
    row = (b, h, i)
    score = define("score", (*row, j), nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * 0.125)
    power, total = softmax(score, row, key=j)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j) / total[row])


def _f32_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, scale=0.125)


@nestor.nest
def joined_qkv_attention(qkv: bf16[batch, length, 3, heads, dim]):
    """Queries, keys and values as one projection leaves them, tokens outermost."""
    score = define("score", (b, h, i, j), nestor.sum(qkv[b, i, 0, h, e] * qkv[b, j, 1, h, e], over=e) * 0.125)
    power, total = softmax(score, (b, h, i), key=j)
    return define("out", (b, i, h, d), nestor.sum(power[b, h, i, j] * qkv[b, j, 2, h, d], over=j) / total[b, h, i], type=bf16)


def _joined_qkv(qkv):
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, scale=0.125).transpose(1, 2)


tokens, wide = Size("tokens", 8192), Size("width", 4096)
t, w, w2 = indices(t=tokens, w=wide, w2=wide)


@nestor.nest
def sandwich_norm(x0: bf16[tokens, wide], branch: bf16[tokens, wide], inner: f32[wide], outer: f32[wide]):
    """A branch is normalised, added, and the sum normalised; both are results."""
    square = define("square", t, nestor.sum(branch[t, w2] * branch[t, w2], over=w2))
    total = define("total", (t, w), x0[t, w] + branch[t, w] * nestor.rsqrt(square[t] / wide + 1e-6) * inner[w])
    power = define("power", t, nestor.sum(total[t, w2] * total[t, w2], over=w2))
    kept = define("kept", (t, w), total[t, w], type=bf16)
    return define("out", (t, w), total[t, w] * nestor.rsqrt(power[t] / wide + 1e-6) * outer[w], type=bf16), kept


def _sandwich(x, branch, inner, outer):
    wide = widened(branch)
    total = widened(x) + wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * inner
    return (total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6) * outer).to(x.dtype), total.to(x.dtype)


numbers = Size("numbers", 1 << 24)
z, z2 = indices(z=numbers, z2=numbers)


@nestor.nest
def clipped_step(weight: f32[numbers], grad: f32[numbers], momentum: f32[numbers]):
    """Nesterov's step with gradients clipped by their norm."""
    square = define("square", (), nestor.sum(grad[z2] * grad[z2], over=z2))
    clipped = grad[z] * nestor.minimum(1.0 / (nestor.sqrt(square[()]) + 1e-6), 1.0)
    kept = define("kept", z, 0.9 * momentum[z] + clipped)
    return define("out", z, weight[z] - 0.01 * (clipped + 0.9 * kept[z])), kept


def _clipped(weight, grad, momentum):
    clipped = grad * torch.clamp(1.0 / (grad.square().sum().sqrt() + 1e-6), max=1.0)
    kept = 0.9 * momentum + clipped
    return weight - 0.01 * (clipped + 0.9 * kept), kept


words = Size("words", 32000)
vocabulary, vocabulary2 = indices(word=words, word2=words)
rows_ = Size("rows", 4096)
(r,) = indices(r=rows_)


@nestor.nest
def cross_entropy_backward(logits: bf16[rows_, words], target: nestor.i32[rows_], grad: f32[rows_]):
    """Probabilities minus the target's one, from logits alone."""
    top = define("top", r, nestor.max(logits[r, vocabulary2], over=vocabulary2))
    total = define("total", r, nestor.sum(nestor.exp(logits[r, vocabulary2] - top[r]), over=vocabulary2))
    hit = nestor.select(target[r] == vocabulary, 1.0, 0.0)
    chance = nestor.exp(logits[r, vocabulary] - top[r]) / total[r]
    return define("out", (r, vocabulary), (chance - hit) * grad[r], type=bf16)


def _cross_entropy_backward(logits, target, grad):
    chance = torch.softmax(widened(logits), -1)
    hit = torch.arange(logits.shape[1], device=logits.device) == target[:, None]
    return ((chance - hit.to(chance.dtype)) * grad[:, None]).to(logits.dtype)


deep, tall, broad = Size("deep", 256), Size("tall", 256), Size("broad", 256)
k0, k1, k2 = indices(k0=deep, k1=tall, k2=broad)


@nestor.nest(require=[deep >= 3, tall >= 3, broad >= 3])
def wave_step(now: f32[deep, tall, broad], before: f32[deep, tall, broad], speed: f32[deep, tall, broad]):
    """The acoustic wave equation in three dims, a step in time."""
    i0, i1, i2 = indices(i0=deep - 2, i1=tall - 2, i2=broad - 2)
    at = (i0 + 1, i1 + 1, i2 + 1)
    around = (now[i0, i1 + 1, i2 + 1] + now[i0 + 2, i1 + 1, i2 + 1] + now[i0 + 1, i1, i2 + 1] + now[i0 + 1, i1 + 2, i2 + 1] +
              now[i0 + 1, i1 + 1, i2] + now[i0 + 1, i1 + 1, i2 + 2])
    return define("out", (i0, i1, i2), 2.0 * now[at] - before[at] + speed[at] * (around - 6.0 * now[at]))


def _wave(now, before, speed):
    inner = (slice(1, -1), ) * 3
    around = (now[:-2, 1:-1, 1:-1] + now[2:, 1:-1, 1:-1] + now[1:-1, :-2, 1:-1] + now[1:-1, 2:, 1:-1] + now[1:-1, 1:-1, :-2] +
              now[1:-1, 1:-1, 2:])
    return 2 * now[inner] - before[inner] + speed[inner] * (around - 6 * now[inner])


rows, columns = Size("rows", 2048), Size("columns", 2048)
r0, r1, o0, o1 = indices(r0=rows, r1=columns, o0=15, o1=15)


@nestor.nest
def box_filter(image: f32[rows + 14, columns + 14]):
    """Means of 15 x 15."""
    return define("out", (r0, r1), nestor.sum(image[r0 + o0, r1 + o1], over=(o0, o1)) / 225.0)


def _box(image):
    return F.avg_pool2d(image[None, None], 15, 1)[0, 0]


@nestor.nest
def wavelet(image: f32[2 * rows, 2 * columns]):
    """Haar: means and three differences of each 2 x 2."""
    a, b_, c_, d_ = (image[2 * r0 + v, 2 * r1 + u] for v in (0, 1) for u in (0, 1))
    return (define("low", (r0, r1), 0.5 * (a + b_ + c_ + d_)), define("across", (r0, r1), 0.5 * (a - b_ + c_ - d_)),
            define("down", (r0, r1), 0.5 * (a + b_ - c_ - d_)), define("corner", (r0, r1), 0.5 * (a - b_ - c_ + d_)))


def _wavelet(image):
    a, b, c, d = (image[v::2, u::2] for v in (0, 1) for u in (0, 1))
    return 0.5 * (a + b + c + d), 0.5 * (a - b + c - d), 0.5 * (a + b - c - d), 0.5 * (a - b - c + d)


IMAGES = {"images": 2, "channels": 6, "filters": 5, "high": 4, "across": 7}
PLAIN = {name: IMAGES[name] for name in ("images", "channels", "high", "across")}
OPERATORS = [
    Operator(conv_channels_first, _conv_channels_first, "PyTorch's Conv2d", IMAGES, draw={"weight": divided("channels")}),
    Operator(mobile_block, _mobile, "A. Howard et al., MobileNetV3, arXiv:1905.02244", IMAGES,
             draw={"weight": divided("channels"), "scale": around_one}),
    Operator(layernorm_channels_first, _layernorm_channels_first, "Z. Liu et al., ConvNeXt, arXiv:2201.03545", PLAIN),
    Operator(conv_relu_pool, _conv_relu_pool, "K. Simonyan and A. Zisserman, VGG, arXiv:1409.1556", IMAGES,
             draw={"weight": divided("channels")}),
    Operator(resized_images, _resized, "PyTorch's Upsample", PLAIN),
    Operator(transposed_conv, _transposed, "A. Radford et al., DCGAN, arXiv:1511.06434", IMAGES, draw={"weight": divided("channels")}),
    Operator(f32_attention, _f32_attention, "A. Vaswani et al., arXiv:1706.03762", {"batch": 2, "heads": 3, "length": 7, "head_dim": 6}),
    Operator(joined_qkv_attention, _joined_qkv, "T. Dao, FlashAttention-2, arXiv:2307.08691",
             {"batch": 2, "heads": 3, "length": 7, "head_dim": 6}),
    Operator(sandwich_norm, _sandwich, "M. Ding et al., CogView, arXiv:2105.13290", {"tokens": 5, "width": 7}, draw={"inner": around_one}),
    Operator(clipped_step, _clipped, "R. Pascanu et al., arXiv:1211.5063", {"numbers": 37}),
    Operator(cross_entropy_backward, _cross_entropy_backward, "P. Hsu et al., Liger Kernel, arXiv:2410.10989", {"rows": 5, "words": 7},
             draw={"target": lambda x, sizes: (x.abs() * 1000).long() % sizes["words"]}),
    Operator(wave_step, _wave, "M. Louboutin et al., Devito, arXiv:1808.01995", {"deep": 4, "tall": 5, "broad": 7}),
    Operator(box_filter, _box, "M. McDonnell, 1981", {"rows": 5, "columns": 7}),
    Operator(wavelet, _wavelet, "A. Haar, 1910", {"rows": 3, "columns": 4}),
]
