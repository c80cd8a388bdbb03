"""Runs whose policy said self-edits that a test wrote by hand; no model is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from convbench import catalog
from convbench.options.shared import RunSettings
from convbench.rollout.manifest import make_manifest
from convbench.schema import Conversation, Example, ModelConfig, ProtocolSpec, TaskSpec, Turn
from convbench.store import Run


def written_run(
    folder: Path,
    kind: tuple[str, str],
    policy: ModelConfig,
    heat: float,
    examples: Sequence[Example],
    edits: Mapping[str, Sequence[str]],
) -> Run:
    """Write a run of a (task, protocol) whose policy said these edits, by example."""
    task = catalog.load_spec(TaskSpec, "tasks", kind[0])
    protocol = catalog.load_spec(ProtocolSpec, "protocols", kind[1])
    cast = {"assistant": policy, "teacher": ModelConfig(model="script")}
    shape = RunSettings(samples=2, temperatures=(heat,))
    run = Run.create(folder, make_manifest(task, protocol, shape, cast), list(examples))
    asked = protocol.all_steps()[0].id
    with run.conversations_file.open("w") as file:
        for name, said in edits.items():
            for sample, edit in enumerate(said):
                file.write(_said(run, name, sample, asked, edit).model_dump_json() + "\n")
    return run


def _said(run: Run, name: str, sample: int, asked: str, edit: str) -> Conversation:
    turns = (
        Turn(speaker="teacher", step=asked, content="x", finish_reason="scripted"),
        Turn(speaker="assistant", step="edit", content=edit),
    )
    return Conversation(
        key=f"{name}#{sample}", conversation_id=f"{run.manifest.id}-{name}-{sample}",
        example_id=name, sample=sample, turns=turns, stop="complete",
        specs=run.manifest.fingerprints["specs"], ended="2026-11-20T10:00:00Z",
    )  # fmt: skip
