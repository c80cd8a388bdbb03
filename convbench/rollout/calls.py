"""What commands that call models share: the ledger, the journal, the progress display, opening a
run's models, and which of them a pulled run may call.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from convbench.engine import (
    Budget,
    Caller,
    Journal,
    RetryPolicy,
    Status,
    Summary,
    run_in_loop,
    show_progress,
)
from convbench.engine.reply_cache import ReplyCache
from convbench.engine.session import Session
from convbench.errors import RunError
from convbench.models.aliases import resolve
from convbench.models.devices import Placement, check_apart, placement_of
from convbench.models.model import Model
from convbench.models.open import base_of, open_model
from convbench.models.weights_path import SHIPPED_REFS
from convbench.options.shared import CallOptions, parse_devices
from convbench.schema import ModelConfig, RunManifest, canonical_json
from convbench.schema.run import Role
from convbench.store import Run
from convbench.util.redact import strip_address
from convbench.util.untrusted import check_address

JOURNAL_FILE = "calls.jsonl"
"""A run's journal."""
DEFAULT_CALLS = 32
"""Calls in flight if the user sets no number."""
CONVERSATIONS_PER_CALL = 1.5
"""Conversations in progress for each call that may be in flight."""

SCRIPT = "script"
"""Stands for a model if all of a speaker's steps are scripted."""
HARMLESS = (SCRIPT, *SHIPPED_REFS)
"""Models that a pulled run may use unnamed."""


def limit_spend(session: Session, options: CallOptions, *journals: Path) -> None:
    """Set the options' limits in the session's ledger. If there is one, add the earlier spend of
    these journals, each once."""
    session.ledger.usd, session.ledger.tokens = options.budget, options.budget_tokens
    if session.ledger.has_limit:
        for file in journals:
            session.ledger.count_earlier(str(file.resolve()), Journal(file).total_cost)


def max_calls(options: CallOptions, models: Iterable[Model]) -> int:
    """Return the most calls to have in flight: the user's number, else the largest of the models'
    own.

    A model that sets none counts as 32 for each of its copies, and so does the lack of a model.
    """
    own = [model.concurrency or DEFAULT_CALLS * model.copies for model in models]
    return options.concurrency or max(own, default=DEFAULT_CALLS)


def max_conversations(calls: int, models: Iterable[Model]) -> int:
    """Return the most conversations in progress: 1.5 times `calls`, rounded up, or `calls` if any
    model sets a number of its own.

    More conversations than calls keep every slot busy while other conversations wait for their next
    turn. A model that sets its own number keeps each conversation's cache and gets no more than
    that.
    """
    if any(model.concurrency for model in models):
        return calls
    return math.ceil(calls * CONVERSATIONS_PER_CALL)


def raise_stop(jobs: Summary) -> None:
    """Raise what stopped the jobs before all were done: KeyboardInterrupt after an interrupt, else
    the recorded error; do nothing if nothing stopped them."""
    if jobs.interrupted:
        raise KeyboardInterrupt
    if jobs.stopped is not None:
        raise jobs.stopped


def check_outcome(
    jobs: Summary, options: CallOptions, what: str, failures: Mapping[str, int] | None = None
) -> str | None:
    """Raise what stopped the jobs early, or RunError if failures reach `options.fail_on`, a count
    or a share of those tried. Else return a line about the failures, None without any.

    `what` names the jobs' results; the first message in `failures` is quoted as an example.
    """
    raise_stop(jobs)
    if not jobs.failed:
        return None
    tried = jobs.failed + jobs.done
    line = f"{jobs.failed} of {tried} {what} failed"
    if failures:
        line += f", e.g. {next(iter(failures))}"
    if options.is_failure(jobs.failed, tried):
        raise RunError(f"{line}; that is too many (--fail-on {options.fail_on})")
    return line


