"""What nestor.torch.schedule traces: constants, shapes, modes and writes; and what stays a call, or needs torch.export."""

import math
import unittest

from support import numpy

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    import torch.nn.functional as F
    from schedule_models import Attention, Bert, FeedForward
    from torch import nn

    import nestor.torch
    from nestor.torch import schedule


def bucketed(x):
    """A helper that cannot be traced."""
    return x * 2 if x.sum() > 0 else x


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class TraceTest(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(4)

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
        with self.assertRaisesRegex(nestor.UserError,
                                    "the argument flag was False when this forward was traced, and is True now"):
            built(torch.randn(3), flag=True)
        with self.assertRaisesRegex(nestor.UserError, "the argument mask was None when"):
            built(torch.randn(3), mask=torch.randn(3))
        built(torch.randn(3), 2.0, None, False)
        with self.assertRaisesRegex(
                nestor.UserError, r"the model \(Model\) cannot be traced symbolically: its forward does other work "
                "where mask is not given, so inputs are needed to know; give inputs="):
            schedule(Model()).trace()
        with self.assertRaisesRegex(nestor.UserError, r"inputs do not fit the forward of the model \(Model\): missing"):
            schedule(Model()).trace(())

    def test_more_arguments_are_taken_to_be_none(self):

        class Model(nn.Module):

            def __init__(self):
                super().__init__()
                self.layer = Attention(8, 2, 0.0)

            def forward(self, x, *rest, **more):
                return self.layer(x, *rest, **more)

        made = self.check(Model(), None, (torch.randn(2, 3, 8), ))
        with self.assertRaisesRegex(nestor.UserError, "the length of a value that Python code goes through was 0 when"):
            made.build()(torch.randn(2, 3, 8), mask=torch.zeros(3))

        class Behind(nn.Module):

            def forward(self, x, *rest, scale=2.0):
                return x * scale

        with self.assertRaisesRegex(nestor.UserError, "its forward has arguments behind .args, which torch.fx gives another"):
            schedule(Behind()).trace()

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
        made = schedule(nn.Sequential(Model()), (torch.randn(3, 4), ))
        made["0"].trace()
        made.trace(flatten=True)
        made.verify((torch.randn(5, 8), ), backward=False)
        with self.assertRaisesRegex(nestor.UserError, r"a value that Python code asks for \(bool\) was True when"):
            made.build()(torch.randn(3, 2))
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
        self.assertIn("stuck = self.stuck(x)", made.code())
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
        with self.assertRaisesRegex(
                nestor.UserError, r"the argument x of the model \(Model\) has the extent 5 at dim 1, and this forward "
                "was exported for 4"):
            made.build()(torch.randn(3, 5))

    def test_nothing_traces_it(self):

        class Model(nn.Module):

            def forward(self, x):
                return x * 2 if x.sum() > 0 else x

        made = schedule(Model())
        with self.assertRaisesRegex(nestor.UserError, r"cannot be traced symbolically: bool\(\) of a value that is not known"):
            made.trace()
        with self.assertRaisesRegex(nestor.UserError,
                                    r"torch.export does not take the model \(Model\) either: .*; torch.fx: bool\(\)"):
            made.trace((torch.randn(3), ))

    def test_writes_are_seen_by_aliases(self):

        class Model(nn.Module):

            def forward(self, x):
                y = torch.exp(x)
                z = y.view(-1)
                y += 1
                z[0] = 5
                y *= 2
                return y + z.view(y.shape)

        made = self.check(Model(), None, (torch.randn(3, 4), ))
        self.assertIn("add_ = ", made.code().replace("iadd", "add_"))

    def test_other_gradient_modes_are_not_lost(self):

        class Part(nn.Module):

            def forward(self, x):
                with torch.no_grad():
                    scale = x.abs().amax()
                return x / scale

        with self.assertRaisesRegex(nestor.UserError,
                                    r"other gradient or autocast modes in a part.*schedule_trace.py:.*; trace a part"):
            schedule(Part()).trace((torch.randn(3), ))
        made = schedule(nn.Sequential(nn.Linear(3, 3), Part()))
        made.trace(flatten=True)
        self.assertIn("1 stays a call: it computes with other gradient or autocast modes", made.explain())
        made.verify((torch.randn(2, 3), ))

    def test_own_gradients_are_not_lost(self):

        class Double(torch.autograd.Function):

            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                return gradient * 7

        class Part(nn.Module):

            def forward(self, x):
                return Double.apply(x)

        with self.assertRaisesRegex(nestor.UserError,
                                    "Double is a torch.autograd.Function, whose own gradient a graph does not hold"):
            schedule(Part()).trace((torch.randn(3), ))
        made = schedule(nn.Sequential(nn.Linear(3, 3), Part()))
        made.trace(flatten=True)
        made.verify((torch.randn(2, 3), ))
        Double.apply(torch.ones(1))

    def test_values_that_a_forward_keeps(self):

        class Part(nn.Module):

            def __init__(self):
                super().__init__()
                self.last = None

            def forward(self, x):
                self.last = torch.exp(x)
                return self.last * 2

        part = Part()
        with self.assertRaisesRegex(nestor.UserError, "it keeps values in self.last, which a graph does not do"):
            schedule(part).trace()
        made = schedule(nn.Sequential(part))
        made.trace(flatten=True)
        self.assertIn("0 stays a call: it keeps values in self.last", made.explain())
        self.assertIsNone(made.model[0].last)
        built = made.build()
        built(torch.ones(2))
        torch.testing.assert_close(built[0].last, torch.ones(2).exp())

    def test_parts_in_another_mode_stay_calls(self):
        model = nn.Sequential(nn.Sequential(nn.Linear(3, 3)), nn.Sequential(nn.Dropout(0.5)))
        model[1].eval()
        made = schedule(model)
        made.trace(flatten=[nn.Sequential])
        self.assertIn("1 stays a call: it trains, or evaluates, where the model (Sequential) does not", made.explain())
        self.assertEqual([each.training for each in made.model.modules()], [each.training for each in model.modules()])

    def test_exported_control_flow_is_refused(self):

        class Model(nn.Module):

            def forward(self, x):
                return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x, ))

        with self.assertRaisesRegex(nestor.UserError, r"torch.export makes a part of the model \(Model\) of its own"):
            schedule(Model()).trace((torch.randn(3), ))

    def test_source_lines_are_kept(self):
        made = schedule(FeedForward())
        made.trace()
        self.assertRegex(repr(made.find(torch.tanh)),
                         r"tanh  schedule_models.py:\d+  return self.down\(torch.tanh\(self.up\(x\)\)\)")


if __name__ == "__main__":
    unittest.main()
