"""Work on one shard: an ordinary run, resumed in a folder of its own.

`convbench build --run RUN --shard 7/200` does the tasks of the run's plan on shard 7 only. It may
be killed and started again at any time, on any machine that sees the run's folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from convbench.engine import Budget, Journal, run_in_loop
from convbench.errors import (
    BudgetError,
    ConvbenchError,
    FatalModelError,
    MissingDependency,
    RunError,
)
from convbench.judges.resolve import Judge, judge_from_run
from convbench.judges.run import score_pending
from convbench.judges.units import JudgeSummary
from convbench.options.shared import CallOptions
from convbench.options.spread import parse_addresses
from convbench.rollout.build import BuildSummary, build_missing_in_loop
from convbench.rollout.calls import JOURNAL_FILE, ModelPool, count_journal
from convbench.rollout.candidates import SampleSummary, sample_missing
from convbench.store import Run, shards
from convbench.store.seal import seal_run
from convbench.store.shard_attempts import ShardAttempt, begin_attempt
from convbench.store.shards import ShardLimit, ShardPlan, ShardTask, read_plan

BUILD, CANDIDATES, JUDGE = "build", "candidates", "judge-"
FOR_ALL = (BudgetError, FatalModelError, MissingDependency)
"""Errors that would stop the next shard too."""
SliceResult = BuildSummary | SampleSummary | JudgeSummary
"""Summary of one task on a shard."""


def run_slice(
    run: Run, index: int, total: int, calls: CallOptions, tasks: Sequence[ShardTask] | None = None
) -> list[SliceResult]:
    """Do these tasks, or those of the run's plan, on one shard; return a summary of each, in order.

    Tasks after one that was interrupted or stopped are not begun and have no summary. Raises
    RunError if the run has another number of shards, and other ConvbenchError subclasses.
    """
    plan = read_plan(run.path)
    tasks = plan.tasks if tasks is None else tasks
    if plan.count != total:
        raise RunError(
            f"--shard {index}/{total}: {run.path} has {plan.count} shards; expected "
            f"--shard {index}/{plan.count}"
        )
    limit = _shard_limit(plan, index, tasks, calls)
    calls = replace(calls.with_ledger(), budget=limit.usd, budget_tokens=limit.tokens)
    attempt = begin_attempt(run.path, index)
    return run_in_loop(lambda: work_on(run, attempt, tasks, calls))


def _shard_limit(
    plan: ShardPlan, index: int, tasks: Sequence[ShardTask], calls: CallOptions
) -> ShardLimit:
    """Return what a shard may spend: its share of `--budget`, else its limit in the plan if these
    are the plan's tasks."""
    usd, tokens = calls.budget, calls.budget_tokens
    if usd is not None or tokens is not None:
        return ShardLimit(
            usd=None if usd is None else usd / plan.count,
            tokens=None if tokens is None else tokens // plan.count,
        )
    planned = all(task in plan.tasks for task in tasks)
    return plan.limits.get(index, ShardLimit()) if planned else ShardLimit()


async def work_on(
    run: Run, attempt: ShardAttempt, tasks: Sequence[ShardTask], calls: CallOptions
) -> list[SliceResult]:
    """Do these tasks in an attempt at a shard and return their summaries, up to the first that did
    not finish.

    However it ends, the shard's folder is sealed, and why work is left is written into it. Errors
    are raised.
    """
    ledger: Budget = calls.ledger
    ledger.before_attempt, before = attempt.raise_if_lost, ledger.before_attempt
    calls = replace(calls, api_base=_call_address(calls, attempt))
    results: list[SliceResult] = []
    left: str | None = "interrupted"
    try:
        for task in tasks:
            results.append(await _do_task(run, attempt.folder, task, calls))
            jobs = results[-1].jobs
            if jobs.interrupted or jobs.stopped is not None:
                left = left if jobs.stopped is None else str(jobs.stopped)
                return results
        left = None
    except Exception as error:
        left = (
            str(error) if isinstance(error, ConvbenchError) else f"{type(error).__name__}: {error}"
        )
        raise
    finally:
        ledger.before_attempt = before
        if not attempt.is_lost():
            seal_run(attempt.folder)
        attempt.end_work(left)
    return results