@asynccontextmanager
async def open_caller(
    run: Run,
    options: CallOptions,
    session: Session,
    label: str,
    concurrency: int,
    models: Iterable[Model] = (),
) -> AsyncIterator[Caller]:
    """Yield a caller for a run's calls, and close its journal, cache and batches at the end.

    It has the session's ledger and pauses, the options' timeout, and `concurrency` calls in flight;
    the progress is shown under `label`. With `--batch`, calls of those `models` that have batches
    are sent in batches; without it, open batches of the run are still collected.
    """
    limit_spend(session, options, run.calls_file)
    journal = Journal(run.calls_file)
    status = Status()
    async with AsyncExitStack() as stack:
        stack.callback(journal.close)
        caller = Caller(
            journal,
            session.ledger,
            RetryPolicy(concurrency=concurrency, timeout_s=options.timeout),
            status,
            pauses=session.pauses,
        )
        if options.cache is not None:
            caller.cache = ReplyCache(options.cache)
            stack.callback(caller.cache.close)
        if batched := [model for model in models if model.batches is not None]:
            from convbench.engine.batches import BatchQueue, open_batches

            if options.batch or open_batches(run.path):
                caller.batches = BatchQueue(caller, batched, sends=options.batch)
                stack.push_async_callback(caller.batches.aclose)
        with show_progress(status, label, quiet=options.quiet):
            yield caller


@asynccontextmanager
async def open_cast(
    run: Run, options: CallOptions, session: Session
) -> AsyncIterator[dict[str, Model]]:
    """Yield the open models of a run's cast by speaker, and close them at the end.

    A speaker whose steps are all scripted has none. Speakers with equal configurations, addresses
    and devices share one model. Raise FatalModelError if different models would run on one device,
    RunError if a pulled run may not call one, and the errors of opening a model.
    """
    cast: dict[str, Model] = {}
    placements = _cast_placements(run, options)
    async with AsyncExitStack() as stack:
        for name, member in run.manifest.cast.items():
            if member.model == SCRIPT:
                continue
            base = _member_address(run, member, options)
            settings = f"{member.reads} {member.extra_body} {placements[name]}"
            opening = partial(
                open_for,
                run,
                member.model,
                base,
                options,
                session,
                short=member.short,
                member=member,
                placement=placements[name],
            )
            key = run.path, member.model, member.short, base, settings
            cast[name] = await stack.enter_async_context(session.open(key, opening))
        yield cast


def _cast_placements(run: Run, options: CallOptions) -> dict[str, Placement | None]:
    """Return the placement of each speaker of a run's cast. Raise FatalModelError if two models
    that this machine runs are not apart."""
    policy = run.manifest.protocol.policy
    cast = run.manifest.cast
    placements = {
        name: device_placement(options, "policy" if name == policy else "teacher") for name in cast
    }
    check_apart(
        [
            (member.model, placements[name])
            for name, member in cast.items()
            if is_engine(member.model, _member_address(run, member, options))
        ]
    )
    return placements


def most_reply_tokens(manifest: RunManifest, speaker: str) -> int:
    """Return the limit of a speaker's replies in tokens."""
    settings = manifest.protocol.speakers.get(speaker)
    return (settings and settings.max_tokens) or manifest.cast[speaker].sampling.max_tokens


def check_cast(run: Run, options: CallOptions, session: Session) -> bool:
    """Check that every model of the cast can be called, and that those that this machine runs have
    devices of their own, before the run is written or money is spent.

    Return whether at least one of them can be called in batches. `run` need not be on disk yet.
    Raise ModelError, MissingDependency, BudgetError (there is a budget and a price is unknown) or
    RunError (a pulled run may not call one).
    """

    async def check_models() -> bool:
        async with open_cast(run, options, session) as cast:
            for model in cast.values():
                check_affordable(model, options)
            return any(model.batches is not None for model in cast.values())

    return run_in_loop(check_models)


def check_affordable(model: Model, options: CallOptions) -> None:
    """Raise BudgetError if there is a budget in dollars and the model's price is unknown,
    ModelError or MissingDependency if the model cannot be called; nothing is sent."""
    model.check()
    Budget(options.budget).check_price(model)


def typed_address(recorded: str | None, options: CallOptions) -> str | None:
    """Return the address to call: `--api-base` as typed if it equals `recorded` apart from user,
    query and fragment, which are not recorded; else `recorded`, which may be None."""
    typed = options.api_base
    return typed if typed and recorded == strip_address(typed) else recorded


def _member_address(run: Run, member: ModelConfig, options: CallOptions) -> str | None:
    """Return the address that serves a speaker now: --api-base for the policy and for speakers with
    the same model and address, else the recorded one."""
    policy = run.manifest.cast[run.manifest.protocol.policy]
    same = (member.model, member.api_base) == (policy.model, policy.api_base)
    return (options.api_base if same else None) or member.api_base


