"""Run a command's work on the shards of a run, show the progress, and return the result."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from convbench.engine import Journal, Summary
from convbench.engine.progress import PLAIN_EVERY_S, clock_text
from convbench.errors import BudgetError, ConvbenchError, RunError
from convbench.judges.kinds import kind_of
from convbench.judges.resolve import Judge
from convbench.judges.run import PendingConversations, find_pending, score_here
from convbench.judges.run import RunScorer as Judges
from convbench.judges.units import JudgeSummary
from convbench.options.build import BuildOptions
from convbench.options.declare import as_words
from convbench.options.judge import JudgeOptions
from convbench.options.shared import CallOptions, SpecOptions
from convbench.options.spread import ShardOptions, with_pace
from convbench.rollout.build import BuildSummary, missing_jobs
from convbench.rollout.calls import DEFAULT_CALLS, JOURNAL_FILE
from convbench.rollout.candidates import SampleSummary, missing_candidates
from convbench.shards.forecast import ShardForecast, earlier_runs, forecast_shards, measured_rates
from convbench.shards.job import ShardJob
from convbench.shards.launchers import LaunchTarget, parse_target
from convbench.shards.slice import BUILD, CANDIDATES, JUDGE, ShardsEnding, work_in_turn
from convbench.store import Run, shards
from convbench.store.jsonl import numbered_lines
from convbench.store.seal import FILE as SEALS
from convbench.store.shard_attempts import NOT_BEGUN, ShardStates, mark_left, shard_states
from convbench.store.shards import ShardLimit, ShardPlan, ShardTask, read_plan, shard_of
from convbench.util.terminal import Terminal
from convbench.util.usage_estimate import Tokens

REFRESH_S = 1.0
SHARE = 20
"""Reading the state of very many shards takes at most 1/SHARE of the time."""


class ShardProgress:
    """Context manager that shows the progress of the shards on stderr."""

    def __init__(
        self, run: Run, label: str, *, quiet: bool, console: Console | None = None
    ) -> None:
        self.run, self.label, self.quiet = run, label, quiet
        self.console = console or Terminal(stderr=True)
        self._began = time.monotonic()
        self._states: ShardStates | None = None
        self._before = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch_states, daemon=True)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.quiet:
            return self
        self._read_states()
        self._before = self._states.done_count if self._states else 0
        if self.console.is_interactive:
            self._live = Live(
                get_renderable=self._render_line, console=self.console, refresh_per_second=2
            )
            self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.quiet:
            return
        self._ended.set()
        self._thread.join()
        self._read_states()
        if self._live is not None:
            self._live.stop()
        else:
            self._print_line()

    def _watch_states(self) -> None:
        wait = REFRESH_S if self._live is not None else PLAIN_EVERY_S
        while not self._ended.wait(wait):
            began = time.monotonic()
            self._read_states()
            wait = max(wait, SHARE * (time.monotonic() - began))
            if self._live is None:
                self._print_line()

    def _read_states(self) -> None:
        try:
            self._states = shard_states(self.run.path)
        except ConvbenchError:  # raised again at the end of the command
            return

    def _print_line(self) -> None:
        self.console.print(self._render_line(), markup=False, highlight=False, soft_wrap=True)

    def _render_line(self) -> Text:
        if self._states is None:
            return Text(f"{self.label} …")
        seconds = time.monotonic() - self._began
        return Text(f"{self.label}: {states_line(self._states, self._before, seconds)}")


def states_line(states: ShardStates, before: int, seconds: float) -> str:
    """Return the progress as one line, such as `12/40 shards · 4 running · 0:31 · ETA 1:10`.

    `before` of them were done when the work began, `seconds` ago. `running` is left out if none
    runs, `ETA` if none was finished since or all are done.
    """
    parts = [f"{states.done_count}/{states.count} shards"]
    if states.working:
        parts.append(f"{len(states.working)} running")
    parts.append(clock_text(seconds))
    finished = states.done_count - before
    if states.done_count < states.count and finished > 0:
        parts.append(f"ETA {clock_text((states.count - states.done_count) * seconds / finished)}")
    return " · ".join(parts)


LOOK_S = 0.3
"""Seconds between two polls of a launcher."""
EACH = 4
"""Default number of shards per worker: with several, the last ones end at about the same time."""
ATTEMPTS = "attempts.jsonl"
BUDGET = "budget:"
"""Beginning of a reason that a budget is spent."""


@dataclass(frozen=True)
class ShardRunner:
    """The work of one command on shards."""

    spread: ShardOptions
    calls: CallOptions
    specs: SpecOptions

    def applies_to(self, run: Run) -> bool:
        """Return True if shards were asked for, or the run has them already."""
        return self.spread.is_requested or shards.is_sharded(run.path)

    def build_shards(self, run: Run, calls: CallOptions) -> BuildSummary:
        """Generate the missing conversations of a run shard by shard, under its lock, and return
        the summary.

        A run without shards is spread first. `calls` is not used: the runner's own options apply.
        Why work is left is in the summary's `jobs.stopped`, not raised.
        """
        jobs = list(missing_jobs(run))
        before = run.attempts().success_count
        with run.lock():
            ending = self._do_tasks(
                run, BuildOptions, [ShardTask(name=BUILD)], (job.example_id for job in jobs)
            )
        built = BuildSummary(already_there=before)
        policy, failed, good = run.manifest.protocol.policy, 0, 0
        keys = {job.key for job in jobs}
        for conversation in run.conversations():
            good += conversation.failure is None
            if conversation.key not in keys:
                continue
            built.flags.update(conversation.flags)
            if conversation.failure is not None:
                failed += 1
                built.failures[conversation.failure.message] += 1
            for turn in conversation.turns:
                if turn.speaker == policy:
                    built.turns += 1
                    built.cut += turn.finish_reason == "length"
        built.jobs = _job_summary(run, good - before, failed, ending)
        return built

    def sample_candidates(self, run: Run) -> SampleSummary:
        """Sample the missing candidates of a run of candidates shard by shard, and return the
        summary.

        Why work is left is in the summary's `jobs.stopped`, not raised.
        """
        before = [talk.example_id for talk, _ in missing_candidates(run)]
        with run.lock():
            ending = self._do_tasks(run, BuildOptions, [ShardTask(name=CANDIDATES)], before)
        left = sum(1 for _ in missing_candidates(run))
        return SampleSummary(_job_summary(run, len(before) - left, left, ending))

    def judge_shards(
        self, run: Run, judges: Sequence[Judge], calls: CallOptions
    ) -> list[JudgeSummary]:
        """Let judges score, shard by shard, the conversations that they have not scored; return a
        summary for each.

        Judges that read a file of labels run in this process, since it covers all shards; their
        summaries come last. Why work is left is in `jobs.stopped`, not raised.
        """
        apart = [item for item in judges if "labels" not in kind_of(item.spec).needs]
        labels = [item for item in judges if item not in apart]
        pending = {item.fingerprint: find_pending(run, item) for item in apart}
        for item in apart:
            run.store_judge(item.fingerprint, item.spec)
        tasks = [ShardTask(name=f"{JUDGE}{entry.fingerprint}", judge=entry.name) for entry in apart]
        unjudged = (
            ref.example_id
            for ref in run.conversation_rows()
            for item in apart
            if ref.conversation_id in pending[item.fingerprint][0]
        )
        with run.lock():
            ending = self._do_tasks(run, JudgeOptions, tasks, unjudged)
        judged = [_judge_summary(run, item, *pending[item.fingerprint], ending) for item in apart]
        return judged + (score_here(run, labels, calls) if labels else [])

    def _do_tasks(
        self, run: Run, command: Any, tasks: Sequence[ShardTask], examples: Iterable[str]
    ) -> ShardsEnding:
        """Do these tasks on the shards with missing records, and return how they ended. `examples`
        yields the example_id of each missing record. An unsharded run is spread first."""
        plan = self._write_plan(run, tasks)
        groups = {name: example.group_id for name, example in run.examples.items()}
        todo = Counter(shard_of(groups[name], plan.count) for name in examples)
        if not todo:
            return ShardsEnding()
        mark_left(run.path, dict.fromkeys(todo, NOT_BEGUN))
        label = " + ".join(task.judge or task.name for task in tasks)
        with ShardProgress(run, label, quiet=self.calls.quiet) as progress:
            if self.spread.on is None:
                calls = replace(with_pace(self.calls, self.spread.rate), quiet=True)
                return work_in_turn(run, sorted(todo), tasks, calls)
            ending = self._run_elsewhere(run, command, todo)
        if ending.goes_on is not None:
            progress.console.print(f"note: {ending.goes_on}", markup=False, soft_wrap=True)
        return ending

    def _write_plan(self, run: Run, tasks: Sequence[ShardTask]) -> ShardPlan:
        """Write the run's plan with these tasks and return it. An unsharded run is spread first.
        Raises RunError if `--shards` differs from the number of an existing plan."""
        count = self.spread.shards
        if not shards.is_sharded(run.path):
            plan = ShardPlan(count=count or self._default_count(), tasks=tuple(tasks))
            groups = {name: example.group_id for name, example in run.examples.items()}
            shards.create_shards(run.path, plan, groups)
            (run.path / SEALS).unlink(missing_ok=True)  # of text that lies in shards now
            return plan
        plan = read_plan(run.path)
        if count is not None and count != plan.count:
            raise RunError(
                f"--shards {count}: {run.path} has {plan.count} shards; expected {plan.count}, or "
                f"no --shards. To change the number: convbench merge {run.path} first"
            )
        new = ShardPlan(count=plan.count, tasks=tuple(tasks))
        if new != plan:
            shards.write_plan(run.path, new)
        return new

    def _default_count(self) -> int:
        """Return the default number of shards: EACH for each that is worked on at once."""
        return EACH * (self._at_once(parse_target(self.spread.on)) if self.spread.on else 2)

    def _at_once(self, target: LaunchTarget) -> int:
        return self.spread.workers or target.count or target.launcher.default_count(target.address)

    def _make_job(self, run: Path, command: Any, count: int, indices: Sequence[int]) -> ShardJob:
        """Return the job for a launcher."""
        target = parse_target(self.spread.on or "local")
        at_once = min(self._at_once(target), len(indices))
        rate = None if self.spread.rate is None else self.spread.rate / at_once
        options = command(
            run=run,
            specs=self.specs,
            spread=ShardOptions(rate=rate),
            calls=replace(self.calls, budget=None, budget_tokens=None, quiet=True),
        )
        verb = "judge" if command is JudgeOptions else "build"
        return ShardJob(
            run=run,
            words=(verb, *as_words(options)),
            count=count,
            indices=tuple(indices),
            at_once=at_once,
            address=target.address,
            template=self.spread.template,
        )

    def _run_elsewhere(self, run: Run, command: Any, todo: Mapping[int, int]) -> ShardsEnding:
        """Have shards worked on by a launcher, in passes. Shards whose process was killed are
        started again, and so are those that spent their share while budget is left."""
        before = _read_spend(run)
        ending, chosen = ShardsEnding(), sorted(todo)
        limits = self._shard_limits(before, todo)
        while chosen:
            plan = read_plan(run.path)
            shards.write_plan(run.path, plan.model_copy(update={"limits": limits}))
            self._run_pass(run, command, plan.count, chosen, ending)
            after = _read_spend(run)
            if ending.interrupted:
                break
            states = shard_states(run.path)
            killed = [index for index in chosen if index in states.working]
            over_budget = [i for i in todo if states.left.get(i, "").startswith(BUDGET)]
            more: list[int] = []
            if over_budget and not killed and after != before:
                more = sorted(over_budget, key=todo.__getitem__)[: max(1, len(over_budget) // 2)]
                limits |= self._shard_limits(after, {index: todo[index] for index in more})
            self._count_spend(before, after)
            before, chosen = after, sorted([*killed, *more])
        return ending

    def _run_pass(
        self, run: Run, command: Any, count: int, indices: Sequence[int], ending: ShardsEnding
    ) -> None:
        """Start shards and wait until they have ended."""
        job = self._make_job(run.path.resolve(), command, count, indices)
        started = parse_target(self.spread.on or "local").launcher.start_shards(job)
        try:
            while started.poll_shards():
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            ending.interrupted = True
            ending.goes_on = started.stop()
        finally:
            started.close()
        ending.notes = started.notes

    def _shard_limits(self, spent: _RunSpend, todo: Mapping[int, int]) -> dict[int, ShardLimit]:
        """Return what each of these shards may spend: what it has spent, plus a share of the
        remaining budget in proportion to its missing records."""
        usd, tokens = self.calls.budget, self.calls.budget_tokens
        if usd is None and tokens is None:
            return {}
        limits = {}
        for index, lacking_here in todo.items():
            share = lacking_here / sum(todo.values())
            mine = spent.shards.get(index, (0, 0.0))
            limits[index] = ShardLimit(
                usd=None if usd is None else mine[1] + max(0.0, usd - spent.usd) * share,
                tokens=None
                if tokens is None
                else mine[0] + int(max(0, tokens - spent.tokens) * share),
            )
        return limits

    def _count_spend(self, before: _RunSpend, after: _RunSpend) -> None:
        """Add what a pass spent to the command's own ledger, which is shown at the end."""
        if (ledger := self.calls.ledger) is not None:
            ledger.all.attempts += after.calls - before.calls
            ledger.all.tokens += after.tokens - before.tokens
            ledger.all.usd += after.usd - before.usd
            ledger.unpriced = ledger.unpriced or after.unpriced

    def forecast_work(self, run: Path, policy: str, estimate: Tokens) -> ShardForecast:
        """Return the forecast of the work (`forecast_shards`), with the script that would start it
        for `--on`.

        Rates are measured in an earlier run of this policy in `runs` if there is one. Nothing is
        started or written.
        """
        count = self.spread.shards or self._default_count()
        script, at_once = None, 1
        if self.spread.on is not None:
            job = self._make_job(run.resolve(), BuildOptions, count, range(count))
            at_once = job.at_once
            script = parse_target(self.spread.on).launcher.render_script(job)
        rates = measured_rates(policy, earlier_runs(), self.calls.concurrency or DEFAULT_CALLS)
        return forecast_shards(
            estimate,
            count=count,
            at_once=at_once,
            rates=rates,
            most_s=self.spread.rate,
            on=self.spread.on,
            script=script,
        )


