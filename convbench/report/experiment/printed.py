"""The paper's printed tables with our results in them, the agreement of their orders, and the
figure of language patterns.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

from convbench.errors import ConvbenchError
from convbench.report.document import Cell, Column, Part, Table, slug
from convbench.report.experiment.steps import Ends, StepEnd
from convbench.report.measures import ACCURACY, HEADS, THINKING, Measure, metric
from convbench.report.naming import plain_name, with_unique_names
from convbench.report.patterns.analysis import Spread, patterns, spread
from convbench.report.patterns.present import patterns_document
from convbench.report.patterns.responses import responses_of
from convbench.report.policies import BASE, NAMES, Policy, judge_spec
from convbench.report.published import (
    ALSO,
    DEFAULT_TURNS,
    PaperTable,
    is_second_judge,
    paper_key,
    paper_tables,
    sample_size,
)
from convbench.report.sections import Section, compared_with
from convbench.report.tables import difference_table, training_table
from convbench.report.tables.cells import NONE, column, number
from convbench.report.tables.results import ERRORS, printed_cells, ranks_of
from convbench.stats.kendall import DRAWS, Agreement, agreement
from convbench.stats.means import ErrorKind, over

PRINTED_UNIT = "turn"
"""The unit of a row in the tables by size, as we read them."""
SIZED = "ReFit"
"""The method of the tables by size of the logged set."""


@dataclass(frozen=True)
class Beside:
    """A printed table and our policies for it."""

    printed: PaperTable
    section: Section | None
    """The section with only the policies of this table; None if nothing was measured."""
    judge: str | None
    """Our judge whose scores are shown in it."""
    ours: Mapping[str, tuple[Policy, ...]]
    """Printed method (or number of rows) → our policies of that name."""
    missing: Mapping[str, str]
    """Reason by printed method that is missing; key `""` if the table has nothing."""
    asked: bool = True
    """Whether the experiment was meant to have this table."""

    @property
    def title(self) -> str:
        """Return what is compared, in one line."""
        table = self.printed
        task = self.section.task if self.section else table.task
        parts = [task, table.mode, f"{table.protocol}, n = {table.turns}"]
        more = ["by size of the logged set"] if table.by_size else []
        more += ["second judge"] if is_second_judge(table.judge) else []
        return f"Table {table.number}: {' · '.join([*parts, *more])}"

    @property
    def extra(self) -> tuple[Policy, ...]:
        """Return our policies that the printed table lacks."""
        known = {id(policy) for found in self.ours.values() for policy in found}
        policies = self.section.policies if self.section else ()
        return tuple(policy for policy in policies if id(policy) not in known)


def beside(sections: Sequence[Section], ends: Ends, planned: Collection[str]) -> list[Beside]:
    """Return all printed tables in their order, each with our policies for it. A table that two of
    our tasks correspond to comes twice. `planned` holds the addresses of planned steps."""
    known = {*planned, *ends}
    return [one for table in paper_tables() for one in _of_table(table, sections, ends, known)]


def _of_table(
    table: PaperTable, sections: Sequence[Section], ends: Ends, known: Collection[str]
) -> Iterator[Beside]:
    wanted = (table.task, table.mode, table.protocol, table.turns)
    found = [
        section
        for section in sections
        if (ALSO.get(section.task, section.task), section.mode, section.protocol, section.turns)
        == wanted
    ]
    kept = [one for section in found if (one := _filled(table, section, ends)) is not None]
    asked = _asked(table, known)
    none = {"": _why_none(table, found, ends, asked)}
    yield from kept or [Beside(table, None, None, {}, none, asked)]


def _asked(table: PaperTable, known: Collection[str]) -> bool:
    """Return True if one of these steps belongs to this table. Tables of the second judge have no
    steps of their own."""
    if is_second_judge(table.judge):
        return False
    recipe = next(recipe for recipe, name in NAMES.items() if name == SIZED)
    last = tuple(f"/{recipe}-{rows}" for rows in table.methods) if table.by_size else ("",)
    return any(step.endswith(last) and _is_cell(table, step.partition("/")[0]) for step in known)


def _filled(table: PaperTable, section: Section, ends: Ends) -> Beside | None:
    """Return the table with a section's policies; None if the section has none of them, or no judge
    that corresponds to the table's second one."""
    judge = judge_of(table, section)
    if judge is None and is_second_judge(table.judge):
        return None
    policies = [policy for policy in section.policies if bool(_rows(policy)) == table.by_size]
    if table.by_size:
        sized = [policy for policy in policies if plain_name(policy) == SIZED]
        named = [replace(policy, name=f"{SIZED} ({_rows(policy)} rows)") for policy in sized]
        shown = [*named, *_whole(section)] if named else []
    else:
        plain = (replace(policy, name=plain_name(policy)) for policy in policies)
        shown = with_unique_names(list(plain))
    if not shown:
        return None
    ours: dict[str, tuple[Policy, ...]] = {}
    for policy in shown:
        method = _rows(policy) if table.by_size else plain_name(policy)
        if method in table.methods and not (table.by_size and _unit(policy) != PRINTED_UNIT):
            ours[method] = (*ours.get(method, ()), policy)
    kept = replace(section, policies=tuple(shown))
    missing = {method: _why(table, method, ends) for method in table.methods if method not in ours}
    return Beside(table, kept, judge, ours, missing)


