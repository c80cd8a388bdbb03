"""`local:PATH` in a subprocess, whose end returns its memory to the system.

The process runs `worker`; both sides exchange lines of JSON over its pipes, plain data only.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

import orjson
from pydantic import BaseModel, TypeAdapter

from convbench.errors import FatalModelError, ModelError, TransientModelError
from convbench.models.devices import Placement
from convbench.models.local import ROWS, LocalModel, text_messages
from convbench.models.model import Model
from convbench.models.refusals import Note, to_stderr
from convbench.schema import Completion, Message, Sampling
from convbench.util.guard import last_lines, start_worker

LINE = 64 << 20
"""Longest line of the process in bytes."""
END_S = 10.0
"""Seconds that the process gets to end after its stdin is closed."""
MODULE = "convbench.models.worker"
REPLY = TypeAdapter(Completion)


class SubprocessModel(Model):
    """A transformers model in a subprocess, which starts and loads weights with the first call.

    A process that broke down is restarted if it had answered since its last start."""

    starts = True
    priced = True
    patient = True
    concurrency = ROWS

    def __init__(
        self,
        ref: str,
        placement: Placement,
        settings: Mapping[str, Any] | None = None,
        *,
        note: Note = to_stderr,
    ) -> None:
        """`settings` are arguments of LocalModel. Of several devices the first is used, since our
        engine runs on one."""
        names = placement.names if placement.names is None else placement.names[:1]
        self.ref, self.settings = ref, dict(settings or {})
        self.placement = replace(placement, names=names)
        self.resources: Mapping[str, Any] = {}
        """What the process reports to have: `devices` (CUDA_VISIBLE_DEVICES) and `share`."""
        self._local_model = LocalModel(ref)
        self._note = note
        self._starting = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._ready: asyncio.Future[None] | None = None
        self._exit: asyncio.Future[None] | None = None
        self._pending: dict[int, asyncio.Future[Completion]] = {}
        self._numbers = itertools.count()
        self._answered = False
        self._broken: FatalModelError | None = None
        self._stderr: IO[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The reference, with its devices if they are set: each placement has its own process."""
        names = self.placement.names
        return self.ref if names is None else f"{self.ref} [{','.join(names) or 'cpu'}]"

    def check(self) -> None:
        """Raise MissingDependency if torch, transformers or, for an adapter, peft is not
        installed."""
        self._local_model.check()

    async def start(self) -> None:
        """Start the process and load the weights, unless it runs; wait until it is ready.

        Raise FatalModelError if it does not start or had broken for good before, MissingDependency
        if a package is missing.
        """
        async with self._starting:
            if self._broken is not None:
                raise self._broken
            if self._process is None:
                self.check()
                await self._start_process()

    async def _start_process(self) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        loop = asyncio.get_running_loop()
        self._ready, self._exit = loop.create_future(), loop.create_future()
        self._process = process = start_worker(
            self.command_line(), self.placement.extra_environment(), self._stderr
        )
        self._lines = queue.SimpleQueue()
        threading.Thread(target=_write_lines, args=(process, self._lines), daemon=True).start()
        threading.Thread(target=_read_lines, args=(process, loop, self), daemon=True).start()
        try:
            await self._ready
        except BaseException:
            await self._end_process()
            raise

    def command_line(self) -> list[str]:
        """Return the command line of the process: this interpreter, the worker's module, its
        settings as JSON."""
        settings = {"ref": self.ref, **self.settings, "share": self.placement.share}
        return [sys.executable, "-m", MODULE, orjson.dumps(settings).decode()]

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply, as LocalModel does in the process; start the process if it does not
        run.

        Raise TransientModelError if the process ended meanwhile (the next call restarts it),
        FatalModelError if it had not answered since its start, reports that it broke, or refuses
        the call.
        """
        if self._process is None:
            await self.start()
        number = next(self._numbers)
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        try:
            self._send_line(
                id=number,
                messages=text_messages(self.ref, messages),
                sampling=sampling.model_dump(mode="json"),
                key=key,
            )
            return await future
        except asyncio.CancelledError:
            self._send_line(cancel=number)
            raise
        finally:
            self._pending.pop(number, None)

    def _send_line(self, **line: Any) -> None:
        self._lines.put(orjson.dumps(line, default=_dump_model) + b"\n")

    def on_exit(self, how: str) -> None:
        """Fail the start and all pending calls because the process `how` (words such as `ended with
        exit code 1`).

        Called in the event loop. A process that had answered is noted as to be restarted; one that
        had not makes the model unusable.
        """
        self._report_exit(how)
        if self._exit is not None and not self._exit.done():
            self._exit.set_result(None)

    def on_line(self, line: dict[str, Any]) -> None:
        """Set the futures that a line of the process answers: ready, broken, or the result of a
        call.

        Called in the event loop. A result that nobody waits for is ignored.
        """
        assert self._ready is not None
        if "ready" in line:
            self.resources = line["ready"]
            if not self._ready.done():
                self._ready.set_result(None)
        elif "broken" in line:
            self._broken = FatalModelError(str(line["broken"]))
            self._fail_all(self._broken)
        elif (future := self._pending.get(line["id"])) is None or future.done():
            return
        elif "error" in line:
            future.set_exception(FatalModelError(line["error"], stops_run=line["stops_run"]))
        else:
            self._answered = True
            future.set_result(REPLY.validate_python(line["reply"]))

    def _report_exit(self, how: str) -> None:
        """Fail all pending calls because the process is gone; the next call restarts it, unless it
        never answered."""
        if self._process is None:
            return
        words = f"{self.ref}: its process {how}{self._last_error()}"
        error: ModelError = self._broken or TransientModelError(words)
        if self._broken is None and not self._answered:
            error = self._broken = FatalModelError(words)
        elif self._broken is None:
            self._note(f"{words}; it is restarted")
        self._answered = False
        self._process = None
        self._lines.put(None)
        self._fail_all(error)

    def _fail_all(self, error: ModelError) -> None:
        """Fail the start and all pending calls with an error."""
        waiting: list[asyncio.Future[Any]] = [*self._pending.values()]
        for future in waiting if self._ready is None else [self._ready, *waiting]:
            if not future.done():
                future.set_exception(error)

    def _last_error(self) -> str:
        """Return the last error line that the process wrote, after a colon; empty if none."""
        if self._stderr is None:
            return ""
        lines = last_lines(self._stderr)
        telling = [line for line in lines if "rror" in line] or lines
        return f": {telling[-1][-300:]}" if telling else ""

    async def aclose(self) -> None:
        """End the process, killed after 10 s, and wait until it is gone; do nothing if it does not
        run."""
        await self._end_process()

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        self._lines.put(None)
        try:
            if self._exit is not None:
                await asyncio.wait({self._exit}, timeout=END_S)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            if self._stderr is not None:
                self._stderr.close()
                self._stderr = None


def _write_lines(process: subprocess.Popen[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
    """Write lines to the process and close its stdin after the last; runs in a thread, since a full
    pipe blocks."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it is gone, which its reader reports
        while (line := lines.get()) is not None:
            process.stdin.write(line)
            process.stdin.flush()
    with contextlib.suppress(OSError):
        process.stdin.close()


def _read_lines(
    process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, model: SubprocessModel
) -> None:
    """Pass every line of the process to the loop until it ends; runs in a thread."""
    assert process.stdout is not None
    how = None
    with process.stdout:
        while line := process.stdout.readline(LINE):
            try:
                message = orjson.loads(line)
                known = isinstance(message, dict) and {"ready", "broken", "id"} & message.keys()
            except ValueError:
                known = False
            if not known:
                how = "wrote a line that is not a reply"
                process.kill()
                break
            _call_in_loop(loop, model.on_line, message)
    code = process.wait()
    _call_in_loop(loop, model.on_exit, how or _exit_text(code))


def _call_in_loop(
    loop: asyncio.AbstractEventLoop, function: Callable[..., None], word: Any
) -> None:
    """Call a function in the loop with one argument; do nothing if the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, word)


def _dump_model(noun: object) -> Any:
    """Return a pydantic model, such as a message's reasoning, as JSON data. Raises TypeError."""
    if isinstance(noun, BaseModel):
        return noun.model_dump(mode="json")
    raise TypeError(type(noun).__name__)


def _exit_text(code: int) -> str:
    """Return how a process ended, in words."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
