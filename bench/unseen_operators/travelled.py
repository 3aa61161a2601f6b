"""Operators from outside language models: video, speech, recommenders, graphs, molecules, physics, diffusion, geometry, time
series, control, finance, images, linear algebra and radar."""

import math

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, boolean, define, f32, indices

from unseen_operators.problem import Operator, divided, widened

# ---------------------------------------------------------------------------------------------- video: background model

frames, height, width = Size("frames", 32), Size("height", 1080), Size("width", 1920)
t, y, x = indices(t=frames, y=height, x=width)


@nestor.nest
def background_model(video: f32[frames, height, width], start: f32[height, width], rate=0.05, spread=0.04):
    """A Gaussian for each pixel, which only background updates; the foreground's mask and the last background."""
    tt, = indices(tt=frames + 1)
    mean = define("mean", (tt, y, x), start[y, x], where=tt == 0)
    variance = define("variance", (tt, y, x), spread, where=tt == 0)
    with nestor.steps(t):
        change = define("change", (t, y, x), video[t, y, x] - mean[t, y, x])
        moving = define("moving", (t, y, x), change[t, y, x] * change[t, y, x] > 6.25 * variance[t, y, x], type=boolean)
        step = define("step", (t, y, x), nestor.select(moving[t, y, x], 0.0, rate))
        mean.write((t, y, x), (t + 1, y, x), mean[t, y, x] + step[t, y, x] * change[t, y, x])
        variance.write((t, y, x), (t + 1, y, x), (1 - step[t, y, x]) * variance[t, y, x] + step[t, y, x] * change[t, y, x] * change[t, y, x])
    return moving, define("background", (y, x), mean[frames, y, x])


def background_model_torch(video, start, rate=0.05, spread=0.04):
    mean, variance, masks = start, torch.full_like(start, spread), []
    for frame in video:
        change = frame - mean
        moving = change * change > 6.25 * variance
        step = torch.where(moving, 0.0, rate)
        mean = mean + step * change
        variance = (1 - step) * variance + step * change * change
        masks.append(moving)
    return torch.stack(masks), mean


# ---------------------------------------------------------------------------------------------- speech: SincNet's first layer

