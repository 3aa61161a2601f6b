"""What the tests of the importer share: graphs run in float64, and regions' nests evaluated on the same values."""

import math

import numpy
import torch
from torch.export import decomp_utils, exported_program
from torch.fx.experimental.proxy_tensor import make_fx

from nestor.nests.evaluate import evaluate
from nestor.nests.generalise import generalise
from nestor.torch.compiler.subgraph import size_value
from nestor.torch.importer.regions import partition

_composite_ops = {}


def _listed_once(collect):
    """torch.export goes through all operators of every namespace to find the composite ones, four times for each model: half of what
    it takes for a small one. They are the same while the dispatcher knows the same ones."""
    def listed():
        key = tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
        if _composite_ops.get("key") != key:
            _composite_ops.update(key=key, found=collect())
        return _composite_ops["found"]

    return listed


for _module in (exported_program, decomp_utils):
    _module._collect_all_valid_cia_ops = _listed_once(_module._collect_all_valid_cia_ops)

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def wide(found):
    """Tensors of floats as float64, and types of floats likewise, wherever they are."""
    if isinstance(found, torch.Tensor):
        return found.double() if found.dtype in _FLOATS else found
    if isinstance(found, (list, tuple)):
        return type(found)(wide(each) for each in found)
    return torch.float64 if found in _FLOATS else found


class Wide(torch.fx.Interpreter):
    """Runs a graph in float64 and keeps what every node gave."""

    def __init__(self, module, replaced=None):
        super().__init__(module, garbage_collect_values=False)
        self.replaced = replaced or {}

    def run_node(self, node):
        return wide(super().run_node(node))

    def call_function(self, target, args, kwargs):
        args, kwargs = wide(args), {key: wide(value) for key, value in kwargs.items()}
        return self.replaced.get(str(target), target)(*args, **kwargs)


def symbols_of(graph, inputs):
    """The values of a graph's symbols, from its inputs."""
    values = {}
    for node, tensor in zip((node for node in graph.nodes if node.op == "placeholder"), inputs):
        value = node.meta.get("val")
        for extent, actual in zip(getattr(value, "shape", (value,)), getattr(tensor, "shape", (tensor,))):
            if isinstance(extent, torch.SymInt) and extent.node.expr.is_Symbol:
                values[str(extent.node.expr)] = actual
    return values


def as_dense(nest):
    """What generalise is told of the arguments of a nest that are all dense."""
    return {tensor.name: [True] * (len(tensor.shape) - 1) for tensor in nest.arguments}


def check_regions(regions, values, symbols, tolerance=2e-6):
    """Compares each region's outputs with what the graph's nodes gave: float64, or int32. Both as the nest is, and with sizes in
    place of constant extents."""
    for region in regions:
        known = {size.name: symbols[size.name] for size in region.nest.sizes}
        general = generalise(region.nest, as_dense(region.nest))
        named = {size.name: size_value(general.values.get(size.name, size.name), known) for size in general.nest.sizes}
        for nest, sizes in ((region.nest, known), (general.nest, named)):

            def seen(port):
                shape, value = port.shape(symbols), values[port.node].detach()
                value = value.reshape(1).view(torch.int32) if port.words else value
                return value.reshape(general.view(port.name, shape) if nest is general.nest else shape).numpy()

            found = evaluate(nest, {port.name: seen(port) for port in region.inputs}, sizes)
            for port in region.outputs:
                numpy.testing.assert_allclose(found[port.name], seen(port), rtol=tolerance, atol=tolerance, equal_nan=True,
                                              err_msg=f"{port.node}: {port.node.target}\n{nest.json()[:3000]}")


def trace(function, inputs, symbolic=False, decompositions=None, pre_dispatch=False):
    """A graph of ATen ops; pre_dispatch: of composite ones too."""
    return make_fx(function, tracing_mode="symbolic" if symbolic else "fake", decomposition_table=decompositions,
                   pre_dispatch=pre_dispatch)(*inputs)


def check_module(module, inputs, tolerance=2e-6, replaced=None, cut="memory"):
    """The Partition of a traced module, all of whose regions compute what the graph does."""
    found = partition(module.graph, cut=cut)
    run = Wide(module, replaced)
    run.run(*wide(tuple(inputs)))
    check_regions(found.regions, run.env, symbols_of(module.graph, inputs), tolerance)
    return found


