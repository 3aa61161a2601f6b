"""nestor.torch.schedule on whole models: the tutorials of Slapo and Kernl anew, training, checkpoints, copies."""

import copy
import io
import pickle
import unittest
import warnings

from support import numpy

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    import torch.nn.functional as F
    from schedule_models import Bert, FeedForward, SelfAttention, batch
    from torch import nn

    import nestor.torch
    from nestor.torch import schedule

    def core(query, key, value, mask, scale, p, training):
        """Attention as the model writes it."""
        weights = F.softmax(query @ key.transpose(-1, -2) / scale + mask, -1)
        return F.dropout(weights, p, training) @ value

    def flash(query, key, value, mask, scale, p, training):
        return F.scaled_dot_product_attention(query, key, value, mask, schedule.chosen(training, p, 0.0), scale=1 / scale)

    def tail(product, bias, p, training, residual, gamma, beta):
        """Bias, dropout, residual and norm, as decompose writes them."""
        summed = F.dropout(product + bias, p, training) + residual
        centred = summed - summed.mean((-1, ), keepdim=True)
        return centred * torch.rsqrt((centred * centred).mean((-1, ), keepdim=True) + 1e-5) * gamma + beta


def eager(graph, _inputs):
    """A compiler for fused parts that only counts."""
    eager.calls += 1
    return graph.forward


eager.calls = 0


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class ScheduleTest(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(3)
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)  # tensors are small

    def bert(self, **options):
        model, (tokens, mask, labels) = Bert(**options), batch()
        return model, (tokens, mask), labels

    def merged(self, model, inputs):
        """A schedule whose attention has merged projections and a flash core."""
        made = schedule(model, inputs)
        attention = made["encoder.layer.*.attention.self"].trace()
        attention.merge(["query", "key", "value"])
        return made, attention.replace(attention.find(core), flash)

    def fused(self, model, inputs, compiler, **options):
        made, _ = self.merged(model, inputs)
        output = made["encoder.layer.*.attention.output"].trace()
        output.decompose(output.find(nn.Linear)).decompose(output.find(nn.LayerNorm))
        output.fuse(output.find(tail), compiler, name="tail", **options)
        return made, output


