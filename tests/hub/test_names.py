"""Names of strangers: no file is made of one, no terminal steered, no page or card led astray."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from pydantic import TypeAdapter, ValidationError
from rich.table import Table

from convbench.errors import HubError, RunError
from convbench.hub.pull_check import check_run
from convbench.rollout.plan import conversation_id
from convbench.schema import Metric, Verdict
from convbench.schema.base import ConversationId
from convbench.store import Run
from convbench.store.formats import format_result
from convbench.store.query import run_query
from convbench.util.terminal import Terminal
from tests.helpers import stages
from tests.helpers.runs import conversation, write_run

STEERS = ("j\x1b]0;PWN\x07", "\x1b[2J", "a\u202eb", "\x9b2J", "a\rb", "\x00")
PATHS = ("/etc/notes", "../notes", "a/b", "..", ".x", "a b", "a\0b", "a\n", "", "x" * 201, "a#b")
GOOD = (
    conversation_id("20260101-120000-abcd", "q0/0"), "20260101-120000-abcd-000001", "run-q0-0",
    "x" * 200, "_a.b-c", "é1",
)  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_what_conversations_are_called_is_taken(name: str) -> None:
    assert TypeAdapter(ConversationId).validate_python(name) == name
    assert conversation(0, conversation_id=name).conversation_id == name


@pytest.mark.parametrize("name", PATHS)
def test_what_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        conversation(0, conversation_id=name)
    if len(name) <= 200:  # a verdict's is looked for among those of the run
        with pytest.raises(ValidationError):
            Verdict(conversation_id=name, judge="j", fingerprint="f00d")


def test_a_judge_scores_turns_and_controls_too() -> None:
    for name in ("run-q0-0#turn-3", "control:empty:../any text\n"):
        assert Verdict(conversation_id=name, judge="j", fingerprint="f").conversation_id == name


RECORDS = ("conversations.jsonl", "verdicts.jsonl")


def rename(folder: Path, old: str, new: str, files: tuple[str, ...] = RECORDS) -> None:
    """Give a conversation another id in the records of a run."""
    for file in files:
        path = folder / file
        path.write_text(path.read_text().replace(json.dumps(old), json.dumps(new)))


@pytest.mark.parametrize("files", [RECORDS, RECORDS[:1], RECORDS[1:]])
def test_a_set_writes_no_file_of_a_users(tmp_path: Path, files: tuple[str, ...]) -> None:
    """Neither where it is published anew, nor where it is pulled."""
    victim = tmp_path / "notes.jsonl"
    victim.write_text("mine\n")
    run = write_run(tmp_path / "run")
    first = next(run.conversations()).conversation_id
    rename(run.path, first, str(victim.with_suffix("")), files)
    before = sorted(tmp_path.rglob("*"))
    named = "|".join(files)  # whichever of the changed files is read first
    with pytest.raises(RunError, match=rf"(?:{named}):\d+: conversation_id: "):
        stages.publish(Run.open(run.path), "me/set")
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(HubError, match="conversation_id: "):
        check_run(run.path, "mallory/set")
    assert victim.read_text() == "mine\n"


def test_traces_are_numbered(tmp_path: Path) -> None:
    folder = stages.publish(write_run(tmp_path / "run"), "me/set").folder
    names = sorted(path.name for path in (folder / "traces").iterdir())
    assert names == [f"{number:05}.jsonl" for number in range(1, len(names) + 1)]


@pytest.mark.parametrize("text", STEERS)
def test_names_that_steer_a_terminal_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        Verdict(conversation_id="c", judge=text, fingerprint="f00d")
    with pytest.raises(ValidationError):
        Metric(name="overall", label=text)


@pytest.mark.parametrize("text", STEERS)
def test_the_console_shows_none_of_it(text: str) -> None:
    """In a table, a line and a moving display; colours stay."""
    shown = io.StringIO()
    console = Terminal(file=shown, force_terminal=True, color_system="standard", width=60)
    table = Table(text)
    table.add_row(text)
    console.print(table)
    console.print(text, style="red", markup=False)
    with console.status(text):
        pass
    assert "\x1b[31m" in shown.getvalue()
    for steering in ("\x1b]0;", "\x07", "\x1b[2J", "\u202e", "\x9b", "\x00"):
        assert steering not in shown.getvalue()


HEADS = 'select 1 as "a\x1b]0;PWN\x07\x1b[2J", 2 as "b\x9b"'


def test_heads_of_a_table_steer_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    found = run_query(HEADS, [run])
    for width in (200, 10):
        shown = format_result(found, "table", width).decode()
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert "\x9b" not in shown
    assert "\x1b" in format_result(found, "csv").decode()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_a_terminal_gets_no_escapes_of_a_query(form: str, tmp_path: Path) -> None:
    """On a real terminal, whatever the format."""
    run = write_run(tmp_path / "run")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "convbench", "query", HEADS, "--run", str(run.path)]
    process = subprocess.Popen([*command, "--format", form], stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    try:
        while block := os.read(ours, 4096):
            said += block
    except OSError:  # the other end was closed
        pass
    assert process.wait(120) == 0, said
    os.close(ours)
    assert b"PWN" in said
    assert b"\x1b" not in said
    assert b"\x07" not in said


TITLE = "![p](https://evil.example/p.png) <img src=x> [go](https://evil.example) www.evil.example `"


def tokens(text: str) -> list[Any]:
    """Return all that a reader of Markdown sees in a card."""
    found = MarkdownIt("commonmark").enable("table").parse(text.partition("\n---\n")[2])
    return [*found, *(inner for one in found for inner in one.children or ())]


def test_a_card_holds_no_image_or_link_of_others(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    spec = json.loads((run.path / "run.json").read_text())
    spec["task"]["title"] = spec["protocol"]["title"] = TITLE
    spec["task"]["licence"] |= {"note": TITLE, "source": TITLE, "citation": "```\n" + TITLE}
    spec["cast"]["assistant"]["model"] = f"x`{TITLE}"
    spec["packages"] = {TITLE: TITLE}
    (run.path / "run.json").write_text(json.dumps(spec))
    folder = stages.publish(Run.open(run.path), "me/set").folder
    found = tokens((folder / "README.md").read_text())
    assert [one for one in found if one.type == "image"] == []
    assert [one.attrs["href"] for one in found if one.type == "link_open"
            and "evil" in str(one.attrs["href"])] == []  # fmt: skip
    html = [one.content for one in found if one.type.startswith("html")]
    assert not [text for text in html if "img" in text]
    # nor what a reader would make a link of by itself
    words = [one.content for one in found if one.type.startswith("text")]
    assert not [text for text in words if "://evil" in text or "www.evil" in text]
    assert any("evil.example" in one.content for one in found)
