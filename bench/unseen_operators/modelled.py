"""What model builders write: routers, caches, streams, gates of 2025 and 2026; edges, modes, motifs, gradients of rational functions, quantised steps."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, around_one, divided, widened

tokens, groups, members = Size("tokens", 8192), Size("groups", 8), Size("members", 32)
t, g, m, m2, g2 = indices(t=tokens, g=groups, m=members, m2=members, g2=groups)


@nestor.nest
def group_limited_router(logit: f32[tokens, groups, members], bias: f32[groups, members]):
    """DeepSeek-V3: the four groups whose two best experts have most, then the eight best experts there; their gates add up to 1."""
    score = define("score", (t, g, m), nestor.sigmoid(logit[t, g, m]))
    ranked = define("ranked", (t, g, m), score[t, g, m] + bias[g, m])
    first = define("first", (t, g), nestor.max(ranked[t, g, m], over=m))
    second = define("second", (t, g), nestor.max(nestor.select(ranked[t, g, m] < first[t, g], ranked[t, g, m], -1e30), over=m))
    ahead = define("ahead", (t, g), nestor.sum(nestor.select(first[t, g2] + second[t, g2] > first[t, g] + second[t, g], 1, 0), over=g2))
    left = define("left", (t, g, m), nestor.select(ahead[t, g] < 4, ranked[t, g, m], -1e30))
    better = define("better", (t, g, m), nestor.sum(nestor.select(left[t, g2, m2] > left[t, g, m], 1, 0), over=(g2, m2)))
    gate = define("gate", (t, g, m), nestor.select((better[t, g, m] < 8) & (ahead[t, g] < 4), score[t, g, m], 0.0))
    total = define("total", t, nestor.sum(gate[t, g, m], over=(g, m)))
    return define("out", (t, g, m), gate[t, g, m] / total[t])


def _router(logit, bias):
    score = torch.sigmoid(logit)
    ranked = score + bias
    best = ranked.topk(min(2, ranked.shape[2]), 2)[0].sum(2)
    chosen = torch.zeros_like(best).scatter(1, best.topk(min(4, best.shape[1]), 1)[1], 1)[..., None].expand_as(score) > 0
    left = ranked.masked_fill(~chosen, -1e30).flatten(1)
    places = left.topk(min(8, 4 * score.shape[2]), 1)[1]
    gate = torch.zeros_like(left).scatter(1, places, score.flatten(1).gather(1, places)).unflatten(1, score.shape[1:])
    return gate / gate.sum((1, 2), keepdim=True)


heads, window, keys, dim = Size("heads", 32), Size("window", 32), Size("keys", 8192), Size("dim", 128, fixed=True)
h, w, k, k2, e, ne = indices(h=heads, w=window, k=keys, k2=keys, e=dim, ne=7)


@nestor.nest
def snap_scores(q: bf16[heads, window, dim], key: bf16[heads, keys, dim]):
    """SnapKV: what the last queries look at, added up over them; then the largest of seven neighbours, by which a cache is thinned."""
    score = define("score", (h, w, k), nestor.sum(q[h, w, e] * key[h, k, e], over=e) * 0.088)
    top = define("top", (h, w), nestor.max(score[h, w, k], over=k))
    total = define("total", (h, w), nestor.sum(nestor.exp(score[h, w, k] - top[h, w]), over=k))
    votes = define("votes", (h, k2), nestor.sum(nestor.exp(score[h, w, k2] - top[h, w]) / total[h, w], over=w))
    at = k + ne - 3
    return define("out", (h, k), nestor.max(nestor.select((at >= 0) & (at < keys), votes[h, at], -1e30), over=ne))


def _snap(q, key):
    votes = torch.softmax(widened(q @ key.transpose(1, 2)) * 0.088, -1).sum(1)
    return F.max_pool1d(votes, 7, 1, 3)


rows, streams, wide = Size("rows", 4096), Size("streams", 4), Size("wide", 2048)
r, s, s2, c, c2, v = indices(r=rows, s=streams, s2=streams, c=wide, c2=wide, v=streams + 2)


@nestor.nest
def hyper_connections(x: bf16[rows, streams, wide], block: bf16[rows, wide], weight: bf16[streams, streams + 2, streams, wide], scale: f32[streams, streams + 2]):
    """Four residual streams for one: how they mix, and where a block's result goes, follows from their norm by small products."""
    size = define("size", r, nestor.rsqrt(nestor.sum(x[r, s2, c2] * x[r, s2, c2], over=(s2, c2)) / streams / wide + 1e-6))
    found = define("found", (r, s, v), nestor.sum(x[r, s2, c2] * weight[s, v, s2, c2], over=(s2, c2)))
    mix = define("mix", (r, s, v), scale[s, v] * nestor.tanh(found[r, s, v] * size[r]))
    new = mix[r, s, streams] * block[r, c]
    mixed = define("mixed", (r, s, c), nestor.sum(mix[r, s, s2] * x[r, s2, c], over=s2))
    return define("out", (r, s, c), x[r, s, c] + mixed[r, s, c] + new, type=bf16)


