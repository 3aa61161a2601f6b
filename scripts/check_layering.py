#!/usr/bin/env python3
"""Holds the rooms of docs/design.md: who may include whom, no circles of modules, and that no code under src/ names an operator.

A layer is a folder of src/, a room any folder in it that has sources, a module a header with its source file. `--root DIR` looks at
another tree than this one.
"""

import argparse
import pathlib
import re
import sys

# A layer may include itself and these.
MAY_INCLUDE = {
    "support": set(),
    "poly": {"support"},
    "frontend": {"support", "poly"},
    "codegen": {"support", "poly"},
    "device": {"support"},
    "db": {"support", "device"},
    "runtime": {"support", "device", "db"},
    "autotune": {"support", "poly", "codegen", "device", "db"},
    "api": {"support", "poly", "codegen", "device", "db", "autotune"},
    "cli": {"support", "poly", "codegen", "device", "db", "autotune", "api"},
}

# Within a layer a room may include itself, these, and whatever these may include.
STANDS_ON = {
    "support/system": [],
    "support/words": [],
    "support": ["support/system", "support/words"],
    "support/threads": ["support"],
    "poly/isl": [],
    "poly/nest": ["poly/isl"],
    "poly/algebra/values": ["poly/nest"],
    "poly/algebra/analysis": ["poly/algebra/values"],
    "poly/algebra/rules": ["poly/algebra/analysis"],
    "poly/algebra/operands": ["poly/algebra/rules"],
    "poly/algebra/guarded": ["poly/algebra/operands"],
    "poly/algebra/blocks": ["poly/algebra/operands"],
    "poly/algebra/rolled": ["poly/algebra/operands"],
    "poly/algebra/layout": ["poly/algebra/rolled"],
    "poly/algebra": ["poly/algebra/layout"],
    "poly/schedule/order": ["poly/algebra"],
    "poly/schedule/steps": ["poly/schedule/order"],
    "poly/schedule": ["poly/schedule/steps"],
    "frontend/values": [],
    "frontend": ["frontend/values"],
    "codegen/tile": [],
    "codegen/tile/analysis": ["codegen/tile"],
    "codegen/tile/places": ["codegen/tile"],
    "codegen/tile/build": ["codegen/tile/places", "codegen/tile/analysis"],
    "codegen/proof/model": ["codegen/tile"],
    "codegen/proof": ["codegen/proof/model"],
    "codegen/llvm": ["codegen/tile/analysis"],
    "codegen/host/target": [],
    "codegen/host/emit": ["codegen/host/target", "codegen/llvm"],
    "codegen/host": ["codegen/host/emit"],
    "codegen/gpu/target": [],
    "codegen/gpu/ptx": ["codegen/llvm"],
    "codegen/gpu/kernel": ["codegen/gpu/target", "codegen/tile/analysis", "codegen/tile/build"],
    "codegen/gpu/simt/plan": ["codegen/gpu/kernel"],
    "codegen/gpu/simt": ["codegen/gpu/simt/plan"],
    "codegen/gpu/simt/proof": ["codegen/gpu/simt/plan"],
    "codegen/gpu/simt/emit": ["codegen/gpu/simt/plan", "codegen/gpu/ptx"],
    "codegen/gpu/mma/values": ["codegen/gpu/kernel"],
    "codegen/gpu/mma/plan": ["codegen/gpu/mma/values"],
    "codegen/gpu/mma/pipeline": ["codegen/gpu/mma/plan"],
    "codegen/gpu/mma": ["codegen/gpu/mma/pipeline"],
    "codegen/gpu/mma/proof": ["codegen/gpu/mma/pipeline", "codegen/proof/model"],
    "codegen/gpu/mma/emit": ["codegen/gpu/mma/pipeline", "codegen/gpu/ptx"],
    "codegen/gpu": ["codegen/gpu/simt", "codegen/gpu/simt/proof", "codegen/gpu/simt/emit", "codegen/gpu/mma", "codegen/gpu/mma/proof",
                    "codegen/gpu/mma/emit"],
    "db/trust": [],
    "db/records": ["db/trust"],
    "db/devices": ["db/records"],
    "db/file": ["db/trust"],
    "db": ["db/records", "db/file"],
    "autotune/trial": [],
    "autotune/tensors": [],
    "autotune/workers": ["autotune/trial"],
    "autotune/timing": ["autotune/trial"],
    "autotune/target": ["autotune/workers"],
    "autotune/oracle/code": [],
    "autotune/oracle": ["autotune/oracle/code", "autotune/trial", "autotune/tensors"],
    "autotune/check": ["autotune/oracle"],
    "autotune/host": ["autotune/check", "autotune/target", "autotune/timing"],
    "autotune/gpu": ["autotune/check", "autotune/target", "autotune/timing"],
    "autotune/space/structure": ["autotune/trial"],
    "autotune/space": ["autotune/space/structure"],
    "autotune/space/gpu/axes": ["autotune/space"],
    "autotune/space/gpu": ["autotune/space/gpu/axes"],
    "autotune/space/gpu/points": ["autotune/space/gpu"],
    "autotune/space/nest": ["autotune/space/gpu/points"],
    "autotune/search": ["autotune/space"],
    "autotune": ["autotune/host", "autotune/gpu", "autotune/search", "autotune/space/nest"],
    "api": [],
    "api/report": ["api"],
    "api/explore": [],
    "cli/terminal": [],
    "cli/arguments": [],
    "cli/explorer": ["cli/arguments", "cli/terminal"],
    "cli/commands": ["cli/explorer"],
    "cli": ["cli/commands"],
}

