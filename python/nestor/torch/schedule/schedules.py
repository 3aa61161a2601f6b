"""Schedules of models: a persistent list of steps, each a model of its own that shares all tensors with the first."""

import copy

import torch
from torch import nn

from ...errors import UserError
from ...tuning import Text
from . import matches
from .building import apart, as_inputs, backend_of, built, inputs_of, start_regions
from .decompositions import decompose
from .derived import Generated, base_of, checkpoint_of, derive, generated_of, share
from .graphs import is_compute, readable
from .matches import Found, Match
from .merging import merge
from .ops import words_of
from .paths import places_of, refuse_hooks, select, set_module
from .rewrite import Edit, Region, fuse, replace, unfuse
from .tracing import trace
from .verification import verify


class Step:
    """One line of a schedule. what: the call; notes: what it did, by module."""

    def __init__(self, what, notes):
        self.what, self.notes = what, notes

    def __repr__(self):
        return "\n".join([self.what, *(f"    {note}" for note in self.notes)])


class Selection:
    """Modules of a scheduled model, by their paths. Each step acts on all of them, or on none when it fails.

    `selection[what]` selects below; steps return the selection, so that they can be chained.
    """

    def __init__(self, schedule, paths):
        self._schedule, self.paths = schedule, paths  #: paths: of the selected modules, "" for the model

    def __getitem__(self, what):
        """Modules below by a path, a glob (* for one name, ** for any number) or a regular expression. Raises UserError for
        none."""
        return Selection(self._schedule, select(self._schedule.model, self.paths, what))

    def __len__(self):
        return len(self.paths)

    @property
    def module(self):
        """The only selected module as it is now. Do not change it: other steps and undo share it."""
        if len(self.paths) > 1:
            raise UserError(f"{len(self.paths)} modules are selected where one is wanted: {', '.join(self.paths[:4])} ...")
        return self._schedule.model.get_submodule(self.paths[0])

    def trace(self, inputs=None, *, flatten=False, leaves=(), functions=(), mode=None):
        """Makes a graph of each module's forward: by torch.fx, else by torch.export.

        inputs: a tuple of the module's own inputs ((tuple, dict) with named ones); None for those that it gets when the model
        runs on the schedule's inputs. With inputs, arguments that are no tensors become constants, and Python code may ask for
        shapes: calls check that. Without any, arguments that have numbers as defaults become constants.
        flatten: True for all submodules outside of torch.nn, or a list of classes, globs and predicates of (module, path) of
        those to trace into; all others stay calls, as do leaves (likewise), functions, modules with hooks, and what cannot be
        traced. mode: "train" or "eval" where the forward does other work in each. Raises UserError where nothing can trace it.
        """
        known = {} if inputs is not None or self._schedule.inputs is None else inputs_of(
            share(self._schedule.model).eval(), self.paths, self._schedule.inputs)

        def act(root, path, module):
            options = {"flatten": _several(flatten), "leaves": _several(leaves), "functions": _several(functions), "mode": mode}
            checkpointing = checkpoint_of(module)
            derive(module, generated=generated_of(module))
            graph, notes = trace(module, path, known.get(path, inputs), **options)
            derive(module, generated=Generated(graph), checkpointing=checkpointing)
            return [f"{sum(node.op.startswith('call') for node in graph.nodes)} nodes", *notes]

        return self._step("trace()", act)

    def find(self, what):
        """A Found of all places in the traced modules where `what` is.

        what: a function, method or operator of PyTorch, however the code writes it; a class of modules; a regular expression
        that matches a node's name, its op's, or its module's path, name or class as a whole; or a pattern: a Python function
        of tensors, or a module. In patterns numbers match any number (schedule.exactly(8.0) only itself), arguments match
        values and constants, modules match by class, and the last result may be a dictionary that names values.
        """
        model = self._schedule.model
        graphs = [
            generated_of(model.get_submodule(path)).graph for path in self.paths
            if getattr(generated_of(model.get_submodule(path)), "graph", None)
        ]
        wanted = matches.also_as_call(what, graphs)
        found, near = [], []
        for path in self._distinct(model):
            some, reasons = matches.find(model.get_submodule(path), path, wanted)
            found, near = found + some, near + reasons
        return Found(matches.words(wanted), found, near)

    def replace(self, found=None, by=None, *, make=None, name=None):
        """Puts `by` in place of what was found, or of the selected modules where found is None.

        by: a function of the pattern's arguments (or of a node's inputs), traced into the graph where that is possible, else
        called; or a module. make: a function of a Match (or of the old module) that makes one for each place. name: of a new
        submodule. Raises UserError for no match, unsafe places (writes, hooks, not convex), and a module with parameters for
        several places.
        """
        if (by is None) == (make is None):
            raise UserError(
                "replace takes either by=, a function or a module, or make=, a function that makes one for each place")
        if found is None:
            return self._replace_modules(by, make)
        self._one_for_each(_matches(found), by)
        made = (lambda match: by) if make is None else make
        return self._edit(found, "replace", lambda edit, root, match: replace(edit, match, made(match), name))

    def fuse(self, found, compiler="nestor", *, name=None, **options):
        """Puts each match into a module of its own, which build() compiles with torch.compile.

        compiler: "nestor", "inductor", another backend of torch.compile, or a function as torch.compile takes it; options: its
        others, such as dynamic=True or options={"tune": "now"}. Raises UserError for matches that are not convex or write into
        tensors, and for an unknown backend.
        """
        backend_of(compiler)
        return self._edit(found, f"fuse by {words_of(compiler)}",
                          lambda edit, root, match: fuse(edit, match, compiler, name, options))

    def unfuse(self, found="fused.*"):
        """Puts back the nodes of fused modules: what find(name) found, or a name."""
        found = found if isinstance(found, (Found, Match)) else self.find(found)

        def act(edit, root, match):
            (node, ), _, _ = edit.here(match)
            if node.op != "call_module" or not isinstance(edit.module.get_submodule(node.target), Region):
                raise UserError(f"{node.name} in {match.path or 'the model'} is no fused module")
            return unfuse(edit, node)

        return self._edit(found, "unfuse", act)

    def decompose(self, found=None):
        """Puts definitions in place of what was found (docs/pytorch_schedules.md has the table), or inside the selected modules
        themselves (a Linear, a LayerNorm). Parameters stay where they are, under their names."""
        if found is not None:
            return self._edit(found, "decompose", lambda edit, root, match: decompose(edit, match))

        def act(root, path, module):
            graph, _ = trace(module, path)
            derive(module, generated=Generated(graph))
            with Edit(module, path) as edit:
                nodes = [node for node in edit.graph.nodes if is_compute(node) and not node.meta.get("check")]
                if len(nodes) != 1:
                    raise UserError(f"{path or 'the model'} ({base_of(module).__name__}) is no single op; trace it and "
                                    "decompose what find() finds")
                return [decompose(edit, Match(path, edit.graph, nodes, [], nodes))]

        return self._step("decompose()", act)

    def merge(self, modules, *, name=None):
        """Makes one product of linear modules that read one value: names of modules that the selected ones call, or a Found.

        Their weights become rows of one parameter; a state_dict has the names and shapes of before. Optimizers have to be made
        from the built model. Raises UserError for modules of other classes, and shared, tied, hooked or distributed ones.
        """
        if isinstance(modules, (Found, list, tuple)) and modules and all(isinstance(each, Match) for each in modules):
            groups = {}
            for match in modules:
                groups.setdefault(match.path, []).append(match)

            def act(root, path, module):
                with Edit(module, path, groups[path]) as edit:
                    return [merge(edit, root, [node for match in groups[path] for node in match.nodes], name)]

            return Selection(self._schedule, list(groups))._step("merge()", act, self)
        if isinstance(modules, Found):
            modules.some()
        if isinstance(modules, str) or not all(isinstance(each, str) for each in modules):
            raise UserError("merge takes a list of names of modules, or what find() found")

        def by_names(root, path, module):
            self._traced(module, path)
            with Edit(module, path) as edit:
                return [merge(edit, root, list(modules), name)]

        return self._step(f"merge({', '.join(modules)})", by_names)

    def checkpoint(self, **options):
        """Recomputes the modules' activations in the backward pass (torch.utils.checkpoint, not reentrant; options are its
        own)."""
        if "use_reentrant" in options:
            raise UserError("checkpoint is never reentrant; leave use_reentrant out")

        def act(root, path, module):
            derive(module, generated=generated_of(module), checkpointing=options)
            return ["its activations are recomputed"]

        return self._step("checkpoint()", act)

    def code(self, path=None):
        """The forward that was generated for a traced module, as text. path: below the selected one."""
        selected = self if path is None else self[path]
        module = selected.module
        self._traced(module, selected.paths[0])
        return Text(readable(generated_of(module).source))

    def __repr__(self):
        model = self._schedule.model
        return Text("\n".join(_described(model, path) for path in self.paths))

    @staticmethod
    def _traced(module, path):
        generated = generated_of(module)
        if generated is None or generated.graph is None:
            raise UserError(f"{path or 'the model'} ({base_of(module).__name__}) is not traced: call .trace() on it first")

    def _distinct(self, model):
        """One path for each selected module."""
        modules = {}
        for path in self.paths:
            modules.setdefault(model.get_submodule(path), path)
        return list(modules.values())

    def _step(self, what, act, chained=None):
        """Acts on a copy of the model, and makes it the schedule's if all went well."""
        root, notes = share(self._schedule.model), []
        for path in self._distinct(root):
            module = root.get_submodule(path)
            also = [each for each in places_of(root, module) if each != path]
            for note in act(root, path, module):
                notes.append(f"{path or 'the model'}: {note}" + (f" (also {', '.join(also)}: one module)" if also else ""))
        self._schedule._push(root, Step(what, notes))
        return chained or self

    def _edit(self, found, what, act):
        """The same on the graphs in which something was found."""
        groups = {}
        for match in _matches(found):
            groups.setdefault(match.path, []).append(match)
        label = f"{what}({found.what if isinstance(found, Found) else ', '.join(_matches(found)[0].nodes)})"

        def each(root, path, module):
            self._traced(module, path)
            with Edit(module, path, groups[path]) as edit:
                return [act(edit, root, match) for match in groups[path]]

        return Selection(self._schedule, list(groups))._step(label, each, self)

    @staticmethod
    def _one_for_each(places, by):
        if len(places) > 1 and isinstance(by, nn.Module) and any(True for _ in by.parameters()):
            raise UserError(
                f"{type(by).__name__} has parameters, and there are {len(places)} places for it: give make=, a function that "
                "makes one for each, or one of the matches")

    def _replace_modules(self, by, make):
        model = self._schedule.model
        self._one_for_each(self._distinct(model), by)

        def act(root, path, module):
            if not path:
                raise UserError("the model as a whole is not replaced: schedule the other model")
            refuse_hooks(module, path)
            places = places_of(root, module)
            missing = [each for each in places if each not in self.paths]
            if missing:
                raise UserError(
                    f"{' and '.join(places)} are one module (shared): select all of them, or none; {', '.join(missing)} "
                    f"{'is' if len(missing) == 1 else 'are'} not selected")
            made = by if make is None else make(module)
            if not isinstance(made, nn.Module):
                raise UserError(f"a module is replaced by a module, not by {words_of(made)}")
            for place in places:
                set_module(root, place, made)
            return [f"{type(module).__name__} -> {type(made).__name__}"]

        return self._step("replace()", act)


