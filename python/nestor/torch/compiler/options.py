"""The options of backend="nestor" and nestor.torch.optimize."""

import dataclasses
import os
from typing import Any, Callable, Dict, Optional

from ...errors import UserError
from ..kernels import configured_path

TUNE = ("off", "background", "now")


@dataclasses.dataclass(frozen=True)
class Options:
    """tune: what happens where a region has no kernel, or no race against Inductor is known: "off": nothing, the database is
    only asked; "now": compiling waits for a process that tunes and races; "background": it does not wait, and compiled code is
    replaced when that process is done. budget_s: seconds for all regions of a graph; time_per_nest: seconds for each distinct
    nest. db: path of the database; None: nestor.torch.configure's, else the user's.
    verify: "first": a region's first results are compared with float64; "off". min_gain: how many times faster than Inductor's
    code a kernel has to be. products: whether products of matrices (linear layers) are tuned and raced too; None: on a GPU those
    with more around them than a bias, on the host where one has won a race. report: called with the Report of each graph when it
    is compiled.
    mode: of torch.compile. inductor: options of Inductor, passed on."""
    tune: str = "off"
    budget_s: float = 180.0
    time_per_nest: float = 20.0
    db: Optional[str] = None
    verify: str = "first"
    min_gain: float = 1.03
    products: Optional[bool] = None
    report: Optional[Callable] = None
    mode: Optional[str] = None
    inductor: Dict[str, Any] = dataclasses.field(default_factory=dict)

    @staticmethod
    def of(given, mode=None):
        """From the dictionary that torch.compile was given; names that are none of ours are Inductor's. Raises UserError that
        names what is wrong."""
        own = {field.name for field in dataclasses.fields(Options)}
        given = dict(given or {})
        mode = given.pop("mode", None) or mode
        inductor = {**given.pop("inductor", {}), **{name: given.pop(name) for name in list(given) if name not in own}}
        database = given.pop("db", None) or configured_path()
        if not isinstance(database, (str, os.PathLike, type(None))):
            raise UserError(f"db must be the path of a database, not {database!r}")
        found = Options(**given, db=database and os.path.abspath(database), mode=None if mode == "default" else mode,
                        inductor=inductor)
        found.check()
        return found

    def check(self):
        """Raises UserError for a value that is none of the option's."""
        import torch._inductor.config

        if self.tune not in TUNE:
            raise UserError(f'tune is "off", "background" or "now", not {self.tune!r}')
        if self.verify not in ("first", "off"):
            raise UserError(f'verify is "first" or "off", not {self.verify!r}')
        for name in ("budget_s", "time_per_nest", "min_gain"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise UserError(f"{name} must be a positive number, not {value!r}")
        if self.report is not None and not callable(self.report):
            raise UserError("report must be a function of a Report")
        self.patches()
        known = torch._inductor.config.get_config_copy()
        for name in self.inductor:
            if name.replace("-", "_") not in known:
                own = ", ".join(field.name for field in dataclasses.fields(self))
                raise UserError(f"{name!r} is an option neither of nestor ({own}) nor of Inductor")

    def patches(self):
        """The settings of Inductor that mode and options stand for. Raises UserError for an unknown mode."""
        from torch._inductor import list_mode_options

        try:
            of_mode = list_mode_options(self.mode) if self.mode else {}
        except RuntimeError as error:
            raise UserError(str(error)) from None
        return {**of_mode, **{name.replace("-", "_"): value for name, value in self.inductor.items()}}
