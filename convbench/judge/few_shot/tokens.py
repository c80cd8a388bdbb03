"""Training rows as tokens: the prompt as the model is asked, then the answer and the end token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from convbench.judge.few_shot.settings import FewShotSettings
from convbench.tasks.arc_agi.edit import Strategy
from convbench.tasks.arc_agi.grids import Puzzle, format_answer, puzzle_prompt


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
        """Return the training row of a puzzle. Its answer is tokenised separately, after the exact
        prompt of generation, so that the loss begins at its first token with any template."""
        head = self.prompt_ids(puzzle)
        text = format_answer(puzzle.test.output, self.settings.grids)
        tail = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        end = self.tokenizer.eos_token_id
        ids = (*head, *tail, *([] if end is None else [end]))
        return TokenRow(ids, 1 if strategy == "train_using_all_tokens" else len(head))

    def is_short_enough(self, puzzle: Puzzle) -> bool:
        """Return whether the row of a puzzle has fewer tokens than `max_length`."""
        return len(self.token_row(puzzle, "train_using_all_tokens").ids) < self.settings.max_length
