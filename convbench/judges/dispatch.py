"""Score one conversation, or each of its turns, by one judge.

Score every policy turn (`per: turn`), each with the conversation up to it.

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
from convbench.errors import DataError
from convbench.judges.ask import ModelCaller
from convbench.judges.kinds import kind_of
from convbench.judges.resolve import Judge
from convbench.judges.verdicts import scored_verdict, unscorable_verdict
from convbench.judges.work import Case, JudgeTools
from convbench.models.model import Model
from convbench.schema import (
    Conversation,
    Example,
    Mode,
    ProtocolSpec,
    TurnScores,
    Verdict,
    turn_scores,
)
from convbench.schema.judge import Per
from convbench.views import own_turns

Score = Callable[[Case, JudgeTools], Awaitable[Verdict]]
"""Type of a judge kind's function that scores one conversation."""
TURNS = "turns"
"""In a verdict's details: scores and reward of each turn."""


def iter_turn_parts(
    protocol: ProtocolSpec, conversation: Conversation
) -> Iterator[tuple[int, Conversation]]:
    """Yield (index, conversation up to and including that turn) of each of the policy's own turns.

    The part's id is the conversation's with `#turn-N` appended: journal keys with the prefix of the
    conversation are dropped when its verdict is written.
    """
    for index in own_turns(protocol, conversation):
        name = f"{conversation.conversation_id}#turn-{index}"
        update = {"conversation_id": name, "turns": conversation.turns[: index + 1]}
        yield index, conversation.model_copy(update=update)


async def score_turns(case: Case, tools: JudgeTools, score: Score) -> Verdict:
    """Score every policy turn that has no score yet and return the conversation's verdict: means of
    the turns' scores, and each turn's scores in `details["turns"]`.

    If a turn fails, the verdict is a failed one that holds the other turns' scores. Without a
    policy turn to score it is a failed one of kind `NoTurn`.
    """
    judge, talk = case.judge, case.conversation
    by_turn = {turn.turn: turn for turn in turn_scores(case.previous)} if case.previous else {}
    scored_turns: list[TurnScores] = []
    verdicts: list[Verdict] = []
    lost: list[tuple[int, Verdict]] = []
    for index, part in iter_turn_parts(case.protocol, talk):
        if index in by_turn:
            scored_turns.append(by_turn[index])
            continue
        verdict = await score(replace(case, conversation=part), tools)
        verdicts.append(verdict)
        if verdict.failure is not None:
            lost.append((index, verdict))
        else:
            scored_turns.append(_make_turn_scores(index, verdict, case))
    details = {
        **_merge_details(verdicts),
        TURNS: [turn.model_dump(mode="json") for turn in scored_turns],
    }
    usage = {**_total_usage(verdicts, case.attempts), "details": details}
    name = talk.conversation_id
    if lost:
        index, first = lost[0]
        assert first.failure is not None
        more = f" (and {len(lost) - 1} more turns)" if len(lost) > 1 else ""
        message = f"turn {index}{more}: {first.failure.message}"
        return unscorable_verdict(
            judge, name, first.failure.kind, message, reply=first.reply, **usage
        )
    if not scored_turns:
        return unscorable_verdict(
            judge, name, "NoTurn", "the conversation has no policy turn to score"
        )
    turns = [turn.scores for turn in scored_turns]
    return scored_verdict(judge, talk, case.protocol, mean_scores(turns), turns=turns, **usage)


def mean_scores(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each score over the turns that have it, by name; empty without turns."""
    names = dict.fromkeys(name for scores in turns for name in scores)
    return {name: fmean(s[name] for s in turns if name in s) for name in names}


def _make_turn_scores(index: int, verdict: Verdict, case: Case) -> TurnScores:
    return TurnScores(
        turn=index,
        scores=verdict.scores,
        reward=rewards.turn_reward(case.judge.spec.reward, verdict.scores),
        justifications=verdict.justifications,
    )


def _merge_details(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the merged details of the turns' verdicts; the newest value of each key."""
    return {key: value for verdict in verdicts for key, value in verdict.details.items()}


def _total_usage(verdicts: Sequence[Verdict], before: int) -> dict[str, Any]:
    """Return the sums of usage over the turns' verdicts; None for a sum with an unknown value."""
    out: dict[str, Any] = {"attempts": before + sum(max(0, v.attempts - before) for v in verdicts)}
    for name in ("prompt_tokens", "completion_tokens", "cost_usd"):
        values = [getattr(verdict, name) for verdict in verdicts]
        out[name] = None if not values or None in values else sum(values)
    return out


async def _score_conversation(case: Case, tools: JudgeTools, score: Score) -> Verdict:
    """Return the verdict on the conversation as one unit."""
    return await score(case, tools)


SCORERS: Mapping[Per, Callable[[Case, JudgeTools, Score], Awaitable[Verdict]]] = {
    "conversation": _score_conversation,
    "turn": score_turns,
}
"""Functions that score a single conversation, by the judge's `per`."""


async def judge_conversation(
    caller: ModelCaller | None,
    model: Model | None,
    judge: Judge,
    conversation: Conversation,
    example: Example,
    protocol: ProtocolSpec,
    *,
    mode: Mode | None = None,
    examples: Mapping[str, Example] | None = None,
    attempts: int = 0,
) -> Verdict:
    """Return one judge's verdict on a conversation; a failed one, without scores, if the judge
    gives none. Nothing is written.

    A rubric needs `caller` and `model`; the other arguments are the fields of a `Case`. Raise
    DataError for a judge of groups or pairs. Judges that adapt a learner cannot be called like
    this, since they need what their `open_kind` opens.
    """
    case = Case(judge, conversation, example, protocol, mode, examples or {}, attempts)
    return await verdict_on(case, JudgeTools(caller, kind_state=model))


async def verdict_on(case: Case, tools: JudgeTools) -> Verdict:
    """Return the verdict of the case's judge, on the conversation or on each of its turns.

    A conversation that failed to build gets a failed one of kind `ConversationFailed`. Raise
    DataError for a judge that scores groups or pairs.
    """
    if case.conversation.failure is not None:
        name = case.conversation.conversation_id
        return unscorable_verdict(
            case.judge, name, "ConversationFailed", "the conversation failed to build"
        )
    way = SCORERS.get(case.judge.spec.per)
    if way is None:
        raise DataError(
            f"judge {case.judge.name} scores no conversation by itself (per: {case.judge.spec.per})"
        )
    return await way(case, tools, kind_of(case.judge.spec).score)
