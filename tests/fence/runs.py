"""The runs that the fence asks about, from one seed.

`log`: 10,000 conversations with rewards (questions in groups, three splits, several turns, answers
that cannot be read, attempts that failed), imported and scored by two rule judges, with the
evaluation of a second policy on its test questions. `part`: 400, half of them scored. `tools`: 200
with calls of tools. `branched`: 80, most of them left again at each turn. `weighed`: 160 said to be
of the packaged policy. `kept`: runs that version 0.1 wrote, kept as files.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save_file

from convbench.catalog import load_spec
from convbench.formats.importing import import_file
from convbench.rollout.plan import branch_key
from convbench.schema import Branch, Conversation, Failure, ModelConfig, RunManifest
from convbench.schema.recipe import Recipe
from convbench.store import Run
from convbench.store.jsonl import Appender
from convbench.store.seal import seal_run
from convbench.views import policy_turns

SEED = 17
QUESTIONS = 2_500
SAMPLES = 4
TEMPERATURES = (0.3, 0.7, 1.0, 1.0)
LABELS = "ABCD"
WORDS = (
    "rock",
    "tide",
    "moon",
    "star",
    "lava",
    "moss",
    "sand",
    "wind",
    "leaf",
    "root",
    "iron",
    "salt",
    "amber",
    "cloud",
    "river",
    "stone",
    "flame",
    "valley",
    "shadow",
    "marble",
    "copper",
    "basalt",
    "granite",
    "harbour",
    "meadow",
    "thunder",
    "crystal",
    "lantern",
    "compass",
)
KEPT = Path(__file__).parent / "kept"
UNREAD = ("I cannot say.", "It could be any of these.", "Perhaps, perhaps not.")


def write_log(path: Path, questions: int, tools: bool = False) -> None:
    """Write a log, one conversation a line; the last sample of every fortieth question is not in
    it: its attempt failed (see `add_failures`). `tools`: every conversation calls one."""
    draw = random.Random(SEED)
    with path.open("w", encoding="utf-8") as file:
        for number in range(questions):
            for row in _rows_of(number, draw):
                if tools:
                    row["messages"][-1:-1] = _tool_round(number, draw)
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _rows_of(number: int, draw: random.Random) -> Iterator[dict[str, Any]]:
    options = draw.sample(WORDS, 4)
    gold = draw.choice(LABELS)
    hardness = draw.random()
    question = f"({number}) Which of these has the {draw.choice(WORDS)}? Naïve “quotes” — {number}."
    for sample in range(SAMPLES - (number % 40 == 39)):
        right = draw.random() > hardness
        yield {
            "messages": _messages(number, question, gold if right else _other(gold, draw), draw),
            "example_id": f"q{number}",
            "group": f"ticket-{number // 2}",
            "split": ("train", "train", "train", "validation", "test")[number // 2 % 5],
            "temperature": TEMPERATURES[sample],
            "question": question,
            "choices": options,
            "answer": gold,
            "hidden": {"reference": f"It is {options[LABELS.index(gold)]}, by weight."},
            **_reward(number, right, draw),
            "metadata": {"source": draw.choice(WORDS), "length": number % 7},
        }


def _other(gold: str, draw: random.Random) -> str:
    return draw.choice([label for label in LABELS if label != gold])


def _reward(number: int, right: bool, draw: random.Random) -> dict[str, Any]:
    """Most rows have a reward; some have none, some name several."""
    reward = round(0.5 * right + 0.5 * draw.random(), 3)
    if number % 50 == 7:
        return {}
    if number % 50 == 8:
        return {"rewards": {"overall": reward, "tone": round(draw.random(), 3)}}
    return {"reward": reward}


def _messages(number: int, question: str, said: str, draw: random.Random) -> list[dict[str, Any]]:
    """One to three turns of the policy; the last one answers, or cannot be read."""
    messages = [{"role": "system", "content": "You help with stones."}] if number % 3 == 0 else []
    messages.append({"role": "user", "content": question})
    for _ in range(number % 3):
        messages.append({"role": "assistant", "content": _prose(draw, 30)})
        messages.append({"role": "user", "content": f"Go on. {_prose(draw, 8)}"})
    final = f"{_prose(draw, 40)}\n\nThe answer is {said}."
    if draw.random() < 0.06:
        final = draw.choice(UNREAD)
    if number % 10 == 5:
        final = f"<thinking>{_prose(draw, 20)}</thinking>\n{final}"
    messages.append({"role": "assistant", "content": final})
    return messages


def _prose(draw: random.Random, most: int) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(2, most))).capitalize() + "."


def _tool_round(number: int, draw: random.Random) -> list[dict[str, Any]]:
    call = {
        "id": f"call-{number}",
        "type": "function",
        "function": {"name": "weigh", "arguments": json.dumps({"what": draw.choice(WORDS)})},
    }
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": f"{number % 90} kg"},
    ]


def add_failures(run: Run) -> None:
    """Append the attempts that failed, one for every question that lacks a sample."""
    newest = {talk.example_id: talk for talk in run.conversations()}
    with Appender(run.conversations_file) as file:
        for talk in newest.values():
            if talk.sample == SAMPLES - 2:
                file.write(_failed(talk).model_dump_json().encode())


def _failed(talk: Conversation) -> Conversation:
    sample = talk.sample + 1
    return talk.model_copy(
        update={
            "key": f"{talk.example_id}/{sample}",
            "conversation_id": f"{talk.conversation_id}-failed",
            "sample": sample,
            "turns": talk.turns[:1],
            "stop": None,
            "failure": Failure(kind="TransientModelError", message="the server was busy"),
        }
    )


def write_evaluation(base: Run, name: str = "swift") -> Run:
    """Write the evaluation of a second policy on the test questions of `base`: it agrees with the
    gold answer more often and talks longer."""
    checkpoint = base.checkpoints_folder / name
    checkpoint.mkdir(parents=True)
    _write_adapter(checkpoint, base.manifest.id, name)
    test = [one for one in base.examples.values() if one.split == "test"]
    child = Run.create(base.evals_folder / name, _evaluated(base.manifest, name), test)
    draw = random.Random(SEED + 1)
    with Appender(child.conversations_file) as file:
        for talk in base.conversations():
            example = child.examples.get(talk.example_id)
            if example is not None and talk.failure is None:
                said = example.answer if draw.random() < 0.7 else draw.choice(LABELS)
                last = talk.turns[-1].model_copy(
                    update={"content": f"{_prose(draw, 60)}\n\nThe answer is {said}."}
                )
                again = talk.model_copy(
                    update={
                        "conversation_id": f"{name}-{talk.conversation_id}",
                        "turns": (*talk.turns[:-1], last),
                    }
                )
                file.write(again.model_dump_json().encode())
    seal_run(child.path)
    return child


def _write_adapter(checkpoint: Path, run: str, recipe: str) -> None:
    """Write what a trainer leaves, with one number for weights."""
    spec = load_spec(Recipe, "recipes", recipe, sets={"model": "org/base", "run": "../.."})
    (checkpoint / "recipe.yaml").write_text(yaml.safe_dump(spec.model_dump(mode="json")))
    summary = {"recipe": recipe, "base": "org/base", "run": run, "judge": "imported"}
    figures = {"metric": "reward", "conversations": 6_000, "items": 6_000, "processes": 1}
    rest = {"skipped": {}, "counts": {"tokens": 999}, "log": []}
    (checkpoint / "training.json").write_text(json.dumps(summary | figures | rest))
    adapter = {"base_model_name_or_path": "org/base", "peft_type": "LORA"}
    (checkpoint / "adapter_config.json").write_text(json.dumps(adapter))
    save_file({"weight": np.zeros(1)}, str(checkpoint / "adapter_model.safetensors"))


def _evaluated(manifest: RunManifest, name: str) -> RunManifest:
    cast = dict(manifest.cast)
    policy = manifest.protocol.policy
    cast[policy] = ModelConfig(model=f"local:{name}")
    return manifest.model_copy(
        update={
            "id": f"{manifest.id}-{name}",
            "kind": "eval",
            "parent": manifest.id,
            "checkpoint": f"checkpoints/{name}",
            "split": "test",
            "cast": cast,
        }
    )


def add_branches(run: Run) -> None:
    """Write what two other attempts at each policy turn of a run's conversations said."""
    held = Run.create(
        run.branches_folder,
        run.manifest.model_copy(update={"kind": "branch"}),
        run.examples.values(),
    )
    draw = random.Random(SEED + 2)
    with Appender(held.conversations_file) as file:
        for talk in run.conversations():
            for turn in policy_turns(run.manifest.protocol, talk):
                for number in range(2):
                    file.write(_branch(talk, turn, number, draw).model_dump_json().encode())
    seal_run(held.path)


