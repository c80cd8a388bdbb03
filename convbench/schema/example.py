"""Example: one question with what may be shown and what may not."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from convbench.schema.noun import FrozenModel

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


class Choice(FrozenModel):
    """One option of a multiple-choice question."""

    label: str
    """Its letter, A-E."""
    text: str
    """Its text."""


class Example(FrozenModel):
    """One question. Its answer and hidden fields never enter a prompt of a speaker that may not see
    them."""

    example_id: str
    """Key, unique within the task."""
    task: str
    """Name of the task."""
    split: Split
    """Where it belongs; all examples of a group are in one split."""
    group_id: str
    """The independent unit: question, problem, dialogue, passage."""
    question: str
    """The question's text."""
    choices: tuple[Choice, ...] = ()
    """Options in the order they are shown; empty for a free answer."""
    inputs: dict[str, Any] = Field(default_factory=dict)
    """More fields for templates."""
    answer: str | None = None
    """Gold answer: an option's letter, or text. Part of the reference: hidden."""
    hidden: dict[str, Any] = Field(default_factory=dict)
    """Other hidden fields. Part of the reference."""

    @property
    def letters(self) -> tuple[str, ...]:
        """Return the options' letters."""
        return tuple(choice.label for choice in self.choices)

    @property
    def options(self) -> dict[str, str]:
        """Return the options' texts by letter."""
        return {choice.label: choice.text for choice in self.choices}