async def _do_task(run: Run, folder: Path, task: ShardTask, calls: CallOptions) -> SliceResult:
    shard = Run(folder, run.manifest, run)
    if task.name == BUILD:
        return await build_missing_in_loop(shard, calls)
    if task.name == CANDIDATES:
        return await sample_missing(shard, calls)
    return await score_pending(shard, stored_judge(run, task), calls)


def _call_address(calls: CallOptions, attempt: ShardAttempt) -> str | None:
    """Return the server address for a shard's calls. Of several it is always the same one, so that
    the turns of a conversation reach the server that has its prefix in the cache; each further
    attempt takes another one."""
    several = parse_addresses(calls.api_base)
    if len(several) < 2:
        return calls.api_base
    return several[(attempt.index + attempt.number) % len(several)]


def stored_judge(run: Run, task: ShardTask) -> Judge:
    """Return the judge of a task, made from the spec in the run's folder `judges`.

    Raises MissingDependency, with the command that stores it, if it is not there.
    """
    specs = run.judge_specs()
    fingerprint = task.name.removeprefix(JUDGE)
    if fingerprint not in specs:
        raise MissingDependency(
            f"judges/{fingerprint}.json",
            needed_for=f"{run.path}: judge {task.judge}",
            install=f"convbench judge --judge {task.judge} --run {run.path}",
        )
    downloaded = run.manifest.pulled_from is not None
    return judge_from_run(task.judge or "judge", specs[fingerprint], downloaded=downloaded)


@dataclass
class ShardsEnding:
    """How work on several shards ended."""

    interrupted: bool = False
    stopped: ConvbenchError | None = None
    notes: list[str] = field(default_factory=list)
    """Notes for the user."""
    goes_on: str | None = None
    """What continues after Ctrl-C, and how to end it."""


def work_in_turn(
    run: Run, indices: Sequence[int], tasks: Sequence[ShardTask], calls: CallOptions
) -> ShardsEnding:
    """Work on one shard after another in this process, with one ledger, and return how it ended.

    An error in one shard becomes a note and does not stop the others, except those of FOR_ALL,
    which end the work as `stopped`. So does an interruption, as `interrupted`.
    """
    calls = calls.with_ledger()
    ledger: Budget = calls.ledger
    ledger.set_limits(calls.budget, calls.budget_tokens)
    folders = shards.shard_folders(run.path)
    if ledger.has_limit:
        for folder in (run.path, *folders.values()):
            count_journal(ledger, Journal(folder / JOURNAL_FILE))

    async def work_all() -> ShardsEnding:
        ending, pool = ShardsEnding(), ModelPool()
        try:
            for index in indices:
                attempt = begin_attempt(run.path, index)
                if ledger.has_limit and attempt.folder != folders[index]:  # copied calls count once
                    ledger.count_earlier(str((attempt.folder / JOURNAL_FILE).resolve()), 0, 0.0)
                try:
                    results = await work_on(run, attempt, tasks, replace(calls, model_pool=pool))
                except FOR_ALL as error:
                    ending.stopped = error
                except ConvbenchError as error:
                    ending.notes.append(f"shard {index}: {error}")
                else:
                    ending.interrupted = any(result.jobs.interrupted for result in results)
                    errors = [r.jobs.stopped for r in results if r.jobs.stopped is not None]
                    ending.stopped = next((e for e in errors if isinstance(e, FOR_ALL)), None)
                    ending.notes += [f"shard {index}: {error}" for error in errors]
                if ending.interrupted or ending.stopped is not None:
                    break
        finally:
            await pool.aclose()
        return ending

    return run_in_loop(work_all)
