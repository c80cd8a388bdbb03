"""Start and end the system's Chromium: its command in a sandbox, its driver under a guard."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import shutil
import sys
import tempfile
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from convbench.errors import ConvbenchError, MissingDependency, RunError
from convbench.sandbox import cgroup
from convbench.sandbox.wall import INSTALL as WALL
from convbench.sandbox.wall import NOBODY, isolation_options, parent_folders
from convbench.sandbox.watch import POLL_S, OutputTail, ProcessWatch, UsageLimits
from convbench.util.guard import guard_command
from convbench.util.install import with_extra

LATE_S = 1.0
"""Seconds for tasks to end after their browser has."""
_scratch: ContextVar[Path] = ContextVar("_scratch")
_announce: ContextVar[Callable[[int], None]] = ContextVar("_announce")


async def start_driver(scratch: Path, announce: Callable[[int], None]) -> Any:
    """Return a started Playwright driver; call it in this module's event loop.

    The driver writes its files below `scratch`, which is removed with it. `announce` is called with
    the process id of its guard at once, whether or not the driver answers. Raises whatever
    Playwright raises.
    """
    from playwright.async_api import async_playwright

    _scratch.set(scratch)
    _announce.set(announce)
    return await async_playwright().start()


class DriverLoop(asyncio.SelectorEventLoop):
    """An event loop whose only subprocesses are drivers that `start_driver` starts.

    Playwright itself does not reveal its driver's process id, and starts it in our process group,
    where Ctrl-C reaches it.
    """

    async def subprocess_exec(self, protocol_factory: Any, *command: Any, **options: Any) -> Any:
        """Start a driver under its guard in a new session; return (transport, protocol).

        The guard's process id goes to `announce` of `start_driver`. Called by asyncio only.
        """
        scratch = str(_scratch.get())
        options["env"] = {**options["env"], "TMPDIR": scratch}
        transport, protocol = await super().subprocess_exec(
            protocol_factory,
            *guard_command(command, scratch=scratch),
            start_new_session=True,
            **options,
        )
        _announce.get()(transport.get_pid())
        return transport, protocol


async def finish_tasks() -> None:
    """Wait at most 1 s for the running loop's other tasks, then cancel the rest and wait 1 s
    more."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    late = (await asyncio.wait(left, timeout=LATE_S))[1] if left else set()
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=LATE_S)


INSTALL = "apt-get install chromium"
SCRATCH, SCRATCH_BYTES = "/tmp", 256 << 20  # noqa: S108 - inside
"""Folder inside the sandbox for the profile and all memory that Chromium's processes share."""
DATA_BYTES = 1152 << 20
"""Writable memory of one process, of which a tab's engine reserves 600 MiB and fills little."""
_SEEN = ("/usr", "/etc/fonts", "/etc/ld.so.cache", "/etc/alternatives", "/var/cache/fontconfig")
_LINKS = ("/bin", "/lib", "/lib64")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_SETTINGS = {"HOME": SCRATCH, "PATH": os.defpath, "LANG": "C.UTF-8"}


def chromium() -> str:
    """Return the path of the system's Chromium or Chrome, the program rather than a script around
    it.

    Raise MissingDependency if there is none.
    """
    inner = "/usr/lib/chromium/chromium"
    program = inner if os.access(inner, os.X_OK) else None
    for name in ("chromium", "chromium-browser", "google-chrome"):
        program = program or shutil.which(name)
    if program is None:
        raise MissingDependency("Chromium", needed_for="rendering pages", install=INSTALL)
    return program


