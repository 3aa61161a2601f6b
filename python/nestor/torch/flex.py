"""flex_attention: PyTorch's, with score_mod and mask_mod as parts of one nest."""

from typing import NamedTuple, Optional

import torch
from torch.fx.experimental.symbolic_shapes import has_static_value
from torch.nn.attention import flex_attention as pytorch

from ..errors import NotFound, UserError
from ..library import Kernel
from ..nests.model import Nest
from .attention import gradients_or_transformed, result_like
from .captured_tensors import argument
from .flex_blocks import kept_block_mask, made_block_mask
from .flex_compiled import Replayed, defined, program, program_of, record
from .flex_fallback import compiled
from .flex_listed import DIFFERENT, UNCOMPARED, compared, is_captured, parts_of, shown_by
from .flex_mods import traced
from .flex_nest import Flex, Shape, flex_nest
from .flex_race import compete, definition, is_race, lost
from .importer.extents import Unsupported
from .kernels import element_of, missing
from .nest_calls import check_tune, kernel_for, launch, tune_nest
from .operators import LIBRARY, implement
from .transforms import needs_gradient, vectorizing

_NAME = "flex_attention"


class Explanation(NamedTuple):
    """What serves a call of flex_attention: the nest that says it, the kernel, and why PyTorch computes it, each or None."""
    nest: Optional[Nest]
    kernel: Optional[Kernel]
    reason: Optional[str]


class _Call(NamedTuple):
    """A call in a nest's terms. tensors: its inputs in order."""
    flex: Flex
    tensors: list
    sizes: dict
    shape: Shape


def flex_attention(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False,
                   kernel_options=None, *, return_aux=None, tune="off", budget_s=20):
    """softmax(score_mod(query key^T scale)) value over the keys that block_mask shows, as PyTorch's flex_attention has it.

    query: [batch, heads, queries, head_dim], key: [batch, key_heads, keys, head_dim], value: [batch, key_heads, keys,
    value_dim]; f32, f16 or bf16. score_mod(score, b, h, q_idx, kv_idx) and the mask are traced and become one nest for all sizes.
    block_mask: a BlockMask, or a function mask_mod(b, h, q_idx, kv_idx) itself. Blocks that a BlockMask does not list are hidden,
    full ones are shown, whatever its mask_mod says. return_lse: the logarithm of each row's sum too, f32. Rows that see nothing
    are 0, and -inf. tune: "now" searches for budget_s seconds where no kernel is known; "off" leaves the call to PyTorch then
    (flex_attention.tune tunes). PyTorch computes, with a warning that says why, once: what is not affine (reads at indices from
    data), calls that need gradients, and what no kernel is tuned for. It computes without one, compiled, where it has won the race
    that flex_attention.tune holds. Its block mask of a function is kept.
    Raises UserError for another `tune`, and what PyTorch raises.
    """
    check_tune(tune)
    lse = return_lse or (return_aux is not None and return_aux.lse)
    found, reason = None, gradients_or_transformed(query, key, value)
    if reason is None and return_aux is not None and return_aux.max_scores:
        reason = "no kernel returns the largest scores"
    if reason is None:
        call = query, key, value, score_mod, block_mask, scale, enable_gqa, lse, tune, budget_s
        found, reason = attend(*call, raced=True)
        if found is None and is_race(reason):
            kept, is_kept = kept_block_mask(block_mask, query, key, patient=True)
            theirs = compiled(query, key, value, score_mod, kept, lse) if is_kept else None
            if theirs is not None:
                return theirs(query, key, value, score_mod, kept, scale, enable_gqa, return_lse, kernel_options,
                              return_aux=return_aux)
            found, reason = attend(*call)
    if found is None:
        say(f"{_NAME}: {reason}")
        return pytorch.flex_attention(query, key, value, score_mod, made_block_mask(block_mask, query, key), scale, enable_gqa,
                                      return_lse, kernel_options, return_aux=return_aux)
    out, logarithm = found
    if return_aux is not None:
        return out, pytorch.AuxOutput(lse=logarithm, max_scores=None)
    return (out, logarithm) if return_lse else out


