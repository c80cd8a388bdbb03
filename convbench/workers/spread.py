"""From a run to workers on its shards, and from what they left to what one process would tell."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from convbench.engine import Summary
from convbench.engine import run as run_loop
from convbench.engine.grants import Ledger
from convbench.engine.need import Estimate
from convbench.errors import BudgetError, ConvbenchError, RunError
from convbench.judge.all import Have as Judges
from convbench.judge.all import score_here
from convbench.judge.kinds import kind_of
from convbench.judge.loop import Judged
from convbench.judge.pending import Pending, unscored
from convbench.judge.resolve import Judge
from convbench.options.declare import as_words
from convbench.options.shared import CallOptions, SpecOptions
from convbench.options.spread import Spread, WorkOptions
from convbench.rollout.calls import USUAL
from convbench.rollout.candidates import Sampled, lacking
from convbench.rollout.loop import Built, every_sample
from convbench.store import Run, shards
from convbench.store.claims import Listed, listed, reopen
from convbench.store.seal import FILE as SEALS
from convbench.store.shards import ShardPlan, ShardTask, read_plan, shard_of, write_plan
from convbench.workers.board import Watching
from convbench.workers.forecast import Foreseen, earlier_runs, forecast, measured
from convbench.workers.on import Crew, Place, place_of
from convbench.workers.worker import BUILD, CANDIDATES, Worked, Worker, spent_in

LOOK_S = 0.3
"""Seconds between two looks at workers that run elsewhere."""


@dataclass
class Started:
    """How workers ended, or that none was started."""

    interrupted: bool = False
    told: list[str] = field(default_factory=list)
    """What to know of them."""
    worked: Worked | None = None
    """What the one did that was this process."""


@dataclass(frozen=True)
class Spreading:
    """One command's work on shards: what its user said."""

    spread: Spread
    calls: CallOptions
    specs: SpecOptions

    def wanted(self, run: Run) -> bool:
        """Whether the work is to be done shard by shard."""
        return self.spread.said or shards.is_sharded(run.path)

    def build(self, run: Run, calls: CallOptions) -> Built:
        """Have the conversations that a run lacks."""
        wanting = list(every_sample(run))
        before = run.attempts().good
        groups = {run.examples[job.example_id].group_id for job in wanting}
        with run.lock():
            started = self._work(run, [ShardTask(name=BUILD)], {BUILD: groups})
        built = Built(kept=before)
        policy, failed, good = run.manifest.protocol.policy, 0, 0
        wanted = {job.key for job in wanting}
        for conversation in run.conversations():
            good += conversation.failure is None
            if conversation.key not in wanted:
                continue
            built.flags.update(conversation.flags)
            if conversation.failure is not None:
                failed += 1
                built.failures[conversation.failure.message] += 1
            for turn in conversation.turns:
                if turn.speaker == policy:
                    built.turns += 1
                    built.cut += turn.finish_reason == "length"
        built.jobs = ending(run, good - before, failed, started)
        return built

    def candidates(self, run: Run) -> Sampled:
        """Sample the candidates that a folder of them lacks."""
        before = list(lacking(run))
        groups = {run.examples[talk.example_id].group_id for talk, _ in before}
        with run.lock():
            started = self._work(run, [ShardTask(name=CANDIDATES)], {CANDIDATES: groups})
        left = sum(1 for _ in lacking(run))
        return Sampled(ending(run, len(before) - left, left, started))

    def judge(self, run: Run, judges: Sequence[Judge], calls: CallOptions) -> list[Judged]:
        """Let judges score what they have not scored of a run; those that read a file of people's
        labels in this process, for it is of the whole run."""
        apart = [item for item in judges if "labels" not in kind_of(item.spec).needs]
        whole = [item for item in judges if item not in apart]
        pending = {item.fingerprint: unscored(run, item) for item in apart}
        groups: dict[str, set[str]] = {}
        tasks = []
        for item in apart:
            run.keep_judge(item.fingerprint, item.spec)
            tasks.append(ShardTask(name=f"judge-{item.fingerprint}", judge=item.name))
            groups[tasks[-1].name] = set()
        for one in run.heads():
            group = run.examples[one.example_id].group_id
            for item in apart:
                if one.conversation_id in pending[item.fingerprint][0]:
                    groups[f"judge-{item.fingerprint}"].add(group)
        with run.lock():
            started = self._work(run, tasks, groups)
        found = [_judged(run, item, *pending[item.fingerprint], started) for item in apart]
        return found + (score_here(run, whole, calls) if whole else [])

    def _work(self, run: Run, tasks: Sequence[ShardTask], groups: dict[str, set[str]]) -> Started:
        """Spread the run where it is not, note what is to be done, and have it done."""
        plan = self.planned(run, tasks)
        for name, wanting in groups.items():
            reopen(run.path, plan, name, {shard_of(group, plan.count) for group in wanting})
        self._cap(run)
        place = place_of(self.spread.on) if self.spread.on else None
        if listed(run.path).finished:
            return Started()
        label = " + ".join(task.judge or task.name for task in tasks)
        with Watching(run, label, quiet=self.calls.quiet):
            return (
                alone(run, self.calls, self.spread.rate)
                if place is None
                else self._started(run, place)
            )

    def planned(self, run: Run, tasks: Sequence[ShardTask]) -> ShardPlan:
        """Return the run's plan with these tasks, written down; the run is spread where it is
        not."""
        asked, lease = self.spread.shards, self.spread.lease
        if not shards.is_sharded(run.path):
            plan = ShardPlan(count=asked or self._usual(), tasks=tuple(tasks))
            if lease is not None:
                plan = plan.model_copy(update={"lease_s": lease})
            groups = {name: one.group_id for name, one in run.examples.items()}
            shards.begin(run.path, plan, groups)
            (run.path / SEALS).unlink(missing_ok=True)  # of text that lies in shards now
            return plan
        plan = read_plan(run.path)
        if asked is not None and asked != plan.count:
            raise RunError(
                f"--shards {asked}: {run.path} has {plan.count} shards; expected {plan.count}, or "
                f"none said. To spread it anew: convbench merge {run.path}"
            )
        had = {task.name for task in plan.tasks}
        more = tuple(task for task in tasks if task.name not in had)
        new = plan.model_copy(update={"tasks": plan.tasks + more, "lease_s": lease or plan.lease_s})
        if new != plan:
            write_plan(run.path, new)
        return new

    def _usual(self) -> int:
        """Return how many shards suit the workers: some for each, so that the last ones end at
        about one time."""
        return 8 * self.crew(Path()).count if self.spread.on else 8

    def _cap(self, run: Run) -> None:
        """Tell the ledger the limits; a new one, what the run spent before there was one."""
        folders = [run.path, *shards.parts(run.path).values()]
        found = [spent_in(folder) for folder in folders]
        spent = Estimate(sum(e.tokens for e in found), sum(e.usd or 0.0 for e in found))
        ledger = Ledger(run.path / shards.FOLDER / shards.LEDGER)
        ledger.cap(self.calls.budget, self.calls.budget_tokens, spent)

    def crew(self, run: Path) -> Crew:
        """Return what a launcher starts."""
        place = place_of(self.spread.on or "local")
        options = WorkOptions(
            run=run, rate=self.spread.rate, specs=self.specs,
            calls=replace(self.calls, budget=None, budget_tokens=None, quiet=True),
        )  # fmt: skip
        count = self.spread.workers or place.count or place.launcher.usual(place)
        return Crew(
            run=run, words=tuple(as_words(options)), count=count, address=place.address,
            template=self.spread.template, lease_s=self.spread.lease or shards.LEASE_S,
        )  # fmt: skip

    def foresee(
        self,
        run: Path,
        policy: str,
        *,
        conversations: int,
        calls: int,
        prompt_tokens: int,
        reply_tokens: int,
        usd: float | None,
    ) -> Foreseen:
        """Return what the work would take, and what would be started for it."""
        place = place_of(self.spread.on) if self.spread.on else None
        crew = self.crew(run.resolve()) if place else None
        at_once = self.calls.concurrency or USUAL
        workers = crew.count if crew else 1
        rate = self.spread.rate
        found = forecast(
            conversations=conversations, calls=calls, prompt_tokens=prompt_tokens,
            reply_tokens=reply_tokens, usd=usd, count=self.spread.shards or self._usual(),
            workers=workers, lease_s=self.spread.lease or shards.LEASE_S,
            rates=measured(policy, reversed(earlier_runs()), at_once),
            most_s=rate,
        )  # fmt: skip
        script = place.launcher.written(crew) if place and crew else None
        return Foreseen(found, self.spread.on, script)

    def _started(self, run: Run, place: Place) -> Started:
        crew = self.crew(run.path.resolve())
        crew = dataclasses.replace(crew, count=min(crew.count, read_plan(run.path).count))
        team = place.launcher.start(crew)
        started = Started(told=list(team.told))
        try:
            while team.alive():
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            started.interrupted = True
            started.told += team.stop()
        finally:
            team.close()
        return started


