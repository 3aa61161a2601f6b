"""Block masks that PyTorch's FlexAttention takes, made of mask_mods and kept.

A block mask follows from what its function says and from the tensors that it reads. It is made again when one of these is another
one or has changed. Graphs of torch.compile read it, beside copies of these tensors: where they hold other values when a graph
runs, every block is one in which mask_mod decides.
"""

import functools
import threading
import types
import weakref

import torch
from torch._dynamo.comptime import comptime
from torch._dynamo.source import LocalSource
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import has_static_value
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from .flex_compiled import Replayed, program, program_of, record
from .flex_listed import is_pytorchs, shown_by
from .flex_mods import traced
from .operators import LIBRARY

_MOST = 16  # block masks of a function
_PARTS = tuple(f"{full}{side}_{what}" for side in ("kv", "q") for full in ("", "full_") for what in ("num_blocks", "indices"))
_lock = threading.RLock()
_held = types.SimpleNamespace()  # what graphs of torch.compile read
_are_lasting = []  # what _note found last


def kept_block_mask(block_mask, query, key, patient=False):
    """(the BlockMask of a call, or None where it needs none, True), or (None, False) where one would have to be made for every
    call. block_mask: a BlockMask of the call's sizes is taken as it is; of others, and of functions, mask_mod alone matters.
    patient: False also where the tensors that it reads are seen for the first time."""
    if block_mask is None or is_of(block_mask, query, key):
        return block_mask, True
    mask_mod = getattr(block_mask, "mask_mod", block_mask)
    places = query.shape[0], query.shape[1], query.shape[2], key.shape[2], key.shape[0]
    if torch.compiler.is_dynamo_compiling():
        return _in_graph(mask_mod, places, query.device)
    return _in_memory(mask_mod, places, query.device, patient)


def made_block_mask(block_mask, query, key):
    """The BlockMask of a call, kept where that is possible. A BlockMask is taken whatever its sizes. It gets a mask_mod that says
    what its blocks say: PyTorch's FlexAttention asks that alone where it is not compiled."""
    if block_mask is None or is_pytorchs(block_mask):
        return _said_by_function(block_mask, query, key)
    found, is_kept = kept_block_mask(block_mask, query, key)
    if is_kept:
        return found
    mask_mod = getattr(block_mask, "mask_mod", block_mask)
    return create_block_mask(mask_mod, query.shape[0], query.shape[1], query.shape[2], key.shape[2], device=query.device)


def _said_by_function(block_mask, query, key):
    if block_mask is None or torch.compiler.is_dynamo_compiling() or torch._C._len_torch_dispatch_stack() or (
            torch._C._are_functorch_transforms_active()) or not is_of(block_mask, query, key):
        return block_mask
    shown, reason = shown_by(block_mask, query, key)
    if reason is not None or shown is block_mask.mask_mod:
        return block_mask
    return BlockMask(block_mask.seq_lengths, *(getattr(block_mask, name) for name in block_mask._TENSOR_ATTRS),
                     block_mask.BLOCK_SIZE, shown)


def is_of(block_mask, query, key):
    """Whether this is a BlockMask of PyTorch's for a call's sizes and device."""
    if not is_pytorchs(block_mask):
        return False
    blocks = block_mask.kv_num_blocks
    return (block_mask.seq_lengths == (query.shape[2], key.shape[2]) and blocks.shape[0] in (1, query.shape[0])
            and blocks.shape[1] in (1, query.shape[1]) and blocks.device == query.device
            and (query.shape[0] == key.shape[0] or blocks.shape[0] == query.shape[0]))


def _in_memory(mask_mod, places, device, patient):
    found, tensors = traced(None, mask_mod)
    if found.reason is not None or any(tensor.is_inference() for tensor in tensors):  # whose changes cannot be seen
        return None, False
    state = [(weakref.ref(tensor), tensor._version) for tensor in tensors]
    captured = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    if captured and state:  # when the CUDA graph runs they may have changed
        return None, False
    with _lock:
        kept = found.known.setdefault("block masks", {})
        before, parts = kept.get((places, device), (None, None))
        if before is None or not all(one() is other() and number == own
                                     for (one, number), (other, own) in zip(before, state)):
            if captured:
                return None, False
            if len(kept) >= _MOST:
                kept.clear()
            kept[places, device], parts = (state, None), None
            if patient and state:
                return None, False
        if parts is None:
            parts = _parts_of(found, mask_mod, places, device)
            kept[places, device] = state, parts
    return _block_mask(parts, places, mask_mod), True


