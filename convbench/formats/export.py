"""Write conversations and pairs of replies in other trainers' formats: a file a split.

    {"messages": [{"role": "user", …}, {"role": "assistant", …}], "weight": 0.7}       trl
    {"messages": […, {"role": "tool_call", "content": "{…}", "loss_scale": 0.7}]}      ms-swift
    {"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}]}    sharegpt

Every line of a file has the same keys, and the line whose messages differ most in theirs comes
first: readers of columns (`datasets.load_dataset`) take the types of all rows from the first.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from convbench.errors import RunError
from convbench.formats.atif import as_trajectory
from convbench.schema import Conversation, Message, text_of
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


@dataclass(frozen=True)
class ExportFormat:
    """What a trainer's format holds."""

    chat: Callable[[Chat], Line]
    """Returns the line of a conversation."""
    weighted: Callable[[Chat, float], Line] | None = None
    """Returns the line of a conversation with a weight above 0; None if it cannot hold one."""
    pair: Callable[[Chat, Chat, Chat], Line] | None = None
    """Returns the line of a prompt, the better reply and the worse one; None if it holds none."""
    metadata: bool = False
    """Whether a line may have a column `metadata`, as JSON text."""
    drops_reasoning: bool = False
    needs: tuple[str, ...] = ()
    """Notes on settings that its trainer needs to learn only the policy's turns."""
    weighing: str = ""
    """Note on settings that its trainer needs to use the weights."""
    negative: str = ""
    """Note on what its trainer would do with a weight below 0."""


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
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        arguments = function["arguments"]
    return {**call, "function": {"name": function["name"], "arguments": arguments}}


def _objects(chat: Chat) -> Chat:
    return [
        {**m, CALLS: [_with_object(call) for call in m[CALLS]]} if m.get(CALLS) else m for m in chat
    ]


def _without_thought(chat: Chat) -> Chat:
    return [{k: v for k, v in m.items() if k != THOUGHT} for m in chat]


def _sharegpt(chat: Chat) -> Line:
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
        lambda chat: {"messages": _objects(chat)},
        weighted=lambda chat, weight: {"messages": _objects(chat), "weight": weight},
        pair=lambda prompt, chosen, rejected: {
            "prompt": _objects(prompt),
            "chosen": _objects(chosen),
            "rejected": _objects(rejected),
        },
        metadata=True,
        needs=("SFTTrainer learns every message unless SFTConfig(assistant_only_loss=True)",),
        weighing="SFTTrainer does not read `weight`: every row counts 1 there. "
        "convbench.formats.trl.WeightedSFTTrainer multiplies the loss of each row by it",
        negative="SFTTrainer would imitate them",
    ),
    # OpenAI's fine-tuning API, supervised and DPO.
    "openai": ExportFormat(
        lambda chat: {"messages": _without_thought(chat)},
        pair=lambda prompt, chosen, rejected: {
            "input": {"messages": prompt},
            "preferred_output": chosen,
            "non_preferred_output": rejected,
        },
        drops_reasoning=True,
    ),
    "sharegpt": ExportFormat(_sharegpt, metadata=True),
    # ms-swift's custom datasets; `loss_scale` multiplies the loss of a message's tokens.
    "ms-swift": ExportFormat(
        lambda chat: {"messages": _tagged(chat)},
        weighted=lambda chat, weight: {"messages": _tagged(chat, weight)},
        pair=_swift_pair,
        weighing="ms-swift reads `loss_scale` with --is_binary_loss_scale false (4.2 or newer); "
        "without it every row counts 1. The end of a turn counts 1 in either case",
        negative="its templates mask all of them but the end of the turn",
    ),
    # Harbor's trajectories, one a line; the line is made from the conversation itself.
    "atif": ExportFormat(lambda chat: {}),
}


def _add_tools(line: Line, target: Target, tools: Sequence[Mapping[str, Any]]) -> Line:
    """Return a line with its tools: as JSON text, but for OpenAI, whose API takes a list."""
    if target != "openai":
        more = {"rejected_tools": json.dumps(tools)} if "rejected_messages" in line else {}
        return line | {"tools": json.dumps(tools)} | more
    if "input" in line:
        return line | {"input": {**line["input"], "tools": tools}}
    return line | {"tools": tools}


@dataclass(frozen=True)
class ExportPlan:
    """Weights or repeats of a recipe's conversations; those without are not written."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight by conversation_id, written with the messages if it is above 0."""
    repeats: Mapping[str, int] | None = None
    """Number of copies by conversation_id, written instead of weights."""
    split: str = "train"
    """The split it applies to; other splits are written completely and without weights."""

    def repeat_count(self, name: str) -> int:
        """Return how often a conversation of the split is written: its number in `repeats`, or
        without `repeats` 1 for a weight above 0; else 0: no file can say that a reply is to be
        unlearnt."""
        if self.repeats is not None:
            return self.repeats.get(name, 0)
        return int(self.weights.get(name, 0.0) > 0.0)


@dataclass
class ExportResult:
    """What was written and what was left out."""

    files: dict[Split, Path] = field(default_factory=dict)
    """Path by split."""
    rows: dict[str, int] = field(default_factory=dict)
    """Number of rows by split."""
    failed: int = 0
    """Number of failed conversations, which are left out."""
    left_out: int = 0
    """Number of conversations left out by the plan: weight or repeats of 0 or less, or none."""
    negative: int = 0
    """Number of those left out whose weight is below 0."""
    flagged: int = 0
    """Number of flagged conversations, which are left out."""
    notes: list[str] = field(default_factory=list)
    """Notes on what else was left out, and on settings that the trainer needs."""


