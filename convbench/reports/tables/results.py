"""The paper's table, every policy on every task, policies against Base, best of N, and results
without flagged conversations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import comb
from statistics import fmean
from typing import Any

from convbench.reports.document import Cell, Column, Figure, Rank, Table
from convbench.reports.measures import (
    ACCURACY,
    Measure,
    paired_differences,
    reward_measure,
    temperature_order,
    temperature_tests,
    temperature_text,
)
from convbench.reports.policies import Observation, Policy, at_temperature, judge_spec, plain_name
from convbench.reports.published import (
    CITATION,
    NAIVE,
    PaperTable,
    PrintedNumber,
    paper_key,
    paper_table,
    reference_of,
    size_table,
)
from convbench.reports.sections import Section
from convbench.reports.starts import engine_note, model_names
from convbench.reports.tables.cells import (
    NONE,
    decimal_cell,
    estimate_cell,
    headline_measure,
    measure_column,
    measures_of,
    p_text,
    paired_table,
    scale_notes,
)
from convbench.stats.means import (
    ErrorKind,
    Estimate,
    constant_answer,
    estimate_mean,
)
from convbench.store.notes import Advantages, credit_by_source

ERRORS = {
    "clustered": "standard error clustered by group (question, dialogue, passage)",
    "naive": "naive standard error, every conversation taken as independent",
}


def main_table(section: Section, judge: str | None, kind: ErrorKind, *, paper: bool) -> Table:
    """Return the table of results: a row for each policy, a column for each measure, mean ±
    standard error, best and second best marked.

    With `paper` the paper's rows for the setting are added. The notes name scales, models and what
    keeps numbers from being compared. A section needs at least one policy.
    """
    measures = measures_of(section, judge)
    published = paper_table(section.task, section.mode, section.protocol, section.turns, judge)
    means = [[measure.mean_of(policy, kind) for measure in measures] for policy in section.policies]
    ranks = [ranks_of([row[i] for row in means], measure) for i, measure in enumerate(measures)]
    notes = [
        f"Mean ± {ERRORS[kind]}; {_size_text(section)}.",
        *scale_notes(measures),
        *(f"{names}." for names in [model_names(section.policies)] if names),
    ]
    notes += [note] if (note := engine_note(section.policies)) else []
    printed = published if paper else None
    rows = []
    for index, (policy, line) in enumerate(zip(section.policies, means, strict=True)):
        cells = (
            estimate_cell(mean, measure.digits, rank[index])
            for mean, measure, rank in zip(line, measures, ranks, strict=True)
        )
        rows.append((Cell(policy.name), *cells))
        theirs = _paper_numbers(policy, printed, section) if paper else None
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
    if single := [
        mean.n for line in means for mean in line if mean is not None and mean.error is None
    ]:
        of_group = f"group (up to {max(single):,} conversations)"
        unit = "conversation" if kind == "naive" else of_group
        notes.append(f"No standard error is given for means over a single {unit}: it needs two.")
    if any(
        mean is not None and mean.error == 0 and mean.n > 1 for line in means for mean in line[:1]
    ):
        notes.append("An error of 0 means that all groups agree, not that the mean is certain.")
    floor = constant_answer(_judge_verdicts(section, judge)) if judge else None
    if floor is not None:
        notes.append(f"Compare the scores with a constant answer: {floor}.")
    spec = judge_spec(section.policies, judge)
    if spec is not None and spec.is_relative:
        notes.append(
            f"Judge {judge} scored a question's conversations of one policy relative to each "
            "other: its scores cannot be compared between methods, so no differences are shown."
        )
    if judge is None:
        pending = "Not judged yet: convbench judge --judge NAME."
        notes.append("No scores of the selected judge." if section.judges else pending)
    columns = (
        Column("Method", "Method", numeric=False),
        *(measure_column(measure) for measure in measures),
    )
    return Table("Results", columns, tuple(rows), (*notes, *section.notes), "results")


def _judge_verdicts(
    section: Section, judge: str
) -> Iterable[tuple[str, Mapping[str, float], Mapping[str, Any]]]:
    """Yield (question, scores, details) of a judge's verdicts on all policies' conversations."""
    for policy in section.policies:
        for row in policy.observations:
            verdict = row.verdicts.get(judge)
            if verdict is not None and not verdict.failed:
                yield row.unit.rpartition("#")[0], verdict.scores, verdict.details


def _size_text(section: Section) -> str:
    first = section.base or section.policies[0]
    groups = len({row.group for row in first.observations})
    split = "all splits" if section.split == "all" else f"{section.split} split"
    about = f"{groups} group{'s' * (groups != 1)}"
    return f"{split}, {len(first.observations)} conversations of {first.name} about {about}"


def _paper_numbers(
    policy: Policy, printed: PaperTable | None, section: Section
) -> Mapping[str, PrintedNumber] | None:
    """Return the paper's numbers for a policy, by its number of training rows or its method; None
    if it has none."""
    rows = policy.recipe_data.get("rows")
    if rows is not None:  # whatever a row is: the paper does not say
        table = size_table(section.task, section.mode)
        return table.methods.get(str(rows)) if table and plain_name(policy) == "ReFit" else None
    return printed.methods.get(plain_name(policy)) if printed is not None else None


def printed_cells(
    numbers: Mapping[str, PrintedNumber], measures: Sequence[Measure]
) -> Iterable[Cell]:
    """Yield the cells of a printed row, one for each measure: mean and standard error, `-` if it is
    not printed. All are marked quiet."""
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


def ranks_of(means: Sequence[Estimate | None], measure: Measure) -> list[Rank]:
    """Return a rank for each mean, rounded as shown: 1 for the largest value, 2 for the next, else
    0. Equal values share a rank.

    All ranks are 0 if all values tie or the measure is not ranked. A missing mean has rank 0.
    """
    if not measure.ranked:
        return [0] * len(means)
    shown = [None if mean is None else round(mean.mean, measure.digits) for mean in means]
    values = sorted({value for value in shown if value is not None}, reverse=True)
    if len(values) < 2:
        return [0] * len(shown)
    places: dict[float | None, Rank] = {values[0]: 1, values[1]: 2}
    return [places.get(value, 0) for value in shown]


def matrix_tables(
    sections: Sequence[Section], judge: str | None, kind: ErrorKind
) -> Iterator[Table]:
    """Yield tables of policies by tasks: one of accuracies or, if no policy has them, one of
    rewards for each judge.

    Yield nothing for one task, or if no policy but Base is in two sections.
    """
    names = dict.fromkeys(policy.name for section in sections for policy in section.policies)
    section_counts = {
        name: sum(_find_policy(s, name) is not None for s in sections) for name in names
    }
    shared = any(count > 1 for name, count in section_counts.items() if name != "Base")
    if len({section.task for section in sections}) < 2 or not shared:
        return
    if any(ACCURACY.mean_of(policy) for section in sections for policy in section.policies):
        yield _matrix_table(sections, list(names), ACCURACY, kind)
        return
    for judge_name in dict.fromkeys(name for section in sections for name in section.judges):
        if judge in (None, judge_name):
            yield _matrix_table(sections, list(names), reward_measure(judge_name), kind)


def _matrix_table(
    sections: Sequence[Section], names: Sequence[str], measure: Measure, kind: ErrorKind
) -> Table:
    lines = [[_policy_mean(section, name, measure, kind) for section in sections] for name in names]
    ranks = [ranks_of(list(column), measure) for column in zip(*lines, strict=True)]
    rows = []
    for index, (name, values) in enumerate(zip(names, lines, strict=True)):
        cells = (
            estimate_cell(value, measure.digits, marks[index])
            for value, marks in zip(values, ranks, strict=True)
        )
        rows.append((Cell(name), *cells, _task_mean(values, measure)))
    columns = (
        Column("Method", "Method", numeric=False),
        *(Column(head, head) for head in _section_heads(sections)),
        Column("Mean of tasks", "Mean"),
    )
    notes = (
        f"{measure.head}, mean ± {ERRORS[kind]}; the last column weights all tasks equally, for "
        "policies that have all of them.",
    )
    return Table("Policies by tasks", columns, tuple(rows), notes, "matrix")


def _section_heads(sections: Sequence[Section]) -> list[str]:
    """Return a head for each section: its task, or its title if several have that task."""
    tasks = [section.task for section in sections]
    return [
        section.task if tasks.count(section.task) == 1 else section.title for section in sections
    ]


def _find_policy(section: Section, name: str) -> Policy | None:
    return next((policy for policy in section.policies if policy.name == name), None)


def _policy_mean(section: Section, name: str, measure: Measure, kind: ErrorKind) -> Estimate | None:
    policy = _find_policy(section, name)
    return None if policy is None else measure.mean_of(policy, kind)


def _task_mean(values: Sequence[Estimate | None], measure: Measure) -> Cell:
    means = [value.mean for value in values if value is not None]
    if len(means) < len(values):
        return NONE
    return decimal_cell(fmean(means), measure.digits)


def difference_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the table of paired differences to the baseline in accuracy and the judge's headline,
    with 95% intervals and p by Holm.

    The headline is left out if the judge scores conversations relative to each other. None without
    a baseline or pairs.
    """
    spec = judge_spec(section.policies, judge)
    within = spec is not None and spec.is_relative  # its scores say nothing between policies
    top = None if within else headline_measure(measures_of(section, judge))
    shown = [m for m in (ACCURACY, top) if m is not None]
    compared = [
        (m, differences)
        for m in shown
        if (differences := paired_differences(section, m, kind)) and any(d.n for d in differences)
    ]
    if not compared or section.baseline is None:
        return None
    return paired_table(compared, section.baseline.name, kind)


