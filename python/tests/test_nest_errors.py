"""What definitions in Python must not say: indices that are not affine, and elements that are not there, as the program sees it."""

import unittest

from support import PROGRAM, numpy

import nestor
from nestor import Size, Tensor, define, f32, indices

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
                              (lambda: row.write(i, at[i], 1.0), r"at\[i\] is no integer"),
                              (lambda: row[1.5], "1.5 is no integer .* sums of them times constants")):
            with self.subTest(message), self.assertRaisesRegex(nestor.NotAffine, message):
                said()
        deep = x[i, s]
        for _ in range(200):
            deep = deep * deep
        with self.assertRaisesRegex(nestor.NotAffine, r"\.\.\."):
            row[deep]

    def test_extrema_of_two_values_are_asked_for_by_name(self):
        for function, name in ((nestor.max, "maximum"), (nestor.min, "minimum")):
            for second in (0.0, 1, row[k], i + 1):
                with self.assertRaisesRegex(nestor.UserError, rf"is none; of two values, nestor.{name}\(a, b\)"):
                    function(row[i], second)


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
