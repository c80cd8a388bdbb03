"""Other trainers' sets become runs: TRL's formats, spreadsheets, fields of other names."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from convbench.commands.import_ import ImportOptions
from convbench.errors import DataError, UsageError
from convbench.formats.importing import import_file
from convbench.schema import text_of
from tests.helpers.typed import Typist
from tests.support.later import later

datasets = later("datasets")
trl = later("trl")


ASK = {"role": "user", "content": "2 + 2?"}
GOOD, BAD = ({"role": "assistant", "content": text} for text in ("4", "5"))
Said = list[tuple[list[str], float | None]]


def said(tmp_path: Path, rows: Any, name: str = "log.jsonl", **names: str) -> Said:
    """Import rows and return (what was said, reward) of each conversation."""
    file = tmp_path / name
    if file.suffix == ".parquet":
        datasets.Dataset.from_list(rows).to_parquet(str(file))
    elif file.suffix == ".json":
        file.write_text(json.dumps(rows))
    elif file.suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, dict.fromkeys(key for row in rows for key in row))
        writer.writeheader()
        writer.writerows(rows)
        file.write_text(text.getvalue())
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = import_file(file, tmp_path / "run", "id1", "log", names).run
    rewards = {verdict.conversation_id: verdict.reward for verdict in run.verdicts()}
    return [
        ([text_of(turn.content) for turn in talk.turns], rewards.get(talk.conversation_id))
        for talk in run.conversations()
    ]


ROWS: list[tuple[dict[str, Any], Said]] = [
    ({"prompt": [ASK], "completion": [GOOD]}, [(["2 + 2?", "4"], None)]),
    ({"prompt": "2 + 2?", "completion": "4", "label": True}, [(["2 + 2?", "4"], 1.0)]),
    ({"prompt": "2 + 2?", "completion": "5", "label": False}, [(["2 + 2?", "5"], 0.0)]),
    ({"prompt": "2 + 2?", "completion": "5", "reward": -2}, [(["2 + 2?", "5"], -2.0)]),
    (
        {"prompt": [ASK], "chosen": [GOOD], "rejected": [BAD]},
        [(["2 + 2?", "4"], 1.0), (["2 + 2?", "5"], 0.0)],
    ),
    (
        {"chosen": [ASK, GOOD], "rejected": [ASK, BAD]},
        [(["2 + 2?", "4"], 1.0), (["2 + 2?", "5"], 0.0)],
    ),
    ({"conversations": [{"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": "4"}]},
     [(["2 + 2?", "4"], None)]),
    ({"input": {"messages": [ASK], "parallel_tool_calls": True}, "preferred_output": [GOOD],
      "non_preferred_output": [BAD]}, [(["2 + 2?", "4"], 1.0), (["2 + 2?", "5"], 0.0)]),
]  # fmt: skip


@pytest.mark.parametrize("name", ["log.jsonl", "log.json", "log.parquet", "log.csv"])
@pytest.mark.parametrize(("row", "expected"), ROWS)
def test_every_shape_from_every_file(
    tmp_path: Path, row: dict[str, Any], expected: Said, name: str
) -> None:
    if name.endswith(".csv"):
        row = {k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in row.items()}
    assert said(tmp_path, [row], name) == expected


def test_a_pair_is_two_samples_of_one_question(tmp_path: Path) -> None:
    rows = [{"prompt": [ASK], "chosen": [GOOD], "rejected": [BAD], "source": "people"}]
    (tmp_path / "log.jsonl").write_text(json.dumps(rows[0]) + "\n")
    run = import_file(tmp_path / "log.jsonl", tmp_path / "run", "id1").run
    one, two = run.conversations()
    assert one.example_id == two.example_id
    assert (one.sample, two.sample) == (0, 1)
    assert one.metadata == two.metadata == {"source": "people"}


def test_trl_reads_them_alike(tmp_path: Path) -> None:
    """TRL's own reading of an implicit prompt is the oracle."""
    row = {"chosen": [ASK, GOOD], "rejected": [ASK, BAD]}
    theirs = trl.data_utils.extract_prompt(row)
    ours = said(tmp_path, [row])
    assert [m["content"] for m in theirs["prompt"] + theirs["chosen"]] == ours[0][0]
    assert [m["content"] for m in theirs["prompt"] + theirs["rejected"]] == ours[1][0]


def test_fields_of_other_names(tmp_path: Path) -> None:
    row = {"dialogue": [ASK, GOOD], "scores": {"judge": {"overall": 7}}, "rewrad": 3}
    with pytest.raises(DataError, match="found an unknown key"):
        said(tmp_path, [row], messages="dialogue", reward="scores.judge.overall")
    del row["rewrad"]
    assert said(tmp_path, [row], messages="dialogue", reward="scores.judge.overall") == [
        (["2 + 2?", "4"], 7.0)
    ]


def test_numbers_and_empty_cells_of_a_spreadsheet(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "completion": "b", "reward": "0.5", "group": "g", "topic": "x"},
        {"prompt": "a", "completion": "c", "reward": "", "group": "g", "topic": ""},
    ]
    assert said(tmp_path, rows, "log.csv") == [(["a", "b"], 0.5), (["a", "c"], None)]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "a", "completion": 3}, "completion: found int; expected a text or messages"),
    ({"prompt": "a", "chosen": "b", "rejected": "c", "reward": 1}, "a pair has no reward"),
    ({"prompt": "a", "completion": "b", "label": True, "reward": 1}, "expected one of them"),
    ({"prompt": "a"}, "found no messages"),
    (
        {"input": [ASK], "preferred_output": [GOOD], "non_preferred_output": [BAD]},
        "input: found no messages; expected {messages: [...]}",
    ),
    ({"prompt": {"x": 1}, "completion": "b"}, "prompt: found dict"),
]


@pytest.mark.parametrize(("row", "line"), WRONG)
def test_what_is_no_shape_names_its_line(tmp_path: Path, row: dict[str, Any], line: str) -> None:
    with pytest.raises(DataError, match=r"log\.jsonl:2: ") as found:
        said(tmp_path, [ROWS[0][0], row])
    assert line in str(found.value)
    assert not (tmp_path / "run").exists()


def test_maps_that_are_none(tmp_path: Path) -> None:
    for pair in (("reward",), ("reward=",), ("=x",), ("reward=a", "reward=b")):
        with pytest.raises(UsageError, match="expected NAME=FIELD"):
            _ = ImportOptions("x", map=pair).field_names
    with pytest.raises(DataError, match="--map reward=score: found no 'score'; expected one of"):
        said(tmp_path, [{"messages": [ASK, GOOD]}], reward="score")


def test_the_command_maps_and_trains(typist: Typist) -> None:
    rows = [{"chat": [ASK, GOOD if n % 2 else BAD], "s": n % 2} for n in range(8)]
    Path("logs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = typist.json("import", "logs.jsonl", "--map", "messages=chat", "--map", "reward=s")
    assert made["result"]["rewards"] == 8
    assert typist("import", "logs.jsonl", "--map", "messages").code == 2
    assert "found no such file" in typist("import", "absent.parquet").err
    assert "expected hf://OWNER/NAME" in typist("import", "hf://me").err
