"""The grid and the table of bench/torch_norms.py."""

import argparse
import sys
import unittest

from support import FOLDER

sys.path.insert(0, str(FOLDER.parent / "bench"))
import norm_grid  # noqa: E402
import norm_table  # noqa: E402


def row(**changed):
    return {"op": "softmax", "variant": "bf16", "dtype": "bf16", "rows": 8192, "width": 8192, "input_bytes": 128 * 2**20,
            "correct": True, "match": "exact", "measured": {"sizes": {"rows": 8192, "width": 8192}}, "ours_us": 100.0,
            "eager_us": 250.0, "compile_us": 200.0, "copy_us": 98.0, "ours_error": 1e-3, "eager_error": 1e-3,
            "ours_max_error": 0.1, "eager_max_error": 0.1, **changed}


class GridTest(unittest.TestCase):
    def test_flags_choose_each_problem_once(self):
        parser = argparse.ArgumentParser()
        norm_grid.add_flags(parser)
        args = parser.parse_args("--ops layernorm,forward --dtypes bf16 --widths 256,32768 --rows 256MiB,4096".split())
        cells = norm_grid.cells(args)
        self.assertEqual(cells[:3], [("layernorm", "bf16", "bf16", 524288, 256), ("layernorm", "bf16", "bf16", 4096, 32768),
                                     ("layernorm", "bf16", "bf16", 4096, 256)])
        self.assertEqual(len(cells), 9)

    def test_options_come_before_the_type(self):
        parser = argparse.ArgumentParser()
        norm_grid.add_flags(parser)
        args = parser.parse_args("--ops layernorm --options stats --dtypes f32 --widths 256 --rows 4096".split())
        self.assertEqual(norm_grid.cells(args), [("layernorm", "stats.f32", "f32", 4096, 256)])


class TableTest(unittest.TestCase):
    def test_speed_is_against_the_best_peer_and_copy(self):
        self.assertEqual(norm_table.ratios(row()), (2.0, 0.98))
        self.assertEqual(norm_table.ratios(row(op="layernorm_backward", eager_us=120.0)), (2.0, 0.98))

    def test_what_is_below_its_goal_is_marked(self):
        text = norm_table.table([row(), row(compile_us=150.0, quack_us=95.0, copy_us=90.0, ours_error=2e-3)])
        self.assertIn("| 0.950 < 1    | 0.900 < 0.97 |", text)
        self.assertIn("0.002 !", text)
        self.assertIn("goal against peers met at 1 of 2, against copy at 1 of 2; error no larger than eager's at 1; 0 wrong", text)

    def test_backward_passes_are_held_against_the_copy_alone(self):
        text = norm_table.table([row(op="layernorm_backward", eager_us=90.0, compile_us=80.0, copy_us=89.0)])
        self.assertIn("| 0.800        | 0.890 < 0.9 |", text)

    def test_a_wrong_result_has_no_time(self):
        wrong = row(correct=False, match="nearest")
        del wrong["ours_us"]
        text = norm_table.table([wrong], ["softmax f32: out of time"])
        self.assertIn("WRONG", text)
        self.assertIn("nearest (rows=8192, width=8192)", text)
        self.assertIn("1 wrong", text)
        self.assertIn("- not measured: softmax f32: out of time", text)


if __name__ == "__main__":
    unittest.main()