class Schedule(Selection):
    """How a model is computed, step by step. Made by nestor.torch.schedule(model, inputs=None); the model itself stays as it
    is. inputs: a tuple of the model's inputs (or (tuple, dict)), which trace then uses for each module.

        s = nestor.torch.schedule(model)
        layers = s["encoder.layer.*.attention"].trace()
        layers.merge(["query", "key", "value"])
        s.verify((x, ))
        fast = s.build()
    """

    def __init__(self, model, inputs=None):
        if not isinstance(model, nn.Module):
            raise UserError(f"schedule takes a torch.nn.Module, not a {type(model).__name__}")
        super().__init__(self, [""])
        self.original = model  #: as it was given
        self.inputs = inputs  #: of the model, or None
        try:
            self._states = [(share(model), None)]
        except Exception as error:  # noqa: BLE001  copying runs the model's own code
            raise UserError(
                f"schedule copies a model's modules (not its tensors), and {type(model).__name__} cannot be copied: "
                f"{error}") from error

    @property
    def model(self):
        """The model as it is now. Do not change it: other steps and undo share it."""
        return self._states[-1][0]

    @property
    def steps(self):
        """The steps so far."""
        return [step for _, step in self._states[1:]]

    def _push(self, root, step):
        self._states.append((root, step))

    def undo(self, count=1):
        """Takes back the last steps. Raises UserError if there are fewer."""
        if not 0 < count < len(self._states):
            raise UserError(
                f"there {'is 1 step' if len(self.steps) == 1 else f'are {len(self.steps)} steps'} to take back, not {count}")
        del self._states[-count:]
        return self

    def fork(self):
        """Another schedule with the same steps so far; each goes its own way from here."""
        other = copy.copy(self)
        other._schedule, other._states = other, list(self._states)
        return other

    def explain(self, inputs=None, what=None, **options):
        """Text about each step: what it did, in which modules, what stayed a call and why.

        inputs: a tuple of inputs of the model: adds what nestor.torch.explain says of the modules that `what` selects (the
        whole model for None), at the inputs that they get. options: of nestor.torch.capture.
        """
        lines = [f"{len(self.steps)} step{'' if len(self.steps) == 1 else 's'}"]
        lines += [f"{number}. {step!r}" for number, step in enumerate(self.steps, 1)]
        if inputs is not None:
            from ..explanation import explain

            model = apart(self.model)
            paths = [""] if what is None else select(model, [""], what)
            for path, (args, kwargs) in inputs_of(model, paths, inputs).items():
                lines += [
                    "", f"{path or 'the model'}:",
                    repr(explain(model.get_submodule(path), args, kwargs=kwargs, **options))
                ]
        return Text("\n".join(lines))

    def verify(self, inputs, backward=True, *, rtol=None, atol=None, dtype=torch.float64, seed=0, against=None,
               modes=("eval", "train"), compiled=False):
        """Compares the scheduled model with the original in float64 copies: results, buffers, and gradients of inputs and
        parameters, in evaluation and in training. Returns a report.

        inputs: a tuple (or (tuple, dict)). rtol, atol: numbers or {type: number}; 1e-7 and 1e-9 in float64. dtype: None for the
        types that the model has. against: another model than the original. In training both draw from one seed; where they draw
        other random numbers they are compared without dropout, and the report says so. compiled: fused parts run compiled,
        which draws other numbers, so in evaluation alone; they run uncompiled otherwise. Raises Mismatch with the worst
        element.
        """
        original, scheduled = copy.deepcopy(self.original if against is None else against), apart(self.model)
        if compiled:
            start_regions(scheduled)
            modes = ("eval", )
        return verify(original, scheduled, as_inputs(inputs), backward=backward, rtol=rtol, atol=atol, dtype=dtype, seed=seed,
                      modes=modes, counted=not compiled)

    def build(self, compile=None, *, copy=False, **options):
        """The scheduled model as a torch.nn.Module of its own, with the original's parameters (or copies of them).

        compile: None compiles fused parts alone; True ("nestor" where it is there, else "inductor"), a backend's name or a
        function compile the whole model with torch.compile, which options go to (mode=, dynamic=, options=). Weights of merged
        modules move into one parameter, which the original's share from then on.
        """
        return built(self.model, copy, compile, options)

    def __repr__(self):
        return Text("\n".join(
            [_described(self.model, ""), *(f"{number}. {step.what}" for number, step in enumerate(self.steps, 1))]))


def _matches(found):
    """What find gave, one of its matches or a list of them, as a list. Raises UserError for nothing and for other things."""
    if isinstance(found, Found):
        return found.some()
    found = [found] if isinstance(found, Match) else found
    if not isinstance(found, (list, tuple)) or not found or not all(isinstance(each, Match) for each in found):
        raise UserError(f"this step takes what find() found, one of its matches or a list of them, not {found!r}")
    return list(found)


def _several(given):
    if given is False or given is None:
        return ()
    return tuple(given) if isinstance(given, (list, tuple)) else (given, )


def _described(model, path):
    """A line about a module."""
    module = model.get_submodule(path)
    words = [f"{sum(each.numel() for each in module.parameters()):,} parameters"]
    generated = generated_of(module)
    if generated is not None and generated.graph is not None:
        words.append(f"traced, {sum(node.op.startswith('call') for node in generated.graph.nodes)} nodes")
    if checkpoint_of(module) is not None:
        words.append("checkpointed")
    also = [each for each in places_of(model, module) if each != path]
    if also:
        words.append(f"shared with {', '.join(also)}")
    return f"{path or 'the model'}: {base_of(module).__name__} ({', '.join(words)})"
