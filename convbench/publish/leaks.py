"""Refuse to publish `messages` that hold what the protocol hides from the policy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from convbench.answers.disguises import SHORTEST as SHORTEST_DISGUISED
from convbench.answers.disguises import letters, smuggled, unmasked
from convbench.errors import RunError
from convbench.publish.secrets import strings
from convbench.schema import Conversation, Example, Message, RunManifest, text_of

SHORTEST = 6
"""Hidden texts shorter than this (a letter, a small number) turn up by chance."""
_WORD = re.compile(r"\w+")


def hidden_texts(manifest: RunManifest, example: Example) -> dict[str, tuple[str, ...]]:
    """Return the words of what the policy may not see of a question, by field name.

    Fields the policy names in `sees`, and texts that stand in the question, its options or its
    inputs anyway, are no secret.
    """
    sees = manifest.protocol.speakers[manifest.protocol.policy].sees
    fields: dict[str, Any] = {
        name: value for name, value in example.hidden.items() if name not in sees
    }
    if "answer" not in sees and example.answer not in example.letters:
        fields["answer"] = example.answer
    shown = words(_visible(example))
    found = {}
    for name, value in fields.items():
        for way, text in strings(value, name):
            said = words(text)
            if len(text.strip()) >= SHORTEST and said and not _within(said, shown):
                found[way] = said
    return found


def leaks(
    manifest: RunManifest,
    example: Example,
    conversation: Conversation,
    messages: Iterable[Message],
) -> Iterator[str]:
    """Yield where hidden text stands whole, openly or in a disguise, in a message that the policy
    did not say itself first.

    Each is one phrase: field, conversation, message; never the text.
    """
    hidden = hidden_texts(manifest, example)
    if not hidden:
        return
    for number, message in enumerate(messages):
        content = text_of(message["content"])
        said = words(content)
        for name, text in list(hidden.items()):
            if not _within(text, said) and not _in_disguise(text, content, message["role"]):
                continue
            del hidden[name]  # whoever said it, it is known from here on
            if message["role"] != "assistant":
                yield (
                    f"field {name!r} of {example.example_id} in message {number} "
                    f"({message['role']}) of {conversation.conversation_id}"
                )


def _in_disguise(text: tuple[str, ...], content: str, role: str) -> bool:
    """Whether another speaker's message holds the whole text in a disguise."""
    bare = letters(" ".join(text))
    return (
        role == "user"
        and len(bare) >= SHORTEST_DISGUISED
        and smuggled(content, [frozenset({bare})])
    )


def refuse_leaks(found: list[str]) -> None:
    """Raise a RunError where there are leaks."""
    if found:
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        raise RunError(
            f"messages hold what the protocol hides from the policy, so nothing is published: "
            f"{'; '.join(found[:3])}{more}. Let the speaker not see that field, or publish without "
            "those conversations (--leave-out-leaks)"
        )


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case and plain letters."""
    return tuple(_WORD.findall(unmasked(text).lower()))


def _within(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    """Whether the words stand in a row in the other text."""
    return f" {' '.join(part)} " in f" {' '.join(whole)} "


def _visible(example: Example) -> str:
    inputs: Mapping[str, Any] = example.inputs
    texts = [example.question, *(choice.text for choice in example.choices)]
    return "\n".join(texts + [text for _, text in strings(dict(inputs))])
