"""What nestor.torch.schedule refuses, in words: one message a test."""

import unittest

from support import numpy

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    import torch.nn.functional as F
    from schedule_models import Bert, FeedForward, SelfAttention
    from torch import nn

    import nestor.torch
    from nestor.torch import schedule


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class ErrorTest(unittest.TestCase):

    def refused(self, words):
        return self.assertRaisesRegex(nestor.UserError, words)

    def traced(self, model, *inputs):
        made = schedule(model)
        made.trace(inputs or None)
        return made


def model_of(forward, **modules):
    """A module with this forward and these submodules."""
    made = type("Model", (nn.Module, ), {"forward": forward})()
    for name, module in modules.items():
        setattr(made, name, module)
    return made


class FindErrorTest(ErrorTest):

    def test_not_traced(self):
        made = schedule(FeedForward())
        for act in (lambda: made.find(torch.tanh), lambda: made.code(), lambda: made.merge(["up", "down"])):
            with self.refused(r"the model \(FeedForward\) is not traced: call .trace\(\) on it first"):
                act()

    def test_no_match(self):
        made = self.traced(FeedForward())
        for act in (made.fuse, lambda found: made.replace(found, F.relu), made.decompose, made.merge, made.unfuse):
            with self.refused("exp was not found"):
                act(made.find(torch.exp))

    def test_several_matches_where_one_is_wanted(self):
        made = self.traced(FeedForward())
        with self.refused(
                r"Linear was found 2 times where one is wanted: the model: up .*schedule_models.py.*; the model: down"):
            made.find(nn.Linear).one
        with self.refused("2 modules are selected where one is wanted: encoder.layer.0, encoder.layer.1"):
            schedule(Bert())["encoder.layer.*"].module

    def test_what_is_looked_for(self):
        made = self.traced(FeedForward())
        with self.refused("find takes a function of PyTorch, a module's class, a regular expression, or a pattern"):
            made.find(3)
        with self.refused("'.' is no regular expression"):
            made.find("(")

    def test_patterns_with_free_variables(self):
        made, weight, linear = self.traced(FeedForward()), torch.randn(3), nn.Linear(3, 3)
        with self.refused("the pattern <lambda> has free variables, 1 tensors from outside: make them its arguments"):
            made.find(lambda x: x * weight)
        with self.refused(
                "the pattern <lambda> calls a module or reads a parameter of its own: make tensors its arguments, and match"):
            made.find(lambda x: torch.tanh(linear(x)))

    def test_patterns_that_cannot_be_traced_or_say_nothing(self):
        made = self.traced(FeedForward())
        with self.refused(
                "the pattern <lambda> cannot be traced: symbolically traced variables cannot be used as inputs to control"):
            made.find(lambda x: x if x.sum() > 0 else -x)
        with self.refused("the pattern <lambda> does not use its argument y"):
            made.find(lambda x, y: torch.tanh(x))
        with self.refused("the pattern <lambda> has to return what it computes"):
            made.find(lambda x: x)
        with self.refused("call_module is for patterns"):
            schedule.call_module(nn.Linear, 3)
        with self.refused("call_module takes a class or a regular expression over names, not a int"):
            schedule.call_module(3)

    def test_found_in_an_earlier_graph(self):
        made = self.traced(FeedForward())
        found = made.find(torch.tanh)
        made.replace(found, F.relu)
        with self.refused(r"the model has changed since tanh were found \(tanh is gone\): find them again"):
            made.replace(found, F.relu)


