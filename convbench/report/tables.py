"""The tables of a section: the paper's, paired differences, by temperature, counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from convbench.report.document import Cell, Column, Table, slug
from convbench.report.measures import ACCURACY, THINKING, Measure, judge_measures
from convbench.report.paired import Paired, by_temperature, paired
from convbench.report.policies import Policy
from convbench.report.published import CITATION, NAIVE, Number, paper_table
from convbench.report.sections import Section
from convbench.report.stats import ErrorKind, Estimate

NONE = Cell("-")
ERRORS = {
    "clustered": "standard error clustered by group (question, dialogue, passage)",
    "naive": "naive standard error, every conversation taken as independent",
}


def measures_of(section: Section, judge: str | None) -> list[Measure]:
    """Return the columns of a section's table."""
    more = judge_measures(section.policies, judge) if judge is not None else []
    return [ACCURACY, THINKING, *more]


def headline(measures: Sequence[Measure]) -> Measure | None:
    """Return the judge's headline: its overall score, or the reward where it has none."""
    keys = {measure.key: measure for measure in measures}
    return keys.get("r_overall") or keys.get("reward")


def main_table(section: Section, judge: str | None, kind: ErrorKind, *, paper: bool) -> Table:
    """Return the paper's table: one line a method, mean ± standard error, best and second."""
    measures = measures_of(section, judge)
    found = [[m.of(policy, kind) for m in measures] for policy in section.policies]
    ranks = [_ranks([row[i] for row in found], m) for i, m in enumerate(measures)]
    notes = [f"Mean ± {ERRORS[kind]}; {_size(section)}."]
    printed = (
        paper_table(section.task, section.mode, section.protocol, section.turns, judge)
        if paper
        else None
    )
    rows = []
    for policy, line, marks in zip(section.policies, found, zip(*ranks, strict=True), strict=True):
        cells = (
            number(e, m.digits, rank)
            for e, m, rank in zip(line, measures, marks, strict=True)
        )  # fmt: skip
        rows.append((Cell(policy.name), *cells))
        if printed is not None and policy.name in printed.methods:
            theirs = printed.methods[policy.name]
            rows.append((Cell("  paper", quiet=True), *_theirs(theirs, measures)))
    if printed is not None:
        notes.append(
            f"Lines named paper: table {printed.number} of {CITATION}; judge {printed.judge}; "
            f"{NAIVE}."
        )
    elif paper:
        notes.append(f"The paper has no table for {section.title}.")
    if judge is None:
        notes.append("Not judged yet: convbench judge --judge NAME.")
    columns = (Column("Method", "Method", numeric=False), *(_column(m) for m in measures))
    return Table("Results", columns, tuple(rows), (*notes, *section.notes), "results")


def _size(section: Section) -> str:
    first = section.base or section.policies[0]
    groups = len({row.group for row in first.rows})
    split = "all splits" if section.split == "all" else f"{section.split} split"
    return f"{split}, {len(first.rows)} conversations of {first.name} about {groups} groups"


def _column(measure: Measure) -> Column:
    return Column(measure.head, measure.short)


def number(
    found: Estimate | None, digits: int, rank: int = 0, *, signed: bool = False, scale: float = 1.0
) -> Cell:
    """Return the cell of an estimate: mean and standard error, rounded alike."""
    if found is None:
        return NONE
    sign = "+" if signed else ""
    error = None if found.error is None else f"{found.error * scale:.{digits}f}"
    return Cell(f"{found.mean * scale:{sign}.{digits}f}", error, rank)  # type: ignore[arg-type]


def _theirs(numbers: dict[str, Number] | object, measures: Sequence[Measure]) -> Iterable[Cell]:
    assert isinstance(numbers, dict)
    for measure in measures:
        theirs = numbers.get(_paper_key(measure.key))
        yield (
            replace(NONE, quiet=True)
            if theirs is None
            else Cell(
                f"{theirs.mean:.{measure.digits}f}",
                f"{theirs.error:.{measure.digits}f}",
                quiet=True,
            )
        )


def _paper_key(key: str) -> str:
    return {"r_comprehensiveness": "r_comprehensive", "r_pedagogical": "r_pedagogic"}.get(key, key)


def _ranks(found: Sequence[Estimate | None], measure: Measure) -> list[int]:
    """Return 1 for all that are best as shown, 2 for the next value, 0 else and where all tie."""
    shown = [None if e is None else round(e.mean, measure.digits) for e in found]
    values = sorted({value for value in shown if value is not None}, reverse=True)
    if len(values) < 2:
        return [0] * len(shown)
    return [{values[0]: 1, values[1]: 2}.get(v, 0) if v is not None else 0 for v in shown]


