"""The same operators, written otherwise: what is measured must not depend on which of the equal definitions a user writes.

Each family has a first definition, as the other files of this folder would write it, and others of equal meaning: other orders of
statements, another place of a factor, another softmax, another way to say a mask, another layout of indices. Sizes are those of
models. python/tests/test_torch_rewritten.py holds that members of a family compute the same; what they cost is compared by tuning them."""

import typing

import numpy

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

EPS = 1e-5
LOG2E = 1.4426950408889634


class Family(typing.NamedTuple):
    """Nests of equal meaning. tiny: sizes for tests. draw: {input: function of normal numbers and sizes}; others are normal. lay: {nest:
    (of the first one's inputs to its own, of its outputs to the first one's)} where those lie otherwise in memory."""
    nests: tuple
    tiny: dict
    draw: dict = {}
    lay: dict = {}


FAMILIES = {}


def family(name, tiny, draw=None, lay=None):
    """Takes a generator of nests as the family's."""
    def take(make):
        FAMILIES[name] = Family(tuple(make()), tiny, draw or {}, lay or {})
        return make
    return take


def more(name, lay=None):
    """Takes a generator of further nests of the family."""
    def take(make):
        known = FAMILIES[name]
        FAMILIES[name] = known._replace(nests=known.nests + tuple(make()), lay={**known.lay, **(lay or {})})
        return make
    return take


def whole_numbers(low, high):
    """Draws integers from low up to high, by the number or the name of a size."""
    def draw(normal, sizes):
        top = sizes.get(high, high)
        return low + numpy.abs(normal * 1e6).astype("int64") % (top - low)
    return draw


def positive(normal, _):
    return numpy.abs(normal)


def chance(normal, _):
    return 1 / (1 + numpy.exp(-normal))


def named(name, function):
    function.__name__ = function.__qualname__ = name
    return nestor.nest(function)


def sigmoid(x):
    return 1 / (1 + nestor.exp(-x))


# --- attention -------------------------------------------------------------------------------------------------------------

batch, heads, length = Size("batch", 2), Size("heads", 16), Size("length", 4096)
dim = Size("head_dim", 128, fixed=True)
b, h, i, j, d, e = indices(b=batch, h=heads, i=length, j=length, d=dim, e=dim)
SCALE = 128**-0.5
QKV = {"batch": 2, "heads": 3, "length": 7, "head_dim": 128}


def softmax_then_sum(score, value, seen=None, style="plain"):
    """out[b, h, i, d] of a score tensor; style: how the softmax is written."""
    row, where = (b, h, i), {} if seen is None else {"where": seen}
    if style == "bare":
        power = define("power", (*row, j), nestor.exp(score[(*row, j)]), **where)
    elif style == "exp2":
        top = define("top", row, nestor.max(score[(*row, j)] * LOG2E, over=j, **where))
        power = define("power", (*row, j), nestor.exp2(score[(*row, j)] * LOG2E - top[row]), **where)
    else:
        top = define("top", row, nestor.max(score[(*row, j)], over=j, **where))
        if style == "log":
            total = define("total", row, nestor.log(nestor.sum(nestor.exp(score[(*row, j)] - top[row]), over=j, **where)))
            logs = define("logs", (*row, j), score[(*row, j)] - top[row] - total[row], **where)
            return define("out", (*row, d), nestor.sum(nestor.exp(logs[(*row, j)]) * value, over=j, **where), type=bf16)
        if style == "lse":
            total = define("total", row, top[row] + nestor.log(nestor.sum(nestor.exp(score[(*row, j)] - top[row]), over=j, **where)))
            return define("out", (*row, d), nestor.sum(nestor.exp(score[(*row, j)] - total[row]) * value, over=j, **where), type=bf16)
        power = define("power", (*row, j), nestor.exp(score[(*row, j)] - top[row]), **where)
    total = define("total", row, nestor.sum(power[(*row, j)], over=j, **where))
    if style == "inside":
        return define("out", (*row, d), nestor.sum(power[(*row, j)] / total[row] * value, over=j, **where), type=bf16)
    if style == "chances":
        chance = define("chance", (*row, j), power[(*row, j)] / total[row], **where)
        return define("out", (*row, d), nestor.sum(chance[(*row, j)] * value, over=j, **where), type=bf16)
    if style == "rounded":
        chance = define("chance", (*row, j), power[(*row, j)] / total[row], type=bf16, **where)
        return define("out", (*row, d), nestor.sum(chance[(*row, j)] * value, over=j, **where), type=bf16)
    if style == "reciprocal":
        inverse = define("inverse", row, 1 / total[row])
        return define("out", (*row, d), inverse[row] * nestor.sum(power[(*row, j)] * value, over=j, **where), type=bf16)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * value, over=j, **where) / total[row], type=bf16)


def dot(q, k):
    return nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e)


