"""Refuse to publish anything that looks like a key, or `messages` that contain text the protocol
hides from the policy.
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
"""Characters that are scanned at once."""


class Scanner:
    """Finds text that looks like a key, and the values of this machine's key variables."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._values = in_use(environment)
        self._patterns = [(kind, marks, re.compile(_START + p)) for kind, marks, p in PATTERNS]

    def find(self, text: str) -> str | None:
        """Return the kind of the first secret in the text, None if there is none."""
        for kind, marks, pattern in self._patterns:
            if any(mark in text for mark in marks) and pattern.search(text):
                return kind
        return next((f"the value of ${n}" for v, n in self._values.items() if v in text), None)


def refuse_secrets(folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Raise RunError if files of a folder contain secrets, naming file, line and field of the
    first five."""
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
    """Open a text file, or a compressed part of records as text."""
    if path.suffix == COMPRESSED:
        return TextIOWrapper(opened(path), encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")


def _suspect(scanner: Scanner, some: Sequence[str]) -> bool:
    """Return True if the lines may contain a secret. They are scanned joined, once as they are and
    once with JSON's escapes decoded; no pattern depends on where a line ends."""
    if scanner.find("".join(some)) is not None:
        return True
    found: list[str] = []
    for line in some:
        if "\\" in line:
            _collect(_value(line), found)
    return scanner.find("\n".join(found)) is not None


def _collect(value: Any, found: list[str]) -> None:
    """Append every string in a JSON value to the list, keys too."""
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
    """Return the kind of the first secret in a JSON line's decoded strings, None without one."""
    return next((kind for _, text in strings(_value(line)) if (kind := scanner.find(text))), None)


def _field(scanner: Scanner, line: str) -> str:
    """Return where in a JSON line the secret is, as ` (record, path)`; "" if it cannot be named
    without telling it."""
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
    """Yield (path, text) of every string in a JSON value, keys too."""
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
"""Fewest characters of a hidden text. Shorter ones (a letter, a small number) occur by chance."""
_WORD = re.compile(r"\w+")


def hidden_texts(manifest: RunManifest, example: Example) -> dict[str, tuple[str, ...]]:
    """Return the words of each text of a question that the policy may not see, by field path.

    Fields in the policy's `sees`, and texts that also occur in the question, its options or its
    inputs, are not hidden.
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
    """Yield where a complete hidden text occurs, openly or disguised, in a message of another
    speaker before the policy said it itself.

    Each is one phrase with field, conversation and message, never the text.
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
            del hidden[name]  # from here on it is known, whoever said it
            if message["role"] != "assistant":
                yield (
                    f"field {name!r} of {example.example_id} in message {number} "
                    f"({message['role']}) of {conversation.conversation_id}"
                )


def _in_disguise(text: tuple[str, ...], content: str, role: str) -> bool:
    """Return True if a user message contains the complete text in a disguise."""
    bare = letters(" ".join(text))
    return (
        role == "user"
        and len(bare) >= SHORTEST_DISGUISED
        and smuggled(content, [frozenset({bare})])
    )


def refuse_leaks(found: list[str]) -> None:
    """Raise RunError if there are leaks, naming the first three."""
    if found:
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        raise RunError(
            f"messages hold what the protocol hides from the policy, so nothing is published: "
            f"{'; '.join(found[:3])}{more}. Let the speaker not see that field, or publish without "
            "those conversations (--leave-out-leaks)"
        )


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case, with look-alike characters replaced."""
    return tuple(_WORD.findall(unmasked(text).lower()))


def _within(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    """Return True if the words occur consecutively in the other text."""
    return f" {' '.join(part)} " in f" {' '.join(whole)} "


def _visible(example: Example) -> str:
    inputs: Mapping[str, Any] = example.inputs
    texts = [example.question, *(choice.text for choice in example.choices)]
    return "\n".join(texts + [text for _, text in strings(dict(inputs))])
