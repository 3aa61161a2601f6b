"""Tuning beside service: regions are tuned in a process of its own, then the graphs that wait for them are compiled again in a
thread, and put in the place of the code that served meanwhile."""

import atexit
import contextlib
import queue
import threading

import torch
from torch._dynamo.convert_frame import compile_lock
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.virtualized import V

from ...errors import UserError
from .region_op import say_once
from .worker import Worker, refresh

_tasks = queue.Queue()
_lock = threading.Lock()
_thread = None
_worker = None


class Replaceable:
    """Compiled code of a graph, called as Inductor's is. `replace` puts other code in its place; calls that run finish with the
    old one."""

    def __init__(self, compiled):
        # AOTAutograd: arguments come as one list, which the code may empty. It copies attributes of objects alone.
        self._boxed_call = True
        self._compiled = compiled

    def __call__(self, arguments):
        return self._compiled(arguments)

    def replace(self, compiled):
        """Raises UserError where results would have other strides: what was compiled to read them relies on these."""
        if getattr(compiled, "output_strides", None) != getattr(self._compiled, "output_strides", None):
            raise UserError("its results would have other strides")
        self._compiled = compiled


def copy_of(module):
    """A copy of a graph, as compiling takes it apart."""
    graph = torch.fx.Graph()
    found = graph.output(graph.graph_copy(module.graph, {}))
    found.meta.update(next(iter(reversed(module.graph.nodes))).meta)
    made = torch.fx.GraphModule(module, graph)
    made.meta.update(module.meta)
    return made


def compiler_of(module, inputs, settings, arguments):
    """A function that compiles a graph as it was compiled just now, with these settings of Inductor, in any thread."""
    fake_mode, context = V.fake_mode, torch._guards.TracingContext.try_get()

    def compile_again():
        with compile_lock, contextlib.ExitStack() as stack:
            stack.enter_context(torch._inductor.config.patch(settings))
            stack.enter_context(V.set_fake_mode(fake_mode))
            stack.enter_context(torch._guards.tracing(context))
            return compile_fx_inner(module, inputs, **arguments)

    return compile_again


def tune_then(jobs, options, compile_again, replaceable):
    """Queues the jobs of a graph; when they are done the graph is compiled again."""
    global _thread
    Worker.require_program()
    _tasks.put((jobs, options, compile_again, replaceable))
    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_serve, name="nestor-background", daemon=True)
            _thread.start()


def wait():
    """Waits until nothing is queued or tuned any more."""
    _tasks.join()


def _serve():
    while True:
        task = _tasks.get()
        try:
            _do(*task)
        except Exception as error:  # noqa: BLE001  the code that serves now goes on
            say_once(("background", str(error)), f"compiled code could not be replaced after tuning: {error}")
        finally:
            _tasks.task_done()


def _do(jobs, options, compile_again, replaceable):
    global _worker
    _worker = Worker(jobs, options)
    problem = _worker.wait()
    _worker = None
    if problem is not None:
        say_once("tuning", f"not all regions could be tuned: {problem}")
    refresh(options.db)
    replaceable.replace(compile_again())


@atexit.register
def _stop():
    worker = _worker
    if worker is not None:
        worker.stop()
