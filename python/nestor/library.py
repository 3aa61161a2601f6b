"""Library and Kernel: look up a kernel in a tuning database, and launch it on tensors."""

import ctypes
import json
import re
import threading

from . import capi
from .errors import UserError
from .extents import disagreement, read_extent, sizes_told
from .tensors import (Layout, count_torch_write, current_torch_stream, is_torch_grad_enabled, read_functions, reader_of,
                      stream_handle, why_unreadable)

_MAX_KERNELS = 4096  # answers that a library remembers; then it starts afresh
_MAX_PLANS = 1024  # layouts of arguments that a kernel remembers; then it starts afresh


class _Handle:
    """The open C library. Kernels hold it, so that it is freed after the last of them."""

    def __init__(self, path, threads, system_path, allow_unsigned):
        self.c = capi.load()
        self.closed = False
        self.value = ctypes.c_void_p()
        options = capi.Options(capi.integer(threads, "threads", 32),
                               None if system_path is None else capi.text(str(system_path), "system_path"))
        text = None if path is None else capi.text(str(path), "the path of the database")
        capi.check(self.c, self.c.nestor_open(text, ctypes.byref(options), ctypes.byref(self.value)))
        if allow_unsigned:
            capi.check(self.c, self.c.nestor_allow_unsigned(self.value, 1))

    def require_open(self):
        if self.closed:
            raise UserError("the library is closed")

    def __del__(self):
        if getattr(self, "value", None):
            self.c.nestor_close(self.value)


class Library:
    """A tuning database, opened for reading. May be used from several threads at once.

    path: the database; None: $NESTOR_DB, else the user's default, else the system's.
    threads: of a host kernel; 0: all CPUs that this process may use.
    system_path: a second database, consulted after the first; None: the default one; "": none.
    allow_unsigned: serve records that nobody trusted signed, too. They hold native code that runs in this process; without, records
    are served that come with Nestor, that this user's key signed (`nestor tune` does), or a key that the user trusts (`nestor db trust`).
    The environment's NESTOR_ALLOW_UNSIGNED=1 does the same.
    Raises UserError when there is no database, or it is damaged or of a newer version.
    """

    def __init__(self, path=None, *, threads=0, system_path=None, allow_unsigned=False):
        self._handle = _Handle(path, threads, system_path, allow_unsigned)
        self._kernels = {}
        self._path = path

    def query(self, op, variant, sizes, device="host", digest=None):
        """The best known Kernel of an operator's variant ("f32", "stats.bf16") at sizes ({"rows": 4096, "width": 1024}) on
        "host", "cuda" (the first GPU) or "cuda:1". digest: of a nest (Nest.digest()): then of exactly this definition, whatever its
        name, and op and variant say nothing. Answers are remembered. Raises NotFound when no kernel fits, UserError for
        sizes that are not positive, a device that is not here or a kernel that cannot be loaded, DeviceError when the driver
        fails."""
        self._handle.require_open()
        capi.sizes(sizes)
        key = (None, digest, device, tuple(sizes.items())) if digest else (op, variant, device, tuple(sizes.items()))
        kernel = self._kernels.get(key)
        if kernel is None:
            if len(self._kernels) >= _MAX_KERNELS:
                self._kernels = {}
            kernel = self._kernels.setdefault(key, Kernel(self._handle, op, variant, dict(sizes), device, digest))
        return kernel

    @property
    def path(self):
        """The path that was given; None for the default database."""
        return self._path

    def refresh(self):
        """Forgets remembered answers, so that what was tuned since is found. Kernels in use stay valid."""
        self._handle.require_open()
        capi.check(self._handle.c, self._handle.c.nestor_refresh(self._handle.value))
        self._kernels = {}

    @property
    def path(self):
        """The database's path, None for the default one."""
        return self._path

    def close(self):
        """Refuses further queries and launches. Memory and modules are freed with the last Kernel."""
        self._handle.closed = True
        self._kernels = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        state = "closed" if self._handle.closed else "open"
        return f"<nestor.Library {self._path or 'default'}, {state}>"


