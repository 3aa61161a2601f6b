"""nestor::region: the operator that compiled code calls, its text, and how its first results are verified."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from support import FOLDER, numpy

import nestor

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    from compiling import CompileTest
    from importer_checks import trace

    from nestor.torch.compiler import races
    from nestor.torch.compiler.choice import choose
    from nestor.torch.compiler.description import Description
    from nestor.torch.compiler.options import Options
    from nestor.torch.compiler.region_op import Region, key_of, region_of
    from nestor.torch.compiler.rewrite import Rewriting
    from nestor.torch.compiler.verification import bytes_of, check
else:
    CompileTest = unittest.TestCase


def softmax_of(x):
    return (x * 2).softmax(-1)


class RegionCase(CompileTest):
    """A region, on a graph, and its kernel."""

    def region(self, x, symbolic=True):
        """(Candidate, key) of softmax_of on a graph."""
        rewriting = Rewriting(trace(softmax_of, (x,), symbolic).graph, Options.of({"db": self.db}))
        rewriting.choose()
        candidate, = rewriting.candidates
        return candidate, key_of(candidate.described.description, self.db, True)

    def tuned(self, x):
        candidate, key = self.region(x)
        nestor.tune(candidate.described.nest, dict(n0=x.shape[0], n1=x.shape[1]), trials=1, target="host", db=self.db,
                    progress=False)
        return candidate, key


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class RegionTest(RegionCase):
    def test_text_keeps_everything(self):
        told = self.region(torch.randn(4, 8))[0].described.description
        self.assertEqual(Description.parse(told.text()), told)
        x = torch.randn(3, 5)
        self.assertClose(told.module((3, 5), x.device)(x)[0], softmax_of(x))

    def test_names_do_not_depend_on_symbols_or_example_sizes(self):
        names = {self.region(torch.randn(*shape))[0].described.nest.op for shape in ((4, 8), (6, 9), (16, 32))}
        self.assertEqual(len(names), 1)

    def test_extents_that_are_multiples_of_a_size_have_kernels(self):
        """An argument of 24 s0 rows."""
        def rows(x):
            return (x.reshape(-1, 8).sort(-1).values * 2).softmax(-1)

        compiled = self.compiled(rows)
        for batch in (3, 5):
            x = torch.randn(batch, 24, 8)
            torch._dynamo.mark_dynamic(x, 0)
            self.assertClose(compiled(x), rows(x))
        self.assertEqual(len(self.taken()), 1)

    def test_the_operator_is_as_its_schema_says(self):
        x = torch.randn(4, 8)
        _, key = self.tuned(x)
        for rows in (4, 7):
            torch.library.opcheck(torch.ops.nestor.region.default, (key, [torch.randn(rows, 8)], [rows, 8]))
        self.assertClose(torch.ops.nestor.region(key, [x], [4, 8])[0], softmax_of(x))

    def test_the_bare_operator_has_no_gradient(self):
        x = torch.randn(4, 8, requires_grad=True)
        _, key = self.tuned(x.detach())
        with self.assertRaisesRegex(nestor.UserError, "nestor::region has no gradient"):
            torch.ops.nestor.region(key, [x], [4, 8])
        with torch.no_grad():
            self.assertClose(torch.ops.nestor.region(key, [x], [4, 8])[0], softmax_of(x))

    def test_a_wrong_kernel_is_caught_at_its_first_call(self):
        x = torch.randn(4, 8)
        _, key = self.tuned(x)
        launch = Region.launch

        def wrong(region, call, inputs):
            return [result * 1.01 for result in launch(region, call, inputs)]

        with mock.patch.object(Region, "launch", wrong):
            with self.assertWarnsRegex(UserWarning, "PyTorch computes captured_.*result 0 is off by .* from float64, PyTorch"):
                self.assertClose(torch.ops.nestor.region(key, [x], [4, 8])[0], softmax_of(x))
            self.assertClose(torch.ops.nestor.region(key, [x], [4, 8])[0], softmax_of(x))
        self.assertRegex(region_of(key).refused, "is accepted")

    def test_nan_and_infinity_must_be_where_pytorch_has_them(self):
        module = torch.fx.symbolic_trace(lambda x: (x.log(),))
        x = torch.tensor([-1.0, 0.0, 2.0])
        self.assertIsNone(check(module, [x], [x.log()])[0])
        self.assertIn("NaN", check(module, [x], [torch.tensor([0.0, float("-inf"), x[2].log()])])[0])
        self.assertIn("infinity", check(module, [x], [torch.tensor([float("nan"), 3.0, x[2].log()])])[0])
        self.assertIn("infinity", check(module, [x], [torch.tensor([float("nan"), float("inf"), x[2].log()])])[0])

    def test_small_elements_must_be_as_good_as_large_ones(self):
        module, x = torch.fx.symbolic_trace(lambda x: (x.exp(),)), torch.tensor([-30.0, -2.0, 5.0])
        self.assertIsNone(check(module, [x], [x.exp()])[0])
        wrong = x.exp() * torch.tensor([3.0, 1.0, 1.0])
        self.assertRegex(check(module, [x], [wrong])[0], "an element that is off by 2 of itself")
        cancelling = torch.fx.symbolic_trace(lambda x: (x.sum(-1),))
        rows = torch.randn(512, 4096)
        self.assertIsNone(check(cancelling, [rows], [rows.flip(-1).reshape(512, 64, 64).sum(1).sum(1)])[0])

    def test_a_kernel_is_checked_until_results_tell_something(self):
        x = torch.randn(4, 8)
        _, key = self.tuned(x)
        launch = Region.launch
        with mock.patch.object(Region, "launch", lambda *call: [result * 1.01 for result in launch(*call)]):
            blind = torch.full_like(x, float("nan"))
            self.assertTrue(torch.ops.nestor.region(key, [blind], [4, 8])[0].isnan().all())
            self.assertIsNone(region_of(key).refused)
            with self.assertWarnsRegex(UserWarning, "first results were not accepted"):
                self.assertClose(torch.ops.nestor.region(key, [x], [4, 8])[0], softmax_of(x))

    def test_results_that_nothing_is_known_of_are_refused(self):
        module = torch.fx.symbolic_trace(lambda x: (x * 0 + 1e39,))
        x = torch.ones(3)
        self.assertIsNone(check(module, [x], [torch.full((3,), float("inf"))])[0])
        with mock.patch("nestor.torch.compiler.verification.Wide.run", return_value=(torch.full((3,), float("nan")),)):
            self.assertIn("cannot be compared", check(torch.fx.symbolic_trace(lambda x: (x + 1,)), [x], [x + 1])[0])

    def test_no_memory_is_no_fault_of_the_kernels(self):
        def module(x):
            raise torch.OutOfMemoryError("planted")

        x = torch.randn(3)
        self.assertIsNone(check(module, [x], [x])[0])

    def test_float64_is_counted_before_it_is_computed(self):
        x = torch.randn(64, 32)
        module = torch.fx.symbolic_trace(lambda x: ((x @ x.t()).softmax(-1),))
        self.assertEqual(bytes_of(module, [x]), 8 * (2 * 64 * 64 + 64 * 32))

    def test_a_kernel_that_refuses_tensors_gives_way(self):
        x = torch.randn(4, 8)
        _, key = self.tuned(x)
        with mock.patch("nestor.library.Kernel.__call__", side_effect=nestor.UserError("odd strides")):
            with self.assertWarnsRegex(UserWarning, "kernel refuses: odd strides"):
                self.assertClose(torch.ops.nestor.region(key, [x], [4, 8])[0], softmax_of(x))


def attention_on_gpu(kind, query, key, value, mask):
    """Heads by one of the fused ops that PyTorch chooses on GPUs, merged again."""
    ops = torch.ops.aten
    if kind == "flash":
        out = ops._scaled_dot_product_flash_attention(query, key, value, 0.0, True)[0]
    else:
        fused = getattr(ops, f"_scaled_dot_product_{kind}_attention")
        out = fused(query, key, value, mask.expand(-1, query.shape[1], -1, -1), False)[0]
    return out.permute(0, 2, 1, 3).reshape(query.shape[0], query.shape[2], -1) @ query.new_ones(64, 8)


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class GraphTest(CompileTest):
    def test_attention_ops_of_gpus_are_replaced_with_heads_merged(self):
        """Traced without a GPU; what they compute is the importer's tests' matter."""
        for kind in ("flash", "efficient", "cudnn"):
            with self.subTest(kind), torch._subclasses.FakeTensorMode():
                heads = [torch.empty(2, 32, 4, 16, device="cuda", dtype=torch.float16).transpose(1, 2) for _ in range(3)]
                mask = torch.empty(2, 1, 32, 32, device="cuda", dtype=torch.float16)
                graph = trace(lambda *inputs, kind=kind: attention_on_gpu(kind, *inputs), (*heads, mask)).graph
                with mock.patch.object(races, "device_name", str):
                    rewriting = Rewriting(graph, Options.of({"db": self.db}))
                    rewriting.choose()
                candidate, = rewriting.candidates
                candidate.choice.taken = True
                rewriting.apply()
                calls = [node for node in graph.nodes if node.target is torch.ops.nestor.region.default]
                self.assertEqual([len(calls), calls[0].meta["val"][0].shape], [1, (2 * 32, 64)])
                told = candidate.described.description
                self.assertEqual([told.device, told.outputs[0].order, told.outputs[0].view], ["cuda", (0, 2, 1, 3), (2, 4, 32, 16)])
                self.assertNotIn("scaled_dot_product", str(graph).replace(calls[0].args[0], ""))


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class ChoiceTest(RegionCase):
    def test_what_is_known_decides(self):
        x = torch.randn(4, 8)
        candidate, _ = self.tuned(x)
        told, device = candidate.described.description, x.device
        options = Options.of({"db": self.db})

        def chosen():
            found = choose(candidate.described, options, device)
            return found.taken, found.waits

        self.assertEqual(chosen(), (False, True))  # a kernel, but no race
        name = races.device_name(device)
        for kernel_us, inductor_us, failed, expected in ((1.0, 2.0, None, (True, False)), (2.0, 2.0, None, (False, False)),
                                                         (None, None, "no such op", (False, False)),
                                                         (1.0, None, None, (True, False)), (1.0, 1.1, None, (True, False))):
            races.remember(self.db, races.entry(told.op, told.variant, dict(n0=4, n1=8), name, kernel_us, inductor_us, failed))
            self.assertEqual(chosen(), expected)

    def test_a_race_at_other_sizes_counts_until_tuning_runs_one(self):
        x = torch.randn(4, 8)
        candidate, _ = self.tuned(x)
        told, device = candidate.described.description, x.device
        for failed in (None, "no such op"):
            races.remember(self.db, races.entry(told.op, told.variant, dict(n0=999, n1=8), races.device_name(device),
                                                None if failed else 1.0, None if failed else 2.0, failed))
            for tune, waits in (("off", False), ("now", True)):
                with self.subTest(failed=failed, tune=tune):
                    found = choose(candidate.described, Options.of({"db": self.db, "tune": tune}), device)
                    self.assertEqual((found.taken, found.waits), (failed is None, waits))

    def test_races_survive_damage_and_know_the_nearest_sizes(self):
        for rows, kernel_us in ((4, 1.0), (1000, 3.0)):
            races.remember(self.db, races.entry("op", "f32", dict(n0=rows), "cpu", kernel_us, 2.0))
        with open(races.path_of(self.db), "a") as file:
            file.write('{"op": "cut o')
        self.assertEqual(races.find(self.db, "op", "f32", dict(n0=900), "cpu")["kernel_us"], 3.0)
        self.assertEqual(races.find(self.db, "op", "f32", dict(n0=4), "cpu")["kernel_us"], 1.0)
        self.assertIsNone(races.find(self.db, "op", "f16", dict(n0=4), "cpu"))


_FINDS = """
import sys, torch._dynamo
assert "nestor" in torch._dynamo.list_backends() and "nestor.torch" not in sys.modules
found = torch._dynamo.backends.registry.lookup_backend("nestor")
import nestor.torch
assert found is nestor.torch.compiler.nestor
"""


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class EntryPointTest(unittest.TestCase):
    def test_the_installed_package_needs_no_import(self):
        """torch.compile finds the backend by the package's metadata, and importing nestor.torch does not clash with that."""
        wanted = re.search(r"\[project.entry-points.\"(.*)\"\]\n(nestor) = \"(.*)\"", (FOLDER / "pyproject.toml").read_text())
        with tempfile.TemporaryDirectory() as place:
            metadata = pathlib.Path(place) / "nestor-0.1.0.dist-info"
            metadata.mkdir()
            (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: nestor\nVersion: 0.1.0\n")
            (metadata / "entry_points.txt").write_text(f"[{wanted[1]}]\n{wanted[2]} = {wanted[3]}\n")
            done = subprocess.run([sys.executable, "-c", _FINDS], env={**os.environ, "PYTHONPATH": f"{place}:{FOLDER}"},
                                  capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
