"""An operator as a naive nest beside what PyTorch calls the same: what the modules of this folder define."""

import functools
import typing

import torch
from torch.nn.attention.flex_attention import create_block_mask

import nestor
from nestor.nests.isl_text import pieces

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32, "bool": torch.bool}


class Operator(typing.NamedTuple):
    """`plain` takes the nest's inputs in order and gives its outputs, one tensor or a tuple. It computes in the type of its
    inputs, float64 too. draw: {input: function of normal numbers of its shape, and of the sizes}; others are normal."""
    nest: nestor.Nest
    plain: typing.Callable
    paper: str  # where it is from
    tiny: dict  # sizes for tests: odd where the definition allows
    told: tuple = ()  # sizes that no shape tells, which `plain` takes by name
    draw: dict = {}
    flex: typing.Callable = None  # (*inputs, mask) to outputs, by FlexAttention
    seen: typing.Callable = None  # of sizes to FlexAttention's mask_mod, or to it and the number of tokens; None: queries see all keys
    seen_of: typing.Callable = None  # of sizes and inputs to FlexAttention's mask_mod, where data decides
    cudnn: typing.Callable = None  # as plain, with attention by cuDNN

    @property
    def name(self):
        return self.nest.op

    @property
    def dtype(self):
        """The type of 16 bits that the operator reads, else f32."""
        return next((tensor.type for tensor in self.nest.tensors if tensor.type in ("f16", "bf16")), "f32")

    def defaults(self):
        """The sizes at which it is measured."""
        return {size.name: size.default for size in self.nest.sizes}

    def tensors(self, role):
        return [tensor for tensor in self.nest.tensors if tensor.role == role]

    def make(self, sizes, generator):
        """Inputs at sizes, in order, on the generator's device."""
        return [self._input(tensor, sizes, generator) for tensor in self.tensors("input")]

    def _input(self, tensor, sizes, generator):
        normal = torch.randn(shape_of(tensor, sizes), device=generator.device, generator=generator)
        return self.draw.get(tensor.name, lambda x, _: x)(normal, sizes).to(TYPES[tensor.type])

    def empty(self, sizes, device):
        """Outputs at sizes, of NaN (of integers 0), in order."""
        return [torch.full(shape_of(tensor, sizes), 0 if tensor.type == "i32" else float("nan"), dtype=TYPES[tensor.type],
                           device=device) for tensor in self.tensors("output")]

    def plain_at(self, sizes):
        """`plain` with the sizes that it must be told."""
        return functools.partial(self.plain, **{name: sizes[name] for name in self.told}) if self.told else self.plain

    def flex_at(self, sizes, inputs):
        """`flex` as a function of the inputs alone, with its block mask, which is made once."""
        mask, device = None, inputs[0].device
        if self.seen_of:
            length = inputs[0].shape[-2]
            mask = create_block_mask(self.seen_of(sizes, inputs), len(inputs[0]), inputs[0].shape[1], length, length, device=device)
        if self.seen:
            seen = self.seen(sizes)
            seen, length = seen if isinstance(seen, tuple) else (seen, sizes["length"])
            mask = create_block_mask(seen, None, None, length, length, device=device)
        return functools.partial(self.flex, mask=mask)


def shape_of(tensor, sizes):
    """Extents of a nest's tensor at sizes."""
    return [int(pieces(text)[0].functions[0].value(sizes)) for text in tensor.shape]


def divided(size):
    """Draws weights whose products with `size` normal numbers are about 1."""
    return lambda normal, sizes: normal / sizes[size]**0.5


def around_one(normal, _):
    """Draws what multiplies: near 1."""
    return 1 + 0.1 * normal


def widened(x):
    """In f32 if it has 16 bits."""
    return x.float() if x.element_size() == 2 else x


__all__ = ["Operator", "TYPES", "around_one", "divided", "shape_of", "widened"]
