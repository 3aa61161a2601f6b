"""Nests written in Python: what they say, their files, their errors, and what they compute."""

import functools
import json
import math
import pathlib
import random
import subprocess
import tempfile
import unittest

from support import PROGRAM, needs_program, numpy

import nestor
from nestor import Size, define, f32, indices
from nestor.extents import disagreement, names_told, read_extent, sizes_told
from nestor.nests.affine import Affine, both, either
from nestor.nests.isl_text import pieces
from nestor.nests.ranges import least_of, most_of
from nestor.nests.values import Value, as_value, from_affine

if numpy:
    import own_operators

needs_numpy = unittest.skipUnless(numpy, "numpy is not installed")
rows, width = Size("rows"), Size("width")
i, c, k = indices(i=rows, c=width, k=width)
x = nestor.Tensor("x", "f32", (rows, width))


def random_affine(source, names, depth=2):
    form = Affine((), source.randint(-9, 9))
    for name in names:
        form = form + Affine.variable(name) * source.choice((0, 1, 1, -1, 2, 3, -4))
    if depth:
        inner, divisor = random_affine(source, names, depth - 1), source.randint(1, 6)
        form = form + source.choice((inner // divisor, inner % divisor, -(inner // divisor), form))
    return form


def random_condition(source, names, depth=2):
    if not depth:
        a, b = random_affine(source, names, 1), random_affine(source, names, 1)
        return source.choice((a < b, a <= b, a > b, a >= b, a.equals(b), ~a.equals(b)))
    parts = [random_condition(source, names, depth - 1) for _ in range(2)]
    return source.choice((both(*parts), either(*parts), ~both(*parts), ~parts[0]))


class AffineTest(unittest.TestCase):
    names = ("i", "n")

    def values(self, source):
        return {name: source.randint(-20, 20) for name in self.names}

    def test_text_is_read_back_as_the_same_function(self):
        source = random.Random(1)
        for _ in range(300):
            form = random_affine(source, self.names)
            piece, = pieces(f"[n] -> {{ S[i] -> [({form.text()})] }}")
            for _ in range(10):
                values = self.values(source)
                self.assertEqual(piece.functions[0].value(values), form.value(values), form.text())

    def test_conditions_are_read_back_and_negated(self):
        source = random.Random(2)
        for _ in range(300):
            condition = random_condition(source, self.names)
            piece, = pieces(f"[n] -> {{ S[i] : {condition.text()} }}")
            for _ in range(10):
                values = self.values(source)
                holds = bool(condition.value(values))
                self.assertEqual(bool(piece.condition.value(values)), holds, condition.text())
                self.assertEqual(bool((~condition).value(values)), not holds, condition.text())

    def test_substitution_is_composition(self):
        source = random.Random(3)
        for _ in range(200):
            form, inner = random_affine(source, self.names), random_affine(source, self.names)
            values = self.values(source)
            self.assertEqual(form.substitute({"i": inner}).value(values), form.value({**values, "i": inner.value(values)}))

    def test_integer_operations_are_pythons(self):
        source = random.Random(4)
        for _ in range(200):
            form, values, divisor = random_affine(source, self.names), self.values(source), source.randint(1, 9)
            self.assertEqual((form // divisor).value(values), form.value(values) // divisor)
            self.assertEqual((form % divisor).value(values), form.value(values) % divisor)

    def pieced(self, source, depth=3):
        """(a Value that is affine by pieces, the same as a function of values)"""
        if not depth or source.random() < 0.2:
            form = random_affine(source, self.names, 1)
            return from_affine(form), form.value
        (a, first), (b, second) = self.pieced(source, depth - 1), self.pieced(source, depth - 1)
        condition = random_condition(source, self.names, 1)
        form = random_affine(source, self.names, 0)
        return source.choice((
            (lambda: (nestor.absolute(a), lambda values: abs(first(values)))),
            (lambda: (nestor.maximum(a, b), lambda values: max(first(values), second(values)))),
            (lambda: (nestor.minimum(a, b), lambda values: min(first(values), second(values)))),
            (lambda: (-a, lambda values: -first(values))),
            (lambda: (a + from_affine(form), lambda values: first(values) + form.value(values))),
            (lambda: (from_affine(form) - a, lambda values: form.value(values) - first(values))),
            (lambda: (nestor.select(condition, a, b), lambda values: first(values) if condition.value(values) else second(values))),
        ))()

    def test_comparisons_of_what_is_affine_by_pieces_are_conditions(self):
        source, found = random.Random(5), 0
        for _ in range(400):
            (a, first), (b, second) = self.pieced(source), self.pieced(source, 1)
            for compared, expected in ((a <= b, lambda x, y: x <= y), (a < b, lambda x, y: x < y), (a == b, lambda x, y: x == y)):
                if compared.condition is None:
                    continue
                found += 1
                for _ in range(6):
                    values = self.values(source)
                    self.assertEqual(bool(compared.condition.value(values)), expected(first(values), second(values)))
        self.assertGreater(found, 800)
        distance = from_affine(Affine.variable("i") - Affine.variable("n"))
        self.assertEqual((nestor.absolute(distance) <= 3).condition.text(), "i <= n + 3 and n <= i + 3")

    def test_what_is_not_affine_is_refused(self):
        with self.assertRaisesRegex(nestor.NotAffine, r"\(i\) \* \(n\) is not affine"):
            Affine.variable("i") * Affine.variable("n")
        with self.assertRaisesRegex(nestor.NotAffine, "the divisor must be a positive constant"):
            Affine.variable("i") // Affine.variable("n")

    def test_isl_text_that_is_not_read_is_quoted(self):
        for text in ("{ S[i] : exists (e : i = 2e) }", "{ S[i] ", "{ S[i] : i }", "{ S[i] -> T[i @ 2] }", "{ S[i + 1] -> T[i] }"):
            with self.assertRaisesRegex(nestor.UserError, r"\{ S\[i"):
                pieces(text)


class RangeTest(unittest.TestCase):
    def test_bounds_hold_at_all_points_and_are_met_by_remainders(self):
        (place,) = indices(place=width)
        for form, least, most in ((4 * (place % 8), 0, 28), (16 * (place % 2) + 4 * (place % 8 // 2), 0, 28), (31 - place % 32,
                                                                                                               0, 31),
                                  (place % 3 - place % 2, -1, 2), (place // 2, 0, math.inf)):
            with self.subTest(str(form)):
                form = form.affine
                self.assertEqual((least_of(form), most_of(form)), (least, most))
                values = [form.value({"place": each}) for each in range(96)]
                self.assertEqual(min(values), least)
                self.assertLessEqual(max(values), most)


class ExtentTest(unittest.TestCase):
    def told(self, texts, values, known=()):
        return sizes_told([read_extent(text) for text in texts], values, dict(known))

    def test_extents_are_read_as_sums_of_multiples(self):
        for text, coefficients, constant in (("length", {"length": 1}, 0), ("2*length + 1", {"length": 2}, 1), ("12", {}, 12),
                                             ("length - 1", {"length": 1}, -1), ("-2*n + m", {"n": -2, "m": 1}, 0),
                                             ("n + m - n", {"m": 1}, 0)):
            self.assertEqual(read_extent(text), (coefficients, constant), text)
        for text in ("(n + 1) / 2", "n*m", "floor(n/2)", "n / 2", "n / 2 + 1", "4*(n / 4)", "n mod 4", "n + m / 2", "n - n % 4"):
            self.assertIsNone(read_extent(text), text)

    def test_sizes_follow_from_extents(self):
        self.assertEqual(self.told(["n"], [5]), {"n": 5})
        self.assertEqual(self.told(["2*n"], [10]), {"n": 5})
        self.assertEqual(self.told(["n + 2"], [7]), {"n": 5})
        self.assertEqual(self.told(["n + m"], [7], {"m": 3}), {"n": 4, "m": 3})
        self.assertEqual(self.told(["n + m", "m"], [7, 3]), {"n": 4, "m": 3})  # whichever comes first
        self.assertEqual(self.told(["n + m"], [7]), {})
        self.assertEqual(self.told(["(n + 1) / 2"], [7]), {})

    def test_sizes_follow_from_sums_together(self):
        self.assertEqual(self.told(["n + m", "2*n - m"], [16, 11]), {"n": 9, "m": 7})
        self.assertEqual(self.told(["n + m + k", "n - m", "m + k"], [6, 1, 3]), {"n": 3, "m": 2, "k": 1})
        self.assertEqual(self.told(["n + m + k", "n - m", "k"], [6, 1, 1]), {"n": 3, "m": 2, "k": 1})
        self.assertEqual(self.told(["n + m + k", "n - m", "n + 2*m"], [6, 1, 7], {"k": 1}), {"n": 3, "m": 2, "k": 1})
        self.assertEqual(self.told(["n + m", "2*n + 2*m"], [5, 10]), {})  # which say the same
        self.assertEqual(self.told(["n + m + k", "m + k"], [6, 3]), {"n": 3})
        self.assertEqual(self.told(["n + m", "n - m"], [5, 2]), {"n": 3, "m": 1})  # who checks the shapes refuses it
        self.assertEqual(names_told([read_extent(text) for text in ("n + m", "2*n - m", "k")]), ["k", "n", "m"])

    def test_a_size_by_itself_is_believed_first(self):
        self.assertEqual(self.told(["2*n", "n"], [11, 5]), {"n": 5})  # who checks the shapes says that 11 should be 10
        self.assertEqual(self.told(["n", "n"], [5, 6]), {"n": 5})
        self.assertEqual(self.told(["2*n"], [11]), {"n": 5})
        self.assertEqual(self.told(["n"], [6], {"n": 5}), {"n": 5})  # what is given stays


class AuthorTest(unittest.TestCase):
    def refused(self, message, function, **options):
        with self.assertRaisesRegex(nestor.UserError, message):
            nestor.nest(function, **options)

    def test_what_a_nest_says(self):
        @nestor.nest(variant="half.f16", tolerance=1e-3)
        def scaled(x: nestor.f16[rows, width], factor: nestor.Scalar(2.0, min=0.5) = None):
            return define("out", (i, c), x[i, c] * factor, type="f16")

        self.assertEqual((scaled.op, scaled.variant, scaled.tolerance), ("scaled", "half.f16", 1e-3))
        self.assertEqual([size.name for size in scaled.sizes], ["rows", "width"])
        self.assertEqual([(tensor.name, tensor.type, tensor.role) for tensor in scaled.tensors],
                         [("x", "f16", "input"), ("out", "f16", "output")])
        self.assertEqual((scaled.scalars[0].name, scaled.scalars[0].default, scaled.scalars[0].min), ("factor", 2.0, 0.5))
        value = scaled.statements[0].value
        self.assertEqual((value["op"], value["type"], value["args"][0]["op"]), ("cast", "f16", "mul"))
        self.assertEqual(value["args"][0]["args"][0]["op"], "cast")  # no arithmetic in 16 bits

    def test_annotations_may_be_text(self):
        def scaled(x: "f32[rows, width]"):
            return define("out", (i, c), x[i, c] + 1)

        self.assertEqual(nestor.nest(scaled).tensors[0].shape, ("[rows, width] -> { [(rows)] }", "[rows, width] -> { [(width)] }"))

    def test_a_reduction_under_a_condition_has_elements_only_there(self):
        @nestor.nest
        def partial(x: f32[rows, width]):
            score = define("score", (i, c), nestor.sum(x[i, k] * x[i, c], over=k, name="dot"), where=c <= i)
            return define("out", i, nestor.max(score[i, c], over=c, where=c <= i))

        domains = {statement.name: statement.domain for statement in partial.statements}
        self.assertIn("c <= i", domains["dot_init"])
        self.assertIn("c <= i", domains["dot"])
        self.assertNotIn("c <= i", domains["out_max_init"])

    def test_a_table_over_a_plane_of_its_reader_is_made_at_the_readers_points(self):
        b, h = indices(b=rows, h=rows)

        @nestor.nest
        def biased(x: f32[rows, rows, rows, width], bias: f32[width], last: f32[rows]):
            far = nestor.select(c >= i, bias[c - i], 1.0)
            out = define("out", (b, h, i, c), x[b, h, i, c] + far)
            return out, define("other", (b, h, i, c), x[b, h, i, c] * nestor.select(h >= 1, last[h - 1], 2.0))

        dims = {statement.name: statement.dims for statement in biased.statements}
        self.assertEqual(list(dims["out_part_part0"]), ["b", "h", "i", "c"])
        self.assertEqual(list(dims["other_part_part0"]), ["h"])

    def test_a_guarded_read_is_a_part_of_its_own(self):
        @nestor.nest
        def shifted(x: f32[rows, width]):
            before = nestor.select(c >= 2, x[i, c - 2], nestor.select(c >= 1, x[i, c - 1], 0.0))
            return define("out", (i, c), before), define("sum", i, nestor.sum(nestor.select(k >= 1, x[i, k - 1], 1.0) * 2, over=k))

        domains = {statement.name: statement.domain for statement in shifted.statements}
        self.assertEqual(list(domains), ["out_part0", "out_part1", "out_part2", "sum_add_init", "sum_add_part_part0",
                                         "sum_add_part_part1", "sum_add", "sum"])
        self.assertRegex(domains["out_part1"], r"1 <= c and c <= 1 \}|c <= 1 and 1 <= c \}")
        self.assertRegex(domains["out_part2"], r"2 <= c \}")
        if numpy:
            data = numpy.arange(12.0).reshape(3, 4) + 1
            found = nestor.evaluate(shifted, {"x": data})
            numpy.testing.assert_array_equal(found["out"], [[0, row[0], row[0], row[1]] for row in data])
            numpy.testing.assert_array_equal(found["sum"], 2 + 2 * data[:, :-1].sum(1))

    @needs_numpy
    def test_conditions_of_data_may_stand_beside_those_that_guard_a_read(self):
        def before(x):
            return x[i, c - 1]

        seen = {
            "and_": lambda x: nestor.select((c >= 1) & (x[i, c] > 0), before(x), 0.0),
            "or_": lambda x: nestor.select((x[i, c] <= 0) | (c < 1), 0.0, before(x)),
            "several": lambda x: nestor.select((x[i, c] > 0) & (c < width) & (x[i, c] < 9) & (c >= 1), before(x), 0.0),
            "nested": lambda x: nestor.select((x[i, c] > 0) & ((c >= 1) | (x[i, c] > 9)),
                                              nestor.select(c >= 1, before(x), 0.0), 0.0),
        }

        @nestor.nest
        def mixed(x: f32[rows, width]):
            return tuple(define(name, (i, c), value(x)) for name, value in seen.items())

        data = numpy.array([[1.0, 2, -3, 4], [-1, 5, 6, -7]])
        expected = numpy.where(data > 0, numpy.pad(data, ((0, 0), (1, 0)))[:, :-1], 0)
        for name, found in nestor.evaluate(mixed, {"x": data}).items():
            numpy.testing.assert_array_equal(found, expected, name)

    @needs_numpy
    def test_powers_of_a_half_are_those_of_c(self):
        @nestor.nest
        def root(x: f32[width]):
            return define("out", c, x[c] ** 0.5)

        found = nestor.evaluate(root, {"x": numpy.array([-numpy.inf, -0.0, 4, -4])})["out"]
        numpy.testing.assert_array_equal(found, [numpy.inf, 0, 2, numpy.nan])
        self.assertFalse(numpy.signbit(found[1]))

    def test_what_is_there_anyway_is_chosen_in_place(self):
        @nestor.nest
        def masked(x: f32[rows, width]):
            whole = define("whole", (i, c), x[i, c] * 2)
            return define("out", (i, c), nestor.select(c < i, whole[i, c] + x[i, c], 0.0))

        self.assertEqual([statement.name for statement in masked.statements], ["whole", "out"])

    def test_ranges_of_quotients_and_remainders_say_that_elements_are_there(self):
        at, to = indices(at=49, to=49)

        def statements(shift):
            @nestor.nest
            def windows(x: f32[49, 49], table: f32[13, 13]):
                value = x[at, to] + table[at // 7 - to // 7 + 6, at % 7 - to % 7 + shift]
                return define("out", (at, to), nestor.select(at // 7 < 4, value - 100, value))
            return [statement.name for statement in windows.statements]

        self.assertEqual(statements(6), ["out"])
        self.assertEqual(statements(7), ["out_part0", "out_part1"])  # 13 is outside

    def test_bounds_of_floors_hold_at_all_points(self):
        at, to = indices(at=23, to=10)
        forms = [at // 7 - to // 7, at % 7 - to % 7, -(at % 7), (at + 3) % 5 - 2 * (to // 3), 2 * (at % 7) - at // 7, at - 14 * (at // 7),
                 3 * ((2 * at + to) % 4) - to, (at // 2) % 3 - at // 6, -2 * ((at - to) // 4), (at - 5) // 7]
        forms = [form.affine for form in forms]
        for form in forms:
            values = [form.value({"at": one, "to": other}) for one in range(23) for other in range(10)]
            self.assertLessEqual(least_of(form), min(values), str(form))
            self.assertLessEqual(least_of(-form), min(-value for value in values), str(form))
        self.assertEqual([least_of(form) for form in forms[:3]], [-1, -6, -6])
        (free, ) = indices(free=rows)
        self.assertEqual(least_of((-(free // 2)).affine), -math.inf)

    def test_large_parts_are_written_once(self):
        @nestor.nest
        def deep(x: f32[rows, width]):
            value = x[i, c]
            for _ in range(40):
                value = value * value + value
            return define("out", (i, c), value)

        self.assertLess(len(deep.json()), 60_000)
        self.assertEqual(nestor.Nest.from_json(deep.json()), deep)

    def test_names_that_clash(self):
        def twice(a: f32[rows, width]):
            first = define("t", (i, c), a[i, c] + 1)
            second = define("t", (i, c), first[i, c] * 2)
            return define("out", (i, c), second[i, c] + first[i, c])

        self.assertEqual([tensor.name for tensor in nestor.nest(twice).tensors], ["a", "out", "t", "t_2"])

        def hidden(c: f32[rows, width]):
            return define("out", (i, k), c[i, k]), define("turned", columns, c[0, columns])

        columns, = indices(c=width)
        self.refused("an index has the name of the input c", hidden)

        def same(i_: f32[rows, width]):
            return define("i_", (i, c), i_[i, c])

        self.refused("another size, scalar or tensor of the nest has this name", same)
        other = Size("rows")

        def two(a: f32[rows, width], b: f32[other, width]):
            return define("out", (i, c), a[i, c] + b[i, c])

        self.refused("two different sizes are named rows", two)

    def test_tensors_without_indices_are_numbers(self):
        @nestor.nest
        def scaled(a: f32[rows, width]):
            total = define("total", (), nestor.sum(a[i, c], over=(i, c)))
            most = define("most", (), nestor.max(a[i, c], over=(i, c)))
            return define("out", (i, c), nestor.select(total > most, a[i, c] / (total * most + 2), 1 - total))

        @nestor.nest(op="scaled")
        def read(a: f32[rows, width]):
            total = define("total", (), nestor.sum(a[i, c], over=(i, c)))
            most = define("most", (), nestor.max(a[i, c], over=(i, c)))
            return define("out", (i, c), nestor.select(total[()] > most[()], a[i, c] / (total[()] * most[()] + 2), 1 - total[()]))

        self.assertEqual(scaled.json(), read.json())

    def test_arguments_by_name_alone(self):
        def scaled(x: f32[rows], /, y: f32[rows], *, z: f32[rows], eps=1e-6):
            return define("out", i, x[i] + 2 * y[i] + 3 * z[i] + eps)

        nest = nestor.nest(scaled)
        self.assertEqual([tensor.name for tensor in nest.tensors], ["x", "y", "z", "out"])
        self.assertEqual([scalar.name for scalar in nest.scalars], ["eps"])

    def test_what_makes_no_nest(self):
        def one(*x: f32[rows]):
            return define("out", i, x[i])

        def many(**x: f32[rows]):
            return define("out", i, x["x"][i])

        def twice(x: f32[rows]):
            out = define("out", i, x[i])
            return out, out

        def nothing(x: f32[rows]):
            return ()

        def fine(x: f32[rows]):
            return define("out", i, x[i])

        self.refused(r"one: \*x stands for any number of arguments, .* name each", one)
        self.refused(r"many: \*\*x stands for any number of arguments", many)
        self.refused("twice: out is returned twice: return each output once", twice)
        self.refused("nothing returns no output", nothing)
        for what, name in ((nestor.nest(fine), "Nest"), (5, "int"), ("fine", "str"), (max, "builtin_function_or_method")):
            self.refused(f"takes a Python function of tensors and scalars, not a {name}", what)
        self.refused("a partial has no name for its nest: give one as op=", functools.partial(fine))
        self.assertEqual(nestor.nest(functools.partial(fine), op="fine"), nestor.nest(fine))
        self.refused("fine: require takes conditions on sizes, and i is an index", fine, require=i > 2)
        for op in ("a\0b", "a/b", "a\nb", "", 5):
            self.refused("cannot be the op of a nest: use text that can be printed, without /", fine, op=op)
            self.refused("cannot be the variant of a nest", fine, variant=op)
        for tolerance in (-1, "a", math.nan, math.inf, True, 10**400):
            self.refused("the tolerance of the nest fine must be a finite number that is not negative, not", fine, tolerance=tolerance)
            self.refused("the tolerance of tensor out must be", lambda: define("out", i, 1.0, tolerance=tolerance))
        with self.assertRaisesRegex(nestor.UserError, r"takes extents by name, as \(i, \) = nestor.indices\(i=rows\)"):
            indices(rows)
        for type_ in ("fp8", float, ["f32"]):
            self.refused("tensor out has no elements of the type .*the types are f32, f16, bf16, i32 and boolean, and i64 of arguments",
                         lambda: define("out", i, 1.0, type=type_))
        self.assertEqual(define("out", i, i > 2, type="boolean").type, "bool")

    def test_numbers_of_sizes_are_checked_at_once(self):
        for default in (2.5, True, "5", None, rows, 2**63, 10**5000):
            with self.assertRaisesRegex(nestor.UserError, "size q: its default must be an integer"):
                Size("q", default)
        for named, message in (({"min": "a"}, "its min must be an integer, not .a."), ({"max": 2.5}, "its max must be an integer, not 2.5"),
                               ({"min": 4, "max": 2}, "its max must be at least its min, 4, not 2"),
                               ({"fixed": "yes"}, "fixed must be True or False, not .yes.")):
            with self.assertRaisesRegex(nestor.UserError, f"size q: {message}"):
                Size("q", 5, **named)

    def test_numbers_of_scalars_are_checked_at_once(self):
        for scalar, message in ((nestor.Scalar("a"), "its default must be a number, not .a."), (nestor.Scalar(True), "its default must be a number"),
                                (nestor.Scalar(math.nan), "its default must be a number of f32, not nan"),
                                (nestor.Scalar(1e39), "its default must be a number of f32"),
                                (nestor.Scalar(2.5, type="i32"), "its default must be a number of i32, not 2.5"),
                                (nestor.Scalar(2**31), "its default must be a number of i32"),
                                (nestor.Scalar(2.0, min="a"), "its min must be a number, not .a."),
                                (nestor.Scalar(2.0, min=3.0), "its default must be finite and from 3.0 to inf, not 2.0"),
                                (nestor.Scalar(math.inf, min=3.0), "its default must be finite and from 3.0"),
                                (nestor.Scalar(1.0, min=2.0, max=1.0), "its default must be finite and from 2.0 to 1.0")):
            def scaled(x: f32[rows], q: scalar):
                return define("out", i, x[i] * q)

            self.refused(f"scalar q: {message}", scaled)
        with self.assertRaisesRegex(nestor.UserError, "'a b' does not name a scalar"):
            nestor.Scalar(2.0, name="a b")
        self.assertEqual(nestor.Scalar(math.inf, name="floor").default, math.inf)  # no word of isl's where scalars are

    def test_bad_definitions(self):
        self.refused("argument a is neither a tensor", lambda a: None)
        self.refused("is no output: return what nestor.define made", lambda a=1.0: a)
        for message, value in (("depends on the index k, which is none of its own", lambda: x[i, k]),
                               ("x has 2 indices, not 1", lambda: x[i]),
                               ("read its elements", lambda: as_value(x)),
                               ("x is a tensor of 2 indices: read its elements", lambda: x * x[i, c]),
                               ("has no truth value while the nest is written", lambda: x[i, c] if x[i, c] > 0 else 0),
                               ("a condition is no number", lambda: (x[i, c] > 0) + 1),
                               ("affine in indices and sizes, .*: of data, use nestor.select",
                                lambda: nestor.sum(x[i, k], over=k, where=x[i, k] > 0)),
                               ("is no integer that is affine", lambda: x[i, 1.5]),
                               ("bit_xor works on i32", lambda: x[i, c] ^ x[i, c]),
                               ("is no index", lambda: nestor.sum(x[i, k], over="k"))):
            with self.subTest(message), self.assertRaisesRegex(nestor.UserError, message):
                define("out", (i, c), value())
        for name in ("exists", "a b", "", "2x"):
            with self.subTest(name), self.assertRaisesRegex(nestor.UserError, "name a"):
                Size(name)
        with self.assertRaisesRegex(nestor.UserError, '"and_" is no reduction'):
            define("out", i, 0.0).write((i, c), i, x[i, c], reduction="and_")

    def test_sixteen_bits_are_reduced_and_kept_as_f32(self):
        narrow = nestor.Tensor("narrow", "bf16", (rows, width))
        nest = nestor.nests.assemble.assemble("op", "bf16", [define("total", i, nestor.sum(narrow[i, k], over=k)),
                                                             define("same", (i, c), narrow[i, c])])
        for name in ("total_add", "same"):
            value = next(each.value for each in nest.statements if each.name == name)
            self.assertEqual((value["op"], value["type"]), ("cast", "f32"), name)

    def test_constants_are_of_f32(self):
        self.assertEqual(as_value(0.1).payload, 0.10000000149011612)
        self.assertEqual(as_value(1e60).payload, float("inf"))
        with self.assertRaisesRegex(nestor.UserError, "is no 32-bit integer"):
            as_value(1 << 40)
        self.assertIsInstance(as_value(rows), Value)


class FileTest(unittest.TestCase):
    def test_bad_files_name_the_key(self):
        good = json.loads(nestor.nest(lambda a=1.0: define("out", i, a), op="one").json())
        for change, message in (({"format": 2}, "of format 2; this package reads 1"), ({"sizes": None}, 'key "sizes" is missing'),
                                ({"sizes": [{"name": "rows", "min": "1"}]}, r"nest.sizes\[0\].min must be an integer"),
                                ({"tensors": [{"name": "t", "type": "f64"}]}, r'nest.tensors\[0\].type: "f64" is none of f32'),
                                ({"tolerance": True}, "nest.tolerance must be")):
            with self.subTest(message), self.assertRaisesRegex(nestor.UserError, message):
                nestor.Nest.from_dict({**good, **change})
        with self.assertRaisesRegex(nestor.UserError, "this is not JSON"):
            nestor.Nest.from_json("{")
        with self.assertRaisesRegex(nestor.UserError, "cannot read nest file /nowhere.nest.json: No such file"):
            nestor.Nest.load("/nowhere.nest.json")

    @needs_numpy
    def test_files_hold_the_whole_nest(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, (nest, *_) in own_operators.CASES.items():
                path = pathlib.Path(folder) / f"{name}.nest.json"
                nest.save(path)
                self.assertEqual(nestor.Nest.load(path), nest)

    @needs_program
    def test_nests_of_the_program_are_read_without_loss(self):
        for problem in ("layernorm f32", "attention causal.f16", "attention window.bf16", "jacobi2d f32", "matmul_bias_gelu bf16",
                        "bias_dropout_residual_layernorm f16"):
            op, variant = problem.split()
            text = subprocess.run([PROGRAM, "--json", "show", op, "--variant", variant, "--as", "nest"],
                                  capture_output=True,
                                  text=True,
                                  check=True).stdout
            with self.subTest(problem):
                nest = nestor.Nest.from_json(text)
                self.assertEqual(nest.to_dict(), json.loads(text))
                self.assertEqual(nestor.Nest.from_json(nest.json()), nest)


@needs_numpy
class EvaluateTest(unittest.TestCase):
    def test_own_operators_compute_what_numpy_does(self):
        for name, (nest, sizes, make, reference) in own_operators.CASES.items():
            tensors = make(numpy.random.default_rng(5))
            found = nestor.evaluate(nest, dict(zip(own_operators.inputs_of(nest), tensors)), sizes)
            for output, expected in zip(own_operators.outputs_of(nest), reference(*tensors)):
                with self.subTest(f"{name} {output.name}"):
                    numpy.testing.assert_allclose(found[output.name], expected, rtol=1e-7, atol=1e-9)

    @needs_program
    def test_shipped_operators_compute_what_numpy_does(self):
        source = numpy.random.default_rng(6)
        data, weight, bias = source.standard_normal((5, 8)), source.standard_normal(8), source.standard_normal(8)
        mean, variance = data.mean(1, keepdims=True), data.var(1, keepdims=True)
        power = numpy.exp(data - data.max(1, keepdims=True))
        for op, tensors, expected in (("layernorm", {"x": data, "gamma": weight, "beta": bias},
                                       (data - mean) / numpy.sqrt(variance + 1e-5) * weight + bias),
                                      ("softmax", {"x": data}, power / power.sum(1, keepdims=True)),
                                      ("matmul", {"a": data, "b": data.T}, data @ data.T)):
            with self.subTest(op):
                text = subprocess.run([PROGRAM, "--json", "show", op, "--as", "nest"],
                                      capture_output=True,
                                      text=True,
                                      check=True).stdout
                nest = nestor.Nest.from_json(text)
                found = nestor.evaluate(nest, dict(zip(own_operators.inputs_of(nest), tensors.values())))
                numpy.testing.assert_allclose(found[own_operators.outputs_of(nest)[0].name], expected, rtol=1e-7, atol=1e-9)

    def test_statements_that_read_what_they_write_run_in_order(self):
        step, place = indices(step=Size("steps"), place=Size("length"))
        start = nestor.Tensor("start", "f32", (place.extent,))
        row = define("row", place, start[place])
        row.write((step, place), place, (row[place - 1] + row[place]) * 0.5, where=place >= 1)
        nest = nestor.nests.assemble.assemble("smooth", "f32", [row])
        values = numpy.arange(1.0, 7.0) ** 2
        expected = values.copy()
        for _ in range(3):
            for at in range(1, 6):
                expected[at] = (expected[at - 1] + expected[at]) * 0.5
        numpy.testing.assert_allclose(nestor.evaluate(nest, {"start": values}, {"steps": 3})["row"], expected)

    def test_integers_wrap_and_empty_reductions_are_neutral(self):
        @nestor.nest
        def edges(number: nestor.i32[rows]):
            return (define("product", i, number[i] * number[i]), define("quotient", i, number[i] // 3),
                    define("high", i, nestor.mul_high_unsigned(number[i], number[i])),
                    define("bits", i, nestor.shift_right_logical(number[i], 4) ^ 5),
                    define("none", (), nestor.min(number[i], over=i, where=i < 0)))

        values = numpy.array([-2**31, -7, 7, 2**31 - 1, 65537], "int32")
        found = nestor.evaluate(edges, {"number": values})
        word = values.astype("int64") & 0xFFFFFFFF
        numpy.testing.assert_array_equal(found["product"], (word * word % 2**32).astype("uint32").view("int32"))
        numpy.testing.assert_array_equal(found["quotient"], values // 3)
        numpy.testing.assert_array_equal(found["high"].astype("uint32"), (word.astype("uint64") ** 2 >> 32).astype("uint32"))
        numpy.testing.assert_array_equal(found["bits"], ((word >> 4) ^ 5).astype("uint32").view("int32"))
        self.assertEqual(found["none"], 2**31 - 1)

    def test_bad_inputs(self):
        nest = own_operators.swiglu
        for tensors, message in (({}, r'no shape says what the size rows is: give it, as sizes=\{"rows": ...\}'),
                                 ({"x": numpy.zeros((4, 7))}, r"x must have the shape \(4, 6\), not \(4, 7\)"),
                                 ({"X": numpy.zeros((4, 8))}, "swiglu: X is no input; the inputs are x")):
            with self.assertRaisesRegex(nestor.UserError, message):
                nestor.evaluate(nest, tensors)
        with self.assertRaisesRegex(nestor.UserError, r"x must have the shape \(4, 8\), not \(4, 7\)"):
            nestor.evaluate(nest, {"x": numpy.zeros((4, 7))}, {"width": 4})

        class Narrow:  # as bf16 of PyTorch
            def __array__(self, *_, **__):
                raise TypeError("Got unsupported ScalarType BFloat16")

        with self.assertRaisesRegex(nestor.UserError, r"numpy does not take the input x .*BFloat16.* tensor.float\(\)"):
            nestor.evaluate(nest, {"x": Narrow()})
        with self.assertRaisesRegex(nestor.UserError, "the input x is missing"):
            nestor.evaluate(nest, {}, {"rows": 2, "width": 4})
        for given, what in ((([numpy.zeros((4, 8))],), "tensors"), (({}, [4]), "sizes"), (({}, None, [4]), "scalars")):
            with self.assertRaisesRegex(nestor.UserError, rf"takes {what} by name, as a dictionary \{{name: ...\}}, not a list"):
                nestor.evaluate(nest, *given)

    def test_what_is_given_by_another_name_is_refused(self):
        nest, x = own_operators.swiglu, numpy.zeros((4, 8))
        for tensors, sizes, scalars, message in (({"x": x}, {"rows": 4, "z": 4}, None, "swiglu: z is no size; the sizes are rows, width"),
                                                 ({"x": x}, None, {"z": 4}, "swiglu: z is no scalar; the scalars are limit"),
                                                 ({"x": x, "out": x}, None, None, "swiglu: out is no input; the inputs are x"),
                                                 ({"x": x}, {"rows": 4.5}, None, "swiglu: size rows must be an integer, not 4.5"),
                                                 ({"x": x}, None, {"limit": "a"}, "swiglu: scalar limit must be a number, not 'a'"),
                                                 ({"x": x.astype(complex)}, None, None, "input x must have elements that are real numbers, not complex"),
                                                 ({"x": x.astype(str)}, None, None, "input x must have elements that are real numbers"),
                                                 ({"x": numpy.full((4, 8), "a", object)}, None, None,
                                                  "input x must have elements that are real numbers, not object"),
                                                 ({"x": numpy.ma.masked_array(x, x > 0)}, None, None,
                                                  "the input x: the mask of a MaskedArray would be ignored")):
            with self.subTest(message), self.assertRaisesRegex(nestor.UserError, message):
                nestor.evaluate(nest, tensors, sizes, scalars)
        with self.assertRaisesRegex(nestor.UserError, "takes a nestor.Nest, not a str"):
            nestor.evaluate("swiglu", {"x": x})

    def test_shapes_that_disagree_are_both_told(self):
        nest = own_operators.contrast_norm
        with self.assertRaisesRegex(nestor.UserError, r"gain must have the shape \(4,\), not \(5,\): width is 5 there, but width is 4 by tensor .x."):
            nestor.evaluate(nest, {"x": numpy.zeros((3, 4)), "gain": numpy.zeros(5)})
        shapes = {"a": [(read_extent("n"), "n", 3)], "b": [(read_extent("m"), "m", 4)], "c": [(read_extent("n + m"), "n + m", 8)],
                  "d": [(read_extent("2*p"), "2*p", 5)], "e": [(None, "n // 2", 1)]}
        self.assertEqual(disagreement("c", shapes, {}), 'n + m is 8 there, but n is 3 by tensor "a", m is 4 by tensor "b"')
        self.assertEqual([disagreement(name, shapes, {}) for name in "abde"], [""] * 4)
        together = {"a": [(read_extent("n + m"), "n + m", 5)], "b": [(read_extent("n - m"), "n - m", 1)], "c": [(read_extent("n"), "n", 4)]}
        self.assertEqual(disagreement("b", together, {"n": 4}), 'n - m is 1 there, but n is 4 by the given sizes, m is 1 by tensor "a"')

    def test_conditions_are_compared(self):
        @nestor.nest
        def compared(a: nestor.boolean[rows], b: nestor.boolean[rows]):
            conditions = {"same": a[i] == b[i], "other": a[i] != b[i], "either": a[i] ^ b[i], "early": a[i] == (i > 2),
                          "affine": (i > 2) ^ (i < 5), "neither": (i > 2) == (i < 5), "set": a[i] == True}  # noqa: E712
            return tuple(define(name, i, nestor.select(found, 1.0, 0.0)) for name, found in conditions.items())

        a, b = numpy.arange(8) % 2 == 0, numpy.arange(8) % 3 == 0
        late, early = numpy.arange(8) > 2, numpy.arange(8) < 5
        found = nestor.evaluate(compared, {"a": a, "b": b})
        for name, wanted in (("same", a == b), ("other", a != b), ("either", a ^ b), ("early", a == late), ("affine", late ^ early),
                             ("neither", late == early), ("set", a)):
            numpy.testing.assert_array_equal(found[name], wanted, name)
        self.assertIsNotNone(((i > 2) ^ (i < 5)).condition)
        for wrong in (lambda: (i > 2) == 1, lambda: (i > 2) ^ 1):
            with self.assertRaisesRegex(nestor.UserError, "a condition is no number"):
                wrong()


if __name__ == "__main__":
    unittest.main()
