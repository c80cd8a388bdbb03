"""What is compared over something: turns, rows, rounds, seeds, settings, the best of N."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean
from typing import TYPE_CHECKING

from convbench.reports.document import Cell, Column, Row, Table, mean_of
from convbench.reports.frame import Setting, ask
from convbench.reports.frame import mean_of as mean_of_rows
from convbench.reports.metrics import Metric, headlines, main_metric
from convbench.reports.policies import BASE, Policy
from convbench.reports.tables import ERRORS, METHOD, metric_column, printed_of
from convbench.stats.estimates import ErrorKind, estimate

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Point:
    """A learner's value of what is varied, and the rows that it was measured on."""

    name: str
    x: float
    setting: Setting
    rows: DataFrame


def by_key(
    points: Sequence[Point], key: str, head: str, kind: ErrorKind, note: str = ""
) -> Table | None:
    """Return means by what is varied (turns, rows, rounds, seeds), a row for each point; None
    unless one learner has two."""
    xs: dict[str, set[float]] = {}
    for point in points:
        xs.setdefault(point.name, set()).add(point.x)
    if not any(len(each) > 1 for each in xs.values()):
        return None
    by_column = {m.column: m for point in points for m in headlines(point.setting)}
    columns = (METHOD, Column(key, head), *map(metric_column, by_column.values()))
    rows = []
    for point in points:
        means = (mean_of_rows(point.rows, m.column, kind, m.scale) for m in by_column.values())
        x = int(point.x) if point.x == int(point.x) else point.x
        rows.append(Row((point.name, x, *means)))
    notes = tuple(filter(None, (f"Mean ± {ERRORS[kind]}.", note)))
    return Table(key, f"By {head.lower()}", columns, tuple(rows), notes)


def _point(setting: Setting, policy: Policy, name: str, x: float) -> Point:
    return Point(name, x, setting, setting.rows_of(policy))


def round_points(setting: Setting) -> list[Point]:
    """Return the rounds of each learner that has several, its base as round 0."""
    points: list[Point] = []
    for learner in dict.fromkeys(p.learner for p in setting.policies if p.round is not None):
        rounds = [p for p in setting.policies if p.learner == learner and p.round is not None]
        base = setting.base_of(rounds[0])
        points += [_point(setting, base, learner, 0)] if base else []
        points += [_point(setting, p, learner, p.round or 0) for p in rounds]
    return points


def row_points(setting: Setting) -> list[Point]:
    """Return the policies of one recipe that were trained on different numbers of rows."""
    sized = [
        (str((p.recipe or {}).get("name")), _unit(p), p)
        for p in setting.policies
        if p.rows is not None and p.round is None
    ]
    several = {
        key
        for key in {(name, unit) for name, unit, _ in sized}
        if len({p.rows for name, unit, p in sized if (name, unit) == key}) > 1
    }
    points = [
        _point(setting, p, f"{_label(p)} ({unit}s)", p.rows or 0)
        for name, unit, p in sized
        if (name, unit) in several
    ]
    return sorted(points, key=lambda point: (point.name, point.x))


def _label(policy: Policy) -> str:
    recipe = policy.recipe or {}
    return str(recipe.get("label") or recipe.get("name"))


def _unit(policy: Policy) -> str:
    training = policy.trainings[0] if policy.trainings else {}
    return str(training.get("unit") or ((policy.recipe or {}).get("data") or {}).get("unit", "row"))


def seed_points(setting: Setting) -> list[Point]:
    """Return the seeds of each policy that is pooled over several."""
    return [
        Point(policy.name, float(seed), setting, own[own["seed"] == seed])
        for policy in setting.policies
        if len(policy.runs) > 1
        for own in [setting.rows_of(policy)]
        for seed in sorted(own["seed"].unique())
    ]


def over_seeds(setting: Setting) -> Table | None:
    """Return the mean and error over seeds, each seed one observation: they include drawing the
    questions and training again. None if nothing is pooled."""
    pooled = [policy for policy in setting.policies if len(policy.runs) > 1]
    if not pooled:
        return None
    metrics = headlines(setting)
    rows = []
    for policy in pooled:
        own = setting.rows_of(policy)
        cells = []
        for m in metrics:
            by_seed = own.groupby("seed")[m.column].mean().dropna() * m.scale
            cells.append(estimate(by_seed.index, by_seed.to_numpy()))
        rows.append(Row((policy.name, *cells)))
    notes = ("Mean ± standard error with every seed as one observation.",)
    columns = (METHOD, *map(metric_column, metrics))
    return Table("over-seeds", "Over seeds", columns, tuple(rows), notes)


def turn_points(settings: Sequence[Setting]) -> list[Point]:
    """Return the policies of settings that differ in the number of turns alone."""
    turns = {setting.turns for setting in settings}
    if len(turns) < 2:
        return []
    names = dict.fromkeys(p.name for setting in settings for p in setting.policies)
    return [
        _point(setting, policy, name, setting.turns)
        for name in names
        for setting in sorted(settings, key=lambda s: s.turns)
        for policy in setting.policies
        if policy.name == name
    ]


