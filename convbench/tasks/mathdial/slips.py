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

from convbench.tasks.distractors import distance_features, kind_features, rank_features

_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_LINE = re.compile(rf"(?P<sign>-?)\s*+(?:\$\s*+)?(?P<digits>{_NUMBER})\s*[%.]?")


@dataclass(frozen=True)
class NumberFormat:
    """How all options of a question are written."""

    decimals: int
    """Digits after the point."""
    commas: bool
    """Whether thousands are grouped by commas."""

    def to_units(self, value: Decimal) -> int | None:
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


def read_number(line: str) -> Decimal | None:
    """Return the number that makes up this line, or None if the line holds anything else."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    value = Decimal(match["digits"].replace(",", ""))
    return -value if match["sign"] else value


def format_of(line: str) -> NumberFormat:
    """Return the format of a gold answer's line."""
    integer, _, fraction = line.strip("$% ").rstrip(".").partition(".")
    return NumberFormat(decimals=len(fraction), commas="," in integer)


def find_numbers(text: str) -> Iterator[Decimal]:
    """Yield every number in a text, without its sign."""
    for number in re.findall(_NUMBER, text):
        yield Decimal(number.replace(",", ""))


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
class QuestionNumbers:
    """The numbers of a question, in units of the options' format."""

    gold: int
    student: int
    problem: Counter[int]
    attempt: Counter[int]
    derived: Counter[int]
    """Results of one operation on two numbers of the texts, and in how many ways each is made."""
    from_student: frozenset[int]
    """Results of one operation on the student's number and any number, and that number itself."""

    @classmethod
    def from_texts(
        cls, problem: str, attempt: str, gold: int, student: int, form: NumberFormat
    ) -> QuestionNumbers:
        """Return the numbers in a question's texts."""
        texts = [list(find_numbers(text)) for text in (problem, attempt)]
        student_number = Decimal(student).scaleb(-form.decimals)
        known = sorted({*texts[0], *texts[1]} - {student_number})
        own = (
            x
            for other in (*known, student_number)
            for x in _operation_results(student_number, other)
        )
        pairs = itertools.combinations_with_replacement(known, 2)
        return cls(
            gold,
            student,
            problem=Counter(_writable_units(form, texts[0])),
            attempt=Counter(_writable_units(form, texts[1])),
            derived=Counter(
                _writable_units(form, (x for pair in pairs for x in _operation_results(*pair)))
            ),
            from_student=frozenset(_writable_units(form, own)),
        )

    def text_relations(self, number: int) -> Sequence[tuple[bool, ...]]:
        """Return how a number relates to the texts, the strictest description first: whether each
        text holds it, and whether one operation on their numbers, or on the student's, makes it."""
        in_problem, tried = number in self.problem, number in self.attempt
        is_derived, onwards = number in self.derived, number in self.from_student
        return (
            (in_problem, tried, is_derived, onwards),
            (in_problem, tried, is_derived or onwards),
            (in_problem or tried, is_derived or onwards),
        )

    def matching_relations(self, number: int) -> int:
        """Return in how many of these ways a number relates to the texts as the right answer
        does."""
        both = zip(self.text_relations(number), self.text_relations(self.gold), strict=True)
        return sum(own == right for own, right in both)

    def possible_slips(self, ratios: Sequence[float], rng: Random) -> list[int]:
        """Return the numbers that relate to the texts as the right answer does."""
        some = (*_USUAL, *rng.sample(ratios, min(_RATIOS, len(ratios))))
        like = (near for ratio in some for near in _round_near(self.student * ratio))
        pool = {*self.problem, *self.attempt, *self.derived, *self.from_student, *like}
        low, high = sorted((self.gold, self.student))
        return sorted(
            number
            for number in pool - {self.gold, self.student}
            if number > 0 and low / 10 <= number <= max(10, high * 10)
            if self.matching_relations(number)
        )

    def draw_pairs(self, ratios: Sequence[float], rng: Random) -> list[tuple[int, int]]:
        """Return randomly drawn pairs of slips, or an empty list if there are too few slips."""
        slips = self.possible_slips(ratios, rng)
        if len(slips) < _LEAST:
            return []
        weights = _kernel_weights(np.log(np.array(slips) / max(1, self.student)), np.log(ratios))
        strict = [
            weight * _STRICT ** self.matching_relations(x)
            for weight, x in zip(weights, slips, strict=True)
        ]
        drawn: list[tuple[int, int]] = []
        while len(drawn) < DRAWS:
            first, second = rng.choices(slips, strict, k=2)
            if first != second:
                drawn.append((first, second))
        return drawn

    def option_features(self, slips: tuple[int, int]) -> np.ndarray:
        """Return features of the right number: among those that can be right by all that is shown,
        and among all four by the numbers alone."""
        three = [self.gold, *slips]
        four = [*three, self.student]
        alone = np.array(
            [(*_digit_features(number), *_option_distances(number, four)) for number in four]
        )
        position = sum(number < self.gold for number in four)
        ranks = [float(position == rank) - 0.25 for rank in range(4)]
        far = np.array(
            [
                (*_option_distances(number, three), *_option_distances(number, four))
                for number in three
            ]
        )
        shown = np.hstack(
            [[(*_digit_features(number), *self._visible_features(number)) for number in three], far]
        )
        kinds = np.array([self._ratio_kinds(number) for number in three])
        return np.concatenate(
            [
                rank_features(shown),
                distance_features(far),
                kind_features(kinds, _KINDS),
                rank_features(alone),
                ranks,
            ]
        )

    def _ratio_kinds(self, number: int) -> tuple[int, ...]:
        """Return a number's kind of ratio to the student's, in how many ways one operation makes
        it, and how many numbers divide it."""
        ratio = math.log(max(1, number) / max(1, self.student))
        return (
            int(np.searchsorted(_EDGES, ratio)),
            min(4, self.derived[number]),
            min(4, sum(number % known == 0 for known in self._known_numbers if known > 1)),
        )

    def _visible_features(self, number: int) -> tuple[float, ...]:
        apart = number - self.student
        return (
            float(apart > 0),
            abs(apart),
            abs(math.log(max(1, number) / max(1, self.student))),
            float(abs(apart) in self._known_numbers),
            float(number % max(1, self.student) == 0 or self.student % number == 0),
            sum(number % known == 0 for known in self._known_numbers if known > 1),
            self.derived[number],
            float(number in self.derived),
            float(number in self.from_student),
            self.problem[number],
            self.attempt[number],
        )

    @cached_property
    def _known_numbers(self) -> frozenset[int]:
        return frozenset({*self.problem, *self.attempt})


