"""Score one conversation by one judge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from convbench.errors import DataError
from convbench.judge.ask import ModelCaller
from convbench.judge.case import Case
from convbench.judge.kinds import kind_of
from convbench.judge.resolve import Judge
from convbench.judge.turns import Score, score_turns
from convbench.judge.verdicts import unscorable_verdict
from convbench.judge.work import JudgeTools
from convbench.models.model import Model
from convbench.schema import Conversation, Example, Mode, ProtocolSpec, Verdict
from convbench.schema.judge import Per


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
    """Return the verdict; a failed one, without scores, if the judge gives none.

    Only a rubric needs `caller` and `model`; the other arguments are the fields of a `Case`.
    """
    case = Case(judge, conversation, example, protocol, mode, examples or {}, attempts)
    return await verdict_on(case, JudgeTools(caller, kind_state=model))


async def verdict_on(case: Case, tools: JudgeTools) -> Verdict:
    """Return the verdict of the case's judge. A conversation that failed gets a failed one.

    Raises DataError for a judge that scores groups or pairs.
    """
    if case.conversation.failure is not None:
        name = case.conversation.conversation_id
        return unscorable_verdict(
            case.judge, name, "ConversationFailed", "the conversation has no end"
        )
    way = SCORERS.get(case.judge.spec.per)
    if way is None:
        raise DataError(
            f"judge {case.judge.name} scores no conversation by itself (per: {case.judge.spec.per})"
        )
    return await way(case, tools, kind_of(case.judge.spec).score)
