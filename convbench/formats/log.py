"""The one shape that every reader yields: a logged conversation as its source had it, with nothing
paired, merged or refused yet; `fold.py` turns that into the turns of a run.

    {"messages": [{"role": "assistant", "tool_calls": [{"id": "c1", "function": {…}}]},
                  {"role": "tool", "tool_call_id": "c1", "content": "7"}], "reward": 1}    becomes
    LogConversation(messages=[LogMessage("assistant", calls=[Call("weather", "{}", "c1")]),
                              LogMessage("tool", "7", call_id="c1")], rewards={"reward": 1})
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from convbench.errors import ConvbenchError

Role = Literal["system", "user", "assistant", "tool"]
Usage = tuple[int | None, int | None, float | None]  # tokens of prompt and reply, dollars
# What reading a value of another shape than expected raises.
IRREGULAR = (TypeError, LookupError, AttributeError, ValueError, RecursionError, OverflowError)


class LeftOut(ConvbenchError):
    """A record from which no conversation comes, with the reason, by which it is counted."""

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(reason)
        self.where = where  # the place of the record


@dataclass(slots=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: str = "{}"  # JSON text of an object, as logged
    id: str | None = None  # as logged: may be missing, repeated or wrong
    result: LogMessage | None = None  # given by `fold`


@dataclass(slots=True)
class LogMessage:
    """One message, result or piece of a reply."""

    role: Role
    text: str = ""
    reasoning: str = ""  # what was thought before it, as far as it can be read
    calls: list[Call] = field(default_factory=list)
    call_id: str | None = None  # of role tool: the call that it claims to answer
    name: str | None = None  # who spoke, where several did
    model: str | None = None
    group: str | None = None  # messages of one group were one reply
    usage: Usage = (None, None, None)
    pictures: int = 0  # pictures, sounds and files, each a mark in the text
    error: bool = False  # of role tool: whether the call failed
    finish: str | None = None  # why the reply ended, as logged
    context: bool = False  # not to be learnt, though an assistant said it
    extra: dict[str, Any] = field(default_factory=dict)  # further keys of the message


@dataclass(slots=True)
class LogConversation:
    """One conversation with what its source says about it, each value as it is there."""

    messages: list[LogMessage] = field(default_factory=list)
    id: Any = None  # its own id in the source
    task: Any = None  # id of the question
    trial: int | None = None  # number among the tries at the question
    group: Any = None  # the independent unit
    split: Any = None
    rewards: dict[str, Any] = field(default_factory=dict)  # by name; see `values.named_scores`
    question: str | None = None
    choices: list[str] = field(default_factory=list)
    answer: str | None = None
    hidden: dict[str, Any] = field(default_factory=dict)  # what the policy did not see
    tools: Any = None  # tools that were offered, in any of their forms
    temperature: Any = None
    parent: Any = None  # id of the conversation that started this sub-agent
    stop: Literal["complete", "limit"] = "complete"
    failure: str | None = None  # why the program around the model failed, not the model
    time: Any = None  # when it began
    metadata: dict[str, Any] = field(default_factory=dict)
    kind: str = ""  # of a step of a trace, whose id is `id`: a call of a model or tool, an agent
    step: Any = None  # the step's own id
    within: Any = None  # id of the step that it is a part of
    dropped: Counter[str] = field(default_factory=Counter)  # what the reader left out, by kind
    where: str = ""  # the place of its record

    @property
    def has_reply(self) -> bool:
        """Return whether an assistant said or did something in it."""
        return any(message.role == "assistant" for message in self.messages)

    def add(self, read: Callable[..., Iterable[LogMessage]], *line: Any) -> None:
        """Add the messages that `read` makes of a line; one of another shape is counted."""
        try:
            self.messages += read(*line)
        except (LeftOut, *IRREGULAR):
            self.dropped["lines that cannot be read"] += 1


Item = LogConversation | LeftOut  # what a reader makes of a record
Items = Iterator[Item]


def each(items: Iterable[Any], read: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    """Yield what `read` makes of each item; one of another shape is left out."""
    for item in items:
        try:
            yield from read(item)
        except (LeftOut, *IRREGULAR) as error:
            odd = f"not of the format ({type(error).__name__})"
            reason = str(error) if isinstance(error, LeftOut) else odd
            yield LeftOut(reason, getattr(item, "where", ""))
