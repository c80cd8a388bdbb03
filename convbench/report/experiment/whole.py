"""From an experiment's folder to its document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from convbench.errors import ConvbenchError, MissingDependency
from convbench.report.document import Cell, Column, Document, Part, Picture, Table
from convbench.report.experiment.beside import Beside, beside
from convbench.report.experiment.cost import cells_in, cost_table
from convbench.report.experiment.gallery import gallery
from convbench.report.experiment.ordering import order_table
from convbench.report.experiment.pictures import curves_by_size, curves_by_turns, radar_of
from convbench.report.experiment.printed import printed_part
from convbench.report.experiment.steps import (
    FILE,
    PLAN,
    Ends,
    Plan,
    StepEnd,
    in_order_of,
    read_ends,
    read_plan,
)
from convbench.report.experiment.wording import wording_parts
from convbench.report.layout import document
from convbench.report.plots.draw import with_pictures
from convbench.report.plots.style import Page, drawing
from convbench.report.policies import Policy, read_policy
from convbench.report.published import CITATION, DEFAULT_TURNS
from convbench.report.sections import Section, grouped
from convbench.stats.means import ErrorKind
from convbench.store import Run

CELL = re.compile(r"-seed\d+$")
"""Ends the name of a cell's folder."""
SHOWN = 400
"""Characters of a reason shown."""


@dataclass(frozen=True)
class Found:
    """What an experiment's folder holds."""

    runs: tuple[Run, ...]
    sections: tuple[Section, ...]
    ends: Ends
    plan: Plan
    unread: tuple[tuple[str, str], ...] = ()
    """(run, why) of what could not be read, or holds nothing of the split yet."""

    def lacking(self) -> list[StepEnd]:
        """Return the steps that did not end well, or in which something failed; of those that an
        earlier command asked for and the newest does not, none."""
        asked = set(self.plan.steps) or self.ends.keys()
        bad = (end for end in self.ends.values() if not end.done or end.said)
        return [end for end in bad if end.address in asked]


def is_experiment(folder: Path) -> bool:
    """Whether a folder is an experiment's: its plan lies there, or its cells do."""
    if (folder / "run.json").exists():
        return False
    cells = any(CELL.search(path.name) for path in cells_in(folder))
    return cells or any((folder / name).exists() for name in (PLAN, FILE))


def read_experiment(root: Path, split: str = "test") -> Found:
    """Read an experiment's runs and its record. What cannot be read is named, not raised: the rest
    of days of work is still reported. Runs that differ in their seed alone are pooled."""
    runs: list[Run] = []
    families: list[list[Policy]] = []
    unread: list[tuple[str, str]] = []
    plan = read_plan(root)
    for path in in_order_of(plan, cells_in(root)):
        try:
            run = Run.open(path)
            runs.append(run)
            families.append(_family(run, split, unread))
        except ConvbenchError as error:
            unread.append((path.name, str(error)))
    pool = len({run.manifest.seed for run in runs}) > 1
    known = [family for family in families if family]
    sections = grouped(known, split, pool=pool, allow=True)
    return Found(tuple(runs), tuple(sections), read_ends(root), plan, tuple(unread))


def _family(run: Run, split: str, unread: list[tuple[str, str]]) -> list[Policy]:
    """Return a run's own policy and those of its evaluations, without what cannot be read."""
    found = [read_policy(run, split)]
    for path in cells_in(run.evals):
        try:
            found.append(read_policy(Run.open(path), split, run))
        except ConvbenchError as error:
            unread.append((f"{run.path.name}/{path.name}", str(error)))
    kept = [policy for policy in found if policy.rows]
    unread += [
        (f"{run.path.name}, {policy.name}", f"no conversation of split {split} yet")
        for policy in found
        if not policy.rows
    ]
    return kept


def experiment_document(
    found: Found,
    title: str,
    *,
    kind: ErrorKind | None = None,
    plots: bool = True,
    page: Page | None = None,
    against: Sequence[str] = (),
) -> Document:
    """Return the document. `kind` is the rule of errors; None takes each regime's own; `page`
    is what pictures are drawn for; with the policies `against` all are compared too."""
    if plots:
        try:
            names = (policy.name for one in found.sections for policy in one.policies)
            with drawing(names, page):
                return _document(found, title, kind, True, (), against)
        except MissingDependency as error:
            return _document(found, title, kind, False, (f"No pictures: {error}",), against)
    return _document(found, title, kind, False, (), against)


