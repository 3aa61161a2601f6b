"""Operators and functions of values: what they compute at their edges, beside numpy; which forms of a shift are cheap."""

import builtins
import itertools
import math
import unittest

from support import folder, needs_program, numpy

import nestor
from nestor import Size, Tensor, bf16, define, f16, f32, i32, indices
from nestor.nests.values import as_value, nodes_of

n = Size("n")
i, k = indices(i=n, k=n)
word, real = Tensor("word", "i32", (n,)), Tensor("real", "f32", (n,))
WORDS = (0, 1, -1, 7, -7, 255, -256, 65537, 2**31 - 1, -2**31, -123456789)
REALS = (0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.49999997, -0.49999997, 1e-10, -1e-10, 8388607.5, -4194303.5, 1e30,
         -1e30,
         20, -20, 100, -100, math.pi, math.inf, -math.inf, math.nan)


def ops(value):
    return [node.op for node in nodes_of(value)]


def nest_of(*values, kind=f32, second=None):
    """A nest whose outputs o0, o1, ... are functions of an element of x, or of elements of x and y."""
    def function(x: kind[n]):
        return tuple(define(f"o{number}", i, value(x[i])) for number, value in enumerate(values))

    def of_two(x: kind[n], y: (second or kind)[n]):
        return tuple(define(f"o{number}", i, value(x[i], y[i])) for number, value in enumerate(values))
    return nestor.nest(of_two if second else function, op="values")


