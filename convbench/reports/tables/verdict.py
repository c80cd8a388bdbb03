"""The report's part on one trained policy: its verdict and the evidence."""

from __future__ import annotations

from collections.abc import Iterator

from convbench.reports.document import Cell, Column, ReportPart, Table
from convbench.reports.sections import Section
from convbench.reports.starts import foreign_starts
from convbench.reports.style_drift import FAR
from convbench.reports.tables.cells import NONE, interval_cells
from convbench.reports.verdict import PolicyVerdict, is_above_zero, power_notes
from convbench.stats.means import Estimate
from convbench.stats.ppi import FEW


def verdict_part(section: Section, verdict: PolicyVerdict) -> ReportPart:
    """Return the part of a policy's verdict: the word and its reason as facts, one table of the
    evidence, and notes."""
    return ReportPart(
        f"{section.title} · {verdict.policy}: {verdict.ruling.headline}",
        facts=(
            f"{verdict.ruling.headline}: {verdict.ruling.why}.",
            *foreign_starts(section.policies),
        ),
        tables=(_evidence_table(section, verdict),),
        notes=tuple(_verdict_notes(verdict)),
    )


def _evidence_table(section: Section, verdict: PolicyVerdict) -> Table:
    base = section.base.name if section.base else "Base"
    columns = (
        Column("Evidence", "Evidence", numeric=False),
        Column(f"{verdict.policy} − {base}", "diff."),
        Column("95% interval", "95%"),
        Column("overpaid", "overpaid"),
        Column("95% interval", "95%"),
        Column("pairs or labels", "n"),
    )
    rows = [_evidence_row(f"judge {verdict.judge}, which trained it", verdict.evidence.gain, None)]
    for truth in verdict.evidence.truths:
        rows.append(_evidence_row(truth.name, truth.gain, truth.over))
        if truth.style is not None:
            rows.append(
                _evidence_row(f"{truth.name}, at equal length and style", truth.style.gain, None)
            )
    rows += [
        _evidence_row(f"drift: {name} (sd)", drift, None)
        for name, drift in verdict.drifts.items()
        if abs(drift.mean) >= FAR or name == "words"
    ]
    notes = (
        "Differences are in the unit of each measure (a judge's own scale, accuracy from 0 to 1). "
        "overpaid: how much more the training judge's gain is than this one's; by people the "
        "judge's bias here less that on Base, by another judge in Base's standard deviations. "
        "At equal length and style: what a regression within questions leaves to the policy; only "
        "that of another judge's gain counts. The rule is in docs/howto/gold.md.",
    )
    return Table("Evidence", columns, tuple(rows), notes, "verdict")


def _evidence_row(name: str, gain: Estimate | None, over: Estimate | None) -> tuple[Cell, ...]:
    n = NONE if gain is None else Cell(str(gain.n))
    return (Cell(name), *interval_cells(gain), *interval_cells(over), n)


def _verdict_notes(verdict: PolicyVerdict) -> Iterator[str]:
    if verdict.check is not None:
        yield f"Transport of people's labels: {verdict.check.passed}: {verdict.check.why}."
    people = any(item.people for item in verdict.evidence.truths)
    if not people and verdict.check is not None:
        yield (
            f"People's labels count where each policy has {FEW} of its own, or the transport check "
            "passes: convbench gold RUN --draw 100."
        )
    elif not people:
        yield "No usable labels by people: convbench gold RUN --draw 100."
    yield from power_notes(verdict.evidence, verdict.ruling)
    for whys in verdict.unfit.values():
        yield f"Does not count as evidence: {whys[0]}."
    if verdict.same_family:
        yield (
            f"No second opinion, because they are of the training judge's family: "
            f"{', '.join(verdict.same_family)}."
        )
    for text in verdict.evidence.unfit:
        yield f"{text[0].upper()}{text[1:]}."
    if verdict.phrase is not None:
        risen = verdict.phrase
        pays = (
            ""
            if risen.pays is None
            else f"; the judge's score is higher by {risen.pays:.2f} with it"
        )
        yield (
            f"The phrase that rose most is “{risen.text}”, from {risen.before:.0%} to "
            f"{risen.after:.0%} of the conversations{pays}."
        )
    far = [
        name
        for name, item in verdict.drifts.items()
        if abs(item.mean) >= FAR
        and (is_above_zero(item) or (item.interval is not None and item.interval[1] < 0))
    ]
    if far:
        yield f"Drifted by more than {FAR:g} standard deviations: {', '.join(far)}."
