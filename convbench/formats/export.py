"""Write conversations and pairs of replies in other trainers' formats: a file a split.

    {"messages": [{"role": "user", …}, {"role": "assistant", …}], "weight": 0.7}       trl
    {"messages": […, {"role": "tool_call", "content": "{…}", "loss_scale": 0.7}]}      ms-swift
    {"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}]}    sharegpt

What is written, with which weight and how often, the caller says. The line whose messages differ
most in their keys comes first: readers of columns (`datasets.load_dataset`) take types from it.
"""

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
from convbench.schema import Conversation, Message, ProtocolSpec
from convbench.schema.task import SPLITS, Split
from convbench.store import Run
from convbench.store.jsonl import disk_error, move_to_user_file
from convbench.store.notes import newest_advantages
from convbench.store.scratch import make_workspace
from convbench.views import messages_before, policy_turns, wire_messages

Target = Literal["trl", "openai", "sharegpt", "ms-swift", "atif"]
THOUGHT = "reasoning_content"  # as chat templates name it
Line = dict[str, Any]
Chat = list[dict[str, Any]]  # {role, content, reasoning_content?, tool_calls?} of each message
Tools = Sequence[Mapping[str, Any]] | None  # None: no line of the file has any
Chosen = tuple[Conversation, float | None, int]  # its weight above 0 or None, number of copies
NAMES = {"system": "system", "user": "human", "assistant": "gpt"}  # ShareGPT's by ms-swift's
NAMES |= {"tool_call": "function_call", "tool_response": "observation"}
PAIRED = ("trl", "openai", "ms-swift")  # targets that hold pairs
ADDED_TO = ("trl", "sharegpt")  # whose readers pass over `metadata`, JSON text, and `advantages`
WEIGHING = {  # what the trainers need to use the weights, of targets that hold them
    "trl": "SFTTrainer does not read `weight`: every row counts 1 there. WeightedSFT on the page "
    "on import and export multiplies the loss of each row by it",
    "ms-swift": "ms-swift reads `loss_scale` with --is_binary_loss_scale false (4.2 or newer); "
    "without it every row counts 1. The end of a turn counts 1 in either case",
}


@dataclass
class ExportResult:
    """What was written."""

    files: dict[Split, Path]
    rows: dict[Split, int]
    left_out: Counter[str] = field(default_factory=Counter)
    """Conversations by reason: failed, flagged, of negative weight, unweighted (0 or none)."""
    notes: list[str] = field(default_factory=list)


def _chat_line(target: Target, chat: Chat, weight: float | None, tools: Tools) -> Line:
    """Return the line of a conversation: tools as JSON text, but for OpenAI, whose API takes a
    list; a weight beside the messages, but on ms-swift's own messages, which it multiplies."""
    listed = {} if tools is None else {"tools": tools if target == "openai" else json.dumps(tools)}
    if target == "trl":
        own = {} if weight is None else {"weight": weight}
        return {"messages": _with_objects(chat), **own, **listed}
    if target == "openai":
        return {"messages": [{k: v for k, v in m.items() if k != THOUGHT} for m in chat], **listed}
    if target == "ms-swift":
        return {"messages": _tagged(chat, weight), **listed}
    items = [{"from": NAMES[m["role"]], "value": m["content"]} for m in _tagged(chat)]
    return {"conversations": items, **listed}


def _pair_line(target: Target, prompt: Chat, chosen: Chat, rejected: Chat, tools: Tools) -> Line:
    """Return the line of a prompt, the better reply and the worse one."""
    if target == "ms-swift":
        line = _chat_line(target, [*prompt, *chosen], None, tools)
        if not ("tool_calls" in chosen[0] or "tool_calls" in rejected[0]):
            return line | {"rejected_response": rejected[0]["content"]}
        other = _chat_line(target, [*prompt, *rejected], None, tools)
        return line | {f"rejected_{name}": value for name, value in other.items()}
    line = _chat_line(target, prompt, None, tools)
    if target == "openai":
        return {"input": line, "preferred_output": chosen, "non_preferred_output": rejected}
    replies = {"chosen": _with_objects(chosen), "rejected": _with_objects(rejected)}
    return {"prompt": line.pop("messages"), **replies, **line}


def _with_objects(chat: Chat) -> Chat:
    """Change the calls' arguments from JSON text to objects, as chat templates expect them."""
    for function in (call["function"] for m in chat for call in m.get("tool_calls", ())):
        function["arguments"] = parsed(function["arguments"])
    return chat


def _tagged(chat: Chat, weight: float | None = None) -> Chat:
    """Return messages as ms-swift reads them: reasoning in tags, a call as a message of role
    `tool_call`, a result as one of role `tool_response`; with a weight on the policy's own."""
    out: Chat = []
    for m in _with_objects(chat):
        is_own, text = m["role"] == "assistant", tag_reasoning(m)
        mark = {"loss_scale": weight} if is_own and weight is not None else {}
        role = "tool_response" if m["role"] == "tool" else m["role"]
        if text or "tool_calls" not in m:
            out.append({"role": role, "content": text, **mark})
        for call in m.get("tool_calls", ()):
            text = json.dumps(call["function"], ensure_ascii=False)
            out.append({"role": "tool_call", "content": text, **mark})
    return out


