"""A worker: claims a shard, does with it what is to be done, gives it back, and takes the next.

It keeps nothing of its own. What it finds and leaves lies in the run's folder, so any number of
workers may come and go; the same code has conversations and verdicts as in one process.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from convbench.engine import Journal, Summary
from convbench.engine.bucket import Buckets
from convbench.engine.grants import Grant, GrantedBudget, Ledger
from convbench.engine.need import Estimate
from convbench.errors import (
    BudgetError,
    ConvbenchError,
    FatalModelError,
    MissingDependency,
    RunError,
)
from convbench.judge.loop import score
from convbench.judge.resolve import Judge, again
from convbench.options.shared import CallOptions
from convbench.options.spread import addresses
from convbench.rollout.calls import Kept
from convbench.rollout.candidates import sampled
from convbench.rollout.fill import filled
from convbench.store import Run, shards
from convbench.store.claims import MOST_LOST, Entry, Held, Watch, claim, here, listed
from convbench.store.seal import seal
from convbench.store.shards import ShardTask, read_plan
from convbench.workers.heart import Heart, new_name

BUILD, CANDIDATES = "build", "candidates"
LOOK_S = (0.2, 5.0)
"""Seconds between two looks for a shard that is free, at least and at most."""
PATIENCE = 4
"""A worker that found none looks again after this part of the time that it has waited: who waits
for the last shard of another is not asleep long after that is done."""
ENDS = (BudgetError, FatalModelError, MissingDependency)
"""What ends a worker, and not its shard alone."""


@dataclass
class Worked:
    """What a worker did."""

    name: str
    shards: int = 0
    lost: int = 0
    """Shards that others took over from it."""
    done: int = 0
    failed: int = 0
    calls: int = 0
    interrupted: bool = False
    stopped: ConvbenchError | None = None
    troubles: list[str] = field(default_factory=list)
    """What ended the work on single shards."""


class Worker:
    """One worker on one run."""

    def __init__(self, run: Run, calls: CallOptions, rate: float | None = None) -> None:
        self.run = run
        self.plan = read_plan(run.path)
        self.name = new_name()
        self.ledger = GrantedBudget(
            Ledger(run.path / shards.FOLDER / shards.LEDGER), 1.5 * self.plan.lease_s + 5
        )
        self.watch = Watch(run.path, self.plan.lease_s)
        self.worked = Worked(self.name)
        self.heart = Heart(run, self.name, self.plan.lease_s, self._spent)
        self.addresses = addresses(calls.api_base)
        self.kept = Kept()
        self.buckets = Buckets(rate)
        self.calls = replace(
            calls, ledger=self.ledger, statuses=self.heart.statuses, kept=self.kept,
            buckets=self.buckets, quiet=True,
            budget=None, budget_tokens=None,
        )  # fmt: skip

    def cap(self, usd: float | None, tokens: int | None) -> None:
        """Set the limits of all workers."""
        assert self.ledger.ledger is not None
        self.ledger.ledger.cap(usd, tokens)

    async def work(self) -> Worked:
        """Work until nothing is left, or nothing that this worker can do."""
        order = list(range(self.plan.count))
        random.shuffle(order)
        before = set(listed(self.run.path).stopped.values())
        finished: set[int] = set()
        since: float | None = None

        def left_alone(entry: Entry) -> bool:
            return entry.why not in before or entry.worker == self.name

        try:
            with self.heart:
                while not self.worked.interrupted and self.worked.stopped is None:
                    self.plan = read_plan(self.run.path)
                    tasks = [task.name for task in self.plan.tasks]
                    held = claim(
                        self.run.path, order, tasks, self.name, self.watch, finished, left_alone
                    )
                    if held is not None:
                        since = None
                        await self._shard(held)
                    elif self._over():
                        break
                    else:
                        now = time.monotonic()
                        since = now if since is None else since
                        await asyncio.sleep(pause(self.plan.lease_s, now - since))
        finally:
            await self.kept.aclose()
            self.buckets.close()
        self._count()
        return self.worked

    def _over(self) -> bool:
        """Whether no shard is held by others, who may yet leave it."""
        found = listed(self.run.path, self.plan)
        held = [one for one in found.held.values() if not self._hopeless(one)]
        return not held and not [i for i in found.waiting if i not in found.stopped]

    def _hopeless(self, entry: Entry) -> bool:
        """Whether a shard lost too many workers, the last one too."""
        return entry.lost >= MOST_LOST and self.watch.silent(entry)

    async def _shard(self, held: Held) -> None:
        """Do what is to be done with a shard, and give it back however that ends."""
        self.heart.shard, self.worked.shards = held.index, self.worked.shards + 1
        self.heart.shards += 1
        done = set(held.entry.done)
        why: str | None = None
        try:
            done, why = await self._tasks(held, done)
        except ENDS as error:
            self.worked.stopped, why = error, str(error)
        except ConvbenchError as error:
            why = str(error)
            if not held.lost():
                self.worked.troubles.append(f"shard {held.index}: {error}")
        except Exception as error:  # a fault of ours would meet every worker in turn
            why = f"{type(error).__name__}: {error}"
            raise
        finally:
            self.ledger.end()
            self.ledger.fence = lambda: None
            if not held.lost():
                seal(shards.parts(self.run.path)[held.index])
            self.worked.lost += not held.give_back(done, why)
            self.heart.shard, self.heart.doing = None, "waits"

    async def _tasks(self, held: Held, done: set[str]) -> tuple[set[str], str | None]:
        """Do the tasks that a shard lacks; return those done, and what ended it before."""
        shard = self._open(held)
        for task in self.plan.tasks:
            if task.name in done:
                continue
            self.heart.doing = task.judge or task.name
            jobs = await self._task(task, shard, self._calls(held))
            if jobs.interrupted:
                self.worked.interrupted = True
                return done, None
            if jobs.stopped is not None:
                raise jobs.stopped
            done = done | {task.name}
        return done, None

    def _open(self, held: Held) -> Run:
        """Return the shard's folder: taken over where its last holder did not give it back, and
        with an account in the ledger."""
        before = shards.parts(self.run.path)[held.index]
        folder = before
        if held.taken_over:
            folder = shards.take_over(self.run.path, held.index, held.epoch, before)
        self.ledger.fence = lambda: fence(held)
        self.ledger.begin(
            held.name, spent_in(folder), lambda name, grant: self._settled(held, before, grant)
        )
        return Run(folder, self.run.manifest, self.run)

    def _settled(self, held: Held, folder: Path, grant: Grant) -> Estimate:
        """Return what whoever held the shard before spent: by its journal, which every attempt is
        written to before it is sent; in full where another machine may hold back what it wrote."""
        if held.before is None or not here(held.before.process):
            return Estimate(grant.tokens, grant.usd)
        found = spent_in(folder)
        return Estimate(
            max(0.0, found.tokens - grant.base_tokens),
            max(0.0, (found.usd or 0.0) - grant.base_usd),
        )

    def _calls(self, held: Held) -> CallOptions:
        """Return the options of a shard's calls: of several addresses always the same one, so that
        a conversation's turns meet the server that has seen its beginning; another after a
        takeover."""
        if len(self.addresses) < 2:
            return self.calls
        lost = held.entry.lost
        return replace(
            self.calls, api_base=self.addresses[(held.index + lost) % len(self.addresses)]
        )

    async def _task(self, task: ShardTask, shard: Run, calls: CallOptions) -> Summary:
        if task.name == BUILD:
            return (await filled(shard, calls)).jobs
        if task.name == CANDIDATES:
            return (await sampled(shard, calls)).jobs
        return (await score(shard, judge_of(self.run, task), calls)).jobs

    def _spent(self) -> tuple[int, float, bool]:
        return self.ledger.all.tokens, self.ledger.all.usd, self.ledger.unpriced

    def _count(self) -> None:
        for status in self.heart.statuses:
            self.worked.done += status.done
            self.worked.failed += status.failed
            self.worked.calls += status.calls


def pause(lease_s: float, waited: float) -> float:
    """Return how many seconds to wait before another look for a free shard, after so many."""
    least, most = LOOK_S
    wait = min(most, lease_s / 6, waited / PATIENCE)
    return max(least, wait) * random.uniform(0.7, 1.3)


class LostShard(RunError):
    """A shard is another worker's now."""


def fence(held: Held) -> None:
    """Refuse to go on with a shard that another took over."""
    if held.lost():
        raise LostShard(
            f"shard {held.index} was taken over by another worker, for this one gave no sign of "
            "life; what it did since is left aside"
        )


def spent_in(folder: Path) -> Estimate:
    """Return what the journal of a shard says was spent."""
    journal = Journal(folder / "calls.jsonl")
    try:
        tokens, usd = journal.totals()
    finally:
        journal.close()
    return Estimate(tokens, usd)


def judge_of(run: Run, task: ShardTask) -> Judge:
    """Return the judge of a task, as the run kept it."""
    specs = run.judge_specs()
    fingerprint = task.name.removeprefix("judge-")
    if fingerprint not in specs:
        raise MissingDependency(
            f"judges/{fingerprint}.json", needed_for=f"{run.path}: judge {task.judge}",
            install=f"convbench judge --judge {task.judge} --run {run.path}",
        )  # fmt: skip
    downloaded = run.manifest.pulled_from is not None
    return again(task.judge or "judge", specs[fingerprint], downloaded=downloaded)
