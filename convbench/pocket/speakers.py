"""Rule speakers: a teacher who knows every fact, a human who knows what is wanted.

Both are pure: the reply follows from the messages that the speaker sees (its own turns have the
role "assistant", the others' "user") and the example's fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from convbench.pocket import texts
from convbench.pocket.world import LETTERS, PROPERTIES, World, make_world

Messages = list[dict[str, str]]


def teacher(messages: Messages, example: Mapping[str, Any]) -> str:
    """Return the teacher's true sentence about the option in the last message of another speaker,
    without its letter.

    Options are recognised by their text, else by their letter; if it is none or several, return
    "Fact: none." Needs the fields `question` and `choices`, the facts being the teacher's own;
    raise KeyError without them.
    """
    question = _last_message(messages)
    options = _options_by_label(read_field(example, "choices"))
    labels = _mentioned_keys(question, options) or _mentioned_keys(
        question, {label: label for label in options}
    )
    if len(labels) != 1:
        return texts.TEACHER_LOST
    return tell_fact(make_world(), str(read_field(example, "question")), options[labels[0]])


def tell_fact(world: World, question: str, option: str) -> str:
    """Return the teacher's sentence on an option: a name's value, or whether a value is right.

    The property is the first one named in the question. If the world has no such fact, return
    "Fact: none."
    """
    words = re.findall(r"\w+", question)
    prop = next((word for word in words if word in PROPERTIES), "")
    if (option, prop) in world.facts:
        value = world.value(option, prop)
        return texts.TEACHER_FACT.format(name=option, prop=prop, value=value)
    name = next((word for word in words if (word, prop) in world.facts), "")
    if not name:
        return texts.TEACHER_LOST
    wording = texts.TEACHER_YES if world.value(name, prop) == option else texts.TEACHER_NO
    return wording.format(name=name, prop=prop, value=option)


def human(messages: Messages, example: Mapping[str, Any]) -> str:
    """Return the human's reply about the one property asked for in the last message.

    It says the value sought if that property matters, else that the human does not mind; "I do not
    know." if no property is named, or several. Needs the hidden field `reference`: the property and
    the value, as "color red"; raise KeyError without it.
    """
    props = _mentioned_keys(_last_message(messages), {prop: prop for prop in PROPERTIES})
    if len(props) != 1:
        return texts.HUMAN_LOST
    prop, value = str(read_field(example, "reference")).split()
    if props[0] == prop:
        return texts.HUMAN_NEED.format(prop=prop, value=value)
    return texts.HUMAN_ANY.format(prop=props[0])


def read_field(example: Mapping[str, Any], name: str) -> Any:
    """Return a field of a row or of an Example: at the top, among the inputs or the hidden ones.
    Raises KeyError if it is missing."""
    for part in (example, example.get("inputs") or {}, example.get("hidden") or {}):
        if name in part:
            return part[name]
    raise KeyError(f"this speaker needs the field {name!r}; the example has {sorted(example)}")


def _last_message(messages: Messages) -> str:
    """Return the last message of the other speakers, "" at the start."""
    heard = [message["content"] for message in messages if message["role"] == "user"]
    return heard[-1] if heard else ""


def _mentioned_keys(text: str, words: Mapping[str, str]) -> list[str]:
    """Return the keys of `words` whose word is in the text, each once, in the order of `words`."""
    present = set(re.findall(r"\w+", text))
    return [key for key, word in words.items() if word in present]


def _options_by_label(choices: Sequence[Any]) -> dict[str, str]:
    """Return options by label, from texts in order or from {label, text}."""
    if all(isinstance(choice, str) for choice in choices):
        return dict(zip(LETTERS, choices, strict=True))
    return {choice["label"]: choice["text"] for choice in choices}
