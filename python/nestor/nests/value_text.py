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
    divided = modulo(value)
    if divided:
        joined = " % ".join(text_of(part, depth + 1) for part in divided)
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


def why_not_affine(value):
    """Why something is no integer that isl can reason about, and what can be written instead."""
    said = f"{value!r} is no integer that is affine in indices and sizes"
    ops = _ops_of(value)
    if ops & {"read", "scalar", "reduce"}:
        return (f"{said}: it depends on data, which can neither index nor be an extent. To pick by data, compare it with an index: "
                "nestor.sum(nestor.select(at[i] == k, x[k], 0.0), over=k)")
    if ops & {"select", "min", "max", "abs"}:
        return f"{said}: it chooses between them. Choose between elements: nestor.select(i < n - 1, x[i + 1], x[i])"
    if "div" in ops:
        return (f"{said}: // and % take constants alone. For a place beyond a size, choose: "
                "nestor.select(i + 1 < n, x[i + 1], x[0])")
    if "mul" in ops:
        return f"{said}: it multiplies them by each other. A tensor with a product of sizes takes an index for each: f32[n, m]"
    return f"{said}: such are sums of them times constants, and // and % of these by constants"


def _ops_of(value):
    """The ops in a value, with "div" for the remainders in it."""
    ops, seen, waiting = set(), set(), [value]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not hasattr(node, "op"):
            continue
        seen.add(id(node))
        divided = modulo(node)
        ops.add("div" if divided else node.op)
        waiting += divided or node.args
    return ops
