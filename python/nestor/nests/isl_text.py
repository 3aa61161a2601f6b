"""Reads isl's notation, as nest files hold it, into conditions and affine functions.

Sets { S[i, j] : 0 <= i < n and ... }, relations { S[i] -> T[i + 1] : ... } and functions { [(n)] : n > 4; [(4)] : n <= 4 },
with floor, mod and chains of comparisons. `exists` is refused: isl writes it where a set cannot be said without.
"""

import dataclasses
import functools
import re
from typing import Tuple

from ..errors import UserError
from .affine import FALSE, TRUE, Affine, Condition, both, either

_TOKEN = re.compile(r"\s*(->|<=|>=|!=|[A-Za-z_][A-Za-z0-9_']*|\d+|[\[\]{}():;,<>=+\-*/])")


@dataclasses.dataclass(frozen=True)
class Piece:
    """{ name[dims] -> target[functions] : condition }; a set has no functions, a function of sizes no dims."""
    name: str
    dims: Tuple[str, ...]
    target: str
    functions: Tuple[Affine, ...]
    condition: Condition

    def text(self):
        """{ ... } without names of sizes."""
        target = f"{self.target}[{', '.join(f'({form.text()})' for form in self.functions)}]" if self.functions or self.target else ""
        parts = [f"{self.name}[{', '.join(self.dims)}]" if self.name else "", target]
        where = "" if self.condition == TRUE else f" : {self.condition.text()}"
        return f"{{ {' -> '.join(filter(None, parts))}{where} }}"


@functools.lru_cache(maxsize=65536)
def pieces(text):
    """The pieces of a set, relation or function. Raises UserError that quotes the text."""
    return _Parser(text).pieces()


def only_piece(text):
    """The one piece of a set, relation or function; None where it has several."""
    found = pieces(text)
    return found[0] if len(found) == 1 else None


def framed(text, body):
    """`body` behind the sizes that `text` starts with."""
    found = re.match(r"\[[^\]]*\] -> ", text)
    return (found[0] if found else "") + body


def with_sizes(sizes, text):
    """A text behind these names of sizes, in place of those that it starts with."""
    body = re.sub(r"^\[[^\]]*\] -> ", "", text)
    return f"[{', '.join(sizes)}] -> {body}" if sizes else body


class _Parser:
    def __init__(self, text):
        self.text = text
        self.tokens, end = [], 0
        while text[end:].strip():
            found = _TOKEN.match(text, end)
            if not found:
                self.refuse()
            self.tokens.append(found.group(1))
            end = found.end()
        self.at = 0

    def refuse(self, why="it is none of the sets, relations and functions that are read here"):
        raise UserError(f"\"{self.text}\": {why}")

    def peek(self, ahead=0):
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def take(self, *expected):
        token = self.peek()
        if not token or (expected and token not in expected):
            self.refuse(f"expected {' or '.join(expected) or 'more'} at \"{' '.join(self.tokens[self.at:self.at + 4])}\"")
        self.at += 1
        return token

    def accept(self, token):
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def pieces(self):
        if self.accept("["):
            while self.take() != "]":
                pass
            self.take("->")
        self.take("{")
        found = []
        while not self.accept("}"):
            found.append(self.piece())
            if not self.accept(";"):
                self.take("}")
                break
        if self.peek():
            self.refuse()
        return tuple(found)

    def piece(self):
        name, dims, target, functions = "", (), "", ()
        if self.peek() != ":" and self.peek() != "}":
            name, first = self.tuple()
            if self.accept("->"):
                target, functions = self.tuple()
                dims = self.names(first)
            elif name:
                dims = self.names(first)
            else:
                functions = first
        condition = TRUE
        if self.accept(":") and self.peek() not in ("}", ";"):
            condition = self.disjunction()
        return Piece(name, dims, target, functions, condition)

    def names(self, forms):
        for form in forms:
            if len(form.terms) != 1 or form.terms[0][1] != 1 or form.constant or not isinstance(form.terms[0][0], str):
                self.refuse("its dims must be names")
        return tuple(form.terms[0][0] for form in forms)

    def tuple(self):
        name = self.take() if self.peek() != "[" else ""
        self.take("[")
        forms = []
        while not self.accept("]"):
            forms.append(self.sum())
            if not self.accept(","):
                self.take("]")
                break
        return name, tuple(forms)

    def disjunction(self):
        parts = [self.conjunction()]
        while self.accept("or"):
            parts.append(self.conjunction())
        return either(*parts)

    def conjunction(self):
        parts = [self.condition()]
        while self.accept("and"):
            parts.append(self.condition())
        return both(*parts)

    def condition(self):
        if self.accept("not"):
            return ~self.condition()
        if self.peek() in ("true", "false"):
            return TRUE if self.take() == "true" else FALSE
        if self.peek() == "exists":
            self.refuse("it has `exists`, which is not read here")
        if self.peek() == "(":
            start = self.at
            try:  # a parenthesis around a condition, or the first of a sum
                self.at += 1
                inner = self.disjunction()
                self.take(")")
                return inner
            except UserError:
                self.at = start
        return self.comparison()

    def comparison(self):
        sides, found = self.sums(), []
        if self.peek() not in ("<", "<=", ">", ">=", "=", "!="):
            self.refuse("a comparison is missing")
        while self.peek() in ("<", "<=", ">", ">=", "=", "!="):
            op, others = self.take(), self.sums()
            for a in sides:
                for b in others:
                    found.append({"<": lambda: a < b, "<=": lambda: a <= b, ">": lambda: a > b, ">=": lambda: a >= b,
                                  "=": lambda: a.equals(b), "!=": lambda: ~a.equals(b)}[op]())
            sides = others
        return both(*found)

    def sums(self):
        found = [self.sum()]
        while self.accept(","):
            found.append(self.sum())
        return found

    def sum(self):
        negative = self.accept("-")
        total = self.product()
        total = -total if negative else total
        while self.peek() in ("+", "-"):
            negative = self.take() == "-"
            part = self.product()
            total = total - part if negative else total + part
        return total

    def product(self):
        result = self.factor()
        while True:
            if self.accept("*"):
                result = result * self.factor()
            elif self.accept("mod"):
                result = result % int(self.take())
            elif self.accept("/"):  # exact only inside floor, which takes it apart
                return _Quotient(result, int(self.take()))
            elif result.is_constant and (self.peek() == "(" or self.peek()[:1].isalpha()) and self.peek() not in (
                    "and", "or", "mod", "exists"):
                result = result * self.factor()
            else:
                return result

    def factor(self):
        token = self.take()
        if token.isdigit():
            return Affine((), int(token))
        if token == "(":
            inner = self.sum()
            self.take(")")
            return inner
        if token == "-":
            return -self.factor()
        if token == "floor":
            self.take("(")
            inner = self.sum()
            self.take(")")
            return inner.numerator // inner.denominator if isinstance(inner, _Quotient) else inner
        if not re.match(r"[A-Za-z_]", token):
            self.refuse(f"\"{token}\" is no number or name")
        return Affine.variable(token)


@dataclasses.dataclass(frozen=True)
class _Quotient:
    """What floor takes."""
    numerator: Affine
    denominator: int
    is_constant = False

    def __neg__(self):
        return _Quotient(-self.numerator, self.denominator)