# Libraries that only some layers see: include prefix -> layers.
EXTERNAL = {
    r"llvm/|llvm-c/": {"codegen"},
    r"Halide": {"frontend", "kernels"},
    r"isl/": {"poly", "frontend", "codegen", "autotune", "api"},
    r"SQLiteCpp/|sqlite3": {"db"},
    r"sodium": {"db"},
    r"CLI/": {"cli"},
    r"histedit": {"cli"},
}

MOST_FILES = 24  # of a room

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


class Tree:
    """The C++ sources of src/, include/ and kernels/ below a folder, as paths relative to it, with what they include."""

    def __init__(self, root):
        self.root = root
        self.files = sorted(path.relative_to(root) for folder in ("src", "include", "kernels")
                            for path in (root / folder).rglob("*") if path.suffix in (".cc", ".h"))
        self.lines = {path: (root / path).read_text().splitlines() for path in self.files}
        self.includes = {path: [(number, match.group(1)) for number, line in enumerate(lines, 1)
                                if (match := INCLUDE.match(line))] for path, lines in self.lines.items()}

    def sources(self):
        return [path for path in self.files if path.parts[0] == "src"]


def layer_of(path):
    return path.parts[1] if path.parts[0] == "src" and len(path.parts) > 2 else path.parts[0]


def room_of(path):
    """The folder below src/ of a source, or of what an include names."""
    return pathlib.PurePosixPath(path).parent.as_posix().removeprefix("src/")


def check_layers(tree):
    for path, includes in tree.includes.items():
        layer = layer_of(path)
        for number, name in includes:
            target = name.split("/")[0]
            if layer in MAY_INCLUDE and target in MAY_INCLUDE and target != layer and target not in MAY_INCLUDE[layer]:
                yield f"{path}:{number}: {layer} may not include {name}"
            if layer == "include" and target in MAY_INCLUDE:
                yield f"{path}:{number}: a public header may not include {name}"
            for prefix, layers in EXTERNAL.items():
                # The one public header for people who write Halide lives beside the front end's other users.
                if path.as_posix() == "include/nestor/halide.h" and prefix == r"Halide":
                    continue
                if re.match(prefix, name) and layer not in layers:
                    yield f"{path}:{number}: <{name}> belongs in {', '.join(sorted(layers))} alone"


def rooms_below(room, seen=None):
    """The room and all that it stands on, directly or not."""
    seen = set() if seen is None else seen
    if room not in seen:
        seen.add(room)
        for other in STANDS_ON.get(room, []):
            rooms_below(other, seen)
    return seen


def check_rooms(tree):
    for room, below in STANDS_ON.items():
        if any(room in rooms_below(other) for other in below):
            yield f"scripts/check_layering.py: {room} stands on itself"
    of_layers = {room.split("/")[0] for room in STANDS_ON}
    files = {}
    for path in tree.sources():
        room = room_of(path)
        files.setdefault(room, []).append(path)
        if layer_of(path) not in of_layers:
            continue
        if room not in STANDS_ON:
            yield f"{path}: the room {room} is not in scripts/check_layering.py"
            continue
        for number, name in tree.includes[path]:
            other = room_of(name)
            if other in STANDS_ON and other.split("/")[0] == layer_of(path) and other not in rooms_below(room):
                yield f"{path}:{number}: the room {room} does not stand on {other}"
    for room, paths in files.items():
        if len(paths) > MOST_FILES:
            yield f"src/{room}: {len(paths)} files, and a room has {MOST_FILES} at most"


def check_names(tree):
    """Nobody has to ask which of two files is meant."""
    places = {}
    for path in tree.sources():
        places.setdefault(path.stem, set()).add(path.parent)
    for stem, folders in sorted(places.items()):
        if len(folders) > 1:
            yield f"{stem} stands in {', '.join(sorted(map(str, folders)))}"


def circles(graph):
    """The strongly connected components of more than one node (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            circle = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def check_modules(tree):
    modules = {path.with_suffix("").as_posix().removeprefix("src/") for path in tree.sources()}
    graph = {module: set() for module in modules}
    for path in tree.sources():
        module = path.with_suffix("").as_posix().removeprefix("src/")
        for _, name in tree.includes[path]:
            other = pathlib.PurePosixPath(name).with_suffix("").as_posix()
            if other in modules and other != module:
                graph[module].add(other)
    for circle in circles(graph):
        yield f"modules include each other in a circle: {', '.join(circle)}"


def operator_names(tree):
    """Operators are the files of kernels/, apart from the generator's own; other spellings count as well."""
    stems = {path.stem for path in tree.files if path.parts[0] == "kernels" and path.suffix == ".cc"} - {"generate", "operator"}
    return sorted(stems | {"attention", "layernorm", "layer_norm", "rmsnorm", "rms_norm", "softmax"})


def check_operator_names(tree):
    pattern = re.compile(r"(?i)(?<![a-z0-9])(" + "|".join(map(re.escape, operator_names(tree))) + r")(?![a-z0-9])")
    for path, lines in tree.lines.items():
        # Help texts of the command line show real commands; nothing there can decide how an operator is compiled.
        if path.parts[0] not in ("src", "include") or layer_of(path) == "cli":
            continue
        for number, line in enumerate(lines, 1):
            code = re.sub(r"//.*|/\*.*?\*/|^\s*\*.*", "", line)
            match = pattern.search(code)
            if match:
                yield f"{path}:{number}: names the operator '{match.group(0)}': structure decides, not names"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    tree = Tree(parser.parse_args().root)
    findings = [finding for check in (check_layers, check_rooms, check_names, check_modules, check_operator_names)
                for finding in check(tree)]
    for finding in findings:
        print(finding)
    print(f"layering: {len(tree.files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
