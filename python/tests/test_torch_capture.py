"""nestor.torch.capture and explain: whole models, masks that become conditions, and graphs that are captured in part."""

import pathlib
import tempfile
import unittest

from support import folder, needs_program, numpy

import nestor

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    import torch.nn.functional as F
    from importer_checks import Wide, check_program, symbols_of
    from importer_models import MASKS, VARIANTS, Decoder, Encoder, attention_with

    import nestor.torch
    from nestor.torch.explanation import op_name


def fused(capture):
    """The ops of each region, in order."""
    return [" ".join(op_name(node) for node in region.nodes) for region in capture.regions]


def reasons(capture):
    return {op_name(node): reason for node, reason in capture.left.items()}


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class CaptureTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(2)

    def captured(self, model, *inputs, tolerance=5e-6, **options):
        """A capture whose regions compute what the model does."""
        found = nestor.torch.capture(model, inputs, **options)
        check_program(found, inputs, tolerance)
        return found


class ModelTest(CaptureTest):
    def encoder(self, **options):
        return self.captured(Encoder(), torch.randn(2, 24, 32), torch.ones(2, 24, dtype=torch.int64), **options)

    def test_a_layer_of_bert(self):
        found = self.encoder()
        self.assertEqual(fused(found), ["linear linear linear", "sub mul matmul div add _softmax matmul", "linear add",
                                        "layer_norm", "linear gelu linear add", "layer_norm"])
        self.assertEqual(len(found.nests), 5)  # both norms share one
        self.assertIn("arithmetic of 64-bit integers", reasons(found)["_to_copy"])  # of the mask, which nests read in 32 bits

    def test_equal_layers_share_their_nests(self):
        class Two(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.other = Encoder(), Encoder()

            def forward(self, x, mask):
                return self.other(self.one(x, mask), mask)

        found = self.captured(Two(), torch.randn(2, 24, 32), torch.ones(2, 24, dtype=torch.int64))
        self.assertEqual((len(found.regions), set(found.nests)), (12, set(self.encoder().nests)))

    def test_sizes_stay_symbols_through_merged_dims(self):
        found = self.encoder(dynamic_shapes=({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},) * 2)
        self.assertIn("matmul div add _softmax matmul", fused(found)[1])
        self.assertEqual([len(nest.sizes) for nest in found.nests.values()], [2] * 5)

    def test_a_layer_of_llama(self):
        for shapes in (None, ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},) if torch else None):
            with self.subTest(dynamic=shapes is not None):
                found = self.captured(Decoder(), torch.randn(2, 24, 32), dynamic_shapes=shapes)
                self.assertEqual(
                    fused(found)[:6], [
                        "pow mean add rsqrt mul mul", "linear mul neg mul add", "linear mul neg mul add", "linear",
                        "scaled_dot_product_attention", "linear add"
                    ])
                attention = found.regions[4]
                self.assertEqual(len(attention.inputs), 3)  # the mask is no tensor, and keys are not repeated
                self.assertEqual([len(port.extents) for port in attention.outputs], [5])  # heads are groups of key heads
                self.assertEqual(reasons(found)["cos"], "pointwise ops alone: PyTorch fuses them")
                self.assertEqual(found.regions[0].nest.op, found.regions[6].nest.op)

    def test_layers_of_pytorch(self):
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
        self.assertIn("scaled_dot_product_attention", fused(self.captured(layer, torch.randn(2, 24, 32))))
        block = torch.nn.Sequential(torch.nn.GroupNorm(2, 4), torch.nn.SiLU(), torch.nn.Flatten(), torch.nn.Linear(24, 5),
                                    torch.nn.LogSoftmax(-1))
        self.assertEqual(reasons(self.captured(block, torch.randn(3, 4, 6))), {})

    def test_without_cuts_a_layer_is_one_nest(self):
        found = self.captured(Decoder(), torch.randn(2, 8, 32), cut="never")
        self.assertEqual(len(found.regions), 1)

    def test_types_of_16_bits(self):
        for dtype, name in ((torch.bfloat16, "bf16"), (torch.float16, "f16")):
            found = nestor.torch.capture(Decoder().to(dtype), (torch.randn(2, 24, 32).to(dtype),))
            check_program(found, (torch.randn(2, 24, 32).to(dtype),), 5e-5)
            self.assertEqual({nest.variant for nest in found.nests.values()}, {name})
            nest = found.regions[4].nest
            self.assertEqual({tensor.type for tensor in nest.arguments}, {name})
            self.assertEqual({tensor.type for tensor in nest.tensors if tensor.role == "temporary"}, {"f32"})


    def test_casts_in_a_model_of_16_bits_do_not_round(self):
        """A norm in f32 between layers of bf16, as models write it."""
        class Mixed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = torch.nn.Linear(16, 16).bfloat16(), torch.nn.Linear(16, 16).bfloat16()

            def forward(self, x):
                wide = self.first(x).float()
                wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 2**-17)
                return self.second(wide.to(torch.bfloat16) * 2)

        x = torch.randn(6, 16).bfloat16()
        found = self.captured(Mixed(), x, tolerance=5e-5, cut="never")
        nest, = found.nests.values()
        self.assertEqual({tensor.type for tensor in nest.arguments}, {"bf16"})
        self.assertEqual({tensor.type for tensor in nest.tensors if tensor.role == "temporary"}, {"f32"})
        self.assertEqual(found.left, {})