def _whole(section: Section) -> list[Policy]:
    """Return the policies trained on all rows, which the paper's tables by size lack."""
    found = (p for p in section.policies if not _rows(p) and plain_name(p) == SIZED)
    return [replace(policy, name=f"{SIZED} (all rows)") for policy in found]


def _unit(policy: Policy) -> str:
    return str((policy.recipe.get("data") or {}).get("unit") or PRINTED_UNIT)


def _rows(policy: Policy) -> str:
    """Return the number of rows that a recipe selects, as text; "" for all."""
    rows = (policy.recipe.get("data") or {}).get("rows")
    return "" if rows is None else str(rows)


def judge_of(table: PaperTable, section: Section) -> str | None:
    """Return our judge that corresponds to the table's. For the paper's second judge it is ours of
    that name, else our second one; for its first, the first other one. None if there is none."""
    second = next((name for name in section.judges if is_second_judge(name)), None)
    others = [name for name in section.judges if name != second]
    if not is_second_judge(table.judge):
        return next(iter(others), second)
    return second or (others[1] if len(others) > 1 else None)


def cells_of(table: PaperTable, ends: Ends) -> list[str]:
    """Return the names of the experiment's cells that belong to this table, sorted."""
    return sorted({end.cell for end in ends.values() if _is_cell(table, end.cell)})


def _is_cell(table: PaperTable, cell: str) -> bool:
    """Return True if a cell of this name belongs to this table."""
    tasks = "|".join([table.task, *(task for task, other in ALSO.items() if other == table.task)])
    default = "?" if table.turns == DEFAULT_TURNS else ""
    protocol = f"(-{table.protocol})" + ("?" if table.protocol == "reasoning" else "")
    name = re.compile(rf"({tasks}){protocol}-{table.mode}(-n{table.turns}){default}-seed\d+")
    return name.fullmatch(cell) is not None


def _why_none(table: PaperTable, found: Sequence[Section], ends: Ends, asked: bool) -> str:
    cells = cells_of(table, ends)
    if found and is_second_judge(table.judge) and not table.by_size:
        ended = _bad(ends, cells, ("judge",))
        return "no second judge has scored these conversations" + (f" ({ended})" if ended else "")
    kinds = ("build", "judge", "train", "eval")
    ended = _bad(ends, cells, kinds) if asked else ""
    return ended or ("not reached yet" if asked else "not a part of this experiment")


