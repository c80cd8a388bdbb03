"""Rows of any chat, preference or question set, ours too, read by their shape. Sets call one thing
by a hundred names: they are compared in snake_case. Null, "" and [] are absent, text that writes a
list is that list, and whatever nobody takes is metadata."""

import hashlib
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import takewhile
from typing import Any

import orjson

from convbench.formats import chats, values
from convbench.formats.chats import DIALOGUES, SYSTEMS, are_calls, dialogue_in, read_dialogue
from convbench.formats.dialects import PERSONAL, text_in, wire_tools
from convbench.formats.log import LeftOut, LogConversation, LogMessage, Role
from convbench.formats.values import as_list, as_mapping, as_number, at, first_of, named_scores

TOOLS = ("tools", "functions", "xml_tools", "python_tools")
PROMPTS = ["prompt", "question", "instruction", "query", "problem", "input", "inputs", "contents"]
PROMPTS += ["request", "arguments"]
REPLIES = ["completion", "response", "output", "outputs", "actual_output", "generation", "resps"]
REPLIES += ["result"]
REFERENCES = ("target", "targets", "solution")  # a reply if there is no other, nor options
HIDDEN = (*REFERENCES, "ground_truth", "reference", "expected_output", "reward_model", "answer")
CANDIDATES = (*REPLIES, "answer", "text", "content", "message")  # of one reply of several
BETTER = (("chosen", "rejected"), ("preferred", "non_preferred"), ("accepted", "rejected"))
SIDES = (*BETTER, ("_a", "_b"), ("0", "1"), ("1", "2"))  # in names of columns of two replies
TWINS = ("conversation", "conversations", "messages", "summary", "human_ref", *REPLIES, "answer")
LISTS = ("completions", "answers", "responses", "candidates", "summaries", "generations", "outputs")
PARALLEL = ("rating", "score", "reward", "label", "correctness", "rank", "finish_reason")
WORD = re.compile(r"(?:\w+_)?([ab])(?:>+[ab])?|(?:tie|both|draw|equal|a=b).*")
VERDICTS = dict.fromkeys(("overall_preference", "preference_strength"), (-3, 3))
VERDICTS |= dict.fromkeys(("better_response_id", "choice", "chosen_index"), (0, 1))
VERDICTS |= {"preference": (1, 2), "labels": (1, 0)}  # numbers if the first is better, the second
SCORES = ("reward", "rewards", "score", "scores", "rating", "metrics_data", "feedback_scores")
LABELS = ("label", "kto_tag", "resolved", "target", "passed", "success", "correct", "feedback")
WORDS = dict.fromkeys(("positive", "up", "thumbs_up", "like", "good"), 1.0)
WORDS |= dict.fromkeys(("negative", "down", "thumbs_down", "dislike", "bad"), 0.0)
TIMES = ("timestamp", "created_at", "created", "time", "date", "tstamp")
Row = dict[str, Any]  # columns by their names in snake_case, without those that were taken


