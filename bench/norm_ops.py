"""The operators on rows as PyTorch has them: inputs, the eager form, and the exact result in double.

Names of tensors are those of kernels/*.cc. `exact` is given chunks of rows in double; what it returns for an output that has
one value a column is the chunk's share of a sum.
"""

import dataclasses
from typing import Callable, Dict, List

import torch
import torch.nn.functional as F

EPS = 1e-5
aten = torch.ops.aten


@dataclasses.dataclass
class Operator:
    inputs: List[str]
    outputs: List[str]
    eager: Callable  #: inputs in order -> outputs in order
    exact: Callable  #: inputs in double, in order -> outputs in order
    scalars: Dict[str, float] = dataclasses.field(default_factory=dict)
    compiled: Callable = None  #: what torch.compile gets in place of `eager`: aten calls that it would leave as they are
    #: (rows, width, device) -> tensor of a row each: a random choice that `exact` takes after the inputs. PyTorch's generators
    #: choose otherwise, so that the errors of peers are not taken.
    drawn: Callable = None


ROW_WISE = {"x", "y", "dy", "residual", "out", "dx", "summed"}  # rows x width
PER_ROW = {"mean", "rstd"}  # rows, f32
#: all others: width


def shape_of(name, rows, width):
    return (rows, width) if name in ROW_WISE else (rows,) if name in PER_ROW else (width,)


def make_inputs(op, rows, width, dtype, device, generator):
    """Random inputs; what a forward pass would have left (mean, rstd, y) is computed from x."""
    def random(shape, scale=1.0, shift=0.0):
        return torch.randn(shape, generator=generator, device=device).mul_(scale).add_(shift).to(dtype)

    made = {}
    for name in op.inputs:
        if name in PER_ROW:
            x = made["x"].float()
            mean = x.mean(-1)
            if name == "mean":
                made[name] = mean
            else:
                square = x.square().mean(-1)
                made[name] = torch.rsqrt((square - mean.square() if "mean" in op.inputs else square) + EPS)
        elif name == "y":
            made[name] = op.forward(random((rows, width)).float()).to(dtype)
        elif name in ROW_WISE:
            made[name] = random((rows, width))
        else:
            made[name] = random((width,), 0.1, 1.0 if name in ("weight", "gamma") else 0.0)
    return made


def make_outputs(op, rows, width, dtype, device):
    """Outputs, poisoned: whatever a kernel leaves out is found."""
    return {name: torch.full(shape_of(name, rows, width), float("nan"), dtype=torch.float32 if name in PER_ROW else dtype,
                             device=device) for name in op.outputs}


def _layernorm(x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS) * weight + bias


def _rmsnorm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def _layernorm_backward(dy, x, weight, mean, rstd):
    rstd = rstd[:, None]
    normal, scaled = (x - mean[:, None]) * rstd, dy * weight
    dx = rstd * (scaled - scaled.mean(-1, keepdim=True) - normal * (scaled * normal).mean(-1, keepdim=True))
    return dx, (dy * normal).sum(0), dy.sum(0)


def _rmsnorm_backward(dy, x, weight, rstd):
    rstd = rstd[:, None]
    normal, scaled = x * rstd, dy * weight
    return rstd * (scaled - normal * (scaled * normal).mean(-1, keepdim=True)), (dy * normal).sum(0)


def _eager_layernorm_backward(dy, x, weight, mean, rstd):
    if not x.is_cuda:  # statistics have the type of x on CPUs
        mean, rstd = mean.to(x.dtype), rstd.to(x.dtype)
    return aten.native_layer_norm_backward(dy, x, [x.shape[-1]], mean[:, None], rstd[:, None], weight, weight, [True] * 3)


def _written_rmsnorm_backward(dy, x, weight, rstd):
    dx, dweight = _rmsnorm_backward(dy.float(), x.float(), weight.float(), rstd)
    return dx.to(x.dtype), dweight.to(weight.dtype)


def _eager_rmsnorm_backward(dy, x, weight, rstd):
    if x.is_cuda and hasattr(aten, "_fused_rms_norm_backward"):
        return aten._fused_rms_norm_backward(dy, x, [x.shape[-1]], rstd[:, None], weight, [True, True])
    return _written_rmsnorm_backward(dy, x, weight, rstd)


