"""Credit of turns from end to end: a critic, `turns.advantage`, exports, the viewer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench.errors import QueryError, RunError, TrainError
from convbench.formats.export import export_conversations
from convbench.hub.tables import open_portions, write_tables
from convbench.learn.credit import credit_turns
from convbench.store.notes import CREDIT_FILE, newest_advantages, turn_advantages
from convbench.store.query import run_query
from convbench.viewer.index import build_index
from convbench.viewer.talk import talk_json
from tests.helpers import tiny
from tests.helpers.planted import critic, planted
from tests.support.later import later

torch = later("torch")


@pytest.mark.exhaustive
def test_a_critic_credits_every_turn_of_any_run(tmp_path: Path) -> None:
    """Trained on one run it credits another; the newest line of a turn counts."""
    torch.set_num_threads(1)
    run, _ = planted(tmp_path / "run", 4, 3)
    folder = critic(run, **{"fit.max_steps": 2, "args.critic": {"epochs": 1}})
    other, _ = planted(tmp_path / "other", 2, 1, seed=5)
    done = credit_turns(other, str(folder))
    assert (done.conversations, done.turns, done.source) == (2, 8, "critic:sweet")
    assert done.spread[0] < done.spread[2]
    assert not (run.path / CREDIT_FILE).exists()
    found = turn_advantages(other)
    assert {tuple(sorted(turns)) for turns in found.values()} == {(1, 3, 5, 7)}
    again = credit_turns(other, str(folder))
    assert again.turns == 8
    assert turn_advantages(other, "critic:sweet") == found
    assert run_query("select count(*) from advantages", [other]).rows == [(8,)]

    name, values = next(iter(found.items()))
    shown = talk_json(build_index([other]), name)["turns"]
    assert [turn["advantage"] for turn in shown if turn["policy"]] == [
        values[i] for i in (1, 3, 5, 7)
    ]
    files = export_conversations(other, "trl", tmp_path / "trl").files
    lines = [json.loads(x) for file in files.values() for x in file.read_text().splitlines()]
    assert sorted(map(tuple, (line["advantages"] for line in lines))) == sorted(
        tuple(turns[i] for i in (1, 3, 5, 7)) for turns in found.values()
    )
    bare = export_conversations(other, "openai", tmp_path / "openai")
    assert "openai cannot hold the turns' advantages of 2 conversations" in bare.notes
    with open_portions(other, tmp_path) as parts:
        write_tables(parts, tmp_path / "set", None)
    import pyarrow.parquet as pq

    (file, *_) = sorted((tmp_path / "set" / "turns").iterdir())
    assert {"advantage", "advantage_by"} <= set(pq.read_table(file).column_names)

    told = credit_turns(other, str(folder), raw=True)
    assert told.source == "critic-raw:sweet"
    assert turn_advantages(other, told.source) != turn_advantages(other, "critic:sweet") == found


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    run = tiny.judged_run(tmp_path / "run")
    with pytest.raises(
        RunError, match="found credit by none; expected one source; run convbench credit first"
    ):
        turn_advantages(run)
    with pytest.raises(TrainError, match="found no critic; expected the checkpoint folder"):
        credit_turns(run, str(tmp_path))
    assert newest_advantages(run) == {}
    line = {"conversation_id": "run-q0-0", "turn_index": 1, "source": "a", "advantage": 0.5}
    file = run.path / CREDIT_FILE
    file.write_text(f"{json.dumps(line)}\n{json.dumps({**line, 'source': 'b'})}\n")
    with pytest.raises(RunError, match="found credit by a, b; expected one source; name one"):
        turn_advantages(run)
    with pytest.raises(RunError, match="no credit by 'c'; available: a, b"):
        turn_advantages(run, "c")
    assert turn_advantages(run, "b") == {"run-q0-0": {1: 0.5}}


@pytest.mark.parametrize("bad", ['{"turn_index": -1}', "[]", '{"advantage": "NaN"}'])
def test_a_hostile_file_is_one_line(tmp_path: Path, bad: str) -> None:
    run = tiny.judged_run(tmp_path / "run")
    line = {"conversation_id": "run-q0-0", "turn_index": 1, "source": "a", "advantage": 0.5}
    value = json.loads(bad)
    file = run.path / CREDIT_FILE
    file.write_text(json.dumps({**line, **value} if isinstance(value, dict) else value) + "\n")
    with pytest.raises(RunError, match=r"advantages\.jsonl:1"):
        turn_advantages(run)
    with pytest.raises((RunError, QueryError), match=r"advantages\.jsonl:1"):
        run_query("select * from turns", [run])
