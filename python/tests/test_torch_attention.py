"""nestor.torch.scaled_dot_product_attention on host kernels: values for all kinds of calls, strides, torch.compile, and what it
says when PyTorch computes."""

import itertools
import os
import unittest
import warnings

from support import needs_program, tuned

import nestor

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None
else:
    import nestor.torch as nt

PLAIN = "batch=2 heads=4 queries=40 keys=40 head_dim=16"
GROUPED = "batch=2 key_heads=2 group=2 queries=40 keys=40 head_dim=16 value_dim=16"
PROBLEMS = (f"attention f32 {PLAIN}", f"attention causal.f32 {PLAIN}", f"attention topleft.f32 {PLAIN}",
            f"attention_bias f32 {PLAIN}", f"attention causal.gqa.f32 {GROUPED}",
            "attention gqa.f32 batch=2 key_heads=4 group=1 queries=40 keys=40 head_dim=16 value_dim=24")


def made(queries=40, keys=40, heads=4, key_heads=None, width=16, value_width=None, batch=2, dtype=None):
    """query, key and value"""
    torch.manual_seed(0)
    shapes = (heads, queries, width), (key_heads or heads, keys, width), (key_heads or heads, keys, value_width or width)
    return [torch.randn(batch, *shape, dtype=dtype) for shape in shapes]


