#!/usr/bin/env python3
"""Makes a wheel of python/nestor that holds the nestor program and the runtime library, so that `pip install` of it is all.

    cmake --preset portable && cmake --build --preset portable
    scripts/make_wheel.py --program build/portable/bin/nestor --runtime build/portable/src/libnestor_runtime.so.0 --out dist

The platform tag follows from what both files need: manylinux with the newest glibc symbol among them where nothing beyond glibc
is needed, as of the portable preset, else linux. Needs setuptools and wheel; readelf and strip of binutils.
"""

import argparse
import importlib.util
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
SCRIPT = '\n[project.scripts]\nnestor = "nestor.program:main"\n'


def fail(message):
    sys.exit(f"make_wheel.py: {message}")


def readelf(path, flag):
    done = subprocess.run(["readelf", "-W", flag, path], capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f"{path} is no ELF file: {done.stderr.strip()}")
    return done.stdout


def platform_tag(paths):
    """(tag, libraries beyond glibc that keep the wheel to machines like this one)"""
    needed = set().union(*(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf(path, "-d")) for path in paths)) - GLIBC
    versions = [
        tuple(map(int, found.split("."))) for path in paths for found in re.findall(r"GLIBC_(\d+\.\d+)", readelf(path, "-V"))
    ]
    machine = platform.machine()
    if needed or not versions:
        return f"linux_{machine}", sorted(needed)
    return f"manylinux_{max(versions)[0]}_{max(versions)[1]}_{machine}", []


def wrong_tag(wheel):
    """Why a wheel's name does not fit what is in it; "" where it does."""
    tag = wheel.stem.split("-")[-1]
    with zipfile.ZipFile(wheel) as content:
        native = [name for name in content.namelist() if content.open(name).read(4) == b"\x7fELF"]
        description = next(name for name in content.namelist() if name.endswith(".dist-info/WHEEL"))
        text = content.read(description).decode()
    tags = {line.rsplit("-", 1)[1] for line in re.findall(r"(?m)^Tag: (.*?)\s*$", text)}
    if tags != {tag}:
        return f"{wheel.name} says {', '.join(sorted(tags))} inside"
    if native and (tag == "any" or "Root-Is-Purelib: true" in text):
        return f"{wheel.name} holds native code ({', '.join(native)}), but its tag is that of every platform"
    if native and not tag.endswith("_" + platform.machine()):
        return f"{wheel.name} was made on {platform.machine()}"
    return "" if native or tag == "any" else f"{wheel.name} holds no native code, but is for {tag} alone"


def with_tag(wheel, tag):
    """The wheel packed again with a platform tag, and with a program that can be executed."""
    folder = wheel.parent / "unpacked"
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([sys.executable, "-m", "wheel", "unpack", "--dest", folder, wheel], **quiet)
    content, = folder.iterdir()
    for place in (content / "nestor" / "bin" / "nestor", content / "nestor" / "libnestor_runtime.so.0"):
        place.chmod(0o755)
    description, = content.glob("*.dist-info/WHEEL")
    text = re.sub(r"(?m)^Tag: .*$", f"Tag: py3-none-{tag}", description.read_text(encoding="utf-8"))
    description.write_text(text.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false"), encoding="utf-8")
    wheel.unlink()
    subprocess.run([sys.executable, "-m", "wheel", "pack", "--dest-dir", wheel.parent, content], **quiet)
    packed, = wheel.parent.glob("*.whl")
    return packed


def make(program, runtime, records, out):
    """The wheel's path."""
    with tempfile.TemporaryDirectory(prefix="nestor-wheel-") as folder:
        source = pathlib.Path(folder) / "source"
        shutil.copytree(ROOT / "python", source, ignore=shutil.ignore_patterns("tests", "__pycache__", "*.egg-info", "build"))
        package = source / "nestor"
        (package / "bin").mkdir()
        for path, place in ((program, package / "bin" / "nestor"), (runtime, package / "libnestor_runtime.so.0")):
            shutil.copyfile(path, place)
            place.chmod(0o755)
            subprocess.run(["strip", "--strip-unneeded", place], check=True)
        shutil.copytree(records, package / "share" / "nestor" / "records", ignore=lambda folder, names: [
            name for name in names if not name.endswith((".jsonl", ".pack"))])
        shutil.copy(ROOT / "LICENSE", source / "LICENSE")
        with open(source / "pyproject.toml", "a", encoding="utf-8") as file:
            file.write(SCRIPT)
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-index", "--no-deps", "--no-build-isolation",
                        "--disable-pip-version-check", "--wheel-dir", folder, source], check=True,
                       env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"})
        wheel, = pathlib.Path(folder).glob("*.whl")
        tag, beyond = platform_tag([program, runtime])
        wheel = with_tag(wheel, tag)
        if reason := wrong_tag(wheel):
            fail(reason)
        out.mkdir(parents=True, exist_ok=True)
        return pathlib.Path(shutil.copy(wheel, out)), beyond


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/portable/bin/nestor")
    parser.add_argument("--runtime", type=pathlib.Path, default=ROOT / "build/portable/src/libnestor_runtime.so.0")
    parser.add_argument("--records", type=pathlib.Path, default=ROOT / "tuning_db", help="for `nestor db import --shipped`")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist")
    parser.add_argument("--check", type=pathlib.Path, metavar="WHEEL", help="only say whether a wheel's tag fits what is in it")
    args = parser.parse_args()
    if args.check:
        if reason := wrong_tag(args.check):
            fail(reason)
        return
    for module in ("setuptools", "wheel"):
        if importlib.util.find_spec(module) is None:
            fail(f"{sys.executable} has no {module}: pip install {module}")
    for path in (args.program, args.runtime):
        if not path.is_file():
            fail(f"{path}: no such file; build it with cmake --preset portable && cmake --build --preset portable")
    wheel, beyond = make(args.program, args.runtime, args.records, args.out)
    if beyond:
        print(f"make_wheel.py: this wheel also needs {', '.join(beyond)}: use files of the portable preset to give it away",
              file=sys.stderr)
    print(wheel)


if __name__ == "__main__":
    main()