class TutorialTest(ScheduleTest):

    def test_self_attention_with_merged_projections_and_a_flash_core(self):
        model, inputs, _ = self.bert()
        made, _ = self.merged(model, inputs)
        code = made.code("encoder.layer.0.attention.self")
        self.assertEqual(code.count("self.query_key_value(hidden)"), 1)
        self.assertIn("scaled_dot_product_attention", code)
        self.assertNotIn("softmax", code)
        report = made.verify(inputs)
        self.assertNotIn("without dropout",
                         report)  # the same numbers are drawn: the flash core has the dropout of the original
        self.assertEqual({each["mode"] for each in report.values}, {"eval", "train"})
        self.assertIn("gradient of encoder.layer.1.attention.self.key.weight", {each["name"] for each in report.values})

    def test_nestors_attention_as_the_core(self):
        model, inputs, _ = self.bert(dropout=0.0)
        made = schedule(model, inputs)
        attention = made["encoder.layer.*.attention.self"].trace()

        def product(query, key, value, mask, scale, p):
            return F.dropout(F.softmax(query @ key.transpose(-1, -2) / scale + mask, -1), p) @ value

        def kernel(query, key, value, mask, scale, p):
            return nestor.torch.scaled_dot_product_attention(query, key, value, mask, scale=1 / scale)

        nestor.torch.configure(on_missing="silent")
        self.addCleanup(nestor.torch.configure)
        attention.replace(attention.find(product), kernel)
        self.assertIn("kernel(", made.code("encoder.layer.0.attention.self"))  # it looks at shapes, so it stays a call
        self.assertIn("equal", made.verify(inputs))

    def test_feed_forward_with_tanh_replaced_by_relu(self):
        model, x = FeedForward(), torch.randn(3, 8)
        made = schedule(model)
        self.assertEqual(len(made.trace().find(torch.tanh)), 1)
        made.replace(made.find(torch.tanh), F.relu)
        self.assertEqual(
            made.code(), "def forward(self, x):\n    up = self.up(x)\n    relu = torch.nn.functional.relu(up)\n"
            "    down = self.down(relu)\n    return down\n")
        torch.testing.assert_close(made.build()(x), model.down(F.relu(model.up(x))))
        with self.assertRaisesRegex(schedule.Mismatch,
                                    r"the scheduled model computes something else: .* in (eval|train) is .* in place of"):
            made.verify((x, ))
        made.verify((x, ), against=_Relu(model))

    def test_bias_dropout_residual_and_norm_fused(self):
        model, inputs, _ = self.bert()
        eager.calls = 0
        made, output = self.fused(model, inputs, eager, dynamic=False)
        self.assertEqual(len(output.find("tail")), 2)
        self.assertRegex(
            made.code("encoder.layer.0.attention.output"),
            r"linear = .*linear\(hidden, dense_weight\)\n(.*\n)*    tail = self.tail\(linear, dense_bias, residual, ")
        self.assertIn("dropout = self.dropout(add_1)", made.code("encoder.layer.0.attention.output.tail"))
        self.assertNotIn("without dropout", made.verify(inputs))
        built = made.build().eval()
        torch.testing.assert_close(built(*inputs), model.eval()(*inputs))
        self.assertEqual(eager.calls, 2)
        made.verify(inputs)
        self.assertEqual(eager.calls, 2)
        self.assertNotIn("train", made.verify(inputs, compiled=True))
        self.assertEqual(eager.calls, 4)
        output.unfuse(output.find("tail"))
        self.assertNotIn("tail", made.code("encoder.layer.0.attention.output"))
        made.verify(inputs)

    def test_fused_parts_are_compiled_by_nestor_or_inductor(self):
        model, inputs, _ = self.bert(layers=1)
        made, _ = self.fused(model, inputs, "nestor")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that no kernel was tuned
            made.verify(inputs, backward=False, compiled=True, dtype=None)

    def test_kernl_patterns_match_modules_by_class(self):

        class Found(nn.Module):

            def __init__(self):
                super().__init__()
                self.any_linear, self.any_norm = nn.Linear(1, 1), nn.LayerNorm(1)

            def forward(self, x, residual):
                return self.any_norm(F.dropout(self.any_linear(x), 0.5) + residual)

        model, inputs, _ = self.bert()
        output = schedule(model)["**.output"].trace()
        found = output.find(Found())
        self.assertEqual([match.path for match in found],
                         [f"encoder.layer.{layer}.{part}output" for layer in (0, 1) for part in ("attention.", "")])
        self.assertEqual(found[0]["any_norm"], "norm")

    def test_traced_modules_are_traced_through(self):
        model, inputs, _ = self.bert()
        made, _ = self.merged(model, inputs)
        made["encoder"].trace(flatten=True)
        self.assertEqual(len(made["encoder"].find(F.scaled_dot_product_attention)), 2)
        self.assertEqual(len(made["encoder"].find(".*query_key_value")), 2)
        made.verify(inputs)

    def test_a_whole_model_is_flattened(self):
        model, inputs, _ = self.bert()
        made = schedule(model, inputs)
        made.trace(flatten=True)
        self.assertEqual(len(made.find("query|key|value")), 6)
        self.assertEqual(len(made.find(core)), 2)
        self.assertEqual(len(made.find(F.gelu)), 2)
        self.assertEqual(len(made.find(torch.arange)), 1)
        made.merge(["encoder.layer.0.attention.self." + name for name in ("query", "key", "value")])
        made.replace(made.find(core), flash)
        made.verify(inputs)
        tokens, mask, _ = batch(2, 7)
        made.verify((tokens, mask))  # other sizes than it was traced with


class _Relu(nn.Module if torch else object):
    """FeedForward with relu in the place of tanh."""

    def __init__(self, model):
        super().__init__()
        self.up, self.down = model.up, model.down

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


