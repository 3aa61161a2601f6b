"""What training computes beside the model: losses over pairs and groups, gradients, an optimizer in rotated axes, a noisy router."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f32, i32, indices

from .problem import Operator, around_one, divided, widened
from .products import gelu

pairs, wide = Size("pairs", 4096), Size("width", 768)
a, b, w, w2 = indices(a=pairs, b=pairs, w=wide, w2=wide)


def _softplus(x):
    return nestor.maximum(x, 0.0) + nestor.log1p(nestor.exp(-nestor.absolute(x)))


@nestor.nest
def siglip_loss(image: bf16[pairs, wide], text: bf16[pairs, wide], temperature: f32[()], bias: f32[()]):
    """Each pair of an image and a text is a question of its own: do they belong together?"""
    logit = nestor.sum(image[a, w] * text[b, w], over=w) * temperature.value + bias.value
    loss = define("loss", (a, b), _softplus(nestor.select(a == b, -logit, logit)))
    return define("out", (), nestor.sum(loss[a, b], over=(a, b)) / pairs)


def _siglip(image, text, temperature, bias):
    logit = widened(image @ text.T) * temperature + bias
    sign = 2 * torch.eye(logit.shape[0], device=logit.device, dtype=logit.dtype) - 1
    return -F.logsigmoid(sign * logit).sum() / logit.shape[0]


rows, columns = Size("rows", 1024), Size("columns", 1024)
r, r2, c, c2 = indices(r=rows, r2=rows, c=columns, c2=columns)


@nestor.nest
def soap_step(weight: f32[rows, columns], grad: f32[rows, columns], momentum: f32[rows, columns], second: f32[rows, columns],
              left: f32[rows, rows], right: f32[columns, columns]):
    """SOAP: Adam in the axes of Shampoo's factors, and back."""
    def rotated(name, x):
        half = define(f"{name}_half", (r, c), nestor.sum(left[r2, r] * x[r2, c], over=r2))
        return define(f"{name}_rotated", (r, c), nestor.sum(half[r, c2] * right[c2, c], over=c2))
    mean = define("mean", (r, c), 0.95 * momentum[r, c] + 0.05 * grad[r, c])
    turned = rotated("grad", grad)
    square = define("square", (r, c), 0.95 * second[r, c] + 0.05 * turned[r, c] * turned[r, c])
    step = define("step", (r, c), rotated("mean", mean)[r, c] / (nestor.sqrt(square[r, c]) + 1e-3))
    back = define("back", (r, c), nestor.sum(left[r, r2] * step[r2, c], over=r2))
    return define("out", (r, c), weight[r, c] - 3e-3 * nestor.sum(back[r, c2] * right[c, c2], over=c2)), mean, square


def _soap(weight, grad, momentum, second, left, right):
    mean = torch.lerp(momentum, grad, 0.05)
    square = 0.95 * second + 0.05 * (left.T @ grad @ right).square()
    step = (left.T @ mean @ right) / (square.sqrt() + 1e-3)
    return weight - 3e-3 * (left @ step @ right.T), mean, square


tokens, words, depth = Size("tokens", 2048), Size("words", 16384), Size("depth", 1024)
t, v, d, d2 = indices(t=tokens, v=words, d=depth, d2=depth)


@nestor.nest
def linear_cross_entropy_backward(x: bf16[tokens, depth], weight: bf16[words, depth], target: i32[tokens]):
    """The way back to hidden states: probabilities less the target's one, times the words, without logits in memory."""
    logit = define("logit", (t, v), nestor.sum(x[t, d2] * weight[v, d2], over=d2))
    top = define("top", t, nestor.max(logit[t, v], over=v))
    total = define("total", t, nestor.sum(nestor.exp(logit[t, v] - top[t]), over=v))
    slope = nestor.exp(logit[t, v] - top[t]) / total[t] - nestor.select(target[t] == v, 1.0, 0.0)
    return define("out", (t, d), nestor.sum(slope * weight[v, d], over=v) / tokens, type=bf16)


def _linear_cross_entropy_backward(x, weight, target):
    chance = torch.softmax(widened(x @ weight.T), -1)
    hit = torch.arange(weight.shape[0], device=x.device) == target[:, None]
    return ((chance - hit.to(chance.dtype)) / x.shape[0]).to(x.dtype) @ weight


images, groups, pixels = Size("images", 32), Size("groups", 32), Size("pixels", 1024)
n, n2, g, p, k, k2, ch = indices(n=images, n2=images, g=groups, p=pixels, k=8, k2=8, channel=8 * groups)


