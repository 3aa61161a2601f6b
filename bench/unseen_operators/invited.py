"""Operators of language models, 2022 to 2026, as somebody who has only read the documentation writes them."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, Tensor, bf16, define, f32, i32, indices
from unseen_operators.problem import Operator, around_one, divided, widened


def _gated_slots():
    batch, heads, length = Size("batch", 16), Size("heads", 8), Size("length", 256)
    slots, depth = Size("slots", 64, fixed=True), Size("depth", 64, fixed=True)
    b, h, t, m, n, d, e = indices(b=batch, h=heads, t=length, m=slots, n=slots, d=depth, e=depth)

    @nestor.nest
    def gated_slot_steps(query: bf16[batch, heads, length, depth], key: bf16[batch, heads, length, depth],
                         value: bf16[batch, heads, length, depth], gate: bf16[batch, heads, length, slots]):
        """Gated slot attention, token by token: two gated memories of few slots, read by a softmax over slots."""
        alpha = define("alpha", (b, h, t, m), nestor.sigmoid(gate[b, h, t, m]) ** 0.125)
        slot_keys = Tensor("slot_keys", f32, (batch, heads, length + 1, slots, depth))
        slot_values = Tensor("slot_values", f32, (batch, heads, length + 1, slots, depth))
        slot_keys.write((b, h, m, d), (b, h, 0, m, d), 0.0)
        slot_values.write((b, h, m, d), (b, h, 0, m, d), 0.0)
        slot_keys.write((b, h, t, m, d), (b, h, t + 1, m, d),
                        alpha[b, h, t, m] * slot_keys[b, h, t, m, d] + (1 - alpha[b, h, t, m]) * key[b, h, t, d])
        slot_values.write((b, h, t, m, d), (b, h, t + 1, m, d),
                          alpha[b, h, t, m] * slot_values[b, h, t, m, d] + (1 - alpha[b, h, t, m]) * value[b, h, t, d])
        score = define("score", (b, h, t, m), nestor.sum(slot_keys[b, h, t + 1, m, d] * query[b, h, t, d], over=d) / 8)
        top = define("top", (b, h, t), nestor.max(score[b, h, t, m], over=m))
        power = define("power", (b, h, t, m), nestor.exp(score[b, h, t, m] - top[b, h, t]))
        share = define("share", (b, h, t, m), power[b, h, t, m] / nestor.sum(power[b, h, t, n], over=n))
        return define("out", (b, h, t, d), nestor.sum(share[b, h, t, m] * slot_values[b, h, t + 1, m, d], over=m), type=bf16)

    def plain(query, key, value, gate):
        alpha = torch.sigmoid(widened(gate)) ** 0.125
        keys = values = torch.zeros(*gate.shape[:2], gate.shape[3], key.shape[3], dtype=alpha.dtype, device=gate.device)
        out = []
        for t in range(query.shape[2]):
            a = alpha[:, :, t, :, None]
            keys = a * keys + (1 - a) * widened(key[:, :, t, None])
            values = a * values + (1 - a) * widened(value[:, :, t, None])
            weights = F.softmax(torch.einsum("bhmd,bhd->bhm", keys, widened(query[:, :, t])) / 8, -1)
            out.append(torch.einsum("bhm,bhmd->bhd", weights, values))
        return torch.stack(out, 2).to(query.dtype)

    return Operator(gated_slot_steps, plain, "Zhang et al. 2024, Gated Slot Attention for Efficient Linear-Time Sequence Modeling",
                    {"batch": 1, "heads": 3, "length": 7, "slots": 5, "depth": 3}, draw={"gate": lambda x, _: 2 * x + 3})


def _trapezoid():
    batch, length, heads = Size("batch", 2), Size("length", 1024), Size("heads", 32)
    width, half = Size("width", 64, fixed=True), Size("half", 32, fixed=True)
    states = 2 * half
    b, t, s, h, p, n, r = indices(b=batch, t=length, s=length, h=heads, p=width, n=states, r=half)

    @nestor.nest
    def trapezoid_scan(x: bf16[batch, length, heads, width], key: bf16[batch, length, states], query: bf16[batch, length, states],
                       step: bf16[batch, length, heads], mix: bf16[batch, length, heads], theta: bf16[batch, length, half],
                       step_bias: f32[heads], decay_log: f32[heads], skip: f32[heads]):
        """Mamba-3: a state-space layer with the trapezoidal rule and rotating (complex) states."""
        dt = define("dt", (b, t, h), nestor.log1p(nestor.exp(step[b, t, h] + step_bias[h])))
        alpha = define("alpha", (b, t, h), nestor.exp(-nestor.exp(decay_log[h]) * dt[b, t, h]))
        now = define("now", (b, t, h), nestor.sigmoid(mix[b, t, h]))
        angle = define("angle", (b, h, t, r), nestor.sum(dt[b, s, h] * theta[b, s, r], over=s, where=s <= t))

        def rotated(name, v):
            first = v[b, t, r] * nestor.cos(angle[b, h, t, r]) - v[b, t, r + half] * nestor.sin(angle[b, h, t, r])
            second = v[b, t, r + half] * nestor.cos(angle[b, h, t, r]) + v[b, t, r] * nestor.sin(angle[b, h, t, r])
            turned = Tensor(name, f32, (batch, heads, length, states))
            turned.write((b, h, t, r), (b, h, t, r), first)
            turned.write((b, h, t, r), (b, h, t, r + half), second)
            return turned

        turned_key, turned_query = rotated("turned_key", key), rotated("turned_query", query)
        state = Tensor("state", f32, (batch, heads, width, states))
        state.write((b, h, p, n), (b, h, p, n), 0.0)
        out = Tensor("out", bf16, (batch, length, heads, width))
        with nestor.steps(b, h, t):
            before = nestor.select(t > 0, turned_key[b, h, t - 1, n] * x[b, t - 1, h, p], 0.0)
            state.write((b, h, t, p, n), (b, h, p, n),
                        alpha[b, t, h] * (state[b, h, p, n] + (1 - now[b, t, h]) * dt[b, t, h] * before)
                        + now[b, t, h] * dt[b, t, h] * turned_key[b, h, t, n] * x[b, t, h, p])
            out.write((b, h, t, p), (b, t, h, p), nestor.sum(turned_query[b, h, t, n] * state[b, h, p, n], over=n)
                      + skip[h] * x[b, t, h, p])
        return out

    def plain(x, key, query, step, mix, theta, step_bias, decay_log, skip):
        dtype = x.dtype
        x, key, query, step, mix, theta = map(widened, (x, key, query, step, mix, theta))
        dt = F.softplus(step + step_bias)
        now = torch.sigmoid(mix)
        angle = torch.cumsum(dt[..., None] * theta[:, :, None], 1)
        cos, sin = angle.cos(), angle.sin()

        def rotated(v):
            first, second = v[:, :, None].chunk(2, -1)
            return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

        running = torch.cumsum(-decay_log.exp() * dt, 1).transpose(1, 2)
        decay = (running[..., :, None] - running[..., None, :]).tril().exp().tril()
        fresh = (now * dt).transpose(1, 2)
        late = F.pad(((1 - now) * dt).transpose(1, 2)[..., 1:], (0, 1))  # what a token's input weighs one step later, before that step's decay
        late_decay = F.pad((-decay_log.exp() * dt).exp().transpose(1, 2)[..., 1:], (0, 1))
        weights = decay * fresh[..., None, :] + F.pad(decay[..., 1:], (0, 1)) * (late * late_decay)[..., None, :]
        scores = torch.einsum("bthn,bshn->bhts", rotated(query), rotated(key)) * weights
        return (torch.einsum("bhts,bshp->bthp", scores, x) + skip[:, None] * x).to(dtype)

    return Operator(trapezoid_scan, plain, "Lahoti et al. 2026, Mamba-3: Improved Sequence Modeling using State Space Principles",
                    {"batch": 1, "length": 7, "heads": 3, "width": 5, "half": 3},
                    draw={"key": lambda x, _: x / 8, "step_bias": lambda x, _: x - 2, "decay_log": lambda x, _: 0.5 * x})


def _infini():
    batch, heads, length = Size("batch", 2), Size("heads", 16), Size("length", 2048)
    depth = Size("depth", 128, fixed=True)
    b, h, q, j, d, e = indices(b=batch, h=heads, q=length, j=length, d=depth, e=depth)

    def elu1(x):
        return nestor.select(x > 0, x + 1, nestor.exp(x))

    @nestor.nest
    def infini_attention(query: bf16[batch, heads, length, depth], key: bf16[batch, heads, length, depth],
                         value: bf16[batch, heads, length, depth], memory: f32[batch, heads, depth, depth],
                         norm: f32[batch, heads, depth], gate: f32[heads]):
        """Infini-attention of one segment: causal attention mixed with a compressive memory, and the memory's delta update."""
        score = define("score", (b, h, q, j), nestor.sum(query[b, h, q, e] * key[b, h, j, e], over=e) / 128 ** 0.5, where=j <= q)
        top = define("top", (b, h, q), nestor.max(score[b, h, q, j], over=j, where=j <= q))
        power = define("power", (b, h, q, j), nestor.exp(score[b, h, q, j] - top[b, h, q]), where=j <= q)
        total = define("total", (b, h, q), nestor.sum(power[b, h, q, j], over=j, where=j <= q))
        local = define("local", (b, h, q, d), nestor.sum(power[b, h, q, j] * value[b, h, j, d], over=j, where=j <= q) / total[b, h, q])

        sq = define("sq", (b, h, q, d), elu1(query[b, h, q, d]))
        sk = define("sk", (b, h, q, d), elu1(key[b, h, q, d]))
        recalled = define("recalled", (b, h, q, d), nestor.sum(sq[b, h, q, e] * memory[b, h, e, d], over=e)
                          / nestor.sum(sq[b, h, q, e] * norm[b, h, e], over=e))
        known = define("known", (b, h, q, d), nestor.sum(sk[b, h, q, e] * memory[b, h, e, d], over=e)
                       / nestor.sum(sk[b, h, q, e] * norm[b, h, e], over=e))
        share = define("share", h, nestor.sigmoid(gate[h]))
        out = define("out", (b, h, q, d), share[h] * recalled[b, h, q, d] + (1 - share[h]) * local[b, h, q, d], type=bf16)
        new_memory = define("new_memory", (b, h, e, d), memory[b, h, e, d]
                            + nestor.sum(sk[b, h, q, e] * (value[b, h, q, d] - known[b, h, q, d]), over=q))
        new_norm = define("new_norm", (b, h, e), norm[b, h, e] + nestor.sum(sk[b, h, q, e], over=q))
        return out, new_memory, new_norm

    def plain(query, key, value, memory, norm, gate):
        local = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=128 ** -0.5)
        sq, sk = F.elu(widened(query)) + 1, F.elu(widened(key)) + 1
        recalled = sq @ memory / (sq @ norm[..., None])
        known = sk @ memory / (sk @ norm[..., None])
        share = torch.sigmoid(gate)[:, None, None]
        out = (share * recalled + (1 - share) * local).to(query.dtype)
        return out, memory + sk.mT @ (widened(value) - known), norm + sk.sum(-2)

    return Operator(infini_attention, plain, "Munkhdalai et al. 2024, Leave No Context Behind: Infini-attention",
                    {"batch": 1, "heads": 3, "length": 7, "depth": 5},
                    draw={"norm": lambda x, _: 1 + x.abs(), "memory": lambda x, _: x})


