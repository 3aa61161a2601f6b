"""The grid of issue-sized problems that the norms are tuned and measured at, and the flags that choose from it."""

WIDTHS = [256, 768, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144]
ROWS = ["256MiB", "4096"]
DTYPES = ["bf16", "f16", "f32"]
FORWARD = ["layernorm", "rmsnorm", "softmax"]
BACKWARD = ["layernorm_backward", "rmsnorm_backward", "softmax_backward", "log_softmax_backward"]
RESIDUAL = ["bias_residual_layernorm", "bias_dropout_residual_layernorm", "residual_rmsnorm"]
OTHERS = RESIDUAL + ["log_softmax", "bias_gelu"]
GROUPS = {"forward": FORWARD, "backward": BACKWARD, "residual": RESIDUAL, "others": OTHERS, "all": FORWARD + OTHERS + BACKWARD}
ELEMENT_BYTES = {"f32": 4, "f16": 2, "bf16": 2}


def add_flags(parser):
    parser.add_argument("--ops", default="forward", help=f"operators or groups of them ({', '.join(GROUPS)}); default: forward")
    parser.add_argument("--options", default="", help="options of the variants, e.g. stats or f32weight (default: none)")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)), help="columns; all of the issue's by default")
    parser.add_argument("--rows", default=",".join(ROWS), help="rows, or the size of the input that chooses them, e.g. 256MiB")
    parser.add_argument("--time-budget", type=float, default=1e9, help="seconds after which no further problem is begun")
    parser.add_argument("--db", help="tuning database (default: Nestor's own default)")


def rows_of(text, width, dtype):
    """'4096' is 4096 rows; '256MiB' as many as fill that much with rows of `width`."""
    if not text.endswith("MiB"):
        return int(text)
    return max(1, int(text[:-3]) * 2**20 // (width * ELEMENT_BYTES[dtype]))


def cells(args):
    """(op, variant, dtype, rows, width) of every problem that the flags choose, each once."""
    ops = [op for name in args.ops.split(",") for op in GROUPS.get(name, [name])]
    chosen = [(op, f"{args.options}.{dtype}".lstrip("."), dtype, rows_of(rows, int(width), dtype), int(width))
              for op in ops for dtype in args.dtypes.split(",") for rows in args.rows.split(",")
              for width in args.widths.split(",")]
    return list(dict.fromkeys(chosen))
