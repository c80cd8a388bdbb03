"""Write conversations and pairs of replies in other programs' formats, a file a split."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from convbench import __version__
from convbench.errors import RunError
from convbench.formats.values import as_mapping, parsed
from convbench.schema import Conversation, Message, ProtocolSpec, ToolCall, ToolRound, Turn, text_of
from convbench.schema.task import SPLITS, Split
from convbench.store import Run
from convbench.store.jsonl import disk_error, move_to_user_file, raw_lines
from convbench.store.notes import newest_advantages
from convbench.store.scratch import make_workspace
from convbench.util.untrusted import loads
from convbench.views import messages_before, policy_turns, wire_messages

Target = Literal["trl", "openai", "sharegpt", "ms-swift", "atif"]
THOUGHT = "reasoning_content"  # as chat templates and ATIF name it
Line = dict[str, Any]
Tools = Sequence[Mapping[str, Any]] | None  # None: no line of the file has any
Chosen = tuple[Conversation, float | None, int]  # its weight above 0 or None, number of copies
Pair = tuple[Iterable[Message], Message, Message, Tools]  # prompt, better reply, worse one
NAMES = {"system": "system", "user": "human", "assistant": "gpt"}  # ShareGPT's by ms-swift's
NAMES |= {"tool_call": "function_call", "tool_response": "observation"}
ADDED_TO = ("trl", "sharegpt")  # whose readers pass over `metadata`, JSON text, and `advantages`
WEIGHING = {  # what the trainers need to use the weights, of targets that hold them
    "trl": "SFTTrainer does not read `weight`; WeightedSFT on the page on import and export does",
    "ms-swift": "ms-swift reads `loss_scale` only with --is_binary_loss_scale false (from 4.2 on)",
}


@dataclass
class ExportResult:
    """What was written."""

    files: dict[Split, Path]
    rows: dict[Split, int]
    left_out: Counter[str] = field(default_factory=Counter)  # conversations by reason
    notes: list[str] = field(default_factory=list)


def export_conversations(
    run: Run, target: Target, folder: Path, chosen: Iterable[Chosen]
) -> ExportResult:
    """Write `SPLIT.jsonl` of chosen conversations; existing files keep links, mode and owner."""
    protocol, policy = run.manifest.protocol, run.manifest.protocol.policy
    any_metadata = any(talk.metadata for talk in run.conversations())
    any_tools = any(offered_tools(protocol, talk) for talk in run.conversations())
    credit, lost = newest_advantages(run), Counter[str]()

    def lines() -> Iterator[tuple[Split, Line, int]]:
        for talk, weight, copies in chosen:
            tools, advantages = offered_tools(protocol, talk), credit.get(talk.conversation_id)
            lost["turns' advantages"] += bool(advantages) and target not in ADDED_TO
            lost["metadata"] += bool(talk.metadata) and target not in (*ADDED_TO, "atif")
            if target == "atif":
                line = _trajectory(run, talk, tools)
            else:
                chat = wire_messages(messages_before(protocol, talk, policy, replay="always"))
                while chat and chat[-1]["role"] not in ("assistant", "tool"):
                    chat.pop()  # what comes after the last reply teaches nothing
                lost["reasoning"] += target == "openai" and any(m.get(THOUGHT) for m in chat)
                line = _line(target, chat, tools if any_tools else None, weight)
            if any_metadata and target in ADDED_TO:
                line["metadata"] = orjson.dumps(talk.metadata).decode() if talk.metadata else ""
            if advantages and target in ADDED_TO:
                line["advantages"] = [advantages.get(turn) for turn in policy_turns(protocol, talk)]
            yield run.examples[talk.example_id].split, line, copies

    done = _write_lines(folder, lines())
    for what, count in (+lost).items():
        done.notes.append(f"{target} cannot hold the {what} of {count} conversations")
    if target == "trl":
        done.notes += ["SFTTrainer learns every message unless SFTConfig(assistant_only_loss=True)"]
    return done


def export_pairs(target: Target, folder: Path, pairs: Iterable[Pair]) -> ExportResult:
    """Write `train.jsonl` of pairs; without any no file. Raise RunError if the format has none."""
    if target in ("sharegpt", "atif"):
        raise RunError(f"--to {target} cannot hold pairs; expected one of trl, openai, ms-swift")
    return _write_lines(folder, (("train", _pair_line(target, pair), 1) for pair in pairs))


def offered_tools(protocol: ProtocolSpec, talk: Conversation) -> list[dict[str, Any]]:
    """Return the tools that the policy was offered: a logged conversation's own, or the run's."""
    return list(talk.tools) or protocol.speakers[protocol.policy].tool_schemas


def tag_reasoning(message: Mapping[str, Any]) -> str:
    """Return a message's `content` with its `reasoning_content` in <think> tags before it."""
    thought, text = str(message.get(THOUGHT) or "").strip("\n"), str(message["content"])
    return f"<think>\n{thought}\n</think>\n\n{text}" if thought else text


def _pair_line(target: Target, pair: Pair) -> Line:
    prompt, good, bad, tools = pair
    asked, better, worse = map(wire_messages, (prompt, [good], [bad]))
    if target == "ms-swift":
        line, other = (_line(target, asked + reply, tools) for reply in (better, worse))
        has_calls = any("tool_calls" in reply[0] for reply in (better, worse))
        if asked[-1]["role"] == "user" and not has_calls:  # which ms-swift's reply stands behind
            other = {"response": other["messages"][-1]["content"]}
        return line | {f"rejected_{name}": value for name, value in other.items()}
    line = _line(target, asked, tools)
    better, worse = (_line(target, reply, None)["messages"] for reply in (better, worse))
    if target == "openai":
        return {"input": line, "preferred_output": better, "non_preferred_output": worse}
    return {"prompt": line.pop("messages"), "chosen": better, "rejected": worse, **line}