class TrainingTest(ScheduleTest):

    def losses(self, model, inputs, labels, steps=5):
        torch.manual_seed(1)
        return self.steps(model.train(), torch.optim.AdamW(model.parameters(), lr=1e-2), inputs, labels, steps)

    def test_losses_after_merge_are_those_of_the_original(self):
        model, inputs, labels = self.bert()
        model = model.double()
        wanted = copy.deepcopy(model)
        built = self.merged(model, inputs)[0].build()
        torch.testing.assert_close(self.losses(built, inputs, labels), self.losses(wanted, inputs, labels), rtol=1e-9, atol=0)
        for name, value in wanted.state_dict().items():
            torch.testing.assert_close(built.state_dict()[name], value, rtol=1e-7, atol=1e-9)

    def test_training_continues_in_the_middle(self):
        model, inputs, labels = self.bert(dropout=0.0)
        model = model.double()
        self.losses(model, inputs, labels, 2)
        wanted = copy.deepcopy(model)
        built = self.merged(model, inputs)[0].build()
        torch.testing.assert_close(self.losses(built, inputs, labels), self.losses(wanted, inputs, labels), rtol=1e-9, atol=0)

    def test_optimizers_go_on_after_merge_and_back(self):
        model, inputs, labels = self.bert(dropout=0.0)
        model = model.double()
        wanted = copy.deepcopy(model)
        optimizer, other = (torch.optim.AdamW(self.groups(each), lr=1e-2) for each in (model, wanted))
        self.same_steps((model, optimizer), (wanted, other), inputs, labels)
        built = self.merged(model, inputs)[0].build()
        merged = schedule.moved_optimizer(optimizer, model, built)
        self.assertEqual([len(group["params"]) for group in merged.param_groups], [11, 19])
        self.same_steps((built, merged), (wanted, other), inputs, labels)
        back = schedule.moved_optimizer(merged, built, model)
        self.assertEqual([len(group["params"]) for group in back.param_groups], [15, 23])
        self.same_steps((model, back), (wanted, other), inputs, labels)

    def groups(self, model):
        """Biases and norms without decay, as people train."""
        return [{"params": [each for each in model.parameters() if each.dim() == 2]},
                {"params": [each for each in model.parameters() if each.dim() != 2], "weight_decay": 0.0}]

    def same_steps(self, one, other, inputs, labels):
        torch.testing.assert_close(self.steps(*one, inputs, labels), self.steps(*other, inputs, labels), rtol=1e-9, atol=0)

    def test_optimizers_that_do_not_fit(self):
        model, inputs, _ = self.bert()
        built = self.merged(model, inputs)[0].build()
        with self.assertRaisesRegex(nestor.UserError, r"steps a parameter of the shape \(2, 3\) that is none of the source's"):
            schedule.moved_optimizer(torch.optim.SGD([nn.Parameter(torch.randn(2, 3))]), model, built)
        with self.assertRaisesRegex(nestor.UserError, "the target has not all of the 38 parameters"):
            schedule.moved_optimizer(torch.optim.SGD(model.parameters()), model, FeedForward())
        apart = torch.optim.SGD([{"params": [each]} for each in model.parameters()])
        with self.assertRaisesRegex(nestor.UserError, r"layer.0.attention.self.query.weight, .* are in several groups of"):
            schedule.moved_optimizer(apart, model, built)

    def steps(self, model, optimizer, inputs, labels, count=3):
        found = []
        for _ in range(count):
            loss = F.cross_entropy(model(*inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    def test_merged_weights_are_views_that_the_original_shares(self):
        model, inputs, labels = self.bert()
        before = model.encoder.layer[0].attention.self.key.weight.clone()
        built = self.merged(model, inputs)[0].build()
        attention = built.encoder.layer[0].attention.self
        self.assertEqual(attention.query_key_value.weight.shape, (48, 16))
        self.losses(built, inputs, labels, 1)
        key = model.encoder.layer[0].attention.self.key.weight
        self.assertFalse(torch.equal(before, key))
        self.assertTrue(torch.equal(attention.key.weight, key))
        self.assertTrue(torch.equal(attention.query_key_value.weight[16:32], key))
        self.assertEqual(sum(each.numel() for each in built.parameters()), sum(each.numel() for each in model.parameters()))

    def test_state_dicts_go_both_ways(self):
        model, inputs, _ = self.bert()
        built = self.merged(model, inputs)[0].build(copy=True)
        other = Bert()
        self.assertEqual(list(built.state_dict()), list(other.state_dict()))
        self.assertEqual([each.shape for each in built.state_dict().values()],
                         [each.shape for each in other.state_dict().values()])
        built.load_state_dict(other.state_dict())
        torch.testing.assert_close(built.eval()(*inputs), other.eval()(*inputs))
        again = Bert()
        again.load_state_dict(built.state_dict())
        torch.testing.assert_close(again.eval()(*inputs), other(*inputs))
        missing = other.state_dict()
        del missing["encoder.layer.0.attention.self.key.bias"]
        with self.assertRaisesRegex(RuntimeError, r"Missing key\(s\).*layer.0.attention.self.key.bias"):
            built.load_state_dict(missing)
        wrong = {**other.state_dict(), "encoder.layer.0.attention.self.key.weight": torch.zeros(3, 3)}
        with self.assertRaisesRegex(RuntimeError, "size mismatch for encoder.layer.0.attention.self.key.weight"):
            built.load_state_dict(wrong)
        with self.assertRaisesRegex(RuntimeError, r"Unexpected key\(s\).*self.key.more"):
            built.load_state_dict({**other.state_dict(), "encoder.layer.0.attention.self.key.more": torch.zeros(1)})

    def test_weights_loaded_between_merge_and_build_count(self):
        model, inputs, _ = self.bert()
        made, _ = self.merged(model, inputs)
        model.load_state_dict(Bert().state_dict())
        made.verify(inputs, backward=False)
        torch.testing.assert_close(made.build().eval()(*inputs), model.eval()(*inputs))

    def test_checkpointed_layers_have_equal_gradients(self):
        model, inputs, labels = self.bert()
        made = schedule(model)
        made["encoder.layer.*"].checkpoint()
        self.assertNotIn("without dropout", made.verify(inputs))
        built, saved = made.build().train(), []
        with torch.autograd.graph.saved_tensors_hooks(lambda each: saved.append(each.numel()) or each, lambda each: each):
            built(*inputs)
        kept, saved = sum(saved), []
        with torch.autograd.graph.saved_tensors_hooks(lambda each: saved.append(each.numel()) or each, lambda each: each):
            model.train()(*inputs)
        self.assertLess(kept, sum(saved) / 2)
        wanted = copy.deepcopy(model).double()
        torch.testing.assert_close(self.losses(built.double(), inputs, labels, 3), self.losses(wanted, inputs, labels, 3))


class ValueTest(ScheduleTest):

    def test_the_model_stays_as_it_is(self):
        model, inputs, _ = self.bert()
        text, result = repr(model), model.eval()(*inputs)
        made, _ = self.fused(model, inputs, eager)
        made["encoder.layer.1"].checkpoint()
        self.assertEqual(repr(model), text)
        self.assertTrue(torch.equal(model(*inputs), result))
        self.assertFalse(model.training)

    def test_undo_and_fork(self):
        model, inputs, _ = self.bert()
        made, attention = self.merged(model, inputs)
        self.assertEqual([step.what for step in made.steps], ["trace()", "merge(query, key, value)", "replace(core)"])
        other = made.fork()
        made.undo()
        self.assertEqual(len(attention.find(core)), 2)
        self.assertEqual(len(other["encoder.layer.*.attention.self"].find(core)), 0)
        made.undo(2)
        self.assertEqual(len(made.steps), 0)
        torch.testing.assert_close(made.build().eval()(*inputs), model.eval()(*inputs))
        with self.assertRaisesRegex(nestor.UserError, "there are 0 steps to take back, not 1"):
            made.undo()
        other.verify(inputs)

    def test_a_step_that_fails_changes_nothing(self):
        model, inputs, _ = self.bert()
        made, attention = self.merged(model, inputs)
        with self.assertRaises(nestor.UserError):
            attention.merge(["query", "dropout"])
        self.assertEqual(len(made.steps), 3)
        made.verify(inputs)

    def test_built_models_are_copied_and_pickled(self):
        model, inputs, _ = self.bert(layers=1)
        made, _ = self.fused(model, inputs, eager)
        made["encoder.layer.*.attention"].checkpoint()
        built = made.build(copy=True).eval()
        wanted = built(*inputs)
        other = copy.deepcopy(built)
        torch.testing.assert_close(other(*inputs), wanted)
        with torch.no_grad():
            other.encoder.layer[0].attention.self.query_key_value.weight.zero_()
        self.assertFalse(torch.equal(other(*inputs), wanted))
        torch.testing.assert_close(built(*inputs), wanted)
        read = pickle.loads(pickle.dumps(built))
        torch.testing.assert_close(read(*inputs), wanted)
        file = io.BytesIO()
        torch.save(built, file)
        file.seek(0)
        read = torch.load(file, weights_only=False)
        torch.testing.assert_close(read(*inputs), wanted)
        self.assertTrue(
            torch.equal(read.encoder.layer[0].attention.self.key.weight,
                        read.encoder.layer[0].attention.self.query_key_value.weight[16:32]))
        self.assertIsInstance(read.encoder.layer[0].attention.self, SelfAttention)

    def test_hooks_and_attributes_of_traced_modules_stay(self):
        model = FeedForward()
        model.kind, seen = "feed forward", []
        model.register_forward_hook(lambda module, inputs, result: seen.append(result.shape))
        made = schedule(model)
        made.trace()
        built = made.build()
        built(torch.randn(2, 8))
        self.assertEqual((built.kind, seen), ("feed forward", [(2, 8)]))
        self.assertIsInstance(built, FeedForward)

    def test_the_whole_model_is_compiled(self):
        model, inputs, _ = self.bert()
        made, _ = self.merged(model, inputs)
        built = made.build(compile="eager", dynamic=False)
        torch.testing.assert_close(built.eval()(*inputs), model.eval()(*inputs))
        with self.assertRaisesRegex(nestor.UserError, "mode: options of torch.compile"):
            made.build(mode="reduce-overhead")
        with self.assertRaisesRegex(nestor.UserError, "torch.compile knows no backend 'tensorrt9'"):
            made.build(compile="tensorrt9")

    def test_what_is_printed(self):
        model, inputs, _ = self.bert()
        made, attention = self.merged(model, inputs)
        self.assertEqual(
            repr(made).splitlines(),
            ["the model: Bert (7,475 parameters)", "1. trace()", "2. merge(query, key, value)", "3. replace(core)"])
        self.assertRegex(repr(attention),
                         r"^encoder.layer.0.attention.self: SelfAttention \(816 parameters, traced, \d+ nodes\)\n")
        made.model.eval()
        text = made.explain(inputs, "encoder.layer.0.attention.self")
        self.assertIn("    encoder.layer.0.attention.self: query, key, value -> query_key_value (16 -> 16 + 16 + 16)\n", text)
        self.assertRegex(text, r"encoder.layer.0.attention.self:\n\d regions?, \d distinct nests?")
        self.assertRegex(text, r"fuses   .*scaled_dot_product_attention")

    def test_regions_of_a_part_are_those_of_nestor(self):
        model, inputs, _ = self.bert(layers=1)
        text = schedule(model).explain(inputs, "encoder.layer.0.output")
        self.assertIn("0 steps", text)
        self.assertRegex(text, r"from    schedule_models.py:\d+  return self.norm\(")


if __name__ == "__main__":
    unittest.main()
