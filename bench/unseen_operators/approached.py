"""What language models of 2024 to 2026 run and train by: sparse attention of three branches, indexed keys, parameters as tokens, policies of
whole sequences, orthogonal steps, gradients through rotary norms, memories with momentum, adapters of four-bit layers, drafts that are judged."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, around_one, divided, widened

heads, length, dim, blocks = Size("heads", 16), Size("length", 2048), Size("dim", 64, fixed=True), Size("blocks", 64)
h, i, j, k, d, e, s, w = indices(h=heads, i=length, j=length, k=blocks, d=dim, e=dim, s=32, w=length)


def softmax_of(name, score, at, over, sees):
    """Weights of the scores that are seen, and their total: two tensors."""
    top = define(f"{name}_top", at, nestor.max(score, over=over, where=sees))
    power = define(f"{name}_power", (*at, over), nestor.exp(score - top[at]), where=sees)
    return power, define(f"{name}_total", at, nestor.sum(power[(*at, over)], over=over, where=sees))


@nestor.nest(require=length >= blocks * 32)
def native_sparse_attention(q: bf16[heads, length, dim], key: bf16[heads, length, dim], value: bf16[heads, length, dim], place: f32[32],
                            gate: bf16[heads, length, 2]):
    """Native sparse attention without its chosen blocks: keys of 32 made one, and the last 256, mixed by gates. The newest block is always seen."""
    short_key = define("short_key", (h, k, d), nestor.sum(key[h, 32 * k + s, d] * place[s], over=s), type=bf16)
    short_value = define("short_value", (h, k, d), nestor.sum(value[h, 32 * k + s, d] * place[s], over=s), type=bf16)
    past = 32 * k <= i
    coarse = define("coarse", (h, i, k), nestor.sum(q[h, i, d] * short_key[h, k, d], over=d) / 8, where=past)
    power, total = softmax_of("coarse", coarse[h, i, k], (h, i), k, past)
    near = (j <= i) & (j > i - 256)
    fine = define("fine", (h, i, j), nestor.sum(q[h, i, d] * key[h, j, d], over=d) / 8, where=near)
    close, whole = softmax_of("fine", fine[h, i, j], (h, i), j, near)
    first = define("first", (h, i, e), nestor.sum(power[h, i, k] * short_value[h, k, e], over=k, where=past) / total[h, i])
    second = define("second", (h, i, e), nestor.sum(close[h, i, j] * value[h, j, e], over=j, where=near) / whole[h, i])
    return define("out", (h, i, e), nestor.sigmoid(gate[h, i, 0]) * first[h, i, e] + nestor.sigmoid(gate[h, i, 1]) * second[h, i, e], type=bf16)


def _native(q, key, value, place, gate, blocks):
    places = torch.arange(q.shape[1], device=q.device)
    short_key, short_value = ((widened(t)[:, :32 * blocks].unflatten(1, (blocks, 32)) * place[:, None]).sum(2).to(t.dtype) for t in (key, value))
    coarse = 32 * torch.arange(blocks, device=q.device) <= places[:, None]
    near = (places <= places[:, None]) & (places > places[:, None] - 256)
    first = F.scaled_dot_product_attention(q, short_key, short_value, coarse, scale=0.125)
    second = F.scaled_dot_product_attention(q, key, value, near, scale=0.125)
    gate = torch.sigmoid(widened(gate))
    return (gate[..., :1] * widened(first) + gate[..., 1:] * widened(second)).to(q.dtype)


eyes, tokens, wide, small = Size("eyes", 8), Size("tokens", 1536), Size("wide", 128, fixed=True), Size("small", 32, fixed=True)
y, a, b, c, v, m, n = indices(y=eyes, a=tokens, b=tokens, c=wide, v=wide, m=small, n=4)


@nestor.nest
def indexed_attention(q: f16[eyes, tokens, wide], key: f16[tokens, wide], value: f16[tokens, wide], seek: f16[4, tokens, small], index: f16[tokens, small],
                      share: f32[4, tokens], least: f32[tokens]):
    """DeepSeek's sparse attention: a small indexer says which keys all heads of a query look at; here, those above its threshold, and itself."""
    found = define("found", (n, a, b), nestor.maximum(nestor.sum(seek[n, a, m] * index[b, m], over=m), 0.0), where=b <= a)
    rank = define("rank", (a, b), nestor.sum(share[n, a] * found[n, a, b], over=n), where=b <= a)
    score = define("score", (y, a, b), nestor.sum(q[y, a, c] * key[b, c], over=c) * 0.08838835, where=b <= a)
    kept = nestor.select((rank[a, b] >= least[a]) | (nestor.cast(i32, a) == nestor.cast(i32, b)), score[y, a, b], -1e30)
    seen = define("kept", (y, a, b), kept, where=b <= a)
    power, total = softmax_of("out", seen[y, a, b], (y, a), b, b <= a)
    return define("out", (y, a, v), nestor.sum(power[y, a, b] * value[b, v], over=b, where=b <= a) / total[y, a], type=f16)


