"""Put a question with its options, through the templates that a protocol uses."""

from __future__ import annotations

from convbench.pocket import texts
from convbench.pocket.questions import Question
from convbench.pocket.words import LETTERS
from convbench.prompts import render


def pose(question: Question) -> str:
    """The question and its options, as the other speaker puts them."""
    choices = [
        {"label": letter, "text": option}
        for letter, option in zip(LETTERS, question.options, strict=True)
    ]
    return render(texts.POSE, {"question": question.text, "choices": choices})
