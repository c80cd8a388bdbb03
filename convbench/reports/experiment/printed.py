"""The paper's printed tables with our results in them, and the agreement of their orders."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

from convbench.reports.document import Cell, Column, ReportPart, Table
from convbench.reports.experiment.steps import StepEnd, StepEnds
from convbench.reports.measures import ACCURACY, HEADS, THINKING, UNREAD, Measure, metric_measure
from convbench.reports.policies import NAMES, Policy, judge_spec, plain_name, with_unique_names
from convbench.reports.published import (
    ALSO,
    DEFAULT_TURNS,
    PaperTable,
    is_second_judge,
    paper_key,
    paper_tables,
    sample_size,
)
from convbench.reports.sections import Section, compared_with
from convbench.reports.tables import difference_table, training_table, variance_table
from convbench.reports.tables.cells import NONE, estimate_cell, measure_column
from convbench.reports.tables.results import ERRORS, printed_cells, ranks_of
from convbench.stats.agreement import DRAWS, RankAgreement, rank_agreement
from convbench.stats.means import ErrorKind

UNIT_WORDS = {"turn": "rows", "conversation": "conversations"}
"""What the tables by size count, by the unit of our rows: the paper says "sample size" and
"training trajectories", so both readings stand beside its lines."""
SIZED = "ReFit"
"""The method of the tables by size of the logged set."""


@dataclass(frozen=True)
class PublishedComparison:
    """A printed table and our policies for it."""

    printed: PaperTable
    section: Section | None
    """The section with only the policies of this table; None if nothing was measured."""
    judge: str | None
    """Our judge whose scores are shown in it."""
    own_policies: Mapping[str, tuple[Policy, ...]]
    """Printed method (or number of rows) → our policies of that name."""
    missing: Mapping[str, str]
    """Reason by printed method that is missing; key `""` if the table has nothing."""
    is_planned: bool = True
    """Whether the experiment was meant to have this table."""

    @property
    def title(self) -> str:
        """Return one line: `Table N: task · mode · protocol, n = turns`, with `by size of the
        logged set` and `second judge` where they apply."""
        table = self.printed
        task = self.section.task if self.section else table.task
        parts = [task, table.mode, f"{table.protocol}, n = {table.turns}"]
        more = ["by size of the logged set"] if table.by_size else []
        more += ["second judge"] if is_second_judge(table.judge) else []
        return f"Table {table.number}: {' · '.join([*parts, *more])}"

    @property
    def extra_policies(self) -> tuple[Policy, ...]:
        """Return our policies of the section that are not matched to a printed method, in the
        section's order; empty without a section."""
        known = {id(policy) for matched in self.own_policies.values() for policy in matched}
        policies = self.section.policies if self.section else ()
        return tuple(policy for policy in policies if id(policy) not in known)


def published_comparisons(
    sections: Sequence[Section], ends: StepEnds, planned: Collection[str]
) -> list[PublishedComparison]:
    """Return a comparison for every printed table in order, and for every section of ours that
    corresponds to it.

    A table without policies of ours comes once, with section and judge None and the reason in
    `missing`. `planned` and `ends` hold addresses of steps; they decide `is_planned` and the
    reasons.
    """
    known = {*planned, *ends}
    return [
        comparison
        for table in paper_tables()
        for comparison in _table_comparisons(table, sections, ends, known)
    ]


def _table_comparisons(
    table: PaperTable, sections: Sequence[Section], ends: StepEnds, known: Collection[str]
) -> Iterator[PublishedComparison]:
    setting = (table.task, table.mode, table.protocol, table.turns)
    matching = [
        section
        for section in sections
        if (ALSO.get(section.task, section.task), section.mode, section.protocol, section.turns)
        == setting
    ]
    comparisons = [
        comparison
        for section in matching
        if (comparison := _fill_comparison(table, section, ends)) is not None
    ]
    is_planned = _is_planned(table, known)
    none = {"": _missing_table_reason(table, matching, ends, is_planned)}
    yield from comparisons or [PublishedComparison(table, None, None, {}, none, is_planned)]


def _is_planned(table: PaperTable, known: Collection[str]) -> bool:
    """Return True if one of these steps belongs to this table. Tables of the second judge have no
    steps of their own."""
    if is_second_judge(table.judge):
        return False
    recipe = next(recipe for recipe, name in NAMES.items() if name == SIZED)
    last = tuple(f"/{recipe}-{rows}" for rows in table.methods) if table.by_size else ("",)
    return any(step.endswith(last) and _is_cell(table, step.partition("/")[0]) for step in known)