def _indexed(q, key, value, seek, index, share, least):
    rank = (share[..., None] * widened(F.relu(seek @ index.T))).sum(0)
    places = torch.arange(q.shape[1], device=q.device)
    kept = ((rank >= least[:, None]) & (places <= places[:, None])) | (places == places[:, None])
    return F.scaled_dot_product_attention(q, key.expand_as(q), value.expand_as(q), kept, scale=0.08838835)


@nestor.nest
def sigmoid_attention_backward(q: bf16[heads, length, dim], key: bf16[heads, length, dim], value: bf16[heads, length, dim], grad: bf16[heads, length, dim]):
    """Gradients of sigmoid attention: no row has a total, so every entry stands for itself."""
    score = nestor.sum(q[h, i, d] * key[h, j, d], over=d) / 8 - 7.625
    share = define("share", (h, i, j), nestor.sigmoid(score))
    come = define("come", (h, i, j), nestor.sum(grad[h, i, e] * value[h, j, e], over=e))
    back = define("back", (h, i, j), come[h, i, j] * share[h, i, j] * (1 - share[h, i, j]))
    return (define("dq", (h, i, d), nestor.sum(back[h, i, j] * key[h, j, d], over=j) / 8, type=bf16),
            define("dk", (h, j, d), nestor.sum(back[h, i, j] * q[h, i, d], over=i) / 8, type=bf16),
            define("dv", (h, j, e), nestor.sum(share[h, i, j] * grad[h, i, e], over=i), type=bf16))


def _sigmoid_backward(q, key, value, grad):
    share = torch.sigmoid(widened(q @ key.transpose(1, 2)) / 8 - 7.625)
    back = (widened(grad @ value.transpose(1, 2)) * share * (1 - share)).to(q.dtype)
    return back @ key / 8, back.transpose(1, 2) @ q / 8, share.to(q.dtype).transpose(1, 2) @ grad


rows, ins, slots, outs = Size("rows", 4096), Size("ins", 768), Size("slots", 1200), Size("outs", 768)
r, x, t, u, t2 = indices(r=rows, x=ins, t=slots, u=outs, t2=slots)


@nestor.nest
def parameter_attention(tokens: bf16[rows, ins], key: bf16[slots, ins], value: bf16[slots, outs]):
    """TokenFormer: a layer's parameters are tokens that rows look at; scores are kept at one length and gated, not made shares."""
    score = define("score", (r, t), nestor.sum(tokens[r, x] * key[t, x], over=x))
    square = define("square", r, nestor.sum(score[r, t2] * score[r, t2], over=t2))
    scaled = score[r, t] * nestor.rsqrt(square[r] / slots + 1e-6)
    gated = define("gated", (r, t), 0.5 * scaled * (1 + nestor.erf(scaled * 0.70710678)), type=bf16)
    return define("out", (r, u), nestor.sum(gated[r, t] * value[t, u], over=t), type=bf16)


def _parameters(tokens, key, value):
    score = widened(tokens @ key.T)
    scaled = score * torch.rsqrt(score.square().mean(1, keepdim=True) + 1e-6)
    return F.gelu(scaled).to(value.dtype) @ value


groups, members, steps_ = Size("groups", 64), Size("members", 16), Size("steps", 4096)
g, o, o2, l, l2 = indices(g=groups, o=members, o2=members, l=steps_, l2=steps_)


