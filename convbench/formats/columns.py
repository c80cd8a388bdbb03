"""The columns of a row of a set by their shape: system, tools, scores, several replies.

Sets call one thing by a hundred names, so names are compared in snake_case, null, "" and [] are
absent, text that writes a list is that list, and whatever nobody takes is metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from convbench.formats.chats import DIALOGUES, is_dialogue, system_text
from convbench.formats.dialects import PERSONAL, wire_tools
from convbench.formats.log import LogMessage
from convbench.formats.values import (
    as_list,
    as_mapping,
    as_number,
    first_of,
    kept,
    named_scores,
    without_nulls,
)

TOOLS = ("tools", "functions", "xml_tools", "python_tools")
SCORES = (
    *("reward", "rewards", "score", "scores", "rating", "metrics_data", "feedback_scores"),
    "feedback",
)
LABELS = ("label", "kto_tag", "resolved", "target", "passed", "success", "correct", "feedback")
"""Columns that are 1 or true for a good reply, 0 or false for a bad one."""
THUMBS = {
    **dict.fromkeys(("positive", "up", "thumbs_up", "like", "good"), 1.0),
    **dict.fromkeys(("negative", "down", "thumbs_down", "dislike", "bad"), 0.0),
}
"""What people say of a reply in one word."""
PAIRS = (("chosen", "rejected"), ("preferred", "non_preferred"), ("accepted", "rejected"))
ENDINGS = ("", "_response", "_messages", "_conversations", "_output")
SIDES = ("score_{}", "{}_score", "{}_rating", "{}_reward", "reward_{}")
"""Columns of the score of a side of a pair."""
TWINS = (
    *("conversation", "messages", "response", "answer", "output", "completion", "summary"),
    "human_ref",
)
ENDS = (("_a", "_b"), ("_0", "_1"), ("_1", "_2"), ("1", "2"))
SIGNS = {"a": -1.0, "b": 1.0, "tie": 0.0, "both": 0.0, "draw": 0.0, "equal": 0.0, "a=b": 0.0}
"""Which reply is better by the word that a verdict begins with: below 0 the first."""
WORD = re.compile(r"(?:model_|response_|assistant_)?([ab])(?:>+[ab])?|(tie|both|draw|equal|a=b).*")
LISTS = (
    *("completions", "answers", "responses", "candidates", "summaries", "generations", "outputs"),
)
PARALLEL = ("ratings", "scores", "rewards", "labels", "correctness", "rank")
"""How columns begin that hold a score for each reply of a list."""
MARKS = ("reward", "score", "rating", "overall_score")
REPLIES = ("response", "answer", "completion", "output", "text", "content", "message")
"""Keys under which a candidate holds its score and its reply."""
Row = dict[str, Any]
"""A row's columns by their names in snake_case; those that are taken are gone."""
Reply = tuple[Any, dict[str, float], dict[str, Any]]
"""(a reply or the whole dialogue, its scores, what else is said about it)."""


def snake(name: object) -> str:
    """Return a name in snake_case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s\-.]+", "_", str(name)).lower()


def columns(record: Mapping[str, Any]) -> Row:
    """Return the columns of a row that hold something; of two of one name the first."""
    row: Row = {}
    for name, value in without_nulls(record).items():
        if value not in ("", [], {}) and snake(name) not in PERSONAL:
            row.setdefault(snake(name), value)
    return row


def first(row: Row, *names: str) -> str | None:
    """Return the first of these columns that is there; None without one."""
    return next((name for name in names if name in row), None)


def take(row: Row, *names: str) -> Any:
    """Take the first of these columns that is there; None without one."""
    return next((row.pop(name) for name in names if name in row), None)


def take_numbers(row: Row, *names: str) -> list[float] | None:
    """Take these columns if all of them hold numbers, and return those; else None."""
    numbers = [number for name in names if (number := as_number(row.get(name))) is not None]
    if len(numbers) < len(names):
        return None
    return [number for number, _ in zip(numbers, map(row.pop, names), strict=True)]


def take_system(row: Row) -> list[LogMessage]:
    """Take a row's system prompt: the messages it is, at most one."""
    inner = as_mapping(row.get("chat_template_kwargs")).get("custom_instructions")
    names = ("system", "system_prompt", "system_instruction", "custom_instructions")
    text = system_text(take(row, *names) or inner)
    return [LogMessage("system", text)] if text else []


