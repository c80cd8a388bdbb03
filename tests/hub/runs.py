"""Small runs written by hand, for the tests of query, publish, pull and export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from convbench import catalog
from convbench.schema import (
    Choice,
    Conversation,
    Example,
    Failure,
    JudgeSpec,
    ModelConfig,
    ProtocolSpec,
    Reasoning,
    RedactedBlock,
    Reward,
    RunManifest,
    Sent,
    TaskSpec,
    ThinkingBlock,
    Turn,
    Verdict,
)
from convbench.store import Run

ANSWERS = ("The answer is B. <thinking>Magnets pull iron.</thinking>", "I am not sure.")
"""What the policy says last: the gold letter, or nothing that can be read."""
SYSTEM = "You are a helpful student."


def example(number: int, **more: Any) -> Example:
    """A question of our own; every fifth is in test."""
    values: dict[str, Any] = {
        "example_id": f"q{number}",
        "task": "arc",
        "split": "test" if number % 5 == 4 else "train",
        "group_id": f"g{number}",
        "question": f"What does a magnet pull, case {number}?",
        "choices": (Choice(label="A", text="wood"), Choice(label="B", text="iron")),
        "answer": "B",
    }
    return Example(**(values | more))


def conversation(number: int, sample: int = 0, said: str = ANSWERS[0], **more: Any) -> Conversation:
    """Two policy turns on question `number`; `said` is the last."""
    teacher: dict[str, Any] = {"speaker": "teacher", "finish_reason": "scripted"}
    policy: dict[str, Any] = {"speaker": "assistant", "prompt_tokens": 10, "completion_tokens": 5}
    values: dict[str, Any] = {
        "key": f"q{number}/{sample}",
        "conversation_id": f"run-q{number}-{sample}",
        "example_id": f"q{number}",
        "sample": sample,
        "temperature": (0.3, 0.7)[sample],
        "seed": number,
        "systems": {"assistant": SYSTEM, "teacher": "TEACHER-ONLY"},
        "turns": (
            Turn(step="initial", content=f"What does a magnet pull, case {number}?", **teacher),
            Turn(step="initial-reply", content="Iron, I think.", cost_usd=0.001, **policy),
            Turn(step="final", content="What is your final answer?", **teacher),
            Turn(step="final-reply", content=said, cost_usd=0.002, **policy),
        ),
        "stop": "complete",
    }
    return Conversation(**(values | more))


def failed(number: int, sample: int = 0, **more: Any) -> Conversation:
    """An attempt that ended before the last turn."""
    whole = conversation(number, sample)
    failure = Failure(kind="TransientModelError", message="503")
    return whole.model_copy(
        update={"turns": whole.turns[:1], "stop": None, "failure": failure, **more}
    )


def verdict(owner: Conversation, reward: float | None = 0.8, **more: Any) -> Verdict:
    """A verdict of judge `rules`; without a reward it is a failure."""
    scores = {} if reward is None else {"overall": reward * 10, "accuracy": reward * 10}
    failure = Failure(kind="JudgeError", message="no scores") if reward is None else None
    values: dict[str, Any] = {
        "conversation_id": owner.conversation_id,
        "judge": "rules",
        "fingerprint": "f00d",
        "scores": scores,
        "reward": reward,
        "failure": failure,
        "justifications": {"overall": "clear"} if scores else {},
    }
    return Verdict(**(values | more))


JUDGE = JudgeSpec(
    name="rules", title="rules", kind="rules", function="convbench.judges.rules:score",
    metrics=(), reward=Reward(),
)  # fmt: skip


def manifest(**more: Any) -> RunManifest:
    """A run of two samples."""
    values: dict[str, Any] = {
        "id": "20260101-000000-abcdef01",
        "created": "2026-01-01T00:00:00+00:00",
        "version": "0.1.0",
        "task": catalog.load_spec(TaskSpec, "tasks", "arc"),
        "protocol": catalog.load_spec(ProtocolSpec, "protocols", "reasoning"),
        "mode": "thinking",
        "turns": 3,
        "samples": 2,
        "temperatures": (0.3, 0.7),
        "seed": 0,
        "cast": {
            "assistant": ModelConfig(model="openai/tiny"),
            "teacher": ModelConfig(model="script"),
        },
    }
    return RunManifest(**(values | more))


def write_run(
    path: Path,
    *,
    count: int = 5,
    examples: Sequence[Example] | None = None,
    conversations: Sequence[Conversation] | None = None,
    verdicts: Sequence[Verdict] | None = None,
    **more: Any,
) -> Run:
    """Write a run; by default `count` questions with two samples, the second unparsable."""
    asked = [example(n) for n in range(count)] if examples is None else list(examples)
    if conversations is None:
        conversations = [
            conversation(n, s, ANSWERS[s]) for n in range(len(asked)) for s in range(2)
        ]
    if verdicts is None:
        verdicts = [verdict(c, 0.9 - 0.5 * c.sample) for c in conversations if not c.failure]
    run = Run.create(path, manifest(**more), asked)
    run.store_judge("f00d", JUDGE)
    append(run.conversations_file, conversations)
    append(run.verdicts_file, verdicts)
    return run


def append(path: Path, records: Sequence[Conversation | Verdict]) -> None:
    """Append records as the engine does."""
    with path.open("ab") as file:
        for record in records:
            file.write(record.model_dump_json().encode() + b"\n")


def thoughtful(path: Path, replay: str = "never") -> Run:
    """One conversation whose two policy turns were thought of before they were said."""
    talk = conversation(0)
    turns = list(talk.turns)
    for place in (1, 3):
        block = ThinkingBlock(thinking=f"T{place}", signature="sig==")
        hidden = RedactedBlock(data="enc==")
        reasoning = Reasoning(text=f"T{place}", tokens=7, via="blocks", blocks=(block, hidden))
        turns[place] = turns[place].model_copy(update={"reasoning": reasoning})
    turns[2] = turns[2].model_copy(update={"reasoning": Reasoning(text="TEACHER-ONLY")})
    sent = {"assistant": Sent(left_out=("temperature",), replay=replay)}  # type: ignore[arg-type]
    talk = talk.model_copy(update={"turns": tuple(turns), "sent": sent})
    return write_run(path, examples=[example(0)], conversations=[talk])
