"""From a graph of PyTorch in core ATen to nests: ops by kind, views as index maps, regions by dependences."""

from . import definitions, draws, indexing, pointwise, predicates, products, reductions, views  # noqa: F401  they register their ops
