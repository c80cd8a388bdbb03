"""Sample and judge branches, for learners that pair replies turn by turn.

Branches are a run of their own in `RUN/branches`. Each begins at one policy turn of a train
conversation and is played to its end by the run's own cast; the judge whose verdicts train scores
it. No call whose reply is on disk is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from convbench.errors import ConvbenchError, TrainError
from convbench.judge.all import judge_with, judges_of
from convbench.judge.pending import unscored
from convbench.judge.ready import ready
from convbench.judge.resolve import Judge
from convbench.learn.job import Job, Means
from convbench.learn.select import Selection, select
from convbench.options.shared import CallOptions
from convbench.rollout.build import fill
from convbench.rollout.calls import check_outcome, ready_cast
from convbench.rollout.manifest import ask_again, with_fingerprint
from convbench.rollout.plan import Rollout, branches, want
from convbench.schema import RunManifest, Turn
from convbench.schema.recipe import Recipe
from convbench.shards.runner import ShardRunner, judges_for
from convbench.store.run import Run

INSTEAD = "take the logged conversations with --set pairing.source=logged"


@dataclass(frozen=True)
class Branching:
    """Preparation of a recipe that learns from branches: those sampled, and those still missing."""

    selection: Selection
    judge: Judge
    run: Run
    """The run of the branches, on disk or not yet."""
    recipe: Recipe
    calls: CallOptions
    runner: ShardRunner

    @classmethod
    def of(cls, job: Job, means: Means) -> Branching:
        """Return the preparation of a job, checked; nothing is written. Raises TrainError if it
        cannot be done."""
        run, recipe = job.run, job.recipe
        if run.manifest.kind == "import":
            raise TrainError(
                f"{run.path}: holds imported conversations, which no policy here can leave to go "
                f"another way; {INSTEAD}"
            )
        selection = select(run, recipe.data)
        judge = next((one for one in judges_of(run) if one.name == selection.judge), None)
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
        calls = means.calls.seeing(means.specs.folders)
        there = (run.branches / "run.json").exists()
        held = Run.open(run.branches) if there else Run(run.branches, _manifest(run))
        runner = ShardRunner(means.spread, calls, means.specs)
        found = cls(selection, judge, held, recipe, calls, runner)
        if found.lacking():
            _can_speak(run, calls)
        if not found.ready():
            ready([judge], calls, run)
        return found

    def planned(self, run: Run) -> Iterator[Rollout]:
        """Yield the branches that the run does not hold."""
        parents = [item.conversation for item in self.selection.logged]
        per_turn = self.recipe.pairing.per_turn
        return branches(run.manifest, parents, per_turn=per_turn, on_disk=run.attempts())

    def lacking(self) -> list[Rollout]:
        """Return the branches that are still to be sampled."""
        return list(self.planned(self.run))

    def unjudged(self) -> int:
        """Return the number of sampled branches that the judge has not scored."""
        return len(unscored(self.run, self.judge)[0])

    def ready(self) -> bool:
        """Return True if nothing is left to sample or judge."""
        return not self.lacking() and not self.unjudged()

    def describe(self) -> Iterator[str]:
        """Yield lines on what is left to sample and judge; the cost is the parents' turns'."""
        jobs = self.lacking()
        manifest = self.run.manifest
        policy = manifest.cast[manifest.protocol.policy]
        turns = list(self._again(jobs))
        calls = sum(turn.replies for turn in turns)
        costs = [turn.cost_usd for turn in turns]
        usd = "cost unknown" if None in costs else f"about ${sum(c or 0 for c in costs):.2f}"
        yield from self.selection.describe(self.recipe.data.metric)
        yield (
            f"branches: {len(jobs)} to sample, {self.recipe.pairing.per_turn} at each policy turn, "
            f"to the end: {calls} calls if they are as long as their parents ({policy.model}, "
            f"{usd})"
        )
        yield f"verdicts: {len(jobs) + self.unjudged()} of judge {self.judge.name}"
        yield f"kept in {self.run.path}; pairs: one for each branch of another reward"

    def _again(self, jobs: Iterable[Rollout]) -> Iterator[Turn]:
        """Yield the parents' sampled turns that the branches replace."""
        parents = {i.conversation_id: i.conversation for i in self.selection.logged}
        for job in jobs:
            assert job.branch is not None
            for turn in parents[job.branch.parent].turns[job.branch.turn :]:
                if turn.finish_reason != "scripted":
                    yield turn

    def do(self) -> list[str]:
        """Sample and judge what is missing; return notes on what failed."""
        run = self.run
        if not (run.path / "run.json").exists():
            run = Run.create(run.path, run.manifest, list(self.selection.run.examples.values()))
        notes: list[str | None] = []
        if self.lacking():
            parents = (item.conversation for item in self.selection.logged)
            want(run, parents, self.recipe.pairing.per_turn)
            if self.runner.applies(run):
                built = self.runner.build(run, self.calls)
            else:
                built = fill(run, self.calls, "branches")
            notes.append(check_outcome(built.jobs, self.calls, "branches", built.failures))
        for judged in judge_with(
            run, [self.judge], self.calls, judges_for(self.runner, run)
        ).judged:
            what = f"verdicts of {judged.name} on branches"
            notes.append(check_outcome(judged.jobs, self.calls, what, judged.failures))
        return [note for note in notes if note]

    def told(self) -> Iterator[tuple[str, str]]:
        """Return no lines: branches say nothing about the trained policy."""
        return iter(())


def _manifest(run: Run) -> RunManifest:
    return ask_again(run.manifest, run.manifest.cast, kind="branch")


def _can_speak(run: Run, calls: CallOptions) -> None:
    """Raise TrainError if the cast cannot be asked here, or if its weights are not those that spoke
    in the conversations."""
    for name, member in run.manifest.cast.items():
        if with_fingerprint(member) != member:
            raise TrainError(
                f"{run.path}: the weights of {name} ({member.model}) are not there or no longer "
                f"those that spoke in the conversations, so no branch can be sampled; {INSTEAD}"
            )

    try:
        ready_cast(run, calls)
    except ConvbenchError as error:
        raise TrainError(f"no branch can be sampled: {error}; or {INSTEAD}") from None
