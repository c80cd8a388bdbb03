"""Play one conversation: walk the protocol's steps, call the speakers' models, record turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from convbench import __version__, prompts
from convbench.errors import FatalModelError, SpecError, TransientModelError
from convbench.models.model import Model
from convbench.models.tools import ToolsModel
from convbench.rollout import recorded_calls
from convbench.rollout.plan import Rollout
from convbench.rollout.tool_turn import ModelCaller, TurnContext, TurnResult, take_turn
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
from convbench.util.extract import first_object
from convbench.views import heard_text, next_messages


@dataclass
class PlayState:
    """State of one conversation while it is played."""

    run: RunManifest
    example: Example
    job: Rollout
    cast: Mapping[str, Model]
    caller: ModelCaller
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
        self.base = prompts.template_fields(
            self.example, self.run.task, self.run.mode, self.run.turns
        )
        for name in self.run.protocol.speakers:
            text = prompts.system_prompt(
                self.run.task, self.run.protocol, name, self.run.mode, self.template_values(name)
            )
            if text:
                self.systems[name] = text

    def sampling_of(self, speaker: str) -> Sampling:
        """Return the sampling settings of this speaker's model in this conversation, kept after the
        first call."""
        if speaker not in self.samplings:
            self.samplings[speaker] = recorded_calls.call_sampling(
                self.run, speaker, self.job.temperature, self.job.seed
            )
        return self.samplings[speaker]

    def template_values(self, speaker: str) -> dict[str, Any]:
        """Return the fields that this speaker's templates may use, by name.

        They are those of `template_fields`, the hidden ones that its `sees` names, and `turn`, the
        number of the next policy turn from 1. Raise SpecError if `sees` names a field that the
        question lacks.
        """
        sees = self.run.protocol.speakers[speaker].sees
        return {
            **self.base,
            **prompts.hidden_fields(self.example, sees),
            "turn": self.spoken + 1,
        }


async def play_conversation(
    run: RunManifest,
    example: Example,
    job: Rollout,
    cast: Mapping[str, Model],
    caller: ModelCaller,
    tools: Mapping[str, ToolsModel] | None = None,
) -> Conversation:
    """Return the played conversation; with `failure`, the turns so far and no `stop` if a model
    gave up on it.

    `stop` is else `complete`, `marker` or `limit`. `tools` holds the tools of each speaker that has
    any. Errors that end the run (a wrong key, a spent budget) pass through, and so does SpecError
    for a template that cannot be rendered or a speaker with nothing to answer.
    """
    state = PlayState(run, example, job, cast, caller, tools or {})
    try:
        for step in iter_steps(state):
            await _speak_step(state, step)
    except (TransientModelError, FatalModelError) as error:
        if isinstance(error, FatalModelError) and error.stops_run:
            raise
        return _conversation_record(job, run, state, Failure.from_error(error))
    state.stop = state.stop or "complete"
    return _conversation_record(job, run, state, None)


def iter_steps(state: PlayState) -> Iterator[Step]:
    """Yield the steps in order; the caller adds the turn of each step to `state.turns` before it
    takes the next.

    A loop ends after a policy turn with its marker. In the last round of a loop that ends the
    protocol, no other speaker speaks after the policy, since nobody would answer. `state.stop`
    becomes `marker` or `limit` after a loop that has a marker.
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
            yield from _loop_steps(item, times, item is protocol.steps[-1], state)


def _loop_steps(item: Loop, rounds: int, final: bool, state: PlayState) -> Iterator[Step]:
    policy = state.run.protocol.policy
    for number in range(rounds):
        steps = list(item.loop)
        while final and number == rounds - 1 and steps[-1].speaker != policy:
            steps.pop()
        for step in steps:
            yield step
            text = heard_text(state.run.protocol, state.turns[-1])
            if step.speaker == policy and item.until is not None and item.until in text:
                state.stop = "marker"
                return
    if item.until is not None:
        state.stop = "limit"


