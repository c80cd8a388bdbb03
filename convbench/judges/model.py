"""Judge kind `rubric`: a model that scores by a rubric."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from convbench.engine.caller import Caller
from convbench.errors import DataError
from convbench.judges.ask import AskOutcome, ReplyForm, ask_judge, form_of, judge_messages
from convbench.judges.replies import Complaint, Scores
from convbench.judges.resolve import Judge
from convbench.judges.verdicts import LEFT_OUT, scored_verdict, unscorable_verdict
from convbench.judges.work import Case, JudgeTools, JudgeWork
from convbench.rollout.calls import max_calls, open_for
from convbench.schema import Completion, Conversation, Failure, Verdict, text_of

R = TypeVar("R")

UNREADABLE = "UnreadableReply"
"""Failure kind of a verdict when no reply had readable scores."""


def sampling_details(replies: Sequence[Completion]) -> dict[str, Any]:
    """Return the entries of a verdict's details on sampling: `left_out`, the sorted names of
    parameters that the model does not accept, and `reasoning_tokens`, their sum over the replies.

    Each is there only if there are any; empty without replies.
    """
    missing = sorted({name for reply in replies for name in reply.left_out})
    thought = [reply.reasoning.tokens for reply in replies if reply.reasoning is not None]
    token_counts = [tokens for tokens in thought if tokens is not None]
    left = {LEFT_OUT: missing} if missing else {}
    return {**left, **({"reasoning_tokens": sum(token_counts)} if token_counts else {})}


def usage_fields(done: AskOutcome[Any], start: int) -> dict[str, Any]:
    """Return the fields of a record on its calls: `details` (see `sampling_details`), `attempts`
    (`start` earlier ones included), `prompt_tokens`, `completion_tokens` and `cost_usd`.

    A sum is None without a reply, or if it is unknown for one.
    """
    return {
        "details": sampling_details(done.replies),
        "attempts": start + len(done.replies),
        "prompt_tokens": done.total_usage("prompt_tokens"),
        "completion_tokens": done.total_usage("completion_tokens"),
        "cost_usd": done.total_usage("cost_usd"),
    }


def failure_parts(done: AskOutcome[Any]) -> tuple[str, str, str | None]:
    """Return (failure kind, message, text of the last reply or None) of an outcome without scores.

    The kind is `UnreadableReply` after a complaint, else the name of the model error's class.
    """
    raw = text_of(done.replies[-1].content) if done.replies else None
    if isinstance(done.result, Complaint):
        message = f"no readable reply in {len(done.replies)} attempts; {done.result.text}"
        return UNREADABLE, message, raw
    return type(done.result).__name__, str(done.result), raw


def unreadable_reason(judge: Judge, failure: Failure | None) -> str | None:
    """Return a sentence with the judge's name on why none of its replies could be read; None for a
    failure of another kind, or without one."""
    if failure is None or failure.kind != UNREADABLE:
        return None
    return f"judge {judge.name}: {failure.message}"


@asynccontextmanager
async def open_kind(work: JudgeWork) -> AsyncIterator[tuple[Caller, JudgeTools]]:
    """Open the judge's model and a caller for it, yield (caller, tools), and close both.

    The tools' `kind_state` is the model.

    Raise DataError if the judge names no model.
    """
    judge = work.judge
    if judge.model is None:
        raise DataError(f"judge {judge.name}: found no model; expected one to ask")
    named = judge.model, judge.spec.api_base
    opening = partial(
        open_for,
        work.run,
        *named,
        work.calls,
        work.session,
        short=judge.short_name,
        role="judge",
    )
    key = work.run.path, "judge", *named, judge.short_name
    async with work.session.open(key, opening) as model:
        many = max_calls(work.calls, [model])
        async with work.open_caller(many, model) as caller:
            yield caller, JudgeTools(caller, many, model)


async def ask_about(
    case: Case,
    tools: JudgeTools,
    shown: Conversation,
    form: ReplyForm[R],
    *,
    several: bool = False,
) -> AskOutcome[R]:
    """Ask the judge's model about a case of which it is `shown` this much; `several` as in
    `judge_messages`.

    A model error that ends the run (wrong key, spent budget) is raised; so is DataError without a
    model.
    """
    judge, name = case.judge, case.conversation.conversation_id
    if tools.caller is None or tools.kind_state is None:
        raise DataError(f"judge {judge.name}: found no model; expected one to ask")
    key = f"judge/{judge.fingerprint}/{name}"
    # The fence's nonce differs for each request, and is the same when another run makes the same.
    asking = f"judge/{judge.fingerprint}/{case.conversation.key}#{case.attempts}"
    messages = judge_messages(judge.spec, shown, case.example, several=several, key=asking)
    model = tools.kind_state
    return await ask_judge(tools.caller, model, judge, messages, key, case.attempts, form)


async def score(case: Case, tools: JudgeTools) -> Verdict:
    """Return the model's verdict on a conversation; a failed one if no reply could be read or the
    model gave an error.

    An error that ends the run (wrong key, spent budget) is raised; so is DataError without a model.
    """
    judge, conversation = case.judge, case.conversation
    done = await ask_about(case, tools, conversation, form_of(judge.spec), several=case.several)
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