@dataclass(frozen=True)
class _RunSpend:
    """Calls and costs in the journals of a run and its shards."""

    calls: int
    tokens: int
    usd: float
    unpriced: bool
    shards: Mapping[int, tuple[int, float]]
    """(tokens, dollars) by shard index."""


def _read_spend(run: Run) -> _RunSpend:
    """Return what a run and its shards have spent so far."""
    folders = shards.shard_folders(run.path)
    by_shard = {
        index: Journal(folder / JOURNAL_FILE).total_cost() for index, folder in folders.items()
    }
    own = Journal(run.calls_file).total_cost()
    calls, unpriced = 0, False
    for folder in folders.values():
        calls += sum(b'"key":' in line for _, line in numbered_lines(folder / ATTEMPTS))
        unpriced = unpriced or any(
            b'"usd":null' in line for _, line in numbered_lines(folder / JOURNAL_FILE)
        )
    return _RunSpend(
        calls,
        own[0] + sum(tokens for tokens, _ in by_shard.values()),
        own[1] + sum(usd for _, usd in by_shard.values()),
        unpriced,
        by_shard,
    )


def _judge_summary(
    run: Run, judge: Judge, before: PendingConversations, already_scored: int, ending: ShardsEnding
) -> JudgeSummary:
    """Return what a judge has done since `before` was listed, from the files."""
    left, _ = find_pending(run, judge)
    judged = JudgeSummary(judge.name, already_scored=already_scored)
    failed = 0
    for ref in run.conversation_rows() if len(left) else ():
        if ref.conversation_id in left and (verdict := left[ref.conversation_id]) is not None:
            failed += 1
            judged.count_failure(verdict.failure)
    judged.jobs = _job_summary(run, len(before) - len(left), failed, ending)
    return judged


def _job_summary(run: Run, done: int, failed: int, ending: ShardsEnding) -> Summary:
    """Return how the work ended, from the state of the shards."""
    states = shard_states(run.path)
    complete = states.done_count == states.count or ending.interrupted
    return Summary(
        done, failed, ending.interrupted, None if complete else _stop_reason(states, ending)
    )


def _stop_reason(states: ShardStates, ending: ShardsEnding) -> ConvbenchError:
    """Return the error that says why shards are not done."""
    if ending.stopped is not None:
        return ending.stopped
    head = f"{states.count - states.done_count} of {states.count} shards are not done"
    reasons = Counter(why for why in states.left.values() if why != NOT_BEGUN)
    if reasons:
        (why, many), *others = reasons.most_common()
        more = f" ({many} shards; {len(others)} other reasons)" if others else ""
        kind = BudgetError if why.startswith(BUDGET) else RunError
        return kind(f"{head}: {why}{more}")
    return RunError(f"{head}: {ending.notes[-1]}" if ending.notes else f"{head}; resume")


def judges_for(runner: ShardRunner, run: Run) -> Judges:
    """Return the function with which judges score this run: the runner's `judge_shards`, or
    `score_here`."""
    return runner.judge_shards if runner.applies_to(run) else score_here