def _hyper(x, block, weight, scale):
    flat = x.flatten(1)
    size = torch.rsqrt(widened(flat).square().mean(1, keepdim=True) + 1e-6)
    mix = scale * torch.tanh(widened(flat @ weight.flatten(2).flatten(0, 1).T) * size).unflatten(1, scale.shape)
    count = x.shape[1]
    mixed = torch.einsum("rsj,rjc->rsc", mix[:, :, :count], widened(x))
    return (widened(x) + mixed + mix[:, :, count, None] * widened(block)[:, None]).to(x.dtype)


long, inner = Size("long", 4096), Size("inner", 64)
l, b, i, b2 = indices(l=long, b=inner, i=128, b2=inner)


@nestor.nest
def swiglu_group_quantise(up: bf16[long, 2, inner, 128]):
    """Between two products of an expert: SwiGLU, then a scale for each 128 neighbours, and integers of 8 bits."""
    x = define("x", (l, b, i), up[l, 0, b, i] * nestor.sigmoid(up[l, 0, b, i]) * up[l, 1, b, i])
    most = define("most", (l, b), nestor.max(nestor.absolute(x[l, b, i]), over=i))
    scale = define("scale", (l, b), nestor.maximum(most[l, b], 1e-4) / 127)
    return define("out", (l, b, i), nestor.cast(i32, nestor.floor(x[l, b, i] / scale[l, b] + 0.5))), scale


def _group_quantise(up):
    gate, x = widened(up).unbind(1)
    x = F.silu(gate) * x
    scale = x.abs().amax(-1).clamp(min=1e-4) / 127
    return torch.floor(x / scale[..., None] + 0.5).to(torch.int32), scale


texts, asks, chunks, deep = Size("texts", 16), Size("asks", 2048), Size("chunks", 32), Size("deep", 64, fixed=True)
x_, a, n, n2, d, d2, ins = indices(x_=texts, a=asks, n=chunks, n2=chunks, d=deep, d2=deep, ins=64)


@nestor.nest
def block_mixture_attention(q: bf16[texts, asks, deep], key: bf16[texts, chunks, 64, deep], value: bf16[texts, chunks, 64, deep]):
    """MoBA without a mask: each query attends to the four blocks of keys whose means it likes best."""
    mean = define("mean", (x_, n, d), nestor.sum(key[x_, n, ins, d], over=ins) / 64, type=bf16)
    like = define("like", (x_, a, n), nestor.sum(q[x_, a, d] * mean[x_, n, d], over=d))
    ahead = define("ahead", (x_, a, n), nestor.sum(nestor.select(like[x_, a, n2] > like[x_, a, n], 1, 0), over=n2))
    dot = nestor.sum(q[x_, a, d] * key[x_, n, ins, d], over=d) / 8
    score = define("score", (x_, a, n, ins), nestor.select(ahead[x_, a, n] < 4, dot, -1e30))
    top = define("top", (x_, a), nestor.max(score[x_, a, n, ins], over=(n, ins)))
    power = define("power", (x_, a, n, ins), nestor.exp(score[x_, a, n, ins] - top[x_, a]))
    total = define("total", (x_, a), nestor.sum(power[x_, a, n, ins], over=(n, ins)))
    return define("out", (x_, a, d2), nestor.sum(power[x_, a, n, ins] * value[x_, n, ins, d2], over=(n, ins)) / total[x_, a], type=bf16)


