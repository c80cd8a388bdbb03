"""Judge kind `adaptation`: train on a self-edit, ask closed book, score what was learnt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from convbench.engine import run_in_loop
from convbench.engine.caller import Caller
from convbench.engine.session import Session
from convbench.errors import DataError
from convbench.judges.adaptation.grader import open_grader
from convbench.judges.adaptation.runner import (
    AdaptationRunner,
    cache_of,
    devices_for,
    open_runner,
    settings_of,
    threads_for,
)
from convbench.judges.resolve import Judge, as_run_asked
from convbench.judges.verdicts import scored_verdict
from convbench.judges.work import Case, JudgeTools, JudgeWork
from convbench.options.shared import CallOptions
from convbench.rollout.calls import max_calls
from convbench.schema import Conversation, Example, ProtocolSpec, Verdict, text_of
from convbench.store import Run
from convbench.views import policy_turns

MARGIN = 0.03
"""Smallest net gain that counts as an improvement: grade `recall` overstates gains by some
hundredths (docs/lab/2026-11-26-closed-book-grades.md)."""

T = TypeVar("T")


def with_runner(
    run: Run,
    judge: Judge,
    calls: CallOptions,
    session: Session,
    work: Callable[[AdaptationRunner], T],
    **settings: object,
) -> T:
    """Return the result of `work` with a runner of this judge, under the run's lock; `settings`
    replace some of the judge's.

    It runs in a thread, since the loop must be free for a grading model; an interrupt lets the
    running adaptation end. Errors of `work` pass through.
    """
    judge = as_run_asked(run, judge)
    fence = judge.spec.fence or "none"
    chosen = settings_of(judge).model_copy(update=settings)

    async def run_work() -> T:
        async with (
            JudgeWork(run, judge, calls, session).open_caller(max_calls(calls, [])) as caller,
            open_grader(run, chosen.grader, chosen.inner, caller, calls, session, fence) as grade,
        ):
            with cache_of(run) as cache:
                runner = open_runner(run, chosen, cache, devices_for(calls), fence)
                runner.grade = grade
                done = asyncio.get_running_loop().run_in_executor(None, work, runner)
                try:
                    return await asyncio.shield(done)
                except asyncio.CancelledError:
                    runner.learner_pool.halted.set()
                    await asyncio.wait([done])
                    raise
                finally:
                    await asyncio.to_thread(runner.learner_pool.close)

    with run.lock():
        return run_in_loop(run_work)


@asynccontextmanager
async def open_kind(work: JudgeWork) -> AsyncIterator[tuple[Caller, JudgeTools]]:
    """Open the learner, its cache, and the grader if a model grades; yield (caller, tools), and
    close them. The tools' `kind_state` is (runner, thread pool).

    Each concurrent adaptation has its own thread: one for each device of the judge, with a process
    on it, else one, or as many as the user sets. An adaptation is cached before its verdict is
    written, so that a crash loses only the running adaptations.
    """
    settings, devices = settings_of(work.judge), devices_for(work.calls)
    fence = work.judge.spec.fence or "none"
    many = threads_for(work.calls, devices)
    threads = ThreadPoolExecutor(many, "adaptation")
    async with (
        work.open_caller(max_calls(work.calls, [])) as caller,
        open_grader(
            work.run, settings.grader, settings.inner, caller, work.calls, work.session, fence
        ) as grade,
    ):
        with cache_of(work.run) as cache:
            runner = open_runner(work.run, settings, cache, devices, fence)
            runner.grade = grade
            try:
                yield caller, JudgeTools(caller, many, (runner, threads))
            finally:  # in threads, so that the loop can finish a running grade
                runner.learner_pool.halted.set()
                await asyncio.to_thread(threads.shutdown)
                await asyncio.to_thread(runner.learner_pool.close)


async def score(case: Case, tools: JudgeTools) -> Verdict:
    """Return the verdict on the conversation's self-edit, which is tried in a thread; see
    `verdict_of` for its scores."""
    runner, threads = tools.kind_state
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(
        threads, verdict_of, runner, case.judge, case.conversation, case.example
    )


def verdict_of(
    runner: AdaptationRunner, judge: Judge, conversation: Conversation, example: Example
) -> Verdict:
    """Adapt to one self-edit and return the verdict, with scores `accuracy`, `gain`, `net`,
    `improves` (1 if `net` is above 0.03), `overall` (accuracy minus the penalty, at least -1) and
    `trained` (1 or 0).

    `gain` and `net` are accuracy and overall minus the accuracy before. An edit that cannot be
    trained on has the accuracy before, and the `reason` in its details. Raise DataError for a
    conversation without a policy turn.
    """
    protocol = runner.run.manifest.protocol
    outcome = runner.edit_outcome(example, edit_of(protocol, conversation))
    lost = runner.accuracy_lost(example, outcome)
    overall = max(-1.0, outcome.accuracy - runner.settings.penalty * lost)
    net = overall - outcome.before
    scores = {
        "accuracy": outcome.accuracy,
        "gain": outcome.gain,
        "net": net,
        "improves": float(net > MARGIN),
        "overall": overall,
        "trained": float(outcome.reason is None),
    }
    details = {
        "before": outcome.before,
        "by_seed": list(outcome.by_seed),
        "replies": [list(replies) for replies in outcome.replies],
        "texts": outcome.texts,
        "steps": outcome.steps,
        "seconds": round(outcome.seconds, 3),
        "learner": runner.learning.fingerprint,
        **({"lost": lost} if runner.settings.penalty else {}),
        **({"reason": outcome.reason} if outcome.reason else {}),
    }
    return scored_verdict(
        judge, conversation, protocol, scores, details=details, cost_usd=0.0, attempts=0
    )


def edit_of(protocol: ProtocolSpec, conversation: Conversation) -> str:
    """Return the self-edit: the text of the policy's last turn. Raises DataError without one."""
    turns = policy_turns(protocol, conversation)
    if not turns:
        raise DataError(f"conversation {conversation.conversation_id}: the policy never spoke")
    return text_of(conversation.turns[turns[-1]].content)