def temperature_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the table of accuracy and the judge's headline at each temperature, with McNemar's
    test against the baseline where there are pairs.

    None for a single temperature without a test.
    """
    temperatures = sorted(
        {r.temperature for p in section.policies for r in p.observations}, key=temperature_order
    )
    measures = measures_of(section, judge)
    top = headline_measure(measures)
    shown = [m for m in measures if m in (ACCURACY, top)]
    tests = temperature_tests(section)
    if len(temperatures) < 2 and not tests:
        return None
    columns = [
        Column("Method", "Method", numeric=False),
        Column("T", "T"),
        Column("n", "n"),
        *map(measure_column, shown),
    ]
    if tests:
        base = section.baseline.name if section.baseline else ""
        columns += [
            Column(f"losses to {base}", "losses"),
            Column(f"wins over {base}", "wins"),
            Column("McNemar p", "McN. p"),
            Column("p (Holm)", "p Holm"),
        ]
    rows = []
    for policy in section.policies:
        for temperature in temperatures:
            failed = [row.failed for row in at_temperature(policy.observations, temperature)]
            if not failed:
                continue
            completed = failed.count(False)
            cells = [Cell(policy.name), Cell(temperature_text(temperature)), Cell(str(completed))]
            cells += [
                estimate_cell(
                    m.mean_over(at_temperature(policy.observations, temperature), kind), m.digits
                )
                for m in shown
            ]
            if tests:
                test = tests.get((policy.name, temperature))
                cells += (
                    [
                        Cell(str(test.counts.only_first)),
                        Cell(str(test.counts.only_second)),
                        Cell(p_text(test.counts.p)),
                        Cell(p_text(test.adjusted)),
                    ]
                    if test
                    else [NONE] * 4
                )
            rows.append(tuple(cells))
    notes = [
        "Temperatures are not repeats of one another, so each has its own line.",
        f"Mean ± {ERRORS[kind]}.",
        *scale_notes(shown),
    ]
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


ORACLE = "the best one (oracle)"
SIZES = (1, 2, 4, 8, 16, 32, 64)


def best_of_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the table of a judge's expected reward of the best of N conversations, picked by turn
    credit and by an oracle.

    N is 1, 2, 4, … 64, as far as a question has so many; only questions with as many as the largest
    N count. None without a judge, or if no question has two conversations with credit and reward.
    """
    if judge is None:
        return None
    lines = [
        (policy, source, by_question)
        for policy in section.policies
        for source, by_question in _credited_questions(policy, judge)
    ]
    most = max(
        (len(samples) for _, _, by_question in lines for samples in by_question.values()), default=0
    )
    if most < 2:
        return None
    sizes = [n for n in SIZES if n <= most]
    rows = []
    for policy, source, by_question in lines:
        eligible = {
            name: samples for name, samples in by_question.items() if len(samples) >= max(sizes)
        }
        for picker in (source, ORACLE):
            cells = []
            for n in sizes:
                values = (
                    (
                        samples[0][2],
                        best_of([(s if picker == source else r, r) for s, r, _ in samples], n),
                    )
                    for samples in eligible.values()
                )
                cells.append(estimate_cell(estimate_mean(values, kind), 3))
            rows.append((Cell(policy.name), Cell(picker), Cell(str(len(eligible))), *cells))
    columns = (
        Column("Best of N by turn credit", "Method", False),
        Column("picked by", "By", False),
        Column("questions", "questions"),
        *(Column(f"N = {n}", f"N = {n}") for n in sizes),
    )
    notes = (
        "Expected reward of the conversation with the largest sum of its turns' advantages among N "
        "of a question's, drawn without replacement; N = 1 is the mean. A critic sees the hidden "
        "reference, so this says what its credit is worth, not what a policy can reach. Questions "
        f"with at least {max(sizes)} credited and judged conversations. Mean ± {ERRORS[kind]}.",
    )
    return Table(f"Best of N ({judge})", columns, tuple(rows), notes, "best-of-n")