@needs_program
@unittest.skipUnless(torch, "PyTorch is not installed")
class AttentionTest(unittest.TestCase):
    def setUp(self):
        self.library = nestor.Library(tuned(*PROBLEMS), system_path="")
        nt.configure(self.library, "raise")

    def compare(self, tensors, *rest, ours=None, **options):
        """The result, which a kernel must have computed."""
        found = (ours or nt.scaled_dot_product_attention)(*tensors, *rest, **options)
        expected = F.scaled_dot_product_attention(*tensors, *rest, **options)
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)
        return found

    def test_values(self):
        for queries, keys, causal, scale in itertools.product((40, 7, 61), (40, 13, 61), (False, True), (None, 0.3)):
            with self.subTest(queries=queries, keys=keys, causal=causal, scale=scale):
                self.compare(made(queries, keys), is_causal=causal, scale=scale)

    def test_the_kernel_follows_from_the_arguments(self):
        def variant(*tensors, **options):
            kernel, reason = nt.explain_attention(*tensors, **options)
            self.assertIsNone(reason)
            return f"{kernel.op} {kernel.variant}"

        mask = torch.randn(40, 40)
        self.assertEqual(variant(*made()), "attention f32")
        self.assertEqual(variant(*made(), is_causal=True), "attention causal.f32")
        self.assertEqual(variant(*made(40, 61), is_causal=True), "attention causal.f32")
        self.assertEqual(variant(*made(61, 40), is_causal=True), "attention topleft.f32")
        self.assertEqual(variant(*made(), attn_mask=mask), "attention_bias f32")
        self.assertEqual(variant(*made(key_heads=2), is_causal=True, enable_gqa=True), "attention causal.gqa.f32")
        self.assertEqual(variant(*made(value_width=24)), "attention gqa.f32")

    def test_groups_of_query_heads_and_values_of_another_size(self):
        for key_heads in (1, 2):
            self.compare(made(heads=6 if key_heads == 2 else 4, key_heads=key_heads), is_causal=True, enable_gqa=True)
        found = self.compare(made(21, 34, value_width=24))
        self.assertEqual(found.shape, (2, 4, 21, 24))

    def test_masks_broadcast(self):
        for shape in ((40, 61), (1, 61), (2, 1, 40, 61), (4, 40, 61), (2, 4, 1, 61)):
            with self.subTest(shape):
                self.compare(made(40, 61), torch.randn(shape))

    def test_masks_may_hide_keys_and_whole_rows(self):
        mask = torch.zeros(40, 61)
        mask[:, 50:] = -torch.inf
        mask[3, :37] = -torch.inf
        mask[5] = -torch.inf
        found = self.compare(made(40, 61), mask)
        self.assertEqual(int(found[:, :, 5].count_nonzero()), 0)

    def test_strides_are_taken_as_they_are_and_passed_on(self):
        packed = torch.randn(2, 40, 3, 4, 16)
        query, key, value = (packed[:, :, k].transpose(1, 2) for k in range(3))  # [batch, heads, rows, head_dim]
        for tensors in ((query, key, value), (query[:, :, ::2], key, value[:, :1].expand(-1, 4, -1, -1))):
            found = self.compare(tensors, is_causal=True)
            self.assertTrue(found.transpose(1, 2).is_contiguous())  # rows lie outside of heads, as they do in the query

    def test_torch_compile_takes_the_whole_graph(self):
        mask = torch.randn(40, 40)
        for tensors, options in ((made(), {"is_causal": True}), (made(), {"attn_mask": mask})):
            torch._dynamo.reset()
            compiled = torch.compile(lambda q, k, v: nt.scaled_dot_product_attention(q * 2, k, v, **options) + 1, fullgraph=True,
                                     backend="aot_eager")
            found = compiled(*tensors)
            query, key, value = tensors
            torch.testing.assert_close(found, F.scaled_dot_product_attention(query * 2, key, value, **options) + 1, atol=2e-5,
                                       rtol=2e-5)

    def test_the_operator_is_registered_right(self):
        query, key, value = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in made())
        for arguments in ((query, key, value, None, 0.0, True, None, False), (*made(value_width=24), None, 0.0, False, 0.5, False)):
            found = torch.library.opcheck(torch.ops.nestor.scaled_dot_product_attention, arguments)
            self.assertEqual(set(found.values()), {"SUCCESS"})

    def test_gradients_are_pytorchs(self):
        nt.configure(on_missing="warn")
        query, key, value = (tensor.requires_grad_() for tensor in made())
        with self.assertWarnsRegex(UserWarning, "no kernel computes the gradients of attention"):
            nt.scaled_dot_product_attention(query, key, value, is_causal=True).square().sum().backward()
        found = [leaf.grad.clone() for leaf in (query, key, value)]
        query.grad = key.grad = value.grad = None
        F.scaled_dot_product_attention(query, key, value, is_causal=True).square().sum().backward()
        torch.testing.assert_close(found, [query.grad, key.grad, value.grad])
        nt.configure(on_missing="raise")
        with torch.no_grad():
            self.compare((query, key, value), is_causal=True)

    def test_gradients_under_torch_compile(self):
        nt.configure(on_missing="warn")
        torch._dynamo.reset()
        leaves = [tensor.requires_grad_() for tensor in made()]
        compiled = torch.compile(lambda *tensors: nt.scaled_dot_product_attention(*tensors), fullgraph=True, backend="aot_eager")
        with self.assertWarnsRegex(UserWarning, "no kernel computes the gradients of attention"):
            compiled(*leaves).sum().backward()
        torch.testing.assert_close(leaves[2].grad.sum(), torch.tensor(float(leaves[0].numel())), atol=1e-2, rtol=1e-4)

    def test_the_bare_operator_has_no_gradient(self):
        query, key, value = (tensor.requires_grad_() for tensor in made())
        found = torch.ops.nestor.scaled_dot_product_attention(query, key, value, None, 0.0, False, None, False)
        with self.assertRaisesRegex(nestor.UserError, "has no gradient"):
            found.sum().backward()

    def test_masks_beside_is_causal_are_pytorchs(self):
        mask = torch.randn(40, 40)
        self.assertRegex(nt.explain_attention(*made(), mask, is_causal=True).reason, "no kernel takes attn_mask beside is_causal")

    def reasons(self):
        """Arguments that no kernel takes: (tensors, options, reason)"""
        query, key, value = made()
        grouped, mask = made(key_heads=2), torch.randn(40, 40)
        return {
            "dropout": ((query, key, value), {"dropout_p": 0.5}, "no kernel has dropout"),
            "rank": ((query[0], key[0], value[0]), {}, r"tensors \[batch, heads, rows, head_dim\]"),
            "type": (made(dtype=torch.float64), {}, "no kernels for torch.float64 on cpu"),
            "bool": ((query, key, value), {"attn_mask": mask > 0}, "masks of the query's type, torch.float32; attn_mask is torch.bool"),
            "dense": ((query.transpose(2, 3).contiguous().transpose(2, 3), key, value), {},
                      "query must be dense in its last dimension; its stride is 40"),
            "empty": ((query[:, :, :0], key, value), {}, "a tensor has no elements"),
            "bias": (grouped, {"attn_mask": mask, "enable_gqa": True}, "no kernel takes attn_mask where query heads share"),
            "head_dim": (made(width=20), {}, r"no kernel of \"attention\" \(f32\) for host.*; no kernel of \"attention\" \(gqa.f32\)"),
        }

    def test_what_no_kernel_takes_is_pytorchs_and_said_once(self):
        for name, (tensors, options, reason) in self.reasons().items():
            with self.subTest(name):
                self.assertRegex(nt.explain_attention(*tensors, **options).reason, reason)
                nt.configure(on_missing="warn")
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    for _ in range(2):
                        torch.manual_seed(3)
                        found = nt.scaled_dot_product_attention(*tensors, **options)
                messages = [str(each.message) for each in said]
                self.assertEqual(len(messages), 1, messages)
                self.assertRegex(messages[0], reason)
                torch.manual_seed(3)
                torch.testing.assert_close(found, F.scaled_dot_product_attention(*tensors, **options))
                nt.configure(on_missing="raise")
                with self.assertRaisesRegex(nestor.NotFound, reason):
                    nt.scaled_dot_product_attention(*tensors, **options)

    def test_bad_arguments_are_refused_as_pytorch_refuses_them(self):
        nt.configure(on_missing="silent")
        query, key, value = made()
        for tensors, options in (((query, key[..., :8], value), {}), ((query, key[:, :3], value[:, :3]), {}), ((query, key[:, :2], value[:, :2]), {}),
                                 ((query, key.double(), value), {}),
                                 ((query, key, value), {"attn_mask": torch.randn(40, 41)})):
            with self.assertRaises(RuntimeError):
                F.scaled_dot_product_attention(*tensors, **options)
            with self.assertRaises(RuntimeError):
                nt.scaled_dot_product_attention(*tensors, **options)


