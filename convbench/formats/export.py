"""Write conversations and pairs of replies in other trainers' formats: a file a split.

    {"messages": [{"role": "user", …}, {"role": "assistant", …}], "weight": 0.7}       trl
    {"messages": […, {"role": "tool_call", "content": "{…}", "loss_scale": 0.7}]}      ms-swift
    {"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}]}    sharegpt

What is written, with which weight and how often, the caller says. Every line of a file has the same
keys, and the line whose messages differ most in theirs comes first: readers of columns
(`datasets.load_dataset`) take the types of all rows from the first.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from convbench.errors import RunError
from convbench.formats.atif import as_trajectory
from convbench.formats.values import parsed
from convbench.schema import Conversation, Message, ProtocolSpec, text_of
from convbench.schema.task import SPLITS, Split
from convbench.store import Run
from convbench.store.jsonl import disk_error, move_to_user_file
from convbench.store.notes import newest_advantages
from convbench.store.scratch import make_workspace
from convbench.views import messages_before, policy_turns

Target = Literal["trl", "openai", "sharegpt", "ms-swift", "atif"]
CALLS = "tool_calls"
THOUGHT = "reasoning_content"
"""Further keys of an assistant's message, as chat templates read them."""
Chat = list[dict[str, Any]]
"""Messages {role, content, reasoning_content?, tool_calls?} as the policy saw them."""
Line = dict[str, Any]
"""One object of a JSON lines file."""
Chosen = tuple[Conversation, float | None, int]
"""(conversation, its weight above 0 or None, how often it is written)."""


@dataclass(frozen=True)
class ExportFormat:
    """What a trainer's format holds."""

    chat: Callable[[Chat, float | None], Line]
    """Returns the line of a conversation with its weight, None for one without."""
    pair: Callable[[Chat, Chat, Chat], Line] | None = None
    """Returns the line of a prompt, the better reply and the worse one; None if it holds none."""
    weighing: str = ""
    """Note on settings that its trainer needs to use the weights; empty if it holds none."""
    negative: str = ""
    """Note on what its trainer would do with a weight below 0."""
    metadata: bool = False
    """Whether a line may have a column `metadata`, as JSON text."""
    drops_reasoning: bool = False
    needs: tuple[str, ...] = ()
    """Notes on settings that its trainer needs to learn only the policy's turns."""


def tag_reasoning(message: Mapping[str, Any]) -> str:
    """Return a message's `content` with its `reasoning_content` in <think> tags before it."""
    thought, text = str(message.get(THOUGHT) or "").strip("\n"), str(message["content"])
    return f"<think>\n{thought}\n</think>\n\n{text}" if thought else text


def _tagged(chat: Chat, weight: float | None = None) -> Chat:
    """Return messages as ms-swift reads them: reasoning in tags, a call as a message of role
    `tool_call`, a result as one of role `tool_response`; with a weight on the policy's own."""
    own = {} if weight is None else {"loss_scale": weight}
    out: Chat = []
    for m in chat:
        if m["role"] == "tool":
            out.append({"role": "tool_response", "content": m["content"]})
            continue
        mark = own if m["role"] == "assistant" else {}
        if tag_reasoning(m) or not m.get(CALLS):
            out.append({"role": m["role"], "content": tag_reasoning(m)} | mark)
        for call in m.get(CALLS, ()):
            text = json.dumps(_with_object(call)["function"], ensure_ascii=False)
            out.append({"role": "tool_call", "content": text} | mark)
    return out


