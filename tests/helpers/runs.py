"""The maker of runs: folders of records that no model was asked for.

`write` writes every run of the tests: a manifest, questions, conversations, verdicts. `write_run`
has its own where a test has none: questions about magnets, two samples each. `make` makes them by
rules: who was right on which question, and what a judge said of it. `written_run` makes self-edits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from convbench.util.words import Mode, SplitChoice

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


def write(
    path: Path,
    manifest: RunManifest,
    examples: Iterable[Example],
    conversations: Iterable[Conversation] = (),
    verdicts: Iterable[Verdict] = (),
) -> Run:
    """Write a run of these records."""
    run = Run.create(path, manifest, list(examples))
    append(run.conversations_file, conversations)
    append(run.verdicts_file, verdicts)
    return run


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
    run = write(path, manifest(**more), asked, conversations, verdicts)
    run.store_judge("f00d", JUDGE)
    return run


def append(path: Path, records: Iterable[Conversation | Verdict]) -> None:
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


# -- by rules: who was right on which question, and what a judge said of it

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


def shipped_manifest(
    task: str = "demo",
    protocol: str = "reasoning",
    *,
    model: str | ModelConfig = "local:tiny",
    teacher: str = "script",
    mode: Mode | None = "thinking",
    samples: int = 3,
    temperatures: tuple[float, ...] = TEMPERATURES,
    split: SplitChoice = "all",
    turns: int | None = None,
    protocol_fields: Mapping[str, Any] = {},
    seed: int | None = None,
    **more: Any,
) -> RunManifest:
    """A manifest of shipped specs, `protocol_fields` laid over the protocol's; `parent` makes it a
    child's."""
    policy = model if isinstance(model, ModelConfig) else ModelConfig(model=model)
    shape = RunSettings(
        mode=mode, turns=turns, samples=samples, temperatures=temperatures, split=split,
        seed=seed,
    )  # fmt: skip
    return make_manifest(
        catalog.load_spec(TaskSpec, "tasks", task),
        catalog.load_spec(ProtocolSpec, "protocols", protocol).model_copy(update=protocol_fields),
        shape,
        {"assistant": policy, "teacher": ModelConfig(model=teacher)},
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
    and a judge's overall score, or all its scores; a negative one is a failure."""
    run = write(path, shipped_manifest(**more), examples)
    spec = resolve_judge(judge)
    run.store_judge(spec.fingerprint, spec.spec)
    talks, verdicts = [], []
    for one in run.examples.values():
        if run.manifest.split not in ("all", one.split):
            continue
        for k in range(run.manifest.samples):
            name = one.example_id
            talk = _talk(run, name, k, answer(name, k), text, flags(name, k))
            talks.append(talk)
            if scores is not None:
                verdicts.append(_verdict(talk, judge, spec.fingerprint, scores(name, k)))
            elif (score := overall(name, k)) is not None:
                given = dict.fromkeys(METRICS, score)
                verdicts.append(_verdict(talk, judge, spec.fingerprint, given))
    append(run.conversations_file, talks)
    append(run.verdicts_file, verdicts)
    return run


def _talk(
    run: Run, name: str, sample: int, said: Said, text: Any, flags: tuple[str, ...]
) -> Conversation:
    key = f"{name}#{sample}"
    final = f"<thinking>weigh it</thinking> The answer is {said}." if said else ""
    if said == "?":
        final = "I cannot say."
    if text is not None and said:
        final = text(name, sample, said)
    ask = Turn(speaker="teacher", step="initial", content="Well?", finish_reason="scripted")
    turns = (ask, Turn(speaker="assistant", step="final-reply", content=final))
    return Conversation(
        key=key,
        conversation_id=hashlib.sha256(f"{run.manifest.id}/{key}".encode()).hexdigest()[:20],
        example_id=name,
        sample=sample,
        temperature=run.manifest.temperature_of(sample),
        turns=turns if said else (ask,),
        stop="complete" if said else None,
        failure=None if said else Failure(kind="TransientModelError", message="busy"),
        flags=flags,
    )


def _verdict(talk: Conversation, judge: str, fingerprint: str, scores: dict[str, float]) -> Verdict:
    unread = scores["overall"] < 0
    return Verdict(
        conversation_id=talk.conversation_id, judge=judge, fingerprint=fingerprint,
        scores={} if unread else scores,
        reward=None if unread else scores["overall"] / 10,
        failure=Failure(kind="UnreadableReply", message="no readable reply") if unread else None,
    )  # fmt: skip


def right(often: int) -> Callable[[str, int], Said]:
    """Right but on every so manieth question."""
    return lambda q, k: "A" if int(q[1:]) % often else "B"


def logged(folder: Path, model: str, began: str) -> Run:
    """A run of this model's conversations, with SWiFt trained from another."""
    run = make(folder / "run", questions(20), right(4), overall=lambda q, k: 5 + k, model=model)
    swift = run.checkpoints_folder / "swift"
    swift.mkdir(parents=True)
    (swift / "recipe.yaml").write_text("name: swift\n")
    (swift / "training.json").write_text(json.dumps({"recipe": "swift", "base": began}))
    make(run.evals_folder / "swift", questions(20), right(3), overall=lambda q, k: 4 + k,
         parent=run.manifest.id, model=f"local:{swift}", checkpoint=str(swift))  # fmt: skip
    return run


# -- of edits that a test wrote


def written_run(
    folder: Path,
    kind: tuple[str, str],
    policy: ModelConfig,
    heat: float,
    examples: Sequence[Example],
    edits: Mapping[str, Sequence[str]],
) -> Run:
    """Write a run of a (task, protocol) whose policy said these edits, by example."""
    manifest = shipped_manifest(*kind, model=policy, mode=None, samples=2, temperatures=(heat,))
    asked = manifest.protocol.all_steps()[0].id
    ask = Turn(speaker="teacher", step=asked, content="x", finish_reason="scripted")
    return write(folder, manifest, examples, [
        Conversation(
            key=f"{name}#{sample}", conversation_id=f"{manifest.id}-{name}-{sample}",
            example_id=name, sample=sample, stop="complete",
            turns=(ask, Turn(speaker="assistant", step="edit", content=edit)),
            specs=manifest.fingerprints["specs"], ended="2026-11-20T10:00:00Z",
        )
        for name, said in edits.items()
        for sample, edit in enumerate(said)
    ])  # fmt: skip
