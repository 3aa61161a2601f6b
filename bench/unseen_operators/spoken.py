"""What models that speak, see and act compute besides: scores that repetition lowers, typical words, attention rolled out, codes drawn by noise, weights
rounded column by column, targets of returns, styles, trees without branches, prefixes seen both ways, gates of third degree, gradients of norms."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, around_one, divided, widened

rows, vocabulary, history = Size("rows", 64), Size("vocabulary", 32000), Size("history", 512)
n, v, j = indices(n=rows, v=vocabulary, j=history)


@nestor.nest
def penalised_scores(x: f32[rows, vocabulary], said: i32[rows, history], repeated=1.2, often=0.3, present=0.2):
    """Scores of words that were said before, lowered for it and by how often, and then their chances."""
    count = define("count", (n, v), nestor.sum(nestor.select(said[n, j] == nestor.cast(i32, v), 1.0, 0.0), over=j))
    lowered = nestor.select(x[n, v] > 0, x[n, v] / repeated, x[n, v] * repeated)
    score = define("score", (n, v), nestor.select(count[n, v] > 0, lowered - often * count[n, v] - present, x[n, v]))
    top = define("top", n, nestor.max(score[n, v], over=v))
    power = define("power", (n, v), nestor.exp(score[n, v] - top[n]))
    total = define("total", n, nestor.sum(power[n, v], over=v))
    return define("out", (n, v), power[n, v] / total[n])


def _penalised(x, said, repeated=1.2, often=0.3, present=0.2):
    count = torch.zeros_like(x).scatter_add(1, said.long(), torch.ones_like(said, dtype=x.dtype))
    lowered = torch.where(x > 0, x / repeated, x * repeated) - often * count - present
    return torch.softmax(torch.where(count > 0, lowered, x), 1)


@nestor.nest
def typical_scores(x: bf16[rows, vocabulary]):
    """Locally typical sampling: how far each word's surprise is from what is expected."""
    top = define("top", n, nestor.max(x[n, v], over=v))
    total = define("total", n, nestor.log(nestor.sum(nestor.exp(x[n, v] - top[n]), over=v)))
    chance = define("chance", (n, v), x[n, v] - top[n] - total[n])
    expected = define("expected", n, nestor.sum(nestor.exp(chance[n, v]) * chance[n, v], over=v))
    return define("out", (n, v), nestor.absolute(expected[n] - chance[n, v]))


def _typical(x):
    chance = torch.log_softmax(widened(x), 1)
    return (chance - (chance.exp() * chance).sum(1, keepdim=True)).abs()


layers, batch, heads, places = Size("layers", 12), Size("batch", 4), Size("heads", 12), Size("places", 256, fixed=True)
la, b, h, p, q, r = indices(la=layers, b=batch, h=heads, p=places, q=places, r=places)


@nestor.nest
def attention_rollout(attention: f16[layers, batch, heads, places, places]):
    """Where a model looks at last: heads' mean, half of it the place itself, through all layers."""
    mean = nestor.sum(attention[la, b, h, p, q], over=h) / heads
    mixed = define("mixed", (la, b, p, q), 0.5 * mean + nestor.select(p == q, 0.5, 0.0))
    rolled = define("rolled", (la, b, p, q), mixed[0, b, p, q], where=la == 0)
    (up,) = indices(up=layers - 1)
    rolled.write((up, b, p, q), (up + 1, b, p, q), nestor.sum(mixed[up + 1, b, p, r] * rolled[up, b, r, q], over=r))
    return define("out", (b, p, q), rolled[layers - 1, b, p, q])


def _rollout(attention):
    mixed = 0.5 * widened(attention).mean(2) + 0.5 * torch.eye(attention.shape[-1], device=attention.device)
    rolled = mixed[0]
    for layer in mixed[1:]:
        rolled = layer @ rolled
    return rolled


tokens, codes, dim = Size("tokens", 8192), Size("codes", 1024), Size("dim", 256)
t, c, d = indices(t=tokens, c=codes, d=dim)


