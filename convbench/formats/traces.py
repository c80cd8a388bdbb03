"""Traces of programs around a model, a step (a call of a model or a tool, an agent) at a time. Each
call of a model logs its whole history; what another begins with is a copy, dropped later."""

from collections import defaultdict

from convbench.formats.log import Item, Items, LeftOut, LogConversation, LogMessage
from convbench.formats.values import as_text

MODELS = ("llm", "generation", "chat", "generate_content", "text_completion")
TOOLS = ("tool", "execute_tool")


def read_steps(steps: Items) -> Items:
    """Yield what the outermost calls of models were asked and said; where none was asked, what the
    outermost steps were; where calls lack their history, all as one, with the tools' results."""
    traces: dict[str, list[LogConversation]] = defaultdict(list)
    for step in sorted(steps, key=lambda step: as_text(getattr(step, "time", ""))):
        if isinstance(step, LeftOut):
            yield step
        else:
            traces[as_text(step.id)].append(step)
    for trace in traces.values():
        said = [step for step in trace if step.has_reply]
        logs = _outermost([step for step in said if step.kind in MODELS])
        messages = [message for log in logs for message in log.messages]
        asked = sum(message.role != "assistant" for message in messages)
        tools = [step for step in trace if step.kind in TOOLS]
        if not asked:
            logs = _outermost(said)
        elif asked <= len(logs) > 1 and tools and any(message.calls for message in messages):
            whole = [message for message in logs[0].messages if message.role != "assistant"]
            for step in (step for step in trace if step in logs or step in tools):
                own = [message for message in step.messages if message.role == "assistant"]
                result = LogMessage("tool", "\n".join(message.text for message in own))
                whole += [result] if step in tools else own
            logs[0].messages, logs = whole, logs[:1]
        found: list[Item] = [*logs] or [LeftOut("a trace without the content of a call")]
        yield from found


def _outermost(steps: list[LogConversation]) -> list[LogConversation]:
    marks = {step.step for step in steps} - {None}
    return [step for step in steps if step.within not in marks]
