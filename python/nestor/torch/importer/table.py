"""The table of ops: what each op of PyTorch is, by kind. docs/pytorch_ops.md is printed from it."""

from typing import Callable, NamedTuple, Tuple

KINDS = {
    "view": "an index map: no statement, composed into its readers' relations",
    "index": "follows from indices alone: a condition or an integer, affine where it can be",
    "pointwise": "one value an element; a statement where it is needed more often than it has elements",
    "reduction": "a statement that reduces",
    "product": "a statement that sums products",
    "definition": "several statements: what the op is defined as",
}


class Rule(NamedTuple):
    """convert(context, *args, **kwargs) gives a Lazy, or a tuple of them; it raises Unsupported."""
    kind: str
    convert: Callable
    note: str
    product: bool  # whether it sums products
    words: Tuple[int, ...]  # operands of int64, by place, that it is given as two words of 32 bits, the low one first


RULES = {}  #: by the op's name, such as "aten.add.Tensor"


def op(*names, kind, note="", product=False, words=()):
    """Registers the function as the rule of these ops. product: a definition that sums products; words: as a Rule has them."""
    def register(convert):
        for name in names:
            RULES[name] = Rule(kind, convert, note, product or kind == "product", words)
        return convert

    return register


def name_of(target):
    """"aten.add.Tensor" of an OpOverload; text for what else a node calls."""
    return str(target)


def documentation():
    """The table as Markdown."""
    lines = [
        "# Ops of PyTorch that become nests", "",
        "Printed by `python3 -m nestor.torch.importer`; a test compares. What is not here ends a region: PyTorch computes it.",
        ""
    ]
    for kind, meaning in KINDS.items():
        lines += [f"## {kind}", "", f"{meaning[0].upper()}{meaning[1:]}.", "", "| op | limits |", "|---|---|"]
        lines += [f"| `{name}` | {rule.note} |" for name, rule in sorted(RULES.items()) if rule.kind == kind]
        lines.append("")
    return "\n".join(lines)
