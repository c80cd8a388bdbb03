"""`judge`: one or several judges over the conversations of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from convbench import catalog
from convbench.engine.need import usual_prompt
from convbench.errors import RunError
from convbench.judge import Judge, judge_messages
from convbench.judge.all import JudgePreview, JudgeResult, judge_with, judge_with_model
from convbench.judge.loop import unscored
from convbench.options.judge import JudgeOptions
from convbench.options.specs import load_plugins
from convbench.rollout.preview import dollars, headroom
from convbench.schema import Message
from convbench.store import Run, find_run


def judge(options: JudgeOptions) -> JudgeResult:
    """Judge every conversation of a run that these judges have not scored.

    Raises ConvbenchError subclasses; verdicts are appended one by one, so that a run that is
    stopped loses at most the calls in flight.
    """
    load_plugins(options.specs)
    run = find_run(options.run)
    _something(run)
    judges = [judge_with_model(name, options.specs, options.calls) for name in _names(run, options)]
    if options.dry_run:
        folders = options.calls.specs
        return JudgeResult(run, previews=[_preview(run, item, folders) for item in judges])
    typed = [item.model for item in judges if item.model and options.judges]
    return judge_with(run, judges, options.calls.naming(*typed))


def _something(run: Run) -> None:
    """Refuse a run that holds no conversation to judge."""
    failed = 0
    for conversation in run.conversations():
        if conversation.failure is None:
            return
        failed += 1
    raise RunError(
        f"{run.path}: found no conversation to judge ({failed} failed); have some first: "
        f"convbench build --run {run.path}"
    )


def _names(run: Run, options: JudgeOptions) -> tuple[str, ...]:
    """Return the judges asked for, or the task's own."""
    if options.judges:
        return tuple(dict.fromkeys(options.judges))
    if run.manifest.task.judge:
        return (run.manifest.task.judge,)
    known = ", ".join(catalog.names("judges", options.specs.folders))
    raise RunError(
        f"task {run.manifest.task.name} names no judge; expected --judge NAME: a model "
        f"(claude-opus, gpt-4o, …), human:FILE, or one of {known}"
    )


def _preview(run: Run, judge: Judge, specs: Sequence[Path] = ()) -> JudgePreview:
    """Return what this judge would be sent, with tokens and dollars for all of it."""
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
        dollars(judge.model, prompt, reply, specs, judge.short),
    )
