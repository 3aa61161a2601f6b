"""Products: sums of products over the dims that operands share."""

import dataclasses
import functools
import operator

import torch

from ...nests.affine import TRUE, Affine, both
from ...nests.values import as_type
from .extents import Unsupported, variable
from .lazy import align_groups, pointwise
from .separate import separated
from .table import op


def contract(context, equation, *operands, name=None):
    """The sum of products that an einsum equation of letters names: "bik,bkj->bij". f32, whatever the operands are. Terms of
    which an operand says that they are 0 are left out; operands that are sums of what has different extrema are taken apart."""
    name = name or context.name
    inputs, output = equation.split("->")
    for number, (label, operand) in enumerate(zip(inputs.split(","), operands)):
        parts = separated(operand, [place for dim, letter in enumerate(label) if letter not in output for place in operand.flat(dim)])
        if len(parts) > 1:
            sums = [_of_part(context, equation, operands, number, part, f"{name}_{k}") for k, part in enumerate(parts)]
            return pointwise(lambda *found: functools.reduce(operator.add, found), sums, torch.float32, context.builder, name)
    labels = inputs.split(",")
    groups, atoms = {}, {}
    for letter in dict.fromkeys(inputs.replace(",", "")):
        places = [(number, place) for number, label in enumerate(labels) for place, each in enumerate(label) if each == letter]
        atoms[letter], forms = align_groups([operands[number].dims[place] for number, place in places])
        groups[letter] = dict(zip(places, forms))
    operands = [context.builder.cheap(operand, f"{name}_{'abcd'[number]}") for number, operand in enumerate(operands)]
    outer = context.builder.indices([atom for letter in output for atom in atoms[letter]], "d")
    summed = [letter for letter in atoms if letter not in output]
    inner = context.builder.indices([atom for letter in summed for atom in atoms[letter]], "r")
    index = {}
    for letters, made in ((output, outer), (summed, inner)):
        waiting = list(made)
        for letter in letters:
            index[letter] = [waiting.pop(0).affine for _ in atoms[letter]]
    value, where = None, TRUE
    for number, (label, operand) in enumerate(zip(labels, operands)):
        at = []
        for place, letter in enumerate(label):
            values = {f"#{k}": each for k, each in enumerate(index[letter])}
            at += [form.substitute(values) for form in groups[letter][number, place]]
        element = as_type(operand.inside(tuple(at)), "f32")
        where = both(where, operand.where(tuple(at)))
        value = element if value is None else value * element
    dims = [atoms[letter] for letter in output]
    return context.builder.sum_of("add", value, outer, inner, dims, torch.float32, name, where)


def _of_part(context, equation, operands, number, part, name):
    """The product with a part in the place of operand `number`, which then meets the part's factors."""
    found = contract(context, equation, *operands[:number], part.terms, *operands[number + 1:], name=name)
    inputs, output = equation.split("->")
    label = inputs.split(",")[number]
    for op_name, factor in part.factors:
        dims = [factor.dims[label.index(letter)] if letter in label else () for letter in output]
        forms = [Affine((), 0)] * len(factor.atoms)
        for dim, letter in enumerate(label):
            if letter in output:
                first = sum(map(len, dims[:output.index(letter)]))
                for k, place in enumerate(factor.flat(dim)):
                    forms[place] = variable(first + k)
        function = operator.mul if op_name == "mul" else operator.truediv
        found = pointwise(function, [found, factor.mapped(dims, forms)], torch.float32, context.builder, name)
    return found


def typed(context, x):
    return dataclasses.replace(x, dtype=context.dtype)


def _floats(context):
    if not context.dtype.is_floating_point:
        raise Unsupported("products of integers")


def _scaled_sum(context, bias, found, beta, alpha):
    """beta bias + alpha found"""
    if beta == 0:
        return pointwise(lambda f: f * alpha, [found], context.dtype, context.builder, context.name)
    return pointwise(lambda b, f: (b if beta == 1 else b * beta) + (f if alpha == 1 else f * alpha), [bias, found], context.dtype,
                     context.builder, context.name)


def _product(*names, equation):
    @op(*names, kind="product", note="floats")
    def convert(context, a, b):
        _floats(context)
        return typed(context, contract(context, equation, a, b))


_product("aten.mm.default", equation="ik,kj->ij")
_product("aten.bmm.default", equation="bik,bkj->bij")
_product("aten.mv.default", equation="ik,k->i")
_product("aten.dot.default", "aten.vdot.default", equation="k,k->")


@op("aten.addmm.default", "aten.addmv.default", "aten.baddbmm.default", "aten.addbmm.default", kind="product", note="floats")
def addmm(context, bias, a, b, *, beta=1, alpha=1):
    _floats(context)
    equation = {(2, 2): "ik,kj->ij", (2, 1): "ik,k->i", (3, 3): "bik,bkj->bij"}[len(a.dims), len(b.dims)]
    if context.op.startswith("aten.addbmm."):
        equation = "bik,bkj->ij"
    return _scaled_sum(context, bias, contract(context, equation, a, b, name=f"{context.name}_dot"), beta, alpha)


@op("aten.linear.default", kind="product", note="floats")
def linear(context, x, weight, bias=None):
    _floats(context)
    letters = "abcdefgh"[:len(x.dims) - 1]
    found = contract(context,
                     f"{letters}k,{'o' if len(weight.dims) == 2 else ''}k->{letters}{'o' if len(weight.dims) == 2 else ''}",
                     x,
                     weight,
                     name=f"{context.name}_dot" if bias is not None else None)
    return typed(context, found) if bias is None else _scaled_sum(context, bias, found, 1, 1)


@op("aten.matmul.default", kind="product", note="floats")
def matmul(context, a, b):
    _floats(context)
    left = "" if len(a.dims) == 1 else "i"
    right = "" if len(b.dims) == 1 else "j"
    batch = max(len(a.dims) - 1 - len(left), len(b.dims) - 1 - len(right), 0)
    letters = "stuvwxyz"[:batch]

    def own(x, label):
        return letters[batch - (len(x.dims) - len(label)):] + label

    one, other = own(a, left + "k"), own(b, "k" + right)
    return typed(context, contract(context, f"{one},{other}->{letters}{left}{right}", a, b))


@op("aten.einsum.default", kind="product", note="floats; letters, no repeated ones in one operand")
def einsum(context, equation, operands, **_):
    _floats(context)
    equation = equation.replace(" ", "")
    if "..." in equation or "->" not in equation:
        raise Unsupported(f"the einsum {equation}, which has dots or no result")
    for label in (*equation.split("->")[0].split(","), equation.split("->")[1]):
        if len(set(label)) != len(label):
            raise Unsupported(f"the einsum {equation}, which takes a diagonal")
    return typed(context, contract(context, equation, *operands))
