"""The package installs with pip and works from where it was installed."""

import importlib.util
import os
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


if __name__ == "__main__":
    unittest.main()
