"""backend="nestor" of torch.compile: Inductor compiles as always; a pass of ours puts kernels in the place of regions of its
graphs where they exist and win.

A graph goes this way: backend (compile_fx with the pass) > graph_pass > rewrite: importer's partition, description (a region as
text), choice (the database, races) > replacement (a call of nestor::region) > region_op (launches, verifies, falls back).
worker tunes and races in a process of its own.
"""

import importlib.metadata

import torch


def nestor(module, inputs, *, mode=None, options=None):
    """The backend. options: a dictionary of what options.Options says; "mode" in it: one of torch.compile's, which itself takes
    either mode= or options=. Raises UserError for options that are none."""
    from .backend import Session
    from .options import Options

    return Session(Options.of(options, mode)).compile(module, inputs)


def register():
    """Makes "nestor" a name of torch.compile, unless the installed package's entry point does."""
    installed = importlib.metadata.entry_points(group="torch_dynamo_backends")
    if not any(each.name == "nestor" for each in installed):
        torch._dynamo.register_backend(nestor, name="nestor")
