"""Credit each policy turn of a run, and store it with the run: by Monte-Carlo values from branches,
or by a critic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from convbench.errors import TrainError, UsageError
from convbench.learn.logged import Logged
from convbench.learn.select import branches, select
from convbench.learn.sweet.credit import by_critic, critic_job
from convbench.schema import ProtocolSpec
from convbench.schema.conversation import TurnCredit
from convbench.schema.recipe import Data
from convbench.store import Run
from convbench.store.credit import keep_credit
from convbench.views import policy_turns

Values = dict[tuple[str, int], float]
"""(conversation_id of the parent, turn index) to V before that turn."""


def values_before(branches: Iterable[Logged]) -> Values:
    """Return V before each turn: the mean reward of the branches that begin there."""
    found: dict[tuple[str, int], list[float]] = {}
    for item in branches:
        branch = item.conversation.branch
        if branch is not None:
            found.setdefault((branch.parent, branch.turn), []).append(item.reward)
    return {place: fmean(rewards) for place, rewards in found.items()}


def by_branches(
    protocol: ProtocolSpec,
    logged: Iterable[Logged],
    values: Mapping[tuple[str, int], float],
    source: str,
) -> Iterator[TurnCredit]:
    """Yield the advantage, V after less V before, of every turn that has both values."""
    for item in logged:
        name = item.conversation_id
        turns = policy_turns(protocol, item.conversation)
        after = [values.get((name, turn)) for turn in turns[1:]] + [item.reward]
        for turn, then in zip(turns, after, strict=True):
            before = values.get((name, turn))
            if before is not None and then is not None:
                yield TurnCredit(
                    conversation_id=name, turn_index=turn, source=source, advantage=then - before
                )


BRANCHES = "branches"


@dataclass
class Credited:
    """Counts and range of the credit that `convbench credit` gave."""

    run: Run
    source: str
    turns: int
    conversations: int
    spread: tuple[float, float, float]
    """Least, mean and largest advantage."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Counts of conversations, or branches, without credit, by reason."""


def credit(run: Run, source: str, judge: str | None = None, *, raw: bool = False) -> Credited:
    """Credit the policy turns of a run by a critic's checkpoint, or by `branches`, and write the
    credit to its `advantages.jsonl`.

    Raises ConvbenchError if no turn can be credited.
    """
    if source == BRANCHES and raw:
        raise UsageError("--raw: goes with a critic; branches have no log-ratios")
    if source == BRANCHES:
        return _by_branches(run, judge)
    if judge is not None:
        raise UsageError("--judge: goes with `branches`; a critic needs no judge")
    folder = Path(source).expanduser()
    name = f"critic{'-raw' if raw else ''}:{folder.resolve().name}"
    scored = by_critic(critic_job(folder), run, name, raw=raw)
    return _kept(run, name, scored.credit, scored.left_out)


def _by_branches(run: Run, judge: str | None) -> Credited:
    data = Data(judge=judge)
    logged = select(run, data)
    left = branches(logged, data)
    source = f"{BRANCHES}:{logged.judge}"
    values = values_before(left.logged)
    found = list(by_branches(run.manifest.protocol, logged.logged, values, source))
    if not found:
        raise TrainError(f"{run.branches}: found no turn with judged branches before and after it")
    return _kept(run, source, found, {**logged.skipped, **left.skipped})


def _kept(run: Run, source: str, found: Iterable[TurnCredit], left_out: dict[str, int]) -> Credited:
    credit = list(found)
    keep_credit(run, credit)
    values = [one.advantage for one in credit]
    return Credited(
        run,
        source,
        len(credit),
        len({one.conversation_id for one in credit}),
        (min(values), fmean(values), max(values)),
        left_out,
    )
