"""Ops that are several statements: softmaxes, norms, attention. Here is what they are defined as."""

import dataclasses

import torch

from ...nests.affine import Affine
from ...nests.values import as_type, constant, exp, from_condition, log, rsqrt, select
from .conditions import HIDDEN, with_hidden
from .exponentials import combine, lowest_of, normal_powers, powers_of, stored
from .extents import Unsupported, expression, product, quotient, variable
from .lazy import Lazy, conform, expanded
from .products import contract
from .reductions import deviations, mean_of, reduce, squares
from .table import op


def typed(context, x, dtype=None):
    """A tensor as one of the result's type."""
    return dataclasses.replace(x, dtype=dtype or context.dtype)


@op("aten._softmax.default", "aten.softmax.int", kind="definition")
def softmax(context, x, dim, *_):
    return normal_powers(context, powers_of(context, x, dim))


@op("aten._safe_softmax.default", kind="definition", note="rows of -inf are 0")
def safe_softmax(context, x, dim, *_):
    return normal_powers(context, powers_of(context, x, dim, True))


@op("aten._log_softmax.default", "aten.log_softmax.int", kind="definition")
def log_softmax(context, x, dim, *_):
    x = stored(context, x, "x")
    largest = reduce(context, "max", x, [dim], True, f"{context.name}_max", torch.float32)
    total = reduce(context, "add", combine(context, lambda a, m: exp(a - m), x, largest), [dim], True, f"{context.name}_sum",
                   torch.float32)
    logarithm = stored(context, combine(context, lambda t: log(t), total), "log")
    return combine(context, lambda a, m, t: a - m - t, x, largest, logarithm, dtype=context.dtype)


@op("aten._softmax_backward_data.default", kind="definition")
def softmax_backward(context, gradient, y, dim, *_):
    product_ = combine(context, lambda g, a: g * a, gradient, y)
    total = reduce(context, "add", product_, [dim], True, f"{context.name}_sum", torch.float32)
    return combine(context, lambda g, a, t: a * (g - t), gradient, y, total, dtype=context.dtype)


@op("aten._log_softmax_backward_data.default", kind="definition")
def log_softmax_backward(context, gradient, y, dim, *_):
    gradient = stored(context, gradient, "dy")
    total = reduce(context, "add", gradient, [dim], True, f"{context.name}_sum", torch.float32)
    return combine(context, lambda g, a, t: g - exp(as_type(a, "f32")) * t, gradient, y, total, dtype=context.dtype)


def last_dims(x, shape):
    return list(range(len(x.dims) - len(shape), len(x.dims)))


def normalised(context, x, dims, eps):
    """((x - mean) / sqrt(variance + eps), mean, 1 / sqrt(variance + eps))"""
    x = stored(context, x, "x")
    centred, mean = deviations(context, x, dims, context.name)
    variance = mean_of(context, squares(context, centred), dims, True, f"{context.name}_variance")
    rstd = stored(context, combine(context, lambda s: rsqrt(s + eps), variance), "rstd")
    return combine(context, lambda a, r: a * r, centred, rstd), mean, rstd


def weighted(context, x, weight, bias):
    if weight is not None:
        x = combine(context, lambda a, w: a * w, x, weight)
    return x if bias is None else combine(context, lambda a, b: a + b, x, bias)


@op("aten.native_layer_norm.default", kind="definition")
def native_layer_norm(context, x, shape, weight, bias, eps):
    found, mean, rstd = normalised(context, x, last_dims(x, shape), eps)
    return typed(context, weighted(context, found, weight, bias), context.dtypes[0]), mean, rstd


@op("aten.layer_norm.default", kind="definition")
def layer_norm(context, x, shape, weight=None, bias=None, eps=1e-5, *_):
    found, _, _ = normalised(context, x, last_dims(x, shape), eps)
    return typed(context, weighted(context, found, weight, bias))


@op("aten.rms_norm.default", kind="definition")
def rms_norm(context, x, shape, weight=None, eps=None):
    return typed(context, weighted(context, _rms(context, x, shape, eps)[0], weight, None))


@op("aten._fused_rms_norm.default", kind="definition")
def fused_rms_norm(context, x, shape, weight, eps):
    found, rstd = _rms(context, x, shape, eps)
    return typed(context, weighted(context, found, weight, None), context.dtypes[0]), rstd