batch, samples, filters, taps = Size("batch", 16), Size("samples", 16000), Size("filters", 80), Size("taps", 251, fixed=True)
b, f, k, p = indices(b=batch, f=filters, k=taps, p=3)
n, o = indices(n=samples - taps + 1, o=(samples - taps + 1) // 3)


@nestor.nest(require=samples >= taps + 2)
def sinc_filterbank(wave: f32[batch, samples], low: f32[filters], band: f32[filters]):
    """Band-pass filters with learned edges, a convolution with them, magnitude and max pooling."""
    first = define("first", f, 0.003 + nestor.absolute(low[f]))
    last = define("last", f, nestor.minimum(first[f] + 0.003 + nestor.absolute(band[f]), 0.5))
    at = k - taps // 2

    def low_pass(edge):
        return nestor.select(at == 0, 2 * edge, nestor.sin(2 * math.pi * edge * at) / (math.pi * at))

    window = 0.54 - 0.46 * nestor.cos(2 * math.pi * k / (taps - 1))
    bank = define("bank", (f, k), (low_pass(last[f]) - low_pass(first[f])) * window / (2 * (last[f] - first[f])))
    heard = define("heard", (b, f, n), nestor.sum(wave[b, n + k] * bank[f, k], over=k))
    return define("out", (b, f, o), nestor.max(nestor.absolute(heard[b, f, 3 * o + p]), over=p))


def sinc_filterbank_torch(wave, low, band, taps=251):
    first = 0.003 + low.abs()
    last = (first + 0.003 + band.abs()).clamp(max=0.5)
    k = torch.arange(taps, device=wave.device, dtype=wave.dtype)
    at = k - taps // 2
    window = 0.54 - 0.46 * torch.cos(2 * math.pi * k / (taps - 1))
    low_pass = lambda edge: 2 * edge[:, None] * torch.sinc(2 * edge[:, None] * at)
    bank = (low_pass(last) - low_pass(first)) * window / (2 * (last - first))[:, None]
    return F.max_pool1d(F.conv1d(wave[:, None], bank[:, None]).abs(), 3)


# ---------------------------------------------------------------------------------------------- recommenders: HSTU

users, events, heads, head = Size("users", 8), Size("events", 2048), Size("heads", 8), Size("head", 64, fixed=True)
u, i, j, h, d, e = indices(u=users, i=events, j=events, h=heads, d=head, e=head)


@nestor.nest
def hstu_layer(query: bf16[users, events, heads, head], key: bf16[users, events, heads, head], value: bf16[users, events, heads, head],
               gate: bf16[users, events, heads, head], position: f32[heads, events], eps=1e-5):
    """Pointwise attention of event histories with relative positions, normalised over all heads and gated."""
    score = define("score", (u, h, i, j), nestor.sum(query[u, i, h, e] * key[u, j, h, e], over=e) + position[h, i - j], where=j <= i)
    weight = define("weight", (u, h, i, j), score[u, h, i, j] * nestor.sigmoid(score[u, h, i, j]) / events, where=j <= i)
    mixed = define("mixed", (u, i, h, d), nestor.sum(weight[u, h, i, j] * value[u, j, h, d], over=j, where=j <= i))
    mean = define("average", (u, i), nestor.mean(mixed[u, i, h, d], over=(h, d)))
    variance = define("variance", (u, i), nestor.mean((mixed[u, i, h, d] - mean[u, i]) * (mixed[u, i, h, d] - mean[u, i]), over=(h, d)))
    return define("out", (u, i, h, d), (mixed[u, i, h, d] - mean[u, i]) * nestor.rsqrt(variance[u, i] + eps) * gate[u, i, h, d], type=bf16)


def hstu_layer_torch(query, key, value, gate, position, eps=1e-5):
    events, heads, head = query.shape[1:]
    ago = torch.arange(events, device=query.device)[:, None] - torch.arange(events, device=query.device)
    score = torch.einsum("uihe,ujhe->uhij", query, key) + position[:, ago.clamp(min=0)]
    weight = (F.silu(score) / events).tril().to(value.dtype)
    mixed = torch.einsum("uhij,ujhd->uihd", weight, value)
    return (F.layer_norm(widened(mixed), (heads, head), eps=eps) * gate).to(query.dtype)


# ---------------------------------------------------------------------------------------------- graphs: DiffPool

graphs, nodes, clusters, features = Size("graphs", 64), Size("nodes", 512), Size("clusters", 64), Size("features", 128)
g, v, w, c, a, s = indices(g=graphs, v=nodes, w=nodes, c=clusters, a=clusters, s=features)


@nestor.nest
def diffpool(adjacency: f32[graphs, nodes, nodes], x: f32[graphs, nodes, features], logits: f32[graphs, nodes, clusters]):
    """Nodes softly assigned to clusters: features and adjacency of clusters, and the two losses of the assignment."""
    top = nestor.max(logits[g, v, c], over=c)
    power = define("power", (g, v, c), nestor.exp(logits[g, v, c] - top))
    share = define("share", (g, v, c), power[g, v, c] / nestor.sum(power[g, v, a], over=a))
    pooled = define("pooled", (g, c, s), nestor.sum(share[g, v, c] * x[g, v, s], over=v))
    reached = define("reached", (g, v, a), nestor.sum(adjacency[g, v, w] * share[g, w, a], over=w))
    linked = define("linked", (g, c, a), nestor.sum(share[g, v, c] * reached[g, v, a], over=v))
    gap = define("gap", (g, v, w), adjacency[g, v, w] - nestor.sum(share[g, v, c] * share[g, w, c], over=c))
    link_loss = define("link_loss", g, nestor.sqrt(nestor.sum(gap[g, v, w] * gap[g, v, w], over=(v, w))))
    entropy = define("entropy", g, -nestor.sum(share[g, v, c] * nestor.log(share[g, v, c] + 1e-15), over=(v, c)) / nodes)
    return pooled, linked, link_loss, entropy


def diffpool_torch(adjacency, x, logits):
    share = torch.softmax(logits, -1)
    pooled = share.mT @ x
    linked = share.mT @ adjacency @ share
    link_loss = torch.linalg.matrix_norm(adjacency - share @ share.mT)
    entropy = -(share * torch.log(share + 1e-15)).sum(-1).mean(-1)
    return pooled, linked, link_loss, entropy


# ---------------------------------------------------------------------------------------------- molecules: PaiNN

molecules, atoms, channels, radial = Size("molecules", 64), Size("atoms", 64), Size("channels", 128), Size("radial", 20, fixed=True)
m, i, j, q, r, xyz, part = indices(m=molecules, i=atoms, j=atoms, q=channels, r=radial, xyz=3, part=3)
CUTOFF = 5.0


@nestor.nest
def painn_messages(place: f32[molecules, atoms, 3], phi: f32[molecules, atoms, 3, channels], vectors: f32[molecules, atoms, 3, channels],
                   weight: f32[3, channels, radial], bias: f32[3, channels]):
    """Equivariant messages: filters of distances in a radial basis, to scalars and vectors of each atom."""
    offset = define("offset", (m, i, j, xyz), place[m, j, xyz] - place[m, i, xyz], where=i != j)
    distance = define("distance", (m, i, j), nestor.sqrt(nestor.sum(offset[m, i, j, xyz] * offset[m, i, j, xyz], over=xyz)), where=i != j)
    cut = define("cut", (m, i, j), nestor.select(distance[m, i, j] < CUTOFF, 0.5 * (nestor.cos(math.pi / CUTOFF * distance[m, i, j]) + 1), 0.0), where=i != j)
    basis = define("basis", (m, i, j, r), nestor.sin((r + 1) * (math.pi / CUTOFF) * distance[m, i, j]) / distance[m, i, j], where=i != j)
    filtered = define("filtered", (m, i, j, part, q), (nestor.sum(weight[part, q, r] * basis[m, i, j, r], over=r) + bias[part, q]) * cut[m, i, j] * phi[m, j, part, q], where=i != j)
    scalars = define("scalars", (m, i, q), nestor.sum(filtered[m, i, j, 0, q], over=j, where=i != j))
    turned = define("turned", (m, i, xyz, q), nestor.sum(
        filtered[m, i, j, 1, q] * vectors[m, j, xyz, q] + filtered[m, i, j, 2, q] * offset[m, i, j, xyz] / distance[m, i, j], over=j, where=i != j))
    return scalars, turned


def painn_messages_torch(place, phi, vectors, weight, bias):
    offset = place[:, None] - place[:, :, None]  # m i j xyz
    others = ~torch.eye(place.shape[1], dtype=torch.bool, device=place.device)
    distance = torch.where(others, offset.square().sum(-1), 1.0).sqrt()
    cut = torch.where((distance < CUTOFF) & others, 0.5 * (torch.cos(math.pi / CUTOFF * distance) + 1), 0.0)
    orders = torch.arange(1, weight.shape[-1] + 1, device=place.device, dtype=place.dtype)
    basis = torch.sin(orders * (math.pi / CUTOFF) * distance[..., None]) / distance[..., None]
    filtered = (torch.einsum("pqr,mijr->mijpq", weight, basis) + bias) * cut[..., None, None] * phi[:, None]
    to_scalars, to_vectors, to_directions = filtered.unbind(-2)
    scalars = to_scalars.sum(2)
    turned = torch.einsum("mijq,mjxq->mixq", to_vectors, vectors) + torch.einsum("mijq,mijx->mixq", to_directions, offset / distance[..., None])
    return scalars, turned


# ---------------------------------------------------------------------------------------------- physics-informed nets: forward Laplacian

points, coordinates, wide, wider = Size("points", 4096), Size("coordinates", 30), Size("wide", 256), Size("wider", 256)
p, xi, i, o = indices(p=points, xi=coordinates, i=wide, o=wider)


@nestor.nest
def forward_laplacian(value: f32[points, wide], slope: f32[points, coordinates, wide], laplacian: f32[points, wide],
                      weight: f32[wider, wide], bias: f32[wider]):
    """A tanh layer with its Jacobian and its Laplacian by the coordinates, carried forward."""
    z = nestor.sum(weight[o, i] * value[p, i], over=i) + bias[o]
    dz = define("dz", (p, xi, o), nestor.sum(weight[o, i] * slope[p, xi, i], over=i))
    ddz = nestor.sum(weight[o, i] * laplacian[p, i], over=i)
    new_value = define("new_value", (p, o), nestor.tanh(z))
    first = 1 - new_value[p, o] * new_value[p, o]
    new_slope = define("new_slope", (p, xi, o), first * dz[p, xi, o])
    squares = nestor.sum(dz[p, xi, o] * dz[p, xi, o], over=xi)
    new_laplacian = define("new_laplacian", (p, o), first * ddz - 2 * new_value[p, o] * first * squares)
    return new_value, new_slope, new_laplacian


def forward_laplacian_torch(value, slope, laplacian, weight, bias):
    new_value = torch.tanh(F.linear(value, weight, bias))
    dz = F.linear(slope, weight)
    first = 1 - new_value.square()
    return new_value, first[:, None] * dz, first * F.linear(laplacian, weight) - 2 * new_value * first * dz.square().sum(1)


# ---------------------------------------------------------------------------------------------- diffusion: EDM2's block

images, rows, columns, inner = Size("images", 8), Size("rows", 64), Size("columns", 64), Size("inner", 256, fixed=True)
n, c, o, y, x, dy, dx = indices(n=images, c=inner, o=inner, y=rows, x=columns, dy=3, dx=3)


@nestor.nest
def magnitude_preserving_conv(image: bf16[images, inner, rows, columns], weight: bf16[inner, inner, 3, 3], balance=0.3, eps=1e-4):
    """Pixel norm, scaled SiLU, a 3x3 convolution with normalised weights, and a residual that keeps magnitudes."""
    length = nestor.sqrt(nestor.mean(image[n, c, y, x] * image[n, c, y, x], over=c))
    unit = define("unit", (n, c, y, x), image[n, c, y, x] / (length + eps))
    active = define("active", (n, c, y, x), unit[n, c, y, x] * nestor.sigmoid(unit[n, c, y, x]) / 0.596, type=bf16)
    norm = nestor.sqrt(nestor.sum(weight[o, c, dy, dx] * weight[o, c, dy, dx], over=(c, dy, dx)))
    scaled = define("scaled", (o, c, dy, dx), weight[o, c, dy, dx] / (norm + eps * nestor.sqrt(9.0 * inner)), type=bf16)
    inside = (y + dy >= 1) & (y + dy <= rows) & (x + dx >= 1) & (x + dx <= columns)
    conv = define("conv", (n, o, y, x), nestor.sum(active[n, c, y + dy - 1, x + dx - 1] * scaled[o, c, dy, dx], over=(c, dy, dx), where=inside))
    return define("out", (n, o, y, x), ((1 - balance) * unit[n, o, y, x] + balance * conv[n, o, y, x]) * nestor.rsqrt((1 - balance) * (1 - balance) + balance * balance), type=bf16)


def magnitude_preserving_conv_torch(image, weight, balance=0.3, eps=1e-4):
    wide = widened(image)
    unit = wide / (wide.square().mean(1, keepdim=True).sqrt() + eps)
    active = (F.silu(unit) / 0.596).to(image.dtype)
    flat = widened(weight)
    scaled = flat / (flat.square().sum((1, 2, 3), keepdim=True).sqrt() + eps * math.sqrt(flat[0].numel()))
    conv = F.conv2d(active, scaled.to(weight.dtype), padding=1)
    return (((1 - balance) * unit + balance * conv) / math.sqrt((1 - balance)**2 + balance**2)).to(image.dtype)


# ---------------------------------------------------------------------------------------------- geometry: winding numbers

places, faces = Size("places", 16384), Size("faces", 4096)
q, t, xyz, corner = indices(q=places, t=faces, xyz=3, corner=3)


@nestor.nest
def winding_numbers(place: f32[places, 3], triangle: f32[faces, 3, 3]):
    """Generalised winding numbers of a soup of triangles: solid angles seen from each place, summed."""
    def to(k):
        return [triangle[t, k, axis] - place[q, axis] for axis in range(3)]

    def dot(u, v):
        return u[0] * v[0] + u[1] * v[1] + u[2] * v[2]

    def cross(u, v):
        return [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]]

    def atan2(up, right):
        plain = nestor.atan(up / right)
        return nestor.select(right > 0, plain, nestor.select(up >= 0, plain + math.pi, plain - math.pi))

    first, second, third = to(0), to(1), to(2)
    la, lb, lc = (nestor.sqrt(dot(u, u)) for u in (first, second, third))
    volume = dot(first, cross(second, third))
    base = la * lb * lc + dot(first, second) * lc + dot(second, third) * la + dot(third, first) * lb
    return define("winding", q, nestor.sum(atan2(volume, base), over=t) / (2 * math.pi))


