"""What keeps two policies out of one table: other prompts, questions, sampling or judges."""

from __future__ import annotations

from typing import Any

from convbench.errors import RunError
from convbench.reports.policies import Policy
from convbench.schema.base import field_differences
from convbench.store import Run

TEXTS = {"title", "reference"}
PARTS = {"protocol", "judge", "speakers", "sample", "source"}
NO_PROMPTS = TEXTS | PARTS | {"name", "licence", "language"}
"""Keys of a task that change no prompt. Questions and speakers are compared on their own."""


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
    specs = {**first.run.judge_specs(), **other.run.judge_specs()}
    for judge, marks in other.judges.items():
        versions = list(dict.fromkeys((*sorted(first.judges.get(judge, ())), *sorted(marks))))
        if len(versions) > 1:
            known = [
                specs[m].model_dump(mode="json", exclude=TEXTS) for m in versions if m in specs
            ]
            both = len(known) == len(versions) == 2
            lines += (both and field_differences(f"judge {judge}", *known)) or [
                f"judge {judge}: verdicts of {len(versions)} versions of it"
            ]
    return lines


def _facts(policy: Policy, exempt: bool) -> dict[str, Any]:
    """Return what must be equal of a policy's settings; of its own speaker the limits alone."""
    manifest = policy.run.manifest
    keys = {"task", "mode", "samples", "cast", "temperatures"}
    facts = manifest.model_dump(
        mode="json",
        include=keys if exempt else keys | {"protocol", "turns"},
        exclude={"task": NO_PROMPTS, "protocol": TEXTS},
    )
    own = manifest.protocol.policy
    for name, member in facts["cast"].items():
        known = ("sampling",) if name == own else ("sampling", "model", "fingerprint")
        facts["cast"][name] = {key: member[key] for key in known}
    return facts


def question_differences(first: Run, other: Run, split: str) -> list[str]:
    """Return at most one line on the questions of a split that differ between two runs."""
    if first.path == other.path:
        return []
    a, b = (
        {n: e for n, e in r.examples.items() if {split, r.manifest.split} <= {"all", e.split}}
        for r in (first, other)
    )
    both = a.keys() & b.keys()
    changed = sum(a[name] != b[name] for name in both)
    if len(a) != len(both) or len(b) != len(both):
        return [
            f"questions: {len(a) - len(both)} only in {first.path.name}, {len(b) - len(both)} only "
            f"in {other.path.name}, {len(both)} in both"
        ]
    return [f"questions: {changed} of {len(a)} differ in text or options"] if changed else []


def has_own_protocol(policy: Policy) -> bool:
    """Return whether the recipe asks for a protocol (`eval_protocol`) and the run has it."""
    name = policy.recipe.get("eval_protocol")
    return name is not None and policy.run.manifest.protocol.name == name