CreditedReward = tuple[float, float, str]
"""(credit of a conversation, its reward, its question's group)."""


def _credited_questions(
    policy: Policy, judge: str
) -> Iterator[tuple[str, dict[str, list[CreditedReward]]]]:
    """Yield (source of credit, question → credit and reward of its conversations)."""
    value = reward_measure(judge).value
    credit: dict[str, Advantages] = {}
    for part in policy.run_policies:
        for source, credited in credit_by_source(part.run).items():
            credit.setdefault(source, {}).update(credited)
    for source, credited in sorted(credit.items()):
        by_question: dict[str, list[CreditedReward]] = {}
        for row in policy.observations:
            turns, gained = credited.get(row.conversation_id), value(row)
            if turns and gained is not None:
                sample = (sum(turns.values()), gained, row.group)
                by_question.setdefault(row.unit.rpartition("#")[0], []).append(sample)
        if by_question:
            yield source, by_question


def best_of(scored: Sequence[tuple[float, float]], n: int) -> float:
    """Return the expected second value of the pair with the largest first value among `n` pairs
    drawn without replacement.

    Ties are broken at random. 0 without pairs. Raise ZeroDivisionError if `n` is larger than the
    number of pairs.
    """
    count = len(scored)
    order = sorted(scored, key=lambda pair: -pair[0])
    total, at = 0.0, 0
    while at < count:
        end = at
        while end < count and order[end][0] == order[at][0]:
            end += 1
        # The largest is in this tie if none above it and at least one of the tie was drawn.
        chance = (comb(count - at, n) - comb(count - end, n)) / comb(count, n)
        total += chance * sum(value for _, value in order[at:end]) / (end - at)
        at = end
    return total


