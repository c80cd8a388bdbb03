"""Build: have every conversation that a run still lacks and append it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from convbench.catalog import function
from convbench.engine.caller import Caller, offload
from convbench.engine.jobs import Summary
from convbench.engine.recorded_jobs import RecordedJobs, run_recorded
from convbench.models.model import Model
from convbench.models.tools import ToolsModel
from convbench.rollout.plan import Rollout, plan
from convbench.rollout.play import failed, play
from convbench.rollout.toolbox import open_tools, tools_of
from convbench.rollout.wanted import wanted
from convbench.schema import Conversation
from convbench.stats.alike import alike
from convbench.store import Run
from convbench.store.keys import Names
from convbench.views import texts


@dataclass
class Built:
    """What a build did."""

    jobs: Summary = Summary(0, 0)
    """How the jobs ended."""
    kept: int = 0
    """Conversations that the run had before."""
    failures: Counter[str] = field(default_factory=Counter)
    """Their messages."""
    flags: Counter[str] = field(default_factory=Counter)
    """Fidelity findings of this build, by flag."""
    cut: int = 0
    """Policy turns cut by max_tokens."""
    turns: int = 0
    """Policy turns."""

    @property
    def had(self) -> int:
        """Conversations that the run has now."""
        return self.kept + self.jobs.done

    @property
    def lost(self) -> int:
        """Conversations that ended in a recorded failure."""
        return self.jobs.failed


Planned = Callable[[Run], Iterable[Rollout]]
"""What a run still lacks, asked under its lock."""


def every_sample(run: Run) -> Iterable[Rollout]:
    """Return what a run still lacks: the samples of each question of its split, or the branches
    that are wanted."""
    if run.manifest.kind == "branch":
        return wanted(run)
    return plan(run.manifest, run.examples.values(), run.attempts())


class Building(RecordedJobs[Rollout, Conversation]):
    """The conversations that a run lacks."""

    def __init__(
        self, run: Run, cast: Mapping[str, Model], caller: Caller, planned: Planned
    ) -> None:
        self.file = run.conversations_file
        self.built = Built(kept=run.attempts().good)
        self.tools: Mapping[str, ToolsModel] | None = None
        """Those of the run, once they are open."""
        self._run, self._cast, self._caller, self._planned = run, cast, caller, planned
        downloaded = run.manifest.pulled_from is not None
        self._checks = [
            function(c.function, downloaded=downloaded) for c in run.manifest.protocol.checks
        ]
        tools_of(run.manifest)  # a function that is not there is found before any call
        self._keys = Names(job.key for job in planned(run))

    def jobs(self) -> Iterable[Rollout]:
        """Return what the run lacks."""
        return self._planned(self._run) if self._keys else ()

    def __len__(self) -> int:
        return len(self._keys)

    async def result(self, job: Rollout) -> Conversation:
        """Have a conversation, and look for lapses of its speakers."""
        run, manifest = self._run, self._run.manifest
        example = run.examples[job.example_id]
        conversation = await play(manifest, example, job, self._cast, self._caller, self.tools)
        if conversation.failure is not None:
            return conversation
        flags = await offload(
            lambda: [
                flag
                for check in self._checks
                for flag in check(conversation, example, manifest.protocol)
            ],
            texts(conversation),
        )
        return conversation.model_copy(update={"flags": tuple(dict.fromkeys(flags))})

    def failed_result(self, job: Rollout, error: Exception) -> Conversation:
        """Return a conversation without turns that says why."""
        return failed(job, self._run.manifest, error)

    def owns(self, key: str) -> bool:
        """Whether a call is of one of these conversations."""
        return key.rpartition("@")[0] in self._keys

    def key_prefix(self, job: Rollout) -> str:
        """Return what the keys of a conversation's calls begin with."""
        return f"{job.key}@"

    def count(self, job: Rollout, conversation: Conversation) -> None:
        """Count flags, failures and turns that were cut."""
        built, policy = self.built, self._run.manifest.protocol.policy
        built.flags.update(conversation.flags)
        if conversation.failure is not None:
            built.failures[conversation.failure.message] += 1
        for turn in conversation.turns:
            if turn.speaker == policy:
                built.turns += 1
                built.cut += turn.finish_reason == "length"


async def build(
    run: Run,
    cast: Mapping[str, Model],
    caller: Caller,
    *,
    concurrency: int,
    planned: Planned = every_sample,
) -> Built:
    """Have the conversations that the run lacks. The caller holds the run's lock."""
    work = Building(run, cast, caller, planned)
    async with open_tools(run.manifest, start=len(work) > 0) as work.tools:
        work.built.jobs = await run_recorded(work, caller, concurrency)
    return work.built


def identical_samples(run: Run) -> int:
    """Return the number of examples all of whose samples say the same, word for word."""
    return alike(
        (conversation.example_id, str([turn.content for turn in conversation.turns]))
        for conversation in run.conversations()
        if conversation.failure is None and conversation.branch is None
    )