class _Plan:
    """The C arguments of a launch, complete but for addresses, scalar values and the stream."""

    def __init__(self, handle, kernel, layouts, written, sizes, scalar_names, streamed):
        count = len(layouts)
        tensors = (capi.Tensor * count)()
        self._kept = [_fill(*pair) for pair in zip(tensors, layouts)]
        self.slots = [ctypes.c_void_p.from_buffer(tensors, k * ctypes.sizeof(capi.Tensor)) for k in range(count)]
        scalar_count, names, self.scalars = capi.named(dict.fromkeys(scalar_names, 0.0), ctypes.c_double)
        self.written = written  #: places of the outputs that PyTorch counts versions of
        self.stream_slot = ctypes.c_void_p()
        self.arguments = (kernel, count, tensors, *capi.named(sizes, ctypes.c_int64), scalar_count, names, self.scalars,
                          self.stream_slot)
        self.ordinal = next((int(each.device[5:]) for each in layouts if each.trusted and each.device != "host"), None)
        streams = {each.stream for each in layouts} - {None}
        if len(streams) > 1 and not streamed:
            raise UserError(f"the tensors belong to different streams ({sorted(streams)}): say which with stream=")
        self.stream = stream_handle(next(iter(streams), None))
        trusted = not streamed and all(each.trusted for each in layouts)
        self.launch = handle.c.nestor_launch_trusted if trusted else handle.c.nestor_launch_stream

    def current_stream(self):
        return self.stream if self.ordinal is None else current_torch_stream(self.ordinal)


def _fill(tensor, layout: Layout):
    rank = len(layout.shape)
    shape = (ctypes.c_int64 * rank)(*[capi.integer(extent, "a tensor's shape") for extent in layout.shape])
    strides = (ctypes.c_int64 * rank)(*[capi.integer(stride, "a tensor's strides") for stride in layout.strides])
    tensor.type = capi.TYPE_CODES.get(layout.type, capi.ANY_TYPE)
    tensor.rank = rank
    tensor.shape, tensor.strides = ctypes.cast(shape, capi.Integers), ctypes.cast(strides, capi.Integers)
    return shape, strides