def check_program(capture, inputs, tolerance=2e-6):
    """The same of an exported program."""
    program = capture.program
    values, waiting = [], list(inputs)
    for spec in program.graph_signature.input_specs:
        if spec.target in program.state_dict:
            values.append(program.state_dict[spec.target])
        elif spec.target in program.constants:
            values.append(program.constants[spec.target])
        else:
            values.append(waiting.pop(0))
    run = Wide(program.graph_module)
    with torch.no_grad():
        run.run(*wide(tuple(values)))
    check_regions(capture.regions, run.env, symbols_of(program.graph, values), tolerance)


def ops_of(regions):
    """Names of the ops that regions compute themselves."""
    return {str(node.target) for region in regions for node in region.nodes}


def random_function(source, count=14):
    """A function of three tensors of random ops on tensors of small extents, and the inputs."""
    b, s, h = source.choice((1, 2, 3)), source.choice((2, 3, 4)), source.choice((4, 6, 8))
    choices = [source.random() for _ in range(12 * count)]

    def function(x, y, z):
        draws = iter(choices)

        def pick(options):
            return options[int(next(draws) * len(options))]

        pool = [x, y, z]
        for _ in range(count):
            one, other = pick(pool), pick(pool)
            made = _random_op(pick, one, other)
            if made is not None and 0 < made.numel() <= 4000:
                pool.append(made)
        kept = pool[-3:]
        return [each.sum(-1) if each.dim() else each * 1.0 for each in kept] + kept[:1]

    torch.manual_seed(source.randrange(1 << 30))
    return function, (torch.randn(b, s, h), torch.randn(b, s, h), torch.randn(h))


def _random_op(pick, one, other):
    kind = pick(("view", "view", "pointwise", "pointwise", "reduction", "product", "mask", "cat"))
    last = one.shape[-1] if one.dim() else 1
    if kind == "view" and one.dim():
        dim = int(pick(range(one.dim())))
        return pick((lambda: one.transpose(dim, -1), lambda: one.unsqueeze(dim), lambda: one.flatten(),
                     lambda: one.reshape(-1, last), lambda: one.narrow(dim, one.shape[dim] // 2, 1), lambda: one.flip(dim),
                     lambda: one.select(dim, 0), lambda: one.reshape(*one.shape[:-1], 2, last // 2) if last % 2 == 0 else one,
                     lambda: one.unsqueeze(dim).expand(*one.shape[:dim], 3, *one.shape[dim:])))().contiguous()
    if kind == "pointwise":
        return pick((lambda: one * 0.5 + 1, lambda: torch.tanh(one), lambda: torch.relu(one), lambda: torch.exp(-one.abs()),
                     lambda: one + other if _broadcast(one, other) else one - 1, lambda: one * other
                     if _broadcast(one, other) else one, lambda: torch.maximum(one, other)
                     if _broadcast(one, other) else one.neg()))()
    if kind == "reduction" and one.dim():
        return pick(
            (lambda: one.sum(-1), lambda: one.mean(0, keepdim=True), lambda: one.amax(-1, keepdim=True),
             lambda: one.softmax(-1), lambda: torch.nn.functional.layer_norm(one, one.shape[-1:]), lambda: one.cumsum(-1)))()
    if kind == "product" and one.dim() >= 2 and other.dim() >= 2:
        a, b = one.reshape(-1, last), other.reshape(-1, other.shape[-1])
        return a @ b.T / math.sqrt(last) if a.shape[1] == b.shape[1] else a @ a.T / last
    if kind == "mask" and one.dim() >= 2:
        rows, columns = torch.arange(one.shape[-2])[:, None], torch.arange(last)[None]
        keep = pick((lambda: columns <= rows, lambda: (columns + rows) % 2 == 0, lambda: (rows - columns < 2) & (columns != 1)))()
        return torch.where(keep, one, pick((0.0, -1.0)))
    if kind == "cat" and one.dim() and one.shape[1:] == other.shape[1:] and one.dim() == other.dim():
        return torch.cat((one, other), 0)
    return None


def _broadcast(one, other):
    try:
        return torch.broadcast_shapes(one.shape, other.shape) is not None
    except RuntimeError:
        return False