@nestor.nest
def sequence_policy_loss(new: f32[groups, members, steps_], old: f32[groups, members, steps_], mask: f32[groups, members, steps_],
                         reward: f32[groups, members], clip=0.0003):
    """GSPO: whole sequences have one ratio, the geometric mean of their tokens', clipped; rewards count within their group. And the gradient."""
    mean = define("mean", g, nestor.sum(reward[g, o], over=o) / members)
    spread = define("spread", g, nestor.sum((reward[g, o] - mean[g]) * (reward[g, o] - mean[g]), over=o) / members)
    gain = define("gain", (g, o), (reward[g, o] - mean[g]) * nestor.rsqrt(spread[g] + 1e-4))
    size = define("size", (g, o), nestor.sum(mask[g, o, l], over=l))
    change = nestor.sum((new[g, o, l] - old[g, o, l]) * mask[g, o, l], over=l)
    ratio = define("ratio", (g, o), nestor.exp(change / size[g, o]))
    held = nestor.minimum(nestor.maximum(ratio[g, o], 1 - clip), 1 + clip)
    term = define("term", (g, o), nestor.minimum(ratio[g, o] * gain[g, o], held * gain[g, o]))
    loss = define("out", (), -nestor.sum(term[g, o2], over=(g, o2)) / groups / members)
    moves = nestor.select(ratio[g, o] * gain[g, o] <= held * gain[g, o], ratio[g, o] * gain[g, o], 0.0)
    return loss, define("grad", (g, o, l2), -moves * mask[g, o, l2] / size[g, o] / groups / members)


def _policy(new, old, mask, reward):
    gain = (reward - reward.mean(1, keepdim=True)) * torch.rsqrt(reward.var(1, keepdim=True, unbiased=False) + 1e-4)
    size = mask.sum(2)
    ratio = torch.exp(((new - old) * mask).sum(2) / size)
    free, held = ratio * gain, ratio.clamp(1 - 0.0003, 1 + 0.0003) * gain
    moves = torch.where(free <= held, free, 0.0) / size
    return -torch.minimum(free, held).mean(), -moves[..., None] * mask / gain.numel()


tall, broad = Size("tall", 1024), Size("broad", 1536)
p, p2, p3, z, z2 = indices(p=tall, p2=tall, p3=tall, z=broad, z2=broad)


@nestor.nest
def polar_express(momentum: bf16[tall, broad]):
    """Muon with the best polynomials: three steps of odd powers, each with coefficients of its own, toward singular values of one."""
    length = define("length", (), nestor.sqrt(nestor.sum(momentum[p, z] * momentum[p, z], over=(p, z))) * 1.02 + 1e-6)
    value = define("value_0", (p, z), momentum[p, z] / length[()], type=bf16)
    for step, (one, three, five) in enumerate(((8.2051, -22.9019, 16.4607), (4.0664, -2.8612, 0.5184), (3.9096, -2.8234, 0.5250))):
        gram = define(f"gram_{step}", (p, p2), nestor.sum(value[p, z] * value[p2, z], over=z), type=bf16)
        square = nestor.sum(gram[p, p3] * gram[p3, p2], over=p3)
        factor = define(f"factor_{step}", (p, p2), three * gram[p, p2] + five * square, type=bf16)
        moved = nestor.sum(factor[p, p2] * value[p2, z], over=p2)
        value = define("out" if step == 2 else f"value_{step + 1}", (p, z), one * value[p, z] + moved, type=bf16)
    return value


def _polar(momentum):
    value = (widened(momentum) / (widened(momentum).norm() * 1.02 + 1e-6)).to(momentum.dtype)
    for one, three, five in ((8.2051, -22.9019, 16.4607), (4.0664, -2.8612, 0.5184), (3.9096, -2.8234, 0.5250)):
        gram = value @ value.T
        value = one * value + (three * gram + five * (gram @ gram)) @ value
    return value


many, parts, half = Size("many", 8192), Size("parts", 20), Size("half", 64, fixed=True)
ma, pa, hf, hf2, q1, q2 = indices(ma=many, pa=parts, hf=half, hf2=half, q1=many, q2=parts)