class MaskTest(CaptureTest):
    def test_masks_of_indices_become_conditions(self):
        tensors = [torch.randn(2, 3, 10, 4), torch.randn(2, 3, 12, 4), torch.randn(2, 3, 12, 4)]
        for name, mask in MASKS.items():
            with self.subTest(name):
                found = self.captured(attention_with(mask), *tensors)
                region, = found.regions
                self.assertEqual((len(region.inputs), found.left), (3, {}))
                self.assertRegex(repr(nestor.torch.explain(attention_with(mask), tensors)),
                                 r"mask    .*: a condition on indices, no tensor")

    def test_variants_of_attention_are_one_nest(self):
        tensors = [torch.randn(2, 3, 20, 4) for _ in range(3)]
        for variant in VARIANTS:
            with self.subTest(variant.__name__):
                found = self.captured(variant, *tensors)
                self.assertEqual((len(found.regions), found.left), (1, {}))
                self.assertEqual(len(found.regions[0].inputs), 3)

    def test_a_mask_of_data_stays_a_tensor(self):
        def biased(query, key, value, bias):
            return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)

        found = self.captured(biased, *(torch.randn(2, 3, 10, 4) for _ in range(3)), torch.randn(3, 10, 10))
        self.assertEqual(len(found.regions[0].inputs), 4)
        self.assertRegex(repr(found), "mask    bias: a tensor")

    def test_distances_are_values_of_indices(self):
        def alibi(query, key, value, slopes):
            distance = torch.arange(query.shape[2])[:, None] - torch.arange(key.shape[2])[None]
            return torch.softmax(query @ key.mT - slopes[:, None, None] * distance.abs(), -1) @ value

        found = self.captured(alibi, *(torch.randn(2, 3, 10, 4) for _ in range(3)), torch.rand(3))
        self.assertEqual((len(found.regions), found.left), (1, {}))


class PartialTest(CaptureTest):
    def test_what_is_not_supported_ends_a_region_and_no_more(self):
        weight = torch.randn(6, 6)
        for reason, middle in {
                "no rule for aten.sort.default": lambda x: x.sort(-1).values,
                "no rule for aten.argmax.default": lambda x: x * x.argmax(-1, keepdim=True),
                "reads at indices from data": lambda x: x[torch.tensor([1, 0, 2]).int()],
                "no rule for aten.lgamma.default": torch.lgamma,
                "the nest format has no tensors of float64": lambda x: (x.double() * 2).float(),
        }.items():
            with self.subTest(reason):
                found = self.captured(lambda x, middle=middle: torch.softmax(middle(x @ weight + 1), -1), torch.randn(3, 6))
                self.assertIn(reason, set(found.left.values()))
                self.assertEqual(len(found.regions), 2)

    def test_integers_as_inputs_and_what_they_make_are_left(self):
        def embedded(tokens, table, weight):
            return F.layer_norm(F.embedding(tokens, table), (6,)) @ weight

        found = self.captured(embedded, torch.tensor([[1, 2], [0, 3]]), torch.randn(5, 6), torch.randn(6, 4))
        self.assertEqual(fused(found), ["layer_norm", "matmul"])
        self.assertEqual(reasons(found), {"embedding": "no rule for aten.embedding.default"})

    def test_writes_into_inputs_keep_their_order(self):
        class Counter(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", torch.zeros(6))

            def forward(self, x):
                before = (x * self.total).sum(-1)
                self.total.add_(x.sum(0))
                return before, (x * self.total).sum(-1)

        found = nestor.torch.capture(Counter(), (torch.randn(3, 6),))
        self.assertTrue(found.regions)

    def test_dropout_and_data_dependent_shapes(self):
        found = self.captured(torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.0)).train(), torch.randn(3, 6))
        self.assertEqual(len(found.regions), 1)
        with self.assertRaisesRegex(nestor.UserError, "torch.export does not take this model"):
            nestor.torch.capture(lambda x: x * 2 if x.sum() > 0 else x, (torch.randn(3),))

    def test_results_without_a_type_in_nests_are_made_by_pytorch(self):
        found = self.captured(lambda x: (x.softmax(-1), (x.sum(-1) > 0).long(), x.amax(-1)), torch.randn(3, 6))
        self.assertEqual(reasons(found), {"_to_copy": "its result is needed outside, and the nest format has no tensors of int64"})

    def test_conditions_are_results_and_masks_arguments(self):
        found = self.captured(lambda x: x.sum(-1) > 0, torch.randn(3, 6))
        self.assertEqual((found.left, [tensor.type for tensor in found.regions[0].nest.tensors[:2]]), ({}, ["f32", "bool"]))
        for mask in (torch.rand(3, 6) < 0.5, torch.randint(0, 2, (3, 6)), torch.zeros(6, dtype=torch.bool)):
            found = self.captured(lambda x, mask: x.masked_fill(mask == 0, float("-inf")).softmax(-1), torch.randn(3, 6), mask)
            self.assertEqual(found.left, {})
            self.assertIn({torch.bool: "bool", torch.int64: "i64"}[mask.dtype],
                          [tensor.type for tensor in found.regions[0].nest.arguments])

    def test_outputs_of_other_types_have_tolerances_of_their_own(self):
        def function(x):
            y = x.softmax(-1)
            return y.half(), y, y > 0.5

        nest = self.captured(function, torch.randn(3, 6)).regions[0].nest
        tolerances = {tensor.type: tensor.tolerance or nest.tolerance for tensor in nest.tensors if tensor.role == "output"}
        self.assertEqual(tolerances, {"f16": 2e-3, "f32": 1e-4, "bool": 1e-4})

    def test_empty_tensors_and_single_numbers(self):
        found = self.captured(lambda x, y: (x @ y, (y * 2).sum()), torch.randn(2, 0), torch.randn(0, 3))
        self.assertEqual(set(found.left.values()), {"a tensor without elements"})
        self.assertEqual(len(self.captured(lambda x, scale: (x * scale).sum(), torch.randn(5), torch.tensor(3.0)).regions), 1)

    def test_bad_arguments(self):
        with self.assertRaisesRegex(nestor.UserError, 'cut is "memory" or "never", not 3'):
            nestor.torch.capture(torch.relu, (torch.randn(3),), cut=3)


