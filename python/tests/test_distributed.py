"""nestor.distributed: lists of problems, what is refused, and Ray's actors that are killed on the way (skipped where Ray is missing)."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

from support import FOLDER, needs_program

import nestor
import nestor.distributed
from nestor import program
from nestor.distributed import work

sys.path.insert(0, str(FOLDER.parent / "bench"))
HAS_RAY = importlib.util.find_spec("ray") is not None


def problem_line(**changed):
    return json.dumps({"format": 1, "problem": {"op": "softmax", "sizes": {"rows": 4}, **changed}})


class PlanTest(unittest.TestCase):
    def test_a_chunk_has_the_nests_that_it_needs(self):
        nest = json.dumps({"format": 1, "digest": "d1", "nest": {}})
        lines = [problem_line(nest_digest="d1"), problem_line(), problem_line(nest_digest="d1", sizes={"rows": 8})]
        plan = work.plan_from_text("\n".join([nest, *lines, lines[0]]))
        self.assertEqual(len(plan), 3)
        self.assertEqual(plan.text(lines[1:2]), lines[1] + "\n")
        self.assertEqual(plan.text(lines[:1]), f"{nest}\n{lines[0]}\n")
        self.assertEqual([len(chunk) for chunk in plan.chunks(2)], [2, 1])

    def test_what_is_no_plan_is_refused_with_its_line(self):
        for text in ("{", "[]", '{"format":1}', '{"problem":7}', problem_line() + "\nnull"):
            with self.assertRaisesRegex(nestor.UserError, r"line [12]: no line of a plan"):
                work.plan_from_text(text)
        with self.assertRaisesRegex(nestor.UserError, "no problem in it"):
            work.plan_from_text("\n")
        with self.assertRaisesRegex(nestor.UserError, "cannot read the plan"):
            work.plan_lines("/nonexistent/plan.jsonl")
        for problem in ("softmax", ("softmax",), (1, {}), ("softmax", 4)):
            with self.assertRaisesRegex(nestor.UserError, "is no problem"):
                work.plan_lines([problem])

    def test_an_unknown_engine_is_refused(self):
        with self.assertRaisesRegex(nestor.UserError, "no engine 'mpi'; choose one of 'ray', 'torch'"):
            nestor.distributed.tune([("softmax", {})], engine="mpi")

    @unittest.skipIf(HAS_RAY, "Ray is here")
    def test_ray_that_is_missing_is_said(self):
        with self.assertRaisesRegex(nestor.UserError, "pip install ray"):
            nestor.distributed.tune(work.plan_from_text(problem_line()))


@needs_program
class WorkTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.options = work.Options(time=20, trials=1, target="host", threads=1)

    def test_nests_of_every_kind_make_a_plan(self):
        rows = nestor.Size("rows", 64)
        i = nestor.indices(i=rows)

        @nestor.nest
        def doubled(x: nestor.f32[rows]):
            return nestor.define("y", i, 2 * x[i])

        plan = work.plan_lines([(doubled, {"rows": 8}), (doubled, {"rows": 9}), ("softmax", {"rows": 4}, "bf16"), ("softmax", None)])
        self.assertEqual((len(plan), len(plan.nests)), (4, 3))
        told, _ = work.tune_chunk(plan.text(plan.problems[:2]), self.options, self.folder, self.folder / "t.db", "c")
        self.assertEqual((told["finished"], told["failures"]), (2, []))

    def test_records_of_chunks_join_in_any_order(self):
        plan = work.plan_lines([("softmax", {"rows": rows, "width": 8}) for rows in (4, 8)])
        made = [work.tune_chunk(plan.text([line]), self.options, self.folder, self.folder / "t.db", "c")[1] for line in plan.problems]
        self.assertEqual(list(self.folder.glob("c*")), [])
        self.assertEqual(set(made[0]), {".jsonl", ".pack"})
        work.merge(made, str(self.folder / "1.db"))
        work.merge([*reversed(made), made[0]], str(self.folder / "2.db"))
        exports = [program.text(["db", "export", "--db", self.folder / name]) for name in ("1.db", "2.db", "t.db")]
        self.assertEqual(len(exports[0].splitlines()), 2)
        self.assertEqual(exports[0], exports[1])
        # Lines beside a pack have a certificate's digest alone, those of the database that tuned its text as well.
        tuned = [json.loads(line) for line in exports[2].splitlines()]
        for line in tuned:
            self.assertTrue(line["certificate"].pop("text"))
        self.assertEqual([json.loads(line) for line in exports[0].splitlines()], tuned)

    def test_bad_input_is_a_user_error_and_a_killed_program_a_device_error(self):
        with self.assertRaisesRegex(nestor.UserError, "did you mean 'softmax'"):
            work.tune_chunk(problem_line(op="sofmax"), self.options, self.folder, self.folder / "t.db", "c")
        killer = self.folder / "killed"
        killer.write_text("#!/bin/sh\nkill -9 $$\n")
        killer.chmod(0o755)
        with unittest.mock.patch.dict("os.environ", {"NESTOR_PROGRAM": str(killer)}):
            with self.assertRaisesRegex(nestor.DeviceError, "signal 9"):
                work.run_program(["devices"], accept=(0,))


@needs_program
@unittest.skipUnless(HAS_RAY, "Ray is not installed: pip install ray into a virtual environment of its own")
class RayTest(unittest.TestCase):
    def test_killed_programs_workers_and_actors_lose_nothing(self):
        import many_machines

        with tempfile.TemporaryDirectory() as folder:
            problems = [("softmax", {"rows": 4 + k, "width": 8}) for k in range(12)]
            report, outcome = many_machines.run(problems, workers=2, kills=3, pause=2, database=f"{folder}/all.db", trials=2)
        self.assertTrue(outcome, report)
        self.assertEqual((report["finished"], report["problems_with_rows"]), (12, 12))
        self.assertEqual((report["rows_lost"], report["orphans"], report["failures"]), (0, 0, []))
        self.assertGreaterEqual(report["killed"]["actor"], 1)

    def test_a_problem_that_is_refused_does_not_stop_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            told = []
            outcome = nestor.distributed.tune([("softmax", {"rows": 4_000_000_000, "width": 65536}), ("softmax", {"rows": 4, "width": 8})],
                                              engine="ray", target="host", threads=1, trials=1, workers=1, db=f"{folder}/all.db",
                                              progress=lambda settled, problems, text: told.append((settled, problems)))
        self.assertFalse(outcome)
        self.assertEqual((outcome.finished, len(outcome.failures)), (1, 1))
        self.assertEqual(told[-1], (2, 2))


if __name__ == "__main__":
    unittest.main()
