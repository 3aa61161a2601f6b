"""What became of the regions of compiled graphs."""

import dataclasses
from typing import List, Optional, Tuple

from ..explanation import op_name, source_of
from .region_op import region_of


@dataclasses.dataclass
class RegionReport:
    """A region: its nest's name, the ops, their source lines as (file, line, text); kernel: what serves it, or None; why: the
    reason; kernel_us, inductor_us: what the race took, microseconds, where one is known; taken: whether the kernel runs."""
    op: str
    variant: str
    ops: Tuple[str, ...]
    sources: Tuple[Tuple[str, int, str], ...]
    sizes: dict
    taken: bool
    why: str
    kernel: Optional[str] = None
    kernel_us: Optional[float] = None
    inductor_us: Optional[float] = None
    key: Optional[str] = dataclasses.field(default=None, repr=False)

    @property
    def refused(self):
        """Why its kernel is not used any more since its first call; None where it is."""
        return region_of(self.key).refused if self.key else None

    @property
    def gain(self):
        """Times faster than Inductor's code; None where no race is known."""
        return self.inductor_us / self.kernel_us if self.kernel_us and self.inductor_us else None

    def __str__(self):
        raced = f", {self.kernel_us:.1f} us, Inductor {self.inductor_us:.1f} us ({self.gain:.2f}x)" if self.gain else ""
        lines = [f"{'nestor  ' if self.taken else 'Inductor'} {self.op} ({self.variant}){raced}: {self.why}",
                 f"  fuses   {', '.join(self.ops)}"]
        lines += [f"  kernel  {self.kernel}"] if self.kernel else []
        lines += [f"  PyTorch computes it now: {self.refused}"] if self.refused else []
        lines += [f"  from    {file}:{line}  {text}" for file, line, text in self.sources]
        return "\n".join(lines)


@dataclasses.dataclass
class Report:
    """A compiled graph. left: (op, why) of nodes that belong to no region, each pair once; pending: how many regions still wait
    for tuning; seconds: what finding and choosing the regions took, without tuning."""
    regions: List[RegionReport]
    left: List[Tuple[str, str]]
    pending: int = 0
    seconds: float = 0.0

    @property
    def taken(self):
        return [region for region in self.regions if region.taken]

    def __str__(self):
        lines = [f"{len(self.taken)} of {len(self.regions)} regions run kernels of Nestor ({self.seconds:.2f} s to choose)"]
        lines += [str(region) for region in self.regions]
        lines += ["left to PyTorch", *(f"  {op}: {why}" for op, why in self.left)] if self.left else []
        return "\n".join(lines)

    __repr__ = __str__


def sources_of(nodes):
    """The distinct source lines of nodes."""
    return tuple(dict.fromkeys(source for source in map(source_of, nodes) if source))


def ops_of(nodes):
    return tuple(op_name(node) for node in nodes if op_name(node) != "getitem")