def _eager_bias_residual_layernorm(x, bias, residual, gamma, beta):
    summed = x + bias + residual
    return summed, F.layer_norm(summed, summed.shape[-1:], gamma, beta, EPS)


def _exact_bias_residual_layernorm(x, bias, residual, gamma, beta):
    summed = x + bias + residual
    return summed, _layernorm(summed, gamma, beta)


def _eager_residual_rmsnorm(x, residual, weight):
    summed = x + residual
    return summed, F.rms_norm(summed, summed.shape[-1:], weight, EPS)


def _exact_residual_rmsnorm(x, residual, weight):
    summed = x + residual
    return summed, _rmsnorm(summed, weight)


DROPOUT = {"p": 0.1, "seed_low": 1234, "seed_high": 5, "offset_low": 6, "offset_high": 0}


def _philox(counter, key):
    """Philox4x32-10 of four counter words and two key words, tensors or numbers below 2**32 in int64."""
    low = 0xFFFFFFFF
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first, second = c0 * 0xD2511F53, c2 * 0xCD9E8D57  # may wrap: the bits are those of the unsigned product
        c0, c1, c2, c3 = (second >> 32 & low) ^ c1 ^ k0, second & low, (first >> 32 & low) ^ c3 ^ k1, first & low
        k0, k1 = k0 + 0x9E3779B9 & low, k1 + 0xBB67AE85 & low
    return c0, c1, c2, c3


