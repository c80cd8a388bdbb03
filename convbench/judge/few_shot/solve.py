"""Try one edit: make rows by its tools, train a fresh adapter, ask the tests in all views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from convbench.judge.adaptation.clock import Clock
from convbench.judge.adaptation.learner import Learner
from convbench.judge.few_shot.settings import Settings
from convbench.judge.few_shot.tokens import Writer
from convbench.judge.few_shot.views import KINDS, View, views
from convbench.judge.few_shot.vote import vote
from convbench.tasks.arc_agi.edit import SelfEdit, rows
from convbench.tasks.arc_agi.grids import Grid, Pair, Puzzle, heard


@dataclass(frozen=True)
class Problem:
    """The visible part of a task: its demonstrations and test inputs."""

    shown: tuple[Pair, ...]
    tests: tuple[Grid, ...]


@dataclass(frozen=True)
class Trial:
    """The outcome of one edit."""

    attempts: tuple[tuple[Grid, ...], ...]
    """For every test, the attempts, best first."""
    rows: int = 0
    """Number of rows trained on."""
    steps: int = 0
    """Number of optimiser steps."""
    asked: int = 0
    """Number of views asked, over all tests."""
    unread: int = 0
    """Number of views whose reply had no grid."""
    seconds: float = 0.0
    """Wall time of training and asking."""
    reason: str | None = None
    """Why nothing was trained, so that the attempts are the unadapted policy's; None if trained."""

    def right(self, outputs: Sequence[Grid]) -> bool:
        """Return whether every test's output is among its attempts."""
        pairs = zip(self.attempts, outputs, strict=True)
        return all(output in attempts for attempts, output in pairs)


class Solver:
    """Solves tasks by a policy that is adapted to one edit at a time, and unchanged afterwards."""

    def __init__(self, learner: Learner, settings: Settings) -> None:
        self.learner, self.settings = learner, settings
        self.writer = Writer(learner.tokenizer, settings)

    def rows_of(self, problem: Problem, edit: SelfEdit) -> list[Puzzle]:
        """Return the rows that an edit trains on."""
        chosen = self.settings
        return rows(
            problem.shown, edit.groups, chosen.seed, most=chosen.max_rows, fits=self.writer.fits
        )

    def tried(self, problem: Problem, edit: SelfEdit | None, before: Trial | None) -> Trial:
        """Return the trial of an edit; without an edit that of the unadapted policy."""
        return self.plain(problem) if edit is None else self.adapted(problem, edit, before)

    def plain(self, problem: Problem) -> Trial:
        """Return the trial of the unadapted policy: in-context learning with the same views and
        vote."""
        return self._ask(problem, Clock())

    def adapted(self, problem: Problem, edit: SelfEdit, before: Trial | None = None) -> Trial:
        """Return the trial after training on an edit; that of the unadapted policy, with a reason,
        if the edit is refused or training fails. `before` is the unadapted trial, if known."""
        from convbench.judge.adaptation.fit import Diverged, fit
        from convbench.judge.adaptation.lora import Stack

        clock, chosen = Clock(), self.settings
        made = self.rows_of(problem, edit)
        if not made:
            return self._refused(
                problem, before, clock, f"no row has less than {chosen.max_length} tokens"
            )
        if edit.steps(len(made)) > chosen.max_steps:
            asked = f"{edit.epochs} epochs of {len(made)} rows are {edit.steps(len(made))} steps"
            said = f"{asked}; the limit is {chosen.max_steps}"
            return self._refused(problem, before, clock, said)
        found = [self.writer.row(puzzle, edit.strategy) for puzzle in made]
        inner = chosen.inner(edit.learning_rate, edit.epochs)
        # With the same seed every edit's adapter has the same start: the same A, and B = 0.
        stack = Stack(self.learner.model, inner, [chosen.seed])
        ids, starts = [row.ids for row in found], [row.start for row in found]
        try:
            steps = fit(self.learner.model, stack, ids, inner, clock, starts)
        except Diverged as error:
            return self._refused(problem, before, clock, str(error))
        with stack.worn():
            return self._ask(problem, clock, rows=len(made), steps=steps)

    def _refused(self, problem: Problem, before: Trial | None, clock: Clock, reason: str) -> Trial:
        """Return the unadapted trial with this reason."""
        found = self.plain(problem) if before is None else before
        return replace(found, reason=reason, seconds=round(clock.total, 3))

    def _ask(self, problem: Problem, clock: Clock, **more: Any) -> Trial:
        """Ask every test in all views and return the trial with the voted attempts."""
        attempts, asked, unread = [], 0, 0
        for test in problem.tests:
            sides = views(problem.shown, test, self.settings.seed)
            answers: dict[str, list[Grid]] = {kind: [] for kind in KINDS}
            for side, answer in zip(sides, self._answers(sides, clock), strict=True):
                asked += 1
                if answer is None:
                    unread += 1
                else:
                    answers[side.kind].append(side.back(answer))
            attempts.append(vote(answers))
        return Trial(
            tuple(attempts), asked=asked, unread=unread, seconds=round(clock.total, 3), **more
        )

    def _answers(self, sides: Sequence[View], clock: Clock) -> list[Grid | None]:
        """Return the answer to each view, None if it has no grid; equal prompts are asked once."""
        from convbench.judge.adaptation.answer import greedy

        chosen, learner = self.settings, self.learner
        different = list(dict.fromkeys(side.puzzle for side in sides))
        prompts = [self.writer.asked(puzzle) for puzzle in different]
        found: dict[Puzzle, Grid | None] = {}
        for start in range(0, len(prompts), chosen.ask_at_once):
            part = slice(start, start + chosen.ask_at_once)
            (drawn,) = greedy(learner.model, prompts[part], learner.ends, chosen.max_tokens, clock)
            for puzzle, tokens in zip(different[part], drawn, strict=True):
                said = learner.tokenizer.decode(tokens, skip_special_tokens=True)
                found[puzzle] = heard(said, chosen.grids)
        return [found[side.puzzle] for side in sides]
