#!/usr/bin/env python3
"""Nestor's attention against PyTorch's scaled_dot_product_attention through cuDNN and FlashAttention-2, and against
FlashAttention-4 where its package (flash-attn-4) is installed, on one GPU.

All sides run in one process, in an order shuffled anew for every problem and round, each measured by triton.testing.do_bench
(median, cold L2). Sampled rows are compared with double precision first; a wrong result is not timed. A line of JSON is appended
for every problem as soon as it is measured.

    bench/torch_attention.py --db tuning.db --dtypes f16 --head-dims 64,128 --rounds 3 --out attention.jsonl --md attention.md
"""

import argparse
import math
import pathlib
import random
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import attention_grid  # noqa: E402
import nestor  # noqa: E402
from torch_norms import DTYPES, circumstances, times_us, torch_device, write  # noqa: E402

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash2": SDPBackend.FLASH_ATTENTION}
PEERS = {"cudnn": "cuDNN", "flash2": "FlashAttention-2", "flash4": "FlashAttention-4"}
SAMPLED_ROWS = 64
TOLERANCE = {"f32": 1e-4, "f16": 3e-3, "bf16": 2e-2}


def add_measuring_flags(parser):
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--warmup", type=float, default=40, help="ms of warm-up")
    parser.add_argument("--rep", type=float, default=150, help="ms of measuring")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side in turns; their median counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--note", default="", help="remark on the circumstances, kept with the results")
    parser.add_argument("--md", help="table of this run's results")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    attention_grid.add_flags(parser)
    add_measuring_flags(parser)
    parser.add_argument("--peers", default=",".join(BACKENDS), help=f"of {', '.join(PEERS)}")
    parser.add_argument("--out", default="torch_attention.jsonl", help="results, a line of JSON a problem, appended")
    return parser.parse_args()


def last_head(tensor):
    """The matrix of the last head of the last batch."""
    while tensor.dim() > 2:
        tensor = tensor[-1]
    return tensor


def attended(q, k, v, scale, rows, change=None):
    """softmax(change(scale q k^T)) v at the rows of the last heads of q, k and v, in double; `change` is of the scores of
    queries i (a column) and keys j (a row)."""
    scores = last_head(q).double()[rows] @ last_head(k).double().T * scale
    if change is not None:
        scores = change(scores, rows[:, None], torch.arange(scores.shape[-1], device=scores.device)[None])
    return torch.softmax(scores, -1) @ last_head(v).double()


def hides(mask):
    """The change of scores that leaves what `mask(i, j)` holds for."""
    return lambda score, i, j: score.masked_fill(~mask(i, j), -math.inf)


def sees_past(i, j):
    return j <= i


def relative_error(result, reference, rows):
    difference = last_head(result)[rows].double() - reference
    return (difference.norm() / reference.norm()).item()


def provenance(kernel):
    """Which kernel the database gave, and where that was measured."""
    return {"match": kernel.match, "distance": kernel.distance, "measured": kernel.info["measured"]}


def sampled_rows(length, generator):
    return torch.randperm(length, device=generator.device, generator=generator)[:SAMPLED_ROWS]


def compare(args, dtype, calls, reference, rows, shuffler, only_timed=None, error_of=relative_error):
    """Errors of all sides at sampled rows, and times; a wrong result of ours is not timed. `calls`: {"ours" and peers:
    function}; only_timed: more of them, whose results are no result of the problem. error_of(result, reference, rows)."""
    row, timed = {}, {**calls, **(only_timed or {})}
    for name, call in calls.items():
        try:
            row[f"{name}_error"] = error_of(call(), reference, rows)
        except Exception as error:  # noqa: BLE001  a peer refuses in ways of its own
            print(f"{name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}", file=sys.stderr)
            del timed[name]
    row["correct"] = row.get("ours_error", math.nan) <= TOLERANCE[dtype]
    if not row["correct"]:
        timed.pop("ours", None)
    row.update(times_us(args, timed, shuffler))
    return row


def flash4(q, k, v, causal):
    """A call of FlashAttention-4, which has heads behind rows; its tensors are made so before."""
    from flash_attn.cute import flash_attn_func

    q, k, v = (each.transpose(1, 2).contiguous() for each in (q, k, v))

    def call():
        found = flash_attn_func(q, k, v, causal=causal)
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)
    return call


