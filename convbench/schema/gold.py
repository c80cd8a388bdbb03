"""Gold labels: which conversations people label, drawn with known chances, and their labels."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from convbench.schema.base import ConversationId, Count, FrozenModel, Label, Score, Seed

LONGEST_RATER, LONGEST_NOTE = 80, 10_000
"""Most characters of a rater's name, and of a note or a reason."""


class DrawnConversation(FrozenModel):
    """One conversation of a draw."""

    conversation_id: ConversationId
    """The conversation."""
    chance: Annotated[float, Field(gt=0, le=1)]
    """The probability by which it was drawn."""


class GoldDraw(FrozenModel):
    """One draw of conversations for people to label. Its order is random, so that the first ones
    labelled are a draw themselves."""

    judge: Label
    """The judge whose scores are to be corrected."""
    fingerprint: str
    """Fingerprint of that judge; people score by its rubric."""
    count: Count
    """Units asked for: a question and sample, with every policy that has it."""
    raters: Annotated[int, Field(ge=1, le=20)] = 1
    """People who are to label each conversation."""
    seed: Seed = 0
    """Seed of the draw."""
    pool: Count
    """Units that could be drawn."""
    drawn: tuple[DrawnConversation, ...]
    """The drawn conversations, in random order."""
    made: str = ""
    """UTC time, ISO 8601."""


class GoldLabel(FrozenModel):
    """One person's label of one drawn conversation; the newest of a person counts."""

    conversation_id: ConversationId
    """The conversation."""
    rater: Annotated[str, Field(min_length=1, max_length=LONGEST_RATER)]
    """The person."""
    scores: dict[str, Score] = Field(default_factory=dict)
    """Score by metric; empty if the conversation was skipped."""
    note: Annotated[str, Field(max_length=LONGEST_NOTE)] = ""
    """The person's note."""
    skipped: Annotated[str, Field(min_length=1, max_length=LONGEST_NOTE)] | None = None
    """Why they gave no score; null if they did."""
    blind: bool = True
    """Whether they saw neither policy nor judge: labels from the queue are blind; imported ones say
    so themselves."""
    given: str = ""
    """UTC time, ISO 8601."""