def device_placement(options: CallOptions, role: Role) -> Placement | None:
    """Return the devices that `--devices` sets for a role, or None if it sets nothing.

    A teacher without settings of its own gets the policy's, without devices of its own the
    policy's devices. Raise SpecError for a device that does not exist or an invalid pair.
    """
    devices = parse_devices(options.devices)
    own = placement_of(devices, role)
    policy = placement_of(devices, "policy") if role == "teacher" else None
    if own is None or policy is None or own.names is not None:
        return own or policy
    return replace(own, names=policy.names)


def is_engine(ref: str, api_base: str | None) -> bool:
    """Return True if this machine runs the model."""
    return api_base is None and ref.startswith(("local:", "vllm:"))


def open_for(
    run: Run,
    ref: str,
    api_base: str | None,
    options: CallOptions,
    session: Session,
    *,
    short: str | None = None,
    member: ModelConfig | None = None,
    role: Role | None = None,
    placement: Placement | None = None,
) -> Model:
    """Return an open model for a run: a speaker's, a judge's, a grader's or a learner's.

    `short` is the short name by which it was requested, whose settings (headroom, refused
    parameters, price) apply. `member` is its recorded configuration. `role` determines its devices,
    or without one `placement` says them. Raise RunError if a pulled run may not call it, and
    FatalModelError for an unknown one.
    """
    base = typed_address(api_base, options)
    check_named(run, ref, base, options, session)
    if member is not None:
        _refuse_body(run, member, base, options)
    placed_at = placement if role is None else device_placement(options, role)
    return open_model(
        ref,
        api_base=base,
        log_dir=run.path,
        media=run.media_folder,
        downloaded=run.manifest.pulled_from is not None,
        specs=options.specs,
        short=short,
        member=member,
        placement=placed_at,
    )


def _refuse_body(run: Run, member: ModelConfig, api_base: str | None, options: CallOptions) -> None:
    """Raise RunError if a pulled run would have request fields sent that the user's own settings do
    not have."""
    if run.manifest.pulled_from is None or not member.extra_body:
        return
    resolved = resolve(member.model, api_base=api_base, specs=options.specs, short=member.short)
    if resolved.alias.extra_body != member.extra_body:
        body = printable_line(canonical_json(member.extra_body))
        raise RunError(
            f"{run.path}: the set pulled from {printable_line(run.manifest.pulled_from)} calls "
            f"{printable_line(member.model)} with extra_body {body}, which is sent only if you set "
            "it yourself; add it to your own models.yaml under a name with ref: "
            f"{printable_line(member.model)}"
        )


def check_named(
    run: Run, ref: str, api_base: str | None, options: CallOptions, session: Session
) -> None:
    """Raise RunError if a pulled run would have a model called that this command does not name: by
    `--model`, `--teacher` or `--judge`, or as MODEL@HOST by `--allow-calls`.

    An address that only the run names counts as not named. Rules, scripts and shipped models call
    nobody. Raise FatalModelError for an invalid address.
    """
    if api_base is not None:
        check_address(api_base, f"{ref}: its address in the run")
    pulled = run.manifest.pulled_from
    if pulled is None or ref in HARMLESS or ref.startswith(("rule:", "scripted:")):
        return
    if ref in session.named if api_base is None else api_base == options.api_base:
        return
    target = f"{ref}@{_host_of(ref, api_base, options.specs)}"
    if target not in options.allow:
        shown = printable_line(target)
        raise RunError(
            f"{run.path}: the set pulled from {printable_line(pulled)} wants to call {shown} with "
            f"your key, at your cost; to allow it, add --allow-calls {shown}"
        )


def _host_of(ref: str, api_base: str | None, specs: Sequence[Path]) -> str:
    """Return `HOST[:PORT]` where a model would be called, `here` for weights on this machine, else
    the provider's name. Raise FatalModelError for an unknown model."""
    model = resolve(ref, api_base=api_base, specs=specs)
    if model.ref.startswith(("local:", "vllm:")):
        return "here"
    base = api_base or base_of(model.provider)
    return urlsplit(base).netloc.rpartition("@")[2] if base else model.provider


def printable_line(text: str) -> str:
    """Return the first 200 characters of untrusted text, with `?` for each that is not
    printable."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:200])