def export_conversations(
    run: Run,
    target: Target,
    folder: Path,
    plan: ExportPlan | None = None,
    without: Collection[str] = (),
    *,
    named: bool = False,
) -> ExportResult:
    """Write `SPLIT.jsonl` into a folder and return the counts.

    Failed conversations, and those whose ids are in `without`, are left out. With `named` (the user
    chose the folder) existing files keep links, mode and owner. Raise RunError if the format cannot
    hold weights, or nothing is left.
    """
    shape = FORMATS[target]
    if plan and plan.repeats is None and shape.weighted is None:
        places = " or ".join(name for name, known in FORMATS.items() if known.weighted)
        raise RunError(
            f"--to {target} cannot hold weights; give --scale S to repeat whole conversations "
            f"by randomized rounding, or use --to {places}"
        )
    done, lost = ExportResult(), dict.fromkeys(("turns' advantages", "metadata", "reasoning"), 0)
    lines = _lines(run, target, plan, without, done, lost)
    done.files, done.rows = _write_lines(folder, lines, named=named)
    if not done.rows:
        raise RunError(
            f"{run.path}: found no conversation to export ({done.failed} failed, {done.flagged} "
            f"flagged, {done.left_out} left out)"
        )
    for what, count in lost.items():
        if count:
            done.notes.append(f"{target} cannot hold the {what} of {count} conversations")
    return done


def _lines(
    run: Run,
    target: Target,
    plan: ExportPlan | None,
    without: Collection[str],
    done: ExportResult,
    lost: dict[str, int],
) -> Iterator[tuple[Split, Line, int]]:
    """Yield (split, line, copies) of a run's conversations; count what is left out or lost."""
    shape, credit = FORMATS[target], newest_advantages(run)
    any_metadata = shape.metadata and any(talk.metadata for talk in run.conversations())
    any_tools = any(_tools(run, talk) for talk in run.conversations())
    for talk in run.conversations():
        name, split = talk.conversation_id, run.examples[talk.example_id].split
        weighed = plan if plan is not None and split == plan.split else None
        times = 1 if weighed is None else weighed.repeat_count(name)
        if talk.failure is not None:
            done.failed += 1
            continue
        if name in without:
            done.flagged += 1
            continue
        if times == 0:
            done.left_out += 1
            done.negative += weighed is not None and weighed.weights.get(name, 0.0) < 0
            continue
        thought = any(turn.reasoning and turn.reasoning.text for turn in talk.turns)
        lost["reasoning"] += bool(shape.drops_reasoning and thought)
        lost["metadata"] += bool(talk.metadata) and not (shape.metadata or target == "atif")
        lost["turns' advantages"] += name in credit and not shape.metadata
        if target == "atif":
            yield split, as_trajectory(run, talk), times
            continue
        line = _line(run, talk, shape, weighed)
        if any_tools:
            line = _add_tools(line, target, _tools(run, talk))
        if any_metadata:
            line["metadata"] = orjson.dumps(talk.metadata).decode() if talk.metadata else ""
        if shape.metadata and name in credit:
            turns = policy_turns(run.manifest.protocol, talk)
            line["advantages"] = [credit[name].get(turn) for turn in turns]
        yield split, line, times


def _tools(run: Run, talk: Conversation) -> list[dict[str, Any]]:
    """Return the tools that the policy was offered: a logged conversation's own, or the run's."""
    protocol = run.manifest.protocol
    return list(talk.tools) or protocol.speakers[protocol.policy].tool_schemas


def _line(run: Run, talk: Conversation, shape: ExportFormat, plan: ExportPlan | None) -> Line:
    protocol = run.manifest.protocol
    chat = as_chat(messages_before(protocol, talk, protocol.policy, replay="always"))
    while chat and chat[-1]["role"] not in (
        "assistant",
        "tool",
    ):  # messages without a reply teach nothing
        chat.pop()
    if plan is None or plan.repeats is not None or shape.weighted is None:
        return shape.chat(chat)
    return shape.weighted(chat, plan.weights[talk.conversation_id])


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
    pairs: Iterable[tuple[Iterable[Message], Message, Message]],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    named: bool = False,
) -> ExportResult:
    """Write `train.jsonl` of pairs (prompt, better reply, worse reply) and return its path and
    number of rows. `tools` are those that were offered.

    Raise RunError if the format cannot hold pairs. Without pairs no file is written.
    """
    write = FORMATS[target].pair
    if write is None:
        places = ", ".join(name for name, known in FORMATS.items() if known.pair)
        raise RunError(f"--to {target} cannot hold pairs of replies; expected one of {places}")
    train: Split = "train"  # pairs come from this split alone

    def lines() -> Iterator[tuple[Split, Line, int]]:
        for prompt, good, bad in pairs:
            line = write(as_chat(prompt), as_chat([good]), as_chat([bad]))
            yield train, _add_tools(line, target, tools) if tools else line, 1

    return ExportResult(*_write_lines(folder, lines(), named=named))


def _write_lines(
    folder: Path, lines: Iterable[tuple[Split, Line, int]], *, named: bool
) -> tuple[dict[Split, Path], dict[str, int]]:
    """Write (split, line, copies), the line of most kinds of messages first; return paths and row
    counts by split. Files are moved into place only when all are written. Raises RunError."""
    rows: dict[str, int] = {}
    first: dict[str, tuple[int, bytes]] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with make_workspace(folder, ".export-") as space:
            for split, line, copies in lines:
                data = orjson.dumps(line) + b"\n"
                said = line.get("messages") or line.get("prompt") or ()
                kinds = len({tuple(message) for message in said})
                held = first.get(split, (0, b""))
                rows[split] = rows.get(split, 0) + copies
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
    return paths, rows
