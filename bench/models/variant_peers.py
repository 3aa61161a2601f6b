"""What variants of attention in plain PyTorch are compared with beside torch.compile of the same code: the hand-written definition
in kernels/, or FlexAttention where there is none."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import nestor
from model_zoo import CAP, DOCUMENT, LAMBDA, PREFIX, WINDOW

ELEMENTS = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}


def _attention(op, option="", tensors=(), scalars=(), masked=()):
    """A definition over query, key and value; masked: sizes of the mask; tensors: further inputs, as functions of the inputs."""
    def problem(inputs):
        query, key = inputs["query"], inputs["key"]
        sizes = {"batch": query.shape[0], "heads": query.shape[1], "queries": query.shape[2], "keys": key.shape[2],
                 "head_dim": query.shape[3], **dict(masked)}
        named = {"q": query, "k": key, "v": inputs["value"], **{name: make(inputs) for name, make in dict(tensors).items()}}
        return op, option, sizes, named, {"scale": query.shape[-1] ** -0.5, **dict(scalars)}
    return problem


def _differential(inputs):
    query, value = inputs["query"], inputs["value"]
    sizes = {"batch": query.shape[0], "heads": query.shape[1], "queries": query.shape[2], "keys": query.shape[2],
             "head_dim": query.shape[3], "value_dim": value.shape[3]}
    names = {"q1": "query", "k1": "key", "q2": "query2", "k2": "key2", "v": "value"}
    return ("differential_attention", "", sizes, {name: inputs[own] for name, own in names.items()},
            {"scale": query.shape[-1] ** -0.5, "lambda": LAMBDA})


def _evoformer(inputs):
    query = inputs["query"]
    rows, heads, length, dim = query.shape
    named = {name: inputs[own][None] for name, own in {"q": "query", "k": "key", "v": "value", "gate": "gate", "pair": "pair"}.items()}
    named["mask"] = query.new_zeros(1, rows, length)
    return ("evoformer_attention", "", {"batch": 1, "rows": rows, "heads": heads, "n": length, "head_dim": dim}, named,
            {"scale": dim ** -0.5})


HAND_WRITTEN = {
    "causal": _attention("attention", "causal"),
    "alibi": _attention("attention_alibi", tensors={"slope": lambda inputs: inputs["slopes"].float()}),
    "softcap": _attention("attention_softcap", "causal", scalars={"cap": CAP}),
    "window": _attention("attention", "window", masked={"window": WINDOW}),
    "prefix": _attention("attention", "prefix", masked={"prefix": PREFIX}),
    "differential": _differential,
    "evoformer": _evoformer,
}  #: (operator, its option, sizes, tensors by name, scalars) of a variant's inputs


def hand_written(name, inputs, args):
    """(the kernel of a variant's definition in kernels/, a call of it), or None where there is none. --hand-time tunes it."""
    if name not in HAND_WRITTEN:
        return None
    op, option, sizes, tensors, scalars = HAND_WRITTEN[name](inputs)
    variant = ".".join(filter(None, (option, ELEMENTS[inputs["query"].dtype])))
    device = "host" if args.device == "cpu" else "cuda:0"
    if args.hand_time:
        nestor.tune(op, sizes, variant=variant, time=args.hand_time, target="host" if args.device == "cpu" else "cuda", db=args.db,
                    progress=False)
    try:
        kernel = nestor.Library(args.db).query(op, variant, sizes, device)
    except (nestor.NotFound, nestor.UserError):
        return None
    out = torch.empty_like(tensors["v"])
    placed = [out if tensor == "out" else tensors[tensor] for tensor in kernel.tensors]

    def call():
        kernel(*placed, sizes=sizes, **scalars)
        return out if out.dim() == 4 else out[0]
    return kernel, call


def _masked(mask):
    return lambda b, h, i, j: mask(i, j)


def _flex(mask, inputs, **options):
    """A call of FlexAttention, compiled."""
    compiled = torch.compile(flex_attention, dynamic=False)
    query, key, value = (inputs[name] for name in ("query", "key", "value"))
    block = create_block_mask(_masked(mask), None, None, query.shape[2], key.shape[2], device=query.device)
    return lambda: compiled(query, key, value, block_mask=block, **options)


def causal(i, j):
    return j <= i


def documents(i, j):
    return (i // DOCUMENT == j // DOCUMENT) & (j <= i)


def _sinks(inputs):
    query, key, value, sink = (inputs[name] for name in ("query", "key", "value", "sink"))
    block = create_block_mask(_masked(causal), None, None, query.shape[2], key.shape[2], device=query.device)

    @torch.compile(dynamic=False)
    def attend(query, key, value, sink):
        out, lse = flex_attention(query, key, value, block_mask=block, return_lse=True)
        return out * torch.sigmoid(lse - sink[:, None].float())[..., None].to(out.dtype)
    return lambda: attend(query, key, value, sink)


def _qk_norm(inputs):
    query, key, value = (inputs[name] for name in ("query", "key", "value"))
    block = create_block_mask(_masked(causal), None, None, query.shape[2], key.shape[2], device=query.device)

    def normed(x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    @torch.compile(dynamic=False)
    def attend(query, key, value):
        return flex_attention(normed(query), normed(key), value, block_mask=block)
    return lambda: attend(query, key, value)


FLEX = {
    "causal": lambda inputs: _flex(causal, inputs),
    "window": lambda inputs: _flex(lambda i, j: (j <= i) & (j + WINDOW > i), inputs),
    "prefix": lambda inputs: _flex(lambda i, j: (j <= i) | (j < PREFIX), inputs),
    "documents": lambda inputs: _flex(documents, inputs),
    "sinks": _sinks,
    "qk_norm": _qk_norm,
}  #: a compiled call of FlexAttention for a variant's inputs


def flex(name, inputs):
    """A call of FlexAttention that computes a variant, or None where it has none."""
    return FLEX[name](inputs) if name in FLEX else None


def softcap_score(score, b, h, i, j):
    return CAP * torch.tanh(score / CAP)


def _softcap(inputs):
    return _flex(causal, inputs, score_mod=softcap_score)


def _alibi(inputs):
    slopes = inputs["slopes"].float()
    return _flex(causal, inputs, score_mod=lambda score, b, h, i, j: score + slopes[h] * (j - i))


FLEX.update(softcap=_softcap, alibi=_alibi)
