"""What a judge would be sent, and what it would cost."""

from __future__ import annotations

from collections.abc import Iterator

from convbench.engine.need import usual_prompt
from convbench.judge.all import JudgePreview
from convbench.judge.ask import judge_messages
from convbench.judge.group import group_messages, groups_of
from convbench.judge.pending import Pending, unscored
from convbench.judge.resolve import Judge
from convbench.judge.turns import parts
from convbench.options.shared import CallOptions
from convbench.rollout.preview import dollars, headroom
from convbench.schema import Conversation, Message
from convbench.store import Run


def _talks(run: Run, judge: Judge, conversation: Conversation) -> Iterator[Conversation]:
    """Yield what is judged of a conversation: all of it, or what leads to each of its turns."""
    if judge.spec.per == "conversation":
        yield conversation
    else:
        yield from (part for _, part in parts(run.manifest.protocol, conversation))


def _asked(run: Run, judge: Judge, pending: Pending) -> Iterator[list[Message]]:
    """Yield what would be sent, a list of messages a call."""
    if judge.spec.per == "group":
        yield from (group_messages(judge, one) for one in groups_of(run, judge, pending))
        return
    for conversation in run.conversations():
        if conversation.conversation_id in pending:
            example = run.examples[conversation.example_id]
            asked = pending[conversation.conversation_id]
            for talk in _talks(run, judge, conversation):
                key = f"judge/{judge.fingerprint}/{talk.conversation_id}#{asked}"
                yield judge_messages(judge.spec, talk, example, key=key)


def preview(run: Run, judge: Judge, calls: CallOptions) -> JudgePreview:
    """Return what this judge would be sent, with tokens and dollars for all of it."""
    specs = calls.specs
    pending = unscored(run, judge)[0]
    shown: list[Message] = []
    prompt = calls_made = 0
    for messages in _asked(run, judge, pending) if judge.model is not None else ():
        shown = shown or messages
        prompt += usual_prompt(messages)
        calls_made += 1
    if judge.model is None:
        return JudgePreview(judge.name, None, [], len(pending), 0, 0, 0.0)
    most = judge.spec.max_tokens + headroom(judge.model, specs, judge.short)
    reply = most * calls_made
    return JudgePreview(
        judge.name,
        judge.model,
        shown,
        len(pending),
        prompt,
        reply,
        dollars(judge.model, prompt, reply, specs, judge.short, batch=calls.batch),
    )
