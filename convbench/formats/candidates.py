"""Several replies to one question in a row: pairs, groups with scores, and twins with a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.chats import DIALOGUES, interleave, is_dialogue, joined, read_dialogue
from convbench.formats.columns import Row, named_scores, snake, spoken, take_verdict, twins
from convbench.formats.log import LogMessage
from convbench.formats.values import as_list, as_mapping, as_number, first_of

PAIRS = (("chosen", "rejected"), ("preferred", "non_preferred"), ("accepted", "rejected"))
ENDINGS = ("", "_response", "_messages", "_conversations", "_output")
GROUPS = (
    *("completions", "answers", "responses", "candidates", "summaries", "generations", "outputs"),
)
PARALLEL = ("ratings", "scores", "rewards", "labels", "correctness", "rank")
"""How columns begin that hold a score for each reply of a list."""
SCORES = ("reward", "score", "rating", "overall_score")
REPLIES = ("response", "answer", "completion", "output", "text", "content", "message")
"""Keys under which a candidate holds its reply."""
Messages = list[LogMessage]
Candidate = tuple[Messages, dict[str, float], dict[str, Any]]
"""(the whole dialogue, its scores, what else is said about it)."""


def has_candidates(row: Row) -> bool:
    """Return whether a row has several replies to one question."""
    group = any(_replies(row, name) for name in GROUPS)
    return group or bool(_pair_columns(row) or rejected_column(row) or next(twins(row), None))


def candidates(row: Row, prompt: Messages) -> Iterator[Candidate]:
    """Yield the replies of a row that has several, each as the whole dialogue with its scores. The
    columns are taken."""
    pair, worse, base = _pair_columns(row), rejected_column(row), next(twins(row), None)
    if pair is not None:
        yield from _pair(row, prompt, *pair)
    elif worse is not None:
        yield from _rejected(row, prompt, worse)
    elif base is not None:
        yield from _twins(row, prompt, *base)
    else:
        yield from _group(row, prompt)


def _pair_columns(row: Row) -> tuple[str, str] | None:
    names = [(f"{a}{end}", f"{b}{end}") for a, b in PAIRS for end in ENDINGS]
    return next(((a, b) for a, b in names if a in row and b in row), None)


def rejected_column(row: Row) -> str | None:
    """Return the column of a worse reply in place of the last of the row's only dialogue."""
    return None if _pair_columns(row) else row.first("rejected_response", "rejected_messages")


def _pair(row: Row, prompt: Messages, better: str, worse: str) -> Iterator[Candidate]:
    sides = [name.partition("_")[0] for name in (better, worse)]
    scores = next((found for s in zip(*map(_score_columns, sides), strict=True)
                   if (found := row.take_numbers(*s))), [1.0, 0.0])  # fmt: skip
    for name, score in zip((better, worse), scores, strict=True):
        value = row.take(name)
        several = isinstance(value, list) and all(isinstance(text, str) for text in value)
        for reply in value if several else [value]:
            yield joined(prompt, spoken(reply, "assistant")), {"reward": score}, {}


def _score_columns(side: str) -> list[str]:
    return [f"score_{side}", f"{side}_score", f"{side}_rating", f"{side}_reward", f"reward_{side}"]


def _rejected(row: Row, prompt: Messages, name: str) -> Iterator[Candidate]:
    """Yield a dialogue and the same with its last reply replaced by the rejected one."""
    column = row.first(*DIALOGUES)
    if column is not None:
        chosen = read_dialogue(row.take(column))
    else:
        reply = spoken(row.take("response", "completion", "output"), "assistant")
        chosen = joined(prompt, reply)
    begin = len(chosen)
    while begin > 0 and chosen[begin - 1].role == "assistant":
        begin -= 1
    yield chosen, {"reward": 1.0}, {}
    yield joined(chosen[:begin], spoken(row.take(name), "assistant")), {"reward": 0.0}, {}


def _twins(row: Row, prompt: Messages, base: str, first: str, second: str) -> Iterator[Candidate]:
    rewards = take_verdict(row, base, first, second)
    for number, end in enumerate((first, second)):
        value = row.take(f"{base}{end}")
        score = {} if rewards is None else {"reward": rewards[number]}
        texts = as_list(value)
        if texts and all(isinstance(text, str) for text in texts):  # one a turn
            asked = [m.text for m in prompt if m.role == "user"]
            asked = as_list(asked[0]) or asked if len(asked) == 1 else asked
            whole = interleave(list(zip(asked, texts, strict=False)))
        else:
            whole = joined(prompt, spoken(value, "assistant"))
        yield whole, score, {"side": end.strip("_")}


def _replies(row: Row, name: str) -> list[Any]:
    """Return the replies in a column of several: objects with a reply and a score, or texts beside
    a column of as many scores."""
    values = as_list(row.look(name))
    if not values or is_dialogue(values):
        return []
    if all(isinstance(item, dict) and first_of(item, *REPLIES) is not None for item in values):
        names = {snake(key) for item in values for key in item}
        known = names & {*SCORES, "rank", "label"}
        return values if known or ("choice" in row and len(values) > 1) else []
    is_texts = all(isinstance(item, str) for item in values) and len(values) > 1
    return values if is_texts and _parallel(row, len(values)) else []


def _parallel(row: Row, count: int) -> str | None:
    """Return the column of as many scores as there are replies."""
    for name in (name for name in row.values if name.startswith(PARALLEL)):
        values = as_list(row.look(name))
        if len(values) == count and any(as_number(value) is not None for value in values):
            return name
    return None


def _group(row: Row, prompt: Messages) -> Iterator[Candidate]:
    name = next(name for name in GROUPS if _replies(row, name))
    column = _parallel(row, len(_replies(row, name)))
    values = as_list(row.take(name))
    marks = as_list(row.take(column)) if column else []
    if name == "completions" and column == "labels":  # steps of one reply, each right or not
        whole = joined(prompt, spoken("\n".join(map(str, values)), "assistant"))
        yield whole, {"reward": float(all(as_number(mark) for mark in marks))}, {}
        return
    best, ends = as_number(row.take("choice")), as_list(row.look("finish_reasons"))
    for number, value in enumerate(values):
        scores, about = _scores_of(value) if isinstance(value, dict) else ({}, {})
        mark = as_number(marks[number]) if marks else None
        if mark is not None:  # the lower a rank, the better
            scores["reward"] = -mark if str(column).startswith("rank") else mark
        if best is not None:
            scores = {"reward": float(number == best)}
        if number < len(ends):
            about["finish_reason"] = ends[number]
        reply = first_of(value, *REPLIES) if isinstance(value, dict) else value
        yield joined(prompt, spoken(reply, "assistant")), scores, about


def _scores_of(value: dict[str, Any]) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the scores of a candidate by name, and the rest of its fields."""
    fields = {snake(name): item for name, item in value.items()}
    scores = {
        f"{name}.{part}": number
        for name, parts in as_mapping(fields.get("annotations")).items()
        for part, mark in as_mapping(parts).items()
        if (number := as_number(mark)) is not None and snake(part) == "rating"
    }
    numbers = [as_number(fields.get(name)) for name in SCORES]
    main = next((number for number in numbers if number is not None), None)
    rank = as_number(fields.get("rank"))
    if main is None and rank is not None:
        main = -rank  # the lower the better
    if main is None:
        main = named_scores(fields.get("label")).get("reward")
    about = {k: v for k, v in value.items() if snake(k) in ("model", "source", "model_name")}
    return scores | ({} if main is None else {"reward": main}), about
