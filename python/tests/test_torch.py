"""nestor.torch on host kernels: values, gradients, torch.compile and what happens without a kernel."""

import os
import subprocess
import sys
import textwrap
import unittest
import warnings

from support import FOLDER, WIDTH, needs_program, tuned

import nestor

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None
else:
    import nestor.torch as nt

OPERATORS = ("layernorm stats.f32", "layernorm f32", "layernorm_backward f32", "rmsnorm f32", "rmsnorm stats.f32",
             "rmsnorm_backward f32", "softmax f32", "softmax_backward f32", "log_softmax f32", "log_softmax_backward f32",
             "bias_residual_layernorm f32", "residual_rmsnorm f32", "bias_gelu f32", "layernorm f32weight.bf16")


@needs_program
@unittest.skipUnless(torch, "PyTorch is not installed")
class KernelArgumentsTest(unittest.TestCase):
    def setUp(self):
        library = nestor.Library(tuned("rmsnorm f32"), system_path="")
        self.kernel = library.query("rmsnorm", "f32", {"rows": 64, "width": WIDTH})
        self.x, self.weight, self.out = torch.randn(3, WIDTH), torch.ones(WIDTH), torch.zeros(3, WIDTH)

    def refused(self, message, x):
        with self.assertRaisesRegex(nestor.UserError, message):
            self.kernel(x, self.weight, self.out)
        self.assertEqual(float(self.out.abs().sum()), 0)

    def test_tensors_that_do_not_lie_in_rows_are_refused_by_name(self):
        named = r'rmsnorm \(f32\): tensor "x" \(argument 1, of f32\): .*'
        self.refused(named + r"layout torch.sparse_coo .*to_dense\(\)", self.x.to_sparse())
        self.refused(named + r"the mask of a MaskedTensor would be ignored", torch.masked.masked_tensor(self.x, self.x > 0))
        self.refused(named + "elements of type 'torch.complex64'", self.x.to(torch.complex64))
        self.refused(named + "elements of type 'torch.uint8'", self.x.to(torch.uint8))
        self.refused(named + "device meta", self.x.to("meta"))
        self.refused(named + r"negative bit set", torch.randn(3, WIDTH, dtype=torch.complex64).conj().imag)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.refused(named + r"layout torch.sparse_csr .*to_dense\(\)", self.x.to_sparse_csr())
            for layout in (torch.strided, torch.jagged):
                self.refused(named + r"a nested tensor .*unbind\(\)", torch.nested.nested_tensor([self.x, self.x[:2]], layout=layout))

    def test_tensors_of_transforms_are_refused(self):
        def called(x):
            self.refused(r'tensor "x" .*it has no memory of its own, as tensors inside of torch.vmap', x)
            return x.sum()

        torch.vmap(called)(torch.randn(2, 3, WIDTH))
        torch.func.grad(called)(self.x)
        torch.func.functionalize(called)(self.x)


def operators():
    """name: (Nestor's, PyTorch's, tensors) at a width."""
    def made(width):
        torch.manual_seed(0)
        x, residual = torch.randn(3, 5, width), torch.randn(3, 5, width)
        weight, gamma, bias = torch.rand(width) + 0.5, torch.rand(width) + 0.5, torch.randn(width)
        return x, residual, weight, gamma, bias

    def cases(width):
        x, residual, weight, gamma, bias = made(width)
        size = (width,)
        return {
            "layer_norm": (nt.layer_norm, lambda x, w, b: F.layer_norm(x, size, w, b), (x, weight, bias)),
            "rms_norm": (nt.rms_norm, lambda x, w: F.rms_norm(x, size, w, 1e-5), (x, weight)),
            "softmax": (nt.softmax, lambda x: F.softmax(x, -1), (x,)),
            "log_softmax": (nt.log_softmax, lambda x: F.log_softmax(x, -1), (x,)),
            "bias_residual_layer_norm": (nt.bias_residual_layer_norm,
                                         lambda x, b, r, g, c: (x + b + r, F.layer_norm(x + b + r, size, g, c)),
                                         (x, bias, residual, gamma, weight)),
            "residual_rms_norm": (nt.residual_rms_norm, lambda x, r, w: (x + r, F.rms_norm(x + r, size, w, 1e-5)),
                                  (x, residual, weight)),
            "bias_gelu": (nt.bias_gelu, lambda x, b: F.gelu(x + b), (x, bias)),
        }
    return cases


def group(results):
    return results if isinstance(results, tuple) else (results,)


def run(function, tensors, gradients=None):
    """(results, gradients of the tensors)"""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    results = group(function(*leaves))
    torch.autograd.backward(results, gradients or [torch.ones_like(each) for each in results])
    return [each.detach() for each in results], [leaf.grad for leaf in leaves]


