"""Numbers as MathDial writes them, and two more wrong ones for each question, such that neither the
numbers nor the texts reveal the right one.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from random import Random

import numpy as np

from convbench.tasks.evening import among, apart, standing

_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_LINE = re.compile(rf"(?P<sign>-?)\s*+(?:\$\s*+)?(?P<digits>{_NUMBER})\s*[%.]?")


@dataclass(frozen=True)
class Format:
    """How all options of a question are written."""

    decimals: int
    """Digits after the point."""
    commas: bool
    """Whether thousands are grouped by commas."""

    def units(self, value: Decimal) -> int | None:
        """Return the value in units of the last written digit, or None if it needs more digits."""
        scaled = value.scaleb(self.decimals)
        return int(scaled) if scaled == scaled.to_integral_value() else None

    def write(self, units: int) -> str:
        """Return the text of a value given in units of the last written digit."""
        value = Decimal(units).scaleb(-self.decimals)
        return f"{value:{',' if self.commas else ''}.{self.decimals}f}"


def last_line(text: str) -> str:
    """Return the last line that is not blank: there MathDial puts the final number."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def read(line: str) -> Decimal | None:
    """Return the number that makes up this line, or None if the line holds anything else."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    value = Decimal(found["digits"].replace(",", ""))
    return -value if found["sign"] else value


def format_of(line: str) -> Format:
    """Return the format of a gold answer's line."""
    whole, _, fraction = line.strip("$% ").rstrip(".").partition(".")
    return Format(decimals=len(fraction), commas="," in whole)


def numbers(text: str) -> Iterator[Decimal]:
    """Yield every number in a text, without its sign."""
    for found in re.findall(_NUMBER, text):
        yield Decimal(found.replace(",", ""))


DRAWS = 60
"""Pairs of slips drawn for one question."""
_RATIOS = 40
"""Other questions' ratios tried for one question."""
_USUAL = (0.5, 0.6, 0.75, 0.8, 0.9, 1.1, 1.2, 1.25, 1.5, 2.0)
"""Ratios that are tried for every question."""
_LEAST = 3
"""Fewest possible slips of a question; with fewer, the right number could not be hidden."""
_STRICT = 8
"""How much likelier a slip is for each stricter way in which it relates to the texts as the right
answer does."""
_STEPS = (2, 3, 4, 5, 7, 8, 9, 10, 12, 100)
"""Divisors that are looked at."""

_BELOW = (1 / 8, 1 / 4, 0.4, 0.499, 0.501, 0.66, 0.8, 0.95, 1)
_ABOVE = (1.05, 1.25, 1.5, 1.99, 2.01, 2.5, 4, 8)
_EDGES = np.log((*_BELOW, *_ABOVE))
"""Limits of the kinds of ratios to the student's number; one half and twice are kinds of their
own."""
_KINDS = len(_EDGES) + 1
_WIDTH = 0.1


