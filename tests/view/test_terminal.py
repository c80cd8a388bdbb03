"""`convbench show CONVERSATION_ID` on terminals of several widths, without colour, and piped."""

from __future__ import annotations

import fcntl
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

from convbench.store import Run
from tests.view.runs import make, question

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
    assert process.wait(30) == 0
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