CUDA_PROBLEMS = tuple(f"attention {variant}.f16 batch=2 heads=4 queries=512 keys=512 head_dim={width}".replace(" .", " ")
                      for width in (64, 72) for variant in ("", "causal")) + (
    "attention causal.gqa.f16 batch=2 key_heads=2 group=2 queries=512 keys=512 head_dim=64 value_dim=64",
    "attention_bias f16 batch=2 heads=4 queries=512 keys=512 head_dim=64")


@needs_program
@unittest.skipIf("NESTOR_LIBCUDA" in os.environ, "another driver than the system's is set")
@unittest.skipUnless(torch and torch.cuda.is_available(), "no PyTorch with a GPU")
class CudaAttentionTest(unittest.TestCase):
    def setUp(self):
        self.library = nestor.Library(tuned(*CUDA_PROBLEMS, target="cuda"), system_path="")
        nt.configure(self.library, "raise")

    def made(self, *sizes, **options):
        return [tensor.cuda() for tensor in made(*sizes, dtype=torch.float16, **options)]

    def compare(self, tensors, *rest, ours=None, **options):
        found = (ours or nt.scaled_dot_product_attention)(*tensors, *rest, **options)
        wide = [tensor.double() for tensor in (*tensors, *rest)]
        torch.testing.assert_close(found.double(), F.scaled_dot_product_attention(*wide, **options), atol=4e-3, rtol=4e-3)
        return found

    def test_values(self):
        for queries, keys, width in itertools.product((512, 300, 1), (512, 700, 37), (64, 72)):
            with self.subTest(queries=queries, keys=keys, width=width):
                self.compare(self.made(queries, keys, width=width))
                if queries <= keys:
                    self.compare(self.made(queries, keys, width=width), is_causal=True)

    def test_groups_masks_and_hidden_rows(self):
        self.compare(self.made(400, 400, heads=6, key_heads=2, width=64), is_causal=True, enable_gqa=True)
        mask = torch.randn(300, 704, device="cuda", dtype=torch.float16)
        mask[:, 500:] = -torch.inf
        mask[3, :300] = -torch.inf
        mask[5] = -torch.inf
        found = self.compare(self.made(300, 704, width=64), mask)
        self.assertEqual(int(found[:, :, 5].count_nonzero()), 0)

    def test_strides(self):
        packed = torch.randn(2, 300, 3, 4, 64, device="cuda", dtype=torch.float16)
        found = self.compare([packed[:, :, k].transpose(1, 2) for k in range(3)], is_causal=True)
        self.assertTrue(found.transpose(1, 2).is_contiguous())
        odd = torch.randn(2, 4, 300, 67, device="cuda", dtype=torch.float16)[..., :64]  # rows that begin at no multiple of 16 bytes
        kernel, reason = nt.explain_attention(odd, odd, odd)
        self.assertTrue(kernel is not None or "must be a multiple of 8 elements (16 bytes), not 67" in reason, reason)
        nt.configure(on_missing="silent")
        self.compare((odd, odd, odd))

    def test_cuda_graphs_and_torch_compile(self):
        query, key, value = self.made(width=64, queries=512, keys=512)
        nt.scaled_dot_product_attention(query, key, value, is_causal=True)  # loads the kernel
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = nt.scaled_dot_product_attention(query, key, value, is_causal=True)
        for seed in (1, 2):
            torch.manual_seed(seed)
            query.copy_(torch.randn_like(query))
            graph.replay()
            self.compare((query, key, value), is_causal=True, ours=lambda *_, **__: out)
        for mode in ("default", "reduce-overhead"):
            torch._dynamo.reset()
            compiled = torch.compile(lambda *tensors: nt.scaled_dot_product_attention(*tensors, is_causal=True), fullgraph=True,
                                     mode=mode)
            for _ in range(3):  # the first calls of reduce-overhead warm up and record
                self.compare((query, key, value), is_causal=True, ours=lambda *tensors, **_: compiled(*tensors).clone())


if __name__ == "__main__":
    unittest.main()
