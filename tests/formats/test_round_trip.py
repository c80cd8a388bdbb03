"""What is exported is imported again as it was, and other programs' readers of columns take it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from convbench.formats.export import Target
from convbench.formats.importing import import_logs
from convbench.learn.export import export_run
from tests.helpers.imports import import_rows, said
from tests.helpers.made_logs import ATIF, CHAT

TOOL = {"type": "function", "function": {"name": "weather", "description": "degrees",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}  # fmt: skip
ASK = {"role": "user", "content": "Name a bird."}
ROWS: list[dict[str, Any]] = [
    {"messages": [{"role": "system", "content": "Be brief."}, *CHAT], "tools": [TOOL]},
    {"messages": [ASK, {"role": "assistant", "content": "A wren.", "reasoning_content": "Small."}]},
    {"messages": [*CHAT[:2], CHAT[2]], "tools": [TOOL], "lang": "en"},
    {"messages": [ASK, {"role": "assistant", "content": "A", "finish_reason": "length"}]},
]
TARGETS: tuple[Target, ...] = ("trl", "openai", "sharegpt", "ms-swift", "atif")


@pytest.mark.parametrize("to", TARGETS)
def test_import_logs_reads_an_export_as_it_was(tmp_path: Path, to: Target) -> None:
    before = import_rows(tmp_path, ROWS)
    assert before.run is not None
    file = export_run(before.run, to, tmp_path / "out").files["train"]
    after = import_logs(str(file), tmp_path / "again", "id2", "log")
    assert after.run is not None
    assert sorted(said(after), key=str) == sorted(said(before), key=str)
    tools, again = (
        sorted(str(talk.tools) for talk in run.conversations()) for run in (before.run, after.run)
    )
    assert tools == again
    if to != "openai":
        thoughts = [t.reasoning.text for talk in after.run.conversations() for t in talk.turns
                    if t.reasoning]  # fmt: skip
        assert thoughts == ["Small."]


@pytest.mark.parametrize("to", TARGETS)
def test_export_run_writes_arguments_that_strict_json_lacks(tmp_path: Path, to: Target) -> None:
    """Half an emoji, an integer of more than 64 bits, a number that is none."""
    call = {"name": "f", "arguments": '{"a": "\\ud83d", "b": 1' + "0" * 30 + ', "c": NaN}'}
    said = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": call}]}
    before = import_rows(
        tmp_path, [{"messages": [ASK, said, {"role": "assistant", "content": "A"}]}]
    )
    assert before.run is not None
    (line,) = export_run(before.run, to, tmp_path / "out").files["train"].read_bytes().splitlines()
    assert b'"f"' in line or b'\\"f\\"' in line
    orjson.loads(line)


TRAJECTORY = {
    "schema_version": "ATIF-v1.7",
    "session_id": "s",
    "trajectory_id": "t",
    "agent": {"name": "a", "version": "1", "model_name": "m", "extra": {"x": 1}},
    "notes": "n",
    "final_metrics": {"total_steps": 5},
    "steps": [
        {"step_id": 1, "source": "system", "message": "Be brief.", "timestamp": "2026-01-01"},
        {"step_id": 2, "source": "user", "message": [
            {"type": "text", "text": "What is this?"},
            {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}]},
        {"step_id": 3, "source": "agent", "message": "Old.", "is_copied_context": True},
        {"step_id": 4, "source": "agent", "message": "", "reasoning_content": "Ask.",
         "model_name": "m2", "metrics": {"prompt_tokens": 5, "cached_tokens": 2},
         "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {"x": 1}}],
         "observation": {"results": [{"source_call_id": "c", "content": "7"},
                                     {"subagent_trajectory_ref": [{"session_id": "u"}]}]}},
        {"step_id": 5, "source": "agent", "message": "A bird.", "llm_call_count": 1,
         "metrics": {"completion_tokens": 3, "cost_usd": 0.5}, "extra": {"note": "n"}},
    ],
}  # fmt: skip


def test_export_run_gives_a_trajectory_back_as_it_was(tmp_path: Path) -> None:
    done = import_rows(tmp_path, [TRAJECTORY])
    assert done.run is not None
    (line,) = export_run(done.run, "atif", tmp_path / "out").files["train"].read_text().splitlines()
    again = json.loads(line)
    assert again.pop("extra").keys() == {"example_id", "group", "split"}
    assert again == TRAJECTORY


def test_import_logs_reads_all_that_a_trajectory_holds_of_a_run(tmp_path: Path) -> None:
    usage = {"metrics": {"prompt_tokens": 5, "completion_tokens": 3, "cost_usd": 0.5}}
    rows = [{**ATIF, "steps": [ATIF["steps"][0], {**ATIF["steps"][1], **usage}, *ATIF["steps"][2:]],
             "extra": {"split": "test", "group": "g", "example_id": "e"}}]  # fmt: skip
    before = import_rows(tmp_path, rows).run
    assert before is not None
    file = export_run(before, "atif", tmp_path / "out").files["test"]
    after = import_logs(str(file), tmp_path / "again", "id2", "log").run
    assert after is not None
    own = {"conversation_id", "ended"}
    one, two = (next(iter(run.conversations())).model_dump(exclude=own) for run in (before, after))
    assert one == two
    assert one["turns"][1]["prompt_tokens"] == 5
    assert before.examples["e"] == after.examples["e"]


@pytest.mark.parametrize("to", ["trl", "openai", "sharegpt", "ms-swift"])
def test_export_run_is_read_by_a_reader_of_columns(tmp_path: Path, to: str) -> None:
    import datasets

    yes = {"role": "assistant", "content": "Yes."}
    texts = [f"Line {number}. " + "word " * 40 for number in range(60)]
    plain = [{"messages": [{"role": "user", "content": text}, yes]} for text in texts]
    done = import_rows(tmp_path, [*plain, *ROWS])
    assert done.run is not None
    file = export_run(done.run, to, tmp_path / "out").files["train"]
    rows = datasets.load_dataset(
        "json", data_files=str(file), split="train", chunksize=2000, cache_dir=str(tmp_path / "c")
    )
    assert rows.num_rows == 64
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len({tuple(sorted(line)) for line in lines}) == 1


@pytest.mark.parametrize("to", ["trl", "openai", "ms-swift"])
def test_import_logs_reads_exported_pairs_with_their_tools(tmp_path: Path, to: Target) -> None:
    good, bad = ({"role": "assistant", "content": text} for text in ("A wren.", "A spoon."))
    pair = {"chosen": [good], "rejected": [bad]}
    rows = [{"prompt": [ASK], **pair, "tools": [TOOL]}, {"prompt": "And?", **pair}]
    before = import_rows(tmp_path, rows)
    assert before.run is not None
    file = export_run(before.run, to, tmp_path / "out", recipe="dpo").files["train"]
    after = import_logs(str(file), tmp_path / "again", "id2", "log")
    assert after.run is not None
    assert sorted(said(after), key=str) == sorted(said(before), key=str)
    assert sorted(len(talk.tools) for talk in after.run.conversations()) == [0, 0, 1, 1]
