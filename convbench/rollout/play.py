"""Play one conversation: walk the protocol's steps, call the speakers' models, record turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from convbench import __version__, prompts
from convbench.answers.plain import first_object
from convbench.errors import FatalModelError, SpecError, TransientModelError
from convbench.models.model import Model
from convbench.models.tools import ToolsModel
from convbench.rollout import asked
from convbench.rollout.plan import Rollout
from convbench.rollout.tool_turn import Calls, Said, Using, speak
from convbench.schema import (
    Conversation,
    Example,
    Failure,
    Loop,
    Message,
    RunManifest,
    Sampling,
    Sent,
    Step,
    Turn,
    text_of,
)
from convbench.schema.conversation import Stop
from convbench.views import heard, view


@dataclass
class Play:
    """State of one conversation while it is played."""

    run: RunManifest
    example: Example
    job: Rollout
    cast: Mapping[str, Model]
    caller: Calls
    tools: Mapping[str, ToolsModel]
    turns: list[Turn] = field(default_factory=list)
    spoken: int = 0
    """Policy turns so far."""
    systems: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, set[str]] = field(default_factory=dict)
    """Parameters that were not sent, by speaker."""
    stop: Stop | None = None
    samplings: dict[str, Sampling] = field(default_factory=dict)
    """Sampling settings, by speaker."""

    def __post_init__(self) -> None:
        self.base = prompts.fields(self.example, self.run.task, self.run.mode, self.run.turns)
        for name in self.run.protocol.speakers:
            text = prompts.system(
                self.run.task, self.run.protocol, name, self.run.mode, self.values(name)
            )
            if text:
                self.systems[name] = text

    def sampling(self, speaker: str) -> Sampling:
        """Return the sampling settings of this speaker's model in this conversation."""
        if speaker not in self.samplings:
            self.samplings[speaker] = asked.sampling(
                self.run, speaker, self.job.temperature, self.job.seed
            )
        return self.samplings[speaker]

    def values(self, speaker: str) -> dict[str, Any]:
        """Return the fields that this speaker's templates may use; hidden ones only if `sees` names
        them."""
        sees = self.run.protocol.speakers[speaker].sees
        return {
            **self.base,
            **prompts.hidden(self.example, sees),
            "turn": self.spoken + 1,
        }


async def play(
    run: RunManifest,
    example: Example,
    job: Rollout,
    cast: Mapping[str, Model],
    caller: Calls,
    tools: Mapping[str, ToolsModel] | None = None,
) -> Conversation:
    """Return the conversation, as a failed one if a model gave up on it. `tools` holds the tools of
    each speaker that has any.

    Errors that end the run (a wrong key, a spent budget) pass through.
    """
    state = Play(run, example, job, cast, caller, tools or {})
    try:
        for step in walk(state):
            if len(state.turns) < len(job.prefix):
                _keep(state, job.prefix[len(state.turns)])
            else:
                await _speak(state, step)
    except (TransientModelError, FatalModelError) as error:
        if isinstance(error, FatalModelError) and error.stops_run:
            raise
        return _record(job, run, state, Failure.of(error))
    state.stop = state.stop or "complete"
    return _record(job, run, state, None)


def walk(state: Play) -> Iterator[Step]:
    """Yield the steps in order; a loop ends at its marker.

    In the last round of a loop that ends the protocol, no other speaker speaks after the policy,
    since nobody would answer.
    """
    protocol = state.run.protocol
    outside = sum(
        step.speaker == protocol.policy for step in protocol.steps if isinstance(step, Step)
    )
    for item in protocol.steps:
        if isinstance(item, Step):
            yield item
        else:
            rounds = {"turns": state.run.turns, "extra": state.run.turns - outside}
            times = item.times if isinstance(item.times, int) else rounds[item.times]
            yield from _rounds(item, times, item is protocol.steps[-1], state)


def _rounds(item: Loop, rounds: int, final: bool, state: Play) -> Iterator[Step]:
    policy = state.run.protocol.policy
    for number in range(rounds):
        steps = list(item.loop)
        while final and number == rounds - 1 and steps[-1].speaker != policy:
            steps.pop()
        for step in steps:
            yield step
            said = heard(state.run.protocol, state.turns[-1])
            if step.speaker == policy and item.until is not None and item.until in said:
                state.stop = "marker"
                return
    if item.until is not None:
        state.stop = "limit"


