"""Judges compared: how they agree with each other and with people, and which are unfit."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from convbench.judges.controls import control_results, unfit_reasons
from convbench.reports.document import Column, Difference, Row, Table
from convbench.reports.frame import Setting
from convbench.reports.metrics import Metric, headlines
from convbench.stats.agreement import agreement, krippendorff_alpha

if TYPE_CHECKING:
    from pandas import DataFrame


def agreement_table(setting: Setting) -> Table | None:
    """Return how every two judges agree on their headline scores, each brought to 0 to 1 by its own
    scale; None for fewer than two."""
    judged = [m for m in headlines(setting) if m.judge and m.limits and m.column in setting.rows]
    rows = []
    for first, second in combinations(judged, 2):
        found = agreement(setting.rows["group"], *(_shares(setting, m) for m in (first, second)))
        if found is not None:
            numbers = (found.common, found.equal, found.kappa, found.spearman)
            name = f"{first.judge} / {second.judge}"
            rows.append(Row((name, *numbers, Difference(found.difference, None))))
    if not rows:
        return None
    columns = (
        Column("judges", "Judges", text=True),
        Column("common", "common"),
        Column("equal", "equal", digits=2),
        Column("kappa", "kappa", digits=2),
        Column("spearman", "Spearman", "Spearm.", digits=2),
        Column("difference", "first − second", "1st−2nd", digits=3),
    )
    notes = [
        "Headline scores from 0 to 1 on the conversations that both scored; kappa is quadratically "
        "weighted."
    ]
    if len(judged) > 2:
        import pandas as pd

        alpha = krippendorff_alpha(pd.DataFrame({m.judge: _shares(setting, m) for m in judged}))
        if alpha is not None:
            notes.append(f"Krippendorff's alpha (interval) over all: {alpha:.2f}.")
    return Table("agreement", "Agreement of judges", columns, tuple(rows), tuple(notes))


def _shares(setting: Setting, metric: Metric) -> DataFrame:
    low, high = metric.limits or (0, 1)
    return (setting.rows[metric.column] - low) / (high - low)


def unfit_notes(setting: Setting) -> list[str]:
    """Return a sentence for each judge that scores answers without merit above the policy's own, as
    `judge --controls` tried it."""
    notes = []
    for policy in setting.policies:
        for judge in setting.judges:
            for mark in sorted(policy.judges.get(judge, ())):
                for run in policy.runs:
                    notes += unfit_reasons(control_results(run, judge, mark), judge)
    return [f"{note[:1].upper()}{note[1:]}." for note in dict.fromkeys(notes)]
