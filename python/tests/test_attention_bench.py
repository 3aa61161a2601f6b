"""The problems of bench/torch_variants.py and bench/tune_attention.py, and the table of results."""

import argparse
import sys
import unittest

from support import FOLDER

sys.path.insert(0, str(FOLDER.parent / "bench"))
import attention_variants  # noqa: E402
import tune_attention  # noqa: E402

try:
    import torch_attention
    import torch_variants
except ImportError:
    torch_variants = None


class ProblemsTest(unittest.TestCase):
    def test_names_tell_problems_apart_and_choose_them(self):
        every = attention_variants.problems("", ["bf16"])
        self.assertEqual(len(every), 46)
        self.assertEqual(len({problem.name for problem in every}), 46)
        self.assertEqual(len({(problem.op, problem.variant, *problem.sizes.items()) for problem in every}), 46)
        chosen = attention_variants.problems("window.*16/2.*S4096", ["f16", "bf16"])
        self.assertEqual([problem.variant for problem in chosen], ["window.gqa.f16", "window.gqa.bf16"])
        self.assertEqual(chosen[0].sizes, {"batch": 4, "queries": 4096, "keys": 4096, "head_dim": 64, "window": 256, "key_heads": 2,
                                           "group": 8, "value_dim": 64})

    def test_the_tuner_takes_both_lists(self):
        args = argparse.Namespace(problems="variants", only="evoformer", dtypes="bf16")
        self.assertEqual([problem[0:2] for problem in tune_attention.problems(args)], [("evoformer_attention", "bf16")] * 2)
        args = argparse.Namespace(problems="grid", masks="causal", dtypes="f16", head_dims="64", lengths="512,1024")
        self.assertEqual([problem.variant for problem in tune_attention.problems(args)], ["causal.f16"] * 2)


@unittest.skipUnless(torch_variants, "PyTorch is not installed")
class TableTest(unittest.TestCase):
    def row(self, **changed):
        return {"problem": "softcap", "kind": "softcap", "goal": 3.0, "correct": True, "match": "exact", "ours_us": 100.0,
                "flex_us": 400.0, "ours_error": 1e-3, "flex_error": 2e-3, **changed}

    def test_speed_is_against_the_peer_of_the_kind(self):
        rows = [self.row(), self.row(kind="differential", goal=1.3, cudnn_calls_us=120.0, cudnn_us=200.0, cudnn_error=1e-3)]
        self.assertEqual([torch_variants.speedup(row) for row in rows], [4.0, 1.2])
        self.assertIn("Goal met at 1 of 2", torch_variants.table(rows, {"torch": "2", "date": "today"}))

    def test_a_wrong_result_has_no_speed(self):
        wrong = self.row(correct=False)
        del wrong["ours_us"]
        self.assertIsNone(torch_variants.speedup(wrong))
        self.assertIn("| WRONG |", torch_variants.table([wrong], {"torch": "2", "date": "today"}))

    def test_attention_is_compared_with_each_peer_that_was_measured(self):
        row = {"mask": "full", "dtype": "f16", "head_dim": 64, "length": 512, "flop": 1e9, "ours_us": 10.0, "cudnn_us": 12.0,
               "ours_error": 1e-4}
        found = torch_attention.table([row, {**row, "flash4_us": 9.0}], {"date": "today"})
        self.assertIn("| 100 | 83 | 111 | 1.200 | 0.900 |", found)
        self.assertIn("2 problems: 1.200 times cuDNN's speed", found)
        self.assertIn("1 problems: 0.900 times FlashAttention-4's speed", found)
        self.assertNotIn("FlashAttention-4", torch_attention.table([row], {"date": "today"}))


if __name__ == "__main__":
    unittest.main()
