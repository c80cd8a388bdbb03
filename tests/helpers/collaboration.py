"""Judged runs of a collaboration with a hidden reference, for the tests of SWEET."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from convbench.catalog import load_spec
from convbench.schema import (
    Conversation,
    Example,
    ModelConfig,
    ProtocolSpec,
    RunManifest,
    TaskSpec,
    Turn,
    Verdict,
)
from convbench.store import Run
from tests.helpers.runs import write

SENTINEL = "SENTINEL-REFERENCE"
TASK = TaskSpec.model_validate(
    {"name": "ours", "title": "ours", "source": {"file": "none.jsonl"}, "protocol": "collaboration"}
)


def protocol() -> ProtocolSpec:
    short = {"speakers.assistant.max_tokens": 24}  # an untrained model stops nowhere by itself
    return load_spec(ProtocolSpec, "protocols", "collaboration", sets=short)


def example(name: str, split: str = "train") -> Example:
    return Example.model_validate(
        {
            "example_id": name, "task": "ours", "split": split, "group_id": name,
            "question": f"make {name}", "hidden": {"reference": f"{SENTINEL} {name}"},
        }
    )  # fmt: skip


def talk(name: str, sample: int, replies: Sequence[str]) -> Conversation:
    turns = [Turn(speaker="human", step="problem", content=f"make {name}")]
    for number, text in enumerate(replies):
        if number:
            turns.append(Turn(speaker="human", step="respond", content=f"answer {number}"))
        turns.append(Turn(speaker="assistant", step="work", content=text))
    return Conversation(
        key=f"{name}#{sample}", conversation_id=f"run-{name}-{sample}", example_id=name,
        sample=sample, turns=tuple(turns), stop="marker", ended="2026-01-01T00:00:00.000",
        systems={"assistant": "You help.", "human": f"You know {SENTINEL} {name}."},
    )  # fmt: skip


def judged_run(
    folder: Path,
    told: Sequence[tuple[str, Sequence[str], float]],
    model: str | ModelConfig = "scripted:echo",
) -> Run:
    """Write a run; `told`: (question, the policy's turns, reward)."""
    policy = ModelConfig(model=model) if isinstance(model, str) else model
    manifest = RunManifest.model_validate(
        {
            "id": "run-1", "created": "2026-01-01T00:00:00", "version": "0", "kind": "build",
            "task": TASK, "protocol": protocol(), "mode": "standard", "turns": 10,
            "samples": 3, "temperatures": [1.0, 1.0, 1.0], "seed": 0, "split": "all",
            "cast": {"assistant": policy, "human": ModelConfig(model="scripted:echo")},
        }
    )  # fmt: skip
    asked = [example(name) for name in dict.fromkeys(t[0] for t in told)]
    counts: dict[str, int] = {}
    talks, verdicts = [], []
    for name, replies, reward in told:
        sample = counts.get(name, 0)
        counts[name] = sample + 1
        talks.append(talk(name, sample, replies))
        verdicts.append(Verdict(
            conversation_id=talks[-1].conversation_id, judge="ours", fingerprint="f",
            scores={"overall": reward}, reward=reward,
        ))  # fmt: skip
    return write(folder, manifest, asked, talks, verdicts)