def take_tools(row: Row) -> Any:
    """Take the tools that were offered: of the row, its input, its settings or a message."""
    places = [row, as_mapping(row.get("input")), as_mapping(row.get("chat_template_kwargs"))]
    places += [as_mapping(item) for value in row.values() for item in as_list(value)[:2]]
    found = (place[name] for place in places for name in TOOLS if wire_tools(place.get(name)))
    tools = next(found, None)
    for name in TOOLS[:2]:
        row.pop(name, None)
    return tools


def take_rewards(row: Row) -> dict[str, float]:
    """Take the scores of a row by name, from the first place that has them. Not rescaled."""
    for name in SCORES:
        if found := named_scores(row.get(name)):
            row.pop(name)
            return found
    ends = [name for name in row if name.endswith(("_reward", "_score"))]
    if len(ends) == 1 and (numbers := take_numbers(row, *ends)):
        return {"reward": numbers[0]}
    for name in LABELS:
        value = row.get(name)
        number = THUMBS.get(snake(value), as_number(value))
        if number in (0, 1) and (name != "target" or isinstance(value, bool)):
            row.pop(name)
            return {"reward": float(number or 0)}
    return {}


def take_replies(row: Row) -> list[Reply]:
    """Take the replies of a row that has several to one prompt, or one in steps, with their scores;
    none for any other row."""
    for better, worse in ((a + end, b + end) for a, b in PAIRS for end in ENDINGS):
        if better in row and worse in row:
            return _pair(row, better, worse)
    rejected = first(row, "rejected_response", "rejected_messages")
    if rejected:  # in place of the last reply of the row's dialogue, which is the prompt as well
        names = [name for name in DIALOGUES if is_dialogue(row.get(name))]
        chosen = row[names[0]] if names else take(row, "response", "completion", "output")
        return [(chosen, {"reward": 1.0}, {}), (row.pop(rejected), {"reward": 0.0}, {})]
    for base in TWINS:
        for ends in ENDS:
            if all(f"{base}{end}" in row for end in ends):
                return _twins(row, base, ends)
    if steps := as_list(as_mapping(row.get("label")).get("steps")):
        return _tree(steps)
    if as_list(row.get("steps")) and (wrong := take_numbers(row, "label")):  # the first wrong one
        reply = "\n\n".join(map(str, as_list(row.pop("steps"))))
        return [(reply, {"reward": float(wrong[0] < 0)}, {})]
    return next((found for name in LISTS if (found := _list(row, name))), [])


def _pair(row: Row, better: str, worse: str) -> list[Reply]:
    sides = [name.partition("_")[0] for name in (better, worse)]
    names = ([score.format(side) for side in sides] for score in SIDES)
    scores = next((found for both in names if (found := take_numbers(row, *both))), [1.0, 0.0])
    out: list[Reply] = []
    for name, score in zip((better, worse), scores, strict=True):
        value = row.pop(name)
        several = isinstance(value, list) and all(isinstance(text, str) for text in value)
        out += [(reply, {"reward": score}, {}) for reply in (value if several else [value])]
    return out


def _twins(row: Row, base: str, ends: tuple[str, str]) -> list[Reply]:
    rewards: list[float] | None = None
    for name in ("score", "rating", "reward", f"{base}_score", "human_score"):
        rewards = rewards or take_numbers(row, *(f"{name}{end}" for end in ends))
    sign = None if rewards else _better(row)
    if sign is not None:
        rewards = [float(sign < 0), float(sign > 0)] if sign else [0.5, 0.5]
    out: list[Reply] = []
    for number, end in enumerate(ends):
        value, score = row.pop(f"{base}{end}"), {"reward": rewards[number]} if rewards else {}
        turns = as_list(value)
        texts = turns and all(isinstance(text, str) for text in turns)
        out.append((turns if texts else value, score, {"side": end.strip("_")}))
    return out


