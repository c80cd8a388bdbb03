"""Train one policy on several passages: at once (continued pre-training), or one after the other,
merging the adapter after each.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from convbench import catalog
from convbench.errors import DataError, RunError
from convbench.judge.adaptation.cache import Cache
from convbench.judge.adaptation.clock import Clock
from convbench.judge.adaptation.learner import Grade, Learner, Question, by_part, by_rule
from convbench.judge.adaptation.runner import Runner, settings_of
from convbench.judge.adaptation.settings import Inner, passage_text, training_texts
from convbench.judge.adaptation.verdict import edit_of, with_runner
from convbench.judge.resolve import Judge
from convbench.options.shared import CallOptions
from convbench.schema import Example, Message, fingerprint
from convbench.store import Run
from convbench.views import messages, policy_turns


@dataclass(frozen=True)
class Lesson:
    """One passage: the texts that teach it and the questions that ask about it."""

    name: str
    texts: tuple[str, ...]
    questions: tuple[Question, ...]
    write: Callable[[Learner], tuple[str, ...]] | None = None
    """Returns the texts of a new edit by the policy as merged so far, which replace `texts`; empty
    if it writes nothing to train on."""


@dataclass(frozen=True)
class Forgetting:
    """Accuracies of one sequence of edits. `after[i][j]` is the accuracy on passage j after edit i,
    for j <= i; `before[j]` the accuracy on it just before its own edit."""

    names: tuple[str, ...]
    before: tuple[float, ...]
    after: tuple[tuple[float, ...], ...]
    skipped: tuple[tuple[str, str], ...] = ()
    """(passage, reason) of edits that were not trained, so that the policy did not change."""
    base: tuple[float, ...] = ()
    """Accuracy of the policy on each passage before the first edit."""


def continual(
    learner: Learner, lessons: Sequence[Lesson], inner: Inner, grade: Grade | None = None
) -> Forgetting:
    """Train a copy of the policy on the lessons in order, with the first seed alone, and return the
    accuracies."""
    from convbench.judge.adaptation.fit import Diverged

    grade = grade or by_rule(inner)
    inner = inner.model_copy(update={"seeds": 1})
    pupil = Learner(copy.deepcopy(learner.model), learner.tokenizer, learner.ends)
    before, after, skipped = [], [], []
    base = accuracies_on(pupil, lessons, inner, grade)
    for number, lesson in enumerate(lessons):
        before.append(pupil.before(lesson.questions, inner, grade))
        try:
            texts = lesson.write(pupil) if lesson.write else lesson.texts
            stack, _ = pupil.train(texts, inner, Clock())
            stack.merge(pupil.model)
        except (Diverged, DataError) as error:
            skipped.append((lesson.name, str(error)))
        after.append(accuracies_on(pupil, lessons[: number + 1], inner, grade))
    names = tuple(lesson.name for lesson in lessons)
    return Forgetting(names, tuple(before), tuple(after), tuple(skipped), base)


def accuracies_on(
    pupil: Learner, lessons: Sequence[Lesson], inner: Inner, grade: Grade
) -> tuple[float, ...]:
    """Return the accuracy on each lesson; all questions are asked in common batches."""
    parts = [lesson.questions for lesson in lessons]
    replies = pupil.ask([question for part in parts for question in part], inner, Clock())[0]
    return tuple(by_part(parts, replies, grade))


def averaged(sequences: Sequence[Forgetting]) -> list[list[float]]:
    """Return the mean of `after` over sequences: [edits][passages in order of their edits]."""
    size = min(len(one.after) for one in sequences)
    return [
        [fmean(one.after[i][j] for one in sequences) for j in range(i + 1)] for i in range(size)
    ]


def kept(matrix: Sequence[Sequence[float]]) -> float:
    """Return the mean accuracy on all earlier passages after the last edit; of one edit its own."""
    return fmean(matrix[-1][:-1]) if len(matrix) > 1 else matrix[-1][0]


UNLIMITED = {"max_steps": 10**9, "max_seconds": 1e9}
"""Replaces the limits of `inner`, which are meant for a single self-edit."""


@dataclass(frozen=True)
class Passage:
    """A passage with its self-edits."""

    example: Example
    edits: tuple[str, ...]
    asked: tuple[Message, ...] = ()
    """The messages to which the policy replied with its first edit."""


def passages(run: Run, split: str = "test", edits: int = 1) -> list[Passage]:
    """Return a split's passages with their first `edits` self-edits; RunError without any."""
    said: dict[str, list[tuple[int, str]]] = {}
    asked: dict[str, tuple[Message, ...]] = {}
    protocol = run.manifest.protocol
    for conversation in run.conversations():
        if conversation.failure is None:
            edit = edit_of(run.manifest.protocol, conversation)
            said.setdefault(conversation.example_id, []).append((conversation.sample, edit))
            if conversation.example_id not in asked:
                turn = policy_turns(protocol, conversation)[-1]
                seen = messages(protocol, conversation, protocol.policy, turn)
                asked[conversation.example_id] = tuple(seen)
    found = [
        Passage(example, tuple(edit for _, edit in sorted(said[name])[:edits]), asked[name])
        for name, example in run.examples.items()
        if example.split == split and name in said
    ]
    if not found:
        raise RunError(f"{run.path}: found no self-edit on split {split}; build it first")
    return found