@nestor.nest
def groupnorm_backward(grad: f32[images, 8 * groups, pixels], x: f32[images, 8 * groups, pixels], mean: f32[images, groups],
                       inverse: f32[images, groups], gain: f32[8 * groups]):
    """Gradients of group norm, 8 channels a group: of its input, gain and bias."""
    by_x = define("by_x", (n, ch), nestor.sum(grad[n, ch, p] * x[n, ch, p], over=p))
    plain = define("plain", (n, ch), nestor.sum(grad[n, ch, p], over=p))
    of_x = define("of_x", (n, g), nestor.sum(by_x[n, 8 * g + k] * gain[8 * g + k], over=k))
    of_one = define("of_one", (n, g), nestor.sum(plain[n, 8 * g + k] * gain[8 * g + k], over=k))
    row, ours = (n, ch // 8), (n, ch, p)
    unit = (x[ours] - mean[row]) * inverse[row]
    along = (of_x[row] - of_one[row] * mean[row]) * inverse[row]
    back = inverse[row] * (gain[ch] * grad[ours] - (of_one[row] + unit * along) / (8 * pixels))
    moved = nestor.sum((by_x[n2, ch] - plain[n2, ch] * mean[n2, ch // 8]) * inverse[n2, ch // 8], over=n2)
    return define("out", ours, back), define("gain_grad", ch, moved), define("bias_grad", ch, nestor.sum(plain[n2, ch], over=n2))


def _groupnorm_backward(grad, x, mean, inverse, gain):
    grad, x = (each.unflatten(1, (mean.shape[1], 8)) for each in (grad, x))
    unit = (x - mean[..., None, None]) * inverse[..., None, None]
    slope = grad * gain.view(-1, 8, 1)
    flat = slope.mean((2, 3), keepdim=True) + unit * (slope * unit).mean((2, 3), keepdim=True)
    return ((inverse[..., None, None] * (slope - flat)).flatten(1, 2), (grad * unit).sum((0, 3)).flatten(), grad.sum((0, 3)).flatten())


prompts, answers, span = Size("prompts", 256), Size("answers", 16), Size("span", 1024)
q, m, m2, s = indices(q=prompts, m=answers, m2=answers, s=span)


@nestor.nest
def grpo_loss(chance: f32[prompts, answers, span], before: f32[prompts, answers, span], reference: f32[prompts, answers, span],
              reward: f32[prompts, answers], ends: i32[prompts, answers]):
    """Rewards against those of the same prompt's other answers, a clipped ratio, and a price for leaving the reference."""
    mean = define("mean", q, nestor.sum(reward[q, m2], over=m2) / answers)
    spread = nestor.sum((reward[q, m2] - mean[q]) * (reward[q, m2] - mean[q]), over=m2)
    spread = define("spread", q, nestor.sqrt(spread / (answers - 1)))
    gain = define("gain", (q, m), (reward[q, m] - mean[q]) / (spread[q] + 1e-4))
    ratio = nestor.exp(chance[q, m, s] - before[q, m, s])
    clipped = nestor.minimum(nestor.maximum(ratio, 0.8), 1.2)
    apart = reference[q, m, s] - chance[q, m, s]
    price = nestor.exp(apart) - apart - 1
    token = 0.04 * price - nestor.minimum(ratio * gain[q, m], clipped * gain[q, m])
    total = nestor.sum(nestor.select(ends[q, m] > s, token, 0.0), over=s)
    answer = define("answer", (q, m), total / nestor.cast(f32, ends[q, m]))
    return define("out", (), nestor.sum(answer[q, m], over=(q, m)) / (prompts * answers))


def _grpo(chance, before, reference, reward, ends):
    gain = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4))[..., None]
    ratio, apart = (chance - before).exp(), reference - chance
    token = 0.04 * (apart.exp() - apart - 1) - torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
    seen = torch.arange(token.shape[-1], device=token.device) < ends[..., None]
    return ((token * seen).sum(-1) / ends).mean()


rows_, experts, inputs = Size("rows", 8192), Size("experts", 64, fixed=True), Size("inputs", 1024)
o, x1, x2, u = indices(o=rows_, x1=experts, x2=experts, u=inputs)


@nestor.nest
def noisy_router(x: bf16[rows_, inputs], weight: bf16[experts, inputs], noisy: bf16[experts, inputs], noise: f32[rows_, experts]):
    """Noise of a learned size is added to the logits, and the two largest share a softmax."""
    spread = _softplus(nestor.sum(x[o, u] * noisy[x1, u], over=u))
    logit = define("logit", (o, x1), nestor.sum(x[o, u] * weight[x1, u], over=u) + noise[o, x1] * spread)
    first = define("first", o, nestor.max(logit[o, x2], over=x2))
    second = define("second", o, nestor.max(nestor.select(logit[o, x2] < first[o], logit[o, x2], -1e30), over=x2))
    share = nestor.exp(logit[o, x1] - first[o]) / (1 + nestor.exp(second[o] - first[o]))
    return define("out", (o, x1), nestor.select(logit[o, x1] >= second[o], share, 0.0))


def _noisy(x, weight, noisy, noise):
    logit = widened(x @ weight.T) + noise * F.softplus(widened(x @ noisy.T))
    values, places = logit.topk(2, -1)
    return torch.zeros_like(logit).scatter(-1, places, torch.softmax(values, -1))


batch, inner, outer = Size("batch", 4096), Size("inner", 2048), Size("outer", 1024)
i, f, h = indices(i=batch, f=inner, h=outer)


@nestor.nest
def geglu_weight_gradient(x: bf16[batch, outer], gate: bf16[batch, inner], up: bf16[batch, inner], grad: bf16[batch, inner]):
    """Gradients of both weights of a GEGLU, from what went into its gate and its product."""
    z = gate[i, f]
    density = nestor.exp(-0.5 * z * z) * 0.3989422804014327
    slope = 0.5 * (1 + nestor.erf(z * 0.7071067811865476)) + z * density
    gate_grad = define("gate_slope", (i, f), grad[i, f] * up[i, f] * slope, type=bf16)
    up_grad = define("up_slope", (i, f), grad[i, f] * gelu(z), type=bf16)
    return (define("gate_grad", (f, h), nestor.sum(gate_grad[i, f] * x[i, h], over=i), type=bf16),
            define("up_grad", (f, h), nestor.sum(up_grad[i, f] * x[i, h], over=i), type=bf16))


def _geglu_weight_gradient(x, gate, up, grad):
    z = widened(gate)
    slope = 0.5 * (1 + torch.erf(z * 0.5**0.5)) + z * torch.exp(-0.5 * z.square()) * 0.3989422804014327
    gate_grad = (widened(grad) * widened(up) * slope).to(x.dtype)
    up_grad = (widened(grad) * F.gelu(z)).to(x.dtype)
    return gate_grad.T @ x, up_grad.T @ x


def _some(x, size):
    """Whole numbers below a size."""
    return (x.abs() * 1e4).long() % size


def _small(x, _):
    return 0.3 * x


OPERATORS = [
    Operator(siglip_loss, _siglip, "X. Zhai et al., arXiv:2303.15343", {"pairs": 7, "width": 6},
             draw={"text": divided("width"), "temperature": lambda x, _: x.abs() + 1, "bias": lambda x, _: x - 2}),
    Operator(soap_step, _soap, "N. Vyas et al., arXiv:2409.11321", {"rows": 5, "columns": 7},
             draw={"second": lambda x, _: x.square(), "left": divided("rows"), "right": divided("columns")}),
    Operator(linear_cross_entropy_backward, _linear_cross_entropy_backward, "E. Wijmans et al., arXiv:2411.09009",
             {"tokens": 5, "words": 11, "depth": 6},
             draw={"weight": divided("depth"), "target": lambda x, sizes: _some(x, sizes["words"])}),
    Operator(groupnorm_backward, _groupnorm_backward, "Y. Wu and K. He, arXiv:1803.08494", {"images": 3, "groups": 2, "pixels": 5},
             draw={"mean": lambda x, _: 0.1 * x, "inverse": around_one, "gain": around_one}),
    Operator(grpo_loss, _grpo, "Z. Shao et al., DeepSeekMath, arXiv:2402.03300", {"prompts": 3, "answers": 5, "span": 7},
             draw={"ends": lambda x, sizes: _some(x, sizes["span"]) + 1, "chance": _small, "before": _small, "reference": _small}),
    Operator(noisy_router, _noisy, "N. Shazeer et al., arXiv:1701.06538", {"rows": 5, "experts": 7, "inputs": 6},
             draw={"weight": divided("inputs"), "noisy": divided("inputs")}),
    Operator(geglu_weight_gradient, _geglu_weight_gradient, "N. Shazeer, arXiv:2002.05202", {"batch": 5, "inner": 7, "outer": 6}),
]
