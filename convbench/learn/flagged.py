"""Conversations that a fidelity check flagged: dropped from training by default.

A flag says that a speaker broke its role: a teacher gave the answer away, a human quoted the hidden
reference. The reward of such a conversation does not measure what the policy did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from convbench.schema import ProtocolSpec
from convbench.schema.recipe import FlaggedRule

FORM_FLAGS = ("words", "no-question", "repeats")
"""Findings about the policy itself that do not drop a conversation: what the policy does badly is
for the judge to score, and for a learner to unlearn."""


def relevant_flags(protocol: ProtocolSpec, flags: Sequence[str]) -> tuple[str, ...]:
    """Return the flags of a conversation that count: all but the form findings on the policy."""
    form_flags = {f"{protocol.policy}:{finding}" for finding in FORM_FLAGS}
    return tuple(flag for flag in flags if flag not in form_flags)


@dataclass
class FlaggedSummary:
    """Counts of the flagged conversations among those that would train, and their treatment."""

    rule: FlaggedRule
    """How they are treated: `drop`, `zero` (reward 0) or `keep`."""
    conversations: int = 0
    """Number of flagged conversations."""
    findings: Counter[str] = field(default_factory=Counter)
    """Conversations by finding; a conversation may have several."""

    def add_flags(self, flags: tuple[str, ...]) -> None:
        """Count one conversation with these flags."""
        self.conversations += 1
        self.findings.update(set(flags))

    def describe(self) -> Iterator[str]:
        """Yield one line on the flagged conversations, or nothing if there are none."""
        if not self.conversations:
            return
        done = {"drop": "dropped", "zero": "trained with reward 0", "keep": "kept"}[self.rule]
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.findings.items()))
        opposite = "drop" if self.rule == "keep" else "keep"
        yield (
            f"flagged by fidelity checks: {self.conversations} conversations {done} ({counts}); "
            f"to {opposite} them: --set data.flagged={opposite}"
        )

    def record(self) -> dict[str, object]:
        """Return the counts as `training.json` holds them."""
        return {
            "rule": self.rule,
            "conversations": self.conversations,
            "findings": dict(sorted(self.findings.items())),
        }
