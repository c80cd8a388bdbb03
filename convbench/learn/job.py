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
from convbench.catalog.read import read_yaml
from convbench.errors import ConvbenchError, TrainError
from convbench.learn.launch import ERROR_PREFIX, GUARDED
from convbench.learn.multi_run import apply_mix, merge_runs
from convbench.learn.pairs import Pairs
from convbench.learn.rows import PairRows, TrainingRows, pair_rows, training_rows
from convbench.learn.select import Selection
from convbench.learn.steps import row_limit
from convbench.learn.stored_rows import ROWS, StoredData, read_data, write_data
from convbench.learn.tokens import ChatTokens, load_tokenizer
from convbench.learn.weights import Weighted
from convbench.models.weights_path import content_hash, weights_of
from convbench.options.shared import CallOptions, SpecOptions
from convbench.schema import ProtocolSpec
from convbench.schema.recipe import LaunchSpec, Recipe
from convbench.store.checkpoint import TRAINING, Checkpoint
from convbench.store.jsonl import write_atomic
from convbench.store.run import Run
from convbench.util.guard import die_with_parent


class CustomData(Protocol):
    """Training data that are neither weighted conversations nor pairs."""

    selection: Selection
    items: Sized
    skipped: dict[str, int]

    def describe(self) -> Iterator[str]:
        """Yield the lines that a dry run shows."""
        ...


TrainingData = Weighted | Pairs | CustomData
"""What a trainer's `data` returns."""
WeightedData = Weighted | StoredData[TrainingRows]
PairData = Pairs | StoredData[PairRows]
"""Argument of `fit` of this package's trainers: the training data, or rows already stored."""


MAX_EARLIER = 16
"""Most earlier trainings that `training.json` lists."""


@dataclass(frozen=True)
class Job:
    """A resolved recipe (`recipe.yaml`) and its folder, which gets the checkpoint."""

    recipe: Recipe
    folder: Path

    @classmethod
    def from_file(cls, file: Path) -> Job:
        """Return the job of a resolved recipe, as `convbench train` writes it; its folder is that
        of the file.

        Raise TrainError if it names no run or no model, SpecError if it is invalid.
        """
        recipe = catalog.check_spec(Recipe, read_yaml(file), str(file))
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
        later_runs = (Run.open((self.folder / path).resolve()) for path in self.recipe.runs)
        return (self.run, *later_runs)

    def log(self) -> Selection:
        """Return the logged conversations of all runs that train."""
        return merge_runs(self.runs, self.recipe.data)

    def training_data(self, module: ModuleType) -> TrainingData:
        """Return the data that a trainer's module makes of the log, with the recipe's `data.mix`
        and `data.unrewarded` applied.

        Raise TrainError if the trainer ignores runs after the first, or cannot learn from such
        data.
        """
        data: TrainingData = module.data(self)
        if self.recipe.runs and len(data.selection.parts) != len(self.runs):
            raise TrainError(
                f"trainer {self.recipe.trainer}: found {len(self.runs)} runs, and it learns from "
                "one; expected one --run, or a trainer whose data come of job.log()"
            )
        own_loss = bool(getattr(module, "OWN_LOSS", False))
        return cast("TrainingData", apply_mix(data, self.recipe.data, own_loss))

    @property
    def model(self) -> str:
        """The model to start from: a path or Hub id."""
        assert self.recipe.model is not None
        return weights_of(self.recipe.model) or self.recipe.model

    @cached_property
    def chat(self) -> ChatTokens:
        """Tokenizer and chat template of the model, with the tools of the first run."""
        return self.chat_of(self.run)

    def chat_of(self, run: Run) -> ChatTokens:
        """Return tokenizer and chat template of the model, with the tools of a run."""
        manifest = run.manifest
        return ChatTokens(
            load_tokenizer(self.model),
            reasoning=self.recipe.data.reasoning,
            options={
                **manifest.policy_member.template_options,
                **_template_tools(manifest.protocol),
            },
        )

    @cached_property
    def other_chats(self) -> dict[str, ChatTokens]:
        """Return the chat of each run after the first, by its id. Empty for a single run."""
        return {run.manifest.id: self.chat_of(run) for run in self.runs[1:]}

    @property
    def max_length(self) -> int | None:
        """Most tokens of a row: the recipe's limit or the model's positions, whichever is less;
        None without a limit."""
        return row_limit(self.recipe)


@dataclass(frozen=True)
class TrainContext:
    """How a training calls models, starts processes and holds locks."""

    calls: CallOptions
    """Options of calls to models."""
    specs: SpecOptions
    """Folders and settings of specs."""
    launch: LaunchSpec
    """Launch of the trainer's processes."""
    in_process: bool = False
    """Whether to train in this process if one is enough and it uses no accelerator (whose memory
    would stay allocated)."""
    locks: list[int] = field(default_factory=list)
    """Descriptors of the locks taken so far, which the workers inherit."""


class Preparation(Protocol):
    """Work that a learner needs before its data are complete. Results are stored on disk, so that
    stopped work resumes."""

    def is_ready(self) -> bool:
        """Return True if nothing is left to do."""
        ...

    def describe_work(self) -> Iterator[str]:
        """Yield lines on what is to be done, for a dry run."""
        ...

    def do_work(self) -> list[str]:
        """Do what is left; return notes on failures. Raises TrainError if it cannot be done."""
        ...

    def result_lines(self) -> Iterator[tuple[str, str]]:
        """Yield (label, line) pairs to print after the policy is trained."""
        ...