def winding_numbers_torch(place, triangle):
    first, second, third = (triangle[None] - place[:, None, None]).unbind(-2)
    la, lb, lc = first.norm(dim=-1), second.norm(dim=-1), third.norm(dim=-1)
    volume = (first * torch.linalg.cross(second, third)).sum(-1)
    base = la * lb * lc + (first * second).sum(-1) * lc + (second * third).sum(-1) * la + (third * first).sum(-1) * lb
    return torch.atan2(volume, base).sum(-1) / (2 * math.pi)


# ---------------------------------------------------------------------------------------------- time series: matrix profile

windows, length = Size("windows", 16384), Size("length", 64, fixed=True)
i, j, k = indices(i=windows, j=windows, k=length)


@nestor.nest(require=windows >= length)
def matrix_profile(series: f32[windows + length - 1]):
    """The nearest other window of a series for each window, by normalised Euclidean distance, and where it is."""
    mean = define("average", i, nestor.mean(series[i + k], over=k))
    deviation = define("deviation", i, nestor.sqrt(nestor.mean((series[i + k] - mean[i]) * (series[i + k] - mean[i]), over=k)))
    dot = nestor.sum((series[i + k] - mean[i]) * (series[j + k] - mean[j]), over=k)
    likeness = define("likeness", (i, j), dot / (length * deviation[i] * deviation[j]))
    apart = nestor.absolute(i - j) >= length // 2
    best = define("best", i, nestor.max(likeness[i, j], over=j, where=apart))
    profile = define("profile", i, nestor.sqrt(2 * length * nestor.maximum(1 - best[i], 0.0)))
    nearest = define("nearest", i, nestor.min(nestor.select(likeness[i, j] == best[i], j, windows), over=j, where=apart))
    return profile, nearest


