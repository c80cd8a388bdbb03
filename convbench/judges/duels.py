"""Couples of conversations to compare: those of two runs on the same question and sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from convbench.errors import RunError, UsageError
from convbench.schema import Conversation, Example
from convbench.schema.judge import Comparison
from convbench.stats.wins import Duel
from convbench.store import Run, find_run


@dataclass(frozen=True)
class Couple:
    """Two policies' conversations on the same question with the same sample number."""

    first: Conversation
    second: Conversation
    example: Example


@dataclass(frozen=True)
class CoupleSet:
    """All couples of two runs, and counts of conversations without one."""

    members: tuple[Couple, ...]
    alone: int
    """Conversations without a counterpart in the other run."""
    failed: int
    """Couples in which a conversation failed."""
    apart: int
    """Couples whose question has one id but different contents in the two runs."""


def run_of_side(name: str, home: Path | None) -> Run:
    """Return the run that a side of `--pairwise` names: a run directory, `base` for the run itself
    (`home`, else the newest), or the name of one of its evaluations.

    Raise RunError if there is no such run.
    """
    if (Path(name) / "run.json").exists():
        return Run.open(Path(name))
    run = find_run(home)
    if name in ("base", run.path.name):
        return run
    names = [child.path.name for child in run.child_runs()]
    if name in names:
        return Run.open(run.evals_folder / name)
    listed = ", ".join(["base", *names])
    raise RunError(
        f"--pairwise {name}: found no such run; expected a run directory, or of "
        f"{run.path} one of {listed}"
    )


def home_of(first: Run, second: Run) -> Run:
    """Return the run that stores a comparison: the one that is the other's parent, else the parent
    of both if it lies above the first, else the first."""
    for run, child in ((first, second), (second, first)):
        if child.manifest.parent == run.manifest.id:
            return run
    above = first.path.parent.parent
    beside = first.manifest.parent is not None and first.manifest.parent == second.manifest.parent
    return Run.open(above) if beside and (above / "run.json").exists() else first


def couple_runs(first: Run, second: Run) -> CoupleSet:
    """Return the couples of two runs: their conversations on the same example id with the same
    sample number, in the first run's order.

    Couples with a failed conversation, or with different questions under one id, are only counted,
    as are conversations without a counterpart. Raise RunError if there is no couple, UsageError if
    both are the same run.
    """
    if first.path.resolve() == second.path.resolve():
        raise UsageError(f"--pairwise: found {first.path} twice; expected two runs")
    mine, theirs = _by_sample(first), _by_sample(second)
    members, failed, apart = [], 0, 0
    for key, talk in mine.items():
        against = theirs.get(key)
        if against is None:
            continue
        example = first.examples[talk.example_id]
        if _question_key(example) != _question_key(second.examples[against.example_id]):
            apart += 1
        elif talk.failure is not None or against.failure is not None:
            failed += 1
        else:
            members.append(Couple(talk, against, example))
    if not members:
        raise RunError(
            f"--pairwise: {first.path} and {second.path} have no conversations about the same "
            f"question with the same sample ({failed} pairs with a failed conversation, {apart} "
            "with different questions)"
        )
    alone = len(mine.keys() ^ theirs.keys())
    return CoupleSet(tuple(members), alone, failed, apart)


def duels_of(
    comparisons: Iterable[Comparison], mine: Mapping[str, str], theirs: Mapping[str, str]
) -> list[Duel]:
    """Return the duels whose both orders were judged, in the order of their first comparisons;
    empty without any.

    `mine` and `theirs` map each policy's conversation_ids to question and sample; only comparisons
    of the same question and sample count. Of several comparisons of one order the last counts.
    Failed ones are left out.
    """
    by_couple: dict[tuple[str, str], dict[bool, Comparison]] = {}
    for comparison in comparisons:
        if comparison.preferred is None:
            continue
        ahead = comparison.first in mine
        name, against = (
            (comparison.first, comparison.second)
            if ahead
            else (comparison.second, comparison.first)
        )
        if name in mine and against in theirs and mine[name] == theirs[against]:
            by_couple.setdefault((name, against), {})[ahead] = comparison
    return [
        Duel(
            both[True].group_id,
            both[True].preferred or 0.0,
            1 - (both[False].preferred or 0.0),
        )
        for both in by_couple.values()
        if len(both) == 2
    ]


def _by_sample(run: Run) -> dict[tuple[str, int], Conversation]:
    return {(c.example_id, c.sample): c for c in run.conversations()}


def _question_key(example: Example) -> tuple[object, ...]:
    return example.question, example.choices, example.answer
