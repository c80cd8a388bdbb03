"""Logs of Inspect: one that inspect_ai 0.3.285 wrote with its own `mockllm`, and hostile ones.

The log is of two samples, two epochs, a system prompt, two questions each, and scorer `includes`.
"""

import io
import json
import struct
import zipfile
import zlib
from pathlib import Path

import orjson
import pyarrow
import pytest

from convbench.errors import DataError
from convbench.formats import inspect_log
from convbench.formats.importing import import_file, read_chats
from convbench.formats.inspect_log import ZSTANDARD
from convbench.formats.rows import logged_rows

LOG = Path(__file__).with_name("inspect_0_3_285.eval")


def chats(path, names=None):
    """Read a log's conversations."""
    rows, _ = logged_rows(str(path), [])
    return list(read_chats(rows, names))


def unpacked():
    """The files of the log, read by other means than ours."""
    raw, found = LOG.read_bytes(), {}
    for entry in zipfile.ZipFile(LOG).infolist():
        assert entry.compress_type == ZSTANDARD
        head = raw[entry.header_offset : entry.header_offset + 30]
        start = entry.header_offset + 30 + sum(struct.unpack("<HH", head[26:30]))
        packed = raw[start : start + entry.compress_size]
        data = pyarrow.decompress(packed, entry.file_size, codec="zstd").to_pybytes()
        assert zlib.crc32(data) == entry.CRC
        found[entry.filename] = data
    return found


FILES = unpacked()


def deflated(path, files):
    """The same log as older versions wrote it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def as_json(path):
    """The same log as one JSON file, its fields in their order."""
    samples = [orjson.loads(d) for name, d in FILES.items() if name.startswith("samples/")]
    path.write_bytes(orjson.dumps({**orjson.loads(FILES["header.json"]), "samples": samples}))
    return path


@pytest.mark.parametrize("kind", ["as it was written", "deflated", "json"])
def test_a_real_log_becomes_conversations(tmp_path, kind):
    path = {"deflated": lambda: deflated(tmp_path / "log.eval", FILES),
            "json": lambda: as_json(tmp_path / "log.json")}.get(kind, lambda: LOG)()  # fmt: skip
    done = import_file(path, tmp_path / "run", "r1")
    assert (done.conversations, done.examples, done.rewards) == (4, 2, 4)
    talks = {(t.example_id, t.metadata["inspect"]["epoch"]): t for t in done.run.conversations()}
    talk = talks["magnet", 1]
    assert talk.systems == {"assistant": "Be brief."}
    assert [turn.content for turn in talk.turns] == [
        "What does a magnet pull?", "It pulls iron.", "Are you sure?", "It pulls iron."
    ]  # fmt: skip
    assert talk.metadata["topic"] == "physics"
    assert talk.metadata["inspect"]["model"] == "mockllm/model"
    assert talk.metadata["inspect"]["scores"]["includes"]["explanation"] == "It pulls iron."
    example = done.run.examples["magnet"]
    assert (example.question, example.hidden) == ("What does a magnet pull?", {"reference": "iron"})
    rewards = {v.conversation_id: v.reward for v in done.run.verdicts()}
    told = {key: rewards[talk.conversation_id] for key, talk in talks.items()}
    assert told == {("magnet", 1): 1.0, ("magnet", 2): 0.0, ("ice", 1): 0.0, ("ice", 2): 1.0}


def changed(tmp_path, **fields):
    """The log with fields of one sample changed."""
    name = "samples/magnet_epoch_1.json"
    sample = {**orjson.loads(FILES[name]), **fields}
    return deflated(tmp_path / "log.eval", {**FILES, name: orjson.dumps(sample)})


def chat(tmp_path, names=None, **fields):
    found = chats(changed(tmp_path, **fields), names)
    return next(c for c in found if c.metadata["inspect"]["epoch"] == 1 and c.example == "magnet")


def test_of_several_scores_one_is_named(tmp_path):
    scores = {"includes": {"value": "P"}, "words": {"value": 3}, "grid": {"value": {"a": 1}}}
    one = chat(tmp_path, scores=scores)
    assert one.reward is None
    assert one.metadata["scores"] == {"includes": 0.5, "words": 3.0}
    others = {name: d for name, d in FILES.items() if "magnet_epoch_1" in name or "sam" not in name}
    sample = {**orjson.loads(others["samples/magnet_epoch_1.json"]), "scores": scores}
    path = deflated(tmp_path / "one.eval",
                    {**others, "samples/magnet_epoch_1.json": orjson.dumps(sample)})  # fmt: skip
    (only,) = chats(path, {"reward": "scores.words"})
    assert only.reward == 3.0


def test_thoughts_tools_and_texts_kept_aside_are_put_in_their_places(tmp_path):
    call = {"id": "t1", "function": "weigh", "arguments": {"of": "nail"}, "type": "function"}
    told = [
        {"role": "user", "content": "attachment://ab"},
        {"role": "assistant", "content": [
            {"type": "reasoning", "reasoning": "Weigh it."}, {"type": "text", "text": "Let me see."}
        ], "tool_calls": [call]},
        {"role": "tool", "content": "4 g", "tool_call_id": "t1", "function": "weigh"},
        {"role": "assistant", "content": "It is iron."},
        {"role": "user", "content": "never answered"},
    ]  # fmt: skip
    one = chat(tmp_path, messages=told, attachments={"ab": "A long question?"})
    assert [text for _, text in one.dialogue.messages] == [
        "A long question?", "It is iron.", "never answered",
    ]  # fmt: skip
    (rounds,) = one.dialogue.rounds.values()
    assert rounds[0].reasoning.text == "Weigh it."
    assert rounds[0].calls[0].name == "weigh"
    assert json.loads(rounds[0].calls[0].arguments) == {"of": "nail"}


def test_samples_without_a_reply_are_left_out_and_counted(tmp_path):
    path = changed(tmp_path, messages=[{"role": "user", "content": "Hm?"}],
                   error={"message": "the provider said 503"})  # fmt: skip
    done = import_file(path, tmp_path / "run", "r1")
    assert done.conversations == 3
    (note,) = [text for text in done.notes if "left out" in text]
    assert note.startswith("of 4 rows 1 left out (1: the provider said 503); the first: ")


def bomb(tmp_path, count=64):
    """A sample of many megabytes that packs to a few thousand bytes, and lies about its size."""
    data = b'{"messages": ["' + b"a" * (count << 20) + b'"]}'
    path = deflated(tmp_path / "bomb.eval", {**FILES, "samples/magnet_epoch_1.json": data})
    raw = path.read_bytes()
    assert len(raw) < 1 << 20
    path.write_bytes(raw.replace(struct.pack("<I", len(data)), struct.pack("<I", 100)))
    return path


@pytest.mark.parametrize("kind", ["deflated", "zstd"])
def test_a_bomb_is_refused_while_it_is_unpacked(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(inspect_log, "LARGEST", 1 << 20)
    if kind == "deflated":
        path = bomb(tmp_path, 2)
    else:
        path = tmp_path / "bomb.eval"
        path.write_bytes(zstd_archive(b"{" + b" " * (4 << 20) + b"}"))
    with pytest.raises(DataError, match=r"when unpacked; refused|cannot be unpacked"):
        chats(path)


def zstd_archive(sample):
    """An archive with one sample packed with Zstandard, which `zipfile` cannot write."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("header.json", FILES["header.json"])
        packed = pyarrow.compress(sample, codec="zstd", asbytes=True)
        archive.writestr("samples/x_epoch_1.json", packed)
    raw, entry = bytearray(out.getvalue()), b"samples/x_epoch_1.json"
    first = raw.index(entry) - 30
    raw[first + 8 : first + 10] = struct.pack("<H", ZSTANDARD)
    last = raw.rindex(entry) - 46
    raw[last + 10 : last + 12] = struct.pack("<H", ZSTANDARD)
    return bytes(raw)


