"""What a build would send: the exact messages of the first example, and tokens and dollars of the
run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from convbench.engine.jobs import run_in_loop
from convbench.errors import RunError
from convbench.models.aliases import SCHEMES, resolve
from convbench.models.model import Model
from convbench.models.open import has_batches, price_of
from convbench.rollout.calls import SCRIPT, most_reply_tokens
from convbench.rollout.plan import Rollout
from convbench.rollout.play import play_conversation
from convbench.rollout.tool_turn import tools_of
from convbench.schema import (
    Completion,
    Conversation,
    Example,
    Message,
    ProtocolSpec,
    RunManifest,
    Sampling,
    Step,
    usual_prompt,
    without_stable,
)
from convbench.util.usage_estimate import Tokens

PLACEHOLDER = "⟨reply of {speaker}⟩"


@dataclass(frozen=True)
class PreviewCall:
    """One call of the first conversation."""

    speaker: str
    step: str
    model: str
    messages: list[Message]


@dataclass(frozen=True)
class CallEstimate:
    """Most that one call of a conversation takes."""

    speaker: str
    model: str
    prompt: int
    """Tokens sent."""
    reply: int
    """Tokens generated, hidden reasoning included."""
    usd: float | None
    """Dollars; None if the price is unknown."""


@dataclass(frozen=True)
class Preview:
    """What a run would send and cost."""

    example: Example
    calls: list[PreviewCall]
    sizes: list[CallEstimate]
    """Estimates of these calls, in order."""
    estimate: Tokens
    """Estimate for the whole run with all replies at full length; without a price if no model is
    named."""
    unpriced: tuple[str, ...]
    """Models whose price is unknown."""
    played: Conversation
    """The first conversation, with a placeholder for each reply."""
    replies: int
    """Upper bound of the tokens of one conversation's replies."""


def preview_build(
    manifest: RunManifest,
    examples: Iterable[Example],
    specs: Sequence[Path] = (),
    *,
    batch: bool = False,
) -> Preview:
    """Return what this run would send: the calls of the first question of its split, and an upper
    estimate of the whole run's calls, tokens and dollars.

    Replies are unknown, so each is a placeholder, and loops run to their end. Dollars are batch
    prices if `batch` and the provider has batches, and None if a price is unknown. Raise SpecError
    if a template cannot be rendered, RunError if the split has no question.
    """
    in_split = (e for e in examples if manifest.split in ("all", e.split))
    first = next(in_split, None)
    if first is None:
        raise RunError(
            f"examples.jsonl: found no question of split {manifest.split}; restore the run's "
            "original file from a copy, or build a new run"
        )
    calls, played = _play_preview(manifest, first)
    count = sum(manifest.samples_of(example.split) for example in chain([first], in_split))
    limit = {name: most_reply_tokens(manifest, name) for name in manifest.cast}
    sizes: list[CallEstimate] = []
    earlier = 0
    for call in calls:
        tokens = usual_prompt(call.messages) + earlier
        member = manifest.cast[call.speaker]
        most = limit[call.speaker] + reasoning_headroom(member.model, specs, member.short)
        cost = call_price(call.model, tokens, most, specs, member.short, batch=batch)
        sizes.append(CallEstimate(call.speaker, call.model, tokens, most, cost))
        earlier += limit[call.speaker]
    named = all(size.model != SCRIPT for size in sizes)  # `show` names no model
    unpriced = {size.model for size in sizes if size.usd is None and size.model != SCRIPT}
    usd = sum(size.usd or 0.0 for size in sizes) * count
    return Preview(
        example=first,
        calls=calls,
        sizes=sizes,
        estimate=Tokens(
            conversations=count,
            calls=len(calls) * count,
            prompt_tokens=sum(size.prompt for size in sizes) * count,
            reply_tokens=sum(size.reply for size in sizes) * count,
            usd=usd if named and not unpriced else None,
        ),
        unpriced=tuple(sorted(unpriced)),
        played=played,
        replies=earlier,
    )


class _CallRecorder:
    """Records the calls in place of the engine and answers with a placeholder."""

    def __init__(self) -> None:
        self.calls: list[PreviewCall] = []

    async def complete(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        speaker, _, ref = model.ref.partition("\0")
        self.calls.append(PreviewCall(speaker, key, ref, without_stable(messages)))
        return Completion(PLACEHOLDER.format(speaker=speaker), "stop", 0, 0, 0.0)


class _NamedModel(Model):
    """Model with a name and nothing behind it."""

    priced = True

    def __init__(self, ref: str) -> None:
        self.ref = ref

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        raise AssertionError("a preview calls no model")

    async def aclose(self) -> None:
        return None


def _play_preview(
    manifest: RunManifest, example: Example
) -> tuple[list[PreviewCall], Conversation]:
    """Play the first conversation with placeholders; return its calls and the conversation."""
    recorder = _CallRecorder()
    cast: dict[str, Model] = {
        name: _NamedModel(f"{name}\0{member.model}") for name, member in manifest.cast.items()
    }
    job = Rollout(
        "preview", "preview", example.example_id, 0, manifest.temperature_of(0), manifest.seed
    )
    asked_once = manifest.model_copy(update={"protocol": without_forms(manifest.protocol)})
    tools = tools_of(manifest)
    conversation = run_in_loop(
        lambda: play_conversation(asked_once, example, job, cast, recorder, tools)
    )
    steps = [turn.step for turn in conversation.turns]
    calls = [
        dataclasses.replace(call, step=steps[int(call.step.rpartition("@")[2])])
        for call in recorder.calls
    ]
    return calls, conversation


def without_forms(protocol: ProtocolSpec) -> ProtocolSpec:
    """Return a copy of the protocol without the forms that its steps ask for, since no placeholder
    has them."""

    def drop_form(step: Step) -> Step:
        return step.model_copy(update={"form": None})

    steps = [
        drop_form(item)
        if isinstance(item, Step)
        else item.model_copy(update={"loop": tuple(map(drop_form, item.loop))})
        for item in protocol.steps
    ]
    return protocol.model_copy(update={"steps": tuple(steps)})


def call_price(
    model: str,
    prompt: int,
    reply: int,
    specs: Sequence[Path] = (),
    short: str | None = None,
    *,
    batch: bool = False,
) -> float | None:
    """Return the dollars of a call of so many prompt and reply tokens: 0 for a model that runs here
    (`local:`, `vllm:`) or is a rule, None if the price is unknown or no model is named.

    With `batch` it is the price in batches, if the provider has any.
    """
    if model.partition(":")[0] in SCHEMES:
        return 0.0
    if "/" not in model:
        return None
    resolved = resolve(model, specs=specs, short=short)
    price = price_of(resolved)
    if price is not None and batch and has_batches(resolved):
        price = price.over(2)
    return price.cost_of(prompt, reply) if price else None


def reasoning_headroom(model: str, specs: Sequence[Path] = (), short: str | None = None) -> int:
    """Return the tokens that a model may spend on hidden reasoning beyond its reply's limit; 0 for
    a reference without a provider (`PROVIDER/NAME`)."""
    return resolve(model, specs=specs, short=short).alias.headroom if "/" in model else 0