@dataclass(frozen=True)
class Case:
    """The numbers of a question, in units of the options' format."""

    gold: int
    student: int
    problem: Counter[int]
    attempt: Counter[int]
    made: Counter[int]
    """Results of one operation on two numbers of the texts, and in how many ways each is made."""
    from_student: frozenset[int]
    """Results of one operation on the student's number and any number, and that number itself."""

    @classmethod
    def of(cls, problem: str, attempt: str, gold: int, student: int, form: Format) -> Case:
        """Return the numbers in a question's texts."""
        texts = [list(numbers(text)) for text in (problem, attempt)]
        said = Decimal(student).scaleb(-form.decimals)
        known = sorted({*texts[0], *texts[1]} - {said})
        own = (x for other in (*known, said) for x in _made(said, other))
        pairs = itertools.combinations_with_replacement(known, 2)
        return cls(
            gold,
            student,
            problem=Counter(_units(form, texts[0])),
            attempt=Counter(_units(form, texts[1])),
            made=Counter(_units(form, (x for pair in pairs for x in _made(*pair)))),
            from_student=frozenset(_units(form, own)),
        )

    def stands(self, number: int) -> Sequence[tuple[bool, ...]]:
        """Return how a number relates to the texts, the strictest description first: whether each
        text holds it, and whether one operation on their numbers, or on the student's, makes it."""
        asked, tried = number in self.problem, number in self.attempt
        made, onwards = number in self.made, number in self.from_student
        return (
            (asked, tried, made, onwards),
            (asked, tried, made or onwards),
            (asked or tried, made or onwards),
        )

    def alike(self, number: int) -> int:
        """Return in how many of these ways a number relates to the texts as the right answer
        does."""
        both = zip(self.stands(number), self.stands(self.gold), strict=True)
        return sum(own == right for own, right in both)

    def slips(self, ratios: Sequence[float], rng: Random) -> list[int]:
        """Return the numbers that relate to the texts as the right answer does."""
        some = (*_USUAL, *rng.sample(ratios, min(_RATIOS, len(ratios))))
        like = (near for ratio in some for near in _near(self.student * ratio))
        pool = {*self.problem, *self.attempt, *self.made, *self.from_student, *like}
        low, high = sorted((self.gold, self.student))
        return sorted(
            number
            for number in pool - {self.gold, self.student}
            if number > 0 and low / 10 <= number <= max(10, high * 10)
            if self.alike(number)
        )

    def pairs(self, ratios: Sequence[float], rng: Random) -> list[tuple[int, int]]:
        """Return randomly drawn pairs of slips, or an empty list if there are too few slips."""
        found = self.slips(ratios, rng)
        if len(found) < _LEAST:
            return []
        weights = _likely(np.log(np.array(found) / max(1, self.student)), np.log(ratios))
        strict = [
            weight * _STRICT ** self.alike(x) for weight, x in zip(weights, found, strict=True)
        ]
        drawn: list[tuple[int, int]] = []
        while len(drawn) < DRAWS:
            first, second = rng.choices(found, strict, k=2)
            if first != second:
                drawn.append((first, second))
        return drawn

    def looks(self, slips: tuple[int, int]) -> np.ndarray:
        """Return features of the right number: among those that can be right by all that is shown,
        and among all four by the numbers alone."""
        three = [self.gold, *slips]
        four = [*three, self.student]
        alone = np.array([(*_form(number), *_far(number, four)) for number in four])
        place = sum(number < self.gold for number in four)
        ranks = [float(place == rank) - 0.25 for rank in range(4)]
        far = np.array([(*_far(number, three), *_far(number, four)) for number in three])
        shown = np.hstack([[(*_form(number), *self._shown(number)) for number in three], far])
        kinds = np.array([self._kinds(number) for number in three])
        return np.concatenate(
            [standing(shown), apart(far), among(kinds, _KINDS), standing(alone), ranks]
        )

    def _kinds(self, number: int) -> tuple[int, ...]:
        """Return a number's kind of ratio to the student's, in how many ways one operation makes
        it, and how many numbers divide it."""
        ratio = math.log(max(1, number) / max(1, self.student))
        return (
            int(np.searchsorted(_EDGES, ratio)),
            min(4, self.made[number]),
            min(4, sum(number % known == 0 for known in self._known if known > 1)),
        )

    def _shown(self, number: int) -> tuple[float, ...]:
        apart = number - self.student
        return (
            float(apart > 0),
            abs(apart),
            abs(math.log(max(1, number) / max(1, self.student))),
            float(abs(apart) in self._known),
            float(number % max(1, self.student) == 0 or self.student % number == 0),
            sum(number % known == 0 for known in self._known if known > 1),
            self.made[number],
            float(number in self.made),
            float(number in self.from_student),
            self.problem[number],
            self.attempt[number],
        )

    @cached_property
    def _known(self) -> frozenset[int]:
        return frozenset({*self.problem, *self.attempt})


def _likely(ratios: np.ndarray, others: np.ndarray) -> list[float]:
    """Return the likelihood of ratios by how near other questions' ratios are (logarithms; a
    kernel)."""
    apart = (ratios[:, None] - others[None, :]) / _WIDTH
    return [float(weight) for weight in np.exp(-(apart**2) / 2).sum(1) + 1e-3]


def _form(number: int) -> tuple[float, ...]:
    """Return visible features of a number: size, trailing zeros, digits, divisors."""
    text = str(number)
    return (
        number,
        len(text),
        len(text) - len(text.rstrip("0")),
        len(set(text)),
        float(text == text[::-1]),
        *(float(number % step == 0) for step in _STEPS),
    )


def _far(number: int, options: Sequence[int]) -> tuple[float, float]:
    """Return the distance of the nearest other option, and the sum over all others (logarithms)."""
    others = [abs(math.log((1 + number) / (1 + other))) for other in options if other != number]
    return min(others), sum(others)


def _made(a: Decimal, b: Decimal) -> Iterator[Decimal]:
    """Yield the results of the four operations on two numbers."""
    yield from (a + b, abs(a - b), a * b)
    yield from (x / y for x, y in ((a, b), (b, a)) if y)


def _units(form: Format, values: Iterator[Decimal] | Sequence[Decimal]) -> Iterator[int]:
    """Yield the values that the format can write, in its units."""
    found = (form.units(value) for value in values if value < 10**12)
    return (value for value in found if value is not None)


def _near(value: float) -> tuple[int, ...]:
    """Return whole numbers near a value: rounded to ones, tens and hundreds."""
    if value >= 1e12:
        return ()
    return tuple({int(round(value, -digits)) for digits in range(3)})