@dataclass(frozen=True, slots=True)
class LaunchMode:
    """How Chromium is started: which layers of the sandbox are used."""

    wall: bool
    """Whether bubblewrap is used."""
    user: bool
    """Whether root gives it a user of its own."""
    inner: bool
    """Whether Chromium's own sandbox is used."""

    def weakness_text(self) -> str:
        """Return the missing layers of protection in words, joined by `and`; empty if none is
        missing.

        A separate user counts as missing only for root with bubblewrap.
        """
        lacks = [] if self.wall else ["bubblewrap around Chromium"]
        if self.wall and os.geteuid() == 0 and not self.user:
            lacks.append("a separate user")
        if not self.inner:
            lacks.append("Chromium's own sandbox")
        return " and ".join(lacks)

    def launch_script(self, program: str, mark: Path, words: Path, group: Path | None) -> str:
        """Return the text of a shell script that starts Chromium with the script's own arguments.

        The script writes its process id to `mark` and its stderr to `words`, enters the control
        group, if there is one, and limits each process's memory.
        """
        command = [program] if not self.wall else [*_wall_command(program, self.user), program]
        enter = f"echo $$ >{shlex.quote(str(group / 'cgroup.procs'))} || exit 1\n" if group else ""
        return (
            f"#!/bin/sh\nexec 2>{shlex.quote(str(words))}\n"
            f"echo $$ >{shlex.quote(str(mark))} || exit 1\n"
            f"{enter}ulimit -c 0; ulimit -d {DATA_BYTES >> 10} || exit 1\n"
            f'exec {shlex.join(command)} "$@"\n'
        )


def ways() -> list[LaunchMode]:
    """Return the modes in which Chromium may be started here, the safest first; at least one.

    They are not tried. The last one is without bubblewrap.
    """
    root, wraps = os.geteuid() == 0, shutil.which("bwrap") is not None
    modes = [LaunchMode(True, True, inner) for inner in (True, False)] if root and wraps else []
    modes += [LaunchMode(True, False, inner) for inner in (True, False)] if wraps else []
    return [*modes, LaunchMode(False, False, not root)]


def _wall_command(program: str, user: bool) -> list[str]:
    """Return the bubblewrap command, to which the program to run is appended."""
    command = ["bwrap", *isolation_options(user, _SETTINGS)]
    command += ["--perms", "1777", "--size", str(SCRATCH_BYTES), "--tmpfs", SCRATCH]
    command += [
        *_bind_options(program),
        "--proc",
        "/proc",
        "--remount-ro",
        "/",
        "--chdir",
        SCRATCH,
        "--",
    ]
    return command + (_as_nobody() if user else [])


def _bind_options(program: str) -> list[str]:
    """Return bubblewrap's options that bind programs, libraries, fonts and four devices."""
    own = str(Path(program).resolve().parent)
    seen = [p for p in (*_SEEN, own) if os.path.exists(p) and (p == "/usr" or not _is_in_usr(p))]
    links = [path for path in _LINKS if os.path.islink(path)]
    seen += [path for path in _LINKS if path not in links and os.path.isdir(path)]
    out = []
    for folder in parent_folders([*seen, *_DEVICES], ("/", "/usr")):
        out += ["--perms", "0755", "--dir", folder]
    for path in seen:
        out += ["--ro-bind", path, path]
    for path in links:
        out += ["--symlink", os.readlink(path), path]
    for path in _DEVICES:
        out += ["--dev-bind", path, path]
    return out


def _is_in_usr(path: str) -> bool:
    return path.startswith("/usr/")


def _as_nobody() -> list[str]:
    """Return the command prefix that switches from root to an unused user number."""
    number = str(secrets.choice(NOBODY))
    return ["setpriv", "--reuid", number, "--regid", number, "--clear-groups"]


START_S = 30.0
"""Seconds to start a driver, a browser and its first tab, each; a second is common."""
NOTICED_S = 1.0
"""Longest time from the end of a browser until the watch notices it."""
TASKS = 2000
"""Most processes and threads of a browser in a control group; a hundred is common."""
_FLAGS = (
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--dns-prefetch-disable",
    "--disable-gpu",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--hide-scrollbars",
    "--font-render-hinting=none",
    "--disable-background-networking",
    "--force-color-profile=srgb",
)
_known: list[LaunchMode] = []
"""The mode that worked on this machine, once there is one."""
living: set[Browser] = set()
"""Browsers that were started, or are being started, and have not ended."""
T = TypeVar("T")