def test_the_whole_of_an_archive_is_bounded_too(tmp_path, monkeypatch):
    monkeypatch.setattr(inspect_log, "LARGEST_TOTAL", sum(map(len, FILES.values())) // 2)
    with pytest.raises(DataError, match="when unpacked; refused"):
        chats(deflated(tmp_path / "log.eval", FILES))
    monkeypatch.setattr(inspect_log, "MOST", 3)
    with pytest.raises(DataError, match="expected at most 3"):
        chats(LOG)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"no archive", "is no archive"),
        (b"PK\x05\x06" + bytes(18), r"found no header\.json"),
        (LOG.read_bytes()[:5000], "is no archive"),
    ],
)
def test_what_is_no_log_is_one_line(tmp_path, data, why):
    (tmp_path / "log.eval").write_bytes(data)
    with pytest.raises(DataError, match=why):
        chats(tmp_path / "log.eval")
    with pytest.raises(DataError, match="cannot be read"):
        chats(tmp_path / "none.eval")


@pytest.mark.parametrize(
    "fields",
    [{"messages": 3}, {"messages": [3]}, {"messages": [{"role": "assistant", "tool_calls": [3]}]},
     {"scores": [1]}, {"attachments": 3, "metadata": [3]}, {"error": "text"}],
)  # fmt: skip
def test_samples_of_another_shape_are_one_line_or_read(tmp_path, fields):
    path = changed(tmp_path, **fields)
    if fields.get("messages"):
        with pytest.raises(DataError, match=r"magnet_epoch_1\.json"):
            chats(path)
    else:
        assert len(chats(path)) == 4
