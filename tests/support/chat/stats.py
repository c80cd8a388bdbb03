"""What the provider counted, in memory and, if asked, in a file."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Stats:
    """Counts since the last reset. Only completion calls count, not `/_stats` and the like."""

    calls: int = 0
    """Completion calls that arrived, refused ones included."""
    answered: int = 0
    """Calls that got a usable reply (200, no fault)."""
    abandoned: int = 0
    """Calls whose client left before the reply."""
    in_flight: int = 0
    """Accepted calls that have no reply yet."""
    peak_in_flight: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    billed_prompt: int = 0
    """Prompt tokens charged, also for replies that were of no use or never arrived."""
    billed_reply: int = 0
    dearest_prompt: int = 0
    """Most prompt tokens of one charge."""
    dearest_reply: int = 0
    first_call: float | None = None
    """Seconds since the epoch."""
    last_reply: float | None = None
    """Seconds since the epoch, of the last reply of any kind."""
    status: Counter[str] = field(default_factory=Counter)
    """HTTP status (or "reset", "partial") -> replies."""
    faults: Counter[str] = field(default_factory=Counter)
    """Fault kind -> calls it hit, and "limiter"."""
    by_request: Counter[str] = field(default_factory=Counter)
    """Request hash (model, messages, sampling) -> calls."""
    answered_by_request: Counter[str] = field(default_factory=Counter)
    """Request hash -> usable replies."""
    faulted_by_request: Counter[str] = field(default_factory=Counter)
    """Request hash -> faults."""

    def arrive(self) -> int:
        """Count a call; its number, from 1."""
        self.calls += 1
        if self.first_call is None:
            self.first_call = time.time()
        return self.calls

    def enter(self) -> None:
        """Count a call as in flight."""
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)

    def reply(self, status: str) -> None:
        """Count a reply."""
        self.status[status] += 1
        self.last_reply = time.time()

    def bill(self, prompt_tokens: int, reply_tokens: int) -> None:
        """Charge for a call."""
        self.billed_prompt += prompt_tokens
        self.billed_reply += reply_tokens
        self.dearest_prompt = max(self.dearest_prompt, prompt_tokens)
        self.dearest_reply = max(self.dearest_reply, reply_tokens)

    def answer(self, key: str, prompt_tokens: int, completion_tokens: int) -> None:
        """Count a usable reply to the request `key`."""
        self.answered += 1
        self.answered_by_request[key] += 1
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens

    def summary(self, *, requests: bool = False) -> dict[str, Any]:
        """Everything as JSON; the counts per request hash only when asked for.

        `requests` is how many different ones came, `repeats` how many usable replies were given
        beyond the first of each, `span_s` the seconds from the first call to the last reply.
        """
        out = self._values()
        per_request = {name: out.pop(name) for name in list(out) if name.endswith("by_request")}
        out["requests"] = len(self.by_request)
        out["repeats"] = self.answered - len(self.answered_by_request)
        started, ended = self.first_call, self.last_reply
        out["span_s"] = ended - started if started is not None and ended is not None else None
        return out | per_request if requests else out

    def fresh(self) -> Stats:
        """Zeros, but for the calls in flight."""
        return Stats(in_flight=self.in_flight, peak_in_flight=self.in_flight)

    def save(self, path: Path) -> None:
        """Write the counters to `path`, whole or not at all."""
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(json.dumps(self._values()))
        os.replace(temporary, path)

    def _values(self) -> dict[str, Any]:
        return {k: dict(v) if isinstance(v, Counter) else v for k, v in vars(self).items()}

    @classmethod
    def load(cls, path: Path) -> Stats:
        """The counters that `save` wrote, with nothing in flight; zeros where no file is."""
        if not path.exists():
            return cls()
        found = json.loads(path.read_text())
        values: dict[str, Any] = {
            name: Counter(value) if isinstance(value, dict) else value
            for name, value in found.items()
        }
        return cls(**(values | {"in_flight": 0}))