def _block_mixture(q, key, value):
    mean = widened(key).mean(2).to(key.dtype)
    like = widened(q @ mean.transpose(1, 2))
    chosen = torch.zeros_like(like).scatter(2, like.topk(min(4, like.shape[2]), 2)[1], 1).bool()
    mask = chosen.repeat_interleave(64, 2)
    return F.scaled_dot_product_attention(q[None], key.flatten(1, 2)[None], value.flatten(1, 2)[None], attn_mask=mask[None], scale=0.125)[0]


batch, seats, features, powers = Size("batch", 16384), Size("seats", 8), Size("features", 96), Size("powers", 6)
z, o, f, p, p2 = indices(z=batch, o=seats, f=features, p=6, p2=4)


@nestor.nest
def rational_gradient(x: f32[batch, seats, features], grad: f32[batch, seats, features], above: f32[seats, 6], below: f32[seats, 4]):
    """KAT: the gradient of a rational function, P(x) / (1 + |x Q(x)|), for its input and for each group's ten coefficients."""
    def power(value, count):
        return 1.0 if count == 0 else value * power(value, count - 1) if count > 1 else value
    at = x[z, o, f]
    top = define("top", (z, o, f), sum(above[o, each] * power(at, each) for each in range(6)))
    bend = define("bend", (z, o, f), sum(below[o, each] * power(at, each + 1) for each in range(4)))
    whole = define("whole", (z, o, f), 1 / (1 + nestor.absolute(bend[z, o, f])))
    sign = nestor.select(bend[z, o, f] < 0, -1.0, 1.0)
    slope = sum(each * above[o, each] * power(at, each - 1) for each in range(1, 6))
    turn = sum((each + 1) * below[o, each] * power(at, each) for each in range(4))
    out = define("out", (z, o, f), grad[z, o, f] * (slope - sign * turn * top[z, o, f] * whole[z, o, f]) * whole[z, o, f])
    first = define("first", (z, o, f), grad[z, o, f] * whole[z, o, f])
    second = define("second", (z, o, f), -first[z, o, f] * sign * top[z, o, f] * whole[z, o, f])
    up = [define(f"up_{each}", o, nestor.sum(first[z, o, f] * power(at, each), over=(z, f))) for each in range(6)]
    return (out, *up, *(define(f"down_{each}", o, nestor.sum(second[z, o, f] * power(at, each + 1), over=(z, f))) for each in range(4)))


def _rational(x, grad, above, below):
    above, below = above[:, :, None], below[:, :, None]
    top, bend = sum(above[:, each] * x**each for each in range(6)), sum(below[:, each] * x**(each + 1) for each in range(4))
    whole, sign = 1 / (1 + bend.abs()), torch.where(bend < 0, -1.0, 1.0)
    slope, turn = sum(each * above[:, each] * x**(each - 1) for each in range(1, 6)), sum((each + 1) * below[:, each] * x**each for each in range(4))
    first = grad * whole
    second = -first * sign * top * whole
    return (grad * (slope - sign * turn * top * whole) * whole, *((first * x**each).sum((0, 2)) for each in range(6)),
            *((second * x**(each + 1)).sum((0, 2)) for each in range(4)))


letters = Size("letters", 131072)
by, ch = indices(by=letters, ch=256)


@nestor.nest
def entropy_patches(logit: f16[letters, 256]):
    """Byte models: the entropy of each next byte; a patch begins where it rises by more than a bit."""
    top = define("top", by, nestor.max(logit[by, ch], over=ch))
    total = define("total", by, nestor.sum(nestor.exp(logit[by, ch] - top[by]), over=ch))
    share = nestor.exp(logit[by, ch] - top[by]) / total[by]
    entropy = define("entropy", by, nestor.log(total[by]) + top[by] - nestor.sum(share * logit[by, ch], over=ch))
    rise = nestor.select(by >= 1, entropy[by] - entropy[by - 1], 10.0)
    return entropy, define("out", by, nestor.select(rise > 0.07, 1.0, 0.0))


def _patches(logit):
    wide_ = widened(logit)
    entropy = torch.logsumexp(wide_, 1) - (torch.softmax(wide_, 1) * wide_).sum(1)
    rise = torch.cat([torch.full_like(entropy[:1], 10), entropy[1:] - entropy[:-1]])
    return entropy, (rise > 0.07).to(entropy.dtype)


fields, into, outs, modes = Size("fields", 32), Size("into", 64), Size("outs", 64), Size("modes", 544)
fi, it, ou, mo = indices(fi=fields, it=into, ou=outs, mo=modes)