@nestor.nest
def gumbel_codes(score: f16[tokens, codes], noise: f32[tokens, codes], code: f16[codes, dim], temperature=0.7):
    """DALL-E's codes: a softmax with Gumbel's noise, drawn from numbers between 0 and 1, and the mean code by it."""
    drawn = define("drawn", (t, c), (score[t, c] - nestor.log(-nestor.log(noise[t, c]))) / temperature)
    top = define("top", t, nestor.max(drawn[t, c], over=c))
    power = define("power", (t, c), nestor.exp(drawn[t, c] - top[t]))
    total = define("total", t, nestor.sum(power[t, c], over=c))
    return define("out", (t, d), nestor.sum(power[t, c] * code[c, d], over=c) / total[t], type=f16)


def _gumbel(score, noise, code, temperature=0.7):
    drawn = (widened(score) - (-noise.log()).log().to(widened(score).dtype)) / temperature
    return torch.softmax(drawn, 1).to(code.dtype) @ code


outputs, block = Size("outputs", 4096), Size("block", 128, fixed=True)
o, i, i2 = indices(o=outputs, i=block, i2=block)


@nestor.nest
def rounded_columns(weight: f32[outputs, block], factor: f32[block, block], scale: f32[outputs]):
    """GPTQ on a block of columns: one is rounded after another, and those that are left make up for its error."""
    left = nestor.Tensor("left", f32, (block + 1, outputs, block))
    left.write((o, i2), (0, o, i2), weight[o, i2])
    level = nestor.minimum(nestor.maximum(nestor.floor(left[i, o, i] / scale[o] + 0.5), -8.0), 7.0) * scale[o]
    with nestor.steps(i):
        rounded = define("rounded", (i, o), level)
        error = define("error", (i, o), (left[i, o, i] - rounded[i, o]) / factor[i, i])
        left.write((i, o, i2), (i + 1, o, i2), nestor.select(i2 > i, left[i, o, i2] - error[i, o] * factor[i, i2], left[i, o, i2]))
    return define("out", (o, i), rounded[i, o])


def _rounded(weight, factor, scale):
    left, found = weight.clone(), []
    for column in range(weight.shape[1]):
        now = torch.floor(left[:, column] / scale + 0.5).clamp(-8, 7) * scale
        error = (left[:, column] - now) / factor[column, column]
        left = torch.cat([left[:, :column + 1], left[:, column + 1:] - error[:, None] * factor[column, column + 1:]], 1)
        found.append(now)
    return torch.stack(found, 1)


runs, steps_ = Size("runs", 4096), Size("steps", 128)
u, s = indices(u=runs, s=steps_)


@nestor.nest
def trace_targets(reward: f32[steps_, runs], discount: f32[steps_, runs], value: f32[steps_ + 1, runs], new: f32[steps_, runs], old: f32[steps_, runs]):
    """IMPALA's V-trace: targets of values and advantages from runs of older policies, by weights that are cut off."""
    ratio = define("ratio", (s, u), nestor.minimum(nestor.exp(new[s, u] - old[s, u]), 1.0))
    gap = define("gap", (s, u), ratio[s, u] * (reward[s, u] + discount[s, u] * value[s + 1, u] - value[s, u]))
    (end,) = indices(end=steps_ + 1)
    more = define("more", (end, u), 0.0, where=end == steps_)
    back = steps_ - 1 - s
    more.write((s, u), (back, u), gap[back, u] + discount[back, u] * ratio[back, u] * more[back + 1, u])
    target = define("target", (end, u), value[end, u] + more[end, u])
    return target, define("advantage", (s, u), ratio[s, u] * (reward[s, u] + discount[s, u] * target[s + 1, u] - value[s, u]))


def _trace(reward, discount, value, new, old):
    ratio = (new - old).exp().clamp(max=1)
    gap = ratio * (reward + discount * value[1:] - value[:-1])
    more = [torch.zeros_like(reward[0])]
    for step in reversed(range(reward.shape[0])):
        more.append(gap[step] + discount[step] * ratio[step] * more[-1])
    target = value + torch.stack(more[::-1])
    return target, ratio * (reward + discount * target[1:] - value[:-1])


pictures, channels, tall, broad = Size("pictures", 16), Size("channels", 256), Size("tall", 64), Size("broad", 64)
g, ch, y, x_ = indices(g=pictures, ch=channels, y=tall, x=broad)


