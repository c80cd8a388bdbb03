"""Traces of programs around a model, a step (a call of a model or a tool, an agent) at a time. Each
call of a model logs its whole history, so that an agent's last call holds its conversation, and
what another begins with is a copy, which is dropped later.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from convbench.formats.chats import read_exchange
from convbench.formats.log import Items, LeftOut, LogConversation, LogMessage, each
from convbench.formats.values import as_text

MODELS = ("llm", "generation", "chat", "generate_content", "text_completion")
TOOLS = ("tool", "execute_tool")
AGENTS = ("agent", "invoke_agent")  # kinds of steps under the names in use, in small letters


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
    odd: list[LeftOut] = []
    for trace in traces.values():
        models = {step.id for step in trace if step.kind in MODELS and step.said} - {None}
        outer = [step for step in trace if step.parent not in models or step.kind in TOOLS]
        parts = [step for step in outer if step.kind in MODELS + TOOLS]
        logs = _read([part for part in parts if part.kind in MODELS], odd)
        messages = [message for log in logs for message in log.messages]
        asked = sum(message.role != "assistant" for message in messages)
        if not asked:
            marks = {step.id for step in trace} - {None}
            wholes = [step for step in trace if step.kind == "trace"]
            agents = [step for step in trace if step.kind in AGENTS]
            roots = [step for step in trace if step.parent not in marks]
            logs = _read(wholes, odd) or _read(agents, odd) or _read(roots, odd) or logs
        elif asked <= len(logs) > 1 and len(parts) > len(logs) and any(m.calls for m in messages):
            messages = [message for message in logs[0].messages if message.role != "assistant"]
            for part in parts:
                said = [m for m in _filled(part).messages if m.role == "assistant"]
                result = LogMessage("tool", "\n".join(message.text for message in said))
                messages += [result] if part.kind in TOOLS else said
            logs = logs[:1]
            logs[0].messages = messages
        if not logs and not odd:
            yield LeftOut("a trace without the content of a call")
        yield from logs
    yield from odd


def _read(steps: list[Step], odd: list[LeftOut]) -> list[LogConversation]:
    found = list(each(steps, _filled))
    odd += [item for item in found if isinstance(item, LeftOut)]
    return [item for item in found if isinstance(item, LogConversation) and item.has_reply]


def _filled(step: Step) -> LogConversation:
    step.log.messages = read_exchange(step.asked, step.said, **step.own)
    return step.log