@nestor.nest
def mode_mixing(real: f32[fields, into, modes], imaginary: f32[fields, into, modes], weight_real: f32[into, outs, modes], weight_imaginary: f32[into, outs, modes]):
    """A Fourier neural operator's layer: each mode has a complex matrix of its own over the channels."""
    def both(one, other):
        return nestor.sum(one[fi, it, mo] * other[it, ou, mo], over=it)
    return (define("out_real", (fi, ou, mo), both(real, weight_real) - both(imaginary, weight_imaginary)),
            define("out_imaginary", (fi, ou, mo), both(real, weight_imaginary) + both(imaginary, weight_real)))


def _mode_mixing(real, imaginary, weight_real, weight_imaginary):
    found = torch.einsum("bim,iom->bom", torch.complex(real, imaginary), torch.complex(weight_real, weight_imaginary))
    return found.real, found.imag


nodes, near, width, hidden = Size("nodes", 8192), Size("near", 16), Size("width", 128), Size("hidden", 128)
nd, nr, wi, hi = indices(nd=nodes, nr=near, wi=width, hi=hidden)


@nestor.nest
def principal_aggregation(message: f16[nodes, near, width], weight: f16[4, hidden, width], bias: f32[hidden]):
    """PNA: mean, maximum, minimum and deviation of what the neighbours say, side by side, through one product."""
    mean = define("mean", (nd, wi), nestor.sum(message[nd, nr, wi], over=nr) / near)
    square = define("square", (nd, wi), nestor.sum(message[nd, nr, wi] * message[nd, nr, wi], over=nr) / near)
    spread = nestor.sqrt(nestor.maximum(square[nd, wi] - mean[nd, wi] * mean[nd, wi], 0.0) + 1e-5)
    parts = (mean[nd, wi], nestor.max(message[nd, nr, wi], over=nr), nestor.min(message[nd, nr, wi], over=nr), spread)
    kinds = [define(f"kind_{each}", (nd, wi), part, type=f16) for each, part in enumerate(parts)]
    found = sum(nestor.sum(kind[nd, wi] * weight[each, hi, wi], over=wi) for each, kind in enumerate(kinds))
    return define("out", (nd, hi), nestor.maximum(found + bias[hi], 0.0), type=f16)


def _principal(message, weight, bias):
    big = widened(message)
    mean = big.mean(1)
    spread = ((big.square().mean(1) - mean.square()).clamp(min=0) + 1e-5).sqrt()
    joined = torch.cat([mean, big.amax(1), big.amin(1), spread], 1).to(message.dtype)
    return F.relu(widened(joined @ weight.transpose(0, 1).flatten(1).T) + bias).to(message.dtype)


clips, frames, high, across, maps = Size("clips", 8), Size("frames", 16), Size("high", 28), Size("across", 28), Size("maps", 192)
cl, fr, y, u, ma, dt, dy, du = indices(cl=clips, fr=frames, y=high, u=across, ma=maps, dt=3, dy=3, du=3)


@nestor.nest
def depthwise_conv3d(x: f16[clips, frames, high, across, maps], weight: f16[3, 3, 3, maps], bias: f32[maps]):
    """X3D and UniFormer: a filter of 3 x 3 x 3 for each channel of a video, and what came in beside it."""
    at, row, column = fr + dt - 1, y + dy - 1, u + du - 1
    inside = (at >= 0) & (at < frames) & (row >= 0) & (row < high) & (column >= 0) & (column < across)
    pixel = nestor.select(inside, x[cl, at, row, column, ma], 0.0)
    return define("out", (cl, fr, y, u, ma), nestor.sum(pixel * weight[dt, dy, du, ma], over=(dt, dy, du)) + bias[ma] + x[cl, fr, y, u, ma], type=f16)


def _depthwise3d(x, weight, bias):
    found = F.conv3d(x.permute(0, 4, 1, 2, 3), weight.permute(3, 0, 1, 2)[:, None], bias.to(x.dtype), padding=1, groups=x.shape[-1])
    return found.permute(0, 2, 3, 4, 1) + x


genes, bases, motifs, taps = Size("genes", 256), Size("bases", 2000), Size("motifs", 512), Size("taps", 16, fixed=True)
sq, ba, mt, tp, nu = indices(sq=genes, ba=bases - taps + 1, mt=motifs, tp=taps, nu=4)


