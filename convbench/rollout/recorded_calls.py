"""The model calls of a recorded conversation, reconstructed from its record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from convbench.rollout.plan import stable_number
from convbench.rollout.tool_turn import sampling_with_tools
from convbench.schema import Conversation, Message, RunManifest, Sampling
from convbench.views import messages_before, tool_messages


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a model, as it was sent."""

    key: str
    """The call's key in the journal."""
    model: str
    """The model's reference."""
    sampling: Sampling
    messages: Sequence[Message]


def conversation_calls(run: RunManifest, conversation: Conversation) -> Iterator[ModelCall]:
    """Yield the model calls of a conversation in order, by turn: replies that were drawn again,
    then the rounds of tools of the last draw and its final reply.

    Scripted turns, turns of rules and turns of speakers outside the cast are left out. The tool
    rounds of earlier draws are not recorded and not yielded.
    """
    for turn_index, turn in enumerate(conversation.turns):
        member = run.cast.get(turn.speaker)
        if not turn.is_of_model or member is None:
            continue
        seen = messages_before(
            run.protocol, conversation, turn.speaker, turn_index, replay=member.replay
        )
        first = call_sampling(run, turn.speaker, conversation.temperature, conversation.seed)
        for draw in range(turn.redrawn + 1):
            key = f"{conversation.key}@{turn_index}" + (f"~{draw}" if draw else "")
            drawn = sampling_for_redraw(first, conversation.seed, draw) if draw else first
            rounds = turn.rounds if draw == turn.redrawn else ()
            for number in range(len(rounds) + 1):
                yield ModelCall(
                    f"{key}.{number}" if number else key,
                    member.model,
                    sampling_with_tools(run.protocol.speakers[turn.speaker], drawn, number),
                    [*seen, *tool_messages(rounds[:number], member.replay)],
                )


def call_sampling(run: RunManifest, speaker: str, temperature: float, seed: int) -> Sampling:
    """Return the sampling settings of a speaker's calls in a conversation with this temperature and
    seed.

    The rest is as configured. A temperature and `max_tokens` that the protocol fixes for the
    speaker take precedence.
    """
    configured, fixed = run.cast[speaker].sampling, run.protocol.speakers[speaker]
    return configured.model_copy(
        update={
            "temperature": temperature if fixed.temperature is None else fixed.temperature,
            "max_tokens": fixed.max_tokens or configured.max_tokens,
            "seed": seed,
        }
    )


def sampling_for_redraw(first: Sampling, seed: int, draw: int) -> Sampling:
    """Return `first` with the seed of the `draw`-th repetition (from 1), derived from the
    conversation's seed."""
    return first.model_copy(update={"seed": stable_number(seed, "draw", draw)})
