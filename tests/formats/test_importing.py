"""What becomes of a log: its split, rewards and policy, what is left out, what is taken out."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from convbench.errors import DataError, RunError
from convbench.formats.importing import import_logs
from convbench.views import messages_before
from tests.helpers.imports import import_rows, said, write_rows

ASK = {"role": "user", "content": "Name a bird."}
WREN = {"role": "assistant", "content": "A wren."}


def row(**more: Any) -> dict[str, Any]:
    """A logged conversation."""
    return {"messages": [ASK, WREN], **more}


def asked(number: int, **more: Any) -> dict[str, Any]:
    """A conversation about a question of its own."""
    return {"messages": [{"role": "user", "content": f"Count to {number}."}, WREN], **more}


def test_messages_before_are_the_log_s_own(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief.\n"}, ASK, WREN, ASK, WREN]
    run = import_rows(tmp_path, [{"messages": messages}]).run
    assert run is not None
    (talk,) = run.conversations()
    protocol = run.manifest.protocol
    assert messages_before(protocol, talk, protocol.policy) == messages


REWARDS: dict[str, tuple[dict[str, Any], float | None]] = {
    "number": ({"reward": 0.5}, 0.5),
    "text": ({"reward": "0.5"}, 0.5),
    "true": ({"reward": True}, 1.0),
    "list": ({"rewards": [0.25, 0.5]}, 0.75),
    "named": ({"rewards": {"overall": 7, "style": 2}}, 7.0),
    "only": ({"rewards": {"style": -3}}, -3.0),
    "score": ({"score": 3}, 3.0),
    "label": ({"label": False}, 0.0),
    "not-a-number": ({"reward": "high"}, None),
    "ambiguous": ({"rewards": {"a": 1, "b": 2}}, None),
}


@pytest.mark.parametrize("name", REWARDS)
def test_import_logs_takes_the_reward_from_where_it_is(tmp_path: Path, name: str) -> None:
    more, expected = REWARDS[name]
    assert [reward for _, reward in said(import_rows(tmp_path, [row(**more)]))] == [expected]


def test_import_logs_normalises_the_names_of_splits(tmp_path: Path) -> None:
    names = ["train_sft", "Validation", "dev", "test_prefs", "extra"]
    run = import_rows(tmp_path, [asked(i, split=name) for i, name in enumerate(names)]).run
    assert run is not None
    splits = [run.examples[talk.example_id].split for talk in run.conversations()]
    assert splits == ["train", "validation", "validation", "test", "train"]


def test_import_logs_leaves_out_a_question_s_rows_in_another_split(tmp_path: Path) -> None:
    result = import_rows(tmp_path, [row(split="train"), row(split="test")])
    assert (result.conversations, result.left_out) == (1, 1)
    assert "log.jsonl:2" in result.notes[0]


def test_import_logs_split_by_group_keeps_groups_whole(tmp_path: Path) -> None:
    rows = [asked(i, group=f"g{i % 50}") for i in range(200)]
    run = import_rows(tmp_path, rows, split_by="group").run
    assert run is not None
    splits: dict[str, set[str]] = {}
    for example in run.examples.values():
        splits.setdefault(example.group_id, set()).add(example.split)
    assert all(len(names) == 1 for names in splits.values())
    assert 2 <= sum(names == {"test"} for names in splits.values()) <= 20


def test_import_logs_split_by_time_tests_the_latest(tmp_path: Path) -> None:
    rows = [asked(i, timestamp=f"2026-01-{i + 1:02}") for i in range(10)]
    rows += [{**rows[0], "split": "test"}]
    random.Random(0).shuffle(rows)
    result = import_rows(tmp_path, rows, split_by="time")
    run = result.run
    assert run is not None
    assert (result.facts["conversations"], result.left_out) == ("11 (train 9, test 2)", 0)
    tested = {e.question for e in run.examples.values() if e.split == "test"}
    assert tested == {"Count to 8.", "Count to 9."}
    with pytest.raises(DataError, match="no time"):
        import_rows(tmp_path / "more", [row()], split_by="time")


def test_import_logs_reads_rewards_of_a_second_file(tmp_path: Path) -> None:
    marks = write_rows(tmp_path / "marks.jsonl", [{"ticket": "b", "score": 0.25}])
    rows = [asked(1, ticket="a"), asked(2, ticket="b")]
    result = import_rows(tmp_path, rows, rewards=str(marks), key="ticket")
    assert [reward for _, reward in said(result)] == [None, 0.25]
    with pytest.raises(DataError, match="--key"):
        import_rows(tmp_path / "more", rows, rewards=str(marks))


def test_import_logs_policy_is_who_is_learnt(tmp_path: Path) -> None:
    rows = [{"messages": [ASK, {**WREN, "model": "x"}, ASK, {**WREN, "model": "y"}]}]
    run = import_rows(tmp_path, rows, policy="y").run
    assert run is not None
    (talk,) = run.conversations()
    own = [turn for turn in talk.turns if turn.speaker == "assistant"]
    assert [turn.finish_reason for turn in own] == ["scripted", "stop"]


def test_import_logs_policy_may_be_the_model_that_a_row_names(tmp_path: Path) -> None:
    rows = [asked(i, model=model) for i, model in enumerate(("x", "y", "y"))]
    assert "several models spoke (y 2, x 1)" in " ".join(import_rows(tmp_path, rows).notes)
    result = import_rows(tmp_path / "y", rows, policy="y")
    assert (result.conversations, result.left_out) == (2, 1)


def test_import_logs_without_a_target_writes_nothing(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "log.jsonl", [row(reward=1), "{", row(reward=0)])
    result = import_logs(str(path), None, "id1", "log")
    assert (result.conversations, result.rewards, result.left_out) == (2, 2, 1)
    assert result.run is None
    assert list(tmp_path.iterdir()) == [path]


def test_import_logs_fail_on_bounds_what_is_left_out(tmp_path: Path) -> None:
    rows = [row(), row(), row(), {"messages": []}]
    assert import_rows(tmp_path / "a", rows, fail_on="25%").conversations == 3
    assert import_rows(tmp_path / "b", rows, fail_on="1").conversations == 3
    for most in ("20%", "0"):
        with pytest.raises(DataError, match="1 of 4 rows were left out"):
            import_rows(tmp_path / most, rows, fail_on=most)
        assert not (tmp_path / most / "run").exists()


def test_import_logs_redacts_keys_always_and_persons_if_asked(tmp_path: Path) -> None:
    key = "sk-ant-" + "a1" * 20
    word = "A risk-assessment-of-all-projects."
    text = f"Mail ann@example.org or +49 170 1234567, card 4111 1111 1111 1111, /home/ann/x, {key}"
    text = f"{word} {text}"
    rows = [{"messages": [{"role": "user", "content": text}, WREN], "note": key}]
    for name, pii in (("a", False), ("b", True)):
        run = import_rows(tmp_path / name, rows, pii=pii).run
        assert run is not None
        stored = "".join(path.read_text() for path in run.path.glob("*.jsonl"))
        assert key not in stored
        assert word in stored
        assert (
            ("ann@example.org" in stored)
            is ("4111" in stored)
            is ("/home/ann" in stored)
            is not pii
        )
        assert "170 1234567" not in stored or not pii


def test_import_logs_refuses_a_folder_that_is_taken(tmp_path: Path) -> None:
    import_rows(tmp_path, [row()])
    with pytest.raises(RunError, match="not empty"):
        import_rows(tmp_path, [row()])


def test_import_logs_map_reads_a_field_of_another_name(tmp_path: Path) -> None:
    rows = [{"chat": {"turns": [ASK, WREN]}, "marks": {"all": 0.5}}]
    names = {"messages": "chat.turns", "reward": "marks.all"}
    assert said(import_rows(tmp_path, rows, names=names)) == [(["Name a bird.", "A wren."], 0.5)]


def test_import_logs_reads_a_folder_with_the_splits_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    write_rows(folder / "train-00000-of-00002.jsonl", [asked(1)])
    write_rows(folder / "train-00001-of-00002.jsonl", [asked(2)])
    write_rows(folder / "test.jsonl", [asked(3)])
    (folder / "README.md").write_text("x")
    result = import_logs(str(folder), tmp_path / "run", "id1", "log")
    assert result.facts["conversations"] == "3 (train 2, test 1)"


def test_import_logs_drops_what_another_conversation_begins_with(tmp_path: Path) -> None:
    whole = [ASK, WREN, ASK, WREN]
    rows = [
        {"conversations": whole[:2], "episode": "0", "run_id": "r"},
        {"conversations": whole, "episode": "1", "run_id": "r"},
        {"conversations": whole[:2], "episode": "0", "run_id": "other"},
    ]
    result = import_rows(tmp_path, rows)
    assert [len(texts) for texts, _ in said(result)] == [4, 2]


def test_fold_pairs_results_by_id_and_else_by_place(tmp_path: Path) -> None:
    calls = [{"id": "c", "function": {"name": n, "arguments": "{}"}} for n in ("f", "g")]
    calls.append({"id": "d", "function": {"name": "h", "arguments": "{}"}})
    results = [{"role": "tool", "tool_call_id": mark, "content": text}
               for mark, text in (("d", "3"), ("c", "1"), (None, "2"), ("x", "odd"))]  # fmt: skip
    messages = [ASK, {"role": "assistant", "content": None, "tool_calls": calls}, *results, WREN]
    result = import_rows(tmp_path, [{"messages": messages}])
    assert said(result) == [
        (["Name a bird.", "f({})=1", "g({})=2", "h({})=3", "odd", "A wren."], None)
    ]


SAID = '"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]'
ODD = (
    "5", "null", "[1]", '"x"', "{}", '{"messages":5}', '{"messages":[5]}',
    '{"messages":[{"role":5,"content":"a"}]}', '{"messages":[{"role":{},"content":"a"}]}',
    f'{{{SAID},"reward":1{"0" * 400}}}', f'{{{SAID},"reward":NaN}}', f'{{{SAID},"reward":1e999}}',
    f'{{{SAID},"reward":{{"a":[]}}}}', f'{{{SAID},"reward":[[1]]}}',
    f'{{{SAID},"temperature":-1}}', f'{{{SAID},"temperature":1{"0" * 400}}}',
    f'{{{SAID},"example_id":[]}}', f'{{{SAID},"example_id":"\\ud800"}}', f'{{{SAID},"split":5}}',
    f'{{{SAID},"choices":{{"text":5}}}}', f'{{{SAID},"choices":5}}', f'{{{SAID},"answer":{{}}}}',
    '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(ODD)))
def test_import_logs_reads_an_odd_line_or_leaves_it_out_with_its_place(
    tmp_path: Path, number: int
) -> None:
    done = import_rows(tmp_path, ["{" + SAID + "}", ODD[number]])
    assert done.conversations + done.left_out == 2
    assert done.conversations == 2 or "log.jsonl:2" in done.notes[0]
    assert all(len(note) < 500 for note in done.notes)


ARGUMENTS: dict[str, tuple[Any, str]] = {
    "text": ('{"city": "Ulm"}', '{"city": "Ulm"}'),
    "object": ({"city": "Ulm"}, '{"city": "Ulm"}'),
    "python": ("{'city': 'Ulm'}", '{"city": "Ulm"}'),
    "null-filled": (
        {"city": "Ulm", "day": None, "at": {"hour": None}},
        '{"city": "Ulm", "at": {}}',
    ),
    "none": (None, "{}"),
    "empty": ("", "{}"),
    "null": ("null", "{}"),
    "word": ("Ulm", '"Ulm"'),
    "number": (5, "5"),
    "list": ("[1, 2]", "[1, 2]"),
    "torn": ('{"city', '"{\\"city"'),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_import_logs_keeps_the_arguments_of_a_call(tmp_path: Path, name: str) -> None:
    given, expected = ARGUMENTS[name]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": given}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c", "content": "7"}
    found = said(import_rows(tmp_path, [{"messages": [ASK, asked, result, WREN]}]))
    assert found == [(["Name a bird.", f"f({expected})=7", "A wren."], None)]


def test_import_logs_stores_no_metadata_that_cannot_be_read_again(tmp_path: Path) -> None:
    deep = "[" * 200 + "]" * 200
    run = import_rows(tmp_path, ["{" + SAID + f',"deep":{deep},"large":1e999}}']).run
    assert run is not None
    (talk,) = run.conversations()
    assert talk.metadata.get("large") is None
    assert "[too deep]" in str(talk.metadata["deep"])


def test_import_logs_keeps_long_numbers_beside_missing_ones(tmp_path: Path) -> None:
    talk = {"messages": [ASK, WREN], "tweet": 1234567890123456789, "score_of_spam": float("nan")}
    pq.write_table(pa.Table.from_pylist([talk]), tmp_path / "log.parquet")
    run = import_logs(str(tmp_path / "log.parquet"), tmp_path / "run", "id1", "log").run
    assert run is not None
    (stored,) = run.conversations()
    assert stored.metadata == {"tweet": 1234567890123456789, "score_of_spam": None}
