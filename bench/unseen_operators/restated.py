"""More of the same operators, written otherwise: families as in rewritten.py, of gates, pools, rotations, steps of optimisers, losses and masks."""

import nestor
from nestor import Size, bf16, boolean, define, f16, f32, i32, indices

from .rewritten import EPS, FAMILIES, LINEAR, ROWS, b, batch, c, c2, d, dim, e, family, h, heads, i, ins, j, k1, length, m, many, named
from .rewritten import o, outs, positive, r, rows, sigmoid, whole_numbers, width

BOTH = {"batch": 2, "heads": 3, "length": 7, "head_dim": 8}


# --- masks from data ---------------------------------------------------------------------------------------------------------

def first_seen(normal, _):
    """Masks in which each row sees its first place."""
    seen = normal > 0
    seen[..., 0] = True
    return seen


@family("padded_attention", BOTH, {"mask": first_seen})
def _():
    scale = 128**-0.5

    def padded(name, body):
        def definition(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                       mask: boolean[batch, length]):
            raw = nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e) * scale
            return body(raw, v[b, h, j, d], mask[b, j])
        return named(name, definition)

    def softmax(score, value, power=None, kept=None):
        top = define("top", (b, h, i), nestor.max(score[b, h, i, j], over=j))
        weight = nestor.exp(score[b, h, i, j] - top[b, h, i])
        weight = define("weight", (b, h, i, j), weight if kept is None else kept(weight))
        total = define("total", (b, h, i), nestor.sum(weight[b, h, i, j], over=j))
        return define("out", (b, h, i, d), nestor.sum(weight[b, h, i, j] * value, over=j) / total[b, h, i], type=bf16)

    yield padded("padded_attention", lambda raw, value, seen: softmax(
        define("score", (b, h, i, j), nestor.select(seen, raw, -float("inf"))), value))
    yield padded("padded_attention_constant", lambda raw, value, seen: softmax(
        define("score", (b, h, i, j), nestor.select(seen, raw, -1e9)), value))
    yield padded("padded_attention_added", lambda raw, value, seen: softmax(
        define("score", (b, h, i, j), raw + (1 - nestor.cast(f32, seen)) * -1e9), value))
    yield padded("padded_attention_times", lambda raw, value, seen: softmax(
        define("score", (b, h, i, j), raw), value, kept=lambda weight: weight * nestor.cast(f32, seen)))

    def bias(raw, value, seen):
        bj = define("bias", (b, j), nestor.select(seen, 0.0, -1e9))
        return softmax(define("score", (b, h, i, j), raw + bj[b, j]), value)
    yield padded("padded_attention_bias", bias)


@family("tril_attention", BOTH)
def _():
    scale = 128**-0.5

    def causal(name, masked):
        def definition(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
            raw = define("raw", (b, h, i, j), nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e) * scale)
            score = define("score", (b, h, i, j), masked(raw[b, h, i, j]))
            top = define("top", (b, h, i), nestor.max(score[b, h, i, j], over=j))
            weight = define("weight", (b, h, i, j), nestor.exp(score[b, h, i, j] - top[b, h, i]))
            total = define("total", (b, h, i), nestor.sum(weight[b, h, i, j], over=j))
            chance = define("chance", (b, h, i, j), weight[b, h, i, j] / total[b, h, i], type=bf16)
            return define("out", (b, h, i, d), nestor.sum(chance[b, h, i, j] * v[b, h, j, d], over=j), type=bf16)
        return named(name, definition)

    yield causal("tril_attention", lambda raw: nestor.select(j <= i, raw, -3.4028234663852886e38))

    def tril(raw):
        lower = define("lower", (i, j), nestor.select(j <= i, 1.0, 0.0))
        return nestor.select(lower[i, j] == 0.0, -1e9, raw)
    yield causal("tril_attention_ones", tril)

    def seen(raw):
        lower = define("lower", (i, j), nestor.select(j <= i, 1.0, 0.0), type=boolean)
        return nestor.select(lower[i, j], raw, -1e4)
    yield causal("tril_attention_boolean", seen)

    def distance(raw):
        apart = define("apart", (i, j), i - j, type=i32)
        return nestor.select(apart[i, j] < 0, -65504.0, raw)
    yield causal("tril_attention_distance", distance)

    def scaled(raw):
        masked = define("masked", (b, h, i, j), nestor.select(j > i, -1e9, raw * 128**0.5))
        return masked[b, h, i, j] * scale
    yield causal("tril_attention_scaled_after", scaled)

    def halves(raw):
        lower = define("lower", (i, j), nestor.select(j <= i, 1.0, 0.0))
        return raw * lower[i, j] - 1e9 * (1 - lower[i, j])
    yield causal("tril_attention_mixed", halves)


