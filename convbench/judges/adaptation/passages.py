"""Train one policy on several passages: at once (continued pre-training), or one after the other,
merging the adapter after each.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from convbench.engine.session import Session
from convbench.errors import DataError, RunError
from convbench.judges.adaptation.cache import WorkCache
from convbench.judges.adaptation.clock import PassClock
from convbench.judges.adaptation.learner import (
    Grade,
    Learner,
    Question,
    mean_grade_by_part,
    rule_grade,
)
from convbench.judges.adaptation.runner import AdaptationRunner, inner_settings_of
from convbench.judges.adaptation.settings import InnerSettings, passage_text, training_texts
from convbench.judges.adaptation.verdict import edit_of, with_runner
from convbench.judges.resolve import Judge
from convbench.options.shared import CallOptions
from convbench.schema import Example, Message, fingerprint
from convbench.store import Run
from convbench.views import messages_before, policy_turns


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
class ForgettingSequence:
    """Accuracies of one sequence of edits. `after[i][j]` is the accuracy on passage j after edit i,
    for j <= i; `before[j]` the accuracy on it just before its own edit."""

    names: tuple[str, ...]
    before: tuple[float, ...]
    after: tuple[tuple[float, ...], ...]
    skipped: tuple[tuple[str, str], ...] = ()
    """(passage, reason) of edits that were not trained, so that the policy did not change."""
    base: tuple[float, ...] = ()
    """Accuracy of the policy on each passage before the first edit."""


def learn_in_sequence(
    learner: Learner, lessons: Sequence[Lesson], inner: InnerSettings, grade: Grade | None = None
) -> ForgettingSequence:
    """Train a copy of the policy on the lessons in order, with the first seed alone, merging each,
    and return the accuracies; the learner is unchanged.

    A lesson whose training fails is `skipped`, and its accuracies are still measured.
    """
    from convbench.judges.adaptation.fit import TrainingDiverged

    grade = grade or rule_grade(inner)
    inner = inner.model_copy(update={"seeds": 1})
    pupil = Learner(copy.deepcopy(learner.model), learner.tokenizer, learner.ends)
    before, after, skipped = [], [], []
    base = accuracies_on(pupil, lessons, inner, grade)
    for number, lesson in enumerate(lessons):
        before.append(pupil.unadapted_accuracy(lesson.questions, inner, grade))
        try:
            texts = lesson.write(pupil) if lesson.write else lesson.texts
            stack, _ = pupil.train_adapters(texts, inner, PassClock())
            stack.merge_into(pupil.model)
        except (TrainingDiverged, DataError) as error:
            skipped.append((lesson.name, str(error)))
        after.append(accuracies_on(pupil, lessons[: number + 1], inner, grade))
    names = tuple(lesson.name for lesson in lessons)
    return ForgettingSequence(names, tuple(before), tuple(after), tuple(skipped), base)


def accuracies_on(
    pupil: Learner, lessons: Sequence[Lesson], inner: InnerSettings, grade: Grade
) -> tuple[float, ...]:
    """Return the accuracy on each lesson, in order, of the policy in its present state; all
    questions are asked in common batches."""
    parts = [lesson.questions for lesson in lessons]
    replies = pupil.ask_questions(
        [question for part in parts for question in part], inner, PassClock()
    )[0]
    return tuple(mean_grade_by_part(parts, replies, grade))


def mean_matrix(sequences: Sequence[ForgettingSequence]) -> list[list[float]]:
    """Return the mean of `after` over sequences: a list for each edit i, of the accuracies on
    passages 0 to i in order of their edits.

    It has as many edits as the shortest sequence. Raise ValueError without sequences.
    """
    size = min(len(sequence.after) for sequence in sequences)
    return [
        [fmean(sequence.after[i][j] for sequence in sequences) for j in range(i + 1)]
        for i in range(size)
    ]


UNLIMITED = {"max_steps": 10**9, "max_seconds": 1e9}
"""Replaces the limits of `inner`, which are meant for a single self-edit."""


@dataclass(frozen=True)
class Passage:
    """A passage with its self-edits."""

    example: Example
    edits: tuple[str, ...]
    prompt_messages: tuple[Message, ...] = ()
    """The messages to which the policy replied with its first edit."""


def split_passages(run: Run, split: str = "test", edits: int = 1) -> list[Passage]:
    """Return a split's passages with a self-edit, in the order of the run's examples, each with its
    first `edits` self-edits by sample number.

    Failed conversations are left out. Raise RunError if there is none.
    """
    edits_by_example: dict[str, list[tuple[int, str]]] = {}
    prompts: dict[str, tuple[Message, ...]] = {}
    protocol = run.manifest.protocol
    for conversation in run.conversations():
        if conversation.failure is None:
            edit = edit_of(run.manifest.protocol, conversation)
            edits_by_example.setdefault(conversation.example_id, []).append(
                (conversation.sample, edit)
            )
            if conversation.example_id not in prompts:
                turn = policy_turns(protocol, conversation)[-1]
                seen = messages_before(protocol, conversation, protocol.policy, turn)
                prompts[conversation.example_id] = tuple(seen)
    listed = [
        Passage(
            example,
            tuple(edit for _, edit in sorted(edits_by_example[name])[:edits]),
            prompts[name],
        )
        for name, example in run.examples.items()
        if example.split == split and name in edits_by_example
    ]
    if not listed:
        raise RunError(f"{run.path}: found no self-edit on split {split}; build it first")
    return listed


def passage_texts(runner: AdaptationRunner, passage: Passage, *, alone: bool = False) -> list[str]:
    """Return a passage's training texts: those of its edits and itself, or with `alone` only
    itself.

    Each text is there once, but with `texts: whole` the passage follows every edit. An edit without
    a line to train on adds nothing.
    """
    inner = runner.settings.inner
    title, text = (str(passage.example.inputs.get(name, "")) for name in ("title", "passage"))
    texts: list[str] = []
    for edit in passage.edits if not alone else ():
        try:
            texts += training_texts(edit, title, text, inner)
        except DataError:
            continue
    if inner.texts == "whole" and texts:
        return texts
    return list(dict.fromkeys([*texts, passage_text(title, text, inner)]))


def pretraining_accuracies(
    run: Run,
    judge: Judge,
    calls: CallOptions,
    session: Session,
    *,
    edits: int = 5,
    alone: bool = False,
    split: str = "test",
) -> list[tuple[str, float]]:
    """Return (passage, mean accuracy over seeds) after one training on all passages of a split
    (continued pre-training), with `edits` self-edits of each, or with `alone` on the passages only.

    The passage is its group id. If that training fails these are the unadapted policy's accuracies,
    as for a single edit. The outcome is cached in the run. Raise RunError for a split without a
    self-edit.
    """

    def train_on_all(runner: AdaptationRunner) -> list[tuple[str, float]]:
        chosen = split_passages(run, split, edits)
        texts = [text for passage in chosen for text in passage_texts(runner, passage, alone=alone)]
        questions = [runner.passage_questions(passage.example) for passage in chosen]
        outcome = runner.cached_or_adapted(texts, [q for part in questions for q in part])
        if outcome.reason is not None:
            return [
                (passage.example.group_id, runner.unadapted_accuracy(passage.example))
                for passage in chosen
            ]
        by_seed = [
            mean_grade_by_part(questions, replies, runner.grade_function())
            for replies in outcome.replies
        ]
        names = [passage.example.group_id for passage in chosen]
        return [
            (name, fmean(by)) for name, by in zip(names, zip(*by_seed, strict=True), strict=True)
        ]

    inner = inner_settings_of(judge, "pretraining", **UNLIMITED)
    return with_runner(run, judge, calls, session, train_on_all, inner=inner)


def measure_forgetting(
    run: Run,
    judge: Judge,
    calls: CallOptions,
    session: Session,
    *,
    sequences: int = 8,
    length: int = 8,
    alone: bool = False,
    split: str = "test",
) -> list[ForgettingSequence]:
    """Return the accuracies of `sequences` sequences of `length` passages each, drawn by the run's
    seed.

    Each edit is written by the policy as merged so far, unless the judge's `rewrite` is false or
    `alone` trains on the passages only. Finished sequences are cached in the run's
    `sequences.jsonl`. Raise RunError for too few passages.
    """

    def run_sequences(runner: AdaptationRunner) -> list[ForgettingSequence]:
        chosen = split_passages(run, split)
        if len(chosen) < length:
            raise RunError(
                f"{run.path}: found {len(chosen)} passages of split {split} with a self-edit; "
                f"expected {length}; shorter sequences: --set args.length={len(chosen)}"
            )
        draws = [random.Random(f"{run.manifest.seed}/{i}") for i in range(sequences)]
        with WorkCache(run.path / "sequences.jsonl", ForgettingSequence) as cache:
            return [
                _run_sequence(runner, cache, draw.sample(chosen, length), alone, number)
                for number, draw in enumerate(draws)
            ]

    return with_runner(
        run, judge, calls, session, run_sequences, inner=inner_settings_of(judge, "continual")
    )


def _run_sequence(
    runner: AdaptationRunner,
    cache: WorkCache[ForgettingSequence],
    drawn: Sequence[Passage],
    alone: bool,
    number: int,
) -> ForgettingSequence:
    lessons = [_make_lesson(runner, part, alone, number) for part in drawn]
    how = _sampling_limits(runner) if any(part.write for part in lessons) else ()
    name = fingerprint(
        *(runner.adaptation_key(part.texts, part.questions) for part in lessons), *how
    )
    done = cache.get(name)
    if done is None:
        done = learn_in_sequence(
            runner.own_learner(), lessons, runner.settings.inner, runner.grade_function()
        )
        cache.put(name, done)
    return done


def _make_lesson(runner: AdaptationRunner, passage: Passage, alone: bool, number: int) -> Lesson:
    questions = runner.passage_questions(passage.example)
    texts = passage_texts(runner, passage, alone=alone)
    name = passage.example.example_id

    def write_texts(pupil: Learner) -> tuple[str, ...]:
        temperature, most = _sampling_limits(runner)
        seed = int(fingerprint(name, number, runner.run.manifest.seed)[:12], 16)
        reply = pupil.draw_reply(passage.prompt_messages, int(most), temperature, seed)
        title, text = (str(passage.example.inputs.get(key, "")) for key in ("title", "passage"))
        return tuple(training_texts(reply, title, text, runner.settings.inner))

    writes = runner.settings.rewrite and not alone
    return Lesson(name, tuple(texts), tuple(questions), write_texts if writes else None)


def _sampling_limits(runner: AdaptationRunner) -> tuple[float, int]:
    """Return the temperature and the longest edit in tokens of the run's policy."""
    manifest = runner.run.manifest
    policy = manifest.protocol.policy
    speaker, member = manifest.protocol.speakers[policy], manifest.cast[policy]
    heat = speaker.temperature if speaker.temperature is not None else manifest.temperatures[0]
    return heat or 1.0, speaker.max_tokens or member.sampling.max_tokens