@nestor.nest
def style_transfer(content: f16[pictures, channels, tall, broad], style: f16[pictures, channels, tall, broad]):
    """AdaIN: a picture's channels with another's means and spreads."""
    area = tall * broad
    mean = define("mean", (g, ch), nestor.sum(content[g, ch, y, x_], over=(y, x_)) / area)
    mean2 = define("mean2", (g, ch), nestor.sum(style[g, ch, y, x_], over=(y, x_)) / area)
    gap, gap2 = content[g, ch, y, x_] - mean[g, ch], style[g, ch, y, x_] - mean2[g, ch]
    spread = define("spread", (g, ch), nestor.sum(gap * gap, over=(y, x_)) / area)
    spread2 = define("spread2", (g, ch), nestor.sum(gap2 * gap2, over=(y, x_)) / area)
    scale = nestor.sqrt(spread2[g, ch] + 1e-5) * nestor.rsqrt(spread[g, ch] + 1e-5)
    return define("out", (g, ch, y, x_), (content[g, ch, y, x_] - mean[g, ch]) * scale + mean2[g, ch], type=f16)


def _style(content, style):
    one, other = widened(content), widened(style)
    var, mean = torch.var_mean(one, (2, 3), correction=0, keepdim=True)
    var2, mean2 = torch.var_mean(other, (2, 3), correction=0, keepdim=True)
    return ((one - mean) * torch.sqrt(var2 + 1e-5) * torch.rsqrt(var + 1e-5) + mean2).to(content.dtype)


cases, features, trees, depth = Size("cases", 8192), Size("features", 64), Size("trees", 128), Size("depth", 6, fixed=True)
ca, fe, tr, de, leaf = indices(ca=cases, fe=features, tr=trees, de=depth, leaf=64)


@nestor.nest
def oblivious_trees(x: f32[cases, features], which: i32[trees, depth], limit: f32[trees, depth], value: f32[trees, 64]):
    """CatBoost's trees: all nodes of a level ask the same, and the answers are a leaf's number."""
    asked = nestor.sum(nestor.select(which[tr, de] == nestor.cast(i32, fe), x[ca, fe], 0.0), over=fe)
    bit = define("bit", (ca, tr, de), nestor.select(asked > limit[tr, de], 1.0, 0.0))
    place = define("place", (ca, tr), nestor.sum(bit[ca, tr, de] * nestor.exp2(nestor.cast(f32, de)), over=de))
    held = nestor.sum(nestor.select(place[ca, tr] == nestor.cast(f32, leaf), value[tr, leaf], 0.0), over=leaf)
    return define("out", ca, nestor.sum(held, over=tr))


def _trees(x, which, limit, value):
    bit = (x[:, which.long()] > limit).long()
    place = (bit * 2**torch.arange(which.shape[1], device=x.device)).sum(2)
    return value.T.gather(0, place).sum(1)


length, head, own = Size("length", 4096), Size("head", 64, fixed=True), Size("own", 16)
k, k2, e, e2, hd = indices(k=length, k2=length, e=head, e2=head, hd=own)


@nestor.nest
def prefix_attention(query: bf16[own, length, head], key: bf16[own, length, head], value: bf16[own, length, head], prefix=1000):
    """Attention that sees a prefix from everywhere, and behind it only what came before."""
    sees = (k2 <= k) | (k2 < 1000)
    score = define("score", (hd, k, k2), nestor.sum(query[hd, k, e] * key[hd, k2, e], over=e) / 8, where=sees)
    top = define("top", (hd, k), nestor.max(score[hd, k, k2], over=k2, where=sees))
    power = define("power", (hd, k, k2), nestor.exp(score[hd, k, k2] - top[hd, k]), where=sees)
    total = define("total", (hd, k), nestor.sum(power[hd, k, k2], over=k2, where=sees))
    return define("out", (hd, k, e2), nestor.sum(power[hd, k, k2] * value[hd, k2, e2], over=k2, where=sees) / total[hd, k], type=bf16)


def _prefix(query, key, value):
    place = torch.arange(query.shape[1], device=query.device)
    seen = (place <= place[:, None]) | (place < 1000)
    return F.scaled_dot_product_attention(query[None], key[None], value[None], attn_mask=seen, scale=0.125)[0]


wide, narrow = Size("wide", 2048), Size("narrow", 512)
w, w2, m = indices(w=wide, w2=wide, m=narrow)