@family("cached_decoding", {"lots": 2, "heads": 3, "cache": 9, "head_dim": 8}, {"known": whole_numbers(1, "cache")})
def _():
    lots, cache = Size("lots", 64), Size("cache", 4096)
    n, t = indices(n=lots, t=cache)
    scale = 128**-0.5

    def decoding(name, body):
        def definition(q: bf16[lots, heads, dim], k: bf16[lots, heads, cache, dim], v: bf16[lots, heads, cache, dim], known: i32[lots]):
            return body(nestor.sum(q[n, h, e] * k[n, h, t, e], over=e) * scale, v[n, h, t, d], t < known[n])
        return named(name, definition)

    def softmax(score, value, kept=lambda weight: weight, chances=False):
        top = define("top", (n, h), nestor.max(score[n, h, t], over=t))
        weight = define("weight", (n, h, t), kept(nestor.exp(score[n, h, t] - top[n, h])))
        total = define("total", (n, h), nestor.sum(weight[n, h, t], over=t))
        if chances:
            chance = define("chance", (n, h, t), weight[n, h, t] / total[n, h])
            return define("out", (n, h, d), nestor.sum(chance[n, h, t] * value, over=t), type=bf16)
        return define("out", (n, h, d), nestor.sum(weight[n, h, t] * value, over=t) / total[n, h], type=bf16)

    yield decoding("cached_decoding", lambda raw, value, seen: softmax(define("score", (n, h, t), nestor.select(seen, raw, -float("inf"))), value))
    yield decoding("cached_decoding_constant", lambda raw, value, seen: softmax(
        define("score", (n, h, t), nestor.select(seen, raw, -1e9)), value, chances=True))

    def steps(raw, value, seen):
        dot = define("dot", (n, h, t), raw)
        mask = define("mask", (n, t), nestor.select(seen, 1.0, 0.0))
        score = define("score", (n, h, t), nestor.select(mask[n, t] > 0.5, dot[n, h, t], -1e9))
        return softmax(score, value, kept=lambda weight: weight * mask[n, t])
    yield decoding("cached_decoding_steps", steps)


# --- gates, pools, windows -----------------------------------------------------------------------------------------------------

@family("mixture", {"many": 5, "ins": 6, "outs": 7}, {"choice": whole_numbers(0, 4)})
def _():
    x4 = indices(x4=4)[0]

    def mixture(name, body):
        def definition(x: bf16[many, ins], weight: bf16[4, outs, ins], choice: i32[many], gate: f32[many]):
            return body(x, weight, choice, gate)
        return named(name, definition)

    def dense(x, weight, choice, gate):
        share = define("share", (m, x4), nestor.select(choice[m] == x4, gate[m], 0.0))
        each = define("each", (m, x4, o), nestor.sum(x[m, k1] * weight[x4, o, k1], over=k1))
        return define("out", (m, o), nestor.sum(share[m, x4] * each[m, x4, o], over=x4), type=bf16)
    yield mixture("mixture", dense)

    def chosen(x, weight, choice, gate):
        each = define("each", (m, x4, o), nestor.sum(x[m, k1] * weight[x4, o, k1], over=k1))
        return define("out", (m, o), gate[m] * nestor.sum(nestor.select(choice[m] == x4, each[m, x4, o], 0.0), over=x4), type=bf16)
    yield mixture("mixture_chosen", chosen)

    def inside(x, weight, choice, gate):
        share = define("share", (m, x4), nestor.select(choice[m] == x4, gate[m], 0.0))
        return define("out", (m, o), nestor.sum(share[m, x4] * x[m, k1] * weight[x4, o, k1], over=(x4, k1)), type=bf16)
    yield mixture("mixture_one_sum", inside)

    def terms(x, weight, choice, gate):
        def expert(at):
            return nestor.select(choice[m] == at, gate[m], 0.0) * nestor.sum(x[m, k1] * weight[at, o, k1], over=k1)
        return define("out", (m, o), expert(0) + expert(1) + expert(2) + expert(3), type=bf16)
    yield mixture("mixture_terms", terms)


