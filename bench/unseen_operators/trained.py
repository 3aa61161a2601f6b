"""Training and vision: gradients of convolutions and norms, optimizers with norms of their own, losses, cells and images turned into others."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, around_one, divided, widened

rows, cols = Size("rows", 4096), Size("cols", 4096)
r, r2, c = indices(r=rows, r2=rows, c=cols)


@nestor.nest
def adafactor_step(weight: f32[rows, cols], grad: bf16[rows, cols]):
    """Second moments as an outer product of those of rows and of columns."""
    square = grad[r, c] * grad[r, c] + 1e-30
    row = define("row", r, nestor.sum(square, over=c) / cols)
    col = define("col", c, nestor.sum(square, over=r) / rows)
    mean = define("mean", (), nestor.sum(row[r2], over=r2) / rows)
    return define("out", (r, c), weight[r, c] - 1e-3 * grad[r, c] * nestor.rsqrt(row[r] * col[c] / mean[()]))


def _adafactor(weight, grad):
    square = widened(grad).square() + 1e-30
    row, col = square.mean(1, keepdim=True), square.mean(0)
    return weight - 1e-3 * widened(grad) * torch.rsqrt(row * col / row.mean())


@nestor.nest
def lamb_step(weight: f32[rows, cols], grad: bf16[rows, cols], first: f32[rows, cols], second: f32[rows, cols]):
    """Adam's step, as long as the weights are."""
    m = define("m", (r, c), 0.9 * first[r, c] + 0.1 * grad[r, c])
    v = define("v", (r, c), 0.999 * second[r, c] + 0.001 * grad[r, c] * grad[r, c])
    way = define("way", (r, c), m[r, c] / (nestor.sqrt(v[r, c]) + 1e-6) + 0.01 * weight[r, c])
    long = define("long", (), nestor.sqrt(nestor.sum(way[r, c] * way[r, c], over=(r, c))))
    size = define("size", (), nestor.sqrt(nestor.sum(weight[r, c] * weight[r, c], over=(r, c))))
    return define("out", (r, c), weight[r, c] - 1e-3 * size[()] / long[()] * way[r, c]), m, v


def _lamb(weight, grad, first, second):
    slope = widened(grad)
    m, v = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope.square()
    way = m / (v.sqrt() + 1e-6) + 0.01 * weight
    return weight - 1e-3 * weight.norm() / way.norm() * way, m, v


@nestor.nest
def huber_loss(x: bf16[rows, cols], y: bf16[rows, cols], weight: f32[rows]):
    """Squares of small differences, sizes of large ones."""
    apart = nestor.absolute(x[r, c] - y[r, c])
    value = nestor.select(apart < 1.0, 0.5 * apart * apart, apart - 0.5)
    return define("out", (), nestor.sum(weight[r] * value, over=(r, c)) / (rows * cols))


def _huber(x, y, weight):
    return (weight[:, None] * F.smooth_l1_loss(widened(x), widened(y), reduction="none")).mean()


@nestor.nest
def gaussian_divergence(mean: bf16[rows, cols], spread: bf16[rows, cols]):
    """Variational autoencoders: how far codes are from a normal distribution."""
    value = mean[r, c] * mean[r, c] + nestor.exp(spread[r, c]) - 1 - spread[r, c]
    return define("out", r, 0.5 * nestor.sum(value, over=c))


def _divergence(mean, spread):
    mean, spread = widened(mean), widened(spread)
    return 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(-1)


images, high, across, channels, filters = Size("images", 32), Size("high", 28), Size("across", 28), Size("channels", 256), Size("filters", 256)
n, y, x, k, f = indices(n=images, y=high, x=across, k=channels, f=filters)
dy, dx = indices(dy=3, dx=3)


@nestor.nest
def batchnorm_backward(grad: f16[images, high, across, channels], x0: f16[images, high, across, channels], mean: f32[channels],
                       scale: f32[channels], gain: f32[channels]):
    """Gradients of the input, the gain and the bias, from saved statistics."""
    count, place = images * high * across, (n, y, x)
    normed = (x0[n, y, x, k] - mean[k]) * scale[k]
    slope = define("slope", k, nestor.sum(grad[n, y, x, k] * normed, over=place))
    shift = define("shift", k, nestor.sum(grad[n, y, x, k], over=place))
    rest = grad[n, y, x, k] - shift[k] / count - normed * (slope[k] / count)
    return define("out", (n, y, x, k), gain[k] * scale[k] * rest, type=f16), slope, shift


def _batchnorm_backward(grad, x, mean, scale, gain):
    wide, normed, count = widened(grad), (widened(x) - mean) * scale, grad[..., 0].numel()
    slope, shift = (wide * normed).sum((0, 1, 2)), wide.sum((0, 1, 2))
    return (gain * scale * (wide - shift / count - normed * (slope / count))).to(grad.dtype), slope, shift


