"""Tables on simulated humans: their faults, and their share of differences between policies."""

from __future__ import annotations

from collections import Counter

from convbench.judge.review.faults import NAMES, SEVERITIES, kept
from convbench.report.document import Cell, Column, Part, Table
from convbench.report.policies import Policy
from convbench.report.rows import Scored
from convbench.report.sections import Section
from convbench.report.simulators import Apart, TwoSimulators
from convbench.report.tables.cells import decimal, percent, span_cell, with_interval
from convbench.stats.means import Estimate, estimate, share_interval

SHORT = {"critical-helped": "helped", "critical-hindered": "hindered", "minor": "minor"}


def review_table(section: Section) -> Table | None:
    """Return the table of the simulated human's faults by policy and reviewer; None without
    reviews."""
    rows = [
        row
        for policy in section.policies
        for judge in _reviewers(policy)
        if (row := _row(policy, judge)) is not None
    ]
    if not rows:
        return None
    columns = (
        Column("Method", "Method", numeric=False),
        Column("Reviewer", "Reviewer", numeric=False),
        Column("reviewed", "n"),
        Column("without a fault (%)", "clean %"),
        *(Column(f"{name} (%)", f"{SHORT[name]} %") for name in SEVERITIES),
        Column("faults", "faults", numeric=False),
    )
    notes = (
        "Conversations in which the simulated human has such a fault, with its 95% interval "
        "(of its log odds, clustered by group). helped: critical, it tells what the policy was to "
        "find out; hindered: critical, it keeps it from that; minor: nothing came of it. A "
        "conversation may have several. The faults themselves: "
        'convbench query "select * from faults".',
    )
    return Table("Reviews of the simulated human", columns, tuple(rows), notes, "simulated-human")


def _reviewers(policy: Policy) -> list[str]:
    return list(dict.fromkeys(name for row in policy.rows for name in row.reviews))


def _row(policy: Policy, judge: str) -> tuple[Cell, ...] | None:
    found = [
        (row.group, row.reviews[judge])
        for row in policy.rows
        if judge in row.reviews and not row.reviews[judge].failed
    ]
    if not found:
        return None
    faults = Counter(name for _, review in found for name in _names(review))
    listed = ", ".join(f"{name} {faults[name]}" for name in NAMES if faults[name])
    return (
        Cell(policy.name),
        Cell(judge),
        Cell(str(len(found))),
        _share(estimate((g, float(not kept(review.details))) for g, review in found)),
        *(
            _share(estimate((g, float(severity in _severities(review))) for g, review in found))
            for severity in SEVERITIES
        ),
        Cell(listed or "-"),
    )


def _names(review: Scored) -> set[str]:
    return {one["fault"] for one in kept(review.details)}


def _severities(review: Scored) -> set[str]:
    return {one["severity"] for one in kept(review.details)}


def _share(found: Estimate | None) -> Cell:
    return percent(found, None if found is None else share_interval(found))


def simulators_part(found: TwoSimulators) -> Part:
    """Return the part on two sections that differ only in their simulated human."""
    one, other = found.one.simulator, found.other.simulator
    base = found.one.baseline.name if found.one.baseline else "Base"
    columns = (
        Column("Method", "Method", numeric=False),
        Column("Measure", "Measure", numeric=False),
        Column(f"− {base} with {one}", "1st"),
        Column("95% interval", "95%"),
        Column(f"− {base} with {other}", "2nd"),
        Column("95% interval", "95%"),
        Column("first − second", "apart"),
        Column("95% interval", "95%"),
        Column("simulator's share (%)", "share %"),
        Column("95% interval", "95%"),
        Column("said", "said", numeric=False),
    )
    rows = tuple(_line(row) for row in found.rows)
    notes = [
        f"1st: simulator {one}; 2nd: {other}. Paired over the same question, sample and "
        "temperature in all four runs; Student's t over groups.",
        "share: half the distance of the two differences over their mean, (1st - 2nd) / (1st + "
        "2nd): how much of what both show hangs on who plays the human. Beyond 100 % the two "
        "means have opposite signs. No interval: the mean difference cannot be told from 0 "
        "(Fieller's interval has no end). Better or worse is said only where both intervals lie on "
        "one side of 0, flips only where they lie on opposite sides.",
    ]
    flips = [row for row in found.rows if row.said == "flips"]
    if flips:
        listed = ", ".join(dict.fromkeys(f"{row.policy} ({row.measure.head})" for row in flips))
        notes.append(f"The ranking flips between the simulators, so there is no win: {listed}.")
    title = f"{found.one.task} · {found.one.mode} · {found.one.protocol}, two simulators"
    table = Table("What is the simulator's", columns, rows, tuple(notes), "two-simulators")
    return Part(title, tables=(table,))


def _line(row: Apart) -> tuple[Cell, ...]:
    digits, span, value = row.measure.digits, row.share.interval, row.share.value
    percents = None if span is None else (100 * span[0], 100 * span[1])
    return (
        Cell(row.policy),
        Cell(row.measure.head),
        *with_interval(row.first, digits),
        *with_interval(row.second, digits),
        *with_interval(row.apart, digits),
        decimal(value and 100 * value, 0, sign="+", span=percents),
        span_cell(percents, 0, "+"),
        Cell(row.said),
    )
