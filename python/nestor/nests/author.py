"""@nestor.nest: a nest as a Python function of its tensors and scalars."""

import inspect
import warnings

from ..errors import UserError
from .assemble import assemble
from .definitions import Scalar, Tensor, TensorType, condition_of, free_indices
from .model import Nest
from .overflow import index_products_that_wrap


def nest(function=None, *, op=None, variant=None, tolerance=None, require=()):
    """Makes a Nest of a function whose arguments are tensors and scalars, and whose results are outputs.

        @nestor.nest
        def rms_norm(x: nestor.f32[rows, width], weight: nestor.f32[width], eps=1e-6):
            mean = nestor.define("mean", i, nestor.sum(x[i, k] * x[i, k], over=k) / width)
            return nestor.define("out", (i, c), x[i, c] * nestor.rsqrt(mean[i] + eps) * weight[c])

    Arguments with a type such as nestor.f32[rows, width] are tensors, those with a number or a nestor.Scalar as their default
    are scalars. op: its name, the function's if None. variant: of its types and options; None: the type of its first tensor.
    require: conditions on sizes for which the definition holds (keys >= queries). tolerance: what rounding may be granted
    (docs/results.md; None: by the coarsest type of arguments and outputs, 1e-4 of f32, 2e-3 of f16, 1.6e-2 of bf16), where an
    output has none of its own (nestor.define). The function runs once, now. Raises UserError for what no nest can say; warns of
    products of indices that wrap at the default sizes.
    """
    if function is None:
        return lambda decorated: _nest(decorated, op, variant, tolerance, require)
    return _nest(function, op, variant, tolerance, require)


def _nest(function, op, variant, tolerance, require):
    name = getattr(function, "__name__", op)
    parameters = _parameters(function, name)
    arguments = [_argument(function, name, parameter) for parameter in parameters]
    by_name = {each.name: argument for each, argument in zip(parameters, arguments) if each.kind is each.KEYWORD_ONLY}
    results = function(*arguments[:len(arguments) - len(by_name)], **by_name)
    outputs = list(results) if isinstance(results, (tuple, list)) else [results]
    tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
    for place, output in enumerate(outputs):
        if not isinstance(output, Tensor) or not output.updates:
            raise UserError(f"{name}: {output!r} is no output: return what nestor.define made")
        if any(output is other for other in outputs[:place]):
            raise UserError(f"{name}: {output.name} is returned twice: return each output once, and define a copy where another is meant")
    if not outputs:
        raise UserError(f"{name} returns no output: return what nestor.define made")
    for wrapping in index_products_that_wrap(outputs):
        warnings.warn(f"{name}: {wrapping}", stacklevel=3)
    kind = (tensors or outputs)[0].type
    conditions = [condition_of(condition) for condition in (require if isinstance(require, (tuple, list)) else (require, ))]
    for index in (index for condition in conditions for index in free_indices(condition.names())):
        raise UserError(f"{name}: require takes conditions on sizes, and {index.name} is an index")
    return assemble(
        name if op is None else op,
        kind if variant is None else variant,
        outputs,
        arguments=tensors,
        tolerance=tolerance,
        require=conditions)


def _parameters(function, name):
    """The parameters of a function, which are the arguments of its nest."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise UserError(f"nestor.nest takes a Python function of tensors and scalars, not a {type(function).__name__}") from None
    if name is None:
        raise UserError(f"a {type(function).__name__} has no name for its nest: give one as op=")
    for each in found:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            stars = "*" if each.kind is each.VAR_POSITIONAL else "**"
            raise UserError(f"{name}: {stars}{each.name} stands for any number of arguments, and a nest has its own: name each of them")
    return found


def _argument(function, of, parameter):
    """The Tensor or Scalar that stands for a parameter. of: the function's name."""
    kind, name = _annotation(function, parameter), parameter.name
    if isinstance(kind, TensorType):
        tensor = Tensor(name, kind.type, kind.shape)
        tensor.is_argument = True
        return tensor
    default = parameter.default
    if isinstance(kind, Scalar) or isinstance(default, Scalar):
        given = kind if isinstance(kind, Scalar) else default
        return Scalar(given.default, min=given.min, max=given.max, type=given.type, name=name).value
    if isinstance(default, (int, float)) and not isinstance(default, bool):
        return Scalar(default, name=name).value
    raise UserError(
        f"{of}: argument {name} is neither a tensor (write {name}: nestor.f32[rows, width]) nor a scalar "
        f"(give it a number as its default)")


def _annotation(function, parameter):
    """What stands behind the colon, evaluated if it is text (`from __future__ import annotations`)."""
    found = parameter.annotation
    if not isinstance(found, str):
        return found
    names = inspect.getclosurevars(function)
    return eval(found, {**names.builtins, **function.__globals__}, dict(names.nonlocals))  # the author's own text


__all__ = ["Nest", "nest"]
