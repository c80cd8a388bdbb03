"""What is printed on terminals of several widths, without colour, and piped."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from convbench.commands import _output
from convbench.errors import RunError, SpecError
from convbench.judges.show import show_conversation
from convbench.store import Run
from tests.helpers.viewer_runs import make, question

LONG = "The field of a magnet pulls iron, nickel and cobalt, " * 8
ODD = "[bold]not markup[/] 漢字漢字 \x1b[31mred\x07 \u202etxt"
SAID = f"<thinking>{LONG}</thinking>\nThe answer is B. {ODD}"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("show") / "run"
    more = {"conversation_id": "0123456789abcdef0123"}
    return make(path, [question(0)], [(0, 0, SAID, more)],
                {"rules": lambda k: 7.0, "broken": lambda k: None})  # fmt: skip


def command(run: Run) -> list[str]:
    """The command to show it."""
    return [sys.executable, "-m", "convbench", "show", "01234567", "--run", str(run.path)]


def on_terminal(run: Run, width: int, **more: str) -> str:
    """What the command writes to a terminal of this width, line ends as in a file."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(command(run), stdin=theirs, stdout=theirs, stderr=theirs,
                               env=env | {"TERM": "xterm-256color"} | more)  # fmt: skip
    os.close(theirs)
    read = b""
    while True:
        try:
            some = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not some:
            break
        read += some
    os.close(ours)
    assert process.wait(120) == 0
    return read.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("width", [80, 200])
def test_text_fits_the_terminal_and_reads_well(run: Run, width: int) -> None:
    """Nothing is cut; text is at most 100 columns wide on a wide terminal."""
    said = on_terminal(run, width)
    lines = ESCAPE.sub("", said).split("\n")
    body = lines[next(k for k, line in enumerate(lines) if line.startswith("teacher · 0")) :]
    body = [line for line in body if not line.startswith("next:")]
    assert max(cell_len(line.rstrip()) for line in body) <= min(width, 100)
    words = " ".join(" ".join(lines).split())
    assert " ".join(LONG.split()) in words
    assert "[bold]not markup[/] 漢字漢字" in words
    assert "overall 7 rules finds this worth 7." in words
    assert "judge broken · no score" in words


def test_what_a_model_wrote_does_not_steer_the_terminal(run: Run) -> None:
    said = on_terminal(run, 80)
    assert "\x1b[31m" not in said
    assert "\x07" not in said
    assert "\u202e" not in said
    assert "�[31mred�" in said


def test_no_color_is_obeyed(run: Run) -> None:
    assert not COLOUR.search(on_terminal(run, 80, NO_COLOR="1"))


def test_piped_it_is_plain_text_in_whole_lines(run: Run) -> None:
    """A line of the conversation is a line for grep, whatever the width; no escapes."""
    env = os.environ | {"COLUMNS": "40"}
    done = subprocess.run(command(run), capture_output=True, text=True, env=env, check=True)
    assert "\x1b" not in done.stdout
    lines = done.stdout.split("\n")
    assert f"<thinking>{LONG}</thinking>" in lines
    assert "── assistant · 3 · final-reply" in lines
    assert sum(line.startswith("── ") for line in lines) == 6
    assert done.stderr == ""


def test_a_reader_that_stops_early_is_no_error(run: Run, tmp_path: Path) -> None:
    script = " ".join(command(run)) + " | head -n 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.stdout.startswith("conversation")
    assert "Traceback" not in done.stderr


def test_conversations_of_an_imported_run_are_found_by_id_too(tmp_path: Path) -> None:
    """Whose ids are not hexadecimal; a task's name stays a task's name."""
    talks = [(0, k, SAID, {"conversation_id": f"imported-00000{k}"}) for k in range(2)]
    path = make(tmp_path / "run", [question(0)], talks, {}).path
    found = show_conversation("imported-000001", [path])
    assert found is not None
    assert found.conversation.sample == 1
    assert show_conversation("arc-easy", [path]) is None
    assert show_conversation("elsewhere", [path]) is None
    with pytest.raises(SpecError, match="imported: found 2 conversations"):
        show_conversation("imported", [path])


