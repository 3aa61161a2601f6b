"""One graph of a forward's two: what differs between training and evaluation becomes a choice by `self.training`."""

from torch import fx

from ...errors import UserError
from .graphs import is_compute


class _Mode:
    """Stands for self.training among the inputs of a match."""

    def __repr__(self):
        return "training"


MODE = _Mode()


def chosen(training, in_training, in_evaluation):
    """in_training or in_evaluation, by the mode: in generated code where a constant depends on it, and in replacements."""
    if isinstance(training, fx.Proxy):
        return training.tracer.create_proxy("call_function", chosen, (training, in_training, in_evaluation), {})
    return in_training if training else in_evaluation


def expect_mode(training, expected, name):
    """What generated code calls where a forward was traced for one mode alone."""
    if training is not expected:
        words = {True: "training", False: "evaluation"}
        raise UserError(f"{name} was traced for {words[expected]} alone, and is in {words[training]} mode")


class _Differ(Exception):
    pass


class _Choice:

    def __init__(self, training, evaluation):
        self.values = training, evaluation


def joined_modes(graphs, name):
    """The one graph of {"train": graph, "eval": graph}, or of one of them with a check. Raises UserError where they do other
    work, not only with other constants."""
    if len(graphs) == 1:
        (mode, graph), = graphs.items()
        _check(graph, mode == "train", name)
        return graph
    first, second = (list(graphs[mode].nodes) for mode in ("train", "eval"))
    pairs = dict(zip(second, first))
    try:
        if len(first) != len(second):
            raise _Differ
        arguments = [_joined_node(one, other, pairs) for one, other in zip(first, second)]
    except _Differ:
        raise UserError(f"the forward of {name} does other work in training than in evaluation: give mode=\"train\" or "
                        "mode=\"eval\"") from None
    graph = graphs["train"]
    for node, (args, kwargs) in zip(first, arguments):
        if _has_choice((args, kwargs)):
            flag = mode_flag(graph)
            with graph.inserting_before(node):
                node.args, node.kwargs = _placed(graph, args, flag), _placed(graph, kwargs, flag)
    return graph


def _check(graph, training, name):
    flag = mode_flag(graph)
    with graph.inserting_after(flag):
        node = graph.call_function(expect_mode, (flag, training, name))
        node.meta["check"] = True


def mode_flag(graph):
    """A node that reads self.training, at the start."""
    found = next((node for node in graph.nodes if node.op == "get_attr" and node.target == "training"), None)
    if found is not None:
        return found
    start = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(start):
        return graph.create_node("get_attr", "training", name="training")


def _joined_node(one, other, pairs):
    if one.op != other.op or one.target != other.target:
        raise _Differ
    return _joined(one.args, other.args, pairs), _joined(one.kwargs, other.kwargs, pairs)


def _joined(one, other, pairs):
    if isinstance(other, fx.Node):
        if pairs.get(other) is not one:
            raise _Differ
        return one
    if isinstance(one, fx.Node) or type(one) is not type(other):
        raise _Differ
    if isinstance(one, (list, tuple)):
        if len(one) != len(other):
            raise _Differ
        return type(one)(*(_joined(*each, pairs) for each in zip(one, other))) if hasattr(one, "_fields") else list(
            _joined(*each, pairs)
            for each in zip(one, other)) if isinstance(one, list) else tuple(_joined(*each, pairs) for each in zip(one, other))
    if isinstance(one, dict):
        if list(one) != list(other):
            raise _Differ
        return {key: _joined(one[key], other[key], pairs) for key in one}
    if isinstance(one, slice):
        return slice(*(_joined(*each, pairs)
                       for each in ((one.start, other.start), (one.stop, other.stop), (one.step, other.step))))
    return one if one == other or one is other else _Choice(one, other)


def _has_choice(value):
    if isinstance(value, _Choice):
        return True
    if isinstance(value, (list, tuple)):
        return any(map(_has_choice, value))
    return any(map(_has_choice, value.values())) if isinstance(value, dict) else False


def _placed(graph, value, flag):
    """The argument with nodes for its choices, inserted at the graph's place."""
    if isinstance(value, _Choice):
        return flag if value.values == (True, False) else graph.call_function(chosen, (flag, *value.values))
    if isinstance(value, (list, tuple)):
        return type(value)(_placed(graph, each, flag) for each in value)
    return {key: _placed(graph, each, flag) for key, each in value.items()} if isinstance(value, dict) else value


def is_bookkeeping(node):
    """Whether a node only checks or chooses, and computes nothing of the model's."""
    return is_compute(node) and (node.target in (chosen, expect_mode) or bool(node.meta.get("check")))
