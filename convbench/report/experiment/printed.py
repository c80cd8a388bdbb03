"""A printed table with our lines in it, under one rule of errors, and what keeps them apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from convbench.report.document import Cell, Column, Part, Table
from convbench.report.experiment.beside import SIZED, Beside
from convbench.report.measures import ACCURACY, HEADS, THINKING, Measure, metric
from convbench.report.policies import Policy, judge_spec
from convbench.report.published import sample_size
from convbench.report.sections import compared_with
from convbench.report.tables import difference_table, training_table
from convbench.report.tables.cells import NONE, column, number
from convbench.report.tables.results import ERRORS, printed_cells, ranks_of
from convbench.stats.means import ErrorKind, over

SETS = {
    "arc": "the Challenge set alone; its section D describes the Easy set, too",
    "mmlu": "the instruction is ours, for none is printed",
    "openbookqa": "the instruction is ours, for none is printed",
    "sciqa": "rows of ScienceQA without a picture, which the paper describes; it cites SciQ",
    "sciq": "rows of SciQ, which the paper cites; it describes ScienceQA",
    "cosql": "how the wrong queries are made is ours: the paper does not say",
    "mathdial": "how the wrong numbers are made is ours, and so is the standard mode",
}
"""How our sets stand to the printed ones."""
MODEL = "Llama-3.1-8B-Instruct"
ODD = {
    6: "Base's accuracy is printed as 0.0000 ± 0.0212, which no sample gives.",
    19: "Printed accuracies of Base and STaR-GATE are those of table 1.",
}
"""What is odd in a printed table."""


def measures_for(one: Beside) -> list[Measure]:
    """Return the printed columns, for our judge's scores where it has some of that name."""
    spec = judge_spec(one.section.policies, one.judge) if one.section else None
    limits = (spec.lowest, spec.highest) if spec else (0.0, 10.0)
    return [ACCURACY, THINKING, *(metric(one.judge or "", name, limits=limits) for name in HEADS)]


def printed_part(one: Beside, kind: ErrorKind, against: Sequence[str] = ()) -> Part:
    """Return the table's part: what is compared under which regime, the table, paired differences
    to Base and to `against`, and how the methods were trained."""
    tables = [printed_table(one, kind)]
    if one.section is not None:
        compared = (one.section, *compared_with(one.section, against))
        more = (
            *(difference_table(section, one.judge, kind) for section in compared),
            training_table(one.section),
        )
        regime = one.section.regime
        tables += [
            replace(table, caption=f"{table.caption} ({regime} regime)")
            for table in more
            if table is not None and table.rows
        ]
    return Part(one.title, tuple(_facts(one, kind)), tuple(tables), notes=tuple(_apart(one)))


def printed_table(one: Beside, kind: ErrorKind) -> Table:
    """Return the printed table with ours above each printed line, in the printed order."""
    measures = measures_for(one)
    listed = [p for method in one.printed.methods for p in one.ours.get(method, ())]
    listed += one.extra
    size = sample_size(one.printed.number) if _as_printed(one, kind) else None
    found = {
        id(policy): [over(e, size) if size else e for e in (m.of(policy, kind) for m in measures)]
        for policy in listed
    }
    marks = [ranks_of([line[i] for line in found.values()], m) for i, m in enumerate(measures)]
    ranks = dict(zip(found, zip(*marks, strict=True), strict=True)) if found else {}

    def ours(policy: Policy) -> tuple[Cell, ...]:
        cells = zip(found[id(policy)], measures, ranks[id(policy)], strict=True)
        return Cell(policy.name), *(number(e, m.digits, rank) for e, m, rank in cells)

    rows = []
    for method, numbers in one.printed.methods.items():
        rows += [ours(policy) for policy in one.ours.get(method, ())]
        name = f"{SIZED} ({method} rows)" if one.printed.by_size else method
        if method not in one.ours:
            rows.append((Cell(f"{name}: missing"), *[NONE] * len(measures)))
        rows.append((Cell(f"  {name}, printed", quiet=True), *printed_cells(numbers, measures)))
    rows += [ours(policy) for policy in one.extra]
    heads = (Column("Method", "Method", numeric=False), *map(column, measures))
    regime = f" ({one.section.regime} regime)" if one.section else ""
    caption = f"Table {one.printed.number}, ours beside the printed one{regime}"
    return Table(caption, heads, tuple(rows), tuple(_notes(one, kind)), "beside")


def _as_printed(one: Beside, kind: ErrorKind) -> bool:
    """Whether our errors are over the paper's own sample size, where we have as many."""
    return one.section is not None and one.section.regime == "as-printed" and kind == "naive"


def _facts(one: Beside, kind: ErrorKind) -> Iterator[str]:
    """Yield the regime, the rule of errors and the judge, in one line; and what is missing."""
    if one.section is None:
        yield f"Missing: {one.missing['']}."
        return
    judge = f"judge {one.judge}" if one.judge else "not judged"
    yield f"Regime {one.section.regime}; {kind} errors; {judge}."
    for method, why in one.missing.items():
        yield f"Missing, {method}: {why}."


def _notes(one: Beside, kind: ErrorKind) -> Iterator[str]:
    size = sample_size(one.printed.number)
    at = f", over {size} conversations as they imply" if size else ""
    judge = one.printed.judge
    rule = f"errors naive{at} (Base's by another rule)"
    yield f"Printed: {one.printed.title}, judge {judge}; {rule}."
    if one.section is not None:
        as_printed = size is not None and _as_printed(one, kind)
        first = one.section.base or one.section.policies[0]
        groups = len({row.group for row in first.rows})
        yield (
            f"Ours: mean ± {ERRORS[kind]}; {len(first.rows)} conversations of {first.name} about "
            f"{groups} groups{', errors over as many as the printed' if as_printed else ''}."
        )
        if kind != "naive":
            yield "The rules of errors differ; --se naive, or the regime as-printed, has one rule."
    if one.printed.number in ODD:
        yield ODD[one.printed.number]


def _apart(one: Beside) -> Iterator[str]:
    """Yield what makes figures, though not orders, incomparable; and notes of the section."""
    if one.section is None:
        return
    section, found = one.section, []
    if section.task in SETS:
        found.append(f"the set ({SETS[section.task]})")
    model = _model(section.base or section.policies[0])
    if MODEL.lower() not in model.lower():
        found.append(f"the policy ({model}; printed: {MODEL})")
    if one.judge and not _same_judge(one):
        retired = ", which is retired" if "opus" in one.printed.judge else ""
        found.append(f"the judge ({one.judge}; printed: {one.printed.judge}{retired})")
    if found:
        yield f"Figures are not comparable with the printed ones in: {'; '.join(found)}."
    yield from section.notes


def _same_judge(one: Beside) -> bool:
    """Whether our judge asks the printed model."""
    spec = judge_spec(one.section.policies, one.judge) if one.section else None
    asked = (spec.model if spec else None) or one.judge or ""
    return asked.rpartition("/")[2] == one.printed.judge


def _model(policy: Policy) -> str:
    """Return the model that a policy's run had at first, before training."""
    manifest = policy.run.manifest
    member = manifest.cast.get(manifest.protocol.policy)
    return "imported" if member is None else member.weights or member.model
