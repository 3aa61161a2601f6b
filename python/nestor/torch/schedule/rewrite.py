"""Edits of one module's graph: replacing matched nodes, and putting them into a module of their own."""

import operator

from torch import fx, nn

from ...errors import UserError
from .derived import Generated, checkpoint_of, derive, generated_of
from .graphs import between, copied, is_compute, ordered, sort, submodule, writes
from .matches import external
from .modes import MODE, mode_flag
from .ops import is_op, words_of
from .patterns import arity, traced_function
from .paths import refuse_hooks


class Edit:
    """A traced module's graph while it is changed; leaving the `with` gives the module its new forward.

    matches: all that will be changed, so that one change may touch what another has found.
    """

    def __init__(self, module, path, matches=()):
        self.module, self.path = module, path
        self.graph = copied(generated_of(module).graph)
        self._here = {match: match.here(self.graph) for match in matches}
        self._became = {}

    def here(self, match):
        """(nodes, inputs, outputs) of a match, after the changes so far."""
        nodes, inputs, outputs = self._here[match] if match in self._here else match.here(self.graph)
        return nodes, [fx.node.map_arg(each, self._now) for each in inputs], outputs

    def _now(self, node):
        while node in self._became:
            node = self._became[node]
        return node

    def __enter__(self):
        return self

    def __exit__(self, kind, _value, _trace):
        if kind is None:
            sort(self.graph)
            self.graph.lint()
            derive(self.module, generated=Generated(self.graph), checkpointing=checkpoint_of(self.module))

    def refuse_unsafe(self, nodes):
        """Raises UserError unless the nodes are convex, and neither they nor what runs between them writes into a tensor."""
        where = self.path or "the model"
        way = between(nodes)
        if way is not None:
            raise UserError(
                f"{', '.join(node.name for node in nodes)} in {where} are not convex: {way.name} lies between them, and is "
                "not one of them")
        inside = set(nodes)
        for node in self._span(nodes):
            if writes(node, self.module):
                place = "inside" if node in inside else "between its nodes"
                raise UserError(
                    f"{node.name} {place} writes into a tensor ({words_of(node.target)} in {where}): use the op that "
                    "returns its result instead")

    def _span(self, nodes):
        """From the first of the nodes to the last, all nodes of the graph."""
        found, inside = [], False
        left = set(nodes)
        for node in self.graph.nodes:
            inside = inside or node in left
            if inside:
                found.append(node)
                left.discard(node)
                if not left:
                    return found
        return found

    def new_name(self, name):
        """A name for a submodule that is free."""
        if not hasattr(self.module, name):
            return name
        number = 1
        while hasattr(self.module, f"{name}_{number}"):
            number += 1
        return f"{name}_{number}"

    def supersede(self, nodes, outputs, made):
        """Removes nodes, after others than themselves read `made` in place of their outputs."""
        inside = set(nodes)
        for old, new in zip(outputs, made):
            old.replace_all_uses_with(new, delete_user_cb=lambda user: user not in inside)
            self._became[old] = new
        for node in reversed(ordered(nodes)):
            if not node.users:
                self.graph.erase_node(node)


def replace(edit, match, by, name):
    """Puts a function or a module in place of a match. Returns words about it."""
    nodes, inputs, outputs = edit.here(match)
    edit.refuse_unsafe(nodes)
    for node in nodes:
        if node.op == "call_module":
            refuse_hooks(submodule(edit.module, node.target), f"{edit.path}.{node.target}".lstrip("."))
    inputs = [mode_flag(edit.graph) if each is MODE else each for each in inputs]
    last = ordered(nodes)[-1]
    with edit.graph.inserting_after(last):
        made, words = _called(edit, by, inputs, nodes, len(outputs), name)
    for old, new in zip(outputs, made):
        new.meta.setdefault("stack_trace", old.meta.get("stack_trace"))
    edit.supersede(nodes, outputs, made)
    return f"{', '.join(match.nodes)} -> {words}"


def _called(edit, by, inputs, nodes, count, name):
    """(the nodes of the results, words) of a call of `by`, placed at the graph's place."""
    if not callable(by):
        raise UserError(f"a match is replaced by a function or a module, not by {by!r}")
    takes = by.forward if isinstance(by, nn.Module) else by
    if not arity(takes, len(inputs)):
        raise UserError(f"{_words(by)} cannot take the {len(inputs)} input{'' if len(inputs) == 1 else 's'} of the match ("
                        f"{', '.join(map(str, inputs)) or 'none'})")
    if isinstance(by, nn.Module):
        target = _target_for(edit, by, nodes, name)
        return _parts(edit.graph, edit.graph.call_module(target, tuple(inputs)), count), f"{target} ({type(by).__name__})"
    inlined = None if is_op(by) else _inlined(edit, by, inputs, count)
    if inlined is not None:
        return inlined, _words(by)
    return _parts(edit.graph, edit.graph.call_function(by, tuple(inputs)), count), f"a call of {_words(by)}"


def _words(by):
    return type(by).__name__ if isinstance(by, nn.Module) else words_of(by)


