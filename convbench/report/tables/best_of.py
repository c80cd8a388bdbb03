"""Best of N: the reward of the conversation that turn credit picks among N about one question.

Zhou et al. 2025 (SWEET-RL), best-of-N: a critic that picks well is one that credits well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb

from convbench.report.document import Cell, Column, Table
from convbench.report.measures import reward
from convbench.report.policies import Policy
from convbench.report.sections import Section
from convbench.report.tables.cells import number
from convbench.report.tables.results import ERRORS
from convbench.stats.means import ErrorKind, estimate
from convbench.store.credit import credit_by_source

ORACLE = "the best one (oracle)"
SIZES = (1, 2, 4, 8, 16, 32, 64)


def best_of_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the reward of the best of N by credit; None where no turn has credit, or where no
    question has two conversations with credit and reward."""
    if judge is None:
        return None
    lines = [
        (policy, source, found)
        for policy in section.policies
        for source, found in _questions(policy, judge)
    ]
    most = max((len(one) for _, _, found in lines for one in found.values()), default=0)
    if most < 2:
        return None
    sizes = [n for n in SIZES if n <= most]
    rows = []
    for policy, source, found in lines:
        asked = {name: one for name, one in found.items() if len(one) >= max(sizes)}
        for picker in (source, ORACLE):
            cells = []
            for n in sizes:
                values = (
                    (one[0][2], best_of([(s if picker == source else r, r) for s, r, _ in one], n))
                    for one in asked.values()
                )
                cells.append(number(estimate(values, kind), 3))
            rows.append((Cell(policy.name), Cell(picker), Cell(str(len(asked))), *cells))
    columns = (
        Column("Best of N by turn credit", "Method", False), Column("picked by", "By", False),
        Column("questions", "questions"), *(Column(f"N = {n}", f"N = {n}") for n in sizes),
    )  # fmt: skip
    notes = (
        "Expected reward of the conversation with the largest sum of its turns' advantages among N "
        "of a question's, drawn without putting back; N = 1 is the mean. A critic sees the hidden "
        "reference, so this says what its credit is worth, not what a policy can reach. Questions "
        f"with at least {max(sizes)} credited and judged conversations. Mean ± {ERRORS[kind]}.",
    )
    return Table(f"Best of N ({judge})", columns, tuple(rows), notes, "best-of-n")


Scored = tuple[float, float, str]
"""Credit of a whole conversation, its reward, and its question's group."""


def _questions(policy: Policy, judge: str) -> Iterator[tuple[str, dict[str, list[Scored]]]]:
    """Yield by source of credit what is known of each question's conversations."""
    value = reward(judge).value
    for source, credited in sorted(credit_by_source(policy.run).items()):
        found: dict[str, list[Scored]] = {}
        for row in policy.rows:
            turns, gained = credited.get(row.talk), value(row)
            if turns and gained is not None:
                one = (sum(turns.values()), gained, row.group)
                found.setdefault(row.unit.rpartition("#")[0], []).append(one)
        if found:
            yield source, found


def best_of(scored: Sequence[tuple[float, float]], n: int) -> float:
    """Return the expected second value of the pair with the largest first one among `n` drawn
    without putting back; pairs whose first values are equal are picked alike."""
    count = len(scored)
    order = sorted(scored, key=lambda one: -one[0])
    total, at = 0.0, 0
    while at < count:
        end = at
        while end < count and order[end][0] == order[at][0]:
            end += 1
        # The largest lies in this tie where none above it was drawn and one of it was.
        chance = (comb(count - at, n) - comb(count - end, n)) / comb(count, n)
        total += chance * sum(value for _, value in order[at:end]) / (end - at)
        at = end
    return total
