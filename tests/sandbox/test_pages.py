"""Pages that mean harm: to the machine, to what is beside them, to what they are compared with."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from convbench.sandbox import browser, page
from convbench.sandbox.browser import PageError, Shot, shoot
from convbench.sandbox.chromium import DATA_BYTES
from convbench.sandbox.page import visible_text
from convbench.sandbox.watch import UsageLimits, iter_descendants, kill_processes, usage_of
from tests.helpers.cli import ROOT
from tests.helpers.sandbox import renders
from tests.support.exhaustive import exhaustive, first_of, only

pytestmark = renders
GIB = 1 << 30
GOOD = (
    "<html><body style='background:#135'><h1>Good %d</h1><img src='http://x/60/40'></body></html>"
)


def html(body: str, head: str = "") -> str:
    return f"<html><head>{head}</head><body><p>here</p>{body}</body></html>"


def laughs(depth: int) -> str:
    """Nested `<use>`: 10 to the power of `depth` rectangles."""
    levels = "".join(
        f'<g id="a{i}">' + f'<use href="#a{i - 1}"/>' * 10 + "</g>" for i in range(1, depth + 1)
    )
    first = '<g id="a0"><rect width="1" height="1"/></g>'
    return html(f'<svg><defs>{first}{levels}</defs><use href="#a{depth}"/></svg>')


def picture(side: int) -> str:
    """A data: URL of a black PNG, packed a thousandfold."""
    head = side.to_bytes(4) * 2 + bytes([1, 0, 0, 0, 0])
    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(side // 8 + 1)) for _ in range(side)) + packer.flush()
    parts = [(b"IHDR", head), (b"IDAT", rows), (b"IEND", b"")]
    chunks = [len(d).to_bytes(4) + k + d + zlib.crc32(k + d).to_bytes(4) for k, d in parts]
    whole = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    return "data:image/png;base64," + base64.b64encode(whole).decode()


def refresh(to: str) -> str:
    return html("", f'<meta http-equiv="refresh" content="0;url={to}">')


def matryoshka(depth: int) -> str:
    inner = "inside"
    for _ in range(depth):
        quoted = inner.replace("&", "&amp;").replace('"', "&quot;")
        inner = f'<iframe srcdoc="{quoted}"></iframe>'
    return html(inner)


@contextmanager
def peak() -> Iterator[list[int]]:
    """The most memory that what this process started held of its own meanwhile, in bytes."""
    most, over = [0], threading.Event()

    def look() -> None:
        own = usage_of(os.getpid())[0]
        while not over.wait(0.05):
            most[0] = max(most[0], usage_of(os.getpid())[0] - own)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


SPIN = "<script>while(1);</script>"
HARMLESS: dict[str, str | Callable[[], str]] = {
    "endless script": html(SPIN),
    "print dialog": html("<script>print(); alert(1); confirm(2); open('/')</script>"),
    "worker": html("<script>navigator.serviceWorker.register('/w.js')</script>"),
    "webgl": html("<canvas id=c width=30000 height=30000></canvas><script>"
                  "c.getContext('webgl').clear(1)</script>"),
    "canvases": html("<canvas width=30000 height=30000></canvas>" * 50),
    "download": refresh("data:application/octet-stream,x"),
    "sent to data:": refresh("data:text/html,<h1>gone"),
    "sent to a file": refresh("file:///etc/passwd"),
    "sent to a script": refresh("javascript:document.write('gone')"),
    "round in circles": refresh(""),
    "round through others": refresh("http://page.invalid/?again"),
    "endless animation": html(
        '<div style="animation:a .01s infinite">x</div><svg><rect><animate attributeName="x" '
        'values="0;9" dur=".01s" repeatCount="indefinite"/></rect></svg>',
        "<style>@keyframes a{to{transform:rotate(360deg)}}</style>"),
    "frames of itself": html('<iframe src="/"></iframe><object data="/"></object><embed src="/">'),
    "frames in frames": matryoshka(7),
    "frames of files": html('<iframe src="file:///etc/passwd"></iframe>'),
    "tall": html('<div style="height:10000000px">x</div>'),
    "wide": html('<div style="width:10000000px;height:10000000px">x</div>'),
    "layers": html('<div style="position:absolute;width:9000px;height:6000px;'
                   'will-change:transform;opacity:.9"></div>' * 100),
    "huge picture": lambda: html(f'<img src="{picture(50_000)}">'),  # a second's work
    "tracks": html('<div style="display:grid;grid-template-columns:repeat(10000000,1px)">here'),
    "spans": html("<table>" + "<tr><td colspan=1000 rowspan=60000>x" * 100 + "</table>"),
    "growing variables": html("", "<style>p{--a0:xxxxxxxx;" + "".join(
        f"--a{i}:" + f"var(--a{i - 1})" * 10 + ";" for i in range(1, 9))
        + "}p::before{content:var(--a8)}</style><p>"),
    "broken font": html("", "<style>@font-face{font-family:x;src:url(data:font/woff2;base64,"
                        + "A" * 100_000 + ")}body{font-family:x}</style>"),
    "half a character": html("\ud800"),
    "deep": html("<div>" * 3000),
}  # fmt: skip


FIRST = {
    "endless script",
    "webgl",
    "sent to a file",
    "round in circles",
    "frames in frames",
    "tall",
    "huge picture",
    "growing variables",
    "half a character",
    "laughs",
}
"""One of each kind: scripts, devices, other addresses, frames, sizes, data, styles, bytes."""


@pytest.mark.parametrize("kind", only(FIRST.__contains__, HARMLESS))
def test_a_page_that_is_stopped_in_time_is_shown(kind: str) -> None:
    attack = HARMLESS[kind]
    with peak() as most:
        found = asyncio.run(shoot(attack if isinstance(attack, str) else attack()))
    words = visible_text(found.boxes)
    assert "here" in words
    assert "gone" not in words
    assert "root:" not in words
    assert (found.width, found.height <= page.TALLEST) == (1280, True)
    assert most[0] < 2 * GIB


FLOOD = html("".join(f'<img src="http://x/{i}/9/9">' for i in range(2000)))
LARGE_PICTURES = html("".join(f'<img src="http://x/id/{i}/2000/2000">' for i in range(99)))
BROKEN = {
    "laughs": (laughs(9), "MiB of memory|s of CPU|rendered"),
    "flood": (FLOOD, "files|s of CPU"),
    "frames": (html("".join(f'<iframe src="http://h{i}.x/"></iframe>' for i in range(2000))), ""),
    "large pictures": (LARGE_PICTURES, "pixels|s of CPU"),
    "slow selectors": (html("<b><i></i></b>" * 4000, "<style>" + "".join(
        f"b:has(~ b:nth-last-child({i}n+{i}) i ~ u) ~ b:nth-child({i}n) i{{color:red}}"
        for i in range(1, 30)) + "</style>"), "CPU|rendered"),
}  # fmt: skip


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less time and memory than pages have, so that the attacks end soon."""
    memory = 640 << 20
    monkeypatch.setattr(browser, "MEMORY", memory)
    monkeypatch.setattr(browser, "SHARED_S", 2.0)
    monkeypatch.setattr(browser, "ALONE", UsageLimits(memory, cpu_seconds=4.0, seconds=30.0))
    asyncio.run(shoot(html("")))  # with what there is
    kill_shared()