@nestor.nest
def normed_rotary_backward(x: bf16[many, parts, 2, half], grad: bf16[many, parts, 2, half], weight: f32[2, half], cosine: f32[many, half],
                           sine: f32[many, half]):
    """Gradients through a head's norm and its rotation, both ways of a pair in one: of what came in, and of the norm's weights."""
    square = nestor.sum(x[ma, pa, 0, hf] * x[ma, pa, 0, hf] + x[ma, pa, 1, hf] * x[ma, pa, 1, hf], over=hf)
    pace = define("pace", (ma, pa), nestor.rsqrt(square / 2 / half + 1e-6))
    turned = [define("turned_0", (ma, pa, hf), grad[ma, pa, 0, hf] * cosine[ma, hf] + grad[ma, pa, 1, hf] * sine[ma, hf]),
              define("turned_1", (ma, pa, hf), grad[ma, pa, 1, hf] * cosine[ma, hf] - grad[ma, pa, 0, hf] * sine[ma, hf])]
    dot = define("dot", (ma, pa), nestor.sum(sum(turned[side][ma, pa, hf2] * weight[side, hf2] * x[ma, pa, side, hf2] for side in (0, 1)), over=hf2))
    near = [define(f"dx_{side}", (ma, pa, hf), pace[ma, pa] * (turned[side][ma, pa, hf] * weight[side, hf]
                                                              - x[ma, pa, side, hf] * dot[ma, pa] * pace[ma, pa] * pace[ma, pa] / 2 / half), type=bf16)
            for side in (0, 1)]
    far = [define(f"dw_{side}", hf, nestor.sum(turned[side][q1, q2, hf] * x[q1, q2, side, hf] * pace[q1, q2], over=(q1, q2))) for side in (0, 1)]
    return (*near, *far)


def _rotary_backward(x, grad, weight, cosine, sine):
    x, (one, two) = widened(x), widened(grad).unbind(2)
    turned = torch.stack([one * cosine[:, None] + two * sine[:, None], two * cosine[:, None] - one * sine[:, None]], 2)
    pace = torch.rsqrt(x.square().mean((2, 3), keepdim=True) + 1e-6)
    scaled = turned * weight
    near = (pace * (scaled - x * pace * pace * (scaled * x).mean((2, 3), keepdim=True))).to(grad.dtype)
    far = (turned * x * pace).sum((0, 1))
    return near[:, :, 0], near[:, :, 1], far[0], far[1]


minds, times, deep = Size("minds", 64), Size("times", 256), Size("deep", 64, fixed=True)
mi, ti, fa, fb, fc = indices(mi=minds, ti=times, fa=deep, fb=deep, fc=deep)


@nestor.nest
def momentum_memory(q: f32[minds, times, deep], key: f32[minds, times, deep], value: f32[minds, times, deep], forget: f32[minds, times],
                    push: f32[minds, times], rate: f32[minds, times]):
    """Titans: a linear memory learns each pair of key and value by a step of gradient descent with momentum, and forgets; what queries read."""
    memory, speed = nestor.Tensor("memory", f32, (times + 1, minds, deep, deep)), nestor.Tensor("speed", f32, (times + 1, minds, deep, deep))
    memory.write((mi, fa, fb), (0, mi, fa, fb), 0.0)
    speed.write((mi, fa, fb), (0, mi, fa, fb), 0.0)
    with nestor.steps(ti):
        wrong = define("wrong", (ti, mi, fa), nestor.sum(memory[ti, mi, fa, fc] * key[mi, ti, fc], over=fc) - value[mi, ti, fa])
        speed.write((ti, mi, fa, fb), (ti + 1, mi, fa, fb), push[mi, ti] * speed[ti, mi, fa, fb] - rate[mi, ti] * wrong[ti, mi, fa] * key[mi, ti, fb])
        memory.write((ti, mi, fa, fb), (ti + 1, mi, fa, fb), forget[mi, ti] * memory[ti, mi, fa, fb] + speed[ti + 1, mi, fa, fb])
    return define("out", (mi, ti, fa), nestor.sum(memory[ti + 1, mi, fa, fc] * q[mi, ti, fc], over=fc))


def _memory(q, key, value, forget, push, rate):
    memory = torch.zeros(q.shape[0], q.shape[2], q.shape[2], dtype=q.dtype, device=q.device)
    speed, out = memory, []
    for step in range(q.shape[1]):
        wrong = (memory @ key[:, step, :, None])[..., 0] - value[:, step]
        speed = push[:, step, None, None] * speed - rate[:, step, None, None] * wrong[..., None] * key[:, step, None]
        memory = forget[:, step, None, None] * memory + speed
        out.append((memory @ q[:, step, :, None])[..., 0])
    return torch.stack(out, 1)


batch, scales, left, rank = Size("batch", 2048), Size("scales", 32), Size("left", 2048), Size("rank", 16, fixed=True)
ba, io, ni, ler, ra, lv = indices(ba=batch, io=8 * scales, ni=8, ler=left, ra=rank, lv=16)
io2, ni2 = indices(io2=8 * scales, ni2=8)