def difference_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return paired differences to Base with 95% intervals; None without Base or another."""
    shown = [m for m in (ACCURACY, headline(measures_of(section, judge))) if m is not None]
    found = [
        (m, differences)
        for m in shown
        if (differences := paired(section, m, kind)) and any(d.n for d in differences)
    ]
    if not found or section.base is None:
        return None
    base = section.base.name
    columns = [Column("Method", "Method", numeric=False)]
    rows: dict[str, list[Cell]] = {d.name: [Cell(d.name)] for d in found[0][1]}
    for measure, differences in found:
        columns += [
            Column(
                f"{measure.head} − {section.base.name}", f"{measure.short} −{section.base.name}"
            ),
            Column("95% interval", "95%"),
            Column("p (Holm)", "p Holm"),
            Column("pairs", "pairs"),
        ]
        for difference in differences:
            rows[difference.name] += _difference(difference, measure.digits)
    unit = "groups" if kind == "clustered" else "conversations"
    notes = (
        "Paired over conversations about the same question with the same sample and temperature; "
        f"Student's t over {unit}; p adjusted by Holm over the methods.",
    )
    title = f"Differences to {base}, paired"
    return Table(title, tuple(columns), tuple(map(tuple, rows.values())), notes, slug(title))


def _difference(found: Paired, digits: int) -> list[Cell]:
    estimate = found.estimate
    if estimate is None:
        return [NONE, NONE, NONE, Cell("0")]
    interval = estimate.interval
    return [
        Cell(f"{estimate.mean:+.{digits}f}"),
        Cell(f"[{interval[0]:+.{digits}f}, {interval[1]:+.{digits}f}]") if interval else NONE,
        Cell(p_text(found.adjusted)),
        Cell(str(found.n)),
    ]


def p_text(p: float | None) -> str:
    """Return a p value as text."""
    if p is None:
        return "-"
    return "<.001" if p < 0.001 else f"{p:.3f}"


def temperature_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the figures at each temperature with McNemar's test; None for one temperature
    without anything to compare."""
    temperatures = sorted({row.temperature for p in section.policies for row in p.rows})
    top = headline(measures_of(section, judge))
    tests = by_temperature(section)
    if len(temperatures) < 2 and not tests:
        return None
    columns = [
        Column("Method", "Method", numeric=False), Column("T", "T"), Column("n", "n"),
        Column("Accuracy", "Accuracy"),
        *([_column(top)] if top else []),
    ]  # fmt: skip
    if tests:
        base = section.base.name if section.base else ""
        columns += [
            Column(f"only {base} right", f"only {base}"), Column("only it right", "only it"),
            Column("McNemar p", "McN. p"), Column("p (Holm)", "p Holm"),
        ]  # fmt: skip
    rows = []
    for policy in section.policies:
        for temperature in temperatures:
            at = [row for row in policy.rows if row.temperature == temperature]
            if not at:
                continue
            had = sum(not row.failed for row in at)
            cells = [Cell(policy.name), Cell(f"{temperature:g}"), Cell(str(had))]
            cells.append(number(ACCURACY.over(at, kind), ACCURACY.digits))
            cells += [number(top.over(at, kind), top.digits)] if top else []
            if tests:
                test = tests.get((policy.name, temperature))
                cells += (
                    [Cell(str(test.counts.only_first)), Cell(str(test.counts.only_second)),
                     Cell(p_text(test.counts.p)), Cell(p_text(test.adjusted))]
                    if test else [NONE] * 4
                )  # fmt: skip
            rows.append(tuple(cells))
    notes = ["Temperatures are not repeats of one another, so each has its own line."]
    if tests:
        notes.append(
            "McNemar's exact test on pairs about the same question; Holm over the methods at "
            "that temperature."
        )
        if any(test.clustered for test in tests.values()):
            notes.append(
                "Some groups have several pairs at one temperature, which the test takes as "
                "independent: read its p with the paired interval above."
            )
    return Table("By temperature", tuple(columns), tuple(rows), tuple(notes), "by-temperature")


def count_table(section: Section, judge: str | None) -> Table:
    """Return what was planned, had, failed, unparsed and scored."""
    heads = ["planned", "missing", "failed", "had", "unparsed", "flagged"]
    heads += ["scored", "judge failed", "unjudged"] if judge else []
    rows = []
    for policy in section.policies:
        numbers = counts(policy, judge)
        rows.append((Cell(policy.name), *(Cell(str(numbers[head])) for head in heads)))
    columns = (Column("Conversations", "Method", False), *(Column(head, head) for head in heads))
    notes = (
        "Missing and failed conversations count nowhere; unparsed answers count as wrong; a "
        "judge's failure is no score.",
    )
    return Table("Counts", columns, tuple(rows), notes, "counts")


def counts(policy: Policy, judge: str | None = None) -> dict[str, int]:
    """Return a policy's counts of conversations by what became of them."""
    rows = policy.rows
    verdicts = [row.verdicts.get(judge) if judge else None for row in rows if not row.failed]
    return {
        "planned": policy.planned,
        "missing": policy.planned - len(rows),
        "failed": sum(row.failed for row in rows),
        "had": sum(not row.failed for row in rows),
        "unparsed": sum(row.unparsed for row in rows),
        "flagged": sum(row.flagged for row in rows),
        "scored": sum(v is not None and not v.failed for v in verdicts),
        "judge failed": sum(v is not None and v.failed for v in verdicts),
        "unjudged": sum(v is None for v in verdicts),
    }
