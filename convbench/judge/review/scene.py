"""One turn of a simulated human, with all that it is held against."""

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
"""Most words of a hidden text that is a wish, a key with its value, rather than a text."""

LONGEST = 8_000
"""Characters of a turn that are looked at."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A short hidden text: what everybody may know of it, and what is private."""

    keys: frozenset[str]
    values: frozenset[str]


@dataclass(frozen=True)
class Talk:
    """A conversation as the policy hears one speaker in it."""

    example: Example
    question: str
    turns: tuple[tuple[int, str, str, bool], ...]
    """(index, speaker, what the policy heard or said, whether by script)."""
    policy: str
    marks: tuple[str, ...]
    """What only the policy writes."""


@dataclass(frozen=True)
class Scene:
    """One spoken turn of a speaker that is not the policy."""

    talk: Talk
    place: int
    """Which of the talk's turns it is."""
    knows: bool
    """Whether the speaker sees hidden fields."""
    hidden: tuple[str, ...]
    """The texts in them."""

    @property
    def index(self) -> int:
        """Index of the turn among all turns of the conversation."""
        return self.talk.turns[self.place][0]

    @property
    def speaker(self) -> str:
        """Who speaks."""
        return self.talk.turns[self.place][1]

    @property
    def text(self) -> str:
        """What the policy heard."""
        return self.talk.turns[self.place][2]

    @property
    def example(self) -> Example:
        """What the conversation is about."""
        return self.talk.example

    @property
    def marks(self) -> tuple[str, ...]:
        """What only the policy writes."""
        return self.talk.marks

    @cached_property
    def said(self) -> tuple[str, ...]:
        """What the policy said before, in order."""
        return tuple(
            text for _, who, text, _ in self.talk.turns[: self.place] if who == self.talk.policy
        )

    @property
    def asked(self) -> str:
        """What the policy said last."""
        return self.said[-1] if self.said else ""

    @cached_property
    def told(self) -> frozenset[str]:
        """Words of all that the policy said."""
        return parts("\n".join(self.said))

    @cached_property
    def own(self) -> tuple[str, ...]:
        """What the speaker said of its own up to this turn, in order."""
        before = self.talk.turns[: self.place + 1]
        return tuple(text for _, who, text, set_ in before if who == self.speaker and not set_)

    @property
    def heeded(self) -> bool:
        """Whether the policy said something after it."""
        return any(who == self.talk.policy for _, who, _, _ in self.talk.turns[self.place + 1 :])

    @cached_property
    def later(self) -> tuple[Scene, ...]:
        """The speaker's next turns."""
        return tuple(
            Scene(self.talk, place, self.knows, self.hidden)
            for place in range(self.place + 1, len(self.talk.turns))
            if self.talk.turns[place][1] == self.speaker and not self.talk.turns[place][3]
        )

    @cached_property
    def public(self) -> frozenset[str]:
        """Words of the question, its options and what the policy said."""
        options = " ".join(choice.text for choice in self.example.choices)
        return parts("\n".join((self.talk.question, options, *self.said)))

    @cached_property
    def known(self) -> frozenset[str]:
        """Words of content that belong here: public ones, and those of the hidden texts."""
        options = " ".join(choice.text for choice in self.example.choices)
        return content("\n".join((self.talk.question, options, *self.said, *self.hidden)))

    @cached_property
    def wishes(self) -> tuple[Wish, ...]:
        """The short hidden texts that have a key and a value."""
        shown = parts(self.talk.question)
        made = []
        for text in self.hidden:
            all_words = parts(text)
            keys = all_words & shown
            if len(text.split()) <= SHORT and keys and all_words - shown:
                made.append(Wish(keys, all_words - shown))
        return tuple(made)


def humans(protocol: ProtocolSpec) -> list[str]:
    """Return the speakers other than the policy that speak of their own."""
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
    """Return the texts, and those that are code without its comments too."""
    plain = (re.sub(r"(?<![ \t])[ \t]*+#[^\n]*", "", text) for text in texts)
    return tuple(dict.fromkeys((*texts, *plain)))