class RewriteErrorTest(ErrorTest):

    def test_replacements(self):
        made = self.traced(FeedForward())
        found = made.find(torch.tanh)
        with self.refused(r"<lambda> cannot take the 1 input of the match \(up\)"):
            made.replace(found, lambda x, y: x + y)
        with self.refused("this step takes what find.. found, one of its matches or a list of them, not 'tanh'"):
            made.replace("tanh", F.relu)
        made.fork().replace([found.one], F.relu)
        with self.refused("a match is replaced by a function or a module, not by 3"):
            made.replace(found, 3)
        with self.refused("replace takes either by=, a function or a module, or make="):
            made.replace(found)
        with self.refused("the replacement <lambda> has free variables, 1 tensors from outside"):
            made.replace(found, lambda x: x + torch.ones(3))
        with self.refused("the model as a whole is not replaced"):
            made.replace(by=nn.Identity())
        with self.refused("a module is replaced by a module, not by 3"):
            schedule(FeedForward())["up"].replace(make=lambda old: 3)

    def test_writes_inside_and_between(self):

        def inside(self, x):
            y = torch.tanh(x)
            y += 1
            return torch.exp(y)

        def between(self, x):
            y = torch.tanh(x)
            x.mul_(2)
            return torch.exp(y) + x

        made = self.traced(model_of(inside))
        with self.refused(r"iadd inside writes into a tensor \(iadd in the model\): use the op that returns its result"):
            made.fuse(made.find(lambda x: torch.exp(_add(torch.tanh(x)))))
        made = self.traced(model_of(between))
        with self.refused("mul_ between its nodes writes into a tensor"):
            made.fuse(made.find(lambda x: torch.exp(torch.tanh(x))))
        made = self.traced(nn.Sequential(nn.ReLU(inplace=True)))
        with self.refused("_0 inside writes into a tensor"):
            made.replace(made.find(nn.ReLU), F.gelu)

    def test_not_convex(self):
        made = self.traced(model_of(lambda self, x: torch.exp(torch.sigmoid(torch.tanh(x))) * torch.tanh(x)))
        nodes = made.find("tanh|exp")
        graph = schedule.schedules.generated_of(made.module).graph
        match = schedule.Match("", graph, [node for node in graph.nodes if node.name in ("tanh", "exp")], [], [])
        self.assertEqual(len(nodes), 3)
        with self.refused("tanh, exp in the model are not convex: sigmoid lies between them, and is not one of them"):
            made.fuse(match)

    def test_hooks(self):
        model = FeedForward()
        model.up.register_forward_hook(lambda *_: None)
        made = self.traced(model)
        words = r"up \(Linear\) has a forward hook, which would no longer run; remove it first"
        for act in (lambda: made.replace(made.find("up"), nn.Linear(8, 16)), lambda: made.decompose(made.find("up")),
                    lambda: made.merge(["up", "down"]), lambda: schedule(model)["up"].replace(by=nn.Linear(8, 16))):
            with self.refused(words):
                act()

    def test_a_forward_on_the_object(self):
        model = FeedForward()
        model.forward = lambda x: x
        with self.refused(r"the model \(FeedForward\) has a forward of its own, set on the object"):
            schedule(model).trace()

    def test_modules_shared_at_two_places(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        model[2] = model[0]
        made = schedule(model)
        with self.refused(r"0 and 2 are one module \(shared\): select all of them, or none; 2 is not selected"):
            made["0"].replace(by=nn.Identity())
        made["0|2"].replace(by=nn.Linear(4, 4))
        built = made.build()
        self.assertIs(built[0], built[2])
        made.undo()
        made["0"].trace()
        self.assertIn("0: 1 nodes (also 2: one module)", made.explain())

    def test_definitions(self):
        made = self.traced(model_of(lambda self, x: self.norm(torch.tanh(x)), norm=nn.BatchNorm1d(4)))
        with self.refused("decompose has no definition of the module norm .BatchNorm1d.; it has those of Linear, LayerNorm"):
            made.decompose(made.find(nn.BatchNorm1d))
        with self.refused("decompose has no definition of 'tanh'; it has those of linear, layer_norm"):
            made.decompose(made.find(torch.tanh))
        with self.refused("decompose takes single ops, and "):
            made.decompose(made.find(lambda x: schedule.call_module("norm", torch.tanh(x))))
        made = self.traced(model_of(lambda self, x: F.scaled_dot_product_attention(x, x, x, is_causal=True)))
        with self.refused("its definition has neither is_causal nor enable_gqa"):
            made.decompose(made.find(F.scaled_dot_product_attention))
        with self.refused(r"the model \(FeedForward\) is no single op; trace it and decompose"):
            schedule(FeedForward()).decompose()

    def test_compilers_and_regions(self):
        made = self.traced(FeedForward())
        with self.refused("torch.compile knows no backend 'nvfuser'; it knows .*inductor"):
            made.fuse(made.find(torch.tanh), "nvfuser")
        with self.refused("up in the model is no fused module"):
            made.unfuse(made.find("up"))
        with self.refused("use_reentrant"):
            made.checkpoint(use_reentrant=True)

    def test_models_that_are_none(self):
        with self.refused("schedule takes a torch.nn.Module, not a function"):
            schedule(lambda x: x)
        model = FeedForward()
        model.generator = (each for each in range(3))
        with self.refused(r"schedule copies a model's modules \(not its tensors\), and FeedForward cannot be copied: "):
            schedule(model)


def _add(x):
    x += 1
    return x


class MergeErrorTest(ErrorTest):

    def attention(self):
        return SelfAttention(16, 2, 0.0)

    def refuse(self, model, words, names=("query", "key", "value")):
        made = self.traced(model, torch.randn(2, 3, 16), None)
        with self.refused(words):
            made.merge(list(names))

    def test_names(self):
        self.refuse(self.attention(), "the model calls no module 'quarry'; it calls query, key, value, dropout",
                    ["query", "quarry"])
        self.refuse(self.attention(), "merge takes two or more linear modules, not query", ["query"])
        self.refuse(self.attention(), "merge takes nn.Linear modules, and dropout is a Dropout", ["query", "dropout"])
        with self.refused("merge takes a list of names of modules, or what find.. found"):
            self.traced(FeedForward()).merge("up")

    def test_other_values_read(self):
        made = self.traced(FeedForward(8, 8))
        with self.refused("merge takes modules that read one value, and up reads x, down reads tanh"):
            made.merge(["up", "down"])

    def test_unlike_modules(self):
        model = self.attention()
        model.key = nn.Linear(16, 16, bias=False)
        self.refuse(model, "they differ in a bias: query True, key False, value True")
        model.key = nn.Linear(16, 16).requires_grad_(False)
        self.refuse(model, "they differ in requires_grad: query ")
        model.key = type("Own", (nn.Linear, ), {})(16, 16)
        self.refuse(model, "merge takes nn.Linear modules, and key is a Own")

    def test_tied_and_shared(self):
        model = self.attention()
        model.key.weight = model.query.weight
        self.refuse(model, r"query.weight and key.weight are one parameter \(tied weights\), which merge would take apart")
        model = self.attention()
        model.other = model.key
        self.refuse(model, r"key and other are one module \(shared\), which merge would take apart")

    def test_called_twice(self):
        model = model_of(lambda self, x: self.a(x) + self.a(x) + self.b(x), a=nn.Linear(16, 4), b=nn.Linear(16, 4))
        made = self.traced(model)
        with self.refused("a is called twice, and merge takes modules that are called once"):
            made.merge(["a", "b"])

    def test_parametrizations_and_hooks_on_gradients(self):
        model = self.attention()
        nn.utils.parametrizations.weight_norm(model.key)
        self.refuse(model, "key is a ParametrizedLinear|key has parametrizations")
        model = self.attention()
        model.key.weight.register_hook(lambda gradient: gradient)
        self.refuse(model, "key.weight has hooks on its gradient, which would no longer run")

    def test_tensor_parallel_weights(self):

        class Sharded(nn.Parameter):
            placements = ("Shard(0)", )

        model = self.attention()
        model.key.weight = Sharded(torch.randn(16, 16))
        made = schedule(model)
        made.trace((torch.randn(2, 3, 16), ))
        weight = made.module.key.weight
        weight.placements = ("Shard(0)", )
        with self.refused(r"key.weight is a .* \(distributed, quantized or lazy\): merge before the model is made parallel"):
            made.merge(["query", "key", "value"])

    def test_a_model_that_moved_since(self):
        model = self.attention()
        made = self.traced(model, torch.randn(2, 3, 16), None)
        made.merge(["query", "key", "value"])
        model.double()
        with self.refused("the model was torch.float32 on cpu when its modules were merged, and is torch.float64 on cpu now"):
            made.build()


if __name__ == "__main__":
    unittest.main()
