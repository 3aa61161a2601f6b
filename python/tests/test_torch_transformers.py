"""attn_implementation="nestor": tiny models of transformers end to end, against its own eager attention."""

import sys
import unittest
import warnings

from support import needs_program, tuned

import nestor

try:
    import torch
except ImportError:
    torch = None
try:
    import transformers
except ImportError:
    transformers = None
if torch and transformers:
    import nestor.torch as nt
    from nestor.torch import transformers_attention as ours
    from nestor.torch.kept_mask import KeptMask

TINY = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def keep_registries():
    """Modules of transformers load what is asked of them; assertWarns asks each for its registry, and would load what is not
    installed."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "transformers":
            vars(module).setdefault("__warningregistry__", {})


keep_registries()


def tearDownModule():
    keep_registries()


def bert():
    torch.manual_seed(1)
    return transformers.BertModel(transformers.BertConfig(**TINY)).eval()


def llama():
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY, num_key_value_heads=2, pad_token_id=0)).eval()


def results(model, implementation, ids, mask, **options):
    """The model's result at the places that are no padding."""
    model.set_attn_implementation(implementation)
    found = model(input_ids=ids, attention_mask=mask, **options)
    found = found.logits if hasattr(found, "logits") else found.last_hidden_state
    return found if mask is None or mask.dim() > 2 else found[mask.bool()]


@unittest.skipUnless(torch and transformers, "PyTorch or transformers is not installed")
class TransformersTest(unittest.TestCase):
    def setUp(self):
        self.ids = torch.randint(1, 90, (3, 17), generator=torch.Generator().manual_seed(2))
        self.mask = torch.ones_like(self.ids)
        self.mask[1, 11:] = 0
        self.mask[2, 5:] = 0

    def compare(self, model, *inputs, tolerance=2e-6, **options):
        torch.testing.assert_close(results(model, "nestor", *inputs, **options), results(model, "eager", *inputs, **options),
                                   atol=tolerance, rtol=2e-5)