def _rms(context, x, shape, eps):
    x = stored(context, x, "x")
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    mean = mean_of(context, squares(context, x), last_dims(x, shape), True, context.name)
    rstd = stored(context, combine(context, lambda s: rsqrt(s + eps), mean), "rstd")
    return combine(context, lambda a, r: a * r, x, rstd), rstd


@op("aten.native_group_norm.default", kind="definition", note="constant channels")
def native_group_norm(context, x, weight, bias, batch, channels, inner, groups, eps):
    shape = x.shape
    per_group = quotient(expression(channels), expression(groups))
    parted = x.reshaped([shape[0], expression(groups), per_group, *shape[2:]])
    dims = list(range(2, len(parted.dims)))
    found, mean, rstd = normalised(context, parted, dims, eps)
    found = found.reshaped(shape)
    rows = [None if each is None else _along_channels(each, len(shape)) for each in (weight, bias)]
    statistics = [each.reshaped([shape[0], expression(groups)]) for each in (mean, rstd)]
    return typed(context, weighted(context, found, *rows), context.dtypes[0]), *statistics


def _along_channels(row, rank):
    return row.mapped((row.dims[0], *((),) * (rank - 2)), [variable(k) for k in range(len(row.atoms))])


@op("aten._native_batch_norm_legit_no_training.default", kind="definition")
def batch_norm(context, x, weight, bias, mean, variance, momentum, eps):
    rank = len(x.dims)
    rstd = stored(context, combine(context, lambda s: rsqrt(s + eps), _along_channels(variance, rank)), "rstd")
    found = combine(context, lambda a, m, r: (a - m) * r, x, _along_channels(mean, rank), rstd)
    rows = [None if each is None else _along_channels(each, rank) for each in (weight, bias)]
    refused = Unsupported("what batch norm saves")
    return typed(context, weighted(context, found, *rows), context.dtypes[0]), refused, refused


@op("aten.native_layer_norm_backward.default", kind="definition")
def native_layer_norm_backward(context, gradient, x, shape, mean, rstd, weight, bias, mask):
    dims = last_dims(x, shape)
    outer = list(range(len(x.dims) - len(shape)))
    normal = stored(context, combine(context, lambda a, m, r: (a - m) * r, x, mean, rstd), "normal")
    scaled = gradient if weight is None else stored(context, combine(context, lambda g, w: g * w, gradient, weight), "scaled")
    results = [None, None, None]
    if mask[0]:
        first = stored(context, mean_of(context, scaled, dims, True, f"{context.name}_first"), "mean_first")
        second = stored(context, mean_of(context, combine(context, lambda g, n: g * n, scaled, normal), dims, True,
                                         f"{context.name}_second"), "mean_second")
        results[0] = combine(context, lambda g, n, r, a, b: r * (g - a - n * b), scaled, normal, rstd, first, second)
    if mask[1]:
        results[1] = reduce(context, "add", combine(context, lambda g, n: g * n, gradient, normal), outer, False,
                            f"{context.name}_weight", torch.float32) if outer else combine(
                                context, lambda g, n: g * n, gradient, normal)
    if mask[2]:
        results[2] = reduce(context, "add", gradient, outer, False, f"{context.name}_bias", torch.float32) if outer else gradient
    return tuple(None if each is None else typed(context, each, dtype) for each, dtype in zip(results, context.dtypes))


def attention(context, query, key, value, mask=None, causal=False, scale=None, grouped=False, hides=None):
    """(softmax(scale query key^T + mask) value, the Powers of its rows). Rows that see nothing are 0. hides: constants in a
    mask up to this one stand for -inf; None: those that hide a key by the mask's type do."""
    if grouped and query.shape[-3] != key.shape[-3]:
        group = quotient(query.shape[-3], key.shape[-3])
        key, value = (_repeated(each, group) for each in (key, value))
    letters = "stuvwxyz"[:len(query.dims) - 2]
    factor = context.value(scale) if scale is not None else _inverse_root(context, query)
    scores = contract(context, f"{letters}ie,{letters}je->{letters}ij", query, key, name=f"{context.name}_dot")
    scores, lowest = combine(context, lambda s: s * factor, scores), None
    if causal:
        scores = _causal(scores)
    if mask is not None and mask.dtype == torch.bool:
        scores = combine(context, lambda s, m: select(m, s, HIDDEN, False), scores, mask)
    elif mask is not None:
        lowest = lowest_of(mask.dtype)
        scores = combine(context, lambda s, m: s + (m if hides is None else with_hidden(m, hides)), scores, mask)
    powers = powers_of(context, scores, -1, mask is not None, lowest)
    out = contract(context, f"{letters}ij,{letters}jd->{letters}id", powers.terms, value, name=f"{context.name}_out")
    return combine(context, powers.quotient, out, powers.total), powers