@nestor.nest(require=bases >= taps)
def motif_scan(sequence: f16[genes, bases, 4], motif: f16[motifs, taps, 4], bias: f32[motifs]):
    """DeepBind: how well each of many short patterns fits at its best place of a sequence."""
    fit = define("fit", (sq, ba, mt), nestor.sum(sequence[sq, ba + tp, nu] * motif[mt, tp, nu], over=(tp, nu)))
    return define("out", (sq, mt), nestor.maximum(nestor.max(fit[sq, ba, mt], over=ba) + bias[mt], 0.0))


def _motif(sequence, motif, bias):
    return F.relu(widened(F.conv1d(sequence.transpose(1, 2), motif.transpose(1, 2))).amax(2) + bias)


users, slots, latent = Size("users", 8192), Size("slots", 640), Size("latent", 1280)
us, sl, sl2, la = indices(us=users, sl=slots, sl2=slots, la=latent)


@nestor.nest
def instance_mask(x: f16[users, slots], first: f16[latent, slots], one: f32[latent], second: f16[slots, latent], two: f32[slots], gain: f32[slots], shift: f32[slots]):
    """MaskNet: a row's norm times a mask that two layers make of the row itself."""
    wide_ = define("wide_", (us, la), nestor.maximum(nestor.sum(x[us, sl2] * first[la, sl2], over=sl2) + one[la], 0.0), type=f16)
    mask = nestor.sum(wide_[us, la] * second[sl, la], over=la) + two[sl]
    mean = define("mean", us, nestor.sum(x[us, sl2], over=sl2) / slots)
    spread = define("spread", us, nestor.rsqrt(nestor.sum((x[us, sl2] - mean[us]) * (x[us, sl2] - mean[us]), over=sl2) / slots + 1e-5))
    return define("out", (us, sl), ((x[us, sl] - mean[us]) * spread[us] * gain[sl] + shift[sl]) * mask, type=f16)


def _instance_mask(x, first, one, second, two, gain, shift):
    wide_ = F.relu(widened(x @ first.T) + one).to(x.dtype)
    mask = widened(wide_ @ second.T) + two
    return (F.layer_norm(widened(x), x.shape[1:], gain, shift) * mask).to(x.dtype)


pictures, pixels = Size("pictures", 64), Size("pixels", 65536)
pi, px, px2 = indices(pi=pictures, px=pixels, px2=pixels)


@nestor.nest
def rescaled_guidance(x: f16[pictures, pixels], told: f16[pictures, pixels], free: f16[pictures, pixels], now: f32[pictures], then: f32[pictures]):
    """A sampler's step: guidance without a classifier, brought back to the deviation that it had, then DDIM."""
    guided = define("guided", (pi, px2), free[pi, px2] + 7.5 * (told[pi, px2] - free[pi, px2]))

    def spread(name, value):
        mean = define(f"mean_{name}", pi, nestor.sum(value, over=px2) / pixels)
        return define(f"spread_{name}", pi, nestor.sqrt(nestor.sum((value - mean[pi]) * (value - mean[pi]), over=px2) / pixels))
    ratio = define("ratio", pi, 0.3 + 0.7 * spread("told", told[pi, px2])[pi] / spread("guided", guided[pi, px2])[pi])
    noise = guided[pi, px] * ratio[pi]
    clean = (x[pi, px] - nestor.sqrt(1 - now[pi]) * noise) / nestor.sqrt(now[pi])
    return define("out", (pi, px), nestor.sqrt(then[pi]) * clean + nestor.sqrt(1 - then[pi]) * noise, type=f16)


def _guidance(x, told, free, now, then):
    told, free = widened(told), widened(free)
    guided = free + 7.5 * (told - free)
    noise = guided * (0.3 + 0.7 * told.std(1, correction=0, keepdim=True) / guided.std(1, correction=0, keepdim=True))
    now, then = now[:, None], then[:, None]
    clean = (widened(x) - (1 - now).sqrt() * noise) / now.sqrt()
    return (then.sqrt() * clean + (1 - then).sqrt() * noise).to(x.dtype)


lines, broad = Size("lines", 16384), Size("broad", 2048)
li, br = indices(li=lines, br=broad)


