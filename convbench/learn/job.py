"""One training job: a resolved recipe in the folder of its checkpoint."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast, overload

from convbench import catalog
from convbench.catalog.read import read
from convbench.errors import ConvbenchError, TrainError
from convbench.guard import die_with_parent
from convbench.learn.launch import GUARDED, MARK
from convbench.learn.losses import objective
from convbench.learn.merged import log_of
from convbench.learn.mixing import completed
from convbench.learn.pairs import Pairs
from convbench.learn.rows import PairRows, Rows, pair_rows, training_rows
from convbench.learn.select import Selection
from convbench.learn.stored_rows import ROWS, StoredData, read_data, write_data
from convbench.learn.tokens import ChatTokens, load_tokenizer
from convbench.learn.weights import Weighted
from convbench.models.where import content, named, positions
from convbench.options.shared import CallOptions, SpecOptions
from convbench.options.spread import Spread
from convbench.schema import ProtocolSpec
from convbench.schema.recipe import Launch, Recipe
from convbench.store.checkpoint import TRAINING, Checkpoint
from convbench.store.jsonl import write_whole
from convbench.store.run import Run
from convbench.store.token_probs import Recorded


class Other(Protocol):
    """Training data that are neither weighted conversations nor pairs."""

    selection: Selection
    items: Sized
    skipped: dict[str, int]

    def describe(self) -> Iterator[str]:
        """Yield the lines that a dry run shows."""
        ...


Learnt = Weighted | Pairs | Other
"""What a trainer's `data` returns."""
WeightedData = Weighted | StoredData[Rows]
PairData = Pairs | StoredData[PairRows]
"""Argument of `fit` of this package's trainers: the training data, or rows already stored."""


EARLIER = 16
"""Most earlier trainings that `training.json` lists."""


@dataclass(frozen=True)
class Job:
    """A resolved recipe (`recipe.yaml`) and its folder, which gets the checkpoint."""

    recipe: Recipe
    folder: Path

    @classmethod
    def read(cls, file: Path) -> Job:
        """Return the job of a resolved recipe, as `convbench train` writes it. Raises TrainError if
        it names no run or no model."""
        recipe = catalog.check(Recipe, read(file), str(file))
        if recipe.run is None or recipe.model is None:
            raise TrainError(
                f"{file}: found no `run` or `model`; expected a resolved recipe; "
                "`convbench train NAME` writes one, or add both keys"
            )
        return cls(recipe, file.parent)

    @cached_property
    def run(self) -> Run:
        """The run that it learns from, or the first of several."""
        assert self.recipe.run is not None
        return Run.open((self.folder / self.recipe.run).resolve())

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """All runs that it learns from as one log; the first is `run`."""
        more = (Run.open((self.folder / path).resolve()) for path in self.recipe.runs)
        return (self.run, *more)

    def log(self) -> Selection:
        """Return the logged conversations of all runs that train."""
        return log_of(self.runs, self.recipe.data)

    def learnt(self, module: ModuleType) -> Learnt:
        """Return the data that a trainer's module makes of the log, with the recipe's `data.mix`
        applied. Raises TrainError if the trainer ignores runs after the first."""
        learnt: Learnt = module.data(self)
        if self.recipe.runs and len(learnt.selection.parts) != len(self.runs):
            raise TrainError(
                f"trainer {self.recipe.trainer}: found {len(self.runs)} runs, and it learns from "
                "one; expected one --run, or a trainer whose data come of job.log()"
            )
        own_loss = bool(getattr(module, "OWN_LOSS", False))
        return cast("Learnt", completed(learnt, self.recipe.data, own_loss))

    @property
    def model(self) -> str:
        """The model to start from: a path or Hub id."""
        assert self.recipe.model is not None
        return named(self.recipe.model) or self.recipe.model

    @cached_property
    def chat(self) -> ChatTokens:
        """Tokenizer and chat template of the model, with the tools of the first run."""
        return self.chat_of(self.run)

    def chat_of(self, run: Run) -> ChatTokens:
        """Return tokenizer and chat template of the model, with the tools of a run."""
        manifest = run.manifest
        policy = manifest.cast.get(manifest.protocol.policy)
        return ChatTokens(
            load_tokenizer(self.model),
            reasoning=self.recipe.data.reasoning,
            options={**(policy.template if policy else {}), **_tools(manifest.protocol)},
        )

    @cached_property
    def others(self) -> dict[str, tuple[ChatTokens, Recorded | None]]:
        """Chat and recorded log-probabilities of the runs after the first, by their ids."""
        return {
            run.manifest.id: (self.chat_of(run), recorded_for(self, run)) for run in self.runs[1:]
        }

    @property
    def longest(self) -> int | None:
        """Most tokens of a row: the recipe's limit or the model's positions, whichever is less;
        None without a limit."""
        limits = [self.recipe.data.max_length, positions(self.model)]
        return min((limit for limit in limits if limit is not None), default=None)