def matrix_profile_torch(series, length):
    window = series.unfold(0, length, 1)
    window = window - window.mean(1, keepdim=True)
    unit = window / window.square().mean(1, keepdim=True).sqrt()
    likeness = unit @ unit.T / length
    at = torch.arange(len(unit), device=series.device)
    best, nearest = likeness.masked_fill((at[:, None] - at).abs() < length // 2, -math.inf).max(1)
    return torch.sqrt(2 * length * (1 - best).clamp(min=0)), nearest.int()


# ---------------------------------------------------------------------------------------------- robotics: path integral control

worlds, paths, horizon = Size("worlds", 64), Size("paths", 2048), Size("horizon", 64)
t, w, p = indices(t=horizon, w=worlds, p=paths)


@nestor.nest
def path_integral_control(noise: f32[horizon, worlds, paths], plan: f32[horizon, worlds], start: f32[worlds, 4], temperature=1.0, dt=0.02):
    """Controls of a cart with a pole: random paths rolled out, weighted by exponentials of their costs."""
    s, = indices(s=horizon + 1)
    x, vx, angle, spin = (define(name, (s, w, p), start[w, column], where=s == 0) for column, name in enumerate(("x", "vx", "angle", "spin")))
    cost = define("cost", (w, p), 0.0)
    with nestor.steps(t):
        force = define("force", (t, w, p), nestor.maximum(nestor.minimum(plan[t, w] + noise[t, w, p], 10.0), -10.0))
        sine = define("sine", (t, w, p), nestor.sin(angle[t, w, p]))
        cosine = define("cosine", (t, w, p), nestor.cos(angle[t, w, p]))
        pull = define("pull", (t, w, p), (force[t, w, p] + 0.05 * spin[t, w, p] * spin[t, w, p] * sine[t, w, p]) / 1.1)
        turn = define("turn", (t, w, p), (9.8 * sine[t, w, p] - cosine[t, w, p] * pull[t, w, p]) / (0.5 * (4 / 3 - 0.1 * cosine[t, w, p] * cosine[t, w, p] / 1.1)))
        x.write((t, w, p), (t + 1, w, p), x[t, w, p] + dt * vx[t, w, p])
        vx.write((t, w, p), (t + 1, w, p), vx[t, w, p] + dt * (pull[t, w, p] - 0.05 * turn[t, w, p] * cosine[t, w, p] / 1.1))
        angle.write((t, w, p), (t + 1, w, p), angle[t, w, p] + dt * spin[t, w, p])
        spin.write((t, w, p), (t + 1, w, p), spin[t, w, p] + dt * turn[t, w, p])
        cost.write((t, w, p), (w, p), cost[w, p] + x[t + 1, w, p] * x[t + 1, w, p] + 10 * (1 - nestor.cos(angle[t + 1, w, p]))
                   + 0.1 * spin[t + 1, w, p] * spin[t + 1, w, p] + 0.01 * plan[t, w] * noise[t, w, p])
    least = nestor.min(cost[w, p], over=p)
    weight = define("weight", (w, p), nestor.exp((least - cost[w, p]) / temperature))
    total = nestor.sum(weight[w, p], over=p)
    return define("controls", (t, w), plan[t, w] + nestor.sum(weight[w, p] * noise[t, w, p], over=p) / total)


def path_integral_control_torch(noise, plan, start, temperature=1.0, dt=0.02):
    x, vx, angle, spin = (column[:, None].expand(noise.shape[1:]) for column in start.unbind(-1))
    cost = torch.zeros_like(noise[0])
    for eps, control in zip(noise, plan):
        force = (control[:, None] + eps).clamp(-10, 10)
        sine, cosine = angle.sin(), angle.cos()
        pull = (force + 0.05 * spin * spin * sine) / 1.1
        turn = (9.8 * sine - cosine * pull) / (0.5 * (4 / 3 - 0.1 * cosine * cosine / 1.1))
        x, vx = x + dt * vx, vx + dt * (pull - 0.05 * turn * cosine / 1.1)
        angle, spin = angle + dt * spin, spin + dt * turn
        cost = cost + x * x + 10 * (1 - angle.cos()) + 0.1 * spin * spin + 0.01 * control[:, None] * eps
    weight = torch.softmax(-cost / temperature, -1)
    return plan + torch.einsum("wp,twp->tw", weight, noise)


# ---------------------------------------------------------------------------------------------- finance: GJR-GARCH likelihoods

assets, days, grid = Size("assets", 512), Size("days", 252), Size("grid", 1024)
t, a, g = indices(t=days, a=assets, g=grid)


@nestor.nest
def garch_likelihood(returns: f32[assets, days], omega: f32[grid], alpha: f32[grid], gamma: f32[grid], beta: f32[grid]):
    """Log likelihoods of returns for a grid of parameters of a variance that falls and rises with them, more with losses."""
    before, = indices(before=days - 1)
    spread = define("spread", a, nestor.mean(returns[a, t] * returns[a, t], over=t))
    variance = define("variance", (t, a, g), spread[a], where=t == 0)
    r = returns[a, before]
    variance.write((before, a, g), (before + 1, a, g), omega[g] + (alpha[g] + nestor.select(r < 0, gamma[g], 0.0)) * r * r + beta[g] * variance[before, a, g])
    return define("likelihood", (a, g), -0.5 * nestor.sum(nestor.log(2 * math.pi * variance[t, a, g]) + returns[a, t] * returns[a, t] / variance[t, a, g], over=t))


def garch_likelihood_torch(returns, omega, alpha, gamma, beta):
    squares = returns.square()
    shocks = squares[..., None] * (alpha + gamma * (returns < 0)[..., None])
    variance = squares.mean(1)[:, None].expand(-1, omega.shape[0])
    total = 0
    for day in range(returns.shape[1]):
        total = total + torch.log(2 * math.pi * variance) + squares[:, day, None] / variance
        variance = omega + shocks[:, day] + beta * variance
    return -0.5 * total


# ---------------------------------------------------------------------------------------------- image processing: texture histograms

pictures, down, across, cell = Size("pictures", 16), Size("down", 32), Size("across", 32), 32
n, cy, cx, y, x, bin = indices(n=pictures, cy=down, cx=across, y=cell, x=cell, bin=256)
RING = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))


