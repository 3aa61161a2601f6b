"""Products of matrices as problems: squares, the layers of BERT and Llama 3, with many rows and with few."""

import typing

DTYPES = ("f16", "bf16")
# Layers: name: (n, k) of the weights.
LAYERS = {
    "bert-base qkv": (2304, 768), "bert-base out": (768, 768), "bert-base up": (3072, 768), "bert-base down": (768, 3072),
    "bert-large qkv": (3072, 1024), "bert-large out": (1024, 1024), "bert-large up": (4096, 1024), "bert-large down": (1024, 4096),
    "llama-8b qkv": (6144, 4096), "llama-8b out": (4096, 4096), "llama-8b up": (14336, 4096), "llama-8b down": (4096, 14336),
    "llama-70b qkv": (10240, 8192), "llama-70b out": (8192, 8192), "llama-70b up": (28672, 8192), "llama-70b down": (8192, 28672),
}
ROWS = (16, 512, 4096, 16384)
# name: (m, n, k)
SHAPES = {**{f"square {size}": (size, size, size) for size in (1024, 2048, 4096, 8192, 16384)},
          **{f"{name} {rows}": (rows, *weights) for name, weights in LAYERS.items() for rows in ROWS}}
# As `kernels/matmul.cc` has them: "" is a[m, k] b[k, n]; with `at` and `bt` that operand is stored the other way round.
ORDERS = ("", "bt", "at", "at.bt")
OPS = ("matmul", "matmul_bias_gelu", "matmul_bias_residual", "swiglu")


class Problem(typing.NamedTuple):
    op: str
    order: str
    dtype: str
    shape: str

    @property
    def sizes(self):
        return dict(zip("mnk", SHAPES[self.shape]))

    @property
    def variant(self):
        return f"{self.order}.{self.dtype}" if self.order else self.dtype

    @property
    def name(self):
        return f"{self.op} {self.variant} {self.shape}"

    @property
    def flop(self):
        m, n, k = SHAPES[self.shape]
        return 2 * m * n * k * (2 if self.op == "swiglu" else 1)


def add_flags(parser):
    parser.add_argument("--db", help="tuning database (default: the usual one)")
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--orders", default="", help="how operands of matmul are stored: an empty word, bt, at or at.bt, separated by commas")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="names, or how they begin, separated by commas")
    parser.add_argument("--time-budget", type=float, default=3600, help="seconds for all problems")


def problems(args):
    shapes = [shape for shape in SHAPES if any(shape == word or shape.startswith(word + " ") for word in args.shapes.split(","))]
    return [Problem(op, order, dtype, shape) for op in args.ops.split(",") for order in args.orders.split(",")
            for dtype in args.dtypes.split(",") for shape in shapes if op == "matmul" or "at" not in order.split(".")]
