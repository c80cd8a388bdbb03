"""Two more wrong numbers, placed so that the numbers alone do not tell which one is right.

One slip is made from the worked solution and looks like the gold, the other is made in the same
way from the student's attempt and looks like the student's number: as many trailing zeros, as
many digits, the same last-digit parity. Where the two lie is drawn first: below both numbers,
between them or beyond them, such that the gold is equally often the smallest, second, third and
largest of the four. Among the numbers that fit best, the best explained ones are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from convbench.tasks.mathdial.working import Working, candidates

GOLD_SIDE, BETWEEN, STUDENT_SIDE = 0, 1, 2
"""Zones: beyond the gold, between gold and student, beyond the student."""

_STUDENT_ABOVE = 0.556
"""Share of students whose number is too large, measured on MathDial's test rows. Only because
it is not one half must the zones be drawn with unequal weights."""

_NEAR = 3
"""A slip further than this factor outside the two numbers is the last choice."""


@dataclass(frozen=True)
class Pair:
    """The two numbers that every question has."""

    gold: int
    student: int

    def zone(self, number: int) -> int:
        """Return which zone a number lies in."""
        low, high = sorted((self.gold, self.student))
        if low < number < high:
            return BETWEEN
        return GOLD_SIDE if (number < self.gold) == (self.gold < self.student) else STUDENT_SIDE

    def near(self, number: int) -> bool:
        """Return whether a number is of about the same size as these two."""
        low, high = sorted((self.gold, self.student))
        return low / _NEAR <= number <= high * _NEAR


def slips(pair: Pair, right: Working, attempt: Working, rng: Random) -> tuple[int, int] | None:
    """Return a slip like the gold and a slip like the student's number.

    `right` is the worked solution, `attempt` the student's. A gold of 1 gives None: nothing
    positive lies below it, so that its rank would tell it.
    """
    if pair.gold < 2:
        return None
    zones = _zones(pair, rng)
    known = {pair.gold, pair.student}
    first = _choose(candidates(pair.gold, right, known), pair.gold, pair, zones[0], rng)
    others = candidates(pair.student, attempt, known | {first})
    return first, _choose(others, pair.student, pair, zones[1], rng)


def _zones(pair: Pair, rng: Random) -> list[int]:
    """Draw the zones of the two slips, such that every rank of the gold is equally likely.

    With no slip on its own side the gold is the outermost of the four, which must happen in a
    quarter of all questions for either end. One or two slips there are equally likely, which
    evens out the two inner ranks whatever the share of students above.
    """
    share = _STUDENT_ABOVE if pair.student > pair.gold else 1 - _STUDENT_ABOVE
    one, two = (GOLD_SIDE, BETWEEN), (GOLD_SIDE, GOLD_SIDE)
    none = ((BETWEEN, BETWEEN), (BETWEEN, STUDENT_SIDE), (STUDENT_SIDE, STUDENT_SIDE))
    some = (two, two, one, (GOLD_SIDE, STUDENT_SIDE))
    zones = list(rng.choice(none if rng.random() < 0.25 / share else some))
    rng.shuffle(zones)
    return zones


def _choose(pool: dict[int, int], like: int, pair: Pair, zone: int, rng: Random) -> int:
    """Return one of the numbers of this pool that fit best. Its values rank the explanations."""

    def penalty(number: int) -> int:
        # In order of weight: rank of the gold, look of the number, place, size, explanation.
        return (
            200 * ((pair.zone(number) == GOLD_SIDE) != (zone == GOLD_SIDE))
            + 120 * (_ending(number) != _ending(like))
            + 60 * (len(str(number)) != len(str(like)))
            + 50 * (pair.zone(number) != zone)
            + 20 * (not pair.near(number))
            + pool[number]
        )

    best = min(map(penalty, pool))
    return rng.choice(sorted(number for number in pool if penalty(number) == best))


def _ending(number: int) -> tuple[int, bool, bool]:
    """Return what a number's end shows: its trailing zeros, divisible by 5, by 2."""
    text = str(number)
    return len(text) - len(text.rstrip("0")), number % 5 == 0, number % 2 == 0
