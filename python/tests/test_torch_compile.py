"""torch.compile(backend="nestor") and nestor.torch.optimize: results are eager's, whoever computes them."""

import contextlib
import pickle
import threading
import unittest
import warnings
from unittest import mock

from support import numpy

import nestor

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    import torch.nn.functional as F
    from compiling import CompileTest, QuickWorker
    from importer_models import Encoder, alibi, attention_with, sigmoid
    from torch import nn

    import nestor.torch
    from nestor.torch.compiler import background, layouts, rewrite
    from nestor.torch.importer import regions as importer_regions
else:
    CompileTest = unittest.TestCase


def attend(query, key, value):
    return torch.sigmoid(query @ key.mT * 0.5 - 2) @ value


def heads(length=24, batch=2, **options):
    return [torch.randn(batch, 3, length, 16, **options) for _ in range(3)]


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class ModelTest(CompileTest):
    def test_a_layer_of_bert_and_its_second_start(self):
        """Tuned and raced in a process of its own; a second start finds everything in the database."""
        model = Encoder().eval()
        inputs = torch.randn(2, 24, 32), torch.ones(2, 24, dtype=torch.int64)
        with torch.inference_mode():
            expected = model(*inputs)
            with mock.patch.object(backend_module(), "Worker", WORKER):
                compiled = nestor.torch.optimize(model, inputs, db=self.db, time_per_nest=1, min_gain=1e-6)
            self.assertClose(compiled(*inputs), expected)
            report, = compiled.report()
            self.assertEqual([len(report.taken), report.pending], [3, 0])  # attention, and two equal norms
            self.assertEqual(report.regions[1].op, report.regions[2].op)
            self.assertTrue(all(region.gain for region in report.regions))
            self.assertRegex(str(report), r"from    importer_models.py:\d+  x = self.first\(x \+ self.out")
            torch._dynamo.reset()
            again = nestor.torch.optimize(model, inputs, db=self.db, min_gain=1e-6)
            self.assertEqual([len(again.report()[0].taken), QuickWorker.jobs], [3, 0])
            self.assertClose(again(*inputs), expected)
            restored = pickle.loads(pickle.dumps(again))
            self.assertClose(restored(*inputs), expected)

    def test_a_start_that_a_cache_serves_knows_its_report(self):
        model = Encoder().eval()
        inputs = torch.randn(2, 20, 32), torch.ones(2, 20, dtype=torch.int64)
        with torch.inference_mode():
            reports = []
            for start in range(3):  # the first one tunes, so that nothing which it leaves in a cache is of use
                torch._dynamo.reset()
                with mock.patch.object(rewrite.Rewriting, "choose", autospec=True,
                                       side_effect=rewrite.Rewriting.choose) as choose:
                    compiled = nestor.torch.optimize(model, inputs, db=self.db, min_gain=1e-6)
                reports.append(compiled.report())
                self.assertEqual(choose.call_count, 1 if start < 2 else 0)
                self.assertClose(compiled(*inputs), model(*inputs))
        self.assertEqual(str(reports[2]), str(reports[1]))
        self.assertEqual([len(reports[2][0].taken), reports[2][0].regions], [3, reports[1][0].regions])
        self.assertIsNone(reports[2][0].regions[0].refused)

    def test_variants_of_attention_written_out(self):
        def variants(query, key, value):
            causal = attention_with(lambda row, column: column <= row)
            return causal(query, key, value), alibi(query, key, value), sigmoid(query, key, value)

        inputs = heads()
        found = self.compiled(variants)(*inputs)
        for one, other in zip(found, variants(*inputs)):
            self.assertClose(one, other)
        self.assertEqual(len(self.taken()), 3)

    def test_ops_that_nests_do_not_have_stay_around_regions(self):
        class Mixed(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.norm = nn.Embedding(10, 32), nn.LayerNorm(32)
                self.register_buffer("seen", torch.zeros(32))

            def forward(self, tokens, order):
                x = self.norm(self.table(tokens))
                self.seen.add_(x.sum((0, 1)))
                x = x[:, order].softmax(-1)
                return x.sort(-1).values, x.argmax(-1)

        model, other = Mixed(), Mixed()
        other.load_state_dict(model.state_dict())
        inputs = torch.randint(0, 10, (2, 7)), torch.tensor([3, 1, 0])
        with torch.no_grad():
            compiled = self.compiled(model)
            for _ in range(2):
                self.assertClose(compiled(*inputs), other(*inputs))
                self.assertClose(model.seen, other.seen)
        self.assertTrue(self.taken())

    def test_lengths_and_batches_compile_once(self):
        compiled = self.compiled(attend, dynamic=True)
        for length, batch in ((24, 2), (17, 3), (40, 1), (64, 2)):
            inputs = heads(length, batch)
            self.assertClose(compiled(*inputs), attend(*inputs))
        self.assertEqual(len(self.taken()), len(self.reports))
        self.assertLessEqual(len(self.reports), 2)  # a batch of one is a graph of its own

    def test_a_step_of_training(self):
        """Gradients are right whether or not short sums pass their comparison with float64."""
        warnings.simplefilter("ignore")
        model = Encoder()
        inputs = torch.randn(2, 24, 32, requires_grad=True), torch.ones(2, 24, dtype=torch.int64)
        wanted = [inputs[0], *model.parameters()]
        weight = torch.randn(2, 24, 32)
        expected = torch.autograd.grad((model(*inputs) * weight).sum(), wanted)
        found = torch.autograd.grad((self.compiled(model)(*inputs) * weight).sum(), wanted)
        for one, other in zip(found, expected):
            self.assertClose(one, other, 2e-4)
        self.assertEqual(len(self.reports), 2)
        self.assertTrue(all(report.taken for report in self.reports))

    def test_half_types_and_autocast(self):
        model, x = nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32)), torch.randn(4, 32)
        compiled = self.compiled(model)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            self.assertClose(compiled(x).float(), model(x).float(), 3e-2)
        self.assertTrue(self.taken())

    def test_operands_of_several_tensors_are_made_first(self):
        """Rotary embedding is not computed anew for every tile of queries."""
        def turned(query, key, value, cos, sin):
            query, key = (x * cos + torch.cat((-x[..., 8:], x[..., :8]), -1) * sin for x in (query, key))
            return attend(query, key, value)

        inputs = *heads(), *torch.randn(2, 24, 16)
        self.assertClose(self.compiled(turned)(*inputs), turned(*inputs), 1e-4)
        self.assertEqual(self.taken(), ["bmm mul sub sigmoid bmm"])

    def test_results_lie_as_their_reader_wants_them(self):
        """Heads that are merged after attention are written merged."""
        def merged(query, key, value):
            return (attend(query, key, value).transpose(1, 2).reshape(2, 24, 48) @ torch.ones(48, 8)).relu()

        def turned(query, key, value):
            """Kernels write along the last index, so that the copy stays PyTorch's."""
            return (attend(query, key, value).transpose(1, 3).reshape(2, 16, 72) @ torch.ones(72, 8)).relu()

        for number, function in enumerate((merged, turned)):
            inputs = heads()
            self.assertClose(self.compiled(function)(*inputs), function(*inputs), 1e-4)
            self.assertEqual(len(self.taken()), number + 1)


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class HardCasesTest(CompileTest):
    def test_writes_into_inputs(self):
        def scaled_in_place(x, y):
            before = x.softmax(-1)
            x.mul_(2)
            return before + x.softmax(-1) @ y

        y = torch.randn(8, 8)
        one = torch.randn(4, 8)
        other = one.clone()
        compiled = self.compiled(scaled_in_place)
        self.assertClose(compiled(one, y), scaled_in_place(other, y))
        self.assertClose(one, other)

    def test_strides_of_zero_and_odd_ones(self):
        def norm(x):
            return F.layer_norm(x, x.shape[-1:])

        compiled = self.compiled(norm, dynamic=False)
        for x in (torch.randn(1, 16).expand(4, 16), torch.randn(16, 4).t(), torch.randn(4, 32)[:, ::2],
                  torch.randn(16).expand(4, 16)):
            self.assertClose(compiled(x), norm(x))
        self.assertTrue(self.taken())

    def test_tensors_that_have_no_view_with_the_extents_of_the_nest(self):
        """Patches of an image lie channel by channel: rows of a product of all of them are no view."""
        convolution, norm, linear = nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8), nn.Linear(8, 8)

        def patches(image):
            x = convolution(image).flatten(2).transpose(1, 2)
            return x + linear(norm(x).relu())

        image = torch.randn(2, 3, 16, 16)
        self.assertClose(self.compiled(patches, products=True)(image), patches(image))
        self.assertTrue(self.taken())
        # Inductor's passes run among fake tensors, whose views fail in another way.
        for mode in (contextlib.nullcontext(), torch._subclasses.FakeTensorMode()):
            with mode:
                self.assertFalse(layouts.is_readable((2, 16, 32), (512, 1, 16), (32, 32)))
                self.assertEqual(layouts.joined_indices((2, 16, 32), (512, 1, 16), (32, 32)), [True])
                self.assertTrue(layouts.is_readable((2, 16, 32), (512, 32, 1), (32, 32)))

    def test_empty_batches_and_breaks(self):
        def broken(x):
            y = x.softmax(-1)
            return y[y.sum(-1) > 0.5] * 2 if y.sum() >= 0 else y

        compiled = self.compiled(broken, dynamic=True)
        for rows in (4, 0, 3):
            x = torch.randn(rows, 8)
            self.assertClose(compiled(x), broken(x))

    def test_types_that_kernels_do_not_have(self):
        x = torch.randn(4, 8, dtype=torch.float64)
        self.assertClose(self.compiled(lambda x: x.softmax(-1))(x), x.softmax(-1))
        self.assertEqual(self.taken(), [])
        self.assertIn("the nest format has no tensors of float64", {why for _, why in self.reports[0].left})

    def test_a_device_without_records_is_told_of_once(self):
        with self.assertWarnsRegex(UserWarning, "Inductor computes all 1 regions on cpu: no kernel: .*tunes them"):
            compiled = self.compiled(attend, tune="off")
            inputs = heads()
            self.assertClose(compiled(*inputs), attend(*inputs))
        torch._dynamo.reset()
        self.assertClose(self.compiled(attend, tune="off")(*inputs), attend(*inputs))

    def test_sizes_without_a_kernel_run_in_pytorch(self):
        compiled = self.compiled(attend, dynamic=True)
        compiled(*heads())
        with mock.patch("nestor.torch.compiler.region_op.Region.kernel", side_effect=nestor.NotFound("none for 40")):
            inputs = heads(40)
            with self.assertWarnsRegex(UserWarning, "PyTorch computes captured_.*none for 40"):
                self.assertClose(compiled(*inputs), attend(*inputs))
            inputs = heads(41)
            self.assertClose(compiled(*inputs), attend(*inputs))

    def test_a_region_that_lost_its_race_is_inductors(self):
        with mock.patch.object(QuickWorker, "race", {"kernel_us": 10.0, "inductor_us": 10.1}):
            inputs = heads()
            self.assertClose(self.compiled(attend)(*inputs), attend(*inputs))
        self.assertEqual(self.taken(), [])
        self.assertRegex(self.reports[0].regions[0].why, r"as fast \(1.01x; 1.03 is asked for\)")

    def test_a_region_whose_compiled_code_is_wrong_is_a_kernels(self):
        why = "Inductor's own code is wrong here: result 0 is off by 1"
        with mock.patch.object(QuickWorker, "race", {"kernel_us": 10.0, "inductor_us": None, "inductor_failed": why}):
            self.compiled(attend)(*heads())
        self.assertEqual(self.reports[0].regions[0].why, why)
        self.assertTrue(self.reports[0].regions[0].taken)

    def test_products_with_weights_are_pytorchs_unless_they_win(self):
        def linear(x, weight):
            return (x @ weight).softmax(-1)

        inputs = torch.randn(6, 8), torch.randn(8, 5)
        self.assertClose(self.compiled(linear)(*inputs), linear(*inputs))
        self.assertNotIn("mm", self.taken()[0])
        torch._dynamo.reset()
        self.reports.clear()
        self.assertClose(self.compiled(linear, products=True)(*inputs), linear(*inputs))
        self.assertIn("mm", " ".join(self.taken()).split())

    def test_which_products_take_part(self):
        def layer(x, one, other, third, wide, bias, back):
            mixed = (x @ one).relu() + (x @ other) * (x @ third)
            return F.gelu(F.linear(mixed, wide, bias)) @ back

        def regions(products):
            with mock.patch.object(rewrite, "products_of", lambda options, device: products):
                inputs = torch.randn(6, 16), *(torch.randn(16, 16) for _ in range(3)), torch.randn(32, 16), torch.randn(32), \
                    torch.randn(32, 8)
                self.reports.clear()
                torch._dynamo.reset()
                self.assertClose(self.compiled(layer)(*inputs), layer(*inputs), 1e-4)
            return [" ".join(each.ops) for each in self.reports[0].regions]

        fused = regions("fused")
        self.assertTrue(any("gelu" in ops or "erf" in ops for ops in fused), fused)
        self.assertNotIn("mm", fused)  # one alone is PyTorch's
        self.assertIn("mm", regions("all"))
        self.assertEqual(regions("none"), [])

    def test_products_of_one_tensor_are_one_region(self):
        def projections(x, *weights):
            return tuple(F.linear(x, weight) for weight in weights)

        inputs = torch.randn(6, 16), *(torch.randn(24, 16) for _ in range(3))
        for found, wanted in zip(self.compiled(projections, products=True)(*inputs), projections(*inputs)):
            self.assertClose(found, wanted)
        self.assertEqual(self.taken(), ["mm mm mm"])

    def test_a_bug_of_ours_leaves_the_graph_to_inductor(self):
        inputs = heads()
        with mock.patch.object(rewrite.Rewriting, "choose", side_effect=KeyError("planted")):
            with self.assertWarnsRegex(UserWarning, "Inductor compiles this without Nestor's regions.*planted"):
                self.assertClose(self.compiled(attend)(*inputs), attend(*inputs))

    def test_a_bug_of_ours_in_one_region_costs_this_region_alone(self):
        def two(x, query, key, value):
            return F.layer_norm(x, x.shape[-1:]), attend(query, key, value)

        original = rewrite.Described.__init__

        def planted(self, region, *args):
            if any("native_layer_norm" in str(node.target) or "var_mean" in str(node.target) for node in region.nodes):
                raise KeyError("planted")
            original(self, region, *args)

        inputs = [torch.randn(4, 16), *heads()]
        with mock.patch.object(rewrite.Described, "__init__", planted):
            with self.assertWarnsRegex(UserWarning, "a region that could not be described.*planted"):
                found = self.compiled(two)(*inputs)
        for one, other in zip(found, two(*inputs)):
            self.assertClose(one, other)
        self.assertEqual(len(self.taken()), 1)

    def test_a_bug_in_a_rule_ends_a_region_and_not_the_import(self):
        def longer(query, key, value):
            return attend(query, key, value).sin().softmax(-1)

        rules = importer_regions.RULES
        broken = rules["aten.sin.default"]._replace(convert=mock.Mock(side_effect=KeyError("planted")))
        inputs = heads()
        with mock.patch.dict(rules, {"aten.sin.default": broken}), self.assertWarnsRegex(UserWarning, "the rule for .*sin.* failed.*planted"):
            self.assertClose(self.compiled(longer)(*inputs), longer(*inputs))
        self.assertTrue(self.taken())
        self.assertIn("its rule failed: KeyError('planted')", {why for _, why in self.reports[0].left})

    def test_what_waits_is_told_before_the_graph_changes(self):
        """Nodes of regions that are replaced have no operands any more."""
        order = []

        def noted(name):
            original = getattr(rewrite.Rewriting, name)
            return mock.patch.object(rewrite.Rewriting, name, lambda self: (order.append(name), original(self))[1])

        inputs = heads()
        with noted("promising"), noted("apply"):
            self.assertClose(self.compiled(attend)(*inputs), attend(*inputs))
        self.assertEqual(order, ["promising", "apply"])

    def test_a_pass_that_is_there_runs_first_and_stays(self):
        import torch._inductor.config as config

        seen = []
        with config.patch(post_grad_custom_pre_pass=lambda graph: seen.append(len(graph.nodes))):
            own = config.post_grad_custom_pre_pass
            inputs = heads()
            self.assertClose(self.compiled(attend)(*inputs), attend(*inputs))
            self.assertIs(config.post_grad_custom_pre_pass, own)
        self.assertEqual([len(seen), len(self.taken())], [1, 1])
        torch._dynamo.reset()
        self.assertClose(torch.compile(attend)(*inputs), attend(*inputs))
        self.assertEqual(len(self.reports), 1)  # other backends see nothing of ours

    def test_modes_of_torch_compile(self):
        inputs = heads()
        environment = mock.patch.dict("os.environ", NESTOR_DB=self.db)
        with self.assertWarnsRegex(UserWarning, "Inductor computes all 1 regions"), environment:
            compiled = torch.compile(attend, backend="nestor", mode="reduce-overhead", fullgraph=True)
            self.assertClose(compiled(*inputs), attend(*inputs))
        torch._dynamo.reset()
        self.assertClose(self.compiled(attend, mode="reduce-overhead")(*inputs), attend(*inputs))
        self.assertEqual(len(self.taken()), 1)

    def test_several_threads(self):
        compiled, inputs, failures = self.compiled(attend), heads(), []
        expected = attend(*inputs)

        def call():
            try:
                for _ in range(5):
                    self.assertClose(compiled(*inputs), expected)
            except Exception as error:  # noqa: BLE001  told below
                failures.append(error)

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_bad_options(self):
        for options, said in (({"tune": "later"}, 'tune is "off", "background" or "now", not \'later\''),
                              ({"verify": True}, 'verify is "first" or "off"'),
                              ({"budget_s": 0}, "budget_s must be a positive number"),
                              ({"tiune": "now"}, "'tiune' is an option neither of nestor .tune, .* nor of Inductor"),
                              ({"report": 3}, "report must be a function"),
                              ({"db": 7}, "db must be the path of a database, not 7"),
                              ({"mode": "fast"}, "Unrecognized mode=fast")):
            with self.subTest(options), self.assertRaisesRegex(nestor.UserError, said):
                nestor.torch.optimize(attend, heads(), **options)
        with self.assertRaisesRegex(nestor.UserError, "a str is no model"):
            nestor.torch.optimize("bert", heads())


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class BackgroundTest(CompileTest):
    def test_kernels_swap_in_without_a_stop(self):
        tune, ready = QuickWorker.wait, threading.Event()

        def late(worker):
            ready.wait(60)
            return tune(worker)

        inputs = heads()
        with mock.patch.object(background, "Worker", QuickWorker), mock.patch.object(QuickWorker, "wait", late):
            compiled = self.compiled(attend, tune="background")
            self.assertClose(compiled(*inputs), attend(*inputs))
            self.assertEqual([(len(report.taken), report.pending) for report in self.reports], [(0, 1)])
            ready.set()
            background.wait()
        self.assertEqual([(len(report.taken), report.pending) for report in self.reports], [(0, 1), (1, 0)])
        self.assertClose(compiled(*inputs), attend(*inputs))

    def test_gradients_while_kernels_are_awaited(self):
        x = torch.randn(4, 6, requires_grad=True)
        with mock.patch.object(background, "Worker", QuickWorker):
            compiled = self.compiled(lambda x: (x * 2).softmax(-1), tune="background")
            found, = torch.autograd.grad(compiled(x).square().sum(), x)
            background.wait()
        self.assertIn(1, [report.pending for report in self.reports])
        self.assertClose(found, torch.autograd.grad((x * 2).softmax(-1).square().sum(), x)[0])


