"""Variants of attention as problems: what torch_variants.py compares and `tune_attention.py --problems variants` tunes."""

import re
import typing

TOKENS = 16384
LENGTHS = (1024, 4096, 16384)
QUERY_HEADS, HEAD_DIM = 16, 64
CAP = 30.0
LAMBDA = 0.8


class Problem(typing.NamedTuple):
    name: str  # what --only is matched with
    op: str
    variant: str
    sizes: dict
    kind: str  # "causal", "softcap", ...: what torch_variants.py compares it as
    dtype: str
    goal: float  # the peer's time over ours should be at least this


# kind: (operator, its options, sizes of the mask, goal)
FLEX = {
    "full": ("attention", "", {}, 1.3),
    "causal": ("attention", "causal", {}, 1.3),
    "window": ("attention", "window", {"window": 256}, 1.3),
    "prefix": ("attention", "prefix", {"prefix": 256}, 1.3),
    "alibi": ("attention_alibi", "", {}, 1.3),
    "softcap": ("attention_softcap", "", {}, 3.0),
}


def variant_of(*options):
    return ".".join(option for option in options if option)


def flex_problem(kind, key_heads, length, dtype, tokens=TOKENS):
    """One against FlexAttention: as many key heads as query heads, or groups of query heads for each of them."""
    op, option, masked, goal = FLEX[kind]
    sizes = {"batch": tokens // length, "queries": length, "keys": length, "head_dim": HEAD_DIM, **masked}
    grouped = key_heads != QUERY_HEADS
    if grouped:
        sizes.update(key_heads=key_heads, group=QUERY_HEADS // key_heads, value_dim=HEAD_DIM)
    else:
        sizes["heads"] = QUERY_HEADS
    return Problem(f"{kind} {dtype} heads {QUERY_HEADS}/{key_heads} D{HEAD_DIM} S{length}", op,
                   variant_of(option, "gqa" if grouped else "", dtype), sizes, kind, dtype, goal)


def few_problem(queries, keys, dtype, tokens=16 * 8192):
    """A few queries at the end of a long sequence, as when text is generated: 64 query heads share 8 of keys and values."""
    sizes = {"batch": tokens // keys, "key_heads": 8, "group": 8, "queries": queries, "keys": keys, "head_dim": 128,
             "value_dim": 128}
    return Problem(f"few {dtype} heads 64/8 D128 Q{queries} S{keys}", "attention", f"gqa.{dtype}", sizes, "few", dtype, 1.0)


def differential_problem(head_dim, length, dtype, tokens=TOKENS):
    sizes = {"batch": tokens // length, "heads": 16, "queries": length, "keys": length, "head_dim": head_dim,
             "value_dim": head_dim}
    return Problem(f"differential {dtype} D{head_dim} S{length}", "differential_attention", dtype, sizes, "differential", dtype,
                   1.3)


def evoformer_problem(n, dtype, rows=128):
    sizes = {"batch": 1, "rows": rows, "heads": 4, "n": n, "head_dim": 32}
    return Problem(f"evoformer {dtype} R{rows} H4 N{n} D32", "evoformer_attention", dtype, sizes, "evoformer", dtype, 2.5)


def add_flags(parser):
    parser.add_argument("--only", default="", help="variants whose name has a match of this regular expression, such as "
                                                   "\"causal.*S4096|softcap\"")


def problems(only, dtypes):
    """All variants of the element types whose name matches `only`."""
    every = [problem for dtype in dtypes for problem in
             [*(flex_problem(kind, key_heads, length, dtype)
                for kind in FLEX for key_heads in (QUERY_HEADS, 2) for length in LENGTHS),
              *(few_problem(queries, keys, dtype) for queries in (1, 8) for keys in (8192, 32768)),
              *(differential_problem(head_dim, length, dtype) for head_dim in (64, 128) for length in (1024, 4096)),
              *(evoformer_problem(n, dtype) for n in (256, 512))]]
    return [problem for problem in every if re.search(only, problem.name)]


def query_heads(sizes):
    return sizes["key_heads"] * sizes["group"] if "group" in sizes else sizes["heads"]