def _why(table: PaperTable, method: str, ends: Ends) -> str:
    """Return why a method is missing: its first steps that failed."""
    cells = cells_of(table, ends)
    recipes = {name: recipe for recipe, name in NAMES.items()}
    size = f"-{method}" if table.by_size else ""
    checkpoint = recipes.get(SIZED if table.by_size else method, method) + size
    steps = ("build", "judge", f"train/{checkpoint}", f"eval/{checkpoint}")
    return _bad(ends, cells, steps) or "not asked for in this experiment, or not reached yet"


def _bad(ends: Ends, cells: Sequence[str], steps: Sequence[str]) -> str:
    """Return the reasons of the first two failed steps, "" if none failed. A step given by its kind
    alone means all steps of that kind."""
    bad = [end for cell in cells for end in _of_steps(ends, cell, steps) if not end.done]
    return "; ".join(f"{end.cell}: {end.why}" for end in bad[:2])


def _of_steps(ends: Ends, cell: str, steps: Sequence[str]) -> Iterator[StepEnd]:
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
    "cosql": "how the wrong queries are made is ours: the paper does not say",
    "mathdial": "how the wrong numbers are made is ours, and so is the standard mode",
}
"""How our tasks differ from the printed ones."""
MODEL = "Llama-3.1-8B-Instruct"
ODD = {
    6: "Base's accuracy is printed as 0.0000 ± 0.0212, which no sample gives.",
    19: "Printed accuracies of Base and STaR-GATE are those of table 1.",
}
"""Notes on errors in a printed table, by its number."""


def measures_for(one: Beside) -> list[Measure]:
    """Return the measures of the printed columns, for our judge's scores of the same names."""
    spec = judge_spec(one.section.policies, one.judge) if one.section else None
    limits = (spec.lowest, spec.highest) if spec else (0.0, 10.0)
    return [ACCURACY, THINKING, *(metric(one.judge or "", name, limits=limits) for name in HEADS)]


def printed_part(one: Beside, kind: ErrorKind, against: Sequence[str] = ()) -> Part:
    """Return the part of a printed table: regime and judge, the table, paired differences to Base
    and to `against`, and how the methods were trained."""
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
    """Return the printed table in its order, with our rows above each printed row."""
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
    """Return True if our errors are computed with the paper's own sample size."""
    return one.section is not None and one.section.regime == "as-printed" and kind == "naive"


def _facts(one: Beside, kind: ErrorKind) -> Iterator[str]:
    """Yield a line with regime, kind of errors and judge, then a line for each missing method."""
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
    """Yield why the figures (though not the orders) are not comparable, and the section's notes."""
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
    """Return True if our judge is the printed model."""
    spec = judge_spec(one.section.policies, one.judge) if one.section else None
    asked = (spec.model if spec else None) or one.judge or ""
    return asked.rpartition("/")[2] == one.printed.judge


def _model(policy: Policy) -> str:
    """Return the model of a policy's run before training; `imported` if it has none."""
    manifest = policy.run.manifest
    member = manifest.cast.get(manifest.protocol.policy)
    return "imported" if member is None else member.weights or member.model


Compared = Sequence[tuple[Policy, float]]
"""Our policies, each with the printed mean."""
Sums = Mapping[str, tuple[float, int]]
"""Group → (sum, count) of its conversations' numbers."""