class ExplainTest(CaptureTest):
    def test_what_is_said(self):
        text = repr(nestor.torch.explain(Decoder(), (torch.randn(2, 24, 32),)))
        self.assertRegex(text, r"^8 regions, \d distinct nests")
        self.assertRegex(text, r"fuses   linear, mul, neg, mul, add\n  from    importer_models.py:\d+  query = self.turned")
        self.assertRegex(text, r"mask    unsqueeze \(importer_models.py:\d+\): a condition on indices, no tensor")
        self.assertRegex(
            text, r"left to PyTorch\n(.*\n)*  cos, sin: pointwise ops alone: PyTorch fuses them\n    importer_models.py:\d+  cos, sin = ")


@needs_program
class ProgramTest(CaptureTest):
    def test_the_program_takes_every_nest(self):
        for model, inputs in ((Decoder(), (torch.randn(2, 24, 32), )), (Encoder(), (torch.randn(2, 24,
                                                                                                32), torch.ones(2,
                                                                                                                24).long()))):
            with tempfile.TemporaryDirectory() as place:
                found = nestor.torch.capture(model, inputs, place)
                paths = sorted(pathlib.Path(place).glob("*.nest.json"))
                self.assertEqual(len(paths), len(found.nests))
                for path in paths:
                    self.assertEqual(nestor.Nest.load(path), found.nests[path.name.split(".")[0]])
                    self.assertIn("for ", nestor.show(path))

    def test_captured_regions_are_tuned_once_and_called_at_several_sizes(self):
        """Every region of a layer, with the length and the batch as sizes."""
        model, auto = Decoder(), torch.export.Dim.AUTO
        found = nestor.torch.capture(model, (torch.randn(2, 24, 32),), dynamic_shapes=({0: auto, 1: auto},))
        kernels = {name: nestor.tune(nest, time=2, trials=1, target="host", db=f"{folder()}/captured.db", progress=False)
                   for name, nest in found.nests.items()}
        state = found.program.state_dict
        for x in (torch.randn(2, 24, 32), torch.randn(3, 17, 32)):
            values = [state.get(spec.target, x) for spec in found.program.graph_signature.input_specs]
            run = Wide(found.program.graph_module)
            with torch.no_grad():
                run.run(*values)
            symbols = symbols_of(found.graph, values)
            for region in found.regions:
                tensors = [run.env[port.node].float().reshape(port.shape(symbols)).contiguous() for port in region.inputs]
                results = [torch.full(port.shape(symbols), float("nan")) for port in region.outputs]
                kernels[region.nest.op](*tensors, *results)
                for port, result in zip(region.outputs, results):
                    torch.testing.assert_close(result, run.env[port.node].float().reshape(result.shape), atol=2e-5, rtol=2e-5)


if __name__ == "__main__":
    unittest.main()
