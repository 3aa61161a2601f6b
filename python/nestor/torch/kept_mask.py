"""A mask that stays a function: what block masks are taken for, with nothing in memory."""

from torch.nn.attention.flex_attention import BlockMask


class KeptMask(BlockMask):
    """mask_mod(b, h, q_idx, kv_idx) for scores of a shape (batch, 1 or heads, queries, keys). make_dense() gives the mask as a
    tensor of bool, for what needs one."""

    def __init__(self, mask_mod, shape, make_dense):  # the parent's would need its tensors
        self.mask_mod, self._shape, self._make_dense, self._dense = mask_mod, tuple(shape), make_dense, None

    @property
    def shape(self):
        return self._shape

    def dense(self):
        """The mask as a tensor, made once."""
        if self._dense is None:
            self._dense = self._make_dense()
        return self._dense

    def to(self, device):
        """Itself: there is nothing to move."""
        return self

    def __repr__(self):
        return f"KeptMask(shape={self._shape}, mask_mod={self.mask_mod})"

    __str__ = __repr__