@dataclass(frozen=True)
class Means:
    """How a training calls models, starts processes and holds locks."""

    calls: CallOptions
    """Options of calls to models."""
    specs: SpecOptions
    """Folders and settings of specs."""
    launch: Launch
    """Launch of the trainer's processes."""
    in_process: bool = False
    """Whether to train in this process if one is enough and it uses no accelerator (whose memory
    would stay allocated)."""
    locks: list[int] = field(default_factory=list)
    """Descriptors of the locks taken so far, which the workers inherit."""
    spread: Spread = field(default_factory=Spread)
    """Shards for sampling and judging."""


class Preparation(Protocol):
    """Work that a learner needs before its data are complete. Results are stored on disk, so that
    stopped work resumes."""

    def ready(self) -> bool:
        """Return True if nothing is left to do."""
        ...

    def describe(self) -> Iterator[str]:
        """Yield lines on what is to be done, for a dry run."""
        ...

    def do(self) -> list[str]:
        """Do what is left; return notes on failures. Raises TrainError if it cannot be done."""
        ...

    def told(self) -> Iterator[tuple[str, str]]:
        """Yield (label, line) pairs to print after the policy is trained."""
        ...


Data = Callable[[Job], Learnt]
"""A trainer's `data`: returns weighted conversations or pairs of a job's runs; loads no torch."""
Fit = Callable[[Job, Any], None]
"""A trainer's `fit`: trains on the data and saves the checkpoint; loads torch."""
Prepare = Callable[[Job, Means], Preparation | None]
"""A trainer's optional `prepare`: returns the work to do before `data`, or None; writes nothing."""


def recorded_for(job: Job, run: Run | None = None) -> Recorded | None:
    """Return a run's recorded log-probabilities (default: the first run's), or None if the job's
    objective does not use them."""
    loss = job.recipe.loss
    wanted = loss.pi_0 == "recorded" and objective(loss).needs_pi_0
    return Recorded(*(run or job.run).folders()) if wanted else None


@overload
def rows_of(job: Job, learnt: WeightedData) -> Rows: ...
@overload
def rows_of(job: Job, learnt: PairData) -> PairRows: ...
def rows_of(job: Job, learnt: WeightedData | PairData) -> Rows | PairRows:
    """Return the rows of the training data; stored data hold them already."""
    if isinstance(learnt, StoredData):
        return learnt.rows
    if isinstance(learnt, Pairs):
        return pair_rows(learnt, job.chat, job.longest, job.others)
    unit = job.recipe.data.unit
    return training_rows(learnt, job.chat, job.longest, unit, recorded_for(job), job.others)


