"""The importer: every op's nest computes what PyTorch does in float64, on its own and in random graphs; what is left, and
why."""

import functools
import os
import pathlib
import random
import unittest
import warnings

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

    from importer_cases import t
    from nestor.torch.importer.regions import partition
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

    def test_what_no_nest_says_exactly_is_left(self):
        for name, function, inputs in importer_cases.REFUSED:
            with self.subTest(op=name), warnings.catch_warnings():
                warnings.simplefilter("error")
                module = trace(with_root(function), inputs)
                left = {str(node.target) for node in partition(module.graph).left}
                self.assertIn(name, left)

    def test_slices_by_a_size_are_read_where_they_are_there(self):
        for function in (lambda x, n: x[:, n:], lambda x, n: x[:, :n], lambda x, n: x[:, n], lambda x, n: x[:, 2:n]):
            rows = functools.partial(lambda function, x, n: function(x, n).softmax(-1), function)
            module = trace(rows, (t(4, 9), 3), symbolic=True)
            found = check_module(module, (t(4, 9), 3))
            region, = found.regions
            self.assertGreater(region.nest.context.count(" and ") + 1, len(region.nest.sizes), region.nest.context)

    def test_chains_of_ops_are_parted(self):
        def chain(x):
            for _ in range(300):
                x = (x * 1.01).tanh()
            return x.softmax(-1)

        region, = check_module(trace(chain, [t(2, 3)]), [t(2, 3)], 1e-5).regions
        self.assertGreater(len(region.nest.statements), 8)

    def test_every_rule_has_a_case(self):
        self.assertEqual(sorted(RULES), sorted(importer_cases.CASES))

    def test_the_documented_table_is_that_of_the_code(self):
        page = pathlib.Path(support.FOLDER.parent / "docs" / "pytorch_ops.md").read_text(encoding="utf-8")
        self.assertEqual(page, documentation(), "python3 -m nestor.torch.importer > docs/pytorch_ops.md")


def two_softmaxes(p, q, v, combine):
    return combine(p.softmax(-1), (q * 0.5).softmax(-1)) @ v


def masked_softmaxes(p, q, v):
    seen = torch.ones(p.shape[-2:], dtype=torch.bool).tril()
    return two_softmaxes(*(x.masked_fill(~seen, -torch.inf) for x in (p, q)), v, lambda a, b: a - 0.35 * b)


def of_scores(function):
    return lambda a, b, c, d, v: function(a @ b.mT, c @ d.mT, v)


DIFFERENCES = {
    "a difference": lambda p, q, v: two_softmaxes(p, q, v, lambda a, b: a - 0.35 * b),
    "with a factor outside": lambda p, q, v: two_softmaxes(p, q, v, lambda a, b: (b - a) / 3 * 2),
    "as the second operand": lambda p, q, v: v.mT @ (p.softmax(-1) + q.softmax(-1)).mT,
    "of three": lambda p, q, v: (p.softmax(-1) - q.softmax(-1) + 0.5 * (p * q).softmax(-1)) @ v,
    "beside plain weights": lambda p, q, v: (p.softmax(-1) + q) @ v,
    "under a mask": masked_softmaxes,
}


@needs_torch
class SeparateTest(unittest.TestCase):
    def test_products_distribute_over_what_is_relative_to_different_maxima(self):
        source = torch.Generator().manual_seed(2)
        inputs = [torch.randn(3, 6, 2, generator=source) for _ in range(5)]
        for name, function in DIFFERENCES.items():
            with self.subTest(name):
                found = check_module(trace(of_scores(function), inputs), inputs)
                region, = found.regions
                products = [each for each in region.nest.statements if each.reduction == "add" and len(each.reads) == 2]
                self.assertEqual(len(products), 5 if name == "of three" else 4)  # with those of scores
                self.assertEqual(self.sums_with_quotients(region.nest), [])

    def test_a_softmax_alone_stays_whole(self):
        def attend(a, b, v):
            weights = (a @ b.mT).softmax(-1)
            return (weights * 2 + weights / 3) @ v

        inputs = [torch.randn(3, 6, 2) for _ in range(3)]
        region, = check_module(trace(attend, inputs), inputs).regions
        self.assertEqual(sum(each.reduction == "add" and len(each.reads) == 2 for each in region.nest.statements), 2)

    def sums_with_quotients(self, nest):
        """Temporaries that a sum of products reads and that divide by a row's sum."""
        read = {each.tensor for one in nest.statements if one.reduction == "add" and len(one.reads) == 2 for each in one.reads}
        return [each.name for each in nest.statements if each.write.tensor in read and '"div"' in str(each.value).replace("'", '"')]


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
