"""Tables on simulated humans: their faults, and their share of differences between policies."""

from __future__ import annotations

from collections import Counter

from convbench.judges.review.faults import NAMES, SEVERITIES, faults_of_details
from convbench.reports.document import Cell, Column, ReportPart, Table
from convbench.reports.policies import Policy, VerdictScores
from convbench.reports.sections import Section
from convbench.reports.simulators import SimulatorDifference, SimulatorPair
from convbench.reports.tables.cells import decimal_cell, interval_cells, percent_cell, span_cell
from convbench.stats.means import Estimate, estimate_mean, share_interval

SHORT = {"critical-helped": "helped", "critical-hindered": "hindered", "minor": "minor"}


def review_table(section: Section) -> Table | None:
    """Return the table of the simulated human's faults, a row for each policy and reviewer: shares
    of conversations in percent.

    None without a valid review.
    """
    rows = [
        row
        for policy in section.policies
        for judge in _policy_reviewers(policy)
        if (row := _review_row(policy, judge)) is not None
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
        "(of its log odds, clustered by group). helped: critical, it reveals what the policy "
        "should find out; hindered: critical, it keeps the policy from finding it out; minor: "
        "without effect. A conversation may have several. The faults themselves: "
        'convbench query "select * from faults".',
    )
    return Table("Reviews of the simulated human", columns, tuple(rows), notes, "simulated-human")


def _policy_reviewers(policy: Policy) -> list[str]:
    return list(dict.fromkeys(name for row in policy.observations for name in row.reviews))


def _review_row(policy: Policy, judge: str) -> tuple[Cell, ...] | None:
    reviews = [
        (row.group, row.reviews[judge])
        for row in policy.observations
        if judge in row.reviews and not row.reviews[judge].failed
    ]
    if not reviews:
        return None
    faults = Counter(name for _, review in reviews for name in _fault_names(review))
    listed = ", ".join(f"{name} {faults[name]}" for name in NAMES if faults[name])
    return (
        Cell(policy.name),
        Cell(judge),
        Cell(str(len(reviews))),
        _share_cell(
            estimate_mean(
                (g, float(not faults_of_details(review.details))) for g, review in reviews
            )
        ),
        *(
            _share_cell(
                estimate_mean(
                    (g, float(severity in _fault_severities(review))) for g, review in reviews
                )
            )
            for severity in SEVERITIES
        ),
        Cell(listed or "-"),
    )


def _fault_names(review: VerdictScores) -> set[str]:
    return {fault["fault"] for fault in faults_of_details(review.details)}


def _fault_severities(review: VerdictScores) -> set[str]:
    return {fault["severity"] for fault in faults_of_details(review.details)}


def _share_cell(share: Estimate | None) -> Cell:
    return percent_cell(share, None if share is None else share_interval(share))


def simulators_part(pair: SimulatorPair) -> ReportPart:
    """Return the part on two sections that differ only in their simulated human: one table of each
    policy's differences to the baseline with both."""
    first, second = pair.first.simulator, pair.second.simulator
    base = pair.first.baseline.name if pair.first.baseline else "Base"
    columns = (
        Column("Method", "Method", numeric=False),
        Column("Measure", "Measure", numeric=False),
        Column(f"− {base} with {first}", "1st"),
        Column("95% interval", "95%"),
        Column(f"− {base} with {second}", "2nd"),
        Column("95% interval", "95%"),
        Column("first − second", "apart"),
        Column("95% interval", "95%"),
        Column("simulator's share (%)", "share %"),
        Column("95% interval", "95%"),
        Column("result", "result", numeric=False),
    )
    rows = tuple(_difference_row(row) for row in pair.rows)
    notes = [
        f"1st: simulator {first}; 2nd: {second}. Paired over the same question, sample and "
        "temperature in all four runs; Student's t over groups.",
        "share: half the distance of the two differences over their mean, (1st - 2nd) / (1st + "
        "2nd): how far the mean difference depends on the simulator. Beyond 100 % the two "
        "means have opposite signs. No interval: the mean difference does not differ significantly "
        "from 0 (Fieller's interval has no end). The result is better or worse only if both "
        "intervals lie on one side of 0, flips only if they lie on opposite sides.",
    ]
    flips = [row for row in pair.rows if row.outcome == "flips"]
    if flips:
        listed = ", ".join(dict.fromkeys(f"{row.policy} ({row.measure.head})" for row in flips))
        notes.append(f"The ranking flips between the simulators, so there is no win: {listed}.")
    title = f"{pair.first.task} · {pair.first.mode} · {pair.first.protocol}, two simulators"
    table = Table("The simulator's share", columns, rows, tuple(notes), "two-simulators")
    return ReportPart(title, tables=(table,))


def _difference_row(row: SimulatorDifference) -> tuple[Cell, ...]:
    digits, span, value = row.measure.digits, row.share.interval, row.share.value
    percents = None if span is None else (100 * span[0], 100 * span[1])
    return (
        Cell(row.policy),
        Cell(row.measure.head),
        *interval_cells(row.first, digits),
        *interval_cells(row.second, digits),
        *interval_cells(row.contrast, digits),
        decimal_cell(value and 100 * value, 0, sign="+", span=percents),
        span_cell(percents, 0, "+"),
        Cell(row.outcome),
    )
