"""What models of 2016 to 2025 run and train by, unlike what the other modules hold: attention whose past has levels, gradients of a pair's bias and
of whole experts, states of an optimizer in 8 bits, marks in what is drawn, long filters of groups, flows, fields that know each other, chunks' gradients."""

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, divided, widened

heads, length, dim, levels = Size("heads", 32), Size("length", 2048), Size("dim", 64, fixed=True), 12
h, i, j, d, e = indices(h=heads, i=length, j=length, d=dim, e=dim)


@nestor.nest(require=length <= 2**(levels - 1))
def log_linear_attention(q: bf16[heads, length, dim], key: bf16[heads, length, dim], value: bf16[heads, length, dim], decay: f32[heads, length],
                         share: f32[heads, length, levels]):
    """Log-linear attention: the past in blocks of 1, 2, 4, ... as a Fenwick tree has them, each weighted by what a query says of its level."""
    score = nestor.sum(q[h, i, d] * key[h, j, d], over=d)
    own = nestor.select(i == j, share[h, i, 0], 0.0)
    far = sum(nestor.select(((i // 2**n) % 2 == 1) & (j // 2**n == i // 2**n - 1), share[h, i, n + 1], 0.0) for n in range(levels - 1))
    weight = define("weight", (h, i, j), score * nestor.exp(decay[h, i] - decay[h, j]) * (own + far), where=j <= i)
    return define("out", (h, i, e), nestor.sum(weight[h, i, j] * value[h, j, e], over=j, where=j <= i), type=bf16)


def _log_linear(q, key, value, decay, share):
    places = torch.arange(q.shape[1], device=q.device)
    level = torch.frexp((places[:, None] ^ places).double()).exponent.long()  # the highest bit in which they differ
    weight = torch.gather(share, 2, level.expand(len(share), -1, -1)) * torch.exp(decay[:, :, None] - decay[:, None])
    return (widened(q @ key.transpose(1, 2)) * weight).tril().to(value.dtype) @ value


rows, eyes, places, depth = Size("rows", 128), Size("eyes", 4), Size("places", 256), Size("depth", 32, fixed=True)
r, y, a, b, c, f = indices(r=rows, y=eyes, a=places, b=places, c=depth, f=depth)


@nestor.nest
def pair_bias_gradient(q: bf16[rows, eyes, places, depth], key: bf16[rows, eyes, places, depth], value: bf16[rows, eyes, places, depth],
                       grad: bf16[rows, eyes, places, depth], bias: f32[eyes, places, places], total: f32[rows, eyes, places],
                       delta: f32[rows, eyes, places]):
    """AlphaFold's rows attend with a bias of pairs that all rows share: its gradient, from what the forward pass kept of each softmax."""
    score = nestor.sum(q[r, y, a, c] * key[r, y, b, c], over=c) * 0.17677669 + bias[y, a, b]
    share = define("share", (r, y, a, b), nestor.exp(score - total[r, y, a]))
    come = define("come", (r, y, a, b), nestor.sum(grad[r, y, a, f] * value[r, y, b, f], over=f))
    return define("out", (y, a, b), nestor.sum(share[r, y, a, b] * (come[r, y, a, b] - delta[r, y, a]), over=r))


def _pair_bias(q, key, value, grad, bias, total, delta):
    share = torch.exp(widened(q @ key.transpose(2, 3)) * 0.17677669 + bias - total[..., None])
    return (share * (widened(grad @ value.transpose(2, 3)) - delta[..., None])).sum(0)


experts, slots, wide, hidden = Size("experts", 8), Size("slots", 512), Size("wide", 1024), Size("hidden", 704)
x_, s, w, u = indices(x_=experts, s=slots, w=wide, u=hidden)


@nestor.nest
def expert_backward(x: bf16[experts, slots, wide], gate: bf16[experts, hidden, wide], up: bf16[experts, hidden, wide],
                    down: bf16[experts, wide, hidden], grad: bf16[experts, slots, wide]):
    """All gradients of experts with SwiGLU, which keep nothing of the forward pass: of what came in, and of three weights."""
    at = (x_, s, u)
    one = define("one", at, nestor.sum(x[x_, s, w] * gate[x_, u, w], over=w))
    two = define("two", at, nestor.sum(x[x_, s, w] * up[x_, u, w], over=w))
    back = define("back", at, nestor.sum(grad[x_, s, w] * down[x_, w, u], over=w))
    open_ = nestor.sigmoid(one[at])
    inner = define("inner", at, one[at] * open_ * two[at], type=bf16)
    d_one = define("d_one", at, back[at] * two[at] * open_ * (1 + one[at] * (1 - open_)), type=bf16)
    d_two = define("d_two", at, back[at] * one[at] * open_, type=bf16)
    return (define("dx", (x_, s, w), nestor.sum(d_one[at] * gate[x_, u, w] + d_two[at] * up[x_, u, w], over=u), type=bf16),
            define("d_gate", (x_, u, w), nestor.sum(d_one[at] * x[x_, s, w], over=s), type=bf16),
            define("d_up", (x_, u, w), nestor.sum(d_two[at] * x[x_, s, w], over=s), type=bf16),
            define("d_down", (x_, w, u), nestor.sum(grad[x_, s, w] * inner[at], over=s), type=bf16))


def _expert_backward(x, gate, up, down, grad):
    one, two, back = widened(x @ gate.mT), widened(x @ up.mT), widened(grad @ down)
    open_ = torch.sigmoid(one)
    inner = (one * open_ * two).to(x.dtype)
    d_one, d_two = (back * two * open_ * (1 + one * (1 - open_))).to(x.dtype), (back * one * open_).to(x.dtype)
    return d_one @ gate + d_two @ up, d_one.mT @ x, d_two.mT @ x, grad.mT @ inner


blocks = Size("blocks", 32768)
bl, wo, by = indices(bl=blocks, wo=64, by=4)


@nestor.nest
def blockwise_adam(weight: f32[blocks, 64, 4], grad: bf16[blocks, 64, 4], mean: i32[blocks, 64], mean_scale: f32[blocks], square: i32[blocks, 64],
                   square_scale: f32[blocks], rate=0.001):
    """Adam whose states have 8 bits, four in a word, and a scale for 256 of them: unpacked, moved, packed again by new scales."""
    at = (bl, wo, by)
    old = nestor.cast(f32, ((mean[bl, wo] >> (8 * by)) & 255) - 128) * mean_scale[bl] / 127
    moved = define("moved", at, 0.9 * old + 0.1 * grad[at])
    past = nestor.cast(f32, (square[bl, wo] >> (8 * by)) & 255) * square_scale[bl] / 255
    grown = define("grown", at, 0.999 * past + 0.001 * grad[at] * grad[at])
    top = define("top", bl, nestor.maximum(nestor.max(nestor.absolute(moved[at]), over=(wo, by)), 1e-12))
    most = define("most", bl, nestor.maximum(nestor.max(grown[at], over=(wo, by)), 1e-12))
    code = nestor.cast(i32, nestor.floor(moved[at] / top[bl] * 127 + 0.5)) + 128
    count = nestor.cast(i32, nestor.floor(grown[at] / most[bl] * 255 + 0.5))
    return (define("out", at, weight[at] - rate * moved[at] / (nestor.sqrt(grown[at]) + 1e-6)),
            define("codes", (bl, wo), nestor.sum(code << (8 * by), over=by)), top,
            define("counts", (bl, wo), nestor.sum(count << (8 * by), over=by)), most)


def _blockwise(weight, grad, mean, mean_scale, square, square_scale):
    shifts = 8 * torch.arange(4, device=weight.device, dtype=torch.int32)
    grad = widened(grad)
    moved = 0.9 * ((((mean[..., None] >> shifts) & 255) - 128) * mean_scale[:, None, None] / 127) + 0.1 * grad
    grown = 0.999 * (((square[..., None] >> shifts) & 255) * square_scale[:, None, None] / 255) + 0.001 * grad.square()
    top, most = moved.abs().amax((1, 2)).clamp(min=1e-12), grown.amax((1, 2)).clamp(min=1e-12)
    code = torch.floor(moved / top[:, None, None] * 127 + 0.5).int() + 128
    count = torch.floor(grown / most[:, None, None] * 255 + 0.5).int()
    return (weight - 0.001 * moved / (grown.sqrt() + 1e-6), (code << shifts).sum(2, dtype=torch.int32), top,
            (count << shifts).sum(2, dtype=torch.int32), most)


texts, words = Size("texts", 512), Size("words", 50257)
t, v, v2 = indices(t=texts, v=words, v2=words)


@nestor.nest
def watermarked_scores(logit: bf16[texts, words], before: i32[texts]):
    """A watermark: half of all words are green, by a hash of them and the word before; they are made likelier. And how likely they are together."""
    mixed = (before[t] * 40503 + nestor.cast(i32, v)) * 73244475
    mixed = ((nestor.shift_right_logical(mixed, 16)) ^ mixed) * 73244475
    green = define("green", (t, v), (mixed >> 13) & 1)
    raised = define("raised", (t, v), logit[t, v] + 2 * nestor.cast(f32, green[t, v]))
    top = define("top", t, nestor.max(raised[t, v], over=v))
    total = define("total", t, nestor.sum(nestor.exp(raised[t, v] - top[t]), over=v))
    part = nestor.sum(nestor.select(green[t, v] == 1, nestor.exp(raised[t, v] - top[t]), 0.0), over=v)
    return (define("out", (t, v2), raised[t, v2] - top[t] - nestor.log(total[t]), type=bf16), define("likely", t, part / total[t]))


def _watermarked(logit, before):
    mixed = (before[:, None] * 40503 + torch.arange(logit.shape[1], device=logit.device, dtype=torch.int32)) * 73244475
    mixed = (((mixed >> 16) & 65535) ^ mixed) * 73244475
    green = (mixed >> 13) & 1
    share = torch.log_softmax(widened(logit) + 2 * green, 1)
    return share.to(logit.dtype), (share.exp() * green).sum(1)


batch, parts, steps_ = Size("batch", 8), Size("parts", 16), Size("steps", 499)
ba, pa, o, n, st, ta = indices(ba=batch, pa=parts, o=48, n=48, st=steps_, ta=128)


@nestor.nest
def positional_conv(x: f16[batch, parts, 48, steps_ + 127], weight: f16[parts, 48, 48, 128], bias: f32[parts, 48]):
    """Wav2vec's positions: a convolution of 16 groups that sees 128 steps, then GELU."""
    line = define("line", (ba, pa, o, st), nestor.sum(x[ba, pa, n, st + ta] * weight[pa, o, n, ta], over=(n, ta)) + bias[pa, o])
    at = line[ba, pa, o, st]
    return define("out", (ba, pa, o, st), 0.5 * at * (1 + nestor.erf(at * 0.70710678)), type=f16)


def _positional(x, weight, bias):
    line = F.conv1d(x.flatten(1, 2), weight.flatten(0, 1), bias.flatten().to(x.dtype), groups=weight.shape[0])
    return F.gelu(line).unflatten(1, bias.shape)


pictures, half, pixels = Size("pictures", 256), Size("half", 24, fixed=True), Size("pixels", 1024)
pi, c1, c2, ha, px = indices(pi=pictures, c1=2 * half, c2=2 * half, ha=half, px=pixels)


@nestor.nest
def coupling_flow(x: f32[pictures, 2 * half, pixels], scale: f32[2 * half], bias: f32[2 * half], mix: f32[2 * half, 2 * half],
                  shift: f32[pictures, half, pixels], gate: f32[pictures, half, pixels]):
    """A step of Glow: channels scaled, mixed with each other, and half of them moved by what a network made of the others; how volumes change."""
    mixed = define("mixed", (pi, c1, px), nestor.sum(mix[c1, c2] * (scale[c2] * (x[pi, c2, px] + bias[c2])), over=c2))
    wide_ = define("open", (pi, ha, px), nestor.sigmoid(gate[pi, ha, px] + 2))
    return (define("kept", (pi, ha, px), mixed[pi, ha, px]),
            define("out", (pi, ha, px), (mixed[pi, ha + half, px] + shift[pi, ha, px]) * wide_[pi, ha, px]),
            define("volume", pi, nestor.sum(nestor.log(wide_[pi, ha, px]), over=(ha, px))))


def _coupling(x, scale, bias, mix, shift, gate):
    kept, moved = (mix @ (scale[:, None] * (x + bias[:, None]))).chunk(2, 1)
    open_ = torch.sigmoid(gate + 2)
    return kept, (moved + shift) * open_, open_.log().sum((1, 2))


visits, fields, long = Size("visits", 4096), Size("fields", 26), Size("long", 16, fixed=True)
vi, f1, f2, lo = indices(vi=visits, f1=fields, f2=fields, lo=long)


@nestor.nest
def field_aware_machine(table: f16[visits, fields, fields, long], worth: f32[visits, fields]):
    """A field-aware factorization machine: each pair of fields meets by the vectors that each has for the other."""
    meet = define("meet", (vi, f1, f2), nestor.sum(table[vi, f1, f2, lo] * table[vi, f2, f1, lo], over=lo), where=f1 < f2)
    return define("out", vi, nestor.sigmoid(nestor.sum(meet[vi, f1, f2] * worth[vi, f1] * worth[vi, f2], over=(f1, f2), where=f1 < f2)))


def _field_aware(table, worth):
    meet = (widened(table) * widened(table.transpose(1, 2))).sum(3) * worth[:, :, None] * worth[:, None]
    return torch.sigmoid(meet.triu(1).sum((1, 2)))


chunks, minds, size, state = Size("chunks", 32), Size("minds", 24), Size("size", 256, fixed=True), Size("state", 128, fixed=True)
ch, mi, p, q_, m, k = indices(ch=chunks, mi=minds, p=size, q_=size, m=64, k=state)


@nestor.nest
def chunk_gradients(read: bf16[chunks, size, state], write: bf16[chunks, size, state], x: bf16[chunks, minds, size, 64],
                    grad: bf16[chunks, minds, size, 64], decay: f32[chunks, minds, size]):
    """Mamba-2 backward within its chunks: of what came in, and of what all heads write and read by."""
    sees = q_ <= p
    fade = define("fade", (ch, mi, p, q_), nestor.exp(decay[ch, mi, p] - decay[ch, mi, q_]), where=sees)
    score = define("score", (ch, p, q_), nestor.sum(read[ch, p, k] * write[ch, q_, k], over=k), where=sees)
    come = define("come", (ch, mi, p, q_), nestor.sum(grad[ch, mi, p, m] * x[ch, mi, q_, m], over=m), where=sees)
    back = define("back", (ch, p, q_), nestor.sum(come[ch, mi, p, q_] * fade[ch, mi, p, q_], over=mi), where=sees, type=bf16)
    weight = define("weight", (ch, mi, p, q_), score[ch, p, q_] * fade[ch, mi, p, q_], where=sees)
    return (define("dx", (ch, mi, q_, m), nestor.sum(weight[ch, mi, p, q_] * grad[ch, mi, p, m], over=p, where=sees), type=bf16),
            define("d_read", (ch, p, k), nestor.sum(back[ch, p, q_] * write[ch, q_, k], over=q_, where=sees), type=bf16),
            define("d_write", (ch, q_, k), nestor.sum(back[ch, p, q_] * read[ch, p, k], over=p, where=sees), type=bf16))


def _chunk_gradients(read, write, x, grad, decay):
    fade = torch.exp((decay[..., :, None] - decay[..., None, :]).tril()).tril()
    back = (widened(grad @ x.mT) * fade).sum(1).to(x.dtype)
    weight = (widened(read @ write.mT)[:, None] * fade).to(x.dtype)
    return weight.mT @ grad, back @ write, back.mT @ read


films, pairs, inner = Size("films", 256), Size("pairs", 288), Size("inner", 64, fixed=True)
fi, one_, two_, z, z2 = indices(fi=films, one_=pairs, two_=pairs, z=inner, z2=inner)


@nestor.nest
def token_merging(x: f16[films, pairs, 2, inner]):
    """Token merging: of every second token the one of the others that is most like it, and how much."""
    pace = [define(f"pace_{side}", (fi, one_), nestor.rsqrt(nestor.sum(x[fi, one_, side, z] * x[fi, one_, side, z], over=z))) for side in (0, 1)]
    score = define("score", (fi, one_, two_), nestor.sum(x[fi, one_, 0, z] * x[fi, two_, 1, z], over=z) * pace[0][fi, one_] * pace[1][fi, two_])
    best = define("out", (fi, one_), nestor.max(score[fi, one_, two_], over=two_))
    same = nestor.select(score[fi, one_, two_] == best[fi, one_], nestor.cast(i32, two_), 1 << 30)
    return best, define("place", (fi, one_), nestor.min(same, over=two_))


def _merging(x):
    x = widened(x)
    x = x / x.norm(dim=3, keepdim=True)
    best, place = (x[:, :, 0] @ x[:, :, 1].mT).max(2)
    return best, place.int()


looks, late, tall, broad = Size("looks", 12), Size("late", 5), Size("tall", 6), Size("broad", 10)
lk, t1, y1, x1, i1, t2, y2, x2, i2 = indices(lk=looks, t1=late, y1=tall, x1=broad, i1=64, t2=late, y2=tall, x2=broad, i2=64)
d1, d2 = indices(d1=dim, d2=dim)


@nestor.nest
def sliding_tile_attention(q: bf16[looks, late, tall, broad, 64, dim], key: bf16[looks, late, tall, broad, 64, dim],
                           value: bf16[looks, late, tall, broad, 64, dim]):
    """Video by tiles of 64 tokens: each sees the tiles around its own, whole."""
    at, to, over = (lk, t1, y1, x1, i1), (t2, y2, x2, i2), (t2, y2, x2, i2)
    near = (t2 <= t1 + 1) & (t2 >= t1 - 1) & (y2 <= y1 + 1) & (y2 >= y1 - 1) & (x2 <= x1 + 1) & (x2 >= x1 - 1)
    score = define("score", (*at, *to), nestor.sum(q[(*at, d1)] * key[(lk, *to, d1)], over=d1) / 8, where=near)
    top = define("top", at, nestor.max(score[(*at, *to)], over=over, where=near))
    power = define("power", (*at, *to), nestor.exp(score[(*at, *to)] - top[at]), where=near)
    total = define("total", at, nestor.sum(power[(*at, *to)], over=over, where=near))
    return define("out", (*at, d2), nestor.sum(power[(*at, *to)] * value[(lk, *to, d2)], over=over, where=near) / total[at], type=bf16)


def _tiles_near(late, tall, broad, device):
    tile = torch.stack(torch.meshgrid(*(torch.arange(n, device=device) for n in (late, tall, broad)), indexing="ij")).flatten(1)
    return ((tile[:, :, None] - tile[:, None]).abs() <= 1).all(0)


def _sliding(q, key, value):
    near = _tiles_near(*q.shape[1:4], q.device).repeat_interleave(64, 0).repeat_interleave(64, 1)
    out = F.scaled_dot_product_attention(*(x.flatten(1, 4)[None] for x in (q, key, value)), near, scale=0.125)
    return out.view(q.shape)


def _tile_mask(sizes):
    tall, broad = sizes["tall"], sizes["broad"]

    def near(b, h, i, j):
        i, j = i // 64, j // 64
        return ((i // (tall * broad) - j // (tall * broad)).abs() <= 1) & ((i // broad % tall - j // broad % tall).abs() <= 1) & \
            ((i % broad - j % broad).abs() <= 1)
    return near, 64 * sizes["late"] * tall * broad


def _flex_tiles(q, key, value, mask):
    return flex_attention(*(x.flatten(1, 4)[None] for x in (q, key, value)), scale=0.125, block_mask=mask).view(q.shape)


clouds, points, deep = Size("clouds", 64), Size("points", 2048), Size("deep", 1024)
cl, po, l0, l1, l2 = indices(cl=clouds, po=points, l0=64, l1=128, l2=deep)


@nestor.nest
def point_features(x: f16[clouds, points, 64], first: f16[128, 64], one_bias: f32[128], second: f16[deep, 128], two_bias: f32[deep]):
    """PointNet: the last two layers of every point, and the largest of each feature over a cloud."""
    one = define("one", (cl, po, l1), nestor.maximum(nestor.sum(x[cl, po, l0] * first[l1, l0], over=l0) + one_bias[l1], 0.0), type=f16)
    two = define("two", (cl, po, l2), nestor.maximum(nestor.sum(one[cl, po, l1] * second[l2, l1], over=l1) + two_bias[l2], 0.0))
    return define("out", (cl, l2), nestor.max(two[cl, po, l2], over=po), type=f16)


def _point_features(x, first, one_bias, second, two_bias):
    one = F.relu(F.linear(x, first, one_bias.to(x.dtype)))
    return F.relu(F.linear(one, second, two_bias.to(x.dtype))).amax(1)


def _falling(x, _):
    """Draws what has decayed so far, along the last dimension."""
    return -0.05 * x.abs().cumsum(-1)


def _packed(x, _):
    """Draws any 32 bits."""
    return (x * 1e9).clamp(-2e9, 2e9)


def _small(x, _):
    return 0.01 * torch.sigmoid(x)


OPERATORS = [
    Operator(log_linear_attention, _log_linear, "H. Guo et al., arXiv:2506.04761", {"heads": 2, "length": 13, "dim": 16},
             draw={"decay": _falling, "share": lambda x, _: torch.sigmoid(x) / 8}),
    Operator(pair_bias_gradient, _pair_bias, "J. Jumper et al., 2021; G. Ahdritz et al., OpenFold, 2024",
             {"rows": 3, "eyes": 2, "places": 9, "depth": 16}, draw={"total": lambda x, sizes: 2 + 0.1 * x, "delta": lambda x, _: 0.1 * x}),
    Operator(expert_backward, _expert_backward, "N. Shazeer, arXiv:2002.05202; T. Gale et al., MegaBlocks, arXiv:2211.15841",
             {"experts": 2, "slots": 5, "wide": 12, "hidden": 7}, draw={name: divided("wide") for name in ("gate", "up", "down")}),
    Operator(blockwise_adam, _blockwise, "T. Dettmers et al., arXiv:2110.02861", {"blocks": 3},
             draw={"mean": _packed, "square": _packed, "mean_scale": _small, "square_scale": _small}),
    Operator(watermarked_scores, _watermarked, "J. Kirchenbauer et al., arXiv:2301.10226", {"texts": 3, "words": 37},
             draw={"before": lambda x, _: (x * 10000).abs()}),
    Operator(positional_conv, _positional, "A. Baevski et al., wav2vec 2.0, arXiv:2006.11477", {"batch": 2, "parts": 2, "steps": 5},
             draw={"weight": lambda x, _: x / (48 * 128)**0.5}),
    Operator(coupling_flow, _coupling, "D. Kingma and P. Dhariwal, Glow, arXiv:1807.03039", {"pictures": 2, "half": 4, "pixels": 9},
             draw={"mix": divided("half")}),
    Operator(field_aware_machine, _field_aware, "Y. Juan et al., 2016", {"visits": 3, "fields": 5, "long": 8}, draw={"table": divided("fields")}),
    Operator(chunk_gradients, _chunk_gradients, "T. Dao and A. Gu, arXiv:2405.21060", {"chunks": 2, "minds": 3, "size": 16, "state": 16},
             draw={"decay": _falling, "read": divided("state")}),
    Operator(token_merging, _merging, "D. Bolya et al., arXiv:2210.09461", {"films": 2, "pairs": 7, "inner": 16}),
    Operator(sliding_tile_attention, _sliding, "P. Zhang et al., arXiv:2502.04507", {"looks": 2, "late": 1, "tall": 3, "broad": 2, "dim": 16},
             flex=_flex_tiles, seen=_tile_mask),
    Operator(point_features, _point_features, "C. Qi et al., PointNet, arXiv:1612.00593", {"clouds": 2, "points": 9, "deep": 11},
             draw={"first": lambda x, _: x / 8, "second": lambda x, _: x / 11}),
]