def tune(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False, **options):
    """Searches a kernel for calls of flex_attention such as this one, into the database of nestor.torch.configure. options: those
    of nestor.tune, such as time=20 (seconds) and progress. Then races the kernel against PyTorch's compiled FlexAttention, which
    serves such calls from then on if it is faster. Returns the nestor.Tuning. Raises UserError where no nest says the call, and as
    nestor.tune does."""
    call, reason = call_of(query, key, value, score_mod, block_mask, enable_gqa, return_lse)
    if call is None:
        raise UserError(f"{_NAME}: {reason}")
    scale = _scale(query, scale)
    tuned = tune_nest(call.flex.nest, call.sizes, query.device, scalars={"scale": scale}, **options)
    if options.get("target") is None:
        _race(tuned, query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse)
    return tuned


def _race(tuned, query, key, value, score_mod, block_mask, scale, enable_gqa, lse):
    """Races the kernel of a Tuning, with random numbers in tensors such as these."""
    generator = torch.Generator(query.device).manual_seed(1)
    inputs = [torch.empty_like(tensor.detach()).normal_(generator=generator) for tensor in _cast(query, key, value)]
    call, _ = call_of(*inputs, score_mod, block_mask, enable_gqa, lse)
    found, tensors = traced(score_mod, shown_by(block_mask, query, key)[0])
    try:
        kernel = tuned.kernel
    except (NotFound, UserError):  # the database is no file
        return

    def own(given):
        results, reason = _launched(kernel, call, given[0], given[2], scale)
        if results is None:
            raise UserError(reason)
        return results

    def make_theirs():
        mask = made_block_mask(block_mask, query, key)
        function = compiled(*inputs, score_mod, mask, lse)
        return lambda given: function(*given, score_mod, mask, scale, enable_gqa, lse)

    def checked(results):
        results = [each for each in (results if isinstance(results, (list, tuple)) else [results]) if each is not None]
        return definition(lambda *given: defined(found, given[3:], *given[:3], scale), [*inputs, *tensors], results)

    compete(kernel, call.sizes, query.device, tuned.database, own, make_theirs, inputs, checked)


def explain(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False):
    """The Explanation of a call of flex_attention with these arguments. Nothing is computed."""
    call, reason = call_of(query, key, value, score_mod, block_mask, enable_gqa, return_lse)
    if call is None:
        return Explanation(None, None, reason)
    kernel, reason = kernel_for(call.flex.nest, call.sizes, query.device)
    reason = reason if kernel is None else lost(kernel, call.sizes, query.device)
    return Explanation(call.flex.nest, kernel if reason is None else None, reason)


def call_of(query, key, value, score_mod=None, block_mask=None, enable_gqa=False, lse=False):
    """(the call in a nest's terms, None), or (None, why no nest says it)."""
    query, key, value = _cast(query, key, value)
    reason = _refusal(query, key, value, enable_gqa)
    mask_mod, reason = (None, reason) if reason else shown_by(block_mask, query, key)
    return (None, reason) if reason else _call(*traced(score_mod, mask_mod), query, key, value, lse)


flex_attention.tune, flex_attention.explain = tune, explain


@torch.compiler.assume_constant_result
def say(reason):
    """Once for each reason, also while torch.compile traces a call."""
    missing((_NAME, reason), reason)


def attend(query, key, value, score_mod, block_mask, scale, enable_gqa, lse, tune, budget_s, raced=False):
    """((result, its log-sum-exp or None), None) by a kernel, or (None, why there is none). For calls that need no gradients.
    raced: whether a race that PyTorch's FlexAttention won is a reason."""
    query, key, value = _cast(query, key, value)
    reason = _refusal(query, key, value, enable_gqa)
    if reason is not None:
        return None, reason
    scale = _scale(query, scale)
    if torch.compiler.is_dynamo_compiling():
        return _attend_compiled(query, key, value, score_mod, block_mask, scale, lse, tune, budget_s, raced)
    if torch._C._len_torch_dispatch_stack():
        return None, "no kernel computes where a TorchDispatchMode sees operators"
    mask_mod, reason = shown_by(block_mask, query, key)
    if reason is not None:
        return None, reason
    found, tensors = traced(score_mod, mask_mod)
    if found.reason is None and gradients_or_transformed(*tensors):
        return None, "no kernel computes the gradients of what score_mod reads"
    return _run(found, tensors, query, key, value, scale, lse, tune, budget_s, raced)


def _run(found, tensors, query, key, value, scale, lse, tune, budget_s, raced=False):
    call, reason = _call(found, tensors, query, key, value, lse)
    if call is None:
        return None, reason
    kernel, reason = kernel_for(call.flex.nest, call.sizes, query.device, tune, budget_s)
    if kernel is not None and raced:
        reason = lost(kernel, call.sizes, query.device)
    return (None, reason) if reason is not None else _launched(kernel, call, query, value, scale)


