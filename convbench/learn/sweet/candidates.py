"""Sample candidate replies at every turn from the policy that is trained, into a JSONL file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from convbench.engine.jobs import run_in_loop
from convbench.errors import ConvbenchError, TrainError
from convbench.learn.log import LoggedConversation
from convbench.learn.pairs import PolicyReply as Answer
from convbench.learn.select import Selection
from convbench.learn.sweet.pairs import ReplyKey, SweetArgs, is_held
from convbench.models.model import Model
from convbench.models.weights_path import SHIPPED_REFS, policy_weights
from convbench.options.shared import CallOptions
from convbench.rollout.calls import check_affordable, max_calls, open_caller, raise_stop
from convbench.rollout.candidates import (
    CandidateJob,
    CandidatePosition,
    SampleSummary,
    candidate_rows,
    open_candidate_model,
)
from convbench.rollout.candidates import sample_candidates as sample_them
from convbench.rollout.plan import seen_before
from convbench.schema import ToolCall
from convbench.schema.recipe import Recipe
from convbench.store.run import Run
from convbench.views import policy_turns

MissingCandidate = tuple[LoggedConversation, int, int, int]
"""(conversation, turn, rounds of tools before it, number) of a candidate still to be sampled."""


def iter_histories(
    selection: Selection, settings: SweetArgs
) -> Iterator[tuple[LoggedConversation, int, int]]:
    """Yield (conversation, turn, rounds of tools before it) of every reply of the policy that gets
    candidates. Equal histories come once; tasks held out from the critic do not come."""
    seen: set[str] = set()
    protocol = selection.run.manifest.protocol
    sampled_ids = _sampled_ids(selection, settings)
    for name, logged in selection.by_task().items():
        if is_held(name, settings.held_out):
            continue
        for item in logged[: settings.conversations]:
            if item.conversation_id not in sampled_ids:
                continue
            for turn in policy_turns(protocol, item.conversation):
                for rounds in range(item.conversation.turns[turn].reply_count):
                    before = seen_before(protocol, item.conversation, turn, rounds)
                    mark = json.dumps([name, before], default=str)
                    if mark not in seen:
                        seen.add(mark)
                        yield item, turn, rounds


def _sampled_ids(selection: Selection, settings: SweetArgs) -> set[str]:
    """Return the ids of the share of conversations that get candidates; it is the same on every
    machine."""
    ids = [
        item.conversation_id
        for name, logged in selection.by_task().items()
        if not is_held(name, settings.held_out)
        for item in logged[: settings.conversations]
    ]
    order = sorted(ids, key=lambda name: hashlib.sha256(f"share/{name}".encode()).digest())
    return set(order[: max(1, round(settings.share * len(order)))])


def missing_candidates(
    selection: Selection, settings: SweetArgs, file: Path
) -> list[MissingCandidate]:
    """Return (conversation, turn, rounds of tools before it, number from 0) of every candidate that
    the file does not hold yet.

    All are missing if the file does not exist.
    """
    on_disk = {(*reply_key(row), row["candidate"]) for row in read_candidates(file)}
    return [
        (item, turn, before, number)
        for item, turn, before in iter_histories(selection, settings)
        for number in range(settings.candidates)
        if (item.conversation_id, turn, before, number) not in on_disk
    ]


def check_policy(run: Run, recipe: Recipe, calls: CallOptions) -> None:
    """Refuse a policy that could not be asked for candidates; nothing is sent or loaded.

    Raises ConvbenchError."""

    async def open_and_check() -> None:
        model = _open_model(run, recipe, calls)
        try:
            check_affordable(model, calls)
        finally:
            await model.aclose()

    run_in_loop(open_and_check)


def _open_model(run: Run, recipe: Recipe, calls: CallOptions) -> Model:
    member = run.manifest.cast[run.manifest.protocol.policy]
    start = _starting_model(run, recipe)
    if start != member.model:  # weights that the user named
        calls = calls.with_user_models(start)
    return open_candidate_model(run, start, calls)


def sample_candidates(
    run: Run,
    recipe: Recipe,
    selection: Selection,
    settings: SweetArgs,
    file: Path,
    calls: CallOptions,
) -> None:
    """Append the missing candidates of every turn to the file; nothing is done if there are none.

    Raise what stopped it early, or TrainError if some failed or are missing; the same call
    then resumes.
    """
    jobs = [
        (
            item.conversation,
            CandidatePosition(
                conversation_id=item.conversation_id, turn=turn, rounds=rounds, candidate=number
            ),
        )
        for item, turn, rounds, number in missing_candidates(selection, settings, file)
    ]
    if not jobs:
        return
    done = run_in_loop(lambda: _sample_here(run, recipe, settings, jobs, file, calls))
    raise_stop(done.jobs)
    if done.failures:
        count, (words, _) = done.failures.total(), done.failures.most_common(1)[0]
        raise TrainError(
            f"{count} candidates failed, e.g. {words}; run the command again to resume"
        )
    missing = len(missing_candidates(selection, settings, file))
    if missing:
        raise TrainError(f"{missing} candidates are missing; run the command again to resume")


async def _sample_here(
    run: Run,
    recipe: Recipe,
    settings: SweetArgs,
    jobs: list[CandidateJob],
    file: Path,
    calls: CallOptions,
) -> SampleSummary:
    model = _open_model(run, recipe, calls)
    call_limit = max_calls(calls, [model])
    try:
        async with open_caller(run, calls, "candidates", call_limit, [model]) as caller:
            return await sample_them(
                run, model, jobs, file, caller, call_limit, settings.temperature
            )
    finally:
        await model.aclose()


def _starting_model(run: Run, recipe: Recipe) -> str:
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
    return recipe.model if recipe.model in SHIPPED_REFS else f"local:{recipe.model}"


def reply_key(row: Mapping[str, Any]) -> ReplyKey:
    """Return the key of the logged reply that a candidate is an alternative to: (conversation_id,
    turn, rounds of tools before it)."""
    return row["conversation_id"], row["turn"], row.get("rounds", 0)


def reply_of(row: Mapping[str, Any]) -> Answer:
    """Return a candidate's reply, its text and calls, without reasoning."""
    calls = tuple(ToolCall.model_validate(call) for call in row.get("calls", ()))
    return Answer(row["text"], row["cut"], calls=calls)


def read_candidates(file: Path) -> Iterator[dict[str, Any]]:
    """Return an iterator over the candidates in a file, as dicts; it is empty if the file does not
    exist.

    Keys are `conversation_id`, `turn`, `candidate` (number), `text` and `cut`, and, where there are
    any, `rounds` (of tools before it) and `calls`.
    """
    return candidate_rows(file)
