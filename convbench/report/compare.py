"""Check that policies are comparable: same judge, prompts, questions, teacher and sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convbench.judge.kinds import grades_unfenced
from convbench.report.policies import Policy
from convbench.schema import Example, RunManifest
from convbench.schema.noun import differences as leaves

NOT_PROMPTS = {
    "name",
    "title",
    "licence",
    "language",
    "protocol",
    "judge",
    "speakers",
    "sample",
    "source",
}
"""Keys of a task that change no prompt. Questions and speakers are compared on their own."""
SHOWN = 4
"""Most differences listed in one error message."""


def own_protocol(policy: Policy) -> bool:
    """Return True if the policy runs under the protocol its recipe sets (`dpo`: `direct`)."""
    name = policy.recipe.get("eval_protocol")
    return name is not None and policy.run.manifest.protocol.name == name


def differences(first: Policy, other: Policy, *, questions: bool = True) -> list[str]:
    """Return the differences that keep two policies out of one table, each `key: first → other`.

    With `questions` false the drawn questions are not compared (for pooled seeds).
    """
    one, two = first.run.manifest, other.run.manifest
    exempt = own_protocol(other) or own_protocol(first)
    found = leaves("task", _prompts(one), _prompts(two))
    if not exempt:
        found += leaves("protocol", _dump(one.protocol), _dump(two.protocol))
        found += leaves("turns", one.turns, two.turns)
    found += leaves("mode", one.mode, two.mode)
    found += leaves("temperatures", list(one.temperatures), list(two.temperatures))
    found += leaves("samples", one.samples, two.samples)
    found += _cast(one, two, exempt)
    if questions:
        found += _questions(first, other)
    return found + _judges(first, other)


def _dump(noun: Any) -> dict[str, Any]:
    found: dict[str, Any] = noun.model_dump(mode="json", exclude={"title", "reference"})
    return found


def _prompts(manifest: RunManifest) -> dict[str, Any]:
    return {k: v for k, v in _dump(manifest.task).items() if k not in NOT_PROMPTS}


def _cast(one: RunManifest, two: RunManifest, exempt: bool) -> list[str]:
    """Return the differences in the other speakers, and in the policy's sampling limits."""
    names = (set(one.cast) & set(two.cast)) if exempt else (set(one.cast) | set(two.cast))
    found = []
    for name in sorted(names):
        a, b = one.cast.get(name), two.cast.get(name)
        keep = {"sampling"} if name == one.protocol.policy else {"model", "sampling", "fingerprint"}
        found += leaves(
            f"cast.{name}",
            a.model_dump(mode="json", include=keep) if a else None,
            b.model_dump(mode="json", include=keep) if b else None,
        )
    return found


def _questions(first: Policy, other: Policy) -> list[str]:
    one, two = _asked(first), _asked(other)
    if one.keys() != two.keys():
        return [
            f"questions: {len(one.keys() - two.keys())} only in {first.name}, "
            f"{len(two.keys() - one.keys())} only in {other.name}, {len(one.keys() & two.keys())} "
            "in both"
        ]
    changed = sum(one[key] != two[key] for key in one)
    return [f"questions: {changed} of {len(one)} differ in text or options"] if changed else []


def _asked(policy: Policy) -> dict[str, Example]:
    manifest, split = policy.run.manifest, policy.split
    return {
        key: example
        for key, example in policy.run.examples.items()
        if split in ("all", example.split) and manifest.split in ("all", example.split)
    }


def _judges(first: Policy, other: Policy) -> list[str]:
    """Return the differences in the judges that both policies have. A judge that only one has is
    no difference: its cells are empty."""
    found = []
    for judge in first.judges:
        one, two = first.fingerprints(judge), other.fingerprints(judge)
        if not two or one == two:
            continue
        a, b = (_spec(policy, prints) for policy, prints in ((first, one), (other, two)))
        named = leaves(f"judge {judge}", a, b) if a and b and len(one) == len(two) == 1 else []
        found += named or [f"judge {judge}: {'+'.join(one)} → {'+'.join(two)}"]
    return found


def _spec(policy: Policy, prints: tuple[str, ...]) -> dict[str, Any]:
    specs = policy.run.judge_specs()
    return _dump(specs[prints[0]]) if prints[0] in specs else {}


def unquoted_judges(policies: Sequence[Policy]) -> list[str]:
    """Return a note for each judge or grader whose prompt quoted other models' text unfenced."""
    specs = {
        (judge, mark): spec
        for policy in policies
        for judge in policy.judges
        for mark in policy.fingerprints(judge)
        if (spec := policy.run.judge_specs().get(mark)) is not None
    }
    notes = (
        f"Verdicts of {judge} are from before question and options were quoted in its prompt "
        "(fence: nonce)."
        if spec.fence == "nonce"
        else f"The grader of {judge} was shown answers as they were written (fence: none)."
        for (judge, _), spec in specs.items()
        if spec.fence == "nonce" or grades_unfenced(spec)
    )
    return list(dict.fromkeys(notes))


def mixed_judge(policy: Policy) -> list[str]:
    """Return a line for each judge whose verdicts on this policy come from several versions."""
    return [
        f"judge {judge}: verdicts of {len(policy.fingerprints(judge))} versions of it"
        for judge in policy.judges
        if len(policy.fingerprints(judge)) > 1
    ]