def tag_reasoning(message: Mapping[str, Any]) -> str:
    """Return a message's `content` with its `reasoning_content` in <think> tags before it."""
    thought, text = str(message.get(THOUGHT) or "").strip("\n"), str(message["content"])
    return f"<think>\n{thought}\n</think>\n\n{text}" if thought else text


def offered_tools(protocol: ProtocolSpec, talk: Conversation) -> list[dict[str, Any]]:
    """Return the tools that the policy was offered: a logged conversation's own, or the run's."""
    return list(talk.tools) or protocol.speakers[protocol.policy].tool_schemas


def export_conversations(
    run: Run, target: Target, folder: Path, chosen: Iterable[Chosen]
) -> ExportResult:
    """Write `SPLIT.jsonl` of chosen conversations into a folder; existing files keep links, mode
    and owner. Raise RunError if one cannot be written."""
    lost: Counter[str] = Counter()
    done = _write_lines(folder, _lines(run, target, chosen, lost))
    for what, count in lost.items():
        done.notes.append(f"{target} cannot hold the {what} of {count} conversations")
    if target == "trl":
        note = "SFTTrainer learns every message unless SFTConfig(assistant_only_loss=True)"
        done.notes.append(note)
    return done


def _lines(
    run: Run, target: Target, chosen: Iterable[Chosen], lost: Counter[str]
) -> Iterator[tuple[Split, Line, int]]:
    """Yield (split, line, copies) of conversations; count what the format cannot hold."""
    credit, protocol = newest_advantages(run), run.manifest.protocol
    any_metadata = any(talk.metadata for talk in run.conversations())
    any_tools = any(offered_tools(protocol, talk) for talk in run.conversations())
    for talk, weight, copies in chosen:
        split, tools = run.examples[talk.example_id].split, offered_tools(protocol, talk)
        advantages = credit.get(talk.conversation_id)
        thought = any(turn.reasoning and turn.reasoning.text for turn in talk.turns)
        cannot = {
            "turns' advantages": advantages is not None and target not in ADDED_TO,
            "metadata": bool(talk.metadata) and target not in (*ADDED_TO, "atif"),
            "reasoning": target == "openai" and thought,
        }
        lost.update(what for what, is_lost in cannot.items() if is_lost)
        if target == "atif":
            yield split, as_trajectory(run, talk, tools), copies
            continue
        chat = wire_messages(messages_before(protocol, talk, protocol.policy, replay="always"))
        while chat and chat[-1]["role"] not in ("assistant", "tool"):
            chat.pop()  # what comes after the last reply teaches nothing
        line = _chat_line(target, chat, weight, tools if any_tools else None)
        if any_metadata and target in ADDED_TO:
            line["metadata"] = orjson.dumps(talk.metadata).decode() if talk.metadata else ""
        if advantages is not None and target in ADDED_TO:
            line["advantages"] = [advantages.get(turn) for turn in policy_turns(protocol, talk)]
        yield split, line, copies


def export_pairs(
    target: Target,
    folder: Path,
    pairs: Iterable[tuple[Iterable[Message], Message, Message, Tools]],
) -> ExportResult:
    """Write `train.jsonl` of pairs (prompt, better reply, worse reply, tools that were offered, or
    None in all if in none); without pairs no file. Raise RunError if the format holds none."""
    if target not in PAIRED:
        places = ", ".join(PAIRED)
        raise RunError(f"--to {target} cannot hold pairs of replies; expected one of {places}")
    train: Split = "train"  # pairs come from this split alone
    lines = (
        (
            train,
            _pair_line(
                target, wire_messages(prompt), wire_messages([good]), wire_messages([bad]), tools
            ),
            1,
        )
        for prompt, good, bad, tools in pairs
    )
    return _write_lines(folder, lines)


def _write_lines(folder: Path, lines: Iterable[tuple[Split, Line, int]]) -> ExportResult:
    """Write (split, line, copies); files are moved into place only when all are written."""
    rows: Counter[Split] = Counter()
    first: dict[str, tuple[int, bytes]] = {}
    try:
        with make_workspace(folder, ".export-") as space:
            for split, line, copies in lines:
                data = orjson.dumps(line) + b"\n"
                kinds = len({tuple(m) for m in line.get("messages") or line.get("prompt") or ()})
                rows[split] += copies
                with (space / split).open("ab") as file:
                    most, held = first.get(split, (-1, b""))
                    if kinds > most:
                        first[split], copies = (kinds, data), copies - 1
                        file.write(held)
                    file.write(data * copies)
            paths = {split: folder / f"{split}.jsonl" for split in SPLITS if split in rows}
            for split, path in paths.items():
                whole = space / path.name
                with whole.open("wb") as file, (space / split).open("rb") as rest:
                    file.write(first[split][1])
                    shutil.copyfileobj(rest, file)
                move_to_user_file(whole, path)
    except OSError as error:
        raise disk_error(folder, error) from None
    return ExportResult(paths, dict(rows))
