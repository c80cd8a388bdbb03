"""Write a run's conversations, or pairs of replies, in other trainers' formats: a file a split."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from convbench.errors import RunError
from convbench.formats.targets import CALLS, FORMATS, THOUGHT, Chat, Line, Target
from convbench.schema import Conversation, Message, text_of
from convbench.schema.example import SPLITS, Split
from convbench.store import Run
from convbench.store.credit import newest_advantages
from convbench.store.jsonl import disk_error, move_to_user_file
from convbench.store.scratch import make_workspace
from convbench.views import messages_before, policy_turns


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
        """Return how often a conversation of the split is written. No format can express that a
        reply is to be unlearnt, so it is 0 for a weight of 0 or less."""
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
    """Write `SPLIT.jsonl` into a folder and return the counts. Failed conversations are left out,
    and those whose ids are in `without`. `named` means that the user chose the folder: existing
    files keep their links, mode and owner.

    trl: {messages, weight?, advantages?} for SFTTrainer, one advantage a policy turn; openai:
    {messages} of the fine-tuning API; sharegpt: {conversations: [{from, value}]}; ms-swift:
    {messages} with `loss_scale` on the assistant's messages. Raises RunError if the format cannot
    hold weights, or no conversation is left.
    """
    if plan and plan.repeats is None and FORMATS[target].weighted is None:
        places = " or ".join(name for name, known in FORMATS.items() if known.weighted)
        raise RunError(
            f"--to {target} has no place for weights; give --scale S to repeat whole conversations "
            f"by randomized rounding, or use --to {places}"
        )
    done = ExportResult()
    done.files, done.rows = _write_lines(
        folder, _export_lines(run, target, plan, without, done), named=named
    )
    if done.without_credit:
        done.notes.append(
            f"the turns' advantages of {done.without_credit} conversations have no place in "
            f"{target}"
        )
    if not done.rows:
        raise RunError(
            f"{run.path}: found no conversation to export ({done.failed} failed, {done.flagged} "
            f"flagged, {done.left_out} left out)"
        )
    if done.without_metadata:
        done.notes.append(
            f"the metadata of {done.without_metadata} conversations has no place in {target}"
        )
    if done.without_reasoning:
        done.notes.append(
            f"the reasoning of {done.without_reasoning} conversations has no place in {target}"
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
    """Write `train.jsonl` of pairs (prompt, better reply, worse reply), with the tools that were
    offered.

    trl: {prompt, chosen, rejected, tools?} for DPOTrainer; openai: {input, preferred_output,
    non_preferred_output}; ms-swift: {messages, rejected_response}, or `rejected_messages` if
    a reply calls tools. Raises RunError if the format cannot hold pairs.
    """
    write = FORMATS[target].pair
    if write is None:
        places = ", ".join(name for name, known in FORMATS.items() if known.pair)
        raise RunError(f"--to {target} has no place for pairs of replies; expected one of {places}")
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
