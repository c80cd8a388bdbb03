"""Traces of programs around a model, a step (a call of a model or a tool, an agent) at a time. Each
call of a model logs its whole history, so that an agent's last call holds its conversation, and
what another begins with is a copy, which is dropped later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from convbench.formats.chats import read_exchange
from convbench.formats.log import Items, LeftOut, LogConversation, LogMessage
from convbench.formats.values import as_text

MODELS = ("llm", "generation", "chat", "generate_content", "text_completion")
TOOLS = ("tool", "execute_tool")
AGENTS = ("agent", "invoke_agent")
"""Kinds of steps under the names in use, in small letters."""


@dataclass(eq=False)
class Step:
    """A step: what it was asked and said, in any shape, and what else its log says."""

    kind: str  # one of those above, "trace" for a trace as a whole, or another
    asked: Any
    said: Any
    log: LogConversation  # without messages; its id is the trace's
    own: dict[str, Any] = field(default_factory=dict)  # fields of the reply: model, usage
    id: Any = None
    parent: Any = None


def read_steps(steps: Iterable[Step]) -> Items:
    """Yield what the models of each trace were asked and said, but not a call within another's.

    Where no call says what it was asked, that is what the trace, its agents or its roots were asked
    and said; where none has its history, all are one, with the results of tools by their time.
    """
    traces: dict[str, list[Step]] = defaultdict(list)
    for step in sorted(steps, key=lambda step: as_text(step.log.time)):
        traces[as_text(step.log.id)].append(step)
    for trace in traces.values():
        models = {step.id for step in trace if step.kind in MODELS and step.said} - {None}
        parts = [
            s for s in trace if s.kind in TOOLS or (s.kind in MODELS and s.parent not in models)
        ]
        logs = _read(part for part in parts if part.kind in MODELS)
        messages = [message for log in logs for message in log.messages]
        asked = sum(message.role != "assistant" for message in messages)
        if not asked:
            wholes = _read(step for step in trace if step.kind == "trace")
            agents = wholes or _read(step for step in trace if step.kind in AGENTS)
            marks = {step.id for step in trace} - {None}
            logs = agents or _read(step for step in trace if step.parent not in marks) or logs
        elif asked <= len(logs) > 1 and len(parts) > len(logs) and any(m.calls for m in messages):
            logs = logs[:1]
            logs[0].messages = [m for m in logs[0].messages if m.role != "assistant"]
            for part in parts:
                said = [m for m in _messages(part) if m.role == "assistant"]
                result = LogMessage("tool", "\n".join(message.text for message in said))
                logs[0].messages += [result] if part.kind in TOOLS else said
        if not logs:
            yield LeftOut("a trace without the content of a call")
        yield from logs


def _read(steps: Iterable[Step]) -> list[LogConversation]:
    for step in (steps := list(steps)):
        step.log.messages = _messages(step)
    return [step.log for step in steps if step.log.has_reply]


def _messages(step: Step) -> list[LogMessage]:
    return read_exchange(step.asked, step.said, **step.own)
