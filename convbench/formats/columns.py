"""The columns of a row of a set by their shape: tools, scores, several replies to one prompt.

Sets call one thing by a hundred names, so names are compared in snake_case, null, "" and [] are
absent, text that writes a list is that list, and whatever nobody takes is metadata.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from convbench.formats import dialects, values
from convbench.formats.chats import DIALOGUES, is_dialogue
from convbench.formats.values import as_list, as_mapping, as_number, at, first_of, kept

TOOLS = ("tools", "functions", "xml_tools", "python_tools")
SCORES = (
    *("reward", "rewards", "score", "scores", "rating", "metrics_data", "feedback_scores"),
    "feedback",
)
LABELS = ("label", "kto_tag", "resolved", "target", "passed", "success", "correct", "feedback")
"""Columns that are 1 or true for a good reply, 0 or false for a bad one."""
WORDS = dict.fromkeys(("positive", "up", "thumbs_up", "like", "good"), 1.0)
WORDS |= dict.fromkeys(("negative", "down", "thumbs_down", "dislike", "bad"), 0.0)
REPLIES = ("response", "answer", "completion", "output", "text", "content", "message")
"""Keys under which a candidate holds its reply."""
BETTER = (("chosen", "rejected"), ("preferred", "non_preferred"), ("accepted", "rejected"))
ENDINGS = ("", "_response", "_messages", "_conversations", "_output")
NAMES = ("conversation", "messages", "summary", "human_ref", *REPLIES[:4])
ENDS = (("_a", "_b"), ("_0", "_1"), ("_1", "_2"), ("1", "2"))
TWINS = [
    *((f"{one}{end}", f"{two}{end}", (one, two)) for one, two in BETTER for end in ENDINGS),
    *((f"{name}{one}", f"{name}{two}", (one, two)) for name in NAMES for one, two in ENDS),
]
"""(two columns of replies, what tells them apart); of those in BETTER the first is better, of the
others a verdict says which."""
WORD = re.compile(
    r"(?:model_|response_|assistant_)?([ab])(?:>+[ab])?|(?:tie|both|draw|equal|a=b).*"
)
VERDICTS: Mapping[str, Callable[[float], float]] = {
    "overall_preference": lambda number: number,
    "preference_strength": lambda number: number,
    **dict.fromkeys(("better_response_id", "choice", "chosen_index"), lambda place: 2 * place - 1),
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
    for name, value in values.without_nulls(record).items():
        if value not in ("", [], {}) and snake(name) not in dialects.PERSONAL:
            row.setdefault(snake(name), value)
    return row


def take(row: Row, *names: str) -> Any:
    """Take the first of these columns that is there; None without one."""
    return next((row.pop(name) for name in names if name in row), None)


def take_numbers(row: Row, *names: str) -> list[float]:
    """Take these columns if all of them hold numbers, and return those; else none."""
    are_there = all(as_number(row.get(name)) is not None for name in names)
    return [as_number(row.pop(name)) or 0.0 for name in names] if are_there else []


def take_tools(row: Row) -> Any:
    """Take the tools that were offered: of the row, its input, its settings or a message."""
    places = [row, *(as_mapping(row.get(name)) for name in ("input", "chat_template_kwargs"))]
    places += [as_mapping(item) for value in row.values() for item in as_list(value)[:2]]
    found = (of[name] for of in places for name in TOOLS if dialects.wire_tools(of.get(name)))
    tools = next(found, None)
    for name in TOOLS[:2]:
        row.pop(name, None)
    return tools


def take_rewards(row: Row) -> dict[str, float]:
    """Take the scores of a row or candidate by name, the reward from the first place that has one;
    not rescaled, but of a rank, the lower the better."""
    aspects = {k: as_number(at(v, "Rating")) for k, v in as_mapping(row.get("annotations")).items()}
    scores = {f"{name}.Rating": mark for name, mark in aspects.items() if mark is not None}
    ends = [name for name in row if name.endswith(("_reward", "_score"))]
    ends = [name for name in ends if name.startswith("overall")] or ends
    for name in (*SCORES, *(ends if len(ends) == 1 else ())):
        if found := values.named_scores(row.get(name)):
            row.pop(name)
            return scores | found
    for name in LABELS:
        value = row.get(name)
        number = WORDS.get(snake(value), as_number(value))
        if number in (0, 1) and (name != "target" or isinstance(value, bool)):
            row.pop(name)
            return scores | {"reward": float(number or 0)}
    rank = take_numbers(row, "rank")
    return scores | ({"reward": -rank[0]} if rank else {})


def take_replies(row: Row) -> list[Reply]:
    """Take the replies of a row that has several to one prompt, or one in steps, with their scores;
    none for any other row."""
    for one, two, sides in TWINS:
        if one in row and two in row:
            return _take_two(row, one, two, sides)
    if rejected := take(row, "rejected_response", "rejected_messages"):
        names = [name for name in DIALOGUES if is_dialogue(row.get(name))]
        chosen = row[names[0]] if names else take(row, "response", "completion", "output")
        return [(chosen, {"reward": 1.0}, {}), (rejected, {"reward": 0.0}, {})]
    if steps := as_list(at(row, "label", "steps")):
        return _tree(steps)
    if "steps" in row and (wrong := take_numbers(row, "label")):  # the place of the first wrong one
        reply = "\n\n".join(map(str, as_list(row.pop("steps"))))
        return [(reply, {"reward": float(wrong[0] < 0)}, {})]
    return next((found for name in LISTS if (found := _take_list(row, name))), [])


def _take_two(row: Row, one: str, two: str, sides: tuple[str, str]) -> list[Reply]:
    is_pair, replies = sides in BETTER, [row.pop(one), row.pop(two)]
    names = [name for name in row if sides[0] in name and re.search("score|rating|reward", name)]
    scores = (take_numbers(row, name, name.replace(*sides)) for name in names)
    rewards = next(filter(None, scores), None) or ([1.0, 0.0] if is_pair else _verdict(row))
    out: list[Reply] = []
    for number, value in enumerate(replies):
        several = is_pair and isinstance(value, list) and all(isinstance(v, str) for v in value)
        score = {"reward": rewards[number]} if rewards else {}
        about = {} if is_pair else {"side": sides[number].strip("_")}
        out += [(reply, score, about) for reply in (value if several else [value])]
    return out


def _verdict(row: Row) -> list[float]:
    """Take which of two replies is better, as their rewards; none if it is not said."""
    signs: list[float] = []
    for name in ("winner", "label", "preference", "better", "labels"):
        if not signs and (word := WORD.fullmatch(str(row.get(name)).lower().strip())):
            row.pop(name)
            signs = [{"a": -1.0, "b": 1.0}.get(word[1], 0.0)]
    for name, read in VERDICTS.items():
        signs = signs or [read(number) for number in take_numbers(row, name)]
    hot = take_numbers(row, "winner_model_a", "winner_model_b")
    if hot:
        row.pop("winner_tie", None)
        signs = [hot[1] - hot[0]]
    if any(signs):
        return [float(signs[0] < 0), float(signs[0] > 0)]
    return [0.5, 0.5] if signs else []


def _tree(steps: list[Any]) -> list[Reply]:
    """Return the begun replies of a tree of steps, of which one each goes on: those that end with
    another or with the last, with its rating."""
    out: list[Reply] = []
    before = ""
    for number, step in enumerate(steps, 1):
        tried = [as_mapping(item) for item in as_list(at(step, "completions"))]
        place: Any = at(step, "chosen_completion")
        best = sorted(tried, key=lambda item: as_number(item.get("rating")) or 0.0)[-1:]
        best = tried[place : place + 1] if place in range(len(tried)) else best
        goes_on = as_mapping(at(step, "human_completion")) or next(iter(best), {})
        for item in tried:
            if item is not goes_on or number == len(steps):
                score = values.named_scores(item.get("rating"))
                out.append((f"{before}{item.get('text')}", score, {}))
        before += f"{goes_on.get('text', '')}\n"
    return out


def _take_list(row: Row, name: str) -> list[Reply]:
    """Take the replies in a column of several: objects with a reply and a score, or texts beside a
    column of as many scores."""
    replies, choice = as_list(row.get(name)), as_number(row.get("choice"))
    items = [columns(item) if isinstance(item, dict) else {"text": item} for item in replies]
    if is_dialogue(replies) or any(first_of(item, *REPLIES) is None for item in items):
        return []
    are_texts = len(items) > 1 and all(isinstance(reply, str) for reply in replies)
    marks = [n for n in row if are_texts and n.startswith(PARALLEL)]
    mark = next((n for n in marks if len(as_list(row[n])) == len(items)), "")
    if (name, mark) == ("completions", "labels"):  # steps of one reply, each right or not
        right = all(map(as_number, as_list(row.pop(mark))))
        return [("\n".join(row.pop(name)), {"reward": float(right)}, {})]
    key = "rank" if mark.startswith("rank") else "score"
    for field, column in ((key, mark), ("finish_reason", "finish_reasons")):
        for item, value in zip(items, as_list(row.get(column)), strict=False):
            item[field] = value
    scores = [take_rewards(dict(item)) for item in items]
    if choice is not None and len(items) > 1:
        scores = [{"reward": float(number == choice)} for number in range(len(items))]
    if not any(scores):
        return []
    for column in (name, mark, "choice"):
        row.pop(column, None)
    about = [kept(item, "model", "source", "model_name", "finish_reason") for item in items]
    return list(zip((first_of(item, *REPLIES) for item in items), scores, about, strict=True))
