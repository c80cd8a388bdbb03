"""The index of a run's records: the same rows as the records themselves give, wherever they lie."""

from __future__ import annotations

import itertools
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as parquet
import pytest

from convbench.errors import RunError
from convbench.schema import Conversation, Verdict, turn_scores
from convbench.store import Run, index, sidecars
from convbench.store.byte_offsets import RecordReader
from convbench.store.index import VerdictRow
from convbench.store.jsonl import Appender
from tests.helpers.indexed_runs import cache, make_run, rows_of_conversations
from tests.helpers.runs import conversation, example, verdict, write_run

__all__ = ["cache"]


def values_of(rows: Iterator[VerdictRow] | Iterator[Verdict]) -> list[tuple[Any, ...]]:
    """What rows and records have in common."""
    return [
        (
            row.conversation_id,
            row.judge,
            row.fingerprint,
            row.reward,
            list(row.scores.items()),
            repr(row.details),  # in which nan is like nan
            row.scored if isinstance(row, VerdictRow) else row.failure is None,
            row.cost_usd,
            row.prompt_tokens,
            row.completion_tokens,
        )
        for row in rows
    ]


def test_rows_are_what_the_records_say(tmp_path: Path, cache: Path) -> None:
    """At first use, which makes the sidecars, and at the next, which reads them."""
    run = make_run(tmp_path / "run")
    talks, verdicts = rows_of_conversations(run), values_of(run.verdicts())
    assert {row.ended for row in talks} == {True, False}
    assert len(talks) == 61
    times = []
    for _ in range(2):
        assert list(run.conversation_rows()) == talks
        assert values_of(run.verdict_rows()) == verdicts
        times.append({path.name: path.stat().st_mtime_ns for path in cache.iterdir()})
    assert len(times[0]) == 2, "one a file"
    assert times[0].keys() == times[1].keys()
    joined = {row.conversation_id: tuple(question) for row, question in run.joined_rows()}
    examples = {row.conversation_id: run.examples[row.example_id] for row in talks}
    assert joined == {name: (one.split, one.group_id) for name, one in examples.items()}


