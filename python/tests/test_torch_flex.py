"""flex_attention: its nests say what PyTorch's does, kernels compute it, and what no nest says is PyTorch's."""

import functools
import json
import math
import os
import subprocess
import sys
import unittest
import warnings
from unittest import mock

from support import folder, needs_program, numpy

import nestor

try:
    import torch
except ImportError:
    torch = None
if torch and numpy:
    from flex_variants import MASKS, alibi_by, and_masks, block_diffusion, causal, documents, masks_of_data, prefix, scores, softcap, window
    from torch._higher_order_ops.flex_attention import math_attention
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask
    from torch.nn.attention.flex_attention import flex_attention as theirs

    import nestor.torch as nt
    from nestor.torch import flex, flex_blocks, flex_fallback
    from nestor.torch.compiler import race
    from nestor.torch.nest_calls import tune_nest

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 40, 16


def made(queries=LENGTH, keys=LENGTH, heads=HEADS, key_heads=None, width=WIDTH, value_width=None, dtype=None, batch=BATCH):
    shapes = (heads, queries, width), (key_heads or heads, keys, width), (key_heads or heads, keys, value_width or width)
    return [torch.randn(batch, *shape, dtype=dtype) for shape in shapes]


def expected(query, key, value, score_mod=None, mask_mod=None, scale=None):
    """(result, log-sum-exp) as PyTorch defines them, in float64."""
    def everything(b, h, q, k):
        return b.new_ones((), dtype=torch.bool)

    out, lse, _ = math_attention(query.double(), key.double(), value.double(), score_mod or (lambda score, *_: score),
                                 (mask_mod or everything,), query.shape[-1] ** -0.5 if scale is None else scale, {})
    return out, lse * math.log(2)


def call_of(tensors, score_mod=None, mask_mod=None, lse=True, **options):
    found, reason = flex.call_of(*tensors, score_mod, mask_mod, lse=lse, **options)
    assert reason is None, reason
    return found


def _array(tensor):
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def evaluated(tensors, score_mod=None, mask_mod=None):
    """(result, log-sum-exp) as the nest says it, in float64."""
    call = call_of(tensors, score_mod, mask_mod)
    names = [tensor.name for tensor in call.flex.nest.arguments]
    found = nestor.evaluate(call.flex.nest, dict(zip(names, (_array(tensor) for tensor in call.tensors))), call.sizes,
                            {"scale": tensors[0].shape[-1] ** -0.5})
    return torch.from_numpy(found["out"]), torch.from_numpy(found["lse"])


@unittest.skipUnless(torch and numpy, "PyTorch or numpy is not installed")
class FlexTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(4)