def test_a_conversation_about_no_question_is_one_line(tmp_path: Path) -> None:
    run = make(tmp_path / "run", [question(0)], [(0, 0, SAID, {"conversation_id": "lost"})], {})
    (run.path / "examples.jsonl").write_text("")
    with pytest.raises(RunError, match="example_id: found 'q0', which is not in examples"):
        show_conversation("lost", [run.path])


def test_an_id_that_stands_twice_in_a_record_is_refused(tmp_path: Path) -> None:
    """One by which it is found, another by which it would be known: in a pulled run, say."""
    talks = [(0, 0, SAID, {"conversation_id": "asked-for"})]
    run = make(tmp_path / "run", [question(0)], talks, {"rules": lambda k: 8.0})
    for file, other in ((run.verdicts_file, "judge"), (run.conversations_file, "conversation_id")):
        told = file.read_text()
        file.write_text(told.replace("}\n", f',"{other}":"another"}}\n'))
        with pytest.raises(RunError, match=f"found two values of .*{other}"):
            show_conversation("asked-for", [run.path])


def test_of_a_conversation_that_was_repeated_the_newest_is_found(tmp_path: Path) -> None:
    """By its own id, with each judge's newest verdict."""
    talks = [(0, 0, None, {"conversation_id": "once-failed"}),
             (0, 0, SAID, {"conversation_id": "then-said"})]  # fmt: skip
    run = make(tmp_path / "run", [question(0)], talks, {"rules": lambda k: 8.0})
    with run.verdicts_file.open("a") as file:
        file.write(run.verdicts_file.read_text().splitlines()[-1].replace("8.0", "2.0") + "\n")
    assert show_conversation("once-failed", [run.path]) is None
    found = show_conversation("then", [run.path])
    assert found is not None
    assert found.conversation.conversation_id == "then-said"
    assert [one.scores["accuracy"] for one in found.verdicts] == [2.0]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> io.StringIO:
    """What `say` prints on a terminal of 80 columns, or in a pipe."""
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=request.param, color_system=None)
    monkeypatch.setattr(_output, "out", console)
    return file


ADDRESS = "http://127.0.0.1:8642/" + "x" * 90


@pytest.mark.parametrize("written", [True], indirect=True)
def test_on_a_terminal_lines_end_between_words(written: io.StringIO) -> None:
    _output.print_fact("what", f"{LONG}at {ADDRESS} [b]\x1b[31m")
    _output.print_next([("convbench view " + "runs/a " * 6, "(in the browser, with its prompts)")])
    _output.print_fact("view", ADDRESS)
    lines = written.getvalue().split("\n")
    assert lines[-2] == f"view           {ADDRESS}"
    lines = [*lines[:-2], ""]
    assert " ".join(" ".join(lines).split()).startswith(f"what {LONG}at {ADDRESS} [b]�[31m next:")
    assert all(len(line) <= 80 or line.strip() == ADDRESS for line in lines)
    assert all(line.startswith(" " * 15) for line in lines[1 : lines.index("")])
    assert lines[-2].strip() == "(in the browser, with its prompts)"


@pytest.mark.parametrize("written", [False], indirect=True)
def test_in_a_pipe_a_line_is_a_line(written: io.StringIO) -> None:
    rows = Table(box=None, show_header=False)
    rows.add_row("short", "s")
    rows.add_row(LONG, "l")
    _output.print_fact("what", LONG)
    _output.print_table(rows)
    _output.print_next([("convbench view", "(the same)")])
    first, short, long, empty, last, end = written.getvalue().split("\n")
    assert first.split(maxsplit=1) == ["what", LONG]
    assert short == short.rstrip()
    assert LONG.strip() in long
    assert (empty, last, end) == ("", "next: convbench view   (the same)", "")
