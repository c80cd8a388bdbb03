"""People's scores: labels as those of one more judge, and judges' means corrected by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from convbench.judges.kinds import kind_of
from convbench.reports.document import Cell, Column, Difference, Row, Table
from convbench.reports.frame import Setting, ask
from convbench.reports.metrics import PEOPLE, Metric, headlines
from convbench.reports.tables import METHOD, compared
from convbench.stats.ppi import corrected_mean
from convbench.store import Run

if TYPE_CHECKING:
    from pandas import DataFrame, Series

LABELS = """
SELECT conversation_id, unnest(map_keys(scores)) AS metric, unnest(map_values(scores)) AS score
FROM gold_labels WHERE skipped IS NULL
"""
FEWEST = 3
"""Fewest labelled groups of a policy for which a mean is corrected."""


def with_labels(settings: Sequence[Setting], runs: Sequence[Run]) -> list[Setting]:
    """Return the settings with people's labels of these runs as the scores of judge `people`: means
    over raters, by the rubric of the first judge that gives these scores."""
    (labels,) = ask(runs, ("gold_labels",), LABELS)
    if not len(labels):
        return list(settings)
    wide = labels.pivot_table(index="conversation_id", columns="metric", values="score")
    wide.columns = [f"{PEOPLE}/{name}" for name in wide.columns]
    wide[f"{PEOPLE}/failed"] = 0.0
    return [_labelled(setting, wide) for setting in settings]


def _labelled(setting: Setting, labels: DataFrame) -> Setting:
    rows = setting.rows.merge(labels, left_on="conversation_id", right_index=True, how="left")
    rows = rows.dropna(axis="columns", how="all")
    names = {column.removeprefix(f"{PEOPLE}/") for column in rows if column.startswith(PEOPLE)}
    if not names:
        return setting
    specs = (s for s in setting.judges.values() if s is not None and names & set(s.score_names))
    return replace(setting, rows=rows, judges={**setting.judges, PEOPLE: next(specs, None)})


def corrected(setting: Setting) -> Table | None:
    """Return each judge's mean beside people's and beside the mean that their labels correct, and
    the same for differences to the base; None without labels of a part of what a judge scored."""
    metrics = [m for m in headlines(setting) if m.judge]
    people = next((m for m in metrics if _is_people(setting, m)), None)
    if people is None:
        return None
    rows = []
    for metric in metrics:
        if metric is people or people.column not in setting.rows:
            continue
        values = {
            policy.name: _units(setting.rows_of(policy), metric, people)
            for policy in setting.policies
        }
        lines = [(name, own, False) for name, own in values.items()]
        lines += [
            (f"{policy.name} − {base.name}", _change(values[policy.name], values[base.name]), True)
            for policy, base in compared(setting)
        ]
        for name, own, is_change in lines:
            cells = _corrected_cells(own, is_change)
            if cells:
                rows.append(Row((name, metric.judge, *cells)))
    if not rows:
        return None
    columns = (
        METHOD,
        Column("judge", "judge", text=True),
        Column("judge_mean", "judge's mean", "judged", digits=2),
        Column("people", "people", digits=2),
        Column("corrected", "corrected", digits=2),
        Column("groups", "groups"),
    )
    notes = (
        "Prediction-powered means over groups: people's labels correct the judge's scores of all "
        "conversations; 95% interval, Student's t over labelled groups. Labels must be a uniform "
        "draw (convbench gold).",
    )
    return Table("people", "Corrected by people", columns, tuple(rows), notes)


def _is_people(setting: Setting, metric: Metric) -> bool:
    spec = setting.judges.get(metric.judge or "")
    return metric.judge == PEOPLE or (spec is not None and "labels" in kind_of(spec).needs)


def _units(rows: DataFrame, metric: Metric, people: Metric) -> DataFrame:
    """Return a judge's and people's scores by unit, with the group; only where the judge scored."""
    named = rows[["unit", "group", metric.column, people.column]]
    named = named.rename(columns={metric.column: "judge", people.column: "people"})
    return named[named["judge"].notna()].set_index("unit")


def _change(ours: DataFrame, theirs: DataFrame) -> DataFrame:
    """Return the differences of two policies on the units that both have."""
    both = ours.merge(theirs, left_index=True, right_index=True, suffixes=("", "_base"))
    for name in ("judge", "people"):
        both[name] -= both[f"{name}_base"]
    return both


def _corrected_cells(units: DataFrame, is_change: bool) -> list[Cell] | None:
    labelled = units[units["people"].notna()]
    if labelled["group"].nunique() < FEWEST:
        return None
    others = units[~units["group"].isin(labelled["group"])]
    people, judge, rest = (
        _by_group(rows, column)
        for rows, column in ((labelled, "people"), (labelled, "judge"), (others, "judge"))
    )
    found = corrected_mean(people, judge, rest)
    if found is None:
        return None
    means: list[Cell] = [float(units["judge"].mean()), float(labelled["people"].mean())]
    return [*means, Difference(found, found.p if is_change else None), found.groups]


def _by_group(rows: DataFrame, column: str) -> dict[str, float]:
    means: Series[float] = rows.groupby("group")[column].mean()
    return dict(means)
