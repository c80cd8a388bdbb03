"""Runs for the viewer's tests: every kind of conversation once, and very many plain ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from convbench.judges.resolve import resolve_judge
from convbench.schema import (
    Choice,
    Conversation,
    Example,
    Failure,
    Turn,
    Verdict,
)
from convbench.store import Run
from tests.helpers.runs import append, shipped_manifest, write

HOSTILE = (
    "<script>window.pwned=1</script>"
    '<img src=x onerror="window.pwned=2">'
    "<a href='javascript:window.pwned=3'>go</a>"
    '"><svg onload=window.pwned=4>{{7*7}}${7*7}</textarea></script>\u2028\u202etxt.exe\x00\x1b[31m'
)
"""What a page that read markup in it would run."""
EVIL = "../<img src=x onerror=window.pwned=9>?#%2e&'\"`/"
"""A name that is markup, an address and a path at once."""
METRICS = ("accuracy", "reasoning", "comprehensiveness", "pedagogical", "confidence", "overall")


def question(number: int, text: str | None = None, **more: Any) -> Example:
    """A question with gold B; every fourth is of test."""
    values: dict[str, Any] = {
        "example_id": f"q{number}",
        "task": "demo",
        "split": "test" if number % 4 == 3 else "train",
        "group_id": f"g{number // 2}",
        "question": text or f"Which metal does magnet number {number} pull?",
        "choices": (Choice(label="A", text="copper"), Choice(label="B", text="iron")),
        "answer": "B",
        "hidden": {"secret": "the hidden hint"},
    }
    return Example(**(values | more))


def talk(run: Run, example: Example, sample: int, said: str | None, **more: Any) -> Conversation:
    """A conversation of two policy turns that ends with `said`; None for one that failed."""
    teacher: dict[str, Any] = {"speaker": "teacher", "finish_reason": "scripted"}
    turns = (
        Turn(step="initial", content=f"{example.question} Use <thinking></thinking>.", **teacher),
        Turn(speaker="assistant", step="initial-reply", content="Iron, maybe.",
             prompt_tokens=20, completion_tokens=4, cost_usd=0.001),
        Turn(step="final", content="And your final answer?", **teacher),
        Turn(speaker="assistant", step="final-reply", content=said or "", prompt_tokens=40,
             completion_tokens=9, cost_usd=0.002),
    )  # fmt: skip
    values: dict[str, Any] = {
        "key": f"{example.example_id}#{sample}",
        "conversation_id": f"{run.manifest.id[-8:]}{example.example_id}s{sample}",
        "example_id": example.example_id,
        "sample": sample,
        "temperature": run.manifest.temperature_of(sample),
        "systems": {"assistant": "You are a careful student."},
        "turns": turns if said is not None else turns[:1],
        "stop": "complete" if said is not None else None,
        "failure": None if said is not None else Failure(kind="ModelError", message="503 busy"),
    }
    return Conversation(**(values | more))


def verdict(owner: Conversation, judge: str, fingerprint: str, score: float | None) -> Verdict:
    """A verdict with a justification; without a score it is a failure."""
    if score is None:
        return Verdict(
            conversation_id=owner.conversation_id, judge=judge, fingerprint=fingerprint,
            failure=Failure(kind="UnreadableReply", message="no scores"), reply="I refuse.",
        )  # fmt: skip
    return Verdict(
        conversation_id=owner.conversation_id, judge=judge, fingerprint=fingerprint,
        scores=dict.fromkeys(METRICS, score), reward=score / 10,
        justifications={"overall": f"{judge} finds this worth {score:g}."},
    )  # fmt: skip


def make(
    path: Path,
    examples: Sequence[Example],
    talks: Iterable[tuple[int, int, str | None, dict[str, Any]]],
    scores: dict[str, Any],
    model: str = "local:base",
    **more: Any,
) -> Run:
    """Write a run. `talks`: (question, sample, last words, more); `scores`: by judge, a function
    of the conversation's place."""
    manifest = shipped_manifest(model=model, samples=2, temperatures=(0.3, 1.0), **more)
    run = write(path, manifest, examples)
    spec = resolve_judge("rules")
    run.store_judge(spec.fingerprint, spec.spec)
    for place, (number, sample, words, extra) in enumerate(talks):
        owner = talk(run, examples[number], sample, words, **extra)
        append(run.conversations_file, [owner])
        append(run.verdicts_file, [
            verdict(owner, judge, spec.fingerprint, score(place))
            for judge, score in scores.items()
            if words is not None
        ])  # fmt: skip
    return run