DataFunction = Callable[[Job], TrainingData]
"""A trainer's `data`: returns weighted conversations or pairs of a job's runs; loads no torch."""
FitFunction = Callable[[Job, Any], None]
"""A trainer's `fit`: trains on the data and saves the checkpoint; loads torch."""


@overload
def load_rows(job: Job, data: WeightedData) -> TrainingRows: ...
@overload
def load_rows(job: Job, data: PairData) -> PairRows: ...
def load_rows(job: Job, data: WeightedData | PairData) -> TrainingRows | PairRows:
    """Return the rows of the training data; stored data hold them already."""
    if isinstance(data, StoredData):
        return data.rows
    if isinstance(data, Pairs):
        return pair_rows(data, job.chat, job.max_length, job.other_chats)
    unit = job.recipe.data.unit
    return training_rows(data, job.chat, job.max_length, unit, job.other_chats)


def shared_data(job: Job, module: ModuleType, folder: Path) -> StoredData[Any]:
    """Return the training data of several processes on this machine; the first process makes and
    stores them for all."""
    if os.environ.get("LOCAL_RANK") == "0":
        data = cast("Weighted | Pairs", job.training_data(module))
        flat_tasks = data.flat_tasks if isinstance(data, Weighted) else 0.0
        write_data(folder, StoredData(load_rows(job, data), counts_of(job, data), flat_tasks))
    return read_data(folder)


def script(data: DataFunction, fit: FitFunction) -> None:
    """Run a trainer script, `trainers/NAME.py --recipe FILE`, under any launcher: read `sys.argv`,
    make the data, fit.

    Raise SystemExit for other arguments, and for a ConvbenchError with the text `convbench: error:
    …`. Among several processes a worker exits at the end and does not return.
    """
    arguments = sys.argv[1:]
    if len(arguments) != 2 or arguments[0] != "--recipe":
        raise SystemExit(f"usage: {sys.argv[0]} --recipe FILE")
    if os.environ.get(GUARDED):
        die_with_parent()  # a killed launcher would leave its workers running
    try:
        job = Job.from_file(Path(arguments[1]))
        module, folder = sys.modules[data.__module__], os.environ.get(ROWS)
        shared = folder is not None and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1
        fit(
            job,
            shared_data(job, module, Path(folder or "")) if shared else job.training_data(module),
        )
    except ConvbenchError as error:
        raise SystemExit(f"{ERROR_PREFIX}{error}") from None
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        _exit_worker()


def _exit_worker() -> None:
    """Exit a worker whose work is saved, without tearing down the libraries' threads.

    At exit gloo's threads race with the interpreter's end, and sometimes abort a process that had
    succeeded ("terminate called without an active exception").
    """
    atexit._run_exitfuncs()  # trackers close their files in these
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def counts_of(job: Job, data: TrainingData) -> dict[str, Any]:
    """Return the figures on a training's data that can be computed again from the run's records.

    Keys are `run` (id), `judge`, `metric`, `unit` (`pair` for pairs), `conversations`, `items`,
    `skipped` (counts by reason), `flagged`, `ties` if best ones were chosen, and `runs` for several
    runs.
    """
    selection, ties = data.selection, getattr(data, "ties", None)
    return {
        "run": job.run.manifest.id,
        "judge": selection.judge,
        "metric": job.recipe.data.metric,
        "unit": "pair" if isinstance(data, Pairs) else job.recipe.data.unit,
        "conversations": len(selection.logged),
        "items": len(data.items),
        "skipped": {**selection.skipped, **data.skipped},
        "flagged": selection.flagged.record(),
        **({"ties": ties.record()} if ties is not None else {}),
        **({"runs": _run_records(job, data)} if job.recipe.runs else {}),
    }


def trained_before(job: Job) -> list[dict[str, Any]]:
    """Return the earlier trainings of the weights that a training starts from, the last first, at
    most 16.

    Each has `recipe`, `run`, `judge`, `items` and `base`. It is empty for a model that is no
    checkpoint of convbench.
    """
    checkpoint = Checkpoint(Path(job.model).expanduser())
    if not checkpoint.is_finished:
        return []
    training = checkpoint.training
    last_training = {key: training.get(key) for key in ("recipe", "run", "judge", "items", "base")}
    past = training.get("earlier")
    return [last_training, *(past if isinstance(past, list) else [])][:MAX_EARLIER]


def write_summary(
    job: Job, data: TrainingData | StoredData[Any], log: list[dict[str, Any]], **more: Any
) -> None:
    """Write `training.json` into the job's folder: the checkpoint's origin, figures on its data,
    `more`, and the `log` of its training."""
    figures = data.figures if isinstance(data, StoredData) else counts_of(job, data)
    write_atomic(
        job.folder / TRAINING,
        json.dumps(
            {
                "recipe": job.recipe.name,
                "base": job.recipe.model,
                "base_fingerprint": content_hash(job.model),
                **({"earlier": earlier} if (earlier := trained_before(job)) else {}),
                **figures,
                **more,
                "log": log,
            },
            indent=1,
        ).encode()
        + b"\n",
    )


def _run_records(job: Job, data: TrainingData) -> list[dict[str, Any]]:
    """Return each run's record in the log, with its share in the mix."""
    mix = job.recipe.data.mix or (1.0,) * len(job.runs)
    parts = data.selection.parts
    return [part.record() | {"share": share} for part, share in zip(parts, mix, strict=True)]


def _template_tools(protocol: ProtocolSpec) -> dict[str, Any]:
    """Return the policy's tools as options of its chat template; empty without tools."""
    tools = protocol.speakers[protocol.policy].tool_schemas
    return {"tools": tools} if tools else {}
