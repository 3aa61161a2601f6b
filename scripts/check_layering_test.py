"""What check_layering.py must see: planted in a copy of the sources, each is found; without, nothing is."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent


def findings(root):
    run = subprocess.run([sys.executable, SCRIPTS / "check_layering.py", "--root", root], capture_output=True, text=True, check=False)
    return run.returncode, run.stdout


class Planted(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        for name in ("src", "include", "kernels"):
            shutil.copytree(SCRIPTS.parent / name, self.root / name)

    def plant(self, path, line):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((path.read_text() if path.exists() else "") + line + "\n")

    def expect(self, text):
        code, found = findings(self.root)
        self.assertEqual(code, 1)
        self.assertIn(text, found)

    def test_the_sources_as_they_are_have_none(self):
        code, found = findings(self.root)
        self.assertEqual(code, 0, found)

    def test_a_circle_of_two_modules(self):
        self.plant("src/support/types.cc", '#include "support/int_expr.h"')
        self.plant("src/support/int_expr.cc", '#include "support/types.h"')
        self.expect("in a circle: support/int_expr, support/types")

    def test_a_circle_through_a_third_module(self):
        for a, b in (("a", "b"), ("b", "c"), ("c", "a")):
            self.plant(f"src/support/{a}.h", f'#include "support/{b}.h"')
        self.expect("in a circle: support/a, support/b, support/c")

    def test_a_crossing_of_rooms(self):
        self.plant("src/codegen/gpu/mma/emit/tensor_emitter.cc", '#include "codegen/gpu/mma/proof/tensor_check.h"')
        self.expect("the room codegen/gpu/mma/emit does not stand on codegen/gpu/mma/proof")

    def test_a_crossing_of_layers(self):
        self.plant("src/poly/nest/nest.cc", '#include "codegen/tile/tile_program.h"')
        self.expect("poly may not include codegen/tile/tile_program.h")

    def test_a_room_that_nobody_knows(self):
        self.plant("src/poly/attic/box.h", "")
        self.expect("the room poly/attic is not in")

    def test_a_room_that_is_full(self):
        for number in range(25):
            self.plant(f"src/poly/isl/box_{number}.h", "")
        self.expect("src/poly/isl: ")

    def test_two_files_of_one_name(self):
        self.plant("src/runtime/nest.h", "")
        self.expect("nest stands in src/poly/nest, src/runtime")

    def test_the_name_of_an_operator(self):
        self.plant("src/poly/nest/nest.cc", 'bool is_softmax(const char* name) { return name == "softmax"; }')
        self.expect("names the operator 'softmax'")


if __name__ == "__main__":
    unittest.main()