def recognises(first: object) -> bool:
    """An object with a dialogue or a prompt."""
    row = _columns(first) if isinstance(first, dict) else {}
    is_dialogue = any(dialogue_in(row.get(name), texts=True) for name in DIALOGUES)
    return is_dialogue or not row.keys().isdisjoint((*PROMPTS, "info", "text"))


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the conversations of a row."""
    row = _columns(record)
    system = text_in(_take(row, *SYSTEMS) or at(row, "chat_template_kwargs", "custom_instructions"))
    tools, replies = _take_tools(row), _take_replies(row)
    dialogues = [name for name in DIALOGUES if dialogue_in(row.get(name), texts=True)]
    talk = read_dialogue(row.pop(dialogues[0]), texts=True) if dialogues else []
    if replies:
        prompt = [] if talk and talk[-1].role == "user" else _take_prompt(row)
        while talk and talk[-1].role == "assistant":  # it is one of them
            talk.pop()
        texts = [_take(reply, *CANDIDATES) for reply in replies]
        found = [_answered(deepcopy(prompt or talk), text) for text in texts]
        if any(all(message.role == "assistant" for message in messages) for messages in found):
            raise LeftOut("several replies to no prompt")
    else:
        found = [talk or _take_exchange(row)]
    rewards = [_take_rewards(scored) for scored in replies or [row]]
    log = replace(_about(row, record), tools=tools)
    if len(found) > 1 and log.task is None:
        said = ([{"content": m.text, "role": m.role} for m in messages] for messages in found)
        same = takewhile(lambda some: all(m == some[0] for m in some), zip(*said, strict=False))
        log.task = hashlib.sha256(orjson.dumps([some[0] for some in same])).hexdigest()[:16]
    for messages, scores, more in zip(found, rewards, replies or [{}], strict=True):
        messages[-1].finish = more.pop("finish_reason", None) or messages[-1].finish
        if system and all(message.role != "system" for message in messages):
            messages = [LogMessage("system", system), *messages]
        yield replace(log, messages=messages, rewards=scores, metadata=log.metadata | more)


def _columns(record: Row) -> Row:
    items = values.without_nulls(record).items()
    row = {_snake(name): value for name, value in items if value not in ("", [], {})}
    return {name: value for name, value in row.items() if name not in PERSONAL}


def _snake(name: object) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s\-.]+", "_", str(name)).lower()


def _take(row: Row, *names: str) -> Any:
    return next((row.pop(name) for name in names if name in row), None)


def _take_numbers(row: Row, *names: str) -> list[float]:
    are_there = all(as_number(row.get(name)) is not None for name in names)
    return [as_number(row.pop(name)) or 0.0 for name in names] if are_there else []


def _take_tools(row: Row) -> Any:
    places = [row, as_mapping(row.get("input")), as_mapping(row.get("chat_template_kwargs"))]
    places += [as_mapping(item) for value in row.values() for item in as_list(value)[:2]]
    found = ((place, name) for place in places for name in TOOLS if wire_tools(place.get(name)))
    return next((place.pop(name) for place, name in found), None)


def _take_exchange(row: Row) -> list[LogMessage]:
    answers = as_list(row.get("answers"))  # several, as references or samples, unless calls
    names = [*REPLIES, *(["answers"] if not answers or are_calls(answers) else [])]
    if row.keys().isdisjoint(("choices", "endings", "options")):
        names += [*REFERENCES, "answer"]
    prompt = _take_prompt(row)
    said = (name for name in names if isinstance(row.get(name), str | list | dict))
    if prompt and (reply := next(said, None)):
        return _answered(prompt, row.pop(reply))
    if marked := [name for name in ("text", "completion") if dialogue_in(row.get(name))]:
        return read_dialogue(row.pop(marked[0]))
    if any(message.role == "assistant" for message in prompt):
        return prompt
    expected = "messages; prompt, completion; prompt, chosen, rejected; or --map messages=FIELD"
    found = f"found columns {', '.join(row)[:160]}; expected {expected}"
    raise LeftOut("a question without a reply" if prompt else found)


def _take_prompt(row: Row) -> list[LogMessage]:
    before = _spoken(row.pop("history", []), "user")
    is_instruction = row.keys().isdisjoint(PROMPTS[:2])
    names = ["context", *PROMPTS] if dialogue_in(as_list(row.get("context"))) else PROMPTS
    value = _take(row, *names) or at(row, "info", "post")
    inside = as_mapping(value)
    if "messages" in inside:
        row |= {key: more for key, more in inside.items() if key not in ("messages", "tools")}
    if isinstance(value, str):
        more = [_take(row, "input") if is_instruction else None, _take(row, "context")]
        value = "\n\n".join(text for text in (value, *more) if isinstance(text, str))
    return before + _spoken(value, "user")


def _answered(prompt: list[LogMessage], value: Any) -> list[LogMessage]:
    # a list of texts may answer a list of questions, one each
    texts, asked = as_list(value), [message.text for message in prompt if message.role == "user"]
    inside = as_list(asked[0]) if len(asked) == 1 else []
    asked = inside or (asked if isinstance(value, list) else [])
    if len(texts) == len(asked) > 0 and all(isinstance(text, str) for text in texts):
        system = [message for message in prompt if message.role == "system"]
        return system + read_dialogue([list(pair) for pair in zip(asked, texts, strict=True)])
    return chats.joined(prompt, _spoken(value, "assistant"))


def _spoken(value: Any, role: Role) -> list[LogMessage]:
    # a text is what was said, also one that is JSON, unless that is a dialogue or calls of tools
    if isinstance(value, str) and not (dialogue_in(value) or are_calls(value)):
        return [LogMessage(role, value)]
    return chats.read_chat(value, role)


def _take_replies(row: Row) -> list[Row]:
    """Take several replies, or one in steps, each as a row of its own with its scores."""
    for one, two in SIDES:
        for name in (name for name in row if one in name and name.replace(one, two) in row):
            if name.replace(one, "").strip("_") in ("", *TWINS):
                return _take_two(row, name, one, two)
    if rejected := _take(row, "rejected_response", "rejected_messages"):
        dialogues = (row[name] for name in DIALOGUES if dialogue_in(row.get(name)))
        chosen = next(dialogues, None) or _take(row, *REPLIES)
        return [{"text": chosen, "reward": 1.0}, {"text": rejected, "reward": 0.0}]
    if "steps" in row and (wrong := _take_numbers(row, "label")):  # the place of the first wrong
        reply = "\n\n".join(map(str, as_list(row.pop("steps"))))
        return [{"text": reply, "reward": float(wrong[0] < 0)}]
    if steps := as_list(at(row, "label", "steps")):
        return _tree(steps)
    return next((found for name in LISTS if (found := _take_list(row, name))), [])


def _take_two(row: Row, name: str, one: str, two: str) -> list[Row]:
    is_pair, replies = (one, two) in BETTER, [row.pop(name), row.pop(name.replace(one, two))]
    names = [n for n in row if one in n and re.search("score|rating|reward|winner", n)]
    scores = (_take_numbers(row, name, name.replace(one, two)) for name in names)
    rewards = next(filter(None, scores), None) or ([1.0, 0.0] if is_pair else _verdict(row))
    out: list[Row] = []
    for side, value, reward in zip((one, two), replies, rewards or (None, None), strict=True):
        several = is_pair and isinstance(value, list) and all(isinstance(v, str) for v in value)
        about = {"reward": reward, "side": None if is_pair else side.strip("_")}
        out += [values.without_nulls({"text": v, **about}) for v in (value if several else [value])]
    return out


def _verdict(row: Row) -> list[float]:
    for name in ("winner", "label", "preference", "better", "labels"):
        if word := WORD.fullmatch(str(row.get(name)).lower().strip()):
            row.pop(name)
            return {"a": [1.0, 0.0], "b": [0.0, 1.0]}.get(word[1], [0.5, 0.5])
    for name, ends in VERDICTS.items():
        for number in _take_numbers(row, name):
            first, second = (abs(number - end) for end in ends)
            is_tie = first == second or not min(ends) <= number <= max(ends)
            return [0.5, 0.5] if is_tie else [float(first < second), float(second < first)]
    return []


def _tree(steps: list[Any]) -> list[Row]:
    """Return the replies that a tree of steps begins: one step of each goes on, others end one."""
    out, before = [], ""
    for number, step in enumerate(steps, 1):
        tried, place = at(step, "completions"), at(step, "chosen_completion")
        goes_on = at(step, "human_completion") or at(tried, place)
        for item in as_list(tried):
            if item is not goes_on or number == len(steps):
                out.append({"text": f"{before}{at(item, 'text')}", "score": at(item, "rating")})
        before += f"{at(goes_on, 'text')}\n"
    return out


def _take_list(row: Row, name: str) -> list[Row]:
    """Take objects with a reply and a score, or texts beside columns with a score of each."""
    replies, choice = as_list(row.get(name)), as_number(row.get("choice"))
    items = [_columns(item) if isinstance(item, dict) else {"text": item} for item in replies]
    if dialogue_in(replies) or any(first_of(item, *CANDIDATES) is None for item in items):
        return []
    beside = [n for n in row if n.startswith(PARALLEL) and len(as_list(row[n])) == len(items) > 1]
    if name == "completions" and "labels" in beside:  # steps of one reply, each right or not
        right = all(map(as_number, as_list(row.pop("labels"))))
        return [{"text": "\n".join(row.pop(name)), "reward": float(right)}]
    fields = {f: column for f in PARALLEL for column in reversed(beside) if column.startswith(f)}
    for number, item in enumerate(items):
        own = {field: as_list(row[column])[number] for field, column in fields.items()}
        own |= {} if choice is None or len(items) < 2 else {"reward": number == choice}
        item |= values.without_nulls(own)
    if not any(_take_rewards(dict(item)) for item in items):
        return []
    for column in (*fields.values(), name, "choice"):
        row.pop(column, None)
    return items


def _take_rewards(row: Row) -> dict[str, float]:
    """Take scores by name, the reward from the first place that has one; not rescaled."""
    aspects = as_mapping(row.get("annotations"))
    scores = named_scores({f"{name}.Rating": at(v, "Rating") for name, v in aspects.items()})
    ends = [name for name in row if name.endswith(("_reward", "_score"))]
    ends = [name for name in ends if name.startswith("overall")] or ends
    for name in (*SCORES, "feedback", *(ends if len(ends) == 1 else ())):
        if found := named_scores(row.get(name)):
            row.pop(name)
            return scores | found
    for name in (*LABELS, "correctness"):
        value = row.get(name)
        number = WORDS.get(_snake(value), as_number(value))
        if number in (0, 1) and (name != "target" or isinstance(value, bool)):
            row.pop(name)
            return scores | {"reward": float(number or 0)}
    rank = _take_numbers(row, "rank")  # the lower the better
    return scores | ({"reward": -rank[0]} if rank else {})


def _about(row: Row, record: Any) -> LogConversation:
    answer = row.pop("answer") if isinstance(row.get("answer"), str | int | float) else None
    target = _take(row, *(name for name in HIDDEN if not isinstance(row.get(name), bool)))
    choices = at(row, "choices", "text") or row.get("choices")
    if isinstance(choices, list) and all(isinstance(item, str) for item in choices):
        row.pop("choices")
    else:
        choices = []
    metadata, times = as_mapping(record.get("metadata")), map(values.as_time, map(row.get, TIMES))
    log = LogConversation(
        task=_take(row, "example_id", "task_id", "prompt_id", "instance_id"),
        group=_take(row, "group", "group_id"),
        choices=choices,
        answer=None if answer is None else str(answer),
        hidden=({} if target is None else {"reference": target}) | as_mapping(_take(row, "hidden")),
        **{name: row.pop(name, None) for name in ("split", "temperature", "question")},
        time=next(filter(None, times), None),
    )
    if "episode" in row:  # an export writes an episode a row, each with all before it
        log.id = "/".join(str(row[n]) for n in ("run_id", "trial_name", "task") if n in row)
    if metadata:
        row.pop("metadata", None)
    rest = {str(name): row.pop(_snake(name)) for name in record if _snake(name) in row}
    log.metadata = rest | row | metadata
    log.dropped["personal columns, not kept"] = sum(_snake(name) in PERSONAL for name in record)
    return log
