"""Prints the table of docs/pytorch_schedules.md: what decompose puts in place of an op."""

from .decompositions import table

print(table())