def _launched(kernel, call, query, value, scale):
    """((result, its log-sum-exp or None), None) of a call by a kernel, or (None, why that refuses)."""
    out, outputs = _outputs(query, value, call.shape)
    reason = launch(kernel, call.flex.nest, [*call.tensors, *outputs], call.sizes, scale=scale)
    if reason is not None:
        return None, reason
    return (out, outputs[1].flatten(1, -2) if call.shape.lse else None), None


def _attend_compiled(query, key, value, score_mod, block_mask, scale, lse, tune, budget_s, raced):
    """The same as one operator of a graph that torch.compile traces. It compares the blocks of a BlockMask while it runs."""
    mask_mod, (blocks, places) = getattr(block_mask, "mask_mod", block_mask), parts_of(block_mask)
    records, results, kinds, captured = record(score_mod, mask_mod, query.device)
    if needs_gradient(*captured):
        return None, "no kernel computes the gradients of what score_mod reads"
    name, reason = program_of(records, results, kinds, query.device)
    shapes = [tuple(tensor.shape) for tensor in (query, key, value, *captured)]
    if reason is None and all([has_static_value(extent) for shape in shapes for extent in shape]):
        reason = _why_not_at(name, query.dtype, query.device, tuple(shapes), lse, tune, raced)
    elif reason is None and tune == "off":
        dims = tuple([range(extent, extent + 1)[0] for extent in (query.shape[1], key.shape[1], query.shape[-1], value.shape[-1])])
        reason = _why_not(name, query.dtype, query.device, dims, lse)
    if reason is not None:
        return None, reason
    out, logarithm = torch.ops.nestor.flex_attention(query, key, value, captured, name, scale, lse, tune, budget_s,
                                                      blocks or None, places or None)
    return (out, logarithm if lse else None), None


_LIKELY = 3, 1024  # lengths, where those of calls are not known yet


@torch.compiler.assume_constant_result
def _why_not(name, dtype, device, dims, lse):
    """Why no kernel will serve calls of these heads, key heads, head and value sizes; None where one may."""
    heads, key_heads, width, value_width = dims
    found, tensors = program(name)
    reason = None
    for length in _LIKELY:
        shapes = (1, heads, length, width), (1, key_heads, length, width), (1, key_heads, length, value_width)
        call, reason = _call(found, tensors, *(_stand_in(shape, dtype, device) for shape in shapes), lse)
        reason = reason if call is None else kernel_for(call.flex.nest, call.sizes, device)[1]
        if reason is None:
            break
    return reason


@torch.compiler.assume_constant_result
def _why_not_at(name, dtype, device, shapes, lse, tune, raced):
    """Why no kernel is used for calls of these shapes, or None. raced: a race that it lost is a reason."""
    found, tensors = program(name)
    query, key, value = (_stand_in(shape, dtype, device) for shape in shapes[:3])
    captured = [_stand_in(shape, tensor.dtype, tensor.device) for shape, tensor in zip(shapes[3:], tensors)]
    call, reason = _call(found, captured, query, key, value, lse)
    if call is None:
        return reason
    kernel, reason = kernel_for(call.flex.nest, call.sizes, device)
    if kernel is None:
        return reason if tune == "off" else None
    return lost(kernel, call.sizes, device) if raced else None


def _stand_in(shape, dtype, device):
    """A tensor of a shape that takes the memory of a row."""
    return torch.ones(shape[-1:], dtype=dtype, device=device).expand(shape)


def _operator(query, key, value, captured, mods, scale, lse, tune, budget_s, blocks=None, places=None):
    """nestor::flex_attention: by a kernel, else as PyTorch defines it."""
    found, _ = program(mods)
    shown, reason = _shown(found, captured, query, key, blocks, places) if blocks else (None, None)
    results, reason = (None, reason) if shown else _run(found, captured, query, key, value, scale, lse, tune, budget_s)
    if results is None:
        say(f"{_NAME}: {reason}")
        with vectorizing():
            out, logarithm = defined(found, captured, query, key, value, scale, shown)
        results = result_like(query, value).copy_(out), logarithm
    return results[0], results[1] if lse else _nothing(query)


