"""The pictures of an experiment's document: a radar for each table, and curves by number of turns
and of rows with the printed points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from convbench.reports.document import Picture
from convbench.reports.experiment.printed import (
    SIZED,
    UNIT_WORDS,
    PublishedComparison,
    counted_unit,
    measures_for,
)
from convbench.reports.measures import Measure
from convbench.reports.plots.curves import TURNS, Axis, Points, draw_curves, trained_rows
from convbench.reports.plots.points import draw_radar
from convbench.reports.policies import Policy
from convbench.reports.published import PaperTable, paper_key, sample_size
from convbench.stats.means import ErrorKind, Estimate

ROWS = Axis("rows of the logged set", "size of the logged set")
ROW = UNIT_WORDS["turn"]
MANY = 1000
"""Sample size for tables that do not imply one: enough for a normal interval."""


def radar_of(comparison: PublishedComparison, kind: ErrorKind) -> Picture | None:
    """Return radar charts of the judge's metrics on the scale of its headline.

    Each policy that has all of these metrics has a chart. If all are printed for it, the printed
    scores are dotted. None if nothing was measured, without a judge, with fewer than three such
    metrics (a judge of tests or pages has none), or if no policy has all of them.
    """
    if comparison.section is None or comparison.judge is None:
        return None
    printed = {
        policy.name: comparison.printed.methods[method]
        for method, policies in comparison.own_policies.items()
        for policy in policies
    }
    picture = draw_radar(comparison.section, comparison.judge, kind, printed)
    return (
        None
        if picture is None
        else replace(picture, name=f"{picture.name}-table-{comparison.printed.number}")
    )


def curves_by_turns(comparisons: Sequence[PublishedComparison], kind: ErrorKind) -> Picture | None:
    """Return curves of accuracy and the overall score by number of turns, ours and the printed, for
    tables of one setting.

    Setting and judge are those of the table with the fewest turns. Tables without a section are
    ignored. None if nothing was measured.
    """
    some = sorted(
        (comparison for comparison in comparisons if comparison.section),
        key=lambda comparison: comparison.printed.turns,
    )
    if not some:
        return None
    names = dict.fromkeys(
        p.name for comparison in some if comparison.section for p in comparison.section.policies
    )

    def own_points(measure: Measure) -> Points:
        points: Points = {name: [] for name in names}
        for comparison in some:
            for policy in comparison.section.policies if comparison.section else ():
                _add_point(
                    points, policy.name, comparison.printed.turns, measure.mean_of(policy, kind)
                )
        return {name: line for name, line in points.items() if line}

    def printed_points(measure: Measure) -> Points:
        points: Points = {}
        for comparison in some:
            for method in comparison.printed.methods:
                _add_point(
                    points,
                    method,
                    comparison.printed.turns,
                    _printed_estimate(comparison.printed, method, measure),
                )
        return points

    return _printed_curves(some[0], own_points, printed_points, TURNS, kind)


def curves_by_size(comparison: PublishedComparison, kind: ErrorKind) -> Picture | None:
    """Return curves of accuracy and the overall score by number of training rows, ours and the
    printed.

    A policy trained on all rows is placed at the number that its training counted; one of unknown
    size is left out. Policies whose rows are conversations have a curve of their own. None if
    nothing was measured.
    """
    section = comparison.section
    if section is None:
        return None

    def own_points(measure: Measure) -> Points:
        points: Points = {}
        for policy in sorted(section.policies, key=lambda policy: _training_size(policy) or 0):
            unit = counted_unit(policy)
            name = SIZED if unit == ROW else f"{SIZED} ({unit})"
            _add_point(points, name, _training_size(policy), measure.mean_of(policy, kind))
        return points

    def printed_points(measure: Measure) -> Points:
        points: Points = {}
        for rows in comparison.printed.methods:
            _add_point(
                points, SIZED, float(rows), _printed_estimate(comparison.printed, rows, measure)
            )
        return points

    return _printed_curves(comparison, own_points, printed_points, ROWS, kind)


def _printed_curves(
    comparison: PublishedComparison,
    own: Callable[[Measure], Points],
    printed: Callable[[Measure], Points],
    axis: Axis,
    kind: ErrorKind,
) -> Picture | None:
    """Return curves of accuracy and the overall score in the setting of a table with a section."""
    section = comparison.section
    assert section is not None
    title = f"{section.task} · {section.mode} · {section.protocol}"
    measures = [m for m in measures_for(comparison) if m.key in ("accuracy", "r_overall")]
    return draw_curves(title, measures, own, axis, comparison.judge, kind, printed=printed)


def _add_point(points: Points, name: str, x: float | None, estimate: Estimate | None) -> None:
    if x is not None and estimate is not None:
        points.setdefault(name, []).append((x, estimate))


def _training_size(policy: Policy) -> float | None:
    """Return the number of rows that a policy was trained on; None if unknown."""
    rows = policy.recipe_data.get("rows")
    size = trained_rows(policy) if rows is None else rows
    return float(size) if isinstance(size, int | float) else None


def _printed_estimate(table: PaperTable, method: str, measure: Measure) -> Estimate | None:
    """Return a printed number as an estimate with the sample size that its table implies; None if
    it is not printed."""
    number = table.methods[method].get(paper_key(measure.key))
    n = sample_size(table.number) or MANY
    return None if number is None else Estimate(number.mean, number.error, n, n, n - 1)
