"""Load specs as the options say: folders, plugins and `--set` by kind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from convbench import catalog
from convbench.catalog.load import assign_key
from convbench.errors import UsageError
from convbench.options.shared import SpecOptions
from convbench.schema import ProtocolSpec, TaskSpec

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class SpecSets:
    """Values of `--set` by kind of spec, then by dotted key."""

    by_kind: dict[str, dict[str, Any]] = field(default_factory=dict)

    def for_kind(self, kind: str) -> dict[str, Any]:
        """Return the values for one kind of spec by dotted key, empty if there are none."""
        return self.by_kind.get(kind, {})


def sort_sets(pairs: Sequence[str], kinds: Sequence[str]) -> SpecSets:
    """Return the values of `kind.key=value` pairs by kind, each kind of `kinds` with a dict that
    may be empty.

    Raises UsageError for another kind, SpecError for a pair without a key.
    """
    out: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
    for key, value in catalog.parse_sets(pairs).items():
        kind, dot, rest = key.partition(".")
        if not dot or kind not in out:
            expected = ", ".join(f"{kind}.KEY=VALUE" for kind in kinds)
            raise UsageError(f"--set {key}: found no spec it belongs to; expected {expected}")
        out[kind][rest] = value
    return SpecSets(out)


def as_sets(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return values as `--set` pairs, `KEY=JSON` in the same order; JSON is YAML too."""
    return tuple(f"{key}={json.dumps(value)}" for key, value in values.items())


def load_plugins(options: SpecOptions) -> None:
    """Load each plugin file, unless it is loaded already.

    Raises SpecError for one that cannot be loaded.
    """
    for path in options.plugins:
        catalog.load_plugin(path)


def load_task(name: str, options: SpecOptions, sets: SpecSets) -> TaskSpec:
    """Return the task spec of this name with `--set` applied. Raises SpecError."""
    return catalog.load_spec(
        TaskSpec, "tasks", name, specs=options.folders, sets=sets.for_kind("task")
    )


def load_protocol(name: str, options: SpecOptions, sets: SpecSets) -> ProtocolSpec:
    """Return the protocol spec of this name with `--set` applied. Raises SpecError."""
    return catalog.load_spec(
        ProtocolSpec, "protocols", name, specs=options.folders, sets=sets.for_kind("protocol")
    )


def with_sets(spec: S, kind: str, sets: SpecSets) -> S:
    """Return a loaded spec with the `--set` values of its kind applied and checked; without any,
    the same spec.

    Raises SpecError for a key or value that the spec does not allow.
    """
    if not sets.for_kind(kind):
        return spec
    value = spec.model_dump(mode="json")
    for key, new in sets.for_kind(kind).items():
        assign_key(value, key, new, kind)
    return catalog.check_spec(type(spec), value, kind)


def with_count(task: TaskSpec, count: int | Literal["all"] | None) -> TaskSpec:
    """Return a copy of the task with this number of questions to draw; None returns the task
    unchanged."""
    if count is None:
        return task
    return task.model_copy(update={"sample": task.sample.model_copy(update={"count": count})})
