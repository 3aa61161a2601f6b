"""nestor.torch.schedule's verify: what it compares, and how it names what differs."""

import unittest

from support import numpy

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    import torch.nn.functional as F
    from torch import nn

    import nestor.torch
    from nestor.torch import schedule


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class VerifyTest(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(3)

    def test_a_wrong_replacement_is_named(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.GELU())
        made = schedule(model)
        made.trace()
        made.replace(made.find(F.gelu), lambda x: F.gelu(x, approximate="tanh"))
        with self.assertRaises(schedule.Mismatch) as caught:
            made.verify((torch.randn(5, 4), ))
        self.assertEqual(len(caught.exception.worst), 4)
        self.assertIn("differs: ", caught.exception.report)
        made.verify((torch.randn(5, 4), ), rtol=1e-2, atol=1e-2)
        made.verify((torch.randn(5, 4), ), rtol={torch.float64: 1e-2}, atol={torch.float64: 1e-2})

    def test_a_wrong_gradient_is_found(self):

        class Cut(nn.Module):

            def forward(self, x):
                return x.detach() * 2.0 - x + 1e-12 * x

        model = nn.Sequential(nn.Linear(4, 4), nn.Identity(), nn.Linear(4, 2))
        made = schedule(model)
        made["1"].replace(by=Cut())
        made.verify((torch.randn(5, 4), ), backward=False)
        with self.assertRaisesRegex(schedule.Mismatch, "gradient of"):
            made.verify((torch.randn(5, 4), ))

    def test_dropout_in_another_order_is_compared_without(self):

        class Late(nn.Module):

            def forward(self, x):
                return F.dropout(x.mT, 0.5, self.training).mT

        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        made = schedule(model)
        made["1"].replace(by=Late())
        self.assertIn("train without dropout", made.verify((torch.randn(5, 4), )))

    def test_buffers_are_compared(self):

        class Silent(nn.BatchNorm1d):

            def forward(self, x):
                return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0,
                                    self.eps) if self.training else super().forward(x)

        made = schedule(nn.Sequential(nn.BatchNorm1d(4)))
        made["0"].replace(by=Silent(4))
        with self.assertRaisesRegex(schedule.Mismatch, "buffer 0.(running_mean|running_var|num_batches_tracked)"):
            made.verify((torch.randn(6, 4), ))

    def test_other_results_are_refused(self):

        class Pair(nn.Module):

            def forward(self, x):
                return x, x

        made = schedule(nn.Sequential(nn.Identity()))
        made["0"].replace(by=Pair())
        with self.assertRaisesRegex(schedule.Mismatch, "the scheduled model returns TreeSpec.tuple, .* in place of a value"):
            made.verify((torch.randn(6, 4), ), backward=False)
        with self.assertRaisesRegex(nestor.UserError, 'modes are "eval" and "train"'):
            made.verify((torch.randn(6, 4), ), modes=("test", ))


if __name__ == "__main__":
    unittest.main()
