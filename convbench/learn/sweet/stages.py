"""`train sweet`: the critic, candidates at each turn, their ranking, the policy.

Every stage leaves its result in the checkpoint's folder (`critic/`, `candidates.jsonl`,
`ranked.jsonl`), and a stage whose result is there is not done again.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convbench.engine.jobs import run as run_loop
from convbench.engine.jobs import run_jobs
from convbench.errors import ConvbenchError, TrainError
from convbench.learn.job import Job
from convbench.learn.select import Logged, Selection, select
from convbench.learn.start import TrainOptions, TrainResult, free_folder, start, write_recipe
from convbench.learn.sweet.pairs import Sweet, check_base, is_held, trajectories
from convbench.models.where import policy_weights
from convbench.rollout.branch import call_key, candidate
from convbench.rollout.calls import CallOptions, at_once, calling, ended, open_for
from convbench.schema import Completion, text_of
from convbench.schema.recipe import Launch, Recipe
from convbench.store.jsonl import Appender, records, write_whole
from convbench.store.run import Run
from convbench.views import messages, policy_turns

CUT = ("length", "filter")


def sweet(options: TrainOptions, run: Run, result: TrainResult) -> TrainResult:
    """Train SWEET on a judged run, with the recipe and launch that `train` chose; taken up again
    where it stopped.

    Raises TrainError, RunError, SpecError before anything heavy is loaded.
    """
    recipe, launch = result.recipe, result.launch
    settings = Sweet.of(recipe.args, recipe.name)
    selection = select(run, recipe.data)
    pairs = trajectories(selection, settings)
    if options.dry_run:
        turns = len(list(histories(selection, settings)))
        result.preview = [
            f"{len(selection.logged)} conversations, judge {selection.judge}",
            f"stage 1: {len(pairs.items)} pairs of trajectories, {len(pairs.held)} held out",
            f"stage 2: {turns} turns, {settings.candidates} candidates each, "
            f"{turns * settings.pairs} pairs",
        ]
        return result
    folder = free_folder(options, run, recipe)
    write_recipe(folder, run, recipe)
    result.path = folder
    train_stage(options, launch, run, critic_recipe(recipe, settings), folder / "critic")
    job = Job(recipe, folder)
    check_base(job)
    sample(run, recipe, selection, settings, folder / "candidates.jsonl", options.calls)
    rank(job, selection, settings)
    train_stage(options, launch, run, recipe, folder)
    result.credit = list(credit(folder / "critic", selection))
    return result


def credit(critic: Path, selection: Selection) -> Iterator[str]:
    """Yield the critic's pair accuracy on held-out tasks, then the advantage of every turn of
    three of their conversations, in words."""
    found = json.loads((critic / "training.json").read_text())["held_out"]
    if not found["pairs"]:
        yield "no pair of held-out tasks; args.held_out is their share"
        return
    yield f"right on {found['accuracy']:.0%} of {found['pairs']} pairs of held-out tasks"
    by_id = {item.conversation.conversation_id: item for item in selection.logged}
    for name, values in found["advantages"].items():
        item = by_id[name]
        yield f"{name}, reward {item.reward:g}"
        turns = policy_turns(selection.run.manifest.protocol, item.conversation)
        for turn, value in zip(turns, values, strict=False):
            said = " ".join(text_of(item.conversation.turns[turn].content).split())
            yield f"  {value:+8.3f}  {textwrap.shorten(said, 70, placeholder=' …')}"


def critic_recipe(recipe: Recipe, settings: Sweet) -> Recipe:
    """Return stage 1's recipe: the same, with the critic's trainer and its own `fit` values."""
    fit = recipe.fit.model_validate({**recipe.fit.model_dump(), **settings.critic})
    name = f"{recipe.name}-critic"
    return recipe.model_copy(update={"name": name, "trainer": "sweet_critic", "fit": fit})


def train_stage(
    options: TrainOptions, launch: Launch, run: Run, recipe: Recipe, folder: Path
) -> None:
    """Train one stage unless its result is there."""
    if (folder / "training.json").exists():
        return
    start(options, launch, recipe, write_recipe(folder, run, recipe))


def histories(selection: Selection, settings: Sweet) -> Iterator[tuple[Logged, int]]:
    """Yield (conversation, turn) of every policy turn that gets candidates; turns with equal
    histories count once, tasks held out from the critic not at all."""
    seen: set[str] = set()
    protocol = selection.run.manifest.protocol
    for name, logged in selection.tasks().items():
        if is_held(name, settings.held_out):
            continue
        for item in logged[: settings.conversations]:
            for turn in policy_turns(protocol, item.conversation):
                before = messages(protocol, item.conversation, protocol.policy, turn)
                mark = json.dumps([name, before], default=str)
                if mark not in seen:
                    seen.add(mark)
                    yield item, turn


def sample(
    run: Run,
    recipe: Recipe,
    selection: Selection,
    settings: Sweet,
    file: Path,
    calls: CallOptions,
) -> None:
    """Write the candidates of every turn; those on disk are kept."""
    there = {(r["conversation_id"], r["turn"], r["candidate"]) for r in _lines(file)}
    jobs = [
        (item, turn, number)
        for item, turn in histories(selection, settings)
        for number in range(settings.candidates)
        if (item.conversation.conversation_id, turn, number) not in there
    ]
    if jobs:
        run_loop(lambda: _sample(run, recipe, settings, jobs, file, calls))


async def _sample(
    run: Run,
    recipe: Recipe,
    settings: Sweet,
    jobs: list[tuple[Logged, int, int]],
    file: Path,
    calls: CallOptions,
) -> None:
    manifest = run.manifest
    member = manifest.cast[manifest.protocol.policy]
    start = _starting(run, recipe)
    if start != member.model:  # weights that the user named
        calls = calls.naming(start)
    model = open_for(run, start, member.api_base, calls)
    many = at_once(calls, [model])
    failed: list[str] = []
    try:
        async with calling(run, calls, "candidates", many) as caller:
            caller.status.total = len(jobs)
            if caller.journal is not None:
                keys = {call_key(i.conversation, turn, number) for i, turn, number in jobs}
                caller.journal.load(keys.__contains__)

            async def work(job: tuple[Logged, int, int]) -> Completion:
                item, turn, number = job
                return await candidate(
                    manifest, item.conversation, turn, number, model, caller,
                    temperature=settings.temperature,
                )  # fmt: skip

            with Appender(file) as out:

                def keep(job: tuple[Logged, int, int], reply: Completion) -> None:
                    out.write(json.dumps(_record(*job, reply)).encode())

                done = await run_jobs(
                    jobs, work, concurrency=many, on_done=keep,
                    on_error=lambda job, error: failed.append(str(error)), status=caller.status,
                )  # fmt: skip
    finally:
        await model.aclose()
    ended(done)
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


def _record(item: Logged, turn: int, number: int, reply: Completion) -> dict[str, Any]:
    return {
        "conversation_id": item.conversation.conversation_id,
        "turn": turn,
        "candidate": number,
        "text": text_of(reply.content),
        "cut": reply.finish_reason in CUT,
    }


def rank(job: Job, selection: Selection, settings: Sweet) -> None:
    """Write `ranked.jsonl`: every candidate with the critic's advantage."""
    file = job.folder / "ranked.jsonl"
    if file.exists():
        return
    from convbench.learn.sweet.ranking import candidate_advantages

    rows = list(_lines(job.folder / "candidates.jsonl"))
    by_id = {item.conversation.conversation_id: item for item in selection.logged}
    known = [row for row in rows if row["conversation_id"] in by_id]
    found = candidate_advantages(job, job.folder / "critic", by_id, known, settings)
    lines = [
        json.dumps({**row, "advantage": value}) for row, value in zip(known, found, strict=True)
    ]
    write_whole(file, ("\n".join(lines) + "\n").encode())


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    return iter(records(file)) if file.exists() else iter(())
