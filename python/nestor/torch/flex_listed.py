"""The blocks that a BlockMask of PyTorch's lists, which may show more or less than its mask_mod does.

PyTorch's compiled FlexAttention leaves out the keys of blocks that are not listed, and asks mask_mod in partial blocks alone. A
nest knows mask_mod only. So once for each BlockMask its blocks are compared with what mask_mod gives; where they differ, what
is computed is a mask_mod that reads the blocks, too.
"""

import threading
import weakref

import torch
from torch.nn.attention.flex_attention import BlockMask, create_mask

from .flex_mods import traced
from .kept_mask import KeptMask

DIFFERENT = "the blocks of block_mask are not those of its mask_mod"
UNCOMPARED = ("the blocks of block_mask cannot be compared with its mask_mod while a CUDA graph is captured: give mask_mod itself, "
              "or call with this block_mask before")
_MOST = 16  # comparisons of a function that are kept
_ELEMENTS = 1 << 24  # of a mask, that are compared at once
_HUGE = 1 << 30  # the block size of PyTorch's masks that hide nothing, whatever the lengths
_lock = threading.RLock()


def is_pytorchs(block_mask):
    """Whether this is a BlockMask that lists blocks."""
    return isinstance(block_mask, BlockMask) and not isinstance(block_mask, KeptMask)


def parts_of(block_mask):
    """([what lists the blocks of a BlockMask], [its lengths and block sizes]), and of anything else ([], [])."""
    if not is_pytorchs(block_mask):
        return [], []
    tensors = (block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
    return [tensor for tensor in tensors if tensor is not None], [*block_mask.seq_lengths, *block_mask.BLOCK_SIZE]


def shown_by(block_mask, query, key):
    """(a mask_mod that shows what block_mask shows, None), or (None, why there is none). block_mask: as flex_attention takes it."""
    mask_mod = getattr(block_mask, "mask_mod", block_mask)
    if not is_pytorchs(block_mask):
        return mask_mod, None
    found, tensors = traced(None, mask_mod)
    return compared(found, tensors, mask_mod, *parts_of(block_mask), query, key)


def compared(found, tensors, mask_mod, blocks, places, query, key):
    """The same of parts_of a BlockMask. found, tensors: the Traced of mask_mod, and what that captured."""
    read = [*blocks, *tensors]
    lengths = query.shape[2], key.shape[2]
    asked = tuple(map(id, blocks)), tuple(places), query.shape[:2], lengths
    lasting = found.reason is None and not any(tensor.is_inference() for tensor in read)  # else changes cannot be seen
    state = [(weakref.ref(tensor), tensor._version) for tensor in read] if lasting else []
    with _lock:
        kept = found.known.setdefault("listed blocks", {})
        before, result = kept.get(asked, (None, None)) if lasting else (None, None)
        if before is None or not all(one() is other() and number == own
                                     for (one, number), (other, own) in zip(before, state)):
            with torch.inference_mode(False), torch.no_grad():
                result = _compare(found, mask_mod, blocks, places, query.shape[:2], lengths)
            if lasting and not is_captured(blocks):
                if len(kept) >= _MOST:
                    kept.clear()
                kept[asked] = state, result
    table, reason = result
    return (mask_mod if table is None else _reading(table, mask_mod, places), None) if reason is None else (None, reason)


def _compare(found, mask_mod, blocks, places, counts, lengths):
    """(None, None) where mask_mod alone shows what the blocks show; (_table of blocks that have to be read, None); or (None, why
    nothing shows it)."""
    if places[2] == places[3] == _HUGE:
        places = [*lengths, *places[2:]]
    reason = _refusal(blocks, places, counts)
    if reason is not None:
        return None, reason
    table, is_right = _table(blocks, places)
    is_of_lengths = tuple(places[:2]) == tuple(lengths)
    if not is_captured(blocks):
        if not is_right.item():
            return None, "block_mask lists a block twice, or one that is not there"
        try:
            if _agree(found, mask_mod, table, places, counts):
                return None, None
        except Exception as error:  # noqa: BLE001  what users' functions raise
            return None, f"mask_mod cannot be compared with the blocks of block_mask: {(str(error).splitlines() or [''])[0]}"
    return (table, None) if is_of_lengths else (None, f"{DIFFERENT}, and it is of other lengths")


def is_captured(blocks):
    """Whether a CUDA graph is captured, in which nothing can be compared."""
    return blocks[0].is_cuda and torch.cuda.is_current_stream_capturing()


def _refusal(blocks, places, counts):
    """Why blocks do not fit a call, or None."""
    number, indices = blocks[:2]
    rows = -(-places[0] // places[2])
    if number.dim() != 3 or indices.shape[:3] != number.shape or any(
            number.shape != each.shape[:3] for each in blocks[2:]) or number.shape[2] != rows:
        return "the tensors of block_mask are not of its lengths"
    if any(own not in (1, count) for own, count in zip(number.shape, counts)):
        return "block_mask is of other batches or heads"
    return None


def _table(blocks, places):
    """([batch or 1, heads or 1, rows, columns] of i32, whether each block is listed once). 0 is a block that is hidden, 1 one where
    mask_mod decides, 2 one that is shown."""
    columns = -(-places[1] // places[3])
    number, table, times, is_right = blocks[0], 0, 0, True
    for kind, (counts, indices) in enumerate(zip(blocks[::2], blocks[1::2]), 1):
        listed = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
        outside = (indices < 0) | (indices >= columns)
        is_right = is_right & ~(listed & outside).any() & (counts <= indices.shape[-1]).all()
        ones = torch.zeros((*number.shape, columns + 1), dtype=torch.int32, device=number.device)
        ones.scatter_add_(-1, torch.where(listed & ~outside, indices, columns).long(), torch.ones_like(indices, dtype=torch.int32))
        times, table = times + ones[..., :columns], table + kind * ones[..., :columns]
    return table.clamp_(max=2), is_right & (times <= 1).all()


def _reading(table, mask_mod, places):
    """A mask_mod that reads the table of the blocks, too."""
    by_batch, by_head, by_row, by_column = (extent > 1 for extent in table.shape)
    _, _, rows, columns = places

    def shown(b, h, q, k):
        kind = table[b if by_batch else 0 * b, h if by_head else 0 * h, q // rows if by_row else 0 * q,
                     k // columns if by_column else 0 * k]
        return (kind == 2) | ((kind == 1) & mask_mod(b, h, q, k))

    return shown


def _agree(found, mask_mod, table, places, counts):
    """Whether mask_mod hides all of each hidden block, and nothing of each full one."""
    (queries, keys, rows, columns), device = places, table.device
    uses = [True] * 2
    if found.reason is None:
        uses = [bool(node.users) for node in found.graph.nodes if node.op == "placeholder"][1:3]
    batch, heads = (count if own > 1 or used else 1 for own, count, used in zip(table.shape, counts, uses))
    step = max(1, _ELEMENTS // (batch * heads * keys))
    column = torch.arange(keys, device=device) // columns
    wrong = torch.zeros((), dtype=torch.bool, device=device)
    for start in range(0, queries, step):
        count = min(step, queries - start)

        def part(b, h, q, k, start=start):
            return mask_mod(b, h, q + start, k)

        mask = create_mask(part, batch, heads, count, keys, device=device).to(torch.bool)
        kind = table[:, :, torch.arange(start, start + count, device=device) // rows][..., column]
        wrong |= torch.where(mask, kind == 0, kind == 2).any()
    return not wrong.item()
