"""Credit of single turns: how much a policy turn was worth, said by a critic or by branches."""

from __future__ import annotations

from pydantic import Field

from convbench.schema.noun import ConversationId, Count, Noun


class TurnCredit(Noun):
    """The advantage of one policy turn: how much better it was than what the policy says there
    on the average."""

    conversation_id: ConversationId
    """Whose turn it is."""
    turn_index: Count
    """Index of the turn among all turns of the conversation, from 0."""
    source: str = Field(min_length=1, max_length=200)
    """Who says so: `critic:NAME` of a checkpoint, `critic-raw:NAME`, `branches:JUDGE`."""
    advantage: float
    """In log-probability a token for a critic (Zhou et al. 2025, equation 3, with mean 0 under the
    base), in units of the reward for branches."""
