"""Logs that do not end with the assistant's words: its turns are learnt, the rest is context."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import DataError
from convbench.formats.importing import ImportResult, import_file
from convbench.judges.fence import fence_transcript
from convbench.learn.export import export_run
from convbench.learn.rows import mask_stretches, prompted_replies
from convbench.learn.tokens import ChatTokens
from convbench.schema import Conversation, Tool
from convbench.views import messages_before, transcript
from tests.helpers.tokenizers import tokenizer

USER = {"role": "user", "content": "What do eggs cost?"}
SAID = {"role": "assistant", "content": "POLICY: 73 pence."}
THANKS = {"role": "user", "content": "THANKS ###STOP###"}
LATE = {"role": "system", "content": "LATE: be brief."}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "abcdefghi", "function": {"name": "lookup", "arguments": '{"item": "CALLED"}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "content": "RESULT"}
TOOL = Tool(
    name="lookup", about="Looks up.", function="x:y",
    parameters={"type": "object", "properties": {"item": {"type": "string"}}},
)  # fmt: skip


def bring(tmp_path: Path, *rows: list[dict[str, Any]], name: str = "log.jsonl") -> ImportResult:
    text = "".join(json.dumps({"messages": row, "reward": 1}) + "\n" for row in rows)
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return import_file(path, tmp_path / "run", "20260101-000000-abcdef01", "log")


def talk_of(done: ImportResult) -> Conversation:
    (talk,) = done.run.conversations()
    return talk


def learnt(done: ImportResult, template: str = "qwen3") -> tuple[str, str]:
    """(what is learnt, what is context) of the one conversation, as a template writes it."""
    chat = ChatTokens(tokenizer(template), options={"tools": [TOOL.wire]})
    rows = chat.token_rows(
        prompted_replies(done.run.manifest.protocol, talk_of(done)), "2026-11-20"
    )
    pieces = [(on, chat.tokenizer.decode(ids)) for row in rows for on, ids in mask_stretches(row)]
    return "".join(t for on, t in pieces if on), "".join(t for on, t in pieces if not on)


def test_a_log_that_ends_with_the_user(tmp_path: Path) -> None:
    done = bring(tmp_path, [USER, SAID, THANKS])
    own, other = learnt(done)
    assert own == "POLICY: 73 pence.<|im_end|>"
    assert "THANKS" not in other
    assert "THANKS" in transcript(talk_of(done))
    assert any(
        note.startswith("1 rows end with a message that has no reply") for note in done.notes
    )
    written = export_run(done.run, "openai", tmp_path / "out").files["train"]
    assert json.loads(written.read_text())["messages"][-1]["role"] == "assistant"


@pytest.mark.parametrize("after", [[RESULT], []])
def test_a_log_that_ends_with_a_tool(tmp_path: Path, after: list[dict[str, Any]]) -> None:
    done = bring(tmp_path, [USER, SAID, THANKS, CALL, *after])
    own, other = learnt(done)
    assert own.count("CALLED") == 1
    assert own.count("<|im_end|>") == 2  # of the words and of the call: no empty reply is learnt
    assert "RESULT" not in own + other  # nothing was said after it
    talk = talk_of(done)
    seen = messages_before(done.run.manifest.protocol, talk, "assistant")
    assert [one["role"] for one in seen][-len(after) - 1 :] == ["assistant", "tool"][
        : len(after) + 1
    ]
    for text in (transcript(talk), "".join(fence_transcript(talk, 0, "k"))):
        assert ("RESULT" in text) is bool(after)
        assert not text.rstrip().endswith("Assistant:")


def test_calls_that_the_user_breaks_into(tmp_path: Path) -> None:
    own, other = learnt(bring(tmp_path, [USER, CALL, RESULT, THANKS, SAID]))
    assert own.count("<|im_end|>") == 2
    assert "CALLED" in own
    assert "RESULT" in other
    assert "THANKS" in other


@pytest.mark.parametrize("template", ["qwen3", "llama3_1", "gemma", "qwen3_5_think"])
def test_a_system_message_behind_others_is_context(tmp_path: Path, template: str) -> None:
    """As a system message where the template shows one there, else as the user's words."""
    done = bring(tmp_path, [USER, SAID, LATE, THANKS, SAID])
    own, other = learnt(done, template)
    assert own.count("POLICY") == 2
    assert "LATE" not in own
    assert other.count("LATE") >= 1
    assert "THANKS" in other
    seen = messages_before(done.run.manifest.protocol, talk_of(done), "assistant")
    assert [one["role"] for one in seen] == ["user", "assistant", "system", "user", "assistant"]
    assert any("system messages after other messages" in note for note in done.notes)


def test_what_nothing_can_be_made_of_is_left_out_and_counted(tmp_path: Path) -> None:
    done = bring(tmp_path, [USER, SAID], [USER], [RESULT, USER, SAID], [USER, THANKS])
    assert done.conversations == 1
    (note,) = [text for text in done.notes if "left out" in text]
    assert note.startswith("of 4 rows 3 left out (2: no reply, 1: a tool's result without its call")
    assert "log.jsonl:2" in note


def test_nothing_is_imported_where_all_are_left_out(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"found no rows; .* 1 left out \(1: no reply\)"):
        bring(tmp_path, [USER])


def test_a_gzipped_log_is_read(tmp_path: Path) -> None:
    done = bring(tmp_path, [USER, SAID], name="log.jsonl.gz")
    assert done.conversations == 1
    broken = tmp_path / "bad.jsonl.gz"
    broken.write_bytes(b"\x1f\x8b no gzip")
    with pytest.raises(DataError, match=r"bad\.jsonl\.gz: cannot be unpacked"):
        import_file(broken, tmp_path / "two", "id", "two")
    slip = tmp_path / "slip.jsonl.gz"
    slip.write_bytes(gzip.compress(b'{"mesages": []}\n'))
    with pytest.raises(DataError, match=r"slip\.jsonl\.gz:1: ") as found:
        import_file(slip, tmp_path / "two", "id", "two")
    assert "convbench-" not in str(found.value)
