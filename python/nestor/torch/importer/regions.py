"""Which nodes of a graph become nests together: a walk that converts every node, and the regions that follow.

Every node has a depth: what PyTorch must compute adds one. Nodes of one depth that are connected are a region: no path leaves
it and comes back, so it is convex. Views and what follows from indices alone belong to none: each region that uses them has its
own.
"""

import collections
import dataclasses
import operator
import warnings

import torch

from ...errors import UserError
from ...nests.affine import NotAffine, affine
from ...nests.assemble import assemble, reads_of, tensors_of, tolerance_of, updates_of
from .copies import copies_of
from .draws import are_drawn
from .exact import Exactness
from .extents import Symbols, Unsupported, atoms_of, expression
from .graph import (Context, contracted_length, dtype_text, factors_of, is_product, kind_of, live_nodes, mutates,
                    require_elements, values_of)
from .lazy import ELEMENTS, READABLE, Builder, Lazy, element_type
from .needed import shrink
from .operand import Operand, resolved
from .parts import Origin, Partition, Port, Region
from .table import RULES, name_of

_FREE = ("view", "index")  # kinds of ops that cost nothing: each region has its own
_ROOTS = ("reduction", "product", "definition")  # what a region is worth a kernel for
_LONGEST_CHAIN = 64  # of ops whose values are one expression: Python's stack is as deep as a few times that
_MOST_CALLS = 96  # the same of what is not stored
_MOST_COLUMNS = 512  # f32 sums of a row that a multiprocessor's registers hold for the rows of a tile


def partition(graph, hints=None, cut="memory", excluded=None):
    """The regions of a graph of ATen ops with shapes in node.meta["val"]. hints: a likely value for each symbol, by name;
    excluded: {node: why} of nodes that PyTorch shall compute.

    cut: "memory": a reduction or product starts a region of its own where it reads a result of products that is no larger than
    what that was computed from; a product also where it reads one of reductions, or has more columns than a multiprocessor can
    sum while rows of that result pass by. So attention stays whole, since its scores are larger than queries and keys, and a
    norm after a linear layer does not join it, nor a second wide linear layer. Products of one shape that share a factor are
    one region. "never": regions are as large as dependences allow.
    """
    if cut not in ("memory", "never"):
        raise UserError(f'cut is "memory" or "never", not {cut!r}')
    excluded, late, least, copied = dict(excluded or {}), set(), {}, set()
    while True:
        walk = _Walk(graph, excluded, late, least, copied, hints, cut == "memory")
        copies = copies_of(walk)
        if copies:
            copied |= copies
            continue
        refused, raised = walk.refused_outputs(), {}
        if not refused:
            refused, raised = walk.without_root()
        moved = set() if refused or raised else walk.better_late()
        if not refused and not raised and not moved:
            return walk.partition()
        excluded.update(refused)
        least.update(raised)
        late |= moved


