"""What flex_attention keeps of score_mod and mask_mod: traces hold while nothing changed that the functions read, and no longer."""

import functools
import math
import sys
import types
import unittest
from unittest import mock

from support import needs_program, numpy

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    from flex_variants import MASKS, and_masks, causal, masks_of_data, scores
    from test_torch_flex import evaluated, expected, made
    from torch.autograd import forward_ad
    from torch.fx.experimental.proxy_tensor import make_fx

    import nestor.torch as nt
    from nestor.torch import flex, flex_mods
    from nestor.torch.captured_state import State

LENGTH, WIDTH = 12, 4
limit = 3  # of functions here


def window_of(limit_of):
    """A mask that sees so many keys, as a function says when it is asked."""
    def mask(b, h, q, k):
        return (q - k < limit_of(mask)) & (q >= k)

    return mask


class Table(dict):
    """A dictionary that has a number beside its items."""
    limit = 3


def cases():
    """name: (a mask that sees 3 keys, what makes it see 7)"""
    number, items, table, tensor = [3], {"limit": 3}, Table(limit=3), torch.tensor(3)
    module, several = types.ModuleType("settings_of_a_test"), torch.tensor([3, 9])
    module.limit = 3
    parameter = torch.nn.Parameter(torch.tensor(3.0), requires_grad=False)
    tagged = torch.zeros(2)
    tagged.limit = 3
    layer = torch.nn.Module()
    layer.register_buffer("limit", torch.tensor(3))

    def of_import(_):
        from settings_of_a_test import limit
        return limit

    def of_global(_):
        return limit

    def with_default(b, h, q, k, limit=3):
        return (q - k < limit) & (q >= k)

    def keyword(b, h, q, k, *, limit=3):
        return (q - k < limit) & (q >= k)

    def attribute(b, h, q, k):
        return (q - k < attribute.limit) & (q >= k)

    attribute.limit = 3
    bound = functools.partial(with_default, limit=3)
    get, first = items.get, number.__getitem__
    by_item = window_of(lambda _: tensor.item())
    sys.modules["settings_of_a_test"] = module
    return {
        "list": (window_of(lambda _: number[0]), lambda: number.__setitem__(0, 7)),
        "dictionary": (window_of(lambda _: items["limit"]), lambda: items.update(limit=7)),
        "method of a dictionary": (window_of(lambda _: get("limit")), lambda: items.update(limit=7)),
        "method of a list": (window_of(lambda _: first(0)), lambda: number.__setitem__(0, 7)),
        "derived dictionary": (window_of(lambda _: table.limit), lambda: setattr(table, "limit", 7)),
        "function attribute": (attribute, lambda: setattr(attribute, "limit", 7)),
        "default": (with_default, lambda: setattr(with_default, "__defaults__", (7,))),
        "keyword default": (keyword, lambda: keyword.__kwdefaults__.update(limit=7)),
        "partial": (bound, lambda: bound.keywords.update(limit=7)),
        "global": (window_of(of_global), lambda: globals().update(limit=7)),
        "globals()": (window_of(lambda _: globals()["limit"]), lambda: globals().update(limit=7)),
        "import": (window_of(of_import), lambda: setattr(module, "limit", 7)),
        "module": (window_of(lambda _: module.limit), lambda: setattr(module, "limit", 7)),
        "attribute of torch": (window_of(lambda _: torch.limit_of_a_test), lambda: setattr(torch, "limit_of_a_test", 7)),
        "getattr": (window_of(lambda _: getattr(torch, "limit_of_a_test")), lambda: setattr(torch, "limit_of_a_test", 7)),
        "item": (by_item, lambda: tensor.fill_(7)),
        "int": (window_of(lambda _: int(tensor)), lambda: tensor.fill_(7)),
        "data": (window_of(lambda _: float(parameter)), lambda: parameter.data.fill_(7)),
        "tolist": (window_of(lambda _: several.tolist()[0]), lambda: several.fill_(7)),
        "equal": (window_of(lambda _: 3 if torch.equal(tensor, torch.tensor(3)) else 7), lambda: tensor.fill_(7)),
        "attribute of a tensor": (window_of(lambda _: tagged.limit), lambda: setattr(tagged, "limit", 7)),
        "shape": (window_of(lambda _: tagged.shape[0] + 1), lambda: tagged.resize_(6)),
        "module's buffer": (window_of(lambda _: layer.limit), lambda: setattr(layer, "limit", torch.tensor(7))),
        "module's buffer, read": (window_of(lambda _: layer.limit.item()), lambda: layer.limit.fill_(7)),
        "tensor": (window_of(lambda _: tensor), lambda: tensor.fill_(7)),
        "default type": (window_of(lambda _: 3 if torch.get_default_dtype() == torch.float32 else 7),
                         lambda: torch.set_default_dtype(torch.float64)),
    }


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class FlexTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(4)


