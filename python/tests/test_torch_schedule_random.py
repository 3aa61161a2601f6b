"""Random graphs under random steps of nestor.torch.schedule compute the same: fused, replaced, decomposed, put back."""

import os
import random
import unittest

from support import numpy

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    import torch.nn.functional as F
    from torch import nn

    import nestor.torch
    from nestor.torch import schedule
    from nestor.torch.schedule.derived import generated_of
    from nestor.torch.schedule.graphs import between, is_compute, ordered

    ONE = (torch.tanh, F.silu, F.gelu, torch.sigmoid, lambda x: F.softmax(x, -1), lambda x: F.layer_norm(x, (4, )),
           lambda x: x.mT, lambda x: x * 2.0, lambda x: F.dropout(x, 0.25))
    TWO = (torch.add, torch.mul, torch.sub, torch.matmul, torch.maximum)

GRAPHS = int(os.environ.get("NESTOR_SCHEDULE_GRAPHS", 25))


def random_model(random_, count=12):
    """A module of ops on 4 x 4 tensors, in which a value is read by several, with linear layers, and up to two results."""
    plan = []
    for number in range(count):
        first, second = (random_.randrange(number + 1) for _ in range(2))
        plan.append(random_.choice([("one", random_.choice(ONE), first), ("two", random_.choice(TWO), first, second),
                                    ("layer", f"layer{number}", first)]))

    class Model(nn.Module):

        def __init__(self):
            super().__init__()
            for kind, what, *_ in plan:
                if kind == "layer":
                    setattr(self, what, nn.Linear(4, 4))

        def forward(self, x):
            values = [x]
            for kind, what, *places in plan:
                made = getattr(self, what) if kind == "layer" else what
                values.append(made(*(values[place] for place in places)))
            return values[-1], sum(values[1:])

    return Model()


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class RandomTest(unittest.TestCase):

    def test_random_steps_keep_results_and_gradients(self):
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)  # tensors are small
        for seed in (*range(GRAPHS), 158):  # 158: a part that takes all results of another
            with self.subTest(seed=seed):
                self.check(random.Random(seed))

    def check(self, random_):
        torch.manual_seed(random_.randrange(1000))
        made = schedule(random_model(random_))
        made.trace()
        for _ in range(4):
            self.step(made, random_)
        made.verify((torch.randn(2, 4, 4), ))
        made.undo(random_.randrange(1, len(made.steps) + 1))
        made.verify((torch.randn(2, 4, 4), ))

    def step(self, made, random_):
        """One step at a random place, or none where it does not apply."""
        kind = random_.choice(("fuse", "fuse", "unfuse", "decompose", "replace"))
        if kind == "fuse":
            self.fuse(made, random_)
        elif kind == "unfuse" and len(made.find("fused.*")):
            made.unfuse(random_.choice(list(made.find("fused.*"))))
        elif kind == "decompose":
            what = random_.choice((F.silu, F.gelu, F.softmax, F.layer_norm, nn.Linear))
            if len(made.find(what)):
                made.decompose(made.find(what))
        elif kind == "replace" and len(made.find(lambda x, y: torch.tanh(x) + y)):
            made.replace(made.find(lambda x, y: torch.tanh(x) + y), lambda x, y: y + x.tanh())

    def fuse(self, made, random_):
        """Fuses random nodes; those that are not convex are refused, and those alone."""
        graph = generated_of(made.module).graph
        nodes = ordered(random_.sample([node for node in graph.nodes if is_compute(node)], random_.randrange(1, 6)))
        match = schedule.Match("", graph, nodes, [], [])
        if between(nodes) is None:
            made.fuse(match, "eager")
            self.assertRegex(made.steps[-1].notes[0], r"^the model: .* -> fused(_\d+)?$")
        else:
            with self.assertRaisesRegex(nestor.UserError, "are not convex"):
                made.fuse(match, "eager")


if __name__ == "__main__":
    unittest.main()
