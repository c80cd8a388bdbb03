"""Traces of programs around a model, a step (a call of a model or a tool, an agent) at a time. Each
call of a model logs its whole history, so that an agent's last call holds its conversation, and
what another begins with is a copy, which is dropped later."""

from collections import defaultdict

from convbench.formats.log import Items, LeftOut, LogConversation, LogMessage
from convbench.formats.values import as_text

MODELS = ("llm", "generation", "chat", "generate_content", "text_completion")
TOOLS = ("tool", "execute_tool")


def read_steps(steps: Items) -> Items:
    """Yield what the models of each trace were asked and said, but not a call within another's.

    Where no call says what it was asked, that is what the outermost steps were asked and said;
    where none has its history, all are one, with the results of tools by their time.
    """
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
        if not logs:
            yield LeftOut("a trace without the content of a call")
        yield from logs


def _outermost(steps: list[LogConversation]) -> list[LogConversation]:
    marks = {step.step for step in steps} - {None}
    return [step for step in steps if step.within not in marks]
