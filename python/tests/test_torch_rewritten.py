"""Operators written otherwise (bench/unseen_operators/rewritten.py, restated.py and recast.py): members of a family compute the same."""

import sys
import unittest

from support import FOLDER, numpy

sys.path.insert(0, str(FOLDER.parent / "bench"))
try:
    from unseen_operators.recast import FAMILIES
except ImportError:  # PyTorch, for the other files of that folder
    FAMILIES = {}

from nestor.nests.evaluate import evaluate
from nestor.nests.isl_text import pieces


def inputs_of(family):
    """Of the first nest, by name."""
    random, nest = numpy.random.default_rng(1), family.nests[0]
    found = {}
    for tensor in nest.tensors:
        if tensor.role == "input":
            shape = [int(pieces(text)[0].functions[0].value(family.tiny)) for text in tensor.shape]
            normal = random.standard_normal(shape)
            found[tensor.name] = family.draw.get(tensor.name, lambda x, _: x)(normal, family.tiny)
    return found


def results_of(family, nest, inputs):
    """In order, as the family's first nest has them."""
    into, back = family.lay.get(nest.op, (lambda x: x, lambda x: x))
    sizes = {size.name: family.tiny[size.name] for size in nest.sizes}
    found = evaluate(nest, {name: into(each) for name, each in inputs.items()}, sizes)
    return [back(found[tensor.name]) for tensor in nest.tensors if tensor.role == "output"]


@unittest.skipUnless(FAMILIES and numpy, "PyTorch is not installed")
class RewrittenTest(unittest.TestCase):
    def test_members_of_a_family_compute_the_same(self):
        for name, family in FAMILIES.items():
            inputs = inputs_of(family)
            wanted = results_of(family, family.nests[0], inputs)
            for nest in family.nests[1:]:
                with self.subTest(nest.op):
                    found = results_of(family, nest, inputs)
                    self.assertEqual(len(found), len(wanted))
                    for ours, theirs in zip(found, wanted):
                        self.assertGreater(numpy.abs(theirs).max(), 0, name)
                        numpy.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)

    def test_families_have_several_members_that_differ(self):
        nests = [nest for family in FAMILIES.values() for nest in family.nests]
        self.assertEqual(len({nest.op for nest in nests}), len(nests))
        self.assertTrue(all(len({nest.json() for nest in family.nests}) == len(family.nests) > 1 for family in FAMILIES.values()))


if __name__ == "__main__":
    unittest.main()
