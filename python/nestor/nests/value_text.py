"""Values as text for messages: as their author wrote them, cut where they are long."""

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "pow": "**", "lt": "<", "le": "<=", "eq": "==", "and": "&", "or": "|",
          "bit_and": "&", "bit_or": "|", "bit_xor": "^", "shift_left": "<<", "shift_right_logical": ">>"}
_REDUCTIONS = {"add": "sum", "mul": "prod"}
_DEEPEST = 5


def text_of(value, depth=0):
    """A value in Python's notation; "..." stands for what is too deep."""
    if depth > _DEEPEST:
        return "..."
    args = [text_of(arg, depth + 1) for arg in value.args]
    if value.op == "read":
        tensor, at = value.payload
        return f"{tensor.name}[{', '.join(form.text() for form in at)}]"
    if value.op == "reduce":
        found, over = value.payload, ", ".join(index.name for index in value.payload.over)
        return f"{_REDUCTIONS.get(found.op, found.op)}({text_of(found.value, depth + 1)}, over={over})"
    if value.op in ("index", "condition"):
        return f"({value.payload.text()})" if depth and " " in value.payload.text() else value.payload.text()
    if not args:
        return str(value.payload)
    divided, shifted = modulo(value), shift_of(value)
    if divided or shifted:
        joined = (" % " if divided else " >> ").join(text_of(part, depth + 1) for part in divided or shifted)
    elif value.op in _SIGNS or value.op == "div":
        joined = f" {_SIGNS.get(value.op) or ('//' if value.type == 'i32' else '/')} ".join(args)
    else:
        name = value.type if value.op == "cast" else value.op
        return f"-{args[0]}" if name == "neg" else f"{name}({', '.join(args)})"
    return f"({joined})" if depth else joined


def modulo(value):
    """(a, b) of a value that `a % b` has made; None for others."""
    if value.op != "sub" or value.type != "i32" or value.args[1].op != "mul":
        return None
    quotient, divisor = value.args[1].args
    made = quotient.op == "div" and quotient.args[1] is divisor and quotient.args[0] is value.args[0]
    return (value.args[0], divisor) if made else None


def shift_of(value):
    """(x, s) of a value that `x >> s` has made for x of either sign; None for others."""
    if value.op != "bit_xor" or value.args[0].op != "shift_right_logical":
        return None
    (flipped, amount), mask = value.args[0].args, value.args[1]
    made = flipped.op == "bit_xor" and flipped.args[1] is mask and mask.op == "select" and mask.args[1].payload == -1
    return (flipped.args[0], amount) if made else None


def why_not_affine(value):
    """Why something is no integer that isl can reason about, and what can be written instead."""
    said = f"{value!r} is no integer that is affine in indices and sizes"
    if isinstance(value, slice) or value is Ellipsis or value is None:
        return f"{said}: a nest reads single elements, as x[i, k]. For all of them, nestor.sum(x[i, k], over=k) and others"
    nodes = nodes_within(value)
    ops = {node.op for node in nodes}
    if ops & {"read", "scalar", "reduce"}:
        return (f"{said}: it depends on data, which can neither index nor be an extent. To pick by data, compare it with an index: "
                "nestor.sum(nestor.select(at[i] == k, x[k], 0.0), over=k)")
    if ops & {"select", "min", "max", "abs"}:
        return f"{said}: it chooses between them. Choose between elements: nestor.select(i < n - 1, x[i + 1], x[i])"
    return f"{said}: {_why_not_linear(nodes)}"


def why_no_condition(value):
    """Why a value is no condition that isl can reason about, and what can be written instead."""
    said = f"`where` takes conditions that are affine in indices and sizes, not {value!r}"
    if value.type != "bool":
        return f"{said}: that is a number; compare it"
    nodes = nodes_within(value)
    ops = {node.op for node in nodes}
    if ops & {"read", "reduce"}:
        return f"{said}: of data, use nestor.select, as in nestor.sum(nestor.select(x[k] > 0, x[k], 0.0), over=k)"
    scalar = next((node.payload for node in nodes if node.op == "scalar"), None)
    if scalar is not None:
        return (f"{said}: the scalar argument {scalar} is data here. Make it a nestor.Size or a Python constant, or choose "
                "with nestor.select")
    return f"{said}: {_why_not_linear(nodes)}"


def _why_not_linear(nodes):
    """Why what these nodes make of indices and sizes is not affine: the reason and the remedy."""
    if any(node.op == "div" and node.type == "f32" for node in nodes):
        return "/ makes an f32 of them; the quotient of integers is //"
    number = next((node.payload for node in nodes if node.op == "constant" and node.type == "f32"), None)
    if number is not None:
        return f"{number} makes an f32 of them; " + (f"the integer is {int(number)}" if number % 1 == 0 else "use integers")
    quotient = next((node for node in nodes if node.op == "div" and node.type == "i32"), None)
    if quotient is not None and not any(_has_index(each) for each in nodes_within(quotient)):
        return (f"{text_of(quotient)} divides sizes. A tensor takes an index for each part, as f32[rows, heads, depth], or the "
                "divisor is a Python constant")
    if quotient is not None:
        return "// and % take constants alone. For a place beyond a size, choose: nestor.select(i + 1 < n, x[i + 1], x[0])"
    if any(node.op == "mul" for node in nodes):
        return ("it multiplies them by each other. Make one factor a Python constant, or give the tensor an index for each: "
                "f32[n, m]")
    return "such are sums of them times constants, and // and % of these by constants"


def _has_index(node):
    return node.op == "index" and any(hasattr(getattr(name, "owner", None), "extent") for name in node.payload.names())


def nodes_within(value):
    """The nodes of a value, with quotients alone for the remainders in it. Nothing for what is no value."""
    seen, waiting = {}, [value]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not hasattr(node, "op"):
            continue
        divided = modulo(node)
        if divided:
            waiting.append(node.args[1].args[0])
        else:
            seen[id(node)] = node
            waiting += node.args
    return list(seen.values())