def flagged_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the table of accuracy and the judge's headline over all completed conversations and
    over those without a flag.

    None if no conversation is flagged.
    """
    if not any(row.flags for policy in section.policies for row in policy.observations):
        return None
    top = headline_measure(measures_of(section, judge))
    measures = [
        measure
        for measure in (ACCURACY, top)
        if measure and any(measure.mean_of(policy) for policy in section.policies)
    ]
    columns = [
        Column("Method", "Method", numeric=False),
        Column("conversations", "all"),
        Column("flagged", "flagged"),
    ]
    for measure in measures:
        own_column = measure_column(measure)
        columns += [
            Column(f"{own_column.head}, all", f"{own_column.short} all"),
            Column(f"{own_column.head}, unflagged", f"{own_column.short} unfl."),
        ]
    lines = []
    for policy in section.policies:
        marks = [bool(row.flags) for row in _completed_rows(policy)]
        cells = [Cell(policy.name), Cell(str(len(marks))), _share_cell(sum(marks), len(marks))]
        for measure in measures:
            clean = (row for row in _completed_rows(policy) if not row.flags)
            both = (measure.mean_over(rows, kind) for rows in (_completed_rows(policy), clean))
            cells += [estimate_cell(mean, measure.digits) for mean in both]
        lines.append(tuple(cells))
    notes = (
        "Failed conversations are excluded. Which conversations are flagged differs between "
        "methods, so the unflagged ones are about different questions: compare within a row, not "
        f"within a column. Mean ± {ERRORS[kind]}.",
        *scale_notes(measures),
    )
    caption = "With and without flagged conversations"
    return Table(caption, tuple(columns), tuple(lines), notes, "flagged")


def finding_table(section: Section) -> Table | None:
    """Return the table of flags, a row for each in alphabetical order, a column for each policy:
    number and share of completed conversations.

    A conversation may have several flags. None if no completed conversation is flagged.
    """
    flag_counts = {
        p.name: Counter(f for row in _completed_rows(p) for f in set(row.flags))
        for p in section.policies
    }
    names = sorted({flag for counter in flag_counts.values() for flag in counter})
    if not names:
        return None
    columns = (
        Column("Flag", "Flag", numeric=False),
        *(Column(policy.name, policy.name) for policy in section.policies),
    )
    totals = {p.name: sum(1 for _ in _completed_rows(p)) for p in section.policies}
    rows = tuple(
        (
            Cell(name),
            *(_share_cell(flag_counts[p.name][name], totals[p.name]) for p in section.policies),
        )
        for name in names
    )
    notes = ("Conversations with the flag (speaker: finding), and their share.",)
    return Table("Flags", columns, rows, notes, "flags")


def _completed_rows(policy: Policy) -> Iterator[Observation]:
    return (row for row in policy.observations if not row.failed)


def _share_cell(count: int, total: int) -> Cell:
    return Cell(f"{count} ({100 * count / total:.1f}%)" if total else "-")
