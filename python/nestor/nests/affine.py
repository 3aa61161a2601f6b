"""Integers that are affine in indices and sizes, and conditions on them: what isl can reason about.

    Affine:    sums of variables and floor(affine / constant), each times an integer
    Condition: comparisons of such sums, joined by and, or, not

Both are immutable, compare equal when they are written alike, and print as isl's notation. A product of two variables is no
Affine: it raises NotAffine.
"""

import dataclasses
from typing import Tuple, Union

from ..errors import UserError
from .symbolic import Symbolic
from .value_text import why_not_affine


class NotAffine(UserError):
    """An integer that isl cannot express: a product or quotient of two variables."""


@dataclasses.dataclass(frozen=True)
class Floor:
    """floor(numerator / denominator), with a denominator of at least 2."""
    numerator: "Affine"
    denominator: int

    def text(self):
        return f"floor(({self.numerator.text()})/{self.denominator})"


Atom = Union[str, Floor]


def _order(atom):
    return (isinstance(atom, Floor), atom if isinstance(atom, str) else atom.text())


@dataclasses.dataclass(frozen=True)
class Affine:
    """constant + the sum of factor * atom; an atom is the name of a variable, or a Floor. Made by `affine`."""
    terms: Tuple[Tuple[Atom, int], ...]
    constant: int = 0

    @staticmethod
    def variable(name):
        return Affine(((name, 1),))

    @staticmethod
    def make(terms, constant=0):
        """From a dictionary {atom: factor}."""
        kept = sorted(((atom, factor) for atom, factor in terms.items() if factor), key=lambda term: _order(term[0]))
        return Affine(tuple(kept), constant)

    @property
    def is_constant(self):
        return not self.terms

    def __add__(self, other):
        other = _other(other)
        if other is None:
            return NotImplemented
        terms = dict(self.terms)
        for atom, factor in other.terms:
            terms[atom] = terms.get(atom, 0) + factor
        return Affine.make(terms, self.constant + other.constant)

    __radd__ = __add__

    def __neg__(self):
        return self.times(-1)

    def __sub__(self, other):
        other = _other(other)
        return NotImplemented if other is None else self + -other

    def __rsub__(self, other):
        return -self + other

    def times(self, factor):
        return Affine.make({atom: each * factor for atom, each in self.terms}, self.constant * factor)

    def __mul__(self, other):
        other = _other(other)
        if other is None:
            return NotImplemented
        if other.is_constant:
            return self.times(other.constant)
        if self.is_constant:
            return other.times(self.constant)
        raise NotAffine(f"({self}) * ({other}) is not affine: one of the factors must be a constant")

    __rmul__ = __mul__

    def __floordiv__(self, other):
        other = _other(other)
        if other is None:
            return NotImplemented
        if not other.is_constant or other.constant <= 0:
            raise NotAffine(f"({self}) // ({other}) is not affine: the divisor must be a positive constant")
        divisor = other.constant
        whole, rest = {}, {}
        for atom, factor in self.terms:
            (rest if factor % divisor else whole)[atom] = factor if factor % divisor else factor // divisor
        if divisor == 1 or not rest:
            return Affine.make(whole, self.constant // divisor)
        inner = Affine.make(rest, self.constant % divisor)
        (first, factor), *more = inner.terms
        quotient = Affine(((Floor(inner, divisor), 1),))
        if isinstance(first, Floor) and factor == 1 and not more:  # floor((floor(a / m) + c) / n) = floor((a + c m) / (m n))
            quotient = (first.numerator + inner.constant * first.denominator) // (divisor * first.denominator)
        return Affine.make(whole, self.constant // divisor) + quotient

    def __rfloordiv__(self, other):
        return affine(other) // self

    def __mod__(self, other):
        quotient = self // other
        return NotImplemented if quotient is NotImplemented else self - quotient * other

    def __rmod__(self, other):
        return affine(other) % self

    def __lt__(self, other):
        other = _other(other)
        return NotImplemented if other is None else at_least_zero(other - self - 1)

    def __le__(self, other):
        other = _other(other)
        return NotImplemented if other is None else at_least_zero(other - self)

    def __gt__(self, other):
        other = _other(other)
        return NotImplemented if other is None else at_least_zero(self - other - 1)

    def __ge__(self, other):
        other = _other(other)
        return NotImplemented if other is None else at_least_zero(self - other)

    def equals(self, other):
        """The condition that both are equal (== compares how they are written)."""
        difference = self - affine(other)
        if difference.is_constant:
            return TRUE if difference.constant == 0 else FALSE
        return Compare(difference, True)

    def names(self):
        """Names of the variables in it."""
        found = set()
        for atom, _ in self.terms:
            found |= {atom} if isinstance(atom, str) else atom.numerator.names()
        return found

    def substitute(self, values):
        """With variables replaced: {name: Affine or int}."""
        result = Affine((), self.constant)
        for atom, factor in self.terms:
            if isinstance(atom, str):
                replaced = affine(values[atom]) if atom in values else Affine.variable(atom)
            else:
                replaced = atom.numerator.substitute(values) // atom.denominator
            result = result + replaced.times(factor)
        return result

    def value(self, values):
        """At values of all its variables: numbers or numpy arrays of integers."""
        result = self.constant
        for atom, factor in self.terms:
            part = values[atom] if isinstance(atom, str) else atom.numerator.value(values) // atom.denominator
            result = result + part * factor
        return result

    def text(self):
        """In isl's notation."""
        text = ""
        for atom, factor in self.terms:
            name = atom if isinstance(atom, str) else atom.text()
            size = name if abs(factor) == 1 else f"{abs(factor)}{name}" if isinstance(atom, str) else f"{abs(factor)}*{name}"
            text += (" - " if factor < 0 else " + ") + size if text else ("-" if factor < 0 else "") + size
        if self.constant or not text:
            text += (f" - {-self.constant}" if self.constant < 0 else f" + {self.constant}") if text else str(self.constant)
        return text

    def __str__(self):
        return self.text()

    def __bool__(self):
        raise UserError(f"{self} is symbolic: it has no truth value while the nest is written")


def affine(value):
    """An int or a Size as an Affine. Raises NotAffine for anything else."""
    found = _other(value)
    if found is None:
        raise NotAffine(why_not_affine(value))
    return found


def _other(value):
    if isinstance(value, Affine):
        return value
    if hasattr(value, "__index__") and not isinstance(value, (bool, Symbolic)):
        return Affine((), value.__index__())
    converted = getattr(value, "affine", None)
    return converted if isinstance(converted, Affine) else None


class Condition:
    """A condition on indices and sizes: &, | and ~ join conditions, as `and`, `or` and `not` cannot be overloaded."""

    def __and__(self, other):
        return both(self, other) if isinstance(other, Condition) else NotImplemented

    def __or__(self, other):
        return ~(~self & ~other) if isinstance(other, Condition) else NotImplemented

    def __bool__(self):
        raise UserError(
            f"the condition {self.text()} has no truth value while the nest is written: join conditions with &, | and ~, "
            "and choose values with nestor.select")

    def __str__(self):
        return self.text()


@dataclasses.dataclass(frozen=True)
class Constant(Condition):
    holds: bool

    def __invert__(self):
        return FALSE if self.holds else TRUE

    def text(self):
        return "true" if self.holds else "false"

    def value(self, values):
        return self.holds

    def names(self):
        return set()

    def substitute(self, values):
        return self


TRUE, FALSE = Constant(True), Constant(False)


@dataclasses.dataclass(frozen=True)
class Compare(Condition):
    """form >= 0, or form = 0."""
    form: Affine
    equality: bool = False

    def __invert__(self):
        return Negated(self) if self.equality else at_least_zero(-self.form - 1)

    def text(self):
        positive = Affine.make({a: f for a, f in self.form.terms if f > 0}, max(self.form.constant, 0))
        negative = -Affine.make({a: f for a, f in self.form.terms if f < 0}, min(self.form.constant, 0))
        return f"{negative.text()} {'=' if self.equality else '<='} {positive.text()}"

    def value(self, values):
        found = self.form.value(values)
        return found == 0 if self.equality else found >= 0

    def names(self):
        return self.form.names()

    def substitute(self, values):
        form = self.form.substitute(values)
        return form.equals(0) if self.equality else at_least_zero(form)


@dataclasses.dataclass(frozen=True)
class Negated(Condition):
    """Not an equality: the only condition whose opposite is no comparison."""
    part: Compare

    def __invert__(self):
        return self.part

    def text(self):
        return self.part.text().replace(" = ", " != ")

    def value(self, values):
        return self.part.form.value(values) != 0

    def names(self):
        return self.part.names()

    def substitute(self, values):
        return ~self.part.substitute(values)


@dataclasses.dataclass(frozen=True)
class Joined(Condition):
    """All of `parts` (conjunction), or one of them."""
    parts: Tuple[Condition, ...]
    conjunction: bool

    def __invert__(self):
        return Joined(tuple(~part for part in self.parts), not self.conjunction)

    def text(self):
        inner = [f"({part.text()})" if isinstance(part, Joined) else part.text() for part in self.parts]
        return (" and " if self.conjunction else " or ").join(inner)

    def value(self, values):
        found = self.parts[0].value(values)
        for part in self.parts[1:]:
            other = part.value(values)
            found = found & other if self.conjunction else found | other
        return found

    def names(self):
        return set().union(*(part.names() for part in self.parts))

    def substitute(self, values):
        return _join([part.substitute(values) for part in self.parts], self.conjunction)


def at_least_zero(form):
    """The condition form >= 0."""
    if form.is_constant:
        return TRUE if form.constant >= 0 else FALSE
    return Compare(form)


def both(*conditions):
    """The condition that all of them hold."""
    return _join(conditions, True)


def either(*conditions):
    """The condition that one of them holds."""
    return _join(conditions, False)


def conjuncts(condition):
    """The conditions that one joins by `and`: itself, if it joins none."""
    return condition.parts if isinstance(condition, Joined) and condition.conjunction else (condition,)


def _join(conditions, conjunction):
    neutral, absorbing = (TRUE, FALSE) if conjunction else (FALSE, TRUE)
    parts = []
    for condition in conditions:
        if condition == absorbing:
            return absorbing
        inner = condition.parts if isinstance(condition, Joined) and condition.conjunction == conjunction else (condition,)
        parts += [part for part in inner if part != neutral and part not in parts]
    if not parts:
        return neutral
    return parts[0] if len(parts) == 1 else Joined(tuple(parts), conjunction)