def _line(target: Target, chat: list[Line], tools: Tools, weight: float | None = None) -> Line:
    if target == "openai":  # whose calls have arguments as text
        chat = [{k: v for k, v in m.items() if k != THOUGHT} for m in chat]
    else:
        for function in (call["function"] for m in chat for call in m.get("tool_calls", ())):
            function["arguments"] = parsed(function["arguments"])
    if target in ("ms-swift", "sharegpt"):
        chat = list(_tagged(chat, weight))
    line: Line = {"messages": chat}
    if target == "sharegpt":
        line = {"conversations": [{"from": NAMES[m["role"]], "value": m["content"]} for m in chat]}
    if weight is not None and target == "trl":
        line["weight"] = weight
    if tools is not None:  # OpenAI's API takes a list; readers of columns take one type, a text
        line["tools"] = tools if target == "openai" else json.dumps(tools)
    return line


def _tagged(chat: list[Line], weight: float | None) -> Iterator[Line]:
    for m in chat:
        role, text, calls = m["role"], tag_reasoning(m), m.get("tool_calls", ())
        said = [("tool_response" if role == "tool" else role, text)] if text or not calls else []
        said += [("tool_call", json.dumps(c["function"], ensure_ascii=False)) for c in calls]
        mark = {"loss_scale": weight} if role == "assistant" and weight is not None else {}
        yield from ({"role": role, "content": text, **mark} for role, text in said)


def _trajectory(run: Run, talk: Conversation, tools: list[Line]) -> Line:
    policy, example = run.manifest.protocol.policy, run.examples[talk.example_id]
    extra = {"example_id": talk.example_id, "group": example.group_id, "split": example.split}
    if "steps" in (logged := as_mapping(talk.metadata.get("atif"))):  # given back as it came
        return {**logged, "extra": {**as_mapping(logged.get("extra")), **extra}}
    sources = {"assistant": "agent", "system": "system", policy: "agent"}
    system = talk.systems.get(policy)
    steps: list[Line] = [{"source": "system", "message": system}] if system is not None else []
    for turn in talk.turns:
        steps += _steps(turn, sources.get(turn.speaker, "user"))
    about: Line = {"name": "convbench", "version": __version__}
    about["model_name"] = run.manifest.policy_member.model
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": talk.conversation_id,
        "agent": about | ({"tool_definitions": tools} if tools else {}),
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "extra": extra | ({"metadata": talk.metadata} if talk.metadata else {}),
    }


def _steps(turn: Turn, source: str) -> Iterator[Line]:
    counts = {"prompt_tokens", "completion_tokens", "cost_usd"}
    metrics = turn.model_dump(include=counts, exclude_none=True)
    parts: list[ToolRound | Turn] = [*turn.rounds]
    parts += [turn] if turn.content or not turn.rounds else []
    for part in parts:
        step: Line = {"source": source, "message": text_of(part.content)}
        if part.reasoning and part.reasoning.text:
            step[THOUGHT] = part.reasoning.text
        if isinstance(part, ToolRound):
            step["tool_calls"] = [_atif_call(call) for call in part.calls]
            results = [{"source_call_id": r.id, "content": r.content} for r in part.results]
            step |= {"observation": {"results": results}} if results else {}
        if source == "agent" and turn.finish_reason == "scripted":
            step["is_copied_context"] = True
        if source == "agent" and turn.finish_reason == "length" and part is turn:
            step["extra"] = {"finish_reason": "length"}
        yield step | ({"metrics": metrics} if metrics else {})
        metrics = {}


def _atif_call(call: ToolCall) -> Line:
    given = parsed(call.arguments)
    given = given if isinstance(given, dict) else {"input": given}
    return {"tool_call_id": call.id, "function_name": call.name, "arguments": given}


def _write_lines(folder: Path, lines: Iterable[tuple[Split, Line, int]]) -> ExportResult:
    """Write (split, line, copies). The line whose messages differ most in their keys comes first:
    readers of columns (`datasets.load_dataset`) take types from it."""
    rows, first = Counter[Split](), dict[Split, tuple[int, bytes]]()
    try:
        with make_workspace(folder, ".export-") as space:
            for split, line, copies in lines:
                data = orjson.dumps(loads(json.dumps(line).encode())) + b"\n"  # no half characters
                kinds = len({tuple(m) for m in line.get("messages") or line.get("prompt") or ()})
                rows[split] += copies
                most, held = first.get(split, (-1, b""))
                with (space / split).open("ab") as file:
                    if kinds > most:
                        first[split], copies = (kinds, data), copies - 1
                        file.write(held)
                    file.write(data * copies)
            paths = {split: folder / f"{split}.jsonl" for split in SPLITS if split in rows}
            for split, path in paths.items():  # only when all are written
                whole = space / path.name
                with whole.open("wb") as file:
                    file.write(first[split][1])
                    file.writelines(raw_lines(space / split))
                move_to_user_file(whole, path)
    except OSError as error:
        raise disk_error(folder, error) from None
    return ExportResult(paths, dict(rows))
