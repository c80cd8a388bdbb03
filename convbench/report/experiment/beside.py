"""Which of our policies stand beside which printed table, and why some do not."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from convbench.report.experiment.steps import Ends, StepEnd
from convbench.report.naming import plain_name, with_unique_names
from convbench.report.policies import NAMES, Policy
from convbench.report.published import (
    ALSO,
    DEFAULT_TURNS,
    PaperTable,
    is_second_judge,
    paper_tables,
)
from convbench.report.sections import Section

PRINTED_UNIT = "turn"
"""What one row of the tables by size is, as we read them."""
SIZED = "ReFit"
"""The method of the tables by size of the logged set."""


@dataclass(frozen=True)
class Beside:
    """A printed table, and what we have for it."""

    printed: PaperTable
    section: Section | None
    """The policies of the table alone; None where nothing was measured."""
    judge: str | None
    """The judge whose scores stand in it."""
    ours: Mapping[str, tuple[Policy, ...]]
    """Printed method (or number of rows) → our policies of that name."""
    missing: Mapping[str, str]
    """Printed method → why it is not here; `""` → why nothing is."""
    asked: bool = True
    """Whether anything says that the experiment was to have this table."""

    @property
    def title(self) -> str:
        """What is compared."""
        table = self.printed
        task = self.section.task if self.section else table.task
        parts = [task, table.mode, f"{table.protocol}, n = {table.turns}"]
        more = ["by size of the logged set"] if table.by_size else []
        more += ["second judge"] if is_second_judge(table.judge) else []
        return f"Table {table.number}: {' · '.join([*parts, *more])}"

    @property
    def extra(self) -> tuple[Policy, ...]:
        """Our policies that the printed table lacks."""
        known = {id(policy) for found in self.ours.values() for policy in found}
        policies = self.section.policies if self.section else ()
        return tuple(policy for policy in policies if id(policy) not in known)


def beside(sections: Sequence[Section], ends: Ends, planned: Collection[str]) -> list[Beside]:
    """Return all printed tables in their order, with what is here of each; a table that two of our
    sets stand for comes twice. `planned` holds addresses of steps that were to be."""
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
    """Whether one of these steps is for this table alone: the second judge's has none such."""
    if is_second_judge(table.judge):
        return False
    recipe = next(recipe for recipe, name in NAMES.items() if name == SIZED)
    last = tuple(f"/{recipe}-{rows}" for rows in table.methods) if table.by_size else ("",)
    return any(
        step.endswith(last) and _is_cell(table, step.partition("/")[0]) for step in known
    )  # fmt: skip


def _filled(table: PaperTable, section: Section, ends: Ends) -> Beside | None:
    """Return the table with a section's policies; None where it has none of them, or no judge that
    could stand for the second one."""
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
    """Return the policy that all rows trained, which the paper's tables by size lack."""
    found = (p for p in section.policies if not _rows(p) and plain_name(p) == SIZED)
    return [replace(policy, name=f"{SIZED} (all rows)") for policy in found]


def _unit(policy: Policy) -> str:
    return str((policy.recipe.get("data") or {}).get("unit") or PRINTED_UNIT)


def _rows(policy: Policy) -> str:
    """Return the size of the logged set that a recipe asks for; empty for all of it."""
    rows = (policy.recipe.get("data") or {}).get("rows")
    return "" if rows is None else str(rows)


def judge_of(table: PaperTable, section: Section) -> str | None:
    """Return which of our judges stands for the table's. The paper's second one is ours of that
    name, else the second that there is; its first is any other one."""
    second = next((name for name in section.judges if is_second_judge(name)), None)
    others = [name for name in section.judges if name != second]
    if not is_second_judge(table.judge):
        return next(iter(others), second)
    return second or (others[1] if len(others) > 1 else None)


def cells_of(table: PaperTable, ends: Ends) -> list[str]:
    """Return the cells of a record that are this table's."""
    return sorted({end.cell for end in ends.values() if _is_cell(table, end.cell)})


def _is_cell(table: PaperTable, cell: str) -> bool:
    """Whether a cell of this name is this table's."""
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
    """Return why a method is not here: its first step that did not end well."""
    cells = cells_of(table, ends)
    recipes = {name: recipe for recipe, name in NAMES.items()}
    size = f"-{method}" if table.by_size else ""
    checkpoint = recipes.get(SIZED if table.by_size else method, method) + size
    steps = ("build", "judge", f"train/{checkpoint}", f"eval/{checkpoint}")
    return _bad(ends, cells, steps) or "not asked for in this experiment, or not reached yet"


def _bad(ends: Ends, cells: Sequence[str], steps: Sequence[str]) -> str:
    """Return what the first steps that did not end well said; the kind alone means all of it."""
    bad = [
        end
        for cell in cells
        for end in _of_steps(ends, cell, steps)
        if not end.done
    ]  # fmt: skip
    return "; ".join(f"{end.cell}: {end.why}" for end in bad[:2])


def _of_steps(ends: Ends, cell: str, steps: Sequence[str]) -> Iterator[StepEnd]:
    for step in steps:
        address = f"{cell}/{step}"
        yield from (
            end for name, end in ends.items() if name == address or name.startswith(f"{address}/")
        )