def _fill_comparison(
    table: PaperTable, section: Section, ends: StepEnds
) -> PublishedComparison | None:
    """Return the table with a section's policies; None if the section has none of them, or no judge
    that corresponds to the table's second one."""
    judge = judge_of(table, section)
    if judge is None and is_second_judge(table.judge):
        return None
    policies = [policy for policy in section.policies if bool(_row_count(policy)) == table.by_size]
    if table.by_size:
        sized = [policy for policy in policies if plain_name(policy) == SIZED]
        named = [replace(policy, name=_sized_name(policy)) for policy in sized]
        shown = [*named, *_all_rows_policies(section)] if named else []
    else:
        stripped = (replace(policy, name=plain_name(policy)) for policy in policies)
        shown = with_unique_names(list(stripped))
    if not shown:
        return None
    own_policies: dict[str, tuple[Policy, ...]] = {}
    for policy in shown:
        method = _row_count(policy) if table.by_size else plain_name(policy)
        if method in table.methods:
            own_policies[method] = (*own_policies.get(method, ()), policy)
    own_section = replace(section, policies=tuple(shown))
    missing = {
        method: _missing_reason(table, method, ends)
        for method in table.methods
        if method not in own_policies
    }
    return PublishedComparison(table, own_section, judge, own_policies, missing)


def _all_rows_policies(section: Section) -> list[Policy]:
    """Return the policies trained on all rows, which the paper's tables by size lack."""
    policies = (p for p in section.policies if not _row_count(p) and plain_name(p) == SIZED)
    return [replace(policy, name=f"{SIZED} (all rows)") for policy in policies]


def _sized_name(policy: Policy) -> str:
    return f"{SIZED} ({_row_count(policy)} {counted_unit(policy)})"


def counted_unit(policy: Policy) -> str:
    """Return what a policy's number of rows counts: `rows` (turns) or `conversations`."""
    unit = str(policy.recipe_data.get("unit") or "turn")
    return UNIT_WORDS.get(unit, unit)


def _row_count(policy: Policy) -> str:
    """Return the number of rows that a recipe selects, as text; "" for all."""
    rows = policy.recipe_data.get("rows")
    return "" if rows is None else str(rows)


def judge_of(table: PaperTable, section: Section) -> str | None:
    """Return the section's judge that corresponds to the table's; None if there is none.

    For the paper's second judge (Claude Opus) it is ours of such a name, else our second judge. For
    its first judge it is our first one without such a name, else the one with it.
    """
    second = next((name for name in section.judges if is_second_judge(name)), None)
    others = [name for name in section.judges if name != second]
    if not is_second_judge(table.judge):
        return next(iter(others), second)
    return second or (others[1] if len(others) > 1 else None)


def cells_of(table: PaperTable, ends: StepEnds) -> list[str]:
    """Return the sorted names of the cells in `ends` whose task, mode, protocol and turns are this
    table's."""
    return sorted({end.cell for end in ends.values() if _is_cell(table, end.cell)})


def _is_cell(table: PaperTable, cell: str) -> bool:
    """Return True if a cell of this name belongs to this table."""
    tasks = "|".join([table.task, *(task for task, other in ALSO.items() if other == table.task)])
    default = "?" if table.turns == DEFAULT_TURNS else ""
    protocol = f"(-{table.protocol})" + ("?" if table.protocol == "reasoning" else "")
    name = re.compile(rf"({tasks}){protocol}-{table.mode}(-n{table.turns}){default}-seed\d+")
    return name.fullmatch(cell) is not None


def _missing_table_reason(
    table: PaperTable, sections: Sequence[Section], ends: StepEnds, is_planned: bool
) -> str:
    cells = cells_of(table, ends)
    if sections and is_second_judge(table.judge) and not table.by_size:
        ended = _failure_text(ends, cells, ("judge",))
        return "no second judge has scored these conversations" + (f" ({ended})" if ended else "")
    kinds = ("build", "judge", "train", "eval")
    ended = _failure_text(ends, cells, kinds) if is_planned else ""
    return ended or ("not reached yet" if is_planned else "not a part of this experiment")


def _missing_reason(table: PaperTable, method: str, ends: StepEnds) -> str:
    """Return why a method is missing: its first steps that failed."""
    cells = cells_of(table, ends)
    recipes = {name: recipe for recipe, name in NAMES.items()}
    size = f"-{method}" if table.by_size else ""
    checkpoint = recipes.get(SIZED if table.by_size else method, method) + size
    steps = ("build", "judge", f"train/{checkpoint}", f"eval/{checkpoint}")
    return _failure_text(ends, cells, steps) or "not planned in this experiment, or not reached yet"


