"""What keeps two policies out of one table: other prompts, questions, sampling or judges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convbench.errors import RunError
from convbench.reports.policies import Policy
from convbench.schema import Example, RunManifest
from convbench.schema.base import field_differences
from convbench.store import Run

NO_PROMPTS = {"name", "title", "licence", "language", "protocol", "judge", "speakers", "sample",
              "source", "reference"}  # fmt: skip
"""Keys of a task that change no prompt. Questions and speakers are compared on their own."""
SHOWN = 4
"""Most differences that one message lists."""


class NotComparable(RunError):
    """Raised for policies that are not comparable, unless the user allows it."""


def differences(first: Policy, other: Policy) -> list[str]:
    """Return the differences of two policies' settings and judges, mostly `key: first → other`;
    empty if they are comparable.

    A policy whose recipe asks for a protocol of its own may differ in protocol, turns and further
    speakers. A judge that only one has is no difference.
    """
    a, b = first.run.manifest, other.run.manifest
    exempt = has_own_protocol(first) or has_own_protocol(other)
    pairs: list[tuple[str, Any, Any]] = [("task", _fields(a.task), _fields(b.task))]
    if not exempt:
        pairs += [("protocol", _fields(a.protocol), _fields(b.protocol))]
        pairs += [("turns", a.turns, b.turns)]
    pairs += [
        ("mode", a.mode, b.mode),
        ("temperatures", list(a.temperatures), list(b.temperatures)),
        ("samples", a.samples, b.samples),
    ]
    names = a.cast.keys() & b.cast.keys() if exempt else a.cast.keys() | b.cast.keys()
    pairs += [(f"cast.{name}", _speaker(a, name), _speaker(b, name)) for name in sorted(names)]
    lines = [line for key, x, y in pairs for line in field_differences(key, x, y)]
    return lines + _judge_differences(first, other)


def question_differences(first: Run, other: Run, split: str) -> list[str]:
    """Return at most one line on the questions of a split that differ between two runs."""
    if first.path == other.path or _same_file(first, other):
        return []
    a, b = _questions(first, split), _questions(other, split)
    if a.keys() != b.keys():
        return [
            f"questions: {len(a.keys() - b.keys())} only in {first.path.name}, "
            f"{len(b.keys() - a.keys())} only in {other.path.name}, "
            f"{len(a.keys() & b.keys())} in both"
        ]
    changed = sum(a[key] != b[key] for key in a)
    return [f"questions: {changed} of {len(a)} differ in text or options"] if changed else []


def has_own_protocol(policy: Policy) -> bool:
    """Return whether the recipe asks for a protocol (`eval_protocol`) and the run has it."""
    name = (policy.recipe or {}).get("eval_protocol")
    return name is not None and policy.run.manifest.protocol.name == name


def mixed_judges(policy: Policy) -> list[str]:
    """Return a line for each judge whose verdicts on one policy are of several versions of it."""
    return [
        f"judge {judge}: verdicts of {len(marks)} versions of it"
        for judge, marks in policy.judges.items()
        if len(marks) > 1
    ]


def refuse(first: Policy, other: Policy, problems: list[str]) -> NotComparable:
    """Return the error for two policies that are not comparable."""
    shown = "; ".join(problems[:SHOWN])
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return NotComparable(
        f"{other.name} ({other.run.path}) and {first.name} ({first.run.path}) are not "
        f"comparable: {shown}{more}. Report them separately, or add --allow-incomparable to "
        "compare them in one table anyway"
    )


def _fields(spec: Any) -> dict[str, Any]:
    fields: dict[str, Any] = spec.model_dump(mode="json", exclude={"title", "reference"})
    is_task = "sample" in fields and "source" in fields
    return {k: v for k, v in fields.items() if not (is_task and k in NO_PROMPTS)}


def _speaker(manifest: RunManifest, name: str) -> dict[str, Any] | None:
    """Return what must be equal of a speaker: of the policy its sampling limits alone."""
    member = manifest.cast.get(name)
    own = name == manifest.protocol.policy
    keys = {"sampling"} if own else {"model", "sampling", "fingerprint"}
    return None if member is None else member.model_dump(mode="json", include=keys)


def _same_file(first: Run, other: Run) -> bool:
    a, b = first.examples_file, other.examples_file
    alike = a.is_file() and b.is_file() and a.stat().st_size == b.stat().st_size
    return (
        alike and first.manifest.split == other.manifest.split and a.read_bytes() == b.read_bytes()
    )


def _questions(run: Run, split: str) -> Mapping[str, Example]:
    built = run.manifest.split
    return {
        name: example
        for name, example in run.examples.items()
        if split in ("all", example.split) and built in ("all", example.split)
    }


def _judge_differences(first: Policy, other: Policy) -> list[str]:
    lines = []
    for judge, marks in first.judges.items():
        theirs = other.judges.get(judge)
        if not theirs or theirs == marks:
            continue
        specs = [_judge_fields(policy, judge) for policy in (first, other)]
        named = field_differences(f"judge {judge}", *specs) if all(specs) else []
        lines += named or [f"judge {judge}: {'+'.join(marks)} → {'+'.join(theirs)}"]
    return lines


def _judge_fields(policy: Policy, judge: str) -> dict[str, Any]:
    """Return the fields of a judge's spec; empty if verdicts are of several versions of it."""
    marks = policy.judges.get(judge, frozenset())
    specs = policy.run.judge_specs()
    return _fields(specs[min(marks)]) if len(marks) == 1 and min(marks) in specs else {}
