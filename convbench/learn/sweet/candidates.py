"""Candidates of every turn, sampled from the policy that is to be trained; kept line by line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from convbench.engine.jobs import run as run_loop
from convbench.engine.recorded import Recording, run_recorded
from convbench.errors import ConvbenchError, TrainError
from convbench.learn.logged import Logged
from convbench.learn.pairs import CUT, Reply
from convbench.learn.select import Selection
from convbench.learn.sweet.pairs import Place, Sweet, is_held
from convbench.models.model import Model
from convbench.models.where import policy_weights
from convbench.options.shared import CallOptions
from convbench.rollout.branch import call_key, candidate, seen_before
from convbench.rollout.calls import affordable, at_once, calling, open_for, raise_stop
from convbench.schema import Completion, ToolCall, text_of
from convbench.schema.recipe import Recipe
from convbench.store.jsonl import records
from convbench.store.run import Run
from convbench.views import policy_turns, shown

Wanted = tuple[Logged, int, int, int]
"""(conversation, turn, rounds of tools before, number) of a candidate that is to be sampled."""


def histories(selection: Selection, settings: Sweet) -> Iterator[tuple[Logged, int, int]]:
    """Yield (conversation, turn, rounds of tools before) of every reply of the policy that gets
    candidates; equal histories count once, tasks held out from the critic not at all."""
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
                for rounds in range(len(item.conversation.turns[turn].rounds) + 1):
                    before = seen_before(protocol, item.conversation, turn, rounds)
                    mark = json.dumps([name, before], default=str)
                    if mark not in seen:
                        seen.add(mark)
                        yield item, turn, rounds


def _taken(selection: Selection, settings: Sweet) -> set[str]:
    """Return the conversations of `share`, the same on every machine."""
    ids = [
        item.conversation_id
        for name, logged in selection.tasks().items()
        if not is_held(name, settings.held_out)
        for item in logged[: settings.conversations]
    ]
    order = sorted(ids, key=lambda name: hashlib.sha256(f"share/{name}".encode()).digest())
    return set(order[: max(1, round(settings.share * len(order)))])


def lacking(selection: Selection, settings: Sweet, file: Path) -> list[Wanted]:
    """Return the candidates that the file does not hold yet."""
    there = {(*place(row), row["candidate"]) for row in rows(file)}
    return [
        (item, turn, before, number)
        for item, turn, before in histories(selection, settings)
        for number in range(settings.candidates)
        if (item.conversation_id, turn, before, number) not in there
    ]


def ready(run: Run, recipe: Recipe, calls: CallOptions) -> None:
    """Refuse a policy that could not be asked for candidates; nothing is sent or loaded."""

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
    return open_for(
        run, start, member.api_base, calls, short=member.short, member=member, role="policy"
    )


def sample(
    run: Run,
    recipe: Recipe,
    selection: Selection,
    settings: Sweet,
    file: Path,
    calls: CallOptions,
) -> None:
    """Write the candidates of every turn; those on disk are kept."""
    if jobs := lacking(selection, settings, file):
        run_loop(lambda: _sample(run, recipe, settings, jobs, file, calls))


async def _sample(
    run: Run,
    recipe: Recipe,
    settings: Sweet,
    jobs: list[Wanted],
    file: Path,
    calls: CallOptions,
) -> None:
    manifest = run.manifest
    model = _opened(run, recipe, calls)
    many = at_once(calls, [model])
    failed: list[str] = []
    try:
        async with calling(run, calls, "candidates", many, [model]) as caller:
            keys = {call_key(i.conversation, turn, number, r) for i, turn, r, number in jobs}

            async def work(job: Wanted) -> Completion:
                item, turn, before, number = job
                return await candidate(
                    manifest, item.conversation, turn, number, model, caller,
                    temperature=settings.temperature, rounds=before,
                )  # fmt: skip

            recording = Recording[Wanted, Completion](
                file,
                lambda job, reply: json.dumps(_record(*job, reply)).encode(),
                lambda job, error: failed.append(str(error)),
                keys.__contains__,
            )
            done = await run_recorded(jobs, len(jobs), work, recording, caller, many)
    finally:
        await model.aclose()
    raise_stop(done)
    if failed:
        raise TrainError(
            f"{len(failed)} candidates failed, e.g. {failed[0]}; run the command again to go on"
        )


def _starting(run: Run, recipe: Recipe) -> str:
    """Return the reference of the model whose candidates are ranked: the one that is trained."""
    member = run.manifest.cast[run.manifest.protocol.policy]
    if recipe.model in (None, member.model, member.weights):
        return member.model
    try:
        same = policy_weights(run.manifest) == recipe.model
    except ConvbenchError:
        same = False
    return member.model if same else f"local:{recipe.model}"


def _record(item: Logged, turn: int, before: int, number: int, reply: Completion) -> dict[str, Any]:
    text = text_of(reply.content) if reply.raw is None else reply.raw
    found: dict[str, Any] = {
        "conversation_id": item.conversation_id,
        "turn": turn,
        "candidate": number,
        "text": shown(reply.reasoning, text) if reply.reasoning else text,
        "cut": reply.finish_reason in CUT,
    }
    if before:
        found["rounds"] = before
    if reply.raw is None and reply.tool_calls:
        found["calls"] = [call.model_dump() for call in reply.tool_calls]
    return found


def place(row: Mapping[str, Any]) -> Place:
    """Return the reply that a candidate is another one of."""
    return row["conversation_id"], row["turn"], row.get("rounds", 0)


def reply_of(row: Mapping[str, Any]) -> Reply:
    """Return a candidate's reply."""
    calls = tuple(ToolCall.model_validate(call) for call in row.get("calls", ()))
    return Reply(row["text"], row["cut"], calls=calls)


def rows(file: Path) -> Iterator[dict[str, Any]]:
    """Return the candidates in a file; none where there is none."""
    return iter(records(file, "conversation_id", "text")) if file.exists() else iter(())
