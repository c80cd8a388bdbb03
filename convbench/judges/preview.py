"""Dry runs of judges: the first request, and an estimate of tokens and dollars."""

from __future__ import annotations

from collections.abc import Iterable

from convbench.judges.ready import check_variables
from convbench.judges.resolve import Judge
from convbench.judges.run import UNITS, JudgePreview, find_pending
from convbench.judges.units import JudgeSummary, Request
from convbench.models.aliases import resolve
from convbench.models.open import structured_of
from convbench.options.shared import CallOptions
from convbench.rollout.preview import Preview, call_price, reasoning_headroom
from convbench.schema import RunManifest, usual_prompt, without_stable
from convbench.store import Run
from convbench.util.usage_estimate import Tokens
from convbench.util.words import Structured


def preview_judge(run: Run, judge: Judge, calls: CallOptions) -> JudgePreview:
    """Return a judge's first request on a run's pending conversations, and the tokens and dollars
    of all their requests; nothing is sent.

    Raise SpecError for a rubric whose prompts cannot be rendered or show no transcript.
    """
    pending = find_pending(run, judge)[0]
    if judge.model is not None:
        check_variables(judge.spec, run.examples.values())
    unit = UNITS[judge.spec.per](run, judge, pending, JudgeSummary(judge.name))
    return preview_of(judge, len(pending), unit.iter_requests(), calls)


def preview_unbuilt(
    judge: Judge, manifest: RunManifest, shown: Preview, calls: CallOptions
) -> JudgePreview:
    """Return a judge's first request on a run that is not built yet, and the tokens and dollars of
    all its requests; nothing is sent.

    Every conversation counts as `shown`, the preview of the first, whose replies of full length are
    added to the prompts. A judge without a model has no request, and costs nothing.
    """
    requests: Iterable[Request] = ()
    if judge.model is not None:
        requests = UNITS[judge.spec.per].requests_unbuilt(judge, manifest, shown)
    count = shown.estimate.conversations
    replies = shown.replies * count
    return preview_of(judge, count, requests, calls, more=replies if judge.model else 0)


def preview_of(
    judge: Judge,
    verdicts: int,
    requests: Iterable[Request],
    calls: CallOptions,
    more: int = 0,
) -> JudgePreview:
    """Return the first of these requests, and the tokens and dollars of all; `more` prompt tokens
    are added to theirs. `verdicts` is the number of verdicts that they are for.

    Replies count with the judge's full `max_tokens`. For a judge without a model no request is read
    and tokens and dollars are 0. Raise SpecError if a prompt cannot be rendered.
    """
    if judge.model is None:
        return JudgePreview(judge.name, None, [], _token_estimate(verdicts))
    specs = calls.specs
    first: Request | None = None
    prompt, count = more, 0
    for messages, schema in requests:
        first = first or (messages, schema)
        prompt += usual_prompt(messages)
        count += 1
    most = judge.spec.max_tokens + reasoning_headroom(judge.model, specs, judge.short_name)
    reply = most * count
    structured = _structured_mode(judge, calls)
    usd = call_price(judge.model, prompt, reply, specs, judge.short_name, batch=calls.batch)
    return JudgePreview(
        judge.name,
        judge.model,
        without_stable(first[0]) if first else [],
        _token_estimate(verdicts, count, prompt, reply, usd),
        structured,
        first[1]() if first and structured != "text" else None,
    )


def _token_estimate(
    verdicts: int, calls: int = 0, prompt: int = 0, reply: int = 0, usd: float | None = 0.0
) -> Tokens:
    return Tokens(
        conversations=verdicts, calls=calls, prompt_tokens=prompt, reply_tokens=reply, usd=usd
    )


def _structured_mode(judge: Judge, calls: CallOptions) -> Structured:
    """Return how the judge's model is made to follow the reply schema; `text` if it is not."""
    if judge.spec.replies != "structured" or judge.model is None:
        return "text"
    reference = resolve(judge.model, specs=calls.specs, short=judge.short_name)
    return structured_of(reference)
