"""What a worked solution offers to make slips from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from convbench.tasks.mathdial.numbers import Format, numbers

_EQUATION = re.compile(
    r"(?P<a>\d[\d,.]*)\s*%?\s*[-+*/x×÷]\s*\$?\s*(?P<b>\d[\d,.]*)[^=\n]*=\s*\$?\s*"
    r"(?P<c>\d[\d,]*(?:\.\d+)?)"
)
_STEPS = frozenset(n * 10**power for power in range(7) for n in (1, 2, 3, 4, 5, 6, 8))


@dataclass(frozen=True)
class Working:
    """Numbers of a solution, in units of the options' format (`Format.units`)."""

    results: frozenset[int]
    """Results of all equations but the last."""
    last_step: frozenset[int]
    """The last equation's operands (its step left out), and its results under + - * /."""
    numbers: frozenset[int]
    """Every number of the problem and the solution."""


def working(problem: str, solution: str, form: Format) -> Working:
    """Return the numbers that slips of this solution are made of."""
    equations = list(_EQUATION.finditer(solution))
    last = equations[-1] if equations else None
    return Working(
        results=_units(form, *(found["c"] for found in equations[:-1])),
        last_step=frozenset(_last_step(last["a"], last["b"], form) if last else ()),
        numbers=_units(form, problem, solution),
    )


def candidates(number: int, work: Working, taken: Iterable[int]) -> dict[int, int]:
    """Return possible slips of a final number; values rank them, 0 the best explained.

    0: an intermediate result. 1: the last step left out or with another operation. 2: a number
    of the problem counted once too often, or left out. 3: a miscount by a round step, which
    there always is.
    """
    tiers = (
        work.results,
        work.last_step,
        _beside(number, work.numbers),
        _beside(number, _STEPS),
    )
    ranks: dict[int, int] = {}
    for rank, tier in enumerate(tiers):
        for slip in tier:
            ranks.setdefault(slip, rank)
    known = {number, *taken}
    return {slip: rank for slip, rank in ranks.items() if slip >= 1 and slip not in known}


def _beside(number: int, steps: Iterable[int]) -> set[int]:
    """Return the numbers that lie these steps above and below a number."""
    return {number + sign * step for step in steps for sign in (1, -1)}


def _last_step(a: str, b: str, form: Format) -> Iterator[int]:
    """Yield the operands of a op b, and what the four operations make of them."""
    for x in numbers(a):
        for y in numbers(b):
            results = [x, y, x + y, abs(x - y), x * y, *([x / y] if y else [])]
            yield from (unit for r in results if (unit := form.units(r)) is not None)


def _units(form: Format, *texts: str) -> frozenset[int]:
    """Return the numbers in these texts that the format can write, in its units."""
    found = (form.units(value) for text in texts for value in numbers(text))
    return frozenset(value for value in found if value is not None)