def measure(args, library, cell, generator, shuffler):
    mask, dtype, head_dim, length = cell
    sizes, causal, scale = attention_grid.sizes_of(length, head_dim), mask == "causal", 1 / math.sqrt(head_dim)
    kernel = library.query("attention", attention_grid.variant_of(mask, dtype), sizes, args.device)
    shape = sizes["batch"], sizes["heads"], length, head_dim
    q, k, v = (torch.randn(shape, dtype=DTYPES[dtype], device=generator.device, generator=generator) for _ in range(3))
    out = torch.full_like(q, math.nan)

    def ours():
        kernel(q, k, v, out, scale=scale)
        return out

    def peer(backend):
        def call():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return call

    calls = {"ours": ours}
    for name in args.peers.split(","):
        calls[name] = flash4(q, k, v, causal) if name == "flash4" else peer(BACKENDS[name])
    rows = sampled_rows(length, generator)
    reference = attended(q, k, v, scale, rows, hides(sees_past) if causal else None)
    return {"mask": mask, "dtype": dtype, "head_dim": head_dim, "length": length, "flop": attention_grid.flop(cell),
            **provenance(kernel), **compare(args, dtype, calls, reference, rows, shuffler)}


def tflops(row, name):
    return row["flop"] / row[f"{name}_us"] / 1e6 if f"{name}_us" in row else None


def geometric_mean(ratios):
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def shown(value, form):
    """A number for a table, nothing where there is none."""
    return "" if value is None else format(value, form)


def ratio_summary(ratios, peer):
    """The geometric mean and the range of ratios of our speed to the peer's."""
    return (f"{len(ratios)} problems: {geometric_mean(ratios):.3f} times {peer}'s speed in the geometric mean, "
            f"{min(ratios):.3f} to {max(ratios):.3f}")


def table(rows, about):
    """Markdown."""
    names = [name for name in PEERS if any(f"{name}_us" in row for row in rows)]
    heads = ["mask", "type", "D", "S", "Nestor TFLOP/s", *(PEERS[name] for name in names),
             *(f"of {PEERS[name]}" for name in names if name != "flash2"), "error", "cuDNN's error"]
    lines = [f"Attention, {attention_grid.TOKENS} tokens of {attention_grid.MODEL} elements; {about.get('device')}, {about['date']}.",
             "", line_of(heads), line_of(["---"] * len(heads))]
    ratios = {name: [] for name in names if name != "flash2"}
    for row in rows:
        rates = {name: tflops(row, name) for name in ("ours", *names)}
        own = {name: rates["ours"] / rates[name] if rates["ours"] and rates[name] else None for name in ratios}
        for name, ratio in own.items():
            ratios[name] += [ratio] if ratio else []
        lines.append(line_of([row["mask"], row["dtype"], str(row["head_dim"]), str(row["length"]),
                              *(shown(rate, ".0f") for rate in rates.values()), *(shown(ratio, ".3f") for ratio in own.values()),
                              f"{row['ours_error']:.2e}", shown(row.get("cudnn_error"), ".2e")]))
    for name, found in ratios.items():
        if found:
            lines += ["", f"{ratio_summary(found, PEERS[name])}; {sum(ratio >= 1 for ratio in found)} at least as fast."]
    return "\n".join(lines) + "\n"


def line_of(cells):
    return f"| {' | '.join(cells)} |"


def run(args, program, cells, name_of, measure, table):
    """run_cells with `measure(args, library, cell, generator, shuffler)`, of the library at args.db."""
    try:
        library = nestor.Library(args.db)
    except nestor.Error as error:
        sys.exit(f"{program}: {error}")
    return run_cells(args, cells, name_of, lambda *rest: measure(args, library, *rest), table)


def run_cells(args, cells, name_of, measure, table, done=()):
    """Measures the cells within the time budget: `measure(cell, generator, shuffler)` is a row of results. Each is written as
    soon as it is there, and `table(rows, about)` of all of them and of `done`, rows of earlier runs. Ctrl-C ends it. The
    program's exit code."""
    start = time.monotonic()
    generator = torch.Generator(torch_device(args)).manual_seed(args.seed)
    about, shuffler, done = circumstances(args), random.Random(args.seed), list(done)
    for cell in cells:
        name = name_of(cell)
        if time.monotonic() - start > args.time_budget:
            print(f"{name}: out of time", file=sys.stderr)
            continue
        try:
            row = {**measure(cell, generator, shuffler), **about}
        except (nestor.Error, RuntimeError) as error:
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:300]}", file=sys.stderr, flush=True)
            continue
        except KeyboardInterrupt:
            print(f"{name}: stopped", file=sys.stderr)
            break
        done.append(row)
        write(args.out, row)
        if args.md:
            pathlib.Path(args.md).write_text(table(done, about))
    print(table(done, about))
    return 0 if done and all(row["correct"] for row in done) else 1


def main():
    args = arguments()
    return run(args, "torch_attention", attention_grid.cells(args), attention_grid.name_of, measure, table)


if __name__ == "__main__":
    sys.exit(main())
