"""A browser, or its driver, that ends or falls silent at any step: no wait on it is for ever."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from convbench.errors import RunError
from convbench.sandbox import browser, chromium
from convbench.sandbox.browser import shoot
from convbench.sandbox.chromium import LaunchMode, ways
from convbench.sandbox.page import visible_text
from convbench.sandbox.watch import END_S, UsageLimits, is_alive, iter_descendants
from tests.helpers.cli import ROOT
from tests.helpers.sandbox import renders
from tests.sandbox.stand_in import STEPS, WORDS, stand_in
from tests.support.browsers import command_of, processes_left
from tests.support.exhaustive import every_nth, first_of
from tests.support.processes import until

pytestmark = renders
MOST = UsageLimits(1 << 30)
PAGE = "<html><body><h1>Here I am</h1></body></html>"
BUSY_S = 60.0
"""What a busy machine adds to a bound."""
BARE = LaunchMode(wall=False, user=False, inner=False)


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No way was tried yet, and no browser runs, before and after."""
    monkeypatch.setattr(chromium, "_known", [])
    browser.close_all()
    yield
    browser.close_all()


def refused(monkeypatch: pytest.MonkeyPatch, program: str) -> tuple[str, float]:
    """Return the error of starting a program as Chromium, and the seconds until it came."""
    monkeypatch.setattr(chromium, "chromium", lambda: program)
    began = time.monotonic()
    with pytest.raises(RunError) as raised:
        asyncio.run(shoot(PAGE))
    return str(raised.value), time.monotonic() - began


@pytest.mark.parametrize("step", first_of(STEPS))
def test_a_browser_that_ends_at_a_step_is_one_line_with_its_last_words(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chromium, "ways", lambda: [ways()[0], BARE])
    line, _ = refused(monkeypatch, stand_in(tmp_path, step))
    assert line.startswith(f"{tmp_path / 'chromium'} does not start: Chromium ended while ")
    assert WORDS in line
    assert "\n" not in line