def kill_shared() -> None:
    """Kill the shared browser, as the kernel does where memory runs out."""
    shared = browser._BrowserThread.get_thread().shared
    if shared is not None:
        kill_processes(list(iter_descendants(shared.browser.pid)))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", only(FIRST.__contains__, BROKEN))
def test_a_page_that_takes_too_much_is_ended_and_harms_none_beside_it(kind: str) -> None:
    attack, why = BROKEN[kind]

    async def together() -> list[Shot | BaseException]:
        pages = [GOOD % 0, attack, GOOD % 1]
        return await asyncio.gather(*map(shoot, pages), return_exceptions=True)

    with peak() as most:
        first, bad, last = asyncio.run(together())
    assert isinstance(bad, PageError)
    assert most[0] < 2.5 * GIB
    if why:
        assert any(word in str(bad) for word in why.split("|")), bad
    for number, found in enumerate((first, last)):
        assert isinstance(found, Shot), found
        assert f"'Good {number}'" in visible_text(found.boxes)


@pytest.mark.parametrize(
    ("attack", "why"), first_of([(FLOOD, "files"), (LARGE_PICTURES, "pixels")])
)
def test_a_page_that_asks_for_too_much_is_told_of_what(attack: str, why: str) -> None:
    """With all the time that pages have: how much of it a count needs is the machine's matter."""
    with pytest.raises(PageError, match=why):
        asyncio.run(shoot(attack))


