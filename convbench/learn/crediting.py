"""Credit each policy turn of a run, and store it with the run: by Monte-Carlo values from branches,
or by a critic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from convbench.errors import TrainError, UsageError
from convbench.learn.logged import LoggedConversation
from convbench.learn.select import select, select_branches
from convbench.learn.sweet.credit import critic_credit, critic_job
from convbench.schema import ProtocolSpec
from convbench.schema.conversation import TurnCredit
from convbench.schema.recipe import Data
from convbench.store import Run
from convbench.store.credit import append_credit
from convbench.views import policy_turns

Values = dict[tuple[str, int], float]
"""(conversation_id of the parent, turn index) to V before that turn."""


def values_before(branches: Iterable[LoggedConversation]) -> Values:
    """Return V before each turn: the mean reward of the branches that begin there."""
    by_position: dict[tuple[str, int], list[float]] = {}
    for item in branches:
        branch = item.conversation.branch
        if branch is not None:
            by_position.setdefault((branch.parent, branch.turn), []).append(item.reward)
    return {position: fmean(rewards) for position, rewards in by_position.items()}


def branch_credit(
    protocol: ProtocolSpec,
    logged: Iterable[LoggedConversation],
    values: Mapping[tuple[str, int], float],
    source: str,
) -> Iterator[TurnCredit]:
    """Yield the advantage, V after less V before, of every turn that has both values."""
    for item in logged:
        name = item.conversation_id
        turns = policy_turns(protocol, item.conversation)
        values_after = [values.get((name, turn)) for turn in turns[1:]] + [item.reward]
        for turn, value_after in zip(turns, values_after, strict=True):
            value_before = values.get((name, turn))
            if value_before is not None and value_after is not None:
                yield TurnCredit(
                    conversation_id=name,
                    turn_index=turn,
                    source=source,
                    advantage=value_after - value_before,
                )


BRANCHES = "branches"


@dataclass
class CreditResult:
    """Counts and range of the credit that `convbench credit` gave."""

    run: Run
    source: str
    turns: int
    conversations: int
    spread: tuple[float, float, float]
    """Least, mean and largest advantage."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Counts of conversations, or branches, without credit, by reason."""


def credit_turns(
    run: Run, source: str, judge: str | None = None, *, raw: bool = False
) -> CreditResult:
    """Credit the policy turns of a run by a critic's checkpoint, or by `branches`, and write the
    credit to its `advantages.jsonl`.

    Raises ConvbenchError if no turn can be credited.
    """
    if source == BRANCHES and raw:
        raise UsageError("--raw: goes with a critic; branches have no log-ratios")
    if source == BRANCHES:
        return _credit_by_branches(run, judge)
    if judge is not None:
        raise UsageError("--judge: goes with `branches`; a critic needs no judge")
    folder = Path(source).expanduser()
    name = f"critic{'-raw' if raw else ''}:{folder.resolve().name}"
    scored = critic_credit(critic_job(folder), run, name, raw=raw)
    return _store_credit(run, name, scored.credit, scored.left_out)


def _credit_by_branches(run: Run, judge: str | None) -> CreditResult:
    data = Data(judge=judge)
    selection = select(run, data)
    branched = select_branches(selection, data)
    source = f"{BRANCHES}:{selection.judge}"
    values = values_before(branched.logged)
    turn_credits = list(branch_credit(run.manifest.protocol, selection.logged, values, source))
    if not turn_credits:
        raise TrainError(
            f"{run.branches_folder}: found no turn with judged branches before and after it"
        )
    return _store_credit(run, source, turn_credits, {**selection.skipped, **branched.skipped})


def _store_credit(
    run: Run, source: str, turn_credits: Iterable[TurnCredit], left_out: dict[str, int]
) -> CreditResult:
    credit = list(turn_credits)
    append_credit(run, credit)
    values = [turn.advantage for turn in credit]
    return CreditResult(
        run,
        source,
        len(credit),
        len({turn.conversation_id for turn in credit}),
        (min(values), fmean(values), max(values)),
        left_out,
    )
