"""The importer: every op's nest computes what PyTorch does in float64, on its own and in random graphs; what is left, and
why."""

import os
import pathlib
import random
import unittest

import support
from support import numpy

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    import importer_cases
    from importer_checks import check_module, ops_of, random_function, trace
    from importer_models import Encoder

    from nestor.torch.importer.table import RULES, documentation

needs_torch = unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
COUNT = int(os.environ.get("NESTOR_IMPORTER_GRAPHS", "20"))


def with_root(function):
    """The function, and a sum of its result: pointwise ops alone are no region."""
    def rooted(*inputs):
        found = function(*inputs)
        number = found if found.dtype in (torch.float32, torch.int32) else found.float()
        return number, (number * 2).sum(-1, dtype=number.dtype) if number.dim() else (number * 2 + torch.zeros(3)).sum(0)
    return rooted


@needs_torch
class OpsTest(unittest.TestCase):
    def test_every_rule_computes_what_eager_does(self):
        for name, cases in importer_cases.CASES.items():
            for number, (function, inputs) in enumerate(cases):
                with self.subTest(op=name, case=number):
                    module = trace(with_root(function), inputs, pre_dispatch=True)
                    calls = {str(node.target) for node in module.graph.nodes}
                    self.assertIn(name, calls)
                    found = check_module(module, inputs, replaced=importer_cases.REPLACED)
                    self.assertEqual({str(node.target): why for node, why in found.left.items()}, {})
                    self.assertTrue(found.regions)

    def test_every_rule_has_a_case(self):
        self.assertEqual(sorted(RULES), sorted(importer_cases.CASES))

    def test_the_documented_table_is_that_of_the_code(self):
        page = pathlib.Path(support.FOLDER.parent / "docs" / "pytorch_ops.md").read_text(encoding="utf-8")
        self.assertEqual(page, documentation(), "python3 -m nestor.torch.importer > docs/pytorch_ops.md")


@needs_torch
class RandomGraphTest(unittest.TestCase):
    def test_regions_of_random_graphs_compute_what_eager_does(self):
        table = torch.export.default_decompositions()
        regions, captured = 0, 0
        for seed in range(COUNT):
            function, inputs = random_function(random.Random(seed))
            for symbolic, cut in ((False, "memory"), (True, "never") if seed % 2 else (True, "memory")):
                with self.subTest(seed=seed, symbolic=symbolic, cut=cut):
                    found = check_module(trace(function, inputs, symbolic, decompositions=table), inputs, cut=cut)
                    regions += len(found.regions)
                    captured += len(ops_of(found.regions))
        self.assertGreater(regions, 2 * COUNT)
        self.assertGreater(captured, 6 * COUNT)

    def test_a_training_step_is_captured_with_its_gradients(self):
        model = Encoder()
        parameters = dict(model.named_parameters())

        def step(*tensors):
            given = dict(zip(parameters, tensors))
            result = torch.func.functional_call(model, given, tensors[len(given):])
            loss = (result * result).mean()
            return loss, *torch.autograd.grad(loss, list(given.values()))

        inputs = [each.detach().clone().requires_grad_() for each in parameters.values()]
        inputs += [torch.randn(2, 24, 32), torch.ones(2, 24)]
        module = trace(step, inputs, decompositions=torch.export.default_decompositions())
        found = check_module(module, [each.detach() for each in inputs], 2e-5)
        self.assertEqual(found.left, {})
        self.assertGreater(len(found.regions), 20)


if __name__ == "__main__":
    unittest.main()
