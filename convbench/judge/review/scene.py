"""One turn of a simulated human, with the context that the rules check it against."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from convbench.judge.review.cues import content, parts
from convbench.rollout.fidelity import secrets
from convbench.schema import Conversation, Example, ProtocolSpec
from convbench.views import heard, hears

SHORT = 6
"""Most words of a hidden text that counts as a key with its value, rather than as a long text."""

LONGEST = 8_000
"""Most characters of a turn that are checked."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A short hidden text, split into public words (the key) and private ones (the value)."""

    keys: frozenset[str]
    values: frozenset[str]


@dataclass(frozen=True)
class Talk:
    """A conversation as the policy hears it."""

    example: Example
    question: str
    turns: tuple[tuple[int, str, str, bool], ...]
    """(index, speaker, text that the policy heard or said, whether it was scripted)."""
    policy: str
    marks: tuple[str, ...]
    """Markers that only the policy writes."""


@dataclass(frozen=True)
class Scene:
    """One spoken turn of a speaker that is not the policy."""

    talk: Talk
    place: int
    """Index of the turn in `talk.turns`."""
    knows: bool
    """Whether the speaker sees hidden fields."""
    hidden: tuple[str, ...]
    """The texts of the hidden fields."""

    @property
    def index(self) -> int:
        """Index of the turn among all turns of the conversation."""
        return self.talk.turns[self.place][0]

    @property
    def speaker(self) -> str:
        """The turn's speaker."""
        return self.talk.turns[self.place][1]

    @property
    def text(self) -> str:
        """The turn's text as the policy heard it."""
        return self.talk.turns[self.place][2]

    @property
    def example(self) -> Example:
        """The conversation's example."""
        return self.talk.example

    @property
    def marks(self) -> tuple[str, ...]:
        """Markers that only the policy writes."""
        return self.talk.marks

    @cached_property
    def said(self) -> tuple[str, ...]:
        """The policy's texts before this turn, in order."""
        return tuple(
            text for _, who, text, _ in self.talk.turns[: self.place] if who == self.talk.policy
        )

    @property
    def asked(self) -> str:
        """The policy's last text before this turn; "" without one."""
        return self.said[-1] if self.said else ""

    @cached_property
    def told(self) -> frozenset[str]:
        """Words of all the policy's texts before this turn."""
        return parts("\n".join(self.said))

    @cached_property
    def own(self) -> tuple[str, ...]:
        """The speaker's unscripted texts up to this turn, in order."""
        before = self.talk.turns[: self.place + 1]
        return tuple(text for _, who, text, set_ in before if who == self.speaker and not set_)

    @property
    def heeded(self) -> bool:
        """Whether the policy speaks after this turn."""
        return any(who == self.talk.policy for _, who, _, _ in self.talk.turns[self.place + 1 :])

    @cached_property
    def later(self) -> tuple[Scene, ...]:
        """The speaker's later unscripted turns."""
        return tuple(
            Scene(self.talk, place, self.knows, self.hidden)
            for place in range(self.place + 1, len(self.talk.turns))
            if self.talk.turns[place][1] == self.speaker and not self.talk.turns[place][3]
        )

    @cached_property
    def public(self) -> frozenset[str]:
        """Words of the question, its options and the policy's texts before this turn."""
        options = " ".join(choice.text for choice in self.example.choices)
        return parts("\n".join((self.talk.question, options, *self.said)))

    @cached_property
    def known(self) -> frozenset[str]:
        """Content words that belong to the task: public ones, and those of the hidden texts."""
        options = " ".join(choice.text for choice in self.example.choices)
        return content("\n".join((self.talk.question, options, *self.said, *self.hidden)))

    @cached_property
    def wishes(self) -> tuple[Wish, ...]:
        """The short hidden texts with both a key and a value."""
        shown = parts(self.talk.question)
        made = []
        for text in self.hidden:
            all_words = parts(text)
            keys = all_words & shown
            if len(text.split()) <= SHORT and keys and all_words - shown:
                made.append(Wish(keys, all_words - shown))
        return tuple(made)


def humans(protocol: ProtocolSpec) -> list[str]:
    """Return the speakers other than the policy with an unscripted step, sorted."""
    spoken = {step.speaker for step in protocol.all_steps() if step.say is None}
    return sorted(spoken - {protocol.policy})


def scenes(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> Iterator[Scene]:
    """Yield the spoken turns of all speakers that the policy hears and that are not the policy."""
    policy = protocol.policy
    turns = tuple(
        (index, turn.speaker, heard(protocol, turn)[:LONGEST], turn.finish_reason == "scripted")
        for index, turn in enumerate(conversation.turns)
        if turn.speaker == policy or hears(protocol, policy, turn.speaker)
    )
    private = protocol.speakers[policy].private_before
    marks = tuple(mark for mark in (protocol.answer_after, private) if mark)
    scripted = "\n".join(text for _, who, text, by_script in turns if by_script and who != policy)
    question = "\n".join((example.question, scripted))
    talk = Talk(example, question, turns, policy, marks)
    hidden = {who: _bare(texts) for who, texts in secrets(example, protocol).items()}
    for place, (_, who, _, by_script) in enumerate(turns):
        if who != policy and not by_script:
            yield Scene(talk, place, bool(protocol.speakers[who].sees), hidden[who])


def _bare(texts: list[str]) -> tuple[str, ...]:
    """Return the texts, and each also without `#` comments, as for code."""
    plain = (re.sub(r"(?<![ \t])[ \t]*+#[^\n]*", "", text) for text in texts)
    return tuple(dict.fromkeys((*texts, *plain)))