@nestor.nest
def trilinear_layer(x: bf16[tokens, wide], one: bf16[narrow, wide], two: bf16[narrow, wide], three: bf16[narrow, wide], back: bf16[wide, narrow]):
    """A layer whose units multiply three sums, and what it adds to its input."""
    first, second, third = (nestor.sum(x[t, w] * weight[m, w], over=w) for weight in (one, two, three))
    unit = define("unit", (t, m), first * second * third, type=bf16)
    return define("out", (t, w2), x[t, w2] + nestor.sum(unit[t, m] * back[w2, m], over=m), type=bf16)


def _trilinear(x, one, two, three, back):
    unit = widened(x @ one.T) * widened(x @ two.T) * widened(x @ three.T)
    return (widened(x) + widened(unit.to(x.dtype) @ back.T)).to(x.dtype)


@nestor.nest
def normed_weight_gradient(x: bf16[tokens, wide], gradient: bf16[tokens, narrow], gain: f32[wide]):
    """The gradient of a weight behind a root mean square norm: the norm is made again beside the product."""
    mean = define("mean", t, nestor.sum(x[t, w] * x[t, w], over=w) / wide)
    normed = define("normed", (t, w), x[t, w] * nestor.rsqrt(mean[t] + 1e-6) * gain[w], type=bf16)
    return define("out", (m, w), nestor.sum(gradient[t, m] * normed[t, w], over=t), type=f32)


def _normed_gradient(x, gradient, gain):
    full = widened(x)
    normed = (full * torch.rsqrt(full.square().mean(1, keepdim=True) + 1e-6) * gain).to(x.dtype)
    return widened(gradient.T @ normed)


@nestor.nest
def retention_gradient(query: bf16[own, length, head], key: bf16[own, length, head], value: bf16[own, length, head], gradient: bf16[own, length, head],
                       decay: f32[own]):
    """Retention's gradients of keys and of values, from weights that fade with distance."""
    fades = nestor.exp2(-decay[hd] * nestor.cast(f32, k - k2))
    weight = define("weight", (hd, k, k2), nestor.sum(query[hd, k, e] * key[hd, k2, e], over=e) * fades / 8, where=k2 <= k)
    slope = define("slope", (hd, k, k2), nestor.sum(gradient[hd, k, e] * value[hd, k2, e], over=e) * fades / 8, where=k2 <= k)
    return (define("key_gradient", (hd, k2, e2), nestor.sum(slope[hd, k, k2] * query[hd, k, e2], over=k, where=k2 <= k), type=bf16),
            define("value_gradient", (hd, k2, e2), nestor.sum(weight[hd, k, k2] * gradient[hd, k, e2], over=k, where=k2 <= k), type=bf16))


def _retention_gradient(query, key, value, gradient, decay):
    place = torch.arange(query.shape[1], device=query.device)
    fades = torch.exp2(-decay[:, None, None] * (place[:, None] - place).clamp(min=0)).tril() / 8
    weight = (widened(query @ key.mT) * fades).to(query.dtype)
    slope = (widened(gradient @ value.mT) * fades).to(query.dtype)
    return slope.mT @ query, weight.mT @ gradient


said, words, features_ = Size("said", 8192), Size("words", 50257), Size("features", 768)
sa, wo, ft = indices(sa=said, wo=words, ft=features_)


@nestor.nest
def table_gradient(word: i32[said], gradient: f32[said, features_]):
    """The gradient of a table of words: what came back for each place where a word was said adds up."""
    return define("out", (wo, ft), nestor.sum(nestor.select(word[sa] == nestor.cast(i32, wo), gradient[sa, ft], 0.0), over=sa))


def _table(word, gradient, words):
    return torch.zeros(words, gradient.shape[1], dtype=gradient.dtype, device=gradient.device).index_add(0, word.long(), gradient)


edges, nodes, wide_ = Size("edges", 160000), Size("nodes", 10000), Size("wide", 64)
ed, no, wd = indices(ed=edges, no=nodes, wd=wide_)


@nestor.nest
def node_messages(to: i32[edges], message: f32[edges, wide_], own: f32[nodes, wide_]):
    """A graph's nodes: the mean of what edges bring, beside what they have."""
    here = to[ed] == nestor.cast(i32, no)
    total = define("total", (no, wd), nestor.sum(nestor.select(here, message[ed, wd], 0.0), over=ed))
    count = define("count", no, nestor.sum(nestor.select(here, 1.0, 0.0), over=ed))
    return define("out", (no, wd), own[no, wd] + total[no, wd] / nestor.maximum(count[no], 1.0))


