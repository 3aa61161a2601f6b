"""The race of a kernel against PyTorch's compiled code of the same, both measured in the same way."""

import statistics
import time

import torch
import torch._inductor

from ...errors import UserError
from .races import NO_MEMORY
from .verification import COMPILED, check

_ROUNDS = 7
_SAMPLE_S = 2e-3  # what one sample lasts at least
_GRAPH_CALLS = 10  # calls in one CUDA graph, at least
_HOPELESS = 4  # times the other's time, beyond which calls of more than _LONG_US need no second look
_LONG_US = 2000
_MOST_COPIES = 64  # of tensors that the cache shall not hold, and so calls in a graph
_CACHES = 2  # how many times the cache they fill together


def race(region, sizes, device, cold=()):
    """What races.entry() takes of a race at sizes: microseconds of the kernel and of Inductor's code, from samples taken in turns,
    or why there are none of Inductor's. On a GPU they are medians, of CUDA graphs; on the host the fastest, as other load comes
    and goes there. cold: for each input whether a GPU's cache does not hold it when the region runs, as weights of a model.
    Raises UserError where the kernel's results are not accepted (verification.py), or it refuses the tensors."""
    inputs = region.description.example(sizes, device, torch.Generator(device).manual_seed(1))
    call = region.call_at(tuple(sizes), device)
    if call.kernel is None:
        raise UserError("there is no kernel")
    results = region.launch(call, inputs)
    if results is None:
        raise UserError("the kernel refuses tensors of these layouts")
    module = region.module(sizes, device)
    reason, _ = check(module, inputs, results)
    if reason is not None:
        raise UserError(f"its results are not accepted: {reason}")
    del results
    with torch.no_grad():
        compiled = torch._inductor.compile(region.description.module(sizes, device, True), inputs)
        rows = _rows(inputs, cold, device) if device.type == "cuda" else [inputs]
        return against(lambda given: region.launch(call, given), lambda given: compiled(*given), rows, device,
                       lambda found: (module, inputs, found))


def against(own, theirs, rows, device, checked):
    """What races.entry() takes of a race of a kernel against PyTorch's code, two functions of a row of inputs. One that is far
    behind is called no more than a few times. checked(results of the first row): what check() takes. Code of PyTorch whose results
    are wrong has not run the race: it is compared after it, when its memory is no longer fresh."""
    with torch.no_grad():
        try:
            theirs(rows[0])
        except torch.OutOfMemoryError:
            return {"kernel_us": _raced([own], rows, device)[0], "inductor_failed": NO_MEMORY}
        times = [_once(run, rows[0], device) for run in (own, theirs)]
        if max(times) <= max(_HOPELESS * min(times), _LONG_US):
            times = _raced([own, theirs], rows, device)
        reason, _ = check(*checked(theirs(rows[0])), slack=COMPILED)
        if reason is not None:
            return {"kernel_us": times[0], "inductor_failed": f"Inductor's own code is wrong here: {reason}"}
        return {"kernel_us": times[0], "inductor_us": times[1]}


def _once(run, row, device):
    """Microseconds of the third call of a function."""
    for _ in range(3):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        run(row)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return (time.perf_counter() - start) * 1e6


def _rows(inputs, cold, device):
    """Rows of inputs, of which calls take one after the other: cold tensors are copied so often that no cache holds them all."""
    size = sum(tensor.untyped_storage().nbytes() for tensor, is_cold in zip(inputs, cold) if is_cold)
    if not size:
        return [inputs]
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    copies = min(_MOST_COPIES, 1 + _CACHES * cache // size)
    return [inputs, *([_copy(tensor) if is_cold else tensor for tensor, is_cold in zip(inputs, cold)]
                      for _ in range(copies - 1))]


def _copy(tensor):
    found = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return found.copy_(tensor)


def _raced(runs, rows, device):
    """Microseconds of each of some functions of inputs."""
    timers = [_graph_timer(run, rows) if device.type == "cuda" else _host_timer(lambda run=run: run(rows[0])) for run in runs]
    samples = [[timer() for timer in timers] for _ in range(_ROUNDS)]
    return tuple(map(statistics.median if device.type == "cuda" else min, zip(*samples)))


def _host_timer(run):
    """A function that gives the microseconds of a call."""
    count = _repetitions(run, lambda: None)

    def sample():
        start = time.perf_counter()
        for _ in range(count):
            run()
        return (time.perf_counter() - start) / count * 1e6

    return sample


def _repetitions(run, wait):
    for _ in range(3):
        run()
    wait()
    start = time.perf_counter()
    run()
    wait()
    return max(1, int(_SAMPLE_S / max(time.perf_counter() - start, 1e-7)))


def _graph_timer(run, rows):
    """The same with a CUDA graph of several calls, by events."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run(rows[0])
    torch.cuda.current_stream().wait_stream(stream)
    graph, calls = torch.cuda.CUDAGraph(), max(_GRAPH_CALLS, len(rows))
    with torch.cuda.graph(graph):
        for number in range(calls):
            run(rows[number % len(rows)])
    count = _repetitions(graph.replay, torch.cuda.synchronize)
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample():
        before.record()
        for _ in range(count):
            graph.replay()
        after.record()
        after.synchronize()
        return before.elapsed_time(after) / (count * calls) * 1e3

    return sample
