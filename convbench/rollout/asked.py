"""The model calls of a recorded conversation, reconstructed from its record; how many of a run's
replies have log-probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from convbench.rollout.plan import digits
from convbench.rollout.tool_turn import offering
from convbench.schema import Conversation, Message, RunManifest, Sampling
from convbench.store import Run
from convbench.store.token_probs import Recorded, replies_of
from convbench.views import called, messages

NOT_ASKED = ("scripted", "rule")
"""Finish reasons of turns for which no model was called."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of a model, as it was sent."""

    key: str
    """The call's key in the journal."""
    model: str
    """The model's reference."""
    sampling: Sampling
    messages: Sequence[Message]


def asked(run: RunManifest, conversation: Conversation) -> Iterator[Asked]:
    """Yield the calls of every turn that a model spoke, in order, with those of its tool rounds and
    of replies that were drawn again."""
    for place, turn in enumerate(conversation.turns):
        member = run.cast.get(turn.speaker)
        if turn.finish_reason in NOT_ASKED or member is None:
            continue
        seen = messages(run.protocol, conversation, turn.speaker, place, replay=member.replay)
        first = sampling(run, turn.speaker, conversation.temperature, conversation.seed)
        for draw in range(turn.redrawn + 1):
            key = f"{conversation.key}@{place}" + (f"~{draw}" if draw else "")
            drawn = redrawn(first, conversation.seed, draw) if draw else first
            rounds = turn.rounds if draw == turn.redrawn else ()
            for number in range(len(rounds) + 1):
                yield Asked(
                    f"{key}.{number}" if number else key,
                    member.model,
                    offering(run.protocol.speakers[turn.speaker], drawn, number),
                    [*seen, *called(rounds[:number], member.replay)],
                )


def sampling(run: RunManifest, speaker: str, temperature: float, seed: int) -> Sampling:
    """Return the sampling settings of a speaker's calls in a conversation with this temperature and
    seed."""
    given, fixed = run.cast[speaker].sampling, run.protocol.speakers[speaker]
    return given.model_copy(
        update={
            "temperature": temperature if fixed.temperature is None else fixed.temperature,
            "max_tokens": fixed.max_tokens or given.max_tokens,
            "seed": seed,
        }
    )


def redrawn(first: Sampling, seed: int, draw: int) -> Sampling:
    """Return the sampling settings of a reply that is drawn again, for the `draw`-th time."""
    return first.model_copy(update={"seed": digits(seed, "draw", draw)})


def recorded_of(run: Run) -> tuple[int, int] | None:
    """Return (policy replies with log-probabilities, all its replies), or None if the run does not
    record them."""
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