class CapturedTest(FlexTest):
    def check(self, score_mod, mask_mod):
        tensors = [tensor.float() for tensor in made(LENGTH, LENGTH, heads=2, width=WIDTH, batch=1)]
        torch.testing.assert_close(evaluated(tensors, score_mod, mask_mod), expected(*tensors, score_mod, mask_mod), atol=2e-6,
                                   rtol=2e-6)

    def traces(self, *calls):
        """How often functions are traced in calls."""
        with mock.patch.object(flex_mods, "trace", side_effect=flex_mods.trace) as trace:
            for score_mod, mask_mod in calls:
                flex_mods.traced(score_mod, mask_mod)
        return trace.call_count

    def test_what_functions_read_may_change(self):
        query, key = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
        for name in cases():
            with self.subTest(name), mock.patch.dict(globals(), limit=3), mock.patch.dict(sys.modules), \
                    mock.patch.object(torch, "limit_of_a_test", 3, create=True):
                mask, change = cases()[name]
                self.check(None, mask)
                try:
                    change()
                    self.check(None, mask)
                    self.assertEqual(int(mask(None, None, query, key).sum(1).max()), 7)
                finally:
                    torch.set_default_dtype(torch.float32)

    def test_numbers_made_of_tensors_inside_of_scores(self):
        scale = torch.tensor([0.5])

        def scaled(score, b, h, q, k):
            return score * float(scale)

        self.check(scaled, None)
        scale.fill_(2.0)
        self.check(scaled, None)

    def test_functions_that_change_what_they_captured_run_at_each_call(self):
        count = [0]

        def counted(score, b, h, q, k):
            count[0] += 1
            return score * count[0]

        for number in range(3):
            flex.call_of(*made(4, 4, width=WIDTH), counted)
            self.assertEqual(count, [number + 1])

    def test_functions_of_other_modules_of_the_same_name(self):
        """That a function calls itself part of PyTorch does not make it so."""
        space = {"__name__": "torch", "limit": 3}
        exec("def mask(b, h, q, k):\n    return (q - k < limit) & (q >= k)", space)
        self.check(None, space["mask"])
        space["limit"] = 7
        self.check(None, space["mask"])

    def test_what_does_not_change_is_traced_once(self):
        for group in (MASKS, masks_of_data(2, LENGTH)):
            for name, mask in group.items():
                with self.subTest(name):
                    self.assertLessEqual(self.traces(*[(None, mask)] * 3), 1)
        for name, score_mod in scores(2, 4, LENGTH).items():
            with self.subTest(name):
                self.assertLessEqual(self.traces(*[(score_mod, None)] * 3), 1)
        used = torch.nn.functional.softplus

        def library(score, b, h, q, k):
            return used(score) * math.pi + torch.where(q > k, 0.0, float("-inf")).abs()

        self.assertEqual(self.traces(*[(library, None)] * 3), 1)

    def test_tensors_of_any_length_share_a_trace(self):
        def padding(seen):
            return and_masks(causal, lambda b, h, q, k: seen[b, k])

        masks = [padding(torch.ones(2, length, dtype=torch.bool)) for length in (8, 9, 10)]
        self.assertEqual(self.traces(*((None, mask) for mask in masks)), 1)

        def end(table):
            return lambda score, b, h, q, k: score + table.reshape(-1)[k] * table.shape[0]

        self.assertEqual(self.traces(*((end(torch.ones(length, 3)), None) for length in (8, 9, 8, 9))), 2)

    def test_changes_that_cannot_be_seen_have_no_key(self):
        class Own(torch.Tensor):
            pass

        for found in (iter([3]), Table(), {3}, torch.zeros(2).as_subclass(Own), object(), open, globals, getattr, sys):
            with self.subTest(type(found)):
                self.assertIsNone(State(window_of(lambda _, found=found: found)).key)
        for found in (3, [3], {"a": (3,)}, torch.zeros(2), torch, math, max, torch.float32, torch.cos, torch.Size([3])):
            with self.subTest(type(found)):
                self.assertIsNotNone(State(window_of(lambda _, found=found: found)).key)


@needs_program
class TensorsTest(FlexTest):
    """Calls that kernels would serve, but for the states of their tensors."""

    def setUp(self):
        super().setUp()
        from test_torch_flex import problems, tuned_library
        nt.configure(tuned_library(), "raise")
        self.tensors = made()
        self.bias = problems()[2]

    def compare(self, tensors, score_mod=None, mask_mod=None, **options):
        found = nt.flex_attention(*tensors, score_mod, mask_mod, return_lse=True, **options)
        torch.testing.assert_close([each.double() for each in found], list(expected(*tensors, score_mod, mask_mod)), atol=2e-5,
                                   rtol=2e-5)

    def test_negative_bits(self):
        tensors = [torch._neg_view(tensor) for tensor in self.tensors]
        self.compare(tensors, None, causal)
        _, score_mod, mask_mod = self.bias
        slopes = score_mod.__closure__[0].cell_contents
        from flex_variants import alibi_by
        self.compare(made(key_heads=2), alibi_by(torch._neg_view(-slopes)), mask_mod, enable_gqa=True)
        self.compare(made(key_heads=2), alibi_by(torch._neg_view(slopes)), mask_mod, enable_gqa=True)

    def test_transformations_see_pytorchs_operators(self):
        nt.configure(on_missing="silent")
        query, key, value = self.tensors

        def attend(query):
            return nt.flex_attention(query, key, value, None, causal)

        with forward_ad.dual_level(), self.assertRaises(NotImplementedError):  # by PyTorch, where the tangent was lost
            attend(forward_ad.make_dual(query, value))
        module = make_fx(attend)(query)
        torch.testing.assert_close(module(query * 2).double(), expected(query * 2, key, value, None, causal)[0], atol=2e-5,
                                   rtol=2e-5)
        nt.configure(on_missing="raise")
        self.compare(self.tensors, None, causal)


if __name__ == "__main__":
    unittest.main()
