"""Cast a protocol: which model speaks for whom."""

from __future__ import annotations

from pathlib import Path

from convbench.blot import address
from convbench.errors import SpecError
from convbench.models.aliases import default_policy, resolve
from convbench.models.open import never_sent
from convbench.models.where import own_sampling, weights_fingerprint, weights_place
from convbench.options.shared import CallOptions, SpecOptions
from convbench.rollout.calls import SCRIPT
from convbench.rollout.manifest import sampling_of
from convbench.schema import Member, ProtocolSpec, TaskSpec
from convbench.schema.reasoning import Effort


def make_cast(
    task: TaskSpec,
    protocol: ProtocolSpec,
    *,
    model: str | None,
    teacher: str | None,
    max_tokens: int | None,
    specs: SpecOptions,
    calls: CallOptions,
    effort: Effort | None = None,
    top_p: float | None = None,
    logprobs: bool = False,
) -> dict[str, Member]:
    """Return who speaks for every speaker of the protocol.

    `teacher` is the model of the speakers other than the policy that are not scripted, `effort`
    how long the policy is to think, `top_p` the nucleus that it samples from; with `logprobs` what
    it samples is recorded token by token.
    Raises SpecError where a speaker needs a model and none is named.
    """
    wanted = model or default_policy(specs.folders)
    cast = {protocol.policy: make_member(wanted, max_tokens, calls.api_base, specs, effort, top_p)}
    if logprobs:
        cast[protocol.policy] = logging(cast[protocol.policy])
    can_be_taught = teachers(protocol, teacher)
    spoken = {step.speaker for step in protocol.all_steps() if step.say is None}
    for name in protocol.speakers:
        if name == protocol.policy:
            continue
        if name not in spoken:
            cast[name] = Member(model=SCRIPT)
            continue
        own = task.speakers.get(name) or protocol.speakers[name].default
        other = (teacher if name in can_be_taught else None) or own
        if other is None:
            raise SpecError(
                f"protocol {protocol.name}: speaker {name!r} needs a model; name it with --teacher"
            )
        # The server of --api-base is the policy's; another model is found by its own name.
        base = calls.api_base if other == wanted else None
        cast[name] = (
            cast[protocol.policy]
            if other == "policy"
            else make_member(other, max_tokens, base, specs)
        )
    return cast


def teachers(protocol: ProtocolSpec, teacher: str | None = None) -> list[str]:
    """Return the speakers that `--teacher` speaks for: all with a model of their own, except that
    a rule is a part of the setting, such as a renderer. SpecError where it would speak for none.
    """
    spoken = {step.speaker for step in protocol.all_steps() if step.say is None}
    found = [
        name
        for name, speaker in protocol.speakers.items()
        if name in spoken
        and name != protocol.policy
        and not (speaker.default or "").startswith("rule:")
    ]
    if teacher and not found:
        raise SpecError(
            f"--teacher {teacher}: in protocol {protocol.name} no model speaks but the policy's; "
            "leave it out"
        )
    return found


def logging(member: Member) -> Member:
    """Return the member whose tokens' log-probabilities are recorded."""
    sampling = member.sampling.model_copy(update={"logprobs": True})
    return member.model_copy(update={"sampling": sampling})


def make_member(
    name: str,
    max_tokens: int | None,
    api_base: str | None,
    specs: SpecOptions,
    effort: Effort | None = None,
    top_p: float | None = None,
) -> Member:
    """Return the member of the cast that a model's name stands for."""
    resolved = resolve(name, api_base=api_base, specs=specs.folders)
    return with_fingerprint(
        Member(
            model=resolved.ref,
            short=resolved.short,
            sampling=sampling_of(max_tokens, effort, top_p),
            api_base=address(api_base) if api_base else None,
            weights=resolved.alias.weights,
            reads=resolved.alias.reads,
            replay=resolved.alias.replay,
            extra_body=resolved.alias.extra_body,
            own_sampling=own_sampling(weights_place(resolved.ref, resolved.alias.weights)),
            left_out=tuple(sorted(never_sent(resolved))) if "/" in resolved.ref else (),
        )
    )


def asked_alike(member: Member, old: Member) -> Member:
    """Return a policy that follows another, told to think and to sample as that one was; weights
    that run here also get its chat template's options, as training renders them."""
    alike = {name: getattr(old.sampling, name) for name in ("reasoning_effort", "top_p")}
    sampling = member.sampling.model_copy(update=alike)
    member = member.model_copy(update={"sampling": sampling})
    if not member.model.startswith(("local:", "vllm:")) or member.extra_body:
        return member
    kwargs = old.extra_body.get("chat_template_kwargs")
    body = {"chat_template_kwargs": kwargs} if kwargs else {}
    reads = old.reads if member.reads == "field" else member.reads
    return member.model_copy(update={"extra_body": body, "reads": reads})


def with_fingerprint(member: Member) -> Member:
    """Return the member with the fingerprint of its weights as they lie there now."""
    scheme, _, rest = member.model.partition(":")
    mark = weights_fingerprint(Path(rest)) if scheme == "local" else None
    return member.model_copy(update={"fingerprint": mark})
