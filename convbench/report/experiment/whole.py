"""Read an experiment's folder and make its document: tables, pictures, cost, what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from convbench.engine.journal import Journal
from convbench.errors import ConvbenchError, MissingDependency
from convbench.report.document import Cell, Column, Document, Part, Picture, Table
from convbench.report.experiment.gallery import gallery
from convbench.report.experiment.pictures import curves_by_size, curves_by_turns, radar_of
from convbench.report.experiment.printed import (
    Beside,
    beside,
    order_table,
    printed_part,
    wording_parts,
)
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
from convbench.report.layout import document
from convbench.report.plots.draw import with_pictures
from convbench.report.plots.style import Page, drawing
from convbench.report.policies import Policy, read_policy
from convbench.report.published import CITATION, DEFAULT_TURNS
from convbench.report.sections import Section, grouped
from convbench.rollout.asked import NOT_ASKED
from convbench.schema import Turn
from convbench.stats.means import ErrorKind
from convbench.store import Run
from convbench.store.shards import of_shard, superseded

CALLS = "calls.jsonl"
HERE = ("local:", "vllm:")
"""Prefixes of models on own machines, whose calls have no price."""


@dataclass
class Spent:
    """Cost of a cell, or of all cells."""

    conversations: float = 0.0
    """Dollars of the calls whose replies are in conversations."""
    judges: float = 0.0
    """Dollars of the calls whose replies are in verdicts."""
    total: float = 0.0
    """Dollars of all calls, including lost attempts and replies that no record holds."""
    tokens: int = 0
    unpriced: int = 0
    """Number of conversations and verdicts whose provider's price is unknown."""
    seconds: float = 0.0
    unread: int = 0
    """Number of runs whose records cannot be read."""

    def add(self, other: Spent) -> None:
        """Add another cost to this one, field by field."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


def cost_table(runs: Sequence[Run], ends: Ends) -> Table:
    """Return the table of dollars, tokens and hours: a row a cell with its evaluations, and their
    sum."""
    found = {run.path.name: _of_cell(run, ends) for run in runs}
    for cell in dict.fromkeys(end.cell for end in ends.values()):
        found.setdefault(cell, Spent(seconds=_seconds(cell, ends)))
    everything = Spent()
    for one in found.values():
        everything.add(one)
    rows = [_row(name, one) for name, one in found.items()]
    rows.append(_row("All", everything))
    columns = (
        Column("Cell", "Cell", numeric=False),
        Column("conversations ($)", "conv. $"),
        Column("judges ($)", "judges $"),
        Column("lost, unused ($)", "lost $"),
        Column("total ($)", "total $"),
        Column("tokens", "tokens"),
        Column("hours", "hours"),
    )
    return Table("Cost and time", columns, tuple(rows), tuple(_notes(everything)), "cost")


def _notes(found: Spent) -> Iterator[str]:
    yield (
        "A cell holds its conversations, judging, branches and every learner's evaluation. Lost, "
        "unused: attempts without a reply at the most they may have cost, and replies that no "
        "record holds. Dollars as providers told or as their price list has it; models on machines "
        "of one's own cost none here. Hours: the steps' own, all tries together."
    )
    if found.unpriced:
        yield (
            f"Price unknown for {found.unpriced} conversations and verdicts: the true total is "
            "more."
        )
    if found.unread:
        yield f"Records of {found.unread} runs cannot be read: see Missing."


def _row(name: str, one: Spent) -> tuple[Cell, ...]:
    lost = max(0.0, one.total - one.conversations - one.judges)
    more = "+ ?" if one.unpriced else ""
    hours = f"{one.seconds / 3600:.2f}" if one.seconds else "-"
    return (
        Cell(name),
        Cell(f"{one.conversations:.4f}"),
        Cell(f"{one.judges:.4f}"),
        Cell(f"{lost:.4f}"),
        Cell(f"{one.total:.4f}{more}"),
        Cell(f"{one.tokens:,}"),
        Cell(hours),
    )


def _of_cell(run: Run, ends: Ends) -> Spent:
    """Return the cost of a run with its evaluations and branches."""
    spent = Spent(seconds=_seconds(run.path.name, ends))
    tokens = 0
    for path in sorted({run.path, *(file.parent for file in run.path.rglob("run.json"))}):
        if of_shard(path):
            continue  # counted with its run
        try:
            tokens += _of_records(Run.open(path), spent)
        except ConvbenchError:  # also listed as missing
            spent.unread += 1
    files = (file for file in run.path.rglob(CALLS) if not superseded(file.parent))
    journals = [Journal(path).totals() for path in sorted(files)]
    spent.tokens = max(tokens, sum(count for count, _ in journals))
    spent.total = max(spent.conversations + spent.judges, sum(usd for _, usd in journals))
    return spent


def _of_records(run: Run, spent: Spent) -> int:
    """Add the cost in a run's records to the total; return the number of their tokens."""
    tokens = 0
    cast = run.manifest.cast
    for talk in run.conversations():
        asked = [turn for turn in talk.turns if turn.finish_reason not in NOT_ASKED]
        spent.conversations += sum(turn.cost_usd or 0.0 for turn in asked)
        spent.unpriced += any(
            _unpriced(turn, cast[turn.speaker].model) for turn in asked if turn.speaker in cast
        )
        tokens += _tokens((turn.prompt_tokens, turn.completion_tokens) for turn in asked)
    specs = run.judge_specs()
    for verdict in run.verdict_rows():
        spent.judges += verdict.cost_usd or 0.0
        spec = specs.get(verdict.fingerprint)
        model = spec.model if spec else None
        spent.unpriced += bool(model and verdict.cost_usd is None and not model.startswith(HERE))
        tokens += _tokens([(verdict.prompt_tokens, verdict.completion_tokens)])
    return tokens


