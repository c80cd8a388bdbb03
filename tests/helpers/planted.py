"""Conversations of the embedded world with one decisive turn, at a place drawn by lot.

The policy asks the human about three properties and then answers. Where one of the three is the
property that is wanted the conversation is right, else it is wrong: that turn decides. Which of
the three it is, and what the others ask, is chance.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from convbench import catalog
from convbench.options.shared import RunSettings
from convbench.pocket import speakers
from convbench.pocket.world import LETTERS, PROPERTIES
from convbench.rollout.manifest import make_manifest
from convbench.schema import (
    Conversation,
    Example,
    ModelConfig,
    ProtocolSpec,
    TaskSpec,
    Turn,
    Verdict,
)
from convbench.store import Run
from convbench.tasks.load import load_examples
from tests.helpers.runs import write

ASKED = 3
"""Questions of a conversation."""


def planted(folder: Path, tasks: int, samples: int, seed: int = 0) -> tuple[Run, dict[str, int]]:
    """Write a judged run; return it with the decisive turn of each right conversation."""
    task = catalog.load_spec(TaskSpec, "tasks", "pocket-collaboration")
    protocol = catalog.load_spec(ProtocolSpec, "protocols", "collaboration")
    examples = [
        example.model_copy(update={"split": "test" if number % 4 == 3 else "train"})
        for number, example in enumerate(load_examples(task, seed).examples[:tasks])
    ]
    cast = {"assistant": ModelConfig(model="local:pocket"), "human": ModelConfig(model="script")}
    shape = RunSettings(samples=samples, temperatures=(1.0,))
    manifest = make_manifest(task, protocol, shape, cast)
    decisive: dict[str, int] = {}
    talks, verdicts = [], []
    for example in examples:
        wanted = str(example.inputs["property"])
        for sample in range(samples):
            rng = random.Random(f"{seed}/{example.example_id}/{sample}")
            place = rng.choice([0, 1, 2, None, None])
            asked = rng.sample([prop for prop in PROPERTIES if prop != wanted], ASKED)
            if place is not None:
                asked[place] = wanted
            questions = [f"Which {prop}?" for prop in asked]
            talks.append(
                _talk(manifest.id, example, f"{example.example_id}#{sample}", questions, rng)
            )
            verdicts.append(_verdict(talks[-1], float(place is not None)))
            if place is not None:
                decisive[talks[-1].conversation_id] = 1 + 2 * place
    return write(folder, manifest, examples, talks, verdicts), decisive


def _verdict(talk: Conversation, right: float) -> Verdict:
    return Verdict(
        conversation_id=talk.conversation_id, judge="planted", fingerprint="p",
        scores={"overall": right}, reward=right,
    )  # fmt: skip


def _talk(
    run_id: str, example: Example, name: str, asked: list[str], rng: random.Random
) -> Conversation:
    turns = [Turn(speaker="human", step="problem", content=example.question,
                  finish_reason="scripted")]  # fmt: skip
    known = {"reference": example.hidden["reference"]}
    for question in asked:
        turns.append(Turn(speaker="assistant", step="work", content=question))
        said = speakers.human([{"role": "user", "content": question}], known)
        turns.append(Turn(speaker="human", step="respond", content=said))
    last = f"I guess. I WANT TO ANSWER: {rng.choice(LETTERS)}"
    turns.append(Turn(speaker="assistant", step="work", content=last))
    return Conversation(
        key=name, conversation_id=re.sub(r"\W", "-", f"{run_id}-{name}"),
        example_id=example.example_id,
        sample=int(name.partition("#")[2].partition("~")[0]), turns=tuple(turns), stop="marker",
        ended="2026-01-01T00:00:00.000", systems={"assistant": "", "human": ""},
    )  # fmt: skip