class ShiftTest(unittest.TestCase):
    def test_only_what_differs_pays_for_the_sign(self):
        for shifted in (lambda: (word[i] >> 28) & 15, lambda: 15 & (word[i] >> (4 * (k % 8))), lambda: (word[i] >> 31) & 1,
                        lambda: (word[i] & 255) >> word[k], lambda: (nestor.shift_right_logical(word[i], 1) >> 3),
                        lambda: (word[i] >> (16 * (k % 2) + 4 * (k % 8 // 2))) & 15, lambda: i >> word[k],
                        lambda: 7 >> word[k]):
            found = shifted()
            self.assertIn("shift_right_logical", ops(found))
            self.assertNotIn("select", ops(found), found)
        for shifted in (lambda: (word[i] >> 29) & 15, lambda: (word[i] >> (4 * k)) & 15, lambda: (word[i] >> 4) & -16,
                        lambda: (word[i] >> word[k]) & 1, lambda: word[i] >> 4, lambda: (word[i] >> (k % 8 - 1)) & 1):
            self.assertIn("select", ops(shifted()), shifted())

    def test_shifted_indices_are_affine(self):
        self.assertEqual((i >> 3).affine, (i // 8).affine)
        self.assertEqual(((i - k) >> 1).affine, ((i - k) // 2).affine)
        self.assertEqual((as_value(-5) >> 1).payload, -3)

    def test_text_is_what_was_written(self):
        self.assertEqual(repr((word[i] >> 3) + 1), "(word[i] >> 3) + 1")

    def test_reals_are_not_shifted(self):
        for shifted in (lambda: real[i] >> 1, lambda: real[i] << 1, lambda: 1 >> real[i]):
            with self.assertRaisesRegex(nestor.UserError, "works on i32"):
                shifted()

    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_shifts_are_pythons(self):
        amounts = (0, 1, 4, 13, 31)
        values = [lambda x, amount=amount: x >> amount for amount in amounts]
        values += [lambda x, amount=amount: nestor.shift_right_logical(x, amount) for amount in amounts]
        nest, words = nest_of(*values, kind=i32), numpy.array(WORDS, "int32")
        found = nestor.evaluate(nest, {"x": words})
        for number, amount in enumerate(amounts):
            numpy.testing.assert_array_equal(found[f"o{number}"], words >> amount)
            logical = (words.view("uint32") >> numpy.uint32(amount)).view("int32")
            numpy.testing.assert_array_equal(found[f"o{number + len(amounts)}"], logical)

    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_masks_amounts_of_data_and_numbers_that_are_shifted(self):
        nest = nest_of(lambda x, y: x >> y, lambda x, y: (x >> 24) & 255, lambda x, y: (x >> y) & 15, lambda x,
                       y: (x >> 29) & 15,
                       lambda x, y: -9 >> y, lambda x, y: 9 >> y, lambda x, y: 9 << y, lambda x, y: 6 ^ x, kind=i32, second=i32)
        words, amounts = (numpy.array(each, "int32") for each in zip(*itertools.product(WORDS, (0, 1, 5, 29, 31))))
        found = nestor.evaluate(nest, {"x": words, "y": amounts})
        nine = numpy.int32(9)
        for number, want in enumerate((words >> amounts, words >> 24 & 255, words >> amounts & 15, words >> 29 & 15,
                                       -nine >> amounts,
                                       nine >> amounts, nine << amounts, 6 ^ words)):
            numpy.testing.assert_array_equal(found[f"o{number}"], want, str(number))


    @needs_program
    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_kernels_shift_as_python_does(self):
        nest = nest_of(lambda x, y: x >> y, lambda x, y: x >> 31, lambda x, y: (x >> 24) & 255, lambda x, y: -9 >> y, kind=i32,
                       second=i32)
        words, amounts = (numpy.array(each, "int32") for each in zip(*itertools.product(WORDS, (0, 1, 5, 29, 31))))
        tuned = nestor.tune(nest, {"n": len(words)}, time=1, trials=2, target="host",
                            db=f"{folder()}/shifts.db", progress=False)
        found = [numpy.full_like(words, 99) for _ in range(4)]
        tuned(words, amounts, *found)
        for got, want in zip(found, (words >> amounts, words >> 31, words >> 24 & 255, numpy.int32(-9) >> amounts)):
            numpy.testing.assert_array_equal(got, want)


@unittest.skipUnless(numpy, "numpy is not installed")
class OperatorTest(unittest.TestCase):
    def test_numbers_on_the_left(self):
        nest = nest_of(lambda x: 2**x, lambda x: +x, kind=f32)
        found = nestor.evaluate(nest, {"x": numpy.array([-1, 0.5, 3])})
        numpy.testing.assert_allclose(found["o0"], [0.5, 2**0.5, 8])
        numpy.testing.assert_array_equal(found["o1"], [-1, 0.5, 3])
        words = numpy.array([-7, -2, 1, 2, 5])
        numpy.testing.assert_array_equal(nestor.evaluate(nest_of(lambda x: 7 % x, kind=i32), {"x": words})["o0"], 7 % words)

    def test_indices_sizes_and_tensors_without_indices_have_all_operators(self):
        @nestor.nest
        def numbers(x: f32[n], y: i32[()]):
            return define("a", i, (i & 1) + (3 ^ i) * (1 << y) + abs(i) + +i), define("b", i,
                                                                                      (y >> 1) + 7 % (y & 3) + (2**y) * 0.5)

        found = nestor.evaluate(numbers, {"x": numpy.zeros(5), "y": numpy.array(-6)})
        place = numpy.arange(5)
        numpy.testing.assert_array_equal(found["a"], (place & 1) + (3 ^ place) * (1 << 26) + 2 * place)
        numpy.testing.assert_array_equal(found["b"], (-6 >> 1) + 7 % (-6 & 3) + 2.0**-6 * 0.5)

    def test_scalars_of_numpy_are_constants(self):
        values = (lambda x: x * numpy.int64(2), lambda x: numpy.float32(0.5) * x, lambda x: x + numpy.float64(3),
                  lambda x: numpy.int32(7) - x,
                  lambda x: nestor.select((x > numpy.float32(1)) & numpy.bool_(True), numpy.int64(1), 0.0),
                  lambda x: nestor.select(numpy.float32(1) < x, x, numpy.array(4.0)))
        x = numpy.array([0.5, 1, 2, 3])
        found = nestor.evaluate(nest_of(*values), {"x": x})
        for number, want in enumerate((x * 2, 0.5 * x, x + 3, 7 - x, x > 1, numpy.where(x > 1, x, 4.0))):
            numpy.testing.assert_array_equal(found[f"o{number}"], want, str(number))
        self.assertEqual((numpy.int64(2) <= i).condition, (i >= 2).condition)
        self.assertEqual((numpy.int64(2) * i).affine, (2 * i).affine)

    def test_arrays_of_numpy_hold_values(self):
        weights = numpy.array([1.0, 2.0, 1.0])
        x = Tensor("x", "f32", (n + 2,))
        taps = weights * numpy.array([x[i + tap] for tap in range(3)], dtype=object)
        nest = nestor.nests.assemble.assemble("taps", "f32", [define("out", i, taps.sum())])
        numpy.testing.assert_array_equal(nestor.evaluate(nest, {"x": numpy.arange(5.0)})["out"], [4, 8, 12])
        self.assertEqual([repr(each) for each in weights * x[i]], ["1.0 * x[i]", "2.0 * x[i]", "1.0 * x[i]"])


@unittest.skipUnless(numpy, "numpy is not installed")
class FunctionTest(unittest.TestCase):
    functions = (nestor.round, nestor.ceil, nestor.sign, nestor.tan, nestor.relu, nestor.silu, nestor.gelu,
                 lambda x: nestor.gelu(x, approximate="none"), lambda x: nestor.gelu(x, approximate="tanh"), nestor.softplus,
                 lambda x: nestor.clamp(x, -1, 2), lambda x: nestor.clamp(x, high=3), lambda x: nestor.clamp(x, 5, 4),
                 lambda x: nestor.pow(x, 2), lambda x: nestor.where(x > 0, x, 1))

    @staticmethod
    def wanted(x):
        with numpy.errstate(all="ignore"):
            erf = numpy.array([math.erf(each * 0.5**0.5) for each in x])
            tanh = numpy.tanh((2 / math.pi)**0.5 * (x + 0.044715 * x**3))
            return (numpy.round(x), numpy.ceil(x), numpy.where(numpy.isnan(x), 0, numpy.sign(x)), numpy.tan(x),
                    numpy.maximum(x, 0),
                    x / (1 + numpy.exp(-x)), x * (1 + erf) / 2, x * (1 + erf) / 2, x * (1 + tanh) / 2, numpy.logaddexp(x, 0), numpy.clip(x, -1, 2),
                    numpy.minimum(x, 3),
                    numpy.where(numpy.isnan(x), x, 4), x * x, numpy.where(x > 0, x, 1))

    def test_functions_at_their_edges(self):
        x = numpy.array(REALS, "float32").astype("float64")
        found = nestor.evaluate(nest_of(*self.functions), {"x": x})
        for number, want in enumerate(self.wanted(x)):
            numpy.testing.assert_allclose(found[f"o{number}"], want, rtol=1e-6, atol=1e-7, err_msg=str(number))

    @needs_program
    def test_kernels_have_the_same_edges(self):
        x = numpy.array(REALS, "float32")
        nest = nest_of(*self.functions)
        tuned = nestor.tune(nest, {"n": len(x)}, time=1, trials=2, target="host", db=f"{folder()}/functions.db", progress=False)
        found = [numpy.empty_like(x) for _ in self.functions]
        tuned(x, *found)
        for number, (got, want) in enumerate(zip(found, self.wanted(x.astype("float64")))):
            with numpy.errstate(over="ignore"):
                want = want.astype("float32")
            numpy.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=str(number))

    def test_integers_stay_integers(self):
        nest = nest_of(nestor.round, nestor.ceil, nestor.sign, nestor.relu, lambda x: nestor.clamp(x, -2, 5), builtins.round,
                       math.floor,
                       math.ceil, kind=i32)
        x = numpy.array([-9, -1, 0, 3, 77])
        found = nestor.evaluate(nest, {"x": x})
        self.assertEqual({tensor.type for tensor in nest.tensors}, {"i32"})
        for number, want in enumerate((x, x, numpy.sign(x), numpy.maximum(x, 0), numpy.clip(x, -2, 5), x, x, x)):
            numpy.testing.assert_array_equal(found[f"o{number}"], want, str(number))

    def test_angles_in_all_quadrants(self):
        y, x = (numpy.array(each, "float32").astype("float64") for each in zip(*itertools.product(REALS, REALS)))
        found = nestor.evaluate(nest_of(nestor.atan2, second=f32), {"x": y, "y": x})["o0"]
        numpy.testing.assert_allclose(found, numpy.arctan2(y, x), rtol=1e-6, atol=0)
        zero = found == 0
        self.assertGreater(zero.sum(), 20)
        numpy.testing.assert_array_equal(numpy.signbit(found[zero]), numpy.signbit(y[zero]))

    def test_means_of_the_points_that_hold(self):
        @nestor.nest
        def means(x: f32[n]):
            return define("before", i, nestor.mean(x[k], over=k, where=k < i)), define("some", (), nestor.mean(x[k], k,
                                                                                                               where=k >= 2))

        x = numpy.array([3.0, 1.0, 5.0, 10.0])
        found = nestor.evaluate(means, {"x": x})
        numpy.testing.assert_allclose(found["before"], [numpy.nan, 3, 2, 3])
        self.assertEqual(found["some"], 7.5)

    def test_means_of_many_points(self):
        @nestor.nest
        def triangle(x: f32[n, n]):
            return define("o", (), nestor.mean(x[i, k], over=(i, k), where=k <= i))

        counts = [tensor for tensor in triangle.tensors if tensor.type == "i32"]
        self.assertTrue(counts and all(tensor.shape and "n" in tensor.shape[0] for tensor in counts),
                        "32 bits count the points of a row, not all")
        x = numpy.arange(9.0).reshape(3, 3)
        self.assertAlmostEqual(float(nestor.evaluate(triangle, {"x": x})["o"]), numpy.tril(x).sum() / 6)

    def test_means_of_no_points(self):
        width = Size("width", 6)
        (q,) = indices(q=width - 3)

        @nestor.nest
        def late(x: f32[width]):
            return define("o", (), nestor.mean(x[q + 3], over=q))

        for count in (1, 2, 3):
            self.assertTrue(numpy.isnan(nestor.evaluate(late, {"x": numpy.ones(count)})["o"]), count)
        self.assertEqual(nestor.evaluate(late, {"x": numpy.ones(5)})["o"], 1)

    def test_casts_to_16_bits_round(self):
        @nestor.nest
        def rounded(x: f32[n]):
            return (define("half", i, nestor.cast(f32, nestor.cast(f16, x[i] * 3))), define("short", i, nestor.cast(f32, nestor.cast(bf16, x[i] * 3))),
                    define("stored", i, x[i] * 3, type=f16))

        x = numpy.array([0.1, 1 / 3, 1e5, -1e5, numpy.nan, 1e-8, 1.5e38], "float32").astype("float64")
        found = nestor.evaluate(rounded, {"x": x})
        with numpy.errstate(all="ignore"):
            numpy.testing.assert_array_equal(found["half"], (x * 3).astype("float16").astype("float64"))
        numpy.testing.assert_allclose(found["short"][:4], (x * 3)[:4], rtol=2**-8)
        self.assertEqual(found["short"][6], numpy.inf)
        self.assertFalse(numpy.array_equal(found["short"][:2], (x * 3)[:2]))
        numpy.testing.assert_array_equal(found["stored"], x * 3, "without rounding to the types of its tensors")

    def test_places_of_extrema(self):
        rows = Size("rows")
        (r,) = indices(r=rows)

        @nestor.nest
        def places(x: f32[rows, n], w: i32[rows, n]):
            return (define("most", r, nestor.argmax(x[r, k], over=k)), define("least", r, nestor.argmin(x[r, k], over=k)),
                    define("word", r, nestor.argmax(w[r, k], over=k)), define("late", r, nestor.argmin(x[r, k], over=k,
                                                                                                       where=k >= 2)),
                    define("none", r, nestor.argmax(x[r, k], over=k, where=k < 0)))

        nan, inf = math.nan, math.inf
        x = numpy.array([[1.0, 5, 5, 2], [-inf, -inf, -inf, -inf], [1, nan, 9, nan], [inf, 3, -1, inf]])
        w = numpy.array([[1, 5, 5, 2], [-2**31] * 4, [0, 0, 0, 1], [3, 2, 1, 0]])
        found = nestor.evaluate(places, {"x": x, "w": w})
        self.assertEqual({places.tensor(name).type for name in found}, {"i32"})
        for name, want in (("most", [1, 0, 1, 0]), ("least", [0, 0, 1, 2]), ("word", [1, 0, 3, 0]), ("late", [3, 2, 3, 2]),
                           ("none", [2**31 - 1] * 4)):
            numpy.testing.assert_array_equal(found[name], want, name)

    def test_what_functions_refuse(self):
        for said, message in ((lambda: nestor.clamp(real[i]), "takes a limit"),
                              (lambda: nestor.gelu(real[i], "erf"), 'must be "none" or "tanh", not .erf.'), (lambda: round(real[i], 2), "takes no digits"),
                              (lambda: nestor.argmax(real[k] * 2, over=k), "takes an element: give the value a name"),
                              (lambda: nestor.argmin(real[k], over=(i, k)), "over one index, not 2")):
            with self.assertRaisesRegex(nestor.UserError, message):
                said()


if __name__ == "__main__":
    unittest.main()
