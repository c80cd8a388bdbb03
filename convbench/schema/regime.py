"""Regimes: the rules that a table was made by, so that like stands beside like.

`clean` is this program's own: replies of 512 tokens, plain chat messages, standard errors
clustered by group. `as-printed` is what the printed tables and replies of Mukherjee et al.
(NeurIPS 2025) show: replies that end near 128 tokens, in a conversation whose system prompt and
messages stand in the marks of another model's chat format ("<<SYS>>", "[/INST]" at the head of
its replies, sections E.4 to F.4), answers read by its phrase alone ("The answer is X"), and
standard errors of independent conversations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convbench.schema.protocol import AnswerReading, Framing, ProtocolSpec
from convbench.words import ErrorKind, Regime


@dataclass(frozen=True, slots=True)
class Rules:
    """What a regime sets."""

    max_tokens: int | None
    """Limit of a reply where none is given; None leaves the default."""
    framing: Framing
    """How messages are framed, whatever the protocol says."""
    answers: AnswerReading
    """Which answers are read; `any` leaves a protocol's own."""
    errors: ErrorKind
    """Standard errors of its tables."""


RULES: Mapping[Regime, Rules] = {
    "clean": Rules(None, "none", "any", "clustered"),
    "as-printed": Rules(128, "llama-2", "strict", "naive"),
}


def reply_limit(max_tokens: int | None, regime: Regime | None) -> int | None:
    """Return the limit of one reply: the one given, else the regime's; None leaves the default."""
    return max_tokens or RULES[regime or "clean"].max_tokens


def in_regime(protocol: ProtocolSpec, regime: Regime) -> ProtocolSpec:
    """Return the protocol as the regime sets it; `clean` leaves a protocol's own."""
    rules = RULES[regime]
    framing = protocol.framing if rules.framing == "none" else rules.framing
    answers = protocol.answers if rules.answers == "any" else rules.answers
    if (framing, answers) == (protocol.framing, protocol.answers):
        return protocol
    return protocol.model_copy(update={"framing": framing, "answers": answers})
