"""What autograd and torch.func see of nestor.torch: gradients of gradients, transformations, and what kernels write."""

import unittest

from support import WIDTH, needs_program, tuned

import nestor

try:
    import torch
    import torch.nn.functional as F
    from torch.autograd import forward_ad
except ImportError:
    torch = None
else:
    from test_torch import OPERATORS, group, operators

    import nestor.torch as nt

PLAIN = "batch=2 heads=4 queries=40 keys=40 head_dim=16"


def layer_norm(x, weight, bias):
    """Written out: third derivatives of PyTorch 2.11's own are wrong."""
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * weight + bias


def bias_residual_layer_norm(x, bias, residual, gamma, beta):
    summed = x + bias + residual
    return summed, layer_norm(summed, gamma, beta)


@needs_program
@unittest.skipUnless(torch, "PyTorch is not installed")
class AutogradTest(unittest.TestCase):
    def setUp(self):
        self.library = nestor.Library(tuned(*OPERATORS, f"attention f32 {PLAIN}"), system_path="")
        nt.configure(self.library, "raise")

    def each(self, *without):
        for name, case in operators()(WIDTH).items():
            if name not in without:
                with self.subTest(name):
                    yield case

    def assert_close(self, found, expected, tolerance=1e-3):
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)

    def softmax(self):
        return self.library.query("softmax", "f32", {"rows": 3, "width": WIDTH})


class GradientsTest(AutogradTest):
    def gradients(self, function, tensors, orders):
        """The gradients of each order, of squares of the results and of those of the order before."""
        leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
        found, last = [], group(function(*leaves))
        for _ in range(orders):
            last = torch.autograd.grad(sum((each ** 2).sum() for each in last), leaves, create_graph=True)
            found.append([each.detach() for each in last])
        return found

    def test_gradients_of_gradients(self):
        written_out = {"layer_norm": layer_norm, "bias_residual_layer_norm": bias_residual_layer_norm}
        for name, (function, reference, tensors) in operators()(WIDTH).items():
            tensors = [tensor[0] if tensor.dim() == 3 else tensor for tensor in tensors]
            for order, (found, expected) in enumerate(zip(*(self.gradients(each, tensors, 3) for each in (
                    function, written_out.get(name, reference))))):
                for mine, theirs in zip(found, expected):
                    with self.subTest(name, order=order + 1):
                        scale = theirs.abs().max()
                        self.assertGreater(float(scale), 0)
                        self.assert_close(mine / scale, theirs / scale, 1e-4)

    def test_gradients_of_gradients_without_a_kernel(self):
        nt.configure(on_missing="silent")
        x, weight = torch.randn(4, 7), torch.rand(7)
        for function, reference, tensors in ((nt.layer_norm, lambda x: F.layer_norm(x, (7,)), (x,)),
                                             (nt.layer_norm, lambda x, w: F.layer_norm(x, (7,), w), (x, weight)),
                                             (nt.rms_norm, lambda x: F.rms_norm(x, (7,), None, 1e-5), (x,))):
            self.assert_close(self.gradients(function, tensors, 2), self.gradients(reference, tensors, 2))

    def test_statistics_have_gradients(self):
        x = torch.randn(4, WIDTH, requires_grad=True)
        weight, bias, seed = torch.rand(WIDTH), torch.rand(WIDTH), torch.randn(4)
        variance, mean = torch.var_mean(x, -1, correction=0)
        expected, = torch.autograd.grad(((mean + torch.rsqrt(variance + 1e-5)) * seed).sum(), x)
        _, mean, rstd = torch.ops.nestor.layer_norm_stats(x, weight, bias, 1e-5)
        self.assert_close(torch.autograd.grad(((mean + rstd) * seed).sum(), x)[0], expected, 1e-5)
        expected, = torch.autograd.grad((torch.rsqrt(x.square().mean(-1) + 1e-5) * seed).sum(), x)
        _, rstd = torch.ops.nestor.rms_norm_stats(x, weight, 1e-5)
        self.assert_close(torch.autograd.grad((rstd * seed).sum(), x)[0], expected, 1e-5)

    def test_bare_operators_without_a_gradient_or_tangent_say_so(self):
        x, weight = torch.randn(4, WIDTH), torch.rand(WIDTH)
        leaf = x.clone().requires_grad_()
        with self.assertRaisesRegex(nestor.UserError, "nestor::rms_norm has no gradient"):
            torch.ops.nestor.rms_norm(leaf, weight, 1e-5)
        with torch.no_grad():
            self.assert_close(torch.ops.nestor.rms_norm(leaf, weight, 1e-5), F.rms_norm(x, (WIDTH,), weight, 1e-5), 2e-5)
        with forward_ad.dual_level():
            with self.assertRaisesRegex(nestor.UserError, "nestor::softmax has no tangent"):
                torch.ops.nestor.softmax(forward_ad.make_dual(x, x))
            self.assert_close(torch.ops.nestor.softmax(x), F.softmax(x, -1), 2e-5)