def _target_for(edit, by, nodes, name):
    """Where a new module goes: in the place of the only module that it replaces, else under a name of its own."""
    only = nodes[0].target if len(nodes) == 1 and nodes[0].op == "call_module" else None
    alone = only is not None and sum(node.target == only for node in edit.graph.nodes) == 1
    if name is None and alone:
        parent, _, last = only.rpartition(".")
        setattr(edit.module.get_submodule(parent), last, by)
        return only
    made = edit.new_name(name or type(by).__name__.lower())
    edit.module.add_module(made, by)
    return made


def _parts(graph, call, count):
    """The nodes of a call's results; the graph's place has to be right behind the call."""
    if count == 1:
        return [call]
    made, after = [], call
    for number in range(count):
        with graph.inserting_after(after):
            after = graph.call_function(operator.getitem, (call, number))
        made.append(after)
    return made


def _inlined(edit, by, inputs, count):
    """The function's own nodes in the graph, or None where it has to stay a call."""
    try:
        graph, _ = traced_function(by, "the replacement")
    except UserError as error:
        if "cannot be traced" in str(error):
            return None
        raise
    known = dict(zip([node for node in graph.nodes if node.op == "placeholder"], inputs))
    marker = edit.graph.call_function(tuple, ())
    with edit.graph.inserting_before(marker):
        found = edit.graph.graph_copy(graph, known)
    edit.graph.erase_node(marker)
    made = list(found) if isinstance(found, (tuple, list)) else [found]
    if len(made) != count or not all(isinstance(each, fx.Node) for each in made):
        raise UserError(f"{_words(by)} returns {len(made)} value{'' if len(made) == 1 else 's'}, and the match has {count}")
    return made


class Region(nn.Module):
    """Nodes of a module's graph as a module of their own, which torch.compile compiles when the schedule is built.

    Modules that it calls stay where they are (so that a state_dict has their names), and are known here without being
    registered.
    """

    schedule_leaf = True

    def __init__(self, compiler, options):
        super().__init__()
        self.compiler, self.options = compiler, options  # of torch.compile
        self.targets = {}  # where modules that it calls are, by their names here
        self.backend = None

    def forward(self):
        raise NotImplementedError

    def start(self, backend):
        """Compiles by torch.compile from the first call on; a copy and a pickle do so again."""
        self.backend = backend
        if backend is not None:
            self.compile(backend=backend, **self.options)

    def __setstate__(self, state):
        super().__setstate__(state)
        self.start(self.backend)

    def extra_repr(self):
        return f"compiler={words_of(self.compiler)!r}"


def fuse(edit, match, compiler, name, options):
    """Puts a match into a Region. Returns words about it."""
    nodes, _, _ = edit.here(match)
    nodes = [node for node in ordered(nodes) if is_compute(node)]
    edit.refuse_unsafe(nodes)
    inputs, outputs = external(nodes)
    if not outputs:
        raise UserError(f"nothing reads what {', '.join(match.nodes)} compute")
    region = Region(compiler, options)
    graph = _region_graph(edit, region, nodes, inputs, outputs)
    derive(region, generated=Generated(graph))
    made = edit.new_name(name or "fused")
    edit.module.add_module(made, region)
    with edit.graph.inserting_after(nodes[-1]):
        call = edit.graph.call_module(made, tuple(inputs))
    call.meta["stack_trace"] = nodes[-1].meta.get("stack_trace")
    edit.supersede(nodes, outputs, _parts(edit.graph, call, len(outputs)))
    return f"{', '.join(match.nodes)} -> {made}"


def _region_graph(edit, region, nodes, inputs, outputs):
    graph = fx.Graph()
    known = {node: graph.placeholder(node.name) for node in inputs}
    for node in nodes:
        made = graph.node_copy(node, lambda each: known[each])
        if node.op == "call_module":
            made.target = node.target.replace(".", "_")
            region.__dict__[made.target] = submodule(edit.module, node.target)
            region.targets[made.target] = node.target
        known[node] = made
    graph.output(known[outputs[0]] if len(outputs) == 1 else tuple(known[each] for each in outputs))
    return graph


def unfuse(edit, node):
    """Puts a region's nodes back. Returns words about it."""
    region = submodule(edit.module, node.target)
    graph = generated_of(region).graph
    known = dict(zip([each for each in graph.nodes if each.op == "placeholder"], node.args))
    with edit.graph.inserting_before(node):
        found = edit.graph.graph_copy(graph, known)
    for each, made in known.items():
        if each.op == "call_module":
            made.target = region.targets[each.target]
    if isinstance(found, tuple):
        _unpacked(edit.graph, node, found)
    else:
        node.replace_all_uses_with(found)
    edit.graph.erase_node(node)
    edit.module.__delattr__(node.target)
    return f"{node.target} -> its nodes"


def _unpacked(graph, node, values):
    """Lets the readers of a node with several results read these values."""
    for user in list(node.users):
        if user.target is operator.getitem and user.args[0] is node:
            user.replace_all_uses_with(values[user.args[1]])
            graph.erase_node(user)
    if node.users:  # another fused part takes all of them
        with graph.inserting_before(node):
            node.replace_all_uses_with(graph.call_function(tuple, (list(values), )))
