"""Judge kind `rubric`: a model that scores by a rubric."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from convbench.engine.caller import Caller
from convbench.errors import DataError
from convbench.judge.ask import AskOutcome, ask_judge, form_of, judge_messages
from convbench.judge.replies import Complaint, Scores
from convbench.judge.resolve import Judge
from convbench.judge.verdicts import LEFT_OUT, scored_verdict, unscorable_verdict
from convbench.judge.work import Case, JudgeTools, JudgeWork
from convbench.rollout.calls import max_calls, open_for
from convbench.schema import Completion, Failure, Verdict, text_of

UNREADABLE = "UnreadableReply"
"""Failure kind of a verdict when no reply had readable scores."""


def sampling_details(replies: Sequence[Completion]) -> dict[str, Any]:
    """Return the entries of a verdict's details on sampling: parameters that were left out, and the
    number of reasoning tokens; each only if there are any."""
    missing = sorted({name for reply in replies for name in reply.left_out})
    thought = [reply.reasoning.tokens for reply in replies if reply.reasoning is not None]
    token_counts = [tokens for tokens in thought if tokens is not None]
    left = {LEFT_OUT: missing} if missing else {}
    return {**left, **({"reasoning_tokens": sum(token_counts)} if token_counts else {})}


def usage_fields(done: AskOutcome[Any], start: int) -> dict[str, Any]:
    """Return the fields of a record on its calls: details of sampling, attempts (`start` earlier
    ones included), tokens and dollars."""
    return {
        "details": sampling_details(done.replies),
        "attempts": start + len(done.replies),
        "prompt_tokens": done.total_usage("prompt_tokens"),
        "completion_tokens": done.total_usage("completion_tokens"),
        "cost_usd": done.total_usage("cost_usd"),
    }


def failure_parts(done: AskOutcome[Any]) -> tuple[str, str, str | None]:
    """Return (failure kind, message, last reply or None) of an outcome without scores."""
    raw = text_of(done.replies[-1].content) if done.replies else None
    if isinstance(done.result, Complaint):
        message = f"no readable reply in {len(done.replies)} attempts; {done.result.text}"
        return UNREADABLE, message, raw
    return type(done.result).__name__, str(done.result), raw


def unreadable_reason(judge: Judge, failure: Failure | None) -> str | None:
    """Return why a judge's replies could not be read; None for another failure or none."""
    if failure is None or failure.kind != UNREADABLE:
        return None
    return f"judge {judge.name}: {failure.message}"


@asynccontextmanager
async def open_kind(work: JudgeWork) -> AsyncIterator[tuple[Caller, JudgeTools]]:
    """Open the judge's model and a caller for it. Raises DataError if the judge names no model."""
    judge = work.judge
    if judge.model is None:
        raise DataError(f"judge {judge.name}: found no model; expected one to ask")
    address = judge.spec.api_base
    model = open_for(
        work.run, judge.model, address, work.calls, short=judge.short_name, role="judge"
    )
    try:
        many = max_calls(work.calls, [model])
        async with work.open_caller(many, model) as caller:
            yield caller, JudgeTools(caller, many, model)
    finally:
        await model.aclose()


async def score(case: Case, tools: JudgeTools) -> Verdict:
    """Return the model's verdict on a conversation; a failed one if no reply could be read."""
    judge, conversation = case.judge, case.conversation
    if tools.caller is None or tools.kind_state is None:
        raise DataError(f"judge {judge.name}: found no model; expected one to ask")
    key = f"judge/{judge.fingerprint}/{conversation.conversation_id}"
    # The fence's nonce differs for each request, and is the same when another run makes the same.
    asking = f"judge/{judge.fingerprint}/{conversation.key}#{case.attempts}"
    messages = judge_messages(
        judge.spec, conversation, case.example, several=case.several, key=asking
    )
    done = await ask_judge(
        tools.caller, tools.kind_state, judge, messages, key, case.attempts, form_of(judge.spec)
    )
    usage = usage_fields(done, case.attempts)
    if isinstance(done.result, Scores):
        return scored_verdict(
            judge,
            conversation,
            case.protocol,
            done.result.scores,
            justifications=done.result.justifications,
            **usage,
        )
    kind, message, raw = failure_parts(done)
    return unscorable_verdict(
        judge, conversation.conversation_id, kind, message, reply=raw, **usage
    )