def _logarithm(context, powers, of_empty):
    """The logarithm of each row's sum of exponentials, for gradients. of_empty: what it is of rows that see nothing."""
    if powers.empty and of_empty is None:
        return Unsupported("what attention saves for its gradient of rows that may see nothing")

    def logarithm(largest, total):
        found = largest + log(total)
        return select(total == 0.0, of_empty, found) if powers.empty else found

    lse = combine(context, logarithm, powers.largest, powers.total)
    return lse.mapped(lse.dims[:-1], [variable(k) for k in range(len(lse.atoms))])


def _repeated(x, group):
    """Each head of keys for all query heads of its group: an index map."""
    shape = [*x.shape[:-2], expression(1), *x.shape[-2:]]
    wide = [*x.shape[:-2], group, *x.shape[-2:]]
    return expanded(x.reshaped(shape), wide).reshaped([*x.shape[:-3], x.shape[-3] * group, *x.shape[-2:]])


def _inverse_root(context, query):
    width = product(query.dims[-1])
    if width.is_Integer:
        return constant(float(width) ** -0.5)
    return rsqrt(context.builder.count(query.dims[-1]))


def _causal(scores):
    """-inf where the key's place is beyond the query's."""
    row, column = scores.dims[-2:]
    if len(row) > 1 or len(column) > 1:
        raise Unsupported("a causal mask on a dim that merges symbols")

    def element(indices):
        end = len(indices)
        key = indices[end - 1] if column else Affine((), 0)
        query = indices[end - 1 - len(column)] if row else Affine((), 0)
        kept = from_condition(key <= query)
        return select(kept, conform(scores.element(indices), torch.float32), constant(HIDDEN), False)

    return Lazy(scores.dims, torch.float32, element, 1, True)


@op("aten.scaled_dot_product_attention.default", kind="definition", note="no dropout; rows that see nothing are 0", product=True)
def scaled_dot_product_attention(context,
                                 query,
                                 key,
                                 value,
                                 mask=None,
                                 dropout=0.0,
                                 causal=False,
                                 *,
                                 scale=None,
                                 enable_gqa=False):
    if dropout:
        raise Unsupported("random numbers")
    return typed(context, attention(context, query, key, value, mask, causal, scale, enable_gqa)[0])


@op("aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    kind="definition",
    note="no dropout; the result and its log-sum-exp",
    product=True)
def flash_attention(context, query, key, value, dropout=0.0, causal=False, debug=False, *, attn_mask=None, scale=None):
    return _with_lse(context, query, key, value, attn_mask, dropout, causal, scale, of_empty=0.0)


@op("aten._scaled_dot_product_efficient_attention.default",
    kind="definition",
    note="no dropout; the result and its log-sum-exp",
    product=True)
def efficient_attention(context, query, key, value, bias, compute_lse, dropout=0.0, causal=False, debug=False, *, scale=None):
    return _with_lse(context, query, key, value, bias, dropout, causal, scale, of_empty=0.0)


@op("aten._scaled_dot_product_cudnn_attention.default",
    kind="definition",
    note="no dropout; the result and its log-sum-exp; -65504, which PyTorch has in masks of bools, is -inf: rows that see nothing are 0",
    product=True)
def cudnn_attention(context, query, key, value, bias, compute_lse, dropout=0.0, causal=False, debug=False, *, scale=None):
    return _with_lse(context, query, key, value, bias, dropout, causal, scale, CUDNN_HIDES)


@op("aten._scaled_dot_product_fused_attention_overrideable.default",
    kind="definition",
    note="no dropout; the result and its log-sum-exp",
    product=True)
def overrideable_attention(context, query, key, value, bias=None, dropout=0.0, causal=False, debug=False, *, scale=None):
    return _with_lse(context, query, key, value, bias, dropout, causal, scale)


CUDNN_HIDES = torch.finfo(torch.float16).min  #: in masks of all types, which bf16 rounds to -65536


def _with_lse(context, query, key, value, mask, dropout, causal, scale, hides=None, of_empty=None):
    if dropout:
        raise Unsupported("random numbers")
    out, powers = attention(context, query, key, value, mask, causal, scale, hides=hides)
    rest = [Unsupported("what attention saves for its gradient")] * (len(context.dtypes) - 2)
    return typed(context, out, context.dtypes[0]), _logarithm(context, powers, of_empty), *rest