@family("bag_of_rows", {"bags": 5, "words": 6, "entries": 11, "wide": 4}, {"word": whole_numbers(0, "entries")})
def _():
    bags, words, entries, wide = Size("bags", 4096), Size("words", 16), Size("entries", 1024), Size("wide", 256)
    g, w, v, t = indices(g=bags, w=words, v=entries, t=wide)

    def counted(word: i32[bags, words], table: bf16[entries, wide]):
        count = define("count", (g, v), nestor.sum(nestor.select(word[g, w] == v, 1.0, 0.0), over=w))
        return define("out", (g, t), nestor.sum(count[g, v] * table[v, t], over=v), type=bf16)
    yield named("bag_of_rows", counted)

    def looked_up(word: i32[bags, words], table: bf16[entries, wide]):
        row = define("row", (g, w, t), nestor.sum(nestor.select(word[g, w] == v, nestor.cast(f32, table[v, t]), 0.0), over=v))
        return define("out", (g, t), nestor.sum(row[g, w, t], over=w), type=bf16)
    yield named("bag_of_rows_looked_up", looked_up)

    def one_sum(word: i32[bags, words], table: bf16[entries, wide]):
        return define("out", (g, t), nestor.sum(nestor.select(word[g, w] == v, nestor.cast(f32, table[v, t]), 0.0), over=(w, v)), type=bf16)
    yield named("bag_of_rows_one_sum", one_sum)


@family("cluster_means", {"points": 9, "centres": 3, "deep": 4}, {"owner": whole_numbers(0, "centres")})
def _():
    points, centres, deep = Size("points", 65536), Size("centres", 256), Size("deep", 128, fixed=True)
    p, n, t = indices(p=points, n=centres, t=deep)

    def chosen(x: bf16[points, deep], owner: i32[points]):
        total = define("total", (n, t), nestor.sum(nestor.select(owner[p] == n, nestor.cast(f32, x[p, t]), 0.0), over=p))
        count = define("count", n, nestor.sum(nestor.select(owner[p] == n, 1.0, 0.0), over=p))
        return define("out", (n, t), total[n, t] / nestor.maximum(count[n], 1.0))
    yield named("cluster_means", chosen)

    def one_hot(x: bf16[points, deep], owner: i32[points]):
        hot = define("hot", (p, n), nestor.select(owner[p] == n, 1.0, 0.0))
        count = define("count", n, nestor.sum(hot[p, n], over=p))
        return define("out", (n, t), nestor.sum(hot[p, n] * x[p, t], over=p) / nestor.maximum(count[n], 1.0))
    yield named("cluster_means_one_hot", one_hot)

    def shares(x: bf16[points, deep], owner: i32[points]):
        hot = define("hot", (p, n), nestor.cast(f32, owner[p] == n))
        count = define("count", n, nestor.maximum(nestor.sum(hot[p, n], over=p), 1.0))
        share = define("share", (p, n), hot[p, n] / count[n])
        return define("out", (n, t), nestor.sum(share[p, n] * x[p, t], over=p))
    yield named("cluster_means_shares", shares)


