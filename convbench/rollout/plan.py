"""Which conversations a run consists of: deterministic keys, ids and seeds; and one more reply of
the policy at a turn of a logged one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from convbench.models.model import Model
from convbench.rollout.tool_turn import ModelCaller, sampling_with_tools
from convbench.schema import (
    Completion,
    Conversation,
    Example,
    Message,
    ProtocolSpec,
    RunManifest,
    Sent,
)
from convbench.views import messages_before, tool_messages


@dataclass(frozen=True, slots=True)
class Rollout:
    """One conversation to be played."""

    key: str
    conversation_id: str
    example_id: str
    sample: int
    temperature: float
    seed: int
    attempt: int = 0


class AttemptLookup(Protocol):
    """Earlier attempts by key: `Run.attempts()`."""

    def get(self, key: str, default: tuple[int, bool], /) -> tuple[int, bool]:
        """Return (number of attempts, whether the newest succeeded) of a key, or `default` if it
        was never tried."""


def stable_number(*parts: object) -> int:
    """Return a 63-bit number derived from these parts, the same on every machine."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def conversation_id(run_id: str, key: str) -> str:
    """Return 20 hex digits, unique across runs because run ids are."""
    return hashlib.sha256(f"{run_id}/{key}".encode()).hexdigest()[:20]


def plan_samples(
    manifest: RunManifest, examples: Iterable[Example], on_disk: AttemptLookup
) -> Iterator[Rollout]:
    """Yield the conversations still to play, by question and sample, for questions of the
    manifest's split.

    A key whose newest attempt succeeded is skipped; a failed one is tried again as a new attempt.
    """
    for example in examples:
        if manifest.split not in ("all", example.split):
            continue
        for sample in range(manifest.samples_of(example.split)):
            key = f"{example.example_id}#{sample}"
            attempts, finished = on_disk.get(key, (0, False))
            if not finished:
                yield Rollout(
                    key=key,
                    conversation_id=conversation_id(manifest.id, key),
                    example_id=example.example_id,
                    sample=sample,
                    temperature=manifest.temperature_of(sample),
                    seed=stable_number(manifest.seed, manifest.task.name, key),
                    attempt=attempts,
                )


def candidate_key(parent: str, turn: int, candidate: int) -> str:
    """Return the key of one more reply at a turn, e.g. `q1#0~3.2`: turn 3 of sample 0, candidate
    2."""
    return f"{parent}~{turn}.{candidate}"


def call_key(parent: Conversation, turn: int, candidate: int, rounds: int = 0) -> str:
    """Return the key of a candidate's one call, e.g. `q1#0~3.2@3`; `q1#0~3.2@3.1` after a round of
    tools."""
    key = f"{candidate_key(parent.key, turn, candidate)}@{turn}"
    return f"{key}.{rounds}" if rounds else key


async def sample_candidate(
    manifest: RunManifest,
    parent: Conversation,
    turn: int,
    number: int,
    model: Model,
    caller: ModelCaller,
    *,
    temperature: float,
    rounds: int = 0,
) -> Completion:
    """Return one more reply of the policy to exactly what it saw before a turn, or after `rounds`
    of the turn's tool rounds.

    `number` makes its seed and key differ from those of other candidates. The reply is not stored,
    except by the caller in its journal. Raise the errors of the call.
    """
    protocol = manifest.protocol
    speaker = protocol.speakers[protocol.policy]
    key = candidate_key(parent.key, turn, number)
    sampling = manifest.cast[protocol.policy].sampling
    sampling = sampling.model_copy(
        update={
            "temperature": temperature,
            "max_tokens": speaker.max_tokens or sampling.max_tokens,
            "seed": stable_number(manifest.seed, manifest.task.name, key),
        }
    )
    sampling = sampling_with_tools(speaker, sampling, rounds)
    seen = seen_before(protocol, parent, turn, rounds)
    key = call_key(parent, turn, number, rounds)
    return await caller.complete(model, seen, sampling, key=key)


def seen_before(
    protocol: ProtocolSpec, parent: Conversation, turn: int, rounds: int = 0
) -> list[Message]:
    """Return the messages that the policy saw before turn `turn` (an index among all turns), or
    after so many of its tool rounds, its system prompt first."""
    replay = parent.sent.get(protocol.policy, Sent()).replay
    done = parent.turns[turn].rounds[:rounds]
    return [*messages_before(protocol, parent, protocol.policy, turn), *tool_messages(done, replay)]
