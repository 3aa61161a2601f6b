"""score_mod and mask_mod of flex_attention, traced: a graph of ATen ops over scalars, with captured tensors as arguments."""

import threading
from typing import NamedTuple, Optional

import torch
from torch._guards import tracing
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.fx.experimental.proxy_tensor import make_fx

from .captured_state import Reads, State

_MOST_TRACES = 512
_lock = threading.RLock()
_traces = {}  # by key of what the functions captured


class Traced(NamedTuple):
    """graph: an fx.Graph of (score, batch, head, query, key) that gives (score, mask), either of which may be None. tensors:
    {get_attr target: number of a captured tensor}; constants: {target: a tensor made while tracing}. reason: why it could not be
    traced. known: what was derived from it, for others to keep."""
    graph: Optional[torch.fx.Graph]
    tensors: dict
    constants: dict
    reason: Optional[str]
    known: dict


def traced(score_mod, mask_mod):
    """(Traced, captured tensors) of the two functions, either of which may be None. The same Traced while nothing changed but the
    captured tensors' data, and their shapes where the functions do not ask for them."""
    state, reads = State(score_mod, mask_mod), Reads()

    def both(score, *places):
        with reads:
            return score_mod and score_mod(score, *places), mask_mod and mask_mod(*places)

    device = next((tensor.device for tensor in state.tensors if tensor.dim()), torch.device("cpu"))
    if state.key is None:
        return trace(both, state.tensors, device), state.tensors
    shapes = state.shapes
    with _lock:
        for key in ((state.key, None), (state.key, shapes)):
            if key in _traces:
                return _traces[key], state.tensors
        found = trace(both, state.tensors, device)
        if _is_lasting(reads, state, State(score_mod, mask_mod)):
            if len(_traces) >= _MOST_TRACES:
                _traces.clear()
            _traces[state.key, shapes if reads.shapes or _is_of_shapes(found, state.tensors) else None] = found
        return found, state.tensors


def _is_lasting(reads, before, after):
    """Whether a trace holds as long as the State is as it was before: the functions read no values of tensors, and no tensors
    that the State does not know, and change nothing that they captured."""
    return not reads.values and after.key == before.key and len(after.tensors) == len(before.tensors)


def _is_of_shapes(found, tensors):
    """Whether a Traced may hold for these shapes alone. Single elements at indices do not depend on them."""
    if found.graph is None:
        return True
    ranks = {}
    for node in found.graph.nodes:
        captured = found.tensors.get(node.target) if node.op == "get_attr" else None
        value = node.meta.get("val") if captured is None else tensors[captured]
        ranks[node] = value.dim() if isinstance(value, torch.Tensor) else 0
        single = node.target is torch.ops.aten.index.Tensor and not ranks[node]
        if node.op == "call_function" and not single and any(ranks[each] for each in node.all_input_nodes):
            return True
    return False


def trace(both, tensors, device):
    """The Traced of a function of five scalars. tensors: those that it captured, to which others that it reads are added."""
    scalars = [torch.zeros((), dtype=dtype, device=device) for dtype in (torch.float32, *(torch.int64,) * 4)]
    try:
        with torch.no_grad(), tracing(None), TransformGetItemToIndex():  # not as a part of what torch.compile traces
            module = make_fx(both, tracing_mode="fake", _allow_non_fake_inputs=True)(*scalars)
    except Exception as error:  # noqa: BLE001  what users' functions raise
        why = (str(error).splitlines() or [type(error).__name__])[0]
        return Traced(None, {}, {}, f"score_mod or mask_mod cannot be traced: {why}", {})
    places, constants = {}, {}
    for node in module.graph.nodes:
        if node.op != "get_attr" or node.target in places or node.target in constants:
            continue
        tensor = getattr(module, node.target)
        place = next((number for number, each in enumerate(tensors) if each is tensor), None)
        if place is None and _is_literal(node):
            constants[node.target] = tensor.detach().clone()
            continue
        if place is None:
            tensors.append(tensor)
            place = len(tensors) - 1
        places[node.target] = place
        delattr(module, node.target)
    return Traced(module.graph, places, constants, None, {})


def _is_literal(node):
    """Whether a tensor was made of a Python number while the function ran."""
    return all(user.target is torch.ops.aten.lift_fresh_copy.default for user in node.users)
