"""How far our order of the methods agrees with the printed one: a line a table."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import fsum

from convbench.report.document import Cell, Column, Table
from convbench.report.experiment.beside import Beside
from convbench.report.experiment.printed import measures_for
from convbench.report.measures import ACCURACY, Measure
from convbench.report.policies import Policy
from convbench.report.published import paper_key
from convbench.report.tables.cells import NONE
from convbench.stats.kendall import DRAWS, Agreement, agreement

Compared = Sequence[tuple[Policy, float]]
"""Our policies with what is printed for them."""
Sums = Mapping[str, tuple[float, int]]
"""Group → sum and count of its conversations' numbers."""


def order_table(found: Sequence[Beside]) -> Table | None:
    """Return Kendall's tau of every table's methods by accuracy and by the overall score, then of
    each method by the number of turns; None where no two methods can be ordered."""
    rows = [row for one in found if (row := _line(one)) is not None]
    rows += _by_turns(found)
    if not rows:
        return None
    columns = (
        Column("Table", "Table", numeric=False), Column("Setting", "Setting", numeric=False),
        Column("Regime", "Regime", numeric=False), Column("n", "n"),
        Column("τ, accuracy", "τ acc."), Column("95% interval", "95%"), Column("p", "p"),
        Column("τ, R Overall", "τ R"), Column("95% interval", "95%"), Column("p", "p"),
    )  # fmt: skip
    notes = (
        "τ: Kendall's tau-b of our means with the printed ones over the n methods that both have "
        "(1 the same order, -1 the reverse, 0 no agreement; ties allowed for). Interval: "
        f"percentiles of {DRAWS} bootstrap samples of our questions, the same for all methods, the "
        "printed means as they are. p: exact, the share of all orders that agree at least as well. "
        "With two methods τ is 1 or -1 and p at least .5.",
    )
    return Table("Ordering agreement with the printed tables", columns, tuple(rows), notes, "order")


def _line(one: Beside) -> tuple[Cell, ...] | None:
    """Return the line of a table; None with fewer than two methods."""
    if one.section is None:
        return None
    accuracy, overall = _measures(one)
    found = [agree(_pairs(one, measure), measure) for measure in (accuracy, overall)]
    n = max(len(_pairs(one, measure)) for measure in (accuracy, overall))
    if n < 2:
        return None
    number, _, setting = one.title.partition(": ")
    regime = one.section.regime
    return Cell(number), Cell(setting), Cell(regime), Cell(str(n)), *_cells(found)


def _by_turns(found: Sequence[Beside]) -> Iterator[tuple[Cell, ...]]:
    """Yield a line for each method that was measured at several numbers of turns beyond the
    usual one: whether it falls and rises with n as printed."""
    longer = [one for one in found if one.section is not None and one.printed.turns > 3]
    for method in dict.fromkeys(name for one in longer for name in one.ours):
        parts = [
            [pair for one in longer for pair in _pairs(one, _measures(one)[place], (method,))]
            for place in (0, 1)
        ]
        if max(map(len, parts)) < 2:
            continue
        measures = _measures(longer[0])
        agreed = [agree(pairs, m) for pairs, m in zip(parts, measures, strict=True)]
        numbers = [str(one.printed.number) for one in longer if method in one.ours]
        section = longer[0].section
        assert section is not None
        yield (
            Cell(f"Tables {numbers[0]} to {numbers[-1]}"),
            Cell(f"{section.task} · {section.mode} · {method}, by n"),
            Cell(section.regime), Cell(str(max(map(len, parts)))), *_cells(agreed),
        )  # fmt: skip


def _measures(one: Beside) -> tuple[Measure, Measure]:
    return ACCURACY, next(m for m in measures_for(one) if m.key == "r_overall")


def _pairs(one: Beside, measure: Measure, methods: Sequence[str] = ()) -> Compared:
    """Return our policies that have the number, each with the printed one."""
    return [
        (policies[0], theirs.mean)
        for method, policies in one.ours.items()
        if (not methods or method in methods)
        and (theirs := one.printed.methods[method].get(paper_key(measure.key))) is not None
        and measure.of(policies[0]) is not None
    ]


def agree(found: Compared, measure: Measure) -> Agreement:
    """Return how far our means agree with the printed ones, the questions drawn anew for the
    interval: those that the policies share are drawn for all of them at once."""
    sums = [_sums(policy, measure) for policy, _ in found]
    values = [_mean(one, one.keys()) for one in sums]
    return agreement(values, [printed for _, printed in found], _resampled(sums))


def _sums(policy: Policy, measure: Measure) -> Sums:
    groups: dict[str, list[float]] = {}
    for row in policy.rows:
        value = measure.value(row)
        if value is not None:
            groups.setdefault(row.group, []).append(value)
    return {group: (fsum(values), len(values)) for group, values in groups.items()}


def _mean(sums: Sums, groups: Iterable[str]) -> float:
    found = [sums[group] for group in groups if group in sums]
    return fsum(total for total, _ in found) / sum(count for _, count in found)


def _resampled(sums: Sequence[Sums]) -> Callable[[random.Random], list[float] | None]:
    groups = sorted({group for one in sums for group in one})

    def drawn(rng: random.Random) -> list[float] | None:
        chosen = rng.choices(groups, k=len(groups))
        if any(not one.keys() & set(chosen) for one in sums):
            return None
        return [_mean(one, chosen) for one in sums]

    return drawn


def _cells(found: Sequence[Agreement]) -> Iterator[Cell]:
    for one in found:
        yield NONE if one.tau is None else Cell(f"{one.tau:+.2f}")
        yield NONE if one.low is None else Cell(f"[{one.low:+.2f}, {one.high:+.2f}]")
        yield NONE if one.p is None else Cell(f"{one.p:.3f}")
