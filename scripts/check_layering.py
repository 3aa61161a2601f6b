#!/usr/bin/env python3
"""Holds the layering of docs/design.md: who may include whom, and that no code under src/ names an operator."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

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

# Libraries that only some layers see: include prefix -> layers.
EXTERNAL = {
    r"llvm/|llvm-c/": {"codegen"},
    r"Halide": {"frontend", "kernels"},
    r"isl/": {"poly", "frontend", "codegen", "autotune", "api"},
    r"SQLiteCpp/|sqlite3": {"db"},
    r"CLI/": {"cli"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def source_files():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "src", "include", "kernels"],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [pathlib.PurePosixPath(f) for f in sorted(set(listed))
            if f.endswith((".cc", ".h")) and (ROOT / f).exists()]


def layer_of(path):
    return path.parts[1] if path.parts[0] == "src" and len(path.parts) > 2 else path.parts[0]


def check_includes(path, lines):
    layer = layer_of(path)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        name = match.group(1)
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


def operator_names():
    """Operators are the files of kernels/, apart from the generator's own; other spellings count as well."""
    stems = {path.stem for path in (ROOT / "kernels").glob("*.cc")} - {"generate", "operator"}
    return sorted(stems | {"attention", "layernorm", "layer_norm", "rmsnorm", "rms_norm", "softmax"})


def check_operator_names(path, lines, pattern):
    if path.parts[0] not in ("src", "include"):
        return
    # Help texts of the command line show real commands; nothing there can decide how an operator is compiled.
    if layer_of(path) == "cli":
        return
    for number, line in enumerate(lines, 1):
        code = re.sub(r"//.*|/\*.*?\*/|^\s*\*.*", "", line)
        match = pattern.search(code)
        if match:
            yield f"{path}:{number}: names the operator '{match.group(0)}': structure decides, not names"


def main():
    findings = []
    pattern = re.compile(r"(?i)(?<![a-z0-9])(" + "|".join(map(re.escape, operator_names())) + r")(?![a-z0-9])")
    files = source_files()
    for path in files:
        lines = (ROOT / path).read_text().splitlines()
        findings += check_includes(path, lines)
        findings += check_operator_names(path, lines, pattern)
    for finding in findings:
        print(finding)
    print(f"layering: {len(files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
