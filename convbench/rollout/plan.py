"""Which conversations a run consists of: deterministic keys, ids and seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from convbench.schema import Branch, Example, RunManifest, Turn


@dataclass(frozen=True, slots=True)
class Rollout:
    """One conversation to be had."""

    key: str
    conversation_id: str
    example_id: str
    sample: int
    temperature: float
    seed: int
    attempt: int = 0
    branch: Branch | None = None
    prefix: tuple[Turn, ...] = ()
    """Turns taken over from the parent of a branch."""


class OnDisk(Protocol):
    """What was tried before: `Run.attempts()`."""

    def get(self, key: str, default: tuple[int, bool], /) -> tuple[int, bool]:
        """Return (number of attempts, whether the newest succeeded) of a key."""


def digits(*parts: object) -> int:
    """Return a 63-bit number named by these parts, the same on every machine."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def conversation_id(run_id: str, key: str) -> str:
    """Return 20 hex digits, unique across runs because run ids are."""
    return hashlib.sha256(f"{run_id}/{key}".encode()).hexdigest()[:20]


def plan(manifest: RunManifest, examples: Iterable[Example], on_disk: OnDisk) -> Iterator[Rollout]:
    """Yield the jobs still to do: no finished key, failed keys again as a new attempt."""
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
                    temperature=manifest.temperature(sample),
                    seed=digits(manifest.seed, manifest.task.name, key),
                    attempt=attempts,
                )