def shared_data(job: Job, module: ModuleType, folder: Path) -> StoredData[Any]:
    """Return the training data of several processes on this machine; the first process makes and
    stores them for all."""
    if os.environ.get("LOCAL_RANK") == "0":
        learnt = cast("Weighted | Pairs", job.learnt(module))
        flat_tasks = learnt.flat_tasks if isinstance(learnt, Weighted) else 0.0
        write_data(folder, StoredData(rows_of(job, learnt), counts_of(job, learnt), flat_tasks))
    return read_data(folder)


def script(data: Data, fit: Fit) -> None:
    """Run a trainer script, `trainers/NAME.py --recipe FILE`, under any launcher."""
    arguments = sys.argv[1:]
    if len(arguments) != 2 or arguments[0] != "--recipe":
        raise SystemExit(f"usage: {sys.argv[0]} --recipe FILE")
    if os.environ.get(GUARDED):
        die_with_parent()  # a killed launcher would leave its workers running
    try:
        job = Job.read(Path(arguments[1]))
        module, folder = sys.modules[data.__module__], os.environ.get(ROWS)
        shared = folder is not None and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1
        fit(job, shared_data(job, module, Path(folder or "")) if shared else job.learnt(module))
    except ConvbenchError as error:
        raise SystemExit(f"{MARK}{error}") from None
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        _leave()


def _leave() -> None:
    """Exit a worker whose work is saved, without tearing down the libraries' threads.

    At exit gloo's threads race with the interpreter's end, and sometimes abort a process that had
    succeeded ("terminate called without an active exception").
    """
    atexit._run_exitfuncs()  # trackers close their files in these
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def counts_of(job: Job, learnt: Learnt) -> dict[str, Any]:
    """Return the figures on a training's data that can be computed again from the run's records."""
    selection, ties = learnt.selection, getattr(learnt, "ties", None)
    return {
        "run": job.run.manifest.id,
        "judge": selection.judge,
        "metric": job.recipe.data.metric,
        "unit": "pair" if isinstance(learnt, Pairs) else job.recipe.data.unit,
        "conversations": len(selection.logged),
        "items": len(learnt.items),
        "skipped": {**selection.skipped, **learnt.skipped},
        "flagged": selection.flagged.record(),
        **({"ties": ties.record()} if ties is not None else {}),
        **({"runs": _runs(job, learnt)} if job.recipe.runs else {}),
    }


def trained_before(job: Job) -> list[dict[str, Any]]:
    """Return the earlier trainings of the weights that a training starts from, the last first;
    empty for a base model."""
    before = Checkpoint(Path(job.model).expanduser())
    if not before.finished:
        return []
    told = before.training
    own = {key: told.get(key) for key in ("recipe", "run", "judge", "items", "base")}
    past = told.get("earlier")
    return [own, *(past if isinstance(past, list) else [])][:EARLIER]


def write_summary(
    job: Job, learnt: Learnt | StoredData[Any], log: list[dict[str, Any]], **more: Any
) -> None:
    """Write `training.json`: the checkpoint's origin, and the log of its training."""
    figures = learnt.figures if isinstance(learnt, StoredData) else counts_of(job, learnt)
    write_whole(
        job.folder / TRAINING,
        json.dumps(
            {
                "recipe": job.recipe.name,
                "base": job.recipe.model,
                "base_fingerprint": content(job.model),
                **({"earlier": earlier} if (earlier := trained_before(job)) else {}),
                **figures,
                **more,
                "log": log,
            },
            indent=1,
        ).encode()
        + b"\n",
    )


def _runs(job: Job, learnt: Learnt) -> list[dict[str, Any]]:
    """Return each run's record in the log, with its share in the mix."""
    mix = job.recipe.data.mix or (1.0,) * len(job.runs)
    parts = learnt.selection.parts
    return [part.record() | {"share": share} for part, share in zip(parts, mix, strict=True)]


def _tools(protocol: ProtocolSpec) -> dict[str, Any]:
    """Return the policy's tools as options of its chat template; empty without tools."""
    tools = protocol.speakers[protocol.policy].offered
    return {"tools": tools} if tools else {}
