"""nestor.torch.schedule(model): how a model is computed, step by step, without touching the model.

    s = nestor.torch.schedule(model, (x,))
    attention = s["encoder.layer.*.attention"].trace()
    attention.merge(["query", "key", "value"])
    attention.replace(attention.find(slow), torch.nn.functional.scaled_dot_product_attention)
    s.verify((x,))
    fast = s.build()

docs/pytorch_schedules.md has tutorials. The module itself can be called.
"""

import sys
import types

from .matches import Found, Match
from .modes import chosen
from .optimizers import moved_optimizer
from .patterns import call_module, exactly
from .schedules import Schedule, Selection
from .verification import Mismatch

__all__ = ["Found", "Match", "Mismatch", "Schedule", "Selection", "call_module", "chosen", "exactly", "moved_optimizer"]


class _Callable(types.ModuleType):

    def __call__(self, model, inputs=None):
        """A Schedule of a model (a torch.nn.Module), which stays as it is. inputs: a tuple of its inputs (or (tuple, dict)),
        which trace() then needs no more. Raises UserError for what is no module, or cannot be copied."""
        return Schedule(model, inputs)


sys.modules[__name__].__class__ = _Callable
