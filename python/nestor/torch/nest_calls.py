"""Nests as calls: a kernel for a nest and PyTorch tensors, from the database or tuned now, and its launch, or why there is none."""

import threading

from .. import tuning
from ..errors import DeviceError, InternalError, NotFound, UserError
from . import kernels

TUNE = ("off", "now")
_lock = threading.Lock()
_vain = {}  # what was tuned in vain -> why


def check_tune(tune):
    """Raises UserError for what is no way of tuning."""
    if tune not in TUNE:
        raise UserError(f'tune is {" or ".join(repr(each) for each in TUNE)}, not {tune!r}')


def kernel_for(nest, sizes, device, tune="off", budget_s=20):
    """(kernel, None) for a nest at sizes on PyTorch's device, or (None, why there is none). tune: "now" searches for budget_s
    seconds where the database has none; "off" does not."""
    asked = {size.name: sizes[size.name] for size in nest.sizes}
    try:
        return kernels.look_up(nest.op, nest.variant, asked, device), None
    except (NotFound, UserError) as error:
        if tune == "off":
            return None, str(error)
    with _lock:
        what = (nest.op, nest.variant, device, tuple(size.name for size in nest.sizes if size.specialized))
        if what not in _vain:
            try:
                tune_nest(nest, asked, device, time=budget_s, progress=False)
            except (NotFound, UserError, DeviceError, InternalError) as error:
                _vain[what] = str(error)
    if what in _vain:
        return None, _vain[what]
    try:
        return kernels.look_up(nest.op, nest.variant, asked, device), None
    except (NotFound, UserError) as error:
        return None, str(error)


def tune_nest(nest, sizes, device, scalars=None, **options):
    """Tunes a nest for PyTorch's device into the database that nestor.torch takes its kernels from, which then has it. Returns
    the nestor.Tuning. Raises as nestor.tune does. scalars: those that the nest does not have are left out."""
    target = "host" if device.type == "cpu" else f"cuda:{device.index or 0}"
    options = {"db": kernels.database(), "target": target, **options}
    found = tuning.tune(nest, sizes, **options, scalars=_own_scalars(nest, scalars or {}))
    kernels.refresh()
    return found


def _own_scalars(nest, scalars):
    """The scalars that a nest has: what ignores scores has no scale."""
    return {scalar.name: scalars[scalar.name] for scalar in nest.scalars if scalar.name in scalars}


def launch(kernel, nest, tensors, sizes, **scalars):
    """Runs a kernel of a nest on tensors in the order of nest.arguments. Returns None, or why the launch was refused; then nothing
    was written."""
    told = {extent for tensor in kernel.info["tensors"] for extent in tensor["shape"]}
    untold = {name: sizes[name] for name in kernel.info["sizes"] if name not in told}
    placed = dict(zip((tensor.name for tensor in nest.arguments), tensors))
    try:
        kernel(*[placed[name] for name in kernel.tensors], sizes=untold or None, **_own_scalars(nest, scalars))
    except UserError as error:
        return str(error)
    return None
