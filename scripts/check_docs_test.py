#!/usr/bin/env python3
"""What check_docs.py must see: planted in a page, each is found; the pages as they are have none."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "check_docs.py"


def findings(*arguments):
    run = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)
    return run.returncode, run.stdout


class DocsTest(unittest.TestCase):
    def of(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "docs/other.md").write_text("# Other page\n\n## A `heading`: two\n\n## Same\n\n## Same\n")
            (root / "docs/picture.png").write_bytes(b"")
            (root / "README.md").write_text(text)
            return findings("--root", str(root))

    def test_the_pages_as_they_are_have_none(self):
        code, text = findings()
        self.assertEqual(code, 0, text)

    def test_what_is_right_is_left_alone(self):
        code, text = self.of("# Title\n\n[a](docs/other.md#a-heading-two) [b](#title) [c](docs/other.md#same-1) [d](https://example.org/x)\n"
                             "![a picture](docs/picture.png) `[no](link.md)`\n\n| a | b |\n|---|---|\n| `x \\| y` | z |\n\n"
                             "```\n[no](link.md)\n| a |\n```\n\n    [no](link.md)\n")
        self.assertEqual(code, 0, text)

    def test_each_mistake_is_found(self):
        for mistake, found in (("[a](docs/no.md)", "there is no docs/no.md"), ("![p](docs/no.png)", "there is no docs/no.png"),
                               ("[a](docs/other.md#three)", "has no heading for #three"), ("[a](#nowhere)", "has no heading for #nowhere"),
                               ("[a](../outside.md)", "there is no ../outside.md"), ("![](docs/picture.png)", "has no text"),
                               ("| a | b |\n|---|---|\n| x | y | z |", "the row has 3 cells, its table 2"),
                               ("| a | b |\n|---|\n| x | y |", "heading has 2 cells"), ("text\n| a |\n|---|\n| b |", "needs an empty line before it"),
                               ("```sh\necho", "has no end")):
            code, text = self.of("# Title\n\n" + mistake + "\n")
            self.assertEqual(code, 1, mistake)
            self.assertIn(found, text)


if __name__ == "__main__":
    unittest.main()
