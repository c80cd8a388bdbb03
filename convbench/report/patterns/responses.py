"""The texts to analyse: each policy's final response in each conversation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from convbench.errors import RunError
from convbench.report.naming import sort_policies, with_unique_names
from convbench.report.policies import Policy, read_policies, read_policy
from convbench.store import Run
from convbench.views import final_text

WORD = re.compile(r"(?u)\b\w\w+\b")
"""A word: two or more letters or digits, as in scikit-learn's vectorizers."""


@dataclass(frozen=True)
class Response:
    """The final response of one conversation."""

    policy: str
    conversation_id: str
    group: str
    text: str

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Return its words in lower case, in order."""
        return tuple(WORD.findall(self.text.lower()))


def read_responses(runs: Sequence[Run], split: str = "test") -> list[Response]:
    """Return the final responses of every policy. Each run is one policy; a single run also brings
    its children. The order of the runs does not matter.

    Raises RunError for fewer than two policies, or one without conversations of the split.
    """
    if len(runs) == 1:
        policies = read_policies(runs[0], split)
    else:
        policies = [read_policy(run, split) for run in runs]
    if len(policies) < 2:
        raise RunError(
            f"{runs[0].path}: found one policy; expected two or more: name several runs, e.g. "
            "convbench patterns RUN RUN/evals/swift, or evaluate one first: convbench eval"
        )
    policies = sort_policies(sorted(policies, key=lambda policy: policy.run.manifest.id))
    policies.sort(key=lambda policy: not policy.is_base)
    final_responses = responses_of(with_unique_names(policies))
    empty = [p.run.path for p in policies if not p.observations]
    if empty:
        raise RunError(f"{empty[0]}: found no conversations of split {split}; expected some")
    return final_responses


def responses_of(policies: Sequence[Policy]) -> list[Response]:
    """Return the final responses of these policies; of a pooled policy those of all its runs."""
    return [
        response
        for policy in policies
        for member in policy.members or (policy,)
        for response in _policy_responses(member, policy.name)
    ]


def _policy_responses(policy: Policy, name: str) -> Iterator[Response]:
    examples, protocol = policy.run.examples, policy.run.manifest.protocol
    talks = (t for t in policy.run.conversations() if t.failure is None and t.branch is None)
    for talk in sorted(talks, key=lambda t: t.key):
        example = examples.get(talk.example_id)
        if example is None or policy.split not in ("all", example.split):
            continue
        text = final_text(protocol, talk)
        if text is not None:
            yield Response(name, talk.conversation_id, example.group_id, text)


def by_policy(responses: Sequence[Response]) -> dict[str, list[Response]]:
    """Return the responses by policy, in order of appearance."""
    out: dict[str, list[Response]] = {}
    for response in responses:
        out.setdefault(response.policy, []).append(response)
    return out
