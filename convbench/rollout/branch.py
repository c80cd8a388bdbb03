"""Branches: conversations that leave a logged one at a turn, and candidates for one turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from convbench.models.model import Model
from convbench.rollout.plan import OnDisk, Rollout, conversation_id, digits
from convbench.rollout.using import Calls, offering
from convbench.schema import (
    Branch,
    Completion,
    Conversation,
    Message,
    ProtocolSpec,
    RunManifest,
    Sent,
)
from convbench.views import called, messages, policy_turns


def branch_key(parent: str, turn: int, candidate: int) -> str:
    """Return the key of a branch, e.g. `q1#0~3.2`: turn 3 of sample 0, candidate 2."""
    return f"{parent}~{turn}.{candidate}"


def branches(
    manifest: RunManifest,
    parents: Iterable[Conversation],
    *,
    per_turn: int = 1,
    on_disk: OnDisk,
) -> Iterator[Rollout]:
    """Yield jobs that play each parent again from each policy turn on, to its end.

    What was said before the turn is taken over; the seed is the branch's own. `on_disk` is
    `Run.attempts()` of the run that holds the branches: no finished key, failed keys again.
    """
    for parent in parents:
        for turn in policy_turns(manifest.protocol, parent):
            for candidate in range(per_turn):
                key = branch_key(parent.key, turn, candidate)
                attempts, finished = on_disk.get(key, (0, False))
                if not finished:
                    branch = Branch(parent=parent.conversation_id, turn=turn, candidate=candidate)
                    yield _job(manifest, parent, branch, key, attempts)


def _job(
    manifest: RunManifest, parent: Conversation, branch: Branch, key: str, attempts: int
) -> Rollout:
    return Rollout(
        key=key,
        conversation_id=conversation_id(manifest.id, key),
        example_id=parent.example_id,
        sample=parent.sample,
        temperature=parent.temperature,
        seed=digits(manifest.seed, manifest.task.name, key),
        attempt=attempts,
        branch=branch,
        prefix=parent.turns[: branch.turn],
    )


def call_key(parent: Conversation, turn: int, candidate: int, rounds: int = 0) -> str:
    """Return the key of a candidate's one call, e.g. `q1#0~3.2@3`; `q1#0~3.2@3.1` after a round of
    tools."""
    key = f"{branch_key(parent.key, turn, candidate)}@{turn}"
    return f"{key}.{rounds}" if rounds else key


async def candidate(
    manifest: RunManifest,
    parent: Conversation,
    turn: int,
    number: int,
    model: Model,
    caller: Calls,
    *,
    temperature: float,
    rounds: int = 0,
) -> Completion:
    """Return one more reply of the policy to exactly what it saw before a turn, or after so many
    of the turn's rounds of tools."""
    protocol = manifest.protocol
    speaker = protocol.speakers[protocol.policy]
    key = branch_key(parent.key, turn, number)
    sampling = manifest.cast[protocol.policy].sampling
    sampling = sampling.model_copy(
        update={
            "temperature": temperature,
            "max_tokens": speaker.max_tokens or sampling.max_tokens,
            "seed": digits(manifest.seed, manifest.task.name, key),
        }
    )
    sampling = offering(speaker, sampling, rounds)
    seen = seen_before(protocol, parent, turn, rounds)
    key = call_key(parent, turn, number, rounds)
    return await caller.complete(model, seen, sampling, key=key)


def seen_before(
    protocol: ProtocolSpec, parent: Conversation, turn: int, rounds: int = 0
) -> list[Message]:
    """Return what the policy saw before a turn, or after so many of its rounds of tools."""
    replay = parent.sent.get(protocol.policy, Sent()).replay
    done = parent.turns[turn].rounds[:rounds]
    return [*messages(protocol, parent, protocol.policy, turn), *called(done, replay)]
