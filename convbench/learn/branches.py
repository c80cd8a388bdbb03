"""Sample and judge branches, for learners that pair replies turn by turn.

Branches are a run of their own in `RUN/branches`. Each begins at one policy turn of a train
conversation and is played to its end by the run's own cast; the judge whose verdicts train scores
it. No call whose reply is on disk is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from convbench.errors import ConvbenchError, TrainError
from convbench.judges.ready import check_ready
from convbench.judges.resolve import Judge
from convbench.judges.run import find_pending, judge_with, judges_of
from convbench.learn.job import Job, TrainContext
from convbench.learn.select import Selection, select
from convbench.options.shared import CallOptions
from convbench.rollout.build import build_missing
from convbench.rollout.calls import check_cast, check_outcome
from convbench.rollout.manifest import follow_up_manifest, with_fingerprint
from convbench.rollout.plan import Rollout, plan_branches, request_branches
from convbench.schema import RunManifest, Turn
from convbench.schema.recipe import Recipe
from convbench.shards.runner import ShardRunner, judges_for
from convbench.store.run import Run

INSTEAD = "take the logged conversations with --set pairing.source=logged"


@dataclass(frozen=True)
class BranchPreparation:
    """Preparation of a recipe that learns from branches: those sampled, and those still missing."""

    selection: Selection
    judge: Judge
    run: Run
    """The run of the branches, on disk or not yet."""
    recipe: Recipe
    calls: CallOptions
    runner: ShardRunner

    @classmethod
    def from_job(cls, job: Job, context: TrainContext) -> BranchPreparation:
        """Return the preparation of a job, checked; nothing is written.

        Raise TrainError for a run of imported conversations, a judge that cannot score branches or
        has changed, or a cast that cannot be asked here while branches are missing; other
        ConvbenchErrors if the judge cannot be asked.
        """
        run, recipe = job.run, job.recipe
        if run.manifest.kind == "import":
            raise TrainError(
                f"{run.path}: holds imported conversations, from which no policy here can sample "
                f"branches; {INSTEAD}"
            )
        selection = select(run, recipe.data)
        judge = next(
            (candidate for candidate in judges_of(run) if candidate.name == selection.judge), None
        )
        if judge is None:
            raise TrainError(
                f"{run.path}: judge {selection.judge!r} cannot score new conversations; expected "
                f"rules or a model; name another with --judge, or {INSTEAD}"
            )
        if all(row.fingerprint != judge.fingerprint for row in run.verdict_rows()):
            raise TrainError(
                f"{run.path}: the verdicts of judge {judge.name!r} come from another version of "
                f"it than this convbench has; judge again first: convbench judge --judge "
                f"{judge.name} --run {run.path}"
            )
        calls = context.calls.with_specs(context.specs.folders)
        exists = (run.branches_folder / "run.json").exists()
        branch_run = (
            Run.open(run.branches_folder)
            if exists
            else Run(run.branches_folder, _branch_manifest(run))
        )
        runner = ShardRunner(context.spread, calls, context.specs)
        branching = cls(selection, judge, branch_run, recipe, calls, runner)
        if branching.missing_branches():
            _refuse_changed_cast(run, calls)
        if not branching.is_ready():
            check_ready([judge], calls, run)
        return branching

    def iter_missing(self, run: Run) -> Iterator[Rollout]:
        """Yield the branches that are still to be sampled, given the run of the branches."""
        parents = [item.conversation for item in self.selection.logged]
        per_turn = self.recipe.pairing.per_turn
        return plan_branches(run.manifest, parents, per_turn=per_turn, on_disk=run.attempts())

    def missing_branches(self) -> list[Rollout]:
        """Return the branches that are still to be sampled."""
        return list(self.iter_missing(self.run))

    def count_unjudged(self) -> int:
        """Return the number of sampled branches that the judge has not scored."""
        return len(find_pending(self.run, self.judge)[0])

    def is_ready(self) -> bool:
        """Return True if nothing is left to sample or judge."""
        return not self.missing_branches() and not self.count_unjudged()

    def describe_work(self) -> Iterator[str]:
        """Yield lines on what is left to sample and judge; the cost is the parents' turns'."""
        jobs = self.missing_branches()
        manifest = self.run.manifest
        policy = manifest.cast[manifest.protocol.policy]
        turns = list(self._replaced_turns(jobs))
        calls = sum(turn.reply_count for turn in turns)
        costs = [turn.cost_usd for turn in turns]
        usd = "cost unknown" if None in costs else f"about ${sum(c or 0 for c in costs):.2f}"
        yield from self.selection.describe(self.recipe.data.metric)
        yield (
            f"branches: {len(jobs)} to sample, {self.recipe.pairing.per_turn} at each policy turn, "
            f"to the end: {calls} calls if they are as long as their parents ({policy.model}, "
            f"{usd})"
        )
        yield f"verdicts: {len(jobs) + self.count_unjudged()} of judge {self.judge.name}"
        yield (
            f"stored in {self.run.path}; a pair for each branch whose reward differs from its "
            "parent's"
        )

    def _replaced_turns(self, jobs: Iterable[Rollout]) -> Iterator[Turn]:
        """Yield the parents' sampled turns that the branches replace."""
        parents = {i.conversation_id: i.conversation for i in self.selection.logged}
        for job in jobs:
            assert job.branch is not None
            for turn in parents[job.branch.parent].turns[job.branch.turn :]:
                if turn.finish_reason != "scripted":
                    yield turn

    def do_work(self) -> list[str]:
        """Sample and judge what is missing, in the run's branches folder; return a note for each
        stage with failures.

        Raise what stopped it early, or RunError if too much failed. Nothing is sampled again.
        """
        run = self.run
        if not (run.path / "run.json").exists():
            run = Run.create(run.path, run.manifest, list(self.selection.run.examples.values()))
        notes: list[str | None] = []
        if self.missing_branches():
            parents = (item.conversation for item in self.selection.logged)
            request_branches(run, parents, self.recipe.pairing.per_turn)
            if self.runner.applies_to(run):
                built = self.runner.build_shards(run, self.calls)
            else:
                built = build_missing(run, self.calls, "branches")
            notes.append(check_outcome(built.jobs, self.calls, "branches", built.failures))
        for judged in judge_with(
            run, [self.judge], self.calls, judges_for(self.runner, run)
        ).summaries:
            what = f"verdicts of {judged.name} on branches"
            notes.append(check_outcome(judged.jobs, self.calls, what, judged.failures))
        return [note for note in notes if note]

    def result_lines(self) -> Iterator[tuple[str, str]]:
        """Return an empty iterator: branches say nothing about the trained policy."""
        return iter(())


def _branch_manifest(run: Run) -> RunManifest:
    return follow_up_manifest(run.manifest, run.manifest.cast, kind="branch")


def _refuse_changed_cast(run: Run, calls: CallOptions) -> None:
    """Raise TrainError if the cast cannot be asked here, or if its weights are not those that spoke
    in the conversations."""
    for name, member in run.manifest.cast.items():
        if with_fingerprint(member) != member:
            raise TrainError(
                f"{run.path}: the weights of {name} ({member.model}) are missing or no longer "
                f"those that spoke in the conversations, so no branch can be sampled; {INSTEAD}"
            )

    try:
        check_cast(run, calls)
    except ConvbenchError as error:
        raise TrainError(f"no branch can be sampled: {error}; or {INSTEAD}") from None
