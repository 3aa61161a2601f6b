#!/usr/bin/env python3
"""A step of training BERT-large as a masked language model: backend="nestor" against torch.compile, both with SDPA, in one process.

bf16, batches of 32 sequences of 512 tokens, dropout 0.1, AdamW; random weights, so nothing is downloaded. The loss and the gradients' norm of
two layers without dropout are compared with float64's; the loss of all layers, with dropout, of both sides with each other: they draw the
same random numbers. Samples a second and the most memory of each side.

    bench/models/bench_training.py --db tuning.db --tune now --budget 60 --out training.jsonl
    bench/models/bench_training.py --device cpu --tiny --tune now --nest-time 1
"""

import copy
import sys

import torch

from harness import flags, race, run, timed
from torch_attention import shown

import nestor.torch  # noqa: F401  registers the backend


def arguments():
    parser = flags(__doc__)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--check-layers", type=int, default=2, help="of the model that is compared with float64; 0: none is")
    parser.add_argument("--mode", default="default", help="of torch.compile, on both sides")
    parser.add_argument("--min-gain", type=float, default=1.03, help="how much faster than Inductor's code a region has to be")
    return parser.parse_args()


def model_of(args, dropout):
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 1024, "num_hidden_layers": args.layers, "num_attention_heads": 16, "intermediate_size": 4096}
    if args.tiny:
        sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128, "vocab_size": 200}
    config = BertConfig(**sizes, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, attn_implementation="sdpa",
                        max_position_embeddings=max(512, args.length))
    return BertForMaskedLM(config).train()


def batch_of(args, config):
    batch, length = (2, 16) if args.tiny else (args.batch, args.length)
    tokens = torch.randint(0, config.vocab_size, (batch, length), device=args.device)
    return {"input_ids": tokens, "labels": tokens.clone(), "attention_mask": torch.ones_like(tokens)}


def compiled(args, side, model, row):
    if side == "compile":
        return torch.compile(model, mode=None if args.mode == "default" else args.mode)

    def keep(report):
        row.setdefault("reports", []).append(str(report))
        told(f"report:\n{report}")

    options = {"tune": args.tune, "budget_s": args.budget, "time_per_nest": args.nest_time, "db": args.db, "min_gain": args.min_gain,
               "mode": args.mode, "report": keep}
    return torch.compile(model, backend="nestor", options=options)


def told(text):
    """What a run that is cut short leaves behind."""
    print(text, file=sys.stderr, flush=True)


def checked(args, row):
    """Errors of the loss and of the gradients' norm against float64 on a model of two layers, without dropout. Batch and length
    are the measured ones, so that the kernels are."""
    torch.manual_seed(args.seed)
    small = copy.copy(args)
    small.layers = min(args.layers, args.check_layers)
    model = model_of(small, 0.0).to(args.device)
    batch = batch_of(small, model.config)
    wanted = loss_and_norm(copy.deepcopy(model).double(), batch)
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    rounded = model.to(dtype)
    for side in ("eager", "compile", "ours"):
        torch._dynamo.reset()
        own = copy.deepcopy(rounded)
        found = loss_and_norm(own if side == "eager" else compiled(args, side, own, {}), batch)
        told(f"checked {side}")
        row[f"{side}_error"] = max(abs(one - other) / abs(other) for one, other in zip(found, wanted))
    return row["ours_error"] <= 1.5 * row["eager_error"] + (1e-2 if dtype == torch.bfloat16 else 1e-5)


def loss_and_norm(model, batch):
    loss = model(**batch).loss
    loss.backward()
    norms = [each.grad.double().norm() for each in model.parameters() if each.grad is not None]
    return loss.item(), torch.stack(norms).norm().item()


def measure(args, problem, shuffler):
    row, calls = {}, {}
    row["correct"], row["check_s"] = timed(lambda: checked(args, row)) if args.check_layers > 0 else (True, 0.0)
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    torch.manual_seed(args.seed)
    model = model_of(args, 0.1).to(args.device, dtype)
    batch = batch_of(args, model.config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=args.device == "cuda")

    def step(function):
        function(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def loss_of(function):
        torch.manual_seed(args.seed)
        return function(**batch).loss.item()

    torch._dynamo.reset()
    functions = {side: compiled(args, side, model, row) for side in ("compile", "ours")}
    for side, function in functions.items():
        calls[side] = lambda function=function: step(function)
        _, row[f"{side}_start_s"] = timed(lambda call=calls[side]: (call(), call()))
        row[f"{side}_gib"] = most_memory(calls[side])
        told(f"{side}: started in {row[f'{side}_start_s']:.0f} s")
    losses = {side: loss_of(function) for side, function in functions.items()}
    row["loss_difference"] = abs(losses["ours"] - losses["compile"]) / losses["compile"]
    row["correct"] = row["correct"] and row["loss_difference"] < (1e-2 if dtype == torch.bfloat16 else 1e-5)
    row.update({f"{side}_ms": found for side, found in race(calls, args, shuffler).items()})
    row["samples"] = batch["input_ids"].shape[0]
    return row


def most_memory(call):
    """GiB that PyTorch's allocator holds at most during a call."""
    if not torch.cuda.is_available():
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**30


def table(rows, about):
    lines = [f"A step of training; {about['device']}, PyTorch {torch.__version__}, {about['date']}.", "",
             "| problem | torch.compile ms | Nestor ms | of torch.compile | samples/s | its samples/s | GiB | its GiB | error | eager's "
             "error | loss, off by | start s | its |", "|" + "---|" * 13]
    for row in rows:
        rates = [row["samples"] / row[f"{side}_ms"] * 1e3 for side in ("ours", "compile")]
        lines.append(f"| {row['problem']} | {row['compile_ms']:.2f} | {row['ours_ms']:.2f} | {row['compile_ms'] / row['ours_ms']:.3f} | "
                     f"{rates[0]:.1f} | {rates[1]:.1f} | {shown(row['ours_gib'], '.2f')} | {shown(row['compile_gib'], '.2f')} | "
                     f"{shown(row.get('ours_error'), '.1e')} | {shown(row.get('eager_error'), '.1e')} | {row['loss_difference']:.1e} | "
                     f"{row['ours_start_s']:.1f} | {row['compile_start_s']:.1f} |")
    return "\n".join(lines) + "\n"


def main():
    args = arguments()
    name = "training tiny" if args.tiny else f"training bert-large {args.batch}x{args.length}"
    return run(args, {name: None}, measure, table)


if __name__ == "__main__":
    sys.exit(main())
