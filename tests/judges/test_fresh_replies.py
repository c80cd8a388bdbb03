"""Judges' replies to small rubrics, labelled by somebody who had not seen the reader."""

import re
from pathlib import Path

import pytest

from convbench.judges.replies import Scores, read_reply
from convbench.schema import JudgeSpec
from tests.support.cases import load_cases

REPLIES = load_cases(Path(__file__).parent / "fresh.yaml")


def rubric(metrics):
    """Return a rubric of these metrics, each with its range."""
    named = [
        {"name": re.sub(r"\W+", "_", label.lower()), "label": label, "lowest": low, "highest": high}
        for label, (low, high) in metrics.items()
    ]
    return JudgeSpec.model_validate(
        {"name": "fresh", "title": "Fresh", "kind": "rubric", "system": "s", "prompt": "p",
         "metrics": named, "reward": {"metric": named[0]["name"]}}
    )  # fmt: skip


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: reply["id"])
def test_fresh_reply(reply):
    spec = rubric(reply["metrics"])
    got = read_reply(reply["reply"], spec)
    scores = (
        {spec.score_labels[name]: score for name, score in got.scores.items()}
        if isinstance(got, Scores)
        else None
    )
    if reply.get("unread"):
        assert scores is None
    elif scores is not None or not reply.get("either"):
        assert scores == reply["scores"]


def test_most_are_read():
    assert len(REPLIES) == 160
    assert sum(not reply.get("unread") for reply in REPLIES) >= 140
