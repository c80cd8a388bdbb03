"""Pool of learners for several threads: in this process, or in one process for each device."""

from __future__ import annotations

import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import IO, Any

import orjson
from pydantic import TypeAdapter

from convbench.engine import Stopped
from convbench.errors import TrainError
from convbench.guard import last_lines, start_worker
from convbench.judge.adaptation.learner import Learner, Pupil, Question, Taught
from convbench.judge.adaptation.settings import Inner
from convbench.models.devices import VISIBLE

MODULE = "convbench.judge.adaptation.worker"
LINE = 64 << 20
"""Longest line from the process in bytes."""
END_S = 10.0
"""Seconds that the process has to end before it is killed."""
TAUGHT = TypeAdapter(Taught)


class Hand(Pupil):
    """A process with its own weights on one device; it starts with the first request."""

    def __init__(self, path: str, device: str, module: str = MODULE) -> None:
        """`device` is a value of CUDA_VISIBLE_DEVICES; "" is the CPU. `module` is the program."""
        self.path, self.device, self.module = path, device, module
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    def teach(
        self,
        texts: Sequence[str],
        questions: Sequence[Question],
        inner: Inner,
        guard: Sequence[Question] = (),
    ) -> Taught:
        """Return the replies as a `Learner` does. Raises TrainError if the process failed."""
        line = {
            "texts": list(texts),
            "questions": [asdict(one) for one in questions],
            "inner": inner.model_dump(mode="json"),
            "guard": [asdict(one) for one in guard],
        }
        return TAUGHT.validate_python(self.do(line))

    def do(self, asked: Mapping[str, Any]) -> Any:
        """Return the answer to one request as JSON data. Raises TrainError if the process fails."""
        if self._process is None:
            self._start()
        return self._answer("done", orjson.dumps(asked) + b"\n")

    def _start(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        command = [sys.executable, "-m", self.module, self.path]
        self._process = start_worker(command, {VISIBLE: self.device}, self._said)
        self._answer("ready")

    def _answer(self, name: str, line: bytes = b"") -> Any:
        """Send a line and return the value of this name in the process's answer."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
            found = orjson.loads(process.stdout.readline(LINE) or b"null")
        except (OSError, ValueError):
            found = None
        if isinstance(found, dict) and name in found:
            return found[name]
        why = found.get("broken") if isinstance(found, dict) else None
        code = self._end()
        where = f"device {self.device}" if self.device else "the CPU"
        raise TrainError(
            f"{self.path}: its process on {where} "
            + (f"broke down: {why}" if why else f"ended with exit code {code}{self._tail()}")
        )

    def _tail(self) -> str:
        """Return the last line of the process's stderr, to append to a message; "" without one."""
        if self._said is None:
            return ""
        lines = last_lines(self._said)
        return f": {lines[-1][-300:]}" if lines else ""

    def _end(self) -> int:
        """End the process and return its exit code; 0 if there is none."""
        process, self._process = self._process, None
        if process is None:
            return 0
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # unsent data is dropped
                continue
        try:
            return process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def close(self) -> None:
        """End the process and wait until it is gone, so that its memory is free."""
        self._end()
        if self._said is not None:
            self._said.close()
            self._said = None


class Twins:
    """Pool of learners of the same weights: one for each thread, or one process for each device."""

    def __init__(self, path: str, devices: Sequence[str] = (), module: str = MODULE) -> None:
        """`devices` are values of CUDA_VISIBLE_DEVICES, one process each; without any the learners
        are in this process."""
        self.path = path
        self.learner: Learner | None = None
        """The loaded weights. It is never adapted itself: a twin made meanwhile would share the
        adapter."""
        self.halted = threading.Event()
        """Set when the command is interrupted, so that nothing new is started."""
        self._hands = [Hand(path, device, module) for device in devices]
        self._found: dict[int, Learner] = {}
        self._free: queue.SimpleQueue[Hand] = queue.SimpleQueue()
        for hand in self._hands:
            self._free.put(hand)
        self._lock = threading.Lock()

    def own(self) -> Learner:
        """Return this thread's twin of the learner. Raises Stopped after an interrupt."""
        if self.halted.is_set():
            raise Stopped("interrupted")
        with self._lock:
            thread = threading.get_ident()
            if self.learner is None:
                self.learner = Learner.load(self.path)
            if thread not in self._found:
                self._found[thread] = self.learner.twin()
            return self._found[thread]

    @contextmanager
    def hand(self) -> Iterator[Hand | None]:
        """Wait for a free process and lend it; None if the pool has none. Raises Stopped after an
        interrupt."""
        if not self._hands:
            yield None
            return
        found = self._free.get()
        try:
            if self.halted.is_set():
                raise Stopped("interrupted")
            yield found
        finally:
            self._free.put(found)

    @contextmanager
    def pupil(self) -> Iterator[Pupil]:
        """Lend a process if the pool has any, else this thread's learner."""
        with self.hand() as hand:
            yield hand or self.own()

    def close(self) -> None:
        """End all processes."""
        for hand in self._hands:
            hand.close()
