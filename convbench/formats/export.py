"""Write a run's conversations, or pairs of replies, in other trainers' formats: a file a split."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import orjson

from convbench.errors import RunError
from convbench.schema import Conversation, Message, text_of
from convbench.schema.task import SPLITS, Split
from convbench.store import Run
from convbench.store.jsonl import disk_error, move_to_user_file
from convbench.store.notes import newest_advantages
from convbench.store.scratch import make_workspace
from convbench.views import messages_before, policy_turns

Target = Literal["trl", "openai", "sharegpt", "ms-swift"]

CALLS = "tool_calls"
THOUGHT = "reasoning_content"
"""Further keys of an assistant's message, as chat templates read them."""
OWN = ("assistant", "tool_call")
"""ms-swift's roles of messages that the policy wrote."""
Chat = list[dict[str, Any]]
"""Messages {role, content, reasoning_content?} as the policy saw them, with its reasoning."""
Line = dict[str, Any]
"""One object of a JSON lines file."""


@dataclass(frozen=True)
class ExportFormat:
    """One trainer's format, as functions and properties."""

    chat: Callable[[Chat], Line]
    """Returns the line of a conversation."""
    weighted: Callable[[Chat, float], Line] | None = None
    """Returns the line of a conversation with a weight above 0; None if it cannot hold weights."""
    pair: Callable[[Chat, Chat, Chat], Line] | None = None
    """Returns the line of a prompt, the better reply and the worse one; None if it cannot hold
    pairs."""
    pair_tools: Callable[[Line, Any], None] = lambda line, tools: line.update(tools=tools)
    """Adds the tools to the line of a pair."""
    needs: tuple[str, ...] = ()
    """Notes on settings its trainer needs to learn only the policy's turns."""
    metadata: bool = False
    """Whether its rows may have a column `metadata`: that of imported logs, as JSON text."""
    drops_reasoning: bool = False
    """Whether it cannot hold reasoning."""
    tools: Callable[[list[dict[str, Any]]], Any] = list
    """Returns the value of a line's `tools`."""
    weighing: str = ""
    """Note on settings its trainer needs to use the weights."""
    negative: str = ""
    """Note on what its trainer would do with a weight below 0."""


def _messages_line(chat: Chat) -> Line:
    return {"messages": _object_calls(chat)}


def _bare_line(chat: Chat) -> Line:
    return {"messages": [{k: v for k, v in m.items() if k != THOUGHT} for m in chat]}


def tag_reasoning(message: Mapping[str, Any]) -> str:
    """Return a message's `content` with its `reasoning_content` in <think> tags before it; the
    content alone if there is none."""
    thought, text = str(message.get(THOUGHT) or "").strip("\n"), str(message["content"])
    return f"<think>\n{thought}\n</think>\n\n{text}" if thought else text


def _tagged_chat(chat: Chat) -> Chat:
    """Return messages as ms-swift reads them: reasoning in tags, each call as a message of role
    `tool_call`, each result as one of role `tool_response`."""
    out: Chat = []
    for m in chat:
        if m["role"] == "tool":
            out.append({"role": "tool_response", "content": m["content"]})
            continue
        if tag_reasoning(m) or not m.get(CALLS):
            out.append({"role": m["role"], "content": tag_reasoning(m)})
        out += [{"role": "tool_call", "content": _call_text(call)} for call in m.get(CALLS, ())]
    return out


def _call_text(call: Mapping[str, Any]) -> str:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        arguments = function["arguments"]
    return json.dumps({"name": function["name"], "arguments": arguments}, ensure_ascii=False)


def _object_calls(chat: Chat) -> Chat:
    """Return messages with the arguments of calls as objects, as chat templates expect them."""
    return [
        {**m, CALLS: [_object_call(call) for call in m[CALLS]]} if m.get(CALLS) else m for m in chat
    ]


def _object_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = json.loads(_call_text(call))
    return {**call, "function": function}


def _trl_pair(prompt: Chat, chosen: Chat, rejected: Chat) -> Line:
    return {
        "prompt": _object_calls(prompt),
        "chosen": _object_calls(chosen),
        "rejected": _object_calls(rejected),
    }


def _openai_pair(prompt: Chat, chosen: Chat, rejected: Chat) -> Line:
    return {
        "input": {"messages": prompt},
        "preferred_output": chosen,
        "non_preferred_output": rejected,
    }


