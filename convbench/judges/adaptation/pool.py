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
from convbench.judges.adaptation.learner import AdaptationReplies, BaseLearner, Learner, Question
from convbench.judges.adaptation.settings import InnerSettings
from convbench.models.devices import VISIBLE
from convbench.util.guard import last_lines, start_worker

MODULE = "convbench.judges.adaptation.worker"
LINE = 64 << 20
"""Longest line from the process in bytes."""
END_S = 10.0
"""Seconds that the process has to end before it is killed."""
TAUGHT = TypeAdapter(AdaptationReplies)


class DeviceWorker(BaseLearner):
    """A process with its own weights on one device; it starts with the first request."""

    def __init__(self, path: str, device: str, module: str = MODULE) -> None:
        """`device` is a value of CUDA_VISIBLE_DEVICES; "" is the CPU. `module` is the program."""
        self.path, self.device, self.module = path, device, module
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None

    def teach_texts(
        self,
        texts: Sequence[str],
        questions: Sequence[Question],
        inner: InnerSettings,
        guard: Sequence[Question] = (),
    ) -> AdaptationReplies:
        """Return the replies as a `Learner` does. Raises TrainError if the process failed."""
        line = {
            "texts": list(texts),
            "questions": [asdict(question) for question in questions],
            "inner": inner.model_dump(mode="json"),
            "guard": [asdict(question) for question in guard],
        }
        return TAUGHT.validate_python(self.do_line(line))

    def do_line(self, request: Mapping[str, Any]) -> Any:
        """Send one request to the process, which is started if it does not run, and return its
        answer as JSON data.

        Raise TrainError if the process fails; the next request starts a new one.
        """
        if self._process is None:
            self._start()
        return self._exchange_line("done", orjson.dumps(request) + b"\n")

    def _start(self) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        command = [sys.executable, "-m", self.module, self.path]
        self._process = start_worker(command, {VISIBLE: self.device}, self._stderr)
        self._exchange_line("ready")

    def _exchange_line(self, name: str, line: bytes = b"") -> Any:
        """Send a line and return the value of this name in the process's answer."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
            reply = orjson.loads(process.stdout.readline(LINE) or b"null")
        except (OSError, ValueError):
            reply = None
        if isinstance(reply, dict) and name in reply:
            return reply[name]
        why = reply.get("broken") if isinstance(reply, dict) else None
        code = self._end_process()
        where = f"device {self.device}" if self.device else "the CPU"
        raise TrainError(
            f"{self.path}: its process on {where} "
            + (f"failed: {why}" if why else f"ended with exit code {code}{self._stderr_tail()}")
        )

    def _stderr_tail(self) -> str:
        """Return the last line of the process's stderr, to append to a message; "" without one."""
        if self._stderr is None:
            return ""
        lines = last_lines(self._stderr)
        return f": {lines[-1][-300:]}" if lines else ""

    def _end_process(self) -> int:
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
        self._end_process()
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None


class LearnerPool:
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
        self._workers = [DeviceWorker(path, device, module) for device in devices]
        self._twins: dict[int, Learner] = {}
        self._free: queue.SimpleQueue[DeviceWorker] = queue.SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)
        self._lock = threading.Lock()

    def own_learner(self) -> Learner:
        """Return this thread's twin of the learner; the weights are loaded at the first call, and
        the twin is made at each thread's first.

        Raise Stopped after an interrupt, MissingDependency or TrainError if the weights cannot be
        loaded.
        """
        if self.halted.is_set():
            raise Stopped("interrupted")
        with self._lock:
            thread = threading.get_ident()
            if self.learner is None:
                self.learner = Learner.load(self.path)
            if thread not in self._twins:
                self._twins[thread] = self.learner.make_twin()
            return self._twins[thread]

    @contextmanager
    def lend_worker(self) -> Iterator[DeviceWorker | None]:
        """Wait for a free process and lend it; None if the pool has none. Raises Stopped after an
        interrupt."""
        if not self._workers:
            yield None
            return
        worker = self._free.get()
        try:
            if self.halted.is_set():
                raise Stopped("interrupted")
            yield worker
        finally:
            self._free.put(worker)

    @contextmanager
    def lend_learner(self) -> Iterator[BaseLearner]:
        """Lend a process if the pool has any, else this thread's learner."""
        with self.lend_worker() as worker:
            yield worker or self.own_learner()

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.close()
