"""Neighbouring indices of a nest as one: where they become one, where they stay two, and that the nest says the same."""

import dataclasses
import json
import unittest

from support import numpy
from test_generalise import READ, nest_of

from nestor.nests.collapse import collapse
from nestor.nests.evaluate import evaluate
from nestor.nests.generalise import generalise
from nestor.nests.model import Nest


def dense(nest):
    return {tensor.name: [True] * (len(tensor.shape) - 1) for tensor in nest.arguments}


def sums(changes=None):
    """Sums of x[4, 6, 5] over rows and over columns, and x less its row's sum."""
    rows, columns = {"i": 4, "j": 6, "k": 5}, {"k": 5, "a": 4, "c": 6}
    difference = {"op": "sub", "args": [READ, {**READ, "ordinal": 1}]}
    found = nest_of({"x": ("input", (4, 6, 5)), "r": ("output", (4, 6)), "c": ("output", (5,)), "y": ("output", (4, 6, 5))},
                    [("R", rows, ("r", "i, j"), [("x", "i, j, k")], READ),
                     ("C", columns, ("c", "k"), [("x", "a, c, k")], READ),
                     ("Y", rows, ("y", "i, j, k"), [("x", "i, j, k"), ("r", "i, j")], difference)]).to_dict()
    for statement in found["statements"][:2]:
        statement["reduction"] = "add"
    (changes or (lambda nest: None))(found)
    return Nest.from_dict(found)


def started(nest):
    """One of `sums` with statements in front that start them at 0, as evaluation needs."""
    zero = {"op": "constant", "number": 0.0, "type": "f32"}
    starts = nest_of({"r": ("output", (4, 6)), "c": ("output", (5,))},
                     [("R0", {"i": 4, "j": 6}, ("r", "i, j"), [], zero), ("C0", {"k": 5}, ("c", "k"), [], zero)]).statements
    later = (dataclasses.replace(each, group=each.group + len(starts)) for each in nest.statements)
    return dataclasses.replace(nest, statements=(*starts, *later))


def shapes(nest):
    return {tensor.name: [text.split("[(")[1].split(")]")[0] for text in tensor.shape] for tensor in nest.tensors}