@pytest.mark.parametrize("stored", [True, False])
def test_rows_of_long_files_are_the_same(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """They are written a few at a time, to a sidecar or, of a young file, to a file that goes with
    the index; in a folder whatever its letters."""
    run = make_run(tmp_path / "run")
    talks, verdicts = rows_of_conversations(run), values_of(run.verdicts())
    monkeypatch.setattr(index, "HELD", 4)
    monkeypatch.setattr(sidecars, "SETTLE_SECONDS", -1.0 if stored else 3600.0)
    temporary = tmp_path / "a*[b]?"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    for _ in range(2):
        assert list(run.conversation_rows()) == talks
        assert values_of(run.verdict_rows()) == verdicts
    assert list(temporary.iterdir()) == []
    groups = [parquet.read_metadata(path).num_row_groups for path in cache.glob("*")]
    assert sorted(groups) == ([17, 25] if stored else [])


def test_a_small_file_is_read_without_libraries(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run")
    talks, size = rows_of_conversations(run), run.conversations_file.stat().st_size
    monkeypatch.setattr(index, "SMALL", size + 1)
    assert list(run.conversation_rows()) == talks
    assert not cache.exists()
    monkeypatch.setattr(index, "SMALL", size)
    assert list(run.conversation_rows()) == talks
    assert len(list(cache.iterdir())) == 1


def test_of_a_long_file_few_rows_lie_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "WORTH", 1 << 30)
    path = tmp_path / "verdicts.jsonl"
    path.write_text(f"{verdict(conversation(1), 0.5).model_dump_json()}\n" * 4_000)
    peaks = {}
    for rows_held in (10_000, 50, 10_000, 50):  # the first of each loads libraries
        monkeypatch.setattr(index, "HELD", rows_held)
        tracemalloc.start()
        rows = index.Index(index.VERDICTS, [path])
        peaks[rows_held] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sum(1 for _ in rows.all_rows()) == 4_000
    assert peaks[50] < peaks[10_000] / 4, peaks


def test_no_room_for_the_rows_of_a_long_file_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run")
    monkeypatch.setattr(index, "HELD", 4)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(RunError, match=r"nowhere.*: cannot be written: No such file"):
        list(run.conversation_rows())


def test_rows_of_one_conversation(tmp_path: Path, cache: Path) -> None:
    """Of a sidecar that goes meanwhile."""
    run = make_run(tmp_path / "run")
    rows = list(index.Index(index.VERDICTS, [run.verdicts_file]).all_rows())
    names = {row.conversation_id for row in rows}
    some = index.Index(index.VERDICTS, [run.verdicts_file])
    for number, name in enumerate(sorted(names)):
        if number == len(names) // 2:
            next(cache.iterdir()).unlink()
        assert list(some.all_rows(name)) == [row for row in rows if row.conversation_id == name]
    assert list(some.all_rows("none")) == []


def test_a_sidecar_is_read_in_place_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is parsed again; once the file has grown each is."""
    run = make_run(tmp_path / "run")
    list(run.conversation_rows())
    parsed: list[bytes] = []

    def read_line(where: str, line: bytes) -> tuple[Any, ...]:
        parsed.append(line)
        return table.read_line(where, line)

    table = index.CONVERSATIONS
    monkeypatch.setattr(index, "CONVERSATIONS", replace(table, read_line=read_line))
    assert list(run.conversation_rows()) == rows_of_conversations(run)
    assert parsed == []
    with Appender(run.conversations_file) as file:
        file.write(conversation(0, key="new", conversation_id="new").model_dump_json().encode())
    assert list(run.conversation_rows()) == rows_of_conversations(run)
    assert parsed == run.conversations_file.read_bytes().splitlines(keepends=True)


def test_records_are_read_where_rows_say(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    rows = list(run.conversation_rows())
    talks = [run.read_conversation(*row[:3]) for row in rows]
    assert talks == list(run.conversations())
    verdicts = list(run.verdict_rows())
    records = RecordReader(run.verdicts_file, Verdict)
    assert [records.read_record(row.start, row.length) for row in verdicts] == list(run.verdicts())


def test_a_run_that_grows_is_followed(tmp_path: Path) -> None:
    """Line by line, a key that comes again among them."""
    run = make_run(tmp_path / "run")
    for number in range(9):
        with Appender(run.conversations_file) as file:
            file.write(conversation(number, number % 2, flags=("late",)).model_dump_json().encode())
            assert list(run.conversation_rows()) == rows_of_conversations(run)
        assert list(run.conversation_rows()) == rows_of_conversations(run)
    assert sum("late" in row.flags for row in run.conversation_rows()) == 9


def test_a_file_that_changed_has_another_sidecar(tmp_path: Path, cache: Path) -> None:
    """Of the same name, size and time of writing too, edited in place."""
    run = make_run(tmp_path / "run")
    path = run.conversations_file
    before = list(run.conversation_rows())
    known = path.stat()
    with path.open("r+b") as file:
        file.write(path.read_bytes().replace(b"run-q", b"ran-q"))
    os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (known.st_size, known.st_mtime_ns)
    changed = list(run.conversation_rows())
    assert changed == rows_of_conversations(run)
    assert changed[0].conversation_id == before[0].conversation_id.replace("run", "ran")


@pytest.mark.parametrize("when", ["first", "later"])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda line: line[:-9], "damaged, not JSON"),
        (lambda line: line.replace(b'"example_id":"q7"', b'"example_id":7'), "example_id: found 7"),
        (lambda line: line.replace(b'"sample":1', b'"sample":-1'), "sample: Input should be"),
        (lambda line: line.replace(b'"flags":[]', b'"flags":[1]'), "flags.0: Input should be"),
        (
            lambda line: line.replace(b'{"key":"q7/1"', b'{"key":"q7/1","key":"q9/1"'),
            "found two values of key",
        ),
    ],
)
def test_a_damaged_line_is_named(
    tmp_path: Path,
    cache: Path,
    wrong: Callable[[bytes], bytes],
    words: str,
    when: str,
) -> None:
    """By its number, though the file had a sidecar before; of what it is now there is none."""
    run = write_run(
        tmp_path / "run", examples=[example(n) for n in range(30)], conversations=[], verdicts=[]
    )
    lines = [conversation(n, s).model_dump_json().encode() for n in range(9) for s in (0, 1)]
    with Appender(run.conversations_file) as file:
        for line in lines[:6]:
            file.write(line)
    if when == "later":
        list(run.conversation_rows())
    with Appender(run.conversations_file) as file:
        for number, line in enumerate(lines[6:]):
            file.write(wrong(line) if number == 9 else line)
    with pytest.raises(RunError) as caught:
        list(run.conversation_rows())
    assert str(caught.value).startswith(f"{run.conversations_file}:16: ")
    assert words in str(caught.value)
    assert len(list(cache.glob("*"))) == (when == "later")


@pytest.mark.parametrize(
    "changes",
    [
        {"judge": "a\x1b[31mb"},
        {"judge": 7},
        {"conversation_id": "../c"},
        {"reward": 1e101},
        {"reward": "x"},
        {"cost_usd": -1.0},
        {"prompt_tokens": -3},
        {"prompt_tokens": 1.5},
        {"failure": {}},
        {"failure": "no"},
        {"details": []},
        {"details": None},
        {"scores": {"overall": 1e101}},
        {"scores": {"overall": "much"}},
        {"scores": {"overall": None}},
        {"scores": [1.0]},
        {"scores": None},
    ],
)
def test_a_wrong_verdict_is_refused_as_its_record_is(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    values = verdict(conversation(1)).model_dump(mode="json") | changes
    run = write_run(tmp_path / "run", verdicts=[verdict(conversation(2))])
    with run.verdicts_file.open("ab") as file:
        file.write(orjson.dumps(values) + b"\n")
    with pytest.raises(RunError) as caught:
        list(run.verdict_rows())
    with pytest.raises(RunError) as known:
        list(run.verdicts())
    assert str(caught.value) == str(known.value)
    assert "verdicts.jsonl:2: " in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"judge": "naïve “judge”"},
        {"conversation_id": "run-q1-0#turn-2"},
        {"conversation_id": "gespräch-1"},
        {"reward": 1},
        {"reward": True},
        {"reward": "0.5"},
        {"cost_usd": "0.25"},
        {"cost_usd": 2, "prompt_tokens": "7"},
        {"cost_usd": None, "prompt_tokens": 7},
        {"scores": {"": 1, "naïve\0": "2.5", "\U0001f600": True, "z" * 300: -0.0, "a": 1e100}},
        {
            "details": {
                "faults": [{"fault": "“'\0", "turn": 2**70}],
                "none": None,
                "x": {"": [float("nan")]},
            }
        },
        {"details": {"turns": [{"turn": 1, "scores": {"overall": 3}, "reward": 0.3}]}},
        {"details": {"turns": "none"}},
    ],
)
def test_an_unusual_verdict_gives_what_its_record_says(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    values = verdict(conversation(1)).model_dump(mode="json") | changes
    run = write_run(tmp_path / "run", verdicts=[])
    run.verdicts_file.write_text(json.dumps(values, separators=(",", ":")) + "\n")
    record = next(run.verdicts())
    for _ in range(2):
        [row] = run.verdict_rows()
        assert values_of(iter([row])) == values_of(iter([record]))
        assert type(row.reward) is float
        assert {type(score) for score in row.scores.values()} == {float}
        assert turn_scores(row) == turn_scores(record)
        unpriced = record.cost_usd is None and record.prompt_tokens
        assert row.usd == (None if unpriced else record.cost_usd or 0.0)


def test_what_no_line_shows_is_refused_with_its_line(tmp_path: Path) -> None:
    """A conversation of no question, and two of one id."""
    talks = [conversation(n) for n in range(6)]
    wrong = [conversation(9), conversation(4, key="q4/7")]
    for number, one in enumerate(wrong):
        run = write_run(
            tmp_path / str(number),
            examples=[example(n) for n in range(6)],
            conversations=[*talks, one],
        )
        with pytest.raises(RunError) as caught:
            list(run.joined_rows())
        with pytest.raises(RunError) as known:
            list(run.conversations())
        assert str(caught.value) == str(known.value)
        assert ":7: " in str(caught.value)


def test_questions_of_one_name_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", examples=[example(n) for n in range(3)], conversations=[])
    with (run.path / "examples.jsonl").open("a") as file:
        file.write(f"{example(0).model_dump_json()}\n")
    with pytest.raises(RunError, match=r"examples.jsonl:4: found 'q0' a second time"):
        list(Run.open(run.path).joined_rows())


def test_unusual_lines_give_what_the_record_says(tmp_path: Path) -> None:
    """Numbers as texts, fields in another order and spaces, as another program may write them."""
    talk = conversation(2, 1)
    values = talk.model_dump(mode="json")
    values["sample"] = "1"
    spaced = dict(reversed(values.items()))
    run = write_run(tmp_path / "run", examples=[example(2)], conversations=[])
    run.conversations_file.write_bytes(
        orjson.dumps(spaced, option=orjson.OPT_INDENT_2).replace(b"\n", b" ") + b"\n"
    )
    assert list(run.conversation_rows()) == rows_of_conversations(run)
    assert next(run.conversation_rows()).sample == 1


def test_names_of_any_letters_come_back(tmp_path: Path) -> None:
    """From a sidecar too: zero bytes, quotes, letters beyond the first plane."""
    names = ["a\0b", "'\"", "\U0001f600\u202e", "", "x" * 5000]
    run = write_run(
        tmp_path / "run",
        examples=[example(n, example_id=name) for n, name in enumerate(names)],
        conversations=[],
    )
    with Appender(run.conversations_file) as file:
        for number, name in enumerate(names):
            one = conversation(number, key=f"{name}/0", example_id=name, flags=(name, "b"))
            file.write(one.model_dump_json().encode())
    for _ in range(2):
        assert [(row.example_id, list(row.flags)) for row in run.conversation_rows()] == [
            (name, [name, "b"]) for name in names
        ]
    assert Conversation.model_validate(run.read_conversation(*next(run.conversation_rows())[:3]))


def test_files_come_one_after_the_other(tmp_path: Path) -> None:
    """A key that stands in two of them counts where it stands last."""
    folders = [make_run(tmp_path / name) for name in ("a", "b")]
    files = [run.conversations_file for run in folders]
    rows = list(index.Index(index.CONVERSATIONS, files).newest_rows())
    assert rows == rows_of_conversations(folders[1])
    every = list(index.Index(index.CONVERSATIONS, files).all_rows())
    assert [path for path, _ in itertools.groupby(row.path for row in every)] == files
