"""What a judge would be sent, and what it would cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import Any

from convbench.engine.need import usual_prompt
from convbench.judge.all import JudgePreview
from convbench.judge.ask import Form, form_of, judge_messages
from convbench.judge.group import Group, group_messages, group_schema, groups_of
from convbench.judge.kinds import kind_of
from convbench.judge.pending import Pending, unscored
from convbench.judge.ready import check_variables
from convbench.judge.resolve import Judge
from convbench.judge.turns import parts
from convbench.models.aliases import resolve
from convbench.models.open import structured_of
from convbench.options.shared import CallOptions
from convbench.rollout.preview import Preview, dollars, headroom
from convbench.schema import Conversation, Example, Message, RunManifest, without_stable
from convbench.store import Run
from convbench.views import policy_turns
from convbench.words import Structured

Request = tuple[list[Message], Callable[[], dict[str, Any]]]
"""What one call is sent: messages, and the JSON schema of its reply where the model takes one."""


def _talks(run: Run, judge: Judge, conversation: Conversation) -> Iterator[Conversation]:
    """Yield what is judged of a conversation: all of it, or what leads to each of its turns."""
    if judge.spec.per == "conversation":
        yield conversation
    else:
        yield from (part for _, part in parts(run.manifest.protocol, conversation))


def _asked(run: Run, judge: Judge, pending: Pending) -> Iterator[Request]:
    """Yield what would be sent, call by call."""
    if judge.spec.per == "group":
        for group in groups_of(run, judge, pending):
            schema = partial(group_schema, judge.spec, len(group.talks))
            yield group_messages(judge, group), schema
        return
    for conversation in run.conversations():
        if conversation.conversation_id in pending:
            example = run.examples[conversation.example_id]
            before = pending[conversation.conversation_id]
            key = f"judge/{judge.fingerprint}/{conversation.key}#{before.attempts if before else 0}"
            for talk in _talks(run, judge, conversation):
                messages = judge_messages(judge.spec, talk, example, key=key)
                yield messages, _form(run, judge, talk, example).schema


def _form(run: Run, judge: Judge, talk: Conversation, example: Example) -> Form[Any]:
    """Return what the reply on one conversation is to be."""
    if kind_of(judge.spec).measures != "simulator":
        return form_of(judge.spec)
    from convbench.judge.review.asked import form
    from convbench.judge.review.scene import scenes

    return form(len(list(scenes(talk, example, run.manifest.protocol))))


def preview(run: Run, judge: Judge, calls: CallOptions) -> JudgePreview:
    """Return what this judge would be sent, with tokens and dollars for all of it."""
    pending = unscored(run, judge)[0]
    if judge.model is not None:
        check_variables(judge.spec, run.examples.values())
    return preview_of(judge, len(pending), _asked(run, judge, pending), calls)


def preview_unbuilt(
    judge: Judge, manifest: RunManifest, shown: Preview, calls: CallOptions
) -> JudgePreview:
    """Return what this judge would be sent of a run that is not built, of which `shown` is the
    first conversation: as much of every other one, with replies at their full length."""
    spec, talk, example = judge.spec, shown.played, shown.example
    count = shown.conversations
    request: Request
    requests: Iterable[Request] = ()
    if judge.model is not None and spec.per == "group":
        size = manifest.samples
        group = Group((talk,) * size, example)
        request = group_messages(judge, group), partial(group_schema, spec, size)
        requests = repeat(request, count // size)
    elif judge.model is not None:
        turns = len(policy_turns(manifest.protocol, talk)) if spec.per == "turn" else 1
        requests = repeat(
            (judge_messages(spec, talk, example), form_of(spec).schema), count * turns
        )
    replies = shown.replies * count
    return preview_of(judge, count, requests, calls, more=replies if judge.model else 0)


def preview_of(
    judge: Judge,
    verdicts: int,
    requests: Iterable[Request],
    calls: CallOptions,
    more: int = 0,
) -> JudgePreview:
    """Return what these calls of a judge's model come to, and the first of them as it is sent;
    `more` tokens will stand in their prompts beside what does.

    Raises SpecError where a prompt cannot be rendered.
    """
    if judge.model is None:
        return JudgePreview(judge.name, None, [], verdicts, 0, 0, 0, 0.0)
    specs = calls.specs
    first: Request | None = None
    prompt, count = more, 0
    for messages, schema in requests:
        first = first or (messages, schema)
        prompt += usual_prompt(messages)
        count += 1
    most = judge.spec.max_tokens + headroom(judge.model, specs, judge.short)
    reply = most * count
    structured = _structured(judge, calls)
    return JudgePreview(
        judge.name,
        judge.model,
        without_stable(first[0]) if first else [],
        verdicts,
        count,
        prompt,
        reply,
        dollars(judge.model, prompt, reply, specs, judge.short, batch=calls.batch),
        structured,
        first[1]() if first and structured != "text" else None,
    )


def _structured(judge: Judge, calls: CallOptions) -> Structured:
    """Return how the judge's model will be made to reply by a schema."""
    if judge.spec.replies != "structured" or judge.model is None:
        return "text"
    found = resolve(judge.model, specs=calls.specs, short=judge.short)
    return found.alias.structured or structured_of(found)
