"""A run folder of another format is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench.errors import RunError
from convbench.schema.run import FORMAT
from convbench.store.run_format import parse_manifest
from tests.helpers.cli import convbench

WRONG = {
    "none": ({"format": None}, r"^here: format: found None; expected 1"),
    "absent": ({}, r"^here: format: found None; expected 1"),
    "text": ({"format": "1"}, r"^here: format: found '1'; expected 1"),
    "a boolean": ({"format": True}, r"^here: format: found True; expected 1"),
    "below one": ({"format": 0}, r"^here: format: found 0; expected 1"),
    "newer": ({"format": FORMAT + 1, "version": "9.8.7"}, "written by convbench '9.8.7'; this"),
    "no version": ({"format": 7, "version": ["\x1b[2J"]}, "written by a newer convbench; this"),
}


@pytest.mark.parametrize("name", WRONG)
def test_parse_manifest_refuses_another_format(name: str) -> None:
    record, expected = WRONG[name]
    with pytest.raises(RunError, match=expected):
        parse_manifest("here", json.dumps(record).encode())


def test_command_refuses_a_newer_run_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"format": FORMAT + 1, "version": "9.8.7"}))
    error = convbench(tmp_path, "report", "runs/one").error
    assert f"run.json: format: found {FORMAT + 1}, written by convbench '9.8.7'" in error
    assert "update convbench (pip install -U convbench)" in error
