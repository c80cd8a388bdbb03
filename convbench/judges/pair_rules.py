"""Judge `pairwise-rules`: prefers the conversation that judge `rules` scores higher.

A heuristic for trying things out without a model. It scores each conversation separately, so the
order in which they are shown cannot matter.
"""

from __future__ import annotations

from convbench.judges.rules import score
from convbench.schema import Conversation, Example, ProtocolSpec

VERSION = 2
"""Raised whenever a preference may move; part of the judge's fingerprint."""
NEEDS_GOLD_LETTER = True
"""Only questions whose gold answer is the letter of an option can be compared."""
NEAR = 0.25
"""Difference of overall scores (0 to 10) below which neither is better."""


def prefer(
    first: Conversation, second: Conversation, example: Example, protocol: ProtocolSpec
) -> dict[str, float]:
    """Return one score, `preference`: 1 if judge `rules` scores the first higher, 2 if the second,
    1.5 if their `overall` differs by less than 0.25.

    Raise DataError for a question whose gold answer is not the letter of an option.
    """
    first_score, second_score = (
        score(talk, example, protocol)["overall"] for talk in (first, second)
    )
    if abs(first_score - second_score) < NEAR:
        return {"preference": 1.5}
    return {"preference": 1.0 if first_score > second_score else 2.0}
