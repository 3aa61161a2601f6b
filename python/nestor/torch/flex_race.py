"""Races of flex_attention's kernels against PyTorch's own FlexAttention, compiled, and what they say of a call."""

import contextlib

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ..errors import UserError
from . import kernels
from .compiler import races

_FASTER = "PyTorch's FlexAttention is faster"
_MOST_SCORES = 1 << 25  # that are computed for the comparison with float64; of more, those of the first key head
_decided = {}  # what the races of a database say, while they are the same
_decided_of = [None]


def compete(kernel, sizes, device, database, own, make_theirs, inputs, checked):
    """Races a kernel against PyTorch's FlexAttention and remembers the result beside a database. own, make_theirs(): functions of
    a sequence of inputs; checked(results): (module, inputs, results) to compare with float64. Where PyTorch's cannot run, or is
    wrong, what is remembered says nothing, and takes the place of earlier races."""
    from .compiler.race import against
    from .compiler.verification import check

    found = races.entry(kernel.op, kernel.variant, sizes, races.device_name(device))
    found["kernel"] = _identity(kernel)
    try:
        with torch.no_grad(), torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
            reason, _ = check(*checked(own(inputs)))
            if reason is not None:
                raise UserError(f"the kernel's results are not accepted: {reason}")
            found.update(against(own, make_theirs(), [inputs], device, checked))
    except UserError as error:
        found["failed"] = str(error)
    except Exception as error:  # noqa: BLE001  of PyTorch's compiler, for what it does not have, or no memory
        found["inductor_failed"] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    with contextlib.suppress(OSError):
        races.remember(database, found)


def lost(kernel, sizes, device):
    """Why a kernel is not used, as a race says, or None."""
    entries = races.known(kernels.database())
    if entries is not _decided_of[0]:
        _decided.clear()
        _decided_of[0] = entries
    asked = kernel.op, kernel.variant, tuple(sizes.items()), device, _identity(kernel)
    if asked not in _decided:
        _decided[asked] = _reason(races.find(kernels.database(), *asked[:2], sizes, races.device_name(device), asked[-1]), sizes)
    return _decided[asked]


def is_race(reason):
    """Whether a reason says that PyTorch's FlexAttention has won."""
    return reason.startswith(_FASTER)


def _reason(race, sizes):
    if race is None or race["failed"]:
        return race and race["failed"]
    own, theirs = race["kernel_us"], race["inductor_us"]
    if not own or not theirs or own <= theirs:
        return None
    where = "here" if race["sizes"] == sizes else "at sizes near these"
    return f"{_FASTER} {where}: {_shown(theirs)} us against {_shown(own)} us"


def _shown(microseconds):
    return f"{microseconds:.0f}" if microseconds >= 10 else f"{microseconds:.2g}"


def _identity(kernel):
    """A race is of this kernel alone, not of what is tuned later."""
    return kernel.info["kernel"]["hash"]


def definition(function, inputs, results):
    """(module, inputs, results) of PyTorch's definition of attention. function(query, key, value, *captured): (result,
    log-sum-exp). Results of more scores than fit are cut to those of the first sequence and its first key head."""
    query, key, value, *captured = inputs
    if query.shape[:3].numel() * key.shape[2] > _MOST_SCORES:
        group = query.shape[1] // key.shape[1]
        query, key, value = query[:1, :group], key[:1, :1], value[:1, :1]
        results = [each[:1, :group] for each in results]
    inputs = [query, key, value, *captured]
    module = make_fx(lambda *given: function(*given)[:len(results)], tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
    for node in module.graph.find_nodes(op="get_attr"):  # numbers, which may be the host's beside tensors of any device
        setattr(module, node.target, getattr(module, node.target).cpu())
    return module, inputs, results
