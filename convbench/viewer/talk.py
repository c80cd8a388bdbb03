"""Return a conversation for the page: turns, verdicts, others about its question, prompts, and the
model calls behind each turn with request, retries and reply.

A request is rebuilt from the record as the run built it; the journal's hash of model, sampling and
messages shows whether it is the same.
"""
# ruff: noqa: S608 - the SQL is made of names of our own

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from convbench.answers.tags import leaves_open, split_segments
from convbench.engine.journal import call_hash, dump_noun, iter_calls
from convbench.errors import RunError
from convbench.rollout.recorded_calls import ModelCall, conversation_calls
from convbench.sandbox.page import html_of
from convbench.schema import (
    Content,
    Conversation,
    Example,
    ImagePart,
    JudgeSpec,
    Message,
    Reasoning,
    RedactedBlock,
    TextPart,
    ToolRound,
    Turn,
    text_of,
)
from convbench.store import Run
from convbench.viewer.filters import SHOWN, finite_row, reward_lists
from convbench.viewer.index import ViewIndex
from convbench.viewer.markup import markdown_tree
from convbench.views import messages_before

MOST_BESIDE = 60
"""Largest number of conversations about one question that are listed with it."""


def talk_json(index: ViewIndex, conversation_id: str) -> dict[str, Any]:
    """Return everything that the page shows of one conversation, without the prompts.

    Raises RunError if there is no conversation of this id.
    """
    conversation = talks_json(index, [conversation_id])[0]
    return {**conversation, "beside": sibling_rows(index, conversation["row"]["q"])}


