"""On a GPU, with PyTorch: streams, CUDA graphs, torch.compile, and memory that is somewhere else."""

import os
import unittest

from support import WIDTH, matrix, needs_program, tuned

import nestor

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None
else:
    import nestor.torch as nt

OPERATORS = ("rmsnorm bf16", "rmsnorm stats.bf16", "rmsnorm_backward bf16", "softmax bf16", "softmax_backward bf16")


@needs_program
@unittest.skipIf("NESTOR_LIBCUDA" in os.environ, "another driver than the system's is set")
@unittest.skipUnless(torch and torch.cuda.is_available(), "no PyTorch with a GPU")
class CudaTest(unittest.TestCase):
    def setUp(self):
        self.library = nestor.Library(tuned(*OPERATORS, target="cuda"), system_path="")
        nt.configure(self.library, "raise")
        self.kernel = self.library.query("rmsnorm", "bf16", {"rows": 64, "width": WIDTH}, "cuda")
        torch.manual_seed(0)
        self.x = torch.randn(33, WIDTH, device="cuda").bfloat16()
        self.weight = torch.randn(WIDTH, device="cuda").bfloat16()

    def expected(self, x=None):
        return F.rms_norm((self.x if x is None else x).float(), (WIDTH,), self.weight.float(), 1e-5).bfloat16()

    def assert_close(self, found, expected):
        torch.testing.assert_close(found.float(), expected.float(), atol=2e-2, rtol=2e-2)

    def test_a_launch_in_the_current_stream(self):
        for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
            out = torch.full_like(self.x, float("nan"))
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(10_000_000)
                late = self.x + 1
                self.kernel(late, self.weight, out)
                copied = out.clone()  # in order behind the kernel, if both are in one stream
            stream.synchronize()
            self.assert_close(copied, self.expected(late))

    def test_rows_may_be_strided_and_cuda_array_interfaces_are_taken(self):
        class Exporter:
            def __init__(self, tensor):
                self.kept = tensor.view(torch.int16)
                self.__cuda_array_interface__ = {**self.kept.__cuda_array_interface__, "typestr": "<u2"}

        wide = torch.zeros(33, WIDTH + 8, device="cuda", dtype=torch.bfloat16)
        self.kernel(Exporter(self.x), Exporter(self.weight), Exporter(wide[:, :WIDTH]))
        self.assert_close(wide[:, :WIDTH], self.expected())
        self.assertEqual(int(wide[:, WIDTH:].count_nonzero()), 0)

    def test_cuda_graphs(self):
        x, weight = self.x.clone(), self.weight
        nt.rms_norm(x, weight)  # loads the kernel
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = nt.softmax(nt.rms_norm(x, weight))
        for seed in (1, 2):
            torch.manual_seed(seed)
            x.copy_(torch.randn_like(x))
            graph.replay()
            self.assert_close(out, torch.softmax(self.expected(x).float(), -1))

    def test_torch_compile_with_gradients(self):
        for mode in ("default", "reduce-overhead"):
            torch._dynamo.reset()
            compiled = torch.compile(lambda x, w: nt.softmax(nt.rms_norm(x * 2, w)) + 1, fullgraph=True, mode=mode)
            for _ in range(3):  # the first calls of reduce-overhead warm up and record
                leaves = [self.x.clone().requires_grad_(), self.weight.clone().requires_grad_()]
                found = compiled(*leaves)
                found.backward(self.x)
                wide = [each.detach().float().requires_grad_() for each in leaves]
                expected = torch.softmax(F.rms_norm(wide[0] * 2, (WIDTH,), wide[1], 1e-5), -1) + 1
                expected.backward(self.x.float())
                self.assert_close(found, expected)
                for one, other in zip(leaves, wide):
                    torch.testing.assert_close(one.grad.float(), other.grad, atol=5e-2, rtol=5e-2)

    def test_memory_that_is_not_the_gpus(self):
        out = torch.zeros_like(self.x)
        with self.assertRaisesRegex(nestor.UserError, r'tensor "weight" is on host, the kernel runs on cuda:0'):
            self.kernel(self.x, self.weight.cpu(), out)
        with self.assertRaisesRegex(nestor.UserError, r'tensor "x" is on host'):
            self.kernel(matrix(33, seed=1), self.weight, out)
        self.assertEqual(int(out.count_nonzero()), 0)

    def test_a_pointer_that_is_not_device_memory(self):
        class Wrong:
            __cuda_array_interface__ = {"typestr": "<u2", "shape": (WIDTH,), "data": (64, False), "strides": None, "version": 3}

        with self.assertRaisesRegex(nestor.UserError, r'tensor "weight" is not in the memory of a GPU'):
            self.kernel(self.x, Wrong(), torch.zeros_like(self.x))


if __name__ == "__main__":
    unittest.main()