RIGHT, WRONG, MUTE = (
    "<thinking>Magnets pull iron.</thinking> The answer is B.",
    "The answer is A. <thinking>A guess.</thinking>",
    "I would rather not say.",
)


def world(path: Path) -> Run:
    """Eight questions twice, and a child run of another policy on the first four.

    Sample 0 is right but for the last question, whose words are hostile and the very text of A, so
    that A is read and wrong; sample 1 is wrong, but q0 is unparsed, q1 failed and q2 flagged. Judge
    `rules` gives all 8 or 3, `strict` 2.
    """
    examples = [question(n) for n in range(7)] + [
        question(7, HOSTILE, choices=(Choice(label="A", text=HOSTILE), Choice(label="B", text="b")),
                 hidden={"secret": HOSTILE})
    ]  # fmt: skip
    odd: dict[int, tuple[str | None, dict[str, Any]]] = {
        0: (MUTE, {}), 1: (None, {}), 2: (WRONG, {"flags": ("teacher:words",)}),
    }  # fmt: skip
    talks = [
        (n, s, *((HOSTILE if n == 7 else RIGHT, {}) if s == 0 else odd.get(n, (WRONG, {}))))
        for n in range(8)
        for s in range(2)
    ]
    run = make(
        path, examples, talks,
        {"rules": lambda k: 3.0 if k % 2 else 8.0, "strict": lambda k: None if k == 6 else 2.0},
    )  # fmt: skip
    make(
        path / "evals" / "tuned", examples[:4], [(n, 0, RIGHT, {}) for n in range(4)],
        {"rules": lambda k: 9.0}, "local:checkpoints/tuned", parent=run.manifest.id,
        checkpoint="checkpoints/tuned",
    )  # fmt: skip
    return run


def hostile(path: Path) -> Run:
    """Two conversations about a question in which every name is `EVIL`."""
    example = question(0, EVIL, example_id=EVIL, group_id=EVIL, inputs={EVIL: EVIL},
                       choices=(Choice(label=EVIL, text=EVIL),), answer=EVIL,
                       hidden={EVIL: EVIL})  # fmt: skip
    talks = [
        (0, k, EVIL, {"conversation_id": f"{k}", "key": f"{k}{EVIL}", "flags": (EVIL,)})
        for k in range(2)
    ]
    return make(path, [example], talks, {EVIL: lambda k: 8.0}, f"local:{EVIL}")


def many(path: Path, count: int) -> Run:
    """A run of `count` conversations of some 200 words, each judged once; written fast."""
    examples = [
        question(n, f"Question {n} about metals, salts and acids?") for n in range(count // 4)
    ]
    run = make(path, examples, [(0, 0, RIGHT, {})], {"rules": lambda k: 8.0})
    owner = orjson.loads(run.conversations_file.read_bytes())
    said = orjson.loads(run.verdicts_file.read_bytes())
    filler = "the metal dissolves slowly while bubbles rise and heat is given off to the acid " * 4
    owner["turns"][1]["content"] = filler
    with run.conversations_file.open("wb") as talks, run.verdicts_file.open("wb") as verdicts:
        for k in range(count):
            n, s = divmod(k, 4)
            name = f"c{k:08d}"
            owner |= {
                "key": f"q{n}#{s}",
                "conversation_id": name,
                "example_id": f"q{n}",
                "sample": s,
            }
            owner["temperature"] = (0.3, 0.5, 0.7, 1.0)[s]
            owner["turns"][3]["content"] = (
                f"<thinking>{filler} unit {k}</thinking> The answer is {'AB'[k % 3 == 0]}."
            )
            talks.write(orjson.dumps(owner) + b"\n")
            said |= {"conversation_id": name, "reward": k % 101 / 100}
            verdicts.write(orjson.dumps(said) + b"\n")
    return run


QUESTIONS = [question(n) for n in range(6)]


def said(run: Run, number: int, words: str | None, **more: Any) -> None:
    """Append a conversation."""
    append(run.conversations_file, [talk(run, QUESTIONS[number], 0, words, **more)])


def judged(run: Run, number: int, judge: str, score: float) -> None:
    """Append a verdict."""
    owner = talk(run, QUESTIONS[number], 0, RIGHT)
    append(run.verdicts_file, [verdict(owner, judge, "of-rules", score)])
