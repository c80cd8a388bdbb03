"""Return a conversation for the page: turns, verdicts, others about its question, prompts, and the
model calls behind each turn with request, retries and reply.

A request is rebuilt from the record as the run built it; the journal's hash of model, sampling and
messages shows whether it is the same. The exact bytes exist only if the run kept them.
"""
# ruff: noqa: S608 - the SQL is made of names of our own

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import orjson

from convbench.answers.tags import left_open, segments
from convbench.engine.journal import Exchange, call_hash, exchanges, plain
from convbench.engine.journal import place as turn_of
from convbench.engine.wire_file import NAME, kept
from convbench.errors import RunError
from convbench.rollout.asked import NOT_ASKED, Asked, asked
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
from convbench.view.filters import SHOWN, rewards, tidy
from convbench.view.index import Index
from convbench.view.markup import tree
from convbench.views import messages

MOST_BESIDE = 60
"""Largest number of conversations about one question that are listed with it."""


def talk(index: Index, conversation_id: str) -> dict[str, Any]:
    """Return everything that the page shows of one conversation, without the prompts.

    Raises RunError if there is no conversation of this id.
    """
    found = talks(index, [conversation_id])[0]
    return {**found, "beside": beside(index, found["row"]["q"])}


def talks(index: Index, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return these conversations, in this order, without the others about their questions. Raises
    RunError for an unknown id."""
    for name in names:
        index.place(name)
    marks = ", ".join("?" * len(names))
    rows = index.ask(
        f"SELECT {SHOWN}{rewards(index)}, failure, thinking "
        f"FROM conversations WHERE conversation_id IN ({marks})",
        names,
    )
    by_place = {(row["run_no"], row["conversation_id"]): tidy(row) for row in rows}
    judged = verdicts(index, names)
    credit = _credit(index, names)
    out = []
    for name in names:
        run, conversation, example = index.conversation(name)
        place = (index.place(name)["run_no"], name)
        out.append(
            {
                "row": by_place[place],
                "run": str(run.path),
                "question": _question(example),
                "reference": _reference(example),
                "pages": [k for k, v in _reference(example).items() if _page(v) is not None],
                "turns": _turns(run, place[0], conversation, credit.get(place, {})),
                "verdicts": judged.get(place, []),
            }
        )
    return out


def page_of(index: Index, conversation_id: str, place: str) -> str:
    """Return the HTML page in a turn (`page_name` is its index) or in a field of the reference
    (`reference.FIELD`). Raises RunError if there is none."""
    _, conversation, example = index.conversation(conversation_id)
    found = None
    if place.isascii() and place.isdecimal() and int(place) < len(conversation.turns):
        found = html_of(text_of(conversation.turns[int(place)].content))
    elif place.startswith("reference."):
        found = _page(_reference(example).get(place.removeprefix("reference.")))
    if found is None:
        raise RunError(f"{conversation_id}: {place:.80}: found no page")
    return found


def _page(value: Any) -> str | None:
    return html_of(value) if isinstance(value, str) else None


def _reference(example: Example) -> dict[str, Any]:
    """Return the hidden fields of a question, the gold answer first."""
    rest = {name: value for name, value in example.hidden.items() if name != "answer"}
    return {"answer": example.answer, **rest}


def _question(example: Example) -> dict[str, Any]:
    return {
        "example_id": example.example_id,
        "group_id": example.group_id,
        "text": example.question,
        "choices": [choice.model_dump() for choice in example.choices],
        "inputs": example.inputs,
    }


def _credit(index: Index, names: Sequence[str]) -> dict[tuple[int, str], dict[int, float]]:
    """Return the advantages of turns by (run number, conversation_id), then by turn index."""
    marks = ", ".join("?" * len(names))
    rows = index.ask(
        "SELECT run_no, conversation_id, turn_index, arg_max(advantage, rowid) AS advantage FROM "
        f"raw.advantages WHERE conversation_id IN ({marks}) GROUP BY ALL",
        names,
    )
    found: dict[tuple[int, str], dict[int, float]] = {}
    for row in rows:
        place = (row["run_no"], row["conversation_id"])
        found.setdefault(place, {})[row["turn_index"]] = row["advantage"]
    return found


def _turns(
    run: Run, number: int, conversation: Conversation, credit: Mapping[int, float]
) -> list[dict[str, Any]]:
    policy = run.manifest.protocol.policy
    said: list[str] = []
    out = []
    for place, turn in enumerate(conversation.turns):
        own = turn.speaker == policy
        thinks = turn.reasoning
        out.append(
            {
                "index": place,
                "speaker": turn.speaker,
                "policy": own,
                "step": turn.step,
                "instruction": turn.instruction,
                "finish": turn.finish_reason,
                "asked": turn.finish_reason not in NOT_ASKED,
                "tokens": turn.completion_tokens,
                "advantage": credit.get(place),
                "page": html_of(text_of(turn.content)) is not None,
                "reasoning": None if thinks is None else _reasoning(thinks),
                "rounds": [_round(one) for one in turn.rounds],
                "parts": _said(turn, number, left_open(said))
                if own
                else parts(turn.content, number, rendered=True),
            }
        )
        said += [text_of(turn.content)] if own else []
    return out


def _round(one: ToolRound) -> dict[str, Any]:
    """Return a round of tool calls, each call with its result."""
    results = {result.id: result for result in one.results}
    return {
        "text": one.content,
        "reasoning": None if one.reasoning is None else _reasoning(one.reasoning),
        "calls": [
            {
                "name": call.name,
                "arguments": call.arguments,
                "result": results[call.id].content if call.id in results else None,
                "error": call.id in results and results[call.id].error,
            }
            for call in one.calls
        ],
    }


def _reasoning(reasoning: Reasoning) -> dict[str, Any]:
    """Return the reasoning of a turn: text, tokens, and the number of redacted blocks."""
    hidden = sum(isinstance(block, RedactedBlock) for block in reasoning.blocks)
    return {"text": reasoning.text, "tokens": reasoning.tokens, "hidden": hidden}


def _said(turn: Turn, number: int, carried: bool) -> list[dict[str, Any]]:
    if not isinstance(turn.content, str):
        return parts(turn.content, number, rendered=True)
    pieces = [(p.thinking, turn.content[p.start : p.stop]) for p in segments(turn.content, carried)]
    return [
        {"think" if thought else "text": text, **marked(text)}
        for thought, text in pieces
        if text.strip()
    ]


def marked(text: str) -> dict[str, Any]:
    """Return `{"tree"}` with the Markdown of a text, empty if it has none."""
    found = tree(text)
    return {} if found is None else {"tree": found}


def parts(content: Content, number: int, *, rendered: bool = False) -> list[dict[str, Any]]:
    """Return text as `{"text"}`, with a `tree` if `rendered`, and images as `{"image"}`, the
    address of a file of the run."""
    if isinstance(content, str):
        return [{"text": content, **(marked(content) if rendered else {})}]
    return [
        {"text": part.text, **(marked(part.text) if rendered else {})}
        if isinstance(part, TextPart)
        else {"image": f"media/{number}/{part.file}"}
        for part in content
    ]


def whole(index: Index, conversation_id: str) -> list[dict[str, Any]]:
    """Return the conversation as chat-API messages from the policy's view: `tool_calls` of
    assistants, results as messages of role `tool`, a picture as the name of its file."""
    run, conversation, _ = index.conversation(conversation_id)
    protocol = run.manifest.protocol
    return [_as_sent(one) for one in messages(protocol, conversation, protocol.policy)]


def _as_sent(message: Message) -> dict[str, Any]:
    content = message["content"]
    out: dict[str, Any] = {
        "role": message["role"],
        "content": content if isinstance(content, str) else [_part(part) for part in content],
    }
    if "reasoning" in message:
        out["reasoning_content"] = message["reasoning"].text
    if message.get("tool_calls"):
        out["tool_calls"] = [call.wire for call in message["tool_calls"]]
    return out | {name: message[name] for name in ("tool_call_id", "name") if name in message}


def _part(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": part.file}}


def prompts(index: Index, conversation_id: str) -> dict[str, Any]:
    """Return, by turn index, the exact messages that a model got before the turn."""
    run, conversation, _ = index.conversation(conversation_id)
    number = index.place(conversation_id)["run_no"]
    found = {}
    for place, turn in enumerate(conversation.turns):
        if turn.finish_reason not in NOT_ASKED:
            seen = messages(run.manifest.protocol, conversation, turn.speaker, place)
            found[str(place)] = [
                {
                    "role": message["role"],
                    "parts": parts(message["content"], number),
                    "reasoning": message["reasoning"].text if "reasoning" in message else None,
                    "name": message.get("name"),
                    "calls": [[one.name, one.arguments] for one in message.get("tool_calls", ())],
                }
                for message in seen
            ]
    return found


def beside(index: Index, question: int) -> list[dict[str, Any]]:
    """Return the rows of all conversations about a question."""
    rows = index.ask(
        f"SELECT {SHOWN}{rewards(index)} FROM conversations WHERE q = ? ORDER BY n LIMIT ?",
        [question, MOST_BESIDE],
    )
    return [tidy(row) for row in rows]


def verdicts(index: Index, names: Sequence[str]) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """Return the verdicts on these conversations by (run number, conversation_id)."""
    marks = ", ".join("?" * len(names))
    rows = index.ask(
        "SELECT run_no, conversation_id, judge, fingerprint, scores, reward, justifications, "
        "details, reply, failure.kind || ': ' || failure.message AS failure, attempts "
        f"FROM raw.verdicts WHERE conversation_id IN ({marks}) ORDER BY judge",
        names,
    )
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in rows:
        place = (row["run_no"], row["conversation_id"])
        found.setdefault(place, []).append(_verdict(index.runs[place[0]], row))
    return found


def _verdict(run: Run, row: Mapping[str, Any]) -> dict[str, Any]:
    spec = _specs(run).get(row["fingerprint"])
    if spec is None:  # a judge that came since
        _specs.cache_clear()
        spec = _specs(run).get(row["fingerprint"])
    scores, words = row["scores"] or {}, row["justifications"] or {}
    labels = spec.labels if spec else {}
    return {
        "judge": row["judge"],
        "model": spec.model if spec else None,
        "reward": row["reward"],
        "headline": spec.headline if spec else "overall",
        "scores": [
            {
                "name": name,
                "label": labels.get(name, name),
                "score": scores.get(name),
                "why": words.get(name),
                "limits": spec.limits(name) if spec else (0, 10),
            }
            for name in dict.fromkeys(
                (*(name for name in labels if name in scores), *scores, *words)
            )
        ],
        "details": _plain(row["details"]),
        "reply": row["reply"],
        "failure": row["failure"],
        "attempts": row["attempts"],
    }


def _plain(text: str | None) -> Any:
    try:
        return (orjson.loads(text) if text else None) or None
    except orjson.JSONDecodeError:  # nested more deeply than a page can show
        return "(cannot be shown)"


@lru_cache(maxsize=64)
def _specs(run: Run) -> dict[str, JudgeSpec]:
    return run.judge_specs()


SAME = "Made again from the record; the journal's hash of model, sampling and messages is the same."
OTHER = (
    "Made again from the record; the journal's hash is another: the record was edited, or another "
    "version of convbench asked."
)
UNKNOWN = "The messages before this call; the journal says nothing of what was sent beside them."


def calls(index: Index, conversation_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return the model calls of each turn, by turn index: key, request, reply, lost attempts and
    wire records; requests and replies as JSON text."""
    run, conversation, _ = index.conversation(conversation_id)
    requests = {one.key: one for one in asked(run.manifest, conversation)}
    found: dict[str, list[dict[str, Any]]] = {}
    wires = {
        name: records
        for path in run.files(NAME)
        for name, records in kept(path, conversation.key).items()
    }
    told = (exchanges(path, conversation.key) for path in run.files(run.calls_file.name))
    for one in chain.from_iterable(told):
        turn = turn_of(one.key)
        if turn is not None:
            found.setdefault(str(turn), []).append(
                _told(one, requests.get(one.key), wires.get(one.key, []))
            )
    return found


def _told(one: Exchange, request: Asked | None, wire: list[dict[str, Any]]) -> dict[str, Any]:
    sent = [each | {name: _exact(each.get(name)) for name in ("request", "reply")} for each in wire]
    told = {"key": one.key, "lost": one.lost, "wire": sent, "reply": _exact(one.reply)}
    if request is None:
        return told | {"request": None, "proof": UNKNOWN}
    hashed = call_hash(request.model, request.sampling, request.messages)
    same = one.reply is not None and one.reply.get("hash") == hashed
    body = {
        "model": request.model,
        **request.sampling.model_dump(exclude_defaults=True),
        "messages": request.messages,
    }
    return told | {
        "request": _exact(body),
        "proof": SAME if same else OTHER,
    }


def _exact(value: Any) -> str | None:
    """Return JSON as indented text: a browser that parsed it would round the last digits of a
    seed."""
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=plain, option=orjson.OPT_INDENT_2).decode()
