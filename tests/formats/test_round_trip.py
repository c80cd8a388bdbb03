"""What is exported is imported again as it was, and other programs' readers of columns take it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench.formats.export import Target
from convbench.formats.importing import import_logs
from convbench.learn.export import export_run
from tests.helpers.imports import import_rows, said
from tests.helpers.made_logs import CHAT

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
