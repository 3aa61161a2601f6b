"""Still more of the same operators, written otherwise: further members of the families of rewritten.py and restated.py, and families of
their own. Sums split into blocks, dims merged or shifted, storage turned, inputs joined, statistics of squares, partial results kept."""

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .restated import FAMILIES
from .rewritten import EPS, ROWS, SCALE, b, batch, c, c2, d, dim, dot, e, family, h, heads, i, ins, j, k1, length, m, many, more
from .rewritten import named, o, outs, r, rows, scored, sigmoid, softmax_then_sum, whole_numbers, width


# --- attention ---------------------------------------------------------------------------------------------------------------

@more("attention")
def _():
    def halves(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        u, w = indices(u=2, w=64)
        score = define("score", (b, h, i, j), nestor.sum(q[b, h, i, 64 * u + w] * k[b, h, j, 64 * u + w], over=(u, w)) * SCALE)
        return softmax_then_sum(score, v[b, h, j, d])
    yield named("attention_split_dim", halves)

    def two_sums(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        w1, w2 = indices(w1=64, w2=64)
        low = nestor.sum(q[b, h, i, w1] * k[b, h, j, w1], over=w1)
        high = nestor.sum(q[b, h, i, w2 + 64] * k[b, h, j, w2 + 64], over=w2)
        return softmax_then_sum(define("score", (b, h, i, j), (low + high) * SCALE), v[b, h, j, d])
    yield named("attention_two_sums", two_sums)

    def scale_in_exponent(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        raw = define("raw", (b, h, i, j), dot(q, k))
        top = define("top", (b, h, i), nestor.max(raw[b, h, i, j], over=j))
        power = define("power", (b, h, i, j), nestor.exp((raw[b, h, i, j] - top[b, h, i]) * SCALE))
        total = define("total", (b, h, i), nestor.sum(power[b, h, i, j], over=j))
        return define("out", (b, h, i, d), nestor.sum(power[b, h, i, j] * v[b, h, j, d], over=j) / total[b, h, i], type=bf16)
    yield named("attention_scale_in_exponent", scale_in_exponent)

    def twice_lowered(q, k):
        raw = define("raw", (b, h, i, j), dot(q, k) * SCALE)
        first = define("first", (b, h, i), nestor.max(raw[b, h, i, j], over=j))
        return define("score", (b, h, i, j), raw[b, h, i, j] - first[b, h, i])

    def lowered(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        return softmax_then_sum(twice_lowered(q, k), v[b, h, j, d])
    yield named("attention_twice_lowered", lowered)

    def unnormed(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        score = scored(q, k)
        top = define("top", (b, h, i), nestor.max(score[b, h, i, j], over=j))
        power = define("power", (b, h, i, j), nestor.exp(score[b, h, i, j] - top[b, h, i]))
        mixed = define("mixed", (b, h, i, d), nestor.sum(power[b, h, i, j] * v[b, h, j, d], over=j))
        total = define("total", (b, h, i), nestor.sum(power[b, h, i, j], over=j))
        inverse = define("inverse", (b, h, i), 1 / total[b, h, i])
        return define("out", (b, h, i, d), mixed[b, h, i, d] * inverse[b, h, i], type=bf16)
    yield named("attention_normed_last", unnormed)

    def copies(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        turned = define("turned", (b, h, e, j), k[b, h, j, e], type=bf16)
        score = define("score", (b, h, i, j), nestor.sum(q[b, h, i, e] * turned[b, h, e, j], over=e) * SCALE)
        return softmax_then_sum(score, v[b, h, j, d])
    yield named("attention_turned_copy", copies)

    def terms(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        score = scored(q, k)
        top = define("top", (b, h, i), nestor.max(score[b, h, i, j], over=j))
        total = define("total", (b, h, i), nestor.sum(nestor.exp(score[b, h, i, j] - top[b, h, i]), over=j))
        part = define("part", (b, h, i, j, d), nestor.exp(score[b, h, i, j] - top[b, h, i]) / total[b, h, i] * v[b, h, j, d])
        return define("out", (b, h, i, d), nestor.sum(part[b, h, i, j, d], over=j), type=bf16)
    yield named("attention_stored_terms", terms)


@more("causal_attention")
def _():
    def arithmetic(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        sees = nestor.cast(f32, nestor.minimum(nestor.maximum(i - j + 1, 0), 1))
        score = define("score", (b, h, i, j), dot(q, k) * SCALE * sees + (1 - sees) * -1e9)
        return softmax_then_sum(score, v[b, h, j, d])
    yield named("causal_attention_arithmetic", arithmetic)

    def distances(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        a = indices(a=length)[0]
        score = define("score", (b, h, i, a), nestor.sum(q[b, h, i, e] * k[b, h, i - a, e], over=e) * SCALE, where=a <= i)
        top = define("top", (b, h, i), nestor.max(score[b, h, i, a], over=a, where=a <= i))
        power = define("power", (b, h, i, a), nestor.exp(score[b, h, i, a] - top[b, h, i]), where=a <= i)
        total = define("total", (b, h, i), nestor.sum(power[b, h, i, a], over=a, where=a <= i))
        return define("out", (b, h, i, d), nestor.sum(power[b, h, i, a] * v[b, h, i - a, d], over=a, where=a <= i) / total[b, h, i], type=bf16)
    yield named("causal_attention_distances", distances)

    def chosen_weights(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        score = scored(q, k)
        power = define("power", (b, h, i, j), nestor.select(j <= i, nestor.exp(score[b, h, i, j]), 0.0))
        total = define("total", (b, h, i), nestor.sum(power[b, h, i, j], over=j))
        chance = define("chance", (b, h, i, j), power[b, h, i, j] / (total[b, h, i] + 1e-9))
        return define("out", (b, h, i, d), nestor.sum(chance[b, h, i, j] * v[b, h, j, d], over=j), type=bf16)
    yield named("causal_attention_zeroed_bare", chosen_weights)


@more("window_attention")
def _():
    def offsets(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
        a = indices(a=512)[0]
        score = define("score", (b, h, i, a), nestor.sum(q[b, h, i, e] * k[b, h, i - a, e], over=e) * SCALE, where=a <= i)
        top = define("top", (b, h, i), nestor.max(score[b, h, i, a], over=a, where=a <= i))
        power = define("power", (b, h, i, a), nestor.exp(score[b, h, i, a] - top[b, h, i]), where=a <= i)
        total = define("total", (b, h, i), nestor.sum(power[b, h, i, a], over=a, where=a <= i))
        return define("out", (b, h, i, d), nestor.sum(power[b, h, i, a] * v[b, h, i - a, d], over=a, where=a <= i) / total[b, h, i], type=bf16)
    yield named("window_attention_offsets", offsets)


# --- rows ----------------------------------------------------------------------------------------------------------------------

@more("layernorm_rows")
def _():
    def one_pass(x: bf16[rows, width], weight: bf16[width], bias: bf16[width]):
        inverse = 1 / nestor.cast(f32, width)
        mean = define("mean", r, nestor.sum(x[r, c2], over=c2) * inverse)
        square = define("square", r, nestor.sum(x[r, c2] * x[r, c2], over=c2) * inverse)
        deviation = define("deviation", r, nestor.sqrt(nestor.maximum(square[r] - mean[r] * mean[r], 0.0) + EPS))
        return define("out", (r, c), weight[c] * ((x[r, c] - mean[r]) / deviation[r]) + bias[c], type=bf16)
    yield named("layernorm_rows_reciprocal", one_pass)

    def rounded(x: bf16[rows, width], weight: bf16[width], bias: bf16[width]):
        mean = define("mean", r, nestor.mean(x[r, c], over=c))
        apart = define("apart", (r, c), x[r, c] - mean[r])
        square = define("square", (r, c), apart[r, c] * apart[r, c])
        variance = define("variance", r, nestor.mean(square[r, c], over=c))
        inverse = define("inverse", r, nestor.rsqrt(variance[r] + EPS))
        scale = define("scale", (r, c), inverse[r] * weight[c])
        return define("out", (r, c), apart[r, c] * scale[r, c] + bias[c], type=bf16)
    yield named("layernorm_rows_scales", rounded)


@family("split_norm", {"rows": 5, "groups": 3})
def _():
    groups = Size("groups", 32)
    rr, cc, g, w, w2 = indices(rr=rows, cc=groups * 128, g=groups, w=128, w2=128)

    def whole(x: bf16[rows, groups * 128], weight: bf16[groups * 128]):
        c3 = indices(c3=groups * 128)[0]
        scale = define("scale", rr, nestor.rsqrt(nestor.mean(x[rr, c3] * x[rr, c3], over=c3) + EPS))
        return define("out", (rr, cc), x[rr, cc] * scale[rr] * weight[cc], type=bf16)
    yield named("split_norm", whole)

    def in_parts(x: bf16[rows, groups * 128], weight: bf16[groups * 128]):
        part = define("part", (rr, g), nestor.sum(x[rr, 128 * g + w] * x[rr, 128 * g + w], over=w))
        scale = define("scale", rr, nestor.rsqrt(nestor.sum(part[rr, g], over=g) / (128 * groups) + EPS))
        return define("out", (rr, cc), x[rr, cc] * scale[rr] * weight[cc], type=bf16)
    yield named("split_norm_parts", in_parts)

    def two_dims(x: bf16[rows, groups * 128], weight: bf16[groups * 128]):
        scale = define("scale", rr, nestor.rsqrt(nestor.sum(x[rr, 128 * g + w] * x[rr, 128 * g + w], over=(g, w)) / (128 * groups) + EPS))
        return define("out", (rr, cc), x[rr, cc] * scale[rr] * weight[cc], type=bf16)
    yield named("split_norm_two_dims", two_dims)


@more("softmax_rows")
def _():
    def in_parts(x: bf16[rows, width]):
        top = define("top", r, nestor.max(x[r, c2], over=c2))
        lowered = define("lowered", (r, c), x[r, c] - top[r])
        again = define("again", r, nestor.max(lowered[r, c2], over=c2))
        power = define("power", (r, c), nestor.exp(lowered[r, c] - again[r]))
        total = define("total", r, nestor.sum(power[r, c2], over=c2))
        return define("out", (r, c), power[r, c] / total[r], type=bf16)
    yield named("softmax_rows_twice_lowered", in_parts)

    def logs(x: bf16[rows, width]):
        top = define("top", r, nestor.max(x[r, c2], over=c2))
        sums = define("sums", r, top[r] + nestor.log(nestor.sum(nestor.exp(x[r, c2] - top[r]), over=c2)))
        return define("out", (r, c), nestor.exp(x[r, c] - sums[r]), type=bf16)
    yield named("softmax_rows_log_sum", logs)


@family("softmax_columns", ROWS)
def _():
    r2 = indices(r2=rows)[0]

    def plain(x: bf16[rows, width]):
        top = define("top", c, nestor.max(x[r2, c], over=r2))
        total = define("total", c, nestor.sum(nestor.exp(x[r2, c] - top[c]), over=r2))
        return define("out", (r, c), nestor.exp(x[r, c] - top[c]) / total[c], type=bf16)
    yield named("softmax_columns", plain)

    def turned(x: bf16[rows, width]):
        other = define("other", (c, r), x[r, c], type=bf16)
        top = define("top", c, nestor.max(other[c, r2], over=r2))
        power = define("power", (c, r), nestor.exp(other[c, r] - top[c]))
        total = define("total", c, nestor.sum(power[c, r2], over=r2))
        chance = define("chance", (c, r), power[c, r] / total[c], type=bf16)
        return define("out", (r, c), chance[c, r], type=bf16)
    yield named("softmax_columns_turned", turned)


@family("column_statistics", {"blocks": 3, "width": 9})
def _():
    blocks = Size("blocks", 256)
    n, n2, bl, w = indices(n=64 * blocks, n2=64 * blocks, bl=blocks, w=64)

    def plain(x: bf16[64 * blocks, width], weight: f32[width], bias: f32[width]):
        mean = define("mean", c, nestor.mean(x[n2, c], over=n2))
        apart = x[n2, c] - mean[c]
        variance = define("variance", c, nestor.mean(apart * apart, over=n2))
        return define("out", (n, c), (x[n, c] - mean[c]) * nestor.rsqrt(variance[c] + EPS) * weight[c] + bias[c], type=bf16)
    yield named("column_statistics", plain)

    def squares(x: bf16[64 * blocks, width], weight: f32[width], bias: f32[width]):
        first = define("first", c, nestor.sum(x[n2, c], over=n2))
        second = define("second", c, nestor.sum(x[n2, c] * x[n2, c], over=n2))
        mean = define("mean", c, first[c] / (64 * blocks))
        scale = define("scale", c, weight[c] * nestor.rsqrt(second[c] / (64 * blocks) - mean[c] * mean[c] + EPS))
        return define("out", (n, c), (x[n, c] - mean[c]) * scale[c] + bias[c], type=bf16)
    yield named("column_statistics_squares", squares)

    def in_blocks(x: bf16[64 * blocks, width], weight: f32[width], bias: f32[width]):
        first = define("first", (bl, c), nestor.sum(x[64 * bl + w, c], over=w))
        second = define("second", (bl, c), nestor.sum(x[64 * bl + w, c] * x[64 * bl + w, c], over=w))
        mean = define("mean", c, nestor.sum(first[bl, c], over=bl) / (64 * blocks))
        square = define("square", c, nestor.sum(second[bl, c], over=bl) / (64 * blocks))
        scale = define("scale", c, weight[c] * nestor.rsqrt(square[c] - mean[c] * mean[c] + EPS))
        return define("out", (n, c), (x[n, c] - mean[c]) * scale[c] + bias[c], type=bf16)
    yield named("column_statistics_blocks", in_blocks)


@more("cross_entropy")
def _():
    tokens, vocabulary = Size("tokens", 8192), Size("vocabulary", 32000)
    n, v1, v2 = indices(n=tokens, v1=vocabulary, v2=vocabulary)

    def of_chances(logits: bf16[tokens, vocabulary], target: i32[tokens]):
        top = define("top", n, nestor.max(logits[n, v1], over=v1))
        total = define("total", n, nestor.sum(nestor.exp(logits[n, v1] - top[n]), over=v1))
        chance = define("chance", (n, v1), nestor.exp(logits[n, v1] - top[n]) / total[n])
        picked = define("picked", n, nestor.sum(nestor.select(target[n] == v2, chance[n, v2], 0.0), over=v2))
        return define("loss", n, -nestor.log(picked[n]))
    yield named("cross_entropy_of_chances", of_chances)

    def of_logs(logits: bf16[tokens, vocabulary], target: i32[tokens]):
        top = define("top", n, nestor.max(logits[n, v1], over=v1))
        logs = define("logs", n, nestor.log(nestor.sum(nestor.exp(logits[n, v1] - top[n]), over=v1)) + top[n])
        picked = define("picked", (n, v1), (logs[n] - logits[n, v1]) * nestor.select(target[n] == v1, 1.0, 0.0))
        return define("loss", n, nestor.sum(picked[n, v1], over=v1))
    yield named("cross_entropy_times", of_logs)


# --- linear layers ---------------------------------------------------------------------------------------------------------------

@family("blocked_linear", {"many": 5, "parts": 3, "outs": 7})
def _():
    parts = Size("parts", 64)
    kk, kb, kw = indices(kk=64 * parts, kb=parts, kw=64)

    def plain(x: bf16[many, 64 * parts], weight: bf16[outs, 64 * parts], bias: f32[outs]):
        return define("out", (m, o), nestor.sum(x[m, kk] * weight[o, kk], over=kk) + bias[o], type=bf16)
    yield named("blocked_linear", plain)

    def two_dims(x: bf16[many, 64 * parts], weight: bf16[outs, 64 * parts], bias: f32[outs]):
        return define("out", (m, o), nestor.sum(x[m, 64 * kb + kw] * weight[o, 64 * kb + kw], over=(kb, kw)) + bias[o], type=bf16)
    yield named("blocked_linear_two_dims", two_dims)

    def stored(x: bf16[many, 64 * parts], weight: bf16[outs, 64 * parts], bias: f32[outs]):
        part = define("part", (kb, m, o), nestor.sum(x[m, 64 * kb + kw] * weight[o, 64 * kb + kw], over=kw))
        return define("out", (m, o), nestor.sum(part[kb, m, o], over=kb) + bias[o], type=bf16)
    yield named("blocked_linear_stored", stored)

    def nested(x: bf16[many, 64 * parts], weight: bf16[outs, 64 * parts], bias: f32[outs]):
        part = nestor.sum(x[m, 64 * kb + kw] * weight[o, 64 * kb + kw], over=kw)
        return define("out", (m, o), bias[o] + nestor.sum(part, over=kb), type=bf16)
    yield named("blocked_linear_nested", nested)


@family("scaled_blocks", {"many": 5, "parts": 3, "outs": 7}, {"weight": whole_numbers(-127, 128)})
def _():
    parts = Size("parts", 32)
    kk, kb, kw = indices(kk=128 * parts, kb=parts, kw=128)

    def exact(x: bf16[many, 128 * parts], weight: i32[outs, 128 * parts], scale: f32[outs, parts]):
        return define("out", (m, o), nestor.sum(x[m, kk] * (nestor.cast(f32, weight[o, kk]) * scale[o, kk // 128]), over=kk), type=bf16)
    yield named("scaled_blocks", exact)

    def after(x: bf16[many, 128 * parts], weight: i32[outs, 128 * parts], scale: f32[outs, parts]):
        part = define("part", (m, o, kb), nestor.sum(x[m, 128 * kb + kw] * nestor.cast(f32, weight[o, 128 * kb + kw]), over=kw))
        return define("out", (m, o), nestor.sum(part[m, o, kb] * scale[o, kb], over=kb), type=bf16)
    yield named("scaled_blocks_after", after)

    def two_dims(x: bf16[many, 128 * parts], weight: i32[outs, 128 * parts], scale: f32[outs, parts]):
        terms = x[m, 128 * kb + kw] * nestor.cast(f32, weight[o, 128 * kb + kw]) * scale[o, kb]
        return define("out", (m, o), nestor.sum(terms, over=(kb, kw)), type=bf16)
    yield named("scaled_blocks_two_dims", two_dims)


@family("joined_linear", {"many": 5, "left_width": 6, "right_width": 4, "outs": 7})
def _():
    lefts, rights = Size("left_width", 2048), Size("right_width", 2048)
    a, z, k = indices(a=lefts, z=rights, k=lefts + rights)

    def apart(left: bf16[many, lefts], right: bf16[many, rights], weight: bf16[outs, lefts + rights]):
        line = nestor.sum(left[m, a] * weight[o, a], over=a) + nestor.sum(right[m, z] * weight[o, z + lefts], over=z)
        return define("out", (m, o), nestor.maximum(line, 0.0), type=bf16)
    yield named("joined_linear", apart)

    def joined(left: bf16[many, lefts], right: bf16[many, rights], weight: bf16[outs, lefts + rights]):
        both = define("both", (m, k), nestor.select(k < lefts, left[m, k], right[m, k - lefts]), type=bf16)
        return define("out", (m, o), nestor.maximum(nestor.sum(both[m, k] * weight[o, k], over=k), 0.0), type=bf16)
    yield named("joined_linear_whole", joined)

    def stored(left: bf16[many, lefts], right: bf16[many, rights], weight: bf16[outs, lefts + rights]):
        first = define("first", (m, o), nestor.sum(left[m, a] * weight[o, a], over=a))
        line = define("line", (m, o), first[m, o] + nestor.sum(right[m, z] * weight[o, z + lefts], over=z))
        return define("out", (m, o), nestor.select(line[m, o] > 0.0, line[m, o], 0.0), type=bf16)
    yield named("joined_linear_steps", stored)


@family("projections", {"many": 5, "ins": 6, "outs": 7})
def _():
    t = indices(t=3 * outs)[0]

    def three(x: bf16[many, ins], weight: bf16[3 * outs, ins], bias: f32[3 * outs]):
        def part(name, n):
            return define(name, (m, o), nestor.sum(x[m, k1] * weight[o + n * outs, k1], over=k1) + bias[o + n * outs], type=bf16)
        return part("query", 0), part("key", 1), part("value", 2)
    yield named("projections", three)

    def one(x: bf16[many, ins], weight: bf16[3 * outs, ins], bias: f32[3 * outs]):
        line = define("line", (m, t), nestor.sum(x[m, k1] * weight[t, k1], over=k1) + bias[t], type=bf16)
        return tuple(define(name, (m, o), line[m, o + n * outs], type=bf16) for n, name in enumerate(("query", "key", "value")))
    yield named("projections_sliced", one)


def swap_halves(x):
    """Rows of gate and up in turns, from all of the one before all of the other; odd numbers of rows are something else."""
    return x if x.shape[0] % 2 else x.reshape(2, x.shape[0] // 2, -1).swapaxes(0, 1).reshape(x.shape)


@more("joint_swiglu", lay={"joint_swiglu_in_turns": (swap_halves, lambda x: x)})
def _():
    def turns(x: bf16[many, ins], weight: bf16[2 * outs, ins]):
        g = define("g", (m, o), nestor.sum(x[m, k1] * weight[2 * o, k1], over=k1))
        u = define("u", (m, o), nestor.sum(x[m, k1] * weight[2 * o + 1, k1], over=k1))
        return define("out", (m, o), g[m, o] * sigmoid(g[m, o]) * u[m, o], type=bf16)
    yield named("joint_swiglu_in_turns", turns)


@more("linear_gelu")
def _():
    def gelu(line):
        return define("out", (m, o), 0.5 * line * (1 + nestor.tanh(0.7978845608 * (line + 0.044715 * line * line * line))), type=bf16)

    def turned(x: bf16[many, ins], weight: bf16[outs, ins], bias: bf16[outs]):
        line = define("line", (o, m), nestor.sum(weight[o, k1] * x[m, k1], over=k1) + bias[o])
        return gelu(line[o, m])
    yield named("linear_gelu_turned", turned)

    def copied(x: bf16[many, ins], weight: bf16[outs, ins], bias: bf16[outs]):
        other = define("other", (k1, o), weight[o, k1], type=bf16)
        return gelu(nestor.sum(x[m, k1] * other[k1, o], over=k1) + bias[o])
    yield named("linear_gelu_copied", copied)

    def last(x: bf16[many, ins], weight: bf16[outs, ins], bias: bf16[outs]):
        k2 = indices(k2=ins + 1)[0]
        left = define("left", (m, k2), nestor.select(k2 < ins, x[m, k2], 1.0), type=bf16)
        right = define("right", (o, k2), nestor.select(k2 < ins, weight[o, k2], bias[o]), type=bf16)
        return gelu(nestor.sum(left[m, k2] * right[o, k2], over=k2))
    yield named("linear_gelu_ones", last)


@family("two_layers", {"many": 5, "ins": 6, "hidden": 8, "outs": 7})
def _():
    hidden = Size("hidden", 4096)
    q1 = indices(q1=hidden)[0]

    def plain(x: bf16[many, ins], up: bf16[hidden, ins], down: bf16[outs, hidden]):
        line = define("line", (m, q1), nestor.maximum(nestor.sum(x[m, k1] * up[q1, k1], over=k1), 0.0), type=bf16)
        return define("out", (m, o), nestor.sum(line[m, q1] * down[o, q1], over=q1), type=bf16)
    yield named("two_layers", plain)

    def steps(x: bf16[many, ins], up: bf16[hidden, ins], down: bf16[outs, hidden]):
        wide = define("wide", (m, q1), nestor.sum(x[m, k1] * up[q1, k1], over=k1))
        kept = define("kept", (m, q1), nestor.select(wide[m, q1] > 0.0, wide[m, q1], 0.0))
        line = define("line", (m, q1), kept[m, q1], type=bf16)
        return define("out", (m, o), nestor.sum(line[m, q1] * down[o, q1], over=q1), type=bf16)
    yield named("two_layers_steps", steps)

    def turned(x: bf16[many, ins], up: bf16[hidden, ins], down: bf16[outs, hidden]):
        line = define("line", (q1, m), nestor.maximum(nestor.sum(up[q1, k1] * x[m, k1], over=k1), 0.0), type=bf16)
        total = define("total", (o, m), nestor.sum(down[o, q1] * line[q1, m], over=q1))
        return define("out", (m, o), total[o, m], type=bf16)
    yield named("two_layers_turned", turned)


@family("matrix_vector", {"outs": 7, "ins": 6})
def _():
    out_of, into = Size("outs", 16384), Size("ins", 8192)
    a, k = indices(a=out_of, k=into)

    def plain(matrix: bf16[out_of, into], x: bf16[into]):
        return define("out", a, nestor.sum(matrix[a, k] * x[k], over=k))
    yield named("matrix_vector", plain)

    def terms(matrix: bf16[out_of, into], x: bf16[into]):
        term = define("term", (a, k), matrix[a, k] * x[k])
        return define("out", a, nestor.sum(term[a, k], over=k))
    yield named("matrix_vector_terms", terms)

    def columns(matrix: bf16[out_of, into], x: bf16[into]):
        out = define("out", a, 0.0)
        return out.write((k, a), a, matrix[a, k] * x[k], reduction="add")
    yield named("matrix_vector_columns", columns)


@family("quadratic_form", {"many": 5, "ins": 6, "outs": 7})
def _():
    short, other = Size("ins", 512), Size("outs", 512)
    a, z = indices(a=short, z=other)

    def steps(x: bf16[many, short], form: bf16[short, other], y: bf16[many, other]):
        left = define("left", (m, z), nestor.sum(x[m, a] * form[a, z], over=a))
        return define("out", m, nestor.sum(left[m, z] * y[m, z], over=z))
    yield named("quadratic_form", steps)

    def one(x: bf16[many, short], form: bf16[short, other], y: bf16[many, other]):
        return define("out", m, nestor.sum(x[m, a] * form[a, z] * y[m, z], over=(a, z)))
    yield named("quadratic_form_one_sum", one)

    def right_first(x: bf16[many, short], form: bf16[short, other], y: bf16[many, other]):
        right = define("right", (m, a), nestor.sum(form[a, z] * y[m, z], over=z))
        return define("out", m, nestor.sum(x[m, a] * right[m, a], over=a))
    yield named("quadratic_form_right_first", right_first)


# --- images ------------------------------------------------------------------------------------------------------------------------

images, side, channels, filters = Size("images", 32), Size("side", 56), Size("channels", 128), Size("filters", 128)
im, y, x_, f, ch, p, q1 = indices(im=images, y=side, x=side, f=filters, ch=channels, p=3, q1=3)


@more("conv3x3")
def _():
    inside = (y + p >= 1) & (y + p <= side) & (x_ + q1 >= 1) & (x_ + q1 <= side)

    def clamped(image: f16[images, side, side, channels], weight: f16[filters, 3, 3, channels]):
        value = nestor.select(inside, image[im, y + p - 1, x_ + q1 - 1, ch], image[im, y, x_, ch]) * nestor.select(inside, 1.0, 0.0)
        return define("out", (im, y, x_, f), nestor.sum(value * weight[f, p, q1, ch], over=(p, q1, ch)), type=f16)
    yield named("conv3x3_clamped", clamped)

    def lines(image: f16[images, side, side, channels], weight: f16[filters, 3, 3, channels]):
        total = 0
        for a in range(3):
            within = (y + a >= 1) & (y + a <= side) & (x_ + q1 >= 1) & (x_ + q1 <= side)
            total = total + nestor.sum(image[im, y + a - 1, x_ + q1 - 1, ch] * weight[f, a, q1, ch], over=(q1, ch), where=within)
        return define("out", (im, y, x_, f), total, type=f16)
    yield named("conv3x3_three_lines", lines)

    def channel_last(image: f16[images, side, side, channels], weight: f16[filters, 3, 3, channels]):
        turned = define("turned", (p, q1, ch, f), weight[f, p, q1, ch], type=f16)
        taps = nestor.sum(image[im, y + p - 1, x_ + q1 - 1, ch] * turned[p, q1, ch, f], over=(ch, p, q1), where=inside)
        return define("out", (im, y, x_, f), taps, type=f16)
    yield named("conv3x3_turned_weights", channel_last)


@more("depthwise3x3")
def _():
    def lines(image: f16[images, channels, side, side], weight: f16[channels, 3, 3]):
        total = 0
        for a in range(3):
            within = (y + a >= 1) & (y + a <= side) & (x_ + q1 >= 1) & (x_ + q1 <= side)
            total = total + nestor.sum(image[im, ch, y + a - 1, x_ + q1 - 1] * weight[ch, a, q1], over=q1, where=within)
        return define("out", (im, ch, y, x_), total, type=f16)
    yield named("depthwise3x3_three_lines", lines)

    def shifts(image: f16[images, channels, side, side], weight: f16[channels, 3, 3]):
        y1, x1 = indices(y1=side + 2, x1=side + 2)
        within = (y1 >= 1) & (y1 <= side) & (x1 >= 1) & (x1 <= side)
        pad = define("pad", (im, ch, y1, x1), nestor.select(within, image[im, ch, y1 - 1, x1 - 1], 0.0))
        total = 0
        for a in range(3):
            for z in range(3):
                total = total + pad[im, ch, y + a, x_ + z] * weight[ch, a, z]
        return define("out", (im, ch, y, x_), total, type=f16)
    yield named("depthwise3x3_padded_terms", shifts)


@family("edge_maximum", {"images": 2, "side": 5, "channels": 4})
def _():
    inside = (y + p >= 1) & (y + p <= side) & (x_ + q1 >= 1) & (x_ + q1 <= side)

    def domain(image: f16[images, side, side, channels]):
        return define("out", (im, y, x_, ch), nestor.max(image[im, y + p - 1, x_ + q1 - 1, ch], over=(p, q1), where=inside), type=f16)
    yield named("edge_maximum", domain)

    def chosen(image: f16[images, side, side, channels]):
        value = nestor.select(inside, image[im, y + p - 1, x_ + q1 - 1, ch], -float("inf"))
        return define("out", (im, y, x_, ch), nestor.max(value, over=(p, q1)), type=f16)
    yield named("edge_maximum_select", chosen)

    def clamped(image: f16[images, side, side, channels]):
        value = nestor.select(inside, image[im, y + p - 1, x_ + q1 - 1, ch], image[im, y, x_, ch])
        return define("out", (im, y, x_, ch), nestor.max(value, over=(p, q1)), type=f16)
    yield named("edge_maximum_clamped", clamped)

    def separate(image: f16[images, side, side, channels]):
        row = define("row", (im, y, x_, ch), nestor.max(image[im, y + p - 1, x_, ch], over=p, where=(y + p >= 1) & (y + p <= side)))
        return define("out", (im, y, x_, ch), nestor.max(row[im, y, x_ + q1 - 1, ch], over=q1, where=(x_ + q1 >= 1) & (x_ + q1 <= side)), type=f16)
    yield named("edge_maximum_separate", separate)

    def padded(image: f16[images, side, side, channels]):
        y1, x1 = indices(y1=side + 2, x1=side + 2)
        within = (y1 >= 1) & (y1 <= side) & (x1 >= 1) & (x1 <= side)
        pad = define("pad", (im, y1, x1, ch), nestor.select(within, image[im, y1 - 1, x1 - 1, ch], -65504.0), type=f16)
        return define("out", (im, y, x_, ch), nestor.max(pad[im, y + p, x_ + q1, ch], over=(p, q1)), type=f16)
    yield named("edge_maximum_padded", padded)


@more("batchnorm_maps")
def _():
    im2, y2, x2 = indices(im2=images, y2=side, x2=side)

    def stages(image: f16[images, channels, side, side], weight: f32[channels], bias: f32[channels]):
        first = define("first", (im, ch), nestor.mean(image[im, ch, y2, x2], over=(y2, x2)))
        second = define("second", (im, ch), nestor.mean(image[im, ch, y2, x2] * image[im, ch, y2, x2], over=(y2, x2)))
        mean = define("mean", ch, nestor.mean(first[im2, ch], over=im2))
        square = define("square", ch, nestor.mean(second[im2, ch], over=im2))
        scale = define("scale", ch, weight[ch] * nestor.rsqrt(square[ch] - mean[ch] * mean[ch] + EPS))
        return define("out", (im, ch, y, x_), (image[im, ch, y, x_] - mean[ch]) * scale[ch] + bias[ch], type=f16)
    yield named("batchnorm_maps_stages", stages)


# --- sequences -----------------------------------------------------------------------------------------------------------------------

@more("causal_filter")
def _():
    time, lanes = Size("time", 4096), Size("lanes", 2048)
    t, la, s = indices(t=time, la=lanes, s=4)

    def out(line):
        return define("out", (b, t, la), line * sigmoid(line), type=bf16)

    def ahead(x: bf16[batch, time, lanes], weight: f32[lanes, 4], bias: f32[lanes]):
        taps = nestor.sum(x[b, t + s - 3, la] * weight[la, 3 - s], over=s, where=t + s >= 3)
        return out(define("line", (b, t, la), taps + bias[la])[b, t, la])
    yield named("causal_filter_ahead", ahead)

    def clamped(x: bf16[batch, time, lanes], weight: f32[lanes, 4], bias: f32[lanes]):
        value = nestor.select(t >= s, x[b, t - s, la], x[b, t, la]) * nestor.select(t >= s, 1.0, 0.0)
        return out(nestor.sum(value * weight[la, s], over=s) + bias[la])
    yield named("causal_filter_clamped", clamped)

    def chained(x: bf16[batch, time, lanes], weight: f32[lanes, 4], bias: f32[lanes]):
        line = define("line0", (b, t, la), bias[la] + x[b, t, la] * weight[la, 0])
        for n in range(1, 4):
            line = define(f"line{n}", (b, t, la), nestor.select(t >= n, line[b, t, la] + x[b, t - n, la] * weight[la, n], line[b, t, la]))
        return out(line[b, t, la])
    yield named("causal_filter_chained", chained)

    def lanes_first(x: bf16[batch, time, lanes], weight: f32[lanes, 4], bias: f32[lanes]):
        turned = define("turned", (b, la, t), x[b, t, la], type=bf16)
        line = define("line", (b, la, t), nestor.sum(turned[b, la, t - s] * weight[la, s], over=s, where=s <= t) + bias[la])
        return define("out", (b, t, la), line[b, la, t] * sigmoid(line[b, la, t]), type=bf16)
    yield named("causal_filter_lanes_first", lanes_first)


@family("suffix_sums", {"lines": 5, "columns": 9})
def _():
    lines, columns = Size("lines", 4096), Size("columns", 4096)
    ln, cl, cl2 = indices(ln=lines, cl=columns, cl2=columns)

    def domain(x: f32[lines, columns]):
        return define("out", (ln, cl), nestor.sum(x[ln, cl2], over=cl2, where=cl2 >= cl))
    yield named("suffix_sums", domain)

    def less(x: f32[lines, columns]):
        total = define("total", ln, nestor.sum(x[ln, cl2], over=cl2))
        before = define("before", (ln, cl), nestor.sum(x[ln, cl2], over=cl2, where=cl2 < cl))
        return define("out", (ln, cl), total[ln] - before[ln, cl])
    yield named("suffix_sums_of_total", less)

    def distances(x: f32[lines, columns]):
        return define("out", (ln, cl), nestor.sum(x[ln, cl + cl2], over=cl2, where=cl + cl2 < columns))
    yield named("suffix_sums_distances", distances)


@more("prefix_sums")
def _():
    lines, columns = Size("lines", 4096), Size("columns", 4096)
    ln, cl, cl2 = indices(ln=lines, cl=columns, cl2=columns)

    def distances(x: f32[lines, columns]):
        return define("out", (ln, cl), nestor.sum(x[ln, cl - cl2], over=cl2, where=cl2 <= cl))
    yield named("prefix_sums_distances", distances)


# --- others --------------------------------------------------------------------------------------------------------------------------

@family("radial_kernel", {"points": 5, "centres": 4, "deep": 6})
def _():
    points, centres, deep = Size("points", 16384), Size("centres", 1024), Size("deep", 128, fixed=True)
    pt, ce, de = indices(pt=points, ce=centres, de=deep)

    def expanded(x: bf16[points, deep], centre: bf16[centres, deep]):
        left = define("left", pt, nestor.sum(x[pt, de] * x[pt, de], over=de))
        right = define("right", ce, nestor.sum(centre[ce, de] * centre[ce, de], over=de))
        apart = left[pt] + right[ce] - 2 * nestor.sum(x[pt, de] * centre[ce, de], over=de)
        return define("out", (pt, ce), nestor.exp(-0.01 * apart))
    yield named("radial_kernel", expanded)

    def direct(x: bf16[points, deep], centre: bf16[centres, deep]):
        apart = x[pt, de] - centre[ce, de]
        return define("out", (pt, ce), nestor.exp(nestor.sum(apart * apart, over=de) * -0.01))
    yield named("radial_kernel_direct", direct)

    def steps(x: bf16[points, deep], centre: bf16[centres, deep]):
        product = define("product", (pt, ce), nestor.sum(x[pt, de] * centre[ce, de], over=de))
        left = define("left", pt, nestor.exp(nestor.sum(x[pt, de] * x[pt, de], over=de) * -0.01))
        right = define("right", ce, nestor.exp(nestor.sum(centre[ce, de] * centre[ce, de], over=de) * -0.01))
        return define("out", (pt, ce), left[pt] * right[ce] * nestor.exp(0.02 * product[pt, ce]))
    yield named("radial_kernel_factors", steps)


@family("squared_loss", ROWS)
def _():
    def plain(x: bf16[rows, width], y1: bf16[rows, width]):
        apart = x[r, c] - y1[r, c]
        return define("loss", r, nestor.mean(apart * apart, over=c))
    yield named("squared_loss", plain)

    def moments(x: bf16[rows, width], y1: bf16[rows, width]):
        xx = define("xx", r, nestor.sum(x[r, c] * x[r, c], over=c))
        xy = define("xy", r, nestor.sum(x[r, c] * y1[r, c], over=c))
        yy = define("yy", r, nestor.sum(y1[r, c] * y1[r, c], over=c))
        return define("loss", r, (xx[r] - 2 * xy[r] + yy[r]) / width)
    yield named("squared_loss_moments", moments)

    def stored(x: bf16[rows, width], y1: bf16[rows, width]):
        apart = define("apart", (r, c), x[r, c] - y1[r, c])
        square = define("square", (r, c), apart[r, c] * apart[r, c] / width)
        return define("loss", r, nestor.sum(square[r, c], over=c))
    yield named("squared_loss_stored", stored)


@family("attention_pool", {"batch": 2, "length": 7, "wide": 8})
def _():
    wide, places = Size("wide", 1024), Size("length", 4096)
    lots = Size("batch", 64)
    n, t, w, w2 = indices(n=lots, t=places, w=wide, w2=wide)

    def plain(x: bf16[lots, places, wide], query: bf16[wide]):
        score = define("score", (n, t), nestor.sum(x[n, t, w2] * query[w2], over=w2))
        top = define("top", n, nestor.max(score[n, t], over=t))
        power = define("power", (n, t), nestor.exp(score[n, t] - top[n]))
        total = define("total", n, nestor.sum(power[n, t], over=t))
        return define("out", (n, w), nestor.sum(power[n, t] * x[n, t, w], over=t) / total[n], type=bf16)
    yield named("attention_pool", plain)

    def chances(x: bf16[lots, places, wide], query: bf16[wide]):
        score = define("score", (n, t), nestor.sum(x[n, t, w2] * query[w2], over=w2))
        top = define("top", n, nestor.max(score[n, t], over=t))
        total = define("total", n, nestor.sum(nestor.exp(score[n, t] - top[n]), over=t))
        chance = define("chance", (n, t), nestor.exp(score[n, t] - top[n]) / total[n])
        return define("out", (n, w), nestor.sum(chance[n, t] * x[n, t, w], over=t), type=bf16)
    yield named("attention_pool_chances", chances)

    def weighed(x: bf16[lots, places, wide], query: bf16[wide]):
        score = define("score", (n, t), nestor.sum(x[n, t, w2] * query[w2], over=w2))
        top = define("top", n, nestor.max(score[n, t], over=t))
        power = define("power", (n, t), nestor.exp(score[n, t] - top[n]))
        total = define("total", n, nestor.sum(power[n, t], over=t))
        part = define("part", (n, t, w), power[n, t] / total[n] * x[n, t, w])
        return define("out", (n, w), nestor.sum(part[n, t, w], over=t), type=bf16)
    yield named("attention_pool_weighed", weighed)


__all__ = ["FAMILIES"]
