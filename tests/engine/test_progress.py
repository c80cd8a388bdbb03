"""The display: right at 80 columns, plain where there is no terminal, silent where told."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from convbench.engine import Status, show_progress


def busy() -> Status:
    """A status in which everything happens at once."""
    now = time.monotonic()
    status = Status(
        total=150_000, done=149_000, failed=123, replayed=12_000, retrying=64,
        tokens=222_222_221, cost_usd=1234.5678,
        cost_unknown=True, started=now - 7230, ready=now - 7200,
    )  # fmt: skip
    name = "a-model-with-a-very-long-name-indeed at provider.example.com:443"
    status.paused[name] = now + 60
    return status


def shown(status: Status, monkeypatch: pytest.MonkeyPatch) -> str:
    """The first line where there is no terminal."""
    monkeypatch.setattr("convbench.engine.progress.PLAIN_EVERY_S", 0.01)
    file = io.StringIO()
    with show_progress(status, "build", console=Console(file=file, width=80)):
        while "\n" not in file.getvalue():
            time.sleep(0.01)
    return file.getvalue().split("\n")[0]


def test_a_line_says_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(busy(), monkeypatch)
    for part in ("149123/150000", "ETA", "222222k tokens", "cost unknown", "123 failed",
                 "12000 replayed", "at provider.example.com:443 until",
                 "retrying 64 calls"):  # fmt: skip
        assert part in text


def test_progress_is_no_wider_than_the_terminal() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, force_interactive=True, width=80)
    with show_progress(busy(), "build arc thinking reasoning", console=console):
        time.sleep(0.4)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue()).replace("\r", "\n").split("\n")
    assert max(map(len, lines)) <= 80
    assert "149123/150000" in file.getvalue()


def test_rate_counts_from_when_the_models_were_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    status = Status(total=300, done=100, started=now - 1000, ready=now - 10)
    text = shown(status, monkeypatch)
    assert re.match(r"build: 100/300 · (10\.0|9\.\d)/s · ETA 0:2\d · ", text)


def test_on_a_terminal_it_is_drawn_and_leaves_the_last_state() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, force_interactive=True, width=80)
    status = Status(total=9)
    with show_progress(status, "build", console=console):
        status.done = 9
        status.retrying = 1
    last = file.getvalue().rpartition("build")[2]
    assert "9/9" in last
    assert "retrying" not in last


def test_a_terminal_that_cannot_draw_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("convbench.engine.progress.PLAIN_EVERY_S", 0.05)
    file = io.StringIO()
    status = Status(total=9, done=4, note="starting a server")
    with show_progress(status, "build", console=Console(file=file, force_terminal=True, width=80)):
        while "starting a server" not in file.getvalue():
            time.sleep(0.01)
        status.done = 9
    assert file.getvalue().startswith("build: 4/9 · ")
    assert file.getvalue().split("\n")[-2].startswith("build: 9/9 · ")
    assert "\x1b" not in file.getvalue()


def test_without_a_terminal_it_ends_with_one_plain_line() -> None:
    file = io.StringIO()
    status = Status(total=4, done=3, failed=1, cost_usd=0.5)
    with show_progress(status, "build", console=Console(file=file, width=80)):
        pass
    assert file.getvalue().count("\n") == 1
    assert file.getvalue().startswith("build: 4/4 · ")
    assert "$0.5000 · 1 failed" in file.getvalue()
    assert "\x1b" not in file.getvalue()


def test_quiet_says_nothing() -> None:
    file = io.StringIO()
    with show_progress(busy(), "build", quiet=True, console=Console(file=file)):
        pass
    assert file.getvalue() == ""
