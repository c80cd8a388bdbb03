"""Judge `adaptation`: train on every self-edit, ask closed book, write verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

from convbench.engine import Summary, run_jobs
from convbench.engine import run as run_loop
from convbench.engine.status import Status
from convbench.errors import DataError
from convbench.judge import Judge, failed_verdict
from convbench.judge.adaptation.grading import by_model
from convbench.judge.adaptation.learner import Grade
from convbench.judge.adaptation.runner import Runner, cache_of, open_runner, settings_of
from convbench.judge.loop import Judged, unscored
from convbench.rewards import reward
from convbench.rollout.calls import CallOptions, at_once, calling
from convbench.schema import Conversation, Example, ProtocolSpec, Verdict, text_of
from convbench.store import Run
from convbench.store.jsonl import Appender
from convbench.views import policy_turns

LEAST = 1e-9
"""A gain above this is one."""

T = TypeVar("T")
Keep = Callable[[Conversation, Verdict], None]


def with_runner(
    run: Run, judge: Judge, calls: CallOptions, work: Callable[[Runner], T], **settings: object
) -> T:
    """Return what `work` does with a runner of this judge, under the run's lock.

    It works in a thread, beside the loop that asks a judge model where one grades; an interrupt
    lets the adaptation in flight end. `settings` replace some of the judge's.
    """
    chosen = settings_of(judge).model_copy(update=settings)

    async def go() -> T:
        async with (
            calling(run, calls, f"judge {judge.name}", at_once(calls, [])) as caller,
            by_model(run, chosen.grader, chosen.inner, caller, calls) as grade,
        ):
            with cache_of(run) as kept:
                runner = open_runner(run, chosen, kept)
                runner.grade = grade
                done = asyncio.get_running_loop().run_in_executor(None, work, runner)
                try:
                    return await asyncio.shield(done)
                except asyncio.CancelledError:
                    runner.halted.set()
                    await asyncio.wait([done])
                    raise

    with run.lock():
        return run_loop(go)


async def adapted(run: Run, judge: Judge, calls: CallOptions) -> Judged:
    """Let an adaptation judge score what it has not scored; the caller holds the run's lock."""
    pending, kept = unscored(run, judge)
    judged = Judged(judge.name, kept=kept)
    if not pending:
        return judged
    run.keep_judge(judge.fingerprint, judge.spec)
    settings = settings_of(judge)

    with Appender(run.verdicts_file) as file:

        def keep(conversation: Conversation, verdict: Verdict) -> None:
            file.write(verdict.model_dump_json().encode())
            judged.count(verdict)

        async with calling(run, calls, f"judge {judge.name}", at_once(calls, [])) as caller:
            caller.status.total = len(pending)
            async with by_model(run, settings.grader, settings.inner, caller, calls) as grade:
                judged.jobs = await adapt_all(
                    run, judge, pending, keep,
                    many=calls.concurrency or 1, status=caller.status, grade=grade,
                )  # fmt: skip
    return judged


async def adapt_all(
    run: Run,
    judge: Judge,
    pending: Collection[str],
    keep: Keep,
    *,
    many: int = 1,
    status: Status | None = None,
    grade: Grade | None = None,
) -> Summary:
    """Score these conversations, `many` at once, each in a thread of its own.

    What is finished is in the run's cache before its verdict is kept, so that a crash loses the
    adaptations in flight and no more. An adaptation that breaks gives a failed verdict.
    """
    threads = ThreadPoolExecutor(many, "adaptation")
    with cache_of(run) as kept:
        runner = open_runner(run, settings_of(judge), kept)
        runner.grade = grade
        loop = asyncio.get_running_loop()

        def jobs() -> Iterator[Conversation]:
            return (c for c in run.conversations() if c.conversation_id in pending)

        async def work(conversation: Conversation) -> Verdict:
            example = run.examples[conversation.example_id]
            return await loop.run_in_executor(
                threads, verdict_of, runner, judge, conversation, example
            )

        try:
            return await run_jobs(
                jobs(),
                work,
                concurrency=many,
                on_done=keep,
                on_error=lambda c, error: keep(c, failed_verdict(judge, c.conversation_id, error)),
                status=status or Status(),
            )
        finally:  # the loop goes on meanwhile, so that a grade in flight can end
            await asyncio.to_thread(threads.shutdown)


def verdict_of(
    runner: Runner, judge: Judge, conversation: Conversation, example: Example
) -> Verdict:
    """Adapt to one self-edit and return the verdict."""
    protocol = runner.run.manifest.protocol
    outcome = runner.outcome(example, edit_of(protocol, conversation))
    lost = runner.lost(example, outcome)
    overall = max(-1.0, outcome.accuracy - runner.settings.penalty * lost)
    net = overall - outcome.before
    scores = {
        "accuracy": outcome.accuracy,
        "gain": outcome.gain,
        "net": net,
        "improves": float(net > LEAST),
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
    return Verdict(
        conversation_id=conversation.conversation_id,
        judge=judge.name,
        fingerprint=judge.fingerprint,
        scores=scores,
        reward=reward(judge.spec.reward, protocol, scores, 0),
        details=details,
        cost_usd=0.0,
        attempts=0,
        ended=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def edit_of(protocol: ProtocolSpec, conversation: Conversation) -> str:
    """Return the self-edit: the policy's last turn."""
    turns = policy_turns(protocol, conversation)
    if not turns:
        raise DataError(f"conversation {conversation.conversation_id}: the policy never spoke")
    return text_of(conversation.turns[turns[-1]].content)