class _Walk:
    """One pass over a graph. excluded: {node: why PyTorch computes it}; late: nodes that start a region; least: {node: the
    least depth that it may have}; copied: nodes that each reader computes for itself; cut: whether regions are cut at results
    that memory may hold. plain: what members are before they are stored."""

    def __init__(self, graph, excluded, late, least, copied, hints, cut):
        self.graph, self.excluded, self.late, self.least, self.copied, self.cut = graph, excluded, late, least, copied, cut
        self.plain = {}
        self.symbols = Symbols(hints)
        self.origins = {}
        self.depth, self.left = {}, dict(excluded)
        self.members, self.free = {}, set()
        self.builders, self.arguments, self._converted = {}, {}, {}
        self.needed = set()
        self._exact, self._chains = Exactness(), {}
        self._floor = 0
        self._uses = {}
        live = live_nodes(graph)
        for node in reversed(graph.nodes):
            users = [user for user in node.users if user in live]
            self._uses[node] = sum(self._uses[user] if kind_of(user) in _FREE else 1 for user in users)
        for node in graph.nodes:
            if node in live:
                self._visit(node)
        for node in graph.nodes:
            if node.op == "output":
                self._need_all(node)

    def _visit(self, node):
        if node.op != "call_function":
            self.depth[node] = self._floor
            return
        if values_of(node) is None or self._is_part_of_outside(node):
            self._outside(node, None)
        elif mutates(node):
            self._floor = 1 + max(self.depth.values(), default=0)
            self._outside(node, "it writes into an argument")
            self.depth[node] = self._floor
        elif node in self.excluded:
            self._outside(node, self.excluded[node])
        elif kind_of(node) is None:
            self._outside(node, f"no rule for {name_of(node.target)}")
        else:
            self._convert(node)

    def _is_part_of_outside(self, node):
        """Whether a node is one of several results of what PyTorch computes."""
        return node.target is operator.getitem and node.args[0] not in self.members and node.args[0] not in self.free

    def _convert(self, node):
        depth = self._input_depth(node)
        if self.cut and (node in self.late or self._starts_region(node, depth)):
            depth += 1
        depth = max(depth, self.least.get(node, 0))
        first = None
        for attempt in range(2):
            try:
                found = self._apply(node, depth + attempt)
            except (Unsupported, NotAffine) as error:
                first = first or str(error)
                continue
            self.depth[node] = depth + attempt
            if self._is_free(node, found):
                self.free.add(node)
                self._converted[node, depth + attempt] = found
            else:
                self.plain[node] = found
                self.members[node] = self._kept(node, found, self._builder(depth + attempt))
                self.origins[node] = self._origin(node)
            return
        self._outside(node, first)

    def _origin(self, node):
        """What a member was computed from, inside its region."""
        bases = self._bases(node)
        inside = [self.origins[base] for base in bases if self.depth[base] == self.depth[node]]
        outside = [
            self.elements(base) for base in self.sources(node)
            if base not in self.members or self.depth[base] != self.depth[node]
        ]
        return Origin(any(each.product for each in inside) or is_product(node),
                      any(each.root for each in inside) or kind_of(node) in _ROOTS,
                      max([0, *outside, *(each.elements for each in inside)]))

    def _starts_region(self, node, depth):
        """Whether a reduction or product reads a result that memory holds as well as what it came from."""
        if kind_of(node) not in _ROOTS:
            return False
        product = is_product(node)
        for operand in node.all_input_nodes:
            for base in [operand] if operand in self.members else self._bases(operand) if operand in self.free else []:
                origin = self.origins[base]
                if self.depth[base] == depth and (origin.product or (product and origin.root)) and (
                        min(self.elements(base), self.elements(operand)) <= origin.elements
                        or self._columns(node, operand) > _MOST_COLUMNS):
                    return True
        return False

    def _columns(self, node, operand):
        """How many sums a product has for each row of an operand that it contracts; 0 where that is not known."""
        length = contracted_length(node)
        return 0 if length is None else self.elements(node) * self.symbols.number(length) // self.elements(operand)

    def elements(self, node):
        """The number of elements of a node's first tensor, at likely sizes."""
        tensors = values_of(node)
        return self.symbols.elements(tensors[0]) if tensors and tensors[0] is not None else 1

    def sources(self, node):
        """The nodes with data that a node reads, itself or through views: members and what comes from outside."""
        found, waiting = [], list(node.all_input_nodes)
        while waiting:
            each = waiting.pop()
            if each in self.free:
                waiting += each.all_input_nodes
            elif values_of(each):
                found.append(each)
        return found

    def _is_free(self, node, found):
        if node.target is operator.getitem:
            return node.args[0] in self.free
        lazies = found if isinstance(found, tuple) else (found,)
        return kind_of(node) in _FREE or node in self.copied or not any(each.data for each in lazies if isinstance(each, Lazy))

    def _kept(self, node, found, builder):
        """What is read more than once is stored, unless it costs nothing; and what is made by a long chain of ops."""
        if isinstance(found, Lazy) and (self._uses[node] > 1 or self._chains[node] > _LONGEST_CHAIN):
            kept = builder.cheap(found, Context(builder, node).name)
            self._chains[node] = self._chains[node] if kept is found else 0
            return kept
        return found

    def _input_depth(self, node):
        return max([self._floor, *(self.depth[each] for each in node.all_input_nodes)])

    def _outside(self, node, reason):
        self.depth[node] = max([self._floor, *(self.depth[each] + (self._is_member(each)) for each in node.all_input_nodes)])
        if reason is not None:
            self.left[node] = reason
        self._need_all(node)

    def _is_member(self, node):
        """Whether a node is computed in a region, itself or what it is a view of."""
        if node in self.members:
            return True
        return node in self.free and any(self._is_member(each) for each in node.all_input_nodes)

    def _need_all(self, node):
        for each in node.all_input_nodes:
            self._need(each)

    def _need(self, node):
        """The node's tensor has to be in memory."""
        if node in self.needed:
            return
        self.needed.add(node)
        if node in self.free:
            self._need_all(node)

    def _builder(self, depth):
        if depth not in self.builders:
            self.builders[depth] = Builder(self.symbols)
        return self.builders[depth]

    def _apply(self, node, depth):
        """The node's result as Lazies, with operands as the region of this depth has them."""
        self._chains[node] = 1 + max((self._chains.get(each, 0) for each in node.all_input_nodes), default=0)
        if self._chains[node] > _MOST_CALLS:
            raise Unsupported(f"more than {_MOST_CALLS} ops on integers and conditions in a row")
        if node.target is operator.getitem:
            found = self.operand(node.args[0], depth)
            found = found[node.args[1]]
            if isinstance(found, Unsupported):
                raise found
            return found
        context = Context(self._builder(depth), node)
        rule = RULES[context.op]
        args = [torch.fx.map_arg(arg, lambda each: Operand(self, each, depth, number in rule.words))
                for number, arg in enumerate(node.args)]
        kwargs = torch.fx.map_arg(node.kwargs, lambda each: Operand(self, each, depth))
        require_elements(values_of(node)[0])
        try:
            found = rule.convert(context, *resolved(args), **resolved(kwargs))
            for each in found if isinstance(found, tuple) else (found,):
                if isinstance(each, Lazy):
                    self._require_exact(each, context.builder)
        except (Unsupported, NotAffine):
            raise
        except UserError as error:  # what nests have no words for
            raise Unsupported(str(error)) from error
        except Exception as error:  # noqa: BLE001  a bug of ours ends a region, not the import
            warnings.warn(f"nestor: the rule for {name_of(node.target)} failed, which is a bug: {error!r}", stacklevel=2)
            raise Unsupported(f"its rule failed: {error!r}") from error
        return found

    def _require_exact(self, lazy, builder):
        """Raises Unsupported unless elements can be said, and are PyTorch's."""
        ranges = {f"?{number}": extent for number, extent in enumerate(builder.extents(lazy.atoms))}
        self._exact.require(lazy.probe(), lazy.dtype == torch.int64, ranges)

    def operand(self, node, depth, words=False):
        """What a node gives in the region of this depth: Lazies, or a size. words: its two words of 32 bits."""
        if words:
            if node in self.members and self.depth[node] == depth:
                raise Unsupported("an integer of 64 bits that is computed where its words are read")
            return self._argument(node, depth, True)
        if values_of(node) is None:
            return node.meta.get("val")
        if node in self.free:
            if (node, depth) not in self._converted:
                try:
                    self._converted[node, depth] = self._apply(node, depth)
                except (Unsupported, NotAffine):
                    self._converted[node, depth] = self._argument(node, depth)
            return self._converted[node, depth]
        if node in self.members and self.depth[node] == depth:
            return self.members[node]
        return self._argument(node, depth)

    def _argument(self, node, depth, words=False):
        """The node's tensor, or the two words of its one integer, as a tensor that comes from outside the region."""
        if (node, depth, words) not in self.arguments:
            tensors = values_of(node)
            if len(tensors) != 1 or not isinstance(tensors[0], torch.Tensor) or isinstance(node.meta["val"], (tuple, list)):
                raise Unsupported("several results of a node of another region")
            element_type(tensors[0].dtype, READABLE)
            require_elements(tensors[0])
            dims, dtype = tuple(atoms_of(extent) for extent in tensors[0].shape), tensors[0].dtype
            if words:
                if dims or dtype != torch.int64:
                    raise Unsupported("words of what is not one integer of 64 bits")
                dims, dtype = (atoms_of(2),), torch.int32
            self.arguments[node, depth, words] = self._builder(depth).argument("x", dims, dtype)
        self._need(node)
        return self.arguments[node, depth, words]

    def refused_outputs(self):
        """{node: why} for members whose results are needed outside but have no type that tensors of nests have. A result that
        cannot be made (the place of a maximum) takes the node that it comes from with it."""
        found = {}
        for node in self.needed:
            if node in self.members and isinstance(self.members[node], Lazy) and values_of(node)[0].dtype not in ELEMENTS:
                found[node] = f"its result is needed outside, and the nest format has no tensors of {dtype_text(node)}"
        for node, reason in self.left.items():
            if node.target is operator.getitem and node.args[0] in self.members:
                found[node.args[0]] = reason
        for node in self.needed:
            if node in self.members and isinstance(self.members[node], tuple) and any(
                    user.target is not operator.getitem for user in node.users):
                found[node] = "its results are used together"
        return {node: why for node, why in found.items() if node not in self.excluded}

    def without_root(self):
        """({node: why}, {node: depth}) for members of what would be regions without a reduction or product: those that one
        later region alone reads may join it, the others are PyTorch's. Random numbers may besides be results of the graph."""
        refused, raised = {}, {}
        readers = self.readers()
        for nodes in self._components():
            if any(kind_of(node) in _ROOTS for node in nodes):
                continue
            depths = {self.depth[reader] for node in nodes for reader in readers.get(node, ())} - {self.depth[nodes[0]]}
            drawn = are_drawn(self, nodes)
            outside = any(self._is_outside(user, not drawn) for node in nodes for user in node.users)
            if len(depths) == 1 and not outside and (drawn or not any(node in self.least for node in nodes)):
                raised.update(dict.fromkeys(nodes, depths.pop()))
            else:
                refused.update(dict.fromkeys(nodes, "pointwise ops alone: PyTorch fuses them"))
        return refused, raised

    def readers(self):
        """{member: the members that read it, themselves or through views}"""
        found = {}
        for node in self.members:
            for base in self._bases(node):
                found.setdefault(base, []).append(node)
        return found

    def better_late(self):
        """Pointwise members that belong to the regions of their readers: each of one source, read by reductions of other
        regions alone, or no smaller elements of the source than their own; so that memory holds the source in their place."""
        return {node for node, found in self.readers().items()
                if self.cut and kind_of(node) == "pointwise" and node not in self.late and len(set(self.sources(node))) == 1
                and self._bases(node) and not any(self._is_outside(user) for user in node.users)
                and all(self.depth[each] > self.depth[node] and not is_product(each) for each in found)
                and (all(kind_of(each) in _ROOTS for each in found) or self._widens(node))}

    def _widens(self, node):
        """Whether a node's elements take more bytes than those of its one source, of which there are as many."""
        source, own = values_of(self.sources(node)[0])[0], values_of(node)[0]
        return source.dtype.itemsize < own.dtype.itemsize and self.elements(self.sources(node)[0]) == self.elements(node)

    def _is_outside(self, node, result=True):
        """Whether what PyTorch computes reads a node, itself or through views. result: whether the graph's results count."""
        if node.op == "output":
            return result
        return node not in self.members and (node not in self.free or any(self._is_outside(user, result) for user in node.users))

    def partition(self):
        return Partition([self._region(nodes) for nodes in self._components()], self.left)

    def _components(self):
        """Connected members of one depth, in an order in which they can run."""
        parent = {node: node for node in self.members}

        def root(node):
            while parent[node] is not node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        for node in self.members:
            for base in self._bases(node):
                if self.depth[base] == self.depth[node]:
                    parent[root(node)] = root(base)
        for one, other in self._shared_factors(root) if self.cut else ():
            parent[root(other)] = root(one)
        groups = {}
        for node in self.members:
            groups.setdefault(root(node), []).append(node)
        return sorted(groups.values(), key=lambda nodes: self.depth[nodes[0]])

    def _shared_factors(self, root):
        """Pairs of products of one depth and shape that multiply the same tensor with others, each alone in its component: one
        kernel reads that tensor once for all of them. root(node) names a node's component."""
        count, first = collections.Counter(map(root, self.members)), {}
        for node in self.members:
            if count[root(node)] == 1 and contracted_length(node) is not None:
                factor = factors_of(node)[0]
                shapes = [tuple(map(expression, values_of(each)[0].shape)) for each in (factor, node)]
                shared = self.depth[node], tuple(self.sources(factor) if factor in self.free else [factor]), *shapes
                if shared in first:
                    yield first[shared], node
                first.setdefault(shared, node)

    def _bases(self, node):
        """The members that a node reads, itself or through views."""
        return [each for each in self.sources(node) if each in self.members]

    def _region(self, nodes):
        depth = self.depth[nodes[0]]
        builder = self._builder(depth)
        inside, outputs = set(nodes), []
        arguments = {id(lazy.leaf): (node, lazy) for (node, at, _), lazy in self.arguments.items() if at == depth}
        for node in nodes:
            if node in self.needed and isinstance(self.members[node], Lazy):
                lazy = self.members[node]
                tensor = self._output(builder, lazy, f"y{len(outputs)}", values_of(node)[0].dtype, arguments, outputs)
                outputs.append((tensor, node, lazy))
        tensors = [tensor for tensor, _, _ in outputs]
        shrink(tensors)
        inputs = _named_inputs(tensors, arguments)
        variant = element_type(values_of(outputs[0][1])[0].dtype)
        tolerance = tolerance_of(variant)
        for tensor in tensors:
            own = tolerance_of(tensor.type)
            tensor.tolerance = own if own != tolerance else None
        nest = assemble("captured", variant, tensors, arguments=[lazy.leaf for _, lazy in inputs], tolerance=tolerance,
                        require=_conditions_on(tensors, builder.conditions))
        return Region(_named(nest), [node for node in self.graph.nodes if node in inside],
                      [Port(lazy.leaf.name, node, lazy.atoms, lazy.dtype != values_of(node)[0].dtype) for node, lazy in inputs],
                      [Port(tensor.name, node, lazy.atoms) for tensor, node, lazy in outputs])

    def _output(self, builder, lazy, name, dtype, arguments, outputs):
        """The tensor that holds a result: the one that it was stored in, if that has the type; else a copy."""
        kind, leaf = element_type(dtype), lazy.leaf
        taken = [tensor for tensor, _, _ in outputs]
        if leaf is not None and leaf.type == kind and id(leaf) not in arguments and all(leaf is not each for each in taken):
            leaf.name = name
            return leaf
        return builder.stored(lazy, name, kind).leaf


def _conditions_on(outputs, conditions):
    """Those of conditions that are on sizes of these outputs and of what they are computed from."""
    names = {name for tensor in tensors_of(outputs) for extent in tensor.shape for name in affine(extent).names()}
    places = [form for update in updates_of(outputs) for _, at in reads_of(update.value) for form in at]
    names |= {name for form in places for name in form.names()}
    return [condition for condition in conditions if condition.names() <= names]


def _named_inputs(outputs, arguments):
    """(node, Lazy) of the arguments that a region reads, named in the order in which it does."""
    inputs = []
    for tensor in tensors_of(outputs):
        if id(tensor) in arguments:
            tensor.name = f"x{len(inputs)}"
            inputs.append(arguments[id(tensor)])
    return inputs


def _named(nest):
    """The nest with a name that follows from what it is, so that equal regions share their kernels."""
    return dataclasses.replace(nest, op=f"captured_{nest.fingerprint()[:16]}")
