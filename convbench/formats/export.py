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
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt"} | {
    "tool_call": "function_call",
    "tool_response": "observation",
}
Chat = list[dict[str, Any]]
"""Messages {role, content, reasoning_content?, tool_calls?} as the policy saw them."""
Line = dict[str, Any]
"""One object of a JSON lines file."""
Chosen = tuple[Conversation, float | None, int]
"""(conversation, its weight above 0 or None, how often it is written)."""


@dataclass(frozen=True)
class ExportFormat:
    """What a trainer's format holds."""

    pairs: bool = False
    weighing: str = ""
    """Note on settings that its trainer needs to use the weights; empty if it holds none."""
    negative: str = ""
    """Note on what its trainer would do with a weight below 0."""
    metadata: bool = False
    """Whether a line may have a column `metadata`, as JSON text."""
    drops_reasoning: bool = False
    needs: tuple[str, ...] = ()
    """Notes on settings that its trainer needs to learn only the policy's turns."""


FORMATS: Mapping[Target, ExportFormat] = {
    # TRL's SFTTrainer and DPOTrainer, conversational datasets; it reads tools as JSON text too.
    "trl": ExportFormat(
        pairs=True,
        weighing="SFTTrainer does not read `weight`: every row counts 1 there. WeightedSFT on the "
        "page on import and export multiplies the loss of each row by it",
        negative="SFTTrainer would imitate them",
        metadata=True,
        needs=("SFTTrainer learns every message unless SFTConfig(assistant_only_loss=True)",),
    ),
    # OpenAI's fine-tuning API, supervised and DPO.
    "openai": ExportFormat(pairs=True, drops_reasoning=True),
    "sharegpt": ExportFormat(metadata=True),
    # ms-swift's custom datasets; `loss_scale` multiplies the loss of a message's tokens.
    "ms-swift": ExportFormat(
        pairs=True,
        weighing="ms-swift reads `loss_scale` with --is_binary_loss_scale false (4.2 or newer); "
        "without it every row counts 1. The end of a turn counts 1 in either case",
        negative="its templates mask all of them but the end of the turn",
    ),
    # Harbor's trajectories, one a line; the line is made from the conversation itself.
    "atif": ExportFormat(),
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
    if not FORMATS[target].pairs:
        places = ", ".join(name for name, known in FORMATS.items() if known.pairs)
        raise RunError(f"--to {target} cannot hold pairs of replies; expected one of {places}")
    lines = (_pair(target, *pair) for pair in pairs)
    train: Split = "train"  # pairs come from this split alone
    return ExportResult(*_write_lines(folder, ((train, line, 1) for line in lines), named=named))


def _lines(
    run: Run, target: Target, chosen: Iterable[Chosen], lost: Counter[str]
) -> Iterator[tuple[Split, Line, int]]:
    """Yield (split, line, copies) of conversations; count what the format cannot hold."""
    shape, credit, protocol = FORMATS[target], newest_advantages(run), run.manifest.protocol
    any_metadata = shape.metadata and any(talk.metadata for talk in run.conversations())
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
        chat = as_chat(messages_before(protocol, talk, protocol.policy, replay="always"))
        while chat and chat[-1]["role"] not in ("assistant", "tool"):
            chat.pop()  # what has no reply teaches nothing
        key = "conversations" if target == "sharegpt" else "messages"
        line: Line = {key: _shaped(target, chat, weight)}
        line |= {"weight": weight} if target == "trl" and weight is not None else {}
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
    return line | (
        {"input": {**line["input"], "tools": tools}} if "input" in line else {"tools": tools}
    )


def _pair(
    target: Target,
    asked: Iterable[Message],
    better: Message,
    worse: Message,
    tools: Sequence[Mapping[str, Any]] | None,
) -> Line:
    prompt, chosen, rejected = as_chat(asked), as_chat([better]), as_chat([worse])
    if target == "ms-swift":
        line: Line = {"messages": _shaped(target, [*prompt, *chosen])}
        if chosen[0].get(CALLS) or rejected[0].get(CALLS):
            line["rejected_messages"] = _shaped(target, [*prompt, *rejected])
        else:
            line["rejected_response"] = rejected[0]["content"]
    elif target == "openai":
        line = {"input": {"messages": prompt}, "preferred_output": chosen}
        line["non_preferred_output"] = rejected
    else:
        parts = {"prompt": prompt, "chosen": chosen, "rejected": rejected}
        line = {name: _shaped(target, part) for name, part in parts.items()}
    return line if tools is None else _add_tools(line, target, tools)


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


def _shaped(target: Target, chat: Chat, weight: float | None = None) -> Chat:
    """Return messages as a trainer reads them: for TRL the arguments of calls as objects; for
    ms-swift and ShareGPT reasoning in tags, a call as a message of role `tool_call`, a result as
    one of `tool_response`, with a weight on the policy's own."""
    own = {} if weight is None or target == "sharegpt" else {"loss_scale": weight}
    out: Chat = []
    for m in chat:
        calls = [
            {
                **call,
                "function": call["function"] | {"arguments": parsed(call["function"]["arguments"])},
            }
            for call in m.get(CALLS, ())
        ]
        if target == "openai":
            out.append({k: v for k, v in m.items() if k != THOUGHT})
        elif target == "trl":
            out.append({**m, CALLS: calls} if calls else m)
        elif m["role"] == "tool":
            out.append({"role": "tool_response", "content": m["content"]})
        else:
            mark = own if m["role"] == "assistant" else {}
            if tag_reasoning(m) or not calls:
                out.append({"role": m["role"], "content": tag_reasoning(m)} | mark)
            texts = [json.dumps(call["function"], ensure_ascii=False) for call in calls]
            out += [{"role": "tool_call", "content": text} | mark for text in texts]
    if target == "sharegpt":
        return [{"from": SHAREGPT[m["role"]], "value": m["content"]} for m in out]
    return out


def tag_reasoning(message: Mapping[str, Any]) -> str:
    """Return a message's `content` with its `reasoning_content` in <think> tags before it."""
    thought, text = str(message.get(THOUGHT) or "").strip("\n"), str(message["content"])
    return f"<think>\n{thought}\n</think>\n\n{text}" if thought else text


def _write_lines(
    folder: Path, lines: Iterable[tuple[Split, Line, int]], *, named: bool
) -> tuple[dict[Split, Path], dict[str, int]]:
    """Write (split, line, copies), the line of most kinds of messages first; return paths and row
    counts by split. Files are moved into place only when all are written. Raise RunError."""
    rows: Counter[str] = Counter()
    first: dict[str, tuple[int, bytes]] = {}
    try:
        with make_workspace(folder, ".export-") as space:
            for split, line, copies in lines:
                rows[split] += copies
                data = orjson.dumps(line) + b"\n"
                kinds = 1 + len(set(map(tuple, line.get("messages") or line.get("prompt") or ())))
                most, held = first.get(split, (0, b""))
                rest = data * copies
                if kinds > most:
                    first[split], rest = (kinds, data), held + data * (copies - 1)
                with (space / f"{split}.jsonl").open("ab") as file:
                    file.write(rest)
            paths: dict[Split, Path] = {s: folder / f"{s}.jsonl" for s in SPLITS if s in rows}
            for split, path in paths.items():
                whole = space / f"{split}-whole.jsonl"
                with whole.open("wb") as file, (space / f"{split}.jsonl").open("rb") as others:
                    file.write(first[split][1])
                    shutil.copyfileobj(others, file)
                move_to_user_file(whole, path) if named else whole.replace(path)
    except OSError as error:
        raise disk_error(folder, error) from None
    return paths, dict(rows)
