"""Prints docs/pytorch_ops.md."""

from .table import documentation

print(documentation(), end="")
