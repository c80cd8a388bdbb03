"""Rows as tokens: the prompt as the model is asked, then the answer and its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from convbench.judge.few_shot.settings import Settings
from convbench.tasks.arc_agi.edit import Strategy
from convbench.tasks.arc_agi.grids import Puzzle, answer, prompt


@dataclass(frozen=True)
class TokenRow:
    """One training row. From token `start` on there is a loss."""

    ids: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class Writer:
    """Turns puzzles into tokens, with one tokenizer's chat template."""

    tokenizer: Any
    settings: Settings

    def asked(self, puzzle: Puzzle) -> list[int]:
        """Return the prompt that asks for the test output."""
        said = prompt(puzzle, self.settings.grids, self.settings.sentence)
        ids: list[int] = self.tokenizer.apply_chat_template(
            said, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return list(ids)

    def row(self, puzzle: Puzzle, strategy: Strategy) -> TokenRow:
        """Return a row. Its answer is tokened by itself, after the very prompt that an answer is
        drawn for, so that the loss begins at its first token in any template."""
        head = self.asked(puzzle)
        said = answer(puzzle.test.output, self.settings.grids)
        tail = list(self.tokenizer(said, add_special_tokens=False)["input_ids"])
        end = self.tokenizer.eos_token_id
        ids = (*head, *tail, *([] if end is None else [end]))
        return TokenRow(ids, 1 if strategy == "train_using_all_tokens" else len(head))

    def fits(self, puzzle: Puzzle) -> bool:
        """Whether a row is short enough."""
        return len(self.row(puzzle, "train_using_all_tokens").ids) < self.settings.max_length