def _drawn_dropout(rows, width, device):
    """What an element is multiplied with (docs/operators.md): 0 or 1 / (1 - p), rows x width."""
    p = torch.tensor(DROPOUT["p"], dtype=torch.float32, device=device)
    factor = torch.empty(rows, width, dtype=torch.float32, device=device)
    groups = torch.arange((width + 3) // 4, dtype=torch.int64, device=device)[None, :]
    for first in range(0, rows, max(1, 2**22 // width)):
        part = slice(first, min(rows, first + max(1, 2**22 // width)))
        row = torch.arange(part.start, part.stop, dtype=torch.int64, device=device)[:, None]
        zero = torch.zeros_like(row + groups)
        words = _philox((groups + zero, row + zero, zero + DROPOUT["offset_low"], zero + DROPOUT["offset_high"]),
                        (DROPOUT["seed_low"], DROPOUT["seed_high"]))
        bits = torch.stack(words, -1).reshape(len(row), -1)[:, :width]
        kept = (bits >> 8).float() * 2.0**-24 >= p
        factor[part] = torch.where(kept, 1 / (1 - p), torch.zeros_like(p))
    return factor


def _eager_bias_dropout_residual_layernorm(x, bias, residual, gamma, beta):
    summed = F.dropout(x + bias, DROPOUT["p"], training=True) + residual
    return summed, F.layer_norm(summed, summed.shape[-1:], gamma, beta, EPS)


def _exact_bias_dropout_residual_layernorm(x, bias, residual, gamma, beta, factor):
    summed = (x + bias) * factor + residual
    return summed, _layernorm(summed, gamma, beta)


_EPS = {"eps": EPS}
OPERATORS = {
    "layernorm": Operator(["x", "weight", "bias"], ["out"],
                          lambda x, w, b: (F.layer_norm(x, x.shape[-1:], w, b, EPS),),
                          lambda x, w, b: (_layernorm(x, w, b),), _EPS),
    "rmsnorm": Operator(["x", "weight"], ["out"], lambda x, w: (F.rms_norm(x, x.shape[-1:], w, EPS),),
                        lambda x, w: (_rmsnorm(x, w),), _EPS),
    "softmax": Operator(["x"], ["out"], lambda x: (torch.softmax(x, -1),), lambda x: (torch.softmax(x, -1),)),
    "log_softmax": Operator(["x"], ["out"], lambda x: (torch.log_softmax(x, -1),), lambda x: (torch.log_softmax(x, -1),)),
    "bias_residual_layernorm": Operator(["x", "bias", "residual", "gamma", "beta"], ["summed", "out"],
                                        _eager_bias_residual_layernorm, _exact_bias_residual_layernorm, _EPS),
    "bias_dropout_residual_layernorm": Operator(["x", "bias", "residual", "gamma", "beta"], ["summed", "out"],
                                                _eager_bias_dropout_residual_layernorm, _exact_bias_dropout_residual_layernorm,
                                                {**_EPS, **DROPOUT}, drawn=_drawn_dropout),
    "residual_rmsnorm": Operator(["x", "residual", "weight"], ["summed", "out"], _eager_residual_rmsnorm,
                                 _exact_residual_rmsnorm, _EPS),
    "bias_gelu": Operator(["x", "bias"], ["out"], lambda x, b: (F.gelu(x + b),), lambda x, b: (F.gelu(x + b),)),
    "layernorm_backward": Operator(["dy", "x", "weight", "mean", "rstd"], ["dx", "dweight", "dbias"],
                                   _eager_layernorm_backward, _layernorm_backward),
    "rmsnorm_backward": Operator(["dy", "x", "weight", "rstd"], ["dx", "dweight"], _eager_rmsnorm_backward,
                                 _rmsnorm_backward, compiled=_written_rmsnorm_backward),
    "softmax_backward": Operator(["dy", "y"], ["dx"],
                                 lambda dy, y: (aten._softmax_backward_data(dy, y, -1, y.dtype),),
                                 lambda dy, y: (y * (dy - (dy * y).sum(-1, keepdim=True)),)),
    "log_softmax_backward": Operator(["dy", "y"], ["dx"],
                                     lambda dy, y: (aten._log_softmax_backward_data(dy, y, -1, y.dtype),),
                                     lambda dy, y: (dy - y.exp() * dy.sum(-1, keepdim=True),)),
}
OPERATORS["softmax_backward"].forward = lambda x: torch.softmax(x, -1)
OPERATORS["log_softmax_backward"].forward = lambda x: torch.log_softmax(x, -1)


def total_bytes(*groups):
    return sum(tensor.numel() * tensor.element_size() for group in groups for tensor in group)


def errors_of(op, inputs, results, elements=2**25):
    """{name of the results: (largest |error|, norm of the error / norm of the exact result), the worst output's each}.
    `results`: {name: outputs in order}. Exact results are computed in double, some rows at a time."""
    rows = next(tensor.shape[0] for name, tensor in inputs.items() if name in ROW_WISE)
    width = next(tensor.shape[1] for name, tensor in inputs.items() if name in ROW_WISE)
    by_row = ROW_WISE | PER_ROW
    step = max(1, elements // width)
    drawn = [op.drawn(rows, width, next(iter(inputs.values())).device)] if op.drawn else []
    sums = {name: [[0.0, 0.0] for _ in op.outputs] for name in results}  # largest error, sum of its squares
    squares, columns = [0.0] * len(op.outputs), [0.0] * len(op.outputs)
    for first in range(0, rows, step):
        part = slice(first, first + step)
        exact = op.exact(*[(t[part] if name in by_row else t).double() for name, t in inputs.items()],
                         *[t[part].double() for t in drawn])
        for k, (name, value) in enumerate(zip(op.outputs, exact)):
            if name not in by_row:
                columns[k] = columns[k] + value
                continue
            squares[k] += value.square().sum()
            for which, outputs in results.items():
                _add_error(sums[which][k], outputs[k][part], value)
    for k, name in enumerate(op.outputs):
        if name in by_row:
            continue
        squares[k] = columns[k].square().sum()
        for which, outputs in results.items():
            _add_error(sums[which][k], outputs[k], columns[k])
    return {which: (_worst([float(largest) for largest, _ in errors]),
                    _worst([float((square / norm) ** 0.5) for (_, square), norm in zip(errors, squares)]))
            for which, errors in sums.items()}


def _worst(values):
    return next((value for value in values if value != value), max(values))  # nan is the worst


def _add_error(total, found, exact):
    error = found.double().reshape(exact.shape) - exact
    largest = error.abs().max()
    total[0] = torch.maximum(torch.as_tensor(total[0], dtype=torch.float64, device=largest.device), largest)
    total[1] = total[1] + error.square().sum()
