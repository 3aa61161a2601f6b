"""The package installs with pip and works from where it was installed; a wheel with the program is all that a user needs."""

import glob
import importlib.util
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import support
from support import WIDTH, needs_program, tuned


def has(*modules):
    return all(importlib.util.find_spec(module) for module in modules)


@needs_program
@unittest.skipUnless(has("pip", "setuptools", "wheel"), "pip, setuptools or wheel is not installed")
class InstallTest(unittest.TestCase):
    def test_every_folder_of_the_package_is_installed(self):
        folders = {
            str(path.parent.relative_to(support.FOLDER)).replace(os.sep, ".")
            for path in support.FOLDER.glob("nestor/**/__init__.py")
        }
        text = (support.FOLDER / "pyproject.toml").read_text(encoding="utf-8")
        self.assertEqual(set(re.search(r"packages = \[(.*)\]", text).group(1).replace('"', "").split(", ")), folders)

    def test_a_wheel_with_native_code_has_the_tag_of_its_platform(self):
        with tempfile.TemporaryDirectory() as folder:
            source = f"{folder}/source"
            subprocess.run(["cp", "-r", str(support.FOLDER), source], check=True)
            make = [sys.executable, "-m", "pip", "wheel", "-q", "--no-index", "--no-deps", "--no-build-isolation",
                    "--disable-pip-version-check", "--wheel-dir", folder, source]
            check = [sys.executable, str(support.FOLDER.parent / "scripts" / "make_wheel.py"), "--check"]
            for native in (False, True):
                if native:
                    shutil.rmtree(f"{source}/build", ignore_errors=True)
                    pathlib.Path(source, "nestor", "libnestor_runtime.so.0").write_bytes(b"\x7fELF" + bytes(100))
                subprocess.run(make, check=True, env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"})
                wheel, = glob.glob(f"{folder}/*.whl")
                tag = f"linux_{platform.machine()}" if native else "any"
                self.assertTrue(wheel.endswith(f"-py3-none-{tag}.whl"), wheel)
                self.assertEqual(subprocess.run([*check, wheel], check=False).returncode, 0)
                if native:
                    wrong = wheel.replace(tag, "any")
                    os.rename(wheel, wrong)
                    refused = subprocess.run([*check, wrong], capture_output=True, text=True, check=False)
                    self.assertEqual(refused.returncode, 1)
                    self.assertIn(f"says linux_{platform.machine()} inside", refused.stderr)
                else:
                    os.remove(wheel)

    def test_an_installed_package_finds_kernels(self):
        with tempfile.TemporaryDirectory() as folder:
            source = f"{folder}/source"
            subprocess.run(["cp", "-r", str(support.FOLDER), source], check=True)  # building leaves files in the source
            subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation",
                            "--disable-pip-version-check", "--target", f"{folder}/site", source], check=True,
                           env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"})
            code = "import nestor, sys; print(nestor.__file__); " \
                   f"print(nestor.Library(sys.argv[1]).query('layernorm', 'f32', {{'rows': 64, 'width': {WIDTH}}}))"
            found = subprocess.run([sys.executable, "-c", code, tuned("layernorm f32")], capture_output=True, text=True,
                                   check=True, cwd=folder, env={**os.environ, "PYTHONPATH": f"{folder}/site"})
        self.assertIn(f"{folder}/site/nestor", found.stdout)
        self.assertIn("<nestor.Kernel layernorm (f32) on host", found.stdout)

    @unittest.skipUnless(os.environ.get("NESTOR_RUNTIME") and shutil.which("readelf") and has("venv"),
                         "NESTOR_RUNTIME names no library, or there is no readelf or venv")
    def test_a_wheel_is_all_that_an_own_operator_needs(self):
        with tempfile.TemporaryDirectory() as folder:
            quiet = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
            made = subprocess.run([
                sys.executable,
                str(support.FOLDER.parent / "scripts" / "make_wheel.py"), "--program", support.PROGRAM, "--runtime",
                os.environ["NESTOR_RUNTIME"], "--out", folder
            ],
                                  capture_output=True,
                                  text=True,
                                  check=False)
            self.assertEqual(made.returncode, 0, made.stderr)
            wheel, = glob.glob(f"{folder}/*.whl")
            self.assertRegex(wheel, r"nestor-[\d.]+-py3-none-(many)?linux_\w+\.whl$")
            self.assertEqual(made.stdout.strip(), wheel)
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", f"{folder}/fresh"], check=True)
            subprocess.run([sys.executable, "-m", "pip", "--python", f"{folder}/fresh/bin/python", "install", "-q", "--no-index",
                            "--disable-pip-version-check", wheel], check=True, env=quiet)
            with open(f"{folder}/own.py", "w", encoding="utf-8") as file:
                file.write(_OWN_OPERATOR)
            bare = {name: value for name, value in os.environ.items() if not name.startswith(("NESTOR_", "PYTHON"))}
            bare.update(HOME=folder, NESTOR_LIBCUDA="/nonexistent")
            done = subprocess.run([f"{folder}/fresh/bin/python", "own.py"],
                                  capture_output=True,
                                  text=True,
                                  check=False,
                                  cwd=folder,
                                  env=bare,
                                  timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("correct", done.stdout)
            said = subprocess.run([f"{folder}/fresh/bin/nestor", "--version"],
                                  capture_output=True,
                                  text=True,
                                  check=True,
                                  env=bare)
        self.assertIn("nestor 0", said.stdout)


_OWN_OPERATOR = """
import ctypes
import nestor

rows, width = nestor.Size("rows", 16), nestor.Size("width", 8)
i, c, k = nestor.indices(i=rows, c=width, k=width)

@nestor.nest
def centred(x: nestor.f32[rows, width]):
    mean = nestor.define("mean", i, nestor.sum(x[i, k], over=k) / width)
    return nestor.define("out", (i, c), x[i, c] - mean[i])

tuned = nestor.tune(centred, {"rows": 4, "width": 3}, time=1, trials=2)
x, out = (ctypes.c_float * 3 * 4)(), (ctypes.c_float * 3 * 4)()
for row in x:
    row[:] = [1, 2, 6]
tuned(x, out)
assert [list(row) for row in out] == [[-2, -1, 3]] * 4
print("correct", tuned)
"""

if __name__ == "__main__":
    unittest.main()