def _swift_pair(prompt: Chat, chosen: Chat, rejected: Chat) -> Line:
    """Return the line of a pair: two complete conversations if a reply calls tools, else the worse
    reply as text."""
    line: Line = {"messages": _tagged_chat([*prompt, *chosen])}
    if chosen[0].get(CALLS) or rejected[0].get(CALLS):
        return {**line, "rejected_messages": _tagged_chat([*prompt, *rejected])}
    return {**line, "rejected_response": rejected[0]["content"]}


def _swift_pair_tools(line: Line, tools: Any) -> None:
    line["tools"] = tools
    if "rejected_messages" in line:
        line["rejected_tools"] = tools


def _sharegpt_line(chat: Chat) -> Line:
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    names |= {"tool_call": "function_call", "tool_response": "observation"}
    return {
        "conversations": [
            {"from": names[m["role"]], "value": m["content"]} for m in _tagged_chat(chat)
        ]
    }


def _scaled_line(chat: Chat, weight: float) -> Line:
    messages = _tagged_chat(chat)
    return {"messages": [{**m, "loss_scale": weight} if m["role"] in OWN else m for m in messages]}


FORMATS: Mapping[Target, ExportFormat] = {
    # TRL's SFTTrainer and DPOTrainer, conversational datasets.
    "trl": ExportFormat(
        _messages_line,
        weighted=lambda chat, weight: {"messages": _object_calls(chat), "weight": weight},
        pair=_trl_pair,
        metadata=True,
        needs=("SFTTrainer learns every message unless SFTConfig(assistant_only_loss=True)",),
        weighing="SFTTrainer does not read `weight`: every row counts 1 there. "
        "convbench.formats.trl.WeightedSFTTrainer multiplies the loss of each row by it",
        negative="SFTTrainer would imitate them",
    ),
    # OpenAI's fine-tuning API, supervised and DPO.
    "openai": ExportFormat(
        _bare_line,
        pair=_openai_pair,
        pair_tools=lambda line, tools: line["input"].update(tools=tools),
        drops_reasoning=True,
    ),
    "sharegpt": ExportFormat(_sharegpt_line, metadata=True, tools=json.dumps),
    # ms-swift's custom datasets; `loss_scale` multiplies the loss of a message's tokens.
    "ms-swift": ExportFormat(
        lambda chat: {"messages": _tagged_chat(chat)},
        tools=json.dumps,
        weighted=_scaled_line,
        pair=_swift_pair,
        pair_tools=_swift_pair_tools,
        weighing="ms-swift reads `loss_scale` with --is_binary_loss_scale false (4.2 or newer); "
        "without it every row counts 1. The end of a turn counts 1 in either case",
        negative="its templates mask all of them but the end of the turn",
    ),
}


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
        without `repeats` 1 for a weight above 0; else 0.

        No format can express that a reply is to be unlearnt, so a weight of 0 or less gives 0.
        """
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
    without_metadata: int = 0
    """Number of conversations written without their metadata, which the format cannot hold."""
    without_credit: int = 0
    """Number of conversations written without their turns' credit, which the format cannot hold."""
    without_reasoning: int = 0
    """Number of conversations written without their reasoning, which the format cannot hold."""
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

    Failed conversations, and those whose ids are in `without`, are left out.

    Keys of a line: trl {messages, weight?, advantages?, metadata?}; openai {messages}; sharegpt
    {conversations, advantages?, metadata?}; ms-swift {messages}, weights as `loss_scale`; all with
    `tools` if any were offered. With `named` (the user chose the folder) existing files keep links,
    mode and owner. Raise RunError if the format cannot hold weights, or nothing is left.
    """
    if plan and plan.repeats is None and FORMATS[target].weighted is None:
        places = " or ".join(name for name, known in FORMATS.items() if known.weighted)
        raise RunError(
            f"--to {target} cannot hold weights; give --scale S to repeat whole conversations "
            f"by randomized rounding, or use --to {places}"
        )
    done = ExportResult()
    done.files, done.rows = _write_lines(
        folder, _export_lines(run, target, plan, without, done), named=named
    )
    if done.without_credit:
        done.notes.append(
            f"{target} cannot hold the turns' advantages of {done.without_credit} conversations"
        )
    if not done.rows:
        raise RunError(
            f"{run.path}: found no conversation to export ({done.failed} failed, {done.flagged} "
            f"flagged, {done.left_out} left out)"
        )
    if done.without_metadata:
        done.notes.append(
            f"{target} cannot hold the metadata of {done.without_metadata} conversations"
        )
    if done.without_reasoning:
        done.notes.append(
            f"{target} cannot hold the reasoning of {done.without_reasoning} conversations"
        )
    return done


def export_pairs(
    target: Target,
    folder: Path,
    pairs: Iterable[tuple[Iterable[Message], Message, Message]],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    named: bool = False,
) -> ExportResult:
    """Write `train.jsonl` of pairs (prompt, better reply, worse reply) and return its path and
    number of rows.

    Keys of a line: trl {prompt, chosen, rejected, tools?}; openai {input, preferred_output,
    non_preferred_output}; ms-swift {messages, rejected_response}, or `rejected_messages` if a reply
    calls tools. `tools` are those that were offered. Raise RunError if the format cannot hold
    pairs. Without pairs no file is written.
    """
    write = FORMATS[target].pair
    if write is None:
        places = ", ".join(name for name, known in FORMATS.items() if known.pair)
        raise RunError(f"--to {target} cannot hold pairs of replies; expected one of {places}")
    train: Split = "train"  # pairs come from this split alone
    shape, offered = FORMATS[target], [dict(tool) for tool in tools]

    def pair_line(prompt: Iterable[Message], good: Message, bad: Message) -> Line:
        row = write(_chat_messages(prompt), _chat_messages([good]), _chat_messages([bad]))
        if offered:
            shape.pair_tools(row, shape.tools(offered))
        return row

    return ExportResult(
        *_write_lines(folder, ((train, pair_line(*pair), 1) for pair in pairs), named=named)
    )


def _write_lines(
    folder: Path, lines: Iterable[tuple[Split, Line, int]], *, named: bool
) -> tuple[dict[Split, Path], dict[str, int]]:
    """Write (split, line, copies); return paths and row counts by split. Files are moved into place
    only when all are written. Raises RunError."""
    rows: dict[str, int] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with make_workspace(folder, ".export-") as space, ExitStack() as open_files:
            files: dict[str, BinaryIO] = {}
            for split, line, times in lines:
                if split not in files:
                    file = (space / f"{split}.jsonl").open("wb")
                    files[split] = open_files.enter_context(file)
                data = orjson.dumps(line) + b"\n"
                for _ in range(times):
                    files[split].write(data)
                rows[split] = rows.get(split, 0) + times
            open_files.close()
            paths = {name: folder / f"{name}.jsonl" for name in SPLITS if name in files}
            for name, path in paths.items():
                temporary = space / f"{name}.jsonl"
                move_to_user_file(temporary, path) if named else temporary.replace(path)
    except OSError as error:
        raise disk_error(folder, error) from None
    return paths, rows


def _export_lines(
    run: Run, target: Target, plan: ExportPlan | None, without: Collection[str], done: ExportResult
) -> Iterator[tuple[Split, Line, int]]:
    """Yield (split, line, copies) of a run's conversations; count in `done` what is left out."""
    credit = newest_advantages(run)
    for conversation in run.conversations():
        name, split = conversation.conversation_id, run.examples[conversation.example_id].split
        weighed = plan if plan is not None and split == plan.split else None
        times = 1 if weighed is None else weighed.repeat_count(name)
        if conversation.failure is not None:
            done.failed += 1
        elif name in without:
            done.flagged += 1
        elif times == 0:
            done.left_out += 1
            done.negative += weighed is not None and weighed.weights.get(name, 0.0) < 0
        else:
            done.without_reasoning += FORMATS[target].drops_reasoning and _has_reasoning(
                conversation
            )
            done.without_metadata += bool(conversation.metadata) and not FORMATS[target].metadata
            line = _export_line(run, conversation, target, weighed)
            if name in credit and FORMATS[target].metadata:
                turns = policy_turns(run.manifest.protocol, conversation)
                line["advantages"] = [credit[name].get(turn) for turn in turns]
            else:
                done.without_credit += name in credit
            yield split, line, times


def _has_reasoning(conversation: Conversation) -> bool:
    return any(turn.reasoning and turn.reasoning.text for turn in conversation.turns)


def _export_line(
    run: Run, conversation: Conversation, target: Target, plan: ExportPlan | None
) -> Line:
    protocol, shape = run.manifest.protocol, FORMATS[target]
    chat = _chat_messages(messages_before(protocol, conversation, protocol.policy, replay="always"))
    while chat and chat[-1]["role"] != "assistant":  # messages without a reply teach nothing
        chat.pop()
    if plan is None or plan.repeats is not None or shape.weighted is None:
        line = shape.chat(chat)
    else:
        line = shape.weighted(chat, plan.weights[conversation.conversation_id])
    tools = protocol.speakers[protocol.policy].tool_schemas
    if tools:
        line["tools"] = shape.tools(tools)
    if shape.metadata and conversation.metadata:
        line["metadata"] = orjson.dumps(conversation.metadata).decode()
    return line


def _chat_messages(view: Iterable[Message]) -> Chat:
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
