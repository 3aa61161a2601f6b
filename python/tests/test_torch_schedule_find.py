"""What nestor.torch.schedule selects, traces and finds: paths, partial graphs, patterns however the code is written."""

import math
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
        for what, count in {"encoder": 1, "encoder.layer.1": 1, "encoder.layer.*": 3, "encoder.layer.*.attention": 3, "**.dense": 9,
                            "*.layer.[02].attention.self": 2, "encoder.layer.**": 52, r"encoder\.layer\.(0|2)": 2,
                            re.compile(r".*query"): 3, r".*\.(query|key)": 6}.items():
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
        self.assertEqual(self.count(lambda x: x.sum(-1, keepdim=True) * 2, lambda x: x.sum(-1, keepdim=schedule.exactly(False)) * 3), 0)
        self.assertEqual(self.count(lambda x: F.gelu(x, approximate="tanh") * 2, lambda x: F.gelu(x, approximate="tanh") * 2), 1)
        self.assertEqual(self.count(lambda x: F.gelu(x, approximate="tanh") * 2, lambda x: F.gelu(x) * 2), 0)

    def test_commutative_operands_in_both_orders(self):
        def written(x, y, z):
            return (x * y + torch.tanh(z)) * torch.sigmoid(z)

        for pattern in (lambda x, y, z: torch.sigmoid(z) * (torch.tanh(z) + y * x), lambda x, y, z:
                        (torch.tanh(z) + y * x) * torch.sigmoid(z), lambda x, y, z: torch.sigmoid(z) * (y * x + z.tanh())):
            self.assertEqual(self.count(written, pattern), 1)
        self.assertEqual(self.count(lambda x, y: x - torch.tanh(y), lambda x, y: torch.tanh(y) - x), 0)

    def test_one_argument_means_one_value(self):
        self.assertEqual(self.count(lambda x, y: torch.tanh(x) * torch.sigmoid(y), lambda x: torch.tanh(x) * torch.sigmoid(x)), 0)
        self.assertEqual(self.count(lambda x: torch.tanh(x) * torch.sigmoid(x), lambda x: torch.tanh(x) * torch.sigmoid(x)), 1)
        self.assertEqual(self.count(lambda x: torch.tanh(x) * torch.sigmoid(x), lambda x, y: torch.tanh(x) * torch.sigmoid(y)), 1)

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
                        lambda x: F.layer_norm(x, (8, )), lambda x: torch.softmax(x, -1), lambda x: x.log_softmax(0), lambda x: F.silu(x),
                        lambda x: F.gelu(x), lambda x: F.gelu(x, approximate="tanh"), lambda x: F.linear(x, x),
                        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]), lambda x: F.linear(x, x, x[:, 0])):
            made = traced(written)
            ops = [each for each in ("layer_norm", "rms_norm", "softmax", "log_softmax", "silu", "gelu", "linear",
                                     "scaled_dot_product_attention") if len(made.find(each))]
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


def bucketed(x):
    """A helper that cannot be traced."""
    return x * 2 if x.sum() > 0 else x


def _mode_of(x, training):
    return x * 2 if training else x


