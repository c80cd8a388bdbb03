"""A step that asks for JSON: other replies are drawn again, and that is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from convbench import catalog
from convbench.errors import SpecError
from convbench.models.model import Model
from convbench.options.shared import RunSettings
from convbench.rollout.manifest import make_manifest
from convbench.rollout.plan import Rollout, plan_samples
from convbench.rollout.play import play_conversation
from convbench.rollout.preview import preview_build
from convbench.schema import (
    Completion,
    Conversation,
    Example,
    Message,
    ModelConfig,
    ProtocolSpec,
    RunManifest,
    Sampling,
    TaskSpec,
)
from convbench.tasks.load import load_examples


class Lines(Model):
    """A model that says one line after the other, and keeps what it was asked with."""

    ref, priced = "rule:lines", False

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.asked: list[tuple[str, int | None]] = []

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        self.asked.append((key, sampling.seed))
        return Completion(self.lines.pop(0), "stop", 10, 2, 0.5)

    async def aclose(self) -> None:
        return None


class Plainly:
    """Makes calls without an engine."""

    async def complete(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        return await model.complete(messages, sampling, key=key)


def manifest(**steps: Any) -> tuple[RunManifest, list[Example]]:
    task = catalog.load_spec(TaskSpec, "tasks", "pocket-grids", sets={"source.args.train": 2})
    protocol = catalog.load_spec(ProtocolSpec, "protocols", "self-edit-few-shot")
    cast = {"assistant": ModelConfig(model="rule:lines"), "teacher": ModelConfig(model="script")}
    shape = RunSettings(samples=15, temperatures=(0.8,))
    return make_manifest(task, protocol, shape, cast), load_examples(task, 0).examples


def had(model: Lines, run: RunManifest, example: Example) -> Conversation:
    job = Rollout("e#0", "c", example.example_id, 0, 0.8, 7)
    cast: dict[str, Model] = {"assistant": model, "teacher": model}
    return asyncio.run(play_conversation(run, example, job, cast, Plainly(), {}))


def test_a_reply_without_json_is_drawn_again_by_another_seed() -> None:
    run, examples = manifest()
    model = Lines("no", "{broken", 'Here: {"a": 1}', "never asked")
    talk = had(model, run, examples[0])
    turn = talk.turns[-1]
    assert (turn.content, turn.redrawn) == ('Here: {"a": 1}', 2)
    assert (turn.prompt_tokens, turn.completion_tokens, turn.cost_usd) == (30, 6, 1.5)
    assert [key for key, _ in model.asked] == ["e#0@1", "e#0@1~1", "e#0@1~2"]
    assert len({seed for _, seed in model.asked}) == 3


def test_json_with_missing_keys_is_kept() -> None:
    run, examples = manifest()
    turn = had(Lines("{}"), run, examples[0]).turns[-1]
    assert (turn.content, turn.redrawn) == ("{}", 0)
    assert "redrawn" not in turn.model_dump(mode="json")


def test_after_ten_draws_the_last_one_stays() -> None:
    run, examples = manifest()
    turn = had(Lines(*map(str, range(20))), run, examples[0]).turns[-1]
    assert (turn.content, turn.redrawn) == ("9", 9)


def test_greedy_replies_are_not_drawn_again() -> None:
    run, examples = manifest()
    speakers = dict(run.protocol.speakers)
    speakers["assistant"] = speakers["assistant"].model_copy(update={"temperature": 0.0})
    cold = run.model_copy(
        update={"protocol": run.protocol.model_copy(update={"speakers": speakers})}
    )
    assert had(Lines("no"), cold, examples[0]).turns[-1].redrawn == 0


def test_a_split_may_have_fewer_samples() -> None:
    """15 of a train task, 5 of a test task; the preview counts them so."""
    run, examples = manifest()
    jobs = list(plan_samples(run, examples, {}))
    train = {e.example_id for e in examples if e.split == "train"}
    assert len(train) == 2
    assert sum(job.example_id in train for job in jobs) == 2 * 15
    assert len(jobs) == 2 * 15 + 8 * 5
    seen = preview_build(run, examples)
    assert seen.estimate.conversations == len(jobs)
    assert seen.estimate.calls == len(jobs), "one call a conversation: a mark is drawn once"
    with pytest.raises(SpecError, match="greater than or equal to 1"):
        catalog.load_spec(TaskSpec, "tasks", "pocket-grids", sets={"sample.each.test": 0})
