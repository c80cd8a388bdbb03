"""The pictures of an experiment's document: a radar for each table, and curves by number of turns
and of rows with the printed points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from convbench.report.document import Picture
from convbench.report.experiment.printed import SIZED, Beside, measures_for
from convbench.report.measures import Measure
from convbench.report.plots.lines import TURNS, Axis, Points, curves, trained_rows
from convbench.report.plots.points import radar
from convbench.report.policies import Policy
from convbench.report.published import PaperTable, paper_key, sample_size
from convbench.stats.means import ErrorKind, Estimate

ROWS = Axis("rows of the logged set", "size of the logged set")
MANY = 1000
"""Sample size for tables that do not imply one: enough for a normal interval."""


def radar_of(one: Beside, kind: ErrorKind) -> Picture | None:
    """Return a table's radar charts with the printed scores dotted; None without a judge that
    scores at least three metrics."""
    if one.section is None or one.judge is None:
        return None
    printed = {
        policy.name: one.printed.methods[method]
        for method, policies in one.ours.items()
        for policy in policies
    }
    made = radar(one.section, one.judge, kind, printed)
    return None if made is None else replace(made, name=f"{made.name}-table-{one.printed.number}")


def curves_by_turns(found: Sequence[Beside], kind: ErrorKind) -> Picture | None:
    """Return curves of accuracy and the overall score by n, for tables of one setting at several n;
    None if nothing was measured."""
    some = sorted((one for one in found if one.section), key=lambda one: one.printed.turns)
    if not some:
        return None
    names = dict.fromkeys(p.name for one in some if one.section for p in one.section.policies)

    def ours(measure: Measure) -> Points:
        points: Points = {name: [] for name in names}
        for one in some:
            for policy in one.section.policies if one.section else ():
                _add(points, policy.name, one.printed.turns, measure.of(policy, kind))
        return {name: line for name, line in points.items() if line}

    def theirs(measure: Measure) -> Points:
        points: Points = {}
        for one in some:
            for method in one.printed.methods:
                _add(points, method, one.printed.turns, _printed(one.printed, method, measure))
        return points

    section = some[0].section
    assert section is not None
    title = f"{section.task} · {section.mode} · {section.protocol}"
    return curves(title, _headlines(some[0]), ours, TURNS, some[0].judge, kind, printed=theirs)


def curves_by_size(one: Beside, kind: ErrorKind) -> Picture | None:
    """Return curves of accuracy and the overall score by rows of the logged set; None if nothing
    was measured. A policy trained on all rows is at the number its training counted."""
    section = one.section
    if section is None:
        return None

    def ours(measure: Measure) -> Points:
        points: Points = {}
        for policy in sorted(section.policies, key=lambda policy: _rows(policy) or 0):
            _add(points, SIZED, _rows(policy), measure.of(policy, kind))
        return points

    def theirs(measure: Measure) -> Points:
        points: Points = {}
        for rows in one.printed.methods:
            _add(points, SIZED, float(rows), _printed(one.printed, rows, measure))
        return points

    title = f"{section.task} · {section.mode} · {section.protocol}"
    return curves(title, _headlines(one), ours, ROWS, one.judge, kind, printed=theirs)


def _headlines(one: Beside) -> list[Measure]:
    return [m for m in measures_for(one) if m.key in ("accuracy", "r_overall")]


def _add(points: Points, name: str, x: float | None, found: Estimate | None) -> None:
    if x is not None and found is not None:
        points.setdefault(name, []).append((x, found))


def _rows(policy: Policy) -> float | None:
    """Return the number of rows that a policy was trained on; None if unknown."""
    asked = (policy.recipe.get("data") or {}).get("rows")
    found = trained_rows(policy) if asked is None else asked
    return float(found) if isinstance(found, int | float) else None


def _printed(table: PaperTable, method: str, measure: Measure) -> Estimate | None:
    """Return a printed number as an estimate with the sample size that its table implies; None if
    it is not printed."""
    found = table.methods[method].get(paper_key(measure.key))
    n = sample_size(table.number) or MANY
    return None if found is None else Estimate(found.mean, found.error, n, n, n - 1)
