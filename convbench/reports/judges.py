"""Judges compared: how they agree with each other and with people, and which are unfit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from convbench.judges.controls import control_results, unfit_reasons
from convbench.reports.document import Column, Difference, Row, Table
from convbench.reports.frame import Setting
from convbench.reports.metrics import headlines
from convbench.stats.agreement import agreement, krippendorff_alpha


def agreement_table(setting: Setting) -> Table | None:
    """Return how every two judges agree on their headline scores; None for fewer than two."""
    import pandas as pd

    shares = {
        metric.judge: (setting.rows[metric.key] - low) / (high - low)
        for metric in headlines(setting)
        if metric.judge and metric.limits
        for low, high in [metric.limits]
    }
    rows = []
    for first, second in combinations(shares, 2):
        found = agreement(setting.rows["group"], shares[first], shares[second])
        if found is not None:
            measured = (found.common, found.equal, found.kappa, found.spearman)
            rows.append(Row((f"{first} / {second}", *measured, Difference(found.difference))))
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
    alpha = krippendorff_alpha(pd.DataFrame(shares)) if len(shares) > 2 else None
    if alpha is not None:
        notes.append(f"Krippendorff's alpha (interval) over all: {alpha:.2f}.")
    return Table("agreement", "Agreement of judges", columns, tuple(rows), tuple(notes))


def unfit_notes(setting: Setting) -> Iterator[str]:
    """Yield a sentence for each judge whose `--controls` score high without merit."""
    found = (
        reason
        for policy in setting.policies
        for judge in setting.judges
        for mark in sorted(policy.judges.get(judge, ()))
        for run in policy.runs
        for reason in unfit_reasons(control_results(run, judge, mark), judge)
    )
    yield from (f"{reason[:1].upper()}{reason[1:]}." for reason in dict.fromkeys(found))