@nestor.nest
def texture_histograms(picture: f32[pictures, down * cell + 2, across * cell + 2]):
    """Histograms of local binary patterns in the cells of a picture."""
    py, px = indices(py=down * cell, px=across * cell)
    code = define("code", (n, py, px), sum(nestor.select(picture[n, py + dy, px + dx] >= picture[n, py + 1, px + 1], 1 << bit, 0) for bit, (dy, dx) in enumerate(RING)))
    return define("histogram", (n, cy, cx, bin), nestor.sum(nestor.select(code[n, cell * cy + y, cell * cx + x] == bin, 1.0, 0.0), over=(y, x)) / (cell * cell))


def texture_histograms_torch(picture):
    height, width = picture.shape[1] - 2, picture.shape[2] - 2
    centre = picture[:, 1:-1, 1:-1]
    code = sum((picture[:, dy:dy + height, dx:dx + width] >= centre).long() << bit for bit, (dy, dx) in enumerate(RING))
    cells = code.unflatten(2, (-1, 32)).unflatten(1, (-1, 32)).transpose(2, 3).flatten(3)
    counts = torch.zeros(*cells.shape[:3], 256, device=picture.device, dtype=picture.dtype)
    return counts.scatter_add(3, cells, torch.ones_like(cells, dtype=picture.dtype)) / 1024


