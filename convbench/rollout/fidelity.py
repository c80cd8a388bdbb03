"""Check whether a simulated human who knows a hidden reference keeps to its part.

Checks of `checks.py`'s kind: `fn(conversation, example, protocol) -> list of flags`, a flag is
`SPEAKER:FINDING`. They read what the policy saw, so a cut turn is checked as cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from convbench.answers.disguises import cached_automaton, is_smuggled, secret_runs, unmask_text
from convbench.schema import Conversation, Example, ProtocolSpec, Turn
from convbench.views import heard_text

LEAK = 12
"""Tokens in a row that a turn may not share with the reference (words and signs)."""
REPEATED_SHARE = 0.9
"""Share of a turn's tokens in one common run with an earlier turn from which it counts as a
repetition."""

_TOKEN = re.compile(r"\w+|[^\w\s]")
CODE = re.compile(
    r"```|^[^\S\n]*+(?:(?:def|class|async def)\s++\w++\s*+[(:]"
    r"|(?:import|from)\s++\w++(?:\s++import\b|[^\S\n]*+$)|return\s++[\w(\[{])"
    r"|\blambda\s++\w++\s*+:|</\w++>|<(?:html|div|body|span|style)\b",
    re.MULTILINE | re.IGNORECASE,
)
"""Code, of Python or a page."""
OTHERS_LINE = re.compile(
    r"^[^\w\n]*+(?:human|user|agent|assistant)\s*+\W?:", re.IGNORECASE | re.MULTILINE
)
"""A line that begins with a speaker's name."""
FAREWELL = re.compile(
    r"^\W*(?:(?:no,?\s+)?that(?:['’]s|\s+is)\s+(?:all|it|everything)"
    r"(?=\W*(?:$|thank|for\s+now|from\s+me|good\s*bye|bye|I\s+(?:need|have|want|can|know)))"
    r"|good\s*bye|bye|nothing\s+else"
    r"|i(?:['’]m|\s+am)\s+(?:done|finished)|(?:i\s+)?(?:can(?:no|['’])t|won['’]t)\s+help)\b",
    re.IGNORECASE,
)


def leak(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `SPEAKER:leak` for each speaker but the policy that reveals hidden text it sees, and
    `SPEAKER:code` for each that writes code.

    Hidden text is revealed by LEAK or more of its tokens in a row that the question does not have,
    or by a disguise of it (`tells_hidden`). A speaker that sees no hidden text is not checked, nor
    are scripted turns.
    """
    flags = []
    for speaker, hidden in hidden_texts(example, protocol).items():
        texts = [heard_text(protocol, turn) for turn in spoken_turns(conversation, speaker)]
        if tells_hidden(texts, hidden, example.question):
            flags.append(f"{speaker}:leak")
        if hidden and any(CODE.search(text) for text in texts):
            flags.append(f"{speaker}:code")
    return flags


def tells_hidden(texts: Sequence[str], hidden: Sequence[str], question: str) -> bool:
    """Return whether a speaker's turns reveal a hidden text: one of them openly, or in a disguise
    that may continue from turn to turn.

    Openly means LEAK or more tokens of it in a row. In a disguise 24 letters and digits in a row
    suffice, or the whole text if it has 12 to 23. Runs that the question has too do not count.
    """
    question_tokens = tokenize(unmask_text(question))
    for secret in (tokenize(unmask_text(text)) for text in hidden):
        if any(
            shared_run(tokenize(unmask_text(text)), secret, question_tokens) >= LEAK
            for text in texts
        ):
            return True
    hidden_runs = [secret_runs(text, question) for text in hidden]
    return any(is_smuggled(text, hidden_runs) for text in (*texts, "\n".join(texts)))


def role(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `SPEAKER:role` for each speaker that speaks for another; each once.

    That is: a speaker but the policy uses the answer marker or the policy's private marker, or any
    speaker begins a line with the name of a side (human, user, agent, assistant) and a colon.
    Scripted turns are not checked.
    """
    policy = protocol.speakers[protocol.policy]
    marks = [mark for mark in (protocol.answer_after, policy.private_before) if mark]
    flags = []
    for turn in spoken_turns(conversation):
        text = heard_text(protocol, turn)
        taken = turn.speaker != protocol.policy and any(mark in text for mark in marks)
        if taken or OTHERS_LINE.search(text):
            flags.append(f"{turn.speaker}:role")
    return drop_repeats(flags)


def early(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `SPEAKER:early` for each speaker but the policy with an empty turn or one that begins
    with a farewell; each once. Scripted turns are not checked."""
    others = (t for t in spoken_turns(conversation) if t.speaker != protocol.policy)
    return drop_repeats(
        f"{turn.speaker}:early"
        for turn in others
        if not heard_text(protocol, turn).strip() or FAREWELL.search(heard_text(protocol, turn))
    )


def repeats(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `SPEAKER:repeats` for each speaker with a turn that repeats an earlier turn of its
    own; each once.

    A turn of more than three tokens repeats another if one run of tokens in common makes up 90% of
    the longer one. Scripted turns are not checked.
    """
    flags = []
    before: dict[str, list[list[str]]] = {}
    for turn in spoken_turns(conversation):
        turn_tokens = tokenize(heard_text(protocol, turn))
        earlier = before.setdefault(turn.speaker, [])
        if len(turn_tokens) > 3 and any(_is_repetition(turn_tokens, other) for other in earlier):
            flags.append(f"{turn.speaker}:repeats")
        earlier.append(turn_tokens)
    return drop_repeats(flags)


def tokenize(text: str) -> list[str]:
    """Return a text's words and punctuation marks in lower case, in order; each mark is a token of
    its own."""
    return _TOKEN.findall(text.lower())


def shared_run(first: Sequence[str], second: Sequence[str], excluded: Sequence[str] = ()) -> int:
    """Return the length in tokens of the longest run that both sequences have and `excluded` does
    not; 0 if there is none. Time is linear in their lengths."""
    both = zip(
        cached_automaton(tuple(second)).longest_runs(first),
        cached_automaton(tuple(excluded)).longest_runs(first),
        strict=True,
    )
    return max((length for length, known in both if length > known), default=0)


def _is_repetition(first: Sequence[str], second: Sequence[str]) -> bool:
    least = REPEATED_SHARE * max(len(first), len(second))
    return min(len(first), len(second)) >= least and shared_run(first, second) >= least


def hidden_texts(example: Example, protocol: ProtocolSpec) -> dict[str, list[str]]:
    """Return the hidden texts that each speaker but the policy sees, by speaker; an empty list for
    one that sees none.

    They are the texts in the fields of its `sees`, those within lists and objects included. A gold
    answer that is an option's letter is left out.
    """
    gold = None if example.answer in example.letters else example.answer
    return {
        name: [
            text
            for field in speaker.sees
            for text in _iter_texts({**example.hidden, "answer": gold}.get(field))
        ]
        for name, speaker in protocol.speakers.items()
        if name != protocol.policy
    }


def _iter_texts(value: Any) -> Iterator[str]:
    """Yield the texts in a hidden field: itself, or those in its lists and objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _iter_texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _iter_texts(item)


def spoken_turns(conversation: Conversation, speaker: str | None = None) -> Iterator[Turn]:
    """Yield the turns that were not scripted, in order; only those of `speaker` if it is given."""
    for turn in conversation.turns:
        if turn.finish_reason != "scripted" and speaker in (None, turn.speaker):
            yield turn


def drop_repeats(flags: Iterable[str]) -> list[str]:
    """Return the flags without repetitions, in the order of their first occurrence."""
    return list(dict.fromkeys(flags))
