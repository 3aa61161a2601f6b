"""From a graph of ATen to one that calls nestor::region: regions found, chosen, and put in the place of their nodes."""

import collections
import time
import traceback

import torch

from ...errors import UserError
from ..graph_capture import hints_of
from ..importer.extents import Symbols
from ..importer.graph import multiplications_of, mutates, values_of
from ..importer.regions import partition
from ..importer.table import name_of
from .choice import MATRIX_PRODUCTS, Choice, choose, is_plain_product, products_of
from .description import Described
from .operands import composed_operands
from .region_op import key_of, say_once
from .report import RegionReport, Report, ops_of, sources_of
from .replacement import replace, results_of
from .subgraph import size_value

_PRODUCT_ALONE = "products of matrices are PyTorch's"
_MULTIPLICATIONS = 200  # on tensor cores, in the time in which an element comes from memory
_OPERAND = "an operand of a product that is made of several tensors is put into memory first"


class Candidate:
    """A region of a graph with what was decided about it. described: None where it cannot be said as text; key: what its call
    is told; results: what the call gives, as tensors without data."""

    def __init__(self, region, described, choice, key=None, results=()):
        self.region, self.described, self.choice, self.key, self.results = region, described, choice, key, results


class Rewriting:
    """What becomes of one graph. tune(candidates): tunes and races what they wait for; None: nothing is tuned now."""

    def __init__(self, graph, options, tune=None):
        self.graph, self.options, self._tune = graph, options, tune
        self.order = {node: number for number, node in enumerate(graph.nodes)}
        self._writes = [place for node, place in self.order.items() if node.op == "call_function" and mutates(node)]
        self.hints = hints_of(graph)
        self._symbols = Symbols(self.hints)
        self.device = _device_of(graph)
        self.candidates, self.left, self.tuning_seconds = [], {}, 0.0
        self.pending = {}  #: candidates, by what makes them distinct, that tuning or a race may still change
        self._start = time.perf_counter()

    def choose(self):
        """Finds the regions and decides about each. Regions whose products lose are looked at again without these."""
        if self.device is None:
            return
        excluded, products = {}, products_of(self.options, self.device)
        if products == "none":
            excluded = self._products(self.graph.nodes)
        while True:
            found = partition(self.graph, self.hints, "memory", excluded)
            apart = {node: _OPERAND for region in found.regions for node in composed_operands(region)}
            if products == "fused":
                apart.update(self._products(node for region in found.regions if is_plain_product(region) for node in region.nodes))
            if apart:
                excluded = {**excluded, **apart}
                continue
            self.left = found.left
            read = {port.node for region in found.regions for port in region.inputs}
            self.candidates = [self._candidate(region, read) for region in found.regions]
            self._settle()
            lost = self._products(node for each in self.candidates if not each.choice.taken for node in each.region.nodes)
            if not lost:
                return
            excluded = {**excluded, **lost}

    def _products(self, nodes):
        return {node: _PRODUCT_ALONE for node in nodes if name_of(node.target) in MATRIX_PRODUCTS}

    def _candidate(self, region, read):
        try:
            described = Described(region, self.hints, self.order, read)
            first, last = min(map(self.order.get, region.nodes)), max(map(self.order.get, region.nodes))
            if any(first < place < last for place in self._writes):
                raise UserError("something is written between its first and its last op")
            key = key_of(described.description, self.options.db, self.options.verify == "first")
            return Candidate(region, described, None, key, results_of(self.graph, described, key))
        except UserError as error:
            return Candidate(region, None, Choice(False, str(error)))
        except Exception as error:  # noqa: BLE001  a bug of ours costs this region, and no other
            say_once(("describe", repr(error)), f"PyTorch keeps a region that could not be described, which is a bug: {error!r}\n"
                                                f"{traceback.format_exc()}")
            return Candidate(region, None, Choice(False, f"describing it failed: {error!r}"))

    def _settle(self):
        """Decides about all candidates; equal ones at once."""
        self._decide()
        waiting = self._waiting()
        if waiting and self._tune is not None:
            start = time.perf_counter()
            self._tune(self._in_order(waiting))
            self.tuning_seconds += time.perf_counter() - start
            self._decide()
            waiting = self._waiting()
        self.pending.update(waiting)

    def _decide(self):
        known = {}
        for each in self.candidates:
            if each.described is not None:
                key = each.described.description, tuple(each.described.hints)
                text = (key[0].text(), key[1])
                if text not in known:
                    known[text] = choose(each.described, self.options, self.device)
                each.choice = known[text]

    def _waiting(self):
        """{what makes a region distinct: a candidate} of those that tuning or a race may change."""
        found = {}
        for each in self.candidates:
            if each.choice.waits:
                found.setdefault(_identity(each), each)
        return found

    def promising(self):
        """Candidates that tuning or a race may still change, in the order in which they are worth it."""
        return self._in_order(self.pending)

    def _in_order(self, waiting):
        """Candidates, those first that take most of the graph's time."""
        count = collections.Counter(_identity(each) for each in self.candidates if each.described is not None)
        return sorted(waiting.values(), key=lambda each: -count[_identity(each)] * self._least_time(each))

    def _least_time(self, candidate):
        """What a region takes at least, in units of the time in which an element comes from memory."""
        multiplications = sum(multiplications_of(node, self._symbols) for node in candidate.region.nodes)
        return max(_elements(candidate.described), multiplications / _MULTIPLICATIONS)

    def apply(self):
        """Puts calls in the place of the regions that are taken."""
        placed, dead = {}, set()
        for each in self.candidates:
            if each.choice.taken:
                replace(self.graph, each, placed)
                dead.update(each.region.nodes)  # of which attention passes for impure, since it may draw random numbers
        for node in reversed(self.graph.nodes):
            if not node.users and (node in dead or not (node.is_impure() or mutates(node))):
                self.graph.erase_node(node)
        self.graph.lint()

    def report(self):
        """The Report of this graph."""
        regions = [_report(each) for each in self.candidates]
        left = dict.fromkeys((getattr(node.target, "_opname", str(node.target)), why) for node, why in self.left.items())
        return Report(regions, list(left), len(self.pending), time.perf_counter() - self._start - self.tuning_seconds)


def _identity(candidate):
    """What makes a region distinct: its nest and sizes."""
    values = candidate.described.description.nest_values(candidate.described.hints)
    return candidate.described.nest.op, tuple(sorted(values.items()))


def _report(candidate):
    region, choice = candidate.region, candidate.choice
    nest = candidate.described.nest if candidate.described else region.nest
    raced = choice.race or {}
    sizes = candidate.described.description.nest_values(candidate.described.hints) if candidate.described else {}
    return RegionReport(nest.op, nest.variant, ops_of(region.nodes), sources_of(region.nodes), sizes, choice.taken, choice.why,
                        repr(choice.kernel) if choice.kernel is not None else None, raced.get("kernel_us"),
                        raced.get("inductor_us"), candidate.key if choice.taken else None)


def _device_of(graph):
    """The device that kernels of a graph run on; None where it has no tensors on a CPU or GPU."""
    devices = {value.device for node in graph.nodes for value in values_of(node) or () if isinstance(value, torch.Tensor)}
    gpus = sorted((device for device in devices if device.type == "cuda"), key=str)
    return gpus[0] if gpus else next((device for device in devices if device.type == "cpu"), None)


def _elements(described):
    sizes = described.description.named_sizes(described.hints)
    total = 0
    for argument in (*described.description.inputs, *described.description.outputs):
        count = 1
        for extent in argument.shape:
            count *= size_value(extent, sizes)
        total += count
    return total
