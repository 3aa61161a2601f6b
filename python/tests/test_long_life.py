"""bench/long_life.py in small: forty thousand queries, and what it says of a process that grows."""

import json
import os
import subprocess
import sys
import unittest

from support import FOLDER, PROGRAM, needs_program

SCRIPT = FOLDER.parent / "bench" / "long_life.py"
sys.path.insert(0, str(SCRIPT.parent))
import long_life  # noqa: E402


@needs_program
class LongLifeTest(unittest.TestCase):
    def test_memory_stays_within_its_bound(self):
        done = subprocess.run([sys.executable, str(SCRIPT), "--nestor", PROGRAM, "--runtime", os.environ["NESTOR_RUNTIME"], "--queries", "40000",
                               "--sizes", "900", "--hot", "200", "--refreshes", "20"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        report = json.loads(done.stdout)
        self.assertEqual((report["queries"], report["distinct_sizes"], report["refreshes"], report["errors"]), (40000, 900, 20, 0))
        self.assertTrue(report["within_bound"])
        self.assertLess(report["resident_mib_most"] - report["resident_mib_before"], 4)

    def test_growth_and_failures_are_told(self):
        class Leaky:
            """Keeps some KiB of each refresh, and finds nothing."""
            kept = []

            def query(self, rows, operator=b"softmax"):
                return long_life.NONE

            def refresh(self):
                self.kept.append(b"x" * (1 << 20))
                return 0

        report, seen = long_life.live(Leaky(), queries=1000, sizes=10, hot=5, refreshes=10)
        self.assertEqual((report["errors"], report["refreshes"], report["distinct_sizes"]), (990, 10, 10))
        self.assertGreater(seen[-1][1] - seen[len(seen) // 2][1], long_life.SECOND_HALF_BYTES)


if __name__ == "__main__":
    unittest.main()
