"""Masks that models make of indices: each becomes a condition on domains, and computes what eager PyTorch does."""

import unittest

from support import numpy

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    import torch.nn.functional as F
    from importer_checks import check_module, check_program, trace

    import nestor.torch
    from nestor.torch.compiler.verification import Wide
    from nestor.torch.importer.regions import partition

HIDDEN = float("-inf")


def places(queries, keys):
    return torch.arange(queries)[:, None], torch.arange(keys)[None]


def causal(queries, keys):
    query, key = places(queries, keys)
    return key <= query


def by_index(queries, keys):
    """As transformers reads masks: by index tensors that broadcast."""
    query, key = places(queries, keys)
    return causal(queries, keys)[query, key]


def with_prefix(queries, keys):
    return torch.cat((torch.ones(queries, 4, dtype=torch.bool), causal(queries, keys)[:, 4:]), 1)


MASKS = {
    "le": causal,
    "tril": lambda q, k: torch.ones(q, k, dtype=torch.bool).tril(),
    "tril of floats": lambda q, k: torch.tril(torch.ones(q, k)) == 1,
    "triu": lambda q, k: ~torch.triu(torch.ones(q, k, dtype=torch.bool), diagonal=1),
    "-inf.triu": lambda q, k: torch.full((q, k), HIDDEN).triu(1) == 0,
    "cumsum": lambda q, k: torch.ones(k, dtype=torch.int64).cumsum(0)[None] <= torch.ones(q, dtype=torch.int64).cumsum(0)[:, None],
    "window": lambda q, k: causal(q, k) & (places(q, k)[0] - places(q, k)[1] < 4),
    "abs": lambda q, k: (places(q, k)[0] - places(q, k)[1]).abs() <= 3,
    "prefix": lambda q, k: torch.logical_or(causal(q, k), torch.arange(k) < 4),
    "prefix by cat": with_prefix,
    "blocks": lambda q, k: places(q, k)[0] // 4 == places(q, k)[1] // 4,
    "index": by_index,
    "expand": lambda q, k: causal(q, k)[None, None].expand(2, 3, q, k),
    "where and to": lambda q, k: torch.where(causal(q, k), 1, 0).to(torch.bool),
    "not and or": lambda q, k: ~(torch.logical_not(causal(q, k)) | (torch.arange(k) % 2 == 1)),
}


def given(query, key, value, mask):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def added(query, key, value, mask):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=torch.where(mask, 0.0, torch.finfo(query.dtype).min))


def filled(query, key, value, mask):
    return (query @ key.mT * 0.25).masked_fill(~mask, HIDDEN).softmax(-1) @ value


def lowest(query, key, value, mask):
    scores = query @ key.mT * 0.25 + (1.0 - mask.to(query.dtype)) * torch.finfo(query.dtype).min
    return scores.softmax(-1) @ value


