"""docs/schemas: every nest and record that comes with Nestor is valid by them, and so is what each command prints with --json."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import support
from json_schema import problems
from support import needs_program

ROOT = support.FOLDER.parent
SIZES = ["--rows", "8", "--width", "16"]


def schema(name):
    return json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))


class SchemaReaderTest(unittest.TestCase):
    def test_it_finds_what_is_wrong(self):
        nest = schema("nest")
        self.assertIn("$ lacks format", problems({}, nest))
        self.assertIn("$ must not have other", problems({"other": 1}, nest))
        self.assertTrue(any("$.sizes[0].min is no integer" in text for text in problems({"sizes": [{"min": 1.5}]}, nest)))
        self.assertTrue(problems({"digest": "x", "format": 2, "nest": {}}, schema("record")))
        with self.assertRaisesRegex(ValueError, "oneOf"):
            problems(1, {"oneOf": []})


class SchemaFilesTest(unittest.TestCase):
    def test_records_that_come_with_nestor_are_valid(self):
        record, nest = schema("record"), schema("nest")
        lines = 0
        for path in sorted((ROOT / "tuning_db").glob("*.jsonl")):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    value = json.loads(line)
                    self.assertEqual(problems(value, record), [], path.name)
                    if "nest" in value:
                        self.assertEqual(problems(value["nest"], nest), [], path.name)
                    lines += 1
        self.assertGreater(lines, 100)


@needs_program
class SchemaOutputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.db = f"{cls.folder.name}/t.db"
        cls.output = schema("output")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_json(self, *arguments):
        done = subprocess.run([support.PROGRAM, "--json", *arguments], capture_output=True, text=True, check=False, timeout=120,
                              env={**os.environ, "NESTOR_LIBCUDA": "/nonexistent", "NESTOR_SYSTEM_DB": f"{self.folder.name}/none.db"})
        return json.loads(done.stdout)

    def assert_valid(self, name, *arguments):
        value = self.run_json(*arguments)
        self.assertEqual(problems(value, {"$ref": f"#/$defs/{name}"}, self.output), [], arguments)
        self.assertEqual(problems(value, self.output), [], arguments)
        return value

    def test_what_commands_print(self):
        at = ["--db", self.db]
        host = ["--target", "host", "--threads", "1"]
        tuned = self.assert_valid("tune", "tune", "softmax", *SIZES, *at, *host, "--trials", "2")
        self.assert_valid("query", "query", "softmax", *SIZES, *at, "--threads", "1")
        none = self.assert_valid("query", "query", "layernorm", *SIZES, *at)
        self.assertIn("no record is of an operator 'layernorm'", none["reason"])
        self.assert_valid("bench", "bench", "softmax", *SIZES, *at, *host, "--rounds", "1")
        self.assert_valid("verify", "verify", str(tuned["best"]["id"]), *at)
        self.assert_valid("show", "show", "softmax")
        self.assert_valid("operators", "show")
        self.assert_valid("devices", "devices")
        for command in ("summary", "check", "wrong"):
            self.assert_valid(f"db {command}", "db", command, *at)
        plan = f"{self.folder.name}/plan.jsonl"
        self.assert_valid("plan", "plan", "softmax", "--rows", "0,4,8", "--width", "16", "--out", plan)
        for line in pathlib.Path(plan).read_text(encoding="utf-8").splitlines():
            self.assertEqual(problems(json.loads(line), schema("plan")), [])
        share = self.assert_valid("tune --plan", "tune", "--plan", plan, "--shard", "1/2", *at, *host, "--trials", "1")
        self.assertEqual((share["problems"], share["finished"]), (1, 1))
        self.assert_valid("error", "show", "sofmax")
        lines = subprocess.run([support.PROGRAM, "db", "export", *at], capture_output=True, text=True, check=True).stdout
        for line in lines.splitlines():
            self.assertEqual(problems(json.loads(line), schema("record")), [])
        path = pathlib.Path(self.folder.name, "r.jsonl")
        path.write_text(lines, encoding="utf-8")
        self.assert_valid("db import", "db", "import", str(path), "--db", f"{self.folder.name}/other.db")

    def test_nests_that_are_built_in_are_valid(self):
        for op in ("matmul", "attention", "layernorm_backward", "jacobi2d"):
            self.assertEqual(problems(self.run_json("show", op, "--as", "nest"), schema("nest")), [], op)


if __name__ == "__main__":
    unittest.main()
