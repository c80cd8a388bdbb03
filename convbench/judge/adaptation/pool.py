"""A learner that several threads adapt at once: here, or in processes on devices of their own."""

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
"""Longest line of the process in bytes."""
END_S = 10.0
"""Seconds that the process gets to end when it is asked to."""
TAUGHT = TypeAdapter(Taught)


class Hand(Pupil):
    """One process and its weights; it starts with the first adaptation."""

    def __init__(self, path: str, device: str, module: str = MODULE) -> None:
        """`device` is what CUDA_VISIBLE_DEVICES calls it; "" is the CPU. `module` is what runs."""
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
        """As `Learner.teach`; TrainError where the process broke down."""
        line = {
            "texts": list(texts),
            "questions": [asdict(one) for one in questions],
            "inner": inner.model_dump(mode="json"),
            "guard": [asdict(one) for one in guard],
        }
        return TAUGHT.validate_python(self.do(line))

    def do(self, asked: Mapping[str, Any]) -> Any:
        """Return the answer to one line, as plain data; TrainError where the process broke
        down."""
        if self._process is None:
            self._start()
        return self._answer("done", orjson.dumps(asked) + b"\n")

    def _start(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        command = [sys.executable, "-m", self.module, self.path]
        self._process = start_worker(command, {VISIBLE: self.device}, self._said)
        self._answer("ready")

    def _answer(self, name: str, line: bytes = b"") -> Any:
        """Send a line and return what the process says under this name."""
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
        """Return the last line of what the process wrote, for the end of a sentence."""
        if self._said is None:
            return ""
        lines = last_lines(self._said)
        return f": {lines[-1][-300:]}" if lines else ""

    def _end(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # what was not sent yet goes nowhere
                continue
        try:
            return process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def close(self) -> None:
        """End the process and wait until it is gone, and its memory with it."""
        self._end()
        if self._said is not None:
            self._said.close()
            self._said = None


class Twins:
    """The learner of some weights and, by thread, its twins."""

    def __init__(self, path: str, devices: Sequence[str] = (), module: str = MODULE) -> None:
        """`devices`: those of the processes, by the names that CUDA_VISIBLE_DEVICES takes; none
        leaves everything in this one."""
        self.path = path
        self.learner: Learner | None = None
        """The weights as they were loaded. It never wears an adapter itself: a twin made while it
        does would share it."""
        self.halted = threading.Event()
        """Set where the command is being interrupted: nothing more is begun."""
        self._hands = [Hand(path, device, module) for device in devices]
        self._found: dict[int, Learner] = {}
        self._free: queue.SimpleQueue[Hand] = queue.SimpleQueue()
        for hand in self._hands:
            self._free.put(hand)
        self._lock = threading.Lock()

    def own(self) -> Learner:
        """Return this thread's twin; Stopped where the command is being interrupted."""
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
        """Lend a process that is free, waiting for one; None where there are none. Stopped as with
        `own`."""
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
        """Lend who learns in this thread."""
        with self.hand() as hand:
            yield hand or self.own()

    def close(self) -> None:
        """End the processes."""
        for hand in self._hands:
            hand.close()