@needs_program
@unittest.skipUnless(torch and transformers, "PyTorch or transformers is not installed")
class KernelTest(TransformersTest):
    """Every layer is computed by a kernel, tuned when the first one calls for it."""

    def setUp(self):
        super().setUp()
        nt.configure(nestor.Library(tuned("softmax f32"), system_path=""), "raise")
        nt.register_transformers(tune="now", budget_s=1)

    def test_bert_with_padding(self):
        with torch.no_grad():
            model = bert()
            self.compare(model, self.ids, self.mask)
            nt.register_transformers(tune="off")  # the kernel serves other lengths and batches
            self.compare(model, self.ids[:2, :13], self.mask[:2, :13])

    def test_llama_with_padding_on_either_side(self):
        model = llama()
        with torch.no_grad():
            for mask in (self.mask, self.mask.flip(1)):
                self.compare(model, self.ids, mask)
            nt.register_transformers(tune="off")
            torch._dynamo.reset()
            compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
            for length in (17, 13):
                ids, mask = self.ids[:, :length], self.mask[:, :length]
                torch.testing.assert_close(compiled(input_ids=ids, attention_mask=mask).logits,
                                           model(input_ids=ids, attention_mask=mask).logits)

    def test_a_generation_has_one_kernel_for_all_its_steps(self):
        model = llama()
        options = {"attention_mask": self.mask.flip(1), "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        model.set_attn_implementation("eager")
        expected = model.generate(self.ids, max_new_tokens=6, **options)
        model.set_attn_implementation("nestor")
        model.generate(self.ids, max_new_tokens=2, **options)
        nt.register_transformers(tune="off")
        torch.testing.assert_close(model.generate(self.ids, max_new_tokens=6, **options), expected)


class Layer(torch.nn.Module if torch else object):
    is_causal, num_key_value_groups = False, 2


class FallbackTest(TransformersTest):
    def setUp(self):
        super().setUp()
        nt.configure(on_missing="silent")
        if transformers:
            nt.register_transformers()

    def test_what_has_no_kernel_is_transformers(self):
        for model in (bert(), llama()):
            with torch.no_grad():
                self.compare(model, self.ids, self.mask)
            torch._dynamo.reset()
            model.set_attn_implementation("nestor")
            compiled = torch.compile(model, backend="aot_eager")
            with torch.no_grad():
                torch.testing.assert_close(compiled(input_ids=self.ids, attention_mask=self.mask)[0],
                                           model(input_ids=self.ids, attention_mask=self.mask)[0])

    def test_gradients_are_transformers(self):
        nt.configure(on_missing="warn")
        model, gradients = llama(), []
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for implementation in ("nestor", "eager"):
                model.zero_grad()
                results(model, implementation, self.ids, self.mask).square().mean().backward()
                gradients.append([weight.grad.clone() for weight in model.parameters()])
        torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-4)
        messages = {str(each.message) for each in said if "nestor" in str(each.message)}
        self.assertEqual(len(messages), 1)
        self.assertRegex(messages.pop(), "attention of transformers: no kernel computes the gradients of attention")

    def made(self, **options):
        query, key, value = (torch.randn(2, heads, 7, 8, **options) for heads in (4, 2, 2))
        return query, key, value

    def test_calls_of_the_interface(self):
        """Softcaps, sinks, biases and masks that are tensors: by the nest and written out."""
        sinks, bias = torch.randn(4), torch.randn(1, 4, 7, 7)
        seen = torch.rand(2, 1, 7, 9) > 0.3
        seen[..., 0] = True
        for options in ({"softcap": 5.0, "is_causal": True}, {"s_aux": sinks, "is_causal": True},
                        {"position_bias": bias, "softcap": 9.0},
                        {"attention_mask": seen, "softcap": 5.0}, {"attention_mask": torch.where(seen, 0.0, -1e9), "softcap": 5.0},
                        {"attention_mask": seen, "s_aux": sinks, "scaling": 0.5}):
            with self.subTest(options.keys()):
                arguments = {"attention_mask": None, "dropout": 0.0, "scaling": None, **options}
                tensors = self.made()
                expected, _ = ours.attention_forward(Layer(), *tensors, **arguments)
                mask_mod, added = ours._mask_of(arguments["attention_mask"], options.get("is_causal", False), 7)
                score_mod = ours._score_of(options.get("softcap"), added, options.get("position_bias"))
                self.assertEqual(tuple(expected.shape), (2, 7, 4, 8))
                found, lse, _ = math_attention(tensors, score_mod, mask_mod, arguments["scaling"])
                if "s_aux" in options:
                    found = found * torch.sigmoid(lse - sinks.view(1, -1, 1))[..., None]
                torch.testing.assert_close(expected.double(), found.transpose(1, 2), atol=2e-5, rtol=2e-5)

    def test_dropout_is_transformers(self):
        torch.manual_seed(0)
        found, _ = ours.attention_forward(Layer(), *self.made(), None, dropout=1.0)
        self.assertEqual(int(found.count_nonzero()), 0)

    def test_masks_are_kept_as_functions(self):
        found = ours.kept_mask(3, 5, 9, q_offset=4, attention_mask=torch.ones(3, 9, dtype=torch.bool))
        self.assertIsInstance(found, KeptMask)
        self.assertEqual((found.shape, found.to("cpu")), ((3, 1, 5, 9), found))
        self.assertTrue(torch.equal(found.dense(), torch.ones(5, 9, dtype=torch.bool).tril(4).expand(3, 1, 5, 9)))
        self.assertIs(found.dense(), found.dense())
        self.assertRegex(repr(found), r"KeptMask\(shape=\(3, 1, 5, 9\)")

    def test_bad_arguments(self):
        with self.assertRaisesRegex(nestor.UserError, "tune is 'off' or 'now', not 'never'"):
            nt.register_transformers(tune="never")


def math_attention(tensors, score_mod, mask_mod, scale):
    """(result, log-sum-exp, ...) as PyTorch defines them, in float64."""
    from torch._higher_order_ops.flex_attention import math_attention as defined

    query, key, value = (tensor.double() for tensor in tensors)
    out, lse, most = defined(query, key, value, score_mod or (lambda score, *_: score),
                             (mask_mod or (lambda b, *_: b.new_ones((), dtype=torch.bool)),),
                             query.shape[-1] ** -0.5 if scale is None else scale, {})
    return out, lse * 0.6931471805599453, most


if __name__ == "__main__":
    unittest.main()