class NestTest(FlexTest):
    def check(self, score_mod, mask_mod, *sizes, tolerance=2e-6):
        tensors = made(*sizes, width=4)
        torch.testing.assert_close(evaluated(tensors, score_mod, mask_mod), expected(*tensors, score_mod, mask_mod), atol=tolerance,
                                   rtol=tolerance)

    def test_masks(self):
        for name, mask in {**MASKS, **masks_of_data(BATCH, LENGTH)}.items():
            with self.subTest(name):
                self.check(None, mask, LENGTH, LENGTH)
                self.check(None, mask, 21, 13)

    def test_scores(self):
        for name, score in scores(BATCH, HEADS, LENGTH).items():
            with self.subTest(name):
                self.check(score, None, LENGTH, LENGTH)
                self.check(score, causal, 13, 21)

    def domain(self, mask, name="score"):
        nest = call_of(made(), None, mask).flex.nest
        return next(statement.domain for statement in nest.statements if statement.name == name)

    def test_masks_of_indices_are_domains(self):
        for name, mask in MASKS.items():
            with self.subTest(name):
                self.assertNotEqual(self.domain(mask), self.domain(None))
        self.assertIn("and j <= i }", self.domain(masks_of_data(BATCH, LENGTH)["causal_documents"]))
        self.assertRegex(self.domain(causal, "dot"), r"and j <= i }")

    def test_blocks_of_two_halves_are_three_pieces_of_a_domain(self):
        mask = block_diffusion(20, 5)
        self.check(None, mask)
        self.assertEqual(self.domain(mask).count(" or "), 2)
        nest = call_of(made(), mask_mod=mask).flex.nest
        score = next(statement for statement in nest.statements if statement.name == "score")
        self.assertNotIn("select", str(score.value))

    def test_a_choice_of_minus_infinity_is_a_mask(self):
        names = {call_of(made(), score, mask).flex.nest.op
                 for score, mask in ((scores(1, 1, 1)["causal_score"], None), (None, causal))}
        self.assertEqual(len(names), 1)

    def test_quotients_by_constants_are_products(self):
        statement = next(each for each in call_of(made(), softcap(20.0)).flex.nest.statements if each.name == "score")
        self.assertNotIn("div", str(statement.value))

    def test_lengths_and_batches_share_a_nest(self):
        names = set()
        for length in range(30, 50):
            ids, table = torch.arange(length) // 7, torch.randn(HEADS, length)
            tensors = made(length, length, batch=1 + length % 3)
            call = call_of(tensors, lambda score, b, h, q, k, table=table: score + table[h, q - k],
                           and_masks(causal, documents(ids)))
            names.add(call.flex.nest.op)
        self.assertEqual(len(names), 1)

    def test_rows_that_see_nothing(self):
        tensors = made(width=4)
        out, lse = evaluated(tensors, None, MASKS["nothing_before"])
        self.assertEqual((int(out[:, :, :5].count_nonzero()), set(lse[:, :, :5].flatten().tolist())), (0, {-math.inf}))

    def test_a_single_integer_of_the_host_is_a_size(self):
        names = set()
        for size in (3, 9):
            count = torch.tensor(size)
            call = call_of(made(width=4), None, window(count))
            self.assertIn("given", self.domain(window(count)))
            names.add(call.flex.nest.op)
            self.check(None, window(count), 33, LENGTH)
        self.assertEqual(len(names), 1)

    def test_types_of_captured_tensors(self):
        ids = torch.arange(LENGTH) // 9
        for kind in (torch.int64, torch.int32, torch.uint8, torch.float32):
            self.check(None, documents(ids.to(kind)), LENGTH, LENGTH)
        slopes, tensors = torch.rand(HEADS).bfloat16(), made(width=4)  # what is computed of 16 bits is not rounded to 16 bits
        torch.testing.assert_close(evaluated(tensors, alibi_by(slopes)), expected(*tensors, alibi_by(slopes.float())))

    def test_quotients_are_rounded_as_pytorch_does(self):
        for divisor in (-3, 5):
            self.check(None, lambda b, h, q, k, d=divisor: torch.div(q - k, d, rounding_mode="trunc") <= 1)
        self.check(lambda s, b, h, q, k: s + torch.trunc(q / 49.0), None, 99, 7)  # by products, 49 / 49 is less than 1

    def test_rows_of_low_scores_are_no_empty_rows(self):
        low = torch.finfo(torch.float32).min
        self.check(lambda s, b, h, q, k: torch.where(q % 3 == 0, s * 0 + low, s * 1e33), lambda b, h, q, k: k < q, 9, 9)

    def test_what_no_nest_says(self):
        pages, table, wide = torch.randperm(LENGTH), torch.randn(LENGTH), torch.randn(LENGTH).double()
        for reason, score, mask in (
            ("reads at indices from data", None, lambda b, h, q, k: pages[pages[k]] <= q),
            ("reads at indices that are not affine", lambda s, b, h, q, k: s + table[(q - k).abs()], None),
            ("32 bits may be too few for", lambda s, b, h, q, k: s + table[(q * k) % LENGTH], None),
            ("no uint8, whose values wrap", None, lambda b, h, q, k: (q * 100).to(torch.uint8) > k * 10),
            ("no rule for aten.lgamma.default", lambda s, b, h, q, k: s + torch.lgamma(q * 0.5), None),
            ("which may be negative", lambda s, b, h, q, k: s + table[q - k], None),
            ("of a tensor of extent0_0 elements", lambda s, b, h, q, k: s + table[q + k], None),
            ("a captured tensor of float64", lambda s, b, h, q, k: s + wide[q], None),
            ("integers that 32 bits do not hold", None, documents(torch.full((LENGTH,), 2**40))),
            ("cannot be traced: .*data-dependent", lambda s, b, h, q, k: s if q > k else -s, None),
            ("a mask that hides every key", None, lambda b, h, q, k: torch.zeros_like(q, dtype=torch.bool)),
        ):
            with self.subTest(reason):
                found = nt.flex_attention.explain(*made(), score, mask)
                self.assertRegex(found.reason or "", reason)
                self.assertIsNone(found.nest)


