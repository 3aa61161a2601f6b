#!/usr/bin/env python3
"""Runs docs/tutorial.md: its Python, its session of the explorer, its commands. The C++ is run by integration_outside_tutorial.

NESTOR_PROGRAM and NESTOR_RUNTIME name what is under test.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from code_blocks import code_blocks, in_short

ROOT = pathlib.Path(__file__).resolve().parents[3]
TUTORIAL = (ROOT / "docs/tutorial.md").read_text()


def session(block):
    """(command line, [(line typed, lines that its answer must have)])"""
    head, *lines = block.splitlines()
    typed = []
    for line in lines:
        if line.startswith("> "):
            typed.append((line[2:], []))
        else:
            typed[-1][1].append(line)
    return head.removeprefix("$ "), typed


@unittest.skipUnless(importlib.util.find_spec("numpy"), "skipped: no numpy")
class TutorialTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        tools = pathlib.Path(self.folder.name, "bin")
        tools.mkdir()
        (tools / "nestor").symlink_to(os.environ["NESTOR_PROGRAM"])
        self.environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python"), "NESTOR_LIBCUDA": "/nonexistent",
                            "NESTOR_DB": os.path.join(self.folder.name, "default.db"), "HOME": self.folder.name}

    def tearDown(self):
        self.folder.cleanup()

    def run_here(self, command, **options):
        result = subprocess.run(command, cwd=self.folder.name, env=self.environment, capture_output=True, text=True, timeout=300, check=False,
                                **options)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def test_the_page_does_what_it_says(self):
        blocks = code_blocks(TUTORIAL, "python")
        self.assertGreater(len(blocks), 4)
        # The definition first: the explorer reads the file that it writes.
        self.run_here([sys.executable, "-c", blocks[0]])
        for block in code_blocks(TUTORIAL, "console"):
            self.check_session(block)
        printed = self.run_here([sys.executable, "-c", in_short("\n".join(blocks))])
        shown = [line[4:] for line in TUTORIAL.split("with:\n\n")[1].split("\n\n")[0].splitlines()]
        self.assertGreater(len(shown), 5)
        self.assertIn("\n".join(shown), printed)
        for block in code_blocks(TUTORIAL, "sh"):
            self.run_here(["sh", "-e", "-c", in_short(block)])
        self.assertIn("<html", pathlib.Path(self.folder.name, "unit_rows.html").read_text()[:1000])

    def check_session(self, block):
        command, typed = session(block)
        self.assertGreater(len(typed), 5)
        result = subprocess.run(command.split(), cwd=self.folder.name, env=self.environment, text=True, capture_output=True, timeout=300,
                                input="".join(line + "\n" for line, _ in typed), check=False)
        answers = [answer.partition("\n") for answer in result.stdout.split("\n> ")[1:]]
        self.assertEqual([line for line, _, _ in answers[:len(typed)]], [line for line, _ in typed])
        for (line, expected), (_, _, text) in zip(typed, answers):
            for part in expected:
                self.assertIn(part, text)
            if line == "measure":
                self.assertIn("worst error", text)
            # A step that is shown without a refusal was taken.
            if not any("is illegal" in part for part in expected):
                self.assertNotIn("is illegal", text)


if __name__ == "__main__":
    unittest.main()
