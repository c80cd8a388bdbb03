"""People's scores: labels as those of one more judge, and judges' means corrected by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from convbench.judges.kinds import kind_of
from convbench.reports.document import Cell, Column, Difference, Row, Table
from convbench.reports.frame import Setting, ask, paired
from convbench.reports.metrics import PEOPLE, headlines
from convbench.reports.tables import POLICY, compared
from convbench.stats.ppi import corrected_mean

if TYPE_CHECKING:
    from pandas import DataFrame

LABELS = """
SELECT conversation_id, unnest(map_keys(scores)) AS metric, unnest(map_values(scores)) AS score
FROM gold_labels WHERE skipped IS NULL
"""


def with_labels(settings: Sequence[Setting]) -> list[Setting]:
    """Return the settings with people's labels as the scores of judge `people`: means over raters,
    by the rubric of the first judge that gives these scores."""
    runs = {run.manifest.id: run for setting in settings for run in setting.runs}
    (labels,) = ask(list(runs.values()), ("gold_labels",), LABELS)
    labels["metric"] = f"{PEOPLE}/" + labels["metric"]
    wide = labels.pivot_table(index="conversation_id", columns="metric", values="score")
    names = {column.removeprefix(f"{PEOPLE}/") for column in wide}
    wide[f"{PEOPLE}/failed"] = 0.0
    labelled = []
    for setting in settings:
        rows = setting.rows.join(wide, on="conversation_id").dropna(axis="columns", how="all")
        specs = (s for s in setting.judges.values() if s is not None and names & {*s.score_names})
        if f"{PEOPLE}/failed" in rows:
            judges = {**setting.judges, PEOPLE: next(specs, None)}
            setting = replace(setting, rows=rows, judges=judges)
        labelled.append(setting)
    return labelled


def corrected(setting: Setting) -> Table | None:
    """Return each judge's mean beside people's and beside the mean that their labels correct, and
    the same for differences to the base; None without labels of a part of what a judge scored."""
    keys = {metric.judge: metric.key for metric in headlines(setting) if metric.judge}
    specs = {name: spec for name, spec in setting.judges.items() if spec is not None}
    told = {name for name, spec in specs.items() if "labels" in kind_of(spec).needs} | {PEOPLE}
    people = next((judge for judge in keys if judge in told), None)
    if people is None:
        return None
    label, rows = keys.pop(people), []
    named = {policy.name: setting.rows_of(policy) for policy in setting.policies}
    for judge, key in keys.items():
        means = {name: own[own[key].notna()] for name, own in named.items()}
        changes = {}
        for policy, base in compared(setting):
            both = paired(named[policy.name], named[base.name], key, label)
            for each in (key, label):
                both[each] -= both[f"{each}_base"]
            changes[f"{policy.name} − {base.name}"] = both
        for name, own in (means | changes).items():
            cells = _corrected(own, key, label, is_change=name in changes)
            rows += [Row((name, judge, *cells))] if cells else []
    if not rows:
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
    return Table("people", "Corrected by people", columns, tuple(rows), notes)


def _corrected(rows: DataFrame, judge: str, people: str, *, is_change: bool) -> list[Cell]:
    labelled = rows[rows[people].notna()]
    others = rows[~rows["group"].isin(labelled["group"])]
    if labelled["group"].nunique() < 3:
        return []
    means = labelled.groupby("group")[[people, judge]].mean()
    found = corrected_mean(means[people], means[judge], others.groupby("group")[judge].mean())
    ours: list[Cell] = [float(rows[judge].mean()), float(labelled[people].mean())]
    return [*ours, Difference(found, found.p if is_change else None), found.groups]
