"""Tensors of other libraries: numpy where it is there, DLPack and array interfaces, and streams, over a C library that only
notes what it is asked to launch."""

import ctypes
import json
import types
import unittest
import unittest.mock

from support import WIDTH, matrix, needs_program, numpy, tuned

import nestor
from nestor import capi
from nestor.library import Kernel

GPU_INFO = {"device": "cuda:1", "nest_digest": "0" * 32, "op": "scale", "variant": "f32", "sizes": ["rows", "width"], "scalars": [],
            "measured": {"sizes": {"rows": 4}, "median_ms": 1.0},
            "tensors": [{"name": "x", "output": False, "shape": ["rows", "width"], "type": "bf16"},
                        {"name": "out", "output": True, "shape": ["rows", "width"], "type": "f32"}]}


class NotingLibrary:
    """Stands in for libnestor_runtime: one kernel of a GPU; launches are noted."""

    def __init__(self):
        self.launches = []
        self.nestor_launch_stream = lambda *arguments: self.note("checked", *arguments)
        self.nestor_launch_trusted = lambda *arguments: self.note("trusted", *arguments)

    def nestor_query(self, *arguments):
        arguments[-1]._obj.value = 1
        return 0

    def nestor_kernel_info(self, kernel, match, distance, text):
        text._obj.value = json.dumps(GPU_INFO).encode()
        return 0

    def note(self, how, kernel, count, tensors, size_count, names, values, scalar_count, scalar_names, scalars, stream):
        seen = [(t.data, t.type, tuple(t.shape[:t.rank]), tuple(t.strides[:t.rank])) for t in tensors]
        sizes = {names[k].decode(): values[k] for k in range(size_count)}
        self.launches.append(types.SimpleNamespace(how=how, tensors=seen, sizes=sizes, stream=stream.value))
        return 0


class CudaArray:
    def __init__(self, typestr, shape, address=4096, strides=None, stream=None, read_only=False):
        self.__cuda_array_interface__ = {"typestr": typestr, "shape": shape, "data": (address, read_only), "strides": strides,
                                         "stream": stream, "version": 3}


class TorchTensor:
    """As much of a CUDA torch.Tensor as is looked at."""

    def __init__(self, dtype, shape, stride, address):
        self.dtype, self.shape, self._stride, self._address = f"torch.{dtype}", shape, stride, address
        self.device = types.SimpleNamespace(type="cuda", index=1)
        self.negated, self.requires_grad, self.writes = False, False, 0

    def stride(self):
        return self._stride

    def get_device(self):
        return self.device.index

    def is_neg(self):
        return self.negated

    def data_ptr(self):
        return self._address

    def count(self):
        self.writes += 1


def torch_of(streams):
    """As much of PyTorch as is looked at: current streams by device, and where writes are counted."""
    graph = types.SimpleNamespace(increment_version=lambda tensor: tensor.count())
    return types.SimpleNamespace(_C=types.SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: streams[ordinal]),
                                 autograd=types.SimpleNamespace(graph=graph), is_grad_enabled=lambda: True)


