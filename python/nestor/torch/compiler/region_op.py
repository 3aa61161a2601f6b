"""The operator nestor::region: launches the kernel of a region, or computes the same in PyTorch where none serves."""

import functools
import json
import threading
import warnings

import torch

from ...errors import DeviceError, NotFound, UserError
from ..kernels import missing_message, opened
from ..operators import implement
from .description import Description, dtype_of, extents
from .verification import check, is_telling

_MOST_CHECKS = 16  # of results that are all 0, NaN or infinite, which tell little
_MAX_SIZES = 1024  # that a region remembers; then it starts afresh
_lock = threading.Lock()
_said = set()

# Inductor lays arguments out as the graph says, where layouts.py has looked at them.
LIBRARY = torch.library.Library("nestor", "FRAGMENT")
LIBRARY.define("region(str key, Tensor[] inputs, SymInt[] sizes) -> Tensor[]",
               tags=(torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag))


def key_of(description, database, verify):
    """The text that names a region to the operator. database: a path, or None for nestor.torch.configure's; verify: whether the
    first call compares with float64."""
    return json.dumps({"database": database, "verify": verify, "region": json.loads(description.text())}, separators=(",", ":"))


@functools.lru_cache(maxsize=None)
def region_of(key):
    """The Region that a key names, one for the whole process."""
    found = json.loads(key)
    return Region(Description.parse(json.dumps(found["region"])), found["database"], found["verify"])


def say_once(what, text):
    """A warning, once in a process for each `what`."""
    with _lock:
        if what in _said:
            return
        _said.add(what)
    warnings.warn(f"nestor: {text}", stacklevel=2)


class Region:
    """A region as this process runs it. May be used from several threads at once."""

    def __init__(self, description, database, verify):
        self.description, self.database = description, database
        self.refused = None  #: why its kernel is not used any more
        self._unchecked, self._checks = verify, 0
        self._lock = threading.RLock()
        self._calls, self._modules = {}, {}

    def run(self, inputs, sizes):
        """The results: of the kernel, or of PyTorch."""
        call = self.call_at(tuple(sizes), inputs[0].device)
        if call.kernel is None or self.refused is not None:
            return self.eager(inputs, sizes)
        results = self.launch(call, inputs)
        if results is None:
            return self.eager(inputs, sizes)
        if self._unchecked and not _is_captured(inputs[0]):
            return self._check(inputs, sizes, results)
        return results

    def launch(self, call, inputs):
        """Results of the kernel; None where it refuses these tensors, which is said once."""
        device = inputs[0].device
        results = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, _, _ in call.outputs]
        try:
            call.kernel(*[_seen(_words(tensor) if words else tensor, view) for tensor, (view, words) in zip(inputs, call.views)],
                        *[_seen(result, view, axes) for result, (_, _, view, axes) in zip(results, call.outputs)],
                        sizes=call.sizes)
        except (UserError, DeviceError) as error:
            say_once((self.description.op, "refused"),
                     f"PyTorch computes {self.description.op}, as its kernel refuses: {error}")
            return None
        return results

    def eager(self, inputs, sizes):
        """The same in PyTorch's ops. Random numbers are the kernel's too: other graphs may have kept what was drawn."""
        with torch.no_grad():
            found = self.module(sizes, inputs[0].device)(*inputs)
        return [_own(each, inputs) for each in found]

    def module(self, sizes, device):
        """PyTorch's ops at sizes, as a GraphModule."""
        key = tuple(sizes), device
        with self._lock:
            if key not in self._modules:
                if len(self._modules) >= _MAX_SIZES:
                    self._modules.clear()
                self._modules[key] = self.description.module(key[0], device)
            return self._modules[key]

    def kernel(self, sizes, device):
        """The kernel for sizes. Raises NotFound, UserError or DeviceError where the database has none that runs."""
        where = "host" if device.type == "cpu" else f"cuda:{device.index or 0}"
        found = opened(self.database).query(self.description.op, self.description.variant,
                                            self.description.nest_values(sizes), where)
        return found

    def call_at(self, sizes, device):
        """What calls with these sizes need, found once: the kernel is None where none serves them, which is said once."""
        found = self._calls.get((sizes, device))
        if found is not None:
            return found
        with self._lock:
            if len(self._calls) >= _MAX_SIZES:
                self._calls.clear()
            found = self._calls[sizes, device] = _Call(self, sizes, device)
            return found

    def _check(self, inputs, sizes, results):
        """Compares the first results with float64's; from then on PyTorch computes where they were wrong."""
        with self._lock:
            if not self._unchecked:
                return results
            module = self.module(sizes, inputs[0].device)
            reason, expected = check(module, inputs, results)
            self._checks += 1
            self._unchecked = reason is None and self._checks < _MOST_CHECKS and not is_telling(expected)
            if reason is None:
                return results
            self.refused = reason
        say_once((self.description.op, "wrong"),
                 f"PyTorch computes {self.description.op} ({self.description.variant}), as its kernel's first results were not "
                 f"accepted: {reason}")
        return [_own(each, inputs) for each in expected]


class _Call:
    """What a call with certain sizes needs."""

    def __init__(self, region, sizes, device):
        told = region.description
        named = told.named_sizes(sizes)
        self.sizes = told.nest_values(sizes) or None
        self.views = [(tuple(extents(argument.view, named)), argument.words) for argument in told.inputs]
        self.outputs = [(extents(argument.shape, named), dtype_of(argument), *_placed(argument, named))
                        for argument in told.outputs]
        self.kernel = None
        empty = any(0 in view for view, _ in self.views) or any(0 in shape for shape, _, _, _ in self.outputs)
        if not empty:
            try:
                self.kernel = region.kernel(sizes, device)
            except (NotFound, UserError, DeviceError) as error:
                say_once((told.op, "missing"), missing_message(f"{told.op} ({told.variant})", error))


def _placed(argument, named):
    """(extents in the order of memory, the axes that give the nest's order) of an output."""
    view = extents(argument.view, named)
    if argument.order is None:
        return tuple(view), None
    return tuple(view[axis] for axis in argument.order), tuple(argument.order.index(axis) for axis in range(len(view)))


def _seen(tensor, view, axes=None):
    """A tensor with a nest's extents; a copy only where strides make that necessary."""
    seen = tensor.reshape(view)
    if seen.dim() and seen.stride(-1) != 1 and seen.shape[-1] > 1:
        seen = seen.contiguous()
    return seen if axes is None else seen.permute(axes)


def _words(tensor):
    """The words of an integer of 64 bits, the low one first: the same memory."""
    return tensor.reshape(1).view(torch.int32)


def _own(result, inputs):
    """Dense, and no part of an input: as the operator's shapes say."""
    result = result.contiguous()
    owned = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    return result.clone() if result.untyped_storage().data_ptr() in owned else result


def _is_captured(tensor):
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _run(key, inputs, sizes):
    return region_of(key).run(inputs, sizes)


implement("region", _run, LIBRARY)


@functools.partial(torch.library.register_fake, "nestor::region", lib=LIBRARY)
def _shapes(key, inputs, sizes):
    told = region_of(key).description
    named = told.named_sizes(sizes)
    return [inputs[0].new_empty(extents(argument.shape, named), dtype=dtype_of(argument)) for argument in told.outputs]