def _kernel_weights(ratios: np.ndarray, others: np.ndarray) -> list[float]:
    """Return the likelihood of ratios by how near other questions' ratios are (logarithms; a
    kernel)."""
    apart = (ratios[:, None] - others[None, :]) / _WIDTH
    return [float(weight) for weight in np.exp(-(apart**2) / 2).sum(1) + 1e-3]


def _digit_features(number: int) -> tuple[float, ...]:
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


def _option_distances(number: int, options: Sequence[int]) -> tuple[float, float]:
    """Return the distance of the nearest other option, and the sum over all others (logarithms)."""
    others = [abs(math.log((1 + number) / (1 + other))) for other in options if other != number]
    return min(others), sum(others)


def _operation_results(a: Decimal, b: Decimal) -> Iterator[Decimal]:
    """Yield the results of the four operations on two numbers."""
    yield from (a + b, abs(a - b), a * b)
    yield from (x / y for x, y in ((a, b), (b, a)) if y)


def _writable_units(
    form: NumberFormat, values: Iterator[Decimal] | Sequence[Decimal]
) -> Iterator[int]:
    """Yield the values that the format can write, in its units."""
    scaled = (form.to_units(value) for value in values if value < 10**12)
    return (value for value in scaled if value is not None)


def _round_near(value: float) -> tuple[int, ...]:
    """Return whole numbers near a value: rounded to ones, tens and hundreds."""
    if value >= 1e12:
        return ()
    return tuple({int(round(value, -digits)) for digits in range(3)})
