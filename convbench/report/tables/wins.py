"""Win rates of policies by rendered pages: whose page is closer to the reference, task by task."""

from __future__ import annotations

from itertools import combinations

from convbench.judge.kinds import kind_of
from convbench.report.document import Cell, Column, Table
from convbench.report.measures import Measure, metric_measure, paired_values
from convbench.report.policies import Policy, judge_spec
from convbench.report.sections import Section
from convbench.report.tables.cells import NONE, estimate_figure
from convbench.stats.means import ErrorKind, estimate_mean


def duel_points(first: Policy, second: Policy, score: Measure) -> list[tuple[str, float]]:
    """Return (group, points of the first policy) for every unit that both have a score for: 1 if
    its score is higher, a half for a tie, else 0."""
    return [
        (row.group, (ours > theirs) + 0.5 * (ours == theirs))
        for row, theirs, ours in paired_values(second, first, score)
    ]


def win_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the table of wins, ties and losses of every two policies; None unless the judge
    measures pages and scored two policies on the same tasks."""
    spec = judge_spec(section.policies, judge)
    if judge is None or spec is None or kind_of(spec).measures != "pages":
        return None
    score = metric_measure(judge, "overall")
    rows = []
    ordered = sorted(section.policies, key=lambda policy: policy.is_base)  # Base last
    for first, second in combinations(ordered, 2):
        points = duel_points(first, second, score)
        rate = estimate_mean(points, kind)
        if rate is None:
            continue
        counts = [sum(point == value for _, point in points) for value in (1.0, 0.5, 0.0)]
        low, high = rate.interval or (None, None)
        rows.append(
            (
                Cell(f"{first.name} over {second.name}"),
                *(Cell(str(count)) for count in counts),
                Cell(f"{rate.mean:.3f}", figure=estimate_figure(rate)),
                NONE
                if low is None or high is None
                else Cell(f"[{max(low, 0):.3f}, {min(high, 1):.3f}]"),
                Cell(str(rate.n)),
                Cell(str(rate.groups)),
            )
        )
    if not rows:
        return None
    columns = (
        Column("Pages", "Pages", numeric=False),
        Column("wins", "wins"),
        Column("ties", "ties"),
        Column("losses", "losses"),
        Column("win rate", "rate"),
        Column("95% interval", "95%"),
        Column("pairs", "pairs"),
        Column("groups", "groups"),
    )
    unit = "group" if kind == "clustered" else "conversation"
    notes = [
        f"Which page judge {judge} finds more like the wanted one, paired over conversations about "
        f"the same task with the same sample and temperature; a tie is half a win; Student's t "
        f"over each {unit}."
    ]
    if any(row[5].text in ("[0.000, 0.000]", "[1.000, 1.000]") for row in rows):
        notes.append("An interval of no width says that all agree, not that the rate is certain.")
    return Table("Win rates", columns, tuple(rows), tuple(notes), "wins")
