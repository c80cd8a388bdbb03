"""The paper's table: one line a method, the paper's numbers beside ours where asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from convbench.report.document import Cell, Column, Figure, Rank, Table
from convbench.report.measures import Measure
from convbench.report.naming import plain_name
from convbench.report.policies import Policy, judge_spec
from convbench.report.published import (
    CITATION,
    NAIVE,
    Number,
    PaperTable,
    paper_key,
    paper_table,
    sample_size,
    size_table,
)
from convbench.report.references import reference_of
from convbench.report.sections import Section
from convbench.report.starts import model_names
from convbench.report.tables.cells import NONE, column, measures_of, number, scales
from convbench.stats.means import ErrorKind, Estimate, constant_answer, over

ERRORS = {
    "clustered": "standard error clustered by group (question, dialogue, passage)",
    "naive": "naive standard error, every conversation taken as independent",
}


def main_table(section: Section, judge: str | None, kind: ErrorKind, *, paper: bool) -> Table:
    """Return the paper's table: one line a method, mean ± standard error, best and second."""
    measures = measures_of(section, judge)
    beside = paper_table(section.task, section.mode, section.protocol, section.turns, judge)
    found = [[m.of(policy, kind) for m in measures] for policy in section.policies]
    ranks = [ranks_of([row[i] for row in found], m) for i, m in enumerate(measures)]
    notes = [
        f"Mean ± {ERRORS[kind]}; {_size(section)}.",
        *scales(measures),
        f"{model_names(section.policies)}.",
    ]
    size = _printed_size(section, kind, beside)
    if size is not None:
        found = [[over(e, size) for e in line] for line in found]
        notes.append(
            f"Errors are over {size} conversations, the paper's sample size as its own errors give "
            f"it (table {beside.number if beside else '-'}), where we have as many."
        )
    notes += _rules(section)
    printed = beside if paper else None
    rows = []
    for place, (policy, line) in enumerate(zip(section.policies, found, strict=True)):
        cells = (
            number(e, m.digits, rank[place])
            for e, m, rank in zip(line, measures, ranks, strict=True)
        )  # fmt: skip
        rows.append((Cell(policy.name), *cells))
        theirs = _printed(policy, printed, section) if paper else None
        if theirs is not None:
            rows.append((Cell("  paper", quiet=True), *printed_cells(theirs, measures)))
    if printed is not None:
        ours = {plain_name(policy) for policy in section.policies}
        rows += [
            (Cell(f"{name}, paper", quiet=True), *printed_cells(numbers, measures))
            for name, numbers in printed.methods.items()
            if name not in ours
        ]
        notes.append(
            f"Lines named paper: table {printed.number} of {CITATION}; judge {printed.judge}; "
            f"{NAIVE}."
        )
    elif paper and reference_of(section.protocol) is None:
        notes.append(f"The paper has no table for {section.title}.")
    if single := [e.n for line in found for e in line if e is not None and e.error is None]:
        units = "one" if kind == "naive" else "of one group"
        notes.append(
            f"No error is given where conversations ({max(single):,}) are {units}: it needs two."
        )
    if any(e is not None and e.error == 0 and e.n > 1 for line in found for e in line[:1]):
        notes.append("An error of 0 says that all groups agree, not that the mean is certain.")
    floor = constant_answer(_judged(section, judge)) if judge else None
    if floor is not None:
        notes.append(f"Read the scores beside these: {floor}.")
    spec = judge_spec(section.policies, judge)
    if spec is not None and spec.relative:
        notes.append(
            f"Judge {judge} scored a question's conversations of one policy beside each other: its "
            "scores tell them apart and say nothing between methods, so that no difference is told."
        )
    if judge is None:
        notes.append("Not judged yet: convbench judge --judge NAME.")
    columns = (Column("Method", "Method", numeric=False), *(column(m) for m in measures))
    return Table("Results", columns, tuple(rows), (*notes, *section.notes), "results")


def _printed_size(section: Section, kind: ErrorKind, beside: PaperTable | None) -> int | None:
    """Return the paper's own sample size, over which the errors of its regime are."""
    if section.regime != "as-printed" or kind != "naive" or beside is None:
        return None
    return sample_size(beside.number)


def _rules(section: Section) -> list[str]:
    """Return what the regime of a section comes to, where it is not this program's own."""
    if section.regime == "clean":
        return []
    manifest = (section.base or section.policies[0]).run.manifest
    limit = manifest.cast[manifest.protocol.policy].sampling.max_tokens
    return [
        f"Regime {section.regime}: replies of at most {limit} tokens, messages framed as "
        f"{manifest.protocol.framing}."
    ]


def _judged(
    section: Section, judge: str
) -> Iterable[tuple[str, Mapping[str, float], Mapping[str, Any]]]:
    """Yield (task, scores, details) of a judge's verdicts on any policy's conversations."""
    for policy in section.policies:
        for row in policy.rows:
            found = row.verdicts.get(judge)
            if found is not None and not found.failed:
                yield row.unit.rpartition("#")[0], found.scores, found.details


def _size(section: Section) -> str:
    first = section.base or section.policies[0]
    groups = len({row.group for row in first.rows})
    split = "all splits" if section.split == "all" else f"{section.split} split"
    about = f"{groups} group{'s' * (groups != 1)}"
    return f"{split}, {len(first.rows)} conversations of {first.name} about {about}"


def _printed(
    policy: Policy, printed: PaperTable | None, section: Section
) -> Mapping[str, Number] | None:
    """Return the paper's numbers of a policy: by its number of training rows, or its method."""
    data = policy.recipe.get("data") or {}
    rows = data.get("rows")
    if rows is not None and data.get("unit", "turn") == "turn":
        table = size_table(section.task, section.mode)
        return table.methods.get(str(rows)) if table and plain_name(policy) == "ReFit" else None
    return printed.methods.get(plain_name(policy)) if printed is not None else None


def printed_cells(numbers: Mapping[str, Number], measures: Sequence[Measure]) -> Iterable[Cell]:
    """Yield the cells of a printed line."""
    for measure in measures:
        theirs = numbers.get(paper_key(measure.key))
        yield (
            replace(NONE, quiet=True)
            if theirs is None
            else Cell(
                f"{theirs.mean:.{measure.digits}f}",
                f"{theirs.error:.{measure.digits}f}",
                quiet=True,
                figure=Figure(theirs.mean, theirs.error),
            )
        )


def ranks_of(found: Sequence[Estimate | None], measure: Measure) -> list[Rank]:
    """Return 1 for all that are best as shown, 2 for the next value, 0 else and where all tie."""
    if not measure.ranked:
        return [0] * len(found)
    shown = [None if e is None else round(e.mean, measure.digits) for e in found]
    values = sorted({value for value in shown if value is not None}, reverse=True)
    if len(values) < 2:
        return [0] * len(shown)
    places: dict[float | None, Rank] = {values[0]: 1, values[1]: 2}
    return [places.get(value, 0) for value in shown]
