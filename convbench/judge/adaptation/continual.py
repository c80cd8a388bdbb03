"""Passages learnt one after the other, merging after each: what is forgotten on the way.

Zweiger et al. 2025 (SEAL), continual self-edits: 8 sequences of 8 passages.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from convbench.errors import DataError
from convbench.judge.adaptation.clock import Clock
from convbench.judge.adaptation.learner import Grade, Learner, Question, by_part, by_rule
from convbench.judge.adaptation.settings import Inner


@dataclass(frozen=True)
class Lesson:
    """One passage: the texts that teach it and the questions that ask about it."""

    name: str
    texts: tuple[str, ...]
    questions: tuple[Question, ...]
    write: Callable[[Learner], tuple[str, ...]] | None = None
    """From the policy as merged so far to the texts of an edit that it writes now, in place of
    `texts`; none where it writes nothing to train on."""


@dataclass(frozen=True)
class Forgetting:
    """One sequence. `after[i][j]` is the accuracy on passage j after edit i, for j <= i;
    `before[j]` the accuracy on it just before its own edit."""

    names: tuple[str, ...]
    before: tuple[float, ...]
    after: tuple[tuple[float, ...], ...]
    skipped: tuple[tuple[str, str], ...] = ()
    """(passage, reason) of edits that did not train; the policy stayed as it was."""
    base: tuple[float, ...] = ()
    """Accuracy of the policy on each passage before the first edit."""


def continual(
    learner: Learner, lessons: Sequence[Lesson], inner: Inner, grade: Grade | None = None
) -> Forgetting:
    """Learn the lessons in order on a copy of the policy, with the first seed alone."""
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
    """Return the accuracy on each lesson; all questions are asked together."""
    parts = [lesson.questions for lesson in lessons]
    replies = pupil.ask([question for part in parts for question in part], inner, Clock())[0]
    return tuple(by_part(parts, replies, grade))


def averaged(sequences: Sequence[Forgetting]) -> list[list[float]]:
    """Return the mean matrix [edits][passages in order of their edit] of equal sequences."""
    size = min(len(one.after) for one in sequences)
    return [
        [fmean(one.after[i][j] for one in sequences) for j in range(i + 1)] for i in range(size)
    ]


def kept(matrix: Sequence[Sequence[float]]) -> float:
    """Return the mean accuracy on all earlier passages after the last edit."""
    return fmean(matrix[-1][:-1]) if len(matrix) > 1 else matrix[-1][0]
