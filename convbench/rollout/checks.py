"""Checks of whether each speaker keeps to its part. Findings are flags; nothing is changed.

Each check is `fn(conversation, example, protocol) -> list of flags` (`SPEAKER:FINDING`, some twice)
and is named in a protocol's `checks:`. They find what can be found without reading what a turn
means; judge `fidelity@MODEL` reads the rest. Scripted turns are not checked, and a turn that was
cut is checked as the policy heard it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from convbench.answers.read import read_option
from convbench.answers.tags import TAG, opens_thinking, without_thinking
from convbench.schema import Conversation, Example, ProtocolSpec, Turn, text_of
from convbench.views import heard_text

LEAK = 12  # tokens in a row (words and signs) that a turn may not share with a hidden text
_TOKEN = re.compile(r"\w+|[^\w\s]")
_CODE = re.compile(r"```|^[ \t]*+(?:def|class) \w", re.MULTILINE)
_OTHERS_LINE = re.compile(r"(?im)^[^\w\n]*+(?:human|user|agent|assistant|student)[^\w\n]?:")


def words(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `SPEAKER:words` for each speaker with a turn of more words than its step's `words`;
    thinking in the turn's text counts, its tags do not."""
    limits = {step.id: step.words for step in protocol.all_steps() if step.words is not None}
    return [
        f"{turn.speaker}:words"
        for turn in _spoken_turns(conversation)
        if turn.step in limits
        and len(TAG.sub(" ", text_of(turn.content)).split()) > limits[turn.step]
    ]


def names_answer(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `SPEAKER:leak` for each speaker but the policy that states an answer in the phrase
    that protocols prescribe, or names the gold option and no other, where the policy's turn before
    did not name it."""
    flags, proposed = list[str](), set[str]()
    for turn in _spoken_turns(conversation):
        text = without_thinking(heard_text(protocol, turn))
        named, gold = _named_options(text, example), {example.answer}
        if turn.speaker == protocol.policy:
            proposed = named
        elif read_option(text, example.options) or (named == gold and not named & proposed):
            flags.append(f"{turn.speaker}:leak")
    return flags


def quotes_reference(
    conversation: Conversation, example: Example, protocol: ProtocolSpec
) -> list[str]:
    """Return `SPEAKER:leak` for each speaker but the policy with a turn that has LEAK tokens in a
    row of a hidden text that it sees, and that the question has not; `SPEAKER:code` for each that
    sees a hidden text and writes code."""
    flags, known = list[str](), _runs(example.question)
    for name, speaker in protocol.speakers.items():
        texts = [heard_text(protocol, turn) for turn in _spoken_turns(conversation, name)]
        gold = None if example.answer in example.letters else example.answer
        fields = {**example.hidden, "answer": gold}
        hidden = [text for field in speaker.sees for text in _texts_in(fields.get(field))]
        if name == protocol.policy or not hidden:
            continue
        secret = set().union(*map(_runs, hidden)) - known
        if any(secret & _runs(text) for text in texts):
            flags.append(f"{name}:leak")
        if any(map(_CODE.search, texts)):
            flags.append(f"{name}:code")
    return flags


def role(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `SPEAKER:role` for each speaker but the policy that takes the policy's part: it uses
    the policy's markers or thinking tags, or begins a line with the name of a side and a colon."""
    marks = (protocol.answer_after, protocol.speakers[protocol.policy].private_before)
    return [
        f"{turn.speaker}:role"
        for turn, text in _others(conversation, protocol)
        if any(mark in text for mark in marks if mark)
        or opens_thinking(text)
        or _OTHERS_LINE.search(text)
    ]


def empty(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `SPEAKER:empty` for each speaker but the policy with a turn that says nothing."""
    others = _others(conversation, protocol)
    return [f"{turn.speaker}:empty" for turn, text in others if not text.strip()]


def repeats(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `SPEAKER:repeats` for each speaker that says again what an earlier turn of its own
    said; case and blanks do not count."""
    flags, said = list[str](), set[tuple[str, str]]()
    for turn in _spoken_turns(conversation):
        text = " ".join(heard_text(protocol, turn).lower().split())
        if text and (turn.speaker, text) in said:
            flags.append(f"{turn.speaker}:repeats")
        said.add((turn.speaker, text))
    return flags


def answers(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `POLICY:answers` if the policy states an answer where it should ask (before each
    unscripted turn of another speaker), `POLICY:no-question` if it says no "?" there."""
    flags, policy = list[str](), protocol.policy
    for turn, after in zip(conversation.turns, conversation.turns[1:], strict=False):
        asked = after.speaker != policy and after.finish_reason != "scripted"
        if turn.speaker == policy and asked:
            text = text_of(turn.content)
            stated = read_option(without_thinking(text), example.options)
            flags += [f"{policy}:answers"] if stated else []
            flags += [f"{policy}:no-question"] if not stated and "?" not in text else []
    return flags


def _named_options(text: str, example: Example) -> set[str]:
    """Return the letters of the options that a text names, by letter or by their exact text."""
    named = set()
    for choice in example.choices:
        label = re.escape(choice.label)
        pattern = rf"\b[Oo]ption {label}\b|(?<!\w){label}\)"
        if len(choice.text) >= 3:
            pattern += rf"|(?i:(?<!\w){re.escape(choice.text)}(?!\w))"
        if re.search(pattern, text):
            named.add(choice.label)
    return named


def _runs(text: str) -> set[tuple[str, ...]]:
    """Return all runs of LEAK tokens in a text."""
    tokens = _TOKEN.findall(text.lower())
    return {tuple(tokens[i : i + LEAK]) for i in range(len(tokens) - LEAK + 1)}


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a hidden field: itself, or those in its lists and objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(inner)


def _spoken_turns(conversation: Conversation, speaker: str | None = None) -> Iterator[Turn]:
    """Yield the turns that were not scripted, in order; only those of `speaker` if given."""
    for turn in conversation.turns:
        if turn.finish_reason != "scripted" and speaker in (None, turn.speaker):
            yield turn


def _others(conversation: Conversation, protocol: ProtocolSpec) -> Iterator[tuple[Turn, str]]:
    """Yield (turn, what the policy heard of it) of the unscripted turns of all but the policy."""
    for turn in _spoken_turns(conversation):
        if turn.speaker != protocol.policy:
            yield turn, heard_text(protocol, turn)
