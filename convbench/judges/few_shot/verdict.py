"""Judge kind `few-shot`: train as a self-edit says, ask the task's own test, grade the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from convbench.engine.caller import Caller
from convbench.judges.adaptation.runner import devices_for, threads_for
from convbench.judges.adaptation.verdict import edit_of
from convbench.judges.few_shot.runner import (
    FewShotRunner,
    cache_of,
    open_runner,
    outputs_of,
    settings_of,
)
from convbench.judges.few_shot.solve import Trial
from convbench.judges.resolve import Judge
from convbench.judges.verdicts import scored_verdict
from convbench.judges.work import Case, JudgeTools, JudgeWork
from convbench.rollout.calls import max_calls
from convbench.schema import Conversation, Example, ProtocolSpec, Verdict


@asynccontextmanager
async def open_kind(work: JudgeWork) -> AsyncIterator[tuple[Caller, JudgeTools]]:
    """Open the learner and the cache of finished trials; yield (caller, tools), and close them.

    The tools' `kind_state` is (runner, thread pool).

    Each concurrent trial has its own thread: one for each device of the judge, with a process on
    it, else one, or as many as the user sets. A trial is cached before its verdict is written, so
    that a crash loses only the running trials.
    """
    settings, devices = settings_of(work.judge), devices_for(work.calls)
    many = threads_for(work.calls, devices)
    threads = ThreadPoolExecutor(many, "few-shot")
    async with work.open_caller(max_calls(work.calls, [])) as caller:
        with cache_of(work.run) as cache:
            runner = open_runner(work.run, settings, cache, devices)
            try:
                yield caller, JudgeTools(caller, many, (runner, threads))
            finally:
                runner.learner_pool.halted.set()
                await asyncio.to_thread(threads.shutdown)
                await asyncio.to_thread(runner.learner_pool.close)


async def score(case: Case, tools: JudgeTools) -> Verdict:
    """Return the verdict on the conversation's self-edit, which is tried in a thread; see
    `verdict_of` for its scores."""
    runner, threads = tools.kind_state
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(
        threads, verdict_of, runner, case.judge, case.conversation, case.example, case.protocol
    )


def verdict_of(
    runner: FewShotRunner,
    judge: Judge,
    conversation: Conversation,
    example: Example,
    protocol: ProtocolSpec,
) -> Verdict:
    """Try one self-edit and return the verdict, with scores `accuracy` and `overall` (1 if all
    tests are solved, else 0), `gain` and `net` (minus the same before), `improves` and `trained` (1
    or 0).

    An edit that is not trained on scores as the unadapted policy, with the `reason` in the details.
    Raise DataError for an example that is no task of grids, or a conversation without a policy
    turn.
    """
    outputs = outputs_of(example)
    before = runner.try_unadapted(example)
    edit, trial, reason = runner.try_written(example, edit_of(protocol, conversation))
    right, was = float(trial.is_right(outputs)), float(before.is_right(outputs))
    scores = {
        "accuracy": right,
        "gain": right - was,
        "net": right - was,
        "improves": float(right > was),
        "overall": right,
        "trained": float(reason is None),
    }
    details = {
        "before": was,
        "attempts": _as_lists(trial),
        "rows": trial.rows,
        "steps": trial.steps,
        "views": trial.asked,
        "unread": trial.unread,
        "seconds": trial.seconds,
        "learner": runner.learning.fingerprint,
        **({"reason": reason} if reason else {}),
    }
    if edit is not None:
        details["edit"] = {
            "tools": sorted(edit.groups),
            "strategy": edit.strategy,
            "learning_rate": edit.learning_rate,
            "epochs": edit.epochs,
        }
    return scored_verdict(
        judge, conversation, protocol, scores, details=details, cost_usd=0.0, attempts=0
    )


def _as_lists(trial: Trial) -> list[list[list[list[int]]]]:
    """Return the attempts as lists: [tests][attempts][rows][cells]."""
    return [[[list(row) for row in grid] for grid in attempts] for attempts in trial.attempts]