def _failure_text(ends: StepEnds, cells: Sequence[str], steps: Sequence[str]) -> str:
    """Return the reasons of the first two failed steps, "" if none failed. A step given by its kind
    alone means all steps of that kind."""
    bad = [end for cell in cells for end in _step_ends(ends, cell, steps) if not end.done]
    return "; ".join(f"{end.cell}: {end.why}" for end in bad[:2])


def _step_ends(ends: StepEnds, cell: str, steps: Sequence[str]) -> Iterator[StepEnd]:
    for step in steps:
        address = f"{cell}/{step}"
        yield from (
            end for name, end in ends.items() if name == address or name.startswith(f"{address}/")
        )


SETS = {
    "arc": "the Challenge set alone; its section D describes the Easy set, too",
    "mmlu": "the instruction is ours, for none is printed",
    "openbookqa": "the instruction is ours, for none is printed",
    "sciqa": "rows of ScienceQA without a picture, which the paper describes; it cites SciQ",
    "sciq": "rows of SciQ, which the paper cites; it describes ScienceQA",
    "cosql": "the wrong queries are made by our method; the paper does not describe one",
    "mathdial": "how the wrong numbers are made is ours, and so is the standard mode",
}
"""How our tasks differ from the printed ones."""
MODEL = "Llama-3.1-8B-Instruct"
ODD = {
    6: "Base's accuracy is printed as 0.0000 ± 0.0212, which no sample gives.",
    19: "Printed accuracies of Base and STaR-GATE are those of table 1.",
}
"""Notes on errors in a printed table, by its number."""


SAMPLE_SIZE = (
    "The paper does not say what its sample size counts: rows are turns, as in its recipe; its "
    "text speaks of training trajectories, which are conversations (experiment size-trajectories)."
)


def measures_for(comparison: PublishedComparison) -> list[Measure]:
    """Return the measures of the printed columns (accuracy, share of thinking, six metrics of our
    judge), and after accuracy the share of unread answers, which is ours alone.

    There are always nine. Without a judge the metrics have no values, and their limits are 0 to 10.
    """
    spec = judge_spec(comparison.section.policies, comparison.judge) if comparison.section else None
    limits = (spec.lowest, spec.highest) if spec else (0.0, 10.0)
    return [
        ACCURACY,
        UNREAD,
        THINKING,
        *(metric_measure(comparison.judge or "", name, limits=limits) for name in HEADS),
    ]


def printed_part(
    comparison: PublishedComparison, kind: ErrorKind, against: Sequence[str] = ()
) -> ReportPart:
    """Return the part of a printed table: the table with our rows, paired differences to Base and
    to each policy in `against`, and how the methods were trained.

    Its facts name errors and judge, and the reason for each missing method. If nothing was
    measured, it has the printed table alone.
    """
    tables = [printed_table(comparison, kind)]
    if comparison.section is not None:
        compared = (comparison.section, *compared_with(comparison.section, against))
        more = (
            *(difference_table(section, comparison.judge, kind) for section in compared),
            training_table(comparison.section),
            variance_table(comparison.section),
        )
        tables += [table for table in more if table is not None and table.rows]
    return ReportPart(
        comparison.title,
        tuple(_comparison_facts(comparison, kind)),
        tuple(tables),
        notes=tuple(_incomparability_notes(comparison)),
    )


def printed_table(comparison: PublishedComparison, kind: ErrorKind) -> Table:
    """Return the printed table in its order, with our rows above each printed row and our other
    policies at the end.

    A method that we lack has a row `NAME: missing`.
    """
    measures = measures_for(comparison)
    listed = [
        p for method in comparison.printed.methods for p in comparison.own_policies.get(method, ())
    ]
    listed += comparison.extra_policies
    means = {
        id(policy): [measure.mean_of(policy, kind) for measure in measures] for policy in listed
    }
    marks = [
        ranks_of([line[i] for line in means.values()], measure)
        for i, measure in enumerate(measures)
    ]
    ranks = dict(zip(means, zip(*marks, strict=True), strict=True)) if means else {}

    def own_row(policy: Policy) -> tuple[Cell, ...]:
        cells = zip(means[id(policy)], measures, ranks[id(policy)], strict=True)
        return Cell(policy.name), *(estimate_cell(e, m.digits, rank) for e, m, rank in cells)

    rows = []
    for method, numbers in comparison.printed.methods.items():
        rows += [own_row(policy) for policy in comparison.own_policies.get(method, ())]
        name = f"{SIZED} ({method} rows)" if comparison.printed.by_size else method
        if method not in comparison.own_policies:
            rows.append((Cell(f"{name}: missing"), *[NONE] * len(measures)))
        rows.append((Cell(f"  {name}, printed", quiet=True), *printed_cells(numbers, measures)))
    rows += [own_row(policy) for policy in comparison.extra_policies]
    heads = (Column("Method", "Method", numeric=False), *map(measure_column, measures))
    caption = f"Table {comparison.printed.number}, with our results"
    return Table(caption, heads, tuple(rows), tuple(_comparison_notes(comparison, kind)), "beside")


