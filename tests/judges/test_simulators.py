"""Judges of the other speaker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench.errors import TrainError
from convbench.learn.select import select
from convbench.schema.recipe import Data
from convbench.store import Run
from convbench.store.query import run_query
from tests.helpers import stages
from tests.support.chat.replies import Call
from tests.support.provider import Provider

RULE = "rule:tests.judges.simulated"


def sql(run: Run, text: str) -> list[tuple[object, ...]]:
    return run_query(text, [run]).rows


@pytest.fixture
def scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Four conversations that a model scored by `simulator`: the human leaked in the first two."""
    replies = iter([1, 1, 0, 0])

    def reply(call: Call) -> str:
        schema = call.body["response_format"]["json_schema"]["schema"]
        faults = dict.fromkeys(schema["properties"], 0) | {"leaked": next(replies)}
        return json.dumps(
            {
                name: {"score": score, "justification": "So it said."}
                for name, score in faults.items()
            }
        )

    with Provider(reply=reply) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.api_base)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        folder = tmp_path / "run"
        stages.build(
            "pocket-collaboration",
            tasks=4,
            model=f"{RULE}:guess",
            run=folder,
            samples=1,
            temperatures=(1.0,),
        )
        stages.judge(folder, "simulator@openai/gpt-4o", concurrency=1)
    return Run.open(folder)


def test_a_judge_of_the_other_speaker_is_asked_by_schema_and_queried(scored: Run) -> None:
    rows = sql(
        scored, "select avg(leaked), avg(refused) from verdicts where judge like 'simulator%'"
    )
    assert rows == [(0.5, 0.0)]


def test_scores_of_the_other_speaker_are_no_reward(scored: Run) -> None:
    with pytest.raises(TrainError, match="found no verdicts"):
        select([scored], Data())


def test_least_scores_of_the_other_speaker_leave_conversations_out(scored: Run) -> None:
    stages.judge(scored.path, "rules")
    every = select([scored], Data(judge="rules", flagged="keep"))
    data = Data(judge="rules", flagged="keep", least={"simulator": {"leaked": 1}})
    train = {
        row.conversation_id for row, question in scored.joined_rows() if question.split == "train"
    }
    leaked = {
        name
        for name, value in sql(
            scored, "select conversation_id, leaked from verdicts where leaked is not null"
        )
        if value == 1
    }
    kept = select([scored], data)
    assert {one.conversation.conversation_id for one in kept.logged} == leaked & train
    assert len(every.logged) == len(train)
    assert kept.left_out["below data.least"] == len(train - leaked)
