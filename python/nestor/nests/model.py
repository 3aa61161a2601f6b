"""A nest as a nest file holds it (docs/nest.md): sizes, scalars, tensors and statements, with sets and relations as isl's text.

`Nest.from_json(nest.json())` equals `nest`. What is written here is not checked but for its form: the nestor program does that.
"""

import dataclasses
import hashlib
import json
import math
import pathlib
import tempfile
from typing import Any, Dict, Optional, Tuple

from ..errors import UserError

FORMAT = 1
TYPES = ("f32", "f16", "bf16", "i32", "bool", "i64")  #: of elements; i64 is a type of inputs alone
ROLES = ("input", "output", "temporary")
REDUCTIONS = {"add": 0.0, "mul": 1.0, "min": math.inf, "max": -math.inf}  #: with the f32 that an empty one is


@dataclasses.dataclass(frozen=True)
class SizeEntry:
    """A symbolic size. specialized: fixed when a kernel is compiled; else given at launch. default: what tuning takes."""
    name: str
    min: int = 1
    max: Optional[int] = None
    specialized: bool = False
    default: int = 1


@dataclasses.dataclass(frozen=True)
class ScalarEntry:
    """A scalar argument; min and max limit what callers may give."""
    name: str
    type: str = "f32"
    default: float = 0.0
    min: Optional[float] = None
    max: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class TensorEntry:
    """A tensor; shape: for each index, outermost first, the extent as isl's function of the sizes. tolerance: of an output, takes
    the place of the nest's."""
    name: str
    type: str
    role: str
    shape: Tuple[str, ...]
    tolerance: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class Access:
    """relation: [sizes] -> { statement[dims] -> tensor[index] }"""
    tensor: str
    relation: str


@dataclasses.dataclass(frozen=True)
class Statement:
    """write = value, or write = write (+) value with a reduction, at every point of the domain. `value` is the tree of
    docs/nest.md as dictionaries and lists."""
    name: str
    dims: Tuple[str, ...]
    domain: str
    write: Access
    reads: Tuple[Access, ...]
    indices: Tuple[str, ...]
    value: Dict[str, Any]
    group: int
    reduction: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Nest:
    """A definition. tolerance: what rounding may be granted with ordinary data (docs/results.md)."""
    op: str
    variant: str
    sizes: Tuple[SizeEntry, ...]
    scalars: Tuple[ScalarEntry, ...]
    context: str
    tensors: Tuple[TensorEntry, ...]
    statements: Tuple[Statement, ...]
    tolerance: float = 1e-4

    def to_dict(self):
        """The nest file as dictionaries and lists."""
        found = {"format": FORMAT, **dataclasses.asdict(self)}
        for entry in (*found["sizes"], *found["scalars"], *found["tensors"], *found["statements"]):
            for key in [key for key, value in entry.items() if value is None]:
                del entry[key]
        for scalar in found["scalars"]:
            scalar["default"] = number_to_json(scalar["default"])
        return _plain(found)

    def json(self, indent=1):
        """The text of a nest file."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def save(self, path):
        """Writes a nest file; its name must end in .nest.json for the nestor program."""
        pathlib.Path(path).write_text(self.json() + "\n", encoding="utf-8")

    @staticmethod
    def from_dict(found):
        """Raises UserError that names the key at fault."""
        return _read_nest(found)

    @staticmethod
    def from_json(text):
        """From the text of a nest file. Raises UserError."""
        try:
            found = json.loads(text)
        except ValueError as error:
            raise UserError(f"this is not JSON: {error}") from None
        return _read_nest(found)

    @staticmethod
    def load(path):
        """From a nest file. Raises UserError with the path."""
        try:
            return Nest.from_json(pathlib.Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"cannot read nest file {path}: {error.strerror}") from None
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    def tensor(self, name):
        """The TensorEntry of that name. Raises UserError."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise UserError(f"nest {self.op} has no tensor {name!r}")

    @property
    def arguments(self):
        """The tensors that callers pass, in the order of a call."""
        return tuple(tensor for tensor in self.tensors if tensor.role != "temporary")

    def fingerprint(self):
        """32 hexadecimal digits of this text; names of op and variant and likely sizes are left out. Nests that are written alike
        share it; the program's own digest sees more of them as one."""
        text = {key: value for key, value in self.to_dict().items() if key not in ("op", "variant", "tolerance")}
        for tensor in text["tensors"]:
            tensor.pop("tolerance", None)
        for size in text["sizes"]:
            del size["default"]
        return hashlib.sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()[:32]

    def digest(self):
        """32 hexadecimal digits: what the nestor program names this nest by, and kernels are looked up by. Of the whole text but
        defaults; the same where isl sees the same sets. Asks the program once. Raises UserError with its text for a nest that is
        none."""
        if "_digest" not in self.__dict__:
            from .. import program

            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "asked.nest.json"
                self.save(path)
                self.__dict__["_digest"] = program.run(["show", str(path), "--as", "schedule"])["nest"]
        return self.__dict__["_digest"]