class BrowserEnded(ConnectionError):
    """A browser or its driver ended by itself; the message says when, and its last output."""


@dataclass(slots=True, eq=False)
class Browser:
    """A browser with a driver of its own; every wait for it ends when it does."""

    way: LaunchMode
    folder: Path
    """Its own folder on the host, its driver's scratch too."""
    group: Path | None
    """Its control group."""
    words: OutputTail
    gone: asyncio.Future[None]
    """Done once its end is noticed or requested."""
    chromium: Any = None
    pid: int = 0
    """Process id of bubblewrap, or of Chromium if it runs without; 0 before it is known."""
    watch: ProcessWatch | None = None
    """None before its driver is started."""

    @property
    def used_too_much(self) -> str | None:
        """Return the limit for whose excess the browser was ended, such as `more than 20 s of CPU`;
        else None."""
        return self.watch.why if self.watch else None

    async def run_step(self, work: Coroutine[Any, Any, T], seconds: float, doing: str) -> T:
        """Return the result of a coroutine that uses the browser; `doing` names it in error
        messages.

        Raise BrowserEnded (with the browser's last output) if the browser ends meanwhile,
        TimeoutError after `seconds`, else what the step raises. The coroutine is cancelled at the
        end.
        """
        step = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {step, self.gone}
            await asyncio.wait(either, timeout=seconds, return_when=FIRST_COMPLETED)
            error = step.exception() if step.done() else None
            if step.done() and (error is None or isinstance(error, ConvbenchError)):
                return step.result()
            if step.done():  # perhaps because the browser ended, which the watch notices soon
                await asyncio.wait({self.gone}, timeout=NOTICED_S)
            if self.gone.done():
                last = (
                    f"its last output: {line}"
                    if (line := self.words.main_line)
                    else "without output"
                )
                raise BrowserEnded(f"Chromium ended while {doing}, {last}")
            if not step.done():
                raise TimeoutError(f"no answer within {seconds:.0f} s while {doing}")
            return step.result()
        finally:
            step.cancel()
            step.add_done_callback(lambda done: done.cancelled() or done.exception())

    def kill(self) -> None:
        """Tell its watch to end all of its processes at once."""
        if self.watch:
            self.watch.over.set()

    async def end(self) -> None:
        """End the browser and its driver, wait until both are gone, and remove its files."""
        self.kill()
        while self.watch and self.watch.thread.is_alive():  # which has a bound
            await asyncio.sleep(POLL_S)
        self._clear_files()

    def end_without_loop(self) -> None:
        """Do what `end` does, from any thread, which this blocks."""
        self.kill()
        if self.watch:
            self.watch.thread.join()
        self._clear_files()

    def _clear_files(self) -> None:
        living.discard(self)
        cgroup.end_group(self.group)
        self.words.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _on_exit(self) -> None:
        """Wake those who wait for the browser's end; called in the watch's thread."""
        cgroup.end_group(self.group)
        with contextlib.suppress(RuntimeError):  # the loop has ended before
            self.gone.get_loop().call_soon_threadsafe(self._let_go)

    def _let_go(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)


async def start_browser(most: UsageLimits) -> Browser:
    """Return a started browser with these limits; the first time, in the safest mode that works.

    Each mode is tried twice; one that times out ends the search. A mode that is not the safest is
    reported on stderr once. Raise MissingDependency without Playwright or Chromium, RunError if
    none starts.
    """
    broken = browser_errors()
    program, reasons = chromium(), list[str]()
    for way in _known or ways():
        try:
            browser = await _started_in_two(program, way, most)
        except broken as error:
            reasons.append((str(error) or type(error).__name__).splitlines()[0])
            if isinstance(error, TimeoutError):  # a slow machine is no reason for less safety
                break
            continue
        if not _known:
            _print_weakness(way, reasons)
        _known[:] = [way]
        return browser
    raise RunError(f"{program} does not start: {reasons[-1]}; to fix it, run: {INSTALL} bubblewrap")


