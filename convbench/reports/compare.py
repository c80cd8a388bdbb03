"""Check that policies are comparable: same judge, prompts, questions, teacher and sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convbench.judges.kinds import grades_unfenced
from convbench.reports.policies import Policy
from convbench.schema import Example, RunManifest
from convbench.schema.base import field_differences

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


def has_own_protocol(policy: Policy) -> bool:
    """Return True if the policy's recipe sets `eval_protocol` and its run used the protocol of that
    name."""
    name = policy.recipe.get("eval_protocol")
    return name is not None and policy.run.manifest.protocol.name == name


def policy_differences(first: Policy, other: Policy, *, questions: bool = True) -> list[str]:
    """Return the differences that keep two policies out of one table, one text each; an empty list
    if they are comparable.

    Settings and judges are mostly `key: first → other`; questions are a count. If either policy has
    a protocol of its own, protocol, turns and speakers that only one has are not compared. A judge
    that only one has is no difference. With `questions` false the questions are not compared.
    """
    manifest, other_manifest = first.run.manifest, other.run.manifest
    exempt = has_own_protocol(other) or has_own_protocol(first)
    lines = field_differences("task", _prompt_fields(manifest), _prompt_fields(other_manifest))
    if not exempt:
        lines += field_differences(
            "protocol", _noun_fields(manifest.protocol), _noun_fields(other_manifest.protocol)
        )
        lines += field_differences("turns", manifest.turns, other_manifest.turns)
    lines += field_differences("mode", manifest.mode, other_manifest.mode)
    lines += field_differences(
        "temperatures", list(manifest.temperatures), list(other_manifest.temperatures)
    )
    lines += field_differences("samples", manifest.samples, other_manifest.samples)
    lines += _cast_differences(manifest, other_manifest, exempt)
    if questions:
        lines += _question_differences(first, other)
    return lines + _judge_differences(first, other)


def _noun_fields(noun: Any) -> dict[str, Any]:
    fields: dict[str, Any] = noun.model_dump(mode="json", exclude={"title", "reference"})
    return fields


def _prompt_fields(manifest: RunManifest) -> dict[str, Any]:
    return {k: v for k, v in _noun_fields(manifest.task).items() if k not in NOT_PROMPTS}


def _cast_differences(
    manifest: RunManifest, other_manifest: RunManifest, exempt: bool
) -> list[str]:
    """Return the differences in the other speakers, and in the policy's sampling limits."""
    names = (
        (set(manifest.cast) & set(other_manifest.cast))
        if exempt
        else (set(manifest.cast) | set(other_manifest.cast))
    )
    lines = []
    for name in sorted(names):
        a, b = manifest.cast.get(name), other_manifest.cast.get(name)
        keep = (
            {"sampling"}
            if name == manifest.protocol.policy
            else {"model", "sampling", "fingerprint"}
        )
        lines += field_differences(
            f"cast.{name}",
            a.model_dump(mode="json", include=keep) if a else None,
            b.model_dump(mode="json", include=keep) if b else None,
        )
    return lines


def _question_differences(first: Policy, other: Policy) -> list[str]:
    examples, other_examples = _split_examples(first), _split_examples(other)
    if examples.keys() != other_examples.keys():
        return [
            f"questions: {len(examples.keys() - other_examples.keys())} only in {first.name}, "
            f"{len(other_examples.keys() - examples.keys())} only in {other.name}, "
            f"{len(examples.keys() & other_examples.keys())} "
            "in both"
        ]
    changed = sum(examples[key] != other_examples[key] for key in examples)
    return [f"questions: {changed} of {len(examples)} differ in text or options"] if changed else []


def _split_examples(policy: Policy) -> dict[str, Example]:
    manifest, split = policy.run.manifest, policy.split
    return {
        key: example
        for key, example in policy.run.examples.items()
        if split in ("all", example.split) and manifest.split in ("all", example.split)
    }


def _judge_differences(first: Policy, other: Policy) -> list[str]:
    """Return the differences in the judges that both policies have. A judge that only one has is
    no difference: its cells are empty."""
    lines = []
    for judge in first.judges:
        marks, other_marks = first.fingerprints(judge), other.fingerprints(judge)
        if not other_marks or marks == other_marks:
            continue
        a, b = (
            _judge_fields(policy, prints)
            for policy, prints in ((first, marks), (other, other_marks))
        )
        named = (
            field_differences(f"judge {judge}", a, b)
            if a and b and len(marks) == len(other_marks) == 1
            else []
        )
        lines += named or [f"judge {judge}: {'+'.join(marks)} → {'+'.join(other_marks)}"]
    return lines


def _judge_fields(policy: Policy, prints: tuple[str, ...]) -> dict[str, Any]:
    specs = policy.run.judge_specs()
    return _noun_fields(specs[prints[0]]) if prints[0] in specs else {}


def unquoted_judges(policies: Sequence[Policy]) -> list[str]:
    """Return a sentence for each judge whose prompt did not mark where quoted text begins and ends,
    without duplicates.

    These are judges with `fence: nonce`, whose prompt did not quote question and options, and
    graders that saw the answers with `fence: none`. The list is empty if there is none.
    """
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
        else f"The grader of {judge} saw the answers without a fence (fence: none)."
        for (judge, _), spec in specs.items()
        if spec.fence == "nonce" or grades_unfenced(spec)
    )
    return list(dict.fromkeys(notes))


def mixed_judge(policy: Policy) -> list[str]:
    """Return a line for each judge whose verdicts on this policy have more than one fingerprint;
    usually an empty list."""
    return [
        f"judge {judge}: verdicts of {len(policy.fingerprints(judge))} versions of it"
        for judge in policy.judges
        if len(policy.fingerprints(judge)) > 1
    ]
