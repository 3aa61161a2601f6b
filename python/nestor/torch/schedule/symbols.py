"""The torch.fx tracer of schedules: leaves by choice, tensors made inside recorded, and Python code that asks for shapes
answered from sample inputs, with a check."""

import contextlib
import dis
import inspect
import operator

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ...errors import UserError
from .graphs import IN_PLACE, strip_frames, submodule

# Functions that make tensors of numbers alone: torch.fx would run them once, and keep the result for ever.
_MAKERS = ("arange", "bartlett_window", "bernoulli", "blackman_window", "empty", "empty_strided", "eye", "full",
           "hamming_window", "hann_window", "kaiser_window", "linspace", "logspace", "normal", "ones", "rand", "randint",
           "randn", "randperm", "tensor", "tril_indices", "triu_indices", "zeros")
_LIMITS = ("finfo", "iinfo")
_UNKNOWN = object()


class Untraceable(Exception):
    """Why symbolic tracing ended; path: the submodule that it was in, "" for the traced one itself; exportable: whether
    torch.export may do better."""

    def __init__(self, reason, path="", exportable=True):
        super().__init__(reason)
        self.path, self.exportable = path, exportable


def expect(value, expected, what):
    """What generated code calls where tracing took a value for a constant."""
    if isinstance(value, fx.Proxy):  # a parent traces through
        value.tracer.create_proxy("call_function", expect, (value, expected, what), {}).node.meta["check"] = True
        return
    if value is expected or (type(value) is type(expected) and value == expected):
        return
    raise UserError(
        f"{what} was {expected!r} when this forward was traced, and is {value!r} now: trace it with these inputs, or "
        "leave it as it is")


class Written(fx.Proxy):
    """A proxy that records writes as writes: torch.fx makes x = x + y of x += y, which loses what aliases of x see."""

    def __setitem__(self, key, value):
        self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})


def _writer(operation):
    return lambda self, other: self.tracer.create_proxy("call_function", operation, (self, other), {})


for _name in IN_PLACE:
    setattr(Written, f"__{_name}__", _writer(getattr(operator, _name)))


class Proxy(Written):
    """A proxy that knows a sample of its value, if inputs were given."""

    def __getattr__(self, name):
        return _Attribute(self, name)

    def sample(self):
        """The value for the sample inputs, or _UNKNOWN."""
        return self.node.meta.get("sample", _UNKNOWN)

    def __iter__(self):
        count = _unpacked(inspect.currentframe().f_back)  # Python itself checks the number of names
        return iter([self[number] for number in range(len(self) if count is None else count)])

    def __len__(self):
        """Also asked by Python as a hint where it goes through a value, so the check is recorded once."""
        count = _known_length(self.node)
        if count is not None:
            return count
        try:
            count = 0 if _is_rest(self.node) else len(self.sample())
        except TypeError:
            raise Untraceable("a loop over, or len() of, a value that is not known without inputs") from None
        if self.node not in self.tracer.measured:
            self.tracer.measured.add(self.node)
            length = self.tracer.create_proxy("call_function", len, (self, ), {})
            self._checked(length, count, "the length of a value that Python code goes through")
        return count

    def _checked(self, proxy, value, what):
        self.tracer.create_proxy("call_function", expect, (proxy, value, what), {}).node.meta["check"] = True

    def _constant(self, kind):
        value = self.sample()
        if not isinstance(value, (bool, int, float)):
            raise Untraceable(f"{kind}() of a value that depends on data"
                              if value is not _UNKNOWN else f"{kind}() of a value that is not known without inputs")
        self._checked(self, value, f"a value that Python code asks for ({kind})")
        return value

    def __bool__(self):
        return bool(self._constant("bool"))

    def __index__(self):
        return int(self._constant("int"))

    __int__ = __index__

    def __float__(self):
        return float(self._constant("float"))


def _is_rest(node):
    """Whether a node is *args or **kwargs, which are taken to be empty where Python code goes through them."""
    return node.op == "placeholder" and node.target.startswith("*")


class _Attribute(fx.proxy.Attribute, Proxy):
    """An attribute of a proxy, such as its shape: a node as soon as it is used, and no node where it is a method that is
    called."""


