#!/usr/bin/env python3
"""Nestor's variants of attention against PyTorch's ways to compute them, on one GPU: masks, ALiBi, softcap and a few
queries at the end of long sequences against FlexAttention compiled, differential attention against two calls of cuDNN's,
evoformer attention against torch.compile of the plain formula.

Method and checks are torch_attention.py's: one process, an order shuffled anew for every problem and round, do_bench (median,
cold L2), sampled rows compared with double precision first.

    bench/torch_variants.py --db tuning.db --only 'causal|softcap' --rounds 3 --out variants.jsonl --md variants.md
"""

import argparse
import math
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import attention_variants
from attention_variants import CAP, LAMBDA, query_heads
from torch_attention import (add_measuring_flags, attended, compare, geometric_mean, hides, last_head, provenance, run,
                             sampled_rows, sees_past, shown)
from torch_norms import DTYPES

GOAL_PEERS = {"differential": "cudnn_calls", "evoformer": "compile"}  # of the other kinds: flex


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    attention_variants.add_flags(parser)
    add_measuring_flags(parser)
    parser.add_argument("--db", help="tuning database (default: the usual one)")
    parser.add_argument("--dtypes", default="bf16")
    parser.add_argument("--time-budget", type=float, default=3600, help="seconds for all problems")
    parser.add_argument("--compile-mode", default="default", help="of torch.compile, for the peers that it compiles")
    parser.add_argument("--out", default="torch_variants.jsonl", help="results, a line of JSON a problem, appended")
    return parser.parse_args()


class Variant:
    """One problem: the kernel's tensors by name, its scalars, the peers, and the reference at sampled rows."""

    def __init__(self, args, problem, generator):
        self.args, self.problem, self.sizes, self.generator = args, problem, problem.sizes, generator
        self.scale = 1 / math.sqrt(self.sizes["head_dim"])
        self.scalars = {"scale": self.scale}
        self.tensors, self.only_timed = {}, {}

    def random(self, *shape):
        return torch.randn(shape, dtype=DTYPES[self.problem.dtype], device=self.generator.device, generator=self.generator)

    def compiled(self, function):
        torch._dynamo.reset()
        return torch.compile(function, dynamic=False, mode=self.args.compile_mode)

    def ours(self, library):
        kernel = library.query(self.problem.op, self.problem.variant, self.sizes, self.args.device)
        tensors, sizes, scalars = [self.tensors[name] for name in kernel.tensors], self.sizes, self.scalars

        def call():
            kernel(*tensors, sizes=sizes, **scalars)
            return self.tensors["out"]
        return kernel, call


class Flex(Variant):
    def __init__(self, args, problem, generator):
        super().__init__(args, problem, generator)
        sizes, kind = self.sizes, problem.kind
        batch, length, dim = sizes["batch"], sizes["queries"], sizes["head_dim"]
        heads = [sizes["key_heads"], sizes["group"]] if "group" in sizes else [sizes["heads"]]
        q, k, v = (self.random(batch, *heads, length, dim),
                   *(self.random(batch, heads[0], sizes["keys"], dim) for _ in range(2)))
        self.tensors = {"q": q, "k": k, "v": v, "out": torch.full_like(q, math.nan)}
        self.slopes = torch.tensor([2.0 ** (-8 * (head + 1) / query_heads(sizes)) for head in range(query_heads(sizes))],
                                   device=q.device)
        if kind == "alibi":
            self.tensors["slope"] = self.slopes.view(heads)
        if kind == "softcap":
            self.scalars["cap"] = CAP

    def mask(self):
        """What a query at i sees of the keys at j, or None where it sees all of them."""
        window, prefix = self.sizes.get("window"), self.sizes.get("prefix")
        return {"causal": sees_past, "alibi": sees_past,
                "window": lambda i, j: (j <= i) & (i - j < window),
                "prefix": lambda i, j: (j <= i) | (j < prefix)}.get(self.problem.kind)

    def peers(self):
        q, k, v, slopes, mask = *(self.tensors[name] for name in "qkv"), self.slopes, self.mask()
        q = q.flatten(1, -3)
        changes = {"alibi": lambda score, b, h, i, j: score + slopes[h] * (j - i),
                   "softcap": lambda score, b, h, i, j: CAP * torch.tanh(score / CAP)}
        options = {"score_mod": changes.get(self.problem.kind), "scale": self.scale, "enable_gqa": q.shape[1] != k.shape[1]}
        if mask is not None:
            options["block_mask"] = create_block_mask(lambda b, h, i, j: mask(i, j), None, None, q.shape[2], k.shape[2],
                                                      device=q.device)
        flex = self.compiled(flex_attention)
        peers = {"flex": lambda: flex(q, k, v, **options)}
        if self.problem.kind == "few":
            peers["sdpa"] = lambda: F.scaled_dot_product_attention(q, k, v, scale=self.scale, enable_gqa=True)
        return peers

    def reference(self, rows):
        mask, slope = self.mask(), self.slopes[-1].double()
        change = {"alibi": lambda score, i, j: hides(mask)(score + slope * (j - i), i, j),
                  "softcap": lambda score, i, j: CAP * torch.tanh(score / CAP),
                  "full": None, "few": None}.get(self.problem.kind, mask and hides(mask))
        return attended(*(self.tensors[name] for name in "qkv"), self.scale, rows, change)


