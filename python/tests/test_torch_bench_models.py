"""The programs of bench/models: their problems are those that they claim, peers compute the same as models, and one runs."""

import argparse
import contextlib
import importlib
import io
import json
import pathlib
import sys
import unittest
from unittest import mock

import support
from support import needs_program, numpy

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    sys.path.insert(0, str(support.FOLDER.parent / "bench" / "models"))
    bench_flex, bench_models, bench_start, flex_zoo, harness, model_zoo, variant_peers = map(
        importlib.import_module,
        ("bench_flex", "bench_models", "bench_start", "flex_zoo", "harness", "model_zoo", "variant_peers"))

TINY = {"batch": 3, "heads": 2, "length": 24, "dim": 16}


def flags(module, *given):
    with mock.patch.object(sys, "argv", ["bench", "--device", "cpu", *given]):
        return module.arguments()


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class BenchTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(4)

    def test_all_measured_lines_have_a_problem(self):
        names = bench_models.problems(flags(bench_models))
        self.assertEqual(sum(name.startswith("bert") for name in names), 7)
        for line in ("llama 2x4096", "llama 1x16384", "variant window", "variant evoformer", "variant qk_norm", "variant differential"):
            self.assertIn(line, names)
        self.assertEqual(len(bench_models.problems(flags(bench_models, "--tiny"))), 2 + len(model_zoo.VARIANTS))
        self.assertIn("flex 20 lengths", bench_flex.problems(flags(bench_flex, "--tiny")))

    @needs_program
    def test_hand_written_definitions_compute_the_variants(self):
        args = argparse.Namespace(device="cpu", hand_time=0.5, db=f"{support.folder()}/peers.db")
        with mock.patch.multiple(model_zoo, WINDOW=7, PREFIX=5), mock.patch.multiple(variant_peers, WINDOW=7, PREFIX=5):
            for name in ("causal", "alibi", "softcap", "differential", "evoformer"):
                with self.subTest(name), torch.no_grad():
                    model, inputs = model_zoo.VARIANTS[name](device="cpu", dtype=torch.float32, **TINY)
                    _, call = variant_peers.hand_written(name, inputs, args)
                    found = harness.first_of(call())
                    self.assertLess(harness.error_of(found, harness.reference_of(model, inputs)), 1e-5)
        self.assertIsNone(variant_peers.hand_written("sigmoid", {}, args))

    def test_flex_functions_are_their_definitions(self):
        q, k, b = torch.arange(32)[:, None], torch.arange(32)[None], torch.zeros((), dtype=torch.int64)
        seen = {name: functions[1](b, b, q, k) for name, functions in flex_zoo.problems(1, 2, 32, "cpu", torch.float32).items()
                if functions[1] is not None and name != "padding"}
        for i, j in ((0, 0), (5, 3), (9, 14), (20, 18), (31, 2), (17, 16)):
            self.assertEqual(seen["causal"][i, j], j <= i)
            self.assertEqual(seen["window"][i, j], j <= i <= j + 2)
            self.assertEqual(seen["prefix"][i, j], j <= i or j < 4)
            self.assertEqual(seen["blocks"][i, j], i // 4 == j // 4)
            self.assertEqual(seen["dilated"][i, j], abs(i - j) <= 4 and (i - j) % 4 == 0)
            self.assertEqual(seen["documents"][i, j], j <= i and i // 4 == j // 4)
        diffusion = flex_zoo.block_diffusion(16, 4)(b, b, q, k)
        for i in range(32):
            for j in range(32):
                same, earlier = i % 16 // 4 == j % 16 // 4, j % 16 // 4 < i % 16 // 4
                wanted = same and j < 16 if i < 16 and j < 16 else earlier if i < 16 else (same or earlier) and j >= 16
                self.assertEqual(bool(diffusion[i, j]), wanted, (i, j))
        self.assertTrue(flex_zoo.neighbourhood(8, 4, 3)(b, b, q, k).sum(1).eq(9).all())

    def test_a_wrong_result_or_a_failure_is_no_success(self):
        args = flags(bench_models, "--out", f"{support.folder()}/rows.jsonl", "--resume")
        rows = {"right": {"correct": True}, "wrong": {"correct": False}, "broken": None}

        def measure(args, problem, shuffler):
            return dict(problem, value=1) if problem else 1 / 0

        def table(done, about):
            return " ".join(row["problem"] for row in done)

        for names, code in ((("right",), 0), (("right", "wrong"), 1), (("broken",), 1), (("right", "wrong"), 0)):
            told = io.StringIO()
            with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
                self.assertEqual(harness.run(args, {name: rows[name] for name in names}, measure, table), code, names)
        self.assertIn("nothing was measured", told.getvalue())  # as all rows are there
        kept = [json.loads(line)["problem"] for line in pathlib.Path(args.out).read_text().splitlines()]
        self.assertEqual(kept, ["right", "wrong"])

    @needs_program
    def test_a_variant_is_measured(self):
        out = f"{support.folder()}/models.jsonl"
        args = flags(bench_models, "--tiny", "--only", "variant sigmoid", "--rounds", "1", "--out", out, "--db",
                     f"{support.folder()}/none.db", "--mode", "default")
        with contextlib.redirect_stdout(io.StringIO()) as told:
            self.assertEqual(harness.run(args, bench_models.problems(args), bench_models.measure, bench_models.table), 0)
        row, = map(json.loads, pathlib.Path(out).read_text().splitlines())
        self.assertLess(row["ours_error"], 1e-5)
        self.assertRegex(told.getvalue(), r"\| variant sigmoid \| [\d.]+ \| [\d.]+ \| [\d.]+ ")


if __name__ == "__main__":
    unittest.main()
