"""The task specs say what `texts` says, and nothing of a protocol's own wording is left."""

from __future__ import annotations

import random
from typing import Any

import pytest

from convbench.catalog.load import load_spec
from convbench.pocket import texts
from convbench.pocket.questions import draw_fact_question
from convbench.pocket.world import LETTERS, make_world
from convbench.prompts import render_template
from convbench.schema import Loop, ProtocolSpec, TaskSpec
from tests.lab.pocket.habits import pose_question

POSED = texts.POSE + "\n\n"
REASONING = {
    "initial": {mode: POSED + texts.SOLVE[mode] for mode in texts.MODES},
    "deeper": texts.CHECK,
    "further": texts.CHECK,
    "final": texts.ANSWER,
}
CLARIFYING = {
    "question": texts.POSE,
    "clarify": texts.ASK,
    "respond": "",
    "reason": texts.SOLVE["thinking"],
    "final": texts.ANSWER["thinking"],
    "answer": "",
}
ADAPTIVE = {
    "question": POSED + texts.ASK_OR_READY,
    "clarify": "",
    "respond": "",
    "final": texts.DIRECT["thinking"],
    "answer": "",
}
DIRECT = {"question": {mode: POSED + texts.DIRECT[mode] for mode in texts.MODES}}
EXPECTED: dict[str, dict[str, dict[str, Any]]] = {
    "pocket": {
        "reasoning": REASONING,
        "direct": DIRECT,
        "clarifying": CLARIFYING,
        "clarifying-adaptive": ADAPTIVE,
    },
    "pocket-collaboration": {"collaboration": {"problem": POSED + texts.COLLABORATE}},
    "pocket-notes": {
        "self-edit" if kind == "implications" else f"self-edit-{kind}": {
            "passage": texts.SELF_EDIT_PASSAGE + texts.SELF_EDIT[kind]
        }
        for kind in texts.SELF_EDIT_KINDS
    },
}
EXPECTED["pocket-notes"]["closed-book"] = {"question": texts.CLOSED_BOOK_PROMPT}
EXPECTED["pocket-clarify"] = EXPECTED["pocket"]
PAIRS = [(task, protocol) for task, found in EXPECTED.items() for protocol in found]


@pytest.mark.parametrize("task", EXPECTED)
def test_overrides_are_the_texts_that_the_weights_know(task: str) -> None:
    overrides = load_spec(TaskSpec, "tasks", task).overrides
    assert {name: dict(found.steps) for name, found in overrides.items()} == EXPECTED[task]


@pytest.mark.parametrize(("task", "protocol"), PAIRS)
def test_every_text_of_the_protocol_is_replaced(task: str, protocol: str) -> None:
    spec = load_spec(ProtocolSpec, "protocols", protocol)
    overrides = load_spec(TaskSpec, "tasks", task).overrides[protocol]
    ids = {step.id for step in spec.all_steps()}
    worded = {step.id for step in spec.all_steps() if step.say is not None or step.ask is not None}
    assert worded <= set(overrides.steps) <= ids
    assert {name for name, speaker in spec.speakers.items() if speaker.system} <= set(
        overrides.systems
    )


@pytest.mark.parametrize(
    ("protocol", "marker"),
    [("clarifying-adaptive", texts.READY), ("collaboration", texts.MARKER)],
)
def test_markers_are_the_protocols_own(protocol: str, marker: str) -> None:
    spec = load_spec(ProtocolSpec, "protocols", protocol)
    assert [item.until for item in spec.steps if isinstance(item, Loop)] == [marker]


@pytest.mark.parametrize("closing", [texts.SOLVE["thinking"], texts.COLLABORATE])
def test_question_and_request_are_an_empty_line_apart_as_in_pretraining(closing: str) -> None:
    question = draw_fact_question(make_world(), random.Random(0))
    choices = [{"label": x, "text": t} for x, t in zip(LETTERS, question.options, strict=True)]
    fields = {"question": question.text, "choices": choices}
    assert render_template(POSED + closing, fields) == f"{pose_question(question)}\n\n{closing}"