def _branch(talk: Conversation, turn: int, number: int, draw: random.Random) -> Conversation:
    final = f"{_prose(draw, 20)}\n\nThe answer is {draw.choice(LABELS)}."
    last = talk.turns[-1].model_copy(update={"content": final})
    return talk.model_copy(
        update={
            "key": branch_key(talk.key, turn, number),
            "conversation_id": f"{talk.conversation_id}-{turn}-{number}",
            "branch": Branch(parent=talk.conversation_id, turn=turn, candidate=number),
            "turns": (*talk.turns[:-1], last),
        }
    )


def name_policy(run: Run, model: str) -> None:
    """Say that another model has had a run's conversations."""
    cast = run.manifest.cast | {run.manifest.protocol.policy: ModelConfig(model=model)}
    (run.path / "run.json").write_text(
        run.manifest.model_copy(update={"cast": cast}).model_dump_json()
    )


QUESTIONS_OF = {"log": QUESTIONS, "part": 100, "tools": 50, "branched": 20, "weighed": 40}


def make_runs(folder: Path) -> None:
    """Make all of them in a folder; the names of their conversations do not depend on the day."""
    for name, questions in QUESTIONS_OF.items():
        rows = folder / f"{name}.jsonl"
        write_log(rows, questions, tools=name == "tools")
        run = import_file(rows, folder / name, f"fence-{name}").run
        add_failures(run)
        seal_run(run.path)
    write_evaluation(Run.open(folder / "log"))
    add_branches(Run.open(folder / "branched"))
    name_policy(Run.open(folder / "weighed"), "local:pocket")
    shutil.copytree(KEPT, folder / "kept")


def forget_half(run: Path) -> None:
    """Leave of a run's verdicts every second one."""
    file = run / "verdicts.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[::2]))
    seal_run(run)
