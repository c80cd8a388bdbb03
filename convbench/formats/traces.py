"""Traces of programs around a model, a step (a call of a model or a tool, an agent) at a time. Each
call of a model logs its whole history, so that an agent's last call holds its conversation, and
what another begins with is a copy, which is dropped later."""

from collections import defaultdict

from convbench.formats.log import Items, LeftOut, LogConversation, LogMessage
from convbench.formats.values import as_text

MODELS = ("llm", "generation", "chat", "generate_content", "text_completion")
TOOLS = ("tool", "execute_tool")
AGENTS = ("agent", "invoke_agent")


def read_steps(steps: Items) -> Items:
    """Yield what the models of each trace were asked and said, but not a call within another's.

    Where no call says what it was asked, that is what the trace, its agents or its roots were asked
    and said; where none has its history, all are one, with the results of tools by their time.
    """
    traces: dict[str, list[LogConversation]] = defaultdict(list)
    for step in sorted(steps, key=lambda step: as_text(getattr(step, "time", ""))):
        if isinstance(step, LeftOut):
            yield step
        else:
            traces[as_text(step.id)].append(step)
    for trace in traces.values():
        said = [step for step in trace if step.has_reply]
        models = {step.step for step in said if step.kind in MODELS} - {None}
        logs = [step for step in said if step.kind in MODELS and step.within not in models]
        messages = [message for log in logs for message in log.messages]
        asked = sum(message.role != "assistant" for message in messages)
        tools = [step for step in trace if step.kind in TOOLS]
        if not asked:
            marks = {step.step for step in trace} - {None}
            wholes = [step for step in said if step.kind == "trace"]
            agents = [step for step in said if step.kind in AGENTS]
            logs = wholes or agents or [step for step in said if step.within not in marks] or logs
        elif asked <= len(logs) > 1 and tools and any(message.calls for message in messages):
            messages = [message for message in logs[0].messages if message.role != "assistant"]
            for step in (step for step in trace if step in logs or step in tools):
                own = [message for message in step.messages if message.role == "assistant"]
                result = LogMessage("tool", "\n".join(message.text for message in own))
                messages += [result] if step in tools else own
            logs = logs[:1]
            logs[0].messages = messages
        if not logs:
            yield LeftOut("a trace without the content of a call")
        yield from logs
