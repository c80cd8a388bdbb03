"""The columns of a row of a set by their shape: tools, scores, several replies to one prompt.

Sets call one thing by a hundred names, so names are compared in snake_case, null, "" and [] are
absent, text that writes a list is that list, and whatever nobody takes is metadata.
"""

import re
from collections.abc import Mapping
from typing import Any

from convbench.formats import values
from convbench.formats.chats import DIALOGUES, dialogue_in
from convbench.formats.dialects import PERSONAL, wire_tools
from convbench.formats.values import as_list, as_mapping, as_number, at, first_of, named_scores

REPLIES = (
    *("completion", "response", "output", "outputs", "actual_output", "generation", "resps"),
    "result",
)
CANDIDATES = (*REPLIES, "answer", "text", "content", "message")  # of one reply of several
BETTER = (("chosen", "rejected"), ("preferred", "non_preferred"), ("accepted", "rejected"))
SIDES = (*BETTER, ("_a", "_b"), ("0", "1"), ("1", "2"))  # in names of columns of two replies
TWINS = ("", "conversation", "conversations", "messages", "summary", "human_ref", *CANDIDATES)
LISTS = ("completions", "answers", "responses", "candidates", "summaries", "generations", "outputs")
PARALLEL = ("ratings", "scores", "rewards", "labels", "correctness", "rank")
WORD = re.compile(
    r"(?:model_|response_|assistant_)?([ab])(?:>+[ab])?|(?:tie|both|draw|equal|a=b).*"
)
VERDICTS = {  # numbers that say that the first of two is better, and the second; beyond is a tie
    **dict.fromkeys(("overall_preference", "preference_strength"), (-3, 3)),
    **dict.fromkeys(("better_response_id", "choice", "chosen_index"), (0, 1)),
    **{"preference": (1, 2), "labels": (1, 0)},
}
SCORES = (
    *("reward", "rewards", "score", "scores", "rating", "metrics_data", "feedback_scores"),
    "feedback",
)
LABELS = ("label", "kto_tag", "resolved", "target", "passed", "success", "correct", "feedback")
WORDS = dict.fromkeys(("positive", "up", "thumbs_up", "like", "good"), 1.0)
WORDS |= dict.fromkeys(("negative", "down", "thumbs_down", "dislike", "bad"), 0.0)
TOOLS = ("tools", "functions", "xml_tools", "python_tools")
Row = dict[str, Any]  # columns by their names in snake_case, without those that were taken


