"""Build: have every conversation that a run still lacks and append it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from convbench.catalog import function
from convbench.engine.caller import Caller
from convbench.engine.jobs import Summary
from convbench.engine.offload import offload
from convbench.engine.recorded import Recording, run_recorded
from convbench.models.model import Model
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


async def build(
    run: Run,
    cast: Mapping[str, Model],
    caller: Caller,
    *,
    concurrency: int,
    planned: Planned = every_sample,
) -> Built:
    """Have the conversations that the run lacks. The caller holds the run's lock."""
    manifest = run.manifest
    downloaded = manifest.pulled_from is not None
    checks = [function(c.function, downloaded=downloaded) for c in manifest.protocol.checks]
    tools_of(manifest)  # a function that is not there is found before any call
    keys = Names(job.key for job in planned(run))
    built = Built(kept=run.attempts().good)

    async def work(job: Rollout) -> Conversation:
        example = run.examples[job.example_id]
        conversation = await play(manifest, example, job, cast, caller, tools)
        if conversation.failure is not None:
            return conversation
        found = await offload(
            lambda: [
                flag for check in checks for flag in check(conversation, example, manifest.protocol)
            ],
            texts(conversation),
        )
        return conversation.model_copy(update={"flags": tuple(dict.fromkeys(found))})

    recording = Recording[Rollout, Conversation](
        run.conversations_file,
        lambda job, conversation: conversation.model_dump_json().encode(),
        lambda job, error: failed(job, manifest, error),
        lambda key: key.rpartition("@")[0] in keys,
        lambda job: f"{job.key}@",
        lambda conversation: conversation.failure is not None,
        lambda job, conversation: _count(built, manifest.protocol.policy, conversation),
    )
    async with open_tools(manifest, start=bool(keys)) as tools:
        jobs = planned(run) if keys else ()
        built.jobs = await run_recorded(jobs, len(keys), work, recording, caller, concurrency)
    return built


def _count(built: Built, policy: str, conversation: Conversation) -> None:
    built.flags.update(conversation.flags)
    if conversation.failure is not None:
        built.failures[conversation.failure.message] += 1
    for turn in conversation.turns:
        if turn.speaker == policy:
            built.turns += 1
            built.cut += turn.finish_reason == "length"


def identical_samples(run: Run) -> int:
    """Return the number of examples all of whose samples say the same, word for word."""
    return alike(
        (conversation.example_id, str([turn.content for turn in conversation.turns]))
        for conversation in run.conversations()
        if conversation.failure is None and conversation.branch is None
    )
