"""Final turns labelled by somebody who had not seen the reader: never read as another option."""

from pathlib import Path

import pytest

from convbench.answers.final import final_answer
from tests.support.cases import load_cases

REPLIES = load_cases(Path(__file__).parent / "fresh.yaml")


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: reply["id"])
def test_fresh_reply(reply):
    expected = None if reply.get("unread") else reply["answer"]
    assert final_answer(reply["reply"], reply["options"]) == expected


def test_most_are_read():
    assert len(REPLIES) == 160
    assert sum(not reply.get("unread") for reply in REPLIES) >= 140
