"""How many of a run's replies have log-probabilities recorded."""

from __future__ import annotations

from convbench.store import Run
from convbench.store.token_probs import Recorded, replies_of


def recorded_of(run: Run) -> tuple[int, int] | None:
    """Return (replies of the policy with log-probabilities, all its replies); None where the run
    was not asked to record any."""
    policy = run.manifest.protocol.policy
    if not run.manifest.cast[policy].sampling.logprobs:
        return None
    recorded = Recorded(*run.folders())
    found = [
        recorded.of(key, text) is not None
        for conversation in run.conversations()
        if conversation.failure is None
        for key, text in replies_of(conversation, policy)
    ]
    return sum(found), len(found)
