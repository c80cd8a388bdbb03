"""Refuse to publish anything that looks like a key, or `messages` that hold what the protocol hides
from the policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import orjson

from convbench.answers.disguises import SHORTEST as SHORTEST_DISGUISED
from convbench.answers.disguises import letters, smuggled, unmasked
from convbench.blot import _START, PATTERNS, in_use
from convbench.errors import RunError
from convbench.schema import Conversation, Example, Message, RunManifest, text_of
from convbench.store.parts import COMPRESSED, opened

TEXT = (".json", ".jsonl", ".md", ".yaml", ".jinja", ".txt", COMPRESSED)
BLOCK = 1 << 18
"""Characters that are looked at at once."""


class Scanner:
    """Finds key-like text and the values of this machine's own key variables."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._values = in_use(environment)
        self._patterns = [(kind, marks, re.compile(_START + p)) for kind, marks, p in PATTERNS]

    def find(self, text: str) -> str | None:
        """Return what kind of secret stands in the text, None where there is none."""
        for kind, marks, pattern in self._patterns:
            if any(mark in text for mark in marks) and pattern.search(text):
                return kind
        return next((f"the value of ${n}" for v, n in self._values.items() if v in text), None)


def refuse_secrets(folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Raise a RunError that names file, line and field of the first secrets in a folder."""
    scanner = Scanner(environment)
    found = [
        finding
        for path in sorted(folder.rglob("*"))
        if path.suffix in TEXT and path.is_file()
        for finding in _in_file(scanner, path, path.relative_to(folder).as_posix())
    ]
    if found:
        more = f" (and {len(found) - 5} more places)" if len(found) > 5 else ""
        raise RunError(
            "found what looks like secrets, so nothing is published: "
            f"{'; '.join(found[:5])}{more}. Withdraw such a key, take it out of the run, "
            "then publish again"
        )


def _in_file(scanner: Scanner, path: Path, name: str) -> Iterator[str]:
    number = 0
    with _opened(path) as file:
        while some := file.readlines(BLOCK):
            if _suspect(scanner, some):
                for place, line in enumerate(some, number + 1):
                    kind = scanner.find(line) or _escaped(scanner, line)
                    if kind is not None:
                        yield f"{name}:{place}{_field(scanner, line)}: {kind}"
            number += len(some)


def _opened(path: Path) -> TextIO:
    """Open a text, or a compressed part of records, which is text inside."""
    if path.suffix == COMPRESSED:
        return TextIOWrapper(opened(path), encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")


def _suspect(scanner: Scanner, some: Sequence[str]) -> bool:
    """Whether lines may hold a secret: one look at all of them, and one at their strings with
    JSON's escapes undone. No pattern ends where a line does."""
    if scanner.find("".join(some)) is not None:
        return True
    found: list[str] = []
    for line in some:
        if "\\" in line:
            _collect(_value(line), found)
    return scanner.find("\n".join(found)) is not None


def _collect(value: Any, found: list[str]) -> None:
    """Add every text in a JSON value, names of keys too."""
    if isinstance(value, str):
        found.append(value)
    elif isinstance(value, dict):
        found.extend(value)
        for item in value.values():
            _collect(item, found)
    elif isinstance(value, list):
        for item in value:
            _collect(item, found)


def _escaped(scanner: Scanner, line: str) -> str | None:
    """What stands in a line's strings once JSON's escapes are undone."""
    return next((kind for _, text in strings(_value(line)) if (kind := scanner.find(text))), None)


def _field(scanner: Scanner, line: str) -> str:
    """Where in a JSON line the secret stands."""
    value = _value(line)
    place = next((way for way, text in strings(value) if scanner.find(text)), None)
    if place is None or not isinstance(value, dict) or scanner.find(place):
        return ""
    owner = value.get("conversation_id") or value.get("example_id")
    return f" ({owner}, {place})" if owner and not scanner.find(str(owner)) else f" ({place})"


def _value(line: str) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def strings(value: Any, way: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, text) of every text in a JSON value."""
    if isinstance(value, str):
        yield way, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"{way} (a key's name)".strip(), str(key)
            yield from strings(item, f"{way}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from strings(item, f"{way}[{index}]")


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
