"""`import`: logs of other programs become runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import DataError, RunError
from convbench.formats import shapes
from convbench.formats.importing import ImportResult, import_file
from convbench.learn.export import export_run
from convbench.store import Run
from convbench.store.query import run_query
from convbench.views import messages_before

USER = {"role": "user", "content": "2 + 2?"}
FOUR = {"role": "assistant", "content": "4"}


def write(path: Path, *rows: Any) -> Path:
    """A JSON lines file."""
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n"
                            for row in rows))  # fmt: skip
    return path


def bring(tmp_path: Path, *rows: Any) -> ImportResult:
    """Import these rows."""
    return import_file(write(tmp_path / "log.jsonl", *rows), tmp_path / "run", "id1", "log")


def row(**more: Any) -> dict[str, Any]:
    """A logged conversation."""
    return {"messages": [USER, FOUR], **more}


def test_the_policy_sees_the_log_s_own_messages(tmp_path: Path) -> None:
    """System message kept as the policy's system prompt, texts byte for byte."""
    more = {"role": "user", "content": " Sure? "}, {"role": "assistant", "content": "Yes."}
    said = [{"role": "system", "content": "Be brief.\n"}, USER, FOUR, *more]
    run = bring(tmp_path, {"messages": said, "reward": 1}).run
    (talk,) = run.conversations()
    assert messages_before(run.manifest.protocol, talk, run.manifest.protocol.policy) == said
    assert [turn.speaker for turn in talk.turns] == ["teacher", "assistant"] * 2


def test_rewards_are_verdicts_of_imported(tmp_path: Path) -> None:
    """A number, turns' rewards summed, named ones; none is no verdict."""
    done = bring(
        tmp_path,
        row(reward=0.5, example_id="a"),
        row(rewards=[0.25, 0.5], example_id="a"),
        row(rewards={"overall": 7, "style": 2}, example_id="b"),
        row(rewards={"only": -3}, example_id="b"),
        row(example_id="c"),
    )
    assert (done.conversations, done.rewards, done.examples) == (5, 4, 3)
    rows = run_query("SELECT judge, reward, scores['style'] FROM verdicts ORDER BY conversation_id",
                 [done.run]).rows  # fmt: skip
    assert rows == [("imported", 0.5, None), ("imported", 0.75, None), ("imported", 7.0, 2.0),
                    ("imported", -3.0, None)]  # fmt: skip
    assert any("1 of 5 rows have no reward" in note for note in done.notes)
    assert run_query("SELECT DISTINCT policy FROM conversations", [done.run]).rows == [
        ("imported",)
    ]
    assert done.run.manifest.kind == "import"


def test_what_makes_a_sample(tmp_path: Path) -> None:
    """example_id, else group, else the same system prompt and first user message."""
    other = [{"role": "user", "content": "3 + 3?"}, FOUR]
    done = bring(
        tmp_path,
        row(example_id="a", group="g", temperature=0.3),
        row(example_id="b", group="g", temperature=0.3),
        row(group="h", temperature=0.3),
        {"messages": other, "group": "h", "temperature": 0.7},
        row(temperature=0.3),
        row(temperature=0.7),
        {"messages": other, "temperature": 0.3},
    )
    rows = run_query(
        "SELECT example_id, group_id, sample FROM conversations ORDER BY conversation_id",
        [done.run],
    ).rows
    assert rows[:4] == [("a", "g", 0), ("b", "g", 0), ("h", "h", 0), ("h", "h", 1)]
    assert rows[4][0] == rows[5][0] != rows[6][0]
    assert [r[2] for r in rows[4:]] == [0, 1, 0]
    assert done.run.manifest.temperatures == (0.3, 0.7)