class GpuArgumentsTest(unittest.TestCase):
    def setUp(self):
        self.c = NotingLibrary()
        self.kernel = Kernel(types.SimpleNamespace(c=self.c, value=None, closed=False), "scale", "f32", {"rows": 4}, "cuda:1")

    def launch(self, *tensors, **named):
        self.kernel(*tensors, **named)
        return self.c.launches[-1]

    def refused(self, message, *tensors, **named):
        with self.assertRaisesRegex(nestor.UserError, message):
            self.kernel(*tensors, **named)
        self.assertEqual(self.c.launches, [])

    def test_cuda_array_interface(self):
        seen = self.launch(CudaArray("<u2", (3, 8), 64, strides=(32, 2)), CudaArray("<f4", (3, 8), 128))
        self.assertEqual(seen.tensors, [(64, capi.ANY_TYPE, (3, 8), (16, 1)), (128, 0, (3, 8), (8, 1))])
        self.assertEqual((seen.how, seen.sizes, seen.stream), ("checked", {"rows": 3, "width": 8}, None))

    def test_addresses_beyond_64_bits_are_refused(self):
        out = CudaArray("<f4", (3, 8))
        for address in (2**64 + 4096, -1, 1.5, None, 10**400):
            self.refused("a tensor's address must be an integer from 0", CudaArray("<u2", (3, 8), address), out)
        for stream in (2**64, -2, "7", 2**64 + 77):
            self.refused("stream", CudaArray("<u2", (3, 8)), out, stream=stream)
            self.refused("stream", CudaArray("<u2", (3, 8), stream=stream), out)

    def test_what_is_no_array_interface_is_refused(self):
        out = CudaArray("<f4", (3, 8))
        for shape in (None, [3, 8], 24):
            self.refused("\"shape\" and \"strides\" must be tuples", CudaArray("<u2", shape), out)
        self.refused("an extent or a stride must be an integer", CudaArray("<u2", ("3", 8)), out)
        self.refused("must be an integer of 64 bits", CudaArray("<u2", (3, 2**64)), out)
        self.refused(r'tensor "x" \(argument 1, of bf16\): its shape and strides must be integers', CudaArray("<u2", ([3], 8)), out)
        self.refused("1 strides for 2 extents", CudaArray("<u2", (3, 8), strides=(2,)), out)
        self.refused("\"typestr\" must be text", CudaArray(None, (3, 8)), out)
        broken = CudaArray("<u2", (3, 8))
        broken.__cuda_array_interface__["data"] = None
        self.refused("\"data\" must be", broken, out)
        self.refused("the sizes must be a dictionary", CudaArray("<u2", (3, 8)), out, sizes=[1, 2])

    def test_addresses_are_those_of_each_call(self):
        for address in (64, 640, 64):
            seen = self.launch(CudaArray("<u2", (3, 8), address), CudaArray("<f4", (3, 8), 128))
            self.assertEqual(seen.tensors[0][0], address)

    def test_the_stream_of_the_array_interface(self):
        x = CudaArray("<u2", (3, 8), stream=77)
        self.assertEqual(self.launch(x, CudaArray("<f4", (3, 8))).stream, 77)
        self.assertEqual(self.launch(x, CudaArray("<f4", (3, 8)), stream=99).stream, 99)
        self.assertIsNone(self.launch(CudaArray("<u2", (3, 8), stream=1), CudaArray("<f4", (3, 8))).stream)
        other = CudaArray("<f4", (3, 8), stream=78)
        self.assertEqual(self.launch(x, other, stream=types.SimpleNamespace(cuda_stream=5)).stream, 5)
        with self.assertRaisesRegex(nestor.UserError, r"different streams \(\[77, 78\]\)"):
            self.kernel(x, other)

    def test_torch_tensors_in_the_current_stream_of_their_device(self):
        x, out = TorchTensor("bfloat16", (3, 8), (16, 1), 64), TorchTensor("float32", (3, 8), (8, 1), 128)
        current = {1: 4711}
        with unittest.mock.patch.dict("sys.modules", {"torch": torch_of(current)}):
            seen = self.launch(x, out)
            self.assertEqual((seen.how, seen.stream), ("trusted", 4711))
            self.assertEqual(seen.tensors, [(64, 2, (3, 8), (16, 1)), (128, 0, (3, 8), (8, 1))])
            current[1] = 4712
            self.assertEqual(self.launch(x, out).stream, 4712)
            self.assertEqual((self.launch(x, out, stream=9).how, self.c.launches[-1].stream), ("checked", 9))
        self.assertEqual((x.writes, out.writes), (0, 3))

    def test_torch_tensors_that_are_not_what_their_memory_holds(self):
        x, out = TorchTensor("bfloat16", (3, 8), (16, 1), 64), TorchTensor("float32", (3, 8), (8, 1), 128)
        with unittest.mock.patch.dict("sys.modules", {"torch": torch_of({1: 4711})}):
            x.negated = True
            self.refused(r'tensor "x" \(argument 1, .*negative bit set.*resolve_neg\(\)', x, out)
            x.negated, out.requires_grad = False, True
            self.refused('output "out" requires grad', x, out)
        self.assertEqual(out.writes, 0)

    def test_memory_of_another_device(self):
        self.refused(r'tensor "x" is on host, the kernel runs on cuda:1', (ctypes.c_uint16 * 8 * 3)(), CudaArray("<f4", (3, 8)))
        elsewhere = TorchTensor("bfloat16", (3, 8), (8, 1), 64)
        elsewhere.device.index = 0
        self.refused(r'tensor "x" is on cuda:0, the kernel runs on cuda:1', elsewhere, CudaArray("<f4", (3, 8)))

    def test_a_read_only_output_and_odd_strides(self):
        x = CudaArray("<u2", (3, 8))
        self.refused(r'"out" is an output, but its memory is read-only', x, CudaArray("<f4", (3, 8), read_only=True))
        odd = CudaArray("<f4", (3, 8), strides=(33, 4))
        self.refused(r"a stride of 33 bytes is no multiple of the 4-byte elements", x, odd)
        self.refused(r"elements of type '>f4'", x, CudaArray(">f4", (3, 8)))


class HostTest(unittest.TestCase):
    def kernel(self, variant="f32"):
        library = nestor.Library(tuned(f"rmsnorm {variant}"), system_path="")
        return library.query("rmsnorm", variant, {"rows": 64, "width": WIDTH})


@needs_program
class HostArgumentsTest(HostTest):
    def test_memory_of_a_gpu(self):
        with self.assertRaisesRegex(nestor.UserError, r'tensor "weight" is on cuda, the kernel runs on host'):
            self.kernel()(matrix(2, seed=1), CudaArray("<f4", (WIDTH,)), matrix(2))


