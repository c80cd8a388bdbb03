"""Tables of people's labels: corrected means, corrected differences, who labelled."""

from __future__ import annotations

from collections.abc import Iterator

from convbench.judge.gold.labels import Gold, family, home
from convbench.judge.gold.sampling import places, saving
from convbench.report.document import Cell, Column, Part, Table
from convbench.report.gold import GoldDifference, GoldReport, GoldRow
from convbench.report.sections import Section
from convbench.report.starts import foreign_starts
from convbench.report.tables.cells import NONE, span_cell, with_interval
from convbench.schema import JudgeSpec
from convbench.stats.ppi import FEW
from convbench.words import SplitChoice

NEXT = 40
"""Number of labels that the next draw is proposed with."""


def gold_part(section: Section, found: GoldReport) -> Part:
    """Return the report's part on a judge's scores and people's labels."""
    tables = [_means(section, found)]
    if found.differences:
        tables.append(_differences(section, found))
    title = f"{section.title}, judge {found.judge}: people's labels"
    facts = tuple(foreign_starts(section.policies))
    return Part(title, facts, tuple(tables), notes=tuple(_notes(section, found)))


def _means(section: Section, found: GoldReport) -> Table:
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
        "corrected: people's mean, moved by what the judge says of the rest (PPI++, tuned, "
        "clustered by group, Student's t over labelled groups); bias: the judge less people; "
        "saved: how many more labels an interval as narrow would take without the judge.",
        *_scale(found),
    )
    rows = tuple(_mean_row(row, found.spec) for row in found.rows)
    return Table("Judge's scores, corrected by people's labels", columns, rows, notes, "gold")


def _scale(found: GoldReport) -> Iterator[str]:
    if found.spec is not None:
        low, high = found.spec.limits(found.metric)
        yield (
            f"Scores of {found.metric} are from {low:g} to {high:g}; the interval of a corrected "
            "mean ends where its metric's scale does."
        )


def _mean_row(row: GoldRow, spec: JudgeSpec | None) -> tuple[Cell, ...]:
    raw = with_interval(row.raw, sign="")[0]
    head = (Cell(row.metric), Cell(row.policy), raw)
    if row.found is None:
        return (*head, NONE, NONE, NONE, NONE, Cell(str(row.labels)), NONE)
    saved = row.found.saved
    mean, _ = with_interval(row.found.estimate, sign="")
    span = row.found.estimate.interval
    if span is not None and spec is not None:
        low, high = spec.limits(row.metric)
        span = (max(span[0], low), min(span[1], high))
    return (
        *head,
        mean,
        span_cell(span, 2),
        *with_interval(row.found.bias),
        Cell(str(row.labels)),
        NONE if saved is None else Cell(f"{saved:.0f}"),
    )


def _differences(section: Section, found: GoldReport) -> Table:
    base = section.base.name if section.base else "Base"
    columns = (
        Column("Method", "Method", numeric=False),
        Column(f"judge − {base}", "judge"),
        Column("95% interval", "95%"),
        Column("corrected", "corr."),
        Column("95% interval", "95%"),
        Column("transport", "transp.", numeric=False),
        Column("said", "said", numeric=False),
    )
    rows = tuple(_difference_row(one) for one in found.differences)
    whys = dict.fromkeys(
        f"{one.policy}: transport {one.check.passed}: {one.check.why}."
        for one in found.differences
        if one.check is not None
    )
    flips = [f"{one.policy} is no winner: {one.flips}." for one in found.differences if one.flips]
    notes = (
        "Paired over the same question, sample and temperature. Where a policy has fewer than "
        f"{FEW} labels of its own, the other's must hold for it (transport); no winner is named "
        "unless that passes.",
        *whys,
        *flips,
    )
    title = f"Differences to {base} in {found.metric}, corrected"
    return Table(title, columns, rows, notes, "gold-differences")


def _difference_row(one: GoldDifference) -> tuple[Cell, ...]:
    check = "own labels" if one.check is None else one.check.passed
    return (
        Cell(one.policy),
        *with_interval(one.raw),
        *with_interval(one.corrected),
        Cell(check),
        Cell(one.winner),
    )


def _notes(section: Section, found: GoldReport) -> Iterator[str]:
    """Yield notes on who labelled, what is missing, and what to label next."""
    if found.few:
        yield (
            f"Fewer than {FEW} labels ({', '.join(found.few)}): intervals from so few are too "
            "narrow, at 30 they hold the truth in 93 % of cases, not 95."
        )
    families: dict[str, Gold] = {}
    for policy in section.policies:
        families.setdefault(str(home(policy.run).path.resolve()), found.gold[policy.name])
    for gold in families.values():
        people = ", ".join(f"{name} {count}" for name, count in gold.raters.items() if count)
        yield f"Labelled: {len(gold.scores)} of {gold.drawn} drawn" + (
            f", by {people}." if people else "."
        )
        value, both = gold.agreement(found.metric)
        if both:
            told = "cannot be told" if value is None else f"Krippendorff's alpha {value:.2f}"
            yield f"Agreement between people on {both} that several labelled: {told}."
        if gold.skipped:
            reasons = "; ".join(dict.fromkeys(why[:60] for why in gold.skipped.values()))
            share = len(gold.skipped) / gold.drawn
            yield (
                f"Skipped by all who saw them: {len(gold.skipped)} ({share:.0%} of those drawn), "
                f"which no figure here speaks for: {reasons}."
            )
        if gold.undrawn:
            yield f"{gold.undrawn} labels of conversations that were not drawn do not count."
        unblind = sum(not one.blind for one in gold.labels)
        if unblind:
            yield f"{unblind} labels were not given blind, as their import says."
    yield from _proposal(section, found)


def _proposal(section: Section, found: GoldReport) -> Iterator[str]:
    """Yield a proposal of what to label next, with how much variance it saves."""
    first = section.base or section.policies[0]
    run, marks = home(first.run), first.fingerprints(found.judge)
    if not marks or not any(x.scores for x in found.gold.values()):
        return
    split: SplitChoice = section.split  # type: ignore[assignment]
    pool = places(run, found.judge, marks[0], found.metric, split)
    width = len(family(run))
    saved = saving(pool, found.gold[first.name], found.metric, max(1, NEXT // width))
    if saved is None:
        return
    if saved >= 0.05:
        yield (
            f"Label next: convbench gold RUN --draw {NEXT} --by optimal takes about "
            f"{saved:.0%} off the labels' variance that {NEXT} at random would leave."
        )
    else:
        yield (
            f"Label next: any (convbench gold RUN --draw {NEXT}); by need would save "
            f"{max(saved, 0):.0%} of the variance: people are about as far from the judge all over."
        )
