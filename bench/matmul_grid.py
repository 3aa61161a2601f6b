"""Products of matrices as problems: squares, and layers of transformers with many and with few rows."""

import typing

DTYPES = ("f16", "bf16")
# name: (m, n, k)
SHAPES = {
    "square 2048": (2048, 2048, 2048),
    "square 4096": (4096, 4096, 4096),
    "square 8192": (8192, 8192, 8192),
    "up 16384 x 4096": (16384, 16384, 4096),
    "down 16384 x 16384": (16384, 4096, 16384),
    "narrow 256 x 4096": (256, 4096, 4096),
}
OPS = ("matmul", "matmul_bias_gelu")


class Problem(typing.NamedTuple):
    op: str
    dtype: str
    shape: str

    @property
    def sizes(self):
        return dict(zip("mnk", SHAPES[self.shape]))

    @property
    def name(self):
        return f"{self.op} {self.dtype} {self.shape}"

    @property
    def flop(self):
        m, n, k = SHAPES[self.shape]
        return 2 * m * n * k


def add_flags(parser):
    parser.add_argument("--db", help="tuning database (default: the usual one)")
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--shapes", default=",".join(SHAPES), help="names, separated by commas")
    parser.add_argument("--time-budget", type=float, default=3600, help="seconds for all problems")


def problems(args):
    return [Problem(op, dtype, shape) for op in args.ops.split(",") for dtype in args.dtypes.split(",")
            for shape in args.shapes.split(",")]