def _comparison_facts(comparison: PublishedComparison, kind: ErrorKind) -> Iterator[str]:
    """Yield a line with kind of errors and judge, then a line for each missing method."""
    if comparison.section is None:
        yield f"Missing: {comparison.missing['']}."
        return
    judge = f"judge {comparison.judge}" if comparison.judge else "not judged"
    yield f"{kind.capitalize()} errors; {judge}."
    for method, why in comparison.missing.items():
        yield f"Missing, {method}: {why}."


def _comparison_notes(comparison: PublishedComparison, kind: ErrorKind) -> Iterator[str]:
    size = sample_size(comparison.printed.number)
    at = f", over {size} conversations as they imply" if size else ""
    judge = comparison.printed.judge
    rule = f"errors naive{at} (Base's by another rule)"
    yield f"Printed: {comparison.printed.title}, judge {judge}; {rule}."
    if comparison.printed.by_size:
        yield SAMPLE_SIZE
    if comparison.section is not None:
        first = comparison.section.base or comparison.section.policies[0]
        groups = len({row.group for row in first.observations})
        yield (
            f"Ours: mean ± {ERRORS[kind]}; {len(first.observations)} conversations of "
            f"{first.name} about "
            f"{groups} groups."
        )
        if kind != "naive":
            yield "The rules of errors differ; --se naive has the printed one."
    if comparison.printed.number in ODD:
        yield ODD[comparison.printed.number]


def _incomparability_notes(comparison: PublishedComparison) -> Iterator[str]:
    """Yield why the figures (though not the orders) are not comparable, and the section's notes."""
    if comparison.section is None:
        return
    section, reasons = comparison.section, []
    if section.task in SETS:
        reasons.append(f"the set ({SETS[section.task]})")
    model = _policy_model(section.base or section.policies[0])
    if MODEL.lower() not in model.lower():
        reasons.append(f"the policy ({model}; printed: {MODEL})")
    if comparison.judge and not _same_judge(comparison):
        retired = ", which is retired" if "opus" in comparison.printed.judge else ""
        reasons.append(
            f"the judge ({comparison.judge}; printed: {comparison.printed.judge}{retired})"
        )
    if reasons:
        yield f"Figures are not comparable with the printed ones in: {'; '.join(reasons)}."
    yield from section.notes


def _same_judge(comparison: PublishedComparison) -> bool:
    """Return True if our judge is the printed model."""
    spec = judge_spec(comparison.section.policies, comparison.judge) if comparison.section else None
    own_model = (spec.model if spec else None) or comparison.judge or ""
    return own_model.rpartition("/")[2] == comparison.printed.judge


def _policy_model(policy: Policy) -> str:
    """Return the model of a policy's run before training."""
    member = policy.run.manifest.policy_member
    return member.weights or member.model


ComparedMeans = Sequence[tuple[Policy, float]]
"""Our policies, each with the printed mean."""
GroupSums = Mapping[str, tuple[float, int]]
"""Group → (sum, count) of its conversations' numbers."""


def order_table(comparisons: Sequence[PublishedComparison]) -> Table | None:
    """Return the table of Kendall's tau between our order and the printed one, by accuracy and by
    overall score.

    It has a row for each table with two methods of ours or more, then one for each method measured
    at two numbers of turns above 3. None without a row.
    """
    rows = [row for comparison in comparisons if (row := _order_row(comparison)) is not None]
    rows += _turn_rows(comparisons)
    if not rows:
        return None
    columns = (
        Column("Table", "Table", numeric=False),
        Column("Setting", "Setting", numeric=False),
        Column("n", "n"),
        Column("τ, accuracy", "τ acc."),
        Column("95% interval", "95%"),
        Column("p", "p"),
        Column("τ, R Overall", "τ R"),
        Column("95% interval", "95%"),
        Column("p", "p"),
    )
    notes = (
        "τ: Kendall's tau-b of our means with the printed ones over the n methods that both have "
        "(1 the same order, -1 the reverse, 0 no agreement; ties allowed for). Interval: "
        f"percentiles of {DRAWS} bootstrap samples of our questions, the same for all methods, the "
        "printed means as they are. p: exact, the share of all orders that agree at least as well. "
        "With two methods τ is 1 or -1 and p at least .5.",
    )
    return Table("Ordering agreement with the printed tables", columns, tuple(rows), notes, "order")


