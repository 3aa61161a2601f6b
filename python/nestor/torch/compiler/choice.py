"""Which regions run kernels: legality is the importer's, cost is measured."""

import dataclasses
from typing import Any, Optional

from ...errors import DeviceError, NotFound, UserError
from ..importer.graph import is_product, kind_of
from ..importer.table import name_of
from . import races
from .region_op import key_of, region_of

MATRIX_PRODUCTS = ("aten.mm.default", "aten.addmm.default", "aten.mv.default", "aten.addmv.default", "aten.dot.default")


@dataclasses.dataclass
class Choice:
    """taken: whether a region's kernel runs; why: the reason; waits: whether tuning or a race may change that."""
    taken: bool
    why: str
    waits: bool = False
    kernel: Any = None
    race: Optional[dict] = None


def has_matrix_product(region):
    """Whether a region has a product with a matrix of weights, which is cuBLAS's unless a race says otherwise."""
    return any(name_of(node.target) in MATRIX_PRODUCTS for node in region.nodes)


def products_in(region):
    """How many products a region has whose operands both have batch dims; attention has two."""
    return sum(2 if kind_of(node) == "definition" else 1 for node in region.nodes
               if is_product(node) and name_of(node.target) not in MATRIX_PRODUCTS)


def is_worth(region):
    """Whether a region is more than a product of its own."""
    return products_in(region) > 1 or has_matrix_product(region) or any(
        kind_of(node) in ("reduction", "definition") for node in region.nodes)


def choose(described, options, device):
    """The Choice for a region on a device of PyTorch."""
    region, told = described.region, described.description
    if not is_worth(region):
        return Choice(False, "a product alone is PyTorch's")
    found = region_of(key_of(told, options.db, False))
    sizes = told.nest_values(described.hints)
    race = races.find(options.db, told.op, told.variant, sizes, races.device_name(device))
    elsewhere = options.tune != "off" and race is not None and race["sizes"] != sizes  # it may win or lose at these sizes
    try:
        kernel = found.kernel(described.hints, device)
    except (NotFound, UserError, DeviceError) as error:
        failed = race is not None and not elsewhere and race["failed"]
        return Choice(False, failed or f"no kernel: {error}", waits=not failed, race=race)
    if race is None:
        if products_in(region) > 1:
            return Choice(True, "no race with Inductor is known; a chain of products is taken without", True, kernel)
        return Choice(False, 'it has a kernel, but no race with Inductor is known: tune="now" runs it', True, kernel)
    if race["failed"]:
        return Choice(False, race["failed"], elsewhere, kernel, race)
    if race["inductor_us"] is None:
        return Choice(True, race.get("inductor_failed") or races.NO_MEMORY, elsewhere, kernel, race)
    gain = race["inductor_us"] / race["kernel_us"]
    if gain >= options.min_gain:
        return Choice(True, f"{gain:.2f}x as fast as Inductor's own code", elsewhere, kernel, race)
    why = f"Inductor's own code is {'faster' if gain < 1 else 'as fast'} ({gain:.2f}x; {options.min_gain:g} is asked for)"
    return Choice(False, why, elsewhere, kernel, race)


def is_plain_product(region):
    """Whether a region is one product with a matrix of weights, and at most its bias: what cuBLAS does in one kernel."""
    own = [node for node in region.nodes if kind_of(node) != "view"]
    return len(own) == 1 and has_matrix_product(region)


def products_of(options, device):
    """Which products with weights take part: "all", "fused" (those with more around them than a bias) or "none"."""
    if options.products is not None:
        return "all" if options.products else "none"
    won = _product_has_won(options, device)
    if device.type == "cuda":
        return "fused" if won or options.tune != "off" else "none"
    return "all" if won else "none"


def _product_has_won(options, device):
    """Whether a product with weights has won a race on this device."""
    name = races.device_name(device)
    return any(each.get("products") and each["device"] == name and each["kernel_us"] and each["inductor_us"]
               and each["inductor_us"] >= options.min_gain * each["kernel_us"] for each in races.known(options.db))