class Differential(Variant):
    def __init__(self, args, problem, generator):
        super().__init__(args, problem, generator)
        sizes = self.sizes
        batch, heads, length = sizes["batch"], sizes["heads"], sizes["queries"]
        self.tensors = {name: self.random(batch, heads, length, sizes["head_dim"]) for name in ("q1", "k1", "q2", "k2")}
        self.tensors["v"] = self.random(batch, heads, length, sizes["value_dim"])
        self.tensors["out"] = torch.full_like(self.tensors["v"], math.nan)
        self.scalars["lambda"] = LAMBDA

    def peers(self):
        q1, k1, q2, k2, v = (self.tensors[name] for name in ("q1", "k1", "q2", "k2", "v"))

        def both():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION if v.is_cuda else SDPBackend.MATH):
                return F.scaled_dot_product_attention(q1, k1, v), F.scaled_dot_product_attention(q2, k2, v)

        def difference():
            first, second = both()
            return torch.sub(first, second, alpha=LAMBDA)
        self.only_timed = {"cudnn_calls": both}  # without the difference, which a kernel of theirs would make as well
        return {"cudnn": difference}

    def reference(self, rows):
        q1, k1, q2, k2, v = (self.tensors[name] for name in ("q1", "k1", "q2", "k2", "v"))
        return attended(q1, k1, v, self.scale, rows) - LAMBDA * attended(q2, k2, v, self.scale, rows)


class Evoformer(Variant):
    def __init__(self, args, problem, generator):
        super().__init__(args, problem, generator)
        sizes = self.sizes
        batch, rows, heads, n = sizes["batch"], sizes["rows"], sizes["heads"], sizes["n"]
        self.tensors = {name: self.random(batch, rows, heads, n, sizes["head_dim"]) for name in ("q", "k", "v", "gate")}
        self.tensors.update(mask=self.random(batch, rows, n), pair=self.random(batch, heads, n, n),
                            out=torch.full_like(self.tensors["q"], math.nan))

    def peers(self):
        inputs, scale = [self.tensors[name] for name in ("q", "k", "v", "gate", "mask", "pair")], self.scale

        def plain(q, k, v, gate, mask, pair):
            scores = q @ k.transpose(-1, -2) * scale + mask[:, :, None, None, :] + pair[:, None]
            return torch.sigmoid(gate) * (torch.softmax(scores, -1) @ v)
        compiled = self.compiled(plain)
        return {"compile": lambda: compiled(*inputs)}

    def reference(self, rows):
        gate, mask, pair = (last_head(self.tensors[name]).double() for name in ("gate", "mask", "pair"))
        weighted = attended(*(self.tensors[name] for name in "qkv"), self.scale, rows,
                            lambda score, i, j: score + mask[-1] + pair[rows])
        return torch.sigmoid(gate[rows]) * weighted


VARIANTS = {"differential": Differential, "evoformer": Evoformer}


def measure(args, library, problem, generator, shuffler):
    """A row of the results."""
    variant = VARIANTS.get(problem.kind, Flex)(args, problem, generator)
    kernel, ours = variant.ours(library)
    rows = sampled_rows(variant.tensors["out"].shape[-2], generator)
    found = compare(args, problem.dtype, {"ours": ours, **variant.peers()}, variant.reference(rows), rows, shuffler,
                    variant.only_timed)
    return {"problem": problem.name, "kind": problem.kind, "variant": f"{problem.op} {problem.variant}", "dtype": problem.dtype,
            "sizes": problem.sizes, "goal": problem.goal, **provenance(kernel), **found}


def speedup(row):
    """The peer's time over ours, or None where one of them has none."""
    peer = row.get(f"{GOAL_PEERS.get(row['kind'], 'flex')}_us")
    return peer / row["ours_us"] if peer and "ours_us" in row else None


def table(rows, about):
    """Markdown."""
    lines = [f"Variants of attention; {about.get('device')}, PyTorch {about['torch']}, {about['date']}.", "",
             "| problem | Nestor us | peer | its us | speed-up | goal | error | peer's error | kernel |",
             "|---|---|---|---|---|---|---|---|---|"]
    met, ratios = 0, []
    for row in rows:
        peer, ratio = GOAL_PEERS.get(row["kind"], "flex"), speedup(row)
        ours = shown(row.get("ours_us"), ".1f") if row["correct"] else "WRONG"
        error = row.get(f"{peer}_error", row.get("cudnn_error"))
        ratios += [ratio] if ratio else []
        met += ratio is not None and ratio >= row["goal"]
        lines.append(f"| {row['problem']} | {ours} | {peer} | {shown(row.get(f'{peer}_us'), '.1f')} | {shown(ratio, '.2f')} | "
                     f"{row['goal']} | {shown(row.get('ours_error'), '.2e')} | {shown(error, '.2e')} | {row['match']} |")
    if ratios:
        lines += ["", f"Goal met at {met} of {len(rows)}; geometric mean of {len(ratios)} speed-ups {geometric_mean(ratios):.2f}."]
    return "\n".join(lines) + "\n"


def main():
    args = arguments()
    problems = attention_variants.problems(args.only, args.dtypes.split(","))
    return run(args, "torch_variants", problems, lambda problem: problem.name, measure, table)


if __name__ == "__main__":
    sys.exit(main())
