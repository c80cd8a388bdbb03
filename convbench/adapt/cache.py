"""Finished adaptations on disk, by everything that an outcome depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from convbench.adapt.learner import Outcome, Question
from convbench.adapt.settings import Inner
from convbench.schema import fingerprint
from convbench.store.jsonl import Appender, records

_LIMITS = {"max_seconds", "ask_at_once"}
"""Settings that leave an outcome as it is."""


def key(
    policy: str,
    texts: Sequence[str],
    questions: Sequence[Question],
    inner: Inner,
    grader: str | None = None,
) -> str:
    """Return the name of an adaptation. `policy` is the fingerprint of the weights that learn, so
    that the next round's policy tries an identical edit anew."""
    asked = [[list(question.messages), question.golds] for question in questions]
    said = inner.model_dump(mode="json", exclude=_LIMITS)
    return fingerprint(policy, list(texts), asked, said, grader)


class Cache:
    """Outcomes by key, appended one by one; the newest counts. Closed by its `with` block."""

    def __init__(self, path: Path) -> None:
        self._found = {record["key"]: _outcome(record) for record in records(path)}
        self._file = Appender(path)

    def get(self, name: str) -> Outcome | None:
        """Return a finished adaptation."""
        return self._found.get(name)

    def put(self, name: str, outcome: Outcome) -> None:
        """Keep one."""
        self._found[name] = outcome
        self._file.write(orjson.dumps({"key": name, **asdict(outcome)}))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def _outcome(record: dict[str, Any]) -> Outcome:
    values = {name: value for name, value in record.items() if name != "key"}
    values["by_seed"] = tuple(values["by_seed"])
    values["replies"] = tuple(map(tuple, values["replies"]))
    return Outcome(**values)