def talks_json(index: ViewIndex, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return these conversations, in this order, with the keys row, run, question, reference,
    pages, turns and verdicts.

    `reference` has the hidden fields, `pages` the names of those that are HTML pages. Raise
    RunError for an unknown id.
    """
    for name in names:
        index.locate_conversation(name)
    marks = ", ".join("?" * len(names))
    rows = index.query_rows(
        f"SELECT {SHOWN}{reward_lists(index)}, failure, thinking "
        f"FROM conversations WHERE conversation_id IN ({marks})",
        names,
    )
    rows_by_key = {(row["run_no"], row["conversation_id"]): finite_row(row) for row in rows}
    judged = verdicts_json(index, names)
    credit = _turn_credit(index, names)
    out = []
    for name in names:
        run, conversation, example = index.read_conversation(name)
        key = (index.locate_conversation(name)["run_no"], name)
        out.append(
            {
                "row": rows_by_key[key],
                "run": str(run.path),
                "question": _question_json(example),
                "reference": _reference_fields(example),
                "pages": [
                    k for k, v in _reference_fields(example).items() if _value_html(v) is not None
                ],
                "turns": _turns_json(run, key[0], conversation, credit.get(key, {})),
                "verdicts": judged.get(key, []),
            }
        )
    return out


def page_html(index: ViewIndex, conversation_id: str, page_name: str) -> str:
    """Return the HTML page in a turn (`page_name` is its index) or in a field of the reference
    (`reference.FIELD`). Raises RunError if there is none."""
    _, conversation, example = index.read_conversation(conversation_id)
    html = None
    if page_name.isascii() and page_name.isdecimal() and int(page_name) < len(conversation.turns):
        html = html_of(text_of(conversation.turns[int(page_name)].content))
    elif page_name.startswith("reference."):
        html = _value_html(_reference_fields(example).get(page_name.removeprefix("reference.")))
    if html is None:
        raise RunError(f"{conversation_id}: {page_name:.80}: found no page")
    return html


def _value_html(value: Any) -> str | None:
    return html_of(value) if isinstance(value, str) else None


def _reference_fields(example: Example) -> dict[str, Any]:
    """Return the hidden fields of a question, the gold answer first."""
    rest = {name: value for name, value in example.hidden.items() if name != "answer"}
    return {"answer": example.answer, **rest}


def _question_json(example: Example) -> dict[str, Any]:
    return {
        "example_id": example.example_id,
        "group_id": example.group_id,
        "text": example.question,
        "choices": [choice.model_dump() for choice in example.choices],
        "inputs": example.inputs,
    }


def _turn_credit(index: ViewIndex, names: Sequence[str]) -> dict[tuple[int, str], dict[int, float]]:
    """Return the advantages of turns by (run number, conversation_id), then by turn index."""
    marks = ", ".join("?" * len(names))
    rows = index.query_rows(
        "SELECT run_no, conversation_id, turn_index, arg_max(advantage, rowid) AS advantage FROM "
        f"raw.advantages WHERE conversation_id IN ({marks}) GROUP BY ALL",
        names,
    )
    credit: dict[tuple[int, str], dict[int, float]] = {}
    for row in rows:
        key = (row["run_no"], row["conversation_id"])
        credit.setdefault(key, {})[row["turn_index"]] = row["advantage"]
    return credit


def _turns_json(
    run: Run, number: int, conversation: Conversation, credit: Mapping[int, float]
) -> list[dict[str, Any]]:
    policy = run.manifest.protocol.policy
    policy_texts: list[str] = []
    out = []
    for turn_index, turn in enumerate(conversation.turns):
        own = turn.speaker == policy
        thinks = turn.reasoning
        out.append(
            {
                "index": turn_index,
                "speaker": turn.speaker,
                "policy": own,
                "step": turn.step,
                "instruction": turn.instruction,
                "finish": turn.finish_reason,
                "asked": turn.is_of_model,
                "tokens": turn.completion_tokens,
                "advantage": credit.get(turn_index),
                "page": html_of(text_of(turn.content)) is not None,
                "reasoning": None if thinks is None else _reasoning_json(thinks),
                "rounds": [_round_json(tool_round) for tool_round in turn.rounds],
                "parts": _policy_parts(turn, number, leaves_open(policy_texts))
                if own
                else content_parts(turn.content, number, rendered=True),
            }
        )
        policy_texts += [text_of(turn.content)] if own else []
    return out


def _round_json(tool_round: ToolRound) -> dict[str, Any]:
    """Return a round of tool calls, each call with its result."""
    results = {result.id: result for result in tool_round.results}
    return {
        "text": tool_round.content,
        "reasoning": None
        if tool_round.reasoning is None
        else _reasoning_json(tool_round.reasoning),
        "calls": [
            {
                "name": call.name,
                "arguments": call.arguments,
                "result": results[call.id].content if call.id in results else None,
                "error": call.id in results and results[call.id].error,
            }
            for call in tool_round.calls
        ],
    }


def _reasoning_json(reasoning: Reasoning) -> dict[str, Any]:
    """Return the reasoning of a turn: text, tokens, and the number of redacted blocks."""
    hidden = sum(isinstance(block, RedactedBlock) for block in reasoning.blocks)
    return {"text": reasoning.text, "tokens": reasoning.tokens, "hidden": hidden}


def _policy_parts(turn: Turn, number: int, carried: bool) -> list[dict[str, Any]]:
    if not isinstance(turn.content, str):
        return content_parts(turn.content, number, rendered=True)
    pieces = [
        (thinking, turn.content[start:stop])
        for thinking, start, stop in split_segments(turn.content, carried)
    ]
    return [
        {"think" if thought else "text": text, **as_markup(text)}
        for thought, text in pieces
        if text.strip()
    ]


def as_markup(text: str) -> dict[str, Any]:
    """Return the Markdown elements of a text under the key `tree`; an empty mapping if
    `markdown_tree` gives None."""
    elements = markdown_tree(text)
    return {} if elements is None else {"tree": elements}


def content_parts(content: Content, number: int, *, rendered: bool = False) -> list[dict[str, Any]]:
    """Return text as `text`, with the Markdown as `tree` if `rendered` and it has some, and images
    as `image`, an address; an item for each part.

    `number` is that of the run in the index.
    """
    if isinstance(content, str):
        return [{"text": content, **(as_markup(content) if rendered else {})}]
    return [
        {"text": part.text, **(as_markup(part.text) if rendered else {})}
        if isinstance(part, TextPart)
        else {"image": f"media/{number}/{part.file}"}
        for part in content
    ]


def chat_messages(index: ViewIndex, conversation_id: str) -> list[dict[str, Any]]:
    """Return the conversation as chat-API messages from the policy's view, with `tool_calls` of
    assistants and results as messages of role `tool`.

    A picture is given by the name of its file. Raise RunError for an unknown id.
    """
    run, conversation, _ = index.read_conversation(conversation_id)
    protocol = run.manifest.protocol
    return [
        _as_sent(message) for message in messages_before(protocol, conversation, protocol.policy)
    ]


def _as_sent(message: Message) -> dict[str, Any]:
    content = message["content"]
    out: dict[str, Any] = {
        "role": message["role"],
        "content": content if isinstance(content, str) else [_part_json(part) for part in content],
    }
    if "reasoning" in message:
        out["reasoning_content"] = message["reasoning"].text
    if message.get("tool_calls"):
        out["tool_calls"] = [call.wire for call in message["tool_calls"]]
    return out | {name: message[name] for name in ("tool_call_id", "name") if name in message}


def _part_json(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": part.file}}


def turn_prompts(index: ViewIndex, conversation_id: str) -> dict[str, Any]:
    """Return, by turn index as text, the exact messages that a model got before the turn: role,
    parts, reasoning, name and calls.

    Turns that no model was called for are left out. Raise RunError for an unknown id.
    """
    run, conversation, _ = index.read_conversation(conversation_id)
    number = index.locate_conversation(conversation_id)["run_no"]
    by_turn = {}
    for turn_index, turn in enumerate(conversation.turns):
        if turn.is_of_model:
            seen = messages_before(run.manifest.protocol, conversation, turn.speaker, turn_index)
            by_turn[str(turn_index)] = [
                {
                    "role": message["role"],
                    "parts": content_parts(message["content"], number),
                    "reasoning": message["reasoning"].text if "reasoning" in message else None,
                    "name": message.get("name"),
                    "calls": [
                        [call.name, call.arguments] for call in message.get("tool_calls", ())
                    ],
                }
                for message in seen
            ]
    return by_turn


def sibling_rows(index: ViewIndex, question: int) -> list[dict[str, Any]]:
    """Return the rows of the first 60 conversations about a question, in the order of the list;
    `question` is its number in the index."""
    rows = index.query_rows(
        f"SELECT {SHOWN}{reward_lists(index)} FROM conversations WHERE q = ? ORDER BY n LIMIT ?",
        [question, MOST_BESIDE],
    )
    return [finite_row(row) for row in rows]


def verdicts_json(
    index: ViewIndex, names: Sequence[str]
) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """Return the verdicts on these conversations by (run number, conversation_id), sorted by judge;
    conversations without verdicts are left out.

    Each has judge, model, reward, headline, scores, details, reply, failure and attempts. An item
    of scores has name, label, score, why and limits.
    """
    marks = ", ".join("?" * len(names))
    rows = index.query_rows(
        "SELECT run_no, conversation_id, judge, fingerprint, scores, reward, justifications, "
        "details, reply, failure.kind || ': ' || failure.message AS failure, attempts "
        f"FROM raw.verdicts WHERE conversation_id IN ({marks}) ORDER BY judge",
        names,
    )
    by_conversation: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in rows:
        key = (row["run_no"], row["conversation_id"])
        by_conversation.setdefault(key, []).append(_verdict_json(index.runs[key[0]], row))
    return by_conversation


def _verdict_json(run: Run, row: Mapping[str, Any]) -> dict[str, Any]:
    spec = _judge_specs(run).get(row["fingerprint"])
    if spec is None:  # a judge that came since
        _judge_specs.cache_clear()
        spec = _judge_specs(run).get(row["fingerprint"])
    scores, words = row["scores"] or {}, row["justifications"] or {}
    labels = spec.score_labels if spec else {}
    return {
        "judge": row["judge"],
        "model": spec.model if spec else None,
        "reward": row["reward"],
        "headline": spec.headline_metric if spec else "overall",
        "scores": [
            {
                "name": name,
                "label": labels.get(name, name),
                "score": scores.get(name),
                "why": words.get(name),
                "limits": spec.score_limits(name) if spec else (0, 10),
            }
            for name in dict.fromkeys(
                (*(name for name in labels if name in scores), *scores, *words)
            )
        ],
        "details": _details_json(row["details"]),
        "reply": row["reply"],
        "failure": row["failure"],
        "attempts": row["attempts"],
    }


def _details_json(text: str | None) -> Any:
    try:
        return (orjson.loads(text) if text else None) or None
    except orjson.JSONDecodeError:  # nested more deeply than a page can show
        return "(cannot be shown)"


@lru_cache(maxsize=64)
def _judge_specs(run: Run) -> dict[str, JudgeSpec]:
    return run.judge_specs()


SAME = (
    "Rebuilt from the record; it has the same hash of model, sampling and messages as the journal."
)
OTHER = (
    "Rebuilt from the record, but its hash differs from the journal's: the record was edited, or "
    "another version of convbench made the call."
)
UNKNOWN = "The messages before this call; the journal does not record its other settings."


def turn_calls(index: ViewIndex, conversation_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return the model calls of each turn, by turn index as text: key, request, reply, lost
    attempts and `proof`.

    Requests and replies are JSON text. `proof` says whether the rebuilt request has the journal's
    hash. Turns without a recorded call are left out. Raise RunError for an unknown id.
    """
    run, conversation, _ = index.read_conversation(conversation_id)
    requests = {call.key: call for call in conversation_calls(run.manifest, conversation)}
    by_turn: dict[str, list[dict[str, Any]]] = {}
    calls: dict[str, dict[str, Any]] = {}
    for record in iter_calls(run.calls_file, conversation.key):
        call = calls.setdefault(str(record["key"]), {"reply": None, "lost": []})
        if "lost" in record:
            call["lost"].append(record)
        else:
            call["reply"] = record
    for key, call in calls.items():
        if turn := re.match(r"[0-9]+", key.rpartition("@")[2]):  # 3 of `q1#0@3` and `q1#0@3.1`
            shown = _call_json(key, call, requests.get(key))
            by_turn.setdefault(str(int(turn[0])), []).append(shown)
    return by_turn


def _call_json(key: str, call: dict[str, Any], request: ModelCall | None) -> dict[str, Any]:
    reply = call["reply"]
    fields = {"key": key, "lost": call["lost"], "reply": _json_text(reply)}
    if request is None:
        return fields | {"request": None, "proof": UNKNOWN}
    hashed = call_hash(request.model, request.sampling, request.messages)
    same = reply is not None and reply.get("hash") == hashed
    body = {
        "model": request.model,
        **request.sampling.model_dump(exclude_defaults=True),
        "messages": request.messages,
    }
    return fields | {
        "request": _json_text(body),
        "proof": SAME if same else OTHER,
    }


def _json_text(value: Any) -> str | None:
    """Return JSON as indented text: a browser that parsed it would round the last digits of a
    seed."""
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=dump_noun, option=orjson.OPT_INDENT_2).decode()