def _document(
    found: Found,
    title: str,
    kind: ErrorKind | None,
    plots: bool,
    facts: Sequence[str],
    against: Sequence[str],
) -> Document:
    tables = beside(found.sections, found.ends, found.plan.steps)
    known = [one for one in tables if one.asked]
    alone = _without_table(found.sections, known)
    parts = [
        _overview(found, known, facts),
        *_printed(known, kind, plots, against),
        *_others(alone, kind, plots, against),
        *(wording_parts(found.sections) if plots else ()),
        _missing(found, [one for one in tables if not one.asked] if known else []),
        Part("Cost and time", tables=(cost_table(found.runs, found.ends),)),
        gallery(found.sections),
    ]
    return Document(title, tuple(part for part in parts if part is not None), alone=True)


def _overview(found: Found, known: Sequence[Beside], facts: Sequence[str]) -> Part:
    """Return what is here, in a few lines, and how far the orders agree."""
    regimes = dict.fromkeys(section.regime for section in found.sections)
    cells = len(found.runs)
    said = [f"{cells} cell{'' if cells == 1 else 's'}; regime {' and '.join(regimes) or '-'}."]
    if known:
        here = len({one.printed.number for one in known if one.section is not None})
        wanted = len({one.printed.number for one in known})
        said.append(
            f"{here} of {wanted} printed tables stand beside ours. Printed: {CITATION}. Read ours "
            "against ours and theirs against theirs: what differs is said with each table."
        )
    bad = sum(not end.done for end in found.lacking())
    if bad or found.unread:
        steps = "1 step" if bad == 1 else f"{bad} steps"
        said.append(f"{steps} did not end well, {len(found.unread)} runs not read: see Missing.")
    order = order_table(known)
    return Part("Overview", (*said, *facts), (order,) if order is not None else ())


def _printed(
    known: Sequence[Beside], kind: ErrorKind | None, plots: bool, against: Sequence[str]
) -> Iterator[Part]:
    """Yield a part for each printed table, with its pictures."""
    longer = [one for one in known if one.printed.turns > DEFAULT_TURNS and one.section]
    for one in known:
        rule = one.section.errors(kind) if one.section else "naive"
        part = printed_part(one, rule, against)
        pictures: list[Picture | None] = []
        if plots and one.section is not None:
            pictures.append(radar_of(one, rule))
            pictures.append(curves_by_size(one, rule) if one.printed.by_size else None)
            last = bool(longer) and one is longer[-1]
            pictures.append(curves_by_turns(longer, rule) if last else None)
        yield replace(part, pictures=tuple(p for p in pictures if p is not None))


def _without_table(sections: Sequence[Section], known: Sequence[Beside]) -> list[Section]:
    """Return the sections that stand beside no printed table."""
    settings = {
        (one.section.task, one.section.mode, one.section.protocol, one.section.turns)
        for one in known
        if one.section is not None
    }
    return [s for s in sections if (s.task, s.mode, s.protocol, s.turns) not in settings]


def _others(
    alone: Sequence[Section], kind: ErrorKind | None, plots: bool, against: Sequence[str]
) -> Iterator[Part]:
    """Yield the usual report of sections beside no printed table."""
    if not alone:
        return
    made = document(alone, kind=kind, against=against)
    if plots:
        made = with_pictures(made, alone, kind=kind)
    yield from made.parts


def _missing(found: Found, not_asked: Sequence[Beside]) -> Part | None:
    """Return what is not here, and why; None where nothing is missing."""
    rows = [
        (Cell(f"{end.cell}: {end.name}"), Cell(_short("; ".join(end.said) or "said nothing")))
        for end in found.lacking()
    ]
    rows += [(Cell(name), Cell(_short(why))) for name, why in found.unread]
    rows += [(Cell(one.title), Cell(one.missing[""])) for one in not_asked if not one.section]
    if not rows:
        return None
    columns = (Column("What", "What", numeric=False), Column("Why", "Why", numeric=False))
    notes = ("Steps that did not end well, or in which something failed, as their record says.",)
    table = Table("Missing", columns, tuple(rows), notes, "missing")
    return Part("Missing", tables=(table,))


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
