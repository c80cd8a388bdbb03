"""Let one judge score one conversation."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from convbench.errors import ConvbenchError, DataError
from convbench.judge.ask import Calls, ask, judge_messages
from convbench.judge.resolve import Judge
from convbench.judge.rubric import Complaint, Scores
from convbench.models.base import Model
from convbench.rewards import reward
from convbench.schema import Conversation, Example, Failure, Mode, ProtocolSpec, Verdict, text_of
from convbench.views import asking_turns


async def judge_conversation(
    caller: Calls | None,
    model: Model | None,
    judge: Judge,
    conversation: Conversation,
    example: Example,
    protocol: ProtocolSpec,
    *,
    mode: Mode | None = None,
    examples: Mapping[str, Example] | None = None,
    asked: int = 0,
) -> Verdict:
    """Return the verdict, with a failure and no scores where there is none to give.

    `caller` and `model` are needed by a rubric alone. `mode` is the run's; without it rules infer
    it from the prompts. `examples` are the run's, for judges that compare with other tasks.
    `asked` is `attempts` of this judge's newest, failed verdict on this conversation: a new try
    goes on counting, so that the journal does not answer with the old replies. Errors that end
    the whole run (wrong key, spent budget) pass through.
    """
    if conversation.failure is not None:
        return _failed(judge, conversation, "ConversationFailed", "the conversation has no end")
    if judge.spec.kind == "rubric":
        if caller is None or model is None:
            raise DataError(f"judge {judge.name}: found no model; expected one to ask")
        return await _rubric(caller, model, judge, conversation, example, protocol, asked)
    if judge.labels is not None:
        return _human(judge, conversation, protocol)
    run = {"mode": mode, "spec": judge.spec, "examples": examples or {}}
    return await _function(judge, conversation, example, protocol, run)


def failed_verdict(judge: Judge, conversation_id: str, error: Exception) -> Verdict:
    """Return the record of a job that broke outside the judge's own replies."""
    kind = type(error).__name__
    message = str(error) if isinstance(error, ConvbenchError) else f"{kind}: {error}"
    return Verdict(
        conversation_id=conversation_id,
        judge=judge.name,
        fingerprint=judge.fingerprint,
        failure=Failure(kind=kind, message=message),
        attempts=0,
        ended=_now(),
    )


async def _rubric(
    caller: Calls,
    model: Model,
    judge: Judge,
    conversation: Conversation,
    example: Example,
    protocol: ProtocolSpec,
    asked: int,
) -> Verdict:
    key = f"judge/{judge.fingerprint}/{conversation.conversation_id}"
    messages = judge_messages(judge.spec, conversation, example)
    done = await ask(caller, model, judge, messages, key, asked)
    usage = {
        "attempts": asked + len(done.replies),
        "prompt_tokens": done.total("prompt_tokens"),
        "completion_tokens": done.total("completion_tokens"),
        "cost_usd": done.total("cost_usd"),
    }
    if isinstance(done.result, Scores):
        return _scored(
            judge, conversation, protocol, done.result.scores,
            justifications=done.result.justifications, **usage,
        )  # fmt: skip
    raw = text_of(done.replies[-1].content) if done.replies else None
    if isinstance(done.result, Complaint):
        message = f"no readable reply in {len(done.replies)} asks; {done.result.text}"
        return _failed(judge, conversation, "UnreadableReply", message, reply=raw, **usage)
    kind = type(done.result).__name__
    return _failed(judge, conversation, kind, str(done.result), reply=raw, **usage)


def _human(judge: Judge, conversation: Conversation, protocol: ProtocolSpec) -> Verdict:
    labels = judge.labels
    assert labels is not None
    if conversation.conversation_id not in labels.rows:
        message = f"{labels.file}: no label of {conversation.conversation_id}"
        return _failed(judge, conversation, "NotLabelled", message)
    scores, details, note = labels.scores(conversation.conversation_id)
    words = {judge.spec.reward.metric: note} if note else {}
    return _scored(judge, conversation, protocol, scores, justifications=words, details=details)


async def _function(
    judge: Judge,
    conversation: Conversation,
    example: Example,
    protocol: ProtocolSpec,
    run: Mapping[str, Any],
) -> Verdict:
    """Score by the spec's function, which may return (scores, details) and be async.

    It gets `mode`, `spec` and `examples` as keywords where it has parameters of these names.
    """
    function = judge.function
    if function is None:
        raise DataError(f"judge {judge.name}: kind {judge.spec.kind} has no function to run")
    known = inspect.signature(function).parameters
    extra = {name: value for name, value in run.items() if name in known}
    result = function(conversation, example, protocol, **extra)
    if inspect.isawaitable(result):
        result = await result
    scores, details = result if isinstance(result, tuple) else (result, {})
    _check(judge, scores)
    return _scored(judge, conversation, protocol, dict(scores), details=dict(details))


def _check(judge: Judge, scores: Mapping[str, float]) -> None:
    """Hold a function's scores to the spec: all metrics, no other, each in range."""
    spec = judge.spec
    expected = {metric.name for metric in spec.metrics} or {spec.reward.metric}
    wrong = expected.symmetric_difference(scores) if spec.metrics else expected - set(scores)
    wrong -= {metric.name for metric in spec.metrics if metric.optional}
    if wrong:
        raise DataError(
            f"judge {judge.name}: {spec.function} gave {sorted(scores)}; "
            f"expected {sorted(expected)}"
        )
    for name, value in scores.items():
        if not spec.lowest <= value <= spec.highest:
            raise DataError(
                f"judge {judge.name}: {spec.function} gave {name} {value!r}; expected a number "
                f"from {spec.lowest:g} to {spec.highest:g}"
            )


def _scored(
    judge: Judge,
    conversation: Conversation,
    protocol: ProtocolSpec,
    scores: dict[str, float],
    **more: Any,
) -> Verdict:
    questions = len(asking_turns(protocol, conversation))
    return Verdict(
        conversation_id=conversation.conversation_id,
        judge=judge.name,
        fingerprint=judge.fingerprint,
        scores=scores,
        reward=reward(judge.spec.reward, protocol, scores, questions),
        ended=_now(),
        **more,
    )


def _failed(
    judge: Judge, conversation: Conversation, kind: str, message: str, **more: Any
) -> Verdict:
    return Verdict(
        conversation_id=conversation.conversation_id,
        judge=judge.name,
        fingerprint=judge.fingerprint,
        failure=Failure(kind=kind, message=message),
        ended=_now(),
        **more,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
