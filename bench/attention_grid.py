"""The grid of attention problems: 16,384 rows of 2,048 elements in all, cut into sequences and heads in every usual way."""

TOKENS = 16384
MODEL = 2048
HEAD_DIMS = (64, 128, 256)
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
MASKS = ("full", "causal")
DTYPES = ("f16", "bf16")


def add_flags(parser):
    parser.add_argument("--db", help="tuning database (default: the usual one)")
    parser.add_argument("--masks", default=",".join(MASKS))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--head-dims", default=",".join(map(str, HEAD_DIMS)))
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--time-budget", type=float, default=3600, help="seconds for all problems")


def variant_of(mask, dtype):
    return dtype if mask == "full" else f"{mask}.{dtype}"


def sizes_of(length, head_dim):
    return {"batch": TOKENS // length, "heads": MODEL // head_dim, "queries": length, "keys": length, "head_dim": head_dim}


def cells(args):
    """(mask, element type, head_dim, length) of every problem asked for."""
    return [(mask, dtype, int(head_dim), int(length))
            for dtype in args.dtypes.split(",") for head_dim in args.head_dims.split(",")
            for mask in args.masks.split(",") for length in args.lengths.split(",")]


def name_of(cell):
    mask, dtype, head_dim, length = cell
    return f"attention {mask} {dtype} D{head_dim} S{length}"


def flop(cell):
    """Floating-point operations of both products; half of them under a causal mask."""
    mask, _, head_dim, length = cell
    sizes = sizes_of(length, head_dim)
    return 4 * sizes["batch"] * sizes["heads"] * length * length * head_dim * (0.5 if mask == "causal" else 1)