def _unpriced(turn: Turn, model: str) -> bool:
    return turn.cost_usd is None and not model.startswith(HERE)


def _tokens(found: Iterable[tuple[int | None, int | None]]) -> int:
    return sum((prompt or 0) + (reply or 0) for prompt, reply in found)


def _seconds(cell: str, ends: Ends) -> float:
    return sum(end.seconds for end in ends.values() if end.cell == cell)


def cells_in(root: Path) -> list[Path]:
    """Return the run folders of an experiment, by name."""
    found = (file.parent for file in root.glob("*/run.json"))
    return sorted(path for path in found if not path.is_symlink())


CELL = re.compile(r"-seed\d+$")
"""Pattern of the end of a cell folder's name."""
SHOWN = 400
"""Most characters shown of a reason."""


@dataclass(frozen=True)
class Found:
    """The contents of an experiment's folder."""

    runs: tuple[Run, ...]
    sections: tuple[Section, ...]
    ends: Ends
    plan: Plan
    unread: tuple[tuple[str, str], ...] = ()
    """(run, reason) for runs that cannot be read, or have no conversations of the split yet."""

    def lacking(self) -> list[StepEnd]:
        """Return the steps that failed, or in which something failed. Steps that only an earlier
        command planned are left out."""
        asked = set(self.plan.steps) or self.ends.keys()
        bad = (end for end in self.ends.values() if not end.done or end.said)
        return [end for end in bad if end.address in asked]


def is_experiment(folder: Path) -> bool:
    """Return True if a folder is an experiment's: it has a plan, a record of steps, or cells."""
    if (folder / "run.json").exists():
        return False
    cells = any(CELL.search(path.name) for path in cells_in(folder))
    return cells or any((folder / name).exists() for name in (PLAN, FILE))


def read_experiment(root: Path, split: str = "test") -> Found:
    """Return an experiment's runs, sections and steps. Runs that cannot be read are listed instead
    of raising an error, so that the others are still reported. Runs that differ only in their seed
    are pooled."""
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
    """Return a run's own policy and those of its evaluations that have conversations. What is left
    out is appended to `unread`."""
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
    """Return the document of an experiment. `kind` is the kind of errors (None: each regime's own);
    pictures are drawn for `page`; `against` names further policies that all are compared with."""
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
    """Return the part with a summary in a few lines, and the agreement of the orders."""
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
    """Return the sections without a printed table."""
    settings = {
        (one.section.task, one.section.mode, one.section.protocol, one.section.turns)
        for one in known
        if one.section is not None
    }
    return [s for s in sections if (s.task, s.mode, s.protocol, s.turns) not in settings]


def _others(
    alone: Sequence[Section], kind: ErrorKind | None, plots: bool, against: Sequence[str]
) -> Iterator[Part]:
    """Yield the usual report's parts for sections without a printed table."""
    if not alone:
        return
    made = document(alone, kind=kind, against=against)
    if plots:
        made = with_pictures(made, alone, kind=kind)
    yield from made.parts


def _missing(found: Found, not_asked: Sequence[Beside]) -> Part | None:
    """Return the part that lists what is missing and why; None if nothing is."""
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
