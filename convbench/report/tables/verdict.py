"""The report's part on one trained policy: its verdict and the evidence."""

from __future__ import annotations

from collections.abc import Iterator

from convbench.report.document import Cell, Column, Part, Table
from convbench.report.moved import FAR
from convbench.report.sections import Section
from convbench.report.starts import foreign_starts
from convbench.report.tables.cells import NONE, with_interval
from convbench.report.verdict import Verdicted, above, lacking
from convbench.stats.means import Estimate
from convbench.stats.ppi import FEW


def verdict_part(section: Section, found: Verdicted) -> Part:
    """Return the part of a policy's verdict: the word and its reason, a table of evidence, and
    notes."""
    return Part(
        f"{section.title} · {found.policy}: {found.decided.headline}",
        facts=(
            f"{found.decided.headline}: {found.decided.why}.",
            *foreign_starts(section.policies),
        ),
        tables=(_table(section, found),),
        notes=tuple(_notes(found)),
    )


def _table(section: Section, found: Verdicted) -> Table:
    base = section.base.name if section.base else "Base"
    columns = (
        Column("Evidence", "Evidence", numeric=False),
        Column(f"{found.policy} − {base}", "diff."),
        Column("95% interval", "95%"),
        Column("overpaid", "overpaid"),
        Column("95% interval", "95%"),
        Column("pairs or labels", "n"),
    )
    rows = [_row(f"judge {found.judge}, which trained it", found.evidence.gain, None)]
    for one in found.evidence.truths:
        rows.append(_row(one.name, one.gain, one.over))
        if one.style is not None:
            rows.append(_row(f"{one.name}, at equal length and style", one.style.gain, None))
    rows += [
        _row(f"drift: {name} (sd)", moved, None)
        for name, moved in found.drifts.items()
        if abs(moved.mean) >= FAR or name == "words"
    ]
    notes = (
        "Differences are in the unit of each measure (a judge's own scale, accuracy from 0 to 1). "
        "overpaid: how much more the training judge's gain is than this one's; by people the "
        "judge's bias here less that on Base, by another judge in Base's standard deviations. "
        "At equal length and style: what a regression within questions leaves to the policy; only "
        "that of another judge's gain counts. The rule is in docs/howto/gold.md.",
    )
    return Table("What speaks of it", columns, tuple(rows), notes, "verdict")


def _row(name: str, gain: Estimate | None, over: Estimate | None) -> tuple[Cell, ...]:
    n = NONE if gain is None else Cell(str(gain.n))
    return (Cell(name), *with_interval(gain), *with_interval(over), n)


def _notes(found: Verdicted) -> Iterator[str]:
    if found.check is not None:
        yield f"Transport of people's labels: {found.check.passed}: {found.check.why}."
    people = any(one.people for one in found.evidence.truths)
    if not people and found.check is not None:
        yield (
            f"People's labels count where each policy has {FEW} of its own, or the transport check "
            "passes: convbench gold RUN --draw 100."
        )
    elif not people:
        yield "No labels of people that count here: convbench gold RUN --draw 100."
    yield from lacking(found.evidence, found.decided)
    for whys in found.unfit.values():
        yield f"Does not count as the truth: {whys[0]}."
    if found.alike:
        yield (
            f"No second opinion, for of the same family as the judge that trained: "
            f"{', '.join(found.alike)}."
        )
    for text in found.evidence.unfit:
        yield f"{text[0].upper()}{text[1:]}."
    if found.phrase is not None:
        risen = found.phrase
        pays = "" if risen.pays is None else f"; with it the judge pays {risen.pays:+.2f}"
        yield (
            f"Rose most: “{risen.text}”, from {risen.before:.0%} to {risen.after:.0%} of the "
            f"conversations{pays}."
        )
    far = [
        name
        for name, one in found.drifts.items()
        if abs(one.mean) >= FAR
        and (above(one) or (one.interval is not None and one.interval[1] < 0))
    ]
    if far:
        yield f"Drifted by more than {FAR:g} standard deviations: {', '.join(far)}."