def _print_weakness(way: LaunchMode, reasons: Sequence[str]) -> None:
    """Print to stderr which protection a mode lacks, and why no safer one was used."""
    if lacks := way.weakness_text():
        why = reasons[0] if reasons else f"bubblewrap is not installed; run: {WALL}"
        print(f"note: pages are rendered without {lacks}: {why}", file=sys.stderr)


def browser_errors() -> tuple[type[Exception], ...]:
    """Return the exception classes of a browser's failures: Playwright's Error, TimeoutError,
    OSError.

    Raise MissingDependency without Playwright.
    """
    try:
        from playwright.async_api import Error
    except ImportError:
        raise MissingDependency(
            "playwright", needed_for="rendering pages", install=with_extra("vision")
        ) from None
    return Error, TimeoutError, OSError


async def _started_in_two(program: str, way: LaunchMode, most: UsageLimits) -> Browser:
    try:
        return await _start_once(program, way, most)
    except browser_errors():  # it may have been killed, or the machine be busy
        return await _start_once(program, way, most)


async def _start_once(program: str, way: LaunchMode, most: UsageLimits) -> Browser:
    folder = Path(tempfile.mkdtemp(prefix="convbench-browser-"))
    group = cgroup.make_group(most.memory_bytes + SCRATCH_BYTES, TASKS)
    gone = asyncio.get_running_loop().create_future()
    browser = Browser(way, folder, group, OutputTail(folder / "words"), gone)
    living.add(browser)
    following = asyncio.ensure_future(_watch_browser(browser))
    try:
        driver = await _driver(browser, most)
        launching = driver.chromium.launch(
            executable_path=_script(program, browser),
            args=_FLAGS,
            timeout=0,  # the limit is ours
            chromium_sandbox=way.inner,
            env={"HOME": "/nonexistent", "PATH": os.defpath, "LANG": "C.UTF-8"},
        )
        browser.chromium = await browser.run_step(launching, START_S, "starting")
        await asyncio.wait_for(following, START_S)
        await browser.run_step(_open_tab(browser.chromium), START_S, "opening its first tab")
        return browser
    except BaseException:
        await browser.end()
        raise
    finally:
        following.cancel()


async def _driver(browser: Browser, most: UsageLimits) -> Any:
    """Return the started driver of a browser, watched from the moment of its start.

    Raises TimeoutError or BrowserEnded."""

    def watch_guard(guard: int) -> None:
        browser.watch = ProcessWatch(guard, most, browser.words, browser._on_exit)

    try:
        return await asyncio.wait_for(start_driver(browser.folder, watch_guard), START_S)
    except TimeoutError:
        raise TimeoutError(f"Playwright's driver gave no answer within {START_S:.0f} s") from None
    except Exception as error:  # noqa: BLE001 - no error of its own where its driver ends
        raise BrowserEnded(f"Playwright's driver ended as it started: {error}") from None


def _script(program: str, browser: Browser) -> str:
    script = browser.folder / "chromium"
    files = browser.folder / "mark", browser.folder / "words"
    script.write_text(browser.way.launch_script(program, *files, browser.group))
    script.chmod(0o700)
    return str(script)


async def _watch_browser(browser: Browser) -> None:
    """Add the browser's own process to the watch once its script has written its process id."""
    mark = browser.folder / "mark"
    while not (browser.watch and mark.exists() and mark.read_text().endswith("\n")):
        await asyncio.sleep(POLL_S)
    browser.pid = int(mark.read_text())
    browser.watch.first.append(browser.pid)


async def _open_tab(chromium: Any) -> None:
    """Open and close a tab, since Chromium's own sandbox may fail only then."""
    context = await chromium.new_context()
    page = await context.new_page()
    await page.goto("about:blank", timeout=0)
    await context.close()
