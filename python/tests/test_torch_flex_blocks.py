"""flex_attention with block masks whose blocks are not those of their mask_mod: as PyTorch's compiled FlexAttention has it."""

import time
import unittest
import warnings
from unittest import mock

from support import folder, needs_program
from test_torch_flex import FlexTest, call_of, evaluated, expected, made, torch

import nestor

if torch:
    import torch._dynamo.testing
    from flex_variants import causal, documents, softcap, window
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask
    from torch.nn.attention.flex_attention import flex_attention as theirs

    import nestor.torch as nt
    from nestor.torch import flex, flex_listed

SIZE = 16  # of blocks


def listed(rows, full=None, mask_mod=None, sizes=SIZE, lengths=None, columns=None):
    """A BlockMask of these numbers of blocks in each row, partial and full ones."""
    columns = columns or len(rows)

    def parts(rows):
        numbers = [[*row, *(each for each in range(columns) if each not in row)][:columns] for row in rows]
        return torch.tensor([[[len(row) for row in rows]]], dtype=torch.int32), torch.tensor([[numbers]], dtype=torch.int32)

    return BlockMask.from_kv_blocks(*parts(rows), *(parts(full) if full else (None, None)), BLOCK_SIZE=sizes, mask_mod=mask_mod,
                                    seq_lengths=lengths, compute_q_blocks=columns == len(rows))


def shown(block_mask):
    """A mask_mod that reads what PyTorch's compiled FlexAttention shows, block by block."""
    (queries, keys), (rows, columns) = block_mask.seq_lengths, block_mask.BLOCK_SIZE
    counts = block_mask.kv_num_blocks.shape
    seen = torch.zeros((*counts[:2], queries, keys), dtype=torch.bool)
    for numbers, indices, full in ((block_mask.kv_num_blocks, block_mask.kv_indices, False),
                                   (block_mask.full_kv_num_blocks, block_mask.full_kv_indices, True)):
        for b, h, row in torch.cartesian_prod(*map(torch.arange, counts)).tolist() if numbers is not None else ():
            for k in range(int(numbers[b, h, row])):
                column = int(indices[b, h, row, k])
                for i in range(row * rows, min(row * rows + rows, queries)):
                    for j in range(column * columns, min(column * columns + columns, keys)):
                        seen[b, h, i, j] = full or bool(block_mask.mask_mod(*map(torch.tensor, (b, h, i, j))))

    def mask(b, h, i, j):
        return seen[b if counts[0] > 1 else 0 * b, h if counts[1] > 1 else 0 * h, i, j]

    return mask


def masks():
    """{name: a BlockMask for lengths of 40} whose blocks and mask_mod differ."""
    three = ((0, 1), (1,), (0, 2))
    edited = create_block_mask(causal, None, None, 40, 40, device="cpu", BLOCK_SIZE=SIZE)
    edited.kv_num_blocks[0, 0, 2] = 2
    return {"blocks alone": listed(three, lengths=(40, 40)),
            "blocks and causal": listed(((0,), (1,), (0, 2)), mask_mod=causal, lengths=(40, 40)),
            "full blocks that causal hides": listed(((0,), (1,), (2,)), ((1,), (0,), (0, 1)), causal, lengths=(40, 40)),
            "partial blocks alone, some hidden by both": listed(three, ((), (), (1,)), window(9), lengths=(40, 40)),
            "a row that sees nothing": listed(((0,), (), (2,)), mask_mod=causal, lengths=(40, 40)),
            "blocks of other sizes": listed(((0,), (0,), (1,), (0,), (1,)), mask_mod=causal, sizes=(8, 32), lengths=(40, 40),
                                            columns=2),
            "edited in place": edited,
            "one block": listed(((0,),), ((),), window(5), sizes=64, lengths=(40, 40)),
            "no blocks": listed(((),), mask_mod=causal, sizes=64, lengths=(40, 40))}