def _shown(found, captured, query, key, blocks, places):
    """(a mask_mod that shows what the blocks of a BlockMask show, why that is needed), or (None, None) where the Traced has it."""
    mask_mod = Replayed(found, captured).mask_mod
    with vectorizing():
        shown, reason = compared(found, captured, mask_mod, blocks, places, query, key)
    if reason is not None:
        raise UserError(f"{_NAME}: {reason}")
    return (None, None) if shown is mask_mod else (shown, UNCOMPARED if is_captured(blocks) else DIFFERENT)


def _shapes(query, key, value, captured, mods, scale, lse, *_):
    return result_like(query, value), query.new_empty(query.shape[:-1], dtype=torch.float32) if lse else _nothing(query)


def _nothing(query):
    return query.new_empty((0,), dtype=torch.float32)


implement(_NAME, _operator)
torch.library.register_fake(f"nestor::{_NAME}", _shapes, lib=LIBRARY)


def _cast(query, key, value):
    """The tensors in autocast's type, where that is on, with the signs that memory has."""
    query, key, value = (tensor.resolve_neg() for tensor in (query, key, value))
    kind = query.device.type
    if not torch.is_autocast_enabled(kind) or not query.is_floating_point():
        return query, key, value
    return tuple(tensor.to(torch.get_autocast_dtype(kind)) for tensor in (query, key, value))


def _scale(query, scale):
    return query.shape[-1] ** -0.5 if scale is None else float(scale)


def _refusal(query, key, value, enable_gqa):
    """Why no kernel could take the call, whatever is tuned; None where one might."""
    if not query.dim() == key.dim() == value.dim() == 4:
        return "kernels take tensors [batch, heads, rows, head_dim]"
    if element_of(query) is None:
        return f"no kernels for {query.dtype} on {query.device.type}"
    if not query.dtype == key.dtype == value.dtype or not query.device == key.device == value.device:
        return "query, key and value must be of one type, on one device"
    if 0 in (*query.shape, *key.shape, *value.shape):
        return "a tensor has no elements"
    batch, heads, _, width = query.shape
    if key.shape[-1] != width or key.shape[:3] != value.shape[:3] or key.shape[0] not in (1, batch) or heads % key.shape[1]:
        return "kernels take keys and values of the query's batch and a number of heads that divides its own"
    if heads != key.shape[1] and not enable_gqa:
        return "query and key have different numbers of heads, without enable_gqa"
    return None


def _call(found, tensors, query, key, value, lse):
    """(_Call, None), or (None, why no nest says the call). No _refusal stands against it."""
    if found.reason is not None:
        return None, found.reason
    (batch, heads, queries, width), (_, key_heads, keys, value_width) = query.shape, value.shape
    group = 0 if heads == key_heads else heads // key_heads
    shape = Shape(element_of(query), group, lse, value_width != width)
    sizes = {"batch": batch, "heads": heads, "key_heads": key_heads, "group": group, "queries": queries, "keys": keys,
             "head_dim": width, "value_dim": value_width}
    try:
        flex = _flex_of(found, tensors, shape, sizes)
        captured = [argument(tensors[number], query.device) for number in flex.captured]
    except Unsupported as error:
        return None, str(error)
    if shape.group:
        query = query.unflatten(1, (key_heads, group))
    inputs = [query, key.expand(batch, -1, -1, -1), value.expand(batch, -1, -1, -1)]
    inputs = [tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous() for tensor in inputs]
    return _Call(flex, inputs + captured, _all_sizes(flex, tensors, sizes), shape), None


def _flex_of(found, tensors, shape, sizes):
    """The Flex of this shape that holds for the sizes, made if none is there. Raises Unsupported."""
    made = found.known.setdefault(shape, [])
    for flex in made:
        if flex.holds(_all_sizes(flex, tensors, sizes)):
            return flex
    made.append(flex_nest(found, tensors, shape, sizes))
    return made[-1]


def _all_sizes(flex, tensors, sizes):
    """The nest's sizes: those of the call, extents of captured tensors, and values given at launch."""
    found = dict(sizes)
    for place, number in enumerate(flex.captured):
        found.update({f"extent{place}_{dim}": extent for dim, extent in enumerate(tensors[number].shape)})
    found.update({name: int(tensors[number]) + 1 for name, number in flex.given.items()})
    return {size.name: found[size.name] for size in flex.nest.sizes}


def _outputs(query, value, shape):
    """(the result, what the kernel writes)"""
    out = result_like(query, value)
    written = [out] + ([query.new_empty(query.shape[:-1], dtype=torch.float32)] if shape.lse else [])
    return out, [each.unflatten(1, (each.shape[1] // shape.group, shape.group)) if shape.group else each for each in written]
