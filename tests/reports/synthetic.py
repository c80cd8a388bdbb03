"""Runs written by hand: who was right on which question, and what a judge said."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from convbench import catalog
from convbench.judges.resolve import resolve_judge
from convbench.options.shared import RunSettings
from convbench.rollout.manifest import make_manifest
from convbench.schema import (
    Choice,
    Conversation,
    Example,
    Failure,
    ModelConfig,
    ProtocolSpec,
    TaskSpec,
    Turn,
    Verdict,
)
from convbench.store import Run
from convbench.store.jsonl import Appender

TEMPERATURES = (0.3, 0.7, 1.0)
METRICS = ("overall", "accuracy", "reasoning", "comprehensiveness", "pedagogical", "confidence")
Said = str | None
"""A final answer: a letter, `?` for one that cannot be read, None for a failed attempt."""


def questions(count: int, task: str = "demo", group: int = 1) -> list[Example]:
    """Return `count` test questions with gold A, `group` of them in a group, and one of train."""
    options = (Choice(label="A", text="ash"), Choice(label="B", text="birch"))
    return [
        Example(
            example_id=f"q{i}", task=task, split="test" if i < count else "train",
            group_id=f"g{i // group}", question=f"Which tree {i}?", choices=options, answer="A",
        )
        for i in range(count + 1)
    ]  # fmt: skip


def manifest(
    task: str = "demo", protocol: str = "reasoning", turns: int | None = None, **more: Any
) -> Any:
    """Return a manifest of shipped specs; `parent` makes it a child's."""
    shape = RunSettings(
        mode=more.pop("mode", "thinking"), turns=turns,
        samples=more.pop("samples", 3), temperatures=more.pop("temperatures", TEMPERATURES),
        split=more.pop("split", "all"), regime=more.pop("regime", None),
    )  # fmt: skip
    cast = {
        "assistant": ModelConfig(model=more.pop("model", "local:tiny")),
        "teacher": ModelConfig(model=more.pop("teacher", "script")),
    }
    return make_manifest(
        catalog.load_spec(TaskSpec, "tasks", task),
        catalog.load_spec(ProtocolSpec, "protocols", protocol),
        shape,
        cast,
        kind="eval" if more.get("parent") else "build",
        **more,
    )


def make(
    path: Path,
    examples: Iterable[Example],
    answer: Callable[[str, int], Said],
    *,
    overall: Callable[[str, int], float | None] = lambda q, k: None,
    scores: Callable[[str, int], dict[str, float]] | None = None,
    judge: str = "rules",
    flags: Callable[[str, int], tuple[str, ...]] = lambda q, k: (),
    text: Callable[[str, int, str], str] | None = None,
    **more: Any,
) -> Run:
    """Write a run: the final answer of each (question, sample), what the fidelity checks found,
    and a judge's overall score, or all its scores."""
    run = Run.create(path, manifest(**more), list(examples))
    spec = resolve_judge(judge)
    run.store_judge(spec.fingerprint, spec.spec)
    with Appender(run.conversations_file) as talks, Appender(run.verdicts_file) as verdicts:
        for example in run.examples.values():
            if run.manifest.split not in ("all", example.split):
                continue
            for k in range(run.manifest.samples):
                talk = _talk(run, example, k, answer(example.example_id, k), text)
                talk = talk.model_copy(update={"flags": flags(example.example_id, k)})
                talks.write(talk.model_dump_json().encode())
                score = overall(example.example_id, k)
                if scores is not None:
                    verdict = Verdict(
                        conversation_id=talk.conversation_id, judge=judge,
                        fingerprint=spec.fingerprint, scores=scores(example.example_id, k),
                        reward=scores(example.example_id, k)["overall"],
                    )  # fmt: skip
                    verdicts.write(verdict.model_dump_json().encode())
                elif score is not None:
                    verdict = _verdict(talk, judge, spec.fingerprint, score)
                    verdicts.write(verdict.model_dump_json().encode())
    return run


def _talk(run: Run, example: Example, sample: int, said: Said, text: Any) -> Conversation:
    key = f"{example.example_id}#{sample}"
    name = hashlib.sha256(f"{run.manifest.id}/{key}".encode()).hexdigest()[:20]
    final = f"<thinking>weigh it</thinking> The answer is {said}." if said else ""
    if said == "?":
        final = "I cannot say."
    if text is not None and said:
        final = text(example.example_id, sample, said)
    ask = Turn(speaker="teacher", step="initial", content="Well?", finish_reason="scripted")
    turns = (ask, Turn(speaker="assistant", step="final-reply", content=final))
    return Conversation(
        key=key, conversation_id=name, example_id=example.example_id, sample=sample,
        temperature=run.manifest.temperature_of(sample), turns=turns if said else (ask,),
        stop="complete" if said else None,
        failure=None if said else Failure(kind="TransientModelError", message="busy"),
    )  # fmt: skip


def _verdict(talk: Conversation, judge: str, fingerprint: str, score: float) -> Verdict:
    if score < 0:
        failure = Failure(kind="UnreadableReply", message="no readable reply")
        return Verdict(
            conversation_id=talk.conversation_id, judge=judge, fingerprint=fingerprint,
            failure=failure,
        )  # fmt: skip
    return Verdict(
        conversation_id=talk.conversation_id, judge=judge, fingerprint=fingerprint,
        scores=dict.fromkeys(METRICS, score), reward=score / 10,
    )  # fmt: skip


def right(often: int) -> object:
    return lambda q, k: "A" if int(q[1:]) % often else "B"


def logged(folder: Path, model: str, began: str) -> Run:
    """Return a run of this model's conversations, with SWiFt trained from another."""
    run = make(folder / "run", questions(20), right(4), overall=lambda q, k: 5 + k, model=model)
    swift = run.checkpoints_folder / "swift"
    swift.mkdir(parents=True)
    (swift / "recipe.yaml").write_text("name: swift\n")
    (swift / "training.json").write_text(json.dumps({"recipe": "swift", "base": began}))
    make(run.evals_folder / "swift", questions(20), right(3), overall=lambda q, k: 4 + k,
         parent=run.manifest.id, model=f"local:{swift}", checkpoint=str(swift))  # fmt: skip
    return run
