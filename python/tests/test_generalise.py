"""Constant extents of a nest as sizes: which become sizes, which stay, and that the nest says the same."""

import unittest

from support import numpy

import nestor
from nestor.nests.evaluate import evaluate
from nestor.nests.generalise import generalise
from nestor.nests.model import Nest


def nest_of(tensors, statements):
    """A nest of {name: (role, shape)} and (name, {dim: extent}, write, reads, value) with accesses as isl's index lists."""
    def relation(name, dims, access):
        return {"tensor": access[0], "relation": f"{{ {name}[{', '.join(dims)}] -> {access[0]}[{access[1]}] }}"}

    return Nest.from_dict({
        "format": 1, "op": "given", "variant": "f32", "sizes": [], "scalars": [], "context": "{ : }", "tolerance": 1e-4,
        "tensors": [{"name": name, "type": "f32", "role": role, "shape": [f"{{ [({extent})] }}" for extent in shape]}
                    for name, (role, shape) in tensors.items()],
        "statements": [{"name": name, "dims": list(dims), "write": relation(name, dims, write), "indices": [], "group": group,
                        "reads": [relation(name, dims, read) for read in reads], "value": value,
                        "domain": f"{{ {name}[{', '.join(dims)}] : "
                                  + " and ".join(f"0 <= {dim} and {dim} <= {extent - 1}" for dim, extent in dims.items()) + " }"}
                       for group, (name, dims, write, reads, value) in enumerate(statements)]})


READ = {"op": "read", "ordinal": 0, "type": "f32"}


