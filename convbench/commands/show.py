"""`show`: one task rendered, or one conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from convbench import catalog
from convbench.errors import ConvbenchError, SpecError
from convbench.options.shared import Shape, SpecOptions
from convbench.options.specs import load_plugins, load_protocol, load_task, sort_sets
from convbench.rollout.calls import SCRIPT
from convbench.rollout.manifest import make_manifest
from convbench.rollout.preview import Preview, preview
from convbench.schema import Conversation, Example, Member, RunManifest, Verdict
from convbench.store import Run, all_runs, find_run
from convbench.store.jsonl import lines
from convbench.tasks.load import load_examples

SHORTEST = 4
"""Characters of an id that are enough to look for."""


@dataclass(frozen=True)
class TaskShown:
    """A task, resolved, with its prompts on a sample."""

    manifest: RunManifest
    yaml: str
    preview: Preview | None
    problem: str | None
    """Why there is no sample, e.g. the Hub cannot be reached."""


def show_task(
    name: str, protocol: str | None, mode: str | None, turns: int | None, options: SpecOptions
) -> TaskShown:
    """Return a task resolved and its prompts rendered on its first question."""
    load_plugins(options)
    sets = sort_sets(options.sets, ("task", "protocol"))
    task = load_task(name, options, sets)
    spec = load_protocol(protocol or task.protocol, options, sets)
    cast = {speaker: Member(model=SCRIPT) for speaker in spec.speakers}
    manifest = make_manifest(task, spec, Shape(mode=mode, turns=turns), cast)  # type: ignore[arg-type]
    text = yaml.safe_dump(
        {"task": task.model_dump(mode="json", exclude_defaults=True)},
        sort_keys=False,
        allow_unicode=True,
        width=90,
    )
    try:
        examples = load_examples(task, manifest.seed).examples
        return TaskShown(manifest, text, preview(manifest, examples), None)
    except ConvbenchError as error:
        return TaskShown(manifest, text, None, str(error))


@dataclass(frozen=True)
class ConversationShown:
    """One conversation with its question and verdicts."""

    run: Run
    conversation: Conversation
    example: Example
    verdicts: list[Verdict] = field(default_factory=list)


def show_conversation(
    start: str, runs: Sequence[Path] | None, specs: Sequence[Path] = ()
) -> ConversationShown | None:
    """Return the conversation whose id starts so; None for a task's name, and where no run has
    such an id."""
    if len(start) < SHORTEST or start in catalog.names("tasks", specs):
        return None
    where = [find_run(path) for path in runs] if runs else all_runs()
    family = [member for run in where for member in (run, *run.children())]
    found = [
        (run, conversation)
        for run in family
        if _mentions(run, start)
        for conversation in run.conversations()
        if conversation.conversation_id.startswith(start)
    ]
    if not found:
        return None
    if len(found) > 1:
        ids = ", ".join(conversation.conversation_id for _, conversation in found[:4])
        raise SpecError(f"{start}: found {len(found)} conversations: {ids}…; give more digits")
    run, conversation = found[0]
    verdicts = [v for v in run.verdicts() if v.conversation_id == conversation.conversation_id]
    return ConversationShown(run, conversation, run.examples[conversation.example_id], verdicts)


def _mentions(run: Run, start: str) -> bool:
    """Whether the run's file has such an id at all: a look at the bytes, without parsing them."""
    wanted = b'"' + start.encode()
    return any(wanted in line for _, line in lines(run.conversations_file))
