"""Library and Kernel on host kernels, with nothing but the standard library."""

import array
import ctypes
import os
import subprocess
import sys
import threading
import unittest

import support
from support import WIDTH, matrix, needs_program, normalised, row, tuned

import nestor

SIZES = {"rows": 64, "width": WIDTH}


@needs_program
class LibraryTest(unittest.TestCase):
    def setUp(self):
        self.library = nestor.Library(tuned("layernorm f32"), system_path="")
        self.kernel = self.library.query("layernorm", "f32", SIZES)

    def assert_normalised(self, out, x, weight=1.0, bias=0.0, eps=1e-5):
        for found, values in zip(out, x):
            for got, want in zip(found, normalised(values, eps)):
                self.assertAlmostEqual(got, want * weight + bias, places=4)

    def test_a_kernel_computes_what_its_operator_says(self):
        x, out = matrix(5, seed=1), matrix(5)
        self.kernel(x, row(2.0), row(0.5), out)
        self.assert_normalised(out, x, 2.0, 0.5)

    def test_scalars_are_given_by_name_and_have_defaults(self):
        x, out = matrix(3, seed=2), matrix(3)
        self.kernel(x, row(1.0), row(0.0), out, eps=0.5)
        self.assert_normalised(out, x, eps=0.5)
        self.kernel(x, row(1.0), row(0.0), out)
        self.assert_normalised(out, x)

    def test_arguments_of_another_kind_are_user_errors(self):
        x, out = matrix(4, seed=1), matrix(4)
        for eps in (10**400, "small", None, [1]):
            with self.assertRaisesRegex(nestor.UserError, "scalar eps must be a number that a double can hold, not (.small.|None|a number of|.1)"):
                self.kernel(x, row(1.0), row(0.0), out, eps=eps)
        with self.assertRaisesRegex(nestor.UserError, "the sizes must be a dictionary"):
            self.kernel(x, row(1.0), row(0.0), out, sizes=[1, 2])
        with self.assertRaisesRegex(nestor.UserError, "the sizes must be a dictionary"):
            self.library.query("layernorm", "f32", [1, 2])
        with self.assertRaisesRegex(nestor.UserError, "a stream's handle must be an integer from 0"):
            self.kernel(x, row(1.0), row(0.0), out, stream=2**64)
        self.kernel(x, row(2.0), row(0.5), out)
        self.assert_normalised(out, x, 2.0, 0.5)

    def test_integers_beyond_64_bits_are_refused(self):
        for value in (2**64 + 64, 2**63, -2**63 - 1, 10**100000):
            with self.assertRaisesRegex(nestor.UserError, "size rows must be an integer of 64 bits"):
                self.library.query("layernorm", "f32", {"rows": value, "width": WIDTH})
            with self.assertRaisesRegex(nestor.UserError, "size rows must be an integer of 64 bits"):
                nestor.tune("layernorm", {"rows": value, "width": WIDTH})
        with self.assertRaisesRegex(nestor.UserError, "size rows must be an integer, not 2.5"):
            self.library.query("layernorm", "f32", {"rows": 2.5, "width": WIDTH})
        with self.assertRaisesRegex(nestor.UserError, "size rows must be an integer, not True"):
            self.library.query("layernorm", "f32", {"rows": True, "width": WIDTH})
        with self.assertRaisesRegex(nestor.UserError, "threads must be an integer of 32 bits, not 4294967297"):
            nestor.Library(tuned("layernorm f32"), threads=2**32 + 1)
        x, out = matrix(4, seed=1), matrix(4)
        with self.assertRaisesRegex(nestor.UserError, "size rows must be an integer of 64 bits"):
            self.kernel(x, row(1.0), row(0.0), out, sizes={"rows": 2**64 + 4})

        class Strange:  # as much memory as anybody claims
            __array_interface__ = {"version": 3, "typestr": "<f4", "data": (ctypes.addressof(x), False),
                                   "shape": (2**64 + 4, WIDTH)}

        with self.assertRaises(nestor.UserError):
            self.kernel(Strange(), row(1.0), row(0.0), out)

    def test_text_that_c_cannot_take_is_refused(self):
        for op in ("layer\0norm", "\ud800", 7, None):
            with self.assertRaisesRegex(nestor.UserError, "the operator must be text"):
                self.library.query(op, "f32", SIZES)

    def test_a_forked_child_launches_and_exits(self):
        program = """if True:
            import os, sys, time
            sys.path[:0] = sys.argv[2:]
            import nestor
            from support import matrix, row, WIDTH
            library = nestor.Library(sys.argv[1], system_path="")
            kernel = library.query("layernorm", "f32", {"rows": 64, "width": WIDTH})
            x, out = matrix(64, seed=1), matrix(64)
            kernel(x, row(1.0), row(0.0), out)
            time.sleep(0.2)  # its threads sleep now
            child = os.fork()
            if child == 0:
                kernel(x, row(1.0), row(0.0), out)
                library.query("layernorm", "f32", {"rows": 32, "width": WIDTH})
                sys.exit(0)
            sys.exit(os.waitpid(child, 0)[1])
        """
        folder = os.path.dirname(__file__)
        command = [sys.executable, "-c", program, tuned("layernorm f32"), folder, os.path.dirname(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_tensors_may_be_given_by_name(self):
        x, out = matrix(2, seed=3), matrix(2)
        self.kernel(x, out=out, bias=row(0.25), weight=row(1.0), eps=0.1)
        self.assert_normalised(out, x, bias=0.25, eps=0.1)

    def test_a_kernel_says_what_it_is(self):
        self.assertEqual((self.kernel.match, self.kernel.distance, self.kernel.device), ("exact", 0.0, "host"))
        self.assertEqual(self.kernel.tensors, ["x", "weight", "bias", "out"])
        self.assertEqual(self.kernel.info["measured"]["sizes"], SIZES)
        self.assertRegex(repr(self.kernel), r"layernorm \(f32\) on host, measured at rows=64, width=96: .* us \(exact\)")
        near = self.library.query("layernorm", "f32", {"rows": 16, "width": WIDTH})
        self.assertEqual((near.match, near.distance), ("nearest", 2.0))
        self.assertIn("nearest, distance 2", repr(near))

    def test_a_query_is_remembered_until_refresh(self):
        self.assertIs(self.library.query("layernorm", "f32", SIZES), self.kernel)
        self.library.refresh()
        again = self.library.query("layernorm", "f32", SIZES)
        self.assertIsNot(again, self.kernel)
        x, out = matrix(1, seed=4), matrix(1)
        self.kernel(x, row(1.0), row(0.0), out)
        self.assert_normalised(out, x)

    def test_flat_buffers_and_sizes_by_hand(self):
        weight = array.array("f", [1.0] * WIDTH)
        x, out = matrix(2, seed=5), matrix(2)
        self.kernel(x, weight, memoryview(array.array("f", [0.0] * WIDTH)), out, sizes={"rows": 2, "width": WIDTH})
        self.kernel(x, row(1.0), row(0.0), out, sizes={})
        self.assert_normalised(out, x)

    def test_threads_may_share_a_kernel(self):
        failures = []

        def work(seed):
            x, out = matrix(4, seed=seed), matrix(4)
            try:
                for _ in range(50):
                    self.kernel(x, row(1.0), row(0.0), out, eps=seed)
                self.assert_normalised(out, x, eps=seed)
            except Exception as error:  # noqa: BLE001  any failure of a thread is one of the test
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


@needs_program
class ErrorTest(unittest.TestCase):
    def setUp(self):
        self.library = nestor.Library(tuned("layernorm f32"), system_path="")
        self.kernel = self.library.query("layernorm", "f32", SIZES)
        self.x, self.weight, self.bias, self.out = matrix(2, seed=1), row(1.0), row(0.0), matrix(2)

    def refused(self, message, *tensors, error=nestor.UserError, **named):
        with self.assertRaisesRegex(error, message):
            self.kernel(*tensors, **named)
        self.assertEqual([value for line in self.out for value in line], [0.0] * 2 * WIDTH, "something was written")

    def test_a_wrong_shape(self):
        self.refused(r'tensor "out" must have the shape 2 x 96, not 3 x 96', self.x, self.weight, self.bias, matrix(3))
        self.refused(r'tensor "x" must have the shape rows x 96, not 96', row(1.0), self.weight, self.bias, self.out)
        self.refused(r'tensor "weight" must have the shape 96, not 95', self.x, row(1.0, 95), self.bias, self.out)

    def test_a_wrong_type(self):
        doubles = (ctypes.c_double * WIDTH)()
        self.refused(r"elements of type '<d' are none that kernels take", self.x, doubles, self.bias, self.out)
        integers = (ctypes.c_int32 * WIDTH)()
        self.refused(r'tensor "weight" holds f32, not i32', self.x, integers, self.bias, self.out)
        halves = (ctypes.c_uint16 * WIDTH)()
        self.refused(r'tensor "weight" holds f32, not 16-bit integers', self.x, halves, self.bias, self.out)
        self.refused(r"a list is no tensor", self.x, [1.0] * WIDTH, self.bias, self.out)

    def test_an_argument_that_is_no_tensor_is_named(self):
        class Closed:
            def __dlpack__(self, **_):
                raise RuntimeError("it is closed")

        rest = self.bias, self.out
        for given, message in (((ctypes.c_double * WIDTH)(), "elements of type '<d' are none"), ([1.0], "a list is no tensor"),
                               (None, "a NoneType is no tensor"), (2.5, "a float is no tensor"),
                               (memoryview(bytes(WIDTH)), "elements of type 'B'"), (Closed(), "it cannot be read: RuntimeError: it is closed")):
            self.refused(rf'layernorm \(f32\): tensor "weight" \(argument 2, of f32\): {message}', self.x, given, *rest)
            self.refused(r'tensor "weight" \(argument 2, of f32\)', self.x, weight=given, bias=self.bias, out=self.out)
        self.refused(r"takes 4 tensors \(x, weight, bias, out\), not 5", self.x, self.weight, *rest, None)

    def test_shapes_that_disagree_are_both_told(self):
        self.refused(r'"out" must have the shape 2 x 96, not 3 x 96: rows is 3 there, but rows is 2 by tensor "x"', self.x, self.weight,
                     self.bias, matrix(3))
        self.refused(r'"x" must have the shape 5 x 96, not 2 x 96: rows is 2 there, but rows is 5 by the given sizes', self.x,
                     self.weight, self.bias, self.out, sizes={"rows": 5})

    def test_wrong_arguments(self):
        self.refused(r"takes 4 tensors \(x, weight, bias, out\), not 2", self.x, self.out)
        self.refused(r"missing tensors: bias", self.x, self.weight, out=self.out)
        self.refused(r'"bias" is given twice', self.x, self.weight, self.bias, bias=self.bias, out=self.out)
        tensors = self.x, self.weight, self.bias, self.out
        self.refused(r'"epsilon" is no argument; tensors: x, .*; scalars: eps', *tensors, epsilon=1)
        self.refused(r'no size "cols"', *tensors, sizes={"cols": 3})
        self.refused(r"compiled for width = 96, not 90", *tensors, sizes={"rows": 2, "width": 90})

    def test_a_stream_on_the_host(self):
        self.refused(r"a kernel of the host takes no stream", self.x, self.weight, self.bias, self.out, stream=1234)
        self.refused(r"a str is no CUDA stream", self.x, self.weight, self.bias, self.out, stream="fast")

    def test_an_output_that_overlaps_an_input(self):
        with self.assertRaisesRegex(nestor.UserError, r'output "out" overlaps that of "x"'):
            self.kernel(self.out, self.weight, self.bias, self.out)

    def test_a_read_only_output(self):
        read_only = memoryview(bytes(self.out)).cast("f", [2, WIDTH])
        self.refused(r'"out" is an output, but its memory is read-only', self.x, self.weight, self.bias, read_only)

    def test_no_kernel_for_a_width_and_no_such_device(self):
        with self.assertRaisesRegex(nestor.NotFound, r"no kernel of \"layernorm\" \(f32\) for host fits"):
            self.library.query("layernorm", "f32", {"rows": 64, "width": 97})
        with self.assertRaises(nestor.NotFound):
            self.library.query("no_such_operator", "f32", SIZES)
        with self.assertRaises(nestor.UserError):
            self.library.query("layernorm", "f32", SIZES, "tpu")
        with self.assertRaises(nestor.UserError):
            self.library.query("layernorm", "f32", {"rows": 0, "width": WIDTH})

    def test_a_closed_library(self):
        with nestor.Library(tuned("layernorm f32")) as library:
            kernel = library.query("layernorm", "f32", SIZES)
        self.assertIn("closed", repr(library))
        for use in (lambda: library.query("layernorm", "f32", SIZES), library.refresh,
                    lambda: kernel(self.x, self.weight, self.bias, self.out)):
            with self.assertRaisesRegex(nestor.UserError, "the library is closed"):
                use()

    def test_a_missing_database(self):
        with self.assertRaisesRegex(nestor.UserError, "no tuning database"):
            nestor.Library(support.folder() + "/none.db")


class RuntimeTest(unittest.TestCase):
    def test_without_the_runtime_library_the_message_says_where_it_was_sought(self):
        code = f"import sys; sys.path.insert(0, {str(support.FOLDER)!r}); import nestor\n" \
               "try: nestor.Library()\nexcept nestor.UserError as error: print(error)"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                               env={**os.environ, "NESTOR_RUNTIME": "/nowhere/libnestor_runtime.so.0"})
        self.assertIn("set NESTOR_RUNTIME", found.stdout)
        self.assertIn("/nowhere/libnestor_runtime.so.0: no such file", found.stdout)


if __name__ == "__main__":
    unittest.main()