# ---------------------------------------------------------------------------------------------- linear algebra: Chebyshev filter

order, block, degree = Size("order", 4096), Size("block", 64), Size("degree", 8, min=2)
r, s, c, l = indices(r=order, s=order, c=block, l=degree - 1)


@nestor.nest
def chebyshev_subspace(matrix: f32[order, order], start: f32[order, block], centre=-0.5, radius=1.5):
    """Vectors filtered by a Chebyshev polynomial of a matrix, which damps an interval of its eigenvalues."""
    step, = indices(step=degree + 1)
    vectors = define("vectors", (step, r, c), start[r, c], where=step == 0)
    vectors.write((r, c), (1, r, c), (nestor.sum(matrix[r, s] * start[s, c], over=s) - centre * start[r, c]) / radius)
    vectors.write((l, r, c), (l + 2, r, c), 2 * (nestor.sum(matrix[r, s] * vectors[l + 1, s, c], over=s) - centre * vectors[l + 1, r, c]) / radius - vectors[l, r, c])
    return define("filtered", (r, c), vectors[degree, r, c])


def chebyshev_subspace_torch(matrix, start, degree, centre=-0.5, radius=1.5):
    last, now = start, (matrix @ start - centre * start) / radius
    for _ in range(degree - 1):
        last, now = now, 2 * (matrix @ now - centre * now) / radius - last
    return now


