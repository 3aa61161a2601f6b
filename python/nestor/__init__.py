"""Tuned kernels from Nestor's database, launched from Python.

    import nestor
    kernel = nestor.Library().query("rmsnorm", "f32", {"rows": 64, "width": 1024})
    kernel(x, weight, out, eps=1e-6)      # numpy arrays, PyTorch tensors, anything with DLPack or an array interface

Needs libnestor_runtime.so.0 and nothing else; `import nestor.torch` adds operators for PyTorch.
"""

from .errors import DeviceError, Error, InternalError, NotFound, UserError
from .library import Kernel, Library

__all__ = ["DeviceError", "Error", "InternalError", "Kernel", "Library", "NotFound", "UserError"]
__version__ = "0.1.0"
