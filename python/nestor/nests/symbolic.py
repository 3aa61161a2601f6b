"""What Python, numpy and PyTorch ask of numbers and sequences, and values of a nest cannot answer: the errors say what can be
written."""

from ..errors import UserError
from .other_names import instead_of

_OPERATORS = {"add", "subtract", "multiply", "divide", "true_divide", "floor_divide", "remainder", "power", "bitwise_and",
              "bitwise_or", "bitwise_xor", "left_shift", "right_shift"}
_COMPARISONS = {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"}


class Symbolic:
    """A value that has no number while the nest is written."""

    __slots__ = ()

    def __float__(self):
        raise UserError(f"{self!r} has no number while the nest is written: math.exp(x) is nestor.exp(x), and so are others; "
                        "float(x) is nestor.cast(nestor.f32, x)")

    def __int__(self):
        raise UserError(f"{self!r} has no number while the nest is written: int(x) is nestor.cast(nestor.i32, x)")

    def __index__(self):
        raise UserError(f"{self!r} has no number while the nest is written: in place of a loop over range(n), make an index, "
                        "(i,) = nestor.indices(i=n), and reduce over it, as in nestor.sum(x[i], over=i)")

    def __len__(self):
        raise UserError(f"{self!r} has no length: ranges are sizes, as in nestor.indices(i=rows)")

    def __iter__(self):
        raise UserError(f"{self!r} is one number, not a sequence: index its tensor")

    def __getitem__(self, index):
        raise UserError(f"{self!r} is one number already, for each of its own indices. To read it at others, give it a name: "
                        's = nestor.define("s", i, ...), and then s[k]')

    def __setitem__(self, index, value):
        raise UserError('x[i] = ... writes nothing: define a tensor, y = nestor.define("y", i, ...), or write to one of one\'s own, '
                        "y.write(i, i, ...)")

    def __matmul__(self, other):
        raise UserError(f"@ multiplies matrices, and a nest single elements: {instead_of('matmul')}")

    __rmatmul__ = __matmul__

    def __divmod__(self, other):
        raise UserError("divmod(x, y) is x // y and x % y, of integers")

    __rdivmod__ = __divmod__

    def __trunc__(self):
        raise UserError(f"{self!r} has no number while the nest is written: math.trunc(x) is nestor.cast(nestor.i32, x)")

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        name = ufunc.__name__
        if method != "__call__" or options or name not in _OPERATORS | _COMPARISONS:
            raise UserError(f"numpy.{name} takes numbers, not values of a nest: {instead_of(name)}")
        import numpy

        def boxed(value):
            box = numpy.empty((), object)
            box[()] = value
            return box

        objects = [boxed(each) if isinstance(each, Symbolic) else each for each in inputs]
        return ufunc(*objects, dtype=object) if name in _COMPARISONS else ufunc(*objects)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "function")
        raise UserError(f"torch.{name} takes tensors, not values of a nest: {instead_of(name)}; a constant in a tensor is "
                        "float(tensor)")


class Valued(Symbolic):
    """What stands for one number: its `value` takes part in arithmetic and comparisons, but for ==, which asks for the same
    object."""

    def __bool__(self):
        return True  # an object like others, although it has no length


def forward(owner, *names):
    """Gives a class these operators, those of its `value`."""
    for name in names:

        def method(self, *others, name=f"__{name}__"):
            return getattr(self.value, name)(*others)

        method.__name__ = f"__{name}__"
        setattr(owner, f"__{name}__", method)


forward(Valued, *(f"{side}{name}" for side in ("", "r")
                  for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
                               "rshift")),
        "neg", "pos", "abs", "invert", "lt", "le", "gt", "ge", "round", "floor", "ceil")