class GeneraliseTest(unittest.TestCase):
    def copied(self, shape, dims, read, write=None):
        """y[i, j] = x[read] over dims, generalised."""
        nest = nest_of({"x": ("input", shape), "y": ("output", tuple(dims.values()))},
                       [("S", dims, ("y", write or ", ".join(dims)), [("x", read)], READ)])
        return nest, generalise(nest, {tensor.name: [False] * (len(tensor.shape) - 1) for tensor in nest.tensors})

    def test_extents_that_index_maps_make_equal_are_one_size(self):
        _, general = self.copied((8, 5), {"i": 5, "j": 8}, "j, i")
        self.assertEqual(general.values, {"n0": 8, "n1": 5})
        self.assertEqual([tensor.shape for tensor in general.nest.tensors],
                         [tuple(f"[n0, n1] -> {{ [({name})] }}" for name in row) for row in (("n0", "n1"), ("n1", "n0"))])

    def test_other_uses_keep_an_extent(self):
        for read in ("i + 1, j", "9 - i, j", "0i + i + 1, j"):
            with self.subTest(read=read):
                _, general = self.copied((10, 5), {"i": 9, "j": 5}, read)
                self.assertEqual(general.values, {"n0": 5})

    def test_a_constant_index_keeps_the_extent_of_its_tensor(self):
        _, general = self.copied((10, 5), {"i": 9, "j": 5}, "0, j")
        self.assertEqual([tensor.shape[0] for tensor in general.nest.tensors],
                         ["[n0, n1] -> { [(10)] }", "[n0, n1] -> { [(n1)] }"])

    def test_a_part_of_a_dim_keeps_its_extent(self):
        _, general = self.copied((10, 5), {"i": 9, "j": 5}, "i, j")
        self.assertEqual(general.values, {"n0": 5})

    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_rows_of_rows_become_indices(self):
        nest, general = self.copied((24, 6), {"a": 4, "b": 2, "c": 6, "d": 3}, "6a + c, 3b + d")
        self.assertEqual(general.rows, {"x": ((4, 6), (2, 3))})
        self.assertEqual(general.view("x", (24, 6)), (4, 6, 2, 3))
        self.assertEqual(general.view("y", (4, 2, 6, 3)), (4, 2, 6, 3))
        self.assertEqual(sorted(general.values.values()), [2, 3, 4, 6])
        x = numpy.random.default_rng(1).normal(size=(24, 6))
        found = evaluate(general.nest, {"x": x.reshape(4, 6, 2, 3)}, general.values)["y"]
        numpy.testing.assert_array_equal(found, evaluate(nest, {"x": x}, {})["y"])
        numpy.testing.assert_array_equal(found, x.reshape(4, 6, 2, 3).transpose(0, 2, 1, 3))

    def test_other_strides_are_no_rows(self):
        for read in ("5a + c, 3b + d", "6a + c + 1, 3b + d", "6a + 6c, 3b + d"):
            with self.subTest(read=read):
                _, general = self.copied((30, 6), {"a": 4, "b": 2, "c": 6, "d": 3}, read)
                self.assertEqual([len(tensor.shape) for tensor in general.nest.tensors], [3, 4])

    def test_last_indices_are_fixed_when_compiling(self):
        _, general = self.copied((8, 5), {"i": 8, "j": 5}, "i, j")
        self.assertEqual([size.specialized for size in general.nest.sizes], [False, True])
        _, turned = self.copied((8, 5), {"i": 5, "j": 8}, "j, i")
        self.assertEqual([size.specialized for size in turned.nest.sizes], [False, False])

    def test_results_of_one_shape_stay_so(self):
        def named(*shapes):
            tensors = {f"x{k}": ("input", shape) for k, shape in enumerate(shapes)}
            tensors |= {f"y{k}": ("output", shape) for k, shape in enumerate(shapes)}
            return generalise(nest_of(tensors, [(f"S{k}", {"i": shape[0], "j": shape[1]}, (f"y{k}", "i, j"), [(f"x{k}", "i, j")], READ)
                                                for k, shape in enumerate(shapes)])).values

        self.assertEqual(list(named((4, 6), (4, 6)).values()), [4, 6])
        self.assertEqual(list(named((4, 6), (4, 7)).values()), [4, 6, 4, 7])

    def test_long_sums_of_products_of_matrices_are_not_fixed(self):
        product = {"op": "mul", "args": [READ, {**READ, "ordinal": 1}]}

        def fixed(length, other, squares=False):
            """Whether the length of the sums of y[i, j] = x[i, k] * w[...] is known when compiling."""
            tensors = {"x": ("input", (4, length)), "w": ("input", (5, length)), "y": ("output", (4, 5)), "z": ("output", (4,))}
            statements = [("S", {"i": 4, "j": 5, "k": length}, ("y", "i, j"), [("x", "i, k"), ("w", other)], product)]
            if squares:
                statements.append(("T", {"i": 4, "k": length}, ("z", "i"), [("x", "i, k"), ("x", "i, k")], product))
            found = nest_of(tensors, statements).to_dict()
            for statement in found["statements"]:
                statement["reduction"] = "add"
            general = generalise(Nest.from_dict(found))
            return {general.values[size.name]: size.specialized for size in general.nest.sizes}[length]

        self.assertFalse(fixed(1024, "j, k"))
        self.assertTrue(fixed(64, "j, k"))  # rows of heads, which a kernel holds whole
        self.assertTrue(fixed(1024, "j, k", squares=True))  # rows that are reduced otherwise, too
        self.assertTrue(fixed(1024, "0, k"))  # no product of matrices

    def test_names_do_not_clash(self):
        nest = nest_of({"n0": ("input", (4,)), "y": ("output", (4,))}, [("S", {"n1": 4}, ("y", "n1"), [("n0", "n1")], READ)])
        self.assertEqual(generalise(nest).values, {"n2": 4})

    def test_dims_that_are_compared_are_one_size_where_they_are_equal(self):
        for extent, sizes in ((6, 1), (7, 2)):
            with self.subTest(extent=extent):
                nest = nest_of({"x": ("input", (6, extent)), "y": ("output", (6, extent))},
                               [("S", {"i": 6, "j": extent}, ("y", "i, j"), [("x", "i, j")],
                                 {"op": "select", "args": [{"op": "le", "args": [{"op": "index", "ordinal": 0},
                                                                                 {"op": "index", "ordinal": 1}]},
                                                           READ, {"op": "constant", "number": 0.0, "type": "f32"}]})])
                found = nest.to_dict()
                found["statements"][0]["indices"] = ["{ S[i, j] -> [(i)] }", "{ S[i, j] -> [(j)] }"]
                self.assertEqual(len(generalise(Nest.from_dict(found)).values), sizes)

    def test_a_place_in_memory_relates_no_dims(self):
        nest = nest_of({"x": ("input", (6, 6)), "y": ("output", (6, 6))},
                       [("S", {"i": 6, "j": 6}, ("y", "i, j"), [("x", "i, j")],
                         {"op": "add", "args": [READ, {"op": "cast", "type": "f32", "args": [{"op": "index", "ordinal": 0}]}]})])
        for form, sizes in (("6i + j", 2), ("7i + j", 1), ("6i - j", 1)):
            with self.subTest(form=form):
                found = nest.to_dict()
                found["statements"][0]["indices"] = [f"{{ S[i, j] -> [({form})] }}"]
                self.assertEqual(len(generalise(Nest.from_dict(found)).values), sizes)

    def test_ones_stay(self):
        _, general = self.copied((1, 5), {"i": 1, "j": 5}, "i, j")
        self.assertEqual(general.values, {"n0": 5})

    def test_text_that_is_no_nest_is_refused(self):
        nest, _ = self.copied((8, 5), {"i": 8, "j": 5}, "i, j")
        broken = nest.to_dict()
        broken["statements"][0]["reads"][0]["relation"] = "{ S[i, j] => x }"
        with self.assertRaises(nestor.UserError):
            generalise(Nest.from_dict(broken))


if __name__ == "__main__":
    unittest.main()