def test_sharegpt_and_other_names(tmp_path: Path) -> None:
    """conversations/from/value, developer, text parts, a system field."""
    done = bring(
        tmp_path,
        {"conversations": [{"from": "system", "value": "S"}, {"from": "human", "value": "hi"},
                           {"from": "gpt", "value": "hello"}]},
        {"system": "S", "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]}, FOUR]},
    )  # fmt: skip
    for talk in done.run.conversations():
        assert talk.systems == {"assistant": "S"}
        assert talk.turns[0].content == "hi"
    assert done.examples == 1


def test_choices_and_answer_are_graded(tmp_path: Path) -> None:
    """Where the log has them."""
    done = bring(tmp_path, {
        "messages": [USER, {"role": "assistant", "content": "The answer is B."}],
        "question": "2 + 2?", "choices": ["3", "4"], "answer": "B", "split": "test"})  # fmt: skip
    assert run_query("SELECT answer, correct, split FROM conversations", [done.run]).rows == [
        ("B", True, "test")
    ]


BAD = [
    ("{", r":2: not JSON"),
    ("[1]", r":2: found list; expected an object"),
    ({"text": "hi"}, r":2: found no messages; expected messages"),
    ({"messages": []}, "found no messages"),
    ({"messages": ["hi"]}, r"messages\[0\]: found str"),
    ({"messages": [{"role": "judge", "content": "x"}]}, r"messages\[0\]: role 'judge'"),
    ({"messages": [{"role": "user", "content": 3}]}, r"messages\[0\]: content is int"),
    ({"messages": [USER, {"role": "assistant", "content": [{"type": "input_audio"}]}]},
     "part of type 'input_audio'"),
    (row(reward="high"), ":2: reward: found 'high'; expected a number of at most"),
    (row(reward=True), "reward: found True;"),
    ('{"messages": [{"role":"user","content":"x"},{"role":"assistant","content":"y"}], '
     '"reward": NaN}', ":2: not JSON"),
    (row(rewards={"a": 1, "b": 2}), "name one of them `reward`"),
    (row(split="dev"), "split: found 'dev'; expected one of train, validation, test"),
    (row(temperature=-1), "temperature: found -1"),
    (row(group=["x"]), "group: found list; expected text"),
    (row(choices="AB"), "choices: expected a list of texts"),
    (row(split="test"), "split 'test', but line 1 has 'train'"),
]  # fmt: skip


TOOL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}


def nested(levels: int) -> dict[str, Any]:
    """An object in an object."""
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"in": found}
    return found


DEEP = nested(40)
BAD += [
    (row(rewrad=1), r":2: found an unknown key .*'rewrad'; did you mean 'reward'"),
    (row(Reward=1), "did you mean 'reward'"),
    (row(spilt="test"), "did you mean 'split'"),
    ({"message": [USER, FOUR]}, "did you mean 'messages'"),
    (row(reward=1, rewards=[1, 0]), "found reward and rewards; expected one of them"),
    (row(conversations=[{"from": "gpt", "value": "x"}]), "found messages and conversations"),
    (
        {"messages": [USER, TOOL, {"role": "tool", "content": "x", "tool_call_id": "1"}, FOUR]},
        r"messages\[1\]: tool_calls: expected \[\{id, function",
    ),
    (
        {"messages": [USER, {"role": "function", "content": "x"}, FOUR]},
        r"messages\[1\]: found a tool's",
    ),
    ({"messages": [USER, {"role": "assistant", "content": None}]}, "found no content; expected"),
    ({"messages": [USER, {"role": "assistant", "contnet": "4"}]}, "did you mean 'content'"),
    ({"messages": [USER, {**FOUR, "roles": "x"}]}, r"messages\[1\]: .*did you mean 'role'"),
    (row(metadata=[1]), "metadata: found list; expected an object"),
    (row(metadata="x"), "metadata: found text; expected an object"),
    (row(metadata=DEEP), "metadata: found more than 32 levels"),
    (row(metadata=json.dumps(DEEP)), "metadata: found more than 32 levels"),
    (row(hidden=DEEP), "hidden: found more than 32 levels"),
    (row(hidden=nested(250)), "hidden: found more than 32 levels"),
    (row(hidden=nested(900)), "hidden: found more than 32 levels"),
    (row(metadata={"message_fields": 3}), "message_fields: expected a list of objects"),
]


def test_what_was_written_is_read_before_the_folder_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no bound on a row's levels, those that JSON can write and not read."""
    monkeypatch.setattr(shapes, "DEEPEST", 1000)
    with pytest.raises(DataError, match=r"read back: examples\.jsonl:2: .*recursion limit"):
        bring(tmp_path, row(reward=1), row(hidden=nested(230), example_id="deep"))
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


@pytest.mark.parametrize(("bad", "words"), BAD)
def test_a_bad_row_is_named_by_its_line(bad: Any, words: str, tmp_path: Path) -> None:
    """And nothing is written."""
    with pytest.raises(DataError, match=words) as caught:
        bring(tmp_path, row(reward=1), bad)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


