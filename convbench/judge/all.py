"""`judge`: one or several judges over the conversations of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from convbench import catalog
from convbench.blot import address
from convbench.catalog.options import SpecOptions, load_plugins, sort_sets
from convbench.engine import run as run_loop
from convbench.engine.need import usual_prompt
from convbench.errors import RunError
from convbench.judge import (
    Judge,
    Panel,
    again,
    judge_messages,
    panel,
    resolve_judge,
)
from convbench.judge.kinds import kind_of
from convbench.judge.loop import Judged, score, unscored
from convbench.models.aliases import resolve
from convbench.rollout.calls import CallOptions
from convbench.rollout.preview import dollars
from convbench.schema import Message
from convbench.store import Run, find_run


@dataclass(frozen=True)
class JudgeOptions:
    """What a user asks of `judge`."""

    judges: tuple[str, ...] = ()
    run: Path | None = None
    dry_run: bool = False
    specs: SpecOptions = SpecOptions()
    calls: CallOptions = CallOptions()


@dataclass
class JudgePreview:
    """What one judge would be sent."""

    name: str
    model: str | None
    messages: list[Message]
    """Of the first conversation; empty where no model is asked."""
    calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None


@dataclass
class JudgeResult:
    """What `judge` did, or would do."""

    run: Run
    judged: list[Judged] = field(default_factory=list)
    unjudged: int = 0
    """Conversations that failed to build: there is nothing to judge."""
    panel: Panel | None = None
    previews: list[JudgePreview] = field(default_factory=list)


def judge(options: JudgeOptions) -> JudgeResult:
    """Judge every conversation of a run that these judges have not scored.

    Raises ConvbenchError subclasses; verdicts are appended one by one, so that a run that is
    stopped loses at most the calls in flight.
    """
    load_plugins(options.specs)
    run = find_run(options.run)
    judges = [resolved(name, options.specs, options.calls) for name in _names(run, options)]
    if options.dry_run:
        return JudgeResult(run, previews=[_preview(run, item) for item in judges])
    typed = [item.model for item in judges if item.model and options.judges]
    return judge_with(run, judges, options.calls.naming(*typed))


def judge_with(run: Run, judges: Sequence[Judge], calls: CallOptions) -> JudgeResult:
    """Let these judges score what they have not scored of a run."""
    result = JudgeResult(run, unjudged=sum(1 for c in run.conversations() if c.failure))

    async def go() -> None:
        for item in judges:
            judged = await score(run, item, calls)
            result.judged.append(judged)
            if judged.jobs.interrupted or judged.jobs.stopped:
                return

    with run.lock():
        run_loop(go)
    result.panel = panel(run.manifest.protocol, run.conversations(), run.verdicts())
    return result


def judges_of(run: Run) -> list[Judge]:
    """Return the judges whose verdicts a run holds, as it kept them.

    People's labels belong to the conversations they were given for, so they are left out.
    """
    kept = run.judge_specs().items()
    specs = {mark: spec for mark, spec in kept if "labels" not in kind_of(spec).needs}
    names = {v.judge: v.fingerprint for v in run.verdicts() if v.fingerprint in specs}
    downloaded = run.manifest.pulled_from is not None
    return [again(name, specs[mark], downloaded=downloaded) for name, mark in names.items()]


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


def resolved(name: str, specs: SpecOptions, calls: CallOptions) -> Judge:
    """Return a judge with the model its name stands for, so that the fingerprint holds it."""
    sets = sort_sets(specs.sets, ("judge",)).of("judge")

    def model(reference: str) -> str:
        return resolve(reference, api_base=calls.api_base, specs=specs.folders).ref

    found = resolve_judge(name, specs.folders, sets=sets, resolve_model=model)
    # Kept with the run, so that an evaluation asks the same model at the same address.
    base = calls.api_base if found.model else None
    update = {"model": found.model, "api_base": address(base) if base else None}
    return replace(found, spec=found.spec.model_copy(update=update))


def _preview(run: Run, judge: Judge) -> JudgePreview:
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
    reply = judge.spec.max_tokens * len(pending)
    return JudgePreview(
        judge.name,
        judge.model,
        shown,
        len(pending),
        prompt,
        reply,
        dollars(judge.model, prompt, reply),
    )
