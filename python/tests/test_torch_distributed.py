"""nestor.distributed under torchrun: two ranks over gloo share a list, and both end with the records of all."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec

import support
from support import needs_program

SCRIPT = """
import os, sys
import nestor.distributed
rank = os.environ["RANK"]
# The list of rank 0 counts.
rows = (4, 5, 6, 7, 8) if rank == "0" else (99,)
problems = [("softmax", {"rows": each, "width": 8}) for each in rows] + [("softmax", {"rows": 4_000_000_000, "width": 65536})]
outcome = nestor.distributed.tune(problems, engine="torch", target="host", threads=1, trials=1, db=f"{sys.argv[1]}/{rank}.db")
with open(f"{sys.argv[1]}/{rank}.txt", "w") as file:
    print(outcome.finished, outcome.problems, len(outcome.failures), outcome.trials, file=file)
"""


@needs_program
@unittest.skipUnless(find_spec("torch"), "PyTorch is not installed")
class TorchRunTest(unittest.TestCase):
    def test_two_ranks_share_a_list_and_exchange_records(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "tune.py").write_text(SCRIPT)
            environment = {**os.environ, "PYTHONPATH": str(support.FOLDER), "OMP_NUM_THREADS": "1", "NESTOR_KEYS": f"{name}/keys"}
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", folder / "tune.py", name]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            self.assertEqual([(folder / f"{rank}.txt").read_text().split() for rank in "01"], [["5", "6", "1", "5"]] * 2)
            lines = [support.subprocess.run([support.PROGRAM, "db", "export", "--db", folder / f"{rank}.db"], capture_output=True, text=True,
                                            check=True).stdout for rank in "01"]
            self.assertEqual(lines[0], lines[1])
            rows = sorted(json.loads(line)["problem"]["sizes"]["rows"] for line in lines[0].splitlines())
            self.assertEqual(rows, [4, 5, 6, 7, 8])

    def test_without_torchrun_it_says_so(self):
        code = "import nestor.distributed as d; d.tune([('softmax', {})], engine='torch')"
        environment = {key: value for key, value in os.environ.items() if key != "RANK"}
        done = subprocess.run([sys.executable, "-c", code], env={**environment, "PYTHONPATH": str(support.FOLDER)}, capture_output=True, text=True,
                              check=False)
        self.assertIn("torchrun --nproc-per-node", done.stderr)


if __name__ == "__main__":
    unittest.main()
