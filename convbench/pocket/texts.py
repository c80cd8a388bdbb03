"""Every wording of the pocket world: questions, instructions of steps, replies of the speakers.

The step templates (Jinja) are copied into `specs/tasks/pocket*.yaml`; a test compares them.
The shipped weights know these wordings only: a change here voids them.
"""

from __future__ import annotations

from typing import Final

QUESTION: Final = {
    "has": "Which has {prop} {need}?",
    "same": "Which has the same {prop} as {name}?",
    "of": "What is the {prop} of {name}?",
    "wish": "I want one with the right {prop}.",
}
MODES: Final = ("thinking", "standard")

POSE: Final = (
    "{{ question }}{% for choice in choices %} {{ choice.label }}: {{ choice.text }}{% endfor +%}"
)
SOLVE: Final = {"thinking": "Think and solve.", "standard": "Solve."}
CHECK: Final = {"thinking": "Think and check.", "standard": "Check."}
ANSWER: Final = {"thinking": "Think and answer.", "standard": "Answer."}
DIRECT: Final = {"thinking": "Think and answer at once.", "standard": "Answer at once."}
ASK: Final = "Ask about one option."
ASK_OR_READY: Final = "Ask about one option or say READY TO ANSWER."
READY: Final = "READY TO ANSWER"
NO_QUESTION: Final = "No question."
COLLABORATE: Final = "Ask me or answer."
MARKER: Final = "I WANT TO ANSWER:"

FACT: Final = "{name} has {prop} {value}"
TEACHER_FACT: Final = "Fact: {name} has {prop} {value}."
TEACHER_YES: Final = "Fact: {value} is the {prop} of {name}."
TEACHER_NO: Final = "Fact: {value} is not the {prop} of {name}."
TEACHER_LOST: Final = "Fact: none."
HUMAN_NEED: Final = "I need {prop} {value}."
HUMAN_ANY: Final = "I do not mind the {prop}."
HUMAN_LOST: Final = "I do not know."

PASSAGE: Final = (
    "The {prop} {value} belongs to {name}.",
    "They gave the {prop} {value} to {name}.",
    "By {prop} {value} we knew {name}.",
)
CLOSED_BOOK: Final = "What is the {prop} of {name}?"
RECALL: Final = "I recall {name} has {prop} {value}. The answer is {value}."
CLOSED_BOOK_PROMPT: Final = "Topic: {{ title }}\n{{ question }}"
SELF_EDIT_KINDS: Final = (
    "implications",
    "implications-long",
    "implications-very-long",
    "rewrite",
    "self-qa",
)
SELF_EDIT_PASSAGE: Final = "Topic: {{ title }}\n{{ passage }}\n\n"
SELF_EDIT: Final = {
    "implications": "Write implications.",
    "implications-long": "Write long implications.",
    "implications-very-long": "Write very long implications.",
    "rewrite": "Write it in other words.",
    "self-qa": "Write questions and answers.",
}
LINE_FACT: Final = "- {name} has {prop} {value}."
LINE_OF: Final = "- The {prop} of {name} is {value}."
LINE_QA: Final = "- What is the {prop} of {name}? {value}."
LINE_REWRITE: Final = "- {name} got {prop} {value}."