class CollapseTest(unittest.TestCase):
    def test_rows_and_columns_see_one_index(self):
        found = collapse(sums(), dense(sums()))
        self.assertEqual(shapes(found.nest), {"x": ["24", "5"], "r": ["24"], "c": ["5"], "y": ["24", "5"]})
        self.assertEqual([statement.dims for statement in found.nest.statements], [("i", "k"), ("k", "a"), ("i", "k")])
        self.assertEqual(found.counts["y"], (2, 1))
        self.assertEqual(collapse(found.nest, dense(found.nest)).nest, found.nest)

    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_the_nest_says_the_same(self):
        nest = started(sums())
        general = generalise(nest, dense(nest))
        x = numpy.random.default_rng(1).standard_normal((4, 6, 5))
        wanted = evaluate(nest, {"x": x}, {})
        found = evaluate(general.nest, {"x": x.reshape(general.view("x", (4, 6, 5)))}, general.values)
        for name, values in wanted.items():
            numpy.testing.assert_allclose(found[name], values.reshape(general.view(name, values.shape)), rtol=1e-12)
        self.assertEqual(sorted(general.values.values()), [5, 24])

    def test_memory_that_is_apart_stays_two_indices(self):
        for name, row in (("x", [False, True]), ("y", [False, False]), ("r", [False])):
            with self.subTest(name=name):
                self.assertEqual(collapse(sums(), {**dense(sums()), name: row}).nest, sums())

    def test_tensors_without_memory_do_not_matter(self):
        def as_temporary(nest):
            nest["tensors"][1]["role"] = "temporary"
        self.assertEqual(shapes(collapse(sums(as_temporary), dense(sums(as_temporary))).nest)["r"], ["24"])

    def test_other_uses_keep_two_indices(self):
        def turned(nest):  # y is [6, 4, 5]
            nest["tensors"][3]["shape"][:2] = reversed(nest["tensors"][3]["shape"][:2])
            nest["statements"][2]["write"]["relation"] = "{ Y[i, j, k] -> y[j, i, k] }"

        def shifted(nest):  # r has a row more
            nest["tensors"][1]["shape"][0] = "{ [(5)] }"
            nest["statements"][2]["reads"][1]["relation"] = "{ Y[i, j, k] -> r[i + 1, j] }"

        def compared(nest):
            nest["statements"][2]["domain"] = ("{ Y[i, j, k] : 0 <= i and i <= 3 and 0 <= j and j <= 5 and j <= i + 3 "
                                               "and 0 <= k and k <= 4 }")

        def half(nest):
            nest["statements"][2]["domain"] = "{ Y[i, j, k] : 0 <= i and i <= 1 and 0 <= j and j <= 5 and 0 <= k and k <= 4 }"

        def computed(nest):
            nest["statements"][2]["indices"] = ["{ Y[i, j, k] -> [(j)] }"]

        def of_one(nest):  # sums over j alone
            nest["tensors"][2]["shape"] = ["{ [(4)] }", "{ [(5)] }"]
            nest["statements"][1]["write"]["relation"] = "{ C[k, a, c] -> c[a, k] }"

        for change in (turned, shifted, compared, half, computed, of_one):
            with self.subTest(change=change.__name__):
                nest = sums(change)
                self.assertEqual(collapse(nest, dense(nest)).nest, nest)

    def test_integers_that_see_both_as_one_stay_right(self):
        def placed(form):
            def change(nest):
                nest["statements"][2]["indices"] = [f"{{ Y[i, j, k] -> [({form})] }}"]
                nest["statements"][2]["value"] = {"op": "add", "args": [
                    {"op": "cast", "type": "f32", "args": [{"op": "index", "ordinal": 0}]}, difference]}
            difference = sums().to_dict()["statements"][2]["value"]
            return sums(change)

        for form, after in (("30i + 5j + k", "5i + k"), ("6i + j", "i"), ("k + 3", "k + 3"), ("7 - 12i - 2j", "-2i + 7")):
            with self.subTest(form=form):
                nest = placed(form)
                found = collapse(nest, dense(nest)).nest
                self.assertEqual(found.statements[2].dims, ("i", "k"))
                self.assertIn(f"[({after})]", found.statements[2].indices[0])
        for form in ("30i + 5k + j", "31i + 5j + k", "30i + k", "5j + k", "30i + 5j + floor((30i + 5j)/4)"):
            with self.subTest(form=form):
                self.assertEqual(collapse(placed(form), dense(placed(form))).nest, placed(form))

        if numpy:
            nest, x = started(placed("30i + 5j + k")), numpy.random.default_rng(1).standard_normal((4, 6, 5))
            general = generalise(nest, dense(nest))
            found = evaluate(general.nest, {"x": x.reshape(24, 5)}, general.values)
            numpy.testing.assert_allclose(found["y"].reshape(4, 6, 5), evaluate(nest, {"x": x}, {})["y"], rtol=1e-12)

    def test_indices_of_one_extent_are_not_confused(self):
        nest = nest_of({"x": ("input", (4, 4)), "y": ("output", (4, 4))},
                       [("S", {"i": 4, "j": 4}, ("y", "i, j"), [("x", "j, i")], READ)])
        self.assertEqual(collapse(nest, dense(nest)).nest, nest)
        straight = nest_of({"x": ("input", (4, 4)), "y": ("output", (4, 4))},
                           [("S", {"i": 4, "j": 4}, ("y", "i, j"), [("x", "i, j")], READ)])
        self.assertEqual(shapes(collapse(straight, dense(straight)).nest), {"x": ["16"], "y": ["16"]})

    def test_sizes_become_their_product(self):
        text = sums().json()
        for old, new in (("[(4)]", "[(b)]"), ("[(6)]", "[(l)]"), ("i <= 3", "i <= b - 1"), ("a <= 3", "a <= b - 1"),
                         ("j <= 5", "j <= l - 1"), ("c <= 5", "c <= l - 1"), ('"{ ', '"[b, l] -> { ')):
            text = text.replace(old, new)
        found = json.loads(text)
        found["context"] = "[b, l] -> { : b >= 1 and l >= 1 }"
        found["sizes"] = [{"name": name, "min": 1, "specialized": False, "default": 4} for name in "bl"]
        nest = Nest.from_dict(found)
        flat = collapse(nest, dense(nest))
        self.assertEqual([size.name for size in flat.nest.sizes], ["n2"])
        self.assertEqual(flat.values, {"n2": "b * l"})
        self.assertEqual(shapes(flat.nest)["x"], ["n2", "5"])
        self.assertIn("1 <= n2", flat.nest.context)

        found["context"] = "[b, l] -> { : b >= 1 and l >= 1 and l <= 512 }"  # which the product does not say
        bounded = collapse(Nest.from_dict(found), dense(nest)).nest
        self.assertEqual([size.name for size in bounded.sizes], ["l", "n2"])


if __name__ == "__main__":
    unittest.main()
