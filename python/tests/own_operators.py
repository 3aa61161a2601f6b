"""Operators that are not in kernels/, written in Python as a user would: what the tests of nests and of tuning share.

Each case is (nest, sizes, make, reference): make(random, sizes) gives the inputs, reference(*inputs) the outputs, both with
numpy.
"""

from support import numpy

import nestor
from nestor import Size, define, f32, i32, indices

rows, width, group = Size("rows", 64), Size("width", 96, fixed=True), Size("group", 8, fixed=True)
batch, queries, keys, depth = Size("batch", 2), Size("queries", 40), Size("keys", 48), Size("depth", 16, fixed=True)
window = Size("window", 7)
i, c, k = indices(i=rows, c=width, k=width)
b, q, j, d, e = indices(b=batch, q=queries, j=keys, d=depth, e=depth)


@nestor.nest
def swiglu(x: f32[rows, 2 * width], limit=4.0):
    gate, up = nestor.minimum(x[i, c], limit), x[i, c + width]
    return define("out", (i, c), gate / (1 + nestor.exp(-gate)) * up)


@nestor.nest
def contrast_norm(x: f32[rows, width], gain: f32[width], eps=1e-3):
    low = define("low", i, nestor.min(x[i, k], over=k))
    high = define("high", i, nestor.max(x[i, k], over=k))
    scaled = (x[i, c] - low[i]) / (high[i] - low[i] + eps)
    return define("out", (i, c), scaled * gain[c]), define("range", i, high[i] - low[i])


@nestor.nest(op="group_sums", variant="every_other.f32")
def group_sums(x: f32[rows, width]):
    return define("out", i, nestor.sum(x[i, k], over=k, where=k.value % 2 == 0) - nestor.sum(x[i, k], over=k, where=k >= 4))


@nestor.nest
def running_sum(x: f32[rows, width]):
    return define("out", (i, c), nestor.sum(x[i, k], over=k, where=k <= c))


@nestor.nest(variant="sigmoid.window.f32", require=keys >= queries)
def sigmoid_attention(query: f32[batch, queries, depth], key: f32[batch, keys, depth], value: f32[batch, keys, depth],
                      scale: nestor.Scalar(0.25, min=1e-3) = None, bias=-1.0):
    position = q + keys - queries
    sees = (j <= position) & (j > position - window)
    score = nestor.sum(query[b, q, e] * key[b, j, e], over=e, name="dot") * scale + bias
    weight = define("weight", (b, q, j), 1 / (1 + nestor.exp(-score)), where=sees)
    return define("out", (b, q, d), nestor.sum(weight[b, q, j] * value[b, j, d], over=j, where=sees))


@nestor.nest
def bucket_bias(x: f32[rows, width], length: f32[()], steps: i32[rows]):
    bucket = nestor.minimum((i + 2 * c) // 3 % 5, 3)
    even = (steps[i] & 1) == 0
    return define("out", (i, c),
                  nestor.select(even, x[i, c] * length, x[i, c]) + bucket), define("total", (), nestor.sum(steps[i], over=i))


@nestor.nest
def smoothed(x: f32[rows, width]):
    before = nestor.select(c >= 1, x[i, c - 1], x[i, 0])
    after = nestor.select(c < width - 1, x[i, c + 1], 0.0)
    return define("out", (i, c), before * 0.25 + x[i, c] * 0.5 + after * 0.25)


def _normal(random, *shape):
    return random.standard_normal(shape).astype("float32")


def _sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


def _swiglu(x):
    x = x.astype("float64")
    gate, up = numpy.minimum(x[:, :x.shape[1] // 2], 4), x[:, x.shape[1] // 2:]
    return (gate * _sigmoid(gate) * up,)


def _contrast(x, gain):
    x = x.astype("float64")
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    return (x - low) / (high - low + 1e-3) * gain, (high - low)[:, 0]


def _sigmoid_attention(query, key, value):
    query, key, value = (each.astype("float64") for each in (query, key, value))
    at = numpy.arange(query.shape[1])[:, None] + key.shape[1] - query.shape[1]
    other = numpy.arange(key.shape[1])[None]
    weight = numpy.where((other <= at) & (other > at - 7), _sigmoid(query @ key.swapaxes(1, 2) * 0.25 - 1), 0)
    return (weight @ value,)


def _bucket_bias(x, length, steps):
    at, column = numpy.arange(x.shape[0])[:, None], numpy.arange(x.shape[1])[None]
    bucket = numpy.minimum((at + 2 * column) // 3 % 5, 3)
    scaled = numpy.where(steps[:, None] % 2 == 0, x * length.astype("float64"), x)
    return scaled + bucket, numpy.asarray(steps.sum())


def _smoothed(x):
    wide = numpy.pad(x.astype("float64"), ((0, 0), (1, 1)))
    wide[:, 0] = x[:, 0]
    return (wide[:, :-2] * 0.25 + wide[:, 1:-1] * 0.5 + wide[:, 2:] * 0.25,)


CASES = {
    "smoothed": (smoothed, {"rows": 9, "width": 21}, lambda r: (_normal(r, 9, 21),), _smoothed),
    "swiglu": (swiglu, {"rows": 9, "width": 32}, lambda r: (_normal(r, 9, 64),), _swiglu),
    "contrast_norm": (contrast_norm, {"rows": 7, "width": 24}, lambda r: (_normal(r, 7, 24), _normal(r, 24)), _contrast),
    "group_sums": (group_sums, {"rows": 6, "width": 17}, lambda r: (_normal(r, 6, 17),),
                   lambda x: (x[:, ::2].sum(1, dtype="float64") - x[:, 4:].sum(1, dtype="float64"),)),
    "running_sum": (running_sum, {"rows": 5, "width": 13}, lambda r: (_normal(r, 5, 13),),
                    lambda x: (numpy.cumsum(x.astype("float64"), 1),)),
    "sigmoid_attention": (sigmoid_attention, {"batch": 2, "queries": 10, "keys": 12, "depth": 8, "window": 7},
                          lambda r: (_normal(r, 2, 10, 8), _normal(r, 2, 12, 8), _normal(r, 2, 12, 8)), _sigmoid_attention),
    "bucket_bias": (bucket_bias, {"rows": 8, "width": 11},
                    lambda r: (_normal(r, 8, 11), _normal(r), r.integers(-50, 50, 8).astype("int32")), _bucket_bias),
}


def outputs_of(nest):
    return [tensor for tensor in nest.arguments if tensor.role == "output"]


def inputs_of(nest):
    return [tensor.name for tensor in nest.arguments if tensor.role == "input"]