def number_to_json(number):
    """A number, or "nan", "inf" and "-inf", for which JSON has none."""
    if isinstance(number, float) and not math.isfinite(number):
        return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"
    return number


def number_from_json(found):
    """The reverse of number_to_json."""
    return float(found) if found in ("nan", "inf", "-inf") else found


def _plain(found):
    if isinstance(found, dict):
        return {key: _plain(value) for key, value in found.items()}
    return [_plain(item) for item in found] if isinstance(found, (list, tuple)) else found


class _Reader:
    """A dictionary of the file with its place there, for messages."""

    def __init__(self, found, place):
        if not isinstance(found, dict):
            raise UserError(f"{place} must be an object")
        self.found, self.place = found, place

    def get(self, key, kinds, default=None, required=True):
        if self.found.get(key) is None:
            if required:
                raise UserError(f"{self.place}: the key \"{key}\" is missing")
            return default
        value = self.found[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            names = " or ".join({str: "text", int: "an integer", float: "a number", bool: "true or false", list: "a list",
                                 dict: "an object"}[kind] for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
            raise UserError(f"{self.place}.{key} must be {names}")
        return value

    def number(self, key, required=True):
        value = self.get(key, (int, float, str), None, required)
        if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
            raise UserError(f"{self.place}.{key} must be a number, \"inf\", \"-inf\" or \"nan\"")
        return number_from_json(value)

    def among(self, key, names):
        value = self.get(key, str)
        if value not in names:
            raise UserError(f"{self.place}.{key}: \"{value}\" is none of {', '.join(names)}")
        return value

    def texts(self, key):
        values = self.get(key, list)
        if not all(isinstance(value, str) for value in values):
            raise UserError(f"{self.place}.{key} must be a list of texts")
        return tuple(values)

    def each(self, key):
        return [_Reader(value, f"{self.place}.{key}[{k}]") for k, value in enumerate(self.get(key, list))]

    def part(self, key):
        return _Reader(self.get(key, dict), f"{self.place}.{key}")


def _read_nest(found):
    reader = _Reader(found, "nest")
    form = reader.get("format", int)
    if form != FORMAT:
        raise UserError(f"format: this nest file is of format {form}; this package reads {FORMAT}")
    return Nest(
        op=reader.get("op", str), variant=reader.get("variant", str),
        sizes=tuple(SizeEntry(name=size.get("name", str), min=size.get("min", int), max=size.get("max", int, required=False),
                              specialized=size.get("specialized", bool), default=size.get("default", int))
                    for size in reader.each("sizes")),
        scalars=tuple(ScalarEntry(name=scalar.get("name", str), type=scalar.among("type", TYPES), default=scalar.number("default"),
                                  min=scalar.number("min", False), max=scalar.number("max", False))
                      for scalar in reader.each("scalars")),
        context=reader.get("context", str),
        tensors=tuple(TensorEntry(tensor.get("name", str), tensor.among("type", TYPES), tensor.among("role", ROLES),
                                  tensor.texts("shape"), tensor.number("tolerance", False)) for tensor in reader.each("tensors")),
        statements=tuple(_read_statement(statement) for statement in reader.each("statements")),
        tolerance=reader.number("tolerance"))


def _read_statement(reader):
    def access(part):
        return Access(part.get("tensor", str), part.get("relation", str))

    reduction = reader.among("reduction", tuple(REDUCTIONS)) if reader.found.get("reduction") is not None else None
    return Statement(name=reader.get("name", str), dims=reader.texts("dims"), domain=reader.get("domain", str),
                     write=access(reader.part("write")), reads=tuple(access(read) for read in reader.each("reads")),
                     indices=reader.texts("indices"), value=reader.get("value", dict), group=reader.get("group", int),
                     reduction=reduction)