def _judged(run: Run, judge: Judge, before: Pending, kept: int, started: Started) -> Judged:
    """Return what a judge did since, from what lies on the disk."""
    left, _ = unscored(run, judge)
    judged = Judged(judge.name, kept=kept)
    failed = 0
    for one in run.heads() if len(left) else ():
        if one.conversation_id in left and (verdict := left[one.conversation_id]) is not None:
            failed += 1
            judged.count(verdict)
    judged.jobs = ending(run, len(before) - len(left), failed, started)
    return judged


def alone(run: Run, calls: CallOptions, rate: float | None = None) -> Started:
    """Work on a run's shards in this process."""
    worker = Worker(run, calls, rate)
    worked = run_loop(worker.work)
    _tell(calls, worker)
    return Started(interrupted=worked.interrupted, worked=worked)


def _tell(calls: CallOptions, worker: Worker) -> None:
    """Add what a worker spent to the command's own ledger, which tells it at the end."""
    if calls.ledger is not None:
        for mine, theirs in (
            (calls.ledger.all, worker.ledger.all), (calls.ledger.lost, worker.ledger.lost),
            (calls.ledger.assumed, worker.ledger.assumed),
        ):  # fmt: skip
            mine.attempts += theirs.attempts
            mine.tokens += theirs.tokens
            mine.usd += theirs.usd
        calls.ledger.unpriced = calls.ledger.unpriced or worker.ledger.unpriced


