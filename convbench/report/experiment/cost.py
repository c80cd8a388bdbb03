"""What an experiment truly cost: dollars and tokens with judges and lost attempts, and time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from convbench.engine.journal import Journal
from convbench.errors import ConvbenchError
from convbench.report.document import Cell, Column, Table
from convbench.report.experiment.steps import Ends
from convbench.rollout.asked import NOT_ASKED
from convbench.schema import Turn
from convbench.store import Run
from convbench.store.shards import of_shard, superseded

CALLS = "calls.jsonl"
HERE = ("local:", "vllm:")
"""Models on machines of one's own, whose calls have no price."""


@dataclass
class Spent:
    """What a cell, or all of them, cost."""

    conversations: float = 0.0
    """Dollars of the calls whose replies are in conversations."""
    judges: float = 0.0
    """Dollars of the calls whose replies are in verdicts."""
    total: float = 0.0
    """Dollars of all calls, with attempts that were lost and replies that nothing holds."""
    tokens: int = 0
    unpriced: int = 0
    """Conversations and verdicts of a provider whose price nobody told."""
    seconds: float = 0.0
    unread: int = 0
    """Runs whose records cannot be read."""

    def add(self, other: Spent) -> None:
        """Add another's."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


def cost_table(runs: Sequence[Run], ends: Ends) -> Table:
    """Return dollars, tokens and hours of every cell with its evaluations, and of all."""
    found = {run.path.name: _of_cell(run, ends) for run in runs}
    for cell in dict.fromkeys(end.cell for end in ends.values()):
        found.setdefault(cell, Spent(seconds=_seconds(cell, ends)))
    everything = Spent()
    for one in found.values():
        everything.add(one)
    rows = [_row(name, one) for name, one in found.items()]
    rows.append(_row("All", everything))
    columns = (
        Column("Cell", "Cell", numeric=False), Column("conversations ($)", "conv. $"),
        Column("judges ($)", "judges $"), Column("lost, unused ($)", "lost $"),
        Column("total ($)", "total $"), Column("tokens", "tokens"), Column("hours", "hours"),
    )  # fmt: skip
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
        Cell(name), Cell(f"{one.conversations:.4f}"), Cell(f"{one.judges:.4f}"),
        Cell(f"{lost:.4f}"), Cell(f"{one.total:.4f}{more}"), Cell(f"{one.tokens:,}"), Cell(hours),
    )  # fmt: skip


def _of_cell(run: Run, ends: Ends) -> Spent:
    """Return what a run with its evaluations and branches cost."""
    spent = Spent(seconds=_seconds(run.path.name, ends))
    tokens = 0
    for path in sorted({run.path, *(file.parent for file in run.path.rglob("run.json"))}):
        if of_shard(path):
            continue  # read as a part of its run
        try:
            tokens += _of_records(Run.open(path), spent)
        except ConvbenchError:  # said as missing, too
            spent.unread += 1
    files = (file for file in run.path.rglob(CALLS) if not superseded(file.parent))
    journals = [Journal(path).totals() for path in sorted(files)]
    spent.tokens = max(tokens, sum(count for count, _ in journals))
    spent.total = max(spent.conversations + spent.judges, sum(usd for _, usd in journals))
    return spent


def _of_records(run: Run, spent: Spent) -> int:
    """Add what the run's records say to what was spent; return their tokens."""
    tokens = 0
    cast = run.manifest.cast
    for talk in run.conversations():
        asked = [turn for turn in talk.turns if turn.finish_reason not in NOT_ASKED]
        spent.conversations += sum(turn.cost_usd or 0.0 for turn in asked)
        spent.unpriced += any(_unpriced(turn, cast[turn.speaker].model) for turn in asked
                              if turn.speaker in cast)  # fmt: skip
        tokens += _tokens((turn.prompt_tokens, turn.completion_tokens) for turn in asked)
    specs = run.judge_specs()
    for verdict in run.verdict_rows():
        spent.judges += verdict.cost_usd or 0.0
        spec = specs.get(verdict.fingerprint)
        model = spec.model if spec else None
        spent.unpriced += bool(
            model and verdict.cost_usd is None and not model.startswith(HERE)
        )  # fmt: skip
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
