"""Protocol: who speaks, in which order, with which texts, and when it ends."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from convbench.schema.base import FrozenModel, Label, Mode, Name, PythonRef, Text, get_field
from convbench.schema.tools import Tool, ToolLimits, ToolServer

Framing = Literal["none", "llama-2"]
"""Marks around the messages that a speaker's model gets: none, or those of Llama 2's chat format
written out in the messages' text (`[INST] <<SYS>> ... <</SYS>> ... [/INST]`)."""

"""Which final answers are read: everything that chooses an option, or only the paper's phrase, "The
answer is X" in its usual variants."""


class Speaker(FrozenModel):
    """One side of a conversation."""

    policy: bool = False
    """True for the one speaker whose model is trained and evaluated."""
    system: Text | None = None
    """System prompt template."""
    sees: tuple[str, ...] = ()
    """Hidden fields (`answer` or names under the task's `rows.hidden`) this speaker may use."""
    default: str | None = None
    """Model if none is named: a model reference, `policy` (the policy's base model), or null, which
    requires one to be named."""
    opening: str | None = None
    """User message put first if this speaker would otherwise speak first."""
    history: Literal["all", "last"] = "all"
    """How much of the conversation this speaker's model gets."""
    private_before: str | None = None
    """Text of a turn up to and including this marker is private thought: others do not see it."""
    role: Literal["user", "system"] = Field(default="user", exclude_if=lambda role: role == "user")
    """Role of its messages to other speakers' models; `system` for system messages of a log that
    come after other messages."""
    heard_by: tuple[str, ...] = ()
    """The only other speakers that see this one's turns; empty: all do."""
    cut: int | None = Field(default=None, ge=1)
    """Others see at most this many characters of this speaker's turns; a scripted turn is seen in
    full."""
    temperature: float | None = Field(default=None, ge=0)
    """Fixed temperature; null takes the conversation's."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Fixed limit of a reply; null takes the run's."""
    tools: tuple[Tool, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Tools that this speaker's model may call before it says its turn."""
    tool_servers: dict[Name, ToolServer] = Field(default={}, exclude_if=lambda value: not value)
    """Servers whose tools are offered too. A run stores what they offered when it began."""
    tool_limits: ToolLimits = Field(
        default=ToolLimits(), exclude_if=lambda value: value == ToolLimits()
    )
    """Limits of tool use in one turn."""

    @property
    def tool_schemas(self) -> list[dict[str, Any]]:
        """Return the schemas of its tools as the chat API and chat templates take them."""
        return [tool.wire for tool in self.tools]

    @model_validator(mode="after")
    def _check_tools(self) -> Self:
        names = [tool.name for tool in self.tools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"tools: found {', '.join(twice)} twice; expected each name once")
        lost = {tool.server for tool in self.tools if tool.server} - set(self.tool_servers)
        if lost:
            servers = ", ".join(self.tool_servers) or "none"
            raise ValueError(f"tools: no server {', '.join(sorted(lost))}; expected {servers}")
        return self


class Step(FrozenModel):
    """One turn of one speaker. With `say` it is scripted, otherwise the speaker's model speaks."""

    id: Name
    """Name, by which tasks override its text."""
    speaker: str
    """Who speaks."""
    say: Text | None = None
    """Template of a scripted turn."""
    ask: Text | None = None
    """Instruction to the speaker, appended to the message it answers and left there in later
    turns."""
    words: int | None = Field(default=None, ge=1)
    """Word limit named in the prompt; an overrun is flagged, nothing is cut."""
    form: Literal["json"] | None = Field(default=None, exclude_if=lambda form: form is None)
    """`json`: a sampled reply without a JSON object is drawn again with another seed, at most
    `draws` times in all; the last one is used as it is."""
    draws: int = Field(default=10, ge=1, le=100, exclude_if=lambda draws: draws == 10)
    """Most replies drawn if `form` is set."""

    @model_validator(mode="after")
    def _check_text(self) -> Self:
        if self.say is not None and self.ask is not None:
            raise ValueError(f"step {self.id!r} has both say (scripted) and ask (spoken)")
        return self


class Loop(FrozenModel):
    """Steps repeated at most `times`, ending early at a marker."""

    loop: tuple[Step, ...] = Field(min_length=1)
    """The steps."""
    times: Annotated[int, Field(ge=1)] | Literal["turns", "extra"] = "turns"
    """A number, `turns` (the run's n), or `extra` (n less the policy turns outside loops)."""
    until: str | None = None
    """End the loop right after a policy turn that holds this marker."""


class Turns(FrozenModel):
    """How many policy turns a conversation has."""

    default: int = Field(default=1, ge=1)
    """n if none is given."""
    min: int = Field(default=1, ge=1)
    """Smallest n."""
    max: int = Field(default=1, ge=1)
    """Largest n."""
    why: str | None = None
    """Reason to give when another n is refused."""


class Check(FrozenModel):
    """A fidelity check run over each finished conversation; its findings become flags."""

    function: PythonRef
    """Function `fn(conversation, example, protocol) -> list of flags`."""


class ProtocolSpec(FrozenModel):
    """How a conversation goes."""

    name: Name
    """Name on the command line."""
    title: Label
    """One line for lists and cards."""
    modes: tuple[Mode, ...] = ("thinking", "standard")
    """Modes it supports; the first is the default."""
    mode_reason: str | None = None
    """Reason to give when a mode is refused."""
    turns: Turns = Turns()
    """Number of policy turns; if nothing is set and no loop depends on it, as many as the steps
    have."""
    speakers: dict[str, Speaker]
    """Speakers by name; exactly one is the policy."""
    steps: tuple[Step | Loop, ...] = Field(min_length=1)
    """The steps in order."""
    answer_after: str | None = None
    """The final answer is what follows this marker (the complete turn if it is absent)."""
    discount: float | None = Field(default=None, gt=0, le=1)
    """gamma: the reward is multiplied by gamma^n, n policy turns that another speaker answers (the
    turn with the marker and the answer do not count); a judge may set its own."""
    framing: Framing = Field(default="none", exclude_if=lambda framing: framing == "none")
    """Marks written into the messages that every speaker's model gets. `llama-2`: the system prompt
    is put between `<<SYS>>` marks in the first user message and each user message between `[INST]`
    marks, in the text, in addition to the model's own chat template."""
    checks: tuple[Check, ...] = ()
    """Fidelity checks."""
    reference: str | None = None
    """Where this protocol is specified."""

    @model_validator(mode="before")
    @classmethod
    def _count_turns(cls, value: Any) -> Any:
        """Set the number of policy turns if the steps alone determine it and it is not set."""
        if not isinstance(value, dict) or value.get("turns") is not None:
            return value
        speakers, steps = value.get("speakers"), value.get("steps")
        if not isinstance(speakers, dict) or not isinstance(steps, list | tuple):
            return value
        policies = [name for name, entry in speakers.items() if get_field(entry, "policy")]
        count = 0
        for item in steps:
            inside = get_field(item, "loop")
            times = (get_field(item, "times") or "turns") if inside else 1
            if not isinstance(times, int) or not isinstance(inside or [], list | tuple):
                return value
            count += times * sum(
                get_field(entry, "speaker") in policies for entry in inside or [item]
            )
        fixed = {"default": count, "min": count, "max": count}
        return {**value, "turns": fixed} if count > 0 else value

    @model_validator(mode="after")
    def _check_speakers(self) -> Self:
        policies = [name for name, speaker in self.speakers.items() if speaker.policy]
        if len(policies) != 1:
            having = ", ".join(policies) or "none"
            raise ValueError(f"speakers: found policy: true in {having}; expected it in one")
        unknown = {step.speaker for step in self.all_steps()} - set(self.speakers)
        if unknown:
            known = ", ".join(self.speakers)
            raise ValueError(f"steps: no speaker {', '.join(sorted(unknown))}; expected {known}")
        ids = [step.id for step in self.all_steps()]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"steps: found id {', '.join(twice)} twice; expected each once")
        return self

    @property
    def policy(self) -> str:
        """Return the name of the policy's speaker."""
        for (
            name,
            speaker,
        ) in self.speakers.items():  # called for every turn: a generator would be slower
            if speaker.policy:
                return name
        raise AssertionError

    def all_steps(self) -> list[Step]:
        """Return every step once, in order, those of loops included."""
        return [
            step
            for item in self.steps
            for step in (item.loop if isinstance(item, Loop) else (item,))
        ]