class Kernel:
    """A kernel for an operator. Call it with its tensors, in the order of `tensors`, or by name.

        kernel(x, weight, bias, out, eps=1e-6)
        kernel(x, weight=weight, bias=bias, out=out)

    Tensors may be numpy arrays, PyTorch tensors, anything with __array_interface__, __cuda_array_interface__, DLPack, or a
    buffer such as a ctypes array; bf16 in numpy is ml_dtypes.bfloat16 or uint16. Rows may be strided, the last stride is 1.
    sizes: only where they do not follow from the shapes. Scalars that are not given take their default.
    stream: a CUstream's number, or a stream of PyTorch, CuPy or CUDA Python; None: PyTorch's current stream for its tensors,
    the array interface's stream for others, else the legacy default stream. A launch on a GPU does not wait; on the host the
    call returns when the result is there. Autograd differentiates nothing of it (nestor.torch has operators for that). It sees that
    outputs were written in place, and refuses to use what it saved of them before.
    Raises UserError, with nothing written, for arguments that do not fit, and DeviceError when the driver refuses.
    """

    def __init__(self, handle, op, variant, sizes, device, digest=None):
        self._handle, self._c = handle, handle.c
        self._pointer = ctypes.c_void_p()
        count, names, values = capi.named(sizes, ctypes.c_int64)
        rest = (capi.text(device, "the device"), count, names, values, ctypes.byref(self._pointer))
        if digest:
            capi.check(self._c, self._c.nestor_query_nest(handle.value, capi.text(digest, "the digest"), *rest))
        else:
            capi.check(self._c, self._c.nestor_query(handle.value, capi.text(op, "the operator"), capi.text(variant, "the variant"), *rest))
        match, distance, text = ctypes.c_int(), ctypes.c_double(), ctypes.c_char_p()
        capi.check(self._c, self._c.nestor_kernel_info(self._pointer, ctypes.byref(match), ctypes.byref(distance),
                                                       ctypes.byref(text)))
        self.match = capi.MATCHES[match.value]  #: "exact", "nearest" or "other device"
        self.distance = distance.value  #: sum over sizes of |log2(asked / measured)|
        self.info = json.loads(text.value)  #: tensors, sizes, scalars, conditions; where it was measured, and how fast
        self.op, self.variant, self.sizes = self.info["op"], self.info["variant"], sizes
        self.digest, self.device = self.info["nest_digest"], self.info["device"]  #: digest: of the nest that it computes
        self.tensors = [tensor["name"] for tensor in self.info["tensors"]]  #: names, in the order of the call
        self._scalars = {scalar["name"] for scalar in self.info["scalars"]}
        self._plans = {}
        self._lock = threading.Lock()

    def __call__(self, *tensors, sizes=None, stream=None, **named):
        if self._handle.closed:
            self._handle.require_open()
        if named and not self._scalars.issuperset(named):
            tensors, named = self._bind(tensors, named)
        keys, addresses = [], []
        try:
            for tensor in tensors:
                key, address = (read_functions.get(type(tensor)) or reader_of(tensor).read)(tensor)
                keys.append(key)
                addresses.append(address)
        except Exception as error:  # noqa: BLE001  tensors of others raise what they like
            self._refuse_argument(tensors, len(keys), error)
        key = (tuple(keys), tuple(named), tuple(capi.sizes(sizes).items()) if sizes else None, stream is None)
        try:
            pool = self._plans.get(key)
        except TypeError:
            self._refuse_unhashable(tensors, keys)
        if pool is None:
            pool = self._pool(key)
        try:
            plan = pool.pop()  # a plan serves one call at a time
        except IndexError:
            plan = self._plan(tensors, keys, sizes, named, stream is not None)
        for k in plan.written:
            if tensors[k].requires_grad:
                self._require_unrecorded(k)
        for slot, address in zip(plan.slots, addresses):
            slot.value = address
        if named:
            plan.scalars[:] = capi.scalars(named)
        plan.stream_slot.value = plan.current_stream() if stream is None else stream_handle(stream)
        status = plan.launch(*plan.arguments)
        if status:
            self._refuse(status, tensors, keys, sizes or {})
        for k in plan.written:
            count_torch_write(tensors[k])
        pool.append(plan)

    def __repr__(self):
        measured = self.info["measured"]
        sizes = ", ".join(f"{name}={value}" for name, value in measured["sizes"].items())
        how = self.match if self.match == "exact" else f"{self.match}, distance {self.distance:.2g}"
        return (f"<nestor.Kernel {self.op} ({self.variant}) on {self.device}, measured at {sizes}: "
                f"{measured['median_ms'] * 1e3:.1f} us ({how})>")

    def _bind(self, tensors, named):
        """Tensors given by name put in their places; what is left are scalars."""
        placed = dict(zip(self.tensors, tensors))
        scalars = {}
        for name, value in named.items():
            if name in self._scalars:
                scalars[name] = value
            elif name in self.info["sizes"]:
                raise UserError(f"{self._title()}: {name} is a size: give it as sizes={{\"{name}\": {value!r:.100}}}, where no "
                                "shape says it")
            elif name in placed or name not in self.tensors:
                why = "is given twice" if name in placed else "is no argument"
                raise UserError(f"{self._title()}: \"{name}\" {why}; tensors: {', '.join(self.tensors)}; scalars: "
                                f"{', '.join(sorted(self._scalars)) or 'none'}")
            else:
                placed[name] = value
        missing = [name for name in self.tensors if name not in placed]
        if missing:
            raise UserError(f"{self._title()}: missing tensors: {', '.join(missing)}")
        return tuple(placed[name] for name in self.tensors) + tensors[len(self.tensors):], scalars

    def _require_unrecorded(self, place):
        """Raises UserError for an output that requires grad while autograd records, as PyTorch does of what is written in place."""
        if is_torch_grad_enabled():
            raise UserError(f'{self._title()}: output "{self.tensors[place]}" requires grad, and autograd would see nothing of what is '
                            "written: give its detach(), or call the kernel in torch.no_grad()")

    def _refuse(self, status, tensors, keys, sizes):
        """Raises the exception of a launch, with what these arguments say about it."""
        try:
            capi.check(self._c, status)
        except UserError as error:
            missing = re.search(r'size "(\w+)" is missing', str(error))
            if missing:
                raise UserError(f'{error}; no shape says it: give it as sizes={{"{missing[1]}": ...}}') from None
            found = re.search(r'tensor "(\w+)" (must have the shape|is a null pointer)', str(error))
            if found is None:
                raise
            place = self.tensors.index(found[1])
            why = why_unreadable(tensors[place]) if found[2].startswith("is") else self._disagreement(place, tensors, keys, sizes)
            raise UserError(f"{error}: {why}" if why else str(error)) from None

    def _disagreement(self, place, tensors, keys, given):
        """What the shapes of these tensors say about the sizes of the one at this place."""
        shapes = {spec["name"]: [(read_extent(text), text, extent) for text, extent in zip(spec["shape"], layout.shape)]
                  for spec, layout in zip(self.info["tensors"], self._layouts(tensors, keys))}
        return disagreement(self.tensors[place], shapes, given)

    def _refuse_argument(self, tensors, place, error):
        """Raises UserError for the argument at this place, which cannot be read."""
        self._require_count(tensors)
        why = error if isinstance(error, UserError) else why_unreadable(tensors[place], error)
        spec = self.info["tensors"][place]
        cause = None if isinstance(error, UserError) else error
        raise UserError(f"{self._title()}: tensor \"{spec['name']}\" (argument {place + 1}, of {spec['type']}): {why}") from cause

    def _refuse_unhashable(self, tensors, keys):
        """Raises UserError for the argument, or the sizes, that no plan can be looked up by."""
        for place, key in enumerate(keys):
            try:
                hash(key)
            except TypeError:
                self._refuse_argument(tensors, place, UserError("its shape and strides must be integers"))
        raise UserError(f"{self._title()}: sizes must be integers") from None

    def _require_count(self, tensors):
        if len(tensors) != len(self.tensors):
            raise UserError(f"{self._title()} takes {len(self.tensors)} tensors ({', '.join(self.tensors)}), not {len(tensors)}")

    def _layouts(self, tensors, keys):
        layouts = []
        try:
            for tensor, key in zip(tensors, keys):
                layouts.append(reader_of(tensor).layout(tensor, key))
        except Exception as error:  # noqa: BLE001  tensors of others raise what they like
            self._refuse_argument(tensors, len(layouts), error)
        return layouts

    def _title(self):
        return f"{self.op} ({self.variant})"

    def _pool(self, key):
        with self._lock:
            if len(self._plans) >= _MAX_PLANS:
                self._plans = {}
            return self._plans.setdefault(key, [])

    def _plan(self, tensors, keys, sizes, named, streamed):
        specs = self.info["tensors"]
        self._require_count(tensors)
        layouts = self._layouts(tensors, keys)
        for spec, layout in zip(specs, layouts):
            self._check(spec, layout)
        written = [k for k, (spec, layout) in enumerate(zip(specs, layouts)) if spec["output"] and layout.trusted]
        return _Plan(self._handle, self._pointer, layouts, written, self._sizes(specs, layouts, sizes or {}), tuple(named), streamed)

    def _check(self, spec, layout):
        """What the C library cannot see: where memory is said to be, read-only arrays, and 16 bits without a meaning."""
        what = f"{self._title()}: tensor \"{spec['name']}\""
        here = layout.device == self.device or (layout.device == "cuda" and self.device.startswith("cuda"))
        if not here:
            raise UserError(f"{what} is on {layout.device}, the kernel runs on {self.device}")
        if spec["output"] and layout.read_only:
            raise UserError(f"{what} is an output, but its memory is read-only")
        if layout.type == "bits16" and spec["type"] != "bf16":
            raise UserError(f"{what} holds {spec['type']}, not 16-bit integers")
        if len(layout.shape) != len(spec["shape"]):
            needed = f"have the shape {' x '.join(spec['shape'])}" if spec["shape"] else "be a single element, of the shape ()"
            raise UserError(f"{what} must {needed}, not {' x '.join(map(str, layout.shape)) or 'a single element'}")

    def _sizes(self, specs, layouts, given):
        """Sizes from the shapes that tell them, where they are not given."""
        extents = [read_extent(text) for spec in specs for text in spec["shape"]]
        return sizes_told(extents, [extent for layout in layouts for extent in layout.shape], given)