@family("average_pool", {"images": 2, "channels": 3, "side": 4})
def _():
    images, channels, side = Size("images", 64), Size("channels", 64), Size("side", 56)
    im, ch, y, x_, s, t = indices(im=images, ch=channels, y=side, x_=side, s=2, t=2)

    def sums(x: f16[images, channels, 2 * side, 2 * side]):
        return define("out", (im, ch, y, x_), nestor.sum(x[im, ch, 2 * y + s, 2 * x_ + t], over=(s, t)) / 4, type=f16)
    yield named("average_pool", sums)

    def four(x: f16[images, channels, 2 * side, 2 * side]):
        at = lambda p, q: x[im, ch, 2 * y + p, 2 * x_ + q]
        return define("out", (im, ch, y, x_), 0.25 * (at(0, 0) + at(0, 1) + at(1, 0) + at(1, 1)), type=f16)
    yield named("average_pool_four_terms", four)

    def apart(x: f16[images, channels, 2 * side, 2 * side]):
        y2 = indices(y2=2 * side)[0]
        across = define("across", (im, ch, y2, x_), 0.5 * (x[im, ch, y2, 2 * x_] + x[im, ch, y2, 2 * x_ + 1]))
        return define("out", (im, ch, y, x_), 0.5 * (across[im, ch, 2 * y, x_] + across[im, ch, 2 * y + 1, x_]), type=f16)
    yield named("average_pool_separate", apart)


@family("causal_filter", {"batch": 2, "time": 9, "lanes": 5})
def _():
    time, lanes = Size("time", 4096), Size("lanes", 2048)
    t, la, s = indices(t=time, la=lanes, s=4)

    def filtered(name, body):
        def definition(x: bf16[batch, time, lanes], weight: f32[lanes, 4], bias: f32[lanes]):
            line = body(x, weight) + bias[la]
            return define("out", (b, t, la), line * sigmoid(line), type=bf16)
        return named(name, definition)

    yield filtered("causal_filter", lambda x, weight: nestor.sum(x[b, t - s, la] * weight[la, s], over=s, where=s <= t))
    yield filtered("causal_filter_select", lambda x, weight: nestor.sum(nestor.select(s <= t, x[b, t - s, la] * weight[la, s], 0.0), over=s))

    def padded(x, weight):
        tp = indices(tp=time + 3)[0]
        room = define("room", (b, tp, la), nestor.select(tp >= 3, nestor.cast(f32, x[b, tp - 3, la]), 0.0))
        return nestor.sum(room[b, t + 3 - s, la] * weight[la, s], over=s)
    yield filtered("causal_filter_padded", padded)

    def terms(x, weight):
        def shifted(back):
            return nestor.select(t >= back, x[b, t - back, la] * weight[la, back], 0.0)
        return shifted(0) + shifted(1) + shifted(2) + shifted(3)
    yield filtered("causal_filter_terms", terms)


# --- rotations -----------------------------------------------------------------------------------------------------------------

def in_pairs(x):
    return x.reshape(*x.shape[:-1], -1, 2)


def joined_pairs(x):
    return x.reshape(*x.shape[:-2], -1)


@family("rotary_pairs", {"batch": 2, "length": 7, "heads": 3, "half": 4}, lay={
    "rotary_pairs_own_dim": (lambda x: in_pairs(x) if x.ndim == 4 else x, joined_pairs)})
