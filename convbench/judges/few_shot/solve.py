"""Try one edit: make rows by its tools, train a fresh adapter, ask the tests in all views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from convbench.judges.adaptation.clock import PassClock
from convbench.judges.adaptation.learner import Learner
from convbench.judges.few_shot.settings import FewShotSettings
from convbench.judges.few_shot.views import KINDS, View, make_views, vote_attempts
from convbench.tasks.arc_agi.edit import SelfEdit, Strategy, edit_rows
from convbench.tasks.arc_agi.grids import (
    Grid,
    Pair,
    Puzzle,
    format_answer,
    puzzle_prompt,
    read_reply,
)


@dataclass(frozen=True)
class TokenRow:
    """One training row; tokens from index `start` on have a loss."""

    ids: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class RowWriter:
    """Turns puzzles into tokens, with one tokenizer's chat template."""

    tokenizer: Any
    settings: FewShotSettings

    def prompt_ids(self, puzzle: Puzzle) -> list[int]:
        """Return the token ids of the prompt that asks for the test output."""
        message = puzzle_prompt(puzzle, self.settings.grids, self.settings.sentence)
        ids: list[int] = self.tokenizer.apply_chat_template(
            message, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return list(ids)

    def token_row(self, puzzle: Puzzle, strategy: Strategy) -> TokenRow:
        """Return the training row of a puzzle: the token ids of the prompt, of the answer and the
        end token, and the index of the first token with a loss.

        That is 1 if the strategy trains on all tokens, else the answer's first. The answer is
        tokenised separately, after the exact prompt of generation, so that this holds with any
        template.
        """
        head = self.prompt_ids(puzzle)
        text = format_answer(puzzle.test.output, self.settings.grids)
        tail = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        end = self.tokenizer.eos_token_id
        ids = (*head, *tail, *([] if end is None else [end]))
        return TokenRow(ids, 1 if strategy == "train_using_all_tokens" else len(head))

    def is_short_enough(self, puzzle: Puzzle) -> bool:
        """Return whether the row of a puzzle has fewer tokens than `max_length`."""
        return len(self.token_row(puzzle, "train_using_all_tokens").ids) < self.settings.max_length


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

    def is_right(self, outputs: Sequence[Grid]) -> bool:
        """Return whether every test's output is among its attempts.

        Raise ValueError if there is not one output for each test.
        """
        pairs = zip(self.attempts, outputs, strict=True)
        return all(output in attempts for attempts, output in pairs)


class Solver:
    """Solves tasks by a policy that is adapted to one edit at a time, and unchanged afterwards."""

    def __init__(self, learner: Learner, settings: FewShotSettings) -> None:
        self.learner, self.settings = learner, settings
        self.writer = RowWriter(learner.tokenizer, settings)

    def rows_of(self, problem: Problem, edit: SelfEdit) -> list[Puzzle]:
        """Return the puzzles that an edit trains on, made from the demonstrations by its tools;
        empty if all are too long.

        They are at most `max_rows`, sampled by the seed, and each has fewer than `max_length`
        tokens.
        """
        chosen = self.settings
        return edit_rows(
            problem.shown,
            edit.groups,
            chosen.seed,
            most=chosen.max_rows,
            fits=self.writer.is_short_enough,
        )

    def try_edit(self, problem: Problem, edit: SelfEdit | None, before: Trial | None) -> Trial:
        """Return the trial of an edit; without an edit that of the unadapted policy."""
        return (
            self.try_unadapted(problem) if edit is None else self.try_adapted(problem, edit, before)
        )

    def try_unadapted(self, problem: Problem) -> Trial:
        """Return the trial of the unadapted policy: in-context learning with the same views and
        vote."""
        return self._ask(problem, PassClock())

    def try_adapted(self, problem: Problem, edit: SelfEdit, before: Trial | None = None) -> Trial:
        """Return the trial after training on an edit; that of the unadapted policy, with a reason,
        if the edit is refused or training fails. `before` is the unadapted trial, if known."""
        from convbench.judges.adaptation.fit import TrainingDiverged, fit_adapters
        from convbench.judges.adaptation.lora import MultiSeedLora

        clock, chosen = PassClock(), self.settings
        puzzles = self.rows_of(problem, edit)
        if not puzzles:
            return self._refused_trial(
                problem, before, clock, f"no row has less than {chosen.max_length} tokens"
            )
        if edit.count_steps(len(puzzles)) > chosen.max_steps:
            steps = edit.count_steps(len(puzzles))
            request = f"{edit.epochs} epochs of {len(puzzles)} rows are {steps} steps"
            reason = f"{request}; the limit is {chosen.max_steps}"
            return self._refused_trial(problem, before, clock, reason)
        token_rows = [self.writer.token_row(puzzle, edit.strategy) for puzzle in puzzles]
        inner = chosen.inner_settings(edit.learning_rate, edit.epochs)
        # With the same seed every edit's adapter has the same start: the same A, and B = 0.
        lora = MultiSeedLora(self.learner.model, inner, [chosen.seed])
        ids, starts = [row.ids for row in token_rows], [row.start for row in token_rows]
        try:
            steps = fit_adapters(self.learner.model, lora, ids, inner, clock, starts)
        except TrainingDiverged as error:
            return self._refused_trial(problem, before, clock, str(error))
        with lora.apply_to_model():
            return self._ask(problem, clock, rows=len(puzzles), steps=steps)

    def _refused_trial(
        self, problem: Problem, before: Trial | None, clock: PassClock, reason: str
    ) -> Trial:
        """Return the unadapted trial with this reason."""
        trial = self.try_unadapted(problem) if before is None else before
        return replace(trial, reason=reason, seconds=round(clock.total, 3))

    def _ask(self, problem: Problem, clock: PassClock, **more: Any) -> Trial:
        """Ask every test in all views and return the trial with the voted attempts."""
        attempts, count, unread = [], 0, 0
        for test in problem.tests:
            sides = make_views(problem.shown, test, self.settings.seed)
            answers: dict[str, list[Grid]] = {kind: [] for kind in KINDS}
            for side, answer in zip(sides, self._view_answers(sides, clock), strict=True):
                count += 1
                if answer is None:
                    unread += 1
                else:
                    answers[side.kind].append(side.turn_back(answer))
            attempts.append(vote_attempts(answers))
        return Trial(
            tuple(attempts), asked=count, unread=unread, seconds=round(clock.total, 3), **more
        )

    def _view_answers(self, sides: Sequence[View], clock: PassClock) -> list[Grid | None]:
        """Return the answer to each view, None if it has no grid; equal prompts are asked once."""
        from convbench.judges.adaptation.answer import greedy_replies

        chosen, learner = self.settings, self.learner
        different = list(dict.fromkeys(side.puzzle for side in sides))
        prompts = [self.writer.prompt_ids(puzzle) for puzzle in different]
        by_puzzle: dict[Puzzle, Grid | None] = {}
        for start in range(0, len(prompts), chosen.ask_at_once):
            part = slice(start, start + chosen.ask_at_once)
            (drawn,) = greedy_replies(
                learner.model, prompts[part], learner.ends, chosen.max_tokens, clock
            )
            for puzzle, tokens in zip(different[part], drawn, strict=True):
                text = learner.tokenizer.decode(tokens, skip_special_tokens=True)
                by_puzzle[puzzle] = read_reply(text, chosen.grids)
        return [by_puzzle[side.puzzle] for side in sides]
