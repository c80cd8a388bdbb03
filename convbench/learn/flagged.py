"""What becomes of conversations that a fidelity check flagged: dropped, unless asked otherwise.

A flag says that a speaker left its part: a teacher gave the answer away, a human quoted the hidden
reference. The reward of such a talk is none for what the policy did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from convbench.schema import ProtocolSpec
from convbench.schema.recipe import FlaggedRule

FORM = ("words", "no-question", "repeats")
"""Findings of the policy's own that count for nothing here: what it does badly is the judge's to
weigh, and a learner's to unlearn."""


def findings(protocol: ProtocolSpec, flags: Sequence[str]) -> tuple[str, ...]:
    """Return the flags of a conversation that count: all but the policy's own of `FORM`."""
    own = {f"{protocol.policy}:{finding}" for finding in FORM}
    return tuple(flag for flag in flags if flag not in own)


@dataclass
class Flagged:
    """The flagged conversations among those that would train, and what became of them."""

    rule: FlaggedRule
    """What became of them."""
    conversations: int = 0
    """How many there are."""
    findings: Counter[str] = field(default_factory=Counter)
    """Conversations by finding; one may have several."""

    def add(self, found: tuple[str, ...]) -> None:
        """Count one conversation."""
        self.conversations += 1
        self.findings.update(set(found))

    def describe(self) -> Iterator[str]:
        """Yield one line, none where nothing is flagged."""
        if not self.conversations:
            return
        done = {"drop": "dropped", "zero": "trained with reward 0", "keep": "kept"}[self.rule]
        of = ", ".join(f"{name} {count}" for name, count in sorted(self.findings.items()))
        other = "drop" if self.rule == "keep" else "keep"
        yield (
            f"flagged by fidelity checks: {self.conversations} conversations {done} ({of}); "
            f"to {other} them: --set data.flagged={other}"
        )

    def record(self) -> dict[str, object]:
        """Return it as `training.json` holds it."""
        return {
            "rule": self.rule,
            "conversations": self.conversations,
            "findings": dict(sorted(self.findings.items())),
        }
