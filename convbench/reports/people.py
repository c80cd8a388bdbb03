"""People's scores: labels as those of one more judge, and judges' means corrected by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from convbench.judges.kinds import kind_of
from convbench.reports.document import Cell, Column, Difference, Row, Table
from convbench.reports.frame import Setting, ask
from convbench.reports.metrics import PEOPLE, Metric, headlines
from convbench.reports.tables import POLICY, compared
from convbench.stats.ppi import corrected_mean

if TYPE_CHECKING:
    from pandas import DataFrame

LABELS = """
SELECT conversation_id, unnest(map_keys(scores)) AS metric, unnest(map_values(scores)) AS score
FROM gold_labels WHERE skipped IS NULL
"""
FEWEST = 3
"""Fewest labelled groups of a policy for which a mean is corrected."""


def with_labels(settings: Sequence[Setting]) -> list[Setting]:
    """Return the settings with people's labels as the scores of judge `people`: means over raters,
    by the rubric of the first judge that gives these scores."""
    runs = {run.manifest.id: run for setting in settings for run in setting.runs}
    (labels,) = ask(list(runs.values()), ("gold_labels",), LABELS)
    if not len(labels):
        return list(settings)
    labels["metric"] = f"{PEOPLE}/" + labels["metric"]
    wide = labels.pivot_table(index="conversation_id", columns="metric", values="score")
    wide[f"{PEOPLE}/failed"] = 0.0
    return [_labelled(setting, wide) for setting in settings]


def _labelled(setting: Setting, labels: DataFrame) -> Setting:
    rows = setting.rows.join(labels, on="conversation_id").dropna(axis="columns", how="all")
    names = {column.removeprefix(f"{PEOPLE}/") for column in rows if column.startswith(PEOPLE)}
    if not names:
        return setting
    specs = (s for s in setting.judges.values() if s is not None and names & set(s.score_names))
    return replace(setting, rows=rows, judges={**setting.judges, PEOPLE: next(specs, None)})


def corrected(setting: Setting) -> Table | None:
    """Return each judge's mean beside people's and beside the mean that their labels correct, and
    the same for differences to the base; None without labels of a part of what a judge scored."""
    metrics = [metric for metric in headlines(setting) if metric.judge]
    people = next((metric for metric in metrics if _is_people(setting, metric)), None)
    rows = []
    for metric in metrics if people else ():
        if people is None or metric is people:
            continue
        units = {p.name: _units(setting.rows_of(p), metric, people) for p in setting.policies}
        for name, own in units.items():
            rows.append((name, metric.judge, _corrected(own, is_change=False)))
        for policy, base in compared(setting):
            both = units[policy.name].merge(
                units[base.name], left_index=True, right_index=True, suffixes=("", "_base")
            )
            for score in ("judge", "people"):
                both[score] -= both[f"{score}_base"]
            name = f"{policy.name} − {base.name}"
            rows.append((name, metric.judge, _corrected(both, is_change=True)))
    known = tuple(Row((name, judge, *cells)) for name, judge, cells in rows if cells)
    if not known:
        return None
    columns = (
        POLICY,
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
    return Table("people", "Corrected by people", columns, known, notes)


def _is_people(setting: Setting, metric: Metric) -> bool:
    spec = setting.judges.get(metric.judge or "")
    return metric.judge == PEOPLE or (spec is not None and "labels" in kind_of(spec).needs)


def _units(rows: DataFrame, metric: Metric, people: Metric) -> DataFrame:
    """Return a judge's and people's scores by unit, with the group; only where the judge scored."""
    named = {"unit": "unit", "group": "group", metric.key: "judge", people.key: "people"}
    known = rows.loc[rows[metric.key].notna(), list(named)]
    return known.rename(columns=named).set_index("unit")


def _corrected(units: DataFrame, *, is_change: bool) -> list[Cell]:
    """Return the cells of a mean; empty with too few labels."""
    labelled = units[units["people"].notna()]
    others = units[~units["group"].isin(labelled["group"])]
    if labelled["group"].nunique() < FEWEST:
        return []
    means = labelled.groupby("group")[["people", "judge"]].mean()
    found = corrected_mean(means["people"], means["judge"], others.groupby("group")["judge"].mean())
    ours: list[Cell] = [float(units["judge"].mean()), float(labelled["people"].mean())]
    return [*ours, Difference(found, found.p if is_change else None), found.groups]