def _better(row: Row) -> float | None:
    """Take which of two replies is better, below 0 the first, 0 for a tie; None if none is said."""
    if hot := take_numbers(row, "winner_model_a", "winner_model_b"):
        row.pop("winner_tie", None)
        return hot[1] - hot[0]
    for name in ("winner", "label", "preference", "better", "labels"):
        word = WORD.fullmatch(str(row.get(name)).lower().strip())
        if word:
            row.pop(name)
            return SIGNS[word[1] or word[2]]
    if signed := take_numbers(row, "overall_preference") or take_numbers(
        row, "preference_strength"
    ):
        return signed[0]
    for name in ("better_response_id", "choice", "chosen_index"):
        if as_number(row.get(name)) in (0, 1):
            return 2 * float(as_number(row.pop(name)) or 0) - 1
    if preferred := take_numbers(row, "preference"):  # from 1 to 2, or 0
        return 0.0 if preferred[0] in (0, 1.5) else preferred[0] - 1.5
    label = take_numbers(row, "labels")  # 1: the first is better
    return 1 - 2 * label[0] if label else None


def _tree(steps: list[Any]) -> list[Reply]:
    """Return the begun replies of a tree of steps, of which one each goes on: those that end with
    another or with the last, with its rating."""
    out: list[Reply] = []
    before = ""
    for number, step in enumerate(map(as_mapping, steps), 1):
        tried = [as_mapping(item) for item in as_list(step.get("completions"))]
        chosen = as_mapping(step.get("human_completion"))
        index = step.get("chosen_completion")
        if isinstance(index, int) and 0 <= index < len(tried):
            chosen = tried[index]
        elif not chosen and tried:
            chosen = max(tried, key=lambda item: as_number(item.get("rating")) or 0.0)
        for item in tried:
            if item is not chosen or number == len(steps):
                out.append((f"{before}{item.get('text')}", named_scores(item.get("rating")), {}))
        before += f"{chosen.get('text', '')}\n"
    return out


def _list(row: Row, name: str) -> list[Reply]:
    """Take the replies in a column of several: objects with a reply and a score, or texts beside a
    column of as many scores."""
    values, choice = as_list(row.get(name)), as_number(row.get("choice"))
    if not values or is_dialogue(values):
        return []
    if all(isinstance(item, dict) and first_of(item, *REPLIES) is not None for item in values):
        scored = {snake(key) for item in values for key in item} & {*MARKS, "rank", "label"}
        if not scored and (choice is None or len(values) < 2):
            return []
        out = [(first_of(item, *REPLIES), _scores_of(item), _about(item)) for item in values]
    else:
        found = [n for n in row if n.startswith(PARALLEL) and _fits(row[n], len(values))]
        if not all(isinstance(item, str) for item in values) or len(values) < 2 or not found:
            return []
        marks = [as_number(mark) for mark in as_list(row.pop(found[0]))]
        if (name, found[0]) == ("completions", "labels"):  # steps of one reply, each right or not
            return [("\n".join(row.pop(name)), {"reward": float(all(marks))}, {})]
        sign = -1 if found[0].startswith("rank") else 1  # the lower a rank, the better
        out = [(item, {} if mark is None else {"reward": sign * mark}, {})
               for item, mark in zip(values, marks, strict=True)]  # fmt: skip
    for column in (name, "choice"):
        row.pop(column, None)
    ends = as_list(row.get("finish_reasons"))
    for number, (_, scores, about) in enumerate(out):
        if choice is not None:
            scores["reward"] = float(number == choice)
        about |= {"finish_reason": ends[number]} if number < len(ends) else {}
    return out


def _fits(marks: Any, count: int) -> bool:
    marks = as_list(marks)
    return len(marks) == count and any(as_number(mark) is not None for mark in marks)


def _scores_of(value: dict[str, Any]) -> dict[str, float]:
    """Return the scores of a candidate by name; of a rank, the lower the better."""
    fields = columns(value)
    scores = {
        f"{name}.{part}": number
        for name, parts in as_mapping(fields.get("annotations")).items()
        for part, mark in as_mapping(parts).items()
        if (number := as_number(mark)) is not None and snake(part) == "rating"
    }
    numbers = [as_number(fields.get(name)) for name in MARKS]
    rank = as_number(fields.get("rank"))
    numbers += [None if rank is None else -rank, as_number(fields.get("label"))]
    main = next((number for number in numbers if number is not None), None)
    return scores | ({} if main is None else {"reward": main})


def _about(value: dict[str, Any]) -> dict[str, Any]:
    return kept(value, "model", "source", "model_name")
