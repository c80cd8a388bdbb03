"""What a judge said of two conversations about the same question."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from convbench.schema.conversation import Failure
from convbench.schema.noun import ConversationId, Count, Dollars, Label, Noun


class Comparison(Noun):
    """What one judge said of two conversations in one order. The other order is another one."""

    first: ConversationId
    """conversation_id of the one that was shown first."""
    second: ConversationId
    """conversation_id of the one that was shown second."""
    judge: Label
    """Name of the judge as it was asked for."""
    fingerprint: str
    """Fingerprint of the judge's spec and model."""
    group_id: str
    """The independent unit that both belong to."""
    preferred: float | None = Field(default=None, ge=0, le=1)
    """How far the one shown first is preferred: 1 wholly, 0.5 a tie, 0 the other; null where the
    judge said nothing that could be read."""
    scores: dict[str, float] = Field(default_factory=dict)
    """Score by metric, as the judge gave it."""
    justifications: dict[str, str] = Field(default_factory=dict)
    """The judge's words by metric."""
    until_decided: bool = Field(default=False, exclude_if=lambda value: not value)
    """Whether it was asked under a rule that stops once the winner is sure, so that intervals must
    hold at every time."""
    reply: str | None = None
    """The raw reply, kept where it could not be read."""
    failure: Failure | None = None
    """Set where there is no preference."""
    attempts: Count = 1
    """Replies asked for."""
    details: dict[str, Any] = Field(default_factory=dict)
    """More that was found."""
    prompt_tokens: Count | None = None
    """Tokens of all prompts."""
    completion_tokens: Count | None = None
    """Tokens of all replies."""
    cost_usd: Dollars | None = None
    """Dollars; null where unknown."""
    ended: str = ""
    """UTC time, ISO 8601."""
