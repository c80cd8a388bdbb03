"""Credit of turns from branches: Monte-Carlo values of what came before and after each turn.

V(o_t) is the mean reward of the branches that leave a conversation at its policy turn t, each a
sample of how it goes on from there. A turn's advantage is V(o_t+1) - V(o_t), and after the last
turn the conversation's own reward stands in place of a value; so the advantages of a conversation
add up to its reward less the value of its first turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean

from convbench.learn.logged import Logged
from convbench.schema import ProtocolSpec
from convbench.schema.conversation import TurnCredit
from convbench.views import policy_turns

Values = dict[tuple[str, int], float]
"""(conversation_id of the parent, turn index) to V before that turn."""


def values_before(branches: Iterable[Logged]) -> Values:
    """Return the mean reward of the branches that leave each turn."""
    found: dict[tuple[str, int], list[float]] = {}
    for item in branches:
        branch = item.conversation.branch
        if branch is not None:
            found.setdefault((branch.parent, branch.turn), []).append(item.reward)
    return {place: fmean(rewards) for place, rewards in found.items()}


def by_branches(
    protocol: ProtocolSpec, logged: Iterable[Logged], values: Mapping[tuple[str, int], float],
    source: str,
) -> Iterator[TurnCredit]:  # fmt: skip
    """Yield the advantage of every turn with a value before it and after it."""
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
