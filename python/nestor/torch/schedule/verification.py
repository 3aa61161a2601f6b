"""Compares a scheduled model with another: results and gradients in float64, in evaluation and in training."""

import contextlib
import copy

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ...errors import Error, UserError
from ...tuning import Text
from .merging import original_gradients

# (relative, absolute) where no other tolerance is given: reassociated sums of a model's depth.
_TOLERANCES = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1e-3, 1e-4),
    torch.float16: (2e-2, 1e-2),
    torch.bfloat16: (6e-2, 3e-2)
}
_DROPS = {
    torch.nn.functional.dropout, torch.nn.functional.alpha_dropout, torch.nn.functional.feature_alpha_dropout,
    torch.nn.functional.dropout1d, torch.nn.functional.dropout2d, torch.nn.functional.dropout3d, torch.dropout
}


class Mismatch(Error, AssertionError):
    """A scheduled model computes something else. worst: (what, index, found, wanted); report: all that was compared."""

    def __init__(self, message, worst, report):
        super().__init__(message)
        self.worst, self.report = worst, report


class _Draws(TorchDispatchMode):
    """The random numbers that are drawn: shapes in order."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        before = _generators(args)
        made = func(*args, **(kwargs or {}))
        if not all(map(torch.equal, before, _generators(args))):
            self.found.append([tuple(each.shape) for each in pytree.tree_leaves(made) if isinstance(each, torch.Tensor)])
        return made


def _generators(args):
    """States of the generators that an op with these arguments may draw from."""
    devices = {each.device for each in pytree.tree_leaves(args) if isinstance(each, torch.Tensor) and each.is_cuda}
    return [torch.random.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]


class _NoDropout(TorchFunctionMode):
    """Dropout leaves its input as it is."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in _DROPS:
            return args[0] if args else kwargs["input"]
        if func is torch.nn.functional.scaled_dot_product_attention:
            kwargs["dropout_p"] = 0.0
            args = args[:4] + ((0.0, ) + args[5:] if len(args) > 4 else ())
            if len(args) > 4:
                kwargs.pop("dropout_p")
        return func(*args, **kwargs)


class _Run:
    """One pass through a model: results, gradients and buffers by name."""

    def __init__(self, model, inputs, backward, seed, dropout, counted):
        self.draws = _Draws()
        args, kwargs = copy.deepcopy(inputs)
        leaves = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        floating = [each.requires_grad_(backward) for each in leaves if each.is_floating_point()]
        torch.manual_seed(seed)
        with torch.set_grad_enabled(backward), self.draws if counted else contextlib.nullcontext():
            if dropout:
                made = model(*args, **kwargs)
            else:
                with _NoDropout():
                    made = model(*args, **kwargs)
        found, self.form = pytree.tree_flatten(made)
        self.values = {f"result {number}" if len(found) > 1 else "the result": each for number, each in enumerate(found)}
        if backward:
            self._backward(model, found, floating)
        self.values.update({f"buffer {name}": each for name, each in model.named_buffers()})

    def _backward(self, model, found, floating):
        """Gradients of a sum of the results with random weights."""
        order = torch.Generator().manual_seed(17)
        ends = [each for each in found if isinstance(each, torch.Tensor) and each.requires_grad]
        if not ends:
            raise UserError("nothing in the results needs a gradient: verify with backward=False")
        torch.autograd.backward(ends, [torch.randn(each.shape, generator=order, dtype=torch.float64).to(each) for each in ends])
        self.values.update({f"gradient of input {number}": each.grad for number, each in enumerate(floating)})
        self.values.update({f"gradient of {name}": each for name, each in original_gradients(model).items()})


class Report(Text):
    """What was compared. values: a list of {name, mode, equal, error, worst}."""

    values = ()


def verify(original, scheduled, inputs, *, backward, rtol, atol, dtype, seed, modes, counted):
    """Compares two models, which are changed (their types too). Returns a Report. Raises Mismatch.

    inputs: (positional, named). rtol, atol: numbers, or {type: number}; None: by type, 1e-7 and 1e-9 in float64. dtype: what
    parameters and inputs are converted to, None for their own. modes: of "eval" and "train"; in train mode both models draw
    from the same seed, and where they draw other random numbers they are compared without dropout. counted: see what is drawn,
    for which torch.compile has to leave the models alone.
    """
    if set(modes) - {"eval", "train"}:
        raise UserError(f'modes are "eval" and "train", not {", ".join(map(repr, modes))}')
    if dtype is not None:
        original, scheduled = original.to(dtype), scheduled.to(dtype)
        inputs = pytree.tree_map(
            lambda each: each.to(dtype) if isinstance(each, torch.Tensor) and each.is_floating_point() else each, inputs)
    values = []
    state = torch.random.get_rng_state()
    try:
        for mode in modes:
            values += _compared(original, scheduled, inputs, backward, seed, mode, (rtol, atol), counted)
    finally:
        torch.random.set_rng_state(state)
    report = Report("\n".join(_lines(values)))
    report.values = values
    bad = [each for each in values if not each["equal"]]
    if bad:
        worst = max(bad, key=lambda each: each["excess"])
        raise Mismatch(
            f"the scheduled model computes something else: {_words(worst)} ({len(bad)} of {len(values)} values differ)",
            worst["worst"], report)
    return report


