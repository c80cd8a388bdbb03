"""Judge `answer`: one score by rule from the final answer alone, for small policies.

Right is 10; a wrong answer that can be read is 2, one that cannot be read 0. So a policy that does
not keep to the answer's form learns the form first, which judge `rules` would not teach it: there
silence costs less than an error. It sees no argument; use it where the answer is all that counts.
"""

from __future__ import annotations

from convbench.answers.grade import grade
from convbench.errors import DataError
from convbench.schema import Conversation, Example, ProtocolSpec

VERSION = 2
"""Raised whenever a score may move; part of the judge's fingerprint."""
RIGHT, WRONG, UNREAD = 10.0, 2.0, 0.0


def score(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> dict[str, float]:
    """Return `overall`, 0 to 10.

    Raises DataError for a question without options and gold letter.
    """
    if example.answer not in example.letters:
        raise DataError(
            f"judge answer: example {example.example_id} has answer {example.answer!r} and options "
            f"{list(example.letters)}; expected the letter of an option"
        )
    graded = grade(protocol, conversation, example)
    if graded.answer is None:
        return {"overall": UNREAD}
    return {"overall": RIGHT if graded.correct else WRONG}
