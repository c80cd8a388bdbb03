"""`--json`: one document of one documented schema, from every command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import typer

from convbench.commands._json import answer_schema
from convbench.commands._words import ENTRIES, load_command
from tests.helpers.typed import Typist
from tests.support.app import app

BUILD = ("build", "demo", "--model", "scripted:policy", "--tasks", "4", "--samples", "1")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"


def test_every_command_has_a_schema_and_a_place_in_the_reference() -> None:
    words = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert words == set(ENTRIES)
    for word in words:
        jsonschema.Draft202012Validator.check_schema(answer_schema(load_command(word).answer_class))
    assert set(re.findall(r"^## (\S+)$", PAGE.read_text(), re.M)) >= words


def test_from_question_to_report(typist: Typist) -> None:
    made = typist.json(*BUILD)["result"]
    assert made["conversations"] == 4
    assert made["failed"] == 0
    assert Path(made["run"], "run.json").exists()
    scores = typist.json("judge", "--judge", "rules")["result"]["runs"][0]["judges"][0]
    assert scores["scored"] == 4
    report = typist.json("report", "--split", "all")["result"]
    tables = [table for part in report["parts"] for table in part["tables"]]
    assert tables
    assert all(row for table in tables for row in table["rows"])
    assert tables[0]["rows"][0]["rules/overall_n"] == 4
    rows = typist.json("query", "select run, task from runs")["result"]["rows"]
    assert [row["task"] for row in rows] == ["demo"]
    (run,) = typist.json("list", "runs")["result"]["runs"]
    assert (run["conversations"], run["judges"]) == (4, ["rules"])
    assert run["latest"]


def test_dry_runs_tell_what_it_would_take(typist: Typist) -> None:
    made = typist.json(*BUILD, "--dry-run")
    assert made["result"]["run"] is None
    assert made["result"]["estimate"]["calls"] == 4 * 3
    assert made["next"] == [" ".join(("convbench", *BUILD, "--json"))]
    assert not Path("runs").exists()
    typist(*BUILD)
    found = typist.json("judge", "--judge", "rubric@claude-opus", "--dry-run")["result"]
    (taken,) = found["runs"][0]["estimate"].values()
    assert taken["calls"] == 4
    assert taken["usd"] > 0


def test_a_mistake_is_a_document_too(typist: Typist) -> None:
    said = typist("judge", "--judge", "rules", "--json")
    found = json.loads(said.out)
    assert said.code == found["exit_code"] == 1
    assert found["error"].startswith("found no run here")
    assert found["result"] is None
    assert said.err.startswith("error: found no run here")
    assert json.loads(typist("show", "nothing-like-it", "--json").out)["error"]


@pytest.mark.parametrize(
    ("words", "command", "line"),
    [
        (("build", "demo", "--nope"), "build", "No such option: --nope"),
        (("build", "demo", "--tasks", "x"), "build", "found 'x'; expected a number"),
        (("judge", "--timeout", "-1"), "judge", "Invalid value for '--timeout'"),
        (("report", "--split", "dev"), "report", "'--split': 'dev' is not one of 'train',"),
        (("show",), "show", "Missing argument 'name'."),
        (("list", "tasks", "b"), "list", "unexpected extra argument"),
        (("report", "runs/a", "--run", "runs/b"), "report", "expected each run named once"),
        (("publish", "a/b", "--run", "a", "--run", "b"), "publish", "given 2 times"),
        (("nosuch",), "nosuch", "No such command 'nosuch'."),
        (("--nope", "list"), "list", "No such option: --nope"),
    ],
)
def test_what_cannot_be_read_is_a_document_too(
    typist: Typist, words: tuple[str, ...], command: str, line: str
) -> None:
    said = typist(*words, "--json")
    found = json.loads(said.out)
    assert said.code == found["exit_code"] == typist(*words).code == 2
    assert found["command"] == command
    assert line in found["error"]


def test_exit_codes_are_the_same_with_and_without(typist: Typist) -> None:
    typist(*BUILD, "--run", "runs/one")
    words = ("judge", "--run", "runs/one", "--judge", "human:labels.csv")
    Path("labels.csv").write_text("conversation_id,overall\n")
    plain, document = typist(*words), typist(*words, "--json")
    assert plain.code == document.code
    assert json.loads(document.out)["exit_code"] == plain.code


@pytest.mark.parametrize("word", ["list", "doctor"])
def test_nothing_else_stands_on_stdout(typist: Typist, word: str) -> None:
    assert json.loads(typist(word, "--json").out)["result"]
