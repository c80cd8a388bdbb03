"""Which conversations a run consists of: deterministic keys, ids and seeds; branches that leave a
logged conversation at a turn, and which branches a run is to have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field

from convbench.models.model import Model
from convbench.rollout.tool_turn import ModelCaller, sampling_with_tools
from convbench.schema import (
    Branch,
    Completion,
    Conversation,
    Example,
    Message,
    ProtocolSpec,
    RunManifest,
    Sent,
    Turn,
)
from convbench.schema.base import FrozenModel
from convbench.store import Run
from convbench.store.jsonl import numbered_lines, write_atomic
from convbench.store.shape import parse_record, read_model
from convbench.views import messages_before, policy_turns, tool_messages


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
    branch: Branch | None = None
    prefix: tuple[Turn, ...] = ()
    """Turns copied from the parent of a branch."""


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


BRANCHES_FILE, PARENTS_FILE = "wanted.json", "parents.jsonl"


class BranchRequest(FrozenModel):
    """How many branches a run is to have."""

    per_turn: int = Field(ge=1, le=10_000)
    """Branches at each turn of the policy."""


def request_branches(run: Run, talks: Iterable[Conversation], per_turn: int) -> None:
    """Write which branches a run is to have, `wanted.json` and `parents.jsonl`, replacing older
    ones; branches that were played already stay."""
    records = b"".join(talk.model_dump_json().encode() + b"\n" for talk in talks)
    write_atomic(run.path / PARENTS_FILE, records)
    request = BranchRequest(per_turn=per_turn)
    write_atomic(run.path / BRANCHES_FILE, request.model_dump_json().encode() + b"\n")


def missing_branches(run: Run) -> Iterator[Rollout]:
    """Yield the branches that a run, or one of its shards, lacks for its own questions; nothing if
    none were requested.

    Failed ones are tried again. Raise RunError for an invalid record.
    """
    home = (run.home or run).path
    if not (home / BRANCHES_FILE).exists():
        return
    per_turn = read_model(home / BRANCHES_FILE, BranchRequest).per_turn
    yield from plan_branches(
        run.manifest, parent_conversations(run), per_turn=per_turn, on_disk=run.attempts()
    )


def parent_conversations(run: Run) -> Iterator[Conversation]:
    """Yield the conversations in `parents.jsonl` of a run, or of the run that it is a shard of,
    about its own questions; nothing if there is no file. Raise RunError for an invalid record."""
    file = (run.home or run).path / PARENTS_FILE
    conversations = (
        parse_record(f"{file}:{number}", line, Conversation)
        for number, line in numbered_lines(file)
    )
    return (talk for talk in conversations if talk.example_id in run.examples)


def branch_key(parent: str, turn: int, candidate: int) -> str:
    """Return the key of a branch, e.g. `q1#0~3.2`: turn 3 of sample 0, candidate 2."""
    return f"{parent}~{turn}.{candidate}"


def plan_branches(
    manifest: RunManifest,
    parents: Iterable[Conversation],
    *,
    per_turn: int,
    on_disk: AttemptLookup,
) -> Iterator[Rollout]:
    """Yield `per_turn` jobs for each policy turn of each parent; a job plays the parent again from
    that turn to its end.

    Turns before it are copied; the seed is the branch's own, the temperature the parent's.
    `on_disk` is `Run.attempts()` of the run that holds the branches: finished keys are skipped,
    failed ones tried again.
    """
    for parent in parents:
        for turn in policy_turns(manifest.protocol, parent):
            for candidate in range(per_turn):
                key = branch_key(parent.key, turn, candidate)
                attempts, finished = on_disk.get(key, (0, False))
                if not finished:
                    branch = Branch(parent=parent.conversation_id, turn=turn, candidate=candidate)
                    yield _branch_job(manifest, parent, branch, key, attempts)


def _branch_job(
    manifest: RunManifest, parent: Conversation, branch: Branch, key: str, attempts: int
) -> Rollout:
    return Rollout(
        key=key,
        conversation_id=conversation_id(manifest.id, key),
        example_id=parent.example_id,
        sample=parent.sample,
        temperature=parent.temperature,
        seed=stable_number(manifest.seed, manifest.task.name, key),
        attempt=attempts,
        branch=branch,
        prefix=parent.turns[: branch.turn],
    )


def call_key(parent: Conversation, turn: int, candidate: int, rounds: int = 0) -> str:
    """Return the key of a candidate's one call, e.g. `q1#0~3.2@3`; `q1#0~3.2@3.1` after a round of
    tools."""
    key = f"{branch_key(parent.key, turn, candidate)}@{turn}"
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
    key = branch_key(parent.key, turn, number)
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