def texts_of(runner: Runner, passage: Passage, *, alone: bool = False) -> list[str]:
    """Return a passage's training texts: those of its edits and itself, or with `alone` only
    itself.

    Each text is there once, but with `texts: whole` the passage follows every edit. An edit without
    a line to train on adds nothing.
    """
    inner = runner.settings.inner
    title, text = (str(passage.example.inputs.get(name, "")) for name in ("title", "passage"))
    found: list[str] = []
    for edit in passage.edits if not alone else ():
        try:
            found += training_texts(edit, title, text, inner)
        except DataError:
            continue
    if inner.texts == "whole" and found:
        return found
    return list(dict.fromkeys([*found, passage_text(title, text, inner)]))


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
    pre-training), with `edits` self-edits of each, or with `alone` on the passages only.

    If that training diverges these are the unadapted policy's accuracies, as for a single edit.
    """

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
    """Return the inner loop's settings with the judge's changes in this field, and these values."""
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
    """Return the accuracies of sequences of self-edits, with passages drawn by the run's seed.

    Each edit is written by the policy as merged so far, unless the judge's `rewrite` is false.
    Finished sequences are cached in `sequences.jsonl`. Raises RunError for too few passages.
    """

    def work(runner: Runner) -> list[Forgetting]:
        found = passages(run, split)
        if len(found) < length:
            raise RunError(
                f"{run.path}: found {len(found)} passages of split {split} with a self-edit; "
                f"expected {length}; shorter sequences: --set args.length={len(found)}"
            )
        draws = [random.Random(f"{run.manifest.seed}/{i}") for i in range(sequences)]
        with Cache(run.path / "sequences.jsonl", Forgetting) as kept:
            return [
                _sequence(runner, kept, draw.sample(found, length), alone, number)
                for number, draw in enumerate(draws)
            ]

    return with_runner(run, judge, calls, work, inner=_inner(judge, "continual"))


def _sequence(
    runner: Runner, kept: Cache[Forgetting], drawn: Sequence[Passage], alone: bool, number: int
) -> Forgetting:
    lessons = [_lesson(runner, one, alone, number) for one in drawn]
    how = _writing(runner) if any(one.write for one in lessons) else ()
    name = fingerprint(*(runner.key(one.texts, one.questions) for one in lessons), *how)
    done = kept.get(name)
    if done is None:
        done = continual(runner.ready(), lessons, runner.settings.inner, runner.graded())
        kept.put(name, done)
    return done


def _lesson(runner: Runner, passage: Passage, alone: bool, number: int) -> Lesson:
    questions = runner.questions(passage.example)
    texts = texts_of(runner, passage, alone=alone)
    name = passage.example.example_id

    def write(pupil: Learner) -> tuple[str, ...]:
        temperature, most = _writing(runner)
        seed = int(fingerprint(name, number, runner.run.manifest.seed)[:12], 16)
        said = pupil.draw(passage.asked, int(most), temperature, seed)
        title, text = (str(passage.example.inputs.get(key, "")) for key in ("title", "passage"))
        return tuple(training_texts(said, title, text, runner.settings.inner))

    writes = runner.settings.rewrite and not alone
    return Lesson(name, tuple(texts), tuple(questions), write if writes else None)


def _writing(runner: Runner) -> tuple[float, int]:
    """Return the temperature and the longest edit in tokens of the run's policy."""
    manifest = runner.run.manifest
    policy = manifest.protocol.policy
    speaker, member = manifest.protocol.speakers[policy], manifest.cast[policy]
    heat = speaker.temperature if speaker.temperature is not None else manifest.temperatures[0]
    return heat or 1.0, speaker.max_tokens or member.sampling.max_tokens