def _known_length(node):
    """The length of shape[a:b] with constant bounds that are not counted from the end."""
    if node.target is getattr or node.op != "call_function" or len(node.args) != 2 or not isinstance(node.args[1], slice):
        return None
    part = node.args[1]
    if isinstance(part.stop, int) and part.stop >= 0 and part.step in (None, 1) and (part.start is None or part.start >= 0):
        return max(0, part.stop - (part.start or 0))
    return None


def _unpacked(frame):
    """How many names the line that runs in a frame unpacks a value into, or None."""
    now = next((each for each in dis.get_instructions(frame.f_code) if each.offset == frame.f_lasti), None)
    return now.argval if now is not None and now.opname == "UNPACK_SEQUENCE" else None


class Tracer(fx.Tracer):
    """leaf: a predicate of (module, its path) for submodules that stay calls; functions: stay calls as well; samples: {name of
    an argument: value}, or None."""

    proxy_buffer_attributes = True
    record_stack_traces = True

    def __init__(self, leaf, functions=(), samples=None):
        super().__init__(autowrap_functions=functions)
        self._leaf, self._functions = leaf, functions
        self._samples, self._sampling = samples, False
        self.measured = set()  # nodes whose length is checked
        self._fake = None if samples is None else FakeTensorMode(allow_non_fake_inputs=True)

    def is_leaf_module(self, module, name):
        return self._leaf(module, name)

    def proxy(self, node):
        return Proxy(node, self)

    def getattr(self, attr, attr_val, parameter_proxy_cache):
        return attr_val if self._sampling else super().getattr(attr, attr_val, parameter_proxy_cache)

    def keys(self, obj):
        return [] if _is_rest(obj.node) and len(obj) == 0 else super().keys(obj)

    def call_module(self, module, forward, args, kwargs):
        if self._sampling:
            return forward(*args, **kwargs)
        try:
            return super().call_module(module, forward, args, kwargs)
        except Exception as error:  # noqa: BLE001  what tracing meets is the model's
            if isinstance(error, Untraceable) and error.path:
                raise
            raise Untraceable(_words(error), self.path_of_module(module)) from error

    def create_proxy(self, kind, target, args, kwargs, *rest, **named):
        if _gradient_mode() != self._mode:
            raise Untraceable("it computes with other gradient or autocast modes in a part, which a graph does not hold",
                              exportable=False)
        made = super().create_proxy(kind, target, args, kwargs, *rest, **named)
        if self._samples is not None:
            value = self._sample_of(made.node)
            if value is not _UNKNOWN:
                made.node.meta["sample"] = value
        return made

    def graph_of(self, module, constants):
        """The graph of a module's forward with these arguments as constants. Raises Untraceable."""
        self._module, self._mode = module, _gradient_mode()
        try:
            with self._recorded(), _attributes_kept(module):
                graph = self.trace(module, concrete_args=dict(constants))
        except Untraceable:
            raise
        except Exception as error:  # noqa: BLE001  what tracing meets is the model's
            raise Untraceable(_words(error)) from error
        return _tidied(graph, constants, inspect.signature(type(module).forward))

    @contextlib.contextmanager
    def _recorded(self):
        """torch's makers of tensors record themselves."""
        kept = {name: getattr(torch, name) for name in _MAKERS + _LIMITS if hasattr(torch, name)}

        def recording(function, always):

            def called(*args, **kwargs):
                if not self._sampling and (always or any(isinstance(each, fx.Proxy) for each in (*args, *kwargs.values()))):
                    return self.create_proxy("call_function", function, args, kwargs)
                return function(*args, **kwargs)

            return called

        spaces, apply = _globals_of(self._module), vars(torch.autograd.Function)["apply"]
        try:
            torch.autograd.Function.apply = classmethod(_applied)
            for name, function in kept.items():
                setattr(torch, name, recording(function, name in _MAKERS))
            for space in spaces:
                space["isinstance"] = _is_instance
            yield
        finally:
            torch.autograd.Function.apply = apply
            for name, function in kept.items():
                setattr(torch, name, function)
            for space in spaces:
                del space["isinstance"]

    def _sample_of(self, node):
        """The node's value for the sample inputs, on fake tensors."""
        if self._sampling:
            return _UNKNOWN
        self._sampling = True
        try:
            with self._fake, torch.no_grad():
                return self._run(node)
        except Exception:  # noqa: BLE001  an unknown value is no error by itself
            return _UNKNOWN
        finally:
            self._sampling = False

    def _run(self, node):
        if node.op == "placeholder":
            return self._faked(self._samples.get(node.target, _UNKNOWN))
        if node.op == "get_attr":
            return self._faked(submodule(self._module, node.target))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), _known_sample)
        if node.op == "call_module":
            return self._module.get_submodule(node.target)(*args, **kwargs)
        return getattr(args[0], node.target)(*args[1:], **kwargs) if node.op == "call_method" else node.target(*args, **kwargs)

    def _faked(self, value):
        return torch.utils._pytree.tree_map(
            lambda each: self._fake.from_tensor(each, static_shapes=True) if isinstance(each, torch.Tensor) else each, value)


