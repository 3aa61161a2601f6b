"""The listings of docs/pytorch_schedules.md run, print what they say, and its table is that of the code."""

import contextlib
import io
import linecache
import pathlib
import re
import unittest
from unittest import mock

from support import numpy

try:
    import torch
except ImportError:
    torch = None

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pytorch_schedules.md"


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class PageTest(unittest.TestCase):

    def test_listings_run_and_print_what_the_page_says(self):
        import nestor.torch
        nestor.torch.configure(on_missing="silent")
        self.addCleanup(nestor.torch.configure)
        # Inductor's C++ compiler takes half a minute for this page; test_torch_schedule.py has it.
        compiled = mock.patch("nestor.torch.schedule.building.backend_of", return_value="aot_eager")
        compiled.start()
        self.addCleanup(compiled.stop)
        space, printed = {"__name__": "page"}, io.StringIO()
        for kind, text in re.findall(r"```(python|text)\n(.*?)```", PAGE.read_text(), re.S):
            if kind == "python":
                linecache.cache[f"{len(text)}.page"] = (len(text), None, text.splitlines(True), f"{len(text)}.page")
                with contextlib.redirect_stdout(printed):
                    exec(compile(text, f"{len(text)}.page", "exec"), space)  # noqa: S102
            else:
                self.assertIn(text, re.sub(r"  \d+\.page.*", "", printed.getvalue()))
        self.assertIn("train: 1 results equal", printed.getvalue())
        self.assertNotIn("without dropout", printed.getvalue())
        self.assertIn("the scheduled model computes something else", printed.getvalue())

    def test_the_table_of_definitions(self):
        from nestor.torch.schedule.decompositions import table

        self.assertIn(table(), PAGE.read_text())


if __name__ == "__main__":
    unittest.main()