def _with_object(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with its arguments as an object, as chat templates expect them."""
    name, arguments = call["function"]["name"], parsed(call["function"]["arguments"])
    return {**call, "function": {"name": name, "arguments": arguments}}


def _objects(chat: Chat) -> Chat:
    return [
        {**m, CALLS: [_with_object(call) for call in m[CALLS]]} if m.get(CALLS) else m for m in chat
    ]


def _trl(chat: Chat, weight: float | None) -> Line:
    return {"messages": _objects(chat)} | ({} if weight is None else {"weight": weight})


def _openai(chat: Chat, _: float | None) -> Line:
    return {"messages": [{k: v for k, v in m.items() if k != THOUGHT} for m in chat]}


def _sharegpt(chat: Chat, _: float | None) -> Line:
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    names |= {"tool_call": "function_call", "tool_response": "observation"}
    items = [{"from": names[m["role"]], "value": m["content"]} for m in _tagged(chat)]
    return {"conversations": items}


def _swift_pair(prompt: Chat, chosen: Chat, rejected: Chat) -> Line:
    line: Line = {"messages": _tagged([*prompt, *chosen])}
    if chosen[0].get(CALLS) or rejected[0].get(CALLS):
        return line | {"rejected_messages": _tagged([*prompt, *rejected])}
    return line | {"rejected_response": rejected[0]["content"]}


FORMATS: Mapping[Target, ExportFormat] = {
    # TRL's SFTTrainer and DPOTrainer, conversational datasets; it reads tools as JSON text too.
    "trl": ExportFormat(
        _trl,
        lambda prompt, chosen, rejected: {
            "prompt": _objects(prompt),
            "chosen": _objects(chosen),
            "rejected": _objects(rejected),
        },
        weighing="SFTTrainer does not read `weight`: every row counts 1 there. WeightedSFT on the "
        "page on import and export multiplies the loss of each row by it",
        negative="SFTTrainer would imitate them",
        metadata=True,
        needs=("SFTTrainer learns every message unless SFTConfig(assistant_only_loss=True)",),
    ),
    # OpenAI's fine-tuning API, supervised and DPO.
    "openai": ExportFormat(
        _openai,
        lambda prompt, chosen, rejected: {
            "input": {"messages": prompt},
            "preferred_output": chosen,
            "non_preferred_output": rejected,
        },
        drops_reasoning=True,
    ),
    "sharegpt": ExportFormat(_sharegpt, metadata=True),
    # ms-swift's custom datasets; `loss_scale` multiplies the loss of a message's tokens.
    "ms-swift": ExportFormat(
        lambda chat, weight: {"messages": _tagged(chat, weight)},
        _swift_pair,
        weighing="ms-swift reads `loss_scale` with --is_binary_loss_scale false (4.2 or newer); "
        "without it every row counts 1. The end of a turn counts 1 in either case",
        negative="its templates mask all of them but the end of the turn",
    ),
    # Harbor's trajectories, one a line; the line is made from the conversation itself.
    "atif": ExportFormat(lambda chat, weight: {}),
}


@dataclass
class ExportResult:
    """What was written."""

    files: dict[Split, Path] = field(default_factory=dict)
    """Path by split."""
    rows: dict[str, int] = field(default_factory=dict)
    """Number of rows by split."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Conversations that are not written, by reason: `failed`, `flagged`, `negative` (a weight
    below 0), `unweighted` (a weight of 0, or none)."""
    notes: list[str] = field(default_factory=list)
    """Notes on what the format cannot hold, and on settings that the trainer needs."""


def export_conversations(
    run: Run,
    target: Target,
    folder: Path,
    chosen: Iterable[Chosen] | None = None,
    *,
    named: bool = False,
) -> ExportResult:
    """Write `SPLIT.jsonl` into a folder and return paths, counts and notes.

    `chosen` are conversations of the run with their weights and numbers of copies; without it all
    that are complete are written once. With `named` (the user chose the folder) existing files keep
    links, mode and owner. Raise RunError if nothing is written.
    """
    if chosen is None:
        chosen = ((talk, None, 1) for talk in run.conversations() if talk.failure is None)
    lost: Counter[str] = Counter()
    files, rows = _write_lines(folder, _lines(run, target, chosen, lost), named=named)
    notes = [f"{target} cannot hold the {what} of {n} conversations" for what, n in lost.items()]
    return ExportResult(files, rows, notes=notes)


def _lines(
    run: Run, target: Target, chosen: Iterable[Chosen], lost: Counter[str]
) -> Iterator[tuple[Split, Line, int]]:
    """Yield (split, line, copies) of conversations; count what the format cannot hold."""
    shape, credit = FORMATS[target], newest_advantages(run)
    any_metadata = shape.metadata and any(talk.metadata for talk in run.conversations())
    protocol = run.manifest.protocol
    any_tools = any(offered_tools(protocol, talk) for talk in run.conversations())
    for talk, weight, copies in chosen:
        name, split = talk.conversation_id, run.examples[talk.example_id].split
        thought = any(turn.reasoning and turn.reasoning.text for turn in talk.turns)
        cannot = {
            "turns' advantages": name in credit and not shape.metadata,
            "metadata": bool(talk.metadata) and not shape.metadata and target != "atif",
            "reasoning": shape.drops_reasoning and thought,
        }
        lost.update(what for what, is_lost in cannot.items() if is_lost)
        if target == "atif":
            yield split, as_trajectory(run, talk), copies
            continue
        line = shape.chat(_seen(run, talk), weight)
        if any_tools:
            line = _add_tools(line, target, offered_tools(protocol, talk))
        if any_metadata:
            line["metadata"] = orjson.dumps(talk.metadata).decode() if talk.metadata else ""
        if shape.metadata and name in credit:
            turns = policy_turns(protocol, talk)
            line["advantages"] = [credit[name].get(turn) for turn in turns]
        yield split, line, copies


def offered_tools(protocol: ProtocolSpec, talk: Conversation) -> list[dict[str, Any]]:
    """Return the tools that the policy was offered: a logged conversation's own, or the run's."""
    return list(talk.tools) or protocol.speakers[protocol.policy].tool_schemas


def _add_tools(line: Line, target: Target, tools: Sequence[Mapping[str, Any]]) -> Line:
    """Return a line with its tools: as JSON text, but for OpenAI, whose API takes a list."""
    if target != "openai":
        more = {"rejected_tools": json.dumps(tools)} if "rejected_messages" in line else {}
        return line | {"tools": json.dumps(tools)} | more
    if "input" in line:
        return line | {"input": {**line["input"], "tools": tools}}
    return line | {"tools": tools}


def _seen(run: Run, talk: Conversation) -> Chat:
    """Return what the policy saw and said, without messages after its last reply, which teach
    nothing."""
    protocol = run.manifest.protocol
    chat = as_chat(messages_before(protocol, talk, protocol.policy, replay="always"))
    while chat and chat[-1]["role"] not in ("assistant", "tool"):
        chat.pop()
    return chat


def as_chat(view: Iterable[Message]) -> Chat:
    """Return messages as the chat API writes them, reasoning beside the content."""
    chat: Chat = []
    for message in view:
        line: dict[str, Any] = {"role": message["role"], "content": text_of(message["content"])}
        if "reasoning" in message:
            line[THOUGHT] = message["reasoning"].text
        if message.get("tool_calls"):
            line[CALLS] = [call.wire for call in message["tool_calls"]]
        if "tool_call_id" in message:
            line |= {"tool_call_id": message["tool_call_id"], "name": message.get("name", "")}
        chat.append(line)
    return chat


def export_pairs(
    target: Target,
    folder: Path,
    pairs: Iterable[tuple[Iterable[Message], Message, Message, Sequence[Mapping[str, Any]] | None]],
    *,
    named: bool = False,
) -> ExportResult:
    """Write `train.jsonl` of pairs (prompt, better reply, worse reply, tools that were offered, or
    None in all if in none) and return its path and number of rows.

    Raise RunError if the format cannot hold pairs. Without pairs no file is written.
    """
    write = FORMATS[target].pair
    if write is None:
        places = ", ".join(name for name, known in FORMATS.items() if known.pair)
        raise RunError(f"--to {target} cannot hold pairs of replies; expected one of {places}")
    train: Split = "train"  # pairs come from this split alone

    def lines() -> Iterator[tuple[Split, Line, int]]:
        for prompt, good, bad, tools in pairs:
            line = write(as_chat(prompt), as_chat([good]), as_chat([bad]))
            yield train, line if tools is None else _add_tools(line, target, tools), 1

    return ExportResult(*_write_lines(folder, lines(), named=named))


def _write_lines(
    folder: Path, lines: Iterable[tuple[Split, Line, int]], *, named: bool
) -> tuple[dict[Split, Path], dict[str, int]]:
    """Write (split, line, copies), the line of most kinds of messages first; return paths and row
    counts by split. Files are moved into place only when all are written. Raises RunError."""
    rows: Counter[str] = Counter()
    first: dict[str, tuple[int, bytes]] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with make_workspace(folder, ".export-") as space:
            for split, line, copies in lines:
                data = orjson.dumps(line) + b"\n"
                said = line.get("messages") or line.get("prompt") or ()
                kinds = len({tuple(message) for message in said})
                held = first.get(split, (0, b""))
                rows[split] += copies
                with (space / f"{split}.jsonl").open("ab") as file:
                    if kinds > held[0] or not held[1]:
                        first[split], copies = (kinds, data), copies - 1
                        file.write(held[1])
                    file.write(data * copies)
            paths: dict[Split, Path] = {s: folder / f"{s}.jsonl" for s in SPLITS if s in rows}
            for split, path in paths.items():
                whole = space / f"{split}-whole.jsonl"
                with whole.open("wb") as file, (space / f"{split}.jsonl").open("rb") as rest:
                    file.write(first[split][1])
                    shutil.copyfileobj(rest, file)
                move_to_user_file(whole, path) if named else whole.replace(path)
    except OSError as error:
        raise disk_error(folder, error) from None
    return paths, dict(rows)
