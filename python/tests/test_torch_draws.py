"""Random numbers inside regions: those of Inductor to the bit, drawn once, new in every step, and the same wherever a region is
computed."""

import unittest
from unittest import mock

from support import numpy

import nestor
from nestor.nests.evaluate import evaluate

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    import torch.nn.functional as F
    from compiling import CompileTest
    from importer_checks import trace

    from nestor.torch.compiler import draws
    from nestor.torch.compiler.race import race
    from nestor.torch.compiler.region_op import Region, region_of
    from nestor.torch.importer.regions import partition
    from nestor.torch.kernels import opened
else:
    CompileTest = unittest.TestCase

WIDTH = 64
SEEDS = 0, 5, 7**22, 2**63 - 1, -1, 12345678901 - 2**63


def philox(counter, key):
    """Philox 4x32-10 as its authors define it."""
    for _ in range(10):
        first, second = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [(second >> 32) ^ counter[1] ^ key[0], second & 0xFFFFFFFF, (first >> 32) ^ counter[3] ^ key[1], first & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def of_triton(seed, count):
    """tl.rand of a seed and 0 ... count - 1."""
    words = [philox([place, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF])[0] for place in range(count)]
    signed = numpy.array(words, numpy.uint32).view(numpy.int32)
    return numpy.where(signed < 0, -signed - 1, signed).astype(numpy.float32) * numpy.float32(4.6566127342e-10)


def drawn(x, seed):
    """Numbers, those above 0.3, and a sum of them: enough for a region."""
    found = torch.ops.prims.inductor_random.default(x.shape, seed, "rand")
    return found, found > 0.3, (x * found).sum(-1)


def region_on(device, *shape):
    """The Region of `drawn`, for a device that need not be there."""
    graph = trace(drawn, (torch.randn(*shape), torch.tensor(1))).graph
    if device != "cpu":
        for node in graph.nodes:
            if "val" in node.meta:
                node.meta["val"] = torch.empty_like(node.meta["val"], device="meta")
    region, = partition(graph).regions
    return region


def masked_norm(x, weight, seed):
    mask = torch.ops.prims.inductor_random.default(x.shape, seed, "rand") > 0.25
    return torch.layer_norm(x @ weight * mask + x, x.shape[-1:]), mask


def of_attention():
    """The region of attention with dropout."""
    def attention(x, seed):
        weights = (x @ x.mT).softmax(-1)
        return (weights * (torch.ops.prims.inductor_random.default(weights.shape, seed, "rand") > 0.25)) @ x

    region, = partition(trace(attention, (torch.randn(2, 6, 4), torch.tensor(1))).graph).regions
    return region


def words_of(seed):
    return torch.tensor([seed]).view(torch.int32)


def attend(query, key, value):
    return F.dropout((query @ key.mT).softmax(-1), 0.25) @ value


def block(x, residual, weight, bias):
    return F.layer_norm(F.dropout(x, 0.1) + residual, (WIDTH,), weight, bias)


def gradients(function, steps=1):
    """Losses and gradients after some steps of training that begin with one seed."""
    source = torch.Generator().manual_seed(1)
    inputs = [torch.randn(*shape, generator=source).requires_grad_() for shape in ((2, 24, WIDTH), (2, 24, WIDTH), (WIDTH,), (WIDTH,))]
    torch.manual_seed(5)
    losses = []
    for _ in range(steps):
        losses.append((function(*inputs) * torch.linspace(-1, 1, WIDTH)).square().sum())
        losses[-1].backward()
    return [loss.detach() for loss in losses], [each.grad for each in inputs]


def draws_in(nest):
    """How many statements of a nest draw."""
    return sum("mul_high_unsigned" in str(statement.value) for statement in nest.statements)


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class NumbersTest(unittest.TestCase):
    def test_words_are_those_of_the_authors(self):
        """The known answers of Random123."""
        pi = [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]
        for counter, key, words in (([0] * 4, [0] * 2, [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
                                    ([0xffffffff] * 4, [0xffffffff] * 2, [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
                                    (*pi, [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1])):
            self.assertEqual(philox(counter, key), words)
        places = torch.tensor([0, 1, 4095, 2**31 - 1, 2**32 - 1])
        for seed in SEEDS:
            key = [torch.tensor(seed & 0xFFFFFFFF), torch.tensor(seed >> 32 & 0xFFFFFFFF)]
            wanted = [philox([int(place), 0, 0, 0], list(map(int, key)))[0] for place in places]
            self.assertEqual(draws.philox(places, key).tolist(), wanted)

    def test_nests_draw_tritons_numbers_on_a_gpu(self):
        nest = region_on("cuda", 3, 4, 10).nest
        for seed in SEEDS:
            found = evaluate(nest, {"x0": words_of(seed).numpy(), "x1": numpy.ones((3, 4, 10))})
            wanted = of_triton(seed, 120).reshape(3, 4, 10)
            numpy.testing.assert_allclose(found["y0"], wanted, rtol=2e-7)
            numpy.testing.assert_array_equal(found["y1"], wanted > numpy.float32(0.3))

    def test_nests_draw_the_numbers_of_the_reference_on_a_cpu(self):
        nest = region_on("cpu", 3, 4, 10).nest
        for seed in SEEDS:
            found = evaluate(nest, {"x0": words_of(seed).numpy(), "x1": numpy.ones((3, 4, 10))})
            wanted = draws.uniform((3, 4, 10), torch.tensor(seed))
            numpy.testing.assert_allclose(found["y0"], wanted.numpy(), rtol=2e-7)
            numpy.testing.assert_array_equal(found["y1"], (wanted > 0.3).numpy())

    def test_numbers_are_drawn_once_where_their_reader_is(self):
        """Also where what PyTorch computes, and has to wait for, is read beside them; and though the mask is a result."""
        graph = trace(masked_norm, (torch.randn(12, 8), torch.randn(8, 8), torch.tensor(1))).graph
        product, = (node for node in graph.nodes if "aten.mm" in str(node.target))
        found = partition(graph, excluded={product: "PyTorch's"})
        region, = found.regions
        self.assertEqual(list(found.left), [product])
        self.assertEqual([str(port.node.target) for port in region.outputs][0], "aten.gt.Scalar")
        self.assertEqual(draws_in(region.nest), 1)
        self.assertEqual([draws_in(region_on("cpu", 3, 4, 10).nest), draws_in(of_attention().nest)], [1, 1])

    def test_parts_of_the_reference_are_its_whole(self):
        whole = draws.uniform((5, 7, 11), torch.tensor(7**22))
        with mock.patch.object(draws, "_BLOCK", 100):
            self.assertTrue(torch.equal(draws.uniform((5, 7, 11), torch.tensor(7**22)), whole))
        self.assertEqual(draws.uniform((2, 3), torch.tensor(1, device="meta")).shape, (2, 3))
        with self.assertRaisesRegex(nestor.UserError, '"randn" are not drawn'):
            draws.uniform((2,), torch.tensor(1), "randn")

    def test_what_regions_do_not_draw(self):
        def normal(x, seed):
            return (x * torch.ops.prims.inductor_random.default(x.shape, seed, "randn")).sum(-1)

        def alone(x, seed):  # of x alone there is a region
            found = torch.ops.prims.inductor_random.default(x.shape, seed, "rand")
            return (found > 0.1).sort(-1).values, x.softmax(-1)

        inputs = torch.randn(4, 8), torch.tensor(3)
        for function, why in ((normal, "that are not uniform"), (alone, "pointwise ops alone")):
            left = {str(node.target): reason for node, reason in partition(trace(function, inputs).graph).left.items()}
            self.assertIn(why, left["prims.inductor_random.default"])


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class DropoutTest(CompileTest):
    def drawing(self):
        """The taken regions that draw."""
        return [region for report in self.reports for region in report.taken if "inductor_random" in region.ops]

    def trained(self, steps=1):
        """gradients() with the backend. Sums over rows are compared here, not with float64: two trials may round more than that
        grants."""
        return gradients(self.compiled(block, verify="off"), steps)

    def test_kernels_draw_tritons_numbers(self):
        nest = region_on("cuda", 3, 4, 10).nest
        nestor.tune(nest, trials=1, target="host", db=self.db, progress=False)
        kernel = opened(self.db).query(nest.op, nest.variant, {}, "host")
        for seed in SEEDS:
            results = torch.empty(3, 4, 10), torch.empty(3, 4, 10, dtype=torch.bool), torch.empty(3, 4)
            kernel(words_of(seed), torch.ones(3, 4, 10), *results)
            wanted = torch.from_numpy(of_triton(seed, 120).reshape(3, 4, 10))
            self.assertTrue(torch.equal(results[0], wanted))
            self.assertTrue(torch.equal(results[1], wanted > 0.3))

    def test_kernels_and_inductor_draw_the_same_on_a_cpu(self):
        def numbers(x):
            found = torch.rand_like(x)
            return found, found > 0.3, (x * torch.rand_like(x)).sum(-1), (x * found).sum(-1)

        inputs = [torch.randn(3, 5, length) for length in (40, 17)]
        for dynamic in (False, True):
            torch._dynamo.reset()
            found = []
            for function in (self.compiled(numbers, dynamic), torch.compile(numbers, dynamic=dynamic)):
                torch.manual_seed(7)
                found.append([each for x in inputs for each in function(x)])
            for number, (own, theirs) in enumerate(zip(*found)):
                with self.subTest(dynamic=dynamic, result=number):  # the numbers, those above 0.3, and two sums
                    self.assertClose(own, theirs, 1e-5 if number % 4 > 1 else 0)
        self.assertTrue(self.drawing())

    def test_numbers_of_16_bits_are_compared_before_they_are_rounded(self):
        """As Inductor does, and so where PyTorch computes the region."""
        def numbers(x):
            found = torch.rand_like(x)  # lies as x does: drawn as [37, 500], and turned
            return found > 0.1, (x * (found > 0.1)).float().sum(-1)

        found, x = [], torch.randn(37, 500, dtype=torch.bfloat16).T
        for function in (self.compiled(numbers), torch.compile(numbers)):
            torch._dynamo.reset()
            torch.manual_seed(8)
            found.append(function(x))
        self.assertClose(*found)
        region = region_of(self.drawing()[0].key)
        seed = torch.tensor(7**22)
        given = [seed if argument.words else x.reshape(argument.shape) for argument in region.description.inputs]
        masks = [each for each in region.eager(given, ()) if each.dtype == torch.bool]
        drawn = draws.uniform((37, 500), seed).T
        self.assertTrue(torch.equal(masks[0], drawn > 0.1))
        self.assertFalse(torch.equal(masks[0], drawn.bfloat16() > 0.1))

    def test_training_is_as_with_inductor_and_every_step_draws_anew(self):
        own = self.trained(2)
        region, = self.drawing()
        self.assertIn("var_mean", region.ops)
        torch._dynamo.reset()
        theirs = gradients(torch.compile(block), 2)
        self.assertClose(own, theirs, 1e-4)
        self.assertNotEqual(float(own[0][0]), float(own[0][1]))

    def test_a_mask_is_drawn_once_and_rows_of_a_batch_are_one_index(self):
        self.trained()
        told = region_of(self.drawing()[0].key).description
        self.assertEqual(sorted(told.nest_values(()).values()), [48, WIDTH])
        self.assertEqual([argument.dtype for argument in told.outputs][0], "bool")
        self.assertEqual([argument.shape for argument in told.inputs if argument.words], [()])

    def test_layers_have_one_nest_whatever_their_seeds(self):
        def layers(x, weight):
            for _ in range(2):
                x = block(x @ weight, x, None, None)
            return x

        inputs = torch.randn(2, 24, WIDTH), torch.randn(WIDTH, WIDTH) / 8
        found = []
        for function in (self.compiled(layers), torch.compile(layers)):
            torch._dynamo.reset()
            torch.manual_seed(11)
            found.append(function(*inputs))
        self.assertClose(*found)
        self.assertEqual([len(self.drawing()), len({region.op for region in self.drawing()})], [2, 1])

    def test_attention_with_dropout(self):
        inputs = [torch.randn(2, 3, 24, 16) for _ in range(3)]
        found = []
        for function in (self.compiled(attend), torch.compile(attend)):
            torch._dynamo.reset()
            torch.manual_seed(9)
            found += function(*inputs), function(*inputs)
        self.assertClose(found[0], found[2])
        self.assertClose(found[1], found[3])
        self.assertGreater(float((found[0] - found[1]).abs().max()), 0.01)
        self.assertEqual(len(self.drawing()), 1)

    def test_pytorch_computes_a_region_with_the_same_numbers(self):
        expected = self.trained()
        torch._dynamo.reset()
        with mock.patch.object(Region, "launch", lambda *_: None):
            self.assertClose(self.trained(), expected, 1e-4)

    def test_a_region_that_draws_is_raced(self):
        self.trained()
        region = region_of(self.drawing()[0].key)
        raced = race(region, (), torch.device("cpu"))
        self.assertEqual([key for key, microseconds in raced.items() if microseconds], ["kernel_us", "inductor_us"])
        compiled = {str(node.target) for node in region.description.module((), torch.device("cpu"), True).graph.nodes}
        self.assertIn("prims.inductor_random.default", compiled)


if __name__ == "__main__":
    unittest.main()
