"""Look up what `show` prints: a resolved spec with sample prompts, or a conversation with its
verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from convbench import catalog
from convbench.catalog.read import read_yaml
from convbench.errors import ConvbenchError, RunError, SpecError, UsageError
from convbench.options.shared import RunSettings, SpecOptions
from convbench.options.specs import load_plugins, load_protocol, load_task, sort_sets
from convbench.prompts import refuse_absent_choices
from convbench.rollout.calls import SCRIPT
from convbench.rollout.manifest import make_manifest
from convbench.rollout.preview import Preview, preview_build
from convbench.schema import (
    Conversation,
    Example,
    JudgeSpec,
    Message,
    ModelConfig,
    ProtocolSpec,
    RunManifest,
    TaskSpec,
    Verdict,
)
from convbench.store import Run, all_runs, find_run
from convbench.store.index import VERDICTS, Index
from convbench.tasks.load import load_examples

SHORTEST = 4
"""Fewest characters of an id prefix."""
FALLBACK = "demo"
"""Task whose questions illustrate a spec without a task of its own; they ship with convbench."""


class _BlockDumper(yaml.SafeDumper):
    """YAML dumper that writes texts of several lines as blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Return the YAML node of a text, as a block if it has several lines."""
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_BlockDumper.add_representer(str, _represent_text)


@dataclass(frozen=True)
class ResolvedSpec:
    """One spec with everything that it extends, and sample prompts."""

    kind: str
    """Its folder under specs/, or models."""
    name: str
    title: str
    file: str
    """Path of its file."""
    value: dict[str, Any]
    """Its fields, those that it extends included."""
    manifest: RunManifest | None = None
    """Of a task or protocol: the manifest of its run."""
    preview: Preview | None = None
    """Of a task or protocol: its prompts on a sample."""
    messages: tuple[Message, ...] = ()
    """Of a judge: the messages on that sample."""
    reply_schema: dict[str, Any] | None = None
    """Of a judge: the JSON schema of a reply, for a model that takes one."""
    problem: str | None = None
    """Why there is no sample, e.g. the Hub cannot be reached."""

    @property
    def yaml(self) -> str:
        """The spec as YAML."""
        return yaml.dump(
            self.value, Dumper=_BlockDumper, sort_keys=False, allow_unicode=True, width=90
        )


def show_spec(
    text: str,
    specs: SpecOptions = SpecOptions(),
    shape: RunSettings = RunSettings(),
    protocol: str | None = None,
) -> ResolvedSpec:
    """Return a spec by KIND/NAME, by its file, or by its name if only one kind has it (a task comes
    first); models count as a kind.

    A task or protocol has its prompts on a sample, a rubric its messages on one; why there is no
    sample is in `problem`. Raise SpecError for a name of no spec or of several.
    """
    load_plugins(specs)
    kind, name = _kind_and_name(text, specs.folders)
    if kind == "models":
        return _resolved_model(name, specs.folders)
    if kind in ("tasks", "protocols"):
        return _with_sample_prompts(kind, name, specs, shape, protocol)
    spec = catalog.load_spec(_spec_classes()[kind], kind, name, specs=specs.folders)
    shown = _resolved_spec(kind, name, spec, specs.folders)
    return _with_judge_messages(shown, spec, specs) if isinstance(spec, JudgeSpec) else shown


def _kind_and_name(text: str, folders: Sequence[Path]) -> tuple[str, str]:
    """Return (kind, name) of what was typed. Raises SpecError for no spec or several."""
    head, slash, name = text.partition("/")
    for kind in (*catalog.KINDS, "models"):
        if slash and head in (kind, kind.removesuffix("s")):
            return kind, name
    if text.endswith((".yaml", ".yml")):
        return _kind_of_file(Path(text)), text
    if slash:
        return "tasks", text
    having = [kind for kind in catalog.KINDS if text in catalog.spec_files(kind, folders)]
    if not having and not _is_model(text, folders):
        raise SpecError(
            f"{text}: found no spec, model or conversation of this name; see: convbench list "
            f"(a conversation by the first {SHORTEST} or more characters of its id; add --run DIR "
            "for a run in another folder)"
        )
    if "tasks" in having or not having:
        return ("tasks", text) if having or not _is_model(text, folders) else ("models", text)
    if len(having) > 1:
        ways = " or ".join(f"{kind}/{text}" for kind in having)
        raise SpecError(f"{text}: found under {', '.join(having)}; expected {ways}")
    return having[0], text


def _kind_of_file(path: Path) -> str:
    """Return the kind of a spec's file: its folder's, else the one with most of its keys."""
    if path.parent.name in catalog.KINDS:
        return path.parent.name
    keys = read_yaml(path).keys() if path.is_file() else set()
    return max(
        catalog.KINDS, key=lambda kind: len(keys & _spec_classes()[kind].model_fields.keys())
    )


def _is_model(name: str, folders: Sequence[Path]) -> bool:
    from convbench.models.aliases import aliases

    return name in aliases(folders).models


def _spec_classes() -> dict[str, type[BaseModel]]:
    from convbench.schema.experiment import ExperimentSpec
    from convbench.schema.recipe import LaunchSpec, Recipe

    return {
        "tasks": TaskSpec,
        "protocols": ProtocolSpec,
        "judges": JudgeSpec,
        "recipes": Recipe,
        "experiments": ExperimentSpec,
        "launch": LaunchSpec,
    }


def _resolved_spec(kind: str, name: str, spec: BaseModel, folders: Sequence[Path]) -> ResolvedSpec:
    value = spec.model_dump(mode="json", exclude_defaults=True)
    title = str(getattr(spec, "title", ""))
    file = catalog.locate_spec(kind, name, folders)
    return ResolvedSpec(kind, str(value.get("name", name)), title, str(file), value)


def _resolved_model(name: str, folders: Sequence[Path]) -> ResolvedSpec:
    from convbench.models.aliases import aliases, file_of

    known = aliases(folders).models
    if name not in known:
        raise SpecError(f"models/{name}: found no such model; expected one of {', '.join(known)}")
    alias = known[name]
    value = alias.model_dump(mode="json", exclude_defaults=True)
    title = alias.note or alias.ref or f"retired: {alias.retired}"
    return ResolvedSpec("models", name, title, str(file_of(name, folders)), value)


def _with_sample_prompts(
    kind: str,
    name: str,
    specs: SpecOptions,
    shape: RunSettings = RunSettings(),
    protocol: str | None = None,
) -> ResolvedSpec:
    """Return a task or protocol with its prompts rendered on a question: the task's own, or one of
    a task with this protocol."""
    sets = sort_sets(specs.sets, ("task", "protocol"))
    if kind == "tasks":
        task = load_task(name, specs, sets)
        spec = load_protocol(protocol or task.protocol, specs, sets)
        shown = _resolved_spec(kind, name, task, specs.folders)
    else:
        if protocol is not None:
            raise UsageError(f"--protocol: found with protocols/{name}; expected a task")
        spec = load_protocol(name, specs, sets)
        task = load_task(_task_of(spec.name, specs), specs, sets)
        shown = _resolved_spec(kind, name, spec, specs.folders)
    cast = {speaker: ModelConfig(model=SCRIPT) for speaker in spec.speakers}
    manifest = make_manifest(task, spec, shape, cast)
    sample, problem = None, None
    try:
        examples = load_examples(task, manifest.seed).examples
        refuse_absent_choices(task, manifest.protocol, manifest.mode, examples)
        sample = preview_build(manifest, examples)
    except ConvbenchError as error:
        problem = str(error)
    return replace(shown, manifest=manifest, preview=sample, problem=problem)


def _task_of(protocol: str, specs: SpecOptions) -> str:
    """Return a task with this protocol, preferably one whose questions ship with convbench."""
    names = list(catalog.spec_files("tasks", specs.folders))
    first = [FALLBACK, *(name for name in names if name.startswith("pocket"))]
    for name in dict.fromkeys([*(n for n in first if n in names), *names]):
        with_this = catalog.load_spec(TaskSpec, "tasks", name, specs=specs.folders).protocol
        if with_this == protocol:
            return name
    return FALLBACK


def _with_judge_messages(shown: ResolvedSpec, spec: JudgeSpec, specs: SpecOptions) -> ResolvedSpec:
    """Return a judge with its messages on the first conversation of a task that names it."""
    from convbench.judges.ask import judge_messages, schema_of, transcript_messages
    from convbench.judges.group import group_schema
    from convbench.judges.kinds import kind_of
    from convbench.judges.ready import check_variables
    from convbench.judges.resolve import with_defaults
    from convbench.judges.units import reply_form

    if "model" not in kind_of(spec).needs:
        return shown
    spec = with_defaults(spec)
    names = catalog.spec_files("tasks", specs.folders)
    tasks = (catalog.load_spec(TaskSpec, "tasks", n, specs=specs.folders) for n in names)
    task = next((task.name for task in tasks if task.judge == spec.name), FALLBACK)
    played = _with_sample_prompts("tasks", task, specs)
    if played.preview is None:
        return replace(shown, problem=played.problem)
    talk, example = played.preview.played, played.preview.example
    check_variables(spec, [example])
    key = f"judge/{spec.name}/{talk.conversation_id}"
    if spec.per in ("pair", "group"):
        messages = transcript_messages(spec, (talk, talk), example, key)
        schema = schema_of(spec) if spec.per == "pair" else group_schema(spec, 2)
    else:
        messages = judge_messages(spec, talk, example, key=key)
        schema = reply_form(spec, example).schema()
    reply_schema = schema if spec.replies == "structured" else None
    return replace(shown, messages=tuple(messages), reply_schema=reply_schema)


@dataclass(frozen=True)
class ConversationVerdicts:
    """One conversation with its question and verdicts."""

    run: Run
    conversation: Conversation
    example: Example
    verdicts: list[Verdict] = field(default_factory=list)


def show_conversation(
    start: str, runs: Sequence[Path] | None, specs: Sequence[Path] = ()
) -> ConversationVerdicts | None:
    """Return the conversation whose id begins with `start`, with each judge's newest verdict on it.

    Return None for fewer than four characters, for the name of a spec, or if no run has such an id.
    `runs` are searched with their evaluations; None searches all runs. Raise SpecError if several
    ids begin so, RunError if the run lacks its example.
    """
    if len(start) < SHORTEST or any(
        start in catalog.spec_files(kind, specs) for kind in catalog.KINDS
    ):
        return None
    where = [find_run(path) for path in runs] if runs else all_runs()
    family = [member for run in where for member in (run, *run.child_runs())]
    matches = [
        (run, row)
        for run in family
        for row in run.conversation_rows()
        if row.conversation_id.startswith(start)
    ]
    if not matches:
        return None
    if len(matches) > 1:
        ids = ", ".join(row.conversation_id for _, row in matches[:4])
        raise SpecError(
            f"{start}: found {len(matches)} conversations: {ids}…; type more characters of the id"
        )
    run, row = matches[0]
    conversation = run.read_conversation(*row[:3])
    example = run.examples.get(conversation.example_id)
    if example is None:
        raise RunError(
            f"{row.path}: byte {row.start}: example_id: found {conversation.example_id!r:.80}, "
            "which is not in examples.jsonl"
        )
    newest = {  # by judge, in the order of their first verdicts
        verdict.judge: verdict
        for verdict in Index(VERDICTS, [run.path / "verdicts.jsonl"]).all_rows(row.conversation_id)
    }
    verdicts = [run.read_verdict(verdict) for verdict in newest.values()]
    return ConversationVerdicts(run, conversation, example, verdicts)