def attention(name, score, seen=None, style="plain"):
    def definition(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        return softmax_then_sum(score(q, k), v[b, h, j, d], seen, style)
    return named(name, definition)


def scored(q, k, seen=None):
    return define("score", (b, h, i, j), dot(q, k) * SCALE, **({} if seen is None else {"where": seen}))


def tokens_first(x):
    return x.transpose(0, 2, 1, 3)


def joined_rows(x):
    return tokens_first(x).reshape(x.shape[0], x.shape[2], -1)


@family("attention", QKV, lay={
    "attention_tokens_first": (tokens_first, tokens_first), "attention_joined_heads": (joined_rows, lambda x: x),
    "attention_joined_columns": (joined_rows, lambda x: tokens_first(x.reshape(*x.shape[:2], -1, 128)))})
def _():
    yield attention("attention", scored)
    for style in ("exp2", "log", "lse", "inside", "chances", "rounded", "reciprocal", "bare"):
        yield attention(f"attention_{style}", scored, style=style)

    def scaled_queries(q, k):
        scaled = define("scaled", (b, h, i, e), q[b, h, i, e] * SCALE)
        return define("score", (b, h, i, j), nestor.sum(scaled[b, h, i, e] * k[b, h, j, e], over=e))
    yield attention("attention_scaled_queries", scaled_queries)

    def scaled_terms(q, k):
        return define("score", (b, h, i, j), nestor.sum(q[b, h, i, e] * SCALE * k[b, h, j, e], over=e))
    yield attention("attention_scaled_terms", scaled_terms)

    def both_scaled(q, k):
        left = define("left", (b, h, i, e), q[b, h, i, e] * SCALE**0.5)
        right = define("right", (b, h, j, e), k[b, h, j, e] * SCALE**0.5)
        return define("score", (b, h, i, j), nestor.sum(left[b, h, i, e] * right[b, h, j, e], over=e))
    yield attention("attention_both_scaled", both_scaled)

    def divided(q, k):
        raw = define("raw", (b, h, i, j), dot(q, k))
        return define("score", (b, h, i, j), raw[b, h, i, j] / 11.313708498984761)
    yield attention("attention_divided", divided)

    def wide(q, k):
        left = define("left", (b, h, i, e), nestor.cast(f32, q[b, h, i, e]))
        right = define("right", (b, h, j, e), nestor.cast(f32, k[b, h, j, e]))
        return define("score", (b, h, i, j), nestor.sum(left[b, h, i, e] * right[b, h, j, e], over=e) * SCALE)
    yield attention("attention_widened", wide)

    def one_expression(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        def score():
            return nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e) * SCALE
        power = nestor.exp(score() - nestor.max(score(), over=j))
        return define("out", (b, h, i, d), nestor.sum(power / nestor.sum(power, over=j) * v[b, h, j, d], over=j), type=bf16)
    yield named("attention_one_expression", one_expression)

    def of_tokens(q: bf16[batch, length, heads, dim], k: bf16[batch, length, heads, dim], v: bf16[batch, length, heads, dim]):
        score = define("score", (b, h, i, j), nestor.sum(q[b, i, h, e] * k[b, j, h, e], over=e) * SCALE)
        top = define("top", (b, h, i), nestor.max(score[b, h, i, j], over=j))
        power = define("power", (b, h, i, j), nestor.exp(score[b, h, i, j] - top[b, h, i]))
        total = define("total", (b, h, i), nestor.sum(power[b, h, i, j], over=j))
        return define("out", (b, i, h, d), nestor.sum(power[b, h, i, j] * v[b, j, h, d], over=j) / total[b, h, i], type=bf16)
    yield named("attention_tokens_first", of_tokens)

    def keys_first(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        score = define("score", (b, h, j, i), nestor.sum(k[b, h, j, e] * q[b, h, i, e], over=e) * SCALE)
        top = define("top", (b, h, i), nestor.max(score[b, h, j, i], over=j))
        power = define("power", (b, h, j, i), nestor.exp(score[b, h, j, i] - top[b, h, i]))
        total = define("total", (b, h, i), nestor.sum(power[b, h, j, i], over=j))
        return define("out", (b, h, i, d), nestor.sum(v[b, h, j, d] * power[b, h, j, i], over=j) / total[b, h, i], type=bf16)
    yield named("attention_keys_first", keys_first)

    def joined(q: bf16[batch, length, heads * 128], k: bf16[batch, length, heads * 128], v: bf16[batch, length, heads * 128]):
        d1, e1 = indices(d1=128, e1=128)
        score = define("score", (b, h, i, j), nestor.sum(q[b, i, h * 128 + e1] * k[b, j, h * 128 + e1], over=e1) * SCALE)
        top = define("top", (b, h, i), nestor.max(score[b, h, i, j], over=j))
        power = define("power", (b, h, i, j), nestor.exp(score[b, h, i, j] - top[b, h, i]))
        total = define("total", (b, h, i), nestor.sum(power[b, h, i, j], over=j))
        return define("out", (b, h, i, d1), nestor.sum(power[b, h, i, j] * v[b, j, h * 128 + d1], over=j) / total[b, h, i], type=bf16)
    yield named("attention_joined_heads", joined)

    def joined_out(q: bf16[batch, length, heads * 128], k: bf16[batch, length, heads * 128], v: bf16[batch, length, heads * 128]):
        e1, c = indices(e1=128, c=heads * 128)
        score = define("score", (b, h, i, j), nestor.sum(q[b, i, h * 128 + e1] * k[b, j, h * 128 + e1], over=e1) * SCALE)
        top = define("top", (b, h, i), nestor.max(score[b, h, i, j], over=j))
        power = define("power", (b, h, i, j), nestor.exp(score[b, h, i, j] - top[b, h, i]))
        total = define("total", (b, h, i), nestor.sum(power[b, h, i, j], over=j))
        return define("out", (b, i, c), nestor.sum(power[b, c // 128, i, j] * v[b, j, c], over=j) / total[b, c // 128, i], type=bf16)
    yield named("attention_joined_columns", joined_out)


@family("causal_attention", QKV)
def _():
    seen = j <= i
    yield attention("causal_attention", lambda q, k: scored(q, k, seen), seen)
    for style in ("exp2", "log", "lse", "inside", "bare"):
        yield attention(f"causal_attention_{style}", lambda q, k: scored(q, k, seen), seen, style)

    def masked(low):
        def score(q, k):
            raw = define("raw", (b, h, i, j), dot(q, k) * SCALE)
            return define("score", (b, h, i, j), nestor.select(j <= i, raw[b, h, i, j], low))
        return score
    yield attention("causal_attention_infinite", masked(-float("inf")))
    yield attention("causal_attention_constant", masked(-1e9))
    yield attention("causal_attention_infinite_bare", masked(-float("inf")), style="bare")

    def added(q, k):
        return define("score", (b, h, i, j), dot(q, k) * SCALE + nestor.select(j <= i, 0.0, -1e9))
    yield attention("causal_attention_added", added)

    def mask_tensor(q, k):
        mask = define("mask", (i, j), nestor.select(j <= i, 0.0, -float("inf")))
        return define("score", (b, h, i, j), dot(q, k) * SCALE + mask[i, j])
    yield attention("causal_attention_mask_tensor", mask_tensor)

    def at_once(q, k):
        return define("score", (b, h, i, j), nestor.select(j > i, -float("inf"), dot(q, k) * SCALE))
    yield attention("causal_attention_at_once", at_once)

    def multiplied(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        score = scored(q, k)
        top = define("top", (b, h, i), nestor.max(nestor.select(j <= i, score[b, h, i, j], -float("inf")), over=j))
        power = define("power", (b, h, i, j), nestor.select(j <= i, nestor.exp(score[b, h, i, j] - top[b, h, i]), 0.0))
        total = define("total", (b, h, i), nestor.sum(power[b, h, i, j], over=j))
        return define("out", (b, h, i, d), nestor.sum(power[b, h, i, j] * v[b, h, j, d], over=j) / total[b, h, i], type=bf16)
    yield named("causal_attention_zeroed", multiplied)

    def full_top(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        score = scored(q, k)
        top = define("top", (b, h, i), nestor.max(score[b, h, i, j], over=j))
        power = define("power", (b, h, i, j), nestor.exp(score[b, h, i, j] - top[b, h, i]) * nestor.select(j <= i, 1.0, 0.0))
        total = define("total", (b, h, i), nestor.sum(power[b, h, i, j], over=j))
        return define("out", (b, h, i, d), nestor.sum(power[b, h, i, j] * v[b, h, j, d], over=j) / total[b, h, i], type=bf16)
    yield named("causal_attention_full_maximum", full_top)


key_heads = Size("key_heads", 4)


@family("grouped_attention", {"batch": 2, "heads": 8, "key_heads": 2, "length": 7, "head_dim": 6})
def _():
    fits = heads == 4 * key_heads

    def by_division(q: bf16[batch, heads, length, dim], k: bf16[batch, key_heads, length, dim], v: bf16[batch, key_heads, length, dim]):
        score = define("score", (b, h, i, j), nestor.sum(q[b, h, i, e] * k[b, h // 4, j, e], over=e) * SCALE, where=j <= i)
        return softmax_then_sum(score, v[b, h // 4, j, d], j <= i)
    by_division.__name__ = "grouped_attention"
    yield nestor.nest(require=fits)(by_division)

    def repeated(q: bf16[batch, heads, length, dim], k: bf16[batch, key_heads, length, dim], v: bf16[batch, key_heads, length, dim]):
        keys = define("keys", (b, h, j, e), k[b, h // 4, j, e], type=bf16)
        values = define("values", (b, h, j, e), v[b, h // 4, j, e], type=bf16)
        score = define("score", (b, h, i, j), nestor.sum(q[b, h, i, e] * keys[b, h, j, e], over=e) * SCALE, where=j <= i)
        return softmax_then_sum(score, values[b, h, j, d], j <= i)
    repeated.__name__ = "grouped_attention_repeated"
    yield nestor.nest(require=fits)(repeated)

    def masked(q: bf16[batch, heads, length, dim], k: bf16[batch, key_heads, length, dim], v: bf16[batch, key_heads, length, dim]):
        raw = define("raw", (b, h, i, j), nestor.sum(q[b, h, i, e] * k[b, h // 4, j, e], over=e) * SCALE)
        score = define("score", (b, h, i, j), nestor.select(j <= i, raw[b, h, i, j], -1e30))
        return softmax_then_sum(score, v[b, h // 4, j, d], style="chances")
    masked.__name__ = "grouped_attention_masked"
    yield nestor.nest(require=fits)(masked)


@family("window_attention", QKV)
def _():
    def near(window, low):
        def score(q, k):
            seen = (j <= i) & (j > i - window)
            raw = define("raw", (b, h, i, j), dot(q, k) * SCALE)
            return define("score", (b, h, i, j), nestor.select(seen, raw[b, h, i, j], low))
        return score
    seen = (j <= i) & (j > i - 512)
    yield attention("window_attention", lambda q, k: scored(q, k, seen), seen)
    yield attention("window_attention_infinite", near(512, -float("inf")))
    yield attention("window_attention_constant", near(512, -1e9), style="chances")

    def distance(q, k):
        raw = define("raw", (b, h, i, j), dot(q, k) * SCALE)
        masked = define("masked", (b, h, i, j), nestor.select(i - j < 0, -float("inf"), raw[b, h, i, j]))
        return define("score", (b, h, i, j), nestor.select(i - j >= 512, -float("inf"), masked[b, h, i, j]))
    yield attention("window_attention_twice", distance)


@family("softcap_attention", QKV)
def _():
    def capped(q, k):
        return define("score", (b, h, i, j), 50.0 * nestor.tanh(dot(q, k) * SCALE / 50.0), where=j <= i)
    yield attention("softcap_attention", capped, j <= i)

    def by_exp(q, k):
        raw = define("raw", (b, h, i, j), dot(q, k) * SCALE)
        turned = nestor.exp(2 * (raw[b, h, i, j] / 50.0))
        return define("score", (b, h, i, j), nestor.select(j <= i, 50.0 * (1 - 2 / (turned + 1)), -float("inf")))
    yield attention("softcap_attention_by_exp", by_exp)

    def steps(q, k):
        raw = define("raw", (b, h, i, j), dot(q, k))
        scaled = define("scaled", (b, h, i, j), raw[b, h, i, j] * SCALE)
        capped = define("capped", (b, h, i, j), nestor.tanh(scaled[b, h, i, j] * 0.02) * 50.0)
        return define("score", (b, h, i, j), nestor.select(j <= i, capped[b, h, i, j], -1e9))
    yield attention("softcap_attention_steps", steps, style="chances")


@family("alibi_attention", QKV)
def _():
    def alibi(name, score, seen=None, style="plain"):
        def definition(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim], slope: f32[heads]):
            return softmax_then_sum(score(q, k, slope), v[b, h, j, d], seen, style)
        return named(name, definition)
    yield alibi("alibi_attention", lambda q, k, slope: define(
        "score", (b, h, i, j), dot(q, k) * SCALE + slope[h] * nestor.cast(f32, j - i), where=j <= i), j <= i)
    yield alibi("alibi_attention_keys_alone", lambda q, k, slope: define(
        "score", (b, h, i, j), nestor.select(j <= i, dot(q, k) * SCALE + slope[h] * nestor.cast(f32, j), -float("inf"))))

    def tensor(q, k, slope):
        bias = define("bias", (h, i, j), -slope[h] * nestor.cast(f32, i - j))
        raw = define("raw", (b, h, i, j), dot(q, k) * SCALE + bias[h, i, j])
        return define("score", (b, h, i, j), nestor.select(j <= i, raw[b, h, i, j], -1e9))
    yield alibi("alibi_attention_bias_tensor", tensor, style="chances")


@family("qk_norm_attention", QKV)
def _():
    def normed_attention(name, norm, style="plain"):
        def definition(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                       q_weight: bf16[dim], k_weight: bf16[dim]):
            left, right = norm("left", q, q_weight, i), norm("right", k, k_weight, j)
            score = define("score", (b, h, i, j), nestor.sum(left[b, h, i, e] * right[b, h, j, e], over=e) * SCALE, where=j <= i)
            return softmax_then_sum(score, v[b, h, j, d], j <= i, style)
        return named(name, definition)

    def once(name, x, weight, at):
        scale = nestor.rsqrt(nestor.sum(x[b, h, at, e] * x[b, h, at, e], over=e) / dim + EPS)
        return define(name, (b, h, at, d), x[b, h, at, d] * scale * weight[d], type=bf16)
    yield normed_attention("qk_norm_attention", once)

    def steps(name, x, weight, at):
        square = define(name + "_square", (b, h, at, e), x[b, h, at, e] * x[b, h, at, e])
        mean = define(name + "_mean", (b, h, at), nestor.mean(square[b, h, at, e], over=e))
        root = define(name + "_root", (b, h, at), nestor.sqrt(mean[b, h, at] + EPS))
        normed = define(name + "_normed", (b, h, at, d), x[b, h, at, d] / root[b, h, at])
        return define(name, (b, h, at, d), normed[b, h, at, d] * weight[d], type=bf16)
    yield normed_attention("qk_norm_attention_steps", steps, "inside")

    def unrounded(name, x, weight, at):
        scale = define(name + "_scale", (b, h, at), 1 / nestor.sqrt(nestor.sum(x[b, h, at, e] * x[b, h, at, e], over=e) / dim + EPS))
        return define(name, (b, h, at, d), x[b, h, at, d] * scale[b, h, at] * weight[d])
    yield normed_attention("qk_norm_attention_unrounded", unrounded)


@family("bias_attention", QKV)
def _():
    def biased(name, score, style="plain"):
        def definition(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                       bias: bf16[heads, length, length]):
            return softmax_then_sum(score(q, k, bias), v[b, h, j, d], None, style)
        return named(name, definition)
    yield biased("bias_attention", lambda q, k, bias: define("score", (b, h, i, j), dot(q, k) * SCALE + bias[h, i, j]))
    yield biased("bias_attention_before_scale", lambda q, k, bias: define("score", (b, h, i, j), (dot(q, k) + bias[h, i, j] / SCALE) * SCALE), "inside")

    def steps(q, k, bias):
        raw = define("raw", (b, h, i, j), dot(q, k))
        scaled = define("scaled", (b, h, i, j), raw[b, h, i, j] * SCALE)
        return define("score", (b, h, i, j), scaled[b, h, i, j] + bias[h, i, j])
    yield biased("bias_attention_steps", steps, "log")


# --- norms and softmax of rows ---------------------------------------------------------------------------------------------

rows, width = Size("rows", 16384), Size("width", 4096)
r, c, c2 = indices(r=rows, c=width, c2=width)
ROWS = {"rows": 5, "width": 9}


@family("layernorm_rows", ROWS)
def _():
    def layernorm(name, normed):
        def definition(x: bf16[rows, width], weight: bf16[width], bias: bf16[width]):
            return normed(x, weight, bias)
        return named(name, definition)

    def two_passes(x, weight, bias):
        mean = define("mean", r, nestor.sum(x[r, c2], over=c2) / width)
        apart = x[r, c2] - mean[r]
        variance = define("variance", r, nestor.sum(apart * apart, over=c2) / width)
        return define("out", (r, c), (x[r, c] - mean[r]) * nestor.rsqrt(variance[r] + EPS) * weight[c] + bias[c], type=bf16)
    yield layernorm("layernorm_rows", two_passes)

    def moments(x, weight, bias):
        mean = define("mean", r, nestor.sum(x[r, c2], over=c2) / width)
        square = define("square", r, nestor.sum(x[r, c2] * x[r, c2], over=c2) / width)
        variance = define("variance", r, square[r] - mean[r] * mean[r])
        return define("out", (r, c), (x[r, c] - mean[r]) / nestor.sqrt(variance[r] + EPS) * weight[c] + bias[c], type=bf16)
    yield layernorm("layernorm_rows_moments", moments)

    def steps(x, weight, bias):
        wide = define("wide", (r, c), nestor.cast(f32, x[r, c]))
        total = define("total", r, nestor.sum(wide[r, c], over=c))
        mean = define("mean", r, total[r] / width)
        apart = define("apart", (r, c), wide[r, c] - mean[r])
        square = define("square", (r, c), apart[r, c] * apart[r, c])
        variance = define("variance", r, nestor.sum(square[r, c], over=c) / width)
        root = define("root", r, nestor.sqrt(variance[r] + EPS))
        normed = define("normed", (r, c), apart[r, c] / root[r])
        scaled = define("scaled", (r, c), normed[r, c] * weight[c])
        return define("out", (r, c), scaled[r, c] + bias[c], type=bf16)
    yield layernorm("layernorm_rows_steps", steps)

    def expression(x, weight, bias):
        mean = nestor.mean(x[r, c2], over=c2)
        variance = nestor.mean((x[r, c2] - mean) * (x[r, c2] - mean), over=c2)
        return define("out", (r, c), (x[r, c] - mean) / nestor.sqrt(variance + EPS) * weight[c] + bias[c], type=bf16)
    yield layernorm("layernorm_rows_one_expression", expression)

    def shifted(x, weight, bias):
        scale_of = lambda m, s: nestor.rsqrt(nestor.maximum(s - m * m, 0.0) + EPS)
        mean = define("mean", r, nestor.sum(x[r, c2], over=c2) / width)
        square = define("square", r, nestor.sum(x[r, c2] * x[r, c2], over=c2) / width)
        scale = define("scale", r, scale_of(mean[r], square[r]))
        shift = define("shift", r, -mean[r] * scale[r])
        return define("out", (r, c), (x[r, c] * scale[r] + shift[r]) * weight[c] + bias[c], type=bf16)
    yield layernorm("layernorm_rows_shift", shifted)


@family("rmsnorm_rows", ROWS)
def _():
    def rmsnorm(name, normed):
        def definition(x: bf16[rows, width], weight: bf16[width]):
            return normed(x, weight)
        return named(name, definition)

    def plain(x, weight):
        scale = define("scale", r, nestor.rsqrt(nestor.sum(x[r, c2] * x[r, c2], over=c2) / width + EPS))
        return define("out", (r, c), x[r, c] * scale[r] * weight[c], type=bf16)
    yield rmsnorm("rmsnorm_rows", plain)

    def steps(x, weight):
        square = define("square", (r, c), nestor.cast(f32, x[r, c]) * nestor.cast(f32, x[r, c]))
        mean = define("mean", r, nestor.mean(square[r, c], over=c))
        norm = define("norm", r, nestor.sqrt(mean[r] + EPS))
        normed = define("normed", (r, c), x[r, c] / norm[r])
        return define("out", (r, c), weight[c] * normed[r, c], type=bf16)
    yield rmsnorm("rmsnorm_rows_steps", steps)

    def norm(x, weight):
        size = define("size", r, nestor.sqrt(nestor.sum(x[r, c2] * x[r, c2], over=c2) + EPS * width))
        return define("out", (r, c), x[r, c] / size[r] * nestor.sqrt(nestor.cast(f32, width)) * weight[c], type=bf16)
    yield rmsnorm("rmsnorm_rows_by_length", norm)

    def half(x, weight):
        a = indices(a=width)[0]
        even = nestor.sum(x[r, c2] * x[r, c2], over=c2, where=c2 % 2 == 0)
        odd = nestor.sum(x[r, a] * x[r, a], over=a, where=a % 2 == 1)
        scale = define("scale", r, nestor.rsqrt((even + odd) / width + EPS))
        return define("out", (r, c), x[r, c] * scale[r] * weight[c], type=bf16)
    yield rmsnorm("rmsnorm_rows_even_and_odd", half)


@family("softmax_rows", ROWS)
def _():
    def softmax(name, chances):
        def definition(x: bf16[rows, width]):
            return define("out", (r, c), chances(x), type=bf16)
        return named(name, definition)

    def top_of(x):
        return define("top", r, nestor.max(x[r, c2], over=c2))

    def plain(x):
        top = top_of(x)
        total = define("total", r, nestor.sum(nestor.exp(x[r, c2] - top[r]), over=c2))
        return nestor.exp(x[r, c] - top[r]) / total[r]
    yield softmax("softmax_rows", plain)

    def tensor(x):
        top = top_of(x)
        power = define("power", (r, c), nestor.exp(x[r, c] - top[r]))
        total = define("total", r, nestor.sum(power[r, c], over=c))
        return power[r, c] / total[r]
    yield softmax("softmax_rows_tensor", tensor)

    def logs(x):
        top = top_of(x)
        log = define("log", r, nestor.log(nestor.sum(nestor.exp(x[r, c2] - top[r]), over=c2)))
        return nestor.exp(x[r, c] - top[r] - log[r])
    yield softmax("softmax_rows_log", logs)

    def binary(x):
        top = define("top", r, nestor.max(x[r, c2] * LOG2E, over=c2))
        total = define("total", r, nestor.sum(nestor.exp2(x[r, c2] * LOG2E - top[r]), over=c2))
        return nestor.exp2(x[r, c] * LOG2E - top[r]) * (1 / total[r])
    yield softmax("softmax_rows_exp2", binary)

    def bare(x):
        return nestor.exp(x[r, c]) / define("total", r, nestor.sum(nestor.exp(x[r, c2]), over=c2))[r]
    yield softmax("softmax_rows_bare", bare)

    def steps(x):
        wide = define("wide", (r, c), nestor.cast(f32, x[r, c]))
        top = define("top", r, nestor.max(wide[r, c], over=c))
        apart = define("apart", (r, c), wide[r, c] - top[r])
        power = define("power", (r, c), nestor.exp(apart[r, c]))
        total = define("total", r, nestor.sum(power[r, c], over=c))
        inverse = define("inverse", r, 1 / total[r])
        return power[r, c] * inverse[r]
    yield softmax("softmax_rows_steps", steps)



tokens, vocabulary = Size("tokens", 8192), Size("vocabulary", 32000)
n, v1, v2 = indices(n=tokens, v1=vocabulary, v2=vocabulary)


@family("cross_entropy", {"tokens": 5, "vocabulary": 17}, {"target": whole_numbers(0, "vocabulary")})
def _():
    def loss(name, of):
        def definition(logits: bf16[tokens, vocabulary], target: i32[tokens]):
            return define("loss", n, of(logits, target))
        return named(name, definition)

    def top_of(x):
        return define("top", n, nestor.max(x[n, v1], over=v1))

    def plain(x, target):
        top = top_of(x)
        total = nestor.sum(nestor.exp(x[n, v1] - top[n]), over=v1)
        chosen = nestor.sum(nestor.select(target[n] == v1, x[n, v1], 0.0), over=v1)
        return top[n] + nestor.log(total) - chosen
    yield loss("cross_entropy", plain)

    def chances(x, target):
        top = top_of(x)
        power = define("power", (n, v1), nestor.exp(x[n, v1] - top[n]))
        total = define("total", n, nestor.sum(power[n, v1], over=v1))
        logs = define("logs", (n, v1), x[n, v1] - top[n] - nestor.log(total[n]))
        return -nestor.sum(nestor.select(target[n] == v1, logs[n, v1], 0.0), over=v1)
    yield loss("cross_entropy_log_softmax", chances)

    def one_hot(x, target):
        top = top_of(x)
        hot = define("hot", (n, v1), nestor.select(target[n] == v1, 1.0, 0.0))
        shifted = define("shifted", (n, v1), x[n, v1] - top[n])
        total = define("total", n, nestor.log(nestor.sum(nestor.exp(shifted[n, v1]), over=v1)))
        return nestor.sum(hot[n, v1] * (total[n] - shifted[n, v1]), over=v1)
    yield loss("cross_entropy_one_hot", one_hot)

    def bare(x, target):
        total = nestor.sum(nestor.exp(x[n, v1]), over=v1)
        return nestor.log(total) - nestor.sum(nestor.select(target[n] == v1, x[n, v1], 0.0), over=v1)
    yield loss("cross_entropy_bare", bare)


@family("softmax_gradient", ROWS)
def _():
    def plain(x: bf16[rows, width], grad: bf16[rows, width]):
        top = define("top", r, nestor.max(x[r, c2], over=c2))
        power = define("power", (r, c), nestor.exp(x[r, c] - top[r]))
        total = define("total", r, nestor.sum(power[r, c2], over=c2))
        chance = define("chance", (r, c), power[r, c] / total[r])
        dot = define("dot", r, nestor.sum(chance[r, c2] * grad[r, c2], over=c2))
        return define("out", (r, c), chance[r, c] * (grad[r, c] - dot[r]), type=bf16)
    yield named("softmax_gradient", plain)

    def recomputed(x: bf16[rows, width], grad: bf16[rows, width]):
        top = define("top", r, nestor.max(x[r, c2], over=c2))
        total = define("total", r, nestor.sum(nestor.exp(x[r, c2] - top[r]), over=c2))
        dot = define("dot", r, nestor.sum(nestor.exp(x[r, c2] - top[r]) * grad[r, c2], over=c2) / total[r])
        return define("out", (r, c), nestor.exp(x[r, c] - top[r]) / total[r] * (grad[r, c] - dot[r]), type=bf16)
    yield named("softmax_gradient_recomputed", recomputed)

    def inside(x: bf16[rows, width], grad: bf16[rows, width]):
        log = define("log", r, nestor.log(nestor.sum(nestor.exp(x[r, c2]), over=c2)))
        chance = define("chance", (r, c), nestor.exp(x[r, c] - log[r]))
        product = define("product", (r, c), chance[r, c] * grad[r, c])
        dot = define("dot", r, nestor.sum(product[r, c], over=c))
        return define("out", (r, c), product[r, c] - chance[r, c] * dot[r], type=bf16)
    yield named("softmax_gradient_logs", inside)


@family("layernorm_gradient", ROWS)
def _():
    def statistics(x):
        mean = define("mean", r, nestor.sum(x[r, c2], over=c2) / width)
        apart = x[r, c2] - mean[r]
        return mean, define("scale", r, nestor.rsqrt(nestor.sum(apart * apart, over=c2) / width + EPS))

    def plain(x: bf16[rows, width], grad: bf16[rows, width], weight: f32[width]):
        mean, scale = statistics(x)
        hat = define("hat", (r, c), (x[r, c] - mean[r]) * scale[r])
        scaled = define("scaled", (r, c), grad[r, c] * weight[c])
        first = define("first", r, nestor.sum(scaled[r, c2], over=c2) / width)
        second = define("second", r, nestor.sum(scaled[r, c2] * hat[r, c2], over=c2) / width)
        dx = define("dx", (r, c), (scaled[r, c] - first[r] - hat[r, c] * second[r]) * scale[r], type=bf16)
        r2 = indices(r2=rows)[0]
        return dx, define("dweight", c, nestor.sum(grad[r2, c] * hat[r2, c], over=r2)), define("dbias", c, nestor.sum(grad[r2, c], over=r2))
    yield named("layernorm_gradient", plain)

    def inline(x: bf16[rows, width], grad: bf16[rows, width], weight: f32[width]):
        r2 = indices(r2=rows)[0]
        mean, scale = statistics(x)
        first = define("first", r, nestor.sum(grad[r, c2] * weight[c2], over=c2))
        second = define("second", r, nestor.sum(grad[r, c2] * weight[c2] * (x[r, c2] - mean[r]), over=c2) * scale[r])
        dweight = define("dweight", c, nestor.sum(grad[r2, c] * (x[r2, c] - mean[r2]) * scale[r2], over=r2))
        dbias = define("dbias", c, nestor.sum(grad[r2, c], over=r2))
        hat = (x[r, c] - mean[r]) * scale[r]
        dx = define("dx", (r, c), scale[r] * (grad[r, c] * weight[c] - (first[r] + hat * second[r]) / width), type=bf16)
        return dx, dweight, dbias
    yield named("layernorm_gradient_inline", inline)


# --- linear layers ---------------------------------------------------------------------------------------------------------

many, ins, outs = Size("many", 4096), Size("ins", 4096), Size("outs", 4096)
m, k1, o = indices(m=many, k1=ins, o=outs)
LINEAR = {"many": 5, "ins": 6, "outs": 7}


@family("linear_gelu", LINEAR)
def _():
    def layer(name, active, transposed=False):
        if transposed:
            def definition(x: bf16[many, ins], weight: bf16[ins, outs], bias: bf16[outs]):
                return active(nestor.sum(x[m, k1] * weight[k1, o], over=k1) + bias[o])
        else:
            def definition(x: bf16[many, ins], weight: bf16[outs, ins], bias: bf16[outs]):
                return active(nestor.sum(x[m, k1] * weight[o, k1], over=k1) + bias[o])
        return named(name, definition)

    def out(value):
        return define("out", (m, o), value, type=bf16)

    def gelu(line):
        return out(0.5 * line * (1 + nestor.tanh(0.7978845608 * (line + 0.044715 * line * line * line))))
    yield layer("linear_gelu", gelu)
    yield layer("linear_gelu_by_sigmoid", lambda line: out(line * sigmoid(1.5957691216 * (line + 0.044715 * line * line * line))))

    def steps(line):
        kept = define("kept", (m, o), line)
        cube = define("cube", (m, o), kept[m, o] * kept[m, o] * kept[m, o])
        inner = define("inner", (m, o), 0.7978845608 * (kept[m, o] + 0.044715 * cube[m, o]))
        turned = define("turned", (m, o), nestor.tanh(inner[m, o]))
        return out(0.5 * kept[m, o] * (1 + turned[m, o]))
    yield layer("linear_gelu_steps", steps)

    def inside(x: bf16[many, ins], weight: bf16[outs, ins], bias: bf16[outs]):
        line = define("line", (m, o), nestor.sum(x[m, k1] * weight[o, k1] + nestor.select(k1 == 0, bias[o], 0.0), over=k1))
        return gelu(line[m, o])
    yield named("linear_gelu_bias_inside", inside)

    def halves(x: bf16[many, ins], weight: bf16[outs, ins], bias: bf16[outs]):
        k2 = indices(k2=ins)[0]
        low = define("low", (m, o), nestor.sum(x[m, k1] * weight[o, k1], over=k1, where=2 * k1 < ins))
        high = define("high", (m, o), nestor.sum(x[m, k2] * weight[o, k2], over=k2, where=2 * k2 >= ins))
        return gelu(low[m, o] + high[m, o] + bias[o])
    yield named("linear_gelu_two_halves", halves)

    def casts(x: bf16[many, ins], weight: bf16[outs, ins], bias: bf16[outs]):
        left = define("left", (m, k1), nestor.cast(f32, x[m, k1]))
        right = define("right", (o, k1), nestor.cast(f32, weight[o, k1]))
        product = define("product", (m, o), nestor.sum(left[m, k1] * right[o, k1], over=k1))
        return gelu(product[m, o] + bias[o])
    yield named("linear_gelu_casts", casts)

    def recurrent(x: bf16[many, ins], weight: bf16[outs, ins], bias: bf16[outs]):
        total = define("total", (m, o), bias[o])
        total.write((m, o, k1), (m, o), total[m, o] + x[m, k1] * weight[o, k1])
        return gelu(total[m, o])
    yield named("linear_gelu_in_place", recurrent)

    def updates(x: bf16[many, ins], weight: bf16[outs, ins], bias: bf16[outs]):
        total = define("total", (m, o), bias[o])
        total.write((k1, m, o), (m, o), x[m, k1] * weight[o, k1], reduction="add")
        return gelu(total[m, o])
    yield named("linear_gelu_updates", updates)


@family("swiglu", LINEAR)
def _():
    def layer(name, active):
        def definition(x: bf16[many, ins], gate: bf16[outs, ins], up: bf16[outs, ins]):
            left = nestor.sum(x[m, k1] * gate[o, k1], over=k1)
            right = nestor.sum(x[m, k1] * up[o, k1], over=k1)
            return define("out", (m, o), active(left, right), type=bf16)
        return named(name, definition)
    yield layer("swiglu", lambda g, u: g * sigmoid(g) * u)
    yield layer("swiglu_quotient", lambda g, u: g / (1 + nestor.exp(-g)) * u)
    yield layer("swiglu_tanh", lambda g, u: u * (0.5 * g * (1 + nestor.tanh(0.5 * g))))
    yield layer("swiglu_exponential", lambda g, u: u * g * nestor.exp(g) / (nestor.exp(g) + 1))

    def steps(g, u):
        g1, u1 = define("g1", (m, o), g), define("u1", (m, o), u)
        s1 = define("s1", (m, o), sigmoid(g1[m, o]))
        a1 = define("a1", (m, o), g1[m, o] * s1[m, o])
        return a1[m, o] * u1[m, o]
    yield layer("swiglu_steps", steps)


@family("joint_swiglu", LINEAR)
def _():
    def pieces(x: bf16[many, ins], weight: bf16[2 * outs, ins]):
        g = nestor.sum(x[m, k1] * weight[o, k1], over=k1)
        u = nestor.sum(x[m, k1] * weight[o + outs, k1], over=k1)
        return define("out", (m, o), g * sigmoid(g) * u, type=bf16)
    yield named("joint_swiglu", pieces)

    def whole(x: bf16[many, ins], weight: bf16[2 * outs, ins]):
        w = indices(w=2 * outs)[0]
        line = define("line", (m, w), nestor.sum(x[m, k1] * weight[w, k1], over=k1))
        return define("out", (m, o), line[m, o] * sigmoid(line[m, o]) * line[m, o + outs], type=bf16)
    yield named("joint_swiglu_whole", whole)


@family("relu_linear", LINEAR)
def _():
    def layer(name, active):
        def definition(x: bf16[many, ins], weight: bf16[outs, ins]):
            line = define("line", (m, o), nestor.sum(x[m, k1] * weight[o, k1], over=k1))
            return define("out", (m, o), active(line[m, o]), type=bf16)
        return named(name, definition)
    yield layer("relu_linear", lambda x: nestor.maximum(x, 0.0))
    yield layer("relu_linear_select", lambda x: nestor.select(x > 0.0, x, 0.0))
    yield layer("relu_linear_absolute", lambda x: (x + nestor.absolute(x)) / 2)
    yield layer("relu_linear_times", lambda x: x * nestor.select(x > 0.0, 1.0, 0.0))


@family("int8_weights", LINEAR, {"weight": whole_numbers(-127, 128)})
def _():
    def after(x: bf16[many, ins], weight: i32[outs, ins], scale: f32[outs]):
        return define("out", (m, o), nestor.sum(x[m, k1] * nestor.cast(f32, weight[o, k1]), over=k1) * scale[o], type=bf16)
    yield named("int8_weights", after)

    def inside(x: bf16[many, ins], weight: i32[outs, ins], scale: f32[outs]):
        return define("out", (m, o), nestor.sum(x[m, k1] * (nestor.cast(f32, weight[o, k1]) * scale[o]), over=k1), type=bf16)
    yield named("int8_weights_inside", inside)

    def rounded(x: bf16[many, ins], weight: i32[outs, ins], scale: f32[outs]):
        full = define("full", (o, k1), nestor.cast(bf16, nestor.cast(f32, weight[o, k1])), type=bf16)
        line = define("line", (m, o), nestor.sum(x[m, k1] * full[o, k1], over=k1))
        return define("out", (m, o), line[m, o] * scale[o], type=bf16)
    yield named("int8_weights_rounded", rounded)


blocks = Size("blocks", 32)
kk, kb, kw = indices(kk=128 * blocks, kb=blocks, kw=128)


@family("int4_weights", {"many": 5, "outs": 7, "blocks": 2}, {"packed": whole_numbers(-2**31, 2**31)})
def _():
    def layer(name, bits_of, out_of=None):
        def definition(x: f16[many, 128 * blocks], packed: i32[outs, 16 * blocks], scale: f32[outs, blocks]):
            full = define("full", (o, kk), (nestor.cast(f32, bits_of(packed)) - 8.0) * scale[o, kk // 128], type=f16)
            return define("out", (m, o), nestor.sum(x[m, kk] * full[o, kk], over=kk), type=f16)
        return named(name, definition)
    yield layer("int4_weights", lambda p: (p[o, kk // 8] >> (4 * (kk % 8))) & 15)

    def split(x: f16[many, 128 * blocks], packed: i32[outs, 16 * blocks], scale: f32[outs, blocks]):
        bits = (packed[o, 16 * kb + kw // 8] >> (4 * (kw % 8))) & 15
        full = define("full", (o, kb, kw), (nestor.cast(f32, bits) - 8.0) * scale[o, kb], type=f16)
        return define("out", (m, o), nestor.sum(x[m, 128 * kb + kw] * full[o, kb, kw], over=(kb, kw)), type=f16)
    yield named("int4_weights_blocks", split)

    def steps(x: f16[many, 128 * blocks], packed: i32[outs, 16 * blocks], scale: f32[outs, blocks]):
        bits = define("bits", (o, kk), (packed[o, kk // 8] >> (4 * (kk % 8))) & 15, type=i32)
        number = define("number", (o, kk), nestor.cast(f32, bits[o, kk]) - 8.0)
        full = define("full", (o, kk), number[o, kk] * scale[o, kk // 128], type=f16)
        return define("out", (m, o), nestor.sum(x[m, kk] * full[o, kk], over=kk), type=f16)
    yield named("int4_weights_steps", steps)


# --- images ----------------------------------------------------------------------------------------------------------------

images, side, channels, filters = Size("images", 32), Size("side", 56), Size("channels", 128), Size("filters", 128)
im, y, x, f, ch, p, q1 = indices(im=images, y=side, x=side, f=filters, ch=channels, p=3, q1=3)
CONV = {"images": 2, "side": 5, "channels": 4, "filters": 6}


@family("conv3x3", CONV)
def _():
    inside = (y + p >= 1) & (y + p <= side) & (x + q1 >= 1) & (x + q1 <= side)

    def plain(image: f16[images, side, side, channels], weight: f16[filters, 3, 3, channels]):
        return define("out", (im, y, x, f), nestor.sum(image[im, y + p - 1, x + q1 - 1, ch] * weight[f, p, q1, ch], over=(p, q1, ch), where=inside), type=f16)
    yield named("conv3x3", plain)

    def chosen(image: f16[images, side, side, channels], weight: f16[filters, 3, 3, channels]):
        value = nestor.select(inside, image[im, y + p - 1, x + q1 - 1, ch], 0.0)
        return define("out", (im, y, x, f), nestor.sum(value * weight[f, p, q1, ch], over=(ch, p, q1)), type=f16)
    yield named("conv3x3_select", chosen)

    def padded(image: f16[images, side, side, channels], weight: f16[filters, 3, 3, channels]):
        y1, x1 = indices(y1=side + 2, x1=side + 2)
        within = (y1 >= 1) & (y1 <= side) & (x1 >= 1) & (x1 <= side)
        pad = define("pad", (im, y1, x1, ch), nestor.select(within, image[im, y1 - 1, x1 - 1, ch], 0.0), type=f16)
        return define("out", (im, y, x, f), nestor.sum(pad[im, y + p, x + q1, ch] * weight[f, p, q1, ch], over=(p, q1, ch)), type=f16)
    yield named("conv3x3_padded", padded)

    def columns(image: f16[images, side, side, channels], weight: f16[filters, 3, 3, channels]):
        patch = define("patch", (im, y, x, p, q1, ch), nestor.select(inside, image[im, y + p - 1, x + q1 - 1, ch], 0.0), type=f16)
        return define("out", (im, y, x, f), nestor.sum(patch[im, y, x, p, q1, ch] * weight[f, p, q1, ch], over=(p, q1, ch)), type=f16)
    yield named("conv3x3_columns", columns)

    def nine(image: f16[images, side, side, channels], weight: f16[filters, 3, 3, channels]):
        total = 0
        for a in range(3):
            for z in range(3):
                within = (y + a >= 1) & (y + a <= side) & (x + z >= 1) & (x + z <= side)
                total = total + nestor.sum(image[im, y + a - 1, x + z - 1, ch] * weight[f, a, z, ch], over=ch, where=within)
        return define("out", (im, y, x, f), total, type=f16)
    yield named("conv3x3_nine_sums", nine)


@family("depthwise3x3", {"images": 2, "side": 5, "channels": 4})
def _():
    inside = (y + p >= 1) & (y + p <= side) & (x + q1 >= 1) & (x + q1 <= side)

    def plain(image: f16[images, channels, side, side], weight: f16[channels, 3, 3]):
        return define("out", (im, ch, y, x), nestor.sum(image[im, ch, y + p - 1, x + q1 - 1] * weight[ch, p, q1], over=(p, q1), where=inside), type=f16)
    yield named("depthwise3x3", plain)

    def chosen(image: f16[images, channels, side, side], weight: f16[channels, 3, 3]):
        value = nestor.select(inside, image[im, ch, y + p - 1, x + q1 - 1], 0.0)
        return define("out", (im, ch, y, x), nestor.sum(value * weight[ch, p, q1], over=(p, q1)), type=f16)
    yield named("depthwise3x3_select", chosen)

    def padded(image: f16[images, channels, side, side], weight: f16[channels, 3, 3]):
        y1, x1 = indices(y1=side + 2, x1=side + 2)
        within = (y1 >= 1) & (y1 <= side) & (x1 >= 1) & (x1 <= side)
        pad = define("pad", (im, ch, y1, x1), nestor.select(within, image[im, ch, y1 - 1, x1 - 1], 0.0), type=f16)
        return define("out", (im, ch, y, x), nestor.sum(pad[im, ch, y + p, x + q1] * weight[ch, p, q1], over=(p, q1)), type=f16)
    yield named("depthwise3x3_padded", padded)

    def terms(image: f16[images, channels, side, side], weight: f16[channels, 3, 3]):
        total = 0
        for a in range(3):
            for z in range(3):
                within = (y + a >= 1) & (y + a <= side) & (x + z >= 1) & (x + z <= side)
                total = total + nestor.select(within, image[im, ch, y + a - 1, x + z - 1] * weight[ch, a, z], 0.0)
        return define("out", (im, ch, y, x), total, type=f16)
    yield named("depthwise3x3_nine_terms", terms)


@family("pooled_maximum", {"images": 2, "side": 5, "channels": 4})
def _():
    def plain(image: f16[images, 2 * side + 1, 2 * side + 1, channels]):
        return define("out", (im, y, x, ch), nestor.max(image[im, 2 * y + p, 2 * x + q1, ch], over=(p, q1)), type=f16)
    yield named("pooled_maximum", plain)

    def separate(image: f16[images, 2 * side + 1, 2 * side + 1, channels]):
        x1 = indices(x1=2 * side + 1)[0]
        row = define("row", (im, y, x1, ch), nestor.max(image[im, 2 * y + p, x1, ch], over=p))
        return define("out", (im, y, x, ch), nestor.max(row[im, y, 2 * x + q1, ch], over=q1), type=f16)
    yield named("pooled_maximum_separate", separate)

    def nine(image: f16[images, 2 * side + 1, 2 * side + 1, channels]):
        best = image[im, 2 * y, 2 * x, ch]
        for a in range(3):
            for z in range(3):
                if a or z:
                    best = nestor.maximum(best, image[im, 2 * y + a, 2 * x + z, ch])
        return define("out", (im, y, x, ch), best, type=f16)
    yield named("pooled_maximum_nine_terms", nine)


@family("batchnorm_maps", {"images": 3, "side": 5, "channels": 4})
def _():
    im2, y2, x2 = indices(im2=images, y2=side, x2=side)

    def plain(image: f16[images, channels, side, side], weight: f32[channels], bias: f32[channels]):
        mean = define("mean", ch, nestor.mean(image[im2, ch, y2, x2], over=(im2, y2, x2)))
        apart = image[im2, ch, y2, x2] - mean[ch]
        variance = define("variance", ch, nestor.mean(apart * apart, over=(im2, y2, x2)))
        return define("out", (im, ch, y, x), (image[im, ch, y, x] - mean[ch]) * nestor.rsqrt(variance[ch] + EPS) * weight[ch] + bias[ch], type=f16)
    yield named("batchnorm_maps", plain)

    def moments(image: f16[images, channels, side, side], weight: f32[channels], bias: f32[channels]):
        mean = define("mean", ch, nestor.mean(image[im2, ch, y2, x2], over=(im2, y2, x2)))
        square = define("square", ch, nestor.mean(image[im2, ch, y2, x2] * image[im2, ch, y2, x2], over=(im2, y2, x2)))
        scale = define("scale", ch, weight[ch] / nestor.sqrt(square[ch] - mean[ch] * mean[ch] + EPS))
        shift = define("shift", ch, bias[ch] - mean[ch] * scale[ch])
        return define("out", (im, ch, y, x), image[im, ch, y, x] * scale[ch] + shift[ch], type=f16)
    yield named("batchnorm_maps_moments", moments)

    def steps(image: f16[images, channels, side, side], weight: f32[channels], bias: f32[channels]):
        mean = define("mean", ch, nestor.mean(image[im2, ch, y2, x2], over=(im2, y2, x2)))
        apart = define("apart", (im, ch, y, x), image[im, ch, y, x] - mean[ch])
        variance = define("variance", ch, nestor.mean(apart[im2, ch, y2, x2] * apart[im2, ch, y2, x2], over=(im2, y2, x2)))
        normed = define("normed", (im, ch, y, x), apart[im, ch, y, x] / nestor.sqrt(variance[ch] + EPS))
        return define("out", (im, ch, y, x), normed[im, ch, y, x] * weight[ch] + bias[ch], type=f16)
    yield named("batchnorm_maps_steps", steps)


groups, places = Size("groups", 32), Size("places", 3136)
g1, t1, t3 = indices(g1=groups, t1=places, t3=places)
(ch8,) = indices(ch8=groups * 8)


@family("groupnorm_maps", {"images": 2, "groups": 3, "places": 7})
def _():
    ch2 = indices(ch2=8)[0]

    def joint(image: f16[images, groups * 8, places], weight: f32[groups * 8], bias: f32[groups * 8]):
        mean = define("mean", (im, g1), nestor.mean(image[im, 8 * g1 + ch2, t3], over=(ch2, t3)))
        apart = image[im, 8 * g1 + ch2, t3] - mean[im, g1]
        variance = define("variance", (im, g1), nestor.mean(apart * apart, over=(ch2, t3)))
        normed = (image[im, ch8, t1] - mean[im, ch8 // 8]) * nestor.rsqrt(variance[im, ch8 // 8] + EPS)
        return define("out", (im, ch8, t1), normed * weight[ch8] + bias[ch8], type=f16)
    yield named("groupnorm_maps", joint)

    def moments(image: f16[images, groups * 8, places], weight: f32[groups * 8], bias: f32[groups * 8]):
        sums = define("sums", (im, ch8), nestor.sum(image[im, ch8, t3], over=t3))
        squares = define("squares", (im, ch8), nestor.sum(image[im, ch8, t3] * image[im, ch8, t3], over=t3))
        mean = define("mean", (im, g1), nestor.sum(sums[im, 8 * g1 + ch2], over=ch2) / places / 8)
        square = define("square", (im, g1), nestor.sum(squares[im, 8 * g1 + ch2], over=ch2) / places / 8)
        scale = define("scale", (im, g1), nestor.rsqrt(square[im, g1] - mean[im, g1] * mean[im, g1] + EPS))
        normed = (image[im, ch8, t1] - mean[im, ch8 // 8]) * scale[im, ch8 // 8]
        return define("out", (im, ch8, t1), normed * weight[ch8] + bias[ch8], type=f16)
    yield named("groupnorm_maps_moments", moments)


# --- sequences -------------------------------------------------------------------------------------------------------------

lines, columns = Size("lines", 4096), Size("columns", 4096)
ln, cl, cl2 = indices(ln=lines, cl=columns, cl2=columns)


@family("prefix_sums", {"lines": 5, "columns": 9})
def _():
    def domain(x: f32[lines, columns]):
        return define("out", (ln, cl), nestor.sum(x[ln, cl2], over=cl2, where=cl2 <= cl))
    yield named("prefix_sums", domain)

    def masked(x: f32[lines, columns]):
        return define("out", (ln, cl), nestor.sum(nestor.select(cl2 <= cl, x[ln, cl2], 0.0), over=cl2))
    yield named("prefix_sums_select", masked)

    def recurrence(x: f32[lines, columns]):
        after = indices(after=columns - 1)[0]
        out = define("out", (ln, cl), x[ln, cl], where=cl == 0)
        return out.write((ln, after), (ln, after + 1), out[ln, after] + x[ln, after + 1])
    yield named("prefix_sums_recurrence", recurrence)

    def steps(x: f32[lines, columns]):
        after = indices(after=columns - 1)[0]
        out = define("out", (ln, cl), x[ln, cl])
        return out.write((after, ln), (ln, after + 1), out[ln, after] + out[ln, after + 1])
    yield named("prefix_sums_in_place", steps)

    def matrix(x: f32[lines, columns]):
        ones = define("ones", (cl, cl2), nestor.select(cl2 <= cl, 1.0, 0.0))
        return define("out", (ln, cl), nestor.sum(x[ln, cl2] * ones[cl, cl2], over=cl2))
    yield named("prefix_sums_matrix", matrix)


steps_, lanes = Size("steps", 512), Size("lanes", 1024)
bt, tm, la, af = indices(bt=batch, tm=steps_, la=lanes, af=steps_ - 1)


@family("linear_recurrence", {"batch": 2, "steps": 7, "lanes": 5}, {"forget": chance})
def _():
    def plain(x: bf16[batch, steps_, lanes], forget: bf16[batch, steps_, lanes]):
        state = define("state", (bt, tm, la), (1 - forget[bt, tm, la]) * x[bt, tm, la], where=tm == 0)
        at = (bt, af + 1, la)
        return state.write((bt, af, la), at, forget[at] * state[bt, af, la] + (1 - forget[at]) * x[at])
    yield named("linear_recurrence", plain)

    def input_first(x: bf16[batch, steps_, lanes], forget: bf16[batch, steps_, lanes]):
        into = define("into", (bt, tm, la), (1 - forget[bt, tm, la]) * x[bt, tm, la])
        state = define("state", (bt, tm, la), into[bt, tm, la], where=tm == 0)
        at = (bt, af + 1, la)
        return state.write((bt, af, la), at, forget[at] * state[bt, af, la] + into[at])
    yield named("linear_recurrence_input_first", input_first)

    def mixed(x: bf16[batch, steps_, lanes], forget: bf16[batch, steps_, lanes]):
        state = define("state", (bt, tm, la), x[bt, tm, la] - forget[bt, tm, la] * x[bt, tm, la], where=tm == 0)
        at = (bt, af + 1, la)
        return state.write((af, bt, la), at, x[at] + forget[at] * (state[bt, af, la] - x[at]))
    yield named("linear_recurrence_steps_first", mixed)


time_, inner = Size("time", 128), Size("inner", 16, fixed=True)
scans = Size("scans", 16)
sc, ti, si, at_ = indices(sc=scans, ti=time_, si=inner, at=time_ - 1)


@family("mamba_scan", {"scans": 2, "time": 6, "lanes": 5, "inner": 4}, {"delta": chance, "rate": lambda normal, _: -numpy.abs(normal)})
def _():
    def plain(x: f32[scans, time_, lanes], delta: f32[scans, time_, lanes], rate: f32[lanes, inner], into: f32[scans, time_, inner],
              out_of: f32[scans, time_, inner]):
        state = define("state", (sc, ti, la, si), delta[sc, ti, la] * into[sc, ti, si] * x[sc, ti, la], where=ti == 0)
        at = (sc, at_ + 1, la)
        kept = nestor.exp(delta[at] * rate[la, si]) * state[sc, at_, la, si]
        state.write((sc, at_, la, si), (*at, si), kept + delta[at] * into[sc, at_ + 1, si] * x[at])
        return define("out", (sc, ti, la), nestor.sum(state[sc, ti, la, si] * out_of[sc, ti, si], over=si))
    yield named("mamba_scan", plain)

    def prepared(x: f32[scans, time_, lanes], delta: f32[scans, time_, lanes], rate: f32[lanes, inner], into: f32[scans, time_, inner],
                 out_of: f32[scans, time_, inner]):
        decay = define("decay", (sc, ti, la, si), nestor.exp(delta[sc, ti, la] * rate[la, si]))
        fresh = define("fresh", (sc, ti, la, si), delta[sc, ti, la] * x[sc, ti, la] * into[sc, ti, si])
        state = define("state", (sc, ti, la, si), fresh[sc, ti, la, si], where=ti == 0)
        at = (sc, at_ + 1, la, si)
        state.write((sc, at_, la, si), at, decay[at] * state[sc, at_, la, si] + fresh[at])
        return define("out", (sc, ti, la), nestor.sum(state[sc, ti, la, si] * out_of[sc, ti, si], over=si))
    yield named("mamba_scan_prepared", prepared)

    def together(x: f32[scans, time_, lanes], delta: f32[scans, time_, lanes], rate: f32[lanes, inner], into: f32[scans, time_, inner],
                 out_of: f32[scans, time_, inner]):
        t1 = indices(t1=time_ + 1)[0]
        state = define("state", (sc, t1, la, si), 0.0, where=t1 == 0)
        with nestor.steps(ti):
            state.write((ti, sc, la, si), (sc, ti + 1, la, si),
                        nestor.exp(delta[sc, ti, la] * rate[la, si]) * state[sc, ti, la, si] + delta[sc, ti, la] * into[sc, ti, si] * x[sc, ti, la])
            out = define("out", (ti, sc, la), nestor.sum(state[sc, ti + 1, la, si] * out_of[sc, ti, si], over=si))
        return define("result", (sc, ti, la), out[ti, sc, la])
    yield named("mamba_scan_from_zero", together)


chunks, within = Size("chunks", 64), Size("within", 64, fixed=True)
u, w1, w2 = indices(u=chunks, w1=within, w2=within)


@family("linear_attention_chunk", {"batch": 2, "heads": 3, "chunks": 2, "within": 5, "head_dim": 4})
def _():
    at = (b, h, u)

    def plain(q: bf16[batch, heads, chunks, within, dim], k: bf16[batch, heads, chunks, within, dim], v: bf16[batch, heads, chunks, within, dim]):
        score = define("score", (*at, w1, w2), nestor.sum(q[(*at, w1, e)] * k[(*at, w2, e)], over=e), where=w2 <= w1)
        return define("out", (*at, w1, d), nestor.sum(score[(*at, w1, w2)] * v[(*at, w2, d)], over=w2, where=w2 <= w1), type=bf16)
    yield named("linear_attention_chunk", plain)

    def masked(q: bf16[batch, heads, chunks, within, dim], k: bf16[batch, heads, chunks, within, dim], v: bf16[batch, heads, chunks, within, dim]):
        score = define("score", (*at, w1, w2), nestor.sum(q[(*at, w1, e)] * k[(*at, w2, e)], over=e))
        kept = define("kept", (*at, w1, w2), nestor.select(w2 <= w1, score[(*at, w1, w2)], 0.0))
        return define("out", (*at, w1, d), nestor.sum(kept[(*at, w1, w2)] * v[(*at, w2, d)], over=w2), type=bf16)
    yield named("linear_attention_chunk_masked", masked)

    def times(q: bf16[batch, heads, chunks, within, dim], k: bf16[batch, heads, chunks, within, dim], v: bf16[batch, heads, chunks, within, dim]):
        mask = define("mask", (w1, w2), nestor.select(w2 <= w1, 1.0, 0.0))
        score = define("score", (*at, w1, w2), nestor.sum(q[(*at, w1, e)] * k[(*at, w2, e)], over=e) * mask[w1, w2])
        return define("out", (*at, w1, d), nestor.sum(score[(*at, w1, w2)] * v[(*at, w2, d)], over=w2), type=bf16)
    yield named("linear_attention_chunk_times", times)


# --- others ----------------------------------------------------------------------------------------------------------------

points, centres, deep = Size("points", 16384), Size("centres", 1024), Size("deep", 128, fixed=True)
pt, ce, de = indices(pt=points, ce=centres, de=deep)


@family("square_distances", {"points": 5, "centres": 4, "deep": 6})
def _():
    def expanded(x: bf16[points, deep], centre: bf16[centres, deep]):
        left = define("left", pt, nestor.sum(x[pt, de] * x[pt, de], over=de))
        right = define("right", ce, nestor.sum(centre[ce, de] * centre[ce, de], over=de))
        return define("out", (pt, ce), left[pt] + right[ce] - 2 * nestor.sum(x[pt, de] * centre[ce, de], over=de))
    yield named("square_distances", expanded)

    def direct(x: bf16[points, deep], centre: bf16[centres, deep]):
        apart = x[pt, de] - centre[ce, de]
        return define("out", (pt, ce), nestor.sum(apart * apart, over=de))
    yield named("square_distances_direct", direct)

    def tensor(x: bf16[points, deep], centre: bf16[centres, deep]):
        apart = define("apart", (pt, ce, de), x[pt, de] - centre[ce, de])
        return define("out", (pt, ce), nestor.sum(apart[pt, ce, de] * apart[pt, ce, de], over=de))
    yield named("square_distances_tensor", tensor)

    def one_sum(x: bf16[points, deep], centre: bf16[centres, deep]):
        a, z = x[pt, de], centre[ce, de]
        return define("out", (pt, ce), nestor.sum(a * a - 2 * a * z + z * z, over=de))
    yield named("square_distances_one_sum", one_sum)


@family("adam", ROWS, {"second": positive})
def _():
    def plain(weight: f32[rows, width], grad: bf16[rows, width], first: f32[rows, width], second: f32[rows, width], rate: f32[()]):
        slope = grad[r, c]
        first2 = define("first2", (r, c), 0.9 * first[r, c] + 0.1 * slope)
        second2 = define("second2", (r, c), 0.999 * second[r, c] + 0.001 * slope * slope)
        return define("out", (r, c), weight[r, c] - rate[()] * first2[r, c] / (nestor.sqrt(second2[r, c]) + 1e-8)), first2, second2
    yield named("adam", plain)

    def steps(weight: f32[rows, width], grad: bf16[rows, width], first: f32[rows, width], second: f32[rows, width], rate: f32[()]):
        slope = define("slope", (r, c), nestor.cast(f32, grad[r, c]))
        square = define("square", (r, c), slope[r, c] * slope[r, c])
        first2 = define("first2", (r, c), first[r, c] + 0.1 * (slope[r, c] - first[r, c]))
        second2 = define("second2", (r, c), second[r, c] + 0.001 * (square[r, c] - second[r, c]))
        root = define("root", (r, c), nestor.sqrt(second2[r, c]) + 1e-8)
        step = define("step", (r, c), rate[()] * first2[r, c] / root[r, c])
        return define("out", (r, c), weight[r, c] - step[r, c]), first2, second2
    yield named("adam_steps", steps)


@family("heat", {"side": 7})
def _():
    big = Size("side", 8192)
    yy, xx, a3, z3 = indices(yy=big, xx=big, a3=3, z3=3)
    inner_points = (yy >= 1) & (yy < big - 1) & (xx >= 1) & (xx < big - 1)

    def plain(t: f32[big, big]):
        inside = t[yy, xx] + 0.1 * (t[yy - 1, xx] + t[yy + 1, xx] + t[yy, xx - 1] + t[yy, xx + 1] - 4 * t[yy, xx])
        return define("out", (yy, xx), nestor.select(inner_points, inside, t[yy, xx]))
    yield named("heat", plain)

    def steps(t: f32[big, big]):
        down = define("down", (yy, xx), t[yy - 1, xx] + t[yy + 1, xx] - 2 * t[yy, xx], where=inner_points)
        across = define("across", (yy, xx), t[yy, xx - 1] + t[yy, xx + 1] - 2 * t[yy, xx], where=inner_points)
        change = define("change", (yy, xx), 0.1 * (down[yy, xx] + across[yy, xx]), where=inner_points)
        return define("out", (yy, xx), t[yy, xx] + nestor.select(inner_points, change[yy, xx], 0.0))
    yield named("heat_steps", steps)


@family("matrix_chain", {"many": 5, "ins": 6, "outs": 7, "rank": 4})
def _():
    rank = Size("rank", 64)
    rk = indices(rk=rank)[0]

    def exact(x: bf16[many, ins], left: bf16[rank, ins], right: bf16[outs, rank]):
        low = define("low", (m, rk), nestor.sum(x[m, k1] * left[rk, k1], over=k1))
        return define("out", (m, o), nestor.sum(low[m, rk] * right[o, rk], over=rk), type=bf16)
    yield named("matrix_chain", exact)

    def expression(x: bf16[many, ins], left: bf16[rank, ins], right: bf16[outs, rank]):
        return define("out", (m, o), nestor.sum(nestor.sum(x[m, k1] * left[rk, k1], over=k1) * right[o, rk], over=rk), type=bf16)
    yield named("matrix_chain_one_expression", expression)

    def triple(x: bf16[many, ins], left: bf16[rank, ins], right: bf16[outs, rank]):
        return define("out", (m, o), nestor.sum(x[m, k1] * left[rk, k1] * right[o, rk], over=(rk, k1)), type=bf16)
    yield named("matrix_chain_one_sum", triple)

    def weights(x: bf16[many, ins], left: bf16[rank, ins], right: bf16[outs, rank]):
        weight = define("weight", (o, k1), nestor.sum(right[o, rk] * left[rk, k1], over=rk))
        return define("out", (m, o), nestor.sum(x[m, k1] * weight[o, k1], over=k1), type=bf16)
    yield named("matrix_chain_weights_first", weights)


@family("batched_product", {"lots": 2, "many": 5, "ins": 6, "outs": 7})
def _():
    lots, tall, thick, deepn = Size("lots", 32), Size("many", 1024), Size("outs", 1024), Size("ins", 1024)
    ba, mm, oo, ki = indices(ba=lots, mm=tall, oo=thick, ki=deepn)

    def plain(x: f16[lots, tall, deepn], weight: f16[lots, deepn, thick]):
        return define("out", (ba, mm, oo), nestor.sum(x[ba, mm, ki] * weight[ba, ki, oo], over=ki), type=f16)
    yield named("batched_product", plain)

    def turned(x: f16[lots, tall, deepn], weight: f16[lots, deepn, thick]):
        other = define("other", (ba, oo, ki), weight[ba, ki, oo], type=f16)
        return define("out", (ba, mm, oo), nestor.sum(x[ba, mm, ki] * other[ba, oo, ki], over=ki), type=f16)
    yield named("batched_product_turned", turned)

    def terms(x: f16[lots, tall, deepn], weight: f16[lots, deepn, thick]):
        term = define("term", (ba, mm, oo, ki), x[ba, mm, ki] * weight[ba, ki, oo])
        return define("out", (ba, mm, oo), nestor.sum(term[ba, mm, oo, ki], over=ki), type=f16)
    yield named("batched_product_terms", terms)

    def loops_turned(x: f16[lots, tall, deepn], weight: f16[lots, deepn, thick]):
        total = define("total", (oo, mm, ba), nestor.sum(weight[ba, ki, oo] * x[ba, mm, ki], over=ki))
        return define("out", (ba, mm, oo), total[oo, mm, ba], type=f16)
    yield named("batched_product_loops_turned", loops_turned)


@family("rotary_heads", {"batch": 2, "length": 7, "heads": 3, "half": 4})
def _():
    half = Size("half", 64, fixed=True)
    hf, ax, pr = indices(hf=half, ax=2 * half, pr=2)

    def chosen(q: bf16[batch, length, heads, 2 * half], cosine: f32[length, half], sine: f32[length, half]):
        first = q[b, i, h, ax] * cosine[i, ax] - q[b, i, h, ax + half] * sine[i, ax]
        second = q[b, i, h, ax] * cosine[i, ax - half] + q[b, i, h, ax - half] * sine[i, ax - half]
        return define("out", (b, i, h, ax), nestor.select(ax < half, first, second), type=bf16)
    yield named("rotary_heads", chosen)

    def parts(q: bf16[batch, length, heads, 2 * half], cosine: f32[length, half], sine: f32[length, half]):
        low = define("low", (b, i, h, hf), q[b, i, h, hf] * cosine[i, hf] - q[b, i, h, hf + half] * sine[i, hf])
        high = define("high", (b, i, h, hf), q[b, i, h, hf + half] * cosine[i, hf] + q[b, i, h, hf] * sine[i, hf])
        return define("out", (b, i, h, ax), nestor.select(ax < half, low[b, i, h, ax], high[b, i, h, ax - half]), type=bf16)
    yield named("rotary_heads_parts", parts)


__all__ = ["FAMILIES", "Family"]