async def _speak(state: Play, step: Step) -> None:
    """Add the turn of one step: the scripted text, or a reply of the speaker's model. A reply
    without the step's form is drawn again."""
    run = state.run
    text = prompts.step(run.task, run.protocol, step, run.mode, state.values(step.speaker))
    if step.say is not None:
        _keep(
            state,
            Turn(speaker=step.speaker, step=step.id, content=text or "", finish_reason="scripted"),
        )
        return
    messages = view(
        run.protocol,
        state.systems.get(step.speaker),
        tuple(state.turns),
        step.speaker,
        text,
        run.cast[step.speaker].replay,
    )
    if not messages or messages[-1]["role"] != "user":
        raise SpecError(
            f"protocol {run.protocol.name}: step {step.id}: {step.speaker} has nothing to answer; "
            "give the step `ask`, or a speaker that begins `opening`"
        )
    _mark_stable(state, messages)
    using = Using(
        state.caller,
        _bound(state, step.speaker),
        _tools(state, step.speaker),
        run.protocol.speakers[step.speaker],
        run.cast[step.speaker].replay,
    )
    key = f"{state.job.key}@{len(state.turns)}"
    sampling = state.sampling(step.speaker)
    said = [await speak(using, messages, sampling, key)]
    while len(said) < draws(step, sampling) and not _formed(said[-1]):
        drawn = asked.redrawn(sampling, state.job.seed, len(said))
        said.append(await speak(using, messages, drawn, f"{key}~{len(said)}"))
    reply = said[-1].reply
    state.left_out.setdefault(step.speaker, set()).update(reply.left_out)
    _keep(
        state,
        Turn(
            speaker=step.speaker,
            step=step.id,
            content=reply.content,
            reasoning=reply.reasoning,
            rounds=tuple(said[-1].rounds),
            instruction=text,
            redrawn=len(said) - 1,
            finish_reason=reply.finish_reason,
            prompt_tokens=total(said, "prompt_tokens"),
            completion_tokens=total(said, "completion_tokens"),
            cost_usd=total(said, "cost_usd"),
        ),
    )


def _formed(said: Said) -> bool:
    return first_object(text_of(said.reply.content)) is not None


def draws(step: Step, sampling: Sampling) -> int:
    """Return the most replies that a step may draw; greedy ones would all be the same, so 1."""
    return step.draws if step.form is not None and sampling.temperature else 1


def total(said: Sequence[Said], name: str) -> Any:
    """Return the sum of a usage field over all draws, or None if one is unknown."""
    values = [one.total(name) for one in said]
    return None if None in values else sum(values)


def _tools(state: Play, speaker: str) -> Model | None:
    """Return a speaker's tools, each bound to the fields that the speaker sees and the hidden
    fields that the tool names, or None if it has none."""
    found = state.tools.get(speaker)
    if found is None:
        return None
    tools = state.run.protocol.speakers[speaker].tools
    base = state.values(speaker)
    return found.bind(
        {tool.name: {**base, **prompts.hidden(state.example, tool.sees)} for tool in tools}
    )


def _mark_stable(state: Play, messages: list[Message]) -> None:
    """Mark the prefix that another call will begin with: all of the messages if the conversation
    goes on or other samples send the same, else the previous call's messages."""
    asked = [place for place, message in enumerate(messages) if message["role"] == "user"]
    goes_on = state.spoken + 1 < state.run.turns
    alike = state.spoken == 0 and len(asked) == 1 and state.run.samples > 1
    mark = asked[-1:] if goes_on or alike else asked[-2:-1]
    for place in mark:
        messages[place]["stable"] = len(text_of(messages[place]["content"]))


def _keep(state: Play, turn: Turn) -> None:
    state.turns.append(turn)
    state.spoken += turn.speaker == state.run.protocol.policy


def _bound(state: Play, speaker: str) -> Model:
    """Return the speaker's model; a rule is bound to the fields that this speaker may see."""
    model = state.cast[speaker]
    if not model.binds:
        return model
    values = state.values(speaker)
    values["choices"] = [choice.model_dump() for choice in state.example.choices]
    return model.bind(values)


def _sent(state: Play) -> dict[str, Sent]:
    """Return what was left out of each speaker's calls and how its reasoning was sent back;
    speakers with nothing to record are left out."""
    found = {
        name: Sent(left_out=tuple(sorted(names)), replay=state.run.cast[name].replay)
        for name, names in state.left_out.items()
    }
    return {name: sent for name, sent in found.items() if sent != Sent()}


def failed(job: Rollout, run: RunManifest, error: Exception) -> Conversation:
    """Return the record of an attempt that failed outside the models."""
    return _record(job, run, None, Failure.of(error))


def _record(
    job: Rollout, run: RunManifest, state: Play | None, failure: Failure | None
) -> Conversation:
    return Conversation(
        key=job.key,
        conversation_id=job.conversation_id,
        attempt=job.attempt,
        example_id=job.example_id,
        sample=job.sample,
        temperature=job.temperature,
        seed=job.seed,
        systems=state.systems if state else {},
        turns=tuple(state.turns) if state else (),
        sent=_sent(state) if state else {},
        stop=state.stop if state and not failure else None,
        failure=failure,
        branch=job.branch,
        specs=run.fingerprints.get("specs", ""),
        version=__version__,
        ended=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
