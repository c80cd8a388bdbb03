"""What a conversation answered, read from its text: the one place where answers are parsed.

Uses the schema alone.
"""

from convbench.answers.final import after_marker, final_answer
from convbench.answers.grade import Graded, grade, grade_texts
from convbench.answers.tags import (
    TAG,
    closes,
    first_block,
    left_open,
    may_hold_tags,
    segments,
    thinking,
    visible,
)
from convbench.answers.wording import TAKEN_BACK

__all__ = [
    "TAG",
    "TAKEN_BACK",
    "Graded",
    "after_marker",
    "closes",
    "final_answer",
    "first_block",
    "grade",
    "grade_texts",
    "left_open",
    "may_hold_tags",
    "segments",
    "thinking",
    "visible",
]