def _in_graph(mask_mod, places, device):
    if not all([has_static_value(extent) for extent in places]):
        return None, False
    records, results, kinds, captured = record(None, mask_mod, device)
    comptime(_note)
    if not _note_of():
        return None, False
    name, reason = program_of(records, results, kinds, device)
    if reason is not None:
        return None, False
    held = _hold(name, places, device, *captured)
    if held is None:
        return None, False
    found = getattr(_held, held)
    parts, copies = found[:len(_PARTS)], found[len(_PARTS):]
    if copies:
        parts = (*_held_side(captured, copies, parts[:4]),
                 *(_held_side(captured, copies, parts[4:]) if torch.is_grad_enabled() else parts[4:]))
    return _block_mask(parts, places, mask_mod), True


def _note(context):
    """Notes whether tensors that a mask reads outlive a call of what torch.compile traces: no results, nor arguments."""
    found = [proxy.node.meta.get("grapharg") for proxy in context.get_local("captured").as_proxy()]
    _are_lasting[:] = [all(each is not None and not _is_argument(each.source) for each in found)]


def _is_argument(source):
    return isinstance(source, LocalSource) and source.is_input


@torch.compiler.assume_constant_result
def _note_of():
    return _are_lasting[0]


@torch.compiler.assume_constant_result
def _hold(name, places, device, *captured):
    """The name in _held of (parts of the block mask of a program, copies of the tensors that it reads), or None where these have
    no values. Dynamo finds them there, as inputs of its graph, which is how users' own block masks come to it."""
    if any(isinstance(tensor, FakeTensor) for tensor in captured):
        return None
    found, _ = program(name)
    prefix = f"mask_{name}_{'_'.join(map(str, places))}_{device.type}{device.index or 0}_"
    with torch.inference_mode(False), torch.no_grad(), _lock:
        copies = tuple(tensor.detach().clone() for tensor in captured)
        known = [each for each in vars(_held) if each.startswith(prefix)]
        for each in known:
            if all(map(torch.equal, getattr(_held, each)[len(_PARTS):], copies)):
                return each
        replayed = Replayed(found, copies)
        parts = _parts_of(found, lambda b, h, q, k: replayed.mask_mod(b, h, q, k), places, device)
        setattr(_held, f"{prefix}{len(known)}", parts + copies)
    return f"{prefix}{len(known)}"


def _parts_of(found, mask_mod, places, device):
    """A block mask's tensors. Batches and heads share one where the function does not use their numbers."""
    batch, heads, queries, keys, key_batch = places
    _, uses_batch, uses_head, _, _ = (bool(node.users) for node in found.graph.nodes if node.op == "placeholder")
    shared = None if batch == key_batch and not uses_batch else batch
    with torch.inference_mode(False), torch.no_grad():
        made = create_block_mask(mask_mod, shared, heads if uses_head else None, queries, keys, device=device)
        return tuple(_dense(getattr(made, name) for name in _PARTS))


def _block_mask(parts, places, mask_mod):
    return BlockMask((places[2], places[3]), *parts, (128, 128), mask_mod)


def _held_side(read, copies, parts):
    """Parts of a block mask where tensors are as these copies, else those of one whose blocks are all there and none is full."""
    return (*torch.ops.nestor.held_blocks(read, list(copies), list(parts[:3])), parts[3])


def _held_blocks(read, copies, parts):
    """nestor::held_blocks: of (counts, indices, counts of full blocks). An operator, as Inductor's FlexAttention goes wrong with
    the strides that Inductor gives to dims of one element in what it computes itself (PyTorch 2.11)."""
    same = functools.reduce(torch.logical_and, ((tensor == copy).all().to(parts[0].device) for tensor, copy in zip(read, copies)))
    counts, indices, full_counts = parts
    every = torch.arange(indices.shape[-1], dtype=indices.dtype, device=indices.device)
    found = (torch.where(same, counts, indices.shape[-1]), torch.where(same, indices, every), torch.where(same, full_counts, 0))
    return [each.reshape(-1).view(each.shape) for each in found]


def _dense(parts):
    """Copies with the strides that their shapes give."""
    return [torch.empty(part.shape, dtype=part.dtype, device=part.device).copy_(part) for part in parts]


LIBRARY.define("held_blocks(Tensor[] read, Tensor[] copies, Tensor[] parts) -> Tensor[]")
for _key in ("CPU", "CUDA"):
    LIBRARY.impl("held_blocks", _held_blocks, _key)
torch.library.register_fake("nestor::held_blocks", lambda read, copies, parts: [
    torch.empty(part.shape, dtype=part.dtype, device=part.device) for part in parts], lib=LIBRARY)