# ---------------------------------------------------------------------------------------------- radar: ambiguity surface

pulses, times, delays, shifts = Size("pulses", 4), Size("times", 4096), Size("delays", 256), Size("shifts", 256)
b, t, l, f = indices(b=pulses, t=times, l=delays, f=shifts)


@nestor.nest(require=times >= delays)
def ambiguity_surface(echo: f32[pulses, times, 2], pulse: f32[times, 2], doppler: f32[shifts]):
    """Power of an echo's correlation with a delayed pulse at each shift of frequency; complex numbers are pairs."""
    real = define("real", (b, l, t), echo[b, t, 0] * pulse[t - l, 0] + echo[b, t, 1] * pulse[t - l, 1], where=t >= l)
    imag = define("imag", (b, l, t), echo[b, t, 1] * pulse[t - l, 0] - echo[b, t, 0] * pulse[t - l, 1], where=t >= l)
    phase = 2 * math.pi * doppler[f] * t
    cos = define("cosine", (f, t), nestor.cos(phase))
    sin = define("sine", (f, t), nestor.sin(phase))
    re = nestor.sum(real[b, l, t] * cos[f, t] + imag[b, l, t] * sin[f, t], over=t, where=t >= l)
    im = nestor.sum(imag[b, l, t] * cos[f, t] - real[b, l, t] * sin[f, t], over=t, where=t >= l)
    return define("power", (b, f, l), (re * re + im * im) / times)


