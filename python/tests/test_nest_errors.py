"""What definitions in Python must not say: indices that are not affine, and elements that are not there, as the program sees it."""

import math
import unittest
import warnings

from support import PROGRAM, folder, needs_program, numpy

import nestor
from nestor import Size, Tensor, define, f32, i32, indices

n, m = Size("n"), Size("m")
i, k, s = indices(i=n, k=n, s=m)
x, row, at = Tensor("x", "f32", (n, m)), Tensor("row", "f32", (n,)), Tensor("at", "i32", (n,))


class IndexTest(unittest.TestCase):
    def test_what_cannot_index_is_named_with_what_can_be_written(self):
        for said, message in ((lambda: x[at[i], s], r"at\[i\] is no integer .* depends on data.* compare it with an index"),
                              (lambda: row[at[i] * 2 + k], r"\(at\[i\] \* 2\) \+ k is no integer .* depends on data"),
                              (lambda: row[nestor.sum(at[i], over=i)], r"sum\(at\[i\], over=i\) is no integer .* depends on data"),
                              (lambda: row[(i + 1) % n], r"\(i \+ 1\) % n is no integer .* take constants alone.*nestor.select"),
                              (lambda: row[1 + (i + 1) % n], r"\(i \+ 1\) % n\) is no integer .* take constants alone"),
                              (lambda: row[i // n], r"i // n is no integer .* take constants alone"),
                              (lambda: f32[n * m], r"n \* m is no integer .* an index for each: f32\[n, m\]"),
                              (lambda: indices(p=n * m), r"n \* m is no integer .* an index for each"),
                              (lambda: row[nestor.minimum(i, 3)], r"min\(i, 3\) is no integer .* Choose between elements"),
                              (lambda: row.write(i, at[i], 1.0),
                               r"at\[i\] is no integer .* Each place looks for what is meant for it: "
                               r'nestor.define\("row", i, nestor.sum\(nestor.select\(at\[j\] == i, x\[j\], 0.0\), over=j\)\)'),
                              (lambda: x[i, s * (m // n)],
                               r"m // n divides sizes. A tensor takes an index for each part, as f32\[rows, "),
                              (lambda: row[i / 2],
                               r"f32\(i\) / 2.0 is no integer .*: / makes an f32 of them; the quotient of integers is //"),
                              (lambda: row[2.0 * i], "2.0 makes an f32 of them; the integer is 2"),
                              (lambda: row[:],
                               "slice.* is no integer .* reads single elements, as x.i, k.. For all of them, nestor.sum"),
                              (lambda: x[i, ...], "Ellipsis is no integer .* reads single elements"),
                              (lambda: row[1.5], "1.5 is no integer .* sums of them times constants")):
            with self.subTest(message), self.assertRaisesRegex(nestor.NotAffine, message):
                said()
        deep = x[i, s]
        for _ in range(200):
            deep = deep * deep
        with self.assertRaisesRegex(nestor.NotAffine, r"\.\.\."):
            row[deep]

    def test_conditions_that_are_not_affine_say_why(self):
        window = nestor.Scalar(4, name="window")
        for condition, message in ((lambda: i < m / 2, r"not f32\(i\) < \(f32\(m\) / 2.0\): / makes an f32 of them; .* is //"),
                                   (lambda: i * m < 7, "it multiplies them by each other. Make one factor a Python constant"),
                                   (lambda: i > k - window,
                                    "the scalar argument window is data here. Make it a nestor.Size or a Python c"),
                                   (lambda: i // m < 2, "// and % take constants alone"),
                                   (lambda: i < 0.5, "0.5 makes an f32 of them; use integers"),
                                   (lambda: i + 1, r"not i \+ 1: that is a number; compare it"),
                                   (lambda: at[i] > window, "of data, use nestor.select")):
            with self.subTest(message), self.assertRaisesRegex(nestor.UserError,
                                                               "`where` takes conditions that are affine.*" + message):
                define("out", i, row[i], where=condition())

    def test_extrema_of_two_values_are_asked_for_by_name(self):
        for function, name in ((nestor.max, "maximum"), (nestor.min, "minimum")):
            for second in (0.0, 1, row[k], i + 1):
                with self.assertRaisesRegex(nestor.UserError, rf"is none; of two values, nestor.{name}\(a, b\)"):
                    function(row[i], second)


class PythonTest(unittest.TestCase):
    """What Python asks of numbers, sequences and modules."""

    def refused(self, error, *cases):
        for said, message in cases:
            with self.subTest(message), self.assertRaisesRegex(error, message):
                said()

    def test_values_are_no_numbers_yet(self):
        self.refused(nestor.UserError, (lambda: math.exp(row[i]),
                                        r"row\[i\] has no number while .*: math.exp\(x\) is nestor.exp\(x\)"),
                     (lambda: float(i), r"float\(x\) is nestor.cast\(nestor.f32, x\)"),
                     (lambda: int(row[i]), r"int\(x\) is nestor.cast\(nestor.i32, x\)"),
                     (lambda: range(n), r"n has no number .* in place of a loop over range\(n\), make an index"),
                     (lambda: list(row[i]), "is one number, not a sequence"),
                     (lambda: list(n), "is one number, not a sequence"),
                     (lambda: len(x), r"f32 x\[n, m\] has no length"), (lambda: len(n), "n has no length"),
                     (lambda: nestor.sum(row[k], over=k)[i],
                      r"sum\(row\[k\], over=k\) is one number already.* s = nestor.define\("),
                     (lambda: max(row[i], 0),
                      r"In place of if, max and min of Python: nestor.select\(.*nestor.maximum\(a, b\), nestor.min"),
                     (lambda: iter(nestor.steps(i)), r"no loop of Python's: with nestor.steps\(t\)"),
                     (lambda: x @ x, r"@ multiplies matrices, .*nestor.sum\(a\[i, k\] \* b\[k, j\], over=k\)"),
                     (lambda: row[i] @ 2, "@ multiplies matrices"), (lambda: 2 @ x, "@ multiplies matrices"),
                     (lambda: divmod(at[i], 2), "is x // y and x % y"), (lambda: divmod(7, i), "is x // y and x % y"),
                     (lambda: math.trunc(row[i]), r"math.trunc\(x\) is nestor.cast\(nestor.i32, x\)"),
                     (lambda: row.__setitem__(i, 1.0), r"= ... writes nothing: .*nestor.define.*y.write"))
        self.refused(AttributeError, (lambda: row[i].exp(), r"a value of a nest has no exp: .* nestor.exp\(x\)"),
                     (lambda: x.T, r"a tensor of a nest has no T: .*single elements.*x\[j, i\]"),
                     (lambda: x.sum(0), "a tensor of a nest has no sum: nestor.sum does"), (lambda: x.dtype, "has no dtype: x.type"))
        self.assertFalse(hasattr(x, "__array_interface__"))

    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_functions_of_numpy_are_named_as_nestors(self):
        self.refused(nestor.UserError, (lambda: numpy.exp(row[i]),
                                        "numpy.exp takes numbers, not values of a nest: nestor.exp does"),
                     (lambda: numpy.arctan(i), r"nestor.atan\(x\)"),
                     (lambda: numpy.add.reduce(row[i]), "numpy.add takes numbers"),
                     (lambda: numpy.matmul(row[i], row[i]), "numpy.matmul takes numbers, .*: nestor.sum"),
                     (lambda: row[i] * numpy.ones(2), "a ndarray is no value of a nest"))

    def test_names_of_others_are_answered_with_nestors(self):
        self.refused(AttributeError, (lambda: nestor.abs, r"no attribute 'abs': nestor.absolute\(x\), or abs\(x\)"),
                     (lambda: nestor.f8, r"there are no 8-bit types: an i32 holds four bytes"),
                     (lambda: nestor.i8, "no 8-bit types"),
                     (lambda: nestor.f64, "the types are f32, f16, bf16, i32 and boolean, and i64 of arguments"),
                     (lambda: nestor.clip, r"nestor.clamp\(x, low, high\)"), (lambda: nestor.expp, "perhaps nestor.exp"),
                     (lambda: nestor.zzzz, "docs/python_nests.md lists the functions"))
        self.assertFalse(hasattr(nestor, "__wrapped__"))

    def test_casts_say_what_they_take(self):
        self.refused(nestor.UserError, (lambda: nestor.cast(row[i], i32), "takes the type first: nestor.cast.nestor.i32, x"),
                     (lambda: nestor.cast(i, f32), "takes the type first"),
                     (lambda: nestor.cast(x, f32), "takes the type first"),
                     (lambda: nestor.cast("i8", row[i]),
                      "a cast makes f32, f16, bf16, i32 or boolean, not i8: there are no 8-bit types"),
                     (lambda: nestor.i64(row[i]), "not i64: the types are f32, .*, and i64 of arguments"))


class ProductTest(unittest.TestCase):
    def warnings_of(self, value, dims=None, where=nestor.nests.affine.TRUE):
        def chirp(row: f32[n], at: i32[n]):
            return define("out", i if dims is None else dims, value(row, at), where=where)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            nestor.nest(chirp)
        return [str(each.message) for each in found]

    def test_products_of_indices_that_wrap_are_told(self):
        (g,) = indices(g=46342)
        (h,) = indices(h=46341)
        self.assertEqual(self.warnings_of(lambda row, at: nestor.cos(g * g * 0.5), g),
                         ["chirp: g * g is 2147488281 at the default sizes, and wraps around 32 bits: as an f32 it is "
                          "nestor.cast(nestor.f32, g) * g"])
        self.assertEqual(self.warnings_of(lambda row, at: nestor.cos(h * h * 0.5), h), [])
        self.assertEqual(len(self.warnings_of(lambda row, at: nestor.sum(nestor.cos(g * (g + 1) * 0.5) * row[i], over=g))), 1)
        self.assertEqual(self.warnings_of(lambda row, at: nestor.cos(g * g * 0.5), g, where=g < 46341), [])
        wide = Size("wide", 65536)
        self.assertIn("wide * wide is 4294967296", self.warnings_of(lambda row, at: row[i] / (wide * wide))[0])

    def test_what_may_be_meant_is_not_told(self):
        (g,) = indices(g=1 << 20)
        for value in (lambda row, at: at[i] * at[i], lambda row, at: at[i] * 73244475, lambda row, at: nestor.cast(f32, g) * g,
                      lambda row, at: (g * g) & 1023, lambda row, at: (g * g) ^ at[i], lambda row, at: nestor.select(g < 100,
                                                                                                                     g * g, 0),
                      lambda row, at: (g - g % 1024) // 1024 * g):
            self.assertEqual(self.warnings_of(value, (i, g)), [])


@unittest.skipUnless(numpy, "numpy is not installed")
class ElementTest(unittest.TestCase):
    def test_what_is_not_there_is_refused_as_the_program_does(self):
        def gap(row: f32[n]):
            part = define("part", i, row[i], where=i >= 2)
            return define("out", i, part[i])

        def beyond(row: f32[n]):
            return define("out", i, row[i + 1])

        def before(row: f32[n]):
            out = Tensor("out", f32, (n,))
            return out.write(i, i - 1, row[i])

        def no_start(row: f32[n]):
            out = Tensor("out", f32, (n,))
            return out.write((i, k), i, row[k], reduction="add")

        def later(row: f32[n]):
            out = Tensor("out", f32, (n,))
            return out.write(i, i, row[i] + nestor.sum(out[k] * row[i], over=k, where=k <= i))

        def wrong_side(row: f32[n]):
            out = Tensor("out", f32, (n,))
            return out.write(i, i, nestor.select(i <= 1, out[i - 1], row[i]))

        for function, message, place in ((gap, "statement out reads elements of part that were not written before", "i = 0"),
                                         (beyond, "(access to row.*|elements of row that )lie outside the tensor", "i = 4"),
                                         (before, "(access to out.*|elements of out that )lie outside the tensor", "i = 0"),
                                         (no_start, "accumulates into elements of out that were not initialised", "i = 0, k = 0"),
                                         (later, "reads elements of out that were not written before", "i = 0, k = 0"),
                                         (wrong_side, "(access to out.*|elements of out that )lie outside the tensor", "i = 0")):
            nest = nestor.nest(function)
            with self.subTest(function.__name__):
                with self.assertRaisesRegex(nestor.UserError, f"{message}, at .{place}"):
                    nestor.evaluate(nest, {"row": numpy.arange(5.0)})
                if PROGRAM:
                    with self.assertRaisesRegex(nestor.UserError, message):
                        nestor.show(nest)

    def test_statements_that_need_each_other_are_sent_to_steps(self):
        @nestor.nest
        def cell(row: f32[n]):
            one, two = define("one", i, row[i], where=i == 0), define("two", i, row[i], where=i == 0)
            (a,) = indices(a=n - 1)
            one.write(a, a + 1, two[a])
            two.write(a, a + 1, one[a])
            return one, two

        message = "statement one_1 reads elements of two that were not written before.*; two_1 writes .* nestor.steps"
        with self.assertRaisesRegex(nestor.UserError, message):
            nestor.evaluate(cell, {"row": numpy.arange(5.0)})
        if PROGRAM:
            with self.assertRaisesRegex(nestor.UserError, message):
                nestor.tune(cell, target="host", progress=False)

    def test_what_reads_ahead_of_itself_is_told_the_order(self):
        (rest,) = indices(rest=n - 1)

        @nestor.nest
        def backwards(row: f32[n]):
            out = define("out", i, row[i], where=i == n - 1)
            return out.write(rest, rest, row[rest] + 0.5 * out[rest + 1])

        @nestor.nest
        def reversed_points(row: f32[n]):
            out = define("out", i, row[i], where=i == n - 1)
            return out.write(rest, n - 2 - rest, row[n - 2 - rest] + 0.5 * out[n - 1 - rest])

        message = "statement out_1 reads elements of out .* points run in ascending order. For a recurrence from the end.* n - 1"
        with self.assertRaisesRegex(nestor.UserError, message):
            nestor.evaluate(backwards, {"row": numpy.arange(5.0)})
        if PROGRAM:
            with self.assertRaisesRegex(nestor.UserError, message):
                nestor.show(backwards)
            nestor.show(reversed_points)
        wanted = numpy.arange(5.0)
        for place in (3, 2, 1, 0):
            wanted[place] += 0.5 * wanted[place + 1]
        numpy.testing.assert_array_equal(nestor.evaluate(reversed_points, {"row": numpy.arange(5.0)})["out"], wanted)

    def test_arguments_are_not_updated_in_place(self):
        def doubled(row: f32[n]):
            return row.write(i, i, 2 * row[i])

        with self.assertRaisesRegex(nestor.UserError,
                                    "row is an argument, .* no argument is updated in place. Define a copy first"):
            nestor.nest(doubled)

        def other(row: f32[n], out: f32[n]):
            return out.write(i, i, row[i])

        def unseen(row: f32[n]):
            row.write(i, i, 0.0)
            return define("out", i, row[i])

        for written, name in ((other, "out"), (unseen, "row")):
            with self.assertRaisesRegex(nestor.UserError, rf"{name} is an argument, .* in place.*or a tensor of its own, .*nestor.Tensor\("):
                nestor.nest(written)

        @nestor.nest
        def started(row: f32[n]):
            out = Tensor("out", f32, n)
            return out.write(i, i, nestor.select(i >= 1, out[i - 1] + row[i], row[i]))

        numpy.testing.assert_array_equal(nestor.evaluate(started, {"row": numpy.arange(5.0)})["out"], [0, 1, 3, 6, 10])

        @nestor.nest
        def no_start(row: f32[n]):
            out = Tensor("out", f32, (n,))
            return out.write(i, i, out[i] + row[i])

        with self.assertRaisesRegex(nestor.UserError,
                                    "nothing else writes out, and what is written is no input: give it a start"):
            nestor.evaluate(no_start, {"row": numpy.arange(5.0)})

    @needs_program
    def test_sizes_of_a_call_are_given_by_sizes(self):
        degree = Size("degree", 3)
        (p,) = indices(p=degree)

        @nestor.nest
        def powers(row: f32[n]):
            return define("out", i, nestor.sum(row[i] * nestor.cast(f32, p), over=p))

        db = f"{folder()}/sizes.db"
        nestor.tune(powers, {"n": 16}, time=1, trials=2, target="host", db=db, progress=False)
        kernel = nestor.kernel(powers, {"n": 16}, db=db)
        row_, out = numpy.ones(16, "float32"), numpy.zeros(16, "float32")
        with self.assertRaisesRegex(nestor.UserError,
                                    r'size "degree" is missing.* no shape says it: give it as sizes=\{"degree": ...\}'):
            kernel(row_, out)
        with self.assertRaisesRegex(nestor.UserError, r'degree is a size: give it as sizes=\{"degree": 5\}'):
            kernel(row_, out, degree=5)
        self.assertEqual(out.sum(), 0)
        kernel(row_, out, sizes={"degree": 5})
        numpy.testing.assert_array_equal(out, numpy.full(16, 10.0))

    @needs_program
    def test_sizes_that_extents_do_not_tell(self):
        m = Size("m", 7)
        h, p, q = indices(h=n // 2 + 1, p=n + m, q=2 * n - m)

        @nestor.nest
        def half(row: f32[n // 2 + 1], one: f32[()]):
            return define("out", h, row[h] * one[()])

        @nestor.nest(require=2 * n - m >= 1)
        def sums(table: f32[n + m, 2 * n - m]):
            return define("out", (p, q), 2 * table[p, q])

        options = {"time": 1, "trials": 2, "target": "host", "db": f"{folder()}/quotients.db", "progress": False}
        tuned = nestor.tune(half, {"n": 9}, **options)
        row_, one, out = numpy.ones(9, "float32"), numpy.full((), 2, "float32"), numpy.zeros(9, "float32")
        tuned(row_[:5], one, out[:5])
        self.assertEqual(out.sum(), 10)
        with self.assertRaisesRegex(nestor.UserError, r'no shape tells n = 9, which was tuned: give others as sizes=\{"n": ...\}'):
            tuned(row_, one, out)
        with self.assertRaisesRegex(nestor.UserError, r'"n" is missing.* no shape says it: give it as sizes=\{"n": ...\}'):
            tuned.kernel(row_, one, out)
        tuned(row_, one, out, sizes={"n": 16})
        self.assertEqual(out.sum(), 18)
        with self.assertRaisesRegex(nestor.UserError, r'tensor "one" must be a single element, of the shape \(\), not 1'):
            tuned(row_, one.reshape(1), out, sizes={"n": 16})
        with self.assertRaisesRegex(nestor.UserError, r"one must be a single element, of the shape \(\), not \(1,\)"):
            nestor.evaluate(half, {"row": row_, "one": one.reshape(1)}, {"n": 16})
        tuned = nestor.tune(sums, {"n": 9, "m": 7}, **options)
        for shape in ((16, 11), (20, 13)):
            table, out = numpy.ones(shape, "float32"), numpy.zeros(shape, "float32")
            tuned(table, out)
            self.assertTrue((out == 2).all())

    def test_points_without_elements_need_none(self):
        @nestor.nest
        def edges(row: f32[n]):
            part = define("part", i, row[i] * 2, where=i >= 1)
            chosen = nestor.select(i >= 1, part[i], 7.0)
            (a,) = indices(a=n - 1)
            later = Tensor("later", f32, (n,)).write(a, a + 1, row[a + 1])  # at all a, but not everywhere
            kept = define("kept", i, nestor.select(i >= 1, later[i], 3.5) * 2)
            return define("out", i, chosen), define("none", i, row[i - 1], where=i < 0), kept

        for count in (0, 1, 4):
            wanted = numpy.arange(float(count)) * 2
            wanted[:1] = 7
            found = nestor.evaluate(edges, {"row": numpy.arange(float(count))})
            for name in ("out", "kept"):
                numpy.testing.assert_array_equal(found[name], wanted, name)

    def test_means_and_sigmoids(self):
        @nestor.nest
        def means(x: f32[n, m]):
            return (define("all", (), nestor.mean(x[i, s], over=(i, s), name="total")), define("of_rows", i, nestor.mean(x[i, s], s)),
                    define("gate", (i, s), nestor.sigmoid(x[i, s])), define("of_index", i, nestor.sigmoid(i)))

        data = numpy.array([[-numpy.inf, 0.0, 2.0], [800.0, -800.0, numpy.inf]])
        found = nestor.evaluate(means, {"x": data})
        with numpy.errstate(over="ignore"):
            numpy.testing.assert_allclose(found["gate"], 1 / (1 + numpy.exp(-data)))
        numpy.testing.assert_allclose(found["of_index"], 1 / (1 + numpy.exp(-numpy.arange(2.0))))
        numpy.testing.assert_array_equal(found["of_rows"], [-numpy.inf, numpy.inf])
        ordinary = numpy.random.default_rng(1).random((5, 3))
        found = nestor.evaluate(means, {"x": ordinary})
        numpy.testing.assert_allclose(found["all"], ordinary.mean())
        numpy.testing.assert_allclose(found["of_rows"], ordinary.mean(1))
        self.assertTrue(numpy.isnan(nestor.evaluate(means, {"x": ordinary[:, :0]})["of_rows"]).all())


if __name__ == "__main__":
    unittest.main()
