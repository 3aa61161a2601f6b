"""Operators that nobody tuned: their nests are what their PyTorch functions compute, and bench/torch_unseen.py runs."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import warnings
from unittest import mock

from support import FOLDER, needs_program, numpy

sys.path.insert(0, str(FOLDER.parent / "bench"))
try:
    import torch
    import torch_unseen
    from unseen_operators import OPERATORS
except ImportError:
    torch, OPERATORS = None, {}

from nestor.nests.evaluate import evaluate


def double(tensor):
    return tensor.double() if tensor.is_floating_point() else tensor


@unittest.skipUnless(torch and numpy, "PyTorch is not installed")
class DefinitionTest(unittest.TestCase):
    def test_nests_compute_what_pytorch_does(self):
        for name, operator in OPERATORS.items():
            with self.subTest(name):
                inputs = [double(each) for each in operator.make(operator.tiny, torch.Generator().manual_seed(1))]
                wanted = torch_unseen.as_tuple(operator.plain_at(operator.tiny)(*inputs))
                given = {tensor.name: each.numpy() for tensor, each in zip(operator.tensors("input"), inputs)}
                found = evaluate(operator.nest, given, operator.tiny)
                self.assertEqual(len(wanted), len(found))
                for tensor, exact in zip(operator.tensors("output"), wanted):
                    numpy.testing.assert_allclose(found[tensor.name], exact.numpy(), rtol=1e-6, atol=1e-6)

    def test_forms_of_flex_attention_compute_the_same(self):
        for name, operator in OPERATORS.items():
            if operator.flex is None:
                continue
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it is not compiled here
                inputs = [each.float() if each.is_floating_point() else each for each in operator.make(operator.tiny, torch.Generator().manual_seed(1))]
                wanted, found = operator.plain_at(operator.tiny)(*inputs), operator.flex_at(operator.tiny, inputs)(*inputs)
                numpy.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)

    def test_names_and_digests_tell_operators_apart(self):
        self.assertGreaterEqual(len(OPERATORS), 20)
        self.assertEqual(len({operator.nest.json() for operator in OPERATORS.values()}), len(OPERATORS))


@unittest.skipUnless(torch and numpy, "PyTorch is not installed")
class TableTest(unittest.TestCase):
    def row(self, **changed):
        return {"operator": "geglu", "correct": True, "ours_us": 100.0, "ours_error": 1e-3, "compile_us": 160.0, "flex_us": 120.0,
                "cudnn_us": 90.0, "trials": 7, "tune_s": 20.0, "counts": {"ok": 5, "wrong": 2}, "lanes": "", **changed}

    def test_the_best_peer_counts_and_cudnn_stands_apart(self):
        self.assertEqual(torch_unseen.ratio(self.row()), 1.2)
        text = torch_unseen.table([self.row(lanes="up: 2 ms at least")], {"torch": "2", "date": "today"})
        self.assertIn("| geglu | 100.0 | 160.0 | 120.0 | 90.0 | 1.20 | 0.90 | 20 | 7 | 1.0e-03 | 2 candidates wrong; "
                      "products on lanes: up: 2 ms at least |", text)

    def test_equal_infinities_are_no_error(self):
        masked = torch.tensor([3.0, 4.0, -numpy.inf])
        self.assertEqual(torch_unseen.worst_error(masked, (masked,), None), 0)
        self.assertEqual(torch_unseen.worst_error(masked[2:], (masked[2:],), None), 0)
        self.assertAlmostEqual(torch_unseen.worst_error(torch.tensor([3.0, 4.5, -numpy.inf]), (masked,), None), 0.1)
        for other in (torch.tensor([3.0, 4.0, numpy.inf]), torch.tensor([3.0, 4.0, 5.0]), torch.tensor([3.0, 4.0, numpy.nan])):
            self.assertFalse(torch_unseen.worst_error(other, (masked,), None) < 1)

    def test_what_has_no_right_kernel_counts_as_nothing(self):
        failed = {"operator": "lora", "correct": False, "failed": "NotFound: none"}
        wrong = self.row(correct=False)
        del wrong["ours_us"]
        self.assertEqual([torch_unseen.ratio(row) for row in (failed, wrong)], [0.0, 0.0])
        text = torch_unseen.table([failed, wrong, self.row()], {"torch": "2", "date": "today"})
        self.assertIn("1 of 3 at 0.8 or more of the best peer; median 0.00", text)
        self.assertIn("WRONG", text)

    def test_operators_and_peers_that_are_not_there_are_refused(self):
        for arguments in (["--only", "geglue"], ["--peers", "halide"]):
            with self.subTest(arguments), contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
                with mock.patch.object(sys, "argv", ["torch_unseen.py", *arguments]):
                    torch_unseen.arguments()
            self.assertIn("geglu, " if "--only" in arguments else "cudnn", said.getvalue())


@needs_program
@unittest.skipUnless(torch and numpy, "PyTorch is not installed")
class RunTest(unittest.TestCase):
    def run_bench(self, folder, *arguments):
        """(exit code, rows of results, what it printed)"""
        words = ["torch_unseen.py", "--device", "host", "--time", "1", "--peers", "eager", "--rounds", "1", "--rep", "1",
                 "--folder", folder, "--out", f"{folder}/out.jsonl", "--md", f"{folder}/out.md", *arguments]
        with mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(io.StringIO()) as said:
            with contextlib.redirect_stderr(io.StringIO()):
                code = torch_unseen.main()
        return code, [json.loads(line) for line in pathlib.Path(folder, "out.jsonl").read_text().splitlines()], said.getvalue()

    def test_operators_are_tuned_checked_and_timed_and_a_second_run_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            code, rows, _ = self.run_bench(folder, "--only", "groupnorm_silu")
            self.assertEqual((code, len(rows)), (0, 1))
            self.assertTrue(rows[0]["correct"] and rows[0]["ours_us"] > 0 and rows[0]["eager_us"] > 0, rows[0])
            with mock.patch.object(torch_unseen.nestor, "tune", wraps=torch_unseen.nestor.tune) as tune:
                code, rows, said = self.run_bench(folder, "--only", "groupnorm_silu,geglu")
            self.assertEqual((code, [row["operator"] for row in rows], tune.call_count), (0, ["groupnorm_silu", "geglu"], 1))
            self.assertEqual(said.count("\n| g"), 2)
            self.assertEqual(pathlib.Path(folder, "out.md").read_text().strip(), said.strip())


if __name__ == "__main__":
    unittest.main()