@nestor.nest
def dynamic_tanh_backward(x: bf16[lines, broad], grad: bf16[lines, broad], slope: f32[()], gain: f32[broad]):
    """Transformers without norms: gradients of tanh(slope x) gain + shift, the slope's one number among them."""
    bent = define("bent", (li, br), nestor.tanh(slope.value * x[li, br]))
    inner_ = define("inner_", (li, br), grad[li, br] * gain[br] * (1 - bent[li, br] * bent[li, br]))
    return (define("dx", (li, br), inner_[li, br] * slope.value, type=bf16), define("dslope", (), nestor.sum(inner_[li, br] * x[li, br], over=(li, br))),
            define("dgain", br, nestor.sum(grad[li, br] * bent[li, br], over=li)), define("dshift", br, nestor.sum(grad[li, br], over=li)))


def _dynamic_tanh(x, grad, slope, gain):
    grad_, bent = widened(grad), torch.tanh(slope * widened(x))
    inner_ = grad_ * gain * (1 - bent * bent)
    return (inner_ * slope).to(x.dtype), (inner_ * widened(x)).sum(), (grad_ * bent).sum(0), grad_.sum(0)


def _some(low, high):
    """Draws numbers between two limits."""
    return lambda x, _: low + (high - low) * torch.sigmoid(x)


OPERATORS = [
    Operator(group_limited_router, _router, "DeepSeek-V3, arXiv:2412.19437", {"tokens": 5, "groups": 6, "members": 7}, draw={"bias": lambda x, _: 0.1 * x}),
    Operator(snap_scores, _snap, "Y. Li et al., SnapKV, arXiv:2404.14469", {"heads": 2, "window": 3, "keys": 11, "dim": 4}),
    Operator(hyper_connections, _hyper, "D. Zhu et al., Hyper-connections, arXiv:2409.19606", {"rows": 3, "streams": 2, "wide": 5},
             draw={"weight": lambda x, s: x / (s["streams"] * s["wide"])**0.5}),
    Operator(swiglu_group_quantise, _group_quantise, "DeepSeek-V3, arXiv:2412.19437", {"long": 3, "inner": 2}),
    Operator(block_mixture_attention, _block_mixture, "E. Lu et al., MoBA, arXiv:2502.13189", {"texts": 2, "asks": 5, "chunks": 6, "deep": 3}),
    Operator(rational_gradient, _rational, "X. Yang and X. Wang, Kolmogorov-Arnold transformer, arXiv:2409.10594", {"batch": 5, "seats": 3, "features": 4},
             draw={"below": lambda x, _: 0.3 * x}),
    Operator(entropy_patches, _patches, "A. Pagnoni et al., Byte latent transformer, arXiv:2412.09871", {"letters": 7}),
    Operator(mode_mixing, _mode_mixing, "Z. Li et al., Fourier neural operator, arXiv:2010.08895", {"fields": 3, "into": 4, "outs": 5, "modes": 6},
             draw={"weight_real": divided("into"), "weight_imaginary": divided("into")}),
    Operator(principal_aggregation, _principal, "G. Corso et al., arXiv:2004.05718", {"nodes": 5, "near": 3, "width": 4, "hidden": 6},
             draw={"weight": lambda x, s: x / (4 * s["width"])**0.5}),
    Operator(depthwise_conv3d, _depthwise3d, "C. Feichtenhofer, X3D, arXiv:2004.04730", {"clips": 2, "frames": 3, "high": 4, "across": 5, "maps": 3}),
    Operator(motif_scan, _motif, "B. Alipanahi et al., DeepBind, 2015", {"genes": 2, "bases": 9, "motifs": 3, "taps": 4}),
    Operator(instance_mask, _instance_mask, "Z. Wang et al., MaskNet, arXiv:2102.07619", {"users": 3, "slots": 6, "latent": 5},
             draw={"first": divided("slots"), "second": divided("latent"), "gain": around_one}),
    Operator(rescaled_guidance, _guidance, "S. Lin et al., arXiv:2305.08891", {"pictures": 2, "pixels": 9}, draw={"now": _some(0.3, 0.6), "then": _some(0.6, 0.9)}),
    Operator(dynamic_tanh_backward, _dynamic_tanh, "J. Zhu et al., Transformers without normalization, arXiv:2503.10622", {"lines": 5, "broad": 6},
             draw={"slope": around_one, "gain": around_one}),
]
