"""Several passages into one policy: at once (continued pre-training), or one after the other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from convbench import catalog
from convbench.errors import DataError, RunError
from convbench.judge import Judge
from convbench.judge.adaptation.cache import Cache
from convbench.judge.adaptation.continual import Forgetting, Lesson, continual
from convbench.judge.adaptation.learner import by_part
from convbench.judge.adaptation.runner import Runner, settings_of
from convbench.judge.adaptation.settings import Inner
from convbench.judge.adaptation.texts import training_texts
from convbench.judge.adaptation.verdict import edit_of, with_runner
from convbench.options.shared import CallOptions
from convbench.schema import Example, fingerprint
from convbench.store import Run

UNLIMITED = {"max_steps": 10**9, "max_seconds": 1e9}
"""The limits of `inner` are for one self-edit; here the whole training was asked for."""


@dataclass(frozen=True)
class Passage:
    """A passage with the texts of its self-edits, and the lesson that they make."""

    example: Example
    edits: tuple[str, ...]


def passages(run: Run, split: str = "test", edits: int = 1) -> list[Passage]:
    """Return a split's passages with their first self-edits; RunError where there are none."""
    said: dict[str, list[tuple[int, str]]] = {}
    for conversation in run.conversations():
        if conversation.failure is None:
            edit = edit_of(run.manifest.protocol, conversation)
            said.setdefault(conversation.example_id, []).append((conversation.sample, edit))
    found = [
        Passage(example, tuple(edit for _, edit in sorted(said[name])[:edits]))
        for name, example in run.examples.items()
        if example.split == split and name in said
    ]
    if not found:
        raise RunError(f"{run.path}: found no self-edit on split {split}; build it first")
    return found


def texts_of(runner: Runner, passage: Passage, *, alone: bool = False) -> list[str]:
    """Return a passage's texts: its edits' lines and itself, or (`alone`) itself. An edit without
    a line adds nothing."""
    inner = runner.settings.inner
    title, text = (str(passage.example.inputs.get(name, "")) for name in ("title", "passage"))
    found: dict[str, None] = {}
    for edit in passage.edits if not alone else ():
        try:
            found.update(dict.fromkeys(training_texts(edit, title, text, inner)))
        except DataError:
            continue
    found[text] = None
    return list(found)


def pretrained(
    run: Run,
    judge: Judge,
    calls: CallOptions,
    *,
    edits: int = 5,
    alone: bool = False,
    split: str = "test",
) -> list[tuple[str, float]]:
    """Return (passage, accuracy) after one training on all passages of a split (continued
    pre-training), on `edits` self-edits of each or (`alone`) on the passages only. Where that
    training diverges it is the unadapted policy's accuracy, as for a single edit."""

    def work(runner: Runner) -> list[tuple[str, float]]:
        found = passages(run, split, edits)
        texts = [text for one in found for text in texts_of(runner, one, alone=alone)]
        asked = [runner.questions(one.example) for one in found]
        outcome = runner.kept_or_adapted(texts, [q for part in asked for q in part])
        if outcome.reason is not None:
            return [(one.example.group_id, runner.before(one.example)) for one in found]
        whole = [by_part(asked, replies, runner.graded()) for replies in outcome.replies]
        names = [one.example.group_id for one in found]
        return [(name, fmean(by)) for name, by in zip(names, zip(*whole, strict=True), strict=True)]

    inner = _inner(judge, "pretraining", **UNLIMITED)
    return with_runner(run, judge, calls, work, inner=inner)


def _inner(judge: Judge, field: str, **values: float) -> Inner:
    """Return the inner loop with what the judge sets in this field, and these values."""
    settings = settings_of(judge)
    own = {**settings.inner.model_dump(), **getattr(settings, field), **values}
    return catalog.check(Inner, own, f"judge {judge.name}: args.{field}")


def forgetting(
    run: Run,
    judge: Judge,
    calls: CallOptions,
    *,
    sequences: int = 8,
    length: int = 8,
    alone: bool = False,
    split: str = "test",
) -> list[Forgetting]:
    """Return the sequences of continual self-edits, passages drawn with the run's seed. What is
    finished is kept in `sequences.jsonl`."""

    def work(runner: Runner) -> list[Forgetting]:
        found = passages(run, split)
        if len(found) < length:
            raise RunError(
                f"{run.path}: found {len(found)} passages of split {split} with a self-edit; "
                f"expected {length}; shorter sequences: --set args.length={len(found)}"
            )
        draws = [random.Random(f"{run.manifest.seed}/{i}") for i in range(sequences)]
        with Cache(run.path / "sequences.jsonl", Forgetting) as kept:
            return [_sequence(runner, kept, d.sample(found, length), alone) for d in draws]

    return with_runner(run, judge, calls, work, inner=_inner(judge, "continual"))


def _sequence(
    runner: Runner, kept: Cache[Forgetting], drawn: Sequence[Passage], alone: bool
) -> Forgetting:
    lessons = [_lesson(runner, one, alone) for one in drawn]
    name = fingerprint(*(runner.key(one.texts, one.questions) for one in lessons))
    done = kept.get(name)
    if done is None:
        done = continual(runner.ready(), lessons, runner.settings.inner, runner.graded())
        kept.put(name, done)
    return done


def _lesson(runner: Runner, passage: Passage, alone: bool) -> Lesson:
    questions = runner.questions(passage.example)
    texts = texts_of(runner, passage, alone=alone)
    return Lesson(passage.example.example_id, tuple(texts), tuple(questions))
