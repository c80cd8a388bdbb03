"""One turn of a simulated human, with the context that the rules check it against."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from convbench.judges.review.cues import content_stems, word_set
from convbench.rollout.fidelity import hidden_texts
from convbench.schema import Conversation, Example, ProtocolSpec
from convbench.views import can_hear, heard_text

SHORT = 6
"""Most words of a hidden text that counts as a key with its value, rather than as a long text."""

LONGEST = 8_000
"""Most characters of a turn that are checked."""


@dataclass(frozen=True, slots=True)
class Request:
    """A short hidden text, split into public words (the key) and private ones (the value)."""

    keys: frozenset[str]
    values: frozenset[str]


@dataclass(frozen=True)
class DialogueContext:
    """A conversation as the policy hears it."""

    example: Example
    question: str
    turns: tuple[tuple[int, str, str, bool], ...]
    """(index, speaker, text that the policy heard or said, whether it was scripted)."""
    policy: str
    marks: tuple[str, ...]
    """Markers that only the policy writes."""


@dataclass(frozen=True)
class HumanTurn:
    """One spoken turn of a speaker that is not the policy."""

    talk: DialogueContext
    position: int
    """Index of the turn in `talk.turns`."""
    knows: bool
    """Whether the speaker sees hidden fields."""
    hidden: tuple[str, ...]
    """The texts of the hidden fields."""

    @property
    def index(self) -> int:
        """Index of the turn among all turns of the conversation."""
        return self.talk.turns[self.position][0]

    @property
    def speaker(self) -> str:
        """The turn's speaker."""
        return self.talk.turns[self.position][1]

    @property
    def text(self) -> str:
        """The turn's text as the policy heard it."""
        return self.talk.turns[self.position][2]

    @property
    def example(self) -> Example:
        """The conversation's example."""
        return self.talk.example

    @property
    def marks(self) -> tuple[str, ...]:
        """Markers that only the policy writes."""
        return self.talk.marks

    @cached_property
    def policy_texts(self) -> tuple[str, ...]:
        """The policy's texts before this turn, in order."""
        return tuple(
            text for _, who, text, _ in self.talk.turns[: self.position] if who == self.talk.policy
        )

    @property
    def last_policy_text(self) -> str:
        """The policy's last text before this turn; "" without one."""
        return self.policy_texts[-1] if self.policy_texts else ""

    @cached_property
    def policy_words(self) -> frozenset[str]:
        """Words of all the policy's texts before this turn."""
        return word_set("\n".join(self.policy_texts))

    @cached_property
    def own_texts(self) -> tuple[str, ...]:
        """The speaker's unscripted texts up to this turn, in order."""
        before = self.talk.turns[: self.position + 1]
        return tuple(text for _, who, text, set_ in before if who == self.speaker and not set_)

    @property
    def is_heeded(self) -> bool:
        """Whether the policy speaks after this turn."""
        return any(who == self.talk.policy for _, who, _, _ in self.talk.turns[self.position + 1 :])

    @cached_property
    def later_turns(self) -> tuple[HumanTurn, ...]:
        """The speaker's later unscripted turns."""
        return tuple(
            HumanTurn(self.talk, position, self.knows, self.hidden)
            for position in range(self.position + 1, len(self.talk.turns))
            if self.talk.turns[position][1] == self.speaker and not self.talk.turns[position][3]
        )

    @cached_property
    def public_words(self) -> frozenset[str]:
        """Words of the question, its options and the policy's texts before this turn."""
        options = " ".join(choice.text for choice in self.example.choices)
        return word_set("\n".join((self.talk.question, options, *self.policy_texts)))

    @cached_property
    def known_words(self) -> frozenset[str]:
        """Content words that belong to the task: public ones, and those of the hidden texts."""
        options = " ".join(choice.text for choice in self.example.choices)
        return content_stems(
            "\n".join((self.talk.question, options, *self.policy_texts, *self.hidden))
        )

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        """The short hidden texts with both a key and a value."""
        shown = word_set(self.talk.question)
        requests = []
        for text in self.hidden:
            all_words = word_set(text)
            keys = all_words & shown
            if len(text.split()) <= SHORT and keys and all_words - shown:
                requests.append(Request(keys, all_words - shown))
        return tuple(requests)


def simulated_humans(protocol: ProtocolSpec) -> list[str]:
    """Return the names of the speakers other than the policy that have an unscripted step, sorted;
    empty without any."""
    spoken = {step.speaker for step in protocol.all_steps() if step.say is None}
    return sorted(spoken - {protocol.policy})


def human_turns(
    conversation: Conversation, example: Example, protocol: ProtocolSpec
) -> Iterator[HumanTurn]:
    """Yield the unscripted turns of all speakers that the policy hears and that are not the policy,
    in order."""
    policy = protocol.policy
    turns = tuple(
        (
            index,
            turn.speaker,
            heard_text(protocol, turn)[:LONGEST],
            turn.finish_reason == "scripted",
        )
        for index, turn in enumerate(conversation.turns)
        if turn.speaker == policy or can_hear(protocol, policy, turn.speaker)
    )
    private = protocol.speakers[policy].private_before
    marks = tuple(mark for mark in (protocol.answer_after, private) if mark)
    scripted = "\n".join(text for _, who, text, by_script in turns if by_script and who != policy)
    question = "\n".join((example.question, scripted))
    talk = DialogueContext(example, question, turns, policy, marks)
    hidden = {who: _with_bare_code(texts) for who, texts in hidden_texts(example, protocol).items()}
    for position, (_, who, _, by_script) in enumerate(turns):
        if who != policy and not by_script:
            yield HumanTurn(talk, position, bool(protocol.speakers[who].sees), hidden[who])


def _with_bare_code(texts: list[str]) -> tuple[str, ...]:
    """Return the texts, and each also without `#` comments, as for code."""
    without_comments = (re.sub(r"(?<![ \t])[ \t]*+#[^\n]*", "", text) for text in texts)
    return tuple(dict.fromkeys((*texts, *without_comments)))