def matrix(settings: Sequence[Setting], kind: ErrorKind, *, paper: bool = False) -> Table | None:
    """Return policies by settings in the metric that most have, with the number of settings in
    which a policy is first, and among the first two; equal numbers share a place.

    None for one setting, or if no policy but a base is in two of them.
    """
    measured = [(setting, metric) for setting in settings if (metric := main_metric(setting))]
    known = [metric.column for _, metric in measured]
    here = [(s, m) for s, m in measured if m.column == max(known, key=known.count)]
    names = list(dict.fromkeys(p.name for setting, _ in here for p in setting.policies))
    shared = [n for n in names if sum(_find(s, n) is not None for s, _ in here) > 1]
    if len(here) < 2 or all(name.partition(" (")[0] == BASE for name in shared):
        return None
    rows = [Row((name, *(_mean(s, name, m, kind) for s, m in here))) for name in names]
    rows += _printed_rows(here) if paper else []
    tasks, digits = [setting.task for setting, _ in here], here[0][1].digits
    heads = [s.task if tasks.count(s.task) == 1 else s.title for s, _ in here]
    columns = (METHOD, *(Column(head, head, digits=digits, best=True) for head in heads))
    ranked = Table("", "", columns, tuple(rows)).ranks()
    whole = []
    for row, ranks in zip(rows, ranked, strict=True):
        means = [value for cell in row.cells[1:] if (value := mean_of(cell)) is not None]
        mean = fmean(means) if len(means) == len(here) else None
        first = ranks.count(1)
        whole.append(Row((*row.cells, mean, first, first + ranks.count(2)), row.printed))
    more = (Column("mean", "Mean", digits=digits), Column("first", "First"))
    notes = (
        f"{here[0][1].head}, mean ± {ERRORS[kind]}. Mean: all settings alike. First, first two: in "
        "how many settings; equal numbers share a place.",
    )
    columns = (*columns, *more, Column("first_two", "First two"))
    return Table("matrix", "Policies by settings", columns, tuple(whole), notes)


def _mean(setting: Setting, name: str, metric: Metric, kind: ErrorKind) -> Cell:
    policy = _find(setting, name)
    return None if policy is None else setting.mean(policy, metric.column, kind, metric.scale)


def _find(setting: Setting, name: str) -> Policy | None:
    return next((policy for policy in setting.policies if policy.name == name), None)


def _printed_rows(here: Sequence[tuple[Setting, Metric]]) -> list[Row]:
    """Return what papers print of these settings, a row for each method."""
    found: dict[str, list[Cell]] = {}
    for place, (setting, metric) in enumerate(here):
        for row in printed_of(setting):
            value = row.values.get(metric.column)
            if value is not None and not row.rows:
                cells = found.setdefault(row.name, [None] * len(here))
                cells[place] = cells[place] or value.scaled(metric.scale)
    return [Row((f"{name}, printed", *cells), printed=True) for name, cells in found.items()]


SIZES = (1, 2, 4, 8, 16, 32, 64)
ORACLE = "the best one (oracle)"


CREDIT = """
SELECT conversation_id, source, sum(advantage) AS credit FROM advantages
GROUP BY conversation_id, source
"""


def best_of_n(setting: Setting, kind: ErrorKind) -> Table | None:
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
            means = (estimate(groups, [best_of(each, n) for each in pairs], kind) for n in sizes)
            rows.append(Row((name, picker, len(asked), *means)))
    columns = (
        METHOD,
        Column("picked_by", "picked by", text=True),
        Column("questions", "questions"),
        *(Column(f"best_of_{n}", f"N = {n}", digits=3) for n in sizes),
    )
    notes = (
        f"Expected reward by {judge} of the conversation with the most credit among N of a "
        "question's, drawn without replacement; N = 1 is the mean. A critic sees the hidden "
        f"reference: this is what its credit is worth. Mean ± {ERRORS[kind]}.",
    )
    return Table("best-of-n", "Best of N by credit", columns, tuple(rows), notes)


def best_of(scored: Sequence[tuple[float, float]], n: int) -> float:
    """Return the expected second value of the pair with the largest first value among `n` pairs
    drawn without replacement; ties are broken at random."""
    count = len(scored)
    order = sorted(scored, key=lambda pair: -pair[0])
    total, at = 0.0, 0
    while at < count:
        end = at
        while end < count and order[end][0] == order[at][0]:
            end += 1
        # The largest is in this tie if none above it and at least one of the tie was drawn.
        chance = (comb(count - at, n) - comb(count - end, n)) / comb(count, n)
        total += chance * fmean(value for _, value in order[at:end])
        at = end
    return total