def _messages(to, message, own):
    total = torch.zeros_like(own).index_add(0, to.long(), message)
    count = torch.zeros_like(own[:, 0]).index_add(0, to.long(), torch.ones_like(message[:, 0]))
    return own + total / count.clamp(min=1)[:, None]


def _words(normal, sizes):
    return (normal.abs() * sizes["vocabulary"] / 4).floor().clamp(max=sizes["vocabulary"] - 1)


def _chances(normal, _):
    """Draws evenly between 0 and 1, neither of them."""
    return (0.5 * (1 + torch.erf(normal / 2**0.5))).clamp(1e-6, 1 - 1e-6)


OPERATORS = [
    Operator(penalised_scores, _penalised, "N. Keskar et al., arXiv:1909.05858", {"rows": 3, "vocabulary": 11, "history": 5}, draw={"said": _words}),
    Operator(typical_scores, _typical, "C. Meister et al., arXiv:2202.00666", {"rows": 3, "vocabulary": 11}),
    Operator(attention_rollout, _rollout, "S. Abnar and W. Zuidema, arXiv:2005.00928", {"layers": 3, "batch": 2, "heads": 3, "places": 5},
             draw={"attention": lambda x, sizes: x.abs() / sizes["places"]}),
    Operator(gumbel_codes, _gumbel, "E. Jang et al., arXiv:1611.01144", {"tokens": 3, "codes": 11, "dim": 5}, draw={"noise": _chances}),
    Operator(rounded_columns, _rounded, "E. Frantar et al., arXiv:2210.17323", {"outputs": 3, "block": 7},
             draw={"factor": lambda x, _: torch.eye(x.shape[0], device=x.device) + 0.05 * x, "scale": lambda x, _: 0.3 + 0.05 * x.abs()}),
    Operator(trace_targets, _trace, "L. Espeholt et al., arXiv:1802.01561", {"runs": 3, "steps": 7}, draw={"discount": lambda x, _: 0.95 + 0 * x}),
    Operator(style_transfer, _style, "X. Huang and S. Belongie, arXiv:1703.06868", {"pictures": 2, "channels": 3, "tall": 5, "broad": 7}),
    Operator(oblivious_trees, _trees, "L. Prokhorenkova et al., arXiv:1706.09516", {"cases": 5, "features": 3, "trees": 4, "depth": 6},
             draw={"which": lambda x, sizes: (x.abs() * sizes["features"] / 4).floor().clamp(max=sizes["features"] - 1)}),
    Operator(prefix_attention, _prefix, "C. Raffel et al., arXiv:1910.10683", {"own": 2, "length": 9, "head": 5}),
    Operator(table_gradient, _table, "Y. Bengio et al., JMLR 2003", {"said": 9, "words": 5, "features": 3}, told=("words", ),
             draw={"word": lambda x, sizes: (x.abs() * sizes["words"] / 4).floor().clamp(max=sizes["words"] - 1)}),
    Operator(node_messages, _messages, "W. Hamilton et al., arXiv:1706.02216", {"edges": 9, "nodes": 5, "wide": 3},
             draw={"to": lambda x, sizes: (0.5 * (1 + torch.erf(x / 2**0.5)) * sizes["nodes"]).floor().clamp(max=sizes["nodes"] - 1)}),
    Operator(trilinear_layer, _trilinear, "N. Shazeer, arXiv:2002.05202", {"tokens": 3, "wide": 16, "narrow": 5},
             draw={"one": divided("wide"), "two": divided("wide"), "three": divided("wide"), "back": divided("narrow")}),
    Operator(normed_weight_gradient, _normed_gradient, "B. Zhang and R. Sennrich, arXiv:1910.07467", {"tokens": 5, "wide": 7, "narrow": 3},
             draw={"gain": around_one}),
    Operator(retention_gradient, _retention_gradient, "Y. Sun et al., arXiv:2307.08621", {"own": 2, "length": 9, "head": 5},
             draw={"decay": lambda x, _: 0.02 + 0.01 * x.abs()}),
]
