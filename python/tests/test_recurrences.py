"""Recurrences with reductions and choices in their steps: against plain loops, and what is refused."""

import math
import random
import threading
import unittest

from support import folder, needs_program, numpy

import nestor
from nestor import Size, Tensor, define, f32, indices
from nestor.nests.assemble import assemble

if numpy:
    import own_recurrences
    from own_operators import inputs_of, outputs_of

times, width = Size("times"), Size("width")
t, s, j, l = indices(t=times, s=width, j=width, l=width)
(a,) = indices(a=times - 1)
x, weight = Tensor("x", "f32", (times, width)), Tensor("weight", "f32", (width, width))


class Loops:
    """What statements mean: at each point, in order, the whole value is computed, its reductions by loops of their own."""

    binary = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "max": max, "min": min}
    empty = {"add": 0.0, "max": -math.inf, "min": math.inf}

    def __init__(self, memory, sizes):
        self.memory, self.sizes = memory, sizes

    def value(self, node, place):
        if node.op == "read":
            tensor, at = node.payload
            at = tuple(form.value(place) for form in at)
            if min(at, default=0) < 0:
                raise IndexError(f"{tensor.name}{at}")
            return self.memory[tensor.name][at]
        if node.op == "reduce":
            found, total = node.payload, self.empty[node.payload.op]
            for inner in self.points(found.over, found.where, place):
                total = self.binary[found.op](total, self.value(found.value, inner))
            return total
        if node.op == "select":
            return self.value(node.args[1 if node.args[0].condition.value(place) else 2], place)
        if node.op == "constant":
            return node.payload
        args = [self.value(arg, place) for arg in node.args]
        return math.tanh(args[0]) if node.op == "tanh" else self.binary[node.op](*args)

    def points(self, dims, where, place):
        if not dims:
            if where.value(place):
                yield place
            return
        for number in range(dims[0].extent.value(self.sizes)):
            yield from self.points(dims[1:], where, {**place, dims[0].name: number})

    def run(self, shared, drafts):
        for outer in self.points(shared, nestor.nests.affine.TRUE, self.sizes):
            for tensor, dims, at, value, where in drafts:
                for place in self.points(dims[len(shared):], where, outer):
                    self.memory[tensor.name][tuple(form.value(place) for form in at)] = self.value(value, place)


class Draws:
    """Random recurrences: one tensor with a history, one in place, or two in shared steps."""

    def __init__(self, seed):
        self.random, self.number = random.Random(seed), 0

    def index(self):
        self.number += 1
        return indices(**{f"r{self.number}": width})[0]

    def leaf(self, step, places, states):
        one, other = (self.random.choice(places) for _ in range(2))
        return self.random.choice([lambda: x[step, one], lambda: weight[one, other]] + 2 * [
            lambda state=state: state(one) for state in states])()

    def value(self, step, places, states, depth=3):
        kind = self.random.choice(("leaf", "pair", "pair", "reduce", "reduce", "select")) if depth else "leaf"
        if kind == "leaf":
            return self.leaf(step, places, states)
        if kind == "pair":
            one, other = (self.value(step, places, states, depth - 1) for _ in range(2))
            return self.random.choice((lambda: one + other, lambda: one * other, lambda: nestor.maximum(one, other)))()
        if kind == "select":
            one, other = (self.value(step, places, states, depth - 1) for _ in range(2))
            place = self.random.choice(places)
            return nestor.select(self.random.choice((place >= 1, place == 0, place < width - 1, step >= 2)), one, other)
        over, op = self.index(), self.random.choice((nestor.sum, nestor.max, nestor.min))
        where = [nestor.nests.affine.TRUE] + [each for place in places for each in (over <= place, over < place, ~(over == place))]
        value = self.value(step, [*places, over], states, depth - 1)
        return nestor.tanh(op(value, over=over, where=self.random.choice(where)) * 0.25 if op is nestor.sum else
                           nestor.minimum(nestor.maximum(op(value, over=over, where=self.random.choice(where)), -9.0), 9.0))

    def history(self):
        """state[t, s] by those of the step before, from the first one on."""
        state = Tensor("state", "f32", (times, width))
        value = nestor.select(t >= 1, self.value(t, [s], [lambda place: state[t - 1, place]]), x[t, s])
        return (), [], [(state, (t, s), (t, s), nestor.tanh(value))]

    def in_place(self):
        state = Tensor("state", "f32", (width,))
        first = (state, (s,), (s,), x[0, s])
        return (), [first], [(state, (t, s), (s,), nestor.tanh(self.value(t, [s], [lambda place: state[place]])))]

    def together(self):
        """Two tensors in shared steps; the second sees the new state of the first."""
        one, two = Tensor("one", "f32", (times, width)), Tensor("two", "f32", (width,))
        first = [(one, (s,), (0, s), x[0, s]), (two, (s,), (s,), x[0, s] * 0.5)]
        before = [lambda place: one[a, place], lambda place: two[place]]
        after = [*before, lambda place: one[a + 1, place]]
        return (a,), first, [(one, (a, s), (a + 1, s), nestor.tanh(self.value(a, [s], before))),
                             (two, (a, s), (s,), nestor.tanh(self.value(a, [s], after)))]

    def recurrence(self):
        return self.random.choice((self.history, self.in_place, self.together))()