def _():
    half = Size("half", 64, fixed=True)
    hf, ax, pr = indices(hf=half, ax=2 * half, pr=2)
    at = (b, i, h)

    def own_index(q: bf16[batch, length, heads, 2 * half], cosine: f32[length, half], sine: f32[length, half]):
        even = define("even", (*at, hf), q[(*at, 2 * hf)] * cosine[i, hf] - q[(*at, 2 * hf + 1)] * sine[i, hf])
        odd = define("odd", (*at, hf), q[(*at, 2 * hf + 1)] * cosine[i, hf] + q[(*at, 2 * hf)] * sine[i, hf])
        return define("out", (*at, ax), nestor.select(ax % 2 == 0, even[(*at, ax // 2)], odd[(*at, ax // 2)]), type=bf16)
    yield named("rotary_pairs", own_index)

    def other(q: bf16[batch, length, heads, 2 * half], cosine: f32[length, half], sine: f32[length, half]):
        turned = nestor.select(ax % 2 == 0, -q[(*at, ax + 1)], q[(*at, ax - 1)])
        return define("out", (*at, ax), q[(*at, ax)] * cosine[i, ax // 2] + turned * sine[i, ax // 2], type=bf16)
    yield named("rotary_pairs_turned", other)

    def own_dim(q: bf16[batch, length, heads, half, 2], cosine: f32[length, half], sine: f32[length, half]):
        first = q[(*at, hf, 0)] * cosine[i, hf] - q[(*at, hf, 1)] * sine[i, hf]
        second = q[(*at, hf, 1)] * cosine[i, hf] + q[(*at, hf, 0)] * sine[i, hf]
        return define("out", (*at, hf, pr), nestor.select(pr == 0, first, second), type=bf16)
    yield named("rotary_pairs_own_dim", own_dim)


# --- layers ----------------------------------------------------------------------------------------------------------------------

@family("normed_linear", LINEAR)
def _():
    k2 = indices(k2=ins)[0]

    def layer(name, body):
        def definition(x: bf16[many, ins], scale: bf16[ins], weight: bf16[outs, ins]):
            inverse = define("inverse", m, nestor.rsqrt(nestor.sum(x[m, k2] * x[m, k2], over=k2) / ins + EPS))
            return define("out", (m, o), body(x, scale, weight, inverse), type=bf16)
        return named(name, definition)

    def normed(x, scale, weight, inverse):
        normal = define("normal", (m, k1), x[m, k1] * inverse[m] * scale[k1], type=bf16)
        return nestor.sum(normal[m, k1] * weight[o, k1], over=k1)
    yield layer("normed_linear", normed)

    def wide(x, scale, weight, inverse):
        normal = define("normal", (m, k1), x[m, k1] * inverse[m] * scale[k1])
        return nestor.sum(normal[m, k1] * weight[o, k1], over=k1)
    yield layer("normed_linear_unrounded", wide)

    def behind(x, scale, weight, inverse):
        return inverse[m] * nestor.sum(x[m, k1] * scale[k1] * weight[o, k1], over=k1)
    yield layer("normed_linear_behind", behind)

    def inside(x, scale, weight, inverse):
        return nestor.sum(x[m, k1] * inverse[m] * scale[k1] * weight[o, k1], over=k1)
    yield layer("normed_linear_inside", inside)

    def folded(x, scale, weight, inverse):
        other = define("other", (o, k1), scale[k1] * weight[o, k1], type=bf16)
        return inverse[m] * nestor.sum(x[m, k1] * other[o, k1], over=k1)
    yield layer("normed_linear_folded", folded)


@family("residual_linear", LINEAR)
def _():
    def layer(name, body):
        def definition(x: bf16[many, ins], weight: bf16[outs, ins], bias: bf16[outs], skip: bf16[many, outs]):
            return define("out", (m, o), body(nestor.sum(x[m, k1] * weight[o, k1], over=k1), bias, skip), type=bf16)
        return named(name, definition)

    yield layer("residual_linear", lambda line, bias, skip: line + bias[o] + skip[m, o])
    yield layer("residual_linear_first", lambda line, bias, skip: skip[m, o] + (bias[o] + line))

    def steps(line, bias, skip):
        product = define("product", (m, o), line)
        biased = define("biased", (m, o), product[m, o] + bias[o])
        return biased[m, o] + skip[m, o]
    yield layer("residual_linear_steps", steps)

    def starts(x: bf16[many, ins], weight: bf16[outs, ins], bias: bf16[outs], skip: bf16[many, outs]):
        total = define("total", (m, o), skip[m, o] + bias[o])
        total.write((m, o, k1), (m, o), x[m, k1] * weight[o, k1], reduction="add")
        return define("out", (m, o), total[m, o], type=bf16)
    yield named("residual_linear_started", starts)


@family("weight_gradient", LINEAR)
def _():
    def plain(x: bf16[many, ins], grad: bf16[many, outs]):
        return define("out", (o, k1), nestor.sum(grad[m, o] * x[m, k1], over=m))
    yield named("weight_gradient", plain)

    def turned(x: bf16[many, ins], grad: bf16[many, outs]):
        left = define("left", (o, m), grad[m, o], type=bf16)
        right = define("right", (k1, m), x[m, k1], type=bf16)
        return define("out", (o, k1), nestor.sum(left[o, m] * right[k1, m], over=m))
    yield named("weight_gradient_turned", turned)

    def updates(x: bf16[many, ins], grad: bf16[many, outs]):
        out = define("out", (o, k1), 0.0)
        return out.write((m, o, k1), (o, k1), grad[m, o] * x[m, k1], reduction="add")
    yield named("weight_gradient_updates", updates)


@family("cosine_similarity", {"many": 5, "outs": 7, "ins": 6})
def _():
    k2, k3 = indices(k2=ins, k3=ins)

    def similar(name, body):
        def definition(x: bf16[many, ins], y: bf16[outs, ins]):
            left = define("left", m, nestor.rsqrt(nestor.sum(x[m, k2] * x[m, k2], over=k2) + 1e-6))
            right = define("right", o, nestor.rsqrt(nestor.sum(y[o, k3] * y[o, k3], over=k3) + 1e-6))
            return define("out", (m, o), body(x, y, left, right), type=bf16)
        return named(name, definition)

    yield similar("cosine_similarity", lambda x, y, left, right: nestor.sum(x[m, k1] * y[o, k1], over=k1) * left[m] * right[o])

    def first(x, y, left, right):
        xn = define("xn", (m, k1), x[m, k1] * left[m], type=bf16)
        yn = define("yn", (o, k1), y[o, k1] * right[o], type=bf16)
        return nestor.sum(xn[m, k1] * yn[o, k1], over=k1)
    yield similar("cosine_similarity_normed", first)

    def unrounded(x, y, left, right):
        xn = define("xn", (m, k1), x[m, k1] * left[m])
        yn = define("yn", (o, k1), y[o, k1] * right[o])
        return nestor.sum(xn[m, k1] * yn[o, k1], over=k1)
    yield similar("cosine_similarity_unrounded", unrounded)

    yield similar("cosine_similarity_inside", lambda x, y, left, right: nestor.sum(x[m, k1] * left[m] * (y[o, k1] * right[o]), over=k1))


@family("dropped_attention", BOTH, {"keep": lambda normal, _: normal > -1})
def _():
    scale = 128**-0.5

    def dropped(name, body):
        def definition(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                       keep: boolean[batch, heads, length, length]):
            score = define("score", (b, h, i, j), nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e) * scale)
            top = define("top", (b, h, i), nestor.max(score[b, h, i, j], over=j))
            power = define("power", (b, h, i, j), nestor.exp(score[b, h, i, j] - top[b, h, i]))
            total = define("total", (b, h, i), nestor.sum(power[b, h, i, j], over=j))
            return define("out", (b, h, i, d), body(power[b, h, i, j], total[b, h, i], keep[b, h, i, j], v[b, h, j, d]), type=bf16)
        return named(name, definition)

    yield dropped("dropped_attention", lambda power, total, keep, value: nestor.sum(nestor.select(keep, power, 0.0) * value, over=j) / total / 0.9)
    yield dropped("dropped_attention_chances", lambda power, total, keep, value: nestor.sum(
        define("kept", (b, h, i, j), nestor.select(keep, power / total / 0.9, 0.0))[b, h, i, j] * value, over=j))
    yield dropped("dropped_attention_times", lambda power, total, keep, value: nestor.sum(
        define("kept", (b, h, i, j), power / total * nestor.cast(f32, keep) * (1 / 0.9))[b, h, i, j] * value, over=j))


# --- rows ------------------------------------------------------------------------------------------------------------------------

@family("entropy_rows", ROWS)
def _():
    def entropy(name, body):
        def definition(x: bf16[rows, width]):
            top = define("top", r, nestor.max(x[r, c2], over=c2))
            return define("out", r, body(x, top))
        return named(name, definition)

    def chances(x, top):
        power = define("power", (r, c), nestor.exp(x[r, c] - top[r]))
        total = define("total", r, nestor.sum(power[r, c], over=c))
        share = define("share", (r, c), power[r, c] / total[r])
        return -nestor.sum(share[r, c] * nestor.log(share[r, c] + 1e-30), over=c)
    yield entropy("entropy_rows", chances)

    def by_logs(x, top):
        total = define("total", r, nestor.log(nestor.sum(nestor.exp(x[r, c] - top[r]), over=c)))
        logs = define("logs", (r, c), x[r, c] - top[r] - total[r])
        return -nestor.sum(nestor.exp(logs[r, c]) * logs[r, c], over=c)
    yield entropy("entropy_rows_logs", by_logs)

    def by_mean(x, top):
        power = define("power", (r, c), nestor.exp(x[r, c] - top[r]))
        total = define("total", r, nestor.sum(power[r, c], over=c))
        mean = define("mean", r, nestor.sum(power[r, c] * (x[r, c] - top[r]), over=c))
        return nestor.log(total[r]) - mean[r] / total[r]
    yield entropy("entropy_rows_mean", by_mean)


@family("divergence_rows", ROWS)
def _():
    def divergence(name, body):
        def definition(x: bf16[rows, width], y: bf16[rows, width]):
            return define("out", r, body(x, y))
        return named(name, definition)

    def lse(name, x):
        top = define(name + "_top", r, nestor.max(x[r, c], over=c))
        return define(name + "_lse", r, top[r] + nestor.log(nestor.sum(nestor.exp(x[r, c] - top[r]), over=c)))

    def logs(x, y):
        left, right = lse("x", x), lse("y", y)
        p = define("p", (r, c), x[r, c] - left[r])
        q = define("q", (r, c), y[r, c] - right[r])
        return nestor.sum(nestor.exp(p[r, c]) * (p[r, c] - q[r, c]), over=c)
    yield divergence("divergence_rows", logs)

    def means(x, y):
        left, right = lse("x", x), lse("y", y)
        apart = define("apart", r, nestor.sum(nestor.exp(x[r, c] - left[r]) * (nestor.cast(f32, x[r, c]) - y[r, c]), over=c))
        return apart[r] - left[r] + right[r]
    yield divergence("divergence_rows_means", means)

    def chances(x, y):
        def share(name, x):
            top = define(name + "_top", r, nestor.max(x[r, c], over=c))
            power = define(name + "_power", (r, c), nestor.exp(x[r, c] - top[r]))
            total = define(name + "_total", r, nestor.sum(power[r, c], over=c))
            return top, total, define(name + "_share", (r, c), power[r, c] / total[r])
        top, total, p = share("x", x)
        top2, total2, _ = share("y", y)
        log_p = x[r, c] - top[r] - nestor.log(total[r])
        log_q = y[r, c] - top2[r] - nestor.log(total2[r])
        return nestor.sum(p[r, c] * (log_p - log_q), over=c)
    yield divergence("divergence_rows_chances", chances)


@family("corrected_adam", ROWS, {"second": positive})
def _():
    def step(name, body):
        def definition(weight: f32[rows, width], grad: bf16[rows, width], first: f32[rows, width], second: f32[rows, width],
                       fade1: f32[()], fade2: f32[()], rate=1e-3):
            first2 = define("first2", (r, c), 0.9 * first[r, c] + 0.1 * grad[r, c])
            second2 = define("second2", (r, c), 0.999 * second[r, c] + 0.001 * grad[r, c] * grad[r, c])
            left, right = nestor.exp(-nestor.exp(fade1[()])), nestor.exp(-nestor.exp(fade2[()]))
            return define("out", (r, c), body(weight[r, c], first2[r, c], second2[r, c], 1 - left, 1 - right, rate)), first2, second2
        return named(name, definition)

    yield step("corrected_adam", lambda w, m1, m2, c1, c2_, rate: w - rate * (m1 / c1) / (nestor.sqrt(m2 / c2_) + 1e-8))
    yield step("corrected_adam_rate", lambda w, m1, m2, c1, c2_, rate: w - rate / c1 * m1 / (nestor.sqrt(m2) / nestor.sqrt(c2_) + 1e-8))
    yield step("corrected_adam_roots", lambda w, m1, m2, c1, c2_, rate:
               w - rate * nestor.sqrt(c2_) / c1 * m1 / (nestor.sqrt(m2) + 1e-8 * nestor.sqrt(c2_)))


@family("mean_loss", ROWS)
def _():
    r2, c3 = indices(r2=rows, c3=width)

    def one(x: bf16[rows, width], y: bf16[rows, width]):
        apart = x[r2, c3] - y[r2, c3]
        return define("out", (), nestor.mean(apart * apart, over=(r2, c3)))
    yield named("mean_loss", one)

    def rowwise(x: bf16[rows, width], y: bf16[rows, width]):
        apart = x[r2, c3] - y[r2, c3]
        row = define("row", r2, nestor.mean(apart * apart, over=c3))
        return define("out", (), nestor.mean(row[r2], over=r2))
    yield named("mean_loss_rows", rowwise)

    def columnwise(x: bf16[rows, width], y: bf16[rows, width]):
        apart = define("apart", (r2, c3), nestor.cast(f32, x[r2, c3]) - y[r2, c3])
        column = define("column", c3, nestor.sum(apart[r2, c3] * apart[r2, c3], over=r2))
        return define("out", (), nestor.sum(column[c3], over=c3) / (nestor.cast(f32, rows) * nestor.cast(f32, width)))
    yield named("mean_loss_columns", columnwise)


@family("bias_gelu", ROWS)
def _():
    def active(name, body):
        def definition(x: bf16[rows, width], bias: bf16[width]):
            return define("out", (r, c), body(x[r, c] + bias[c]), type=bf16)
        return named(name, definition)

    root = 0.7071067811865476
    yield active("bias_gelu", lambda z: 0.5 * z * (1 + nestor.erf(z * root)))
    yield active("bias_gelu_halves", lambda z: z * (0.5 + 0.5 * nestor.erf(z / 1.4142135623730951)))

    def steps(z):
        kept = define("kept", (r, c), z)
        inner = define("inner", (r, c), nestor.erf(kept[r, c] * root))
        return kept[r, c] * (inner[r, c] + 1) / 2
    yield active("bias_gelu_steps", steps)


@family("unit_rows", ROWS)
def _():
    def unit(name, body):
        def definition(x: bf16[rows, width]):
            return define("out", (r, c), body(x), type=bf16)
        return named(name, definition)

    def squares(x):
        return define("squares", r, nestor.sum(x[r, c2] * x[r, c2], over=c2))
    yield unit("unit_rows", lambda x: x[r, c] / nestor.maximum(nestor.sqrt(squares(x)[r]), 1e-6))
    yield unit("unit_rows_inverse", lambda x: x[r, c] * nestor.rsqrt(nestor.maximum(squares(x)[r], 1e-12)))

    def steps(x):
        length_ = define("length_", r, nestor.maximum(nestor.sqrt(squares(x)[r]), 1e-6))
        wide = define("wide", (r, c), nestor.cast(f32, x[r, c]))
        return wide[r, c] / length_[r]
    yield unit("unit_rows_steps", steps)


__all__ = ["FAMILIES"]