@pytest.mark.parametrize("step", first_of(STEPS))
def test_a_browser_that_falls_silent_at_a_step_has_a_bound(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = chromium._driver

    async def started(*asked: object) -> object:
        """The driver has its time to start, whatever else this machine does."""
        monkeypatch.setattr(chromium, "START_S", 120.0)
        found = await driver(*asked)  # type: ignore[arg-type]
        monkeypatch.setattr(chromium, "START_S", 3.0)
        return found

    monkeypatch.setattr(chromium, "_driver", started)
    line, seconds = refused(monkeypatch, stand_in(tmp_path, step, silent=True))
    assert "no answer within 3 s while" in line
    assert seconds < 200, "two tries in the safest way, and none in another"


def test_a_browser_whose_child_holds_its_pipes_is_seen_to_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver does not see it, for nothing was closed."""
    monkeypatch.setattr(chromium, "ways", lambda: [BARE])
    line, seconds = refused(monkeypatch, stand_in(tmp_path, "opening a tab", child_s=100))
    assert f"Chromium ended while opening its first tab, its last output: {WORDS}" in line
    assert seconds < 100


def test_a_driver_that_falls_silent_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\nexec sleep 600\n")
    node.chmod(0o755)
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", str(node))
    monkeypatch.setattr(chromium, "START_S", 1.0)
    line, seconds = refused(monkeypatch, str(node))
    assert "driver" in line
    assert seconds < 100
    assert not processes_left(), "it was ended too"


def test_a_less_safe_way_is_told_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The safest way ends at its first tab, the last one works."""
    fails, works = LaunchMode(True, True, True), ways()[-2]
    programs = {fails: stand_in(tmp_path, "opening a tab"), works: chromium.chromium()}
    monkeypatch.setattr(chromium, "ways", lambda: [fails, works])
    started = chromium._start_once
    tried = []

    async def start(program: str, way: LaunchMode, most: UsageLimits) -> chromium.Browser:
        tried.append(way)
        return await started(programs[way], way, most)

    monkeypatch.setattr(chromium, "_start_once", start)
    asyncio.run(shoot(PAGE))
    assert tried == [fails, fails, works], "what failed is tried once more"
    [line] = [one for one in capfd.readouterr().err.splitlines() if "note:" in one]
    assert line.startswith(
        f"note: pages are rendered without {works.weakness_text()}: Chromium ended"
    )
    assert line.endswith(WORDS)


@pytest.mark.parametrize("root", [True, False])
def test_what_a_way_lacks(root: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chromium.os, "geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr(chromium.shutil, "which", lambda name: name)
    found = [way.weakness_text() for way in ways()]
    assert found[0] == "", "the first is the safest"
    assert all(found[1:])
    assert "bubblewrap" in found[-1]


KINDS = {
    "guard": r"guard\.py --talks-to",
    "driver": r"^\S*node .*run-driver",
    "wall": r"^\S*bwrap ",
    "browser": r"^\S*chrom\S* (?!.*--type=)",
    "zygote": r"^\S*chrom.*--type=zygote",
    "graphics": r"^\S*chrom.*--type=gpu-process",
    "network": r"^\S*chrom.*NetworkService",
    "tab": r"^\S*chrom.*--type=renderer",
}
"""The processes of a browser, by their commands."""


@pytest.mark.parametrize("kind", every_nth(6, KINDS))
def test_a_browser_of_which_a_process_is_killed_as_it_starts_gives_the_page(kind: str) -> None:
    """One process of the first browser is killed as soon as it is seen."""
    killed: list[int] = []

    def strike() -> None:
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:
            time.sleep(0.01)
            for pid in list(iter_descendants(os.getpid()))[::-1]:
                if not killed and re.search(KINDS[kind], command_of(pid)):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    if kind == "wall" and not ways()[0].wall:
        pytest.skip("no bubblewrap on this machine")
    thread = threading.Thread(target=strike)
    thread.start()
    try:
        found = asyncio.run(asyncio.wait_for(shoot(PAGE), 200))
    finally:
        thread.join(70)
    assert killed
    assert "Here I am" in visible_text(found.boxes)
    browser.close_all()
    assert not processes_left()


def shared_browser() -> chromium.Browser:
    """Return the shared browser, after a page."""
    asyncio.run(shoot(PAGE))
    shared = browser._BrowserThread.get_thread().shared
    assert shared is not None
    return shared.browser


def of_kind(kind: str) -> int:
    """Return the number of the first process below us of a kind."""
    return next(
        pid for pid in iter_descendants(os.getpid()) if re.search(KINDS[kind], command_of(pid))
    )


@pytest.mark.parametrize(
    ("kind", "number"),
    every_nth(
        5,
        product(["guard", "driver", "wall", "browser", "zygote"], [signal.SIGSTOP, signal.SIGKILL]),
    ),
)
def test_a_browser_is_ended_whole_whatever_hangs_or_was_killed(kind: str, number: int) -> None:
    """Nor are its files left."""
    if kind == "wall" and not ways()[0].wall:
        pytest.skip("no bubblewrap on this machine")
    one = shared_browser()
    os.kill(of_kind(kind), number)
    thread = browser._BrowserThread.get_thread()
    asyncio.run_coroutine_threadsafe(one.end(), thread.loop).result(END_S + BUSY_S)
    assert not processes_left()
    assert not one.folder.exists()
    assert one not in chromium.living


def test_a_browser_that_ends_between_two_pages_takes_its_driver_along() -> None:
    first = shared_browser()
    os.kill(first.pid, signal.SIGKILL)
    assert not processes_left(), "nobody looked at it since"
    second = shared_browser()
    assert second is not first
    assert not first.folder.exists()
    assert chromium.living == {second}


@pytest.mark.parametrize("ended", first_of(["blocked", "stopped"]))
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_browser_whose_loop_is_over_is_ended(
    ended: str, recwarn: pytest.WarningsRecorder
) -> None:
    """Twice is as once, and nothing is left to be awaited."""
    shared_browser()
    loop, over = browser._BrowserThread.get_thread().loop, threading.Event()
    loop.call_soon_threadsafe(loop.stop if ended == "stopped" else over.wait)
    began = time.monotonic()
    browser.close_all()
    browser.close_all()
    over.set()
    assert time.monotonic() - began < END_S + BUSY_S
    assert not processes_left()
    gc.collect()
    assert not [str(one.message) for one in recwarn if "never awaited" in str(one.message)]
    assert "Here I am" in visible_text(asyncio.run(shoot(PAGE)).boxes), "the next one starts anew"


def test_a_start_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised, once the driver runs."""
    monkeypatch.setattr(chromium, "_script", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(shoot(PAGE))
    assert not processes_left()
    assert not chromium.living


ENDS = """
import asyncio, os, signal, sys
from convbench.sandbox import browser
from convbench.sandbox.watch import iter_descendants
from tests.support.browsers import command_of
asyncio.run(browser.shoot("<html>x</html>"))
mine = list(iter_descendants(os.getpid()))
if "hung" in sys.argv:
    [driver] = [pid for pid in mine if "node" in command_of(pid).partition(" ")[0]]
    os.kill(driver, signal.SIGSTOP)
print(*mine, flush=True)
"""
PROGRAMS = {
    "returns": "",
    "is interrupted": "signal.raise_signal(signal.SIGINT)",
    "is terminated": "os.kill(os.getpid(), signal.SIGTERM)",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "exits at once": "os._exit(0)",
}


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells no parent's end")
@pytest.mark.parametrize(("how", "hung"), every_nth(7, product(PROGRAMS, ["hung", "well"])))
def test_no_browser_outlives_its_program(how: str, hung: str) -> None:
    words = [sys.executable, "-c", ENDS + PROGRAMS[how], hung]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=220, check=False)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) > 4, done.stderr
    until(lambda: not any(map(is_alive, pids)), "a browser outlives its program")
    assert "never awaited" not in done.stderr


def test_a_fork_ends_no_browser_of_its_parent() -> None:
    one = shared_browser()
    if (child := os.fork()) == 0:
        browser.close_all()
        os._exit(0 if browser._BrowserThread._only is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert one.watch
    assert is_alive(one.watch.guard)
