"""Grade a conversation from its text alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from convbench.answers.read import read_option
from convbench.answers.tags import closes_thinking, leaves_open, opens_thinking, without_thinking
from convbench.schema import Conversation, Example, ProtocolSpec, text_of
from convbench.views import policy_turns


@dataclass(frozen=True, slots=True)
class GradeResult:
    """What the policy's turns say. `answer`: an option's letter, or without options the text after
    `answer_after`; None if unread. `correct`: None without gold letter or options, False without
    `answer`. `thinking`: a block opens in the final turn; `thinking_any`: in any;
    `thinking_closed`: it also closes. `reasoned`: the final turn has reasoning in a channel of its
    own. All of these are None if the conversation failed or has no policy turn."""

    words: int
    n_turns: int
    answer: str | None = None
    correct: bool | None = None
    thinking: bool | None = None
    thinking_any: bool | None = None
    thinking_closed: bool | None = None
    reasoned: bool | None = None


def grade_conversation(
    protocol: ProtocolSpec, conversation: Conversation, example: Example
) -> GradeResult:
    """Return the grade of a conversation: its final policy turn's answer, and counts over all."""
    own = [conversation.turns[i] for i in policy_turns(protocol, conversation)]
    texts = [text_of(turn.content) for turn in own]
    graded = grade_texts(texts, example.options, example.answer, protocol.answer_after)
    if conversation.failure is not None or not own:
        return GradeResult(graded.words, graded.n_turns)
    last = own[-1].reasoning
    return replace(graded, reasoned=last is not None and last.has_thought)


def grade_texts(
    texts: Sequence[str], options: Mapping[str, str], gold: str | None, marker: str | None = None
) -> GradeResult:
    """Return the grade of the policy's turns, given as texts, without `reasoned`. After the last
    `marker` (a protocol's `answer_after`), if the final turn has one, nothing else is read."""
    counts = GradeResult(sum(len(text.split()) for text in texts), len(texts))
    if not texts:
        return counts
    speech = without_thinking(texts[-1], leaves_open(texts[:-1]))
    _, marked, rest = speech.rpartition(marker) if marker else ("", "", speech)
    answer = read_option(rest, options, at_start=bool(marked)) if options else rest.strip() or None
    return replace(
        counts,
        answer=answer if options or marked else None,
        correct=answer == gold if gold in options else None,
        thinking=opens_thinking(texts[-1]),
        thinking_any=any(map(opens_thinking, texts)),
        thinking_closed=closes_thinking(texts[-1]),
    )
