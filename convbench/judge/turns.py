"""Score every policy turn (`per: turn`), each with the conversation up to it.

A turn is judged as a conversation that ends with it, by the same kind of judge, with the same
prompt and the same strict reader: section E.3 of Mukherjee et al. (NeurIPS 2025) asks about a
conversation "up to this point". A turn without a score makes the verdict a failure that holds the
other turns' scores; judging again asks for the missing ones alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from convbench import rewards
from convbench.judge.case import Case
from convbench.judge.verdicts import scored, unscorable
from convbench.judge.work import Tools
from convbench.schema import Conversation, ProtocolSpec, TurnScores, Verdict, turn_scores
from convbench.views import own_turns

Score = Callable[[Case, Tools], Awaitable[Verdict]]
"""Type of a judge kind's function that scores one conversation."""
TURNS = "turns"
"""In a verdict's details: scores and reward of each turn."""


def parts(protocol: ProtocolSpec, conversation: Conversation) -> Iterator[tuple[int, Conversation]]:
    """Yield (index, conversation up to and including that turn) of each of the policy's own turns.

    The part's id is the conversation's with `#turn-N` appended: journal keys with the prefix of the
    conversation are dropped when its verdict is written.
    """
    for index in own_turns(protocol, conversation):
        name = f"{conversation.conversation_id}#turn-{index}"
        told = {"conversation_id": name, "turns": conversation.turns[: index + 1]}
        yield index, conversation.model_copy(update=told)


async def score_turns(case: Case, tools: Tools, score: Score) -> Verdict:
    """Score every turn without a score and return the conversation's verdict from all turns; a
    failed one if a turn failed."""
    judge, talk = case.judge, case.conversation
    there = {one.turn: one for one in turn_scores(case.before)} if case.before else {}
    found: list[TurnScores] = []
    asked: list[Verdict] = []
    lost: list[tuple[int, Verdict]] = []
    for index, part in parts(case.protocol, talk):
        if index in there:
            found.append(there[index])
            continue
        verdict = await score(replace(case, conversation=part), tools)
        asked.append(verdict)
        if verdict.failure is not None:
            lost.append((index, verdict))
        else:
            found.append(_turn(index, verdict, case))
    details = {**_told(asked), TURNS: [one.model_dump(mode="json") for one in found]}
    usage = {**_usage(asked, case.asked), "details": details}
    name = talk.conversation_id
    if lost:
        index, first = lost[0]
        assert first.failure is not None
        more = f" (and {len(lost) - 1} more turns)" if len(lost) > 1 else ""
        message = f"turn {index}{more}: {first.failure.message}"
        return unscorable(judge, name, first.failure.kind, message, reply=first.reply, **usage)
    if not found:
        return unscorable(judge, name, "NoTurn", "the policy said nothing that could be scored")
    turns = [one.scores for one in found]
    return scored(judge, talk, case.protocol, mean_scores(turns), turns=turns, **usage)


def mean_scores(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each score over the turns that have it."""
    names = dict.fromkeys(name for scores in turns for name in scores)
    return {name: fmean(s[name] for s in turns if name in s) for name in names}


def _turn(index: int, verdict: Verdict, case: Case) -> TurnScores:
    return TurnScores(
        turn=index,
        scores=verdict.scores,
        reward=rewards.of_turn(case.judge.spec.reward, verdict.scores),
        justifications=verdict.justifications,
    )


def _told(asked: Sequence[Verdict]) -> dict[str, Any]:
    """Return the merged details of the turns' verdicts; the newest value of each key."""
    return {key: value for verdict in asked for key, value in verdict.details.items()}


def _usage(asked: Sequence[Verdict], before: int) -> dict[str, Any]:
    """Return the sums of usage over the turns' verdicts; None for a sum with an unknown value."""
    out: dict[str, Any] = {"attempts": before + sum(max(0, v.attempts - before) for v in asked)}
    for name in ("prompt_tokens", "completion_tokens", "cost_usd"):
        values = [getattr(verdict, name) for verdict in asked]
        out[name] = None if not values or None in values else sum(values)
    return out
