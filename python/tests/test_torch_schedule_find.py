"""What nestor.torch.schedule selects and finds, and what replaces it: paths, ops and patterns however the code is written."""

import re
import unittest

from support import numpy

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    import operator

    import torch.nn.functional as F
    from schedule_models import Attention, Bert, FeedForward
    from torch import nn

    import nestor.torch
    from nestor.torch import schedule


def traced(function, *inputs, **options):
    """A traced schedule of a function of tensors."""

    class Model(nn.Module):
        forward = staticmethod(function)

    made = schedule(_Method(function))
    made.trace(inputs or None, **options)
    return made


class _Method(nn.Module if torch else object):
    """A function with one or more tensors as a module."""

    def __new__(cls, function):
        names = function.__code__.co_varnames[:function.__code__.co_argcount]
        space = {"function": function}
        exec(f"def forward(self, {', '.join(names)}):\n    return function({', '.join(names)})", space)  # noqa: S102
        made = type("Model", (nn.Module, ), {"forward": space["forward"]})
        return made()


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class FindTest(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(4)

    def count(self, function, pattern):
        return len(traced(function).find(pattern))


class PathTest(FindTest):

    def test_paths_globs_and_regular_expressions(self):
        made = schedule(Bert(layers=3))
        for what, count in {
                "encoder": 1,
                "encoder.layer.1": 1,
                "encoder.layer.*": 3,
                "encoder.layer.*.attention": 3,
                "**.dense": 9,
                "*.layer.[02].attention.self": 2,
                "encoder.layer.**": 52,
                r"encoder\.layer\.(0|2)": 2,
                re.compile(r".*query"): 3,
                r".*\.(query|key)": 6
        }.items():
            self.assertEqual(len(made[what]), count, what)
        self.assertEqual(made["encoder.layer.*"]["attention"]["self.query"].paths,
                         [f"encoder.layer.{layer}.attention.self.query" for layer in range(3)])

    def test_nothing_selected(self):
        made = schedule(Bert())
        with self.assertRaisesRegex(nestor.UserError, r"no module is named 'encoder.layr.0'; near to it are encoder.layer.0"):
            made["encoder.layr.0"]
        with self.assertRaisesRegex(nestor.UserError, r"no module below 'encoder.layer.0', 'encoder.layer.1' is named 'x\+'"):
            made["encoder.layer.*"]["x+"]
        with self.assertRaisesRegex(nestor.UserError, r"'\(' is no regular expression"):
            made["("]
        with self.assertRaisesRegex(nestor.UserError, "by a path, a glob or a regular expression, not by a int"):
            made[3]


class OpTest(FindTest):

    def test_an_op_is_found_however_it_is_written(self):
        for written, wanted in (
            (lambda x: x + x, (torch.add, operator.add, torch.Tensor.add, torch.ops.aten.add.Tensor, "add")),
            (lambda x: torch.add(x, 1), (operator.add, "add")),
            (lambda x: x.add(1), (operator.add, torch.add)),
            (lambda x: x / 2, (torch.div, torch.true_divide, operator.truediv, torch.ops.aten.div)),
            (lambda x: x @ x, (torch.matmul, operator.matmul)),
            (lambda x: x.softmax(-1), (F.softmax, torch.softmax)),
            (lambda x: F.gelu(x), (F.gelu, torch.ops.aten.gelu)),
            (lambda x: x.tanh(), (torch.tanh, F.tanh)),
            (lambda x: -x, (torch.neg, torch.negative, operator.neg)),
        ):
            for what in wanted:
                self.assertEqual(self.count(written, what), 1, what)
        self.assertEqual(self.count(lambda x: x + x, torch.sub), 0)

    def test_modules_without_parameters_are_their_functions(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.ReLU(), nn.Softmax(-1), nn.Dropout(0.2))
        made = schedule(model).trace()
        for what in (F.gelu, torch.relu, F.softmax, F.dropout, nn.GELU, nn.Linear, "linear|Linear|0"):
            self.assertEqual(len(made.find(what)), 1, what)

    def test_exported_graphs_are_found_by_the_same_patterns(self):

        def pattern(x, y, scale):
            return F.softmax(x @ y.transpose(-2, -1) / scale, -1)

        def written(x, y):
            if x.shape[0] * 0 + len(x.shape) == 2:  # only torch.export knows
                return torch.softmax(torch.matmul(x, y.mT) / 8.0, dim=-1)
            return x

        def other(x, y):
            return torch.softmax(torch.div(torch.matmul(x, y.transpose(-1, -2)), 8.0), dim=1)

        self.assertEqual(len(traced(other).find(pattern)), 1)
        self.assertEqual(len(traced(written, torch.randn(3, 4), torch.randn(5, 4)).find(torch.softmax)), 1)


class PatternTest(FindTest):

    def test_numbers_are_wildcards_unless_asked_for_exactly(self):

        def written(x):
            return torch.softmax(x / 8.0, -1)

        self.assertEqual(self.count(written, lambda x: F.softmax(x / 3.0, 1)), 1)
        self.assertEqual(self.count(written, lambda x: F.softmax(x / schedule.exactly(8.0), -1)), 1)
        self.assertEqual(self.count(written, lambda x: F.softmax(x / schedule.exactly(3.0), -1)), 0)
        self.assertEqual(self.count(written, lambda x: F.softmax(x / 3.0, schedule.exactly(1))), 0)
        found = traced(written).find(lambda x, scale, dim: F.softmax(x / scale, dim))
        self.assertEqual(repr(found.one.inputs), "[x, 8.0, -1]")

    def test_truth_values_and_texts_have_to_be_equal(self):
        self.assertEqual(self.count(lambda x: x.sum(-1, keepdim=True) * 2, lambda x: x.sum(-1, keepdim=True) * 3), 1)
        self.assertEqual(
            self.count(lambda x: x.sum(-1, keepdim=True) * 2, lambda x: x.sum(-1, keepdim=schedule.exactly(False)) * 3), 0)
        self.assertEqual(self.count(lambda x: F.gelu(x, approximate="tanh") * 2, lambda x: F.gelu(x, approximate="tanh") * 2),
                         1)
        self.assertEqual(self.count(lambda x: F.gelu(x, approximate="tanh") * 2, lambda x: F.gelu(x) * 2), 0)

    def test_commutative_operands_in_both_orders(self):

        def written(x, y, z):
            return (x * y + torch.tanh(z)) * torch.sigmoid(z)

        for pattern in (lambda x, y, z: torch.sigmoid(z) * (torch.tanh(z) + y * x), lambda x, y, z:
                        (torch.tanh(z) + y * x) * torch.sigmoid(z), lambda x, y, z: torch.sigmoid(z) * (y * x + z.tanh())):
            self.assertEqual(self.count(written, pattern), 1)
        self.assertEqual(self.count(lambda x, y: x - torch.tanh(y), lambda x, y: torch.tanh(y) - x), 0)

    def test_one_argument_means_one_value(self):
        self.assertEqual(self.count(lambda x, y: torch.tanh(x) * torch.sigmoid(y), lambda x: torch.tanh(x) * torch.sigmoid(x)),
                         0)
        self.assertEqual(self.count(lambda x: torch.tanh(x) * torch.sigmoid(x), lambda x: torch.tanh(x) * torch.sigmoid(x)), 1)
        self.assertEqual(self.count(lambda x: torch.tanh(x) * torch.sigmoid(x), lambda x, y: torch.tanh(x) * torch.sigmoid(y)),
                         1)

    def test_several_results_and_names(self):

        def pattern(x, y):
            scores = x @ y
            return torch.tanh(scores), scores, {"scores": scores}

        found = traced(lambda a, b: (torch.tanh(a @ b), torch.exp(a @ b))).find(pattern)
        self.assertEqual(len(found), 1)
        match = traced(lambda a, b: _both(a @ b)).find(pattern).one
        self.assertEqual(match["scores"], "matmul")
        with self.assertRaisesRegex(nestor.UserError, "the pattern names no 'other'; it names scores"):
            match["other"]

    def test_values_needed_outside_are_no_match_and_say_so(self):
        found = traced(lambda a, b: _both(a @ b)).find(lambda x, y: torch.tanh(x @ y))
        self.assertEqual(len(found), 0)
        self.assertRegex(repr(found), r"no match\n  not: the model: matmul inside of it is also read by exp")
        with self.assertRaisesRegex(nestor.UserError, "was not found: the model: matmul inside of it is also read by exp"):
            found.one

    def test_not_convex_is_no_match_and_says_so(self):

        def written(x):
            y = torch.tanh(x)
            return torch.exp(torch.sigmoid(y)) * y

        found = traced(written).find(lambda y, z: (y.tanh(), z * y.tanh()))
        self.assertEqual(len(found), 0)

        def pattern(x, other):
            y = torch.tanh(x)
            return y * other, y

        found = traced(written).find(pattern)
        self.assertEqual(len(found), 0)
        self.assertRegex(repr(found), "it is not convex: exp lies between its nodes")

    def test_modules_by_class_or_name(self):
        made = schedule(FeedForward()).trace()
        self.assertEqual(len(made.find(lambda x: torch.tanh(schedule.call_module(nn.Linear, x)))), 1)
        self.assertEqual(len(made.find(lambda x: schedule.call_module("up|down", torch.tanh(x)))), 1)
        self.assertEqual(len(made.find(lambda x: schedule.call_module(nn.LayerNorm, torch.tanh(x)))), 0)
        self.assertEqual([match.nodes for match in made.find(nn.Linear)], [["up"], ["down"]])

    def test_overlapping_matches_are_taken_once(self):
        self.assertEqual(self.count(lambda x: torch.exp(torch.exp(torch.exp(x))), lambda x: torch.exp(torch.exp(x))), 1)
        self.assertEqual(self.count(lambda x: torch.exp(torch.exp(torch.exp(x))), torch.exp), 3)


class ReplaceTest(FindTest):

    def same(self, made, *inputs):
        made.verify(inputs)

    def test_operands_of_a_replacement(self):
        made = traced(lambda x, y: torch.exp(x) - y * 2)
        made.replace(made.find(lambda x, y, k: torch.exp(x) - y * k), lambda x, y, k: torch.sub(x.exp(), y + y * (k - 1)))
        self.same(made, torch.randn(3), torch.randn(3))

    def test_several_results(self):
        made = traced(lambda x: _both(x * 2))
        found = made.find(lambda x, k: (torch.tanh(x * k), torch.exp(x * k)))
        self.assertEqual(len(found), 0)  # the product is computed once there, and twice in the pattern

        def pattern(x, k):
            return _both(x * k)

        made.replace(made.find(pattern), lambda x, k: (torch.tanh(k * x), torch.exp(k * x)))
        self.same(made, torch.randn(3))
        with self.assertRaisesRegex(nestor.UserError, r"returns 1 value, and the match has 2"):
            made.undo().replace(made.find(pattern), lambda x, k: x * k)

    def test_a_module_takes_the_place_of_one(self):
        made = schedule(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
        made.trace().replace(made.find(nn.Linear), nn.Linear(4, 4, bias=False))
        self.assertEqual(list(made.build().state_dict()), ["0.weight"])
        made = schedule(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
        made.trace().replace(made.find(nn.Linear), make=lambda match: nn.Linear(4, 4, bias=False))
        self.assertEqual(list(made.build().state_dict()), ["0.weight", "1.weight"])
        with self.assertRaisesRegex(nestor.UserError, "Linear has parameters, and there are 2 places for it: give make="):
            made.undo().replace(made.find(nn.Linear), nn.Linear(4, 4))

    def test_a_module_for_a_pattern(self):

        class Scaled(nn.Module):

            def forward(self, x, y):
                return torch.exp(x) * y

        made = traced(lambda x, y: torch.exp(x) * y + 1)
        made.replace(made.find(lambda x, y: torch.exp(x) * y), Scaled(), name="scaled")
        self.assertIn("scaled = self.scaled(x, y)", made.code())
        self.same(made, torch.randn(3), torch.randn(3))

    def test_whole_modules(self):
        made = schedule(Bert(dropout=0.0))
        made["**.dropout"].replace(by=nn.Identity())
        self.assertEqual(sum(isinstance(each, nn.Identity) for each in made.build().modules()), 1)
        made["encoder.layer.*.intermediate"].replace(make=lambda old: nn.Sequential(old.dense, nn.GELU()))
        tokens, mask = torch.randint(40, (2, 5)), torch.ones(2, 5).long()
        torch.testing.assert_close(made.build().eval()(tokens, mask), made.original.eval()(tokens, mask))

    def test_definitions(self):
        x, weight, bias = torch.randn(3, 8), torch.randn(8).double(), torch.randn(8).double()
        for written in (lambda x: F.layer_norm(x, (8, ), weight, bias, 1e-3), lambda x: F.rms_norm(x, (8, ), weight, 1e-3),
                        lambda x: F.layer_norm(x, (8, )), lambda x: torch.softmax(x, -1), lambda x: x.log_softmax(0),
                        lambda x: F.silu(x), lambda x: F.gelu(x), lambda x: F.gelu(x, approximate="tanh"),
                        lambda x: F.linear(x, x), lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
                        lambda x: F.linear(x, x, x[:, 0])):
            made = traced(written)
            ops = [
                each for each in ("layer_norm", "rms_norm", "softmax", "log_softmax", "silu", "gelu", "linear",
                                  "scaled_dot_product_attention") if len(made.find(each))
            ]
            made.decompose(made.find(ops[0]))
            self.assertEqual(len(made.find(ops[0])), int(ops[0] == "linear"))
            self.same(made, x)

    def test_modules_are_decomposed_before_they_are_traced_into(self):
        model = Attention(8, 2, 0.1)
        made = schedule(model)
        made["output.dense"].decompose()
        made["output.norm"].decompose()
        output = made["output"].trace(flatten=True)
        self.assertEqual((len(output.find(torch.rsqrt)), len(output.find(F.linear))), (1, 1))
        self.assertEqual(list(made.build().state_dict()), list(model.state_dict()))
        made.verify((torch.randn(2, 3, 8), ))


def _both(x):
    return torch.tanh(x), torch.exp(x)


if __name__ == "__main__":
    unittest.main()