def _compared(original, scheduled, inputs, backward, seed, mode, tolerance, counted):
    """A line for each value in one mode."""
    runs, dropout, counts = [], True, []
    for attempt in (True, False):
        dropout = attempt
        for model in (original, scheduled):
            model.zero_grad(set_to_none=True)
        buffers = [{name: each.clone() for name, each in model.named_buffers()} for model in (original, scheduled)]
        runs = [_Run(model.train(mode == "train"), inputs, backward, seed, dropout, counted) for model in (original, scheduled)]
        counts = [len(each.draws.found) for each in runs] if dropout else counts
        if not dropout or runs[0].draws.found == runs[1].draws.found:
            break
        for model, kept in zip((original, scheduled), buffers):
            for name, each in model.named_buffers():
                each.copy_(kept[name])
    wanted, found = runs
    if wanted.form != found.form:
        raise Mismatch(f"the scheduled model returns {_form(found.form)} in place of {_form(wanted.form)}", None, Text(""))
    note = mode if dropout else (
        f"{mode} without dropout (the original draws {counts[0]} times, the scheduled model {counts[1]} times, "
        "or in another order)")
    return [
        _line_of(name, found.values.get(name), wanted.values.get(name), note, tolerance)
        for name in dict.fromkeys([*wanted.values, *found.values])
    ]


def _form(form):
    return "a value" if form.is_leaf() else " ".join(str(form).split())


def _line_of(name, found, wanted, mode, tolerance):
    """What was found of one value. A gradient that is missing is zero."""
    line = {"name": name, "mode": mode, "equal": True, "excess": 0.0, "worst": None, "error": 0.0}
    if found is None and wanted is None:
        return line
    if not isinstance(found, torch.Tensor) and not isinstance(wanted, torch.Tensor):
        return line if found == wanted else {**line, "equal": False, "excess": float("inf"), "worst": (name, (), found, wanted)}
    found = torch.zeros_like(wanted) if found is None else found.detach()
    wanted = torch.zeros_like(found) if wanted is None else wanted.detach()
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return {
            **line, "equal": False,
            "excess": float("inf"),
            "worst": (name, (), f"{found.dtype} {tuple(found.shape)}", f"{wanted.dtype} {tuple(wanted.shape)}")
        }
    return {**line, **_distance(name, found, wanted, tolerance)}


def _distance(name, found, wanted, tolerance):
    rtol, atol = (_chosen(given, wanted.dtype, place) for place, given in enumerate(tolerance))
    if not found.numel():
        return {}
    wide, right = found.to(torch.float64), wanted.to(torch.float64)
    same = (wide == right) | (wide.isnan() & right.isnan())
    error = torch.where(same, 0.0, (wide - right).abs()).nan_to_num(nan=float("inf"))
    excess = torch.where(same, 0.0, error / (atol + rtol * right.abs().nan_to_num(posinf=0.0))).nan_to_num(nan=float("inf"))
    place = int(excess.argmax())
    index = tuple(int(each) for each in torch.unravel_index(torch.tensor(place), found.shape)) if found.dim() else ()
    top = float(excess.flatten()[place])
    return {
        "equal": top <= 1.0,
        "excess": top,
        "error": float(error.max()),
        "worst": (name, index, float(wide.flatten()[place]), float(right.flatten()[place]))
    }


def _chosen(given, dtype, place):
    """A tolerance for a type; integers and truth values have to be equal."""
    if isinstance(given, dict):
        given = given.get(dtype)
    return given if given is not None else _TOLERANCES.get(dtype, (0.0, 1e-300))[place]


def _lines(values):
    """A line for each mode and kind of value, and one for each that differs."""
    groups = {}
    for value in values:
        kind = "gradients" if value["name"].startswith("gradient") else "buffers" if value["name"].startswith(
            "buffer") else "results"
        groups.setdefault((value["mode"], kind), []).append(value)
    for (mode, kind), group in groups.items():
        worst = max(group, key=lambda each: each["error"])
        differ = sum(not each["equal"] for each in group)
        equal = f"of which {differ} differ" if differ else "equal"
        name = f" ({worst['name']})" if worst["error"] else ""
        yield f"{mode}: {len(group)} {kind} {equal}, largest error {worst['error']:.2g}{name}"
    yield from (f"differs: {_words(each)}" for each in values if not each["equal"])


def _words(line):
    name, index, found, wanted = line["worst"]
    place = f" at [{', '.join(map(str, index))}]" if index else ""
    return f"{name}{place} in {line['mode']} is {found} in place of {wanted}"