BLOCK = 16


def _block_diffusion():
    batch, heads, length = Size("batch", 2), Size("heads", 16), Size("length", 2048)
    depth = Size("depth", 64, fixed=True)
    tokens = 2 * length
    b, h, q, j, d, e = indices(b=batch, h=heads, q=tokens, j=tokens, d=depth, e=depth)

    @nestor.nest
    def block_diffusion_attention(query: bf16[batch, heads, tokens, depth], key: bf16[batch, heads, tokens, depth],
                                  value: bf16[batch, heads, tokens, depth]):
        """Training attention of block diffusion: noised tokens before clean ones; a noised block sees itself and clean blocks before it."""
        noised_q, noised_j = q < length, j < length
        same = noised_q & noised_j & (q // BLOCK == j // BLOCK)
        offset = noised_q & ~noised_j & ((j - length) // BLOCK < q // BLOCK)
        clean = ~noised_q & ~noised_j & ((j - length) // BLOCK <= (q - length) // BLOCK)
        score = nestor.sum(query[b, h, q, e] * key[b, h, j, e], over=e) * 0.125
        masked = define("masked", (b, h, q, j), nestor.select(same | offset | clean, score, float("-inf")))
        top = define("top", (b, h, q), nestor.max(masked[b, h, q, j], over=j))
        power = define("power", (b, h, q, j), nestor.exp(masked[b, h, q, j] - top[b, h, q]))
        total = define("total", (b, h, q), nestor.sum(power[b, h, q, j], over=j))
        return define("out", (b, h, q, d), nestor.sum(power[b, h, q, j] * value[b, h, j, d], over=j) / total[b, h, q], type=bf16)

    def mask_mod(length):
        def mask(b, h, q, j):
            noised_q, noised_j = q < length, j < length
            block_q = torch.where(noised_q, q, q - length) // BLOCK
            block_j = torch.where(noised_j, j, j - length) // BLOCK
            return (noised_q & noised_j & (block_q == block_j)) | (noised_q & ~noised_j & (block_j < block_q)) \
                | (~noised_q & ~noised_j & (block_j <= block_q))
        return mask

    def plain(query, key, value):
        at = torch.arange(query.shape[2], device=query.device)
        mask = mask_mod(query.shape[2] // 2)(0, 0, at[:, None], at[None, :])
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.125)

    return Operator(block_diffusion_attention, plain, "Arriola et al. 2025, Block Diffusion: Interpolating Between Autoregressive and Diffusion Language Models",
                    {"batch": 1, "heads": 1, "length": 37, "depth": 3})


PAGE = 16


def _page_bounds():
    batch, kv_heads, group, pages = Size("batch", 16), Size("kv_heads", 8), Size("group", 4, fixed=True), Size("pages", 512)
    depth = Size("depth", 128, fixed=True)
    b, h, g, p, r, d = indices(b=batch, h=kv_heads, g=group, p=pages, r=PAGE, d=depth)

    @nestor.nest
    def page_bound_scores(query: bf16[batch, kv_heads, group, depth], key: bf16[batch, kv_heads, PAGE * pages, depth]):
        """Quest: an upper bound of a query's scores with each page of cached keys, from the page's extrema per channel."""
        low = define("low", (b, h, p, d), nestor.min(key[b, h, PAGE * p + r, d], over=r))
        high = define("high", (b, h, p, d), nestor.max(key[b, h, PAGE * p + r, d], over=r))
        bound = nestor.maximum(query[b, h, g, d] * low[b, h, p, d], query[b, h, g, d] * high[b, h, p, d])
        return define("score", (b, h, g, p), nestor.sum(bound, over=d))

    def plain(query, key):
        pages = widened(key).unflatten(2, (-1, PAGE))
        low, high = pages.amin(3)[:, :, None], pages.amax(3)[:, :, None]
        q = widened(query)[:, :, :, None]
        return torch.maximum(q * low, q * high).sum(-1)

    return Operator(page_bound_scores, plain, "Tang et al. 2024, Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference",
                    {"batch": 1, "kv_heads": 3, "group": 2, "pages": 3, "depth": 5})


def _bitnet():
    tokens, outputs, width = Size("tokens", 4096), Size("outputs", 4096), Size("width", 4096)
    t, o, k, c = indices(t=tokens, o=outputs, k=width, c=width)

    def rounded(x):
        return nestor.floor(x + 0.5)

    @nestor.nest
    def bitnet_training_linear(x: bf16[tokens, width], gain: bf16[width], weight: bf16[outputs, width], eps=1e-5):
        """BitNet b1.58 in training: RMSNorm, 8-bit rows, ternary weights of the mean magnitude, both quantised on the fly."""
        scale = define("scale", (), nestor.maximum(nestor.mean(nestor.absolute(weight[o, k]), over=(o, k)), eps))
        ternary = define("ternary", (o, k), nestor.minimum(nestor.maximum(rounded(weight[o, k] / scale[()]), -1), 1))
        root = define("root", t, nestor.rsqrt(nestor.mean(x[t, k] * x[t, k], over=k) + eps))
        normed = define("normed", (t, k), x[t, k] * root[t] * gain[k])
        step = define("step", t, 127 / nestor.maximum(nestor.max(nestor.absolute(normed[t, k]), over=k), eps))
        integer = define("integer", (t, k), nestor.minimum(nestor.maximum(rounded(normed[t, k] * step[t]), -128), 127))
        return define("out", (t, o), nestor.sum(integer[t, k] * ternary[o, k], over=k) * scale[()] / step[t], type=bf16)

    def plain(x, gain, weight, eps=1e-5):
        dtype = x.dtype
        x, gain, weight = map(widened, (x, gain, weight))
        scale = weight.abs().mean().clamp(min=eps)
        ternary = torch.floor(weight / scale + 0.5).clamp(-1, 1)
        normed = F.rms_norm(x, x.shape[-1:], eps=eps) * gain
        step = 127 / normed.abs().amax(-1, keepdim=True).clamp(min=eps)
        integer = torch.floor(normed * step + 0.5).clamp(-128, 127)
        return (F.linear(integer.to(dtype), ternary.to(dtype)) * scale / step).to(dtype)

    return Operator(bitnet_training_linear, plain, "Ma et al. 2024, The Era of 1-bit LLMs: All Large Language Models are in 1.58 Bits",
                    {"tokens": 7, "outputs": 5, "width": 9}, draw={"gain": around_one, "weight": divided("width")})


def _stablemax():
    tokens, vocabulary = Size("tokens", 1024), Size("vocabulary", 128256)
    t, v = indices(t=tokens, v=vocabulary)

    @nestor.nest
    def stablemax_cross_entropy(logits: bf16[tokens, vocabulary], target: i32[tokens]):
        """Cross entropy with StableMax in place of softmax: x + 1 above zero, 1 / (1 - x) below."""
        x = logits[t, v]
        s = define("s", (t, v), nestor.select(x >= 0, x + 1, 1 / (1 - x)))
        total = define("total", t, nestor.sum(s[t, v], over=v))
        picked = define("picked", t, nestor.sum(nestor.select(target[t] == v, s[t, v], 0.0), over=v))
        return define("loss", t, nestor.log(total[t]) - nestor.log(picked[t]))

    def plain(logits, target):
        x = widened(logits)
        s = torch.where(x >= 0, x + 1, 1 / (1 - x))
        return s.sum(-1).log() - s.gather(-1, target.long()[:, None])[:, 0].log()

    return Operator(stablemax_cross_entropy, plain, "Prieto et al. 2025, Grokking at the Edge of Numerical Stability",
                    {"tokens": 7, "vocabulary": 11}, draw={"target": lambda x, sizes: (x.abs() * 1e4).long() % sizes["vocabulary"]})


def _cispo():
    tokens, vocabulary = Size("tokens", 1024), Size("vocabulary", 128256)
    t, v = indices(t=tokens, v=vocabulary)

    @nestor.nest
    def cispo_loss(logits: bf16[tokens, vocabulary], action: i32[tokens], old_logp: f32[tokens], advantage: f32[tokens],
                   mask: f32[tokens], below=1.0, above=0.28, temperature=1.0):
        """CISPO from logits: policy gradient weighted by clipped importance weights, and the policy's entropy."""
        z = define("z", (t, v), logits[t, v] / temperature)
        top = define("top", t, nestor.max(z[t, v], over=v))
        lse = define("lse", t, top[t] + nestor.log(nestor.sum(nestor.exp(z[t, v] - top[t]), over=v)))
        logp = define("logp", t, nestor.sum(nestor.select(action[t] == v, z[t, v], 0.0), over=v) - lse[t])
        expected = nestor.sum(nestor.exp(z[t, v] - lse[t]) * z[t, v], over=v)
        entropy = define("entropy", t, lse[t] - expected)
        ratio = define("ratio", t, nestor.exp(logp[t] - old_logp[t]))
        weight = define("weight", t, nestor.minimum(nestor.maximum(ratio[t], 1 - below), 1 + above))
        loss = define("loss", (), -nestor.sum(mask[t] * weight[t] * advantage[t] * logp[t], over=t)
                      / nestor.maximum(nestor.sum(mask[t], over=t), 1))
        return loss, entropy

    def plain(logits, action, old_logp, advantage, mask, below=1.0, above=0.28):
        logps = F.log_softmax(widened(logits), -1)
        logp = logps.gather(-1, action.long()[:, None])[:, 0]
        entropy = -(logps.exp() * logps).sum(-1)
        weight = torch.exp(logp - old_logp).clamp(1 - below, 1 + above)
        loss = -(mask * weight * advantage * logp).sum() / mask.sum().clamp(min=1)
        return loss, entropy

    return Operator(cispo_loss, plain, "MiniMax 2025, MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention",
                    {"tokens": 7, "vocabulary": 11},
                    draw={"action": lambda x, sizes: (x.abs() * 1e4).long() % sizes["vocabulary"], "mask": lambda x, _: (x > -1),
                          "old_logp": lambda x, sizes: 0.5 * x - torch.tensor(float(sizes["vocabulary"])).log().item() - 0.5})


def _mars():
    rows, width = Size("rows", 4096), Size("width", 2048)
    i, c = indices(i=rows, c=width)

    @nestor.nest
    def mars_step(param: f32[rows, width], grad: f32[rows, width], last_grad: f32[rows, width], first: f32[rows, width],
                  second: f32[rows, width], lr=3e-3, beta1=0.95, beta2=0.99, gamma=0.025, eps=1e-8, decay=0.1, step=10):
        """MARS-AdamW: AdamW of a variance-reduced gradient that is clipped to norm 1."""
        corrected = define("corrected", (i, c), grad[i, c] + gamma * beta1 / (1 - beta1) * (grad[i, c] - last_grad[i, c]))
        norm = define("norm", (), nestor.sqrt(nestor.sum(corrected[i, c] * corrected[i, c], over=(i, c))))
        clipped = define("clipped", (i, c), corrected[i, c] / nestor.maximum(norm, 1))
        new_first = define("new_first", (i, c), beta1 * first[i, c] + (1 - beta1) * clipped[i, c])
        new_second = define("new_second", (i, c), beta2 * second[i, c] + (1 - beta2) * clipped[i, c] * clipped[i, c])
        m = new_first[i, c] / (1 - beta1 ** step)
        v = new_second[i, c] / (1 - beta2 ** step)
        new_param = define("new_param", (i, c), param[i, c] - lr * (m / (nestor.sqrt(v) + eps) + decay * param[i, c]))
        return new_param, new_first, new_second

    def plain(param, grad, last_grad, first, second, lr=3e-3, beta1=0.95, beta2=0.99, gamma=0.025, eps=1e-8, decay=0.1, step=10):
        corrected = grad + gamma * beta1 / (1 - beta1) * (grad - last_grad)
        clipped = corrected / torch.linalg.vector_norm(corrected).clamp(min=1)
        first = beta1 * first + (1 - beta1) * clipped
        second = beta2 * second + (1 - beta2) * clipped * clipped
        update = first / (1 - beta1 ** step) / ((second / (1 - beta2 ** step)).sqrt() + eps) + decay * param
        return param - lr * update, first, second

    return Operator(mars_step, plain, "Yuan et al. 2024, MARS: Unleashing the Power of Variance Reduction for Training Large Models",
                    {"rows": 5, "width": 7}, draw={"second": lambda x, _: x * x})


def _seednorm():
    rows, width = Size("rows", 16384), Size("width", 4096)
    i, c, k = indices(i=rows, c=width, k=width)

    @nestor.nest
    def seed_norm(x: bf16[rows, width], alpha: f32[width], beta: f32[width], gamma: f32[width], eps=1e-6):
        """SeeDNorm: RMSNorm whose gain follows the input, tanh(x . beta) alpha + gamma."""
        gate = define("gate", i, nestor.tanh(nestor.sum(x[i, k] * beta[k], over=k)))
        root = define("root", i, nestor.rsqrt(nestor.mean(x[i, k] * x[i, k], over=k) + eps))
        return define("out", (i, c), (gate[i] * alpha[c] + gamma[c]) * x[i, c] * root[i], type=bf16)

    def plain(x, alpha, beta, gamma, eps=1e-6):
        wide = widened(x)
        gate = torch.tanh(wide @ beta)[:, None]
        return ((gate * alpha + gamma) * F.rms_norm(wide, wide.shape[-1:], eps=eps)).to(x.dtype)

    return Operator(seed_norm, plain, "Cai et al. 2025, SeeDNorm: Self-Rescaled Dynamic Normalization", {"rows": 5, "width": 7},
                    draw={"beta": divided("width"), "gamma": around_one})


def _capacity():
    groups, tokens, experts = Size("groups", 64), Size("tokens", 2048), Size("experts", 64, fixed=True)
    g, t, s, e, x = indices(g=groups, t=tokens, s=tokens, e=experts, x=experts)

    @nestor.nest
    def capacity_dispatch(logits: f32[groups, tokens, experts], capacity=40):
        """Switch routing: the expert of each token, its place in that expert's buffer (-1: dropped), its gate, and the balance loss."""
        top = define("top", (g, t), nestor.max(logits[g, t, e], over=e))
        power = define("power", (g, t, e), nestor.exp(logits[g, t, e] - top[g, t]))
        prob = define("prob", (g, t, e), power[g, t, e] / nestor.sum(power[g, t, x], over=x))
        expert = define("expert", (g, t), nestor.min(nestor.select(logits[g, t, e] == top[g, t], e, experts), over=e))
        before = nestor.sum(nestor.select(expert[g, s] == expert[g, t], 1, 0), over=s, where=s < t)
        place = define("place", (g, t), nestor.select(before < capacity, before, -1))
        gate = define("gate", (g, t), nestor.select(place[g, t] >= 0, nestor.sum(nestor.select(expert[g, t] == e, prob[g, t, e], 0.0), over=e), 0.0))
        count = define("count", (g, e), nestor.sum(nestor.select(expert[g, t] == e, 1, 0), over=t))
        mass = define("mass", (g, e), nestor.sum(prob[g, t, e], over=t))
        balance = define("balance", g, nestor.sum(count[g, e] * mass[g, e], over=e) * experts / tokens / tokens)
        return expert, place, gate, balance

    def plain(logits, capacity=40):
        prob = F.softmax(logits, -1)
        gate, expert = prob.max(-1)
        hot = F.one_hot(expert, logits.shape[-1])
        before = ((torch.cumsum(hot, 1) - hot) * hot).sum(-1)
        kept = before < capacity
        balance = (hot.to(prob.dtype).mean(1) * prob.mean(1)).sum(-1) * logits.shape[-1]
        return expert.int(), torch.where(kept, before, -1).int(), torch.where(kept, gate, 0.0), balance

    return Operator(capacity_dispatch, plain, "Fedus et al. 2022, Switch Transformers", {"groups": 3, "tokens": 7, "experts": 5})


def _top_n_sigma():
    rows, vocabulary = Size("rows", 512), Size("vocabulary", 128256)
    i, v = indices(i=rows, v=vocabulary)

    @nestor.nest
    def top_n_sigma_sampler(logits: bf16[rows, vocabulary], n=1.0, temperature=1.5):
        """Top-n-sigma sampling: probabilities of the logits within n standard deviations of the largest."""
        top = define("top", i, nestor.max(logits[i, v], over=v))
        mean = define("mean", i, nestor.mean(logits[i, v], over=v))
        variance = define("variance", i, nestor.sum((logits[i, v] - mean[i]) ** 2, over=v) / (vocabulary - 1))
        limit = define("limit", i, top[i] - n * nestor.sqrt(variance[i]))
        power = define("power", (i, v), nestor.select(logits[i, v] >= limit[i], nestor.exp((logits[i, v] - top[i]) / temperature), 0.0))
        total = define("total", i, nestor.sum(power[i, v], over=v))
        return define("prob", (i, v), power[i, v] / total[i], type=bf16)

    def plain(logits, n=1.0, temperature=1.5):
        x = widened(logits)
        limit = x.amax(-1, keepdim=True) - n * x.std(-1, keepdim=True)
        return F.softmax((x / temperature).masked_fill(x < limit, float("-inf")), -1).to(logits.dtype)

    return Operator(top_n_sigma_sampler, plain, "Tang et al. 2024, Top-nσ: Not All Logits Are You Need", {"rows": 3, "vocabulary": 37})


TAPS = 3


def _short_conv():
    batch, length, width = Size("batch", 4), Size("length", 4096), Size("width", 2048)
    b, t, c, o, j = indices(b=batch, t=length, c=width, o=width, j=TAPS)

    @nestor.nest
    def short_conv_mixer(bcx: bf16[batch, length, 3 * width], taps: bf16[width, TAPS], weight: bf16[width, width]):
        """LFM2's token mixer behind its input projection: C * conv(B * x) and the output projection."""
        gated = define("gated", (b, t, c), bcx[b, t, c] * bcx[b, t, c + 2 * width])
        conv = nestor.sum(nestor.select(t + j >= TAPS - 1, gated[b, t + j - TAPS + 1, c] * taps[c, j], 0.0), over=j)
        mixed = define("mixed", (b, t, c), bcx[b, t, c + width] * conv, type=bf16)
        return define("out", (b, t, o), nestor.sum(mixed[b, t, c] * weight[o, c], over=c), type=bf16)

    def plain(bcx, taps, weight):
        b, c, x = bcx.transpose(1, 2).chunk(3, 1)
        length = bcx.shape[1]
        conv = F.conv1d(b * x, taps[:, None], padding=TAPS - 1, groups=taps.shape[0])[..., :length]
        return F.linear((c * conv).transpose(1, 2), weight)

    return Operator(short_conv_mixer, plain, "Liquid AI 2025, LFM2 Technical Report", {"batch": 3, "length": 7, "width": 5},
                    draw={"taps": lambda x, _: x / 2, "weight": divided("width")})


def _eagle():
    tokens, width = Size("tokens", 2048), Size("width", 4096)
    t, c, k = indices(t=tokens, c=width, k=width)

    @nestor.nest
    def eagle_draft_input(low: bf16[tokens, width], middle: bf16[tokens, width], high: bf16[tokens, width],
                          embedded: bf16[tokens, width], fuse: bf16[width, 3 * width], embedded_gain: bf16[width],
                          hidden_gain: bf16[width], eps=1e-6):
        """EAGLE-3: features of three layers fused by a linear layer, normed, and put behind the normed embeddings."""
        fused = define("fused", (t, c), nestor.sum(low[t, k] * fuse[c, k], over=k) + nestor.sum(middle[t, k] * fuse[c, k + width], over=k)
                       + nestor.sum(high[t, k] * fuse[c, k + 2 * width], over=k), type=bf16)
        root = define("root", t, nestor.rsqrt(nestor.mean(fused[t, k] * fused[t, k], over=k) + eps))
        embedded_root = define("embedded_root", t, nestor.rsqrt(nestor.mean(embedded[t, k] * embedded[t, k], over=k) + eps))
        out = Tensor("out", bf16, (tokens, 2 * width))
        out.write((t, c), (t, c), embedded[t, c] * embedded_root[t] * embedded_gain[c])
        out.write((t, c), (t, c + width), fused[t, c] * root[t] * hidden_gain[c])
        return out, fused

    def plain(low, middle, high, embedded, fuse, embedded_gain, hidden_gain, eps=1e-6):
        fused = F.linear(torch.cat((low, middle, high), -1), fuse)
        shape = fused.shape[-1:]
        return torch.cat((F.rms_norm(embedded, shape, embedded_gain, eps), F.rms_norm(fused, shape, hidden_gain, eps)), -1), fused

    return Operator(eagle_draft_input, plain, "Li et al. 2025, EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test",
                    {"tokens": 5, "width": 7}, draw={"fuse": divided("width"), "embedded_gain": around_one, "hidden_gain": around_one})


OPERATORS = [make() for make in (_gated_slots, _trapezoid, _infini, _block_diffusion, _page_bounds, _bitnet, _stablemax, _cispo, _mars,
                                 _seednorm, _capacity, _top_n_sigma, _short_conv, _eagle)]
