"""Play any protocol against replies that a test makes up, and keep what each model was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from convbench import catalog
from convbench.models.model import Model
from convbench.options.shared import RunSettings
from convbench.rollout.manifest import make_manifest
from convbench.rollout.plan import Rollout
from convbench.rollout.play import play_conversation
from convbench.rollout.preview import without_forms
from convbench.schema import (
    Choice,
    Completion,
    Conversation,
    Example,
    Message,
    Mode,
    ModelConfig,
    ProtocolSpec,
    Sampling,
    TaskSpec,
)

CHOICES = ("a thermometer", "a ruler", "a barometer", "a clock")
QUESTION = Example(
    example_id="q1",
    task="ours",
    split="train",
    group_id="q1",
    question="Which tool tells how warm a room is?",
    choices=tuple(Choice(label="ABCD"[i], text=text) for i, text in enumerate(CHOICES)),
    inputs={
        "title": "Warmth",
        "passage": "A thermometer tells how warm a room is.",
        "shown": "Input:\n12\nOutput:\n21",
    },
    answer="A",
    hidden={"reference": "It must show degrees Celsius.", "prices": "ruler: 30"},
)
TASK = TaskSpec.model_validate(
    {
        "name": "ours",
        "title": "one question of our own",
        "source": {"rows": "convbench.tasks.demo:rows"},
        "instruction": "This question is from a test of ours.",
    }
)
PROTOCOLS = sorted(catalog.spec_files("protocols"))

Reply = Callable[[str, int], str]
"""From a speaker and the number of its turn, from 1, to what it says."""


def plain(speaker: str, number: int) -> str:
    """A reply that is easily seen."""
    return f"({speaker} speaks, {number})"


@dataclass
class Sent:
    """One call."""

    speaker: str
    turn: int
    messages: list[Message]
    sampling: Sampling


@dataclass
class Table:
    """Stands where the engine stands: answers calls and keeps them."""

    reply: Reply
    sent: list[Sent] = field(default_factory=list)

    async def complete(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Answer as the speaker that the model is named after."""
        said = [m.copy() for m in messages]
        for message in said:
            message.pop("stable", None)  # where a cache may begin; nothing that is said
        self.sent.append(Sent(model.ref, int(key.rpartition("@")[2]), said, sampling))
        number = sum(call.speaker == model.ref for call in self.sent)
        return Completion(self.reply(model.ref, number))

    def of(self, speaker: str) -> list[Sent]:
        """The calls of one speaker."""
        return [call for call in self.sent if call.speaker == speaker]


@dataclass
class Named(Model):
    """A seat at the table."""

    ref: str
    priced: bool = True

    async def complete(self, *_: Any, **__: Any) -> Completion:
        """The table answers."""
        raise AssertionError

    async def aclose(self) -> None:
        """Nothing to release."""


def protocol_of(name: str) -> ProtocolSpec:
    """Return a shipped protocol; no reply here has a form, so none is drawn again."""
    return without_forms(catalog.load_spec(ProtocolSpec, "protocols", name))


def played(
    protocol: ProtocolSpec,
    *,
    mode: Mode | None = None,
    turns: int | None = None,
    task: TaskSpec = TASK,
    example: Example = QUESTION,
    reply: Reply = plain,
) -> tuple[Table, Conversation]:
    """Have one conversation; return what was sent and the record."""
    cast = {name: ModelConfig(model=f"scripted:{name}") for name in protocol.speakers}
    manifest = make_manifest(task, protocol, RunSettings(mode=mode, turns=turns), cast)
    table = Table(reply)
    seats: dict[str, Model] = {name: Named(name) for name in protocol.speakers}
    job = Rollout("q1#0", "0" * 20, example.example_id, 0, 0.7, 1)
    conversation = asyncio.run(play_conversation(manifest, example, job, seats, table))
    assert conversation.failure is None, conversation.failure
    return table, conversation


def shapes() -> Iterator[tuple[str, Mode, int]]:
    """Every shipped protocol in every mode with 3 and 5 turns, or the length it has."""
    for name in PROTOCOLS:
        protocol = protocol_of(name)
        lengths = [n for n in (3, 5) if protocol.turns.min <= n <= protocol.turns.max]
        for mode in protocol.modes:
            for turns in lengths or [protocol.turns.default]:
                yield name, mode, turns


def asked(questions: int, turns: int = 5, name: str = "clarifying-adaptive") -> Conversation:
    """A talk in which the policy asks so often and then says that it is ready, where it may."""

    def reply(speaker: str, number: int) -> str:
        if speaker != "assistant":
            return "It tells how warm it is."
        if number <= questions:
            return "What does option A tell?"
        done = number == questions + 1 < turns
        return "READY TO ANSWER" if done else "Answer is A. <thinking>It is.</thinking>"

    return played(protocol_of(name), turns=turns, reply=reply)[1]
