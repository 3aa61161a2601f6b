"""What pyproject.toml cannot say: a package that holds the native program and library is for one platform alone."""

import pathlib

from setuptools import setup
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1 it is of the package wheel
    from wheel.bdist_wheel import bdist_wheel

PACKAGE = pathlib.Path(__file__).resolve().parent / "nestor"


def is_native():
    return (PACKAGE / "libnestor_runtime.so.0").exists() or (PACKAGE / "bin" / "nestor").exists()


class NativeDistribution(Distribution):
    def has_ext_modules(self):
        return is_native()


class PlatformWheel(bdist_wheel):
    """Any Python 3 of this platform: the library is loaded by ctypes."""

    def get_tag(self):
        tag = super().get_tag()
        return ("py3", "none", tag[2]) if is_native() else tag


setup(distclass=NativeDistribution, cmdclass={"bdist_wheel": PlatformWheel})
