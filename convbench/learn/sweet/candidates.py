"""Sample candidate replies at every turn from the policy that is trained, into a JSONL file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from convbench.engine.jobs import run as run_loop
from convbench.errors import ConvbenchError, TrainError
from convbench.learn.logged import Logged
from convbench.learn.pairs import Reply as Answer
from convbench.learn.select import Selection
from convbench.learn.sweet.pairs import Place, Sweet, is_held
from convbench.models.model import Model
from convbench.models.where import OURS, policy_weights
from convbench.options.shared import CallOptions
from convbench.rollout.calls import affordable, at_once, calling, raise_stop
from convbench.rollout.candidates import (
    SAID,
    Asking,
    Reply,
    Sampled,
    Wanted,
    open_candidates,
    said,
    want,
)
from convbench.rollout.candidates import place as place_of
from convbench.rollout.candidates import sample as sample_them
from convbench.rollout.manifest import ask_again
from convbench.rollout.plan import seen_before
from convbench.schema import ToolCall
from convbench.schema.recipe import Recipe
from convbench.shards.runner import ShardRunner
from convbench.store.jsonl import Appender
from convbench.store.run import Run
from convbench.views import policy_turns

Lacking = tuple[Logged, int, int, int]
"""(conversation, turn, rounds of tools before it, number) of a candidate still to be sampled."""


def histories(selection: Selection, settings: Sweet) -> Iterator[tuple[Logged, int, int]]:
    """Yield (conversation, turn, rounds of tools before it) of every reply of the policy that gets
    candidates. Equal histories come once; tasks held out from the critic do not come."""
    seen: set[str] = set()
    protocol = selection.run.manifest.protocol
    taken = _taken(selection, settings)
    for name, logged in selection.tasks().items():
        if is_held(name, settings.held_out):
            continue
        for item in logged[: settings.conversations]:
            if item.conversation_id not in taken:
                continue
            for turn in policy_turns(protocol, item.conversation):
                for rounds in range(item.conversation.turns[turn].replies):
                    before = seen_before(protocol, item.conversation, turn, rounds)
                    mark = json.dumps([name, before], default=str)
                    if mark not in seen:
                        seen.add(mark)
                        yield item, turn, rounds


def _taken(selection: Selection, settings: Sweet) -> set[str]:
    """Return the ids of the share of conversations that get candidates; it is the same on every
    machine."""
    ids = [
        item.conversation_id
        for name, logged in selection.tasks().items()
        if not is_held(name, settings.held_out)
        for item in logged[: settings.conversations]
    ]
    order = sorted(ids, key=lambda name: hashlib.sha256(f"share/{name}".encode()).digest())
    return set(order[: max(1, round(settings.share * len(order)))])


def lacking(selection: Selection, settings: Sweet, file: Path) -> list[Lacking]:
    """Return the candidates that the file does not hold yet."""
    there = {(*place(row), row["candidate"]) for row in rows(file)}
    return [
        (item, turn, before, number)
        for item, turn, before in histories(selection, settings)
        for number in range(settings.candidates)
        if (item.conversation_id, turn, before, number) not in there
    ]


def ready(run: Run, recipe: Recipe, calls: CallOptions) -> None:
    """Refuse a policy that could not be asked for candidates; nothing is sent or loaded.

    Raises ConvbenchError."""

    async def go() -> None:
        model = _opened(run, recipe, calls)
        try:
            affordable(model, calls)
        finally:
            await model.aclose()

    run_loop(go)


def _opened(run: Run, recipe: Recipe, calls: CallOptions) -> Model:
    member = run.manifest.cast[run.manifest.protocol.policy]
    start = _starting(run, recipe)
    if start != member.model:  # weights that the user named
        calls = calls.naming(start)
    return open_candidates(run, start, calls)


def sample(
    run: Run,
    recipe: Recipe,
    selection: Selection,
    settings: Sweet,
    file: Path,
    calls: CallOptions,
    runner: ShardRunner | None = None,
) -> None:
    """Write the missing candidates of every turn to the file. With shards they are sampled in a
    folder of the run and then gathered. Raises TrainError if some failed."""
    jobs = [
        (
            item.conversation,
            Reply(conversation_id=item.conversation_id, turn=turn, rounds=rounds, candidate=number),
        )
        for item, turn, rounds, number in lacking(selection, settings, file)
    ]
    if not jobs:
        return
    if runner is not None and runner.spread.said:
        done = _by_shards(run, recipe, settings, jobs, file, runner)
    else:
        done = run_loop(lambda: _here(run, recipe, settings, jobs, file, calls))
    raise_stop(done.jobs)
    if done.failures:
        count, (words, _) = done.failures.total(), done.failures.most_common(1)[0]
        raise TrainError(f"{count} candidates failed, e.g. {words}; run the command again to go on")
    left = len(lacking(selection, settings, file))
    if left:
        raise TrainError(f"{left} candidates are not there; run the command again to go on")


async def _here(
    run: Run, recipe: Recipe, settings: Sweet, jobs: list[Wanted], file: Path, calls: CallOptions
) -> Sampled:
    model = _opened(run, recipe, calls)
    many = at_once(calls, [model])
    try:
        async with calling(run, calls, "candidates", many, [model]) as caller:
            return await sample_them(run, model, jobs, file, caller, many, settings.temperature)
    finally:
        await model.aclose()


def _by_shards(
    run: Run, recipe: Recipe, settings: Sweet, jobs: list[Wanted], file: Path, runner: ShardRunner
) -> Sampled:
    path = run.path / "candidates" / file.parent.name
    if (path / "run.json").exists():
        held = Run.open(path)
    else:
        held = Run.create(
            path,
            ask_again(run.manifest, run.manifest.cast, kind="branch"),
            list(run.examples.values()),
        )
    want(held, Asking(model=_starting(run, recipe), temperature=settings.temperature), jobs)
    done = runner.candidates(held)
    wanted = {place_of(reply.model_dump()) for _, reply in jobs}
    with Appender(file) as gathered:
        for source in held.files(SAID):
            for row in said(source):
                if place_of(row) in wanted:
                    gathered.write(json.dumps(row).encode())
                    wanted.discard(place_of(row))
    return done


def _starting(run: Run, recipe: Recipe) -> str:
    """Return the reference of the model that samples the candidates: the one that is trained."""
    member = run.manifest.cast[run.manifest.protocol.policy]
    if recipe.model in (None, member.model, member.weights):
        return member.model
    try:
        same = policy_weights(run.manifest) == recipe.model
    except ConvbenchError:
        same = False
    if same:
        return member.model
    return recipe.model if recipe.model in OURS else f"local:{recipe.model}"


def place(row: Mapping[str, Any]) -> Place:
    """Return the key of the logged reply that a candidate is an alternative to."""
    return row["conversation_id"], row["turn"], row.get("rounds", 0)


def reply_of(row: Mapping[str, Any]) -> Answer:
    """Return a candidate's reply."""
    calls = tuple(ToolCall.model_validate(call) for call in row.get("calls", ()))
    return Answer(row["text"], row["cut"], calls=calls)


def rows(file: Path) -> Iterator[dict[str, Any]]:
    """Return the candidates in a file, none if it does not exist."""
    return said(file)
