"""Judge `answer`: one score by rule from the final answer alone, for small policies.

A right answer scores 10, a wrong one that can be parsed 2, one that cannot be parsed 0. So a policy
that does not keep to the answer's form learns the form first, which judge `rules` would not teach
it: there no answer costs less than a wrong one. It ignores the argument; use it where only the
answer counts.
"""

from __future__ import annotations

from convbench.answers.grade import grade_conversation
from convbench.judges.rules import gold_letter
from convbench.schema import Conversation, Example, ProtocolSpec

VERSION = 2
"""Raised whenever a score may move; part of the judge's fingerprint."""
NEEDS_GOLD_LETTER = True
"""Only questions whose gold answer is the letter of an option can be scored."""
RIGHT, WRONG, UNREAD = 10.0, 2.0, 0.0


def score(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> dict[str, float]:
    """Return one score, `overall`: 10 for the right answer, 2 for a wrong one, 0 if none can be
    read.

    Raise DataError for a question whose gold answer is not the letter of an option.
    """
    gold_letter("answer", example)
    graded = grade_conversation(protocol, conversation, example)
    if graded.answer is None:
        return {"overall": UNREAD}
    return {"overall": RIGHT if graded.correct else WRONG}
