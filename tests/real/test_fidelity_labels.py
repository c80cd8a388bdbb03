"""What `fidelity@MODEL` says of teachers' turns beside people's labels, for whoever has a key:

CONVBENCH_REAL_JUDGE=openai/gpt-4o-mini pytest -s tests/real/test_fidelity_labels.py
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from convbench.catalog import load_spec
from convbench.engine.caller import Caller
from convbench.judges.dispatch import judge_conversation
from convbench.judges.resolve import resolve_judge
from convbench.models import open_model
from convbench.schema import Choice, Conversation, Example, ProtocolSpec, Turn

MODEL = os.environ.get("CONVBENCH_REAL_JUDGE", "")
ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "given_answers.jsonl").open(encoding="utf-8")
]
PROTOCOL = load_spec(ProtocolSpec, "protocols", "clarifying")


def conversation_of(row: dict[str, Any]) -> tuple[Conversation, Example]:
    """Return the dialogue of a row and its question."""
    speakers = {"teacher": "teacher", "student": PROTOCOL.policy}
    turns = tuple(
        Turn(speaker=speakers[turn["role"]], step="s", content=turn["text"])
        for turn in row["turns"]
    )
    choices = tuple(
        Choice(label="ABCDEFGH"[place], text=text) for place, text in enumerate(row["options"])
    )
    example = Example(
        example_id=row["id"],
        task="t",
        split="test",
        group_id=row["id"],
        question=row["question"],
        choices=choices,
        answer=row["gold"],
    )
    talk = Conversation(
        key=row["id"],
        conversation_id=row["id"],
        example_id=row["id"],
        turns=turns,
        stop="complete",
    )
    return talk, example


def test_the_labelled_turns_are_of_both_kinds() -> None:
    assert len(ROWS) == 460
    assert sum(row["leaks"] for row in ROWS) == 302
    for row in ROWS:
        conversation_of(row)


@pytest.mark.skipif(not MODEL, reason="asks a model that costs money: CONVBENCH_REAL_JUDGE=MODEL")
def test_most_given_answers_score_below_half_of_secret() -> None:
    judge, model = resolve_judge(f"fidelity@{MODEL}"), open_model(MODEL)

    async def scores() -> list[float | None]:
        caller = Caller()
        found = []
        for row in ROWS:
            talk, example = conversation_of(row)
            verdict = await judge_conversation(caller, model, judge, talk, example, PROTOCOL)
            found.append(verdict.scores.get("secret"))
        await model.aclose()
        return found

    pairs = [(row, score) for row, score in zip(ROWS, asyncio.run(scores()), strict=True)]
    leaks = [score for row, score in pairs if row["leaks"] and score is not None]
    others = [score for row, score in pairs if not row["leaks"] and score is not None]
    found, false = sum(x < 5 for x in leaks), sum(x < 5 for x in others)
    print(f"\n{found} of {len(leaks)} found, {false} of {len(others)} others flagged")
    assert found > len(leaks) / 2
