"""The columns of a row of a set by their shape: system, tools, scores, several replies.

Sets call one thing by a hundred names, so names are compared in snake_case, null, "" and [] are
absent, text that writes a list is that list, and whatever nobody takes is metadata.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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
SYSTEMS = ("system", "system_prompt", "system_instruction", "custom_instructions")
SCORES = ("reward", "rewards", "score", "scores", "rating", "metrics_data", "feedback_scores")
LABELS = ("label", "kto_tag", "resolved", "target", "passed", "success", "correct", "feedback")
"""Columns that are 1 or true for a good reply, 0 or false for a bad one."""
GOOD = ("positive", "up", "thumbs_up", "like", "good")
BAD = ("negative", "down", "thumbs_down", "dislike", "bad")
BETTER = (("chosen", "rejected"), ("preferred", "non_preferred"), ("accepted", "rejected"))
PAIRS = [
    (f"{one}{end}", f"{two}{end}", (one, two))
    for one, two in BETTER
    for end in ("", "_response", "_messages", "_conversations", "_output")
]
"""(column of the better reply, of the worse, what tells the sides)."""
REPLIES = ("response", "answer", "completion", "output", "text", "content", "message")
"""Keys under which a candidate holds its reply."""
TWINS = [
    (f"{name}{one}", f"{name}{two}", (one, two))
    for name in ("conversation", "messages", "summary", "human_ref", *REPLIES[:4])
    for one, two in (("_a", "_b"), ("_0", "_1"), ("_1", "_2"), ("1", "2"))
]
"""The same of two replies with a verdict."""
WORD = re.compile(
    r"(?:model_|response_|assistant_)?([ab])(?:>+[ab])?|(?:tie|both|draw|equal|a=b).*"
)
VERDICTS: Mapping[str, Callable[[float], float]] = {
    "overall_preference": lambda number: number,
    "preference_strength": lambda number: number,
    "better_response_id": lambda index: 2 * index - 1,
    "choice": lambda index: 2 * index - 1,
    "chosen_index": lambda index: 2 * index - 1,
    "preference": lambda side: side - 1.5 if side else 0.0,
    "labels": lambda is_first: 1 - 2 * is_first,
}
"""How much better the second of two replies is by the number in a column."""
LISTS = ("completions", "answers", "responses", "candidates", "summaries", "generations", "outputs")
PARALLEL = ("ratings", "scores", "rewards", "labels", "correctness", "rank")
"""How columns begin that hold a score for each reply of a list."""
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


def take(row: Row, *names: str) -> Any:
    """Take the first of these columns that is there; None without one."""
    return next((row.pop(name) for name in names if name in row), None)


def take_numbers(row: Row, *names: str) -> list[float]:
    """Take these columns if all of them hold numbers, and return those; else none."""
    numbers = [number for name in names if (number := as_number(row.get(name))) is not None]
    if len(numbers) < len(names):
        return []
    return [number for number, _ in zip(numbers, [row.pop(name) for name in names], strict=True)]


def take_system(row: Row) -> list[LogMessage]:
    """Take a row's system prompt: the messages it is, at most one."""
    inner = as_mapping(row.get("chat_template_kwargs")).get("custom_instructions")
    text = system_text(take(row, *SYSTEMS) or inner)
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
    """Take the scores of a row or candidate by name, from the first place that has them; not
    rescaled."""
    for name in (*SCORES, "feedback"):
        if found := named_scores(row.get(name)):
            row.pop(name)
            return found
    ends = [name for name in row if name.endswith(("_reward", "_score"))]
    ends = [name for name in ends if name.startswith("overall")] or ends
    if len(ends) == 1 and (numbers := take_numbers(row, *ends)):
        return {"reward": numbers[0]}
    for name in LABELS:
        value = row.get(name)
        word = snake(value)
        number = 1.0 if word in GOOD else 0.0 if word in BAD else as_number(value)
        if number in (0, 1) and (name != "target" or isinstance(value, bool)):
            row.pop(name)
            return {"reward": float(number or 0)}
    return {}


def take_replies(row: Row) -> list[Reply]:
    """Take the replies of a row that has several to one prompt, or one in steps, with their scores;
    none for any other row."""
    for one, two, sides in (*PAIRS, *TWINS):
        if one in row and two in row:
            return _take_two(row, one, two, sides)
    rejected = next(
        (name for name in ("rejected_response", "rejected_messages") if name in row), ""
    )
    if rejected:  # in place of the last reply of the row's dialogue, which is the prompt as well
        names = [name for name in DIALOGUES if is_dialogue(row.get(name))]
        chosen = row[names[0]] if names else take(row, "response", "completion", "output")
        return [(chosen, {"reward": 1.0}, {}), (row.pop(rejected), {"reward": 0.0}, {})]
    if steps := as_list(as_mapping(row.get("label")).get("steps")):
        return _tree(steps)
    if as_list(row.get("steps")) and (wrong := take_numbers(row, "label")):  # the first wrong one
        reply = "\n\n".join(map(str, as_list(row.pop("steps"))))
        return [(reply, {"reward": float(wrong[0] < 0)}, {})]
    return next((found for name in LISTS if (found := _list(row, name))), [])


