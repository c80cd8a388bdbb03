"""Grade a conversation from its text alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convbench.answers.final import after_marker, final_answer
from convbench.answers.normalize import word_count
from convbench.answers.options import Letters
from convbench.answers.tags import closes_thinking, leaves_open, opens_thinking, without_thinking
from convbench.schema import Conversation, Example, ProtocolSpec, text_of
from convbench.schema.protocol import AnswerReading
from convbench.views import policy_turns


@dataclass(frozen=True, slots=True)
class GradeResult:
    """What the policy's turns say.

    `answer`: the option's letter, or without options the text after `answer_after`; None if
    unreadable. `correct`: None without gold letter or options, False without `answer`. `thinking`
    (headline): a thinking block opens in the final turn; `thinking_any`: in any; `thinking_closed`:
    it also closes. `reasoned`: the final turn has reasoning in a separate channel. These are None
    if the conversation failed or has no policy turn.
    """

    answer: str | None
    correct: bool | None
    thinking: bool | None
    thinking_any: bool | None
    thinking_closed: bool | None
    words: int
    n_turns: int
    reasoned: bool | None = None


def grade_conversation(
    protocol: ProtocolSpec, conversation: Conversation, example: Example
) -> GradeResult:
    """Return the grade of a conversation: the answer of its final policy turn, held against the
    example's gold answer, and counts over all policy turns.

    For a failed conversation, or one without policy turns, only `words` and `n_turns` are set.
    """
    own = [conversation.turns[i] for i in policy_turns(protocol, conversation)]
    failed = conversation.failure is not None
    result = grade_texts(
        [text_of(turn.content) for turn in own],
        example.options,
        example.answer,
        marker=protocol.answer_after,
        reading=protocol.answers,
        failed=failed,
    )
    if failed or not own:
        return result
    last = own[-1].reasoning
    return replace(result, reasoned=last is not None and last.has_thought)


def grade_texts(
    texts: Sequence[str],
    options: Letters,
    gold: str | None,
    *,
    marker: str | None = None,
    reading: AnswerReading = "any",
    failed: bool = False,
) -> GradeResult:
    """Return the grade of the policy's turns, given as texts; `reasoned` is None.

    If `failed`, or without texts, only `words` and `n_turns` are set. `options` are the options'
    texts by letter, or their letters alone. `marker` is the protocol's `answer_after`, `reading`
    its `answers`: with "strict" only "The answer is X" in its variants counts.
    """
    if failed or not texts:
        return GradeResult(None, None, None, None, None, word_count(texts), len(texts))
    answer = _read_answer(texts, options, marker, reading == "strict")
    return GradeResult(
        answer=answer,
        correct=answer == gold if gold is not None and gold in options else None,
        thinking=opens_thinking(texts[-1]),
        thinking_any=any(map(opens_thinking, texts)),
        thinking_closed=closes_thinking(texts[-1]),
        words=word_count(texts),
        n_turns=len(texts),
    )


def _read_answer(
    texts: Sequence[str], letters: Letters, marker: str | None, strict: bool
) -> str | None:
    text, carried = texts[-1], leaves_open(texts[:-1])
    if letters and marker:
        return after_marker(text, marker, letters, carried, strict)
    if letters:
        return final_answer(text, letters, carried, strict)
    if marker:
        _, separator, rest = without_thinking(text, carried).rpartition(marker)
        return rest.strip() if separator and rest.strip() else None
    return None
