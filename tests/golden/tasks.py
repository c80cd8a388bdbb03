"""What tasks draw from rows that lie here, and what is sent about the first question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from convbench.catalog import load_spec, spec_files
from convbench.errors import ConvbenchError
from convbench.options.shared import RunSettings
from convbench.prompts import refuse_absent_choices
from convbench.rollout.manifest import make_manifest
from convbench.rollout.preview import preview_build
from convbench.schema import (
    Example,
    Message,
    Mode,
    ModelConfig,
    ProtocolSpec,
    TaskSpec,
    text_of,
)
from convbench.tasks.load import load_examples
from tests.helpers.excerpts import EXCERPTS

HUB = {
    "arc": "allenai__ai2_arc/ARC-Challenge",
    "arc-easy": "allenai__ai2_arc/ARC-Easy",
    "colbench-backend": "facebook__collaborative_agent_bench/backend_tasks",
    "colbench-frontend": "facebook__collaborative_agent_bench/frontend_tasks",
    "cosql": "cosql/cosql",
    "mathdial": "eth-nlped__mathdial/default",
    "mmlu": "cais__mmlu/all",
    "openbookqa": "allenai__openbookqa/main",
    "sciq": "allenai__sciq/default",
    "sciqa": "derek-thomas__ScienceQA/default",
    "squad": "rajpurkar__squad/plain_text",
    "websight": "HuggingFaceM4__WebSight/v0.2",
}
"""Folders of rows that stand for a set on the Hub, by task."""
TASKS = sorted(spec_files("tasks"))
PROTOCOLS = sorted(spec_files("protocols"))


def sources(task: str, hub: Path) -> dict[str, dict[str, Any]]:
    """Return, by name, the settings that have a task read each excerpt of its rows; `hub` is the
    folder in which they are parquet. A task whose rows are embedded has one source, named `rows`,
    without settings."""
    if task == "arc-agi":
        folder = str(EXCERPTS / "arc_agi")
        return {"arc_agi": {"source.args.folder": folder, "sample.split": "fraction"}}
    if task not in HUB:
        return {"rows": {}}
    fixed = {"source.hub": None, "source.config": None, "source.splits": []}
    files = sorted((hub / HUB[task]).glob("*.parquet"))
    count = {"sample.count": "all"}
    return {file.stem: {"source.file": str(file), **fixed, **count} for file in files}


@cache
def drawn(task: str, source: str, hub: Path, count: int | None = None) -> list[Example]:
    """Return what a task draws at seed 0 from one of its sources: all there is, of the embedded
    ones its own number of questions, or `count`."""
    sets = sources(task, hub)[source] | ({} if count is None else {"sample.count": count})
    return list(load_examples(load_spec(TaskSpec, "tasks", task, sets=sets), 0).examples)


def draws(task: str, hub: Path) -> Iterator[dict[str, Any]]:
    """Yield the ids that a task draws, in order and with their splits, for every source; of an
    excerpt half as many too."""
    for source in sources(task, hub):
        whole = drawn(task, source, hub)
        half = [drawn(task, source, hub, max(2, len(whole) // 2))] if source != "rows" else []
        for examples in (whole, *half):
            ids = [f"{example.example_id} {example.split}" for example in examples]
            yield {"draw": f"{len(ids)} of {task} {source}", "ids": ids}


def prompts(task: str, hub: Path) -> Iterator[dict[str, Any]]:
    """Yield every call about a task's first question, under each protocol and mode that the task
    goes with: who is asked, and the messages since that speaker's last call, `known` of which were
    in that one too. Each reply is a placeholder, as in a dry run."""
    source, *_ = reversed(sources(task, hub))
    examples = drawn(task, source, hub)
    spec = load_spec(TaskSpec, "tasks", task)
    for name in PROTOCOLS:
        protocol = load_spec(ProtocolSpec, "protocols", name)
        for mode in protocol.modes:
            try:
                calls = _calls(spec, protocol, mode, examples)
            except ConvbenchError:  # they do not go together
                continue
            yield from ({"call": f"{name} {mode} {at}", **call} for at, call in calls)


def _calls(
    task: TaskSpec, protocol: ProtocolSpec, mode: Mode, examples: Sequence[Example]
) -> list[tuple[str, dict[str, Any]]]:
    cast = {name: ModelConfig(model="script") for name in protocol.speakers}
    manifest = make_manifest(task, protocol, RunSettings(mode=mode), cast)
    refuse_absent_choices(task, protocol, mode, examples)
    before: dict[str, list[Message]] = {}
    calls = []
    for call in preview_build(manifest, examples).calls:
        old = before.get(call.speaker, [])
        known = len(old) if call.messages[: len(old)] == old else 0
        new = [{m["role"]: text_of(m["content"])} for m in call.messages[known:]]
        calls.append((call.step, {"speaker": call.speaker, "known": known, "new": new}))
        before[call.speaker] = call.messages
    return calls