def _take_two(row: Row, one: str, two: str, sides: tuple[str, str]) -> list[Reply]:
    is_pair = sides in BETTER
    values = [row.pop(one), row.pop(two)]
    names = [name for name in row if sides[0] in name and re.search("score|rating|reward", name)]
    scores = [take_numbers(row, name, name.replace(*sides)) for name in names]
    sign = -1.0 if is_pair else None if any(scores) else _better(row)
    told = [] if sign is None else [float(sign < 0), float(sign > 0)] if sign else [0.5, 0.5]
    out: list[Reply] = []
    for number, reward in enumerate(next(filter(None, scores), told) or [None, None]):
        value, about = values[number], {} if is_pair else {"side": sides[number].strip("_")}
        several = is_pair and isinstance(value, list) and all(isinstance(v, str) for v in value)
        score = {} if reward is None else {"reward": reward}
        out += [(reply, score, about) for reply in (value if several else [value])]
    return out


def _better(row: Row) -> float | None:
    """Take how much better the second of two replies is; None if nothing is said."""
    for name in ("winner", "label", "preference", "better", "labels"):
        if word := WORD.fullmatch(str(row.get(name)).lower().strip()):
            row.pop(name)
            return {"a": -1.0, "b": 1.0}.get(word[1], 0.0)
    for name, read in VERDICTS.items():
        if number := take_numbers(row, name):
            return read(number[0])
    row.pop("winner_tie", None)
    hot = take_numbers(row, "winner_model_a", "winner_model_b")
    return hot[1] - hot[0] if hot else None


def _tree(steps: list[Any]) -> list[Reply]:
    """Return the begun replies of a tree of steps, of which one each goes on: those that end with
    another or with the last, with its rating."""
    out: list[Reply] = []
    before = ""
    for number, step in enumerate(map(as_mapping, steps), 1):
        tried = [as_mapping(item) for item in as_list(step.get("completions"))]
        index: Any = step.get("chosen_completion")
        chosen = as_mapping(step.get("human_completion"))
        if tried and not chosen:
            best = max(tried, key=lambda item: as_number(item.get("rating")) or 0.0)
            chosen = tried[index] if index in range(len(tried)) else best
        for item in tried:
            if item is not chosen or number == len(steps):
                out.append((f"{before}{item.get('text')}", named_scores(item.get("rating")), {}))
        before += f"{chosen.get('text', '')}\n"
    return out


def _list(row: Row, name: str) -> list[Reply]:
    """Take the replies in a column of several: objects with a reply and a score, or texts beside a
    column of as many scores."""
    values, choice = as_list(row.get(name)), as_number(row.get("choice"))
    items = [columns(v) if isinstance(v, dict) else {"text": v} for v in values]
    if is_dialogue(values) or not all(first_of(item, *REPLIES) is not None for item in items):
        return []
    texts = len(items) > 1 and all(isinstance(value, str) for value in values)
    beside = [n for n in row if texts and n.startswith(PARALLEL) and _fits(row[n], len(items))]
    if name == "completions" and beside[:1] == ["labels"]:  # steps of one reply, each right or not
        right = all(map(as_number, as_list(row.pop("labels"))))
        return [("\n".join(row.pop(name)), {"reward": float(right)}, {})]
    for mark, item in zip(as_list(row.get(beside[0])) if beside else [], items, strict=False):
        item |= {"rank" if beside[0].startswith("rank") else "score": mark}
    scores = [_scores_of(item) for item in items]
    if choice is not None and len(items) > 1:
        scores = [{"reward": float(number == choice)} for number in range(len(items))]
    if not any(scores):
        return []
    for taken in (name, "choice", *beside[:1]):
        row.pop(taken, None)
    ends = [{"finish_reason": end} for end in as_list(row.get("finish_reasons"))]
    ends += [{}] * (len(items) - len(ends))
    return [
        (first_of(item, *REPLIES), score, kept(item, "model", "source", "model_name") | end)
        for item, score, end in zip(items, scores, ends, strict=False)
    ]


def _fits(marks: Any, count: int) -> bool:
    marks = as_list(marks)
    return len(marks) == count and any(as_number(mark) is not None for mark in marks)


def _scores_of(candidate: Row) -> dict[str, float]:
    """Return the scores of a candidate by name; of a rank, the lower the better."""
    scores = {
        f"{name}.{part}": number
        for name, marks in as_mapping(candidate.get("annotations")).items()
        for part, mark in as_mapping(marks).items()
        if snake(part) == "rating" and (number := as_number(mark)) is not None
    }
    if (rank := take_numbers(candidate, "rank")) and "score" not in candidate:
        scores["reward"] = -rank[0]
    return scores | take_rewards(dict(candidate))