@nestor.nest
def filter_gradient(grad: f16[images, high, across, filters], x0: f16[images, high + 2, across + 2, channels]):
    """What a convolution of 3 x 3 learns."""
    return define("out", (f, dy, dx, k), nestor.sum(grad[n, y, x, f] * x0[n, y + dy, x + dx, k], over=(n, y, x)))


def _filter_gradient(grad, x):
    turned = torch.nn.grad.conv2d_weight(x.permute(0, 3, 1, 2), (grad.shape[-1], x.shape[-1], 3, 3), grad.permute(0, 3, 1, 2))
    return widened(turned).permute(0, 2, 3, 1)


@nestor.nest
def image_gradient(grad: f16[images, high, across, filters], weight: f16[filters, 3, 3, channels]):
    """A convolution's way back: each pixel gathers from the results it went into."""
    yy, xx = indices(yy=high + 2, xx=across + 2)
    inside = (yy >= dy) & (yy - dy < high) & (xx >= dx) & (xx - dx < across)
    found = nestor.sum(grad[n, yy - dy, xx - dx, f] * weight[f, dy, dx, k], over=(f, dy, dx), where=inside)
    return define("out", (n, yy, xx, k), found, type=f16)


def _image_gradient(grad, weight):
    return F.conv_transpose2d(grad.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


tall = Size("tall", 112)


@nestor.nest
def stem_conv(x0: f16[images, 3, 2 * tall + 5, 2 * tall + 5], weight: f16[64, 3, 7, 7], scale: f32[64], bias: f32[64]):
    """ResNet's first layer: 7 x 7, every second pixel, three colours."""
    o, v, u, rgb, p, q = indices(o=64, v=tall, u=tall, rgb=3, p=7, q=7)
    found = nestor.sum(x0[n, rgb, 2 * v + p, 2 * u + q] * weight[o, rgb, p, q], over=(rgb, p, q))
    return define("out", (n, o, v, u), nestor.maximum(found * scale[o] + bias[o], 0.0), type=f16)


def _stem(x, weight, scale, bias):
    found = widened(F.conv2d(x, weight, stride=2))
    return torch.relu(found * scale[:, None, None] + bias[:, None, None]).to(x.dtype)


hidden = Size("hidden", 128)
g, g2 = indices(g=hidden, g2=hidden)


@nestor.nest
def conv_lstm_cell(x0: f16[images, high + 2, across + 2, hidden], state: f16[images, high + 2, across + 2, hidden],
                   cell: f32[images, high, across, hidden], wx: f16[4, hidden, 3, 3, hidden], wh: f16[4, hidden, 3, 3, hidden],
                   bias: f32[4, hidden]):
    """A memory for each pixel; its gates see the neighbours."""
    def gate(which):
        fresh = nestor.sum(x0[n, y + dy, x + dx, g2] * wx[which, g, dy, dx, g2], over=(dy, dx, g2))
        return fresh + nestor.sum(state[n, y + dy, x + dx, g2] * wh[which, g, dy, dx, g2], over=(dy, dx, g2)) + bias[which, g]
    def opened(value):
        return 1 / (1 + nestor.exp(-value))
    kept = opened(gate(0)) * cell[n, y, x, g] + opened(gate(1)) * nestor.tanh(gate(2))
    after = define("after", (n, y, x, g), kept)
    return define("out", (n, y, x, g), opened(gate(3)) * nestor.tanh(after[n, y, x, g]), type=f16), after


def _conv_lstm(x, state, cell, wx, wh, bias):
    def made(image, weight):
        return widened(F.conv2d(image.permute(0, 3, 1, 2), weight.flatten(0, 1).permute(0, 3, 1, 2)))
    gates = made(x, wx) + made(state, wh) + bias.flatten()[:, None, None]
    forget, into, new, out = gates.permute(0, 2, 3, 1).chunk(4, -1)
    after = torch.sigmoid(forget) * cell + torch.sigmoid(into) * torch.tanh(new)
    return (torch.sigmoid(out) * torch.tanh(after)).to(x.dtype), after


top, side, part, way, feat = indices(top=high, side=across, part=2, way=2, feat=96)


@nestor.nest
def patch_merging(x0: bf16[images, 2 * high, 2 * across, 96], gain: f32[2, 2, 96], bias: f32[2, 2, 96], weight: bf16[192, 2, 2, 96]):
    """Swin: four neighbours as one row, a norm, a product."""
    to = indices(to=192)[0]
    four = (part, way, feat)
    mean = define("mean", (n, top, side), nestor.sum(x0[n, 2 * top + part, 2 * side + way, feat], over=four) / 384)
    apart = x0[n, 2 * top + part, 2 * side + way, feat] - mean[n, top, side]
    scale = define("scale", (n, top, side), nestor.rsqrt(nestor.sum(apart * apart, over=four) / 384 + 1e-5))
    normed = define("normed", (n, top, side, part, way, feat), apart * scale[n, top, side] * gain[part, way, feat] + bias[part, way, feat],
                    type=bf16)
    return define("out", (n, top, side, to), nestor.sum(normed[n, top, side, part, way, feat] * weight[to, part, way, feat], over=four),
                  type=bf16)


def _patch_merging(x, gain, bias, weight):
    images, high, across, feats = x.shape
    four = x.view(images, high // 2, 2, across // 2, 2, feats).permute(0, 1, 3, 2, 4, 5).flatten(3)
    normed = F.layer_norm(widened(four), four.shape[-1:], gain.flatten(), bias.flatten(), 1e-5).to(x.dtype)
    return normed @ weight.flatten(1).T


@nestor.nest
def subpixel_conv(x0: f16[images, high + 2, across + 2, 64], weight: f16[3, 2, 2, 3, 3, 64]):
    """Super-resolution: channels become pixels of an image twice as large."""
    colour, row, column, from_ = indices(colour=3, row=2 * high, column=2 * across, from_=64)
    found = nestor.sum(x0[n, row // 2 + dy, column // 2 + dx, from_] * weight[colour, row % 2, column % 2, dy, dx, from_],
                       over=(dy, dx, from_))
    return define("out", (n, colour, row, column), found, type=f16)


def _subpixel(x, weight):
    return F.pixel_shuffle(F.conv2d(x.permute(0, 3, 1, 2), weight.flatten(0, 2).permute(0, 3, 1, 2)), 2)


books, codes, part_dim = Size("books", 16), Size("codes", 256), Size("part_dim", 8, fixed=True)
book, code, at = indices(book=books, code=codes, at=part_dim)


@nestor.nest
def code_distances(x0: f32[rows, books, part_dim], codebook: f32[books, codes, part_dim]):
    """Product quantisation: each part of a row against each code of its book."""
    apart = x0[r, book, at] - codebook[book, code, at]
    return define("out", (r, book, code), nestor.sum(apart * apart, over=at))


def _code_distances(x, codebook):
    x = x.transpose(0, 1)
    squares = x.square().sum(-1)[..., None] + codebook.square().sum(-1)[:, None] - 2 * x @ codebook.transpose(1, 2)
    return squares.transpose(0, 1)


OPERATORS = [
    Operator(adafactor_step, _adafactor, "N. Shazeer and M. Stern, arXiv:1804.04235", {"rows": 5, "cols": 7}),
    Operator(lamb_step, _lamb, "Y. You et al., arXiv:1904.00962", {"rows": 5, "cols": 7}, draw={"second": lambda x, _: x.abs()}),
    Operator(huber_loss, _huber, "R. Girshick, Fast R-CNN, arXiv:1504.08083", {"rows": 5, "cols": 7}),
    Operator(gaussian_divergence, _divergence, "D. Kingma and M. Welling, arXiv:1312.6114", {"rows": 5, "cols": 7}),
    Operator(batchnorm_backward, _batchnorm_backward, "S. Ioffe and C. Szegedy, arXiv:1502.03167",
             {"images": 2, "high": 3, "across": 5, "channels": 4}, draw={"scale": around_one, "gain": around_one}),
    Operator(filter_gradient, _filter_gradient, "Y. LeCun et al., 1989", {"images": 2, "high": 3, "across": 5, "channels": 4, "filters": 6},
             draw={"grad": lambda x, sizes: x / (sizes["images"] * sizes["high"] * sizes["across"])**0.5}),
    Operator(image_gradient, _image_gradient, "Y. LeCun et al., 1989", {"images": 2, "high": 3, "across": 5, "channels": 4, "filters": 6},
             draw={"weight": lambda x, sizes: x / (9 * sizes["filters"])**0.5}),
    Operator(stem_conv, _stem, "K. He et al., ResNet, arXiv:1512.03385", {"images": 1, "tall": 3},
             draw={"weight": lambda x, _: x / 147**0.5, "scale": around_one}),
    Operator(conv_lstm_cell, _conv_lstm, "X. Shi et al., arXiv:1506.04214", {"images": 2, "high": 3, "across": 4, "hidden": 5},
             draw={"wx": lambda x, sizes: x / (18 * sizes["hidden"])**0.5, "wh": lambda x, sizes: x / (18 * sizes["hidden"])**0.5}),
    Operator(patch_merging, _patch_merging, "Z. Liu et al., Swin, arXiv:2103.14030", {"images": 1, "high": 2, "across": 3},
             draw={"gain": around_one, "weight": lambda x, _: x / 384**0.5}),
    Operator(subpixel_conv, _subpixel, "W. Shi et al., arXiv:1609.05158", {"images": 1, "high": 3, "across": 4},
             draw={"weight": lambda x, _: x / 576**0.5}),
    Operator(code_distances, _code_distances, "H. Jegou et al., Product Quantization, 2011", {"rows": 5, "books": 3, "codes": 7, "part_dim": 4}),
]