USES = (given, added, filled, lowest)


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class MaskTest(unittest.TestCase):
    wholes = {}

    def setUp(self):
        torch.manual_seed(7)

    def captured(self, function, *tensors, **options):
        found = nestor.torch.capture(function, tensors, **options)
        check_program(found, tensors, 5e-6)
        return found

    def whole(self, use, **options):
        """The nest of attention without a mask, captured once for each use and options."""
        key = use, tuple(sorted(options.items()))
        if key not in self.wholes:
            tensors = [torch.randn(2, 3, 12, 4) for _ in range(3)]
            self.wholes[key] = self.captured(lambda q, k, v: use(q, k, v, torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)),
                                             *tensors, **options).regions[0].nest
        return self.wholes[key]

    def check(self, name, mask, use, **options):
        """Attention with the mask is one nest that reads three tensors, and none of its domains over keys is whole."""
        tensors = [torch.randn(2, 3, 12, 4) for _ in range(3)]
        found = self.captured(lambda q, k, v: use(q, k, v, mask(q.shape[-2], k.shape[-2])), *tensors, **options)
        region, = found.regions
        self.assertEqual((len(region.inputs), found.left), (3, {}))
        for narrow, wide in zip(region.nest.statements, self.whole(use, **options).statements):
            if narrow.name.endswith(("_dot", "_exp", "_sum", "_max")) and narrow.reduction or narrow.name.endswith("_exp"):
                self.assertNotEqual(narrow.domain, wide.domain, narrow.name)

    def test_masks_in_every_form_are_domains(self):
        for number, (name, mask) in enumerate(MASKS.items()):
            use = USES[number % len(USES)]
            with self.subTest(name, use=use.__name__):
                self.check(name, mask, use)

    def test_a_mask_in_every_use_is_a_domain(self):
        for use in USES:
            with self.subTest(use.__name__):
                self.check("window", MASKS["window"], use)

    def test_what_pytorch_has_for_minus_infinity_in_cudnns_masks_hides_keys(self):
        """Masks of bools become -65504, and -65536 in bf16: far from the lowest number of that type."""
        def attend(q, k, v, lengths):
            seen = causal(12, 12) & (torch.arange(12)[None, None, None] < lengths[:, None, None, None])
            mask = torch.where(seen, 0.0, -65504.0).to(q.dtype).expand(2, 3, 12, 12)
            return torch.ops.aten._scaled_dot_product_cudnn_attention.default(q, k, v, mask, True)[0]

        for dtype in (torch.float16, torch.bfloat16):
            inputs = *(torch.randn(2, 3, 12, 4, dtype=dtype) for _ in range(3)), torch.tensor([12, 7], dtype=torch.int32)
            region, = partition(trace(attend, inputs).graph).regions
            self.assertEqual(len(region.inputs), 4)
            domain = next(each.domain for each in region.nest.statements if each.name.endswith("_exp"))
            self.assertIn("d3 <= d2", domain, dtype)

    def test_rows_that_cudnn_lets_see_nothing_are_zero(self):
        """As PyTorch's other ways have it, whatever hides them: padding on the left, and causality."""
        def attend(q, k, v, first):
            seen = causal(12, 12) & (torch.arange(12)[None, None, None] >= first[:, None, None, None])
            mask = torch.where(seen, 0.0, -65504.0).to(q.dtype).expand(2, 3, 12, 12)
            return torch.ops.aten._scaled_dot_product_cudnn_attention.default(q, k, v, mask, True)[0]

        def exact(q, k, v, mask, lse):
            return F.scaled_dot_product_attention(q, k, v, mask.masked_fill(mask < -6e4, HIDDEN)), *[None] * 8

        inputs = *(torch.randn(2, 3, 12, 4) for _ in range(3)), torch.tensor([0, 5], dtype=torch.int32)
        replaced = {"aten._scaled_dot_product_cudnn_attention.default": exact}
        found = check_module(trace(attend, inputs), inputs, replaced=replaced)
        domain = next(each.domain for each in found.regions[0].nest.statements if each.name.endswith("_exp"))
        self.assertIn("d3 <= d2", domain)
        compared = torch.isfinite(Wide(trace(attend, inputs)).run(*inputs))
        self.assertEqual((compared[0].all(), compared[1, :, :5].any(), compared[1, :, 5:].all()), (True, False, True))

    def test_lengths_may_be_sizes(self):
        length = torch.export.Dim("length", min=4, max=4096)
        tensors = [torch.randn(2, 3, 12, 4) for _ in range(3)]
        found = self.captured(lambda q, k, v: given(q, k, v, MASKS["window"](q.shape[-2], k.shape[-2])), *tensors,
                              dynamic_shapes=({2: length},) * 3)
        self.assertEqual(len(found.regions), 1)
        nest = found.regions[0].nest
        self.assertEqual(len(nest.sizes), 1)
        domain = next(each.domain for each in nest.statements if each.name.endswith("_exp"))
        self.assertRegex(domain, r"d3 <= d2 and d2 <= d3 \+ 3 }")

    def test_rows_that_see_nothing_are_zero(self):
        tensors = [torch.randn(2, 3, 12, 4) for _ in range(3)]
        found = self.captured(lambda q, k, v: given(q, k, v, torch.arange(12)[None] < torch.arange(12)[:, None] - 2), *tensors)
        self.assertEqual(len(found.regions), 1)

    def test_rows_of_minus_infinity_stay_nan(self):
        """A softmax that is not safe: the domain must not hide what eager shows."""
        tensors = [torch.randn(2, 3, 12, 4) for _ in range(3)]
        found = self.captured(lambda q, k, v: filled(q, k, v, torch.arange(12)[None] < torch.arange(12)[:, None] - 2), *tensors)
        self.assertEqual(len(found.regions), 1)

    def test_a_part_that_depends_on_data_is_a_test_beside_the_domain(self):
        """A length for each sequence, as i32, beside causality."""
        tensors = [torch.randn(2, 3, 12, 4) for _ in range(3)]
        counts = torch.tensor([9, 4], dtype=torch.int32)

        def attend(query, key, value, counts):
            seen = causal(12, 12) & (torch.arange(12)[None] < counts[:, None])[:, None, None]
            return given(query, key, value, seen)

        found = self.captured(attend, *tensors, counts)
        region, = found.regions
        self.assertEqual(len(region.inputs), 4)
        domains = [statement.domain for statement in region.nest.statements if statement.name.endswith("_exp")]
        self.assertRegex(domains[0], "d3 <= d2")
        text = repr(nestor.torch.explain(attend, (*tensors, counts)))
        self.assertRegex(text, r"mask    bitwise_and.*: a test of counts")

    def layers(self, kept_of, **options):
        """Two layers of attention with one causal mask joined with a padding mask; the second reads what the first gives."""
        tensors = [torch.randn(2, 3, 12, 4) for _ in range(3)]
        padding = torch.arange(12)[None] < torch.tensor([12, 7])[:, None]

        def attend(query, key, value, padding):
            seen = causal(12, 12) & kept_of(padding)[:, None, None]
            mask = torch.where(seen, 0.0, HIDDEN)
            first = given(query, key, value, mask)
            return given(torch.tanh(first), key, value, mask) + first, *options.get("also", lambda mask: ())(mask)

        return self.captured(attend, *tensors, padding.to(torch.int64))

    def test_long_chains_before_a_mask_are_looked_at_once(self):
        """Each value is read twice: looked at as a tree, there are 2^30 of them."""
        def attend(x):
            for _ in range(30):
                x = torch.relu(x) * 1.1 - 0.1
            return x.masked_fill(~causal(6, 6), HIDDEN).softmax(-1)

        region, = self.captured(attend, torch.randn(6, 6)).regions
        self.assertRegex(next(each.domain for each in region.nest.statements if each.name.endswith("_exp")), "d1 <= d0")

    def test_layers_that_share_a_mask_have_each_its_own(self):
        for name, kept_of in {"bool": lambda kept: kept.to(torch.bool), "arithmetic": lambda kept: (1 - kept) * 2 < 1}.items():
            with self.subTest(name):
                found = self.layers(kept_of)
                self.assertEqual(len(found.regions), 2)
                for region in found.regions:
                    self.assertIn(torch.int64, [port.node.meta["val"].dtype for port in region.inputs])
                    self.assertNotIn((2, 1, 12, 12), [tuple(port.node.meta["val"].shape) for port in region.inputs])
                    domain = next(each.domain for each in region.nest.statements if each.name.endswith("_exp"))
                    self.assertRegex(domain, "d3 <= d2")

    def test_a_shared_mask_that_is_a_result_as_well(self):
        found = self.layers(lambda kept: kept.to(torch.bool), also=lambda mask: (mask,))
        self.assertEqual(len(found.regions), 2)

    def test_what_is_dear_or_no_smaller_is_made_once(self):
        """A mask made by exponentials, and one of as many numbers as scores: neither is copied into regions."""
        tensors = [torch.randn(2, 3, 12, 4) for _ in range(3)]

        def attend(query, key, value, given_mask, mask_of):
            mask = mask_of(given_mask)
            return given(torch.tanh(given(query, key, value, mask)), key, value, mask)

        for mask_of, given_mask in ((lambda row: torch.exp(row)[:, None] * row, torch.randn(12)),
                                    (lambda mask: mask * 2 + 1, torch.randn(12, 12))):
            found = self.captured(lambda *four, mask_of=mask_of: attend(*four, mask_of), *tensors, given_mask)
            self.assertEqual(len(found.regions), 2)
            self.assertIn((12, 12), [tuple(port.node.meta["val"].shape) for port in found.regions[1].inputs])

    def test_a_mask_that_is_an_argument_stays_a_tensor(self):
        tensors = [torch.randn(2, 3, 12, 4) for _ in range(3)]
        found = self.captured(given, *tensors, torch.randn(12, 12))
        self.assertEqual(len(found.regions[0].inputs), 4)
        text = repr(nestor.torch.explain(given, (*tensors, torch.randn(12, 12))))
        self.assertRegex(text, r"mask    mask: a tensor")


if __name__ == "__main__":
    unittest.main()