def ending(run: Run, done: int, failed: int, started: Started) -> Summary:
    """Return how the work ended, from what lies on the disk."""
    found = listed(run.path)
    stopped = None if found.finished or started.interrupted else reason(run, found, started)
    return Summary(done, failed, started.interrupted, stopped)


def reason(run: Run, found: Listed, started: Started) -> ConvbenchError:
    """Say why shards are not done."""
    if started.worked is not None and started.worked.stopped is not None:
        return started.worked.stopped
    left = found.count - len(found.done)
    head = f"{left} of {found.count} shards are not done"
    if found.stopped:
        (why, many), *others = Counter(found.stopped.values()).most_common()
        more = f" ({many} shards; {len(others)} other reasons)" if others else ""
        kind = BudgetError if why.startswith("budget:") else RunError
        return kind(f"{head}: {why}{more}")
    if found.given_up:
        return RunError(f"{head}: {len(found.given_up)} lost too many workers, see their logs in "
                        f"{run.path / shards.FOLDER / shards.WORKERS}")  # fmt: skip
    said = f": {started.told[-1]}" if started.told else "; start more workers, or resume"
    return RunError(head + said)


def judging(options: Spreading, run: Run) -> Judges:
    """Return how judges are to score this run."""
    return options.judge if options.wanted(run) else score_here