class BlocksTest(FlexTest):
    def setUp(self):
        super().setUp()
        nt.configure(on_missing="silent")
        self.addCleanup(nt.configure, on_missing="warn")

    def test_pytorch_computes_what_blocks_say(self):
        for name, block_mask in masks().items():
            with self.subTest(name):
                tensors = made()
                found = nt.flex_attention(*tensors, None, block_mask).double()
                torch.testing.assert_close(found, expected(*tensors, None, shown(block_mask))[0], atol=2e-5, rtol=2e-5)

    def test_nests_say_what_blocks_say(self):
        for name, block_mask in masks().items():
            with self.subTest(name):
                tensors = made(width=4)
                torch.testing.assert_close(evaluated(tensors, softcap(20.0), block_mask),
                                           expected(*tensors, softcap(20.0), shown(block_mask)), atol=2e-6, rtol=2e-6)

    def test_compiled_pytorch_agrees(self):
        tensors, compiled = made(batch=1, heads=1), torch.compile(theirs)
        block_mask = masks()["full blocks that causal hides"]
        found = nt.flex_attention(*tensors, None, block_mask)
        torch.testing.assert_close(compiled(*tensors, block_mask=block_mask), found, atol=2e-5, rtol=2e-5)

    def test_blocks_that_mask_mod_gives_leave_the_nest_as_it_is(self):
        tensors, ids = made(), torch.arange(40) // 7
        plain = call_of(tensors, None, causal).flex.nest.op
        for size in (16, 8, (8, 16), 32, 128):
            block_mask = create_block_mask(causal, None, None, 40, 40, device="cpu", BLOCK_SIZE=size)
            self.assertEqual(call_of(tensors, None, block_mask).flex.nest.op, plain)
        for block_mask in (listed(((0, 1, 2),) * 3, mask_mod=causal, lengths=(40, 40)),  # all of them partial
                           create_block_mask(causal, 2, 4, 40, 40, device="cpu"),
                           create_block_mask(causal, None, None, 80, 80, device="cpu"),
                           listed(((0,),), mask_mod=causal, sizes=1 << 30, lengths=(1, 1))):
            self.assertEqual(call_of(tensors, None, block_mask).flex.nest.op, plain)
        block_mask = create_block_mask(documents(ids), None, None, 40, 40, device="cpu", BLOCK_SIZE=8)
        self.assertEqual(call_of(tensors, None, block_mask).flex.nest.op, call_of(tensors, None, documents(ids)).flex.nest.op)

    def test_changes_are_seen(self):
        tensors, ids = made(), torch.arange(40) // 7
        block_mask = create_block_mask(documents(ids), None, None, 40, 40, device="cpu", BLOCK_SIZE=8)

        def is_plain():
            return flex_listed.shown_by(block_mask, *tensors[:2])[0] is block_mask.mask_mod

        self.assertTrue(is_plain())
        ids[20] = 0  # what mask_mod reads
        self.assertFalse(is_plain())
        ids[20] = 2
        self.assertTrue(is_plain())
        block_mask.full_kv_num_blocks.zero_()
        block_mask.kv_num_blocks[0, 0, 3] = 0
        self.assertFalse(is_plain())
        block_mask.kv_num_blocks = torch.full_like(block_mask.kv_num_blocks, 5)
        self.assertTrue(is_plain())  # all of them partial
        block_mask.mask_mod = causal
        self.assertTrue(is_plain())

    def test_blocks_are_compared_once(self):
        block_mask = create_block_mask(causal, None, None, 2048, 2048, device="cpu")
        tensors = made(2048, 2048, heads=1, batch=1, width=2)
        flex_listed.shown_by(block_mask, *tensors[:2])
        begin = time.perf_counter()
        for _ in range(100):
            flex_listed.shown_by(block_mask, *tensors[:2])
        self.assertLess(time.perf_counter() - begin, 0.1)

    def test_masks_of_inference_mode_are_compared_at_each_call(self):
        with torch.inference_mode():
            block_mask = create_block_mask(causal, None, None, 40, 40, device="cpu", BLOCK_SIZE=SIZE)
            tensors = made()
            self.assertIs(flex_listed.shown_by(block_mask, *tensors[:2])[0], causal)
            block_mask.kv_num_blocks[0, 0, 1] = 1
            found = nt.flex_attention(*tensors, None, block_mask).double()
        torch.testing.assert_close(found, expected(*tensors, None, shown(block_mask))[0], atol=2e-5, rtol=2e-5)

    def test_nothing_is_compared_while_a_graph_is_captured(self):
        block_mask, tensors = create_block_mask(causal, None, None, 40, 40, device="cpu"), made()
        with mock.patch.object(flex_listed, "is_captured", lambda _: True):
            self.assertIsNot(flex_listed.shown_by(block_mask, *tensors[:2])[0], causal)
        self.assertIs(flex_listed.shown_by(block_mask, *tensors[:2])[0], causal)
        with mock.patch.object(flex_listed, "is_captured", lambda _: True):  # what was compared before stays known
            self.assertIs(flex_listed.shown_by(block_mask, *tensors[:2])[0], causal)

    def test_the_operator_takes_blocks(self):
        *recorded, _ = flex.record(None, causal, torch.device("cpu"))
        name, _ = flex.program_of(*recorded, torch.device("cpu"))
        blocks = flex_listed.parts_of(masks()["full blocks that causal hides"])
        found = torch.library.opcheck(torch.ops.nestor.flex_attention, (*made(), [], name, 0.25, True, "off", 1.0, *blocks),
                                      test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"))
        self.assertEqual(set(found.values()), {"SUCCESS"})

    def test_blocks_of_one_head_hold_for_all(self):
        def by_head(b, h, i, j):
            return i // 8 == j // 8 + h

        tensors = made()
        block_mask = create_block_mask(by_head, None, None, 40, 40, device="cpu", BLOCK_SIZE=8)  # that of head 0
        found = nt.flex_attention(*tensors, None, block_mask).double()  # whose blocks are full
        torch.testing.assert_close(found, expected(*tensors, None, lambda b, h, i, j: i // 8 == j // 8)[0], atol=2e-5, rtol=2e-5)

    def test_what_does_not_fit_is_left_to_pytorch(self):
        whole = create_block_mask(causal, 2, None, 40, 40, device="cpu", BLOCK_SIZE=SIZE)
        cut = whole[:, :, :1]
        cut.mask_mod = causal
        twice = listed(((0, 1), (1,), (0, 2)), mask_mod=causal, lengths=(40, 40))
        twice.kv_indices[0, 0, 0, 1] = 0
        outside = listed(((0, 1), (1,), (0, 2)), mask_mod=causal, lengths=(40, 40))
        outside.kv_indices[0, 0, 0, 1] = 3
        longer = listed(((0,), (1,), (0, 2)), mask_mod=causal)
        batches = create_block_mask(causal, 3, None, 40, 40, device="cpu")
        for block_mask, reason in ((whole[:1], "cannot be compared with the blocks of block_mask: .*sliced"),
                                   (cut, "the tensors of block_mask are not of its lengths"),
                                   (twice, "block_mask lists a block twice"), (outside, "or one that is not there"),
                                   (longer, "the blocks of block_mask are not those of its mask_mod, and it is of other lengths"),
                                   (batches, "block_mask is of other batches or heads")):
            with self.subTest(reason):
                found = nt.flex_attention.explain(*made(), None, block_mask)
                self.assertIsNone(found.nest)
                self.assertRegex(found.reason, reason)
                with self.assertRaisesRegex(nestor.UserError, reason):
                    nt.flex_attention.tune(*made(), None, block_mask)
        for block_mask in (whole[:1], longer):
            with self.assertRaises((RuntimeError, ValueError)):  # PyTorch's own
                nt.flex_attention(*made(), None, block_mask)

    def test_slices_of_batches(self):
        whole = create_block_mask(lambda b, h, i, j: i - j == b * 8, 3, None, 40, 40, device="cpu", BLOCK_SIZE=8)
        part = whole[1:]
        part.mask_mod = lambda b, h, i, j: i - j == (b + 1) * 8
        tensors = made()
        self.assertIs(flex_listed.shown_by(part, *tensors[:2])[0], part.mask_mod)
        part.mask_mod = lambda b, h, i, j: i - j <= b * 8  # which shows more
        found = nt.flex_attention(*tensors, None, part).double()
        torch.testing.assert_close(found, expected(*tensors, None, shown(part))[0], atol=2e-5, rtol=2e-5)


@needs_program
class KernelTest(FlexTest):
    """With a kernel for causal attention, which nothing but that may use."""
    tuned = []

    def setUp(self):
        super().setUp()
        path = f"{folder()}/blocks.db"
        if not self.tuned:
            call = call_of(made(), None, causal, lse=False)
            self.tuned.append(nestor.tune(call.flex.nest, call.sizes, trials=1, target="host", db=path, progress=False))
        nt.configure(nestor.Library(path, system_path=""), "warn")
        self.addCleanup(nt.configure, on_missing="warn")

    def check(self, tensors, block_mask, function=None):
        found = (function or nt.flex_attention)(*tensors, None, block_mask)
        torch.testing.assert_close(found.double(), expected(*tensors, None, shown(block_mask))[0], atol=2e-5, rtol=2e-5)

    def test_the_kernel_of_mask_mod_is_not_used_for_other_blocks(self):
        right = create_block_mask(causal, None, None, 40, 40, device="cpu", BLOCK_SIZE=SIZE)
        self.assertIsNotNone(nt.flex_attention.explain(*made(), None, right).kernel)
        for name, block_mask in masks().items():
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.check(made(), block_mask)

    def test_one_is_tuned_for_the_blocks(self):
        tensors, block_mask = made(), masks()["blocks and causal"]
        call = call_of(tensors, None, block_mask, lse=False)
        nestor.tune(call.flex.nest, call.sizes, trials=1, target="host", db=f"{folder()}/blocks.db", progress=False)
        nt.configure(nestor.Library(f"{folder()}/blocks.db", system_path=""), "raise")
        self.check(tensors, block_mask)
        block_mask.kv_num_blocks[0, 0, 2] = 1  # the same kernel
        self.check(tensors, block_mask)

    def test_compiled_calls_compare_blocks_while_they_run(self):
        torch._dynamo.reset()
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(lambda query, key, value, _, mask: nt.flex_attention(query, key, value, None, mask),
                                 fullgraph=True, backend=counter)
        tensors = made()
        block_mask = create_block_mask(causal, None, None, 40, 40, device="cpu", BLOCK_SIZE=SIZE)
        for _ in range(2):  # PyTorch runs a graph in another way at first
            self.check(tensors, block_mask, compiled)
        block_mask.kv_num_blocks[0, 0, 2] = 2
        with self.assertWarnsRegex(UserWarning, "the blocks of block_mask are not those of its mask_mod"):
            self.check(tensors, block_mask, compiled)
        block_mask.kv_num_blocks[0, 0, 2] = 3
        self.check(tensors, block_mask, compiled)
        self.assertEqual(counter.frame_count, 1)
        self.assertIn("nestor.flex_attention", str([node.target for node in counter.graphs[0].graph.nodes]))
        torch._dynamo.reset()
        self.check(tensors, masks()["blocks and causal"], compiled)
        block_mask.kv_indices[0, 0, 0, 0] = 7
        with self.assertRaisesRegex(nestor.UserError, "or one that is not there"):
            compiled(*tensors, None, block_mask)


if __name__ == "__main__":
    unittest.main()