def order_table(found: Sequence[Beside]) -> Table | None:
    """Return the table of Kendall's tau between our order and the printed one: of each table's
    methods by accuracy and overall score, then of each method by number of turns. None if no two
    methods can be ordered."""
    rows = [row for one in found if (row := _line(one)) is not None]
    rows += _by_turns(found)
    if not rows:
        return None
    columns = (
        Column("Table", "Table", numeric=False),
        Column("Setting", "Setting", numeric=False),
        Column("Regime", "Regime", numeric=False),
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


def _line(one: Beside) -> tuple[Cell, ...] | None:
    """Return the row of a printed table; None with fewer than two methods."""
    if one.section is None:
        return None
    accuracy, overall = _measures(one)
    found = [agree(_pairs(one, measure), measure) for measure in (accuracy, overall)]
    n = max(len(_pairs(one, measure)) for measure in (accuracy, overall))
    if n < 2:
        return None
    number, _, setting = one.title.partition(": ")
    regime = one.section.regime
    return Cell(number), Cell(setting), Cell(regime), Cell(str(n)), *_cells(found)


def _by_turns(found: Sequence[Beside]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each method measured at several numbers of turns above the default: whether
    its means order by n as printed."""
    longer = [one for one in found if one.section is not None and one.printed.turns > 3]
    for method in dict.fromkeys(name for one in longer for name in one.ours):
        parts = [
            [pair for one in longer for pair in _pairs(one, _measures(one)[place], (method,))]
            for place in (0, 1)
        ]
        if max(map(len, parts)) < 2:
            continue
        measures = _measures(longer[0])
        agreed = [agree(pairs, m) for pairs, m in zip(parts, measures, strict=True)]
        numbers = [str(one.printed.number) for one in longer if method in one.ours]
        section = longer[0].section
        assert section is not None
        yield (
            Cell(f"Tables {numbers[0]} to {numbers[-1]}"),
            Cell(f"{section.task} · {section.mode} · {method}, by n"),
            Cell(section.regime),
            Cell(str(max(map(len, parts)))),
            *_cells(agreed),
        )


def _measures(one: Beside) -> tuple[Measure, Measure]:
    return ACCURACY, next(m for m in measures_for(one) if m.key == "r_overall")


def _pairs(one: Beside, measure: Measure, methods: Sequence[str] = ()) -> Compared:
    """Return our policies that have the measure, each with the printed mean."""
    return [
        (policies[0], theirs.mean)
        for method, policies in one.ours.items()
        if (not methods or method in methods)
        and (theirs := one.printed.methods[method].get(paper_key(measure.key))) is not None
        and measure.of(policies[0]) is not None
    ]


def agree(found: Compared, measure: Measure) -> Agreement:
    """Return the agreement of our means with the printed ones. Its interval resamples questions,
    the same for all policies that share them."""
    sums = [_sums(policy, measure) for policy, _ in found]
    values = [_mean(one, one.keys()) for one in sums]
    return agreement(values, [printed for _, printed in found], _resampled(sums))


def _sums(policy: Policy, measure: Measure) -> Sums:
    groups: dict[str, list[float]] = {}
    for row in policy.rows:
        value = measure.value(row)
        if value is not None:
            groups.setdefault(row.group, []).append(value)
    return {group: (fsum(values), len(values)) for group, values in groups.items()}


def _mean(sums: Sums, groups: Iterable[str]) -> float:
    found = [sums[group] for group in groups if group in sums]
    return fsum(total for total, _ in found) / sum(count for _, count in found)


def _resampled(sums: Sequence[Sums]) -> Callable[[random.Random], list[float] | None]:
    groups = sorted({group for one in sums for group in one})

    def drawn(rng: random.Random) -> list[float] | None:
        chosen = rng.choices(groups, k=len(groups))
        if any(not one.keys() & set(chosen) for one in sums):
            return None
        return [_mean(one, chosen) for one in sums]

    return drawn


def _cells(found: Sequence[Agreement]) -> Iterator[Cell]:
    for one in found:
        yield NONE if one.tau is None else Cell(f"{one.tau:+.2f}")
        yield NONE if one.low is None else Cell(f"[{one.low:+.2f}, {one.high:+.2f}]")
        yield NONE if one.p is None else Cell(f"{one.p:.3f}")


SHOWN = ("arc", "sciqa")
"""The tasks of Figure 1 (a) and (b)."""
LEARNT = NAMES["swift"]
TITLE = "Figure 1: language patterns of Base and SWiFt"


def wording_parts(sections: Sequence[Section]) -> list[Part]:
    """Return a part for each task of the figure, and one that compares them; empty if no section is
    of these tasks. A part that cannot be drawn says why."""
    chosen = [one for task in SHOWN if (one := _chosen(sections, task)) is not None]
    parts, found = [], {}
    for place, section in zip("ab", chosen, strict=False):
        part, measured = _part(section, f"{TITLE} ({place}), {section.task} · {section.mode}")
        parts.append(part)
        if measured is not None:
            found[f"{section.task} · {section.mode}"] = measured
    if chosen and len(found) == len(SHOWN):
        parts.append(Part("Across sets (appendix E.3)", tables=(across(found),)))
    elif chosen:
        fact = f"Missing: E.3 compares {' and '.join(SHOWN)}; {len(found)} of them can be measured."
        parts.append(Part("Across sets (appendix E.3)", (fact,)))
    return parts


def _chosen(sections: Sequence[Section], task: str) -> Section | None:
    """Return the section for a task of the figure, preferably reasoning in thinking mode; None if
    there is none. Sections with both policies come first."""
    found = [s for s in sections if ALSO.get(s.task, s.task) == task]
    found.sort(key=lambda s: (s.protocol != "reasoning", s.mode != "thinking", s.turns, s.task))
    return next((s for s in found if len(_two(s)) == 2), next(iter(found), None))


def _two(section: Section) -> list[Policy]:
    """Return Base and SWiFt (trained on all rows) under these names, those that exist."""
    wanted = {BASE: section.base}
    wanted[LEARNT] = next(
        (
            policy
            for policy in section.policies
            if plain_name(policy) == LEARNT and not (policy.recipe.get("data") or {}).get("rows")
        ),
        None,
    )
    return [replace(policy, name=name) for name, policy in wanted.items() if policy is not None]


def _part(section: Section, title: str) -> tuple[Part, Spread | None]:
    policies = _two(section)
    if len(policies) < 2:
        return Part(title, ("Missing: Base and SWiFt are not both here.",)), None
    try:
        found = patterns(responses_of(policies))
        made = patterns_document(found, title).parts[0]
    except ConvbenchError as error:
        return Part(title, (f"Missing: {error}",)), None
    facts = (f"Regime {section.regime}.", *made.facts)
    pictures = tuple(replace(p, name=slug(f"patterns {section.title}")) for p in made.pictures)
    return replace(made, facts=facts, pictures=pictures), spread(found)


def across(found: dict[str, Spread]) -> Table:
    """Return the table of what the appendix reads off the two pictures, a row a task."""
    columns = (
        Column("Set", "Set", numeric=False),
        Column("responses", "n"),
        Column("distance", "dist."),
        Column("distance, Base", "Base"),
        Column("distance, SWiFt", "SWiFt"),
        Column("separation", "sep."),
        Column("largest pattern (%)", "largest"),
        Column("effective patterns", "eff."),
        Column("outliers (%)", "outl."),
    )
    rows = tuple(
        (
            Cell(name),
            Cell(str(one.responses)),
            _number(one.distance),
            _number(one.by_policy.get(BASE)),
            _number(one.by_policy.get(LEARNT)),
            _number(one.separation, sign="+"),
            _number(100 * one.first, 1),
            _number(one.patterns, 2),
            _number(_percent(one.outliers), 1),
        )
        for name, one in found.items()
    )
    notes = (
        "distance: mean 1 - cosine of the uncommon words' TF-IDF between two responses, of all and "
        "within a policy (1. cluster density; E.4: diversity). separation: share of the 15 nearest "
        "neighbours of the same policy less what chance gives (2. separation of the models). "
        "largest pattern, effective patterns: share of pattern 0, and exp(entropy) of the shares "
        "(3. use of patterns). outliers: responses whose nearest neighbour lies above the third "
        "quartile by more than 1.5 interquartile ranges (4. outliers).",
        "Printed, in words alone: ARC's responses are more dispersed than SciQA's, its policies "
        "less apart, its minor patterns used more evenly; pattern 0 is the largest in both; SWiFt "
        "is more varied than Base in both.",
    )
    return Table("Across sets", columns, rows, notes, "across-sets")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _number(value: float | None, digits: int = 3, sign: str = "") -> Cell:
    return Cell("-" if value is None else f"{value:{sign}.{digits}f}")