def test_places_and_empty_files(tmp_path: Path) -> None:
    """A file that is not there, an empty one, a directory that is taken."""
    with pytest.raises(DataError, match="cannot be read"):
        import_file(tmp_path / "absent", tmp_path / "run", "id")
    with pytest.raises(DataError, match="found no rows"):
        bring(tmp_path, "")
    bring(tmp_path, row())
    with pytest.raises(RunError, match="already exists"):
        bring(tmp_path, row())


def test_an_imported_run_opens_again(tmp_path: Path) -> None:
    """With its judge's spec, for training and reports."""
    done = bring(tmp_path, row(reward=1), row(reward=0))
    run = Run.open(done.run.path)
    verdicts = list(run.verdicts())
    assert {v.fingerprint for v in verdicts} == set(run.judge_specs())
    assert len(run.examples) == 1


@pytest.mark.parametrize(("rewards", "scale"), [
    ((0.5, 0.25), (0, 1)), ((1, -1), (-1, 1)), ((3, 5), (0, 5)), ((-2.5, 40), (-2.5, 40)),
    (({"overall": 1, "style": 10}, 0.5), (0, 10)), ((None, None), (0, 1)),
])  # fmt: skip
def test_the_scale_of_rewards_is_that_of_the_log(
    rewards: tuple[Any, ...], scale: tuple[float, float], tmp_path: Path
) -> None:
    """A report names it, and agreement with other judges is measured on it. It is one judge all
    the same, so that logs of several scales are learnt from as one."""
    run = bring(tmp_path, *(row(reward=reward) for reward in rewards)).run
    ((mark, spec),) = run.judge_specs().items()
    assert spec.score_limits("overall") == scale
    other = import_file(write(tmp_path / "b.jsonl", row(reward=99)), tmp_path / "b", "id2").run
    assert list(other.judge_specs()) == [mark]


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    for name, text in (("a.jsonl", json.dumps(row())), ("b.json", json.dumps([row()]))):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\r\n\r\n")
        assert import_file(tmp_path / name, tmp_path / name[0], name[0]).conversations == 1


@pytest.mark.parametrize(("reward", "said"), [(True, "True"), ("0.5", "'0.5'"), (1e300, "1e+300")])
def test_a_reward_that_is_no_number_is_said_as_the_log_has_it(
    reward: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        bring(tmp_path, row(reward=reward))
    assert f": reward: found {said}; expected a number of at most" in str(caught.value)


THOUGHT = {**FOUR, "reasoning_content": "2 and 2", "turn_id": "t9"}
META = {"user": "u1", "scores": [1, 2]}


def test_what_a_log_says_beside_is_kept_queried_and_exported_again(tmp_path: Path) -> None:
    """Metadata, keys of its own and fields of messages; the note counts them."""
    done = bring(
        tmp_path,
        row(metadata=META, reward=1, id="chat-7", model="m1"),
        {"messages": [USER, THOUGHT], "reward": 0, "model": "m2"},
        row(reward=0.5, source=None),
    )
    (note,) = [note for note in done.notes if "stored as metadata" in note]
    assert note.endswith("model (2), user (1), scores (1), id (1), of messages turn_id (1)")
    found = run_query(
        "SELECT metadata->>'$.user', metadata->>'$.model', "
        "metadata->>'$.message_fields[1].turn_id' FROM conversations "
        "ORDER BY conversation_id",
        [done.run],
    ).rows
    assert found == [("u1", "m1", None), (None, "m2", "t9"), (None, None, None)]
    lines = done.run.conversations_file.read_text().splitlines()
    assert ["metadata" in json.loads(line) for line in lines] == [True, True, False]
    file = export_run(done.run, "trl", tmp_path / "out").files["train"]
    bare = export_run(done.run, "openai", tmp_path / "bare")
    assert bare.notes == [
        "openai cannot hold the metadata of 2 conversations",
        "openai cannot hold the reasoning of 1 conversations",
    ]
    again = import_file(file, tmp_path / "again", "id2", "log")
    assert [talk.metadata for talk in again.run.conversations()] == [
        talk.metadata for talk in done.run.conversations()
    ]
    for run in (done.run, again.run):
        thoughts = [turn.reasoning for talk in run.conversations() for turn in talk.turns]
        assert [found.text for found in thoughts if found] == ["2 and 2"]
    policy = done.run.manifest.protocol.policy
    for talk in done.run.conversations():
        assert messages_before(done.run.manifest.protocol, talk, policy) == [USER, FOUR]
