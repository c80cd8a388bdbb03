"""Cache of finished work on disk, keyed by everything that its outcome depends on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from convbench.errors import RunError
from convbench.judges.adaptation.learner import Question
from convbench.judges.adaptation.metrics import VERSION
from convbench.judges.adaptation.settings import InnerSettings
from convbench.schema import fingerprint
from convbench.schema.judge import Fence
from convbench.store.jsonl import Appender, read_records

T = TypeVar("T")
_LIMITS = {"max_seconds", "ask_at_once", "offload"}
"""Settings that do not change an outcome."""


def adaptation_key(
    policy: str,
    texts: Sequence[str],
    questions: Sequence[Question],
    inner: InnerSettings,
    grader: str | None = None,
    guard: Sequence[Question] = (),
    fence: Fence = "none",
) -> str:
    """Return the cache key of an adaptation, a fingerprint of these arguments; limits of time and
    batch size do not change it.

    `policy` is the fingerprint of the weights that learn, so that the next round's policy tries an
    identical edit anew; `fence` says how answers are quoted for a grading model.
    """
    question_values = [
        [[list(question.messages), question.golds] for question in part]
        for part in (questions, guard)
    ]
    settings_values = inner.model_dump(mode="json", exclude=_LIMITS)
    if inner.grade == "recall":
        settings_values["recall"] = VERSION
    if inner.grade == "model" and fence != "none":
        settings_values["fence"] = fence
    # Keys from before there was a choice stay valid. A server's port is no part of the key.
    if inner.tuning == "lora":
        settings_values.pop("tuning")
    served = settings_values.pop("server") is not None
    if served:
        settings_values["server"] = "vllm"
    return fingerprint(policy, list(texts), question_values, settings_values, grader)


class WorkCache(Appender, Generic[T]):
    """Dataclasses by key in an append-only file; the newest counts. Safe for several threads."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        """Read the stored values, instances of the dataclass `kind`. Raises RunError."""
        adapter = TypeAdapter(kind)
        try:
            stored = read_records(path, "key")
            self._values = {each.pop("key"): adapter.validate_python(each) for each in stored}
        except ValidationError as error:
            reason = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise RunError(f"{path}: found a record of another shape: {reason}") from None
        super().__init__(path)
        self._lock = threading.Lock()

    def get(self, name: str) -> T | None:
        """Return the value of a key; None without one."""
        return self._values.get(name)

    def put(self, name: str, done: T) -> None:
        """Store a value in memory and append it to the file."""
        values: dict[str, Any] = asdict(done)  # type: ignore[call-overload]
        with self._lock:
            self._values[name] = done
            self.write(orjson.dumps({"key": name, **values}))
