"""Reports beside Inductor's caches: a graph that these serve is not looked at again, but what became of it is known."""

import dataclasses
import hashlib
import json
import os
import pathlib
import tempfile

import torch
from torch._inductor.runtime.cache_dir_utils import cache_dir

from .report import RegionReport, Report


def key_of(module, inputs, identity):
    """What names the compilation of a graph of Dynamo with inputs. identity: of the pass, which says what else it depends on."""
    found = hashlib.sha256()
    told = [torch.__version__, identity, torch.is_grad_enabled(), module.print_readable(print_output=False)]
    for each in inputs:
        told.append((each.shape, each.stride(), each.dtype, each.device, each.requires_grad)
                    if isinstance(each, torch.Tensor) else each)
    found.update(repr(told).encode())
    return found.hexdigest()


def _path(key):
    return pathlib.Path(cache_dir()) / "nestor_reports" / f"{key}.json"


def keep(key, reports):
    """Writes the Reports of a compilation. A folder that cannot be written to has no effect."""
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".new", delete=False, encoding="utf-8") as file:
            json.dump([dataclasses.asdict(report) for report in reports], file)
        os.replace(file.name, path)
    except OSError:
        pass


def kept(key):
    """The Reports of a compilation, none where no file has them."""
    try:
        found = json.loads(_path(key).read_text(encoding="utf-8"))
        return [Report(**{**each, "regions": [_region(region) for region in each["regions"]],
                          "left": [tuple(pair) for pair in each["left"]]}) for each in found]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def _region(found):
    return RegionReport(**{**found, "ops": tuple(found["ops"]), "sources": tuple(map(tuple, found["sources"]))})