def ambiguity_surface_torch(echo, pulse, doppler, delays):
    times = pulse.shape[0]
    echo, pulse = torch.view_as_complex(echo), torch.view_as_complex(pulse)
    late = torch.stack([F.pad(pulse, (delay, 0))[:times] for delay in range(delays)])
    phase = 2 * math.pi * doppler[:, None] * torch.arange(times, device=doppler.device)
    surface = torch.einsum("blt,ft->bfl", echo[:, None] * late.conj(), torch.polar(torch.ones_like(phase), -phase))
    return surface.abs().square() / times


OPERATORS = [
    Operator(background_model, background_model_torch, "Wren et al., Pfinder, 1997", {"frames": 5, "height": 3, "width": 7},
             draw={"video": lambda normal, _: 0.3 * normal, "start": lambda normal, _: 0.1 * normal}),
    Operator(sinc_filterbank, sinc_filterbank_torch, "Ravanelli and Bengio, SincNet, 2018", {"batch": 2, "samples": 37, "filters": 3, "taps": 7}, told=("taps",),
             draw={"low": lambda normal, _: 0.1 * normal, "band": lambda normal, _: 0.05 * normal}),
    Operator(hstu_layer, hstu_layer_torch, "Zhai et al., Actions speak louder than words, 2024", {"users": 2, "events": 7, "heads": 3, "head": 5}),
    Operator(diffpool, diffpool_torch, "Ying et al., DiffPool, 2018", {"graphs": 2, "nodes": 7, "clusters": 3, "features": 5},
             draw={"adjacency": lambda normal, _: (normal > 1).float()}),
    Operator(painn_messages, painn_messages_torch, "Schuett et al., PaiNN, 2021", {"molecules": 2, "atoms": 5, "channels": 7, "radial": 3},
             draw={"place": lambda normal, _: 3 * normal, "weight": divided("radial")}),
    Operator(forward_laplacian, forward_laplacian_torch, "Li et al., Forward Laplacian, 2023", {"points": 5, "coordinates": 3, "wide": 7, "wider": 9},
             draw={"weight": divided("wide")}),
    Operator(magnitude_preserving_conv, magnitude_preserving_conv_torch, "Karras et al., EDM2, 2024", {"images": 2, "rows": 5, "columns": 7, "inner": 3}),
    Operator(winding_numbers, winding_numbers_torch, "Jacobson et al., Generalized winding numbers, 2013", {"places": 7, "faces": 5},
             draw={"triangle": lambda normal, _: torch.cat([normal[:, :1], normal[:, :1] + 0.1 * normal[:, 1:]], 1)}),
    Operator(matrix_profile, matrix_profile_torch, "Yeh et al., Matrix profile, 2016", {"windows": 23, "length": 5}, told=("length",)),
    Operator(path_integral_control, path_integral_control_torch, "Williams et al., MPPI, 2017", {"worlds": 2, "paths": 7, "horizon": 5},
             draw={"start": lambda normal, _: 0.1 * normal}),
    Operator(garch_likelihood, garch_likelihood_torch, "Glosten, Jagannathan and Runkle, 1993", {"assets": 3, "days": 11, "grid": 5},
             draw={"omega": lambda normal, _: 0.05 + 0.01 * normal.abs(), "alpha": lambda normal, _: 0.05 + 0.01 * normal.abs(),
                   "gamma": lambda normal, _: 0.05 + 0.01 * normal.abs(), "beta": lambda normal, _: 0.85 + 0.01 * normal.clamp(-3, 3)}),
    Operator(texture_histograms, texture_histograms_torch, "Ahonen, Hadid and Pietikainen, 2004", {"pictures": 2, "down": 1, "across": 3}),
    Operator(chebyshev_subspace, chebyshev_subspace_torch, "Zhou et al., Chebyshev-filtered subspace iteration, 2006", {"order": 9, "block": 3, "degree": 5}, told=("degree",),
             draw={"matrix": divided("order")}),
    Operator(ambiguity_surface, ambiguity_surface_torch, "Woodward, 1953; Stein, 1981", {"pulses": 2, "times": 17, "delays": 5, "shifts": 3}, told=("delays",),
             draw={"doppler": lambda normal, _: 0.005 * normal}),
]
