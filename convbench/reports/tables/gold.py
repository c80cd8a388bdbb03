"""Tables of people's labels: corrected means, corrected differences, who labelled."""

from __future__ import annotations

from collections.abc import Iterator

from convbench.judges.gold.labels import GoldLabels, home_run
from convbench.reports.document import Cell, Column, ReportPart, Table
from convbench.reports.gold import GoldDifference, GoldReport, GoldRow
from convbench.reports.sections import Section
from convbench.reports.starts import foreign_starts
from convbench.reports.tables.cells import NONE, interval_cells, span_cell
from convbench.schema import JudgeSpec
from convbench.stats.ppi import FEW

NEXT = 40
"""Number of labels that the next draw is proposed with."""


def gold_part(section: Section, report: GoldReport) -> ReportPart:
    """Return the report's part on a judge's scores and people's labels: a table of corrected means,
    one of differences to Base if there are any, and notes.

    The notes say who labelled, what does not count, and what to label next.
    """
    tables = [_means_table(section, report)]
    if report.differences:
        tables.append(_difference_table(section, report))
    title = f"{section.title}, judge {report.judge}: people's labels"
    facts = tuple(foreign_starts(section.policies))
    return ReportPart(title, facts, tuple(tables), notes=tuple(_label_notes(section, report)))


def _means_table(section: Section, report: GoldReport) -> Table:
    columns = (
        Column("Metric", "Metric", numeric=False),
        Column("Method", "Method", numeric=False),
        Column("judge", "judge"),
        Column("corrected", "corr."),
        Column("95% interval", "95%"),
        Column("judge's bias", "bias"),
        Column("95% interval", "95%"),
        Column("labels", "labels"),
        Column("saved", "saved"),
    )
    notes = (
        "corrected: people's mean, adjusted by the judge's scores of the unlabelled conversations "
        "(PPI++, tuned, clustered by group, Student's t over labelled groups); bias: the judge "
        "minus people; saved: how many more labels the same interval would need without the judge.",
        *_scale_note(report),
    )
    rows = tuple(_mean_row(row, report.spec) for row in report.rows)
    return Table("Judge's scores, corrected by people's labels", columns, rows, notes, "gold")


def _scale_note(report: GoldReport) -> Iterator[str]:
    if report.spec is not None:
        low, high = report.spec.score_limits(report.metric)
        yield (
            f"Scores of {report.metric} are from {low:g} to {high:g}; the interval of a corrected "
            "mean ends where its metric's scale does."
        )


def _mean_row(row: GoldRow, spec: JudgeSpec | None) -> tuple[Cell, ...]:
    raw = interval_cells(row.raw, sign="")[0]
    head = (Cell(row.metric), Cell(row.policy), raw)
    if row.corrected is None:
        return (*head, NONE, NONE, NONE, NONE, Cell(str(row.labels)), NONE)
    saved = row.corrected.labels_saved
    mean, _ = interval_cells(row.corrected.estimate, sign="")
    span = row.corrected.estimate.interval
    if span is not None and spec is not None:
        low, high = spec.score_limits(row.metric)
        span = (max(span[0], low), min(span[1], high))
    return (
        *head,
        mean,
        span_cell(span, 2),
        *interval_cells(row.corrected.bias),
        Cell(str(row.labels)),
        NONE if saved is None else Cell(f"{saved:.0f}"),
    )


def _difference_table(section: Section, report: GoldReport) -> Table:
    base = section.base.name if section.base else "Base"
    columns = (
        Column("Method", "Method", numeric=False),
        Column(f"judge − {base}", "judge"),
        Column("95% interval", "95%"),
        Column("corrected", "corr."),
        Column("95% interval", "95%"),
        Column("transport", "transp.", numeric=False),
        Column("result", "result", numeric=False),
    )
    rows = tuple(_difference_row(difference) for difference in report.differences)
    whys = dict.fromkeys(
        f"{difference.policy}: transport {difference.check.passed}: {difference.check.why}."
        for difference in report.differences
        if difference.check is not None
    )
    flips = [
        f"{difference.policy} is no winner: {difference.flips}."
        for difference in report.differences
        if difference.flips
    ]
    notes = (
        "Paired over the same question, sample and temperature. Where a policy has fewer than "
        f"{FEW} labels of its own, the other's labels are used if they transport to it; otherwise "
        "no winner is named.",
        *whys,
        *flips,
    )
    title = f"Differences to {base} in {report.metric}, corrected"
    return Table(title, columns, rows, notes, "gold-differences")


def _difference_row(difference: GoldDifference) -> tuple[Cell, ...]:
    check = "own labels" if difference.check is None else difference.check.passed
    return (
        Cell(difference.policy),
        *interval_cells(difference.raw),
        *interval_cells(difference.corrected),
        Cell(check),
        Cell(difference.winner),
    )


def _label_notes(section: Section, report: GoldReport) -> Iterator[str]:
    """Yield notes on who labelled, what is missing, and what to label next."""
    if report.sparsely_labelled:
        yield (
            f"Fewer than {FEW} labels ({', '.join(report.sparsely_labelled)}): intervals from so "
            "few are too "
            "narrow, at 30 they hold the truth in 93 % of cases, not 95."
        )
    families: dict[str, GoldLabels] = {}
    for policy in section.policies:
        families.setdefault(str(home_run(policy.run).path.resolve()), report.gold[policy.name])
    for gold in families.values():
        people = ", ".join(f"{name} {count}" for name, count in gold.rater_counts.items() if count)
        yield f"Labelled: {len(gold.scores)} of {gold.drawn} drawn" + (
            f", by {people}." if people else "."
        )
        value, both = gold.rater_agreement(report.metric)
        if both:
            agreement = "undetermined" if value is None else f"Krippendorff's alpha {value:.2f}"
            yield f"Agreement between people on {both} that several labelled: {agreement}."
        if gold.skip_reasons:
            reasons = "; ".join(dict.fromkeys(why[:60] for why in gold.skip_reasons.values()))
            share = len(gold.skip_reasons) / gold.drawn
            yield (
                f"Skipped by all who saw them: {len(gold.skip_reasons)} ({share:.0%} of those "
                "drawn), "
                f"which no figure here covers: {reasons}."
            )
        if gold.undrawn:
            yield f"{gold.undrawn} labels of conversations that were not drawn do not count."
        unblind = sum(not label.blind for label in gold.labels)
        if unblind:
            yield f"{unblind} labels were not given blind, as their import says."
    if any(gold.scores for gold in report.gold.values()):
        yield f"Label next: convbench gold RUN --draw {NEXT}."
