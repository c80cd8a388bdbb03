"""What keeps two policies out of one table: other prompts, questions, sampling or judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convbench.errors import RunError
from convbench.reports.policies import Policy
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
    exempt = has_own_protocol(first) or has_own_protocol(other)
    ours, theirs = (_facts(policy, exempt) for policy in (first, other))
    if exempt:
        for speaker in ours["cast"].keys() ^ theirs["cast"].keys():
            for facts in (ours, theirs):
                facts["cast"].pop(speaker, None)
    lines = [line for key in ours for line in field_differences(key, ours[key], theirs[key])]
    for judge, marks in other.judges.items():
        versions = first.judges.get(judge, marks) | marks
        if len(versions) > 1:
            specs = [_judge_fields(policy, judge) for policy in (first, other)]
            named = field_differences(f"judge {judge}", *specs) if all(specs) else []
            lines += named or [f"judge {judge}: verdicts of {len(versions)} versions of it"]
    return lines


def _judge_fields(policy: Policy, judge: str) -> dict[str, Any]:
    """Return the fields of a judge's spec; empty if verdicts are of several versions of it."""
    mark, *others = policy.judges.get(judge, [""])
    spec = None if others else policy.run.judge_specs().get(mark)
    return spec.model_dump(mode="json", exclude={"title", "reference"}) if spec else {}


def _facts(policy: Policy, exempt: bool) -> dict[str, Any]:
    """Return what must be equal of a policy's settings; of its own speaker the limits alone."""
    m, limits = policy.run.manifest, {"sampling"}
    of_others = limits | {"model", "fingerprint"}
    cast = {
        name: one.model_dump(
            mode="json", include=limits if name == m.protocol.policy else of_others
        )
        for name, one in m.cast.items()
    }
    task = {k: v for k, v in m.task.model_dump(mode="json").items() if k not in NO_PROMPTS}
    facts: dict[str, Any] = {"task": task, "mode": m.mode, "samples": m.samples, "cast": cast}
    facts["temperatures"] = list(m.temperatures)
    if not exempt:
        facts["protocol"] = m.protocol.model_dump(mode="json", exclude={"title", "reference"})
        facts["turns"] = m.turns
    return facts


def question_differences(first: Run, other: Run, split: str) -> list[str]:
    """Return at most one line on the questions of a split that differ between two runs."""
    if first.path == other.path:
        return []
    a, b = (
        {
            name: example
            for name, example in run.examples.items()
            if {split, run.manifest.split} <= {"all", example.split}
        }
        for run in (first, other)
    )
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
    name = policy.recipe.get("eval_protocol")
    return name is not None and policy.run.manifest.protocol.name == name


def refuse(first: Policy, policy: Policy, problems: Sequence[str]) -> NotComparable:
    """Return the error for two policies that are not comparable."""
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return NotComparable(
        f"{policy.name} ({policy.run.path}) and {first.name} ({first.run.path}) are not "
        f"comparable: {'; '.join(problems[:SHOWN])}{more}. Report them separately, or add "
        "--allow-incomparable to compare them in one table anyway"
    )