async def _speak_step(state: PlayState, step: Step) -> None:
    """Add the turn of one step: the scripted text, or a reply of the speaker's model. A reply
    without the step's form is drawn again."""
    run = state.run
    text = prompts.step_text(
        run.task, run.protocol, step, run.mode, state.template_values(step.speaker)
    )
    if step.say is not None:
        _append_turn(
            state,
            Turn(speaker=step.speaker, step=step.id, content=text or "", finish_reason="scripted"),
        )
        return
    messages = next_messages(
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
            "set `ask` on the step, or `opening` on the speaker that begins"
        )
    _mark_stable(state, messages)
    using = TurnContext(
        state.caller,
        _bound_model(state, step.speaker),
        _bound_tools(state, step.speaker),
        run.protocol.speakers[step.speaker],
        run.cast[step.speaker].replay,
    )
    key = f"{state.job.key}@{len(state.turns)}"
    sampling = state.sampling_of(step.speaker)
    results = [await take_turn(using, messages, sampling, key)]
    while len(results) < max_draws(step, sampling) and not _has_form(results[-1]):
        drawn = recorded_calls.sampling_for_redraw(sampling, state.job.seed, len(results))
        results.append(await take_turn(using, messages, drawn, f"{key}~{len(results)}"))
    reply = results[-1].reply
    state.left_out.setdefault(step.speaker, set()).update(reply.left_out)
    _append_turn(
        state,
        Turn(
            speaker=step.speaker,
            step=step.id,
            content=reply.content,
            reasoning=reply.reasoning,
            rounds=tuple(results[-1].rounds),
            instruction=text,
            redrawn=len(results) - 1,
            finish_reason=reply.finish_reason,
            prompt_tokens=sum_usage(results, "prompt_tokens"),
            completion_tokens=sum_usage(results, "completion_tokens"),
            cost_usd=sum_usage(results, "cost_usd"),
        ),
    )


def _has_form(result: TurnResult) -> bool:
    return first_object(text_of(result.reply.content)) is not None


def max_draws(step: Step, sampling: Sampling) -> int:
    """Return the most replies that a step may draw: its `draws` if it asks for a form and the
    temperature is above 0, else 1, since greedy replies would all be the same."""
    return step.draws if step.form is not None and sampling.temperature else 1


def sum_usage(results: Sequence[TurnResult], name: str) -> Any:
    """Return the sum of a usage field (`prompt_tokens`, `completion_tokens` or `cost_usd`) over all
    draws, or None if one is unknown."""
    values = [result.total_usage(name) for result in results]
    return None if None in values else sum(values)


def _bound_tools(state: PlayState, speaker: str) -> Model | None:
    """Return a speaker's tools, each bound to the fields that the speaker sees and the hidden
    fields that the tool names, or None if it has none."""
    tools_model = state.tools.get(speaker)
    if tools_model is None:
        return None
    tools = state.run.protocol.speakers[speaker].tools
    base = state.template_values(speaker)
    return tools_model.bind(
        {tool.name: {**base, **prompts.hidden_fields(state.example, tool.sees)} for tool in tools}
    )


def _mark_stable(state: PlayState, messages: list[Message]) -> None:
    """Mark the prefix that another call will begin with: all of the messages if the conversation
    goes on or other samples send the same, else the previous call's messages."""
    user_indices = [index for index, message in enumerate(messages) if message["role"] == "user"]
    goes_on = state.spoken + 1 < state.run.turns
    alike = state.spoken == 0 and len(user_indices) == 1 and state.run.samples > 1
    mark = user_indices[-1:] if goes_on or alike else user_indices[-2:-1]
    for index in mark:
        messages[index]["stable"] = len(text_of(messages[index]["content"]))


def _append_turn(state: PlayState, turn: Turn) -> None:
    state.turns.append(turn)
    state.spoken += turn.speaker == state.run.protocol.policy


def _bound_model(state: PlayState, speaker: str) -> Model:
    """Return the speaker's model; a rule is bound to the fields that this speaker may see."""
    model = state.cast[speaker]
    if not model.binds:
        return model
    values = state.template_values(speaker)
    values["choices"] = [choice.model_dump() for choice in state.example.choices]
    return model.bind(values)


def _sent_options(state: PlayState) -> dict[str, Sent]:
    """Return what was left out of each speaker's calls and how its reasoning was sent back;
    speakers with nothing to record are left out."""
    by_speaker = {
        name: Sent(left_out=tuple(sorted(names)), replay=state.run.cast[name].replay)
        for name, names in state.left_out.items()
    }
    return {name: sent for name, sent in by_speaker.items() if sent != Sent()}


def failed_conversation(job: Rollout, run: RunManifest, error: Exception) -> Conversation:
    """Return the record of an attempt that failed outside the models. `failure` has the error's
    kind and one line without keys and paths; there are no turns and no `stop`."""
    return _conversation_record(job, run, None, Failure.from_error(error))


def _conversation_record(
    job: Rollout, run: RunManifest, state: PlayState | None, failure: Failure | None
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
        sent=_sent_options(state) if state else {},
        stop=state.stop if state and not failure else None,
        failure=failure,
        specs=run.fingerprints.get("specs", ""),
        version=__version__,
        ended=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