def written(shared, first, drafts):
    """The nest of a random recurrence."""
    for draft in first:
        draft[0].write(draft[1], draft[2], draft[3])
    if shared:
        with nestor.steps(*shared):
            for draft in drafts:
                draft[0].write(draft[1], draft[2], draft[3])
    else:
        drafts[0][0].write(*drafts[0][1:])
    return assemble("drawn", "f32", list({id(draft[0]): draft[0] for draft in drafts}.values()), arguments=[x, weight])


def as_affine(draft):
    tensor, dims, at, value = draft
    return tensor, dims, tuple(nestor.nests.affine.affine(each) for each in at), value, nestor.nests.affine.TRUE


def expected(shared, first, drafts, data, sizes):
    memory = dict(data) | {each[0].name: numpy.full([extent.value(sizes) for extent in each[0].shape], numpy.nan)
                           for each in (*first, *drafts)}
    loops = Loops(memory, sizes)
    for draft in first:
        loops.run((), [as_affine(draft)])
    loops.run(shared, [as_affine(draft) for draft in drafts])
    return memory


def _totals(x: f32[times, width]):
    total = define("total", t, 1.0)
    return total.write((t, s), t, total[t] + x[t, s])


class RecurrenceTest(unittest.TestCase):
    def refused(self, message, function):
        with self.assertRaisesRegex(nestor.UserError, message):
            nestor.nest(function)

    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_recurrences_compute_what_plain_loops_do(self):
        for name, (nest, sizes, make, reference) in own_recurrences.CASES.items():
            tensors = make(numpy.random.default_rng(5))
            found = nestor.evaluate(nest, dict(zip(inputs_of(nest), tensors)), sizes)
            for output, wanted in zip(outputs_of(nest), reference(*tensors)):
                with self.subTest(f"{name} {output.name}"):
                    numpy.testing.assert_allclose(found[output.name], wanted, rtol=1e-6, atol=1e-9)

    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_random_recurrences_compute_what_their_loops_say(self):
        refused = recurrent = 0
        for seed in range(150):
            drawn, source = Draws(seed).recurrence(), numpy.random.default_rng(seed)
            sizes = {"times": int(source.integers(1, 5)), "width": int(source.integers(1, 4))}
            data = {"x": source.standard_normal((sizes["times"], sizes["width"])),
                    "weight": source.standard_normal((sizes["width"], sizes["width"]))}
            try:
                nest = written(*drawn)
            except nestor.UserError as error:
                self.assertIn("say when it is taken", str(error))
                refused += 1
                continue
            recurrent += len({statement.group for statement in nest.statements}) < len(nest.statements)
            wanted = expected(*drawn, data, sizes)
            for name, values in nestor.evaluate(nest, data, sizes).items():
                if numpy.isfinite(wanted[name]).all():
                    numpy.testing.assert_allclose(values, wanted[name], rtol=1e-6, atol=1e-7, err_msg=f"seed {seed}, {name}")
        self.assertLess(refused, 60)
        self.assertGreater(recurrent, 50)

    def test_what_is_added_in_place_is_a_sum(self):
        def statement(write):
            def totals(x: f32[times, width]):
                return write(define("total", t, 1.0), x)
            return nestor.nest(totals).statements[-1]

        (p,) = indices(p=times)
        for write in (lambda total, x: total.write((t, s), t, total[t] + x[t, s]), lambda total, x: total.write((s, t), t, x[t, s] + total[t]),
                      lambda total, x: total.write((t, s), t, nestor.maximum(total[t], x[t, s]))):
            self.assertIn(statement(write).reduction, ("add", "max"))
        for write in (lambda total, x: total.write(t, t, total[t] + x[t, 0]), lambda total, x: total.write((t, s), t, total[t] + total[t] * x[t, s]),
                      lambda total, x: total.write((t, s), t, total[t] - x[t, s]), lambda total, x: total.write((a, s), a + 1, total[a] + x[a, s]),
                      lambda total, x: total.write((p, t, s), t, total[p] + x[t, s])):
            self.assertIsNone(statement(write).reduction)
        if numpy:
            totals = nestor.nest(_totals)
            data = numpy.arange(12.0).reshape(3, 4)
            numpy.testing.assert_array_equal(nestor.evaluate(totals, {"x": data})["total"], 1 + data.sum(1))

    def test_a_reduction_of_what_is_written_stands_inside_the_loops(self):
        @nestor.nest
        def rnn(x: f32[times, width], weight: f32[width, width]):
            state = define("state", (t, s), x[t, s], where=t == 0)
            into = nestor.sum(x[a + 1, l] * weight[s, l], over=l, name="into")
            return state.write((a, s), (a + 1, s), into + nestor.sum(state[a, j] * weight[s, j], over=j, name="came"))

        statements = {statement.name: statement for statement in rnn.statements}
        self.assertEqual(list(statements), ["state", "into_init", "into", "came_init", "came", "state_1"])
        self.assertEqual([statement.group for statement in rnn.statements], [0, 1, 2, 3, 3, 3])  # what can be before, is
        self.assertEqual(statements["came"].dims, ("a", "s", "j"))
        self.assertIn("0 = j }", statements["came_init"].domain)
        self.assertIn("width = j }", statements["state_1"].domain)  # behind the last j
        self.assertEqual(nestor.Nest.from_json(rnn.json()), rnn)

    def test_sums_over_the_same_indices_share_their_loop(self):
        @nestor.nest
        def cell(x: f32[times, width], weight: f32[width, width]):
            state = define("state", (t, s), x[t, s], where=t == 0)
            up, down = (nestor.sum(state[a, j] * entry, over=j) for entry in (weight[s, j], weight[j, s]))
            ratio = nestor.sum(nestor.exp(state[a, j] - up), over=j)  # needs the first
            return state.write((a, s), (a + 1, s), up / (down * down + ratio))

        dims = {statement.name: (statement.dims, statement.domain.split(" : ")[1]) for statement in cell.statements}
        self.assertEqual(dims["state_add"][0], ("a", "s", "stage", "j"))
        for name, stage in (("state_add", 0), ("state_add_2", 0), ("state_add_3", 1)):
            self.assertRegex(dims[name][1], f"({stage} = stage|stage = {stage})", name)

    def test_a_choice_of_what_is_written_stays_in_its_statement(self):
        @nestor.nest
        def smooth(x: f32[width]):
            row = define("row", s, x[s])
            return row.write((t, s), s, row[s] + nestor.select(s >= 1, row[s - 1], 0.0))

        self.assertEqual([statement.name for statement in smooth.statements], ["row", "row_1"])
        shifted = next(read.relation for read in smooth.statements[1].reads if "s - 1" in read.relation)
        self.assertIn("-> row[(s - 1)] : 1 <= s }", shifted)

        @nestor.nest
        def ahead(x: f32[width]):
            row = define("row", s, x[s])
            return row.write((t, s), s, row[s] + nestor.select(s < width - 1, row[s + 1], 0.0))

        self.assertIn("(width - 2)", str(ahead.statements[1].indices))  # s + 2 may be more than 32 bits hold

    def test_what_a_reduction_reads_must_not_change_before_it_is_used(self):
        def scaled(x: f32[times, width]):
            row = define("row", (t, s), x[t, s])
            return row.write((t, s), (t, s), row[t, s] / nestor.sum(row[t, j], over=j))

        self.refused(r"row: it changes while s runs, and the reduction \(add over j\).* a nestor.define of its own in front inside "
                     r"nestor.steps\(t\)", scaled)

        def shifted(x: f32[times, width]):  # the sum's s is another one than the statement's
            row = define("row", (t, s), x[t, s])
            return row.write((t, s), (t, s), nestor.sum(row[t, s + 1], over=s, where=s < width - 1))

        self.refused("row: it changes while s runs", shifted)

        @nestor.nest
        def taken(x: f32[times, width]):
            row = define("row", (t, s), x[t, s])
            total = define("total", t, nestor.sum(row[t, j], over=j))
            return row.write((t, s), (t, s), row[t, s] / total[t])

        if numpy:
            data = numpy.random.default_rng(1).random((4, 3))
            numpy.testing.assert_allclose(nestor.evaluate(taken, {"x": data})["row"], data / data.sum(1, keepdims=True))

    def test_steps_say_what_is_wrong(self):
        def inside(x: f32[times, width]):
            with nestor.steps(t), nestor.steps(s):
                return define("out", (t, s), x[t, s])

        def other(x: f32[times, width]):
            with nestor.steps(t):
                return define("out", (s, t), x[t, s])

        def none(x: f32[times, width]):
            with nestor.steps():
                return define("out", (t, s), x[t, s])

        def same_name(x: f32[times, width]):
            state = define("state", (t, s), x[t, s])
            again, = indices(t=width)
            return state.write((t, s), (t, s), nestor.sum(state[t, again] * x[t, s], over=again))

        self.refused("nestor.steps inside nestor.steps: give the outer ones all indices", inside)
        self.refused(r"out: in nestor.steps\(t\) the first indices of a statement are t, not s, t", other)
        self.refused("takes the indices of the loops", none)
        self.refused("a reduction over t stands inside the loop of another index t", same_name)

        def fails(x: f32[times, width]):
            with nestor.steps(t):
                define("out", (t, s), x[t, s])
                raise KeyError("planted")

        with self.assertRaisesRegex(KeyError, "planted"):
            nestor.nest(fails)
        nestor.nest(lambda x=1.0: define("out", s, x), op="after")  # the steps that failed are over

    def test_steps_are_those_of_their_thread(self):
        found = []

        def elsewhere():
            found.extend(define("other", s, 1.0).updates)

        def here(x: f32[times, width]):
            with nestor.steps(t):
                out = define("out", (t, s), x[t, s])
                thread = threading.Thread(target=elsewhere)
                thread.start()
                thread.join()
            return out

        nestor.nest(here)
        self.assertEqual([update.group for update in found], [None])

    @needs_program
    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_kernels_compute_what_plain_loops_do(self):
        for name in ("rnn_from_nothing", "hmm_forward", "lstm", "gauss_seidel", "sandpile"):
            nest, sizes, make, reference = own_recurrences.CASES[name]
            with self.subTest(name):
                tuned = nestor.tune(nest, sizes, time=2, trials=2, target="host", db=f"{folder()}/recurrences.db", progress=False)
                tensors = make(numpy.random.default_rng(7))
                wanted = reference(*tensors)
                results = [numpy.full(each.shape, numpy.nan, "float32") for each in wanted]
                tuned(*tensors, *results)
                for found, correct in zip(results, wanted):
                    numpy.testing.assert_allclose(found, correct, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    unittest.main()
