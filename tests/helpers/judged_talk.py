"""One short conversation that judges are asked about."""

from __future__ import annotations

from convbench.schema import (
    Choice,
    Conversation,
    Example,
    ProtocolSpec,
    Turn,
)

PROTOCOL = ProtocolSpec.model_validate(
    {
        "name": "p",
        "title": "t",
        "speakers": {"assistant": {"policy": True}, "teacher": {}},
        "steps": [
            {"id": "q", "speaker": "teacher", "say": "?"},
            {"id": "a", "speaker": "assistant"},
        ],
    }
)
EXAMPLE = Example(
    example_id="e", task="t", split="test", group_id="g", question="Which stone sinks?",
    choices=(Choice(label="A", text="pumice"), Choice(label="B", text="granite")), answer="B",
    hidden={"secret": "x"},
)  # fmt: skip
LABELS = [
    "Accuracy", "Reasoning ability", "Comprehensiveness", "Pedagogical value",
    "Confidence calibration", "Overall",
]  # fmt: skip
GOOD = "\n".join(f"{label}: 8" for label in LABELS)


def conversation(*said, failure=None):
    turns = []
    for text in said or ("<thinking>B: granite is heavy, yes.</thinking> The answer is B.",):
        turns += [Turn(speaker="teacher", step="q", content="Well?", instruction="be brief")]
        turns += [Turn(speaker="assistant", step="a", content=text)]
    return Conversation(
        key="e#0", conversation_id="c0", example_id="e", turns=tuple(turns), failure=failure,
        systems={"assistant": "SYSTEM PROMPT"}, stop=None if failure else "complete",
    )  # fmt: skip
