"""Tables over something: temperatures, turns, rows, rounds, seeds, settings, the best of N."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import comb
from statistics import fmean
from typing import NamedTuple

from convbench.reports.document import Cell, Column, Difference, Row, Table, mean_of
from convbench.reports.frame import Setting, ask
from convbench.reports.metrics import Metric, headlines, main_metric
from convbench.reports.policies import BASE, Policy
from convbench.reports.tables import ERRORS, POLICY, as_difference, printed_of
from convbench.stats.estimates import estimate


class Point(NamedTuple):
    """A policy at one value of what is varied."""

    name: str
    """The learner, which has several points."""
    x: float
    setting: Setting
    """With the conversations of that value alone."""
    policy: Policy


def varies(points: Sequence[Point]) -> bool:
    """Return whether one learner has two points."""
    places = {(point.name, point.x) for point in points}
    return len(places) > len({name for name, _ in places})


def by_key(points: Sequence[Point], key: Column, note: str = "") -> Table | None:
    """Return means and paired differences to the base by what is varied, a row for each point; None
    unless one learner has two."""
    if not varies(points):
        return None
    metrics = list({m.key: m for point in points for m in headlines(point.setting)}.values())
    ranked = [metric for metric in metrics if metric.best]
    columns = [POLICY, key, *(replace(metric, best=False) for metric in metrics)]
    for m in ranked:
        change = (f"{m.head} − base", f"{m.short or m.head} − base", as_difference(m).digits)
        columns.append(Column(f"{m.key}_difference", *change))
    rows = []
    for name, x, setting, policy in points:
        base = setting.base_of(policy)
        changes = [base and setting.difference(policy, base, m.key) for m in ranked]
        means = (setting.mean(policy, m.key) for m in metrics)
        rows.append(Row((name, x, *means, *(Difference(c) if c else None for c in changes))))
    notes = (
        f"Mean ± {ERRORS[points[0].setting.kind]}; differences to the policy's own base with 95% "
        "intervals.",
        *([note] if note else []),
    )
    return Table(key.key, f"By {key.head.lower()}", tuple(columns), tuple(rows), notes)


TURNS = Column("turns", "Turns")


def over_points(setting: Setting) -> list[tuple[list[Point], Column, str]]:
    """Return what varies within a setting, its column, and a note."""
    return [
        (_temperatures(setting), Column("temperature", "Temperature", "T", 1), ""),
        (list(_rounds(setting)), Column("rounds", "Round"), "Round 0 is the base."),
        (list(_sizes(setting)), Column("rows", "Rows"), ""),
        (_seeds(setting), Column("seeds", "Seed"), ""),
    ]


def turn_points(settings: Sequence[Setting]) -> list[Point]:
    """Return the policies of settings that differ in the number of turns alone."""
    return [
        Point(name, setting.turns, setting, policy)
        for name in dict.fromkeys(p.name for setting in settings for p in setting.policies)
        for setting in sorted(settings, key=lambda s: s.turns)
        for policy in setting.policies
        if policy.name == name
    ]


def _temperatures(setting: Setting) -> list[Point]:
    parts = _split(setting, "temperature")
    return [Point(p.name, x, part, p) for p in setting.policies for x, part in parts]


def _split(setting: Setting, column: str) -> list[tuple[float, Setting]]:
    """Return each value of a column with the setting of its rows."""
    if column not in setting.rows:
        return []
    parts = setting.rows.groupby(column)
    return [(float(value), replace(setting, rows=rows)) for value, rows in parts]


def _rounds(setting: Setting) -> Iterator[Point]:
    """Yield the rounds of each learner that has several, its base as round 0."""
    for learner in dict.fromkeys(p.learner for p in setting.policies if p.round is not None):
        rounds = [p for p in setting.policies if p.learner == learner and p.round is not None]
        base = setting.base_of(rounds[0])
        yield from (Point(learner, 0, setting, base) for base in [base] if base)
        yield from (Point(learner, p.round or 0, setting, p) for p in rounds)


def _sizes(setting: Setting) -> Iterator[Point]:
    """Yield the policies of one recipe that were trained on different numbers of rows."""
    sized: dict[tuple[str, str], list[Policy]] = {}
    for p in setting.policies:
        if p.rows is not None and p.round is None:
            unit = str(p.trainings[0].get("unit") or p.data.get("unit", "row"))
            sized.setdefault((str(p.recipe.get("name")), unit), []).append(p)
    for (_, unit), some in sorted(sized.items()):
        if len({p.rows for p in some}) > 1:
            for p in sorted(some, key=lambda p: p.rows or 0):
                yield Point(f"{p.label} ({unit}s)", p.rows or 0, setting, p)


def _seeds(setting: Setting) -> list[Point]:
    """Return the seeds of each policy that is pooled over several."""
    pooled, parts = [p for p in setting.policies if len(p.runs) > 1], _split(setting, "seed")
    return [Point(p.name, x, part, p) for p in pooled for x, part in parts]


def matrix(settings: Sequence[Setting], *, paper: bool = False) -> Table | None:
    """Return policies by settings in the metric that most have, with the number of settings in
    which a policy is first, and among the first two; equal numbers share a place.

    None for one setting, or if no policy but a base is in two of them.
    """
    measured = [(setting, metric) for setting in settings if (metric := main_metric(setting))]
    known = [metric.key for _, metric in measured]
    here = [(s, m) for s, m in measured if m.key == max(known, key=known.count)]
    ours: dict[str, list[Cell]] = {}
    theirs: dict[str, list[Cell]] = {}
    for place, (setting, metric) in enumerate(here):
        for policy in setting.policies:
            cells = ours.setdefault(policy.name, [None] * len(here))
            cells[place] = setting.mean(policy, metric.key)
        for row in printed_of(setting) if paper else []:
            if metric.key in row.values and not row.rows:
                cells = theirs.setdefault(f"{row.name}, printed", [None] * len(here))
                cells[place] = cells[place] or row.values[metric.key]
    shared = {name for name, cells in ours.items() if len(here) - cells.count(None) > 1}
    if all(name.partition(" (")[0] == BASE for name in shared):
        return None
    metric = here[0][1]
    columns = (POLICY, *(replace(metric, key=head, head=head, short="") for head in _heads(here)))
    rows = [Row((name, *cells)) for name, cells in ours.items()]
    rows += [Row((name, *cells), printed=True) for name, cells in theirs.items()]
    ranked = Table("", "", columns, tuple(rows)).ranks()
    whole = [
        Row(
            (*row.cells, _mean(row.cells[1:]), ranks.count(1), ranks.count(1) + ranks.count(2)),
            row.printed,
        )
        for row, ranks in zip(rows, ranked, strict=True)
    ]
    more = (Column("mean", "Mean", digits=metric.digits), Column("first", "First"))
    notes = (
        f"{metric.head}, mean ± {ERRORS[here[0][0].kind]}. Mean: all settings alike. First, first "
        "two: in how many settings; equal numbers share a place.",
    )
    columns = (*columns, *more, Column("first_two", "First two"))
    return Table("matrix", "Policies by settings", columns, tuple(whole), notes)


def _heads(here: Sequence[tuple[Setting, Metric]]) -> list[str]:
    tasks = [setting.task for setting, _ in here]
    return [s.task if tasks.count(s.task) == 1 else s.title for s, _ in here]


def _mean(cells: Sequence[Cell]) -> float | None:
    """Return the mean over all settings alike; None unless all are known."""
    means = [value for cell in cells if (value := mean_of(cell)) is not None]
    return fmean(means) if len(means) == len(cells) else None


SIZES = (1, 2, 4, 8, 16, 32, 64)
ORACLE = "the best one (oracle)"
CREDIT = """
SELECT conversation_id, source, sum(advantage) AS credit FROM advantages
GROUP BY conversation_id, source
"""


def best_of_n(setting: Setting) -> Table | None:
    """Return the expected reward of the best of N conversations about a question, picked by the sum
    of its turns' credit and by an oracle.

    Only questions with as many conversations as the largest N count. None if no question has two
    with credit and reward.
    """
    judge = next((name for name in setting.judges if f"{name}/reward" in setting.rows), None)
    if judge is None:
        return None
    (credit,) = ask(setting.runs, ("advantages",), CREDIT)
    rewarded = setting.rows.assign(reward=setting.rows[f"{judge}/reward"])
    scored = rewarded[rewarded["reward"].notna()].merge(credit, on="conversation_id")
    counts = scored.groupby(["policy", "source", "example_id"]).size()
    sizes = [n for n in SIZES if n <= counts.max()] if len(counts) else []
    if len(sizes) < 2:
        return None
    rows = []
    for (name, source), own in scored.groupby(["policy", "source"], sort=False):
        asked = [some for _, some in own.groupby("example_id") if len(some) >= sizes[-1]]
        groups = [some["group"].iloc[0] for some in asked]
        for picker, column in ((source, "credit"), (ORACLE, "reward")):
            pairs = [list(zip(some[column], some["reward"], strict=True)) for some in asked]
            values = ([best_of(each, n) for each in pairs] for n in sizes)
            means = (estimate(groups, each, setting.kind) for each in values)
            rows.append(Row((name, picker, len(asked), *means)))
    columns = (
        POLICY,
        Column("picked_by", "picked by", text=True),
        Column("questions", "questions"),
        *(Column(f"best_of_{n}", f"N = {n}", digits=3) for n in sizes),
    )
    notes = (
        f"Expected reward by {judge} of the conversation with the most credit among N of a "
        "question's, drawn without replacement; N = 1 is the mean. A critic sees the hidden "
        f"reference: this is what its credit is worth. Mean ± {ERRORS[setting.kind]}.",
    )
    return Table("best-of-n", "Best of N by credit", columns, tuple(rows), notes)


def best_of(scored: Sequence[tuple[float, float]], n: int) -> float:
    """Return the expected second value of the pair with the largest first value among `n` pairs
    drawn without replacement; ties are broken at random."""
    tops = sorted({top for top, _ in scored}, reverse=True)
    total, above = 0.0, 0
    for top in tops:
        tied = [value for first, value in scored if first == top]
        left = len(scored) - above
        # The largest is in this tie if none above it and at least one of the tie was drawn.
        chance = (comb(left, n) - comb(left - len(tied), n)) / comb(len(scored), n)
        total += chance * fmean(tied)
        above += len(tied)
    return total
