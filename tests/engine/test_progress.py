"""The display: right at 80 columns, plain where there is no terminal, silent where told."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from convbench.engine import Progress, Status
from convbench.engine.progress import EndpointState, count_text


def busy() -> Status:
    """A status in which everything happens at once."""
    now = time.monotonic()
    status = Status(
        total=150_000, done=149_000, failed=123, replayed=12_000, retrying=64,
        prompt_tokens=123_456_789, completion_tokens=98_765_432, cost_usd=1234.5678,
        cost_unknown=True, started=now - 7230, ready=now - 7200,
    )  # fmt: skip
    name = "a-model-with-a-very-long-name-indeed at provider.example.com:443"
    status.endpoints[name] = EndpointState(limit=7, highest=256, paused_until=now + 60)
    return status


def shown(status: Status, *, width: int = 80) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, color_system=None)
    console.print(Progress(status, "build arc thinking reasoning", console=console).render())
    return file.getvalue().split("\n")


def test_nothing_is_wider_than_the_terminal_and_what_matters_is_there() -> None:
    lines = [line.rstrip() for line in shown(busy())]
    assert max(len(line) for line in lines) <= 80
    text = "\n".join(lines)
    for part in ("149123/150000", "ETA", "222.2M tokens", "cost unknown", "123 failed",
                 "rate limit", "until"):  # fmt: skip
        assert part in text


def test_all_of_it_is_there_on_a_wide_terminal() -> None:
    text = "\n".join(shown(busy(), width=200))
    assert "concurrency 7 of 256" in text
    assert "retrying 64 calls" in text
    assert "provider.example.com" not in text  # there is only one


def test_of_several_endpoints_the_one_that_waits_is_named() -> None:
    status = busy()
    status.endpoints["judge"] = EndpointState(limit=8, highest=8)
    assert "rate limit of …d at provider.example.com:443 until" in "\n".join(shown(status))


def test_rate_counts_from_when_the_models_were_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr("convbench.engine.progress.time", SimpleNamespace(monotonic=lambda: now))
    status = Status(total=300, done=110, skipped=10, started=now - 1000, ready=now - 10)
    assert count_text(status) == "110/300 · 10.0/s · ETA 0:19"


def test_on_a_terminal_it_is_drawn_and_leaves_the_last_state() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, force_interactive=True, width=80)
    status = Status(total=9)
    with Progress(status, "build", console=console):
        status.done = 9
        status.retrying = 1
    last = file.getvalue().rpartition("build")[2]
    assert "9/9" in last
    assert "ETA" not in last
    assert "retrying" not in last


def test_a_terminal_that_cannot_draw_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("convbench.engine.progress.PLAIN_EVERY_S", 0.05)
    file = io.StringIO()
    status = Status(total=9, done=4, note="starting a server")
    with Progress(status, "build", console=Console(file=file, force_terminal=True, width=80)):
        while "starting a server" not in file.getvalue():
            time.sleep(0.01)
        status.done = 9
    assert file.getvalue().startswith("build: 4/9 · ")
    assert file.getvalue().split("\n")[-2].startswith("build: 9/9 · ")
    assert "\x1b" not in file.getvalue()


def test_without_a_terminal_it_ends_with_one_plain_line() -> None:
    file = io.StringIO()
    status = Status(total=4, done=3, failed=1, cost_usd=0.5)
    with Progress(status, "build", console=Console(file=file, width=80)):
        pass
    assert file.getvalue().count("\n") == 1
    assert file.getvalue().startswith("build: 4/4 · ")
    assert "$0.5000 · 1 failed" in file.getvalue()
    assert "\x1b" not in file.getvalue()


def test_quiet_says_nothing() -> None:
    file = io.StringIO()
    with Progress(busy(), "build", quiet=True, console=Console(file=file)) as progress:
        progress.print_line("note")
    assert file.getvalue() == ""
