"""A run folder of an older format serves every command; one of a newer format is refused.

`format_0/run`: eight conversations and their verdicts by judge `rules`, written by the convbench of
2026-11-24 without the number.
"""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import RunError
from convbench.formats.check import check_run
from convbench.schema.run import FORMAT, RunManifest
from convbench.store import Run
from convbench.store.run_format import UPGRADES, parse_manifest
from tests.helpers.cli import Done, convbench

OLD = Path(__file__).parent / "format_0" / "run"
RUN = Path("runs/one")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(OLD, tmp_path / RUN)
    return tmp_path


def printed(done: Done) -> str:
    assert done.code == 0, done.out + done.err
    return " ".join((done.out + done.err).split())


def test_there_is_a_step_for_every_older_format() -> None:
    assert len(UPGRADES) == FORMAT
    assert RunManifest.model_fields["format"].default == FORMAT


def test_manifest_without_a_number_is_upgraded_and_left_as_it_is() -> None:
    before = (OLD / "run.json").read_bytes()
    assert "format" not in json.loads(before)
    assert Run.open(OLD).manifest.format == FORMAT
    assert (OLD / "run.json").read_bytes() == before


COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("list runs", "pocket thinking local:pocket 8 rules"),
    "show": ("show 94c0adac --run runs/one", "What is the tool of karek?"),
    "query": (
        "query 'select count(*), count(*) filter (correct) from conversations' --run runs/one"
        " --format csv",
        "8,1",
    ),
    "judge": ("judge --judge rules --run runs/one", "rules 8 0 3.38"),
    "report": ("report runs/one --split all", "Base 1 4 0.2500"),
    "export": ("export --run runs/one --to trl", "6 rows in runs/one/export/trl/train.jsonl"),
    "train": ("train swift --run runs/one --model local:pocket --dry-run", "memory: fits"),
    "verify": ("verify runs/one", "every file is as it was written"),
    "publish": ("publish me/set --run runs/one --dry-run", "train 6, test 2"),
    "view": ("view runs/one --static page", "page"),
    "tag": ("tag runs/one --tag first", "first"),
    "eval": ("eval local:pocket --run runs/one --dry-run", "conversations 2"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_takes_a_run_of_format_0(name: str, folder: Path) -> None:
    command, expected = COMMANDS[name]
    assert expected in printed(convbench(folder, *shlex.split(command)))
    assert (folder / RUN / "run.json").read_bytes() == (OLD / "run.json").read_bytes()


def test_build_resumes_a_run_of_format_0(folder: Path) -> None:
    file = folder / RUN / "conversations.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]))
    assert "1/1" in printed(convbench(folder, "build", "--run", str(RUN)))
    assert {c.key for c in Run.open(folder / RUN).conversations()} == {
        json.loads(line)["key"] for line in lines
    }


def test_published_set_of_format_0_can_be_pulled(folder: Path) -> None:
    assert check_run(folder / RUN, "dataset me/set").format == FORMAT


@pytest.fixture
def newer(folder: Path) -> Path:
    change_manifest(folder / RUN, format=FORMAT + 1, version="9.8.7", unheard_of=1)
    return folder


def change_manifest(run: Path, **fields: Any) -> None:
    record = json.loads((run / "run.json").read_bytes())
    (run / "run.json").write_text(json.dumps(record | fields))


READERS = ("show", "query", "judge", "report", "export", "train", "verify", "publish", "view")


@pytest.mark.parametrize("name", [*READERS, "resume"])
def test_run_of_a_newer_format_is_refused_in_one_line(name: str, newer: Path) -> None:
    command = "build --run runs/one" if name == "resume" else COMMANDS[name][0]
    error = convbench(newer, *shlex.split(command)).error
    assert f"run.json: format: found {FORMAT + 1}, written by convbench '9.8.7'" in error
    assert f"this version reads formats up to {FORMAT}; update convbench" in error
    assert "pip install -U convbench" in error


def test_list_shows_the_others_and_names_the_newer_run(newer: Path) -> None:
    shutil.copytree(OLD, newer / "runs/two")
    shown = printed(convbench(newer, "list", "runs"))
    assert "runs/two" in shown
    assert f"runs/one/run.json: format: found {FORMAT + 1}" in shown


WRONG = (None, "1", 1.0, True, -1, [1])


@pytest.mark.parametrize("number", WRONG, ids=repr)
def test_number_that_is_none_is_refused(number: object) -> None:
    data = json.dumps({"format": number}).encode()
    with pytest.raises(RunError, match=r"^here: format: found .*; expected a number of at least 0"):
        parse_manifest("here", data)


def test_newer_format_names_no_version_that_is_no_text() -> None:
    with pytest.raises(RunError, match="written by a newer convbench; this"):
        parse_manifest("here", json.dumps({"format": 7, "version": ["\x1b[2J"]}).encode())


def test_deep_manifest_of_format_0_is_refused() -> None:
    data = b'{"extra": ' + b"[" * 300 + b"]" * 300 + b"}"
    with pytest.raises(RunError, match="nested more than 64 deep"):
        parse_manifest("here", data)