@needs_program
@unittest.skipUnless(numpy, "numpy is not installed")
class NumpyTest(HostTest):
    def setUp(self):
        values = numpy.random.default_rng(1)
        self.x = values.standard_normal((5, WIDTH)).astype("f4")
        self.weight = values.standard_normal(WIDTH).astype("f4")

    def expected(self, x, weight):
        wide = x.astype("f8")
        return wide / numpy.sqrt((wide ** 2).mean(-1, keepdims=True) + 1e-5) * weight.astype("f8")

    def test_numpy_arrays(self):
        out = numpy.full_like(self.x, numpy.nan)
        self.kernel()(self.x, self.weight, out)
        numpy.testing.assert_allclose(out, self.expected(self.x, self.weight), rtol=1e-4, atol=1e-5)

    def test_rows_may_be_strided(self):
        large = numpy.zeros((10, WIDTH + 20), "f4")
        large[::2, 4:4 + WIDTH] = self.x
        place = numpy.full((5, WIDTH + 7), -1.0, "f4")
        self.kernel()(large[::2, 4:4 + WIDTH], self.weight, place[:, :WIDTH])
        numpy.testing.assert_allclose(place[:, :WIDTH], self.expected(self.x, self.weight), rtol=1e-4, atol=1e-5)
        self.assertTrue((place[:, WIDTH:] == -1.0).all())

    def test_columns_may_not(self):
        with self.assertRaisesRegex(nestor.UserError, r'tensor "x" has the last stride 2; it must be 1'):
            self.kernel()(numpy.zeros((5, 2 * WIDTH), "f4")[:, ::2], self.weight, numpy.zeros_like(self.x))
        with self.assertRaisesRegex(nestor.UserError, r'the last stride 5; it must be 1'):
            self.kernel()(numpy.zeros((WIDTH, 5), "f4").T, self.weight, numpy.zeros_like(self.x))

    def test_read_only_inputs_are_fine_and_outputs_are_not(self):
        self.x.flags.writeable = False
        self.kernel()(self.x, self.weight, numpy.zeros_like(self.x))
        with self.assertRaisesRegex(nestor.UserError, "read-only"):
            self.kernel()(numpy.ones_like(self.x), self.weight, self.x)

    def test_bf16_as_16_bit_integers(self):
        def rounded(values):
            bits = values.view("u4")
            return ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype("u2")

        def widened(halves):
            return (halves.astype("u4") << 16).view("f4")

        x, weight = rounded(self.x), rounded(self.weight)
        out = numpy.zeros_like(x)
        self.kernel("bf16")(x, weight, out)
        numpy.testing.assert_allclose(widened(out), self.expected(widened(x), widened(weight)), rtol=1.6e-2, atol=1e-2)

    def test_the_argument_that_is_none_is_named(self):
        out = numpy.zeros_like(self.x)
        for x in (self.x.astype("f8"), self.x.astype(">f4"), self.x.astype("c8"), self.x.astype("O")):
            with self.assertRaisesRegex(nestor.UserError, r'tensor "x" \(argument 1, of f32\): elements of type .* are none'):
                self.kernel()(x, self.weight, out)
        with self.assertRaisesRegex(nestor.UserError, r'tensor "out" \(argument 3, of f32\): elements of type .<f8'):
            self.kernel()(self.x, self.weight, out.astype("f8"))

    def test_masks_are_refused(self):
        masked = numpy.ma.masked_array(self.x, self.x > 0)
        for x in (masked, numpy.ma.masked_array(self.x)):
            with self.assertRaisesRegex(nestor.UserError, r'"x" \(argument 1, .*the mask of a MaskedArray would be ignored.*filled\(value\)'):
                self.kernel()(x, self.weight, numpy.zeros_like(self.x))
        self.kernel()(masked.filled(0), self.weight, numpy.zeros_like(self.x))

    def test_f16(self):
        x, weight = self.x.astype("f2"), self.weight.astype("f2")
        out = numpy.zeros_like(x)
        self.kernel("f16")(x, weight, out)
        numpy.testing.assert_allclose(out, self.expected(x, weight), rtol=2e-3, atol=2e-3)

    def test_dlpack(self):
        class Exporter:
            def __init__(self, array, versioned):
                self.array, self.versioned = array, versioned

            def __dlpack__(self, **named):
                if not self.versioned:
                    if named:
                        raise TypeError("this exporter is an old one")
                    return self.array.__dlpack__()
                return self.array.__dlpack__(**named) if "max_version" in named else self.array.__dlpack__()

        for versioned in (False, True) if int(numpy.__version__[0]) > 1 else (False,):
            out = numpy.zeros((5, WIDTH + 3), "f4")
            self.kernel()(Exporter(self.x, versioned), Exporter(self.weight, versioned), Exporter(out[:, :WIDTH], versioned))
            numpy.testing.assert_allclose(out[:, :WIDTH], self.expected(self.x, self.weight), rtol=1e-4, atol=1e-5)
        with self.assertRaisesRegex(nestor.UserError, "DLPack code 2, 64 bits, 1 lanes"):
            self.kernel()(Exporter(self.x.astype("f8"), False), self.weight, out)


if __name__ == "__main__":
    unittest.main()