def problems():
    """Calls that have kernels: (tensors, score_mod, mask_mod)."""
    data = masks_of_data(BATCH, LENGTH)
    return [(made(), None, causal), (made(), None, window(7)), (made(key_heads=2), alibi_by(torch.rand(HEADS)), causal),
            (made(), softcap(20.0), data["causal_documents"]), (made(value_width=24), None, data["nothing_for_a_batch"]),
            (made(dtype=torch.bfloat16), None, prefix(9))]


@functools.lru_cache(maxsize=None)
def tuned_library():
    path = f"{folder()}/flex.db"
    for call in [call_of(*problem, enable_gqa=True) for problem in problems()] + [call_of(made(), None, causal, lse=False)]:
        nestor.tune(call.flex.nest, call.sizes, trials=1, target="host", db=path, progress=False)
    return nestor.Library(path, system_path="")


@needs_program
class KernelTest(FlexTest):
    def setUp(self):
        super().setUp()
        nt.configure(tuned_library(), "raise")

    def compare(self, tensors, score_mod=None, mask_mod=None, ours=None, tolerance=2e-5, **options):
        """The result and its log-sum-exp, which a kernel must have computed."""
        found = (ours or nt.flex_attention)(*tensors, score_mod, mask_mod, return_lse=True, **options)
        result = expected(*tensors, score_mod, mask_mod, options.get("scale"))
        torch.testing.assert_close([each.double() for each in found], list(result), atol=tolerance, rtol=tolerance)
        self.assertEqual((found[0].dtype, found[1].dtype), (tensors[0].dtype, torch.float32))
        return found

    def test_kernels_compute_it_at_any_size(self):
        for tensors, score_mod, mask_mod in problems():
            narrow = tensors[0].dtype == torch.bfloat16
            for queries, keys, scale in ((LENGTH, LENGTH, None), (21, 33, 0.3), (1, LENGTH, None), (37, 37, 0.5)):
                self.compare([tensors[0][:, :, :queries], *(tensor[:, :, :keys] for tensor in tensors[1:])], score_mod, mask_mod,
                             enable_gqa=True, scale=scale, tolerance=1e-2 if narrow else 2e-5)

    def test_a_block_mask_is_its_function(self):
        mask = create_block_mask(causal, None, None, LENGTH, LENGTH, device="cpu")
        tensors = made()
        torch.testing.assert_close(nt.flex_attention(*tensors, block_mask=mask), nt.flex_attention(*tensors, block_mask=causal))

    def test_other_forms_of_a_call(self):
        tensors = made()
        out, lse = self.compare(tensors, None, causal)
        torch.testing.assert_close(nt.flex_attention(*tensors, None, causal), out)
        found, more = nt.flex_attention(*tensors, None, causal, return_aux=AuxRequest(lse=True))
        torch.testing.assert_close([found, more.lse], [out, lse])
        packed = torch.randn(BATCH, LENGTH, 3, HEADS, WIDTH)
        views = [packed[:, :, k].transpose(1, 2) for k in range(3)]
        out, _ = self.compare(views, None, causal)
        self.assertTrue(out.transpose(1, 2).is_contiguous())
        self.compare([tensors[0], tensors[1][:1].expand(BATCH, -1, -1, -1), tensors[2]], None, causal)
        with torch.inference_mode():
            self.compare(made(), None, causal)

    def test_what_functions_captured_may_change(self):
        slopes = torch.rand(HEADS)
        size, mask = 7, window(7)

        def limited(b, h, q, k):
            return (q - k <= size) & (q >= k)

        tensors = made(key_heads=2)
        score_mod = alibi_by(slopes)
        for _ in range(2):
            self.compare(tensors, score_mod, causal, enable_gqa=True)
            slopes.mul_(2)  # in place
        self.compare(tensors, alibi_by(torch.rand(HEADS)), causal, enable_gqa=True)
        self.compare(made(), None, limited)
        size = 5  # another nest, which has no kernel
        with self.assertRaisesRegex(nestor.NotFound, "no kernel of"):
            nt.flex_attention(*made(), None, limited, return_lse=True)
        self.assertIsNotNone(mask)

    def test_torch_compile_takes_the_whole_graph(self):
        torch._dynamo.reset()
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")

        def attend(query, key, value, ids, slopes):
            def mask(b, h, q, k):
                return (q >= k) & (ids[q] == ids[k])
            return nt.flex_attention(query * 1.0, key, value, softcap(20.0), mask, return_lse=True)

        compiled = torch.compile(attend, fullgraph=True, backend=counter, dynamic=True)
        for number, length in enumerate((LENGTH, LENGTH, 33, 29)):
            ids = torch.arange(length) // (5 + number)
            self.compare(made(length, length), softcap(20.0), and_masks(causal, documents(ids)),
                         ours=lambda *tensors, ids=ids, **_: compiled(*tensors[:3], ids, None))
        self.assertLessEqual(counter.frame_count, 2)

    def test_torch_compile_sees_what_functions_captured(self):
        torch._dynamo.reset()
        compiled = torch.compile(lambda query, key, value, mask: nt.flex_attention(query, key, value, None, mask, return_lse=True),
                                 fullgraph=True, backend="aot_eager")
        nt.configure(on_missing="silent")
        for mask in (causal, window(7), window(5), window(7)):
            self.compare(made(), None, mask, ours=lambda *tensors, **_: compiled(*tensors[:3], tensors[4]))

    def test_the_operator_is_registered_right(self):
        call = made()
        *recorded, captured = flex.record(None, causal, torch.device("cpu"))
        name, reason = flex.program_of(*recorded, torch.device("cpu"))
        self.assertEqual((captured, reason), ([], None))
        for lse in (True, False):
            found = torch.library.opcheck(torch.ops.nestor.flex_attention, (*call, [], name, 0.25, lse, "off", 1.0),
                                          test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"))
            self.assertEqual(set(found.values()), {"SUCCESS"})

    def test_the_operator_without_a_kernel_is_pytorchs_definition(self):
        nt.configure(on_missing="silent")
        tensors, data = made(), masks_of_data(BATCH, LENGTH)
        score_mod, mask_mod = scores(BATCH, HEADS, LENGTH)["table"], data["documents"]
        *recorded, captured = flex.record(score_mod, mask_mod, torch.device("cpu"))
        name, _ = flex.program_of(*recorded, torch.device("cpu"))
        found = torch.ops.nestor.flex_attention(*tensors, captured, name, 0.25, True, "off", 1.0)
        torch.testing.assert_close([each.double() for each in found], list(expected(*tensors, score_mod, mask_mod)), atol=2e-5,
                                   rtol=2e-5)

    def test_tuned_at_the_first_call(self):
        nt.configure(tuned_library(), "raise")
        tensors = made()
        with self.assertRaisesRegex(nestor.NotFound, "no kernel of"):
            nt.flex_attention(*tensors, lambda score, b, h, q, k: score * 0.5)
        self.compare(tensors, lambda score, b, h, q, k: score * 0.5, tune="now", budget_s=1)
        with self.assertRaisesRegex(nestor.UserError, "tune is 'off' or 'now', not 'later'"):
            nt.flex_attention(*tensors, tune="later")

    def test_what_is_left_to_pytorch_is_said_once(self):
        pages = torch.randperm(LENGTH)

        def paged(b, h, q, k):
            return pages[pages[k]] <= q

        leaf = made()[0].requires_grad_()
        for reason, call, options in (("reads at indices from data", made(), {"block_mask": paged}),
                                      ("no kernel of", made(), {"block_mask": window(3)}),
                                      ("no kernels for torch.float64", made(dtype=torch.float64), {}),
                                      ("gradients of attention", (leaf, *made()[1:]), None),
                                      ("no kernel returns the largest scores", made(), None)):
            with self.subTest(reason):
                nt.configure(on_missing="warn")
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    for _ in range(2):
                        if options is None:  # which PyTorch has not on a CPU
                            self.assertRaises(NotImplementedError, nt.flex_attention, *call, return_aux=AuxRequest(max_scores=True))
                            continue
                        found = nt.flex_attention(*call, **options)
                messages = [str(each.message) for each in said if "nestor.torch" in str(each.message)]
                self.assertEqual(len(messages), 1, messages)
                self.assertRegex(messages[0], reason)
                if options and "block_mask" in options:
                    torch.testing.assert_close(found.double(), expected(*call, None, options["block_mask"])[0], atol=2e-5,
                                               rtol=2e-5)
                nt.configure(on_missing="raise")
                with self.assertRaisesRegex(nestor.NotFound, reason):
                    nt.flex_attention(*call, **({"return_aux": AuxRequest(max_scores=True)} if options is None else options))

    def test_bad_arguments_are_refused_as_pytorch_refuses_them(self):
        nt.configure(on_missing="silent")
        query, key, value = made()
        for call in ((query, key[..., :8], value), (query, key[:, :2], value[:, :2]), (query, key[:, :3], value[:, :3])):
            with self.assertRaises((RuntimeError, ValueError)):
                theirs(*call)
            with self.assertRaises((RuntimeError, ValueError)):
                nt.flex_attention(*call)


EXPLAINED_ELSEWHERE = """
import sys, torch, nestor, nestor.torch as nt
from flex_variants import causal
nt.configure(nestor.Library(sys.argv[1], system_path=""))
print(nt.flex_attention.explain(*(torch.randn(2, 4, 40, 16) for _ in range(3)), None, causal).reason)
"""
LOST = "PyTorch's FlexAttention is faster here: 188 us against 578 us"


@needs_program
class RaceTest(FlexTest):
    tunings = {}  # by the nest's name, so that each is searched once

    def setUp(self):
        super().setUp()
        self.path = f"{folder()}/raced.db"
        if not self.tunings:
            call = call_of(made(), None, causal, lse=False)
            self.tunings[call.flex.nest.op] = nestor.tune(call.flex.nest, call.sizes, trials=1, target="host", db=self.path,
                                                          progress=False)
        nt.configure(nestor.Library(self.path, system_path=""), "raise")
        self.addCleanup(nt.configure, on_missing="warn")
        if os.path.exists(f"{self.path}.races"):
            os.remove(f"{self.path}.races")

    def tune(self, times, tensors, *functions, **options):
        """Tunes, with a race that gives these microseconds of the kernel and of PyTorch's code."""
        def against(own, theirs, rows, device, checked):
            if isinstance(times, Exception):
                raise times
            return dict(zip(("kernel_us", "inductor_us"), times))

        with mock.patch.object(race, "against", against), mock.patch.object(flex, "tune_nest", self.tuned):
            return nt.flex_attention.tune(*tensors, *functions, **options)

    def tuned(self, nest, *args, scalars):
        if nest.op not in self.tunings:
            self.tunings[nest.op] = tune_nest(nest, *args, scalars=scalars, trials=1, progress=False)
        return self.tunings[nest.op]

    def races(self):
        with open(f"{self.path}.races", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def reason(self, tensors, *functions, **options):
        found = nt.flex_attention.explain(*tensors, *functions, **options)
        self.assertEqual(found.kernel is None, found.reason is not None)
        self.assertIsNotNone(found.nest)
        return found.reason

    def by(self, function, *tensors):
        """(result, whether PyTorch's FlexAttention computed it, in place of which its definition runs)."""
        calls = []

        def theirs(query, key, value, score_mod, block_mask, scale, *_, **__):
            calls.append(block_mask)
            return expected(query, key, value, score_mod, getattr(block_mask, "mask_mod", None), scale)[0].float()

        with mock.patch.object(flex, "compiled", lambda *_: theirs):
            return function(*tensors), calls

    def test_the_faster_computes(self):
        tensors = made()
        for times, reason in (((188.0, 578.0), None), ((188.0, 188.0), None), ((578.0, 188.0), LOST), ((578.0, None), None),
                              ((7.77, 3.14), "PyTorch's FlexAttention is faster here: 3.1 us against 7.8 us"),
                              (RuntimeError("no such thing"), None), ((188.0, 578.0), None)):
            with self.subTest(times):  # each takes the place of the one before
                self.tune(times, tensors, None, causal)
                self.assertEqual(self.reason(tensors, None, causal), reason)
                found, calls = self.by(lambda *given: nt.flex_attention(*given, None, causal), *tensors)
                torch.testing.assert_close(found.double(), expected(*tensors, None, causal)[0], atol=2e-5, rtol=2e-5)
                self.assertEqual(len(calls), reason is not None)

    def test_it_is_raced_and_compiled_really(self):
        tensors, mask = made(width=64), window(5)  # PyTorch 2.11 without AVX-512 leaves rows of width 16 zero
        tuned = nt.flex_attention.tune(*tensors, None, mask, trials=1, progress=False)
        self.tunings[tuned.nest.op] = tuned
        entry, = self.races()
        self.assertIsNone(entry["failed"])
        self.assertGreater(entry["kernel_us"], 0)
        self.assertGreater(entry["inductor_us"], 0)
        self.tune((578.0, 188.0), tensors, None, mask)
        with mock.patch.object(flex_fallback.torch, "compile", side_effect=AssertionError):  # what raced is there
            found = nt.flex_attention(*tensors, None, mask)
        torch.testing.assert_close(found.double(), expected(*tensors, None, mask)[0], atol=2e-5, rtol=2e-5)

    def test_a_race_is_kept_for_other_processes(self):
        self.tune((578.0, 188.0), made(), None, causal)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        found = subprocess.run([sys.executable, "-c", EXPLAINED_ELSEWHERE, self.path], env=environment, capture_output=True,
                               text=True, check=True)
        self.assertEqual(found.stdout.strip(), LOST)

    def test_a_race_is_of_one_kernel(self):
        tensors = made()
        self.tune((578.0, 188.0), tensors, None, causal)
        entry, = self.races()
        with open(f"{self.path}.races", "w", encoding="utf-8") as file:
            file.write(json.dumps({**entry, "kernel": "of another one"}) + "\n")
        self.assertIsNone(self.reason(tensors, None, causal))

    def test_a_race_at_other_sizes(self):
        self.tune((578.0, 188.0), made(), None, causal)
        self.assertRegex(self.reason(made(33, 33), None, causal), "faster at sizes near these: 188 us")
        self.tune((188.0, 578.0), made(13, 13), None, causal)
        self.assertIsNone(self.reason(made(14, 14), None, causal))

    def test_wrong_results_are_not_used(self):
        tensors = made()
        with mock.patch.object(flex, "_launched", lambda *_: ((torch.zeros_like(tensors[0]), None), None)):
            self.tune((188.0, 578.0), tensors, None, causal)
        self.assertRegex(self.reason(tensors, None, causal), "the kernel's results are not accepted: result 0 is off by")
        with self.assertRaisesRegex(nestor.NotFound, "not accepted"):
            nt.flex_attention(*tensors, None, causal)

    def test_compiled_code_with_wrong_results_does_not_compute(self):
        tensors = made()
        for change, reason in ((lambda found: 0 * found, "wrong here: result 0 is off by"),
                               (lambda found: found / 0, "wrong here: result 0 has infinity"), (lambda found: found + 1e-6, None)):
            def theirs(query, key, value, *_, change=change):
                return change(expected(query, key, value, None, causal)[0].float())

            with mock.patch.object(flex, "compiled", lambda *_, theirs=theirs: theirs), \
                 mock.patch.object(flex, "tune_nest", self.tuned):
                nt.flex_attention.tune(*tensors, None, causal)
            entry = self.races()[-1]
            self.assertIsNone(entry["failed"])
            self.assertGreater(entry["kernel_us"], 0)
            self.assertEqual(entry["inductor_us"] is None, reason is not None)
            if reason is not None:
                self.assertRegex(entry["inductor_failed"], reason)
                self.assertIsNone(self.reason(tensors, None, causal))

    def test_many_scores_are_checked_in_part(self):
        with mock.patch("nestor.torch.flex_race._MOST_SCORES", 1):
            tensors, score = made(key_heads=2), alibi_by(torch.rand(HEADS))
            self.tune((578.0, 188.0), tensors, score, causal, enable_gqa=True, return_lse=True)
        self.assertEqual(self.reason(tensors, score, causal, enable_gqa=True, return_lse=True), LOST)

    def test_a_block_mask_of_the_caller_is_pytorchs_too(self):
        tensors = made()
        self.tune((578.0, 188.0), tensors, None, causal)
        for batch, heads in ((None, None), (BATCH, HEADS)):
            block_mask = create_block_mask(causal, batch, heads, LENGTH, LENGTH, device="cpu")
            _, calls = self.by(lambda *given, mask=block_mask: nt.flex_attention(*given, None, mask), *tensors)
            self.assertEqual([each is block_mask for each in calls], [True])
        block_mask = create_block_mask(causal, None, None, 2 * LENGTH, LENGTH, device="cpu")  # of which the function matters
        found, calls = self.by(lambda *given: nt.flex_attention(*given, None, block_mask), *tensors)
        self.assertEqual(calls[0].seq_lengths, (LENGTH, LENGTH))
        torch.testing.assert_close(found.double(), expected(*tensors, None, causal)[0], atol=2e-5, rtol=2e-5)

    def test_block_masks_are_kept(self):
        tensors, ids = made(), torch.arange(LENGTH) // 7
        mask = documents(ids)
        self.tune((578.0, 188.0), tensors, None, mask)
        made_masks = []

        def counted(*args, **options):
            made_masks.append(args)
            return create_block_mask(*args, **options)

        with mock.patch.object(flex_blocks, "create_block_mask", counted):
            for change, count, by_pytorch in ((None, 0, True), (None, 0, True), (3, 0, False), (None, 1, True), (None, 0, True)):
                made_masks.clear()
                if change is not None:  # the kernel serves numbers that are there for the first time
                    ids[:change] = 5
                found, calls = self.by(lambda *given: nt.flex_attention(*given, None, documents(ids)), *tensors)
                self.assertEqual((len(made_masks), len(calls)), (count, by_pytorch))
                torch.testing.assert_close(found.double(), expected(*tensors, None, mask)[0], atol=2e-5, rtol=2e-5)

    def compiled(self, function, *tensors):
        """(result, names of what the graph calls, the function)"""
        torch._dynamo.reset()
        counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
        compiled = torch.compile(function, fullgraph=True, backend=counter)
        found = compiled(*tensors)
        return found, [str(node.target) for node in counter.graphs[0].graph.nodes if node.op == "call_function"], compiled

    def test_compiled_calls_are_pytorchs_own(self):
        tensors = made()
        self.tune((578.0, 188.0), tensors, softcap(20.0), window(7))
        functions = softcap(20.0), window(7)
        found, names, compiled = self.compiled(lambda *given: nt.flex_attention(*given, *functions), *tensors)
        torch.testing.assert_close(found.double(), expected(*tensors, *functions)[0], atol=2e-5, rtol=2e-5)
        self.assertIn("flex_attention", names)
        self.assertNotIn("nestor.flex_attention.default", names)
        self.assertFalse([name for name in names if "where" in name or "sum" in name or "sort" in name], names)
        shorter = [tensor[:, :, :33] for tensor in tensors]  # of dynamic length: the kernel
        torch.testing.assert_close(compiled(*shorter).double(), expected(*shorter, *functions)[0], atol=2e-5, rtol=2e-5)

    def test_compiled_calls_hold_for_other_numbers(self):
        tensors, ids = made(), torch.arange(LENGTH) // 7
        mask = and_masks(causal, documents(ids))
        self.tune((578.0, 188.0), tensors, None, mask)
        found, names, compiled = self.compiled(lambda *given: nt.flex_attention(*given, None, mask), *tensors)
        self.assertIn("flex_attention", names)
        self.assertIn("nestor.held_blocks", names)
        self.assertFalse([name for name in names if "sum" in name or "sort" in name], names)
        for _ in range(2):
            torch.testing.assert_close(found.double(), expected(*tensors, None, mask)[0], atol=2e-5, rtol=2e-5)
            ids[:] = torch.randint(3, ids.shape)
            found = compiled(*tensors)

    def test_block_masks_of_other_numbers_hide_nothing(self):
        ids = torch.arange(300) // 100
        block_mask = create_block_mask(documents(ids), 2, None, 300, 300, device="cpu")
        parts = [block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks]
        torch.testing.assert_close(torch.ops.nestor.held_blocks([ids], [ids.clone()], parts), parts)
        counts, indices, full = torch.ops.nestor.held_blocks([ids], [ids + 1], parts)
        self.assertEqual((set(counts.flatten().tolist()), set(full.flatten().tolist())), ({3}, {0}))
        self.assertEqual(set(map(tuple, indices.flatten(0, -2).tolist())), {(0, 1, 2)})
        self.assertEqual((counts.stride(), indices.stride()), ((3, 3, 1), (9, 9, 3, 1)))
        found = torch.library.opcheck(torch.ops.nestor.held_blocks, ([ids], [ids.clone()], parts),
                                      test_utils=("test_schema", "test_faketensor"))
        self.assertEqual(set(found.values()), {"SUCCESS"})

    def test_compiled_calls_with_masks_of_arguments_are_the_kernels(self):
        tensors = made()
        self.tune((578.0, 188.0), tensors, None, documents(torch.arange(LENGTH) // 7))
        for change in (lambda ids: ids, lambda ids: ids + 1):
            def attend(query, key, value, ids, change=change):
                return nt.flex_attention(query, key, value, None, documents(change(ids)))

            ids = torch.arange(LENGTH) // 9
            found, names, _ = self.compiled(attend, *tensors, ids)
            self.assertIn("nestor.flex_attention", names)
            torch.testing.assert_close(found.double(), expected(*tensors, None, documents(ids))[0], atol=2e-5, rtol=2e-5)

    def test_compiled_calls_take_a_block_mask_of_the_caller(self):
        tensors = made()
        self.tune((578.0, 188.0), tensors, None, causal)
        block_mask = create_block_mask(causal, None, None, LENGTH, LENGTH, device="cpu")
        found, names, _ = self.compiled(lambda *given: nt.flex_attention(*given[:3], None, given[3]), *tensors, block_mask)
        self.assertIn("flex_attention", names)
        torch.testing.assert_close(found.double(), expected(*tensors, None, causal)[0], atol=2e-5, rtol=2e-5)

    def test_compiled_calls_without_a_kernel_keep_their_block_mask(self):
        nt.configure(on_missing="silent")
        tensors, functions = made(), (None, window(3))
        found, names, _ = self.compiled(lambda *given: nt.flex_attention(*given, *functions), *tensors)
        self.assertFalse([name for name in names if "sum" in name or "sort" in name], names)
        torch.testing.assert_close(found.double(), expected(*tensors, *functions)[0], atol=2e-5, rtol=2e-5)


if __name__ == "__main__":
    unittest.main()