@needs_program
@unittest.skipUnless(torch, "PyTorch is not installed")
class TorchTest(unittest.TestCase):
    def setUp(self):
        self.library = nestor.Library(tuned(*OPERATORS), system_path="")
        nt.configure(self.library, "raise")

    def assert_close(self, found, expected, tolerance=2e-5):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)

    def compare(self, function, reference, tensors):
        torch.manual_seed(1)
        gradients = [torch.randn_like(each) for each in group(reference(*tensors))]
        expected, expected_gradients = run(reference, tensors, gradients)
        found, found_gradients = run(function, tensors, gradients)
        self.assert_close(found, expected)
        self.assert_close(found_gradients, expected_gradients, 1e-4)
        with torch.no_grad():
            self.assert_close(group(function(*tensors)), expected)

    def test_values_and_gradients(self):
        for name, case in operators()(WIDTH).items():
            with self.subTest(name):
                self.compare(*case)

    def test_host_kernels_run_on_pytorchs_threads(self):
        """A process of its own: PyTorch's threads are there, and a launch adds none."""
        code = textwrap.dedent('''
            import os, sys, torch, nestor
            if "parallel backend: OpenMP" not in torch.__config__.parallel_info().replace("ATen ", ""):
                sys.exit(77)
            torch.set_num_threads(3)
            x = torch.randn(512, WIDTH)
            (x @ x.t()).exp_()
            threads = lambda: len(os.listdir("/proc/self/task"))
            library = nestor.Library(sys.argv[1], system_path="", threads=3)
            kernel = library.query("softmax", "f32", {"rows": 512, "width": WIDTH}, "host")
            before, out = threads(), torch.empty_like(x)
            for _ in range(20):
                kernel(x, out)
            torch.testing.assert_close(out, torch.softmax(x, -1), atol=2e-5, rtol=2e-5)
            assert threads() == before, (before, threads())
        ''').replace("WIDTH", str(WIDTH))
        done = subprocess.run([sys.executable, "-c", code, tuned("softmax f32")], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": str(FOLDER)})
        if done.returncode == 77:
            self.skipTest("PyTorch was built without OpenMP")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_torch_compile_takes_the_whole_graph(self):
        for name in ("layer_norm", "rms_norm", "softmax", "residual_rms_norm"):
            function, reference, tensors = operators()(WIDTH)[name]
            with self.subTest(name):
                torch._dynamo.reset()
                # Without code generation: graphs, shapes and gradients are what is tested.
                self.compare(torch.compile(function, fullgraph=True, backend="aot_eager"), reference, tensors)

    def test_operators_are_registered_right(self):
        x, weight = torch.randn(7, WIDTH, requires_grad=True), torch.rand(WIDTH, requires_grad=True)
        bias = torch.rand(WIDTH)
        for op, arguments in ((torch.ops.nestor.layer_norm_stats, (x, weight, bias, 1e-5)),
                              (torch.ops.nestor.rms_norm_stats, (x, weight, 1e-5)), (torch.ops.nestor.softmax, (x,)),
                              (torch.ops.nestor.layer_norm, (x.detach(), bias, bias, 1e-5)),
                              (torch.ops.nestor.bias_gelu, (x, weight))):
            with self.subTest(str(op)):
                self.assertEqual(set(torch.library.opcheck(op, arguments).values()), {"SUCCESS"})

    def test_strided_rows_single_rows_and_no_rows(self):
        weight = torch.rand(WIDTH)
        wide = torch.randn(6, WIDTH + 8)
        for x in (wide[:, :WIDTH], wide[::2, 8:], wide[0, :WIDTH], torch.randn(WIDTH, 4).T, torch.empty(0, WIDTH)):
            found = nt.rms_norm(x, weight)
            self.assertEqual(found.shape, x.shape)
            self.assertTrue(found.is_contiguous())
            self.assert_close([found], [F.rms_norm(x, (WIDTH,), weight, 1e-5)])

    def test_f32_weights_beside_bf16(self):
        x, weight, bias = torch.randn(4, WIDTH).bfloat16(), torch.rand(WIDTH), torch.randn(WIDTH)
        self.assert_close([nt.layer_norm(x, weight, bias).float()], [F.layer_norm(x.float(), (WIDTH,), weight, bias)], 2e-2)

    def test_without_a_kernel_pytorch_computes_and_says_so_once(self):
        nt.configure(on_missing="warn")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for name, case in operators()(100).items():
                with self.subTest(name):
                    self.compare(*case)
            messages = [str(each.message) for each in said if "nestor.torch" in str(each.message)]
        self.assertEqual(len(messages), len(set(messages)))
        self.assertTrue(any("layernorm (stats.f32), width 100: no kernel" in message for message in messages), messages)

    def test_fallbacks_without_weight_or_bias(self):
        nt.configure(on_missing="silent")
        x, weight = torch.randn(4, 7), torch.rand(7)
        self.compare(nt.layer_norm, lambda x: F.layer_norm(x, (7,)), (x,))
        self.compare(nt.layer_norm, lambda x, w: F.layer_norm(x, (7,), w), (x, weight))
        self.compare(nt.rms_norm, lambda x: F.rms_norm(x, (7,), None, 1e-5), (x,))

    def test_without_a_kernel_it_can_raise(self):
        for _ in range(2):
            with self.assertRaisesRegex(nestor.NotFound, r"rmsnorm \(f32\), width 100: no kernel"):
                nt.rms_norm(torch.randn(3, 100), torch.rand(100))
        with self.assertRaisesRegex(nestor.NotFound, "no kernels for torch.float64"):
            nt.softmax(torch.randn(3, 96, dtype=torch.float64))

    def test_bad_arguments(self):
        x = torch.randn(3, WIDTH)
        with self.assertRaisesRegex(nestor.UserError, "must have the shape 96, as the last dimension; one has 95"):
            nt.rms_norm(x, torch.rand(95))
        with self.assertRaisesRegex(nestor.UserError, "must have one type"):
            nt.layer_norm(x, torch.rand(WIDTH), torch.rand(WIDTH).half())
        with self.assertRaisesRegex(nestor.UserError, "x and residual must be of one shape and type"):
            nt.residual_rms_norm(x, x[:2], torch.rand(WIDTH))
        with self.assertRaisesRegex(nestor.UserError, 'on_missing is "warn", "silent" or "raise"'):
            nt.configure(on_missing="ignore")


if __name__ == "__main__":
    unittest.main()
