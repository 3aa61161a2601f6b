"""Shifts to the right as Python has them, of logical ones: as cheap where both are the same."""

from .ranges import least_of, most_of
from .value_text import shift_of
from .values import binary, compare, from_affine, select, unify


def shift_right(a, b):
    """a >> b as Python has it: of a negative number the sign is shifted in. Amounts are taken modulo 32. Raises UserError for
    what is no integer."""
    a, b = unify(a, b)
    amount = b.payload if b.op == "constant" and a.type == "i32" else None
    if a.affine is not None and amount is not None and 0 <= amount < 31:
        return from_affine(a.affine // (1 << amount))
    if a.type != "i32" or _is_natural(a):
        return binary("shift_right_logical", a, b)
    signs = select(compare("lt", a, 0), -1, 0, guards=False)
    return binary("bit_xor", binary("shift_right_logical", binary("bit_xor", a, signs), b), signs)


def _is_natural(value):
    """Whether an integer is plainly not negative."""
    if value.affine is not None:
        return least_of(value.affine) >= 0
    if value.op == "bit_and":
        return any(map(_is_natural, value.args))
    return value.op == "shift_right_logical" and value.args[1].op == "constant" and value.args[1].payload % 32 > 0


def masked(a, b):
    """a & b; where one is a mask that takes no bit that a shift has brought in, that shift is a logical one."""
    for shifted, mask in ((a, b), (b, a)):
        found = shift_of(shifted)
        if found and mask.op == "constant" and mask.payload >= 0:
            amount = found[1].affine
            if amount is not None and least_of(amount) >= 0 and most_of(amount) + mask.payload.bit_length() <= 32:
                return binary("bit_and", binary("shift_right_logical", *found), mask)
    return binary("bit_and", a, b)