class Image(torch.Tensor if torch else object):
    """A plain subclass, as torchvision has them."""


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class UnusualTest(CompileTest):
    def test_subclasses_of_tensor_are_inductors(self):
        compiled, x = self.compiled(lambda x: (x * 2).softmax(-1)), torch.randn(4, 6).as_subclass(Image)
        with self.assertWarnsRegex(UserWarning, "an input is a Image, a subclass of Tensor"):
            found = compiled(x)
        self.assertIsInstance(found, Image)
        self.assertClose(found.as_subclass(torch.Tensor), (x * 2).softmax(-1).as_subclass(torch.Tensor))

    def test_valid_code_is_no_bug_of_ours(self):
        """A warning would be an error here."""
        x, padded = torch.randn(4, 6, requires_grad=True), torch.nn.functional.pad
        self.assertClose(self.compiled(lambda x, n: padded(x, (n, 1)).softmax(-1), True)(x, 2), padded(x, (2, 1)).softmax(-1))
        loss = self.compiled(lambda x, t: torch.nn.functional.cross_entropy(x, t * 0 - 100))(x, torch.arange(4))
        self.assertTrue(loss.isnan())

    def test_chains_of_products_of_sums_end(self):
        def chain(x, w):
            for _ in range(12):
                x = x * x + 0.1
            return x @ w

        x, w = torch.randn(2, 4, 6) * 0.01, torch.randn(2, 6, 5)
        self.assertClose(self.compiled(chain)(x, w), chain(x, w))

    def test_gradients_of_attention_whose_rows_see_nothing(self):
        def gradients(function, mask):
            torch.manual_seed(1)
            inputs = [torch.randn(2, 1, 4, 8, requires_grad=True) for _ in range(3)]
            return torch.autograd.grad(function(*inputs, mask).sum(), inputs)

        attention = torch.nn.functional.scaled_dot_product_attention
        compiled = self.compiled(lambda q, k, v, m: attention(q, k, v, attn_mask=m))
        mask = torch.ones(2, 1, 4, 4, dtype=torch.bool)
        for unseen in (None, (0, 0, 2)):
            if unseen is not None:
                mask[unseen] = False
            for found, expected in zip(gradients(compiled, mask), gradients(lambda q, k, v, m: attention(q, k, v, m), mask)):
                self.assertClose(found, expected)
        self.assertTrue(any("attention" in ops for ops in self.taken()))


def backend_module():
    from nestor.torch.compiler import backend

    return backend


if torch and numpy:
    WORKER = backend_module().Worker
if __name__ == "__main__":
    unittest.main()
