"""Operators that nobody tuned, from the literature: naive nests, as a user writes them, beside PyTorch functions of the same
meaning. bench/torch_unseen.py tunes and races them; their sizes' defaults are 0.05 to 3 ms of work for an H200."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "python"))

from . import (adapted, approached, attending, attention, chained, channels_first, collected, contracted, criteria, distances, encountered, estimated, explored, found,  # noqa: E402
               factored, filtered, further, gathered, gleaned, graphs, grids, grown, heads, images, inspected, invited, judged, layered, layers, measured, mixed, modelled,
               numeric, objectives, observed, physical, products, proposed, queried, received, recent, reduced, rows, scanned, scenes, scored, sequential,
               simulated, solved, sought, spaces, spoken, steered, stepped, surveyed, tied, trained, training, travelled, updates, viewed, visited, wandered, weighted, wider, brought, carried, skipped)
from .problem import Operator  # noqa: E402

OPERATORS = {operator.name: operator
             for module in (attention, weighted, scored, products, contracted, rows, reduced, further, chained, wider, images, mixed, layers,
                            distances, factored, scenes, physical, training, graphs, numeric, recent, sequential, trained,
                            gathered, channels_first, attending, objectives, filtered, heads, criteria, grids,
                            adapted, updates, spaces, stepped, queried, layered, surveyed, judged,
                            tied, scanned, viewed, solved, modelled, simulated, encountered, inspected, approached, observed, received, measured,
                            collected, gleaned, grown, proposed, visited, explored, estimated, steered, spoken, invited, travelled, wandered, sought, found, brought, carried, skipped)
             for operator in module.OPERATORS}

__all__ = ["OPERATORS", "Operator"]