@nestor.nest
def four_bit_adapter(x: bf16[batch, 8 * scales, 8], code: i32[left, 8 * scales], scale: f32[left, scales], book: f32[16],
                     down: bf16[rank, 8 * scales, 8], up: bf16[left, rank]):
    """QLoRA: weights of 4 bits from a table of normal levels, eight in a word, a scale for 64; an adapter of low rank beside them."""
    bits = (code[ler, io] >> (4 * ni)) & 15
    level = nestor.sum(nestor.select(bits == nestor.cast(i32, lv), book[lv], 0.0), over=lv)
    weight = define("weight", (ler, io, ni), level * scale[ler, io // 8], type=bf16)
    low = define("low", (ba, ra), nestor.sum(x[ba, io2, ni2] * down[ra, io2, ni2], over=(io2, ni2)), type=bf16)
    main = nestor.sum(x[ba, io, ni] * weight[ler, io, ni], over=(io, ni))
    return define("out", (ba, ler), main + 2 * nestor.sum(low[ba, ra] * up[ler, ra], over=ra), type=bf16)


def _four_bits(x, code, scale, book, down, up):
    shifts = 4 * torch.arange(8, device=x.device, dtype=torch.int32)
    weight = (book[((code[..., None] >> shifts) & 15).long()] * scale.repeat_interleave(8, 1)[..., None]).to(x.dtype).flatten(1)
    return x.flatten(1) @ weight.T + 2 * ((x.flatten(1) @ down.flatten(1).T) @ up.T)


high, far = Size("high", 48), Size("far", 40)
hi, i1, fr, j1 = indices(hi=high, i1=128, fr=far, j1=128)


@nestor.nest
def two_way_quantise(x: bf16[high, 128, far, 128]):
    """Training in 8 bits: what a forward pass reads along rows and a backward pass along columns, each with a scale for 128 neighbours."""
    row = define("row_scale", (hi, i1, fr), nestor.maximum(nestor.max(nestor.absolute(x[hi, i1, fr, j1]), over=j1), 1e-4) / 448)
    column = define("column_scale", (fr, j1, hi), nestor.maximum(nestor.max(nestor.absolute(x[hi, i1, fr, j1]), over=i1), 1e-4) / 448)
    return (define("out", (hi, i1, fr, j1), x[hi, i1, fr, j1] / row[hi, i1, fr], type=bf16), row,
            define("turned", (fr, j1, hi, i1), x[hi, i1, fr, j1] / column[fr, j1, hi], type=bf16), column)


def _two_way(x):
    row = widened(x).abs().amax(3).clamp(min=1e-4) / 448
    column = widened(x).abs().amax(1).permute(1, 2, 0).clamp(min=1e-4) / 448
    return (widened(x) / row[..., None]).to(x.dtype), row, (widened(x).permute(2, 3, 0, 1) / column[..., None]).to(x.dtype), column


drafts, words = Size("drafts", 64), Size("words", 32000)
dr, wo, wo2 = indices(dr=drafts, wo=words, wo2=words)


@nestor.nest
def draft_verification(target: bf16[drafts, words], draft: bf16[drafts, words], proposed: i32[drafts], luck: f32[drafts]):
    """Speculative decoding: is a drafted word kept, and what a word in its place is drawn from, where it is not."""
    def shares(name, logit):
        top = define(f"{name}_top", dr, nestor.max(logit[dr, wo], over=wo))
        total = define(f"{name}_total", dr, nestor.sum(nestor.exp(logit[dr, wo] - top[dr]), over=wo))
        return define(f"{name}_share", (dr, wo2), nestor.exp(logit[dr, wo2] - top[dr]) / total[dr])
    wanted, guessed = shares("target", target), shares("draft", draft)

    def of_word(name, share):
        return define(name, dr, nestor.sum(nestor.select(nestor.cast(i32, wo) == proposed[dr], share[dr, wo], 0.0), over=wo))
    likely, tried = of_word("likely", wanted), of_word("tried", guessed)
    kept = define("kept", dr, nestor.select(luck[dr] * tried[dr] <= likely[dr], 1, 0))
    rest = define("rest", (dr, wo), nestor.maximum(wanted[dr, wo] - guessed[dr, wo], 0.0))
    whole = define("whole", dr, nestor.sum(rest[dr, wo], over=wo) + 1e-9)
    return kept, define("out", (dr, wo2), rest[dr, wo2] / whole[dr])


def _drafts(target, draft, proposed, luck):
    wanted, guessed = torch.softmax(widened(target), 1), torch.softmax(widened(draft), 1)
    likely, tried = (share.gather(1, proposed.long()[:, None])[:, 0] for share in (wanted, guessed))
    rest = (wanted - guessed).clamp(min=0)
    return (luck * tried <= likely).to(torch.int32), rest / (rest.sum(1, keepdim=True) + 1e-9)


def _unit(x, _):
    """Draws numbers from 0 to 1."""
    return torch.sigmoid(x)


def _moved(x):
    """What sequences have changed by: some little, some more than the clip allows, none near it."""
    step = torch.tensor([-0.002, -0.0001, 0.0001, 0.002], device=x.device)[torch.arange(x.shape[1], device=x.device) * 7 % 4]
    return step[:, None] + 0.00001 * torch.tanh(x)


def _angles(function):
    def draw(x, _):
        turn = torch.arange(x.shape[0], device=x.device)[:, None] * 10000.0**(-torch.arange(x.shape[1], device=x.device) / x.shape[1])
        return function(turn)
    return draw


OPERATORS = [
    Operator(native_sparse_attention, _native, "J. Yuan et al., arXiv:2502.11089", {"heads": 2, "length": 70, "dim": 16, "blocks": 2}, told=("blocks",),
             draw={"place": lambda x, _: torch.softmax(x, 0)}),
    Operator(indexed_attention, _indexed, "DeepSeek-AI, DeepSeek-V3.2, arXiv:2512.02556", {"eyes": 2, "tokens": 9, "wide": 16, "small": 16},
             draw={"share": lambda x, _: x.abs(), "least": lambda x, _: 5 + x}),
    Operator(sigmoid_attention_backward, _sigmoid_backward, "J. Ramapuram et al., arXiv:2409.04431", {"heads": 2, "length": 9, "dim": 16}),
    Operator(parameter_attention, _parameters, "H. Wang et al., TokenFormer, arXiv:2410.23168", {"rows": 5, "ins": 12, "slots": 7, "outs": 9},
             draw={"value": divided("slots")}),
    Operator(sequence_policy_loss, _policy, "C. Zheng et al., arXiv:2507.18071", {"groups": 3, "members": 4, "steps": 11},
             draw={"mask": lambda x, _: (x > -1.5).float(), "new": lambda x, _: -2 + _moved(x), "old": lambda x, _: -2 + 0 * x}),
    Operator(polar_express, _polar, "N. Amsel et al., arXiv:2505.16932", {"tall": 7, "broad": 9}),
    Operator(normed_rotary_backward, _rotary_backward, "J. Su et al., arXiv:2104.09864; A. Henry et al., arXiv:2010.04245", {"many": 5, "parts": 3, "half": 8},
             draw={"weight": around_one, "cosine": _angles(torch.cos), "sine": _angles(torch.sin)}),
    Operator(momentum_memory, _memory, "A. Behrouz et al., Titans, arXiv:2501.00663", {"minds": 2, "times": 5, "deep": 8},
             draw={"q": divided("deep"), "key": divided("deep"), "forget": lambda x, _: 1 - 0.1 * torch.sigmoid(x),
                   "push": lambda x, _: 0.5 * torch.sigmoid(x), "rate": lambda x, _: 0.2 * torch.sigmoid(x)}),
    Operator(four_bit_adapter, _four_bits, "T. Dettmers et al., QLoRA, arXiv:2305.14314", {"batch": 5, "scales": 2, "left": 7, "rank": 4},
             draw={"code": lambda x, _: (x * 2.0**28).long().clamp(0, 2**31 - 1), "scale": lambda x, s: (1 + 0.1 * x) / (64 * s["scales"])**0.5,
                   "book": lambda x, _: torch.sort(x).values,
                   "down": lambda x, s: x / (64 * s["scales"])**0.5, "up": lambda x, _: 0.1 * x}),
    Operator(two_way_quantise, _two_way, "DeepSeek-AI, DeepSeek-V3, arXiv:2412.19437", {"high": 1, "far": 2}),
    Operator(draft_verification, _drafts, "Y. Leviathan et al., arXiv:2211.17192", {"drafts": 5, "words": 17},
             draw={"proposed": lambda x, s: (x.abs() * 1000).long() % s["words"], "luck": _unit}),
]