@pytest.mark.exhaustive
def test_pages_in_a_killed_browser_are_rendered_again() -> None:
    async def killed() -> list[Shot]:
        await shoot(GOOD % 0)
        pages = [asyncio.ensure_future(shoot(GOOD % i)) for i in range(4)]
        await asyncio.sleep(0.1)
        kill_shared()
        return await asyncio.gather(*pages)

    found = asyncio.run(killed())
    assert [f"'Good {i}'" in visible_text(shot.boxes) for i, shot in enumerate(found)] == [True] * 4


def name(pid: int) -> str:
    """Return a process's name; empty for one that has ended since it was listed."""
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def test_a_browser_stands_behind_a_wall() -> None:
    asyncio.run(shoot(GOOD % 0))
    shared = browser._BrowserThread.get_thread().shared
    assert shared is not None
    if not shared.browser.way.wall:
        pytest.skip("no namespaces on this machine")
    place = Path(
        f"/proc/{next(pid for pid in iter_descendants(shared.browser.pid) if 'chrom' in name(pid))}"
    )
    for kind in ("mnt", "net", "pid", "ipc", "uts"):
        assert (place / "ns" / kind).readlink() != Path(f"/proc/self/ns/{kind}").readlink()
    status = dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines())
    assert int(status["CapEff"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    if os.geteuid() == 0:
        assert int(status["Uid"].split()[0]) > 1_000_000_000
    limits = (place / "limits").read_text()
    assert int(limits.partition("Max data size")[2].split()[0]) <= DATA_BYTES
    assert set(os.listdir(place / "root")) <= {"bin", "dev", "etc", "lib", "lib64", "opt", "proc",
                                               "tmp", "usr", "var"}  # fmt: skip


REAPER = """
import asyncio, ctypes, json, os, signal, sys, time
from convbench.sandbox import browser
from convbench.sandbox.watch import iter_descendants
from tests.support.browsers import command_of
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # who adopts orphans, as process 1 of a container does
for word in sys.argv[1:]:
    asyncio.run(browser.shoot("<html>x</html>"))
    for pid in list(iter_descendants(os.getpid())):
        if word in command_of(pid):
            os.kill(pid, signal.SIGKILL)
            break
browser.close_all()
until = time.monotonic() + 60
while list(iter_descendants(os.getpid())) and time.monotonic() < until:
    time.sleep(0.1)
print(json.dumps(list(iter_descendants(os.getpid()))))
"""


KILLED = ("guard.py", "node", "bwrap", "chromium", "zygote")
"""Of a browser's processes, by a word of their command."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("killed", [KILLED[:1], exhaustive((KILLED[1:],))], ids=len)
def test_no_zombies_of_browsers_where_we_adopt_orphans(killed: tuple[str, ...]) -> None:
    words = [sys.executable, "-c", REAPER, *killed, "nothing of it"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=220, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    assert "never awaited" not in done.stderr