def snake(name: object) -> str:
    """Return a name in snake_case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s\-.]+", "_", str(name)).lower()


def columns(record: Mapping[str, Any]) -> Row:
    """Return the columns of a row that hold something; of two of one name the first."""
    row: Row = {}
    for name, value in values.without_nulls(record).items():
        if value not in ("", [], {}) and snake(name) not in PERSONAL:
            row.setdefault(snake(name), value)
    return row


def take(row: Row, *names: str) -> Any:
    """Take the first of these columns that is there; None without one."""
    return next((row.pop(name) for name in names if name in row), None)


def _take_numbers(row: Row, *names: str) -> list[float]:
    """Take these columns if all of them hold numbers."""
    are_there = all(as_number(row.get(name)) is not None for name in names)
    return [as_number(row.pop(name)) or 0.0 for name in names] if are_there else []


def take_tools(row: Row) -> Any:
    """Take the tools that were offered: of the row, its input, its settings or a message."""
    places = [row, as_mapping(row.get("input")), as_mapping(row.get("chat_template_kwargs"))]
    places += [as_mapping(item) for value in row.values() for item in as_list(value)[:2]]
    found = ((place, name) for place in places for name in TOOLS if wire_tools(place.get(name)))
    return next((place.pop(name) for place, name in found), None)


def take_rewards(row: Row) -> dict[str, float]:
    """Take the scores of a row or reply by name, the reward from the first place that has one; not
    rescaled, but of a rank, the lower the better."""
    aspects = as_mapping(row.get("annotations"))
    scores = named_scores({f"{name}.Rating": at(v, "Rating") for name, v in aspects.items()})
    ends = [name for name in row if name.endswith(("_reward", "_score"))]
    ends = [name for name in ends if name.startswith("overall")] or ends
    for name in (*SCORES, *(ends if len(ends) == 1 else ())):
        if found := named_scores(row.get(name)):
            row.pop(name)
            return scores | found
    for name in LABELS:
        value = row.get(name)
        number = WORDS.get(snake(value), as_number(value))
        if number in (0, 1) and (name != "target" or isinstance(value, bool)):
            row.pop(name)
            return scores | {"reward": float(number or 0)}
    rank = _take_numbers(row, "rank")
    return scores | ({"reward": -rank[0]} if rank else {})


def take_replies(row: Row) -> list[Row]:
    """Take the replies of a row that has several to one prompt, or one in steps, each as a row of
    its own with its scores; none of any other row."""
    for one, two in SIDES:
        for name in (name for name in row if one in name and name.replace(one, two) in row):
            if name.replace(one, "").strip("_") in TWINS:
                return _take_two(row, name, one, two)
    if rejected := take(row, "rejected_response", "rejected_messages"):
        dialogues = (row[name] for name in DIALOGUES if dialogue_in(row.get(name)))
        chosen = next(dialogues, None) or take(row, *REPLIES)
        return [{"text": chosen, "reward": 1.0}, {"text": rejected, "reward": 0.0}]
    if "steps" in row and (wrong := _take_numbers(row, "label")):  # the place of the first wrong
        reply = "\n\n".join(map(str, as_list(row.pop("steps"))))
        return [{"text": reply, "reward": float(wrong[0] < 0)}]
    if steps := as_list(at(row, "label", "steps")):
        return _tree(steps)
    return next((found for name in LISTS if (found := _take_list(row, name))), [])


def _take_two(row: Row, name: str, one: str, two: str) -> list[Row]:
    is_pair, replies = (one, two) in BETTER, [row.pop(name), row.pop(name.replace(one, two))]
    names = [name for name in row if one in name and re.search("score|rating|reward", name)]
    scores = (_take_numbers(row, name, name.replace(one, two)) for name in names)
    rewards = next(filter(None, scores), None) or ([1.0, 0.0] if is_pair else _verdict(row))
    out: list[Row] = []
    for side, value, reward in zip((one, two), replies, rewards or (None, None), strict=True):
        several = is_pair and isinstance(value, list) and all(isinstance(v, str) for v in value)
        about = {"reward": reward, "side": None if is_pair else side.strip("_")}
        out += [values.without_nulls({"text": v, **about}) for v in (value if several else [value])]
    return out


def _verdict(row: Row) -> list[float]:
    """Take which of two replies is better, as their rewards; none if it is not said."""
    for name in ("winner", "label", "preference", "better", "labels"):
        if word := WORD.fullmatch(str(row.get(name)).lower().strip()):
            row.pop(name)
            return {"a": [1.0, 0.0], "b": [0.0, 1.0]}.get(word[1], [0.5, 0.5])
    for name, ends in VERDICTS.items():
        for number in _take_numbers(row, name):
            first, second = (abs(number - end) for end in ends)
            if first == second or not min(ends) <= number <= max(ends):
                return [0.5, 0.5]
            return [float(first < second), float(second < first)]
    if hot := _take_numbers(row, "winner_model_a", "winner_model_b"):
        row.pop("winner_tie", None)
    return hot if any(hot) or not hot else [0.5, 0.5]


def _tree(steps: list[Any]) -> list[Row]:
    """Return the begun replies of a tree of steps, of which one each goes on: those that end with
    another or with the last, with its rating."""
    out: list[Row] = []
    before = ""
    for number, step in enumerate(steps, 1):
        tried: Any = at(step, "completions")
        goes_on = at(step, "human_completion") or at(tried, at(step, "chosen_completion"))
        for item in as_list(tried):
            if item is not goes_on or number == len(steps):
                out.append({"text": f"{before}{at(item, 'text')}", "score": at(item, "rating")})
        before += f"{at(goes_on, 'text')}\n"
    return out


def _take_list(row: Row, name: str) -> list[Row]:
    """Take the replies in a column of several: objects with a reply and a score, or texts beside a
    column of as many scores."""
    replies, choice = as_list(row.get(name)), as_number(row.get("choice"))
    items = [columns(item) if isinstance(item, dict) else {"text": item} for item in replies]
    if dialogue_in(replies) or any(first_of(item, *CANDIDATES) is None for item in items):
        return []
    marks = [n for n in row if n.startswith(PARALLEL) and len(as_list(row[n])) == len(items) > 1]
    if name == "completions" and "labels" in marks:  # steps of one reply, each right or not
        right = all(map(as_number, as_list(row.pop("labels"))))
        return [{"text": "\n".join(row.pop(name)), "reward": float(right)}]
    fields = {"rank" if mark.startswith("rank") else "score": row[mark] for mark in marks[:1]}
    fields["finish_reason"] = row.get("finish_reasons")
    if choice is not None and len(items) > 1:
        fields["score"] = [number == choice for number in range(len(items))]
    for field, column in fields.items():
        for item, value in zip(items, as_list(column), strict=False):
            item |= values.without_nulls({field: value})
    if not any(take_rewards(dict(item)) for item in items):
        return []
    for column in (name, *marks[:1], "choice"):
        row.pop(column, None)
    return items