def _order_row(comparison: PublishedComparison) -> tuple[Cell, ...] | None:
    """Return the row of a printed table; None with fewer than two methods."""
    if comparison.section is None:
        return None
    accuracy, overall = _order_measures(comparison)
    agreements = [
        order_agreement(_printed_pairs(comparison, measure), measure)
        for measure in (accuracy, overall)
    ]
    n = max(len(_printed_pairs(comparison, measure)) for measure in (accuracy, overall))
    if n < 2:
        return None
    number, _, setting = comparison.title.partition(": ")
    return Cell(number), Cell(setting), Cell(str(n)), *_agreement_cells(agreements)


def _turn_rows(comparisons: Sequence[PublishedComparison]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each method measured at several numbers of turns above the default: whether
    its means order by n as printed."""
    longer = [
        comparison
        for comparison in comparisons
        if comparison.section is not None and comparison.printed.turns > DEFAULT_TURNS
    ]
    for method in dict.fromkeys(name for comparison in longer for name in comparison.own_policies):
        parts = [
            [
                pair
                for comparison in longer
                for pair in _printed_pairs(
                    comparison, _order_measures(comparison)[index], (method,)
                )
            ]
            for index in (0, 1)
        ]
        if max(map(len, parts)) < 2:
            continue
        measures = _order_measures(longer[0])
        agreed = [order_agreement(pairs, m) for pairs, m in zip(parts, measures, strict=True)]
        numbers = [
            str(comparison.printed.number)
            for comparison in longer
            if method in comparison.own_policies
        ]
        section = longer[0].section
        assert section is not None
        yield (
            Cell(f"Tables {numbers[0]} to {numbers[-1]}"),
            Cell(f"{section.task} · {section.mode} · {method}, by n"),
            Cell(str(max(map(len, parts)))),
            *_agreement_cells(agreed),
        )


def _order_measures(comparison: PublishedComparison) -> tuple[Measure, Measure]:
    return ACCURACY, next(m for m in measures_for(comparison) if m.key == "r_overall")


def _printed_pairs(
    comparison: PublishedComparison, measure: Measure, methods: Sequence[str] = ()
) -> ComparedMeans:
    """Return our policies that have the measure, each with the printed mean."""
    return [
        (policies[0], theirs.mean)
        for method, policies in comparison.own_policies.items()
        if (not methods or method in methods)
        and (theirs := comparison.printed.methods[method].get(paper_key(measure.key))) is not None
        and measure.mean_of(policies[0]) is not None
    ]


def order_agreement(pairs: ComparedMeans, measure: Measure) -> RankAgreement:
    """Return Kendall's tau-b of our means with the printed ones, with an exact p and a bootstrap
    percentile interval.

    Each bootstrap sample draws question groups, the same for all policies. Tau is None for fewer
    than two policies, or if all our means or all printed ones are equal.
    """
    sums = [_group_sums(policy, measure) for policy, _ in pairs]
    values = [_sums_mean(policy_sums, policy_sums.keys()) for policy_sums in sums]
    return rank_agreement(values, [printed for _, printed in pairs], _bootstrap_means(sums))


def _group_sums(policy: Policy, measure: Measure) -> GroupSums:
    groups: dict[str, list[float]] = {}
    for row in policy.observations:
        value = measure.value(row)
        if value is not None:
            groups.setdefault(row.group, []).append(value)
    return {group: (fsum(values), len(values)) for group, values in groups.items()}


def _sums_mean(sums: GroupSums, groups: Iterable[str]) -> float:
    present = [sums[group] for group in groups if group in sums]
    return fsum(total for total, _ in present) / sum(count for _, count in present)


def _bootstrap_means(sums: Sequence[GroupSums]) -> Callable[[random.Random], list[float] | None]:
    groups = sorted({group for policy_sums in sums for group in policy_sums})

    def draw_means(rng: random.Random) -> list[float] | None:
        chosen = rng.choices(groups, k=len(groups))
        if any(not policy_sums.keys() & set(chosen) for policy_sums in sums):
            return None
        return [_sums_mean(policy_sums, chosen) for policy_sums in sums]

    return draw_means


def _agreement_cells(agreements: Sequence[RankAgreement]) -> Iterator[Cell]:
    for result in agreements:
        yield NONE if result.tau is None else Cell(f"{result.tau:+.2f}")
        yield NONE if result.low is None else Cell(f"[{result.low:+.2f}, {result.high:+.2f}]")
        yield NONE if result.p is None else Cell(f"{result.p:.3f}")
