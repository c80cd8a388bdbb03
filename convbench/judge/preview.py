"""What a judge would be sent, and what it would cost."""

from __future__ import annotations

from convbench.engine.need import usual_prompt
from convbench.judge.all import JudgePreview
from convbench.judge.ask import judge_messages
from convbench.judge.loop import unscored
from convbench.judge.resolve import Judge
from convbench.options.shared import CallOptions
from convbench.rollout.preview import dollars, headroom
from convbench.schema import Message
from convbench.store import Run


def preview(run: Run, judge: Judge, calls: CallOptions) -> JudgePreview:
    """Return what this judge would be sent, with tokens and dollars for all of it."""
    specs = calls.specs
    pending = unscored(run, judge)[0]
    shown: list[Message] = []
    prompt = 0
    for conversation in run.conversations():
        if conversation.conversation_id in pending and judge.model is not None:
            example = run.examples[conversation.example_id]
            messages = judge_messages(judge.spec, conversation, example)
            shown = shown or messages
            prompt += usual_prompt(messages)
    if judge.model is None:
        return JudgePreview(judge.name, None, [], len(pending), 0, 0, 0.0)
    most = judge.spec.max_tokens + headroom(judge.model, specs, judge.short)
    reply = most * len(pending)
    return JudgePreview(
        judge.name,
        judge.model,
        shown,
        len(pending),
        prompt,
        reply,
        dollars(judge.model, prompt, reply, specs, judge.short, batch=calls.batch),
    )