class TransformationsTest(AutogradTest):
    def setUp(self):
        super().setUp()
        nt.configure(on_missing="silent")

    def test_functions_of_torch_func_see_pytorchs_operators(self):
        for function, reference, (x, *rest) in self.each():
            dims = (0, *(0 if tensor.dim() == x.dim() else None for tensor in rest))

            def squares(call, x):
                return sum((each ** 2).sum() for each in group(call(x, *rest)))

            def of_rows(call):
                return lambda *tensors: torch.func.vmap(call, dims)(*tensors)

            def results(call):
                grad = torch.func.grad
                yield of_rows(call)(x, *rest)
                yield grad(lambda x: squares(call, x))(x)
                yield grad(lambda x: squares(of_rows(call), x))(x)
                yield torch.func.vmap(grad(lambda *tensors: sum((each ** 2).sum() for each in group(call(*tensors)))), dims)(x, *rest)
                yield grad(lambda x: (grad(lambda x: squares(call, x))(x) ** 2).sum())(x)
                yield torch.func.jvp(lambda x: call(x, *rest), (x,), (x + 1,))[1]

            for number, (mine, theirs) in enumerate(zip(results(function), results(reference))):
                with self.subTest(number):
                    self.assert_close(mine, theirs)

    def test_tangents_are_pytorchs(self):
        for function, reference, (x, *rest) in self.each():
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(x, x + 1)
                found, expected = ([forward_ad.unpack_dual(each).tangent for each in group(call(dual, *rest))]
                                   for call in (function, reference))
            self.assert_close(found, expected)

    def test_attention_under_transformations_is_pytorchs(self):
        query, key, value = (torch.randn(2, 4, 40, 16) for _ in range(3))

        def tangent(call):
            return torch.func.jvp(lambda query: call(query, key, value), (query,), (value,))[1]

        def gradient(call):
            return torch.func.grad(lambda query: (call(query, key, value) ** 2).sum())(query)

        def rows(call):
            return torch.func.vmap(lambda query: call(query[None], key[:1], value[:1]))(query)

        from torch.nn.attention import SDPBackend, sdpa_kernel
        with sdpa_kernel(SDPBackend.MATH):  # which alone has tangents
            for of in (tangent, gradient, rows):
                self.assert_close(of(nt.scaled_dot_product_attention), of(F.scaled_dot_product_attention))
        self.assertRegex(nt.explain_attention(query, key, value).kernel.op, "attention")

    def test_torch_compile_sees_them_too(self):
        x, weight = torch.randn(3, WIDTH), torch.rand(WIDTH)

        def ours(x):
            return nt.rms_norm(x, weight)

        def theirs(x):
            return F.rms_norm(x, (WIDTH,), weight, 1e-5)

        def results(call, x):
            return (torch.func.jvp(call, (x,), (x + 1,))[1], torch.func.grad(lambda x: (call(x) ** 2).sum())(x),
                    torch.func.grad(lambda x: (torch.func.vmap(call)(x) ** 2).sum())(x), call(x))

        torch._dynamo.reset()
        compiled = torch.compile(results, backend="aot_eager", fullgraph=True)
        self.assert_close(compiled(ours, x), results(theirs, x))

    def test_it_is_said(self):
        nt.configure(on_missing="raise")
        with self.assertRaisesRegex(nestor.NotFound, "inside of a transformation of torch.func"):
            torch.func.vmap(nt.softmax)(torch.randn(3, WIDTH))


class MemoryTest(AutogradTest):
    def test_negative_bits(self):
        x = torch.complex(torch.ones(3, WIDTH), torch.randn(3, WIDTH)).conj().imag
        self.assertTrue(x.is_neg())
        self.assert_close(nt.softmax(x), F.softmax(x.resolve_neg(), -1), 2e-5)
        out = torch.empty(3, WIDTH)
        dense = torch._neg_view(torch.randn(3, WIDTH))
        with self.assertRaisesRegex(nestor.UserError, r"negative bit set.*resolve_neg\(\)"):
            self.softmax()(dense, out)
        with self.assertRaisesRegex(nestor.UserError, "negative bit set"):
            self.softmax()(out, dense)
        self.softmax()(dense.resolve_neg(), out)
        self.assert_close(out, F.softmax(dense, -1), 2e-5)
        query, key, value = (torch.randn(2, 4, 40, 16) for _ in range(3))
        self.assert_close(nt.scaled_dot_product_attention(torch._neg_view(query), key, torch._neg_view(value)),
                          F.scaled_dot_product_attention(-query, key, -value), 2e-5)

    def test_autograd_notices_what_kernels_write(self):
        x, saved = torch.randn(3, WIDTH), torch.ones(3, WIDTH)
        leaf = torch.ones(3, WIDTH, requires_grad=True)
        product = (leaf * saved).sum()
        before = saved._version, x._version
        self.softmax()(x, saved[:])  # a view counts for its base
        self.assertEqual((saved._version, x._version), (before[0] + 1, before[1]))
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            product.backward()

    def test_outputs_that_require_grad_are_refused_as_pytorch_does(self):
        x, leaf = torch.randn(3, WIDTH), torch.zeros(3, WIDTH, requires_grad=True)
        for out in (leaf, leaf * 1):
            with self.assertRaisesRegex(nestor.UserError, 'output "out" requires grad'):
                self.softmax()(x, out)
            self.assertEqual(int(out.count_nonzero()), 0)
        with torch.no_grad():
            self.softmax()(x, leaf)
        self.assert_close(leaf.detach(), F.softmax(x, -1), 2e-5)
        with torch.inference_mode():
            out = torch.zeros(3, WIDTH)
            self.softmax()(x, out)
        self.softmax()(x + 1, out)
        self.assert_close(out, F.softmax(x, -1), 2e-5)


if __name__ == "__main__":
    unittest.main()