def _gradient_mode():
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *(torch.is_autocast_enabled(kind)
                                                                         for kind in ("cpu", "cuda"))


_APPLY = torch.autograd.Function.apply.__func__


def _applied(kind, *inputs, **named):
    """In place of torch.autograd.Function.apply."""
    if any(isinstance(each, fx.Proxy) for each in (*inputs, *named.values())):
        raise Untraceable(f"{kind.__name__} is a torch.autograd.Function, whose own gradient a graph does not hold",
                          exportable=False)
    return _APPLY(kind, *inputs, **named)


@contextlib.contextmanager
def _attributes_kept(module):
    """Takes back what a forward sets in modules. Raises Untraceable where it keeps values, which a graph would not do."""
    before = {path: (each, dict(vars(each))) for path, each in module.named_modules()}
    try:
        yield
    finally:
        changed = {path: _restored(each, kept) for path, (each, kept) in before.items()}
    for path, names in changed.items():
        if names:
            raise Untraceable(f"it keeps values in self.{', self.'.join(names)}, which a graph does not do", path)


def _restored(module, kept):
    """Gives a module its attributes again. Returns names of those that were others."""
    changed = [
        name for name, value in vars(module).items()
        if kept.get(name, _UNKNOWN) is not value and not name.startswith("_tensor_constant")
    ]
    for name in changed:
        if name in kept:
            vars(module)[name] = kept[name]
        else:
            del vars(module)[name]
    return changed


def _globals_of(module):
    """The globals of all forwards below a module outside of torch, where a name of a builtin may be put before it."""
    found = {}
    for each in module.modules():
        space = getattr(type(each).forward, "__globals__", {})
        if not space.get("__name__", "torch.").startswith("torch.") and "isinstance" not in space:
            found[id(space)] = space
    return list(found.values())


def _is_instance(value, kind):
    """isinstance, for proxies by their samples: to Python a proxy is no tensor."""
    if not isinstance(value, fx.Proxy) or isinstance(value, kind):
        return isinstance(value, kind)
    sample = value.sample()
    if sample is _UNKNOWN:
        raise Untraceable("isinstance() of a value that is not known without inputs")
    return isinstance(sample, kind)


def _known_sample(node):
    value = node.meta.get("sample", _UNKNOWN)
    if value is _UNKNOWN:
        raise LookupError(node.name)
    return value


def _words(error):
    return (str(error) or type(error).__name__).split("\n")[0].rstrip(".")


def _tidied(graph, constants, signature):
    """The graph with its arguments' own names, checks of constants in words, and no samples."""
    graph.set_codegen(fx.graph.CodeGen())
    parameters = list(signature.parameters.items())[1:]
    names = [name for name, each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node, name in zip(placeholders, names):  # torch.fx puts *args and **kwargs last
        node.target = name
        if name in constants:
            _check_constant(graph, node, constants[name], placeholders[-1])
    kinds = {each.kind for _, each in parameters}
    if {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY} <= kinds:
        raise Untraceable("its forward has arguments behind *args, which torch.fx gives another order")
    for node in graph.nodes:
        node.meta.pop("sample", None)
    strip_frames(graph)
    graph.lint()
    return graph


def _check_constant(graph, node, value, last):
    """In place of what torch.fx checks about an argument."""
    for user in list(node.users):
        for each in [*user.users, user]:
            graph.erase_node(each)
    with graph.inserting_after(last):
        check = graph.call_function(expect, (node, value, f"the argument {node.target}"))
    check.meta["check"] = True