class TraceTest(FindTest):
    def check(self, model, inputs, *more, **options):
        """Traces, and compares at these inputs and others."""
        made = schedule(model)
        made.trace(inputs, **options)
        for given in ((inputs, *more) if inputs is not None else more):
            made.verify(given, backward=False)
        return made

    def test_constants_are_checked(self):
        class Model(nn.Module):
            def forward(self, x, scale=2.0, mask=None, flag=False):
                x = x * scale if flag else x + scale
                return x if mask is None else x + mask

        made = self.check(Model(), (torch.randn(3), ), (torch.randn(4), ))
        built = made.build()
        with self.assertRaisesRegex(nestor.UserError, "the argument flag was False when this forward was traced, and is True now"):
            built(torch.randn(3), flag=True)
        with self.assertRaisesRegex(nestor.UserError, "the argument mask was None when"):
            built(torch.randn(3), mask=torch.randn(3))
        built(torch.randn(3), 2.0, None, False)
        with self.assertRaisesRegex(nestor.UserError, r"the model \(Model\) cannot be traced symbolically: its forward does other work "
                                    "where mask is not given, so inputs are needed to know; give inputs="):
            schedule(Model()).trace()
        with self.assertRaisesRegex(nestor.UserError, r"inputs do not fit the forward of the model \(Model\): missing"):
            schedule(Model()).trace(())

    def test_arguments_that_are_passed_on_need_no_inputs(self):
        made = schedule(Bert())
        made["encoder.layer.*.attention"].trace()
        self.assertIn("self.self(hidden, mask)", made.code("encoder.layer.0.attention"))

    def test_python_code_about_shapes(self):
        class Model(nn.Module):
            def forward(self, x):
                first, second = x.shape
                x = x.view(*x.shape[:1], 2, -1)
                for number in range(len(x.shape)):
                    x = x + number
                x = x + torch.stack([row for row in x.unbind(1)]).mean(0)[:, None] if isinstance(x, torch.Tensor) else None
                if second > 3:
                    x = x * math.sqrt(second)
                return x

        made = self.check(Model(), (torch.randn(3, 4), ), (torch.randn(5, 4), ), (torch.randn(5, 8), ))
        with self.assertRaisesRegex(nestor.UserError, r"a value that Python code asks for \(bool\) was True when"):
            made.build()(torch.randn(3, 2))

        class Rows(nn.Module):
            def forward(self, x):
                return sum(row for row in x)

        made = self.check(Rows(), (torch.randn(3, 4), ))
        with self.assertRaisesRegex(nestor.UserError, "the length of a value that Python code goes through was 3 when"):
            made.build()(torch.randn(4, 4))
        with self.assertRaisesRegex(nestor.UserError, "a loop over, or len.. of, a value that is not known without inputs"):
            schedule(Rows()).trace()

    def test_tensors_made_inside_are_made_at_each_call(self):
        class Model(nn.Module):
            def forward(self, x):
                y = x + torch.arange(x.shape[-1]) + torch.zeros(x.shape[0], 1) + torch.finfo(x.dtype).tiny
                return y + torch.rand(1) * 0 + torch.rand(y.shape)

        made = schedule(Model())
        made.trace()
        x = torch.zeros(2, 3)
        self.assertFalse(torch.equal(made.build()(x), made.build()(x)))
        made.verify((x, ), backward=False)

    def test_what_cannot_be_traced_stays_a_call(self):
        class Stuck(nn.Module):
            def forward(self, x):
                return x + 1 if x.sum() > 0 else x

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.stuck, self.open = Stuck(), nn.Sequential(nn.Linear(3, 3), Stuck())

            def forward(self, x):
                return torch.exp(bucketed(self.open(self.stuck(x))))

        made = schedule(Model())
        made.trace(flatten=True)
        self.assertRegex(made.code(), r"stuck = self.stuck\(x\)\n.*open_1\n?")if False else None
        text = made.explain()
        self.assertRegex(text, r"stuck stays a call: .*bool\(\) of a value")
        self.assertRegex(text, r"bucketed stays a call: ")
        made.verify((torch.randn(3), ), backward=False)
        self.assertEqual(len(made.find(bucketed)), 1)
        self.assertEqual(len(made.find(torch.exp)), 1)

    def test_leaves_and_flattening_by_choice(self):
        model = Bert()
        made = schedule(model)
        layer = made["encoder.layer.0"].trace(flatten=["attention", Attention])
        self.assertIn("self.attention.self(", layer.code())
        made.undo()
        layer = made["encoder.layer.0"].trace(flatten=True, leaves=["attention.self"])
        self.assertIn("self.attention.self(", layer.code())
        self.assertIn("self.attention.output.dense(", layer.code())
        made.undo()
        model.encoder.layer[0].attention.register_forward_hook(lambda *_: None)
        made = schedule(model)
        made["encoder.layer.0"].trace(flatten=True)
        self.assertIn("attention stays a call: it has a forward hook", made.explain())

    def test_both_modes_in_one_graph(self):
        class Model(nn.Module):
            def forward(self, x):
                x = F.dropout(x, 0.5, self.training)
                return F.scaled_dot_product_attention(x, x, x, dropout_p=0.1 if self.training else 0.0)

        made = self.check(Model(), None, (torch.randn(1, 4, 4), ))
        self.assertIn("chosen(training, 0.1, 0.0)", made.code())
        built = made.build()
        x = torch.randn(1, 4, 4)
        self.assertTrue(torch.equal(built.eval()(x), built(x)))
        self.assertFalse(torch.equal(built.train()(x), built(x)))

    def test_other_work_in_training_needs_a_mode(self):
        class Model(nn.Module):
            def forward(self, x):
                return torch.exp(x) if self.training else x

        with self.assertRaisesRegex(nestor.UserError, "does other work in training than in evaluation: give mode="):
            schedule(Model()).trace()
        made = schedule(Model())
        made.trace(mode="eval")
        self.assertTrue(torch.equal(made.build().eval()(torch.ones(2)), torch.ones(2)))
        with self.assertRaisesRegex(nestor.UserError, "was traced for evaluation alone, and is in training mode"):
            made.build().train()(torch.ones(2))
        with self.assertRaisesRegex(nestor.UserError, 'mode is "train", "eval" or None'):
            schedule(Model()).trace(mode="test")

    def test_torch_export_where_torch_fx_fails(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)
                self.register_buffer("shift", torch.ones(4))

            def forward(self, x, flag=True):
                dim = {3: 0, 2: 1}[x.dim() + 1]  # a proxy is no key
                found = {"both": self.linear(x) + self.shift, "sum": F.dropout(x, 0.25, self.training).sum(dim)}
                return found if flag else None

        made = schedule(Model())
        with self.assertRaisesRegex(nestor.UserError, "cannot be traced symbolically"):
            made.trace()
        made.trace((torch.randn(3, 4), ))
        made.verify((torch.randn(3, 4), ))
        self.assertIn("traced by torch.export", made.explain())
        self.assertEqual(len(made.find(F.linear)), 1)
        with self.assertRaisesRegex(nestor.UserError, r"the argument x of the model \(Model\) has the extent 5 at dim 1, and this forward "
                                    "was exported for 4"):
            made.build()(torch.randn(3, 5))

    def test_nothing_traces_it(self):
        class Model(nn.Module):
            def forward(self, x):
                return x * 2 if x.sum() > 0 else x

        made = schedule(Model())
        with self.assertRaisesRegex(nestor.UserError, r"cannot be traced symbolically: bool\(\) of a value that is not known"):
            made.trace()
        with self.assertRaisesRegex(nestor.UserError, r"torch.export does not take the model \(Model\) either: .*; torch.fx: bool\(\)"):
            made.trace((torch.randn(3), ))

    def test_source_lines_are_kept(self):
        made = schedule(FeedForward())
        made.trace()
        self.assertRegex(repr(made.find(torch.tanh)), r"tanh  schedule_models.py:\d+  return self.down\(torch.tanh\(self.up\(x\)\)\)")


if __name__ == "__main__":
    unittest.main()
