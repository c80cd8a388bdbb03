"""Several replies to one question in a row: pairs, groups with scores, and twins with a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from convbench.formats.columns import (
    DIALOGUES,
    INSIDE,
    Items,
    Row,
    as_items,
    dialogue,
    interleave,
    joined,
    named_scores,
    snake,
    twins,
    verdict,
)
from convbench.formats.dialects import as_list, as_mapping, as_number, parsed

PAIRS = (("chosen", "rejected"), ("preferred", "non_preferred"), ("accepted", "rejected"))
ENDINGS = ("", "_response", "_messages", "_conversations", "_output")
GROUPS = (
    *("completions", "answers", "responses", "candidates", "summaries", "generations", "outputs"),
)
SCORES = ("reward", "score", "rating", "overall_score", "rank", "label")
Candidate = tuple[Items, dict[str, float], dict[str, Any]]
"""(the whole dialogue, its scores, what else is said about it)."""


def candidates(row: Row, prompt: Items) -> Iterator[Candidate]:
    """Yield the replies of a row that has several, each as the whole dialogue with its scores;
    nothing for a row with one. The columns are taken."""
    pair = _pair_columns(row)
    base = next(twins(row), None)
    if pair is not None:
        yield from _pair(row, prompt, *pair)
    elif replaces_reply(row):
        name = next(f"rejected{end}" for end in ENDINGS[1:3] if f"rejected{end}" in row)
        yield from _rejected(row, prompt, name)
    elif base is not None:
        yield from _twins(row, prompt, *base)
    else:
        yield from _group(row, prompt)


def has_candidates(row: Row) -> bool:
    """Return whether a row has several replies to one question."""
    group = any(_replies(row, name) for name in GROUPS)
    pair = _pair_columns(row) is not None or replaces_reply(row)
    return group or pair or next(twins(row), None) is not None


def replaces_reply(row: Row) -> bool:
    """Return whether a row has one dialogue, and a worse reply in place of its last."""
    worse = any(f"rejected{end}" in row for end in ENDINGS[1:3])
    return worse and _pair_columns(row) is None


def _pair_columns(row: Row) -> tuple[str, str] | None:
    for better, worse in PAIRS:
        for end in ENDINGS:
            if f"{better}{end}" in row and f"{worse}{end}" in row:
                return f"{better}{end}", f"{worse}{end}"
    return None


def _pair(row: Row, prompt: Items, better: str, worse: str) -> Iterator[Candidate]:
    sides = row.take(better), row.take(worse)
    scores = [_side_score(row, name.partition("_")[0]) for name in (better, worse)]
    if None in scores:
        scores = [1.0, 0.0]
    for side, score in zip(sides, scores, strict=True):
        for reply in _each_reply(side):
            yield joined(prompt, as_items(reply, "assistant")), {"reward": score or 0.0}, {}


def _each_reply(side: Any) -> list[Any]:
    """Return the replies of one side: one, unless it is a list of texts."""
    value = parsed(side)
    several = isinstance(value, list) and all(isinstance(text, str) for text in value)
    return value if several else [side]


def _side_score(row: Row, side: str) -> float | None:
    names = (f"score_{side}", f"{side}_score", f"{side}_rating", f"{side}_reward", f"reward_{side}")
    return as_number(row.take(*names))


def _rejected(row: Row, prompt: Items, name: str) -> Iterator[Candidate]:
    """Yield a dialogue and the same with its last reply replaced by the rejected one."""
    column = next((d for d in DIALOGUES if d in row), None)
    chosen = dialogue(row.take(column), texts=True) if column else None
    value = row.take(name)
    if chosen is None:
        reply = row.take("response", "completion", "output")
        chosen = joined(prompt, as_items(reply, "assistant"))
    begin = len(chosen) - 1
    while begin > 0 and str(chosen[begin - 1].get("role", chosen[begin - 1].get("from"))) not in (
        *("user", "human", "tool", "tool_response", "observation"),
    ):
        begin -= 1
    yield chosen, {"reward": 1.0}, {}
    yield joined(chosen[:begin], as_items(value, "assistant")), {"reward": 0.0}, {}


def _twins(row: Row, prompt: Items, base: str, first: str, second: str) -> Iterator[Candidate]:
    rewards = verdict(row, base, first, second)
    for number, end in enumerate((first, second)):
        value = parsed(row.take(f"{base}{end}"))
        score = {} if rewards is None else {"reward": rewards[number]}
        asked = [item["content"] for item in prompt if item.get("role") == "user"]
        if isinstance(value, list) and value and all(isinstance(text, str) for text in value):
            asked = as_list(asked[0]) if len(asked) == 1 and as_list(asked[0]) else asked
            whole = interleave(asked[: len(value)], value[: len(asked)])
        else:
            whole = joined(prompt, as_items(value, "assistant"))
        yield whole, score, {"side": end.strip("_")}


def _replies(row: Row, name: str) -> list[Any]:
    """Return the replies in a column of several: objects with a reply and a score, or texts beside
    a column of as many scores."""
    values = as_list(row.look(name))
    if len(values) < 1 or dialogue(values) is not None:
        return []
    if all(isinstance(item, dict) and _reply_of(item) is not None for item in values):
        known = any(k in map(snake, item) for item in values for k in SCORES)
        return values if known or ("choice" in row and len(values) > 1) else []
    is_texts = all(isinstance(item, str) for item in values)
    return values if is_texts and len(values) > 1 and _parallel(row, len(values)) else []


def _reply_of(item: Mapping[str, Any]) -> Any:
    return next((item[k] for k in ("response", "answer", *INSIDE) if item.get(k) is not None), None)


def _parallel(row: Row, count: int) -> str | None:
    """Return the column of as many scores as there are replies."""
    for name in row.values:
        stems = ("ratings", "scores", "rewards", "labels", "correctness")
        if name.startswith(stems) and name in row:
            values = as_list(row.look(name))
            if len(values) == count and any(as_number(v) is not None for v in values):
                return name
    return None


def _group(row: Row, prompt: Items) -> Iterator[Candidate]:
    name = next((name for name in GROUPS if _replies(row, name)), None)
    if name is None:
        return
    values = as_list(row.look(name))
    column = _parallel(row, len(values))
    if name == "completions" and column == "labels":  # steps of one reply, each right or not
        row.take(name)
        marks = [as_number(mark) for mark in as_list(row.take(column))]
        whole = joined(prompt, as_items("\n".join(map(str, values)), "assistant"))
        yield whole, {"reward": float(all(marks))}, {}
        return
    row.take(name)
    marks = as_list(row.take(column)) if column else []
    best = as_number(row.take("choice")) if "choice" in row else None
    ends = as_list(row.look("finish_reasons"))
    for number, value in enumerate(values):
        scores, about = _scores_of(value)
        if marks and (mark := as_number(marks[number])) is not None:
            scores = {"reward": mark}
        if best is not None:
            scores = {"reward": float(number == best)}
        if number < len(ends):
            about["finish_reason"] = ends[number]
        reply = _reply_of(value) if isinstance(value, dict) else value
        yield joined(prompt, as_items(reply, "assistant")), scores, about


def _scores_of(value: Any) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the scores of a candidate by name, and the rest of its fields."""
    if not isinstance(value, dict):
        return {}, {}
    fields = {snake(name): item for name, item in value.items()}
    scores = {
        f"{name}.{part}": number
        for name, parts in as_mapping(fields.get("annotations")).items()
        for part, mark in as_mapping(parts).items()
        if (number := as_number(mark)) is not None and snake(part) == "rating"
    }
    rank = as_number(fields.get("rank"))
    main = next((n for k in SCORES[:4] if (n := as_number(fields.get(k))) is not None), None)
    if main is None and rank is not None:
        main = -rank  # the lower the better
    if main is None and (label := named_scores(fields.get("label"))):
        main = label.get("reward")
    about = {k: v for k, v in value.items() if snake(k) in ("model", "source", "model_name")}
    return scores | ({} if main is None else {"reward": main}), about
